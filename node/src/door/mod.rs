//! The doors of a shard: what clients come in by. Each door keeps its connections in a slab; a `Subsystem` names a queue's
//! place in it by an [`Owner`], whose top four bits say which door.
//!
//! A turn of the shard: `ready` for every watched descriptor, `poll` over what is hot, the drives run (calling [`Host`]
//! methods), `flush`. A door never blocks and never calls a drive's `apply`: it hands [`Arrival`](context::Arrival)s to the shard, because the
//! drive calls back into the door while it runs.

mod begun;
pub mod context;
pub mod nvme_tcp;
pub mod vfio_user;
pub mod vhost_user;

use crate::tokens::Kind;
use context::Cx;
use weir_controller::{DataPointer, Host, Owner, RingCompletion, SpoiledTransfer, SpoiledTransfers, Tag};
use weir_spec::nvme::{Cqe, Status};

/// All doors of a shard.
pub struct Doors {
    /// NVMe/TCP.
    pub nvme_tcp: nvme_tcp::Door,
    /// vhost-user-blk.
    pub vhost_user: vhost_user::Door,
    /// vfio-user.
    pub vfio_user: vfio_user::Door,
    /// Commands whose bytes rules of failures flip on their way.
    pub spoiled: SpoiledTransfers,
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
        dispatch!(self, owner, read_data(data, offset, &mut *into))?;
        if !self.spoiled.is_empty() {
            self.spoiled.flip(owner, data, offset, into);
        }
        Ok(())
    }

    #[inline]
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        if !self.spoiled.is_empty() {
            let flipped = self.spoiled.flipped(owner, data, offset, from);
            return dispatch!(self, owner, write_data(data, offset, &flipped));
        }
        dispatch!(self, owner, write_data(data, offset, from))
    }

    fn begin_spoiled(&mut self, transfer: SpoiledTransfer) {
        self.spoiled.begin(transfer);
    }

    fn end_spoiled(&mut self, owner: Owner, data: &DataPointer) {
        self.spoiled.end(owner, data);
    }

    // A guest's buffer keeps what it holds, which is the guest's; a data PDU has to have something in it.
    #[inline]
    fn write_nothing(&mut self, owner: Owner, data: &DataPointer, offset: u32, len: u32) -> Result<(), Status> {
        if owner.0 >> 28 == Kind::NvmeTcp as u32 { self.write_zeroes(owner, data, offset, len) } else { Ok(()) }
    }
}
