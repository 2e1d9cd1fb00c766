//! Bytes that are wrong: they are flipped on their way between a host and the media, and nothing says so.

use crate::host::{DataPointer, Owner};
use alloc::vec::Vec;
use weir_units::rng::mix;

/// A command some of whose bytes are to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoiledTransfer {
    /// Whose command it is.
    pub owner: Owner,
    /// Where its bytes are.
    pub data: DataPointer,
    /// Where in them the wrong ones begin.
    pub at: u32,
    /// How many.
    pub bytes: u32,
    /// What they are drawn from.
    pub seed: u64,
}

impl SpoiledTransfer {
    fn is_of(&self, owner: Owner, data: &DataPointer) -> bool {
        self.owner == owner && self.data.get() == data.get()
    }

    /// Flips what is wrong of the bytes from `offset` on.
    fn flip(&self, offset: u32, bytes: &mut [u8]) {
        for (byte, n) in bytes.iter_mut().zip(offset..) {
            if let Some(nth) = n.checked_sub(self.at).filter(|nth| *nth < self.bytes) {
                // Never 0: a byte that is to be wrong is.
                *byte ^= (mix(self.seed ^ u64::from(nth)) as u8).max(1);
            }
        }
    }
}

/// The commands of a [`Host`] whose bytes are flipped on their way, for implementations of [`Host::begin_spoiled`].
#[derive(Clone, Debug, Default)]
pub struct SpoiledTransfers(Vec<SpoiledTransfer>);

impl SpoiledTransfers {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From now on, see [`Host::begin_spoiled`].
    pub fn begin(&mut self, transfer: SpoiledTransfer) {
        self.end(transfer.owner, &transfer.data);
        self.0.push(transfer);
    }

    /// No more, see [`Host::end_spoiled`].
    pub fn end(&mut self, owner: Owner, data: &DataPointer) {
        self.0.retain(|t| !t.is_of(owner, data));
    }

    /// Flips bytes from `offset` on of a command's data, where they are to be wrong.
    pub fn flip(&self, owner: Owner, data: &DataPointer, offset: u32, bytes: &mut [u8]) {
        self.0.iter().filter(|t| t.is_of(owner, data)).for_each(|t| t.flip(offset, bytes));
    }

    /// The same of a copy.
    pub fn flipped(&self, owner: Owner, data: &DataPointer, offset: u32, bytes: &[u8]) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        self.flip(owner, data, offset, &mut copy);
        copy
    }
}
