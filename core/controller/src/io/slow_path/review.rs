//! Which namespaces have reasons for the slow path, and what of them is remembered.

use crate::namespace::unreadable::Intervals;
use crate::namespace::why;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use weir_codec::{Damaged, Reader, Writer};

/// What is remembered of unreadable blocks: for each namespace its NSID, a count of ranges, and start and end of each.
pub(crate) const UNREADABLE: Section = Section { id: 33, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    for (nsid, ranges) in &drive.slow_path.unreadable {
        to.u32(*nsid);
        to.u32(ranges.iter().count() as u32);
        for (start, end) in ranges.iter() {
            to.u64(start);
            to.u64(end);
        }
    }
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    while !from.is_empty() {
        let nsid = from.u32()?;
        drive.namespaces.active(nsid).map_err(|_| Damaged)?;
        let mut ranges = Intervals::default();
        for _ in 0..from.u32()? {
            let (start, end) = (from.u64()?, from.u64()?);
            if start >= end || ranges.overlaps(start, end) || ranges.insert(start, end).is_err() {
                return Err(Damaged);
            }
        }
        if ranges.is_empty() || drive.slow_path.unreadable.insert(nsid, ranges).is_some() {
            return Err(Damaged);
        }
        drive.review(nsid);
    }
    Ok(())
}

/// The longest fused pair, in bytes (ACWU, NACWU). A host may split a command where its buffers or its transport ask for it, and a
/// pair that is split is none any more. SPDK does at 16 scattered buffers over NVMe/TCP, and takes ACWU for what it may ask for: a page
/// is in eight at the most, of a block each.
pub(crate) const PAIR_BYTES: u64 = 4096;

impl Subsystem {
    /// A namespace's entries have changed: its commands go the way that this asks for.
    pub(crate) fn review(&mut self, nsid: u32) {
        let ledger = &mut self.slow_path;
        ledger.reservations.retain(|_, r| !r.is_default());
        ledger.unreadable.retain(|_, u| !u.is_empty());
        let reserved = ledger.reservations.get(&nsid).is_some_and(|r| r.held.is_some());
        let locked = ledger.locks.iter().any(|l| l.nsid == nsid) || ledger.waits.iter().any(|w| w.holds_up(nsid));
        let unreadable = ledger.unreadable.contains_key(&nsid);
        let bits = [(why::RESERVED, reserved), (why::UNREADABLE, unreadable), (why::LOCKED, locked)];
        let Some(Some(ns)) = self.namespaces.list.get_mut(nsid.wrapping_sub(1) as usize) else { return };
        for (bit, set) in bits {
            ns.why = if set { ns.why | bit } else { ns.why & !bit };
        }
    }

    /// Bytes of a write that is atomic.
    pub(crate) fn atomic_bytes(&self) -> u64 {
        self.config.atomic_write.min(self.config.max_transfer())
    }

    /// Bytes that Compare and Write fused is of, at the most.
    pub(crate) fn pair_bytes(&self) -> u64 {
        self.atomic_bytes().min(PAIR_BYTES)
    }

    /// A namespace is gone, or all its blocks were formatted: nothing of it is unreadable any more.
    pub(crate) fn make_readable(&mut self, nsid: u32) {
        if self.slow_path.unreadable.remove(&nsid).is_some() {
            self.review(nsid);
            self.touch();
        }
    }

    /// A namespace is gone: nothing of it is reserved or unreadable any more.
    pub(crate) fn forget_namespace(&mut self, nsid: u32) {
        self.make_readable(nsid);
        if self.slow_path.reservations.remove(&nsid).is_some() {
            self.review(nsid);
            self.touch();
        }
    }

    /// The ledger's invariants.
    pub(crate) fn check_slow_path(&self) {
        for (nsid, r) in &self.slow_path.reservations {
            r.check();
            assert!(!r.is_default(), "namespace {nsid}: what is nothing is not kept");
        }
        for unreadable in self.slow_path.unreadable.values() {
            unreadable.check();
            assert!(!unreadable.is_empty());
        }
        for (nsid, ns) in (1u32..).zip(&self.namespaces.list) {
            let Some(ns) = ns else { continue };
            let held = self.slow_path.reservations.get(&nsid).is_some_and(|r| r.held.is_some());
            assert_eq!(ns.why & why::RESERVED != 0, held, "namespace {nsid}: a reservation is looked at");
            let unreadable = self.slow_path.unreadable.contains_key(&nsid);
            assert_eq!(ns.why & why::UNREADABLE != 0, unreadable, "namespace {nsid}: unreadable blocks are looked at");
            let locked = self.slow_path.locks.iter().any(|l| l.nsid == nsid);
            assert!(!locked || ns.why & why::LOCKED != 0, "namespace {nsid}: locks are looked at");
        }
        let waiting = |slot: u32| self.slots.slots[slot as usize].state == crate::io::slots::SlotState::Held;
        assert!(self.slow_path.waits.iter().all(|w| waiting(w.slot)), "who waits has a slot and does nothing with it");
    }
}
