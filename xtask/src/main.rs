//! Repository checks that neither the compiler nor clippy makes: `cargo run -p xtask -- tidy`. And packages: [`dist`].
//!
//! Reads the files that git knows (and new ones that it does not ignore) once and runs every check over them in memory;
//! nothing is built. A finding is one line, `file:line: what is wrong`, and one finding is exit status 1.
//!
//! | check | holds |
//! |---|---|
//! | [`arrows`] | `cli -> sim -> node -> sys -> core -> spec`; spec and core depend on nothing that brings in `std` |
//! | [`circles`] | at most three files import one another in a circle, in the crates that it lists |
//! | [`purity`] | `#![no_std]` and `#![forbid(unsafe_code)]` in spec and core, `unsafe` in sys and bindings only |
//! | [`size`] | files up to 600 lines and functions up to 70 (tests apart), or a `// tidy: long because …` |
//! | [`text`] | crate docs, no tabs, no trailing spaces, no notes to self, no names of machines, registries or homes |
//! | [`names`] | at most two modules give one name to a public type |
//! | [`links`] | links between documents resolve, headings included; layout tables have no holes |

mod arrows;
mod circles;
mod dist;
mod lexer;
mod links;
mod names;
mod purity;
mod size;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use tree::{Finding, Tree};

/// Reads the tree, tells what is wrong.
type Check = fn(&Tree) -> Vec<Finding>;

/// Every check and its name.
const CHECKS: [(&str, Check); 7] = [
    ("arrows", arrows::check),
    ("circles", circles::check),
    ("purity", purity::check),
    ("size", size::check),
    ("text", text::check),
    ("names", names::check),
    ("links", links::check),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match args.split_first() {
        Some((command, [])) if command == "tidy" => tidy_tree(root),
        Some((command, rest)) if command == "dist" => ExitCode::from(dist::main(root, rest)),
        _ => {
            eprintln!("usage: cargo xtask tidy | dist [ARGUMENTS]");
            ExitCode::from(2)
        }
    }
}

fn tidy_tree(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(message) => {
            eprintln!("tidy: {message}");
            return ExitCode::FAILURE;
        }
    };
    let findings = tidy(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", tree.files().len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All findings, by file and line.
fn tidy(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS
        .iter()
        .flat_map(|(name, check)| {
            check(tree).into_iter().map(move |mut f| {
                f.check = name;
                f
            })
        })
        .collect();
    findings.sort();
    findings
}
