//! etcd as the key-value store of a metadata service: another machine's process has the metadata, and survives this one.
//!
//! ```text
//!   the service's thread ──ask──► a thread with a tokio runtime ──Range, Txn──► a member of etcd
//!                        ◄─answered, after `has_answered`──          ◄──or the next one
//! ```
//! Many requests are on their way at a time, and their answers come in any order. **A read** is linearizable (etcd asks its other members) and is tried with one
//! member after the other. **A commit** is one transaction, sent once: preconditions are its comparisons. Without an answer its outcome is
//! [unknown](CommitOutcome::Unknown), and whoever asked reads what became of it. Nothing is answered before [`ANSWER`] has passed in which etcd cannot be
//! reached, so that nobody asks without a pause.
//!
//! Where etcd has no room left ([quota](https://etcd.io/docs/v3.5/op-guide/maintenance/#space-quota)) reads go on and no change is made; [`EtcdKv::trouble`] says so.
//! **TLS and users**: a member may ask for a certificate, and etcd for a user. A user is given a token when the connection is made, which the requests carry; where etcd
//! does not know it any more another one is asked for, and what was refused for that is sent again.
//!
//! The keys of the store begin with its prefix and a zero byte, so that several stores share an etcd, also where one prefix begins with another.

mod access;
mod connection;
mod messages;
mod transport;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
pub(crate) mod tests;

use connection::{Members, NoAnswer, SharedMembers};
use messages::{
    Compare, CompareResult, CompareTarget, Compared, DeleteRangeRequest, Operation, PutRequest, RangeRequest,
    RequestOp, TxnRequest,
};
use prost::Message as _;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
pub use weir_config::{EtcdAccess, EtcdMeta, EtcdUser, PemPair};
use weir_store::kv::{
    Commit, CommitOutcome, Expect, Kv, KvAnswer, KvKey, KvRequest, KvToken, KvUnavailable, KvWrite, RANGE_MAX,
    Revision, Versioned,
};

/// Behind the prefix: no prefix has it.
const SEPARATOR: char = '\0';

/// How long a request may take, over all members.
const ANSWER: Duration = Duration::from_secs(3);

/// How long a member may take for it.
const ATTEMPT: Duration = Duration::from_millis(1500);

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(1);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two looks at a connection with requests under way, and how long such a look may take.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// etcd as a key-value store, asked by messages.
pub struct EtcdKv {
    requests: Option<UnboundedSender<(KvToken, KvRequest)>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for EtcdKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdKv").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    answers: Mutex<Vec<(KvToken, KvAnswer)>>,
    trouble: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EtcdKv {
    /// Begins to ask the etcd there; `has_answered` is called, by another thread, when there is an [answer](Self::answered). etcd need not be reached yet.
    ///
    /// # Errors
    /// A file of its [access](EtcdMeta::access) cannot be used, or no thread can be had.
    pub fn open(meta: &EtcdMeta, has_answered: impl Fn() + Send + Sync + 'static) -> std::io::Result<Self> {
        access::check(meta).map_err(std::io::Error::other)?;
        let (requests, mut asked) = tokio::sync::mpsc::unbounded_channel::<(KvToken, KvRequest)>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let shared = Arc::<Shared>::default();
        let (with, has_answered) = (Arc::clone(&shared), Arc::new(has_answered));
        let members: SharedMembers = Arc::new(Members::new(meta));
        let prefix: Arc<str> = format!("{}{SEPARATOR}", meta.prefix).into();
        let run = async move {
            while let Some((token, request)) = asked.recv().await {
                let (members, shared, prefix) = (Arc::clone(&members), Arc::clone(&with), Arc::clone(&prefix));
                let has_answered = Arc::clone(&has_answered);
                tokio::spawn(async move {
                    let answer = perform(&members, &shared, prefix.as_bytes(), request).await;
                    lock(&shared.answers).push((token, answer));
                    has_answered();
                });
            }
        };
        let thread = std::thread::Builder::new().name("weir-etcd".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { requests: Some(requests), shared, thread: Some(thread) })
    }

    /// Sends a request on its way.
    pub fn ask(&self, token: KvToken, request: KvRequest) {
        let Some(requests) = &self.requests else { return };
        if let Err(unsent) = requests.send((token, request)) {
            // Its thread has panicked, which has been printed.
            let (token, request) = unsent.0;
            lock(&self.shared.answers).push((token, request.unanswered()));
        }
    }

    /// The answers that have come.
    pub fn answered(&self) -> Vec<(KvToken, KvAnswer)> {
        std::mem::take(&mut lock(&self.shared.answers))
    }

    /// What is wrong with etcd, by the last that was heard. `None`: all is well.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.shared.trouble).clone()
    }
}

impl Drop for EtcdKv {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // What is under way is given up with the runtime. A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// Carries a request out.
async fn perform(members: &Members, shared: &Shared, prefix: &[u8], request: KvRequest) -> KvAnswer {
    let until = Instant::now() + ANSWER;
    let unanswered = request.unanswered();
    let is_change = matches!(&request, KvRequest::Commit(commit) if !commit.writes.is_empty());
    let answer = match request {
        KvRequest::Get(key) => {
            let one = RangeRequest { key: with(prefix, &key), ..RangeRequest::default() };
            members.read(one, until).await.map(|found| {
                let value = found.kvs.into_iter().next().map(|found| versioned(found.mod_revision, found.value));
                KvAnswer::Value(Ok(value))
            })
        }
        KvRequest::Range { from, until: end, most } => {
            let limit = most.min(RANGE_MAX);
            if limit == 0 || from >= end {
                return KvAnswer::Page(Ok(Vec::new()));
            }
            let page = RangeRequest { key: with(prefix, &from), range_end: with(prefix, &end), limit: limit as i64 };
            members.read(page, until).await.map(|found| {
                let pair = |found: messages::KeyValue| {
                    let key = KvKey(found.key.get(prefix.len()..).unwrap_or_default().to_vec());
                    (key, versioned(found.mod_revision, found.value))
                };
                KvAnswer::Page(Ok(found.kvs.into_iter().map(pair).collect()))
            })
        }
        KvRequest::Commit(commit) => {
            if !commit.is_legal() {
                return KvAnswer::Outcome(CommitOutcome::TooLarge);
            }
            members.commit(transaction(prefix, commit), until).await.map(|made| {
                let revision = Revision(made.header.map_or(0, |header| header.revision as u64));
                KvAnswer::Outcome(if made.succeeded { CommitOutcome::Done(revision) } else { CommitOutcome::Conflict })
            })
        }
    };
    match answer {
        Ok(answer) => {
            // Reads go on where etcd is full: only a change says that there is room again.
            let mut trouble = lock(&shared.trouble);
            let is_changed = is_change && matches!(answer, KvAnswer::Outcome(CommitOutcome::Done(_)));
            if (is_changed || !is_full(trouble.as_deref())) && trouble.take().is_some() {
                tracing::info!("etcd answers again");
            }
            answer
        }
        Err(why) => {
            let text = match why {
                NoAnswer::Full(why) => format!("{FULL}: {why}; compact and defragment it, or raise its quota"),
                NoAnswer::Refused(why) => format!("etcd refuses a request: {why}"),
                NoAnswer::Lost(why) => format!("etcd does not answer: {why}"),
            };
            {
                let mut trouble = lock(&shared.trouble);
                // One line as it begins; what is full says more than what does not answer.
                if trouble.is_none() || is_full(Some(&text)) && !is_full(trouble.as_deref()) {
                    tracing::warn!("{text}");
                    *trouble = Some(text);
                }
            }
            tokio::time::sleep(PAUSE).await;
            unanswered
        }
    }
}

/// How the trouble of an etcd without room begins.
const FULL: &str = "etcd is full, no change is acknowledged";

fn is_full(trouble: Option<&str>) -> bool {
    trouble.is_some_and(|trouble| trouble.starts_with(FULL))
}

fn with(prefix: &[u8], key: &KvKey) -> Vec<u8> {
    [prefix, &key.0].concat()
}

fn versioned(revision: i64, value: Vec<u8>) -> Versioned {
    Versioned { value, revision: Revision(revision as u64) }
}

/// The bytes of the transaction by which a commit is made, without the header of gRPC: for whoever measures what stands between.
pub fn request_bytes(prefix: &str, commit: Commit) -> Vec<u8> {
    transaction(format!("{prefix}{SEPARATOR}").as_bytes(), commit).encode_to_vec()
}

fn transaction(prefix: &[u8], commit: Commit) -> TxnRequest {
    let compare = |(key, expect): (KvKey, Expect)| {
        let (result, target, compared) = match expect {
            Expect::Absent => (CompareResult::Equal, CompareTarget::Version, Compared::Version(0)),
            Expect::Present => (CompareResult::Greater, CompareTarget::Version, Compared::Version(0)),
            Expect::Value(value) => (CompareResult::Equal, CompareTarget::Value, Compared::Value(value)),
            Expect::Revision(revision) => {
                // 0 is what a key that is not there has, and no key is expected to be written then.
                let revision = i64::try_from(revision.0).ok().filter(|revision| *revision > 0).unwrap_or(-1);
                (CompareResult::Equal, CompareTarget::Mod, Compared::ModRevision(revision))
            }
        };
        Compare { result: result.into(), target: target.into(), key: with(prefix, &key), compared: Some(compared) }
    };
    let write = |write: KvWrite| {
        let operation = match write {
            KvWrite::Put(key, value) => Operation::Put(PutRequest { key: with(prefix, &key), value }),
            KvWrite::Delete(key) => Operation::Delete(DeleteRangeRequest { key: with(prefix, &key) }),
        };
        RequestOp { request: Some(operation) }
    };
    let mut success: Vec<RequestOp> = commit.writes.into_iter().map(write).collect();
    if success.is_empty() {
        // A member answers a transaction of comparisons alone by itself, however old its state is. A linearizable read in it has it ask the others first.
        let read = RangeRequest { key: prefix.to_vec(), limit: 1, ..RangeRequest::default() };
        success.push(RequestOp { request: Some(Operation::Range(read)) });
    }
    TxnRequest { compare: commit.expect.into_iter().map(compare).collect(), success }
}

/// The same for who waits: each call blocks until it is answered.
#[derive(Debug)]
pub struct WaitingEtcdKv {
    kv: EtcdKv,
    bell: mpsc::Receiver<()>,
}

impl WaitingEtcdKv {
    /// See [`EtcdKv::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(meta: &EtcdMeta) -> std::io::Result<Self> {
        let (ring, bell) = mpsc::channel();
        let ring = move || {
            // Nobody hears it when the store is being closed.
            let _ = ring.send(());
        };
        let kv = EtcdKv::open(meta, ring)?;
        Ok(Self { kv, bell })
    }

    /// See [`EtcdKv::trouble`].
    pub fn trouble(&self) -> Option<String> {
        self.kv.trouble()
    }

    fn wait(&mut self, request: KvRequest) -> KvAnswer {
        let unanswered = request.unanswered();
        self.kv.ask(KvToken(0), request);
        loop {
            if let Some((_, answer)) = self.kv.answered().pop() {
                return answer;
            }
            if self.bell.recv().is_err() {
                return unanswered;
            }
        }
    }
}

impl Kv for WaitingEtcdKv {
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        match self.wait(KvRequest::Get(key.clone())) {
            KvAnswer::Value(answer) => answer,
            KvAnswer::Page(_) | KvAnswer::Outcome(_) => Err(KvUnavailable),
        }
    }

    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
        match self.wait(KvRequest::Range { from: from.clone(), until: until.clone(), most }) {
            KvAnswer::Page(answer) => answer,
            KvAnswer::Value(_) | KvAnswer::Outcome(_) => Err(KvUnavailable),
        }
    }

    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        match self.wait(KvRequest::Commit(commit.clone())) {
            KvAnswer::Outcome(outcome) => outcome,
            KvAnswer::Value(_) | KvAnswer::Page(_) => CommitOutcome::Unknown,
        }
    }
}
