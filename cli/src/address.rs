//! Where a node's API is, as the command line and the environment say.

use crate::client_tls::TlsAddress;
use crate::failure::CommandFailure;
use std::fmt;
use std::path::Path;
use weir_config::{self as config, Address};

/// Names an API where `--api` does not.
const VARIABLE: &str = "WEIR_API";

/// Where a node's API is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// A socket, or a loopback port.
    Plain(Address),
    /// A port with TLS.
    Tls(TlsAddress),
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Plain(address) => address.fmt(f),
            ApiAddress::Tls(address) => address.fmt(f),
        }
    }
}

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
    let own = |address: Option<ApiAddress>, name: &str| match address {
        None => Ok(None),
        Some(ApiAddress::Plain(address)) => Ok(Some(address)),
        Some(ApiAddress::Tls(_)) => {
            let what = "a node that starts gets TLS by its configuration: write api below [node], and tls below [api]";
            Err(CommandFailure::usage(format_args!("{name}: {what}")))
        }
    };
    Ok(ApiOfUp { option: own(by_option(api, &here)?, "--api")?, default: own(by_environment(&here)?, VARIABLE)? })
}

/// What `--api` says.
///
/// # Errors
/// It is no address.
pub fn by_option(api: Option<&str>, base: &Path) -> Result<Option<ApiAddress>, CommandFailure> {
    api.map(|text| parse(text, base).map_err(|e| CommandFailure::usage(format_args!("--api: {e}")))).transpose()
}

/// What `WEIR_API` says; empty means unset.
///
/// # Errors
/// It is no address.
pub fn by_environment(base: &Path) -> Result<Option<ApiAddress>, CommandFailure> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |e: &dyn std::fmt::Display| CommandFailure::usage(format_args!("{VARIABLE}: {e}"));
    let text = text.to_str().ok_or_else(|| wrong(&"is not UTF-8"))?;
    parse(text, base).map(Some).map_err(|e| wrong(&e))
}

/// `unix:PATH`, a path, `IP:PORT`, `http://IP:PORT`, `https://HOST:PORT`. A path with a colon begins with `/` or `.`.
pub fn parse(text: &str, base: &Path) -> Result<ApiAddress, String> {
    if let Some(rest) = text.strip_prefix("https://") {
        return TlsAddress::parse(rest).map(ApiAddress::Tls);
    }
    if text.starts_with(['/', '.']) || !text.contains(':') {
        return config::address(&format!("unix:{text}"), base).map(ApiAddress::Plain);
    }
    let address = config::address(text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'), base)?;
    match address.beyond_loopback() {
        Some(port) => Err(format!("{port} is not loopback, where nodes answer by TLS alone; use https://{port}")),
        None => Ok(ApiAddress::Plain(address)),
    }
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
            assert_eq!(parse(text, base).unwrap(), ApiAddress::Plain(address), "{text}");
        }
        for (text, host, port, shown) in [
            ("https://weir.example:9400/", "weir.example", 9400, "https://weir.example:9400"),
            ("https://[2001:db8::1]:9400", "2001:db8::1", 9400, "https://[2001:db8::1]:9400"),
            ("https://10.0.0.1", "10.0.0.1", 443, "https://10.0.0.1:443"),
        ] {
            let address = parse(text, base).unwrap();
            assert_eq!(address, ApiAddress::Tls(TlsAddress { host: host.into(), port }), "{text}");
            assert_eq!(address.to_string(), shown);
        }
        for text in ["https://", "https://a b:1", "https://a:port", "https://a:70000"] {
            assert!(parse(text, base).unwrap_err().contains("is not an address like https://"), "{text}");
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
