//! The memory of a flash drive's controller, in a region that outlives the process: a drive that is taken over goes on from its page map
//! instead of finding it again.
//!
//! It goes with one state ([`FlashState`]) as one process has left it: where another one has used the state since, or the machine was down, it counts
//! for nothing, and the map is found again into it.

use super::MediaError;
use super::flash::{ALIGN, FlashState, Pieces, arena_error, state_error, wanted_layout};
use crate::arena::{Arena, ArenaError, HEADER, HUGE, Pages, Schema};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use weir_flash::{FlashDriveConfig, IMAGE_KEYS, Image, Mapped, MappedSize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The arena's schema.
pub const SCHEMA: Schema = Schema { name: "flash-map", version: 1 };

/// The start of the payload; see docs/reference/formats.md. Offsets count from the start of the payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct MapHeader {
    pub(super) keys: [u64; IMAGE_KEYS.len()],
    pub(super) slots: u64,
    pub(super) state: u64,
    pub(super) start: u64,
    pub(super) undo_at: u64,
    pub(super) waiting_at: u64,
    pub(super) behind_at: u64,
    pub(super) valid_at: u64,
    pub(super) written_at: u64,
    pub(super) stamp_at: u64,
    pub(super) l2p_at: u64,
}

/// Of which state, and as which of its processes has left it; zeroes: of none.
#[derive(FromBytes, IntoBytes, KnownLayout, Debug)]
#[repr(C)]
pub(super) struct MapOwner {
    state: AtomicU64,
    start: AtomicU64,
}

impl MapOwner {
    /// It belongs to that process of that state from now on. Whoever sees that sees what was done to the map before.
    pub(super) fn set(&self, state: u64, start: u64) {
        self.start.store(start, Ordering::Release);
        self.state.store(state, Ordering::Release);
    }

    /// It belongs to no process.
    fn clear(&self) {
        self.state.store(0, Ordering::SeqCst);
    }

    fn is(&self, state: u64, start: u64) -> bool {
        self.state.load(Ordering::Acquire) == state && self.start.load(Ordering::Acquire) == start
    }
}

/// Whose the maps are that this process has been lent.
static OWNERS: Mutex<Vec<&'static MapOwner>> = Mutex::new(Vec::new());

/// A thread has found what cannot be, and the process ends for it: none of its maps is believed by the next one, which finds them again.
pub fn distrust_maps() {
    if let Ok(owners) = OWNERS.try_lock() {
        owners.iter().for_each(|owner| owner.clear());
    }
}

const OWNER: std::ops::Range<u64> = offset_of!(MapHeader, state) as u64..offset_of!(MapHeader, undo_at) as u64;
const _: () = assert!(OWNER.end - OWNER.start == size_of::<MapOwner>() as u64);

impl MapHeader {
    /// Of a drive's map, and the payload's length; the arrays lie in this order.
    fn new(keys: [u64; IMAGE_KEYS.len()], size: &MappedSize) -> (MapHeader, u64) {
        let mut end = size_of::<MapHeader>() as u64;
        let mut place = |bytes: u64, align: u64| {
            // The header lies before the payload.
            let at = (end + HEADER as u64).next_multiple_of(align) - HEADER as u64;
            end = at + bytes;
            at
        };
        // A large map is to be of huge pages.
        let huge = if size.words * 4 < HUGE as u64 { ALIGN } else { HUGE as u64 };
        let layout = MapHeader {
            keys,
            slots: size.slots,
            state: 0,
            start: 0,
            undo_at: place(size.undo * 8, ALIGN),
            waiting_at: place(size.slots * 4, ALIGN),
            behind_at: place(size.slots * 4, ALIGN),
            valid_at: place(size.blocks * 2, ALIGN),
            written_at: place(size.blocks * 2, ALIGN),
            stamp_at: place(size.blocks * 8, ALIGN),
            l2p_at: place(size.words * 4, huge),
        };
        (layout, end)
    }

    /// The same whoever it belongs to.
    fn fixed(&self) -> MapHeader {
        MapHeader { state: 0, start: 0, ..*self }
    }
}

impl FlashState {
    /// Gives the drive that goes on from this state a memory that outlives the process: `left` by the one before, if it is of this drive, else a
    /// new one. Answers the file of one that was made, to be held. The memory is lent for good.
    ///
    /// # Errors
    /// There is no memory.
    pub fn lend_map(
        &mut self,
        image: &mut Image,
        left: Option<Result<Arena, ArenaError>>,
        config: &FlashDriveConfig,
    ) -> Result<Option<OwnedFd>, MediaError> {
        let path = self.path().to_owned();
        let (keys, size) = wanted_layout(&path, config, MappedSize::of)?;
        let (wanted, payload) = MapHeader::new(keys, &size);
        let fits = |arena: &Arena| {
            let found = MapHeader::read_from_prefix(arena.payload()).map(|(l, _)| l.fixed());
            found.is_ok_and(|found| found == wanted) && arena.payload().len() as u64 >= payload
        };
        // What cannot be read can be found again.
        let (arena, made) = match left.and_then(Result::ok).filter(fits) {
            Some(arena) => (arena, None),
            None => {
                let arena = make(&wanted, payload).map_err(|e| arena_error(&path, e))?;
                let file = arena.fd().try_clone_to_owned().map_err(|e| state_error(&path, e))?;
                (arena, Some(file))
            }
        };
        let (owner, mapped) = lend(arena, &wanted, &size).ok_or_else(|| arena_error(&path, ArenaError::Damaged))?;
        if !owner.is(self.identity(), self.starts().wrapping_sub(1)) {
            owner.clear();
            mapped.undo.fill(0);
        }
        owner.set(self.identity(), self.starts());
        OWNERS.lock().unwrap_or_else(PoisonError::into_inner).push(owner);
        self.set_map(owner);
        image.mapped = Some(mapped);
        Ok(made)
    }
}

fn make(layout: &MapHeader, payload: u64) -> Result<Arena, ArenaError> {
    let mut arena = Arena::create("weir-flash-map", SCHEMA, payload, Pages::Small)?;
    // All of it now: it is an error here and would be a signal later.
    arena.reserve(0..payload as usize)?;
    arena.payload_mut()[..size_of::<MapHeader>()].copy_from_slice(layout.as_bytes());
    Ok(arena)
}

/// Hands the arena out in pieces. It is never unmapped: they live as long as the process.
fn lend(arena: Arena, layout: &MapHeader, size: &MappedSize) -> Option<(&'static MapOwner, Mapped)> {
    let l2p = layout.l2p_at as usize..(layout.l2p_at + size.words * 4) as usize;
    arena.want_huge(l2p);
    let (payload, _) = arena.lend();
    let mut pieces = Pieces::new(payload);
    let owner: &MapOwner = MapOwner::mut_from_bytes(pieces.take(OWNER.start, OWNER.end - OWNER.start)?).ok()?;
    let mut piece = |from, bytes| pieces.take(from, bytes);
    let mapped = Mapped {
        undo: <[u64]>::mut_from_bytes(piece(layout.undo_at, size.undo * 8)?).ok()?,
        waiting: <[u32]>::mut_from_bytes(piece(layout.waiting_at, size.slots * 4)?).ok()?,
        behind: <[u32]>::mut_from_bytes(piece(layout.behind_at, size.slots * 4)?).ok()?,
        valid: <[u16]>::mut_from_bytes(piece(layout.valid_at, size.blocks * 2)?).ok()?,
        written: <[u16]>::mut_from_bytes(piece(layout.written_at, size.blocks * 2)?).ok()?,
        stamp: <[u64]>::mut_from_bytes(piece(layout.stamp_at, size.blocks * 8)?).ok()?,
        l2p: <[u32]>::mut_from_bytes(piece(layout.l2p_at, size.words * 4)?).ok()?,
    };
    Some((owner, mapped))
}
