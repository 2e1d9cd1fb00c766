//! Pools of drives, and volumes at the doors. `weir_pool` says which chunks of which drive are a volume's; here its I/O is carried out
//! ([`host`]), and the volumes' commands find their way ([`front`], [`parts`]). `crate::device::Drives` puts these together on a shard;
//! [`volumes`] is what the node does to pools and volumes from outside.
//!
//! All drives of a pool lie on one shard, and so do the fronts of its volumes: nothing hops.

pub mod front;
pub mod host;
pub mod parts;
pub mod volumes;
