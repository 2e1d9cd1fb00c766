//! Numbers that Python reads where they lie.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

enum Numbers {
    Reals(Vec<f64>),
    Counts(Vec<u64>),
    Words(Vec<u32>),
    Halves(Vec<u16>),
}

/// One column of a table: contiguous numbers that never change, lent through the buffer protocol.
#[pyclass(frozen, module = "weir._native")]
pub struct Column(Numbers);

/// What the buffer protocol says of a column.
struct Lent {
    start: *const c_void,
    length: usize,
    size: usize,
    /// As module `struct` writes it.
    format: &'static CStr,
}

impl Column {
    /// Of reals.
    pub fn reals(numbers: Vec<f64>) -> Self {
        Column(Numbers::Reals(numbers))
    }

    /// Of counts, or times in nanoseconds.
    pub fn counts(numbers: Vec<u64>) -> Self {
        Column(Numbers::Counts(numbers))
    }

    /// Of numbers of 32 bits.
    pub fn words(numbers: Vec<u32>) -> Self {
        Column(Numbers::Words(numbers))
    }

    /// Of numbers of 16 bits.
    pub fn halves(numbers: Vec<u16>) -> Self {
        Column(Numbers::Halves(numbers))
    }

    fn lent(&self) -> Lent {
        fn of<T>(numbers: &[T], format: &'static CStr) -> Lent {
            Lent { start: numbers.as_ptr().cast(), length: numbers.len(), size: size_of::<T>(), format }
        }
        match &self.0 {
            Numbers::Reals(numbers) => of(numbers, c"d"),
            Numbers::Counts(numbers) => of(numbers, c"Q"),
            Numbers::Words(numbers) => of(numbers, c"I"),
            Numbers::Halves(numbers) => of(numbers, c"H"),
        }
    }
}

#[pymethods]
impl Column {
    /// How many numbers.
    fn __len__(&self) -> usize {
        self.lent().length
    }

    /// The type of a number, as module `struct` writes it.
    #[getter]
    fn format(&self) -> &'static str {
        self.lent().format.to_str().unwrap_or_default()
    }

    /// # Safety
    /// `view` is where the interpreter wants the answer.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("nowhere to put the view"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a column is read-only"));
        }
        let Lent { start, length, size, format } = slf.get().lent();
        // Shape and stride of the one dimension live as long as the view: the release frees them.
        let layout = Box::into_raw(Box::new([length as ffi::Py_ssize_t, size as ffi::Py_ssize_t]));
        let wants = |flag: c_int| flags & flag == flag;
        // SAFETY: `view` is not null and the interpreter's to be filled. The numbers never change and live as long as the column,
        // which the view holds; the format is a constant.
        unsafe {
            (*view).obj = slf.into_any().into_ptr();
            (*view).buf = start.cast_mut();
            (*view).len = (length * size) as ffi::Py_ssize_t;
            (*view).readonly = 1;
            (*view).itemsize = size as ffi::Py_ssize_t;
            (*view).format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).ndim = 1;
            (*view).shape = if wants(ffi::PyBUF_ND) { layout.cast() } else { ptr::null_mut() };
            (*view).strides =
                if wants(ffi::PyBUF_STRIDES) { layout.cast::<ffi::Py_ssize_t>().add(1) } else { ptr::null_mut() };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = layout.cast();
        }
        Ok(())
    }

    /// # Safety
    /// `view` was filled by `__getbuffer__`, and is released once.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `internal` is the box that `__getbuffer__` has leaked.
        drop(unsafe { Box::from_raw((*view).internal.cast::<[ffi::Py_ssize_t; 2]>()) });
    }
}
