//! Processes of the metadata service: one in most runs; in others two over one key-value store, of which one serves and the other stands by.

use super::history::BLOCK;
use super::world::{DRIFT, DRIVE_BYTES, DRIVES, LEASE, ServiceProcess, World, WorldEvent, number_of, target};
use crate::file::tests::crc;
use crate::inode::UnixNanos;
use crate::keys::{KeySpace, life_key};
use crate::kv::{CommitOutcome, Kv as _, KvAnswer, KvRequest, KvToken};
use crate::location::Location;
use crate::members::LeaseTiming;
use crate::protocol::{Donation, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish};
use crate::records::{LifeRecord, from_value};
use crate::service::{
    ConnectionId, LabelFound, MoveBlock, RecoverBlock, Service, ServiceEffect, ServiceEvent, ServiceSettings,
    TierAnswer, TierFailure, TierRequest,
};
use crate::{ClassName, PathPattern, PathPolicy, ServiceId, Tiering, Watermarks};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use weir_units::Nanos;

/// By which one of several processes serves.
const SERVICE_LEASE: Nanos = Nanos::from_millis(300);

/// Whether a request is a change that only the one that serves may make: its lease and its own record are not.
fn is_of_life(request: &KvRequest) -> bool {
    let KvRequest::Commit(commit) = request else { return false };
    let space = |letter: Option<&u8>| letter.and_then(|letter| KeySpace::of(*letter));
    let is_own = |letter| matches!(space(letter), Some(KeySpace::Service | KeySpace::Process));
    !commit.writes.is_empty() && !commit.writes.iter().any(|write| is_own(write.key().0.first()))
}

impl World {
    /// Whether there are several processes.
    pub fn is_shared(&self) -> bool {
        self.services.len() > 1
    }

    /// Which process has that life, if it goes on.
    pub fn process(&self, life: u64) -> Option<usize> {
        self.services.iter().position(|process| process.life == life && process.service.is_some())
    }

    /// The process that serves, or any.
    pub fn serving(&self) -> usize {
        let serves =
            |process: &ServiceProcess| process.service.as_ref().is_some_and(|service| service.life().is_some());
        self.services.iter().position(serves).unwrap_or(0)
    }

    /// A request comes to the key-value store.
    pub fn send_kv(&mut self, life: u64, token: KvToken, request: KvRequest) {
        self.kv.send(life as u32, token, request);
        if !core::mem::replace(&mut self.is_kv_stepping, true) {
            self.after(Nanos::from_micros(20), WorldEvent::KvStep);
        }
    }

    /// No commit is made of a life after another has begun.
    pub fn check_life(&mut self, life: u64, token: KvToken, answer: &KvAnswer) {
        let Some(sent) = self.commits.remove(&(life, token)) else { return };
        let KvAnswer::Outcome(CommitOutcome::Done(made)) = answer else { return };
        let Ok(Some(found)) = self.kv.store_mut().get(&life_key(ServiceId(1))) else { return };
        let Ok(now) = from_value::<LifeRecord>(&found.value) else { return };
        if found.revision < *made && sent != Some(now.incarnation) {
            self.wrong = Some(format!("a commit of life {sent:?} was made in life {:?}", now.incarnation));
        }
    }

    /// Clients give up their connections to a process.
    pub fn cut_links_of(&mut self, life: u64) {
        let links = self.links.iter().filter(|(_, link)| !link.is_cut && link.service == life);
        let links: Vec<u64> = links.map(|(number, _)| *number).collect();
        links.into_iter().for_each(|link| self.cut_link(link));
    }

    /// A process ends without a word.
    pub fn kill_service(&mut self, at: usize) {
        self.services[at].service = None;
        self.cut_links_of(self.services[at].life);
    }

    pub fn tick_service(&mut self, at: usize) {
        if self.random.below(5) == 0 && self.services[at].service.is_some() {
            self.synced(at, self.newest());
        }
        self.give_service(at, ServiceEvent::Tick);
        self.count_demoted(at);
        let gives_out = |service: &Service| service.is_ready() && service.gives_out();
        self.may_have_lost &= !self.services[at].service.as_ref().is_some_and(gives_out);
        self.after(Nanos::from_millis(50), WorldEvent::ServiceTick(at));
    }

    /// A process begins. Where there are several, what the one before had sent may be carried out at any time.
    pub fn start_service(&mut self, at: usize) {
        self.service_lives += 1;
        if !self.is_shared() {
            self.is_kv_stepping = false;
            // What the process before has sent is carried out, or was dropped; nobody hears of it.
            while self.kv.pending() > 0 {
                self.kv.advance();
            }
        }
        let class = |name: &str| ClassName::new(name).expect("a class");
        let settings = ServiceSettings {
            service: ServiceId(1),
            process: self.random.next_u64(),
            is_predecessor_dead: !self.is_shared(),
            service_lease: SERVICE_LEASE,
            may_have_lost: self.may_have_lost,
            timing: LeaseTiming::new(LEASE, DRIFT, Nanos::from_millis(100)).expect("a lease"),
            drift_ppm: DRIFT,
            repair_after: Nanos::from_millis(600),
            tiering: self.tiering(),
            fence_wait: super::drive::KEEP_ALIVE.saturating_add(Nanos::from_millis(50)),
            classes: alloc::vec![class("dram"), class("flash")],
            block: BLOCK as u32,
            inline_max: 2048,
            durability: "process".into(),
            metadata: "memory".into(),
        };
        let service = Some(Service::new(settings).with_mutant(self.mutant));
        let process = &mut self.services[at];
        *process =
            ServiceProcess { service, life: self.service_lives, clock: process.clock, ..ServiceProcess::default() };
        self.give_service(at, ServiceEvent::Listens(alloc::vec![format!("service:{at}")]));
        self.give_service(at, ServiceEvent::Start);
    }

    /// In a part of the runs all files are demoted whenever they are left alone for a moment.
    fn tiering(&self) -> Tiering {
        let policy = PathPolicy {
            path: PathPattern::new("/**").expect("a pattern"),
            classes: ["dram", "flash"].map(|name| ClassName::new(name).expect("a class")).to_vec(),
            copies: 1,
            demote_after: Some(Nanos::from_millis(150)),
        };
        let policies = if self.is_tiered { alloc::vec![policy] } else { Vec::new() };
        Tiering { policies, watermarks: Watermarks { high: 3000, low: 0 } }
    }

    fn count_demoted(&mut self, at: usize) {
        let Some(service) = &self.services[at].service else { return };
        let (demoted, before) = (service.demoted(), self.services[at].demoted);
        self.totals.demoted += demoted.saturating_sub(before);
        self.services[at].demoted = demoted;
    }

    pub fn give_service(&mut self, at: usize, event: ServiceEvent) {
        let process = &mut self.services[at];
        let Some(service) = &mut process.service else { return };
        let mut effects = Vec::new();
        let (now, life, before) = (process.clock.read(self.now), process.life, service.life());
        service.apply(now, UnixNanos((1 << 60) + now.get()), event, &mut effects);
        if let Err(why) = service.check() {
            self.wrong = Some(format!("the service: {why}"));
        }
        let after = service.life();
        // One that is stopped finishes what it is at, while its life's record stands.
        process.was = after.or(before).or(process.was);
        let was = process.was;
        self.totals.lives += u64::from(after.is_some() && after != before);
        for effect in effects {
            match effect {
                ServiceEffect::Kv(token, request) => {
                    if is_of_life(&request) {
                        self.commits.insert((life, token), was);
                    }
                    match self.services[at].cut_until {
                        until if until > self.now => self.at(until, WorldEvent::KvSend(life, token, Box::new(request))),
                        _ => self.send_kv(life, token, request),
                    }
                }
                ServiceEffect::Sync => {
                    let (medium, time) = (Box::new(self.newest()), self.micros(500, 20_000));
                    self.after(time, WorldEvent::Synced(life, medium));
                }
                ServiceEffect::Send(connection, number, answer) => self.send_answer(connection.0, number, answer),
                ServiceEffect::Close(connection) if self.is_shared() => {
                    // What was sent before comes out.
                    let last = self.links.get(&connection.0).map_or(self.now, |link| link.last[1]);
                    self.at(last.saturating_add(Nanos(1)), WorldEvent::CutLink(connection.0));
                }
                ServiceEffect::Close(connection) => self.cut_link(connection.0),
                ServiceEffect::Tier(token, request) => {
                    let (answer, time) = match request {
                        TierRequest::Recover(block) => (self.recover(&block), self.micros(3000, 20_000)),
                        TierRequest::Move(block) => (self.copy_block(&block), self.time_of_move()),
                        request => (self.label(request), self.micros(100, 3000)),
                    };
                    self.after(time, WorldEvent::Tier(life, token, answer));
                }
                ServiceEffect::Refuse(why) => self.wrong = Some(format!("the service refuses: {why}")),
            }
        }
        self.donate(at);
    }

    pub fn label(&mut self, request: TierRequest) -> Result<TierAnswer, TierFailure> {
        match request {
            TierRequest::ReadLabel { target } => {
                let (drive, bytes) = (number_of(&target), DRIVE_BYTES);
                if self.drives[drive].down_until > self.now {
                    return Err(TierFailure("connection refused".into()));
                }
                let sector = if drive == 0 { 512 } else { 4096 };
                Ok(TierAnswer::Label { bytes, sector, found: self.labels[drive] })
            }
            TierRequest::WriteLabel { target, store, namespace, content } => {
                self.labels[number_of(&target)] = LabelFound::Label { store, namespace, content };
                Ok(TierAnswer::Written)
            }
            TierRequest::Recover(_) | TierRequest::Move(_) => Err(TierFailure("that takes longer".into())),
        }
    }

    /// A block that a lost writer has left: the first copy that is reached is written to the others, which goes on if the service dies.
    pub fn recover(&mut self, block: &RecoverBlock) -> Result<TierAnswer, TierFailure> {
        let reached: Vec<(usize, usize, u64)> = block
            .copies
            .iter()
            .map(|copy| (copy.index, number_of(&copy.target), copy.offset))
            .filter(|(_, drive, _)| self.drives[*drive].down_until <= self.now)
            .collect();
        let Some((_, first, offset)) = reached.first().copied() else {
            return Err(TierFailure("connection refused".into()));
        };
        let mut bytes = self.drives[first].read(offset, block.length as usize);
        let behind = &mut bytes[block.used as usize..];
        let is_changed = behind.iter().any(|byte| *byte != 0);
        behind.fill(0);
        let mut good: Vec<usize> = reached[..usize::from(!is_changed)].iter().map(|(index, ..)| *index).collect();
        for (index, drive, offset) in &reached[usize::from(!is_changed)..] {
            // A write that is given up is carried out as late as it can be.
            let is_late = self.slow_until[*drive] > self.now && self.random.below(2) == 0;
            let time = if is_late { self.micros(50_000, 300_000) } else { self.micros(50, 2900) };
            self.after(time, WorldEvent::RecoveryWrite(*drive, *offset, bytes.clone()));
            good.extend((!is_late).then_some(*index));
        }
        if good.is_empty() {
            return Err(TierFailure("a write was given up".into()));
        }
        good.sort_unstable();
        Ok(TierAnswer::Recovered { checksums: block.seed.checksums(&bytes, crc), good })
    }

    /// Some take so long that clients open the file meanwhile, and ask for its map.
    fn time_of_move(&mut self) -> Nanos {
        match self.random.below(3) {
            0 => self.micros(20_000, 400_000),
            _ => self.micros(3000, 20_000),
        }
    }

    /// A block is copied elsewhere, which goes on if the service dies.
    pub fn copy_block(&mut self, block: &MoveBlock) -> Result<TierAnswer, TierFailure> {
        let reached: Vec<(usize, u64)> = block
            .sources
            .iter()
            .map(|copy| (number_of(&copy.target), copy.offset))
            .filter(|(drive, _)| self.drives[*drive].down_until <= self.now)
            .collect();
        let mut found = None;
        for (drive, offset) in reached {
            let bytes = self.drives[drive].read(offset, block.length as usize);
            if block.seed.checksums(&bytes, crc) == block.checksums {
                found = Some(bytes);
                break;
            }
        }
        let Some(bytes) = found else { return Err(TierFailure("no copy can be read".into())) };
        let drive = number_of(&block.to.target);
        let is_down = self.drives[drive].down_until > self.now;
        let is_late = self.slow_until[drive] > self.now && self.random.below(2) == 0;
        let checksums = block.becomes.checksums(&bytes, crc);
        if !is_down {
            // A write that is given up is carried out as late as it can be.
            let time = if is_late { self.micros(50_000, 300_000) } else { self.micros(50, 2900) };
            self.after(time, WorldEvent::RecoveryWrite(drive, block.to.offset, bytes));
        }
        match is_down || is_late {
            true => Ok(TierAnswer::NotWritten { why: "a write was given up".into() }),
            false => {
                self.totals.moved += 1;
                Ok(TierAnswer::Moved { checksums })
            }
        }
    }

    /// An operator gives the store its drives.
    pub fn donate(&mut self, at: usize) {
        let Some(service) = &self.services[at].service else { return };
        if self.donated >= DRIVES || !service.is_ready() {
            return;
        }
        let drive = self.donated;
        self.donated += 1;
        let class = ClassName::new(["dram", "flash"][drive % 2]).expect("a class");
        let donation = Donation { target: target(drive), class, location: Location::default(), overwrite: false };
        self.operator_asks(at, Request::Donate { donation });
    }

    /// An operator has a drive drain, or not any more.
    pub fn drain(&mut self, drive: usize, drains: bool) {
        let at = self.serving();
        match self.labels[drive] {
            LabelFound::Label { namespace, .. } => self.operator_asks(at, Request::Drain { namespace, drains }),
            LabelFound::Blank | LabelFound::Foreign => {}
        }
    }

    fn operator_asks(&mut self, at: usize, request: Request) {
        self.operators += 1;
        let connection = ConnectionId(u64::MAX - self.operators);
        self.give_service(at, ServiceEvent::Connected(connection, [0; 16]));
        let hello = Request::Hello {
            magic: PROTOCOL_MAGIC,
            version: PROTOCOL_VERSION,
            client: "operator".into(),
            location: Location::default(),
            session: SessionWish::None,
        };
        self.give_service(at, ServiceEvent::Message(connection, RequestNumber(1), hello));
        self.give_service(at, ServiceEvent::Message(connection, RequestNumber(2), request));
    }
}
