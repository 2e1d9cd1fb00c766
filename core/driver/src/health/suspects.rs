//! Blocks that were unreadable: which are suspected, which are bad, which a host has marked itself.

use super::evidence::{Extent, SmartReading, StatusClass};
use alloc::vec::Vec;
use weir_units::Nanos;

/// Suspect extents of one diagnosis at most; what comes beyond is found when it is read again.
pub const SUSPECTS: usize = 16;
/// Extents that hosts have marked, at most. Beyond that no unreadable block counts, unless the drive itself warns.
pub const MARKS: usize = 1024;
/// Reads of a suspect that all must fail: a controller that lies about its media does not do it every time.
const READS: u8 = 4;
/// Places of a namespace among which a block is chosen that is no suspect.
const CONTROLS: u64 = SUSPECTS as u64 + 1;
/// Bad extents that are remembered at most.
const BAD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    extent: Extent,
    /// A write of it has failed, and no read yet.
    by_write: bool,
    /// The drive has said that the media failed.
    is_proof: bool,
    /// Since when it is bad, if it is known to be.
    since: Option<Nanos>,
    /// Reads since the reset that have failed.
    failed: u8,
    /// Whether it is readable after the reset; none while it is being read.
    readable: Option<bool>,
}

impl Suspect {
    fn new(extent: Extent, is_proof: bool, since: Option<Nanos>) -> Self {
        Suspect { extent, by_write: false, is_proof, since, failed: 0, readable: None }
    }
}

/// A block beside the suspects that is read before them: whether the controller fails at that one as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Control {
    extent: Extent,
    /// Reads that the controller did not fail at.
    answered: u8,
}

impl Control {
    /// One that fails at every second command works once in a while.
    fn is_answered(self) -> bool {
        self.answered >= READS
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

/// A block that cannot be read, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bad {
    extent: Extent,
    /// The drive has said that the media failed. Else access was denied, or the controller has failed at this block alone.
    is_proof: bool,
    since: Nanos,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Suspects {
    /// Not confirmed.
    suspects: Vec<Suspect>,
    /// Unreadable for certain, until they are written.
    bad: Vec<Bad>,
    /// When all suspects of a diagnosis were unreadable also after the resets.
    verified: Option<Nanos>,
    /// Write faults that came again after a reset.
    write_faults: Vec<Extent>,
    marks: Vec<Extent>,
    has_lost_marks: bool,
    /// The controller fails at suspects; whether at others as well is not known.
    wants_control: bool,
    control: Option<Control>,
    /// The drive counts the errors itself.
    counted: bool,
    condemned: bool,
}

/// What is left of `extent` without `hole`.
fn without(extent: Extent, hole: Extent) -> impl Iterator<Item = Extent> {
    let before =
        Extent { lba: extent.lba, blocks: hole.lba.saturating_sub(extent.lba).min(extent.blocks.into()) as u32 };
    let rest = extent.end().saturating_sub(hole.end()).min(extent.blocks.into()) as u32;
    let after = Extent { lba: extent.end() - u64::from(rest), blocks: rest };
    let parts = if extent.overlaps(hole) { [before, after] } else { [extent, Extent { blocks: 0, ..extent }] };
    parts.into_iter().filter(|part| part.blocks > 0)
}

impl Suspects {
    pub(super) fn mark(&mut self, extent: Extent) {
        if self.marks.iter().any(|mark| mark.covers(extent)) {
            return;
        }
        self.marks.retain(|mark| !extent.covers(*mark));
        if self.marks.len() < MARKS {
            self.marks.push(extent);
        } else {
            self.has_lost_marks = true;
        }
        self.suspects.retain(|suspect| !extent.overlaps(suspect.extent));
        self.bad.retain(|bad| !extent.overlaps(bad.extent));
    }

    /// Blocks that were written are readable again, marked ones as well.
    pub(super) fn written(&mut self, extent: Extent) {
        self.marks = self.marks.drain(..).flat_map(|mark| without(mark, extent)).take(MARKS).collect();
        let left = |bad: Bad| without(bad.extent, extent).map(move |part| Bad { extent: part, ..bad });
        self.bad = self.bad.drain(..).flat_map(left).take(BAD).collect();
        self.write_faults.retain(|fault| !extent.overlaps(*fault));
    }

    /// Blocks that the drive can read after all, although it has never said that their media failed.
    pub(super) fn read(&mut self, extent: Extent) {
        self.bad.retain(|bad| bad.is_proof || !extent.covers(bad.extent));
    }

    /// Whether a host may have made it unreadable. Where marks were lost, only the drive's own warning says otherwise.
    pub(super) fn is_marked(&self, extent: Extent, warned: bool) -> bool {
        self.has_lost_marks && !warned || self.marks.iter().any(|mark| mark.overlaps(extent))
    }

    pub(super) fn is_bad(&self, extent: Extent) -> bool {
        self.bad.iter().any(|bad| bad.extent.overlaps(extent))
    }

    pub(super) fn bad(&self) -> impl Iterator<Item = Extent> + '_ {
        self.bad.iter().map(|bad| bad.extent)
    }

    /// A read has failed by a status of that class.
    pub(super) fn add(&mut self, extent: Extent, class: StatusClass) {
        let known = self.is_bad(extent) || self.suspects.iter().any(|suspect| suspect.extent.overlaps(extent));
        if !known && self.suspects.len() < SUSPECTS {
            self.suspects.push(Suspect::new(extent, class == StatusClass::UnreadableMedia, None));
        }
    }

    /// A write has failed; whether the block can be read is not known.
    pub(super) fn add_unread(&mut self, extent: Extent) {
        let before = self.suspects.len();
        self.add(extent, StatusClass::WriteFault);
        self.suspects[before..].iter_mut().for_each(|suspect| suspect.by_write = true);
    }

    /// Another block is read beside the suspects.
    pub(super) fn want_control(&mut self) {
        self.wants_control = true;
    }

    pub(super) fn wants_control(&self) -> bool {
        self.wants_control
    }

    pub(super) fn is_control(&self, lba: u64) -> bool {
        self.control.is_some_and(|control| control.extent.lba == lba)
    }

    /// The controller has not failed at another block, which is read as often as the suspects are; whether all are known.
    pub(super) fn control_answered(&mut self) -> Verification {
        let Some(control) = &mut self.control else { return self.progress() };
        control.answered = (control.answered + 1).min(READS);
        if !control.is_answered() {
            return Verification::ReadAgain(control.extent);
        }
        self.progress()
    }

    /// Whether the controller is known to work at another block.
    pub(super) fn has_proven_control(&self) -> bool {
        self.control.is_some_and(Control::is_answered)
    }

    /// The controller fails at other blocks as well: suspects of which nothing else is known are none.
    pub(super) fn acquit(&mut self) {
        self.suspects.retain(|suspect| suspect.is_proof || suspect.since.is_some());
        (self.wants_control, self.control) = (false, None);
    }

    /// Whether the controller has not failed at another block so far.
    pub(super) fn has_working_control(&self) -> bool {
        self.control.is_some_and(|control| control.answered > 0)
    }

    /// A block that is no suspect, of a namespace of so many blocks; not one that is bad, if there is another.
    fn choose_control(&self, blocks: u64) -> Option<Control> {
        let is_suspect = |extent: &Extent| self.suspects.iter().any(|suspect| suspect.extent.overlaps(*extent));
        let places = (0..CONTROLS).map(|at| Extent { lba: blocks / CONTROLS * at, blocks: 1 });
        let mut others = places.filter(|place| !is_suspect(place));
        let extent = others.clone().find(|place| !self.is_bad(*place)).or_else(|| others.next())?;
        Some(Control { extent, answered: 0 })
    }

    /// Whether all suspects were unreadable.
    pub(super) fn are_unreadable(&self) -> bool {
        self.suspects.iter().all(|suspect| !suspect.by_write)
    }

    pub(super) fn add_write_fault(&mut self, extent: Extent) {
        if !self.is_write_faulty(extent) && self.write_faults.len() < SUSPECTS {
            self.write_faults.push(extent);
        }
    }

    /// Whether a reset has not helped writing it.
    pub(super) fn is_write_faulty(&self, extent: Extent) -> bool {
        self.write_faults.iter().any(|fault| fault.overlaps(extent))
    }

    pub(super) fn write_faults(&self) -> u32 {
        self.write_faults.len() as u32
    }

    /// Suspects that are neither bad nor cleared.
    pub(super) fn unconfirmed(&self) -> u32 {
        self.suspects.len() as u32
    }

    /// Suspects, and blocks that became bad after that time, whose media have failed by the drive's word.
    pub(super) fn count_since(&self, time: Nanos) -> u32 {
        let suspects = self.suspects.iter().filter(|suspect| suspect.is_proof || suspect.by_write).count();
        (suspects + self.bad.iter().filter(|bad| bad.is_proof && bad.since >= time).count()) as u32
    }

    /// Compares the SMART log with its last reading: does the drive count the errors? The first reading is what others are compared with.
    pub(super) fn compare(&mut self, before: Option<SmartReading>, reading: SmartReading) {
        self.counted |= before.is_some_and(|before| reading.media_errors > before.media_errors);
    }

    pub(super) fn are_counted(&self) -> bool {
        self.counted
    }

    /// It is unreadable, whoever says so.
    pub(super) fn believe(&mut self, now: Nanos, extent: Extent) {
        self.remember(now, Suspect::new(extent, true, None));
    }

    fn remember(&mut self, now: Nanos, suspect: Suspect) {
        if self.bad.len() == BAD {
            self.bad.remove(0);
        }
        let Suspect { extent, is_proof, .. } = suspect;
        self.bad.push(Bad { extent, is_proof, since: suspect.since.unwrap_or(now) });
    }

    /// Blocks that became bad after that time are suspects again, the latest ones; without the drive's word for it they decide nothing.
    pub(super) fn reconsider(&mut self, time: Nanos) {
        while self.suspects.len() < SUSPECTS {
            let Some(place) = self.bad.iter().rposition(|bad| bad.is_proof && bad.since >= time) else { break };
            let bad = self.bad.remove(place);
            self.suspects.push(Suspect::new(bad.extent, true, Some(bad.since)));
        }
    }

    /// The suspects are to be read again, of a namespace of so many blocks, and with them blocks that became bad after that time.
    pub(super) fn begin_verifying(&mut self, time: Nanos, blocks: u64) -> impl Iterator<Item = Extent> + '_ {
        self.reconsider(time);
        let again = |suspect: &mut Suspect| *suspect = Suspect::new(suspect.extent, suspect.is_proof, suspect.since);
        self.suspects.iter_mut().for_each(again);
        self.control = if self.wants_control { self.choose_control(blocks) } else { None };
        if self.control.is_none() && self.wants_control {
            self.acquit();
        }
        let control = self.control.iter().map(|control| control.extent);
        control.chain(self.suspects.iter().map(|suspect| suspect.extent))
    }

    /// One was read again; `failed`: by a status of that class.
    pub(super) fn verify(&mut self, lba: u64, failed: Option<StatusClass>) -> Verification {
        let pending = |suspect: &&mut Suspect| suspect.extent.lba == lba && suspect.readable.is_none();
        if let Some(suspect) = self.suspects.iter_mut().find(pending) {
            suspect.failed += u8::from(failed.is_some());
            suspect.is_proof |= failed == Some(StatusClass::UnreadableMedia);
            if failed.is_some() && suspect.failed < READS {
                return Verification::ReadAgain(suspect.extent);
            }
            suspect.readable = Some(failed.is_none());
        }
        self.progress()
    }

    fn progress(&self) -> Verification {
        let complete = self.suspects.iter().all(|suspect| suspect.readable.is_some());
        let has_control = self.control.is_none_or(Control::is_answered);
        if complete && has_control { Verification::Complete } else { Verification::Pending }
    }

    /// Whether a read of this verification was answered.
    pub(super) fn has_answered(&self) -> bool {
        let suspect = self.suspects.iter().any(|suspect| suspect.failed > 0 || suspect.readable.is_some());
        suspect || self.has_working_control()
    }

    /// What is not answered cannot be read.
    pub(super) fn give_up_reading(&mut self) {
        for suspect in &mut self.suspects {
            suspect.readable.get_or_insert(false);
        }
    }

    pub(super) fn unreadable_again(&self) -> u32 {
        self.suspects.iter().filter(|suspect| suspect.readable == Some(false)).count() as u32
    }

    /// Those of them whose media have failed by the drive's word.
    pub(super) fn proven_again(&self) -> u32 {
        self.suspects.iter().filter(|suspect| suspect.readable == Some(false) && suspect.is_proof).count() as u32
    }

    /// Those unreadable are bad, the others are cleared.
    pub(super) fn settle(&mut self, now: Nanos) {
        let suspects = core::mem::take(&mut self.suspects);
        (self.wants_control, self.control) = (false, None);
        if !suspects.is_empty() {
            self.verified = suspects.iter().all(|suspect| suspect.readable == Some(false)).then_some(now);
        }
        let unreadable = suspects.into_iter().filter(|suspect| suspect.readable == Some(false));
        unreadable.for_each(|suspect| self.remember(now, suspect));
        self.counted = false;
    }

    /// When bad blocks were last unreadable also after every reset.
    pub(super) fn verified(&self) -> Option<Nanos> {
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
        assert!(self.marks.iter().chain(self.bad.iter().map(|bad| &bad.extent)).all(|extent| extent.blocks > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn extent(lba: u64, blocks: u32) -> Extent {
        Extent { lba, blocks }
    }

    #[test]
    fn a_hole_leaves_what_is_beside_it() {
        let left = |hole| without(extent(10, 10), hole).collect::<Vec<_>>();
        assert_eq!(left(extent(0, 10)), [extent(10, 10)]);
        assert_eq!(left(extent(20, 5)), [extent(10, 10)]);
        assert_eq!(left(extent(0, 30)), []);
        assert_eq!(left(extent(5, 6)), [extent(11, 9)]);
        assert_eq!(left(extent(15, 50)), [extent(10, 5)]);
        assert_eq!(left(extent(12, 3)), [extent(10, 2), extent(15, 5)]);
    }

    #[test]
    fn a_mark_ends_where_it_is_written_alone() {
        let mut suspects = Suspects::default();
        suspects.mark(extent(0, 64));
        suspects.written(extent(0, 1));
        assert!(!suspects.is_marked(extent(0, 1), false) && suspects.is_marked(extent(1, 1), false));
        (0..2 * MARKS).for_each(|_| suspects.mark(extent(32, 4)));
        assert!(!suspects.is_marked(extent(200, 1), false), "the same mark is one");
        (0..2 * MARKS as u64).for_each(|at| suspects.mark(extent(1000 + 2 * at, 1)));
        assert!(suspects.is_marked(extent(200, 1), false) && !suspects.is_marked(extent(200, 1), true));
        suspects.check();
        assert_eq!(vec![suspects.unconfirmed(), suspects.count_since(Nanos(0))], [0, 0]);
    }
}
