//! Configurations of other emulators, read as they are: MQSim's XML, the options of FEMU's device, NVMeVirt's header.
//!
//! ```text
//! their files ─► mqsim | femu | nvmevirt ─► Draft (keys, jobs, what is left out) ─► TOML ─► Document ─► Scenario
//! ```
//! The TOML is an ordinary configuration on top of the model's profile, so that what a file leaves open is as the emulator has it. What has no
//! counterpart is listed with its line and the reason; nothing is dropped in silence.

mod draft;
mod femu;
mod mqsim;
mod nvmevirt;
mod text;

pub use draft::Imported;
pub use text::ImportError;

use draft::Draft;
use std::path::PathBuf;
use std::str::FromStr;
use text::Text;

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
            _ => return Err(too_many(&shown)),
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
        return Err(ImportError::of_file("import", "no file is named"));
    };
    match (emulator, rest) {
        (Emulator::Mqsim, []) => mqsim::read(first, None),
        (Emulator::Mqsim, [workload]) => mqsim::read(first, Some(workload)),
        (Emulator::Femu, []) => femu::read(first),
        (Emulator::Nvmevirt, []) => nvmevirt::read(first, None),
        (Emulator::Nvmevirt, [base]) => nvmevirt::read(first, Some(&base.text)),
        (_, [.., last]) => Err(too_many(&last.file)),
    }
}

fn too_many(file: &str) -> ImportError {
    let what =
        "one file too many; mqsim takes a configuration and a workload, nvmevirt a header and the name of an SSD";
    ImportError::of_file(file, what)
}

#[cfg(test)]
mod tests;
