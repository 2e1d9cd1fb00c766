//! `weir config`: check a file, or print it with every default.

use crate::args;
use crate::failure::CommandFailure;
use crate::output;
use std::path::Path;
use weir_config::{Address, Config, MediaConfig, notes, runtime_dir};

pub fn run(args: &args::ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    if args.default {
        return output::text(&Config::builtin_toml(&runtime_dir()));
    }
    if args.schema {
        return output::json(&crate::config_schema::schema());
    }
    let config = load(args.config.as_deref())?;
    match (args.check, json) {
        (true, true) => output::json(&serde_json::json!({ "ok": true, "notes": checked(&config) })),
        (true, false) => {
            let file = args.config.as_deref().map_or("the built-in default".into(), |file| file.display().to_string());
            output::text(&format!("{file}: OK, {}\n{}", contents(&config), lines(&checked(&config))))
        }
        (false, true) => Err(CommandFailure::usage("config: prints TOML; leave --json out, or add --check")),
        (false, false) => output::text(&config.to_toml()),
    }
}

fn lines(notes: &[String]) -> String {
    notes.iter().map(|note| format!("{note}\n")).collect()
}

/// `1 drive, 2 tenants, 1 export`; pools and volumes where there are some.
fn contents(config: &Config) -> String {
    let counts = [
        ("drive", config.devices.len(), true),
        ("tenant", config.tenants.len(), true),
        ("export", config.exports.len(), true),
        ("pool", config.pools.len(), false),
        ("volume", config.volumes.len(), false),
    ];
    let shown = counts.iter().filter(|(_, n, always)| *always || *n > 0);
    shown.map(|(what, n, _)| format!("{n} {what}{}", if *n == 1 { "" } else { "s" })).collect::<Vec<_>>().join(", ")
}

/// Notes of the configuration, and folders that are missing on this machine: the file may be for another one.
fn checked(config: &Config) -> Vec<String> {
    let missing = config.devices.iter().filter_map(|device| {
        let MediaConfig::File(path) = &device.media else { return None };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
        let (name, path, folder) = (&device.name, path.display(), folder.display());
        Some(format!("device.{name}: media {path}: there is no folder {folder} here; make it before the node starts (mkdir -p {folder})"))
    });
    notes(config).into_iter().chain(missing).collect()
}

/// A file, or the built-in default.
pub fn load(file: Option<&Path>) -> Result<Config, CommandFailure> {
    load_with(file, None)
}

/// The same; the API is at `api` where the file does not say.
pub fn load_with(file: Option<&Path>, api: Option<Address>) -> Result<Config, CommandFailure> {
    let Some(file) = file else {
        let mut config = Config::builtin(&runtime_dir())?;
        if let Some(api) = api {
            config.node.api = vec![api];
        }
        return Ok(config);
    };
    Ok(Config::load(file, api)?)
}
