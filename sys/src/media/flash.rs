//! The state of a flash drive, in a file beside its media: an arena with what [`Image`] names.
//!
//! The drive changes the mapped file as it works, so a process that is killed leaves it whole in the page cache. [`sync`]
//! after the media's own flush makes it outlive the machine. All of its space is taken when it is made: a full disk is an
//! error then and never a signal later. Its pages count as the process's memory while they are mapped; where all of it is gone
//! through (a start, a power cut, preconditioning) they are given back on the way ([`Lender`]), and lie in the page cache.
//! Drives of zones or chunks keep what [`weir_flash::RegionImage`] names in a file of the same name and another schema.
//!
//! [`sync`]: FlashState::file

use super::MediaError;
use super::flash_map::MapOwner;
use crate::arena::{Arena, ArenaError, HEADER, Schema};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_flash::{ConfigError, FlashDriveConfig, IMAGE_KEYS, Image, ImageKeys, ImageSize, Lender};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The arena's schema.
pub const SCHEMA: Schema = Schema { name: "flash-state", version: 1 };
/// Every array begins at a multiple of this.
pub(super) const ALIGN: u64 = 4096;

/// The start of the payload; see docs/reference/formats.md. Offsets count from the start of the payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct ImageHeader {
    pub(super) keys: [u64; IMAGE_KEYS.len()],
    pub(super) in_use: u64,
    pub(super) starts: u64,
    pub(super) unsafe_shutdowns: u64,
    pub(super) p2l_at: u64,
    pub(super) sequence_at: u64,
    pub(super) trimmed_at: u64,
    pub(super) erases_at: u64,
    pub(super) erased_at_at: u64,
    pub(super) state_at: u64,
}

impl ImageHeader {
    /// Of a drive's state, and the payload's length; the arrays lie in this order.
    fn new(keys: ImageKeys, size: &ImageSize) -> (ImageHeader, u64) {
        let mut end = size_of::<ImageHeader>() as u64;
        let mut place = |count: u64, each: usize| {
            let at = end.next_multiple_of(ALIGN);
            end = at + count * each as u64;
            at
        };
        let layout = ImageHeader {
            keys,
            in_use: 0,
            starts: 0,
            unsafe_shutdowns: 0,
            p2l_at: place(size.units, 4),
            sequence_at: place(size.pages, 8),
            trimmed_at: place(size.mapped, 8),
            erases_at: place(size.blocks, 4),
            erased_at_at: place(size.blocks, 8),
            state_at: place(size.blocks, 4),
        };
        (layout, end)
    }

    /// The same with its counts left out: what two states of one drive have in common.
    fn fixed(&self) -> ImageHeader {
        ImageHeader { in_use: 0, starts: 0, unsafe_shutdowns: 0, ..*self }
    }
}

/// What a state was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageCondition {
    /// Made a moment ago: the drive is new.
    New,
    /// Left by a drive that was stopped.
    Clean,
    /// Left by a drive that was not: its process was killed, or the machine went down.
    Crashed,
}

/// How a drive was used: part of every layout.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub(super) struct Counts {
    in_use: u64,
    starts: u64,
    unsafe_shutdowns: u64,
}

/// Where they are.
const COUNTS: std::ops::Range<u64> = offset_of!(ImageHeader, in_use) as u64..offset_of!(ImageHeader, p2l_at) as u64;
const _: () = assert!(COUNTS.end - COUNTS.start == size_of::<Counts>() as u64);

/// The state of an open drive. While this lives nobody else can open the file.
#[derive(Debug)]
pub struct FlashState {
    path: PathBuf,
    file: Arc<OwnedFd>,
    counts: &'static mut Counts,
    /// See [`Arena::identity`].
    identity: u64,
    /// Whose the controller's memory is that goes with it.
    map: Option<&'static MapOwner>,
}

impl FlashState {
    /// Where the state of the drive in `media` lies: beside it, `.flash` added to its name.
    pub fn path_of(media: &Path) -> PathBuf {
        let mut name = media.as_os_str().to_owned();
        name.push(".flash");
        name.into()
    }

    /// Refuses a state whose drive is gone, before anything is made: a file that is missing or empty is a new drive.
    ///
    /// # Errors
    /// [`MediaError::LoneState`].
    pub fn check_pair(media: &Path) -> Result<(), MediaError> {
        let path = Self::path_of(media);
        let empty = std::fs::metadata(media).map_or(true, |m| m.is_file() && m.len() == 0);
        if empty && path.exists() {
            return Err(MediaError::LoneState { path, medium: super::kind::name("file", media) });
        }
        Ok(())
    }

    /// Refuses a medium with data whose state is missing, where the state says what of the data there is. One that is all holes
    /// is as good as new.
    ///
    /// # Errors
    /// [`MediaError::MissingState`].
    pub fn check_blank(media: &Path) -> Result<(), MediaError> {
        let path = Self::path_of(media);
        let first = || rustix::fs::seek(File::open(media).ok()?, rustix::fs::SeekFrom::Data(0)).ok();
        if !path.exists() && first().is_some() {
            return Err(MediaError::MissingState { path, medium: super::kind::name("file", media) });
        }
        Ok(())
    }

    /// Opens the state at `path`, or makes it; with what a drive needs to go on from it. The memory is lent for good.
    ///
    /// # Errors
    /// There is no space, the file is no state, of another version or damaged, another process has it, or it is that of
    /// another drive. Nothing is left half made.
    pub fn open(path: &Path, config: &FlashDriveConfig) -> Result<(FlashState, Image, ImageCondition), MediaError> {
        let (wanted, payload, size) = Self::wanted(path, config)?;
        let (arena, new) = open_or_make(path, SCHEMA, payload, wanted.as_bytes())?;
        Self::of(path, arena, new, &(wanted, payload), &size)
    }

    /// The state of a drive whose media is memory, in a region of memory of its own; `name` stands for its path. Whoever holds
    /// its descriptor ([`file`](Self::file)) keeps it when the process dies: [`adopt`](Self::adopt) goes on from there.
    ///
    /// # Errors
    /// There is no memory.
    pub fn in_memory(name: &str, config: &FlashDriveConfig) -> Result<(FlashState, Image, ImageCondition), MediaError> {
        let path = Path::new(name);
        let (wanted, payload, size) = Self::wanted(path, config)?;
        // Few drives are trimmed as a whole: that array appears as it is used.
        let there = [0..wanted.trimmed_at, wanted.erases_at..payload];
        let arena = make_in_memory(path, SCHEMA, &there, wanted.as_bytes())?;
        Self::of(path, arena, true, &(wanted, payload), &size)
    }

    /// The state that another process has made [in memory](Self::in_memory), and used until it died or stopped. The dead do not change it
    /// any more: that is for the caller to know.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn adopt(
        name: &str,
        arena: Result<Arena, ArenaError>,
        config: &FlashDriveConfig,
    ) -> Result<(FlashState, Image, ImageCondition), MediaError> {
        let path = Path::new(name);
        let (wanted, payload, size) = Self::wanted(path, config)?;
        let arena = arena.map_err(|e| arena_error(path, e))?;
        Self::of(path, arena, false, &(wanted, payload), &size)
    }

    fn wanted(path: &Path, config: &FlashDriveConfig) -> Result<(ImageHeader, u64, ImageSize), MediaError> {
        let (keys, size) = wanted_layout(path, config, ImageSize::of)?;
        let (layout, payload) = ImageHeader::new(keys, &size);
        Ok((layout, payload, size))
    }

    fn of(
        path: &Path,
        arena: Arena,
        new: bool,
        (wanted, payload): &(ImageHeader, u64),
        size: &ImageSize,
    ) -> Result<(FlashState, Image, ImageCondition), MediaError> {
        let keys = wanted.keys;
        let found = ImageHeader::read_from_prefix(arena.payload()).map(|(l, _)| l).ok();
        let found = found.ok_or_else(|| arena_error(path, ArenaError::Damaged))?;
        if let Some(i) = (0..keys.len()).find(|i| found.keys[*i] != keys[*i]) {
            let differs = (IMAGE_KEYS[i], found.keys[i], keys[i]);
            return Err(MediaError::ForeignState { path: path.into(), differs });
        }
        if found.fixed() != *wanted || (arena.payload().len() as u64) < *payload {
            return Err(arena_error(path, ArenaError::Damaged));
        }
        let file = arena.fd().try_clone_to_owned().map_err(|e| state_error(path, e))?;
        let identity = arena.identity();
        let (counts, image) = lend(arena, wanted, size).ok_or_else(|| arena_error(path, ArenaError::Damaged))?;
        let (mut state, found) = Self::started(path, file, counts, new);
        state.identity = identity;
        Ok((state, image, found))
    }

    /// A drive begins to work with it.
    pub(super) fn started(
        path: &Path,
        file: OwnedFd,
        counts: &'static mut Counts,
        new: bool,
    ) -> (FlashState, ImageCondition) {
        let crashed = counts.in_use != 0;
        let found = if new {
            ImageCondition::New
        } else {
            [ImageCondition::Clean, ImageCondition::Crashed][usize::from(crashed)]
        };
        counts.in_use = 1;
        counts.starts += 1;
        counts.unsafe_shutdowns += u64::from(crashed);
        (FlashState { path: path.into(), file: Arc::new(file), counts, identity: 0, map: None }, found)
    }

    /// The file: fdatasync(2) on it makes the state durable. After the media's own, so that what it names is there.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How often the drive was started, this time included.
    pub fn starts(&self) -> u64 {
        self.counts.starts
    }

    /// How often it went down without being stopped, power cuts included.
    pub fn unsafe_shutdowns(&self) -> u64 {
        self.counts.unsafe_shutdowns
    }

    /// The power was cut and is back.
    pub fn note_power_cut(&mut self) {
        self.counts.starts += 1;
        self.counts.unsafe_shutdowns += 1;
        if let Some(map) = self.map {
            map.set(self.identity, self.counts.starts);
        }
    }

    /// The same for whoever has it open, and for no other state of this boot.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    pub(super) fn set_map(&mut self, owner: &'static MapOwner) {
        self.map = Some(owner);
    }

    /// The drive has stopped: everything is durable, then the file says so.
    ///
    /// # Errors
    /// The kernel cannot write; the drive will be found as crashed.
    pub fn close(self) -> Result<(), MediaError> {
        let sync = || rustix::fs::fdatasync(&self.file).map_err(|e| state_error(&self.path, e));
        sync()?;
        self.counts.in_use = 0;
        rustix::fs::fdatasync(&self.file).map_err(|e| state_error(&self.path, e))
    }
}

impl Drop for FlashState {
    fn drop(&mut self) {
        // The mapping stays and with it the open file: the lock has to be given up by name.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// What a drive's layout depends on, and how long its arrays are.
pub(super) fn wanted_layout<S>(
    path: &Path,
    config: &FlashDriveConfig,
    size: impl FnOnce(&FlashDriveConfig) -> Result<S, ConfigError>,
) -> Result<(ImageKeys, S), MediaError> {
    let wrong = |e: ConfigError| state_error(path, io::Error::other(e.to_string()));
    Ok((config.image_keys().map_err(wrong)?, size(config).map_err(wrong)?))
}

pub(super) fn arena_error(path: &Path, source: ArenaError) -> MediaError {
    MediaError::State { path: path.into(), source }
}

pub(super) fn state_error(path: &Path, e: impl Into<io::Error>) -> MediaError {
    arena_error(path, ArenaError::Io(e.into()))
}

/// Opens the region at `path`, or makes it with that head and zeroes behind it, and says whether it did.
pub(super) fn open_or_make(
    path: &Path,
    schema: Schema,
    payload: u64,
    head: &[u8],
) -> Result<(Arena, bool), MediaError> {
    let new = !path.exists();
    if new {
        make(path, schema, payload, head)?;
    }
    let arena = Arena::open_file(path, schema).map_err(|e| arena_error(path, e))?;
    // `.flash` was added to the medium's name.
    super::own_as_medium(&arena.fd(), &path.with_extension("")).map_err(|e| state_error(path, e))?;
    Ok((arena, new))
}

/// Makes a region of memory with that head and zeroes behind it, which lives as long as somebody has its descriptor. Of its payload these ranges
/// are there, in order; the last one ends it.
pub(super) fn make_in_memory(
    path: &Path,
    schema: Schema,
    there: &[Range<u64>],
    head: &[u8],
) -> Result<Arena, MediaError> {
    let make = || {
        let payload = there.last().map_or(0, |range| range.end);
        let mut arena = Arena::create("weir-flash", schema, payload, crate::arena::Pages::Small)?;
        // Now: it is an error here and would be a signal later. It is mapped as it is used.
        for range in there {
            let (from, len) = (range.start + HEADER as u64, range.end - range.start);
            rustix::fs::fallocate(arena.fd(), rustix::fs::FallocateFlags::empty(), from, len)?;
        }
        arena.payload_mut()[..head.len()].copy_from_slice(head);
        Ok(arena)
    };
    make().map_err(|e| arena_error(path, e))
}

/// Makes an empty state under another name first: what has the right name is whole.
fn make(path: &Path, schema: Schema, payload: u64, head: &[u8]) -> Result<(), MediaError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    // Left by a process that was killed here.
    let _ = std::fs::remove_file(&draft);
    let made =
        fill(&draft, schema, payload, head).and_then(|()| super::rename_durably(&draft, path).map_err(ArenaError::Io));
    made.map_err(|e| {
        let _ = std::fs::remove_file(&draft);
        arena_error(path, e)
    })
}

fn fill(draft: &Path, schema: Schema, payload: u64, head: &[u8]) -> Result<(), ArenaError> {
    let mut arena = Arena::create_file(draft, schema, payload)?;
    match rustix::fs::fallocate(arena.fd(), rustix::fs::FallocateFlags::empty(), 0, arena.length()) {
        // Then its space is taken as it is written.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            tracing::info!(file = %draft.display(), "space cannot be reserved here")
        }
        other => other?,
    }
    arena.payload_mut()[..head.len()].copy_from_slice(head);
    rustix::fs::fsync(arena.fd())?;
    // By name: a process that is just being forked elsewhere would hold the lock for a moment longer.
    Ok(rustix::fs::flock(arena.fd(), FlockOperation::Unlock)?)
}

/// Pieces of a payload, from its front to its end.
pub(super) struct Pieces {
    rest: &'static mut [u8],
    at: u64,
}

impl Pieces {
    pub(super) fn new(payload: &'static mut [u8]) -> Pieces {
        Pieces { rest: payload, at: 0 }
    }

    /// The bytes from `from` on, which lies behind the piece before.
    pub(super) fn take(&mut self, from: u64, bytes: u64) -> Option<&'static mut [u8]> {
        let skip = usize::try_from(from.checked_sub(self.at)?).ok()?;
        let (_, tail) = std::mem::take(&mut self.rest).split_at_mut_checked(skip)?;
        let (mine, tail) = tail.split_at_mut_checked(usize::try_from(bytes).ok()?)?;
        (self.rest, self.at) = (tail, from + bytes);
        Some(mine)
    }
}

/// Hands the arena out in pieces. It is never unmapped: they live as long as the process.
fn lend(arena: Arena, layout: &ImageHeader, size: &ImageSize) -> Option<(&'static mut Counts, Image)> {
    let (payload, give_back) = arena.lend();
    let lender = Lender::new(give_back);
    let mut pieces = Pieces::new(payload);
    let counts = Counts::mut_from_bytes(pieces.take(COUNTS.start, COUNTS.end - COUNTS.start)?).ok()?;
    let mut piece = |from, bytes| pieces.take(from, bytes);
    let image = Image {
        p2l: <[u32]>::mut_from_bytes(piece(layout.p2l_at, size.units * 4)?).ok()?,
        sequence: <[u64]>::mut_from_bytes(piece(layout.sequence_at, size.pages * 8)?).ok()?,
        trimmed: <[u64]>::mut_from_bytes(piece(layout.trimmed_at, size.mapped * 8)?).ok()?,
        erases: <[u32]>::mut_from_bytes(piece(layout.erases_at, size.blocks * 4)?).ok()?,
        erased_at: <[u64]>::mut_from_bytes(piece(layout.erased_at_at, size.blocks * 8)?).ok()?,
        state: <[u32]>::mut_from_bytes(piece(layout.state_at, size.blocks * 4)?).ok()?,
        lender,
        mapped: None,
    };
    Some((counts, image))
}
