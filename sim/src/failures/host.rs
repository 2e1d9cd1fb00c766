//! A client's reads and writes at a drive that fails, with the diagnosis in between: what is in flight is kept as a journal keeps it,
//! and sent again in order when the gate opens.

use super::ailment::DrawnFailure;
use super::drive::{BLOCKS, Command, Completion, FailingDrive, IDENTITY};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_driver::health::{
    Awaited, Evidence, Extent, Failure, Gate, Health, HealthAction, HealthReport, PathState, Policy, Question,
    ResetLevel, State, Ticket, Verdict, refusal,
};
use weir_spec::nvme::Status;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// Commands that the client has under way.
const DEPTH: usize = 8;
/// A command is late after that.
const LATE: Nanos = Nanos::from_millis(100);
/// How long an answer to a question takes.
const ANSWER: Nanos = Nanos::from_micros(200);
/// How often a host looks at registers, and whether a link is back.
const LOOK: Nanos = Nanos::from_millis(50);
/// The client begins nothing more after that, and everything has to be over after the other.
const BUSY_FOR: Nanos = Nanos::from_millis(500);
const OVER_AFTER: Nanos = Nanos::from_secs(120);
/// Blocks at the end that only the tenant who marks them uses.
const MARKED_FROM: u64 = BLOCKS - 32;

/// Whether a tenant who marks blocks has marked it.
pub fn is_marked(lba: u64) -> bool {
    lba >= MARKED_FROM
}

/// Where a command of the client's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Sent,
    Held,
    Again(Nanos),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    command: Command,
    since: Nanos,
    retries: u32,
    place: Place,
    /// When it was sent last.
    sent: Nanos,
}

/// What happens later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    Again(Ticket),
    Late(Ticket, Nanos),
    Answer(u8),
    ReadAgain(u64, u32),
    ResetEnds(ResetLevel, Option<Ticket>),
    Look,
    Announce,
}

const QUESTIONS: [Question; 4] = [Question::Csts, Question::Smart, Question::Namespace, Question::Path];

/// What came of a failure.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was told to the operator, in order.
    pub reports: Vec<HealthReport>,
    /// When the drive was isolated.
    pub isolated: Option<Nanos>,
    /// When the diagnosis had what it needs to isolate: as many bad blocks as count, or one and a warning.
    pub evident: Option<Nanos>,
    /// Reads that did not return what was written last.
    pub wrong: Vec<u64>,
    /// Commands that were answered with an error, and their status.
    pub errors: Vec<(u64, Status)>,
    /// Commands answered.
    pub answered: u64,
    /// Commands that were never answered.
    pub hung: usize,
    /// It neither serves nor is isolated in the end.
    pub is_stuck: bool,
    /// The longest time that a command took.
    pub longest: Nanos,
    /// Writes sent again that the drive had carried out before.
    pub resent: u64,
}

impl Outcome {
    /// The gravest verdict.
    pub fn verdict(&self) -> Option<Verdict> {
        self.reports.iter().map(|report| report.verdict).max()
    }
}

struct Host {
    now: Nanos,
    rng: Xoshiro256,
    drive: FailingDrive,
    health: Health,
    failure: DrawnFailure,
    operations: BTreeMap<Ticket, Operation>,
    next: u64,
    later: BinaryHeap<Reverse<(Nanos, u64, Later)>>,
    number: u64,
    /// What a read of each block may return: more than one value once a write of it has failed.
    expected: Vec<Vec<u64>>,
    /// The blocks with a command under way.
    busy: Vec<bool>,
    is_link_known: bool,
    outcome: Outcome,
    bad_seen: Vec<u64>,
}

/// What the host decides: CAP.TO of the drive is 2 s.
pub fn policy() -> Policy {
    let mut policy = Policy::default();
    for level in [ResetLevel::Controller, ResetLevel::Subsystem, ResetLevel::Function] {
        policy.reset_limits[level as usize] = Nanos::from_secs(2);
    }
    policy
}

/// Runs one failure to its end.
///
/// # Panics
/// An invariant of the diagnosis does not hold.
pub fn run(seed: u64, failure: DrawnFailure) -> Outcome {
    let drive = FailingDrive::new(seed, failure.ailments.clone(), failure.reset_time);
    let policy = policy();
    let mut host = Host {
        now: Nanos(0),
        rng: Xoshiro256::new(seed ^ 0x5eed),
        drive,
        health: Health::new(policy, IDENTITY),
        failure,
        operations: BTreeMap::new(),
        next: 0,
        later: BinaryHeap::new(),
        number: 0,
        expected: vec![vec![0]; BLOCKS as usize],
        busy: vec![false; BLOCKS as usize],
        is_link_known: true,
        outcome: Outcome::default(),
        bad_seen: Vec::new(),
    };
    host.begin();
    while host.step() {}
    host.finish()
}

impl Host {
    fn at(&mut self, time: Nanos, later: Later) {
        self.number += 1;
        self.later.push(Reverse((time, self.number, later)));
    }

    fn after(&mut self, pause: Nanos, later: Later) {
        self.at(self.now.saturating_add(pause), later);
    }

    fn begin(&mut self) {
        // What the drive counts before anything fails is no evidence of it.
        let smart = self.drive.smart(self.now);
        self.evidence(Evidence::Smart(smart));
        self.after(LOOK, Later::Look);
        let changes: Vec<Nanos> = self.drive.changes().collect();
        for change in changes {
            self.at(change, Later::Announce);
        }
        if self.failure.has_marks {
            for lba in MARKED_FROM..BLOCKS {
                self.drive.mark(lba);
                self.evidence(Evidence::MarkedByHost(Extent { lba, blocks: 1 }));
            }
        }
        self.fill();
    }

    /// Goes to the next moment at which anything happens; whether there is one.
    fn step(&mut self) -> bool {
        let event = self.later.peek().map_or(Nanos::NEVER, |Reverse((time, ..))| *time);
        let next = event.min(self.drive.next_end()).min(self.health.due());
        if next > OVER_AFTER {
            return false;
        }
        self.now = self.now.max(next);
        if self.drive.swaps(self.now) {
            self.drive.drop_all();
        }
        for completion in self.drive.take_completions(self.now) {
            self.complete(completion);
        }
        while self.later.peek().is_some_and(|Reverse((time, ..))| *time <= self.now) {
            if let Some(Reverse((_, _, later))) = self.later.pop() {
                self.happen(later);
            }
        }
        if self.now >= self.health.due() {
            self.evidence(Evidence::Time);
        }
        self.fill();
        self.is_unfinished()
    }

    fn is_unfinished(&self) -> bool {
        let is_settled = matches!(self.health.state(), State::Serving | State::Isolated);
        self.now < BUSY_FOR || !self.operations.is_empty() || self.health.report().is_some() || !is_settled
    }

    fn finish(mut self) -> Outcome {
        self.outcome.hung = self.operations.len();
        self.outcome.is_stuck = !matches!(self.health.state(), State::Serving | State::Isolated);
        if self.health.gate() == Gate::Open {
            // Every block is what its last acknowledged write made of it.
            for lba in 0..BLOCKS {
                let data = self.drive.content(lba);
                if !self.expected[lba as usize].contains(&data) {
                    self.outcome.wrong.push(lba);
                }
            }
        }
        self.outcome
    }

    // The client.

    fn fill(&mut self) {
        while self.now < BUSY_FOR && self.operations.len() < DEPTH {
            let lba = self.rng.below(BLOCKS);
            if self.busy[lba as usize] {
                continue;
            }
            self.next += 1;
            let is_write = self.rng.below(2) == 0 && !(self.failure.has_marks && lba >= MARKED_FROM);
            let command = Command { ticket: Ticket(self.next), lba, data: is_write.then_some(self.next) };
            if let Some(status) = refusal(self.health.gate(), command.access()) {
                // One that fails at once is answered; the client looks again a little later.
                self.outcome.answered += 1;
                self.outcome.errors.push((lba, status));
                return;
            }
            self.busy[lba as usize] = true;
            let place = if self.health.gate() == Gate::Open { Place::Sent } else { Place::Held };
            self.operations
                .insert(command.ticket, Operation { command, since: self.now, retries: 0, place, sent: self.now });
            if place == Place::Sent {
                self.send(command);
            }
        }
    }

    fn send(&mut self, command: Command) {
        self.drive.submit(self.now, command);
        self.after(LATE, Later::Late(command.ticket, self.now));
    }

    fn answer(&mut self, ticket: Ticket, status: Status, data: u64) {
        let Some(operation) = self.operations.remove(&ticket) else { return };
        let lba = operation.command.lba;
        self.busy[lba as usize] = false;
        self.outcome.answered += 1;
        self.outcome.longest = self.outcome.longest.max(self.now.saturating_sub(operation.since));
        let expected = &mut self.expected[lba as usize];
        match operation.command.data {
            Some(written) if status.is_success() => *expected = vec![written],
            // Carried out or not.
            Some(written) => expected.push(written),
            None if status.is_success() && !expected.contains(&data) => self.outcome.wrong.push(lba),
            // Whichever it was, it stays.
            None if status.is_success() => *expected = vec![data],
            None => {}
        }
        if !status.is_success() {
            self.outcome.errors.push((lba, status));
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Some(operation) = self.operations.get(&completion.ticket).copied() else { return };
        if operation.place != Place::Sent {
            // Of a queue that was given up.
            return;
        }
        if completion.status.is_success() {
            return self.answer(completion.ticket, completion.status, completion.data);
        }
        self.note_bad(operation.command);
        let failure = Failure {
            ticket: completion.ticket,
            access: operation.command.access(),
            extent: Extent { lba: operation.command.lba, blocks: 1 },
            status: completion.status,
            retry_delay: completion.retry_delay,
            retries: operation.retries,
            since: operation.since,
        };
        self.evidence(Evidence::Failed(failure));
    }

    /// When the client has seen enough for a diagnosis to know that the media have failed.
    fn note_bad(&mut self, command: Command) {
        let is_bad = command.data.is_none() && self.drive.is_bad(self.now, command.lba);
        if !is_bad || self.bad_seen.contains(&command.lba) {
            return;
        }
        self.bad_seen.push(command.lba);
        let enough = if self.drive.smart(self.now).has_media_warning() { 1 } else { Policy::default().isolate_blocks };
        if self.bad_seen.len() >= enough as usize {
            self.outcome.evident.get_or_insert(self.now);
        }
    }

    // What the diagnosis wants.

    fn evidence(&mut self, evidence: Evidence) {
        let mut actions = Vec::new();
        self.health.apply(self.now, evidence, &mut actions);
        self.health.check();
        for action in actions {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: HealthAction) {
        match action {
            HealthAction::Gate(gate) => self.on_gate(gate),
            HealthAction::Deliver { ticket, status } => self.answer(ticket, status, 0),
            HealthAction::Hold(ticket) => self.hold(ticket),
            HealthAction::Retry { ticket, at } => self.retry(ticket, at),
            HealthAction::Ask(question) => {
                let index = QUESTIONS.iter().position(|known| *known == question).unwrap_or(0);
                self.after(ANSWER, Later::Answer(index as u8));
            }
            HealthAction::ReadAgain(extent) => self.after(ANSWER, Later::ReadAgain(extent.lba, extent.blocks)),
            HealthAction::Reset { level, command } => {
                if level >= ResetLevel::Queue {
                    self.give_up_queues();
                }
                let time = self.drive.reset_time(level);
                self.after(time, Later::ResetEnds(level, command));
            }
            HealthAction::Reconnect => self.is_link_known = false,
            HealthAction::Report(report) => self.outcome.reports.push(report),
        }
    }

    fn on_gate(&mut self, gate: Gate) {
        match gate {
            Gate::Paused => {}
            Gate::Failing(reason) => {
                if self.health.state() == State::Isolated {
                    self.outcome.isolated.get_or_insert(self.now);
                }
                let all: Vec<Operation> = self.operations.values().copied().collect();
                for operation in all {
                    self.answer(operation.command.ticket, reason.status(operation.command.access()), 0);
                }
            }
            Gate::Open => {
                let held = |operation: &&Operation| operation.place == Place::Held;
                let waiting: Vec<Operation> = self.operations.values().filter(held).copied().collect();
                for operation in waiting {
                    self.send_again(operation.command.ticket);
                }
            }
        }
    }

    /// What was sent comes back no more, and waits.
    fn give_up_queues(&mut self) {
        for operation in self.operations.values_mut().filter(|operation| operation.place == Place::Sent) {
            operation.place = Place::Held;
        }
    }

    fn hold(&mut self, ticket: Ticket) {
        if let Some(operation) = self.operations.get_mut(&ticket) {
            operation.place = Place::Held;
            operation.retries += 1;
        }
    }

    fn retry(&mut self, ticket: Ticket, at: Nanos) {
        if let Some(operation) = self.operations.get_mut(&ticket) {
            operation.place = Place::Again(at);
            operation.retries += 1;
            self.at(at, Later::Again(ticket));
        }
    }

    /// In the order of submission: tickets ascend.
    fn send_again(&mut self, ticket: Ticket) {
        let Some(operation) = self.operations.get_mut(&ticket) else { return };
        operation.place = Place::Sent;
        operation.sent = self.now;
        let command = operation.command;
        if command.data == Some(self.drive.content(command.lba)) {
            self.outcome.resent += 1;
        }
        self.send(command);
    }

    fn happen(&mut self, later: Later) {
        match later {
            Later::Again(ticket) => {
                let due = self.operations.get(&ticket).is_some_and(|op| op.place == Place::Again(self.now));
                match self.operations.get_mut(&ticket).filter(|_| due) {
                    Some(operation) if self.health.gate() != Gate::Open => operation.place = Place::Held,
                    Some(_) => self.send_again(ticket),
                    None => {}
                }
            }
            Later::Late(ticket, sent) => self.look_for_late(ticket, sent),
            Later::Answer(question) => self.answer_question(QUESTIONS[usize::from(question)]),
            Later::ReadAgain(lba, blocks) => {
                if let Some(status) = self.drive.read_again(self.now, Extent { lba, blocks }) {
                    self.evidence(Evidence::ReadAgain { lba, status });
                }
            }
            Later::ResetEnds(level, command) => self.end_reset(level, command),
            Later::Look => self.look(),
            Later::Announce => self.announce(),
        }
    }

    /// A command that is not answered is told of again and again.
    fn look_for_late(&mut self, ticket: Ticket, sent: Nanos) {
        let is_out = |operation: &Operation| operation.place == Place::Sent && operation.sent == sent;
        if self.operations.get(&ticket).is_some_and(is_out) {
            self.evidence(Evidence::Late(ticket));
            self.after(LATE, Later::Late(ticket, sent));
        }
    }

    fn answer_question(&mut self, question: Question) {
        let evidence = match question {
            Question::Csts => Evidence::Csts(self.drive.csts(self.now)),
            _ if !self.drive.answers(self.now) => return,
            Question::Smart => Evidence::Smart(self.drive.smart(self.now)),
            Question::Namespace => Evidence::Namespace(self.drive.namespace(self.now)),
            Question::Path => Evidence::Path(self.drive.path(self.now)),
        };
        self.evidence(evidence);
    }

    fn end_reset(&mut self, level: ResetLevel, command: Option<Ticket>) {
        let mut ended = Vec::new();
        let worked = self.drive.reset(self.now, level, command, &mut ended);
        for completion in ended {
            self.complete(completion);
        }
        if let Some(worked) = worked {
            self.evidence(Evidence::ResetEnded { level, worked });
        }
    }

    /// What a host looks at by itself: the bus, registers, and a link that was lost.
    fn look(&mut self) {
        self.after(LOOK, Later::Look);
        let gone = self.drive.is_unreachable(self.now);
        match (gone, self.health.state()) {
            (true, State::Waiting(Awaited::Link | Awaited::Drive)) => {}
            (true, _) if self.drive.is_removed(self.now) => self.evidence(Evidence::Removed),
            (true, _) if self.failure.is_fabric => self.evidence(Evidence::LinkLost),
            (false, State::Waiting(Awaited::Link)) => self.evidence(Evidence::LinkBack),
            (false, State::Waiting(Awaited::Drive)) => self.evidence(Evidence::Arrived),
            (_, State::Serving) => {
                let csts = self.drive.csts(self.now);
                if csts != 1 {
                    self.evidence(Evidence::Csts(csts));
                }
            }
            _ => {}
        }
    }

    fn announce(&mut self) {
        if self.drive.swaps(self.now) {
            // One drive is taken out, and another put in.
            self.drive.drop_all();
            self.evidence(Evidence::Removed);
            self.evidence(Evidence::Arrived);
            return;
        }
        if !self.drive.answers(self.now) {
            return;
        }
        self.evidence(Evidence::NamespaceChanged);
        let path = self.drive.path(self.now);
        if path != PathState::Usable || self.health.state() != State::Serving {
            self.evidence(Evidence::Path(path));
        }
    }
}
