//! The API's sockets and the thread behind them.

use super::access::Tokens;
use super::answer::Way;
use super::board::Live;
use super::control::Control;
use super::events::Followers;
use super::routes::router;
use super::tls::{Tls, TlsListener};
use axum::Router;
use axum::serve::Listener;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use weir_config::Address;
use weir_node::held_names::API_PORTS;
use weir_node::listen;
use weir_sys::keeper_channel::Keep;

/// What is still on its way when the API ends gets this long.
const GRACE: Duration = Duration::from_secs(1);

/// Sockets that listen, so that a busy one is known before anything else starts.
pub struct Bound {
    unix: Vec<(PathBuf, UnixListener)>,
    tcp: Vec<TcpListener>,
    unserved: Unserved,
}

/// Paths of sockets that are removed when it is dropped: nobody serves there, and no keeper holds them.
#[derive(Default)]
struct Unserved(Vec<PathBuf>);

impl Drop for Unserved {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

impl Bound {
    /// Listens on every address; the error names the one that does not work and, where it is busy, who has it.
    pub fn bind(addresses: &[Address], keep: &Keep) -> Result<Bound, listen::BindError> {
        let mut bound = Bound { unix: Vec::new(), tcp: Vec::new(), unserved: Unserved::default() };
        for address in addresses {
            match address {
                Address::Unix(path) => {
                    bound.unix.push((path.clone(), listen::keep_api(keep, path)?));
                    bound.unserved.0.extend((!keep.is_kept()).then(|| path.clone()));
                }
                Address::Tcp(address) => {
                    bound.tcp.push(listen::keep_tcp(keep, &format!("{API_PORTS}{}", bound.tcp.len()), *address)?);
                }
            }
        }
        Ok(bound)
    }

    /// The addresses, with the ports really bound.
    pub fn addresses(&self) -> Vec<Address> {
        let unix = self.unix.iter().map(|(path, _)| Address::Unix(path.clone()));
        unix.chain(self.tcp.iter().filter_map(|l| l.local_addr().ok()).map(Address::Tcp)).collect()
    }

    /// Serves on a thread of its own until [`Running::stop`], over TCP those who show one of these tokens, and by TLS where there is
    /// a certificate.
    pub fn serve(mut self, control: Arc<dyn Control>, tokens: Tokens, tls: Option<Tls>) -> io::Result<Running> {
        let addresses = self.addresses();
        let paths = self.unix.iter().map(|(path, _)| path.clone()).collect();
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        self.unserved.0.clear();
        let run = move || {
            runtime.block_on(serve(self, control, (Arc::new(tokens), tls.map(Arc::new)), stopped));
            // A control call that never returns must not keep the process.
            runtime.shutdown_timeout(GRACE);
        };
        let thread = std::thread::Builder::new().name("weir-api".into()).spawn(run)?;
        Ok(Running { addresses, paths, stop, thread: Some(thread) })
    }
}

/// The API while it serves; dropping it stops it.
pub struct Running {
    addresses: Vec<Address>,
    paths: Vec<PathBuf>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Where it listens, with the ports really bound.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Lets nobody in any more; what has been asked is answered.
    pub fn quiet(&self) {
        let _ = self.stop.send(true);
    }

    /// Ends as [`stop`](Self::stop), and leaves the UNIX sockets to who serves next.
    pub fn leave(mut self) {
        self.paths.clear();
        self.end();
    }

    /// Answers what has been asked, then ends; the UNIX sockets disappear.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        for path in &self.paths {
            if let Err(e) = std::fs::remove_file(path) {
                tracing::warn!("{} cannot be removed: {e}", path.display());
            }
        }
        let _ = self.stop.send(true);
        if thread.join().is_err() {
            tracing::error!("the API's thread panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

async fn serve(
    bound: Bound,
    control: Arc<dyn Control>,
    (tokens, tls): (Arc<Tokens>, Option<Arc<Tls>>),
    stopped: watch::Receiver<bool>,
) {
    let live = Live::new(control.clone(), stopped.clone());
    let followers = Followers::of(control.as_ref(), stopped.clone());
    let routes = |way| router(control.clone(), way, tokens.clone(), live.clone(), followers.clone());
    let mut tasks = vec![tokio::spawn(live.clone().run())];
    for (path, listener) in bound.unix {
        match nonblocking_unix(listener) {
            Ok(listener) => tasks.push(tokio::spawn(one(listener, routes(Way::Socket), stopped.clone()))),
            Err(e) => tracing::error!("the API cannot listen on {}: {e}", path.display()),
        }
    }
    for listener in bound.tcp {
        match nonblocking_tcp(listener) {
            Ok((address, listener)) => {
                tracing::debug!("the API listens on {address}");
                match &tls {
                    None => tasks.push(tokio::spawn(one(listener, routes(Way::Port), stopped.clone()))),
                    Some(tls) => match TlsListener::new(listener, tls.clone()) {
                        Ok(listener) => tasks.push(tokio::spawn(one(listener, routes(Way::Tls), stopped.clone()))),
                        Err(e) => tracing::error!("the API cannot listen on {address}: {e}"),
                    },
                }
            }
            Err(e) => tracing::error!("the API cannot listen: {e}"),
        }
    }
    let mut stopping = stopped.clone();
    let _ = stopping.wait_for(|stop| *stop).await;
    for task in tasks {
        // A client that keeps its connection open does not keep the node.
        let _ = tokio::time::timeout(GRACE, task).await;
    }
}

fn nonblocking_unix(listener: UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

fn nonblocking_tcp(listener: TcpListener) -> io::Result<(SocketAddr, tokio::net::TcpListener)> {
    listener.set_nonblocking(true)?;
    Ok((listener.local_addr()?, tokio::net::TcpListener::from_std(listener)?))
}

async fn one<L>(listener: L, router: Router, mut stopped: watch::Receiver<bool>)
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    let until = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    if let Err(e) = axum::serve(listener, router).with_graceful_shutdown(until).await {
        tracing::error!("the API stopped: {e}");
    }
}
