//! What belongs to the process that has made it: a process that was forked has neither its threads nor a right to its sockets.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Something of one process. In another one it cannot be used, and is not torn down: that would speak through the parent's connections.
pub struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// Of this process.
    pub fn new(value: T) -> Self {
        OfProcess { process: std::process::id(), value: Some(value) }
    }

    /// What it is.
    ///
    /// # Errors
    /// `RuntimeError`: this is another process.
    pub fn get(&self) -> PyResult<&T> {
        let value = self.value.as_ref().filter(|_| self.process == std::process::id());
        value.ok_or_else(|| PyRuntimeError::new_err("it was opened by the process that forked this one; open it again"))
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
