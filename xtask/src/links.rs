//! Links between documents, and the layout tables of `docs/reference/formats.md`.

use crate::tree::{File, Finding, Tree};

/// Links that lead nowhere and tables with holes.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|f| f.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            if let Some(message) = broken(tree, file, &target) {
                findings.push(Finding::new(&file.path, line, message));
            }
        }
        if file.path.ends_with("formats.md") {
            findings.extend(layouts(file));
        }
    }
    findings
}

/// Lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((i + 1, line))
    })
}

/// `[text](target)` outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let plain: String = line.split('`').enumerate().map(|(i, s)| if i % 2 == 0 { s } else { "code" }).collect();
        let mut rest = plain.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split(' ').next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
    }
    found
}

fn broken(tree: &Tree, from: &File, target: &str) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|s| target.starts_with(s)) {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.path.clone() } else { resolve(&from.path, path) };
    if !tree.exists(&path) {
        return Some(format!("the link {target} leads nowhere"));
    }
    if !anchor.is_empty() && path.ends_with(".md") {
        let known = tree.get(&path).is_some_and(|f| headings(&f.text).any(|h| h == anchor));
        return (!known).then(|| format!("{path} has no heading #{anchor}"));
    }
    None
}

/// `target` as seen from the folder of `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that a document's headings make: lower case, spaces as hyphens, other signs dropped.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let heading = title.len() < line.len() && title.starts_with(' ');
        heading.then(|| {
            let title = title.trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
    })
}

/// A table whose first two columns are `offset` and `size` describes a layout: rows follow one another without a gap.
fn layouts(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut end: Option<u64> = None;
    let mut layout = false;
    for (number, line) in prose(&file.text) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.trim_start().starts_with('|') {
            (layout, end) = (false, None);
        } else if cells.len() >= 2 && cells[0].eq_ignore_ascii_case("offset") && cells[1].eq_ignore_ascii_case("size") {
            (layout, end) = (true, None);
        } else if layout && !cells[0].starts_with(['-', ':']) {
            let (Some(offset), size) = (integer(cells[0]), cells.get(1).and_then(|c| integer(c))) else {
                findings.push(Finding::new(&file.path, number, format!("'{}' is not an offset", cells[0])));
                continue;
            };
            if end.is_some_and(|end| end != offset) {
                let message =
                    format!("offset {offset} after {} bytes: rows follow one another", end.unwrap_or_default());
                findings.push(Finding::new(&file.path, number, message));
            }
            // A row of varying size (`n`, `…`) may only be the last but for others that say where they begin.
            end = size.map(|size| offset + size);
        }
    }
    findings
}

fn integer(cell: &str) -> Option<u64> {
    let cell = cell.trim_matches('`');
    match cell.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => cell.parse().ok(),
    }
}
