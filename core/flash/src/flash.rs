//! The drive: what it is made of, and what is known of it.

use crate::array::Array;
use crate::buffer::Buffer;
use crate::cache::CacheMemory;
use crate::config::{FlashDriveConfig, Mapping};
use crate::config_error::ConfigError;
use crate::derived_config::DerivedConfig;
use crate::durable::Durable;
use crate::flush_policy::FlushPolicy;
use crate::ftl::{Map, NONE, PageFtl, Prefetch, Separation, Striping, TAG, VictimPolicy, WearPolicy};
use crate::geometry::{PageAddress, Shape};
use crate::host::Host;
use crate::lun::Promise;
use crate::pending_commands::PendingCommands;
use crate::stats::{DieBlocks, Stats, WearSpread};
use crate::variability::DieWork;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A flash drive without its data: says when commands are complete. One thread, no clock; time must not go backwards by
/// more than commands overlap.
#[derive(Debug)]
pub struct Flash {
    pub(crate) silicon: Array,
    pub(crate) host: Host,
    pub(crate) ftl: PageFtl,
    pub(crate) buffer: Option<Buffer>,
    /// `None`: the buffer's memory takes no time, and nothing stays in it.
    pub(crate) memory: Option<Box<CacheMemory>>,
    pub(crate) logical: u32,
    pub(crate) config: FlashDriveConfig,
    /// When the last program of the host's data is done.
    pub(crate) durable: Durable,
    /// Units that wait for room in the buffer, and who is told what: where ends are not known in advance.
    pub(crate) waiting: PendingCommands,
    pub(crate) origin: Nanos,
    /// Units of one program.
    pub(crate) program: u32,
    /// Bytes that leave the flash in one go.
    pub(crate) burst: u32,
    pub(crate) batch: Vec<u32>,
    pub(crate) writes: Vec<u32>,
}

impl Flash {
    /// An empty drive, idle since `now`.
    ///
    /// # Errors
    /// Names the key that does not fit.
    pub fn new(config: &FlashDriveConfig, now: Nanos) -> Result<Flash, ConfigError> {
        let mut made = Flash::made(config, now, &config.plan()?, None);
        made.ftl.mark_bad();
        Ok(made)
    }

    /// The same with a map that says what it holds, where there is one.
    pub(crate) fn made(config: &FlashDriveConfig, now: Nanos, plan: &DerivedConfig, map: Option<Map>) -> Flash {
        let silicon = Array::new(&plan.shape, &config.timing, &config.variability);
        let ftl = PageFtl::new(config, plan, &silicon, map);
        let planes = if config.ftl.multi_plane { plan.shape.planes_per_die() } else { 1 };
        let program = plan.shape.units_per_page() * planes;
        let partitions = ftl.striping.as_ref().map_or(1, Striping::count);
        let queues = partitions * u32::from(config.ftl.host_streams());
        let open = if ftl.promise == Promise::Open { plan.shape.planes() } else { 0 };
        Flash {
            silicon,
            host: Host::new(&config.host),
            ftl,
            buffer: Buffer::new(&config.buffer, queues, program, plan.shape.planes() * plan.shape.units_per_page()),
            memory: CacheMemory::new(&config.buffer).map(Box::new),
            logical: plan.logical,
            config: *config,
            durable: Durable::new(now, open),
            waiting: PendingCommands::default(),
            origin: now,
            program,
            burst: config.timing.burst(),
            batch: Vec::with_capacity(program as usize),
            writes: Vec::with_capacity(program as usize),
        }
    }

    /// 4 KiB units that the host is offered.
    pub fn units(&self) -> u32 {
        self.logical
    }

    /// The drive's shape.
    pub fn shape(&self) -> &Shape {
        self.ftl.shape()
    }

    /// What it is made from.
    pub fn config(&self) -> &FlashDriveConfig {
        &self.config
    }

    /// The silicon, for its utilisation.
    pub fn array(&self) -> &Array {
        &self.silicon
    }

    /// Firmware and link, for their utilisation.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.ftl.stats
    }

    /// Bytes programmed over bytes written by the host.
    pub fn write_amplification(&self) -> f64 {
        self.ftl.stats.write_amplification(self.shape().units_per_page())
    }

    /// Counters from zero.
    pub fn reset_stats(&mut self) {
        self.carry_statistics();
        self.ftl.stats = Stats::default();
    }

    /// Erases of the blocks.
    pub fn wear(&self) -> WearSpread {
        self.ftl.wear_spread()
    }

    /// The blocks of each die. Looks at every block once.
    pub fn die_blocks(&self) -> Vec<DieBlocks> {
        self.ftl.die_blocks()
    }

    /// Whether so many blocks have failed that writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.ftl.worn_out
    }

    /// How many of the blocks that may fail before writes are refused have not failed yet, in percent; 100 where there were none.
    pub fn available_spare(&self) -> u8 {
        self.ftl.available_spare()
    }

    /// Whether the unit has contents.
    pub fn is_mapped(&self, lpn: u32) -> bool {
        lpn < self.logical && self.ftl.map.l2p[lpn as usize] != NONE
    }

    /// The page that has the unit's newest version; `None` where the buffer has it, or nobody.
    pub fn place_of(&self, lpn: u32) -> Option<PageAddress> {
        let unit = *self.ftl.map.l2p.get(lpn as usize).filter(|_| lpn < self.logical)?;
        match unit & TAG {
            0 => Some(self.ftl.place(unit)),
            _ => (unit == NONE && self.is_in_place()).then(|| self.home(lpn)),
        }
    }

    /// See [`Array::set_die_times`].
    pub fn set_die_times(&mut self, die: u32, thousandths: u32) {
        self.silicon.set_die_times(die, thousandths);
    }

    /// See [`Array::die_work`].
    pub fn die_work(&self) -> &[DieWork] {
        self.silicon.die_work()
    }

    /// Chooses victims by `policy` from now on.
    pub fn set_victim_policy(&mut self, policy: Box<dyn VictimPolicy>) {
        self.ftl.victims = policy;
    }

    /// Levels wear by `policy` from now on.
    pub fn set_wear_policy(&mut self, policy: Box<dyn WearPolicy>) {
        self.ftl.wear = policy;
    }

    /// Separates data by `policy` from now on. A drive with placement handles goes on to do what hosts say.
    pub fn set_separation(&mut self, policy: Box<dyn Separation>) {
        if self.ftl.fdp.is_none() {
            self.ftl.streams.policy = Some(policy);
        }
    }

    /// Empties the buffer by `policy` from now on, where there is a buffer.
    pub fn set_flush_policy(&mut self, policy: Box<dyn FlushPolicy>) {
        if let Some(buffer) = &mut self.buffer {
            buffer.set_policy(policy);
        }
    }

    /// Lends the instruction that brings memory nearer; without it nothing is prefetched.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.ftl.map.prefetch = prefetch;
    }

    /// The unit will be asked for soon: brings its word of the map nearer. Whoever knows the next command while it submits
    /// this one hides a cache miss by it.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        (self.ftl.map.prefetch)(&self.ftl.map.l2p, &[lpn]);
    }

    /// The words of the page map, for whoever can have the operating system map them better.
    pub fn page_map(&self) -> &[u32] {
        &self.ftl.map.l2p
    }

    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        self.config.ftl.mapping == Mapping::InPlace
    }

    /// The controller begins anew. What was booked on the silicon stays: it ends long before a drive is up again.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.host = Host::new(&self.config.host);
        self.memory = CacheMemory::new(&self.config.buffer).map(Box::new);
        self.durable.told(now);
    }
}
