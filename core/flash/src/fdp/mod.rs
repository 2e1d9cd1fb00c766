//! Flexible data placement (FDP; base 2.1, 8.1.10): the host says beside which other data a write is to lie.
//!
//! ```text
//!  reclaim group    a part of the drive's dies                    ┐
//!  reclaim unit     blocks of each plane of a group (superblock)  ├ handle × group: a stream with a write point in each plane
//!  handle (RUH)     names one reclaim unit of every group         ┘ of its group; full, or updated: the next reclaim unit
//! ```
//! Writes of a stream go round over the planes of its group, so its blocks fill together, and a reclaim unit is full when as
//! many pages are programmed as its blocks have. No block takes pages of two handles. Collection works block by block: data
//! of initially isolated handles goes to the plane's one collection point, data of persistently isolated ones to a point of
//! their own. What finds its group full goes to other groups' planes, which is noted as an event.

mod check;
mod config;
mod drive;
mod placed;
#[cfg(test)]
mod tests;

pub use config::{FdpConfig, Isolation};

use crate::ftl::{Route, Separation};
use crate::geometry::{Shape, UNIT};
use crate::stats::Stats;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use weir_units::Nanos;

/// Blocks that hold the data of several handles, or none.
const MIXED: u8 = u8::MAX;
/// Events that are kept until somebody asks for them; the oldest are dropped.
const EVENTS: usize = 256;

/// What happened that a host can want to know (base 2.1, 8.1.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FdpEventKind {
    /// The host moved a handle on whose reclaim unit was not fully written: units of 4 KiB that were left.
    NotFullyWritten {
        /// Units of 4 KiB.
        left: u32,
    },
    /// Static wear levelling has moved data of a handle.
    Reallocated {
        /// The first logical unit that moved.
        lpn: u32,
        /// How many did.
        units: u32,
    },
    /// The group was full: the handle's data goes to planes of other groups.
    Implicit,
}

/// An event and where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdpEvent {
    /// What happened (NVMe base 2.1, 8.1.10).
    pub kind: FdpEventKind,
    /// When.
    pub at: Nanos,
    /// The reclaim group.
    pub group: u16,
    /// The handle; `None` where the data is no single handle's.
    pub handle: Option<u8>,
}

/// Bytes since the drive was made, whatever else was reset (base 2.1, 5.1.12.1.30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdpStatistics {
    /// HBMW: written by the host, in units of 4 KiB.
    pub host_written: u64,
    /// MBMW: programmed, whatever for.
    pub media_written: u64,
    /// MBE: erased.
    pub media_erased: u64,
}

/// What was programmed for a handle since the counters began, in 4 KiB units; pages that were not filled count as full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleWork {
    /// For the host.
    pub written: u64,
    /// By collection, out of blocks that hold the handle's data alone.
    pub moved: u64,
    /// Reclaim units that were filled or left.
    pub reclaim_units: u64,
}

/// A handle in one group.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Its planes in turn.
    route: Route,
    /// Units that its reclaim unit still takes, from 1 to all.
    left: u32,
    /// Its group is full: the last page went elsewhere.
    displaced: bool,
    work: HandleWork,
}

/// The placement of a drive.
#[derive(Debug)]
pub struct Fdp {
    config: FdpConfig,
    /// Planes of a group.
    planes: u32,
    /// Units of a reclaim unit.
    unit: u32,
    whole_dies: bool,
    /// By group and handle.
    streams: Vec<Stream>,
    /// By block: the one handle that wrote what it holds, or [`MIXED`].
    owner: Vec<u8>,
    /// A page has gone to another group's plane.
    overflown: bool,
    before: FdpStatistics,
    events: VecDeque<FdpEvent>,
}

impl Fdp {
    pub(crate) fn new(config: FdpConfig, shape: &Shape, whole_dies: bool) -> Box<Fdp> {
        let planes = shape.planes() / u32::from(config.groups);
        let mut fdp = Fdp {
            config,
            planes,
            unit: planes * config.blocks * shape.units_per_block(),
            whole_dies,
            streams: Vec::new(),
            owner: vec![MIXED; shape.blocks() as usize],
            overflown: false,
            before: FdpStatistics::default(),
            events: VecDeque::with_capacity(EVENTS),
        };
        fdp.forget(shape);
        Box::new(fdp)
    }

    /// Every handle at a new reclaim unit; nothing was ever written.
    pub(crate) fn forget(&mut self, shape: &Shape) {
        let streams = 0..u32::from(self.config.streams());
        let of = |stream| Stream {
            route: Route::of(shape, self.whole_dies, self.planes_of(stream)),
            left: self.unit,
            displaced: false,
            work: HandleWork::default(),
        };
        self.streams = streams.map(of).collect();
        self.owner.fill(MIXED);
        self.events.clear();
        (self.overflown, self.before) = (false, FdpStatistics::default());
    }

    /// Everything so far was before anybody counted.
    pub(crate) fn begin(&mut self) {
        self.streams.iter_mut().for_each(|s| s.work = HandleWork::default());
        self.events.clear();
        self.before = FdpStatistics::default();
    }

    /// What it was made with.
    pub fn config(&self) -> &FdpConfig {
        &self.config
    }

    /// Size of a reclaim unit in 4 KiB units.
    pub fn reclaim_unit(&self) -> u32 {
        self.unit
    }

    /// What was programmed for each handle, all groups together.
    pub fn handles(&self) -> Vec<HandleWork> {
        let mut sums = vec![HandleWork::default(); self.config.handles.into()];
        for row in self.streams.chunks(self.config.handles.into()) {
            for (sum, stream) in sums.iter_mut().zip(row) {
                sum.written += stream.work.written;
                sum.moved += stream.work.moved;
                sum.reclaim_units += stream.work.reclaim_units;
            }
        }
        sums
    }

    /// What was programmed for a handle; `None` where there is no such group or handle.
    pub fn work(&self, group: u16, handle: u8) -> Option<HandleWork> {
        self.streams.get(self.stream(group, handle)?).map(|s| s.work)
    }

    /// The hint that [`Flash::submit_hinted`](crate::Flash::submit_hinted) takes for a handle, in a group or (`None`) in whichever the drive chooses.
    /// 0, which is handle 0 anywhere, where there is no such group or handle.
    pub fn hint(&self, group: Option<u16>, handle: u8) -> u8 {
        let known = handle < self.config.handles;
        match group {
            Some(group) => self.stream(group, handle).map_or(0, |s| s as u8 + 1),
            None if known => self.config.streams() + 1 + handle,
            None => 0,
        }
    }

    fn stream(&self, group: u16, handle: u8) -> Option<usize> {
        let known = group < self.config.groups && handle < self.config.handles;
        known.then(|| usize::from(group) * usize::from(self.config.handles) + usize::from(handle))
    }

    fn handle_of(&self, stream: u32) -> u32 {
        stream % u32::from(self.config.handles)
    }

    /// The planes of the stream's group.
    fn planes_of(&self, stream: u32) -> Range<u32> {
        let first = stream / u32::from(self.config.handles) * self.planes;
        first..first + self.planes
    }

    fn group_of_plane(&self, plane: u32) -> u16 {
        (plane / self.planes) as u16
    }

    /// A block is opened for that kind of data; `gc` is the first of the collection's kinds beyond the usual one.
    pub(crate) fn opened(&mut self, block: u32, kind: u32, own: u32) {
        let handles = u32::from(self.config.handles);
        self.owner[block as usize] = match kind {
            _ if kind < handles => kind as u8,
            _ if kind >= own => self.keeper(kind - own),
            _ => MIXED,
        };
    }

    /// The `n`th persistently isolated handle.
    fn keeper(&self, n: u32) -> u8 {
        let mut kept = (0..self.config.handles).filter(|h| self.config.isolation(*h) == Isolation::Persistent);
        kept.nth(n as usize).unwrap_or(MIXED)
    }

    /// Which of the collection's own kinds takes the block's data; `None`: the usual one.
    pub(crate) fn kept_apart(&self, block: u32) -> Option<u32> {
        let owner = self.owner[block as usize];
        let apart = owner < self.config.handles && self.config.isolation(owner) == Isolation::Persistent;
        apart.then(|| (self.config.persistent & ((1u32 << owner) - 1)).count_ones())
    }

    /// Collection has moved so many units out of a block.
    pub(crate) fn collected(&mut self, plane: u32, block: u32, units: usize) {
        let group = self.group_of_plane(plane);
        if let Some(at) = self.stream(group, self.owner[block as usize]) {
            self.streams[at].work.moved += units as u64;
        }
    }

    /// Wear levelling has moved what a block held.
    pub(crate) fn reallocated(&mut self, at: Nanos, plane: u32, block: u32, (lpn, units): (u32, u32)) {
        let owner = self.owner[block as usize];
        if units > 0 {
            let handle = (owner < self.config.handles).then_some(owner);
            let (kind, group) = (FdpEventKind::Reallocated { lpn, units }, self.group_of_plane(plane));
            self.note(FdpEvent { kind, at, group, handle });
        }
    }

    fn note(&mut self, event: FdpEvent) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// `units` of the stream have been programmed, pages not filled up counted as full ones; the last of them on `plane`.
    fn programmed(&mut self, now: Nanos, stream: u32, units: u32, plane: u32) {
        let inside = self.planes_of(stream).contains(&plane);
        let handle = Some(self.handle_of(stream) as u8);
        let group = (stream / u32::from(self.config.handles)) as u16;
        let s = &mut self.streams[stream as usize];
        let first = !inside && !s.displaced;
        s.displaced = !inside;
        s.work.written += u64::from(units);
        let mut units = units;
        while units >= s.left {
            units -= s.left;
            s.left = self.unit;
            s.work.reclaim_units += 1;
        }
        s.left -= units;
        self.overflown |= !inside;
        if first {
            self.note(FdpEvent { kind: FdpEventKind::Implicit, at: now, group, handle });
        }
    }

    /// Counters are about to begin at zero; the statistics go on.
    fn carry(&mut self, stats: &Stats, shape: &Shape) {
        self.before = self.statistics(stats, shape);
        self.streams.iter_mut().for_each(|s| s.work = HandleWork::default());
    }

    fn statistics(&self, stats: &Stats, shape: &Shape) -> FdpStatistics {
        let block = u64::from(shape.units_per_block()) * u64::from(UNIT);
        FdpStatistics {
            host_written: self.before.host_written + stats.host_writes * u64::from(UNIT),
            media_written: self.before.media_written + stats.programs() * u64::from(shape.page_bytes()),
            media_erased: self.before.media_erased + stats.erases * block,
        }
    }
}

/// Hints as [`Fdp::hint`] makes them become streams.
#[derive(Debug)]
pub(crate) struct Placement {
    groups: u32,
    handles: u32,
    /// Units that go to the same group where the host named none.
    chunk: u32,
}

impl Placement {
    pub(crate) fn build(config: &FdpConfig, program: u32) -> Box<dyn Separation> {
        Box::new(Placement { groups: config.groups.into(), handles: config.handles.into(), chunk: program.max(1) })
    }
}

impl Separation for Placement {
    fn stream(&mut self, lpn: u32, hint: u8, streams: u8) -> u8 {
        if (1..=streams).contains(&hint) {
            return hint - 1;
        }
        let handle = u32::from(hint.saturating_sub(streams + 1)) % self.handles;
        (lpn / self.chunk % self.groups * self.handles + handle) as u8
    }
}
