//! What a store refuses, as Python raises it: `OSError` and its subclasses by number, with the client's reason.

use pyo3::exceptions::{PyConnectionError, PyOSError};
use pyo3::prelude::*;
use weir_store_node::client::{ClientError, ClientErrorKind};

/// `OSError(errno, reason, path)`, which Python makes a `FileNotFoundError` and so on; `ConnectionError` where the store is not reached.
pub fn store_error(error: &ClientError) -> PyErr {
    let arguments = (error.errno(), error.reason(), error.path().map(str::to_owned));
    match error.kind() {
        ClientErrorKind::Unreachable(_) | ClientErrorKind::SessionOver => PyConnectionError::new_err(arguments),
        _ => PyOSError::new_err(arguments),
    }
}
