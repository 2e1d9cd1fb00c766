//! Random operations of one file beside a model of its bytes, as the file system exerciser fsx has them: reads and writes by calls and by shared
//! mappings, cuts and growth, copies within the file, punched holes, fsync, closing and opening again, and the page cache dropped.
//!
//! At a mismatch it says the seed, the number of the operation and the 100 operations before it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, copy_file_range, fadvise, fallocate};
use rustix::io::Errno;
use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use super::model::Random;
use super::{Mount, with_mount};
use crate::harness::{Context, Env, Outcome, ensure};

/// Bytes of the file at the most: several blocks of the store and a part of one.
const FILE_MAX_BYTES: u64 = (2 << 20) + (300 << 10);
/// Bytes of an operation at the most.
const OPERATION_MAX_BYTES: u64 = 160 << 10;
/// A page of the kernel.
const PAGE: u64 = 4096;
/// Operations that are told at a mismatch.
const TOLD_OPERATIONS: usize = 100;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    operations: u64,
    /// Whether the mount lets programs map files so that they write them.
    maps: bool,
}

pub(super) fn short(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| run(mount, Run { seed: 1, operations: 400, maps: true }))
}

pub(super) fn long(env: &Env) -> Outcome {
    with_mount(env, &["--write-back"], |_, mount| run(mount, Run { seed: 10, operations: 4000, maps: true }))?;
    with_mount(env, &["--direct-io"], |_, mount| run(mount, Run { seed: 11, operations: 4000, maps: false }))?;
    for seed in 12..15 {
        with_mount(env, &[], |_, mount| run(mount, Run { seed, operations: 5000, maps: true }))?;
    }
    Ok(())
}

/// An operation on the file. All numbers are bytes.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Read { offset: u64, len: u64 },
    MapRead { offset: u64, len: u64 },
    Write { offset: u64, len: u64, fill: u8 },
    MapWrite { offset: u64, len: u64, fill: u8 },
    Truncate { size: u64 },
    Copy { from: u64, to: u64, len: u64 },
    Punch { offset: u64, len: u64 },
    Sync,
    Reopen,
    DropPages,
}

impl Operation {
    fn random(random: &mut Random, size: u64, maps: bool) -> Self {
        let offset = random.next(FILE_MAX_BYTES);
        let len = 1 + random.next(OPERATION_MAX_BYTES.min(FILE_MAX_BYTES - offset));
        let fill = random.next(255) as u8 + 1;
        // Half of what only makes sense within the file is there.
        let inside = if size > 0 { random.next(size) } else { 0 };
        match random.next(100) {
            0..16 => Self::Read { offset: inside, len },
            16..28 if maps => Self::MapRead { offset: inside, len },
            16..28 => Self::Read { offset, len },
            28..50 => Self::Write { offset, len, fill },
            50..64 if maps => Self::MapWrite { offset, len, fill },
            50..64 => Self::Write { offset: inside, len: len.min(FILE_MAX_BYTES - inside), fill },
            64..74 => Self::Truncate { size: if random.next(2) == 0 { inside } else { offset } },
            74..80 => Self::Copy { from: inside, to: offset, len },
            80..84 => Self::Punch { offset: inside, len },
            84..90 => Self::Sync,
            90..96 => Self::Reopen,
            _ => Self::DropPages,
        }
    }
}

/// The file, and what has to be in it.
struct Exerciser {
    path: PathBuf,
    file: File,
    model: Vec<u8>,
}

/// The bytes of a write: others at each place and in each write.
fn pattern(offset: u64, len: u64, fill: u8) -> Vec<u8> {
    (offset..offset + len).map(|at| (at as u8) ^ ((at >> 8) as u8) ^ fill).collect()
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Where two ranges of bytes differ first, which were read from that offset on.
fn same(found: &[u8], expected: &[u8], offset: u64) -> Outcome {
    ensure(found.len() == expected.len(), || format!("{} bytes at {offset}, not {}", found.len(), expected.len()))?;
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => {
            let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
            let (first, found, expected) = (offset + at as u64, found[at], expected[at]);
            Err(format!("byte {first} is {found:#04x}, not {expected:#04x}, and {wrong} bytes are wrong"))
        }
    }
}

impl Exerciser {
    fn range(&self, offset: u64, len: u64) -> &[u8] {
        let end = (offset + len).min(self.model.len() as u64);
        &self.model[offset.min(end) as usize..end as usize]
    }

    /// Puts bytes into the model; what lies between its end and them is zeroes.
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[offset as usize..end].copy_from_slice(bytes);
    }

    fn run(&mut self, operation: Operation) -> Outcome {
        let done = |result: std::io::Result<()>| result.map_err(|e| e.to_string());
        match operation {
            Operation::Read { offset, len } => self.read(offset, len)?,
            Operation::MapRead { offset, len } => self.map_read(offset, len)?,
            Operation::Write { offset, len, fill } => {
                let bytes = pattern(offset, len, fill);
                done(self.file.write_all_at(&bytes, offset))?;
                self.put(offset, &bytes);
            }
            Operation::MapWrite { offset, len, fill } => self.map_write(offset, &pattern(offset, len, fill))?,
            Operation::Truncate { size } => {
                done(self.file.set_len(size))?;
                self.model.resize(size as usize, 0);
            }
            Operation::Copy { from, to, len } => self.copy(from, to, len)?,
            Operation::Punch { offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let punched = fallocate(&self.file, flags, offset, len);
                ensure(punched == Err(Errno::OPNOTSUPP), || format!("fallocate: {punched:?}"))?;
            }
            Operation::Sync => done(self.file.sync_all())?,
            Operation::Reopen => self.file = open(&self.path).map_err(|e| e.to_string())?,
            Operation::DropPages => {
                done(self.file.sync_data())?;
                fadvise(&self.file, 0, None, Advice::DontNeed).map_err(|e| format!("fadvise: {e}"))?;
            }
        }
        let size = self.file.metadata().map_err(|e| format!("fstat: {e}"))?.len();
        ensure(size == self.model.len() as u64, || format!("the file has {size} bytes, not {}", self.model.len()))
    }

    fn read(&self, offset: u64, len: u64) -> Outcome {
        let mut bytes = vec![0; len as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64).map_err(|e| e.to_string())? {
                0 => break,
                n => done += n,
            }
        }
        same(&bytes[..done], self.range(offset, len), offset)
    }

    /// A shared mapping of the file that holds these bytes; `None` where the file has none of them.
    fn map(&self, offset: u64, len: u64) -> Result<Option<Mapping>, String> {
        let len = len.min((self.model.len() as u64).saturating_sub(offset));
        if len == 0 {
            return Ok(None);
        }
        let start = offset / PAGE * PAGE;
        let file = self.file.try_clone().map_err(|e| e.to_string())?;
        let region = MmapRegion::from_file(FileOffset::new(file, start), (offset + len - start) as usize);
        Ok(Some(Mapping { region: region.map_err(|e| format!("mmap: {e}"))?, at: (offset - start) as usize, len }))
    }

    fn map_read(&self, offset: u64, len: u64) -> Outcome {
        let Some(Mapping { region, at, len }) = self.map(offset, len)? else { return Ok(()) };
        let mut bytes = vec![0; len as usize];
        region.as_volatile_slice().read_slice(&mut bytes, at).map_err(|e| e.to_string())?;
        same(&bytes, self.range(offset, len), offset)
    }

    /// The file is made long enough first: a mapping does not lengthen it.
    fn map_write(&mut self, offset: u64, bytes: &[u8]) -> Outcome {
        let end = offset + bytes.len() as u64;
        if end > self.model.len() as u64 {
            self.file.set_len(end).map_err(|e| e.to_string())?;
            self.model.resize(end as usize, 0);
        }
        let Some(Mapping { region, at, .. }) = self.map(offset, bytes.len() as u64)? else { return Ok(()) };
        region.as_volatile_slice().write_slice(bytes, at).map_err(|e| e.to_string())?;
        self.put(offset, bytes);
        Ok(())
    }

    /// Copies within the file, between ranges that have nothing in common.
    fn copy(&mut self, from: u64, to: u64, len: u64) -> Outcome {
        let len = len.min(from.abs_diff(to)).min((self.model.len() as u64).saturating_sub(from));
        let (mut source, mut target, end) = (from, to, from + len);
        while source < end {
            let left = (end - source) as usize;
            let copied = copy_file_range(&self.file, Some(&mut source), &self.file, Some(&mut target), left);
            ensure(copied.map_err(|e| format!("copy_file_range: {e}"))? > 0, || "copy_file_range ends early".into())?;
        }
        let bytes = self.range(from, len).to_vec();
        if !bytes.is_empty() {
            self.put(to, &bytes);
        }
        Ok(())
    }
}

/// A part of the file in memory.
struct Mapping {
    region: MmapRegion,
    /// Where the bytes begin in it.
    at: usize,
    len: u64,
}

fn run(mount: &Mount, Run { seed, operations, maps }: Run) -> Outcome {
    let path = mount.at(&format!("fsx{seed}"));
    let file = open(&path).context(|| path.display().to_string())?;
    let mut exerciser = Exerciser { path, file, model: Vec::new() };
    let (mut random, mut told) = (Random(seed), VecDeque::new());
    for number in 0..operations {
        let operation = Operation::random(&mut random, exerciser.model.len() as u64, maps);
        if told.len() == TOLD_OPERATIONS {
            told.pop_front();
        }
        told.push_back((number, operation));
        exerciser.run(operation).map_err(|why| {
            let told: Vec<String> =
                told.iter().map(|(number, operation)| format!("  {number}: {operation:?}")).collect();
            format!("seed {seed}, operation {number} of {operations}: {why}\nthe last operations:\n{}", told.join("\n"))
        })?;
    }
    let whole = exerciser.read(0, FILE_MAX_BYTES).map_err(|why| format!("seed {seed}, at the end: {why}"));
    whole.and_then(|()| std::fs::remove_file(&exerciser.path).context(|| "remove".into()))
}
