//! `[api]`: who may use the control API over TCP, and its certificate.

use super::node::Address;
use super::read::{Section, file, word};
use super::value::Entry;
use super::word_enum::word_enum;
use std::path::{Path, PathBuf};

/// More tokens than a node has people and programs.
const MOST_TOKENS: usize = 64;

/// The control API beyond where it listens, which [`NodeConfig::api`](super::NodeConfig::api) says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiConfig {
    /// Who may use it over TCP. Without any, everybody on the machine may read, and nobody may change anything.
    pub tokens: Vec<ApiToken>,
    /// What its TCP ports prove by TLS to be, and encrypt with. None: they speak plain HTTP, on loopback addresses.
    pub tls: Option<ApiTls>,
}

impl ApiConfig {
    /// Whether the API may listen there: other machines reach it by TLS, and with a token.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn may_listen(&self, address: &Address) -> Result<(), String> {
        let Some(port) = address.beyond_loopback() else { return Ok(()) };
        let missing = match (&self.tls, self.tokens.is_empty()) {
            (Some(_), false) => return Ok(()),
            (None, false) => "tls = { cert = …, key = … }",
            (Some(_), true) => "tokens",
            (None, true) => "tls = { cert = …, key = … } and tokens",
        };
        Err(format!("{port} is not loopback; write {missing} below [api] for that, or use 127.0.0.1 or [::1]"))
    }
}

/// Files of a certificate, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    /// The certificate, and behind it those that it is signed by, without the root.
    pub cert: PathBuf,
    /// Its private key (PKCS #8, PKCS #1 or SEC 1), which others cannot read.
    pub key: PathBuf,
}

/// A secret that a request over TCP shows (`Authorization: Bearer TOKEN`), and what it is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// What its holder may do.
    pub role: ApiRole,
    /// The file that has it, on its first line; for its owner alone (mode 0600).
    pub file: PathBuf,
}

word_enum! {
    /// What the holder of a token may do; each may do what those before it may.
    ApiRole {
        /// Everything that changes nothing.
        Read = "read",
        /// Tenants, volumes, exports, arbitration, failures by rule.
        Operate = "operate",
        /// Upgrades, shutdown, power cuts, what takes drives out of pools.
        Admin = "admin",
    }
}

pub(super) fn read(root: &Section<'_>, base: &Path) -> ApiConfig {
    let Some((line, entries)) = root.table("api") else { return ApiConfig::default() };
    let section = root.inner("api", line, entries);
    let tables = section.tables("tokens");
    if tables.len() > MOST_TOKENS {
        section.fault("tokens", format_args!("{} tokens; {MOST_TOKENS} is the most", tables.len()));
    }
    let tokens = tables.into_iter().enumerate().filter_map(|at| token(&section, base, at)).collect();
    let tls = section.table("tls").and_then(|(line, entries)| tls(&section, base, line, entries));
    section.finish();
    ApiConfig { tokens, tls }
}

fn token(api: &Section<'_>, base: &Path, (i, (line, entries)): (usize, (u32, &[Entry]))) -> Option<ApiToken> {
    let section = api.inner(format!("api.tokens#{}", i + 1), line, entries);
    let (role, file) = (section.get("role", word(ApiRole::WORDS)), section.get("file", file(base)));
    for (key, what) in [("role", "write \"read\", \"operate\" or \"admin\""), ("file", "write the path of its file")] {
        if !section.has(key) {
            section.fault(key, format_args!("missing; {what}"));
        }
    }
    section.finish();
    Some(ApiToken { role: role?, file: file? })
}

fn tls(api: &Section<'_>, base: &Path, line: u32, entries: &[Entry]) -> Option<ApiTls> {
    let section = api.inner("api.tls", line, entries);
    let [cert, key] = ["cert", "key"].map(|name| section.get(name, file(base)));
    for (name, what) in [("cert", "certificate"), ("key", "private key")] {
        if !section.has(name) {
            section.fault(name, format_args!("missing; write the path of the {what}, in PEM"));
        }
    }
    section.finish();
    Some(ApiTls { cert: cert?, key: key? })
}
