//! What is inside a drive's machine.

use super::error::OpenError;
use weir_config::FlashConfig;
use weir_controller::{OpenChannelSet, Subsystem};
use weir_drive::FlashService;

/// The same with the policy library of the configuration, where it names one.
pub(super) fn with_policy(inside: FlashService, flash: &FlashConfig) -> Result<FlashService, OpenError> {
    Ok(inside.with_policy(flash.policy.as_ref())?)
}

/// The flash inside, if there is one.
pub(super) fn flash_of(machine: &mut Subsystem) -> Option<&mut FlashService> {
    machine.service_mut()?.as_any_mut().downcast_mut()
}

/// The chunks that it shows, if it is an Open-Channel drive.
pub(super) fn chunks_of(machine: &mut Subsystem) -> Option<&mut OpenChannelSet> {
    machine.vendor_mut()?.as_any_mut()?.downcast_mut()
}
