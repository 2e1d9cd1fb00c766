//! The keeper's process: it starts workers, holds what must outlive them, and stands between vhost-user front ends and the worker
//! that serves. `weir_session::keeper` decides; this does.
//!
//! ```text
//!   signals ─┐                       ┌─► held: name ─ descriptors   (memory files, listeners, the configuration as it is)
//!   pidfds ──┼─ poll ─► Process ─────┼─► Keeper ─► start, Go, hand over, kill, exit
//!   channels ┘            │          └─► fronts: listener, connection ─ Replay ─ the worker's end
//! ```
//! One thread, no allocation that grows with I/O: rings, doorbells and data never come here.

mod front;

use front::Front;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weir_session::keeper::{Effect, End, Event, Keeper, Notice, Program, Refused, WorkerId};
use weir_sys::keep::{Channel, ToKeeper, ToWorker};
use weir_sys::signals::Signals;
use weir_units::Nanos;

/// Names of listeners at which the keeper accepts vhost-user front ends; their paths follow.
pub const FRONTS: &str = "vhost-user:";
/// The same, where workers keep no in-flight regions: front ends with started rings do not outlive a worker.
pub const PLAIN_FRONTS: &str = "vhost-user-plain:";
/// Names of UNIX sockets whose paths disappear with the node; their paths follow.
pub const SOCKETS: &str = "socket:";

/// What a keeper is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The worker's program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<std::ffi::OsString>,
    /// Whether a second worker waits beside the first.
    pub standby: bool,
}

/// A worker's process.
struct Running {
    child: Child,
    pidfd: OwnedFd,
    channel: Channel,
}

/// See the [module](self).
struct Process {
    settings: Settings,
    machine: Keeper,
    started: Instant,
    signals: Signals,
    workers: BTreeMap<WorkerId, Running>,
    held: BTreeMap<String, Vec<OwnedFd>>,
    fronts: Vec<Front>,
    /// The worker that said it was ready last, if it lives.
    ready: Option<WorkerId>,
    /// Workers that were told to go.
    generation: u64,
    /// Connections that workers were told of.
    connections: u64,
    proposed: Option<PathBuf>,
    exit: Option<u8>,
}

/// Keeps workers until the node ends; the exit status.
///
/// # Errors
/// No signals can be watched, or the system does not let anything be waited for.
pub fn run(settings: Settings) -> io::Result<u8> {
    let signals = Signals::block(&[Signal::TERM.as_raw(), Signal::INT.as_raw(), Signal::HUP.as_raw()])?;
    let mut process = Process {
        machine: Keeper::new(settings.standby),
        settings,
        started: Instant::now(),
        signals,
        workers: BTreeMap::new(),
        held: BTreeMap::new(),
        fronts: Vec::new(),
        ready: None,
        generation: 0,
        connections: 0,
        proposed: None,
        exit: None,
    };
    process.apply(Event::Begin);
    while process.exit.is_none() {
        process.turn()?;
    }
    process.end();
    Ok(process.exit.unwrap_or(1))
}

/// What a poll found.
#[derive(Clone, Copy, Debug)]
enum Found {
    Signal,
    Channel(WorkerId),
    Death(WorkerId),
    Front(usize, front::Place),
}

impl Process {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Waits for something and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        let found = self.wait()?;
        // Deaths last: what a worker said before it died counts.
        let (deaths, others): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|f| matches!(f, Found::Death(_)));
        for one in others {
            match one {
                Found::Signal => self.signalled(),
                Found::Channel(id) => self.listen(id),
                Found::Front(at, place) => self.front(at, place),
                Found::Death(_) => {}
            }
        }
        for one in deaths {
            if let Found::Death(id) = one {
                self.bury(id);
            }
        }
        if self.machine.deadline().is_some_and(|at| at <= self.now()) {
            self.apply(Event::Tick);
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Found>> {
        let mut names = vec![Found::Signal];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        for (id, worker) in &self.workers {
            names.extend([Found::Channel(*id), Found::Death(*id)]);
            fds.extend([PollFd::new(&worker.channel, PollFlags::IN), PollFd::new(&worker.pidfd, PollFlags::IN)]);
        }
        for (at, front) in self.fronts.iter().enumerate() {
            front.watch(self.ready.is_some(), |place, fd, flags| {
                names.push(Found::Front(at, place));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            });
        }
        let timeout = self.machine.deadline().map(|at| {
            let left = Duration::from_nanos(at.saturating_sub(self.now()).get());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let found = names.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(found.map(|(name, _)| name).collect())
    }

    fn apply(&mut self, event: Event) {
        let mut effects = Vec::new();
        let now = self.now();
        self.machine.apply(now, event, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(id, program) => {
                if let Err(e) = self.start(id, program) {
                    eprintln!("weir: no worker can be started: {e}");
                    self.apply(Event::Died(id, End::Status(1)));
                }
            }
            Effect::Go(id) => {
                if let Err(e) = self.go(id) {
                    tracing::error!("worker {} does not take what is held for it: {e}", id.0);
                    self.kill(id);
                }
            }
            Effect::HandOver(id) => {
                if let Some(worker) = self.workers.get(&id) {
                    if worker.channel.tell(&ToWorker::HandOver, &[]).is_err() {
                        self.kill(id);
                    }
                }
            }
            Effect::Kill(id) => self.kill(id),
            Effect::Adopt => {
                if let Some(program) = self.proposed.take() {
                    self.settings.program = program;
                }
            }
            Effect::Forget => self.proposed = None,
            Effect::Say(notice) => eprintln!("weir: {}", text(notice)),
            Effect::Exit(status) => self.exit = Some(status),
        }
    }

    fn start(&mut self, id: WorkerId, program: Program) -> io::Result<()> {
        let path: &Path = match (program, &self.proposed) {
            (Program::Proposed, Some(path)) => path,
            _ => &self.settings.program,
        };
        let (channel, theirs) = Channel::pair()?;
        let mut command = Command::new(path);
        // In a group of its own: ^C is the keeper's, who passes it on.
        command.args(&self.settings.arguments).stdin(Stdio::from(theirs)).process_group(0);
        let mut child = command.spawn().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(e.into());
            }
        };
        tracing::info!(worker = id.0, pid = child.id(), "started");
        self.workers.insert(id, Running { child, pidfd, channel });
        Ok(())
    }

    fn go(&mut self, id: WorkerId) -> io::Result<()> {
        let Some(worker) = self.workers.get(&id) else { return Ok(()) };
        for (name, fds) in &self.held {
            let fds: Vec<BorrowedFd> = fds.iter().map(AsFd::as_fd).collect();
            worker.channel.tell(&ToWorker::Held(name.clone()), &fds)?;
        }
        // Its listeners are the keeper's as well; it is told their names.
        for front in &self.fronts {
            worker.channel.tell(&ToWorker::Held(front.name()), &[])?;
        }
        let before = self.generation;
        self.generation += 1;
        worker.channel.tell(&ToWorker::Go(before), &[])
    }

    fn kill(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            let _ = worker.child.kill();
        }
    }

    fn signalled(&mut self) {
        while let Some(number) = self.signals.next() {
            if number == Signal::HUP.as_raw() {
                self.apply(Event::Retry);
                continue;
            }
            let signal = if number == Signal::INT.as_raw() { Signal::INT } else { Signal::TERM };
            // The worker says what it does, and does it; the second one ends it at once.
            for worker in self.workers.values() {
                let _ = rustix::process::pidfd_send_signal(&worker.pidfd, signal);
            }
            self.apply(Event::Stop);
        }
    }

    /// Hears everything that a worker has said.
    fn listen(&mut self, id: WorkerId) {
        loop {
            let Some(worker) = self.workers.get(&id) else { return };
            match worker.channel.hear() {
                Ok(Some((word, fds))) => self.heard(id, word, fds),
                Ok(None) => return,
                Err(e) => {
                    tracing::error!("worker {}: {e}", id.0);
                    return self.kill(id);
                }
            }
        }
    }

    fn heard(&mut self, id: WorkerId, word: ToKeeper, fds: Vec<OwnedFd>) {
        // A worker that has not gone, or that another one has followed, has no say in what is held.
        let serves = self.machine.serving() == Some(id);
        match word {
            ToKeeper::Prepared => self.apply(Event::Prepared(id)),
            ToKeeper::Ready if serves => {
                // Front ends first: they wait, and starting a standby takes a while.
                self.ready = Some(id);
                (0..self.fronts.len()).for_each(|at| self.introduce(at));
                self.apply(Event::Ready(id));
            }
            ToKeeper::Hold(name) if serves => match of_front(&name) {
                Some((path, inflight)) => {
                    if let Some(listener) = fds.into_iter().next() {
                        self.fronts.retain(|f| f.path() != path);
                        self.fronts.push(Front::new(path.to_owned(), inflight, listener));
                    }
                }
                None => drop(self.held.insert(name, fds)),
            },
            ToKeeper::Release(name) if serves => match of_front(&name) {
                Some((path, _)) => self.fronts.retain(|f| f.path() != path),
                None => drop(self.held.remove(&name)),
            },
            ToKeeper::Close(number) if serves => {
                if let Some(front) = self.fronts.iter_mut().find(|f| f.is(number)) {
                    front.close();
                }
            }
            ToKeeper::Upgrade(path) if serves => {
                if self.proposed.is_none() {
                    self.proposed = Some(path.into());
                }
                self.apply(Event::Upgrade);
            }
            word => tracing::warn!("worker {} does not serve and says {word:?}", id.0),
        }
    }

    /// Tells the worker of a front end that there is already.
    fn introduce(&mut self, at: usize) {
        let Some(worker) = self.ready.and_then(|id| self.workers.get(&id)) else { return };
        self.connections += 1;
        self.fronts[at].number(self.connections);
        if let Err(e) = self.fronts[at].introduce(&worker.channel) {
            if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
                // It has died meanwhile: the next one is told.
                return;
            }
            tracing::error!("{}: the front end cannot be handed to the worker: {e}", self.fronts[at].path());
            self.fronts[at].close();
        }
    }

    fn front(&mut self, at: usize, place: front::Place) {
        if self.fronts.get_mut(at).is_some_and(|f| f.ready(place)) {
            self.introduce(at);
        }
    }

    /// A worker's process has ended.
    fn bury(&mut self, id: WorkerId) {
        self.listen(id);
        let Some(mut worker) = self.workers.remove(&id) else { return };
        let end = worker.child.wait().map_or(End::Crashed, end_of);
        tracing::info!(worker = id.0, ?end, "ended");
        if self.ready == Some(id) {
            self.ready = None;
            self.fronts.iter_mut().for_each(Front::orphan);
        }
        self.apply(Event::Died(id, end));
    }

    /// Nobody is left behind, and no socket.
    fn end(&mut self) {
        for worker in self.workers.values_mut() {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        let sockets = self.held.keys().filter_map(|name| name.strip_prefix(SOCKETS).map(str::to_owned));
        for path in sockets.chain(self.fronts.iter().map(|f| f.path().to_owned())) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The path of a socket whose front ends the keeper lets in, and whether workers keep in-flight regions for them.
fn of_front(name: &str) -> Option<(&str, bool)> {
    let plain = || name.strip_prefix(PLAIN_FRONTS).map(|path| (path, false));
    name.strip_prefix(FRONTS).map(|path| (path, true)).or_else(plain)
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(0), _) => End::Clean,
        (Some(code), _) => End::Status(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => End::Killed,
        _ => End::Crashed,
    }
}

fn how(end: End) -> String {
    match end {
        End::Clean => "ended".into(),
        End::Status(status) => format!("ended with status {status}"),
        End::Killed => "was killed (SIGKILL: by somebody, or because memory is short)".into(),
        End::Crashed => "crashed".into(),
    }
}

fn text(notice: Notice) -> String {
    match notice {
        Notice::Restarting(end) => format!("the worker {}; the next one takes over", how(end)),
        Notice::Pausing { deaths, pause } => {
            format!("the worker died {deaths} times in a row; the next one starts in {pause}")
        }
        Notice::Failed(end) => format!(
            "the worker {} again and again: no more are started. What drives in memory hold is safe as long as process {} lives: \
             look at the messages above, remove the cause, and try again by kill -HUP {}",
            how(end),
            std::process::id(),
            std::process::id()
        ),
        Notice::Upgraded => "the new program serves".into(),
        Notice::Kept(why) => format!("the upgrade is given up, the program before it serves: {}", refused(why)),
    }
}

fn refused(why: Refused) -> String {
    match why {
        Refused::Busy => "no worker serves, an upgrade is under way, or the node ends".into(),
        Refused::Ended(end) => format!("the new one {} before it took over", how(end)),
        Refused::Hung => "the new one did not get ready in time".into(),
        Refused::Died(end) => format!("the new one {} soon after it took over", how(end)),
    }
}
