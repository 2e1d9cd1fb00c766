//! What the kernel's errors mean to an NVMe host, and the memory of the first that mattered.

use rustix::io::Errno;
use std::fmt;
use weir_spec::nvme::Status;

/// What a medium was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Read,
    Write,
    Zero,
    Flush,
}

impl Doing {
    fn words(self) -> &'static str {
        match self {
            Doing::Read => "read",
            Doing::Write => "write",
            Doing::Zero => "write of zeroes",
            Doing::Flush => "flush",
        }
    }
}

/// Whether the error is a shortage: nothing is broken, and it may pass.
pub(super) fn is_shortage(e: Errno) -> bool {
    matches!(e, Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::AGAIN | Errno::NOMEM | Errno::INTR)
}

/// The status for a kernel's error (NVM command set 1.0, 3.2; base 2.0, Figure 94).
pub(super) fn status(doing: Doing, e: Errno) -> Status {
    match e {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CAPACITY_EXCEEDED,
        Errno::AGAIN | Errno::NOMEM | Errno::INTR => Status::COMMAND_INTERRUPTED,
        _ if doing == Doing::Read => Status::UNRECOVERED_READ_ERROR,
        _ => Status::WRITE_FAULT,
    }
}

/// The failure that poisoned a medium.
#[derive(Clone, Debug)]
pub struct MediumFault {
    pub(super) medium: String,
    pub(super) doing: Doing,
    pub(super) offset: u64,
    pub(super) cause: Errno,
}

impl fmt::Display for MediumFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = std::io::Error::from(self.cause);
        write!(f, "{}: {} failed", self.medium, self.doing.words())?;
        if self.doing != Doing::Flush {
            write!(f, " at byte {}", self.offset)?;
        }
        write!(f, ": {cause}; it takes no more writes until it is opened again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_as_hosts_know_them() {
        assert_eq!(status(Doing::Read, Errno::IO), Status::UNRECOVERED_READ_ERROR);
        assert_eq!(status(Doing::Write, Errno::IO), Status::WRITE_FAULT);
        assert_eq!(status(Doing::Flush, Errno::NODEV), Status::WRITE_FAULT);
        assert_eq!(status(Doing::Write, Errno::NOSPC), Status::CAPACITY_EXCEEDED);
        assert_eq!(status(Doing::Zero, Errno::AGAIN), Status::COMMAND_INTERRUPTED);
        assert!(is_shortage(Errno::DQUOT) && !is_shortage(Errno::IO));
        let fault = MediumFault { medium: "file:/x".into(), doing: Doing::Write, offset: 4096, cause: Errno::IO };
        let text = fault.to_string();
        assert!(text.contains("file:/x") && text.contains("write failed at byte 4096"), "{text}");
    }
}
