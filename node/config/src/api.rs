//! `[api]`: who may use the control API over TCP.

use super::read::{Read, Section, quoted, text, word};
use super::value::{Entry, Value};
use super::word_enum::word_enum;
use std::path::{Path, PathBuf};

/// More tokens than a node has people and programs.
const MOST_TOKENS: usize = 64;

/// The control API beyond where it listens, which [`NodeConfig::api`](super::NodeConfig::api) says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiConfig {
    /// Who may use it over TCP. Without any, everybody on the machine may read, and nobody may change anything.
    pub tokens: Vec<ApiToken>,
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
    section.finish();
    ApiConfig { tokens }
}

fn token(api: &Section<'_>, base: &Path, (i, (line, entries)): (usize, (u32, &[Entry]))) -> Option<ApiToken> {
    let section = api.inner(format!("api.tokens#{}", i + 1), line, entries);
    let (role, file) = (section.get("role", word(ApiRole::WORDS)), section.get("file", |v| path(v, base)));
    for (key, what) in [("role", "write \"read\", \"operate\" or \"admin\""), ("file", "write the path of its file")] {
        if !section.has(key) {
            section.fault(key, format_args!("missing; {what}"));
        }
    }
    section.finish();
    Some(ApiToken { role: role?, file: file? })
}

fn path(value: &Value, base: &Path) -> Read<PathBuf> {
    let text = text(value)?;
    if text.is_empty() || text.contains('\0') {
        return Err(format!("{} is no path of a file", quoted(&text)).into());
    }
    Ok(super::resolve(base, &text))
}
