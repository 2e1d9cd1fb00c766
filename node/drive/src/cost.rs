//! What commands of a drive cost, where a library of its configuration decides it.

use crate::flash::FlashService;
use weir_config::DeviceConfig;
use weir_controller::Subsystem;
use weir_sys::policy_library::{PolicyError, PolicyLibrary};

/// Has the library that the configuration names, if it names one, decide what commands of a drive cost that has its flash already.
///
/// # Errors
/// The library cannot be used: which one, and why.
pub fn set_cost_policy(machine: &mut Subsystem, device: &DeviceConfig) -> Result<(), PolicyError> {
    if let Some(policy) = &device.cost_policy {
        let inside = machine.service().and_then(|service| service.as_any().downcast_ref::<FlashService>());
        let library = PolicyLibrary::open(&policy.library)?;
        let costs = library.cost_policy(&policy.arguments, inside.map(FlashService::flash))?;
        machine.set_cost_policy(costs);
    }
    Ok(())
}
