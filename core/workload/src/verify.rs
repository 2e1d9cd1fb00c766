//! Data that can be recognised, and what a read must return.
//!
//! Every block that a run writes carries who wrote it, where it belongs and which write it was, under a CRC32C:
//!
//! ```text
//!   0        4        8                16               24               28               block size
//!   │ magic  │ crc32c │ offset         │ run            │ generation     │ body …         │
//! ```
//!
//! so that a block that comes back torn (checksum), misplaced (offset), stale (generation) or from an earlier run is told
//! from the right one. [`Verifier`] keeps the generation of every block written in this run, and lets no request overlap
//! one in flight, since there the order would be anybody's.

use crate::generator::{Request, RequestKind, WorkloadError};
use crate::job::JobRegion;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use weir_units::rng::mix;

/// CRC32C of some bytes (`weir-sys` has the hardware's).
pub type Crc = fn(&[u8]) -> u32;

const MAGIC: u32 = u32::from_le_bytes(*b"weir");
const HEADER: usize = 28;
const BUSY: u32 = 1 << 31;
/// A write of this block failed: old or new, nobody knows.
const UNKNOWN: u32 = BUSY - 1;

/// A claim on the blocks of a request in flight; goes back to [`Verifier::finish`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim(u32);

/// What was wrong with a block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where on the drive.
    pub offset: u64,
    /// What was found.
    pub found: FoundData,
}

/// What a block held instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundData {
    /// Zeroes.
    Zeroes,
    /// No block of a verifying run.
    Foreign,
    /// Checksum and content differ: parts of two writes, or damaged.
    Torn {
        /// What the block says.
        says: u32,
        /// What its bytes give.
        is: u32,
    },
    /// A whole block that belongs elsewhere.
    Misplaced {
        /// Where it belongs.
        belongs: u64,
    },
    /// A whole block that an earlier run wrote here.
    OtherRun,
    /// A whole block of an earlier or later write of this run.
    Stale {
        /// The write it is of.
        holds: u32,
        /// The last write that completed here.
        expected: u32,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verification failed at byte {}: ", self.offset)?;
        match self.found {
            FoundData::Zeroes => f.write_str("the block is all zeroes, the write is lost"),
            FoundData::Foreign => f.write_str("the block was not written with --verify"),
            FoundData::Torn { says, is } => {
                write!(f, "the block is torn or damaged (its checksum is {says:08x}, its bytes give {is:08x})")
            }
            FoundData::Misplaced { belongs } => write!(f, "the block belongs to byte {belongs}"),
            FoundData::OtherRun => f.write_str("the block is stale: another run wrote it"),
            FoundData::Stale { holds, expected } => {
                write!(f, "the block is stale: it is of write {holds}, expected is write {expected}")
            }
        }
    }
}

/// What was written where in this run.
#[derive(Clone, Debug)]
pub struct Verifier {
    region: JobRegion,
    block: u32,
    run: u64,
    crc: Crc,
    /// Per block: generation (0: not written in this run, [`UNKNOWN`]) and [`BUSY`].
    blocks: Vec<u32>,
    sequence: u32,
    /// Whether reads of blocks that this run did not write are checked too (they must be of some run).
    strict: bool,
}

/// The most blocks that one job verifies: their table takes 4 bytes each.
const MAX_BLOCKS: u64 = 1 << 28;

impl Verifier {
    /// For a region in blocks of `block` bytes; `run` tells this run's data from every other's; `strict` where the job only
    /// reads, and what it reads must come from some earlier verifying run.
    ///
    /// # Errors
    /// The region is too large to keep account of.
    pub fn new(region: JobRegion, block: u32, run: u64, strict: bool, crc: Crc) -> Result<Self, WorkloadError> {
        let n = region.len / u64::from(block);
        if n > MAX_BLOCKS {
            return Err(WorkloadError(format!(
                "a region of {n} blocks is too large to verify (at most {MAX_BLOCKS}; choose one with region=)"
            )));
        }
        Ok(Verifier { region, block, run, crc, blocks: alloc::vec![0; n as usize], sequence: 0, strict })
    }

    fn range(&self, r: &Request) -> core::ops::Range<usize> {
        let block = u64::from(self.block);
        let first = ((r.offset - self.region.offset) / block) as usize;
        first..(first + (r.len / self.block) as usize).min(self.blocks.len())
    }

    /// Takes the request's blocks for one request alone; `None` while one of them is taken.
    pub fn claim(&mut self, r: &Request) -> Option<Claim> {
        let range = self.range(r);
        let blocks = &mut self.blocks[range];
        if blocks.iter().any(|b| b & BUSY != 0) {
            return None;
        }
        blocks.iter_mut().for_each(|b| *b |= BUSY);
        if r.kind == RequestKind::Read {
            return Some(Claim(0));
        }
        self.sequence = if self.sequence >= UNKNOWN - 1 { 1 } else { self.sequence + 1 };
        Some(Claim(self.sequence))
    }

    /// Fills the buffer of a claimed write.
    pub fn fill(&self, r: &Request, claim: Claim, buffer: &mut [u8]) {
        for (i, block) in buffer[..r.len as usize].chunks_exact_mut(self.block as usize).enumerate() {
            let offset = r.offset + i as u64 * u64::from(self.block);
            let (header, body) = block.split_at_mut(HEADER);
            header[..4].copy_from_slice(&MAGIC.to_le_bytes());
            header[8..16].copy_from_slice(&offset.to_le_bytes());
            header[16..24].copy_from_slice(&self.run.to_le_bytes());
            header[24..28].copy_from_slice(&claim.0.to_le_bytes());
            let mut word = mix(offset ^ self.run.rotate_left(32) ^ u64::from(claim.0));
            for w in body.chunks_mut(8) {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                w.copy_from_slice(&word.to_le_bytes()[..w.len()]);
            }
            let crc = (self.crc)(&block[8..]);
            block[4..8].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Gives the blocks back; `ok` says whether the drive reported success.
    pub fn finish(&mut self, r: &Request, claim: Claim, ok: bool) {
        let range = self.range(r);
        let value = match (r.kind, ok) {
            (RequestKind::Read, _) => {
                self.blocks[range].iter_mut().for_each(|b| *b &= !BUSY);
                return;
            }
            (RequestKind::Write, true) => claim.0,
            // What a deallocated block reads as is the drive's choice (DLFEAT).
            (RequestKind::Trim, _) | (RequestKind::Write, false) => UNKNOWN,
        };
        self.blocks[range].fill(value);
    }

    /// Compares what a read returned with what it must; while it is still claimed.
    ///
    /// # Errors
    /// The first block that is wrong.
    pub fn check(&self, r: &Request, buffer: &[u8]) -> Result<(), Mismatch> {
        let known = &self.blocks[self.range(r)];
        for (i, (block, state)) in buffer[..r.len as usize].chunks_exact(self.block as usize).zip(known).enumerate() {
            let expected = match state & !BUSY {
                UNKNOWN => continue,
                0 if !self.strict => continue,
                0 => None,
                generation => Some(generation),
            };
            let offset = r.offset + i as u64 * u64::from(self.block);
            self.check_block(offset, block, expected).map_err(|found| Mismatch { offset, found })?;
        }
        Ok(())
    }

    fn check_block(&self, offset: u64, block: &[u8], expected: Option<u32>) -> Result<(), FoundData> {
        let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC {
            return Err(if block.iter().all(|b| *b == 0) { FoundData::Zeroes } else { FoundData::Foreign });
        }
        let (says, is) = (word(4), (self.crc)(&block[8..]));
        if says != is {
            return Err(FoundData::Torn { says, is });
        }
        if long(8) != offset {
            return Err(FoundData::Misplaced { belongs: long(8) });
        }
        let Some(expected) = expected else { return Ok(()) };
        if long(16) != self.run {
            return Err(FoundData::OtherRun);
        }
        match word(24) {
            holds if holds == expected => Ok(()),
            holds => Err(FoundData::Stale { holds, expected }),
        }
    }

    /// The next stretch of blocks that this run wrote, from byte `from` of the drive on and at most `max` bytes long: what the
    /// final reading pass has to read. `None` at the end.
    pub fn written(&self, from: u64, max: u32) -> Option<Request> {
        let block = u64::from(self.block);
        let is_known = |b: &u32| !matches!(b & !BUSY, 0 | UNKNOWN);
        let start = (from.max(self.region.offset) - self.region.offset).div_ceil(block) as usize;
        let first = start + self.blocks.get(start..)?.iter().position(is_known)?;
        let most = ((max / self.block) as usize).max(1);
        let n = self.blocks[first..].iter().take(most).take_while(|b| is_known(b)).count();
        Some(Request {
            kind: RequestKind::Read,
            offset: self.region.offset + first as u64 * block,
            len: n as u32 * self.block,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec;

    /// Bit by bit, as the standard defines it.
    fn crc32c(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
        })
    }

    const REGION: JobRegion = JobRegion { offset: 8192, len: 64 * 512 };

    fn verifier(run: u64, strict: bool) -> Verifier {
        Verifier::new(REGION, 512, run, strict, crc32c).unwrap()
    }

    /// A drive of plain bytes, which the tests damage.
    struct Disk(Vec<u8>);

    impl Disk {
        fn new() -> Self {
            Disk(vec![0; (REGION.offset + REGION.len) as usize])
        }
        fn write(&mut self, v: &mut Verifier, offset: u64, len: u32) {
            let r = Request { kind: RequestKind::Write, offset, len };
            let claim = v.claim(&r).unwrap();
            v.fill(&r, claim, &mut self.0[offset as usize..]);
            v.finish(&r, claim, true);
        }
        fn read(&self, v: &mut Verifier, offset: u64, len: u32) -> Result<(), Mismatch> {
            let r = Request { kind: RequestKind::Read, offset, len };
            let claim = v.claim(&r).unwrap();
            let out = v.check(&r, &self.0[offset as usize..]);
            v.finish(&r, claim, true);
            out
        }
    }

    #[test]
    fn known_checksum() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_was_written_is_right() {
        let (mut v, mut d) = (verifier(1, false), Disk::new());
        d.write(&mut v, 8192, 4096);
        d.write(&mut v, 9216, 512);
        assert_eq!(d.read(&mut v, 8192, 4096), Ok(()));
        assert_eq!(d.read(&mut v, 16384, 4096), Ok(()), "nothing is known of blocks that were not written");
    }

    #[test]
    fn each_damage_is_told_apart() {
        let found = |damage: &dyn Fn(&mut Disk, &mut Verifier)| {
            let (mut v, mut d) = (verifier(1, false), Disk::new());
            d.write(&mut v, 8192, 4096);
            d.write(&mut v, 8192, 4096);
            damage(&mut d, &mut v);
            d.read(&mut v, 8192, 4096).unwrap_err()
        };
        let zeroes = found(&|d, _| d.0[8704..9216].fill(0));
        assert_eq!(zeroes, Mismatch { offset: 8704, found: FoundData::Zeroes });
        assert_eq!(found(&|d, _| d.0[8192] ^= 1).found, FoundData::Foreign);
        assert!(matches!(found(&|d, _| d.0[8192 + 511] ^= 0x80).found, FoundData::Torn { .. }));
        assert!(
            matches!(found(&|d, _| d.0[8192 + 24] ^= 1).found, FoundData::Torn { .. }),
            "the generation is covered"
        );
        let moved = found(&|d, _| d.0.copy_within(8192..8704, 9216));
        assert_eq!(moved, Mismatch { offset: 9216, found: FoundData::Misplaced { belongs: 8192 } });
        let stale = found(&|d, v| {
            let old = d.0.clone();
            d.write(v, 8704, 512);
            d.0 = old;
        });
        assert_eq!(stale, Mismatch { offset: 8704, found: FoundData::Stale { holds: 2, expected: 3 } });
        let half = found(&|d, v| {
            let old = d.0[8192..8192 + 256].to_vec();
            d.write(v, 8192, 512);
            d.0[8192..8192 + 256].copy_from_slice(&old);
        });
        assert!(matches!(half.found, FoundData::Torn { .. }), "the first half of the old write, the second of the new");
        let other = found(&|d, _| d.write(&mut verifier(2, false), 8192, 512));
        assert_eq!(other, Mismatch { offset: 8192, found: FoundData::OtherRun });
        for m in [zeroes, moved, stale, half, other] {
            assert!(m.to_string().starts_with("verification failed at byte "));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(byte in 0usize..1024, bit in 0u8..8) {
            let (mut v, mut d) = (verifier(1, false), Disk::new());
            d.write(&mut v, 8192, 1024);
            d.0[8192 + byte] ^= 1 << bit;
            prop_assert!(d.read(&mut v, 8192, 1024).is_err());
        }

        #[test]
        fn any_tear_is_seen(at in 1usize..2048) {
            let (mut v, mut d) = (verifier(1, false), Disk::new());
            d.write(&mut v, 8192, 2048);
            let old = d.0.clone();
            d.write(&mut v, 8192, 2048);
            d.0[8192 + at..].copy_from_slice(&old[8192 + at..]);
            prop_assert!(d.read(&mut v, 8192, 2048).is_err());
        }
    }

    #[test]
    fn overlapping_requests_wait() {
        let mut v = verifier(1, false);
        let w = Request { kind: RequestKind::Write, offset: 8192, len: 1024 };
        let r = Request { kind: RequestKind::Read, offset: 8704, len: 1024 };
        let claim = v.claim(&w).unwrap();
        assert_eq!(v.claim(&r), None);
        v.finish(&w, claim, true);
        let claim = v.claim(&r).unwrap();
        assert_eq!(v.claim(&w), None);
        v.finish(&r, claim, true);
        assert!(v.claim(&w).is_some());
    }

    #[test]
    fn failed_writes_and_trims_prove_nothing() {
        let (mut v, mut d) = (verifier(1, false), Disk::new());
        d.write(&mut v, 8192, 1024);
        for (kind, offset, ok) in [(RequestKind::Write, 8192, false), (RequestKind::Trim, 8704, true)] {
            let r = Request { kind, offset, len: 512 };
            let claim = v.claim(&r).unwrap();
            v.finish(&r, claim, ok);
        }
        d.0.fill(0);
        assert_eq!(d.read(&mut v, 8192, 1024), Ok(()));
        assert_eq!(v.written(0, 4096), None);
    }

    #[test]
    fn strict_reads_want_some_run() {
        let (mut v, mut d) = (verifier(1, false), Disk::new());
        d.write(&mut v, 8192, 512);
        let mut s = verifier(2, true);
        assert_eq!(d.read(&mut s, 8192, 512), Ok(()));
        assert_eq!(d.read(&mut s, 8704, 512).unwrap_err().found, FoundData::Zeroes);
    }

    #[test]
    fn the_reading_pass_covers_what_was_written() {
        let (mut v, mut d) = (verifier(1, false), Disk::new());
        for (offset, len) in [(8192, 512), (9216, 2048), (REGION.offset + REGION.len - 512, 512)] {
            d.write(&mut v, offset, len);
        }
        let mut from = 0;
        let mut got = vec![];
        while let Some(r) = v.written(from, 1024) {
            got.push((r.offset, r.len));
            from = r.offset + u64::from(r.len);
        }
        assert_eq!(got, [(8192, 512), (9216, 1024), (10240, 1024), (REGION.offset + REGION.len - 512, 512)]);
    }

    #[test]
    fn a_region_too_large_is_refused() {
        let huge = JobRegion { offset: 0, len: 1 << 40 };
        assert!(Verifier::new(huge, 512, 1, false, crc32c).is_err());
    }
}
