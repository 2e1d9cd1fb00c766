//! Why a drive cannot be had.

use std::fmt;
use weir_driver::TransportError;
use weir_sys::media::MediaError;
use weir_sys::policy_library::PolicyError;

/// Why a drive cannot be had.
#[derive(Debug)]
pub enum OpenError {
    /// Its media.
    Media(MediaError),
    /// The drive that it is made of.
    Target(TransportError),
    /// Its machine refuses the configuration.
    Subsystem(weir_controller::ManagementError),
    /// Its size.
    Capacity(String),
    /// Its flash.
    Flash(String),
    /// A library that is to decide for it.
    Policy(PolicyError),
    /// A rule of failures that cannot be one of this drive.
    Fault(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Media(e) => e.fmt(f),
            OpenError::Target(e) => write!(f, "media: {e}"),
            OpenError::Subsystem(e) => e.fmt(f),
            OpenError::Policy(e) => e.fmt(f),
            OpenError::Capacity(e) | OpenError::Flash(e) | OpenError::Fault(e) => f.write_str(e),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<MediaError> for OpenError {
    fn from(e: MediaError) -> Self {
        OpenError::Media(e)
    }
}

impl From<weir_controller::ManagementError> for OpenError {
    fn from(e: weir_controller::ManagementError) -> Self {
        OpenError::Subsystem(e)
    }
}

impl From<PolicyError> for OpenError {
    fn from(e: PolicyError) -> Self {
        OpenError::Policy(e)
    }
}
