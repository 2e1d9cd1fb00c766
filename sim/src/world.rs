//! A drive, its clients, and the time.

use crate::client::{Lane, RequestSource, SimulatedClient};
use crate::host::Answers;
use crate::trace::{Replay, TraceError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_controller::{
    Attach, BlockRequest, ControllerHandle, DriveStats, Effect, Effects, Event, NamespaceConfig, Op, Owner, Subsystem,
    SubsystemConfig, Tag, TenantConfig, TimingModel, TransportModel,
};
use weir_drive::{DriveSpeed, MachineTime};
use weir_driver::health::Evidence;
use weir_fault::{FaultRule, RuleError};
use weir_spec::nvme::Status;
use weir_units::{Bytes, Class, Nanos};
use weir_workload::{Generator, Job, JobRegion, JobResult, JobTarget, Recorder, RequestKind};

/// A world that cannot be; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldError(String);

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorldError {}

impl WorldError {
    pub(crate) fn new(text: impl std::fmt::Display) -> WorldError {
        WorldError(text.to_string())
    }
}

fn refuse(text: impl std::fmt::Display) -> WorldError {
    WorldError::new(text)
}

/// Commands that may wait without being a backlog.
const NEXT_TO_NOTHING: u64 = 8;

/// The one namespace.
const NSID: u32 = 1;

/// What a world is made of, beside the drive's own configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Bytes of the drive.
    pub capacity: u64,
    /// Bytes of a block, 512 or 4096.
    pub block: u32,
    /// Who uses it; tenants are those of the drive's configuration.
    pub clients: Vec<SimulatedClient>,
    /// For everything random.
    pub seed: u64,
    /// Nothing is counted before this; a job's start counts from here.
    pub ramp: Nanos,
    /// Length of an interval of the series.
    pub series: Option<Nanos>,
    /// No more requests than this, over all clients.
    pub requests: Option<u64>,
}

impl Setup {
    /// A drive of 512-byte blocks, counted from its first request on.
    pub fn new(capacity: u64, clients: Vec<SimulatedClient>, seed: u64) -> Setup {
        Setup { capacity, block: 512, clients, seed, ramp: Nanos(0), series: None, requests: None }
    }
}

/// A command that was submitted and not answered.
#[derive(Clone, Copy, Debug)]
struct Command {
    lane: u32,
    len: u32,
    since: Nanos,
    kind: RequestKind,
}

/// An answer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnsweredRequest {
    /// From when on its latency counts.
    pub since: Nanos,
    /// When it was given.
    pub at: Nanos,
}

/// One job and what it got.
#[derive(Debug)]
struct Account {
    client: SimulatedClient,
    recorder: Recorder,
    class: Class,
    /// Its copies that have requests left; when none has, its last answer ends its time.
    open: u32,
    last: Nanos,
    /// Its controller.
    front: ControllerHandle,
}

const fn kind(op: Op) -> RequestKind {
    match op {
        Op::Write => RequestKind::Write,
        _ => RequestKind::Read,
    }
}

/// One drive and its clients in virtual time.
///
/// ```
/// use weir_sim::SimulatedDrive;
/// use weir_controller::SubsystemConfig;
/// use weir_units::{Class, Nanos};
/// use weir_workload::Job;
///
/// let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:sim");
/// config.latency = Nanos::from_micros(100);
/// let jobs = ["name=gold,class=high,qd=128", "name=tin,class=low,bs=8KiB,qd=128"];
/// let jobs: Vec<Job> = jobs.iter().map(|text| Job::parse(text, &Job::default()).unwrap()).collect();
/// let mut world = SimulatedDrive::new(config, &jobs, 1 << 30, 42).unwrap();
/// world.run_until(Nanos::from_millis(100));
/// let ratio = world.bytes(0) as f64 / world.bytes(1) as f64;
/// assert!((ratio - 4.0).abs() < 0.05, "128 KiB to 32 KiB a round");
/// ```
#[derive(Debug)]
pub struct SimulatedDrive {
    drive: Subsystem,
    effects: Effects,
    answers: Answers,
    accounts: Vec<Account>,
    lanes: Vec<Lane>,
    /// Lanes that wait for the time.
    wake: BinaryHeap<Reverse<(Nanos, u32)>>,
    commands: Vec<Command>,
    free: Vec<u32>,
    now: Nanos,
    ramp: Nanos,
    series: Option<Nanos>,
    /// Requests that may still be submitted.
    left: u64,
    answered: u64,
    /// Of everything that was answered, in order (FNV-1a over words).
    digest: u64,
    most_bytes: u64,
    /// Every answer, where somebody wants to know.
    kept: Option<Vec<AnsweredRequest>>,
    /// Without power until then: nobody submits.
    down_until: Nanos,
}

impl SimulatedDrive {
    /// A drive of `capacity` bytes whose tenants are the jobs, by their classes (medium if a job names none).
    ///
    /// # Errors
    /// As [`SimulatedDrive::with`].
    pub fn new(
        mut config: SubsystemConfig,
        jobs: &[Job],
        capacity: u64,
        seed: u64,
    ) -> Result<SimulatedDrive, WorldError> {
        config.tenants = jobs.iter().map(own_tenant).collect();
        let clients = jobs.iter().enumerate().map(|(at, job)| SimulatedClient::new(job, at as u16)).collect();
        SimulatedDrive::with(config, None, Setup::new(capacity, clients, seed))
    }

    /// A drive and its clients. `inside` decides how long commands take, where it is not the fixed latency.
    ///
    /// # Errors
    /// A drive without latency and inside (time would stand still), a configuration that the drive refuses, a job that the drive
    /// cannot serve, or a trace that cannot be read.
    pub fn with(
        mut config: SubsystemConfig,
        inside: Option<Box<dyn TimingModel>>,
        setup: Setup,
    ) -> Result<SimulatedDrive, WorldError> {
        if config.latency == Nanos(0) && inside.is_none() {
            return Err(refuse("a drive without latency takes no virtual time"));
        }
        let Setup { capacity, block, clients, seed, ramp, series, requests } = setup;
        config.namespaces =
            vec![NamespaceConfig { nsid: NSID, start: 0, size: capacity, block_size: block, uuid: [1; 16] }];
        let classes: Vec<(Class, Class)> =
            config.tenants.iter().map(|t| (t.class, if t.urgent { Class::Urgent } else { t.class })).collect();
        let mut drive = Subsystem::new(config, Nanos(0)).map_err(refuse)?;
        if let Some(inside) = inside {
            drive.set_service(inside);
        }
        let mut world = SimulatedDrive {
            drive,
            effects: Effects::new(256),
            answers: Answers::default(),
            accounts: Vec::new(),
            lanes: Vec::new(),
            wake: BinaryHeap::new(),
            commands: Vec::new(),
            free: Vec::new(),
            now: Nanos(0),
            ramp,
            series,
            left: requests.unwrap_or(u64::MAX),
            answered: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            most_bytes: 0,
            kept: None,
            down_until: Nanos(0),
        };
        for (at, client) in clients.into_iter().enumerate() {
            let classes_of = classes.get(usize::from(client.tenant)).copied();
            let (class, ceiling) = classes_of.ok_or_else(|| refuse("a client of a tenant that there is not"))?;
            let class = client.wish.map_or(class, |wish| wish.at_most(ceiling));
            world.join(at, client, class, JobTarget { capacity, block, max_io: 1 << 30 }, seed)?;
        }
        Ok(world)
    }

    fn join(
        &mut self,
        at: usize,
        client: SimulatedClient,
        class: Class,
        device: JobTarget,
        seed: u64,
    ) -> Result<(), WorldError> {
        let (owner, job) = (Owner(at as u32), &client.job);
        let front = Attach { tenant: client.tenant, owner, model: TransportModel::Front, host: job.name.clone() };
        let front = self.drive.attach(self.now, front).map_err(|e| refuse(format_args!("job {}: {e}", job.name)))?;
        // As `weir bench` has it: who has no start of its own warms up with the drive.
        let start = if job.start == Nanos(0) { Nanos(0) } else { self.ramp.saturating_add(job.start) };
        let end = job.time.map_or(Nanos::NEVER, |time| start.max(self.ramp).saturating_add(time));
        let seed = seed ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for copy in 0..job.copies {
            let queue = self.drive.add_message_queue(front, job.depth, client.wish, owner);
            let queue = queue.map_err(|e| refuse(format_args!("job {}: {e}", job.name)))?;
            let source = source(&client, device, (copy, seed), start)?;
            self.wake.push(Reverse((start, self.lanes.len() as u32)));
            let depth = job.depth;
            self.lanes.push(Lane { job: at, queue, source, outstanding: 0, depth, start, end, armed: true });
        }
        let (recorder, open) = (Recorder::new(self.ramp, self.series), job.copies);
        // What a trace reads and what it writes are two loads; a job's mix is drawn from one.
        let recorder = if client.trace.is_some() { recorder.by_kind() } else { recorder };
        self.accounts.push(Account { recorder, class, open, last: self.ramp, client, front });
        Ok(())
    }

    /// Keeps the latencies of writes apart from the others, from here on: before the first request.
    pub fn tell_kinds_apart(&mut self) {
        let series = self.series;
        self.accounts.iter_mut().for_each(|a| a.recorder = Recorder::new(self.ramp, series).by_kind());
    }

    /// Keeps every answer from here on.
    pub fn keep_answers(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// What was [kept](Self::keep_answers), in the order in which it was given.
    pub fn answers_kept(&self) -> &[AnsweredRequest] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Lets everything happen up to and including `end`.
    pub fn run_until(&mut self, end: Nanos) {
        while self.advance(end, u64::MAX) {}
        self.now = self.now.max(end);
    }

    /// Lets at most so many moments pass, none of them behind `end`; false when nothing more is to happen until then.
    pub fn advance(&mut self, end: Nanos, moments: u64) -> bool {
        for _ in 0..moments {
            let wake = self.wake.peek().map_or(Nanos::NEVER, |Reverse((at, _))| *at);
            if !self.drive.has_work() {
                self.drive.run_ahead(wake.min(Nanos(end.0.saturating_add(1))));
            }
            let due = self.drive.next_deadline().unwrap_or(Nanos::NEVER);
            // What was done to the drive from outside happens now.
            let next = if self.drive.has_work() { self.now } else { due.min(wake).max(self.now) };
            if next > end || next == Nanos::NEVER {
                return false;
            }
            self.now = next;
            if due <= next {
                self.drive.apply(next, Event::Tick, &mut self.answers, &mut self.effects);
                self.execute();
            }
            while self.wake.peek().is_some_and(|Reverse((at, _))| *at <= next) {
                let Some(Reverse((_, lane))) = self.wake.pop() else { break };
                self.lanes[lane as usize].armed = false;
                self.fill(lane as usize);
            }
            while self.drive.has_work() {
                self.drive.apply(next, Event::Run, &mut self.answers, &mut self.effects);
                self.most_bytes = self.most_bytes.max(self.drive.bytes_in_flight());
                self.execute();
            }
        }
        true
    }

    /// Media that holds nothing answers at once: the drive has let the service time pass.
    fn execute(&mut self) {
        // Only `Run` and `Tick` push effects, so none are added here.
        for at in 0..self.effects.len() {
            match self.effects.as_slice()[at] {
                Effect::Io(io) => {
                    let event = Event::Done { slot: io.slot, status: Status::SUCCESS };
                    self.drive.apply(self.now, event, &mut self.answers, &mut self.effects);
                }
                Effect::Disconnect { .. } => unreachable!("clients keep to their queues' depth"),
            }
        }
        self.effects.clear();
        for at in 0..self.answers.0.len() {
            let (tag, status) = self.answers.0[at];
            self.answered(tag, status);
        }
        self.answers.0.clear();
    }

    #[inline]
    fn answered(&mut self, tag: Tag, status: Status) {
        let Command { lane, len, since, kind } = self.commands[tag.0 as usize];
        self.free.push(tag.0);
        self.answered += 1;
        let lane = lane as usize;
        self.lanes[lane].outstanding -= 1;
        for word in [self.now.0, u64::from(tag.0) << 32 | u64::from(len), u64::from(status.field())] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(kept) = &mut self.kept {
            kept.push(AnsweredRequest { since, at: self.now });
        }
        let account = &mut self.accounts[self.lanes[lane].job];
        account.last = self.now;
        account.recorder.tick(self.now);
        if self.now < self.ramp {
        } else if status.is_success() {
            account.recorder.record(self.now.0 - since.0, len, kind);
        } else {
            account.recorder.error();
        }
        self.fill(lane);
    }

    /// The power goes now and is back when `inside` says so, which loses what it loses; commands on their way are never
    /// answered, and clients go on with new ones. How many were on their way.
    ///
    /// # Errors
    /// The drive does not take its clients back.
    pub fn power_cut(&mut self, inside: impl FnOnce(&mut dyn TimingModel, Nanos) -> Nanos) -> Result<u64, WorldError> {
        self.drive.power_cut();
        let takes = self.drive.service_mut().map_or(Nanos(0), |service| inside(service, self.now));
        self.down_until = self.now.saturating_add(takes);
        for (at, account) in self.accounts.iter_mut().enumerate() {
            let (client, owner) = (&account.client, Owner(at as u32));
            self.drive.detach(self.now, account.front);
            let front =
                Attach { tenant: client.tenant, owner, model: TransportModel::Front, host: client.job.name.clone() };
            account.front = self.drive.attach(self.now, front).map_err(refuse)?;
            for lane in self.lanes.iter_mut().filter(|l| l.job == at) {
                lane.queue =
                    self.drive.add_message_queue(account.front, lane.depth, client.wish, owner).map_err(refuse)?;
            }
        }
        let lost: u64 = self.lanes.iter_mut().map(|lane| u64::from(std::mem::take(&mut lane.outstanding))).sum();
        self.free = (0..self.commands.len() as u32).collect();
        for (at, lane) in (0..).zip(&mut self.lanes) {
            // Whoever was woken meanwhile finds no power.
            lane.armed = true;
            self.wake.push(Reverse((self.down_until, at)));
        }
        Ok(lost)
    }

    /// Submits as many commands as depth, rate and time permit.
    #[inline]
    fn fill(&mut self, at: usize) {
        if self.now < self.down_until {
            return;
        }
        loop {
            let lane = &mut self.lanes[at];
            if lane.outstanding >= lane.depth || self.now >= lane.end || self.left == 0 {
                return;
            }
            let due = lane.source.due().max(lane.start);
            if due > self.now {
                if due < lane.end && !lane.armed {
                    lane.armed = true;
                    self.wake.push(Reverse((due, at as u32)));
                }
                return;
            }
            let Some(draw) = lane.source.take() else { return };
            if let Some(ahead) = lane.source.ahead() {
                self.drive.expect(NSID, ahead);
            }
            if lane.source.due() == Nanos::NEVER {
                self.accounts[lane.job].open -= 1;
            }
            lane.outstanding += 1;
            self.left -= 1;
            let since = if lane.source.counts_from_due() { draw.due } else { self.now };
            let command = Command { lane: at as u32, len: draw.len, since, kind: kind(draw.op) };
            let queue = lane.queue;
            let tag = match self.free.pop() {
                Some(tag) => {
                    self.commands[tag as usize] = command;
                    tag
                }
                None => {
                    self.commands.push(command);
                    self.commands.len() as u32 - 1
                }
            };
            let request = BlockRequest { op: draw.op, nsid: NSID, offset: draw.offset, len: draw.len, fua: draw.fua };
            let event = Event::Submit { queue, request, tag: Tag(tag) };
            self.drive.apply(self.now, event, &mut self.answers, &mut self.effects);
        }
    }

    /// One more rule of failures, from now on.
    ///
    /// # Errors
    /// It can never apply to this drive, or contradicts another.
    pub fn add_fault(&mut self, rule: FaultRule) -> Result<u32, RuleError> {
        self.drive.add_fault(self.now, rule)
    }

    /// Looks at the drive's speed, as a node does every second; here nothing but the drive is ever late.
    pub fn look_at_speed(&mut self, speed: &mut DriveSpeed) -> Option<Evidence> {
        speed.look(self.now, &self.drive, MachineTime::default(), true)
    }

    /// What the drive counted.
    pub fn stats(&self) -> DriveStats {
        self.drive.stats()
    }

    /// Whether as many requests were submitted as may be.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// The drive's inside, if it was given one.
    pub fn inside(&self) -> Option<&dyn TimingModel> {
        self.drive.service()
    }

    /// The drive, to change its settings while it runs.
    pub fn drive(&mut self) -> &mut Subsystem {
        &mut self.drive
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Requests answered so far.
    pub fn answers(&self) -> u64 {
        self.answered
    }

    /// Bytes that a job has moved so far.
    pub fn bytes(&self, job: usize) -> u64 {
        self.accounts[job].recorder.bytes()
    }

    /// Requests of a job answered so far, with and without success.
    pub fn answered_so_far(&self, job: usize) -> (u64, u64) {
        self.accounts[job].recorder.so_far()
    }

    /// Whether a job's rate is served: its queues are not full, and hold next to nothing beside what was answered. `None` for a
    /// closed loop, which asks as fast as it is answered.
    pub fn keeps_up(&self, job: usize) -> Option<bool> {
        let lanes = || self.lanes.iter().filter(|lane| lane.job == job);
        if lanes().any(|lane| !lane.source.counts_from_due()) {
            return None;
        }
        let waiting: u64 = lanes().map(|lane| u64::from(lane.outstanding)).sum();
        let (answered, failed) = self.answered_so_far(job);
        let late = lanes().any(|lane| lane.source.due() < self.now && lane.outstanding >= lane.depth);
        Some(!late && waiting <= NEXT_TO_NOTHING.max((answered + failed) / 100))
    }

    /// The most bytes that were ever in flight.
    pub fn most_bytes_in_flight(&self) -> Bytes {
        Bytes(self.most_bytes)
    }

    /// Stands for every answer so far, its time and its place in the order.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What ended a trace before its end.
    pub fn trace_error(&self) -> Option<&TraceError> {
        self.lanes.iter().find_map(|lane| match &lane.source {
            RequestSource::Trace(replay) => replay.error(),
            _ => None,
        })
    }

    /// Every job's figures over the time it had.
    pub fn results(&self) -> Vec<JobResult> {
        let one = |account: &Account| self.result(&account.client.job.name, Some(account.class), &[account]);
        self.accounts.iter().map(one).collect()
    }

    /// The part of a job's requests that took longer than that.
    pub fn above(&self, job: usize, latency: Nanos) -> f64 {
        self.accounts[job].recorder.above(latency.get())
    }

    /// The figures of all jobs of a tenant together.
    pub fn tenant(&self, tenant: u16, name: &str, class: Class) -> JobResult {
        let own: Vec<&Account> = self.accounts.iter().filter(|a| a.client.tenant == tenant).collect();
        JobResult { kinds: Vec::new(), ..self.result(name, Some(class), &own) }
    }

    /// The figures of all jobs together; kinds are told apart in the jobs.
    pub fn total(&self) -> JobResult {
        JobResult { kinds: Vec::new(), ..self.result("total", None, &self.accounts.iter().collect::<Vec<_>>()) }
    }

    fn result(&self, name: &str, class: Option<Class>, accounts: &[&Account]) -> JobResult {
        let mut all = Recorder::new(self.ramp, self.series);
        let (mut from, mut to) = (Nanos::NEVER, Nanos(0));
        for account in accounts {
            let mut recorder = account.recorder.clone();
            recorder.tick(self.now);
            all.merge(&recorder);
            let (first, last) = self.active(account);
            (from, to) = (from.min(first), to.max(last));
        }
        JobResult::of(name.to_string(), class, &all, to.saturating_sub(from))
    }

    /// From when to when a job's requests count.
    fn active(&self, account: &Account) -> (Nanos, Nanos) {
        let job = &account.client.job;
        let first = self.ramp.saturating_add(job.start);
        let last = job.time.map_or(self.now, |time| self.now.min(first.saturating_add(time)));
        // A trace that is over, or a run of so many requests, ends with its last answer.
        let over = account.open == 0 || self.left == 0;
        (first, if over { last.min(account.last.max(first)) } else { last })
    }

    /// Panics where an invariant is broken: the drive's, and that nobody's commands were lost.
    pub fn check(&self) {
        self.drive.check();
        let outstanding: usize = self.lanes.iter().map(|lane| lane.outstanding as usize).sum();
        assert_eq!(outstanding + self.free.len(), self.commands.len(), "a command is outstanding or answered");
        for lane in &self.lanes {
            assert_eq!(self.drive.outstanding(lane.queue), lane.outstanding, "the drive and its client disagree");
        }
    }
}

fn source(
    client: &SimulatedClient,
    device: JobTarget,
    (copy, seed): (u32, u64),
    start: Nanos,
) -> Result<RequestSource, WorldError> {
    let job = &client.job;
    if let Some(draws) = &client.draws {
        return Ok(RequestSource::List(draws.clone(), 0));
    }
    let Some((trace, timing, fit)) = &client.trace else {
        let generator = Generator::new(job, device, copy, seed).map_err(refuse)?;
        return Ok(match generator.pacer(job, start) {
            Some(pacer) => RequestSource::Open(generator, pacer),
            None => RequestSource::closed(generator),
        });
    };
    let region = job.region.unwrap_or(JobRegion { offset: 0, len: device.capacity });
    let block = u64::from(device.block);
    let end = region.offset.saturating_add(region.len);
    if end > device.capacity || (region.offset | region.len) % block != 0 {
        let what = "the region is no part of the drive in whole blocks";
        return Err(refuse(format_args!("job {}: {what} (it has {})", job.name, Bytes(device.capacity))));
    }
    let replay = Replay::open(trace, (*timing, *fit), region, device.block, start).map_err(refuse)?;
    Ok(RequestSource::Trace(Box::new(replay)))
}

/// The tenant that a job without one is.
pub(crate) fn own_tenant(job: &Job) -> TenantConfig {
    TenantConfig::new(&job.name, job.class.unwrap_or(Class::Medium))
}
