//! Commands with a slot wait for others, and go on in their order.

use crate::host::Host;
use crate::io::slots::SlotState;
use crate::io::slow_path::waits::{BlockRange, For, Wait, changes, reads};
use crate::io::starting::Starting;
use crate::io::work::Partner;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Subsystem {
    /// Gives a command its slot, in which it waits.
    pub(crate) fn wait(&mut self, starting: &Starting, partner: Option<Partner>, what: For) {
        let slot = self.occupy_for(starting);
        let nsid = starting.command.nsid;
        let starting = Starting { decided: None, due: None, ..*starting };
        self.slow_path.waits.push(Wait { slot, starting, partner, what });
        self.review(nsid);
    }

    /// Whether somebody who would change these blocks has to wait for pairs: those under way, and those before it. `before`: how
    /// many that wait come before it.
    pub(crate) fn is_locked(&self, extent: &BlockRange, before: usize) -> bool {
        let waits = || self.slow_path.waits.iter().take(before).filter_map(Wait::extent);
        self.slow_path.locks.iter().any(|l| l.extent.meets(extent)) || waits().any(|e| e.meets(extent))
    }

    /// Whether somebody who would read these blocks has to wait for copies that are atomic: those under way, and those before it.
    pub(crate) fn is_held_alone(&self, extent: &BlockRange, before: usize) -> bool {
        let waits = self.slow_path.waits.iter().take(before);
        let held = |what: &For| matches!(what, For::All(other) if other.meets(extent));
        self.slow_path.locks.iter().any(|l| l.alone && l.extent.meets(extent)) || waits.map(|w| &w.what).any(held)
    }

    /// Whether somebody is changing these blocks who began before there was a pair.
    pub(crate) fn is_being_written(&self, extent: &BlockRange, shift: u32) -> bool {
        self.slots.slots.iter().any(|slot| changes(slot, extent, shift))
    }

    /// Whether somebody is reading or changing these blocks who began before there was a copy.
    pub(crate) fn is_in_use(&self, extent: &BlockRange) -> bool {
        let shift = self.namespaces.block_shift(extent.nsid);
        self.slots.slots.iter().any(|slot| changes(slot, extent, shift) || reads(slot, extent, shift))
    }

    /// At each turn, before anything is started: who waited long enough goes on, in order.
    #[cold]
    pub(crate) fn go_on_waiting<H: Host>(&mut self, now: Nanos, host: &mut H) {
        let slots = &self.slots;
        let mut touched: Vec<u32> = self.slow_path.locks.iter().map(|l| l.nsid).collect();
        self.slow_path.locks.retain(|l| slots.holds_blocks(l.slot));
        touched.extend(self.slow_path.waits.iter().map(|w| w.starting.command.nsid));
        let mut at = 0;
        while let Some(wait) = self.slow_path.waits.get(at) {
            let queue = self.slots.slots[wait.slot as usize].queue;
            if queue != NONE && !self.may_go_on(at) {
                at += 1;
                continue;
            }
            let wait = self.slow_path.waits.remove(at);
            let arrived = self.slots.slots[wait.slot as usize].arrived;
            self.slots.vacate(wait.slot);
            if queue == NONE {
                continue;
            }
            let starting = Starting { queue, arrived, ..wait.starting };
            if matches!(wait.what, For::Slots(_)) {
                self.finish(queue, starting.command.cid, starting.command.tag, Status::SUCCESS, 0, host);
                continue;
            }
            // Those that wait behind it are no reason for it to wait.
            let behind = self.slow_path.waits.split_off(at);
            wait.partner.into_iter().for_each(|p| self.slow_path.partners.push_front(p));
            self.start_as_planned(now, &starting, host);
            if starting.judged.is_some() {
                self.begin_spoiling(&starting, host);
            }
            self.slow_path.waits.extend(behind);
        }
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().for_each(|nsid| self.review(nsid));
        self.run_faults(now, host);
    }

    fn may_go_on(&self, at: usize) -> bool {
        let wait = &self.slow_path.waits[at];
        match &wait.what {
            For::Slots(slots) => slots.iter().all(|s| self.slots.slots[*s as usize].state == SlotState::Free),
            For::Pairs(extent) => !self.is_locked(extent, at),
            For::Copies(extent) => !self.is_held_alone(extent, at),
            For::All(extent) => !self.is_locked(extent, at) && !self.is_in_use(extent),
            For::Writes(extent) => {
                let shift = self.namespaces.block_shift(extent.nsid);
                !self.is_locked(extent, at) && !self.is_being_written(extent, shift)
            }
        }
    }
}
