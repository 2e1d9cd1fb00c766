//! `weir config`: check a file, or print it with every default.

use crate::args;
use crate::failure::Failure;
use crate::output;
use std::path::Path;
use weir_node::config::{Config, runtime_dir};

pub fn run(args: &args::Config, json: bool) -> Result<(), Failure> {
    if args.default {
        return output::text(&Config::builtin_toml(&runtime_dir()));
    }
    let config = load(args.config.as_deref())?;
    match (args.check, json) {
        (true, true) => output::json(&serde_json::json!({ "ok": true })),
        (true, false) => Ok(()),
        (false, true) => Err(Failure::usage("config: prints TOML; leave --json out, or add --check")),
        (false, false) => output::text(&config.to_toml()),
    }
}

/// A file, or the built-in default.
pub fn load(file: Option<&Path>) -> Result<Config, Failure> {
    match file {
        Some(file) => Ok(Config::load(file)?),
        None => Ok(Config::builtin(&runtime_dir())?),
    }
}
