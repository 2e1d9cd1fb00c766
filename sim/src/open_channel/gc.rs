//! Collection: valid sectors leave the closed line that has the fewest, over the host link or inside the drive.

use super::lines::LineWritePoint;
use super::{BUFFERED, Collection, DEPTH, Entry, Event, HostFtl, NONE, accepted};
use std::collections::VecDeque;
use weir_flash::Ppa;

/// What is being collected.
#[derive(Debug)]
pub(super) struct Collector {
    /// Sectors that the victim still has to give, in the order in which they are read: one list, or one a parallel unit.
    todo: Vec<VecDeque<u32>>,
    victim: Option<u32>,
    /// Where `move-page` puts them: a line of its own, so that they stay on their parallel unit.
    point: LineWritePoint,
    /// Moves under way on each parallel unit, and the one to look at first.
    under_way: Vec<u32>,
    next: usize,
    /// Lines that are being reset.
    resetting: u32,
}

/// Sectors of a vector read.
pub(super) const READ: usize = 64;

impl Collector {
    pub fn new(units: u32) -> Collector {
        Collector {
            todo: vec![VecDeque::new(); units as usize],
            victim: None,
            point: LineWritePoint::default(),
            under_way: vec![0; units as usize],
            next: 0,
            resetting: 0,
        }
    }
}

impl HostFtl {
    /// Goes on collecting while there are too few free lines.
    pub(super) fn collect(&mut self) {
        loop {
            if self.gc.victim.is_none() && !self.begin() {
                return;
            }
            let went_on = match self.config.collection {
                Collection::HostCopy => self.load(),
                Collection::MovePage => self.move_some(),
            };
            if !went_on {
                return;
            }
        }
    }

    /// Chooses a victim and lists its valid sectors.
    fn begin(&mut self) -> bool {
        if self.lines.free() + self.gc.resetting >= self.config.start {
            return false;
        }
        let Some(line) = self.lines.victim() else { return false };
        let config = *self.drive.chunks().config();
        let one = self.config.collection == Collection::HostCopy;
        for row in 0..config.blocks / config.ws_min {
            for unit in 0..config.units() {
                let chunk = unit * config.chunks + line;
                let first = chunk * config.blocks + row * config.ws_min;
                let valid: Vec<u32> = (first..first + config.ws_min).filter(|sector| self.is_valid(*sector)).collect();
                self.gc.todo[if one { 0 } else { unit as usize }].extend(valid);
            }
        }
        self.gc.victim = Some(line);
        self.recycle(line);
        true
    }

    fn is_valid(&self, sector: u32) -> bool {
        let lpn = self.held[sector as usize].lpn;
        lpn != NONE && self.map[lpn as usize] == sector
    }

    /// The victim has nothing more to give.
    fn drained(&mut self) {
        if let Some(line) = self.gc.victim.take() {
            self.recycle(line);
        }
    }

    /// A line that was collected and whose sectors are all elsewhere is reset.
    pub(super) fn recycle(&mut self, line: u32) {
        let collecting = self.gc.victim == Some(line) && self.gc.todo.iter().any(|list| !list.is_empty());
        if collecting || !self.lines.is_empty(line) {
            return;
        }
        if self.gc.victim == Some(line) {
            self.gc.victim = None;
        }
        let config = *self.drive.chunks().config();
        let chunks = (0..config.units()).map(|unit| unit * config.chunks + line);
        let written = |chunk: &u32| self.drive.chunks().get(*chunk).is_some_and(|c| c.wp > 0);
        let chunks: Vec<u32> = chunks.filter(written).collect();
        // The reset leaves the state of a victim to the event that follows it.
        self.lines.leaving(line);
        self.gc.resetting += 1;
        self.work.resets += 1;
        let done = accepted(self.drive.reset(self.now, &chunks)).done;
        self.at(done, Event::Reset(line));
    }

    /// A line is free again.
    pub(super) fn reset_done(&mut self, line: u32) {
        self.gc.resetting -= 1;
        self.lines.left(line);
        self.lines.put(line);
    }

    /// Reads the victim's next sectors into host memory, as far as the ring buffer has room for them.
    fn load(&mut self) -> bool {
        let room = self.budget().1.saturating_sub(self.in_use.1) as usize;
        if room < READ {
            return false;
        }
        let mut sectors = Vec::with_capacity(READ);
        while sectors.len() < READ {
            let Some(sector) = self.gc.todo[0].pop_front() else { break };
            // The foreground may have written it anew since.
            if self.is_valid(sector) {
                sectors.push(sector);
            }
        }
        if sectors.is_empty() {
            self.drained();
            return true;
        }
        let list: Vec<Ppa> = sectors.iter().map(|s| self.ppa(*s)).collect();
        sectors.iter().for_each(|s| self.lines.leaving(self.line_of(*s)));
        self.in_use.1 += sectors.len() as u32;
        let done = accepted(self.drive.read(self.now, &list)).done;
        self.at(done, Event::Loaded(sectors));
        true
    }

    /// Collected sectors enter the ring buffer.
    pub(super) fn loaded(&mut self, sectors: Vec<u32>) {
        self.work.moved += sectors.len() as u64;
        for sector in sectors {
            self.ring.push_back(Entry { held: self.held[sector as usize], source: Some(sector) });
        }
    }

    /// Collected sectors are in the cells elsewhere.
    pub(super) fn left(&mut self, sectors: impl Iterator<Item = u32>) {
        for sector in sectors {
            let line = self.line_of(sector);
            self.lines.left(line);
            self.recycle(line);
        }
    }

    /// Moves a write unit of the victim's sectors on some parallel unit; whether there was one to move, and room for it.
    fn move_some(&mut self) -> bool {
        let count = self.drive.chunks().config().ws_min as usize;
        if self.budget().1 < self.in_use.1 + count as u32 {
            return false;
        }
        let units = self.gc.todo.len();
        for i in 0..units {
            let unit = (self.gc.next + i) % units;
            if self.gc.under_way[unit] >= DEPTH || !self.gather(unit, count) {
                continue;
            }
            let Some(to) = self.destination(unit as u32) else { return false };
            self.gc.next = (unit + 1) % units;
            let sectors = self.gc.todo[unit].drain(..count).collect();
            self.start_move(sectors, to);
            return true;
        }
        if self.gc.todo.iter().any(|list| list.len() >= count) {
            return false;
        }
        if self.gc.todo.iter().all(VecDeque::is_empty) {
            self.drained();
            return true;
        }
        self.move_rest()
    }

    /// Whether a parallel unit has `count` sectors to move; what the foreground has written anew since is taken off before
    /// them.
    fn gather(&mut self, unit: usize, count: usize) -> bool {
        let mut list = std::mem::take(&mut self.gc.todo[unit]);
        let mut i = 0;
        while i < count.min(list.len()) {
            if self.is_valid(list[i]) {
                i += 1;
            } else {
                list.remove(i);
            }
        }
        self.gc.todo[unit] = list;
        i == count
    }

    /// What is left is less than a write unit on each parallel unit: put together, and padded at last.
    fn move_rest(&mut self) -> bool {
        let Some(to) = self.destination(0) else { return false };
        let count = self.drive.chunks().config().ws_min as usize;
        let mut sectors = Vec::with_capacity(count);
        for list in &mut self.gc.todo {
            let take = list.len().min(count - sectors.len());
            sectors.extend(list.drain(..take));
        }
        self.start_move(sectors, to);
        true
    }

    /// Room in collection's line: on this parallel unit if it can be.
    fn destination(&mut self, unit: u32) -> Option<Ppa> {
        loop {
            let line = self.lines.open(&mut self.gc.point)?;
            let units = self.gc.todo.len() as u32;
            let at = |i: u32| self.lines.on_unit(&self.drive, line, (unit + i) % units);
            if let Some(to) = (0..units).find_map(at) {
                return Some(to);
            }
            self.lines.close(&mut self.gc.point);
        }
    }

    fn start_move(&mut self, sectors: Vec<u32>, to: Ppa) {
        let list = self.unit_at(to);
        let mut from: Vec<Ppa> = sectors.iter().map(|s| self.ppa(*s)).collect();
        let last = from[from.len() - 1];
        from.resize(list.len(), last);
        let done = accepted(self.drive.move_pages(self.now, &from, &list)).done;
        let first = self.drive.format().linear(to) as u32;
        // Until it is there nobody is told; padding is nobody's.
        (first..first + list.len() as u32).for_each(|s| self.held[s as usize].lpn = NONE);
        for sector in &sectors {
            self.lines.leaving(self.line_of(*sector));
        }
        self.in_use.1 += sectors.len() as u32;
        self.work.programmed += list.len() as u64;
        self.work.moved += sectors.len() as u64;
        let unit = self.drive.format().unit_of(to.chunk);
        self.gc.under_way[unit as usize] += 1;
        self.at(done, Event::Moved { unit, pairs: sectors.into_iter().zip(first..).collect() });
    }

    /// Sectors have arrived: the map follows, where nothing newer was written meanwhile.
    pub(super) fn moved(&mut self, unit: u32, pairs: Vec<(u32, u32)>) {
        self.gc.under_way[unit as usize] -= 1;
        self.in_use.1 -= pairs.len() as u32;
        for (from, to) in &pairs {
            let held = self.held[*from as usize];
            self.held[*to as usize] = held;
            if held.lpn != NONE && self.map[held.lpn as usize] == *from {
                self.place(held.lpn, *to);
            }
        }
        debug_assert!(pairs.iter().all(|(_, to)| *to < BUFFERED), "the map has words for all sectors");
        self.left(pairs.into_iter().map(|(from, _)| from));
    }
}
