//! A service's own lease: without one it answers nothing.
//!
//! ```text
//!   Starting ─► Waiting (the last life may still go on) ─► Starting ─begun─► Held ─another process has ended this life─► Starting
//!                                                                            └─release─► Released
//! ```
//! Any number of processes may call themselves the same service: one has the lease, the others wait for its end. The commit that begins a life
//! writes the service's [`LifeRecord`] as well, which renewals leave alone: a commit that expects it is made in that life or not at all.

use super::mutant::{Mutant, Mutation};
use super::settings::TreeSettings;
use crate::id::Term;
use crate::keys::{life_key, service_key};
use crate::kv::{Commit, CommitOutcome, Expect, KvAnswer, KvRequest, KvWrite};
use crate::records::{LifeRecord, ServiceRecord, from_value, to_value};
use weir_units::Nanos;

/// A part of the lease's length between two renewals.
const RENEWALS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStage {
    /// The service's record is to be read.
    Starting,
    /// This life has begun, with that record.
    Held(ServiceRecord),
    /// The life was ended by itself: another one may begin at once.
    Released,
}

/// What is written, and when it was sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Renewal {
    record: ServiceRecord,
    sent: Nanos,
}

/// What has become of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseNews {
    /// Nothing that matters.
    Same,
    /// A life has begun.
    Begun,
    /// The life has been ended by another service: nothing is owned any more.
    Lost,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    stage: LeaseStage,
    /// The lease ends then.
    until: Nanos,
    /// A record that was sent, and may have been written.
    renewal: Option<Renewal>,
    /// The record of an earlier life, and since when it is known.
    observed: Option<(ServiceRecord, Nanos)>,
    /// That record was seen to change: another process renews it.
    is_renewed: bool,
    /// A request is under way.
    is_waiting: bool,
    /// What was sent is to be read first.
    must_read: bool,
    /// When it is due.
    due: Nanos,
    /// The life is to be ended.
    releases: bool,
}

impl Lease {
    pub fn new() -> Self {
        Self {
            stage: LeaseStage::Starting,
            until: Nanos(0),
            renewal: None,
            observed: None,
            is_renewed: false,
            is_waiting: false,
            must_read: true,
            due: Nanos(0),
            releases: false,
        }
    }

    /// Whether the service may answer.
    pub fn is_valid(&self, now: Nanos) -> bool {
        self.incarnation().is_some() && now < self.until && !self.releases
    }

    /// The life that goes on.
    pub fn incarnation(&self) -> Option<Term> {
        match self.stage {
            LeaseStage::Held(record) => Some(record.incarnation),
            LeaseStage::Starting | LeaseStage::Released => None,
        }
    }

    /// When it ends.
    pub fn until(&self) -> Nanos {
        self.until
    }

    /// When [`step`](Self::step) has something to do.
    pub fn due(&self) -> Nanos {
        if self.is_waiting { Nanos::NEVER } else { self.due }
    }

    /// The life that was seen last: another process has it, or had it.
    pub fn other_life(&self) -> Option<ServiceRecord> {
        self.observed.map(|(record, _)| record)
    }

    /// Whether another process was seen to renew its lease, and may have it still.
    pub fn is_anothers(&self) -> bool {
        self.is_renewed && self.incarnation().is_none()
    }

    /// The life is to end, and another process to begin one at once. Nothing is valid from now on.
    pub fn release(&mut self) {
        self.releases = true;
        self.due = Nanos(0);
        if self.stage == LeaseStage::Starting && self.renewal.is_none() {
            self.stage = LeaseStage::Released;
        }
    }

    /// Whether nothing is left to be done of [`release`](Self::release).
    pub fn is_released(&self) -> bool {
        self.stage == LeaseStage::Released
    }

    /// What is to be sent, if anything is.
    pub fn step(&mut self, now: Nanos, settings: &TreeSettings) -> Option<KvRequest> {
        if self.is_waiting || now < self.due || self.is_released() {
            return None;
        }
        self.is_waiting = true;
        let LeaseStage::Held(held) = self.stage else { return Some(KvRequest::Get(service_key(settings.service))) };
        if self.must_read {
            return Some(KvRequest::Get(service_key(settings.service)));
        }
        // A record is only told from others by it.
        let next = ServiceRecord { beat: held.beat.wrapping_add(1), is_fenced: self.releases, ..held };
        self.renewal.get_or_insert(Renewal { record: next, sent: now });
        let next = self.renewal.map_or(next, |renewal| renewal.record);
        Some(write(settings, Expect::Value(to_value(&held)), &next))
    }

    /// The answer to what was sent; and perhaps what is to be sent next.
    pub fn answer(
        &mut self,
        now: Nanos,
        answer: &KvAnswer,
        settings: &TreeSettings,
        mutation: Mutation,
    ) -> (LeaseNews, Option<KvRequest>) {
        self.is_waiting = false;
        match answer {
            KvAnswer::Value(Ok(found)) => {
                self.found(now, found.as_ref().map(|found| &found.value[..]), settings, mutation)
            }
            KvAnswer::Outcome(CommitOutcome::Done(_)) => (self.written(now, settings, mutation), None),
            KvAnswer::Value(Err(_)) | KvAnswer::Outcome(_) | KvAnswer::Page(_) => {
                // What has become of it, its record tells.
                self.must_read = true;
                self.due = now.saturating_add(settings.retry);
                (LeaseNews::Same, None)
            }
        }
    }

    /// What was sent last is the record.
    fn written(&mut self, now: Nanos, settings: &TreeSettings, mutation: Mutation) -> LeaseNews {
        let Some(renewal) = self.renewal.take() else { return LeaseNews::Same };
        let news = if self.incarnation().is_some() { LeaseNews::Same } else { LeaseNews::Begun };
        if renewal.record.is_fenced {
            self.stage = LeaseStage::Released;
            return LeaseNews::Lost;
        }
        let from = if mutation.is(Mutant::LeaseFromAnswer) { now } else { renewal.sent };
        self.stage = LeaseStage::Held(renewal.record);
        self.until = from.saturating_add(settings.lease);
        self.must_read = false;
        self.due = match self.releases {
            true => now,
            false => from.saturating_add(Nanos(settings.lease.get() / RENEWALS)),
        };
        news
    }

    /// The record was read.
    fn found(
        &mut self,
        now: Nanos,
        value: Option<&[u8]>,
        settings: &TreeSettings,
        mutation: Mutation,
    ) -> (LeaseNews, Option<KvRequest>) {
        let found: Option<ServiceRecord> = value.and_then(|value| from_value(value).ok());
        if let (Some(renewal), Some(found)) = (self.renewal, found) {
            if renewal.record == found {
                return (self.written(now, settings, mutation), None);
            }
        }
        match self.stage {
            LeaseStage::Held(held) if found == Some(held) => {
                self.must_read = false;
                self.due = now;
                (LeaseNews::Same, None)
            }
            LeaseStage::Held(_) if self.releases => {
                self.stage = LeaseStage::Released;
                (LeaseNews::Lost, None)
            }
            LeaseStage::Held(_) => {
                *self = Self { due: now, ..Self::new() };
                (LeaseNews::Lost, None)
            }
            LeaseStage::Starting if self.releases => {
                self.stage = LeaseStage::Released;
                (LeaseNews::Same, None)
            }
            LeaseStage::Starting => (LeaseNews::Same, self.begin(now, value, found, settings, mutation)),
            LeaseStage::Released => (LeaseNews::Same, None),
        }
    }

    /// Begins a life, if no other one can still go on.
    fn begin(
        &mut self,
        now: Nanos,
        value: Option<&[u8]>,
        found: Option<ServiceRecord>,
        settings: &TreeSettings,
        mutation: Mutation,
    ) -> Option<KvRequest> {
        let expect = value.map_or(Expect::Absent, |value| Expect::Value(value.into()));
        if let Some(last) = found.filter(|last| !last.is_fenced && !settings.is_predecessor_dead) {
            let since = match self.observed {
                Some((seen, since)) if seen == last => since,
                other => {
                    self.is_renewed = other.is_some();
                    now
                }
            };
            self.observed = Some((last, since));
            let over = since.saturating_add(settings.lease).saturating_add(settings.margin);
            if now < over && !mutation.is(Mutant::BeginsAtOnce) {
                self.due = over.min(now.saturating_add(settings.look));
                return None;
            }
        }
        let Some(incarnation) = found.map_or(Some(Term(1)), |last| last.incarnation.next()) else {
            // There is no life behind the last one.
            self.due = Nanos::NEVER;
            return None;
        };
        let record = ServiceRecord { incarnation, process: settings.process, beat: 0, is_fenced: false };
        // The same record may have been sent before, and be written at any time: the lease counts from then.
        let sent = self.renewal.filter(|before| before.record == record).map_or(now, |before| before.sent);
        self.renewal = Some(Renewal { record, sent });
        self.is_waiting = true;
        let key = life_key(settings.service);
        let life = LifeRecord { incarnation, process: settings.process };
        let mut commit = write_record(settings, expect, &record);
        commit.writes.push(KvWrite::Put(key, to_value(&life)));
        Some(KvRequest::Commit(commit))
    }
}

fn write(settings: &TreeSettings, expect: Expect, record: &ServiceRecord) -> KvRequest {
    KvRequest::Commit(write_record(settings, expect, record))
}

fn write_record(settings: &TreeSettings, expect: Expect, record: &ServiceRecord) -> Commit {
    let key = service_key(settings.service);
    Commit { expect: alloc::vec![(key.clone(), expect)], writes: alloc::vec![KvWrite::Put(key, to_value(record))] }
}
