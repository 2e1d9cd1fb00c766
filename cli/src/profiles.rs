//! `weir device profiles`: the flash drives and models that can be named.

use crate::failure::CommandFailure;
use crate::output::{self, Table};
use serde::Serialize;
use weir_config::Profile;
use weir_config::profile::About;

#[derive(Serialize)]
struct Entry {
    name: String,
    kind: &'static str,
    drive: String,
    capacity_bytes: u64,
    source: String,
}

/// Lists them, or prints one as the file of a profile.
///
/// # Errors
/// There is none of that name.
pub fn run(name: Option<&str>, quirks: bool, json: bool) -> Result<(), CommandFailure> {
    match name {
        Some(name) => print(name, quirks, json),
        None => list(json),
    }
}

fn entry(profile: &Profile) -> Result<Entry, CommandFailure> {
    let About { drive, source, capacity, .. } = profile.about().map_err(CommandFailure::new)?;
    let kind = if matches!(profile, Profile::Model(_)) { "model" } else { "drive" };
    Ok(Entry { name: profile.to_string(), kind, drive, capacity_bytes: capacity.0, source })
}

fn list(json: bool) -> Result<(), CommandFailure> {
    let entries = Profile::all().map(|profile| entry(&profile)).collect::<Result<Vec<_>, _>>()?;
    if json {
        return output::json(&entries);
    }
    let mut table = Table::new(&["NAME", "KIND", ">GB", "DRIVE", "SOURCE"]);
    for Entry { name, kind, drive, capacity_bytes, source } in entries {
        table.row([name, kind.into(), format!("{:.0}", capacity_bytes as f64 / 1e9), drive, source]);
    }
    output::text(&table.render())
}

fn print(name: &str, quirks: bool, json: bool) -> Result<(), CommandFailure> {
    let Some(profile) = Profile::named(name) else {
        let known: Vec<String> = Profile::all().map(|profile| profile.to_string()).collect();
        return Err(CommandFailure::usage(format_args!(
            "device profiles: there is no {name:?}; there is {}",
            known.join(", ")
        )));
    };
    if json {
        return output::json(&entry(&profile)?);
    }
    if quirks && profile.text().is_some() {
        return Err(CommandFailure::usage(format_args!(
            "device profiles: {name} is a drive and no emulator; leave --quirks out"
        )));
    }
    output::text(&profile.file(quirks).map_err(CommandFailure::new)?)
}
