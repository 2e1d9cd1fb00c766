//! What a service is started with, and why it does not start.

use std::fmt;
use std::time::Duration;
use weir_config::{StoreAddress, StoreConfig, StoreDurability, StoreMeta};
use weir_store::Tiering;
use weir_units::Nanos;

/// What a service is started with.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Where the metadata are kept.
    pub meta: StoreMeta,
    /// When a change is acknowledged.
    pub durability: StoreDurability,
    /// Where clients find the service; port 0 is any that is free.
    pub listen: Vec<StoreAddress>,
    /// Classes of drives, best first.
    pub classes: Vec<String>,
    /// Bytes of a block, where a client says nothing: a power of two from 64 KiB to 4 MiB.
    pub block: u32,
    /// How long a client's session lives without a renewal.
    pub lease: Duration,
    /// How long a drive may not be reached before blocks on it that have another copy get one elsewhere; none: they do not.
    pub repair_after: Option<Nanos>,
    /// Policies by path, and when blocks go from class to class.
    pub tiering: Tiering,
    /// Whether files of this machine (`file:PATH`) may be donated.
    pub allow_files: bool,
}

impl ServiceOptions {
    /// As `[store]` has it, with a lease of 10 s.
    pub fn of(config: &StoreConfig) -> Self {
        Self {
            meta: config.meta.clone(),
            durability: config.durability,
            listen: config.listen.clone(),
            classes: config.classes.clone(),
            block: u32::try_from(config.block.get()).unwrap_or(1 << 20),
            lease: Duration::from_secs(10),
            repair_after: config.repair_after,
            tiering: config.tiering.clone(),
            allow_files: false,
        }
    }
}

/// Why a service does not start: what it is about, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError {
    about: String,
    what: String,
}

impl ServiceError {
    pub(super) fn new(about: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { about: about.to_string(), what: what.to_string() }
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what.starts_with(&self.about) {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.about, self.what),
        }
    }
}

impl std::error::Error for ServiceError {}
