#![forbid(unsafe_code)]
//! The store on a machine: what carries out the requests of [`weir_store`]'s machines.
//!
//! | part | what it is |
//! |---|---|
//! | [`embedded`] | a key-value store in a file, for a store with one metadata service |
//! | [`etcd`] | the same in etcd, for a store whose metadata outlive their machine |
//! | [`fsck`] | whether what is in one of these is a store |
//! | [`service`] | a metadata service: its listener and its thread |
//! | [`label`] | what a donated namespace begins with |
//! | [`tier`] | the donated namespaces: read, write, flush |
//! | [`client`] | files and names of a store, for programs |
//! | [`record`] | what programs asked of a store, as their clients record it |

pub mod client;
pub mod embedded;
pub mod etcd;
pub mod fsck;
pub mod label;
pub mod record;
pub mod service;
pub mod tier;
