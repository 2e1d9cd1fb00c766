//! The drive: commands in, completion times out.

use crate::array::Array;
use crate::buffer::{Buffer, FlushPolicy};
use crate::config::{Config, ConfigError, Mapping, Plan, UnmappedRead, WriteZeroes};
use crate::durable::Durable;
use crate::ftl::{GcMode, NONE, PageFtl, Prefetch, Separation, TAG, VictimPolicy, WearPolicy};
use crate::geometry::{Place, Shape, UNIT};
use crate::host::{Host, HostOp};
use crate::image::Image;
use crate::lun::Promise;
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
    logical: u32,
    pub(crate) config: Config,
    /// When the last program of the host's data is done.
    durable: Durable,
    pub(crate) origin: Nanos,
    /// Units of one program.
    pub(crate) program: u32,
    /// Bytes that leave the flash in one go.
    burst: u32,
    batch: Vec<u32>,
    writes: Vec<u32>,
}

impl Flash {
    /// An empty drive, idle since `now`.
    ///
    /// # Errors
    /// Names the key that does not fit.
    pub fn new(config: &Config, now: Nanos) -> Result<Flash, ConfigError> {
        let mut made = Flash::made(config, now, &config.plan()?, None);
        made.ftl.mark_bad();
        Ok(made)
    }

    pub(crate) fn made(config: &Config, now: Nanos, plan: &Plan, image: Option<Image>) -> Flash {
        let silicon = Array::new(&plan.shape, &config.timing, &config.variability);
        let ftl = PageFtl::new(config, plan, &silicon, image);
        let planes = if config.ftl.multi_plane { plan.shape.planes_per_die() } else { 1 };
        let program = plan.shape.units_per_page() * planes;
        let open = if ftl.promise == Promise::Open { plan.shape.planes() } else { 0 };
        Flash {
            silicon,
            host: Host::new(&config.host),
            ftl,
            buffer: Buffer::new(&config.buffer, config.ftl.host_streams(), program),
            logical: plan.logical,
            config: *config,
            durable: Durable::new(now, open),
            origin: now,
            program,
            burst: if config.timing.burst_bytes == 0 { u32::MAX } else { config.timing.burst_bytes },
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
    pub fn config(&self) -> &Config {
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
    #[inline]
    pub fn submit(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32) -> Nanos {
        self.submit_hinted(now, op, lpn, units, 0)
    }

    /// The same with what the host said about the data's life (an FDP placement handle, a directive's stream).
    #[inline]
    pub fn submit_hinted(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32, hint: u8) -> Nanos {
        let lpn = lpn.min(self.logical);
        let end = lpn + units.min(self.logical - lpn);
        let bytes = (end - lpn).saturating_mul(UNIT);
        if self.buffer.is_some() {
            self.expire(now);
        }
        // Collection that blocks the controller blocks its buffer too.
        let now = now.max(self.silicon.locked_until());
        match op {
            FlashOp::Read => {
                let begin = self.host.fetch(now, HostOp::Read, bytes);
                self.read(begin, lpn, end, true)
            }
            FlashOp::Write { fua } => {
                let begin = self.host.fetch(now, HostOp::Write, bytes);
                self.write(begin, lpn, end, fua, hint)
            }
            _ => {
                let begin = self.host.fetch(now, HostOp::Other, 0);
                self.submit_other(begin, op, lpn, end, hint)
            }
        }
    }

    #[cold]
    fn submit_other(&mut self, now: Nanos, op: FlashOp, lpn: u32, end: u32, hint: u8) -> Nanos {
        match op {
            FlashOp::Flush => self.flush(now),
            FlashOp::WriteZeroes if self.config.ftl.write_zeroes == WriteZeroes::Program => {
                self.write(now, lpn, end, false, hint)
            }
            _ => self.trim(now, lpn, end),
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
    pub fn modify(&mut self, now: Nanos, lpn: u32) -> Nanos {
        if lpn < self.logical && self.ftl.map.l2p[lpn as usize] & TAG == 0 {
            self.read(now, lpn, lpn + 1, false)
        } else {
            now
        }
    }

    /// Reads the units; `to_host`, each page crosses the link as soon as it is off the flash.
    #[inline]
    fn read(&mut self, now: Nanos, lpn: u32, end: u32, to_host: bool) -> Nanos {
        self.ftl.stats.host_reads += u64::from(end - lpn);
        let mut done = now;
        let mut run = Run { page: NONE, unit: NONE, units: 0, at: now };
        for lpn in lpn..end {
            let at = self.ftl.look_up(now, &mut self.silicon, lpn, false);
            let word = self.ftl.map.l2p[lpn as usize];
            if word & TAG != 0 {
                let ready = self.read_elsewhere(at, lpn, word);
                done = done.max(self.hand_over(ready, 1, to_host));
                continue;
            }
            let page = self.ftl.map.shape.page_of(word);
            if page == run.page {
                run.units += 1;
                run.at = run.at.max(at);
                continue;
            }
            done = done.max(self.read_run(run, to_host));
            run = Run { page, unit: word, units: 1, at };
        }
        done.max(self.read_run(run, to_host))
    }

    #[inline]
    fn read_run(&mut self, run: Run, to_host: bool) -> Nanos {
        if run.units == 0 {
            return run.at;
        }
        let place = self.ftl.place(run.unit);
        let ready = self.read_page(run.at, place, run.units);
        self.hand_over(ready, run.units, to_host)
    }

    /// Units that are in the drive at `ready`: when who asked has them.
    #[inline]
    fn hand_over(&mut self, ready: Nanos, units: u32, to_host: bool) -> Nanos {
        let bytes = units * UNIT;
        if !to_host {
            return ready;
        }
        if bytes <= self.burst {
            return self.host.deliver(ready, bytes);
        }
        let apart = self.silicon.transfer_time(self.burst);
        self.host.deliver_pieces(ready, bytes, self.burst, apart)
    }

    #[inline]
    fn read_page(&mut self, now: Nanos, place: Place, units: u32) -> Nanos {
        if self.ftl.mode == GcMode::Preemptive {
            self.ftl.settle(now, &mut self.silicon, place.plane);
        }
        self.ftl.stats.page_reads += 1;
        self.silicon.read(now, place, units * UNIT)
    }

    /// A read of what is not in flash.
    #[cold]
    fn read_elsewhere(&mut self, now: Nanos, lpn: u32, word: u32) -> Nanos {
        if word != NONE {
            self.ftl.stats.buffer_read_hits += 1;
            return now.saturating_add(self.config.buffer.latency);
        }
        if self.is_in_place() {
            return self.read_page(now, self.home(lpn), 1);
        }
        self.ftl.stats.unmapped_reads += 1;
        if self.config.ftl.unmapped_read == UnmappedRead::Free {
            return now;
        }
        // Nothing is there to say where: spread over the planes as data would be.
        let plane = lpn % self.shape().planes();
        self.read_page(now, Place { plane, block: 0, page: 0 }, 1)
    }

    #[inline]
    fn write(&mut self, now: Nanos, lpn: u32, end: u32, fua: bool, hint: u8) -> Nanos {
        if self.ftl.worn_out {
            self.ftl.stats.refused += u64::from(end - lpn);
            return now;
        }
        self.ftl.stats.host_writes += u64::from(end - lpn);
        if self.buffer.is_some() {
            self.write_buffered(now, lpn, end, fua, hint)
        } else if self.is_in_place() {
            self.write_in_place(now, lpn, end)
        } else {
            self.write_through(now, lpn, end, hint)
        }
    }

    #[inline]
    pub(crate) fn stream(&mut self, lpn: u32, hint: u8) -> u8 {
        self.ftl.streams.choose(lpn, hint)
    }

    /// Without a buffer: each page of the command is programmed, and then it is complete.
    #[inline]
    fn write_through(&mut self, now: Nanos, lpn: u32, end: u32, hint: u8) -> Nanos {
        let mut done = now;
        let mut from = lpn;
        while from < end {
            let stream = self.stream(from, hint);
            self.batch.clear();
            let mut at = self.ftl.look_up(now, &mut self.silicon, from, true);
            self.batch.push(from);
            from += 1;
            while from < end && self.batch.len() < self.program as usize && self.stream(from, hint) == stream {
                at = at.max(self.ftl.look_up(now, &mut self.silicon, from, true));
                self.batch.push(from);
                from += 1;
            }
            match self.ftl.write_stream(at, &mut self.silicon, stream, &self.batch) {
                Some(end) => done = done.max(end),
                None => self.refuse(),
            }
        }
        self.durable.told(done);
        done
    }

    #[inline]
    fn is_in_place(&self) -> bool {
        self.config.ftl.mapping == Mapping::InPlace
    }

    /// Where a unit lies when nothing maps it.
    fn home(&self, lpn: u32) -> Place {
        let shape = self.shape();
        let (row, plane) = (lpn / shape.planes(), lpn % shape.planes());
        let (block, offset) = (row / shape.units_per_block(), row % shape.units_per_block());
        Place { plane, block, page: shape.page_of(offset) }
    }

    #[cold]
    fn write_in_place(&mut self, now: Nanos, lpn: u32, end: u32) -> Nanos {
        let mut done = now;
        for lpn in lpn..end {
            done = done.max(self.silicon.program(now, self.home(lpn), UNIT).done);
        }
        // What it writes is a unit, whatever a page is.
        self.ftl.stats.page_programs += u64::from((end - lpn).div_ceil(self.shape().units_per_page()));
        done
    }

    /// What the batch still has was not written: there is no room.
    fn refuse(&mut self) {
        self.ftl.stats.refused += self.batch.len() as u64;
        self.ftl.worn_out = true;
    }

    #[cold]
    fn write_buffered(&mut self, now: Nanos, lpn: u32, end: u32, fua: bool, hint: u8) -> Nanos {
        let mut done = now;
        for lpn in lpn..end {
            let at = self.ftl.look_up(now, &mut self.silicon, lpn, true);
            let at = match self.ftl.map.slot(lpn) {
                Some(slot) if !self.changes_stream(slot, lpn, hint) => {
                    self.ftl.stats.buffer_write_hits += 1;
                    self.buffer.iter_mut().for_each(|b| b.rewrite(slot));
                    at
                }
                _ => self.insert(at, lpn, hint),
            };
            done = done.max(at.saturating_add(self.config.buffer.latency));
        }
        if !self.config.buffer.early || (fua && !self.config.buffer.protected) {
            self.destage_all(done);
            return done.max(self.durable.tell(now, &mut self.silicon));
        }
        done
    }

    /// Takes a unit into the buffer, and lets leave what should; when it was in.
    fn insert(&mut self, now: Nanos, lpn: u32, hint: u8) -> Nanos {
        let stream = self.stream(lpn, hint);
        let Some(buffer) = &mut self.buffer else { return now };
        let mut at = buffer.admit(now, &mut self.silicon);
        if at > now {
            self.ftl.stats.buffer_waits += 1;
        }
        while at == Nanos::NEVER {
            self.destage(now);
            at = self.buffer.as_mut().map_or(now, |b| b.admit(now, &mut self.silicon));
        }
        let Some(buffer) = &mut self.buffer else { return now };
        buffer.insert(at, &mut self.ftl.map, lpn, stream);
        let mut due = buffer.due();
        while due > 0 {
            let left = self.destage(at);
            if left == 0 {
                break;
            }
            due = due.saturating_sub(left);
        }
        at
    }

    /// Programs one program's worth; how many units left.
    fn destage(&mut self, now: Nanos) -> u32 {
        let Some(buffer) = &mut self.buffer else { return 0 };
        let Some(stream) = buffer.batch(&mut self.batch, &mut self.writes) else { return 0 };
        self.program_batch(now, stream)
    }

    /// Programs all that the buffer has of a stream.
    pub(crate) fn destage_stream(&mut self, now: Nanos, stream: usize) {
        while self.buffer.as_ref().is_some_and(|b| b.dirty_of(stream) > 0) {
            let Some(buffer) = &mut self.buffer else { return };
            if let Some(stream) = buffer.batch_of(stream, &mut self.batch, &mut self.writes) {
                self.program_batch(now, stream);
            }
        }
    }

    /// Programs what the batch has taken out of the buffer; how many units.
    fn program_batch(&mut self, now: Nanos, stream: u8) -> u32 {
        let Some(buffer) = &mut self.buffer else { return 0 };
        let units = self.batch.len() as u32;
        match self.ftl.write_stream(now, &mut self.silicon, stream, &self.batch) {
            Some(done) => {
                self.ftl.flights.count(&self.writes);
                let end = self.silicon.open_end(self.ftl.programmed, done);
                self.durable.open(end);
                buffer.leave(units, end);
            }
            None => {
                buffer.leave(units, self.silicon.open_end(0, now));
                self.ftl.map.take_back(&self.batch);
                self.refuse();
            }
        }
        units
    }

    pub(crate) fn destage_all(&mut self, now: Nanos) {
        while self.buffer.as_ref().is_some_and(|b| b.dirty() > 0) {
            self.destage(now);
        }
    }

    /// Lets leave what has waited too long for company, at the time when it was due.
    fn expire(&mut self, now: Nanos) {
        let timeout = self.config.buffer.timeout;
        if timeout == Nanos(0) {
            return;
        }
        while let Some(oldest) = self.buffer.as_ref().and_then(Buffer::oldest) {
            let due = oldest.saturating_add(timeout);
            if due > now || self.destage(due) == 0 {
                return;
            }
        }
    }

    fn trim(&mut self, now: Nanos, lpn: u32, end: u32) -> Nanos {
        let mut done = now;
        self.ftl.stats.trims += u64::from(end - lpn);
        for lpn in lpn..end {
            if self.ftl.map.l2p[lpn as usize] == NONE {
                continue;
            }
            done = done.max(self.ftl.look_up(now, &mut self.silicon, lpn, true));
            if let (Some(slot), Some(buffer)) = (self.ftl.map.slot(lpn), &mut self.buffer) {
                buffer.kill(slot);
            }
            self.ftl.map.trim(lpn);
        }
        done
    }

    /// The controller begins anew. What was booked on the silicon stays: it ends long before a drive is up again.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.host = Host::new(&self.config.host);
        self.durable.told(now);
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        self.ftl.stats.flushes += 1;
        if self.buffer.is_none() || self.config.buffer.protected {
            return now;
        }
        self.destage_all(now);
        self.durable.tell(now, &mut self.silicon)
    }
}

/// Units of one page that are read together.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u32,
    unit: u32,
    units: u32,
    at: Nanos,
}
