//! The bytes to and from a member of an etcd, by TCP or TLS, and what is wrong with them in words.

use super::access;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls};
use tonic::codegen::http::Uri;
use tonic::codegen::{BoxFuture, Service};
use weir_config::EtcdAccess;

/// Silence after which TCP asks whether the member is there.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Connects to one member.
#[derive(Clone)]
pub(super) struct Member {
    /// `HOST:PORT`.
    place: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Member {
    /// The member at `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(url: &str, access: &EtcdAccess) -> Result<Self, String> {
        let (scheme, place) = url.split_once("://").unwrap_or(("http", url));
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
        let tls = match scheme {
            "https" => {
                let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("{host}: {e}"))?;
                Some((TlsConnector::from(Arc::new(access::client_config(access)?)), name))
            }
            _ => None,
        };
        Ok(Self { place: place.to_owned(), tls })
    }

    async fn connect(self) -> io::Result<TokioIo<Conversation>> {
        let stream = TcpStream::connect(&self.place).await?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, TCP_KEEP_ALIVE)?;
        let (bytes, silence): (Box<dyn Bytes>, _) = match self.tls {
            None => (Box::new(stream), "it closes the connection at once; if that is a port with TLS write https://"),
            Some((connector, name)) => (
                Box::new(connector.connect(name, stream).await.map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => io::Error::other(
                        "the connection was closed before TLS began; is that a port with TLS? Without it write http://",
                    ),
                    _ => e,
                })?),
                "it closes the connection at once",
            ),
        };
        Ok(TokioIo::new(Conversation { bytes, has_begun: false, silence }))
    }
}

impl Service<Uri> for Member {
    type Response = TokioIo<Conversation>;
    type Error = io::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// The bytes of a connection. A member that lets nobody in may say so only after the handshake, and closes the connection in the middle of the first
/// request: then a write fails, and why is still to be read.
pub(super) struct Conversation {
    bytes: Box<dyn Bytes>,
    /// Whether the member has said something.
    has_begun: bool,
    /// What it is where it ends before.
    silence: &'static str,
}

impl Conversation {
    fn told(&self, error: io::Error) -> io::Error {
        let is_closed = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        match of_tls(&error) {
            Some(of_tls) => io::Error::new(error.kind(), explain(of_tls)),
            None if is_closed && !self.has_begun => io::Error::new(error.kind(), self.silence),
            None => error,
        }
    }

    /// What is said after a write has failed; it may be still on its way from the socket.
    fn last_words(&mut self, cx: &mut Context<'_>, error: io::Error) -> Poll<io::Error> {
        let mut buffer = [0; 512];
        let heard = ready!(Pin::new(&mut *self).poll_read(cx, &mut ReadBuf::new(&mut buffer)));
        Poll::Ready(heard.err().unwrap_or_else(|| self.told(error)))
    }
}

impl AsyncRead for Conversation {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Err(e) = ready!(Pin::new(&mut self.bytes).poll_read(cx, buffer)) {
            return Poll::Ready(Err(self.told(e)));
        }
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && !self.has_begun {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, self.silence)));
        }
        self.has_begun = true;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Conversation {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.bytes).poll_write(cx, bytes));
        match written {
            Err(e) => self.last_words(cx, e).map(Err),
            done => Poll::Ready(done),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.bytes).poll_flush(cx));
        match flushed {
            Err(e) => self.last_words(cx, e).map(Err),
            done => Poll::Ready(done),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

/// An error with what it came of, as far as that says more; one of TLS says what to do.
pub(super) fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(of_tls) = of_tls(error) {
            return explain(of_tls);
        }
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.downcast_ref().or_else(|| within.and_then(|within| within.downcast_ref()))
}

fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(e) => match e {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired; renew it".to_owned(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; look at the clocks of both machines".to_owned()
            }
            CertificateError::NotValidForName => "its certificate is not for that name; use one that it has".to_owned(),
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names = if presented.is_empty() { "none".to_owned() } else { presented.join(", ") };
                format!("its certificate is not for that name; names in it: {names}")
            }
            CertificateError::UnknownIssuer => {
                "its certificate is not signed by an authority that is trusted here; name the authority's file with etcd.ca".to_owned()
            }
            e => format!("its certificate is refused: {e:?}"),
        },
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS; write http:// for it".to_owned()
        }
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => "it has no version of TLS that is spoken here".to_owned(),
        // Go says "bad certificate" for one that is missing, too.
        rustls::Error::AlertReceived(alert) => {
            format!("it wants another certificate of this client ({alert:?}); etcd.cert and etcd.key name one that its authority has signed")
        }
        e => format!("no TLS: {e}"),
    }
}
