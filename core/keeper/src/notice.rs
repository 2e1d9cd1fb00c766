//! What the keeper has to say.

use super::End;
use weir_units::Nanos;

/// What an operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The worker died and another one takes over.
    Restarting(End),
    /// It died so many times in a row; the next one comes after a pause.
    Pausing {
        /// How often.
        deaths: u32,
        /// How long.
        pause: Nanos,
    },
    /// It died [`MOST_DEATHS`](super::MOST_DEATHS) times in a row; none is started any more.
    Failed(End),
    /// The worker was killed because it did not prepare or did not answer, and the node ends.
    Hung(End),
    /// The standby died; the next one comes after a pause, or when the next worker has taken over.
    Standby {
        /// How.
        end: End,
        /// How long.
        pause: Option<Nanos>,
    },
    /// A new program serves, on probation.
    Probation,
    /// A new program serves, for good.
    Upgraded,
    /// An upgrade was given up before the program that serves knew of it.
    Kept(Refused),
    /// The new program has taken over, or was to, and failed; the one before it takes over again.
    Back(Refused),
}

/// Why an upgrade did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No worker serves, an upgrade is under way, or the node ends.
    Busy,
    /// The new program ended before it was prepared.
    Ended(End),
    /// It was not prepared, or not ready, in time.
    Hung,
    /// One of the two does not read what the other one writes.
    Layout,
    /// It took over and died soon after.
    Died(End),
}
