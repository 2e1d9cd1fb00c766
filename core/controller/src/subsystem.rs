//! One drive: its controllers, queues and slots.

use crate::config::{Config, DiscoveryRecord};
use crate::event::{ControllerHandle, Effects, Event, SlotId, SqHandle};
use crate::fabrics::{ConnectError, ConnectRequest, Connected};
use crate::host::{Host, Owner};
use crate::stats::{ControllerInfo, DriveStats};
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::Settings;
use weir_spec::nvme::Status;
use weir_units::{Class, Nanos};

/// How a controller's queues reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Registers, doorbells, queues in host memory; the host enables it.
    Rings,
    /// Message queues of a door in this process; ready at once, no admin queue.
    Front,
}

/// A controller that does not come by Connect.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Its tenant's place in the configuration.
    pub tenant: u16,
    /// Given back in the `Host` calls of its rings.
    pub owner: Owner,
    /// How its queues reach it.
    pub model: Model,
    /// Who it is, for `weir status`.
    pub host: String,
}

/// Why a management call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No tenant of that number or name.
    NoTenant,
    /// No such controller, or not of the model that the call is for.
    NoController,
    /// No such namespace.
    NoNamespace,
    /// The configured number of controllers or queues is reached.
    Full,
    /// A queue of no entry or more than the drive's largest.
    QueueSize,
    /// Two namespaces of one NSID, an NSID of 0 or above 1024, a block size other than 512 and 4096, or a size or start
    /// that is no multiple of it.
    Namespace,
    /// A subsystem name that is no NQN.
    Nqn,
    /// No slots, no queue entries, or a weight or quantum of zero.
    Range,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Error::NoTenant => "there is no such tenant",
            Error::NoController => "there is no such controller, or it is of another kind",
            Error::NoNamespace => "there is no such namespace",
            Error::Full => "the drive has as many controllers or queues as it may have",
            Error::QueueSize => "the queue depth is zero or larger than the drive permits",
            Error::Namespace => {
                "a namespace needs an identifier of its own from 1 to 1024, a block size of 512 or 4096, and a start and size \
                 that are multiples of it"
            }
            Error::Nqn => "the subsystem's name is no NQN (nqn.…, at most 223 bytes)",
            Error::Range => "slots, queue entries, weights and quanta must be at least 1",
        })
    }
}

impl core::error::Error for Error {}

/// One drive (or the discovery service).
#[derive(Debug)]
pub struct Subsystem {
    config: Config,
}

impl Subsystem {
    /// A drive at rest. `now` is when it was powered on.
    pub fn new(config: Config, _now: Nanos) -> Result<Self, Error> {
        Ok(Self { config })
    }
    /// Takes one event to its end.
    pub fn apply<H: Host>(&mut self, _now: Nanos, _event: Event, _host: &mut H, _effects: &mut Effects) {}
    /// When `Tick` is due: a latency, keep-alive or admin-rate deadline.
    pub fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    /// Whether `Run` would do something now (more than fitted into the last effects list, usually).
    pub fn has_work(&self) -> bool {
        false
    }
    /// Whether the command in this slot still has somebody to answer to; if not, `data` must not be touched (writes whose
    /// data is already read go on). The slot is given back with `Done` either way.
    pub fn is_live(&self, _slot: SlotId) -> bool {
        false
    }
    /// Slot numbers are below this; it can grow a little when controllers shut down.
    pub fn slot_limit(&self) -> u32 {
        self.config.slots
    }
    /// Fabrics: Connect creates an association (queue 0) or adds an I/O queue to one.
    pub fn connect(&mut self, _now: Nanos, _request: &ConnectRequest) -> Result<Connected, ConnectError> {
        Err(ConnectError { status: Status::INTERNAL_ERROR, in_data: false, offset: 0 })
    }
    /// The queue's connection is gone: its commands die silently. With the admin queue the association ends, and
    /// its I/O queues are asked to disconnect. Also how a front controller's queue is removed.
    pub fn disconnect(&mut self, _now: Nanos, _queue: SqHandle) {}
    /// A controller that does not come by Connect.
    pub fn attach(&mut self, _now: Nanos, _attach: Attach) -> Result<ControllerHandle, Error> {
        Err(Error::NoTenant)
    }
    /// Removes an attached controller with its queues; their commands die silently.
    pub fn detach(&mut self, _now: Nanos, _controller: ControllerHandle) {}
    /// Front controllers: another queue of `depth` commands; `wish` is the class its peer wants.
    pub fn add_message_queue(
        &mut self,
        _controller: ControllerHandle,
        _depth: u32,
        _wish: Option<Class>,
        _owner: Owner,
    ) -> Result<SqHandle, Error> {
        Err(Error::NoController)
    }
    /// The peer's wish changed (counts with `class_from = "peer"`).
    pub fn set_queue_wish(&mut self, _queue: SqHandle, _wish: Option<Class>) {}
    /// Commands of this message queue that are waiting or in flight.
    pub fn outstanding(&self, _queue: SqHandle) -> u32 {
        0
    }
    /// Reads a register of a ring controller; `size` is 4 or 8.
    pub fn register(&self, _controller: ControllerHandle, _offset: u32, _size: u8) -> u64 {
        0
    }
    /// The configuration as it is now.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The tenant's place by name.
    pub fn tenant_by_name(&self, _name: &str) -> Option<u16> {
        None
    }
    /// Changes the drive's arbitration while it runs.
    pub fn set_arbitration(&mut self, _settings: Settings) -> Result<(), Error> {
        Ok(())
    }
    /// Changes a tenant's class and weight; its queues follow at once.
    pub fn set_tenant(&mut self, _tenant: u16, _class: Class, _urgent: bool, _weight: u16) -> Result<(), Error> {
        Ok(())
    }
    /// Changes a namespace's size in bytes; hosts are notified.
    pub fn resize_namespace(&mut self, _nsid: u32, _size: u64) -> Result<(), Error> {
        Ok(())
    }
    /// Replaces the discovery log; persistent discovery controllers are notified.
    pub fn set_discovery(&mut self, _records: Vec<DiscoveryRecord>) {}
    /// What was done so far.
    pub fn stats(&self) -> DriveStats {
        unreachable!()
    }
    /// All controllers.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        Vec::new()
    }
    /// Panics unless the invariants hold.
    pub fn check(&self) {}
}
