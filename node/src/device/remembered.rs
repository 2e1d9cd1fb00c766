//! What a drive in a file remembers without power, between its machine and the file beside its media.

use super::error::OpenError;
use super::handover;
use std::path::Path;
use weir_config::{DeviceConfig, MediaConfig};
use weir_controller::{SavedError, Subsystem};
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{MediaError, NonvolatileFile};
use weir_units::Nanos;

/// The file, and the generation of the machine's state that was written last, or could not be.
pub(super) struct Kept {
    pub(super) file: NonvolatileFile,
    pub(super) tried: u64,
    /// Where it could not be written: when that is tried again, unless it changes before.
    pub(super) again: Option<Nanos>,
}

impl Kept {
    fn new(file: NonvolatileFile) -> Self {
        // What the power cut short has been noted: that is written at the first run.
        Kept { file, tried: 0, again: None }
    }

    /// When there is something to be written that could not be.
    pub(super) fn again(&self) -> Nanos {
        self.again.unwrap_or(Nanos::NEVER)
    }
}

/// Whether there is nothing in a file, so that a drive in it is new.
pub(super) fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |m| m.is_file() && m.len() == 0)
}

/// Gives a machine what it remembered, where its media is a file.
///
/// # Errors
/// The file beside it cannot be used; says what to do.
pub(super) fn remember(
    config: &DeviceConfig,
    is_new: bool,
    machine: &mut Subsystem,
    keep: &Keep,
) -> Result<Option<Kept>, OpenError> {
    let MediaConfig::File(path) = &config.media else {
        return if config.media == MediaConfig::Ram { remember_in_memory(config, machine, keep) } else { Ok(None) };
    };
    let beside = NonvolatileFile::path_of(path);
    let (file, blob) = match NonvolatileFile::open(path, is_new, keep.generation() > 0) {
        // Where nothing was remembered and nothing can be, a drive is what it was made as after each start.
        Err(e @ MediaError::Io { .. }) if !beside.exists() => {
            tracing::warn!("{e}; what hosts tell the drive to remember ends with this process");
            return Ok(None);
        }
        opened => opened?,
    };
    if let Some(blob) = blob {
        let advice = "remove it, and the drive begins with nothing remembered";
        let refused = |e: SavedError| OpenError::Flash(format!("{}: {e}; {advice}", beside.display()));
        machine.restore(&blob).map_err(refused)?;
    }
    Ok(Some(Kept::new(file)))
}

/// The same for a drive in memory, in memory that outlives the process; without a keeper there is none.
fn remember_in_memory(config: &DeviceConfig, machine: &mut Subsystem, keep: &Keep) -> Result<Option<Kept>, OpenError> {
    let Some(fd) = handover::memory(&format!("nvme:{}", config.name), keep)? else { return Ok(None) };
    let path = format!("what device {} remembers", config.name);
    let (file, blob) = NonvolatileFile::in_memory(fd, path.clone().into(), keep.generation() > 0)?;
    if let Some(blob) = blob {
        machine.restore(&blob).map_err(|e| OpenError::Flash(format!("{path}: {e}")))?;
    }
    Ok(Some(Kept::new(file)))
}
