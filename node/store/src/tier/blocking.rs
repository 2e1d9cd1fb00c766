//! A namespace for those who wait: its label is read and written so.

use super::{MemoryPlace, Tier, TierCommand, TierCommandId, TierGeometry, TierMemory, TierOptions, WorkLease, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_driver::TransportError;
use weir_store::file::{FileBuffer, FileOpId};
use weir_sys::reactor::now;

/// Between looks where there is nothing to wait for.
const PAUSE: Duration = Duration::from_millis(2);

/// The number of no connection.
const LOST: u64 = u64::MAX;

/// A namespace whose reads and writes are waited for, one at a time.
#[derive(Debug)]
pub struct BlockingNamespace {
    tier: Box<dyn Tier>,
    url: String,
    last: u64,
    timeout: Duration,
    stops: Option<Arc<AtomicBool>>,
    lease: Option<WorkLease>,
    /// The connection that has the writes which no flush has followed.
    written: Option<u64>,
}

/// The memory of the one command.
struct One(Vec<u8>);

impl TierMemory for One {
    fn bytes(&self, at: &MemoryPlace) -> &[u8] {
        let first = first_of(at);
        self.0.get(first..first + at.len as usize).unwrap_or_default()
    }
    fn bytes_mut(&mut self, at: &MemoryPlace) -> &mut [u8] {
        let first = first_of(at);
        self.0.get_mut(first..first + at.len as usize).unwrap_or_default()
    }
}

fn first_of(at: &MemoryPlace) -> usize {
    match at.buffer {
        FileBuffer::Caller(_, at) => at as usize,
        FileBuffer::Own(_, at) => at as usize,
    }
}

impl BlockingNamespace {
    /// Opens the namespace at that URL and connects to it.
    ///
    /// # Errors
    /// The URL is none, or the namespace does not answer in time; the text says why.
    pub fn open(url: &str, options: TierOptions) -> Result<Self, TransportError> {
        let (timeout, stops, lease) = (options.timeout, options.stops.clone(), options.lease.clone());
        let tier = open(url, options)?;
        let mut namespace = Self { tier, url: url.into(), last: 0, timeout, stops, lease, written: None };
        if namespace.tier.geometry().is_none() {
            // Its geometry is known when the first command is over.
            namespace.flush()?;
        }
        Ok(namespace)
    }

    /// How large it is.
    pub fn geometry(&self) -> TierGeometry {
        self.tier.geometry().unwrap_or(TierGeometry { sector: 4096, bytes: 0 })
    }

    /// Reads whole sectors.
    ///
    /// # Errors
    /// It does not answer in time, or cannot read them.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let memory = self.run(vec![0; into.len()], |place| TierCommand::Read(offset, place))?;
        into.copy_from_slice(&memory);
        Ok(())
    }

    /// Writes whole sectors.
    ///
    /// # Errors
    /// It does not answer in time, or cannot write them.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let before = self.tier.connection();
        self.run(bytes.to_vec(), |place| TierCommand::Write(offset, place))?;
        // Parts of it may have gone over the one before.
        let over = if before == self.tier.connection() { before } else { LOST };
        self.written = Some(if self.written.is_none_or(|written| written == over) { over } else { LOST });
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// It does not answer in time, or cannot do so; or the connection was lost since the first write: whether it has all of them is not known.
    pub fn flush(&mut self) -> Result<(), TransportError> {
        let before = self.written.take();
        self.run(Vec::new(), |_| TierCommand::Flush)?;
        match before.is_none_or(|written| written == self.tier.connection()) {
            true => Ok(()),
            false => Err(TransportError::Unreachable(format!(
                "{}: the connection was lost between a write and its flush",
                self.url
            ))),
        }
    }

    fn run(&mut self, bytes: Vec<u8>, what: impl Fn(MemoryPlace) -> TierCommand) -> Result<Vec<u8>, TransportError> {
        if self.is_lease_over() {
            return Err(TransportError::Refused(format!("{}: the lease of the service is over", self.url)));
        }
        self.last += 1;
        let id = TierCommandId(self.last);
        let place = MemoryPlace { file: 0, buffer: FileBuffer::Caller(FileOpId(0), 0), len: bytes.len() as u32 };
        let (mut memory, begun, mut done) = (One(bytes), Instant::now(), Vec::new());
        self.tier.submit(now(), id, what(place), &mut memory);
        let mut is_given_up = false;
        loop {
            let any = self.tier.poll(now(), &mut memory, &mut done);
            self.tier.attend(now());
            if let Some(over) = done.iter().find(|over| over.command == id) {
                return if over.is_done { Ok(memory.0) } else { Err(self.failure()) };
            }
            let stops = self.stops.as_ref().is_some_and(|stops| stops.load(Ordering::Acquire));
            if (stops || self.is_lease_over() || begun.elapsed() >= self.timeout) && !is_given_up {
                is_given_up = true;
                self.tier.abort(id);
            } else if !any {
                self.wait();
            }
        }
    }

    fn is_lease_over(&self) -> bool {
        self.lease.as_ref().is_some_and(WorkLease::is_over)
    }

    fn failure(&self) -> TransportError {
        let why = self.tier.trouble();
        TransportError::Unreachable(why.unwrap_or_else(|| format!("{}: the command has failed", self.url)))
    }

    fn wait(&self) {
        let Some((socket, sends)) = self.tier.socket() else { return std::thread::sleep(PAUSE) };
        let interest = if sends { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // An interrupted wait is one that is over.
        let _ = poll(&mut [PollFd::new(&socket, interest)], Some(&timeout));
    }
}
