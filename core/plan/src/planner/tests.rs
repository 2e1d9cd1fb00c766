//! The planner against judges whose answers are known by hand.

use super::*;
use proptest::prelude::*;
use weir_arbiter::Mechanism;
use weir_units::{Bytes, Class, Nanos, Rates};
use weir_workload::{Job, Latency};

/// Commands a second of the drive: 16 slots of 100 µs.
const CAPACITY: f64 = 160_000.0;

fn drive() -> DriveModel {
    DriveModel::fixed(Nanos::from_micros(100), 16, 64 << 20)
}

fn plan_of(name: &str, class: Class, job: &str, sla: Sla) -> TenantPlan {
    let demand = crate::Demand::of(&Job::parse(job, &Job::default()).unwrap());
    TenantPlan { tenant: PlanTenant::new(name, class, demand), sla }
}

fn iops(iops: f64) -> Sla {
    Sla { rates: Rates { iops: Some(iops as u64), bandwidth: None }, ..Sla::default() }
}

/// Everybody backlogged: rates as the shares say, latencies by Little's law.
struct Ideal {
    plans: Vec<TenantPlan>,
    weighs: bool,
    asked: u32,
    /// What a confirmation finds less than a first look.
    doubt: f64,
}

impl Ideal {
    fn of(plans: &[TenantPlan], mechanism: Mechanism) -> Ideal {
        Ideal { plans: plans.to_vec(), weighs: mechanism == Mechanism::Drr, asked: 0, doubt: 1.0 }
    }

    fn got(&self, shares: &Shares, factor: f64) -> Vec<Got> {
        let classes: Vec<Class> = self.plans.iter().map(|p| p.tenant.class).collect();
        let weight = |class: Class| f64::from(shares.classes[class as usize - 1]);
        let used = Class::WEIGHTED.into_iter().filter(|c| classes.contains(c));
        let all: f64 = used.map(weight).sum();
        let tenant = |i: usize| if self.weighs { f64::from(shares.tenants[i]) } else { 1.0 };
        let of_class = |class: Class| (0..classes.len()).filter(|i| classes[*i] == class).map(tenant).sum::<f64>();
        let one = |i: usize| {
            let class = classes[i];
            let iops = CAPACITY * factor * weight(class) / all * tenant(i) / of_class(class);
            let ns = self.plans[i].tenant.demand.outstanding() / iops * 1e9;
            let latency = Latency { mean: ns, p50: ns as u64, p99: ns as u64, p999: ns as u64, max: ns as u64 };
            Got { iops, bandwidth: iops * 4096.0, latency: Some(latency), ..Got::default() }
        };
        (0..classes.len()).map(one).collect()
    }
}

impl Judge for Ideal {
    type Error = Infallible;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, Infallible> {
        self.asked += 1;
        Ok(self.got(shares, 1.0))
    }

    fn confirm(&mut self, shares: &Shares) -> Result<Vec<Got>, Infallible> {
        Ok(self.got(shares, self.doubt))
    }
}

fn ask(plans: &[TenantPlan], mechanism: Mechanism, judge: &mut Ideal) -> PlannedShares {
    let Ok(answer) = plan(&drive(), &Setting::new(mechanism), plans, judge);
    answer
}

fn three(parts: [f64; 3]) -> Vec<TenantPlan> {
    let one = |(class, part): (Class, f64)| plan_of(class.name(), class, "qd=64", iops(CAPACITY * part));
    Class::WEIGHTED.into_iter().zip(parts).map(one).collect()
}

#[test]
fn the_smallest_weights_that_fit() {
    for parts in [[0.5, 0.3, 0.15], [0.6, 0.2, 0.1], [0.34, 0.32, 0.30], [0.8, 0.1, 0.05]] {
        for mechanism in [Mechanism::Wrr, Mechanism::Drr] {
            let plans = three(parts);
            let mut judge = Ideal::of(&plans, mechanism);
            let answer = ask(&plans, mechanism, &mut judge);
            assert!(answer.is_feasible(), "{parts:?}: {answer:?}");
            let unit = if mechanism == Mechanism::Drr { QUANTUM } else { 1 };
            let sum: u32 = answer.shares.classes.iter().sum::<u32>() / unit;
            // By hand: every smaller sum fails for somebody.
            let fits = |h: u32, m: u32, l: u32| {
                let total = f64::from(h + m + l);
                [h, m, l].iter().zip(parts).all(|(w, part)| f64::from(*w) / total >= part * FIRST)
            };
            let smaller = |sum: u32| (1..sum - 1).any(|h| (1..sum - h).any(|m| fits(h, m, sum - h - m)));
            assert!(!(3..sum).any(smaller), "{parts:?} {mechanism:?}: {:?} is not the smallest", answer.shares);
            assert!(judge.asked <= 2, "the model was right at once");
        }
    }
}

#[test]
fn tenants_of_one_class_weigh_where_bytes_are_counted() {
    let pair = |of_one: f64, of_two: f64| {
        let tenant = |name, part: f64| plan_of(name, Class::High, "qd=64", iops(CAPACITY * part));
        let low = plan_of("low", Class::Low, "qd=64", iops(CAPACITY * 0.2));
        vec![tenant("one", of_one), tenant("two", of_two), low]
    };
    let plans = pair(0.5, 0.24);
    let answer = ask(&plans, Mechanism::Drr, &mut Ideal::of(&plans, Mechanism::Drr));
    assert!(answer.is_feasible(), "{answer:?}");
    assert_eq!(answer.shares.tenants, [2, 1, 1]);
    let answer = ask(&plans, Mechanism::Wrr, &mut Ideal::of(&plans, Mechanism::Wrr));
    assert!(!answer.is_feasible(), "commands are shared evenly inside a class");
    assert_eq!(answer.unmet[0].tenant, 0);
}

#[test]
fn what_does_not_fit_says_what_is_missed_and_by_how_much() {
    let plans = three([0.6, 0.4, 0.2]);
    let answer = ask(&plans, Mechanism::Wrr, &mut Ideal::of(&plans, Mechanism::Wrr));
    assert!(!answer.is_feasible());
    // The best that can be done is to give everybody the same part of what was promised: 1/1.2.
    let first = answer.unmet[0];
    assert_eq!((first.tenant, first.bound), (0, SlaBound::Iops(96_000)));
    assert!((first.by() - (1.0 - 1.0 / 1.2)).abs() < 0.03, "{first:?}");
}

#[test]
fn only_what_is_confirmed_is_feasible() {
    let plans = three([0.5, 0.3, 0.15]);
    let mut judge = Ideal { doubt: 0.97, ..Ideal::of(&plans, Mechanism::Wrr) };
    let answer = ask(&plans, Mechanism::Wrr, &mut judge);
    assert!(answer.is_feasible());
    let least = super::search::Search::new(&plans, Mechanism::Wrr).rooms(&judge.got(&answer.shares, 0.97));
    assert!(least.iter().flatten().all(|room| *room >= 1.0), "{least:?}");
    let mut judge = Ideal { doubt: 0.9, ..Ideal::of(&plans, Mechanism::Wrr) };
    assert!(!ask(&plans, Mechanism::Wrr, &mut judge).is_feasible(), "there are 5 % only");
}

#[test]
fn without_a_choice_the_judge_is_asked_once() {
    let plans = three([0.5, 0.3, 0.1]);
    let mut judge = Ideal::of(&plans, Mechanism::Rr);
    assert_eq!(ask(&plans, Mechanism::Rr, &mut judge).tries, 1);
    let alone = vec![plan_of("only", Class::High, "qd=64", iops(1000.0))];
    assert!(ask(&alone, Mechanism::Drr, &mut Ideal::of(&alone, Mechanism::Drr)).is_feasible());
}

#[test]
fn a_rate_is_kept_by_giving_all_that_is_asked_for() {
    let got = Got { iops: 999.0, bandwidth: 999.0 * 4096.0, latency: None, sated: true, ..Got::default() };
    assert!(room(&iops(1000.0), &got).unwrap() > 1.0);
    assert!(room(&iops(1000.0), &Got { sated: false, ..got }).unwrap() < 1.0);
    let sla = Sla { p99: Some(Nanos(1000)), ..iops(1000.0) };
    let missed = unmet([sla].iter(), &[got], 1.0);
    assert_eq!(missed, [Unmet { tenant: 0, bound: SlaBound::P99(Nanos(1000)), got: None }]);
    assert_eq!(missed[0].by(), f64::INFINITY);
    assert_eq!(room(&Sla::default(), &got), None);
}

#[test]
fn the_model_alone_is_certain_beyond_its_error_only() {
    let setting = Setting::new(Mechanism::Wrr);
    // 32:16:8 gives 57, 28 and 14 %.
    assert!(verdict(&drive(), &setting, &three([0.5, 0.25, 0.13])).is_kept());
    let close = verdict(&drive(), &setting, &three([0.5, 0.28, 0.13]));
    assert_eq!((close.unmet.len(), close.unmet[0].tenant), (1, 1), "28 % is within the model's error: {close:?}");
    assert_eq!(close.standing(1, &close.unmet[0].bound), BoundStatus::Close);
    assert!(!close.is_kept() && !close.is_missed());
    assert!(verdict(&drive(), &setting, &three([0.5, 0.30, 0.13])).is_missed());
    let (shares, found) = propose(&drive(), &setting, &three([0.4, 0.35, 0.15]));
    assert!(found.is_kept(), "{found:?}");
    assert!(found.got[1].iops > CAPACITY * 0.35 * 1.03 && shares.classes[0] < 2 * shares.classes[1], "{shares:?}");
    let (_, found) = propose(&drive(), &setting, &three([0.5, 0.4, 0.2]));
    assert_eq!(found.unmet[0].tenant, 0);
    let bytes = Sla { rates: Rates { iops: None, bandwidth: Some(Bytes(1 << 40)) }, ..Sla::default() };
    let huge = [plan_of("huge", Class::High, "qd=64", bytes)];
    assert_eq!(verdict(&drive(), &setting, &huge).unmet.len(), 1);
}

#[test]
fn floors_that_do_not_fit_are_no_verdict_s_to_keep() {
    let mut plans = three([0.1, 0.1, 0.1]);
    plans.iter_mut().for_each(|p| p.tenant.floor.iops = Some((CAPACITY * 0.4) as u64));
    let verdict = verdict(&drive(), &Setting::new(Mechanism::Wrr), &plans);
    assert_eq!((verdict.floors.len(), verdict.floors[0].tenant), (1, 2), "{:?}", verdict.floors);
    assert!(verdict.is_missed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]

    #[test]
    fn what_fits_with_five_percent_is_found_and_what_cannot_is_not(
        parts in prop::array::uniform3(0.05f64..1.0), whole in prop_oneof![0.5f64..0.95, 1.02f64..1.5], drr: bool,
    ) {
        let sum: f64 = parts.iter().sum();
        let plans = three(parts.map(|p| p / sum * whole));
        let mechanism = if drr { Mechanism::Drr } else { Mechanism::Wrr };
        let mut judge = Ideal::of(&plans, mechanism);
        let answer = ask(&plans, mechanism, &mut judge);
        prop_assert_eq!(answer.is_feasible(), whole < 1.0, "{:?}", answer);
    }
}

/// A judge each of whose answers costs something: everybody gets half of what [`Ideal`] says.
struct Costly {
    ideal: Ideal,
    prepared: Vec<Shares>,
}

impl Judge for Costly {
    type Error = Infallible;

    fn judge(&mut self, shares: &Shares) -> Result<Vec<Got>, Infallible> {
        self.ideal.asked += 1;
        Ok(self.ideal.got(shares, self.ideal.doubt))
    }

    fn prepare(&mut self, shares: &[Shares]) -> Result<(), Infallible> {
        assert!(shares.len() <= TOGETHER);
        self.prepared.extend_from_slice(shares);
        Ok(())
    }

    fn is_cheap(&self) -> bool {
        false
    }
}

fn measured() -> DriveModel {
    let test = |depth: u32| {
        let ns = 1e5 * f64::from(depth.max(16)) / 16.0;
        let latency = Latency { mean: ns, p50: ns as u64, p99: ns as u64, p999: ns as u64, max: ns as u64 };
        crate::calibrate::Test { depth, iops: f64::from(depth) / ns * 1e9, latency, ..Default::default() }
    };
    let point = crate::calibrate::LoadCurve::new(4096, 100, [1, 16, 64].map(test).to_vec()).unwrap();
    DriveModel::measured(vec![point], 64, 64 << 20).unwrap()
}

#[test]
fn what_is_far_from_being_kept_is_given_up_soon() {
    let plans = three([0.5, 0.3, 0.1]);
    let ask = |doubt: f64| {
        let ideal = Ideal { doubt, ..Ideal::of(&plans, Mechanism::Drr) };
        let mut judge = Costly { ideal, prepared: Vec::new() };
        let Ok(answer) = plan(&measured(), &Setting::new(Mechanism::Drr), &plans, &mut judge);
        (answer, judge)
    };
    let (answer, far) = ask(0.5);
    assert!(!answer.is_feasible() && answer.is_spent, "it says that it has not tried everything: {answer:?}");
    assert!(far.ideal.asked <= CORRECTIONS && far.prepared.is_empty(), "{}", far.ideal.asked);
    // 3 % too little: that is worth a climb, two shares at a time.
    let (answer, near) = ask(0.97 * 0.9);
    assert!(!answer.is_feasible() && near.ideal.asked > CORRECTIONS, "{}", near.ideal.asked);
    assert!(!near.prepared.is_empty() && near.prepared.len() as u32 <= near.ideal.asked, "{}", near.prepared.len());
}
