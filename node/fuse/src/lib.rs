#![forbid(unsafe_code)]
//! A store as a file system of this machine, by FUSE (kernel protocol 7.31 and later).
//!
//! ```text
//!   programs ─► kernel ─► /dev/fuse ─► StoreFilesystem ─┬─ Nodes       numbers that the kernel knows, and their names
//!                                                       ├─ OpenFiles   one store file per inode, for all its openings
//!                                                       ├─ Directories listings under way
//!                                                       └─ StoreLink   the client; a new one when its session is over
//! ```
//! An inode has the store's number, which is never given out again. The kernel checks permissions (`default_permissions`), caches names and
//! attributes for [`MountOptions::cache`], and pages of a file until it is opened again and has changed.
//!
//! **A file has one writer in the store**, so all openings of this mount share one store file, opened for writing while any of them writes. Another
//! client that writes it makes opening for writing fail with `EBUSY`. What was written is published by `fsync` and `close`.
//!
//! **Every request ends by a deadline** (that of the client), with `ETIMEDOUT` or `EIO`; after one that was late, others fail at once for a second, so that
//! requests that wait in a row are not late one after the other.
//!
//! Left out: hard links, devices, sockets and pipes, times of access, `fallocate`, ACLs, and locks between machines.

mod attributes;
mod directories;
mod errors;
mod extended;
mod filesystem;
mod link;
mod log;
mod mounted;
mod nodes;
mod open_files;
mod requests;

pub use mounted::{MountError, MountOptions, Mounted, mount};
