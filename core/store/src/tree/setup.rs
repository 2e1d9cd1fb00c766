//! What a store begins with.

use crate::id::InodeId;
use crate::inode::{Inode, InodeKind, UnixNanos};
use crate::keys::{KeySpace, inode_key, parent_key};
use crate::kv::{Commit, Expect, KvWrite};
use crate::records::{CounterRecord, ParentRecord, StoreRecord, to_value};

/// The commit that makes an empty store, with a root directory of mode 755; it conflicts if there is a store. `id` is a random number.
pub fn make_store(id: u64, now: UnixNanos) -> Commit {
    let root = Inode {
        kind: InodeKind::Directory,
        mode: 0o755,
        created: now,
        modified: now,
        changed: now,
        version: 1,
        copies: 1,
        block: 1 << 20,
        ..Inode::default()
    };
    let store = KeySpace::Store.key(&[]);
    let first = InodeId::ROOT.get() + 1;
    Commit {
        expect: alloc::vec![(store.clone(), Expect::Absent)],
        writes: alloc::vec![
            KvWrite::Put(store, to_value(&StoreRecord { id, created: now })),
            KvWrite::Put(inode_key(InodeId::ROOT), to_value(&root)),
            KvWrite::Put(parent_key(InodeId::ROOT), to_value(&ParentRecord { parent: InodeId::ROOT })),
            KvWrite::Put(KeySpace::NextInode.key(&[]), to_value(&CounterRecord { next: first })),
            KvWrite::Put(KeySpace::RenameKey.key(&[]), to_value(&CounterRecord { next: 0 })),
        ],
    }
}

/// The commit that begins a session of a test that has no [`Sessions`](crate::members::Sessions).
#[cfg(test)]
pub(crate) fn begin_session(session: crate::SessionId, record: &crate::records::SessionRecord) -> Commit {
    let key = crate::keys::session_key(session);
    Commit {
        expect: alloc::vec![(key.clone(), Expect::Absent)],
        writes: alloc::vec![KvWrite::Put(key, to_value(record))],
    }
}
