//! Who is connected at the doors.

use super::{NodeControl, gone};
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::snapshot::DoorSnapshot;
use std::path::PathBuf;

impl NodeControl {
    /// The NVMe/TCP door over all shards.
    pub(super) fn tcp_snapshot(&self) -> Result<DoorSnapshot, Refusal> {
        let mut door = DoorSnapshot { listening: self.listening.clone(), ..DoorSnapshot::default() };
        for shard in &self.shards {
            let look = |s: &mut Shard| {
                let tcp = &s.doors.nvme_tcp;
                (tcp.connections(), tcp.unconnected(), tcp.admission().refused())
            };
            let (connections, (unconnected, pushed_out), refused) = shard.call(look).ok_or_else(gone)?;
            door.connections += connections;
            door.unconnected += unconnected;
            door.pushed_out += pushed_out;
            // Counted over all shards.
            door.refused = refused;
        }
        Ok(door)
    }

    /// Connections of a tenant's hosts over NVMe/TCP.
    pub(super) fn connections_of(&self, tenant: usize) -> u32 {
        let shard = self.shards.first();
        let queues = shard.and_then(|s| s.call(move |s| s.doors.nvme_tcp.admission().queues_of(tenant)));
        queues.unwrap_or_default()
    }

    /// Clients of every vhost-user and vfio-user socket.
    pub(super) fn clients(&self) -> Result<Vec<(PathBuf, u32)>, Refusal> {
        let mut sockets = Vec::new();
        for shard in &self.shards {
            let look = |s: &mut Shard| (s.doors.vhost_user.clients(), s.doors.vfio_user.clients());
            let (vhost, vfio) = shard.call(look).ok_or_else(gone)?;
            sockets.extend(vhost.into_iter().chain(vfio));
        }
        Ok(sockets)
    }
}
