//! A configuration in the making, and its TOML.

use super::text::{Given, Text};
use std::fmt::{self, Write};
use std::path::PathBuf;

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A configuration for `weir sim`.
    pub toml: String,
    /// What has no counterpart, a line each: file, line, what, why.
    pub left_out: Vec<String>,
}

/// A configuration in the making.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) root: Vec<(&'static str, String)>,
    pub(super) device: Vec<(&'static str, String)>,
    pub(super) flash: Vec<(&'static str, String)>,
    pub(super) jobs: Vec<Vec<(&'static str, String)>>,
    pub(super) left_out: Vec<String>,
}

impl Draft {
    /// On top of a model's profile, as its code has it.
    pub(super) fn new(profile: &str) -> Draft {
        let mut draft = Draft::default();
        draft.device.push(("name", quoted(profile.split('-').next().unwrap_or(profile))));
        draft.device.push(("profile", quoted(profile)));
        draft.flash.push(("quirks", "true".to_string()));
        draft
    }

    pub(super) fn leave(&mut self, from: &Text, key: &str, given: &Given, why: &str) {
        let Given { line, text } = given;
        let shown =
            |text: &str| -> String { text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect() };
        let place = if *line == 0 { from.file.clone() } else { format!("{}:{line}", from.file) };
        self.left_out.push(format!("{place}: {} = {}: {why}", shown(key), shown(text)));
    }

    pub(super) fn done(self, files: &[PathBuf]) -> Imported {
        let mut out = String::new();
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        line(&mut out, &format!("# From {}.", names.join(", ")));
        if !self.left_out.is_empty() {
            line(&mut out, "# Not taken over:");
        }
        for left in &self.left_out {
            line(&mut out, &format!("#   {left}"));
        }
        table(&mut out, "", &self.root);
        table(&mut out, "\n[[device]]", &self.device);
        table(&mut out, "\n[device.flash]", &self.flash);
        for job in &self.jobs {
            table(&mut out, "\n[[job]]", job);
        }
        Imported { toml: out, left_out: self.left_out }
    }
}

fn line(out: &mut String, text: &str) {
    // A name with a line break must not begin a line of its own.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    writeln!(out, "{text}").expect("writing to a String does not fail");
}

fn table(out: &mut String, head: &str, keys: &[(&'static str, String)]) {
    if keys.is_empty() {
        return;
    }
    out.push_str(head);
    out.push('\n');
    for (key, value) in keys {
        line(out, &format!("{key} = {value}"));
    }
}

/// As a TOML string.
pub(super) fn quoted(text: impl fmt::Display) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.to_string().chars().map(escaped).collect::<String>())
}

/// Times in nanoseconds, one for each level of a cell.
pub(super) fn times(nanos: &[u64]) -> String {
    format!("[{}]", nanos.iter().map(|n| quoted(format_args!("{n}ns"))).collect::<Vec<_>>().join(", "))
}
