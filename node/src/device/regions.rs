//! Zones and chunks whose state outlives the process: it lies beside the media's file, as that of other flash drives does, or in memory that the
//! keeper holds with the bytes.
//!
//! What lies behind the data of a zone or chunk counts for nothing. Of a drive that was not stopped it is zeroed at the next start, of
//! one that has lost its power before it is up again.

use super::{Backend, Device, OpenError, beside, handover, open_backend, power, uuid_of};
use std::os::fd::AsFd;
use std::path::Path;
use weir_config::DeviceConfig;
use weir_controller::{NamespaceConfig, OpenChannelSet, Subsystem, SubsystemConfig as MachineConfig, ZoneLoss};
use weir_flash::{OpenChannelConfig, RegionError, RegionImage, RegionKeys, RegionSize};
use weir_spec::nvme::Status;
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{FlashState, ImageCondition, MediaError, REGIONS_SCHEMA};
use weir_units::{Bytes, Nanos};

/// A piece of what is zeroed at once.
const PIECE: u64 = 1 << 30;

/// Where bytes are gone: offset and length.
type Gone = Vec<(u64, u64)>;

/// Where a drive's state lies.
enum Place<'a> {
    /// Beside its file.
    Beside(&'a Path),
    /// In memory, held under that name.
    Held(String, &'a Keep),
}

impl<'a> Place<'a> {
    /// `None`: it ends with the process.
    fn of(config: &'a DeviceConfig, keep: &'a Keep) -> Option<Self> {
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

impl Backend {
    /// A state, once what it says is gone is gone.
    fn zeroed(&mut self, (state, gone): (FlashState, Gone)) -> Result<FlashState, OpenError> {
        self.zero(&gone).map_err(|e| OpenError::Flash(format!("{}: {e}", state.path().display())))?;
        Ok(state)
    }

    /// Has ranges read as zeroes, at once.
    pub(super) fn zero(&mut self, ranges: &[(u64, u64)]) -> Result<(), Status> {
        for (offset, len) in ranges {
            let mut at = 0;
            while at < *len {
                let piece = (len - at).min(PIECE);
                match self {
                    Backend::Store(store) => store.deallocate(offset + at, piece as u32)?,
                    Backend::KernelIo(direct) => direct.zero_now(offset + at, piece)?,
                    Backend::Remote(_) | Backend::Volume(_) => return Err(Status::INTERNAL_ERROR),
                }
                at += piece;
            }
        }
        Ok(())
    }
}

impl Device {
    /// A drive that shows its flash: the namespace is an address space with gaps, the media has none.
    pub(super) fn open_channel(
        config: &DeviceConfig,
        mut machine: MachineConfig,
        flash: &OpenChannelConfig,
        now: Nanos,
        keep: &Keep,
    ) -> Result<Device, OpenError> {
        let mut set = OpenChannelSet::new(flash, 0).map_err(|e| OpenError::Flash(e.to_string()))?;
        let (size, block_size) = (set.media_bytes(), config.block_size);
        let all = DeviceConfig { capacity: Some(Bytes(size)), max_capacity: None, ..config.clone() };
        let (mut backend, _) = open_backend(&all, keep)?;
        let state = match Place::of(config, keep) {
            Some(place) => Some(backend.zeroed(chunks(flash, &mut set, &place)?)?),
            None => None,
        };
        let space = set.space() * u64::from(block_size);
        let uuid = uuid_of(&config.nqn, backend.medium());
        machine.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size: space, block_size, uuid }];
        machine.volatile_write_cache = !matches!(backend, Backend::Store(_));
        let mut machine = Subsystem::new(machine, now)?;
        machine.set_early(!matches!(backend, Backend::Store(_)));
        machine.set_vendor(1, Box::new(set))?;
        Ok(Self::new(machine, backend, size, block_size).on(state))
    }

    /// The power is back: zones and chunks are what has survived, and bytes that have not are zeroes.
    pub(super) fn regions_back(&mut self, now: Nanos, seed: u64) -> Result<u64, Status> {
        let ZoneLoss { lost, mut gone } = self.machine.zones_power_on(now, seed);
        if let Some(chunks) = power::chunks_of(&mut self.machine) {
            gone.extend(chunks.power_on());
        }
        self.backend.zero(&gone)?;
        Ok(lost)
    }
}

/// What an Open-Channel drive's state depends on.
fn chunks(
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
