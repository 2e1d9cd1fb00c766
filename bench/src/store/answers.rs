//! Questions to a metadata service by many connections that one thread has: the protocol by hand, since a client has one connection.

use crate::{BenchError, failed};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use weir_store::protocol::{
    Answer, FrameReader, HEADER_BYTES, PROTOCOL_MAGIC, PROTOCOL_VERSION, Request, RequestNumber, SessionWish,
};
use weir_store::{EntryName, InodeId, Location};
use weir_units::Nanos;
use weir_workload::{Histogram, Xoshiro256};

/// Idle connections that are wanted beside the active ones.
const IDLE: usize = 9_900;
/// Descriptors that are left for everything else.
const OTHERS: u64 = 300;

/// A request as it goes over the wire, and how many bytes answer it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The request's frame.
    pub request: Vec<u8>,
    /// Bytes of the answer.
    pub answer: usize,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in flight, of each connection.
    pub depth: usize,
    /// For so long.
    pub time: Nanos,
    /// By a thread on that core.
    pub core: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Answers a second.
    pub per_s: f64,
    /// Nanoseconds, 99 % of the answers; of those in flight at once the oldest is taken to be answered first.
    pub p99_ns: f64,
}

/// The questions for the inodes at these paths.
///
/// # Errors
/// A path is none.
pub fn lookups(paths: impl Iterator<Item = String>) -> Result<Vec<Vec<u8>>, BenchError> {
    let frame = |path: String| {
        let names = path.split('/').filter(|part| !part.is_empty()).map(|part| EntryName::new(part.as_bytes()));
        let names = names.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&path, e))?;
        let request = Request::Resolve { from: InodeId::ROOT, names, follow: true };
        request.encode(RequestNumber(1)).ok_or_else(|| failed(&path, "is too long"))
    };
    paths.map(frame).collect()
}

/// Connections that were let in, without a session.
///
/// # Errors
/// The service lets them not in.
pub fn connect(address: &str, count: usize) -> Result<Vec<TcpStream>, BenchError> {
    let hello = Request::Hello {
        magic: PROTOCOL_MAGIC,
        version: PROTOCOL_VERSION,
        client: "weir-bench".into(),
        location: Location::default(),
        session: SessionWish::None,
    };
    let hello = hello.encode(RequestNumber(0)).ok_or_else(|| failed("a greeting", "is too long"))?;
    let one = |_| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&hello)?;
        match answer(&mut stream)?.0 {
            Answer::Welcome { .. } => {}
            other => return Err(failed(address, format!("{other:?}"))),
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    (0..count).map(one).collect()
}

/// The next answer of a connection that waits, and its bytes.
fn answer(stream: &mut TcpStream) -> Result<(Answer, usize), BenchError> {
    let (mut reader, mut buffer, mut bytes) = (FrameReader::default(), vec![0; 64 << 10], 0);
    loop {
        if let Some(frame) = reader.next().map_err(|e| failed("an answer", e))? {
            let answer = Answer::decode(frame).map_err(|e| failed("an answer", e))?;
            return Ok((answer.1, bytes));
        }
        match stream.read(&mut buffer)? {
            0 => return Err(failed("the metadata service", "it closed the connection")),
            n => {
                bytes += n;
                reader.push(&buffer[..n]);
            }
        }
    }
}

/// The bytes of a lookup of that path and of its answer.
///
/// # Errors
/// It is not found.
pub fn shape_of_lookup(address: &str, path: &str) -> Result<Shape, BenchError> {
    let request = lookups(std::iter::once(path.to_owned()))?.remove(0);
    let mut stream = connect(address, 1)?.remove(0);
    stream.set_nonblocking(false)?;
    stream.write_all(&request)?;
    match answer(&mut stream)? {
        (Answer::Found { .. }, bytes) => Ok(Shape { request, answer: bytes }),
        (other, _) => Err(failed(path, format!("{other:?}"))),
    }
}

/// As many connections as the limit on descriptors leaves, at most [`IDLE`].
pub fn idle_connections() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(IDLE).min(IDLE)
}

/// One connection under load.
struct Asker<'a> {
    socket: &'a TcpStream,
    /// When each request in flight left.
    sent: VecDeque<Instant>,
    /// What has come of answers that are not whole.
    rest: Vec<u8>,
}

/// Keeps `depth` requests in flight on each connection: questions drawn evenly from `requests`.
///
/// # Errors
/// A connection was closed.
pub fn rate(connections: &[TcpStream], requests: &[Vec<u8>], load: Load) -> Result<Rate, BenchError> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            weir_sys::sched::pin(load.core)?;
            ask(connections, requests, load)
        });
        asked.join().map_err(|e| failed("a thread", format!("{e:?}")))?
    })
}

fn ask(connections: &[TcpStream], requests: &[Vec<u8>], load: Load) -> Result<Rate, BenchError> {
    let new = |socket| Asker { socket, sent: VecDeque::with_capacity(load.depth), rest: Vec::new() };
    let mut askers: Vec<Asker<'_>> = connections.iter().map(new).collect();
    let mut rng = Xoshiro256::new(5);
    let (mut latency, mut done, mut buffer) = (Histogram::new(), 0, vec![0; 64 << 10]);
    let begun = Instant::now();
    let time = Duration::from_nanos(load.time.get());
    let mut last = begun;
    while begun.elapsed() < time {
        for asker in &mut askers {
            let now = Instant::now();
            asker.send(requests, (load.depth, now), &mut rng)?;
            let answers = asker.receive(&mut buffer)?;
            if answers > 0 {
                let now = Instant::now();
                last = now;
                for since in asker.sent.drain(..answers) {
                    latency.record((now - since).as_nanos() as u64);
                }
                done += answers as u64;
            }
        }
        if last.elapsed() > Duration::from_secs(5) {
            return Err(failed("the service", "no answer within 5 s"));
        }
    }
    let per_s = done as f64 / begun.elapsed().as_secs_f64();
    // What is in flight is taken, so that the connections can be used again.
    let end = Instant::now();
    while askers.iter().any(|asker| !asker.sent.is_empty()) {
        for asker in &mut askers {
            let answers = asker.receive(&mut buffer)?;
            asker.sent.drain(..answers);
        }
        if end.elapsed() > Duration::from_secs(5) {
            return Err(failed("the service", "no answer within 5 s"));
        }
    }
    Ok(Rate { per_s, p99_ns: latency.percentile(99.0) as f64 })
}

impl Asker<'_> {
    /// Fills up what is in flight with one send.
    fn send(
        &mut self,
        requests: &[Vec<u8>],
        (depth, now): (usize, Instant),
        rng: &mut Xoshiro256,
    ) -> Result<(), BenchError> {
        if self.sent.len() >= depth {
            return Ok(());
        }
        let mut bytes = Vec::new();
        while self.sent.len() < depth {
            bytes.extend_from_slice(&requests[rng.below(requests.len() as u64) as usize]);
            self.sent.push_back(now);
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match send(self.socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(failed("a question", e)),
            }
        }
        Ok(())
    }

    /// How many answers have come.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, BenchError> {
        let n = match recv(self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(failed("the service", "it closed the connection")),
            Ok((n, _)) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(e) => return Err(failed("an answer", e)),
        };
        let mut answers = 0;
        self.rest.extend_from_slice(&buffer[..n]);
        // Frames are counted by their lengths: what is in them is another test's.
        let mut at = 0;
        while self.rest.len() - at >= HEADER_BYTES {
            let length = u32::from_le_bytes([self.rest[at], self.rest[at + 1], self.rest[at + 2], self.rest[at + 3]]);
            let whole = 4 + length as usize;
            if self.rest.len() - at < whole {
                break;
            }
            at += whole;
            answers += 1;
        }
        self.rest.drain(..at);
        Ok(answers)
    }
}
