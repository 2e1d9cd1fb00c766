//! What a flash drive delivers, measured in the simulator before it is planned with.

use super::{Member, PlanFile};
use crate::client::Client;
use crate::run::RunError;
use crate::scenario::Scenario;
use weir_controller::TenantConfig;
use weir_plan::{Drive, Measured};
use weir_units::{Class, Nanos};
use weir_workload::{Job, Mix, Pattern, Summary};

/// One point's time, and what comes before it.
const TIME: Nanos = Nanos::from_millis(200);
const RAMP: Nanos = Nanos::from_millis(100);

/// The drive at every size and mix that the tenants ask for, and at reads and writes alone.
pub(super) fn drive(file: &PlanFile) -> Result<Drive, RunError> {
    let mut points = Vec::new();
    for (size, read_percent) in wanted(&file.members) {
        let idle = run(file, size, read_percent, 1)?;
        let depth = u32::from(file.device.slots).max(1);
        let busy = run(file, size, read_percent, depth)?;
        points.push(Measured {
            size,
            read_percent,
            iops: busy.iops,
            idle: idle.latency,
            busy: busy.latency,
            depth: depth.into(),
        });
    }
    let (slots, slot_bytes) = (file.device.slots.into(), file.device.slot_bytes.get());
    Drive::measured(points, slots, slot_bytes).map_err(|e| RunError::new(format_args!("the drive's figures: {e}")))
}

/// Sizes and mixes, each pair once.
fn wanted(members: &[Member]) -> Vec<(u32, u8)> {
    let mut sizes: Vec<u32> =
        members.iter().flat_map(|m| m.demand.sizes.parts().iter().map(|(size, _)| *size)).collect();
    let mut mixes: Vec<u8> = members.iter().map(|m| m.demand.pattern.read_percent).collect();
    if mixes.iter().any(|m| *m != mixes[0]) {
        // Together they are a mix of their own, somewhere between.
        mixes.extend([0, 50, 100]);
    }
    sizes.sort_unstable();
    sizes.dedup();
    mixes.sort_unstable();
    mixes.dedup();
    sizes.iter().flat_map(|size| mixes.iter().map(|mix| (*size, *mix))).collect()
}

fn run(file: &PlanFile, size: u32, read_percent: u8, depth: u32) -> Result<Summary, RunError> {
    let job = Job {
        name: "measure".into(),
        pattern: Pattern { read_percent, random: true, trim: false },
        sizes: Mix::one(size),
        depth,
        ..Job::default()
    };
    let scenario = Scenario {
        device: file.device.clone(),
        tenants: vec![TenantConfig::new("measure", Class::Medium)],
        clients: vec![Client::new(&job, 0)],
        seed: file.seed,
        time: Some(TIME),
        requests: None,
        ramp: RAMP,
        series: None,
        power_cuts: Vec::new(),
    };
    Ok(scenario.run(|_| {})?.total.summary)
}
