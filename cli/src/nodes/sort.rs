//! Hadoop's TeraSort on a node's store that has memory for a part of what is written, and modelled flash for the rest; and what it asked of the store,
//! asked again without Hadoop.

use super::client::fs_replay;
use super::process::{CUTIME, ConfiguredNode, Scratch, inside, nanos, processor_time};
use serde::Deserialize;
use std::fs::File;
use std::io::BufReader;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use weir_sim::reproduce::StoreSort;
use weir_store_node::record::Record;
use weir_units::Nanos;

/// Bytes of a row of TeraGen.
const ROW: u64 = 100;
/// Memory is given to a store in such parts.
const REGION: u64 = 64 << 20;
/// What a donated drive has in front of them.
const LABEL: u64 = 8 << 20;
/// What files take beside their bytes: their last blocks, which are not full.
const BESIDE: u64 = 2 * REGION;
/// Names the folder that a client of the store records in.
const RECORD: &str = "WEIR_STORE_RECORD";
/// Java's.
const HEAP: &str = "-Xmx1g";

/// The configuration: a class of memory where there is any, and one of flash. A sort writes its input and its output to the store; what
/// Hadoop shuffles lies in its own folder.
fn text(folder: &Path, port: u16, bytes: u64, memory_pct: u32) -> String {
    let all = 2 * bytes;
    // The nearest that whole regions come to.
    let regions = (all * u64::from(memory_pct) / 100 + REGION / 2) / REGION;
    let memory = match memory_pct {
        0 => 0,
        _ => regions.max(1) * REGION + LABEL + BESIDE * u64::from(memory_pct == 100),
    };
    // The smallest that the profile makes holds more than any default size.
    let flash = (all + BESIDE).max(1 << 30);
    let mut text = format!(
        "[node]\nname = \"reproduce\"\napi = \"unix:{}\"\ncores = [0]\nkeeper = false\n\
         [[tenant]]\nname = \"store\"\nclass = \"high\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n\
         [store]\nmeta = \"redb:{}\"\nlisten = \"{}\"\nclasses = [\"dram\", \"flash\"]\n",
        inside(folder, "api.sock"),
        inside(folder, "store.redb"),
        address(folder),
    );
    let dram = (memory > 0).then_some(("dram", "kind = \"ram\"", memory));
    for (class, kind, capacity) in dram.into_iter().chain([("flash", "profile = \"960pro\"", flash)]) {
        text += &format!(
            "[[device]]\nname = \"{class}\"\n{kind}\ncapacity = \"{}MiB\"\nmedia = \"ram\"\n\
             [[export]]\ndevice = \"{class}\"\ndoor = \"nvme-tcp\"\n\
             [[store.donate]]\ndevice = \"{class}\"\nclass = \"{class}\"\n",
            capacity.div_ceil(1 << 20)
        );
    }
    text
}

fn address(folder: &Path) -> String {
    format!("unix:{}", inside(folder, "meta.sock"))
}

/// Space of a class, as `weir fs df --json` prints it.
#[derive(Deserialize)]
struct Class {
    class: String,
    bytes: u64,
    free_bytes: u64,
}

/// Bytes that are used: in memory, and in all classes.
fn used(store: &str) -> Result<(u64, u64), String> {
    let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
    let mut command = Command::new(program);
    let text = run(command.args(["--json", "fs", "--store", store, "df"]), "weir fs df")?;
    let classes: Vec<Class> = serde_json::from_str(&text).map_err(|e| format!("weir fs df: {e}"))?;
    let of = |class: &Class| class.bytes.saturating_sub(class.free_bytes);
    Ok((classes.iter().filter(|class| class.class == "dram").map(of).sum(), classes.iter().map(of).sum()))
}

/// Runs a program to its end: what it printed.
fn run(command: &mut Command, name: &str) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // Java's programs say much; what ended them comes last.
    let last: Vec<&str> = said.trim().lines().rev().take(LAST_LINES).collect();
    Err(format!("{name}: {}: {}", output.status, last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

/// Of what a program said that failed.
const LAST_LINES: usize = 8;

/// What the processes that this one has waited for have taken of processors.
fn of_children() -> Result<Nanos, String> {
    processor_time("/proc/self/stat", CUTIME)
}

/// One of Hadoop's example programs; what it asks of the store is recorded in a folder.
fn example(class_path: &str, folder: &Path, arguments: &[&str], record: Option<&Path>) -> Result<String, String> {
    let (name, arguments) = arguments.split_first().ok_or("no program")?;
    let mut command = Command::new("java");
    // A record of this program's own calls is not one of Java's.
    command.env_remove(RECORD);
    if let Some(record) = record {
        command.env(RECORD, record);
    }
    command.args([HEAP, "-cp", class_path, "org.apache.hadoop.examples.ExampleDriver", *name]);
    command.arg(format!("-Dfs.weir.address={}", address(folder)));
    command.arg(format!("-Dhadoop.tmp.dir={}", inside(folder, "hadoop")));
    run(command.args(arguments).current_dir(folder), &format!("java: {name}"))
}

/// A node with a new store.
struct SortStore {
    // Before the folder: it ends, and then what it uses goes.
    _node: ConfiguredNode,
    scratch: Scratch,
    /// Bytes in memory and in all classes, when it was new.
    before: (u64, u64),
}

impl SortStore {
    fn start(bytes: u64, memory_pct: u32) -> Result<Self, String> {
        let scratch = Scratch::named("sort")?;
        let folder = scratch.path();
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let port = listener.map_err(|e| format!("a port: {e}"))?.port();
        let node = ConfiguredNode::start(folder, &text(folder, port, bytes, memory_pct), 0)?;
        let before = used(&address(folder))?;
        Ok(Self { _node: node, scratch, before })
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Of what was written since, the part that is in memory, percent.
    fn in_memory_pct(&self) -> Result<f64, String> {
        let after = used(&address(self.folder()))?;
        let (memory, all) = (after.0.saturating_sub(self.before.0), after.1.saturating_sub(self.before.1));
        Ok(100.0 * memory as f64 / all.max(1) as f64)
    }
}

/// Generates so many bytes of rows on a new store, sorts them, and has their order proved. What the sort asks of the store is recorded in a folder.
///
/// # Errors
/// The node or a program does not start or fails, or the rows are not in order.
pub fn sort(class_path: &str, bytes: u64, memory_pct: u32, record: &Path) -> Result<StoreSort, String> {
    let node = SortStore::start(bytes, memory_pct)?;
    let folder = node.folder();
    example(class_path, folder, &["teragen", &(bytes / ROW).to_string(), "weir:///in"], None)?;
    let (begun, processor) = (Instant::now(), of_children()?);
    example(class_path, folder, &["terasort", "weir:///in", "weir:///out"], Some(record))?;
    let (elapsed, processor) = (nanos(begun.elapsed()), of_children()?.saturating_sub(processor));
    let in_memory_pct = node.in_memory_pct()?;
    example(class_path, folder, &["teravalidate", "weir:///out", "weir:///report"], None)?;
    prove(&address(folder))?;
    Ok(StoreSort { elapsed, processor, in_calls: in_calls(record)?, in_memory_pct })
}

/// What threads spent in calls of the store's client, as records in a folder say.
fn in_calls(folder: &Path) -> Result<Nanos, String> {
    let about = |e: &dyn std::fmt::Display| format!("{}: {e}", folder.display());
    let mut called = 0;
    for entry in std::fs::read_dir(folder).map_err(|e| about(&e))? {
        let file = entry.and_then(|entry| File::open(entry.path())).map_err(|e| about(&e))?;
        let record = Record::read(BufReader::new(file)).map_err(|e| about(&e))?;
        called += record.lines.iter().map(|line| line.called).sum::<u64>();
    }
    Ok(Nanos(called))
}

/// Asks of a new store what was recorded.
///
/// # Errors
/// The node does not start, or its store does not answer as it did.
pub fn replay(record: &Path, bytes: u64, memory_pct: u32) -> Result<StoreSort, String> {
    let node = SortStore::start(bytes, memory_pct)?;
    let replayed = fs_replay(&address(node.folder()), record)?;
    let time = |seconds: f64| Nanos((seconds * 1e9) as u64);
    let (elapsed, processor) = (time(replayed.seconds), time(replayed.processor_s));
    let in_calls = time(replayed.in_calls_s);
    Ok(StoreSort { elapsed, processor, in_calls, in_memory_pct: node.in_memory_pct()? })
}

/// TeraValidate has found all rows in order.
fn prove(store: &str) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
    let mut cat = Command::new(program);
    let report = run(cat.args(["fs", "--store", store, "cat", "/report/part-r-00000"]), "weir fs cat")?;
    // A checksum alone; where rows are out of order they are listed.
    match report.starts_with("checksum\t") && report.lines().count() == 1 {
        true => Ok(()),
        false => Err(format!("TeraValidate: {}", report.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn every_step_has_a_store_with_room_for_it() {
        for memory_pct in [100, 80, 60, 40, 20, 0] {
            let text = text(Path::new("/run/x"), 4420, 256 << 20, memory_pct);
            let config = Config::parse(&text, "x", Path::new("/")).unwrap();
            let donated = config.store.unwrap().donate.len();
            assert_eq!((config.devices.len(), donated), if memory_pct > 0 { (2, 2) } else { (1, 1) }, "{memory_pct}");
        }
    }

    #[test]
    fn a_program_that_fails_is_named_with_what_it_said_last() {
        let mut command = Command::new("sh");
        let said = run(command.args(["-c", "seq 100 >&2; exit 3"]), "the sort").unwrap_err();
        assert_eq!(said.lines().next(), Some("the sort: exit status: 3: 93"));
        assert_eq!(said.lines().last(), Some("100"));
        let none = run(&mut Command::new("/no/java"), "java").unwrap_err();
        assert!(none.starts_with("java: No such file"), "{none}");
    }

    #[test]
    fn what_children_take_is_counted() {
        let before = of_children().unwrap();
        run(Command::new("sh").args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]), "sh").unwrap();
        assert!(of_children().unwrap() > before);
    }
}
