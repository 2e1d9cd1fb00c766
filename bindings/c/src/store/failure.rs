//! What goes wrong, as a negative number of `errno.h` and as a text that the thread keeps.

use crate::abi::{self, ErrorOut};
use crate::error::{Code, Error};
use crate::store::handles::Handle;
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_store_node::client::ClientError;

thread_local! {
    static REASON: RefCell<CString> = RefCell::default();
}

/// A call that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Of `errno.h`, positive.
    errno: i32,
    text: String,
}

impl StoreFailure {
    /// That number, and why.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno: errno.raw_os_error(), text: text.into() }
    }

    /// EINVAL: a wrong argument.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Errno::INVAL, text)
    }

    /// EIO: a panic.
    pub fn internal() -> Self {
        Self::new(Errno::IO, "an error inside libweir: please report it")
    }

    /// What a function returns for it.
    pub fn code(&self) -> i64 {
        -i64::from(self.errno)
    }

    /// The text as C reads it.
    pub fn reason(&self) -> CString {
        // A name may have any byte but a zero; where one has come in, the text ends there.
        let text = self.text.split('\0').next().unwrap_or_default();
        CString::new(text).unwrap_or_default()
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<ClientError> for StoreFailure {
    fn from(error: ClientError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<Error> for StoreFailure {
    fn from(error: Error) -> Self {
        let errno = if error.code == Code::Usage { Errno::INVAL } else { Errno::IO };
        Self::new(errno, error.text)
    }
}

/// The text of the thread's last failure.
pub fn reason() -> *const c_char {
    // A thread that is ending has none any more.
    REASON.try_with(|reason| reason.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Keeps a failure's text for [`reason`].
pub fn remember(failure: &StoreFailure) {
    let _ = REASON.try_with(|reason| *reason.borrow_mut() = failure.reason());
}

/// Runs `f`; a panic in it becomes a failure. The thread keeps the text of one.
fn guarded<T>(f: impl FnOnce() -> Result<T, StoreFailure>) -> Result<T, StoreFailure> {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(StoreFailure::internal()));
    result.inspect_err(remember)
}

/// As a function that returns a number, negative when it fails.
pub fn answer(f: impl FnOnce() -> Result<i64, StoreFailure>) -> i64 {
    guarded(f).unwrap_or_else(|failure| failure.code())
}

/// As a function that returns a small number, negative when it fails.
pub fn status(f: impl FnOnce() -> Result<c_int, StoreFailure>) -> c_int {
    guarded(f).unwrap_or_else(|failure| -failure.errno)
}

/// As a function that returns a handle, null when it fails.
///
/// # Safety
/// `error` is null or writable.
pub unsafe fn made(error: *mut ErrorOut, f: impl FnOnce() -> Result<*mut Handle, StoreFailure>) -> *mut Handle {
    let (handle, said) = match guarded(f) {
        Ok(handle) => (handle, ErrorOut::none()),
        Err(failure) => {
            let said = ErrorOut { code: -failure.errno, message: abi::text(&failure.text) };
            (std::ptr::null_mut(), said)
        }
    };
    if !error.is_null() {
        // SAFETY: the caller gave a writable structure, of any alignment.
        unsafe { error.write_unaligned(said) };
    }
    handle
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_is_a_code_and_the_thread_keeps_the_reason() {
        let said = || {
            // SAFETY: the thread's own text, which the next failure replaces.
            unsafe { CStr::from_ptr(reason()) }.to_str().unwrap().to_owned()
        };
        assert_eq!(said(), "");
        assert_eq!(answer(|| panic!("on purpose")), -5);
        assert_eq!(said(), "an error inside libweir: please report it");
        assert_eq!(answer(|| Err(StoreFailure::usage("cut\0here"))), -22);
        assert_eq!(said(), "cut");
        assert_eq!(answer(|| Ok(7)), 7);
        assert_eq!(said(), "cut", "success leaves it");
        assert_eq!(std::thread::spawn(|| reason().is_null()).join().ok(), Some(false));
    }
}
