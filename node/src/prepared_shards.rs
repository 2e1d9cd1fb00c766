//! The threads of a node before there is one, and how long each step of its start takes.

use crate::shard::{Call, Shard, ShardHandle};
use crate::start_error::StartError;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_sys::arena::Arena;
use weir_sys::reactor::{Reactor, ReactorError, Waker, mailbox};
use weir_sys::robust_futex::Roster;
use weir_sys::sched;

/// What a start consists of: each step as long as since the one before.
#[derive(Debug)]
pub struct StartSteps {
    last: Instant,
    /// Those that are done, in their order.
    pub done: Vec<(&'static str, Duration)>,
}

impl StartSteps {
    /// The first one begins.
    pub fn begin() -> Self {
        Self { last: Instant::now(), done: Vec::new() }
    }

    /// One is done.
    pub fn done(&mut self, name: &'static str) {
        let now = Instant::now();
        self.done.push((name, now - self.last));
        self.last = now;
    }

    /// `name 1.2ms, …`
    pub fn text(&self) -> String {
        let each = self.done.iter().map(|(name, time)| format!("{name} {time:.1?}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Some that were done meanwhile, by somebody else.
    pub fn add(&mut self, done: &[(&'static str, Duration)]) {
        self.done.extend_from_slice(done);
        self.last = Instant::now();
    }
}

/// The threads of a node before there is one: on their cores, with their event loops, waiting for what they are to do. A standby has
/// them ready before it takes over.
pub struct PreparedShards {
    cores: Vec<usize>,
    pub(crate) roster: Roster,
    pub(crate) members: Vec<Member>,
}

/// A thread of it.
pub(crate) struct Member {
    pub(crate) reactor: Reactor,
    pub(crate) handle: ShardHandle,
    pub(crate) mailbox: mpsc::Receiver<Call>,
    pub(crate) thread: Thread,
}

/// A thread that waits for its shard.
pub(crate) struct Thread {
    give: mpsc::Sender<Shard>,
    join: JoinHandle<()>,
}

impl PreparedShards {
    /// Threads for that configuration. Dropped, they end.
    ///
    /// # Errors
    /// No event loop, or no thread on one of its cores.
    pub fn prepare(config: &Config) -> Result<PreparedShards, StartError> {
        let cores = config.node.cores.clone();
        let roster = Roster::new().map_err(|e| StartError::Owner(std::io::Error::other(e)))?;
        Arena::prepare_huge();
        let (report, pinned) = mpsc::channel();
        let mut members = Vec::new();
        for (id, core) in cores.iter().copied().enumerate() {
            let waker = Waker::new().map_err(ReactorError::from)?;
            let (sender, mailbox) = mailbox::<Call>(&waker);
            let reactor = Reactor::with_waker(waker)?;
            let thread = start_thread(id, core, &roster, report.clone())?;
            members.push(Member { reactor, handle: ShardHandle::new(sender), mailbox, thread });
        }
        drop(report);
        for (core, result) in pinned {
            result.map_err(|e| StartError::Thread(core, e))?;
        }
        Ok(PreparedShards { cores, roster, members })
    }

    pub(crate) fn fits(&self, config: &Config) -> bool {
        self.cores == config.node.cores
    }
}

/// A thread on that core that runs the shard it is given, and ends with it.
fn start_thread(
    id: usize,
    core: usize,
    roster: &Roster,
    report: mpsc::Sender<(usize, std::io::Result<()>)>,
) -> Result<Thread, StartError> {
    let place = roster.slot().map_err(|e| StartError::Thread(core, std::io::Error::other(e)))?;
    let (give, given) = mpsc::channel::<Shard>();
    let run = move || {
        // Whoever waits for its death sees it here, from now on.
        let here = sched::pin(core).and_then(|()| place.enter());
        // Who served before on this core may not have ended yet, and whoever is served waits.
        sched::prompt();
        let (result, here) = here.map_or_else(|e| (Err(e), None), |here| (Ok(()), Some(here)));
        let _ = report.send((core, result));
        drop(report);
        if let (Some(_here), Ok(shard)) = (here, given.recv()) {
            sched::patient();
            shard.run();
        }
    };
    let thread = std::thread::Builder::new().name(format!("shard-{id}")).spawn(run);
    Ok(Thread { give, join: thread.map_err(|e| StartError::Thread(core, e))? })
}

/// Threads that wait for their shards.
pub(crate) struct Waiting {
    pub(crate) roster: Roster,
    pub(crate) threads: Vec<Thread>,
}

/// Gives the threads what they wait for.
pub(crate) fn let_go(shards: Vec<Shard>, threads: Vec<Thread>) -> Vec<JoinHandle<()>> {
    let each = shards.into_iter().zip(threads);
    each.map(|(shard, Thread { give, join })| {
        // It waits: its end would have been the process's.
        let _ = give.send(shard);
        join
    })
    .collect()
}
