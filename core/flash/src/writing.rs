//! Writes, deallocation and flush: into the buffer and out of it, or to the flash at once.

use crate::buffer::Buffer;
use crate::flash::Flash;
use crate::ftl::NONE;
use crate::geometry::UNIT;
use crate::lun::Promise;
use crate::scheduler::When;
use weir_units::Nanos;

impl Flash {
    #[inline]
    pub(crate) fn write(&mut self, from: When, lpn: u32, end: u32, fua: bool, hint: u8) -> When {
        if self.ftl.worn_out {
            self.ftl.stats.refused += u64::from(end - lpn);
            return from;
        }
        self.ftl.stats.host_writes += u64::from(end - lpn);
        if let Some(memory) = &mut self.memory {
            memory.forget(lpn, end);
        }
        if self.buffer.is_some() {
            self.write_buffered(from, lpn, end, fua, hint)
        } else if self.is_in_place() {
            self.write_in_place(from, lpn, end)
        } else {
            self.write_through(from, lpn, end, hint)
        }
    }

    #[inline]
    pub(crate) fn stream(&mut self, lpn: u32, hint: u8) -> u8 {
        self.ftl.streams.choose(lpn, hint)
    }

    /// The buffer's queue for a unit: those that wait in one may share a program.
    #[inline]
    pub(crate) fn queue(&mut self, lpn: u32, hint: u8) -> u32 {
        let stream = u32::from(self.stream(lpn, hint));
        let Some(striping) = &self.ftl.striping else { return stream };
        striping.partition(lpn) * u32::from(self.config.ftl.host_streams()) + stream
    }

    #[inline]
    fn stream_of(&self, queue: u32) -> u8 {
        if self.ftl.striping.is_none() {
            queue as u8
        } else {
            (queue % u32::from(self.config.ftl.host_streams())) as u8
        }
    }

    /// Without a buffer: each page of the command is programmed, and then it is complete.
    #[inline]
    fn write_through(&mut self, begun: When, lpn: u32, end: u32, hint: u8) -> When {
        let step = self.ftl.step();
        let mut done = begun;
        for lpn in lpn..end.min(lpn + step) {
            let written = self.write_stepped(begun, (lpn, end), step, hint);
            done = self.silicon.later_of(done, written);
        }
        if let Some(done) = done.known() {
            self.durable.told(done);
        }
        done
    }

    /// The same of every `step`th unit.
    #[inline]
    fn write_stepped(&mut self, begun: When, (lpn, end): (u32, u32), step: u32, hint: u8) -> When {
        let mut done = begun;
        let mut from = lpn;
        while from < end {
            let queue = self.queue(from, hint);
            let stream = self.stream_of(queue);
            self.batch.clear();
            let mut at = self.ftl.look_up(begun, &mut self.silicon, from, true);
            self.batch.push(from);
            from += step;
            while from < end && self.batch.len() < self.program as usize && self.queue(from, hint) == queue {
                let looked_up = self.ftl.look_up(begun, &mut self.silicon, from, true);
                at = self.silicon.later_of(at, looked_up);
                self.batch.push(from);
                from += step;
            }
            match self.ftl.write_stream(at, &mut self.silicon, stream, &self.batch) {
                Some(end) => {
                    self.under_way(end, 0);
                    done = self.silicon.later_of(done, end);
                }
                None => self.refuse(),
            }
        }
        done
    }

    #[cold]
    fn write_in_place(&mut self, from: When, lpn: u32, end: u32) -> When {
        let mut done = from;
        for lpn in lpn..end {
            let home = self.home(lpn);
            let end = self.silicon.program_at(from, home, UNIT, Promise::Told);
            done = self.silicon.later_of(done, end);
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
    fn write_buffered(&mut self, from: When, lpn: u32, end: u32, fua: bool, hint: u8) -> When {
        let through = !self.config.buffer.early || (fua && !self.config.buffer.protected);
        let mut done = from;
        let first = lpn;
        for lpn in lpn..end {
            let at = self.ftl.look_up(from, &mut self.silicon, lpn, true);
            let inside = match at.known() {
                Some(now) if !self.silicon.is_scheduled() => {
                    let at = self.take_in(now, lpn, hint);
                    When::at(self.inside(at, lpn == first))
                }
                _ => self.take_in_later(at, (lpn, lpn == first), hint, through),
            };
            done = self.silicon.later_of(done, inside);
        }
        if through {
            self.destage_all(self.silicon.present_of(done));
            let durable = self.durable_at(self.silicon.present_of(from));
            return self.silicon.later_of(done, durable);
        }
        done
    }

    /// Takes a unit into the buffer; when it is in.
    fn take_in(&mut self, now: Nanos, lpn: u32, hint: u8) -> Nanos {
        if self.renew(now, lpn, hint) { now } else { self.insert(now, lpn, hint) }
    }

    /// Whether the buffer has an older version of the unit, whose place the new one takes.
    pub(crate) fn renew(&mut self, now: Nanos, lpn: u32, hint: u8) -> bool {
        let Some(slot) = self.ftl.map.slot(lpn) else { return false };
        if self.changes_stream(slot, lpn, hint) {
            return false;
        }
        self.ftl.stats.buffer_write_hits += 1;
        if self.buffer.as_mut().is_some_and(|buffer| buffer.rewrite(now, slot)) {
            self.destage_due(now);
        }
        true
    }

    /// Takes a unit into the buffer, and lets leave what should; when it was in.
    fn insert(&mut self, now: Nanos, lpn: u32, hint: u8) -> Nanos {
        let Some(buffer) = &mut self.buffer else { return now };
        let mut at = buffer.admit(now, &mut self.silicon);
        if at > now {
            self.ftl.stats.buffer_waits += 1;
        }
        while at == Nanos::NEVER {
            self.destage(now);
            at = self.buffer.as_mut().map_or(now, |b| b.admit(now, &mut self.silicon));
        }
        self.put(at, lpn, hint);
        at
    }

    /// Puts a unit into the buffer, which has room, and lets leave what should.
    pub(crate) fn put(&mut self, at: Nanos, lpn: u32, hint: u8) {
        let queue = self.queue(lpn, hint);
        let Some(buffer) = &mut self.buffer else { return };
        buffer.insert(at, &mut self.ftl.map, lpn, queue);
        self.destage_due(at);
    }

    /// Lets leave what the policy wants to.
    fn destage_due(&mut self, at: Nanos) {
        let mut due = self.buffer.as_mut().map_or(0, Buffer::due);
        while due > 0 {
            let left = self.destage(at);
            if left == 0 {
                break;
            }
            due = due.saturating_sub(left);
        }
    }

    /// Programs one program's worth; how many units left.
    pub(crate) fn destage(&mut self, now: Nanos) -> u32 {
        let Some(buffer) = &mut self.buffer else { return 0 };
        let Some(queue) = buffer.batch(&mut self.batch, &mut self.writes) else { return 0 };
        self.program_batch(now, queue)
    }

    /// The same of what the buffer has in a queue.
    fn destage_of(&mut self, now: Nanos, queue: u32) -> u32 {
        let Some(buffer) = &mut self.buffer else { return 0 };
        if !buffer.batch_of(queue, &mut self.batch, &mut self.writes) {
            return 0;
        }
        self.program_batch(now, queue)
    }

    /// Programs all that the buffer has in a queue.
    pub(crate) fn destage_queue(&mut self, now: Nanos, queue: u32) {
        while self.buffer.as_ref().is_some_and(|b| b.dirty_of(queue) > 0) {
            self.destage_of(now, queue);
        }
    }

    /// Programs what the batch has taken out of the buffer; how many units.
    fn program_batch(&mut self, now: Nanos, queue: u32) -> u32 {
        let stream = self.stream_of(queue);
        let Some(buffer) = &mut self.buffer else { return 0 };
        let units = self.batch.len() as u32;
        match self.ftl.write_stream(When::at(now), &mut self.silicon, stream, &self.batch) {
            Some(done) => {
                self.ftl.flights.count(&self.writes);
                if let Some(done) = done.known() {
                    let end = self.silicon.open_end(self.ftl.programmed, done);
                    self.durable.open(end);
                    buffer.leave(units, end);
                } else {
                    buffer.leave_later(units);
                    self.under_way(done, units);
                }
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
    pub(crate) fn expire(&mut self, now: Nanos) {
        let timeout = self.config.buffer.timeout;
        if timeout == Nanos(0) {
            return;
        }
        // Who came in after this has waited for less.
        let Some(until) = now.0.checked_sub(timeout.0).map(Nanos) else { return };
        while let Some((oldest, queue)) = self.buffer.as_mut().and_then(|buffer| buffer.oldest(until)) {
            self.destage_of(oldest.saturating_add(timeout), queue);
        }
    }

    pub(crate) fn trim(&mut self, from: When, lpn: u32, end: u32) -> When {
        let mut done = from;
        self.ftl.stats.trims += u64::from(end - lpn);
        if let Some(memory) = &mut self.memory {
            memory.forget(lpn, end);
        }
        for lpn in lpn..end {
            if self.ftl.map.l2p[lpn as usize] == NONE {
                continue;
            }
            let at = self.ftl.look_up(from, &mut self.silicon, lpn, true);
            done = self.silicon.later_of(done, at);
            if let (Some(slot), Some(buffer)) = (self.ftl.map.slot(lpn), &mut self.buffer) {
                buffer.kill(slot);
            }
            self.ftl.map.trim(lpn);
        }
        done
    }

    pub(crate) fn flush(&mut self, from: When) -> When {
        self.ftl.stats.flushes += 1;
        if self.buffer.is_none() || self.config.buffer.protected {
            return from;
        }
        let now = self.silicon.present_of(from);
        self.destage_all(now);
        self.durable_at(now)
    }

    /// When all that has been programmed so far is in the cells.
    fn durable_at(&mut self, now: Nanos) -> When {
        if self.silicon.is_scheduled() {
            return self.durable_later(now);
        }
        When::at(self.durable.tell(now, &mut self.silicon))
    }
}
