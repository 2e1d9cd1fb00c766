//! A client that goes on when this process is killed.
//!
//! ```text
//!   a turn:  messages, doorbells ─► Device, Subsystem ─► publish: hold descriptors ─► checkpoint ─► admin completions ─► words, signals
//!   killed:  checkpoint ─► recover ─► what its journal has in flight ─► join: the keeper's line, messages that had no effect yet
//! ```
//! The keeper has the client's socket (`weir_keeper::relay`), and holds the memory files, the checkpoint's file
//! (`weir_session::vfio_user::checkpoint`) and every descriptor that the client has handed over. Nothing of a turn can be seen before its
//! checkpoint is written. Messages that only ring doorbells need none: they are noted, stay with the keeper until the next checkpoint, and are
//! answered again under the same numbers. The doorbells of a client whose messages have not all come again are not looked at: one of them may be the reset
//! that has cleared them.

use super::Conn;
use crate::door::context::Cx;
use crate::door::vfio_user::held_names::{LIVE_CLIENTS, live_file};
use crate::door::vfio_user::message_dma::Completion;
use rustix::io::pwrite;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_controller::ControllerHandle;
use weir_keeper::relay::{self, Beginning};
use weir_session::vfio_user::checkpoint::{Checkpoint, Post, place};
use weir_session::vfio_user::{Inbox, SavedClient, Shared, Unsent};
use weir_spec::nvme::Cqe;
use weir_sys::crc::Crc32c;
use weir_sys::keeper_channel::{Keep, ToKeeper, memory_file};
use weir_sys::memory::doorbells::Doorbells;
use weir_sys::reactor::{Interest, Mode};
use weir_sys::transport::fds;
use weir_units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

/// The keeper's end of a conversation, as a worker is introduced to it.
pub(in crate::door::vfio_user) struct Line {
    pub(in crate::door::vfio_user) socket: UnixStream,
    /// The keeper's number of it.
    pub(in crate::door::vfio_user) number: u64,
    pub(in crate::door::vfio_user) begins: Beginning,
}

impl Line {
    /// Reads where it begins.
    ///
    /// # Errors
    /// The keeper does not say.
    pub(in crate::door::vfio_user) fn open(socket: UnixStream, number: u64) -> io::Result<Self> {
        let mut inbox = Inbox::default();
        loop {
            let mut got = Vec::new();
            let count = fds::receive(&socket, inbox.space(), &mut got)?;
            let message = match count {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => inbox.advance(count, got).map_err(io::Error::other)?,
            };
            if let Some(message) = message {
                let begins = relay::beginning(&message).ok_or_else(|| io::Error::other("no beginning"))?;
                return Ok(Self { socket, number, begins });
            }
        }
    }
}

/// Messages that only ring doorbells for which no checkpoint is written: half as many as make the keeper wait.
const UNWRITTEN: u64 = 64;

/// A word on its way to the keeper: some of the line's own, and a message behind them.
struct Word {
    bytes: Vec<u8>,
    /// Where the message begins.
    message: usize,
    sent: usize,
    /// The file that goes with the message's first byte.
    with: Option<Shared>,
}

/// A completion of an admin command that is not written yet.
struct Posted {
    address: u64,
    vector: Option<u16>,
    cqe: Cqe,
}

impl Posted {
    fn words(&self) -> Post {
        let [first, last] = self.cqe.words();
        [self.address, first, last, self.vector.map_or(u64::MAX, u64::from)]
    }

    fn of([address, first, last, vector]: &Post) -> Option<Self> {
        let cqe = Cqe::read_from_bytes([*first, *last].as_bytes()).ok()?;
        Some(Self { address: *address, vector: u16::try_from(*vector).ok(), cqe })
    }
}

/// See the [module](self).
pub(in crate::door::vfio_user) struct Live {
    path: String,
    /// The keeper's number of the line; 0: there is none yet.
    number: u64,
    client: u64,
    file: OwnedFd,
    /// Of the checkpoint that was written last.
    generation: u64,
    /// The number of the message that comes next on the line.
    next: u64,
    /// Messages that have had their effect, here or before.
    applied: u64,
    /// How many must have had it before doorbells are looked at.
    awaits: u64,
    /// Messages to the client that have a number.
    answered: u64,
    words: VecDeque<Word>,
    posts: Vec<Posted>,
    /// The last name that was given to a descriptor.
    named: u64,
    names: Vec<u64>,
    /// Something has happened since the last checkpoint that it has to say.
    changed: bool,
    /// Messages that have had their effect by the last checkpoint; those since have only rung doorbells, which are noted elsewhere.
    written: u64,
    /// What the keeper was told of that.
    told: u64,
    /// Bytes of `words` that the keeper has not taken.
    waiting: usize,
    /// The last checkpoint says that a process which finds it can go on.
    survives: bool,
    /// No checkpoint can be written: the client goes with this process.
    lost: bool,
    /// Holds the place of a line that has not come.
    _end: Option<UnixStream>,
}

impl Live {
    /// Of a client that nobody has served.
    ///
    /// # Errors
    /// No memory, no descriptors.
    pub(in crate::door::vfio_user) fn new(path: String, line: &Line) -> io::Result<Self> {
        let begins = &line.begins;
        let (client, next) = (begins.client.get(), begins.first.get());
        let file = memory_file("vfio-user-client")?;
        Ok(Self {
            path,
            number: line.number,
            client,
            file,
            generation: 0,
            next,
            applied: next - 1,
            awaits: 0,
            answered: 0,
            words: VecDeque::new(),
            posts: Vec::new(),
            named: 0,
            names: Vec::new(),
            changed: false,
            written: next - 1,
            told: next - 1,
            waiting: 0,
            survives: false,
            lost: false,
            _end: None,
        })
    }

    /// Of one that another process has served, whose line will come.
    pub(in crate::door::vfio_user) fn found(
        path: String,
        file: OwnedFd,
        (generation, left): (u64, &Checkpoint),
        end: UnixStream,
    ) -> Self {
        Self {
            path,
            number: 0,
            client: left.client,
            file,
            generation,
            next: left.applied + 1,
            applied: left.applied,
            awaits: u64::MAX,
            answered: left.answered,
            words: VecDeque::new(),
            posts: Vec::new(),
            named: left.named,
            names: left.files.clone(),
            changed: true,
            written: left.applied,
            told: 0,
            waiting: 0,
            survives: false,
            lost: false,
            _end: Some(end),
        }
    }

    /// A message has come: whether it has had no effect yet.
    pub(super) fn is_new(&mut self) -> bool {
        let number = self.next;
        self.next += 1;
        number > self.applied
    }

    /// It has had its effect now. One that only rings doorbells needs no checkpoint of its own: they are noted, and who hears it once more
    /// answers it as before.
    pub(super) fn has_applied(&mut self, only_rings: bool) {
        self.applied += 1;
        self.changed |= !only_rings || self.applied - self.written > UNWRITTEN;
    }

    /// Bytes that the keeper has not taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    fn say(&mut self, word: Word) {
        self.waiting += word.bytes.len();
        self.words.push_back(word);
    }

    fn unsent(&self) -> impl Iterator<Item = Unsent> {
        let messages = self.words.iter().filter(|word| word.message < word.bytes.len());
        messages.map(|word| Unsent { bytes: word.bytes[word.message..].to_vec(), sent: 0, with: word.with })
    }

    /// Has the keeper hold what has come since the last time; the names of all.
    fn hold(&mut self, files: &mut super::Files, keep: &Keep) -> io::Result<()> {
        for handed in files.all().filter(|handed| handed.name == 0) {
            let name = self.named + 1;
            keep.hold(&live_file(&self.path, name), &[handed.fd.as_fd()])?;
            (self.named, handed.name) = (name, name);
        }
        self.names = files.all().map(|handed| handed.name).collect();
        Ok(())
    }

    fn write(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        let generation = self.generation + 1;
        let bytes = checkpoint.to_bytes::<Crc32c>(generation).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(&self.file, &bytes[done..], place(generation) + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.generation = generation;
        Ok(())
    }

    /// The keeper forgets all of it, whether the last checkpoint has come to name it or not.
    fn let_go(&self, files: Option<&mut super::Files>, keep: &Keep) {
        let _ = keep.release(&format!("{LIVE_CLIENTS}{}", self.path));
        let mut names: BTreeSet<u64> = self.names.iter().copied().collect();
        if let Some(files) = files {
            names.extend(files.gone.drain(..));
            names.extend(files.all().map(|handed| std::mem::take(&mut handed.name)).filter(|name| *name != 0));
        }
        names.iter().for_each(|name| _ = keep.release(&live_file(&self.path, *name)));
    }
}

impl Conn {
    /// The client is to go on when this process is killed: the keeper holds what it maps, and what is written of it.
    ///
    /// # Errors
    /// The keeper does not listen.
    pub(in crate::door::vfio_user) fn live_from_now_on(&mut self, live: Live, cx: &Cx) -> io::Result<()> {
        let mut shared: Vec<BorrowedFd> = vec![live.file.as_fd()];
        shared.extend(self.bells.as_ref().map(Doorbells::fd));
        shared.extend(self.buffer.as_ref().map(|b| b.file.as_fd()));
        shared.extend(self.rings.as_ref().map(|rings| rings.file()));
        cx.keep.hold(&format!("{LIVE_CLIENTS}{}", live.path), &shared)?;
        self.live = Some(Box::new(live));
        Ok(())
    }

    /// It goes on from there, and waits for its line.
    pub(in crate::door::vfio_user) fn go_on_live(&mut self, live: Live, checkpoint: &Checkpoint, now: Nanos) {
        if let Some(files) = &mut self.files {
            files.all().zip(&checkpoint.files).for_each(|(handed, name)| handed.name = *name);
            files.news();
        }
        self.live = Some(Box::new(live));
        // It is another one's if that does not come.
        self.stuck = Some(now);
        self.post_again(&checkpoint.posts);
    }

    /// Its line has come, with the messages that had no effect in the process before.
    pub(in crate::door::vfio_user) fn join(
        &mut self,
        line: Line,
        token: u64,
        pid: Option<i32>,
        cx: &mut Cx,
    ) -> Result<(), String> {
        let Some(live) = &mut self.live else { return Err("it was not to go on".into()) };
        let (first, again) = (line.begins.first.get(), line.begins.again.get());
        let before = live.answered - live.unsent().count() as u64;
        if first > live.applied + 1 || line.begins.answered.get() < before {
            return Err("what is written of it is older than what it has heard".into());
        }
        (live.number, live.next, live.awaits) = (line.number, first, first + again - 1);
        cx.reactor.unwatch(self.input);
        line.socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        self.input = cx.reactor.watch(&line.socket, Interest::READ, Mode::Edge, token);
        (self.socket, self.stuck, self.pid) = (line.socket, None, pid);
        Ok(())
    }

    /// The number of the message that is being handled.
    pub(super) fn heard(&self) -> u64 {
        self.live.as_ref().map_or(0, |live| live.applied)
    }

    /// Which client of the keeper's it is.
    pub(in crate::door::vfio_user) fn client(&self) -> Option<u64> {
        self.live.as_ref().map(|live| live.client)
    }

    /// Whether who serves it next can go on with what its queues have in flight: it would after this process's death.
    pub(in crate::door::vfio_user) fn can_pass_on(&self) -> bool {
        self.live.as_ref().is_some_and(|live| !live.lost && live.survives) && !self.is_gated()
    }

    /// Whether its doorbells say nothing yet.
    #[inline]
    pub(super) fn is_deaf(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.applied < live.awaits)
    }

    /// Writes down what this turn has done, before anything of it can be seen.
    pub(in crate::door::vfio_user) fn publish(
        &mut self,
        (drive, controller): (u32, ControllerHandle),
        leaves: bool,
        cx: &mut Cx,
    ) {
        if self.live.is_none() {
            return;
        }
        self.ask();
        let Some(mut live) = self.live.take() else { return };
        let changed = live.changed || self.is_stale(&live, leaves);
        // What is asked of a client whose memory is reached by messages is in no message of its own.
        if changed || leaves || !live.posts.is_empty() || !self.answers.is_empty() && self.is_gated() {
            self.write_down((&mut live, leaves), (drive, controller), cx);
            // Doorbells of queues that have gone are cleared between the checkpoint that has them no more and one with new ones.
            self.follow_queues(drive, controller, cx);
            // Where one cannot go, its host has taken the queue away.
            for Posted { address, vector, cqe } in std::mem::take(&mut live.posts) {
                // What its command has written by messages is waited for.
                let completion = Completion { address, vector, cqe, taken: None };
                let Some(completion) = self.gate.hold(completion) else { continue };
                let _ = self.release(&completion);
            }
            // The last bytes on their way may have been one of these commands'.
            if self.is_stale(&live, leaves) {
                self.write_down((&mut live, leaves), (drive, controller), cx);
            }
            (live.changed, live.written) = (false, live.applied);
        }
        if leaves && !live.lost {
            self.hand_on_held();
        }
        self.number_answers(&mut live);
        self.live = Some(live);
    }

    /// Whether the last checkpoint says something else of whether the client survives.
    fn is_stale(&self, live: &Live, leaves: bool) -> bool {
        !live.lost && live.survives != (leaves || self.survives())
    }

    fn write_down(
        &mut self,
        (live, leaves): (&mut Live, bool),
        (drive, controller): (u32, ControllerHandle),
        cx: &mut Cx,
    ) {
        if let Err(e) = self.checkpoint((live, leaves), (drive, controller), cx) {
            if !live.lost {
                tracing::error!(socket = live.path, "the client will not outlive this process: {e}");
                live.let_go(self.files.as_deref_mut(), cx.keep);
                cx.drives.get(drive).ends_with_process(controller);
            }
            live.lost = true;
        }
    }

    /// A completion of an admin command: it is written when it can be no other any more. False where nothing of this client is to go on.
    #[inline]
    pub(super) fn post_later(&mut self, address: u64, vector: Option<u16>, cqe: &Cqe) -> bool {
        let Some(live) = self.live.as_mut().filter(|_| cqe.sqid.get() == 0) else { return false };
        live.posts.push(Posted { address, vector, cqe: *cqe });
        true
    }

    /// Its host does not want them any more.
    pub(super) fn forget_posts(&mut self) {
        self.live.iter_mut().for_each(|live| live.posts.clear());
    }

    /// What the process before was about to write into its host's memory, or has written.
    pub(in crate::door::vfio_user) fn post_again(&mut self, posts: &[Post]) {
        for post in posts {
            let Some(Posted { address, vector, cqe }) = Posted::of(post) else { continue };
            let _ = self.put(address, &cqe);
            vector.into_iter().for_each(|v| _ = self.due(v));
        }
    }

    fn checkpoint(
        &mut self,
        (live, leaves): (&mut Live, bool),
        (drive, controller): (u32, ControllerHandle),
        cx: &mut Cx,
    ) -> io::Result<()> {
        if live.lost {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let machine = cx.drives.machine(drive);
        let follows = self.rings.as_mut().is_some_and(|rings| rings.follow(machine, controller));
        if !follows {
            return Err(io::Error::other("a queue has no journal"));
        }
        let Some(files) = self.files.as_deref_mut() else { return Err(io::ErrorKind::Unsupported.into()) };
        if files.news() {
            live.hold(files, cx.keep)?;
        }
        let request = files.has_request();
        let unsent: Vec<Unsent> = live.unsent().chain(self.answers.iter().cloned()).collect();
        let numbered = live.unsent().count() as u64;
        let client = SavedClient::<OwnedFd> {
            inbox: Inbox::default(),
            parked: None,
            request,
            unsent,
            bells: self.all_bells(),
            late: self.gate.late(),
        };
        let checkpoint = Checkpoint {
            survives: leaves || self.survives(),
            client: live.client,
            applied: live.applied,
            answered: live.answered - numbered,
            named: live.named,
            files: live.names.clone(),
            posts: live.posts.iter().map(Posted::words).collect(),
            device: self.device.save::<Crc32c, _>(cx.now, &client),
            controller: machine.checkpoint(cx.now, controller),
        };
        live.write(&checkpoint)?;
        live.survives = checkpoint.survives;
        if cx.drives.machine(drive).has_executed() {
            cx.drives.get(drive).checkpointed(controller);
        }
        // Nothing that counts names them any more.
        let mut gone = self.files.iter_mut().flat_map(|files| files.gone.drain(..));
        gone.try_for_each(|name| cx.keep.release(&live_file(&live.path, name)))
    }

    /// The answers of this turn become words to the keeper, behind how far its messages have come.
    fn number_answers(&mut self, live: &mut Live) {
        let mut head = Vec::new();
        if live.written > live.told {
            (head, live.told) = (relay::applied(live.written), live.written);
        }
        for Unsent { bytes, with, .. } in self.answers.drain(..) {
            live.answered += 1;
            head.extend(relay::answer(live.answered));
            let message = head.len();
            live.say(Word { bytes: [std::mem::take(&mut head), bytes].concat(), message, sent: 0, with });
        }
        if !head.is_empty() {
            live.say(Word { message: head.len(), bytes: head, sent: 0, with: None });
        }
    }

    /// Sends the keeper what there is for it; false if the connection is over.
    pub(super) fn send_words(&mut self, output: u64, cx: &mut Cx) -> bool {
        let Some(live) = &mut self.live else { return true };
        if live.number == 0 {
            return true;
        }
        while let Some(word) = live.words.front_mut() {
            let with: Option<BorrowedFd> = match word.with.filter(|_| word.sent == word.message) {
                Some(Shared::Doorbells) => self.bells.as_ref().map(Doorbells::fd),
                Some(Shared::Buffer) => self.buffer.as_ref().map(|b| b.file.as_fd()),
                None => None,
            };
            // A descriptor goes with the first byte of what it belongs to.
            let end = if word.with.is_some() && word.sent < word.message { word.message } else { word.bytes.len() };
            match fds::send_some(&self.socket, &word.bytes[word.sent..end], with.as_slice()) {
                Ok(sent) => {
                    word.sent += sent;
                    live.waiting -= sent;
                    self.stuck = None;
                    if word.sent == word.bytes.len() {
                        live.words.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.stuck.get_or_insert(cx.now);
                    self.watch_output(cx.reactor, output);
                    return true;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The client has gone, or is to go: the keeper has nothing of it any more.
    pub(in crate::door::vfio_user) fn give_up(&mut self, cx: &Cx) {
        let Some(live) = self.live.take() else { return };
        live.let_go(self.files.as_deref_mut(), cx.keep);
        if live.number != 0 {
            let _ = cx.keep.say(&ToKeeper::Close(live.number), &[]);
        }
    }
}
