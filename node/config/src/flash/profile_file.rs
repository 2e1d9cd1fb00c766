//! A profile's file: a drive that says everything about itself.

use super::config::with_keys;
use super::keys::{Keys, refuse};
use super::print;
use crate::document::Document;
use crate::error::ConfigError;
use crate::profile::Profile;
use crate::read::{Section, size, text};
use crate::slots::Slots;
use std::borrow::Cow;
use std::path::Path;
use weir_flash::{FlashDriveConfig, Preset, UNIT};
use weir_units::Bytes;

/// What a profile has to say; the rest has defaults.
const REQUIRED: [&str; 10] =
    ["capacity", "channels", "ways", "planes", "pages", "page_size", "cell", "read", "program", "erase"];

/// A profile in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Which.
    pub profile: Profile,
    /// The drive or the model.
    pub drive: String,
    /// Where its numbers are from.
    pub source: String,
    /// Its own capacity.
    pub capacity: Bytes,
}

impl Profile {
    /// What it is, and where its numbers are from.
    ///
    /// # Errors
    /// As [`Profile::config`].
    pub fn about(&self) -> Result<About, ConfigError> {
        let config = self.config(false)?;
        let (drive, source) = match self {
            Profile::Model(preset) => (preset.title().to_string(), preset.source().to_string()),
            _ => {
                let text = |root: &Section<'_>, key| root.get(key, text).unwrap_or_default();
                self.document()?.read(|root| (text(root, "drive"), text(root, "source")))?
            }
        };
        Ok(About { profile: self.clone(), drive, source, capacity: config.ftl.capacity.unwrap_or_default() })
    }

    /// It as the file of a profile: a drive's own, or one with every number of a model; `quirks` counts for models.
    ///
    /// # Errors
    /// As [`Profile::config`].
    pub fn file(&self, quirks: bool) -> Result<Cow<'static, str>, ConfigError> {
        if let Some(text) = self.text() {
            return Ok(Cow::Borrowed(text));
        }
        let About { drive, source, .. } = self.about()?;
        Ok(Cow::Owned(print::profile_file(&drive, &source, &self.config(quirks)?)))
    }

    /// The commands that it works on at once. A model leaves that open, and so does a file that cannot be read.
    pub fn slots(&self) -> Slots {
        match self {
            Profile::Model(_) => Slots::DEFAULT,
            _ => self.document().and_then(|document| document.read(Slots::read)).unwrap_or(Slots::DEFAULT),
        }
    }

    /// Its numbers; `quirks` counts for models, see [`Preset::parts`].
    ///
    /// # Errors
    /// The file cannot be read, or says what it should not: file, line and key.
    pub fn config(&self, quirks: bool) -> Result<FlashDriveConfig, ConfigError> {
        match self {
            Profile::Model(preset) => Ok(FlashDriveConfig::preset(*preset, quirks)),
            _ => self.document()?.read(read),
        }
    }

    fn document(&self) -> Result<Document, ConfigError> {
        match self {
            Profile::File(path) => Document::load(path),
            _ => Document::parse(self.text().unwrap_or_default(), &format!("profiles/{self}.toml"), Path::new("")),
        }
    }
}

fn read(root: &Section<'_>) -> FlashDriveConfig {
    for key in REQUIRED.into_iter().filter(|key| !root.has(key)) {
        root.fault(key, "missing; a profile has to say it");
    }
    if !root.has("channel_rate") && !root.has("channel_timing") {
        root.fault("channel_rate", "missing; a profile has to say it");
    }
    let capacity = root.get("capacity", size(u64::from(UNIT)..=1 << 56));
    // What it is, for lists.
    for key in ["drive", "source"] {
        root.get(key, text);
    }
    Slots::read(root);
    let keys = Keys { device: root, flash: None };
    // What it does not say is as in the paper's OpenChannel drive, with the usual translation layer and buffer.
    let base = FlashDriveConfig {
        ftl: weir_flash::FtlConfig::DEFAULT,
        buffer: weir_flash::BufferConfig::NONE,
        ..FlashDriveConfig::preset(Preset::FemuOc, false)
    };
    let read = with_keys(&keys, Profile::DEFAULT, base, capacity);
    root.finish();
    if root.sink().is_clean() {
        if let Err(error) = read.config.validate() {
            refuse(&keys, &error);
        }
    }
    read.config
}
