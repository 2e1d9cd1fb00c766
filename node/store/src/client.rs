//! A client of a store: names through the metadata service, bytes straight from and to the drives.
//!
//! ```text
//!   Client ── names, maps, grants ──► metadata service (TCP or a unix socket)
//!     └─ File ── reads, writes ─────► drives (NVMe/TCP)
//!
//!   FileReader, FileWriter ─► File ─┐
//!   names ──────────────────────────┴─► driver ─► Engine ─┬─ Requests, Connection     each change carried out once
//!                                                         ├─ SessionHolder            the lease
//!                                                         ├─ OpenFile: inline, FileIo
//!                                                         └─ Tier                     one a namespace
//! ```
//! A [`Client`] may be cloned, and used by any number of threads. Every operation ends before its deadline
//! ([`ClientOptions::deadline`]). The thread that waits drives the connections itself; one more thread renews the lease.
//!
//! **A service that is lost**: the connection is made again, the session goes on, and what was not answered is sent again; what changes
//! something is carried out once. Files that a service has forgotten are opened again. Where the lease could not be renewed in time the session
//! is over: everything fails with [`ClientErrorKind::SessionOver`], and a new [`Client`] is needed.
//!
//! **Small files** lie in their inode: they are read with their name, and written by one request when they are flushed. One that becomes too
//! large for that moves to blocks.
//!
//! Paths are absolute: names separated by `/`, each of 1 to 255 bytes. They need not be UTF-8.

mod connection;
mod driver;
mod engine;
mod error;
mod file;
mod memory;
mod names;
mod open_file;
mod operators;
mod options;
mod path;
mod requests;
mod stream;

#[cfg(test)]
mod tests;

pub use error::{ClientError, ClientErrorKind};
pub use file::{Completed, File, Pending};
pub use names::{Listing, Stat};
pub use options::{ClientOptions, CreateOptions, OpenOptions};
pub use stream::{FileReader, FileWriter};

use connection::{Caller, in_time};
use driver::Shared;
use engine::{Engine, Outcome};
use requests::Requests;
use std::sync::Arc;
use std::time::Duration;
use weir_store::members::{LeaseTiming, SessionHolder};
use weir_store::protocol::{Answer, Request, SessionWish};
use weir_sys::transport::fds;
use weir_units::Nanos;

/// See [the module](self).
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects to a metadata service and begins a session. `address` is `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// [`ClientErrorKind::Unreachable`]; [`ClientErrorKind::Usage`]: the address is none; or the service lets nobody in.
    pub fn connect(address: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let failed = |why: String| ClientError::new(ClientErrorKind::Unreachable(why));
        let caller = Caller::new(address, &options)?;
        let (connection, welcome, sent) = caller.connect(SessionWish::New, options.deadline)?;
        let protocol = |why: &str| ClientError::new(ClientErrorKind::Protocol(format!("{address}: {why}")));
        let session = welcome.session.ok_or_else(|| protocol("the service has begun no session"))?;
        // What is in flight is given up within a tenth of the lease.
        let timing = LeaseTiming::new(welcome.lease, welcome.drift_ppm, Nanos(welcome.lease.get() / 10));
        let timing = timing.ok_or_else(|| protocol("the service's lease is too short"))?;
        let holder = SessionHolder::new(session, timing, sent, welcome.epoch);
        let bell = Arc::new(fds::eventfd().map_err(|e| failed(e.to_string()))?);
        let requests = Requests::new(caller, (session, welcome.token), connection, bell.clone());
        let (spin, deadline) = (options.spin, options.deadline);
        let engine = Engine::new(options, requests, welcome, holder, bell)?;
        let shared = Shared::new(address, spin, deadline, engine).map_err(|e| failed(e.to_string()))?;
        let client = Client { shared };
        let namespaces = client.namespaces()?;
        client.shared.lock().set_namespaces(namespaces);
        Ok(client)
    }

    /// The address of the metadata service, as it was given.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Asks the service, and waits.
    fn ask(&self, request: Request) -> Result<Answer, ClientError> {
        self.ask_about(request, None, self.shared.deadline)
    }

    /// The same about an open file, whose handle is filled in.
    fn ask_about(&self, request: Request, file: Option<u64>, timeout: Duration) -> Result<Answer, ClientError> {
        let work = self.shared.lock().ask(request, file, in_time(timeout))?;
        match self.shared.wait(work) {
            Outcome::Answer(answer) => answer,
            Outcome::Io(..) => Err(unexpected()),
        }
    }
}

/// The service has answered something else than was asked.
fn unexpected() -> ClientError {
    ClientError::new(ClientErrorKind::Protocol("the metadata service has answered something else".into()))
}
