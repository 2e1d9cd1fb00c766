//! Tenants of a drive: who belongs to one, which class its queues get, and how often it may be administrated.

use crate::config::{SubsystemConfig, TenantConfig};
use crate::stats::Work;
use crate::tenant::latency::Latencies;
use crate::tenant::sla::Judge;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weir_arbiter::{Arbiter, TenantKey};
use weir_units::{Class, Nanos};

pub(crate) mod latency;
mod limits;
pub(crate) mod reserve;
pub(crate) mod sla;

/// Admin commands a tenant may send at once before the rate counts.
pub(crate) const ADMIN_BURST: u64 = 100;

/// A tenant and its counters.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub key: TenantKey,
    pub config: TenantConfig,
    pub work: Work,
    pub latencies: Latencies,
    /// Of what it was promised, if anything was.
    pub judge: Option<Box<Judge>>,
    /// Since when there is one: commands that came before are not judged.
    pub judged_since: Nanos,
    /// When the admin commands so far are paid for (generic cell rate).
    admin_paid: u64,
}

impl Tenant {
    pub fn new(key: TenantKey, config: TenantConfig, now: Nanos) -> Self {
        let judge = Judge::new(config.floor.rates, &config.sla, now).map(Box::new);
        let (work, latencies) = (Work::default(), Latencies::default());
        Self { key, config, work, latencies, judge, judged_since: now, admin_paid: 0 }
    }

    /// The class of a queue whose host or peer wishes `wish`; `counts`: it came from where wishes are taken.
    ///
    /// Nobody rises above the tenant's class, except to urgent where the operator wrote `urgent = true`. 00b is what
    /// hosts send that know nothing of priorities, and means urgent: without that permission it is no wish.
    pub fn class(&self, counts: bool, wish: Option<Class>) -> Class {
        let ceiling = self.config.class;
        if !counts {
            return ceiling;
        }
        match wish {
            Some(Class::Urgent) if self.config.urgent => Class::Urgent,
            Some(Class::Urgent) | None => ceiling,
            Some(class) => class.at_most(ceiling),
        }
    }

    /// When the next admin command may be served at this rate.
    pub fn admin_due(&self, rate: u32) -> Nanos {
        Nanos(self.admin_paid.saturating_sub(ADMIN_BURST * interval(rate)))
    }

    /// Takes the permission for one admin command, if there is one.
    pub fn admit_admin(&mut self, now: Nanos, rate: u32) -> bool {
        if self.admin_due(rate) > now {
            return false;
        }
        self.admin_paid = self.admin_paid.max(now.0).saturating_add(interval(rate));
        true
    }
}

fn interval(rate: u32) -> u64 {
    1_000_000_000 / u64::from(rate.max(1))
}

/// The tenant of a host: the one that names it, else the first with `*`.
pub(crate) fn tenant_of(tenants: &[Tenant], host: &str) -> Option<u16> {
    let with = |name: &str| tenants.iter().position(|t| t.config.hosts.iter().any(|h: &String| h == name));
    with(host).or_else(|| with("*")).map(|i| i as u16)
}

/// The tenants of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    pub list: Vec<Tenant>,
    /// The promise of one of them is judged.
    pub is_judged: bool,
}

impl Tenants {
    /// Those of the configuration.
    pub fn new(config: &SubsystemConfig, arbiter: &mut Arbiter, now: Nanos) -> Self {
        let made = |t: &TenantConfig| {
            let key = arbiter.add_tenant(t.weight);
            arbiter.set_limits(key, &t.floor, &t.ceiling);
            Tenant::new(key, t.clone(), now)
        };
        let list: Vec<Tenant> = config.tenants.iter().map(made).collect();
        let is_judged = list.iter().any(|t| t.judge.is_some());
        Self { list, is_judged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_arbiter::{Arbiter, ArbiterSettings};

    fn tenant(class: Class, urgent: bool) -> Tenant {
        let key = Arbiter::new(ArbiterSettings::default()).add_tenant(1);
        Tenant::new(key, TenantConfig { urgent, ..TenantConfig::new("t", class) }, Nanos(0))
    }

    /// Every combination of tenant, permission, source and wish.
    #[test]
    fn who_decides_the_class() {
        for ceiling in Class::ALL {
            for urgent in [false, true] {
                let t = tenant(ceiling, urgent);
                for counts in [false, true] {
                    assert_eq!(t.class(counts, None), ceiling);
                    for wish in Class::ALL {
                        let got = t.class(counts, Some(wish));
                        let rises = got < ceiling;
                        assert!(!rises || urgent && got == Class::Urgent && counts);
                        if !counts || (wish == Class::Urgent && !urgent) {
                            assert_eq!(got, ceiling, "silence and what does not count are no wish");
                        } else if wish >= ceiling {
                            assert_eq!(got, wish, "a lower wish is granted");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn admin_commands_are_paced() {
        let mut t = tenant(Class::High, false);
        let mut served = 0u64;
        for us in 0..5_000_000u64 {
            served += u64::from(t.admit_admin(Nanos::from_micros(us), 1000));
        }
        assert!((5_000..=5_000 + ADMIN_BURST).contains(&served), "{served}");
    }
}
