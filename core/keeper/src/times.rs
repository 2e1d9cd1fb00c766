//! How long things may take, and how often they may happen.

use weir_units::Nanos;

/// Deaths in a row after which none is started any more.
pub const MOST_DEATHS: u32 = 8;
/// A worker that has served so long has not died in a row with the one before it.
pub const SETTLED: Nanos = Nanos::from_secs(10);
/// A new program that dies within this time after it has taken over is replaced by the one before it.
pub const PROBATION: Nanos = Nanos::from_secs(10);
/// How long a program that is proposed may take to prepare, and to be ready, and the one before it to leave.
pub const UPGRADE_STEP_TIMEOUT: Nanos = Nanos::from_secs(10);
/// How long a worker may take to prepare where no upgrade says otherwise. It opens nothing and touches nothing before it goes.
pub const PREPARE_TIMEOUT: Nanos = Nanos::from_secs(60);
/// How long a worker that waits may take to answer when it is told to go. Its clients wait, and it does nothing before it answers.
pub const GO_ANSWER_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Deaths in a row that are followed by the next worker at once.
pub const AT_ONCE: u32 = 2;
/// The pause before the third worker in a row; it doubles with every further death.
pub const FIRST_PAUSE: Nanos = Nanos::from_millis(50);
/// So long a worker serves alone before a standby is started: clients that were waiting come first.
pub const BREATH: Nanos = Nanos::from_millis(20);
/// Workers that are killed from outside follow each other at this distance at least.
pub const KILL_PAUSE: Nanos = Nanos::from_millis(5);
