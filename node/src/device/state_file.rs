//! Which file a drive's state lies beside.

use std::path::Path;
use weir_config::{DeviceConfig, MediaConfig};

/// The file beside which the drive's state is kept.
pub(super) fn beside(config: &DeviceConfig) -> Option<&Path> {
    match &config.media {
        MediaConfig::File(path) if config.flash.is_some() || config.zoned.is_some() => Some(path),
        _ => None,
    }
}
