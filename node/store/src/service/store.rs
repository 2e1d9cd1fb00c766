//! The key-value store of a service: in a file, or in memory.

use super::options::ServiceError;
use crate::embedded::{Durability, EmbeddedKv};
use weir_config::{StoreDurability, StoreMeta};
use weir_store::kv::{Commit, CommitOutcome, Kv as _, KvAnswer, KvRequest, MemoryKv, Revision};

pub(super) enum MetaStore {
    File(EmbeddedKv),
    Memory(MemoryKv),
}

impl MetaStore {
    pub fn open(meta: &StoreMeta, durability: StoreDurability) -> Result<Self, ServiceError> {
        match meta {
            StoreMeta::Memory => Ok(Self::Memory(MemoryKv::default())),
            StoreMeta::Redb(path) => {
                let durability = match durability {
                    StoreDurability::Process => Durability::Process,
                    StoreDurability::Power => Durability::Power,
                };
                let opened = EmbeddedKv::open(path, durability);
                opened.map(Self::File).map_err(|e| ServiceError::new(path.display(), e))
            }
        }
    }

    /// Carries out a read.
    pub fn read(&mut self, request: &KvRequest) -> KvAnswer {
        match self {
            Self::File(kv) => request.perform(kv),
            Self::Memory(kv) => request.perform(kv),
        }
    }

    /// Makes commits in their order.
    pub fn commit_all(&mut self, commits: &[Commit]) -> Vec<CommitOutcome> {
        match self {
            Self::File(kv) => kv.commit_all(commits),
            Self::Memory(kv) => commits.iter().map(|commit| kv.commit(commit)).collect(),
        }
    }

    /// Has the medium take everything so far; `has_synced` is called when it has, unless it has it at once.
    pub fn sync(&mut self, has_synced: impl Fn() + Send + 'static) {
        match self {
            Self::File(kv) => kv.sync(has_synced),
            Self::Memory(_) => {}
        }
    }

    /// Up to which revision the medium has everything.
    pub fn durable(&self) -> Revision {
        match self {
            Self::File(kv) => kv.durable(),
            // There is no medium: what is lost is lost as a whole.
            Self::Memory(_) => Revision(u64::MAX),
        }
    }

    /// Whether what was told last may not be there.
    pub fn may_have_lost(&self) -> bool {
        match self {
            Self::File(kv) => kv.may_have_lost(),
            Self::Memory(_) => false,
        }
    }

    /// Nobody goes by what was lost any more.
    pub fn loss_is_over(&mut self) {
        if let Self::File(kv) = self {
            kv.loss_is_over();
        }
    }

    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::File(kv) => kv.trouble(),
            Self::Memory(_) => None,
        }
    }
}
