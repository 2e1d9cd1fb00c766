//! Device self-test (base 2.0, 5.9 and 8.6).
//!
//! Its segments: 1 memory (the drive's own invariants), 2 SMART, 3 what is remembered without power can be written and read again,
//! 6 data integrity (the media of the namespaces is read: all of it in an extended test, samples in a short one), 9 SMART again. The
//! reading is long work of the drive's own. One runs at a time in the whole subsystem. A reset of the controller that began it ends a
//! short one; an extended one goes on, also after the loss of power, where it begins anew.

use alloc::collections::VecDeque;
use weir_spec::nvme::maintenance::SelfTestResult;

/// Results that are kept.
pub(crate) const RESULTS: usize = 20;
/// The test under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTest {
    pub code: u8,
    pub nsid: u32,
    /// The controller that began it, with its generation; `None` after the loss of power.
    pub by: Option<(u32, u16)>,
}

/// The self-tests of a drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelfTest {
    pub running: Option<RunningTest>,
    /// Newest first.
    pub results: VecDeque<SelfTestResult>,
}
