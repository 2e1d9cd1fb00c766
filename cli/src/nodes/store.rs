//! A store of files on drives of three kinds, and drives of the same kinds beside it: what the reproductions of papers/004 measure.

use super::client::{bench, fs_bench, fs_remove};
use super::process::inside;
use super::process::{ConfiguredNode, Scratch};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use weir_sim::reproduce::{StoreAccess, StoreDrive, StoreLoad, StoreSeen, StoreSort, Stores};

/// Bytes of each drive: its blocks are the smaller for it, its dies and times are not. There is room for the file that is read, for the one that is
/// written, and for the one before it, which is not free at once.
const CAPACITY: u64 = 1536 << 20;
/// Of those, what the first write leaves.
const SPARE: u64 = 64 << 20;
/// Bytes of the file that is read, and of what is read of a drive alone.
const FILE: u64 = 256 << 20;
/// How a file is filled.
const FILL: u64 = 1 << 20;
/// Operations before those that count.
const WARM_UP: &str = "16";
/// A local drive is filled for so long, which is several times what it takes.
const LOCAL_FILL: u64 = 300_000_000;

/// Runs of nothing before it is given up.
const LOCAL_ATTEMPTS: u32 = 4;

const NQN: &str = "nqn.2026-11.io.weir:reproduce:";

const DRIVES: [StoreDrive; 3] = [StoreDrive::Dram, StoreDrive::Flash, StoreDrive::Optane];

fn class(drive: StoreDrive) -> &'static str {
    match drive {
        StoreDrive::Dram => "dram",
        StoreDrive::Flash => "flash",
        StoreDrive::Optane => "optane",
    }
}

fn kind(drive: StoreDrive) -> &'static str {
    match drive {
        StoreDrive::Dram => "kind = \"ram\"",
        StoreDrive::Flash => "profile = \"960pro\"",
        StoreDrive::Optane => "profile = \"optane-p4800x\"",
    }
}

/// The configuration: of each kind a drive in the store, and one that is not.
fn text(folder: &Path, port: u16) -> String {
    let mut text = format!(
        "[node]\nname = \"reproduce\"\napi = \"unix:{}\"\ncores = [0]\nkeeper = false\n\
         [[tenant]]\nname = \"store\"\nclass = \"high\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n\
         [store]\nmeta = \"redb:{}\"\nlisten = \"{}\"\nclasses = [\"dram\", \"optane\", \"flash\"]\n",
        inside(folder, "api.sock"),
        inside(folder, "store.redb"),
        address(folder),
    );
    for drive in DRIVES {
        for name in [class(drive).to_owned(), raw_name(drive)] {
            text += &format!(
                "[[device]]\nname = \"{name}\"\n{}\ncapacity = {CAPACITY}\nmedia = \"ram\"\nblock_size = 512\n\
                 nqn = \"{NQN}{name}\"\n[[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n",
                kind(drive)
            );
        }
        let class = class(drive);
        text += &format!("[[store.donate]]\ndevice = \"{class}\"\nclass = \"{class}\"\n");
    }
    text
}

fn raw_name(drive: StoreDrive) -> String {
    format!("{}-raw", class(drive))
}

fn address(folder: &Path) -> String {
    format!("unix:{}", inside(folder, "meta.sock"))
}

/// A node that serves.
struct StoreNode {
    // Before the folder: it ends, and then what it uses goes.
    node: ConfiguredNode,
    scratch: Scratch,
    port: u16,
    /// What has been written: the file of a drive, or the drive alone.
    filled: BTreeSet<(&'static str, bool)>,
    /// Drives of which every byte was written once, in the store or alone.
    touched: BTreeSet<(&'static str, bool)>,
}

impl StoreNode {
    fn start() -> Result<StoreNode, String> {
        let scratch = Scratch::named("store")?;
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| format!("a port: {e}"))?.port();
        let node = ConfiguredNode::start(scratch.path(), &text(scratch.path(), port), 0)?;
        Ok(StoreNode { node, scratch, port, filled: BTreeSet::new(), touched: BTreeSet::new() })
    }

    fn raw(&self, drive: StoreDrive) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}{}?ns=1", self.port, raw_name(drive))
    }

    /// Writes a whole drive once. A new file gets blocks that were never written, and a drive alone is written at the same place again and again:
    /// without this one side would have the page faults of memory that is touched first, and the other would not.
    fn touch(&mut self, drive: StoreDrive, is_raw: bool) -> Result<(), String> {
        if !self.touched.insert((class(drive), is_raw)) {
            return Ok(());
        }
        let store = address(self.scratch.path());
        let file = format!("/{}-touched", class(drive));
        let place = match is_raw {
            true => vec!["--raw".into(), self.raw(drive)],
            false => ["-f", &file, "-c", class(drive)].map(String::from).into(),
        };
        // The file that is read may be there.
        let taken = if is_raw || !self.filled.contains(&(class(drive), false)) { 0 } else { FILE };
        fs_bench(&store, &write_of(CAPACITY - SPARE - taken, place))?;
        // The next file waits until its blocks are free.
        if !is_raw {
            fs_remove(&store, &file)?;
        }
        self.node.rest()
    }

    /// Where a load goes to.
    fn place(&self, drive: StoreDrive, is_raw: bool, write: bool) -> Vec<String> {
        let words: Vec<String> = match is_raw {
            true => ["--raw", &self.raw(drive), "--region", &FILE.to_string()].map(String::from).into(),
            false => {
                let name = if write { "write" } else { "read" };
                ["-f", &format!("/{}-{name}", class(drive)), "-c", class(drive)].map(String::from).into()
            }
        };
        words
    }

    /// Writes what is to be read, once.
    fn fill(&mut self, drive: StoreDrive, is_raw: bool) -> Result<(), String> {
        if !self.filled.insert((class(drive), is_raw)) {
            return Ok(());
        }
        let all = write_of(FILE, self.place(drive, is_raw, false));
        fs_bench(&address(self.scratch.path()), &all).map(|_| ())
    }
}

/// The arguments of a write of so many bytes that is not measured.
fn write_of(bytes: u64, place: Vec<String>) -> Vec<String> {
    let (size, operations) = (FILL.to_string(), (bytes / FILL).to_string());
    let load = ["writeAsync", "-s", &size, "-k", &operations, "-b", "8", "-w", "0"].map(String::from);
    load.into_iter().chain(place).collect()
}

fn mode(load: &StoreLoad) -> &'static str {
    match (load.access, load.write, load.random, load.depth) {
        (StoreAccess::Lookup, ..) => "getFile",
        (StoreAccess::Stream, true, ..) => "writeBuffered",
        (StoreAccess::Stream, false, ..) => "readSequentialBuffered",
        (_, true, ..) => "writeAsync",
        (_, false, true, _) => "readRandomDirect",
        (_, false, false, _) => "readAsync",
    }
}

fn arguments(load: &StoreLoad) -> Vec<String> {
    let mut words = vec![mode(load).to_owned(), "-k".into(), load.operations.to_string(), "-w".into(), WARM_UP.into()];
    if load.access != StoreAccess::Lookup {
        words.extend(["-s".into(), load.size.to_string()]);
    }
    if load.depth > 1 {
        words.extend(["-b".into(), load.depth.to_string()]);
    }
    if load.access == StoreAccess::ColdMap {
        words.extend(["--cold".into(), "map".into()]);
    }
    words
}

/// See the [module](self). It ends with it.
#[derive(Default)]
pub struct StoreProcesses {
    node: Option<StoreNode>,
    /// Java's class path, with Hadoop's examples.
    hadoop: Option<String>,
    /// Where sorts are recorded, and the first of these records.
    records: Option<Scratch>,
    first_record: Option<PathBuf>,
}

impl StoreProcesses {
    /// Sorts with what is on this class path.
    pub fn with_hadoop(hadoop: Option<String>) -> Self {
        Self { hadoop, ..Self::default() }
    }
}

impl Stores for StoreProcesses {
    fn measure(&mut self, drive: StoreDrive, load: &StoreLoad) -> Result<StoreSeen, String> {
        if load.access == StoreAccess::Local {
            return local(drive, load);
        }
        if self.node.is_none() {
            self.node = Some(StoreNode::start()?);
        }
        let Some(node) = &mut self.node else { return Err("no node".into()) };
        let is_raw = load.access == StoreAccess::Raw;
        if load.write {
            node.touch(drive, is_raw)?;
        }
        node.fill(drive, is_raw)?;
        let all: Vec<String> = arguments(load).into_iter().chain(node.place(drive, is_raw, load.write)).collect();
        let run = fs_bench(&address(node.scratch.path()), &all)?;
        Ok(StoreSeen { p50: run.p50() as f64, bandwidth: run.bandwidth_bytes_per_s, copies: run.copies_per_byte })
    }

    fn sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String> {
        let class_path = self.hadoop.as_deref().ok_or("no class path: --hadoop CLASSPATH says where Hadoop is")?;
        let records = match &self.records {
            Some(records) => records,
            None => self.records.insert(Scratch::named("records")?),
        };
        let record = records.path().join(memory_pct.to_string());
        let sorted = super::sort::sort(class_path, bytes, memory_pct, &record)?;
        self.first_record.get_or_insert(record);
        Ok(sorted)
    }

    fn replay_sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String> {
        let record = self.first_record.as_deref().ok_or("nothing was sorted whose requests could be replayed")?;
        super::sort::replay(record, bytes, memory_pct)
    }

    fn leave(&mut self) {
        self.node = None;
    }
}

/// The drive in the client's process: it is new with every run, and written first, in the same run.
fn local(drive: StoreDrive, load: &StoreLoad) -> Result<StoreSeen, String> {
    let target = match drive {
        StoreDrive::Dram => "local:ram",
        StoreDrive::Flash => "local:960pro",
        StoreDrive::Optane => "local:optane-p4800x",
    };
    let target = format!("{target}?capacity={CAPACITY}&block_size=512");
    let region = ",region=64MiB";
    let fill = format!("name=fill,rw=write,bs=128KiB,qd=16,time={LOCAL_FILL}ns{region}");
    let begin = LOCAL_FILL + 60_000_000;
    let counted = format!("name=counted,rw=randread,bs={},qd=1,start={begin}ns{region}", load.size);
    let jobs = ["--job", &fill, "--job", &counted].map(String::from);
    // Long enough for as many reads as elsewhere; on a machine that is busy with something else there may be none.
    let mut time = load.operations * 100_000;
    for _ in 0..LOCAL_ATTEMPTS {
        let summary = bench(&target, &format!("{}ns", begin + time), &jobs)?.job("counted")?;
        if summary.iops > 0.0 {
            let (p50, bandwidth) = (summary.latency.p50 as f64, summary.bandwidth_bytes_per_s);
            return Ok(StoreSeen { p50, bandwidth, copies: 0.0 });
        }
        time *= 3;
    }
    Err(format!("{target}: no read was answered, {LOCAL_ATTEMPTS} times"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn the_configuration_is_one() {
        let config = Config::parse(&text(Path::new("/run/x"), 4420), "x", Path::new("/")).unwrap();
        assert_eq!((config.devices.len(), config.exports.len()), (6, 6));
        let store = config.store.unwrap();
        assert_eq!((store.donate.len(), store.classes.len()), (3, 3));
    }

    #[test]
    fn every_load_has_its_line() {
        let load = |access, write, random, depth| {
            let load = StoreLoad { access, write, random, size: 512, depth, operations: 9 };
            arguments(&load).join(" ")
        };
        for (line, expected) in [
            (load(StoreAccess::File, false, true, 1), "readRandomDirect -k 9 -w 16 -s 512"),
            (load(StoreAccess::ColdMap, false, true, 1), "readRandomDirect -k 9 -w 16 -s 512 --cold map"),
            (load(StoreAccess::Raw, true, false, 128), "writeAsync -k 9 -w 16 -s 512 -b 128"),
            (load(StoreAccess::File, false, false, 128), "readAsync -k 9 -w 16 -s 512 -b 128"),
            (load(StoreAccess::Stream, false, false, 1), "readSequentialBuffered -k 9 -w 16 -s 512"),
            (load(StoreAccess::Lookup, false, false, 1), "getFile -k 9 -w 16"),
        ] {
            assert_eq!(line, expected);
        }
    }
}
