//! What was changed by the API, for the time line beside the node's events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Changes that are kept; older ones go.
pub(super) const MOST: usize = 64;

/// A request by which something was changed. Changes are in the memory of the process that serves alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardChange {
    /// Counts them since that process has started.
    pub number: u64,
    /// When, in milliseconds since 1970-01-01 00:00 UTC, by the machine's clock.
    pub unix_ms: u64,
    /// What it is about: a drive, a tenant, a volume, else `node`.
    pub subject: String,
    /// The request: its method and path.
    pub text: String,
}

/// The latest ones.
#[derive(Debug, Default)]
pub(super) struct Changes {
    count: u64,
    list: VecDeque<BoardChange>,
}

impl Changes {
    pub(super) fn add(&mut self, unix_ms: u64, subject: &str, text: String) {
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.count += 1;
        self.list.push_back(BoardChange { number: self.count, unix_ms, subject: subject.into(), text });
    }

    /// All that are kept, the newest last.
    pub(super) fn list(&self) -> Vec<BoardChange> {
        self.list.iter().cloned().collect()
    }
}
