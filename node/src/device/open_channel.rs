//! Zones and chunks of a drive that is opened as one, or has its power back.

use super::Device;
use super::backend::Backend;
use super::error::OpenError;
use super::open::open_backend;
use super::regions::{Place, chunks};
use super::shape::uuid_of;
use weir_config::DeviceConfig;
use weir_controller::{NamespaceConfig, OpenChannelSet, Subsystem, SubsystemConfig as MachineConfig};
use weir_flash::OpenChannelConfig;
use weir_sys::keeper_channel::Keep;
use weir_units::{Bytes, Nanos};

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
        weir_drive::set_cost_policy(&mut machine, config)?;
        Ok(Self::new(machine, backend, size, block_size).on(state))
    }
}
