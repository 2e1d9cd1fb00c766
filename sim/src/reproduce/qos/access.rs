//! How a program reaches its bytes, and what that costs it.

use weir_units::Nanos;

/// How a program reaches a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPath {
    /// Our driver, and a drive of ours that has its bytes there.
    Driver,
    /// io_uring, straight.
    Uring,
    /// pread and pwrite, straight.
    Calls,
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A file on a disk, direct I/O.
    Disk,
    /// Memory: a drive of ours in shared memory, a file on a tmpfs for Linux.
    Memory,
}

/// Random requests, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPattern {
    /// By which way.
    pub way: AccessPath,
    /// Of what.
    pub place: Storage,
    /// Bytes of a request.
    pub size: u32,
    /// Writes, or else reads.
    pub write: bool,
}

impl AccessPattern {
    /// Bytes of the longest request.
    pub const MOST: u32 = 256 << 10;
}

/// What requests took: medians, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// In the calls that submit.
    pub submit: f64,
    /// In the call that found the completion; those that found nothing are waiting for the drive.
    pub complete: f64,
    /// From before the submission until after that call.
    pub whole: f64,
}

/// What a run took of the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Requests.
    pub ios: u64,
    /// By the clock.
    pub time: Nanos,
    /// In the program.
    pub user: Nanos,
    /// In the kernel.
    pub system: Nanos,
}

impl Usage {
    pub(super) fn add(self, other: Usage) -> Usage {
        let sum = |a: Nanos, b: Nanos| a.saturating_add(b);
        Usage {
            ios: self.ios + other.ios,
            time: sum(self.time, other.time),
            user: sum(self.user, other.user),
            system: sum(self.system, other.system),
        }
    }

    /// User and system time.
    pub(super) fn both(&self) -> Nanos {
        self.user.saturating_add(self.system)
    }

    /// Percent of a core.
    pub(super) fn share(&self, part: Nanos) -> f64 {
        part.as_secs_f64() / self.time.as_secs_f64().max(1e-9) * 100.0
    }

    /// Nanoseconds of a request.
    pub(super) fn each(&self, part: Nanos) -> f64 {
        part.0 as f64 / self.ios.max(1) as f64
    }
}
