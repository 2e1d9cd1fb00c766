//! How a service begins: what the store is, its classes, its namespaces, and numbers for sessions; each read, or made.

use super::event::ServiceEffect;
use super::machine::Service;
use super::state::{KvOwner, OwnRead, SessionNumbers, Stage, Work};
use crate::class::ClassName;
use crate::id::{NamespaceId, SessionId};
use crate::keys::{KeySpace, removed_key};
use crate::kv::{Commit, CommitOutcome, Expect, KvAnswer, KvKey, KvRequest, KvWrite, RANGE_MAX, Versioned};
use crate::members::SessionsEvent;
use crate::records::{
    ClassesRecord, CounterRecord, NamespaceRecord, RemovedRecord, SessionRecord, StoreRecord, from_value, to_value,
};
use crate::tree::{TreeEvent, make_store};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Session numbers that are reserved at a time.
const NUMBERS: u64 = 1024;

impl Service {
    pub(super) fn start(&mut self, effects: &mut Vec<ServiceEffect>) {
        self.standby.since = self.clock.wall;
        self.push(Work::Tree(TreeEvent::Tick));
        self.look_at_processes(effects);
    }

    /// Reads what the stage is about, unless it is being read.
    pub(super) fn go_on_starting(&mut self, effects: &mut Vec<ServiceEffect>) {
        if self.starting.is_waiting || self.starting.is_refused || self.standby.life.is_none() {
            return;
        }
        let request = match self.starting.stage {
            Stage::Store => KvRequest::Get(KeySpace::Store.key(&[])),
            Stage::Classes => KvRequest::Get(KeySpace::Classes.key(&[])),
            Stage::Namespaces => {
                let last = self.namespaces.last_key_value().map(|(number, _)| *number);
                let from = last
                    .and_then(NamespaceId::next)
                    .map_or_else(|| KeySpace::Namespace.key(&[]), |next| KeySpace::Namespace.number(next.get()));
                KvRequest::Range { from, until: KeySpace::Namespace.end(), most: RANGE_MAX }
            }
            Stage::Removed => {
                let last = self.removed.last_key_value().and_then(|(number, _)| number.next());
                let from = last.map_or_else(|| KeySpace::Removed.key(&[]), removed_key);
                KvRequest::Range { from, until: KeySpace::Removed.end(), most: RANGE_MAX }
            }
            Stage::NamespaceNumber => KvRequest::Get(KeySpace::NextNamespace.key(&[])),
            Stage::Numbers => KvRequest::Get(KeySpace::NextSession.key(&[])),
            Stage::Over => return,
        };
        self.starting.is_waiting = true;
        self.ask_kv(KvOwner::own(OwnRead::Start), request, effects);
    }

    pub(super) fn own_read(&mut self, read: OwnRead, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        match (read, answer) {
            (OwnRead::Start, answer) => {
                self.starting.is_waiting = false;
                match answer {
                    KvAnswer::Value(Ok(value)) => self.start_value(value, effects),
                    KvAnswer::Page(Ok(page)) => self.start_page(page, effects),
                    // The next tick asks again.
                    _ => {}
                }
            }
            (OwnRead::StartWrite, answer) => {
                self.starting.is_waiting = false;
                // One that is not made, or not known to be, is looked at with the next tick.
                if matches!(answer, KvAnswer::Outcome(outcome) if is_done(outcome)) {
                    self.go_on_starting(effects);
                }
            }
            (OwnRead::Reserved, answer) => self.reserved(answer, effects),
            (OwnRead::ReservedLook, answer) => self.reserved_looked(answer),
            (OwnRead::Resume(id, session, token), KvAnswer::Value(value)) => {
                let record = value.map(|found| found.and_then(|found| from_value::<SessionRecord>(&found.value).ok()));
                self.resumed(id, (session, token), record, effects);
            }
            (OwnRead::Map(id, epoch), KvAnswer::Value(value)) => self.chunk_read(id, epoch, value, effects),
            (OwnRead::Processes, answer) => self.processes_read(answer, effects),
            (OwnRead::ProcessWritten, _) => self.standby.is_writing = false,
            (OwnRead::IsOver(session), KvAnswer::Outcome(outcome)) => self.is_over(session, outcome),
            (OwnRead::Recovery(read), answer) => self.recovery_read(read, answer, effects),
            (OwnRead::Move(id, read), answer) => self.move_read(id, read, answer, effects),
            (OwnRead::Lacking(read), answer) => self.lacking_read(read, answer, effects),
            (OwnRead::Cold(look), answer) => self.looked_at(look, answer, effects),
            (OwnRead::Parent(id), KvAnswer::Value(value)) => self.parent_read(id, value, effects),
            (OwnRead::Donated(namespace, donating, record), KvAnswer::Outcome(outcome)) => {
                self.donation_written(namespace, donating, record, outcome, effects);
            }
            (OwnRead::DonatedLook(namespace, donating, record), KvAnswer::Value(value)) => {
                let found = value.map(|found| found.map(|found| found.value));
                self.donation_looked(namespace, donating, record, found, effects);
            }
            (OwnRead::NamespaceChanged(id, namespace, record), KvAnswer::Outcome(outcome)) => {
                self.namespace_changed(id, namespace, record, outcome, effects);
            }
            (OwnRead::NamespaceLook(id, namespace, record), KvAnswer::Value(value)) => {
                let found = value.map(|found| found.map(|found| found.value));
                self.namespace_looked(id, namespace, record, found, effects);
            }
            // An answer to another question.
            (
                OwnRead::Resume(id, ..)
                | OwnRead::Map(id, _)
                | OwnRead::Parent(id)
                | OwnRead::NamespaceChanged(id, ..)
                | OwnRead::NamespaceLook(id, ..),
                _,
            ) => {
                self.fail(id, crate::StoreError::Unavailable, "", effects);
            }
            (OwnRead::IsOver(_), _) => {}
            (OwnRead::Donated(_, donating, _) | OwnRead::DonatedLook(_, donating, _), _) => {
                self.fail(donating.id, crate::StoreError::Unavailable, "", effects);
            }
        }
    }

    fn refuse(&mut self, why: alloc::string::String, effects: &mut Vec<ServiceEffect>) {
        self.starting.is_refused = true;
        effects.push(ServiceEffect::Refuse(why));
    }

    fn start_write(&mut self, commit: Commit, effects: &mut Vec<ServiceEffect>) {
        self.starting.is_waiting = true;
        self.ask_kv(KvOwner::own(OwnRead::StartWrite), KvRequest::Commit(commit), effects);
    }

    fn start_value(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        match self.starting.stage {
            Stage::Store => match value.map(|found| from_value::<StoreRecord>(&found.value)) {
                None => {
                    let id = self.random.next_u64();
                    self.start_write(make_store(id, self.clock.wall), effects);
                }
                Some(Ok(store)) => {
                    self.store = store;
                    self.next_stage(Stage::Classes, effects);
                }
                Some(Err(_)) => {
                    self.refuse("it holds a store of another version: use the program of its release".into(), effects)
                }
            },
            Stage::Classes => self.start_classes(value, effects),
            Stage::NamespaceNumber => match value.map(|found| from_value::<CounterRecord>(&found.value)) {
                Some(Err(_)) => self.refuse("the number of its next namespace is damaged".into(), effects),
                counter => {
                    self.next_namespace = counter.and_then(Result::ok).map_or(1, |counter| counter.next);
                    self.next_stage(Stage::Numbers, effects);
                }
            },
            Stage::Numbers => {
                let key = KeySpace::NextSession.key(&[]);
                let counter = value.as_ref().map(|found| from_value::<CounterRecord>(&found.value));
                let next = match counter {
                    None => 1,
                    Some(Ok(counter)) => counter.next,
                    Some(Err(_)) => return self.refuse("the number of its next session is damaged".into(), effects),
                };
                // Whether it was made or not: what was reserved before is skipped when it is read again.
                if self.session_numbers.end != next {
                    self.session_numbers.end = next.saturating_add(NUMBERS);
                    let expect = value.map_or(Expect::Absent, |found| Expect::Value(found.value));
                    let counter = CounterRecord { next: self.session_numbers.end };
                    let writes = alloc::vec![KvWrite::Put(key.clone(), to_value(&counter))];
                    return self.start_write(Commit { expect: alloc::vec![(key, expect)], writes }, effects);
                }
                // The counter is where this service has put it: the numbers before it are its own.
                self.session_numbers.next = next.saturating_sub(NUMBERS);
                self.first_session.get_or_insert(SessionId(self.session_numbers.next));
                self.next_stage(Stage::Over, effects);
            }
            Stage::Namespaces | Stage::Removed | Stage::Over => {}
        }
    }

    fn start_classes(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        let found = value.as_ref().map(|found| from_value::<ClassesRecord>(&found.value));
        let record = match found {
            None => ClassesRecord::default(),
            Some(Ok(record)) => record,
            Some(Err(_)) => return self.refuse("the names of its classes are damaged".into(), effects),
        };
        let mut names = record.names.clone();
        let new = self.settings.classes.iter().filter(|name| !record.names.contains(name));
        names.extend(new.cloned());
        let wished: Vec<&ClassName> = names.iter().filter(|name| self.settings.classes.contains(name)).collect();
        if !wished.iter().copied().eq(&self.settings.classes) {
            let list: Vec<_> = record.names.iter().map(ToString::to_string).collect();
            let why =
                format!("the store's classes are {} in this order: new ones can be named behind them", list.join(", "));
            return self.refuse(why, effects);
        }
        if names == record.names {
            self.classes = record;
            return self.next_stage(Stage::Namespaces, effects);
        }
        let key = KeySpace::Classes.key(&[]);
        let expect = value.map_or(Expect::Absent, |found| Expect::Value(found.value));
        let writes = alloc::vec![KvWrite::Put(key.clone(), to_value(&ClassesRecord { names }))];
        self.start_write(Commit { expect: alloc::vec![(key, expect)], writes }, effects);
    }

    fn start_page(&mut self, page: Vec<(KvKey, Versioned)>, effects: &mut Vec<ServiceEffect>) {
        let is_last = page.len() < RANGE_MAX;
        for (key, value) in page {
            let number = key.0.get(1..).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
            let is_read = match (self.starting.stage, number) {
                (Stage::Namespaces, Some(number)) => from_value::<NamespaceRecord>(&value.value)
                    .map(|record| self.add_namespace(NamespaceId(number), record, false))
                    .is_ok(),
                (Stage::Removed, Some(number)) => from_value::<RemovedRecord>(&value.value)
                    .map(|record| self.removed.insert(NamespaceId(number), record.label))
                    .is_ok(),
                _ => false,
            };
            if !is_read {
                return self.refuse("the record of a namespace is damaged: weir store fsck".into(), effects);
            }
        }
        match self.starting.stage {
            _ if !is_last => self.go_on_starting(effects),
            Stage::Namespaces => self.next_stage(Stage::Removed, effects),
            _ => self.next_stage(Stage::NamespaceNumber, effects),
        }
    }

    fn next_stage(&mut self, stage: Stage, effects: &mut Vec<ServiceEffect>) {
        self.starting.stage = stage;
        if stage == Stage::Over {
            self.push(Work::Sessions(SessionsEvent::Tick));
            self.look_at_namespaces(effects);
        } else {
            self.go_on_starting(effects);
        }
    }

    /// A session number that was never used; more are reserved while there are some left. None where clients come faster than that: they ask again.
    pub(super) fn session_number(&mut self, effects: &mut Vec<ServiceEffect>) -> Option<SessionId> {
        let SessionNumbers { next, end, .. } = self.session_numbers;
        if end.saturating_sub(next) <= NUMBERS / 2 {
            self.reserve_numbers(effects);
        }
        if next >= end {
            return None;
        }
        self.session_numbers.next += 1;
        Some(SessionId(next))
    }

    fn reserve_numbers(&mut self, effects: &mut Vec<ServiceEffect>) {
        let end = self.session_numbers.end;
        let (Some(next), false) = (end.checked_add(NUMBERS), self.session_numbers.reserves) else { return };
        self.session_numbers.reserves = true;
        let key = KeySpace::NextSession.key(&[]);
        let expect = Expect::Value(to_value(&CounterRecord { next: end }));
        let writes = alloc::vec![KvWrite::Put(key.clone(), to_value(&CounterRecord { next }))];
        let commit = Commit { expect: alloc::vec![(key, expect)], writes };
        self.ask_kv(KvOwner::own(OwnRead::Reserved), KvRequest::Commit(commit), effects);
    }

    fn reserved(&mut self, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        match answer {
            KvAnswer::Outcome(outcome) if is_done(outcome) => {
                self.session_numbers.reserves = false;
                self.session_numbers.end = self.session_numbers.end.saturating_add(NUMBERS);
            }
            _ => {
                let request = KvRequest::Get(KeySpace::NextSession.key(&[]));
                self.ask_kv(KvOwner::own(OwnRead::ReservedLook), request, effects);
            }
        }
    }

    /// Nobody else moves the counter in this life: what lies before it is reserved. Where it cannot be read the next client has it tried again.
    fn reserved_looked(&mut self, answer: KvAnswer) {
        self.session_numbers.reserves = false;
        if let KvAnswer::Value(Ok(Some(found))) = answer {
            let counter = from_value::<CounterRecord>(&found.value).map_or(0, |counter| counter.next);
            self.session_numbers.end = self.session_numbers.end.max(counter);
        }
    }
}

/// Whether a commit was made. Of one that is unknown the caller tries again.
pub(super) fn is_done(outcome: CommitOutcome) -> bool {
    matches!(outcome, CommitOutcome::Done(_))
}
