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
use weir_arbiter::LEAST_COST;
use weir_spec::nvme::{IoOpcode, Status};

impl Subsystem {
    #[inline]
    pub(crate) fn cost(&self, plan: &Result<CommandPlan, Status>, command: &Command) -> u32 {
        match (plan, self.config.cost) {
            (Ok(plan), Cost::DeviceTime) if self.timing.0.is_some() => self.device_time(plan, command),
            (Ok(plan), Cost::Bytes | Cost::DeviceTime) if matches!(plan.op, Op::Read | Op::Write | Op::Compare) => {
                plan.len.max(LEAST_COST)
            }
            (Ok(plan), Cost::Bytes | Cost::DeviceTime) if plan.op == Op::Copy => {
                plan.len.saturating_mul(2).max(LEAST_COST)
            }
            (Ok(plan), Cost::Bytes | Cost::DeviceTime) if plan.op == Op::Verify => plan.len.max(LEAST_COST),
            _ => LEAST_COST,
        }
    }

    /// The ranges of a deallocation are not known yet; it is charged like a command without data.
    #[cold]
    fn device_time(&self, plan: &CommandPlan, command: &Command) -> u32 {
        let CommandPlan { op, offset, len, .. } = *plan;
        let cost = |op| {
            let operation = Operation { op, offset, len, fua: command.is(flag::FUA), placement: 0 };
            self.timing.0.as_ref().map_or(0, |inside| inside.cost(operation))
        };
        let reads = if op == Op::Copy { cost(Op::Read) } else { 0 };
        cost(op).saturating_add(reads).max(LEAST_COST)
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
