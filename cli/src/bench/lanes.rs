//! Threads, queue pairs and the workers on them.

use super::args::Run;
use super::live::Live;
use super::schedule;
use super::worker::{Progress, Worker};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use weir_controller::DriveStats;
use weir_driver::nvme_tcp::Options as TcpOptions;
use weir_driver::vhost_user::Options as VhostOptions;
use weir_driver::{QueuePair, TransportError};
use weir_node::config::{ConfigError, DeviceConfig};
use weir_node::flash::FlashFigures;
use weir_node::local::{Local, LocalError, LocalTenant};
use weir_node::target::Target;
use weir_sys::reactor::now;
use weir_sys::transport::{nvme_tcp, vhost_user};
use weir_units::{Class, Nanos};
use weir_workload::verify::Verifier;
use weir_workload::{Device, Generator, Job, Recorder, Region, WorkloadError};

/// Polls without news between looks at the clock: it costs as much as polling shared memory twice.
const POLLS_A_LOOK: u32 = 8;
/// Looks between checks for a target that has gone silent.
const LOOKS_A_CHECK: u32 = 1024;

/// What a run gave.
pub struct Outcome {
    /// What each job counted.
    pub recorders: Vec<Recorder>,
    /// What went wrong first, and in which job.
    pub trouble: Option<(usize, String)>,
    /// The drive's own figures.
    pub device: Option<DriveFigures>,
}

/// Why a run ended early.
#[derive(Debug)]
pub enum BenchError {
    /// The local drive's keys.
    Config(ConfigError),
    /// The local drive.
    Local(LocalError),
    /// The way to the target.
    Transport(TransportError),
    /// The job does not fit the drive.
    Workload(WorkloadError),
    /// The machine.
    Machine(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Config(e) => e.fmt(f),
            BenchError::Local(e) => e.fmt(f),
            BenchError::Transport(e) => e.fmt(f),
            BenchError::Workload(e) => e.fmt(f),
            BenchError::Machine(e) => f.write_str(e),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<TransportError> for BenchError {
    fn from(e: TransportError) -> Self {
        BenchError::Transport(e)
    }
}

impl From<WorkloadError> for BenchError {
    fn from(e: WorkloadError) -> Self {
        BenchError::Workload(e)
    }
}

/// A queue pair of another process with its worker.
type Lane = (Box<dyn QueuePair + Send>, Worker);

/// What a thread hands back.
type Finished = Result<(Vec<Worker>, Option<DriveFigures>), BenchError>;

/// A local drive's, and its flash's.
type DriveFigures = (DriveStats, Option<FlashFigures>);

/// Runs all jobs to their ends.
///
/// # Errors
/// The target cannot be had, does not fit the jobs, or goes away.
pub fn execute(run: &Run) -> Result<Outcome, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let progress: Vec<Arc<Progress>> = (0..run.copies()).map(|_| Arc::default()).collect();
    let threads = match &run.targets[0] {
        Target::Local { kind, query } => {
            let config = DeviceConfig::from_query(kind, query).map_err(BenchError::Config)?;
            let (run, progress) = (run.clone(), progress.clone());
            vec![spawn(move || serve_local(&run, &config, &progress))?]
        }
        _ => spread(run, &progress, &stop)?,
    };
    let mut live = Live::new(Nanos(run.ramp.get().saturating_add(run.time.get())));
    live.follow(&progress, || {
        let ended = threads.iter().all(JoinHandle::is_finished);
        ended || stop.load(Ordering::Relaxed)
    });
    collect(run, threads)
}

fn spawn(f: impl FnOnce() -> Finished + Send + 'static) -> Result<JoinHandle<Finished>, BenchError> {
    let named = thread::Builder::new().name("bench".to_string());
    named.spawn(f).map_err(|e| BenchError::Machine(format!("cannot start a thread: {e}")))
}

fn collect(run: &Run, threads: Vec<JoinHandle<Finished>>) -> Result<Outcome, BenchError> {
    let mut workers = Vec::new();
    let mut device = None;
    let mut failure = None;
    for thread in threads {
        match thread.join() {
            Ok(Ok((more, stats))) => {
                workers.extend(more);
                device = device.or(stats);
            }
            Ok(Err(e)) => {
                failure.get_or_insert(e);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    if let Some(e) = failure {
        return Err(e);
    }
    let mut recorders: Vec<Recorder> = run.jobs.iter().map(|_| Recorder::new(Nanos(0), run.series)).collect();
    let mut trouble = None;
    for worker in workers {
        let job = worker.job;
        let (recorder, wrong) = worker.into_result();
        recorders[job].merge(&recorder);
        trouble = trouble.or(wrong.map(|text| (job, text)));
    }
    Ok(Outcome { recorders, trouble, device })
}

/// One copy of a job as a worker on its queue pair.
fn worker<Q: QueuePair>(
    run: &Run,
    (index, copy): (usize, u32),
    pair: &mut Q,
    origin: Nanos,
    progress: Arc<Progress>,
) -> Result<Worker, BenchError> {
    let job = &run.jobs[index];
    if pair.depth() < job.depth {
        let (name, wanted, most) = (&job.name, job.depth, pair.depth());
        let text = format!("job {name}: a depth of {wanted} is more than the target's queue takes, {most}");
        return Err(TransportError::Refused(text).into());
    }
    let device = Device { capacity: pair.capacity(), block: pair.block_size(), max_io: pair.max_io() };
    let seed = run.seed.wrapping_add((index as u64) << 32);
    let (job, copy) = if run.verify { (part(run, index, copy, device), 0) } else { (job.clone(), copy) };
    let generator = Generator::new(&job, device, copy, seed)?;
    let verifier = match run.verify {
        false => None,
        true => {
            // Blocks of an earlier run with the same seed must not pass for this one's.
            let id = now().get() ^ u64::from(std::process::id()) << 40 ^ seed.rotate_left(17);
            let strict = !job.pattern.writes();
            Some(Verifier::new(generator.region(), device.block, id, strict, weir_sys::crc::crc32c)?)
        }
    };
    let times = schedule(run, &job, origin);
    Ok(Worker::new((index, &job), pair, generator, verifier, times, run.series, progress))
}

/// A verifying copy's own part of the drive: nobody else writes there. Jobs without a region share the drive evenly.
fn part(run: &Run, index: usize, copy: u32, device: Device) -> Job {
    let job = &run.jobs[index];
    let split = |region: Region, n: u64, i: u64| {
        let align = u64::from(job.sizes.max().max(device.block));
        let share = region.len / n / align * align;
        Region { offset: region.offset + share * i, len: share }
    };
    let whole = Region { offset: 0, len: device.capacity };
    let own = job.region.unwrap_or_else(|| {
        let without = run.jobs.iter().filter(|j| j.region.is_none()).count() as u64;
        let before = run.jobs[..index].iter().filter(|j| j.region.is_none()).count() as u64;
        split(whole, without, before)
    });
    let own = split(own, u64::from(job.copies), u64::from(copy));
    Job { region: Some(own), copies: 1, ..job.clone() }
}

/// Every copy of every job, in order.
fn copies(run: &Run) -> impl Iterator<Item = (usize, u32)> + '_ {
    run.jobs.iter().enumerate().flat_map(|(i, job)| (0..job.copies).map(move |c| (i, c)))
}

fn pin(cores: &[usize], thread: usize) -> Result<(), BenchError> {
    match cores.get(thread) {
        Some(core) => weir_sys::sched::pin(*core).map_err(|e| BenchError::Machine(e.to_string())),
        None => Ok(()),
    }
}

/// A drive in this thread and all jobs on it.
fn serve_local(run: &Run, config: &DeviceConfig, progress: &[Arc<Progress>]) -> Finished {
    pin(&run.cores, 0)?;
    let tenant = |j: &Job| LocalTenant { name: j.name.clone(), class: j.class.unwrap_or(Class::Medium) };
    let tenants: Vec<LocalTenant> = run.jobs.iter().map(tenant).collect();
    let mut local = Local::open(config, &tenants, now()).map_err(BenchError::Local)?;
    for (index, _) in copies(run) {
        let job = &run.jobs[index];
        local.connect(index as u16, &job.name, job.depth, job.sizes.max(), now())?;
    }
    let origin = now();
    let mut workers = Vec::new();
    for (client, place) in copies(run).enumerate() {
        let mut pair = local.queue(client, origin);
        workers.push(worker(run, place, &mut pair, origin, progress[client].clone())?);
    }
    turn_local(&mut local, &mut workers)?;
    Ok((workers, Some((local.stats(), local.flash(now())))))
}

/// The loop of a local drive: all fill, the drive runs once, all reap.
fn turn_local(local: &mut Local, workers: &mut [Worker]) -> Result<(), TransportError> {
    let mut time = now();
    let mut quiet = 0u32;
    loop {
        let mut alive = false;
        for (client, worker) in workers.iter_mut().enumerate() {
            let mut pair = local.queue(client, time);
            worker.fill(&mut pair, time)?;
            pair.flush();
            alive |= !worker.is_finished();
        }
        if !alive {
            return Ok(());
        }
        local.run(time);
        time = now();
        quiet += 1;
        for (client, worker) in workers.iter_mut().enumerate() {
            let mut pair = local.queue(client, time);
            pair.reap(&mut worker.done)?;
            if !worker.done.is_empty() {
                worker.reap(&mut pair, time);
                quiet = 0;
            }
        }
        if quiet == LOOKS_A_CHECK {
            quiet = 0;
            workers.iter_mut().try_for_each(|w| w.wait(time))?;
        }
    }
}

/// Connects everything and spreads it over threads.
fn spread(
    run: &Run,
    progress: &[Arc<Progress>],
    stop: &Arc<AtomicBool>,
) -> Result<Vec<JoinHandle<Finished>>, BenchError> {
    let mut pairs: Vec<Box<dyn QueuePair + Send>> = Vec::new();
    let mut shared = Vec::new();
    for (i, (job, target)) in run.jobs.iter().zip(&run.targets).enumerate() {
        match target {
            // One vhost-user socket takes one front end: jobs with the same target share it.
            Target::VhostUser { path } => {
                if !shared.iter().any(|(p, _)| *p == path) {
                    shared.push((path, open_vhost(run, path)?.into_iter()));
                }
                let queues = shared.iter_mut().find(|(p, _)| *p == path).map(|(_, queues)| queues);
                let mine = queues.into_iter().flatten().take(job.copies as usize);
                pairs.extend(mine.map(|q| Box::new(q) as Box<dyn QueuePair + Send>));
            }
            _ => open_tcp(run, i, target, &mut pairs)?,
        }
    }
    let threads = thread_count(run, pairs.len());
    let mut lanes: Vec<Vec<Lane>> = (0..threads).map(|_| Vec::new()).collect();
    let origin = now();
    for (n, ((place, mut pair), progress)) in copies(run).zip(pairs).zip(progress).enumerate() {
        let worker = worker(run, place, &mut pair, origin, progress.clone())?;
        lanes[n % threads].push((pair, worker));
    }
    let start = |(i, lanes)| {
        let (stop, cores) = (stop.clone(), run.cores.clone());
        spawn(move || {
            let ended = pin(&cores, i).and_then(|()| turn_lanes(lanes, &stop));
            if ended.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            ended
        })
    };
    lanes.into_iter().enumerate().map(start).collect()
}

/// A core for the target, the others for us: threads that spin on one core only take turns.
fn thread_count(run: &Run, pairs: usize) -> usize {
    let cores = match run.cores.len() {
        0 => thread::available_parallelism().map_or(1, |n| n.get()).saturating_sub(1),
        n => n,
    };
    cores.clamp(1, pairs.max(1))
}

fn open_vhost(run: &Run, path: &Path) -> Result<Vec<vhost_user::VhostUserQueue>, TransportError> {
    let here = |t: &Target| matches!(t, Target::VhostUser { path: p } if p == path);
    let jobs: Vec<&Job> = run.jobs.iter().zip(&run.targets).filter(|(_, t)| here(t)).map(|(j, _)| j).collect();
    let queues = jobs.iter().map(|j| j.copies).sum::<u32>().min(u32::from(u16::MAX)) as u16;
    let depth = jobs.iter().map(|j| j.depth).max().unwrap_or(1);
    let max_io = jobs.iter().map(|j| j.sizes.max()).max().unwrap_or(4096);
    let options = VhostOptions { queues, packed: run.packed, ..VhostOptions::default() };
    vhost_user::connect(path, options, depth, max_io)
}

fn open_tcp(
    run: &Run,
    index: usize,
    target: &Target,
    pairs: &mut Vec<Box<dyn QueuePair + Send>>,
) -> Result<(), TransportError> {
    let Target::NvmeTcp { host, port, nqn, nsid } = target else {
        return Err(TransportError::Usage("a local drive is one drive".to_string()));
    };
    let job = &run.jobs[index];
    let mut left = job.copies;
    while left > 0 {
        let queues = left.min(u32::from(run.queues));
        let options = TcpOptions {
            nsid: *nsid,
            queues: queues as u16,
            depth: job.depth as u16,
            class: job.class,
            header_digest: run.digests.0,
            data_digest: run.digests.1,
            ..TcpOptions::new(nqn, &host_nqn(run, job))
        };
        let open = nvme_tcp::open(host, *port, &options, job.sizes.max())?;
        pairs.extend(open.into_iter().map(|q| Box::new(q) as Box<dyn QueuePair + Send>));
        left -= queues;
    }
    Ok(())
}

/// Who connects: what the job says, what the command line says, or the built-in tenant of the job's class.
fn host_nqn(run: &Run, job: &Job) -> String {
    let tenant = match job.class {
        Some(Class::High) => "gold",
        Some(Class::Medium) => "silver",
        Some(Class::Low) => "bronze",
        Some(Class::Urgent) | None => "bench",
    };
    let builtin = || format!("nqn.2026-11.io.weir:host:{tenant}");
    job.host.clone().or_else(|| run.hostnqn.clone()).unwrap_or_else(builtin)
}

/// The loop of a thread over queue pairs of other processes.
fn turn_lanes(mut lanes: Vec<Lane>, stop: &AtomicBool) -> Finished {
    let timed = lanes.iter().any(|(_, worker)| worker.is_timed());
    let mut time = now();
    let (mut polls, mut looks) = (0u32, 0u32);
    loop {
        let (mut alive, mut news) = (false, false);
        for (pair, worker) in &mut lanes {
            if worker.is_finished() {
                continue;
            }
            alive = true;
            worker.fill(pair, time)?;
            pair.poll(&mut worker.done)?;
            if !worker.done.is_empty() {
                time = now();
                worker.reap(pair, time);
                news = true;
            }
        }
        if !alive {
            return Ok((lanes.into_iter().map(|(_, worker)| worker).collect(), None));
        }
        polls += 1;
        if news || (!timed && polls % POLLS_A_LOOK != 0) {
            continue;
        }
        time = now();
        looks += 1;
        if looks % LOOKS_A_CHECK == 0 {
            if stop.load(Ordering::Relaxed) {
                return Ok((Vec::new(), None));
            }
            lanes.iter_mut().try_for_each(|(_, worker)| worker.wait(time))?;
        }
    }
}
