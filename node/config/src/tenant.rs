//! `[[tenant]]`.

use super::demand;
use super::node::element_name;
use super::promise::{self, Promises};
use super::read::{Placed, Read, Section, flag, integer, one_or_list, quoted, text, word};
use super::types::TenantConfig;
use super::value::Value;
use weir_flash::FdpConfig;
use weir_units::Class;

/// NQNs have at most 223 bytes (NVMe base 2.0, section 4.5).
const MAX_NQN: usize = 223;

const CLASSES: [(&str, Class); 4] =
    [("urgent", Class::Urgent), ("high", Class::High), ("medium", Class::Medium), ("low", Class::Low)];

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

/// Whether this names hosts: an NQN, or `*`.
pub(super) fn host_text(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { nqn_text(text) }
}

/// An NVMe qualified name (NVMe base 2.0, section 4.5): `nqn.`, no blanks, no control characters, at most 223 bytes.
pub(super) fn nqn(value: &Value) -> Read<String> {
    let text = text(value)?;
    nqn_text(&text)?;
    Ok(text)
}

fn nqn_text(text: &str) -> Result<(), String> {
    let plain = text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    if !text.starts_with("nqn.") || text.len() < 5 || text.len() > MAX_NQN || !plain {
        let what = format!(
            "{} is not an NQN like nqn.2014-08.org.nvmexpress:uuid:… (at most {MAX_NQN} bytes, no blanks)",
            quoted(text)
        );
        return Err(what);
    }
    Ok(())
}
