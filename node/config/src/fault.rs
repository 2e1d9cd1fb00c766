//! `[[fault]]`: failures by rule.

use super::device::DeviceConfig;
use super::read::{Placed, Read, Section, Sink, quoted, text};
use super::value::Value;
use weir_fault::{FAULT_KEYS, FaultRule};

/// A rule of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultConfig {
    /// The drive, by its place in [`Config::devices`](super::Config::devices).
    pub device: usize,
    /// The rule; whether it can apply to the drive shows when that is opened.
    pub rule: FaultRule,
}

/// A rule and the place of its drive's name.
pub(super) struct FaultRead {
    pub(super) line: u32,
    pub(super) key: String,
    pub(super) device: Option<Placed<String>>,
    pub(super) rule: FaultRule,
}

pub(super) fn read_all(root: &Section<'_>) -> Vec<FaultRead> {
    let read = |(i, (line, entries))| {
        let section = root.inner(format!("fault#{}", i + 1), line, entries);
        let device = section.placed("device", text);
        let rule = rule(&section);
        section.finish();
        Some(FaultRead { line, key: section.path(), device, rule: rule? })
    };
    root.tables("fault").into_iter().enumerate().filter_map(read).collect()
}

fn rule(section: &Section<'_>) -> Option<FaultRule> {
    let value = |key: &'static str| Some((key, section.get(key, plain)?));
    let pairs: Vec<(&'static str, String)> = FAULT_KEYS.iter().filter_map(|key| value(key)).collect();
    match FaultRule::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str()))) {
        Ok(rule) => Some(rule),
        Err(e) => {
            let key = FAULT_KEYS.iter().find(|key| **key == e.key).copied().unwrap_or("effect");
            section.fault(key, e.what);
            None
        }
    }
}

/// A value as the text of a rule has it: a list is joined by commas.
fn plain(value: &Value) -> Read<String> {
    match value {
        Value::Integer(Some(n)) => Ok(n.to_string()),
        Value::Float(n) => Ok(n.to_string()),
        Value::Flag(flag) => Ok(flag.to_string()),
        Value::List(items) => {
            let parts = items.iter().map(|item| plain(&item.value)).collect::<Read<Vec<String>>>()?;
            Ok(parts.join(","))
        }
        other => text(other),
    }
}

/// Finds the drives that rules name; what does not fit is noted.
pub(super) fn check(sink: &Sink, allowed: bool, reads: Vec<FaultRead>, devices: &[DeviceConfig]) -> Vec<FaultConfig> {
    if let Some(first) = reads.first().filter(|_| !allowed) {
        sink.note(
            first.line,
            &first.key,
            "failures can be injected only where [node] says faults = true; write that as well",
        );
    }
    reads.into_iter().filter_map(|read| one(sink, read, devices)).collect()
}

fn one(sink: &Sink, read: FaultRead, devices: &[DeviceConfig]) -> Option<FaultConfig> {
    let names = || devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    let device = match &read.device {
        Some(placed) => {
            let found = devices.iter().position(|d| d.name == placed.value);
            if found.is_none() {
                let what = format!("there is no device {}; there is {}", quoted(&placed.value), names());
                sink.note(placed.line, &placed.key, what);
            }
            found?
        }
        None if devices.len() == 1 => 0,
        None => {
            let key = format!("{}.device", read.key);
            sink.note(read.line, &key, format!("missing, and there are several; write one of {}", names()));
            return None;
        }
    };
    Some(FaultConfig { device, rule: read.rule })
}

/// The rules of a document of drives, without a node: those of a simulation.
pub(super) fn of_devices(root: &Section<'_>, devices: &[DeviceConfig]) -> Vec<FaultConfig> {
    check(root.sink(), true, read_all(root), devices)
}
