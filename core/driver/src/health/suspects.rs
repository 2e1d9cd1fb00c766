//! Blocks that were unreadable: which are suspected, which are bad, which a host has marked itself.

use super::evidence::{Extent, SmartReading};
use alloc::vec::Vec;

/// Suspect extents of one diagnosis at most; what comes beyond is found when it is read again.
pub const SUSPECTS: usize = 16;
/// Extents that hosts have marked, at most. Beyond that no unreadable block counts, unless the drive itself warns.
pub const MARKS: usize = 1024;
/// Bad extents that are remembered at most.
const BAD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    extent: Extent,
    /// Whether it was readable after the reset; none before it was read.
    readable: Option<bool>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Suspects {
    /// Not confirmed.
    suspects: Vec<Suspect>,
    /// Unreadable for certain, until it is written; those before `verified` again after a reset.
    bad: Vec<Extent>,
    verified: usize,
    /// Write faults that came again after a reset.
    write_faults: Vec<Extent>,
    marks: Vec<Extent>,
    has_lost_marks: bool,
    /// The drive counts the errors itself, or warns.
    corroborated: bool,
    condemned: bool,
}

impl Suspects {
    pub(super) fn mark(&mut self, extent: Extent) {
        if self.marks.len() < MARKS {
            self.marks.push(extent);
        } else {
            self.has_lost_marks = true;
        }
    }

    /// Blocks that were written are readable again, marked ones as well.
    pub(super) fn written(&mut self, extent: Extent) {
        self.marks.retain(|mark| !extent.overlaps(*mark));
        let before = self.bad[..self.verified].iter().filter(|bad| !extent.overlaps(**bad)).count();
        self.bad.retain(|bad| !extent.overlaps(*bad));
        self.verified = before;
    }

    pub(super) fn is_marked(&self, extent: Extent) -> bool {
        self.has_lost_marks || self.marks.iter().any(|mark| mark.overlaps(extent))
    }

    pub(super) fn is_bad(&self, extent: Extent) -> bool {
        self.bad.iter().any(|bad| bad.overlaps(extent))
    }

    pub(super) fn bad(&self) -> &[Extent] {
        &self.bad
    }

    pub(super) fn add(&mut self, extent: Extent) {
        let known = self.suspects.iter().any(|suspect| suspect.extent.overlaps(extent));
        if !known && self.suspects.len() < SUSPECTS {
            self.suspects.push(Suspect { extent, readable: None });
        }
    }

    pub(super) fn add_write_fault(&mut self, extent: Extent) {
        let known = self.write_faults.iter().any(|fault| fault.overlaps(extent));
        if !known && self.write_faults.len() < SUSPECTS {
            self.write_faults.push(extent);
        }
    }

    pub(super) fn write_faults(&self) -> u32 {
        self.write_faults.len() as u32
    }

    /// Suspects that are neither bad nor cleared.
    pub(super) fn unconfirmed(&self) -> u32 {
        self.suspects.len() as u32
    }

    /// Blocks that no reset has been between: suspects and bad ones.
    pub(super) fn unverified(&self) -> u32 {
        (self.suspects.len() + self.bad.len() - self.verified) as u32
    }

    /// Compares the SMART log with its last reading: does the drive count the errors?
    pub(super) fn compare(&mut self, before: Option<SmartReading>, reading: SmartReading) {
        let counted = before.map_or(reading.media_errors > 0, |before| reading.media_errors > before.media_errors);
        self.corroborated |= counted || reading.has_media_warning();
    }

    pub(super) fn is_corroborated(&self) -> bool {
        self.corroborated
    }

    /// The suspects are bad blocks, by the drive's own word.
    pub(super) fn accept(&mut self) {
        let suspects = core::mem::take(&mut self.suspects);
        self.remember(suspects.iter().map(|suspect| suspect.extent));
        self.corroborated = false;
    }

    fn remember(&mut self, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            if self.bad.len() == BAD {
                self.bad.remove(0);
                self.verified = self.verified.saturating_sub(1);
            }
            self.bad.push(extent);
        }
    }

    /// Everything unverified is to be read again; the bad ones of before as well.
    pub(super) fn begin_verifying(&mut self) -> impl Iterator<Item = Extent> + '_ {
        let free = SUSPECTS - self.suspects.len().min(SUSPECTS);
        let from = self.bad.len() - (self.bad.len() - self.verified).min(free);
        let again = self.bad.split_off(from);
        self.suspects.extend(again.into_iter().map(|extent| Suspect { extent, readable: None }));
        self.suspects.iter_mut().for_each(|suspect| suspect.readable = None);
        self.suspects.iter().map(|suspect| suspect.extent)
    }

    /// One was read again; whether all were.
    pub(super) fn verified(&mut self, lba: u64, readable: bool) -> bool {
        for suspect in self.suspects.iter_mut().filter(|suspect| suspect.extent.lba == lba) {
            suspect.readable = Some(readable);
        }
        self.suspects.iter().all(|suspect| suspect.readable.is_some())
    }

    pub(super) fn unreadable_again(&self) -> u32 {
        self.suspects.iter().filter(|suspect| suspect.readable == Some(false)).count() as u32
    }

    /// Those unreadable are bad, the others are cleared.
    pub(super) fn settle(&mut self) {
        let suspects = core::mem::take(&mut self.suspects);
        let unreadable = suspects.iter().filter(|suspect| suspect.readable == Some(false)).map(|s| s.extent);
        self.remember(unreadable);
        self.verified = self.bad.len();
        self.corroborated = false;
    }

    /// Whether bad blocks were unreadable also after a reset.
    pub(super) fn has_verified(&self) -> bool {
        self.verified > 0
    }

    pub(super) fn condemn(&mut self) {
        self.condemned = true;
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.condemned
    }

    pub(super) fn check(&self) {
        assert!(self.suspects.len() <= SUSPECTS && self.bad.len() <= BAD && self.marks.len() <= MARKS);
        assert!(self.verified <= self.bad.len());
    }
}
