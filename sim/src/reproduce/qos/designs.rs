//! The designs of an emulation that are compared, and by what load.

use crate::reproduce::numbers::median;

/// Requests that a client has outstanding.
pub(super) const DEPTH: u32 = 128;
/// Bytes of requests.
pub(super) const SIZES: [u32; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// So often everything is measured, in turn; medians are told.
pub(super) const ROUNDS: usize = 5;
pub(super) const OURS: &str = "ours";

/// A way to choose whom to serve, with everything else the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// A timer for each submission queue, and a thread that empties the queues: [`QueueTimers`](super::QueueTimers).
    Timers,
    /// Weighted round robin.
    Wrr,
    /// Deficit round robin.
    Drr,
}

impl Design {
    pub(super) fn name(self) -> &'static str {
        match self {
            Design::Timers => "old design",
            Design::Wrr => "WRR",
            Design::Drr => "DRR",
        }
    }
}

/// What is asked of it: random requests, 128 outstanding a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// A queue pair each.
    pub clients: u32,
    /// Bytes of a request.
    pub size: u32,
    /// Writes, or else reads.
    pub write: bool,
}

impl Load {
    /// Requests that a client has outstanding.
    pub const DEPTH: u32 = DEPTH;
}

/// The middle of the rounds.
pub(super) fn middle(rounds: &[f64]) -> f64 {
    median(rounds.to_vec())
}

/// Whether the new is as fast as the old, within what two measurements of one thing differ by.
pub(super) fn fastest(new: f64, old: f64) -> bool {
    new >= 0.95 * old
}

pub(super) fn about_designs() -> Vec<String> {
    vec![
        "The old design chooses as QEMU's device did (text of II.B): a doorbell sets its queue's timer 500 ns ahead; when it is \
         over, the one thread takes up to 64 commands from that queue, and sets it again if there are more. Controller, driver and \
         media are ours in all designs, and the drive empties what it is handed (arbitration = \"none\"), so only the choice differs."
            .into(),
    ]
}
