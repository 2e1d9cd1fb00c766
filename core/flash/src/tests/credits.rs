//! NVMeVirt's model of channels and link (channel_model.c, ssd.c, conv_ftl.c), its rules written down once more, as slowly as they read.

use crate::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

/// Credits used in each 4 us since the beginning of time.
struct Slots {
    each: u64,
    nanos: u64,
    used: BTreeMap<u64, u64>,
}

impl Slots {
    fn new(mib: u64) -> Slots {
        let rate = mib * 1_048_576;
        Slots { each: rate * 4_000 / 1_000_000_000 / 128, nanos: 128_000_000_000 / rate, used: BTreeMap::new() }
    }

    fn request(&mut self, at: u64, bytes: u64) -> u64 {
        let units = bytes.div_ceil(128);
        let (mut slot, mut left, mut walked) = (at / 4_000, units, 0);
        loop {
            let used = self.used.entry(slot).or_default();
            let some = left.min(self.each - *used);
            *used += some;
            left -= some;
            if left == 0 {
                break;
            }
            (slot, walked) = (slot + 1, walked + 1);
        }
        at + self.nanos * units + 4_000 * u64::max(walked, units / self.each) - 4_000 * (units / self.each)
    }
}

/// The 970 PRO's dies, channels and link.
struct Pro {
    channels: Vec<Slots>,
    link: Slots,
    dies: [u64; 16],
}

impl Pro {
    fn new() -> Pro {
        Pro { channels: (0..8).map(|_| Slots::new(800)).collect(), link: Slots::new(3360), dies: [0; 16] }
    }

    /// A read command, with the pages that hold its units: one partition after the other.
    fn read(&mut self, now: u64, units: &[PageAddress], channel_of: impl Fn(u32) -> u32) -> u64 {
        let from = now + if units.len() <= 4 { 21_500 } else { 30_490 };
        let mut done = now;
        for part in 0..4 {
            let own: Vec<PageAddress> = units.iter().skip(part).step_by(4).copied().collect();
            for page in own.chunk_by(|a, b| a == b) {
                done = done.max(self.page(from, page[0], 4096 * page.len() as u64, channel_of(page[0].plane)));
            }
        }
        done
    }

    fn page(&mut self, from: u64, at: PageAddress, bytes: u64, channel: u32) -> u64 {
        let upper = at.page % 2 == 1;
        let sense = match bytes {
            4096 if upper => 41_760,
            4096 => 29_760,
            _ if upper => 42_013,
            _ => 30_013,
        };
        let die = &mut self.dies[at.plane as usize];
        let (mut end, mut done, mut left) = ((*die).max(from) + sense, 0, bytes);
        while left > 0 {
            let piece = left.min(16_384);
            end = self.channels[channel as usize].request(end, piece);
            done = self.link.request(end, piece);
            left -= piece;
        }
        *die = end;
        done
    }
}

/// Reads in a closed loop; every completion.
fn closed_loop(
    depth: usize,
    units: u32,
    count: u32,
    next: impl Fn(u32) -> u32,
    mut read: impl FnMut(Nanos, u32) -> Nanos,
) -> Vec<Nanos> {
    let mut free = alloc::vec![Nanos(0); depth];
    let mut ends = Vec::new();
    for i in 0..count {
        let first = (0..depth).min_by_key(|slot| free[*slot]).unwrap();
        let end = read(free[first], next(i) * units);
        free[first] = end;
        ends.push(end);
    }
    ends
}

fn drive(credits: bool) -> Flash {
    let mut config = FlashDriveConfig::preset(Preset::Nvmevirt970Pro, true);
    config.geometry.blocks = 64;
    config.ftl.capacity = Some(weir_units::Bytes(256 << 20));
    if !credits {
        config.timing.channel = config.timing.channel.with_credits(0);
        config.host =
            HostTiming { firmware: config.host.firmware, ..HostTiming::link(config.host.to_host.with_credits(0)) };
    }
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    flash.precondition(Precondition::Sequential);
    flash
}

fn reads(credits: bool, depth: usize, units: u32, random: bool) -> (Vec<Nanos>, Vec<Nanos>) {
    let mut flash = drive(credits);
    let places: Vec<PageAddress> = (0..flash.units()).map(|lpn| flash.ftl.place(flash.ftl.map.unit(lpn))).collect();
    let shape = *flash.shape();
    let all = flash.units() / units;
    let next = |i: u32| if random { i.wrapping_mul(2_654_435_761) % all } else { i % all };
    let mut pro = Pro::new();
    let theirs = closed_loop(depth, units, 3_000, next, |now, lpn| {
        let of = &places[lpn as usize..(lpn + units) as usize];
        Nanos(pro.read(now.0, of, |plane| shape.channel_of(plane)))
    });
    let ours = closed_loop(depth, units, 3_000, next, |now, lpn| flash.submit(now, FlashOp::Read, lpn, units));
    flash.array().check();
    (ours, theirs)
}

#[test]
fn reads_of_the_970_pro_end_when_they_do_in_nvmevirt() {
    for (depth, units, random) in [
        (1, 1, true),
        (1, 2, false),
        (1, 4, false),
        (1, 8, false),
        (8, 2, false),
        (8, 8, false),
        (16, 32, false),
        (16, 1, true),
        (64, 1, true),
        (64, 4, true),
    ] {
        let (ours, theirs) = reads(true, depth, units, random);
        assert_eq!(ours, theirs, "depth {depth}, {units} units, random {random}");
    }
}

#[test]
fn a_calendar_in_place_of_credits_is_off() {
    // Sequential reads of 16 and 32 KiB: a calendar has their parts on the link one after the other.
    for units in [4, 8] {
        let (booked, theirs) = reads(false, 1, units, false);
        let off = booked[2_999].0 as f64 / theirs[2_999].0 as f64 - 1.0;
        assert!(off.abs() > 0.002, "{units} units: {off}");
    }
}

#[test]
fn both_directions_of_the_link_take_from_the_same_credits() {
    let timing = Preset::Nvmevirt970Pro.parts(true).host;
    let mut host = Host::new(&timing);
    // 110 units in 4 us: three reads of 32 leave 14, and 18 of the write's come from the slot after that. A free link takes none.
    let ends: Vec<u64> = (0..3).map(|_| host.deliver(Nanos(6_000), 4096).0).collect();
    assert_eq!(ends, [6_000 + 32 * 36; 3]);
    assert_eq!(host.fetch(Nanos(2_000), HostOp::Write, 4096).0, 6_460 + 32 * 36 + 4_000);
    assert_eq!(host.fetch(Nanos(12_000), HostOp::Write, 4096).0, 16_460 + 32 * 36);
}

#[test]
fn credits_and_arbitration_exclude_each_other() {
    let timing = FlashTiming { arbitration: Arbitration::Fifo, ..Preset::Nvmevirt970Pro.parts(true).timing };
    assert_eq!(timing.validate(), Err(TimingError::Credits));
    let timing = FlashTiming { channel: timing.channel.with_credits(0), ..timing };
    assert_eq!(timing.validate(), Ok(()));
}

#[test]
fn what_is_far_ahead_costs_its_own_time_and_no_memory() {
    let mut ring = CreditRing::new(&Wire::mib_units(800, 0)).unwrap();
    let far = Nanos(CreditRing::HORIZON as u64 * CreditRing::SLOT);
    for _ in 0..3 {
        assert_eq!(ring.book(Nanos(0), far, 4096), Nanos(far.0 + 32 * 152));
    }
    assert!((0..400).all(|_| ring.book(Nanos(0), Nanos(0), 1 << 20) > Nanos(0)));
    ring.check();
    // All of it lies ahead, and is forgotten when it is over.
    assert_eq!(ring.book(Nanos(2 * far.0), Nanos(2 * far.0), 4096), Nanos(2 * far.0 + 32 * 152));
    assert!(CreditRing::new(&Wire::INSTANT).is_none());
}

#[test]
fn collection_that_blocks_a_channel_takes_its_credits() {
    let mut ring = CreditRing::new(&Wire::mib_units(800, 0)).unwrap();
    assert_eq!(ring.seize(Nanos(0), Nanos(8_000), Nanos(40_000)), Nanos(8_000));
    // Ten slots are gone; 26 of the 32 units come from the eleventh, where a free channel takes them from the second at the latest.
    assert_eq!(ring.book(Nanos(0), Nanos(8_000), 4096), Nanos(8_000 + 32 * 152 + 10 * 4_000));
}

proptest! {
    #[test]
    fn a_ring_gives_what_the_slots_give(requests in proptest::collection::vec((0..9_000u64, 0..60_000u64, 1..40_000u32), 1..200)) {
        let mut ring = CreditRing::new(&Wire::mib_units(800, 0)).unwrap();
        let mut slots = Slots::new(800);
        let mut now = 0;
        for (gap, ahead, bytes) in requests {
            now += gap;
            let end = ring.book(Nanos(now), Nanos(now + ahead), bytes);
            prop_assert_eq!(end.0, slots.request(now + ahead, bytes.into()));
            ring.check();
        }
    }
}
