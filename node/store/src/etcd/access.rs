//! By what an etcd lets the store in: certificates, keys and passwords in files, read for each connection, so that those that were renewed are used.

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use std::fmt::Display;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls;
use weir_config::{EtcdAccess, EtcdMeta, EtcdUser, PemPair};

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Bytes of a password's file that are read.
const PASSWORD_MAX: u64 = 4096;

/// What HTTP/2 is called in TLS (RFC 7301).
const HTTP_2: &[u8] = b"h2";

/// Reads the files once.
///
/// # Errors
/// Which of them cannot be used, why, and what to do.
pub(super) fn check(meta: &EtcdMeta) -> Result<(), String> {
    meta.check().map_err(|mismatch| format!("etcd.{}: {mismatch}", mismatch.key()))?;
    if meta.endpoints.iter().any(|url| url.starts_with("https:")) {
        client_config(&meta.access)?;
    }
    meta.access.user.as_ref().map_or(Ok(()), |user| password(user).map(drop))
}

/// Of connections with TLS.
///
/// # Errors
/// As [`check`].
pub(super) fn client_config(access: &EtcdAccess) -> Result<ClientConfig, String> {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots(access.ca.as_deref())?);
    let mut config = match &access.identity {
        None => versions.with_no_client_auth(),
        Some(pair) => {
            let (chain, key) = identity(pair)?;
            versions.with_client_auth_cert(chain, key).map_err(|e| match e {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => of(
                    "key",
                    &pair.key,
                    format_args!("it is not the key of the certificate in {}", pair.cert.display()),
                ),
                e => of("key", &pair.key, e),
            })?
        }
    };
    config.alpn_protocols.push(HTTP_2.to_vec());
    Ok(config)
}

/// The password of a user.
///
/// # Errors
/// As [`check`].
pub(super) fn password(user: &EtcdUser) -> Result<String, String> {
    let file = &user.password_file;
    let wrong = |why: &dyn Display| of("password_file", file, why);
    let mut opened = std::fs::File::open(file).map_err(|e| wrong(&e))?;
    let meta = opened.metadata().map_err(|e| wrong(&e))?;
    if !meta.is_file() {
        return Err(wrong(&"is no file"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(wrong(&format_args!("its mode is {:04o}, so others can read it; chmod 600", meta.mode() & 0o7777)));
    }
    let mut text = Vec::new();
    opened.by_ref().take(PASSWORD_MAX).read_to_end(&mut text).map_err(|e| wrong(&e))?;
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok("") => Err(wrong(&"its first line is empty; write the password there")),
        Ok(password) => Ok(password.to_owned()),
        Err(_) => Err(wrong(&"its first line is not text")),
    }
}

fn of(key: &str, file: &Path, why: impl Display) -> String {
    format!("etcd.{key} {}: {why}", file.display())
}

fn identity(PemPair { cert, key }: &PemPair) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = certificates("cert", cert)?;
    let meta = std::fs::metadata(key).map_err(|e| of("key", key, e))?;
    if meta.mode() & 0o007 != 0 {
        let mode = meta.mode() & 0o7777;
        return Err(of("key", key, format_args!("its mode is {mode:04o}, so every user can read it; chmod 600")));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| of("key", key, in_words(&e, "private key")))?;
    Ok((chain, private))
}

/// Authorities whose certificates are trusted.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let of_system = || SYSTEM.iter().map(PathBuf::from).find(|file| file.exists());
    let file = ca.map(Path::to_owned).or_else(of_system);
    let file = file.ok_or("this system has no file of trusted authorities; name one with etcd.ca")?;
    let mut roots = RootCertStore::empty();
    // A system's file may have some that no verifier takes.
    let (added, _) = roots.add_parsable_certificates(certificates("ca", &file)?);
    if added == 0 { Err(of("ca", &file, "no certificate in it can be used")) } else { Ok(roots) }
}

/// At least one.
fn certificates(key: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|e| of(key, file, in_words(&e, "certificate")))?;
    if found.is_empty() {
        return Err(of(key, file, "there is no certificate in it, in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(found)
}

fn in_words(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(e) => e.to_string(),
        pem::Error::NoItemsFound => format!("there is no {what} in it, in PEM"),
        e => format!("is no PEM: {e}"),
    }
}
