//! The node that `weir up` starts when nobody says otherwise.

use super::config::Config;
use super::error::ConfigError;
use super::toml_text::escaped;
use std::path::Path;

/// The text behind [`Config::builtin`]; `@RUN@` is the runtime folder.
const BUILTIN: &str = include_str!("builtin.toml");

/// The text behind [`Config::store_on_one_machine`]; `@FOLDER@` is where its files are.
const STORE: &str = include_str!("store.toml");

impl Config {
    /// A store of files on one machine: a RAM drive, a drive in a file of `folder`, both exported over NVMe/TCP on loopback, and a
    /// metadata service in `folder`. Fails only where a path is too long for a socket.
    pub fn store_on_one_machine(folder: &Path, runtime: &Path) -> Result<Config, ConfigError> {
        let path = |path: &Path| escaped(&path.display().to_string());
        let text = STORE.replace("@RUN@", &path(runtime)).replace("@FOLDER@", &path(folder));
        Config::parse(&text, "(--store)", folder)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_on_one_machine_is_a_configuration() {
        let config =
            Config::store_on_one_machine(Path::new("/a \\ \"b\""), Path::new("/run/weir")).expect("it is whole");
        let store = config.store.as_ref().expect("a store");
        assert_eq!((store.donate.len(), config.devices.len(), config.exports.len()), (2, 2, 2));
        let again = Config::parse(&config.to_toml(), "printed", Path::new("/")).expect("what is printed is read");
        assert_eq!(again.to_toml(), config.to_toml());
    }
}
