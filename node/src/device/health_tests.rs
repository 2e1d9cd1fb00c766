//! A modelled drive held to its model: slow by rule, and on a machine that is late itself.

use super::timed_tests::Bench;
use super::*;
use crate::remote::HealthStatus;
use weir_drive::DriveSpeed;
use weir_driver::health::{NotJudged, Slowness, Speed, Verdict};
use weir_fault::FaultRule;

const QUERY: &str = "capacity=16MiB&latency=1ms";

/// Reads one after the other for so many seconds, each of which comes `late` after its time; how the drive stands then.
fn load(bench: &mut Bench, from: Nanos, seconds: u64, late: Nanos) -> (Nanos, Option<HealthStatus>) {
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

fn speed(found: &Option<HealthStatus>) -> Option<Speed> {
    Some(found.as_ref()?.speed.as_ref()?.speed)
}

fn rule(text: &[(&str, &str)]) -> FaultRule {
    FaultRule::from_pairs(text.iter().copied()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_drive_that_a_rule_delays_is_slow_until_the_rule_goes() {
    let mut bench = Bench::new(QUERY);
    let (now, found) = load(&mut bench, Nanos(0), 5, Nanos(0));
    assert_eq!(speed(&found), Some(Speed::AsExpected));
    assert_eq!(found.and_then(|found| found.verdict()), None);
    let id = bench.device.machine_mut().add_fault(now, rule(&[("effect", "latency"), ("time", "4ms")])).unwrap();
    let (now, found) = load(&mut bench, now, 15, Nanos(0));
    // A window that began before the rule may be one of the slow ones.
    let Some(Speed::Slow(Slowness { percent: 450..=501, die: None })) = speed(&found) else { panic!("{found:?}") };
    let found = found.unwrap();
    assert_eq!((found.verdict(), found.disturbances, found.reports.len()), (Some(Verdict::Slow), 1, 1));
    assert!(bench.device.machine_mut().remove_fault(id).is_some(), "the rule is there");
    let (_, found) = load(&mut bench, now, 20, Nanos(0));
    assert_eq!(speed(&found), Some(Speed::AsExpected));
    let found = found.unwrap();
    assert_eq!((found.verdict(), found.disturbances), (None, 1), "the report is kept");
}

#[test]
fn a_late_machine_does_not_judge_a_drive() {
    let mut bench = Bench::new(QUERY);
    bench.device.machine_mut().add_fault(Nanos(0), rule(&[("effect", "latency"), ("time", "4ms")])).unwrap();
    let (_, found) = load(&mut bench, Nanos(0), 30, Nanos::from_micros(300));
    assert_eq!(speed(&found), Some(Speed::NotJudged(NotJudged::Disturbed)));
    assert_eq!(found.and_then(|found| found.verdict()), None);
}

#[test]
fn a_drive_without_a_model_is_not_judged_at_all() {
    let mut bench = Bench::new("capacity=16MiB");
    bench.submit(Nanos(0), Op::Read, 0, vec![0; 512]);
    bench.run(Nanos(0), Nanos::NEVER);
    assert!(bench.device.health(Nanos(0)).is_none());
}
