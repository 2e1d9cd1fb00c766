//! A client of a store: names through the metadata service, bytes straight from and to the drives.
//!
//! ```text
//!   Client ── names, maps, grants ──► metadata service (TCP or a unix socket)
//!     └─ File ── reads, writes ─────► drives (NVMe/TCP)
//!
//!   FileReader, FileWriter ─► File ─┐
//!   names ──────────────────────────┴─► driver ─► Engine ─┬─ ClientMachine    decides: core/store/src/client
//!                                                         ├─ Link             the connection to the service
//!                                                         ├─ Tier             one a drive
//!                                                         └─ OperationMemory  the callers', and the machine's own
//! ```
//! A [`Client`] may be cloned, and used by any number of threads. Every operation ends before its deadline
//! ([`ClientOptions::deadline`]). The thread that waits drives the connections itself; one more thread renews the lease.
//!
//! **A service that is lost**: the connection is made again, the session goes on, and what was not answered is sent again; what changes
//! something is carried out once. Files that a service has forgotten are opened again. Where the lease could not be renewed in time the session
//! is over: everything fails with [`ClientErrorKind::SessionOver`], and a new [`Client`] is needed.
//!
//! **Several services** of a store: one serves, and names itself through those that stand by. Each address is tried in turn; a service that has not answered
//! for some seconds is left for the next one, where the session goes on. An error names all addresses that were tried.
//!
//! **Small files** lie in their inode: they are read with their name, and written by one request when they are flushed. One that becomes too
//! large for that moves to blocks.
//!
//! **A record** of what the program asked is written where [`ClientOptions::record`] or the variable `WEIR_STORE_RECORD` names a folder: see [`crate::record`].
//!
//! Paths are absolute: names separated by `/`, each of 1 to 255 bytes. They need not be UTF-8.

mod connection;
mod driver;
mod engine;
mod error;
mod file;
mod inodes;
mod link;
mod memory;
mod names;
mod operator_connection;
mod operators;
mod options;
mod path;
mod placement;
mod recorder;
mod scrub;
mod stream;

#[cfg(test)]
mod tests;

pub use error::{ClientError, ClientErrorKind};
pub use file::{Completed, File, Pending};
pub use inodes::{ListPage, OpenedInode};
pub use names::{Listing, Stat};
pub use operator_connection::OperatorConnection;
pub use operators::Operator;
pub use options::{ClientOptions, CreateOptions, OpenOptions};
pub use placement::{FilePart, host_of};
pub use scrub::{CopyFault, CopyFinding, FileScrub, ScrubDrives};
pub use stream::{FileReader, FileWriter};

use connection::{Caller, in_time};
use driver::Shared;
use engine::Engine;
use link::Link;
use recorder::Recorder;
use std::sync::Arc;
use weir_store::client::{ClientMachine, ClientSetup, OpenedFile, Outcome};
use weir_store::protocol::{Answer, Request, SessionWish};
use weir_sys::crc::crc32c_append;
use weir_sys::transport::fds;
use weir_units::Nanos;

/// See [the module](self).
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects to a metadata service and begins a session. `address` is `HOST:PORT` or `unix:PATH`; or several with commas between
    /// them, of services of one store of which one serves and the others stand by.
    ///
    /// # Errors
    /// [`ClientErrorKind::Unreachable`]; [`ClientErrorKind::Usage`]: the address is none; or the service lets nobody in.
    pub fn connect(address: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let failed = |why: String| ClientError::new(ClientErrorKind::Unreachable(why));
        let caller = Caller::new(address, &options)?;
        let (connection, welcome, sent) = caller.connect_in_time(SessionWish::New, options.deadline)?;
        let room_timeout = Nanos(u64::try_from(options.deadline.as_nanos()).unwrap_or(u64::MAX));
        let setup = ClientSetup { crc: crc32c_append, room_timeout };
        let machine = ClientMachine::new(setup, welcome, sent).map_err(|why| {
            let text = format!("the metadata service at {address} says what cannot be: {why}");
            ClientError::new(ClientErrorKind::Protocol(text))
        })?;
        let bell = Arc::new(fds::eventfd().map_err(|e| failed(e.to_string()))?);
        let link = Link::new(caller, connection, bell.clone());
        let (spin, deadline) = (options.spin, options.deadline);
        let recorder = options.record.as_deref().map(Recorder::new).transpose()?;
        let engine = Engine::new(options, machine, link, bell).map_err(|e| failed(format!("epoll: {e}")))?;
        let shared = Shared::new(address, (spin, deadline), engine, recorder).map_err(|e| failed(e.to_string()))?;
        let client = Client { shared };
        // The machine takes note of them.
        client.namespaces()?;
        Ok(client)
    }

    /// The address of the metadata service, as it was given.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Asks the service, and waits.
    fn ask(&self, request: Request) -> Result<Answer, ClientError> {
        let work = self.shared.lock().ask(request, in_time(self.shared.deadline));
        match self.shared.wait(work) {
            (Outcome::Answer(answer), _) => Ok(answer?),
            _ => Err(unexpected()),
        }
    }

    /// Opens a file, and waits.
    fn ask_to_open(&self, request: Request) -> Result<OpenedFile, ClientError> {
        let work = self.shared.lock().open(request, in_time(self.shared.deadline));
        match self.shared.wait(work) {
            (Outcome::Opened(opened), _) => Ok(opened?),
            _ => Err(unexpected()),
        }
    }
}

impl Operator for Client {
    fn ask_service(&self, request: Request) -> Result<Answer, ClientError> {
        self.ask(request)
    }

    fn version(&self) -> Result<u16, ClientError> {
        Ok(self.shared.lock().machine().welcome().version)
    }
}

/// The service has answered something else than was asked.
fn unexpected() -> ClientError {
    ClientError::new(ClientErrorKind::Protocol("the metadata service has answered something else".into()))
}
