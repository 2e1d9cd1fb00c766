//! The metadata protocol: what clients of a store and its metadata services say to each other, over TCP or a unix socket.
//!
//! ```text
//!   frame    length u32 (of all that follows, at most 1 MiB) │ request number u64 │ kind u16 │ body        all of it little-endian
//!
//!   client ─Hello──────────────► service      the first request of a connection; anything else ends it
//!          ◄─────Welcome, Failed─
//!          ─Request (number n)─►              any number at a time
//!          ◄──────Answer (n)────              in any order, one for each request
//! ```
//! [`Request`] and [`Answer`] are the messages, each with the number of its kind; [`Request::encode`] and [`Answer::encode`] give whole
//! frames. [`FrameReader`] finds frames in what a socket delivers. Nothing that comes in is trusted: a length beyond the limit, an unknown
//! kind or a body that does not end where its frame does is [`FrameError`], after which a connection has no meaning and is closed;
//! no memory is reserved for what is only promised.
//!
//! **Once.** Requests with a slot and a sequence change something and are carried out once: sent again over the same or another connection,
//! they get the answer that they got first ([`ChangeKey`](crate::ChangeKey)). All others may be sent again.
//!
//! **Several services**: one serves the store, the others stand by. One that stands by answers a `Hello` with [`Answer::Standby`], which names the one that
//! serves where that is known, and closes the connection. A greeting of version 1 gets [`StoreError::Unavailable`](crate::StoreError::Unavailable).
//!
//! **Handles** are a session's, not a connection's: they outlive a connection that breaks, and end with [`Request::Close`], the session or the
//! service's process. A service that was started again says [`StoreError::NotOpen`](crate::StoreError::NotOpen); the client opens the file again.
//!
//! `docs/reference/metadata-protocol.md` has the tables.

mod bodies;
mod frame;
mod message;

#[cfg(test)]
mod tests;

pub use bodies::{
    CLIENT_NAME_MAX, ClassStatus, DemotionInfo, Donation, MovementInfo, NamespaceInfo, NamespaceState, PolicyInfo,
    RESOLVE_NAMES_MAX, ServiceInfo, ServiceRole, SessionInfo, SessionWish, StatusInfo, TieringInfo, WelcomeInfo,
};
pub use frame::{FRAME_MAX, FrameError, FrameReader, HEADER_BYTES, RequestNumber};
pub use message::{Answer, PROTOCOL_MAGIC, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Request, VERSION_GRANT_SHORT};
