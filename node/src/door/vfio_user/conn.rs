//! One client: its socket, its memory, its device, its doorbells and its vectors.

mod crash_recovery;
mod data;
mod gated;
mod handover;
mod rings;
mod shadow;

pub(super) use crash_recovery::{Line, Live};
pub(super) use handover::Found;
pub(super) use rings::Rings;

use super::client_memory::{Buffer, Files, Reach};
use super::message_dma::MessageDma;
use crate::door::context::{Arrival, Cx};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_config::Doorbells as Way;
use weir_controller::{ControllerHandle, Event, Subsystem};
use weir_session::vfio_user::{
    Action, DOORBELLS, DOORBELLS_END, DeviceShape, Inbox, Message, Shared, Unsent, VfioUserDevice,
};

use weir_spec::nvme::register;
use weir_spec::nvme::register::Doorbell;
use weir_sys::memory::GuestMemory;
use weir_sys::memory::doorbells::{Doorbells, Sleepers};
use weir_sys::reactor::{Interest, Mode, Reactor, Ready, WatchId};
use weir_sys::sched;
use weir_sys::transport::fds;
use weir_sys::transport::signal::Signal;
use weir_units::{Class, Nanos};

/// Queue identifiers that are looked at in every turn; of more, as many others.
pub(super) const EVERY_TURN: u16 = 16;
/// How long a client may leave answers unread.
const UNREAD_FOR: Nanos = Nanos::from_secs(5);
/// Messages handled in one turn: a client that floods its socket does not keep the others waiting.
const MESSAGES: usize = 64;
/// Bytes of answers that may wait before more messages are read.
const ANSWERS: usize = 1 << 20;

/// What no doorbell of a queue is rung with.
const UNRUNG: u32 = u32::MAX;

/// What [`Conn::listen`] leaves to the door.
#[derive(Default)]
pub(super) struct Heard {
    /// There may be more to read, or something read that must wait for the drives.
    pub(super) more: bool,
    /// The controller is to be reset.
    pub(super) reset: bool,
    /// What the next turn finds may lie elsewhere than it did: the memory buffer's place was written.
    moved: bool,
    /// The connection is over, for a reason unless the client just closed it.
    pub(super) over: Option<Option<String>>,
}

pub(super) struct Conn {
    /// Commands whose bytes travel by messages.
    gate: MessageDma,
    socket: UnixStream,
    input: WatchId,
    output: Option<WatchId>,
    inbox: Inbox<OwnedFd>,
    /// A message that must follow register writes which have not had their effect.
    parked: Option<Message<OwnedFd>>,
    wrote: bool,
    device: VfioUserDevice,
    memory: GuestMemory,
    /// What was mapped and is signalled, for who goes on with this client; only where somebody could.
    files: Option<Box<Files>>,
    buffer: Option<Box<Buffer>>,
    /// The journal of its I/O queues; only where somebody could go on after a crash.
    pub(super) rings: Option<Box<Rings>>,
    actions: Vec<Action<OwnedFd>>,
    answers: VecDeque<Unsent>,
    /// Since when the client has not taken its answers.
    stuck: Option<Nanos>,
    /// It is not read from before they have gone.
    full: bool,
    /// The keeper has its socket, and it is to go on when this process is killed.
    live: Option<Box<Live>>,

    bells: Option<Doorbells>,
    /// What was rung, by queue identifier: tail and head.
    seen: Vec<(u32, u32)>,
    /// Which queues there were at the last look, by queue identifier: submission, completion.
    there: Vec<(bool, bool)>,
    epoch: u32,
    /// Where the next look at some of many queues begins.
    next: u16,
    /// Its host has shadow doorbells.
    shadowed: bool,
    hot: bool,
    hot_until: Nanos,

    vectors: Vec<Signal>,
    /// Vectors to be signalled in this turn.
    due: Vec<u16>,
    is_due: Vec<bool>,
    request: Signal,

    /// Whose I/O priority counts.
    pid: Option<i32>,
    wish: Option<Class>,
}

impl Conn {
    /// Its client has closed the socket, whatever is still to be read from it.
    pub(super) fn has_gone(&self) -> bool {
        fds::is_hung_up(&self.socket)
    }

    pub(super) fn new(
        socket: UnixStream,
        token: u64,
        shape: DeviceShape,
        pid: Option<i32>,
        cx: &mut Cx,
    ) -> io::Result<Self> {
        let bells = match shape.mapped_doorbells {
            true => Some(Doorbells::new(DOORBELLS as usize, DOORBELLS_END as usize)?),
            false => None,
        };
        let buffer = (shape.buffer > 0).then(|| Buffer::new(shape.buffer).map(Box::new)).transpose()?;
        Self::with((socket, token), VfioUserDevice::new(shape), bells, buffer, pid, cx)
    }

    /// A client whose doorbells and memory buffer are there.
    fn with(
        (socket, token): (UnixStream, u64),
        device: VfioUserDevice,
        bells: Option<Doorbells>,
        buffer: Option<Box<Buffer>>,
        pid: Option<i32>,
        cx: &mut Cx,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let vectors = usize::from(device.msix().vectors());
        Ok(Self {
            input: cx.reactor.watch(&socket, Interest::READ, Mode::Edge, token),
            output: None,
            socket,
            gate: MessageDma::default(),
            inbox: Inbox::default(),
            parked: None,
            wrote: false,
            device,
            memory: GuestMemory::new(),
            files: cx.keep.is_kept().then(Box::default),
            buffer,
            rings: None,
            actions: Vec::new(),
            answers: VecDeque::new(),
            stuck: None,
            full: false,
            live: None,
            bells,
            seen: Vec::new(),
            there: Vec::new(),
            epoch: 0,
            next: 0,
            shadowed: false,
            hot: false,
            hot_until: Nanos(0),
            vectors: (0..vectors).map(|_| Signal::default()).collect(),
            due: Vec::new(),
            is_due: vec![false; vectors],
            request: Signal::default(),
            pid,
            wish: None,
        })
    }

    /// Leaves the reactor.
    pub(super) fn close(&mut self, cx: &mut Cx) {
        cx.reactor.unwatch(self.input);
        if let Some(watch) = self.output.take() {
            cx.reactor.unwatch(watch);
        }
    }

    pub(super) fn is_watch(&self, ready: &Ready) -> bool {
        matches!(ready, Ready::Fd { watch, .. } if *watch == self.input || self.output == Some(*watch))
    }

    /// What was written before has had its effect: the drives have run.
    pub(super) fn registers_are_written(&mut self) {
        self.wrote = false;
    }

    /// The doorbells of its queues and what stands in them, to be looked at together with those of others.
    pub(super) fn lie_down(&self, name: u16, sleepers: &mut Sleepers) {
        let Some(bells) = &self.bells else { return };
        let queues = (0u16..).zip(self.there.iter().zip(&self.seen));
        sleepers.add(
            name,
            bells,
            queues.filter(|(_, (there, _))| there.0 || there.1).map(|(qid, (_, seen))| (qid, *seen)),
        );
    }

    /// Handles what the client has sent.
    pub(super) fn listen(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) -> Heard {
        let mut heard = Heard::default();
        self.shadowed = cx.drives.machine(drive).shadow(controller).is_some();
        self.follow_buffer(drive, controller, cx);
        self.tell_noted(drive, controller, cx);
        if self.is_gated() {
            self.follow_queues(drive, controller, cx);
        }
        for _ in 0..MESSAGES {
            // A client that does not take its answers is not asked for more; nobody says again that it has sent something.
            self.full = self.waiting() > ANSWERS;
            if self.full {
                return heard;
            }
            let message = match self.parked.take() {
                Some(message) => message,
                None => match self.receive() {
                    // It had its effect in another process.
                    Ok(Some(_)) if self.live.as_mut().is_some_and(|live| !live.is_new()) => continue,
                    Ok(Some(message)) => message,
                    Ok(None) => {
                        self.tell_noted(drive, controller, cx);
                        return heard;
                    }
                    Err(over) => {
                        heard.over = Some(over);
                        return heard;
                    }
                },
            };
            if self.wrote && VfioUserDevice::must_follow(&message) {
                self.parked = Some(message);
                heard.more = true;
                return heard;
            }
            let (header, only_rings) = (&message.header, VfioUserDevice::only_rings(&message));
            tracing::trace!(command = header.command.get(), bytes = message.payload.len(), fds = message.fds.len());
            let (memory, buffer) = (&mut self.memory, self.buffer.as_deref());
            let files = self.files.as_deref_mut();
            let mut reach = Reach { memory, files, buffer, drive: cx.drives.machine(drive), controller };
            self.device.message(message, &mut reach, &mut self.actions);
            if let Some(live) = &mut self.live {
                live.has_applied(only_rings);
            }
            if let Err(why) = self.act(drive, controller, &mut heard, cx) {
                heard.over = Some(Some(why));
                return heard;
            }
            if heard.reset || heard.moved {
                heard.more = true;
                return heard;
            }
        }
        heard.more = true;
        heard
    }

    /// The next message, if there is a whole one. The error ends the connection.
    fn receive(&mut self) -> Result<Option<Message<OwnedFd>>, Option<String>> {
        loop {
            let mut got = Vec::new();
            let count = match fds::receive(&self.socket, self.inbox.space(), &mut got) {
                Ok(0) => return Err(None),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(None),
                Err(e) => return Err(Some(e.to_string())),
            };
            if let Some(message) = self.inbox.advance(count, got).map_err(|e| Some(e.to_string()))? {
                return Ok(Some(message));
            }
        }
    }

    /// Carries out what the device wants done. The error ends the connection.
    fn act(&mut self, drive: u32, controller: ControllerHandle, heard: &mut Heard, cx: &mut Cx) -> Result<(), String> {
        let mut advance = false;
        for action in std::mem::take(&mut self.actions) {
            if matches!(action, Action::Register { offset, value, .. } if self.note_bell(offset, value)) {
                continue;
            }
            match action {
                Action::Answered(answered) => {
                    if let Some(completion) = self.gate.answered(answered) {
                        // Where it cannot go, its host has taken the queue away.
                        let _ = self.release(&completion);
                    }
                    advance = true;
                }
                Action::Reply { bytes, with } => self.answers.push_back(Unsent { bytes, sent: 0, with }),
                Action::Register { offset, value, .. } if self.is_gated_tail(offset) => {
                    if let Some(Doorbell::SqTail(qid)) = register::doorbell_at(offset) {
                        self.gate.ring(qid, value as u32);
                        advance = true;
                    }
                }
                Action::Register { offset, value, size } => {
                    self.wrote = true;
                    heard.moved |= self.buffer.is_some() && (register::CMBMSC..register::CMBSTS).contains(&offset);
                    let event = Event::Register { controller, offset, value, size };
                    cx.arrivals.push(Arrival { drive, event });
                }
                // What a descriptor really is, is in the client's hands, and so are its flags: only what can be signalled
                // without waiting is taken.
                Action::Vector { vector, fd } => {
                    let signal = &mut self.vectors[usize::from(vector)];
                    signal.set(fd.as_ref()).map_err(|e| not_eventfd(&format!("of vector {vector}"), &e))?;
                    if let Some(files) = &mut self.files {
                        files.set_vector(vector, fd);
                    }
                }
                Action::Request { fd } => {
                    self.request.set(fd.as_ref()).map_err(|e| not_eventfd("for requests", &e))?;
                    if let Some(files) = &mut self.files {
                        files.set_request(fd);
                    }
                }
                Action::Signal(vector) => self.vectors[usize::from(vector)].signal(),
                Action::Reset => heard.reset = true,
                Action::Close(e) => return Err(e.to_string()),
            }
        }
        self.has_rung();
        if advance {
            self.follow_queues(drive, controller, cx);
            self.advance((drive, controller), cx);
        }
        Ok(())
    }

    /// Where the client sees the memory buffer, now that the drives have run.
    pub(super) fn follow_buffer(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        if let Some(buffer) = &mut self.buffer {
            buffer.at = cx.drives.machine(drive).memory_buffer(controller);
        }
    }

    /// The function was reset: what stands at the doorbells of its queues is from before, and its memory buffer is nowhere.
    pub(super) fn is_reset(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            buffer.at = None;
        }
        self.gate.forget_all(&mut self.device);
        self.forget_posts();
        if let Some(bells) = &self.bells {
            (0..bells.queues()).for_each(|qid| bells.clear(qid));
        }
        self.seen.clear();
        self.there.clear();
        self.due.clear();
        self.is_due.fill(false);
    }

    /// Looks at mapped doorbells that may have been rung; true if some were.
    #[inline]
    pub(super) fn look(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) -> bool {
        if self.is_deaf() {
            return false;
        }
        let shadow = self.look_at_shadow_if_any(drive, controller, cx);
        if self.bells.is_none() {
            return shadow;
        }
        self.follow_queues(drive, controller, cx);
        let len = self.there.len() as u16;
        let mut rung = shadow | self.look_from(0, len.min(EVERY_TURN), (drive, controller), cx);
        if len > EVERY_TURN {
            let from = if self.next < EVERY_TURN || self.next >= len { EVERY_TURN } else { self.next };
            self.next = from + EVERY_TURN;
            rung |= self.look_from(from, self.next.min(len), (drive, controller), cx);
        }
        rung
    }

    /// The same of all doorbells.
    pub(super) fn look_at_all(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) -> bool {
        if self.is_deaf() {
            return false;
        }
        self.follow_queues(drive, controller, cx);
        let shadow = self.look_at_shadow_if_any(drive, controller, cx);
        shadow | self.look_from(0, self.there.len() as u16, (drive, controller), cx)
    }

    #[inline]
    fn look_from(&mut self, from: u16, to: u16, (drive, controller): (u32, ControllerHandle), cx: &mut Cx) -> bool {
        let gated = self.is_gated();
        let Some(bells) = &self.bells else { return false };
        let mut rung = false;
        for qid in from..to {
            let (tail, head) = bells.pair(qid);
            let seen = &mut self.seen[usize::from(qid)];
            if (tail, head) == *seen {
                continue;
            }
            rung = true;
            // A completion queue's room before the commands that want it.
            if head != seen.1 {
                cx.arrivals.push(Arrival { drive, event: Event::CqHead { controller, qid, head } });
            }
            if tail != seen.0 && gated && (qid == 0 || !self.shadowed) {
                self.gate.ring(qid, tail);
            } else if tail != seen.0 {
                cx.arrivals.push(Arrival { drive, event: Event::SqTail { controller, qid, tail } });
            }
            *seen = (tail, head);
        }
        if gated && rung {
            self.advance((drive, controller), cx);
        }
        rung
    }

    /// Clears the doorbells of queues that have gone since the last look.
    #[inline]
    fn follow_queues(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        let machine = cx.drives.machine(drive);
        let (epoch, len) = machine.ring_queues(controller);
        if epoch == self.epoch && usize::from(len) == self.there.len() {
            return;
        }
        self.epoch = epoch;
        self.compare(len, controller, cx.drives.machine(drive));
    }

    #[cold]
    fn compare(&mut self, len: u16, controller: ControllerHandle, machine: &Subsystem) {
        let bells = self.bells.as_ref();
        let len = bells.map_or(len, |bells| len.min(bells.queues()));
        let all = usize::from(len).max(self.there.len());
        self.there.resize(all, (false, false));
        self.seen.resize(all, (0, 0));
        for qid in 0..all as u16 {
            let (is, was) = (machine.ring_queue(controller, qid), self.there[usize::from(qid)]);
            if was.0 && !is.0 {
                bells.into_iter().for_each(|bells| bells.clear_tail(qid));
                self.gate.forget_queue(qid, &mut self.device);
                self.seen[usize::from(qid)].0 = 0;
            }
            if was.1 && !is.1 {
                bells.into_iter().for_each(|bells| bells.clear_head(qid));
                self.seen[usize::from(qid)].1 = 0;
            }
            self.there[usize::from(qid)] = is;
        }
        self.there.truncate(len.into());
        self.seen.truncate(len.into());
    }

    /// Whether its controller has queues whose doorbells are mapped.
    pub(super) fn is_rung(&self) -> bool {
        self.bells.is_some() && !self.there.is_empty()
    }

    /// True if it was not hot before.
    pub(super) fn heat(&mut self, until: Nanos) -> bool {
        self.hot_until = until;
        (self.bells.is_some() || self.shadowed) && !std::mem::replace(&mut self.hot, true)
    }

    pub(super) fn cool(&mut self) {
        self.hot = false;
    }

    pub(super) fn is_cold(&self, way: Way, now: Nanos) -> bool {
        // Nobody rings again for what its shadow doorbells have said already.
        let waits = self.shadowed && !self.gate.is_idle() || self.is_deaf();
        now >= self.hot_until && !(way == Way::Mmap && self.is_rung()) && !waits
    }

    /// A vector is to be signalled; true if nothing of this client was to be flushed before.
    #[inline]
    pub(super) fn due(&mut self, vector: u16) -> bool {
        match self.is_due.get_mut(usize::from(vector)) {
            Some(due) if !*due => *due = true,
            _ => return false,
        }
        self.due.push(vector);
        self.due.len() == 1
    }

    /// Signals vectors and sends answers; false if the connection is over.
    pub(super) fn flush(&mut self, output: u64, cx: &mut Cx) -> bool {
        self.ask();
        if self.gate.flooded {
            tracing::warn!(owes = self.device.requests().len(), "too many messages without an answer");
            return false;
        }
        for vector in self.due.drain(..) {
            self.is_due[usize::from(vector)] = false;
            if self.device.fire(vector) {
                self.vectors[usize::from(vector)].signal();
            }
        }
        if self.live.is_some() {
            return self.send_words(output, cx);
        }
        while let Some(answer) = self.answers.front_mut() {
            let with: Option<BorrowedFd> = match answer.with.filter(|_| answer.sent == 0) {
                Some(Shared::Doorbells) => self.bells.as_ref().map(Doorbells::fd),
                Some(Shared::Buffer) => self.buffer.as_ref().map(|b| b.file.as_fd()),
                None => None,
            };
            match fds::send_some(&self.socket, &answer.bytes[answer.sent..], with.as_slice()) {
                Ok(sent) => {
                    answer.sent += sent;
                    self.stuck = None;
                    if answer.sent == answer.bytes.len() {
                        self.answers.pop_front();
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

    /// Bytes of answers that have not gone.
    fn waiting(&self) -> usize {
        let words = self.live.as_ref().map_or(0, |live| live.waiting());
        self.answers.iter().map(|answer| answer.bytes.len() - answer.sent).sum::<usize>() + words
    }

    /// Whether it was not read from because of them, and is to be by now.
    pub(super) fn is_to_be_read(&mut self) -> bool {
        self.full && self.waiting() <= ANSWERS
    }

    /// The output has room again.
    pub(super) fn output_ready(&mut self) {
        self.stuck = None;
    }

    fn watch_output(&mut self, reactor: &mut Reactor, token: u64) {
        match self.output {
            Some(watch) => reactor.rearm(watch),
            None => self.output = Some(reactor.watch(&self.socket, Interest::WRITE, Mode::Once, token)),
        }
    }

    /// The client has not taken its answers for too long.
    pub(super) fn is_late(&self, now: Nanos) -> bool {
        now >= self.deadline()
    }

    /// When it is late, if it takes none.
    pub(super) fn deadline(&self) -> Nanos {
        let since = self.stuck.unwrap_or(Nanos::NEVER).min(self.device.owed().unwrap_or(Nanos::NEVER));
        since.saturating_add(UNREAD_FOR)
    }

    /// Whether somebody has to look now and then what class its process wishes for.
    pub(super) fn has_wishes(&self) -> bool {
        self.pid.is_some()
    }

    /// Looks up the class that the client's process wishes for; its queues follow, and what waits in them.
    pub(super) fn follow_peer(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        let Some(pid) = self.pid else { return };
        let wish = sched::io_class(pid).ok().flatten();
        if std::mem::replace(&mut self.wish, wish) != wish {
            cx.drives.get(drive).set_controller_wish(controller, wish);
        }
    }
}

fn not_eventfd(which: &str, e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::InvalidInput => format!("the descriptor {which} is not an eventfd"),
        _ => format!("no way to signal the client {which}: {e}"),
    }
}

#[cfg(test)]
mod tests;
