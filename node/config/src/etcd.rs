//! The etcd of a store: its members, and by what they let the store in (`meta` and `etcd` of `[store]`).

use super::read::{Read, Section, file, quoted, text};
use super::value::{Entry, Value};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where an etcd is, and what of it is the store's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMeta {
    /// Its members, `http://HOST:PORT` or `https://HOST:PORT` each, in the order in which they are tried; at least one, and all with TLS or none.
    pub endpoints: Vec<String>,
    /// What all keys of the store begin with, before a zero byte. Not empty.
    pub prefix: String,
    /// By what they let the store in.
    pub access: EtcdAccess,
}

/// By what an etcd lets the store in. The files are read when a connection is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// The certificates, in PEM, of the authorities that sign those of the members; none: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate and key.
    pub identity: Option<PemPair>,
    /// The user of etcd, where etcd asks for one and does not take the certificate's.
    pub user: Option<EtcdUser>,
}

/// A certificate with its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate in PEM, followed by those of the authorities between it and the root.
    pub cert: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// Its name.
    pub name: String,
    /// The file whose first line is its password.
    pub password_file: PathBuf,
}

/// What does not go with the members of an etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdMismatch<'a> {
    /// There are certificates, and no TLS.
    NoTls {
        /// The key that names them, as in the configuration.
        key: &'static str,
        /// A member.
        url: &'a str,
    },
    /// The password would cross a network in the clear, to this member.
    PlainPassword(&'a str),
}

impl EtcdMismatch<'_> {
    /// The key that it is about, within `etcd` of `[store]`.
    pub fn key(&self) -> &'static str {
        match self {
            Self::NoTls { key, .. } => key,
            Self::PlainPassword(_) => "user",
        }
    }
}

impl std::fmt::Display for EtcdMismatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoTls { url, .. } => {
                write!(f, "{url} is reached without TLS; write {} for it", url.replacen("http:", "https:", 1))
            }
            Self::PlainPassword(url) => {
                let with_tls = url.replacen("http:", "https:", 1);
                write!(f, "{url} is not loopback, and the network would see the password; write {with_tls} for it")
            }
        }
    }
}

impl EtcdMeta {
    /// # Errors
    /// What of `access` does not go with the members.
    pub fn check(&self) -> Result<(), EtcdMismatch<'_>> {
        let EtcdAccess { ca, identity, user } = &self.access;
        let Some(url) = self.endpoints.iter().find(|url| !url.starts_with("https:")) else { return Ok(()) };
        match (ca, identity) {
            (Some(_), _) => return Err(EtcdMismatch::NoTls { key: "ca", url }),
            (_, Some(_)) => return Err(EtcdMismatch::NoTls { key: "cert", url }),
            (None, None) => {}
        }
        match self.endpoints.iter().find(|url| !is_loopback(url)) {
            Some(url) if user.is_some() => Err(EtcdMismatch::PlainPassword(url)),
            _ => Ok(()),
        }
    }
}

/// Whether a member is on this machine.
fn is_loopback(url: &str) -> bool {
    let place = url.rsplit_once("//").map_or(url, |(_, place)| place);
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `http://HOST:PORT,http://HOST:PORT/PREFIX`, as it stands behind `etcd:`: the prefix may stand at any of them, and is the same at all that have one.
impl FromStr for EtcdMeta {
    type Err = String;

    fn from_str(urls: &str) -> Result<Self, String> {
        let (mut endpoints, mut prefix) = (Vec::<String>::new(), None::<String>);
        for url in urls.split(',') {
            let (endpoint, path) = member(url)?;
            if endpoints.contains(&endpoint) {
                return Err(format!("{endpoint} is listed twice; keep one"));
            }
            let has_tls = |url: &str| url.starts_with("https:");
            if let Some(other) = endpoints.first().filter(|other| has_tls(other) != has_tls(&endpoint)) {
                return Err(format!(
                    "{other} and {endpoint}: one member has TLS and another has none; write https:// for all"
                ));
            }
            endpoints.push(endpoint);
            if path.is_empty() {
                continue;
            }
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_')) {
                return Err(format!("{} is no prefix; use letters, digits, '/', '.', '-' and '_'", quoted(path)));
            }
            match &prefix {
                Some(other) if other != path => {
                    return Err(format!("{} and {} are two prefixes; a store has one", quoted(other), quoted(path)));
                }
                _ => prefix = Some(path.to_string()),
            }
        }
        Ok(Self { endpoints, prefix: prefix.unwrap_or_else(|| "weir".into()), access: EtcdAccess::default() })
    }
}

/// A member, and what stands behind it.
fn member(url: &str) -> Result<(String, &str), String> {
    let wrong = || {
        let what =
            "is no member of an etcd; write etcd:http://HOST:PORT,http://HOST:PORT/PREFIX, with TLS etcd:https://";
        format!("{} {what}", quoted(url))
    };
    let (scheme, rest) =
        url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")).ok_or_else(wrong)?;
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_host) || port.parse::<u16>().map_or(true, |port| port == 0) {
        return Err(wrong());
    }
    Ok((format!("{scheme}://{place}"), path.trim_matches('/')))
}

/// `etcd = { ca = …, cert = …, key = …, user = …, password_file = … }`; `meta` is none where the metadata are elsewhere.
pub(super) fn read(store: &Section<'_>, base: &Path, (line, entries): (u32, &[Entry]), meta: Option<&mut EtcdMeta>) {
    let section = store.inner("store.etcd", line, entries);
    let [ca, cert, key, password_file] =
        ["ca", "cert", "key", "password_file"].map(|name| section.get(name, file(base)));
    let user = section.get("user", user_name);
    for (has, wants, what) in [
        ("cert", "key", "write the path of the certificate's private key, in PEM"),
        ("key", "cert", "write the path of the key's certificate, in PEM"),
        ("user", "password_file", "write the path of the file with the user's password"),
        ("password_file", "user", "write the name of the user whose password it is"),
    ] {
        if section.has(has) && !section.has(wants) {
            section.fault(wants, format_args!("missing; {what}"));
        }
    }
    let identity = cert.zip(key).map(|(cert, key)| PemPair { cert, key });
    let user = user.zip(password_file).map(|(name, password_file)| EtcdUser { name, password_file });
    if let Some(meta) = meta {
        meta.access = EtcdAccess { ca, identity, user };
        if let Err(mismatch) = meta.check() {
            section.fault(mismatch.key(), mismatch);
        }
    } else {
        store.fault("etcd", "the metadata are not in etcd; leave it out, or write meta = \"etcd:https://HOST:PORT\"");
    }
    section.finish();
}

fn user_name(value: &Value) -> Read<String> {
    let name = text(value)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(format!("{} is no name of a user", quoted(&name)).into());
    }
    Ok(name)
}
