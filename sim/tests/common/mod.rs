//! What the scenarios share.

use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_controller::SubsystemConfig;
use weir_sim::SimulatedDrive;
use weir_units::Nanos;
use weir_workload::Job;

/// 64 slots, 100 µs a command, 4 MiB in flight; weights 32:16:8, quanta 128, 64 and 32 KiB.
pub fn config(mechanism: Mechanism) -> SubsystemConfig {
    let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:sim");
    config.arbitration = ArbiterSettings::new(mechanism);
    config.latency = Nanos::from_micros(100);
    config
}

/// A world of jobs as `--job` writes them, on 16 GiB.
pub fn world(config: SubsystemConfig, jobs: &[&str], seed: u64) -> SimulatedDrive {
    let jobs: Vec<Job> = jobs.iter().map(|text| Job::parse(text, &Job::default()).expect("a job")).collect();
    SimulatedDrive::new(config, &jobs, 16 << 30, seed).expect("a world")
}

/// Bytes that each of `jobs` moved from `from` to `to`.
pub fn moved(world: &mut SimulatedDrive, jobs: usize, from: Nanos, to: Nanos) -> Vec<f64> {
    world.run_until(from);
    let before: Vec<u64> = (0..jobs).map(|job| world.bytes(job)).collect();
    world.run_until(to);
    world.check();
    (0..jobs).map(|job| (world.bytes(job) - before[job]) as f64).collect()
}
