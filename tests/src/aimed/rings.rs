//! Virtqueues: what is told from the in-flight region and from where the ring is published.

use std::mem::offset_of;
use std::rc::Rc;

use rustix::process::Pid;
use weir_driver::vhost_user::{Negotiated, QueueLayout};
use weir_journal::{CrashPoint, FoundRing, LeftRing, QueueKind, RecoveredRing, RingKind};
use weir_spec::virtio_blk::Config;
use weir_spec::virtqueue::{PackedDescriptor, PackedIndex, feature, flag, split};

use super::parts::{Copied, MERGE, Parts, USED};
use super::{Aim, Aimed, Hunt, Journal};
use crate::tracee::Place;

/// The rings of the worker's only front end, which is a `weir bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// All of them.
    pub kind: RingKind,
    /// How many.
    pub queues: u16,
}

/// Kills `worker` at the aim, or wherever it is when it does not come there within some seconds.
pub fn kill(worker: Pid, rings: Rings, aim: Aim) -> Result<Aimed<RecoveredRing>, String> {
    let parts = Parts::of(worker, QueueKind::Virtio)?;
    let (front, len) = parts.mapped("/memfd:weir-front")?;
    let view = View { parts, rings, front, stride: len / u64::from(rings.queues) };
    Hunt::kill(worker, view, (aim, rings.queues), approach)
}

fn approach(hunt: &mut Hunt<View>, step: CrashPoint) -> Result<bool, String> {
    let Aim { queue, skip, .. } = hunt.aim;
    let (merge, used) = (hunt.journal.parts.word(queue, MERGE), hunt.journal.parts.word(queue, USED));
    match step {
        CrashPoint::Idle => idle(hunt),
        CrashPoint::Merged | CrashPoint::InFlight => hunt.watch(merge, step, skip),
        CrashPoint::Marked => Ok(hunt.watch(merge, CrashPoint::Merged, skip)? && hunt.walk_to(CrashPoint::Marked)?),
        CrashPoint::Counted => hunt.watch(used, CrashPoint::Counted, skip),
        CrashPoint::Done => Ok(hunt.watch(used, CrashPoint::Counted, skip)? && hunt.walk_to(CrashPoint::Done)?),
        CrashPoint::Published => Ok(publication(hunt, skip)? && linger(hunt, skip)?),
    }
}

/// The worker publishes what is done; nothing is closed yet.
fn publication(hunt: &mut Hunt<View>, skip: u32) -> Result<bool, String> {
    let used = hunt.journal.parts.word(hunt.aim.queue, USED);
    if !hunt.watch(used, CrashPoint::Counted, skip)? {
        return Ok(false);
    }
    let place = hunt.journal.publication(hunt.aim.queue)?;
    hunt.watch(place, CrashPoint::Published, 0)
}

/// The worker closes what it has published: so many instructions later, while there is something left to close.
fn linger(hunt: &mut Hunt<View>, instructions: u32) -> Result<bool, String> {
    for _ in 0..instructions {
        // An instruction closes one at the most.
        if hunt.journal.found(hunt.aim.queue)?.closed < 2 {
            break;
        }
        hunt.step()?;
    }
    hunt.stands_at(CrashPoint::Published)
}

/// A batch is closed, and nothing else is in flight.
fn idle(hunt: &mut Hunt<View>) -> Result<bool, String> {
    while publication(hunt, 0)? {
        hunt.walk_from(CrashPoint::Published)?;
        if hunt.stands_at(CrashPoint::Idle)? {
            return Ok(true);
        }
    }
    Ok(false)
}

struct View {
    parts: Parts,
    rings: Rings,
    /// What the front end has shared, and bytes of it for each queue, with the rings at the beginning.
    front: u64,
    stride: u64,
}

impl Journal for View {
    type Found = RecoveredRing;

    fn found(&self, queue: u16) -> Result<RecoveredRing, String> {
        let left = self.left(queue)?;
        let published = self.is_published(queue, &left)?;
        left.recover(published).map(|(_, found)| found).map_err(|e| format!("queue {queue}: {e}"))
    }

    fn step(found: &RecoveredRing) -> CrashPoint {
        found.step
    }
}

impl View {
    fn left(&self, queue: u16) -> Result<LeftRing<Rc<Copied>>, String> {
        let (region, (size, _)) = (self.parts.copy(queue)?, self.parts.start(queue)?);
        match region.ring(0, self.rings.kind, size).map_err(|e| format!("queue {queue}: {e}"))? {
            FoundRing::Left(left) => Ok(left),
            FoundRing::Fresh(_) => Err(format!("queue {queue} has not begun")),
        }
    }

    /// Where the store goes that publishes the batch that is being done.
    fn publication(&self, queue: u16) -> Result<Place, String> {
        Ok(match self.rings.kind {
            RingKind::Split => Place { address: self.used_index(queue)?, len: 2 },
            RingKind::Packed => Place { address: self.descriptor(queue, self.left(queue)?.began()) + 8, len: 8 },
        })
    }

    fn is_published(&self, queue: u16, left: &LeftRing<Rc<Copied>>) -> Result<bool, String> {
        match self.rings.kind {
            RingKind::Split => {
                let index = self.parts.load16(self.used_index(queue)?)?;
                left.is_published(index).map_err(|e| format!("queue {queue}: {e}"))
            }
            RingKind::Packed => {
                let at = self.descriptor(queue, left.began()) + offset_of!(PackedDescriptor, flags) as u64;
                Ok((self.parts.load16(at)? & flag::USED != 0) == PackedIndex::from_bits(left.began()).wrap)
            }
        }
    }

    fn base(&self, queue: u16) -> u64 {
        self.front + u64::from(queue) * self.stride
    }

    fn descriptor(&self, queue: u16, at: u16) -> u64 {
        self.base(queue) + size_of::<PackedDescriptor>() as u64 * u64::from(PackedIndex::from_bits(at).offset)
    }

    fn used_index(&self, queue: u16) -> Result<u64, String> {
        let (size, _) = self.parts.start(queue)?;
        // Only what decides where the used ring is; buffers come behind it.
        let negotiated =
            Negotiated { features: feature::INDIRECT_DESC, protocol: 0, queues: 1, config: Config::default() };
        let layout = QueueLayout::new(u32::from(size), 0, &negotiated);
        Ok(layout.addresses(self.base(queue)).device + split::INDEX as u64)
    }
}
