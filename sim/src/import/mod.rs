//! Configurations of other emulators, read as they are: MQSim's XML, the options of FEMU's device, NVMeVirt's header.
//!
//! ```text
//! their files ─► mqsim | femu | nvmevirt ─► Draft (keys, jobs, what is left out) ─► TOML ─► Document ─► Scenario
//! ```
//! The TOML is an ordinary configuration on top of the model's profile, so that what a file leaves open is as the emulator has it. What has no
//! counterpart is listed with its line and the reason; nothing is dropped in silence.

mod femu;
mod macros;
mod mqsim;
mod nvmevirt;
mod workload;

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Whose files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulator {
    /// MQSim: `ssdconfig.xml`, and a workload's XML.
    Mqsim,
    /// FEMU: a run script, or its `-device femu,…`.
    Femu,
    /// NVMeVirt: `ssd_config.h`.
    Nvmevirt,
}

impl Emulator {
    /// All of them, by name.
    pub const ALL: [(&'static str, Emulator); 3] =
        [("mqsim", Emulator::Mqsim), ("femu", Emulator::Femu), ("nvmevirt", Emulator::Nvmevirt)];
}

impl FromStr for Emulator {
    type Err = String;

    fn from_str(text: &str) -> Result<Emulator, String> {
        let found = Emulator::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, emulator)| emulator);
        found
            .ok_or_else(|| format!("\"{text}\" is no emulator whose files can be read; there is mqsim, femu, nvmevirt"))
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A configuration for `weir sim`.
    pub toml: String,
    /// What has no counterpart, a line each: file, line, what, why.
    pub left_out: Vec<String>,
}

/// Why files cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    file: String,
    line: u32,
    what: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for ImportError {}

/// Characters of a message.
const MAX_FAULT: usize = 400;

/// A larger file is no configuration.
const MAX_FILE: u64 = 1 << 20;

/// Reads an emulator's files.
///
/// # Errors
/// A file cannot be read or is none of the emulator's, or a value is no value; file and line.
pub fn import(emulator: Emulator, files: &[PathBuf]) -> Result<Imported, ImportError> {
    let mut texts = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let shown = file.display().to_string();
        texts.push(match (emulator, at) {
            (Emulator::Nvmevirt, 1) => Text { text: shown.clone(), file: shown },
            (Emulator::Femu, 0) => Text::load_or_take(file)?,
            (Emulator::Mqsim, 0 | 1) | (Emulator::Nvmevirt, 0) => Text::load(file)?,
            _ => return Err(too_many(shown)),
        });
    }
    Ok(read(emulator, &texts)?.done(files))
}

/// Reads an emulator's files whose names and texts are at hand. NVMeVirt's second text is the name of an SSD.
///
/// # Errors
/// As [`import`].
pub fn import_texts(emulator: Emulator, texts: &[(&str, &str)]) -> Result<Imported, ImportError> {
    let owned = |(file, text): &(&str, &str)| Text { file: file.to_string(), text: text.to_string() };
    let names: Vec<PathBuf> = texts.iter().map(|(file, _)| file.into()).collect();
    Ok(read(emulator, &texts.iter().map(owned).collect::<Vec<_>>())?.done(&names))
}

fn read(emulator: Emulator, texts: &[Text]) -> Result<Draft, ImportError> {
    let [first, rest @ ..] = texts else {
        return Err(ImportError { file: "import".to_string(), line: 0, what: "no file is named".to_string() });
    };
    match (emulator, rest) {
        (Emulator::Mqsim, []) => mqsim::read(first, None),
        (Emulator::Mqsim, [workload]) => mqsim::read(first, Some(workload)),
        (Emulator::Femu, []) => femu::read(first),
        (Emulator::Nvmevirt, []) => nvmevirt::read(first, None),
        (Emulator::Nvmevirt, [base]) => nvmevirt::read(first, Some(&base.text)),
        (_, [.., last]) => Err(too_many(last.file.clone())),
    }
}

fn too_many(file: String) -> ImportError {
    let what =
        "one file too many; mqsim takes a configuration and a workload, nvmevirt a header and the name of an SSD";
    ImportError { file, line: 0, what: what.to_string() }
}

/// A file's text under its name.
struct Text {
    file: String,
    text: String,
}

impl Text {
    fn load(file: &Path) -> Result<Text, ImportError> {
        let shown = file.display().to_string();
        let fail = |what: String| ImportError { file: shown.clone(), line: 0, what };
        let size = std::fs::metadata(file).map_err(|e| fail(format!("cannot be read: {e}")))?.len();
        if size > MAX_FILE {
            return Err(fail(format!("{size} bytes; a configuration has at most {MAX_FILE}")));
        }
        let text = std::fs::read_to_string(file).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Ok(Text { file: shown, text })
    }

    /// Options may stand on the command line themselves.
    fn load_or_take(file: &Path) -> Result<Text, ImportError> {
        match file.to_str() {
            Some(text) if text.contains('=') && !file.exists() => {
                Ok(Text { file: "options".to_string(), text: text.to_string() })
            }
            _ => Text::load(file),
        }
    }

    fn fault(&self, line: u32, what: impl fmt::Display) -> ImportError {
        // One line that can be read, whatever a file has in it.
        let what = what.to_string().chars().take(MAX_FAULT).map(|c| if c.is_control() { ' ' } else { c }).collect();
        ImportError { file: self.file.clone(), line, what }
    }
}

/// A value, and where it was written.
#[derive(Clone, Debug)]
struct Given {
    line: u32,
    text: String,
}

/// A configuration in the making.
#[derive(Default)]
struct Draft {
    root: Vec<(&'static str, String)>,
    device: Vec<(&'static str, String)>,
    flash: Vec<(&'static str, String)>,
    jobs: Vec<Vec<(&'static str, String)>>,
    left_out: Vec<String>,
}

impl Draft {
    /// On top of a model's profile, as its code has it.
    fn new(profile: &str) -> Draft {
        let mut draft = Draft::default();
        draft.device.push(("name", quoted(profile.split('-').next().unwrap_or(profile))));
        draft.device.push(("profile", quoted(profile)));
        draft.flash.push(("quirks", "true".to_string()));
        draft
    }

    fn leave(&mut self, from: &Text, key: &str, given: &Given, why: &str) {
        let Given { line, text } = given;
        let shown =
            |text: &str| -> String { text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect() };
        let place = if *line == 0 { from.file.clone() } else { format!("{}:{line}", from.file) };
        self.left_out.push(format!("{place}: {} = {}: {why}", shown(key), shown(text)));
    }

    fn done(self, files: &[PathBuf]) -> Imported {
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
fn quoted(text: impl fmt::Display) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.to_string().chars().map(escaped).collect::<String>())
}

/// Times in nanoseconds, one for each level of a cell.
fn times(nanos: &[u64]) -> String {
    format!("[{}]", nanos.iter().map(|n| quoted(format_args!("{n}ns"))).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
