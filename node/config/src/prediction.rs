//! What the tenants of a drive are to expect of it side by side: the plan model's answer for the arbitration as it is, or as it might be.
//!
//! A tenant asks for what its `demand` says, else for as much as there is, in the requests that cost the drive most for a byte (4 KiB
//! reads where it is not calibrated). How much the drive can do is known of a calibrated one, and of one with a fixed `latency`;
//! of others only the shares are.

use super::admission::{GREEDY, dearest, demand, setting};
use super::arbitration::Arbitration;
use super::device::DeviceConfig;
use super::tenant::TenantConfig;
use weir_plan::{DriveModel, PlanTenant, shares};
use weir_units::Nanos;

/// Tenants of one drive at the most: the model asks for each at every step of its search.
pub const MOST_TENANTS: usize = 64;
/// Of a drive of which nothing is known: any latency gives the same shares.
const ANY_LATENCY: Nanos = Nanos::from_micros(100);

/// What the model says of one tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedTenant {
    /// Its part of all bytes, 0 to 1.
    pub share: f64,
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
}

/// What the model says of all tenants of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Whether rates are known, and not the shares alone.
    pub has_rates: bool,
    /// In the order in which they were given.
    pub tenants: Vec<PredictedTenant>,
}

/// Asks the model; `None` for no tenants, or for more than [`MOST_TENANTS`].
pub fn predict(device: &DeviceConfig, arbitration: &Arbitration, tenants: &[&TenantConfig]) -> Option<Prediction> {
    if tenants.is_empty() || tenants.len() > MOST_TENANTS {
        return None;
    }
    let (slots, slot_bytes) = (u32::from(device.slots), device.slot_bytes.get());
    let calibrated = device.calibration.as_ref().and_then(|f| f.calibration.drive(slots, device.slot_bytes).ok());
    let is_fixed = device.latency > Nanos(0);
    let has_rates = calibrated.is_some() || is_fixed;
    let latency = if is_fixed { device.latency } else { ANY_LATENCY };
    let drive = calibrated.unwrap_or_else(|| DriveModel::fixed(latency, slots, slot_bytes));
    let (size, reads) = dearest(device);
    let plan = |tenant: &&TenantConfig| PlanTenant {
        weight: tenant.weight,
        floor: tenant.floor.rates,
        ceiling: tenant.ceiling.rates,
        ..PlanTenant::new(
            &tenant.name,
            tenant.class,
            tenant.demand.clone().unwrap_or_else(|| demand(size, reads, GREEDY, None)),
        )
    };
    let plans: Vec<PlanTenant> = tenants.iter().map(plan).collect();
    let flow = shares(&drive, &setting(device, arbitration), &plans);
    let bytes = |(plan, rate): (&PlanTenant, &f64)| {
        let size: f64 = plan.demand.parts().map(|(size, part)| size * part).sum();
        size * rate
    };
    let all: Vec<f64> = plans.iter().zip(&flow.rates).map(bytes).collect();
    let sum: f64 = all.iter().sum();
    let one = |(iops, bandwidth): (&f64, &f64)| PredictedTenant {
        share: if sum > 0.0 { bandwidth / sum } else { 0.0 },
        iops: *iops,
        bandwidth: *bandwidth,
    };
    Some(Prediction { has_rates, tenants: flow.rates.iter().zip(&all).map(one).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::path::Path;

    fn config(device: &str) -> Config {
        let text = format!(
            "[[device]]\n{device}\narbitration = \"drr\"\nslots = 8\n\
             [[tenant]]\nname = \"gold\"\nclass = \"high\"\nhosts = [\"nqn.2026-01.test.weir:gold\"]\n\
             [[tenant]]\nname = \"tin\"\nclass = \"low\"\nhosts = [\"nqn.2026-01.test.weir:tin\"]\n"
        );
        Config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}"))
    }

    fn of(config: &Config) -> Prediction {
        let tenants: Vec<&TenantConfig> = config.tenants.iter().collect();
        predict(&config.devices[0], &config.devices[0].arbitration, &tenants).expect("two tenants")
    }

    #[test]
    fn classes_have_their_quanta() {
        // 128 KiB and 32 KiB a round, of a drive that carries out 8 commands of 4 KiB in 80 us.
        let found = of(&config("latency = \"80us\""));
        assert!(found.has_rates);
        assert!((found.tenants[0].share - 0.8).abs() < 0.01, "{found:?}");
        let all: f64 = found.tenants.iter().map(|t| t.iops).sum();
        assert!((all - 100_000.0).abs() < 1000.0, "{found:?}");
    }

    #[test]
    fn of_an_unknown_drive_the_shares_are_known() {
        let found = of(&config("media = \"ram\""));
        assert!(!found.has_rates && (found.tenants[1].share - 0.2).abs() < 0.01, "{found:?}");
        let config = config("media = \"ram\"");
        let many = vec![&config.tenants[0]; MOST_TENANTS + 1];
        assert_eq!(predict(&config.devices[0], &config.devices[0].arbitration, &many), None);
    }

    #[test]
    fn a_change_is_judged_before_it_is_made() {
        let mut config = config("latency = \"80us\"");
        let before = of(&config);
        config.devices[0].arbitration.quanta.low = 128 << 10;
        let after = of(&config);
        assert!(before.tenants[1].share < 0.21 && (after.tenants[1].share - 0.5).abs() < 0.01, "{after:?}");
    }
}
