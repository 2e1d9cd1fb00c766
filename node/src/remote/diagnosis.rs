//! What the diagnosis of a drive wants ([`Health`]), carried out on the way to it.
//!
//! A reset at any level gives the association up and connects again: over fabrics that is a controller level reset (base 2.0, 3.7.2), and
//! there is no other. A drive that has just been connected to needs none.

use super::Remote;
use crate::events::{EventLog, tell};
use crate::transfer::Transfer;
use std::collections::{BTreeMap, VecDeque};
use weir_controller::{FailingBlock, FailingDie, SlotId};
use weir_drive::SpeedStatus;
use weir_driver::health::{
    Access, Awaited, EpisodeEvent, Episodes, Evidence, Extent, FailReason, Failure, Gate, Health, HealthAction,
    HealthReport, Limits, NamespaceAnswer, Observation, PathState, Policy, Question, ResetLevel, SmartReading, State,
    Ticket, Verdict, VerdictCount, refusal,
};
use weir_driver::link_recovery::DriveIdentity;
use weir_driver::{Io as Request, IoKind, TransportError};
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// Reports that are kept.
pub(crate) const REPORTS: usize = 16;
/// Commands wait for that long at least while the drive is asked.
const LEAST_HOLD: Nanos = Nanos::from_secs(1);
/// How often an answer to a question is looked for.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// A command that has failed, and is not answered.
#[derive(Clone, Copy)]
struct FailedBefore {
    retries: u32,
    since: Nanos,
}

/// See the [module](self).
pub(super) struct Diagnosis {
    health: Health,
    identity: DriveIdentity,
    actions: Vec<HealthAction>,
    /// What follows from actions at once.
    evidence: VecDeque<Evidence>,
    /// By [`Transfer::order`].
    failed: BTreeMap<u64, FailedBefore>,
    /// The one whose failure is being judged.
    in_hand: Option<Transfer>,
    /// Sent again at these times.
    later: Vec<(Nanos, Transfer)>,
    /// Blocks to be read, and the one that is.
    verify: VecDeque<Extent>,
    reading: Option<(u32, Extent)>,
    /// What was found where it was connected to last; none once something has failed there.
    found: Option<NamespaceAnswer>,
    /// The association is given up for a reset or a look at the namespace.
    gives_up: bool,
    /// The namespace may be gone or another one.
    is_namespace_in_doubt: bool,
    awaits_smart: bool,
    /// Commands that have ended, not handed over yet.
    pub(super) ended: Vec<(SlotId, Status)>,
    reports: VecDeque<HealthReport>,
    disturbances: u64,
    episodes: Episodes,
    told: Vec<EpisodeEvent>,
    /// The last action's report, and whether a reset was among the actions.
    reported: Option<HealthReport>,
    is_reset: bool,
}

/// What users see of the drive's health.
#[derive(Clone, Debug)]
pub struct HealthStatus {
    /// Where the diagnosis stands.
    pub state: State,
    /// What becomes of commands.
    pub gate: Gate,
    /// What it cannot do although it serves.
    pub limits: Limits,
    /// Blocks that cannot be read.
    pub bad_blocks: Vec<Extent>,
    /// Blocks that rules make fail now.
    pub failing_blocks: Vec<FailingBlock>,
    /// Dies of its flash that are to blame for pages that rules make fail now.
    pub failing_dies: Vec<FailingDie>,
    /// Dies of its flash in all; 0 of a drive without.
    pub dies: u32,
    /// The last reading of its SMART log.
    pub smart: Option<SmartReading>,
    /// Disturbances so far.
    pub disturbances: u64,
    /// The latest ones, the last one last; it may go on.
    pub reports: Vec<HealthReport>,
    /// How they have ended, by verdict.
    pub verdicts: Vec<VerdictCount>,
    /// For how long commands have waited or failed, the last time that they did and then went on.
    pub last_pause: Option<Nanos>,
    /// How fast it is, compared with its model; `None` of a drive without one.
    pub speed: Option<SpeedStatus>,
    /// The clock of the reports.
    pub now: Nanos,
}

impl HealthStatus {
    /// The gravest thing that is the matter now.
    pub fn verdict(&self) -> Option<Verdict> {
        let goes_on = self.reports.last().filter(|report| report.ended.is_none()).map(|report| report.verdict);
        match self.state {
            State::Isolated => Some(Verdict::Media),
            State::OtherDrive => Some(Verdict::OtherDrive),
            State::Serving if self.limits.read_only => Some(Verdict::ReadOnly),
            State::Serving if self.limits.full => Some(Verdict::Full),
            State::Serving if self.has_failing_die() => Some(Verdict::FailingDie),
            State::Serving if self.limits.worn => Some(Verdict::WearWarning),
            State::Serving if !(self.bad_blocks.is_empty() && self.failing_blocks.is_empty()) => {
                Some(Verdict::BadBlocks)
            }
            State::Serving if self.limits.slow.is_some() => Some(Verdict::Slow),
            _ => goes_on,
        }
    }

    /// Whether single dies fail. Where most of them do, it is not the dies.
    fn has_failing_die(&self) -> bool {
        let failing = self.failing_dies.len();
        failing > 0 && 2 * failing <= self.dies as usize
    }
}

impl Diagnosis {
    /// Of a drive that serves. Commands wait for `hold` when it does not.
    pub(super) fn new(identity: DriveIdentity, hold: Nanos) -> Self {
        // A question takes its time also where nothing waits for a link.
        let policy = Policy { hold: hold.max(LEAST_HOLD), ..Policy::default() };
        Diagnosis {
            health: Health::new(policy, identity),
            identity,
            actions: Vec::new(),
            evidence: VecDeque::new(),
            failed: BTreeMap::new(),
            in_hand: None,
            later: Vec::new(),
            verify: VecDeque::new(),
            reading: None,
            found: None,
            gives_up: false,
            is_namespace_in_doubt: false,
            awaits_smart: false,
            ended: Vec::new(),
            reports: VecDeque::new(),
            disturbances: 0,
            episodes: Episodes::new(0),
            told: Vec::new(),
            reported: None,
            is_reset: false,
        }
    }

    /// Its disturbances are numbered on from those that the events know.
    pub(super) fn number_after(&mut self, events: &EventLog, drive: &str) {
        self.episodes.go_on_after(events.last_episode(drive));
    }

    /// What is to be told after evidence was taken.
    fn take_told(&mut self, now: Nanos) -> Vec<EpisodeEvent> {
        let (is_reset, reported) = (std::mem::take(&mut self.is_reset), self.reported.take());
        let (gate, current) = (self.health.gate(), self.health.report());
        let seen = Observation { gate, is_reset, current, reported: reported.as_ref() };
        self.episodes.observe(now, seen, &mut self.told);
        if let Some(report) = reported {
            self.keep(report);
        }
        std::mem::take(&mut self.told)
    }

    /// Whether commands may be sent. While the path is closed, the link's own machine finds out when it is open.
    pub(super) fn lets_through(&self) -> bool {
        self.health.gate() == Gate::Open || self.health.state() == State::Waiting(Awaited::Path)
    }

    /// The status of a command that is not sent, if it fails.
    pub(super) fn refusal(&self, access: Access) -> Option<Status> {
        refusal(self.health.gate(), access)
    }

    /// Commands that wait for their time.
    pub(super) fn waiting(&self) -> usize {
        self.later.len()
    }

    /// When it wants to be looked after.
    pub(super) fn due(&self) -> Nanos {
        let again = self.later.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::NEVER);
        if self.ended.is_empty() { self.health.due().min(again) } else { Nanos(0) }
    }

    pub(super) fn status(&self, now: Nanos) -> HealthStatus {
        let mut reports: Vec<HealthReport> = self.reports.iter().cloned().collect();
        reports.extend(self.health.report().cloned());
        HealthStatus {
            state: self.health.state(),
            gate: self.health.gate(),
            limits: self.health.limits(),
            bad_blocks: self.health.bad_blocks().collect(),
            failing_blocks: Vec::new(),
            failing_dies: Vec::new(),
            dies: 0,
            smart: self.health.smart(),
            disturbances: self.disturbances,
            reports,
            verdicts: self.episodes.counts().collect(),
            last_pause: self.episodes.last_pause(),
            speed: None,
            now,
        }
    }

    fn keep(&mut self, report: HealthReport) {
        if report.ended.is_none() {
            return;
        }
        self.disturbances += 1;
        if self.reports.len() == REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }
}

/// What a transfer's chunk does.
fn access(kind: IoKind) -> Access {
    match kind {
        IoKind::Read => Access::Read,
        IoKind::Write | IoKind::WriteZeroes | IoKind::Trim => Access::Write,
        IoKind::Flush => Access::Other,
    }
}

impl Remote {
    /// Events of the diagnosis go there from now on.
    pub fn report_to(&mut self, events: &EventLog) {
        if let Some(diagnosis) = &mut self.diagnosis {
            diagnosis.number_after(events, &self.origin.source.drive);
        }
        self.events = Some(events.clone());
    }

    /// A command has come back with an error.
    #[cold]
    pub(super) fn judge(&mut self, now: Nanos, transfer: Transfer, status: Status) {
        let block = u64::from(self.pair.block_size().max(1));
        let Some(diagnosis) = &mut self.diagnosis else { return };
        let before = diagnosis.failed.entry(transfer.order).or_insert(FailedBefore { retries: 0, since: now });
        let failure = Failure {
            ticket: Ticket(transfer.order),
            access: access(transfer.kind()),
            extent: Extent {
                lba: transfer.offset() / block,
                blocks: (u64::from(transfer.chunk) / block).max(1) as u32,
            },
            status,
            retry_delay: None,
            retries: before.retries,
            since: before.since,
        };
        diagnosis.found = None;
        diagnosis.in_hand = Some(transfer);
        self.diagnose(now, Evidence::Failed(failure));
    }

    /// Gives evidence, and does what follows from it.
    #[cold]
    pub fn diagnose(&mut self, now: Nanos, evidence: Evidence) {
        let mut next = Some(evidence);
        while let Some(evidence) = next {
            let Some(diagnosis) = &mut self.diagnosis else { return };
            let mut actions = std::mem::take(&mut diagnosis.actions);
            diagnosis.health.apply(now, evidence, &mut actions);
            for action in actions.drain(..) {
                self.treat(now, action);
            }
            let Some(diagnosis) = &mut self.diagnosis else { return };
            diagnosis.actions = actions;
            next = diagnosis.evidence.pop_front();
            let told = diagnosis.take_told(now);
            told.iter().for_each(|event| tell(self.events.as_ref(), &self.origin.source.drive, event));
        }
        self.knows_bad_blocks =
            self.diagnosis.as_ref().is_some_and(|diagnosis| diagnosis.health.bad_blocks().next().is_some());
    }

    /// Blocks were read, or written, after which they can be read again.
    #[cold]
    pub(super) fn tell_carried_out(&mut self, now: Nanos, transfer: &Transfer) {
        let block = u64::from(self.pair.block_size().max(1));
        let extent = Extent { lba: transfer.offset() / block, blocks: (u64::from(transfer.chunk) / block) as u32 };
        match transfer.kind() {
            IoKind::Write | IoKind::WriteZeroes => self.diagnose(now, Evidence::WrittenByHost(extent)),
            IoKind::Read => self.diagnose(now, Evidence::ReadByHost(extent)),
            IoKind::Trim | IoKind::Flush => {}
        }
    }

    fn treat(&mut self, now: Nanos, action: HealthAction) {
        match action {
            HealthAction::Gate(Gate::Failing(reason)) => self.fail_waiting(reason),
            HealthAction::Gate(Gate::Open | Gate::Paused) => {}
            HealthAction::Deliver { ticket, status } => self.deliver(ticket, status),
            HealthAction::Hold(ticket) => self.send_again(now, ticket, now),
            HealthAction::Retry { ticket, at } => self.send_again(now, ticket, at),
            HealthAction::Ask(question) => self.ask(now, question),
            HealthAction::ReadAgain(extent) => self.with_diagnosis(|diagnosis| diagnosis.verify.push_back(extent)),
            HealthAction::Reset { level, .. } => {
                self.with_diagnosis(|diagnosis| diagnosis.is_reset = true);
                self.reset(level);
            }
            // The link's own machine does that.
            HealthAction::Reconnect => {}
            HealthAction::Report(report) => self.with_diagnosis(|diagnosis| diagnosis.reported = Some(report)),
        }
    }

    fn with_diagnosis(&mut self, change: impl FnOnce(&mut Diagnosis)) {
        if let Some(diagnosis) = &mut self.diagnosis {
            change(diagnosis);
        }
    }

    fn take_in_hand(&mut self, ticket: Ticket) -> Option<Transfer> {
        self.diagnosis.as_mut()?.in_hand.take_if(|transfer| transfer.order == ticket.0)
    }

    fn deliver(&mut self, ticket: Ticket, status: Status) {
        let Some(transfer) = self.take_in_hand(ticket) else { return };
        self.with_diagnosis(|diagnosis| {
            diagnosis.failed.remove(&ticket.0);
            diagnosis.ended.push((transfer.io.slot, status));
        });
    }

    fn send_again(&mut self, now: Nanos, ticket: Ticket, at: Nanos) {
        let Some(transfer) = self.take_in_hand(ticket) else { return };
        self.with_diagnosis(|diagnosis| {
            if let Some(before) = diagnosis.failed.get_mut(&ticket.0) {
                before.retries += 1;
            }
        });
        if at <= now {
            return self.hold(transfer, Some(now));
        }
        self.with_diagnosis(|diagnosis| diagnosis.later.push((at, transfer)));
    }

    fn fail_waiting(&mut self, reason: FailReason) {
        let mut waiting: Vec<Transfer> = self.waiting.drain(..).collect();
        self.with_diagnosis(|diagnosis| {
            waiting.extend(diagnosis.later.drain(..).map(|(_, transfer)| transfer));
            diagnosis.failed.clear();
            let end = |transfer: &Transfer| (transfer.io.slot, reason.status(access(transfer.kind())));
            diagnosis.ended.extend(waiting.iter().map(end));
        });
    }

    fn ask(&mut self, now: Nanos, question: Question) {
        let is_serving = self.link.is_serving();
        let can_ask = question == Question::Smart && self.pair.ask_smart();
        let Some(diagnosis) = &mut self.diagnosis else { return };
        match question {
            Question::Smart if can_ask => {
                diagnosis.awaits_smart = true;
                self.attend_at = now;
            }
            // A drive without that log says nothing about its media.
            Question::Smart => {
                diagnosis.evidence.push_back(Evidence::Smart(diagnosis.health.smart().unwrap_or_default()))
            }
            Question::Csts => diagnosis.evidence.push_back(Evidence::Csts(1)),
            Question::Path => {
                let path = if is_serving { PathState::Usable } else { PathState::Inaccessible };
                diagnosis.evidence.push_back(Evidence::Path(path));
            }
            Question::Namespace => match diagnosis.found {
                Some(answer) => diagnosis.evidence.push_back(Evidence::Namespace(answer)),
                // What connects again looks at the namespace.
                None => self.leave_association("its namespace is looked at again"),
            },
        }
    }

    fn reset(&mut self, level: ResetLevel) {
        let Some(diagnosis) = &mut self.diagnosis else { return };
        if diagnosis.found.is_some() || level == ResetLevel::Abort {
            let worked = diagnosis.found.is_some();
            return diagnosis.evidence.push_back(Evidence::ResetEnded { level, worked });
        }
        self.leave_association("its diagnosis resets it");
    }

    /// The association ends, and another is made; what is in flight waits.
    fn leave_association(&mut self, why: &str) {
        if !self.link.is_connected() {
            return;
        }
        self.with_diagnosis(|diagnosis| diagnosis.gives_up = true);
        let text = format!("{}: {why}", self.origin.source.target);
        self.loss.get_or_insert(TransportError::Closed(text));
    }

    // What the link's machine says.

    /// The association is lost, or was given up.
    pub(super) fn diagnose_loss(&mut self, now: Nanos) {
        let Some(diagnosis) = &mut self.diagnosis else { return };
        diagnosis.found = None;
        diagnosis.awaits_smart = false;
        if std::mem::take(&mut diagnosis.is_namespace_in_doubt) {
            // It asks which namespace is there, by giving the association up.
            self.diagnose(now, Evidence::NamespaceChanged);
        }
        let Some(diagnosis) = &mut self.diagnosis else { return };
        if !std::mem::take(&mut diagnosis.gives_up) {
            self.diagnose(now, Evidence::LinkLost);
        }
    }

    /// The association ends, since its namespace may be gone or another one.
    pub(super) fn doubt_namespace(&mut self, why: &str) {
        if self.loss.is_some() {
            return;
        }
        self.with_diagnosis(|diagnosis| diagnosis.is_namespace_in_doubt = true);
        self.loss = Some(TransportError::Closed(format!("{}: {why}", self.origin.source.target)));
    }

    /// The same drive is connected to, and nothing of before is at it.
    pub(super) fn diagnose_connected(&mut self, now: Nanos) {
        if let Some(identity) = self.diagnosis.as_ref().map(|diagnosis| diagnosis.identity) {
            self.diagnose_found(now, NamespaceAnswer::Present(identity));
        }
    }

    /// A command was answered over a path that was closed.
    pub(super) fn diagnose_open_path(&mut self, now: Nanos) {
        let waits = |diagnosis: &Diagnosis| diagnosis.health.state() == State::Waiting(Awaited::Path);
        if self.link.is_serving() && self.diagnosis.as_ref().is_some_and(waits) {
            self.diagnose_connected(now);
        }
    }

    /// What an attempt to connect has found; where that is not the drive, the next attempt looks again.
    pub(super) fn diagnose_found(&mut self, now: Nanos, answer: NamespaceAnswer) {
        let Some(diagnosis) = &mut self.diagnosis else { return };
        diagnosis.found = Some(answer);
        let evidence = match diagnosis.health.state() {
            State::Resetting(level) => Evidence::ResetEnded { level, worked: true },
            State::Waiting(Awaited::Link) => Evidence::LinkBack,
            State::Waiting(Awaited::Path) => Evidence::Path(PathState::Usable),
            State::Identifying | State::Waiting(Awaited::Namespace) | State::OtherDrive => Evidence::Namespace(answer),
            _ => Evidence::Time,
        };
        self.diagnose(now, evidence);
        self.with_diagnosis(|diagnosis| {
            diagnosis.found = diagnosis.found.filter(|_| answer == NamespaceAnswer::Present(diagnosis.identity));
        });
    }

    // What is looked after.

    /// Time has passed, an answer may be there, a block may be read.
    #[cold]
    pub(super) fn look_after_diagnosis(&mut self, now: Nanos) {
        let Some(diagnosis) = &mut self.diagnosis else { return };
        let is_due = now >= diagnosis.health.due();
        let (due, later): (Vec<_>, Vec<_>) = diagnosis.later.drain(..).partition(|(at, _)| *at <= now);
        diagnosis.later = later;
        let smart = diagnosis.awaits_smart.then(|| self.pair.take_smart()).flatten();
        diagnosis.awaits_smart &= smart.is_none();
        let awaits = diagnosis.awaits_smart;
        due.into_iter().for_each(|(_, transfer)| self.hold(transfer, Some(now)));
        if awaits && self.link.is_connected() {
            self.attend_at = self.attend_at.min(now.saturating_add(LOOK_EVERY));
        }
        if let Some(reading) = smart {
            self.diagnose(now, Evidence::Smart(reading));
        }
        if is_due {
            self.diagnose(now, Evidence::Time);
        }
    }

    /// The SMART log as it is before anything fails: what was counted then is no evidence.
    pub(super) fn ask_smart_first(&mut self, now: Nanos) {
        if self
            .diagnosis
            .as_ref()
            .is_some_and(|diagnosis| diagnosis.health.smart().is_none() && !diagnosis.awaits_smart)
        {
            self.ask(now, Question::Smart);
            while let Some(evidence) = self.diagnosis.as_mut().and_then(|diagnosis| diagnosis.evidence.pop_front()) {
                self.diagnose(now, evidence);
            }
        }
    }

    /// A suspect block is read, if one is to be.
    pub(super) fn read_suspect(&mut self) {
        let block = self.pair.block_size();
        let is_ready = self.loss.is_none() && self.link.is_connected() && !self.free.is_empty();
        let Some(diagnosis) = self.diagnosis.as_mut().filter(|diagnosis| is_ready && diagnosis.reading.is_none())
        else {
            return;
        };
        let Some(extent) = diagnosis.verify.pop_front() else { return };
        let Some(slot) = self.free.pop() else { return };
        diagnosis.reading = Some((slot, extent));
        let len = extent.blocks.saturating_mul(block).min(self.pair.max_io());
        self.heard_at = None;
        self.is_silent = false;
        let offset = extent.lba * u64::from(block);
        if let Err(e) = self.pair.submit(Request { kind: IoKind::Read, offset, len, slot }) {
            self.loss.get_or_insert(e);
        }
    }

    /// Whether that slot was a suspect's, which has ended.
    pub(super) fn ends_suspect(&mut self, now: Nanos, slot: u32, status: Status) -> bool {
        let Some(diagnosis) = &mut self.diagnosis else { return false };
        let Some((_, extent)) = diagnosis.reading.take_if(|(own, _)| *own == slot) else { return false };
        self.free.push(slot);
        self.diagnose(now, Evidence::ReadAgain { lba: extent.lba, status });
        true
    }

    /// The queue pair is gone; what was to be read is asked for again.
    pub(super) fn forget_suspects(&mut self) {
        self.with_diagnosis(|diagnosis| {
            diagnosis.verify.clear();
            diagnosis.reading = None;
        });
    }
}
