//! Choosing is O(1): node visits are counted.

use super::*;

/// The most node visits that one `pick`, `charge` and `backlog` take together.
fn worst(arbiter: &mut Arbiter, commands: u32, mut cost: impl FnMut() -> (u32, bool)) -> u64 {
    let mut worst = 0;
    for _ in 0..commands {
        let before = arbiter.rings.steps;
        let q = arbiter.pick().expect("somebody is backlogged");
        let (cost, keep) = cost();
        arbiter.charge(q, cost, keep);
        arbiter.backlog(q);
        worst = worst.max(arbiter.rings.steps - before);
    }
    worst
}

/// Three rings, in each at most a charge, a leave, an advance and a join.
const BOUND: u64 = 12;

fn crowd(mechanism: Mechanism, busy: usize, idle: usize, own: bool) -> Arbiter {
    let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
    let tenant = a.add_tenant(1);
    let group = a.add_group(tenant, ArbiterSettings::new(mechanism));
    for i in 0..busy + idle {
        let class = Class::WEIGHTED[i % 3];
        let q = if own { add_tenant(&mut a, class, 1)[0] } else { a.add_queue(group, class, class) };
        if i % (busy + idle).div_ceil(busy) == 0 {
            a.backlog(q);
        }
    }
    a
}

#[test]
fn a_constant_number_of_visits_however_many_queues() {
    for mechanism in MECHANISMS {
        for own in [false, true] {
            for (busy, idle) in [(1, 0), (3, 0), (100, 0), (10_000, 0), (1, 9_999), (100, 9_900)] {
                let mut a = crowd(mechanism, busy, idle, own);
                let mut rng = Rng(7);
                let n = worst(&mut a, 30_000, || (rng.size(1 << 20), rng.below(4) > 0));
                assert!(n <= BOUND, "{mechanism:?}, {busy} busy, {idle} idle, own tenants {own}: {n} visits");
                a.check();
            }
        }
    }
}

#[test]
fn commands_far_larger_than_a_quantum_cost_no_empty_rounds() {
    // Everybody asks for 1 MiB and classes get 4 KiB a round: 256 rounds a command for a class, 64 for a queue.
    for own in [false, true] {
        let mut a = crowd(Mechanism::Drr, 1_000, 0, own);
        a.configure(ArbiterSettings {
            quanta: Quanta { high: 4096, medium: 4096, low: 4096 },
            ..ArbiterSettings::new(Mechanism::Drr)
        });
        let n = worst(&mut a, 20_000, || (1 << 20, true));
        assert!(n <= BOUND, "{n} visits");
    }
}

#[test]
fn beyond_the_calendar_the_visits_are_few_on_average() {
    // 64 MiB are 4,096 rounds: 32 more looks per command.
    let mut a = crowd(Mechanism::Drr, 100, 0, false);
    let before = a.rings.steps;
    worst(&mut a, 10_000, || (64 << 20, true));
    let mean = (a.rings.steps - before) / 10_000;
    assert!(mean <= BOUND + 2 * 64, "{mean} visits");
}
