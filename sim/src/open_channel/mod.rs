//! A host that runs the translation layer of a drive of physical addresses, after Linux's pblk (Bjørling, Gonzalez and
//! Bonnet, "LightNVM: The Linux Open-Channel SSD Subsystem", FAST '17, section 4.2). In virtual time.
//!
//! ```text
//!  write ─▶ wait for room ─▶ ring buffer ─(write unit, next parallel unit of the open line)─▶ OpenChannel
//!                 ▲ budget       ▲ collected data, if the host copies it
//!                 └── rate limiter: the fewer free lines, the less for the foreground
//!  line = the chunk of one number on every parallel unit        collection: the closed line with the fewest valid sectors
//! ```
//! A write is complete when it is in the ring buffer. A sector that is on its way into the cells, or whose cells are not
//! complete (`mw_cunits`), is read from the host's memory; the memory that this takes beyond the ring is not limited here.
//!
//! [`Collection`] says how valid sectors get out of a victim: read and written back over the host link, as pblk does, or by
//! `move-page`. What a sector holds is kept as it would lie in its spare area (its logical sector and a stamp), so that
//! [`HostFtl::check`] can tell that nothing was lost on the way.

mod gc;
mod lines;
#[cfg(test)]
mod tests;

use lines::{LineWritePoint, Lines};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use weir_flash::{ChunkState, OpenChannel, OpenChannelConfig, OpenChannelError, Ppa, VectorError};
use weir_units::Nanos;

/// How collection moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// Read into host memory and written back: vector read, vector write.
    HostCopy,
    /// `move-page`: within the drive.
    MovePage,
}

/// What the host's translation layer is made with.
#[derive(Clone, Copy, Debug)]
pub struct HostFtlConfig {
    /// The drive.
    pub drive: OpenChannelConfig,
    /// Flash beyond the capacity, as a fraction of the capacity.
    pub over_provisioning: f64,
    /// How collection moves data.
    pub collection: Collection,
    /// Sectors of the ring buffer.
    pub buffer: u32,
    /// Collection begins at fewer free lines than this.
    pub start: u32,
    /// At so few free lines the foreground waits; at least 2, for what the ring buffer holds and what a victim does.
    pub reserve: u32,
}

/// A request of the foreground, in sectors of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// A write; else a read.
    pub write: bool,
    /// The first sector.
    pub lpn: u32,
    /// How many, at least 1.
    pub sectors: u32,
    /// Comes back with the answer.
    pub tag: u32,
}

/// Why the host's layer and its drive do not go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostFtlError {
    /// The drive.
    Drive(OpenChannelError),
    /// Too few lines are left for collection to gain anything.
    Room {
        /// Lines of the drive.
        lines: u32,
        /// Lines that the capacity, the free lines and the open ones need.
        needed: u32,
    },
    /// The ring buffer holds less than collection reads at once, or more than a line takes in.
    Buffer {
        /// Its sectors.
        sectors: u32,
        /// The least.
        least: u32,
        /// Sectors of a line.
        line: u32,
    },
}

impl std::fmt::Display for HostFtlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drive(e) => e.fmt(f),
            Self::Room { lines, needed } => {
                write!(f, "the drive has {lines} lines and would need {needed}: raise over_provisioning or lower start")
            }
            Self::Buffer { sectors, least, line } => {
                write!(f, "a ring buffer of {sectors} sectors; {least} to a line ({line} sectors) are possible")
            }
        }
    }
}

impl std::error::Error for HostFtlError {}

/// What the host has done so far, in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFtlWork {
    /// Written by the foreground.
    pub written: u64,
    /// Programmed, padding included.
    pub programmed: u64,
    /// Moved by collection.
    pub moved: u64,
    /// Lines reset.
    pub resets: u64,
}

/// The map's word of a sector that was never written, and of one whose newest data is in the ring buffer.
const NONE: u32 = u32::MAX;
const BUFFERED: u32 = u32::MAX - 1;

/// What a physical sector holds, as its spare area has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// The logical sector; [`NONE`]: padding.
    lpn: u32,
    stamp: u64,
}

/// A sector on its way to the drive.
#[derive(Clone, Copy, Debug)]
struct Entry {
    held: Held,
    /// Where collection read it; `None`: the foreground's.
    source: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request is answered.
    Answer(u32),
    /// A write unit is in the cells: of parallel unit, foreground's sectors, collected sectors by where they came from.
    Written { unit: u32, foreground: u32, collected: Vec<u32> },
    /// Collected sectors are in host memory.
    Loaded(Vec<u32>),
    /// Sectors moved within the drive, from where to where.
    Moved { unit: u32, pairs: Vec<(u32, u32)> },
    /// A line is free.
    Reset(u32),
}

/// The host's translation layer and the drive under it.
#[derive(Debug)]
pub struct HostFtl {
    config: HostFtlConfig,
    drive: OpenChannel,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    /// By logical sector.
    map: Vec<u32>,
    /// By physical sector, as [`weir_flash::AddressFormat::linear`] counts them.
    held: Vec<Held>,
    lines: Lines,
    /// Foreground writes that wait for room.
    waiting: VecDeque<HostRequest>,
    /// What is not yet sent to the drive.
    ring: VecDeque<Entry>,
    /// The newest stamp of each logical sector that is [`BUFFERED`].
    newest: HashMap<u32, u64>,
    /// Sectors that the foreground and collection have in the ring buffer or on their way into the cells.
    in_use: (u32, u32),
    /// Write units under way on each parallel unit.
    under_way: Vec<u32>,
    point: LineWritePoint,
    gc: gc::Collector,
    flushing: bool,
    work: HostFtlWork,
    stamps: u64,
}

/// Write units that a parallel unit has under way at most, of the ring buffer and of collection each: one in the cells,
/// one on its way.
const DEPTH: u32 = 2;

impl HostFtl {
    /// An empty drive.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn new(config: HostFtlConfig) -> Result<HostFtl, HostFtlError> {
        let drive = OpenChannel::new(&config.drive).map_err(HostFtlError::Drive)?;
        let chunks = drive.chunks().config();
        let good = drive.chunks().iter().filter(|c| c.state != ChunkState::Offline).count();
        let all = u64::from(drive.format().chunks()) * u64::from(chunks.blocks);
        let logical = good as f64 * f64::from(chunks.blocks) / (1.0 + config.over_provisioning);
        // A line as large as they are on average: bad chunks are missing from some.
        let line = good as f64 * f64::from(chunks.blocks) / f64::from(chunks.chunks);
        let needed = (logical / line).ceil() as u32 + config.start.max(config.reserve + 1) + 3;
        if needed > chunks.chunks {
            return Err(HostFtlError::Room { lines: chunks.chunks, needed });
        }
        // Collection's part is at least one vector read when it begins.
        let least = gc::READ as u32 * (config.start.max(config.reserve + 1) - config.reserve);
        if config.buffer < least || f64::from(config.buffer) > line {
            return Err(HostFtlError::Buffer { sectors: config.buffer, least, line: line as u32 });
        }
        Ok(HostFtl {
            map: vec![NONE; logical as usize],
            held: vec![Held { lpn: NONE, stamp: 0 }; all as usize],
            lines: Lines::new(&drive),
            under_way: vec![0; chunks.units() as usize],
            gc: gc::Collector::new(chunks.units()),
            point: LineWritePoint::default(),
            drive,
            config,
            now: Nanos(0),
            events: BinaryHeap::new(),
            sequence: 0,
            waiting: VecDeque::new(),
            ring: VecDeque::new(),
            newest: HashMap::new(),
            in_use: (0, 0),
            flushing: false,
            work: HostFtlWork::default(),
            stamps: 0,
        })
    }

    /// Sectors that the foreground is offered.
    pub fn sectors(&self) -> u32 {
        self.map.len() as u32
    }

    /// What it was made with.
    pub fn config(&self) -> &HostFtlConfig {
        &self.config
    }

    /// The drive, to look at.
    pub fn drive(&self) -> &OpenChannel {
        &self.drive
    }

    /// What was done so far.
    pub fn work(&self) -> HostFtlWork {
        self.work
    }

    /// Free lines.
    pub fn free_lines(&self) -> u32 {
        self.lines.free()
    }

    /// The time of the last event.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A request comes now, at [`now`](Self::now). Sectors beyond the capacity wrap around.
    pub fn submit(&mut self, request: HostRequest) {
        if request.write {
            self.waiting.push_back(request);
            self.pump();
        } else {
            let done = self.read(&request);
            self.at(done, Event::Answer(request.tag));
        }
    }

    /// The next answer: its time and tag. `None`: nothing is asked for any more.
    pub fn next_answer(&mut self) -> Option<(Nanos, u32)> {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            if let Event::Answer(tag) = event {
                return Some((at, tag));
            }
            self.happened(event);
            self.pump();
        }
        None
    }

    /// Pads what is in the ring buffer to write units and waits for it; collection goes on as it may.
    pub fn flush(&mut self) {
        self.flushing = true;
        self.pump();
        while self.next_answer().is_some() {}
        self.flushing = false;
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at.max(self.now), self.sequence, event)));
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Answer(_) => {}
            Event::Written { unit, foreground, collected } => {
                self.under_way[unit as usize] -= 1;
                self.in_use.0 -= foreground;
                self.in_use.1 -= collected.len() as u32;
                self.left(collected.into_iter());
            }
            Event::Loaded(sectors) => self.loaded(sectors),
            Event::Moved { unit, pairs } => self.moved(unit, pairs),
            Event::Reset(line) => self.reset_done(line),
        }
    }

    /// Whatever can go on now does.
    fn pump(&mut self) {
        self.admit();
        self.collect();
        self.send();
    }

    /// The parts of the ring buffer that the foreground and collection may use.
    fn budget(&self) -> (u32, u32) {
        let HostFtlConfig { buffer, start, reserve, .. } = self.config;
        let free = self.lines.free().clamp(reserve, start.max(reserve + 1));
        let foreground = u64::from(buffer) * u64::from(free - reserve) / u64::from(start.max(reserve + 1) - reserve);
        (foreground as u32, buffer - foreground as u32)
    }

    /// Writes that wait enter the ring buffer as far as there is room.
    fn admit(&mut self) {
        while let Some(request) = self.waiting.front().copied() {
            let room = self.budget().0;
            // One that is larger than the room goes alone.
            if room == 0 || self.in_use.0 > 0 && self.in_use.0 + request.sectors > room {
                break;
            }
            self.waiting.pop_front();
            for i in 0..request.sectors {
                let lpn = (request.lpn + i) % self.sectors();
                self.forget(lpn);
                self.stamps += 1;
                self.newest.insert(lpn, self.stamps);
                self.ring.push_back(Entry { held: Held { lpn, stamp: self.stamps }, source: None });
            }
            self.in_use.0 += request.sectors;
            self.work.written += u64::from(request.sectors);
            self.at(self.now, Event::Answer(request.tag));
        }
    }

    /// A logical sector is written anew: where it lay is not valid any more.
    fn forget(&mut self, lpn: u32) {
        let before = std::mem::replace(&mut self.map[lpn as usize], BUFFERED);
        if before < BUFFERED {
            let line = self.line_of(before);
            self.lines.invalid(line);
            self.recycle(line);
        }
    }

    /// Sends whole write units from the ring buffer to the drive.
    fn send(&mut self) {
        let unit = self.drive.chunks().config().ws_min as usize;
        while self.ring.len() >= unit || self.flushing && !self.ring.is_empty() {
            let Some(to) = self.lines.next(&self.drive, &mut self.point, &self.under_way, DEPTH) else { break };
            let count = self.ring.len().min(unit);
            let mut entries: Vec<Entry> = self.ring.drain(..count).collect();
            entries.resize(unit, Entry { held: Held { lpn: NONE, stamp: 0 }, source: None });
            self.send_unit(to, &entries, count);
        }
    }

    fn send_unit(&mut self, to: Ppa, entries: &[Entry], count: usize) {
        let list = self.unit_at(to);
        let done = accepted(self.drive.write(self.now, &list)).done;
        let first = self.drive.format().linear(to) as u32;
        for (entry, sector) in entries.iter().zip(first..) {
            self.held[sector as usize] = entry.held;
            if self.is_newest(entry) {
                self.newest.remove(&entry.held.lpn);
                self.place(entry.held.lpn, sector);
            }
        }
        let collected: Vec<u32> = entries.iter().filter_map(|e| e.source).collect();
        let unit = self.drive.format().unit_of(to.chunk);
        self.under_way[unit as usize] += 1;
        self.work.programmed += entries.len() as u64;
        let foreground = (count - collected.len()) as u32;
        self.at(done, Event::Written { unit, foreground, collected });
    }

    /// Whether nothing newer was written since.
    fn is_newest(&self, entry: &Entry) -> bool {
        match entry.source {
            _ if entry.held.lpn == NONE => false,
            Some(source) => self.map[entry.held.lpn as usize] == source,
            None => self.newest.get(&entry.held.lpn) == Some(&entry.held.stamp),
        }
    }

    /// A logical sector lies there now.
    fn place(&mut self, lpn: u32, sector: u32) {
        let before = std::mem::replace(&mut self.map[lpn as usize], sector);
        if before < BUFFERED {
            let line = self.line_of(before);
            self.lines.invalid(line);
        }
        let line = self.line_of(sector);
        self.lines.valid(line);
    }

    /// When the host has the data: sectors in its memory at once, the others by vector reads.
    fn read(&mut self, request: &HostRequest) -> Nanos {
        let on_media = |i: u32| {
            let sector = self.map[((request.lpn + i) % self.sectors()) as usize];
            let at = (sector < BUFFERED).then(|| self.ppa(sector))?;
            self.drive.chunks().readable(at).is_ok().then_some(at)
        };
        let list: Vec<Ppa> = (0..request.sectors).filter_map(on_media).collect();
        let now = self.now;
        list.chunks(64).fold(now, |done, list| done.max(accepted(self.drive.read(now, list)).done))
    }

    fn ppa(&self, sector: u32) -> Ppa {
        let blocks = self.drive.format().blocks();
        Ppa { chunk: sector / blocks, block: sector % blocks }
    }

    fn line_of(&self, sector: u32) -> u32 {
        self.ppa(sector).chunk % self.drive.chunks().config().chunks
    }

    /// The addresses of a write unit.
    fn unit_at(&self, first: Ppa) -> Vec<Ppa> {
        let unit = self.drive.chunks().config().ws_min;
        (0..unit).map(|i| Ppa { block: first.block + i, ..first }).collect()
    }

    /// States the invariants: every sector that was written is where the map says, with its newest data.
    pub fn check(&self) {
        self.drive.check();
        let mut valid = BTreeMap::new();
        for (lpn, sector) in (0u32..).zip(&self.map) {
            if *sector >= BUFFERED {
                assert_eq!(*sector == BUFFERED, self.newest.contains_key(&lpn), "sector {lpn} is in the ring buffer");
                continue;
            }
            let at = self.ppa(*sector);
            let chunk = self.drive.chunks().get(at.chunk).expect("the map names sectors of the drive");
            assert!(at.block < chunk.wp && chunk.state != ChunkState::Offline, "{lpn} lies at {at:?} of {chunk:?}");
            assert_eq!(self.held[*sector as usize].lpn, lpn, "what lies at {at:?}");
            *valid.entry(self.line_of(*sector)).or_insert(0) += 1;
        }
        self.lines.check(&valid);
    }

    /// The stamp of the newest data of a logical sector, as a reader would find it; 0: never written.
    pub fn stamp(&self, lpn: u32) -> u64 {
        match self.map[lpn as usize] {
            NONE => 0,
            BUFFERED => self.newest[&lpn],
            sector => self.held[sector as usize].stamp,
        }
    }

    /// The stamp that the next sector written gets.
    pub fn next_stamp(&self) -> u64 {
        self.stamps + 1
    }
}

/// The host keeps to the drive's rules.
fn accepted<T>(answer: Result<T, VectorError>) -> T {
    answer.unwrap_or_else(|refusal| panic!("the drive refused what its own chunks allow: {refusal}"))
}
