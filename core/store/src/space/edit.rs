//! What a change of the use of some bytes does to the records of a region.

use super::record::{ExtentRecord, ExtentUse};
use super::{GRAIN, SpaceError};
use crate::{InodeId, SessionId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The records of a region, by offset in bytes.
pub(crate) type Records = BTreeMap<u64, ExtentRecord>;

/// What bytes must be used for, or a change of them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedBy {
    Session(SessionId),
    Inode(InodeId),
}

impl UsedBy {
    fn is(self, used: ExtentUse) -> bool {
        match (self, used) {
            (UsedBy::Session(session), ExtentUse::Granted(granted)) => session == granted,
            (UsedBy::Inode(inode), ExtentUse::Mapped(mapped, _)) => inode == mapped,
            _ => false,
        }
    }
}

/// Bytes of one record that are to be used for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub offset: u64,
    pub len: u64,
    pub from: UsedBy,
    pub to: ExtentUse,
}

/// The records that a change takes away and puts in their place: the same bytes, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordEdit {
    pub old: Vec<(u64, ExtentRecord)>,
    pub new: Vec<(u64, ExtentRecord)>,
}

/// The record that has all of the bytes.
pub(crate) fn record_of(records: &Records, offset: u64, len: u64) -> Option<(u64, ExtentRecord)> {
    let (at, record) = records.range(..=offset).next_back()?;
    let end = offset.checked_add(len)?;
    (len > 0 && end <= at + record.len).then_some((*at, *record))
}

/// Cuts the records at the edges of the transitions.
///
/// Errors: [`SpaceError::NotYours`] where a transition is not of whole grains within one record, two of them have a byte in common, or
/// the bytes are not used as it says.
pub(crate) fn edit(records: &Records, transitions: &[Transition]) -> Result<RecordEdit, SpaceError> {
    let mut sorted = transitions.to_vec();
    sorted.sort_unstable_by_key(|t| t.offset);
    let mut result = RecordEdit::default();
    // Up to where the newest old record is covered by new ones.
    let mut covered = 0;
    for t in &sorted {
        let (at, record) = record_of(records, t.offset, t.len).ok_or(SpaceError::NotYours)?;
        let whole = t.offset % GRAIN == 0 && t.len % GRAIN == 0;
        if !whole || !t.from.is(record.used) {
            return Err(SpaceError::NotYours);
        }
        if result.old.last().is_none_or(|(o, _)| *o != at) {
            close(&mut result, covered);
            result.old.push((at, record));
            covered = at;
        }
        if t.offset < covered {
            return Err(SpaceError::NotYours);
        }
        keep(&mut result, covered, t.offset, record);
        result.new.push((t.offset, ExtentRecord { len: t.len, used: t.to, ..record }));
        covered = t.offset + t.len;
    }
    close(&mut result, covered);
    Ok(result)
}

/// What is left of the newest old record behind the last transition.
fn close(result: &mut RecordEdit, covered: u64) {
    if let Some((at, record)) = result.old.last().copied() {
        keep(result, covered, at + record.len, record);
    }
}

fn keep(result: &mut RecordEdit, from: u64, to: u64, record: ExtentRecord) {
    if from < to {
        result.new.push((from, ExtentRecord { len: to - from, ..record }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;
    use proptest::prelude::*;

    const G: u64 = GRAIN;

    fn record(len: u64, generation: u64, used: ExtentUse) -> ExtentRecord {
        ExtentRecord { len: len * G, generation: Generation(generation), used }
    }

    const MINE: UsedBy = UsedBy::Session(SessionId(1));

    fn to(offset: u64, len: u64, to: ExtentUse) -> Transition {
        Transition { offset: offset * G, len: len * G, from: MINE, to }
    }

    #[test]
    fn a_grant_is_cut_into_blocks_and_what_is_left() {
        let granted = ExtentUse::Granted(SessionId(1));
        let mapped = |block| ExtentUse::Mapped(InodeId(5), block);
        let records = Records::from([(0, record(8, 1, granted)), (8 * G, record(2, 2, granted))]);
        let done = edit(&records, &[to(5, 1, mapped(1)), to(2, 2, mapped(0)), to(8, 2, mapped(2))]).unwrap();
        assert_eq!(done.old, [(0, record(8, 1, granted)), (8 * G, record(2, 2, granted))]);
        assert_eq!(
            done.new,
            [
                (0, record(2, 1, granted)),
                (2 * G, record(2, 1, mapped(0))),
                (4 * G, record(1, 1, granted)),
                (5 * G, record(1, 1, mapped(1))),
                (6 * G, record(2, 1, granted)),
                (8 * G, record(2, 2, mapped(2))),
            ]
        );
    }

    #[test]
    fn other_peoples_bytes_are_refused() {
        let granted = ExtentUse::Granted(SessionId(1));
        let records = Records::from([(0, record(4, 1, granted)), (4 * G, record(4, 1, granted))]);
        let gone = ExtentUse::Quarantined;
        for bad in [
            &[to(3, 2, gone)][..],
            &[to(8, 1, gone)],
            &[to(0, 0, gone)],
            &[to(0, 2, gone), to(1, 1, gone)],
            &[to(0, 2, gone), to(0, 2, gone)],
            &[Transition { offset: 1, len: G, from: MINE, to: gone }],
            &[Transition { offset: 0, len: 1, from: MINE, to: gone }],
            &[Transition { offset: G, len: u64::MAX - G + 1, from: MINE, to: gone }],
        ] {
            assert_eq!(edit(&records, bad), Err(SpaceError::NotYours), "{bad:?}");
        }
        for from in [UsedBy::Session(SessionId(2)), UsedBy::Inode(InodeId(1))] {
            let other = Transition { offset: 0, len: G, from, to: gone };
            assert_eq!(edit(&records, &[other]), Err(SpaceError::NotYours), "{from:?}");
        }
    }

    proptest! {
        /// Against an array of what each grain is used for.
        #[test]
        fn every_grain_is_used_as_it_was_or_as_it_was_asked(
            lens in proptest::collection::vec(1u64..6, 1..8),
            asked in proptest::collection::vec((0u64..48, 1u64..4), 0..6),
        ) {
            let mut records = Records::new();
            let mut grains: Vec<(u64, ExtentUse)> = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                let used = ExtentUse::Granted(SessionId(1));
                records.insert(grains.len() as u64 * G, record(*len, i as u64, used));
                grains.extend((0..*len).map(|_| (i as u64, used)));
            }
            let transitions: Vec<_> =
                asked.iter().enumerate().map(|(i, (at, len))| to(*at, *len, ExtentUse::Mapped(InodeId(1), i as u64))).collect();
            let Ok(done) = edit(&records, &transitions) else { return Ok(()) };
            for (offset, old) in &done.old {
                prop_assert_eq!(records.remove(offset), Some(*old));
            }
            for (offset, new) in &done.new {
                prop_assert_eq!(records.insert(*offset, *new), None);
            }
            for t in &transitions {
                (t.offset / G..(t.offset + t.len) / G).for_each(|grain| grains[grain as usize].1 = t.to);
            }
            let mut found = Vec::new();
            for (offset, record) in &records {
                prop_assert_eq!(*offset, found.len() as u64 * G);
                found.extend((0..record.len / G).map(|_| (record.generation.0, record.used)));
            }
            prop_assert_eq!(found, grains);
        }
    }
}
