//! Blocks that were unreadable: which are suspected, which are bad, which a host has marked itself.

use super::evidence::{Extent, SmartReading};
use alloc::vec::Vec;
use weir_units::Nanos;

/// Suspect extents of one diagnosis at most; what comes beyond is found when it is read again.
pub const SUSPECTS: usize = 16;
/// Extents that hosts have marked, at most. Beyond that no unreadable block counts, unless the drive itself warns.
pub const MARKS: usize = 1024;
/// Reads of a suspect that all must fail: a controller that lies about its media does not do it every time.
const READS: u8 = 4;
/// Bad extents that are remembered at most.
const BAD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    extent: Extent,
    /// Reads since the reset that have failed.
    failed: u8,
    /// Whether it is readable after the reset; none while it is being read.
    readable: Option<bool>,
}

impl Suspect {
    fn new(extent: Extent) -> Self {
        Suspect { extent, failed: 0, readable: None }
    }
}

/// What follows from one more read of a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// It is read once more.
    ReadAgain(Extent),
    /// Others are being read.
    Pending,
    /// All suspects are known.
    Complete,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Suspects {
    /// Not confirmed.
    suspects: Vec<Suspect>,
    /// Unreadable for certain, until they are written, and since when.
    bad: Vec<Extent>,
    bad_since: Vec<Nanos>,
    /// All suspects of the last diagnosis were unreadable also after the resets.
    verified: bool,
    /// Write faults that came again after a reset.
    write_faults: Vec<Extent>,
    marks: Vec<Extent>,
    has_lost_marks: bool,
    /// The drive counts the errors itself.
    counted: bool,
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
        while let Some(place) = self.bad.iter().position(|bad| extent.overlaps(*bad)) {
            self.bad.remove(place);
            self.bad_since.remove(place);
        }
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
        let known = self.is_bad(extent) || self.suspects.iter().any(|suspect| suspect.extent.overlaps(extent));
        if !known && self.suspects.len() < SUSPECTS {
            self.suspects.push(Suspect::new(extent));
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

    /// Suspects, and blocks that became bad after that time.
    pub(super) fn count_since(&self, time: Nanos) -> u32 {
        (self.suspects.len() + self.bad_since.iter().filter(|since| **since >= time).count()) as u32
    }

    /// Compares the SMART log with its last reading: does the drive count the errors?
    pub(super) fn compare(&mut self, before: Option<SmartReading>, reading: SmartReading) {
        let counted = before.map_or(reading.media_errors > 0, |before| reading.media_errors > before.media_errors);
        self.counted |= counted;
    }

    pub(super) fn are_counted(&self) -> bool {
        self.counted
    }

    /// The suspects are bad blocks, by the drive's own word.
    pub(super) fn accept(&mut self, now: Nanos) {
        let suspects = core::mem::take(&mut self.suspects);
        self.remember(now, suspects.iter().map(|suspect| suspect.extent));
        self.counted = false;
    }

    fn remember(&mut self, now: Nanos, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            if self.bad.len() == BAD {
                self.bad.remove(0);
                self.bad_since.remove(0);
            }
            self.bad.push(extent);
            self.bad_since.push(now);
        }
    }

    /// The suspects are to be read again; bad blocks as well, the latest ones.
    pub(super) fn begin_verifying(&mut self) -> impl Iterator<Item = Extent> + '_ {
        let free = SUSPECTS - self.suspects.len().min(SUSPECTS);
        let from = self.bad.len() - self.bad.len().min(free);
        self.bad_since.truncate(from);
        let again = self.bad.split_off(from);
        self.suspects.extend(again.into_iter().map(Suspect::new));
        self.suspects.iter_mut().for_each(|suspect| *suspect = Suspect::new(suspect.extent));
        self.suspects.iter().map(|suspect| suspect.extent)
    }

    /// One was read again.
    pub(super) fn verify(&mut self, lba: u64, readable: bool) -> Verification {
        let pending = |suspect: &&mut Suspect| suspect.extent.lba == lba && suspect.readable.is_none();
        if let Some(suspect) = self.suspects.iter_mut().find(pending) {
            suspect.failed += u8::from(!readable);
            if !readable && suspect.failed < READS {
                return Verification::ReadAgain(suspect.extent);
            }
            suspect.readable = Some(readable);
        }
        let complete = self.suspects.iter().all(|suspect| suspect.readable.is_some());
        if complete { Verification::Complete } else { Verification::Pending }
    }

    pub(super) fn unreadable_again(&self) -> u32 {
        self.suspects.iter().filter(|suspect| suspect.readable == Some(false)).count() as u32
    }

    /// Those unreadable are bad, the others are cleared.
    pub(super) fn settle(&mut self, now: Nanos) {
        let suspects = core::mem::take(&mut self.suspects);
        let unreadable = suspects.iter().filter(|suspect| suspect.readable == Some(false)).map(|s| s.extent);
        let before = self.bad.len();
        self.remember(now, unreadable);
        self.verified = self.bad.len() == before + suspects.len();
        self.counted = false;
    }

    /// Whether bad blocks were unreadable also after a reset.
    pub(super) fn has_verified(&self) -> bool {
        self.verified
    }

    pub(super) fn condemn(&mut self) {
        self.condemned = true;
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.condemned
    }

    pub(super) fn check(&self) {
        assert!(self.suspects.len() <= SUSPECTS && self.bad.len() <= BAD && self.marks.len() <= MARKS);
        assert_eq!(self.bad.len(), self.bad_since.len());
    }
}
