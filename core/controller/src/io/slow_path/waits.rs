//! Commands with a slot that wait for others: a fused pair until nobody writes its blocks, writes of others until it is done, and
//! a preempt-and-abort for the commands that it could not abort any more.
//!
//! ```text
//!  start ─▶ wait: slot, Held ─▶ (at each turn: nobody before it, none of those it waits for) ─▶ start again
//! ```
//! Who waits, waits only for commands that are under way or that wait before it, so there is always one that goes on.

use crate::host::Host;
use crate::io::slots::{Slot, SlotState};
use crate::io::slow_path::fused::Partner;
use crate::io::starting::{NOT_JUDGED, Starting};
use crate::queues::command::{Command, flag};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;

/// Blocks of a namespace, from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub nsid: u32,
    pub first: u64,
    pub end: u64,
}

impl Extent {
    /// The blocks that a command changes: of a list of ranges, all.
    pub fn of(command: &Command) -> Extent {
        let listed = command.opcode == IoOpcode::DATASET_MANAGEMENT.0 && !command.is(flag::RANGE)
            || command.opcode == IoOpcode::COPY.0;
        let (first, end) = match listed {
            true => (0, u64::MAX),
            false => (command.slba, command.slba.saturating_add(command.unplaced().blocks.into())),
        };
        Extent { nsid: command.nsid, first, end }
    }

    /// Whether they have blocks in common.
    pub fn meets(&self, other: &Extent) -> bool {
        self.nsid == other.nsid && self.first < other.end && other.first < self.end
    }
}

/// A pair, or a copy that is atomic, under way: nobody else writes its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub slot: u32,
    pub nsid: u32,
    pub extent: Extent,
    /// Nobody else reads them either.
    pub alone: bool,
}

/// What somebody waits for.
#[derive(Clone, Debug)]
pub(crate) enum For {
    /// A pair: that nobody writes its blocks.
    Writes(Extent),
    /// A copy that is atomic: that nobody reads or writes its blocks.
    All(Extent),
    /// Somebody who writes: the pairs that hold its blocks.
    Pairs(Extent),
    /// Somebody who reads: the copies that hold its blocks.
    Copies(Extent),
    /// Preempt-and-abort: the commands in these slots.
    Slots(Vec<u32>),
}

/// Who waits.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub slot: u32,
    pub starting: Starting,
    /// Of a pair.
    pub partner: Option<Partner>,
    what: For,
}

impl Wait {
    /// Whether commands of a namespace have to look at it.
    pub fn holds_up(&self, nsid: u32) -> bool {
        self.extent().is_some_and(|e| e.nsid == nsid)
    }

    fn extent(&self) -> Option<&Extent> {
        match &self.what {
            For::Writes(extent) | For::All(extent) | For::Pairs(extent) => Some(extent),
            For::Copies(_) | For::Slots(_) => None,
        }
    }
}

impl Subsystem {
    /// Gives a command its slot, in which it waits.
    pub(crate) fn wait(&mut self, starting: &Starting, partner: Option<Partner>, what: For) {
        let slot = self.occupy_for(starting);
        let nsid = starting.command.nsid;
        let starting = Starting { decided: None, due: None, ..*starting };
        self.ledger.waits.push(Wait { slot, starting, partner, what });
        self.review(nsid);
    }

    /// Whether somebody who would change these blocks has to wait for pairs: those under way, and those before it. `before`: how
    /// many that wait come before it.
    pub(crate) fn is_locked(&self, extent: &Extent, before: usize) -> bool {
        let waits = || self.ledger.waits.iter().take(before).filter_map(Wait::extent);
        self.ledger.locks.iter().any(|l| l.extent.meets(extent)) || waits().any(|e| e.meets(extent))
    }

    /// Whether somebody who would read these blocks has to wait for copies that are atomic: those under way, and those before it.
    pub(crate) fn is_held_alone(&self, extent: &Extent, before: usize) -> bool {
        let waits = self.ledger.waits.iter().take(before);
        let held = |what: &For| matches!(what, For::All(other) if other.meets(extent));
        self.ledger.locks.iter().any(|l| l.alone && l.extent.meets(extent)) || waits.map(|w| &w.what).any(held)
    }

    /// Whether somebody is changing these blocks who began before there was a pair.
    pub(crate) fn is_being_written(&self, extent: &Extent, shift: u32) -> bool {
        self.slots.slots.iter().any(|slot| changes(slot, extent, shift))
    }

    /// Whether somebody is reading or changing these blocks who began before there was a copy.
    pub(crate) fn is_in_use(&self, extent: &Extent) -> bool {
        let shift = self.block_shift(extent.nsid);
        self.slots.slots.iter().any(|slot| changes(slot, extent, shift) || reads(slot, extent, shift))
    }

    /// At each turn, before anything is started: who waited long enough goes on, in order.
    #[cold]
    pub(crate) fn go_on_waiting<H: Host>(&mut self, now: Nanos, host: &mut H) {
        let slots = &self.slots;
        let mut touched: Vec<u32> = self.ledger.locks.iter().map(|l| l.nsid).collect();
        self.ledger.locks.retain(|l| slots.holds_blocks(l.slot));
        touched.extend(self.ledger.waits.iter().map(|w| w.starting.command.nsid));
        let mut at = 0;
        while let Some(wait) = self.ledger.waits.get(at) {
            let queue = self.slots.slots[wait.slot as usize].queue;
            if queue != NONE && !self.may_go_on(at) {
                at += 1;
                continue;
            }
            let wait = self.ledger.waits.remove(at);
            let stamp = self.stamps.get(wait.slot as usize).copied();
            self.slots.vacate(wait.slot);
            if queue == NONE {
                continue;
            }
            let starting = Starting { queue, arrived: stamp.unwrap_or(NOT_JUDGED), ..wait.starting };
            if matches!(wait.what, For::Slots(_)) {
                self.finish(queue, starting.command.cid, starting.command.tag, Status::SUCCESS, 0, host);
                continue;
            }
            // Those that wait behind it are no reason for it to wait.
            let behind = self.ledger.waits.split_off(at);
            wait.partner.into_iter().for_each(|p| self.ledger.partners.push_front(p));
            self.start_slow(now, &starting, host);
            self.ledger.waits.extend(behind);
        }
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().for_each(|nsid| self.review(nsid));
    }

    fn may_go_on(&self, at: usize) -> bool {
        let wait = &self.ledger.waits[at];
        match &wait.what {
            For::Slots(slots) => slots.iter().all(|s| self.slots.slots[*s as usize].state == SlotState::Free),
            For::Pairs(extent) => !self.is_locked(extent, at),
            For::Copies(extent) => !self.is_held_alone(extent, at),
            For::All(extent) => !self.is_locked(extent, at) && !self.is_in_use(extent),
            For::Writes(extent) => {
                let shift = self.block_shift(extent.nsid);
                !self.is_locked(extent, at) && !self.is_being_written(extent, shift)
            }
        }
    }

    /// Block size of a namespace as a power of two.
    pub(crate) fn block_shift(&self, nsid: u32) -> u32 {
        crate::namespace::active(&self.namespaces, nsid).map_or(9, |ns| ns.shift)
    }
}

/// Whether the command in a slot is under way, in the namespace of these blocks.
fn is_under_way(slot: &Slot, extent: &Extent) -> bool {
    let under_way = matches!(slot.state, SlotState::Timed | SlotState::Ready | SlotState::Issued);
    under_way && slot.nsid == extent.nsid
}

/// Whether the command in a slot is under way and reads some of these blocks, for its host.
fn reads(slot: &Slot, extent: &Extent, shift: u32) -> bool {
    let reads = matches!(IoOpcode(slot.opcode), IoOpcode::READ | IoOpcode::COMPARE);
    let end = slot.slba.saturating_add(u64::from(slot.bytes >> shift));
    reads && is_under_way(slot, extent) && extent.meets(&Extent { nsid: slot.nsid, first: slot.slba, end })
}

/// Whether the command in a slot is under way and changes some of these blocks.
fn changes(slot: &Slot, extent: &Extent, shift: u32) -> bool {
    if !is_under_way(slot, extent) {
        return false;
    }
    match IoOpcode(slot.opcode) {
        IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::VERIFY | IoOpcode::FLUSH => false,
        IoOpcode::WRITE => {
            let end = slot.slba.saturating_add(u64::from(slot.bytes >> shift));
            extent.meets(&Extent { nsid: slot.nsid, first: slot.slba, end })
        }
        // How far it reaches is not kept.
        _ => true,
    }
}
