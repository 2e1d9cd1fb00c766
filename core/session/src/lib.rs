#![no_std]
#![forbid(unsafe_code)]
//! The protocol machines of the doors: bytes and descriptors in, requests out.
//!
//! | module | standard | a machine is |
//! |---|---|---|
//! | [`nvme_tcp`] | NVMe/TCP Transport 1.0 | one connection, which is one queue pair |
//!
//! A machine knows its protocol and nothing of what the requests mean: `node`'s doors carry its bytes and hand its requests to
//! a drive. May depend on `weir-spec` and `weir-units` only: no clock, no thread, no socket.

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod nvme_tcp;
