//! Names under which the keeper holds listeners and sockets for workers.

/// Names of listeners at which the keeper accepts vhost-user front ends; their paths follow.
pub const FRONTS: &str = "vhost-user:";
/// The same, where workers keep no in-flight regions: front ends with started rings do not outlive a worker.
pub const PLAIN_FRONTS: &str = "vhost-user-plain:";
/// Names of listeners at which the keeper accepts clients of vfio-user.
pub const RELAYS: &str = "vfio-user:";
/// Names of UNIX sockets whose paths disappear with the node; their paths follow.
pub const SOCKETS: &str = "socket:";

/// The same for those of the API.
pub const API_SOCKETS: &str = "api-socket:";
/// Names of the API's ports.
pub const API_PORTS: &str = "api:";
/// Names of drives on the PCI bus, with the memory of their queues; the name of the drive whose media one is follows.
pub const PCI_DRIVES: &str = "pci-drive:";
