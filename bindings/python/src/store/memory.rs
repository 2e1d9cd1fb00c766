//! Memory of Python's that a call reads or fills while the GIL is released.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::{ptr, slice};

/// The bytes of an object that has the buffer protocol: `bytes`, `bytearray`, `memoryview`, an array.
pub struct Lent(PyUntypedBuffer);

impl Lent {
    /// Of an object.
    ///
    /// # Errors
    /// `BufferError`: its bytes do not lie behind one another. `TypeError`: it has none.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Lent(buffer)),
            false => {
                Err(PyBufferError::new_err("the bytes of the buffer do not lie behind one another; copy it first"))
            }
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the view holds the memory, of that length and contiguous, until it is dropped. A thread of Python that changes it
            // meanwhile does to this what it does to `os.write`: bytes of before or after are sent, and nothing is decided by them.
            length => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), length) },
        }
    }

    /// Its bytes, to be filled.
    ///
    /// # Errors
    /// `BufferError`: it is read-only.
    pub fn bytes_mut(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        match self.0.len_bytes() {
            0 => Ok(&mut []),
            // SAFETY: as above, and it is writable. A thread of Python that looks at it meanwhile sees what `readinto` of a file shows it.
            length => Ok(unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), length) }),
        }
    }
}

/// From so many bytes on, memory is asked for in huge pages.
const HUGE_FROM: usize = 4 << 20;
/// A page.
const PAGE: usize = 4 << 10;

/// Bytes of that length, filled by `fill`, which says how many it has filled.
///
/// # Errors
/// `fill`'s, or that memory cannot have as many.
pub fn filled<'py>(
    py: Python<'py>,
    length: u64,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let too_many = || PyValueError::new_err("more bytes than memory can have");
    let length = ffi::Py_ssize_t::try_from(length).map_err(|_| too_many())?;
    // SAFETY: without bytes to copy Python makes an object of that length, or none and an error.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(ptr::null(), length))? };
    let bytes = made.cast_into::<PyBytes>()?;
    // SAFETY: the object has that many bytes, whatever its allocator has left in them, and nobody else knows it yet.
    let into =
        unsafe { slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>(), length.unsigned_abs()) };
    want_huge_pages(into);
    let count = fill(into)?;
    // Fewer only where the file was cut meanwhile.
    if count == into.len() { Ok(bytes) } else { Ok(PyBytes::new(py, &bytes.as_bytes()[..count])) }
}

/// Has the kernel back fresh memory by huge pages, where it does that for who asks: faulting in small ones takes about as long as a read.
fn want_huge_pages(bytes: &mut [u8]) {
    let skipped = bytes.as_ptr().align_offset(PAGE);
    if bytes.len() >= HUGE_FROM && skipped < bytes.len() {
        let pages = &mut bytes[skipped..];
        // SAFETY: the range is ours, and this advice changes nothing of what is in it. It may be refused.
        unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_HUGEPAGE) };
    }
}
