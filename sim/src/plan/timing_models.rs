//! The inside of a drive for one simulation after the other, put into its state once.

use crate::run::{RunError, timing_model};
use std::sync::{Mutex, PoisonError};
use weir_config::DeviceConfig;
use weir_controller::TimingModel;
use weir_drive::FlashService;

/// Insides of one drive, each in the state that its configuration asks for. To place what 4 GiB hold takes several times as long as
/// to copy the map that says where.
pub(crate) struct Insides<'a> {
    device: &'a DeviceConfig,
    /// Works on nothing; `None` where the drive has no flash.
    first: Option<Mutex<FlashService>>,
}

impl<'a> Insides<'a> {
    /// Of that drive.
    ///
    /// # Errors
    /// Flash that cannot be.
    pub fn of(device: &'a DeviceConfig) -> Result<Self, RunError> {
        Ok(Insides { device, first: timing_model(device)?.map(Mutex::new) })
    }

    /// The drive that they are of.
    pub fn device(&self) -> &'a DeviceConfig {
        self.device
    }

    /// One more; `None` where the drive has a latency instead.
    ///
    /// # Errors
    /// Flash that cannot be.
    pub fn one(&self) -> Result<Option<Box<dyn TimingModel>>, RunError> {
        let Some(first) = &self.first else { return Ok(None) };
        // A library has a state of its own for each drive, which a twin does not have.
        let has_library = self.device.flash.as_ref().is_some_and(|flash| flash.policy.is_some());
        let twin = first.lock().unwrap_or_else(PoisonError::into_inner).twin().filter(|_| !has_library);
        let flash = if twin.is_some() { twin } else { timing_model(self.device)? };
        Ok(flash.map(|flash| Box::new(flash) as Box<dyn TimingModel>))
    }
}
