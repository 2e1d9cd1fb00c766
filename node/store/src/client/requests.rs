//! Requests to the metadata service: under way, sent again, each changing one once.

use super::connection::{Caller, Connection, refusal};
use super::error::{ClientError, ClientErrorKind};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use weir_store::file::FileError;
use weir_store::members::RenewalId;
use weir_store::protocol::{Answer, Request, RequestNumber, SessionWish, WelcomeInfo};
use weir_store::records::SessionToken;
use weir_store::{Location, SessionId, StoreError};
use weir_sys::transport::fds;
use weir_units::Nanos;

/// Slots that a session uses.
const SLOTS: u16 = 64;
/// Between attempts of a request that the service cannot answer at present.
const RETRY: Nanos = Nanos::from_millis(5);
/// Between attempts to connect again: the first pause and the longest; each one is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// What an answer is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A caller waits for it.
    Caller(u64),
    Renewal(RenewalId),
    Fetch(u32),
    Grant(Vec<u64>),
    Unsettle(u64),
    MarkOut(u64),
    Publish,
    /// A flush of bytes that lie in the inode: the open file, and the operation.
    InlineFlush(u64, u64),
    /// A file is opened again that a service has forgotten.
    Reopen,
    Namespaces,
    /// Nobody waits for it.
    Nothing,
}

/// A request that was not answered for good.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    pub request: Request,
    pub purpose: Purpose,
    /// The open file whose handle it names.
    pub file: Option<u64>,
    /// Its slot, once it has one.
    slot: Option<u16>,
    pub deadline: Nanos,
}

impl Unanswered {
    pub fn new(request: Request, purpose: Purpose, file: Option<u64>, deadline: Nanos) -> Self {
        Self { request, purpose, file, slot: None, deadline }
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
            | Request::Unsettle { handle, .. }
            | Request::MarkOut { handle, .. }
            | Request::Publish { handle, .. } => Some(handle),
            _ => None,
        }
    }
}

type Connected = Result<(Connection, WelcomeInfo), ClientError>;

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Requests {
    caller: Caller,
    session: (SessionId, SessionToken),
    connection: Option<Connection>,
    /// Rises with each connection.
    pub connections: u64,
    again: Option<Receiver<Connected>>,
    bell: Arc<OwnedFd>,
    under_way: BTreeMap<RequestNumber, Unanswered>,
    last: u64,
    /// The last sequence of each slot.
    sequences: Vec<u64>,
    free: Vec<u16>,
    /// For a slot.
    waiting: VecDeque<Unanswered>,
    /// To be sent again then.
    later: Vec<(Nanos, Unanswered)>,
    answers: Vec<(RequestNumber, Answer)>,
    /// Why there is no connection.
    pub trouble: Option<String>,
    /// The session is over.
    pub is_over: bool,
}

impl Requests {
    pub fn new(caller: Caller, session: (SessionId, SessionToken), connection: Connection, bell: Arc<OwnedFd>) -> Self {
        Self {
            caller,
            session,
            connection: Some(connection),
            connections: 1,
            again: None,
            bell,
            under_way: BTreeMap::new(),
            last: 0,
            sequences: vec![0; SLOTS.into()],
            free: (0..SLOTS).rev().collect(),
            waiting: VecDeque::new(),
            later: Vec::new(),
            answers: Vec::new(),
            trouble: None,
            is_over: false,
        }
    }

    pub fn location(&self) -> &Location {
        &self.caller.location
    }

    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Requests that are not answered.
    pub fn pending(&self) -> usize {
        self.under_way.len() + self.waiting.len() + self.later.len()
    }

    /// When something is to be sent again.
    pub fn due(&self) -> Nanos {
        self.later.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::NEVER)
    }

    /// Sends a request, when it has a slot if it needs one.
    pub fn send(&mut self, mut sent: Unanswered) -> Result<(), ClientError> {
        let slot = sent.slot;
        if let Some((to_slot, to_sequence)) = sent.key().filter(|_| slot.is_none()) {
            let Some(slot) = self.free.pop() else {
                self.waiting.push_back(sent);
                return Ok(());
            };
            self.sequences[usize::from(slot)] += 1;
            (*to_slot, *to_sequence) = (slot, self.sequences[usize::from(slot)]);
            sent.slot = Some(slot);
        }
        self.last += 1;
        let number = RequestNumber(self.last);
        if let Some(connection) = &mut self.connection {
            if let Err(error) = connection.put(&sent.request, number) {
                self.end_slot(&sent);
                return Err(error);
            }
        }
        self.under_way.insert(number, sent);
        Ok(())
    }

    /// A request was answered for good: its slot is free for the next one.
    pub fn end_slot(&mut self, sent: &Unanswered) {
        let Some(slot) = sent.slot else { return };
        self.free.push(slot);
        if let Some(next) = self.waiting.pop_front() {
            // One that is too long was refused when it came, or is by its deadline.
            let _ = self.send(next);
        }
    }

    /// It is sent again later, with the same slot and sequence.
    pub fn retry(&mut self, now: Nanos, sent: Unanswered) {
        self.later.push((now.saturating_add(RETRY), sent));
    }

    /// Sends and receives: answers, with what they are for. `true` if anything has come.
    pub fn poll(&mut self, now: Nanos, answered: &mut Vec<(Unanswered, Answer)>) -> bool {
        self.take_connection();
        let mut at = 0;
        while at < self.later.len() {
            if self.later[at].0 > now {
                at += 1;
                continue;
            }
            let (_, sent) = self.later.swap_remove(at);
            let _ = self.send(sent);
        }
        let Some(connection) = &mut self.connection else { return false };
        let result = connection.flush().and_then(|()| connection.receive(&mut self.answers));
        for (number, answer) in self.answers.drain(..) {
            if let Some(sent) = self.under_way.remove(&number) {
                answered.push((sent, answer));
            }
        }
        match result {
            Ok(got) => got,
            Err(why) => {
                self.lose(why);
                true
            }
        }
    }

    /// The connection is lost: it is made again, by a thread.
    fn lose(&mut self, why: String) {
        tracing::debug!("{}: {why}; it is connected to again", self.caller.address);
        self.connection = None;
        self.trouble = Some(why);
        if self.again.is_some() || self.is_over {
            return;
        }
        let (sender, again) = mpsc::sync_channel(1);
        let (caller, session, bell) = (self.caller.clone(), self.session, self.bell.clone());
        let run = move || {
            let mut pause = PAUSE.0;
            loop {
                let wish = SessionWish::Resume(session.0, session.1);
                let made = caller.connect(wish, ATTEMPT).map(|(c, welcome, _)| (c, welcome));
                let is_final = match &made {
                    Ok(_) => true,
                    Err(error) => *error.kind() == ClientErrorKind::SessionOver,
                };
                if is_final {
                    // Its receiver may have gone.
                    let _ = sender.send(made);
                    return fds::signal(&*bell);
                }
                // Only this thread and the client's have the bell.
                if Arc::strong_count(&bell) == 1 {
                    return;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        };
        match std::thread::Builder::new().name("weir-store-meta".into()).spawn(run) {
            Ok(_) => self.again = Some(again),
            Err(e) => self.trouble = Some(format!("no thread to connect again: {e}")),
        }
    }

    fn take_connection(&mut self) {
        let Some(made) = self.again.as_ref().and_then(|again| again.try_recv().ok()) else { return };
        self.again = None;
        match made {
            Ok((connection, _)) => {
                self.connection = Some(connection);
                self.connections += 1;
                self.trouble = None;
                // What was not answered is sent again; what was carried out is answered as it was.
                for (number, sent) in &self.under_way {
                    if let Some(connection) = &mut self.connection {
                        let _ = connection.put(&sent.request, *number);
                    }
                }
            }
            Err(_) => self.is_over = true,
        }
    }

    /// All that is not answered; nothing more is sent.
    pub fn fail_all(&mut self) -> Vec<Unanswered> {
        let under_way = std::mem::take(&mut self.under_way).into_values();
        let later = std::mem::take(&mut self.later).into_iter().map(|(_, sent)| sent);
        under_way.chain(std::mem::take(&mut self.waiting)).chain(later).collect()
    }

    /// Takes requests out whose deadline has passed and whose purpose is an operation that has one; their slots stay taken until they are
    /// answered.
    pub fn late(&mut self, now: Nanos) -> Vec<Purpose> {
        let mut late = Vec::new();
        let under_way = self.under_way.values_mut();
        for sent in under_way.chain(&mut self.waiting).chain(self.later.iter_mut().map(|(_, sent)| sent)) {
            if sent.deadline <= now {
                sent.deadline = Nanos::NEVER;
                late.push(match &sent.purpose {
                    // The file waits for it all the same.
                    Purpose::InlineFlush(..) => sent.purpose.clone(),
                    _ => std::mem::replace(&mut sent.purpose, Purpose::Nothing),
                });
            }
        }
        late
    }

    /// A file was opened again: what waits names its new handle.
    pub fn rename_handles(&mut self, file: u64, new: u64) {
        let later = self.later.iter_mut().map(|(_, sent)| sent);
        for sent in later.chain(&mut self.waiting).filter(|sent| sent.file == Some(file)) {
            if let Some(handle) = sent.handle() {
                *handle = new;
            }
        }
    }

    /// A file cannot be opened again: what waits for that.
    pub fn take_of_file(&mut self, file: u64) -> Vec<Unanswered> {
        let (of_file, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(_, sent)| sent.file == Some(file));
        self.later = others;
        of_file.into_iter().map(|(_, sent)| sent).collect()
    }

    /// Ends the session, if that can be said.
    pub fn bye(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        self.last += 1;
        if connection.put(&Request::Bye {}, RequestNumber(self.last)).is_ok() {
            let _ = connection.flush();
        }
    }
}

/// Whether the same request may have another answer soon.
pub(super) fn is_passing(error: StoreError) -> bool {
    matches!(error, StoreError::Unavailable | StoreError::Overloaded | StoreError::Ahead | StoreError::Recovering)
}

/// The error of a file's machine for a refusal.
pub(super) fn file_error(error: StoreError) -> FileError {
    match error {
        StoreError::NoSpace => FileError::NoSpace,
        StoreError::SessionGone => FileError::LeaseOver,
        _ => FileError::Metadata,
    }
}

/// An answer that is not a refusal.
pub(super) fn accepted(answer: Answer) -> Result<Answer, ClientError> {
    match answer {
        Answer::Failed { error, detail } => Err(refusal(error, &detail)),
        answer => Ok(answer),
    }
}
