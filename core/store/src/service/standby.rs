//! Which process serves: one has the lease of the service, the others stand by until it is over.
//!
//! ```text
//!   standing by ──the lease is over, or was given up: a life begins──► starting ──metadata read──► serving
//!        ▲                                                                                           │
//!        └───────────── the lease has ended, or another process has begun a life: all is forgotten ──┘
//! ```
//! **The lease** is the tree's (`tree/service_lease.rs`), with the rules of [`LeaseTiming`](crate::members::LeaseTiming): its holder counts from when a renewal was
//! sent, the others from when they saw it, and longer by a third.
//!
//! **Every commit** expects the record of the life in which it was sent; a process that was stopped for any time, on any clock, changes nothing
//! after another has taken over. What is left of it are answers, which it gives only while its lease holds, and writes of a
//! recovery to drives, which end with their association: a new life waits for that ([`Recovery`](super::recovery)).
//!
//! **A life is all or nothing**: when it ends the process forgets handles, grants, caches and requests, closes its connections, and begins anew. What clients
//! have is in the key-value store: sessions with their tokens, writers, unsettled blocks, extents.
//!
//! **Each process** has a record with its addresses, which it renews; so those that stand by name the one that serves, and the one that serves
//! lists all. One whose process has died is removed by the one that serves.
//!
//! Where the process before is known to be dead (the embedded database is locked by one process) nobody stands by, and there are no such records.

use super::event::{ConnectionId, ServiceEffect};
use super::machine::Service;
use super::state::{KvOwner, OwnRead, Seen, Standby};
use crate::error::StoreError;
use crate::id::Term;
use crate::keys::{KeySpace, life_key, process_key, service_key};
use crate::kv::{Commit, Expect, KvAnswer, KvKey, KvRequest, KvWrite, RANGE_MAX, Versioned};
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request, RequestNumber, ServiceInfo, ServiceRole};
use crate::records::{LifeRecord, ProcessRecord, from_value, to_value};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// A part of the lease between two renewals of a process's record, and between two looks at all.
const LOOKS: u64 = 2;

/// Leases after which the record of a silent process goes.
const SILENT_LEASES: u64 = 20;

impl Service {
    /// Whether other processes may serve the store.
    fn is_shared(&self) -> bool {
        !self.settings.is_predecessor_dead
    }

    /// Whether the process waits for the lease: another one serves, or none.
    pub fn stands_by(&self) -> bool {
        self.is_shared() && self.standby.life.is_none()
    }

    /// Whether the process stands by because another one was seen to renew its lease; until then the process of before may be dead.
    pub fn awaits_another(&self) -> bool {
        self.stands_by() && self.tree.is_anothers()
    }

    /// Where the process listens that serves, as far as it is known.
    pub fn served_at(&self) -> &[String] {
        self.serving().map_or(&[], |seen| &seen.record.addresses)
    }

    /// Whether nothing is left to be done after [`Stop`](super::ServiceEvent::Stop): the lease is given up, if this process had it.
    pub fn is_stopped(&self) -> bool {
        !self.is_shared() || self.standby.stops && self.tree.is_released() && !self.standby.is_writing
    }

    /// Until when work on drives may be begun for this process: the end of its lease where others may serve the store.
    pub fn works_until(&self) -> Nanos {
        match (self.is_shared(), self.standby.life) {
            (false, _) => Nanos::NEVER,
            (true, Some(_)) => self.tree.lease_until(),
            (true, None) => Nanos(0),
        }
    }

    /// Which life of the service this process has, if it has one.
    pub fn life(&self) -> Option<Term> {
        self.standby.life
    }

    /// Without a lease nothing that this process knows counts: before anything else happens.
    pub(super) fn stop_without_lease(&mut self, effects: &mut Vec<ServiceEffect>) {
        let is_over = self.standby.life.is_some() && !self.tree.is_serving(self.clock.now);
        if self.is_shared() && is_over && !self.planted.is(Mutant::AnswersAfterLease) {
            self.end_life(effects);
        }
    }

    /// A life has begun, or was ended by another process.
    pub(super) fn follow_lease(&mut self, effects: &mut Vec<ServiceEffect>) {
        let life = self.tree.incarnation();
        if life == self.standby.life || self.standby.stops {
            return;
        }
        if self.standby.life.is_some() {
            return self.end_life(effects);
        }
        (self.standby.life, self.standby.since, self.began) = (life, self.clock.wall, self.clock.now);
        self.go_on_starting(effects);
    }

    /// All is forgotten, and the process stands by.
    fn end_life(&mut self, effects: &mut Vec<ServiceEffect>) {
        // What this event had brought is nobody's answer any more.
        effects.retain(|effect| !matches!(effect, ServiceEffect::Send(..) | ServiceEffect::Tier(..)));
        let connections = self.connections.keys().copied();
        effects.extend(connections.map(ServiceEffect::Close));
        let stops = self.standby.stops;
        let since = self.clock.wall;
        if self.planted.is(Mutant::StateOutlivesLife) || stops {
            self.connections.clear();
            (self.standby.life, self.standby.since) = (None, since);
            return;
        }
        let mut next = Service::new(self.settings.clone());
        let processes = core::mem::take(&mut self.standby.processes);
        let (addresses, beat) = (core::mem::take(&mut self.standby.addresses), self.standby.beat);
        next.standby = Standby { addresses, beat, since, processes, ..Standby::default() };
        next.random = SplitMix64::new(self.random.next_u64());
        // Numbers of what is on its way are not used again: late answers find nobody.
        (next.clock, next.last, next.planted) = (self.clock, self.last, self.planted);
        next.space.planted = self.planted;
        next.sessions.plant(self.planted);
        next.tree.copy_mutation(&self.tree);
        next.trouble = self.trouble.take();
        *self = next;
    }

    /// The process is to end.
    pub(super) fn stop(&mut self, effects: &mut Vec<ServiceEffect>) {
        if !self.is_shared() || core::mem::replace(&mut self.standby.stops, true) {
            return;
        }
        self.tree.give_up_lease();
        self.end_life(effects);
        self.queue.clear();
        let key = process_key(self.settings.process);
        self.write_process(KvWrite::Delete(key), effects);
        self.push(super::state::Work::Tree(crate::tree::TreeEvent::Tick));
    }

    /// A commit expects the life in which it is sent; those of the lease expect the lease itself.
    pub(super) fn expect_life(&self, commit: &mut Commit) {
        let lease = service_key(self.settings.service);
        if commit.writes.iter().any(|write| *write.key() == lease) || self.planted.is(Mutant::CommitWithoutLife) {
            return;
        }
        // Without a life there is no such record, so nothing is made.
        let incarnation = self.tree.incarnation().unwrap_or_default();
        let life = LifeRecord { incarnation, process: self.settings.process };
        commit.expect.push((life_key(self.settings.service), Expect::Value(to_value(&life))));
    }

    /// Who stands by names the one that serves, and ends the connection.
    pub(super) fn refer(
        &self,
        connection: ConnectionId,
        number: RequestNumber,
        request: &Request,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let addresses = self.serving().map(|seen| seen.record.addresses.clone()).unwrap_or_default();
        let answer = match request {
            Request::Hello { version: 1, .. } => {
                let detail = match addresses.is_empty() {
                    true => "this metadata service stands by; another one serves the store".into(),
                    false => alloc::format!(
                        "this metadata service stands by; the store is served at {}",
                        addresses.join(", ")
                    ),
                };
                Some(Answer::Failed { error: StoreError::Unavailable, detail })
            }
            Request::Hello { .. } => Some(Answer::Standby { addresses }),
            _ => None,
        };
        effects.extend(answer.map(|answer| ServiceEffect::Send(connection, number, answer)));
        effects.push(ServiceEffect::Close(connection));
    }

    /// The process that serves, as far as it is known.
    fn serving(&self) -> Option<&Seen> {
        let other = self.tree.other_life().filter(|life| !life.is_fenced && life.process != self.settings.process)?;
        self.standby.processes.get(&other.process).filter(|seen| !self.is_silent(seen))
    }

    fn is_silent(&self, seen: &Seen) -> bool {
        let lease = self.settings.service_lease;
        let over = seen.unchanged.saturating_add(lease).saturating_add(Nanos(lease.get() / 3));
        self.clock.now >= over
    }

    /// The processes, for the status: the one that serves first.
    pub(super) fn service_infos(&self) -> Vec<ServiceInfo> {
        let me = ServiceInfo {
            process: self.settings.process,
            addresses: self.standby.addresses.clone(),
            role: ServiceRole::Serving,
            since: self.standby.since,
            term: self.standby.life.map_or(0, Term::get),
        };
        let others = self.standby.processes.iter().filter(|(process, _)| **process != self.settings.process);
        let others = others.map(|(process, seen)| ServiceInfo {
            process: *process,
            addresses: seen.record.addresses.clone(),
            role: if self.is_silent(seen) { ServiceRole::Silent } else { ServiceRole::Standby },
            since: seen.record.since,
            term: 0,
        });
        core::iter::once(me).chain(others).collect()
    }

    /// Renews the process's record and reads those of all, when that is due.
    pub(super) fn look_at_processes(&mut self, effects: &mut Vec<ServiceEffect>) {
        if !self.is_shared() || self.standby.stops || self.standby.reads || self.clock.now < self.standby.look_at {
            return;
        }
        self.standby.look_at = self.clock.now.saturating_add(Nanos(self.settings.service_lease.get() / LOOKS));
        self.standby.reads = true;
        let (from, until) = (KeySpace::Process.key(&[]), KeySpace::Process.end());
        self.ask_kv(KvOwner::own(OwnRead::Processes), KvRequest::Range { from, until, most: RANGE_MAX }, effects);
        if self.standby.is_writing {
            return;
        }
        self.standby.beat += 1;
        let (addresses, since, beat) = (self.standby.addresses.clone(), self.standby.since, self.standby.beat);
        let record = ProcessRecord { addresses, since, beat };
        self.write_process(KvWrite::Put(process_key(self.settings.process), to_value(&record)), effects);
    }

    fn write_process(&mut self, write: KvWrite, effects: &mut Vec<ServiceEffect>) {
        self.standby.is_writing = true;
        let commit = Commit { expect: Vec::new(), writes: alloc::vec![write] };
        self.ask_kv(KvOwner::own(OwnRead::ProcessWritten), KvRequest::Commit(commit), effects);
    }

    /// The records of all processes were read, or not.
    pub(super) fn processes_read(&mut self, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        self.standby.reads = false;
        let KvAnswer::Page(Ok(page)) = answer else { return };
        let mut processes = BTreeMap::new();
        for (key, value) in page {
            let Some((process, record)) = process_of(&key, &value) else { continue };
            let known = self.standby.processes.remove(&process).filter(|seen| seen.record == record);
            let seen = known.unwrap_or(Seen { record, unchanged: self.clock.now });
            processes.insert(process, seen);
        }
        self.standby.processes = processes;
        self.remove_silent(effects);
    }

    /// The one that serves removes the record of a process that has been silent for long.
    fn remove_silent(&mut self, effects: &mut Vec<ServiceEffect>) {
        if self.standby.life.is_none() || self.standby.is_writing {
            return;
        }
        let since =
            self.clock.now.saturating_sub(Nanos(self.settings.service_lease.get().saturating_mul(SILENT_LEASES)));
        let silent = self
            .standby
            .processes
            .iter()
            .find(|(process, seen)| **process != self.settings.process && seen.unchanged < since);
        if let Some((process, _)) = silent {
            self.write_process(KvWrite::Delete(process_key(*process)), effects);
        }
    }
}

/// The process that a record is of, and the record; one that cannot be read is left out.
fn process_of(key: &KvKey, value: &Versioned) -> Option<(u64, ProcessRecord)> {
    let number = key.0.get(1..)?.try_into().ok()?;
    Some((u64::from_be_bytes(number), from_value(&value.value).ok()?))
}
