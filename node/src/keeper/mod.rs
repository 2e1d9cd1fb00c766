//! The keeper's process: it starts workers, holds what must outlive them, and stands between clients of vhost-user and vfio-user and the
//! worker that serves. `weir_keeper` decides; this does.
//!
//! ```text
//!   signals ─┐                       ┌─► held: name ─ descriptors   (memory files, listeners, the configuration as it is)
//!   pidfds ──┼─ poll ─► Process ─────┼─► Keeper ─► start, Go, hand over, kill, exit
//!   channels ┘            │          └─► fronts: listener, connection ─ Replay ─ the worker's end
//! ```
//! After an upgrade it goes on as the new program itself ([`renew`]).
//!
//! One thread, one for each worker that waits for the death of its threads (`weir_sys::robust_futex`), and one for a while for each that
//! has ended; no allocation that grows with I/O: rings, doorbells and data never come here.

mod failed;
mod front;
mod next_worker;
mod notices;
mod renew;
mod running;
mod signals;
mod upgrade;

use crate::held_names::{API_SOCKETS, SOCKETS};
use crate::notice::notice;
use crate::upgrade::UpgradeStart;
use front::Front;
use renew::Renewal;
use running::{Reapers, Running};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, setrlimit};
use signals::{SIGNALS, terminal};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use upgrade::{Binary, Progress};
use weir_keeper::{Effect, End, Event, Fit, Keeper, Layouts, Program, WorkerId};
use weir_sys::keeper_channel::{Channel, LIVE, PASSING, ToKeeper, ToWorker};
use weir_sys::signals::Signals;
use weir_sys::systemd::{self, Notifier};
use weir_sys::{exec as sys_renew, reactor, sched};
use weir_units::Nanos;

/// The process's name in ps(1) and top(1).
const NAME: &std::ffi::CStr = c"weir-keeper";

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

/// See the [module](self).
struct Process {
    settings: Settings,
    /// What a new worker runs.
    program: Binary,
    /// What an upgrade would have it run.
    proposed: Option<Binary>,
    progress: Progress,
    renewal: Renewal,
    machine: Keeper,
    signals: Signals,
    notifier: Notifier,
    workers: BTreeMap<WorkerId, Running>,
    reapers: Reapers,
    held: BTreeMap<String, Vec<OwnedFd>>,
    fronts: Vec<Front>,
    /// The worker that front ends are handed to: the one that was told to go last, if it lives.
    ready: Option<WorkerId>,
    /// Workers that were told to go.
    generation: u64,
    /// Connections that workers were told of.
    connections: u64,
    /// Why none is started any more.
    failed: Option<String>,
    /// It has a terminal with which it ends.
    terminal: bool,
    /// Somebody has asked the node to end.
    stopping: bool,
    exit: Option<u8>,
}

/// Keeps workers until the node ends; the exit status.
///
/// # Errors
/// The program is not there, no signals can be watched, or the system does not let anything be waited for.
pub fn run(settings: Settings) -> io::Result<u8> {
    raise_descriptors();
    let _ = rustix::thread::set_name(NAME);
    let signals = Signals::block(&SIGNALS.map(Signal::as_raw))?;
    let mut process = Process {
        machine: Keeper::new(settings.standby),
        program: Binary::open(&settings.program)?,
        proposed: None,
        progress: Progress::default(),
        renewal: Renewal::Idle,
        settings,
        signals,
        notifier: Notifier::from_environment()?,
        workers: BTreeMap::new(),
        reapers: Reapers::default(),
        held: BTreeMap::new(),
        fronts: Vec::new(),
        ready: None,
        generation: 0,
        connections: 0,
        failed: None,
        terminal: terminal(),
        stopping: false,
        exit: None,
    };
    process.recover();
    process.apply(Event::Begin);
    process.until_the_end()
}

/// Goes on where the program before this one left off, in the same process; the exit status.
///
/// # Errors
/// What it left makes no sense, or the system does not let anything be waited for.
pub fn resume(inherited: sys_renew::Inherited) -> io::Result<u8> {
    let mut process = renew::take_over(inherited)?;
    process.renewed();
    process.until_the_end()
}

/// Whether this program could take over from the process that has started it, whose state lies in the file.
///
/// # Errors
/// Why it could not.
pub fn could_resume(state: OwnedFd) -> io::Result<()> {
    renew::could_take_over(state)
}

/// As many descriptors as may be: a connection takes one, and every drive, socket and front end of a node is held by its keeper as well.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!("the limit of open files stays at {:?}: {e}", limit.current);
    }
}

/// What a poll found.
#[derive(Clone, Debug)]
enum Found {
    /// Of the API, while nobody serves it.
    Client(String),
    Signal,
    Channel(WorkerId),
    /// Its threads are dead.
    Still(WorkerId),
    Death(WorkerId),
    Front(usize, front::Place),
    /// The new program has said whether it takes the keeper over.
    Answer,
}

impl Process {
    fn until_the_end(&mut self) -> io::Result<u8> {
        // Clients wait for it where one worker follows another, on cores where others poll.
        sched::prompt();
        while self.exit.is_none() {
            self.turn()?;
        }
        self.end();
        Ok(self.exit.unwrap_or(1))
    }

    fn now(&self) -> Nanos {
        reactor::now()
    }

    /// Takes what systemd has kept of a keeper that was killed.
    fn recover(&mut self) {
        for (name, fds) in systemd::stored() {
            tracing::info!("{name}: taken over from the keeper before");
            self.keep(name, fds);
        }
    }

    /// Holds these under that name.
    fn keep(&mut self, name: String, fds: Vec<OwnedFd>) {
        self.tell_waiting(|worker| worker.tell_held(&name, fds.iter().map(AsFd::as_fd)));
        match front::of_name(&name) {
            Some((path, kind)) => {
                if let Some(listener) = fds.into_iter().next() {
                    self.fronts.retain(|f| f.path() != path);
                    self.fronts.push(Front::new(path.to_owned(), kind, listener));
                }
            }
            None => drop(self.held.insert(name, fds)),
        }
    }

    /// Waits for something and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        let found = self.wait()?;
        // Deaths last: what a worker said before it died counts.
        let is_death = |f: &Found| matches!(f, Found::Death(_) | Found::Still(_));
        let (deaths, others): (Vec<Found>, Vec<Found>) = found.into_iter().partition(is_death);
        for one in others {
            match one {
                Found::Signal => self.signalled(),
                Found::Channel(id) => self.listen(id),
                Found::Front(at, place) => self.front(at, place),
                Found::Client(name) => self.refuse(&name),
                Found::Answer => self.answered(),
                Found::Still(_) | Found::Death(_) => {}
            }
        }
        for one in deaths {
            match one {
                Found::Still(id) => self.still(id),
                Found::Death(id) => self.bury(id),
                _ => {}
            }
        }
        if self.machine.deadline().is_some_and(|at| at <= self.now()) {
            self.apply(Event::Tick);
        }
        self.kill_the_deaf();
        self.renew();
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Found>> {
        let mut names = vec![Found::Signal];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        for (id, worker) in &self.workers {
            names.push(Found::Death(*id));
            fds.push(PollFd::new(&worker.pidfd, PollFlags::IN));
            if !worker.silent {
                names.push(Found::Channel(*id));
                let unheard = worker.channel.unheard_since().map_or(PollFlags::empty(), |_| PollFlags::OUT);
                fds.push(PollFd::new(&worker.channel, PollFlags::IN | unheard));
            }
            if let Some(threads) = &worker.threads {
                names.push(Found::Still(*id));
                fds.push(PollFd::new(threads, PollFlags::IN));
            }
        }
        for (at, front) in self.fronts.iter().enumerate() {
            front.watch(self.ready.is_some(), |place, fd, flags| {
                names.push(Found::Front(at, place));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            });
        }
        for (name, fd) in self.failed.iter().flat_map(|_| failed::listeners(&self.held)) {
            names.push(Found::Client(name.to_owned()));
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        if let Some(pidfd) = self.renewal.asked() {
            names.push(Found::Answer);
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let renewal = [self.renewal.deadline(), self.renewal.again(self.now())];
        let others = renewal.into_iter().flatten().chain(self.deaf_at());
        let deadline = self.machine.deadline().into_iter().chain(others).min();
        let timeout = deadline.map(|at| {
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
                    notice(format_args!("no worker can be started: {e}"));
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
                self.progress.hands_over(self.now());
                self.tell_progress();
                if let Some(worker) = self.workers.get(&id) {
                    if worker.channel.tell(&ToWorker::HandOver, &[]).is_err() {
                        self.kill(id);
                    }
                }
            }
            Effect::Kill(id) => self.kill(id),
            Effect::Adopt => {
                if let Some(program) = self.proposed.take() {
                    self.program = program;
                }
            }
            Effect::Forget => self.proposed = None,
            Effect::Say(notice) => self.say(notice),
            Effect::Exit(status) => self.exit = Some(status),
        }
    }

    /// Tells who serves how far the upgrade is.
    fn tell_progress(&self) {
        let serving = self.machine.serving().and_then(|id| self.workers.get(&id));
        if let (Some(worker), Some(text)) = (serving, self.progress.text()) {
            // One that has gone needs to know nothing.
            let _ = worker.channel.tell(&ToWorker::Upgrade(text), &[]);
        }
    }

    fn start(&mut self, id: WorkerId, program: Program) -> io::Result<()> {
        let now = self.now();
        let binary = match (program, &self.proposed) {
            (Program::Proposed, Some(binary)) => {
                self.progress.started(id, now);
                binary
            }
            _ => &self.program,
        };
        self.failed = None;
        let (channel, theirs) = Channel::pair()?;
        let mut command = binary.command();
        // In a group of its own: ^C is the keeper's, who passes it on.
        for name in systemd::VARIABLES.into_iter().chain([sys_renew::VARIABLE]) {
            command.env_remove(name);
        }
        command.args(&self.settings.arguments).stdin(Stdio::from(theirs)).process_group(0);
        let mut child =
            command.spawn().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", binary.path.display())))?;
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
        let layouts = Layouts::default();
        self.workers.insert(id, Running { pid, pidfd, channel, layouts, threads: None, told: false, silent: false });
        Ok(())
    }

    fn go(&mut self, id: WorkerId) -> io::Result<()> {
        let now = self.now();
        if self.workers.get(&id).is_some_and(Running::is_stopped) {
            // Clients wait: another one is there before it would count as one that does not answer.
            return Err(io::Error::other("its process is stopped (SIGSTOP)"));
        }
        self.tell_all(id)?;
        let Some(worker) = self.workers.get_mut(&id) else { return Ok(()) };
        // From here on it says what is held.
        worker.told = false;
        self.progress.goes(id, now);
        if let Some(text) = self.progress.text() {
            worker.channel.tell(&ToWorker::Upgrade(text), &[])?;
        }
        // Front ends wait: it hears of them before it goes, and of those that come meanwhile when it is ready.
        self.ready = Some(id);
        (0..self.fronts.len()).for_each(|at| self.introduce(at));
        let Some(worker) = self.workers.get(&id) else { return Ok(()) };
        let before = self.generation;
        self.generation += 1;
        worker.channel.tell(&ToWorker::Go(before), &[])
    }

    fn kill(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get(&id) {
            worker.kill();
        }
    }

    /// Hears everything that a worker has said, and says what it has room for.
    fn listen(&mut self, id: WorkerId) {
        loop {
            let Some(worker) = self.workers.get_mut(&id) else { return };
            // One that has gone is noticed by what it does not say any more.
            let _ = worker.channel.flush();
            match worker.channel.hear() {
                Ok(Some((word, fds))) => self.heard(id, word, fds),
                Ok(None) => return,
                // To ask it again and again until its process has ended would take the next one's core.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    worker.silent = true;
                    return;
                }
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
            ToKeeper::Prepared(layouts) => self.prepared(id, &layouts),
            ToKeeper::Warm => self.apply(Event::Warm(id)),
            ToKeeper::Goes => self.apply(Event::Goes(id)),
            ToKeeper::Ready if serves => {
                self.apply(Event::Ready(id));
                self.notifier.ready();
            }
            ToKeeper::Hold(name) if serves => {
                if outlives(&name) {
                    self.notifier.store(&name, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
                }
                self.keep(name, fds);
            }
            ToKeeper::Release(name) if serves => {
                self.tell_waiting(|worker| worker.channel.tell(&ToWorker::Dropped(name.clone()), &[]));
                let count = match front::of_name(&name) {
                    // Its path may be another front's by now.
                    Some(_) => {
                        self.fronts.retain(|f| f.name() != name);
                        1
                    }
                    None => self.held.remove(&name).map_or(0, |fds| fds.len()),
                };
                if outlives(&name) {
                    self.notifier.remove(&name, count);
                }
            }
            ToKeeper::Close(number) if serves => {
                if let Some(front) = self.fronts.iter_mut().find(|f| f.is(number)) {
                    front.close();
                }
            }
            ToKeeper::Threads if serves => self.watch(id, fds),
            ToKeeper::Upgrade(what) if serves => self.upgrade(&what),
            ToKeeper::Left if serves => {
                self.lose(id);
                self.apply(Event::Left(id));
            }
            word => tracing::warn!("worker {} does not serve and says {word:?}", id.0),
        }
    }

    fn prepared(&mut self, id: WorkerId, layouts: &str) {
        let read = Layouts::parse(layouts).map_err(|e| e.to_string());
        let present = self.machine.serving().and_then(|id| self.workers.get(&id)).map(|w| &w.layouts);
        let fits = read.and_then(|layouts| match present.map(|p| p.can_be_followed_by(&layouts)) {
            Some(Err(why)) if self.progress.is_of(id) => Err(why.to_string()),
            _ => Ok(layouts),
        });
        let fit = match fits {
            Ok(layouts) => {
                self.workers.entry(id).and_modify(|w| w.layouts = layouts);
                Fit::Both
            }
            Err(why) => {
                self.progress.misfit = Some(why);
                Fit::Neither
            }
        };
        self.apply(Event::Prepared(id, fit));
        // It waits: it may look at what it is to take over.
        if fit == Fit::Both && self.machine.serving() != Some(id) {
            if let Err(e) = self.tell_all(id) {
                tracing::warn!("worker {} does not hear what is held: {e}", id.0);
                self.kill(id);
            }
        }
    }

    /// The worker that serves was asked for another program. That nothing is under way is its affair.
    fn upgrade(&mut self, what: &str) {
        let start: UpgradeStart = match serde_json::from_str(what) {
            Ok(start) => start,
            Err(e) => return tracing::error!("an upgrade that makes no sense: {e}"),
        };
        if self.progress.is_open() {
            return tracing::error!("an upgrade is asked for while another one is under way");
        }
        let path = start.binary.as_ref().map_or(self.settings.program.clone(), PathBuf::from);
        self.progress.begin(&path);
        match Binary::open(&path) {
            Ok(binary) => {
                self.proposed = Some(binary);
                self.apply(Event::Upgrade(upgrade::terms(&start)));
            }
            Err(e) => {
                self.progress.refused(e.to_string());
                self.tell_progress();
            }
        }
    }

    /// A worker does not serve any more.
    fn lose(&mut self, id: WorkerId) {
        self.forget_threads(id);
        if self.ready == Some(id) {
            self.ready = None;
            self.fronts.iter_mut().for_each(Front::orphan);
        }
    }

    /// A client of the API while nobody serves it.
    fn refuse(&mut self, name: &str) {
        let Some(why) = &self.failed else { return };
        let Some((_, listener)) = failed::listeners(&self.held).find(|(n, _)| *n == name) else { return };
        if let Err(e) = failed::answer(name, listener, why) {
            tracing::debug!("a client of {name} heard nothing: {e}");
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
        let Some(worker) = self.workers.remove(&id) else { return };
        let end = worker.wait();
        tracing::info!(worker = id.0, ?end, "ended");
        self.lose(id);
        self.apply(Event::Died(id, end));
        self.reapers.reap(worker.pidfd);
    }

    /// Nobody is left behind, and no socket.
    fn end(&mut self) {
        for worker in self.workers.values() {
            worker.kill();
            worker.wait();
        }
        if self.notifier.is_there() && self.exit != Some(0) && !self.stopping {
            // It failed. systemd starts the next keeper, now or once the cause is removed: with what it has kept.
            return;
        }
        self.fronts.iter().for_each(|front| self.notifier.remove(&front.name(), 1));
        self.held.iter().for_each(|(name, fds)| self.notifier.remove(name, fds.len()));
        let path = |name: &String| name.strip_prefix(SOCKETS).or(name.strip_prefix(API_SOCKETS)).map(str::to_owned);
        let sockets = self.held.keys().filter_map(path);
        for path in sockets.chain(self.fronts.iter().map(|f| f.path().to_owned())) {
            crate::door::vfio_user::folder::withdraw(path.as_ref());
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether it is worth something to another keeper.
fn outlives(name: &str) -> bool {
    !name.starts_with(PASSING) && !name.starts_with(LIVE)
}
