//! Why a request comes to nothing: the number for the program that has asked, and the reason for the log.

use fuser::Errno;
use std::fmt;
use weir_store::StoreError;
use weir_store_node::client::{ClientError, ClientErrorKind};

/// A request that came to nothing.
#[derive(Debug)]
pub struct Failed {
    /// What the program gets.
    pub errno: Errno,
    /// What the log gets; nothing where the number says it all.
    pub reason: Option<String>,
    /// The store was not reached in time.
    pub is_late: bool,
}

impl Failed {
    /// With a number that says it all.
    pub fn quiet(errno: Errno) -> Self {
        Self { errno, reason: None, is_late: false }
    }

    /// With a reason for the log.
    pub fn because(errno: Errno, reason: impl fmt::Display) -> Self {
        Self { errno, reason: Some(reason.to_string()), is_late: false }
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        let errno = errno(&error);
        let is_late = matches!(error.kind(), ClientErrorKind::Unreachable(_) | ClientErrorKind::Deadline);
        let reason = (!is_usual(error.kind())).then(|| error.to_string());
        Self { errno, reason, is_late }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::from(ClientError::from(error))
    }
}

/// Programs ask for what is not there all the time: that is no line of the log.
fn is_usual(kind: &ClientErrorKind) -> bool {
    let usual = [
        StoreError::NotFound,
        StoreError::Exists,
        StoreError::NotEmpty,
        StoreError::NotDirectory,
        StoreError::IsDirectory,
        StoreError::NoAttribute,
        StoreError::NameTooLong,
    ];
    matches!(kind, ClientErrorKind::Store(error) if usual.contains(error))
}

/// The number that the program gets. A store that is not reached is late for it, and a session that is over an error of input and output.
fn errno(error: &ClientError) -> Errno {
    match error.kind() {
        ClientErrorKind::Unreachable(_) => Errno::ETIMEDOUT,
        ClientErrorKind::SessionOver => Errno::EIO,
        _ => Errno::from_i32(error.errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_number_that_they_know() {
        let of = |error: StoreError| i32::from(Failed::from(error).errno);
        // ENOENT, EEXIST, ENOTEMPTY, ENOSPC, EBUSY, EPERM, ENAMETOOLONG of Linux, x86-64.
        let expected = [
            (StoreError::NotFound, 2),
            (StoreError::Exists, 17),
            (StoreError::NotEmpty, 39),
            (StoreError::NoSpace, 28),
            (StoreError::Busy, 16),
            (StoreError::HardLink, 1),
            (StoreError::NameTooLong, 36),
            (StoreError::Damaged, 5),
        ];
        for (error, number) in expected {
            assert_eq!(of(error), number, "{error:?}");
        }
    }

    #[test]
    fn the_log_has_what_the_number_does_not_say() {
        assert_eq!(Failed::from(StoreError::NotFound).reason, None);
        let full = Failed::from(ClientError::from(StoreError::NoSpace).at("/a"));
        assert!(full.reason.is_some_and(|reason| reason.starts_with("/a: no class")));
        let late = Failed::from(ClientError::new(ClientErrorKind::Deadline));
        assert!(late.is_late && i32::from(late.errno) == 110 && late.reason.is_some());
        assert!(!Failed::from(StoreError::Damaged).is_late);
    }
}
