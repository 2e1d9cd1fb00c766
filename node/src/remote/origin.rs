//! Where the far side of a drive is.

use crate::target::{Identity, OpenOptions};
use std::os::fd::OwnedFd;
use weir_driver::link_recovery::DriveIdentity;
use weir_sys::keeper_channel::Keep;
use weir_units::Nanos;

/// Where the far side is.
pub struct Origin {
    /// How it is connected to again.
    pub source: Source,
    /// Its association, over NVMe/TCP.
    pub association: Option<Identity>,
    /// The connections of that.
    pub connections: Vec<OwnedFd>,
    /// Which drive it is; `None`: it does not say.
    pub identity: Option<DriveIdentity>,
}

/// What it takes to connect again.
#[derive(Clone, Debug)]
pub struct Source {
    /// The drive's name in the configuration.
    pub drive: String,
    /// Its NQN.
    pub nqn: String,
    /// As the configuration has it.
    pub target: String,
    /// How it is opened.
    pub how: OpenOptions,
    /// Holds the connections.
    pub keep: Keep,
    /// How long commands wait for a target that has gone.
    pub fast_io_fail_tmo: Nanos,
}
