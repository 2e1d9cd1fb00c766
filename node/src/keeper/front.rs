//! A socket of vhost-user or vfio-user at the keeper: its listener, and one client at a time with what it has said.

mod framing;
mod saved;

use crate::held_names::{FRONTS, PLAIN_FRONTS, RELAYS};
use crate::throttle::throttled;
use framing::{Frames, Talk};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use weir_keeper::{Envelope, Passed, Relay, Replay};
use weir_sys::keeper_channel::{Channel, Introduction, ToWorker};
use weir_sys::reactor::now;
use weir_sys::sched;
use weir_sys::transport::fds;

/// Messages that may wait for one side before no more are read from the other.
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
struct Line<T: Talk> {
    stream: UnixStream,
    inbox: T::Inbox,
    out: Outgoing,
    /// The worker's end is closed: it has died, or will say so.
    over: bool,
}

struct Conn<T: Talk> {
    /// As the worker that serves knows it.
    number: u64,
    socket: UnixStream,
    pid: Option<i32>,
    inbox: T::Inbox,
    out: Outgoing,
    talk: T,
    line: Option<Line<T>>,
}

/// Who is there.
enum Client {
    FrontEnd(Box<Conn<Replay<Rc<OwnedFd>>>>),
    Drive(Box<Conn<Relay<Rc<OwnedFd>>>>),
}

/// The same of either.
macro_rules! either {
    ($client:expr, $conn:ident => $does:expr) => {
        match $client {
            Client::FrontEnd($conn) => $does,
            Client::Drive($conn) => $does,
        }
    };
}

/// What comes in at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Front ends of vhost-user, for which workers keep in-flight regions.
    Journalled,
    /// Front ends for which they do not.
    Plain,
    /// Clients of vfio-user.
    Relayed,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Journalled => FRONTS,
            Kind::Plain => PLAIN_FRONTS,
            Kind::Relayed => RELAYS,
        }
    }
}

/// See the [module](self).
pub(super) struct Front {
    path: String,
    kind: Kind,
    listener: UnixListener,
    conn: Option<Client>,
}

/// The path of a socket whose clients the keeper lets in, and what they are.
pub(super) fn of_name(name: &str) -> Option<(&str, Kind)> {
    [Kind::Journalled, Kind::Plain, Kind::Relayed]
        .into_iter()
        .find_map(|kind| name.strip_prefix(kind.prefix()).map(|path| (path, kind)))
}

impl Front {
    pub(super) fn new(path: String, kind: Kind, listener: OwnedFd) -> Self {
        let listener = UnixListener::from(listener);
        let _ = listener.set_nonblocking(true);
        Self { path, kind, listener, conn: None }
    }

    /// What workers call it.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.kind.prefix(), self.path)
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the worker that serves knows its connection by that number.
    pub(super) fn is(&self, number: u64) -> bool {
        self.conn.as_ref().is_some_and(|c| either!(c, c => c.number) == number)
    }

    /// The worker will know its connection by that number.
    pub(super) fn number(&mut self, number: u64) {
        if let Some(conn) = &mut self.conn {
            either!(conn, conn => conn.told(number));
        }
    }

    /// What is to be waited for; front ends are let in while somebody serves them.
    pub(super) fn watch<'a>(&'a self, serving: bool, mut each: impl FnMut(Place, BorrowedFd<'a>, PollFlags)) {
        // A drive has one client at a time; front ends of a disk wait for each other.
        if serving && (self.conn.is_none() || self.kind == Kind::Relayed) {
            each(Place::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        if let Some(conn) = &self.conn {
            either!(conn, conn => conn.watch(each));
        }
    }

    /// Something is ready; true if there is a front end that the worker must hear of.
    pub(super) fn ready(&mut self, place: Place) -> bool {
        if place == Place::Listener {
            return self.accept();
        }
        let Some(conn) = &mut self.conn else { return false };
        match either!(conn, conn => conn.ready(place)) {
            Ok(()) => {}
            Err(e) => {
                if let Some(why) = e {
                    throttled!(
                        now(),
                        "client disconnected",
                        tracing::warn!(socket = %self.path, "client disconnected: {why}")
                    );
                }
                self.close();
            }
        }
        false
    }

    fn accept(&mut self) -> bool {
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
        // After it: a client that comes again has closed before it connected.
        if self.conn.as_ref().is_some_and(|conn| fds::is_hung_up(either!(conn, conn => &conn.socket))) {
            self.end();
        }
        if self.conn.is_some() {
            let pid = sched::peer(&socket).ok().and_then(|p| p.pid);
            throttled!(
                now(),
                "client turned away: the drive has one already",
                tracing::warn!(socket = %self.path, ?pid, "client turned away: the drive has one already")
            );
            return false;
        }
        let pid = sched::peer(&socket).ok().and_then(|p| p.pid);
        if socket.set_nonblocking(true).is_err() {
            return false;
        }
        self.conn = Some(match self.kind {
            Kind::Relayed => Client::Drive(Box::new(Conn::new(socket, pid, Relay::new()))),
            kind => Client::FrontEnd(Box::new(Conn::new(socket, pid, Replay::new(kind == Kind::Journalled)))),
        });
        true
    }

    /// One that has hung up: what it has said before is passed on, as far as the worker takes it.
    fn end(&mut self) {
        if let Some(conn) = &mut self.conn {
            let _ = either!(conn, conn => conn.ready(Place::Socket));
        }
        self.close();
    }

    /// The front end is disconnected; the worker sees its stream end.
    pub(super) fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            // What the worker answered before it wanted that.
            let _ = either!(&mut conn, conn => conn.hear_all());
        }
    }

    /// Nobody serves: what has been answered is passed on, the rest waits for the next worker. A front end whose rings cannot be
    /// taken up again is disconnected, and comes back.
    pub(super) fn orphan(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        if !either!(conn, conn => conn.orphan()) {
            self.conn = None;
        }
    }

    /// Hands the front end to the worker that serves, with all that it has said.
    pub(super) fn introduce(&mut self, channel: &Channel) -> io::Result<()> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        either!(conn, conn => conn.introduce(&self.path, channel))
    }
}

/// An error ends the connection, with a reason unless the front end has just gone.
type Step = Result<(), Option<String>>;

impl<T: Talk> Conn<T> {
    fn new(socket: UnixStream, pid: Option<i32>, talk: T) -> Self {
        Self { number: 0, socket, pid, inbox: T::inbox(), out: Outgoing::default(), talk, line: None }
    }

    fn told(&mut self, number: u64) {
        self.number = number;
        self.talk.told(number);
    }

    fn watch<'a>(&'a self, mut each: impl FnMut(Place, BorrowedFd<'a>, PollFlags)) {
        let mut flags = if self.has_room() { PollFlags::IN } else { PollFlags::empty() };
        if !self.out.queue.is_empty() {
            flags |= PollFlags::OUT;
        }
        // Without a flag the kernel reports a hang-up all the same, again and again.
        if !flags.is_empty() {
            each(Place::Socket, self.socket.as_fd(), flags);
        }
        if let Some(line) = self.line.as_ref().filter(|l| !l.over) {
            let mut flags = if line.out.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            if self.out.queue.len() < MOST {
                flags |= PollFlags::IN;
            }
            if !flags.is_empty() {
                each(Place::Worker, line.stream.as_fd(), flags);
            }
        }
    }

    fn ready(&mut self, place: Place) -> Step {
        match place {
            Place::Socket => self.hear_front()?,
            _ => self.hear_worker(MOST)?,
        }
        self.flush()
    }

    /// Everything that the worker has said is passed on, as far as the client takes it.
    fn hear_all(&mut self) -> Step {
        self.hear_worker(usize::MAX)?;
        self.flush()
    }

    /// Nobody serves it any more; false where nobody could go on.
    fn orphan(&mut self) -> bool {
        let heard = self.hear_all();
        self.line = None;
        heard.is_ok() && self.talk.survives()
    }

    fn introduce(&mut self, path: &str, channel: &Channel) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut line = Line { stream: ours, inbox: T::inbox_of_answers(), out: Outgoing::default(), over: false };
        self.talk.again().into_iter().for_each(|envelope| line.out.push(envelope));
        // What comes first is there when the worker hears of it.
        line.out.flush(&line.stream)?;
        channel.tell(
            &ToWorker::Connection(Introduction { number: self.number, pid: self.pid, path: path.to_owned() }),
            &[theirs.as_fd()],
        )?;
        self.line = Some(line);
        Ok(())
    }

    /// Whether more may be read from the client.
    fn has_room(&self) -> bool {
        self.line.as_ref().is_some_and(|l| !l.over && l.out.queue.len() < MOST) && !self.talk.is_full()
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

    /// Reads what the client has sent, as much as the worker's stream should take. Others have their turn in between: a client may send
    /// without end.
    fn hear_front(&mut self) -> Step {
        for _ in 0..MOST {
            if !self.has_room() {
                break;
            }
            let Some(message) = read(&self.socket, &mut self.inbox)? else { return Ok(()) };
            let Some(message) = message else { return Err(None) };
            let mut out = Vec::new();
            self.talk.front(message, &mut out);
            self.pass(out);
            self.flush()?;
        }
        Ok(())
    }

    /// Reads what the worker has answered, until so many messages wait for the client.
    fn hear_worker(&mut self, most: usize) -> Step {
        while self.out.queue.len() < most {
            let Some(line) = self.line.as_mut().filter(|l| !l.over) else { return Ok(()) };
            let Some(message) = read(&line.stream, &mut line.inbox)? else { return Ok(()) };
            let Some(answer) = message else {
                line.over = true;
                return Ok(());
            };
            let mut out = Vec::new();
            self.talk.back(answer, &mut out).map_err(Some)?;
            self.pass(out);
        }
        Ok(())
    }
}

/// A message that may have come, or the end of the stream.
type Heard<M> = Option<Option<M>>;

/// One message: `None` where it is not whole yet, `Some(None)` where the other side has closed.
fn read<I: Frames>(socket: &UnixStream, inbox: &mut I) -> Result<Heard<I::Message>, Option<String>> {
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
        if let Some(message) = inbox.advance(count, got).map_err(Some)? {
            return Ok(Some(Some(message)));
        }
    }
}
