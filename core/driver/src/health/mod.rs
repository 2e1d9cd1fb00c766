//! What is wrong with a drive, and what to do about it: evidence in, a verdict and actions out.
//!
//! Of 300,000 failures in a production cloud 6 % needed another drive (Spool, section 2.2, Figure 4); all others pass when the
//! controller is reset or the link is back. So a drive is isolated only when its media have failed for certain, and everything
//! else is a pause after which commands go on as if nothing had happened.
//!
//! ```text
//!                 ┌────────────── answered ───────────────┐
//!             Asking ── CFS, no answer, in doubt ──┐      │        ┌── readable ──────► Serving
//!               ▲                                  ▼      │        │
//!   Serving ────┼─ controller failed ────────► Resetting ─┼─► Identifying ── suspects ─► Verifying ── unreadable ─► Isolated
//!      │        │                          abort, queue,  │     ▲  │                        │
//!      │        │                          controller,    │     │  └── another ─► OtherDrive│
//!      │        │                          subsystem,  ◄──┼─────┼─── SMART says nothing ────┘
//!      │        │                          function       │     │
//!      └────────┴─ link, namespace, path, device ──────► Waiting ── back
//! ```
//!
//! **What isolates a drive** ([`Health::confirm`]): blocks that cannot be read, which no host has marked, again after a reset;
//! of these [`isolate_blocks`](Policy::isolate_blocks), or one together with a critical warning of the drive. Where the SMART
//! log does not count the errors, a subsystem reset comes before that. Write faults count when they come again after a reset.
//! What a tenant can cause is no evidence: [`StatusClass::Host`], and blocks in [`Evidence::MarkedByHost`].
//!
//! **Commands.** A failed command is delivered, held or retried, by one action for each. A media error is delivered once the block was
//! read again and the drive was asked; then it costs that block. A drive that does not serve lets commands wait for
//! [`hold`](Policy::hold), then they fail until it does: it is looked for as long as it takes.
//!
//! The caller gives evidence at once as it comes, and [`Evidence::Time`] at [`Health::due`]. It carries out the actions in their order.

mod action;
mod evidence;
mod policy;
mod report;
mod state;
mod suspects;
#[cfg(test)]
mod tests;

pub use action::{Action, FailReason, Gate};
pub use evidence::*;
pub use policy::{Policy, Removal};
pub use report::{REPORT_ENTRIES, Report, Seen, Step, Taken, Verdict};
pub use state::{Awaited, Question, State};
pub use suspects::{MARKS, SUSPECTS};

use alloc::vec::Vec;
use suspects::Suspects;
use weir_spec::nvme::Status;
use weir_spec::nvme::register::Csts;
use weir_units::Nanos;

/// Actions of one [`Health::apply`] at most.
pub const MOST_ACTIONS: usize = SUSPECTS + 8;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Health {
    policy: Policy,
    identity: NamespaceIdentity,
    state: State,
    /// When the state is given up, or looked at again.
    deadline: Nanos,
    /// The gate as the caller knows it.
    gate: Gate,
    /// Since then commands wait or fail.
    stopped: Option<Nanos>,
    suspects: Suspects,
    /// The last answer of the SMART log, and when it was asked.
    smart: Option<SmartReading>,
    asked_smart: Option<Nanos>,
    /// Failures of the controller's since then.
    failures: Window,
    /// The last reset, and when it ended.
    reset: Option<(ResetLevel, Nanos)>,
    /// The command that was late.
    late: Option<Ticket>,
    /// Attempts at what is waited for.
    attempts: u32,
    /// The path does not come back by itself.
    is_path_lost: bool,
    limits: Limits,
    report: Option<Report>,
    /// A disturbance that has stopped nothing is over then, if nothing more is seen.
    quiet_at: Nanos,
}

/// What a drive that serves cannot do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// It takes no writes.
    pub read_only: bool,
    /// It is outside its temperature thresholds.
    pub hot: bool,
    /// It says that its media wear out.
    pub worn: bool,
    /// It is slower than its model.
    pub slow: Option<Slowness>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Nanos,
    count: u32,
}

impl Window {
    fn add(&mut self, now: Nanos, length: Nanos) -> u32 {
        if now.saturating_sub(self.since) > length {
            *self = Window { since: now, count: 0 };
        }
        self.count += 1;
        self.count
    }
}

impl Health {
    /// Of a drive that serves, which is that namespace.
    pub fn new(policy: Policy, identity: NamespaceIdentity) -> Self {
        Health {
            policy,
            identity,
            state: State::Serving,
            deadline: Nanos::NEVER,
            gate: Gate::Open,
            stopped: None,
            suspects: Suspects::default(),
            smart: None,
            asked_smart: None,
            failures: Window::default(),
            reset: None,
            late: None,
            attempts: 0,
            is_path_lost: false,
            limits: Limits::default(),
            report: None,
            quiet_at: Nanos::NEVER,
        }
    }

    /// Where the diagnosis stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What becomes of commands.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// What it cannot do although it serves.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The disturbance that goes on, if one does.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// The last reading of the SMART log.
    pub fn smart(&self) -> Option<SmartReading> {
        self.smart
    }

    /// Blocks that are known to be unreadable.
    pub fn bad_blocks(&self) -> &[Extent] {
        self.suspects.bad()
    }

    /// When [`Evidence::Time`] is wanted.
    pub fn due(&self) -> Nanos {
        let hold = match (self.gate, self.stopped) {
            (Gate::Paused, Some(since)) => since.saturating_add(self.patience()),
            _ => Nanos::NEVER,
        };
        let quiet = if self.state == State::Serving && self.report.is_some() { self.quiet_at } else { Nanos::NEVER };
        self.deadline.min(hold).min(quiet)
    }

    /// The operator has put another drive in place of this one: it is looked at, and taken if it is `identity`.
    pub fn replace(&mut self, now: Nanos, identity: NamespaceIdentity, out: &mut Vec<Action>) {
        let policy = self.policy;
        let (gate, report) = (self.gate, self.report.take());
        *self = Health { gate, report, stopped: Some(now), ..Health::new(policy, identity) };
        self.report.get_or_insert_with(|| Report::begin(now));
        self.reset(now, ResetLevel::Controller, out);
        self.tell_gate(now, out);
    }

    /// Takes evidence; appends what is to be done, at most [`MOST_ACTIONS`].
    pub fn apply(&mut self, now: Nanos, evidence: Evidence, out: &mut Vec<Action>) {
        self.note(now, evidence);
        match evidence {
            Evidence::Failed(failure) => self.on_failed(now, failure, out),
            Evidence::Late(ticket) => self.on_late(now, ticket, out),
            Evidence::Csts(value) => self.on_csts(now, value, out),
            Evidence::Smart(reading) => self.on_smart(now, reading, out),
            Evidence::Unanswered => self.on_unanswered(now, out),
            Evidence::ReadAgain { lba, readable } => self.on_read_again(now, lba, readable, out),
            Evidence::ResetEnded { level, worked } => self.on_reset_ended(now, level, worked, out),
            Evidence::Namespace(answer) => self.on_namespace(now, answer, out),
            Evidence::NamespaceChanged => self.on_namespace_changed(now, out),
            Evidence::LinkLost => self.on_link_lost(now, out),
            Evidence::LinkBack => self.on_back(now, Awaited::Link, out),
            Evidence::Path(path) => self.on_path(now, path, out),
            Evidence::Removed => self.on_removed(now),
            Evidence::Arrived => self.on_arrived(now, out),
            Evidence::MarkedByHost(extent) => self.suspects.mark(extent),
            Evidence::WrittenByHost(extent) => self.suspects.written(extent),
            Evidence::Slow(slowness) => self.on_slow(now, slowness, out),
            Evidence::AsFastAsModelled => self.limits.slow = None,
            Evidence::Time => {}
        }
        if now >= self.deadline {
            self.on_deadline(now, out);
        }
        if self.state == State::Serving && now >= self.quiet_at {
            self.conclude(now, out);
        }
        self.tell_gate(now, out);
    }

    /// Evidence of what a host wanted, and of nothing, is not listed.
    fn note(&mut self, now: Nanos, evidence: Evidence) {
        let is_listed = match evidence {
            Evidence::Time | Evidence::MarkedByHost(_) | Evidence::WrittenByHost(_) | Evidence::AsFastAsModelled => {
                return;
            }
            Evidence::Failed(failure) => {
                !matches!(StatusClass::of(failure.status), StatusClass::Host | StatusClass::Aborted)
            }
            Evidence::Smart(_) | Evidence::Csts(_) | Evidence::Path(PathState::Usable) => false,
            _ => self.state != State::Isolated,
        };
        self.quiet_at = now.saturating_add(self.policy.window);
        match &mut self.report {
            Some(report) => report.see(now, evidence),
            None if is_listed => self.report.insert(Report::begin(now)).see(now, evidence),
            None => {}
        }
    }

    fn blame(&mut self, now: Nanos, verdict: Verdict) {
        self.report.get_or_insert_with(|| Report::begin(now)).blame(verdict);
    }

    fn step(&mut self, now: Nanos, step: Step) {
        if let Some(report) = &mut self.report {
            report.take(now, step);
        }
    }

    // Failed commands.

    fn on_failed(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        let class = StatusClass::of(failure.status);
        let deliver = Action::Deliver { ticket: failure.ticket, status: failure.status };
        if class == StatusClass::Host {
            return out.push(deliver);
        }
        if let Gate::Failing(reason) = self.gate {
            let status = reason.status(failure.access);
            return out.push(Action::Deliver { ticket: failure.ticket, status });
        }
        if self.state != State::Serving {
            // What lasts comes again when the command is sent again.
            if class == StatusClass::UnreadableMedia && failure.retries > 0 && !self.suspects.is_marked(failure.extent)
            {
                self.suspects.add(failure.extent);
            }
            return out.push(Action::Hold(failure.ticket));
        }
        match class {
            StatusClass::UnreadableMedia => self.on_unreadable(now, failure, out),
            StatusClass::WriteFault => self.on_write_fault(now, failure, out),
            StatusClass::Controller => self.on_controller_failure(now, failure, out),
            StatusClass::Namespace => {
                out.push(Action::Hold(failure.ticket));
                self.blame(now, Verdict::Namespace);
                self.identify(now, out);
            }
            StatusClass::Path(path) => {
                out.push(Action::Hold(failure.ticket));
                self.on_path(now, path, out);
            }
            StatusClass::Retry => self.retry_or_deliver(now, failure, out),
            StatusClass::ReadOnly => {
                self.note_read_only(now);
                out.push(deliver);
                self.conclude(now, out);
            }
            StatusClass::Aborted => out.push(Action::Retry { ticket: failure.ticket, at: now }),
            StatusClass::Host => {}
        }
    }

    fn on_unreadable(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        let deliver = Action::Deliver { ticket: failure.ticket, status: failure.status };
        if self.suspects.is_marked(failure.extent) {
            self.forget_if_idle();
            return out.push(deliver);
        }
        if self.suspects.is_bad(failure.extent) {
            out.push(deliver);
            return self.conclude(now, out);
        }
        if failure.retries == 0 {
            return out.push(Action::Retry { ticket: failure.ticket, at: now });
        }
        out.push(Action::Hold(failure.ticket));
        self.suspects.add(failure.extent);
        self.ask(now, Question::Smart, out);
    }

    fn on_write_fault(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        if self.was_reset_since(failure.since) {
            out.push(Action::Deliver { ticket: failure.ticket, status: failure.status });
            self.suspects.add_write_fault(failure.extent);
            return self.confirm_write_faults(now, out);
        }
        if self.limits.read_only {
            out.push(Action::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        if failure.retries < self.policy.retries {
            return self.retry(now, failure, out);
        }
        out.push(Action::Hold(failure.ticket));
        self.ask(now, Question::Smart, out);
    }

    fn confirm_write_faults(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let faults = self.suspects.write_faults();
        let warned = self.smart.is_some_and(SmartReading::has_media_warning);
        if warned || faults >= self.policy.isolate_blocks && self.suspects.is_corroborated() {
            return self.isolate(now, out);
        }
        self.conclude(now, out);
    }

    fn on_controller_failure(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        self.blame(now, Verdict::Controller);
        let often = self.failures.add(now, self.policy.window) >= self.policy.controller_failures;
        let tired = failure.retries >= self.policy.retries || failure.status.is_dnr();
        if !often && !tired {
            return self.retry(now, failure, out);
        }
        let last = self.reset.filter(|_| self.was_reset_since(failure.since)).map(|(level, _)| level);
        if last == Some(ResetLevel::Function) {
            // Nothing helps this command; others may work.
            out.push(Action::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        out.push(Action::Hold(failure.ticket));
        let level = last.and_then(ResetLevel::next).unwrap_or(ResetLevel::Controller);
        self.reset(now, level.max(ResetLevel::Controller), out);
    }

    fn was_reset_since(&self, submitted: Nanos) -> bool {
        self.reset.is_some_and(|(level, at)| level >= ResetLevel::Controller && at >= submitted)
    }

    fn retry_or_deliver(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        if now.saturating_sub(failure.since) < self.policy.hold {
            return self.retry(now, failure, out);
        }
        out.push(Action::Deliver { ticket: failure.ticket, status: failure.status });
        self.conclude(now, out);
    }

    /// The first retry of a command asks for what the drive knows, so that an operator sees why.
    fn retry(&mut self, now: Nanos, failure: Failure, out: &mut Vec<Action>) {
        let pause = failure.retry_delay.unwrap_or(Nanos(0)).max(self.policy.delay(failure.retries));
        out.push(Action::Retry { ticket: failure.ticket, at: now.saturating_add(pause) });
        let rested = |at| now.saturating_sub(at) > self.policy.window;
        if self.asked_smart.is_none_or(rested) {
            self.asked_smart = Some(now);
            out.push(Action::Ask(Question::Smart));
        }
    }

    fn on_late(&mut self, now: Nanos, ticket: Ticket, out: &mut Vec<Action>) {
        if self.state != State::Serving {
            return;
        }
        self.blame(now, Verdict::Controller);
        self.late = Some(ticket);
        self.ask(now, Question::Csts, out);
    }

    // Answers.

    fn on_csts(&mut self, now: Nanos, value: u32, out: &mut Vec<Action>) {
        if value == u32::MAX {
            return self.on_link_lost(now, out);
        }
        let csts = Csts(value);
        let asked = self.state == State::Asking(Question::Csts);
        if (asked || self.state == State::Serving) && (csts.cfs() == 1 || csts.rdy() == 0) {
            self.blame(now, Verdict::Controller);
            return self.reset(now, ResetLevel::Controller, out);
        }
        if asked {
            let again = self.reset.is_some_and(|(_, at)| now.saturating_sub(at) <= self.policy.window);
            let level = self.reset.filter(|_| again).and_then(|(level, _)| level.next());
            self.reset(now, level.unwrap_or(ResetLevel::Abort), out);
        }
    }

    fn on_smart(&mut self, now: Nanos, reading: SmartReading, out: &mut Vec<Action>) {
        self.suspects.compare(self.smart, reading);
        self.smart = Some(reading);
        self.note_limits(now, reading, out);
        if self.state != State::Asking(Question::Smart) {
            return;
        }
        if reading.is_read_only() && self.suspects.unconfirmed() == 0 {
            return self.serve(now, out);
        }
        let few = self.suspects.unconfirmed() > 0 && self.suspects.unverified() < self.policy.suspect_blocks;
        let is_credible = self.suspects.is_corroborated() || self.has_been_verified(now);
        if few && is_credible && !reading.has_media_warning() {
            self.suspects.accept();
            self.blame(now, Verdict::BadBlocks);
            return self.serve(now, out);
        }
        self.reset(now, ResetLevel::Controller, out);
    }

    /// Whether a reset has lately shown that unreadable blocks of this drive are what they seem.
    fn has_been_verified(&self, now: Nanos) -> bool {
        let lately = |(_, at)| now.saturating_sub(at) < self.policy.credit;
        self.suspects.has_verified() && self.reset.is_some_and(lately)
    }

    fn note_limits(&mut self, now: Nanos, reading: SmartReading, out: &mut Vec<Action>) {
        let before = self.limits;
        self.limits.read_only = reading.is_read_only();
        self.limits.hot = reading.is_hot();
        self.limits.worn = reading.has_media_warning();
        if self.limits.read_only && !before.read_only {
            self.blame(now, Verdict::ReadOnly);
        }
        if self.limits.worn && !before.worn {
            self.blame(now, Verdict::WearWarning);
        }
        if self.limits != before && self.state == State::Serving {
            self.conclude(now, out);
        }
    }

    fn note_read_only(&mut self, now: Nanos) {
        self.limits.read_only = true;
        self.blame(now, Verdict::ReadOnly);
    }

    fn on_unanswered(&mut self, now: Nanos, out: &mut Vec<Action>) {
        match self.state {
            State::Asking(_) => {
                self.blame(now, Verdict::Controller);
                self.reset(now, ResetLevel::Controller, out);
            }
            State::Identifying | State::Verifying => self.reset_further(now, out),
            State::Waiting(awaited @ (Awaited::Namespace | Awaited::Path)) => self.wait(now, awaited),
            State::OtherDrive => self.deadline = now.saturating_add(self.policy.longest_delay),
            _ => {}
        }
    }

    fn on_read_again(&mut self, now: Nanos, lba: u64, readable: bool, out: &mut Vec<Action>) {
        if self.state == State::Verifying && self.suspects.verified(lba, readable) {
            self.confirm(now, out);
        }
    }

    /// All suspects were read again: are the media bad?
    fn confirm(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let again = self.suspects.unreadable_again();
        let warned = self.smart.is_some_and(SmartReading::has_media_warning);
        let enough = again >= self.policy.isolate_blocks || again > 0 && warned;
        let deep = self.reset.is_some_and(|(level, _)| level >= ResetLevel::Subsystem);
        if enough && !warned && !self.suspects.is_corroborated() && !deep {
            return self.reset(now, ResetLevel::Subsystem, out);
        }
        if enough {
            return self.isolate(now, out);
        }
        self.blame(now, if again > 0 { Verdict::BadBlocks } else { Verdict::Controller });
        self.suspects.settle();
        self.serve(now, out);
    }

    fn on_reset_ended(&mut self, now: Nanos, level: ResetLevel, worked: bool, out: &mut Vec<Action>) {
        if self.state != State::Resetting(level) {
            return;
        }
        self.reset = Some((level, now));
        match (worked, level) {
            (false, _) => self.reset_further(now, out),
            (true, ResetLevel::Abort) => self.serve(now, out),
            (true, _) => self.identify(now, out),
        }
    }

    fn on_namespace(&mut self, now: Nanos, answer: NamespaceAnswer, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Identifying | State::Waiting(Awaited::Namespace) | State::OtherDrive) {
            return;
        }
        match answer {
            NamespaceAnswer::Present(identity) if identity != self.identity => self.find_other(now, out),
            NamespaceAnswer::Present(_) => self.find_same(now, out),
            NamespaceAnswer::NotReady | NamespaceAnswer::Absent if self.state == State::OtherDrive => {
                self.deadline = now.saturating_add(self.policy.longest_delay);
            }
            NamespaceAnswer::NotReady | NamespaceAnswer::Absent => {
                self.blame(now, Verdict::Namespace);
                self.wait(now, Awaited::Namespace);
            }
        }
    }

    fn find_other(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.deadline = now.saturating_add(self.policy.longest_delay);
        if self.state == State::OtherDrive {
            return;
        }
        self.blame(now, Verdict::OtherDrive);
        self.pass_through_identifying();
        self.set(State::OtherDrive);
        self.step(now, Step::Failed);
        out.extend(self.report.clone().map(Action::Report));
    }

    fn find_same(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.pass_through_identifying();
        if self.suspects.is_condemned() {
            self.set(State::Isolated);
            self.deadline = Nanos::NEVER;
            return self.conclude(now, out);
        }
        if self.suspects.unconfirmed() == 0 {
            return self.serve(now, out);
        }
        self.set(State::Verifying);
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::ReadAgain);
        out.extend(self.suspects.begin_verifying().map(Action::ReadAgain));
    }

    /// An answer while the namespace is waited for is looked at as one that was asked for.
    fn pass_through_identifying(&mut self) {
        if self.state != State::Identifying {
            self.set(State::Identifying);
        }
    }

    // What comes and goes.

    fn on_namespace_changed(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if matches!(self.state, State::Serving | State::Waiting(Awaited::Namespace) | State::OtherDrive) {
            self.blame(now, Verdict::Busy);
            self.identify(now, out);
        }
    }

    fn on_link_lost(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if matches!(self.state, State::Waiting(Awaited::Link | Awaited::Drive)) {
            return;
        }
        self.blame(now, Verdict::Link);
        self.step(now, Step::Reconnected);
        self.set(State::Waiting(Awaited::Link));
        self.deadline = Nanos::NEVER;
        out.push(Action::Reconnect);
    }

    fn on_removed(&mut self, now: Nanos) {
        self.blame(now, Verdict::Removed);
        self.set(State::Waiting(Awaited::Drive));
        self.deadline = Nanos::NEVER;
    }

    /// What is there again must be enabled before it can be asked.
    fn on_back(&mut self, now: Nanos, awaited: Awaited, out: &mut Vec<Action>) {
        if self.state == State::Waiting(awaited) {
            self.reset(now, ResetLevel::Controller, out);
        }
    }

    fn on_arrived(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if matches!(self.state, State::Waiting(Awaited::Drive | Awaited::Link) | State::OtherDrive) {
            self.reset(now, ResetLevel::Controller, out);
        }
    }

    fn on_path(&mut self, now: Nanos, path: PathState, out: &mut Vec<Action>) {
        self.is_path_lost = path == PathState::PersistentLoss;
        match (self.state, path) {
            (State::Serving, PathState::Inaccessible | PathState::PersistentLoss) => {
                self.blame(now, Verdict::Path);
                self.attempts = 0;
                self.wait(now, Awaited::Path);
            }
            (State::Waiting(Awaited::Path), PathState::Usable) => self.identify(now, out),
            (State::Waiting(Awaited::Path), _) => self.wait(now, Awaited::Path),
            _ => {}
        }
    }

    fn on_slow(&mut self, now: Nanos, slowness: Slowness, out: &mut Vec<Action>) {
        let is_new = self.limits.slow.is_none();
        self.limits.slow = Some(slowness);
        if is_new && self.state == State::Serving {
            self.blame(now, Verdict::Slow);
            self.conclude(now, out);
        }
    }

    fn on_deadline(&mut self, now: Nanos, out: &mut Vec<Action>) {
        match self.state {
            State::Asking(_) | State::Identifying | State::Verifying => self.on_unanswered(now, out),
            State::Resetting(level) => {
                self.reset = Some((level, now));
                self.reset_further(now, out);
            }
            State::Waiting(Awaited::Controller) => self.reset(now, ResetLevel::Controller, out),
            State::Waiting(Awaited::Namespace) | State::OtherDrive => self.ask_again(now, Question::Namespace, out),
            State::Waiting(Awaited::Path) => self.ask_again(now, Question::Path, out),
            State::Serving | State::Isolated | State::Waiting(_) => self.deadline = Nanos::NEVER,
        }
    }

    fn ask_again(&mut self, now: Nanos, question: Question, out: &mut Vec<Action>) {
        self.deadline = now.saturating_add(self.policy.answer_limit);
        out.push(Action::Ask(question));
    }

    // From state to state.

    fn set(&mut self, next: State) {
        debug_assert!(self.state.may_become(next), "{:?} may not follow {:?}", next, self.state);
        self.state = next;
    }

    fn ask(&mut self, now: Nanos, question: Question, out: &mut Vec<Action>) {
        if question == Question::Smart {
            self.asked_smart = Some(now);
        }
        self.set(State::Asking(question));
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::Asked(question));
        out.push(Action::Ask(question));
    }

    fn identify(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.set(State::Identifying);
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::Asked(Question::Namespace));
        out.push(Action::Ask(Question::Namespace));
    }

    fn reset(&mut self, now: Nanos, level: ResetLevel, out: &mut Vec<Action>) {
        self.set(State::Resetting(level));
        self.deadline = now.saturating_add(self.policy.reset_limit(level));
        self.step(now, Step::Reset(level));
        let command = self.late.take().filter(|_| level == ResetLevel::Abort);
        out.push(Action::Reset { level, command });
    }

    /// The last reset has not helped.
    fn reset_further(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let last = match self.state {
            State::Resetting(level) => Some(level),
            _ => self.reset.map(|(level, _)| level),
        };
        self.blame(now, Verdict::Controller);
        match last.map_or(Some(ResetLevel::Controller), ResetLevel::next) {
            Some(level) => self.reset(now, level, out),
            None => self.wait(now, Awaited::Controller),
        }
    }

    /// Waits, and looks again after a pause that grows.
    fn wait(&mut self, now: Nanos, awaited: Awaited) {
        if self.state != State::Waiting(awaited) {
            self.set(State::Waiting(awaited));
        }
        self.deadline = now.saturating_add(self.policy.delay(self.attempts));
        self.attempts = self.attempts.saturating_add(1);
    }

    fn serve(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.set(State::Serving);
        self.deadline = Nanos::NEVER;
        self.attempts = 0;
        self.step(now, Step::Resumed);
        self.conclude(now, out);
    }

    fn isolate(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.blame(now, Verdict::Media);
        self.suspects.condemn();
        self.set(State::Isolated);
        self.deadline = Nanos::NEVER;
        self.step(now, Step::Isolated);
        self.conclude(now, out);
    }

    /// The disturbance is over, or has come to its end.
    fn conclude(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let Some(mut report) = self.report.take() else { return };
        report.ended = Some(now);
        out.push(Action::Report(report));
    }

    /// Nothing has happened after all.
    fn forget_if_idle(&mut self) {
        if self.report.as_ref().is_some_and(|report| report.taken.is_empty()) {
            self.report = None;
        }
    }

    // The gate.

    /// How long commands wait.
    fn patience(&self) -> Nanos {
        match (self.state, self.policy.removal) {
            (State::Waiting(Awaited::Drive), Removal::Error) => Nanos(0),
            (State::Waiting(Awaited::Drive), Removal::Hold(time)) => time,
            _ => self.policy.hold,
        }
    }

    fn wanted_gate(&self, now: Nanos) -> Gate {
        let waited = self.stopped.map_or(Nanos(0), |since| now.saturating_sub(since));
        match self.state {
            _ if self.suspects.is_condemned() => Gate::Failing(FailReason::Media),
            State::Serving => Gate::Open,
            State::OtherDrive => Gate::Failing(FailReason::Path),
            State::Waiting(Awaited::Path) if self.is_path_lost => Gate::Failing(FailReason::Path),
            // Once commands fail, they fail until the drive serves: a host has been told.
            _ if matches!(self.gate, Gate::Failing(_)) => Gate::Failing(FailReason::Path),
            _ if waited >= self.patience() => Gate::Failing(FailReason::Path),
            _ => Gate::Paused,
        }
    }

    fn tell_gate(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.state == State::Serving {
            self.stopped = None;
        } else {
            self.stopped.get_or_insert(now);
        }
        let gate = self.wanted_gate(now);
        if gate == self.gate {
            return;
        }
        self.gate = gate;
        out.push(Action::Gate(gate));
        if matches!(gate, Gate::Failing(_)) && self.state != State::Isolated && self.state != State::OtherDrive {
            self.step(now, Step::Failed);
            out.extend(self.report.clone().map(Action::Report));
        }
    }

    /// States the invariants.
    ///
    /// # Panics
    /// One does not hold.
    pub fn check(&self) {
        assert_eq!(self.state == State::Serving, self.gate == Gate::Open, "{:?} {:?}", self.state, self.gate);
        assert_eq!(self.state == State::Serving, self.stopped.is_none(), "{:?}", self.state);
        assert_eq!(self.state.has_deadline(), self.deadline != Nanos::NEVER, "{:?} {:?}", self.state, self.deadline);
        if self.state == State::Isolated {
            assert!(self.suspects.is_condemned(), "isolated without a reason");
        }
        if self.gate == Gate::Paused {
            assert!(self.report.is_some(), "commands wait and no report says why: {:?}", self.state);
            assert!(self.due() != Nanos::NEVER, "commands wait for ever: {:?}", self.state);
        }
        self.suspects.check();
    }
}

/// The status of a command that is not sent, if the gate is closed for good.
pub fn refusal(gate: Gate, access: Access) -> Option<Status> {
    match gate {
        Gate::Failing(reason) => Some(reason.status(access)),
        Gate::Open | Gate::Paused => None,
    }
}
