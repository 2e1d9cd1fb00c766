//! What a command costs in arbitration, and what is known of one before it is charged.

use crate::config::Cost;
use crate::data_pointer::check_pointer;
use crate::event::Op;
use crate::host::{DataPointer, Host};
use crate::io::plan;
use crate::io::plan::CommandPlan;
use crate::io::timing::Operation;
use crate::queues::command::{Command, flag};
use crate::subsystem::Subsystem;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::Debug;
use weir_arbiter::LEAST_COST;
use weir_spec::nvme::{IoOpcode, Status};

/// The most that a command is charged, in bytes: a tenant pays it back in a few thousand rounds of a quantum of 128 KiB.
pub const COST_MAX: u32 = 1 << 30;

/// What commands cost in arbitration, where somebody else than the drive decides it.
pub trait CostPolicy: Debug + Send {
    /// What is charged for a command that has left its queue, in bytes; 4 KiB at the least and [`COST_MAX`] at the most are. `None`: what
    /// the drive's own [`Cost`] charges.
    fn cost(&mut self, command: ChargedCommand) -> Option<u32>;

    /// What it has failed in, if it has: the drive's own [`Cost`] decides since.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// A command that is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargedCommand {
    /// Place of its tenant in the drive's list.
    pub tenant: u16,
    /// What it does.
    pub op: Op,
    /// Where, in bytes of the drive's media.
    pub offset: u64,
    /// How much, in bytes; 0 of a flush and of a deallocation, whose ranges are not known yet.
    pub len: u32,
    /// Durable when complete.
    pub fua: bool,
    /// What the drive's own [`Cost`] charges.
    pub own: u32,
}

/// The policy that a drive was given, if any.
#[derive(Debug, Default)]
pub(crate) struct OwnCost(pub Option<Box<dyn CostPolicy>>);

/// Tests copy drives to try every sequence of events on them; theirs have built-in costs.
impl Clone for OwnCost {
    fn clone(&self) -> Self {
        assert!(self.0.is_none(), "a drive with a cost policy cannot be copied");
        OwnCost(None)
    }
}

/// How commands are charged: [`Cost`], or the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Charging {
    Bytes,
    Commands,
    DeviceTime,
    Policy,
}

impl From<Cost> for Charging {
    fn from(cost: Cost) -> Self {
        match cost {
            Cost::Bytes => Charging::Bytes,
            Cost::Commands => Charging::Commands,
            Cost::DeviceTime => Charging::DeviceTime,
        }
    }
}

/// Most commands move data between host and drive: they are told first.
#[inline]
fn byte_cost(plan: &CommandPlan) -> u32 {
    match plan.op {
        Op::Read | Op::Write | Op::Compare => plan.len.max(LEAST_COST),
        _ => byte_cost_inside(plan),
    }
}

#[cold]
fn byte_cost_inside(plan: &CommandPlan) -> u32 {
    match plan.op {
        Op::Copy => plan.len.saturating_mul(2).max(LEAST_COST),
        Op::Verify => plan.len.max(LEAST_COST),
        _ => LEAST_COST,
    }
}

impl Subsystem {
    /// Changes what a command costs.
    pub fn set_cost(&mut self, cost: Cost) {
        self.config.cost = cost;
        self.charging = if self.cost_policy.0.is_some() { Charging::Policy } else { cost.into() };
    }

    /// Has somebody else decide what commands cost that are fetched from now on.
    pub fn set_cost_policy(&mut self, policy: Box<dyn CostPolicy>) {
        (self.cost_policy, self.charging) = (OwnCost(Some(policy)), Charging::Policy);
    }

    /// Who decides it, where that is not the drive's own [`Cost`].
    pub fn cost_policy(&self) -> Option<&dyn CostPolicy> {
        self.cost_policy.0.as_deref()
    }

    /// What a command of a queue is charged; one that is refused like one without data.
    #[inline]
    pub(crate) fn cost(&mut self, q: u32, plan: &Result<CommandPlan, Status>, command: &Command) -> u32 {
        match (plan, self.charging) {
            (Ok(plan), Charging::Bytes) => byte_cost(plan),
            (Ok(plan), Charging::DeviceTime) => self.device_time(plan, command),
            (Ok(plan), Charging::Policy) => self.policy_cost(q, plan, command),
            _ => LEAST_COST,
        }
    }

    /// The ranges of a deallocation are not known yet; it is charged like a command without data.
    #[cold]
    fn device_time(&self, plan: &CommandPlan, command: &Command) -> u32 {
        let Some(inside) = self.timing.0.as_deref() else { return byte_cost(plan) };
        let CommandPlan { op, offset, len, .. } = *plan;
        let cost = |op| inside.cost(Operation { op, offset, len, fua: command.is(flag::FUA), placement: 0 });
        let reads = if op == Op::Copy { cost(Op::Read) } else { 0 };
        cost(op).saturating_add(reads).max(LEAST_COST)
    }

    #[cold]
    fn policy_cost(&mut self, q: u32, plan: &CommandPlan, command: &Command) -> u32 {
        let own = match self.config.cost {
            Cost::Bytes => byte_cost(plan),
            Cost::Commands => LEAST_COST,
            Cost::DeviceTime => self.device_time(plan, command),
        };
        let CommandPlan { op, offset, len, .. } = *plan;
        let (tenant, fua) = (self.sq(q).tenant, command.is(flag::FUA));
        let charged = ChargedCommand { tenant, op, offset, len, fua, own };
        let asked = self.cost_policy.0.as_mut().and_then(|policy| policy.cost(charged));
        asked.unwrap_or(own).clamp(LEAST_COST, COST_MAX)
    }

    /// What a command does that has left its queue, whose transfers have at most `mdts` bytes: all that its entry and its data pointer tell.
    #[inline(always)]
    pub(crate) fn planned<H: Host>(
        &mut self,
        (q, mdts): (u32, u64),
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<CommandPlan, Status> {
        let plan = match command.is(flag::HOLE | flag::PLACED | flag::FUSED) {
            true => self.plan_flagged(q, command, data, host),
            false => plan::plan(&self.namespaces.list, command, mdts),
        };
        plan.and_then(|plan| match plan.transfer {
            0 => Ok(plan),
            _ if command.is(flag::BAD_POINTER) => Err(Status::INVALID_FIELD.dnr()),
            len => check_pointer(data, len.into()).map(|()| plan),
        })
    }

    /// What an aborted command does (nothing), a copy, and a write with a placement identifier.
    #[cold]
    pub(crate) fn plan_flagged<H: Host>(
        &mut self,
        q: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<CommandPlan, Status> {
        let mdts = self.sq(q).mdts;
        if command.is(flag::HOLE) {
            return Err(Status::ABORT_REQUESTED);
        }
        if command.opcode == IoOpcode::COPY.0 {
            let plan = plan::plan(&self.namespaces.list, command, mdts)?;
            if command.is(flag::BAD_POINTER) {
                return Err(Status::INVALID_FIELD.dnr());
            }
            let len = self.measure_copy(q, command, &data.of(plan.transfer), host);
            return Ok(CommandPlan { len, ..plan });
        }
        // A directive that is not enabled (base 2.1, 8.1.8).
        self.placement.as_ref().ok_or(Status::INVALID_FIELD.dnr())?;
        plan::plan(&self.namespaces.list, &command.unplaced(), mdts)
    }
}
