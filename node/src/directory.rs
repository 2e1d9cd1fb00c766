//! Where the node's subsystems are: on which shard, and which of its drives.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// Where a subsystem lives in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The shard.
    pub shard: u32,
    /// Place in that shard's `Drives`.
    pub drive: u32,
}

/// Device `i` is on shard `i mod shards`; the discovery subsystem comes last on shard 0.
pub(crate) fn place(device: usize, shards: usize) -> Place {
    Place { shard: (device % shards) as u32, drive: (device / shards) as u32 }
}

/// Every subsystem of the node by NQN; the same on every shard.
#[derive(Debug, Default)]
pub struct Directory(RwLock<BTreeMap<String, Place>>);

impl Directory {
    /// With these in it.
    pub fn new(list: Vec<(String, Place)>) -> Self {
        Self(RwLock::new(list.into_iter().collect()))
    }

    /// Where the subsystem of that name is.
    pub fn find(&self, nqn: &str) -> Option<Place> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(nqn).copied()
    }

    /// One more; false, and nothing has changed, if there is one of that name.
    pub fn add(&self, nqn: &str, place: Place) -> bool {
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = !list.contains_key(nqn);
        if fresh {
            list.insert(nqn.to_string(), place);
        }
        fresh
    }

    /// One less.
    pub fn remove(&self, nqn: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(nqn);
    }
}

/// The first of its names.
impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: usize = 8;
        let list = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = list.keys().take(NAMES).map(String::as_str).collect();
        f.write_str(&names.join(", "))?;
        match list.len().saturating_sub(NAMES) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}
