//! Files that import one another in a circle: at most three, in the crates that hold it.
//!
//! An import is a `use` of a path that begins with `crate`, `super`, `self` or a child module, and such a path within the code. A name that a
//! module only hands on (`pub use`) counts as imported from where it is defined; a crate's root imports nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::words;
use crate::tree::{File, Finding, Tree};

/// Files of one circle at the most.
const MOST: usize = 3;

/// Crates whose circles are so short. Whoever has opened the circles of another one adds it.
pub const HOLDS: [&str; 23] = [
    "bench",
    "bindings/c",
    "cli",
    "core/arbiter",
    "core/controller",
    "core/driver",
    "core/flash",
    "core/journal",
    "core/keeper",
    "core/plan",
    "core/pool",
    "core/store",
    "core/units",
    "core/workload",
    "fuzz",
    "node",
    "node/api",
    "node/config",
    "node/drive",
    "sim",
    "spec",
    "sys",
    "xtask",
];

/// A module by its path below the crate's root.
type Module<'a> = Vec<&'a str>;

/// The modules of a crate, and what they import.
struct Crate<'a> {
    files: BTreeMap<Module<'a>, &'a File>,
    /// The code of each, tests apart.
    code: BTreeMap<Module<'a>, String>,
}

/// Every circle of more than [`MOST`] files in the crates of [`HOLDS`].
pub fn check(tree: &Tree) -> Vec<Finding> {
    HOLDS.iter().flat_map(|root| circles(tree, root)).collect()
}

/// Those of one crate.
pub fn circles(tree: &Tree, root: &str) -> Vec<Finding> {
    let crate_ = Crate::read(tree, root);
    let imports = crate_.imports();
    let mut findings = Vec::new();
    for circle in components(&imports).into_iter().filter(|circle| circle.len() > MOST) {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        let message = format!("{} files import one another: {}", circle.len(), names.join(", "));
        findings.push(Finding::new(&crate_.files[&circle[0]].path, 1, message));
    }
    findings
}

impl<'a> Crate<'a> {
    fn read(tree: &'a Tree, root: &str) -> Self {
        let prefix = format!("{root}/src/");
        let mut read = Self { files: BTreeMap::new(), code: BTreeMap::new() };
        for file in tree.files().filter(|f| f.is_rust() && !f.is_test()) {
            let Some(path) = file.path.strip_prefix(&prefix).and_then(|path| path.strip_suffix(".rs")) else {
                continue;
            };
            let mut module: Module<'_> = path.split('/').collect();
            if matches!(module.last(), Some(&"mod")) || matches!(module[..], ["lib" | "main"]) {
                module.pop();
            }
            read.code.insert(module.clone(), without_tests(&file.code));
            read.files.insert(module, file);
        }
        read
    }

    /// What each module imports.
    fn imports(&self) -> BTreeMap<Module<'a>, BTreeSet<Module<'a>>> {
        let handed_on = self.handed_on();
        let mut imports = BTreeMap::new();
        for (module, code) in &self.code {
            let mut targets = BTreeSet::new();
            for path in self.paths(module, code).into_iter().filter(|_| !module.is_empty()) {
                let Some((mut target, mut name)) = self.resolve(module, &path) else { continue };
                // A name can be handed on several times.
                for _ in 0..8 {
                    let Some(from) = handed_on.get(&(target.clone(), name.clone())) else { break };
                    (target, name) = (from.0.clone(), from.1.clone());
                }
                targets.insert(target);
            }
            targets.remove(module);
            imports.insert(module.clone(), targets);
        }
        imports
    }

    /// Where the names come from that modules hand on: by the module and the name, the module that it names, and the name there.
    fn handed_on(&self) -> BTreeMap<(Module<'a>, String), (Module<'a>, String)> {
        let mut all = BTreeMap::new();
        for (module, code) in &self.code {
            for used in statements(code).filter(|used| used.public) {
                for path in expanded(used.tree) {
                    let (path, alias) = path.split_once(" as ").unwrap_or((&path, ""));
                    if let Some((target, name)) = self.resolve(module, path).filter(|(target, _)| target != module) {
                        let known_as = if alias.is_empty() { name.clone() } else { alias.trim().to_owned() };
                        all.insert((module.clone(), known_as), (target, name));
                    }
                }
            }
        }
        all
    }

    /// The paths that a module's code names.
    fn paths(&self, module: &Module<'a>, code: &str) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let mut rest = code.to_owned();
        for used in statements(code) {
            if !used.public {
                paths
                    .extend(expanded(used.tree).into_iter().map(|p| p.split(" as ").next().unwrap_or_default().into()));
            }
            rest.replace_range(used.at..used.at + used.len, &" ".repeat(used.len));
        }
        let children = self.files.keys().filter(|m| m.len() == module.len() + 1 && m.starts_with(module));
        let starts = ["crate", "super", "self"].into_iter().chain(children.map(|m| m[m.len() - 1]));
        for start in starts {
            for at in words(&rest, start).filter(|at| rest[at + start.len()..].starts_with("::")) {
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                // What stands behind a longer path is a name there; `pub(in path)` says who may see, and imports nothing.
                if !rest[..at].ends_with("::") && !rest[..at].ends_with("(in ") {
                    paths.push(rest[at..].chars().take_while(|c| is_path(*c)).collect());
                }
            }
        }
        paths
    }

    /// The module that a path leads to, and the name behind it.
    fn resolve(&self, from: &Module<'a>, path: &str) -> Option<(Module<'a>, String)> {
        let mut segments = path.split("::").map(str::trim).peekable();
        let mut at: Module<'a> = match *segments.peek()? {
            "crate" => Vec::new(),
            _ => from.clone(),
        };
        let mut relative = true;
        while let Some(first @ ("crate" | "super" | "self")) = segments.peek().copied() {
            if first == "super" {
                at.pop();
            }
            relative = false;
            segments.next();
        }
        let child = |at: &Module<'a>, name: &str| {
            let is = |m: &&Module<'a>| m.len() == at.len() + 1 && m.starts_with(at) && m[at.len()] == name;
            self.files.keys().find(is).cloned()
        };
        if relative && child(&at, segments.peek()?).is_none() {
            return None;
        }
        while let Some(next) = segments.peek().and_then(|name| child(&at, name)) {
            at = next;
            segments.next();
        }
        Some((at, segments.next().unwrap_or_default().to_owned()))
    }
}

/// A `use` of some code.
struct Used<'a> {
    public: bool,
    /// What stands between `use` and `;`.
    tree: &'a str,
    at: usize,
    len: usize,
}

fn statements(code: &str) -> impl Iterator<Item = Used<'_>> {
    words(code, "use").filter_map(|at| {
        let tree = code[at + 3..].split(';').next()?;
        let line = code[..at].rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
        Some(Used { public: line.starts_with("pub"), tree: tree.trim(), at, len: 3 + tree.len() })
    })
}

/// The paths of a `use` tree, one each.
fn expanded(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&body[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expanded).map(|part| format!("{}{part}", prefix.trim())).collect()
}

/// The code without its test modules.
fn without_tests(code: &str) -> String {
    let mut left = String::new();
    let mut rest = code;
    while let Some((before, behind)) = rest.split_once("#[cfg(test)]") {
        left.push_str(before);
        let end = behind.find([';', '{']).unwrap_or(behind.len());
        let end = if behind[end..].starts_with('{') { end + block(&behind[end..]) } else { end };
        rest = behind.get(end..).unwrap_or_default();
    }
    left.push_str(rest);
    left
}

/// The length of a block in braces.
fn block(code: &str) -> usize {
    let mut depth = 0;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    code.len()
}

/// The sets of modules that reach one another, of more than one module each.
fn components<'a>(imports: &BTreeMap<Module<'a>, BTreeSet<Module<'a>>>) -> Vec<Vec<Module<'a>>> {
    let reached: BTreeMap<&Module<'a>, BTreeSet<&Module<'a>>> =
        imports.keys().map(|m| (m, reach(imports, m))).collect();
    let mut seen: BTreeSet<&Module<'a>> = BTreeSet::new();
    let mut found = Vec::new();
    for (module, from) in &reached {
        if seen.contains(module) {
            continue;
        }
        let circle: Vec<&Module<'a>> =
            from.iter().copied().filter(|other| reached.get(other).is_some_and(|back| back.contains(module))).collect();
        seen.extend(circle.iter().copied());
        if circle.len() > 1 {
            found.push(circle.into_iter().cloned().collect());
        }
    }
    found
}

/// Everything that a module imports, directly or not.
fn reach<'a, 'm>(
    imports: &'m BTreeMap<Module<'a>, BTreeSet<Module<'a>>>,
    from: &Module<'a>,
) -> BTreeSet<&'m Module<'a>> {
    let mut reached = BTreeSet::new();
    let mut todo: Vec<&Module<'a>> = imports.get(from).into_iter().flatten().collect();
    while let Some(next) = todo.pop() {
        if reached.insert(next) {
            todo.extend(imports.get(next).into_iter().flatten());
        }
    }
    reached
}
