//! The flash of a drive, for who looks at it from outside.

use super::Device;
use super::inside::flash_of;
use weir_drive::FlashService;
use weir_units::Nanos;

impl Device {
    /// Its flash, if it has any inside.
    pub fn flash(&self) -> Option<&FlashService> {
        self.machine.service()?.as_any().downcast_ref()
    }

    /// Counts anew what its flash does.
    pub fn reset_flash(&mut self, now: Nanos) {
        if let Some(flash) = flash_of(&mut self.machine) {
            flash.reset(now);
        }
    }
}
