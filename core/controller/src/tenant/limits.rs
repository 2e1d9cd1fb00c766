//! What tenants are promised and held to, and when their commands came: what the [`Judge`]s are told.

use crate::config::TenantConfig;
use crate::error::ManagementError;
use crate::io::starting::NOT_JUDGED;
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
            t.judge = Judge::new(floor.rates, &sla, now).map(Box::new);
        }
        self.config.tenants[usize::from(tenant)] = t.config.clone();
        self.turn.now = now;
        self.prepare_judging(tenant);
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
        self.prepare_judging(place);
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

    /// Makes or drops the room for arrivals that judging needs.
    fn prepare_judging(&mut self, tenant: u16) {
        let (any, judged) = (
            self.tenants.list.iter().any(|t| t.judge.is_some()),
            self.tenants.list[usize::from(tenant)].judge.is_some(),
        );
        let stamps = if any { self.slots.limit as usize } else { 0 };
        self.tenants.arrivals.resize(stamps, NOT_JUDGED);
        for sq in self.queues.sqs.iter_mut().flatten().filter(|sq| sq.tenant == tenant) {
            if judged != sq.arrived.is_empty() {
                continue;
            }
            let room = if judged { sq.size as usize } else { 0 };
            sq.arrived = alloc::vec![NOT_JUDGED; room].into();
            if judged {
                sq.arrive_again(self.turn.now);
            }
        }
    }

    /// How a tenant's promise was kept, up to the last period that has ended by `now`; `None` where nothing was promised.
    pub fn attainment(&mut self, now: Nanos, tenant: u16) -> Option<Attainment> {
        let waits = |sq: &&Sq| sq.tenant == tenant && !sq.arrived.is_empty() && self.arbiter.is_backlogged(sq.key);
        let waiting = self.queues.sqs.iter().flatten().filter(waits).map(|sq| sq.arrived[sq.head as usize]).min();
        let judge = self.tenants.list.get_mut(usize::from(tenant))?.judge.as_mut()?;
        Some(judge.so_far(now, waiting))
    }

    /// A command leaves this place of its queue: on time? Answers when it arrived.
    #[inline(never)]
    pub(crate) fn judge_start(&mut self, now: Nanos, (key, at): (QueueKey, u32), bytes: u32) -> Nanos {
        let sq = self.queues.sqs[key.index()].as_ref().expect("the queue exists");
        let arrived = sq.arrived.get(at as usize).copied().unwrap_or(NOT_JUDGED);
        let judge = self.tenants.list[usize::from(sq.tenant)].judge.as_mut();
        if let Some(judge) = judge.filter(|_| arrived != NOT_JUDGED) {
            judge.started(arrived, now, bytes);
        }
        arrived
    }

    /// A command of a tenant is complete: how long did it take?
    #[inline(never)]
    pub(crate) fn judge_done(&mut self, now: Nanos, id: u32, tenant: usize) {
        let stamp =
            self.tenants.arrivals.get_mut(id as usize).map_or(NOT_JUDGED, |s| core::mem::replace(s, NOT_JUDGED));
        if let Some(judge) = self.tenants.list[tenant].judge.as_mut().filter(|_| stamp != NOT_JUDGED) {
            judge.completed(stamp, now);
        }
    }
}
