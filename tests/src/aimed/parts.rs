//! A region of journals as it lies in a worker's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Pid;
use weir_journal::{HEADER_BYTES, JournalMemory, JournalRegion, JournalShape, MAGIC, QueueKind};

use crate::harness::Context;
use crate::tracee::Place;

/// Words of a queue's part: `docs/reference/formats.md`.
pub(super) const MERGE: u64 = 0;
pub(super) const USED: u64 = 1;
const START: u64 = 2;
/// Words before the entries.
pub(super) const HEAD: u64 = 8;

/// See the [module](self).
pub(super) struct Parts {
    memory: File,
    maps: String,
    kind: QueueKind,
    /// The first queue's part, and bytes of each.
    first: u64,
    stride: u64,
}

impl Parts {
    /// The only region that the worker has mapped.
    pub(super) fn of(worker: Pid, kind: QueueKind) -> Result<Self, String> {
        let pid = worker.as_raw_nonzero();
        let (path, maps) = (format!("/proc/{pid}/mem"), format!("/proc/{pid}/maps"));
        let memory = File::open(&path).context(|| path.clone())?;
        let maps = std::fs::read_to_string(&maps).context(|| maps.clone())?;
        let mut parts = Self { memory, maps, kind, first: 0, stride: 0 };
        let (region, _) = parts.mapped("/memfd:weir-journal")?;
        let magic = parts.load(region)?;
        if magic != MAGIC {
            return Err(format!("no journal: {magic:#x}"));
        }
        let queues = parts.load(region + 24)?;
        let shape = JournalShape { kind, queues: queues as u16, size: (queues >> 16) as u16 };
        parts.first = region + HEADER_BYTES;
        parts.stride = (shape.bytes() - HEADER_BYTES) / u64::from(shape.queues);
        Ok(parts)
    }

    /// Where the worker has mapped the only file of that name, from its beginning on, and how many bytes.
    pub(super) fn mapped(&self, name: &str) -> Result<(u64, u64), String> {
        let lines: Vec<_> = self.maps.lines().filter(|line| line.contains(name)).collect();
        let parse = |line: &str| {
            let (start, rest) = line.split_once('-')?;
            let mut fields = rest.split_whitespace();
            let (end, offset) = (fields.next()?, fields.nth(1)?);
            let hex = |text| u64::from_str_radix(text, 16).ok();
            (hex(offset)? == 0).then_some(())?;
            Some((hex(start)?, hex(end)? - hex(start)?))
        };
        match lines[..] {
            [line] => parse(line).ok_or_else(|| format!("not as expected: {line}")),
            _ => Err(format!("{name} is mapped {} times: {lines:#?}", lines.len())),
        }
    }

    /// A word of a queue's part.
    pub(super) fn word(&self, queue: u16, word: u64) -> Place {
        Place { address: self.first + u64::from(queue) * self.stride + 8 * word, len: 8 }
    }

    /// A queue's size and generation, as its start word has them.
    pub(super) fn start(&self, queue: u16) -> Result<(u16, u32), String> {
        let start = self.load(self.word(queue, START).address)?;
        Ok(((start >> 16) as u16, (start >> 32) as u32))
    }

    /// A copy of a queue's part, as the only one of a region.
    pub(super) fn copy(&self, queue: u16) -> Result<JournalRegion<Rc<Copied>>, String> {
        let (size, _) = self.start(queue)?;
        let shape = JournalShape { kind: self.kind, queues: 1, size };
        let words = Rc::new(Copied((0..shape.bytes() / 8).map(|_| AtomicU64::new(0)).collect()));
        let region = JournalRegion::open(words.clone(), shape).map_err(|e| format!("queue {queue}: {e}"))?;
        let mut part = vec![0; (shape.bytes() - HEADER_BYTES) as usize];
        self.read(self.word(queue, 0).address, &mut part)?;
        for (word, bytes) in words.0[(HEADER_BYTES / 8) as usize..].iter().zip(part.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        Ok(region)
    }

    pub(super) fn load(&self, address: u64) -> Result<u64, String> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn load16(&self, address: u64) -> Result<u16, String> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), String> {
        self.memory.read_exact_at(into, address).context(|| format!("the worker's memory at {address:#x}"))
    }
}

/// Words that nobody else has.
#[derive(Debug)]
pub(super) struct Copied(Vec<AtomicU64>);

impl JournalMemory for Copied {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at].load(order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.0[at].store(value, order);
    }
}
