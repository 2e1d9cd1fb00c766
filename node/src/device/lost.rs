//! What volumes lose with a drive: what it had acknowledged and not flushed. Each of their hosts hears of it with its next flush.

use super::volumes::Volumes;
use super::{Device, Drives};
use crate::pool::drive_queue::DriveQueue;
use crate::pool::front::Front;
use weir_controller::SlotId;
use weir_spec::nvme::Status;

impl Volumes {
    /// A drive of another shard may have lost what it had acknowledged to the guest there, and not flushed.
    #[cold]
    pub(super) fn lose_at(&mut self, shard: u32, guest: u32) {
        let is = |queue: &DriveQueue| queue.is_guest(shard, guest);
        for pool in &mut self.pools {
            if let Some(place) = pool.queues.iter().position(is) {
                pool.lose(place);
            }
        }
        for front in &mut self.fronts {
            let at = |(front, _): (&mut Front, _)| front.ways.iter().position(|w| is(&w.queue));
            if let Some(at) = front.front().and_then(at) {
                front.lose(|way| way as usize == at);
            }
        }
    }
}

impl Drives {
    /// Whether a drive that has dropped its queues may have lost what it had acknowledged.
    pub(super) fn may_lose(&mut self, drive: u32) -> bool {
        self.get(drive).config().volatile_write_cache
    }
}

impl Device {
    /// Drives of a front at these ways may have lost what they had acknowledged and not flushed. Its hosts need not hear of it where other copies
    /// have all of that.
    #[cold]
    pub(super) fn lose(&mut self, at: impl Fn(u32) -> bool) {
        if let Some((front, machine)) = self.front() {
            let ways: Vec<u32> = (0..front.ways.len() as u32).filter(|way| at(*way)).collect();
            let kept: Vec<bool> = ways.into_iter().map(|way| front.lose_way(way)).collect();
            if front.copies.is_none() || kept.contains(&false) {
                front.lose(machine.hosts());
            }
        }
    }

    /// Flushes have gone well of which some host is to hear that they have not: on a drive of its own it would have lost its connection.
    #[cold]
    pub(super) fn judge(&mut self, ended: &mut [(SlotId, Status)]) {
        let Some((front, machine)) = self.front() else { return };
        for (slot, losses) in std::mem::take(&mut front.flushed) {
            let Some((controller, host, internal)) = machine.whose(slot) else { continue };
            let live = |controller| machine.hosts().any(|(other, _)| other == controller);
            if front.must_fail((controller, host), (internal, losses), live) {
                // Not to be tried again.
                let failed = |(at, status): &mut (SlotId, Status)| {
                    *status = if *at == slot { Status::WRITE_FAULT.dnr() } else { *status }
                };
                ended.iter_mut().for_each(failed);
            }
        }
    }
}
