//! What of a drive's configuration does not fit.

use crate::geometry::GeometryError;
use crate::timing::TimingError;
use crate::variability::VariabilityError;
use alloc::string::String;
use core::fmt;

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The layout.
    Geometry(GeometryError),
    /// The times.
    Timing(TimingError),
    /// The differences of chips.
    Variability(VariabilityError),
    /// A key of the FTL or the buffer.
    Key {
        /// As configuration files write it, below the device's table.
        key: &'static str,
        /// What it is, what it may be, what to do.
        message: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Geometry(e) => e.fmt(f),
            ConfigError::Timing(e) => e.fmt(f),
            ConfigError::Variability(e) => e.fmt(f),
            ConfigError::Key { key, message } => write!(f, "{key} {message}"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<GeometryError> for ConfigError {
    fn from(e: GeometryError) -> Self {
        ConfigError::Geometry(e)
    }
}

impl From<TimingError> for ConfigError {
    fn from(e: TimingError) -> Self {
        ConfigError::Timing(e)
    }
}

impl From<VariabilityError> for ConfigError {
    fn from(e: VariabilityError) -> Self {
        ConfigError::Variability(e)
    }
}

pub(crate) fn wrong(key: &'static str, message: String) -> ConfigError {
    ConfigError::Key { key, message }
}
