//! The same random operations on a mounted store and on a folder of tmpfs: what they answer and what is there afterwards is the same.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Mount, with_mount};
use crate::harness::{Context, Env, Outcome, ensure};

/// Names in the folder, so that they meet often.
const NAMES: u64 = 6;
/// Bytes of a file at the most: beyond two blocks of the store.
const LARGEST: u64 = 3 << 20;

pub(super) fn short(env: &Env) -> Outcome {
    with_mount(env, &[], |_, mount| run(env, mount, 1, 1500))?;
    with_mount(env, &["--direct-io"], |_, mount| run(env, mount, 2, 500))
}

pub(super) fn long(env: &Env) -> Outcome {
    for seed in 10..20 {
        with_mount(env, &[], |_, mount| run(env, mount, seed, 8000))?;
    }
    Ok(())
}

/// A folder of memory, away when the test ends.
struct Model(PathBuf);

impl Drop for Model {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One of the two sides: its folder and the files that are open, by their number.
struct Side {
    dir: PathBuf,
    open: BTreeMap<u64, File>,
}

/// An operation. Files are named, or open by a number; bytes are of a seed.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Open { number: u64, name: u64, creates: bool, cuts: bool },
    Close { number: u64 },
    Write { number: u64, offset: u64, len: u64, seed: u64 },
    Read { number: u64, offset: u64, len: u64 },
    Truncate { number: u64, size: u64 },
    Sync { number: u64 },
    Rename { from: u64, to: u64 },
    Remove { name: u64 },
    MakeDirectory { name: u64 },
    RemoveDirectory { name: u64 },
    Stat { name: u64 },
    List,
}

/// Numbers of a seed.
pub(super) struct Random(pub u64);

impl Random {
    /// A number below that.
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }

    /// Often small, or about the size of a page, a sector or a block.
    fn offset(&mut self) -> u64 {
        let around = [0, 2048, 4096, 65_536, 1 << 20, 2 << 20][self.next(6) as usize];
        (around + self.next(9000)).saturating_sub(4500).min(LARGEST)
    }

    fn operation(&mut self) -> Operation {
        let (number, name, offset) = (self.next(4), self.next(NAMES), self.offset());
        let len = match self.next(4) {
            0 => 1 + self.next(100),
            1 => 4096,
            2 => 1 + self.next(20_000),
            _ => 1 + self.next(300_000),
        };
        match self.next(100) {
            0..14 => Operation::Open { number, name, creates: self.next(4) > 0, cuts: self.next(4) == 0 },
            14..20 => Operation::Close { number },
            20..50 => Operation::Write { number, offset, len, seed: self.next(1 << 30) },
            50..70 => Operation::Read { number, offset, len },
            70..77 => Operation::Truncate { number, size: offset },
            77..81 => Operation::Sync { number },
            81..85 => Operation::Rename { from: name, to: self.next(NAMES) },
            85..89 => Operation::Remove { name },
            89..91 => Operation::MakeDirectory { name },
            91..93 => Operation::RemoveDirectory { name },
            93..98 => Operation::Stat { name },
            _ => Operation::List,
        }
    }
}

fn bytes(len: u64, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len.div_ceil(4)).flat_map(|_| (random.next(1 << 31) as u32).to_le_bytes()).take(len as usize).collect()
}

impl Side {
    fn path(&self, name: u64) -> PathBuf {
        self.dir.join(format!("n{name}"))
    }

    /// What an operation comes to, in words that are the same on both sides.
    fn run(&mut self, operation: Operation) -> String {
        let said = |result: std::io::Result<String>| match result {
            Ok(text) => text,
            Err(e) => format!("error {:?}", e.raw_os_error()),
        };
        let done = |result: std::io::Result<()>| said(result.map(|()| "done".into()));
        let open = |number: u64| self.open.get(&number);
        match operation {
            Operation::Open { number, name, creates, cuts } => {
                let mut how = OpenOptions::new();
                let file = how.read(true).write(true).create(creates).truncate(cuts).open(self.path(name));
                self.open.remove(&number);
                done(file.map(|file| drop(self.open.insert(number, file))))
            }
            Operation::Close { number } => {
                self.open.remove(&number);
                "closed".into()
            }
            Operation::Write { number, offset, len, seed } => match open(number) {
                Some(file) => done(file.write_all_at(&bytes(len, seed), offset)),
                None => "not open".into(),
            },
            Operation::Read { number, offset, len } => match open(number) {
                Some(file) => said(read_whole(file, offset, len)),
                None => "not open".into(),
            },
            Operation::Truncate { number, size } => {
                open(number).map_or("not open".into(), |file| done(file.set_len(size)))
            }
            Operation::Sync { number } => open(number).map_or("not open".into(), |file| done(file.sync_all())),
            Operation::Rename { from, to } => done(fs::rename(self.path(from), self.path(to))),
            Operation::Remove { name } => done(fs::remove_file(self.path(name))),
            Operation::MakeDirectory { name } => done(fs::create_dir(self.path(name))),
            Operation::RemoveDirectory { name } => done(fs::remove_dir(self.path(name))),
            Operation::Stat { name } => said(fs::metadata(self.path(name)).map(|meta| {
                let size = if meta.is_dir() { 0 } else { meta.len() };
                format!("{size} bytes, mode {:o}", meta.mode())
            })),
            Operation::List => said(self.listed().map(|names| names.join(" "))),
        }
    }

    fn listed(&self) -> std::io::Result<Vec<String>> {
        let names = fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<std::io::Result<Vec<String>>>()?;
        names.sort();
        Ok(names)
    }
}

/// All bytes there, as their number and a sum.
fn read_whole(file: &File, offset: u64, len: u64) -> std::io::Result<String> {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(format!("{done} bytes, {:08x}", weir_sys::crc::crc32c_append(0, &bytes[..done])))
}

/// Runs so many operations of a seed in a folder of the mount, and compares all that is there at the end.
pub(super) fn run(env: &Env, mount: &Mount, seed: u64, operations: u64) -> Outcome {
    let model = Model(Path::new("/dev/shm").join(format!("weir-model-{}-{seed}", std::process::id())));
    fs::create_dir_all(&model.0).context(|| model.0.display().to_string())?;
    let dir = mount.at(&format!("model{seed}"));
    fs::create_dir(&dir).context(|| dir.display().to_string())?;
    let mut expected = Side { dir: model.0.clone(), open: BTreeMap::new() };
    let mut found = Side { dir: dir.clone(), open: BTreeMap::new() };
    let mut random = Random(seed);
    for at in 0..operations {
        let operation = random.operation();
        let (expected, found) = (expected.run(operation), found.run(operation));
        ensure(found == expected, || {
            format!("seed {seed}, operation {at}, {operation:?}: {found} on the mount, {expected} on tmpfs")
        })?;
    }
    (expected.open, found.open) = (BTreeMap::new(), BTreeMap::new());
    let script = format!("diff -r '{}' '{}'", model.0.display(), dir.display());
    super::bash(&env.folder()?, &script, 60).map(drop)?;
    fs::remove_dir_all(&dir).context(|| dir.display().to_string())
}
