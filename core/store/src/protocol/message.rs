//! The messages, each kind with its number.

use super::bodies::{
    Donation, MovementInfo, NamespaceInfo, ServiceInfo, SessionInfo, SessionWish, StatusInfo, TieringInfo, WelcomeInfo,
};
use super::frame::{self, FrameError, RequestNumber};
use crate::error::StoreError;
use crate::extent::Extent;
use crate::file::NewBlock;
use crate::id::{InodeId, NamespaceId};
use crate::inode::Inode;
use crate::location::Location;
use crate::name::EntryName;
use crate::records::{BlockRecord, Changed, MapChunk};
use crate::space::Epoch;
use crate::tree::{EntryPath, InodePath, ListEntry, NameChange, NewInode};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};

/// What a [`Request::Hello`] begins with: "WEIRMETA".
pub const PROTOCOL_MAGIC: u64 = u64::from_le_bytes(*b"WEIRMETA");

/// The version of all this. Version 2 has `Standby` and `Services`, version 3 `GrantShort` and `Movement`, version 4 `Tiering`; what was before is as it was.
pub const PROTOCOL_VERSION: u16 = 4;

/// The oldest version that has [`Request::GrantShort`].
pub const VERSION_GRANT_SHORT: u16 = 3;

/// The oldest version that a service speaks. Who greets with it is sent nothing that it does not have.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

/// Messages: the number of each kind, and its fields in the order in which they are written.
macro_rules! messages {
    ($($(#[doc = $all:literal])* $name:ident { $(
        $(#[doc = $about:literal])* $kind:literal $message:ident {
            $($(#[doc = $meaning:literal])* $field:ident: $type:ty),* $(,)?
        }
    )* })*) => { $(
        $(#[doc = $all])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name { $(
            $(#[doc = $about])*
            $message { $($(#[doc = $meaning])* $field: $type),* },
        )* }

        impl $name {
            /// The number of its kind.
            pub const fn kind(&self) -> u16 {
                match self { $($name::$message { .. } => $kind,)* }
            }

            /// Its frame, whole. `None` if it would be longer than a frame may be.
            pub fn encode(&self, number: RequestNumber) -> Option<Vec<u8>> {
                frame::encode(number, self.kind(), |to| self.put(to))
            }

            /// What a frame says, without its length.
            ///
            /// # Errors
            /// It is no such message.
            pub fn decode(frame: &[u8]) -> Result<(RequestNumber, Self), FrameError> {
                frame::decode(frame, Self::get)
            }

            fn put(&self, to: &mut Writer) {
                match self { $($name::$message { $($field),* } => { $(to.put($field);)* })* }
            }

            fn get(kind: u16, from: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(match kind {
                    $($kind => $name::$message { $($field: from.get()?),* },)*
                    _ => return Err(Damaged),
                })
            }

            /// Its lines of the table in `docs/reference/metadata-protocol.md`: kind, name, fields, meaning.
            #[cfg(test)]
            pub(crate) fn rows() -> Vec<String> {
                alloc::vec![$({
                    let fields: &[String] = &[$(
                        alloc::format!("`{}` {}", stringify!($field), <$type as weir_codec::Code>::kind())
                    ),*];
                    let fields = if fields.is_empty() { "–".into() } else { fields.join("; ") };
                    let about: String = [$($about),*].concat();
                    alloc::format!("| {} | `{}` | {} | {} |", $kind, stringify!($message), fields, about.trim())
                }),*]
            }
        }
    )* };
}

messages! {
    /// What a client says.
    Request {
        /// The first request of a connection. Answer: `Welcome`, or `Standby`.
        1 Hello {
            /// [`PROTOCOL_MAGIC`].
            magic: u64,
            /// [`PROTOCOL_VERSION_MIN`] to [`PROTOCOL_VERSION`].
            version: u16,
            /// What the client calls itself: at most [`CLIENT_NAME_MAX`](super::CLIENT_NAME_MAX) bytes.
            client: String,
            /// Where it is.
            location: Location,
            /// The session that it wants.
            session: SessionWish,
        }
        /// The session goes on; the client has no older map than of this epoch, and no I/O under one. Answer: `Renewed`.
        2 Renew {
            /// What it acknowledges.
            epoch: Epoch,
        }
        /// The session ends: the client has no I/O in flight. Answer: `Done`.
        3 Bye {}
        /// A path, name by name, at most 256; symlinks on the way are followed, 40 at the most. No names: the container itself. Answer: `Found`.
        10 Resolve {
            /// Where it begins; the root for an absolute path.
            from: InodeId,
            /// The names.
            names: Vec<EntryName>,
            /// Whether the last one is followed, if it is a symlink.
            follow: bool,
        }
        /// An inode. Answer: `Found`.
        11 Stat {
            /// Which, and where it was seen.
            at: InodePath,
        }
        /// Names of a container, in order. Answer: `Page`.
        12 List {
            /// The container.
            container: InodeId,
            /// Only names behind this one.
            after: Option<EntryName>,
            /// So many at the most, and at the most 256.
            most: u32,
        }
        /// A change of names or of an inode. Answer: `Changed`.
        13 Change {
            /// The slot: one request at a time.
            slot: u16,
            /// It rises with each request of the slot, from 1.
            sequence: u64,
            /// What is changed.
            change: NameChange,
        }
        /// A file is opened; for writing by one session at a time. Answer: `Opened`.
        20 Open {
            /// Which, and where it was seen.
            at: InodePath,
            /// Whether it will be written.
            write: bool,
        }
        /// A file is made, or opened if it is there, for writing. Answer: `Opened`.
        21 OpenNew {
            /// The slot.
            slot: u16,
            /// Its sequence.
            sequence: u64,
            /// The name.
            entry: EntryPath,
            /// What is made.
            new: NewInode,
            /// The first bytes of the file, which lie in its inode. Of a file that is there already they are not used.
            content: Vec<u8>,
            /// It must not be there yet.
            exclusive: bool,
        }
        /// A file is closed; of a writer it is the end of what it may publish, and no write of its is in flight. Answer: `Done`.
        22 Close {
            /// The handle.
            handle: u64,
        }
        /// A chunk of a file's map. Answer: `Chunk`.
        30 Map {
            /// An open file.
            handle: u64,
            /// The chunk's number.
            chunk: u32,
        }
        /// Blocks for a file that is open for writing; one suffices. Answer: `Granted`.
        31 Grant {
            /// An open file.
            handle: u64,
            /// Blocks at the most.
            count: u32,
        }
        /// Published bytes of a block are about to be written over. Answer: `Done`, when the service's medium has the mark, whatever its `durability`.
        32 Unsettle {
            /// A file that is open for writing.
            handle: u64,
            /// The block's number in the file.
            block: u64,
        }
        /// A block has these copies and no others: a write of the others has failed. Answer: `Done`.
        33 MarkOut {
            /// A file that is open for writing.
            handle: u64,
            /// The block's number in the file.
            block: u64,
            /// Those that are left: at least one.
            copies: Vec<Extent>,
        }
        /// What was written becomes the file: its size, and blocks. Blocks behind the size go. Blocks that had other bytes of a drive give
        /// those up. Answer: `Changed`.
        34 Publish {
            /// A file that is open for writing.
            handle: u64,
            /// The slot.
            slot: u16,
            /// Its sequence.
            sequence: u64,
            /// The file's size in bytes.
            size: u64,
            /// Blocks by their number in the file, in order.
            blocks: Vec<(u64, BlockRecord)>,
        }
        /// Granted bytes that are not needed. Answer: `Done`.
        35 Return {
            /// Whole grains of 4 KiB of what the session was granted.
            extents: Vec<Extent>,
        }
        /// A block that is shorter than the file's blocks, where there is no room for a whole one (from version 3 on). Answer: `Granted`.
        36 GrantShort {
            /// An open file.
            handle: u64,
            /// Bytes: whole grains of 4 KiB, the file's blocks at the most.
            bytes: u32,
        }
        /// All donated namespaces. Answer: `Namespaces`.
        40 Namespaces {}
        /// How the service is. Answer: `Status`.
        41 Status {}
        /// All sessions. Answer: `Sessions`.
        42 Sessions {}
        /// A namespace joins the store, or comes back to it. Answer: `Donated`.
        43 Donate {
            /// Which.
            donation: Donation,
        }
        /// A namespace takes no new blocks and those that it has go elsewhere, or neither any more. Answer: `Done`, at once.
        44 Drain {
            /// Which.
            namespace: NamespaceId,
            /// Whether it drains from now on.
            drains: bool,
        }
        /// A namespace that no block is on leaves the store. Answer: `Done`.
        45 Remove {
            /// Which.
            namespace: NamespaceId,
        }
        /// The processes that serve the store or stand by (from version 2 on). Answer: `Services`.
        46 Services {}
        /// What leaves namespaces that drain or are lost (from version 3 on). Answer: `Movement`.
        47 Movement {}
        /// The policies by path, and what goes from class to class (from version 4 on). Answer: `Tiering`.
        48 Tiering {}
    }

    /// What a service answers.
    Answer {
        /// It came to nothing.
        32768 Failed {
            /// Why.
            error: StoreError,
            /// What it is about, in words: a path, a node; may be empty.
            detail: String,
        }
        /// The client is let in.
        32769 Welcome {
            /// What it has to know.
            welcome: WelcomeInfo,
        }
        /// The process stands by and answers nothing else; the connection ends (from version 2 on).
        32772 Standby {
            /// Where the one listens that serves the store, as far as it is known.
            addresses: Vec<String>,
        }
        /// The session goes on.
        32770 Renewed {
            /// The store's epoch: older maps are to be let go of.
            epoch: Epoch,
        }
        /// It was done.
        32771 Done {}
        /// An inode.
        32778 Found {
            /// Which, and where it is.
            at: InodePath,
            /// What it is.
            inode: Box<Inode>,
        }
        /// Names.
        32780 Page {
            /// The container's version: pages of one version are of one moment.
            version: u64,
            /// The names in order. Inodes are without their extended attributes, and without the bytes that lie in them; those of containers are left out.
            entries: Vec<ListEntry>,
            /// Whether there are none behind them.
            is_last: bool,
        }
        /// What a change has come to.
        32781 Changed {
            /// The inode, and its version.
            changed: Changed,
        }
        /// A file is open.
        32788 Opened {
            /// By that number it is known from now on.
            handle: u64,
            /// Which it is, and where.
            at: InodePath,
            /// What it is.
            inode: Box<Inode>,
        }
        /// A chunk of a map.
        32798 Chunk {
            /// Its blocks.
            chunk: MapChunk,
            /// The store's epoch when it was read, or before.
            epoch: Epoch,
        }
        /// Blocks.
        32799 Granted {
            /// At least one.
            blocks: Vec<NewBlock>,
        }
        /// Namespaces.
        32808 Namespaces {
            /// In the order of their numbers.
            namespaces: Vec<NamespaceInfo>,
        }
        /// How the service is.
        32809 Status {
            /// That.
            status: Box<StatusInfo>,
        }
        /// Sessions.
        32810 Sessions {
            /// In the order of their numbers.
            sessions: Vec<SessionInfo>,
        }
        /// A namespace has joined.
        32811 Donated {
            /// Its number in the store.
            namespace: NamespaceId,
        }
        /// Processes (from version 2 on).
        32814 Services {
            /// The one that serves first.
            services: Vec<ServiceInfo>,
        }
        /// What leaves namespaces (from version 3 on).
        32815 Movement {
            /// Of each that blocks leave, in the order of their numbers.
            namespaces: Vec<MovementInfo>,
        }
        /// Policies and demotion (from version 4 on).
        32816 Tiering {
            /// Those.
            tiering: Box<TieringInfo>,
        }
    }
}
