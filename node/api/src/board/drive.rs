//! One drive in full: its dies, its queues, and what its tenants are promised, are to expect and get.

use crate::fault::FaultStatus;
use crate::types::{Counters, DevicePatch, SharesPatch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::Mechanism;
use weir_config::prediction::PredictedTenant;
use weir_controller::{ControllerInfo, TenantStats};
use weir_drive::DieFigures;
use weir_node::{DriveBoard, ExpectedTenants, Refusal, SharesChange, TenantShares};
use weir_units::{Bytes, Class};

/// Queues that are listed, those with the most waiting first.
const MOST_QUEUES: usize = 256;
/// Tenants that are listed, those with queues first.
const MOST_TENANTS: usize = 1024;

/// `GET /v1/devices/NAME/board`: what goes on inside a drive. Counters are since the start: two looks give rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DriveBoard")]
pub struct DriveBoardStatus {
    /// The drive.
    pub device: String,
    /// The drive's own clock, seconds.
    pub at_s: f64,
    /// Commands that it works on.
    pub in_flight: u32,
    /// As many as it may work on.
    pub slots: u32,
    /// Bytes that it works on.
    pub bytes_in_flight: u64,
    /// Channels of its flash; die `i` is at channel `i % channels`. 0 without flash.
    pub channels: u32,
    /// The dies of its flash.
    pub dies: Vec<DieStatus>,
    /// Queues, those in which the most commands wait first.
    pub queues: Vec<QueueStatus>,
    /// Tenants, those with queues first.
    pub tenants: Vec<ShareStatus>,
    /// Queues and tenants that are not listed.
    pub left_out: usize,
    /// Rules of failures.
    pub faults: Vec<FaultStatus>,
}

/// A die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Die")]
pub struct DieStatus {
    /// How long it was busy since counting began.
    pub busy_ns: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Those that are bad.
    pub bad: u32,
    /// Those that are free.
    pub free: u32,
    /// Erases of those that are not bad, together. It grows while the die is collected.
    pub erases: u64,
    /// Erases of the most worn one.
    pub most_erases: u32,
}

/// An I/O submission queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub struct QueueStatus {
    /// Whose it is.
    pub tenant: String,
    /// Its host.
    pub host: String,
    /// Its controller (CNTLID).
    pub controller: u16,
    /// Its identifier (QID).
    pub qid: u16,
    /// Its class at the drive.
    pub class: String,
    /// Commands that wait in it.
    pub waiting: u32,
    /// Commands of it that the drive works on.
    pub in_flight: u32,
}

/// A tenant at a drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TenantAtDrive")]
pub struct ShareStatus {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its weight.
    pub weight: u16,
    /// Its I/O queues at this drive.
    pub queues: u32,
    /// Commands that wait in them.
    pub waiting: u64,
    /// Commands of it that the drive works on.
    pub in_flight: u32,
    /// It has reached its ceiling, and waits for that.
    pub held: bool,
    /// What it has had done here.
    pub io: Counters,
    /// Commands a second that it was promised: its floor or its service level, whichever is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_iops: Option<u64>,
    /// Bytes a second that it was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_bytes_per_s: Option<u64>,
}

/// What the plan model says of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedShare {
    /// Its part of all bytes, 0 to 1.
    pub share: f64,
    /// Commands a second; absent where only shares are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Bytes a second; absent as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
}

/// `POST /v1/devices/NAME/plan`: arbitration as it might be; what is left out stays, so `{}` asks what tenants are to expect as it is.
/// Nothing is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanAsked {
    /// `none`, `rr`, `wrr` or `drr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// Commands a round, 1 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = weir_config::weights_in_range)]
    pub weights: Option<SharesPatch<u16>>,
    /// Bytes a round, 4 KiB to 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = weir_config::quanta_in_range)]
    pub quanta: Option<SharesPatch<u32>>,
    /// Classes and weights of tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantSharesPatch>,
}

/// A tenant's class and weight as they might be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantSharesPatch {
    /// Whose.
    pub name: String,
    /// Its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["urgent", "high", "medium", "low", null]))]
    pub class: Option<String>,
    /// 1 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub weight: Option<u16>,
}

/// What a plan comes to, while everybody with queues asks for as much as there is, or for their `demand`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub struct PlanStatus {
    /// The drive.
    pub device: String,
    /// Whether the model knows rates; where it does not, shares alone.
    pub predicts_rates: bool,
    /// Tenants with queues at the drive; none where there are more than the model takes (64).
    pub tenants: Vec<PlannedTenant>,
}

/// A tenant before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTenant {
    /// Its name.
    pub name: String,
    /// As the drive is.
    pub before: PredictedShare,
    /// As it would be.
    pub after: PredictedShare,
}

impl PlanAsked {
    /// Every number is in the range that the configuration allows.
    ///
    /// # Errors
    /// One that is not, and what would be.
    pub fn check(&self) -> Result<(), String> {
        let patch = self.patch();
        if patch != DevicePatch::default() {
            patch.check()?;
        }
        for tenant in &self.tenants {
            if tenant.weight.is_some_and(|w| !(1..=256).contains(&w)) {
                return Err(format!("tenants: {}: weight: 1 to 256 is allowed", tenant.name));
            }
        }
        self.shares().map(drop)
    }

    fn patch(&self) -> DevicePatch {
        let PlanAsked { mechanism, weights, quanta, tenants: _ } = *self;
        DevicePatch { mechanism, weights, quanta, ..DevicePatch::default() }
    }

    fn shares(&self) -> Result<Vec<TenantShares>, String> {
        let one = |t: &TenantSharesPatch| {
            let class = t.class.as_deref().map(str::parse::<Class>).transpose();
            let class = class.map_err(|()| "tenants: class: urgent, high, medium or low is allowed".to_owned())?;
            Ok(TenantShares { name: t.name.clone(), class, weight: t.weight })
        };
        self.tenants.iter().map(one).collect()
    }

    /// What the node says of it.
    pub(crate) fn ask(
        &self,
        device: &str,
        expected: impl FnOnce(&SharesChange<'_>) -> Result<ExpectedTenants, Refusal>,
    ) -> Result<PlanStatus, Refusal> {
        let (patch, tenants) = (self.patch(), self.shares().map_err(Refusal::Invalid)?);
        let found = expected(&SharesChange { arbitration: &|now| patch.apply(now), tenants: &tenants })?;
        let (Some(before), Some(after)) = (found.before, found.after) else {
            return Ok(PlanStatus { device: device.into(), predicts_rates: false, tenants: Vec::new() });
        };
        let has_rates = before.has_rates;
        let both = before.tenants.iter().zip(&after.tenants).zip(found.tenants);
        let one = |((before, after), name): ((&PredictedTenant, &PredictedTenant), String)| PlannedTenant {
            name,
            before: predicted(before, has_rates),
            after: predicted(after, has_rates),
        };
        Ok(PlanStatus { device: device.into(), predicts_rates: has_rates, tenants: both.map(one).collect() })
    }
}

fn predicted(found: &PredictedTenant, has_rates: bool) -> PredictedShare {
    PredictedShare {
        share: found.share,
        iops: has_rates.then_some(found.iops),
        bytes_per_s: has_rates.then_some(found.bandwidth),
    }
}

impl From<&DieFigures> for DieStatus {
    fn from(die: &DieFigures) -> Self {
        let DieFigures { busy, blocks } = die;
        DieStatus {
            busy_ns: busy.get(),
            blocks: blocks.blocks,
            bad: blocks.bad,
            free: blocks.free,
            erases: blocks.erases,
            most_erases: blocks.most_erases,
        }
    }
}

impl DriveBoardStatus {
    /// Of a drive as it was found.
    pub(crate) fn new(device: &str, found: &DriveBoard, faults: Vec<FaultStatus>) -> Self {
        let names: Vec<&str> = found.stats.tenants.iter().map(|t| t.name.as_str()).collect();
        let mut queues: Vec<QueueStatus> = found.controllers.iter().flat_map(|c| queues_of(c, &names)).collect();
        queues.sort_by_key(|q| (std::cmp::Reverse((q.waiting, q.in_flight)), q.controller, q.qid));
        let there = found.stats.tenants.iter().filter(|t| !t.name.is_empty());
        let mut tenants: Vec<ShareStatus> = there.map(share).collect();
        tenants.sort_by_key(|t| t.queues == 0);
        let over = |len: usize, most: usize| len.saturating_sub(most);
        let left_out = over(queues.len(), MOST_QUEUES) + over(tenants.len(), MOST_TENANTS);
        queues.truncate(MOST_QUEUES);
        tenants.truncate(MOST_TENANTS);
        DriveBoardStatus {
            device: device.into(),
            at_s: found.now.as_secs_f64(),
            in_flight: found.stats.slots_used,
            slots: found.stats.slots,
            bytes_in_flight: found.stats.bytes_in_flight,
            channels: found.channels,
            dies: found.dies.iter().map(Into::into).collect(),
            queues,
            tenants,
            left_out,
            faults,
        }
    }
}

fn queues_of(controller: &ControllerInfo, names: &[&str]) -> Vec<QueueStatus> {
    let tenant = names.get(usize::from(controller.tenant)).copied().unwrap_or_default();
    let one = |q: &weir_controller::QueueInfo| QueueStatus {
        tenant: tenant.into(),
        host: controller.host.clone(),
        controller: controller.id,
        qid: q.qid,
        class: q.class.to_string(),
        waiting: q.backlog,
        in_flight: q.in_flight,
    };
    controller.queues.iter().map(one).collect()
}

fn share(t: &TenantStats) -> ShareStatus {
    let promised = t.floor.rates.max(t.sla.rates);
    ShareStatus {
        name: t.name.clone(),
        class: t.class.to_string(),
        weight: t.weight,
        queues: t.queues,
        waiting: t.backlog,
        in_flight: t.in_flight,
        held: t.held,
        io: (&t.work).into(),
        promised_iops: promised.iops,
        promised_bytes_per_s: promised.bandwidth.map(Bytes::get),
    }
}
