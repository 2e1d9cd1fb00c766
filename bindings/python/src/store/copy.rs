//! Copies within a store: the bytes go through this process, and not through Python.

use std::io::{BufRead, Error};
use weir_store_node::client::{ClientError, ClientErrorKind, File, FileReader};

/// Copies all bytes of a stream to the beginning of a file; how many.
///
/// # Errors
/// As the client's.
pub fn copy(mut from: FileReader, to: &File) -> Result<u64, ClientError> {
    let of = |e: Error| {
        let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<ClientError>()).cloned();
        inner.unwrap_or_else(|| ClientError::new(ClientErrorKind::Protocol(e.to_string())))
    };
    let mut copied = 0;
    loop {
        let bytes = from.fill_buf().map_err(of)?;
        if bytes.is_empty() {
            return Ok(copied);
        }
        to.write_at(copied, bytes)?;
        let count = bytes.len();
        from.consume(count);
        copied += count as u64;
    }
}
