//! What goes into the machine and what comes out of it.

use crate::error::StoreError;
use crate::file::{Crc32cUpdate, DriveFailure, FileBuffer, FileError, FileMemory, FileOpId};
use crate::id::NamespaceId;
use crate::inode::Inode;
use crate::protocol::{Answer, NamespaceInfo, Request, RequestNumber, SessionWish, WelcomeInfo};
use crate::tree::InodePath;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    )* };
}

numbers! {
    /// What a caller waits for: a number of [`ClientMachine::number`](super::ClientMachine::number), used once.
    WorkId
    /// An open file, as the machine numbers them.
    OpenFileId
    /// A namespace that was opened, as the machine numbers them: opened anew it has another number.
    DriveId
    /// A command to a drive, as the machine numbers them.
    CommandId
    /// Whose memory it is: an open file, for as long as its size is not changed by a truncation.
    MemoryId
}

/// Memory that answers at once: the callers', by their work, and that of open files.
pub trait ClientMemory {
    /// The memory of one open file.
    type OfFile<'a>: FileMemory
    where
        Self: 'a;

    /// As the machine of an open file sees it; [`FileBuffer::Caller`] is the memory of the work of that number.
    fn of_file(&mut self, owner: MemoryId) -> Self::OfFile<'_>;
    /// Puts bytes at the beginning of a caller's memory.
    fn fill(&mut self, work: WorkId, from: &[u8]);
    /// Takes bytes from the beginning of a caller's memory.
    fn take(&mut self, work: WorkId, to: &mut [u8]);
    /// Memory of an operation of the machine's own.
    fn keep(&mut self, work: WorkId, bytes: Vec<u8>);
    /// Gives that back.
    fn release(&mut self, work: WorkId);
    /// Gives back all that an open file has reserved.
    fn forget(&mut self, owner: MemoryId);
}

/// How a client goes about.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// CRC32C.
    pub crc: Crc32cUpdate,
    /// How long a flush may take that nobody has asked for, but the 16 MiB that a session may have unpublished.
    pub room_timeout: Nanos,
}

/// What is to be done to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWork {
    /// Read so many bytes from there into the caller's memory.
    Read(u64, u32),
    /// Write so many bytes there from the caller's memory.
    Write(u64, u32),
    /// The same, and nothing is written behind it before the file is closed, as far as is known: its last block is no longer than it has to be.
    WriteLast(u64, u32),
    /// Publish what was written.
    Flush,
    /// Publish, and give the file that size.
    Truncate(u64),
    /// Publish, cut the last block to what it holds, and close the file at the service.
    Close,
}

impl FileWork {
    /// Where it writes, and how much.
    pub const fn write(self) -> Option<(u64, u32)> {
        match self {
            FileWork::Write(offset, len) | FileWork::WriteLast(offset, len) => Some((offset, len)),
            _ => None,
        }
    }
}

/// What happens to a client.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// A [`ClientEffect::Connect`] was carried out: the session goes on over another connection.
    Connected(Box<WelcomeInfo>),
    /// The connection has ended: why, in words.
    Disconnected(String),
    /// The session cannot be resumed: there is none.
    Refused,
    /// The service has answered.
    Answer(RequestNumber, Answer),
    /// A [`ClientEffect::Send`] is longer than a message may be.
    TooLong(RequestNumber),
    /// A command is over, and its completion has been taken: its memory is not the drive's any more.
    Done(CommandId, Result<(), DriveFailure>),
    /// A drive with a volatile write cache was connected to again: said before the end of any command that it has carried out since.
    Reconnected(DriveId),
    /// A drive cannot be opened: why, in words. It has no commands, and takes none.
    NotOpened(DriveId, String),
    /// Why a drive does not answer, if it does not.
    Trouble(DriveId, Option<String>),
    /// Whether the drive may still carry out a write that was given up. Said before the end of the command is.
    Doubt(DriveId, bool),
    /// A caller asks the service for something that opens nothing, until that time.
    Ask(WorkId, Request, Nanos),
    /// A caller opens a file, by [`Request::Open`] or [`Request::OpenNew`], until that time.
    Open(WorkId, Request, Nanos),
    /// A caller wants something done to an open file, until that time.
    Begin(WorkId, OpenFileId, FileWork, Nanos),
    /// A caller does not wait any more. What has not begun is not begun; a file that is opened is closed again.
    Cancel(WorkId),
    /// No caller has the file any more: what was not published is not, and the file is closed at the service.
    Forget(OpenFileId),
    /// The client ends.
    Bye,
    /// Time has passed: see [`ClientMachine::due`](super::ClientMachine::due).
    Tick,
}

/// What a drive is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveCommand {
    /// Read whole sectors: from that byte of the namespace on, so many, to there.
    Read(u64, u32, FileBuffer),
    /// Write whole sectors: to that byte of the namespace on, so many, from there.
    Write(u64, u32, FileBuffer),
    /// Make durable what was written.
    Flush,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEffect {
    /// Make a connection, however long it takes; or hear that there is no such session.
    Connect(SessionWish),
    /// Send a request over the connection.
    Send(RequestNumber, Request),
    /// Open a namespace: commands for it follow at once.
    OpenDrive(DriveId, Box<NamespaceInfo>),
    /// The drive has no commands: end its association.
    CloseDrive(DriveId),
    /// Have a drive do something, with the memory of an open file.
    Submit(DriveId, CommandId, MemoryId, DriveCommand),
    /// Give a command up, if that can be done: its end is told all the same.
    Abort(DriveId, CommandId),
    /// A caller's work is over, and its memory is the caller's. Said once for each.
    Finish(WorkId, Outcome),
}

/// A file that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedFile {
    /// By that number it is known.
    pub file: OpenFileId,
    /// Which it is, and where.
    pub at: InodePath,
    /// What it was when it was opened.
    pub inode: Box<Inode>,
}

/// What a work has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`ClientEvent::Ask`].
    Answer(Result<Answer, ClientFailure>),
    /// Of [`ClientEvent::Open`].
    Opened(Result<OpenedFile, ClientFailure>),
    /// Of [`ClientEvent::Begin`]: how many bytes were read or written.
    Io(Result<u32, ClientFailure>),
}

/// Why a work came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// The service refuses; what it says of it.
    Store(StoreError, String),
    /// A read, write or flush came to nothing.
    File(FileError),
    /// The service does not answer in time: why.
    Unreachable(String),
    /// The service says what cannot be: what.
    Protocol(String),
    /// The request is longer than a message may be.
    TooLong,
    /// It was not done in time.
    Deadline,
    /// [`ClientEvent::Cancel`] has ended it.
    Cancelled,
    /// The session is over.
    SessionOver,
}

/// That, and the drive that has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFailure {
    /// What is wrong.
    pub fault: ClientFault,
    /// The drive that does not answer, and why.
    pub drive: Option<String>,
}

impl From<ClientFault> for ClientFailure {
    fn from(fault: ClientFault) -> Self {
        Self { fault, drive: None }
    }
}

impl From<FileError> for ClientFailure {
    fn from(error: FileError) -> Self {
        Self::from(match error {
            FileError::Deadline => ClientFault::Deadline,
            FileError::LeaseOver => ClientFault::SessionOver,
            error => ClientFault::File(error),
        })
    }
}

impl From<StoreError> for ClientFailure {
    fn from(error: StoreError) -> Self {
        Self::from(match error {
            StoreError::SessionGone => ClientFault::SessionOver,
            error => ClientFault::Store(error, String::new()),
        })
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFault::Store(error, detail) if detail.is_empty() => error.fmt(f),
            ClientFault::Store(error, detail) => write!(f, "{error} ({detail})"),
            ClientFault::File(error) => error.fmt(f),
            ClientFault::Unreachable(why) => write!(f, "the metadata service does not answer: {why}"),
            ClientFault::Protocol(what) => write!(f, "the metadata service says what cannot be: {what}"),
            ClientFault::TooLong => f.write_str("the request is longer than a message may be"),
            ClientFault::Deadline => f.write_str("it was not done before its deadline"),
            ClientFault::Cancelled => f.write_str("it was cancelled"),
            ClientFault::SessionOver => f.write_str("the client's session has ended; open the store again"),
        }
    }
}

impl core::error::Error for ClientFault {}

/// The work of an operation of a file's machine.
pub(super) fn work_of(op: FileOpId) -> WorkId {
    WorkId(op.0)
}

/// The namespace that a name of a drive is for, in words.
pub(super) fn drive_name(namespace: NamespaceId, info: Option<&NamespaceInfo>) -> String {
    match info {
        Some(info) => alloc::format!("namespace {namespace} at {}", info.target),
        None => alloc::format!("namespace {namespace}"),
    }
}
