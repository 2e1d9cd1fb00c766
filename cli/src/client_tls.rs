//! The API of a node by TLS: `https://HOST:PORT`.

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, InvalidMessage, RootCertStore, StreamOwned};
use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Names another file for that, as for OpenSSL.
const SYSTEM_VARIABLE: &str = "SSL_CERT_FILE";
/// Of `https://HOST`.
const DEFAULT_PORT: u16 = 443;

/// A port with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAddress {
    /// A name or an IP address, which its certificate must have.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for TlsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

impl TlsAddress {
    /// What follows `https://`.
    ///
    /// # Errors
    /// It is no host, or its port no number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        let wrong = || format!("https://{text} is not an address like https://weir.example:9400");
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (text, DEFAULT_PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(host).map_err(|_| wrong())?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// `HOST:PORT`, as the header Host has it.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Connects; its certificate must be signed by an authority in the file `ca`, or by one that the system trusts.
    ///
    /// # Errors
    /// No authority, nobody there, or a certificate that is none of this host; its text says what to do.
    pub fn connect(
        &self,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let roots = Arc::new(roots(ca).map_err(io::Error::other)?);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_webpki_verifier(verifier.map_err(io::Error::other)?)
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = self.reach(timeout)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(|e| self.explain(e))?;
        }
        Ok(StreamOwned::new(connection, stream))
    }

    fn reach(&self, timeout: Duration) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    return Ok(stream);
                }
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn explain(&self, error: io::Error) -> io::Error {
        let Some(of_tls) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    io::Error::other("the connection was closed before TLS began; is this a port with TLS?")
                }
                _ => error,
            };
        };
        let host = &self.host;
        io::Error::other(match of_tls {
            rustls::Error::InvalidCertificate(e) => match e {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "its certificate has expired; renew the file that tls.cert names on the node".to_owned()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "its certificate is not valid yet; look at the clocks of both machines".to_owned()
                }
                CertificateError::NotValidForName => format!("its certificate is not for {host}; use a name that it has"),
                CertificateError::NotValidForNameContext { presented, .. } => {
                    let names = if presented.is_empty() { "none".to_owned() } else { presented.join(", ") };
                    format!("its certificate is not for {host}; names in it: {names}")
                }
                CertificateError::UnknownIssuer => {
                    "its certificate is not signed by an authority that is trusted here; name the authority's file with --ca".to_owned()
                }
                e => format!("its certificate is refused: {}", rustls::Error::InvalidCertificate(e.clone())),
            },
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                format!("it does not speak TLS; use http://{}", self.authority())
            }
            e => format!("no TLS: {e}"),
        })
    }
}

/// Authorities whose certificates are trusted.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let by_variable = || std::env::var_os(SYSTEM_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
    let of_system = || SYSTEM.iter().map(PathBuf::from).find(|file| file.exists());
    let file = ca.map(Path::to_owned).or_else(by_variable).or_else(of_system);
    let file = file.ok_or("this system has no file of trusted authorities; name one with --ca FILE")?;
    let wrong = |why: &dyn fmt::Display| format!("--ca {}: {why}", file.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|e| match e {
        rustls::pki_types::pem::Error::Io(e) => wrong(&e),
        e => wrong(&format_args!("is no PEM: {e}")),
    })?;
    // A system's file may have some that no verifier takes.
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        Err(wrong(&"there is no certificate in it, in PEM (-----BEGIN CERTIFICATE-----)"))
    } else {
        Ok(roots)
    }
}
