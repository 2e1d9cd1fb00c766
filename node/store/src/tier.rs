//! Tiers: where the bytes of a donated namespace can be read and written.
//!
//! ```text
//!   TierCommand ─► Tier::submit ─► NvmeTcpTier  a connection, made again when it is lost
//!                                  FileTier     a file of this machine
//!   TierDone    ◄─ Tier::poll
//! ```
//! A [`Tier`] never blocks. Its commands name memory ([`MemoryPlace`]) that the caller has ([`TierMemory`]): what is read or written goes
//! straight from or to it. [`BlockingNamespace`] is for those who wait, such as the readers of labels.
//!
//! A namespace is named by a URL: `nvme-tcp://HOST:PORT/NQN?ns=1`, or `file:PATH?sector=512` for a file of this machine, which a client
//! opens only where its options let it.
//!
//! **A connection that is lost** is made again, by a thread of its own; commands wait for it, and are sent again when the target has said
//! that the association of before has ended: a write that it still has could undo a newer one. After [`TierOptions::timeout`] they fail, and
//! so do those that come until the connection is there.
//!
//! What a drive had acknowledged over the connection before, and was not told to flush, is gone if it has lost its power in between: who has to know
//! that compares [`Tier::connection`], where [`Tier::has_volatile_cache`] says that it matters.
//!
//! **A command that is given up**: a read goes on into memory that nobody looks at; a write takes the association with it. Until the
//! target has ended that, or its keep alive timeout and a margin have passed, [`Tier::may_still_write`] says so.

mod blocking;
mod file;
mod nvme_tcp;
mod parts;

#[cfg(test)]
pub(crate) mod tests;

pub use blocking::BlockingNamespace;
pub use file::FileTier;
pub use nvme_tcp::NvmeTcpTier;

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_config::Target;
use weir_driver::TransportError;
use weir_store::file::FileBuffer;
use weir_units::Nanos;

/// The host that clients of a store are to NVMe/TCP targets, where nothing else was chosen.
pub const HOST_NQN: &str = "nqn.2026-11.io.weir:host:store";

/// Bytes in memory: of an open file, by a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlace {
    /// The open file.
    pub file: u64,
    /// Where they begin.
    pub buffer: FileBuffer,
    /// How many.
    pub len: u32,
}

impl MemoryPlace {
    /// A part of them.
    #[must_use]
    pub fn part(&self, first: u32, len: u32) -> Self {
        let buffer = match self.buffer {
            FileBuffer::Caller(op, at) => FileBuffer::Caller(op, at + u64::from(first)),
            FileBuffer::Own(number, at) => FileBuffer::Own(number, at + first),
        };
        Self { buffer, len, ..*self }
    }
}

/// The caller's memory.
pub trait TierMemory {
    /// Bytes to be written.
    fn bytes(&self, at: &MemoryPlace) -> &[u8];
    /// Bytes to be filled.
    fn bytes_mut(&mut self, at: &MemoryPlace) -> &mut [u8];
}

/// A command, as the caller numbers them; no number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierCommandId(pub u64);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierCommand {
    /// Read whole sectors, from that byte of the namespace on.
    Read(u64, MemoryPlace),
    /// Write whole sectors, from that byte of the namespace on.
    Write(u64, MemoryPlace),
    /// Make durable what was written. Where there is no volatile write cache it is so already, and nothing is sent.
    Flush,
}

/// A command that is over: its memory is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierDone {
    /// Which.
    pub command: TierCommandId,
    /// Whether it was done.
    pub is_done: bool,
}

/// How large a namespace and its sectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierGeometry {
    /// Bytes of a sector, a power of two.
    pub sector: u32,
    /// Bytes of the namespace.
    pub bytes: u64,
}

/// A donated namespace. Never blocks. The same memory goes into all calls.
pub trait Tier: Send + fmt::Debug {
    /// How large it is, once that is known.
    fn geometry(&self) -> Option<TierGeometry>;
    /// Whether its bytes are on this machine.
    fn is_local(&self) -> bool;
    /// Begins a command; it may leave only with the next [`poll`](Self::poll).
    fn submit(&mut self, now: Nanos, command: TierCommandId, what: TierCommand, memory: &mut dyn TierMemory);
    /// Lets what was submitted leave, unless so much is under way that it is no later with the next [`poll`](Self::poll).
    fn send(&mut self, _memory: &mut dyn TierMemory) {}
    /// Gives a command up: it is over with the next [`poll`](Self::poll).
    fn abort(&mut self, command: TierCommandId);
    /// Sends and receives; appends what is over. `true` if anything has come.
    fn poll(&mut self, now: Nanos, memory: &mut dyn TierMemory, done: &mut Vec<TierDone>) -> bool;
    /// Keeps the association alive; only who holds the session's lease may.
    fn attend(&mut self, now: Nanos);
    /// Commands that are not over.
    fn pending(&self) -> usize;
    /// Whether a command is over already, which [`poll`](Self::poll) says: nothing comes from a socket then.
    fn has_finished(&self) -> bool {
        false
    }
    /// What is to be waited for, and whether also for room to send.
    fn socket(&self) -> Option<(BorrowedFd<'_>, bool)>;
    /// Which connection it has: another one has another number.
    fn connection(&self) -> u64;
    /// Whether what was written and not flushed is gone with its power.
    fn has_volatile_cache(&self) -> bool;
    /// When it is to be polled at the latest although nothing comes.
    fn due(&self) -> Nanos;
    /// Whether the target may still carry out a write that was given up.
    fn may_still_write(&self, now: Nanos) -> bool;
    /// Why it does not answer, if it does not.
    fn trouble(&self) -> Option<String>;
}

/// Says what is wrong with the first bytes of a namespace, if anything is: it may be a stranger's, or another one.
pub type LabelCheck = Arc<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// Until when work may be begun by whoever has the right to it: a moment of CLOCK_BOOTTIME in nanoseconds, which its owner moves.
#[derive(Clone, Debug, Default)]
pub struct WorkLease(Arc<AtomicU64>);

impl WorkLease {
    /// It lasts until then.
    pub fn set(&self, until: Nanos) {
        self.0.store(until.get(), Ordering::Release);
    }

    /// Whether that moment has come.
    pub fn is_over(&self) -> bool {
        let time = clock_gettime(ClockId::Boottime);
        let now = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
        now >= self.0.load(Ordering::Acquire)
    }
}

/// How namespaces are opened.
#[derive(Clone)]
pub struct TierOptions {
    /// This host.
    pub host_nqn: String,
    /// How long commands wait for a connection.
    pub timeout: Duration,
    /// KATO: how long a target keeps an association that is silent.
    pub keep_alive: Duration,
    /// Whether `file:` URLs are opened.
    pub allow_files: bool,
    /// What the first [`LABEL_BYTES`] bytes of the namespace have to pass.
    pub label: Option<LabelCheck>,
    /// Whoever waits for it does so no longer once this is set.
    pub stops: Option<Arc<AtomicBool>>,
    /// Whoever waits begins nothing when this is over, and gives up what it is at.
    pub lease: Option<WorkLease>,
    /// A file is locked as long as it is open so, and not opened while another process has it locked: it ends no association of who stands still.
    pub is_locked: bool,
    /// Rings when a connection was made that a caller may wait for.
    pub bell: Option<Arc<OwnedFd>>,
}

/// Bytes that a label may take.
pub const LABEL_BYTES: usize = 4096;

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            host_nqn: HOST_NQN.into(),
            timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(2),
            allow_files: false,
            label: None,
            stops: None,
            lease: None,
            is_locked: false,
            bell: None,
        }
    }
}

impl fmt::Debug for TierOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host_nqn, timeout, keep_alive, allow_files, .. } = self;
        write!(f, "TierOptions {{ {host_nqn}, {timeout:?}, {keep_alive:?}, {allow_files} }}")
    }
}

/// Where a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NamespaceUrl {
    NvmeTcp { host: String, port: u16, nqn: String, nsid: u32 },
    File { path: PathBuf, sector: u32 },
}

impl NamespaceUrl {
    fn parse(url: &str) -> Result<Self, TransportError> {
        let wrong = |why: &str| TransportError::Usage(format!("namespace \"{url}\": {why}"));
        if let Some(rest) = url.strip_prefix("file:") {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let sector = match query.split_once('=') {
                None if query.is_empty() => 4096,
                Some(("sector", "512")) => 512,
                Some(("sector", "4096")) => 4096,
                _ => return Err(wrong("the only key is sector, which is 512 or 4096")),
            };
            return match path.is_empty() {
                true => Err(wrong("no path after file:")),
                false => Ok(Self::File { path: path.into(), sector }),
            };
        }
        match url.parse::<Target>().map_err(|e| wrong(&e.to_string()))? {
            Target::NvmeTcp { host, port, nqn, nsid } => Ok(Self::NvmeTcp { host, port, nqn, nsid }),
            _ => Err(wrong("a store reaches namespaces as nvme-tcp://HOST:PORT/NQN?ns=1 or file:PATH")),
        }
    }
}

/// The namespace at that URL. Over a network it is connected to when the first command comes.
///
/// # Errors
/// The URL is none, or is that of a file which cannot be opened or may not be.
pub fn open(url: &str, options: TierOptions) -> Result<Box<dyn Tier>, TransportError> {
    Ok(match NamespaceUrl::parse(url)? {
        NamespaceUrl::File { .. } if !options.allow_files => {
            return Err(TransportError::Usage(format!("{url}: files of this machine are not let in as namespaces")));
        }
        NamespaceUrl::File { path, sector } => Box::new(FileTier::open(&path, sector, &options)?),
        NamespaceUrl::NvmeTcp { host, port, nqn, nsid } => {
            Box::new(NvmeTcpTier::new(url, &host, port, &nqn, nsid, options))
        }
    })
}
