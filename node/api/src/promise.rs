//! Floors, ceilings and service levels in the JSON of the API: as they are, changed, and kept or not.

use super::types::present;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_controller as controller;
use weir_node::Promises;
use weir_units::{Bytes, Ceiling, Floor, Nanos, Rates, Sla};

/// What a tenant gets of each drive at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Floor")]
pub struct FloorStatus {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// How much of what was missed may be made up for at once, as time.
    pub catch_up_ns: u64,
}

/// What a tenant gets of each drive at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Ceiling")]
pub struct CeilingStatus {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Commands at once; absent: those of 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Bytes at once; absent: those of 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
}

/// What a tenant was promised of each drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sla")]
pub struct SlaStatus {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Half of the commands take no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99 of 100 take no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// 999 of 1000 take no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
}

impl FloorStatus {
    /// `None` where there is no floor.
    pub fn of(floor: &Floor) -> Option<Self> {
        let Rates { iops, bandwidth } = floor.rates;
        let status = Self { iops, bandwidth_bytes_per_s: bandwidth.map(Bytes::get), catch_up_ns: floor.catch_up.get() };
        (!floor.is_none()).then_some(status)
    }
}

impl CeilingStatus {
    /// `None` where there is no ceiling.
    pub fn of(ceiling: &Ceiling) -> Option<Self> {
        let Ceiling { rates: Rates { iops, bandwidth }, burst, burst_bytes } = *ceiling;
        let status = Self {
            iops,
            bandwidth_bytes_per_s: bandwidth.map(Bytes::get),
            burst,
            burst_bytes: burst_bytes.map(Bytes::get),
        };
        (!ceiling.is_none()).then_some(status)
    }
}

impl SlaStatus {
    /// `None` where nothing was promised.
    pub fn of(sla: &Sla) -> Option<Self> {
        let Rates { iops, bandwidth } = sla.rates;
        let [p50_ns, p99_ns, p999_ns] = [sla.p50, sla.p99, sla.p999].map(|bound| bound.map(Nanos::get));
        let status = Self { iops, bandwidth_bytes_per_s: bandwidth.map(Bytes::get), p50_ns, p99_ns, p999_ns };
        (!sla.is_none()).then_some(status)
    }
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SlaState {
    /// In the newest period in which the tenant asked for anything.
    Met,
    /// Not in that one.
    Missed,
    /// The tenant has asked for nothing so far.
    Unjudged,
}

/// How a tenant's promise is kept on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Attainment")]
pub struct AttainmentStatus {
    /// The drive.
    pub device: String,
    /// As the newest period was.
    pub state: SlaState,
    /// For how many seconds that has been so.
    pub since_s: u64,
    /// Periods of a second in which the tenant asked for anything.
    pub periods: u64,
    /// Those in which anything was missed.
    pub missed: u64,
    /// Those in which a rate was missed.
    pub missed_rate: u64,
    /// Those in which a latency bound was missed.
    pub missed_latency: u64,
    /// The newest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<PeriodStatus>,
}

/// What a period was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Period")]
pub struct PeriodStatus {
    /// Commands completed.
    pub commands: u64,
    /// Commands started a second.
    pub iops: u64,
    /// Bytes started a second.
    pub bandwidth_bytes_per_s: u64,
    /// Median, from arrival to completion.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// A rate was missed.
    pub missed_rate: bool,
    /// A latency bound was missed.
    pub missed_latency: bool,
}

impl AttainmentStatus {
    /// Of a drive, at `now`.
    pub fn new(device: &str, attained: &controller::Attainment, now: Nanos) -> Self {
        let state = match attained.met() {
            Some(true) => SlaState::Met,
            Some(false) => SlaState::Missed,
            None => SlaState::Unjudged,
        };
        let last = attained.last.map(|(_, p)| PeriodStatus {
            commands: p.commands,
            iops: p.iops,
            bandwidth_bytes_per_s: p.bandwidth.get(),
            p50_ns: p.p50.get(),
            p99_ns: p.p99.get(),
            p999_ns: p.p999.get(),
            max_ns: p.max.get(),
            missed_rate: p.missed_rate,
            missed_latency: p.missed_latency,
        });
        Self {
            device: device.into(),
            state,
            since_s: now.saturating_sub(attained.since).get() / 1_000_000_000,
            periods: attained.periods,
            missed: attained.missed,
            missed_rate: attained.missed_rate,
            missed_latency: attained.missed_latency,
            last,
        }
    }
}

/// A number to change: what is left out stays, `null` takes it away.
type Change<T> = Option<Option<T>>;

fn changed<T>(change: Change<T>, before: Option<T>) -> Option<T> {
    change.unwrap_or(before)
}

/// Changes of a floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FloorPatch {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub iops: Change<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub bandwidth_bytes_per_s: Change<u64>,
    /// 1 ms to 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000_000, max = 10_000_000_000_u64))]
    pub catch_up_ns: Option<u64>,
}

/// Changes of a ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CeilingPatch {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub iops: Change<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub bandwidth_bytes_per_s: Change<u64>,
    /// Commands at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub burst: Change<u32>,
    /// Bytes at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub burst_bytes: Change<u64>,
}

/// Changes of a service level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlaPatch {
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub iops: Change<u64>,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub bandwidth_bytes_per_s: Change<u64>,
    /// Median.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub p50_ns: Change<u64>,
    /// 99 of 100.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub p99_ns: Change<u64>,
    /// 999 of 1000.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(range(min = 1))]
    pub p999_ns: Change<u64>,
}

fn rates(before: Rates, iops: Change<u64>, bandwidth: Change<u64>) -> Rates {
    let bandwidth = changed(bandwidth, before.bandwidth.map(Bytes::get)).map(Bytes);
    Rates { iops: changed(iops, before.iops), bandwidth }
}

/// A tenant's changes of what it is promised.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes<'a> {
    pub(crate) floor: Option<&'a FloorPatch>,
    pub(crate) ceiling: Option<&'a CeilingPatch>,
    pub(crate) sla: Option<&'a SlaPatch>,
}

impl Changes<'_> {
    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.floor.is_none() && self.ceiling.is_none() && self.sla.is_none()
    }

    /// Promises with the changes applied.
    ///
    /// # Errors
    /// A number that is out of its range, or promises that do not go together.
    pub(crate) fn apply(&self, mut to: Promises) -> Result<Promises, String> {
        if let Some(patch) = self.floor {
            to.floor.rates = rates(to.floor.rates, patch.iops, patch.bandwidth_bytes_per_s);
            to.floor.catch_up = patch.catch_up_ns.map_or(to.floor.catch_up, Nanos);
        }
        if let Some(patch) = self.ceiling {
            to.ceiling.rates = rates(to.ceiling.rates, patch.iops, patch.bandwidth_bytes_per_s);
            to.ceiling.burst = changed(patch.burst, to.ceiling.burst);
            to.ceiling.burst_bytes = changed(patch.burst_bytes.map(|b| b.map(Bytes)), to.ceiling.burst_bytes);
        }
        if let Some(patch) = self.sla {
            to.sla.rates = rates(to.sla.rates, patch.iops, patch.bandwidth_bytes_per_s);
            let bound = |change: Change<u64>, before| changed(change.map(|ns| ns.map(Nanos)), before);
            to.sla.p50 = bound(patch.p50_ns, to.sla.p50);
            to.sla.p99 = bound(patch.p99_ns, to.sla.p99);
            to.sla.p999 = bound(patch.p999_ns, to.sla.p999);
        }
        to.check()?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_stays_and_null_takes_away() {
        let patch = |text: &str| serde_json::from_str::<FloorPatch>(text).unwrap();
        let changed = |p, text| Changes { floor: Some(&patch(text)), ..Changes::default() }.apply(p).unwrap();
        let mut p = changed(Promises::default(), r#"{"iops":5,"bandwidth_bytes_per_s":7}"#);
        assert_eq!(p.floor.rates, Rates { iops: Some(5), bandwidth: Some(Bytes(7)) });
        p = changed(p, r#"{"iops":null,"catch_up_ns":2000000}"#);
        assert_eq!(
            p.floor,
            Floor { rates: Rates { iops: None, bandwidth: Some(Bytes(7)) }, catch_up: Nanos(2_000_000) }
        );
        assert_eq!(serde_json::to_string(&patch(r#"{"iops":null}"#)).unwrap(), r#"{"iops":null}"#);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let p = Promises { ceiling: Ceiling::new(Rates { iops: Some(10), bandwidth: None }), ..Promises::default() };
        let with_floor = |iops| {
            let floor = FloorPatch { iops: Some(Some(iops)), ..FloorPatch::default() };
            Changes { floor: Some(&floor), ..Changes::default() }.apply(p)
        };
        assert!(with_floor(10).is_ok());
        let wrong = with_floor(11).unwrap_err();
        assert_eq!(wrong, "floor: iops = 11 is more than the ceiling allows (10); lower it, or raise the ceiling");
        assert!(with_floor(0).is_err());
        let sla = SlaPatch { p50_ns: Some(Some(5)), p99_ns: Some(Some(4)), ..SlaPatch::default() };
        assert!(Changes { sla: Some(&sla), ..Changes::default() }.apply(p).unwrap_err().starts_with("sla: p50, p99"));
        let none = CeilingPatch { burst: Some(Some(0)), ..CeilingPatch::default() };
        assert!(Changes { ceiling: Some(&none), ..Changes::default() }.apply(p).is_err());
    }
}
