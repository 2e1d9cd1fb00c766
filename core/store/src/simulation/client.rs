//! A client's process: its machine, its memory, its clock, what it is doing.

use super::script::Script;
use crate::InodeId;
use crate::client::{ClientMachine, ClientMemory, DriveId, MemoryId, WorkId};
use crate::file::tests::crc;
use crate::file::{FileBuffer, FileMemory};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A clock that runs fast or slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// The true time and this clock's when it got its speed.
    since: (u64, u64),
    ppm: i64,
}

impl Clock {
    /// What it shows.
    pub fn read(&self, now: Nanos) -> Nanos {
        let passed = (now.get() - self.since.0) as i128;
        Nanos(self.since.1 + (passed + passed * i128::from(self.ppm) / 1_000_000) as u64)
    }

    /// When it will show that.
    pub fn when(&self, shown: Nanos) -> Nanos {
        if shown == Nanos::NEVER {
            return shown;
        }
        let passed = i128::from(shown.get().saturating_sub(self.since.1));
        let passed = passed * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        Nanos(self.since.0 + passed as u64 + 1)
    }

    /// It runs by so many millionths too fast from now on.
    pub fn set_drift(&mut self, now: Nanos, ppm: i64) {
        self.since = (now.get(), self.read(now).get());
        self.ppm = ppm;
    }

    /// Its first reading.
    pub fn starting_at(shown: u64) -> Self {
        Self { since: (0, shown), ppm: 0 }
    }
}

/// The callers' memory and that of open files.
#[derive(Debug, Default)]
pub struct Memory {
    pub callers: BTreeMap<WorkId, Vec<u8>>,
    own: BTreeMap<(MemoryId, u64), Vec<u8>>,
}

impl Memory {
    /// Bytes of a file's.
    pub fn bytes(&mut self, owner: MemoryId, at: FileBuffer, len: u32) -> &mut [u8] {
        let (bytes, at) = match at {
            FileBuffer::Caller(op, at) => {
                (self.callers.get_mut(&WorkId(op.0)).expect("a caller's memory"), at as usize)
            }
            FileBuffer::Own(number, at) => (self.own.get_mut(&(owner, number)).expect("reserved memory"), at as usize),
        };
        &mut bytes[at..at + len as usize]
    }
}

/// The memory of one open file.
#[derive(Debug)]
pub struct OfFile<'a> {
    memory: &'a mut Memory,
    owner: MemoryId,
}

impl FileMemory for OfFile<'_> {
    fn reserve(&mut self, number: u64, bytes: u32) {
        let before = self.memory.own.insert((self.owner, number), alloc::vec![0; bytes as usize]);
        assert!(before.is_none(), "a number is used once");
    }
    fn release(&mut self, number: u64) {
        assert!(self.memory.own.remove(&(self.owner, number)).is_some(), "what is given back was reserved");
    }
    fn copy(&mut self, from: FileBuffer, to: FileBuffer, len: u32) {
        let bytes = self.memory.bytes(self.owner, from, len).to_vec();
        self.memory.bytes(self.owner, to, len).copy_from_slice(&bytes);
    }
    fn zero(&mut self, at: FileBuffer, len: u32) {
        self.memory.bytes(self.owner, at, len).fill(0);
    }
    fn checksum(&mut self, so_far: u32, at: FileBuffer, len: u32) -> u32 {
        crc(so_far, self.memory.bytes(self.owner, at, len))
    }
}

impl ClientMemory for Memory {
    type OfFile<'a> = OfFile<'a>;

    fn of_file(&mut self, owner: MemoryId) -> OfFile<'_> {
        OfFile { memory: self, owner }
    }
    fn fill(&mut self, work: WorkId, from: &[u8]) {
        let memory = self.callers.get_mut(&work).expect("a caller's memory");
        memory[..from.len()].copy_from_slice(from);
    }
    fn take(&mut self, work: WorkId, to: &mut [u8]) {
        let memory = self.callers.get(&work).expect("a caller's memory");
        to.copy_from_slice(&memory[..to.len()]);
    }
    fn keep(&mut self, work: WorkId, bytes: Vec<u8>) {
        self.callers.insert(work, bytes);
    }
    fn release(&mut self, work: WorkId) {
        self.callers.remove(&work);
    }
    fn forget(&mut self, owner: MemoryId) {
        self.own.retain(|(of, _), _| *of != owner);
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct ClientProcess {
    /// No two processes have the same.
    pub life: u64,
    pub machine: Option<ClientMachine>,
    pub memory: Memory,
    pub clock: Clock,
    pub paused_until: Nanos,
    /// The connection to the service, and what was wished for in its greeting, which was sent then by this clock.
    pub link: Option<u64>,
    /// Which service it tries.
    pub service: usize,
    /// Which one it was referred to.
    pub referred: Option<usize>,
    pub greeting: Option<Nanos>,
    /// Drives by number: which one each is.
    pub drives: BTreeMap<DriveId, usize>,
    /// Given-up commands that drives may still carry out.
    pub doubts: BTreeMap<DriveId, u32>,
    pub script: Script,
    /// Which file each handle is of.
    pub handles: BTreeMap<u64, InodeId>,
    /// When the next tick is scheduled.
    pub tick_at: Nanos,
}

impl ClientProcess {
    pub fn new(life: u64, clock: Clock, tasks: usize) -> Self {
        Self {
            life,
            machine: None,
            memory: Memory::default(),
            clock,
            paused_until: Nanos(0),
            link: None,
            service: 0,
            referred: None,
            greeting: None,
            drives: BTreeMap::new(),
            doubts: BTreeMap::new(),
            script: Script::new(tasks),
            handles: BTreeMap::new(),
            tick_at: Nanos::NEVER,
        }
    }

    /// Whether its lease holds, as it sees it.
    pub fn holds(&self, now: Nanos) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.holds(self.clock.read(now)))
    }
}
