//! The key-value store of a service: in a file, in memory, or in etcd.

use super::options::ServiceError;
use crate::embedded::{Durability, EmbeddedKv};
use crate::etcd::EtcdKv;
use weir_config::{StoreDurability, StoreMeta};
use weir_store::kv::{Commit, CommitOutcome, Kv as _, KvAnswer, KvRequest, KvToken, MemoryKv, Revision};

pub(super) enum MetaStore {
    File(EmbeddedKv),
    Memory(MemoryKv),
    Etcd(EtcdKv),
}

/// What becomes of a request at once.
pub(super) enum Asked {
    /// It is answered.
    Answered(KvAnswer),
    /// It is to be made together with others: see [`MetaStore::commit_all`].
    Waits(Commit),
    /// It is on its way: see [`MetaStore::answered`].
    Sent,
}

impl MetaStore {
    /// `has_answered` is called, by another thread, when there is something in [`answered`](Self::answered).
    pub fn open(
        meta: &StoreMeta,
        durability: StoreDurability,
        has_answered: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, ServiceError> {
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
            StoreMeta::Etcd(etcd) => {
                EtcdKv::open(etcd, has_answered).map(Self::Etcd).map_err(|e| ServiceError::new(meta, e))
            }
        }
    }

    /// Whether another process may have it at the same time.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Etcd(_))
    }

    /// Carries out a read, or begins to.
    pub fn ask(&mut self, token: KvToken, request: KvRequest) -> Asked {
        match (self, request) {
            (Self::Etcd(kv), request) => {
                kv.ask(token, request);
                Asked::Sent
            }
            (_, KvRequest::Commit(commit)) => Asked::Waits(commit),
            (Self::File(kv), request) => Asked::Answered(request.perform(kv)),
            (Self::Memory(kv), request) => Asked::Answered(request.perform(kv)),
        }
    }

    /// What has become of requests that were [sent](Asked::Sent).
    pub fn answered(&mut self) -> Vec<(KvToken, KvAnswer)> {
        match self {
            Self::Etcd(kv) => kv.answered(),
            Self::File(_) | Self::Memory(_) => Vec::new(),
        }
    }

    /// Makes commits that [wait](Asked::Waits), in their order.
    pub fn commit_all(&mut self, commits: &[Commit]) -> Vec<CommitOutcome> {
        match self {
            Self::File(kv) => kv.commit_all(commits),
            Self::Memory(kv) => commits.iter().map(|commit| kv.commit(commit)).collect(),
            // None waits there.
            Self::Etcd(_) => commits.iter().map(|_| CommitOutcome::Unknown).collect(),
        }
    }

    /// Has the medium take everything so far; `has_synced` is called when it has, unless it has it at once.
    pub fn sync(&mut self, has_synced: impl Fn() + Send + 'static) {
        match self {
            Self::File(kv) => kv.sync(has_synced),
            Self::Memory(_) | Self::Etcd(_) => {}
        }
    }

    /// Up to which revision the medium has everything.
    pub fn durable(&self) -> Revision {
        match self {
            Self::File(kv) => kv.durable(),
            // There is no medium: what is lost is lost as a whole. Of etcd's members most have what was answered.
            Self::Memory(_) | Self::Etcd(_) => Revision(u64::MAX),
        }
    }

    /// Whether what was told last may not be there.
    pub fn may_have_lost(&self) -> bool {
        match self {
            Self::File(kv) => kv.may_have_lost(),
            Self::Memory(_) | Self::Etcd(_) => false,
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
            Self::Etcd(kv) => kv.trouble(),
        }
    }
}
