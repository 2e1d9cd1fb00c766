//! The drives of a shard: they take turns by their deadlines.

use super::{Backend, Device, Direct, PowerReply};
use crate::taken::{Shown, Taken};
use weir_controller::{Event, Host, Owner, Subsystem};
use weir_sys::reactor::{Reactor, Ready};
use weir_sys::sched::Waits;
use weir_units::Nanos;

/// How long a drive goes on when another drive of the shard has something due. Shorter would cost more in turns than it gains.
pub(super) const SLICE: Nanos = Nanos::from_micros(4);

/// What is due later than this is no reason to look at the clock after every command: all runs take less.
const NEAR: Nanos = Nanos::from_millis(2);

/// Which drive has the earliest deadline, and the earliest of the others.
pub(super) struct Earliest {
    first: (Nanos, usize),
    second: Nanos,
}

impl Earliest {
    #[inline]
    pub(super) fn of(list: &[Device]) -> Self {
        let mut found = Earliest { first: (Nanos::NEVER, usize::MAX), second: Nanos::NEVER };
        for (i, device) in list.iter().enumerate() {
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

/// The drives of a shard.
#[derive(Default)]
pub struct Drives {
    list: Vec<Device>,
    taken: Taken,
    /// What is being judged.
    shown: Vec<Shown>,
}

impl Drives {
    /// Adds a drive; its place is the next number.
    pub fn push(&mut self, mut device: Device) {
        device.label(self.list.len() as u32);
        device.real_time = true;
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

    /// Cuts a drive's power; see [`Device::power_cut`].
    pub fn power_cut<H: Host>(
        &mut self,
        index: u32,
        now: Nanos,
        reply: PowerReply,
        host: &mut H,
        reactor: &mut Reactor,
    ) {
        self.list[index as usize].power_cut(now, reply, host, reactor);
    }

    /// Runs every drive that has something to do. One that has much to do leaves off where another one is due, and those that
    /// did so come last in the next turn.
    #[inline]
    pub fn run<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor) -> bool {
        let mut due = Earliest::of(&self.list);
        let (mut busy, mut behind) = (false, false);
        for (i, device) in self.list.iter_mut().enumerate() {
            device.behind = !device.deferred.is_empty();
            behind |= device.behind;
            if !device.behind {
                let until = due.slice(i, now).min(device.shown_by(now));
                busy |= device.run(now, host, reactor, until);
            }
        }
        if behind {
            due = Earliest::of(&self.list);
            for (i, device) in self.list.iter_mut().enumerate().filter(|(_, d)| d.behind) {
                let until = due.slice(i, now).min(device.shown_by(now));
                busy |= device.run(now, host, reactor, until);
            }
        }
        busy
    }

    /// Measures how late the completions are that the doors have shown to their hosts by now; `busy` says for how long the
    /// thread has had something to do until a time.
    #[inline]
    pub fn measure(&mut self, reactor: &Reactor, waits: &mut Waits, busy: impl FnOnce(Nanos) -> Nanos) {
        let Some(first) = self.list.iter().filter_map(|d| d.deadlines.handed()).min() else { return };
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
        (0u32..).zip(&mut self.list).find_map(|(i, device)| device.take_news().map(|bytes| (i, bytes)))
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
        self.list.iter().any(|d| d.dirty && d.down.is_none() || d.must_poll())
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
