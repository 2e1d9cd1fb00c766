//! Drives and dies that became slow are found, and healthy ones are not accused: [`DriveSpeed`] in virtual time.
//!
//! A part in every run; all of it, with its counts, by `cargo test --release -p weir-sim --test fail_slow -- --ignored --nocapture`.

use weir_config::DeviceConfig;
use weir_controller::{SubsystemConfig, TenantConfig};
use weir_drive::{DriveSpeed, FlashService};
use weir_driver::health::{Evidence, Slowness, Speed};
use weir_fault::FaultRule;
use weir_flash::{Errors, Housekeeping, Variability};
use weir_sim::{Setup, SimulatedClient, SimulatedDrive};
use weir_units::{Class, Nanos};
use weir_workload::Job;

const PROFILES: [&str; 3] = ["p3700", "p3600", "960pro"];
/// Of a fault, of load.
const LIMIT: u64 = 60;
/// Seconds of load before it.
const BEFORE: u64 = 2;
const DIE: u32 = 3;

/// What becomes slow.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Die,
    AllDies,
    Commands,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    profile: &'static str,
    part: Part,
    factor: u64,
    depth: u32,
    reads: u8,
}

fn device(profile: &str, capacity: &str) -> DeviceConfig {
    let query = format!("capacity={capacity}&precondition=steady");
    DeviceConfig::from_query(profile, &query).unwrap_or_else(|e| panic!("{profile}: {e}"))
}

fn world(device: &DeviceConfig, job: &str, seed: u64) -> SimulatedDrive {
    let job = Job::parse(job, &Job::default()).unwrap_or_else(|e| panic!("{job}: {e}"));
    let machine = weir_drive::machine_config(device);
    let machine = SubsystemConfig { tenants: vec![TenantConfig::new("load", Class::Medium)], ..machine };
    let flash = device.flash.as_ref().expect("flash");
    let inside = FlashService::new(&flash.config, flash.precondition, Nanos(0)).unwrap_or_else(|e| panic!("{e}"));
    let capacity = flash.config.ftl.capacity.expect("a capacity").get();
    let setup = Setup::new(capacity, vec![SimulatedClient::new(&job, 0)], seed);
    SimulatedDrive::with(machine, Some(Box::new(inside)), setup).unwrap_or_else(|e| panic!("{e}"))
}

fn second(world: &mut SimulatedDrive, speed: &mut DriveSpeed) -> Option<Evidence> {
    world.run_until(world.now().saturating_add(DriveSpeed::EVERY));
    let news = world.look_at_speed(speed);
    speed.check();
    news
}

impl Case {
    /// The rules that make the part take `factor` times as long, on a drive of so many channels; of commands, by what one takes in the mean.
    fn rules(&self, mean: Nanos, channels: u32) -> Vec<FaultRule> {
        let slow = |key, number: u32| {
            vec![("effect", "slow-die".into()), ("times", self.factor.to_string()), (key, number.to_string())]
        };
        let delay = format!("{}ns", mean.0 * (self.factor - 1));
        let all = match self.part {
            Part::Die => vec![slow("die", DIE)],
            Part::AllDies => (0..channels).map(|channel| slow("channel", channel)).collect(),
            Part::Commands => vec![vec![("effect", "latency".into()), ("time", delay)]],
        };
        let rule =
            |pairs: Vec<(&str, String)>| FaultRule::from_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str())));
        all.into_iter().map(|pairs| rule(pairs).unwrap_or_else(|e| panic!("{self:?}: {e}"))).collect()
    }

    /// Seconds from the fault until it is found, and what is found then.
    fn run(&self) -> (u64, Slowness) {
        let job = format!("rw=randrw:{},bs=4KiB,qd={}", self.reads, self.depth);
        let mut world = world(&device(self.profile, "1GiB"), &job, 7);
        let mut speed = DriveSpeed::new(Nanos(0));
        for _ in 0..BEFORE {
            assert_eq!(second(&mut world, &mut speed), None, "{self:?}: nothing is slow yet");
        }
        let times = world.drive().service_times();
        let shape = world.inside().and_then(|inside| inside.flash_shape()).expect("flash");
        for rule in self.rules(Nanos(times.served.0 / times.done.max(1)), shape.channels) {
            world.add_fault(rule).unwrap_or_else(|e| panic!("{self:?}: {e}"));
        }
        for seconds in 1..=LIMIT {
            if let Some(news) = second(&mut world, &mut speed) {
                let Evidence::Slow(found) = news else { panic!("{self:?}: {news}") };
                assert_eq!(speed.status(world.now()).speed, Speed::Slow(found));
                return (seconds, found);
            }
        }
        panic!("{self:?}: not found within {LIMIT} s: {:?}", speed.status(world.now()));
    }

    fn check(&self) {
        let (seconds, found) = self.run();
        let die = (self.part == Part::Die).then_some(DIE);
        assert_eq!(found.die, die, "{self:?}: {found}");
        let factor = f64::from(found.percent) / 100.0 / self.factor as f64;
        // Of commands the factor is relative to a mean that moves: a delayed drive is less full, and collection comes and goes.
        let (least, most) = if self.part == Part::Commands { (0.5, f64::INFINITY) } else { (0.9, 1.01) };
        assert!((least..=most).contains(&factor), "{self:?}: {found}");
        println!("{self:?}: {found}, after {seconds} s");
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let parts = [Part::Die, Part::AllDies, Part::Commands].into_iter();
    let loads = |part| [1, 32].into_iter().flat_map(move |depth| [100, 0, 70].map(|reads| (part, depth, reads)));
    let each = parts.flat_map(loads).flat_map(|load| [2, 5, 20].map(|factor| (load, factor)));
    let all = each.flat_map(|load| PROFILES.map(|profile| (load, profile)));
    all.map(|(((part, depth, reads), factor), profile)| Case { profile, part, factor, depth, reads })
}

/// Every part, factor, profile, depth and mix at least once.
#[test]
fn a_slow_die_and_a_slow_drive_are_found_within_a_minute() {
    let picked = cases().enumerate().filter(|(at, case)| at % 23 == 5 && (case.depth == 1 || case.factor > 2));
    let run = picked.map(|(_, case)| case.check()).count();
    assert!(run >= 5, "{run} cases");
}

#[test]
#[ignore = "minutes"]
fn every_slow_die_and_drive_is_found_within_a_minute() {
    cases().for_each(|case| case.check());
}

/// A drive whose chips and pages differ, with retries, wear, and dies that are away now and then.
fn varied(profile: &str, seed: u64) -> DeviceConfig {
    let mut device = device(profile, "1GiB");
    device.flash.as_mut().expect("flash").config.variability = Variability {
        seed,
        chip_spread: 150,
        bad_chips: 100,
        bad_chip_slowdown: 2000,
        bad_chip_errors: 4.0,
        page_spread: 200,
        initial_cycles: 2500,
        wear_slowdown: 500,
        errors: Some(Errors::default()),
        housekeeping: Some(Housekeeping { time: Nanos::from_millis(5), every: Nanos::from_secs(1) }),
        ..Variability::default()
    };
    device
}

/// Lets healthy drives of the grid's depths, sizes and mixes work for so many hours in all, most of them as lightly as drives do: windows
/// that were judged.
fn healthy(hours: u64) -> u64 {
    const LOADS: [(&str, u32); 6] = [
        ("rw=randread,bs=4KiB", 4),
        ("rw=randwrite,bs=4KiB", 2),
        ("rw=randrw:70,bs=4KiB", 4),
        ("rw=randrw:50,bs=12KiB", 2),
        ("rw=randrw:85,bs=24KiB", 2),
        ("rw=randrw:30,bs=64KiB", 1),
    ];
    let (drives, busy) = (PROFILES.len() as u64 * LOADS.len() as u64, 2);
    let seconds = hours * 3600 / drives;
    let (mut windows, mut seed) = (0, 0);
    for profile in PROFILES {
        for (load, iops) in LOADS {
            seed += 1;
            // Every depth of the grid at full load, then hours of a few commands a second.
            let (full, light) = (
                format!("{load},qd={}", [1, 3, 6, 12, 24, 48][seed as usize % 6]),
                format!("{load},qd=64,rate={iops},arrival=poisson"),
            );
            for (job, seconds) in [(full, busy), (light, seconds.saturating_sub(busy))] {
                let mut world = world(&varied(profile, seed), &job, seed);
                let mut speed = DriveSpeed::new(Nanos(0));
                for _ in 0..seconds {
                    let news = second(&mut world, &mut speed);
                    assert_eq!(news, None, "{profile}, {job}, at {}: a healthy drive is accused", world.now());
                }
                let status = speed.status(world.now());
                assert_eq!(status.speed, Speed::AsExpected, "{profile}, {job}");
                windows += status.windows;
            }
        }
    }
    windows
}

#[test]
fn healthy_drives_are_not_accused() {
    let windows = healthy(36);
    assert!(windows > 10_000, "{windows} windows were judged");
}

#[test]
#[ignore = "minutes"]
fn healthy_drives_are_not_accused_in_ten_thousand_hours() {
    let windows = healthy(10_000);
    println!("0 accusations in 10,000 drive-hours, {windows} windows");
}
