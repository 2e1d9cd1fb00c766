#![no_std]
#![forbid(unsafe_code)]
//! The protocol machines of the doors: bytes and descriptors in, requests out.
//!
//! | module | standard | a machine is |
//! |---|---|---|
//! | [`nvme_tcp`] | NVMe/TCP Transport 1.0 | one connection, which is one queue pair |
//! | [`vhost_user`] | vhost-user (QEMU 9), virtio-blk (Virtio 1.2) | one connection, which is one device |
//! | [`vfio_user`] | vfio-user 0.1 (QEMU 10.1), PCI Express 4.0 | one connection, which is one PCIe function |
//!
//! [`memory`] is the port through which a machine sees memory that belongs to somebody else.
//!
//! A machine knows its protocol and nothing of what the requests mean: `node`'s doors carry its bytes and hand its requests to
//! a drive. May depend on `weir-codec`, `weir-journal`, `weir-spec` and `weir-units` only: no clock, no thread, no socket.

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod memory;
pub mod nvme_tcp;
pub mod vfio_user;
pub mod vhost_user;
