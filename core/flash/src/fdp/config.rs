//! What the placement handles of a drive are like.

use crate::config::{ConfigError, FtlConfig, Mapping};
use crate::ftl::Separate;
use crate::geometry::Shape;
use crate::name::names;
use alloc::format;
use alloc::string::String;

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

    /// Whether that fits the flash and what else the FTL does.
    pub(crate) fn check(&self, shape: &Shape, ftl: &FtlConfig) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(ConfigError::Key { key, message });
        let FdpConfig { groups, handles, persistent, blocks } = *self;
        if !matches!(ftl.mapping, Mapping::Page | Mapping::Cached) {
            return wrong(
                "ftl.mapping",
                format!("is \"{}\"; placement handles need \"page\" or \"cached\"", ftl.mapping),
            );
        }
        if ftl.slc.blocks > 0 {
            return wrong(
                "ftl.slc.blocks",
                "is not 0; data of placement handles does not pass pseudo-SLC blocks".into(),
            );
        }
        if ftl.separation != Separate::None || ftl.streams != 1 {
            let key = if ftl.streams == 1 { "ftl.separation" } else { "ftl.streams" };
            return wrong(key, "is given; placement handles say already what is kept apart".into());
        }
        if groups == 0 || shape.dies() % u32::from(groups) != 0 {
            let message = format!("is {groups}; the drive's {} dies must be a multiple of it", shape.dies());
            return wrong("ftl.fdp.groups", message);
        }
        if !(1..=Self::MAX_HANDLES).contains(&handles) || persistent.checked_shr(handles.into()).unwrap_or(0) != 0 {
            return wrong("ftl.fdp.handles", format!("is {handles}; 1 to {}", Self::MAX_HANDLES));
        }
        if u32::from(groups) * u32::from(handles) > Self::MAX_STREAMS.into() {
            let message = format!(
                "and ftl.fdp.handles are {groups} and {handles}; the drive tells at most {} pairs of them apart",
                Self::MAX_STREAMS
            );
            return wrong("ftl.fdp.groups", message);
        }
        if blocks == 0 || blocks > shape.blocks_per_plane() {
            let message = format!("is {blocks}; from 1 to the blocks of a plane, {}", shape.blocks_per_plane());
            return wrong("ftl.fdp.blocks", message);
        }
        Ok(())
    }
}

impl FtlConfig {
    /// Write points that each plane has for the host's data, and those of moved data beyond the usual one.
    pub(crate) fn write_points(&self) -> (u32, u32) {
        self.fdp.map_or((self.streams.into(), 0), |fdp| (fdp.handles.into(), fdp.keepers()))
    }

    /// Streams that the write buffer keeps apart.
    pub(crate) fn host_streams(&self) -> u8 {
        self.fdp.map_or(self.streams, |fdp| fdp.streams())
    }
}
