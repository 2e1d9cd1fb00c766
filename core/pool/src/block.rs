//! Entries as blocks, and where the blocks of the two copies lie.
//!
//! ```text
//!  drive  │ copy 0: 16 blocks │ copy 1: 16 blocks │ copy 0: 16 blocks │ …          stripes of 64 KiB, from the beginning of the drive
//!  block  │ magic 8 │ version 4 │ length 4 │ drive 16 │ generation 8 │ entry 4 │ part 4 │ parts 4 │ place 4 │ copy 4 │ sum 4 │ payload │ crc 4 │
//! ```

use crate::record::Record;
use crate::volume::Uuid;
use alloc::vec::Vec;
use weir_codec::Writer;

/// Bytes of a block of metadata, written whole or not at all as far as a checksum can tell.
pub const BLOCK: usize = 4096;
/// Bytes of a copy that lie together.
pub const STRIPE: usize = 64 << 10;
/// CRC32C (Castagnoli) of some bytes, by whoever has it in hardware.
pub type Crc32c = fn(&[u8]) -> u32;

pub(crate) const STRIPE_BLOCKS: u32 = (STRIPE / BLOCK) as u32;
/// What each copy of a drive's metadata begins with. The first copy lies at the beginning of the drive, the second one behind [`STRIPE`].
pub const MAGIC: [u8; 8] = *b"WEIRPOOL";
/// The layout that is written.
pub(crate) const LAYOUT: u32 = 3;
/// The first one whose drives describe the volumes of other drives: a pool of an older one does not come up without a drive.
pub(crate) const MIRRORED: u32 = 3;
/// The oldest that is read, and written where a pool must stay as it was found.
pub(crate) const OLDEST: u32 = 1;
const HEAD: usize = 64;
const CRC_AT: usize = BLOCK - 4;
/// Bytes of an entry in a block.
pub(crate) const PAYLOAD: usize = CRC_AT - HEAD;

/// Where a block of a copy lies, in bytes of the drive.
pub(crate) fn place(copy: u8, block: u32) -> u64 {
    let stripe = u64::from(block / STRIPE_BLOCKS) * 2 + u64::from(copy);
    stripe * STRIPE as u64 + u64::from(block % STRIPE_BLOCKS) * BLOCK as u64
}

/// The copy that has that byte of the drive.
pub(crate) fn copy_at(offset: u64) -> u8 {
    (offset / STRIPE as u64 % 2) as u8
}

/// Which entry of which copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub drive: Uuid,
    pub layout: u32,
    pub generation: u64,
    pub entry: u32,
    /// Its first block.
    pub block: u32,
    pub copy: u8,
}

/// The payload of an entry, in that layout.
pub(crate) fn payload(records: &[Record], layout: u32) -> Vec<u8> {
    let mut to = Writer::default();
    records.iter().for_each(|record| record.put(&mut to, layout));
    to.done()
}

/// Blocks that an entry of so many bytes takes.
pub(crate) fn blocks_of(payload: usize) -> u32 {
    payload.div_ceil(PAYLOAD).max(1) as u32
}

/// The blocks of an entry.
pub(crate) fn encode(at: &Address, payload: &[u8], crc: Crc32c) -> Vec<u8> {
    let (parts, sum) = (blocks_of(payload.len()), crc(payload));
    let mut out = Vec::with_capacity(parts as usize * BLOCK);
    for part in 0..parts {
        let from = part as usize * PAYLOAD;
        let piece = &payload[from.min(payload.len())..(from + PAYLOAD).min(payload.len())];
        let begin = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&at.layout.to_le_bytes());
        out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        out.extend_from_slice(&at.drive.0);
        out.extend_from_slice(&at.generation.to_le_bytes());
        for word in [at.entry, part, parts, at.block + part, at.copy.into(), sum] {
            out.extend_from_slice(&u32::to_le_bytes(word));
        }
        out.extend_from_slice(piece);
        out.resize(begin + CRC_AT, 0);
        let sum = crc(&out[begin..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }
    out
}

/// A whole block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub layout: u32,
    pub drive: Uuid,
    pub generation: u64,
    pub entry: u32,
    pub part: u32,
    pub parts: u32,
    /// CRC32C of the whole entry's payload: blocks of two entries that were begun at one place are told apart.
    pub sum: u32,
    pub payload: &'a [u8],
}

/// What is at the place of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockContents<'a> {
    Whole(Block<'a>),
    /// Whole, of a layout that this release does not know.
    Version(u32),
    Nothing,
}

/// Looks at the bytes of the place of a block.
pub(crate) fn decode(bytes: &[u8], copy: u8, block: u32, crc: Crc32c) -> BlockContents<'_> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if bytes.len() != BLOCK || bytes[..8] != MAGIC || word(CRC_AT) != crc(&bytes[..CRC_AT]) {
        return BlockContents::Nothing;
    }
    let layout = word(8);
    if !(OLDEST..=LAYOUT).contains(&layout) {
        return BlockContents::Version(layout);
    }
    let (length, entry, part, parts) = (word(12) as usize, word(40), word(44), word(48));
    if length > PAYLOAD || part >= parts || (word(52), word(56)) != (block, u32::from(copy)) {
        return BlockContents::Nothing;
    }
    BlockContents::Whole(Block {
        layout,
        drive: Uuid(bytes[16..32].try_into().expect("sixteen bytes")),
        generation: u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes")),
        entry,
        part,
        parts,
        sum: word(60),
        payload: &bytes[HEAD..HEAD + length],
    })
}

/// Whether the first stripe of a copy can be what interrupted makings of a pool left: nothing, or a first block without its checksum,
/// or that says that the pool was never opened. A pool that was says how often, and what is somebody else's does not begin as ours.
pub(crate) fn is_half_made(stripe: &[u8]) -> bool {
    let zeroes = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
    let (block, rest) = stripe.split_at(BLOCK.min(stripe.len()));
    let begun = || block.starts_with(&MAGIC) && zeroes(&block[HEAD + 1..HEAD + 9]);
    stripe.len() == STRIPE && zeroes(rest) && (zeroes(&block[..CRC_AT]) || begun())
}
