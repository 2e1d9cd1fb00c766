//! Drives that are known by a calibration alone: those that became slow are found, and healthy ones are not accused, whatever their load.

use weir_config::{DeviceConfig, Document};
use weir_controller::{SubsystemConfig, TenantConfig};
use weir_drive::{DriveSpeed, FlashService};
use weir_driver::health::{Evidence, NotJudged, Speed};
use weir_fault::FaultRule;
use weir_plan::DriveModel;
use weir_plan::calibrate::{LoadCurve, Test};
use weir_sim::{Scenario, Setup, SimulatedClient, SimulatedDrive};
use weir_units::{Class, Nanos};
use weir_workload::Job;

/// Of a fault, of load.
const LIMIT: u64 = 60;
const SIZES: [u32; 2] = [4096, 65536];
const MIXES: [u8; 4] = [100, 70, 30, 0];
const DEPTHS: [u32; 4] = [1, 4, 16, 64];

fn device(profile: &str) -> DeviceConfig {
    DeviceConfig::from_query(profile, "capacity=1GiB&precondition=steady").unwrap_or_else(|e| panic!("{profile}: {e}"))
}

/// What load tests say of the drive.
fn tests_of(profile: &str) -> DriveModel {
    let device = format!("profile = \"{profile}\"\ncapacity = \"1GiB\"\nprecondition = \"steady\"");
    let test = |size: u32, reads: u8, depth: u32| {
        let job = format!("[[job]]\nrw = \"randrw:{reads}\"\nbs = {size}\nqd = {depth}\n");
        let text = format!("time = \"300ms\"\nramp = \"200ms\"\n[[device]]\n{device}\n{job}");
        let document = Document::parse(&text, "test", std::path::Path::new("")).unwrap_or_else(|e| panic!("{e}"));
        let scenario = Scenario::read(&document).unwrap_or_else(|e| panic!("{e}"));
        Test::new(depth, &scenario.load_test().unwrap_or_else(|e| panic!("{e}")))
    };
    let kinds = SIZES.iter().flat_map(|size| MIXES.map(|reads| (*size, reads)));
    let point = |(size, reads)| LoadCurve::new(size, reads, DEPTHS.map(|depth| test(size, reads, depth)).to_vec());
    let points = kinds.map(|kind| point(kind).unwrap_or_else(|e| panic!("{e}"))).collect();
    DriveModel::measured(points, 64, 4 << 20).unwrap_or_else(|e| panic!("{e}"))
}

fn world(profile: &str, jobs: &[&str], seed: u64) -> SimulatedDrive {
    let device = device(profile);
    let machine = weir_drive::machine_config(&device);
    let machine = SubsystemConfig { tenants: vec![TenantConfig::new("load", Class::Medium)], ..machine };
    let flash = device.flash.as_ref().expect("flash");
    let inside = FlashService::new(&flash.config, flash.precondition, Nanos(0)).unwrap_or_else(|e| panic!("{e}"));
    let job = |text: &&str| Job::parse(text, &Job::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
    let clients = jobs.iter().map(|text| SimulatedClient::new(&job(text), 0)).collect();
    let setup = Setup::new(flash.config.ftl.capacity.expect("a capacity").get(), clients, seed);
    SimulatedDrive::with(machine, Some(Box::new(inside)), setup).unwrap_or_else(|e| panic!("{e}"))
}

fn second(world: &mut SimulatedDrive, speed: &mut DriveSpeed) -> Option<Evidence> {
    world.run_until(world.now().saturating_add(DriveSpeed::EVERY));
    let news = world.look_at_speed(speed);
    speed.check();
    news
}

/// Loads that come and go, mix sizes and kinds, or are at depths that were not tested.
const LOADS: [&[&str]; 9] = [
    &["rw=randread,bs=4KiB,qd=1"],
    &["rw=randread,bs=4KiB,qd=48"],
    &["rw=randwrite,bs=4KiB,qd=7"],
    &["rw=randrw:50,bs=4KiB,qd=24"],
    &["rw=randread,bs=16KiB,qd=12"],
    &["rw=randread,bs=4KiB,qd=2", "rw=randread,bs=64KiB,qd=8"],
    &["rw=randread,bs=4KiB,qd=16", "rw=randwrite,bs=4KiB,qd=4"],
    &["rw=randread,bs=4KiB,qd=1", "rw=randread,bs=4KiB,qd=64,rate=4000,arrival=poisson"],
    &["rw=randrw:70,bs=4KiB,qd=64,rate=300,arrival=poisson"],
];

fn is_healthy(profile: &str, tests: &DriveModel, jobs: &[&str], seconds: u64) {
    let mut world = world(profile, jobs, 11);
    let mut speed = DriveSpeed::calibrated(Nanos(0), tests.clone());
    for _ in 0..seconds {
        let news = second(&mut world, &mut speed);
        assert_eq!(news, None, "{profile}, {jobs:?}, at {}: a healthy drive is accused", world.now());
    }
    assert_eq!(speed.status(world.now()).speed, Speed::AsExpected, "{profile}, {jobs:?}");
}

/// What becomes so many times as slow.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Commands(u64),
    /// What the dies do is a part of what commands take, the less of it the deeper the queues.
    Dies(u64),
}

impl Slow {
    /// The rules for it, on a drive of so many channels whose commands take `mean`.
    fn rules(self, mean: Nanos, channels: u32) -> Vec<FaultRule> {
        let rule = |pairs: [(&str, &str); 3]| {
            let used = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            FaultRule::from_pairs(used).unwrap_or_else(|e| panic!("{self:?}: {e}"))
        };
        match self {
            Slow::Commands(factor) => {
                let time = format!("{}ns", mean.0 * (factor - 1));
                vec![rule([("effect", "latency"), ("time", &time), ("count", "")])]
            }
            Slow::Dies(factor) => {
                let (times, all) = (factor.to_string(), 0..channels);
                let of =
                    |channel: u32| rule([("effect", "slow-die"), ("times", &times), ("channel", &channel.to_string())]);
                all.map(of).collect()
            }
        }
    }
}

/// A drive that becomes slow is found within a minute.
fn is_found(profile: &str, tests: &DriveModel, jobs: &[&str], slow: Slow) {
    let mut world = world(profile, jobs, 11);
    let mut speed = DriveSpeed::calibrated(Nanos(0), tests.clone());
    for _ in 0..2 {
        assert_eq!(second(&mut world, &mut speed), None, "{profile}, {jobs:?}: nothing is slow yet");
    }
    let times = world.drive().service_times();
    let shape = world.inside().and_then(|inside| inside.flash_shape()).expect("flash");
    for rule in slow.rules(Nanos(times.served.0 / times.done.max(1)), shape.channels) {
        world.add_fault(rule).unwrap_or_else(|e| panic!("{slow:?}: {e}"));
    }
    let found = (1..=LIMIT).find_map(|seconds| second(&mut world, &mut speed).map(|news| (seconds, news)));
    let Some((seconds, Evidence::Slow(slowness))) = found else {
        panic!("{profile}, {jobs:?}, {slow:?}: {found:?}, {:?}", speed.status(world.now()))
    };
    println!("{profile}, {jobs:?}, {slow:?}: {slowness}, after {seconds} s");
    assert_eq!(slowness.die, None, "its dies are not to be seen");
}

#[test]
fn a_slow_drive_is_found_by_its_calibration_and_a_healthy_one_is_not_accused() {
    let tests = tests_of("p3700");
    [2, 6, 7, 8].into_iter().for_each(|at| is_healthy("p3700", &tests, LOADS[at], 9));
    is_found("p3700", &tests, LOADS[0], Slow::Commands(2));
    is_found("p3700", &tests, LOADS[8], Slow::Commands(5));
    is_found("p3700", &tests, LOADS[0], Slow::Dies(5));
}

#[test]
fn load_that_was_not_measured_is_not_judged() {
    let tests = tests_of("p3700");
    let mut world = world("p3700", &["rw=randread,bs=1MiB,qd=4"], 11);
    let mut speed = DriveSpeed::calibrated(Nanos(0), tests);
    assert!((0..10).all(|_| second(&mut world, &mut speed).is_none()));
    assert_eq!(speed.status(world.now()).speed, Speed::NotJudged(NotJudged::Unmeasured));
}

#[test]
#[ignore = "minutes"]
fn every_profile_under_every_load() {
    for profile in ["p3700", "p3600", "960pro", "pm963"] {
        let tests = tests_of(profile);
        for jobs in LOADS {
            is_healthy(profile, &tests, jobs, 60);
            for factor in [2, 5, 20] {
                is_found(profile, &tests, jobs, Slow::Commands(factor));
            }
            is_found(profile, &tests, jobs, Slow::Dies(20));
        }
    }
}
