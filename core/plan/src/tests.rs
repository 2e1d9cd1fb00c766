//! The model against what is known.

use crate::calibrate::{LoadCurve, Test};
use crate::equations::{Round, of_rate, of_share};
use crate::{Demand, DriveModel, PlanTenant, Setting, forecast, shares};
use alloc::vec::Vec;
use weir_arbiter::Mechanism;
use weir_units::{Class, Nanos};
use weir_workload::{Job, Latency};

fn tenant(text: &str) -> PlanTenant {
    let job = Job::parse(text, &Job::default()).expect("a job");
    PlanTenant::new(&job.name, job.class.unwrap_or(Class::Medium), Demand::of(&job))
}

fn tenants(texts: &[&str]) -> Vec<PlanTenant> {
    texts.iter().map(|t| tenant(t)).collect()
}

fn drive() -> DriveModel {
    DriveModel::fixed(Nanos::from_micros(100), 64, 4 << 20)
}

fn near(got: f64, want: f64, within: f64) {
    assert!((got / want - 1.0).abs() <= within, "{got} instead of {want}");
}

#[test]
fn the_two_readings_of_utilisation() {
    let weights = [128.0, 64.0, 32.0];
    let (mut first, mut second): (f64, f64) = (0.0, 0.0);
    for step in 0..=100 {
        let low = f64::from(step) / 100.0 / 7.0;
        // High and medium never run out and share what low leaves by their weights.
        let truth = (1.0 - low) * 128.0 / 192.0;
        let high = |rho| Round { weights, utilisation: [1.0, 1.0, rho] }.throughput(Class::High, 1.0, f64::INFINITY);
        first = first.max((high(of_rate(low, 1.0)) / truth - 1.0).abs());
        second = second.max((high(of_share(low, 1.0, weights, Class::Low)) / truth - 1.0).abs());
    }
    assert!((0.139..0.141).contains(&first), "λ/γ: {first}");
    assert!((0.005..0.006).contains(&second), "of its own share: {second}");
}

#[test]
fn the_paper_s_constants_do_not_belong_together() {
    // Figure 7: γ = 240 k, a/p = 81 µs.
    near(240e3 * 81e-6, 19.44, 1e-9);
}

#[test]
fn equation_3_is_little_s_law() {
    let round = Round { weights: [32.0, 16.0, 8.0], utilisation: [1.0; 3] };
    let rate = round.throughput(Class::High, 640e3, f64::INFINITY);
    near(round.latency(Class::High, 128.0, 64.0, 100e-6), 128.0 / rate, 1e-12);
}

#[test]
fn backlogged_classes_share_by_their_weights() {
    let jobs = tenants(&["name=h,class=high,qd=128", "name=m,class=medium,qd=128", "name=l,class=low,qd=128"]);
    for mechanism in [Mechanism::Wrr, Mechanism::Drr] {
        let flow = shares(&drive(), &Setting::new(mechanism), &jobs);
        for (rate, weight) in flow.rates.iter().zip([32.0, 16.0, 8.0]) {
            near(*rate, 640e3 * weight / 56.0, 1e-6);
        }
    }
    let flow = shares(&drive(), &Setting::new(Mechanism::Rr), &jobs);
    near(flow.rates[0], flow.rates[2], 1e-9);
}

#[test]
fn what_one_leaves_the_others_get() {
    let jobs = tenants(&["name=h,class=high,qd=128", "name=m,class=medium,qd=128", "name=l,class=low,rate=40k,qd=64"]);
    let forecast = forecast(&drive(), &Setting::new(Mechanism::Wrr), &jobs);
    let got: Vec<f64> = forecast.tenants.iter().map(|t| t.iops).collect();
    near(got[0], 400e3, 1e-6);
    near(got[1], 200e3, 1e-6);
    near(got[2], 40e3, 1e-6);
    assert_eq!([0, 1, 2].map(|i: usize| forecast.tenants[i].limited), [true, true, false]);
    near(forecast.tenants[2].guaranteed, 640e3 / 7.0, 1e-6);
}

#[test]
fn bytes_are_shared_whatever_the_sizes() {
    let jobs = tenants(&["name=h,class=high,bs=4KiB,qd=256", "name=l,class=low,bs=64KiB,qd=128"]);
    let flow = shares(&drive(), &Setting::new(Mechanism::Drr), &jobs);
    near(flow.rates[0] * 4096.0 / (flow.rates[1] * 65536.0), 4.0, 1e-6);
    let flow = shares(&drive(), &Setting::new(Mechanism::Wrr), &jobs);
    near(flow.rates[0] / flow.rates[1], 4.0, 1e-6);
}

#[test]
fn floors_and_ceilings() {
    let mut jobs = tenants(&["name=h,class=high,qd=256", "name=l,class=low,qd=256", "name=k,class=low,qd=256"]);
    let setting = Setting::new(Mechanism::Wrr);
    let rates = |jobs: &[PlanTenant]| shares(&drive(), &setting, jobs).rates;
    near(rates(&jobs)[2], 64e3, 1e-6);
    // Beside its share, not out of its class's.
    jobs[2].floor.iops = Some(100_000);
    let got = rates(&jobs);
    near(got[2], 100e3, 1e-6);
    near(got[0] / got[1], 8.0, 1e-6);
    near(got.iter().sum(), 640e3, 1e-6);
    // Of one that asks for less, only that much.
    jobs[2].ceiling.bandwidth = Some(weir_units::Bytes(50_000 * 4096));
    let got = rates(&jobs);
    near(got[2], 50e3, 1e-6);
    near(got[0] / got[1], 4.0, 1e-6);
}

fn measured(size: u32, read_percent: u8, iops: f64, idle_us: u64, depth: u32) -> LoadCurve {
    let test = |depth: u32, iops: f64| {
        let mean = f64::from(depth) / iops * 1e9;
        let ns = mean as u64;
        Test { depth, iops, latency: Latency { mean, p50: ns, p99: ns, p999: ns, max: ns }, ..Test::default() }
    };
    let tests = alloc::vec![test(1, 1e6 / idle_us as f64), test(depth, iops)];
    LoadCurve::new(size, read_percent, tests).expect("a point")
}

#[test]
fn a_measured_fixed_latency_is_a_fixed_latency() {
    let points = [(4096, 640e3), (65536, 640e3)].map(|(size, iops)| measured(size, 100, iops, 100, 64));
    let jobs = tenants(&["name=h,class=high,bs=4KiB,qd=256", "name=l,class=low,bs=32KiB,qd=256"]);
    let setting = Setting::new(Mechanism::Wrr);
    let fixed = shares(&drive(), &setting, &jobs);
    for slots in [64, 128] {
        // More slots in front of it do not make it faster.
        let drive = DriveModel::measured(points.to_vec(), slots, 64 << 20).expect("a drive");
        let flow = shares(&drive, &setting, &jobs);
        near(flow.rates[0], fixed.rates[0], 1e-3);
        near(flow.rates[1], fixed.rates[1], 1e-3);
    }
}

#[test]
fn measured_points_are_met_and_joined() {
    let points = alloc::vec![
        measured(4096, 100, 400e3, 80, 64),
        measured(65536, 100, 40e3, 140, 64),
        measured(4096, 0, 100e3, 20, 64),
        measured(65536, 0, 20e3, 60, 64),
    ];
    let drive = DriveModel::measured(points, 64, 64 << 20).expect("a drive");
    near(drive.seconds_per_command(4096.0, 100.0), 1.0 / 400e3, 1e-9);
    near(drive.seconds_per_command(131_072.0, 0.0), 2.0 / 20e3, 1e-9);
    near(drive.seconds_per_command(4096.0, 50.0), (1.0 / 400e3 + 1.0 / 100e3) / 2.0, 1e-9);
    assert_eq!(drive.idle(4096.0, 100.0).p99, 80_000);
    let one = tenants(&["name=r,class=high,qd=256"]);
    near(shares(&drive, &Setting::new(Mechanism::Wrr), &one).rates[0], 400e3, 0.01);
    let one = tenants(&["name=r,class=high,qd=1"]);
    near(shares(&drive, &Setting::new(Mechanism::Wrr), &one).rates[0], 1e6 / 80.0, 1e-6);
}

#[test]
fn points_that_make_no_drive_are_refused() {
    let good = measured(4096, 100, 1e5, 80, 8);
    let refused = |points: &[LoadCurve]| DriveModel::measured(points.to_vec(), 64, 1 << 20).unwrap_err();
    assert_eq!(refused(&[]), crate::DriveError::Empty);
    assert_eq!(refused(&[good.clone(), good]), crate::DriveError::Twice(1));
}

/// A drive of 16 places of 80 us in front of which an arbiter has 64 slots, as it is measured by depth.
#[test]
fn a_depth_that_was_measured_is_met() {
    let test = |depth: u32| {
        let mean = 80e3 * (f64::from(depth) / 16.0).max(1.0);
        let ns = mean as u64;
        let latency = Latency { mean, p50: ns, p99: ns, p999: ns, max: ns };
        Test { depth, iops: f64::from(depth) / mean * 1e9, latency, ..Test::default() }
    };
    let point = LoadCurve::new(4096, 100, [1, 2, 4, 8, 12, 16, 32, 64].map(test).to_vec()).expect("a point");
    let drive = DriveModel::measured(alloc::vec![point], 64, 4 << 20).expect("a drive");
    for depth in [1, 3, 8, 16, 40, 64] {
        let jobs = tenants(&[&alloc::format!("name=a,class=high,qd={depth}")]);
        let got = forecast(&drive, &Setting::new(Mechanism::Drr), &jobs).tenants[0];
        near(got.iops, test(depth).iops, 1e-6);
        near(got.latency.expect("a closed loop").p99 as f64, test(depth).latency.mean, 1e-4);
    }
    // Two loops make the depth of both.
    let jobs = tenants(&["name=a,class=high,qd=8", "name=b,class=low,qd=8"]);
    let got = forecast(&drive, &Setting::new(Mechanism::Drr), &jobs);
    got.tenants.iter().for_each(|t| near(t.iops, 100e3, 1e-6));
}

/// Reads of 400 k/s and writes of 100 k/s, of which half and half make 100 k/s together: less than the sum of their times says.
#[test]
fn a_mix_that_was_measured_is_met_by_tenants_that_make_it() {
    let points = alloc::vec![
        measured(4096, 100, 400e3, 80, 64),
        measured(4096, 50, 100e3, 80, 64),
        measured(4096, 0, 100e3, 80, 64)
    ];
    let drive = DriveModel::measured(points, 64, 64 << 20).expect("a drive");
    let jobs = tenants(&["name=r,class=high,rw=randread,qd=128", "name=w,class=medium,rw=randwrite,qd=128"]);
    let mut setting = Setting::new(Mechanism::Wrr);
    setting.arbiter.weights.medium = setting.arbiter.weights.high;
    let got = forecast(&drive, &setting, &jobs);
    near(got.tenants[0].iops, 50e3, 1e-3);
    near(got.tenants[1].iops, 50e3, 1e-3);
}
