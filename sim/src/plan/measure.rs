//! What a flash drive delivers, measured in the simulator before it is planned with.

use super::{Member, PlanFile, Step};
use crate::client::Client;
use crate::run::RunError;
use crate::scenario::Scenario;
use weir_controller::TenantConfig;
use weir_node::config::DeviceConfig;
use weir_plan::{Drive, Measured};
use weir_units::{Class, Nanos};
use weir_workload::{Job, Mix, Pattern, Summary};

/// One point's time, and what comes before it.
const TIME: Nanos = Nanos::from_millis(200);
const RAMP: Nanos = Nanos::from_millis(100);

/// The drive of a plan at every size and mix that the tenants ask for, and at reads and writes alone.
pub(super) fn of_plan(file: &PlanFile, watch: &mut dyn FnMut(Step)) -> Result<Drive, RunError> {
    drive(&file.device, file.seed, &wanted(&file.members), (RAMP, TIME), watch)
}

/// A drive at these sizes and mixes (reads in a hundred), alone and with its slots full; `times` are the ramp's and each point's.
pub(crate) fn drive(
    device: &DeviceConfig,
    seed: u64,
    points: &[(u32, u8)],
    times: (Nanos, Nanos),
    watch: &mut dyn FnMut(Step),
) -> Result<Drive, RunError> {
    let (mut done, of) = (0, 2 * points.len());
    let measure = |(size, read_percent): &(u32, u8)| {
        let mut run = |depth| {
            watch(Step::Measuring { done, of });
            done += 1;
            run((device, seed), (*size, *read_percent), depth, times)
        };
        let depth = u32::from(device.slots).max(1);
        let (idle, busy) = (run(1)?, run(depth)?);
        Ok(Measured {
            size: *size,
            read_percent: *read_percent,
            iops: busy.iops,
            idle: idle.latency,
            busy: busy.latency,
            depth: depth.into(),
        })
    };
    let points = points.iter().map(measure).collect::<Result<Vec<_>, RunError>>()?;
    let (slots, slot_bytes) = (device.slots.into(), device.slot_bytes.get());
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

fn run(
    (device, seed): (&DeviceConfig, u64),
    (size, read_percent): (u32, u8),
    depth: u32,
    (ramp, time): (Nanos, Nanos),
) -> Result<Summary, RunError> {
    let job = Job {
        name: "measure".into(),
        pattern: Pattern { read_percent, random: true, trim: false },
        sizes: Mix::one(size),
        depth,
        ..Job::default()
    };
    let scenario = Scenario {
        device: device.clone(),
        tenants: vec![TenantConfig::new("measure", Class::Medium)],
        clients: vec![Client::new(&job, 0)],
        seed,
        time: Some(time),
        requests: None,
        ramp,
        series: None,
        power_cuts: Vec::new(),
    };
    Ok(scenario.run(|_| {})?.total.summary)
}
