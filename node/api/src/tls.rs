//! TLS of the API's ports: the node's certificate, and handshakes beside each other.
//!
//! ```text
//!  port ─▶ accept ─▶ handshake, each a task of its own, MOST of them at once ─▶ Listener::accept (HTTP, as by a plain port)
//! ```

use std::fs::Metadata;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};
use tokio_rustls::server::TlsStream;
use weir_config::ApiTls;

/// A client that has not finished its handshake by then is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at once; further connections wait in the port's backlog.
const MOST: usize = 64;
/// After a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// The certificate of a node. Where its files have changed, connections from then on get the new one.
pub struct Tls {
    files: ApiTls,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    /// None: connections are closed at once.
    config: Option<Arc<ServerConfig>>,
    versions: Option<Versions>,
}

/// What tells one content of both files from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    cert: FileVersion,
    key: FileVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
    bytes: u64,
}

impl FileVersion {
    fn of(meta: &Metadata) -> Self {
        Self { inode: meta.ino(), changed_s: meta.mtime(), changed_ns: meta.mtime_nsec(), bytes: meta.len() }
    }
}

impl Versions {
    fn of(files: &ApiTls) -> io::Result<Self> {
        let of = |path: &Path| std::fs::metadata(path).map(|meta| FileVersion::of(&meta));
        Ok(Self { cert: of(&files.cert)?, key: of(&files.key)? })
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which of them cannot be read, is no PEM, is the key of another certificate, or can be read by others; with what to do.
    pub fn load(files: &ApiTls) -> Result<Tls, String> {
        Ok(Tls { files: files.clone(), loaded: Mutex::new(load(files)?) })
    }

    /// Closes every connection until the files are right: for a worker that takes over, whose drives matter more than its API.
    pub fn closed(files: &ApiTls) -> Tls {
        Tls { files: files.clone(), loaded: Mutex::default() }
    }

    /// As the files are now; as they were, where they have changed to something wrong.
    fn config(&self) -> Option<Arc<ServerConfig>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(versions) = Versions::of(&self.files) {
            if loaded.versions != Some(versions) {
                match load(&self.files) {
                    Ok(new) => {
                        tracing::info!("api: the certificate {} is another one", self.files.cert.display());
                        *loaded = new;
                    }
                    Err(why) => {
                        tracing::error!("api: {why}; the certificate, if there was one, stays what it was");
                        loaded.versions = Some(versions);
                    }
                }
            }
        }
        loaded.config.clone()
    }
}

fn load(files: &ApiTls) -> Result<Loaded, String> {
    let ApiTls { cert, key } = files;
    let of_cert = |why: &dyn std::fmt::Display| format!("tls.cert {}: {why}", cert.display());
    let of_key = |why: &dyn std::fmt::Display| format!("tls.key {}: {why}", key.display());
    // Before they are read: what is written meanwhile is seen next time.
    let meta = |path: &Path| std::fs::metadata(path);
    let of_meta = FileVersion::of(&meta(cert).map_err(|e| of_cert(&e))?);
    let key_meta = meta(key).map_err(|e| of_key(&e))?;
    if key_meta.mode() & 0o007 != 0 {
        let why = format!("its mode is {:04o}, so every user can read it; chmod 600", key_meta.mode() & 0o7777);
        return Err(of_key(&why));
    }
    let versions = Versions { cert: of_meta, key: FileVersion::of(&key_meta) };
    let read = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = read.map_err(|e| of_cert(&in_words(&e, "certificate")))?;
    if chain.is_empty() {
        return Err(of_cert(&"there is no certificate in it, in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| of_key(&in_words(&e, "private key")))?;
    let versions_of_tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let made = versions_of_tls.with_no_client_auth().with_single_cert(chain, private);
    let mut config = made.map_err(|e| match e {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            of_key(&format!("it is not the key of the certificate in {}", cert.display()))
        }
        e @ rustls::Error::InvalidCertificate(_) => of_cert(&e),
        e => of_key(&e),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Some(Arc::new(config)), versions: Some(versions) })
}

fn in_words(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(e) => e.to_string(),
        pem::Error::NoItemsFound => format!("there is no {what} in it, in PEM"),
        e => format!("is no PEM: {e}"),
    }
}

/// A port with TLS.
pub(super) struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, tls: Arc<Tls>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, ready) = mpsc::channel(MOST);
        Ok(Self { address, ready, accepting: tokio::spawn(accept_all(listener, tls, done)) })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept_all(listener: TcpListener, tls: Arc<Tls>, done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::debug!("the API accepts no connection: {e}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(config) = tls.config() else { continue };
        let (acceptor, done) = (TlsAcceptor::from(config), done.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(done.send((stream, peer)).await),
                Ok(Err(e)) => tracing::debug!("no TLS with {peer}: {e}"),
                Err(_) => tracing::debug!("no TLS with {peer} within {} s", HANDSHAKE_TIMEOUT.as_secs()),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connected) => connected,
            // Its task has ended: nobody comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
