//! Named shared-memory regions: what must outlive a process lies in one. A memfd, or a file; the descriptor can be handed to
//! another process, which opens it with the same checks.
//!
//! ```text
//!   0      Header    magic, schema, versions, length, owner epoch      one page, docs/reference/formats.md
//!   4096   payload   of the schema's own layout; offsets, never pointers
//! ```
//! Memory appears when it is [reserved](Arena::reserve): a page that has been reserved never fails, one that has not may
//! kill the process where memory has run out. Reserving fails with an error instead.

mod collapse;
mod error;
mod map;
#[cfg(test)]
pub(crate) mod tests;

pub use error::ArenaError;

use map::Mapping;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes before the payload.
pub const HEADER: usize = 4096;
/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;
/// The first eight bytes of every arena.
pub const MAGIC: [u8; 8] = *b"WEIRMEM\0";
/// Version of the header.
pub const VERSION: u32 = 1;

/// What an arena's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// At most 16 bytes of ASCII.
    pub name: &'static str,
    /// Raised with every change of the layout.
    pub version: u32,
}

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pages {
    /// 4 KiB: memory appears in small pieces.
    #[default]
    Small,
    /// 2 MiB from the system's reserve (hugetlb) where there is one for the whole arena, otherwise assembled from small pages
    /// (transparent); small ones where neither can be had.
    Huge,
}

/// The first page; see docs/reference/formats.md.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    header_len: u32,
    schema: [u8; 16],
    schema_version: u32,
    /// Of the bytes before it.
    crc: u32,
    length: u64,
    epoch: u64,
}

impl Header {
    fn new(schema: Schema, length: u64) -> Self {
        let mut name = [0; 16];
        name[..schema.name.len()].copy_from_slice(schema.name.as_bytes());
        let mut header = Self {
            magic: MAGIC,
            version: VERSION,
            header_len: HEADER as u32,
            schema: name,
            schema_version: schema.version,
            crc: 0,
            length,
            epoch: 1,
        };
        header.crc = header.checksum();
        header
    }

    /// Over the fields that never change, the length last.
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        let crc = crate::crc::crc32c(&bytes[..std::mem::offset_of!(Header, crc)]);
        crate::crc::crc32c_append(crc, &self.length.to_ne_bytes())
    }

    fn check(&self, schema: Schema, length: u64) -> Result<(), ArenaError> {
        let name = |bytes: &[u8; 16]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        if self.magic != MAGIC {
            return Err(ArenaError::NotAnArena);
        }
        if self.version != VERSION || self.header_len != HEADER as u32 {
            return Err(ArenaError::Version { found: self.version, known: VERSION });
        }
        if self.crc != self.checksum() {
            return Err(ArenaError::Damaged);
        }
        if name(&self.schema) != schema.name {
            return Err(ArenaError::Schema { found: name(&self.schema), wanted: schema.name });
        }
        if self.schema_version != schema.version {
            let (found, known) = (self.schema_version, schema.version);
            return Err(ArenaError::SchemaVersion { schema: schema.name, found, known });
        }
        if self.length != length {
            return Err(ArenaError::Length { said: self.length, found: length });
        }
        Ok(())
    }
}

/// Which boot of the machine this is.
static BOOT: OnceLock<u64> = OnceLock::new();

/// A mapped arena. This value is the only one in the process that reaches the payload; that no other process writes to it is
/// what the owner epoch is for (a successor [claims](Self::claim) it).
pub struct Arena {
    map: Mapping,
    fd: OwnedFd,
}

impl Arena {
    /// A new region of its own, sealed in size; `name` shows up in /proc/PID/maps.
    ///
    /// # Errors
    /// No memory, no descriptors, or a payload that does not fit the address space.
    pub fn create(name: &str, schema: Schema, payload: u64, pages: Pages) -> Result<Self, ArenaError> {
        if pages == Pages::Huge {
            let length = total(payload)?.next_multiple_of(HUGE as u64);
            if let Ok(arena) = Self::create_memfd(name, schema, length, true) {
                return Ok(arena);
            }
        }
        Self::create_memfd(name, schema, total(payload)?, false)
    }

    fn create_memfd(name: &str, schema: Schema, length: u64, hugetlb: bool) -> Result<Self, ArenaError> {
        let huge = if hugetlb { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge)?;
        rustix::fs::ftruncate(&fd, length)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::format(fd, schema, length, hugetlb)
    }

    /// A new file, which must not exist yet and is locked while the arena lives.
    ///
    /// # Errors
    /// The file exists or cannot be created, or there is no space for the header.
    pub fn create_file(path: &Path, schema: Schema, payload: u64) -> Result<Self, ArenaError> {
        let length = total(payload)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let formatted = lock(&fd).and_then(|()| {
            rustix::fs::ftruncate(&fd, length)?;
            Self::format(fd, schema, length, false)
        });
        if formatted.is_err() {
            // Ours, and useless.
            let _ = rustix::fs::unlink(path);
        }
        formatted
    }

    fn format(fd: OwnedFd, schema: Schema, length: u64, hugetlb: bool) -> Result<Self, ArenaError> {
        debug_assert!(schema.name.len() <= 16 && schema.name.is_ascii());
        let mut map = Mapping::new(&fd, length, hugetlb)?;
        map.reserve(0..HEADER)?;
        map.write_header(Header::new(schema, length).as_bytes());
        Ok(Self { map, fd })
    }

    /// Opens a region that another process made.
    ///
    /// # Errors
    /// It is not an arena, of another schema, version or length, or damaged; the message says which.
    pub fn open(fd: OwnedFd, schema: Schema) -> Result<Self, ArenaError> {
        let stat = rustix::fs::fstat(&fd)?;
        let length = stat.st_size as u64;
        if length < HEADER as u64 {
            return Err(ArenaError::Length { said: HEADER as u64, found: length });
        }
        let mut first = [0; size_of::<Header>()];
        rustix::io::pread(&fd, &mut first[..], 0)?;
        Header::read_from_bytes(&first).map_err(|_| ArenaError::NotAnArena)?.check(schema, length)?;
        let hugetlb = stat.st_blksize as usize == HUGE && length % HUGE as u64 == 0;
        Ok(Self { map: Mapping::new(&fd, length, hugetlb)?, fd })
    }

    /// Opens a file made by [`create_file`](Self::create_file) and locks it.
    ///
    /// # Errors
    /// As [`open`](Self::open); also that the file is missing or another process holds it.
    pub fn open_file(path: &Path, schema: Schema) -> Result<Self, ArenaError> {
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        lock(&fd)?;
        Self::open(fd, schema)
    }

    /// The descriptor, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The same for whoever has it open, and for no other arena that this kernel makes, nor most likely the next one on this machine; never 0.
    pub fn identity(&self) -> u64 {
        // Inodes count up from 1, each file system in memory for itself, from every boot on.
        let boot = *BOOT.get_or_init(|| {
            let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            id.split('-')
                .filter_map(|part| u64::from_str_radix(part.trim(), 16).ok())
                .fold(0, |all, part| all.rotate_left(13) ^ part)
        });
        rustix::fs::fstat(&self.fd).map_or(u64::MAX, |stat| (boot ^ stat.st_dev.rotate_left(48) ^ stat.st_ino).max(1))
    }

    /// How often the arena has changed owners, from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch_word().load(Ordering::Acquire)
    }

    /// Makes the caller the owner after `epoch`; whoever owned it until then sees its epoch gone and must stop.
    ///
    /// # Errors
    /// Somebody else was faster; the present epoch.
    pub fn claim(&self, epoch: u64) -> Result<u64, u64> {
        self.epoch_word().compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire).map(|e| e + 1)
    }

    fn epoch_word(&self) -> &AtomicU64 {
        self.map.word(std::mem::offset_of!(Header, epoch))
    }

    /// Bytes of the whole region, the header included.
    pub fn length(&self) -> u64 {
        self.map.len() as u64
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.map.payload()
    }

    /// The payload, for its owner.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.map.payload_mut()
    }

    /// The payload for as long as the process lives, and a call that gives the memory of its pages back: what they hold stays in
    /// the file's pages in the page cache, and a page that is touched again is mapped again. Nothing is given back of huge
    /// pages of their own pool.
    pub fn lend(self) -> (&'static mut [u8], impl Fn() + Send + Sync + 'static) {
        Box::leak(Box::new(self)).map.lend()
    }

    /// The payload as words that processes share, and nothing else of it any more.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn into_words(mut self) -> Result<ArenaWords, ArenaError> {
        self.reserve(0..self.payload().len())?;
        Ok(ArenaWords(self))
    }

    /// Maps the pages of it that are there, piece by piece, so that they need not be mapped one by one when they are used: until
    /// `stop` says so, which is asked after each piece, or nobody else has the arena any more. Of the system's reserve of huge pages none is mapped.
    pub fn touch(arena: &Weak<Arena>, mut stop: impl FnMut() -> bool) {
        let mut at = 0;
        while let Some(next) = arena.upgrade().and_then(|arena| arena.map.touch(&arena.fd, at)) {
            if stop() {
                return;
            }
            at = next;
        }
    }

    /// Whether the region is of huge pages from the system's reserve.
    pub fn is_hugetlb(&self) -> bool {
        self.map.is_hugetlb()
    }

    /// Makes the memory of a range of the payload present.
    ///
    /// # Errors
    /// There is no memory, or no space on its file system.
    pub fn reserve(&mut self, range: Range<usize>) -> Result<(), ArenaError> {
        self.map.reserve(range.start + HEADER..range.end + HEADER)
    }

    /// Has the whole huge pages of a range be such, where they can, in a while: a thread of its own assembles them, and what they hold
    /// stays. What is not there by then appears.
    pub fn want_huge(&self, range: Range<usize>) {
        self.map.want_huge(&(range.start + HEADER..range.end + HEADER));
    }

    /// Starts the thread that assembles huge pages, for a process that will have no time for it when it wants the first one.
    pub fn prepare_huge() {
        collapse::prepare();
    }

    /// Gives the memory of a range of whole pages back; it reads as zeroes.
    ///
    /// # Errors
    /// The file system cannot.
    pub fn release(&mut self, range: Range<usize>) -> Result<(), ArenaError> {
        self.map.forget_huge(&(range.start + HEADER..range.end + HEADER));
        let (at, len) = ((range.start + HEADER) as u64, range.len() as u64);
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.fd, flags, at, len)?)
    }
}

/// See [`Arena::into_words`].
#[derive(Debug)]
pub struct ArenaWords(Arena);

impl ArenaWords {
    /// The words.
    pub fn get(&self) -> &[AtomicU32] {
        self.0.map.words()
    }

    /// The descriptor, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.map.len()).field("hugetlb", &self.is_hugetlb()).finish()
    }
}

fn total(payload: u64) -> Result<u64, ArenaError> {
    let length = payload.checked_add(HEADER as u64).filter(|l| *l <= 1 << 46).ok_or(ArenaError::TooLarge(payload))?;
    Ok(length.next_multiple_of(HEADER as u64))
}

fn lock(fd: &OwnedFd) -> Result<(), ArenaError> {
    if crate::lock::exclusive(fd)? { Ok(()) } else { Err(ArenaError::Busy) }
}
