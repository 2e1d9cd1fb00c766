//! Who gets what of a drive, end to end through the controller and in virtual time.

mod common;

use common::{config, moved, world};
use weir_arbiter::{ArbiterSettings, Mechanism, Quanta, Weights};
use weir_units::{Bytes, Nanos};

const WEIGHTED: [Mechanism; 2] = [Mechanism::Wrr, Mechanism::Drr];
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn assert_near(got: f64, want: f64, within: f64, what: &str) {
    assert!((got / want - 1.0).abs() <= within, "{what}: {got:.4} instead of {want:.4}");
}

#[test]
fn sixteen_queues_win_a_tenant_no_more_than_one() {
    println!("{:<6}{:<24}{:>12}{:>12}", "", "against 16 × qd 256", "one queue", "16 queues");
    for mechanism in [Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        for (rival, name) in [("high", "of its own class"), ("low", "of another class")] {
            let rival = format!("name=one,class={rival},qd=128");
            let share = |greedy: &str| {
                let mut world = world(config(mechanism), &[&rival, greedy], 1);
                let got = moved(&mut world, 2, MS(50), MS(550));
                got[1] / (got[0] + got[1])
            };
            let one = share("name=greedy,class=high,qd=256");
            let sixteen = share("name=greedy,class=high,qd=256,jobs=16");
            println!("{:<6}{name:<24}{one:>12.4}{sixteen:>12.4}", format!("{mechanism:?}"));
            assert_near(sixteen, one, 0.005, &format!("{mechanism:?} {name}"));
            let ideal = if name == "of its own class" || mechanism == Mechanism::Rr { 0.5 } else { 0.8 };
            assert_near(one, ideal, 0.005, &format!("{mechanism:?} {name}, one queue"));
        }
    }
}

#[test]
fn one_active_class_has_everything() {
    let alone = |mechanism, jobs: &[&str]| moved(&mut world(config(mechanism), jobs, 1), 1, MS(10), MS(110))[0];
    let most = 64.0 * 4096.0 * 1_000.0; // 64 slots, each 10 commands a millisecond, for 100 ms
    for mechanism in [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        for class in ["urgent", "high", "medium", "low"] {
            let job = format!("name=only,class={class},qd=128");
            assert_near(alone(mechanism, &[&job]), most, 0.0, &format!("{mechanism:?} {class}"));
            // Idle neighbours cost nothing: they start when it is over.
            let idle = "name=idle,class=high,qd=128,start=10s";
            assert_near(alone(mechanism, &[&job, idle]), most, 0.0, &format!("{mechanism:?} {class}, beside idle"));
        }
    }
}

#[test]
fn an_arriving_class_has_its_share_within_ten_milliseconds() {
    for mechanism in WEIGHTED {
        let jobs = ["name=low,class=low,qd=128", "name=high,class=high,qd=128,start=1s"];
        let mut world = world(config(mechanism), &jobs, 1);
        for (from, within) in [(1_000, 0.02), (1_010, 0.005), (1_050, 0.005)] {
            let got = moved(&mut world, 2, MS(from), MS(from + 10));
            let share = got[1] / (got[0] + got[1]);
            println!("{mechanism:?} from {} ms after its arrival: {share:.4}", from - 1_000);
            assert_near(share, 0.8, within, &format!("{mechanism:?} at {from} ms"));
        }
    }
}

#[test]
fn a_class_that_goes_leaves_its_share_to_the_others() {
    for mechanism in WEIGHTED {
        let jobs = ["name=low,class=low,qd=128", "name=high,class=high,qd=128,time=500ms"];
        let mut world = world(config(mechanism), &jobs, 1);
        let before = moved(&mut world, 2, MS(100), MS(400));
        let after = moved(&mut world, 2, MS(510), MS(810));
        assert_near(before[1] / before[0], 4.0, 0.005, "before");
        assert_eq!(after[1], 0.0);
        assert_near(after[0], before[0] + before[1], 0.001, "the drive stays busy");
    }
}

#[test]
fn urgent_waits_for_nobody() {
    for mechanism in WEIGHTED {
        let jobs = ["name=high,class=high,qd=128", "name=urgent,class=urgent,qd=4", "name=low,class=low,qd=128"];
        let mut world = world(config(mechanism), &jobs, 1);
        world.run_until(MS(300));
        let urgent = &world.results()[1].summary;
        // Never more than one command of somebody else's before it: two service times.
        assert!(urgent.latency.max <= 2 * 100_000, "{mechanism:?}: {} ns", urgent.latency.max);
        assert_eq!(urgent.errors, 0);
    }
}

#[test]
fn slot_bytes_are_never_exceeded() {
    for mechanism in WEIGHTED {
        for slot_bytes in [64 << 10, 256 << 10, 1 << 20] {
            let mut config = config(mechanism);
            config.slot_bytes = slot_bytes;
            let jobs =
                ["name=large,class=high,bs=64KiB,qd=128", "name=mixed,class=high,bs=4KiB:90/32KiB:10,rw=randrw,qd=128"];
            let mut world = world(config, &jobs, 1);
            let got = moved(&mut world, 2, MS(50), MS(550));
            let most = world.most_bytes_in_flight();
            println!("{mechanism:?} slot_bytes {}: at most {most} in flight", Bytes(slot_bytes));
            assert!(most.get() <= slot_bytes, "{most} in flight");
            assert!(most.get() > slot_bytes / 2, "only {most} in flight");
            if mechanism == Mechanism::Drr {
                assert_near(got[0] / got[1], 1.0, 0.01, "large commands are not starved by small ones");
            }
        }
    }
}

#[test]
fn settings_change_while_it_runs() {
    for mechanism in WEIGHTED {
        let jobs = ["name=high,class=high,qd=128", "name=low,class=low,qd=128"];
        let mut world = world(config(mechanism), &jobs, 1);
        let before = moved(&mut world, 2, MS(50), MS(350));
        assert_near(before[0] / before[1], 4.0, 0.005, "before");
        let settings = ArbiterSettings {
            weights: Weights { high: 10, medium: 10, low: 30 },
            quanta: Quanta { high: 64 << 10, medium: 64 << 10, low: 192 << 10 },
            ..ArbiterSettings::new(mechanism)
        };
        world.drive().set_arbitration(settings).expect("good settings");
        let after = moved(&mut world, 2, MS(360), MS(660));
        assert_near(after[1] / after[0], 3.0, 0.005, "after");
    }
}

#[test]
fn open_loop_jobs_get_what_they_ask_for() {
    let jobs = ["name=paced,class=low,rate=20k,qd=64", "name=flood,class=high,qd=256"];
    let mut world = world(config(Mechanism::Drr), &jobs, 1);
    world.run_until(MS(1_000));
    let results = world.results();
    assert_near(results[0].summary.iops, 20_000.0, 0.01, "paced");
    assert_near(results[1].summary.iops, 620_000.0, 0.01, "the rest");
}

#[test]
fn a_seed_decides_everything() {
    let run = |seed| {
        let jobs = [
            "name=a,class=high,bs=4KiB:50/64KiB:50,rw=randrw:70,qd=37,jobs=3",
            "name=b,class=low,rw=trim,bs=32KiB,rate=9k,qd=5,start=3ms",
            "name=c,class=urgent,rate=100MB/s,bs=512:50/4KiB:50,qd=9,time=20ms",
        ];
        let mut world = world(config(Mechanism::Drr), &jobs, seed);
        for ms in 1..40 {
            world.run_until(MS(ms));
            world.check();
        }
        format!("{:x} {:?}", world.digest(), world.results())
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
    assert!(!first.contains("errors: 1"), "{first}");
}

#[test]
fn a_world_that_cannot_be_is_refused() {
    let mut still = config(Mechanism::Drr);
    still.latency = Nanos(0);
    let job = [weir_workload::Job::default()];
    let error = weir_sim::SimulatedDrive::new(still, &job, 1 << 30, 1).unwrap_err();
    assert_eq!(error.to_string(), "a drive without latency takes no virtual time");
    let error = weir_sim::SimulatedDrive::new(config(Mechanism::Drr), &job, 1 << 9, 1).unwrap_err();
    assert!(error.to_string().contains("larger than the region"), "{error}");
}
