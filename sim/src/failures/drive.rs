//! A drive that fails as it was drawn to, seen as a host sees one: completions, registers, log pages, silence.

use super::ailment::{Ailment, AilmentKind};
use std::collections::BTreeMap;
use weir_driver::health::{Access, Extent, NamespaceAnswer, PathState, ResetLevel, SmartReading, Ticket};
use weir_driver::link_recovery::DriveIdentity;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::critical_warning;
use weir_units::Nanos;
use weir_units::rng::Xoshiro256;

/// Logical blocks of the drive.
pub const BLOCKS: u64 = 1024;

/// The drive that it was at first.
pub const IDENTITY: DriveIdentity =
    DriveIdentity { nguid: [1; 16], eui64: [0; 8], uuid: [0; 16], capacity: BLOCKS * 4096, block_size: 4096 };
/// The drive that another one puts in its place.
const STRANGER: DriveIdentity = DriveIdentity { nguid: [2; 16], ..IDENTITY };

/// CSTS of a controller that is ready, one that has failed, and one that cannot be read.
const READY: u32 = 1;
const FATAL: u32 = 0b11;
const GONE: u32 = u32::MAX;

/// A command as it is sent: one block, and for a write what is written.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub ticket: Ticket,
    /// The block.
    pub lba: u64,
    /// What is written; a read has none.
    pub data: Option<u64>,
}

impl Command {
    /// What it does.
    pub fn access(&self) -> Access {
        if self.data.is_some() { Access::Write } else { Access::Read }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Which.
    pub ticket: Ticket,
    /// Its status.
    pub status: Status,
    /// What a read found.
    pub data: u64,
    /// CRD, as time.
    pub retry_delay: Option<Nanos>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct FailingDrive {
    rng: Xoshiro256,
    content: Vec<u64>,
    /// Of the drive that another one puts in its place.
    strange_content: Vec<u64>,
    /// Under way, with the time of their end; an end that never comes is [`Nanos::NEVER`].
    in_flight: BTreeMap<Ticket, (Nanos, Command)>,
    ailments: Vec<Ailment>,
    /// Blocks that a host has made unreadable.
    marked: Vec<bool>,
    media_errors: u128,
    reset_time: Nanos,
}

impl FailingDrive {
    /// A drive with these ailments, whose controller is reset in `reset_time`.
    pub fn new(seed: u64, ailments: Vec<Ailment>, reset_time: Nanos) -> Self {
        FailingDrive {
            rng: Xoshiro256::new(seed),
            content: vec![0; BLOCKS as usize],
            strange_content: vec![0; BLOCKS as usize],
            in_flight: BTreeMap::new(),
            ailments,
            marked: vec![false; BLOCKS as usize],
            media_errors: 0,
            reset_time,
        }
    }

    fn find(&self, now: Nanos, is: impl Fn(AilmentKind) -> bool) -> Option<&Ailment> {
        self.ailments.iter().find(|ailment| ailment.is_active(now) && is(ailment.kind))
    }

    fn has(&self, now: Nanos, is: impl Fn(AilmentKind) -> bool) -> bool {
        self.find(now, is).is_some()
    }

    /// Whether nothing gets through.
    pub fn is_unreachable(&self, now: Nanos) -> bool {
        self.has(now, |kind| matches!(kind, AilmentKind::LinkDown | AilmentKind::Removed))
    }

    /// Whether the bus says that it is gone.
    pub fn is_removed(&self, now: Nanos) -> bool {
        self.has(now, |kind| kind == AilmentKind::Removed)
    }

    /// Whether the path's state is one that commands cannot use.
    pub fn path(&self, now: Nanos) -> PathState {
        if self.has(now, |kind| kind == AilmentKind::Inaccessible) {
            PathState::Inaccessible
        } else {
            PathState::Usable
        }
    }

    /// Whether it makes itself known that a namespace or path has changed: asynchronous events at these times.
    pub fn changes(&self) -> impl Iterator<Item = Nanos> + '_ {
        let told = self.ailments.iter().filter(|ailment| ailment.is_announced);
        told.flat_map(|ailment| [ailment.begins, ailment.ends])
    }

    /// CSTS.
    pub fn csts(&self, now: Nanos) -> u32 {
        match () {
            () if self.is_unreachable(now) => GONE,
            () if self.has(now, |kind| kind == AilmentKind::Fatal) => FATAL,
            () => READY,
        }
    }

    /// Whether admin commands are answered.
    pub fn answers(&self, now: Nanos) -> bool {
        let silent = |kind| matches!(kind, AilmentKind::Fatal | AilmentKind::Hang);
        !self.is_unreachable(now) && !self.has(now, silent)
    }

    /// The SMART log.
    pub fn smart(&self, now: Nanos) -> SmartReading {
        let mut warning = 0;
        for ailment in self.ailments.iter().filter(|ailment| ailment.is_active(now)) {
            warning |= match ailment.kind {
                AilmentKind::BadMedia { warned: true, .. } => critical_warning::RELIABILITY,
                AilmentKind::Worn => critical_warning::SPARE,
                AilmentKind::ReadOnly => critical_warning::READ_ONLY,
                AilmentKind::Interrupted { .. } => critical_warning::TEMPERATURE,
                _ => 0,
            };
        }
        SmartReading { critical_warning: warning, available_spare: 100, media_errors: self.media_errors }
    }

    /// Identify Namespace.
    pub fn namespace(&self, now: Nanos) -> NamespaceAnswer {
        match () {
            () if self.has(now, |kind| kind == AilmentKind::Replaced) => NamespaceAnswer::Present(STRANGER),
            () if self.has(now, |kind| kind == AilmentKind::Absent) => NamespaceAnswer::Absent,
            () if self.has(now, |kind| kind == AilmentKind::NotReady) => NamespaceAnswer::NotReady,
            () => NamespaceAnswer::Present(IDENTITY),
        }
    }

    /// A host makes a block unreadable, which writing it ends.
    pub fn mark(&mut self, lba: u64) {
        self.marked[lba as usize] = true;
    }

    /// A command arrives.
    pub fn submit(&mut self, now: Nanos, command: Command) {
        if self.is_unreachable(now) {
            return;
        }
        let stuck = |kind| match kind {
            AilmentKind::Fatal | AilmentKind::Hang => true,
            AilmentKind::StuckQueue => command.lba % 2 == 0,
            _ => false,
        };
        let service = Nanos(500_000 + self.rng.below(1_000_000));
        let end = if self.has(now, stuck) { Nanos::NEVER } else { now.saturating_add(service) };
        let before = self.in_flight.insert(command.ticket, (end, command));
        assert!(before.is_none(), "{command:?} is at the drive twice");
    }

    /// When the next command ends.
    pub fn next_end(&self) -> Nanos {
        self.in_flight.values().map(|(end, _)| *end).min().unwrap_or(Nanos::NEVER)
    }

    /// Ends what is due. What ends while nothing gets through is carried out, and nobody hears of it.
    pub fn take_completions(&mut self, now: Nanos) -> Vec<Completion> {
        let due: Vec<Ticket> =
            self.in_flight.iter().filter(|(_, (end, _))| *end <= now).map(|(ticket, _)| *ticket).collect();
        let mut completions = Vec::new();
        for ticket in due {
            let Some((_, command)) = self.in_flight.remove(&ticket) else { continue };
            let completion = self.carry_out(now, command);
            if !self.is_unreachable(now)
                && !self.has(now, |kind| matches!(kind, AilmentKind::Fatal | AilmentKind::Hang))
            {
                completions.push(completion);
            }
        }
        completions
    }

    fn carry_out(&mut self, now: Nanos, command: Command) -> Completion {
        let (status, retry_delay) = self.status(now, command);
        let is_strange = self.has(now, |kind| kind == AilmentKind::Replaced);
        let content = if is_strange { &mut self.strange_content } else { &mut self.content };
        if let Some(data) = command.data.filter(|_| status.is_success()) {
            content[command.lba as usize] = data;
            self.marked[command.lba as usize] = false;
        }
        Completion { ticket: command.ticket, status, data: content[command.lba as usize], retry_delay }
    }

    fn status(&mut self, now: Nanos, command: Command) -> (Status, Option<Nanos>) {
        let is_write = command.data.is_some();
        let active: Vec<Ailment> = self.ailments.iter().filter(|ailment| ailment.is_active(now)).copied().collect();
        for ailment in active {
            let chance = |rng: &mut Xoshiro256, every: u64| rng.below(every) == 0;
            let status = match ailment.kind {
                AilmentKind::BadMedia { first, blocks, counted, .. }
                    if (first..first + blocks).contains(&command.lba) =>
                {
                    self.media_errors += u128::from(counted);
                    if is_write { Status::WRITE_FAULT } else { Status::UNRECOVERED_READ_ERROR }
                }
                AilmentKind::GhostReads { every } if !is_write && chance(&mut self.rng, every) => {
                    Status::UNRECOVERED_READ_ERROR
                }
                AilmentKind::Internal { every } if chance(&mut self.rng, every) => Status::INTERNAL_ERROR,
                AilmentKind::Absent => Status::INVALID_NAMESPACE_OR_FORMAT,
                AilmentKind::NotReady => Status::NAMESPACE_NOT_READY,
                AilmentKind::Interrupted { delay } => return (Status::COMMAND_INTERRUPTED, Some(delay)),
                AilmentKind::WriteFaults if is_write => Status::WRITE_FAULT,
                AilmentKind::ReadOnly if is_write => Status::NAMESPACE_WRITE_PROTECTED,
                AilmentKind::Inaccessible => Status::ANA_INACCESSIBLE,
                _ => continue,
            };
            return (status, None);
        }
        let marked = self.marked[command.lba as usize] && !is_write;
        (if marked { Status::UNRECOVERED_READ_ERROR.dnr() } else { Status::SUCCESS }, None)
    }

    /// How a read for a diagnosis ends; none if it is not answered.
    pub fn read_again(&mut self, now: Nanos, extent: Extent) -> Option<Status> {
        if !self.answers(now) {
            return None;
        }
        let command = Command { ticket: Ticket(u64::MAX), lba: extent.lba, data: None };
        Some(self.status(now, command).0)
    }

    /// How long that reset takes.
    pub fn reset_time(&self, level: ResetLevel) -> Nanos {
        match level {
            ResetLevel::Abort => Nanos::from_millis(1),
            ResetLevel::Queue => Nanos::from_millis(2),
            ResetLevel::Controller => self.reset_time,
            ResetLevel::Subsystem | ResetLevel::Function => Nanos(self.reset_time.0 * 2),
        }
    }

    /// A reset ends: whether it worked; none if nothing is heard of it. Commands under way were carried out or not. Those that are
    /// answered instead are appended.
    pub fn reset(
        &mut self,
        now: Nanos,
        level: ResetLevel,
        command: Option<Ticket>,
        ended: &mut Vec<Completion>,
    ) -> Option<bool> {
        if self.is_unreachable(now) {
            return None;
        }
        self.ailments.iter_mut().for_each(|ailment| ailment.reset(now, level));
        if let (ResetLevel::Abort, Some(ticket)) = (level, command) {
            let aborted = self.in_flight.remove(&ticket).is_some();
            let completion = Completion { ticket, status: Status::ABORT_REQUESTED, data: 0, retry_delay: None };
            ended.extend(aborted.then_some(completion));
        } else {
            self.end_all(now);
        }
        if self.has(now, |kind| kind == AilmentKind::Hang) {
            return None;
        }
        Some(!self.has(now, |kind| kind == AilmentKind::Fatal))
    }

    fn end_all(&mut self, now: Nanos) {
        for (_, (_, command)) in core::mem::take(&mut self.in_flight) {
            if self.rng.below(2) == 0 {
                self.carry_out(now, command);
            }
        }
    }

    /// Whether another drive is put in its place, or it is put back, at this moment.
    pub fn swaps(&self, now: Nanos) -> bool {
        let replaced = self.ailments.iter().filter(|ailment| ailment.kind == AilmentKind::Replaced);
        replaced.into_iter().any(|ailment| ailment.begins == now || ailment.ends == now)
    }

    /// Nothing that is under way is carried out.
    pub fn drop_all(&mut self) {
        self.in_flight.clear();
    }

    /// Whether a block is one of those that are gone.
    pub fn is_bad(&self, now: Nanos, lba: u64) -> bool {
        let gone = |kind| matches!(kind, AilmentKind::BadMedia { first, blocks, .. } if (first..first + blocks).contains(&lba));
        self.has(now, gone)
    }

    /// What is on a block.
    pub fn content(&self, lba: u64) -> u64 {
        self.content[lba as usize]
    }
}
