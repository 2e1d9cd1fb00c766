//! Whether placement handles fit the flash and what else the FTL does.

use super::config::FdpConfig;
use crate::config::{FtlConfig, Mapping};
use crate::config_error::ConfigError;
use crate::ftl::Separate;
use crate::geometry::Shape;
use alloc::format;
use alloc::string::String;

impl FdpConfig {
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
