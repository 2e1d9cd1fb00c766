//! A store that several processes reach is checked while none of them serves it, and repaired as a life of the service.
//!
//! ```text
//!   Presence::read ─► may_be_served? ─wait for a lease and its margin─► Presence::read ─► alive_since: refused
//!                          │ no                                               │ nobody
//!                          ▼                                                  ▼
//!                   RepairLease::take ──► LeasedKv: each commit expects that life ──► RepairLease::give_up
//! ```
//! **A check** changes nothing, so it does not take the lease: whether a life has begun meanwhile is seen by [`Presence::life`] before and after.
//!
//! **A repair** has the service's lease, as a service has it: services that start stand by until it is given up, or is not renewed. Each commit expects
//! the record of the life, so nothing is changed in a store that a service has taken over, however long the repair stood still.

use super::finding::{Finding, FindingKind, Repair};
use super::image::hex;
use crate::id::{ServiceId, Term};
use crate::keys::{KeySpace, life_key, process_key, service_key};
use crate::kv::{Commit, CommitOutcome, Expect, Kv, KvKey, KvUnavailable, KvWrite, RANGE_MAX, Revision, Versioned};
use crate::records::{LifeRecord, ProcessRecord, ServiceRecord, from_value, to_value};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// How often a commit is sent whose outcome is unknown while reads are answered.
const ATTEMPTS: usize = 5;

/// Who serves a store, or may: the records of leases and of processes, as they are in the key-value store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    services: BTreeMap<KvKey, Vec<u8>>,
    lives: BTreeMap<KvKey, Vec<u8>>,
    processes: BTreeMap<KvKey, Vec<u8>>,
}

/// A process that was seen to renew its lease or its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alive {
    /// It serves the store. Where it listens: nothing is known of one that has just begun, or that repairs the store.
    Serving(Vec<String>),
    /// It stands by, and would serve the store. Where it listens.
    StandingBy(Vec<String>),
}

impl Presence {
    /// Reads who there is.
    ///
    /// # Errors
    /// The key-value store did not answer.
    pub fn read(kv: &mut impl Kv) -> Result<Self, KvUnavailable> {
        let services = space(kv, KeySpace::Service)?;
        let lives = space(kv, KeySpace::Life)?;
        Ok(Self { services, lives, processes: space(kv, KeySpace::Process)? })
    }

    /// Whether a process may serve or stand by: whether it does is seen when the time has passed in which it would renew its record.
    pub fn may_be_served(&self) -> bool {
        let is_over = |value: &Vec<u8>| from_value::<ServiceRecord>(value).is_ok_and(|record| record.is_fenced);
        !self.processes.is_empty() || !self.services.values().all(is_over)
    }

    /// Who was alive between an earlier look and this one.
    pub fn alive_since(&self, earlier: &Presence) -> Option<Alive> {
        let has_changed = |(key, value): &(&KvKey, &Vec<u8>), before: &BTreeMap<_, _>| before.get(*key) != Some(*value);
        let renewed = self.services.iter().filter(|now| has_changed(now, &earlier.services));
        let mut renewed = renewed.map(|(_, value)| from_value::<ServiceRecord>(value).unwrap_or_default());
        if let Some(record) = renewed.find(|record| !record.is_fenced) {
            let process = self.processes.get(&process_key(record.process));
            return Some(Alive::Serving(process.map(|value| addresses(value)).unwrap_or_default()));
        }
        let mut renewed = self.processes.iter().filter(|now| has_changed(now, &earlier.processes));
        let (key, value) = renewed.next()?;
        let holders = self.services.values().filter_map(|value| from_value::<ServiceRecord>(value).ok());
        let mut holders = holders.filter(|record| !record.is_fenced);
        // One that serves renews its record beside its lease.
        match holders.any(|record| *key == process_key(record.process)) {
            true => Some(Alive::Serving(addresses(value))),
            false => Some(Alive::StandingBy(addresses(value))),
        }
    }

    /// The lives that the services have begun: as long as nobody begins one it stays the same, whatever is renewed.
    pub fn life(&self) -> impl PartialEq + use<> {
        self.lives.clone()
    }
}

fn addresses(value: &[u8]) -> Vec<String> {
    from_value::<ProcessRecord>(value).map(|record| record.addresses).unwrap_or_default()
}

fn space(kv: &mut impl Kv, space: KeySpace) -> Result<BTreeMap<KvKey, Vec<u8>>, KvUnavailable> {
    let page = kv.range(&space.key(&[]), &space.end(), RANGE_MAX)?;
    Ok(page.into_iter().map(|(key, found)| (key, found.value)).collect())
}

/// The lease of a service, while a store is repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairLease {
    service: ServiceId,
    record: ServiceRecord,
}

impl RepairLease {
    /// Begins a life of that service if nobody has begun one since `seen`; `process` is a random number. `None`: somebody has. With the lease come findings: records
    /// of it that could not be read and were replaced.
    ///
    /// # Errors
    /// The key-value store did not answer; what was sent may be made, and is over when a lease has passed.
    pub fn take(
        kv: &mut impl Kv,
        service: ServiceId,
        process: u64,
        seen: &Presence,
    ) -> Result<Option<(Self, Vec<Finding>)>, KvUnavailable> {
        let (lease, life) = (service_key(service), life_key(service));
        let (last, last_life) = (seen.services.get(&lease), seen.lives.get(&life));
        let terms = [
            last.and_then(|value| from_value::<ServiceRecord>(value).ok()).map(|record| record.incarnation),
            last_life.and_then(|value| from_value::<LifeRecord>(value).ok()).map(|record| record.incarnation),
        ];
        // The terms are over for every service as well.
        let Some(incarnation) = terms.into_iter().flatten().max().unwrap_or(Term(0)).next() else { return Ok(None) };
        let mut replaced = Vec::new();
        for (key, value, term) in [(&lease, last, terms[0]), (&life, last_life, terms[1])] {
            if let (Some(_), None) = (value, term) {
                let space = key.0.first().copied().and_then(KeySpace::of).unwrap_or(KeySpace::Service);
                let about = format!("{space:?} {}", hex(&key.0));
                let repair = Repair::Writes(vec![KvWrite::Delete(key.clone())]);
                replaced.push(Finding { kind: FindingKind::BadValue, about, repair });
            }
        }
        let expect = |value: Option<&Vec<u8>>| value.map_or(Expect::Absent, |value| Expect::Value(value.clone()));
        let record = ServiceRecord { incarnation, process, beat: 0, is_fenced: false };
        let writes = vec![
            KvWrite::Put(lease.clone(), to_value(&record)),
            KvWrite::Put(life.clone(), to_value(&LifeRecord { incarnation, process })),
        ];
        let commit = Commit { expect: vec![(lease, expect(last)), (life, expect(last_life))], writes };
        match settle(kv, &commit) {
            CommitOutcome::Done(_) => Ok(Some((Self { service, record }, replaced))),
            CommitOutcome::Conflict | CommitOutcome::TooLarge => Ok(None),
            CommitOutcome::Unknown => Err(KvUnavailable),
        }
    }

    /// Renews it: due at a third of the service's lease. Whether it is still this one's.
    ///
    /// # Errors
    /// The key-value store did not answer; the next renewal says what is so.
    pub fn renew(&mut self, kv: &mut impl Kv) -> Result<bool, KvUnavailable> {
        self.write(kv, ServiceRecord { beat: self.record.beat.wrapping_add(1), ..self.record })
    }

    /// Ends the life, so that a service begins the next one at once.
    ///
    /// # Errors
    /// The key-value store did not answer: a service begins when the lease is over.
    pub fn give_up(mut self, kv: &mut impl Kv) -> Result<bool, KvUnavailable> {
        self.write(kv, ServiceRecord { beat: self.record.beat.wrapping_add(1), is_fenced: true, ..self.record })
    }

    fn write(&mut self, kv: &mut impl Kv, next: ServiceRecord) -> Result<bool, KvUnavailable> {
        let key = service_key(self.service);
        let expect = vec![(key.clone(), Expect::Value(to_value(&self.record)))];
        match settle(kv, &Commit { expect, writes: vec![KvWrite::Put(key, to_value(&next))] }) {
            CommitOutcome::Done(_) => {
                self.record = next;
                Ok(true)
            }
            CommitOutcome::Conflict | CommitOutcome::TooLarge => Ok(false),
            CommitOutcome::Unknown => Err(KvUnavailable),
        }
    }

    /// What each commit of the repair expects.
    fn expect(&self) -> (KvKey, Expect) {
        let life = LifeRecord { incarnation: self.record.incarnation, process: self.record.process };
        (life_key(self.service), Expect::Value(to_value(&life)))
    }
}

/// A key-value store in which commits are made in the life of a lease, or not at all.
#[derive(Debug)]
pub struct LeasedKv<'a, K> {
    kv: &'a mut K,
    expect: (KvKey, Expect),
    is_lost: bool,
}

impl<'a, K: Kv> LeasedKv<'a, K> {
    /// Commits of that life; the lease itself may be renewed elsewhere.
    pub fn new(kv: &'a mut K, lease: &RepairLease) -> Self {
        Self { kv, expect: lease.expect(), is_lost: false }
    }

    /// Whether another process has begun a life: nothing is changed from then on.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

impl<K: Kv> Kv for LeasedKv<'_, K> {
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        self.kv.get(key)
    }

    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
        self.kv.range(from, until, most)
    }

    /// As everywhere; what is unknown is sent again, and a life that is over is answered like silence.
    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        let mut commit = commit.clone();
        commit.expect.push(self.expect.clone());
        let outcome = settle(self.kv, &commit);
        if outcome != CommitOutcome::Conflict {
            return outcome;
        }
        let (key, expect) = &self.expect;
        match self.kv.get(key) {
            Ok(Some(found)) if *expect == Expect::Value(found.value.clone()) => CommitOutcome::Conflict,
            Ok(_) => {
                self.is_lost = true;
                CommitOutcome::Unknown
            }
            Err(KvUnavailable) => CommitOutcome::Unknown,
        }
    }
}

/// Makes a commit and sends it again while its outcome is unknown: its values are those of no other process, so what is there as it was to be written was made.
fn settle(kv: &mut impl Kv, commit: &Commit) -> CommitOutcome {
    let mut outcome = CommitOutcome::Unknown;
    for _ in 0..ATTEMPTS {
        outcome = kv.commit(commit);
        if matches!(outcome, CommitOutcome::Done(_) | CommitOutcome::TooLarge) {
            break;
        }
        match is_made(kv, commit) {
            Ok(true) => return CommitOutcome::Done(Revision(0)),
            Ok(false) if outcome == CommitOutcome::Conflict => break,
            Ok(false) => {}
            Err(KvUnavailable) => return CommitOutcome::Unknown,
        }
    }
    outcome
}

fn is_made(kv: &mut impl Kv, commit: &Commit) -> Result<bool, KvUnavailable> {
    for write in &commit.writes {
        let found = kv.get(write.key())?.map(|found| found.value);
        let is_there = match write {
            KvWrite::Put(_, value) => found.as_ref() == Some(value),
            KvWrite::Delete(_) => found.is_none(),
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}
