//! Queues of fronts, pools and guests that a drive has dropped, and the ones that take their places.

use super::super::Drives;
use super::{FRONT, NUMBER};
use crate::directory::Place;
use crate::pool::drive_queue::{DriveQueue, Guest, ShardMessage};
use crate::pool::front::Front;
use crate::pool::parts::{GUEST, POOL, Whose, guest_owner, pool_owner};
use weir_controller::{ControllerHandle, Owner, SqHandle};
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Drives {
    /// Drives of a front are lost, and its volume has no copy elsewhere: what they had acknowledged and not flushed may be gone with them.
    pub fn lose_front(&mut self, place: u32) {
        self.volumes.fronts[(place & !FRONT) as usize].lose(|_| false);
    }

    /// A front's volume is another one from now on; its hosts are told.
    ///
    /// # Errors
    /// It has no namespace.
    pub fn renew_front(&mut self, place: u32, uuid: [u8; 16]) -> Result<(), String> {
        self.device_mut(place).machine_mut().renew_namespace(1, uuid).map_err(|e| e.to_string())?;
        self.front(place).into_iter().for_each(|(front, _)| front.medium = Front::medium_of(uuid));
        Ok(())
    }

    /// What a pool has on its way at that place of its drives comes to nothing, whatever the drive still makes of it.
    pub fn end_pool_io(&mut self, pool: u32, place: usize, now: Nanos) {
        match self.volumes.pools[pool as usize].queues.get(place).copied() {
            Some(DriveQueue::Here { drive, .. }) => self.renew(drive, pool_owner(pool), now),
            // A late answer from another shard finds nobody: its ticket is used once.
            Some(DriveQueue::There { .. }) => {
                let at = place as u32;
                let is = |whose: &Whose| *whose == Whose::Pool { pool, drive: at };
                self.volumes.parts.fail(is, Status::INTERNAL_PATH_ERROR);
            }
            Some(DriveQueue::Closed) | None => {}
        }
    }

    /// What a front has on its way at a drive comes to nothing, whatever the drive still makes of it, and its queue there is given back. Nothing
    /// of its volume lies there any more.
    pub fn end_front_io(&mut self, place: u32, drive: Place, now: Nanos) {
        let Some((front, _)) = self.front(place) else { return };
        let Some(at) = front.ways.iter().position(|w| w.place == drive && !w.has_left()) else { return };
        let queue = std::mem::replace(&mut front.ways[at].queue, DriveQueue::Closed);
        let (number, at) = (front.number, at as u32);
        let is = |whose: &Whose| matches!(whose, Whose::Front { front, drive, .. } | Whose::Job { front, drive } if (*front, *drive) == (number, at));
        self.volumes.parts.fail(is, Status::INTERNAL_PATH_ERROR);
        self.close_queue(queue, now);
    }

    /// A drive has dropped a queue of a front or a pool: what was in it comes to nothing, and there is another one.
    #[cold]
    pub(in crate::device) fn renew(&mut self, drive: u32, owner: Owner, now: Nanos) {
        let (number, is_pool) = (owner.0 & NUMBER, owner.0 & POOL != 0);
        if owner.0 & GUEST != 0 {
            return self.renew_guest(number, now);
        }
        let place = match is_pool {
            true => self.volumes.pools[number as usize].queues.iter().position(|s| s.is_at(drive)),
            false => self.volumes.fronts[number as usize]
                .front()
                .and_then(|(front, _)| front.ways.iter().position(|w| w.queue.is_at(drive))),
        };
        let Some(place) = place else { return };
        let at = place as u32;
        self.volumes.parts.fail(
            |whose| match whose {
                Whose::Pool { pool, drive } => is_pool && (*pool, *drive) == (number, at),
                Whose::Front { front, drive, .. } | Whose::Job { front, drive } => {
                    !is_pool && (*front, *drive) == (number, at)
                }
                Whose::Guest { .. } | Whose::Nobody => false,
            },
            Status::INTERNAL_PATH_ERROR,
        );
        let (old, tenant) = match is_pool {
            true => (self.volumes.pools[number as usize].queues[place], 0),
            false => match self.volumes.fronts[number as usize].front() {
                Some((front, _)) => (front.ways[place].queue, front.tenant),
                None => return,
            },
        };
        let DriveQueue::Here { controller: old, .. } = old else { return };
        self.get(drive).detach(now, old);
        if self.may_lose(drive) {
            match is_pool {
                true => self.volumes.pools[number as usize].lose(place),
                false => self.volumes.fronts[number as usize].lose(|way| way == at),
            }
        }
        let queue = self.attach_again(drive, owner, tenant, "volumes", now);
        let queue = DriveQueue::Here {
            drive,
            controller: queue.map_or(old, |(controller, ..)| controller),
            queue: queue.map(|(_, queue, _)| queue),
        };
        if is_pool {
            self.volumes.pools[number as usize].queues[place] = queue;
        } else if let Some((front, _)) = self.volumes.fronts[number as usize].front() {
            front.ways[place].queue = queue;
        }
    }

    /// A queue instead of one that the drive has dropped.
    fn attach_again(
        &mut self,
        drive: u32,
        owner: Owner,
        tenant: u16,
        host: &str,
        now: Nanos,
    ) -> Option<(ControllerHandle, SqHandle, u32)> {
        let queue = self.attach_queue(drive, owner, tenant, host, now);
        queue.inspect_err(|why| tracing::error!("a volume has lost its drive: {why}")).ok()
    }

    #[cold]
    fn renew_guest(&mut self, number: u32, now: Nanos) {
        let Some(Some(guest)) = self.volumes.guests.get(number as usize) else { return };
        let Guest { home, drive, tenant, host, controller, .. } = guest.clone();
        // Before the answers that come to nothing: whoever flushes then knows.
        if self.may_lose(drive) {
            self.volumes.outbox.put(home, ShardMessage::Loss(number));
        }
        let is = |whose: &Whose| matches!(whose, Whose::Guest { guest, .. } if *guest == number);
        self.volumes.parts.fail(is, Status::INTERNAL_PATH_ERROR);
        self.get(drive).detach(now, controller);
        let queue = self.attach_again(drive, guest_owner(number), tenant, &host, now);
        if let Some(Some(guest)) = self.volumes.guests.get_mut(number as usize) {
            guest.queue = queue.map(|(_, queue, _)| queue);
            guest.controller = queue.map_or(controller, |(controller, ..)| controller);
        }
    }
}
