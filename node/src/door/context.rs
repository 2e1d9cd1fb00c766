//! What a shard hands to a door in its turn, and what the door hands back.

use super::nvme_tcp::Moving;
use crate::device::Drives;
use crate::directory::Directory;
use std::sync::Arc;
use weir_controller::Event;
use weir_sys::keeper_channel::Keep;
use weir_sys::reactor::Reactor;
use weir_units::Nanos;

/// A whole, eligible command for a drive: [`Event::Capsule`] or [`Event::Submit`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Place in the shard's [`Drives`].
    pub drive: u32,
    /// The command, copied once.
    pub event: Event,
}

/// What a door may reach while it is polled.
pub struct Cx<'a> {
    /// The time of this turn.
    pub now: Nanos,
    /// This shard's number.
    pub shard: u32,
    /// The shard's event loop.
    pub reactor: &'a mut Reactor,
    /// The shard's drives, for connecting and disconnecting queues.
    pub drives: &'a mut Drives,
    /// All subsystems of the node.
    pub directory: &'a Arc<Directory>,
    /// Commands for the drives.
    pub arrivals: &'a mut Vec<Arrival>,
    /// Who holds what must outlive the process.
    pub keep: &'a Keep,
    /// Connections whose drive is on another shard.
    pub moves: &'a mut Vec<(u32, Moving)>,
}
