//! Requests to the metadata service: under way, sent again, each changing one once.

use super::event::{ClientEffect, MemoryId, OpenFileId, WorkId};
use crate::error::StoreError;
use crate::members::RenewalId;
use crate::protocol::{Request, RequestNumber, VERSION_GRANT_SHORT};
use crate::tree::InodePath;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Slots that a session uses.
const SLOTS: u16 = 64;
/// Between attempts of a request that the service cannot answer at present.
const RETRY: Nanos = Nanos::from_millis(5);
/// The same where blocks become free only when other sessions have been heard of.
const RETRY_FREEING: Nanos = Nanos::from_millis(20);

/// What an answer is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A caller waits for it.
    Ask(WorkId),
    /// A caller waits for the file.
    Open(WorkId),
    Renewal(RenewalId),
    Fetch(MemoryId, u32),
    Grant(MemoryId, Vec<u64>),
    Unsettle(MemoryId, u64),
    MarkOut(MemoryId, u64),
    Publish(MemoryId),
    /// Bytes of the inode are flushed: the work, if it is not a sequence that does.
    InlineFlush(Option<WorkId>),
    /// A step of the file's sequence.
    Step,
    /// A file is opened again that the service has forgotten.
    Reopen,
    /// A file that was open for writing is closed, and nobody waits for that.
    Close(InodePath),
    Namespaces,
    /// Blocks go back.
    Return,
    /// Nobody waits for it.
    Nothing,
}

/// A request that was not answered for good.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    pub request: Request,
    pub purpose: Purpose,
    /// The open file whose handle it names.
    pub file: Option<OpenFileId>,
    /// Its slot, once it has one.
    slot: Option<u16>,
}

impl Unanswered {
    pub fn new(request: Request, purpose: Purpose, file: Option<OpenFileId>) -> Self {
        Self { request, purpose, file, slot: None }
    }

    /// The slot and sequence that it is marked with, if it changes something.
    fn key(&mut self) -> Option<(&mut u16, &mut u64)> {
        match &mut self.request {
            Request::Change { slot, sequence, .. }
            | Request::OpenNew { slot, sequence, .. }
            | Request::Publish { slot, sequence, .. } => Some((slot, sequence)),
            _ => None,
        }
    }

    /// The handle that it names.
    pub fn handle(&mut self) -> Option<&mut u64> {
        match &mut self.request {
            Request::Close { handle }
            | Request::Map { handle, .. }
            | Request::Grant { handle, .. }
            | Request::GrantShort { handle, .. }
            | Request::Unsettle { handle, .. }
            | Request::MarkOut { handle, .. }
            | Request::Publish { handle, .. } => Some(handle),
            _ => None,
        }
    }
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Requests {
    pub is_connected: bool,
    under_way: BTreeMap<RequestNumber, Unanswered>,
    last: u64,
    /// The last sequence of each slot.
    sequences: Vec<u64>,
    free: Vec<u16>,
    /// For a slot.
    waiting: VecDeque<Unanswered>,
    /// To be sent again then.
    later: Vec<(Nanos, Unanswered)>,
    /// Why there is no connection.
    pub trouble: Option<String>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            is_connected: true,
            under_way: BTreeMap::new(),
            last: 0,
            sequences: alloc::vec![0; SLOTS.into()],
            free: (0..SLOTS).rev().collect(),
            waiting: VecDeque::new(),
            later: Vec::new(),
            trouble: None,
        }
    }
}

impl Requests {
    /// Requests that are not answered.
    pub fn pending(&self) -> usize {
        self.under_way.len() + self.waiting.len() + self.later.len()
    }

    /// When something is to be sent again.
    pub fn due(&self) -> Nanos {
        self.later.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::NEVER)
    }

    /// Sends a request, when it has a slot if it needs one.
    pub fn send(&mut self, mut sent: Unanswered, effects: &mut Vec<ClientEffect>) {
        let slot = sent.slot;
        if let Some((to_slot, to_sequence)) = sent.key().filter(|_| slot.is_none()) {
            let Some(slot) = self.free.pop() else { return self.waiting.push_back(sent) };
            self.sequences[usize::from(slot)] += 1;
            (*to_slot, *to_sequence) = (slot, self.sequences[usize::from(slot)]);
            sent.slot = Some(slot);
        }
        self.last += 1;
        let number = RequestNumber(self.last);
        if self.is_connected {
            effects.push(ClientEffect::Send(number, sent.request.clone()));
        }
        self.under_way.insert(number, sent);
    }

    /// What that number is for: it was answered.
    pub fn take(&mut self, number: RequestNumber) -> Option<Unanswered> {
        self.under_way.remove(&number)
    }

    /// A request was answered for good: its slot is free for the next one.
    pub fn end_slot(&mut self, sent: &Unanswered, effects: &mut Vec<ClientEffect>) {
        let Some(slot) = sent.slot else { return };
        self.free.push(slot);
        if let Some(next) = self.waiting.pop_front() {
            self.send(next, effects);
        }
    }

    /// It is sent again later, with the same slot and sequence.
    pub fn retry(&mut self, now: Nanos, sent: Unanswered) {
        self.later.push((now.saturating_add(RETRY), sent));
    }

    /// The same, when blocks may be free.
    pub fn retry_freeing(&mut self, now: Nanos, sent: Unanswered) {
        self.later.push((now.saturating_add(RETRY_FREEING), sent));
    }

    /// What is due to be sent again.
    pub fn take_due(&mut self, now: Nanos) -> Vec<Unanswered> {
        if self.due() > now {
            return Vec::new();
        }
        let (due, later): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        due.into_iter().map(|(_, sent)| sent).collect()
    }

    /// There is a connection to a service that speaks that version: what was not answered is sent again; what was carried out is answered as it
    /// was.
    pub fn connected(&mut self, version: u16, effects: &mut Vec<ClientEffect>) {
        (self.is_connected, self.trouble) = (true, None);
        let later = self.later.iter_mut().map(|(_, sent)| sent);
        for sent in self.under_way.values_mut().chain(later).filter(|_| version < VERSION_GRANT_SHORT) {
            if let Request::GrantShort { handle, .. } = sent.request {
                sent.request = Request::Grant { handle, count: 1 };
            }
        }
        effects.extend(self.under_way.iter().map(|(number, sent)| ClientEffect::Send(*number, sent.request.clone())));
    }

    /// All that is not answered; nothing more is sent.
    pub fn take_all(&mut self) -> Vec<Unanswered> {
        let under_way = core::mem::take(&mut self.under_way).into_values();
        let later = core::mem::take(&mut self.later).into_iter().map(|(_, sent)| sent);
        under_way.chain(core::mem::take(&mut self.waiting)).chain(later).collect()
    }

    /// Panics unless every slot is free or one request's.
    pub fn check(&self) {
        let later = self.later.iter().map(|(_, sent)| sent);
        let used = self.under_way.values().chain(later).filter(|sent| sent.slot.is_some()).count();
        assert!(used + self.free.len() <= usize::from(SLOTS), "a slot is one request's");
        assert!(self.waiting.is_empty() || self.free.is_empty(), "none waits for a slot while one is free");
    }
}

/// Whether the same request may have another answer soon.
pub(super) fn is_passing(error: StoreError) -> bool {
    matches!(error, StoreError::Unavailable | StoreError::Overloaded | StoreError::Ahead | StoreError::Recovering)
}
