//! A modelled drive held to its model: slow by rule, and on a machine that is late itself.

use super::timed_tests::Bench;
use super::*;
use crate::remote::HealthStatus;
use weir_drive::DriveSpeed;
use weir_driver::health::{NotJudged, Slowness, SmartReading, Speed, Verdict};
use weir_fault::FaultRule;

const QUERY: &str = "capacity=16MiB&latency=1ms";

/// Reads one after the other for so many seconds, each of which comes `late` after its time; how the drive stands then.
fn load(bench: &mut Bench, from: Nanos, seconds: u64, late: Nanos) -> (Nanos, HealthStatus) {
    let end = from.saturating_add(Nanos::from_secs(seconds));
    let mut now = from;
    let mut look = from.saturating_add(DriveSpeed::EVERY);
    while now < end {
        bench.submit(now, Op::Read, 0, vec![0; 512]);
        bench.run(now, Nanos::NEVER);
        while !bench.device.is_quiet() {
            now = bench.device.due.max(Nanos(now.0 + 1));
            bench.run(now, Nanos::NEVER);
        }
        bench.device.deadlines.forget();
        bench.device.deadlines.record((now, late), (now.saturating_add(late), Nanos(0)));
        if now >= look {
            bench.device.look_at_speed(now, ThreadTime::default());
            look = now.saturating_add(DriveSpeed::EVERY);
        }
    }
    (now, bench.device.health(now))
}

fn speed(found: &HealthStatus) -> Option<Speed> {
    Some(found.speed.as_ref()?.speed)
}

fn rule(text: &[(&str, &str)]) -> FaultRule {
    FaultRule::from_pairs(text.iter().copied()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_drive_that_a_rule_delays_is_slow_until_the_rule_goes() {
    let mut bench = Bench::new(QUERY);
    let (now, found) = load(&mut bench, Nanos(0), 5, Nanos(0));
    assert_eq!(speed(&found), Some(Speed::AsExpected));
    assert_eq!(found.verdict(), None);
    let id = bench.device.machine_mut().add_fault(now, rule(&[("effect", "latency"), ("time", "4ms")])).unwrap();
    let (now, found) = load(&mut bench, now, 15, Nanos(0));
    // A window that began before the rule may be one of the slow ones.
    let Some(Speed::Slow(Slowness { percent: 450..=501, die: None })) = speed(&found) else { panic!("{found:?}") };
    assert_eq!((found.verdict(), found.disturbances, found.reports.len()), (Some(Verdict::Slow), 1, 1));
    assert!(bench.device.machine_mut().remove_fault(id).is_some(), "the rule is there");
    let (_, found) = load(&mut bench, now, 20, Nanos(0));
    assert_eq!(speed(&found), Some(Speed::AsExpected));
    assert_eq!((found.verdict(), found.disturbances), (None, 1), "the report is kept");
}

#[test]
fn a_late_machine_does_not_judge_a_drive() {
    let mut bench = Bench::new(QUERY);
    bench.device.machine_mut().add_fault(Nanos(0), rule(&[("effect", "latency"), ("time", "4ms")])).unwrap();
    let (_, found) = load(&mut bench, Nanos(0), 30, Nanos::from_micros(300));
    assert_eq!(speed(&found), Some(Speed::NotJudged(NotJudged::Disturbed)));
    assert_eq!(found.verdict(), None);
}

#[test]
fn a_drive_without_a_model_has_a_smart_log_and_no_speed() {
    let mut bench = Bench::new("capacity=16MiB");
    bench.submit(Nanos(0), Op::Read, 0, vec![0; 512]);
    bench.run(Nanos(0), Nanos::NEVER);
    let found = bench.device.health(Nanos(0));
    assert!(found.speed.is_none() && found.verdict().is_none());
    assert_eq!(found.smart, Some(SmartReading { critical_warning: 0, available_spare: 100, media_errors: 0 }));
}

#[test]
fn a_block_that_a_rule_makes_fail_is_bad_for_a_minute() {
    let mut bench = Bench::new("capacity=16MiB");
    let id = bench.device.machine_mut().add_fault(Nanos(0), rule(&[("effect", "media-error"), ("lba", "0")])).unwrap();
    for op in [Op::Read, Op::Write] {
        bench.submit(Nanos(5), op, 0, vec![0; 512]);
        bench.run(Nanos(5), Nanos::NEVER);
    }
    let found = bench.device.health(Nanos(9));
    assert_eq!((found.verdict(), found.smart.map(|smart| smart.media_errors)), (Some(Verdict::BadBlocks), Some(2)));
    let failing: Vec<_> = found.failing_blocks.iter().map(|block| (block.nsid, block.lba, block.errors)).collect();
    assert_eq!(failing, [(1, 0, 2)]);
    assert!(bench.device.machine_mut().remove_fault(id).is_some(), "the rule is there");
    let later = bench.device.health(Nanos::from_secs(61));
    assert_eq!((later.verdict(), later.smart.map(|smart| smart.media_errors)), (None, Some(2)), "SMART goes on");
}

#[test]
fn what_smart_warns_of_is_the_verdict() {
    let mut bench = Bench::new("capacity=16MiB");
    bench.device.machine_mut().add_fault(Nanos(0), rule(&[("effect", "smart"), ("spare", "5")])).unwrap();
    bench.run(Nanos(1), Nanos::NEVER);
    let found = bench.device.health(Nanos(1));
    assert_eq!(
        (found.verdict(), found.smart.map(|smart| smart.available_spare)),
        (Some(Verdict::WearWarning), Some(5))
    );
}
