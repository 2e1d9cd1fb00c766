//! The node that `weir up` starts when nobody says otherwise.

use super::config::Config;
use super::error::ConfigError;
use super::toml_text::escaped;
use std::path::Path;

/// The text behind [`Config::builtin`]; `@RUN@` is the runtime folder.
const BUILTIN: &str = include_str!("builtin.toml");

impl Config {
    /// One 1 GiB RAM drive shared by gold, silver and bronze (high, medium, low), its sockets in `runtime`.
    /// Fails only where that folder's path is too long for a socket.
    pub fn builtin(runtime: &Path) -> Result<Config, ConfigError> {
        Config::parse(&Config::builtin_toml(runtime), "(built-in default)", runtime)
    }

    /// The same as text, with comments, to start a configuration of one's own from.
    pub fn builtin_toml(runtime: &Path) -> String {
        BUILTIN.replace("@RUN@", &escaped(&runtime.display().to_string()))
    }
}
