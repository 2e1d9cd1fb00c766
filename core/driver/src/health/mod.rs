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
//! log does not count the errors, they must be unreadable after every reset there is. Write faults never do: a drive that cannot be written can be read.
//! Nor do blocks without the word of the drive that their media failed: access is denied, or the controller fails at them, also after a reset,
//! and not at another block that is read beside them. These are bad blocks.
//! What a tenant can cause is no evidence: [`StatusClass::Host`], and blocks in [`Evidence::MarkedByHost`].
//!
//! **Commands.** A failed command is delivered, held or retried, by one action for each. A media error is delivered once the block was
//! read again and the drive was asked; then it costs that block. A drive that does not serve lets commands wait for
//! [`hold`](Policy::hold), then they fail until it does: it is looked for as long as it takes.
//!
//! **A drive that the kernel drives** ([`Policy::recovers`]) is always `Serving`: what fails is delivered, and told once.
//!
//! The caller gives evidence at once as it comes, and [`Evidence::Time`] at [`Health::due`]. It carries out the actions in their order.
// tidy: long because it is one machine, which the drawing shows.

mod action;
mod command_gate;
mod commands;
mod episode;
mod evidence;
mod policy;
mod report;
mod speed;
#[cfg(test)]
mod speed_tests;
mod state;
mod suspects;
#[cfg(test)]
mod tests;

pub use action::{FailReason, Gate, HealthAction};
pub use command_gate::refusal;
pub use episode::{
    EPISODE_BURST, EPISODE_WINDOW, EpisodeAction, EpisodeEvent, Episodes, MOST_EVENTS, Observation, VerdictCount,
};
pub use evidence::*;
pub use policy::{Policy, Removal};
pub use report::{HealthReport, REPORT_ENTRIES, Seen, Step, Taken, Verdict};
pub use speed::{DIES, LEAST_OPERATIONS, NotJudged, SLOW_PERCENT, Speed, SpeedLook, SpeedWatch, WINDOW, WorkDone};
pub use state::{Awaited, Question, State};
pub use suspects::{MARKS, SUSPECTS};

use crate::link_recovery::DriveIdentity;
use alloc::vec::Vec;
use suspects::{Suspects, Verification};
use weir_spec::nvme::Status;
use weir_spec::nvme::register::Csts;
use weir_units::Nanos;

/// Actions of one [`Health::apply`] at most.
pub const MOST_ACTIONS: usize = SUSPECTS + 8;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Health {
    policy: Policy,
    identity: DriveIdentity,
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
    /// The greatest reset of the last minute, and when the last one ended.
    reset: Option<(ResetLevel, Nanos)>,
    /// The last one.
    last_reset: Option<(ResetLevel, Nanos)>,
    /// The command that was late.
    late: Option<Ticket>,
    /// Attempts at what is waited for.
    attempts: u32,
    /// What is waited for was asked, and is not answered yet.
    is_asked: bool,
    /// Resets have not helped a command; until then there is none for the controller's failures, and for so long.
    resets_rest_until: Nanos,
    resets_rest: Nanos,
    /// When another block was last read although commands failed at some.
    others_work: Option<Nanos>,
    /// Resets do not help its write faults.
    cannot_write: bool,
    /// Which namespace is there has to be asked before commands go on.
    is_in_doubt: bool,
    /// The path does not come back by itself.
    is_path_lost: bool,
    limits: Limits,
    report: Option<HealthReport>,
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
    /// What it is on has no room.
    pub full: bool,
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
    pub fn new(policy: Policy, identity: DriveIdentity) -> Self {
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
            last_reset: None,
            late: None,
            attempts: 0,
            is_asked: false,
            resets_rest_until: Nanos(0),
            resets_rest: Nanos(0),
            others_work: None,
            cannot_write: false,
            is_in_doubt: false,
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
    pub fn report(&self) -> Option<&HealthReport> {
        self.report.as_ref()
    }

    /// The last reading of the SMART log.
    pub fn smart(&self) -> Option<SmartReading> {
        self.smart
    }

    /// Blocks that are known to be unreadable.
    pub fn bad_blocks(&self) -> impl Iterator<Item = Extent> + '_ {
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
    pub fn replace(&mut self, now: Nanos, identity: DriveIdentity, out: &mut Vec<HealthAction>) {
        let policy = self.policy;
        let (gate, report) = (self.gate, self.report.take());
        *self = Health { gate, report, stopped: Some(now), ..Health::new(policy, identity) };
        self.report.get_or_insert_with(|| HealthReport::begin(now));
        self.reset(now, ResetLevel::Controller, out);
        self.tell_gate(now, out);
    }

    /// Takes evidence; appends what is to be done, at most [`MOST_ACTIONS`].
    pub fn apply(&mut self, now: Nanos, evidence: Evidence, out: &mut Vec<HealthAction>) {
        self.note(now, evidence);
        match evidence {
            Evidence::Failed(failure) => self.on_failed(now, failure, out),
            Evidence::Late(ticket) => self.on_late(now, ticket, out),
            Evidence::Csts(value) => self.on_csts(now, value, out),
            Evidence::Smart(reading) => self.on_smart(now, reading, out),
            Evidence::Unanswered => self.on_unanswered(now, out),
            Evidence::ReadAgain { lba, status } => self.on_read_again(now, lba, status, out),
            Evidence::ResetEnded { level, worked } => self.on_reset_ended(now, level, worked, out),
            Evidence::Namespace(answer) => self.on_namespace(now, answer, out),
            Evidence::NamespaceChanged => self.on_namespace_changed(now, out),
            Evidence::LinkLost => self.on_link_lost(now, out),
            Evidence::LinkBack => self.on_back(now, Awaited::Link, out),
            Evidence::Path(path) => self.on_path(now, path, out),
            Evidence::Removed => self.on_removed(now),
            Evidence::Arrived => self.on_arrived(now, out),
            Evidence::MarkedByHost(extent) => self.suspects.mark(extent),
            Evidence::WrittenByHost(extent) => self.on_written(extent),
            Evidence::ReadByHost(extent) => self.suspects.read(extent),
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

    /// What a host wanted, what is known, and nothing are not listed; answers only beside what was asked for.
    fn note(&mut self, now: Nanos, evidence: Evidence) {
        match evidence {
            Evidence::Time
            | Evidence::MarkedByHost(_)
            | Evidence::WrittenByHost(_)
            | Evidence::ReadByHost(_)
            | Evidence::Slow(_)
            | Evidence::AsFastAsModelled => return,
            Evidence::Failed(failure) if self.is_no_news(failure) => return,
            Evidence::Namespace(_) | Evidence::Path(_)
                if self.report.as_ref().is_some_and(|report| report.has_last_seen(evidence)) =>
            {
                return;
            }
            Evidence::Smart(_) | Evidence::Csts(_) | Evidence::Path(PathState::Usable) | Evidence::Unanswered => {}
            _ if self.state == State::Isolated => {}
            _ => {
                self.quiet_at = now.saturating_add(self.policy.window);
                self.report.get_or_insert_with(|| HealthReport::begin(now));
            }
        }
        if let Some(report) = &mut self.report {
            report.see(now, evidence);
        }
    }

    fn is_no_news(&self, failure: Failure) -> bool {
        match StatusClass::of(failure.status).of_access(failure.access) {
            StatusClass::UnreadableMedia => self.is_marked(failure.extent) || self.suspects.is_bad(failure.extent),
            StatusClass::WriteFault => {
                self.cannot_write || self.limits.read_only || self.suspects.is_write_faulty(failure.extent)
            }
            StatusClass::Controller => self.is_known_to_fail(failure),
            StatusClass::ReadOnly => self.limits.read_only,
            class => matches!(class, StatusClass::Host | StatusClass::Aborted),
        }
    }

    /// Whether the controller has failed at this block before, resets have not helped, and it has not failed at another one.
    fn is_known_to_fail(&self, failure: Failure) -> bool {
        match failure.access {
            Access::Read => self.suspects.is_bad(failure.extent),
            Access::Write => self.suspects.is_write_faulty(failure.extent),
            Access::Other => false,
        }
    }

    fn is_warned(&self) -> bool {
        self.smart.is_some_and(SmartReading::has_media_warning)
    }

    fn is_marked(&self, extent: Extent) -> bool {
        self.suspects.is_marked(extent, self.is_warned())
    }

    fn on_written(&mut self, extent: Extent) {
        self.limits.full = false;
        self.suspects.written(extent);
        self.cannot_write &= self.suspects.write_faults() >= self.policy.isolate_blocks;
    }

    fn blame(&mut self, now: Nanos, verdict: Verdict) {
        self.report.get_or_insert_with(|| HealthReport::begin(now)).blame(verdict);
    }

    fn step(&mut self, now: Nanos, step: Step) {
        if let Some(report) = &mut self.report {
            report.take(now, step);
        }
    }

    // Answers.

    fn on_csts(&mut self, now: Nanos, value: u32, out: &mut Vec<HealthAction>) {
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
            let again = self.last_reset.is_some_and(|(_, at)| now.saturating_sub(at) <= self.policy.credit);
            let level = self.last_reset.filter(|_| again).and_then(|(level, _)| level.next());
            self.reset(now, level.unwrap_or(ResetLevel::Abort), out);
        }
    }

    fn on_smart(&mut self, now: Nanos, reading: SmartReading, out: &mut Vec<HealthAction>) {
        self.suspects.compare(self.smart, reading);
        self.smart = Some(reading);
        self.note_limits(now, reading, out);
        if self.state != State::Asking(Question::Smart) {
            return;
        }
        if reading.is_read_only() && self.suspects.unconfirmed() == 0 {
            return self.serve(now, out);
        }
        if self.suspects.wants_control() {
            return self.verify(now, out);
        }
        let counted = self.suspects.count_since(now.saturating_sub(self.policy.memory));
        let few = self.suspects.unconfirmed() > 0 && counted < self.policy.isolate_blocks;
        let is_credible =
            (self.suspects.are_counted() || self.has_been_verified(now)) && self.suspects.are_unreadable();
        if few && is_credible && !reading.has_media_warning() {
            // Read again, they are believed without a reset.
            return self.verify(now, out);
        }
        self.reset(now, ResetLevel::Controller, out);
    }

    /// Whether a reset has lately shown that unreadable blocks of this drive are what they seem.
    fn has_been_verified(&self, now: Nanos) -> bool {
        self.suspects.verified().is_some_and(|at| now.saturating_sub(at) < self.policy.credit)
    }

    fn note_limits(&mut self, now: Nanos, reading: SmartReading, out: &mut Vec<HealthAction>) {
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
        if self.limits == before || self.state != State::Serving {
            return;
        }
        let memory = now.saturating_sub(self.policy.memory);
        if self.limits.worn && !before.worn && self.suspects.count_since(memory) > 0 {
            // Bad blocks of a drive that warns are more than bad blocks.
            self.suspects.reconsider(memory);
            return self.reset(now, ResetLevel::Controller, out);
        }
        self.conclude(now, out);
    }

    fn note_read_only(&mut self, now: Nanos) {
        self.limits.read_only = true;
        self.blame(now, Verdict::ReadOnly);
    }

    fn on_unanswered(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        match self.state {
            State::Asking(_) => {
                self.blame(now, Verdict::Controller);
                self.reset(now, ResetLevel::Controller, out);
            }
            State::Identifying => self.reset_further(now, out),
            State::Verifying => self.on_reading_unanswered(now, out),
            State::Waiting(Awaited::Namespace | Awaited::Path) | State::OtherDrive => {
                self.reset(now, ResetLevel::Controller, out);
            }
            _ => {}
        }
    }

    /// Reads are not answered. Where others are, or where every reset has been tried, these blocks cannot be read.
    fn on_reading_unanswered(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        let is_last = self.reset.is_some_and(|(level, _)| level.next().is_none());
        if !is_last && !self.suspects.has_answered() {
            return self.reset_further(now, out);
        }
        self.suspects.give_up_reading();
        self.confirm(now, out);
    }

    fn on_read_again(&mut self, now: Nanos, lba: u64, status: Status, out: &mut Vec<HealthAction>) {
        if self.state != State::Verifying {
            return;
        }
        let class = (!status.is_success()).then(|| StatusClass::of(status));
        let next = match class {
            // It says nothing about the block: once the namespace is well again, all are read.
            Some(StatusClass::Path(_) | StatusClass::Namespace | StatusClass::Retry) => {
                return self.wait(now, Awaited::Namespace);
            }
            None | Some(StatusClass::UnreadableMedia | StatusClass::Denied) if self.suspects.is_control(lba) => {
                let next = self.suspects.control_answered();
                self.others_work = self.suspects.has_proven_control().then_some(now).or(self.others_work);
                next
            }
            None | Some(StatusClass::UnreadableMedia | StatusClass::Denied) => self.suspects.verify(lba, class),
            Some(_) if self.suspects.has_working_control() && !self.suspects.is_control(lba) => {
                self.suspects.verify(lba, class)
            }
            Some(_) => {
                self.suspects.acquit();
                return self.reset_further(now, out);
            }
        };
        self.deadline = now.saturating_add(self.policy.answer_limit);
        match next {
            Verification::ReadAgain(extent) => out.push(HealthAction::ReadAgain(extent)),
            Verification::Pending => {}
            Verification::Complete => self.confirm(now, out),
        }
    }

    /// All suspects were read again: are the media bad?
    fn confirm(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        let again = self.suspects.unreadable_again();
        let warned = self.is_warned();
        let proven = self.suspects.proven_again();
        let enough = proven >= self.policy.isolate_blocks || proven > 0 && warned;
        let lately = |(_, at): &(ResetLevel, Nanos)| now.saturating_sub(*at) < self.policy.credit;
        let greatest = self.reset.filter(lately).map_or(ResetLevel::Queue, |(level, _)| level.max(ResetLevel::Queue));
        let needed = match self.suspects.are_counted() {
            true if enough => ResetLevel::Controller,
            true => ResetLevel::Queue,
            false => ResetLevel::Function,
        };
        if let (true, Some(deeper)) = (again > 0 && greatest < needed, greatest.next()) {
            return self.reset(now, deeper, out);
        }
        if enough {
            return self.isolate(now, out);
        }
        self.blame(now, if again > 0 { Verdict::BadBlocks } else { Verdict::Controller });
        self.suspects.settle(now);
        self.serve(now, out);
    }

    fn on_reset_ended(&mut self, now: Nanos, level: ResetLevel, worked: bool, out: &mut Vec<HealthAction>) {
        if self.state != State::Resetting(level) {
            return;
        }
        self.remember_reset(now, level);
        match (worked, level) {
            (false, _) => self.reset_further(now, out),
            (true, ResetLevel::Abort) => self.serve(now, out),
            (true, _) => self.identify(now, out),
        }
    }

    fn on_namespace(&mut self, now: Nanos, answer: NamespaceAnswer, out: &mut Vec<HealthAction>) {
        let is_other = matches!(answer, NamespaceAnswer::Present(found) if self.identity.difference(&found).is_some());
        let is_awaited =
            matches!(self.state, State::Identifying | State::Waiting(Awaited::Namespace) | State::OtherDrive);
        if !(is_awaited || is_other && self.state == State::Serving) {
            return;
        }
        match answer {
            NamespaceAnswer::Present(_) if is_other => self.find_other(now, out),
            NamespaceAnswer::Present(_) => self.find_same(now, out),
            NamespaceAnswer::NotReady | NamespaceAnswer::Absent if self.state == State::OtherDrive => {
                self.is_asked = false;
                self.deadline = now.saturating_add(self.policy.longest_delay);
            }
            NamespaceAnswer::NotReady | NamespaceAnswer::Absent => {
                self.blame(now, Verdict::Namespace);
                self.wait(now, Awaited::Namespace);
            }
        }
    }

    fn find_other(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        self.is_asked = false;
        self.deadline = now.saturating_add(self.policy.longest_delay);
        if self.state == State::OtherDrive {
            return;
        }
        self.blame(now, Verdict::OtherDrive);
        self.pass_through_identifying();
        self.set(State::OtherDrive);
        self.step(now, Step::Failed);
        out.extend(self.report.clone().map(HealthAction::Report));
    }

    fn find_same(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        self.pass_through_identifying();
        if self.suspects.is_condemned() {
            self.set(State::Isolated);
            self.deadline = Nanos::NEVER;
            return self.conclude(now, out);
        }
        if self.suspects.unconfirmed() == 0 {
            return self.serve(now, out);
        }
        self.verify(now, out);
    }

    fn verify(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        self.set(State::Verifying);
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::ReadAgain);
        self.asked_smart = Some(now);
        out.push(HealthAction::Ask(Question::Smart));
        let memory = now.saturating_sub(self.policy.memory);
        let blocks = self.identity.blocks();
        out.extend(self.suspects.begin_verifying(memory, blocks).map(HealthAction::ReadAgain));
    }

    /// An answer while the namespace is waited for is looked at as one that was asked for.
    fn pass_through_identifying(&mut self) {
        if self.state != State::Identifying {
            self.set(State::Identifying);
        }
    }

    // What comes and goes.

    fn on_namespace_changed(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        if matches!(self.state, State::Serving | State::Waiting(Awaited::Namespace) | State::OtherDrive) {
            self.blame(now, Verdict::Busy);
            self.identify(now, out);
        } else {
            self.is_in_doubt = true;
        }
    }

    fn on_link_lost(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        if matches!(self.state, State::Waiting(Awaited::Link | Awaited::Drive)) {
            return;
        }
        self.blame(now, Verdict::Link);
        self.step(now, Step::Reconnected);
        self.set(State::Waiting(Awaited::Link));
        self.deadline = Nanos::NEVER;
        out.push(HealthAction::Reconnect);
    }

    fn on_removed(&mut self, now: Nanos) {
        self.blame(now, Verdict::Removed);
        self.set(State::Waiting(Awaited::Drive));
        self.deadline = Nanos::NEVER;
    }

    /// What is there again must be enabled before it can be asked.
    fn on_back(&mut self, now: Nanos, awaited: Awaited, out: &mut Vec<HealthAction>) {
        if self.state == State::Waiting(awaited) || self.state == State::Waiting(Awaited::Drive) {
            self.reset(now, ResetLevel::Controller, out);
        }
    }

    fn on_arrived(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        if matches!(self.state, State::Waiting(Awaited::Drive | Awaited::Link) | State::OtherDrive) {
            self.reset(now, ResetLevel::Controller, out);
        }
    }

    fn on_path(&mut self, now: Nanos, path: PathState, out: &mut Vec<HealthAction>) {
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

    fn on_slow(&mut self, now: Nanos, slowness: Slowness, out: &mut Vec<HealthAction>) {
        let is_new = self.limits.slow.is_none();
        self.limits.slow = Some(slowness);
        if is_new && self.state == State::Serving {
            self.blame(now, Verdict::Slow);
            self.report.iter_mut().for_each(|report| report.see(now, Evidence::Slow(slowness)));
            self.conclude(now, out);
        }
    }

    fn on_deadline(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        match self.state {
            State::Asking(_) | State::Identifying | State::Verifying => self.on_unanswered(now, out),
            State::Resetting(level) => {
                // It may not have reached the drive.
                self.last_reset = Some((level, now));
                self.reset_further(now, out);
            }
            State::Waiting(Awaited::Controller) => self.reset(now, ResetLevel::Controller, out),
            State::Waiting(Awaited::Namespace | Awaited::Path) | State::OtherDrive if self.is_asked => {
                self.on_unanswered(now, out);
            }
            State::Waiting(Awaited::Namespace) | State::OtherDrive => self.ask_again(now, Question::Namespace, out),
            State::Waiting(Awaited::Path) => self.ask_again(now, Question::Path, out),
            State::Serving | State::Isolated | State::Waiting(_) => self.deadline = Nanos::NEVER,
        }
    }

    fn ask_again(&mut self, now: Nanos, question: Question, out: &mut Vec<HealthAction>) {
        self.is_asked = true;
        self.deadline = now.saturating_add(self.policy.answer_limit);
        out.push(HealthAction::Ask(question));
    }

    // From state to state.

    fn set(&mut self, next: State) {
        self.is_asked = false;
        debug_assert!(self.state.may_become(next), "{:?} may not follow {:?}", next, self.state);
        self.state = next;
    }

    fn ask(&mut self, now: Nanos, question: Question, out: &mut Vec<HealthAction>) {
        if question == Question::Smart {
            self.asked_smart = Some(now);
        }
        self.set(State::Asking(question));
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::Asked(question));
        out.push(HealthAction::Ask(question));
    }

    fn identify(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        self.set(State::Identifying);
        self.is_in_doubt = false;
        self.deadline = now.saturating_add(self.policy.answer_limit);
        self.step(now, Step::Asked(Question::Namespace));
        out.push(HealthAction::Ask(Question::Namespace));
    }

    fn reset(&mut self, now: Nanos, level: ResetLevel, out: &mut Vec<HealthAction>) {
        self.set(State::Resetting(level));
        self.failures = Window::default();
        self.deadline = now.saturating_add(self.policy.reset_limit(level));
        self.step(now, Step::Reset(level));
        let command = self.late.take().filter(|_| level == ResetLevel::Abort);
        out.push(HealthAction::Reset { level, command });
    }

    /// What is less than a reset of the last minute does not make that undone.
    fn remember_reset(&mut self, now: Nanos, level: ResetLevel) {
        let lately = |(_, at): &(ResetLevel, Nanos)| now.saturating_sub(*at) < self.policy.credit;
        let greatest = self.reset.filter(lately).map_or(level, |(before, _)| before.max(level));
        self.reset = Some((greatest, now));
        self.last_reset = Some((level, now));
    }

    /// The last reset has not helped.
    fn reset_further(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
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
        self.is_asked = false;
        if self.state != State::Waiting(awaited) {
            self.set(State::Waiting(awaited));
        }
        self.deadline = now.saturating_add(self.policy.delay(self.attempts));
        self.attempts = self.attempts.saturating_add(1);
    }

    fn serve(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        if self.is_in_doubt {
            return self.identify(now, out);
        }
        self.set(State::Serving);
        self.deadline = Nanos::NEVER;
        self.attempts = 0;
        self.step(now, Step::Resumed);
        self.conclude(now, out);
    }

    fn isolate(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        self.blame(now, Verdict::Media);
        self.suspects.condemn();
        self.set(State::Isolated);
        self.deadline = Nanos::NEVER;
        self.step(now, Step::Isolated);
        self.conclude(now, out);
    }

    /// The disturbance is over, or has come to its end.
    fn conclude(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        let Some(mut report) = self.report.take() else { return };
        report.ended = Some(now);
        out.push(HealthAction::Report(report));
    }
}
