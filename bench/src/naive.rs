//! A flash simulator as textbooks write it, to compare with: events in a heap, maps that hash, collection page by page.

use crate::flash::DEPTH;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use weir_flash::{FlashDriveConfig, Shuffle, SplitMix64};

type Time = u64;

/// A page: (plane, block, page).
type Address = (u32, u32, u32);

#[derive(Debug)]
enum What {
    /// A request arrives.
    Arrive,
    /// A die has finished its array work on a transaction.
    Array(Box<Transaction>),
    /// A channel has finished a transfer.
    Transfer(Box<Transaction>),
}

#[derive(Debug)]
struct Event {
    at: Time,
    number: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the largest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Program,
    /// Collection: read and program again in the plane, or erase.
    Move,
    Erase,
}

#[derive(Debug)]
struct Transaction {
    kind: Kind,
    plane: u32,
    host: bool,
}

#[derive(Debug)]
struct Block {
    lpns: Vec<Option<u32>>,
    valid: Vec<bool>,
    written: u32,
}

#[derive(Debug, Default)]
struct Plane {
    blocks: Vec<Block>,
    free: VecDeque<u32>,
    open: Option<u32>,
    collecting: Option<u32>,
    busy: bool,
    queue: VecDeque<Box<Transaction>>,
}

#[derive(Debug, Default)]
struct Channel {
    busy: bool,
    queue: VecDeque<Box<Transaction>>,
}

/// The drive and its host.
#[derive(Debug)]
pub struct Naive {
    map: HashMap<u32, Address>,
    planes: Vec<Plane>,
    channels: Vec<Channel>,
    events: BinaryHeap<Event>,
    now: Time,
    number: u64,
    next_plane: u32,
    pages: u32,
    units: u32,
    start: u32,
    times: [Time; 4],
    rng: SplitMix64,
    completed: u64,
    written: u64,
    programmed: u64,
}

impl Naive {
    /// The same drive after the same long random writing.
    pub fn new(config: &FlashDriveConfig, units: u32) -> Self {
        let g = &config.geometry;
        let block = || Block { lpns: vec![None; g.pages as usize], valid: vec![false; g.pages as usize], written: 0 };
        let plane = || Plane {
            blocks: (0..g.blocks).map(|_| block()).collect(),
            free: (0..g.blocks).collect(),
            ..Plane::default()
        };
        let mut drive = Naive {
            map: HashMap::new(),
            planes: (0..g.channels * g.ways * g.planes).map(|_| plane()).collect(),
            channels: (0..g.channels).map(|_| Channel::default()).collect(),
            events: BinaryHeap::new(),
            now: 0,
            number: 0,
            next_plane: 0,
            pages: g.pages,
            units,
            start: config.ftl.gc.start,
            times: [
                config.timing.read[0].0,
                config.timing.program[0].0,
                config.timing.erase.0,
                config.timing.channel.time(4096).0,
            ],
            rng: SplitMix64::new(7),
            completed: 0,
            written: 0,
            programmed: 0,
        };
        // Filled once in random order and written over once more, without time.
        let shuffle = Shuffle::new(units, 3);
        (0..units).for_each(|i| drive.place(shuffle.get(i), &mut Vec::new()));
        for _ in 0..units {
            let lpn = drive.rng.below(units);
            drive.place(lpn, &mut Vec::new());
        }
        (0..DEPTH).for_each(|_| drive.after(0, What::Arrive));
        drive
    }

    /// Counters from zero.
    pub fn reset(&mut self) {
        (self.written, self.programmed) = (0, 0);
    }

    /// Pages programmed for each that the host wrote.
    pub fn write_amplification(&self) -> f64 {
        self.programmed as f64 / self.written.max(1) as f64
    }

    /// Runs until so many requests more are complete.
    pub fn run(&mut self, requests: u64) -> u64 {
        let until = self.completed + requests;
        while self.completed < until {
            let Some(event) = self.events.pop() else { break };
            self.now = event.at;
            match event.what {
                What::Arrive => self.arrive(),
                What::Array(t) => self.array_done(t),
                What::Transfer(t) => self.transfer_done(t),
            }
        }
        requests
    }

    fn after(&mut self, time: Time, what: What) {
        self.number += 1;
        self.events.push(Event { at: self.now + time, number: self.number, what });
    }

    fn arrive(&mut self) {
        let lpn = self.rng.below(self.units);
        if self.rng.next_u64() & 1 == 0 {
            let plane = self.map.get(&lpn).map_or(0, |a| a.0);
            self.ask_array(Box::new(Transaction { kind: Kind::Read, plane, host: true }));
            return;
        }
        let mut work = Vec::new();
        self.written += 1;
        self.place(lpn, &mut work);
        let plane = self.map[&lpn].0;
        for kind in work {
            self.ask_array(Box::new(Transaction { kind, plane, host: false }));
        }
        self.ask_channel(Box::new(Transaction { kind: Kind::Program, plane, host: true }));
    }

    fn ask_array(&mut self, transaction: Box<Transaction>) {
        let plane = &mut self.planes[transaction.plane as usize];
        plane.queue.push_back(transaction);
        let index = plane.queue.back().map_or(0, |t| t.plane);
        self.start_array(index);
    }

    fn start_array(&mut self, index: u32) {
        let [read, program, erase, _] = self.times;
        let plane = &mut self.planes[index as usize];
        if plane.busy {
            return;
        }
        let Some(transaction) = plane.queue.pop_front() else { return };
        plane.busy = true;
        let time = match transaction.kind {
            Kind::Read => read,
            Kind::Program => program,
            Kind::Move => read + program,
            Kind::Erase => erase,
        };
        self.after(time, What::Array(transaction));
    }

    fn ask_channel(&mut self, transaction: Box<Transaction>) {
        let index = transaction.plane as usize % self.channels.len();
        self.channels[index].queue.push_back(transaction);
        self.start_channel(index);
    }

    fn start_channel(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        if channel.busy {
            return;
        }
        let Some(transaction) = channel.queue.pop_front() else { return };
        channel.busy = true;
        self.after(self.times[3], What::Transfer(transaction));
    }

    fn array_done(&mut self, transaction: Box<Transaction>) {
        let index = transaction.plane;
        self.planes[index as usize].busy = false;
        match (transaction.kind, transaction.host) {
            (Kind::Read, true) => self.ask_channel(transaction),
            (_, true) => self.complete(),
            _ => {}
        }
        self.start_array(index);
    }

    fn transfer_done(&mut self, transaction: Box<Transaction>) {
        let index = transaction.plane as usize % self.channels.len();
        self.channels[index].busy = false;
        match transaction.kind {
            Kind::Program => self.ask_array(transaction),
            _ => self.complete(),
        }
        self.start_channel(index);
    }

    fn complete(&mut self) {
        self.completed += 1;
        self.after(0, What::Arrive);
    }

    /// Writes a unit to the next plane; what collection does for it goes to `work`.
    fn place(&mut self, lpn: u32, work: &mut Vec<Kind>) {
        let plane = self.next_plane;
        self.next_plane = (plane + 1) % self.planes.len() as u32;
        let full = self.planes[plane as usize].open.is_none();
        if full {
            while self.planes[plane as usize].free.len() as u32 <= self.start {
                self.collect(plane, work);
            }
        }
        self.append(plane, lpn, false);
    }

    fn append(&mut self, index: u32, lpn: u32, moved: bool) {
        let plane = &mut self.planes[index as usize];
        let open = if moved { &mut plane.collecting } else { &mut plane.open };
        let block = match *open {
            Some(block) => block,
            None => plane.free.pop_front().expect("collection keeps blocks free"),
        };
        let b = &mut plane.blocks[block as usize];
        let page = b.written;
        b.lpns[page as usize] = Some(lpn);
        b.valid[page as usize] = true;
        b.written += 1;
        *open = (b.written < self.pages).then_some(block);
        self.programmed += 1;
        if let Some((p, b, page)) = self.map.insert(lpn, (index, block, page)) {
            self.planes[p as usize].blocks[b as usize].valid[page as usize] = false;
        }
    }

    fn collect(&mut self, index: u32, work: &mut Vec<Kind>) {
        let plane = &self.planes[index as usize];
        let full = |b: &usize| plane.blocks[*b].written == self.pages;
        let valid = |b: &usize| plane.blocks[*b].valid.iter().filter(|v| **v).count();
        let victim = (0..plane.blocks.len()).filter(full).min_by_key(valid).expect("a full block");
        for page in 0..self.pages as usize {
            let block = &self.planes[index as usize].blocks[victim];
            if block.valid[page] {
                let lpn = block.lpns[page].expect("a valid page names its unit");
                self.append(index, lpn, true);
                work.push(Kind::Move);
            }
        }
        let plane = &mut self.planes[index as usize];
        let block = &mut plane.blocks[victim];
        block.lpns.fill(None);
        block.valid.fill(false);
        block.written = 0;
        plane.free.push_back(victim as u32);
        work.push(Kind::Erase);
    }
}
