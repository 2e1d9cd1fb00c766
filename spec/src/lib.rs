#![no_std]
#![forbid(unsafe_code)]
//! What the standards say, once: wire structures, opcodes, status codes, register layouts.
//!
//! | module | standard |
//! |---|---|
//! | [`nvme`] | NVM Express Base 2.0, NVM Command Set 1.0, NVMe over Fabrics, NVMe/TCP Transport 1.0 |
//! | [`virtio_blk`], [`virtqueue`] | Virtio 1.2: block device, split and packed virtqueues |
//! | [`vhost_user`] | vhost-user protocol as documented with QEMU 9 |
//! | [`pci`] | PCI Local Bus 3.0, PCI Express Base 4.0: what a drive shows of itself in configuration space |
//! | [`crc32c`] | RFC 3720: the checksum of NVMe/TCP digests and of what Weir writes down |
//! | [`vfio_user`] | vfio-user protocol 0.1 as documented with QEMU 10.1 |
//!
//! Every structure has its size asserted beside it, explicit byte order (zerocopy's `little_endian`), and enums that
//! tolerate unknown values. Nothing here decides anything; nothing elsewhere writes a mask by hand.

extern crate alloc;

pub mod crc32c;
pub mod nvme;
pub mod pci;
pub mod vfio_user;
pub mod vhost_user;
pub mod virtio_blk;
pub mod virtqueue;
