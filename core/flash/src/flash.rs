//! The drive: commands in, completion times out.

use crate::array::Array;
use crate::buffer::{Buffer, FlushPolicy};
use crate::cache::CacheMemory;
use crate::completions::PendingCommands;
use crate::config::{ConfigError, DerivedConfig, FlashDriveConfig, Mapping, UnmappedRead, WriteZeroes};
use crate::durable::Durable;
use crate::ftl::{GcMode, NONE, PageFtl, Prefetch, Separation, Striping, TAG, VictimPolicy, WearPolicy};
use crate::geometry::{PageAddress, Shape, UNIT, Unit};
use crate::host::{Host, HostOp};
use crate::image::Image;
use crate::lun::Promise;
use crate::scheduler::When;
use crate::stats::{Stats, WearSpread};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_units::Nanos;

/// What the host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlashOp {
    /// Read.
    Read,
    /// Write; with `fua` it is complete when it survives power loss.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Deallocate: the units have no contents any more.
    Trim,
    /// Everything written so far survives power loss.
    Flush,
    /// The units read as zeroes.
    WriteZeroes,
}

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
    burst: u32,
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

    pub(crate) fn made(config: &FlashDriveConfig, now: Nanos, plan: &DerivedConfig, image: Option<Image>) -> Flash {
        let silicon = Array::new(&plan.shape, &config.timing, &config.variability);
        let ftl = PageFtl::new(config, plan, &silicon, image);
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

    /// A command that arrives at `now`; when it is complete. `units` from `lpn` on; those beyond the capacity are left
    /// out, the controller has refused them.
    ///
    /// Of a drive whose channels are booked ([`Arbitration::Booked`](crate::Arbitration::Booked)). Of others it is not known in advance when
    /// that is ([`Nanos::NEVER`] then): [`Flash::begin`].
    #[inline]
    pub fn submit(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32) -> Nanos {
        self.submit_hinted(now, op, lpn, units, 0)
    }

    /// The same with what the host said about the data's life (an FDP placement handle, a directive's stream).
    #[inline]
    pub fn submit_hinted(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32, hint: u8) -> Nanos {
        self.begin(now, When::at(now), op, lpn, units, hint).known().unwrap_or(Nanos::NEVER)
    }

    /// A command that arrives at `now` and needs what is at hand at `after`, see [`Flash::modify`]; when it is complete, which may not be
    /// known yet: [`Flash::tell`]. Goes on to `now` first, if that was not done.
    #[inline]
    pub fn begin(&mut self, now: Nanos, after: When, op: FlashOp, lpn: u32, units: u32, hint: u8) -> When {
        let lpn = lpn.min(self.logical);
        let end = lpn + units.min(self.logical - lpn);
        let bytes = (end - lpn).saturating_mul(UNIT);
        if self.silicon.is_scheduled() {
            self.advance(now);
        }
        let known = after.known().unwrap_or(now);
        if self.buffer.is_some() {
            self.expire(known);
        }
        if let Some(memory) = &mut self.memory {
            memory.now = now;
        }
        // Collection that blocks the controller blocks its buffer too.
        let now = known.max(self.silicon.locked_until());
        let (host_op, bytes) = match op {
            FlashOp::Read => (HostOp::Read, bytes),
            FlashOp::Write { .. } => (HostOp::Write, bytes),
            _ => (HostOp::Other, 0),
        };
        let fetched = When::at(self.host.fetch(now, host_op, bytes));
        let begin = if after.known().is_some() { fetched } else { self.silicon.later_of(fetched, after) };
        match op {
            FlashOp::Read if self.memory.is_some() => self.read_cached(begin, lpn, end),
            FlashOp::Read => self.read(begin, lpn, end, true),
            FlashOp::Write { fua } => self.write(begin, lpn, end, fua, hint),
            _ => self.begin_other(begin, op, lpn, end, hint),
        }
    }

    #[cold]
    fn begin_other(&mut self, from: When, op: FlashOp, lpn: u32, end: u32, hint: u8) -> When {
        match op {
            FlashOp::Flush => self.flush(from),
            FlashOp::WriteZeroes if self.config.ftl.write_zeroes == WriteZeroes::Program => {
                self.write(from, lpn, end, false, hint)
            }
            _ => self.trim(from, lpn, end),
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

    /// A write is about to change a part of the unit: when the rest of it is at hand. `now` where the buffer has it, or
    /// nobody.
    pub fn modify(&mut self, now: Nanos, lpn: u32) -> When {
        if lpn < self.logical && self.ftl.map.l2p[lpn as usize] & TAG == 0 {
            self.read(When::at(now), lpn, lpn + 1, false)
        } else {
            When::at(now)
        }
    }

    /// Reads the units; `to_host`, each page crosses the link as soon as it is off the flash.
    #[inline]
    pub(crate) fn read(&mut self, from: When, lpn: u32, end: u32, to_host: bool) -> When {
        self.ftl.stats.host_reads += u64::from(end - lpn);
        let step = self.ftl.step();
        if step == 1 {
            return self.read_stepped(from, (lpn, end), 1, to_host);
        }
        // What lies in one page is read at once.
        (lpn..end.min(lpn + step)).fold(from, |done, lpn| {
            let read = self.read_stepped(from, (lpn, end), step, to_host);
            self.silicon.later_of(done, read)
        })
    }

    /// The same of every `step`th unit.
    #[inline]
    fn read_stepped(&mut self, from: When, (lpn, end): (u32, u32), step: u32, to_host: bool) -> When {
        let mut done = from;
        let mut run = Run { page: NONE, unit: NONE, units: 0, at: from };
        let mut next = lpn;
        while next < end {
            let lpn = next;
            next += step;
            let at = self.ftl.look_up(from, &mut self.silicon, lpn, false);
            let mut word = self.ftl.map.l2p[lpn as usize];
            let mut page = self.ftl.map.shape.page_of(word);
            if word & TAG != 0 {
                let Some(unit) = self.home_page(lpn, word) else {
                    let ready = self.read_elsewhere(at, lpn, word);
                    let handed = self.hand_over(ready, 1, to_host);
                    done = self.silicon.later_of(done, handed);
                    continue;
                };
                // A page like any other, but no unit with contents is in it.
                (word, page) = (unit, TAG | self.ftl.map.shape.page_of(unit));
            }
            if page == run.page {
                run.units += 1;
                run.at = self.silicon.later_of(run.at, at);
                continue;
            }
            let read = self.read_run(run, to_host);
            done = self.silicon.later_of(done, read);
            run = Run { page, unit: word, units: 1, at };
        }
        let read = self.read_run(run, to_host);
        self.silicon.later_of(done, read)
    }

    #[inline]
    fn read_run(&mut self, run: Run, to_host: bool) -> When {
        if run.units == 0 {
            return run.at;
        }
        let place = match run.page & TAG {
            0 => self.ftl.place(run.unit),
            _ => self.ftl.map.shape.place(Unit(run.unit)),
        };
        let ready = self.read_page(run.at, place, run.units);
        self.hand_over(ready, run.units, to_host)
    }

    /// Units that are in the drive at `ready`: when who asked has them.
    #[inline]
    fn hand_over(&mut self, ready: When, units: u32, to_host: bool) -> When {
        if !to_host {
            return ready;
        }
        match ready.known() {
            Some(ready) => When::at(self.deliver(ready, units * UNIT)),
            None => self.deliver_later(ready, units * UNIT),
        }
    }

    /// Bytes that are in the drive at `ready` cross the link: when who asked has them.
    #[inline]
    pub(crate) fn deliver(&mut self, ready: Nanos, bytes: u32) -> Nanos {
        if bytes <= self.burst {
            return self.host.deliver(ready, bytes);
        }
        if !self.silicon.pieces().is_empty() {
            return self.host.deliver_each(self.silicon.pieces(), bytes, self.burst);
        }
        let apart = self.silicon.transfer_time(self.burst);
        self.host.deliver_pieces(ready, bytes, self.burst, apart)
    }

    #[inline]
    fn read_page(&mut self, from: When, place: PageAddress, units: u32) -> When {
        if self.ftl.mode == GcMode::Preemptive {
            let now = self.silicon.present_of(from);
            self.ftl.settle(now, &mut self.silicon, place.plane);
        }
        self.ftl.stats.page_reads += 1;
        self.silicon.read_at(from, place, units * UNIT)
    }

    /// Where addresses say the planes: the first unit of the page that a unit without contents is read from.
    #[cold]
    fn home_page(&mut self, lpn: u32, word: u32) -> Option<u32> {
        let free = self.config.ftl.unmapped_read == UnmappedRead::Free;
        let striping = self.ftl.striping.as_ref().filter(|_| word == NONE && !free)?;
        self.ftl.stats.unmapped_reads += 1;
        let shape = &self.ftl.map.shape;
        let (plane, page) = striping.home(lpn, shape.pages_per_block());
        Some(shape.unit(PageAddress { plane, block: self.config.ftl.slc.blocks, page }, 0).0)
    }

    /// A read of what is not in flash.
    #[cold]
    fn read_elsewhere(&mut self, from: When, lpn: u32, word: u32) -> When {
        if word != NONE {
            self.ftl.stats.buffer_read_hits += 1;
            return self.silicon.delayed(from, self.config.buffer.latency);
        }
        if self.is_in_place() {
            return self.read_page(from, self.home(lpn), 1);
        }
        self.ftl.stats.unmapped_reads += 1;
        if self.config.ftl.unmapped_read == UnmappedRead::Free {
            return from;
        }
        // Nothing is there to say where: spread over the planes as data would be.
        let (planes, pages) = (self.shape().planes(), self.shape().pages_per_block());
        // Where operations on the same page may be joined, not all are on the first.
        let page = if self.silicon.is_scheduled() { lpn / planes % pages } else { 0 };
        self.read_page(from, PageAddress { plane: lpn % planes, block: 0, page }, 1)
    }

    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        self.config.ftl.mapping == Mapping::InPlace
    }

    /// Where a unit lies when nothing maps it.
    pub(crate) fn home(&self, lpn: u32) -> PageAddress {
        let shape = self.shape();
        let (row, plane) = (lpn / shape.planes(), lpn % shape.planes());
        let (block, offset) = (row / shape.units_per_block(), row % shape.units_per_block());
        PageAddress { plane, block, page: shape.page_of(offset) }
    }

    /// The controller begins anew. What was booked on the silicon stays: it ends long before a drive is up again.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.host = Host::new(&self.config.host);
        self.memory = CacheMemory::new(&self.config.buffer).map(Box::new);
        self.durable.told(now);
    }
}

/// Units of one page that are read together.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u32,
    unit: u32,
    units: u32,
    at: When,
}
