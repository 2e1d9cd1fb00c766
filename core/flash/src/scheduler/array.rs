//! [`Array`] for those who can wait: operations from a [`When`] on, whose ends are one.
//!
//! With booked channels all times are known at once, and these are the functions of the same names without the `_at`.

use super::{Joint, Operation, OperationKind, Scheduler, Signal, Then, WaitId, When};
use crate::array::Array;
use crate::geometry::PageAddress;
use crate::lun::Promise;
use crate::relocate::{Relocation, Scope};
use crate::timing::Suspend;
use weir_units::Nanos;

impl Array {
    /// Whether channels are arbitrated when they are free, so that ends are not known in advance.
    #[inline]
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduler.is_some()
    }

    /// How far events have come; without a scheduler there are none.
    pub(crate) fn present(&self) -> Nanos {
        self.scheduler.as_ref().map_or(Nanos(0), |s| s.now())
    }

    /// That time, or the present where it is not known.
    #[inline]
    pub(crate) fn present_of(&self, when: When) -> Nanos {
        when.known().unwrap_or_else(|| self.present())
    }

    /// The later of two points in time.
    #[inline]
    pub(crate) fn later_of(&mut self, a: When, b: When) -> When {
        match a.later_known(b) {
            Some(later) => later,
            None => self.later_of_pending(a, b),
        }
    }

    #[cold]
    fn later_of_pending(&mut self, a: When, b: When) -> When {
        let Some(scheduler) = &mut self.scheduler else { return a };
        let present = scheduler.now().0;
        scheduler.waits.later_of(present, a, b)
    }

    /// See [`Array::read`].
    #[inline]
    pub(crate) fn read_at(&mut self, from: When, at: PageAddress, bytes: u32) -> When {
        match from.known() {
            Some(now) if self.scheduler.is_none() => When::at(self.read(now, at, bytes)),
            _ => self.ask_read(from, at, bytes),
        }
    }

    /// See [`Array::program_as`]; when the page is in the cells.
    #[inline]
    pub(crate) fn program_at(&mut self, from: When, at: PageAddress, bytes: u32, promise: Promise) -> When {
        match from.known() {
            Some(now) if self.scheduler.is_none() => When::at(self.program_as(now, at, bytes, promise).done),
            _ => self.ask_program(from, at, bytes, 1),
        }
    }

    /// See [`Array::program_planes_as`]; when the pages are in the cells.
    pub(crate) fn program_planes_at(
        &mut self,
        from: When,
        at: PageAddress,
        planes: u32,
        bytes: u32,
        promise: Promise,
    ) -> When {
        match from.known() {
            Some(now) if self.scheduler.is_none() => {
                When::at(self.program_planes_as(now, at, planes, bytes, promise).done)
            }
            _ => self.ask_program(from, at, bytes, planes),
        }
    }

    /// The same point in time, `delay` later.
    pub(crate) fn delayed(&mut self, when: When, delay: Nanos) -> When {
        match (when.known(), &mut self.scheduler) {
            (Some(at), _) => When::at(at.saturating_add(delay)),
            (None, Some(scheduler)) => scheduler.waits.delayed(when, delay.0),
            (None, None) => when,
        }
    }

    /// That follows at `when`.
    pub(crate) fn follow(&mut self, when: When, then: Then) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.follow(when, then);
        }
    }

    /// Nothing is under way; idle since `now`.
    pub(crate) fn begin_anew(&mut self, now: Nanos) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.begin_anew(now);
        }
    }

    /// That is heard of at `when`.
    pub(crate) fn signal(&mut self, when: When, signal: Signal) {
        self.follow(when, Then::Signal(signal));
    }

    /// A time that is known when as many things have happened, one at least.
    pub(crate) fn wait_for(&mut self, things: u32) -> Option<WaitId> {
        self.scheduler.as_mut().map(|s| s.waits.add(things))
    }

    /// A thing that is waited for has happened, or is known to happen at `at`.
    pub(crate) fn happened(&mut self, wait: WaitId, at: Nanos) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.happened(wait, at);
        }
    }

    /// Goes on to the next signal, or up to `until`.
    pub(crate) fn step(&mut self, until: Nanos) -> Option<(Nanos, Signal)> {
        self.scheduler.as_mut()?.step(until)
    }

    /// Goes on to the next signal before `until`, and no further.
    pub(crate) fn step_before(&mut self, until: Nanos) -> Option<(Nanos, Signal)> {
        self.scheduler.as_mut()?.step_before(until)
    }

    /// When something happens next, if nothing else is asked for.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.scheduler.as_ref()?.next_event()
    }

    #[cold]
    fn ask_read(&mut self, from: When, at: PageAddress, bytes: u32) -> When {
        let present = from.known_or(self.present());
        let (array, ..) = self.sense_varied(present, at, bytes);
        let o = self.timing.overheads;
        let operation = Operation {
            bytes,
            command: o.read.0,
            command_plane: o.read_plane.0,
            place: self.joint(at),
            ..self.operation(OperationKind::Read, at.plane, array)
        };
        self.ask(from, operation)
    }

    #[cold]
    fn ask_program(&mut self, from: When, at: PageAddress, bytes: u32, planes: u32) -> When {
        let present = from.known_or(self.present());
        let each = (0..planes).map(|p| PageAddress { plane: at.plane + p, ..at });
        let array = each.map(|at| self.begin_program(present, at)).max().unwrap_or_default();
        let o = self.timing.overheads;
        let operation = Operation {
            bytes,
            planes,
            command: o.program.0,
            command_plane: o.program_plane.0,
            stop: self.timing.suspend.program.map(|t| t.0),
            place: self.joint(at).filter(|_| planes == 1),
            ..self.operation(OperationKind::Program, at.plane, array)
        };
        self.ask(from, operation)
    }

    /// Where an operation on one plane lies, for those that would join it: no die has more planes than a word has bits.
    fn joint(&self, at: PageAddress) -> Option<Joint> {
        let (die, planes) = (self.shape.die_of(at.plane), self.shape.planes_per_die());
        (planes <= u64::BITS).then(|| Joint { die, plane: at.plane - die * planes, page: at.page })
    }

    fn operation(&mut self, kind: OperationKind, plane: u32, array: u64) -> Operation {
        let target = self.lun_of(plane) as u32;
        let (die, present) = (self.shape.die_of(plane), self.present());
        let away = self.varied.as_mut().map_or((0, 0), |varied| varied.away(die, present.0));
        Operation {
            target,
            kind,
            array,
            command: 0,
            command_plane: 0,
            bytes: 0,
            planes: 1,
            stop: None,
            away,
            collection: false,
            place: None,
        }
    }

    fn ask(&mut self, from: When, operation: Operation) -> When {
        match &mut self.scheduler {
            Some(scheduler) => scheduler.submit(from, operation),
            None => from,
        }
    }

    /// [`Array::relocate`] where ends are not known: the pages move when the plane and the channel let them. On a plane that has been
    /// idle since before the present, work on it alone is done in hindsight from `now` on, and its erase's command takes no channel time.
    pub(crate) fn ask_relocate(&mut self, now: Nanos, plane: u32, work: &Relocation, scope: Scope) {
        let mut moving = self.begin_on_chip(plane, work.read.saturating_add(work.program)).0;
        if scope != Scope::Plane {
            moving = moving.saturating_add(self.transfer_sum(work.bytes).saturating_mul(2));
        }
        let erase = work.erase.map(|block| {
            if let Some(varied) = &mut self.varied {
                varied.erased(now, self.shape.block_index(plane, block));
            }
            self.begin_on_chip(plane, self.timing.erase).0
        });
        let Suspend { erase: stop, program, .. } = self.timing.suspend;
        // What stays on the plane makes room for reads as its programs do.
        let moving_stop = program.filter(|_| scope == Scope::Plane).map(|t| t.0);
        let (command, plain) = (self.timing.overheads.erase.0, self.operation(OperationKind::Erase, plane, 0));
        let Some(scheduler) = &mut self.scheduler else { return };
        let since = scheduler.idle_since(plain.target).filter(|_| scope == Scope::Plane && now < scheduler.now());
        if let Some(since) = since {
            let stop = if moving > 0 { moving_stop } else { stop.filter(|_| work.erase_yields).map(|t| t.0) };
            return scheduler.work_idle(plain.target, since.max(now), moving + erase.unwrap_or_default(), stop);
        }
        let from = When::at(now);
        let mut end = None;
        if moving > 0 {
            // What crosses the channel holds it from the first read to the last program.
            let (bus, array) = if scope == Scope::Plane { (0, moving) } else { (moving, 0) };
            end = Some(
                scheduler.submit(from, Operation { command: bus, array, stop: moving_stop, collection: true, ..plain }),
            );
        }
        if let Some(array) = erase {
            let stop = stop.filter(|_| work.erase_yields).map(|t| t.0);
            end = Some(scheduler.submit(from, Operation { command, array, stop, collection: true, ..plain }));
        }
        if let (Scope::Controller, Some(end)) = (scope, end) {
            scheduler.lock();
            scheduler.follow(end, Then::Unlock);
        }
    }

    /// The scheduler that such timing wants.
    pub(crate) fn scheduler_for(
        timing: &crate::FlashTiming,
        shape: &crate::Shape,
        targets: u32,
    ) -> Option<alloc::boxed::Box<Scheduler>> {
        let g = shape.geometry();
        let gate = (shape.planes() / targets).min(g.planes);
        let channels = (0..targets).map(|i| shape.channel_of(i * gate));
        let made = || Scheduler::new(timing, channels, g.channels, g.page_bytes);
        (timing.arbitration != crate::Arbitration::Booked).then(|| alloc::boxed::Box::new(made()))
    }
}
