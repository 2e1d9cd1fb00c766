//! `[[tenant]]`.

use super::demand;
use super::names::{element_name, host_text, name_text};
use super::promise::{self, Promises};
use super::read::{Placed, Read, Section, flag, integer, one_or_list, text, word};
use super::value::Value;
use weir_flash::FdpConfig;
use weir_plan::Demand;
use weir_units::{Ceiling, Class, Floor, Rates, Sla};

const CLASSES: [(&str, Class); 4] =
    [("urgent", Class::Urgent), ("high", Class::High), ("medium", Class::Medium), ("low", Class::Low)];

/// One customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Default and ceiling of its queues.
    pub class: Class,
    /// Its queues may be urgent.
    pub urgent: bool,
    /// Its share among the tenants of its class, 1 to 256.
    pub weight: u16,
    /// The placement handle of its writes that name none, on drives that have handles.
    pub placement: Option<u8>,
    /// What it gets of each drive at least, while it asks for so much.
    pub floor: Floor,
    /// What it gets of each drive at the most.
    pub ceiling: Ceiling,
    /// What it was promised of each drive.
    pub sla: Sla,
    /// What it is expected to ask for; `None`: nobody said.
    pub demand: Option<Demand>,
    /// Host NQNs that are this tenant's.
    pub hosts: Vec<String>,
    /// Hosts that are nobody else's are this tenant's (`"*"`).
    pub any_host: bool,
}

impl TenantConfig {
    /// A tenant as it joins a running node, checked against those that are there. Hosts may have `*` among them.
    ///
    /// # Errors
    /// A name or host that is none, or that somebody else has.
    pub fn joining(name: &str, class: Class, hosts: &[String], beside: &[TenantConfig]) -> Result<Self, String> {
        name_text(name).map_err(|e| format!("name: {e}"))?;
        if beside.iter().any(|t| t.name == name) {
            return Err(format!(
                "name: there is a tenant \"{name}\" already; choose another, or change it (weir tenant set)"
            ));
        }
        for (i, host) in hosts.iter().enumerate() {
            host_text(host).map_err(|e| format!("hosts: {e}"))?;
            let has = |t: &&TenantConfig| t.hosts.contains(host) || (host == "*" && t.any_host);
            if let Some(other) = beside.iter().find(has) {
                return Err(format!("hosts: {host} is tenant \"{}\"'s; a host belongs to one tenant", other.name));
            }
            if hosts[..i].contains(host) {
                return Err(format!("hosts: {host} is listed twice; keep one"));
            }
        }
        Ok(TenantConfig {
            name: name.into(),
            class,
            urgent: class == Class::Urgent,
            hosts: hosts.iter().filter(|h| *h != "*").cloned().collect(),
            any_host: hosts.iter().any(|h| h == "*"),
            ..Self::nobody()
        })
    }

    /// It was removed while the node ran; its place stays.
    pub fn is_gone(&self) -> bool {
        self.name.is_empty()
    }

    /// Removes it.
    pub fn retire(&mut self) {
        *self = Self::nobody();
    }

    fn nobody() -> Self {
        TenantConfig {
            name: String::new(),
            class: Class::Medium,
            urgent: false,
            weight: 1,
            placement: None,
            floor: Floor::default(),
            ceiling: Ceiling::default(),
            sla: Sla::default(),
            demand: None,
            hosts: Vec::new(),
            any_host: false,
        }
    }

    /// The best class its queues can have.
    pub fn ceiling(&self) -> Class {
        if self.urgent { Class::Urgent } else { self.class }
    }
}

/// What the floors of these tenants add up to: what a drive that all of them use has to deliver.
pub fn floors(tenants: &[TenantConfig]) -> Rates {
    tenants.iter().fold(Rates::default(), |sum, t| sum.sum(t.floor.rates))
}

/// A tenant and the places of what has to be unique.
pub(super) struct TenantRead {
    pub(super) tenant: TenantConfig,
    pub(super) name: Option<Placed<String>>,
    pub(super) hosts: Option<Placed<Vec<String>>>,
}

pub(super) fn read_all(root: &Section<'_>) -> Vec<TenantRead> {
    let read_one = |(i, (line, entries))| read(&root.inner(format!("tenant#{}", i + 1), line, entries));
    root.tables("tenant").into_iter().enumerate().map(read_one).collect()
}

fn read(section: &Section<'_>) -> TenantRead {
    let name = element_name(section, "tenant");
    if !section.has("name") {
        section.fault("name", "missing; give the tenant a name");
    }
    let urgent = section.or("urgent", false, flag);
    let class = section.or("class", Class::Medium, word(&CLASSES));
    if class == Class::Urgent && !urgent {
        section.fault("class", "urgent goes before everybody else; write urgent = true as well to allow it");
    }
    let weight = section.or("weight", 1, integer(1..=256)) as u16;
    let handle = integer(0..=u64::from(FdpConfig::MAX_HANDLES) - 1);
    let placement = section.get("placement", |v| Ok(handle(v)? as u8));
    let mut hosts = section.placed("hosts", one_or_list(host));
    let any_host = hosts.as_ref().is_some_and(|h| h.value.iter().any(|n| n == "*"));
    let named = hosts.as_mut().map(|h| h.value.iter().filter(|n| *n != "*").cloned().collect());
    let Promises { floor, ceiling, sla } = promise::read(section);
    let demand = demand::read(section);
    section.finish();
    let tenant = TenantConfig {
        name: name.as_ref().map(|n| n.value.clone()).unwrap_or_default(),
        class,
        urgent,
        weight,
        placement,
        floor,
        ceiling,
        sla,
        demand,
        hosts: named.unwrap_or_default(),
        any_host,
    };
    TenantRead { tenant, name, hosts }
}

fn host(value: &Value) -> Read<String> {
    let text = text(value)?;
    host_text(&text)?;
    Ok(text)
}
