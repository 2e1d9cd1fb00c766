//! What the scenarios share.

use weir_arbiter::{Mechanism, Settings};
use weir_controller::Config;
use weir_sim::World;
use weir_units::Nanos;
use weir_workload::Job;

/// 64 slots, 100 µs a command, 4 MiB in flight; weights 32:16:8, quanta 128, 64 and 32 KiB.
pub fn config(mechanism: Mechanism) -> Config {
    let mut config = Config::new("nqn.2026-01.io.weir:sim");
    config.arbitration = Settings::new(mechanism);
    config.latency = Nanos::from_micros(100);
    config
}

/// A world of jobs as `--job` writes them, on 16 GiB.
pub fn world(config: Config, jobs: &[&str], seed: u64) -> World {
    let jobs: Vec<Job> = jobs.iter().map(|text| Job::parse(text, &Job::default()).expect("a job")).collect();
    World::new(config, &jobs, 16 << 30, seed).expect("a world")
}

/// Bytes that each of `jobs` moved from `from` to `to`.
pub fn moved(world: &mut World, jobs: usize, from: Nanos, to: Nanos) -> Vec<f64> {
    world.run_until(from);
    let before: Vec<u64> = (0..jobs).map(|job| world.bytes(job)).collect();
    world.run_until(to);
    world.check();
    (0..jobs).map(|job| (world.bytes(job) - before[job]) as f64).collect()
}
