//! A flash drive in a state that lasts, and what load tests in the simulator say of it.

use crate::WorldError;
use crate::plan::measure::{self, MeasureGrid};
use crate::plan::timing_models::Insides;
use crate::run::RunError;
use crate::scenario::capacity;
use std::rc::Rc;
use weir_config::DeviceConfig;
use weir_controller::{SubsystemConfig, TimingModel};
use weir_drive::FlashService;
use weir_plan::DriveModel;
use weir_units::Nanos;

/// Before anything counts. The garbage of the load takes the place of what the steady state was placed with, for longer than this: so
/// calibration and cases last equally long.
pub(super) const RAMP: Nanos = Nanos::from_secs(2);
/// How long each point is measured, and each case.
pub(super) const TIME: Nanos = Nanos::from_secs(2);

/// A flash drive with its calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashDrive {
    device: DeviceConfig,
    drive: DriveModel,
}

impl FlashDrive {
    /// Sizes of the requests with which it was measured.
    pub const SIZES: [u32; 3] = [4096, 16384, 65536];
    /// Reads in a hundred requests, the same.
    pub const MIXES: [u8; 3] = [0, 70, 100];

    /// A drive as `weir bench local:` has it, collecting steadily, measured at every size and mix.
    ///
    /// # Errors
    /// A drive that cannot be, or is no flash.
    pub fn measured(profile: &str, query: &str) -> Result<Rc<FlashDrive>, RunError> {
        let device = DeviceConfig::from_query(profile, query).map_err(RunError::new)?;
        let points: Vec<(u32, u8)> =
            Self::SIZES.iter().flat_map(|size| Self::MIXES.iter().map(|mix| (*size, *mix))).collect();
        let extent = MeasureGrid { points, depths: vec![8, device.slots.into()], times: (RAMP, TIME) };
        let drive = measure::drive(&Insides::of(&device)?, 1, &extent, &mut |_| {})?;
        Ok(Rc::new(FlashDrive { device, drive }))
    }

    /// The calibration.
    pub fn drive(&self) -> &DriveModel {
        &self.drive
    }

    pub(super) fn machine(&self) -> SubsystemConfig {
        weir_drive::machine_config(&self.device)
    }

    pub(super) fn capacity(&self) -> u64 {
        capacity(&self.device)
    }

    pub(super) fn inside(&self) -> Result<Box<dyn TimingModel>, WorldError> {
        let flash = self.device.flash.as_ref().ok_or_else(|| WorldError::new("the drive has no flash"))?;
        let service = FlashService::new(&flash.config, flash.precondition, Nanos(0)).map_err(WorldError::new)?;
        Ok(Box::new(service.with_policy(flash.policy.as_ref()).map_err(WorldError::new)?))
    }
}
