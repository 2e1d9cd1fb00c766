//! What the placement handles of a drive are like.

use crate::name::names;

/// What collection may do with the data of a reclaim unit handle (RUHT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Initially isolated: what is moved may lie beside what other handles wrote.
    Initial,
    /// Persistently isolated: what is moved stays apart as well.
    Persistent,
}

names!(Isolation, "isolation of reclaim unit handles", Initial = "initial", Persistent = "persistent");

/// Flexible data placement (base 2.1, 8.1.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdpConfig {
    /// Reclaim groups: each has as many dies as the others, one after the other in the drive's numbering.
    pub groups: u16,
    /// Reclaim unit handles.
    pub handles: u8,
    /// Handles that are persistently isolated, one bit each; the others are initially isolated.
    pub persistent: u32,
    /// Size of a reclaim unit: blocks of each plane of its group.
    pub blocks: u32,
}

impl FdpConfig {
    /// The most reclaim unit handles.
    pub const MAX_HANDLES: u8 = 32;
    /// The most pairs of a reclaim group and a handle.
    pub const MAX_STREAMS: u16 = 128;
    /// One group, eight handles, superblocks over all planes.
    pub const DEFAULT: FdpConfig = FdpConfig { groups: 1, handles: 8, persistent: 0, blocks: 1 };

    /// The isolation of a handle.
    pub const fn isolation(&self, handle: u8) -> Isolation {
        if self.persistent >> (handle & 31) & 1 == 1 { Isolation::Persistent } else { Isolation::Initial }
    }

    /// With that isolation for every handle.
    pub const fn with_isolation(self, isolation: Isolation) -> Self {
        let persistent = match isolation {
            Isolation::Initial => 0,
            Isolation::Persistent if self.handles < 32 => (1 << self.handles) - 1,
            Isolation::Persistent => u32::MAX,
        };
        Self { persistent, ..self }
    }

    /// Pairs of a group and a handle.
    pub(crate) const fn streams(&self) -> u8 {
        (self.groups * self.handles as u16) as u8
    }

    /// Handles whose moved data has write points of its own.
    pub(crate) const fn keepers(&self) -> u32 {
        self.persistent.count_ones()
    }
}
