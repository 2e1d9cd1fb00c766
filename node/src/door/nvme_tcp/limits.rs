//! How many queues hosts may have connected, over all shards: of one tenant, of one host, and what stays free for every tenant.
//!
//! ```text
//!   Connect ─► Admission::admit(tenant, host) ─► Admitted, which counts until it is dropped   (or Full: the host may try again)
//!   taken over from another process ─► Admission::count: it is there already
//! ```
//! Sockets that are no queue yet are not counted here but in [`super::unconnected`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_config::NvmeTcpConfig;
use weir_controller::{Share, default_reserve, may_have_one_more};

/// Why a Connect has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Connections(u32),
    Tenant(u32),
    Host(u32),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Connections(most) => write!(
                f,
                "door.nvme-tcp.connections ({most}) is reached, less what is reserved for other tenants; raise it, or lower tenant_reserve"
            ),
            Full::Tenant(most) => write!(f, "its tenant has door.nvme-tcp.tenant_connections ({most})"),
            Full::Host(most) => write!(f, "it has door.nvme-tcp.host_connections ({most})"),
        }
    }
}

/// The queues of all hosts, for the doors of all shards.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    connections: u32,
    tenant: u32,
    host: u32,
    reserve: Option<u32>,
    counts: Mutex<Counts>,
    refused: AtomicU64,
}

/// By place of the tenant's budget: the first is of hosts that are nobody's.
#[derive(Default)]
struct Counts {
    tenants: Vec<Tenant>,
    hosts: BTreeMap<(usize, String), u32>,
}

#[derive(Clone, Copy, Default)]
struct Tenant {
    queues: u32,
    /// It is there, and so something is reserved for it.
    is_there: bool,
}

impl Counts {
    fn tenant(&mut self, place: usize) -> &mut Tenant {
        if self.tenants.len() <= place {
            self.tenants.resize(place + 1, Tenant::default());
        }
        &mut self.tenants[place]
    }
}

impl Admission {
    /// With so many tenants.
    pub fn new(config: &NvmeTcpConfig, tenants: usize) -> Self {
        let all = u32::from(config.connections);
        let admission = Self(Arc::new(Shared {
            connections: all,
            tenant: config.tenant_connections.map_or(all, u32::from),
            host: config.host_connections.map_or(all.div_ceil(2), u32::from),
            reserve: config.tenant_reserve.map(u32::from),
            counts: Mutex::default(),
            refused: AtomicU64::new(0),
        }));
        (1..=tenants).for_each(|place| admission.add_tenant(place));
        admission
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is reserved for this tenant from now on.
    pub(super) fn add_tenant(&self, place: usize) {
        self.counts().tenant(place).is_there = true;
    }

    /// Nothing is reserved for it any more.
    pub(super) fn retire_tenant(&self, place: usize) {
        self.counts().tenant(place).is_there = false;
    }

    /// One more queue of this host, if there is room for it.
    pub(super) fn admit(&self, tenant: usize, host: &str) -> Result<Admitted, Full> {
        let mut counts = self.counts();
        let full = self.full(&mut counts, tenant, host);
        match full {
            Some(full) => {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
                Err(full)
            }
            None => Ok(self.take(&mut counts, tenant, host)),
        }
    }

    /// One more queue of this host, which is there whatever the limits are.
    pub(super) fn count(&self, tenant: usize, host: &str) -> Admitted {
        self.take(&mut self.counts(), tenant, host)
    }

    fn full(&self, counts: &mut Counts, tenant: usize, host: &str) -> Option<Full> {
        let Shared { connections, tenant: of_tenant, host: of_host, reserve, .. } = &*self.0;
        if counts.hosts.get(&(tenant, host.to_owned())).is_some_and(|has| has >= of_host) {
            return Some(Full::Host(*of_host));
        }
        if counts.tenant(tenant).queues >= *of_tenant {
            return Some(Full::Tenant(*of_tenant));
        }
        let (there, gone): (Vec<_>, Vec<_>) = counts.tenants.iter().enumerate().partition(|(_, t)| t.is_there);
        let reserve = reserve.unwrap_or(default_reserve(*connections, there.len() as u32));
        // What others have takes room, and nothing is reserved for them.
        let limit = connections.saturating_sub(gone.iter().map(|(_, t)| t.queues).sum());
        let share = |(place, t): (usize, &Tenant)| Share { has: t.queues, is_own: place == tenant };
        let may = may_have_one_more(limit, reserve, there.into_iter().map(share));
        (!may).then_some(Full::Connections(*connections))
    }

    fn take(&self, counts: &mut Counts, tenant: usize, host: &str) -> Admitted {
        counts.tenant(tenant).queues += 1;
        *counts.hosts.entry((tenant, host.to_owned())).or_default() += 1;
        Admitted { of: self.clone(), tenant, host: host.to_owned() }
    }

    /// Connections of this tenant's hosts, by its place in the configuration.
    pub fn queues_of(&self, tenant: usize) -> u32 {
        self.counts().tenants.get(tenant + 1).map_or(0, |t| t.queues)
    }

    /// Connects that were refused for want of room.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

/// A queue that counts.
pub(super) struct Admitted {
    of: Admission,
    tenant: usize,
    host: String,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        let tenant = counts.tenant(self.tenant);
        tenant.queues = tenant.queues.saturating_sub(1);
        let key = (self.tenant, std::mem::take(&mut self.host));
        if let Some(has) = counts.hosts.get_mut(&key) {
            *has -= 1;
            if *has == 0 {
                counts.hosts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections: u16, tenants: usize, more: impl Fn(&mut NvmeTcpConfig)) -> Admission {
        let mut config = NvmeTcpConfig { connections, ..NvmeTcpConfig::default() };
        more(&mut config);
        Admission::new(&config, tenants)
    }

    fn fill(admission: &Admission, tenant: usize, host: impl Fn(usize) -> String) -> (Vec<Admitted>, Full) {
        let mut all = Vec::new();
        loop {
            match admission.admit(tenant, &host(all.len())) {
                Ok(one) => all.push(one),
                Err(full) => return (all, full),
            }
        }
    }

    /// A tenant of any number of hosts leaves the others their reserve; when it goes it leaves all.
    #[test]
    fn one_tenant_leaves_the_others_their_reserve() {
        let admission = admission(64, 2, |_| {});
        let (rogue, full) = fill(&admission, 2, |i| format!("nqn.rogue{i}"));
        assert_eq!((rogue.len(), full), (48, Full::Connections(64)));
        let (good, full) = fill(&admission, 1, |i| format!("nqn.good{i}"));
        assert_eq!((good.len(), full), (16, Full::Connections(64)));
        assert_eq!((admission.queues_of(0), admission.queues_of(1), admission.refused()), (16, 48, 2));
        drop((rogue, good));
        assert_eq!(fill(&admission, 1, |i| format!("nqn.good{i}")).0.len(), 48);
    }

    #[test]
    fn one_host_is_not_all_of_its_tenant() {
        let admission = admission(64, 1, |_| {});
        let (rogue, full) = fill(&admission, 1, |_| String::new());
        assert_eq!((rogue.len(), full), (32, Full::Host(32)));
        assert!(admission.admit(1, "nqn.other").is_ok());
    }

    #[test]
    fn limits_are_as_they_are_set() {
        let admission = admission(64, 3, |c| {
            (c.tenant_connections, c.host_connections, c.tenant_reserve) = (Some(10), Some(4), Some(20));
        });
        assert_eq!(fill(&admission, 1, |_| "nqn.a".into()).1, Full::Host(4));
        let (all, full) = fill(&admission, 1, |i| format!("nqn.{i}"));
        assert_eq!((all.len(), full), (10, Full::Tenant(10)));
    }

    /// Hosts that are nobody's, which reach the discovery service only, and tenants that have gone, have nothing reserved.
    #[test]
    fn nothing_is_reserved_for_nobody() {
        let admission = admission(64, 2, |_| {});
        let nobody = fill(&admission, 0, |i| format!("nqn.{i}")).0;
        assert_eq!(nobody.len(), 32);
        admission.retire_tenant(2);
        assert_eq!(fill(&admission, 1, |i| format!("nqn.{i}")).0.len(), 32);
    }

    /// What is there already counts beyond every limit, and nothing is added to it.
    #[test]
    fn what_was_taken_over_counts() {
        let admission = admission(8, 2, |_| {});
        let over: Vec<_> = (0..10).map(|i| admission.count(2, &format!("nqn.{i}"))).collect();
        assert!(admission.admit(2, "nqn.x").is_err() && admission.admit(1, "nqn.y").is_err());
        drop(over);
        assert!(admission.admit(2, "nqn.x").is_ok());
    }
}
