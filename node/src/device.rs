//! The executor: carries out what a drive's machine decides, moving bytes between its media and the doors through [`Host`].

mod backend;
mod contents;
mod drives;
mod error;
mod fault_state;
mod faults;
mod handover;
mod health;
mod inside;
mod lost;
mod metadata;
mod moments;
mod open;
mod open_channel;
mod own_flash;
mod power;
mod power_state;
mod regions;
mod remembered;
mod remembering;
mod reports;
mod shape;
mod size;
mod state_file;
mod store;
mod volumes;

pub use contents::ChunkContents;
pub use drives::Drives;
pub use error::OpenError;
pub use handover::region;
pub use health::ThreadTime;
pub use moments::CaughtUp;
pub use power_state::{PowerCut, PowerReply};
pub use volumes::FRONT;

use crate::deadlines::{Deadlines, LARGE};
use crate::kernel_io::{KernelIo, Progress};
use crate::lateness::LATE;
use crate::metadata_store::Beside;
use crate::power_cut_undo::Undo;
use backend::Backend;
use fault_state::FaultStateFile;
use health::SpeedDiagnosis;
use inside::flash_of;
use open::open_backend;
use power_state::Down;
use remembered::{Kept, is_empty, remember};
use shape::{Told, uuid_of};
use state_file::beside;
use std::collections::VecDeque;
use std::path::Path;
use store::serve;
use weir_config::{CalibrationFile, DeviceConfig, FlashConfig, MediaConfig};
use weir_controller::{
    Effect, Effects, Event, Host, Io, Management, NamespaceConfig, Op, Owner, SlotId, Subsystem,
    SubsystemConfig as MachineConfig,
};
use weir_spec::nvme::Status;
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{FlashState, NonvolatileFile, Null, Store};
use weir_sys::reactor::{FileDone, Reactor};
use weir_units::Nanos;

/// Commands that are executed before completions leave for their hosts.
const BATCH: usize = 64;

/// Runs of a drive before another drive of the shard has its turn.
const RUNS: usize = 4;

/// How long a drive goes on before its hosts are shown what it has completed, while that is in time.
const SHOWN: Nanos = Nanos::from_micros(2);

/// A drive: its machine, its media, and the way between them.
pub struct Device {
    machine: Subsystem,
    backend: Backend,
    /// Metadata of its blocks, where they have some.
    beside: Beside,
    effects: Effects,
    /// What `Done` may push: nothing; kept because every `apply` takes a list.
    none: Effects,
    disconnects: Vec<Owner>,
    /// Emitted, but another drive was due before its bytes were moved.
    deferred: VecDeque<Io>,
    /// I/O of a remote medium that has ended.
    ended: Vec<(SlotId, Status)>,
    deadlines: Deadlines,
    /// The times handed in are the real clock's, and somebody measures.
    real_time: bool,
    /// Waits for the others of its shard in this turn.
    behind: bool,
    /// Of the namespace; the medium may be larger.
    capacity: u64,
    shape: Told,
    limit: u64,
    block_size: u32,
    due: Nanos,
    dirty: bool,
    /// Of a flash drive, zones or chunks in a file.
    state: Option<FlashState>,
    /// What its machine remembers without power, and the generation that was written last.
    remembered: Option<Kept>,
    /// What a power cut puts back, where it can take something.
    undo: Option<Undo>,
    /// Without power.
    down: Option<Down>,
    /// The generation of its associations that somebody has noted.
    noted: Option<u64>,
    /// What its rules of failures have done, for the next process, and how much of that was written.
    fault_state: Option<FaultStateFile>,
    faults_seen: u64,
    speed: SpeedDiagnosis,
}

impl Device {
    /// Opens the media that the configuration names, with one namespace over all of it.
    ///
    /// # Errors
    /// Says what cannot be had and what to change.
    pub fn open(config: &DeviceConfig, machine: MachineConfig, now: Nanos) -> Result<Device, OpenError> {
        Self::open_kept(config, machine, now, &Keep::none())
    }

    /// As [`open`](Self::open), of memory that a worker before this one has left, or that is held from now on.
    ///
    /// # Errors
    /// As [`open`](Self::open); also that what is held is another drive's.
    pub fn open_kept(
        config: &DeviceConfig,
        mut machine: MachineConfig,
        now: Nanos,
        keep: &Keep,
    ) -> Result<Device, OpenError> {
        let beside = beside(config);
        let is_new = |path: &Path| !path.exists();
        let new_medium = matches!(&config.media, MediaConfig::File(path) if is_empty(path));
        let made = beside.map(|path| FlashState::check_pair(path).map(|()| is_new(path))).transpose()?;
        let unmake = || {
            if let (Some(true), Some(path)) = (made, beside) {
                // Empty, and of no use without its state.
                let _ = std::fs::remove_file(path);
            }
        };
        if let (Some(keys), Some(flash)) = (&config.open_channel, &config.flash) {
            return Self::open_channel(config, machine, &keys.on(flash), now, keep).inspect_err(|_| unmake());
        }
        if let MediaConfig::File(path) = &config.media {
            NonvolatileFile::check_pair(path, new_medium)?;
            Beside::check_pair(path, new_medium)?;
        }
        let (mut backend, limit) = open_backend(config, keep)?;
        let (size, block_size) = (config.capacity.map_or(limit, |c| c.get().min(limit)), config.block_size);
        let of = NamespaceConfig { nsid: 1, start: 0, size, block_size, uuid: uuid_of(&config.nqn, backend.medium()) };
        machine.namespaces = vec![of];
        if let Some(zoned) = &config.zoned {
            machine.zoned = vec![zoned.namespace(1, size, block_size).map_err(OpenError::Capacity)?];
        }
        let buffered = config.flash.as_ref().is_some_and(FlashConfig::is_volatile);
        let buffered = buffered || machine.zoned.iter().any(|zones| zones.volatile);
        // Zones stay as they were made.
        machine.management = config.zoned.is_none().then_some(Management {
            capacity: limit,
            // What a store answers it answers in any blocks.
            least_block: if matches!(backend, Backend::Store(_)) { 512 } else { block_size },
            // A file has one beside it for metadata; a block device and another drive have no place for it.
            metadata: matches!(backend, Backend::Store(_)) || matches!(config.media, MediaConfig::File(_)),
        });
        machine.volatile_write_cache = buffered || !matches!(backend, Backend::Store(_));
        // A store moves the bytes of a command in one go; elsewhere only a block is sure to be one.
        machine.atomic_write = if matches!(backend, Backend::Store(_)) { u64::MAX } else { block_size.into() };
        let mut machine = Subsystem::new(machine, now)?;
        machine.set_early(!matches!(backend, Backend::Store(_)));
        let mut state = None;
        if let (Some(flash), Some(path)) = (&config.flash, beside) {
            let at = (path, handover::map(config));
            let (inside, found) = crate::flash::beside((at.0, &at.1), flash, now, keep).inspect_err(|_| unmake())?;
            state = found;
            machine.set_service(Box::new(inside::with_policy(inside, flash).inspect_err(|_| unmake())?));
        } else if let Some(flash) = &config.flash {
            let (inside, found) = handover::flash(config, flash, now, keep)?;
            state = found;
            machine.set_service(Box::new(inside::with_policy(inside, flash)?));
        }
        weir_drive::set_cost_policy(&mut machine, config).inspect_err(|_| unmake())?;
        if config.zoned.is_some() {
            state = regions::zones(config, &mut machine, &mut backend, keep).inspect_err(|_| unmake())?;
        }
        let remembered = remember(config, new_medium, &mut machine, keep)?;
        let undo = backend.undo(config);
        let beside = Beside::open(config, limit, machine.has_metadata())?;
        if let (Some(file), Backend::KernelIo(direct)) = (beside.file(), &mut backend) {
            direct.sync_beside(file);
        }
        let device = Self { limit, remembered, undo, beside, ..Self::new(machine, backend, size, block_size) };
        Ok(device.on(state).held_to(config))
    }

    /// Held to its load tests, if it was calibrated.
    fn held_to(mut self, config: &DeviceConfig) -> Device {
        let of = |file: &CalibrationFile| file.calibration.drive(config.slots.into(), config.slot_bytes).ok();
        self.speed = SpeedDiagnosis::of(config.calibration.as_ref().and_then(of));
        self
    }

    /// With the state that it goes on from, if it has one.
    fn on(mut self, state: Option<FlashState>) -> Device {
        if let Some(state) = &state {
            if let Backend::KernelIo(direct) = &mut self.backend {
                direct.sync_beside(state.file().clone());
            }
            self.machine.set_power_history(state.starts(), state.unsafe_shutdowns());
        }
        Device { state, ..self }
    }

    /// The discovery service: a machine without media.
    pub fn discovery(machine: Subsystem) -> Device {
        Self::new(machine, Backend::Store(Store::Null(Null::new(0))), 0, 512)
    }

    fn new(machine: Subsystem, backend: Backend, capacity: u64, block_size: u32) -> Device {
        Device {
            machine,
            backend,
            beside: Beside::new("", 0),
            effects: Effects::new(BATCH),
            none: Effects::new(1),
            disconnects: Vec::new(),
            deferred: VecDeque::new(),
            ended: Vec::new(),
            deadlines: Deadlines::default(),
            real_time: false,
            behind: false,
            capacity,
            shape: Told::size(capacity),
            limit: capacity,
            block_size,
            due: Nanos::NEVER,
            dirty: true,
            state: None,
            remembered: None,
            undo: None,
            down: None,
            noted: None,
            fault_state: None,
            faults_seen: 0,
            speed: SpeedDiagnosis::default(),
        }
    }

    /// The end of its work: everything that completed is durable, and its state says that it was stopped. One that still
    /// executes something is left as a crash would leave it.
    pub fn close(&mut self, now: Nanos) {
        let quiet = self.may_leave();
        self.stop_remembering(now, quiet);
        let Some(state) = self.state.take().filter(|_| quiet) else { return };
        if let Some(flash) = flash_of(&mut self.machine) {
            flash.stop(now);
        }
        let synced = match &mut self.backend {
            Backend::KernelIo(direct) => direct.sync().map_err(|e| e.to_string()),
            _ => Ok(()),
        };
        if let Err(e) = synced.and_then(|()| state.close().map_err(|e| e.to_string())) {
            tracing::error!("the drive could not be stopped cleanly: {e}");
        }
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

    /// Takes one event; what follows from it happens in [`run`](Self::run).
    #[inline]
    pub fn apply<H: Host>(&mut self, now: Nanos, event: Event, host: &mut H) {
        if matches!(event, Event::Run) {
            // Something was given to the machine already; what follows has its effects when the drive runs.
            self.dirty = true;
            return;
        }
        self.dirty = true;
        self.machine.apply(now, event, host, &mut self.none);
    }

    /// Serves what may be served now; true if anything was done. From `until` on it begins no more, and goes on in the next
    /// run.
    #[inline]
    pub fn run<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor, until: Nanos) -> bool {
        let caught = self.catch_up(now, host, reactor, until);
        if caught == CaughtUp::Behind {
            return true;
        }
        let mut busy = caught == CaughtUp::Moved;
        busy |= self.poll_remote(now, host, reactor);
        if self.down.is_some() && !self.power_back(now) {
            return busy;
        }
        if !self.dirty && now < self.due {
            return busy;
        }
        busy |= self.dirty;
        busy |= self.release(now, host, reactor, until);
        self.dirty = false;
        let mut event = if now >= self.due { Event::Tick } else { Event::Run };
        let runs =
            if self.deferred.is_empty() || self.carry_out_deferred(now, host, reactor, until) { RUNS } else { 0 };
        for _ in 0..runs {
            self.machine.apply(now, event, host, &mut self.effects);
            event = Event::Run;
            if self.machine.fault_changes() != self.faults_seen {
                self.write_faults();
            }
            if self.effects.is_empty() {
                break;
            }
            busy = true;
            self.execute(now, host, reactor, until);
            if !self.machine.has_work() || !self.deferred.is_empty() {
                break;
            }
        }
        self.settle(now);
        busy
    }

    /// Remembers what has changed; whether there is more to do, and when it must be run although nothing comes.
    #[inline]
    fn settle(&mut self, now: Nanos) {
        self.write_remembered(now);
        if self.machine.nonvolatile_generation() != self.shape.seen {
            self.look_at_shape();
        }
        self.dirty |= self.machine.has_work() || !self.deferred.is_empty();
        let unwritten = self.remembered.as_ref().map_or(Nanos::NEVER, Kept::again);
        let far = if let Backend::Remote(remote) = &self.backend { remote.due() } else { Nanos::NEVER };
        self.due = self.next_moment().min(unwritten).min(far);
    }

    /// Completes what was done before its time, until `until`; true if there was anything.
    #[inline]
    fn release<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &Reactor, until: Nanos) -> bool {
        let mut any = false;
        while let Some((slot, status)) = self.deadlines.release(now) {
            let delivered = match &mut self.backend {
                Backend::KernelIo(direct) => direct.deliver(slot, &self.machine, host),
                _ => None,
            };
            let status = delivered.unwrap_or(status);
            self.deadlines.complete((now, slot, status), &mut self.machine, host, &mut self.none);
            any = true;
            if until != Nanos::NEVER && reactor.now() >= until {
                break;
            }
        }
        any
    }

    #[inline]
    fn poll_remote<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) -> bool {
        let Backend::Remote(remote) = &mut self.backend else { return false };
        remote.watch(reactor);
        let busy = remote.poll(now, &mut self.machine, host, &mut self.ended);
        // The far side may have gone, and then wakes nobody.
        self.due = self.due.min(remote.due());
        for (slot, status) in self.ended.drain(..) {
            self.deadlines.complete_when_due((now, slot, status), &mut self.machine, host, &mut self.none);
        }
        self.dirty |= busy;
        busy
    }

    fn execute<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor, until: Nanos) {
        let Device {
            machine, backend, beside, effects, none, disconnects, deferred, deadlines, real_time, undo, ..
        } = self;
        let mut executor = Executor { now, machine, backend, beside, deadlines, none, undo, real_time: *real_time };
        let effects_now = effects.as_slice();
        let mut over = false;
        for (i, effect) in effects_now.iter().enumerate() {
            let io = match effect {
                Effect::Io(io) if over => {
                    deferred.push_back(*io);
                    continue;
                }
                Effect::Io(io) => io,
                Effect::Disconnect { owner, .. } => {
                    disconnects.push(*owner);
                    continue;
                }
            };
            if let (Backend::Store(store), Some(Effect::Io(next))) = (&mut *executor.backend, effects_now.get(i + 1)) {
                store.prefetch(next.offset, next.len);
            }
            executor.carry_out(io, host, reactor);
            over = until != Nanos::NEVER && i + 1 < effects_now.len() && reactor.now() >= until;
        }
        effects.clear();
    }

    /// Carries out what was deferred, until `until`; whether that was all.
    #[cold]
    fn carry_out_deferred<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor, until: Nanos) -> bool {
        let Device { machine, backend, beside, none, deferred, deadlines, real_time, undo, .. } = self;
        let mut executor = Executor { now, machine, backend, beside, deadlines, none, undo, real_time: *real_time };
        while let Some(io) = deferred.pop_front() {
            if executor.machine.is_live(io.slot) {
                executor.carry_out(&io, host, reactor);
            } else {
                // Its connection has gone meanwhile, and its data with it.
                executor.complete(io.slot, Status::SUCCESS, host);
            }
            if until != Nanos::NEVER && reactor.now() >= until {
                break;
            }
        }
        deferred.is_empty()
    }

    /// A file operation of this drive has ended.
    pub fn file_done<H: Host>(&mut self, done: FileDone, now: Nanos, host: &mut H, reactor: &mut Reactor) {
        let Backend::KernelIo(direct) = &mut self.backend else { return };
        self.dirty = true;
        let step = direct.finished((done, now), &mut self.beside, &self.machine, host, reactor);
        if direct.fault().is_some() {
            self.machine.note_media_fault(true);
        }
        let held = direct.holds_wholes();
        let Device { machine, backend, beside, none, deadlines, real_time, undo, .. } = self;
        let mut executor = Executor { now, machine, backend, beside, deadlines, none, undo, real_time: *real_time };
        match step {
            Progress::Goes => {}
            Progress::Saved(io, bytes) => executor.start_saved(&io, bytes, host, reactor),
            Progress::Ended(io, status) => {
                executor.forget(&io, status);
                executor.deadlines.complete_when_due((now, io.slot, status), executor.machine, host, executor.none);
                if held {
                    executor.go_on_whole(host, reactor);
                }
                self.see_ended(now, &io, status);
            }
        }
    }

    /// How well it keeps its modelled times.
    pub fn deadlines(&mut self) -> &mut Deadlines {
        &mut self.deadlines
    }

    /// When it must be run although nothing comes: a service time, a keep-alive, an admin rate.
    pub fn due(&self) -> Nanos {
        match &self.down {
            Some(down) => down.until(),
            None if self.dirty => Nanos(0),
            None => self.due,
        }
    }

    /// Until when it may go on before its hosts are shown what it has completed. Of commands that are due together the first
    /// must not wait for the last; those that are late already are not made less so by pauses.
    #[inline]
    fn shown_by(&self, now: Nanos) -> Nanos {
        let oldest = self.deferred.front().and_then(|io| self.machine.due(io.slot)).unwrap_or(self.due);
        match oldest <= now && now.saturating_sub(oldest) < LATE {
            true => now.saturating_add(SHOWN),
            false => Nanos::NEVER,
        }
    }

    /// Nothing is being executed, neither by the machine nor by what is behind it, and nobody waits for work of its own in pieces.
    pub fn is_quiet(&self) -> bool {
        (self.down.is_some() || self.machine.is_at_rest()) && self.backend.in_flight() == 0
    }

    /// Whether the next process can have it: what is being executed has moved nothing yet, and goes on there when it is due.
    pub fn may_leave(&self) -> bool {
        (self.down.is_some() || self.machine.may_leave()) && self.backend.in_flight() == 0
    }

    /// Which memory its data is in, where that ends with those who have it open, or which volume it is: another number is another one.
    /// 0: it is what its configuration names.
    pub fn medium(&self) -> u64 {
        self.backend.medium()
    }

    /// Where what its hosts have written is, as bytes for the next process: who finds other ones there has another drive.
    pub fn possessions(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.medium().to_le_bytes());
        bytes[8..].copy_from_slice(&self.beside.medium().to_le_bytes());
        bytes
    }

    fn must_poll(&self) -> bool {
        matches!(&self.backend, Backend::Remote(remote) if remote.must_poll())
    }

    fn label(&mut self, index: u32) {
        if let Backend::KernelIo(direct) = &mut self.backend {
            direct.label(index);
        }
    }
}

/// What carries out I/O at one moment.
struct Executor<'a> {
    now: Nanos,
    machine: &'a mut Subsystem,
    backend: &'a mut Backend,
    beside: &'a mut Beside,
    deadlines: &'a mut Deadlines,
    none: &'a mut Effects,
    undo: &'a mut Option<Undo>,
    real_time: bool,
}

impl Executor<'_> {
    #[inline]
    fn complete<H: Host>(&mut self, slot: SlotId, status: Status, host: &mut H) {
        self.deadlines.complete((self.now, slot, status), self.machine, host, self.none);
    }

    #[inline]
    fn carry_out<H: Host>(&mut self, io: &Io, host: &mut H, reactor: &mut Reactor) {
        if self.undo.is_some() && self.remember(io, reactor) {
            return;
        }
        if (self.machine.has_metadata() || self.beside.is_made()) && self.carry_out_whole(io, host, reactor) {
            return;
        }
        let answer = match &mut *self.backend {
            Backend::Store(_) if self.real_time && Deadlines::is_large(io.len) => {
                return self.move_large(io, host, reactor);
            }
            Backend::Store(store) => Some(serve(store, io, host)),
            Backend::KernelIo(direct) => direct.start(*io, self.machine, host, reactor),
            Backend::Remote(remote) => remote.start(*io, self.machine, host),
            Backend::Volume(front) => {
                front.outbox.push_back(*io);
                None
            }
        };
        if let Some(status) = answer {
            self.forget(io, status);
            self.complete(io.slot, status, host);
        }
    }

    /// Moves so many bytes that it is begun before the command is due, and that it is worth knowing how long it takes.
    fn move_large<H: Host>(&mut self, io: &Io, host: &mut H, reactor: &mut Reactor) {
        let Backend::Store(store) = &mut *self.backend else { return };
        let timed = self.machine.due(io.slot).is_some() && matches!(io.op, Op::Read | Op::Write | Op::Compare);
        let begun = if timed { reactor.now() } else { self.now };
        let status = serve(store, io, host);
        self.forget(io, status);
        if !timed {
            return self.complete(io.slot, status, host);
        }
        let now = reactor.now();
        self.machine.set_lead(self.deadlines.learn(io.len, now.saturating_sub(begun)), LARGE);
        self.deadlines.complete_when_due((now, io.slot, status), self.machine, host, self.none);
    }
}

#[cfg(test)]
mod cost_tests;

#[cfg(test)]
mod timed_tests;

#[cfg(test)]
mod health_tests;
#[cfg(test)]
mod moments_tests;

#[cfg(test)]
mod cut_tests;

#[cfg(test)]
mod loss_tests;

#[cfg(test)]
mod metadata_tests;

#[cfg(test)]
mod region_tests;

#[cfg(test)]
mod tests;
