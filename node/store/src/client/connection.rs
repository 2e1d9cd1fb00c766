//! The connection to a metadata service: bytes out, answers in.

use super::error::{ClientError, ClientErrorKind};
use super::options::ClientOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_store::protocol::{
    Answer, FrameReader, PROTOCOL_MAGIC, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Request, RequestNumber, SessionWish,
    WelcomeInfo,
};
use weir_store::{Location, StoreError};
use weir_sys::reactor::now as monotonic;
use weir_units::Nanos;

/// Between two greetings of a service that cannot answer yet.
const GREET_AGAIN: Duration = Duration::from_millis(20);

/// What is received at once.
const RECEIVE: usize = 64 << 10;
/// How long one address may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one of several addresses may take to let a client in, before the next one is tried.
const NEXT_TIMEOUT: Duration = Duration::from_millis(1500);
/// Between two rounds over several addresses.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// Addresses that one that stands by may name at the most.
const REFERRALS_MAX: usize = 8;

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    reader: FrameReader,
    out: Vec<u8>,
    sent: usize,
    buffer: Vec<u8>,
}

/// Who wants in.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Of the services of one store: one serves, the others stand by.
    addresses: Vec<String>,
    /// The one that is tried first.
    first: Arc<AtomicUsize>,
    pub name: String,
    pub location: Location,
}

/// What came of a greeting.
enum Greeted {
    /// The client is let in; when hello was sent.
    Welcome(Connection, WelcomeInfo, Nanos),
    /// The service stands by: where the one is that serves, as far as it knows.
    Standby(Vec<String>),
}

/// Why no service has let the client in.
struct TurnedAway {
    error: ClientError,
    /// One of them stands by or is starting: it serves before long, or another one does.
    is_coming: bool,
}

type LetIn = (Connection, WelcomeInfo, Nanos);

impl Caller {
    /// `address` is one, or several with commas between them.
    pub fn new(address: &str, options: &ClientOptions) -> Result<Self, ClientError> {
        let addresses: Vec<String> = address.split(',').map(|one| one.trim().to_owned()).collect();
        for address in &addresses {
            let is_tcp = |text: &str| {
                text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            };
            if !address.starts_with("unix:") && !is_tcp(address) {
                let text = format!("\"{address}\" is no address of a metadata service; it is HOST:PORT or unix:PATH");
                return Err(ClientError::new(ClientErrorKind::Usage(text)));
            }
        }
        let location = Location::new(&options.location).map_err(ClientError::from)?;
        let mut name = options.name.clone();
        while name.len() > weir_store::protocol::CLIENT_NAME_MAX {
            name.pop();
        }
        Ok(Self { addresses, first: Arc::default(), name, location })
    }

    /// The addresses, as text.
    pub fn address(&self) -> String {
        self.addresses.join(",")
    }

    /// Whether there are several services to turn to.
    pub fn has_several(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Connects, says hello and waits for the answer. The moment at which hello was sent is told as well. Where there are several addresses each
    /// is tried in turn, once; the next call begins with the one behind the last.
    pub fn connect(&self, session: SessionWish, timeout: Duration) -> Result<LetIn, ClientError> {
        self.round(session, timeout).map_err(|turned_away| turned_away.error)
    }

    fn round(&self, session: SessionWish, timeout: Duration) -> Result<LetIn, TurnedAway> {
        let (begun, mut is_coming) = (Instant::now(), false);
        let first = self.first.load(Ordering::Relaxed);
        let mut tried: Vec<(String, ClientError)> = Vec::new();
        for at in (first..first + self.addresses.len()).map(|at| at % self.addresses.len()) {
            self.first.store((at + 1) % self.addresses.len(), Ordering::Relaxed);
            let mut next = vec![self.addresses[at].clone()];
            let mut referrals = 0;
            while let Some(address) = next.pop() {
                let left = timeout.saturating_sub(begun.elapsed());
                if tried.iter().any(|(before, _)| *before == address) || left.is_zero() && !tried.is_empty() {
                    continue;
                }
                let several = self.has_several() || referrals > 0;
                let time = if several { left.min(NEXT_TIMEOUT) } else { left };
                match self.greet(&address, session, time) {
                    Ok(Greeted::Welcome(connection, welcome, sent)) => return Ok((connection, welcome, sent)),
                    Ok(Greeted::Standby(others)) => {
                        is_coming = true;
                        let error =
                            refusal(StoreError::Unavailable, "it stands by, and another service serves the store");
                        tried.push((address, error));
                        next.extend(others.into_iter().take(REFERRALS_MAX - referrals));
                        referrals = REFERRALS_MAX.min(referrals + next.len());
                    }
                    // What the service says of the session counts, whoever else there is.
                    Err(error) if *error.kind() == ClientErrorKind::SessionOver => {
                        return Err(TurnedAway { error, is_coming: false });
                    }
                    Err(error) => {
                        is_coming |= error.store_error() == Some(StoreError::Unavailable);
                        tried.push((address, error));
                    }
                }
            }
        }
        Err(TurnedAway { error: of_all(tried), is_coming })
    }

    /// The same until that time is over, where a service answers that does not serve yet: one that takes over needs some seconds.
    pub fn connect_in_time(&self, session: SessionWish, timeout: Duration) -> Result<LetIn, ClientError> {
        let begun = Instant::now();
        loop {
            let turned_away = match self.round(session, timeout.saturating_sub(begun.elapsed())) {
                Ok(let_in) => return Ok(let_in),
                Err(turned_away) => turned_away,
            };
            let is_final = *turned_away.error.kind() == ClientErrorKind::SessionOver;
            if is_final || !turned_away.is_coming || begun.elapsed() + ROUND_PAUSE >= timeout {
                return Err(turned_away.error);
            }
            std::thread::sleep(ROUND_PAUSE);
        }
    }

    /// Asks one service to be let in; one of an older release in the version that it speaks.
    fn greet(&self, address: &str, session: SessionWish, timeout: Duration) -> Result<Greeted, ClientError> {
        match self.greet_in(PROTOCOL_VERSION, address, session, timeout) {
            Err(error) => match error.store_error() {
                Some(StoreError::Version(older)) if (PROTOCOL_VERSION_MIN..PROTOCOL_VERSION).contains(&older) => {
                    self.greet_in(older, address, session, timeout)
                }
                _ => Err(error),
            },
            greeted => greeted,
        }
    }

    fn greet_in(
        &self,
        version: u16,
        address: &str,
        session: SessionWish,
        timeout: Duration,
    ) -> Result<Greeted, ClientError> {
        let begun = Instant::now();
        let socket = dial(address, timeout)?;
        let (reader, out, buffer) = (FrameReader::default(), Vec::new(), vec![0; RECEIVE]);
        let mut connection = Connection { socket, reader, out, sent: 0, buffer };
        let (client, location) = (self.name.clone(), self.location.clone());
        let hello = Request::Hello { magic: PROTOCOL_MAGIC, version, client, location, session };
        let mut sent = boot_time();
        connection.put(&hello, RequestNumber(0))?;
        let mut answers = Vec::new();
        loop {
            connection.flush().map_err(|e| unreachable(address, &e))?;
            let got = connection.receive(&mut answers).map_err(|e| unreachable(address, &e))?;
            if let Some((_, answer)) = answers.pop() {
                // It is about to begin, or reserves numbers of sessions. Who resumes one asks again by itself.
                let is_busy = matches!(answer, Answer::Failed { error: StoreError::Unavailable, .. });
                if is_busy && !matches!(session, SessionWish::Resume(..)) && begun.elapsed() + GREET_AGAIN < timeout {
                    std::thread::sleep(GREET_AGAIN);
                    sent = boot_time();
                    connection.put(&hello, RequestNumber(0))?;
                    continue;
                }
                return match answer {
                    Answer::Welcome { welcome } if welcome.version == version => {
                        Ok(Greeted::Welcome(connection, welcome, sent))
                    }
                    Answer::Standby { addresses } => Ok(Greeted::Standby(addresses)),
                    Answer::Failed { error, detail } => Err(refusal(error, &detail)),
                    _ => Err(ClientError::new(ClientErrorKind::Protocol(format!(
                        "the metadata service at {address} does not answer a greeting with a welcome"
                    )))),
                };
            }
            if begun.elapsed() >= timeout {
                return Err(unreachable(address, "it does not answer in time"));
            }
            if !got {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                // An interrupted wait is one that is over.
                let _ = poll(&mut [PollFd::new(&connection.socket, PollFlags::IN)], Some(&timeout));
            }
        }
    }
}

pub(super) fn unreachable(address: &str, why: &str) -> ClientError {
    let text = format!("the metadata service at {address} cannot be reached: {why}");
    ClientError::new(ClientErrorKind::Unreachable(text))
}

/// The error of one address, or one that names all that were tried.
fn of_all(mut tried: Vec<(String, ClientError)>) -> ClientError {
    if let (1, Some((_, error))) = (tried.len(), tried.first()) {
        return error.clone();
    }
    let before = |address: &str| format!("the metadata service at {address} cannot be reached: ");
    let told = tried.drain(..).map(|(address, error)| {
        let text = error.to_string();
        format!("{address}: {}", text.strip_prefix(&before(&address)).unwrap_or(&text))
    });
    let text = format!("no metadata service of the store lets the client in: {}", told.collect::<Vec<_>>().join("; "));
    ClientError::new(ClientErrorKind::Unreachable(text))
}

fn dial(address: &str, timeout: Duration) -> Result<OwnedFd, ClientError> {
    if let Some(path) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).map_err(|e| unreachable(address, &e.to_string()))?;
        return stream.set_nonblocking(true).map(|()| stream.into()).map_err(|e| unreachable(address, &e.to_string()));
    }
    let found = address.to_socket_addrs().map_err(|e| unreachable(address, &e.to_string()))?;
    let mut last = unreachable(address, "no such host");
    for one in found {
        let connected = TcpStream::connect_timeout(&one, timeout.min(CONNECT_TIMEOUT));
        let ready = connected.and_then(|s| s.set_nodelay(true).and_then(|()| s.set_nonblocking(true)).map(|()| s));
        match ready {
            Ok(stream) => return Ok(stream.into()),
            Err(e) => last = unreachable(address, &e.to_string()),
        }
    }
    Err(last)
}

/// A refusal, with what it is about.
pub(super) fn refusal(error: StoreError, detail: &str) -> ClientError {
    let error = ClientError::from(error);
    if detail.is_empty() { error } else { error.on(detail) }
}

/// CLOCK_BOOTTIME: leases go on while the machine sleeps.
pub(super) fn boot_time() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A moment so far from now, of CLOCK_BOOTTIME.
pub(super) fn in_time(timeout: Duration) -> Nanos {
    boot_time().saturating_add(Nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)))
}

/// CLOCK_MONOTONIC, which drives are driven by.
pub(super) fn drive_time() -> Nanos {
    monotonic()
}

impl Connection {
    /// Queues a request.
    pub fn put(&mut self, request: &Request, number: RequestNumber) -> Result<(), ClientError> {
        let too_long =
            || ClientError::new(ClientErrorKind::Usage("the request is longer than a message may be".into()));
        let frame = request.encode(number).ok_or_else(too_long)?;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        self.out.extend_from_slice(&frame);
        Ok(())
    }

    pub fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends what the socket takes.
    pub fn flush(&mut self) -> Result<(), String> {
        while self.has_output() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.out[self.sent..], flags) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    }

    /// Receives once; `false` if there was nothing.
    pub fn receive(&mut self, answers: &mut Vec<(RequestNumber, Answer)>) -> Result<bool, String> {
        match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err("it has closed the connection".into()),
            Ok((n, _)) => self.reader.push(&self.buffer[..n]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.to_string()),
        }
        while let Some(frame) = self.reader.next().map_err(|e| e.to_string())? {
            answers.push(Answer::decode(frame).map_err(|e| e.to_string())?);
        }
        Ok(true)
    }
}
