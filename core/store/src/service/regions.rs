//! Where the regions of a namespace are, and their numbers.

use crate::Extent;
use crate::id::{NamespaceId, RegionId};
use crate::records::NamespaceRecord;
use crate::space::{REGION_MIN, RegionInfo};
use alloc::vec::Vec;

/// What a namespace has before its first region: its label lies there.
pub(super) const HEAD: u64 = 1 << 20;

/// Bytes of a namespace that can be donated, at the least: a label and a region.
pub const NAMESPACE_MIN: u64 = HEAD + REGION_MIN;

/// Bits of a region's number that tell it from others of its namespace.
const REGION_BITS: u32 = 16;

/// The regions of a namespace: the last one has what is left.
pub(crate) fn regions(number: NamespaceId, record: &NamespaceRecord) -> Vec<RegionInfo> {
    let grain = crate::space::GRAIN;
    let end = record.bytes / grain * grain;
    let count = end.saturating_sub(HEAD).checked_div(record.region).unwrap_or(0).min(1 << REGION_BITS);
    let info = |at: u64| {
        let offset = HEAD + at * record.region;
        let length = if at + 1 == count { end - offset } else { record.region };
        let extent = Extent { namespace: number, offset: offset.into(), length: length.into() };
        RegionInfo { id: RegionId(number.get() << REGION_BITS | at), extent }
    };
    (0..count).map(info).collect()
}

/// The numbers that regions of a namespace have.
pub(crate) fn regions_of(namespace: NamespaceId) -> core::ops::RangeInclusive<RegionId> {
    let first = namespace.get() << REGION_BITS;
    RegionId(first)..=RegionId(first | ((1 << REGION_BITS) - 1))
}

pub(super) fn namespace_of(region: RegionId) -> NamespaceId {
    NamespaceId(region.get() >> REGION_BITS)
}
