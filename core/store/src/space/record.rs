//! What the index says of an extent of a region, its keys and its bytes.
//!
//! ```text
//!   key  'g' region u64                 lease record    version u8 = 1 │ service u64 │ term u64
//!   key  'e' region u64 offset u64      extent record   version u8 = 1 │ use u8 │ length u64 │ generation u64 │
//!                                                       use 1: session u64 │ use 2: inode u64, block u64 │ use 3: –
//!   key  'E'                            epoch           version u8 = 1 │ epoch u64
//! ```
//! Numbers in keys are big-endian, so that keys are in the order of offsets; in values they are little-endian.

use super::GRAIN;
use crate::keys::KeySpace;
use crate::kv::KvKey;
use crate::{Generation, InodeId, RegionId, ServiceId, SessionId, Term};
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};

const VERSION: u8 = 1;

/// How often the services of a store have asked all sessions to let go of older block maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// What the bytes of an extent are used for; bytes without a record are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentUse {
    /// A session may write to it and publish it.
    Granted(SessionId),
    /// A published block of a file: the inode, and the block's number in it.
    Mapped(InodeId, u64),
    /// It was given up. A session may still read or write it.
    Quarantined,
}

/// An extent's record; its region and offset are in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRecord {
    /// In bytes, a multiple of [`GRAIN`].
    pub len: u64,
    /// One lifetime of the bytes, from their grant until they are free: no two lifetimes have the same number. The term of the grant
    /// in the upper half, a count within the term in the lower.
    pub generation: Generation,
    /// What it is used for.
    pub used: ExtentUse,
}

impl ExtentRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(VERSION);
        let kind = match self.used {
            ExtentUse::Granted(_) => 1,
            ExtentUse::Mapped(..) => 2,
            ExtentUse::Quarantined => 3,
        };
        to.u8(kind);
        to.u64(self.len);
        to.put(&self.generation);
        match self.used {
            ExtentUse::Granted(session) => to.put(&session),
            ExtentUse::Mapped(inode, block) => {
                to.put(&inode);
                to.u64(block);
            }
            ExtentUse::Quarantined => {}
        }
        to.done()
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// They are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut from = versioned(bytes)?;
        let (kind, len, generation) = (from.u8()?, from.u64()?, from.get()?);
        let used = match kind {
            1 => ExtentUse::Granted(from.get()?),
            2 => ExtentUse::Mapped(from.get()?, from.u64()?),
            3 => ExtentUse::Quarantined,
            _ => return Err(Damaged),
        };
        from.end()?;
        if len > 0 && len % GRAIN == 0 { Ok(Self { len, generation, used }) } else { Err(Damaged) }
    }
}

/// The number of a grant within a term; `None` when the term has no more numbers, which ends when it is raised.
pub(crate) fn generation(term: Term, count: u64) -> Option<Generation> {
    let fits = term.0 <= u64::from(u32::MAX) && count <= u64::from(u32::MAX);
    fits.then_some(Generation(term.0 << 32 | count))
}

/// Who a region is leased to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLease {
    /// The service that gives out its blocks. A service that starts again has another number.
    pub service: ServiceId,
    /// Raised with every takeover.
    pub term: Term,
}

impl RegionLease {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(VERSION);
        to.put(&self.service);
        to.put(&self.term);
        to.done()
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// They are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut from = versioned(bytes)?;
        let lease = Self { service: from.get()?, term: from.get()? };
        from.end().map(|()| lease)
    }
}

impl Epoch {
    /// Its bytes in Kv.
    pub fn encode(self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(VERSION);
        to.u64(self.0);
        to.done()
    }

    /// The epoch of these bytes; a key without a value stands for epoch 0.
    ///
    /// # Errors
    /// They are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut from = versioned(bytes)?;
        let epoch = Self(from.u64()?);
        from.end().map(|()| epoch)
    }

    /// Where it is.
    pub fn key() -> KvKey {
        KeySpace::Epoch.key(&[])
    }
}

fn versioned(bytes: &[u8]) -> Result<Reader<'_>, Damaged> {
    let mut from = Reader::of(bytes);
    if from.u8()? == VERSION { Ok(from) } else { Err(Damaged) }
}

/// The key of a region's lease.
pub fn lease_key(region: RegionId) -> KvKey {
    KeySpace::RegionLease.number(region.0)
}

/// The key of an extent's record; its offset in bytes of the namespace.
pub fn extent_key(region: RegionId, offset: u64) -> KvKey {
    KeySpace::Extent.key(&[region.0.to_be_bytes(), offset.to_be_bytes()].concat())
}

/// The first key behind all records of a region.
pub(crate) fn extents_end(region: RegionId) -> KvKey {
    region.next().map_or_else(|| KeySpace::Extent.end(), |next| KeySpace::Extent.number(next.0))
}

/// The offset in the key of a record of that region.
pub(crate) fn offset_of(region: RegionId, key: &KvKey) -> Option<u64> {
    let rest = key.0.strip_prefix(&[KeySpace::Extent as u8])?.strip_prefix(&region.0.to_be_bytes())?;
    Some(u64::from_be_bytes(rest.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| alloc::format!("{b:02x}")).collect()
    }

    #[test]
    fn the_bytes_are_these() {
        let record = |used| ExtentRecord { len: 0x10_0000, generation: Generation(0x2_0000_0003), used };
        for (record, bytes) in [
            (record(ExtentUse::Granted(SessionId(7))), "0101000010000000000003000000020000000700000000000000"),
            (
                record(ExtentUse::Mapped(InodeId(9), 4)),
                "01020000100000000000030000000200000009000000000000000400000000000000",
            ),
            (record(ExtentUse::Quarantined), "010300001000000000000300000002000000"),
        ] {
            assert_eq!(hex(&record.encode()), bytes);
            assert_eq!(ExtentRecord::decode(&record.encode()), Ok(record));
            for cut in 0..record.encode().len() {
                assert_eq!(ExtentRecord::decode(&record.encode()[..cut]), Err(Damaged), "cut at {cut}");
            }
        }
        let lease = RegionLease { service: ServiceId(3), term: Term(0x102) };
        assert_eq!(hex(&lease.encode()), "0103000000000000000201000000000000");
        assert_eq!(RegionLease::decode(&lease.encode()), Ok(lease));
        assert_eq!(RegionLease::decode(&lease.encode()[..16]), Err(Damaged));
        assert_eq!(
            (hex(&Epoch(5).encode()), Epoch::decode(&Epoch(5).encode())),
            ("010500000000000000".into(), Ok(Epoch(5)))
        );
        assert_eq!(hex(&lease_key(RegionId(2)).0), "670000000000000002");
        assert_eq!(hex(&extent_key(RegionId(2), 0x1000).0), "6500000000000000020000000000001000");
        assert_eq!(hex(&Epoch::key().0), "45");
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = ExtentRecord { len: GRAIN, generation: Generation(1), used: ExtentUse::Quarantined }.encode();
        for (at, value) in [(0, 2), (1, 0), (1, 4), (1, 1), (2, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(ExtentRecord::decode(&bad), Err(Damaged), "byte {at} is {value}");
        }
        let none = ExtentRecord { len: 0, generation: Generation(1), used: ExtentUse::Quarantined };
        assert_eq!(ExtentRecord::decode(&none.encode()), Err(Damaged));
        assert_eq!((generation(Term(1 << 32), 0), generation(Term(1), 1 << 32)), (None, None));
        assert_eq!(generation(Term(2), 3), Some(Generation(0x2_0000_0003)));
    }

    #[test]
    fn keys_are_in_the_order_of_offsets_and_end_before_the_next_region() {
        let region = RegionId(7);
        assert!(extent_key(region, 255) < extent_key(region, 256));
        assert!(
            extent_key(region, u64::MAX) < extents_end(region) && extents_end(region) <= extent_key(RegionId(8), 0)
        );
        assert!(extent_key(RegionId(u64::MAX), u64::MAX) < extents_end(RegionId(u64::MAX)));
        assert_eq!(offset_of(region, &extent_key(region, 77)), Some(77));
        assert_eq!(offset_of(RegionId(8), &extent_key(region, 77)), None);
    }
}
