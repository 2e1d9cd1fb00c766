//! What lies in the key-value store when nothing is under way: the invariants of `docs/reference/formats.md`, "The store's keys and values".

use crate::keys::{KeySpace, name_of};
use crate::kv::{KvKey, MemoryKv};
use crate::records::{NameRecord, OrphanRecord, ParentRecord, from_value};
use crate::{Inode, InodeId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::Code;

fn number(key: &KvKey) -> InodeId {
    InodeId(u64::from_be_bytes(key.0[1..9].try_into().expect("a number")))
}

fn all<T: Code>(kv: &MemoryKv, space: KeySpace) -> Result<Vec<(KvKey, T)>, String> {
    let of_space = kv.iter().filter(|(key, _)| key.0[0] == space as u8);
    of_space
        .map(|(key, value)| Ok((key.clone(), from_value(&value.value).map_err(|error| format!("{key:?}: {error}"))?)))
        .collect()
}

/// What is wrong with the names, if anything is.
pub(super) fn verify(kv: &MemoryKv) -> Result<(), String> {
    let is = |holds: bool, what: &dyn Fn() -> String| if holds { Ok(()) } else { Err(what()) };
    let inodes: BTreeMap<InodeId, Inode> =
        all::<Inode>(kv, KeySpace::Inode)?.into_iter().map(|(key, inode)| (number(&key), inode)).collect();
    let parents: BTreeMap<InodeId, InodeId> = all::<ParentRecord>(kv, KeySpace::Parent)?
        .into_iter()
        .map(|(key, record)| (number(&key), record.parent))
        .collect();
    let orphans: BTreeMap<InodeId, OrphanRecord> =
        all::<OrphanRecord>(kv, KeySpace::Orphan)?.into_iter().map(|(key, record)| (number(&key), record)).collect();
    let mut named: BTreeMap<InodeId, InodeId> = BTreeMap::from([(InodeId::ROOT, InodeId::ROOT)]);
    for (key, record) in all::<NameRecord>(kv, KeySpace::Name)? {
        let (container, name) = (number(&key), name_of(&key));
        let what = || format!("{name:?} of {container} leads to {record:?}");
        let inode = inodes.get(&record.inode).ok_or_else(|| what() + ", which is not there")?;
        is(inode.kind == record.kind, &|| what() + ", of another kind")?;
        is(inodes.get(&container).is_some_and(|inode| inode.kind.is_container()), &|| what() + ", in no container")?;
        is(named.insert(record.inode, container).is_none(), &|| what() + ", which has another name")?;
        is(!orphans.contains_key(&record.inode), &|| what() + ", an orphan")?;
        if !inode.kind.is_container() {
            is(inode.parent == container, &|| format!("{} and says that it is in {}", what(), inode.parent))?;
        }
    }
    for (number, inode) in &inodes {
        let is_named = named.contains_key(number);
        is(is_named || orphans.contains_key(number), &|| format!("inode {number} has no name and is no orphan"))?;
        is(inode.kind.is_container() == parents.contains_key(number), &|| format!("inode {number}: parent record"))?;
    }
    is(parents.keys().chain(orphans.keys()).all(|number| inodes.contains_key(number)), &|| {
        "records without inodes".into()
    })?;
    for (container, parent) in &parents {
        let expected = named.get(container).copied().unwrap_or(InodeId(0));
        is(expected == *parent, &|| format!("container {container} is in {expected} and its parent is {parent}"))?;
        let (mut at, mut steps) = (*container, 0);
        while at != InodeId::ROOT && at != InodeId(0) {
            at = parents.get(&at).copied().ok_or_else(|| format!("container {at} has no parent"))?;
            steps += 1;
            is(steps <= parents.len(), &|| format!("container {container} lies within itself"))?;
        }
    }
    Ok(())
}
