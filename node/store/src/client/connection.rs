//! The connection to a metadata service: bytes out, answers in.

use super::error::{ClientError, ClientErrorKind};
use super::options::ClientOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weir_store::protocol::{
    Answer, FrameReader, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish, WelcomeInfo,
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
    pub address: String,
    pub name: String,
    pub location: Location,
}

impl Caller {
    pub fn new(address: &str, options: &ClientOptions) -> Result<Self, ClientError> {
        let location = Location::new(&options.location).map_err(ClientError::from)?;
        let mut name = options.name.clone();
        while name.len() > weir_store::protocol::CLIENT_NAME_MAX {
            name.pop();
        }
        Ok(Self { address: address.into(), name, location })
    }

    fn unreachable(&self, why: &str) -> ClientError {
        ClientError::new(ClientErrorKind::Unreachable(format!(
            "the metadata service at {} cannot be reached: {why}",
            self.address
        )))
    }

    fn dial(&self, timeout: Duration) -> Result<OwnedFd, ClientError> {
        if let Some(path) = self.address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).map_err(|e| self.unreachable(&e.to_string()))?;
            return stream.set_nonblocking(true).map(|()| stream.into()).map_err(|e| self.unreachable(&e.to_string()));
        }
        if self.address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
            let text =
                format!("\"{}\" is no address of a metadata service; it is HOST:PORT or unix:PATH", self.address);
            return Err(ClientError::new(ClientErrorKind::Usage(text)));
        }
        let addresses = self.address.to_socket_addrs().map_err(|e| self.unreachable(&e.to_string()))?;
        let mut last = self.unreachable("no such host");
        for address in addresses {
            let connected = TcpStream::connect_timeout(&address, timeout.min(CONNECT_TIMEOUT));
            let ready = connected.and_then(|s| s.set_nodelay(true).and_then(|()| s.set_nonblocking(true)).map(|()| s));
            match ready {
                Ok(stream) => return Ok(stream.into()),
                Err(e) => last = self.unreachable(&e.to_string()),
            }
        }
        Err(last)
    }

    /// Connects, says hello and waits for the answer. The moment at which hello was sent is told as well.
    pub fn connect(
        &self,
        session: SessionWish,
        timeout: Duration,
    ) -> Result<(Connection, WelcomeInfo, Nanos), ClientError> {
        let begun = Instant::now();
        let socket = self.dial(timeout)?;
        let (reader, out, buffer) = (FrameReader::default(), Vec::new(), vec![0; RECEIVE]);
        let mut connection = Connection { socket, reader, out, sent: 0, buffer };
        let hello = Request::Hello {
            magic: PROTOCOL_MAGIC,
            version: PROTOCOL_VERSION,
            client: self.name.clone(),
            location: self.location.clone(),
            session,
        };
        let mut sent = boot_time();
        connection.put(&hello, RequestNumber(0))?;
        let mut answers = Vec::new();
        loop {
            connection.flush().map_err(|e| self.unreachable(&e))?;
            let got = connection.receive(&mut answers).map_err(|e| self.unreachable(&e))?;
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
                    Answer::Welcome { welcome } if welcome.version == PROTOCOL_VERSION => {
                        Ok((connection, welcome, sent))
                    }
                    Answer::Failed { error, detail } => Err(refusal(error, &detail)),
                    _ => Err(ClientError::new(ClientErrorKind::Protocol(format!(
                        "the metadata service at {} does not answer a greeting with a welcome",
                        self.address
                    )))),
                };
            }
            if begun.elapsed() >= timeout {
                return Err(self.unreachable("it does not answer in time"));
            }
            if !got {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                // An interrupted wait is one that is over.
                let _ = poll(&mut [PollFd::new(&connection.socket, PollFlags::IN)], Some(&timeout));
            }
        }
    }
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
