//! A client of a store: names through the metadata service, bytes straight from and to the drives.
//!
//! ```text
//!   Client ── names, maps, grants ──► metadata service (TCP or a unix socket)
//!     └─ File ── reads, writes ─────► drives (NVMe/TCP)
//! ```
//! A [`Client`] may be cloned, and used by any number of threads. Every operation ends before its deadline
//! ([`ClientOptions::deadline`]). A connection that is lost is made again; what changes something is carried out once.
//!
//! Paths are absolute: names separated by `/`, each of 1 to 255 bytes. They need not be UTF-8.

mod error;
mod file;
mod names;
mod options;
mod stream;

pub use error::{ClientError, ClientErrorKind};
pub use file::{Completed, File, Pending};
pub use names::{Listing, Stat};
pub use options::{ClientOptions, CreateOptions, OpenOptions};
pub use stream::{FileReader, FileWriter};

use std::sync::Arc;

/// See [the module](self).
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What all clones of a client have in common.
#[derive(Debug)]
struct Shared {
    address: String,
}

impl Client {
    /// Connects to a metadata service and begins a session. `address` is `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// [`ClientErrorKind::Unreachable`], [`ClientErrorKind::Usage`]: the address is none.
    pub fn connect(address: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let _ = options;
        Err(ClientError::new(ClientErrorKind::Unreachable(format!("{address}: the client is not built yet"))))
    }

    /// The address of the metadata service, as it was given.
    pub fn address(&self) -> &str {
        &self.shared.address
    }
}
