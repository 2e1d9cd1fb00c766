//! When the silicon is done: dies, planes and channels. No map, no data, no clock.

use crate::geometry::{Place, Shape};
use crate::name::names;
use crate::timing::Timing;
use crate::variability::Variability;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

/// What garbage collection blocks (papers/002 section 4; "Tiny-Tail Flash", FAST '17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole drive until it is over.
    Controller,
    /// The channel that the pages cross, while they do.
    Channel,
    /// The plane only: copy-back, no page leaves it.
    Plane,
}

names!(Scope, "scope", Controller = "controller", Channel = "channel", Plane = "plane");

/// A program's two points in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programmed {
    /// The data is in the page register: whoever held it may let it go.
    pub loaded: Nanos,
    /// The page is in the cells.
    pub done: Nanos,
}

/// A victim's pages moved and its block erased, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocation {
    /// The array times of all page reads.
    pub read: Nanos,
    /// The array times of all programs.
    pub program: Nanos,
    /// Bytes that are read and programmed again.
    pub bytes: u64,
    /// The block to erase at the end.
    pub erase: Option<u32>,
}

/// The drive's flash as resources that are booked.
#[derive(Clone, Debug)]
pub struct Array {
    timing: Timing,
    levels: Vec<u8>,
    shape: Shape,
    planes: Vec<Nanos>,
    channels: Vec<Nanos>,
    locked: Nanos,
}

impl Array {
    /// An idle array.
    pub fn new(shape: &Shape, timing: &Timing, _variability: &Variability) -> Array {
        let g = shape.geometry();
        Array {
            timing: *timing,
            levels: g.page_map.table(g.cell, g.pages),
            shape: *shape,
            planes: vec![Nanos(0); shape.planes() as usize],
            channels: vec![Nanos(0); shape.channels() as usize],
            locked: Nanos(0),
        }
    }

    fn book(&mut self, plane: u32, at: Nanos, bytes: u32) -> Nanos {
        let channel = &mut self.channels[self.shape.channel_of(plane) as usize];
        *channel = at.max(*channel).saturating_add(self.timing.channel.time(bytes));
        *channel
    }

    /// The array time of reading `bytes` of a page.
    pub fn read_time(&self, at: Place, _bytes: u32) -> Nanos {
        self.timing.read[usize::from(self.levels[at.page as usize])]
    }

    /// The array time of programming a page.
    pub fn program_time(&self, at: Place) -> Nanos {
        self.timing.program[usize::from(self.levels[at.page as usize])]
    }

    /// Array read, then `bytes` over the channel; the end of the transfer.
    pub fn read(&mut self, now: Nanos, at: Place, bytes: u32) -> Nanos {
        self.read_planes(now, at, 1, bytes)
    }

    /// `bytes` over the channel into the page register, then the program.
    pub fn program(&mut self, now: Nanos, at: Place, bytes: u32) -> Programmed {
        self.program_planes(now, at, 1, bytes)
    }

    /// The same page of `planes` planes of one die in one array read, then their data plane by plane. `at` is the first plane's.
    pub fn read_planes(&mut self, now: Nanos, at: Place, planes: u32, bytes_each: u32) -> Nanos {
        let first = at.plane as usize;
        let all = first..first + planes as usize;
        let start = self.planes[all.clone()].iter().fold(now.max(self.locked), |t, p| t.max(*p));
        let read = start.saturating_add(self.read_time(at, bytes_each));
        let mut end = read;
        for plane in all {
            end = self.book(plane as u32, read, bytes_each);
            self.planes[plane] = end;
        }
        end
    }

    /// The same page of `planes` planes of one die in one program; the data goes plane by plane. `at` is the first plane's.
    pub fn program_planes(&mut self, now: Nanos, at: Place, planes: u32, bytes_each: u32) -> Programmed {
        let first = at.plane as usize;
        let all = first..first + planes as usize;
        let start = self.planes[all.clone()].iter().fold(now.max(self.locked), |t, p| t.max(*p));
        let loaded = all.clone().fold(start, |_, plane| self.book(plane as u32, start, bytes_each));
        let done = loaded.saturating_add(self.program_time(at));
        self.planes[all].fill(done);
        Programmed { loaded, done }
    }

    /// Erases a block; the end.
    pub fn erase(&mut self, now: Nanos, plane: u32, _block: u32) -> Nanos {
        let free = &mut self.planes[plane as usize];
        *free = now.max(*free).max(self.locked).saturating_add(self.timing.erase);
        *free
    }

    /// Garbage collection of one victim on one plane, in aggregate; `scope` says what else stands still. The end.
    pub fn relocate(&mut self, now: Nanos, plane: u32, work: &Relocation, scope: Scope) -> Nanos {
        let start = now.max(self.planes[plane as usize]).max(self.locked);
        let mut moved = start.saturating_add(work.read).saturating_add(work.program);
        if scope != Scope::Plane {
            let bytes = u32::try_from(work.bytes).unwrap_or(u32::MAX);
            moved = moved.saturating_add(Nanos(self.timing.channel.time(bytes).0 * 2));
            let channel = &mut self.channels[self.shape.channel_of(plane) as usize];
            *channel = moved.max(*channel);
        }
        let end = if work.erase.is_some() { moved.saturating_add(self.timing.erase) } else { moved };
        self.planes[plane as usize] = end;
        if scope == Scope::Controller {
            self.locked = end;
        }
        end
    }

    /// When a plane's array is idle again.
    pub fn plane_free_at(&self, plane: u32) -> Nanos {
        self.planes[plane as usize].max(self.locked)
    }
}
