//! A vhost-user socket at the keeper: its listener, and one front end at a time with what it has said.

use super::renew::{Collected, Taken};
use super::{FRONTS, PLAIN_FRONTS};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use weir_session::keeper::saved::{SavedConn, SavedFront, SavedLine, SavedOut};
use weir_session::keeper::{Envelope, Passed, Replay};
use weir_session::vhost_user::{Inbox, Message};
use weir_sys::keep::{Channel, Introduction, ToWorker};
use weir_sys::sched;
use weir_sys::transport::fds;

/// Messages that may wait for the worker before no more are read from the front end.
const MOST: usize = 64;

/// What of a socket is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Listener,
    /// The front end's socket.
    Socket,
    /// The end of the stream to the worker.
    Worker,
}

/// Messages on their way into a socket that may be full.
#[derive(Default)]
struct Outgoing {
    queue: VecDeque<Envelope<Rc<OwnedFd>>>,
    /// Bytes of the first one that have gone.
    sent: usize,
}

impl Outgoing {
    fn push(&mut self, envelope: Envelope<Rc<OwnedFd>>) {
        self.queue.push_back(envelope);
    }

    /// Sends what there is room for.
    fn flush(&mut self, socket: &UnixStream) -> io::Result<()> {
        while let Some(first) = self.queue.front() {
            let fds: Vec<BorrowedFd> =
                if self.sent == 0 { first.fds.iter().map(|fd| fd.as_fd()).collect() } else { Vec::new() };
            match fds::send_some(socket, &first.bytes[self.sent..], &fds) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.sent == first.bytes.len() {
                self.queue.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }
}

/// The stream to the worker that serves.
struct Line {
    stream: UnixStream,
    inbox: Inbox<OwnedFd>,
    out: Outgoing,
    /// The worker's end is closed: it has died, or will say so.
    over: bool,
}

struct Conn {
    /// As the worker that serves knows it.
    number: u64,
    socket: UnixStream,
    pid: Option<i32>,
    inbox: Inbox<OwnedFd>,
    out: Outgoing,
    replay: Replay<Rc<OwnedFd>>,
    line: Option<Line>,
}

/// See the [module](self).
pub(super) struct Front {
    path: String,
    /// Whether workers keep in-flight regions for it.
    inflight: bool,
    listener: UnixListener,
    conn: Option<Conn>,
}

impl Outgoing {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> SavedOut {
        SavedOut { queue: self.queue.iter().map(|envelope| fds.envelope(envelope)).collect(), sent: self.sent as u32 }
    }

    fn restore(saved: SavedOut, fds: &mut Taken) -> io::Result<Self> {
        let queue = saved.queue.into_iter().map(|envelope| fds.envelope(envelope)).collect::<io::Result<_>>()?;
        Ok(Self { queue, sent: saved.sent as usize })
    }
}

impl Line {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<SavedLine> {
        Ok(SavedLine {
            stream: fds.number(&self.stream),
            inbox: self.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
            out: self.out.save(fds),
            over: self.over,
        })
    }

    fn restore(saved: SavedLine, fds: &mut Taken) -> io::Result<Self> {
        Ok(Self {
            stream: fds.take(saved.stream)?.into(),
            inbox: saved.inbox.try_map(|number| fds.take(*number))?,
            out: Outgoing::restore(saved.out, fds)?,
            over: saved.over,
        })
    }
}

impl Conn {
    fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<SavedConn> {
        Ok(SavedConn {
            number: self.number,
            socket: fds.number(&self.socket),
            pid: self.pid.and_then(|pid| u32::try_from(pid).ok()),
            inbox: self.inbox.try_map(|fd| io::Result::Ok(fds.number(fd)))?,
            out: self.out.save(fds),
            replay: self.replay.try_map(|fd| io::Result::Ok(fds.number(&**fd)))?,
            line: self.line.as_ref().map(|line| line.save(fds)).transpose()?,
        })
    }

    fn restore(saved: SavedConn, fds: &mut Taken) -> io::Result<Self> {
        Ok(Self {
            number: saved.number,
            socket: fds.take(saved.socket)?.into(),
            pid: saved.pid.and_then(|pid| i32::try_from(pid).ok()),
            inbox: saved.inbox.try_map(|number| fds.take(*number))?,
            out: Outgoing::restore(saved.out, fds)?,
            replay: saved.replay.try_map(|number| fds.share(*number))?,
            line: saved.line.map(|line| Line::restore(line, fds)).transpose()?,
        })
    }
}

impl Front {
    pub(super) fn new(path: String, inflight: bool, listener: OwnedFd) -> Self {
        let listener = UnixListener::from(listener);
        let _ = listener.set_nonblocking(true);
        Self { path, inflight, listener, conn: None }
    }

    /// All that is known of it, for the program that the keeper runs next.
    pub(super) fn save<'a>(&'a self, fds: &Collected<'a>) -> io::Result<SavedFront> {
        Ok(SavedFront {
            path: self.path.clone(),
            inflight: self.inflight,
            listener: fds.number(&self.listener),
            conn: self.conn.as_ref().map(|conn| conn.save(fds)).transpose()?,
        })
    }

    /// What [`save`](Self::save) gave.
    pub(super) fn restore(saved: SavedFront, fds: &mut Taken) -> io::Result<Self> {
        Ok(Self {
            path: saved.path,
            inflight: saved.inflight,
            listener: fds.take(saved.listener)?.into(),
            conn: saved.conn.map(|conn| Conn::restore(conn, fds)).transpose()?,
        })
    }

    /// What workers call it.
    pub(super) fn name(&self) -> String {
        format!("{}{}", if self.inflight { FRONTS } else { PLAIN_FRONTS }, self.path)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the worker that serves knows its connection by that number.
    pub(super) fn is(&self, number: u64) -> bool {
        self.conn.as_ref().is_some_and(|c| c.number == number)
    }

    /// The worker will know its connection by that number.
    pub(super) fn number(&mut self, number: u64) {
        if let Some(conn) = &mut self.conn {
            conn.number = number;
        }
    }

    /// What is to be waited for; front ends are let in while somebody serves them.
    pub(super) fn watch<'a>(&'a self, serving: bool, mut each: impl FnMut(Place, BorrowedFd<'a>, PollFlags)) {
        let Some(conn) = &self.conn else {
            if serving {
                each(Place::Listener, self.listener.as_fd(), PollFlags::IN);
            }
            return;
        };
        let mut flags = if conn.has_room() { PollFlags::IN } else { PollFlags::empty() };
        if !conn.out.queue.is_empty() {
            flags |= PollFlags::OUT;
        }
        // Without a flag the kernel reports a hang-up all the same, again and again.
        if !flags.is_empty() {
            each(Place::Socket, conn.socket.as_fd(), flags);
        }
        if let Some(line) = conn.line.as_ref().filter(|l| !l.over) {
            let out = if line.out.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            each(Place::Worker, line.stream.as_fd(), PollFlags::IN | out);
        }
    }

    /// Something is ready; true if there is a front end that the worker must hear of.
    pub(super) fn ready(&mut self, place: Place) -> bool {
        if place == Place::Listener {
            return self.accept();
        }
        let Some(conn) = &mut self.conn else { return false };
        let result = match place {
            Place::Socket => conn.hear_front(),
            _ => conn.hear_worker(),
        };
        match result.and_then(|()| conn.flush()) {
            Ok(()) => {}
            Err(e) => {
                if let Some(why) = e {
                    tracing::warn!(socket = %self.path, "front end disconnected: {why}");
                }
                self.close();
            }
        }
        false
    }

    fn accept(&mut self) -> bool {
        if self.conn.is_some() {
            return false;
        }
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(e) => {
                if e.kind() != io::ErrorKind::WouldBlock {
                    // Descriptors are short, say: it would be asked for again at once.
                    tracing::error!(socket = %self.path, "cannot accept: {e}");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                return false;
            }
        };
        let pid = sched::peer(&socket).ok().and_then(|p| p.pid);
        if socket.set_nonblocking(true).is_err() {
            return false;
        }
        let replay = Replay::new(self.inflight);
        self.conn = Some(Conn {
            number: 0,
            socket,
            pid,
            inbox: Inbox::default(),
            out: Outgoing::default(),
            replay,
            line: None,
        });
        true
    }

    /// The front end is disconnected; the worker sees its stream end.
    pub(super) fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            // What the worker answered before it wanted that.
            let _ = conn.hear_worker().and_then(|()| conn.flush());
        }
    }

    /// Nobody serves: what has been answered is passed on, the rest waits for the next worker. A front end whose rings cannot be
    /// taken up again is disconnected, and comes back.
    pub(super) fn orphan(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        let heard = conn.hear_worker();
        conn.line = None;
        if heard.and_then(|()| conn.flush()).is_err() || !conn.replay.survives() {
            self.conn = None;
        }
    }

    /// Hands the front end to the worker that serves, with all that it has said.
    pub(super) fn introduce(&mut self, channel: &Channel) -> io::Result<()> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        channel.tell(
            &ToWorker::Connection(Introduction { number: conn.number, pid: conn.pid, path: self.path.clone() }),
            &[theirs.as_fd()],
        )?;
        let mut line = Line { stream: ours, inbox: Inbox::of_answers(), out: Outgoing::default(), over: false };
        conn.replay.again().into_iter().for_each(|envelope| line.out.push(envelope));
        line.out.flush(&line.stream)?;
        conn.line = Some(line);
        Ok(())
    }
}

/// An error ends the connection, with a reason unless the front end has just gone.
type Step = Result<(), Option<String>>;

impl Conn {
    /// Whether more may be read from the front end.
    fn has_room(&self) -> bool {
        self.line.as_ref().is_some_and(|l| !l.over && l.out.queue.len() < MOST) && !self.replay.is_full()
    }

    fn flush(&mut self) -> Step {
        self.out.flush(&self.socket).map_err(|e| Some(e.to_string()))?;
        if let Some(line) = self.line.as_mut().filter(|l| !l.over) {
            // A worker that has died is noticed elsewhere.
            line.over = line.out.flush(&line.stream).is_err();
        }
        Ok(())
    }

    fn pass(&mut self, passed: Vec<Passed<Rc<OwnedFd>>>) {
        for one in passed {
            match (one, &mut self.line) {
                (Passed::Front(envelope), _) => self.out.push(envelope),
                (Passed::Worker(envelope), Some(line)) => line.out.push(envelope),
                // The next worker hears it with the rest.
                (Passed::Worker(_), None) => {}
            }
        }
    }

    /// Reads what the front end has sent, as much as the worker's stream should take.
    fn hear_front(&mut self) -> Step {
        while self.has_room() {
            let Some(message) = read(&self.socket, &mut self.inbox)? else { return Ok(()) };
            let Some(Message { request, needs_reply, payload, fds, .. }) = message else { return Err(None) };
            let fds = fds.into_iter().map(Rc::new).collect();
            let mut out = Vec::new();
            self.replay.front(Message { request, needs_reply, again: false, payload, fds }, &mut out);
            self.pass(out);
            self.flush()?;
        }
        Ok(())
    }

    /// Reads what the worker has answered.
    fn hear_worker(&mut self) -> Step {
        loop {
            let Some(line) = self.line.as_mut().filter(|l| !l.over) else { return Ok(()) };
            let Some(message) = read(&line.stream, &mut line.inbox)? else { return Ok(()) };
            let Some(answer) = message else {
                line.over = true;
                return Ok(());
            };
            let (mut out, fds) = (Vec::new(), answer.fds.into_iter().map(Rc::new).collect());
            let back = self.replay.back(answer.request, &answer.payload, fds, &mut out);
            back.map_err(|e| Some(e.to_string()))?;
            self.pass(out);
        }
    }
}

/// One message: `None` where it is not whole yet, `Some(None)` where the other side has closed.
fn read(socket: &UnixStream, inbox: &mut Inbox<OwnedFd>) -> Result<Option<Option<Message<OwnedFd>>>, Option<String>> {
    loop {
        let mut got = Vec::new();
        let count = match fds::receive(socket, inbox.space(), &mut got) {
            Ok(0) => return Ok(Some(None)),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(Some(None)),
            Err(e) => return Err(Some(e.to_string())),
        };
        if let Some(message) = inbox.advance(count, got).map_err(|e| Some(e.to_string()))? {
            return Ok(Some(Some(message)));
        }
    }
}
