//! What a handle wrote stays apart, and what is counted is true.

use super::*;
use crate::ftl::NONE;
use crate::model::{FlashModel, configs, geometry, ops, small};
use crate::*;
use alloc::collections::BTreeMap;
use alloc::format;
use proptest::prelude::*;
use weir_units::Bytes;
use weir_units::rng::SplitMix64;

/// Any small drive, given placement handles; the smallest capacity that is surely allowed, or the largest.
fn placed() -> impl Strategy<Value = FlashDriveConfig> {
    (configs(), 1..4u8, any::<u32>(), 1..3u32, any::<bool>(), any::<bool>()).prop_map(
        |(mut config, handles, persistent, blocks, split, minimal)| {
            let groups = if split { config.geometry.channels as u16 } else { 1 };
            let fdp = FdpConfig { groups, handles, persistent: persistent & ((1 << handles) - 1), blocks };
            let ftl = &mut config.ftl;
            (ftl.streams, ftl.separation, ftl.slc.blocks, ftl.fdp) = (1, Separate::None, 0, Some(fdp));
            (ftl.plane_allocation, ftl.partitions) = (PlaneAllocation::Dynamic, 1);
            config.buffer.cache = Cache::None;
            let shape = config.geometry.shape().unwrap();
            let (host, kept) = ftl.write_points();
            let held = FlashDriveConfig::reserve(host + kept, ftl.mapping == Mapping::Cached, ftl.gc.start);
            let units = shape.blocks_per_plane().saturating_sub(held).max(1) * shape.units_per_block() * shape.planes();
            let map = units.div_ceil(1024 * shape.units_per_page()) * shape.units_per_page();
            let units = if minimal { units - map } else { (units - map) / 2 };
            ftl.capacity = Some(Bytes(u64::from(units.max(1)) * u64::from(UNIT)));
            config
        },
    )
}

/// Which handle each version was written through, and in which group if the host named one.
#[derive(Default)]
struct Writers(BTreeMap<(u32, u64), (u8, Option<u16>)>);

impl Writers {
    fn note(&mut self, model: &FlashModel, lpns: Range<u32>, handle: u8, group: Option<u16>) {
        for lpn in lpns {
            self.0.entry((lpn, model.newest[lpn as usize])).or_insert((handle, group));
        }
    }

    /// Each block that belongs to a handle holds its data only, and data of persistently isolated handles lies in no other.
    fn check(&self, model: &FlashModel, flash: &Flash) {
        let fdp = flash.fdp().unwrap();
        let map = &flash.ftl.map;
        for lpn in 0..flash.units() {
            let unit = map.unit(lpn);
            // What was programmed and written again in one command is noted with the later version.
            if map.slot(lpn).is_some() {
                continue;
            }
            let Some(content) = (unit != NONE).then(|| model.nand.content[&unit]) else { continue };
            let Some(&(handle, group)) = self.0.get(&content) else { continue };
            let (block, _) = flash.shape().block_of(Unit(unit));
            let owner = fdp.owner[block as usize];
            let mixed = owner == MIXED && fdp.config.isolation(handle) == Isolation::Initial;
            assert!(owner == handle || mixed, "unit {unit} of handle {handle} lies in a block of {owner}");
            let plane = flash.shape().plane_of_block(block).0;
            let there = group.is_none_or(|g| g == fdp.group_of_plane(plane));
            assert!(there || fdp.overflown, "unit {unit} of group {group:?} lies on plane {plane}");
        }
    }
}

fn statistics_are_true(flash: &Flash) {
    let FdpStatistics { host_written, media_written, .. } = flash.fdp_statistics().unwrap();
    let wa = if host_written == 0 { 0.0 } else { media_written as f64 / host_written as f64 };
    assert!((wa - flash.write_amplification()).abs() < 1e-9, "{wa} is {}", flash.write_amplification());
}

proptest! {
    #[test]
    fn handles_stay_apart(
        config in placed(),
        ops in proptest::collection::vec((ops(), any::<u8>(), any::<bool>()), 1..300),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        let mut model = FlashModel::adopt(&mut flash);
        let mut writers = Writers::default();
        let fdp = config.ftl.fdp.unwrap();
        let mut now = Nanos(0);
        for (i, ((op, at, units, gap), which, named)) in ops.into_iter().enumerate() {
            if flash.is_read_only() {
                break;
            }
            now = now.saturating_add(Nanos(u64::from(gap)));
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            // Where the power may go, the model has to see a unit leave the buffer before it sees it written again.
            let units = if config.ftl.spare { 1 } else { units.min(flash.units() - lpn) };
            if config.ftl.spare {
                model.submit(&mut flash, now, FlashOp::Read, 0, 0);
            }
            let (handle, group) = (which % fdp.handles, (u16::from(which) / u16::from(fdp.handles)) % fdp.groups);
            let group = named.then_some(group);
            if which > 240 {
                let group = group.unwrap_or(0);
                prop_assert_eq!(flash.update_handle(now, group, handle), Some(now));
                model.play(&mut flash);
                prop_assert_eq!(flash.available(group, handle), flash.fdp().unwrap().unit);
            } else if which >= 238 && config.ftl.spare {
                // What a power cut takes is what it takes without handles (`power_tests`); what it leaves lies where it lay.
                let loss = flash.power_cut(now, i as u64);
                prop_assert!(loss.is_some(), "it has spare areas");
                model.play(&mut flash);
                for lpn in 0..flash.units() {
                    model.newest[lpn as usize] = model.version_in_flash(&flash, lpn);
                }
                model.check(&flash);
                writers.check(&model, &flash);
            } else if which == 240 {
                flash.rebuild(now);
                model.play(&mut flash);
                model.check(&flash);
            } else {
                let hint = flash.fdp().unwrap().hint(group, handle);
                model.submit_hinted(&mut flash, now, op, (lpn, units), hint);
                writers.note(&model, lpn..lpn + units, handle, group);
            }
            if i % 16 == 0 {
                model.check(&flash);
                writers.check(&model, &flash);
            }
        }
        model.check(&flash);
        writers.check(&model, &flash);
        statistics_are_true(&flash);
    }
}

fn drive(fdp: FdpConfig) -> Flash {
    let mut config = small(geometry(4, 1, 64, 16, 1), 0.3);
    config.ftl.fdp = Some(fdp);
    Flash::new(&config, Nanos(0)).unwrap()
}

#[test]
fn a_reclaim_unit_is_filled_and_left() {
    let mut flash = drive(FdpConfig { groups: 2, handles: 2, persistent: 0, blocks: 1 });
    let fdp = flash.fdp().unwrap();
    assert_eq!((fdp.reclaim_unit(), fdp.hint(Some(2), 0), fdp.hint(Some(0), 2), fdp.hint(None, 2)), (32, 0, 0, 0));
    let hint = fdp.hint(Some(1), 1);
    let write = |flash: &mut Flash, lpn, units| {
        flash.submit_hinted(Nanos(0), FlashOp::Write { fua: false }, lpn, units, hint);
        flash.check();
        flash.available(1, 1)
    };
    assert_eq!(write(&mut flash, 0, 31), 1);
    assert_eq!(write(&mut flash, 31, 1), 32, "the next one");
    assert!(flash.ftl.points.iter().all(|p| p.block == NONE), "all of its blocks are full");
    assert!((0..32).all(|lpn| flash.shape().place(Unit(flash.ftl.map.unit(lpn))).plane >= 2), "in the second group");
    assert_eq!(write(&mut flash, 32, 5), 27);
    assert_eq!(flash.take_fdp_event(), None);
    assert_eq!(flash.update_handle(Nanos(7), 1, 1), Some(Nanos(7)));
    flash.check();
    let kind = FdpEventKind::NotFullyWritten { left: 27 };
    assert_eq!(flash.take_fdp_event(), Some(FdpEvent { kind, at: Nanos(7), group: 1, handle: Some(1) }));
    assert_eq!((flash.available(1, 1), flash.available(0, 1)), (32, 32));
    assert_eq!(flash.update_handle(Nanos(8), 1, 1), Some(Nanos(8)));
    assert_eq!(flash.take_fdp_event(), None, "an empty one is not left");
    let work = flash.fdp().unwrap().work(1, 1).unwrap();
    assert_eq!((work.written, work.reclaim_units), (37, 2));
    assert_eq!((flash.update_handle(Nanos(8), 2, 0), flash.update_handle(Nanos(8), 0, 2)), (None, None));
    flash.set_separation(Separate::Frequency.build(100).unwrap());
    flash.submit_hinted(Nanos(0), FlashOp::Write { fua: false }, 40, 1, hint);
    assert_eq!(flash.available(1, 1), 31, "hosts say where data lies, no policy");
    assert_eq!((flash.available(9, 9), flash.fdp().unwrap().work(0, 2)), (0, None));
}

#[test]
fn what_waits_in_the_buffer_goes_to_the_reclaim_unit_it_was_written_for() {
    let mut config = small(geometry(2, 1, 32, 16, 2), 0.4);
    config.ftl.fdp = Some(FdpConfig { groups: 1, handles: 2, persistent: 0, blocks: 1 });
    config.buffer = BufferConfig { size: Bytes(1 << 20), flush: Flush::Watermark, ..BufferConfig::NONE };
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let hints = [0, 1].map(|h| flash.fdp().unwrap().hint(None, h));
    let write = |flash: &mut Flash, lpn, units, handle: usize| {
        flash.submit_hinted(Nanos(0), FlashOp::Write { fua: false }, lpn, units, hints[handle]);
        flash.check();
    };
    write(&mut flash, 0, 10, 1);
    assert_eq!((flash.stats().page_programs, flash.available(0, 1)), (0, 54));
    write(&mut flash, 0, 4, 0);
    assert_eq!((flash.available(0, 0), flash.available(0, 1)), (60, 58), "written again through another handle");
    write(&mut flash, 100, 70, 1);
    assert_eq!(flash.available(0, 1), 64 - (76 - 64));
    flash.update_handle(Nanos(0), 0, 1);
    flash.check();
    assert_eq!((flash.available(0, 0), flash.available(0, 1)), (60, 64));
    assert_eq!((flash.stats().page_programs, flash.fdp().unwrap().work(0, 1).unwrap().written), (38, 76));
    assert_eq!(flash.take_fdp_event().unwrap().kind, FdpEventKind::NotFullyWritten { left: 52 });
}

#[test]
fn a_full_group_overflows_and_says_so() {
    let mut flash = drive(FdpConfig { groups: 4, handles: 1, persistent: 0, blocks: 1 });
    let (units, hint) = (flash.units(), flash.fdp().unwrap().hint(Some(3), 0));
    for lpn in 0..units {
        flash.submit_hinted(Nanos(0), FlashOp::Write { fua: false }, lpn, 1, hint);
    }
    flash.check();
    assert_eq!(flash.stats().refused, 0);
    let event = flash.take_fdp_event().unwrap();
    assert_eq!((event.kind, event.group, event.handle), (FdpEventKind::Implicit, 3, Some(0)));
    assert_eq!(flash.take_fdp_event(), None, "told once");
}

#[test]
fn counters_go_on_where_others_begin_anew() {
    let mut flash = drive(FdpConfig::DEFAULT);
    flash.precondition(Precondition::Sequential);
    assert_eq!(flash.fdp_statistics(), Some(FdpStatistics::default()));
    let units = flash.units();
    for i in 0..2 * units {
        flash.submit(Nanos(0), FlashOp::Write { fua: false }, i % units, 1);
    }
    statistics_are_true(&flash);
    let before = flash.fdp_statistics().unwrap();
    assert_eq!(before.host_written, u64::from(2 * units) * 4096);
    assert_eq!(before.media_erased, flash.stats().erases * 16 * 4096);
    assert_eq!(flash.fdp().unwrap().handles()[0].written, u64::from(2 * units));
    flash.reset_stats();
    assert_eq!(flash.fdp_statistics(), Some(before));
    assert_eq!(flash.fdp().unwrap().handles(), [HandleWork::default(); 8]);
}

#[test]
fn levelled_data_is_told() {
    let mut config = small(geometry(1, 1, 32, 16, 1), 0.5);
    config.ftl.fdp = Some(FdpConfig { handles: 2, ..FdpConfig::DEFAULT }.with_isolation(Isolation::Persistent));
    config.ftl.wear.gap = 2;
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let units = flash.units();
    let cold = flash.fdp().unwrap().hint(None, 1);
    flash.submit_hinted(Nanos(0), FlashOp::Write { fua: false }, 0, units / 2, cold);
    for i in 0..20_000 {
        flash.submit(Nanos(i), FlashOp::Write { fua: false }, units / 2 + i as u32 % 16, 1);
    }
    flash.check();
    assert!(flash.stats().wear_moves > 0);
    let events = core::iter::from_fn(|| flash.take_fdp_event());
    assert!(
        events
            .into_iter()
            .any(|e| matches!(e.kind, FdpEventKind::Reallocated { lpn, units } if lpn < 256 && units > 0)
                && e.handle == Some(1))
    );
}

/// A log that goes round and random writes, each over half of the drive: the write amplification at rest.
fn amplification(handles: [u8; 2], isolation: Isolation, op: f64) -> (f64, Flash) {
    let mut config = small(geometry(4, 1, 128, 64, 1), op);
    config.ftl.fdp = Some(FdpConfig { handles: 2, ..FdpConfig::DEFAULT }.with_isolation(isolation));
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let hints = handles.map(|h| flash.fdp().unwrap().hint(None, h));
    let (half, mut rng, mut head) = (flash.units() / 2, SplitMix64::new(3), 0);
    let mut run = |flash: &mut Flash, rounds: u32| {
        for i in 0..rounds {
            let now = Nanos(u64::from(i) * 100_000);
            flash.submit_hinted(now, FlashOp::Write { fua: false }, head, 1, hints[0]);
            head = (head + 1) % half;
            flash.submit_hinted(now, FlashOp::Write { fua: false }, half + rng.below(half), 1, hints[1]);
        }
        flash.ftl.map.trace.clear();
    };
    run(&mut flash, 6 * half);
    flash.reset_stats();
    run(&mut flash, 6 * half);
    flash.check();
    (flash.write_amplification(), flash)
}

#[test]
fn separate_handles_lower_write_amplification() {
    let (together, _) = amplification([0, 0], Isolation::Initial, 0.12);
    for isolation in [Isolation::Initial, Isolation::Persistent] {
        let (apart, flash) = amplification([0, 1], isolation, 0.12);
        assert!(apart < 0.85 * together, "{isolation}: {apart} apart, {together} together");
        let moved = [0, 1].map(|h| flash.fdp().unwrap().work(0, h).unwrap().moved);
        assert!(moved[0] * 4 < moved[1], "the log dies by whole blocks: {moved:?}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    type Change<'a> = &'a dyn Fn(&mut FlashDriveConfig);
    let refused = |change: Change<'_>| {
        let mut config = small(geometry(4, 2, 64, 16, 1), 0.15);
        config.ftl.fdp = Some(FdpConfig::DEFAULT);
        change(&mut config);
        config.validate().map_err(|e| format!("{e}")).unwrap_err()
    };
    fn fdp(c: &mut FlashDriveConfig) -> &mut FdpConfig {
        c.ftl.fdp.as_mut().unwrap()
    }
    let cases: [(Change<'_>, &str); 9] = [
        (&|c| fdp(c).groups = 3, "ftl.fdp.groups is 3; the drive's 4 dies"),
        (&|c| fdp(c).groups = 0, "ftl.fdp.groups is 0"),
        (&|c| fdp(c).handles = 33, "ftl.fdp.handles is 33; 1 to 32"),
        (&|c| fdp(c).handles = 0, "ftl.fdp.handles is 0"),
        (&|c| fdp(c).blocks = 65, "ftl.fdp.blocks is 65; from 1"),
        (&|c| c.ftl.mapping = Mapping::Hybrid, "ftl.mapping is \"hybrid\""),
        (&|c| c.ftl.streams = 2, "ftl.streams is given"),
        (&|c| c.ftl.separation = Separate::Hint, "ftl.separation is given"),
        (&|c| c.ftl.slc.blocks = 2, "ftl.slc.blocks is not 0"),
    ];
    for (change, says) in cases {
        let said = refused(change);
        assert!(said.starts_with(says), "{said}");
    }
}
