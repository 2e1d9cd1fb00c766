//! Nodes as processes of their own, and loads on them: what the reproductions of papers/001 measure.
//!
//! ```text
//!   StoreProcesses ─ StoreProcess (weir up with [store])   core 0   drives in the store and beside it; weir fs bench
//!                    sort ─ Hadoop's TeraSort           a node for each step, Java's processes
//!   Processes ─┬─ NodeProcess (weir up)      core 0   volumes on a drive, by vhost-user
//!              ├─ RemoteDrives (weir up, twice)      volumes on drives of another node, which fail by rule: core 0, and the last one
//!              ├─ Qemu (qemu-storage-daemon) core 0   a file in memory
//!              └─ weir bench, or a thread that asks   the last core
//! ```
//! Servers sleep while they have nothing to do, so that one that is not its turn takes nothing from the others. Everything lies
//! in a folder of its own, in memory where there is /dev/shm, which goes with the processes.

mod client;
mod process;
mod remote;
mod sort;
mod store;

pub use store::StoreProcesses;

use client::{FILL, Gap, ask_once, bench, fill};
use process::{NodeProcess, Qemu, Scratch, Setting, VOLUME, nanos};
use remote::{RemoteDrives, RemoteSetting};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_sim::reproduce::{
    Blow, Case, LossKind, Nodes, Outage, PaperDrive, Program, Server, Start, Survived, Timeline,
};
use weir_units::Nanos;
use weir_workload::Summary;

/// Before a run counts: what the run before has left in the drive's buffer is written meanwhile.
const RAMP: Nanos = Nanos::from_millis(60);
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
        if let Program::ResetsDrive(reset) = program {
            let mut drives = RemoteDrives::start(
                &folder,
                &RemoteSetting { drive, count: 1, pooled: false, fast_io_fail_tmo: None },
            )?;
            drives.add_rule(0, &["slow-reset", &format!("time={}ns", reset.0)])?;
            drives.restart_front()?;
            let mut steps = drives.steps().to_vec();
            steps.push(("first answer".into(), nanos(ask_once(&drives.targets()[0])?)));
            return Ok(Start { steps });
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
        if timeline.blows.iter().any(|(_, blow)| blow.is_of_drive()) {
            return survive_resets(&folder, drive, timeline);
        }
        let keeper = timeline.blows.iter().any(|(_, blow)| blow.is_kept());
        let setting = Setting { drive, volumes: 1, journal: true, in_file: true, keeper };
        let mut node = NodeProcess::start(&folder, setting)?;
        let target = node.targets().remove(0);
        let load = client::verify(&target, 8, timeline.time, timeline.series)?;
        let begun = Instant::now();
        for (at, blow) in &timeline.blows {
            sleep_until(begun, *at);
            strike(&mut node, *blow)?;
        }
        load.end()
    }

    fn lose_drive(&mut self, drive: PaperDrive, outage: &Outage) -> Result<[Survived; 2], String> {
        let (rule, fast_io_fail_tmo) = match outage.kind {
            LossKind::Removal => ("removal", Some(Nanos(0))),
            LossKind::Link => ("link-loss", None),
        };
        let setting = RemoteSetting { drive, count: 2, pooled: true, fast_io_fail_tmo };
        let drives = RemoteDrives::start(&self.folder()?, &setting)?;
        let [first, second] = drives.targets().try_into().map_err(|_| "two drives have two volumes")?;
        let load = |target: &String| client::verify(target, 4, outage.time, outage.series);
        let loads = (load(&first)?, load(&second)?);
        let begun = Instant::now();
        sleep_until(begun, outage.lost_at);
        let lasts = format!("lasts={}ns", outage.back_at.0 - outage.lost_at.0);
        drives.add_rule(1, &[rule, &lasts])?;
        Ok([loads.0.end()?, loads.1.end()?])
    }
}

/// The load of a timeline on a drive of another node, whose controller fails.
fn survive_resets(folder: &Path, drive: PaperDrive, timeline: &Timeline) -> Result<Survived, String> {
    let drives = RemoteDrives::start(folder, &RemoteSetting { drive, count: 1, pooled: true, fast_io_fail_tmo: None })?;
    let load = client::verify(&drives.targets()[0], 8, timeline.time, timeline.series)?;
    let begun = Instant::now();
    for (at, blow) in &timeline.blows {
        sleep_until(begun, *at);
        let Blow::ResetDrive(reset) = blow else { return Err(format!("{} is not of the drive", blow.name())) };
        drives.remove_rules(0)?;
        drives.add_rule(0, &["slow-reset", &format!("time={}ns", reset.0)])?;
        drives.add_rule(0, &["controller-fatal"])?;
    }
    load.end()
}

fn sleep_until(begun: Instant, at: Nanos) {
    std::thread::sleep(Duration::from_nanos(at.0).saturating_sub(begun.elapsed()));
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
        Blow::ResetDrive(_) => return Err("this node's drive is its own".into()),
    }
    node.start_again()
}
