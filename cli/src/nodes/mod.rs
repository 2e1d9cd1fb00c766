//! Nodes as processes of their own, and loads on them: what the reproductions of papers/001 measure.
//!
//! ```text
//!   StoreProcesses ─ StoreProcess (weir up with [store])   core 0   drives in the store and beside it; weir fs bench
//!   Processes ─┬─ NodeProcess (weir up)      core 0   volumes on a drive, by vhost-user
//!              ├─ Qemu (qemu-storage-daemon) core 0   a file in memory
//!              └─ weir bench, or a thread that asks   the last core
//! ```
//! Servers sleep while they have nothing to do, so that one that is not its turn takes nothing from the others. Everything lies
//! in a folder of its own, in memory where there is /dev/shm, which goes with the processes.

mod client;
mod process;
mod store;

pub use store::StoreProcesses;

use client::{Gap, ask_once, bench};
use process::{NodeProcess, Qemu, Scratch, Setting};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_sim::reproduce::{Blow, Case, Nodes, PaperDrive, Program, Server, Start, Survived, Timeline};
use weir_units::Nanos;
use weir_workload::Summary;

/// Bytes of each volume.
const VOLUME: &str = "64MiB";
/// Before a run counts: what the run before has left in the drive's buffer is written meanwhile.
const RAMP: Nanos = Nanos::from_millis(60);
/// A volume is filled for so long, which is several times what it takes: memory that is touched first costs a page fault.
const FILL: Nanos = Nanos::from_millis(300);
/// A client asks so long before something happens to its server, and after it.
const LEAD: Duration = Duration::from_millis(60);

/// What serves a load.
enum Serving {
    Node(NodeProcess),
    Qemu(Qemu),
}

impl Serving {
    fn targets(&self) -> Vec<String> {
        match self {
            Serving::Node(node) => node.targets(),
            Serving::Qemu(qemu) => vec![qemu.target()],
        }
    }
}

/// See the [module](self). All of them end with it.
#[derive(Default)]
pub struct Processes {
    // Before the folder: they end, and then what they use goes.
    serving: Vec<(Server, PaperDrive, Serving)>,
    several: Vec<(u32, PaperDrive, bool, NodeProcess)>,
    scratch: Option<Scratch>,
    made: u32,
}

impl Processes {
    /// A folder for one more server.
    fn folder(&mut self) -> Result<PathBuf, String> {
        if self.scratch.is_none() {
            self.scratch = Some(Scratch::new()?);
        }
        self.made += 1;
        let whole = self.scratch.as_ref().map(|s| s.path().to_owned()).unwrap_or_default();
        let folder = whole.join(self.made.to_string());
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(folder)
    }

    /// The targets of a server, which is started if it is not there.
    fn targets(&mut self, server: Server, drive: PaperDrive) -> Result<Vec<String>, String> {
        if let Some((_, _, serving)) = self.serving.iter().find(|(s, d, _)| (*s, *d) == (server, drive)) {
            return Ok(serving.targets());
        }
        let folder = self.folder()?;
        let volumes = |volumes, journal| Setting { drive, volumes, journal, in_file: false, keeper: false };
        let serving = match server {
            Server::Volumes(n) => Serving::Node(NodeProcess::start(&folder, volumes(n, true))?),
            Server::NoJournal => Serving::Node(NodeProcess::start(&folder, volumes(1, false))?),
            Server::Qemu => Serving::Qemu(Qemu::start(&folder)?),
            Server::Raw => return Err("a raw drive has no server".into()),
        };
        let targets = serving.targets();
        fill(&targets)?;
        self.serving.push((server, drive, serving));
        Ok(targets)
    }

    /// One of several nodes that are there at once, started if it is not.
    fn one_of_several(&mut self, number: u32, drive: PaperDrive, keeper: bool) -> Result<&mut NodeProcess, String> {
        let same = |(n, d, k, _): &(u32, PaperDrive, bool, NodeProcess)| (*n, *d, *k) == (number, drive, keeper);
        let at = match self.several.iter().position(same) {
            Some(at) => at,
            None => {
                let folder = self.folder()?;
                let setting = Setting { drive, volumes: 1, journal: true, in_file: !keeper, keeper };
                self.several.push((number, drive, keeper, NodeProcess::start(&folder, setting)?));
                self.several.len() - 1
            }
        };
        Ok(&mut self.several[at].3)
    }
}

/// `--job` of a case for a target.
fn job(case: &Case, name: &str, more: &str) -> String {
    format!("name={name},rw={},bs={},qd={},jobs={}{more}", case.rw, case.size, case.depth, case.jobs)
}

/// Has every volume written once, so that reads move bytes of their own.
fn fill(targets: &[String]) -> Result<(), String> {
    let time = format!("{}ns", FILL.0 * targets.len() as u64);
    let jobs = targets.iter().map(|target| format!("rw=write,bs=128KiB,qd=16,target={target}"));
    let arguments: Vec<String> = jobs.flat_map(|job| ["--job".to_string(), job]).collect();
    bench(&targets[0], &time, &arguments).map(|_| ())
}

/// What a raw drive is, as a target of `weir bench`.
fn raw(drive: PaperDrive) -> String {
    let capacity = process::CAPACITY;
    match drive {
        PaperDrive::Pm963 => format!("local:pm963?capacity={capacity}"),
        PaperDrive::P3600 => format!("local:p3600?capacity={capacity}"),
        PaperDrive::Ram => format!("local:ram?capacity={capacity}"),
    }
}

impl Nodes for Processes {
    fn has_qemu(&self) -> bool {
        process::find_qemu().is_ok()
    }

    fn run(&mut self, server: Server, drive: PaperDrive, case: &Case, time: Nanos) -> Result<Vec<Summary>, String> {
        if server == Server::Raw {
            // A drive of the client's own is new with every run: it is written first, in the same run.
            let begin = FILL.0 + RAMP.0;
            let all = format!("{}ns", begin + time.0);
            let region = format!(",region={VOLUME}");
            let fill = format!("name=fill,rw=write,bs=128KiB,qd=16,time={}ns{region}", FILL.0);
            let counted = job(case, "counted", &format!(",start={begin}ns{region}"));
            let arguments = ["--job".to_string(), fill, "--job".into(), counted];
            let report = bench(&raw(drive), &all, &arguments)?;
            return Ok(vec![report.job("counted")?]);
        }
        let targets = self.targets(server, drive)?;
        let mut arguments = vec!["--ramp".to_string(), format!("{}ns", RAMP.0)];
        for (at, target) in targets.iter().enumerate() {
            arguments.extend(["--job".into(), job(case, &format!("v{at}"), &format!(",target={target}"))]);
        }
        let report = bench(&targets[0], &format!("{}ns", time.0), &arguments)?;
        (0..targets.len()).map(|at| report.job(&format!("v{at}"))).collect()
    }

    fn leave(&mut self) {
        self.serving.clear();
        self.several.clear();
    }

    fn start(&mut self, program: Program, drive: PaperDrive) -> Result<Start, String> {
        let folder = self.folder()?;
        let begun = Instant::now();
        if program == Program::Qemu {
            let qemu = Qemu::start(&folder)?;
            let up = begun.elapsed();
            let answered = ask_once(&qemu.target())?;
            return Ok(Start {
                steps: vec![("exec to socket".into(), nanos(up)), ("first answer".into(), nanos(answered))],
            });
        }
        let in_file = program == Program::Again;
        let setting = Setting { drive, volumes: 1, journal: true, in_file, keeper: false };
        let mut node = NodeProcess::start(&folder, setting)?;
        if in_file {
            node.stop()?;
            node.start_again()?;
        }
        let mut steps = node.steps().to_vec();
        steps.push(("first answer".into(), nanos(ask_once(&node.targets()[0])?)));
        Ok(Start { steps })
    }

    fn gap(&mut self, number: u32, drive: PaperDrive, blow: Blow) -> Result<Nanos, String> {
        let node = self.one_of_several(number, drive, blow.is_kept())?;
        let gap = Gap::begin(&node.targets()[0])?;
        std::thread::sleep(LEAD);
        strike(node, blow)?;
        std::thread::sleep(LEAD);
        gap.end()
    }

    fn survive(&mut self, drive: PaperDrive, timeline: &Timeline) -> Result<Survived, String> {
        let folder = self.folder()?;
        let keeper = timeline.blows.iter().any(|(_, blow)| blow.is_kept());
        let setting = Setting { drive, volumes: 1, journal: true, in_file: true, keeper };
        let mut node = NodeProcess::start(&folder, setting)?;
        let target = node.targets().remove(0);
        let load = client::verify(&target, timeline)?;
        let begun = Instant::now();
        for (at, blow) in &timeline.blows {
            std::thread::sleep(Duration::from_nanos(at.0).saturating_sub(begun.elapsed()));
            strike(&mut node, *blow)?;
        }
        load.end()
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(time.as_nanos() as u64)
}

fn strike(node: &mut NodeProcess, blow: Blow) -> Result<(), String> {
    match blow {
        Blow::Restart => node.stop()?,
        Blow::StopStart(pause) => {
            node.stop()?;
            std::thread::sleep(Duration::from_nanos(pause.0));
        }
        Blow::Kill => node.kill()?,
        Blow::KillWorker => return node.kill_worker(),
        Blow::Upgrade => return node.upgrade(),
    }
    node.start_again()
}

/// Where a file lies in a server's folder.
fn inside(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}
