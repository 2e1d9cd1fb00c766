//! The host's end of NVMe/TCP (NVMe/TCP Transport 1.0; fabrics of NVMe base 2.0).
//!
//! ```text
//!   submit() ─► commands by CID ─► segments() ─► socket        [`HostConnection`]: one queue pair, capsules and data
//!   completions ◄── receive(), filled() ◄─────── socket
//!
//!   ask() ──► Ask::Command ─► HostConnection of the admin queue    [`BringUp`]: from Connect to an enabled controller
//!   answer() ◄── completion and its data
//!
//!   association_probe::ask() ─► Connect ─► association_probe::read()       whether an association of before has ended
//! ```
//!
//! [`HostConnection`] neither owns the callers' buffers nor copies what they write: it hands out segments, which name a place in
//! its own headers or in a buffer of the [`Buffers`] port. [`command`] builds the submission queue entries.
//!
//!   notices::NamespaceWatch ─► Asynchronous Event Request, ANA log page    what the controller says of the namespace by itself
//!
//! Left out: TLS, authentication; who connects again does so with another [`HostConnection`]. Limits: one R2T outstanding a command (MAXR2T 0).

pub mod association_probe;
mod bring_up;
pub mod command;
mod connection;
mod notices;
mod receive;

pub use association_probe::Association;
pub use bring_up::{Ask, BringUp, ConnectOptions, ConnectedController, Discovery, Granted, connect_refusal};
pub(crate) use bring_up::{lacks_descriptors, uuid_of};
pub use connection::{
    Buffers, ConnectionFailure, DataTransfer, FinishedCommand, HostConnection, HostSettings, SendSegment,
};
pub use notices::NamespaceWatch;
