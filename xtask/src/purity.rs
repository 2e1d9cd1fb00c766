//! Where `std` and `unsafe` may be.

use crate::lexer::{line_of, words};
use crate::tree::{Finding, Tree};

/// The folders whose code may be unsafe.
const UNSAFE: [&str; 2] = ["sys/", "bindings/"];

/// What the root of every crate in spec and core says.
const PURE: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];

fn pure_root(path: &str) -> bool {
    path == "spec/src/lib.rs"
        || (path.starts_with("core/") && path.ends_with("/src/lib.rs") && path.split('/').count() == 4)
}

/// Crate roots that do not give up `std` and unsafe code, and unsafe code where none belongs.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|f| f.is_rust()) {
        if pure_root(&file.path) {
            for attribute in PURE {
                if !file.code.lines().any(|l| l.trim() == attribute) {
                    findings.push(Finding::new(&file.path, 1, format!("wants {attribute}")));
                }
            }
        }
        let pure =
            file.path.starts_with("spec/src/") || (file.path.starts_with("core/") && file.path.contains("/src/"));
        if pure && !file.is_test() {
            findings.extend(extern_std(&file.path, &file.code));
        }
        if !UNSAFE.iter().any(|folder| file.path.starts_with(folder)) {
            for at in words(&file.code, "unsafe") {
                findings.push(Finding::new(&file.path, line_of(&file.code, at), "unsafe outside sys/ and bindings/"));
            }
        }
    }
    findings
}

/// `extern crate std` brings back what `no_std` gave up, unless it is there for tests.
fn extern_std<'a>(path: &'a str, code: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let lines: Vec<&str> = code.lines().collect();
    (0..lines.len()).filter_map(move |i| {
        let test = i > 0 && lines[i - 1].trim() == "#[cfg(test)]";
        let brings = lines[i].trim().starts_with("extern crate std");
        (brings && !test).then(|| Finding::new(path, i + 1, "extern crate std outside #[cfg(test)]"))
    })
}
