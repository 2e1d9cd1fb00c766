//! A store with very many files and connections: what a file costs in memory and on disk, how soon the service is back after kill -9, and what idle
//! connections cost those that work. `--full` does it with a million files and ten thousand connections (some minutes, below 16 GiB), `./test` with a slice.

use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use weir_bench::store::answers::{self, Load};
use weir_store::InodeKind;
use weir_store_node::client::{Client, ClientOptions};
use weir_units::Nanos;

use super::{long, store, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::until;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_scale";
    vec![
        test(S, "twenty_thousand_files_and_a_thousand_connections", slice),
        long(S, "a_million_files_and_ten_thousand_connections", whole),
    ]
}

/// How much of everything.
#[derive(Clone, Copy)]
struct Scale {
    files: u64,
    /// Connections that only greet.
    idle: usize,
    /// Connections that ask.
    active: usize,
    /// Pairs of runs, without the idle ones and beside them.
    pairs: usize,
    /// A run.
    time: Nanos,
    /// By how much a figure may be over its target: what it is of at a small scale is more than its share.
    slack: f64,
}

fn slice(env: &Env) -> Outcome {
    let time = Nanos::from_millis(200);
    run(env, Scale { files: 20_000, idle: 1000, active: 32, pairs: 2, time, slack: 2.0 })
}

fn whole(env: &Env) -> Outcome {
    let time = Nanos::from_secs(2);
    run(env, Scale { files: 1_000_000, idle: 9_900, active: 100, pairs: 20, time, slack: 1.0 })
}

/// Clients that make the files at the same time.
const MAKERS: u64 = 4;

/// Targets of a file and of an idle connection, bytes.
const MEMORY_OF_A_FILE: f64 = 400.0;
const DISK_OF_A_FILE: f64 = 600.0;
const MEMORY_OF_A_CONNECTION: f64 = 16_384.0;

/// What all that may take of the machine.
const RESIDENT: f64 = 16.0 * (1 << 30) as f64;

/// A store, and where it is reached by TCP.
struct Big {
    node: Node,
    tcp: String,
}

impl Big {
    fn start(env: &Env) -> Result<Self, String> {
        let tcp = format!("127.0.0.1:{}", env.free_port()?);
        let listen = format!("listen = [\"unix:meta.sock\", \"{tcp}\"]");
        let whole = store::setup().whole.replace("listen = \"unix:meta.sock\"", &listen);
        let node = Node::start(env, &Setup { whole, ..Setup::default() })?;
        Ok(Self { node, tcp })
    }

    fn client(&self) -> Result<Client, String> {
        Client::connect(&self.tcp, ClientOptions::default()).map_err(|e| e.to_string())
    }

    /// A line of `/proc/PID/status` of the process that serves, bytes.
    fn status(&self, line: &str) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.node.serving()?);
        let text = std::fs::read_to_string(&path).context(|| path.clone())?;
        let found = text
            .lines()
            .find_map(|text| text.strip_prefix(line)?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
        found.map(|kib| kib * 1024.0).ok_or_else(|| format!("{path} has no {line}"))
    }

    /// Bytes of the metadata's files.
    fn disk(&self) -> Result<f64, String> {
        let mut bytes = 0;
        for path in self.metadata_files()? {
            bytes += std::fs::metadata(&path).context(|| path.display().to_string())?.len();
        }
        Ok(bytes as f64)
    }

    fn metadata_files(&self) -> Result<Vec<std::path::PathBuf>, String> {
        let entries = std::fs::read_dir(&self.node.dir).context(|| self.node.dir.display().to_string())?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("store.redb")))
            .collect())
    }

    /// Makes files, kills the service, and looks at each file; how long the service took to come back.
    fn lot(&mut self, name: &str, files: u64) -> Result<Duration, String> {
        let begun = Instant::now();
        self.make(name, files)?;
        let took = begun.elapsed().as_secs_f64();
        println!("{files} files by {MAKERS} clients in {took:.1} s: {:.0} a second", files as f64 / took);
        self.are_there(name, files)?;
        let back = self.comes_back(&format!("/{name}{}/{}", MAKERS - 1, files / MAKERS - 1))?;
        self.are_there(name, files)?;
        Ok(back)
    }

    /// A folder each maker.
    fn make(&self, name: &str, files: u64) -> Outcome {
        let address = store::address(&self.node);
        let count = (files / MAKERS).to_string();
        let one = |maker: u64| {
            let folder = format!("/{name}{maker}");
            let args = ["fs", "--store", &address, "bench", "createFile", "-w", "0", "-f", &folder, "-k", &count];
            let mut command = self.node.command(&args);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().context(|| "weir fs bench".into())
        };
        let makers = (0..MAKERS).map(one).collect::<Result<Vec<_>, _>>()?;
        for maker in makers {
            let ended = maker.wait_with_output().context(|| "weir fs bench".into())?;
            let said = || String::from_utf8_lossy(&ended.stderr).into_owned();
            ensure(ended.status.success(), said)?;
        }
        Ok(())
    }

    /// All of them are there, and nothing else.
    fn are_there(&self, name: &str, files: u64) -> Outcome {
        let client = self.client()?;
        for maker in 0..MAKERS {
            let mut found = 0;
            for entry in client.list(format!("/{name}{maker}")).map_err(|e| e.to_string())? {
                let entry = entry.map_err(|e| e.to_string())?;
                ensure(entry.record.kind == InodeKind::File, || format!("{} is no file", entry.name))?;
                found += 1;
            }
            ensure(found == files / MAKERS, || format!("/{name}{maker} has {found} of {} files", files / MAKERS))?;
        }
        Ok(())
    }

    /// kill -9, nothing of the metadata in the page cache, and a new start: how long until a lookup is right.
    fn comes_back(&mut self, path: &str) -> Result<Duration, String> {
        let before = self.client()?.stat(path).map_err(|e| e.to_string())?;
        self.node.kill()?;
        for path in self.metadata_files()? {
            let file = std::fs::File::open(&path).context(|| path.display().to_string())?;
            file.sync_all().context(|| path.display().to_string())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).context(|| path.display().to_string())?;
        }
        let begun = Instant::now();
        self.node.start_at_once()?;
        let found = until(Duration::from_secs(60), "a lookup", || {
            Ok(self.client().ok().and_then(|client| client.stat(path).ok()))
        })?;
        let took = begun.elapsed();
        ensure(format!("{before:?}") == format!("{found:?}"), || format!("{path} was {before:?}, is {found:?}"))?;
        Ok(took)
    }
}

/// A figure beside its target; whatever is over is told, and is an error where it is over by more than `slack`.
fn judge(rows: &mut Vec<String>, scale: Scale, what: &str, found: f64, target: f64) {
    let is_met = if found <= target { "met" } else { "missed" };
    println!("{what}: {found:.0} B, target {target:.0} B: {is_met}");
    if found > target * scale.slack {
        rows.push(format!("{what}: {found:.0} B, target {target:.0} B"));
    }
}

/// Files are made in two lots with a kill after each, and each file is looked at: what the second lot adds is what a file costs.
fn run(env: &Env, scale: Scale) -> Outcome {
    let mut big = Big::start(env)?;
    let mut over = Vec::new();
    big.lot("first", scale.files / 4)?;
    let (before, disk) = (big.status("RssAnon:")?, big.disk()?);
    let back = big.lot("second", scale.files)?;
    let files = scale.files as f64;
    let memory = (big.status("RssAnon:")? - before) / files;
    println!("kill -9, from exec to the first right lookup: {:.3} s, target 1 s", back.as_secs_f64());
    judge(&mut over, scale, "memory of a file", memory, MEMORY_OF_A_FILE);
    judge(&mut over, scale, "disk of a file", (big.disk()? - disk) / files, DISK_OF_A_FILE);
    // A process that has used little memory has none to give again.
    big.comes_back("/second0/0")?;
    let of_connections = connections(&big, scale)?;
    judge(&mut over, scale, "memory of an idle connection", of_connections, MEMORY_OF_A_CONNECTION);
    let peak = big.status("VmHWM:")?;
    println!("resident at the most: {:.0} MiB", peak / f64::from(1 << 20));
    ensure(peak < RESIDENT, || format!("{peak} bytes were resident"))?;
    ensure(over.is_empty(), || over.join("; "))?;
    big.node.stop()
}

/// Connections that work, alone and beside idle ones in turn: bytes that an idle one costs.
fn connections(big: &Big, scale: Scale) -> Result<f64, String> {
    let wrong = |e: weir_bench::BenchError| format!("{e:?}");
    let active = answers::connect(&big.tcp, scale.active).map_err(wrong)?;
    let paths = (0..scale.files / MAKERS).step_by(7).take(20_000).map(|at| format!("/second1/{at}"));
    let requests = answers::lookups(paths).map_err(wrong)?;
    let load = Load { depth: 1, time: scale.time, core: 1 };
    let (mut ratios, mut each) = (Vec::new(), Vec::new());
    for _ in 0..scale.pairs {
        let alone = answers::rate(&active, &requests, load).map_err(wrong)?;
        let before = big.status("RssAnon:")?;
        let idle: Vec<TcpStream> = answers::connect(&big.tcp, scale.idle).map_err(wrong)?;
        each.push((big.status("RssAnon:")? - before) / scale.idle as f64);
        let beside = answers::rate(&active, &requests, load).map_err(wrong)?;
        ensure(alone.per_s > 0.0 && beside.per_s > 0.0, || "nothing was answered".into())?;
        ratios.push((beside.p99_ns / alone.p99_ns, alone.p99_ns / 1e3, beside.p99_ns / 1e3));
        drop(idle);
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, alone, with) = ratios[ratios.len() / 2];
    println!(
        "p99 of {} connections beside {} idle ones: {with:.0} us, alone {alone:.0} us: median of {} pairs {ratio:.2} x, target 1.2 x",
        scale.active, scale.idle, scale.pairs
    );
    // Memory of connections that were closed is used again, so the first ones say it.
    Ok(each.first().copied().unwrap_or_default())
}
