//! What a tenant is promised of each drive, and whether that makes sense.

use weir_config::within;
use weir_units::{Bytes, Ceiling, Floor, Nanos, Sla};

/// Commands a second, and commands at once, at the most.
const MOST_IOPS: u64 = 1_000_000_000;
/// Bytes a second at the most.
const MOST_BANDWIDTH: u64 = 1_000_000_000_000;

/// A floor, a ceiling and a service level of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// At least.
    pub floor: Floor,
    /// At the most.
    pub ceiling: Ceiling,
    /// What was promised.
    pub sla: Sla,
}

impl Promises {
    /// Whether they are in range and go together.
    ///
    /// # Errors
    /// Which number is not, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let Promises { floor, ceiling, sla } = self;
        for (of, rates) in [("floor", floor.rates), ("ceiling", ceiling.rates), ("sla", sla.rates)] {
            if rates.iops.is_some_and(|n| !(1..=MOST_IOPS).contains(&n)) {
                return Err(format!("{of}: iops: 1 to {MOST_IOPS} is allowed, or null for none"));
            }
            if rates.bandwidth.is_some_and(|b| !(1..=MOST_BANDWIDTH).contains(&b.0)) {
                return Err(format!(
                    "{of}: bandwidth: 1 to {MOST_BANDWIDTH} bytes a second is allowed, or null for none"
                ));
            }
            within(&rates, &ceiling.rates).map_err(|e| format!("{of}: {e}"))?;
        }
        if !(Nanos::from_millis(1)..=Nanos::from_secs(10)).contains(&floor.catch_up) {
            return Err("floor: catch_up: 1 ms to 10 s is allowed".into());
        }
        if ceiling.burst == Some(0) || ceiling.burst_bytes == Some(Bytes(0)) {
            return Err("ceiling: burst and burst_bytes: at least 1, or null for 10 ms of the rate".into());
        }
        let bounds: Vec<Nanos> = [sla.p50, sla.p99, sla.p999].into_iter().flatten().collect();
        if bounds.contains(&Nanos(0)) {
            return Err("sla: nothing takes no time; give a bound above 0, or null for none".into());
        }
        if bounds.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err("sla: p50, p99 and p999 must not fall; raise the later, or lower the earlier".into());
        }
        Ok(())
    }
}
