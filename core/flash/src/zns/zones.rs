//! The states of zones (ZNS 1.1, 2.1.1.2 and 2.1.1.4): what may be written where, and what that does. Pure: no data, no time.
//!
//! ```text
//!              write, open                       wp = capacity, finish
//!   Empty ──────────────────▶ Implicitly / Explicitly opened ──────────────▶ Full
//!     ▲ ▲                        ▲ write, open   │ close, or the drive        │
//!     │ └──────── reset ─────────┼── Closed ◀────┘ (implicitly opened ones)   │
//!     └────────── reset ─────────┴────────────────────────────────────────────┘     any ──degrade──▶ Read only ──▶ Offline
//! ```

use super::config::{ZoneConfig, ZoneConfigError, Zrwa};
use crate::cells::Cells;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// The state of a zone, by its number in a zone descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ZoneState {
    /// Nothing is written.
    Empty = 1,
    /// Opened by a write.
    ImplicitlyOpened = 2,
    /// Opened by the host.
    ExplicitlyOpened = 3,
    /// Partly written and not open.
    Closed = 4,
    /// Can be read.
    ReadOnly = 0xd,
    /// Written or finished.
    Full = 0xe,
    /// Gone.
    Offline = 0xf,
}

impl ZoneState {
    /// Implicitly or explicitly opened.
    pub const fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened)
    }
    /// Open or closed.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, ZoneState::Closed)
    }
}

/// What the host asks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneAction {
    /// Opened by the host.
    Open,
    /// Closed: stays active.
    Close,
    /// Full.
    Finish,
    /// Empty.
    Reset,
    /// From read only to offline.
    Offline,
}

/// Why a zone does not take something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// It lies beyond the last zone.
    OutOfRange,
    /// A field of the command is wrong: no beginning of a zone, no blocks, no multiple of the granularity.
    InvalidField,
    /// Not all in one zone, or beyond its capacity.
    Boundary,
    /// The zone is full.
    Full,
    /// The zone is read only.
    ReadOnly,
    /// The zone is offline.
    Offline,
    /// Not at the write pointer, or outside the random write area.
    InvalidWrite,
    /// Another active zone is more than there may be.
    TooManyActive,
    /// Another open zone is more than there may be.
    TooManyOpen,
    /// From its state the zone does not get there.
    InvalidTransition,
    /// A zone with (or without) a random write area does not do this.
    InvalidOperation,
    /// All random write areas are taken, or the write pointer is not aligned for one.
    NoZrwa,
}

impl core::fmt::Display for ZoneError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "beyond the last zone",
            Self::InvalidField => "no beginning of a zone, no blocks, or no multiple of the flush granularity",
            Self::Boundary => "not all in one zone, or beyond its capacity",
            Self::Full => "the zone is full",
            Self::ReadOnly => "the zone is read only",
            Self::Offline => "the zone is offline",
            Self::InvalidWrite => "not at the zone's write pointer",
            Self::TooManyActive => "as many zones are active as may be",
            Self::TooManyOpen => "as many zones are open as may be",
            Self::InvalidTransition => "the zone does not get there from its state",
            Self::InvalidOperation => "not with (or without) a zone random write area",
            Self::NoZrwa => "no zone random write area can be had",
        })
    }
}

impl core::error::Error for ZoneError {}

/// One zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    /// Its state.
    pub state: ZoneState,
    /// Blocks from its beginning to its write pointer.
    pub wp: u32,
    /// It has a random write area.
    pub zrwa: bool,
    /// Its descriptor extension is valid: the host has set one since the zone was empty.
    pub extended: bool,
}

/// An empty zone.
pub(super) const EMPTY: Zone = Zone { state: ZoneState::Empty, wp: 0, zrwa: false, extended: false };

/// The zones of a namespace.
#[derive(Clone, Debug)]
pub struct Zones {
    pub(super) config: ZoneConfig,
    pub(super) zones: Vec<Zone>,
    pub(super) open: u32,
    pub(super) active: u32,
    pub(super) areas: u32,
    /// Implicitly opened zones, the one opened first in front: what is closed when another zone is to be opened. Kept only
    /// where open zones are limited.
    pub(super) implicit: VecDeque<u32>,
    /// Zones that were closed to make room.
    implicit_closes: u64,
    /// log2 of the size, where it is a power of two.
    shift: Option<u32>,
    /// By zone: what survives the loss of power ([`crate::RegionImage`]).
    pub(super) words: Cells<u64>,
    /// By zone: its descriptor extension.
    pub(super) extensions: Cells<u8>,
    /// By zone: the end of what a flush has covered. Empty where nothing that is complete can be lost.
    pub(super) flushed: Vec<u32>,
}

impl Zones {
    /// All empty.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn new(config: ZoneConfig) -> Result<Self, ZoneConfigError> {
        config.validate()?;
        Ok(Self {
            zones: vec![EMPTY; config.zones as usize],
            open: 0,
            active: 0,
            areas: 0,
            implicit: VecDeque::with_capacity(config.open_limit() as usize),
            implicit_closes: 0,
            shift: config.size.is_power_of_two().then(|| config.size.trailing_zeros()),
            words: Cells::Own(vec![0; config.zones as usize]),
            extensions: Cells::Own(vec![0; config.extension_bytes() as usize]),
            flushed: Vec::new(),
            config,
        })
    }

    /// How the namespace is divided.
    pub fn config(&self) -> &ZoneConfig {
        &self.config
    }

    /// A zone; `None` beyond the last.
    pub fn get(&self, zone: u32) -> Option<Zone> {
        self.zones.get(zone as usize).copied()
    }

    /// All zones.
    pub fn iter(&self) -> impl Iterator<Item = Zone> + '_ {
        self.zones.iter().copied()
    }

    /// Open zones, active ones, and random write areas in use.
    pub fn in_use(&self) -> (u32, u32, u32) {
        (self.open, self.active, self.areas)
    }

    /// Zones that the drive itself has closed so far.
    pub fn implicit_closes(&self) -> u64 {
        self.implicit_closes
    }

    /// The first block of a zone.
    pub fn start(&self, zone: u32) -> u64 {
        u64::from(zone) * u64::from(self.config.size)
    }

    /// The zone of a block, and the block's place in it.
    ///
    /// # Errors
    /// [`ZoneError::OutOfRange`].
    #[inline]
    pub fn locate(&self, block: u64) -> Result<(u32, u32), ZoneError> {
        let size = u64::from(self.config.size);
        let (zone, at) = match self.shift {
            Some(shift) => (block >> shift, block & (size - 1)),
            None => (block / size, block % size),
        };
        if zone >= u64::from(self.config.zones) {
            return Err(ZoneError::OutOfRange);
        }
        Ok((zone as u32, at as u32))
    }

    /// Whether `blocks` blocks from `start` on may be read. What was never written can be.
    ///
    /// # Errors
    /// Beyond the last zone, across a boundary where that is not allowed, or offline.
    pub fn read(&self, start: u64, blocks: u32) -> Result<(), ZoneError> {
        let last = start.checked_add(u64::from(blocks.max(1)) - 1).ok_or(ZoneError::OutOfRange)?;
        let ((first, _), (last, _)) = (self.locate(start)?, self.locate(last)?);
        if first != last && !self.config.read_across {
            return Err(ZoneError::Boundary);
        }
        let offline = (first..=last).any(|zone| self.zones[zone as usize].state == ZoneState::Offline);
        if offline { Err(ZoneError::Offline) } else { Ok(()) }
    }

    /// Writes `blocks` blocks at `start`. Answers the zone and its write pointer before and after: equal where everything
    /// stays in the random write area.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn write(&mut self, start: u64, blocks: u32) -> Result<(u32, u32, u32), ZoneError> {
        let (zone, at) = self.locate(start)?;
        let end = self.writable(zone, at, blocks)?;
        let before = self.zones[zone as usize];
        let after = match self.config.zrwa.filter(|_| before.zrwa) {
            None if at != before.wp => return Err(ZoneError::InvalidWrite),
            None => end,
            Some(area) => self.commit_point(before.wp, at, end, area)?,
        };
        self.open_for(zone, ZoneState::ImplicitlyOpened)?;
        self.advance(zone, after);
        Ok((zone, before.wp, after))
    }

    /// Appends `blocks` blocks to the zone that begins at `start`; answers the zone, the first block written and the write
    /// pointer after.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn append(&mut self, start: u64, blocks: u32) -> Result<(u32, u64, u32), ZoneError> {
        let (zone, at) = self.locate(start)?;
        let before = self.zones[zone as usize];
        if at != 0 {
            return Err(ZoneError::InvalidField);
        }
        if before.zrwa {
            return Err(ZoneError::InvalidOperation);
        }
        let end = self.writable(zone, before.wp, blocks)?;
        self.open_for(zone, ZoneState::ImplicitlyOpened)?;
        self.advance(zone, end);
        Ok((zone, start + u64::from(before.wp), end))
    }

    /// The end of a write, if the zone takes writes and it lies within its capacity.
    fn writable(&self, zone: u32, at: u32, blocks: u32) -> Result<u32, ZoneError> {
        match self.zones[zone as usize].state {
            ZoneState::Full => return Err(ZoneError::Full),
            ZoneState::ReadOnly => return Err(ZoneError::ReadOnly),
            ZoneState::Offline => return Err(ZoneError::Offline),
            _ => {}
        }
        if blocks == 0 {
            return Err(ZoneError::InvalidField);
        }
        at.checked_add(blocks).filter(|end| *end <= self.config.capacity).ok_or(ZoneError::Boundary)
    }

    /// Where the write pointer of a zone with a random write area is after a write: what lies beyond the area is only
    /// reached by committing what is in front of it, in whole granules.
    fn commit_point(&self, wp: u32, at: u32, end: u32, area: Zrwa) -> Result<u32, ZoneError> {
        let reach = u64::from(wp) + u64::from(area.size);
        if at < wp || u64::from(end) > reach + u64::from(area.size) {
            return Err(ZoneError::InvalidWrite);
        }
        let beyond = u64::from(end).saturating_sub(reach);
        let granules = beyond.div_ceil(area.granularity.into()) * u64::from(area.granularity);
        Ok((u64::from(wp) + granules).min(self.config.capacity.into()) as u32)
    }

    /// Moves the write pointer; a zone that is written to its end is full.
    fn advance(&mut self, zone: u32, wp: u32) {
        self.zones[zone as usize].wp = wp;
        if wp == self.config.capacity {
            self.set(zone, ZoneState::Full);
        }
    }

    /// Commits the random write area of a zone up to and including the block `last`. Answers the zone and its write pointer
    /// before and after.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn flush_zrwa(&mut self, last: u64) -> Result<(u32, u32, u32), ZoneError> {
        let (zone, at) = self.locate(last)?;
        let before = self.zones[zone as usize];
        let Some(area) = self.config.zrwa else { return Err(ZoneError::InvalidOperation) };
        if !before.zrwa {
            return Err(ZoneError::InvalidOperation);
        }
        let end = at + 1;
        let reach = u64::from(before.wp) + u64::from(area.size);
        if end <= before.wp || u64::from(end) > reach || end > self.config.capacity {
            return Err(ZoneError::Boundary);
        }
        if (end - before.wp) % area.granularity != 0 && end != self.config.capacity {
            return Err(ZoneError::InvalidField);
        }
        self.open_for(zone, ZoneState::ImplicitlyOpened)?;
        self.advance(zone, end);
        // What lies in the area is there already.
        self.landed(zone, end, false);
        Ok((zone, before.wp, end))
    }

    /// Makes an empty or closed zone open; an implicitly opened one explicitly so, where that is asked for. Another one may be
    /// closed for it.
    pub(super) fn open_for(&mut self, zone: u32, as_state: ZoneState) -> Result<(), ZoneError> {
        let state = self.zones[zone as usize].state;
        match state {
            ZoneState::Empty | ZoneState::Closed => {
                self.make_room(state == ZoneState::Empty)?;
                self.set(zone, as_state);
            }
            ZoneState::ImplicitlyOpened if as_state == ZoneState::ExplicitlyOpened => self.set(zone, as_state),
            _ => {}
        }
        Ok(())
    }

    /// Whether one more zone can be opened, after an implicitly opened one is closed if need be.
    fn make_room(&mut self, activates: bool) -> Result<(), ZoneError> {
        if activates {
            self.room_for_active()?;
        }
        let limit = self.config.open_limit();
        if limit == 0 || self.open < limit {
            return Ok(());
        }
        let Some(oldest) = self.implicit.front().copied() else { return Err(ZoneError::TooManyOpen) };
        self.implicit_closes += 1;
        self.set(oldest, ZoneState::Closed);
        Ok(())
    }

    /// Whether one more zone can be active.
    pub(super) fn room_for_active(&self) -> Result<(), ZoneError> {
        let limit = self.config.max_active;
        if limit != 0 && self.active >= limit { Err(ZoneError::TooManyActive) } else { Ok(()) }
    }

    /// The one setter of states: keeps the counts, gives random write areas back.
    pub(super) fn set(&mut self, zone: u32, to: ZoneState) {
        let limited = self.config.open_limit() != 0;
        let z = &mut self.zones[zone as usize];
        let from = core::mem::replace(&mut z.state, to);
        self.open = self.open + u32::from(to.is_open()) - u32::from(from.is_open());
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        if !to.is_active() {
            self.areas -= u32::from(core::mem::take(&mut z.zrwa));
        }
        z.extended &= !matches!(to, ZoneState::Empty | ZoneState::Offline);
        if limited && from == ZoneState::ImplicitlyOpened && to != from {
            self.implicit.retain(|open| *open != zone);
        }
        if limited && to == ZoneState::ImplicitlyOpened && to != from {
            self.implicit.push_back(zone);
        }
        self.keep(zone);
    }

    /// States the invariants.
    pub fn check(&self) {
        let count = |is: fn(&Zone) -> bool| self.zones.iter().filter(|z| is(z)).count() as u32;
        assert_eq!(self.open, count(|z| z.state.is_open()), "open zones are counted");
        assert_eq!(self.active, count(|z| z.state.is_active()), "active zones are counted");
        assert_eq!(self.areas, count(|z| z.zrwa), "random write areas are counted");
        let ZoneConfig { max_open, max_active, capacity, .. } = self.config;
        assert!(max_open == 0 || self.open <= max_open, "{} zones are open", self.open);
        assert!(max_active == 0 || self.active <= max_active, "{} zones are active", self.active);
        assert!(self.areas <= self.config.zrwa.map_or(0, |a| a.areas), "{} areas", self.areas);
        for (i, z) in self.zones.iter().enumerate() {
            assert!(z.wp <= capacity, "zone {i}: {z:?}");
            assert!(!z.zrwa || z.state.is_active(), "zone {i}: {z:?}");
            let lives = !matches!(z.state, ZoneState::Empty | ZoneState::Offline);
            assert!(!z.extended || lives && self.config.extension > 0, "zone {i}: {z:?}");
            match z.state {
                ZoneState::Empty => assert_eq!(z.wp, 0, "zone {i} is empty"),
                ZoneState::Full => assert_eq!(z.wp, capacity, "zone {i} is full"),
                state if state.is_active() => assert!(z.wp < capacity, "zone {i} is not full: {z:?}"),
                _ => {}
            }
            self.check_kept(i, z);
            let listed = self.implicit.iter().filter(|l| **l as usize == i).count();
            let implicit = z.state == ZoneState::ImplicitlyOpened && self.config.open_limit() != 0;
            assert_eq!(listed, usize::from(implicit), "zone {i} is listed if it was opened implicitly");
        }
    }
}
