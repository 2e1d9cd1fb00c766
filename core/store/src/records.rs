//! How everything lies in the key-value store: the values. A value is the version of its layout, one byte, and then its fields, little-endian.
//! `docs/reference/formats.md` has the tables. [`keys`](crate::keys) has the keys.

use crate::class::{ClassId, ClassName};
use crate::error::StoreError;
use crate::extent::Extent;
use crate::id::{Generation, InodeId, NodeId, ServiceId, SessionId, Term};
use crate::inode::{Inode, InodeKind, UnixNanos};
use crate::location::Location;
use crate::members::ContentLabel;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Code, Coder, Damaged, Reader, Writer, fields};
use weir_units::Nanos;

/// The version that values have, and the store as a whole.
pub const STORE_VERSION: u8 = 1;

/// Bytes of a chunk of a block map at the most.
pub const MAP_CHUNK_BYTES_MAX: usize = 32 << 10;

/// Copies of a block at the most.
pub const COPIES_MAX: usize = 4;

/// What each checksum of a block is of, in bytes.
pub const CHECKSUM_BYTES: u32 = 64 << 10;

/// What a name leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameRecord {
    /// The inode.
    pub inode: InodeId,
    /// Its kind.
    pub kind: InodeKind,
}

/// The container that a container is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentRecord {
    /// Its number; of the root the root, of an orphan 0.
    pub parent: InodeId,
}

/// Which service owns a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The service; 0: none.
    pub service: ServiceId,
    /// Which life of the service.
    pub incarnation: Term,
    /// It rises with each owner.
    pub term: Term,
}

/// A metadata service's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Which life of the service; never the same for two.
    pub incarnation: Term,
    /// A random number of the process, which tells it from another that calls itself the same service.
    pub process: u64,
    /// It rises with each renewal.
    pub beat: u64,
    /// Whether another service has ended this life, so that it may take what this one owned.
    pub is_fenced: bool,
}

/// The last life of a service: written when it begins, and not by renewals. Every commit of that life expects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeRecord {
    /// Which life.
    pub incarnation: Term,
    /// The process that has it.
    pub process: u64,
}

/// A process that serves the store, or stands by to serve it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Where it listens: `HOST:PORT` or `unix:PATH`.
    pub addresses: Vec<String>,
    /// Since when it serves, or stands by.
    pub since: UnixNanos,
    /// It rises with each renewal.
    pub beat: u64,
}

/// What a session is resumed with: random bytes that only its client was told.
pub type SessionToken = [u8; 16];

/// A client's session: it lives as long as it has this record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// What the client calls itself.
    pub client: String,
    /// How long it lives without a renewal.
    pub lease: Nanos,
    /// It rises with each renewal.
    pub beat: u64,
    /// Who resumes it presents this.
    pub token: SessionToken,
}

/// What a change has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The inode that was made or changed.
    pub inode: InodeId,
    /// Its version after the change.
    pub version: u64,
}

/// The answer to the last request of a session's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRecord {
    /// The request.
    pub sequence: u64,
    /// What it was told.
    pub answer: Result<Changed, StoreError>,
}

impl Default for AnswerRecord {
    fn default() -> Self {
        Self { sequence: 0, answer: Ok(Changed::default()) }
    }
}

/// An inode that no name leads to any more: its names, or its blocks, are still to be freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanRecord {
    /// What it is.
    pub kind: InodeKind,
    /// When it lost its name.
    pub since: UnixNanos,
}

/// A number that only rises: the next inode, the rename key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterRecord {
    /// The number.
    pub next: u64,
}

/// Which session may write a file: there is one while it has the file open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterRecord {
    /// The session.
    pub session: SessionId,
}

/// A chunk of a file's block map has blocks with fewer copies than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortRecord {
    /// Copies of each block that the file wants.
    pub copies: u8,
}

/// A namespace that was donated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// The machine that has it.
    pub node: NodeId,
    /// Where it is reached.
    pub target: String,
    /// Its class.
    pub class: ClassId,
    /// Where it stands.
    pub location: Location,
    /// Bytes of a sector.
    pub sector: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of each of its regions; the last one has what is left as well.
    pub region: u64,
    /// What its label block says of its content.
    pub label: ContentLabel,
    /// No new blocks are given out.
    pub is_draining: bool,
    /// Its content is gone.
    pub is_lost: bool,
}

/// A namespace that was removed: nothing is on it, and it may join again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedRecord {
    /// What its label block says.
    pub label: ContentLabel,
}

/// The store's classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassesRecord {
    /// Their names, best first; the number of a class is its place, from 0.
    pub names: Vec<ClassName>,
}

/// The store itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRecord {
    /// A random number, which tells it from other stores.
    pub id: u64,
    /// When it was made.
    pub created: UnixNanos,
}

/// A block of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRecord {
    /// Its number within its chunk.
    pub index: u32,
    /// How often its place had been given out.
    pub generation: Generation,
    /// Whether published bytes of it may have been written over since it was last settled: its checksums do not count then.
    pub is_unsettled: bool,
    /// Where its copies are: 1 to [`COPIES_MAX`], of one length.
    pub copies: Vec<Extent>,
    /// CRC32C of each 64 KiB, the last one perhaps shorter.
    pub checksums: Vec<u32>,
}

/// A chunk of a file's block map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapChunk {
    /// Its blocks, in order; those that are not there read as zeroes.
    pub blocks: Vec<BlockRecord>,
}

impl BlockRecord {
    /// Whether it has fewer copies than its file wants.
    pub fn lacks_copies(&self, wanted: u8) -> bool {
        (1..usize::from(wanted)).contains(&self.copies.len())
    }
}

impl MapChunk {
    /// Whether a block of it has fewer copies than its file wants.
    pub fn lacks_copies(&self, wanted: u8) -> bool {
        self.blocks.iter().any(|block| block.lacks_copies(wanted))
    }
}

/// How many blocks a chunk of a block map stands for: a power of two, so many that no chunk exceeds [`MAP_CHUNK_BYTES_MAX`]. At least 1, at
/// the most 256.
///
/// ```
/// assert_eq!([64 << 10, 1 << 20, 4 << 20].map(weir_store::records::blocks_per_chunk), [256, 128, 64]);
/// ```
pub const fn blocks_per_chunk(block_bytes: u32) -> u32 {
    let checksums = block_bytes.div_ceil(CHECKSUM_BYTES) as usize;
    // Index, generation, state, two lengths; the copies; the checksums.
    let most = 4 + 8 + 1 + 4 + 4 + COPIES_MAX * 24 + checksums * 4;
    let fit = (MAP_CHUNK_BYTES_MAX - 5) / most;
    if fit == 0 { 1 } else { 1 << fit.ilog2() }
}

macro_rules! records {
    ($($record:ident: $put:ident, $get:ident;)*) => { $(
        impl Code for $record {
            fn put(&self, to: &mut Writer) {
                $put(self, to);
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                let mut record = Self::default();
                $get(&mut record, from)?;
                Ok(record)
            }
            fn kind() -> String {
                stringify!($record).into()
            }
        }
    )* };
}

records! {
    Inode: put_inode, get_inode;
    NameRecord: put_name, get_name;
    ParentRecord: put_parent, get_parent;
    OwnerRecord: put_owner, get_owner;
    ServiceRecord: put_service, get_service;
    LifeRecord: put_life, get_life;
    ProcessRecord: put_process, get_process;
    SessionRecord: put_session, get_session;
    Changed: put_changed, get_changed;
    AnswerRecord: put_answer, get_answer;
    OrphanRecord: put_orphan, get_orphan;
    CounterRecord: put_counter, get_counter;
    StoreRecord: put_store, get_store;
    WriterRecord: put_writer, get_writer;
    ShortRecord: put_short, get_short;
    NamespaceRecord: put_namespace, get_namespace;
    RemovedRecord: put_removed, get_removed;
    ClassesRecord: put_classes, get_classes;
    BlockRecord: put_block, get_block;
    MapChunk: put_chunk, get_chunk;
}

fields! { Inode: put_inode, get_inode, inode_rows {
    kind: "1 file, 2 directory, 3 symlink, 4 multifile, 5 table",
    mode: "permissions, 12 bits",
    uid: "owner",
    gid: "group",
    size: "bytes of a file, or of a symlink's path",
    created: "made: ns since 1970-01-01 00:00 UTC",
    modified: "bytes or names changed last",
    changed: "anything changed last",
    version: "changes so far",
    parent: "container of a file or symlink; 0 for a container",
    classes: "classes of its blocks, best first; none: the store's",
    location: "where its blocks should be",
    copies: "of each block",
    block: "bytes of a block",
    attributes: "extended attributes by name, in order",
    content: "what lies in the inode",
} }
fields! { NameRecord: put_name, get_name, name_rows {
    inode: "the inode",
    kind: "its kind",
} }
fields! { ParentRecord: put_parent, get_parent, parent_rows {
    parent: "the container; of the root 1, of an orphan 0",
} }
fields! { OwnerRecord: put_owner, get_owner, owner_rows {
    service: "the service, 0 for none",
    incarnation: "which life of it",
    term: "owners so far",
} }
fields! { ServiceRecord: put_service, get_service, service_rows {
    incarnation: "lives of the service so far",
    process: "random number of the process",
    beat: "renewals in this life",
    is_fenced: "1: another service has ended this life",
} }
fields! { LifeRecord: put_life, get_life, life_rows {
    incarnation: "the last life of the service",
    process: "random number of its process",
} }
fields! { ProcessRecord: put_process, get_process, process_rows {
    addresses: "where it listens",
    since: "when it began to serve, or to stand by",
    beat: "renewals so far",
} }
fields! { SessionRecord: put_session, get_session, session_rows {
    client: "what the client calls itself",
    lease: "how long it lives without a renewal",
    beat: "renewals so far",
    token: "what it is resumed with",
} }
fields! { Changed: put_changed, get_changed, changed_rows {
    inode: "the inode that was made or changed",
    version: "its version then",
} }
fields! { AnswerRecord: put_answer, get_answer, answer_rows {
    sequence: "of the request",
    answer as Told: "what it was told",
} }
fields! { OrphanRecord: put_orphan, get_orphan, orphan_rows {
    kind: "of the inode",
    since: "when it lost its name",
} }
fields! { CounterRecord: put_counter, get_counter, counter_rows {
    next: "the next number",
} }
fields! { WriterRecord: put_writer, get_writer, writer_rows {
    session: "the session that may write the file",
} }
fields! { ShortRecord: put_short, get_short, short_rows {
    copies: "copies of each block that the file wants",
} }
fields! { NamespaceRecord: put_namespace, get_namespace, namespace_rows {
    node: "the machine that has it",
    target: "where it is reached",
    class: "its class",
    location: "where it stands",
    sector: "bytes of a sector",
    bytes: "its size",
    region: "bytes of each of its regions; the last has the rest",
    label: "what its label block says",
    is_draining: "1: no new blocks, and those that are there leave",
    is_lost: "1: its content is gone",
} }
fields! { RemovedRecord: put_removed, get_removed, removed_rows {
    label: "what its label block says: nothing of the store's is on it",
} }
fields! { ClassesRecord: put_classes, get_classes, classes_rows {
    names: "best first; a class's number is its place, from 0",
} }
fields! { StoreRecord: put_store, get_store, store_rows {
    id: "random number of the store",
    created: "when it was made",
} }
fields! { BlockRecord: put_block, get_block, block_rows {
    index: "number of the block within the chunk",
    generation: "how often its place had been given out",
    is_unsettled: "1: the checksums do not count",
    copies: "where each copy is",
    checksums: "CRC32C of each 64 KiB",
} }
fields! { MapChunk: put_chunk, get_chunk, chunk_rows {
    blocks: "in order; those that are not there read as zeroes",
} }

/// The number of an error, or 0 and what was changed.
struct Told;

impl Coder<Result<Changed, StoreError>> for Told {
    fn put(answer: &Result<Changed, StoreError>, to: &mut Writer) {
        match answer {
            Ok(changed) => {
                to.u8(0);
                to.put(changed);
            }
            Err(error) => {
                let (number, argument) = error.number();
                to.u8(number);
                to.u64(argument);
            }
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Result<Changed, StoreError>, Damaged> {
        match from.u8()? {
            0 => from.get().map(Ok),
            number => {
                let argument = from.u64()?;
                StoreError::from_number(number, argument).map(Err).ok_or(Damaged)
            }
        }
    }
    fn kind() -> String {
        "u8: 0 and Changed, or the number of an error and u64".into()
    }
}

/// A record as a value.
pub fn to_value<T: Code>(record: &T) -> Vec<u8> {
    let mut to = Writer::default();
    to.u8(STORE_VERSION);
    to.put(record);
    to.done()
}

/// The record that a value is.
///
/// # Errors
/// [`StoreError::Damaged`]: it has another version, or is no such record.
pub fn from_value<T: Code>(value: &[u8]) -> Result<T, StoreError> {
    let mut from = Reader::of(value);
    let read = |from: &mut Reader<'_>| {
        if from.u8()? != STORE_VERSION {
            return Err(Damaged);
        }
        let record = from.get()?;
        from.end()?;
        Ok(record)
    };
    read(&mut from).map_err(|Damaged| StoreError::Damaged)
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
