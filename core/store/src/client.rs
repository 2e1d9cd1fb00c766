//! A client of the store: its session, its requests, its open files and its drives, as one machine.
//!
//! ```text
//!   callers ─Ask, Open, Begin─► ClientMachine ─┬─ SessionHolder   the lease
//!           ◄─Finish───────────                ├─ Requests        each change carried out once
//!   the service ◄─Send─ ─Answer─►              ├─ OpenFile        bytes in the inode, or FileIo: blocks; truncation, closing
//!   drives      ◄─Submit─ ─Done─►              └─ Drives          opened, opened anew, in doubt
//! ```
//! [`ClientMachine`] takes events to their end and says what is to be done; it has no socket, no thread and no clock, and moves no bytes itself: the
//! memory of callers and of open files is behind a port, [`ClientMemory`]. `node/store/src/client` gives it sockets, drives and threads; a simulation
//! gives it others.
//!
//! **Each work ends once**, with [`ClientEffect::Finish`]: done, failed, or late. Work of which a drive may have the memory ends when the drive is done
//! with it; everything else at its deadline.
//!
//! **A connection that is lost** is made again ([`ClientEffect::Connect`]), and what was not answered is sent again, with its slot and sequence. A file
//! that a service has forgotten is opened again; if that fails, what was asked of the file fails by that cause, and whatever comes later.
//!
//! **The lease** is looked at before each event. Once it is over nothing is sent to a drive, nothing that a drive does counts, and everything fails.
//!
//! **Truncation** holds the file: what was written is published first, then the new size is committed, and until it is known what that has come to nothing
//! newer of the file is published, for the commit may be carried out late. So it is with the bytes of an inode that are on their way.
//!
//! **Blocks that are not needed** go back to the service: those that came too late, that no write has taken, or that can be published no more.
//!
//! **Nothing that the service says is believed**: sizes, blocks and extents are within their limits, or the work fails with what is wrong.
//!
//! What is not here: names by path, buffered streams (the node's), several metadata services, and reservations at the drives.

mod answers;
mod checks;
mod drives;
mod elsewhere;
mod event;
mod lease;
mod machine;
mod open_file;
mod reopen;
mod requests;
mod sequence;
mod work;

#[cfg(test)]
mod tests;

pub use event::{
    ClientEffect, ClientEvent, ClientFailure, ClientFault, ClientMemory, ClientSetup, CommandId, DriveCommand, DriveId,
    FileWork, MemoryId, OpenFileId, OpenedFile, Outcome, WorkId,
};
pub use machine::ClientMachine;
