//! A tenant of a plan, in the terms of the planner and of the simulator.

use weir_controller::TenantConfig;
use weir_plan::planner::TenantPlan;
use weir_plan::{Demand, PlanTenant};
use weir_units::Sla;
use weir_workload::Job;

/// A tenant of a plan.
#[derive(Clone, Debug)]
pub struct PlannedTenant {
    /// As the drive has it; the planner chooses its weight.
    pub tenant: TenantConfig,
    /// What it asks for.
    pub demand: Demand,
    /// What it is promised.
    pub sla: Sla,
}

impl PlannedTenant {
    /// As the planner has it.
    pub(super) fn plan(&self) -> TenantPlan {
        let tenant = PlanTenant {
            floor: self.tenant.floor.rates,
            ceiling: self.tenant.ceiling.rates,
            ..PlanTenant::new(&self.tenant.name, self.tenant.class, self.demand.clone())
        };
        TenantPlan { tenant, sla: self.sla }
    }

    /// What it does, as the simulator has it.
    pub(super) fn job(&self) -> Job {
        let Demand { pattern, sizes, queues, depth, rate, arrival } = self.demand.clone();
        let name = self.tenant.name.clone();
        Job { name, pattern, sizes, depth, rate, arrival, copies: queues, ..Job::default() }
    }
}
