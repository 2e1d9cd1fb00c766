//! `weir fs bench` as its users run it: what it says was made is what the store and the drive have afterwards.

use serde_json::Value;

use std::process::Command;
use std::time::Duration;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process::{Finished, Process};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_bench";
    vec![
        test(S, "every_mode_counts_what_it_made", every_mode),
        test(S, "a_drive_beside_the_store", raw),
        test(S, "what_cannot_be_done_is_said", refused),
        test(S, "what_programs_asked_is_asked_again", replayed),
        test(S, "a_replay_finds_a_wrong_byte", wrong_byte),
        test(S, "what_cannot_be_recorded_or_replayed_is_said", no_record),
    ]
}

/// A donated drive and one beside it.
fn setup() -> Setup {
    let device = |name: &str, capacity: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nkind = \"ram\"\nblock_size = 512\ncapacity = \"{capacity}\"\nnqn = \"{NQN}{name}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n"
        )
    };
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
        .to_owned()
        + &device("ram0", "256MiB")
        + &device("raw0", "64MiB")
        + "[store]\nmeta = \"memory:\"\nlisten = \"unix:meta.sock\"\nclasses = [\"dram\"]\n\
           [[store.donate]]\ndevice = \"ram0\"\nclass = \"dram\"\n";
    Setup { whole, ..Setup::default() }
}

const NQN: &str = "nqn.2026-11.io.weir:e2e:";

fn bench(node: &Node, line: &str) -> Result<Finished, String> {
    let store = format!("unix:{}", node.socket("meta.sock").display());
    let words: Vec<&str> = line.split(' ').collect();
    node.cli(&[&["fs", "--store", &store, "--json", "bench"], words.as_slice()].concat())
}

/// The only run of a line.
fn run(node: &Node, line: &str) -> Result<Value, String> {
    let ended = bench(node, line)?.success(line).map_err(|e| format!("{e}\n{}", node.log()))?;
    let report: Value = serde_json::from_str(&ended).map_err(|e| format!("{line}: {e}: {ended}"))?;
    let run = report["runs"][0].clone();
    let latency = &run["latency_ns"];
    let at = |key: &str| latency[key].as_u64().unwrap_or(0);
    let in_order = ["p50", "p90", "p99", "p999", "max"].map(at).is_sorted();
    ensure(in_order && at("p50") > 0 && run["seconds"].as_f64() > Some(0.0), || format!("{line}: {report}"))?;
    Ok(run)
}

fn counts(node: &Node, line: &str, operations: u64, bytes: u64) -> Outcome {
    let run = run(node, line)?;
    let found = (run["operations"].as_u64(), run["bytes"].as_u64());
    ensure(found == (Some(operations), Some(bytes)), || format!("{line}: {run}"))
}

fn every_mode(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for (line, operations, bytes) in [
            ("writeAsync -s 64KiB -k 500 -b 16 -f /tmp.dat", 500, 500 << 16),
            // The lines of the paper.
            ("-t readRandomDirect -s 512 -k 300 -w 32 -f /tmp.dat", 300, 300 * 512),
            ("-t readAsync -s 65536 -k 900 -b 128 -w 32 -f /tmp.dat", 900, 900 << 16),
            ("-t readSequentialHeap -s 1000 -k 5000 -w 32 -f /tmp.dat", 5000, 5_000_000),
            ("readSequentialDirect -s 4096 -k 100", 100, 409_600),
            ("readRandom -s 100 -k 100", 100, 10_000),
            ("readRandom -s 4096 -k 20 --cold map", 20, 81_920),
            ("readRandom -s 4096 -k 20 --cold all", 20, 81_920),
            ("write -s 1000 -k 3000 -f /d.dat -c dram", 3000, 3_000_000),
            ("writeDirect -s 4096 -k 100 -f /d.dat", 100, 409_600),
            ("createFile -k 60 -f /many", 60, 0),
            ("enumerateDir -k 5 -f /many", 5, 0),
            ("getFile -k 50", 50, 0),
            ("getKey -s 1000 -k 50 -f /key", 50, 50_000),
        ] {
            counts(node, line, operations, bytes)?;
        }
        let store = format!("unix:{}", node.socket("meta.sock").display());
        let listed = node.cli_ok(&["fs", "--store", &store, "ls", "-l", "/"])?;
        let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
        let expected = ["d.dat", "key", "many", "tmp.dat"];
        ensure(expected.iter().all(|name| listed.contains(name)) && names.len() == expected.len(), || listed.clone())
    })
}

fn raw(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let at = |name: &str| format!("--raw nvme-tcp://{}/{NQN}{name}?ns=1", node.address());
        let (beside, inside) = (at("raw0"), at("ram0"));
        counts(node, &format!("writeAsync -s 64KiB -k 300 -b 32 {beside}"), 300, 300 << 16)?;
        counts(node, &format!("readAsync -s 64KiB -k 300 -b 128 {beside} --region 1MiB"), 300, 300 << 16)?;
        counts(node, &format!("readRandomDirect -s 512 -k 100 {beside}"), 100, 51_200)?;
        counts(node, "writeAsync -s 64KiB -k 16 -b 4 -f /a", 16, 1 << 20)?;
        let refused = bench(node, &format!("writeAsync -s 64KiB -k 1 {inside}"))?;
        let said = refused.stderr.clone();
        ensure(refused.status.code() == Some(1) && said.contains("files of a store are on it"), || said)?;
        // It was not written over.
        counts(node, "readAsync -s 64KiB -k 16 -b 4 -f /a", 16, 1 << 20)
    })
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for (line, status, why) in [
            ("readRandom -f /none", 1, "fs bench readRandom: /none: no such file or directory"),
            ("getFile -f /", 1, "fs bench getFile: /: it is no file"),
            ("write -f /x --class tape", 1, "tape"),
            ("readAsync --raw nvme-tcp://127.0.0.1:1/nqn.none?ns=1", 1, "127.0.0.1:1"),
            ("readBack", 2, "readBack"),
            ("getKey -b 2", 2, "leave -b out"),
            ("write -f relative", 2, "absolute"),
        ] {
            let ended = bench(node, line)?;
            let said = ended.stderr.clone();
            ensure(ended.status.code() == Some(status) && said.contains(why), || format!("{line}: {said}"))?;
        }
        Ok(())
    })
}

/// Where programs record what they ask.
const CALLS: &str = "calls";
/// Bytes of a file: several slices of a stream, and a part of one.
const FILE: usize = 3_000_001;

/// `weir fs`, which records what it asks in a folder of the node's.
fn recorded(node: &Node, folder: &str, words: &[&str]) -> Result<Finished, String> {
    let store = format!("unix:{}", node.socket("meta.sock").display());
    let mut command = Command::new(crate::harness::program_under_test()?);
    command.env("WEIR_STORE_RECORD", node.socket(folder)).args(["fs", "--store", &store]).args(words);
    Process::spawn(&node.dir, "recorded", command)?.wait(Duration::from_secs(10))
}

fn fs(node: &Node, words: &[&str]) -> Result<String, String> {
    let store = format!("unix:{}", node.socket("meta.sock").display());
    node.cli_ok(&[&["fs", "--store", &store], words].concat())
}

/// A file of this machine, none of whose parts is like another.
fn local_file(node: &Node) -> Result<String, String> {
    let path = node.socket("local");
    let bytes: Vec<u8> = (0..FILE).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
    std::fs::write(&path, bytes).context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

fn replay(node: &Node, folder: &str, options: &str) -> Result<Finished, String> {
    let line = format!("replay {} {options}", node.socket(folder).display());
    bench(node, line.trim())
}

fn report(ended: Finished) -> Result<Value, String> {
    let text = ended.success("weir fs bench replay")?;
    serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
}

fn replayed(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let local = local_file(node)?;
        // Processes that depend on one another.
        for words in [
            &["mkdir", "-p", "/runs/7"][..],
            &["put", &local, "/runs/7/a"],
            &["cp", "/runs/7/a", "/runs/b"],
            &["mv", "/runs/b", "/runs/7/c"],
            &["ls", "-lR", "/runs"],
            &["cat", "/runs/7/c"],
        ] {
            recorded(node, CALLS, words)?.success(words[0])?;
        }
        let refused = replay(node, CALLS, "")?;
        let why = refused.stderr.clone();
        ensure(refused.status.code() == Some(1) && why.contains("it succeeded when it was recorded"), || why)?;
        for options in ["--verify", "--speed 1000", ""] {
            fs(node, &["rm", "-r", "/runs"])?;
            let said = report(replay(node, CALLS, options)?)?;
            let same =
                |key: &str| said["recorded"][key] == said["replayed"][key] && said["recorded"][key].as_u64() > Some(0);
            let of = |key: &str| said[key].as_u64();
            ensure(same("operations") && same("bytes") && of("otherwise") == Some(0), || said.to_string())?;
            ensure(of("records") == Some(6) && of("cut_off_records") == Some(0), || said.to_string())?;
            let compared = if options == "--verify" { Some(2 * FILE as u64) } else { None };
            ensure(of("verified_bytes") == compared, || said.to_string())?;
            let names = fs(node, &["ls", "-R", "/runs"])?;
            ensure(names.contains("/runs/7:") && names.contains('a') && !names.contains('b'), || names)?;
            let sizes = fs(node, &["du", "-s", "/runs"])?;
            ensure(sizes.contains(&(2 * FILE).to_string()), || sizes)?;
        }
        Ok(())
    })
}

fn wrong_byte(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        fs(node, &["put", &local_file(node)?, "/in"])?;
        recorded(node, CALLS, &["cat", "/in"])?.success("cat")?;
        fs(node, &["rm", "/in"])?;
        let said = report(replay(node, CALLS, "--verify --seed 7")?)?;
        ensure(said["verified_bytes"].as_u64() == Some(FILE as u64), || said.to_string())?;
        // What a replay has made is used again, if it is as it was.
        let path = node.socket("made");
        let text = path.display().to_string();
        fs(node, &["get", "/in", &text])?;
        let mut bytes = std::fs::read(&path).context(|| text.clone())?;
        bytes[2_000_000] ^= 1;
        std::fs::write(&path, &bytes).context(|| text.clone())?;
        fs(node, &["put", "-f", &text, "/in"])?;
        let found = replay(node, CALLS, "--verify --seed 7")?;
        let why = found.stderr.clone();
        ensure(found.status.code() == Some(1) && why.contains("/in: byte 2000000 is 0x"), || why)?;
        report(replay(node, CALLS, "--seed 7")?).map(drop)
    })
}

fn no_record(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let refused = recorded(node, "/dev/null/calls", &["ls", "/"])?;
        let why = refused.stderr.clone();
        let named =
            why.contains("recording into /dev/null/calls: ") && why.contains("name a folder that can be written");
        ensure(refused.status.code() == Some(1) && named, || why)?;
        let empty = node.socket("empty");
        std::fs::create_dir(&empty).context(|| empty.display().to_string())?;
        std::fs::write(node.socket("trace.csv"), "time_us,op,offset,length\n").context(|| "trace.csv".into())?;
        recorded(node, CALLS, &["ls", "/"])?.success("ls")?;
        for (record, options, status, why) in [
            ("none.csv", "", 1, "none.csv: No such file or directory"),
            ("empty", "", 1, "empty: no records are in this folder"),
            ("trace.csv", "", 1, "trace.csv: line 1: it is no record of a store's client"),
            (CALLS, "--speed never", 2, "write a number from 0"),
            (CALLS, "--csv", 2, "--json and --csv cannot both be printed"),
        ] {
            let ended = replay(node, record, options)?;
            let said = ended.stderr.clone();
            ensure(ended.status.code() == Some(status) && said.contains(why), || {
                format!("{record} {options}: {said}")
            })?;
        }
        let ended = bench(node, "replay")?;
        ensure(ended.status.code() == Some(2) && ended.stderr.contains("<RECORD>"), || ended.describe())
    })
}
