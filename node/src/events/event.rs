//! One event, as the node keeps it and as the API shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// What an event is about: [`NodeEvent::kind`].
pub mod kind {
    /// A disturbance of a drive, and what was done about it.
    pub const DRIVE: &str = "drive";
    /// A rule of failures has applied for the first time.
    pub const FAULT_RULE: &str = "fault-rule";
    /// A pool serves without a drive, a drive has taken the place of one, or one that was lost is back.
    pub const POOL: &str = "pool";
    /// A promise to a tenant is missed, or kept again.
    pub const PROMISE: &str = "promise";
    /// The process that serves has begun, or has died.
    pub const WORKER: &str = "worker";
    /// The program of the node is being replaced.
    pub const UPGRADE: &str = "upgrade";
    /// The operator's command (`on_failure`) could not be run, or failed.
    pub const ON_FAILURE: &str = "on-failure";
}

/// How much it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventLevel {
    /// To be known.
    #[default]
    Info,
    /// To be looked at.
    Warning,
    /// Commands fail, or will.
    Error,
}

impl EventLevel {
    /// As JSON has it.
    pub const fn word(self) -> &'static str {
        match self {
            EventLevel::Info => "info",
            EventLevel::Warning => "warning",
            EventLevel::Error => "error",
        }
    }
}

/// Something notable that has happened. Keys that do not fit an event are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct NodeEvent {
    /// Its number, from 1 on, in the order in which events happened. One that is missing between two others was lost with a crash.
    pub number: u64,
    /// When, in milliseconds since 1970-01-01 00:00 UTC, by the machine's clock.
    pub unix_ms: u64,
    /// What it is about: `drive`, `fault-rule`, `pool`, `promise`, `worker`, `upgrade`, `on-failure`; others in later releases.
    pub kind: String,
    /// What has happened, a word: of a drive `pause`, `reset`, `replay`, `fail`, `isolate`, `slow`, `healthy`; of others as the text says.
    pub what: String,
    /// How much it matters.
    pub level: EventLevel,
    /// The drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The number of the drive's disturbance: all of its events have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode: Option<u64>,
    /// What was wrong with the drive, as far as was known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// What was seen: the first and the last of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// How long that has lasted: of a drive from the beginning of the disturbance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// For how long commands have waited or failed, where they go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ns: Option<u64>,
    /// The event in a sentence.
    pub text: String,
}

impl NodeEvent {
    /// An event of this moment, without a number.
    pub fn new(kind: &str, what: &str, level: EventLevel, text: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { unix_ms, kind: kind.into(), what: what.into(), level, text, ..Self::default() }
    }
}
