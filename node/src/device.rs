//! The executor: carries out what a drive's machine decides, moving bytes between its media and the doors through [`Host`].

use crate::config::{DeviceConfig, FlashConfig, MediaConfig};
use crate::direct::Direct;
use crate::flash::FlashService;
use crate::remote::Remote;
use crate::target;
use crate::transfer;
use std::fmt;
use std::path::Path;
use weir_controller::{
    Config as MachineConfig, Effect, Effects, Event, Host, Io, NamespaceConfig, Op, Owner, Subsystem,
};
use weir_driver::TransportError;
use weir_spec::nvme::Status;
use weir_sys::media::{FlashState, Media, MediaError, MediaKind, Null, Spec, Store};
use weir_sys::reactor::{FileDone, Reactor, Ready};
use weir_units::{Bytes, Nanos};

/// Commands that are executed before completions leave for their hosts.
const BATCH: usize = 64;

/// Runs of a drive before another drive of the shard has its turn.
const RUNS: usize = 4;

/// Why a drive cannot be had.
#[derive(Debug)]
pub enum OpenError {
    /// Its media.
    Media(MediaError),
    /// The drive that it is made of.
    Target(TransportError),
    /// Its machine refuses the configuration.
    Subsystem(weir_controller::Error),
    /// Its size.
    Capacity(String),
    /// Its flash.
    Flash(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Media(e) => e.fmt(f),
            OpenError::Target(e) => write!(f, "media: {e}"),
            OpenError::Subsystem(e) => e.fmt(f),
            OpenError::Capacity(e) | OpenError::Flash(e) => f.write_str(e),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<MediaError> for OpenError {
    fn from(e: MediaError) -> Self {
        OpenError::Media(e)
    }
}

impl From<weir_controller::Error> for OpenError {
    fn from(e: weir_controller::Error) -> Self {
        OpenError::Subsystem(e)
    }
}

/// Where a drive's bytes are, by how the medium answers.
enum Backend {
    /// At once.
    Store(Store),
    /// Through the reactor.
    Direct(Direct),
    /// When it is polled.
    Remote(Remote),
}

/// A drive: its machine, its media, and the way between them.
pub struct Device {
    machine: Subsystem,
    backend: Backend,
    effects: Effects,
    /// What `Done` may push: nothing; kept because every `apply` takes a list.
    none: Effects,
    disconnects: Vec<Owner>,
    /// Of the namespace; the medium may be larger.
    capacity: u64,
    limit: u64,
    block_size: u32,
    due: Nanos,
    dirty: bool,
    /// Of a flash drive in a file.
    state: Option<FlashState>,
}

impl Device {
    /// Opens the media that the configuration names, with one namespace over all of it.
    ///
    /// # Errors
    /// Says what cannot be had and what to change.
    pub fn open(config: &DeviceConfig, mut machine: MachineConfig, now: Nanos) -> Result<Device, OpenError> {
        let beside = beside(config);
        let is_new = |path: &Path| !path.exists();
        let made = beside.map(|path| FlashState::check_pair(path).map(|()| is_new(path))).transpose()?;
        let (mut backend, size) = open_backend(config)?;
        let block_size = config.block_size;
        let limit = size;
        let size = config.capacity.map_or(limit, |c| c.get().min(limit));
        machine.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size, block_size, uuid: uuid_of(&config.nqn) }];
        if let Some(zoned) = &config.zoned {
            machine.zoned = vec![zoned.namespace(1, size, block_size).map_err(OpenError::Capacity)?];
        }
        let buffered = config.flash.as_ref().is_some_and(FlashConfig::is_volatile);
        machine.volatile_write_cache = buffered || !matches!(backend, Backend::Store(_));
        let mut machine = Subsystem::new(machine, now)?;
        let mut state = None;
        if let (Some(flash), Some(path)) = (&config.flash, beside) {
            let opened = FlashService::beside(path, flash, now).inspect_err(|_| {
                if made == Some(true) {
                    // Empty, and of no use without its state.
                    let _ = std::fs::remove_file(path);
                }
            });
            let (inside, found) = opened?;
            state = found;
            machine.set_service(Box::new(inside));
        } else if let Some(flash) = &config.flash {
            let inside = FlashService::new(&flash.config, flash.precondition, now);
            machine.set_service(Box::new(inside.map_err(|e| OpenError::Flash(e.to_string()))?));
        }
        if let (Some(state), Backend::Direct(direct)) = (&state, &mut backend) {
            direct.sync_beside(state.file().clone());
            machine.set_power_history(state.starts(), state.unsafe_shutdowns());
        }
        Ok(Self { limit, state, ..Self::new(machine, backend, size, block_size) })
    }

    /// The discovery service: a machine without media.
    pub fn discovery(machine: Subsystem) -> Device {
        Self::new(machine, Backend::Store(Store::Null(Null::new(0))), 0, 512)
    }

    fn new(machine: Subsystem, backend: Backend, capacity: u64, block_size: u32) -> Device {
        let (effects, none) = (Effects::new(BATCH), Effects::new(1));
        let disconnects = Vec::new();
        let (limit, due) = (capacity, Nanos::NEVER);
        let (dirty, state) = (true, None);
        Device { machine, backend, effects, none, disconnects, capacity, limit, block_size, due, dirty, state }
    }

    /// The end of its work: everything that completed is durable, and its state says that it was stopped. One that still
    /// executes something is left as a crash would leave it.
    pub fn close(&mut self, now: Nanos) {
        let quiet = self.is_quiet();
        let Some(state) = self.state.take().filter(|_| quiet) else { return };
        if let Some(flash) = self.flash_mut() {
            flash.stop(now);
        }
        let synced = match &mut self.backend {
            Backend::Direct(direct) => direct.sync().map_err(|e| e.to_string()),
            _ => Ok(()),
        };
        if let Err(e) = synced.and_then(|()| state.close().map_err(|e| e.to_string())) {
            tracing::error!("the drive could not be stopped cleanly: {e}");
        }
    }

    fn flash_mut(&mut self) -> Option<&mut FlashService> {
        self.machine.service_mut()?.as_any_mut().downcast_mut()
    }

    /// The machine, to look at.
    pub fn machine(&self) -> &Subsystem {
        &self.machine
    }

    /// The machine, for connecting, disconnecting and changes; whatever is done shows in the next run.
    pub fn machine_mut(&mut self) -> &mut Subsystem {
        self.dirty = true;
        &mut self.machine
    }

    /// Bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Gives the namespace another size; its hosts are told by an event. What lies beyond a smaller size is kept.
    ///
    /// # Errors
    /// No whole blocks, none at all, or more than the medium has.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OpenError> {
        if bytes == 0 || bytes > self.limit {
            let (size, most) = (Bytes(bytes), Bytes(self.limit));
            return Err(OpenError::Capacity(format!(
                "{size} is out of range: this drive was opened with room for {most} (max_capacity)"
            )));
        }
        self.machine_mut().resize_namespace(1, bytes)?;
        self.capacity = bytes;
        Ok(())
    }

    /// What has broken its media, in words.
    pub fn fault(&self) -> Option<String> {
        match &self.backend {
            Backend::Store(_) => None,
            Backend::Direct(direct) => direct.fault().map(ToString::to_string),
            Backend::Remote(remote) => remote.fault().map(ToString::to_string),
        }
    }

    /// Bytes of a logical block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Takes one event; what follows from it happens in [`run`](Self::run).
    #[inline]
    pub fn apply<H: Host>(&mut self, now: Nanos, event: Event, host: &mut H) {
        self.dirty = true;
        self.machine.apply(now, event, host, &mut self.none);
    }

    /// Serves what may be served now; true if anything was done.
    #[inline]
    pub fn run<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) -> bool {
        let mut busy = false;
        if let Backend::Remote(remote) = &mut self.backend {
            busy = remote.poll(now, &mut self.machine, host, &mut self.none);
            self.dirty |= busy;
        }
        if !self.dirty && now < self.due {
            return busy;
        }
        busy |= self.dirty;
        self.dirty = false;
        let mut event = if now >= self.due { Event::Tick } else { Event::Run };
        for _ in 0..RUNS {
            self.machine.apply(now, event, host, &mut self.effects);
            event = Event::Run;
            if self.effects.is_empty() {
                break;
            }
            busy = true;
            self.execute(now, host, reactor);
            if !self.machine.has_work() {
                break;
            }
        }
        self.dirty |= self.machine.has_work();
        self.due = self.machine.next_deadline().unwrap_or(Nanos::NEVER);
        busy
    }

    fn execute<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) {
        let effects = self.effects.as_slice();
        for (i, effect) in effects.iter().enumerate() {
            let io = match effect {
                Effect::Io(io) => io,
                Effect::Disconnect { owner, .. } => {
                    self.disconnects.push(*owner);
                    continue;
                }
            };
            let answer = match &mut self.backend {
                Backend::Store(store) => {
                    if let Some(Effect::Io(next)) = effects.get(i + 1) {
                        store.prefetch(next.offset, next.len);
                    }
                    Some(serve(store, io, host))
                }
                Backend::Direct(direct) => direct.start(*io, &self.machine, host, reactor),
                Backend::Remote(remote) => remote.start(*io, &self.machine, host),
            };
            if let Some(status) = answer {
                self.machine.apply(now, Event::Done { slot: io.slot, status }, host, &mut self.none);
            }
        }
        self.effects.clear();
    }

    /// A file operation of this drive has ended.
    pub fn file_done<H: Host>(&mut self, done: FileDone, now: Nanos, host: &mut H, reactor: &mut Reactor) {
        if let Backend::Direct(direct) = &mut self.backend {
            self.dirty = true;
            if let Some((slot, status)) = direct.finished(done, &self.machine, host, reactor) {
                if direct.fault().is_some() {
                    self.machine.note_media_fault(true);
                }
                self.machine.apply(now, Event::Done { slot, status }, host, &mut self.none);
            }
        }
    }

    /// When it must be run although nothing comes: a service time, a keep-alive, an admin rate.
    pub fn due(&self) -> Nanos {
        if self.dirty { Nanos(0) } else { self.due }
    }

    /// Nothing is being executed.
    pub fn is_quiet(&self) -> bool {
        self.machine.stats().slots_used == 0
    }

    fn must_poll(&self) -> bool {
        matches!(&self.backend, Backend::Remote(remote) if remote.in_flight() > 0)
    }

    fn label(&mut self, index: u32) {
        if let Backend::Direct(direct) = &mut self.backend {
            direct.label(index);
        }
    }
}

/// The file beside which the drive's state is kept.
fn beside(config: &DeviceConfig) -> Option<&Path> {
    match &config.media {
        MediaConfig::File(path) if config.flash.is_some() => Some(path),
        _ => None,
    }
}

fn open_backend(config: &DeviceConfig) -> Result<(Backend, u64), OpenError> {
    let kind = match &config.media {
        MediaConfig::Null => MediaKind::Null,
        MediaConfig::Ram => MediaKind::Ram,
        MediaConfig::File(path) => MediaKind::File(path.clone()),
        MediaConfig::Block(path) => MediaKind::Block(path.clone()),
        MediaConfig::Nvme(target) => return open_remote(config, target),
    };
    let capacity = config.max_capacity.or(config.capacity).map(|c| c.get());
    let spec = Spec { name: config.name.clone(), kind, capacity, block_size: config.block_size };
    let media = Media::open(&spec)?;
    let size = media.capacity() / u64::from(config.block_size) * u64::from(config.block_size);
    Ok(match media {
        Media::Store(store) => (Backend::Store(store), size),
        Media::File(file) => (Backend::Direct(Direct::new(file)), size),
    })
}

fn open_remote(config: &DeviceConfig, target: &str) -> Result<(Backend, u64), OpenError> {
    let pair = target::open(target, u32::from(config.slots)).map_err(OpenError::Target)?;
    let (found, block) = (pair.capacity(), pair.block_size());
    if config.block_size % block != 0 {
        let what = format!("{target}: its blocks have {block} bytes; give the drive block_size = {block}");
        return Err(OpenError::Capacity(what));
    }
    let size = config.capacity.map_or(found, |c| c.get());
    if size > found {
        return Err(OpenError::Capacity(format!("{target}: has {found} bytes, less than the drive's capacity {size}")));
    }
    Ok((Backend::Remote(Remote::new(pair)), size / u64::from(config.block_size) * u64::from(config.block_size)))
}

/// Sixteen bytes that stay the same for a name: FNV-1a over it, twice, marked as a UUID of version 8 (RFC 9562).
fn uuid_of(name: &str) -> [u8; 16] {
    let hash = |seed: u64| name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
    uuid[8..].copy_from_slice(&hash(0x8422_2325_cbf2_9ce4).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// One I/O on a medium that answers at once.
#[inline]
fn serve<H: Host>(store: &mut Store, io: &Io, host: &mut H) -> Status {
    let result = match io.op {
        Op::Read if matches!(store, Store::Null(_)) => host.write_nothing(io.owner, &io.data, io.len),
        Op::Read => store.read(io.offset, io.len, |at, bytes| host.write_data(io.owner, &io.data, at, bytes)),
        Op::Write => store.write(io.offset, io.len, |at, bytes| host.read_data(io.owner, &io.data, at, bytes)),
        Op::Compare => store.read(io.offset, io.len, |at, bytes| transfer::compare(io, at, bytes, host)),
        Op::WriteZeroes { deallocate: false } => store.zero(io.offset, io.len),
        Op::WriteZeroes { deallocate: true } | Op::Deallocate => store.deallocate(io.offset, io.len),
        Op::Flush => Ok(()),
    };
    result.err().unwrap_or(Status::SUCCESS)
}

/// The drives of a shard.
#[derive(Default)]
pub struct Drives {
    list: Vec<Device>,
}

impl Drives {
    /// Adds a drive; its place is the next number.
    pub fn push(&mut self, mut device: Device) {
        device.label(self.list.len() as u32);
        self.list.push(device);
    }

    /// A drive by its place.
    pub fn device(&self, index: u32) -> &Device {
        &self.list[index as usize]
    }

    /// A drive by its place, to be changed.
    pub fn device_mut(&mut self, index: u32) -> &mut Device {
        &mut self.list[index as usize]
    }

    /// A drive's machine, for connecting, disconnecting and changes.
    pub fn get(&mut self, index: u32) -> &mut Subsystem {
        self.list[index as usize].machine_mut()
    }

    /// Hands a command to its drive.
    #[inline]
    pub fn apply<H: Host>(&mut self, index: u32, now: Nanos, event: Event, host: &mut H) {
        self.list[index as usize].apply(now, event, host);
    }

    /// Runs every drive that has something to do.
    #[inline]
    pub fn run<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) -> bool {
        let mut busy = false;
        for device in &mut self.list {
            busy |= device.run(now, host, reactor);
        }
        busy
    }

    /// Queues whose connections the machines want closed.
    pub fn take_disconnects(&mut self, into: &mut Vec<Owner>) {
        for device in &mut self.list {
            into.append(&mut device.disconnects);
        }
    }

    /// A file operation has ended; its token says whose.
    pub fn media_ready<H: Host>(&mut self, ready: Ready, now: Nanos, host: &mut H, reactor: &mut Reactor) {
        if let Ready::File(done) = ready {
            let index = Direct::drive_of(done.token) as usize;
            if let Some(device) = self.list.get_mut(index) {
                device.file_done(done, now, host, reactor);
            }
        }
    }

    /// When one of them must be run.
    pub fn next_deadline(&self) -> Nanos {
        self.list.iter().map(Device::due).min().unwrap_or(Nanos::NEVER)
    }

    /// One of them waits for something that wakes nobody.
    pub fn must_poll(&self) -> bool {
        self.list.iter().any(|d| d.dirty || d.must_poll())
    }

    /// Upkeep for an idle moment: memory that was deallocated goes back a piece at a time. True while there is more.
    pub fn background(&mut self) -> bool {
        self.list.iter_mut().any(|device| match &mut device.backend {
            Backend::Store(store) => store.background(),
            _ => false,
        })
    }

    /// Ends the work of all; see [`Device::close`].
    pub fn close(&mut self, now: Nanos) {
        self.list.iter_mut().for_each(|d| d.close(now));
    }

    /// None of them executes anything.
    pub fn is_quiet(&self) -> bool {
        self.list.iter().all(Device::is_quiet)
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
