//! How far the pass over the index of blocks that lack copies is, and what it has found.

use super::passes::{PASS_CLIENTS, PASS_DRIVES, PASS_FIRST, PassCounts};
use crate::InodeId;
use crate::kv::KvKey;
use crate::space::MappedExtent;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Between two looks at an index that was empty.
const LOOK_EVERY: Nanos = Nanos::from_secs(2);

/// A chunk of the index.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub file: InodeId,
    pub chunk: u32,
    pub copies: u8,
    /// The value of its key.
    pub value: Vec<u8>,
}

/// See [`lacking`](super::lacking).
#[derive(Debug, Default)]
pub(super) struct Lacking {
    /// A pass over the index has begun.
    pub is_begun: bool,
    /// An answer of the key-value store is waited for.
    pub reads: bool,
    pub look_at: Nanos,
    wait: Nanos,
    /// What the next page of the index begins with, as long as there is one.
    pub behind: Option<KvKey>,
    pub queue: VecDeque<Listed>,
    /// The chunk that is read.
    pub at: Option<Listed>,
    /// Copies of blocks that lack another one.
    pub blocks: VecDeque<MappedExtent>,
    pub found: PassCounts,
    /// What the last whole pass has found.
    last: PassCounts,
}

impl Lacking {
    /// Something has changed about the drives.
    pub fn look_again(&mut self) {
        (self.look_at, self.wait) = (Nanos(0), Nanos(0));
    }

    /// Blocks that could not get their copy, for the status.
    pub fn trouble(&self) -> Option<String> {
        let PassCounts { no_copy, no_room, no_node, failed, why, .. } = &self.last;
        let reasons = [
            (*no_node, "no further node has a drive"),
            (*no_room, "no further node has room"),
            (*no_copy, "no copy can be read"),
            (*failed, why.as_deref().unwrap_or("it failed")),
        ];
        let told: Vec<String> =
            reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count}: {why}")).collect();
        (!told.is_empty()).then(|| format!("blocks that lack a copy, tried again: {}", told.join("; ")))
    }

    pub fn end_pass(&mut self, now: Nanos) {
        (self.last, self.is_begun) = (core::mem::take(&mut self.found), false);
        if self.last.is_empty() {
            (self.look_at, self.wait) = (now.saturating_add(LOOK_EVERY), Nanos(0));
            return;
        }
        let most = if self.last.awaits_drives() { PASS_DRIVES } else { PASS_CLIENTS };
        let longer = Nanos(self.wait.get().saturating_mul(2)).max(PASS_FIRST).min(most);
        self.wait = if self.last.moved > 0 { PASS_FIRST } else { longer };
        self.look_at = now.saturating_add(self.wait);
    }
}
