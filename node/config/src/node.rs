//! `[node]`.

use super::machine::Machine;
use super::read::{Placed, Read, Section, flag, integer, one_or_list, quoted, text, word};
use super::runtime::socket_path;
use super::types::{Address, Admission, NodeConfig};
use super::value::Value;
use std::net::SocketAddr;
use std::path::Path;

/// More CPUs than any machine has.
const MAX_CORE: u64 = 4095;

/// `api`: where the API is if the file does not say.
pub(super) fn read(root: &Section<'_>, base: &Path, machine: Machine, api: Option<Address>) -> NodeConfig {
    let default_api = vec![api.unwrap_or_else(|| Address::Unix(base.join("weir.sock")))];
    let admission = Admission::Enforce;
    let Some((line, entries)) = root.table("node") else {
        let (name, api, cores, poll, journal) = ("n1".into(), default_api, vec![0], false, true);
        let (keeper, standby, default_exports) = (true, false, true);
        return NodeConfig { name, api, cores, poll, admission, journal, keeper, standby, default_exports };
    };
    let node = root.inner("node", line, entries);
    let name = node.or("name", "n1".to_string(), name);
    let api = node.or("api", default_api, |v| addresses(v, base));
    let cores = node.or("cores", vec![0], |v| cores(v, machine));
    let poll = node.or("poll", false, flag);
    let admission = node.or("admission", admission, word(Admission::WORDS));
    let journal = node.or("journal", true, flag);
    let keeper = node.or("keeper", true, flag);
    let standby = node.or("standby", false, flag);
    let default_exports = node.or("default_exports", true, flag);
    if standby && !keeper {
        node.fault("standby", "only a keeper starts one; leave keeper = false out");
    }
    node.finish();
    NodeConfig { name, api, cores, poll, admission, journal, keeper, standby, default_exports }
}

/// A name as it stands in NQNs, paths and URLs.
pub fn name(value: &Value) -> Read<String> {
    let name = text(value)?;
    name_text(&name)?;
    Ok(name)
}

/// Whether this is a name.
pub fn name_text(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > 32
        || !name.chars().all(plain)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let what = format!(
            "{} is no name; use 1 to 32 letters, digits, '-', '_' and '.', a letter or digit first",
            quoted(name)
        );
        return Err(what);
    }
    Ok(())
}

/// The name of an element of `[[list]]`; its path follows its name.
pub fn element_name(section: &Section<'_>, list: &str) -> Option<Placed<String>> {
    let mut placed = section.placed("name", name)?;
    section.rename(format!("{list}.{}", placed.value));
    placed.key = section.key("name");
    Some(placed)
}

fn addresses(value: &Value, base: &Path) -> Read<Vec<Address>> {
    let list = one_or_list(|v| address(&text(v)?, base).map_err(Into::into))(value)?;
    if list.is_empty() {
        return Err("no address; leave the key out for the default unix:weir.sock".to_string().into());
    }
    for (i, a) in list.iter().enumerate() {
        if list[..i].contains(a) {
            return Err(format!("{a} is listed twice; keep one").into());
        }
    }
    Ok(list)
}

/// An address of the API: `unix:PATH`, or `IP:PORT` of the loopback interface.
pub fn address(text: &str, base: &Path) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(base, path).map(Address::Unix);
    }
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(format!("{} is not an address like unix:weir.sock or 127.0.0.1:9400", quoted(text)));
    };
    if !address.ip().is_loopback() {
        return Err(format!(
            "{address} is not loopback, and the API asks nobody for a password; use 127.0.0.1 or [::1]"
        ));
    }
    Ok(Address::Tcp(address))
}

fn cores(value: &Value, machine: Machine) -> Read<Vec<usize>> {
    let list = one_or_list(integer(0..=MAX_CORE))(value)?;
    if list.is_empty() {
        return Err("no core; write at least one, like [0]".to_string().into());
    }
    for (i, core) in list.iter().enumerate() {
        if list[..i].contains(core) {
            return Err(format!("core {core} is listed twice; keep one").into());
        }
    }
    if let Some(allowed) = machine.cores() {
        if let Some(core) = list.iter().find(|core| !allowed.contains(&(**core as usize))) {
            let names = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!("this process cannot run on core {core}; use some of {names}").into());
        }
    }
    Ok(list.into_iter().map(|core| core as usize).collect())
}
