//! What happens when: one queue of events in true time.

use super::client::{ClientProcess, Clock};
use super::drive::Drive;
use super::history::{History, Moment};
use super::names::{Named, check_names};
use super::totals::{Fault, Totals};
use crate::Term;
use crate::client::{ClientEvent, ClientMachine, CommandId, DriveCommand, DriveId, MemoryId};
use crate::file::DriveFailure;
use crate::fsck::Image;
use crate::kv::{CommitOutcome, FaultyKv, KvAnswer, KvFaults, KvRequest, KvToken, MemoryKv, Revision};
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request, RequestNumber, SessionWish};
use crate::service::{ConnectionId, LabelFound, Service, ServiceEvent, TierAnswer, TierFailure, TierToken};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::println;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

pub const LEASE: Nanos = Nanos::from_secs(1);
/// How wrong clocks may be, in millionths.
pub const DRIFT: u32 = 1000;
/// Clients that are at work.
pub const CLIENTS: usize = 5;
/// The one that reads everything in the end.
pub const AUDITOR: usize = CLIENTS;
pub const DRIVES: usize = 3;
pub const DRIVE_BYTES: u64 = 66 << 20;
/// How often an operator has a drive drain for a while.
const DRAINS: usize = 3;
/// Faults come until then, and clients begin nothing new.
const QUIET: Nanos = Nanos::from_secs(9);
/// Every fault has ended then, and every session that was lost is fenced.
const AUDIT: Nanos = Nanos::from_secs(18);
/// Everything has to have ended then.
const END: Nanos = Nanos::from_secs(40);
pub const KEPT_ALIVE_EVERY: Nanos = Nanos::from_millis(100);

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    pub mutant: Option<Mutant>,
    /// How many faults are tried.
    pub faults: usize,
    /// Processes of the metadata service, over one key-value store: one serves, the others stand by.
    pub services: usize,
    /// Whether files are demoted.
    pub is_tiered: bool,
    /// Whether what happens is written down, for a run that is known to be wrong.
    pub is_traced: bool,
}

#[derive(Debug)]
pub enum WorldEvent {
    Script(usize, u64, usize),
    ToService(u64, RequestNumber, Box<Request>),
    ToClient(u64, RequestNumber, Box<Answer>),
    /// One end hears that a connection has ended.
    ServiceLost(u64),
    ClientLost(usize, u64, u64),
    Connect(usize, u64, SessionWish),
    KvStep,
    KvAnswer(u64, KvToken, KvAnswer),
    /// The medium has what the service has asked it to take.
    Synced(u64, Box<Medium>),
    Tier(u64, TierToken, Result<TierAnswer, TierFailure>),
    /// A command comes to its drive.
    Execute(u64, CommandId),
    Complete(u64, CommandId, Result<(), DriveFailure>),
    DoubtOver(usize, u64, DriveId),
    RecoveryWrite(usize, u64, Vec<u8>),
    /// An operator has a drive drain, or not any more.
    Drain(usize, bool),
    ClientTick(usize, u64),
    ServiceTick(usize),
    KeepAlive,
    Fault,
    /// A client begins, if none has begun in its place meanwhile.
    StartClient(usize, u64),
    BeginAnew(usize, u64),
    StartService(usize),
    /// A request of a service comes to the key-value store, from which it was cut off.
    KvSend(u64, KvToken, Box<KvRequest>),
    /// Clients take a service as dead that has not answered for some time.
    ServiceSilent(u64),
    CutLink(u64),
}

/// A connection between a client's life and the service's.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub client: usize,
    pub life: u64,
    pub service: u64,
    pub is_cut: bool,
    /// When what was sent last arrives, to the service and to the client.
    pub last: [Nanos; 2],
}

/// A process of the service.
#[derive(Debug, Default)]
pub struct ServiceProcess {
    pub service: Option<Service>,
    /// No two have the same.
    pub life: u64,
    pub clock: Clock,
    /// Until when it stands still.
    pub paused_until: Nanos,
    /// Until when it does not hear the key-value store.
    pub cut_until: Nanos,
    /// Blocks that its life has demoted so far.
    pub demoted: u64,
    /// The life that the process has, or had before it was stopped.
    pub was: Option<Term>,
}

/// What the medium of the metadata has: a power cut leaves that.
#[derive(Clone, Debug, Default)]
pub struct Medium {
    pub store: MemoryKv,
    pub revision: Revision,
    pub moment: Moment,
}

/// A command on its way.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub client: usize,
    pub drive: usize,
    pub association: u64,
    pub memory: MemoryId,
    pub command: DriveCommand,
    /// What is written, or was read.
    pub bytes: Vec<u8>,
    pub is_executed: bool,
    /// It was given up: the client hears no more of it.
    pub is_given_up: bool,
}

/// See the [module](self).
pub struct World {
    pub now: Nanos,
    pub random: SplitMix64,
    pub moment: Moment,
    pub events: BTreeMap<(Nanos, u64), WorldEvent>,
    pub last: u64,
    pub clients: Vec<ClientProcess>,
    pub services: Vec<ServiceProcess>,
    /// Lives of processes of the service so far.
    pub service_lives: u64,
    /// Commits on their way, by who has sent them, with the life of the service in which that was.
    pub commits: BTreeMap<(u64, KvToken), Option<Term>>,
    pub kv: FaultyKv,
    pub is_kv_stepping: bool,
    pub revision: Revision,
    pub medium: Medium,
    /// A power cut has taken commits, and clients may go by them still.
    pub may_have_lost: bool,
    /// There was one: names have gone back to what they were, and are not judged.
    pub had_power_cut: bool,
    pub drives: Vec<Drive>,
    pub labels: Vec<LabelFound>,
    pub links: BTreeMap<u64, Link>,
    pub commands: BTreeMap<(u64, CommandId), InFlight>,
    /// Until when a client does not hear the service, and does not hear each drive.
    pub cut: Vec<(Nanos, [Nanos; DRIVES])>,
    pub slow_until: [Nanos; DRIVES],
    pub unsure_until: Nanos,
    pub donated: usize,
    /// Connections of operators so far.
    pub operators: u64,
    pub faults_left: usize,
    pub faults: Vec<Fault>,
    pub mutant: Option<Mutant>,
    pub history: History,
    pub names: Vec<Named>,
    pub totals: Totals,
    pub wrong: Option<String>,
    pub audited: bool,
    /// Files are demoted.
    pub is_tiered: bool,
    pub is_traced: bool,
}

pub fn number_of(wanted: &str) -> usize {
    (0..DRIVES).find(|drive| target(*drive) == wanted).expect("a drive")
}

pub fn target(drive: usize) -> String {
    format!("nvme-tcp://127.0.0.{drive}:4420/nqn?ns=1")
}

impl World {
    pub fn new(options: Options) -> Self {
        let mut random = SplitMix64::new(options.seed);
        let kv = FaultyKv::new(random.next_u64(), KvFaults::default());
        let clock = Clock::starting_at(random.below(1000).into());
        let mut world = Self {
            now: Nanos(1),
            moment: 0,
            events: BTreeMap::new(),
            last: 0,
            clients: Vec::new(),
            services: Vec::new(),
            service_lives: 0,
            commits: BTreeMap::new(),
            kv,
            is_kv_stepping: false,
            revision: Revision(0),
            medium: Medium::default(),
            may_have_lost: false,
            had_power_cut: false,
            drives: alloc::vec![Drive::default(); DRIVES],
            labels: alloc::vec![LabelFound::Blank; DRIVES],
            links: BTreeMap::new(),
            commands: BTreeMap::new(),
            cut: alloc::vec![(Nanos(0), [Nanos(0); DRIVES]); CLIENTS + 1],
            slow_until: [Nanos(0); DRIVES],
            unsure_until: Nanos(0),
            donated: 0,
            operators: 0,
            faults_left: options.faults,
            faults: Vec::new(),
            mutant: options.mutant,
            history: History::default(),
            names: Vec::new(),
            totals: Totals::default(),
            wrong: None,
            audited: false,
            is_tiered: options.is_tiered,
            is_traced: options.is_traced,
            random,
        };
        for client in 0..=CLIENTS {
            let clock = Clock::starting_at(world.random.below(1_000_000_000).into());
            world.clients.push(ClientProcess::new(0, clock, 0));
            let at = if client == AUDITOR { AUDIT } else { Nanos::from_millis(50 + client as u64) };
            world.at(at, WorldEvent::StartClient(client, 0));
        }
        world.services.resize_with(options.services, || ServiceProcess { clock, ..ServiceProcess::default() });
        for at in 0..options.services {
            world.start_service(at);
            world.after(Nanos(0), WorldEvent::ServiceTick(at));
        }
        world.after(Nanos(0), WorldEvent::KeepAlive);
        for _ in 0..options.faults {
            let at = Nanos::from_millis(200 + u64::from(world.random.below(8000)));
            world.at(at, WorldEvent::Fault);
        }
        for _ in 0..DRAINS {
            let at = Nanos::from_millis(1500 + u64::from(world.random.below(8000)));
            let drive = world.random.below(DRIVES as u32) as usize;
            let until = at.saturating_add(Nanos::from_millis(300 + u64::from(world.random.below(2500))));
            world.at(at, WorldEvent::Drain(drive, true));
            world.at(until, WorldEvent::Drain(drive, false));
        }
        world
    }

    /// Says what happens, where that is wanted.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            let line = what();
            println!("T {:>12} {}", self.now.get() / 1000, &line[..line.len().min(3000)]);
        }
    }

    /// A moment that nothing else has.
    pub fn moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    pub fn at(&mut self, at: Nanos, event: WorldEvent) {
        self.last += 1;
        self.events.insert((at.max(self.now), self.last), event);
    }

    pub fn after(&mut self, time: Nanos, event: WorldEvent) {
        self.at(self.now.saturating_add(time), event);
    }

    /// A time from `least` to `most` microseconds.
    pub fn micros(&mut self, least: u32, most: u32) -> Nanos {
        Nanos::from_micros((least + self.random.below(most - least + 1)).into())
    }

    pub fn is_quiet(&self) -> bool {
        self.now >= QUIET
    }

    /// The next turn of a task of a client's.
    pub fn schedule_script(&mut self, client: usize, task: usize) {
        let time = self.micros(0, 300_000);
        let life = self.clients[client].life;
        self.after(time, WorldEvent::Script(client, life, task));
    }

    /// Takes the run to its end.
    pub fn run(mut self) -> Result<Totals, String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = self.now.max(at);
            if self.now > END {
                let states: Vec<String> =
                    self.clients.iter().filter_map(|c| c.machine.as_ref().map(ClientMachine::describe)).collect();
                return Err(format!("not at its end after {END:?}: {states:#?}"));
            }
            if !matches!(
                event,
                WorldEvent::KvStep
                    | WorldEvent::KeepAlive
                    | WorldEvent::ServiceTick(_)
                    | WorldEvent::ClientTick(..)
                    | WorldEvent::KvAnswer(..)
            ) {
                self.trace(|| format!("{event:?}"));
            }
            if let Some(until) = self.waits(&event) {
                self.at(until, event);
                continue;
            }
            self.handle(event);
            if let Some(why) = self.wrong.take() {
                return Err(format!("at {:?}: {why}", self.now));
            }
            if self.audited {
                break;
            }
        }
        if !self.audited {
            return Err("the run has stopped before its end".into());
        }
        self.totals.run(&self.faults, self.is_shared());
        self.totals.units_read = self.history.units_read;
        if !self.had_power_cut {
            check_names(&self.names, &mut self.totals)?;
        }
        self.check_metadata()?;
        Ok(self.totals)
    }

    /// In the end the metadata contradict themselves nowhere.
    pub fn check_metadata(&mut self) -> Result<(), String> {
        while self.kv.pending() > 0 {
            self.kv.advance();
        }
        let image = Image::read(self.kv.store_mut()).expect("a store in memory answers");
        self.totals.granted += image.granted();
        let findings = image.findings(&image.places());
        match findings.is_empty() {
            true => Ok(()),
            false => Err(format!("fsck: {findings:#?}")),
        }
    }

    /// Until when what an event is for stands still, or does not hear.
    pub fn waits(&self, event: &WorldEvent) -> Option<Nanos> {
        let of_client = |client: usize| self.clients[client].paused_until;
        let of_service = |life: &u64| self.process(*life).map_or(Nanos(0), |at| self.services[at].paused_until);
        let of_service_of = |link: &u64| self.links.get(link).map_or(Nanos(0), |link| of_service(&link.service));
        let of_link = |link: &u64| self.links.get(link).map_or(Nanos(0), |link| self.cut[link.client].0);
        let until = match event {
            WorldEvent::Script(client, ..)
            | WorldEvent::ClientLost(client, ..)
            | WorldEvent::DoubtOver(client, ..)
            | WorldEvent::ClientTick(client, _) => of_client(*client),
            WorldEvent::Connect(client, ..) => of_client(*client).max(self.cut[*client].0),
            WorldEvent::ToService(link, ..) => of_link(link).max(of_service_of(link)),
            WorldEvent::ToClient(link, ..) => {
                let client = self.links.get(link).map_or(Nanos(0), |link| of_client(link.client));
                of_link(link).max(client)
            }
            WorldEvent::Complete(life, command, _) => {
                let client = self.commands.get(&(*life, *command)).map(|command| command.client);
                client.map_or(Nanos(0), of_client)
            }
            WorldEvent::ServiceLost(link) => of_service_of(link),
            WorldEvent::KvAnswer(life, ..) => {
                let cut = self.process(*life).map_or(Nanos(0), |at| self.services[at].cut_until);
                of_service(life).max(cut)
            }
            WorldEvent::Synced(life, ..) | WorldEvent::Tier(life, ..) => of_service(life),
            WorldEvent::ServiceTick(at) => self.services[*at].paused_until,
            WorldEvent::Execute(..)
            | WorldEvent::RecoveryWrite(..)
            | WorldEvent::Drain(..)
            | WorldEvent::KvStep
            | WorldEvent::KeepAlive
            | WorldEvent::Fault
            | WorldEvent::StartClient(..)
            | WorldEvent::BeginAnew(..)
            | WorldEvent::KvSend(..)
            | WorldEvent::ServiceSilent(_)
            | WorldEvent::CutLink(_)
            | WorldEvent::StartService(_) => Nanos(0),
        };
        (until > self.now).then_some(until)
    }

    pub fn is_life(&self, client: usize, life: u64) -> bool {
        self.clients[client].life == life
    }

    pub fn handle(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Script(client, life, task) if self.is_life(client, life) => self.turn(client, task),
            WorldEvent::Script(..) => {}
            WorldEvent::ToService(link, number, request) => {
                let known = self.links.get(&link).filter(|known| !known.is_cut);
                if let Some(at) = known.and_then(|known| self.process(known.service)) {
                    self.give_service(at, ServiceEvent::Message(ConnectionId(link), number, *request));
                }
            }
            WorldEvent::ToClient(link, number, answer) => self.answer(link, number, *answer),
            WorldEvent::ServiceLost(link) => {
                if let Some(at) = self.links.get(&link).and_then(|known| self.process(known.service)) {
                    self.give_service(at, ServiceEvent::Disconnected(ConnectionId(link)));
                }
            }
            WorldEvent::ClientLost(client, life, link) => self.client_lost(client, life, link),
            WorldEvent::Connect(client, life, wish) if self.is_life(client, life) => self.connect(client, wish),
            WorldEvent::Connect(..) => {}
            WorldEvent::KvStep => self.kv_step(),
            WorldEvent::KvAnswer(life, token, answer) => {
                let Some(at) = self.process(life) else { return };
                if let KvAnswer::Outcome(CommitOutcome::Done(revision)) = &answer {
                    self.revision = self.revision.max(*revision);
                }
                self.give_service(at, ServiceEvent::Kv(token, answer));
            }
            WorldEvent::Tier(life, token, answer) => {
                if let Some(at) = self.process(life) {
                    self.give_service(at, ServiceEvent::Tier(token, answer));
                }
            }
            WorldEvent::Synced(life, medium) => {
                if let Some(at) = self.process(life) {
                    self.synced(at, *medium);
                }
            }
            WorldEvent::KvSend(life, token, request) => self.send_kv(life, token, *request),
            WorldEvent::ServiceSilent(life) => self.cut_links_of(life),
            WorldEvent::CutLink(link) => self.cut_link(link),
            WorldEvent::Execute(life, command) => self.execute(life, command),
            WorldEvent::Complete(life, command, result) => self.complete(life, command, result),
            WorldEvent::DoubtOver(client, life, drive) if self.is_life(client, life) => {
                let doubts = self.clients[client].doubts.entry(drive).or_default();
                *doubts -= 1;
                if *doubts == 0 {
                    self.give(client, ClientEvent::Doubt(drive, false));
                }
            }
            WorldEvent::DoubtOver(..) => {}
            WorldEvent::RecoveryWrite(drive, offset, bytes) => self.drives[drive].write(offset, &bytes),
            WorldEvent::Drain(drive, drains) => self.drain(drive, drains),
            WorldEvent::ClientTick(client, life) if self.is_life(client, life) => {
                self.clients[client].tick_at = Nanos::NEVER;
                self.give(client, ClientEvent::Tick);
            }
            WorldEvent::ClientTick(..) => {}
            WorldEvent::ServiceTick(at) => self.tick_service(at),
            WorldEvent::KeepAlive => self.keep_alive(),
            WorldEvent::Fault => self.fault(),
            WorldEvent::StartClient(client, life) if self.is_life(client, life) => self.start_client(client),
            WorldEvent::StartClient(..) => {}
            WorldEvent::BeginAnew(client, life) if self.is_life(client, life) => self.kill_client(client, Nanos(0)),
            WorldEvent::BeginAnew(..) => {}
            WorldEvent::StartService(at) => self.start_service(at),
        }
    }

    pub fn kv_step(&mut self) {
        if let Some((life, token, answer)) = self.kv.advance() {
            self.check_life(life.into(), token, &answer);
            let time = self.micros(5, 200);
            self.after(time, WorldEvent::KvAnswer(life.into(), token, answer));
        }
        self.is_kv_stepping = self.kv.pending() > 0;
        if self.is_kv_stepping {
            let time = self.micros(5, 60);
            self.after(time, WorldEvent::KvStep);
        }
        if self.unsure_until != Nanos(0) && self.now > self.unsure_until {
            self.unsure_until = Nanos(0);
            self.kv.set_faults(KvFaults::default());
        }
    }

    /// Whether a client is the one that reads everything in the end.
    pub fn is_auditor(&self, client: usize) -> bool {
        client == AUDITOR
    }
}
