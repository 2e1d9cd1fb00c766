//! The inside of a drive for one simulation after the other, put into its state once.

use super::parallel::THREADS;
use crate::run::{RunError, timing_model};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_config::DeviceConfig;
use weir_controller::TimingModel;
use weir_drive::FlashService;

/// Insides of one drive, each in the state that its configuration asks for. To place what 4 GiB hold takes several times as long as
/// to copy the map that says where, and to copy it into new memory several times as long as into memory that is in use.
pub(crate) struct Insides<'a> {
    device: &'a DeviceConfig,
    /// `None` where the drive has no flash.
    flash: Option<Mutex<Shared>>,
}

/// What the simulations of one drive share.
struct Shared {
    /// Works on nothing.
    first: FlashService,
    /// Those that simulations are done with.
    used: Vec<Box<dyn TimingModel>>,
}

impl<'a> Insides<'a> {
    /// Of that drive.
    ///
    /// # Errors
    /// Flash that cannot be.
    pub fn of(device: &'a DeviceConfig) -> Result<Self, RunError> {
        let shared = |first| Mutex::new(Shared { first, used: Vec::new() });
        Ok(Insides { device, flash: timing_model(device)?.map(shared) })
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
        let Some(shared) = &self.flash else { return Ok(None) };
        // A library has a state of its own for each drive, which a twin does not have.
        let has_library = self.device.flash.as_ref().is_some_and(|flash| flash.policy.is_some());
        let twin = if has_library { None } else { lock(shared).twin() };
        match twin {
            Some(twin) => Ok(Some(twin)),
            None => Ok(timing_model(self.device)?.map(|flash| Box::new(flash) as Box<dyn TimingModel>)),
        }
    }

    /// A simulation is done with this one.
    pub fn give_back(&self, inside: Option<Box<dyn TimingModel>>) {
        if let Some(shared) = &self.flash {
            let used = &mut lock(shared).used;
            // As many as there are simulations at a time.
            used.extend(inside.filter(|_| used.len() < THREADS));
        }
    }
}

impl Shared {
    /// A twin of the first: of one that was used, or a new one.
    fn twin(&mut self) -> Option<Box<dyn TimingModel>> {
        if let Some(mut used) = self.used.pop() {
            let service = used.as_any_mut().downcast_mut::<FlashService>();
            if service.is_some_and(|service| service.become_twin(&self.first)) {
                return Some(used);
            }
        }
        self.first.twin().map(|twin| Box::new(twin) as Box<dyn TimingModel>)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
