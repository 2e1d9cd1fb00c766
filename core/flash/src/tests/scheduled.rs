//! Drives whose channels are arbitrated when they are free: every command ends once, and alone it takes what it takes on booked ones.

use crate::model::{configs, geometry, ops, small, timing};
use crate::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::sample::select;
use weir_units::{Bytes, Nanos};

const WRITE: FlashOp = FlashOp::Write { fua: false };

fn timings() -> impl Strategy<Value = FlashTiming> {
    let who =
        (select(&Arbitration::ALL[1..]), select(Order::ALL), select(&[0u64, 300_000][..]), 0..3u32, any::<bool>());
    let how = (select(OperationUnit::ALL), select(Registers::ALL), any::<bool>(), select(&[0u64, 700][..]));
    let wire = (select(&[0u32, 4096, 2048][..]), any::<bool>(), any::<bool>());
    let suspend = (select(&[None, Some(Nanos(5_000))][..]), select(&[None, Some(Nanos(9_000))][..]), 0..3u32);
    (who, how, wire, suspend).prop_map(
        |(
            (arbitration, order, age, chips, join_planes),
            (gate, registers, cache_read, busy),
            wire,
            (program, erase, limit),
        )| {
            let (burst_bytes, instant, commands) = wire;
            let plain = timing();
            let overheads = Overheads {
                read: Nanos(100),
                program: Nanos(200),
                program_plane: Nanos(70),
                erase: Nanos(300),
                status: Nanos(50),
                ..Overheads::default()
            };
            FlashTiming {
                arbitration,
                order,
                age: Nanos(age),
                chips,
                join_planes,
                gate,
                registers,
                cache_read,
                cache_busy: Nanos(busy),
                burst_bytes,
                channel: if instant { Wire::INSTANT } else { plain.channel },
                overheads: if commands { overheads } else { plain.overheads },
                suspend: Suspend { program, erase, limit },
                ..plain
            }
        },
    )
}

/// Commands that have begun and are not known to be complete, by their tags.
#[derive(Default)]
struct Open {
    begun: BTreeMap<u64, Nanos>,
    number: u64,
}

impl Open {
    fn begin(&mut self, flash: &mut Flash, now: Nanos, op: FlashOp, lpn: u32, units: u32) {
        let when = flash.begin(now, When::at(now), op, lpn, units, 0);
        flash.tell(when, self.number);
        self.begun.insert(self.number, now);
        self.number += 1;
    }

    fn hear(&mut self, flash: &mut Flash) {
        while let Some((tag, at)) = flash.told() {
            let begun = self.begun.remove(&tag).expect("told once, of what has begun");
            assert!(at >= begun, "begun at {begun}, complete at {at}");
        }
    }
}

/// Runs until nothing is under way; when that is.
fn to_the_end(flash: &mut Flash) -> Nanos {
    let mut last = Nanos(0);
    while let Some(at) = flash.next_event() {
        last = at;
        flash.advance(at);
    }
    last
}

proptest! {
    #[test]
    fn every_command_ends_once(
        config in configs(),
        timing in timings(),
        state in select(Precondition::ALL),
        ops in proptest::collection::vec(ops(), 1..200),
        cut in any::<bool>(),
    ) {
        let mut flash = Flash::new(&FlashDriveConfig { timing, ..config }, Nanos(0)).unwrap();
        flash.precondition(state);
        let (mut now, mut open) = (Nanos(0), Open::default());
        for (i, (op, at, units, gap)) in ops.into_iter().enumerate() {
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            // Bursts, and a pause now and then.
            now = now.saturating_add(Nanos(if i % 8 == 0 { u64::from(gap) } else { u64::from(gap % 5_000) }));
            let units = units.min(flash.units() - lpn);
            open.begin(&mut flash, now, op, lpn, units);
            open.hear(&mut flash);
            if i % 16 == 0 {
                flash.check();
            }
        }
        if cut {
            flash.power_cut(now, 3);
        } else {
            to_the_end(&mut flash);
        }
        flash.check();
        open.hear(&mut flash);
        prop_assert!(open.begun.is_empty(), "never complete: {:?}", open.begun);
        let silicon = flash.array().scheduler.as_ref().unwrap();
        prop_assert!(silicon.is_at_rest(), "{silicon:?}");
    }

    /// Data and erases of a plane follow each other as they do when they are booked.
    #[test]
    fn alone_it_is_as_booked(
        config in configs(),
        timing in timings(),
        ops in proptest::collection::vec(ops(), 1..60),
    ) {
        let buffer = BufferConfig::NONE;
        let mut ftl = FtlConfig { multi_plane: false, slc: SlcConfig { blocks: 0, ..config.ftl.slc }, ..config.ftl };
        ftl.gc.mode = GcMode::Plane;
        // Which page a read of nothing senses is not the same.
        ftl.unmapped_read = UnmappedRead::Free;
        let timing = FlashTiming { cache_busy: Nanos(0), ..timing };
        let config = FlashDriveConfig { timing, ftl, buffer, ..config };
        let (scheduled, booked) = (Flash::new(&config, Nanos(0)), Flash::new(&FlashDriveConfig { timing: timing.booked(), ..config }, Nanos(0)));
        prop_assume!(scheduled.is_ok());
        let (mut scheduled, mut booked) = (scheduled.unwrap(), booked.unwrap());
        let mut now = Nanos(0);
        for (op, at, _, _) in ops {
            let lpn = (u64::from(at) * u64::from(booked.units()) / 1_000_000) as u32;
            let when = scheduled.begin(now, When::at(now), op, lpn, 1, 0);
            scheduled.tell(when, 0);
            let end = to_the_end(&mut scheduled);
            let (_, done) = scheduled.told().expect("complete");
            prop_assert_eq!(done, booked.submit(now, op, lpn, 1), "{:?} of {} at {}", op, lpn, now);
            now = end.max(done).saturating_add(Nanos(1));
        }
    }
}

/// A drive of one channel with two dies: 40 us to read, 5 us to transfer, 200 us to program.
fn one_channel(arbitration: Arbitration, order: Order) -> Flash {
    let mut config = small(geometry(1, 1, 32, 16, 1), 0.5);
    config.geometry.ways = 2;
    config.geometry.cell = CellType::Slc;
    config.timing = FlashTiming { arbitration, order, registers: Registers::Single, ..timing() };
    Flash::new(&config, Nanos(0)).unwrap()
}

fn ends(flash: &mut Flash, commands: &[(u64, FlashOp, u32)]) -> Vec<u64> {
    for (tag, (at, op, lpn)) in commands.iter().enumerate() {
        let when = flash.begin(Nanos(*at), When::at(Nanos(*at)), *op, *lpn, 1, 0);
        flash.tell(when, tag as u64);
    }
    to_the_end(flash);
    let mut told: Vec<(u64, Nanos)> = core::iter::from_fn(|| flash.told()).collect();
    told.sort_unstable();
    told.into_iter().map(|(_, at)| at.0).collect()
}

#[test]
fn who_comes_while_the_channel_is_free_takes_it() {
    // Die 0 has sensed at 40 us. A program's data for die 1 that came a moment before holds the channel up to then: the read's
    // waits, which a booking made at 0 would not have done.
    for arbitration in &Arbitration::ALL[1..] {
        let mut flash = one_channel(*arbitration, Order::InOrder);
        let told = ends(&mut flash, &[(0, FlashOp::Read, 0), (38_000, WRITE, 9)]);
        // The first write goes to plane 0, the read's: it comes after the read. So does the second, to plane 1.
        assert_eq!(told, [45_000, 250_000], "{arbitration}");
        let told = ends(&mut flash, &[(1_000_000, FlashOp::Read, 0), (1_038_000, WRITE, 9)]);
        assert_eq!(told, [1_048_000, 1_243_000], "{arbitration}");
    }
}

#[test]
fn reads_pass_programs_until_those_are_old() {
    let run = |order, age| {
        let mut flash = one_channel(Arbitration::DataOutFirst, order);
        if let Some(scheduler) = &mut flash.silicon.scheduler {
            scheduler.set_age(Nanos(age));
        }
        // Two programs on plane 0 (the second waits), and reads of it all the while.
        let writes = [(0, WRITE, 1), (1, WRITE, 3), (2, WRITE, 5)];
        let reads = (0..20).map(|i| (10 + i, FlashOp::Read, 0));
        let told = ends(&mut flash, &writes.into_iter().chain(reads).collect::<Vec<_>>());
        (told[2], told[3..].iter().copied().max().unwrap())
    };
    let (in_order, first, aged) = (run(Order::InOrder, 0), run(Order::ReadsFirst, 0), run(Order::ReadsFirst, 400_000));
    assert!(in_order.0 < in_order.1, "the program came first: {in_order:?}");
    assert!(first.0 > first.1, "every read passes it: {first:?}");
    assert!(aged.0 < first.0 && aged.0 < aged.1 && aged.0 > in_order.0, "some do: {aged:?}");
}

/// One die whose programs stop for reads within 20 us, with a cache register that reads pass through.
fn stopping(age: u64, limit: u32) -> Flash {
    let mut config = small(geometry(1, 1, 32, 16, 1), 0.5);
    config.geometry.cell = CellType::Slc;
    config.timing = FlashTiming {
        arbitration: Arbitration::ReadsFirst,
        order: Order::ReadsFirst,
        registers: Registers::Double,
        cache_read: true,
        suspend: Suspend { program: Some(Nanos(20_000)), erase: None, limit },
        age: Nanos(age),
        ..timing()
    };
    Flash::new(&config, Nanos(0)).unwrap()
}

/// A program works, the next one's data is in the cache register, more wait: the read has to wait for none of them, and the data is
/// sent again.
#[test]
fn a_read_waits_neither_for_programs_nor_for_data_that_came_for_one() {
    let mut flash = stopping(0, 0);
    let told = ends(&mut flash, &[(0, WRITE, 0), (0, WRITE, 1), (0, WRITE, 2), (50_000, FlashOp::Read, 9)]);
    // 20 us to stop, 40 us to sense, 5 us for the data.
    assert_eq!(told[3], 115_000);
    // 155 us of the first are left once the page is sensed, at 110 us; those after it take 200 us each.
    assert_eq!(told[..3], [265_000, 465_000, 665_000]);
    // So does one that comes while that data crosses the channel, which ends at 10 us: 10 + 20 + 40 + 5.
    let mut flash = stopping(0, 0);
    assert_eq!(ends(&mut flash, &[(0, WRITE, 0), (0, WRITE, 1), (7_000, FlashOp::Read, 9)])[2], 75_000);
}

/// Reads that never cease stop a program once, pass it for the age, and then wait until it is through.
#[test]
fn a_stopped_program_goes_on_when_it_is_old() {
    let reads = || (0..100u64).map(|i| (10_000 + i * 30_000, FlashOp::Read, 9));
    let run = |age| {
        let commands: Vec<_> = [(0, WRITE, 0)].into_iter().chain(reads()).collect();
        ends(&mut stopping(age, 0), &commands)[0]
    };
    let (never, old) = (run(0), run(400_000));
    assert!(never > 4_000_000, "after the last read: {never}");
    // Stopped at 10 us, 195 us left: it begins again 400 us later at the earliest, and a read that has begun ends first.
    assert!((605_000..=650_000).contains(&old), "{old}");
}

/// Each read of a queue waits until the die is back, not each for as long again.
#[test]
fn a_die_that_is_away_is_waited_for_once() {
    let mut flash = one_channel(Arbitration::ReadsFirst, Order::ReadsFirst);
    let mut config = *flash.config();
    config.variability.housekeeping = Some(Housekeeping { time: Nanos(2_000_000), every: Nanos::from_millis(100) });
    flash = Flash::new(&config, Nanos(0)).unwrap();
    let (begin, end) = flash.silicon.varied.as_mut().expect("it varies").away(0, 0);
    assert_eq!(end - begin, 2_000_000);
    let told = ends(&mut flash, &[begin + 5; 4].map(|at| (at, FlashOp::Read, 0)));
    assert_eq!(told, [1, 2, 3, 4].map(|nth| end + nth * 45_000));
}

#[test]
fn a_full_buffer_admits_as_programs_end() {
    let mut config = small(geometry(2, 1, 32, 16, 1), 0.5);
    config.geometry.cell = CellType::Slc;
    config.timing = FlashTiming { arbitration: Arbitration::Fifo, ..timing() };
    config.buffer = BufferConfig { size: Bytes(4 * 4096), ..BufferConfig::NONE };
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let writes = (0..8).map(|lpn| (0, WRITE, lpn)).chain([(405_000, FlashOp::Flush, 0)]);
    let told = ends(&mut flash, &writes.collect::<Vec<_>>());
    // Four fit; each of the others waits for a program on one of two planes: 5 us of data, 200 us each. The flush waits for all.
    assert_eq!(told, [0, 0, 0, 0, 205_000, 205_000, 405_000, 405_000, 805_000]);
    assert_eq!(flash.stats().buffer_waits, 4);
}
