//! What is wanted of namespaces: done by threads of their own, since a drive may not answer for long. Labels do not wait for blocks.

use super::copy::{CopyDrives, IDLE};
use super::recover::recover;
use super::ring;
use crate::label;
use crate::tier::{BlockingNamespace, LABEL_BYTES, TierOptions, WorkLease};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use weir_store::service::{TierAnswer, TierFailure, TierRequest, TierToken};
use weir_units::Nanos;

type Answered = (TierToken, Result<TierAnswer, TierFailure>);
type Asked = (TierToken, TierRequest);

/// See the [module](self). A drop gives up what its threads are at, and waits for their end.
pub(super) struct TierThreads {
    labels: Worker,
    blocks: Worker,
    answers: Receiver<Answered>,
    stops: Arc<AtomicBool>,
    lease: WorkLease,
}

/// A thread, and what it is asked by.
struct Worker {
    requests: Option<Sender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TierThreads {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        for worker in [&mut self.labels, &mut self.blocks] {
            worker.requests = None;
            // What panics in it is an answer, so it has not.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }
}

impl TierThreads {
    pub fn start(options: &TierOptions, bell: &Arc<OwnedFd>) -> std::io::Result<Self> {
        let (told, answers) = channel();
        let stops = Arc::new(AtomicBool::new(false));
        let lease = WorkLease::default();
        let options = &TierOptions { stops: Some(Arc::clone(&stops)), lease: Some(lease.clone()), ..options.clone() };
        let start = |name: &str, told: Sender<Answered>| {
            let (requests, asked) = channel::<Asked>();
            let (options, bell, stops) = (options.clone(), Arc::clone(bell), Arc::clone(&stops));
            let run = move || {
                let mut drives = CopyDrives::default();
                while let Some((token, request)) = next(&asked, &mut drives) {
                    if stops.load(Ordering::Acquire) {
                        return;
                    }
                    let answer = or_panic(|| carry_out(&request, &mut drives, &options)).map_err(TierFailure);
                    if told.send((token, answer)).is_err() {
                        return;
                    }
                    ring(&bell);
                }
            };
            let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
            std::io::Result::Ok(Worker { requests: Some(requests), thread: Some(thread) })
        };
        let (labels, blocks) = (start("weir-labels", told.clone())?, start("weir-recovery", told)?);
        Ok(Self { labels, blocks, answers, stops, lease })
    }

    /// Until when the service may have work done, by CLOCK_BOOTTIME. What was asked for before and is not over by then is given up: another service may
    /// have taken over.
    pub fn set_lease(&self, until: Nanos) {
        self.lease.set(until);
    }

    pub fn ask(&self, token: TierToken, request: TierRequest) {
        let thread = match &request {
            TierRequest::ReadLabel { .. } | TierRequest::WriteLabel { .. } => &self.labels,
            TierRequest::Recover(_) | TierRequest::Move(_) => &self.blocks,
        };
        if let Some(requests) = &thread.requests {
            // Its thread ends with this alone.
            let _ = requests.send((token, request));
        }
    }

    /// What has been answered.
    pub fn answered(&self) -> Vec<Answered> {
        self.answers.try_iter().collect()
    }
}

/// What is asked next; drives are left when that takes a while.
fn next(asked: &Receiver<Asked>, drives: &mut CopyDrives) -> Option<Asked> {
    if !drives.is_empty() {
        match asked.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => drives.close(),
            answer => return answer.ok(),
        }
    }
    asked.recv().ok()
}

/// A panic is a failure like another: it is told, and what was asked is tried again.
fn or_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    caught
        .unwrap_or_else(|_| Err("the thread that works at it has panicked; its message is in the service's log".into()))
}

fn carry_out(request: &TierRequest, drives: &mut CopyDrives, options: &TierOptions) -> Result<TierAnswer, String> {
    match request {
        TierRequest::ReadLabel { target } => {
            let mut namespace = open(target, options)?;
            let mut bytes = vec![0; LABEL_BYTES];
            namespace.read(0, &mut bytes).map_err(|e| e.to_string())?;
            let geometry = namespace.geometry();
            let found = label::decode(&bytes);
            Ok(TierAnswer::Label { bytes: geometry.bytes, sector: geometry.sector, found })
        }
        TierRequest::WriteLabel { target, store, namespace: number, content } => {
            let mut namespace = open(target, options)?;
            let bytes = label::encode(*store, *number, *content);
            namespace.write(0, &bytes).and_then(|()| namespace.flush()).map_err(|e| e.to_string())?;
            Ok(TierAnswer::Written)
        }
        TierRequest::Recover(block) => recover(block, options),
        TierRequest::Move(block) => drives.copy(block, options),
    }
}

fn open(target: &str, options: &TierOptions) -> Result<BlockingNamespace, String> {
    BlockingNamespace::open(target, options.clone()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::NamespaceId;
    use weir_store::members::ContentLabel;

    #[test]
    fn a_panic_is_told() {
        let told = or_panic(|| -> Result<(), String> { panic!("a mistake") });
        assert!(told.is_err_and(|why| why.contains("panicked")));
        assert_eq!(or_panic(|| Ok(5)), Ok(5));
    }

    /// Nothing is written for a service whose lease is over, also where it was asked for before.
    #[test]
    fn without_a_lease_nothing_is_done() {
        let folder = std::env::temp_dir().join(format!("weir-lease-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("drive");
        std::fs::write(&path, vec![7; 1 << 20]).expect("a drive");
        let bell = Arc::new(weir_sys::transport::fds::eventfd().expect("a bell"));
        let options = TierOptions { allow_files: true, ..TierOptions::default() };
        let threads = TierThreads::start(&options, &bell).expect("threads");
        let (namespace, content) = (NamespaceId(1), ContentLabel(1));
        let asked = || {
            let target = format!("file:{}", path.display());
            threads.ask(TierToken(1), TierRequest::WriteLabel { target, store: 1, namespace, content });
            threads.answers.recv().expect("an answer").1
        };
        let refused = asked().expect_err("there is no lease");
        assert!(refused.0.contains("the lease of the service is over"), "{}", refused.0);
        assert_eq!(std::fs::read(&path).expect("the drive"), vec![7; 1 << 20]);
        threads.set_lease(Nanos::NEVER);
        assert_eq!(asked(), Ok(TierAnswer::Written));
        threads.set_lease(Nanos(0));
        asked().expect_err("the lease is over");
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }

    /// One that waits for a drive which does not answer ends with the service.
    #[test]
    fn a_drop_ends_what_the_threads_are_at() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = format!("nvme-tcp://{}/nqn?ns=1", silent.local_addr().expect("an address"));
        let bell = Arc::new(weir_sys::transport::fds::eventfd().expect("a bell"));
        // Longer than any test: it does not end by itself.
        let timeout = std::time::Duration::from_secs(1 << 30);
        let options = TierOptions { timeout, ..TierOptions::default() };
        let threads = TierThreads::start(&options, &bell).expect("threads");
        threads.set_lease(Nanos::NEVER);
        threads.ask(TierToken(1), TierRequest::ReadLabel { target });
        let _connected = silent.accept().expect("it is asked");
        drop(threads);
    }
}
