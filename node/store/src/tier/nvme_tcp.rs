//! A namespace over NVMe/TCP: one connection, several commands in flight. See [the module](super).

use super::parts::{Commands, Part};
use super::{LABEL_BYTES, Tier, TierCommand, TierCommandId, TierDone, TierGeometry, TierMemory, TierOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_driver::nvme_tcp::{Association, Buffers, ConnectOptions};
use weir_driver::{Done, Io, IoKind, TransportError};
use weir_sys::reactor::now as clock;
use weir_sys::transport::fds;
use weir_sys::transport::nvme_tcp::{NvmeTcpCallerQueue, RemoteController, association};
use weir_units::Nanos;

/// Commands in flight at once.
const DEPTH: u16 = 128;
/// Bytes of the longest command, where the target takes them.
const MAX_IO: u32 = 512 << 10;
/// Commands wait to be sent together until they are so large a part of those in flight: the answers of the others come before theirs anyway.
const SENT_TOGETHER: usize = 4;
/// Between attempts to connect: the first pause and the longest; each one is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Between questions whether an association has ended.
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// How much later than KATO an association has ended at the latest that the target cannot be asked about.
const MARGIN: Duration = Duration::from_secs(2);
/// How long after that a target may say that it still has one: what it said longer was never true.
const LIVES_AT_MOST: Duration = Duration::from_secs(300);
/// How often the state is looked at while there is no connection and commands wait.
const LOOK: Nanos = Nanos::from_millis(20);
/// How long a label may take to be read.
const LABEL_TIMEOUT: Duration = Duration::from_secs(5);

/// An association: CNTLID, and which one of this process it is.
type AssociationId = (u16, u64);

/// Where the namespace is, and how it is connected to.
#[derive(Debug)]
struct Source {
    url: String,
    host: String,
    port: u16,
    connect: ConnectOptions,
    options: TierOptions,
    /// What the last attempt came to.
    trouble: Mutex<Option<String>>,
}

/// See [the module](self).
#[derive(Debug)]
pub struct NvmeTcpTier {
    source: Arc<Source>,
    queue: Option<NvmeTcpCallerQueue>,
    geometry: Option<TierGeometry>,
    attempt: Option<Attempt>,
    commands: Commands,
    /// What is in flight, by slot.
    flight: Vec<Option<Part>>,
    free: Vec<u32>,
    /// Memory of reads in flight that were given up, by slot.
    scratch: Vec<Vec<u8>>,
    finished: Vec<Done>,
    has_more_to_send: bool,
    /// Commands since something was sent last.
    unsent: usize,
    /// Since when there is no connection and commands want one.
    lost: Option<Nanos>,
    /// Until then the target may have writes of an association that was lost.
    doubt: Nanos,
    attend_at: Nanos,
    connections: u64,
    /// Of the last connection, or of one before.
    has_volatile_cache: bool,
}

/// The attempts to connect, until one succeeds. Ends with its drop, after the attempt that goes on.
#[derive(Debug)]
struct Attempt {
    made: Receiver<NvmeTcpCallerQueue>,
    /// There is one to be received.
    is_made: Arc<AtomicBool>,
    is_dropped: Arc<AtomicBool>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Release);
    }
}

/// A host identifier of this process's own, so that its registrations and its commands are told from those of others.
fn host_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    *ID.get_or_init(|| {
        let mut id = [0; 16];
        let random = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
        if random != Ok(id.len()) {
            let (low, high) = id.split_at_mut(8);
            low.copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
            high.copy_from_slice(&clock().get().to_le_bytes());
        }
        id[0] |= 1;
        id
    })
}

impl NvmeTcpTier {
    /// A namespace that is connected to when the first command comes.
    pub(super) fn new(url: &str, host: &str, port: u16, nqn: &str, nsid: u32, options: TierOptions) -> Self {
        let connect = ConnectOptions {
            hostid: host_id(),
            nsid,
            depth: DEPTH,
            kato: Nanos(u64::try_from(options.keep_alive.as_nanos()).unwrap_or(u64::MAX)),
            ..ConnectOptions::new(nqn, &options.host_nqn)
        };
        let trouble = Mutex::new(None);
        let source = Source { url: url.into(), host: host.into(), port, connect, options, trouble };
        Self {
            source: Arc::new(source),
            queue: None,
            geometry: None,
            attempt: None,
            commands: Commands::default(),
            flight: Vec::new(),
            free: Vec::new(),
            scratch: Vec::new(),
            finished: Vec::new(),
            has_more_to_send: false,
            unsent: 0,
            lost: None,
            doubt: Nanos(0),
            attend_at: Nanos::NEVER,
            connections: 0,
            has_volatile_cache: false,
        }
    }

    fn connect(&mut self, ended: Option<AssociationId>) {
        if self.attempt.is_some() {
            return;
        }
        let (sender, made) = mpsc::sync_channel(1);
        let (is_dropped, is_made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let tells = is_made.clone();
        let (stop, source, geometry) = (is_dropped.clone(), self.source.clone(), self.geometry);
        let run = move || {
            let mut ended = ended.map(|association| (association, Instant::now()));
            let mut pause = PAUSE.0;
            while !stop.load(Ordering::Acquire) {
                match source.connect_once(geometry, &mut ended, &stop) {
                    Ok(queue) => {
                        // Its receiver may have gone.
                        let _ = sender.send(queue);
                        tells.store(true, Ordering::Release);
                        source.ring();
                        return;
                    }
                    Err(e) => {
                        tracing::debug!("{}: {e}", source.url);
                        source.set_trouble(Some(e.to_string()));
                    }
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        };
        match std::thread::Builder::new().name("weir-store-drive".into()).spawn(run) {
            Ok(_) => self.attempt = Some(Attempt { made, is_made, is_dropped }),
            Err(e) => self.source.set_trouble(Some(format!("no thread to connect: {e}"))),
        }
    }

    /// Takes a connection that was made.
    fn take_connection(&mut self, now: Nanos) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        match attempt.made.try_recv() {
            Ok(queue) => {
                let (ready, depth) = (queue.ready(), queue.depth());
                self.geometry = Some(TierGeometry { sector: ready.block_size, bytes: ready.capacity });
                self.flight = vec![None; depth as usize];
                self.scratch = vec![Vec::new(); depth as usize];
                self.free = (0..depth).rev().collect();
                (self.queue, self.attempt, self.lost) = (Some(queue), None, None);
                self.connections += 1;
                self.has_volatile_cache |= ready.volatile_write_cache;
                (self.doubt, self.attend_at) = (Nanos(0), now);
                self.source.set_trouble(None);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => {
                self.attempt = None;
                false
            }
        }
    }

    #[cold]
    fn lose(&mut self, now: Nanos, why: &TransportError) {
        let Some(queue) = self.queue.take() else { return };
        tracing::warn!("{}: {why}; it is connected to again", self.source.url);
        self.source.set_trouble(Some(why.to_string()));
        queue.shut_down();
        let wait = self.source.options.keep_alive + MARGIN;
        self.doubt = now.saturating_add(Nanos(wait.as_nanos() as u64));
        (self.attend_at, self.has_more_to_send, self.unsent) = (Nanos::NEVER, false, 0);
        let given_up = std::mem::take(&mut self.scratch);
        for (part, scratch) in std::mem::take(&mut self.flight).into_iter().zip(given_up).rev() {
            // What was given up has been answered.
            if let Some(part) = part.filter(|_| scratch.is_empty()) {
                self.commands.waiting.push_front(part);
            }
        }
        // What was carried out of a command that is not over is carried out again: its end is that of all its parts.
        self.commands.send_again();
        self.free.clear();
        self.lost = Some(now);
        self.connect(Some(queue.association()));
    }

    /// Commands do not wait for the connection for ever.
    fn fail_late(&mut self, now: Nanos) {
        if self.queue.is_some() || self.commands.waiting.is_empty() {
            return;
        }
        let since = *self.lost.get_or_insert(now);
        let timeout = Nanos(self.source.options.timeout.as_nanos() as u64);
        if now.saturating_sub(since) >= timeout {
            self.commands.fail_waiting();
        }
    }

    fn submit_waiting(&mut self, memory: &mut dyn TierMemory) -> Result<(), TransportError> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while let Some(slot) = self.free.pop() {
            let Some(part) = self.commands.next(queue.max_io()) else {
                self.free.push(slot);
                break;
            };
            self.flight[slot as usize] = Some(part);
            let io = Io { kind: part.kind, offset: part.offset, len: part.len(), slot };
            let mut slots = SlotMemory { flight: &self.flight, scratch: &mut self.scratch, memory };
            match queue.submit(io, &mut slots) {
                Ok(()) => (self.has_more_to_send, self.unsent) = (true, self.unsent + 1),
                Err(TransportError::Usage(why)) => {
                    self.flight[slot as usize] = None;
                    self.free.push(slot);
                    self.commands.end(part.command, false);
                    self.source.set_trouble(Some(why));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn send_submitted(&mut self, memory: &mut dyn TierMemory) -> Result<(), TransportError> {
        let Some(queue) = self.queue.as_mut().filter(|_| self.has_more_to_send) else { return Ok(()) };
        self.unsent = 0;
        self.has_more_to_send =
            !queue.send(&SlotMemory { flight: &self.flight, scratch: &mut self.scratch, memory })?;
        Ok(())
    }

    fn exchange(&mut self, memory: &mut dyn TierMemory) -> Result<bool, TransportError> {
        let mut any = false;
        loop {
            self.submit_waiting(memory)?;
            self.send_submitted(memory)?;
            let Some(queue) = &mut self.queue else { return Ok(any) };
            let mut slots = SlotMemory { flight: &self.flight, scratch: &mut self.scratch, memory };
            let got = queue.receive(&mut slots, &mut self.finished)?;
            for done in self.finished.drain(..) {
                let Some(part) = self.flight[done.slot as usize].take() else { continue };
                self.free.push(done.slot);
                if std::mem::take(&mut self.scratch[done.slot as usize]).is_empty() {
                    self.commands.end_part(part, done.status.is_success());
                }
            }
            // An answer may have asked for data.
            if got {
                let slots = SlotMemory { flight: &self.flight, scratch: &mut self.scratch, memory };
                self.has_more_to_send = !queue.send(&slots)?;
            }
            any |= got;
            let may_go_on = !self.commands.waiting.is_empty() && !self.free.is_empty();
            if !got || !may_go_on {
                return Ok(any);
            }
        }
    }
}

/// The memory of what is in flight.
struct SlotMemory<'a> {
    flight: &'a [Option<Part>],
    scratch: &'a mut [Vec<u8>],
    memory: &'a mut dyn TierMemory,
}

impl SlotMemory<'_> {
    fn place(&self, cid: u16) -> Option<super::MemoryPlace> {
        self.flight.get(usize::from(cid)).copied().flatten().and_then(|part| part.place)
    }
}

impl Buffers for SlotMemory<'_> {
    fn buffer(&mut self, cid: u16) -> &mut [u8] {
        if self.scratch.get(usize::from(cid)).is_some_and(|scratch| !scratch.is_empty()) {
            return &mut self.scratch[usize::from(cid)];
        }
        match self.place(cid) {
            Some(place) => self.memory.bytes_mut(&place),
            None => &mut [],
        }
    }

    fn bytes(&self, cid: u16) -> &[u8] {
        self.place(cid).map_or(&[], |place| self.memory.bytes(&place))
    }
}

impl Tier for NvmeTcpTier {
    fn geometry(&self) -> Option<TierGeometry> {
        self.geometry
    }

    fn is_local(&self) -> bool {
        matches!(self.source.host.as_str(), "localhost" | "::1") || self.source.host.starts_with("127.")
    }

    fn submit(&mut self, now: Nanos, command: TierCommandId, what: TierCommand, memory: &mut dyn TierMemory) {
        // What was acknowledged lasts already: a flush has no effect (base 2.0, 7.1), and would only wait behind the writes under way.
        if what == TierCommand::Flush && self.queue.is_some() && !self.has_volatile_cache {
            return self.commands.add_done(command);
        }
        self.commands.add(command, what);
        // One that was made since the last poll is there: nothing is late then.
        if self.queue.is_none() && !self.take_connection(now) {
            self.connect(None);
            self.fail_late(now);
        } else if let Err(e) = self.submit_waiting(memory) {
            self.lose(now, &e);
        }
    }

    fn send(&mut self, memory: &mut dyn TierMemory) {
        let in_flight = self.flight.len() - self.free.len();
        if self.unsent == 0 || self.unsent * SENT_TOGETHER < in_flight {
            return;
        }
        if let Err(e) = self.send_submitted(memory) {
            self.lose(clock(), &e);
        }
    }

    fn abort(&mut self, command: TierCommandId) {
        let mut has_write = false;
        for (slot, part) in self.flight.iter().enumerate() {
            let Some(part) = part.filter(|part| part.command == command) else { continue };
            has_write |= part.kind == IoKind::Write;
            // A flush has no memory; that something is there says that it was given up.
            self.scratch[slot] = vec![0; (part.len() as usize).max(1)];
        }
        self.commands.give_up(command);
        if has_write {
            let why = TransportError::Timeout("a write was given up, and the association with it".into());
            self.lose(clock(), &why);
        }
    }

    fn poll(&mut self, now: Nanos, memory: &mut dyn TierMemory, done: &mut Vec<TierDone>) -> bool {
        let connected = self.queue.is_none() && self.take_connection(now);
        let any = match self.exchange(memory) {
            Ok(any) => any,
            Err(e) => {
                self.lose(now, &e);
                true
            }
        };
        self.fail_late(now);
        self.commands.take_over(done);
        any || connected
    }

    fn attend(&mut self, now: Nanos) {
        let Some(queue) = &mut self.queue else { return };
        if now < self.attend_at {
            return;
        }
        self.attend_at = now.saturating_add(Nanos(self.source.connect.kato.get() / 4));
        if let Err(e) = queue.attend(now) {
            self.lose(now, &e);
        }
    }

    fn pending(&self) -> usize {
        self.commands.len()
    }

    fn socket(&self) -> Option<(BorrowedFd<'_>, bool)> {
        // What was not tried to be sent wants no room.
        self.queue.as_ref().map(|queue| (queue.socket(), self.has_more_to_send && self.unsent == 0))
    }

    fn has_finished(&self) -> bool {
        self.commands.has_over()
    }

    fn connection(&self) -> u64 {
        self.connections
    }

    fn has_volatile_cache(&self) -> bool {
        self.has_volatile_cache
    }

    fn due(&self) -> Nanos {
        match &self.queue {
            Some(_) => self.attend_at,
            // Nobody else keeps it alive.
            None if self.attempt.as_ref().is_some_and(|attempt| attempt.is_made.load(Ordering::Acquire)) => Nanos(0),
            None if self.commands.waiting.is_empty() => Nanos::NEVER,
            None => self.lost.map_or(Nanos(0), |_| clock().saturating_add(LOOK)),
        }
    }

    fn may_still_write(&self, now: Nanos) -> bool {
        now < self.doubt
    }

    fn trouble(&self) -> Option<String> {
        let text = self.source.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        text.map(|text| format!("{}: {text}", self.source.url))
    }
}

impl Source {
    fn set_trouble(&self, text: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn ring(&self) {
        if let Some(bell) = &self.options.bell {
            fds::signal(&**bell);
        }
    }

    /// Connects, when the association of before has ended, and looks at the label.
    fn connect_once(
        &self,
        before: Option<TierGeometry>,
        ended: &mut Option<(AssociationId, Instant)>,
        stop: &AtomicBool,
    ) -> Result<NvmeTcpCallerQueue, TransportError> {
        let mut controller = RemoteController::connect(&self.host, self.port, self.connect.clone())?;
        let mut queue = controller.caller_queue(MAX_IO)?;
        let ready = queue.ready();
        let geometry = TierGeometry { sector: ready.block_size, bytes: ready.capacity };
        if before.is_some_and(|before| before != geometry) {
            return Err(TransportError::Refused(format!("{}: another namespace is there than was before", self.url)));
        }
        if let Some((lost, since)) = *ended {
            let limit = self.options.keep_alive + MARGIN;
            loop {
                match association((&self.host, self.port), &self.connect, lost)? {
                    Association::Ended => break,
                    // A target that says neither has ended it by its keep alive timeout.
                    Association::Unclear if since.elapsed() >= limit => break,
                    Association::Lives if since.elapsed() >= limit + LIVES_AT_MOST => break,
                    Association::Lives | Association::Unclear => {}
                }
                if stop.load(Ordering::Acquire) {
                    return Err(TransportError::Timeout("nobody wants it any more".into()));
                }
                std::thread::sleep(ASK_AGAIN);
            }
            *ended = None;
        }
        if let Some(check) = &self.options.label {
            let first = read_first(&mut queue)?;
            check(&first).map_err(|e| TransportError::Refused(format!("{}: {e}", self.url)))?;
        }
        Ok(queue)
    }
}

/// Memory of the label.
struct LabelMemory(Vec<u8>);

impl Buffers for LabelMemory {
    fn buffer(&mut self, _: u16) -> &mut [u8] {
        &mut self.0
    }
    fn bytes(&self, _: u16) -> &[u8] {
        &self.0
    }
}

/// Reads the first bytes of the namespace, and waits.
fn read_first(queue: &mut NvmeTcpCallerQueue) -> Result<Vec<u8>, TransportError> {
    let mut memory = LabelMemory(vec![0; LABEL_BYTES]);
    let begun = Instant::now();
    queue.submit(Io { kind: IoKind::Read, offset: 0, len: LABEL_BYTES as u32, slot: 0 }, &mut memory)?;
    let mut done = Vec::new();
    loop {
        queue.send(&memory)?;
        let got = queue.receive(&mut memory, &mut done)?;
        if let Some(done) = done.first() {
            return match done.status.is_success() {
                true => Ok(memory.0),
                false => Err(TransportError::Refused("its first sectors cannot be read".into())),
            };
        }
        if begun.elapsed() >= LABEL_TIMEOUT {
            return Err(TransportError::Timeout("its first sectors are not read in time".into()));
        }
        if !got {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            // An interrupted wait is one that is over.
            let _ = poll(&mut [PollFd::new(&queue.socket(), PollFlags::IN)], Some(&timeout));
        }
    }
}
