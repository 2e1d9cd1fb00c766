//! A metadata service: a thread that has the listeners, the connections and the key-value store, and drives
//! [`Service`](weir_store::service::Service).
//!
//! ```text
//!   sockets ─frames─► Service ─► reads: at once      commits of a turn: all by one write (group commit)
//!           ◄answers─         ─► labels of namespaces, blocks that are recovered or moved: a thread each, since they wait
//! ```
//! **A turn**: what sockets have brought, at most [`READ_MAX`] of each, becomes requests; the key-value store is asked until there is nothing left to
//! ask; then answers go out. So a client that sends much takes one share of each turn. One that does not take its answers is not read
//! from beyond [`UNSENT_PAUSE`], and closed after [`STALL`]; one that does not greet in [`GREETING`] is closed, and so is one that sends what
//! is no message.
//!
//! Time is CLOCK_BOOTTIME: leases go on while the machine sleeps. With `power`, a turn with changes waits for the medium, and all clients with it.

mod connection;
mod copy;
mod driver;
mod options;
mod recover;
mod store;
mod tiers;

#[cfg(test)]
mod tests;

pub use options::{ServiceError, ServiceOptions};

use driver::Driver;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use weir_config::StoreAddress;
use weir_store::ServiceId;
use weir_units::Nanos;

/// Bytes that are read of a connection in a turn at the most.
const READ_MAX: usize = 64 << 10;

/// Bytes that wait to be sent to a client from which on nothing more is read of it.
const UNSENT_PAUSE: usize = 4 << 20;

/// How long a client may leave its answers.
const STALL: std::time::Duration = std::time::Duration::from_secs(30);

/// How long a client may take for its first message.
const GREETING: std::time::Duration = std::time::Duration::from_secs(10);

/// Connections at a time.
const CONNECTIONS_MAX: usize = 12_000;

/// All processes of a store are one service, and one of them serves.
pub(crate) const SERVICE: ServiceId = ServiceId(1);

/// By which one process serves, where several can: another takes over after that and a third more, well within the lease of clients' sessions.
pub(crate) const SERVICE_LEASE: Nanos = Nanos::from_secs(3);

/// A metadata service that runs.
#[derive(Debug)]
pub struct ServiceHandle {
    addresses: Vec<StoreAddress>,
    stops: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    stands_by: bool,
}

/// Starts a metadata service; it is reached when this returns. Where others may serve the same store it may stand by.
///
/// # Errors
/// The metadata cannot be opened, are of another store, or an address cannot be listened on: which, and why.
pub fn start(options: ServiceOptions) -> Result<ServiceHandle, ServiceError> {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    let bell = Arc::new(bell.map_err(|e| ServiceError::new("metadata service", e))?);
    let stops = Arc::new(AtomicBool::new(false));
    let mut driver = Driver::open(options, Arc::clone(&bell), Arc::clone(&stops))?;
    let addresses = driver.listen()?;
    driver.begin()?;
    let stands_by = driver.stands_by();
    let thread = std::thread::Builder::new().name("weir-metadata".into()).spawn(move || driver.run());
    let thread = thread.map_err(|e| ServiceError::new("metadata service", e))?;
    Ok(ServiceHandle { addresses, stops, bell, thread: Some(thread), stands_by })
}

impl ServiceHandle {
    /// Where it is reached: with the ports that it was given, where port 0 was asked for.
    pub fn addresses(&self) -> &[StoreAddress] {
        &self.addresses
    }

    /// Whether another process served the store when this one was started.
    pub fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it: connections are closed, and everything is on the medium.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stops.store(true, Ordering::Release);
        ring(&self.bell);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for ServiceHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Wakes the service's thread. A bell that is full rings already.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
