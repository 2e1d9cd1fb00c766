//! What an operator decides, and the limits of the questions.

use super::evidence::ResetLevel;
use weir_units::Nanos;

/// What becomes of commands while a drive is away from its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// They fail at once.
    Error,
    /// They wait that long, then fail until it is back.
    Hold(Nanos),
}

/// Limits. Times are of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long commands wait for a drive that does not serve; then they fail until it does.
    pub hold: Nanos,
    /// The same, of a drive that was removed.
    pub removal: Removal,
    /// Different unreadable blocks for which a drive is reset, and isolated if they are unreadable again. Fewer are bad blocks.
    pub isolate_blocks: u32,
    /// How long a bad block counts that is not written.
    pub memory: Nanos,
    /// Failures of the controller's within [`window`](Self::window) that begin a reset.
    pub controller_failures: u32,
    /// Retries of one command before the controller is reset for it.
    pub retries: u32,
    /// How long failures of the controller's count.
    pub window: Nanos,
    /// How long after a reset that confirmed bad blocks further ones are believed without another reset.
    pub credit: Nanos,
    /// How long a question may take: Get Log Page, Identify, a register.
    pub answer_limit: Nanos,
    /// How long resets may take, by [`ResetLevel`]: of a controller, CAP.TO.
    pub reset_limits: [Nanos; ResetLevel::ALL.len()],
    /// The first pause before the same is tried again, which doubles up to the longest.
    pub retry_delay: Nanos,
    /// The longest pause.
    pub longest_delay: Nanos,
    /// The drive can be asked, reset and sent commands again. Of one that the kernel drives, the kernel has done what there is to do before a command
    /// fails: failures are delivered and told, and no command ever waits.
    pub recovers: bool,
}

impl Policy {
    /// Of a drive that the kernel drives: a file, a block device.
    pub fn of_kernel() -> Self {
        Policy { recovers: false, ..Policy::default() }
    }

    /// How long a reset may take.
    pub fn reset_limit(&self, level: ResetLevel) -> Nanos {
        self.reset_limits[level as usize]
    }

    /// The pause before the attempt after `attempts` others.
    pub fn delay(&self, attempts: u32) -> Nanos {
        let doubled = self.retry_delay.0.checked_shl(attempts.min(20)).unwrap_or(u64::MAX);
        Nanos(doubled.min(self.longest_delay.0))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            hold: Nanos::from_secs(30),
            removal: Removal::Error,
            isolate_blocks: 8,
            memory: Nanos::from_secs(86_400),
            controller_failures: 8,
            retries: 3,
            window: Nanos::from_secs(1),
            credit: Nanos::from_secs(60),
            answer_limit: Nanos::from_secs(2),
            reset_limits: [
                Nanos::from_millis(500),
                Nanos::from_secs(1),
                Nanos::from_secs(15),
                Nanos::from_secs(15),
                Nanos::from_secs(5),
            ],
            retry_delay: Nanos::from_millis(10),
            longest_delay: Nanos::from_secs(1),
            recovers: true,
        }
    }
}
