//! A drive, its clients, and the time.

use crate::host::Answers;
use weir_controller::{
    Attach, Config, Effect, Effects, Event, Model, NamespaceConfig, Op, Owner, Request, SqHandle, Subsystem, Tag,
    TenantConfig,
};
use weir_spec::nvme::Status;
use weir_units::{Bytes, Class, Nanos};
use weir_workload::{Device, Generator, Job, JobResult, Kind, Pacer, Recorder};

/// A world that cannot be; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldError(String);

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorldError {}

fn refuse(text: impl std::fmt::Display) -> WorldError {
    WorldError(text.to_string())
}

/// The one namespace.
const NSID: u32 = 1;

/// One copy of a job: a queue and who fills it.
#[derive(Debug)]
struct Copy {
    job: usize,
    queue: SqHandle,
    generator: Generator,
    pacer: Option<Pacer>,
    outstanding: u32,
}

/// A command that was submitted and not answered.
#[derive(Clone, Copy, Debug)]
struct Command {
    copy: usize,
    len: u32,
    since: Nanos,
}

/// One job: a tenant.
#[derive(Debug)]
struct Client {
    job: Job,
    recorder: Recorder,
}

impl Client {
    fn end(&self) -> Nanos {
        self.job.time.map_or(Nanos::NEVER, |time| self.job.start.saturating_add(time))
    }
}

/// One drive and its clients in virtual time.
///
/// ```
/// use weir_sim::World;
/// use weir_controller::Config;
/// use weir_units::{Class, Nanos};
/// use weir_workload::Job;
///
/// let mut config = Config::new("nqn.2026-01.io.weir:sim");
/// config.latency = Nanos::from_micros(100);
/// let jobs = ["name=gold,class=high,qd=128", "name=tin,class=low,bs=8KiB,qd=128"];
/// let jobs: Vec<Job> = jobs.iter().map(|text| Job::parse(text, &Job::default()).unwrap()).collect();
/// let mut world = World::new(config, &jobs, 1 << 30, 42).unwrap();
/// world.run_until(Nanos::from_millis(100));
/// let ratio = world.bytes(0) as f64 / world.bytes(1) as f64;
/// assert!((ratio - 4.0).abs() < 0.05, "128 KiB to 32 KiB a round");
/// ```
#[derive(Debug)]
pub struct World {
    drive: Subsystem,
    effects: Effects,
    answers: Answers,
    clients: Vec<Client>,
    copies: Vec<Copy>,
    commands: Vec<Command>,
    free: Vec<u32>,
    now: Nanos,
    /// Of everything that was answered, in order (FNV-1a).
    digest: u64,
    most_bytes: u64,
}

impl World {
    /// A drive of `capacity` bytes whose tenants are the jobs, by their classes (medium if a job names none).
    ///
    /// # Errors
    /// A drive without latency (time would stand still), a configuration that the drive refuses, or a job that the drive
    /// cannot serve.
    pub fn new(mut config: Config, jobs: &[Job], capacity: u64, seed: u64) -> Result<World, WorldError> {
        if config.latency == Nanos(0) {
            return Err(refuse("a drive without latency takes no virtual time"));
        }
        let block_size = 512;
        config.namespaces = vec![NamespaceConfig { nsid: NSID, start: 0, size: capacity, block_size, uuid: [1; 16] }];
        config.tenants = jobs.iter().map(|job| TenantConfig::new(&job.name, class(job))).collect();
        let drive = Subsystem::new(config, Nanos(0)).map_err(refuse)?;
        let mut world = World {
            drive,
            effects: Effects::new(256),
            answers: Answers::default(),
            clients: Vec::new(),
            copies: Vec::new(),
            commands: Vec::new(),
            free: Vec::new(),
            now: Nanos(0),
            digest: 0xcbf2_9ce4_8422_2325,
            most_bytes: 0,
        };
        for (at, job) in jobs.iter().enumerate() {
            world.join(at, job, Device { capacity, block: block_size, max_io: 1 << 30 }, seed)?;
        }
        Ok(world)
    }

    fn join(&mut self, at: usize, job: &Job, device: Device, seed: u64) -> Result<(), WorldError> {
        let owner = Owner(at as u32);
        let front = Attach { tenant: at as u16, owner, model: Model::Front, host: job.name.clone() };
        let front = self.drive.attach(self.now, front).map_err(refuse)?;
        for copy in 0..job.copies {
            let queue = self.drive.add_message_queue(front, job.depth, None, owner).map_err(refuse)?;
            let seed = seed ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let generator = Generator::new(job, device, copy, seed).map_err(refuse)?;
            let pacer = job.rate.map(|rate| Pacer::new(rate, job.start));
            self.copies.push(Copy { job: at, queue, generator, pacer, outstanding: 0 });
        }
        self.clients.push(Client { job: job.clone(), recorder: Recorder::new(job.start, None) });
        Ok(())
    }

    /// Lets everything happen up to and including `end`.
    pub fn run_until(&mut self, end: Nanos) {
        while self.now <= end {
            self.instant();
            let next = self.next();
            if next > end {
                break;
            }
            self.now = next;
        }
        self.now = self.now.max(end);
    }

    /// Everything that happens at one moment.
    fn instant(&mut self) {
        if self.drive.next_deadline().is_some_and(|due| due <= self.now) {
            self.drive.apply(self.now, Event::Tick, &mut self.answers, &mut self.effects);
            self.execute();
        }
        for copy in 0..self.copies.len() {
            self.fill(copy);
        }
        while self.drive.has_work() {
            self.drive.apply(self.now, Event::Run, &mut self.answers, &mut self.effects);
            self.most_bytes = self.most_bytes.max(self.drive.stats().bytes_in_flight);
            self.execute();
        }
    }

    /// The next moment at which something happens.
    fn next(&self) -> Nanos {
        let due = |copy: &Copy| {
            let client = &self.clients[copy.job];
            let (start, idle) = (client.job.start, copy.outstanding < client.job.depth);
            match &copy.pacer {
                _ if start > self.now => start,
                Some(pacer) if idle && pacer.due() < client.end() => pacer.due(),
                _ => Nanos::NEVER,
            }
        };
        let clients = self.copies.iter().map(due).filter(|due| *due > self.now);
        clients.chain(self.drive.next_deadline()).min().unwrap_or(Nanos::NEVER)
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

    fn answered(&mut self, tag: Tag, status: Status) {
        let Command { copy, len, since } = self.commands[tag.0 as usize];
        self.free.push(tag.0);
        self.copies[copy].outstanding -= 1;
        for word in [self.now.0, u64::from(tag.0), u64::from(status.field()), u64::from(len)] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let recorder = &mut self.clients[self.copies[copy].job].recorder;
        if status.is_success() {
            recorder.record(self.now.0 - since.0, len);
        } else {
            recorder.error();
        }
        self.fill(copy);
    }

    /// Submits as many commands as depth, rate and time permit.
    fn fill(&mut self, at: usize) {
        let client = &self.clients[self.copies[at].job];
        let (depth, open) = (client.job.depth, client.job.start <= self.now && self.now < client.end());
        while open && self.copies[at].outstanding < depth {
            let copy = &mut self.copies[at];
            let since = match &copy.pacer {
                Some(pacer) if pacer.due() > self.now => break,
                Some(pacer) => pacer.due(),
                None => self.now,
            };
            let drawn = copy.generator.next_request();
            if let Some(pacer) = &mut copy.pacer {
                pacer.advance(drawn.len);
            }
            copy.outstanding += 1;
            let command = Command { copy: at, len: drawn.len, since };
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
            let op = match drawn.kind {
                Kind::Read => Op::Read,
                Kind::Write => Op::Write,
                Kind::Trim => Op::Deallocate,
            };
            let request = Request { op, nsid: NSID, offset: drawn.offset, len: drawn.len, fua: false };
            let event = Event::Submit { queue: copy.queue, request, tag: Tag(tag) };
            self.drive.apply(self.now, event, &mut self.answers, &mut self.effects);
        }
    }

    /// The drive, to change its settings while it runs.
    pub fn drive(&mut self) -> &mut Subsystem {
        &mut self.drive
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Bytes that a job has moved so far.
    pub fn bytes(&self, job: usize) -> u64 {
        self.clients[job].recorder.bytes()
    }

    /// Requests of a job answered so far, with and without success.
    pub fn answered_so_far(&self, job: usize) -> (u64, u64) {
        self.clients[job].recorder.so_far()
    }

    /// The most bytes that were ever in flight.
    pub fn most_bytes_in_flight(&self) -> Bytes {
        Bytes(self.most_bytes)
    }

    /// Stands for every answer so far, its time and its place in the order.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Every job's figures over the time it had.
    pub fn results(&self) -> Vec<JobResult> {
        let result = |client: &Client| {
            let active = self.now.min(client.end()).saturating_sub(client.job.start);
            let summary = client.recorder.summary(active);
            JobResult { name: client.job.name.clone(), class: Some(class(&client.job)), summary, series: Vec::new() }
        };
        self.clients.iter().map(result).collect()
    }

    /// Panics where an invariant is broken: the drive's, and that nobody's commands were lost.
    pub fn check(&self) {
        self.drive.check();
        let outstanding: usize = self.copies.iter().map(|copy| copy.outstanding as usize).sum();
        assert_eq!(outstanding + self.free.len(), self.commands.len(), "a command is outstanding or answered");
        for copy in &self.copies {
            assert_eq!(self.drive.outstanding(copy.queue), copy.outstanding, "the drive and its client disagree");
        }
    }
}

fn class(job: &Job) -> Class {
    job.class.unwrap_or(Class::Medium)
}
