//! Drives in memory that outlive the worker: their memory files are held by the keeper under the drive's name.

use super::OpenError;
use std::os::fd::{AsFd, OwnedFd};
use weir_config::{DeviceConfig, FlashConfig, MediaConfig};
use weir_drive::FlashService;
use weir_sys::arena::Schema;
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{FLASH_MAP_SCHEMA, FlashState, Media, MediaError, RAM_SCHEMA, REGIONS_SCHEMA, Ram, Spec, Store};
use weir_units::Nanos;

/// Names of drives' bytes; the drive's follows.
const RAM: &str = "ram:";
/// Names of the bytes of drives of zones or chunks, which are worth nothing without the state that goes with them: a drive that is configured to be
/// of another kind finds neither.
const ZONED: &str = "zoned:";
/// Names of drives' flash.
const FLASH: &str = "flash:";
/// Names of drives' page maps.
const MAP: &str = "map:";
/// Names of what zones and chunks are.
const REGIONS: &str = "regions:";

/// Under which name the page map of a drive is held.
pub(super) fn map(config: &DeviceConfig) -> String {
    format!("{MAP}{}", config.name)
}

/// Which of the names that are held are regions of drives, which are mapped beforehand. Of a drive's flash that is its page map, which commands
/// use at once; the spare areas are used block by block, and lie with the media.
pub fn region(name: &str) -> Option<Schema> {
    let is = |prefix, schema| name.starts_with(prefix).then_some(schema);
    let bytes = is(RAM, RAM_SCHEMA).or(is(ZONED, RAM_SCHEMA));
    bytes.or(is(MAP, FLASH_MAP_SCHEMA)).or(is(REGIONS, REGIONS_SCHEMA))
}

/// A drive's bytes, as they were left, or new ones.
pub(super) fn ram(config: &DeviceConfig, spec: &Spec, keep: &Keep) -> Result<Media, MediaError> {
    let in_regions = config.zoned.is_some() || config.open_channel.is_some();
    let name = format!("{}{}", if in_regions { ZONED } else { RAM }, spec.name);
    let Some(arena) = keep.take_region(&name, RAM_SCHEMA) else {
        let media = Media::open(spec)?;
        if let Media::Store(Store::Ram(ram)) = &media {
            keep.hold(&name, &[ram.arena().fd()]).map_err(|e| MediaError::kept(&name, e))?;
        }
        return Ok(media);
    };
    let arena = arena?;
    // Whoever had it before is dead; should it not be, it finds its epoch gone.
    let epoch = arena.epoch();
    let _ = arena.claim(epoch);
    let ram = Ram::open(arena)?;
    match spec.capacity {
        Some(wanted) if wanted != ram.capacity() => {
            Err(MediaError::WrongSize { medium: name, found: ram.capacity(), wanted })
        }
        _ => Ok(Media::Store(Store::Ram(ram))),
    }
}

/// The flash of a drive that has no file beside it: as it was left where the drive is in memory that is held, else new.
pub(super) fn flash(
    config: &DeviceConfig,
    flash: &FlashConfig,
    now: Nanos,
    keep: &Keep,
) -> Result<(FlashService, Option<FlashState>), OpenError> {
    if config.media == MediaConfig::Ram && keep.is_kept() {
        let (state, map) = (format!("{FLASH}{}", config.name), map(config));
        return Ok(crate::flash::held((&state, &map), flash, now, keep)?);
    }
    let new = FlashService::new(&flash.config, flash.precondition, now);
    Ok((new.map_err(|e| OpenError::Flash(e.to_string()))?, None))
}

/// Under which name the state of a drive's zones or chunks is held; `None` where it ends with the process.
pub(super) fn regions(config: &DeviceConfig, keep: &Keep) -> Option<String> {
    (config.media == MediaConfig::Ram && keep.is_kept()).then(|| format!("{REGIONS}{}", config.name))
}

/// A memory file of that name, as it was left, or a new one; none without a keeper.
pub(super) fn memory(name: &str, keep: &Keep) -> Result<Option<OwnedFd>, OpenError> {
    if !keep.is_kept() {
        return Ok(None);
    }
    let fail = |e: std::io::Error| OpenError::Media(MediaError::kept(name, e));
    if let Some(fd) = keep.take_one(name) {
        return Ok(Some(fd));
    }
    let fd = weir_sys::keeper_channel::memory_file(name).map_err(fail)?;
    keep.hold(name, &[fd.as_fd()]).map_err(fail)?;
    Ok(Some(fd))
}
