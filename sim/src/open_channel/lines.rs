//! Lines: the chunks of one number on every parallel unit, which are written, collected and reset together.

use std::collections::{BTreeMap, VecDeque};
use weir_flash::{ChunkState, OpenChannel, Ppa};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Closed,
    /// Being collected, or reset.
    Victim,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    state: State,
    /// Sectors that the map names.
    valid: u32,
    /// Sectors that were read or are being moved, and are not yet in the cells elsewhere.
    leaving: u32,
}

/// All lines of a drive.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    free: VecDeque<u32>,
}

/// Where the next write unit goes.
#[derive(Debug, Default)]
pub(super) struct LineWritePoint {
    pub line: Option<u32>,
    /// The parallel unit to try first.
    next: u32,
}

impl Lines {
    /// All free.
    pub fn new(drive: &OpenChannel) -> Lines {
        let count = drive.chunks().config().chunks;
        let free = Line { state: State::Free, valid: 0, leaving: 0 };
        Lines { lines: vec![free; count as usize], free: (0..count).collect() }
    }

    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// The next write unit of the open line, on a parallel unit that has fewer than `depth` under way; a new line when that is
    /// full. `None`: they all have, or no line is free.
    pub fn next(
        &mut self,
        drive: &OpenChannel,
        point: &mut LineWritePoint,
        under_way: &[u32],
        depth: u32,
    ) -> Option<Ppa> {
        loop {
            let line = self.open(point)?;
            let units = under_way.len() as u32;
            let mut full = true;
            for i in 0..units {
                let unit = (point.next + i) % units;
                let Some(at) = self.on_unit(drive, line, unit) else { continue };
                full = false;
                if under_way[unit as usize] < depth {
                    point.next = (unit + 1) % units;
                    return Some(at);
                }
            }
            if !full {
                return None;
            }
            self.close(point);
        }
    }

    /// The line that a point writes, a free one if it has none.
    pub fn open(&mut self, point: &mut LineWritePoint) -> Option<u32> {
        if point.line.is_none() {
            point.line = self.free.pop_front();
            if let Some(line) = point.line {
                self.lines[line as usize].state = State::Open;
            }
        }
        point.line
    }

    /// The line of a point is full.
    pub fn close(&mut self, point: &mut LineWritePoint) {
        if let Some(line) = point.line.take() {
            self.lines[line as usize].state = State::Closed;
        }
    }

    /// The write pointer of a line on a parallel unit; `None`: nothing more can be written there.
    pub fn on_unit(&self, drive: &OpenChannel, line: u32, unit: u32) -> Option<Ppa> {
        let number = unit * drive.chunks().config().chunks + line;
        let chunk = drive.chunks().get(number)?;
        matches!(chunk.state, ChunkState::Free | ChunkState::Open).then_some(Ppa { chunk: number, block: chunk.wp })
    }

    /// The closed line with the fewest valid sectors becomes a victim.
    pub fn victim(&mut self) -> Option<u32> {
        let closed = self.lines.iter().zip(0..).filter(|(line, _)| line.state == State::Closed);
        let (_, line) = closed.min_by_key(|(line, number)| (line.valid, *number))?;
        self.lines[line as usize].state = State::Victim;
        Some(line)
    }

    /// Whether a victim is empty, so that it can be reset; it then must be.
    pub fn is_empty(&mut self, line: u32) -> bool {
        let l = &self.lines[line as usize];
        l.state == State::Victim && l.valid == 0 && l.leaving == 0
    }

    pub fn leaving(&mut self, line: u32) {
        self.lines[line as usize].leaving += 1;
    }

    pub fn left(&mut self, line: u32) {
        self.lines[line as usize].leaving -= 1;
    }

    pub fn valid(&mut self, line: u32) {
        self.lines[line as usize].valid += 1;
    }

    pub fn invalid(&mut self, line: u32) {
        self.lines[line as usize].valid -= 1;
    }

    /// A line was reset.
    pub fn put(&mut self, line: u32) {
        self.lines[line as usize].state = State::Free;
        self.free.push_back(line);
    }

    /// States the invariants; `valid`: what the map says.
    pub fn check(&self, valid: &BTreeMap<u32, u32>) {
        for (line, number) in self.lines.iter().zip(0..) {
            assert_eq!(line.valid, valid.get(&number).copied().unwrap_or(0), "valid sectors of line {number}");
            assert!(line.state != State::Free || line.valid + line.leaving == 0, "free line {number}: {line:?}");
        }
    }
}
