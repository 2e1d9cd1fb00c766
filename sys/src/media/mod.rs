//! Where a drive's bytes live.
//!
//! ```text
//!   Media ──┬─ Store ──┬─ Null   reads zeroes, forgets writes: for measuring         answers at once:
//!           │          └─ Ram    a sparse arena                                      read(offset, len, |at, bytes| …)
//!           └─ File              a file or a block device, direct I/O over the       answers later: start(…),
//!                                reactor                                             ready(FileDone) -> Finished
//! ```
//! [`KernelFile`] is no medium: Linux's own ways to a file, for comparison.
//!
//! A store hands out slices of itself, so that bytes are copied once, between it and the client's memory. A file is given
//! buffers and gives them back.
//!
//! Offsets and lengths are bytes; the controller has checked that they are whole blocks inside a namespace. Outside of the
//! medium they are refused with a status all the same. Deallocated and never written bytes read as zeroes everywhere.
//!
//! The first write or flush that fails for another reason than space poisons a medium: writes are refused from then on, reads
//! go on, and [`Media::fault`] says what happened first. What the medium holds is in doubt then, and a host that was told of
//! one failure must not come to rely on later successes.

mod bits;
mod data;
mod file;
mod flash;
mod flash_map;
#[cfg(test)]
mod flash_map_tests;
mod kernel;
mod kind;
mod memory;
mod metadata;
mod nonvolatile;
mod null;
mod open;
mod ram;
mod regions;
mod status;

#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod flash_tests;
#[cfg(test)]
mod ram_tests;
#[cfg(test)]
mod regions_tests;

pub use data::next_data;
pub use file::{FileMedia, FileOpKind, FileRequest, Finished};
pub use flash::{FlashState, ImageCondition, SCHEMA as FLASH_SCHEMA};
pub use flash_map::{SCHEMA as FLASH_MAP_SCHEMA, distrust_maps};
pub use kernel::KernelFile;
pub use kind::{MediaError, MediaKind, Spec};
pub use metadata::MetadataFile;
pub use nonvolatile::{NonvolatileFile, VERSION as REMEMBERED_VERSION};
pub use null::Null;
pub use ram::{Ram, SCHEMA as RAM_SCHEMA};
pub use regions::SCHEMA as REGIONS_SCHEMA;
pub use status::MediumFault;

use rustix::fs::{Gid, Mode, Stat, Uid};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use weir_spec::nvme::Status;

/// Gives a file that is durable another name, which is durable then.
fn rename_durably(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::rename(from, to)?;
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder).and_then(|f| f.sync_all())
}

/// Gives a file beside a medium the owner and the mode of the medium's: what lies beside it is nobody's who may not read the medium itself.
/// A medium that is not there yet, and an owner that this process cannot give, change nothing.
fn own_as_medium(file: &impl AsFd, media: &Path) -> std::io::Result<()> {
    let Ok(wanted) = rustix::fs::stat(media) else { return Ok(()) };
    let found = rustix::fs::fstat(file)?;
    let unless_forbidden = |result: Result<(), Errno>| match result {
        Err(Errno::PERM | Errno::ROFS) => Ok(()),
        other => other,
    };
    if (found.st_uid, found.st_gid) != (wanted.st_uid, wanted.st_gid) {
        let (uid, gid) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
        unless_forbidden(rustix::fs::fchown(file, Some(uid), Some(gid)))?;
    }
    let mode = |stat: &Stat| Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
    if mode(&found) != mode(&wanted) {
        unless_forbidden(rustix::fs::fchmod(file, mode(&wanted)))?;
    }
    Ok(())
}

/// A medium of any kind.
#[derive(Debug)]
pub enum Media {
    /// In memory: answers at once.
    Store(Store),
    /// In a file or on a block device: answers through the reactor.
    File(FileMedia),
}

impl Media {
    /// Opens or makes what `spec` describes.
    ///
    /// # Errors
    /// The message names the medium and says what to change.
    pub fn open(spec: &Spec) -> Result<Self, MediaError> {
        let capacity = || spec.capacity.ok_or_else(|| MediaError::NeedsCapacity(spec.kind.to_string()));
        Ok(match &spec.kind {
            MediaKind::Null { read_zeroes } => {
                Media::Store(Store::Null(Null::new(capacity()?).read_zeroes(*read_zeroes)))
            }
            MediaKind::Ram => Media::Store(Store::Ram(Ram::create(&spec.name, capacity()?)?)),
            MediaKind::File(path) => Media::File(FileMedia::open_file(path, spec.capacity, spec.block_size)?),
            MediaKind::Block(path) => Media::File(FileMedia::open_block(path, spec.capacity, spec.block_size)?),
        })
    }

    /// The size of the medium in bytes.
    pub fn capacity(&self) -> u64 {
        match self {
            Media::Store(s) => s.capacity(),
            Media::File(f) => f.capacity(),
        }
    }

    /// What poisoned it, if anything did.
    pub fn fault(&self) -> Option<&MediumFault> {
        match self {
            Media::Store(_) => None,
            Media::File(f) => f.fault(),
        }
    }
}

/// A medium that answers at once.
#[derive(Debug)]
pub enum Store {
    /// Nothing.
    Null(Null),
    /// Memory.
    Ram(Ram),
}

macro_rules! each {
    ($self:ident, $store:ident => $what:expr) => {
        match $self {
            Store::Null($store) => $what,
            Store::Ram($store) => $what,
        }
    };
}

impl Store {
    /// The size of the medium in bytes.
    pub fn capacity(&self) -> u64 {
        each!(self, s => s.capacity())
    }

    /// Whether a read of it need not put anything where its bytes go.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Store::Null(null) if !null.reads_zeroes())
    }

    /// Which memory it is: no two that exist have the same number, nor one after the other in a kernel's life; 0: it is none.
    pub fn identity(&self) -> u64 {
        match self {
            Store::Null(_) => 0,
            Store::Ram(ram) => ram.arena().identity(),
        }
    }

    /// Hands the bytes of a range to `put` in ascending chunks, each with its offset from the start of the range.
    ///
    /// # Errors
    /// Outside of the medium, or what `put` says.
    #[inline]
    pub fn read(&self, offset: u64, len: u32, put: impl FnMut(u32, &[u8]) -> Result<(), Status>) -> Result<(), Status> {
        each!(self, s => s.read(offset, len, put))
    }

    /// Has `get` fill the bytes of a range, chunk by chunk. A [`Null`] does not ask for them.
    ///
    /// # Errors
    /// Outside of the medium, Capacity Exceeded where memory is short (nothing has changed then), or what `get` says (the
    /// range is undefined then).
    #[inline]
    pub fn write(
        &mut self,
        offset: u64,
        len: u32,
        get: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        each!(self, s => s.write(offset, len, get))
    }

    /// Asks the processor for the first bytes of a range that will be read or written soon.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u32) {
        if let Store::Ram(ram) = self {
            ram.prefetch(offset, len);
        }
    }

    /// Whether a range may have something other than zeroes. `false` is certain; a [`Null`] and what is outside of the medium may.
    pub fn may_have_data(&self, offset: u64, len: u32) -> bool {
        match self {
            Store::Null(_) => true,
            Store::Ram(ram) => ram.may_have_data(offset, len),
        }
    }

    /// Takes the memory of the first bytes, 16 MiB at the most, so that no write there fails for want of it; what they hold stays.
    ///
    /// # Errors
    /// Capacity Exceeded where memory is short.
    pub fn allocate(&mut self, bytes: u64) -> Result<(), Status> {
        match self {
            Store::Null(_) => Ok(()),
            Store::Ram(ram) => ram.allocate(bytes),
        }
    }

    /// Makes a range read as zeroes. It needs no memory, and gives back what becomes free.
    ///
    /// # Errors
    /// Outside of the medium.
    pub fn zero(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        each!(self, s => s.zero(offset, len))
    }

    /// The same as [`zero`](Self::zero): what is deallocated reads as zeroes.
    ///
    /// # Errors
    /// Outside of the medium.
    pub fn deallocate(&mut self, offset: u64, len: u32) -> Result<(), Status> {
        self.zero(offset, len)
    }

    /// Upkeep for an idle moment, a few tens of microseconds of it: gives one piece of freed memory back. True while there
    /// is more to do.
    pub fn background(&mut self) -> bool {
        match self {
            Store::Null(_) => false,
            Store::Ram(ram) => ram.background(),
        }
    }
}

/// `offset + len` inside of `capacity`, as a range of indices.
#[inline]
fn range(capacity: u64, offset: u64, len: u32) -> Result<std::ops::Range<usize>, Status> {
    match offset.checked_add(u64::from(len)) {
        Some(end) if end <= capacity => Ok(offset as usize..end as usize),
        _ => Err(Status::LBA_OUT_OF_RANGE),
    }
}
