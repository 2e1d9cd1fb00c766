//! Buffers for data that hosts were asked for: one [`Budget`] per tenant, shared by all of its connections.
//!
//! A connection may hold as much as is still free (the dynamic threshold of shared-memory switches), so that one that
//! was granted buffers and never sends its data leaves as much again to the others; and every connection may hold one
//! transfer whatever the others hold. Memory is therefore bounded by the limit and one transfer per connection.

use alloc::vec::Vec;

const SMALLEST: u32 = 12;
const CLASSES: usize = 12;

/// A pool of buffers with a limit.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: u64,
    cached: u64,
    free: [Vec<Vec<u8>>; CLASSES],
}

impl Budget {
    /// With at most `limit` bytes in use by those who could wait.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0, cached: 0, free: core::array::from_fn(|_| Vec::new()) }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Changes the limit; what is in use stays.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn class(len: u32) -> usize {
        let bits = u32::BITS - len.saturating_sub(1).leading_zeros();
        (bits.max(SMALLEST) - SMALLEST) as usize
    }

    /// A buffer of at least `len` bytes for a connection that holds `held` bytes, or `None`: wait for a release.
    pub(super) fn take(&mut self, len: u32, held: u64) -> Option<Vec<u8>> {
        let class = Self::class(len);
        let size = if class < CLASSES { 1u64 << (class as u32 + SMALLEST) } else { u64::from(len) };
        let left = self.limit.saturating_sub(self.used);
        if held != 0 && held.saturating_add(size) > left {
            return None;
        }
        self.used += size;
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.cached -= size;
                Some(buffer)
            }
            None => Some(alloc::vec![0; size as usize]),
        }
    }

    /// A buffer for what another process had got already, whatever is left.
    pub(super) fn take_over(&mut self, len: u32) -> Vec<u8> {
        // A connection that holds nothing always gets one.
        self.take(len, 0).unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(super) fn put(&mut self, buffer: Vec<u8>) {
        let size = buffer.len() as u64;
        debug_assert!(self.used >= size, "a buffer goes back to the budget it came from");
        self.used = self.used.saturating_sub(size);
        let class = Self::class(buffer.len() as u32);
        if self.cached + self.used + size <= self.limit {
            if let Some(list) = self.free.get_mut(class) {
                self.cached += size;
                list.push(buffer);
            }
        }
    }

    /// The invariants: what is cached is what lies in the lists.
    ///
    /// # Panics
    /// When broken.
    pub fn check(&self) {
        let cached: u64 = self.free.iter().flatten().map(|b| b.len() as u64).sum();
        assert_eq!(cached, self.cached, "cached bytes are counted");
        for (class, list) in self.free.iter().enumerate() {
            assert!(list.iter().all(|b| b.len() == 1 << (class as u32 + SMALLEST)), "buffers lie in their class");
        }
    }
}
