#![no_std]
#![forbid(unsafe_code)]
//! The keeper's decisions: which worker serves, when the next one is started, when to stop trying, and what of a front
//! end's conversation a new worker must hear.
//!
//! ```text
//!   the process (node/src/keeper) ──Event──► Keeper ──Effect──► start, Go, drain, kill, exit
//!   a front end's messages ─────────────────► Replay ─────────► the worker; again to the next one, shortened
//! ```
//! Workers do the I/O; the keeper holds what the kernel would destroy with them (memory files, sockets, eventfds), and does
//! nothing else. A worker *prepares* (it reads its configuration), says so, is told to *go*, takes what is held, and is
//! *ready*. There is one worker at most between `Go` and its end: the next one goes when the last one's process has ended,
//! which is when the kernel has carried out or dropped whatever it had under way; or when it is *still*: its threads are dead and the
//! kernel has nothing under way for it, but has not taken its memory apart yet; or when one that was told to hand over says
//! that it has *left*: nothing of it is under way any more, and it will touch nothing.
//!
//! ```text
//!   Starting ─Prepared─► Prepared ─(the one before has left or is dead)─► Called ─Goes─► Going ─Ready─► Ready ─Left, Still, Died─► the next one
//!                           └─ a standby and an upgrade wait here            └─ too late ─► Deaf ─Died─► the next one
//! ```
//! The node as a whole is in a stage, and so is an upgrade (`state` has both, and what may follow what):
//!
//! ```text
//!   Beginning ─Ready─► Keeping ─too many deaths─► Failed          none ─Upgrade─► Proposed ─Warm─► Committed ─Ready─► Probation ─time─► none: accepted
//!       │                 │  ◄─────Retry────────────┘                               └─ refused ───────┴─ it dies ───────────┴─ it dies ───► none: as before
//!       └──────Stop───────┴──────Stop─────► Stopping (from Failed as well)
//! ```
//! What is proposed by an upgrade is *warm* before the one that serves is asked to leave: it has mapped what is held.
//! A keeper [at rest](Keeper::is_at_rest) can go on as another program: all that it knows is [`saved`].
//!
//! A worker that dies is replaced at once, and one that does not prepare within [`PREPARE_TIMEOUT`] counts as dead. One that is told
//! to go says so within [`GO_ANSWER_TIMEOUT`], or it is killed: somebody has stopped it while it waited. After that it has all the time it
//! needs, outside of an upgrade: opening what it is to serve may take long, and looks like hanging.
//! Deaths that follow each other quickly are spaced out, and after [`MOST_DEATHS`] nothing is started any more: what is held
//! stays held until somebody looks.
//!
//! May depend on `weir-codec`, `weir-session` (its messages), `weir-spec` and `weir-units` only: no clock, no process, no socket.

extern crate alloc;

#[cfg(test)]
extern crate std;

mod event;
mod layouts;
mod notice;
pub mod relay;
#[cfg(test)]
mod relay_tests;
mod replay;
pub mod saved;
#[cfg(test)]
mod saved_tests;
mod state;
#[cfg(test)]
mod tests;
mod times;

pub use event::{Effect, End, Event, Fit, Program, Terms, WorkerId};
pub use layouts::{Layouts, LayoutsError, Unreadable};
pub use notice::{Notice, Refused};
pub use relay::Relay;
pub use replay::{Envelope, Passed, Replay, ReplayError};
pub use times::*;
/// What a front end says, as [`Replay::front`] takes it.
pub use weir_session::vhost_user::Message as FrontMessage;

use alloc::vec::Vec;
use state::{Dying, Pace, Phase, Stage, Upgrade, Worker};
use weir_units::Nanos;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Keeper {
    standby: bool,
    /// The worker that has gone or is to go as soon as it is prepared.
    active: Option<Worker>,
    /// One that waits beside it.
    spare: Option<Worker>,
    dying: Option<Dying>,
    upgrade: Option<Upgrade>,
    terms: Terms,
    /// Has been asked to hand over, and to end; when.
    leaving: Option<(WorkerId, Nanos)>,
    last: u64,
    deaths: u32,
    /// When the next worker is started.
    next: Option<Nanos>,
    /// When a standby is.
    spare_at: Option<Nanos>,
    /// Standbys that have died in a row after they were prepared.
    spares: u32,
    stage: Stage,
}

impl Keeper {
    /// A keeper, with a standby beside the worker or without.
    pub fn new(standby: bool) -> Self {
        Self {
            standby,
            active: None,
            spare: None,
            dying: None,
            upgrade: None,
            terms: Terms::default(),
            leaving: None,
            last: 0,
            deaths: 0,
            next: None,
            spare_at: None,
            spares: 0,
            stage: Stage::Beginning,
        }
    }

    /// Another stage, if it may follow the present one.
    fn enter(&mut self, stage: Stage) {
        if self.stage.may_become(stage) {
            self.stage = stage;
        }
    }

    /// The upgrade goes on, if it may like that.
    fn advance(&mut self, next: Upgrade) {
        if self.upgrade.is_some_and(|now| now.may_become(next)) {
            self.upgrade = Some(next);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stage == Stage::Stopping
    }

    /// Takes one event.
    pub fn apply(&mut self, now: Nanos, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Begin => self.active = Some(self.start(now, Program::Present, out)),
            Event::Prepared(id, fit) => self.prepared(now, id, fit, out),
            Event::Warm(id) => self.warm(now, id, out),
            Event::Goes(id) => self.goes(now, id),
            Event::Ready(id) => self.ready(now, id, out),
            Event::Left(id) => self.left(now, id, out),
            Event::Still(id) => self.still(now, id, out),
            Event::Died(id, end) => self.died(now, id, end, out),
            Event::Stop => self.stop(out),
            Event::Retry => self.retry(now, out),
            Event::Upgrade(terms) => self.propose(now, terms, out),
            Event::Tick => self.tick(now, out),
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn deadline(&self) -> Option<Nanos> {
        let upgrade = match self.upgrade {
            Some(Upgrade::Proposed(_)) => self.spare.map(|w| w.since.saturating_add(self.terms.step_timeout)),
            // Not before it is told to go: until then the one before it finishes what is in flight.
            Some(Upgrade::Committed(..)) => {
                self.active.filter(Worker::takes_over).map(|w| w.since.saturating_add(self.terms.step_timeout))
            }
            Some(Upgrade::Probation(_, _, until)) => Some(until),
            None => None,
        };
        let leaving = self.leaving.map(|(_, since)| since.saturating_add(UPGRADE_STEP_TIMEOUT));
        let starts = self.starting().map(|w| w.since.saturating_add(PREPARE_TIMEOUT)).min();
        let answers = self.called().map(|w| w.since.saturating_add(GO_ANSWER_TIMEOUT));
        [self.next, self.spare_at, upgrade, leaving, starts, answers].into_iter().flatten().min()
    }

    /// Those that prepare; an upgrade's own has its terms.
    fn starting(&self) -> impl Iterator<Item = Worker> + use<> {
        let spare = self.spare.filter(|w| self.upgrade != Some(Upgrade::Proposed(w.id)));
        [self.active, spare].into_iter().flatten().filter(|w| w.phase == Phase::Starting)
    }

    /// One that was told to go and has not said that it does.
    fn called(&self) -> Option<Worker> {
        self.active.filter(|w| w.phase == Phase::Called)
    }

    /// The worker that holds the node's state: it was told to go and has not died.
    pub fn serving(&self) -> Option<WorkerId> {
        self.active.filter(|w| !matches!(w.phase, Phase::Starting | Phase::Prepared)).map(|w| w.id)
    }

    /// Whether a second worker waits beside the first.
    pub fn has_standby(&self) -> bool {
        self.standby
    }

    /// Whether one worker serves and nothing is under way besides: no upgrade, no end, no death that is not dealt with.
    pub fn is_at_rest(&self) -> bool {
        self.active.is_some_and(|w| w.phase == Phase::Ready)
            && self.spare.is_none_or(|w| matches!(w.phase, Phase::Starting | Phase::Prepared))
            && (self.upgrade, self.leaving, self.next) == (None, None, None)
            && self.dying.is_none()
            && self.spare_at.is_none()
            && self.stage == Stage::Keeping
    }

    /// Whether nothing is started any more until somebody says so.
    pub fn has_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    fn start(&mut self, now: Nanos, program: Program, out: &mut Vec<Effect>) -> Worker {
        self.last += 1;
        let id = WorkerId(self.last);
        out.push(Effect::Start(id, program));
        Worker { id, phase: Phase::Starting, since: now }
    }

    /// The active worker goes as soon as it is prepared.
    fn go(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        if let Some(w) = &mut self.active {
            if w.enter(Phase::Called, now) {
                out.push(Effect::Go(w.id));
            }
        }
    }

    fn prepared(&mut self, now: Nanos, id: WorkerId, fit: Fit, out: &mut Vec<Effect>) {
        for w in [&mut self.active, &mut self.spare].into_iter().flatten() {
            if w.id == id {
                w.enter(Phase::Prepared, now);
            }
        }
        if self.active.is_some_and(|w| w.id == id) {
            return self.go(now, out);
        }
        if self.upgrade == Some(Upgrade::Proposed(id)) && fit == Fit::Neither {
            self.refuse(now, id, Refused::Layout, out);
        }
    }

    /// It has mapped what is held: from here on every moment counts.
    fn warm(&mut self, now: Nanos, id: WorkerId, out: &mut Vec<Effect>) {
        let waits = self.spare.is_some_and(|w| w.id == id && w.phase == Phase::Prepared);
        if self.upgrade == Some(Upgrade::Proposed(id)) && waits {
            // The one that served has died meanwhile: there is nobody to compare with, and nobody to hand over.
            let Some(serving) = self.serving() else { return self.refuse(now, id, Refused::Busy, out) };
            self.advance(Upgrade::Committed(id, Pace::InTime));
            self.leaving = Some((serving, now));
            out.push(Effect::HandOver(serving));
        }
    }

    /// It has heard that it is to go.
    fn goes(&mut self, now: Nanos, id: WorkerId) {
        if let Some(w) = self.active.as_mut().filter(|w| w.id == id) {
            w.enter(Phase::Going, now);
        }
    }

    /// The one that serves has let go of everything; its process may take its time to end.
    fn left(&mut self, now: Nanos, id: WorkerId, out: &mut Vec<Effect>) {
        if !self.is_stopping() && self.leaving.take_if(|(w, _)| *w == id).is_some() {
            self.active = None;
            self.succeed(now, out);
        }
    }

    /// The one that waited for the end of another takes over.
    fn succeed(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let next = self.spare.take();
        self.active = Some(next.unwrap_or_else(|| self.start(now, Program::Present, out)));
        self.go(now, out);
    }

    fn ready(&mut self, now: Nanos, id: WorkerId, out: &mut Vec<Effect>) {
        if !self.active.as_mut().is_some_and(|w| w.id == id && w.enter(Phase::Ready, now)) {
            return;
        }
        self.enter(Stage::Keeping);
        match self.upgrade {
            Some(Upgrade::Committed(w, _)) if w == id && self.terms.probation == Nanos(0) => self.accept(out),
            Some(Upgrade::Committed(w, pace)) if w == id => {
                self.advance(Upgrade::Probation(id, pace, now.saturating_add(self.terms.probation)));
                out.push(Effect::Say(Notice::Probation));
            }
            _ => {}
        }
        self.spares = 0;
        self.spare_at = self.standby.then(|| now.saturating_add(BREATH));
    }

    /// There is no way back any more.
    fn accept(&mut self, out: &mut Vec<Effect>) {
        self.upgrade = None;
        out.extend([Effect::Adopt, Effect::Say(Notice::Upgraded)]);
    }

    /// A standby, where there is to be one and no upgrade is under way.
    fn spare_up(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        if self.standby && self.spare.is_none() && self.upgrade.is_none() && !self.is_stopping() {
            self.spare = Some(self.start(now, Program::Present, out));
        }
    }

    /// The next one goes before the end of the process, where it would go at once whatever that end turns out to be.
    fn still(&mut self, now: Nanos, id: WorkerId, out: &mut Vec<Effect>) {
        let Some(dead) = self.active.filter(|w| w.id == id && w.phase == Phase::Ready) else { return };
        let lived = now.saturating_sub(dead.since);
        let at_once = lived >= SETTLED || lived >= KILL_PAUSE && self.deaths < AT_ONCE;
        let otherwise = self.is_stopping() || self.leaving.is_some() || self.upgrade.is_some() || self.dying.is_some();
        if at_once && !otherwise {
            if lived >= SETTLED {
                self.deaths = 0;
            }
            let dying = Dying { worker: dead, lived, outlived: false };
            (self.active, self.dying, self.next) = (None, Some(dying), Some(now));
            // It ends anyway; that it does is what the next one relies on.
            out.push(Effect::Kill(id));
            self.tick(now, out);
        }
    }

    fn died(&mut self, now: Nanos, id: WorkerId, end: End, out: &mut Vec<Effect>) {
        if let Some(dying) = self.dying.take_if(|d| d.worker.id == id) {
            return self.buried(dying, end, out);
        }
        if let Some(dead) = self.spare.take_if(|w| w.id == id) {
            return self.spare_died(now, dead, end, out);
        }
        let Some(dead) = self.active.take_if(|w| w.id == id) else { return };
        let end = if dead.phase == Phase::Deaf { End::Deaf } else { end };
        if self.is_stopping() {
            return self.exit(end, out);
        }
        // It was to end, and however it did: the one that waits for that goes.
        if self.leaving.take_if(|(w, _)| *w == id).is_some() {
            return self.succeed(now, out);
        }
        let proposed = match self.upgrade {
            Some(Upgrade::Committed(w, _)) => w == id,
            // One that serves is asked to end like any other.
            Some(Upgrade::Probation(w, ..)) => w == id && end != End::Clean,
            _ => false,
        };
        if !proposed && (self.stage == Stage::Beginning || end == End::Clean) {
            // It never served and has said why, or somebody asked it to end.
            return self.exit(end, out);
        }
        if let Some(upgrade) = self.upgrade.filter(|_| proposed) {
            self.drop_upgrade(Notice::Back(upgrade.failure(end)), out);
        }
        self.replace(now, dead, end, out);
    }

    /// One that was still has ended: it is known how.
    fn buried(&mut self, dead: Dying, end: End, out: &mut Vec<Effect>) {
        if self.is_stopping() {
            return;
        }
        if dead.outlived {
            // Those that have died since are counted already, and it died before them.
            self.deaths += u32::from(end != End::Killed);
        } else {
            self.count(dead.worker.phase, dead.lived, end);
        }
        if self.stage != Stage::Failed {
            out.push(Effect::Say(Notice::Restarting(end)));
        }
    }

    fn spare_died(&mut self, now: Nanos, dead: Worker, end: End, out: &mut Vec<Effect>) {
        let id = dead.id;
        match self.upgrade {
            Some(Upgrade::Proposed(w)) if w == id => self.keep_present(now, Refused::Ended(end), out),
            // The one before it is ending already: the old program begins anew.
            Some(Upgrade::Committed(w, _)) if w == id => {
                self.drop_upgrade(Notice::Back(Refused::Ended(end)), out);
                self.spare = Some(self.start(now, Program::Present, out));
            }
            _ if self.standby => {
                // One that cannot even prepare is not tried again before the next worker serves.
                let again = dead.phase == Phase::Prepared;
                let pause = again.then(|| self.spare_pause(now.saturating_sub(dead.since)));
                self.spare_at = pause.map(|pause| now.saturating_add(pause));
                out.push(Effect::Say(Notice::Standby { end, pause }));
            }
            _ => {}
        }
    }

    /// The pause before the next standby, after one that was prepared for so long.
    fn spare_pause(&mut self, lived: Nanos) -> Nanos {
        if lived >= SETTLED {
            self.spares = 0;
        }
        let doubled = FIRST_PAUSE.get() << self.spares.min(16);
        self.spares = self.spares.saturating_add(1);
        Nanos(doubled).min(SETTLED)
    }

    /// One that does not prepare. It has touched nothing, so its end is not waited for: where a file system does not answer it may not come.
    fn give_up(&mut self, now: Nanos, id: WorkerId, out: &mut Vec<Effect>) {
        out.push(Effect::Kill(id));
        self.died(now, id, End::Hung, out);
    }

    fn keep_present(&mut self, now: Nanos, why: Refused, out: &mut Vec<Effect>) {
        self.drop_upgrade(Notice::Kept(why), out);
        self.spare_up(now, out);
    }

    /// The program that is proposed has not taken over, and will not.
    fn refuse(&mut self, now: Nanos, id: WorkerId, why: Refused, out: &mut Vec<Effect>) {
        self.spare = None;
        out.push(Effect::Kill(id));
        self.keep_present(now, why, out);
    }

    fn drop_upgrade(&mut self, notice: Notice, out: &mut Vec<Effect>) {
        if self.upgrade.take().is_some() {
            out.extend([Effect::Forget, Effect::Say(notice)]);
        }
    }

    /// The next worker, at once or after a pause.
    fn replace(&mut self, now: Nanos, dead: Worker, end: End, out: &mut Vec<Effect>) {
        let lived = now.saturating_sub(dead.since);
        let pause = if self.count(dead.phase, lived, end) {
            KILL_PAUSE.saturating_sub(lived)
        } else {
            if self.deaths >= MOST_DEATHS {
                self.enter(Stage::Failed);
                out.push(Effect::Say(Notice::Failed(end)));
                self.drop_upgrade(Notice::Kept(Refused::Busy), out);
                out.extend(self.spare.take().map(|w| Effect::Kill(w.id)));
                return;
            }
            match self.deaths {
                0..=AT_ONCE => Nanos(0),
                n => Nanos(FIRST_PAUSE.get() << (n - AT_ONCE - 1)),
            }
        };
        out.push(Effect::Say(match pause {
            Nanos(0) => Notice::Restarting(end),
            pause if self.deaths > 0 && end != End::Killed => Notice::Pausing { deaths: self.deaths, pause },
            _ => Notice::Restarting(end),
        }));
        self.next = Some(now.saturating_add(pause));
        self.tick(now, out);
    }

    /// Counts a death; true where it was killed from outside while it served.
    fn count(&mut self, phase: Phase, lived: Nanos, end: End) -> bool {
        if let Some(dying) = &mut self.dying {
            dying.outlived = true;
        }
        let served = phase == Phase::Ready;
        let killed = served && end == End::Killed;
        // Nothing of its own: whatever others died of before, it did not.
        if killed || served && lived >= SETTLED {
            self.deaths = 0;
        }
        self.deaths += u32::from(!killed);
        killed
    }

    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        if self.next.is_some_and(|at| at <= now) && self.active.is_none() {
            self.next = None;
            self.active = match self.spare.take_if(|_| !matches!(self.upgrade, Some(Upgrade::Proposed(_)))) {
                Some(spare) => Some(spare),
                None => Some(self.start(now, Program::Present, out)),
            };
            self.go(now, out);
        }
        if self.spare_at.take_if(|at| *at <= now).is_some() && self.active.is_some_and(|w| w.phase == Phase::Ready) {
            self.spare_up(now, out);
        }
        if let Some((id, since)) =
            self.leaving.as_mut().filter(|(_, since)| since.saturating_add(UPGRADE_STEP_TIMEOUT) <= now)
        {
            *since = now;
            out.push(Effect::Kill(*id));
        }
        let hung = self.starting().find(|w| w.since.saturating_add(PREPARE_TIMEOUT) <= now);
        if let Some(w) = hung {
            self.give_up(now, w.id, out);
        }
        if let Some(mut w) = self.called().filter(|w| w.since.saturating_add(GO_ANSWER_TIMEOUT) <= now) {
            // It may hear it at this very moment, so its end is waited for.
            self.advance(Upgrade::Committed(w.id, Pace::Late));
            w.enter(Phase::Deaf, now);
            self.active = Some(w);
            out.push(Effect::Kill(w.id));
        }
        let late = |w: &Worker| w.since.saturating_add(self.terms.step_timeout) <= now;
        match self.upgrade {
            Some(Upgrade::Proposed(id)) if self.spare.is_some_and(|w| w.id == id && late(&w)) => {
                self.refuse(now, id, Refused::Hung, out);
            }
            // Its death brings the old program back.
            Some(Upgrade::Committed(id, _)) => {
                let hung = |w: &&mut Worker| w.id == id && w.takes_over() && late(w);
                if let Some(w) = self.active.as_mut().filter(hung) {
                    w.since = now;
                    self.advance(Upgrade::Committed(id, Pace::Late));
                    out.push(Effect::Kill(id));
                }
            }
            Some(Upgrade::Probation(_, _, until)) if until <= now => {
                self.accept(out);
                self.spare_up(now, out);
            }
            _ => {}
        }
    }

    fn stop(&mut self, out: &mut Vec<Effect>) {
        self.enter(Stage::Stopping);
        (self.next, self.spare_at) = (None, None);
        self.drop_upgrade(Notice::Kept(Refused::Busy), out);
        out.extend(self.spare.take().map(|w| Effect::Kill(w.id)));
        if self.active.is_none() {
            // Nobody is there to end in good order.
            out.push(Effect::Exit(1));
        }
    }

    fn exit(&mut self, end: End, out: &mut Vec<Effect>) {
        self.drop_upgrade(Notice::Kept(Refused::Busy), out);
        out.extend(self.spare.take().map(|w| Effect::Kill(w.id)));
        if matches!(end, End::Hung | End::Deaf) {
            // Others have said why they end.
            out.push(Effect::Say(Notice::Hung(end)));
        }
        out.push(Effect::Exit(match end {
            End::Clean => 0,
            End::Status(status) => status,
            End::Killed | End::Hung | End::Deaf | End::Crashed => 1,
        }));
    }

    fn retry(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        if self.active.is_none() && matches!(self.stage, Stage::Keeping | Stage::Failed) {
            self.enter(Stage::Keeping);
            (self.deaths, self.next) = (0, Some(now));
            self.tick(now, out);
        }
    }

    fn propose(&mut self, now: Nanos, terms: Terms, out: &mut Vec<Effect>) {
        let serves = self.active.is_some_and(|w| w.phase == Phase::Ready);
        if !serves || self.upgrade.is_some() || self.is_stopping() {
            out.push(Effect::Say(Notice::Kept(Refused::Busy)));
            return;
        }
        // A standby of the old program makes room for the new one.
        out.extend(self.spare.take().map(|w| Effect::Kill(w.id)));
        let proposed = self.start(now, Program::Proposed, out);
        self.terms = terms;
        self.upgrade = Some(Upgrade::Proposed(proposed.id));
        self.spare = Some(proposed);
    }

    /// Whether what it knows agrees with itself.
    ///
    /// # Panics
    /// Where it does not.
    pub fn check(&self) {
        let ids = (self.active.map(|w| w.id), self.spare.map(|w| w.id));
        assert!(ids.0.is_none() || ids.0 != ids.1, "one worker in two places");
        let dying = self.dying.map(|d| d.worker.id);
        assert!(dying.is_none() || dying != ids.0 && dying != ids.1, "one worker lives and dies");
        assert!(self.spare.is_none_or(|w| matches!(w.phase, Phase::Starting | Phase::Prepared)), "two have gone");
        assert!(self.stage != Stage::Failed || self.active.is_none(), "failed with a worker");
        assert!(self.next.is_none() || self.active.is_none(), "a start is due beside a worker");
        match self.upgrade {
            Some(Upgrade::Proposed(id)) => assert_eq!(ids.1, Some(id), "nobody is proposed"),
            Some(Upgrade::Committed(id, _)) => assert!(ids.0 == Some(id) || ids.1 == Some(id), "nobody is committed"),
            Some(Upgrade::Probation(id, ..)) => assert_eq!(ids.0, Some(id), "nobody is on probation"),
            None => {}
        }
    }
}
