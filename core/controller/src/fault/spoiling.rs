//! When bytes of a command begin to be flipped on their way, and when they are no more.

use crate::fault::state::SpoiledSlot;
use crate::fault::transfer::SpoiledTransfer;
use crate::host::Host;
use crate::io::slots::SlotState;
use crate::io::starting::Starting;
use crate::queues::command::Command;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use crate::zns::ZonedOp;
use weir_fault::FaultOutcome;

impl Subsystem {
    /// Bytes of the command that has just been started are flipped until it is done, if it was judged so.
    pub(crate) fn begin_spoiling<H: Host>(&mut self, starting: &Starting, host: &mut H) {
        let Starting { queue, command: Command { cid, slba, nsid, .. }, data, .. } = *starting;
        let Some(FaultOutcome::Corrupt { lba, bytes, seed }) = self.outcome_of(starting) else { return };
        let Some(slot) = self.slots.find(queue, cid) else { return };
        // It waits for others, with what it was judged: its slot is not yet its own.
        if self.slots.slots[slot as usize].state == SlotState::Held {
            return;
        }
        // A command with a list is seen when it is done.
        if self.slots.slots[slot as usize].ranges == NONE {
            self.slots.slots[slot as usize].ranges = self.slots.take_work().0;
        }
        let owner = self.sq(queue).owner;
        let at = (lba.saturating_sub(slba) << self.namespaces.block_shift(nsid)) as u32;
        host.begin_spoiled(SpoiledTransfer { owner, data, at, bytes, seed });
        if let Some(faults) = &mut self.faults {
            faults.spoiled.push(SpoiledSlot { slot, queue, owner, data });
        }
    }

    /// The command in this slot is done, and its bytes are wrong no more; what it owes to zones.
    pub(crate) fn end_spoiling<H: Host>(&mut self, slot: u32, host: &mut H) -> Option<ZonedOp> {
        self.end_spoiled(|spoiled, _| spoiled.slot == slot, host);
        self.slots.owed(slot).cloned()
    }

    /// Commands whose queues have gone are nobody's any more.
    pub(super) fn end_orphans<H: Host>(&mut self, host: &mut H) {
        self.end_spoiled(|spoiled, queue| spoiled.queue != queue, host);
    }

    fn end_spoiled<H: Host>(&mut self, is_over: impl Fn(&SpoiledSlot, u32) -> bool, host: &mut H) {
        let (slots, Some(faults)) = (&self.slots.slots, &mut self.faults) else { return };
        faults.spoiled.retain(|spoiled| {
            let over = is_over(spoiled, slots[spoiled.slot as usize].queue);
            if over {
                host.end_spoiled(spoiled.owner, &spoiled.data);
            }
            !over
        });
    }
}
