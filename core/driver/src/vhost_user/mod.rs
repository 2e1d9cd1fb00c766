//! The front end of vhost-user-blk, for measuring and testing back ends without a guest: a message sequence that brings a
//! device up, and the driver's side of a virtqueue, split or packed (Virtio 1.2; vhost-user as documented with QEMU 9).
//!
//! ```text
//!   Hello ──Outgoing──► socket ──reply──► Hello ──► Negotiated ──► QueueLayout ──► setup() ──Outgoing──► socket
//!                                                                     │
//!                                                                     └──► FrontQueue: start, submit, publish, reap
//! ```
//!
//! Every slot owns its descriptors, its header line and its buffer, written once; a request changes a few words of them.
//! It polls: the device is asked never to interrupt.
//!
//! Uses the `Memory` port of `weir-session`, since the memory is as shared from this side as from the other.

mod layout;
mod negotiate;
mod queue;
mod ring;

#[cfg(test)]
mod tests;

pub use layout::{QueueAddresses, QueueLayout};
pub use negotiate::{
    Attach, FrontEndOptions, Hello, Negotiated, Outgoing, ReplyError, acknowledged, ask_inflight, inflight, setup,
};
pub use queue::{FrontError, FrontQueue};
