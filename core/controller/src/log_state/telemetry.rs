//! What telemetry log pages have caught (base 2.0, 5.16.1.8 and 5.16.1.9).

use alloc::string::String;
use alloc::vec::Vec;

/// What was caught.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telemetry {
    /// Data of the host-initiated log, and of the controller-initiated one.
    pub host: Caught,
    pub own: Caught,
    /// The controller-initiated data was not read yet.
    pub available: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Caught {
    /// The last block of each area.
    pub areas: [u16; 3],
    pub data: Vec<u8>,
    pub generation: u8,
    pub reason: String,
}
