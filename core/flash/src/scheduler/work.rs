//! What targets do: operations arrive and wait, the array works, data is ready or out.

use super::bus::Hold;
use super::target::{ArrayState, Cache, Suspended};
use super::{Event, NIL, Operation, OperationKind, Scheduler, Way};
use crate::timing::{Order, Registers};
use weir_units::Nanos;

/// Stops of an operation that reads have passed for as long as they may: it runs to its end.
const NEVER_AGAIN: u32 = u32::MAX;

impl Scheduler {
    pub(super) fn arrive(&mut self, id: u32) {
        let way = &mut self.ways[id as usize];
        if self.locks > 0 && !way.what.collection {
            self.held.push_back(id);
            return;
        }
        way.arrived = self.now;
        let Operation { target, kind, .. } = way.what;
        let t = &mut self.targets[target as usize];
        if kind == OperationKind::Read {
            t.reads.push_back(id);
            self.make_way(target);
        } else {
            if t.others_are_none() {
                t.passed_since = self.now;
            }
            t.others.push_back(id);
        }
        self.update(target);
    }

    /// A read has come, or waits for data of a program that was on its way into the cache register. Where reads come first, that data
    /// leaves the register again, and will be sent once more.
    pub(super) fn make_way(&mut self, target: u32) {
        let t = &self.targets[target as usize];
        if let (Cache::Loaded(id), Order::ReadsFirst, false) = (t.cache, self.timing.order, self.may_sense(target)) {
            if !self.is_aged(target) {
                let way = &mut self.ways[id as usize];
                (way.left, way.planes_left) = (way.what.bytes, way.what.planes - 1);
                let t = &mut self.targets[target as usize];
                t.cache = Cache::Free;
                t.others.push_front(id);
            }
        }
        self.stop_for_read(target);
    }

    /// Whether reads have passed the first of the others for as long as they may.
    fn is_aged(&self, target: u32) -> bool {
        let age = self.timing.age.0;
        age > 0
            && self.timing.order == Order::ReadsFirst
            && self.now - self.targets[target as usize].passed_since >= age
    }

    /// What the array works on stops for a read, where it can and is worth it.
    fn stop_for_read(&mut self, target: u32) {
        let t = &self.targets[target as usize];
        let ArrayState::Working(id, until) = t.state else { return };
        let Way { what, stops, .. } = self.ways[id as usize];
        let (Some(stop), limit) = (what.stop, self.timing.suspend.limit) else { return };
        let left = until - self.now;
        if t.suspended.is_some()
            || !self.may_sense(target)
            || left <= stop
            || (limit > 0 && stops >= limit)
            || stops == NEVER_AGAIN
        {
            return;
        }
        self.ways[id as usize].stops += 1;
        let now = self.now;
        let t = &mut self.targets[target as usize];
        t.passed_since = now;
        t.suspended = Some(Suspended { operation: id, left });
        t.epoch += 1;
        t.set(now, ArrayState::Stopping(id));
        self.after(target, stop);
    }

    /// The array's present state lasts for so long.
    pub(super) fn after(&mut self, target: u32, time: u64) {
        let epoch = self.targets[target as usize].epoch;
        self.push(self.now + time, Event::Array(target, epoch));
    }

    /// The next operation for a free array: the first read, or the first of the others.
    pub(super) fn next(&self, target: u32) -> Option<u32> {
        let t = &self.targets[target as usize];
        let is_program = |id: &u32| self.ways[*id as usize].what.kind == OperationKind::Program;
        // Where registers are unbounded a program's data comes in by itself.
        let other = match self.timing.registers {
            Registers::Unbounded => t.loaded.front().or(t.others.front().filter(|id| !is_program(id))),
            Registers::Single | Registers::Double => t.others.front(),
        };
        let other = match t.cache {
            Cache::Loading(id) | Cache::Loaded(id) => Some(id),
            _ => other.copied(),
        };
        let read = t.reads.front().copied();
        let (Some(read), Some(other)) = (read, other) else {
            return if t.suspended.is_some() { read } else { read.or(other) };
        };
        let (r, o) = (&self.ways[read as usize], &self.ways[other as usize]);
        let read_first = match self.timing.order {
            _ if t.suspended.is_some() => true,
            Order::InOrder => r.arrived < o.arrived || o.what.stop.is_some(),
            Order::ReadsFirst => !self.is_aged(target),
        };
        Some(if read_first { read } else { other })
    }

    /// Begins what needs no bus, and says whether the target wants it for something else.
    pub(super) fn update(&mut self, target: u32) {
        while self.begin_without_bus(target) {}
        if !self.targets[target as usize].listed && self.want(target).is_some() {
            let (now, t) = (self.now, &mut self.targets[target as usize]);
            t.listed = true;
            self.buses[t.channel as usize].list(now, target);
        }
        self.grant(self.targets[target as usize].channel);
    }

    pub(super) fn begin_without_bus(&mut self, target: u32) -> bool {
        let t = &self.targets[target as usize];
        if t.state != ArrayState::Idle {
            return false;
        }
        let (suspended, no_reads) = (t.suspended, t.reads.is_empty());
        if let (Some(Suspended { operation, left }), true) = (suspended, no_reads || self.is_aged(target)) {
            if !no_reads {
                self.ways[operation as usize].stops = NEVER_AGAIN;
            }
            let until = self.now + left;
            let t = &mut self.targets[target as usize];
            t.suspended = None;
            t.epoch += 1;
            t.set(self.now, ArrayState::Working(operation, until));
            self.after(target, left);
            return true;
        }
        let Some(mut id) = self.next(target) else { return false };
        let t = &mut self.targets[target as usize];
        match t.cache {
            // What reads pass through has to be free.
            Cache::Loaded(first) if self.timing.cache_read && t.suspended.is_none() => id = first,
            _ => {}
        }
        if t.cache == Cache::Loaded(id) {
            t.cache = Cache::Free;
            self.work(target, id, self.timing.cache_busy.0);
            return true;
        }
        if t.cache == Cache::Loading(id) {
            return false;
        }
        if t.loaded.front() == Some(&id) {
            t.loaded.pop_front();
            self.work(target, id, 0);
            return true;
        }
        let what = self.ways[id as usize].what;
        let silent = match what.kind {
            OperationKind::Read => what.command == 0 && self.may_sense(target),
            OperationKind::Erase => what.command == 0,
            OperationKind::Program => {
                let commands = what.command + u64::from(what.planes - 1) * what.command_plane;
                commands == 0 && self.timing.channel.is_instant()
            }
        };
        if !silent {
            return false;
        }
        self.take(target, id);
        self.work(target, id, 0);
        true
    }

    /// With a cache register that reads pass through, no program's data may be in their way.
    pub(super) fn may_sense(&self, target: u32) -> bool {
        let cache = self.targets[target as usize].cache;
        !(self.timing.cache_read && matches!(cache, Cache::Loading(_) | Cache::Loaded(_)))
    }

    /// The operation does not wait in its queue any more.
    pub(super) fn take(&mut self, target: u32, id: u32) {
        let t = &mut self.targets[target as usize];
        let queue = if self.ways[id as usize].what.kind == OperationKind::Read { &mut t.reads } else { &mut t.others };
        debug_assert_eq!(queue.front(), Some(&id), "the first of its kind");
        queue.pop_front();
    }

    /// What the target wants the bus for.
    pub(super) fn want(&self, target: u32) -> Option<Hold> {
        let t = &self.targets[target as usize];
        // More data of what has begun to come in.
        match (t.state, t.cache) {
            (ArrayState::Entering(id), _) | (_, Cache::Loading(id)) if self.is_off(t.channel, id) => {
                return Some(Hold::Load(id));
            }
            _ => {}
        }
        match self.timing.registers {
            Registers::Single => {}
            Registers::Unbounded => match self.first_program(target) {
                Some(id) if self.is_off(t.channel, id) => return Some(Hold::Load(id)),
                _ => {}
            },
            Registers::Double if t.cache == Cache::Free && t.suspended.is_none() => {
                if let Some(id) = self.first_program(target).filter(|_| !self.reads_pass(target)) {
                    return Some(Hold::Load(id));
                }
            }
            Registers::Double => {}
        }
        let id = if t.state == ArrayState::Idle { self.next(target)? } else { return None };
        match self.ways[id as usize].what.kind {
            OperationKind::Read if !self.may_sense(target) => None,
            OperationKind::Read | OperationKind::Erase => Some(Hold::Command(id)),
            OperationKind::Program if self.timing.registers == Registers::Single => Some(Hold::Load(id)),
            OperationKind::Program => None,
        }
    }

    /// The first of the others, if that is a program.
    #[inline]
    fn first_program(&self, target: u32) -> Option<u32> {
        let first = self.targets[target as usize].others.front().copied();
        first.filter(|id| self.ways[*id as usize].what.kind == OperationKind::Program)
    }

    /// Whether reads pass through the cache register of a target now, or will before the first of the others.
    #[inline]
    fn reads_pass(&self, target: u32) -> bool {
        if !self.timing.cache_read {
            return false;
        }
        let t = &self.targets[target as usize];
        let is_read = |id: u32| self.ways[id as usize].what.kind == OperationKind::Read;
        let reads = match t.state {
            ArrayState::Idle => self.next(target).is_some_and(is_read),
            ArrayState::Entering(id) | ArrayState::Working(id, _) | ArrayState::Holding(id) => is_read(id),
            ArrayState::Stopping(_) => true,
        };
        reads || self.timing.order == Order::ReadsFirst && !t.reads.is_empty() && !self.is_aged(target)
    }

    /// Whether the operation, which has begun to come in, does not hold the bus.
    pub(super) fn is_off(&self, channel: u32, id: u32) -> bool {
        self.buses[channel as usize].holder.is_none_or(|hold| hold.operation() != id)
    }

    /// The time of bytes on the bus.
    pub(super) fn transfer(&self, bytes: u32) -> u64 {
        if bytes == self.page.0 { self.page.1 } else { self.timing.channel.time(bytes).0 }
    }

    /// How long the next piece of a program's data holds the bus: all of it, where bursts are not limited.
    pub(super) fn load_time(&self, what: &Operation, left: u32, planes_left: u32, first: bool) -> u64 {
        let command = if !first {
            0
        } else if planes_left + 1 == what.planes {
            what.command
        } else {
            what.command_plane
        };
        if what.bytes > self.burst {
            return command + self.transfer(left.min(self.burst));
        }
        command + self.transfer(left) + u64::from(planes_left) * (what.command_plane + self.transfer(what.bytes))
    }

    /// The array begins to work on the operation, `extra` later.
    pub(super) fn work(&mut self, target: u32, id: u32, extra: u64) {
        let what = &self.ways[id as usize].what;
        let known = what.kind != OperationKind::Read && what.stop.is_none();
        let passes =
            what.kind == OperationKind::Read && self.timing.cache_read && self.timing.registers == Registers::Double;
        let away = if (what.away.0..what.away.1).contains(&self.now) { what.away.1 - self.now } else { 0 };
        let time = away + extra + what.array + if passes { self.timing.cache_busy.0 } else { 0 };
        let until = self.now + time;
        let t = &mut self.targets[target as usize];
        t.epoch += 1;
        t.set(self.now, ArrayState::Working(id, until));
        self.after(target, time);
        if known {
            self.ended(id, until);
            self.end_joined(id, until);
        }
    }

    /// The end of an operation is known.
    pub(super) fn ended(&mut self, id: u32, at: u64) {
        if let Some(end) = self.ways[id as usize].end.take() {
            self.happened(end, Nanos(at));
        }
    }

    /// Nothing of the operation is left, nor of those that have joined it.
    pub(super) fn forget_all(&mut self, id: u32) {
        let mut next = id;
        while next != NIL {
            let id = next;
            next = self.ways[id as usize].joined;
            self.forget(id);
        }
    }

    /// Nothing of the operation is left.
    pub(super) fn forget(&mut self, id: u32) {
        self.ended(id, self.now);
        self.free.push(id);
    }

    pub(super) fn array_is_done(&mut self, target: u32) {
        let now = self.now;
        let t = &mut self.targets[target as usize];
        match t.state {
            ArrayState::Stopping(_) => t.set(now, ArrayState::Idle),
            ArrayState::Working(id, _) => {
                if self.ways[id as usize].what.kind == OperationKind::Read {
                    self.sensed(target, id);
                } else {
                    t.set(now, ArrayState::Idle);
                    t.passed_since = now;
                    self.forget_all(id);
                }
            }
            _ => debug_assert!(false, "the array of target {target} is done with nothing"),
        }
        self.update(target);
    }

    /// A page is in the array's register: it goes out, or to the cache register first.
    pub(super) fn sensed(&mut self, target: u32, id: u32) {
        let (now, registers, passes) = (self.now, self.timing.registers, self.timing.cache_read);
        let t = &mut self.targets[target as usize];
        if registers == Registers::Unbounded {
            t.set(now, ArrayState::Idle);
        } else if passes && registers == Registers::Double {
            if t.cache != Cache::Free {
                t.set(now, ArrayState::Holding(id));
                return;
            }
            t.cache = Cache::Leaving(id);
            t.set(now, ArrayState::Idle);
        } else {
            t.set(now, ArrayState::Holding(id));
        }
        self.data_is_ready(target, id);
    }

    pub(super) fn data_is_ready(&mut self, target: u32, id: u32) {
        if self.timing.channel.is_instant() && self.timing.overheads.status.0 == 0 {
            self.ways[id as usize].open = 1;
            self.end_joined(id, self.now);
            return self.is_out(target, id);
        }
        let channel = self.targets[target as usize].channel;
        let mut next = id;
        while next != NIL {
            self.buses[channel as usize].outs.push_back((self.now, next));
            next = self.ways[next as usize].joined;
        }
    }

    /// How long the next piece of a read's data holds the bus.
    pub(super) fn out_time(&self, id: u32) -> u64 {
        let left = self.ways[id as usize].left;
        let status = if left <= self.burst { self.timing.overheads.status.0 } else { 0 };
        self.transfer(left.min(self.burst)) + status
    }

    /// All data of a read is out.
    pub(super) fn is_out(&mut self, target: u32, id: u32) {
        let now = self.now;
        self.ended(id, now);
        let leader = self.ways[id as usize].leader;
        self.ways[leader as usize].open -= 1;
        if self.ways[leader as usize].open > 0 {
            return;
        }
        let id = leader;
        let t = &mut self.targets[target as usize];
        if t.cache == Cache::Leaving(id) {
            t.cache = Cache::Free;
            if let ArrayState::Holding(next) = t.state {
                t.cache = Cache::Leaving(next);
                t.set(now, ArrayState::Idle);
                self.data_is_ready(target, next);
            }
        } else if t.state == ArrayState::Holding(id) {
            t.set(now, ArrayState::Idle);
        }
        self.forget_all(id);
    }
}
