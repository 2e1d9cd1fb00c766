//! A part of the grid in every run; all of it, with what is worst, by `-- --ignored --nocapture`.

use super::*;
use crate::plan::measure;
use crate::plan::timing_models::Insides;
use crate::scenario::Scenario;
use std::fmt::Write;
use weir_arbiter::Mechanism;
use weir_config::DeviceConfig;
use weir_plan::{Demand, Setting};
use weir_workload::Pattern;

/// Commands of the tenant with the fewest, and of all, in a short run and in a long one.
const SHORT: (f64, f64) = (100_000.0, 800_000.0);
const LONG: (f64, f64) = (60_000.0, 1_500_000.0);

fn describe(case: &Case, got: &Compared) -> String {
    let flow = &got.forecast.flow;
    let mut text = format!(
        "{:?} {:?} {:?}, {} slots, {} KiB, {}: load {:.3}, {:.1} places{}\n",
        case.setting.arbiter.mechanism,
        case.setting.credits(),
        case.setting.arbiter.burst,
        case.slots,
        case.slot_bytes >> 10,
        case.latency,
        got.forecast.load,
        flow.places,
        if flow.in_step { ", in step" } else { "" }
    );
    for (tenant, pair) in case.tenants.iter().zip(&got.pairs) {
        let demand = &tenant.demand;
        let latency = pair.latency_pct().map_or("none".into(), |l| l.map(|x| format!("{x:+.1}")).join(" "));
        let _ = writeln!(
            text,
            "    {:<6} x{} {:>12} {}x{:<4} {:?} {:?}: {:.0}, simulated {:.0} ({:+.2} %); p99 {:.1} us; latencies {latency}",
            tenant.class.name(),
            tenant.weight,
            demand.sizes.to_string(),
            demand.queues,
            demand.depth,
            demand.rate,
            demand.arrival,
            pair.expected.iops,
            pair.simulated.iops,
            pair.throughput_pct(),
            pair.simulated.latency.p99 as f64 / 1e3,
        );
    }
    text
}

/// The largest error in throughput of each case, worst first, with the case.
fn errors(seed: u64, count: usize, loads: Loads, (commands, most): (f64, f64)) -> Vec<(f64, String)> {
    let mut all: Vec<(f64, String)> = cases(seed, count, loads)
        .map(|case| {
            let got = compare(&case, commands, most).unwrap();
            (got.worst_pct(), describe(&case, &got))
        })
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

#[test]
fn throughput_is_within_two_percent() {
    let all = errors(7, 24, Loads::Deep, SHORT);
    assert!(all[0].0 <= 2.0, "{:.2} %: {}", all[0].0, all[0].1);
    assert!(all[all.len() / 2].0 <= 0.6, "the median is {:.2} %", all[all.len() / 2].0);
}

#[test]
fn loops_of_few_commands_as_well() {
    let all = errors(7, 8, Loads::Shallow, SHORT);
    assert!(all[0].0 <= 2.0, "{:.2} %: {}", all[0].0, all[0].1);
}

#[test]
fn floors_and_ceilings_as_well() {
    let all = errors(7, 8, Loads::Promised, SHORT);
    assert!(all[0].0 <= 2.0, "{:.2} %: {}", all[0].0, all[0].1);
}

#[test]
fn nobody_waits_for_others_on_a_drive_with_room() {
    let all = errors(7, 8, Loads::Open, SHORT);
    assert!(all[0].0 <= 2.0, "{:.2} %: {}", all[0].0, all[0].1);
}

#[test]
fn a_seed_decides_the_cases() {
    let list = |seed| cases(seed, 5, Loads::Deep).collect::<Vec<_>>();
    assert_eq!(list(3), list(3));
    assert_ne!(list(3), list(4));
}

/// A p3700 that collects, measured at 4 KiB, at 0, 30, 70 and 100 % reads, alone and 12 at once.
fn mixes_of_a_p3700() -> DriveModel {
    let device = DeviceConfig::from_query("p3700", "capacity=1GiB&precondition=steady").unwrap();
    let extent = measure::MeasureGrid {
        points: [0, 30, 70, 100].map(|reads| (4096, reads)).to_vec(),
        depths: vec![12],
        times: (Nanos::from_millis(300), Nanos::from_millis(400)),
    };
    let insides = Insides::of(&device).unwrap();
    measure::drive(&insides, 1, &extent, &mut |_| {}).unwrap()
}

/// What closed loops get of the same drive, of so many reads in a hundred and so many commands each.
fn loops_on_a_p3700(loops: &[(u8, u32)]) -> (Vec<PlanTenant>, Vec<Summary>) {
    let job = |(reads, depth): &(u8, u32)| Job {
        pattern: Pattern { read_percent: *reads, random: true, trim: false },
        depth: *depth,
        ..Job::default()
    };
    let jobs: Vec<Job> = loops.iter().map(job).collect();
    let scenario = Scenario {
        device: DeviceConfig::from_query("p3700", "capacity=1GiB&precondition=steady").unwrap(),
        tenants: vec![TenantConfig::new("all", Class::Medium)],
        clients: jobs.iter().map(|job| SimulatedClient::new(job, 0)).collect(),
        seed: 2,
        time: Some(Nanos::from_millis(400)),
        requests: None,
        ramp: Nanos::from_millis(300),
        series: None,
        power_cuts: Vec::new(),
        faults: Vec::new(),
    };
    let results = scenario.run(|_| {}).unwrap().jobs;
    let tenants = jobs.iter().map(|job| PlanTenant::new("t", Class::Medium, Demand::of(job))).collect();
    (tenants, results.into_iter().map(|result| result.summary).collect())
}

/// Between measured mixes, and for who reads beside who writes, the model is within the margins that it says itself.
#[test]
fn reads_and_writes_that_meet_are_told_within_their_margins() {
    let drive = mixes_of_a_p3700();
    for loops in [&[(50, 12)][..], &[(85, 12)], &[(100, 11), (0, 1)], &[(100, 4), (70, 8)]] {
        let (tenants, simulated) = loops_on_a_p3700(loops);
        let expected = forecast(&drive, &Setting::new(Mechanism::Rr), &tenants).tenants;
        for (expected, got) in expected.iter().zip(simulated) {
            let (latency, margin) = (expected.latency.unwrap(), expected.margin);
            let pairs = [
                (expected.iops, got.iops, margin.rate),
                (latency.p50 as f64, got.latency.p50 as f64, margin.p50),
                (latency.p99 as f64, got.latency.p99 as f64, margin.p99),
            ];
            let text = format!("{loops:?}: {pairs:.3?}");
            assert!(margin.rate <= 0.15 && margin.p99 <= 0.25, "{text}");
            assert!(
                pairs.iter().all(|(ours, theirs, most)| (ours / theirs).max(theirs / ours) <= 1.0 + most),
                "{text}"
            );
        }
    }
}

/// `BESIDE=sizes N=24 SEED=2 cargo test -p weir-sim --lib the_flash_grid -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn the_flash_grid() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let beside = match std::env::var("BESIDE").as_deref() {
        Ok("sizes") => Beside::Sizes,
        Ok("mixes") => Beside::Mixes,
        _ => Beside::Alike,
    };
    let drive = FlashDrive::measured("p3700", "capacity=1GiB&precondition=steady").unwrap();
    println!("{:?}", drive.drive());
    let (mut all, count) = (Vec::new(), number("N", 24) as usize);
    for case in flash_cases(number("SEED", 1), count, beside, &drive) {
        let got = compare(&case, LONG.0, LONG.1 / 2.0).unwrap();
        all.push((got.worst_pct(), describe(&case, &got)));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.iter().take(10).for_each(|(error, text)| println!("{error:.2} %: {text}"));
    println!("above 2 %: {} of {count}, median {:.2} %", all.iter().filter(|a| a.0 > 2.0).count(), all[count / 2].0);
    assert!(beside != Beside::Alike || all[0].0 <= 2.0);
}

/// `LOADS=open N=150 SEED=2 cargo test -p weir-sim --lib the_whole_grid -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn the_whole_grid() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let loads = match std::env::var("LOADS").as_deref() {
        Ok("shallow") => Loads::Shallow,
        Ok("open") => Loads::Open,
        Ok("promised") => Loads::Promised,
        _ => Loads::Deep,
    };
    let (seed, count) = (number("SEED", 1), number("N", 200) as usize);
    let mut by_latency: Vec<(f64, [f64; 4], String)> = Vec::new();
    let mut by_throughput = Vec::new();
    for case in cases(seed, count, loads) {
        let got = compare(&case, LONG.0, LONG.1).unwrap();
        let text = describe(&case, &got);
        by_latency.extend(got.pairs.iter().filter_map(Pair::latency_pct).map(|l| (l[2], l, text.clone())));
        by_throughput.push((got.worst_pct(), text));
    }
    by_throughput.sort_by(|a, b| b.0.total_cmp(&a.0));
    by_latency.sort_by(|a, b| a.0.total_cmp(&b.0));
    by_latency.iter().take(10).for_each(|(.., text)| println!("{text}"));
    by_throughput.iter().take(10).for_each(|(error, text)| println!("{error:.2} %: {text}"));
    for (at, name) in ["mean", "p50", "p99", "p999"].into_iter().enumerate() {
        let mut all: Vec<f64> = by_latency.iter().map(|(_, l, _)| l[at]).collect();
        all.sort_by(f64::total_cmp);
        let quantile = |part: f64| all.get(((all.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
        let [min, p5, p25, p50, p75, p95, max] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0].map(quantile);
        println!("{name}: {min:.0} | {p5:.1} {p25:.1} {p50:.1} {p75:.1} {p95:.1} | {max:.0} %");
    }
    let bad = by_throughput.iter().filter(|(error, _)| *error > 2.0).count();
    println!("throughput: {bad} of {count} above 2 %, median {:.2} %", by_throughput[count / 2].0);
    assert_eq!(bad, 0);
}
