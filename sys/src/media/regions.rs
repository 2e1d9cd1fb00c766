//! The state of a drive of zones or chunks, in a file beside its media or in memory: an arena with what [`RegionImage`] names.
//! It lies and lives as that of other flash drives does ([`FlashState`]).

use super::MediaError;
use super::flash::{
    Counts, FlashState, ImageCondition, Pieces, arena_error, make_in_memory, open_or_make, state_error,
};
use crate::arena::{Arena, ArenaError, Schema};
use std::mem::offset_of;
use std::path::Path;
use weir_flash::{REGION_KEYS, RegionImage, RegionKeys, RegionSize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The arena's schema.
pub const SCHEMA: Schema = Schema { name: "region-state", version: 1 };
/// Every array begins at a multiple of this.
const ALIGN: u64 = 4096;

/// The start of the payload; see docs/reference/formats.md. Offsets count from the start of the payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RegionsHeader {
    pub(super) keys: [u64; REGION_KEYS.len()],
    pub(super) in_use: u64,
    pub(super) starts: u64,
    pub(super) unsafe_shutdowns: u64,
    pub(super) words_at: u64,
    pub(super) wear_at: u64,
    pub(super) extensions_at: u64,
}

impl RegionsHeader {
    /// Of a drive's state, and the payload's length; the arrays lie in this order.
    fn new(keys: RegionKeys, size: &RegionSize) -> (RegionsHeader, u64) {
        let mut end = size_of::<RegionsHeader>() as u64;
        let mut place = |bytes: u64| {
            let at = end.next_multiple_of(ALIGN);
            end = at + bytes;
            at
        };
        let layout = RegionsHeader {
            keys,
            in_use: 0,
            starts: 0,
            unsafe_shutdowns: 0,
            words_at: place(size.words * 8),
            wear_at: place(size.wear * 4),
            extensions_at: place(size.extensions),
        };
        (layout, end)
    }

    /// The same with its counts left out: what two states of one drive have in common.
    fn fixed(&self) -> RegionsHeader {
        RegionsHeader { in_use: 0, starts: 0, unsafe_shutdowns: 0, ..*self }
    }
}

impl FlashState {
    /// Opens the state of a drive of zones or chunks at `path`, or makes it; with what the drive needs to go on from it. The
    /// memory is lent for good.
    ///
    /// # Errors
    /// As of [`FlashState::open`].
    pub fn open_regions(
        path: &Path,
        keys: RegionKeys,
        size: &RegionSize,
    ) -> Result<(FlashState, RegionImage, ImageCondition), MediaError> {
        let wanted = RegionsHeader::new(keys, size);
        let (arena, new) = open_or_make(path, SCHEMA, wanted.1, wanted.0.as_bytes())?;
        Self::of_regions(path, (arena, new), &wanted, size)
    }

    /// The same of a drive whose media is memory, in a region of memory of its own, as [`FlashState::in_memory`] makes one.
    ///
    /// # Errors
    /// There is no memory.
    pub fn regions_in_memory(
        name: &str,
        keys: RegionKeys,
        size: &RegionSize,
    ) -> Result<(FlashState, RegionImage, ImageCondition), MediaError> {
        let (path, wanted) = (Path::new(name), RegionsHeader::new(keys, size));
        let arena = make_in_memory(path, SCHEMA, std::slice::from_ref(&(0..wanted.1)), wanted.0.as_bytes())?;
        Self::of_regions(path, (arena, true), &wanted, size)
    }

    /// The state that another process has made [in memory](Self::regions_in_memory), and used until it died or stopped. The dead do not
    /// change it any more: that is for the caller to know.
    ///
    /// # Errors
    /// As [`open_regions`](Self::open_regions).
    pub fn adopt_regions(
        name: &str,
        arena: Result<Arena, ArenaError>,
        keys: RegionKeys,
        size: &RegionSize,
    ) -> Result<(FlashState, RegionImage, ImageCondition), MediaError> {
        let path = Path::new(name);
        let arena = arena.map_err(|e| arena_error(path, e))?;
        Self::of_regions(path, (arena, false), &RegionsHeader::new(keys, size), size)
    }

    fn of_regions(
        path: &Path,
        (arena, new): (Arena, bool),
        (wanted, payload): &(RegionsHeader, u64),
        size: &RegionSize,
    ) -> Result<(FlashState, RegionImage, ImageCondition), MediaError> {
        let keys = &wanted.keys;
        let damaged = || arena_error(path, ArenaError::Damaged);
        let found = RegionsHeader::read_from_prefix(arena.payload()).map(|(l, _)| l).map_err(|_| damaged())?;
        if let Some(i) = (0..keys.len()).find(|i| found.keys[*i] != keys[*i]) {
            let differs = (REGION_KEYS[i], found.keys[i], keys[i]);
            return Err(MediaError::ForeignState { path: path.into(), differs });
        }
        if found.fixed() != *wanted || (arena.payload().len() as u64) < *payload {
            return Err(damaged());
        }
        let file = arena.fd().try_clone_to_owned().map_err(|e| state_error(path, e))?;
        let (counts, image) = lend(arena, wanted, size).ok_or_else(damaged)?;
        let (state, found) = Self::started(path, file, counts, new);
        Ok((state, image, found))
    }
}

/// Hands the arena out in pieces. It is never unmapped: they live as long as the process.
fn lend(arena: Arena, layout: &RegionsHeader, size: &RegionSize) -> Option<(&'static mut Counts, RegionImage)> {
    let mut pieces = Pieces::new(arena.lend().0);
    let counts = pieces.take(offset_of!(RegionsHeader, in_use) as u64, size_of::<Counts>() as u64)?;
    let image = RegionImage {
        words: <[u64]>::mut_from_bytes(pieces.take(layout.words_at, size.words * 8)?).ok()?,
        wear: <[u32]>::mut_from_bytes(pieces.take(layout.wear_at, size.wear * 4)?).ok()?,
        extensions: pieces.take(layout.extensions_at, size.extensions)?,
    };
    Some((Counts::mut_from_bytes(counts).ok()?, image))
}
