//! The services' side of sessions: opened, renewed, ended, and how far all of them are.

use super::lease_timing::LeaseTiming;
use crate::SessionId;
use crate::keys::{KeySpace, answer_range, session_key};
use crate::kv::{Commit, CommitOutcome, Expect, KvAnswer, KvKey, KvRequest, KvToken, KvWrite, RANGE_MAX, Versioned};
use crate::mutant::{Mutant, Planted};
use crate::records::{SessionRecord, SessionToken, from_value, to_value};
use crate::space::Epoch;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_codec::Damaged;
use weir_units::Nanos;

/// Bytes of what a client calls itself at the most.
pub const CLIENT_NAME_MAX: usize = 255;

/// Recorded answers that one commit deletes.
const ANSWERS: usize = 90;

/// A request, as the caller numbers them; no two under way have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionRequestId(pub u64);

/// What a session has acknowledged: it holds no older map and has no I/O under one. It is there from the session's beginning until the session
/// has ended and is fenced. Its bytes are those of an [`Epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRecord(pub Epoch);

impl HoldRecord {
    /// Where it is.
    pub fn key(session: SessionId) -> KvKey {
        KeySpace::Hold.number(session.get())
    }

    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        self.0.encode()
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// They are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Epoch::decode(bytes).map(Self)
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRequest {
    /// Begin a session: a number that was never used, what the client calls itself, in [`CLIENT_NAME_MAX`] bytes at the most, and what it is
    /// resumed with.
    Open(SessionId, String, SessionToken),
    /// Go on with one, and acknowledge an epoch.
    Renew(SessionId, Epoch),
    /// The client has stopped: no I/O is in flight, and none will be.
    Close(SessionId),
}

/// Why a session is not begun or does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// It has ended, or its number is in use.
    Gone,
    /// The key-value store does not say what became of it: ask again. An opening then takes another number.
    Unavailable,
    /// What the client calls itself is longer than [`CLIENT_NAME_MAX`] bytes.
    NameTooLong,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SessionError::Gone => "the client's session has ended; open the store again",
            SessionError::Unavailable => "the store's metadata cannot be reached at present; ask again",
            SessionError::NameTooLong => "what the client calls itself is longer than 255 bytes",
        })
    }
}

impl core::error::Error for SessionError {}

/// What happens to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionsEvent {
    /// A client asks.
    Request(SessionRequestId, SessionRequest),
    /// What became of a [`SessionsEffect::Kv`].
    Kv(KvToken, KvAnswer),
    /// A [`SessionsEffect::Fence`] was carried out at every target.
    Fenced(SessionId),
    /// This service is about to grant something to the session, or has taken over a region in which the session has grants. It may have been
    /// opened through another service and end before this one looks: whatever becomes of it, [`SessionsEffect::Ended`] is said.
    Granted(SessionId),
    /// Time for upkeep: a few times in the length of a lease.
    Tick,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionsEffect {
    /// Ask the key-value store.
    Kv(KvToken, KvRequest),
    /// A request is over; the store's epoch as it was when it was committed, or before.
    Answer(SessionRequestId, Result<Epoch, SessionError>),
    /// The lease of the session is over: have every target refuse it and end what it has in flight. Several services may say so.
    Fence(SessionId),
    /// The session has ended and is fenced: what it was granted may go into quarantine.
    Ended(SessionId),
    /// No session has a map that is older than this epoch, or I/O under one.
    Horizon(Epoch),
}

/// A session record, and since when this service knows it.
#[derive(Clone, Debug)]
struct Watched {
    value: Vec<u8>,
    seen: Nanos,
}

/// What an answer of Kv is for.
#[derive(Clone, Debug)]
enum Awaited {
    Open(SessionRequestId),
    /// The record before a renewal.
    Record(SessionRequestId, SessionId, Epoch),
    Renew(SessionRequestId),
    /// The record before an end; with a request if the client has closed it.
    Last(SessionRequestId, SessionId),
    End(Option<SessionRequestId>, SessionId),
    /// The recorded answers of a session that is fenced.
    Answers(SessionId),
    /// Some of them are deleted.
    Clear(SessionId),
    Release,
    Look,
}

/// The reading of all sessions, in this order.
#[derive(Clone, Debug, Default)]
enum Look {
    #[default]
    Idle,
    Epoch,
    Holds(Epoch, BTreeMap<SessionId, Versioned>),
    Records(Epoch, BTreeMap<SessionId, Versioned>, BTreeMap<SessionId, Versioned>),
}

/// See [the module](super).
#[derive(Clone, Debug)]
pub struct Sessions {
    timing: LeaseTiming,
    watched: BTreeMap<SessionId, Watched>,
    /// Sessions of which the end is to be said: those with a hold record as of the last look, and those that had grants when it began.
    held: BTreeSet<SessionId>,
    /// Sessions with grants that the look which goes on may have read too early to see.
    granted: BTreeSet<SessionId>,
    /// Sessions that are being fenced.
    fencing: BTreeSet<SessionId>,
    /// The epoch as of the last look.
    epoch: Epoch,
    look: Look,
    awaited: BTreeMap<KvToken, Awaited>,
    last_token: u64,
    planted: Planted,
}

impl Sessions {
    /// The machine of a service that has not looked yet.
    pub fn new(timing: LeaseTiming) -> Self {
        Self {
            timing,
            watched: BTreeMap::new(),
            held: BTreeSet::new(),
            granted: BTreeSet::new(),
            fencing: BTreeSet::new(),
            epoch: Epoch::default(),
            look: Look::Idle,
            awaited: BTreeMap::new(),
            last_token: 0,
            planted: Planted::default(),
        }
    }

    /// A planted fault from now on.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// The same with a planted fault.
    #[cfg(test)]
    pub(crate) fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.planted = mutant.into();
        self
    }

    /// Sessions that were there at the last look, and what their clients call themselves.
    pub fn known(&self) -> impl Iterator<Item = (SessionId, String)> + '_ {
        let client = |value: &[u8]| from_value::<SessionRecord>(value).map(|record| record.client).unwrap_or_default();
        self.watched.iter().map(move |(session, watched)| (*session, client(&watched.value)))
    }

    /// Whether it was there.
    pub fn is_known(&self, session: SessionId) -> bool {
        self.watched.contains_key(&session)
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.watched.len()
    }

    /// The store's epoch when this service looked last: it never says a later one than the store has, and stamps maps with it.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// One event; adds what is to be done. `now` is of this service's own clock.
    pub fn apply(&mut self, now: Nanos, event: SessionsEvent, effects: &mut Vec<SessionsEffect>) {
        match event {
            SessionsEvent::Request(id, SessionRequest::Open(session, client, token)) => {
                self.open(id, session, (client, token), effects)
            }
            SessionsEvent::Request(id, SessionRequest::Renew(session, epoch)) => {
                self.ask(Awaited::Record(id, session, epoch), KvRequest::Get(session_key(session)), effects);
            }
            SessionsEvent::Request(id, SessionRequest::Close(session)) => {
                self.ask(Awaited::Last(id, session), KvRequest::Get(session_key(session)), effects);
            }
            SessionsEvent::Kv(token, answer) => {
                if let Some(awaited) = self.awaited.remove(&token) {
                    self.answered(now, awaited, answer, effects);
                }
            }
            SessionsEvent::Fenced(session) => self.fenced(session, effects),
            SessionsEvent::Granted(_) if self.planted.is(Mutant::GrantsNotWatched) => {}
            SessionsEvent::Granted(session) if self.planted.is(Mutant::GrantsWatchedAtOnce) => {
                self.held.insert(session);
            }
            SessionsEvent::Granted(session) => {
                self.granted.insert(session);
            }
            SessionsEvent::Tick => self.tick(now, effects),
        }
    }

    fn ask(&mut self, awaited: Awaited, request: KvRequest, effects: &mut Vec<SessionsEffect>) {
        self.last_token += 1;
        let token = KvToken(self.last_token);
        self.awaited.insert(token, awaited);
        effects.push(SessionsEffect::Kv(token, request));
    }

    fn open(
        &mut self,
        id: SessionRequestId,
        session: SessionId,
        (client, token): (String, SessionToken),
        effects: &mut Vec<SessionsEffect>,
    ) {
        if client.len() > CLIENT_NAME_MAX {
            return effects.push(SessionsEffect::Answer(id, Err(SessionError::NameTooLong)));
        }
        let record = SessionRecord { client, lease: self.timing.lease(), beat: 0, token };
        let (record_at, hold_at) = (session_key(session), HoldRecord::key(session));
        // It has no maps; the epoch that this service knows is not younger than the store's.
        let hold = HoldRecord(self.epoch).encode();
        let mut commit = Commit {
            expect: alloc::vec![(record_at.clone(), Expect::Absent), (hold_at.clone(), Expect::Absent)],
            writes: alloc::vec![KvWrite::Put(record_at, to_value(&record)), KvWrite::Put(hold_at, hold)],
        };
        if self.planted.is(Mutant::OpenedWithoutHold) {
            commit.writes.truncate(1);
        }
        self.ask(Awaited::Open(id), KvRequest::Commit(commit), effects);
    }

    fn answered(&mut self, now: Nanos, awaited: Awaited, answer: KvAnswer, effects: &mut Vec<SessionsEffect>) {
        let told = |id, result| SessionsEffect::Answer(id, result);
        match (awaited, answer) {
            (Awaited::Open(id), answer) => effects.push(told(id, self.result(&answer))),
            (Awaited::Record(id, session, epoch), KvAnswer::Value(Ok(found))) => {
                self.renew(id, session, epoch, found, effects);
            }
            // A conflict may be an earlier sending of the same renewal.
            (Awaited::Renew(id), KvAnswer::Outcome(CommitOutcome::Done(_))) => effects.push(told(id, Ok(self.epoch))),
            (Awaited::Last(id, session), KvAnswer::Value(Ok(found))) => match found {
                Some(found) => self.end(Some(id), session, found.value, effects),
                None => effects.push(told(id, Err(SessionError::Gone))),
            },
            (Awaited::Record(id, ..) | Awaited::Renew(id) | Awaited::Last(id, _), _) => {
                effects.push(told(id, Err(SessionError::Unavailable)));
            }
            (Awaited::End(id, session), answer) => {
                let done = matches!(answer, KvAnswer::Outcome(CommitOutcome::Done(_)));
                if done {
                    self.watched.remove(&session);
                }
                match id {
                    // A client that has stopped needs no fencing.
                    Some(id) => {
                        let result = if done { Ok(self.epoch) } else { Err(SessionError::Unavailable) };
                        effects.push(told(id, result));
                        if done {
                            self.fencing.insert(session);
                            self.fenced(session, effects);
                        }
                    }
                    None if done => self.fence(session, effects),
                    None => {}
                }
            }
            (Awaited::Answers(session), KvAnswer::Page(Ok(page))) => self.clear(session, page, effects),
            (Awaited::Clear(session), KvAnswer::Outcome(CommitOutcome::Done(_))) => self.fenced(session, effects),
            // Done or not: the next look shows it.
            (Awaited::Answers(_) | Awaited::Clear(_) | Awaited::Release, _) => {}
            (Awaited::Look, answer) => self.looked(now, answer, effects),
        }
    }

    fn result(&self, answer: &KvAnswer) -> Result<Epoch, SessionError> {
        match answer {
            KvAnswer::Outcome(CommitOutcome::Done(_)) => Ok(self.epoch),
            KvAnswer::Outcome(CommitOutcome::Conflict | CommitOutcome::TooLarge) => Err(SessionError::Gone),
            _ => Err(SessionError::Unavailable),
        }
    }

    fn renew(
        &mut self,
        id: SessionRequestId,
        session: SessionId,
        epoch: Epoch,
        found: Option<Versioned>,
        effects: &mut Vec<SessionsEffect>,
    ) {
        let record = found.as_ref().map(|found| from_value::<SessionRecord>(&found.value));
        let (Some(found), Some(Ok(mut record))) = (found, record) else {
            return effects.push(SessionsEffect::Answer(id, Err(SessionError::Gone)));
        };
        record.beat = record.beat.wrapping_add(1);
        let key = session_key(session);
        let commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Value(found.value))],
            writes: alloc::vec![
                KvWrite::Put(key, to_value(&record)),
                KvWrite::Put(HoldRecord::key(session), HoldRecord(epoch).encode()),
            ],
        };
        self.ask(Awaited::Renew(id), KvRequest::Commit(commit), effects);
    }

    /// The session may not renew any more. Its hold record stays until it is fenced.
    fn end(
        &mut self,
        id: Option<SessionRequestId>,
        session: SessionId,
        value: Vec<u8>,
        effects: &mut Vec<SessionsEffect>,
    ) {
        let key = session_key(session);
        let commit = Commit {
            expect: alloc::vec![(key.clone(), Expect::Value(value))],
            writes: alloc::vec![KvWrite::Delete(key)],
        };
        self.ask(Awaited::End(id, session), KvRequest::Commit(commit), effects);
    }

    fn fence(&mut self, session: SessionId, effects: &mut Vec<SessionsEffect>) {
        if self.fencing.insert(session) {
            effects.push(SessionsEffect::Fence(session));
        }
        if self.planted.is(Mutant::EndedBeforeFenced) {
            effects.push(SessionsEffect::Ended(session));
        }
    }

    /// Every target refuses the session: it is over, for all services. What its requests were answered goes first, and its hold record with the
    /// last of that: as long as there is some left, a service that looks goes on with it.
    fn fenced(&mut self, session: SessionId, effects: &mut Vec<SessionsEffect>) {
        if self.fencing.contains(&session) {
            let (from, until) = answer_range(session);
            let range = KvRequest::Range { from, until, most: ANSWERS + 1 };
            self.ask(Awaited::Answers(session), range, effects);
        }
    }

    /// Deletes answers that were recorded for a session: it has ended, so that no change is made for it any more.
    fn clear(&mut self, session: SessionId, page: Vec<(KvKey, Versioned)>, effects: &mut Vec<SessionsEffect>) {
        let is_last = page.len() <= ANSWERS;
        let answers = page.into_iter().take(ANSWERS).map(|(key, _)| KvWrite::Delete(key));
        let hold = is_last.then(|| KvWrite::Delete(HoldRecord::key(session)));
        let commit = Commit {
            expect: alloc::vec![(session_key(session), Expect::Absent)],
            writes: answers.chain(hold).collect(),
        };
        let awaited = if is_last { Awaited::Release } else { Awaited::Clear(session) };
        self.ask(awaited, KvRequest::Commit(commit), effects);
    }

    fn tick(&mut self, now: Nanos, effects: &mut Vec<SessionsEffect>) {
        let over = |watched: &&Watched| {
            let end = if self.planted.is(Mutant::WatchWithoutMargin) { self.timing.renewal() } else { Nanos(0) };
            now >= self.timing.watcher_end(watched.seen).saturating_sub(end)
        };
        let ended: Vec<(SessionId, Vec<u8>)> = self
            .watched
            .iter_mut()
            .filter(|(_, watched)| over(&&**watched))
            .map(|(session, watched)| {
                // If that conflicts it has been renewed, and the next look shows it.
                watched.seen = now;
                (*session, watched.value.clone())
            })
            .collect();
        ended.into_iter().for_each(|(session, value)| self.end(None, session, value, effects));
        if matches!(self.look, Look::Idle) {
            self.look = Look::Epoch;
            self.held.append(&mut self.granted);
            self.ask(Awaited::Look, KvRequest::Get(Epoch::key()), effects);
        }
    }

    /// The next page of the records that are being read.
    fn look_on(&mut self, last: Option<SessionId>, effects: &mut Vec<SessionsEffect>) {
        let space = match self.look {
            Look::Holds(..) => KeySpace::Hold,
            _ => KeySpace::Session,
        };
        let from = last.and_then(SessionId::next).map_or_else(|| space.key(&[]), |next| space.number(next.get()));
        let range = KvRequest::Range { from, until: space.end(), most: RANGE_MAX };
        self.ask(Awaited::Look, range, effects);
    }

    fn looked(&mut self, now: Nanos, answer: KvAnswer, effects: &mut Vec<SessionsEffect>) {
        match (core::mem::take(&mut self.look), answer) {
            (Look::Epoch, KvAnswer::Value(Ok(value))) => {
                let epoch = value.map_or(Ok(Epoch(0)), |value| Epoch::decode(&value.value));
                let Ok(epoch) = epoch else { return };
                self.look = Look::Holds(epoch, BTreeMap::new());
                self.look_on(None, effects);
            }
            (Look::Holds(epoch, mut holds), KvAnswer::Page(Ok(page))) => {
                let last =
                    (page.len() == RANGE_MAX).then(|| page.last().and_then(|(key, _)| session_of(key))).flatten();
                holds.extend(page.into_iter().filter_map(|(key, value)| Some((session_of(&key)?, value))));
                self.look = match last {
                    Some(_) => Look::Holds(epoch, holds),
                    None => Look::Records(epoch, holds, BTreeMap::new()),
                };
                self.look_on(last, effects);
            }
            (Look::Records(epoch, holds, mut records), KvAnswer::Page(Ok(page))) => {
                let last =
                    (page.len() == RANGE_MAX).then(|| page.last().and_then(|(key, _)| session_of(key))).flatten();
                records.extend(page.into_iter().filter_map(|(key, value)| Some((session_of(&key)?, value))));
                if last.is_some() {
                    self.look = Look::Records(epoch, holds, records);
                    return self.look_on(last, effects);
                }
                self.compare(now, epoch, &holds, records, effects);
            }
            // No answer: the next upkeep begins anew.
            _ => {}
        }
    }

    /// What has changed since the last look. The hold records were read before the session records: a session that has the former and not the
    /// latter has ended.
    fn compare(
        &mut self,
        now: Nanos,
        epoch: Epoch,
        holds: &BTreeMap<SessionId, Versioned>,
        records: BTreeMap<SessionId, Versioned>,
        effects: &mut Vec<SessionsEffect>,
    ) {
        self.epoch = epoch;
        let is_live = |session: &SessionId| records.contains_key(session);
        let counted =
            holds.iter().filter(|(session, _)| is_live(session) || !self.planted.is(Mutant::HorizonWithoutFencing));
        // A record that cannot be read holds everything back.
        let acknowledged = counted.map(|(_, value)| HoldRecord::decode(&value.value).map_or(Epoch(0), |hold| hold.0));
        effects.push(SessionsEffect::Horizon(acknowledged.fold(epoch, Epoch::min)));
        let ended: Vec<SessionId> = holds.keys().filter(|session| !is_live(session)).copied().collect();
        let gone: Vec<SessionId> = self.held.iter().filter(|session| !holds.contains_key(session)).copied().collect();
        for session in gone {
            self.fencing.remove(&session);
            effects.push(SessionsEffect::Ended(session));
        }
        self.held = holds.keys().copied().collect();
        // Again at each look, should the service that began it have died, or the commit that ends it be lost.
        for session in ended {
            self.fencing.remove(&session);
            self.fence(session, effects);
        }
        self.watched.retain(|session, _| is_live(session));
        for (session, found) in records {
            let is_new = self.watched.get(&session).is_none_or(|watched| watched.value != found.value);
            if is_new {
                self.watched.insert(session, Watched { value: found.value, seen: now });
            }
        }
    }
}

/// The session in the key of one of its records.
fn session_of(key: &KvKey) -> Option<SessionId> {
    Some(SessionId(u64::from_be_bytes(key.0.get(1..)?.try_into().ok()?)))
}
