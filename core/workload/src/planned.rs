//! Requests that are made at given times, and what became of them.

use weir_units::Nanos;

/// A request that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When.
    pub at: Nanos,
    /// Whether it writes; else it reads.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// When the drive got it.
    pub arrived: Nanos,
    /// When the model has it complete.
    pub due: Nanos,
    /// When its client saw that it was.
    pub seen: Nanos,
    /// For how much of the time from `due` to `seen` the thread was ready to run and had no core.
    pub waited: Nanos,
}
