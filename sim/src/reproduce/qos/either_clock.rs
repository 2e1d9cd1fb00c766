//! Jobs that share a drive, by whichever clock was asked for.

use super::shared_drive::{SharedDrive, Span, simulated};
use crate::reproduce::LiveMeasurements;
use weir_workload::{Job, JobResult};

/// In virtual time, or by the real clock where that was asked for.
pub(super) fn shared(
    live: &mut dyn LiveMeasurements,
    drive: &SharedDrive,
    jobs: &[Job],
    span: Span,
) -> Result<Vec<JobResult>, String> {
    if live.is_preferred() { live.shared(drive, jobs, span) } else { Ok(simulated(drive, jobs, span)) }
}

pub(super) fn clock(live: &dyn LiveMeasurements) -> &'static str {
    match live.is_preferred() {
        true => "In real time: a drive in memory (local:ram), it and its clients in one thread.",
        false => "In virtual time.",
    }
}
