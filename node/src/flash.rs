//! Flash drives whose state outlives the process: beside the drive's media, or in memory that the keeper holds.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use weir_config::FlashConfig;
use weir_drive::FlashService;
use weir_flash::{ConfigError, Flash, Image, Precondition};
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{FLASH_MAP_SCHEMA, FLASH_SCHEMA, FlashState, ImageCondition, MediaError};
use weir_units::Nanos;

/// A state as it was found, or new.
type Opened = (FlashState, Image, ImageCondition);

/// The page map goes on from the one that is held under that name, or a new one does, whose file is to be held.
fn lend_map(
    (state, image, _): &mut Opened,
    name: &str,
    config: &FlashConfig,
    keep: &Keep,
) -> Result<Option<OwnedFd>, MediaError> {
    state.lend_map(image, keep.take_region(name, FLASH_MAP_SCHEMA), &config.config)
}

fn hold_map(name: &str, made: Option<OwnedFd>, keep: &Keep) -> Result<(), MediaError> {
    let hold = |file: OwnedFd| keep.hold(name, &[file.as_fd()]).map_err(|e| MediaError::kept(name, e));
    made.map_or(Ok(()), hold)
}

/// Flash whose state lies beside the drive's media at `media`: as it was left, or made there. Where the mapping keeps
/// none, it is new at every start. With a keeper the drive's page map outlives the process, held under the name `map`.
///
/// # Errors
/// The state cannot be had, or is another drive's.
pub fn beside(
    (media, map): (&Path, &str),
    config: &FlashConfig,
    now: Nanos,
    keep: &Keep,
) -> Result<(FlashService, Option<FlashState>), MediaError> {
    if !config.config.has_image() {
        let wrong = |e: ConfigError| MediaError::flash_state(media, &e.to_string());
        let fresh = FlashService::new(&config.config, config.precondition, now).map_err(wrong)?;
        return Ok((fresh, None));
    }
    let path = FlashState::path_of(media);
    let mut opened = FlashState::open(&path, &config.config)?;
    let made = if keep.is_kept() { lend_map(&mut opened, map, config, keep)? } else { None };
    let (flash, state) = from_state(opened, config, now)?;
    hold_map(map, made, keep)?;
    Ok((flash, Some(state)))
}

/// As [`beside`] of a drive in memory: its state is in memory that outlives the process, held under the name `state`.
///
/// # Errors
/// As [`beside`], and that the keeper does not take it.
pub fn held(
    (state, map): (&str, &str),
    config: &FlashConfig,
    now: Nanos,
    keep: &Keep,
) -> Result<(FlashService, Option<FlashState>), MediaError> {
    if !config.config.has_image() {
        let wrong = |e: ConfigError| MediaError::kept(state, std::io::Error::other(e.to_string()));
        return Ok((FlashService::new(&config.config, config.precondition, now).map_err(wrong)?, None));
    }
    let name = state;
    let mut opened = match keep.take_region(name, FLASH_SCHEMA) {
        Some(arena) => FlashState::adopt(name, arena, &config.config)?,
        None => FlashState::in_memory(name, &config.config)?,
    };
    let is_new = opened.2 == ImageCondition::New;
    let made = lend_map(&mut opened, map, config, keep)?;
    let (flash, state) = from_state(opened, config, now)?;
    // Whole from here on: preconditioned as well.
    if is_new {
        keep.hold(name, &[state.file().as_fd()]).map_err(|e| MediaError::kept(name, e))?;
    }
    hold_map(map, made, keep)?;
    Ok((flash, Some(state)))
}

/// The drive as its state says.
fn from_state(
    (state, image, found): Opened,
    config: &FlashConfig,
    now: Nanos,
) -> Result<(FlashService, FlashState), MediaError> {
    let path = state.path();
    let wrong = |e: ConfigError| MediaError::kept(&path.to_string_lossy(), std::io::Error::other(e.to_string()));
    let is_mapped = image.mapped.is_some();
    let flash = if found == ImageCondition::New {
        let mut flash = Flash::create(&config.config, now, image).map_err(wrong)?;
        if config.precondition != Precondition::Fresh {
            flash.precondition(config.precondition);
        }
        flash
    } else {
        let (flash, pages) = Flash::resume(&config.config, now, image).map_err(wrong)?;
        match pages {
            Some(pages) => tracing::info!(state = %path.display(), ?found, pages, "the drive's map is found again"),
            None => tracing::info!(state = %path.display(), ?found, "the drive goes on from its map"),
        }
        flash
    };
    Ok((FlashService::of(flash, is_mapped, now), state))
}
