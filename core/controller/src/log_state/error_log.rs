//! The error log of one controller (base 2.0, 5.16.1.2): the newest of its errors.

use alloc::vec::Vec;
use weir_spec::nvme::log::ErrorEntry;
use zerocopy::little_endian::U64;

/// Entries of the error log (ELPE + 1).
pub(crate) const ERROR_ENTRIES: usize = 64;

/// The newest errors of one controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLog {
    entries: Vec<ErrorEntry>,
    next: usize,
    pub count: u64,
}

impl ErrorLog {
    pub fn push(&mut self, mut entry: ErrorEntry) {
        self.count += 1;
        entry.error_count = U64::new(self.count);
        if self.entries.len() < ERROR_ENTRIES {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
        }
        self.next = (self.next + 1) % ERROR_ENTRIES;
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &ErrorEntry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }
}
