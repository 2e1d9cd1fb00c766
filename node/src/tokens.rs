//! Numbers that say whose something is: the owner of a queue at a drive, and the token of a descriptor at a reactor.

use weir_controller::Owner;

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
