//! Pools of drives, and volumes at the doors. `weir_pool` says which chunks of which drive are a volume's; here its I/O is carried out
//! ([`host`]), and the volumes' commands find their way ([`front`], [`parts`]). `crate::device::Drives` puts these together on a shard;
//! [`volumes`] is what the node does to pools and volumes from outside.
//!
//! A pool's machine is on the shard of its first drive, a volume's front on the shard of the volume's first chunk. At drives of other shards they
//! are guests ([`queue`]).

pub mod drive_queue;
pub mod front;
pub mod host;
pub mod parts;
pub mod volumes;
