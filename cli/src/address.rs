//! Where a node's API is, as the command line and the environment say.

use crate::failure::CommandFailure;
use std::path::Path;
use weir_config::{self as config, Address};

/// Names an API where `--api` does not.
const VARIABLE: &str = "WEIR_API";

/// Where the API of a node that starts is to be.
#[derive(Clone, Debug, Default)]
pub struct ApiOfUp {
    /// By `--api`: there and nowhere else.
    pub option: Option<Address>,
    /// By `WEIR_API`: there, where the configuration does not say.
    pub default: Option<Address>,
}

/// What `weir up` is told.
///
/// # Errors
/// An address that is none, or a node's name: there is no node yet that could be chosen by it.
pub fn of_up(api: Option<&str>, node: Option<&str>) -> Result<ApiOfUp, CommandFailure> {
    if node.is_some() {
        let what = "--node: chooses among nodes that run; write name = \"NAME\" below [node] of the configuration";
        return Err(CommandFailure::usage(what));
    }
    // Other processes and the registry have other folders.
    let here = std::env::current_dir().map_err(|e| CommandFailure::new(format_args!("the current folder: {e}")))?;
    Ok(ApiOfUp { option: by_option(api, &here)?, default: by_environment(&here)? })
}

/// What `--api` says.
///
/// # Errors
/// It is no address.
pub fn by_option(api: Option<&str>, base: &Path) -> Result<Option<Address>, CommandFailure> {
    api.map(|text| parse(text, base).map_err(|e| CommandFailure::usage(format_args!("--api: {e}")))).transpose()
}

/// What `WEIR_API` says; empty means unset.
///
/// # Errors
/// It is no address.
pub fn by_environment(base: &Path) -> Result<Option<Address>, CommandFailure> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |e: &dyn std::fmt::Display| CommandFailure::usage(format_args!("{VARIABLE}: {e}"));
    let text = text.to_str().ok_or_else(|| wrong(&"is not UTF-8"))?;
    parse(text, base).map(Some).map_err(|e| wrong(&e))
}

/// `unix:PATH`, a path, `IP:PORT`, `http://IP:PORT`. A path with a colon begins with `/` or `.`.
pub fn parse(text: &str, base: &Path) -> Result<Address, String> {
    if text.starts_with(['/', '.']) || !text.contains(':') {
        return config::address(&format!("unix:{text}"), base);
    }
    config::address(text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'), base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_the_help_offers() {
        let base = Path::new("/base");
        for (text, address) in [
            ("/run/weir/weir.sock", Address::Unix("/run/weir/weir.sock".into())),
            ("/a:b/weir.sock", Address::Unix("/a:b/weir.sock".into())),
            ("unix:x.sock", Address::Unix("/base/x.sock".into())),
            ("./x.sock", Address::Unix("/base/./x.sock".into())),
            ("x.sock", Address::Unix("/base/x.sock".into())),
            ("http://127.0.0.1:9400/", Address::Tcp("127.0.0.1:9400".parse().unwrap())),
            ("[::1]:9400", Address::Tcp("[::1]:9400".parse().unwrap())),
        ] {
            assert_eq!(parse(text, base).unwrap(), address, "{text}");
        }
        assert!(parse("localhost:9400", base).unwrap_err().contains("is not an address like"));
        assert!(parse("10.0.0.1:9400", base).unwrap_err().contains("is not loopback"));
        assert!(parse("", base).unwrap_err().contains("is no path of a socket"));
    }

    #[test]
    fn a_node_that_starts_is_not_chosen_by_name() {
        assert!(of_up(None, Some("n1")).unwrap_err().text().starts_with("--node: "));
        let api = of_up(Some("weir.sock"), None).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            api.option,
            Some(Address::Unix(here.join("weir.sock"))),
            "a path of its own, not one of the reader's"
        );
    }
}
