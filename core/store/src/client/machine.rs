//! The machine: what it knows, and each event taken to its end. See [the module](super).

use super::checks::{self, Namespaces};
use super::drives::Drives;
use super::event::{
    ClientEffect, ClientEvent, ClientFailure, ClientFault, ClientMemory, ClientSetup, FileWork, MemoryId, OpenFileId,
    Outcome, WorkId, work_of,
};
use super::open_file::{FileContent, OpenFile};
use super::requests::Requests;
use crate::extent::Extent;
use crate::file::{FileEffect, FileEvent, FileOpId};
use crate::id::SessionId;
use crate::members::{LeaseTiming, SessionHolder};
use crate::mutant::Planted;
use crate::protocol::WelcomeInfo;
use crate::space::{Epoch, GRANT_AHEAD};
use crate::tree::InodePath;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_units::Nanos;

/// Before a session has so many bytes ahead that its writes have to wait.
const PUBLISH_BEHIND: u64 = GRANT_AHEAD / 4 * 3;

/// How often work under way is asked whether it is late.
pub(super) const LOOK: Nanos = Nanos::from_millis(10);

/// An event's time, the memory, and what is to be done.
pub(super) struct Out<'a, M> {
    pub now: Nanos,
    pub memory: &'a mut M,
    pub effects: &'a mut Vec<ClientEffect>,
}

/// What a work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Ask,
    /// A file is opened: that one, if it is known which.
    Open(Option<InodePath>),
    File(OpenFileId, FileWork),
}

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// At the service, or in a file's sequence.
    Away,
    /// In its file's queue.
    Queued,
    /// A read that is tried again by and by.
    Again,
    /// At the file's machine, which has its memory.
    Running,
}

/// A caller's work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub doing: Doing,
    pub stage: Stage,
    pub deadline: Nanos,
    /// How often it was tried again.
    pub tries: u32,
}

/// An operation of a file's machine that no caller has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnOperation {
    /// A flush that makes room.
    Room(OpenFileId),
    /// A step of the file's sequence.
    Step(OpenFileId),
}

/// See [the module](super).
#[derive(Debug)]
pub struct ClientMachine {
    pub(super) setup: ClientSetup,
    pub(super) welcome: WelcomeInfo,
    pub(super) session: SessionId,
    pub(super) holder: SessionHolder,
    /// Why the session is over.
    pub(super) over: Option<ClientFailure>,
    pub(super) requests: Requests,
    pub(super) files: BTreeMap<OpenFileId, OpenFile>,
    pub(super) works: BTreeMap<WorkId, Work>,
    pub(super) own: BTreeMap<WorkId, OwnOperation>,
    pub(super) namespaces: Namespaces,
    pub(super) asks_for_namespaces: bool,
    pub(super) ask_again_at: Nanos,
    pub(super) drives: Drives,
    /// Events of files' machines that are to come.
    pub(super) inbox: VecDeque<(OpenFileId, MemoryId, FileEvent)>,
    /// Files that something has happened to.
    pub(super) touched: BTreeSet<OpenFileId>,
    /// What was granted and is not needed: given back when no drive has a write of it.
    pub(super) unneeded: Vec<Extent>,
    pub(super) look_at: Nanos,
    /// When a read is tried again, at the earliest.
    pub(super) again_at: Nanos,
    /// The time of the last event.
    pub(super) clock: Nanos,
    /// What may be acknowledged whatever drives still do that are in doubt.
    pub(super) safe: Epoch,
    /// With more bytes than that ahead of what is published, what is written is published while writes go on.
    pub(super) publish_behind: u64,
    pub(super) planted: Planted,
    last: u64,
}

impl ClientMachine {
    /// A client that was let in, over a connection that is there. `sent` is when its greeting was.
    ///
    /// # Errors
    /// What the service says cannot be: in words.
    pub fn new(setup: ClientSetup, welcome: WelcomeInfo, sent: Nanos) -> Result<Self, String> {
        checks::welcome(&welcome)?;
        let session = welcome.session.ok_or("a welcome without a session")?;
        // What is in flight is given up within a tenth of the lease.
        let timing = LeaseTiming::new(welcome.lease, welcome.drift_ppm, Nanos(welcome.lease.get() / 10));
        let timing =
            timing.ok_or_else(|| alloc::format!("a lease of {} ns, which leaves no time", welcome.lease.get()))?;
        let holder = SessionHolder::new(session, timing, sent, welcome.epoch);
        Ok(Self {
            setup,
            session,
            holder,
            over: None,
            requests: Requests::default(),
            files: BTreeMap::new(),
            works: BTreeMap::new(),
            own: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            asks_for_namespaces: false,
            ask_again_at: Nanos(0),
            drives: Drives::default(),
            inbox: VecDeque::new(),
            touched: BTreeSet::new(),
            unneeded: Vec::new(),
            look_at: Nanos(0),
            again_at: Nanos::NEVER,
            clock: sent,
            safe: welcome.epoch,
            publish_behind: PUBLISH_BEHIND,
            planted: Planted::default(),
            last: 0,
            welcome,
        })
    }

    /// The same with a planted fault.
    #[cfg(test)]
    pub(crate) fn with_mutant(mut self, mutant: Option<crate::mutant::Mutant>) -> Self {
        self.planted = mutant.into();
        self.holder = self.holder.with_mutant(mutant);
        self
    }

    /// The same, which publishes what is written as soon as it has so many bytes ahead of it.
    #[cfg(test)]
    pub(crate) fn with_publish_behind(mut self, bytes: u64) -> Self {
        self.publish_behind = bytes;
        self
    }

    /// What the store said when the client was let in.
    pub fn welcome(&self) -> &WelcomeInfo {
        &self.welcome
    }

    /// A number that was not used before: for a caller's work.
    pub fn number(&mut self) -> WorkId {
        WorkId(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether the session's lease holds: only then do drives get commands and keep-alives.
    pub fn holds(&self, now: Nanos) -> bool {
        self.over.is_none() && self.holder.holds(now)
    }

    /// The size of an open file as this client sees it: with what it has written.
    pub fn size(&self, file: OpenFileId) -> Option<u64> {
        self.files.get(&file).map(OpenFile::size)
    }

    /// Whether an open file may be written, the bytes of its blocks, and how many copies they have.
    pub fn shape(&self, file: OpenFileId) -> Option<(bool, u32, u8)> {
        self.files.get(&file).map(|file| (file.writes, file.block, file.copies))
    }

    /// Whether the bytes of an open file are in blocks.
    pub fn is_mapped(&self, file: OpenFileId) -> bool {
        self.files.get(&file).is_some_and(|file| file.io().is_some())
    }

    /// Whether anything is under way.
    pub fn has_work(&self) -> bool {
        !self.works.is_empty() || !self.own.is_empty() || self.requests.pending() > 0 || self.drives.has_commands()
    }

    /// Whether the session is over: everything fails from then on.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Whether a client that ends now may end its session: no drive has anything of it, or may have.
    pub fn may_say_bye(&self) -> bool {
        self.over.is_none() && !self.drives.has_commands() && !self.drives.is_in_doubt()
    }

    /// When the next [`ClientEvent::Tick`] is due although nothing comes.
    pub fn due(&self) -> Nanos {
        let look = match self.works.is_empty() && self.own.is_empty() {
            true => Nanos::NEVER,
            false => self.look_at,
        };
        let lease = if self.over.is_some() { Nanos::NEVER } else { self.holder.due() };
        look.min(self.again_at).min(self.requests.due()).min(lease)
    }

    /// Takes an event to its end. `now` is of a clock that runs while the machine sleeps.
    pub fn apply<M: ClientMemory>(
        &mut self,
        now: Nanos,
        event: ClientEvent,
        memory: &mut M,
        effects: &mut Vec<ClientEffect>,
    ) {
        let out = &mut Out { now, memory, effects };
        self.clock = now;
        // A lease that has ended ends everything before anything counts that has come.
        if self.over.is_none() && !self.holder.holds(now) {
            self.stop(ClientFault::SessionOver.into(), out);
        }
        match event {
            ClientEvent::Connected(welcome) => self.connected(&welcome, out),
            ClientEvent::Disconnected(why) => self.disconnected(why, out),
            ClientEvent::Refused => self.stop(ClientFault::SessionOver.into(), out),
            ClientEvent::Answer(number, answer) => self.answer(number, answer, out),
            ClientEvent::TooLong(number) => self.too_long(number, out),
            ClientEvent::Done(command, result) => self.drive_done(command, result, out),
            ClientEvent::Reconnected(drive) => self.drive_reconnected(drive),
            ClientEvent::NotOpened(drive, why) => self.drive_not_opened(drive, why, out),
            ClientEvent::Trouble(drive, why) => self.trouble(drive, why, out),
            ClientEvent::Doubt(drive, is_in_doubt) => self.drive_doubt(drive, is_in_doubt, out),
            ClientEvent::Ask(work, request, deadline) => self.ask(work, request, deadline, out),
            ClientEvent::Open(work, request, deadline) => self.open(work, request, deadline, out),
            ClientEvent::Begin(work, file, what, deadline) => self.begin(work, file, what, deadline, out),
            ClientEvent::Cancel(work) => self.cancel(work, out),
            ClientEvent::Forget(file) => self.forget(file),
            ClientEvent::Bye => self.bye(out),
            ClientEvent::Tick => self.tick(out),
        }
        self.settle_all(out);
    }

    /// Takes what has come of an event to its end.
    fn settle_all<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        loop {
            if let Some((file, memory, event)) = self.inbox.pop_front() {
                self.give(file, memory, event, out);
            } else if let Some(file) = self.touched.pop_first() {
                self.settle(file, out);
            } else if !self.return_unneeded(out) && !self.close_drives(out) {
                break;
            }
        }
    }

    /// Something happens to an open file's machine, if it still is the one that was meant.
    fn give<M: ClientMemory>(&mut self, id: OpenFileId, memory: MemoryId, event: FileEvent, out: &mut Out<'_, M>) {
        let Some(file) = self.files.get_mut(&id).filter(|file| file.memory == memory) else { return };
        let FileContent::Mapped(io) = &mut file.content else { return };
        let mut effects = Vec::new();
        io.apply(out.now, event, &mut out.memory.of_file(memory), &mut effects);
        self.touched.insert(id);
        self.carry_out(id, memory, effects, out);
    }

    /// What an open file's machine wants done.
    fn carry_out<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        memory: MemoryId,
        effects: Vec<FileEffect>,
        out: &mut Out<'_, M>,
    ) {
        let mut grants = Vec::new();
        for effect in effects {
            match effect {
                FileEffect::Grant(block) => grants.push(block),
                FileEffect::GrantShort(block) => match self.shorter(id, memory, block, None) {
                    Some(bytes) => self.ask_for_short(id, memory, (block, bytes), out),
                    None => grants.push(block),
                },
                FileEffect::Fetch(_) | FileEffect::Unsettle(_) | FileEffect::MarkOut(..) | FileEffect::Publish(..) => {
                    self.ask_for_file(id, memory, effect, out);
                }
                FileEffect::Answer(op, result) => self.operation_over(id, op, result, out),
                FileEffect::Abort(ticket) => self.abort(id, memory, ticket, out),
                FileEffect::Read(..) | FileEffect::Write(..) | FileEffect::FlushDrive(..) => {
                    self.drive_command(id, memory, effect, out);
                }
            }
        }
        if !grants.is_empty() {
            self.ask_for_blocks(id, memory, grants, out);
        }
    }

    pub(super) fn finish<M>(&mut self, work: WorkId, outcome: Outcome, out: &mut Out<'_, M>) {
        out.effects.push(ClientEffect::Finish(work, outcome));
    }

    /// The machine of an operation, by the number that its memory has.
    pub(super) fn own_operation(&mut self, op: FileOpId) -> Option<OwnOperation> {
        self.own.remove(&work_of(op))
    }

    /// Panics unless what belongs together does.
    pub fn check(&self) {
        self.requests.check();
        self.drives.check(&self.namespaces);
        assert!(self.inbox.is_empty() && self.touched.is_empty(), "an event is taken to its end");
        for (id, file) in &self.files {
            if let Some(io) = file.io() {
                io.check();
            }
            for work in &file.queue {
                let known = self.works.get(work).map(|work| (work.stage, work.doing));
                assert!(
                    matches!(known, Some((Stage::Queued, Doing::File(of, _))) if of == *id),
                    "{work:?} waits in the queue of {id:?}: {known:?}"
                );
            }
            for (at, work) in &file.again {
                assert!(*at >= self.again_at, "a read is not tried again before that is due");
                assert_eq!(self.works.get(work).map(|work| work.stage), Some(Stage::Again), "{work:?} is tried again");
            }
            let own = self.own.values().filter(|own| matches!(own, OwnOperation::Step(of) if of == id)).count();
            assert!(own <= 1 && (own == 0 || file.sequence.is_some()), "{id:?} has one step under way");
            let is_stuck = file.sequence.is_none() && file.is_quiet() && !file.queue.is_empty();
            assert!(!is_stuck || self.over.is_none(), "nothing waits when the session is over: {id:?}");
        }
        for (work, known) in &self.works {
            let Doing::File(id, _) = known.doing else { continue };
            let file = self.files.get(&id);
            assert!(file.is_some(), "{work:?} is of an open file");
            let is_there = match known.stage {
                Stage::Queued => file.is_some_and(|file| file.queue.contains(work)),
                Stage::Again => file.is_some_and(|file| file.again.iter().any(|(_, again)| again == work)),
                Stage::Running => file.is_some_and(|file| file.io().is_some_and(|io| io.pending() > 0)),
                Stage::Away => true,
            };
            assert!(is_there, "{work:?} is where it is said to be: {known:?}");
        }
        for id in self.own.values().map(|own| match own {
            OwnOperation::Room(id) | OwnOperation::Step(id) => id,
        }) {
            assert!(self.files.contains_key(id), "an operation of the machine's own is of an open file");
        }
        if let Some(over) = &self.over {
            assert!(self.requests.pending() == 0, "{} requests after the session: {over:?}", self.requests.pending());
        }
    }

    /// What the machine is at, for a test or a log that asks why nothing goes on.
    pub fn describe(&self) -> String {
        let files: Vec<String> = self
            .files
            .iter()
            .map(|(id, file)| alloc::format!("{id:?}: {:?}, {} queued", file.sequence, file.queue.len()))
            .collect();
        alloc::format!("{} requests, works {:?}, files {}", self.requests.pending(), self.works, files.join("; "))
            .to_string()
    }
}
