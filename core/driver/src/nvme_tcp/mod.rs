//! The host's side of nvme_tcp.
