//! The loads: `weir bench` as a process, so that what is measured is what users run, and a client that asks one thing after
//! the other.

use serde::Deserialize;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_config::Target;
use weir_driver::{Io, IoKind, QueuePair};
use weir_node::host::{Controller, HostQueue, Options, QueueClass};
use weir_sim::reproduce::Survived;
use weir_units::Nanos;
use weir_workload::{Latency, SeriesPoint, Summary, Xoshiro256};

/// How long a server that goes is waited for.
const RECONNECT_TIMEOUT: Nanos = Nanos::from_secs(30);

/// A volume is filled for so long, which is several times what it takes: memory that is touched first costs a page fault.
pub const FILL: Nanos = Nanos::from_millis(300);

/// What `weir bench --json` prints, as far as it is read here.
#[derive(Debug, Deserialize)]
pub struct Report {
    jobs: Vec<Figures>,
    total: Figures,
}

#[derive(Debug, Deserialize)]
struct Figures {
    name: String,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    latency_ns: Times,
    longest_gap_ns: Option<u64>,
    errors: u64,
    wrong_data: u64,
    series: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Times {
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Debug, Deserialize)]
struct Interval {
    t_s: f64,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    p99_ns: u64,
}

impl Figures {
    fn summary(&self) -> Summary {
        let Times { mean, p50, p99, p999, max } = self.latency_ns;
        let latency = Latency { mean, p50, p99, p999, max };
        let Figures { iops, bandwidth_bytes_per_s, errors, wrong_data, longest_gap_ns, .. } = *self;
        let longest_gap = longest_gap_ns.map(Nanos);
        Summary { iops, bandwidth_bytes_per_s, latency, longest_gap, errors, wrong_data, ..Summary::default() }
    }
}

impl Report {
    /// The figures of the job with that name.
    ///
    /// # Errors
    /// There is none.
    pub fn job(&self, name: &str) -> Result<Summary, String> {
        let job = self.jobs.iter().find(|job| job.name == name);
        job.map(Figures::summary).ok_or_else(|| format!("weir bench reports no job {name}"))
    }
}

/// The core that asks: the last one, and servers are on the first.
pub fn core() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()) - 1
}

/// Runs what starts a process, which then has that core alone.
///
/// # Errors
/// The core is not to be had, or what it said.
pub fn on_core<T: Send>(core: usize, run: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let pinned = || weir_sys::sched::pin(core).map_err(|e| format!("core {core}: {e}")).and_then(|()| run());
    std::thread::scope(|scope| match scope.spawn(pinned).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// What a run of `weir fs bench` gave, as far as it is read here.
#[derive(Debug, Deserialize)]
pub struct FsRun {
    /// Bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// How often each byte was copied.
    pub copies_per_byte: f64,
    latency_ns: FsTimes,
}

impl FsRun {
    /// Median latency, nanoseconds.
    pub fn p50(&self) -> u64 {
        self.latency_ns.p50
    }
}

#[derive(Debug, Deserialize)]
struct FsTimes {
    p50: u64,
}

#[derive(Debug, Deserialize)]
struct FsReport {
    runs: Vec<FsRun>,
}

/// Runs `weir fs bench` with these arguments: its only run. It is bound to no core: a client of a store that has a single one does not spin.
///
/// # Errors
/// It failed.
pub fn fs_bench(store: &str, arguments: &[String]) -> Result<FsRun, String> {
    let told = fs(store, "bench", arguments)?;
    let report: FsReport = serde_json::from_slice(&told).map_err(|e| format!("weir fs bench: {e}"))?;
    report.runs.into_iter().next().ok_or_else(|| "weir fs bench reports no run".into())
}

/// What `weir fs bench replay --json` says of the replay as a whole.
#[derive(Debug, Deserialize)]
pub struct FsReplay {
    /// From its first call to its last.
    pub seconds: f64,
    /// What its threads spent in calls, all together.
    pub in_calls_s: f64,
    /// What it took of processors.
    pub processor_s: f64,
}

#[derive(Debug, Deserialize)]
struct FsReplayReport {
    replayed: FsReplay,
    cut_off_records: u64,
    otherwise: u64,
    first_otherwise: Option<String>,
}

/// Replays the records in a folder.
///
/// # Errors
/// What `weir fs bench replay` said, or something came out otherwise than recorded.
pub fn fs_replay(store: &str, record: &Path) -> Result<FsReplay, String> {
    let told = fs(store, "bench", &["replay".to_owned(), record.display().to_string()])?;
    let report: FsReplayReport = serde_json::from_slice(&told).map_err(|e| format!("weir fs bench replay: {e}"))?;
    match report.first_otherwise {
        _ if report.cut_off_records > 0 => Err("the record of what was sorted is cut off".into()),
        Some(first) => Err(format!("{} calls came out otherwise than recorded: {first}", report.otherwise)),
        None => Ok(report.replayed),
    }
}

/// Removes a file of a store.
///
/// # Errors
/// What `weir fs rm` said.
pub fn fs_remove(store: &str, path: &str) -> Result<(), String> {
    fs(store, "rm", &[path.to_owned()]).map(drop)
}

/// Runs a command of `weir fs`: what it has printed.
fn fs(store: &str, command: &str, arguments: &[String]) -> Result<Vec<u8>, String> {
    let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
    let mut process = Command::new(program);
    process.args(["--json", "fs", "--store", store, command]).args(arguments).stdin(Stdio::null());
    let output = process.output().map_err(|e| format!("weir fs {command}: {e}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

fn command(target: &str, arguments: &[String]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|e| format!("weir: {e}"))?;
    let mut command = Command::new(program);
    command.args(["--json", "bench", target, "--cores", &core().to_string()]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Runs `weir bench TARGET` for so long with these arguments besides.
///
/// # Errors
/// It failed, or some of its requests did.
pub fn bench(target: &str, time: &str, arguments: &[String]) -> Result<Report, String> {
    let all: Vec<String> = ["--time".into(), time.into()].into_iter().chain(arguments.iter().cloned()).collect();
    let output = command(target, &all)?.output().map_err(|e| format!("weir bench: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("weir bench: {e}"))
}

/// Has every volume written once, so that reads move bytes of their own.
///
/// # Errors
/// As [`bench`].
pub fn fill(targets: &[String]) -> Result<(), String> {
    let time = format!("{}ns", FILL.0 * targets.len() as u64);
    let jobs = targets.iter().map(|target| format!("rw=write,bs=128KiB,qd=16,target={target}"));
    let arguments: Vec<String> = jobs.flat_map(|job| ["--job".to_string(), job]).collect();
    bench(&targets[0], &time, &arguments).map(|_| ())
}

/// A load that verifies, under way.
pub struct Verifying(Child);

/// Begins with random reads and writes, so many in flight, for so long, with a series of such intervals.
///
/// # Errors
/// It does not start.
pub fn verify(target: &str, depth: u32, time: Nanos, series: Nanos) -> Result<Verifying, String> {
    let text = |n: Nanos| format!("{}ns", n.0);
    let line = format!(
        "--rw randrw:50 --bs 4KiB --qd {depth} --size 64MiB --verify crc32c --reconnect {} --time {} --series {}",
        text(RECONNECT_TIMEOUT),
        text(time),
        text(series)
    );
    let arguments: Vec<String> = line.split(' ').map(String::from).collect();
    let child = command(target, &arguments)?.spawn().map_err(|e| format!("weir bench: {e}"))?;
    Ok(Verifying(child))
}

impl Verifying {
    /// Waits for its end.
    ///
    /// # Errors
    /// It reported nothing.
    pub fn end(self) -> Result<Survived, String> {
        let output = self.0.wait_with_output().map_err(|e| format!("weir bench: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        // With failed requests it reports all the same, and says so by its status.
        let report: Report = serde_json::from_slice(&output.stdout).map_err(|e| format!("weir bench: {e}: {said}"))?;
        let point = |i: &Interval| SeriesPoint {
            t_s: i.t_s,
            iops: i.iops,
            bandwidth_bytes_per_s: i.bandwidth_bytes_per_s,
            p99_ns: i.p99_ns,
        };
        let errors = report.total.errors.max(u64::from(!output.status.success()));
        Ok(Survived {
            errors,
            wrong_data: report.total.wrong_data,
            trouble: (errors > 0).then_some(said),
            summary: report.total.summary(),
            series: report.total.series.iter().map(point).collect(),
        })
    }
}

/// A queue pair with one request in flight; with `reconnect` it waits for a server that goes, and has to be offered a journal.
fn connect(target: &str, reconnect: Option<Nanos>) -> Result<HostQueue, String> {
    let target: Target = target.parse().map_err(|e| format!("{e}"))?;
    let options = Options { queues: 1, depth: 1, max_io: 4096, reconnect, ..Options::default() };
    let mut controller = Controller::open(&target, options).map_err(|e| e.to_string())?;
    controller.queue_pair(QueueClass::Tenant).map_err(|e| e.to_string())
}

/// Reads 4 KiB and waits for them.
fn read(pair: &mut HostQueue, offset: u64) -> Result<(), String> {
    let io = Io { kind: IoKind::Read, offset, len: 4096, slot: 0 };
    pair.submit(io).map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let mut done = Vec::with_capacity(1);
    while done.is_empty() {
        pair.poll(&mut done).map_err(|e| e.to_string())?;
        if begun.elapsed() > Duration::from_nanos(RECONNECT_TIMEOUT.0) {
            return Err("a read has had no answer for 30 s".into());
        }
    }
    let status = done[0].status;
    if status.is_success() { Ok(()) } else { Err(format!("a read of 4 KiB at byte {offset}: {status}")) }
}

/// Connects, reads once, and goes: how long that took.
///
/// # Errors
/// It cannot.
pub fn ask_once(target: &str) -> Result<Duration, String> {
    let begun = Instant::now();
    read(&mut connect(target, None)?, 0)?;
    Ok(begun.elapsed())
}

/// Somebody who asks one thing after the other and notes the longest wait.
pub struct Gap {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, String>>,
}

impl Gap {
    /// Begins; it has had its first answers when this returns.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn begin(target: &str) -> Result<Gap, String> {
        let mut pair = connect(target, Some(RECONNECT_TIMEOUT))?;
        let blocks = (pair.capacity() / 4096).max(1);
        read(&mut pair, 0)?;
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::Builder::new().name("client".into()).spawn(move || {
            weir_sys::sched::pin(core()).map_err(|e| e.to_string())?;
            let mut rng = Xoshiro256::new(1);
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            loop {
                // Looked at before a request: one that began after the end was wanted has been answered as well.
                let ends = until.load(Ordering::Acquire);
                read(&mut pair, rng.next_u64() % blocks * 4096)?;
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
                if ends {
                    return Ok(longest);
                }
            }
        });
        Ok(Gap { over, thread: thread.map_err(|e| format!("cannot start a thread: {e}"))? })
    }

    /// The longest time between two answers.
    ///
    /// # Errors
    /// A request failed.
    pub fn end(self) -> Result<Nanos, String> {
        self.over.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(longest) => longest.map(super::process::nanos),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bench_prints_is_read() {
        let figures = |name: &str| {
            format!(
                r#"{{"name":"{name}","class":null,"iops":10.5,"bandwidth_bytes_per_s":43008.0,"latency_ns":{{"mean":1.5,"p50":1,
                "p99":2,"p999":3,"max":4}},"errors":0,"wrong_data":0,"series":[{{"t_s":0.1,"iops":1.0,"bandwidth_bytes_per_s":2.0,"p99_ns":3}}]}}"#
            )
        };
        let text = format!(r#"{{"jobs":[{}],"total":{},"device":null}}"#, figures("v0"), figures("total"));
        let report: Report = serde_json::from_str(&text).unwrap();
        let v0 = report.job("v0").unwrap();
        assert_eq!((v0.iops, v0.latency.max, report.total.series[0].p99_ns), (10.5, 4, 3));
        assert_eq!(report.job("v1").unwrap_err(), "weir bench reports no job v1");
    }

    #[test]
    fn a_client_that_cannot_connect_says_where() {
        let error = ask_once("vhost-user:/nowhere/x.sock").unwrap_err();
        assert!(error.contains("/nowhere/x.sock"), "{error}");
    }
}
