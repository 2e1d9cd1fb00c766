//! What a task sees of the key-value store while it is planned, and what it still wants to see.

use super::task::TaskId;
use crate::error::StoreError;
use crate::id::ServiceId;
use crate::id::{InodeId, Term};
use crate::inode::Inode;
use crate::keys::{inode_key, name_key};
use crate::kv::KvKey;
use crate::name::EntryName;
use crate::records::from_value;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use weir_codec::Code;
use weir_units::Nanos;

/// Keys of a container that are remembered at the most; above it all are forgotten.
const CACHE_MAX: usize = 1 << 16;

/// Whether this service owns a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its record must be read.
    #[default]
    Unknown,
    /// In that term.
    Owned(Term),
}

/// What this service knows of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Container {
    pub hold: Hold,
    /// The task that uses it.
    pub lock: Option<TaskId>,
    /// The tasks that wait for it.
    pub queue: VecDeque<TaskId>,
    /// It was given to that service, which has until then to take it.
    pub yielded: Option<(ServiceId, Nanos)>,
    /// When a task used it last, in uses of all containers.
    pub used: u64,
    /// Values of its inode, its names and the files' inodes, while it is owned: nobody else changes them.
    cache: BTreeMap<KvKey, Option<Vec<u8>>>,
}

impl Container {
    /// It is not owned any more, or perhaps not.
    pub fn forget(&mut self) {
        self.hold = Hold::Unknown;
        self.cache.clear();
    }

    pub fn is_idle(&self) -> bool {
        self.lock.is_none() && self.queue.is_empty() && self.hold == Hold::Unknown && self.yielded.is_none()
    }

    pub fn remember(&mut self, key: KvKey, value: Option<Vec<u8>>) {
        if self.cache.len() >= CACHE_MAX {
            self.cache.clear();
        }
        self.cache.insert(key, value);
    }

    pub fn drop_key(&mut self, key: &KvKey) {
        self.cache.remove(key);
    }

    pub fn cached_keys(&self) -> impl Iterator<Item = &KvKey> {
        self.cache.keys()
    }
}

/// A range that is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageKey {
    pub from: KvKey,
    pub until: KvKey,
    pub most: usize,
}

/// A key that is to be read; what a container covers is remembered with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedKey {
    pub key: KvKey,
    pub by: Option<InodeId>,
}

/// Why a plan is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// These are to be read first.
    Keys(Vec<WantedKey>),
    /// This is to be read first.
    Page(PageKey),
    /// These containers are needed as well.
    Containers(BTreeSet<InodeId>),
    /// These containers are needed instead: the inode is elsewhere.
    Instead(BTreeSet<InodeId>),
    /// An inode number is needed.
    Numbers,
    /// It is refused, as things are: that is an answer.
    Refuse(StoreError),
    /// It is refused, and always would be.
    Never(StoreError),
}

pub(crate) type Planned<T> = Result<T, Stop>;

/// What was read for a task beside what containers remember. It is empty whenever the task has not all it needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub values: BTreeMap<KvKey, Option<Vec<u8>>>,
    pub pages: BTreeMap<PageKey, Vec<(KvKey, Vec<u8>)>>,
}

impl Seen {
    pub fn clear(&mut self) {
        self.values.clear();
        self.pages.clear();
    }

    /// The value of a key that no container covers.
    pub fn free(&self, key: KvKey) -> Planned<Option<&[u8]>> {
        match self.values.get(&key) {
            Some(value) => Ok(value.as_deref()),
            None => Err(Stop::Keys(alloc::vec![WantedKey { key, by: None }])),
        }
    }
}

/// The values that a plan goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub seen: &'a Seen,
    pub containers: &'a BTreeMap<InodeId, Container>,
    /// Those that the task has, all owned.
    pub held: &'a BTreeSet<InodeId>,
}

/// A record that was read.
pub(crate) fn read<T: Code>(value: Option<&[u8]>) -> Planned<Option<T>> {
    value.map(from_value).transpose().map_err(Stop::Never)
}

impl<'a> View<'a> {
    /// That the task has this container.
    pub fn needs(&self, container: InodeId) -> Planned<()> {
        match self.held.contains(&container) {
            true => Ok(()),
            false => Err(Stop::Containers(BTreeSet::from([container]))),
        }
    }

    /// The record of a key that this container covers.
    pub fn covered<T: Code>(&self, by: InodeId, key: KvKey) -> Planned<Option<T>> {
        self.needs(by)?;
        match self.containers.get(&by).and_then(|container| container.cache.get(&key)) {
            Some(value) => read(value.as_deref()),
            None => Err(Stop::Keys(alloc::vec![WantedKey { key, by: Some(by) }])),
        }
    }

    /// The record of a key that no container covers.
    pub fn free<T: Code>(&self, key: KvKey) -> Planned<Option<T>> {
        read(self.seen.free(key)?)
    }

    /// What a name leads to.
    pub fn name<T: Code>(&self, container: InodeId, name: &EntryName) -> Planned<Option<T>> {
        self.covered(container, name_key(container, name))
    }

    /// The inode of a container that the task has.
    pub fn container(&self, container: InodeId) -> Planned<Inode> {
        self.covered(container, inode_key(container))?.ok_or(Stop::Never(StoreError::NotFound))
    }

    /// The inodes of files in a container, all that are missing asked for at once.
    pub fn inodes(&self, container: InodeId, files: &[InodeId]) -> Planned<Vec<Inode>> {
        let (mut found, mut wanted) = (Vec::new(), Vec::new());
        for file in files {
            match self.covered(container, inode_key(*file)) {
                Ok(inode) => found.push(inode.ok_or(Stop::Never(StoreError::Damaged))?),
                Err(Stop::Keys(mut keys)) => wanted.append(&mut keys),
                Err(stop) => return Err(stop),
            }
        }
        if wanted.is_empty() { Ok(found) } else { Err(Stop::Keys(wanted)) }
    }

    /// A range of keys that this container covers.
    pub fn page(&self, by: InodeId, page: PageKey) -> Planned<&'a [(KvKey, Vec<u8>)]> {
        self.needs(by)?;
        self.seen.pages.get(&page).map(Vec::as_slice).ok_or(Stop::Page(page))
    }
}
