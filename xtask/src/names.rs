//! One public name means one type.

use std::collections::BTreeMap;

use crate::lexer::line_of;
use crate::tree::{File, Finding, Tree};

/// So many modules may have a public type of one name: two crates that describe the two sides of one thing, for example.
const MODULES: usize = 2;

/// Names that more modules may have, each with its reason.
const EXCEPTED: [(&str, &str); 2] = [
    ("Door", "node: each protocol's door is a module of its own, and no module names two of them"),
    ("ExportConfig", "node: the export as configured, and as each of two doors takes it"),
];

/// Where users and other crates meet public types; benchmarks, fuzz targets and end-to-end tests have no users.
const SHIPPED: [&str; 7] = ["spec/", "core/", "sys/", "node/", "sim/", "cli/", "bindings/"];

/// The words before a public type's name.
const KINDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// Public types whose name more than [`MODULES`] modules give to types of their own. Tests are left out, and so are types that only a
/// part of their crate sees (`pub(crate)`, `pub(super)`).
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<(&File, usize)>> = BTreeMap::new();
    for file in tree.files().filter(|f| f.is_rust() && !f.is_test() && is_shipped(&f.path)) {
        let mut at = 0;
        for line in file.code.split_inclusive('\n') {
            if let Some(name) = public_type(line) {
                let modules = places.entry(name.to_owned()).or_default();
                if modules.last().is_none_or(|(last, _)| last.path != file.path) {
                    modules.push((file, line_of(&file.code, at)));
                }
            }
            at += line.len();
        }
    }
    let excepted = |name: &str| EXCEPTED.iter().any(|(n, _)| *n == name);
    let mut findings = Vec::new();
    for (name, modules) in places.iter().filter(|(name, at)| at.len() > MODULES && !excepted(name)) {
        for (file, line) in modules {
            let others = modules.len() - 1;
            let message = format!("public type {name}: {others} other modules have one of that name; rename it");
            findings.push(Finding::new(&file.path, *line, message));
        }
    }
    findings
}

fn is_shipped(path: &str) -> bool {
    path.contains("/src/") && SHIPPED.iter().any(|part| path.starts_with(part))
}

/// The name of the public type that a line of code declares; associated types, which are indented, are none.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (kind, rest) = rest.split_once(' ')?;
    let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
    (KINDS.contains(&kind) && !name.is_empty()).then_some(name)
}
