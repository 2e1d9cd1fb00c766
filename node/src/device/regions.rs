//! Zones and chunks whose state outlives the process: it lies beside the media's file, as that of other flash drives does, or in memory that the
//! keeper holds with the bytes.
//!
//! What lies behind the data of a zone or chunk counts for nothing. Of a drive that was not stopped it is zeroed at the next start, of
//! one that has lost its power before it is up again.

use super::backend::{Backend, Gone};
use super::error::OpenError;
use super::handover;
use super::state_file::beside;
use std::os::fd::AsFd;
use std::path::Path;
use weir_config::DeviceConfig;
use weir_controller::{OpenChannelSet, Subsystem};
use weir_flash::{OpenChannelConfig, RegionError, RegionImage, RegionKeys, RegionSize};
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{FlashState, ImageCondition, MediaError, REGIONS_SCHEMA};

/// Where a drive's state lies.
pub(super) enum Place<'a> {
    /// Beside its file.
    Beside(&'a Path),
    /// In memory, held under that name.
    Held(String, &'a Keep),
}

impl<'a> Place<'a> {
    /// `None`: it ends with the process.
    pub(super) fn of(config: &'a DeviceConfig, keep: &'a Keep) -> Option<Self> {
        let held = || handover::regions(config, keep).map(|name| Place::Held(name, keep));
        beside(config).map(Place::Beside).or_else(held)
    }

    fn open(
        &self,
        keys: RegionKeys,
        size: &RegionSize,
    ) -> Result<(FlashState, RegionImage, ImageCondition), OpenError> {
        Ok(match self {
            Place::Beside(media) => {
                FlashState::check_blank(media)?;
                FlashState::open_regions(&FlashState::path_of(media), keys, size)?
            }
            Place::Held(name, keep) => match keep.take_region(name, REGIONS_SCHEMA) {
                Some(arena) => FlashState::adopt_regions(name, arena, keys, size)?,
                None => FlashState::regions_in_memory(name, keys, size)?,
            },
        })
    }
}

/// Opens the state, or makes it, and has `adopt` go on from it. Answers it with what has to be zeroed first.
fn state_at(
    place: &Place<'_>,
    (keys, size): (RegionKeys, RegionSize),
    adopt: impl FnOnce(RegionImage) -> Result<Gone, RegionError>,
) -> Result<(FlashState, Gone), OpenError> {
    let (state, image, found) = place.open(keys, &size)?;
    let path = state.path();
    let behind = adopt(image).map_err(|e| OpenError::Flash(format!("{}: {e}", path.display())))?;
    if found == ImageCondition::Crashed {
        tracing::info!(state = %path.display(), "the drive was not stopped; what lies behind its data is zeroed");
    }
    if let (Place::Held(name, keep), ImageCondition::New) = (place, found) {
        keep.hold(name, &[state.file().as_fd()]).map_err(|e| MediaError::kept(name, e))?;
    }
    Ok((state, if found == ImageCondition::Crashed { behind } else { Gone::new() }))
}

/// Gives a zoned drive the state that outlives its process, where it has one.
pub(super) fn zones(
    config: &DeviceConfig,
    machine: &mut Subsystem,
    backend: &mut Backend,
    keep: &Keep,
) -> Result<Option<FlashState>, OpenError> {
    let Some(place) = Place::of(config, keep) else { return Ok(None) };
    let keys = machine.config().zoned.first().map(|ns| weir_config::Zoned::keys(ns, config.block_size));
    let size = machine.zones_image(1);
    let wanted = keys.zip(size).ok_or_else(|| OpenError::Flash("there are no zones".into()))?;
    let found = state_at(&place, wanted, |image| machine.adopt_zones(1, image))?;
    backend.zeroed(found).map(Some)
}

/// What an Open-Channel drive's state depends on.
pub(super) fn chunks(
    config: &OpenChannelConfig,
    set: &mut OpenChannelSet,
    place: &Place<'_>,
) -> Result<(FlashState, Gone), OpenError> {
    let g = &config.geometry;
    let of_flash =
        [g.channels, g.ways, g.planes, g.blocks, g.pages, g.page_bytes, config.factory_bad, config.endurance];
    let [channels, ways, planes, blocks, pages, page, bad, endurance] = of_flash.map(u64::from);
    let block = u64::from(weir_flash::UNIT);
    let keys: RegionKeys = [
        1,
        block,
        set.media_bytes(),
        0,
        0,
        0,
        0,
        channels,
        ways,
        planes,
        blocks,
        pages,
        page,
        bad,
        endurance,
        config.seed,
    ];
    let size = set.image_size();
    state_at(place, (keys, size), |image| set.adopt(image))
}
