#![forbid(unsafe_code)]
//! A drive's machine from its configuration: what the node serves, and the simulator runs in virtual time.
//!
//! ```text
//!   weir_config::DeviceConfig ─► machine_config ─► weir_controller::SubsystemConfig ─► Subsystem
//!                    └─ flash ─► FlashService (weir_flash::Flash as the TimingModel of that Subsystem)
//! ```
//! Knows neither doors nor media: `weir-node` has those.

mod calibrated;
mod cost;
mod flash;
mod speed;
mod subsystem;

pub use cost::set_cost_policy;
pub use flash::{DieFigures, FlashFigures, FlashService};
pub use speed::{DriveSpeed, MachineTime, SpeedStatus};
pub use subsystem::{class_from, class_of, machine_config, machine_tenant, subsystem_config};
