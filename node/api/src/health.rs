//! What is wrong with a drive, as JSON has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_controller::{FailingBlock, FailingDie};
use weir_driver::health::{Extent, HealthReport, NotJudged, Slowness, Speed, VerdictCount};
use weir_node::{HealthStatus, SpeedStatus};
use weir_units::Nanos;

/// What is wrong with a drive, and what was done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveHealth {
    /// `serving`; else where its diagnosis stands: `asking`, `resetting`, `identifying`, `verifying`, `waiting`, `isolated`, `other-drive`.
    pub state: String,
    /// What becomes of commands: they are `sent`, they `wait`, or they `fail`.
    pub commands: String,
    /// What is wrong now; absent where nothing is: `busy`, `slow`, `full`, `read-only`, `wear-warning`, `controller`, `link`, `path`, `namespace`,
    /// `removed`, `bad-blocks`, `failing-die`, `other-drive`, `media`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// What that means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Blocks that cannot be read, until they are written: first block and number of blocks.
    pub bad_blocks: Vec<BlockRange>,
    /// Blocks that rules of failures make fail now, the latest 16; what has failed within the last minute fails now.
    #[serde(default)]
    pub failing_blocks: Vec<FailingBlockStatus>,
    /// Dies of its flash of which rules of failures make pages fail now: those with several pages.
    #[serde(default)]
    pub failing_dies: Vec<FailingDieStatus>,
    /// Bits of the critical warning of its SMART log; of a drive on another drive that one's, absent before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_warning: Option<u8>,
    /// Available spare of its SMART log, in percent; absent before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_spare_pct: Option<u8>,
    /// Media and data integrity errors of its SMART log; absent before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_errors: Option<u64>,
    /// How fast it is, compared with its model; absent of a drive without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<DriveSpeed>,
    /// Disturbances since it was opened that are over.
    pub disturbances: u64,
    /// How they have ended.
    #[serde(default)]
    pub verdicts: Vec<VerdictTotal>,
    /// For how long commands have waited or failed, the last time that they did and then went on; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause_s: Option<f64>,
    /// The latest ones, the last one last.
    pub reports: Vec<DriveReport>,
}

/// Disturbances with one verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictTotal {
    /// The verdict.
    pub verdict: String,
    /// Disturbances since it was opened.
    pub disturbances: u64,
}

/// How fast a drive is, compared with its model or its calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveSpeed {
    /// `as-expected`, `slow`, or `not-judged`.
    pub state: String,
    /// Why it is not judged: `idle` where the drive has too little to do, `disturbed` where the machine that runs the node was late itself,
    /// `interrupted` where commands were kept from the drive, `unmeasured` where its calibration has no such load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Of a slow drive: measured time over expected time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The die that is slow, or the slowest of several; absent where it is the whole drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub die: Option<u32>,
    /// Every die that is slow.
    pub dies: Vec<SlowDie>,
    /// Windows that were judged, of the drive and its dies together.
    pub windows: u64,
    /// Looks that say nothing of the drive.
    pub dropped: u64,
}

/// A die that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowDie {
    /// Its number, as rules of failures have it.
    pub die: u32,
    /// Measured time of its array operations over expected time.
    pub factor: f64,
}

/// Logical blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRange {
    /// The first.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// A block that fails now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailingBlockStatus {
    /// Its namespace.
    pub nsid: u32,
    /// The block.
    pub lba: u64,
    /// Commands that have failed there since it was last quiet for a minute.
    pub errors: u64,
    /// How long ago the last one did.
    pub last_ago_s: f64,
}

/// A die whose pages fail now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailingDieStatus {
    /// Its number, as rules of failures have it.
    pub die: u32,
    /// Reads that have failed there since it was last quiet for a minute.
    pub errors: u64,
    /// How long ago the last one did.
    pub last_ago_s: f64,
}

/// A disturbance of a drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveReport {
    /// How long ago it began.
    pub began_ago_s: f64,
    /// How long it took; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<f64>,
    /// What was wrong.
    pub verdict: String,
    /// What was seen, and what was done, in order of time.
    pub steps: Vec<DriveReportStep>,
    /// Pieces of evidence that are not listed.
    pub unlisted: u32,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveReportStep {
    /// Seconds after the beginning.
    pub after_s: f64,
    /// What was seen; absent of what was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// What was done; absent of what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
}

impl From<HealthStatus> for DriveHealth {
    fn from(found: HealthStatus) -> Self {
        let verdict = found.verdict();
        let block = |extent: &Extent| BlockRange { lba: extent.lba, blocks: extent.blocks };
        DriveHealth {
            state: found.state.word().into(),
            commands: found.gate.word().into(),
            verdict: verdict.map(|verdict| verdict.name().into()),
            meaning: verdict.map(|verdict| verdict.meaning().into()),
            advice: verdict.map(|verdict| verdict.advice().into()),
            bad_blocks: found.bad_blocks.iter().map(block).collect(),
            failing_blocks: found.failing_blocks.iter().map(|block| failing_block(block, found.now)).collect(),
            failing_dies: found.failing_dies.iter().map(|die| failing_die(die, found.now)).collect(),
            available_spare_pct: found.smart.map(|smart| smart.available_spare),
            critical_warning: found.smart.map(|smart| smart.critical_warning),
            media_errors: found.smart.map(|smart| smart.media_errors.min(u64::MAX.into()) as u64),
            speed: found.speed.map(Into::into),
            disturbances: found.disturbances,
            verdicts: found.verdicts.iter().map(total).collect(),
            last_pause_s: found.last_pause.map(Nanos::as_secs_f64),
            reports: found.reports.iter().map(|report| drive_report(report, found.now)).collect(),
        }
    }
}

fn failing_block(of: &FailingBlock, now: Nanos) -> FailingBlockStatus {
    let last_ago_s = now.saturating_sub(of.last).as_secs_f64();
    FailingBlockStatus { nsid: of.nsid, lba: of.lba, errors: of.errors, last_ago_s }
}

fn failing_die(of: &FailingDie, now: Nanos) -> FailingDieStatus {
    FailingDieStatus { die: of.die, errors: of.errors, last_ago_s: now.saturating_sub(of.last).as_secs_f64() }
}

fn total(of: &VerdictCount) -> VerdictTotal {
    VerdictTotal { verdict: of.verdict.name().into(), disturbances: of.count }
}

/// A factor of a ratio in percent.
fn factor(slowness: &Slowness) -> f64 {
    f64::from(slowness.percent) / 100.0
}

impl From<SpeedStatus> for DriveSpeed {
    fn from(found: SpeedStatus) -> Self {
        let (state, why, slowness) = match found.speed {
            Speed::AsExpected => ("as-expected", None, None),
            Speed::Slow(slowness) => ("slow", None, Some(slowness)),
            Speed::NotJudged(NotJudged::Idle) => ("not-judged", Some("idle"), None),
            Speed::NotJudged(NotJudged::Disturbed) => ("not-judged", Some("disturbed"), None),
            Speed::NotJudged(NotJudged::Interrupted) => ("not-judged", Some("interrupted"), None),
            Speed::NotJudged(NotJudged::Unmeasured) => ("not-judged", Some("unmeasured"), None),
        };
        let slow_die = |slowness: &Slowness| Some(SlowDie { die: slowness.die?, factor: factor(slowness) });
        DriveSpeed {
            state: state.into(),
            why: why.map(Into::into),
            factor: slowness.as_ref().map(factor),
            die: slowness.and_then(|slowness| slowness.die),
            dies: found.dies.iter().filter_map(slow_die).collect(),
            windows: found.windows,
            dropped: found.dropped,
        }
    }
}

fn drive_report(report: &HealthReport, now: Nanos) -> DriveReport {
    let after = |at: Nanos| at.saturating_sub(report.began).as_secs_f64();
    let seen = report.seen.iter().map(|seen| {
        let step = DriveReportStep { after_s: after(seen.at), seen: Some(seen.evidence.to_string()), done: None };
        (seen.at, step)
    });
    let done = report.taken.iter().map(|taken| {
        let step = DriveReportStep { after_s: after(taken.at), seen: None, done: Some(taken.step.to_string()) };
        (taken.at, step)
    });
    // What was seen comes before what was done about it.
    let mut steps: Vec<(Nanos, DriveReportStep)> = seen.chain(done).collect();
    steps.sort_by_key(|(at, _)| *at);
    DriveReport {
        began_ago_s: now.saturating_sub(report.began).as_secs_f64(),
        took_s: report.ended.map(after),
        verdict: report.verdict.name().into(),
        steps: steps.into_iter().map(|(_, step)| step).collect(),
        unlisted: report.unlisted,
    }
}
