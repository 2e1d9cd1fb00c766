//! What the messages carry.

use crate::class::{ClassId, ClassName};
use crate::error::StoreError;
use crate::file::NewBlock;
use crate::id::{NamespaceId, NodeId, ServiceId, SessionId};
use crate::inode::{Inode, UnixNanos};
use crate::location::Location;
use crate::members::ContentLabel;
use crate::records::SessionToken;
use crate::space::Epoch;
use crate::tree::{EntryPath, InodePath, ListEntry, NameChange, NewInode, SetAttributes};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Code, Damaged, Reader, Writer, coded, coded_as, numbered};
use weir_units::Nanos;

/// Bytes of what a client calls itself at the most.
pub const CLIENT_NAME_MAX: usize = 255;

/// Names of one [`Request::Resolve`](super::Request::Resolve) at the most.
pub const RESOLVE_NAMES_MAX: usize = 256;

/// Which session a connection is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionWish {
    /// None: the connection is an operator's, and opens no file.
    None,
    /// A new one.
    New,
    /// One that another connection had, with the token that it was told.
    Resume(SessionId, SessionToken),
}

/// What a client is told of the store when it is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WelcomeInfo {
    /// The version of the protocol that the service speaks.
    pub version: u16,
    /// The service.
    pub service: ServiceId,
    /// The store's random number.
    pub store: u64,
    /// The session, if one was wished for.
    pub session: Option<SessionId>,
    /// What the session is resumed with; zeroes without one.
    pub token: SessionToken,
    /// How long the session lives after a renewal was sent.
    pub lease: Nanos,
    /// How wrong clocks may be, in millionths.
    pub drift_ppm: u32,
    /// The store's epoch.
    pub epoch: Epoch,
    /// Bytes of a file that may lie in its inode.
    pub inline_max: u32,
    /// Bytes of a block, where nothing else was asked for.
    pub block: u32,
    /// The store's classes, best first; a [`ClassId`] is a place in this list, from 0.
    pub classes: Vec<ClassName>,
}

/// How a donated namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// Its blocks count, and new ones are given out.
    Up,
    /// Its blocks count, and no new ones are given out.
    Draining,
    /// It cannot be reached from the service; its blocks are tried all the same.
    Unreachable,
    /// Its content is gone, or another namespace answers at its target: what was on it alone is lost.
    Lost,
}

/// A donated namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its number in the store.
    pub namespace: NamespaceId,
    /// The machine that has it.
    pub node: NodeId,
    /// Where it is reached: `nvme-tcp://HOST:PORT/NQN?ns=1`.
    pub target: String,
    /// Its class.
    pub class: ClassId,
    /// Where it stands.
    pub location: Location,
    /// Bytes of a sector.
    pub sector: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// What its label block must say: who finds another label there neither reads nor writes.
    pub label: ContentLabel,
    /// How it is.
    pub state: NamespaceState,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are granted to sessions.
    pub granted: u64,
    /// Bytes of files.
    pub mapped: u64,
    /// Bytes that were given up and are not free yet.
    pub quarantined: u64,
}

/// What leaves a namespace that drains, or that is lost, and what cannot: as the last whole pass over its blocks has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovementInfo {
    /// The namespace.
    pub namespace: NamespaceId,
    /// It does not drain, but is lost or was not reached for long: its blocks get copies elsewhere.
    pub is_repair: bool,
    /// Copies of blocks that are left on it.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies that the process has moved so far.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Left because a client has their file open for writing.
    pub has_writer: u64,
    /// Left because they have to be recovered after a lost writer first.
    pub unsettled: u64,
    /// Left because no copy can be read.
    pub no_copy: u64,
    /// Left because no other namespace of their file's classes has room.
    pub no_room: u64,
    /// Left because there is no other namespace of their file's classes, on a node without another copy of theirs.
    pub no_node: u64,
    /// Left because the move has failed.
    pub failed: u64,
    /// Why one of those has failed; may be empty.
    pub why: String,
}

/// What files of some paths get when they are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Which: a pattern over whole paths, as [`PathPattern`](crate::PathPattern) has it.
    pub path: String,
    /// The classes of their blocks, best first; empty: the store's.
    pub classes: Vec<ClassName>,
    /// Copies of each block.
    pub copies: u8,
    /// How long they have to be left alone before their blocks may go to the next class; none: they stay.
    pub demote_after: Option<Nanos>,
}

/// What goes from a class to the next one, and what cannot: as the last whole pass over its blocks has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemotionInfo {
    /// The class.
    pub class: ClassId,
    /// Bytes of its drives, but for those that drain, are lost or not reached.
    pub bytes: u64,
    /// Bytes of those that files have, or that are granted.
    pub used: u64,
    /// It was over its high watermark, and is not at its low one yet.
    pub is_over: bool,
    /// Copies of blocks that the process has moved to another class so far.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Left because their file was changed or open not long enough ago.
    pub hot: u64,
    /// Left because no policy says that their file may be demoted.
    pub kept: u64,
    /// Left because their file has no class behind this one.
    pub no_next: u64,
    /// Left because a client has their file open for writing.
    pub has_writer: u64,
    /// Left because they have to be recovered after a lost writer first.
    pub unsettled: u64,
    /// Left because no copy can be read.
    pub no_copy: u64,
    /// Left because the next classes have no room below their own high watermarks.
    pub no_room: u64,
    /// Left because there is no drive of the next classes, on a node without another copy of theirs.
    pub no_node: u64,
    /// Left because the move has failed.
    pub failed: u64,
    /// Why one of those has failed; may be empty.
    pub why: String,
}

/// Policies by path, and demotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TieringInfo {
    /// Millionths of a class's room above which blocks go.
    pub high: u32,
    /// Millionths until which they do.
    pub low: u32,
    /// The policies of the process that serves, in the order in which they are tried.
    pub policies: Vec<PolicyInfo>,
    /// The classes, best first; none where no policy demotes.
    pub classes: Vec<DemotionInfo>,
}

/// A class, and what there is of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStatus {
    /// Its name.
    pub name: ClassName,
    /// Bytes in all that blocks can be given out of.
    pub bytes: u64,
    /// Bytes that are free.
    pub free: u64,
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusInfo {
    /// The service.
    pub service: ServiceId,
    /// The store's random number.
    pub store: u64,
    /// When the store was made.
    pub created: UnixNanos,
    /// How long the service has been running.
    pub running: Nanos,
    /// When a change is answered: `process` or `power`.
    pub durability: String,
    /// Where its metadata lie.
    pub metadata: String,
    /// Sessions that it knows.
    pub sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Open handles.
    pub handles: u64,
    /// Requests that it has answered.
    pub requests: u64,
    /// The classes, best first.
    pub classes: Vec<ClassStatus>,
    /// What is wrong with the metadata's file, if anything is.
    pub trouble: Option<String>,
}

/// What a process does for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRole {
    /// It answers clients.
    Serving,
    /// It waits for the end of the lease of the one that serves.
    Standby,
    /// It has not told that it lives for longer than a lease.
    Silent,
}

/// A process that serves the store, or stands by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceInfo {
    /// Its random number.
    pub process: u64,
    /// Where it listens: `HOST:PORT` or `unix:PATH`.
    pub addresses: Vec<String>,
    /// What it does.
    pub role: ServiceRole,
    /// Since when it does that, by its own calendar.
    pub since: UnixNanos,
    /// Which life of the service it has; 0 if it has none.
    pub term: u64,
}

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub session: SessionId,
    /// What the client calls itself.
    pub client: String,
    /// Whether a connection to this service has it.
    pub is_connected: bool,
    /// Files that it has open at this service.
    pub handles: u64,
    /// Bytes that it was granted and has not published.
    pub granted: u64,
}

/// A namespace that is to be donated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donation {
    /// Where it is reached.
    pub target: String,
    /// Its class.
    pub class: ClassName,
    /// Where it stands.
    pub location: Location,
    /// Whether it is taken although something that is not a store's lies on it: that is overwritten.
    pub overwrite: bool,
}

coded! {
    WelcomeInfo {
        version, service, store, session, token, lease, drift_ppm, epoch, inline_max, block, classes,
    }
    NamespaceInfo {
        namespace, node, target, class, location, sector, bytes, label, state, free, granted, mapped, quarantined,
    }
    MovementInfo {
        namespace, is_repair, blocks, bytes, moved_blocks, moved_bytes, has_writer, unsettled, no_copy, no_room, no_node, failed, why,
    }
    PolicyInfo { path, classes, copies, demote_after }
    DemotionInfo {
        class, bytes, used, is_over, moved_blocks, moved_bytes, hot, kept, no_next, has_writer, unsettled, no_copy, no_room, no_node,
        failed, why,
    }
    TieringInfo { high, low, policies, classes }
    ClassStatus { name, bytes, free }
    StatusInfo {
        service, store, created, running, durability, metadata, sessions, connections, handles, requests, classes, trouble,
    }
    ServiceInfo { process, addresses, role, since, term }
    SessionInfo { session, client, is_connected, handles, granted }
    Donation { target, class, location, overwrite }
    InodePath { inode, parent }
    EntryPath { container, name }
    NewInode { kind, mode, uid, gid, target, classes, location, copies, block }
    SetAttributes { mode, uid, gid, size, modified, classes, location }
    ListEntry { name, record, inode }
    NewBlock { copies, generation }
}
numbered! { ServiceRole: u8 { Serving = 0, Standby = 1, Silent = 2 } }
numbered! { NamespaceState: u8 { Up = 0, Draining = 1, Unreachable = 2, Lost = 3 } }
coded_as! {
    Epoch: u64, |epoch| epoch.0, |number| Some(Epoch(number));
    ContentLabel: [u8; 16], |label| label.0.to_le_bytes(), |bytes| Some(ContentLabel(u128::from_le_bytes(bytes)));
}

/// What lies on the heap is written as what it is.
macro_rules! boxed {
    ($($name:ident)*) => { $(
        impl Code for Box<$name> {
            fn put(&self, to: &mut Writer) {
                to.put::<$name>(self);
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                from.get().map(Box::new)
            }
            fn kind() -> String {
                $name::kind()
            }
        }
    )* };
}
boxed!(Inode StatusInfo TieringInfo);

/// 0 for none, 1 for a new one, 2 with its number and token.
impl Code for SessionWish {
    fn put(&self, to: &mut Writer) {
        match self {
            SessionWish::None => to.u8(0),
            SessionWish::New => to.u8(1),
            SessionWish::Resume(session, token) => {
                to.u8(2);
                to.put(session);
                to.put(token);
            }
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        match from.u8()? {
            0 => Ok(SessionWish::None),
            1 => Ok(SessionWish::New),
            2 => Ok(SessionWish::Resume(from.get()?, from.get()?)),
            _ => Err(Damaged),
        }
    }
    fn kind() -> String {
        "u8: 0 none, 1 a new one, 2 that session (u64, its token 16 × u8)".into()
    }
}

/// Its number and what goes with it.
impl Code for StoreError {
    fn put(&self, to: &mut Writer) {
        let (number, argument) = self.number();
        to.u8(number);
        to.u64(argument);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (number, argument) = (from.u8()?, from.u64()?);
        StoreError::from_number(number, argument).ok_or(Damaged)
    }
    fn kind() -> String {
        "number of an error u8, what goes with it u64".into()
    }
}

impl Code for NameChange {
    fn put(&self, to: &mut Writer) {
        match self {
            NameChange::Create(entry, new) => {
                to.u8(1);
                to.put(entry);
                to.put(new);
            }
            NameChange::HardLink(at, entry) => {
                to.u8(2);
                to.put(at);
                to.put(entry);
            }
            NameChange::Rename { from, to: target, replace } => {
                to.u8(3);
                to.put(from);
                to.put(target);
                to.put(replace);
            }
            NameChange::Delete { entry, recursive } => {
                to.u8(4);
                to.put(entry);
                to.put(recursive);
            }
            NameChange::SetAttributes(at, set) => {
                to.u8(5);
                to.put(at);
                to.put(set);
            }
            NameChange::SetExtended(at, name, value) => {
                to.u8(6);
                to.put(at);
                to.put(name);
                to.put(value);
            }
            NameChange::WriteInline(at, bytes) => {
                to.u8(7);
                to.put(at);
                to.bytes(bytes);
            }
            NameChange::PutValue(entry, bytes) => {
                to.u8(8);
                to.put(entry);
                to.bytes(bytes);
            }
            // It has requests of its own, with a handle; read as a change it is refused.
            NameChange::File(_) => to.u8(0),
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.u8()? {
            1 => NameChange::Create(from.get()?, from.get()?),
            2 => NameChange::HardLink(from.get()?, from.get()?),
            3 => NameChange::Rename { from: from.get()?, to: from.get()?, replace: from.get()? },
            4 => NameChange::Delete { entry: from.get()?, recursive: from.get()? },
            5 => NameChange::SetAttributes(from.get()?, from.get()?),
            6 => NameChange::SetExtended(from.get()?, from.get()?, from.get()?),
            7 => NameChange::WriteInline(from.get()?, from.bytes()?.into()),
            8 => NameChange::PutValue(from.get()?, from.bytes()?.into()),
            _ => return Err(Damaged),
        })
    }
    fn kind() -> String {
        "u8: 1 create, 2 hard link, 3 rename, 4 delete, 5 attributes, 6 an extended attribute, 7 all bytes of a small file, 8 a \
         table's value; and its fields"
            .into()
    }
}
