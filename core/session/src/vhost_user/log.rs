//! The dirty log: which pages of the guest's memory the device has changed, for a front end that copies the guest to another
//! machine while it runs.
//!
//! Source: QEMU `docs/interop/vhost-user.rst`, "Migration". A bit for each page of 4096 bytes of guest addresses, the first
//! page's in bit 0 of the first byte. The front end takes bits away at any time, atomically, and copies their pages *afterwards*.
//! So a bit is set, atomically, after its page was written: set before, it could be taken away and the page be copied in
//! between. Data and status bytes are marked before the completion that tells of them is published, the used ring after it.

use crate::memory::Bits;
use weir_journal::JournalMemory;
use weir_spec::vhost_user::LOG_PAGE;
use weir_spec::virtqueue::split;

/// The front end's bitmap.
#[derive(Clone, Debug)]
pub(super) struct DirtyLog<W> {
    words: W,
    /// Pages that have a bit.
    pages: u64,
}

impl<W: JournalMemory + Bits> DirtyLog<W> {
    /// A log of `bytes` bytes; `words` holds them all.
    pub(super) fn new(words: W, bytes: u64) -> Self {
        let pages = bytes.min(words.count() as u64 * 8).saturating_mul(8);
        Self { words, pages }
    }

    /// Whether every page of a range has a bit.
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        let last = address.checked_add(len.saturating_sub(1)).map(|last| last / LOG_PAGE);
        len == 0 || last.is_some_and(|last| last < self.pages)
    }

    /// Sets the bits of a range that has been written. Pages without a bit are the front end's to answer for: it says how long
    /// its log is.
    pub(super) fn mark(&self, address: u64, len: u64) {
        if len == 0 || self.pages == 0 {
            return;
        }
        let last = (address.saturating_add(len - 1) / LOG_PAGE).min(self.pages - 1);
        let mut page = address / LOG_PAGE;
        while page <= last {
            let (word, bit) = (page / 64, page % 64);
            let count = (last - page + 1).min(64 - bit);
            self.words.set(word as usize, (u64::MAX >> (64 - count)) << bit);
            page += count;
        }
    }
}

/// Where a queue's ring is, in the terms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPlace {
    /// Where the log expects the used ring, or a packed ring's event structure.
    pub(super) used: u64,
    /// A packed ring's own guest address: its descriptors are written as well.
    pub(super) packed: Option<u64>,
    /// Entries.
    pub(super) size: u16,
}

impl RingPlace {
    /// The ranges that the device writes.
    fn ranges(self) -> [(u64, u64); 2] {
        match self.packed {
            None => [(self.used, split::used_bytes(self.size, true) as u64), (0, 0)],
            Some(ring) => [(self.used, 4), (ring, 16 * u64::from(self.size))],
        }
    }

    /// Whether all of it has bits.
    pub(super) fn is_in<W: JournalMemory + Bits>(self, log: &DirtyLog<W>) -> bool {
        self.ranges().into_iter().all(|(address, len)| log.holds(address, len))
    }
}

/// What a queue logs.
#[derive(Clone, Debug)]
pub(super) struct Logging<W> {
    log: DirtyLog<W>,
    /// VHOST_F_LOG_ALL: what is written to requests' buffers.
    data: bool,
    /// VHOST_VRING_F_LOG: what is written to the ring.
    ring: Option<RingPlace>,
}

impl<W: JournalMemory + Bits + Clone> Logging<W> {
    /// `None` where there is nothing to log.
    pub(super) fn new(log: Option<&DirtyLog<W>>, data: bool, ring: Option<RingPlace>) -> Option<Self> {
        let log = log.filter(|_| data || ring.is_some())?;
        Some(Self { log: log.clone(), data, ring })
    }

    /// Bytes of a request's buffers have been written.
    #[cold]
    pub(super) fn wrote(&self, address: u64, len: usize) {
        if self.data {
            self.log.mark(address, len as u64);
        }
    }

    /// The ring has been written.
    #[cold]
    pub(super) fn wrote_ring(&self) {
        let ranges = self.ring.map(RingPlace::ranges);
        ranges.into_iter().flatten().for_each(|(address, len)| self.log.mark(address, len));
    }
}
