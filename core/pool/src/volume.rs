//! A volume, and how it may be called.

use crate::extent::{Extent, VolumeSegment};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Characters of a name at the most.
pub const NAME_MAX: usize = 64;

/// Sixteen bytes that name a pool, a drive or a volume for good (RFC 9562).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A volume of a pool: never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

/// What a drive has of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the record on that drive.
    pub version: u64,
    /// In the order of the volume.
    pub extents: Vec<Extent>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Of the pool.
    pub id: VolumeId,
    /// What it is called, once in the pool.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Its own, for hosts.
    pub uuid: Uuid,
    /// Its size.
    pub chunks: u32,
    /// The drive that has its first chunk and its record, by its number in the pool.
    pub(crate) home: u16,
    pub(crate) parts: BTreeMap<u16, Part>,
}

impl Volume {
    /// Where its chunks lie, in its order; `position` turns a drive's number in the pool into its place in the list. `None`
    /// unless every chunk is somewhere, once.
    pub(crate) fn segments(&self, position: impl Fn(u16) -> usize) -> Option<Vec<VolumeSegment>> {
        let of = |(drive, part): (&u16, &Part)| {
            let drive = position(*drive);
            let segment =
                move |e: &Extent| VolumeSegment { logical: e.logical, drive, start: e.run.start, len: e.run.len };
            part.extents.iter().map(segment).collect::<Vec<_>>()
        };
        let mut all: Vec<VolumeSegment> = self.parts.iter().flat_map(of).collect();
        all.sort_by_key(|s| s.logical);
        let mut at = 0u64;
        let mut merged: Vec<VolumeSegment> = Vec::new();
        for s in all {
            if u64::from(s.logical) != at || s.len == 0 {
                return None;
            }
            at += u64::from(s.len);
            if at > u64::from(self.chunks) {
                return None;
            }
            match merged.last_mut() {
                Some(m) if m.drive == s.drive && u64::from(m.start) + u64::from(m.len) == u64::from(s.start) => {
                    m.len += s.len;
                }
                _ => merged.push(s),
            }
        }
        (at == u64::from(self.chunks) && at > 0).then_some(merged)
    }
}

/// Whether a volume or a pool may be called so.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Err("a name has at least one character");
    }
    if name.len() > NAME_MAX {
        return Err("a name has 64 characters at the most");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain) {
        return Err("a name begins with a letter or a digit and goes on with these, '.', '_' or '-'");
    }
    Ok(())
}
