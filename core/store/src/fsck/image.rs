//! All records of a store.

use super::finding::{Finding, FindingKind, Repair};
use crate::inode::Inode;
use crate::keys::{KeySpace, name_of};
use crate::kv::{Kv, KvKey, KvUnavailable, KvWrite, RANGE_MAX};
use crate::members::HoldRecord;
use crate::name::EntryName;
use crate::records::{
    AnswerRecord, ClassesRecord, CounterRecord, LifeRecord, MapChunk, NameRecord, NamespaceRecord, OrphanRecord,
    OwnerRecord, ParentRecord, ProcessRecord, RemovedRecord, ServiceRecord, SessionRecord, ShortRecord, StoreRecord,
    WriterRecord, from_value,
};
use crate::space::{Epoch, ExtentRecord, RegionLease};
use crate::{Extent, InodeId, NamespaceId, RegionId, ServiceId, SessionId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::Code;

/// Where each region of the store is.
pub type RegionPlaces = BTreeMap<RegionId, Extent>;

/// All records of a store, and what cannot be read.
#[derive(Debug, Default)]
pub struct Image {
    raw: BTreeMap<KvKey, Vec<u8>>,
    pub(super) store: Option<StoreRecord>,
    pub(super) next_inode: Option<CounterRecord>,
    pub(super) epoch: Epoch,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) names: BTreeMap<(InodeId, EntryName), NameRecord>,
    pub(super) parents: BTreeMap<InodeId, ParentRecord>,
    pub(super) orphans: BTreeMap<InodeId, OrphanRecord>,
    pub(super) owners: BTreeMap<InodeId, OwnerRecord>,
    pub(super) services: BTreeMap<ServiceId, ServiceRecord>,
    pub(super) sessions: BTreeMap<SessionId, SessionRecord>,
    pub(super) holds: BTreeMap<SessionId, HoldRecord>,
    pub(super) answers: BTreeMap<(SessionId, u16), AnswerRecord>,
    pub(super) chunks: BTreeMap<(InodeId, u32), MapChunk>,
    pub(super) unsettled: BTreeMap<(InodeId, u32), WriterRecord>,
    pub(super) short: BTreeMap<(InodeId, u32), ShortRecord>,
    namespaces: BTreeMap<NamespaceId, NamespaceRecord>,
    pub(super) leases: BTreeMap<RegionId, RegionLease>,
    pub(super) extents: BTreeMap<(RegionId, u64), ExtentRecord>,
    unreadable: Vec<Finding>,
}

impl Image {
    /// Reads all records, a page at a time.
    ///
    /// # Errors
    /// The key-value store did not answer.
    pub fn read(kv: &mut impl Kv) -> Result<Image, KvUnavailable> {
        Self::read_watched(kv, &mut |_| {})
    }

    /// The same; `watch` is told how many records were read so far, after each page.
    ///
    /// # Errors
    /// The key-value store did not answer.
    pub fn read_watched(kv: &mut impl Kv, watch: &mut dyn FnMut(usize)) -> Result<Image, KvUnavailable> {
        let mut image = Image::default();
        let (mut from, until) = (KvKey(alloc::vec![0]), KvKey(alloc::vec![0xff; 17]));
        loop {
            let page = kv.range(&from, &until, RANGE_MAX)?;
            let is_last = page.len() < RANGE_MAX;
            for (key, versioned) in page {
                from = key.clone();
                from.0.push(0);
                image.take(&key, &versioned.value);
                image.raw.insert(key, versioned.value);
            }
            watch(image.raw.len());
            if is_last {
                return Ok(image);
            }
        }
    }

    /// Where the regions of the store are, as the records of its namespaces have it. Regions of a namespace that was removed are none.
    pub fn places(&self) -> RegionPlaces {
        let regions = self.namespaces.iter().flat_map(|(number, record)| crate::service::regions(*number, record));
        regions.map(|info| (info.id, info.extent)).collect()
    }

    /// Bytes that are granted to sessions.
    #[cfg(test)]
    pub(crate) fn granted(&self) -> u64 {
        let granted = self.extents.values().filter(|record| matches!(record.used, crate::space::ExtentUse::Granted(_)));
        granted.map(|record| record.len).sum()
    }

    /// Whether there is the record of a store that this version can read. Without it nothing is repaired.
    pub fn is_store(&self) -> bool {
        self.store.is_some()
    }

    /// Records read.
    pub fn records(&self) -> usize {
        self.raw.len()
    }

    /// The value of a key as it was read.
    pub(super) fn raw(&self, key: &KvKey) -> Option<&[u8]> {
        self.raw.get(key).map(Vec::as_slice)
    }

    /// The keys of a range.
    pub(super) fn raw_range<'a>(&'a self, from: &KvKey, until: &KvKey) -> impl Iterator<Item = &'a KvKey> + use<'a> {
        self.raw.range(from.clone()..until.clone()).map(|(key, _)| key)
    }

    /// All that is wrong, in the order of what has to be put right first.
    pub fn findings(&self, places: &RegionPlaces) -> Vec<Finding> {
        let mut findings = self.unreadable.clone();
        if self.store.is_none() {
            let what = "it is no store, or one of another version";
            findings.push(Finding {
                kind: FindingKind::NoStore,
                about: "the record of the store cannot be read".into(),
                repair: Repair::Refused(what),
            });
            // What cannot be read here a newer version may read.
            findings.iter_mut().for_each(|finding| finding.repair = Repair::Refused(what));
            return findings;
        }
        self.find_in_names(&mut findings);
        self.find_in_maps(places, &mut findings);
        self.find_unsettled(&mut findings);
        self.find_short(&mut findings);
        self.find_in_index(places, &mut findings);
        self.find_in_members(&mut findings);
        findings
    }

    fn take(&mut self, key: &KvKey, value: &[u8]) {
        let space = key.0.first().copied().and_then(KeySpace::of);
        let Some(space) = space else {
            return self.unreadable.push(Finding {
                kind: FindingKind::UnknownKey,
                about: format!("key {}", hex(&key.0)),
                repair: Repair::Refused("a newer version may have made it; run its weir store fsck"),
            });
        };
        let is_read = self.take_as(space, key, value);
        let (kind, repair) = match is_read {
            Ok(()) => return,
            Err(Unread::Key) => (FindingKind::BadKey, Repair::Writes(alloc::vec![KvWrite::Delete(key.clone())])),
            Err(Unread::Value) => (FindingKind::BadValue, self.unreadable_value(space, key)),
        };
        self.unreadable.push(Finding { kind, about: format!("{space:?} {}", hex(&key.0)), repair });
    }

    /// What is done about a value that cannot be read.
    fn unreadable_value(&self, space: KeySpace, key: &KvKey) -> Repair {
        match space {
            KeySpace::Inode | KeySpace::MapChunk | KeySpace::Extent => {
                Repair::Refused("what it said of a file is lost; put a copy of the metadata back, or delete the file")
            }
            KeySpace::RegionLease
            | KeySpace::Epoch
            | KeySpace::NextInode
            | KeySpace::NextSession
            | KeySpace::NextNamespace
            | KeySpace::RenameKey => {
                Repair::Refused("a number that only rises is lost; put a copy of the metadata back")
            }
            KeySpace::Namespace | KeySpace::Classes => {
                Repair::Refused("which drives and classes the store has is lost; put a copy of the metadata back")
            }
            KeySpace::Store => Repair::Refused("it is no store, or one of another version"),
            // Names are found again through the inodes that they led to.
            _ => Repair::Writes(alloc::vec![KvWrite::Delete(key.clone())]),
        }
    }

    fn take_as(&mut self, space: KeySpace, key: &KvKey, value: &[u8]) -> Result<(), Unread> {
        let rest = key.0.get(1..).unwrap_or_default();
        let alone = || if rest.is_empty() { Ok(()) } else { Err(Unread::Key) };
        match space {
            KeySpace::Store => alone().and_then(|()| read(value)).map(|record| self.store = Some(record)),
            KeySpace::NextInode => alone().and_then(|()| read(value)).map(|record| self.next_inode = Some(record)),
            KeySpace::RenameKey => alone().and_then(|()| read::<CounterRecord>(value)).map(|_| ()),
            KeySpace::NextSession | KeySpace::NextNamespace => {
                alone().and_then(|()| read::<CounterRecord>(value)).map(|_| ())
            }
            KeySpace::Classes => alone().and_then(|()| read::<ClassesRecord>(value)).map(|_| ()),
            KeySpace::Namespace => insert(&mut self.namespaces, NamespaceId(number(rest)?), read(value)),
            KeySpace::Life => number(rest).and_then(|_| read::<LifeRecord>(value)).map(|_| ()),
            KeySpace::Process => number(rest).and_then(|_| read::<ProcessRecord>(value)).map(|_| ()),
            KeySpace::Removed => number(rest).and_then(|_| read::<RemovedRecord>(value)).map(|_| ()),
            KeySpace::Writer => number(rest).and_then(|_| read::<WriterRecord>(value)).map(|_| ()),
            KeySpace::Epoch => {
                alone()?;
                self.epoch = Epoch::decode(value).map_err(|_| Unread::Value)?;
                Ok(())
            }
            KeySpace::Inode => insert(&mut self.inodes, InodeId(number(rest)?), read(value)),
            KeySpace::Parent => insert(&mut self.parents, InodeId(number(rest)?), read(value)),
            KeySpace::Orphan => insert(&mut self.orphans, InodeId(number(rest)?), read(value)),
            KeySpace::Owner => insert(&mut self.owners, InodeId(number(rest)?), read(value)),
            KeySpace::Service => insert(&mut self.services, ServiceId(number(rest)?), read(value)),
            KeySpace::Session => insert(&mut self.sessions, SessionId(number(rest)?), read(value)),
            KeySpace::Hold => {
                let hold = HoldRecord::decode(value).map_err(|_| Unread::Value);
                insert(&mut self.holds, SessionId(number(rest)?), hold)
            }
            KeySpace::RegionLease => {
                let lease = RegionLease::decode(value).map_err(|_| Unread::Value);
                insert(&mut self.leases, RegionId(number(rest)?), lease)
            }
            KeySpace::Name => {
                let name = name_of(key).ok_or(Unread::Key)?;
                insert(&mut self.names, (InodeId(number(&rest[..8])?), name), read(value))
            }
            KeySpace::Answer => {
                let (session, slot) = split(rest)?;
                insert(&mut self.answers, (SessionId(session), u16::from_be_bytes(slot)), read(value))
            }
            KeySpace::MapChunk => {
                let (inode, chunk) = split(rest)?;
                insert(&mut self.chunks, (InodeId(inode), u32::from_be_bytes(chunk)), read(value))
            }
            KeySpace::Unsettled => {
                let (inode, chunk) = split(rest)?;
                insert(&mut self.unsettled, (InodeId(inode), u32::from_be_bytes(chunk)), read(value))
            }
            KeySpace::Short => {
                let (inode, chunk) = split(rest)?;
                insert(&mut self.short, (InodeId(inode), u32::from_be_bytes(chunk)), read(value))
            }
            KeySpace::Extent => {
                let (region, offset) = split(rest)?;
                let record = ExtentRecord::decode(value).map_err(|_| Unread::Value);
                insert(&mut self.extents, (RegionId(region), u64::from_be_bytes(offset)), record)
            }
        }
    }
}

/// Why a record was not read.
enum Unread {
    Key,
    Value,
}

fn read<T: Code>(value: &[u8]) -> Result<T, Unread> {
    from_value(value).map_err(|_| Unread::Value)
}

fn number(bytes: &[u8]) -> Result<u64, Unread> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| Unread::Key)
}

/// A number, and bytes behind it.
fn split<const N: usize>(bytes: &[u8]) -> Result<(u64, [u8; N]), Unread> {
    let (first, rest) = bytes.split_at_checked(8).ok_or(Unread::Key)?;
    Ok((number(first)?, rest.try_into().map_err(|_| Unread::Key)?))
}

fn insert<K: Ord, V>(into: &mut BTreeMap<K, V>, key: K, value: Result<V, Unread>) -> Result<(), Unread> {
    into.insert(key, value?);
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
