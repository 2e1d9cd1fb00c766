//! Upgrades, as the keeper and its workers tell each other of them, in JSON: they may be of different releases. The API says the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which program is to serve from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeStart {
    /// Its path, absolute, and only over the UNIX socket; what is now at the path of the program that the node was started with if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// How long it may take to prepare, and to be ready; 10 s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000_000, max = 3_600_000_000_000_u64))]
    pub within_ns: Option<u64>,
    /// One that dies within this time after it was ready is replaced by the one before it; 10 s if absent, 0: there is no way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3_600_000_000_000_u64))]
    pub probation_ns: Option<u64>,
}

const MILLISECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600_000_000_000;

impl UpgradeStart {
    /// Whether its times make sense.
    ///
    /// # Errors
    /// What does not, and what would.
    pub fn check(&self) -> Result<(), String> {
        if self.within_ns.is_some_and(|t| !(MILLISECOND..=HOUR).contains(&t)) {
            return Err("within_ns: 1 ms to 1 h is allowed".into());
        }
        if self.probation_ns.is_some_and(|t| t > HOUR) {
            return Err("probation_ns: 0 to 1 h is allowed".into());
        }
        Ok(())
    }
}

/// How far an upgrade is, or how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpgradeState {
    /// There was none.
    #[default]
    None,
    /// The new program reads its configuration.
    Preparing,
    /// The one before it finishes what is in flight.
    HandingOver,
    /// The new one takes what is held.
    TakingOver,
    /// It serves; if it dies within the time of its probation, the one before it serves again.
    Probation,
    /// It serves, and the keeper is about to go on as the new program as well.
    Renewing,
    /// It serves.
    Upgraded,
    /// It has not taken over; the one before it has served all the time.
    Refused,
    /// It has taken over, or was to, and failed; the one before it serves again.
    RolledBack,
}

impl UpgradeState {
    /// Whether it is under way.
    pub fn is_open(self) -> bool {
        use UpgradeState::*;
        matches!(self, Preparing | HandingOver | TakingOver | Probation | Renewing)
    }
}

/// The last upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Upgrade")]
pub struct UpgradeStatus {
    /// How many there were, this one included; 0: none.
    pub number: u64,
    /// How far it is.
    pub state: UpgradeState,
    /// The new program.
    #[serde(default)]
    pub binary: String,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// From its start until it was prepared; the one before it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ns: Option<u64>,
    /// From then until the one before it had nothing in flight any more. Nobody is served from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over_ns: Option<u64>,
    /// From then until the new one served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over_ns: Option<u64>,
    /// How long the keeper's process took to go on as the new program. Everybody is served meanwhile; what front ends say on their sockets waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_ns: Option<u64>,
    /// Why the keeper's process goes on as the program before, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<String>,
}
