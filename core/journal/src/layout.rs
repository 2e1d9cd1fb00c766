//! Where everything lies in a region: its header, the head of each queue's part, and the states of an entry.

/// The first eight bytes of a region: `WEIRJRNL`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEIRJRNL");
/// Version of the layout.
pub const VERSION: u32 = 2;
/// Bytes before the queues.
pub const HEADER_BYTES: u64 = 64;

/// Words of a cache line: the header, the head of a queue's part, and every part is a multiple.
pub(crate) const LINE: usize = 8;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    /// Version in bits 31:0, kind in 39:32.
    pub(crate) const VERSION: usize = 1;
    /// Bytes of the region.
    pub(crate) const LENGTH: usize = 2;
    /// Queues in bits 15:0, their size in 31:16.
    pub(crate) const QUEUES: usize = 3;
    /// The medium that the requests are for; 0: any.
    pub(crate) const MEDIUM: usize = 4;
    pub(crate) const WORDS: usize = 5;
    /// Of NVMe queues: [`JournalRegion::noted`](crate::JournalRegion::noted); 0 before that word was there.
    pub(crate) const NOTED: usize = 5;
}

/// Words of the head of a queue's part.
pub(crate) mod head {
    /// State in bits 15:0, head of the newest request in 31:16, `last_idx` in 47:32.
    pub(crate) const MERGE: usize = 0;
    /// `used_idx` in bits 15:0; in 31:16 where the batch began that it ends. NVMe: a count of 64 bits.
    pub(crate) const USED: usize = 1;
    /// What the part is used for in bits 7:0, 0 for nothing; [`UNSURE`]; the queue's size in 31:16; NVMe: the queue's generation in 63:32. Stored
    /// last when a queue begins.
    pub(crate) const START: usize = 2;
    /// Where the queue was stopped in order: [`CLOSED`](super::CLOSED) and its base in bits 31:0. 0 of one that has begun.
    pub(crate) const CLOSED: usize = 3;
    /// Bit of the start word: a packed ring's base was 0, which may mean a new ring, and nothing has been taken that tells.
    pub(crate) const UNSURE: u64 = 1 << 8;
}

/// Bit of the closed word that says that there is a base.
pub(crate) const CLOSED: u64 = 1 << 32;
/// Bit of the closed word: the ring was stopped before it was known where it begins.
pub(crate) const CLOSED_UNSURE: u64 = 1 << 33;

/// States of an entry, in bits 1:0 of its first word; the sequence number is in the others.
pub(crate) mod state {
    pub(crate) const NONE: u64 = 0;
    pub(crate) const INFLIGHT: u64 = 1;
    pub(crate) const DONE: u64 = 2;
    /// NVMe only.
    pub(crate) const DECIDED: u64 = 3;
    pub(crate) const MASK: u64 = 3;
    pub(crate) const BITS: u32 = 2;
}

/// States of the merge word. FINISHED is 0, so that a region that nobody has touched has no request of head 0 to redo.
pub(crate) const FINISHED: u64 = 0;
pub(crate) const STARTED: u64 = 1;

pub(crate) const fn merge(state: u64, head: u16, last_idx: u16) -> u64 {
    state | (head as u64) << 16 | (last_idx as u64) << 32
}

/// The sequence number's bits.
pub(crate) const SEQUENCE: u64 = u64::MAX >> state::BITS;
