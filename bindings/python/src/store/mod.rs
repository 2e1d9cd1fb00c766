//! A store for Python: `Store` ([`StoreClient`]) is a client of it, `StoreFile` an open file. Python's `weir.fs` is written over them.
//!
//! ```text
//!   weir.fs ─► _store.py ─► Store, StoreFile ─ without the GIL ─► weir_store_node::client
//!                              └ ClientError ─► OSError, with its number and the reason
//! ```
//! Paths are bytes, as the store has them. Every call waits, other threads of Python run meanwhile, and it ends by the client's deadline.

mod connected;
mod copy;
mod entry;
mod error;
mod file;
mod memory;
mod options;
mod process;

pub use connected::StoreClient;
pub use entry::StoreEntry;
pub use file::StoreFile;
pub use options::StoreOptions;
