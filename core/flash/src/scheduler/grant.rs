//! Who gets a channel when it is free, and what follows.

use super::bus::Hold;
use super::target::{ArrayState, Cache};
use super::{Event, NIL, OperationKind, Scheduler, Way};
use crate::timing::{Arbitration, Registers};

impl Scheduler {
    /// Gives the bus to who comes first by the rules, if it is free.
    pub(super) fn grant(&mut self, channel: u32) {
        while self.buses[channel as usize].holder.is_none() {
            let Some(hold) = self.choose(channel) else { return };
            let id = hold.operation();
            let more = self.enter(hold);
            let Way { what, left, planes_left, .. } = &self.ways[id as usize];
            let time = more
                + match hold {
                    Hold::Command(_) => what.command,
                    Hold::Out(_) => self.out_time(id),
                    Hold::Load(_) => self.load_time(what, *left, *planes_left, *left == what.bytes),
                };
            let last = *left <= self.burst && *planes_left == 0;
            self.buses[channel as usize].hold(self.now, hold, time);
            self.push(self.now + time, Event::Bus(channel));
            if last && hold == Hold::Out(id) {
                self.ended(id, self.now + time);
            }
        }
    }

    /// What follows for the target from having got the bus; how much longer it is held for those that join.
    pub(super) fn enter(&mut self, hold: Hold) -> u64 {
        let id = hold.operation();
        let target = self.ways[id as usize].what.target;
        let (now, queued) = (self.now, self.targets[target as usize].others.front() == Some(&id));
        match hold {
            Hold::Out(_) => 0,
            Hold::Command(_) => {
                self.take(target, id);
                self.targets[target as usize].set(now, ArrayState::Entering(id));
                self.join(target, id)
            }
            // Where registers are unbounded it stays the first until all of its data is in.
            Hold::Load(_) if queued && self.timing.registers != Registers::Unbounded => {
                self.take(target, id);
                let t = &mut self.targets[target as usize];
                match self.timing.registers {
                    Registers::Double => t.cache = Cache::Loading(id),
                    _ => t.set(now, ArrayState::Entering(id)),
                }
                self.join(target, id)
            }
            Hold::Load(_) => 0,
        }
    }

    /// Operations of its kind that wait for other planes of its die, on the same page, are done with it as one multi-plane operation; for
    /// how much longer that holds the bus.
    pub(super) fn join(&mut self, target: u32, id: u32) -> u64 {
        let what = self.ways[id as usize].what;
        let joins = self.timing.join_planes && self.timing.registers == Registers::Single && what.bytes <= self.burst;
        let (true, Some(place)) = (joins, what.place) else { return 0 };
        let t = &mut self.targets[target as usize];
        let queue = if what.kind == OperationKind::Read { &mut t.reads } else { &mut t.others };
        let (mut time, mut last, mut planes, mut at) = (0, id, 1u64 << place.plane, 0);
        while let Some(other) = queue.get(at).copied() {
            let theirs = self.ways[other as usize].what;
            let joins =
                theirs.kind == what.kind && theirs.place.is_some_and(|p| p.joins(&place) && planes & 1 << p.plane == 0);
            let Some(joint) = theirs.place.filter(|_| joins) else {
                at += 1;
                continue;
            };
            queue.remove(at);
            planes |= 1 << joint.plane;
            time += theirs.command_plane;
            if what.kind == OperationKind::Program {
                let page = self.page;
                time += if theirs.bytes == page.0 { page.1 } else { self.timing.channel.time(theirs.bytes).0 };
            }
            self.ways[last as usize].joined = other;
            self.ways[other as usize].leader = id;
            self.ways[id as usize].open += 1;
            last = other;
        }
        time
    }

    /// Those that have joined the operation, which has ended, end with it.
    pub(super) fn end_joined(&mut self, id: u32, at: u64) {
        let mut next = self.ways[id as usize].joined;
        while next != NIL {
            self.ended(next, at);
            next = self.ways[next as usize].joined;
        }
    }

    pub(super) fn choose(&mut self, channel: u32) -> Option<Hold> {
        loop {
            let bus = &mut self.buses[channel as usize];
            if self.timing.arbitration != Arbitration::Fifo || bus.is_out_longest() {
                if let Some((_, id)) = bus.outs.pop_front() {
                    return Some(Hold::Out(id));
                }
            }
            let bus = &self.buses[channel as usize];
            let at = match self.timing.arbitration {
                Arbitration::DataOutFirst | Arbitration::Booked => bus.in_turn(),
                Arbitration::Fifo => bus.longest(),
                Arbitration::ReadsFirst => {
                    let reads = |target: u32| match self.want(target) {
                        Some(Hold::Command(id)) => self.ways[id as usize].what.kind == OperationKind::Read,
                        _ => false,
                    };
                    bus.first(reads).or(bus.longest())
                }
            };
            let target = self.buses[channel as usize].take(at?);
            self.targets[target as usize].listed = false;
            let want = self.want(target);
            if want.is_some() {
                return want;
            }
            // It may want nothing any more, or something that needs no bus: while it waited, reads have passed the others for long enough.
            while self.begin_without_bus(target) {}
            if self.buses[channel as usize].holder.is_some() {
                return None;
            }
            if self.targets[target as usize].listed {
                continue;
            }
            if let Some(hold) = self.want(target) {
                return Some(hold);
            }
        }
    }

    pub(super) fn bus_is_free(&mut self, channel: u32) {
        let Some(hold) = self.buses[channel as usize].release() else { return };
        let id = hold.operation();
        let target = self.ways[id as usize].what.target;
        match hold {
            Hold::Command(_) => self.work(target, id, 0),
            Hold::Load(_) => self.loaded(target, id),
            Hold::Out(_) => self.out(target, id),
        }
        // It grants the channel as well.
        self.update(target);
    }

    /// A piece of a program's data is in.
    pub(super) fn loaded(&mut self, target: u32, id: u32) {
        let burst = self.burst;
        let way = &mut self.ways[id as usize];
        if way.what.bytes > burst {
            way.left -= way.left.min(burst);
            if way.left == 0 && way.planes_left > 0 {
                (way.left, way.planes_left) = (way.what.bytes, way.planes_left - 1);
            }
        } else {
            (way.left, way.planes_left) = (0, 0);
        }
        if way.left > 0 {
            return;
        }
        match self.timing.registers {
            Registers::Single => self.work(target, id, 0),
            Registers::Double => {
                self.targets[target as usize].cache = Cache::Loaded(id);
                if !self.targets[target as usize].reads.is_empty() {
                    self.make_way(target);
                }
            }
            Registers::Unbounded => {
                self.take(target, id);
                self.targets[target as usize].loaded.push_back(id);
            }
        }
    }

    /// A piece of a read's data is out.
    pub(super) fn out(&mut self, target: u32, id: u32) {
        let burst = self.burst;
        let way = &mut self.ways[id as usize];
        way.left -= way.left.min(burst);
        if way.left == 0 && way.planes_left > 0 {
            (way.left, way.planes_left) = (way.what.bytes, way.planes_left - 1);
        }
        if way.left > 0 {
            let channel = self.targets[target as usize].channel;
            self.buses[channel as usize].outs.push_back((self.now, id));
            return;
        }
        self.is_out(target, id);
    }
}
