//! An open file.

use super::error::store_error;
use super::memory::{Lent, filled};
use super::process::OfProcess;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{PoisonError, RwLock};
use weir_store_node::client::{ClientError, File};

/// An open file; any thread may use it. What was written is seen by others when it was flushed or closed.
#[pyclass(frozen, module = "weir._native")]
pub struct StoreFile(OfProcess<RwLock<Option<File>>>);

impl StoreFile {
    /// A file of the client's.
    pub fn new(file: File) -> Self {
        StoreFile(OfProcess::new(RwLock::new(Some(file))))
    }

    /// Does something with the file, without the GIL.
    ///
    /// # Errors
    /// `ValueError`: it is closed. `OSError`: as the client's.
    pub fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&File) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let file = self.0.get()?;
        let done = py.detach(|| {
            let file = file.read().unwrap_or_else(PoisonError::into_inner);
            file.as_ref().map(what)
        });
        done.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?.map_err(|e| store_error(&e))
    }
}

#[pymethods]
impl StoreFile {
    /// Bytes that it has, with what was written to it.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |file| Ok(file.size()))
    }

    /// Reads at an offset: fewer bytes only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let there = self.size(py)?.saturating_sub(offset).min(length);
        filled(py, there, |into| self.with(py, |file| file.read_at(offset, into)))
    }

    /// Fills a buffer from an offset on; how many bytes of it.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut lent = Lent::of(buffer)?;
        let into = lent.bytes_mut()?;
        self.with(py, |file| file.read_at(offset, into))
    }

    /// Writes all bytes at an offset.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let lent = Lent::of(data)?;
        let bytes = lent.bytes();
        self.with(py, |file| file.write_at(offset, bytes))
    }

    /// Cuts it to that size, or lengthens it by zeroes.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |file| file.truncate(size))
    }

    /// Publishes what was written.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, File::flush)
    }

    /// Publishes what was written and closes it. A file that is closed stays so.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.0.get()?;
        let closed = py.detach(|| {
            let file = file.write().unwrap_or_else(PoisonError::into_inner).take();
            file.map_or(Ok(()), File::close)
        });
        closed.map_err(|e| store_error(&e))
    }

    /// Closes it without publishing what was not flushed.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.0.get()?;
        py.detach(|| drop(file.write().unwrap_or_else(PoisonError::into_inner).take()));
        Ok(())
    }
}
