//! What tenants are promised and held to, and what the [`Judge`]s are told of their commands.

use crate::config::TenantConfig;
use crate::error::ManagementError;
use crate::io::starting::NO_ARRIVAL;
use crate::queues::queue::Sq;
use crate::subsystem::Subsystem;
use crate::tenant::Tenant;
use crate::tenant::sla::{Attainment, Judge};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::QueueKey;
use weir_units::{Ceiling, Floor, Nanos, Sla};

impl Subsystem {
    /// Changes what a tenant gets at least and at the most, and what it was promised. A promise that is another than before
    /// is judged from now on.
    pub fn set_limits(
        &mut self,
        now: Nanos,
        tenant: u16,
        floor: Floor,
        ceiling: Ceiling,
        sla: Sla,
    ) -> Result<(), ManagementError> {
        let t = self.tenants.list.get_mut(usize::from(tenant)).ok_or(ManagementError::NoTenant)?;
        let before = (t.config.floor.rates, t.config.sla);
        (t.config.floor, t.config.ceiling, t.config.sla) = (floor, ceiling, sla);
        self.arbiter.set_limits(t.key, &floor, &ceiling);
        if before != (floor.rates, sla) {
            let was_judged = t.judge.is_some();
            t.judge = Judge::new(floor.rates, &sla, now).map(Box::new);
            if !was_judged {
                t.judged_since = now;
                self.queues
                    .sqs
                    .iter_mut()
                    .flatten()
                    .filter(|sq| sq.tenant == tenant)
                    .for_each(|sq| sq.arrive_again(now));
            }
        }
        let t = &self.tenants.list[usize::from(tenant)];
        self.config.tenants[usize::from(tenant)] = t.config.clone();
        self.turn.now = now;
        self.tenants.is_judged = self.tenants.list.iter().any(|t| t.judge.is_some());
        self.turn.more = true;
        Ok(())
    }

    /// One more tenant, while the drive runs; its place.
    ///
    /// # Errors
    /// A weight of 0, or more tenants than can be counted.
    pub fn add_tenant(&mut self, now: Nanos, config: TenantConfig) -> Result<u16, ManagementError> {
        let place = u16::try_from(self.tenants.list.len()).map_err(|_| ManagementError::Range)?;
        if config.weight == 0 {
            return Err(ManagementError::Range);
        }
        let key = self.arbiter.add_tenant(config.weight);
        self.arbiter.set_limits(key, &config.floor, &config.ceiling);
        self.config.tenants.push(config.clone());
        self.tenants.list.push(Tenant::new(key, config, now));
        self.turn.now = now;
        self.tenants.is_judged |= self.tenants.list[usize::from(place)].judge.is_some();
        Ok(place)
    }

    /// Which hosts belong to a tenant from now on: NQNs, or `*`. Controllers that hosts have keep their tenant.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn set_hosts(&mut self, tenant: u16, hosts: Vec<String>) -> Result<(), ManagementError> {
        let t = self.tenants.list.get_mut(usize::from(tenant)).ok_or(ManagementError::NoTenant)?;
        t.config.hosts = hosts;
        self.config.tenants[usize::from(tenant)] = t.config.clone();
        Ok(())
    }

    /// A tenant that nobody belongs to any more. Its place stays, and its promises end.
    ///
    /// # Errors
    /// There is no such tenant, or it has controllers.
    pub fn retire_tenant(&mut self, now: Nanos, tenant: u16) -> Result<(), ManagementError> {
        if usize::from(tenant) >= self.tenants.list.len() {
            return Err(ManagementError::NoTenant);
        }
        if self.controllers.list.iter().flatten().any(|c| c.tenant == tenant) {
            return Err(ManagementError::InUse);
        }
        self.set_limits(now, tenant, Floor::default(), Ceiling::default(), Sla::default())?;
        let t = &mut self.tenants.list[usize::from(tenant)];
        t.config.hosts.clear();
        t.config.name.clear();
        self.config.tenants[usize::from(tenant)] = t.config.clone();
        Ok(())
    }

    /// How a tenant's promise was kept, up to the last period that has ended by `now`; `None` where nothing was promised.
    pub fn attainment(&mut self, now: Nanos, tenant: u16) -> Option<Attainment> {
        let waits = |sq: &&Sq| sq.tenant == tenant && self.arbiter.is_backlogged(sq.key);
        let waiting = self.queues.sqs.iter().flatten().filter(waits).map(|sq| sq.arrived[sq.head as usize]).min();
        let judge = self.tenants.list.get_mut(usize::from(tenant))?.judge.as_mut()?;
        Some(judge.so_far(now, waiting))
    }

    /// A command of a queue that came at `arrived` leaves it: on time?
    #[inline(never)]
    pub(crate) fn judge_start(&mut self, now: Nanos, key: QueueKey, arrived: Nanos, bytes: u32) {
        let sq = self.queues.sqs[key.index()].as_ref().expect("the queue exists");
        let judge = self.tenants.list[usize::from(sq.tenant)].judge.as_mut();
        if let Some(judge) = judge.filter(|_| arrived != NO_ARRIVAL) {
            judge.started(arrived, now, bytes);
        }
    }

    /// A command of a tenant that came at `arrived` is complete: how long did it take?
    #[inline]
    pub(crate) fn count_latency(&mut self, now: Nanos, arrived: Nanos, tenant: usize, opcode: u8) {
        if arrived == NO_ARRIVAL {
            return;
        }
        self.tenants.list[tenant].latencies.count(opcode, arrived, now);
        if self.tenants.is_judged {
            self.judge_done(now, tenant, arrived);
        }
    }

    #[inline(never)]
    fn judge_done(&mut self, now: Nanos, tenant: usize, arrived: Nanos) {
        let t = &mut self.tenants.list[tenant];
        if let Some(judge) = t.judge.as_mut().filter(|_| arrived >= t.judged_since) {
            judge.completed(arrived, now);
        }
    }
}
