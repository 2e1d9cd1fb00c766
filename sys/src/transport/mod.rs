//! What carries a queue pair to a server elsewhere: the sockets and mappings under the protocol machines of `weir-driver`.

pub mod fds;
pub mod nvme_tcp;
pub mod pci;
pub mod position;
mod queue_memory;
pub mod signal;
pub mod vfio_user;
pub mod vhost_user;
