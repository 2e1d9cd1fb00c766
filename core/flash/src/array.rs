//! When the silicon is done: dies, planes and channels. No map, no data, no clock.

use crate::calendar::Calendar;
use crate::credits::CreditRing;
use crate::geometry::{Divisor, PageAddress, Shape, UNIT};
use crate::lun::{Lun, OpenEnd, Promise, Tail};
use crate::scheduler::Scheduler;
use crate::timing::{FlashTiming, Levels, OperationUnit, Registers};
use crate::variability::{Variability, Varied};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A program's two points in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programmed {
    /// The data is in the page register: whoever held it may let it go.
    pub loaded: Nanos,
    /// The page is in the cells. Of an open program ([`Promise::Open`]): at the earliest.
    pub done: Nanos,
}

/// A read and how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// The data is out.
    pub done: Nanos,
    /// How many times the page was sensed again.
    pub retries: u32,
    /// Too many bits were wrong: the data is lost.
    pub failed: bool,
}

/// What has kept the flash busy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utilisation {
    /// For each die: how long its array, or that of its chip, worked or held a page; with planes that work independently, their mean.
    pub dies: Vec<Nanos>,
    /// For each channel: how long it was taken.
    pub channels: Vec<Nanos>,
}

/// The drive's flash as resources that are booked.
///
/// Operations on one plane (die) run in the order in which they are asked for, so ask in the order of time; `now` may run
/// ahead, for what is known to begin later, at the price that whoever comes then waits behind it. Channels are calendars
/// and fill their holes.
#[derive(Clone, Debug)]
pub struct Array {
    pub(crate) luns: Vec<Lun>,
    tails: Vec<Tail>,
    pub(crate) channels: Vec<Calendar>,
    /// Nothing begins before: the controller is blocked by garbage collection.
    pub(crate) locked: u64,
    /// With [`OperationUnit::Die`], planes a die; else 1.
    by_gate: Divisor,
    /// Chips of the drive, where their dies take turns.
    by_chips: Option<Divisor>,
    registers: Registers,
    /// The level of each page of a block.
    levels: Vec<u8>,
    read: Levels,
    read_small: Levels,
    program: Levels,
    transfer_unit: u64,
    transfer_page: u64,
    page_bytes: u32,
    sense_bytes: u32,
    /// More than that does not cross the channel in one booking of its calendar.
    burst_bytes: u32,
    /// The channels, where their time is given out by credits; else none.
    pub(crate) rings: Box<[CreditRing]>,
    /// Where there are rings: when the pieces of the last page that was read were off the channel.
    pub(crate) pieces: Vec<Nanos>,
    cache_read: bool,
    pub(crate) timing: FlashTiming,
    /// `None`: every chip is as the data sheet says.
    pub(crate) varied: Option<Box<Varied>>,
    /// `None`: channels are booked.
    pub(crate) scheduler: Option<Box<Scheduler>>,
    pub(crate) shape: Shape,
    failed_reads: u64,
}

impl Array {
    /// An idle array.
    pub fn new(shape: &Shape, timing: &FlashTiming, variability: &Variability) -> Array {
        let g = shape.geometry();
        let by_chips = (timing.chips > 0).then(|| Divisor::new(timing.chips.min(g.ways) * g.channels));
        let gate = if timing.gate == OperationUnit::Die || by_chips.is_some() { g.planes } else { 1 };
        let by_gate = Divisor::new(gate);
        let luns = by_chips.map_or(shape.planes() / gate, Divisor::get);
        let lun = |i: u32| Lun::on(shape.channel_of(i * gate));
        let rings: Box<[CreditRing]> = (0..g.channels).filter_map(|_| CreditRing::new(&timing.channel)).collect();
        let or_page = |bytes: u32| if bytes == 0 { g.page_bytes } else { bytes };
        Array {
            luns: (0..luns).map(lun).collect(),
            tails: vec![Tail::default(); luns as usize],
            channels: vec![Calendar::new(Calendar::INTERVALS, timing.shortest_on_channel()); g.channels as usize],
            locked: 0,
            by_gate,
            by_chips,
            registers: timing.registers,
            levels: g.page_map.table(g.cell, g.pages),
            read: timing.read,
            read_small: timing.read_small.unwrap_or(timing.read),
            program: timing.program,
            transfer_unit: timing.channel.time(UNIT).0,
            transfer_page: timing.channel.time(g.page_bytes).0,
            page_bytes: g.page_bytes,
            sense_bytes: or_page(timing.sense_bytes),
            // By credits nothing goes by the calendar.
            burst_bytes: if rings.is_empty() { timing.burst() } else { 0 },
            rings,
            pieces: Vec::new(),
            cache_read: timing.cache_read && timing.registers == Registers::Double,
            timing: *timing,
            varied: Varied::new(shape, variability).map(Box::new),
            scheduler: Array::scheduler_for(timing, shape, luns),
            shape: *shape,
            failed_reads: 0,
        }
    }

    /// Array read, then `bytes` over the channel; the end of the transfer.
    #[inline]
    pub fn read(&mut self, now: Nanos, at: PageAddress, bytes: u32) -> Nanos {
        if self.varied.is_some() {
            return self.read_outcome(now, at, bytes).done;
        }
        let sense = self.sense(at, bytes);
        self.sensed(now, at.plane, sense, bytes, 1)
    }

    /// The same, with its retries; a read that fails takes the time of all of them.
    pub fn read_outcome(&mut self, now: Nanos, at: PageAddress, bytes: u32) -> ReadOutcome {
        let (sense, retries, failed) = self.sense_varied(now, at, bytes);
        ReadOutcome { done: self.sensed(now, at.plane, sense, bytes, 1), retries, failed }
    }

    /// The same page of `planes` planes of one die in one array read, then their data plane by plane; `at` is on the first.
    pub fn read_planes(&mut self, now: Nanos, at: PageAddress, planes: u32, bytes_each: u32) -> Nanos {
        let each = (0..planes).map(|p| PageAddress { plane: at.plane + p, ..at });
        let sense = each.map(|at| self.sense_varied(now, at, bytes_each).0).max().unwrap_or_default();
        if self.by_gate.get() > 1 || planes == 1 {
            return self.sensed(now, at.plane, sense, bytes_each, planes);
        }
        // Planes that otherwise work independently wait for one another.
        let together = self.together(now, at.plane, planes);
        let of_plane = |i: u32| self.sensed(together, at.plane + i, sense, bytes_each, 1);
        (0..planes).map(of_plane).max().unwrap_or(now)
    }

    /// `bytes` over the channel into the page register, then the program. Its end will not move.
    #[inline]
    pub fn program(&mut self, now: Nanos, at: PageAddress, bytes: u32) -> Programmed {
        self.program_as(now, at, bytes, Promise::Told)
    }

    /// A program whose end may move while nobody was told it, see [`Promise`] and [`Array::settle`].
    #[inline]
    pub fn program_as(&mut self, now: Nanos, at: PageAddress, bytes: u32, promise: Promise) -> Programmed {
        let time = self.begin_program(now, at);
        self.programmed(now, at.plane, time, bytes, 1, promise)
    }

    /// The same page of `planes` planes of one die in one program, the data plane by plane; `at` is on the first.
    pub fn program_planes(&mut self, now: Nanos, at: PageAddress, planes: u32, bytes_each: u32) -> Programmed {
        self.program_planes_as(now, at, planes, bytes_each, Promise::Told)
    }

    /// The same, with an end that may move.
    pub fn program_planes_as(
        &mut self,
        now: Nanos,
        at: PageAddress,
        planes: u32,
        bytes_each: u32,
        promise: Promise,
    ) -> Programmed {
        let each = (0..planes).map(|p| PageAddress { plane: at.plane + p, ..at });
        let time = each.map(|at| self.begin_program(now, at)).max().unwrap_or_default();
        if self.by_gate.get() > 1 || planes == 1 {
            return self.programmed(now, at.plane, time, bytes_each, planes, promise);
        }
        let together = self.together(now, at.plane, planes);
        let mut last = Programmed { loaded: now, done: now };
        for i in 0..planes {
            let p = self.programmed(together, at.plane + i, time, bytes_each, 1, promise);
            last = Programmed { loaded: last.loaded.max(p.loaded), done: last.done.max(p.done) };
        }
        // One program: all planes are done when the last one is.
        for lun in &mut self.luns[at.plane as usize..(at.plane + planes) as usize] {
            lun.hold(last.done);
        }
        last
    }

    /// Erases a block; the end, which will not move.
    pub fn erase(&mut self, now: Nanos, plane: u32, block: u32) -> Nanos {
        self.erase_as(now, plane, block, Promise::Told)
    }

    /// Erases a block; the end may move while nobody was told it.
    pub fn erase_as(&mut self, now: Nanos, plane: u32, block: u32, promise: Promise) -> Nanos {
        let time = self.begin_on_chip(plane, self.timing.erase).0;
        if let Some(varied) = &mut self.varied {
            varied.erased(now, self.shape.block_index(plane, block));
        }
        let command = self.timing.overheads.erase.0;
        self.occupy(now, plane, command, time, self.timing.suspend.of_erase(promise))
    }

    /// A page moved within its plane, array to register to array (copy-back): no channel time but the commands'. With
    /// [`Promise::Open`] a read may suspend it as it may a program.
    pub fn copy_back(&mut self, now: Nanos, from: PageAddress, to: PageAddress, promise: Promise) -> Nanos {
        let (sense, ..) = self.sense_varied(now, from, self.page_bytes);
        let time = sense + self.begin_program(now, to);
        let command = self.timing.overheads.read.0 + self.timing.overheads.program.0;
        self.occupy(now, from.plane, command, time, self.timing.suspend.of_program(promise))
    }

    /// `bytes` of a page moved to another without crossing the host link: copied back where the plane is the same, else
    /// read over the channel and programmed.
    pub fn move_page(
        &mut self,
        now: Nanos,
        from: PageAddress,
        to: PageAddress,
        bytes: u32,
        promise: Promise,
    ) -> Programmed {
        if from.plane == to.plane {
            let done = self.copy_back(now, from, to, promise);
            return Programmed { loaded: done, done };
        }
        let read = self.read(now, from, bytes);
        self.program_as(read, to, bytes, promise)
    }

    /// Everything booked on a plane (die) stays where it is from now on; the time at which it is idle may be told.
    pub fn settle(&mut self, plane: u32) -> Nanos {
        let lun = self.lun_of(plane);
        self.luns[lun].settle().max(Nanos(self.locked))
    }

    /// To be asked for right after work was booked on `plane`: its end, which reads may push if it is open.
    pub fn open_end(&self, plane: u32, done: Nanos) -> OpenEnd {
        let index = self.lun_of(plane);
        OpenEnd::new(plane, done, &self.luns[index], &self.tails[index])
    }

    /// When open work is over at the latest, as things stand. Exactly then, but for work that is over while
    /// later work of the same tail was pushed; never earlier.
    pub fn latest(&self, end: &OpenEnd) -> Nanos {
        let index = self.lun_of(end.plane);
        end.latest(&self.luns[index], &self.tails[index])
    }

    /// The same end, with what it has been pushed by so far.
    pub fn renewed(&self, end: &OpenEnd) -> OpenEnd {
        let index = self.lun_of(end.plane);
        end.renewed(&self.luns[index], &self.tails[index])
    }

    /// Settles the plane, so that the end of open work may be told: not before that work is over, and final.
    pub fn tell(&mut self, end: &OpenEnd) -> Nanos {
        self.settle(end.plane);
        self.latest(end)
    }

    /// When a plane's array is idle again, as things stand; [`Nanos::NEVER`] where a scheduler does not know.
    pub fn plane_free_at(&self, plane: u32) -> Nanos {
        if let Some(scheduler) = &self.scheduler {
            return scheduler.idle_since(self.lun_of(plane) as u32).unwrap_or(Nanos::NEVER);
        }
        Nanos(self.luns[self.lun_of(plane)].free.max(self.locked))
    }

    /// Until when the controller is blocked; see [`crate::Scope::Controller`].
    pub fn locked_until(&self) -> Nanos {
        Nanos(self.locked)
    }

    /// The array time of reading `bytes` of a page, by the data sheet: no retries, no bad chip.
    pub fn read_time(&self, at: PageAddress, bytes: u32) -> Nanos {
        Nanos(self.sense(at, bytes))
    }

    /// The array time of programming a page, by the data sheet.
    #[inline]
    pub fn program_time(&self, at: PageAddress) -> Nanos {
        self.program[usize::from(self.levels[at.page as usize])]
    }

    /// A data sheet's time on the chip of this plane.
    #[inline]
    pub fn on_chip(&self, plane: u32, time: Nanos) -> Nanos {
        match &self.varied {
            None => time,
            Some(varied) => varied.scale_chip(self.shape.die_of(plane), time),
        }
    }

    /// The time of `bytes` on the channel, commands apart.
    #[inline]
    pub fn transfer_time(&self, bytes: u32) -> Nanos {
        Nanos(match bytes {
            UNIT => self.transfer_unit,
            _ if bytes == self.page_bytes => self.transfer_page,
            _ => self.timing.channel.time(bytes).0,
        })
    }

    /// What was busy up to `now`.
    pub fn utilisation(&self, now: Nanos) -> Utilisation {
        let planes = self.shape.planes_per_die();
        let busy = |plane: u32| match &self.scheduler {
            Some(scheduler) => scheduler.busy(self.lun_of(plane)),
            None => self.luns[self.lun_of(plane)].busy_until(now).0,
        };
        let of_die = |die: u32| Nanos((0..planes).map(|p| busy(die * planes + p)).sum::<u64>() / u64::from(planes));
        let of_channel = |(c, calendar): (usize, &Calendar)| match &self.scheduler {
            Some(scheduler) => Nanos(scheduler.bus_busy(c)),
            None => self.rings.get(c).map_or(calendar.busy_until(now), |ring| ring.busy_until(now)),
        };
        Utilisation {
            dies: (0..self.shape.dies()).map(of_die).collect(),
            channels: self.channels.iter().enumerate().map(of_channel).collect(),
        }
    }

    /// Reads whose data was lost; see [`Variability`].
    pub fn failed_reads(&self) -> u64 {
        self.failed_reads
    }

    /// Program and erase cycles of a block; 0 unless wear is modelled.
    pub fn cycles(&self, plane: u32, block: u32) -> u32 {
        self.varied.as_ref().map_or(0, |v| v.cycles(self.shape.block_index(plane, block)))
    }

    /// Sets the program and erase cycles of a block, where wear is modelled.
    pub fn set_cycles(&mut self, plane: u32, block: u32, cycles: u32) {
        if let Some(varied) = &mut self.varied {
            varied.set_cycles(self.shape.block_index(plane, block), cycles);
        }
    }

    /// Cycles from so many erases of each block of the drive on, where wear is modelled.
    pub(crate) fn set_wear(&mut self, erases: &[u32]) {
        if let Some(varied) = &mut self.varied {
            varied.set_wear(erases);
        }
    }

    /// States the invariants of every plane and channel.
    pub fn check(&self) {
        self.luns.iter().zip(&self.tails).for_each(|(lun, tail)| lun.check(tail));
        self.channels.iter().for_each(Calendar::check);
        self.rings.iter().for_each(CreditRing::check);
        self.scheduler.iter().for_each(|scheduler| scheduler.check());
    }

    pub(crate) fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// The time of the program that now begins.
    #[inline]
    pub(crate) fn begin_program(&mut self, now: Nanos, at: PageAddress) -> u64 {
        let time = self.program_time(at);
        if self.varied.is_none() {
            return time.0;
        }
        let free = self.luns[self.lun_of(at.plane)].free;
        let Some(varied) = &mut self.varied else { return time.0 };
        varied.programmed(now, self.shape.block_index(at.plane, at.block), at.page);
        let start = free.max(now.0).max(self.locked);
        // A scheduler knows when work begins, and has it wait then.
        let wait = if self.scheduler.is_some() { 0 } else { varied.wait(self.shape.die_of(at.plane), start) };
        varied.program_time(&self.shape, at, time).0 + wait
    }

    #[inline]
    pub(crate) fn lun_of(&self, plane: u32) -> usize {
        let lun = self.by_gate.div(plane);
        self.by_chips.map_or(lun, |chips| chips.rem(lun)) as usize
    }

    /// When `planes` planes from `first` on can begin together.
    fn together(&self, now: Nanos, first: u32, planes: u32) -> Nanos {
        let luns = &self.luns[first as usize..(first + planes) as usize];
        luns.iter().fold(now, |t, lun| t.max(Nanos(lun.free)))
    }

    #[inline]
    fn sense(&self, at: PageAddress, bytes: u32) -> u64 {
        let level = usize::from(self.levels[at.page as usize]);
        if bytes <= UNIT {
            return self.read_small[level].0;
        }
        let once = self.read[level].0;
        if bytes <= self.sense_bytes { once } else { once * u64::from(bytes.div_ceil(self.sense_bytes)) }
    }

    pub(crate) fn sense_varied(&mut self, now: Nanos, at: PageAddress, bytes: u32) -> (u64, u32, bool) {
        let sense = Nanos(self.sense(at, bytes));
        if self.varied.is_none() {
            return (sense.0, 0, false);
        }
        let free = self.luns[self.lun_of(at.plane)].free;
        let Some(varied) = &mut self.varied else { return (sense.0, 0, false) };
        let level = self.levels[at.page as usize];
        let sensed = varied.sensed(&self.shape, now, at, level, sense);
        self.failed_reads += u64::from(sensed.failed);
        let start = free.max(now.0).max(self.locked);
        let wait = if self.scheduler.is_some() { 0 } else { varied.wait(self.shape.die_of(at.plane), start) };
        (sensed.time.0 + wait, sensed.retries, sensed.failed)
    }

    /// `sense` in the array, then `count` times `bytes` over the channel.
    #[inline]
    fn sensed(&mut self, now: Nanos, plane: u32, sense: u64, bytes: u32, count: u32) -> Nanos {
        let now = now.0.max(self.locked);
        let index = self.lun_of(plane);
        if self.luns[index].has_tail(now) {
            if let Some(end) = self.cut_in(now, index, sense, bytes, count) {
                return Nanos(end);
            }
        }
        let lun = &self.luns[index];
        let (channel, from, cache) = (lun.channel as usize, now.max(lun.free), lun.cache);
        let read = self.command(channel, now, from, self.read_command(count)) + sense;
        // The page moves on to the cache register once that is free.
        let out = if self.cache_read { read.max(cache) + self.timing.cache_busy.0 } else { read };
        let end = self.data_out(channel, now, out, bytes, count);
        let lun = &mut self.luns[index];
        lun.free = match self.registers {
            Registers::Double if self.cache_read => out,
            Registers::Unbounded => read,
            Registers::Single | Registers::Double => end,
        };
        lun.cache = end;
        lun.busy += lun.free - from;
        lun.settle();
        Nanos(end)
    }

    /// A read that suspends or precedes work whose end nobody was told. The array waits for the transfer: the chip keeps
    /// the suspended page in latches of its own, the registers are the read's.
    #[cold]
    fn cut_in(&mut self, now: u64, index: usize, sense: u64, bytes: u32, count: u32) -> Option<u64> {
        let cut = self.luns[index].cut(&self.tails[index], now)?;
        let channel = self.luns[index].channel as usize;
        let read = self.command(channel, now, cut.start, self.read_command(count)) + sense;
        let end = self.data_out(channel, now, read, bytes, count);
        let over = if self.registers == Registers::Unbounded { read } else { end };
        let lun = &mut self.luns[index];
        lun.push(&mut self.tails[index], now, &cut, over);
        lun.busy += over - cut.start;
        Some(end)
    }

    /// `count` times `bytes` over the channel, then `time` in the array.
    #[inline]
    fn programmed(
        &mut self,
        now: Nanos,
        plane: u32,
        time: u64,
        bytes: u32,
        count: u32,
        promise: Promise,
    ) -> Programmed {
        let now = now.0.max(self.locked);
        let index = self.lun_of(plane);
        let lun = &self.luns[index];
        let (channel, before) = (lun.channel as usize, lun.free);
        let from = match self.registers {
            Registers::Unbounded => now,
            Registers::Single => now.max(before),
            Registers::Double => now.max(lun.cache),
        };
        let (entered, loaded) = self.data_in(channel, now, from, bytes, count);
        let stop = self.timing.suspend.of_program(promise);
        let (registers, cache_busy) = (self.registers, self.timing.cache_busy.0);
        let lun = &mut self.luns[index];
        let start = match registers {
            Registers::Double => before.max(loaded + cache_busy),
            Registers::Unbounded | Registers::Single => before.max(loaded),
        };
        lun.free = start + time;
        lun.cache = start;
        lun.busy += if registers == Registers::Single { lun.free - entered } else { time };
        let done = Nanos(lun.free);
        self.added(index, now, before, start, stop);
        Programmed { loaded: Nanos(loaded), done }
    }

    /// Array work of `time` without data, after a command on the channel.
    pub(crate) fn occupy(&mut self, now: Nanos, plane: u32, command: u64, time: u64, stop: Option<Nanos>) -> Nanos {
        let now = now.0.max(self.locked);
        let index = self.lun_of(plane);
        let (channel, before) = (self.luns[index].channel as usize, self.luns[index].free);
        let start = self.command(channel, now, now.max(before), command);
        let lun = &mut self.luns[index];
        lun.free = start + time;
        lun.busy += time;
        let done = Nanos(lun.free);
        self.added(index, now, before, start, stop);
        done
    }

    /// Work from `start` was added behind `before`: it stays, or begins or prolongs the tail.
    #[inline]
    fn added(&mut self, index: usize, now: u64, before: u64, start: u64, stop: Option<Nanos>) {
        let lun = &mut self.luns[index];
        match stop {
            None => drop(lun.settle()),
            Some(stop) => lun.added(&mut self.tails[index], now, before, start, stop, self.timing.suspend.limit),
        }
    }

    #[inline]
    fn read_command(&self, count: u32) -> u64 {
        let o = &self.timing.overheads;
        o.read.0 + u64::from(count - 1) * o.read_plane.0
    }

    /// Command and address cycles; when the array can begin.
    #[inline]
    fn command(&mut self, channel: usize, now: u64, at: u64, length: u64) -> u64 {
        if length == 0 {
            return at;
        }
        self.channels[channel].book(Nanos(now), Nanos(at), Nanos(length)).0 + length
    }

    /// `count` times `bytes` out of the registers, and the status after each.
    #[inline]
    fn data_out(&mut self, channel: usize, now: u64, at: u64, bytes: u32, count: u32) -> u64 {
        let status = self.timing.overheads.status.0;
        (0..count).fold(at, |at, _| self.burst::<true>(channel, now, at, bytes, (0, status)).1)
    }

    /// `count` times command and `bytes` into the registers; when that begins and ends.
    #[inline]
    fn data_in(&mut self, channel: usize, now: u64, at: u64, bytes: u32, count: u32) -> (u64, u64) {
        let (first, further) = (self.timing.overheads.program.0, self.timing.overheads.program_plane.0);
        let (entered, loaded) = self.burst::<false>(channel, now, at, bytes, (first, 0));
        (entered, (1..count).fold(loaded, |at, _| self.burst::<false>(channel, now, at, bytes, (further, 0)).1))
    }

    /// `bytes` over the channel, `OUT` of the flash or in, with `lead` before and `tail` after them; when that begins and ends.
    #[inline]
    fn burst<const OUT: bool>(
        &mut self,
        channel: usize,
        now: u64,
        at: u64,
        bytes: u32,
        (lead, tail): (u64, u64),
    ) -> (u64, u64) {
        if bytes > self.burst_bytes {
            return self.bursts(channel, now, at, bytes, (lead, tail), OUT);
        }
        let length = lead + self.transfer_time(bytes).0 + tail;
        let start = self.channels[channel].book(Nanos(now), Nanos(at), Nanos(length)).0;
        (start, start + length)
    }

    /// More than crosses the channel in one go.
    fn bursts(
        &mut self,
        channel: usize,
        now: u64,
        at: u64,
        bytes: u32,
        (lead, tail): (u64, u64),
        out: bool,
    ) -> (u64, u64) {
        if !self.rings.is_empty() {
            let end = self.by_credits(channel, now, at.saturating_add(lead), bytes, out);
            return (at, end.saturating_add(tail));
        }
        let (mut rest, mut begun, mut end) = (bytes, None, at);
        while rest > 0 {
            let some = rest.min(self.burst_bytes);
            let (first, last) = (begun.is_none(), rest == some);
            let length = if first { lead } else { 0 } + self.transfer_time(some).0 + if last { tail } else { 0 };
            let start = self.channels[channel].book(Nanos(now), Nanos(end), Nanos(length)).0;
            begun = begun.or(Some(start));
            end = start + length;
            rest -= some;
        }
        (begun.unwrap_or(at), end)
    }
}
