//! The drives of a shard: they take turns by their deadlines. Those that have nothing to do for a while are not even looked at, so
//! that many of them cost the others nothing: whatever may change one of them wakes it.

use super::moments::{CaughtUp, REACH};
use super::volumes::{FRONT, Volumes};
use super::{Backend, Device, KernelIo, PowerReply, ThreadTime};
use crate::pool::parts::Via;
use crate::run_queue_wait::{RunQueueWait, Shown};
use crate::tokens::Kind;
use weir_controller::{Event, Host, Owner, Subsystem};
use weir_sys::reactor::{Reactor, Ready};
use weir_sys::sched::Waits;
use weir_units::Nanos;

/// How long a drive goes on when another drive of the shard has something due. Shorter would cost more in turns than it gains.
pub(super) const SLICE: Nanos = Nanos::from_micros(4);

/// What is due later than this is no reason to look at the clock after every command: all runs take less.
const NEAR: Nanos = Nanos::from_millis(2);

/// A drive that has nothing to do for as long is put to sleep.
const SLEEPY: Nanos = Nanos::from_millis(10);

/// Turns between looks at who may sleep.
const ROUND: u32 = 256;

/// Which drive has the earliest deadline, and the earliest of the others.
pub(super) struct Earliest {
    first: (Nanos, usize),
    second: Nanos,
}

impl Earliest {
    #[inline]
    pub(super) fn of(list: &[Device], awake: &[u32]) -> Self {
        let mut found = Earliest { first: (Nanos::NEVER, usize::MAX), second: Nanos::NEVER };
        for i in awake.iter().map(|i| *i as usize) {
            let device = &list[i];
            if device.due < found.first.0 {
                found = Earliest { first: (device.due, i), second: found.first.0 };
            } else {
                found.second = found.second.min(device.due);
            }
        }
        found
    }

    /// Until when that drive may begin commands for the sake of the others.
    #[inline]
    pub(super) fn slice(&self, drive: usize, now: Nanos) -> Nanos {
        let due = if self.first.1 == drive { self.second } else { self.first.0 };
        match due < now.saturating_add(NEAR) {
            true => due.max(now.saturating_add(SLICE)),
            false => Nanos::NEVER,
        }
    }
}

impl Device {
    /// This process ends, and the next one goes on with the drive behind this one.
    fn leave_open(&mut self) {
        if let Backend::Remote(remote) = &mut self.backend {
            remote.leave_open();
        }
    }

    /// The machine, for a look at what its hosts have written, or for what gives it nothing to do; who finds something there says so by
    /// [`Event::Run`].
    pub fn machine_to_poll(&mut self) -> &mut Subsystem {
        &mut self.machine
    }

    /// Somebody has noted its associations, and they have changed.
    #[inline]
    pub(super) fn is_noted_wrong(&self) -> bool {
        self.noted.is_some_and(|generation| generation != self.machine.association_generation())
    }

    /// It has nothing to do and nothing to tell until something comes or that time has.
    pub(super) fn is_idle(&self, until: Nanos) -> bool {
        let told =
            self.deferred.is_empty() && self.disconnects.is_empty() && !self.has_news() && !self.is_noted_wrong();
        let done = told && self.deadlines.handed().is_none() && !self.must_poll();
        done && self.down.is_none() && !self.dirty && self.due > until
    }
}

/// The drives of a shard.
#[derive(Default)]
pub struct Drives {
    pub(super) list: Vec<Device>,
    /// What is made of them.
    pub(super) volumes: Volumes,
    /// Those that are looked at in every turn, by their places.
    awake: Vec<u32>,
    /// Whether it is one of them, for each.
    is_awake: Vec<bool>,
    /// No other has something due earlier.
    rest: Rest,
    turns: u32,
    /// Since when one of them is behind, and what hosts have sent is not looked for.
    behind: Option<Nanos>,
    taken: RunQueueWait,
    /// What is being judged.
    shown: Vec<Shown>,
}

/// Until when the drives that sleep may.
struct Rest(Nanos);

impl Default for Rest {
    fn default() -> Self {
        Rest(Nanos::NEVER)
    }
}

impl Drives {
    /// Adds a drive; its place is the next number.
    pub fn push(&mut self, mut device: Device) {
        device.label(self.list.len() as u32);
        device.real_time = true;
        self.list.push(device);
        self.is_awake.push(false);
        self.wake(self.list.len() as u32 - 1);
    }

    /// A drive is looked at in every turn from now on.
    #[inline]
    pub(super) fn wake(&mut self, index: u32) {
        if index & FRONT != 0 {
            self.volumes.wake(index & !FRONT);
        } else if !self.is_awake[index as usize] {
            self.rouse(index);
        }
    }

    #[cold]
    fn rouse(&mut self, index: u32) {
        self.is_awake[index as usize] = true;
        let at = self.awake.partition_point(|i| *i < index);
        self.awake.insert(at, index);
    }

    /// Puts to sleep who has nothing to do for a while, and wakes whose time comes near.
    #[cold]
    fn tuck_in(&mut self, now: Nanos) {
        let (list, is_awake) = (&self.list, &mut self.is_awake);
        let soon = now.saturating_add(SLEEPY);
        self.awake.retain(|i| {
            let stays = !list[*i as usize].is_idle(soon);
            is_awake[*i as usize] = stays;
            stays
        });
        let late = (0u32..).zip(list).filter(|(_, d)| !d.is_idle(soon)).map(|(i, _)| i);
        let late: Vec<u32> = late.filter(|i| !is_awake[*i as usize]).collect();
        late.into_iter().for_each(|i| self.rouse(i));
        let asleep = self.list.iter().zip(&self.is_awake).filter(|(_, awake)| !**awake);
        self.rest = Rest(asleep.map(|(d, _)| d.due()).min().unwrap_or(Nanos::NEVER));
    }

    /// A drive by its place.
    #[inline]
    pub fn device(&self, index: u32) -> &Device {
        match index & FRONT {
            0 => &self.list[index as usize],
            _ => &self.volumes.fronts[(index & !FRONT) as usize],
        }
    }

    /// A drive by its place, to be changed.
    #[inline]
    pub fn device_mut(&mut self, index: u32) -> &mut Device {
        self.wake(index);
        match index & FRONT {
            0 => &mut self.list[index as usize],
            _ => &mut self.volumes.fronts[(index & !FRONT) as usize],
        }
    }

    /// How many drives there are; volumes are not counted.
    pub fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// The places of all drives and volumes.
    pub fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let fronts = 0..self.volumes.fronts.len() as u32;
        (0..self.count()).chain(fronts.map(|at| at | FRONT))
    }

    /// A drive's machine, for connecting, disconnecting and changes.
    pub fn get(&mut self, index: u32) -> &mut Subsystem {
        self.device_mut(index).machine_mut()
    }

    /// A drive's machine, to look at: the drive is not run for it.
    #[inline]
    pub fn machine(&self, index: u32) -> &Subsystem {
        self.device(index).machine()
    }

    /// A drive's machine, for a look at what its hosts have written; see [`Device::machine_to_poll`].
    pub fn to_poll(&mut self, index: u32) -> &mut Subsystem {
        match index & FRONT {
            0 => self.list[index as usize].machine_to_poll(),
            _ => self.volumes.fronts[(index & !FRONT) as usize].machine_to_poll(),
        }
    }

    /// Hands a command to its drive.
    #[inline]
    pub fn apply<H: Host>(&mut self, index: u32, now: Nanos, event: Event, host: &mut H) {
        self.device_mut(index).apply(now, event, host);
    }

    /// Cuts a drive's power; see [`Device::power_cut`].
    pub fn power_cut<H: Host>(
        &mut self,
        index: u32,
        now: Nanos,
        reply: PowerReply,
        host: &mut H,
        reactor: &mut Reactor,
    ) {
        self.wake(index);
        let Volumes { parts, fronts, .. } = &mut self.volumes;
        let host = &mut Via { doors: host, parts, fronts };
        self.list[index as usize].power_cut(now, reply, host, reactor);
    }

    /// Lets what was due until `now` happen before anything that has come since is given to the drives; see [`Device::catch_up`]. Behind is
    /// one that has to go on with it once its hosts were shown what it has completed; not for longer than [`REACH`].
    #[inline]
    pub fn catch_up<H: Host>(&mut self, now: Nanos, doors: &mut H, reactor: &mut Reactor) -> CaughtUp {
        match self.awake.iter().any(|i| self.list[*i as usize].is_late(now)) {
            true => self.catch_up_all(now, doors, reactor),
            false => CaughtUp::Idle,
        }
    }

    fn catch_up_all<H: Host>(&mut self, now: Nanos, doors: &mut H, reactor: &mut Reactor) -> CaughtUp {
        let Volumes { parts, fronts, .. } = &mut self.volumes;
        let host = &mut Via { doors, parts, fronts };
        let due = Earliest::of(&self.list, &self.awake);
        let (mut moved, mut behind) = (false, false);
        for i in self.awake.iter().map(|i| *i as usize) {
            let device = &mut self.list[i];
            let until = due.slice(i, now).min(device.shown_by(now));
            let caught = device.catch_up(now, host, reactor, until);
            device.behind = caught == CaughtUp::Behind;
            moved |= caught != CaughtUp::Idle;
            behind |= device.behind;
        }
        let since = *self.behind.get_or_insert(now);
        if behind && now.saturating_sub(since) < REACH {
            // The others do not wait for that.
            for i in self.awake.iter().map(|i| *i as usize) {
                let device = &mut self.list[i];
                if !device.behind {
                    let until = due.slice(i, now).min(device.shown_by(now));
                    device.run(now, host, reactor, until);
                }
            }
            return CaughtUp::Behind;
        }
        self.behind = None;
        if moved { CaughtUp::Moved } else { CaughtUp::Idle }
    }

    /// Runs every drive that has something to do. One that has much to do leaves off where another one is due, and those that
    /// did so come last in the next turn.
    #[inline]
    pub fn run<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) -> bool {
        let volumes = !self.volumes.is_empty();
        let mut busy = volumes && self.run_fronts(now, host, reactor, (ROUND, now.saturating_add(SLEEPY)));
        busy |= self.run_drives(now, host, reactor);
        busy | (volumes && self.settle(now, host))
    }

    #[inline]
    fn run_drives<H: Host>(&mut self, now: Nanos, doors: &mut H, reactor: &mut Reactor) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.turns % ROUND == 0 || now.saturating_add(NEAR) >= self.rest.0 {
            self.tuck_in(now);
        }
        let Volumes { parts, fronts, .. } = &mut self.volumes;
        let host = &mut Via { doors, parts, fronts };
        // Alone it is behind nobody, and nobody waits for it.
        if let &[only] = &self.awake[..] {
            let device = &mut self.list[only as usize];
            let until = device.shown_by(now);
            return device.run(now, host, reactor, until);
        }
        let mut due = Earliest::of(&self.list, &self.awake);
        let (mut busy, mut behind) = (false, false);
        for i in self.awake.iter().map(|i| *i as usize) {
            let device = &mut self.list[i];
            device.behind = !device.deferred.is_empty();
            behind |= device.behind;
            if !device.behind {
                let until = due.slice(i, now).min(device.shown_by(now));
                busy |= device.run(now, host, reactor, until);
            }
        }
        if behind {
            due = Earliest::of(&self.list, &self.awake);
            for i in self.awake.iter().map(|i| *i as usize) {
                let device = &mut self.list[i];
                if !device.behind {
                    continue;
                }
                let until = due.slice(i, now).min(device.shown_by(now));
                busy |= device.run(now, host, reactor, until);
            }
        }
        busy
    }

    /// Holds each drive to what it should take; to be called every second in which the thread works.
    #[cold]
    pub fn look_at_speed(&mut self, now: Nanos, thread: ThreadTime) {
        self.list.iter_mut().for_each(|device| device.look_at_speed(now, thread));
    }

    /// Measures how late the completions are that the doors have shown to their hosts by now; `busy` says for how long the
    /// thread has had something to do until a time.
    #[inline]
    pub fn measure(&mut self, reactor: &Reactor, waits: &mut Waits, busy: impl FnOnce(Nanos) -> Nanos) {
        let awake = || self.awake.iter().map(|i| *i as usize);
        let Some(first) = awake().filter_map(|i| self.list[i].deadlines.handed()).min() else { return };
        let now = reactor.now();
        waits.look(now);
        let busy = busy(now);
        if self.taken.matters(first, now) {
            return self.judge((now, busy), waits);
        }
        self.list.iter_mut().filter(|d| d.deadlines.handed().is_some()).for_each(|d| d.deadlines.measure((now, busy)));
    }

    /// The same where some are late, and the core may have been taken.
    #[cold]
    fn judge(&mut self, (now, busy): (Nanos, Nanos), waits: &mut Waits) {
        for (device, drive) in self.list.iter_mut().zip(0..) {
            let shown = |due| Shown { due, drive, net: Nanos(0) };
            self.shown.extend(device.deadlines.take_handed().map(shown));
        }
        self.shown.sort_unstable();
        self.taken.net(now, &mut self.shown, waits);
        for Shown { due, drive, net } in self.shown.drain(..) {
            self.list[drive as usize].deadlines.record((due, net), (now, busy));
        }
    }

    /// A drive whose size for doors without namespaces hosts have changed, and that size; 0: they have deleted the namespace.
    #[inline]
    pub fn take_resized(&mut self) -> Option<(u32, u64)> {
        // Of a front nobody but the node changes the size, and says so.
        let list = &mut self.list;
        self.awake.iter().find_map(|i| list[*i as usize].take_news().map(|bytes| (*i, bytes)))
    }

    /// A drive's associations are noted as they are now.
    pub fn note(&mut self, drive: u32) {
        let device = self.device_mut(drive);
        device.noted = Some(device.machine.association_generation());
    }

    /// A drive whose associations have changed since they were [noted](Self::note), and are so no more.
    #[inline]
    pub fn take_wrong_note(&mut self) -> Option<u32> {
        let list = self.awake.iter().copied().find(|i| self.list[*i as usize].is_noted_wrong());
        let drive = list.or_else(|| self.volumes.noted_wrong())?;
        self.device_mut(drive).noted = None;
        Some(drive)
    }

    /// Queues whose connections the machines want closed.
    pub fn take_disconnects(&mut self, now: Nanos, into: &mut Vec<Owner>) {
        for at in 0..self.awake.len() {
            let drive = self.awake[at];
            while let Some(owner) = self.list[drive as usize].disconnects.pop() {
                match owner.0 >> 28 == Kind::Volume as u32 {
                    true => self.renew(drive, owner, now),
                    false => into.push(owner),
                }
            }
        }
        let Volumes { fronts, awake, .. } = &mut self.volumes;
        awake.iter().for_each(|number| into.append(&mut fronts[*number as usize].disconnects));
    }

    /// A file operation has ended, and its token says whose; or a drive behind one of these has raised an interrupt.
    pub fn media_ready<H: Host>(&mut self, ready: Ready, now: Nanos, host: &mut H, reactor: &mut Reactor) {
        let Ready::File(done) = ready else { return self.interrupted() };
        let index = KernelIo::drive_of(done.token);
        if (index as usize) < self.list.len() {
            self.wake(index);
            let Volumes { parts, fronts, .. } = &mut self.volumes;
            let host = &mut Via { doors: host, parts, fronts };
            self.list[index as usize].file_done(done, now, host, reactor);
        }
    }

    fn interrupted(&mut self) {
        for index in 0..self.list.len() as u32 {
            if matches!(&self.list[index as usize].backend, Backend::Remote(remote) if remote.is_interrupted()) {
                self.wake(index);
            }
        }
    }

    /// When one of them must be run.
    pub fn next_deadline(&self) -> Nanos {
        let awake = self.awake.iter().map(|i| &self.list[*i as usize]);
        let fronts = self.volumes.awake.iter().map(|i| &self.volumes.fronts[*i as usize]);
        awake.chain(fronts).map(Device::due).fold(self.rest.0.min(self.volumes.rest()), Nanos::min)
    }

    /// One of them waits for something that wakes nobody.
    pub fn must_poll(&self) -> bool {
        let awake = self.awake.iter().map(|i| &self.list[*i as usize]);
        let fronts = self.volumes.awake.iter().map(|i| &self.volumes.fronts[*i as usize]);
        let mut all = awake.chain(fronts);
        self.volumes.must_poll() || all.any(|d| d.dirty && d.down.is_none() || d.must_poll())
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

    /// This process ends, and the next one goes on with the drives behind these.
    pub fn leave_open(&mut self) {
        self.list.iter_mut().for_each(Device::leave_open);
    }

    /// None of them executes anything.
    pub fn is_quiet(&self) -> bool {
        self.volumes.parts.is_empty() && self.list.iter().chain(&self.volumes.fronts).all(Device::is_quiet)
    }
}
