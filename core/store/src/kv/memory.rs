//! A key-value store in memory: the model of the port, and a store for one process that keeps nothing.

use super::{Commit, CommitOutcome, Expect, Kv, KvKey, KvUnavailable, KvWrite, RANGE_MAX, Revision, Versioned};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct MemoryKv {
    values: BTreeMap<KvKey, Versioned>,
    revision: Revision,
}

impl MemoryKv {
    /// All that is in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&KvKey, &Versioned)> {
        self.values.iter()
    }

    /// That of the last commit.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn holds(&self, key: &KvKey, expect: &Expect) -> bool {
        match (self.values.get(key), expect) {
            (None, Expect::Absent) | (Some(_), Expect::Present) => true,
            (Some(found), Expect::Value(value)) => found.value == *value,
            (Some(found), Expect::Revision(revision)) => found.revision == *revision,
            _ => false,
        }
    }
}

impl Kv for MemoryKv {
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        Ok(self.values.get(key).cloned())
    }

    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
        if from >= until {
            return Ok(Vec::new());
        }
        let found = self.values.range(from..until).take(most.min(RANGE_MAX));
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        if !commit.is_legal() {
            return CommitOutcome::TooLarge;
        }
        if !commit.expect.iter().all(|(key, expect)| self.holds(key, expect)) {
            return CommitOutcome::Conflict;
        }
        if !commit.writes.is_empty() {
            self.revision.0 += 1;
        }
        for write in &commit.writes {
            match write {
                KvWrite::Put(key, value) => {
                    let versioned = Versioned { value: value.clone(), revision: self.revision };
                    self.values.insert(key.clone(), versioned);
                }
                KvWrite::Delete(key) => {
                    self.values.remove(key);
                }
            }
        }
        CommitOutcome::Done(self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::conformance;

    #[test]
    fn it_conforms() {
        assert_eq!(conformance(MemoryKv::default), Ok(()));
    }
}
