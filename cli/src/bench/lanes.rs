//! Threads, queue pairs and the workers on them.

use super::args::BenchRun;
use super::progress::BenchProgress;
use super::schedule;
use super::worker::{Worker, WorkerProgress};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use weir_config::Target;
use weir_config::{ConfigError, DeviceConfig};
use weir_controller::DriveStats;
use weir_drive::FlashFigures;
use weir_driver::{QueuePair, TransportError};
use weir_node::host::{Controller, FrontArbiter, HostQueue, LocalDrive, Options, QueueClass};
use weir_node::local::{Local, LocalError, LocalTenant};
use weir_sys::reactor::now;
use weir_sys::sched::{ClassWatch, RunDelay};
use weir_units::{Class, Nanos};
use weir_workload::verify::Verifier;
use weir_workload::{Generator, Job, JobRegion, JobTarget, Recorder, WorkloadError};

/// Polls without news between looks at the clock: it costs as much as polling shared memory twice.
const POLLS_A_LOOK: u32 = 8;
/// Looks between checks for a target that has gone silent.
const LOOKS_A_CHECK: u32 = 1024;

/// What a run gave.
pub struct BenchResult {
    /// What each job counted.
    pub recorders: Vec<Recorder>,
    /// What went wrong first, and in which job.
    pub trouble: Option<(usize, String)>,
    /// The drive's own figures.
    pub device: Option<DriveFigures>,
    /// For how much of its time a thread was ready to run and had no core, in percent; of the one that lost most.
    pub waited_pct: Option<f64>,
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
    /// The drive has the job in another class than it says.
    Class(String),
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
            BenchError::Class(e) | BenchError::Machine(e) => f.write_str(e),
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
type Lane = (HostQueue, Worker);

/// What a thread hands back.
struct Ended {
    workers: Vec<Worker>,
    device: Option<DriveFigures>,
    /// As [`BenchResult::waited_pct`].
    waited_pct: Option<f64>,
}

type Finished = Result<Ended, BenchError>;

/// How long the calling thread waits for a core from here on.
struct CoreWait {
    delay: Option<RunDelay>,
    before: Nanos,
    begun: Nanos,
}

impl CoreWait {
    fn begin() -> CoreWait {
        let delay = RunDelay::of_this_thread().ok();
        let before = delay.as_ref().and_then(|d| d.read().ok()).unwrap_or_default();
        CoreWait { delay, before, begun: now() }
    }

    /// The part of the time so far, in percent; none where the kernel does not say.
    fn pct(&self) -> Option<f64> {
        let waited = self.delay.as_ref()?.read().ok()?.saturating_sub(self.before);
        let whole = now().saturating_sub(self.begun).as_secs_f64();
        (whole > 0.0).then(|| (waited.as_secs_f64() / whole * 100.0).min(100.0))
    }
}

/// A local drive's, and its flash's.
type DriveFigures = (DriveStats, Option<FlashFigures>);

/// Runs all jobs to their ends.
///
/// # Errors
/// The target cannot be had, does not fit the jobs, or goes away.
pub fn execute(run: &BenchRun) -> Result<BenchResult, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let progress: Vec<Arc<WorkerProgress>> = (0..run.copies()).map(|_| Arc::default()).collect();
    let threads = match &run.targets[0] {
        Target::Local { kind, query } => {
            let config = DeviceConfig::from_query(kind, query).map_err(BenchError::Config)?;
            let (run, progress, stop) = (run.clone(), progress.clone(), stop.clone());
            vec![spawn(move || match &run.arbitrate {
                None => serve_local(&run, &config, &progress),
                Some(_) => arbitrate_local(&run, &config, &progress, &stop),
            })?]
        }
        _ => spread(run, &progress, &stop)?,
    };
    let mut live = BenchProgress::new(Nanos(run.ramp.get().saturating_add(run.time.get())));
    live.follow(&progress, || {
        let ended = threads.iter().all(JoinHandle::is_finished);
        ended || stop.load(Ordering::Relaxed)
    });
    collect(run, threads)
}

/// Runs all jobs of a local drive to their ends, without a line that moves.
///
/// # Errors
/// The drive cannot be had, or does not fit the jobs.
pub fn alone(run: &BenchRun) -> Result<BenchResult, BenchError> {
    let Target::Local { kind, query } = &run.targets[0] else {
        return Err(TransportError::Usage("only a local drive runs in this process".to_string()).into());
    };
    let config = DeviceConfig::from_query(kind, query).map_err(BenchError::Config)?;
    let progress: Vec<Arc<WorkerProgress>> = (0..run.copies()).map(|_| Arc::default()).collect();
    let run_of_thread = run.clone();
    collect(run, vec![spawn(move || serve_local(&run_of_thread, &config, &progress))?])
}

fn spawn(f: impl FnOnce() -> Finished + Send + 'static) -> Result<JoinHandle<Finished>, BenchError> {
    let named = thread::Builder::new().name("bench".to_string());
    named.spawn(f).map_err(|e| BenchError::Machine(format!("cannot start a thread: {e}")))
}

fn collect(run: &BenchRun, threads: Vec<JoinHandle<Finished>>) -> Result<BenchResult, BenchError> {
    let mut workers = Vec::new();
    let (mut device, mut waited_pct, mut failure) = (None, None, None);
    for thread in threads {
        match thread.join() {
            Ok(Ok(ended)) => {
                workers.extend(ended.workers);
                device = device.or(ended.device);
                waited_pct = most(waited_pct, ended.waited_pct);
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
    Ok(BenchResult { recorders, trouble, device, waited_pct })
}

/// The greater of what is known.
fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// One copy of a job as a worker on its queue pair.
fn worker<Q: QueuePair>(
    run: &BenchRun,
    (index, copy): (usize, u32),
    pair: &mut Q,
    origin: Nanos,
    progress: Arc<WorkerProgress>,
) -> Result<Worker, BenchError> {
    let job = &run.jobs[index];
    if pair.depth() < job.depth {
        let (name, wanted, most) = (&job.name, job.depth, pair.depth());
        let text = format!("job {name}: a depth of {wanted} is more than the target's queue takes, {most}");
        return Err(TransportError::Refused(text).into());
    }
    let device = JobTarget { capacity: pair.capacity(), block: pair.block_size(), max_io: pair.max_io() };
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
    let worker = Worker::new((index, &job), pair, generator, verifier, times, run.series, progress);
    Ok(if run.by_kind { worker.by_kind() } else { worker })
}

/// A verifying copy's own part of the drive: nobody else writes there. Jobs without a region share the drive evenly.
fn part(run: &BenchRun, index: usize, copy: u32, device: JobTarget) -> Job {
    let job = &run.jobs[index];
    let split = |region: JobRegion, n: u64, i: u64| {
        let align = u64::from(job.sizes.max().max(device.block));
        let share = region.len / n / align * align;
        JobRegion { offset: region.offset + share * i, len: share }
    };
    let whole = JobRegion { offset: 0, len: device.capacity };
    let own = job.region.unwrap_or_else(|| {
        let without = run.jobs.iter().filter(|j| j.region.is_none()).count() as u64;
        let before = run.jobs[..index].iter().filter(|j| j.region.is_none()).count() as u64;
        split(whole, without, before)
    });
    let own = split(own, u64::from(job.copies), u64::from(copy));
    Job { region: Some(own), copies: 1, ..job.clone() }
}

/// Every copy of every job, in order.
fn copies(run: &BenchRun) -> impl Iterator<Item = (usize, u32)> + '_ {
    run.jobs.iter().enumerate().flat_map(|(i, job)| (0..job.copies).map(move |c| (i, c)))
}

fn pin(cores: &[usize], thread: usize) -> Result<(), BenchError> {
    match cores.get(thread) {
        Some(core) => weir_sys::sched::pin(*core).map_err(|e| BenchError::Machine(e.to_string())),
        None => Ok(()),
    }
}

/// A job's tenant of a local drive. Where the thread decides the class of its queues, it may decide for any.
fn local_tenant(job: &Job) -> LocalTenant {
    LocalTenant { name: job.name.clone(), class: job.class.unwrap_or(Class::High) }
}

/// A drive in this thread and all jobs on it.
fn serve_local(run: &BenchRun, config: &DeviceConfig, progress: &[Arc<WorkerProgress>]) -> Finished {
    pin(&run.cores, 0)?;
    let watch = ClassWatch::of_this_thread(now());
    let tenants: Vec<LocalTenant> = run.jobs.iter().map(local_tenant).collect();
    let mut local = Local::open(config, &tenants, now()).map_err(BenchError::Local)?;
    for (index, _) in copies(run) {
        let (job, tenant) = (&run.jobs[index], index as u16);
        let (depth, buffer) = (job.depth, job.sizes.max());
        match job.class {
            Some(_) => local.connect(tenant, &job.name, depth, buffer, now())?,
            None => local.connect_in(tenant, &job.name, (depth, buffer), thread_class(&watch), now())?,
        };
    }
    let origin = now();
    let mut workers = Vec::new();
    for (client, place) in copies(run).enumerate() {
        let mut pair = local.queue(client, origin);
        workers.push(worker(run, place, &mut pair, origin, progress[client].clone())?);
    }
    let wait = CoreWait::begin();
    turn_local(run, &mut local, &mut workers, watch)?;
    let device = Some((local.stats(), local.flash(now())));
    Ok(Ended { workers, device, waited_pct: wait.pct() })
}

/// What a job without a class is on a local drive.
fn thread_class(watch: &ClassWatch) -> Class {
    watch.class().unwrap_or(Class::Medium)
}

/// The loop of a local drive: all fill, the drive runs once, all reap.
fn turn_local(
    run: &BenchRun,
    local: &mut Local,
    workers: &mut [Worker],
    mut watch: ClassWatch,
) -> Result<(), TransportError> {
    let mut time = now();
    let mut quiet = 0u32;
    let mut changing: Vec<bool> = vec![false; workers.len()];
    loop {
        if watch.look(time) {
            for (change, worker) in changing.iter_mut().zip(&*workers) {
                *change = run.jobs[worker.job].class.is_none();
            }
        }
        let mut alive = false;
        for (client, worker) in workers.iter_mut().enumerate() {
            // A queue in another class is another queue: what is in flight ends first.
            if changing[client] {
                let idle = local.queue(client, time).in_flight() == 0;
                changing[client] = !(idle && local.set_priority(client, thread_class(&watch), time)?);
            }
            let mut pair = local.queue(client, time);
            if !changing[client] {
                worker.fill(&mut pair, time)?;
            }
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

/// A drive in this thread, and arbitration between it and all jobs on it.
fn arbitrate_local(
    run: &BenchRun,
    config: &DeviceConfig,
    progress: &[Arc<WorkerProgress>],
    stop: &AtomicBool,
) -> Finished {
    pin(&run.cores, 0)?;
    let tenants: Vec<LocalTenant> = run.jobs.iter().map(local_tenant).collect();
    let drive = LocalDrive::open(config, &tenants)?;
    let gate = run.arbitrate.map(FrontArbiter::new);
    let open = |index: usize, options: Options| Ok(Controller::on(&drive, index as u16, options));
    let mut pairs = Vec::new();
    for index in 0..run.jobs.len() {
        pairs.extend(queue_pairs(run, index, gate.as_ref(), open)?);
    }
    let lanes = lanes(run, pairs, progress, 1)?;
    let ended = turn_lanes(lanes.into_iter().flatten().collect(), stop)?;
    let local = drive.lock();
    Ok(Ended { device: Some((local.stats(), local.flash(now()))), ..ended })
}

/// Every copy of a job gets a queue pair, of as many controllers as it takes.
fn queue_pairs(
    run: &BenchRun,
    index: usize,
    gate: Option<&FrontArbiter>,
    open: impl Fn(usize, Options) -> Result<Controller, TransportError>,
) -> Result<Vec<HostQueue>, BenchError> {
    let job = &run.jobs[index];
    let seat = gate.map(|gate| (gate.clone(), gate.tenant()));
    let mut pairs = Vec::new();
    while (pairs.len() as u32) < job.copies {
        let queues = (job.copies - pairs.len() as u32).min(u32::from(run.queues)) as u16;
        let options =
            Options { queues, depth: job.depth, max_io: job.sizes.max(), gate: seat.clone(), ..options(run, job) };
        let mut controller = open(index, options)?;
        if gate.is_none() && pairs.is_empty() && matches!(run.targets[index], Target::NvmeTcp { .. }) {
            check_class(run, job, &controller)?;
        }
        for _ in 0..queues {
            pairs.push(controller.queue_pair(queue_class(job))?);
        }
    }
    Ok(pairs)
}

fn options(run: &BenchRun, job: &Job) -> Options {
    Options {
        hostnqn: host_nqn(run, job),
        digests: run.digests,
        packed: run.packed,
        reconnect: run.reconnect,
        ..Options::default()
    }
}

fn queue_class(job: &Job) -> QueueClass {
    job.class.map_or(QueueClass::Thread, QueueClass::Fixed)
}

/// Workers on queue pairs, spread over threads.
fn lanes(
    run: &BenchRun,
    pairs: Vec<HostQueue>,
    progress: &[Arc<WorkerProgress>],
    threads: usize,
) -> Result<Vec<Vec<Lane>>, BenchError> {
    let mut lanes: Vec<Vec<Lane>> = (0..threads).map(|_| Vec::new()).collect();
    let origin = now();
    for (n, ((place, mut pair), progress)) in copies(run).zip(pairs).zip(progress).enumerate() {
        let worker = worker(run, place, &mut pair, origin, progress.clone())?;
        lanes[n % threads].push((pair, worker));
    }
    Ok(lanes)
}

/// Connects everything and spreads it over threads.
fn spread(
    run: &BenchRun,
    progress: &[Arc<WorkerProgress>],
    stop: &Arc<AtomicBool>,
) -> Result<Vec<JoinHandle<Finished>>, BenchError> {
    let gate = run.arbitrate.map(FrontArbiter::new);
    let mut pairs: Vec<HostQueue> = Vec::new();
    let mut shared: Vec<(&Target, Vec<HostQueue>)> = Vec::new();
    for (i, target) in run.targets.iter().enumerate() {
        match target {
            // Such a socket or drive takes one client: jobs with the same target share it.
            Target::VfioUser { .. } | Target::VhostUser { .. } | Target::Pci { .. } => {
                if !shared.iter().any(|(t, _)| *t == target) {
                    shared.push((target, open_socket(run, target, gate.as_ref())?));
                }
                let queues = shared.iter_mut().find(|(t, _)| *t == target).map(|(_, queues)| queues);
                let mine = run.jobs[i].copies as usize;
                pairs.extend(queues.into_iter().flat_map(|q| q.drain(..mine.min(q.len())).collect::<Vec<_>>()));
            }
            _ => pairs
                .extend(queue_pairs(run, i, gate.as_ref(), |i, options| Controller::open(&run.targets[i], options))?),
        }
    }
    let threads = thread_count(run, pairs.len());
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
    lanes(run, pairs, progress, threads)?.into_iter().enumerate().map(start).collect()
}

/// A core for the target, the others for us: threads that spin on one core only take turns.
fn thread_count(run: &BenchRun, pairs: usize) -> usize {
    let cores = match run.cores.len() {
        0 => thread::available_parallelism().map_or(1, |n| n.get()).saturating_sub(1),
        n => n,
    };
    cores.clamp(1, pairs.max(1))
}

/// The queue pairs of all jobs at a vfio-user or vhost-user socket or a PCI drive, in their order.
fn open_socket(run: &BenchRun, target: &Target, gate: Option<&FrontArbiter>) -> Result<Vec<HostQueue>, TransportError> {
    let jobs: Vec<&Job> = run.jobs.iter().zip(&run.targets).filter(|(_, t)| *t == target).map(|(j, _)| j).collect();
    let copies: u32 = jobs.iter().map(|j| j.copies).sum();
    let wanted = Options {
        queues: copies.min(u32::from(u16::MAX)) as u16,
        depth: jobs.iter().map(|j| j.depth).max().unwrap_or(1),
        max_io: jobs.iter().map(|j| j.sizes.max()).max().unwrap_or(4096),
        ..options(run, jobs[0])
    };
    let mut controller = Controller::open(target, wanted)?;
    let mut pairs = Vec::new();
    for job in jobs {
        let seat = gate.map(|gate| (gate.clone(), gate.tenant()));
        for _ in 0..job.copies {
            pairs.push(controller.queue_pair_of(queue_class(job), seat.clone())?);
        }
    }
    Ok(pairs)
}

/// Over NVMe/TCP a host's class is its tenant's: a job whose host was chosen by its class is not measured in another one. Whoever names
/// the host as well is told.
fn check_class(run: &BenchRun, job: &Job, controller: &Controller) -> Result<(), BenchError> {
    let Some(wanted) = job.class else { return Ok(()) };
    let (found, host) = (controller.class_of(wanted), host_nqn(run, job));
    if found == Some(wanted) {
        return Ok(());
    }
    let begin = format!("job {}: class={wanted}", job.name);
    match found {
        Some(found) if job.host.is_none() && run.hostnqn.is_none() => Err(BenchError::Class(format!(
            "{begin}: the drive serves {host} in class {found}: add this NQN to the hosts of a tenant of class {wanted}, name a host \
             of one (host=NQN), or leave the class out"
        ))),
        Some(found) => {
            eprintln!("{begin}: the drive serves {host} in class {found}, as its operator has set");
            Ok(())
        }
        None => {
            eprintln!("{begin}: the drive does not say in which class it serves {host}: the class may not count");
            Ok(())
        }
    }
}

/// Who connects: what the job says, what the command line says, or the built-in tenant of the job's class.
fn host_nqn(run: &BenchRun, job: &Job) -> String {
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
    let wait = CoreWait::begin();
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
            let workers = lanes.into_iter().map(|(_, worker)| worker).collect();
            return Ok(Ended { workers, device: None, waited_pct: wait.pct() });
        }
        polls += 1;
        if news || (!timed && polls % POLLS_A_LOOK != 0) {
            continue;
        }
        time = now();
        looks += 1;
        if looks % LOOKS_A_CHECK == 0 {
            if stop.load(Ordering::Relaxed) {
                return Ok(Ended { workers: Vec::new(), device: None, waited_pct: None });
            }
            lanes.iter_mut().try_for_each(|(_, worker)| worker.wait(time))?;
        }
    }
}
