//! What no file may contain, and what every crate begins with.

use crate::tree::{File, Finding, Tree};

/// Endings of the files that people write.
const WRITTEN: [&str; 11] = [".rs", ".toml", ".md", ".sh", ".py", ".yml", ".yaml", ".json", ".txt", ".c", ".h"];

/// Names of servers that packages come from: the machine's own configuration knows them, the project does not.
const REGISTRIES: [&str; 8] = [
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("static.rust-lang", ".org"),
    concat!("pypi", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("proxy.golang", ".org"),
];

/// Folders that exist on somebody's machine only.
const MACHINE: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Notes to self, which belong in an issue.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The one source that the lock file may name besides the workspace itself.
const LOCK_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn written(file: &File) -> bool {
    let script = !file.path.rsplit('/').next().unwrap_or_default().contains('.') && file.text.starts_with("#!");
    script || WRITTEN.iter().any(|end| file.path.ends_with(end))
}

/// Everything about lines of text.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        if file.path == "Cargo.lock" {
            findings.extend(lock(file));
        } else if written(file) {
            findings.extend(lines(file));
            findings.extend(crate_docs(file));
        }
    }
    findings
}

fn lines(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |line: usize, message: String| findings.push(Finding::new(&file.path, line, message));
    for (i, line) in file.text.split('\n').enumerate() {
        if line.contains('\t') {
            say(i + 1, "a tab".into());
        }
        if line.ends_with([' ', '\r']) {
            say(i + 1, "white space at the end of the line".into());
        }
        for host in REGISTRIES.iter().filter(|host| line.contains(**host)) {
            say(i + 1, format!("names the registry {host}"));
        }
        for folder in MACHINE.iter().filter(|folder| absolute(line, folder)) {
            say(i + 1, format!("a path of one machine ({folder}…)"));
        }
        for note in NOTES.iter().filter(|note| crate::lexer::words(line, note).next().is_some()) {
            say(i + 1, format!("{note}: say it in an issue"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        say(file.text.lines().count(), "no line break at the end of the file".into());
    }
    findings
}

/// Whether `folder` stands in `line` as the beginning of a path, not inside a longer one.
fn absolute(line: &str, folder: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '*' | '"' | '>');
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        // A closing quote before it means "$VAR"/folder/, an opening one the path itself.
        let quote = before == Some('"') && line[..at].matches('"').count() % 2 == 1;
        quote || !before.is_some_and(inside)
    })
}

/// A crate's first lines say what it is for.
fn crate_docs(file: &File) -> Option<Finding> {
    let root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
    if !root {
        return None;
    }
    let first = file.text.lines().find(|l| !l.trim().is_empty() && !l.starts_with("#!["));
    let text = first.and_then(|l| l.strip_prefix("//!")).map(str::trim);
    match text {
        Some(text) if text.len() >= 10 && !text.contains("placeholder") => None,
        _ => Some(Finding::new(&file.path, 1, "the crate's first lines do not say what it is for (//! …)")),
    }
}

/// Packages from a mirror would tie the project to one machine's configuration.
fn lock(file: &File) -> impl Iterator<Item = Finding> + '_ {
    file.text.lines().enumerate().filter_map(|(i, line)| {
        let source = line.strip_prefix("source = \"")?.trim_end_matches('"');
        (source != LOCK_SOURCE).then(|| Finding::new(&file.path, i + 1, format!("a package from {source}")))
    })
}
