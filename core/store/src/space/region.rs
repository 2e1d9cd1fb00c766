//! A region of this service: what its bytes are used for.

use super::edit::{RecordEdit, Records, record_of};
use super::free::FreeExtents;
use super::record::{Epoch, ExtentRecord, ExtentUse, RegionLease};
use crate::kv::{KvToken, Revision};
use crate::{Extent, RegionId, SessionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A region, and the bytes that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its number.
    pub id: RegionId,
    /// Where it is: [`REGION_MIN`](super::REGION_MIN) or more, whole grains.
    pub extent: Extent,
}

/// Bytes of a region by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionUse {
    /// Nobody's.
    pub free: u64,
    /// Granted, or about to be.
    pub granted: u64,
    /// Blocks of files.
    pub mapped: u64,
    /// Given up, and not free yet.
    pub quarantined: u64,
}

impl RegionUse {
    /// Bytes of all uses.
    pub fn bytes(&self) -> u64 {
        self.free + self.granted + self.mapped + self.quarantined
    }

    /// Bytes that files have, that are granted, or about to be.
    pub fn in_use(&self) -> u64 {
        self.granted + self.mapped
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: RegionUse) -> RegionUse {
        RegionUse {
            free: self.free + other.free,
            granted: self.granted + other.granted,
            mapped: self.mapped + other.mapped,
            quarantined: self.quarantined + other.quarantined,
        }
    }

    /// This without the other, which is a part of it.
    #[must_use]
    pub fn minus(self, other: RegionUse) -> RegionUse {
        RegionUse {
            free: self.free - other.free,
            granted: self.granted - other.granted,
            mapped: self.mapped - other.mapped,
            quarantined: self.quarantined - other.quarantined,
        }
    }

    /// The bytes that a record is of.
    fn of_use(&mut self, used: ExtentUse) -> &mut u64 {
        match used {
            ExtentUse::Granted(_) => &mut self.granted,
            ExtentUse::Mapped(..) => &mut self.mapped,
            ExtentUse::Quarantined => &mut self.quarantined,
        }
    }
}

/// How far a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionPhase {
    /// Its lease is being read.
    Reading,
    /// A commit that raises its term is under way, from what it was.
    Raising(Option<RegionLease>),
    /// Its index is being read; the pages so far are in `records`.
    Listing,
    Up,
}

/// How far an extent in quarantine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineEntry {
    /// When it was freed.
    pub freed: Revision,
    pub epoch: EpochMark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochMark {
    /// No epoch has been raised since.
    None,
    /// One is being raised.
    Raising(KvToken),
    /// All sessions have to acknowledge this one.
    Wants(Epoch),
    /// Nothing is waited for (a planted fault).
    Skips,
}

/// Two records that have a byte in common: where each is, and when it was written.
pub(crate) type OverlappingRecords = [(u64, Revision); 2];

/// What is wrong with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contradiction {
    /// A record cannot be, whatever the others are.
    Alone,
    /// Two records cannot both be.
    Overlap(OverlappingRecords),
}

/// See [the module](self).
#[derive(Clone, Debug)]
pub(crate) struct RegionSpace {
    pub info: RegionInfo,
    /// Tells it from the same region at another time.
    pub life: u64,
    /// As it is in Kv, as far as is known: this service's from `Listing` on.
    pub lease: Option<RegionLease>,
    pub phase: RegionPhase,
    /// Whether it has been up: a term is then raised because of an unknown commit.
    pub was_up: bool,
    /// The index is to be read again when no commit is under way.
    pub refresh: bool,
    pub free: FreeExtents,
    /// Taken out of `free` for a grant whose commit is under way, by offset: length and session.
    pub reserved: BTreeMap<u64, (u64, SessionId)>,
    pub records: Records,
    /// The revision of each record's last write, while the index is being read.
    pub listed: BTreeMap<u64, Revision>,
    /// Whether the index that is being read has more than one page: those are not of one moment.
    pub has_pages: bool,
    /// Two records that had a byte in common when the index was read last, in more than one page.
    pub suspects: Option<OverlappingRecords>,
    /// Offsets of records that a commit under way changes.
    pub locked: BTreeSet<u64>,
    pub quarantine: BTreeMap<u64, QuarantineEntry>,
    /// Bytes that each session was granted, or is being.
    granted: BTreeMap<SessionId, u64>,
    /// Bytes of its records by use, and how many of them are mapped: as a look at all of them would say.
    counted: RegionUse,
    mapped: u64,
    /// Commits under way that change it.
    pub commits: usize,
    /// Grants in this term so far.
    pub grants: u64,
}

impl RegionSpace {
    pub fn new(info: RegionInfo, life: u64) -> Self {
        Self {
            info,
            life,
            lease: None,
            phase: RegionPhase::Reading,
            was_up: false,
            refresh: false,
            free: FreeExtents::default(),
            reserved: BTreeMap::new(),
            records: Records::new(),
            listed: BTreeMap::new(),
            has_pages: false,
            suspects: None,
            locked: BTreeSet::new(),
            quarantine: BTreeMap::new(),
            granted: BTreeMap::new(),
            counted: RegionUse::default(),
            mapped: 0,
            commits: 0,
            grants: 0,
        }
    }

    /// It takes new commits.
    pub fn is_open(&self) -> bool {
        self.phase == RegionPhase::Up && !self.refresh
    }

    pub fn has(&self, extent: &Extent) -> bool {
        let Some((end, all)) = extent.end().zip(self.info.extent.end()) else { return false };
        extent.namespace == self.info.extent.namespace && extent.offset >= self.info.extent.offset && end <= all
    }

    /// The bytes at that offset, as an extent of the namespace.
    pub fn extent(&self, offset: u64, len: u64) -> Extent {
        Extent { namespace: self.info.extent.namespace, offset: offset.into(), length: len.into() }
    }

    /// Whether a commit under way changes some of the bytes' record.
    pub fn is_locked(&self, offset: u64, len: u64) -> bool {
        record_of(&self.records, offset, len).is_some_and(|(at, _)| self.locked.contains(&at))
    }

    /// Whether these bytes are one grant of the session's, or a part of one.
    pub fn is_granted(&self, session: SessionId, offset: u64, len: u64) -> bool {
        record_of(&self.records, offset, len).is_some_and(|(_, record)| record.used == ExtentUse::Granted(session))
    }

    /// Bytes that the session was granted, or is being.
    pub fn granted_to(&self, session: SessionId) -> u64 {
        self.granted.get(&session).copied().unwrap_or(0)
    }

    /// Sessions with grants.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.granted.keys().copied().collect()
    }

    fn count(&mut self, record: &ExtentRecord) {
        *self.counted.of_use(record.used) += record.len;
        self.mapped += u64::from(matches!(record.used, ExtentUse::Mapped(..)));
    }

    fn count_granted(&mut self, session: SessionId, len: u64) {
        *self.granted.entry(session).or_default() += len;
    }

    fn discount_granted(&mut self, session: SessionId, len: u64) {
        let left = self.granted_to(session).saturating_sub(len);
        match left {
            0 => self.granted.remove(&session),
            left => self.granted.insert(session, left),
        };
    }

    /// Takes up to `count` blocks of `block` bytes out of the free ones, for a session.
    pub fn reserve(&mut self, session: SessionId, block: u64, count: u64) -> Vec<(u64, u64)> {
        // Each extent is a key of the commit.
        let taken = self.free.take(block, count, super::BATCH);
        for (offset, len) in &taken {
            self.reserved.insert(*offset, (*len, session));
            self.count_granted(session, *len);
        }
        taken
    }

    /// What was reserved is granted, or nobody's again.
    fn unreserve(&mut self, offset: u64, is_granted: bool) {
        let Some((len, session)) = self.reserved.remove(&offset) else { return };
        self.discount_granted(session, len);
        if !is_granted {
            self.give(offset, len);
        }
    }

    /// Keeps others from changing the records of an edit.
    pub fn begin(&mut self, edit: &RecordEdit) {
        self.locked.extend(edit.old.iter().map(|(offset, _)| *offset));
        self.commits += 1;
    }

    /// The commit of an edit was made at that time, or never will be.
    pub fn end(&mut self, edit: &RecordEdit, made: Option<Revision>, mark: EpochMark) {
        self.commits -= 1;
        edit.old.iter().for_each(|(offset, _)| {
            self.locked.remove(offset);
        });
        if edit.old.is_empty() {
            edit.new.iter().for_each(|(offset, _)| self.unreserve(*offset, made.is_some()));
        }
        let Some(revision) = made else { return };
        for (offset, record) in &edit.old {
            if let Some(gone) = self.records.remove(offset) {
                *self.counted.of_use(gone.used) -= gone.len;
                self.mapped -= u64::from(matches!(gone.used, ExtentUse::Mapped(..)));
            }
            self.quarantine.remove(offset);
            if let ExtentUse::Granted(session) = record.used {
                self.discount_granted(session, record.len);
            }
            if edit.new.is_empty() {
                self.give(*offset, record.len);
            }
        }
        for (offset, record) in &edit.new {
            self.records.insert(*offset, *record);
            self.count(record);
            match record.used {
                ExtentUse::Granted(session) => self.count_granted(session, record.len),
                ExtentUse::Mapped(..) => {}
                ExtentUse::Quarantined => {
                    self.quarantine.insert(*offset, QuarantineEntry { freed: revision, epoch: mark });
                }
            }
        }
    }

    /// Whether what is in quarantine, or is by an edit under way, makes a block of `block` bytes with the free bytes beside it.
    pub fn is_freeing<'a>(&self, block: u64, under_way: impl Iterator<Item = &'a RecordEdit>) -> bool {
        let quarantined = |record: &ExtentRecord| record.used == ExtentUse::Quarantined;
        let mut coming: BTreeMap<u64, u64> =
            self.quarantine.keys().filter_map(|offset| Some((*offset, self.records.get(offset)?.len))).collect();
        coming.extend(
            under_way.flat_map(|edit| &edit.new).filter(|(_, new)| quarantined(new)).map(|(at, new)| (*at, new.len)),
        );
        let mut run = 0..0;
        for (offset, len) in coming {
            run.end = self.free.end_of_free(run.end);
            if offset > run.end {
                run = self.free.start_of_free(offset)..offset;
            }
            run.end = run.end.max(offset + len);
            if self.free.end_of_free(run.end) - run.start >= block {
                return true;
            }
        }
        false
    }

    /// Bytes that no record has.
    fn give(&mut self, offset: u64, len: u64) {
        let was_used = self.free.give(offset, len);
        debug_assert!(was_used, "{offset}+{len} of region {} was not free", self.info.id);
    }

    /// Free space is what is between the records. If two of them overlap or one is not in the region, nothing is free.
    pub fn rebuild(&mut self) -> Result<(), Contradiction> {
        (self.free, self.granted) = (FreeExtents::default(), BTreeMap::new());
        (self.quarantine, self.reserved) = (BTreeMap::new(), BTreeMap::new());
        (self.counted, self.mapped) = (RegionUse::default(), 0);
        self.records.values().copied().collect::<Vec<_>>().iter().for_each(|record| self.count(record));
        let Some(end) = self.info.extent.end() else { return Err(Contradiction::Alone) };
        let (mut at, mut before) = (self.info.extent.offset.get(), None);
        let mut free = FreeExtents::default();
        for (offset, record) in &self.records {
            let Some(gap) = offset.checked_sub(at) else {
                let seen = |at: u64| (at, self.listed.get(&at).copied().unwrap_or_default());
                let overlap = |before: u64| Contradiction::Overlap([seen(before), seen(*offset)]);
                return Err(before.map_or(Contradiction::Alone, overlap));
            };
            if gap > 0 && !free.give(at, gap) {
                return Err(Contradiction::Alone);
            }
            let next = offset.checked_add(record.len).filter(|next| *next <= end.get());
            (at, before) = (next.ok_or(Contradiction::Alone)?, Some(*offset));
            match record.used {
                ExtentUse::Granted(session) => *self.granted.entry(session).or_default() += record.len,
                ExtentUse::Mapped(..) => {}
                ExtentUse::Quarantined => {
                    let freed = self.listed.get(offset).copied().unwrap_or(Revision(u64::MAX));
                    self.quarantine.insert(*offset, QuarantineEntry { freed, epoch: EpochMark::None });
                }
            }
        }
        if at < end.get() && !free.give(at, end.get() - at) {
            return Err(Contradiction::Alone);
        }
        self.free = free;
        self.listed.clear();
        Ok(())
    }

    /// Bytes by use, without a look at each record.
    pub fn usage(&self) -> RegionUse {
        let reserved: u64 = self.reserved.values().map(|(len, _)| len).sum();
        RegionUse { free: self.free.bytes(), granted: self.counted.granted + reserved, ..self.counted }
    }

    /// How many extents are mapped, and their bytes.
    pub fn mapped(&self) -> (u64, u64) {
        (self.mapped, self.counted.mapped)
    }

    /// Panics unless every byte is in one of free, reserved, granted, mapped and quarantined, and in one only.
    pub fn check(&self) {
        if self.phase != RegionPhase::Up {
            return;
        }
        let mut parts: Vec<(u64, u64)> = self.free.iter().collect();
        parts.extend(self.reserved.iter().map(|(offset, (len, _))| (*offset, *len)));
        parts.extend(self.records.iter().map(|(offset, record)| (*offset, record.len)));
        parts.sort_unstable();
        let mut at = self.info.extent.offset.get();
        for (offset, len) in parts {
            assert_eq!(offset, at, "region {}: no byte is missing, and none has two uses", self.info.id);
            at += len;
        }
        assert_eq!(Some(at.into()), self.info.extent.end(), "region {} is covered to its end", self.info.id);
        let granted: u64 = self.granted.values().sum();
        assert_eq!(granted, self.usage().granted, "region {}: grants are counted", self.info.id);
        let mut walked = RegionUse::default();
        self.records.values().for_each(|record| *walked.of_use(record.used) += record.len);
        assert_eq!(walked, self.counted, "region {}: bytes are counted by their use", self.info.id);
        let mapped = self.records.values().filter(|record| matches!(record.used, ExtentUse::Mapped(..))).count();
        assert_eq!(mapped as u64, self.mapped, "region {}: mapped extents are counted", self.info.id);
        for (offset, record) in &self.records {
            let waits = self.quarantine.contains_key(offset);
            assert_eq!(waits, record.used == ExtentUse::Quarantined, "{offset} waits if it is in quarantine");
        }
        assert!(self.quarantine.keys().all(|offset| self.records.contains_key(offset)), "what waits has a record");
        assert!(self.locked.iter().all(|offset| self.records.contains_key(offset)), "what is locked has a record");
        assert!(self.locked.is_empty() || self.commits > 0, "what is locked is being changed");
    }
}
