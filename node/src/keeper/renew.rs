//! The keeper goes on as another program: its state as bytes (`weir_keeper::saved`), its descriptors under their numbers.
//!
//! ```text
//!   an upgrade was accepted ─► Wanted ─(at rest)─► Asked: `weir keeper` reads the state ─0─► Agreed ─(at rest)─► exec ─► take_over
//!                                 └── too late ──────┴── it refuses, it hangs ───────────────────┴── it cannot: all as before
//! ```
//! Workers, front ends and whoever else holds an end of something notice nothing: the process, its children and its sockets stay. A program that
//! cannot read the state is found out by asking it before, so that there is nothing to go back from.

use super::front::Front;
use super::running::{Reapers, Running, ended};
use super::signals::{SIGNALS, terminal};
use super::upgrade::{Binary, Progress};
use super::{NAME, Process, Settings, sys_renew};
use crate::notice::notice;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use weir_keeper::saved::{Number, Saved, SavedProgram, SavedWorker};
use weir_keeper::{Envelope, Layouts, WorkerId};
use weir_sys::crc::Crc32c;
use weir_sys::keeper_channel::{Channel, contents, sealed};
use weir_sys::signals::Signals;
use weir_sys::systemd::{self, Notifier};
use weir_units::Nanos;

/// How long the node may take to come to rest, and the program to answer.
const EXEC_STEP_TIMEOUT: Nanos = Nanos::from_secs(10);

/// So often it is looked whether the last thing is out of the way.
const AGAIN: Nanos = Nanos::from_millis(20);

/// How far it is.
#[derive(Debug)]
pub(super) enum Renewal {
    Idle,
    /// As soon as the keeper is at rest.
    Wanted(Nanos),
    /// The program reads the state: its process.
    Asked(Nanos, OwnedFd),
    /// It can go on from it.
    Agreed(Nanos),
}

impl Renewal {
    pub(super) fn wanted(now: Nanos) -> Self {
        Renewal::Wanted(now.saturating_add(EXEC_STEP_TIMEOUT))
    }

    /// When it is given up.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match self {
            Renewal::Idle => None,
            Renewal::Wanted(at) | Renewal::Asked(at, _) | Renewal::Agreed(at) => Some(*at),
        }
    }

    /// When it is looked at again, whatever happens: nobody tells of what it waits for.
    pub(super) fn again(&self, now: Nanos) -> Option<Nanos> {
        matches!(self, Renewal::Agreed(_)).then(|| now.saturating_add(AGAIN))
    }

    /// Who is asked.
    pub(super) fn asked(&self) -> Option<&OwnedFd> {
        match self {
            Renewal::Asked(_, pidfd) => Some(pidfd),
            _ => None,
        }
    }
}

/// Descriptors that go along.
#[derive(Default)]
pub(super) struct Collected<'a>(RefCell<Vec<BorrowedFd<'a>>>);

impl<'a> Collected<'a> {
    /// Its number, and that it goes along.
    pub(super) fn number(&self, fd: &'a impl AsFd) -> Number {
        let fd = fd.as_fd();
        self.0.borrow_mut().push(fd);
        fd.as_raw_fd().unsigned_abs()
    }

    pub(super) fn envelope(&self, envelope: &'a Envelope<Rc<OwnedFd>>) -> Envelope<Number> {
        let fds = envelope.fds.iter().map(|fd| self.number(&**fd)).collect();
        Envelope { bytes: envelope.bytes.clone(), fds }
    }
}

/// Descriptors that have come along.
pub(super) struct Taken {
    inherited: sys_renew::Inherited,
    /// Those that are in several places.
    shared: BTreeMap<Number, Rc<OwnedFd>>,
}

impl Taken {
    pub(super) fn take(&mut self, number: Number) -> io::Result<OwnedFd> {
        self.inherited.take(number)
    }

    pub(super) fn take_all(&mut self, numbers: &[Number]) -> io::Result<Vec<OwnedFd>> {
        numbers.iter().map(|n| self.take(*n)).collect()
    }

    pub(super) fn share(&mut self, number: Number) -> io::Result<Rc<OwnedFd>> {
        if let Some(fd) = self.shared.get(&number) {
            return Ok(Rc::clone(fd));
        }
        let fd = Rc::new(self.take(number)?);
        self.shared.insert(number, Rc::clone(&fd));
        Ok(fd)
    }

    pub(super) fn envelope(&mut self, envelope: Envelope<Number>) -> io::Result<Envelope<Rc<OwnedFd>>> {
        let fds = envelope.fds.iter().map(|n| self.share(*n)).collect::<io::Result<_>>()?;
        Ok(Envelope { bytes: envelope.bytes, fds })
    }
}

impl Process {
    /// The next step, if there is one.
    pub(super) fn renew(&mut self) {
        let now = self.now();
        if self.stopping {
            if !matches!(self.renewal, Renewal::Idle) {
                self.keep_program("the node ends".into());
            }
        } else if self.renewal.deadline().is_some_and(|at| at <= now) {
            if matches!(self.renewal, Renewal::Agreed(_)) && self.machine.is_at_rest() && !self.reapers.are_done() {
                // The kernel takes its time: that is nobody's fault, and has an end.
                self.renewal = Renewal::Agreed(now.saturating_add(AGAIN));
                return;
            }
            self.keep_program(match self.renewal {
                Renewal::Asked(..) => "the new program did not say in time whether it can take over the keeper".into(),
                _ => "the node did not come to rest in time".into(),
            });
        } else if self.machine.is_at_rest() && self.all_heard() {
            let result = match self.renewal {
                Renewal::Wanted(at) => self.ask().map(|pidfd| self.renewal = Renewal::Asked(at, pidfd)),
                // Who reaps would end by it, and nobody reap.
                Renewal::Agreed(_) if self.reapers.are_done() => Err(self.exec()),
                Renewal::Idle | Renewal::Asked(..) | Renewal::Agreed(_) => Ok(()),
            };
            if let Err(e) = result {
                self.keep_program(e.to_string());
            }
        }
    }

    /// The program before this one stays the keeper's.
    fn keep_program(&mut self, why: String) {
        if let Renewal::Asked(_, pidfd) = std::mem::replace(&mut self.renewal, Renewal::Idle) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            self.reapers.reap(pidfd);
        }
        notice(format_args!("the keeper stays with the program before: {why}"));
        self.progress.renewed(Some(why), self.now());
        self.tell_progress();
    }

    /// Asks the new program whether it could go on from here.
    fn ask(&self) -> io::Result<OwnedFd> {
        let state = sealed("keeper-state", &self.save(&Collected::default())?.to_bytes::<Crc32c>())?;
        let mut command = self.program.command();
        for name in systemd::VARIABLES {
            command.env_remove(name);
        }
        let mut child = command
            .args(self.arguments("keeper"))
            .stdin(Stdio::from(state))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(|e| {
            let _ = (child.kill(), child.wait());
            e.into()
        })
    }

    /// The line by which the node was started, with another subcommand: what is asked with it is what is executed with it, whatever a
    /// program that stands between adds to it.
    fn arguments(&self, subcommand: &str) -> Vec<OsString> {
        let mut arguments = self.settings.arguments.clone();
        if let Some(worker) = arguments.iter_mut().find(|a| *a == "worker") {
            *worker = subcommand.into();
        }
        arguments
    }

    /// It has answered.
    pub(super) fn answered(&mut self) {
        let Renewal::Asked(at, pidfd) = std::mem::replace(&mut self.renewal, Renewal::Idle) else { return };
        let said = ended(&pidfd);
        self.reapers.reap(pidfd);
        self.renewal = Renewal::Agreed(at);
        if !said.as_ref().is_ok_and(|status| status.exit_status() == Some(0)) {
            self.keep_program("the new program cannot take over the keeper; the node's log has its messages".into());
        }
    }

    /// Goes on as the new program; comes back if it cannot.
    fn exec(&mut self) -> io::Error {
        self.progress.renews(self.now());
        let collected = Collected::default();
        let state = match self.save(&collected) {
            Ok(saved) => saved.to_bytes::<Crc32c>(),
            Err(e) => return e,
        };
        let mut command = self.program.command();
        command.args(self.arguments("up"));
        sys_renew::become_program(command, &state, &collected.0.borrow())
    }

    fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<Saved> {
        let bytes = |text: &std::ffi::OsStr| text.as_bytes().to_vec();
        let (upgrade, since) = self.progress.save();
        let worker = |(id, w): (&_, &'a Running)| SavedWorker {
            id: *id,
            pid: w.pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd: fds.number(&w.pidfd),
            channel: fds.number(&w.channel),
            layouts: w.layouts.clone(),
        };
        let mut saved = Saved {
            pid: std::process::id(),
            machine: self.machine.clone(),
            usual: bytes(self.settings.program.as_os_str()),
            program: SavedProgram { path: bytes(self.program.path.as_os_str()), file: fds.number(&self.program) },
            arguments: self.settings.arguments.iter().map(|a| bytes(a)).collect(),
            generation: self.generation,
            connections: self.connections,
            upgrade,
            since,
            workers: self.workers.iter().map(worker).collect(),
            ready: self.ready,
            held: self
                .held
                .iter()
                .map(|(n, held)| (n.clone(), held.iter().map(|fd| fds.number(fd)).collect()))
                .collect(),
            fronts: Vec::new(),
            relays: Vec::new(),
        };
        self.fronts.iter().try_for_each(|front| front.save(&mut saved, fds))?;
        Ok(saved)
    }

    /// It goes on as the new program.
    pub(super) fn renewed(&mut self) {
        notice(format_args!("the keeper goes on as {}", self.program.path.display()));
        self.progress.renewed(None, self.now());
        self.tell_progress();
        // Those who watched ended with the program before.
        let all: Vec<WorkerId> = self.workers.keys().copied().collect();
        all.into_iter().for_each(|id| self.watch_again(id));
    }
}

/// The keeper's process, as the program before this one left it.
pub(super) fn take_over(inherited: sys_renew::Inherited) -> io::Result<Process> {
    let saved = Saved::parse::<Crc32c>(inherited.state()).map_err(io::Error::other)?;
    // The kernel names a program after what it was executed by, which is a descriptor's number. And where the binary may be executed
    // but not be read, it hides the process's folder, by which workers are started.
    let _ = rustix::thread::set_name(NAME);
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    let mut fds = Taken { inherited, shared: BTreeMap::new() };
    let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    let mut workers = BTreeMap::new();
    for w in saved.workers {
        let pid =
            i32::try_from(w.pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no such worker"))?;
        let (pidfd, channel) = (fds.take(w.pidfd)?, Channel::of(fds.take(w.channel)?));
        // One that has said so knows what is held, unless it serves.
        let told = w.layouts != Layouts::default() && saved.machine.serving() != Some(w.id);
        workers.insert(w.id, Running { pid, pidfd, channel, layouts: w.layouts, threads: None, told, silent: false });
    }
    let mut held = BTreeMap::new();
    for (name, numbers) in saved.held {
        held.insert(name, fds.take_all(&numbers)?);
    }
    let mut fronts = Vec::new();
    for front in saved.fronts {
        fronts.push(Front::restore(front, &mut fds)?);
    }
    for relay in saved.relays {
        fronts.push(Front::restore_relay(relay, &mut fds)?);
    }
    Ok(Process {
        settings: Settings {
            program: path(saved.usual),
            arguments: saved.arguments.into_iter().map(OsString::from_vec).collect(),
            standby: saved.machine.has_standby(),
        },
        program: Binary::of(path(saved.program.path), fds.take(saved.program.file)?),
        proposed: None,
        progress: Progress::restore(&saved.upgrade, saved.since),
        renewal: Renewal::Idle,
        machine: saved.machine,
        signals: Signals::block(&SIGNALS.map(Signal::as_raw))?,
        // Who listened at the start may have gone since, and all else is here.
        notifier: Notifier::from_environment().unwrap_or_else(|e| {
            notice(format_args!("NOTIFY_SOCKET: {e}; nobody is told how the node is, and nobody keeps what it holds, should the keeper be killed"));
            Notifier::default()
        }),
        workers,
        reapers: Reapers::default(),
        held,
        fronts,
        ready: saved.ready,
        generation: saved.generation,
        connections: saved.connections,
        failed: None,
        terminal: terminal(),
        stopping: false,
        exit: None,
    })
}

/// Whether this program could [take over](take_over) from the process that has started it.
pub(super) fn could_take_over(state: OwnedFd) -> io::Result<()> {
    let saved = Saved::parse::<Crc32c>(&contents(state)?).map_err(io::Error::other)?;
    // One that stands between would stand there again, and it would be another process that goes on.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if saved.pid != parent {
        return Err(io::Error::other(format!("this is process {}'s, and the one that asks is {parent}", saved.pid)));
    }
    Ok(())
}
