//! The modes, on a metadata service and drives in files of this process.

use super::args::{BenchMode, BenchPlan, Cold};
use super::target::pattern;
use super::*;
use crate::args::{Cli, CliCommand};
use crate::fs::args::FsCommand;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_config::{StoreAddress, StoreDurability, StoreMeta};
use weir_store::protocol::Donation;
use weir_store::{ClassName, InodeKind, Location};
use weir_store_node::client::{ClientError, ClientOptions, OpenOptions, Operator as _};
use weir_store_node::service::{ServiceHandle, ServiceOptions, start};

/// A store of its own.
pub(super) struct Store {
    pub(super) folder: PathBuf,
    client: Option<Client>,
    service: Option<ServiceHandle>,
}

impl Store {
    pub(super) fn new() -> Store {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-fs-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let options = ServiceOptions {
            meta: StoreMeta::Memory,
            durability: StoreDurability::Process,
            listen: vec![StoreAddress::Unix(folder.join("s"))],
            classes: vec!["dram".into()],
            block: 64 << 10,
            lease: Duration::from_secs(20),
            repair_after: None,
            tiering: weir_store::Tiering::default(),
            allow_files: true,
        };
        let service = start(options).unwrap();
        let mut store = Store { folder, client: None, service: Some(service) };
        let client = store.connect();
        let file = store.folder.join("drive");
        std::fs::File::create(&file).and_then(|file| file.set_len(256 << 20)).unwrap();
        let target = format!("file:{}?sector=512", file.display());
        let class = ClassName::new("dram").unwrap();
        client.donate(Donation { target, class, location: Location::default(), overwrite: false }).unwrap();
        store.client = Some(client);
        store
    }

    pub(super) fn connect(&self) -> Client {
        self.connect_recorded(None)
    }

    /// A client that records what is asked of it.
    pub(super) fn connect_recorded(&self, record: Option<&Path>) -> Client {
        self.try_connect_recorded(record).unwrap()
    }

    pub(super) fn try_connect_recorded(&self, record: Option<&Path>) -> Result<Client, ClientError> {
        let record = record.map(PathBuf::from);
        let options = ClientOptions { allow_files: true, record, ..ClientOptions::default() };
        Client::connect(&format!("unix:{}", self.folder.join("s").display()), options)
    }

    pub(super) fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    /// Runs the command as it stands.
    fn run(&self, line: &str) -> Result<Measured, String> {
        let args = parse(line)?;
        let plan = args.plan().map_err(|e| e.text().to_owned())?;
        let path = StorePath::parse(&args.file).unwrap().path;
        let options = CreateOptions { classes: args.class.clone(), ..CreateOptions::default() };
        let client = self.connect();
        let bench = Bench { client: &client, plan, path, options };
        once(&bench).map_err(|e| e.to_string())
    }

    fn size(&self, path: &str) -> u64 {
        self.client().stat(path).unwrap().inode.size
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.client.take());
        if let Some(service) = self.service.take() {
            service.stop();
        }
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn parse(line: &str) -> Result<FsBenchArgs, String> {
    let words = ["weir", "fs", "bench"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).map_err(|e| e.to_string())?.command {
        CliCommand::Fs(fs) => match fs.command {
            FsCommand::Bench(args) => Ok(args),
            _ => unreachable!(),
        },
        _ => unreachable!(),
    }
}

fn plan(line: &str) -> Result<BenchPlan, String> {
    parse(line)?.plan().map_err(|e| e.text().to_owned())
}

#[test]
fn the_lines_of_the_paper_run_as_printed() {
    let of = |line| plan(line).map(|p| (p.mode, p.buffered, p.size, p.operations, p.batch, p.warmup));
    for (line, expected) in [
        ("-t readRandomDirect -s 512 -k 9 -w 32 -f /tmp.dat", (BenchMode::ReadRandom, false, 512, 9, 1, 32)),
        (
            "-t readAsync -s 65536 -k 9 -b 128 -w 32 -f /tmp.dat",
            (BenchMode::ReadSequentialAsync, false, 65_536, 9, 128, 32),
        ),
        ("-t readSequentialHeap -s 1024 -k 9 -w 32 -f /tmp.dat", (BenchMode::ReadSequential, true, 1024, 9, 1, 32)),
        ("write", (BenchMode::Write, true, 1 << 20, 1, 1, 32)),
        ("WRITEASYNC -b 4", (BenchMode::WriteAsync, false, 1 << 20, 1, 4, 32)),
        ("readRandom -m false -w 0", (BenchMode::ReadRandom, false, 1 << 20, 1, 1, 0)),
        ("readRandom --cold map", (BenchMode::ReadRandom, false, 1 << 20, 1, 1, 32)),
    ] {
        assert_eq!(of(line), Ok(expected), "{line}");
    }
    assert_eq!(plan("readRandom --cold all").unwrap().cold, Some(Cold::All));
    assert_eq!(parse("getFile").unwrap().file, "/tmp.dat");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (line, why) in [
        ("", "required"),
        ("readBackwards", "readBackwards"),
        ("write -t write", "cannot be used"),
        ("write -s 0", "0 bytes move nothing"),
        ("write -s much", "much"),
        ("write -k 0", "0"),
        ("readAsync -b 0", "0"),
        ("getFile -m true", "leave -m out"),
        ("readRandomDirect -m true", "the opposite"),
        ("write --cold map", "--cold is for readRandom"),
        ("getKey -b 2", "leave -b out"),
        ("getFile --raw nvme-tcp://a:1/n", "leave --raw out"),
        ("write --raw nvme-tcp://a:1/n --class dram", "cannot be used"),
        ("write --region 4096", "--raw"),
        ("writeAsync -s 8MiB", "at most 4MiB"),
        ("readAsync -s 64MiB -b 1000", "more than 2GiB"),
        ("write -s 1MiB -k 99999999999999", "no file is that long"),
    ] {
        let told = plan(line).unwrap_err();
        assert!(told.contains(why), "{line}: {told}");
    }
}

/// Operations and bytes of every mode, against what is in the store afterwards.
#[test]
fn operations_and_bytes_are_those_that_were_made() {
    let store = Store::new();
    let of = |line: &str| {
        let measured = store.run(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(measured.latency.count(), measured.operations, "{line}");
        (measured.operations, measured.bytes)
    };
    for (line, size) in [("write -s 5000 -k 41 -w 3", 205_000), ("writeDirect -s 5000 -k 41", 205_000)] {
        assert_eq!(of(&format!("{line} -f /a")), (41, size), "{line}");
        assert_eq!(store.size("/a"), size, "{line}");
    }
    assert_eq!(of("writeAsync -s 64KiB -k 40 -b 8 -f /b"), (40, 40 << 16));
    assert_eq!(store.size("/b"), 40 << 16);
    // 41 operations of 5000 bytes, then from the beginning; 20 of 10,001 and one of the 4,980 that are left.
    for buffered in [true, false] {
        assert_eq!(of(&format!("readSequential -s 5000 -k 50 -f /a -m {buffered}")), (50, 250_000));
        assert_eq!(of(&format!("readSequential -s 10001 -k 21 -f /a -m {buffered}")), (21, 205_000));
        assert_eq!(of(&format!("readRandom -s 5000 -k 30 -f /a -m {buffered}")), (30, 150_000));
    }
    for cold in ["map", "all"] {
        assert_eq!(of(&format!("readRandom -s 512 -k 10 -f /b --cold {cold}")), (10, 5120));
    }
    assert_eq!(of("readAsync -s 64KiB -k 100 -b 16 -f /b"), (100, 100 << 16));
    assert_eq!(of("readAsync -s 10001 -k 21 -b 4 -f /a"), (21, 205_000));
    assert_eq!(of("createFile -k 25 -f /many"), (25, 0));
    assert_eq!(store.client().list("/many").unwrap().count(), 25);
    assert_eq!(of("enumerateDir -k 3 -f /many"), (3, 0));
    assert_eq!(of("getFile -k 7 -f /a"), (7, 0));
    assert_eq!(of("getKey -s 1000 -k 9 -f /key"), (9, 9000));
    let left: Vec<_> = store.client().list("/").unwrap().map(|e| e.unwrap().name.to_string()).collect();
    assert_eq!(left.len(), 4, "no file of a warm-up is left: {left:?}");
}

#[test]
fn copies_are_counted() {
    let store = Store::new();
    let of = |line: &str| {
        let measured = store.run(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        measured.copied as f64 / measured.bytes as f64
    };
    // Other tests of this process copy as well: at least as often.
    assert!(of("write -s 5000 -k 100 -f /a") >= 1.0);
    assert!(of("readSequential -s 5000 -k 100 -f /a") >= 1.0);
    assert!(of("readRandomDirect -s 100 -k 100 -f /a") >= 1.0, "a part of a sector");
}

#[test]
fn a_multifile_is_read_whole_and_in_rounds() {
    let store = Store::new();
    let kind = InodeKind::Multifile;
    store.client().make("/m", &CreateOptions { kind, ..CreateOptions::default() }).unwrap();
    for (name, len) in [("/m/0", 100_000), ("/m/1", 1), ("/m/2", 70_000)] {
        store.client().put_small(name, &pattern(len), &CreateOptions::default()).unwrap();
    }
    // 2 + 1 + 2 operations a round.
    let measured = store.run("readMultiStream -s 64KiB -k 3 -b 4 -f /m").unwrap();
    assert_eq!((measured.operations, measured.bytes), (15, 3 * 170_001));
}

#[test]
fn what_fails_ends_the_run_and_names_the_path() {
    let store = Store::new();
    store.run("write -s 4096 -k 2 -f /small").unwrap();
    store.client().put_small("/empty", b"", &CreateOptions::default()).unwrap();
    store.client().make_directory("/d", false, 0o755).unwrap();
    for (line, why) in [
        ("readRandom -f /none", "/none: no such file"),
        ("readRandom -s 64KiB -f /small", "/small: it has 8192 bytes, fewer than one operation of 65536"),
        ("readSequential -f /empty", "/empty: it is empty"),
        ("readAsync -f /empty", "/empty: there is nothing to read"),
        ("readMultiStream -f /d", "/d: there is nothing to read"),
        ("createFile -f /d", "/d: "),
        ("getFile -f /d", "/d: it is no file"),
        ("enumerateDir -f /small", "/small: it is not a directory"),
        ("write -f /x --class tape", "tape"),
    ] {
        let told = store.run(line).map(|m| m.operations).unwrap_err();
        assert!(told.contains(why), "{line}: {told}");
    }
    // A file that another client writes is not written over.
    let held = store.client().open("/small", OpenOptions::read_write()).unwrap();
    let client = store.connect();
    let plan = plan("write -s 4096 -f /small").unwrap();
    let bench = Bench { client: &client, plan, path: b"/small".to_vec(), options: CreateOptions::default() };
    assert!(once(&bench).err().unwrap().to_string().contains("another client"));
    drop(held);
}

#[test]
fn a_namespace_is_measured_by_itself_but_not_a_store_s_overwritten() {
    let store = Store::new();
    let raw = store.folder.join("raw");
    std::fs::File::create(&raw).and_then(|file| file.set_len(1 << 20)).unwrap();
    let measure = |file: &str, line: &str, region| {
        let tier = weir_store_node::tier::TierOptions { allow_files: true, ..Default::default() };
        let target = format!("file:{}?sector=512", store.folder.join(file).display());
        raw::measure_with(&target, &plan(line).unwrap(), region, (1, tier)).map_err(|e| e.text().to_owned())
    };
    let told = |file: &str, line: &str, region| measure(file, line, region).map(|_| ()).unwrap_err();
    for (line, expected) in [
        ("writeAsync -s 4096 -k 300 -b 8", (300, 300 * 4096)),
        ("readAsync -s 64KiB -k 50 -b 128", (50, 50 << 16)),
        ("readRandomDirect -s 512 -k 20", (20, 20 * 512)),
    ] {
        let measured = measure("raw", line, Some(512 << 10)).unwrap().remove(0);
        assert_eq!((measured.operations, measured.bytes), expected, "{line}");
    }
    let written = std::fs::read(&raw).unwrap();
    assert!(written[..512 << 10].chunks(4096).all(|sector| sector.iter().any(|b| *b != 0)));
    assert!(written[512 << 10..].iter().all(|b| *b == 0), "nothing behind the region is written");
    assert!(told("raw", "readAsync -s 1000", None).contains("whole sectors of 512"));
    assert!(told("raw", "readAsync -s 64KiB", Some(4096)).contains("fewer than one operation"));
    let label = std::fs::read(store.folder.join("drive")).unwrap()[..4096].to_vec();
    assert!(told("drive", "writeAsync -s 4096 -k 1", None).contains("files of a store are on it"));
    assert_eq!(std::fs::read(store.folder.join("drive")).unwrap()[..4096], label[..]);
    assert!(measure("drive", "readAsync -s 4096 -k 1", None).is_ok());
}

#[test]
fn what_is_printed() {
    let mut meter = meter::Meter::begin(2);
    let begun = meter.begun();
    meter.count(begun, 4096);
    meter.count(begun, 4096);
    let measured = Measured { elapsed: Duration::from_millis(4), waited_pct: Some(50.0), ..meter.end() };
    let plan = plan("readRandomDirect -s 4096 -k 2").unwrap();
    let runs = [measured];
    let report = report::BenchReport::new(&plan, "/tmp.dat".into(), &runs);
    let text = report.text();
    assert!(text.starts_with("readRandom /tmp.dat, 4096 bytes each, direct\nOPERATIONS  OPS/S  MB/S "), "{text}");
    assert!(text.contains("         2    500   2.0 ") && text.contains("waited 50 % of the time for a core"), "{text}");
    let json = serde_json::to_value(report.json()).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&json), "about batch buffered mode runs size");
    let run = &json["runs"][0];
    assert_eq!(
        keys(run),
        "bandwidth_bytes_per_s bytes copies_per_byte latency_ns operations operations_per_s seconds waited_for_core_pct"
    );
    assert_eq!(keys(&run["latency_ns"]), "max mean p50 p90 p99 p999");
    assert_eq!((&run["operations"], &run["bytes"]), (&2.into(), &8192.into()));
}
