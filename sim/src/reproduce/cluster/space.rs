//! Which bytes lie where: the first class that has room, then the next.

use super::UNIT;

/// Bytes of a block, which is whole in one place, as the store's default is.
pub(crate) const BLOCK: u64 = 1 << 20;
/// Bytes of a request.
pub(crate) const PIECE: u64 = 128 << 10;

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the memory of a machine.
    Memory {
        /// Which.
        machine: usize,
    },
    /// On a drive.
    Drive {
        /// Which, counted over all machines.
        drive: usize,
        /// Its first unit of 4096 bytes.
        unit: u32,
    },
}

/// Where a block is: its first piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(Place);

impl Block {
    /// Its pieces, in order.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Place> {
        (0..(BLOCK / PIECE) as u32).map(move |piece| match self.0 {
            Place::Memory { machine } => Place::Memory { machine },
            Place::Drive { drive, unit } => Place::Drive { drive, unit: unit + piece * (PIECE / UNIT) as u32 },
        })
    }
}

/// The pieces of blocks, in order.
pub(crate) fn pieces(blocks: &[Block]) -> Vec<Place> {
    blocks.iter().flat_map(|block| block.pieces()).collect()
}

/// What is free, by class.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    machines: usize,
    drives: usize,
    /// Blocks of memory that are free, of all machines.
    memory: u64,
    /// Blocks of each drive, and how many of each are given out.
    drive_blocks: u64,
    given: Vec<u64>,
    turn: usize,
}

impl Space {
    /// All of it: so many bytes of memory over all machines, and so many of each drive, in whole blocks.
    pub(crate) fn new(machines: usize, drives: usize, memory: u64, drive_bytes: u64) -> Self {
        let given = vec![0; drives];
        Self { machines, drives, memory: memory / BLOCK, drive_blocks: drive_bytes / BLOCK, given, turn: 0 }
    }

    /// The next block: in memory while there is any, however far, then on the drives in turn; `None` where all is full.
    pub(crate) fn take(&mut self) -> Option<Block> {
        self.turn += 1;
        if let Some(left) = self.memory.checked_sub(1) {
            self.memory = left;
            return Some(Block(Place::Memory { machine: self.turn % self.machines }));
        }
        let drive = self.turn % self.drives;
        let at = self.given[drive];
        (at < self.drive_blocks).then(|| {
            self.given[drive] += 1;
            Block(Place::Drive { drive, unit: (at * (BLOCK / UNIT)) as u32 })
        })
    }
}
