//! The port to the key-value store that holds everything that the services know.
//!
//! ```text
//!   a machine ──(KvToken, KvRequest)──► the caller ──Kv──► MemoryKv | an embedded database | etcd
//!             ◄──(KvToken, KvAnswer)───
//! ```
//! A machine does not wait: its requests go out as effects with a token, and come back as events, in any order, perhaps never.
//! [`conformance`] is what every implementation is held to. [`FaultyKv`] is one that tests the machines: answers are unknown, late, or come
//! twice.

use alloc::vec::Vec;

mod conformance;
mod faulty;
mod memory;
mod message;

pub use conformance::{KvFailure, conformance};
pub use faulty::{FaultyKv, KvFaultCounts, KvFaults};
pub use memory::MemoryKv;
pub use message::{KvAnswer, KvRequest, KvToken};

/// Keys of a commit at the most, in preconditions and writes together. (etcd: 128 operations.)
pub const COMMIT_KEYS_MAX: usize = 100;

/// Bytes of a commit at the most: its keys and values, preconditions included. (etcd: 1.5 MiB a request.)
pub const COMMIT_BYTES_MAX: usize = 512 << 10;

/// Values that a range answers with at the most, whatever was asked for.
pub const RANGE_MAX: usize = 1024;

/// A key: at least one byte, in the order of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvKey(pub Vec<u8>);

/// When a key was written last: it rises with every commit that writes anything, and no two commits have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A value, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Vec<u8>,
    /// When it was written.
    pub revision: Revision,
}

/// What must be so of a key, or the commit conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It has no value.
    Absent,
    /// It has a value.
    Present,
    /// It has this value.
    Value(Vec<u8>),
    /// It has a value that was written then.
    Revision(Revision),
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvWrite {
    /// It has this value from now on.
    Put(KvKey, Vec<u8>),
    /// It has no value from now on.
    Delete(KvKey),
}

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// What must be so just before, each key once.
    pub expect: Vec<(KvKey, Expect)>,
    /// What is changed, each key once.
    pub writes: Vec<KvWrite>,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It was made, and is durable to the degree that the store promises.
    Done(Revision),
    /// A precondition did not hold. A commit that was sent before, and whose answer was lost, can be the reason.
    Conflict,
    /// Nobody knows: it has been made, it will be made at some time, or it never is.
    Unknown,
    /// It is not [legal](Commit::is_legal). Nothing was changed.
    TooLarge,
}

/// No answer to a read. Nothing is known, nothing was changed: ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvUnavailable;

/// A key-value store. Reads and commits are linearizable: a read sees every commit that was answered before the read began.
pub trait Kv {
    /// The value of a key.
    ///
    /// # Errors
    /// The store did not answer.
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable>;

    /// The first `most` keys from `from` on and before `until`, in order, all as they were at one moment; [`RANGE_MAX`] at the most.
    ///
    /// # Errors
    /// The store did not answer.
    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable>;

    /// Makes all changes if all preconditions hold.
    fn commit(&mut self, commit: &Commit) -> CommitOutcome;
}

impl KvWrite {
    /// The key that is changed.
    pub fn key(&self) -> &KvKey {
        match self {
            KvWrite::Put(key, _) | KvWrite::Delete(key) => key,
        }
    }
}

impl Commit {
    /// Its keys, counted once for each precondition and each change.
    pub fn keys(&self) -> usize {
        self.expect.len() + self.writes.len()
    }

    /// The bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        let expected = self.expect.iter().map(|(key, expect)| match expect {
            Expect::Value(value) => key.0.len() + value.len(),
            Expect::Absent | Expect::Present | Expect::Revision(_) => key.0.len(),
        });
        let written = self.writes.iter().map(|write| match write {
            KvWrite::Put(key, value) => key.0.len() + value.len(),
            KvWrite::Delete(key) => key.0.len(),
        });
        expected.sum::<usize>() + written.sum::<usize>()
    }

    /// Whether it is within the limits, names no empty key, and no key twice among its preconditions or its changes.
    pub fn is_legal(&self) -> bool {
        let is_once = |mut keys: Vec<&KvKey>| {
            keys.sort();
            keys.windows(2).all(|pair| pair[0] != pair[1])
        };
        let named = self.expect.iter().map(|(key, _)| key).chain(self.writes.iter().map(KvWrite::key));
        named.clone().all(|key| !key.0.is_empty())
            && self.keys() <= COMMIT_KEYS_MAX
            && self.bytes() <= COMMIT_BYTES_MAX
            && is_once(self.expect.iter().map(|(key, _)| key).collect())
            && is_once(self.writes.iter().map(KvWrite::key).collect())
    }
}
