//! What can go wrong, as codes and as text.

use std::ffi::CStr;
use weir_driver::TransportError;

/// The codes of `weir.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// WEIR_OK.
    Ok = 0,
    /// WEIR_EUSAGE.
    Usage = -1,
    /// WEIR_ERANGE.
    Range = -2,
    /// WEIR_EAGAIN.
    Again = -3,
    /// WEIR_EBUSY.
    Busy = -4,
    /// WEIR_ENOMEM.
    NoMemory = -5,
    /// WEIR_EUNREACHABLE.
    Unreachable = -6,
    /// WEIR_EREFUSED.
    Refused = -7,
    /// WEIR_ECLOSED.
    Closed = -8,
    /// WEIR_EPROTOCOL.
    Protocol = -9,
    /// WEIR_ETIMEOUT.
    Timeout = -10,
    /// WEIR_EIO.
    Io = -11,
    /// WEIR_EINTERNAL.
    Internal = -12,
}

/// Code and meaning.
const TEXTS: [(Code, &CStr); 13] = [
    (Code::Ok, c"no error"),
    (Code::Usage, c"a null or wrong argument, or a call from the wrong thread"),
    (Code::Range, c"not whole blocks, longer than max_io, or beyond the end of the drive"),
    (Code::Again, c"as many requests are in flight as the queue takes: poll first"),
    (Code::Busy, c"in use by another thread, by a callback, or by a request in flight"),
    (Code::NoMemory, c"no memory, or no further buffer"),
    (Code::Unreachable, c"nobody answers there"),
    (Code::Refused, c"the other side refused"),
    (Code::Closed, c"the other side closed the connection"),
    (Code::Protocol, c"the other side broke the protocol"),
    (Code::Timeout, c"the other side did not answer in time"),
    (Code::Io, c"the drive ended the request with an error: see its NVMe status"),
    (Code::Internal, c"an error inside libweir: please report it"),
];

/// What a code means.
pub fn describe(code: i32) -> &'static CStr {
    TEXTS.iter().find(|(c, _)| *c as i32 == code).map_or(c"no such code", |(_, text)| *text)
}

/// A code, and a text that says what and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// For programs.
    pub code: Code,
    /// For people.
    pub text: String,
}

impl Error {
    /// With the code's own text.
    pub fn of(code: Code) -> Self {
        Self { code, text: describe(code as i32).to_string_lossy().into_owned() }
    }

    /// A wrong argument.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: Code::Usage, text: text.into() }
    }
}

impl From<TransportError> for Error {
    fn from(e: TransportError) -> Self {
        let code = match &e {
            TransportError::Unreachable(_) => Code::Unreachable,
            TransportError::Refused(_) | TransportError::NoNamespace(_) => Code::Refused,
            TransportError::Closed(_) => Code::Closed,
            TransportError::Protocol(_) => Code::Protocol,
            TransportError::Timeout(_) => Code::Timeout,
            TransportError::Usage(_) => Code::Usage,
        };
        Self { code, text: e.to_string() }
    }
}
