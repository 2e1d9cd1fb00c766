//! What a metadata service is set up with.

use crate::id::ServiceId;
use weir_units::Nanos;

/// What a [`Tree`](crate::Tree) is set up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSettings {
    /// The service.
    pub service: ServiceId,
    /// A random number that no other process has.
    pub process: u64,
    /// How long the service's lease lasts, counted from when a renewal was sent; renewed at a third of it. The same for all services of a store.
    pub lease: Nanos,
    /// How much longer than a lease another service waits before it ends the life of one that does not renew: more than clocks drift apart
    /// in a lease.
    pub margin: Nanos,
    /// Between two looks at the lease of another process of the same service, at the most; it is looked at when it may be over in any case.
    pub look: Nanos,
    /// Between two attempts, where the key-value store or another service does not answer.
    pub retry: Nanos,
    /// How long a request waits for a directory of another service, or for reads, before it is answered with
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable). A commit whose outcome is unknown is pursued as long as the lease is renewed.
    pub patience: Nanos,
    /// Bytes of a file that may lie in its inode: 2 KiB with an embedded database, 256 B with etcd.
    pub inline_max: u32,
    /// Containers that are remembered although no request uses them, at the most: of more, those that were used longest ago are forgotten.
    pub containers_max: usize,
    /// The last process of this service is known to be dead, so its lease need not be waited for: it held the lock on the embedded database.
    pub is_predecessor_dead: bool,
}

impl TreeSettings {
    /// A lease of 3 s with a margin of 1 s, attempts every 10 ms for 2 s, 2 KiB in an inode, 4,096 containers.
    pub const fn new(service: ServiceId, process: u64) -> Self {
        Self {
            service,
            process,
            lease: Nanos::from_secs(3),
            margin: Nanos::from_secs(1),
            look: Nanos::NEVER,
            retry: Nanos::from_millis(10),
            patience: Nanos::from_secs(2),
            inline_max: 2 << 10,
            containers_max: 4096,
            is_predecessor_dead: false,
        }
    }
}
