//! NVMe submission queues of a client of vfio-user: their journals say all.

use rustix::process::Pid;
use weir_journal::{CrashPoint, FoundNvme, NvmeRecovered, QueueKind};

use super::parts::{HEAD, MERGE, Parts, USED};
use super::{Aim, Aimed, Hunt, Journal};
use crate::tracee::Place;

/// Words of an entry.
const ENTRY: u64 = 16;

/// Kills `worker`, which has one client of so many I/O queues, at the aim, or wherever it is when it does not come there within some seconds. There is no
/// [`CrashPoint::Published`]: a completion that has been posted is still DONE.
pub fn kill(worker: Pid, queues: u16, aim: Aim) -> Result<Aimed<NvmeRecovered>, String> {
    Hunt::kill(worker, View(Parts::of(worker, QueueKind::Nvme)?), (aim, queues), approach)
}

fn approach(hunt: &mut Hunt<View>, step: CrashPoint) -> Result<bool, String> {
    let Aim { queue, skip, .. } = hunt.aim;
    let (merge, used) = (hunt.journal.0.word(queue, MERGE), hunt.journal.0.word(queue, USED));
    match step {
        CrashPoint::Idle => idle(hunt, used),
        CrashPoint::Merged | CrashPoint::InFlight => hunt.watch(merge, step, skip),
        CrashPoint::Marked => Ok(hunt.watch(merge, CrashPoint::Merged, skip)? && hunt.walk_to(CrashPoint::Marked)?),
        CrashPoint::Counted => {
            if !hunt.watch(merge, CrashPoint::InFlight, skip)? {
                return Ok(false);
            }
            // The next store to its entry says DONE.
            let newest = hunt.journal.newest(queue)?;
            hunt.watch(newest, CrashPoint::Counted, 0)
        }
        CrashPoint::Done => hunt.watch(used, CrashPoint::Done, skip),
        CrashPoint::Published => Err("a submission queue's journal does not say so".into()),
    }
}

/// A completion is posted, and nothing else is in flight.
fn idle(hunt: &mut Hunt<View>, used: Place) -> Result<bool, String> {
    while hunt.watch(used, CrashPoint::Done, 0)? {
        hunt.walk_from(CrashPoint::Done)?;
        if hunt.stands_at(CrashPoint::Idle)? {
            return Ok(true);
        }
    }
    Ok(false)
}

struct View(Parts);

impl View {
    /// The first word of the entry of the command that was taken last.
    fn newest(&self, queue: u16) -> Result<Place, String> {
        let merge = self.0.load(self.0.word(queue, MERGE).address)?;
        let slot = merge >> 16 & 0xffff;
        Ok(self.0.word(queue, HEAD + slot * ENTRY))
    }
}

impl Journal for View {
    type Found = NvmeRecovered;

    fn found(&self, queue: u16) -> Result<NvmeRecovered, String> {
        let (region, (size, generation)) = (self.0.copy(queue)?, self.0.start(queue)?);
        match region.nvme(0, size, generation).map_err(|e| format!("queue {queue}: {e}"))? {
            FoundNvme::Left(left) => left.recover().map(|(_, found)| found).map_err(|e| format!("queue {queue}: {e}")),
            FoundNvme::Fresh(_) => Err(format!("queue {queue} has not begun")),
        }
    }

    fn step(found: &NvmeRecovered) -> CrashPoint {
        found.step
    }
}
