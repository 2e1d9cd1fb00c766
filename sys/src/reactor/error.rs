//! What keeps a reactor from being set up, and what to do about it.

use std::fmt;
use std::io;

/// Why there is no reactor.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReactorError {
    /// The kernel has no io_uring, or one too old.
    Unsupported,
    /// A policy forbids it.
    Forbidden,
    /// Anything else, mostly a shortage of memory or descriptors.
    Io(io::Error),
}

impl fmt::Display for ReactorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReactorError::Unsupported => f.write_str(
                "this kernel has no usable io_uring: Linux 5.13 or newer, built with CONFIG_IO_URING, is needed",
            ),
            ReactorError::Forbidden => f.write_str(
                "io_uring is forbidden here: set `sysctl kernel.io_uring_disabled=0`, and in a container allow io_uring_setup, \
                 io_uring_enter and io_uring_register in its seccomp profile",
            ),
            ReactorError::Io(e) => write!(f, "cannot set up io_uring: {e}"),
        }
    }
}

impl std::error::Error for ReactorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReactorError::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for ReactorError {
    fn from(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ENOSYS) => ReactorError::Unsupported,
            Some(libc::EPERM | libc::EACCES) => ReactorError::Forbidden,
            _ => ReactorError::Io(e),
        }
    }
}
