//! One front end: its socket, its memory, its device and the descriptors of its queues.

use super::{Arrival, BATCH, ExportConfig, Watched, encode};
use crate::door::context::Cx;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_controller::{Begun, BlockRequest, ControllerHandle, Event, Op, Owner, SqHandle, Tag};
use weir_journal::RecoveredRing;
use weir_session::vhost_user::{self as session, Action, Disk, DriveCommand, Inbox, VhostUserDevice};
use weir_spec::nvme::Status;
use weir_spec::virtio_blk::RequestStatus;
use weir_sys::memory::{GuestMemory, InflightRegions};
use weir_sys::reactor::{Interest, Mode, Ready, WatchId};
use weir_sys::sched;
use weir_sys::transport::fds;
use weir_sys::transport::signal::Signal;
use weir_units::{Class, Nanos};

/// Messages handled in one turn: a front end that floods its socket does not keep the others waiting.
const MESSAGES: usize = 64;

/// A queue's descriptors and its place at the drive.
#[derive(Default)]
struct Vring {
    kick: Option<(OwnedFd, WatchId)>,
    call: Signal,
    err: Option<OwnedFd>,
    /// Once started.
    handle: Option<SqHandle>,
    hot: bool,
    hot_until: Nanos,
}

pub(super) struct Conn {
    socket: UnixStream,
    watch: WatchId,
    inbox: Inbox<OwnedFd>,
    device: VhostUserDevice<GuestMemory>,
    memory: GuestMemory,
    channel: Option<OwnedFd>,
    /// For what is signalled once, and to try descriptors.
    bell: Signal,
    vrings: Vec<Vring>,
    controller: ControllerHandle,
    actions: Vec<Action<OwnedFd>>,
    /// Queues with completions to publish, one bit each.
    dirty: u64,
    /// Queues whose drivers may wait for a signal, one bit each.
    unsignalled: u64,
    /// Whose I/O priority counts.
    pid: Option<i32>,
    wish: Option<Class>,
    /// As the keeper knows it, where that stands between.
    number: Option<u64>,
    /// What the process before had begun, until its queues have started.
    begun: Vec<Begun>,
}

/// What [`Conn::act`] leaves to the door.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) poll: Vec<u16>,
    pub(super) recovered: Vec<RecoveredRing>,
    pub(super) doomed: bool,
}

impl Conn {
    pub(super) fn new(
        socket: UnixStream,
        token: u64,
        disk: Disk,
        controller: ControllerHandle,
        pid: Option<i32>,
        cx: &mut Cx,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let device = VhostUserDevice::new(disk);
        Ok(Self {
            watch: cx.reactor.watch(&socket, Interest::READ, Mode::Edge, token),
            socket,
            inbox: Inbox::default(),
            memory: GuestMemory::new(),
            channel: None,
            bell: Signal::default(),
            vrings: (0..device.queues()).map(|_| Vring::default()).collect(),
            device,
            controller,
            actions: Vec::new(),
            dirty: 0,
            unsignalled: 0,
            pid,
            wish: None,
            number: None,
            begun: Vec::new(),
        })
    }

    /// The same, known to the keeper by a number, with what the process before had begun of it.
    pub(super) fn numbered(self, number: Option<u64>, begun: Vec<Begun>) -> Self {
        Self { number, begun, ..self }
    }

    pub(super) fn controller(&self) -> ControllerHandle {
        self.controller
    }

    /// Whether who serves it next can go on with what its queues have in flight.
    pub(super) fn can_pass_on(&self) -> bool {
        self.device.can_pass_on()
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// The in-flight regions that were made on its socket.
    pub(super) fn inflight(&mut self) -> &mut InflightRegions {
        self.memory.inflight()
    }

    /// Leaves the reactor and the drive.
    pub(super) fn close(&mut self, drive: u32, cx: &mut Cx) {
        cx.reactor.unwatch(self.watch);
        for queue in 0..self.vrings.len() {
            self.stopped(queue as u16, drive, cx);
        }
        cx.drives.get(drive).detach(cx.now, self.controller);
    }

    /// Reads messages until there are none or they must wait; true if more may be there. An error ends the connection,
    /// with a reason unless the front end just closed it.
    pub(super) fn read_messages(&mut self) -> Result<bool, Option<String>> {
        for _ in 0..MESSAGES {
            if self.device.is_draining() {
                return Ok(false);
            }
            let mut got = Vec::new();
            let count = match fds::receive(&self.socket, self.inbox.space(), &mut got) {
                Ok(0) => return Err(None),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(None),
                Err(e) => return Err(Some(e.to_string())),
            };
            if let Some(message) = self.inbox.advance(count, got).map_err(|e| Some(e.to_string()))? {
                tracing::trace!(request = ?message.request, bytes = message.payload.len(), fds = message.fds.len());
                self.device.message(message, &mut self.memory, &mut self.actions);
            }
        }
        Ok(true)
    }

    /// Carries out what the device wants done.
    pub(super) fn act(
        &mut self,
        config: &ExportConfig,
        owner: Owner,
        at: u16,
        generation: u16,
        cx: &mut Cx,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Reply(bytes) => outcome.doomed |= !fds::send_now(&self.socket, &bytes),
                Action::ReplyWith(bytes, fd) => {
                    let sent = fds::send_some(&self.socket, &bytes, &[fd.as_fd()]);
                    outcome.doomed |= !sent.is_ok_and(|n| n == bytes.len());
                }
                Action::Recovered(queue, found) => {
                    tracing::info!(
                        socket = %config.path.display(),
                        queue,
                        step = found.step.name(),
                        again = found.heads.len(),
                        rolled_back = found.rolled_back,
                        closed = found.closed,
                        "queue recovered"
                    );
                    self.go_on(queue, &found, config.drive, cx);
                    outcome.recovered.push(found);
                }
                Action::Unusable(queue, why) => {
                    tracing::warn!(socket = %config.path.display(), ?queue, "refused: {why}");
                }
                Action::Tell(bytes) => {
                    if let Some(channel) = &self.channel {
                        // It may be full: then the front end has not read what it was told before, which says the same.
                        fds::send_now(channel, &bytes);
                    }
                }
                Action::Kick { .. } | Action::Call { .. } | Action::Err { .. } | Action::Channel(_) => {
                    if let Err(why) = self.take_descriptor(action, |q| encode(at, generation, Watched::Kick(q)), cx) {
                        tracing::warn!(socket = %config.path.display(), "front end disconnected: {why}");
                        outcome.doomed = true;
                    }
                }
                Action::Started(queue) => match self.started(queue, config.drive, owner, cx) {
                    Ok(()) => outcome.poll.push(queue),
                    Err(why) => {
                        tracing::warn!(socket = %config.path.display(), queue, "queue refused by the drive: {why}");
                        outcome.doomed = true;
                    }
                },
                Action::Poll(queue) => outcome.poll.push(queue),
                Action::Signal(queue) => self.signal(queue),
                Action::Stopped(queue) => self.stopped(queue, config.drive, cx),
                Action::Broken(queue, violation) => self.broken(queue, violation, config),
                Action::Close(why) => {
                    tracing::warn!(socket = %config.path.display(), "front end disconnected: {why}");
                    outcome.doomed = true;
                }
            }
        }
        outcome
    }

    /// Takes what came with a message. What a descriptor really is, is in the front end's hands, and so are its flags: only
    /// what can be watched and signalled without waiting is taken.
    fn take_descriptor(
        &mut self,
        action: Action<OwnedFd>,
        token: impl Fn(u16) -> u64,
        cx: &mut Cx,
    ) -> Result<(), String> {
        let not_eventfd = |what: &str, queue: u16, e: io::Error| match e.kind() {
            io::ErrorKind::InvalidInput => format!("the {what} descriptor of queue {queue} is not an eventfd"),
            _ => format!("no way to signal the front end of queue {queue}: {e}"),
        };
        match action {
            Action::Kick { queue, fd } => {
                if let Some(fd) = &fd {
                    self.bell.check(fd).map_err(|e| not_eventfd("kick", queue, e))?;
                }
                self.set_kick(queue, fd, token(queue), cx);
            }
            Action::Call { queue, fd } => {
                self.vrings[usize::from(queue)].call.set(fd).map_err(|e| not_eventfd("call", queue, e))?;
                // The front end may have missed a completion while it had no descriptor: it is told once in any case.
                if self.device.queue(queue).is_some() {
                    self.signal(queue);
                }
            }
            Action::Err { queue, fd } => {
                if let Some(fd) = &fd {
                    self.bell.check(fd).map_err(|e| not_eventfd("error", queue, e))?;
                }
                self.vrings[usize::from(queue)].err = fd;
            }
            Action::Channel(fd) if fds::is_unix_socket(&fd) => self.channel = Some(fd),
            Action::Channel(_) => return Err("the back-end channel is not a Unix socket".into()),
            _ => {}
        }
        Ok(())
    }

    fn set_kick(&mut self, queue: u16, fd: Option<OwnedFd>, token: u64, cx: &mut Cx) {
        let vring = &mut self.vrings[usize::from(queue)];
        if let Some((_, watch)) = vring.kick.take() {
            cx.reactor.unwatch(watch);
        }
        vring.kick = fd.map(|fd| {
            let watch = cx.reactor.watch(&fd, Interest::READ, Mode::Edge, token);
            (fd, watch)
        });
    }

    fn started(
        &mut self,
        queue: u16,
        drive: u32,
        owner: Owner,
        cx: &mut Cx,
    ) -> Result<(), weir_controller::ManagementError> {
        self.follow_peer(drive, cx);
        let depth = self.device.queue(queue).map_or(1, session::Virtqueue::limit);
        let handle = cx.drives.get(drive).add_message_queue(self.controller, depth, self.wish, owner)?;
        self.vrings[usize::from(queue)].handle = Some(handle);
        Ok(())
    }

    /// What the process before had begun of a queue is due when it was; its requests are submitted again.
    fn go_on(&mut self, queue: u16, found: &RecoveredRing, drive: u32, cx: &mut Cx) {
        let is_its = |begun: &Begun| session::RequestTag(begun.tag.0).queue() == queue;
        let again = |begun: &Begun| found.heads.contains(&session::RequestTag(begun.tag.0).head());
        let (its, others) = std::mem::take(&mut self.begun).into_iter().partition(is_its);
        self.begun = others;
        if let Some(handle) = self.vrings[usize::from(queue)].handle {
            let its: Vec<Begun> = its;
            cx.drives.get(drive).resume_begun_of(handle, its.into_iter().filter(again));
        }
    }

    fn stopped(&mut self, queue: u16, drive: u32, cx: &mut Cx) {
        let vring = &mut self.vrings[usize::from(queue)];
        if let Some(handle) = vring.handle.take() {
            cx.drives.get(drive).disconnect(cx.now, handle);
        }
        if let Some((_, watch)) = vring.kick.take() {
            cx.reactor.unwatch(watch);
        }
        vring.hot_until = Nanos(0);
    }

    fn broken(&mut self, queue: u16, violation: session::Violation, config: &ExportConfig) {
        tracing::warn!(socket = %config.path.display(), queue, "queue stopped: {violation}");
        if let Some(err) = &self.vrings[usize::from(queue)].err {
            if self.bell.set(Some(err)).is_ok() {
                self.bell.signal();
                let _ = self.bell.set(None::<OwnedFd>);
            }
        }
    }

    /// Whether somebody has to look now and then what class its process wishes for.
    pub(super) fn has_wishes(&self) -> bool {
        self.pid.is_some()
    }

    /// Looks up the class that the front end's process wishes for; its queues follow, and what waits in them.
    pub(super) fn follow_peer(&mut self, drive: u32, cx: &mut Cx) {
        let Some(pid) = self.pid else { return };
        let wish = sched::io_class(pid).ok().flatten();
        if std::mem::replace(&mut self.wish, wish) != wish {
            for handle in self.vrings.iter().filter_map(|v| v.handle) {
                cx.drives.get(drive).set_queue_wish(handle, wish);
            }
        }
    }

    pub(super) fn is_kick(&self, queue: u16, ready: &Ready) -> bool {
        let kick = self.vrings.get(usize::from(queue)).and_then(|v| v.kick.as_ref());
        matches!((kick, ready), (Some((_, ours)), Ready::Fd { watch, .. }) if ours == watch)
    }

    /// Sets the counter back, so that who looks at it later does not find old kicks.
    pub(super) fn drain_kick(&self, queue: u16) {
        if let Some((fd, _)) = &self.vrings[usize::from(queue)].kick {
            fds::drain(fd);
        }
    }

    /// True if the queue was not hot before.
    pub(super) fn heat(&mut self, queue: u16, until: Nanos) -> bool {
        let vring = &mut self.vrings[usize::from(queue)];
        if vring.handle.is_none() {
            return false;
        }
        vring.hot_until = until;
        if std::mem::replace(&mut vring.hot, true) {
            return false;
        }
        self.device.quiet(&self.memory, queue);
        true
    }

    pub(super) fn keep_hot(&mut self, queue: u16, until: Nanos) {
        self.vrings[usize::from(queue)].hot_until = until;
    }

    /// Nothing came for a while, and its front end has a way to wake us.
    pub(super) fn is_cold(&self, queue: u16, now: Nanos) -> bool {
        let vring = &self.vrings[usize::from(queue)];
        now >= vring.hot_until
    }

    /// Asks the driver to kick; true if the queue stays hot, because something came meanwhile.
    pub(super) fn listen(&mut self, queue: u16) -> bool {
        let more = self.device.listen(&self.memory, queue);
        let polled = self.vrings[usize::from(queue)].handle.is_some() && self.vrings[usize::from(queue)].kick.is_none();
        if more || polled {
            self.device.quiet(&self.memory, queue);
            return true;
        }
        self.vrings[usize::from(queue)].hot = false;
        false
    }

    /// Takes requests off a ring; true if there were any.
    #[inline]
    pub(super) fn take(&mut self, queue: u16, config: &ExportConfig, cx: &mut Cx) -> bool {
        let Some(handle) = self.vrings[usize::from(queue)].handle else { return false };
        let (drive, arrivals) = (config.drive, &mut *cx.arrivals);
        let mut push = |taken: DriveCommand| arrivals.push(Arrival { drive, event: submit(handle, &taken) });
        match self.device.take(&self.memory, queue, BATCH, &mut push) {
            Ok(any) => any,
            Err(violation) => {
                self.broken(queue, violation, config);
                true
            }
        }
    }

    /// Whether a ring has a request, by one look.
    #[inline]
    pub(super) fn has_request(&self, queue: u16) -> bool {
        self.device.has_request(&self.memory, queue)
    }

    /// True if no queue of this front end was marked before.
    #[inline]
    pub(super) fn mark_dirty(&mut self, queue: u16) -> bool {
        let first = self.dirty == 0;
        self.dirty |= 1 << queue;
        first
    }

    /// See [`Conn::mark_dirty`].
    #[inline]
    pub(super) fn complete(&mut self, tag: Tag, status: Status) -> bool {
        let tag = session::RequestTag(tag.0);
        self.device.complete(&self.memory, tag, to_virtio(status));
        self.mark_dirty(tag.queue())
    }

    /// Publishes every queue that was marked; which they were.
    #[inline]
    pub(super) fn publish(&mut self) -> impl Iterator<Item = u16> + use<> {
        let all = std::mem::take(&mut self.dirty);
        self.unsignalled |= all;
        bits(all).for_each(|queue| self.device.publish(&self.memory, queue));
        bits(all)
    }

    /// Signals the drivers that wait for what was published.
    #[inline]
    pub(super) fn notify(&mut self) {
        for queue in bits(std::mem::take(&mut self.unsignalled)) {
            if self.device.wants_signal(&self.memory, queue) {
                self.signal(queue);
            }
        }
    }

    #[inline]
    fn signal(&mut self, queue: u16) {
        self.vrings[usize::from(queue)].call.signal();
    }

    /// Sends the answer that waited for requests in flight; true if there was one.
    pub(super) fn settle(&mut self) -> bool {
        if !self.device.is_draining() {
            return false;
        }
        self.device.settle(&self.memory, &mut self.actions);
        !self.device.is_draining()
    }

    pub(super) fn resize(&mut self, sectors: u64) {
        self.device.resize(sectors, &mut self.actions);
    }

    pub(super) fn leave_medium(&mut self) {
        self.device.leave_medium();
    }

    pub(super) fn renew(&mut self, serial: &str, medium: u64) {
        self.device.renew(serial, medium, &mut self.actions);
    }

    #[inline]
    pub(super) fn read_data(&self, tag: Tag, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let tag = session::RequestTag(tag.0);
        let queue = self.device.queue(tag.queue()).ok_or(Status::DATA_TRANSFER_ERROR)?;
        queue.read_data(&self.memory, tag, offset, into).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }

    #[inline]
    pub(super) fn write_data(&self, tag: Tag, offset: u32, from: &[u8]) -> Result<(), Status> {
        let tag = session::RequestTag(tag.0);
        let queue = self.device.queue(tag.queue()).ok_or(Status::DATA_TRANSFER_ERROR)?;
        queue.write_data(&self.memory, tag, offset, from).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }
}

/// The numbers of the bits that are set.
#[inline]
fn bits(mut all: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let lowest = (all != 0).then(|| all.trailing_zeros() as u16);
        all &= all.wrapping_sub(1);
        lowest
    })
}

#[inline]
fn submit(queue: SqHandle, taken: &DriveCommand) -> Event {
    let op = match taken.op {
        session::Op::Read => Op::Read,
        session::Op::Write => Op::Write,
        session::Op::Flush => Op::Flush,
        session::Op::Discard => Op::Deallocate,
        session::Op::WriteZeroes { unmap } => Op::WriteZeroes { deallocate: unmap },
    };
    let request = BlockRequest { op, nsid: 1, offset: taken.offset, len: taken.len, fua: false };
    Event::Submit { queue, request, tag: Tag(taken.tag.0) }
}

fn to_virtio(status: Status) -> RequestStatus {
    if status.is_success() {
        RequestStatus::OK
    } else if status.same_code(Status::INVALID_OPCODE) {
        RequestStatus::UNSUPP
    } else {
        RequestStatus::IOERR
    }
}
