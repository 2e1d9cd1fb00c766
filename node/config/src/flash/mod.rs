//! `[device.flash]`: what is inside a flash drive.
//!
//! A profile gives every number, keys change some of them. Keys may stand in `[[device]]` itself as well, where a bench
//! target's query and `--set device.gc=plane` have them.

mod config;
mod detail;
mod keys;
mod levels;
mod print;
mod profile_file;
mod resize;

pub(crate) use config::library_path;
pub use config::{FlashConfig, PolicyConfig};
pub(super) use print::write;
pub use profile_file::About;
pub use resize::resized;
pub(super) use resize::shrink;

use super::error::ConfigError;
use super::profile::Profile;
use super::read::{Section, flag, text};
use config::with_keys;
use keys::{KEYS, Keys, refuse};
use std::path::Path;
use weir_flash::{FlashDriveConfig, Preset};
use weir_units::Bytes;

/// The profile and its numbers.
fn base(section: &Section<'_>, base: &Path, quirks: bool) -> Option<(Profile, FlashDriveConfig)> {
    let profile = section.get("profile", |v| Ok(Profile::parse(&text(v)?, base)?))?;
    match profile.config(quirks) {
        Ok(config) => Some((profile, config)),
        Err(ConfigError(problems)) => {
            // In the profile's own file, or about it.
            let (inside, about): (Vec<_>, Vec<_>) = problems.into_iter().partition(|problem| problem.line > 0);
            about.into_iter().for_each(|problem| section.fault("profile", problem));
            section.sink().adopt(inside);
            None
        }
    }
}

/// Reads `profile`, `kind = "flash"` and the flash's keys; `None` for a drive that is none. `capacity` is `[[device]]`'s,
/// `folder` where a profile's file is looked for.
pub(super) fn read(
    section: &Section<'_>,
    is_flash: bool,
    capacity: Option<Bytes>,
    folder: &Path,
) -> Option<FlashConfig> {
    let table = section.table("flash").map(|(line, keys)| section.inner(section.key("flash"), line, keys));
    for (key, _) in KEYS {
        section.unoffer(key);
    }
    if section.line() == 0 {
        // A query has no tables.
        section.unoffer("flash");
    }
    if !(is_flash || section.has("profile") || table.is_some()) {
        for (key, _) in KEYS.into_iter().filter(|(key, _)| section.has(key)) {
            section.fault(key, "only a flash drive has this; write kind = \"flash\" as well");
        }
        return None;
    }
    let keys = Keys { device: section, flash: table };
    for (key, _) in KEYS.into_iter().filter(|(key, _)| section.has(key)) {
        if keys.flash.as_ref().is_some_and(|flash| flash.has(key)) {
            section.fault(key, "stands in [device.flash] as well; keep one");
        }
    }
    let quirks = keys.get("quirks", flag).unwrap_or(false);
    let default = || FlashDriveConfig::preset(Preset::FemuBbssd, quirks);
    let (profile, base) = base(section, folder, quirks).unwrap_or_else(|| (Profile::DEFAULT, default()));
    let flash = with_keys(&keys, profile, base, capacity);
    if let Some(table) = &keys.flash {
        table.finish();
    }
    // Without a translation layer only the flash itself has to be right: `open_channel` checks that.
    if section.sink().is_clean() && !section.has("open_channel") {
        if let Err(error) = flash.config.validate() {
            refuse(&keys, &error);
        }
    }
    Some(flash)
}

#[cfg(test)]
mod tests;
