//! The port as messages, for machines that do not wait.

use super::{Commit, CommitOutcome, Kv, KvKey, KvUnavailable, Versioned};
use alloc::vec::Vec;

/// What an answer is recognised by: a machine gives each of its requests another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvToken(pub u64);

/// What a machine wants of the key-value store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvRequest {
    /// See [`Kv::get`].
    Get(KvKey),
    /// See [`Kv::range`].
    Range {
        /// The first key.
        from: KvKey,
        /// The key behind the last.
        until: KvKey,
        /// So many at the most.
        most: usize,
    },
    /// See [`Kv::commit`].
    Commit(Commit),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvAnswer {
    /// Of [`KvRequest::Get`].
    Value(Result<Option<Versioned>, KvUnavailable>),
    /// Of [`KvRequest::Range`].
    Page(Result<Vec<(KvKey, Versioned)>, KvUnavailable>),
    /// Of [`KvRequest::Commit`].
    Outcome(CommitOutcome),
}

impl KvRequest {
    /// Carries it out.
    pub fn perform(&self, kv: &mut impl Kv) -> KvAnswer {
        match self {
            KvRequest::Get(key) => KvAnswer::Value(kv.get(key)),
            KvRequest::Range { from, until, most } => KvAnswer::Page(kv.range(from, until, *most)),
            KvRequest::Commit(commit) => KvAnswer::Outcome(kv.commit(commit)),
        }
    }

    /// The answer where the store gives none: nothing was read, and of a commit nobody knows.
    pub fn unanswered(&self) -> KvAnswer {
        match self {
            KvRequest::Get(_) => KvAnswer::Value(Err(KvUnavailable)),
            KvRequest::Range { .. } => KvAnswer::Page(Err(KvUnavailable)),
            KvRequest::Commit(_) => KvAnswer::Outcome(CommitOutcome::Unknown),
        }
    }
}
