//! Which crate may depend on which: `cli -> sim -> node -> sys -> core -> spec`, `bindings -> node` and `bindings/python -> sim`.

use crate::tree::{File, Finding, Tree};

/// The layers, lowest first. A crate may depend on its own layer and those below; spec on nothing but itself.
const LAYERS: [(&str, usize); 6] = [("spec", 0), ("core", 1), ("sys", 2), ("node", 3), ("sim", 4), ("cli", 5)];

/// Crates that see all: nothing may depend on them, except one another.
const OBSERVERS: usize = 6;

/// What spec and core may use from outside: crates that work without `std`.
const PURE: [&str; 1] = ["zerocopy"];

/// What other languages link: they see node and what lies below it, and nothing depends on them.
const BINDINGS: &str = "bindings";

/// The Python package simulates as well.
const PYTHON: &str = "bindings/python/";

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

fn layer(path: &str) -> usize {
    LAYERS.iter().find(|(name, _)| *name == top(path)).map_or(OBSERVERS, |(_, l)| *l)
}

/// The highest layer that a crate may depend on.
fn sees(path: &str) -> usize {
    match path {
        _ if path.starts_with(PYTHON) => layer("sim"),
        _ if top(path) == BINDINGS => layer("node"),
        _ => layer(path),
    }
}

/// One line of a dependency table.
struct Dependency<'a> {
    name: &'a str,
    line: usize,
    dev: bool,
}

/// The dependencies that a manifest names.
fn dependencies(file: &File) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (i, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            // [dependencies.name] is a table of its own.
            if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                found.push(Dependency { name, line: i + 1, dev: kind.ends_with("dev-") });
            }
            continue;
        }
        let named = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if section.ends_with("dependencies") && !named.is_empty() && !named.starts_with('#') {
            found.push(Dependency { name: named, line: i + 1, dev: section.ends_with("dev-dependencies") });
        }
    }
    found
}

/// The folder of each package of ours, by package name.
fn packages(tree: &Tree) -> Vec<(&str, &str)> {
    let manifests = tree.files().filter(|f| f.path.ends_with("/Cargo.toml"));
    manifests
        .filter_map(|f| {
            let line = f.text.lines().find(|l| l.starts_with("name = "))?;
            Some((line.split('"').nth(1)?, f.path.as_str()))
        })
        .collect()
}

/// Every dependency that points the wrong way, and every impure one of spec and core.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(tree);
    let mut findings = Vec::new();
    for file in tree.files().filter(|f| f.path.ends_with("/Cargo.toml")) {
        let own = sees(&file.path);
        for d in dependencies(file) {
            let ours = packages.iter().find(|(name, _)| *name == d.name);
            let message = match ours {
                Some((name, path)) if layer(path) > own => {
                    format!("{name} lies above: arrows point cli -> sim -> node -> sys -> core -> spec")
                }
                None if own <= 1 && !d.dev && !PURE.contains(&d.name) => {
                    format!("{} in spec or core: only crates without std ({})", d.name, PURE.join(", "))
                }
                _ => continue,
            };
            findings.push(Finding::new(&file.path, d.line, message));
        }
    }
    findings
}
