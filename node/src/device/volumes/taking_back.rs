//! The end of a process whose volumes' commands are at drives that have moved nothing of them: they are taken back, and go on in the next process.
//!
//! ```text
//!   a drive: its slots are timed, nothing is emitted ─► when each part is due ─► of a command the latest ─► Subsystem::take_back of the front
//!   a drive of another shard: ◄─ShardMessage::TakenBack─ its shard, once the drive has begun the part, or keeps it waiting
//! ```
//! The next process gives its drives such a command when it is due, and they time it no more ([`PartTime::Charged`](crate::pool::drive_queue::PartTime)).
//! A rebuild, and what pools note of copies, go on there as after a crash. What is waited for: changes of a pool, and what [`Front::to_take_back`](crate::pool::front::Front::to_take_back) leaves out.

use super::{Drives, FRONT};
use crate::device::Device;
use crate::pool::drive_queue::ShardMessage;
use crate::pool::parts::Whose;
use std::collections::{BTreeMap, BTreeSet};
use weir_controller::{SlotId, SqHandle, Tag};
use weir_units::Nanos;

/// Commands of fronts, by front and slot, and when they are due, as far as drives have begun them.
type TakenBack = BTreeMap<(u32, SlotId), Option<Nanos>>;

/// Parts in queues of this shard's fronts and of guests, by drive, queue and tag, of which nothing has moved, and when they are due, as far as drives have begun them.
type Unmoved = BTreeMap<(u32, SqHandle, u32), Option<Nanos>>;

impl Device {
    /// The same as [`may_leave`](Device::may_leave), where what its front has at its drives is taken back.
    fn may_leave_after(&self, number: u32, back: &TakenBack) -> bool {
        self.down.is_some() || self.machine().may_leave_with(|slot| back.contains_key(&(number, slot)))
    }
}

impl Drives {
    /// The process ends: what drives have begun of volumes' commands goes on in the next one, and so does what is for drives of other shards.
    pub fn mark_begun(&mut self) {
        self.volumes.leaves = true;
        let fronts = self.volumes.fronts.iter_mut().filter_map(Device::front);
        let own: Vec<_> = fronts.flat_map(|(front, _)| front.ways.iter().filter_map(|way| way.queue.here())).collect();
        let guests = self.volumes.guests.iter().flatten();
        let guests: Vec<_> = guests.filter_map(|g| Some((g.drive, g.controller, g.queue?))).collect();
        for (drive, controller, _) in own.iter().chain(&guests) {
            self.to_poll(*drive).set_goes_on(*controller, true);
        }
        let pools = self.volumes.pools.iter().flat_map(|pool| {
            let goes_on = pool.may_be_interrupted();
            pool.queues.iter().filter_map(move |queue| queue.here().map(|here| (here, goes_on)))
        });
        for ((drive, controller, _), goes_on) in pools.collect::<Vec<_>>() {
            self.to_poll(drive).set_goes_on(controller, goes_on);
        }
        self.give_back();
    }

    /// Tells other shards of their commands that drives here have begun or keep waiting.
    fn give_back(&mut self) {
        let returns = |whose: &Whose| matches!(whose, Whose::Guest { returns: true, .. });
        if !self.volumes.parts.all().any(|(_, part)| returns(&part.whose)) {
            return;
        }
        let unmoved = self.unmoved();
        let mut given = Vec::new();
        for (tag, part) in self.volumes.parts.all().filter(|(_, part)| returns(&part.whose)) {
            let Whose::Guest { guest, .. } = part.whose else { continue };
            let home = self.volumes.guests.get(guest as usize).and_then(Option::as_ref).map(|guest| guest.home);
            let due = self.queue_of(part.whose).and_then(|(drive, queue)| unmoved.get(&(drive, queue, tag.0)));
            given.extend(home.zip(due).map(|(home, due)| (home, tag, *due)));
        }
        for (home, tag, due) in given {
            if let Some(ticket) = self.volumes.parts.disown(tag) {
                self.volumes.outbox.put(home, ShardMessage::TakenBack { ticket, due });
            }
        }
    }

    /// The next process can have all of them, after [`take_back`](Self::take_back): see [`Device::may_leave`].
    pub fn may_leave(&self) -> bool {
        if !self.list.iter().all(Device::may_leave) {
            return false;
        }
        if self.volumes.parts.is_empty() && self.volumes.fronts.iter().all(Device::may_leave) {
            return true;
        }
        let Some(back) = self.to_take_back() else { return false };
        self.volumes.fronts.iter().zip(0u32..).all(|(front, number)| front.may_leave_after(number, &back))
    }

    /// Takes back what the drives have not moved; [`may_leave`](Self::may_leave) has said that it can be, and the process ends.
    pub fn take_back(&mut self) {
        let Some(back) = self.to_take_back() else { return };
        for ((number, slot), due) in back {
            self.to_poll(number | FRONT).take_back(slot, due);
        }
        for (front, _) in self.volumes.fronts.iter_mut().filter_map(Device::front) {
            front.forget_all();
        }
        self.volumes.parts.forget(|whose| !matches!(whose, Whose::Guest { .. }));
    }

    /// Of all queues that parts are in.
    fn unmoved(&self) -> Unmoved {
        let parts = self.volumes.parts.all();
        let queues: BTreeSet<(u32, SqHandle)> = parts.filter_map(|(_, part)| self.queue_of(part.whose)).collect();
        let unmoved = |(drive, queue): (u32, SqHandle)| {
            let list = self.machine(drive).unmoved(queue);
            list.into_iter().map(move |begun| ((drive, queue, begun.tag.0), begun.due))
        };
        queues.into_iter().flat_map(unmoved).collect()
    }

    /// The drive of this shard where a part is, and the queue there.
    fn queue_of(&self, whose: Whose) -> Option<(u32, SqHandle)> {
        let volumes = &self.volumes;
        let queue = match whose {
            Whose::Front { front, drive, .. } | Whose::Job { front, drive } => {
                let front = volumes.fronts.get(front as usize)?.as_front()?;
                &front.ways.get(drive as usize)?.queue
            }
            Whose::Pool { pool, drive } => volumes.pools.get(pool as usize)?.queues.get(drive as usize)?,
            Whose::Guest { guest, .. } => {
                let guest = volumes.guests.get(guest as usize)?.as_ref()?;
                return Some((guest.drive, guest.queue?));
            }
            Whose::Nobody => return None,
        };
        queue.here().map(|(drive, _, queue)| (drive, queue))
    }

    /// Commands of all fronts; `None`: not all of them can be taken back now.
    fn to_take_back(&self) -> Option<TakenBack> {
        let volumes = &self.volumes;
        if volumes.must_poll() {
            return None;
        }
        let mut back = TakenBack::new();
        for (front, number) in volumes.fronts.iter().zip(0u32..).filter_map(|(f, n)| Some((f.as_front()?, n))) {
            let all = front.to_take_back()?;
            back.extend(all.into_iter().map(|one| ((number, one.slot), one.is_whole.then_some(Nanos(0)))));
        }
        let unmoved = self.unmoved();
        for (tag, part) in volumes.parts.all() {
            match part.whose {
                Whose::Front { front, slot, .. } => {
                    let due = self.part_due(&unmoved, part.whose, tag)?;
                    let latest = back.get_mut(&(front, slot))?;
                    *latest = latest.zip(due).map(|(latest, due)| latest.max(due));
                }
                Whose::Job { .. } => drop(self.part_due(&unmoved, part.whose, tag)?),
                Whose::Pool { pool, .. } => {
                    volumes.pools.get(pool as usize).filter(|pool| pool.may_be_interrupted())?;
                    let (drive, queue) = self.queue_of(part.whose)?;
                    unmoved.get(&(drive, queue, tag.0))?;
                }
                Whose::Nobody => {}
                Whose::Guest { .. } => return None,
            }
        }
        // Of some no part is at a drive.
        back.values_mut().for_each(|due| *due = due.filter(|due| due.0 != 0));
        Some(back)
    }

    /// When a part of a front is due, if its drive has begun it; `None`: that is not known yet.
    fn part_due(&self, unmoved: &Unmoved, whose: Whose, tag: Tag) -> Option<Option<Nanos>> {
        match self.queue_of(whose) {
            Some((drive, queue)) => unmoved.get(&(drive, queue, tag.0)).copied(),
            None => self.volumes.parts.taken_back(tag),
        }
    }
}
