//! `weir config`: check a file, or print it with every default.

use crate::args;
use crate::failure::CommandFailure;
use crate::output;
use std::path::Path;
use weir_config::{Address, Config, notes, runtime_dir};

pub fn run(args: &args::ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    if args.default {
        return output::text(&Config::builtin_toml(&runtime_dir()));
    }
    if args.schema {
        return output::json(&crate::config_schema::schema());
    }
    let config = load(args.config.as_deref())?;
    match (args.check, json) {
        (true, true) => output::json(&serde_json::json!({ "ok": true, "notes": notes(&config) })),
        (true, false) => output::text(&notes(&config).into_iter().map(|note| note + "\n").collect::<String>()),
        (false, true) => Err(CommandFailure::usage("config: prints TOML; leave --json out, or add --check")),
        (false, false) => output::text(&config.to_toml()),
    }
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
