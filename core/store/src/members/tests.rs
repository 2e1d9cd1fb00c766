//! Clients on clocks that drift, that stall and lose messages; services that see them through a faulty key-value store; targets that fence.

use super::{
    HoldRecord, HolderEffect, HolderEvent, LeaseTiming, RenewalId, SessionError, SessionHolder, SessionRequest,
    SessionRequestId, Sessions, SessionsEffect, SessionsEvent,
};
use crate::SessionId;
use crate::keys::{KeySpace, answer_key, session_key};
use crate::kv::{Commit, CommitOutcome, Expect, FaultyKv, Kv, KvFaults, KvWrite};
use crate::mutant::Mutant;
use crate::space::Epoch;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

extern crate std;

const LEASE: u64 = 10_000_000;
const DRIFT_PPM: u32 = 10_000;
const SERVICES: usize = 2;
const CLIENTS: usize = 3;

fn timing() -> LeaseTiming {
    LeaseTiming::new(Nanos(LEASE), DRIFT_PPM, Nanos(LEASE / 50)).unwrap()
}

/// A clock that is wrong.
#[derive(Clone, Copy)]
struct Clock {
    ahead: u64,
    ppm: i64,
}

impl Clock {
    fn at(&self, now: u64) -> Nanos {
        let drifted = i128::from(now) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Nanos(self.ahead + drifted as u64)
    }
}

struct Client {
    clock: Clock,
    holder: SessionHolder,
    /// The epochs of its maps.
    maps: Vec<Epoch>,
    forget: Option<Epoch>,
    stalled_until: u64,
    is_stopped: bool,
}

#[derive(Clone, Copy)]
enum Asked {
    /// The client's place, and when it has sent that.
    Open(SessionId, usize, u64),
    Renew(SessionId, RenewalId),
    Close(SessionId),
}

/// A message on its way.
enum Message {
    Request(usize, SessionRequestId, SessionRequest),
    Answer(SessionRequestId, Result<Epoch, SessionError>),
    Fence(SessionId),
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    opened: u64,
    renewed: u64,
    stopped: u64,
    fenced: u64,
    ended: u64,
    closed: u64,
    horizons: u64,
    stalls: u64,
    maps: u64,
    advanced: u64,
    grants: u64,
    hurried: u64,
}

struct World {
    random: SplitMix64,
    now: u64,
    kv: FaultyKv,
    services: Vec<(Clock, Sessions)>,
    clients: Vec<Option<Client>>,
    asked: BTreeMap<SessionRequestId, Asked>,
    messages: Vec<(u64, Message)>,
    /// Sessions that every target refuses, or whose client has stopped by itself.
    harmless: BTreeSet<SessionId>,
    /// Grants of a service to a session, of whose end it has to hear.
    granted: BTreeSet<(usize, SessionId)>,
    counter: u64,
    mutant: Option<Mutant>,
    totals: Totals,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut random = SplitMix64::new(seed);
        let mut clock = || Clock {
            ahead: random.next_u64() >> 20,
            ppm: i64::from(random.below(2 * DRIFT_PPM)) - i64::from(DRIFT_PPM),
        };
        let services = (0..SERVICES).map(|_| (clock(), Sessions::new(timing()).with_mutant(mutant))).collect();
        World {
            random,
            now: 1,
            kv: FaultyKv::new(seed, KvFaults::all(30_000)),
            services,
            clients: (0..CLIENTS).map(|_| None).collect(),
            asked: BTreeMap::new(),
            messages: Vec::new(),
            harmless: BTreeSet::new(),
            granted: BTreeSet::new(),
            counter: 0,
            mutant,
            totals: Totals::default(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..800 {
            self.now += self.below(LEASE / 40);
            self.operation()?;
            self.deliver()?;
        }
        self.settle()?;
        Ok(self.totals)
    }

    fn deliver(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            if self.kv.pending() > 0 {
                if let Some((service, token, answer)) = self.kv.advance() {
                    self.service(service as usize, SessionsEvent::Kv(token, answer))?;
                }
            }
        }
        let due = self.messages.iter().position(|(at, _)| *at <= self.now);
        due.map_or(Ok(()), |at| {
            let (_, message) = self.messages.swap_remove(at);
            self.arrive(message)
        })
    }

    fn send(&mut self, message: Message) {
        // Some are lost, some are late.
        if self.below(20) > 0 || matches!(message, Message::Fence(_)) {
            let delay = if self.below(6) == 0 { LEASE / 3 } else { LEASE / 50 };
            let at = self.now + self.below(delay);
            self.messages.push((at, message));
        }
    }

    fn operation(&mut self) -> Result<(), String> {
        let client = self.below(CLIENTS as u64) as usize;
        let service = self.below(SERVICES as u64) as usize;
        match self.below(100) {
            0..45 => self.tick(client)?,
            45..60 => self.service(service, SessionsEvent::Tick)?,
            60..72 => self.map(client, service),
            72..80 => self.forget(client),
            80..84 => {
                let epoch = self.epoch_in_kv();
                let put = KvWrite::Put(Epoch::key(), Epoch(epoch.0 + 1).encode());
                self.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: alloc::vec![put] });
                self.totals.advanced += 1;
            }
            84 => {
                let until = self.now + self.below(3 * LEASE);
                if let Some(client) = &mut self.clients[client] {
                    client.stalled_until = until;
                    self.totals.stalls += 1;
                }
            }
            85 => {
                let now = self.now;
                let Some(client) = &mut self.clients[client] else { return Ok(()) };
                if !client.is_stopped && client.stalled_until <= now && client.holder.holds(client.clock.at(now)) {
                    client.is_stopped = true;
                    client.maps.clear();
                    let session = client.holder.session();
                    self.harmless.insert(session);
                    self.totals.closed += 1;
                    self.ask(service, Asked::Close(session), SessionRequest::Close(session));
                }
            }
            86..90 => self.grant(client, service)?,
            _ => {}
        }
        Ok(())
    }

    /// Something is granted to a session that goes on, and an answer recorded for it.
    fn grant(&mut self, client: usize, service: usize) -> Result<(), String> {
        let Some(session) = self.clients[client].as_ref().map(|client| client.holder.session()) else { return Ok(()) };
        for slots in [0..50, 50..100] {
            let expect = alloc::vec![(session_key(session), Expect::Present)];
            let writes = slots.map(|slot| KvWrite::Put(answer_key(session, slot), Vec::new())).collect();
            if !matches!(self.kv.store_mut().commit(&Commit { expect, writes }), CommitOutcome::Done(_)) {
                return Ok(());
            }
        }
        self.granted.insert((service, session));
        self.totals.grants += 1;
        self.service(service, SessionsEvent::Granted(session))
    }

    fn ask(&mut self, service: usize, asked: Asked, request: SessionRequest) {
        let id = SessionRequestId(self.next());
        self.asked.insert(id, asked);
        self.send(Message::Request(service, id, request));
    }

    fn tick(&mut self, index: usize) -> Result<(), String> {
        let (now, service) = (self.now, self.below(SERVICES as u64) as usize);
        let hurries = self.below(8) == 0;
        let Some(client) = &mut self.clients[index] else {
            let session = SessionId(self.next());
            let request = SessionRequest::Open(session, "c".to_string(), [0; 16]);
            self.ask(service, Asked::Open(session, index, now), request);
            return Ok(());
        };
        if client.is_stopped {
            // A new session begins.
            if self.below(3) == 0 {
                self.clients[index] = None;
            }
            return Ok(());
        }
        if client.stalled_until > now {
            return Ok(());
        }
        let oldest = client.maps.iter().min().copied();
        let mut effects = Vec::new();
        client.holder.apply(client.clock.at(now), HolderEvent::Tick(oldest), &mut effects);
        if hurries {
            let (sent, wanted) = (effects.len(), Epoch(client.holder.epoch().0 + 1));
            client.holder.apply(client.clock.at(now), HolderEvent::Hurry(oldest, wanted), &mut effects);
            self.totals.hurried += (effects.len() - sent) as u64;
        }
        self.carry_out(index, effects);
        Ok(())
    }

    fn carry_out(&mut self, index: usize, effects: Vec<HolderEffect>) {
        for effect in effects {
            let service = self.below(SERVICES as u64) as usize;
            let Some(client) = &mut self.clients[index] else { return };
            match effect {
                HolderEffect::Renew(id, session, epoch) => {
                    self.ask(service, Asked::Renew(session, id), SessionRequest::Renew(session, epoch));
                }
                HolderEffect::Forget(epoch) => client.forget = Some(epoch),
                HolderEffect::Stop(_) => {
                    client.is_stopped = true;
                    self.totals.stopped += 1;
                }
            }
        }
    }

    fn map(&mut self, index: usize, service: usize) {
        let (now, epoch) = (self.now, self.services[service].1.epoch());
        let Some(client) = &mut self.clients[index] else { return };
        if client.holder.holds(client.clock.at(now)) && client.holder.accepts(epoch) && client.stalled_until <= now {
            client.maps.push(epoch);
            self.totals.maps += 1;
        }
    }

    /// The last I/O under older maps has ended.
    fn forget(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        if let Some(epoch) = client.forget.take() {
            client.maps.retain(|map| *map >= epoch);
        }
    }

    fn epoch_in_kv(&self) -> Epoch {
        let found = self.kv.store().iter().find(|(key, _)| **key == Epoch::key());
        found.map_or(Epoch(0), |(_, value)| Epoch::decode(&value.value).unwrap())
    }

    fn arrive(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Request(service, id, request) => self.service(service, SessionsEvent::Request(id, request)),
            Message::Fence(session) => {
                self.harmless.insert(session);
                self.totals.fenced += 1;
                let service = self.below(SERVICES as u64) as usize;
                self.service(service, SessionsEvent::Fenced(session))
            }
            Message::Answer(id, result) => {
                match (self.asked.remove(&id), result) {
                    (Some(Asked::Open(session, index, sent)), Ok(epoch)) => self.opened(session, index, sent, epoch),
                    (Some(Asked::Renew(session, renewal)), Ok(epoch)) => {
                        self.renewed(session, HolderEvent::Renewed(renewal, epoch));
                    }
                    (Some(Asked::Renew(session, _)), Err(SessionError::Gone)) => {
                        self.renewed(session, HolderEvent::Refused);
                    }
                    (Some(Asked::Close(session)), _) => {
                        let stopped = |client: &Client| client.holder.session() == session && client.is_stopped;
                        let known = self.clients.iter().flatten().filter(|client| client.holder.session() == session);
                        if !known.into_iter().all(stopped) {
                            return Err(format!("session {session} is closed and goes on"));
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    }

    fn opened(&mut self, session: SessionId, index: usize, sent: u64, epoch: Epoch) {
        if self.clients[index].is_some() {
            return;
        }
        let ppm = self.below(u64::from(2 * DRIFT_PPM)) as i64 - i64::from(DRIFT_PPM);
        let clock = Clock { ahead: self.below(1 << 30), ppm };
        let holder = SessionHolder::new(session, timing(), clock.at(sent), epoch).with_mutant(self.mutant);
        let (maps, forget, stalled_until, is_stopped) = (Vec::new(), None, 0, false);
        self.clients[index] = Some(Client { clock, holder, maps, forget, stalled_until, is_stopped });
        self.totals.opened += 1;
    }

    fn renewed(&mut self, session: SessionId, event: HolderEvent) {
        let now = self.now;
        let index = self.clients.iter().position(|c| c.as_ref().is_some_and(|c| c.holder.session() == session));
        let Some((index, client)) = index.and_then(|index| Some((index, self.clients[index].as_mut()?))) else {
            return;
        };
        if client.stalled_until > now {
            return;
        }
        let mut effects = Vec::new();
        client.holder.apply(client.clock.at(now), event, &mut effects);
        self.totals.renewed += u64::from(matches!(event, HolderEvent::Renewed(..)));
        self.carry_out(index, effects);
    }

    fn service(&mut self, index: usize, event: SessionsEvent) -> Result<(), String> {
        let mut effects = Vec::new();
        let (clock, sessions) = &mut self.services[index];
        sessions.apply(clock.at(self.now), event, &mut effects);
        for effect in effects {
            match effect {
                SessionsEffect::Kv(token, request) => self.kv.send(index as u32, token, request),
                SessionsEffect::Answer(id, result) => self.send(Message::Answer(id, result)),
                SessionsEffect::Fence(session) => {
                    if let Some(client) = self.holding(session) {
                        return Err(format!(
                            "{session} is to be fenced, and its client holds until {}",
                            client.holder.until()
                        ));
                    }
                    self.send(Message::Fence(session));
                }
                SessionsEffect::Ended(session) => {
                    self.totals.ended += 1;
                    self.granted.remove(&(index, session));
                    if !self.harmless.contains(&session) {
                        return Err(format!("{session} counts as fenced, and targets still serve it"));
                    }
                }
                SessionsEffect::Horizon(epoch) => self.verify_horizon(epoch)?,
            }
        }
        Ok(())
    }

    fn holding(&self, session: SessionId) -> Option<&Client> {
        let clients = self.clients.iter().flatten().filter(|client| client.holder.session() == session);
        clients.into_iter().find(|client| !client.is_stopped && client.holder.holds(client.clock.at(self.now)))
    }

    fn verify_horizon(&mut self, epoch: Epoch) -> Result<(), String> {
        self.totals.horizons += 1;
        for client in self.clients.iter().flatten() {
            let session = client.holder.session();
            if let Some(old) = client.maps.iter().find(|map| **map < epoch && !self.harmless.contains(&session)) {
                return Err(format!("the horizon is {epoch:?}, and {session} has a map of {old:?}"));
            }
        }
        Ok(())
    }

    /// Without clients and faults every session comes to its end.
    fn settle(&mut self) -> Result<(), String> {
        self.kv.set_faults(KvFaults::default());
        self.clients.iter_mut().flatten().for_each(|client| client.stalled_until = u64::MAX);
        for _ in 0..400 {
            self.now += LEASE / 20;
            while self.kv.pending() > 0 || self.messages.iter().any(|(at, _)| *at <= self.now) {
                self.deliver()?;
            }
            (0..SERVICES).try_for_each(|service| self.service(service, SessionsEvent::Tick))?;
        }
        let left = self.kv.store().iter().filter(|(key, _)| {
            [KeySpace::Session as u8, KeySpace::Hold as u8, KeySpace::Answer as u8].contains(&key.0[0])
        });
        match left.count() {
            0 if self.granted.is_empty() => Ok(()),
            0 => Err(format!("of the end of these nothing is said: {:?}", self.granted)),
            left => Err(format!("{left} records of sessions are left")),
        }
    }
}

#[test]
fn nobody_goes_on_before_the_holder_has_stopped() {
    let mut all = [0; 12];
    for seed in 0..600 {
        let t = World::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let counts = [
            t.opened, t.renewed, t.stopped, t.fenced, t.ended, t.closed, t.horizons, t.stalls, t.maps, t.advanced,
            t.grants, t.hurried,
        ];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    std::println!(
        "opened, renewed, stopped, fenced, ended, closed, horizons, stalls, maps, advanced, grants, hurried: {all:?}"
    );
    assert!(all.iter().all(|count| *count > 500), "everything happens: {all:?}");
}

#[test]
fn every_planted_fault_is_found() {
    for mutant in [
        Mutant::LeaseFromAnswer,
        Mutant::AcknowledgeBeforeForget,
        Mutant::WatchWithoutMargin,
        Mutant::OpenedWithoutHold,
        Mutant::EndedBeforeFenced,
        Mutant::HorizonWithoutFencing,
        Mutant::GrantsNotWatched,
        Mutant::GrantsWatchedAtOnce,
    ] {
        let found = (0..2_000).find_map(|seed| World::new(seed, Some(mutant)).run().err().map(|why| (seed, why)));
        std::println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found in 2,000 runs");
    }
}

#[test]
fn the_bytes_of_a_hold_are_these() {
    assert_eq!(HoldRecord::key(SessionId(0x102)).0, [b'h', 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(HoldRecord(Epoch(3)).encode(), [1, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(HoldRecord::decode(&[1, 3, 0, 0, 0, 0, 0, 0, 0]), Ok(HoldRecord(Epoch(3))));
    assert!(HoldRecord::decode(&[2, 3, 0, 0, 0, 0, 0, 0, 0]).is_err() && HoldRecord::decode(&[1, 3]).is_err());
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let mut sessions = Sessions::new(timing());
    for (len, is_refused) in [(super::CLIENT_NAME_MAX, false), (super::CLIENT_NAME_MAX + 1, true)] {
        let (mut effects, id) = (Vec::new(), SessionRequestId(len as u64));
        let open = SessionRequest::Open(SessionId(1), "c".repeat(len), [0; 16]);
        sessions.apply(Nanos(0), SessionsEvent::Request(id, open), &mut effects);
        let refused = [SessionsEffect::Answer(id, Err(SessionError::NameTooLong))];
        assert_eq!(effects == refused, is_refused, "{effects:?}");
    }
}
