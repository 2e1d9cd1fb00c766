//! The rules of a drive, and what they do to a command and at a time.

use crate::check::{DriveFacts, check_rule};
use crate::effect::{Access, FaultEffect, access};
use crate::rule::{FaultRule, FlashPlace};
use crate::saved::fingerprint;
use crate::words::RuleError;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// Attempted Write to Read Only Range (NVM 1.0, Figure 12), which shares its code with a status of Connect.
const READ_ONLY_RANGE: Status = Status::CONNECT_INVALID_PARAMETERS;

/// A command as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultyCommand {
    /// It is an admin command.
    pub admin: bool,
    /// OPC.
    pub opcode: u8,
    /// Its namespace.
    pub nsid: u32,
    /// Its first block.
    pub lba: u64,
    /// How many blocks it touches; 0 for commands about none.
    pub blocks: u64,
    /// Its tenant, by its place in the drive's configuration.
    pub tenant: u16,
    /// QID of its submission queue.
    pub queue: u16,
    /// The blocks of its namespace lie where their addresses say: no zones, no commands of a vendor's own.
    pub plain: bool,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// It fails.
    Fails {
        /// With this status.
        status: Status,
        /// The first block that is to blame.
        lba: u64,
    },
    /// It is kept while the rule holds.
    Hangs,
    /// Some of its bytes are wrong.
    Corrupt {
        /// The block that they are in.
        lba: u64,
        /// How many.
        bytes: u32,
        /// What they are drawn from.
        seed: u64,
    },
    /// Only so many of its blocks are stored.
    Torn {
        /// How many.
        keep: u32,
    },
    /// It goes so many blocks further, in its namespace.
    Misdirected {
        /// How many; negative: before.
        by: i64,
    },
    /// Nothing of it is stored.
    Lost,
}

/// How much later a command begins by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDelay {
    /// The rule.
    pub id: u32,
    /// So much later.
    pub time: Nanos,
    /// And so many times later as the media senses its pages again.
    pub retries: u32,
}

/// What the rules say of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultVerdict {
    /// By which rules it begins later, in the order of their numbers.
    pub delays: Vec<FaultDelay>,
    /// What becomes of it, and by which rule.
    pub outcome: Option<(u32, FaultOutcome)>,
    /// It has triggered a condition.
    pub triggered: bool,
}

/// A rule of a drive, and what it has done.
#[derive(Clone, Debug)]
pub struct PlannedFault {
    /// Its number, from 1 on; none is given twice.
    pub id: u32,
    /// The rule.
    pub rule: FaultRule,
    /// Commands that it was about.
    pub matched: u64,
    /// How often it applied.
    pub applied: u64,
    tenant: Option<u16>,
    /// When it begins; a condition that waits for a command has no time yet.
    pub(crate) begins: Option<Nanos>,
    pub(crate) random: SplitMix64,
    /// Of the rule.
    pub(crate) fingerprint: u64,
}

impl PlannedFault {
    /// Whether its time has come and is not over, and it has not applied as often as it may.
    pub fn is_active(&self, now: Nanos) -> bool {
        let used_up = self.rule.schedule.count.is_some_and(|count| self.applied >= count);
        !used_up && self.is_in_window(now)
    }

    /// Whether its time has come and is not over, however often it has applied.
    fn is_in_window(&self, now: Nanos) -> bool {
        self.begins.is_some_and(|begins| begins <= now) && self.ends().is_none_or(|end| now < end)
    }

    /// The tenant that it names, by its place in the drive's configuration.
    pub fn tenant(&self) -> Option<u16> {
        self.tenant
    }

    /// When it began, or will; `None` while it waits for a command.
    pub fn begins(&self) -> Option<Nanos> {
        self.begins
    }

    fn ends(&self) -> Option<Nanos> {
        self.begins?.checked_add(self.rule.schedule.lasts?)
    }

    /// The first block of a command that it is about; `None`: it is about none of the command.
    fn meets(&self, command: &FaultyCommand, place: &mut impl FnMut(u64) -> Option<FlashPlace>) -> Option<u64> {
        let target = &self.rule.target;
        let (own, opcode) = (if command.admin { &target.admin } else { &target.io }, command.opcode);
        let of_kind = command.admin != target.admin.is_empty() && (own.is_empty() || own.contains(&opcode));
        let by_address = matches!(self.rule.effect, FaultEffect::TornWrite { .. } | FaultEffect::Misdirected { .. });
        let befalls = command.admin || self.rule.effect.befalls(opcode) && (command.plain || !by_address);
        let of_whom =
            self.tenant.is_none_or(|t| t == command.tenant) && target.queue.is_none_or(|q| q == command.queue);
        if !(of_kind && befalls && of_whom) || target.nsid.is_some_and(|nsid| nsid != command.nsid) {
            return None;
        }
        let (first, end) = match &target.lba {
            Some(span) => span.meets(command.lba, command.blocks)?,
            None => (command.lba, command.lba.saturating_add(command.blocks)),
        };
        if !target.place.is_some() {
            return Some(first);
        }
        let reads = access(opcode) == Access::Read;
        (first..end).filter(|_| reads).find(|lba| place(*lba).is_some_and(|at| target.place.has(&at)))
    }

    /// Counts a command that it is about; whether it applies to it.
    fn applies(&mut self) -> bool {
        self.matched += 1;
        let schedule = &self.rule.schedule;
        let drawn = schedule.per_million == 1_000_000 || self.random.per_million(schedule.per_million);
        let applies = drawn && self.matched > schedule.after;
        self.applied += u64::from(applies);
        applies
    }
}

/// The rules of a drive.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    pub(crate) rules: Vec<PlannedFault>,
    made: u32,
    /// Times that the state of some rule has changed.
    changes: u64,
}

impl FaultPlan {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// No rules where there have been some: numbers go on behind this one.
    pub fn after(made: u32) -> Self {
        Self { made, ..Self::default() }
    }

    /// One more rule, from `now` on; its number.
    ///
    /// # Errors
    /// It can never apply to this drive, or contradicts another rule; nothing has changed.
    pub fn add(&mut self, now: Nanos, rule: FaultRule, drive: &DriveFacts) -> Result<u32, RuleError> {
        check_rule(&rule, drive, &self.rules)?;
        self.made += 1;
        let tenant = rule.target.tenant.as_ref();
        let tenant = tenant.and_then(|name| drive.tenants.iter().position(|known| known == name));
        let begins = (!rule.is_triggered()).then(|| now.saturating_add(rule.schedule.from));
        let random = SplitMix64::new(rule.schedule.seed);
        let (id, tenant) = (self.made, tenant.map(|at| at as u16));
        let fingerprint = fingerprint(&rule);
        self.rules.push(PlannedFault { id, rule, matched: 0, applied: 0, tenant, begins, random, fingerprint });
        self.changes += 1;
        Ok(id)
    }

    /// Takes a rule out; what it was.
    pub fn remove(&mut self, id: u32) -> Option<PlannedFault> {
        let at = self.rules.iter().position(|planned| planned.id == id)?;
        self.changes += 1;
        Some(self.rules.remove(at))
    }

    /// All rules, in the order of their numbers.
    pub fn rules(&self) -> &[PlannedFault] {
        &self.rules
    }

    /// How often the state of some rule has changed: who keeps it looks whether this has.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether some rule has to see every I/O command.
    pub fn sees_io(&self) -> bool {
        let sees = |p: &PlannedFault| {
            p.rule.target.admin.is_empty() && (!p.rule.effect.is_condition() || p.begins.is_none())
                || p.rule.effect == FaultEffect::ReadOnly
        };
        self.rules.iter().any(sees)
    }

    /// What the rules do to a command that begins; `place` says where in the flash a block of it lies. Rules are asked in the order of
    /// their numbers: delays add up, and the first that decides what becomes of the command is the last that is asked.
    pub fn decide(
        &mut self,
        now: Nanos,
        command: &FaultyCommand,
        mut place: impl FnMut(u64) -> Option<FlashPlace>,
    ) -> FaultVerdict {
        let mut verdict = FaultVerdict::default();
        for planned in &mut self.rules {
            let before = planned.matched;
            if let Some(begins) = planned.trigger(now, command, &mut place) {
                (planned.begins, verdict.triggered) = (Some(begins), true);
            }
            if planned.is_active(now) {
                if planned.rule.effect.is_condition() {
                    verdict.outcome = planned.refuses(command);
                } else if let Some(lba) = planned.meets(command, &mut place).filter(|_| planned.applies()) {
                    planned.befall(lba, command, &mut verdict);
                }
            }
            self.changes += u64::from(planned.matched != before);
            if verdict.outcome.is_some() {
                break;
            }
        }
        verdict
    }

    /// The conditions that hold at `now`.
    pub fn conditions(&self, now: Nanos) -> impl Iterator<Item = &PlannedFault> {
        self.rules.iter().filter(move |p| p.rule.effect.is_condition() && p.is_active(now))
    }

    /// Whether a rule is there.
    pub fn has(&self, id: u32) -> bool {
        self.rules.iter().any(|planned| planned.id == id)
    }

    /// Whether a rule is there and its window is not over: it keeps what it holds, also when it can apply to no more.
    pub fn holds(&self, id: u32, now: Nanos) -> bool {
        self.rules.iter().any(|planned| planned.id == id && planned.is_in_window(now))
    }

    /// When a rule begins or ends next, after `now`.
    pub fn next_change(&self, now: Nanos) -> Nanos {
        let times = self.rules.iter().flat_map(|planned| [planned.begins, planned.ends()]);
        times.flatten().filter(|at| *at > now).min().unwrap_or(Nanos::NEVER)
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        assert!(self.rules.windows(2).all(|pair| pair[0].id < pair[1].id), "rules are in the order of their numbers");
        for planned in &self.rules {
            assert!(planned.id <= self.made, "no number is given before its rule is made");
            assert!(planned.applied <= planned.matched || planned.rule.effect.is_condition());
            let most = planned.rule.schedule.count.unwrap_or(u64::MAX);
            assert!(planned.applied <= most, "rule {}: applied {} times of {most}", planned.id, planned.applied);
        }
    }
}

impl PlannedFault {
    /// When a condition begins that this command triggers.
    fn trigger(
        &mut self,
        now: Nanos,
        command: &FaultyCommand,
        place: &mut impl FnMut(u64) -> Option<FlashPlace>,
    ) -> Option<Nanos> {
        if self.begins.is_some() || self.meets(command, place).is_none() || !self.applies() {
            return None;
        }
        Some(now.saturating_add(self.rule.schedule.from))
    }

    /// What a condition that holds makes of a command: media that are read only take no writes.
    fn refuses(&self, command: &FaultyCommand) -> Option<(u32, FaultOutcome)> {
        let target = &self.rule.target;
        let is_its = self.tenant.is_none_or(|t| t == command.tenant) && target.nsid.is_none_or(|n| n == command.nsid);
        let writes = is_its && !command.admin && access(command.opcode) == Access::Write;
        let status = READ_ONLY_RANGE.dnr();
        let fails = FaultOutcome::Fails { status, lba: command.lba };
        (writes && self.rule.effect == FaultEffect::ReadOnly).then_some((self.id, fails))
    }

    fn befall(&mut self, lba: u64, command: &FaultyCommand, verdict: &mut FaultVerdict) {
        let fails = |status| Some(FaultOutcome::Fails { status, lba });
        let outcome = match &self.rule.effect {
            FaultEffect::Latency(spread) => {
                let time = spread.draw(&mut self.random);
                verdict.delays.push(FaultDelay { id: self.id, time, retries: 0 });
                None
            }
            FaultEffect::CorrectableError { retries } => {
                verdict.delays.push(FaultDelay { id: self.id, time: Nanos(0), retries: *retries });
                None
            }
            FaultEffect::Status(status) => fails(*status),
            FaultEffect::MediaError if access(command.opcode) == Access::Read => fails(Status::UNRECOVERED_READ_ERROR),
            FaultEffect::MediaError => fails(Status::WRITE_FAULT),
            FaultEffect::DiskFull => fails(Status::CAPACITY_EXCEEDED.dnr()),
            FaultEffect::Hang => Some(FaultOutcome::Hangs),
            FaultEffect::CorruptData { bytes } => {
                Some(FaultOutcome::Corrupt { lba, bytes: *bytes, seed: self.random.next_u64() })
            }
            FaultEffect::TornWrite { keep } => Some(FaultOutcome::Torn { keep: *keep }),
            FaultEffect::Misdirected { by } => Some(FaultOutcome::Misdirected { by: *by }),
            FaultEffect::LostWrite => Some(FaultOutcome::Lost),
            _ => None,
        };
        verdict.outcome = outcome.map(|outcome| (self.id, outcome));
    }
}
