//! Two configurations, compared key by key.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use toml::{Table, Value};

/// A key that has another value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The section: `tenant`, `device`, `node`, `door.nvme-tcp`.
    pub section: String,
    /// Which of them, where there are several: its name, its drive and door, or its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key; none where the whole is new or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.section)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, " {from} -> {to}"),
            (Some(from), None) if self.key.is_some() => write!(f, " {from} -> none"),
            (None, Some(to)) if self.key.is_some() => write!(f, " none -> {to}"),
            (Some(_), None) => f.write_str(": removed"),
            (None, _) => f.write_str(": new"),
        }
    }
}

/// Every key in which two printed configurations differ.
///
/// # Errors
/// One of them is not TOML.
pub fn differences(from: &str, to: &str) -> Result<Vec<Difference>, String> {
    let parse = |text: &str| text.parse::<Table>().map_err(|e| format!("what a node prints is not TOML: {e}"));
    let mut found = Vec::new();
    compare(&parse(from)?, &parse(to)?, "", &mut found);
    Ok(found)
}

fn keys<'a>(from: &'a Table, to: &'a Table) -> BTreeSet<&'a String> {
    from.keys().chain(to.keys()).collect()
}

/// Sections: tables, and lists of tables.
fn compare(from: &Table, to: &Table, path: &str, found: &mut Vec<Difference>) {
    for key in keys(from, to) {
        let section = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let is_list = |v: Option<&Value>| v.and_then(Value::as_array).is_some_and(|l| l.iter().all(Value::is_table));
        if is_list(from.get(key)) && is_list(to.get(key)) || is_list(from.get(key).or(to.get(key))) {
            list(from.get(key), to.get(key), &section, found);
        } else if let (Some(Value::Table(from)), Some(Value::Table(to))) = (from.get(key), to.get(key)) {
            if key == "door" { compare(from, to, &section, found) } else { inside(from, to, &section, None, found) }
        } else {
            one(from.get(key), to.get(key), &section, None, None, found);
        }
    }
}

/// The tables of a list, by their names.
fn list(from: Option<&Value>, to: Option<&Value>, section: &str, found: &mut Vec<Difference>) {
    let tables = |list: Option<&Value>| -> Vec<(String, Table)> {
        let list = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table);
        list.enumerate().map(|(at, table)| (name(table, at), table.clone())).collect()
    };
    let (from, to) = (tables(from), tables(to));
    for (name, old) in &from {
        match to.iter().find(|(other, _)| other == name) {
            Some((_, new)) => inside(old, new, section, Some(name), found),
            None => found.push(whole(section, name, Some(String::new()), None)),
        }
    }
    for (name, _) in to.iter().filter(|(name, _)| !from.iter().any(|(other, _)| other == name)) {
        found.push(whole(section, name, None, Some(String::new())));
    }
}

fn whole(section: &str, name: &str, from: Option<String>, to: Option<String>) -> Difference {
    Difference { section: section.into(), name: Some(name.into()), key: None, from, to }
}

/// What tells a table of a list from the others.
fn name(table: &Table, at: usize) -> String {
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    match (text("name"), text("device"), text("door")) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(device), Some(door)) => format!("{device} {door}"),
        _ => format!("#{}", at + 1),
    }
}

/// The keys of a section.
fn inside(from: &Table, to: &Table, section: &str, name: Option<&String>, found: &mut Vec<Difference>) {
    for key in keys(from, to) {
        one(from.get(key), to.get(key), section, name, Some(key), found);
    }
}

fn one(
    from: Option<&Value>,
    to: Option<&Value>,
    section: &str,
    name: Option<&String>,
    key: Option<&String>,
    found: &mut Vec<Difference>,
) {
    if from == to {
        return;
    }
    let shown = |value: Option<&Value>| value.map(ToString::to_string);
    let (name, key) = (name.cloned(), key.cloned());
    found.push(Difference { section: section.into(), name, key, from: shown(from), to: shown(to) });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(from: &str, to: &str) -> Vec<String> {
        differences(from, to).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_key_is_named() {
        let from = "[node]\npoll = false\n[[tenant]]\nname = \"a\"\nweight = 1\n[[tenant]]\nname = \"b\"\n\
                    [[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\nqueues = 4\n[door.nvme-tcp]\nlisten = [\"x\"]\n";
        let to = "[node]\npoll = true\n[[tenant]]\nname = \"c\"\n[[tenant]]\nname = \"a\"\nweight = 3\nsla = { p99 = \"1ms\" }\n\
                  [[export]]\ndevice = \"d\"\ndoor = \"nvme-tcp\"\nqueues = 8\n[door.nvme-tcp]\nlisten = [\"y\"]\n[store]\nmeta = \"m\"\n";
        let expected = [
            "door.nvme-tcp: listen [\"x\"] -> [\"y\"]",
            "export d nvme-tcp: queues 4 -> 8",
            "node: poll false -> true",
            "store: new",
            "tenant a: sla none -> { p99 = \"1ms\" }",
            "tenant a: weight 1 -> 3",
            "tenant b: removed",
            "tenant c: new",
        ];
        assert_eq!(told(from, to), expected);
        assert!(told(from, from).is_empty());
    }

    #[test]
    fn order_is_no_difference() {
        let (a, b) = ("[[tenant]]\nname = \"a\"\n", "[[tenant]]\nname = \"b\"\n");
        assert!(told(&format!("{a}{b}"), &format!("{b}{a}")).is_empty());
        assert_eq!(told("", a), ["tenant a: new"]);
    }
}
