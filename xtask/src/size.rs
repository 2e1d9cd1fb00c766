//! Long files and long functions want a reason.

use crate::lexer::{line_of, words};
use crate::tree::{File, Finding, Tree};

/// Lines of a file, its test module apart.
const FILE: usize = 600;

/// Lines of a function, from `fn` to its last brace.
const FUNCTION: usize = 70;

/// The remark that gives the reason: in the file's first lines for a file, inside or right above a function for that.
const REASON: &str = "// tidy: long because ";

/// Files and functions that are too long without saying why.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|f| f.is_rust() && !f.is_test()) {
        let lines = code_lines(file);
        let excused = file.text.lines().take(60).any(|l| reason(l) && !l.starts_with(' '));
        if lines > FILE && !excused {
            findings.push(Finding::new(&file.path, 1, format!("{lines} lines; {FILE} without a '{REASON}…'")));
        }
        findings.extend(functions(file, lines));
    }
    findings
}

fn reason(line: &str) -> bool {
    line.trim().strip_prefix(REASON).is_some_and(|why| why.trim().len() >= 10)
}

/// Lines before the file's own test module.
fn code_lines(file: &File) -> usize {
    let lines: Vec<&str> = file.code.lines().collect();
    let tests = lines.windows(2).position(|w| {
        w[0].trim() == "#[cfg(test)]" && w[1].trim_start().starts_with("mod ") && w[1].trim_end().ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

/// The long functions that begin in the first `limit` lines.
fn functions(file: &File, limit: usize) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for at in words(&file.code, "fn") {
        let first = line_of(&file.code, at);
        let Some((name, len)) = extent(&file.code[at..]) else { continue };
        let around = &lines[first.saturating_sub(4)..(first + len).min(lines.len())];
        if first <= limit && len > FUNCTION && !around.iter().any(|l| reason(l)) {
            let message = format!("fn {name} has {len} lines; {FUNCTION} without a '{REASON}…'");
            findings.push(Finding::new(&file.path, first, message));
        }
    }
    findings
}

/// Name and number of lines of the function at the start of `code`; `None` for a type or a declaration.
fn extent(code: &str) -> Option<(&str, usize)> {
    let name = code["fn".len()..].trim_start();
    let name = &name[..name.find(|c: char| !c.is_alphanumeric() && c != '_')?];
    if name.is_empty() {
        return None;
    }
    let mut depth = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            // Before the body a semicolon ends a declaration; in brackets it belongs to an array's type.
            ';' if depth == 0 => return None,
            '{' | '[' | '(' => depth += 1,
            '}' if depth == 1 => return Some((name, line_of(code, at))),
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}
