//! The slow model: flash that keeps a version number in each unit and insists on the rules of NAND. Every program, copy and
//! erase of the FTL is played on it; what the map says must then read as the host wrote it last.

use crate::ftl::{MapEvent, NONE};
use crate::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::sample::select;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

/// Flash with contents.
pub(crate) struct Nand {
    pub(crate) content: BTreeMap<u32, (u32, u64)>,
    /// By block: the offset from which it may be programmed.
    next: Vec<u32>,
}

/// What the host wrote, and the flash that has it.
pub(crate) struct FlashModel {
    pub(crate) nand: Nand,
    /// By unit: the number of its last write, 0 for nothing.
    pub(crate) newest: Vec<u64>,
    clock: u64,
}

impl Nand {
    fn program(&mut self, shape: &Shape, unit: u32, content: (u32, u64)) {
        let (block, offset) = shape.block_of(Unit(unit));
        let next = &mut self.next[block as usize];
        assert!(offset >= *next, "unit {unit} is programmed after {next} of block {block}");
        *next = offset + 1;
        assert_eq!(self.content.insert(unit, content), None, "unit {unit} is programmed twice");
    }

    fn erase(&mut self, shape: &Shape, block: u32) {
        let first = block * shape.units_per_block();
        self.content.retain(|unit, _| !(first..first + shape.units_per_block()).contains(unit));
        self.next[block as usize] = 0;
    }
}

impl FlashModel {
    /// Of a drive as it is: whatever it holds is the first version.
    pub(crate) fn adopt(flash: &mut Flash) -> FlashModel {
        let mut nand = Nand { content: BTreeMap::new(), next: vec![0; flash.shape().blocks() as usize] };
        let map = &mut flash.ftl.map;
        map.trace.clear();
        let mut newest = vec![0; map.logical() as usize];
        for lpn in 0..map.logical() {
            if map.unit(lpn) != NONE {
                newest[lpn as usize] = 1;
                nand.content.insert(map.unit(lpn), (lpn, 1));
            }
        }
        for (next, written) in nand.next.iter_mut().zip(map.written.iter()) {
            *next = u32::from(*written);
        }
        FlashModel { nand, newest, clock: 1 }
    }

    /// Submits to the drive, and plays what it did.
    pub(crate) fn submit(&mut self, flash: &mut Flash, now: Nanos, op: FlashOp, lpn: u32, units: u32) -> Nanos {
        self.submit_hinted(flash, now, op, (lpn, units), 0)
    }

    /// The same with a hint.
    pub(crate) fn submit_hinted(
        &mut self,
        flash: &mut Flash,
        now: Nanos,
        op: FlashOp,
        (lpn, units): (u32, u32),
        hint: u8,
    ) -> Nanos {
        let refused = flash.stats().refused;
        let done = flash.submit_hinted(now, op, lpn, units, hint);
        assert!(done >= now, "complete before it arrived");
        let end = (lpn + units).min(flash.units());
        let zeroes_are_data = flash.config().ftl.write_zeroes == WriteZeroes::Program;
        match op {
            _ if flash.stats().refused > refused => assert!(flash.is_read_only(), "a write was refused"),
            FlashOp::WriteZeroes if !zeroes_are_data => self.newest[lpn as usize..end as usize].fill(0),
            FlashOp::Write { .. } | FlashOp::WriteZeroes => {
                for lpn in lpn..end {
                    self.clock += 1;
                    self.newest[lpn as usize] = self.clock;
                }
            }
            FlashOp::Trim => self.newest[lpn as usize..end as usize].fill(0),
            FlashOp::Read | FlashOp::Flush => {}
        }
        self.play(flash);
        done
    }

    pub(crate) fn play(&mut self, flash: &mut Flash) {
        let shape = *flash.shape();
        let host = flash.units();
        for event in core::mem::take(&mut flash.ftl.map.trace) {
            match event {
                MapEvent::Program { lpn, unit } => {
                    if lpn >= host {
                        // A page of the map: its version is when it was programmed.
                        self.clock += 1;
                        self.newest[lpn as usize] = self.clock;
                    }
                    self.nand.program(&shape, unit, (lpn, self.newest[lpn as usize]));
                }
                MapEvent::Copy { from, to } => {
                    let content = self.nand.content.get(&from).copied();
                    let content = content.unwrap_or_else(|| panic!("unit {from} is copied but empty"));
                    self.nand.program(&shape, to, content);
                }
                MapEvent::Erase { block } => self.nand.erase(&shape, block),
            }
        }
    }

    /// The version that the map finds in flash; 0 for none.
    pub(crate) fn version_in_flash(&self, flash: &Flash, lpn: u32) -> u64 {
        let unit = flash.ftl.map.unit(lpn);
        let content = (unit != NONE).then(|| self.nand.content.get(&unit).copied());
        content.map_or(0, |c| match c {
            Some((l, version)) if l == lpn => version,
            other => panic!("unit {unit} of {lpn} holds {other:?}"),
        })
    }

    /// Everything reads as it was written last.
    pub(crate) fn check(&self, flash: &Flash) {
        flash.check();
        for lpn in 0..flash.units() {
            let newest = self.newest[lpn as usize];
            assert_eq!(flash.is_mapped(lpn), newest > 0, "whether {lpn} has contents");
            let map = &flash.ftl.map;
            if newest > 0 && map.slot(lpn).is_none() {
                assert_eq!(self.nand.content.get(&map.unit(lpn)), Some(&(lpn, newest)), "contents of {lpn}");
            }
        }
    }
}

pub(crate) fn geometry(channels: u32, planes: u32, blocks: u32, pages: u32, page_units: u32) -> Geometry {
    Geometry {
        channels,
        ways: 1,
        planes,
        blocks,
        pages,
        page_bytes: page_units * UNIT,
        spare_bytes: page_units * 16,
        cell: CellType::Tlc,
        page_map: PageMap::Modulo,
    }
}

pub(crate) fn timing() -> FlashTiming {
    FlashTiming {
        gate: OperationUnit::Plane,
        registers: Registers::Unbounded,
        read: levels([40_000, 50_000, 60_000]),
        read_small: None,
        sense_bytes: 0,
        program: levels([200_000, 300_000, 400_000]),
        erase: Nanos(2_000_000),
        channel: Wire::units(4096, 5_000),
        burst_bytes: 0,
        overheads: Overheads::default(),
        cache_read: false,
        cache_busy: Nanos(0),
        suspend: Suspend::default(),
        arbitration: Arbitration::Booked,
        order: Order::InOrder,
        chips: 0,
        join_planes: false,
        age: Nanos(0),
    }
}

pub(crate) fn small(geometry: Geometry, over_provisioning: f64) -> FlashDriveConfig {
    let ftl = FtlConfig { over_provisioning, spare: true, ..FtlConfig::DEFAULT };
    FlashDriveConfig {
        geometry,
        timing: timing(),
        variability: Variability::default(),
        host: HostTiming::INSTANT,
        ftl,
        buffer: BufferConfig::NONE,
        seed: 7,
    }
}

fn ftls() -> impl Strategy<Value = FtlConfig> {
    let gc = (select(Victim::ALL), 1..4u32, select(GcMode::ALL), 1..4u32, 1..4u32).prop_map(
        |(victim, choices, mode, start, hard)| GcConfig { victim, choices, mode, start, hard: hard.min(start) },
    );
    let wear = (select(Wear::ALL), 0..4u32, select(&[0u32, 0, 40][..]), select(&[0u32, 0, 2_000][..]));
    let wear = wear.prop_map(|(p, gap, endurance, failures)| WearConfig { policy: p, gap, endurance, failures });
    let slc = (select(&[0u32, 0, 2][..]), select(Fold::ALL)).prop_map(|(blocks, fold)| SlcConfig { blocks, fold });
    let choices = (select(&[Mapping::Page, Mapping::Cached][..]), 1..4u8, select(Separate::ALL), any::<bool>());
    let allocation = prop_oneof![select(PlaneAllocation::ALL), Just(PlaneAllocation::Dynamic)];
    (gc, wear, slc, choices, select(UnmappedRead::ALL), select(WriteZeroes::ALL), allocation).prop_map(
        |(gc, wear, slc, (mapping, streams, separation, multi_plane), unmapped_read, write_zeroes, allocation)| {
            FtlConfig {
                mapping,
                gc,
                wear,
                slc,
                streams: if separation == Separate::Frequency { streams.max(2) } else { streams },
                separation,
                multi_plane: multi_plane && slc.blocks == 0 && !allocation.is_static(),
                plane_allocation: allocation,
                unmapped_read,
                write_zeroes,
                spare: true,
                ..FtlConfig::DEFAULT
            }
        },
    )
}

fn buffers() -> impl Strategy<Value = BufferConfig> {
    let sizes = select(&[0u64, 0, 64 << 10, 256 << 10][..]);
    (sizes, select(Flush::ALL), any::<bool>(), any::<bool>(), select(&[0u64, 500_000][..])).prop_map(
        |(size, flush, early, protected, timeout)| BufferConfig {
            size: Bytes(size),
            flush,
            early,
            protected,
            timeout: Nanos(timeout),
            latency: Nanos(1_000),
            ..BufferConfig::NONE
        },
    )
}

/// Small drives of every kind, some with no more over-provisioning than they need.
pub(crate) fn configs() -> impl Strategy<Value = FlashDriveConfig> {
    let shapes = (1..4u32, 1..3u32, 16..24u32, 3..9u32, select(&[1u32, 1, 2, 4][..]));
    let shapes = shapes.prop_map(|(c, p, blocks, pages, units)| geometry(c, p, blocks, pages, units));
    (shapes, ftls(), buffers(), any::<bool>(), any::<u64>()).prop_map(|(geometry, ftl, buffer, minimal, seed)| {
        let mut config = FlashDriveConfig {
            geometry,
            timing: timing(),
            variability: Variability::default(),
            host: HostTiming::INSTANT,
            ftl,
            buffer,
            seed,
        };
        config.ftl.map_cache = Bytes(u64::from(geometry.page_bytes));
        // Some in whose buffer things stay.
        if config.buffer.size.0 > 0 && config.buffer.flush == Flush::Eager && config.ftl.streams == 1 {
            config.buffer.cache = Cache::ALL[(seed >> 8) as usize % Cache::ALL.len()];
        }
        // Some with a partition for each channel.
        if !config.ftl.plane_allocation.is_static() && seed % 3 == 0 {
            config.ftl.partitions = geometry.channels;
        }
        // The smallest capacity that is surely allowed, or the largest.
        let shape = geometry.shape().unwrap();
        let held = FlashDriveConfig::reserve(u32::from(ftl.streams), ftl.mapping == Mapping::Cached, ftl.gc.start)
            + ftl.slc.blocks;
        let blocks = shape.blocks_per_plane().saturating_sub(held).max(1);
        let units = blocks * shape.units_per_block() * shape.planes();
        let map = units.div_ceil(1024 * shape.units_per_page()) * shape.units_per_page();
        // Partitions take units, not pages: one may have a page more than another.
        let uneven = if config.ftl.partitions > 1 { config.ftl.partitions * shape.units_per_page() } else { 0 };
        let units = if minimal { units - map - uneven } else { (units - map) / 2 };
        config.ftl.capacity = Some(Bytes(u64::from(units.max(1)) * u64::from(UNIT)));
        config
    })
}

/// Small drives with hybrid mapping.
fn hybrids() -> impl Strategy<Value = FlashDriveConfig> {
    let shapes = (1..4u32, 1..3u32, 16..24u32, 3..9u32, select(&[1u32, 1, 2, 4][..]));
    let shapes = shapes.prop_map(|(c, p, blocks, pages, units)| geometry(c, p, blocks, pages, units));
    let choices = (1..5u32, select(Association::ALL), select(Wear::ALL), select(GcMode::ALL));
    (shapes, choices, 0..12u32).prop_map(|(geometry, (log_blocks, association, policy, mode), fewer)| {
        let mut config = small(geometry, 0.0);
        config.ftl.mapping = Mapping::Hybrid;
        config.ftl.hybrid = HybridConfig { log_blocks, association };
        config.ftl.wear.policy = policy;
        config.ftl.gc.mode = mode;
        let units = (geometry.blocks - log_blocks - 2) * geometry.pages * (geometry.page_bytes / UNIT);
        let units = units * geometry.channels * geometry.planes;
        config.ftl.capacity = Some(Bytes(u64::from(units.saturating_sub(fewer).max(1)) * u64::from(UNIT)));
        config
    })
}

pub(crate) fn ops() -> impl Strategy<Value = (FlashOp, u32, u32, u32)> {
    let op = prop_oneof![
        12 => Just(FlashOp::Write { fua: false }),
        1 => Just(FlashOp::Write { fua: true }),
        4 => Just(FlashOp::Read),
        2 => Just(FlashOp::Trim),
        1 => Just(FlashOp::WriteZeroes),
        1 => Just(FlashOp::Flush),
    ];
    // Half of the accesses go to an eighth of the drive.
    (op, prop_oneof![0..1_000_000u32, 0..125_000u32], prop_oneof![Just(1u32), 1..20u32], 0..2_000_000u32)
}

proptest! {
    #[test]
    fn page_maps_lose_nothing(
        config in prop_oneof![4 => configs(), 1 => hybrids()],
        state in select(Precondition::ALL),
        ops in proptest::collection::vec(ops(), 1..300),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        flash.precondition(state);
        let mut model = FlashModel::adopt(&mut flash);
        model.check(&flash);
        let mut now = Nanos(0);
        for (i, (op, at, units, gap)) in ops.into_iter().enumerate() {
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            if flash.is_read_only() {
                break;
            }
            now = now.saturating_add(Nanos(u64::from(gap)));
            let units = units.min(flash.units() - lpn);
            model.submit(&mut flash, now, op, lpn, units);
            if i % 16 == 0 {
                model.check(&flash);
            }
        }
        model.check(&flash);
        if config.ftl.wear.endurance == 0 && config.ftl.wear.failures == 0 {
            lie_where_addresses_say(&flash);
        }
    }
}

/// Where no block has failed, every unit lies on a plane of its partition.
fn lie_where_addresses_say(flash: &Flash) {
    let Some(striping) = &flash.ftl.striping else { return };
    let map = &flash.ftl.map;
    for lpn in (0..flash.units()).filter(|lpn| map.unit(*lpn) != NONE) {
        let plane = flash.shape().place(Unit(map.unit(lpn))).plane;
        assert_eq!(striping.partition_of(plane), striping.partition(lpn), "unit {lpn} lies on plane {plane}");
    }
}

/// At the least over-provisioning that the configuration allows, uniform and skewed writing goes on for ever.
#[test]
fn no_livelock_at_minimum_over_provisioning() {
    for victim in Victim::ALL {
        for mode in GcMode::ALL {
            let geometry = geometry(2, 1, 12, 8, 1);
            let mut config = small(geometry, 0.0);
            config.ftl.gc = GcConfig { victim: *victim, choices: 2, mode: *mode, start: 1, hard: 1 };
            let shape = geometry.shape().unwrap();
            let blocks = shape.blocks_per_plane() - FlashDriveConfig::reserve(1, false, 1);
            let units = blocks * shape.units_per_block() * shape.planes();
            config.ftl.capacity = Some(Bytes(u64::from(units + 1) * u64::from(UNIT)));
            let error = alloc::format!("{}", Flash::new(&config, Nanos(0)).unwrap_err());
            assert!(error.starts_with("ftl.capacity leaves"), "{error}");
            config.ftl.capacity = Some(Bytes(u64::from(units) * u64::from(UNIT)));
            let mut flash = Flash::new(&config, Nanos(0)).unwrap();
            flash.precondition(Precondition::Sequential);
            let mut model = FlashModel::adopt(&mut flash);
            let mut rng = SplitMix64::new(1);
            for i in 0..20_000u64 {
                // Odd thousands write only what lies in the first plane's half of the numbers.
                let all = if i / 1000 % 2 == 0 { units } else { units / 2 };
                let lpn = rng.below(all);
                let lpn = if i / 1000 % 4 == 3 { lpn / 2 * 2 } else { lpn };
                model.submit(&mut flash, Nanos(i * 10_000), FlashOp::Write { fua: false }, lpn, 1);
            }
            model.check(&flash);
            assert_eq!(flash.stats().refused, 0);
            assert!(flash.write_amplification() < 8.0, "{victim} {mode}: {}", flash.write_amplification());
        }
    }
}

fn random_writes(flash: &mut Flash, count: u64, rng: &mut SplitMix64) -> f64 {
    flash.reset_stats();
    let units = flash.units();
    for i in 0..count {
        flash.submit(Nanos(i * 100_000), FlashOp::Write { fua: false }, rng.below(units), 1);
    }
    flash.ftl.map.trace.clear();
    flash.write_amplification()
}

/// The placed steady state is the one that running leads to.
#[test]
fn steady_is_where_long_running_leads() {
    for (over_provisioning, victims) in [(0.12, Victim::Greedy), (0.28, Victim::Greedy)] {
        let mut config = small(geometry(4, 1, 128, 64, 1), over_provisioning);
        config.ftl.gc.victim = victims;
        let mut rng = SplitMix64::new(5);
        let mut run = Flash::new(&config, Nanos(0)).unwrap();
        run.precondition(Precondition::Sequential);
        let drive = u64::from(run.units());
        random_writes(&mut run, 3 * drive, &mut rng);
        let rest = random_writes(&mut run, drive, &mut rng);
        let mut placed = Flash::new(&config, Nanos(0)).unwrap();
        placed.precondition(Precondition::Steady);
        placed.check();
        let at_once = random_writes(&mut placed, drive / 4, &mut rng);
        let later = random_writes(&mut placed, drive, &mut rng);
        let off = |a: f64| (a - rest).abs() / rest;
        assert!(off(at_once) < 0.05, "{over_provisioning}: {at_once} at once, {rest} at rest");
        assert!(off(later) < 0.03, "{over_provisioning}: {later} later, {rest} at rest");
    }
}

#[test]
fn presets_are_valid() {
    for preset in Preset::ALL {
        for quirks in [false, true] {
            if let Err(e) = FlashDriveConfig::preset(*preset, quirks).validate() {
                panic!("{preset}: {e}");
            }
        }
    }
}
