//! The doors of a shard: what clients come in by. Each door keeps its connections in a slab; a `Subsystem` names a queue's
//! place in it by an [`Owner`], whose top four bits say which door.
//!
//! A turn of the shard: `ready` for every watched descriptor, `poll` over what is hot, the drives run (calling [`Host`]
//! methods), `flush`. A door never blocks and never calls a drive's `apply`: it hands [`Arrival`]s to the shard, because the
//! drive calls back into the door while it runs.

mod begun;
pub mod nvme_tcp;
pub mod vfio_user;
pub mod vhost_user;

use crate::device::Drives;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use weir_controller::{DataPointer, Event, Host, Owner, RingCompletion, Tag};
use weir_spec::nvme::{Cqe, Status};
use weir_sys::keeper_channel::Keep;
use weir_sys::reactor::Reactor;
use weir_units::Nanos;

/// Which door an [`Owner`] or a reactor token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The shard's own tokens (mailbox, media).
    Shard = 0,
    /// NVMe/TCP connections and listeners.
    NvmeTcp = 1,
    /// vhost-user sockets and kicks.
    VhostUser = 2,
    /// vfio-user sockets.
    VfioUser = 3,
    /// No door: volumes and pools, which have queues at the drives that they lie on (`crate::pool`).
    Volume = 4,
}

/// The owner of the queue at `index` of a door's slab.
pub const fn owner(kind: Kind, index: u32) -> Owner {
    Owner((kind as u32) << 28 | index & 0x0fff_ffff)
}

/// The place in the door's slab.
pub const fn index(owner: Owner) -> usize {
    (owner.0 & 0x0fff_ffff) as usize
}

/// A reactor token: kind in the top four bits, the rest is the door's own.
pub const fn token(kind: Kind, rest: u64) -> u64 {
    (kind as u64) << 60 | rest & (u64::MAX >> 4)
}

/// A whole, eligible command for a drive: [`Event::Capsule`] or [`Event::Submit`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Place in the shard's [`Drives`].
    pub drive: u32,
    /// The command, copied once.
    pub event: Event,
}

/// Where a subsystem lives in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The shard.
    pub shard: u32,
    /// Place in that shard's [`Drives`].
    pub drive: u32,
}

/// Device `i` is on shard `i mod shards`; the discovery subsystem comes last on shard 0.
pub(crate) fn place(device: usize, shards: usize) -> Place {
    Place { shard: (device % shards) as u32, drive: (device / shards) as u32 }
}

/// Every subsystem of the node by NQN; the same on every shard.
#[derive(Debug, Default)]
pub struct Directory(RwLock<BTreeMap<String, Place>>);

impl Directory {
    /// With these in it.
    pub fn new(list: Vec<(String, Place)>) -> Self {
        Self(RwLock::new(list.into_iter().collect()))
    }

    /// Where the subsystem of that name is.
    pub fn find(&self, nqn: &str) -> Option<Place> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(nqn).copied()
    }

    /// One more; false, and nothing has changed, if there is one of that name.
    pub fn add(&self, nqn: &str, place: Place) -> bool {
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = !list.contains_key(nqn);
        if fresh {
            list.insert(nqn.to_string(), place);
        }
        fresh
    }

    /// One less.
    pub fn remove(&self, nqn: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(nqn);
    }
}

/// The first of its names.
impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: usize = 8;
        let list = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = list.keys().take(NAMES).map(String::as_str).collect();
        f.write_str(&names.join(", "))?;
        match list.len().saturating_sub(NAMES) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
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
    pub moves: &'a mut Vec<(u32, nvme_tcp::Moving)>,
}

/// All doors of a shard.
pub struct Doors {
    /// NVMe/TCP.
    pub nvme_tcp: nvme_tcp::Door,
    /// vhost-user-blk.
    pub vhost_user: vhost_user::Door,
    /// vfio-user.
    pub vfio_user: vfio_user::Door,
}

impl Doors {
    /// Says of each controller whether the process that takes the drives over goes on with what of its commands is under way. Another turn may
    /// change that.
    pub fn mark_begun(&mut self, cx: &mut Cx) {
        for drive in cx.drives.all() {
            cx.drives.to_poll(drive).set_fabrics_go_on();
        }
        self.vhost_user.mark_begun(cx);
        self.vfio_user.mark_begun(cx);
    }
}

macro_rules! dispatch {
    ($self:ident, $owner:ident, $call:ident($($arg:expr),*)) => {
        if $owner.0 >> 28 == Kind::NvmeTcp as u32 {
            $self.nvme_tcp.$call($owner, $($arg),*)
        } else if $owner.0 >> 28 == Kind::VfioUser as u32 {
            $self.vfio_user.$call($owner, $($arg),*)
        } else {
            $self.vhost_user.$call($owner, $($arg),*)
        }
    };
}

impl Host for Doors {
    // Rings of NVMe entries are the vfio-user door's alone, and message queues the others'.
    #[inline]
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.vfio_user.fetch(owner, address)
    }

    #[inline]
    fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.vfio_user.post(owner, address, vector, cqe)
    }

    #[inline]
    fn take(&mut self, owner: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        self.vfio_user.take(owner, qid, entry, head)
    }

    fn decide(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        self.vfio_user.decide(owner, tag, cqe);
    }

    #[inline]
    fn complete(
        &mut self,
        owner: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        self.vfio_user.complete(owner, address, vector, cqe, taken)
    }

    fn interrupt(&mut self, owner: Owner, vector: u16) {
        self.vfio_user.interrupt(owner, vector);
    }

    #[inline]
    fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        if owner.0 >> 28 == Kind::NvmeTcp as u32 {
            self.nvme_tcp.respond(owner, tag, cqe);
        } else {
            self.vhost_user.respond(owner, tag, cqe);
        }
    }

    #[inline]
    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        dispatch!(self, owner, read_data(data, offset, into))
    }

    #[inline]
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        dispatch!(self, owner, write_data(data, offset, from))
    }

    // A guest's buffer keeps what it holds, which is the guest's; a data PDU has to have something in it.
    #[inline]
    fn write_nothing(&mut self, owner: Owner, data: &DataPointer, offset: u32, len: u32) -> Result<(), Status> {
        if owner.0 >> 28 == Kind::NvmeTcp as u32 { self.write_zeroes(owner, data, offset, len) } else { Ok(()) }
    }
}
