//! What was counted.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::{Ceiling, Class, Floor, Nanos, Sla};

/// Work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Read commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Other I/O commands completed.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// I/O commands completed with an error.
    pub errors: u64,
}

impl Work {
    /// All I/O commands.
    pub fn commands(&self) -> u64 {
        self.reads + self.writes + self.others
    }
}

/// One tenant's part in a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStats {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Its weight.
    pub weight: u16,
    /// What it gets at least.
    pub floor: Floor,
    /// What it gets at the most.
    pub ceiling: Ceiling,
    /// What it was promised.
    pub sla: Sla,
    /// It has reached its ceiling.
    pub held: bool,
    /// What it got.
    pub work: Work,
    /// Controllers it has.
    pub controllers: u32,
    /// I/O submission queues it has.
    pub queues: u32,
    /// Commands waiting in them.
    pub backlog: u64,
    /// Commands in flight.
    pub in_flight: u32,
}

/// A drive at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStats {
    /// Sum over the tenants.
    pub work: Work,
    /// Slots in use.
    pub slots_used: u32,
    /// Slots there are.
    pub slots: u32,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Admin commands completed.
    pub admin: u64,
    /// Every tenant, in the order of the configuration.
    pub tenants: Vec<TenantStats>,
}

/// How long commands were in slots, as sums that wrap around.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceClock {
    /// I/O that the executor has done.
    pub done: u64,
    /// By the number of slots in use: how long so many were.
    pub at_depth: Box<[Nanos]>,
    /// See [`ServiceTimes::delayed`].
    pub delayed: Nanos,
}

impl ServiceClock {
    /// Of a drive with so many slots.
    pub fn new(slots: u32) -> Self {
        ServiceClock { at_depth: alloc::vec![Nanos(0); slots as usize + 1].into(), ..Self::default() }
    }

    /// What commands have taken.
    pub fn times(&self) -> ServiceTimes {
        let of = |(depth, time): (u64, &Nanos)| time.0.wrapping_mul(depth);
        let served = (0..).zip(&self.at_depth).map(of).fold(0, u64::wrapping_add);
        ServiceTimes { done: self.done, served: Nanos(served), delayed: self.delayed }
    }
}

/// What commands have taken, as sums over them that wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTimes {
    /// I/O that the executor has done.
    pub done: u64,
    /// Time of commands in a slot, up to what the executor has done: their service times.
    pub served: Nanos,
    /// Time of commands that had left their queues and were kept from starting: by what makes the drive slow, not by the want of a slot.
    pub delayed: Nanos,
}

/// One controller, as `weir status` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// CNTLID.
    pub id: u16,
    /// Its host's NQN, or what the door said.
    pub host: String,
    /// Its tenant's place in the configuration.
    pub tenant: u16,
    /// CSTS.RDY.
    pub ready: bool,
    /// How it reaches the namespaces.
    pub ana: crate::AnaState,
    /// Its I/O submission queues.
    pub queues: Vec<QueueInfo>,
}

/// One I/O submission queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Queue identifier.
    pub qid: u16,
    /// Entries.
    pub size: u32,
    /// Its class at the drive.
    pub class: Class,
    /// Commands waiting.
    pub backlog: u32,
    /// Commands in flight.
    pub in_flight: u32,
}
