//! Who gets how much: against the ideal, at every moment and over every interval.

use super::*;
use proptest::prelude::*;

/// Peers' service against each other. Keeps, per pair, the extremes of their weighted difference: the spread of those
/// is the worst over all intervals.
struct Peers {
    weight: Vec<i128>,
    served: Vec<i128>,
    extremes: Vec<(i128, i128)>,
}

impl Peers {
    fn new(weight: &[u32]) -> Peers {
        let weight: Vec<i128> = weight.iter().map(|&w| i128::from(w)).collect();
        let n = weight.len();
        Peers { weight, served: alloc::vec![0; n], extremes: alloc::vec![(0, 0); n * n] }
    }

    fn serve(&mut self, i: usize, amount: u32) {
        self.served[i] += i128::from(amount);
        let n = self.weight.len();
        for j in 0..n {
            let difference = self.served[i] * self.weight[j] - self.served[j] * self.weight[i];
            for (at, d) in [(i * n + j, difference), (j * n + i, -difference)] {
                let (low, high) = &mut self.extremes[at];
                (*low, *high) = ((*low).min(d), (*high).max(d));
            }
        }
    }

    /// For every pair: the worst over all intervals of `|Si·wj - Sj·wi|`, with the weights.
    fn worst(&self) -> impl Iterator<Item = (i128, i128, i128)> + '_ {
        let n = self.weight.len();
        let pairs = (0..n * n).filter(move |at| at / n != at % n);
        pairs.map(move |at| (self.extremes[at].1 - self.extremes[at].0, self.weight[at / n], self.weight[at % n]))
    }

    /// Nobody is further than `quantum + 2·max` from what it should have of what a pair got, over any interval.
    fn assert_near_ideal(&self, quantum: u32, max: u32) {
        for (worst, wi, wj) in self.worst() {
            let bound = i128::from(quantum) + 2 * i128::from(max);
            assert!(worst <= bound * (wi + wj), "{} off the ideal, allowed {bound}", worst / (wi + wj));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]

    /// Classes keep the strict bound of deficit round robin: between any two, over any interval, `Q + 2·Max` where Q is
    /// a quantum and shares are weighed by quanta.
    #[test]
    fn drr_classes(quanta in [4096..=262_144u32, 4096..=262_144, 4096..=262_144], most in 4096..=1_048_576u32, seed in 1..u64::MAX) {
        let [high, medium, low] = quanta;
        let settings = ArbiterSettings { quanta: Quanta { high, medium, low }, ..ArbiterSettings::new(Mechanism::Drr) };
        let mut a = Arbiter::new(settings);
        let queues: Vec<QueueKey> = Class::WEIGHTED.map(|c| add_tenant(&mut a, c, 1)[0]).into();
        queues.iter().for_each(|&q| a.backlog(q));
        let (mut rng, mut peers) = (Rng(seed), Peers::new(&quanta));
        // Each class has its own range of sizes: the mix must not matter.
        let ranges = [0, 1, 2].map(|_| 4096 + rng.below(u64::from(most) - 4095) as u32);
        for _ in 0..4_000 {
            let q = a.pick().unwrap();
            let i = queues.iter().position(|&other| other == q).unwrap();
            let cost = rng.size(ranges[i]);
            a.charge(q, cost, true);
            peers.serve(i, cost);
        }
        let max = i128::from(*ranges.iter().max().unwrap());
        for (worst, wi, wj) in peers.worst() {
            prop_assert!(worst <= wi * wj + max * (wi + wj), "{worst} {wi} {wj}");
        }
        a.check();
    }

    /// Tenants of a class by weight, controllers of a tenant, queues of a controller: near the ideal on every level at
    /// once, whatever the sizes.
    #[test]
    fn drr_tenants_controllers_and_queues(
        tenants in prop::collection::vec((1..8u16, 1..4usize, 1..5usize), 1..6), most in 4096..=1_048_576u32, seed in 1..u64::MAX,
    ) {
        let mut a = Arbiter::new(ArbiterSettings::new(Mechanism::Drr));
        let weights: Vec<u32> = tenants.iter().map(|t| u32::from(t.0)).collect();
        let mut of_tenant = Peers::new(&weights);
        let mut of_group: Vec<Peers> = tenants.iter().map(|t| Peers::new(&alloc::vec![1; t.1])).collect();
        let mut of_queue: Vec<Vec<Peers>> = tenants.iter().map(|t| (0..t.1).map(|_| Peers::new(&alloc::vec![1; t.2])).collect()).collect();
        let mut places = Vec::new();
        for (t, &(weight, groups, queues)) in tenants.iter().enumerate() {
            let tenant = a.add_tenant(weight);
            for g in 0..groups {
                let group = a.add_group(tenant, ArbiterSettings::new(Mechanism::Drr));
                for (q, key) in add_queues(&mut a, group, Class::Medium, queues).into_iter().enumerate() {
                    a.backlog(key);
                    places.push((key, (t, g, q)));
                }
            }
        }
        let mut rng = Rng(seed);
        let ranges: Vec<u32> = places.iter().map(|_| 4096 + rng.below(u64::from(most) - 4095) as u32).collect();
        for _ in 0..6_000 {
            let key = a.pick().unwrap();
            let at = places.iter().position(|(other, _)| *other == key).unwrap();
            let (t, g, q) = places[at].1;
            let cost = rng.size(ranges[at]);
            a.charge(key, cost, true);
            of_tenant.serve(t, cost);
            of_group[t].serve(g, cost);
            of_queue[t][g].serve(q, cost);
        }
        let heaviest = CHILD_QUANTUM * weights.iter().max().unwrap();
        of_tenant.assert_near_ideal(heaviest, most);
        of_group.iter().for_each(|peers| peers.assert_near_ideal(CHILD_QUANTUM, most));
        of_queue.iter().flatten().for_each(|peers| peers.assert_near_ideal(CHILD_QUANTUM, most));
        a.check();
    }

    /// Weighted round robin: classes are never more than a round apart, queues of a class never more than a visit.
    #[test]
    fn wrr_within_a_round(weights in [1..=64u16, 1..=64, 1..=64], burst in 0..8u8, queues in 1..6usize) {
        let [high, medium, low] = weights;
        let burst = Burst::from_bits(burst);
        let settings = ArbiterSettings { weights: Weights { high, medium, low }, burst, ..ArbiterSettings::new(Mechanism::Wrr) };
        let mut a = Arbiter::new(settings);
        let keys: Vec<Vec<QueueKey>> = Class::WEIGHTED.iter().map(|&c| add_tenant(&mut a, c, queues)).collect();
        keys.iter().flatten().for_each(|&q| a.backlog(q));
        let mut of_class = Peers::new(&weights.map(u32::from));
        let mut of_queue: Vec<Peers> = (0..3).map(|_| Peers::new(&alloc::vec![1; queues])).collect();
        for _ in 0..3_000 {
            let key = a.pick().unwrap();
            let class = keys.iter().position(|keys| keys.contains(&key)).unwrap();
            a.charge(key, 4096, true);
            of_class.serve(class, 1);
            of_queue[class].serve(keys[class].iter().position(|&q| q == key).unwrap(), 1);
        }
        for (worst, wi, wj) in of_class.worst() {
            prop_assert!(worst <= wi * wj, "more than a round apart: {worst} {wi} {wj}");
        }
        for (peers, weight) in of_queue.iter().zip(weights) {
            let visit = if burst == Burst::NoLimit { weight } else { weight.min(1 << burst.bits()) };
            peers.worst().for_each(|(worst, ..)| assert!(worst <= i128::from(visit)));
        }
    }
}

#[test]
fn round_robin_is_in_turn() {
    for (burst, visit) in [(Burst::Log2(0), 1), (Burst::Log2(3), 8), (Burst::NoLimit, 1)] {
        for n in [1, 3, 100, 10_000] {
            let mut a = Arbiter::new(ArbiterSettings { burst, ..ArbiterSettings::default() });
            let tenant = a.add_tenant(1);
            let group = a.add_group(tenant, ArbiterSettings { burst, ..ArbiterSettings::default() });
            let keys: Vec<QueueKey> =
                (0..n).map(|i| a.add_queue(group, Class::ALL[i % 4], Class::ALL[i / 4 % 4])).collect();
            keys.iter().for_each(|&q| a.backlog(q));
            for key in keys.iter().cycle().take(2 * n + 1) {
                for _ in 0..visit {
                    assert_eq!(a.pick(), Some(*key));
                    a.charge(*key, 4096, true);
                }
            }
        }
    }
}

/// Two controllers of a tenant with one queue and with four: every queue has its turn, so they get a fifth and four fifths.
#[test]
fn round_robin_gives_every_queue_of_a_tenant_its_turn() {
    for burst in [Burst::NoLimit, Burst::Log2(0), Burst::Log2(2)] {
        let mut a = Arbiter::new(ArbiterSettings { burst, ..ArbiterSettings::default() });
        let tenant = a.add_tenant(1);
        let sides = [1, 4].map(|n| {
            let group = a.add_group(tenant, ArbiterSettings::default());
            add_queues(&mut a, group, Class::Medium, n)
        });
        assert_eq!(race(&mut a, &[&sides[0], &sides[1]], 1_000, 1), [200, 800], "{burst:?}");
        a.check();
    }
}

/// A host that orders its queues itself, by a burst or by weights, has one turn for all of them.
#[test]
fn a_controller_with_an_order_of_its_own_takes_turns_as_one() {
    let burst = ArbiterSettings { burst: Burst::Log2(3), ..ArbiterSettings::default() };
    for own in [burst, ArbiterSettings::new(Mechanism::Wrr), ArbiterSettings::new(Mechanism::Drr)] {
        let mut a = Arbiter::new(ArbiterSettings::default());
        let tenant = a.add_tenant(1);
        let plain = a.add_group(tenant, ArbiterSettings::default());
        let plain = add_queues(&mut a, plain, Class::Medium, 3);
        let group = a.add_group(tenant, ArbiterSettings::default());
        let queues = add_queues(&mut a, group, Class::Medium, 4);
        a.set_group(group, own);
        assert_eq!(race(&mut a, &[&plain, &queues], 1_000, 1), [750, 250], "{own:?}");
        a.set_group(group, ArbiterSettings::default());
        assert_eq!(race(&mut a, &[&plain, &queues], 700, 1), [300, 400], "{own:?}");
        a.check();
    }
}

#[test]
fn nobody_starves_and_nothing_idles() {
    for mechanism in [Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        for n in [1, 3, 100, 10_000] {
            let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
            let keys: Vec<QueueKey> = (0..n).map(|i| add_tenant(&mut a, Class::WEIGHTED[i % 3], 1)[0]).collect();
            keys.iter().for_each(|&q| a.backlog(q));
            let mut waiting: std::collections::BTreeSet<QueueKey> = keys.into_iter().collect();
            // A visit is at most 8 commands for a low tenant, of which there are n / 3, and low has a seventh of all.
            let most = 8 * 7 * n.div_ceil(3) + 100;
            for _ in 0..most {
                let q = a.pick().expect("somebody is backlogged");
                waiting.remove(&q);
                a.charge(q, 4096, true);
            }
            assert!(waiting.is_empty(), "{mechanism:?}, {n} queues: {} never served", waiting.len());
            a.check();
        }
    }
}

#[test]
fn urgent_goes_first_in_turn() {
    for mechanism in [Mechanism::Wrr, Mechanism::Drr] {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let high = add_tenant(&mut a, Class::High, 1)[0];
        let urgent: Vec<QueueKey> = (0..3).map(|_| add_tenant(&mut a, Class::Urgent, 1)[0]).collect();
        a.backlog(high);
        assert_eq!(a.pick(), Some(high));
        urgent.iter().for_each(|&q| a.backlog(q));
        for round in 0..4 {
            for (i, &q) in urgent.iter().enumerate() {
                assert_eq!(a.pick(), Some(q), "{mechanism:?}");
                // Size is no matter, and neither is what has been had before.
                a.charge(q, 1 << (12 + 2 * i), round < 3);
            }
        }
        assert_eq!(a.pick(), Some(high));
        a.check();
    }
}

/// Bytes that each set of queues gets of `commands`, all backlogged throughout.
fn race(a: &mut Arbiter, sides: &[&[QueueKey]], commands: usize, cost: u32) -> Vec<u64> {
    sides.iter().for_each(|side| side.iter().for_each(|&q| a.backlog(q)));
    let mut got = alloc::vec![0; sides.len()];
    for _ in 0..commands {
        let q = a.pick().unwrap();
        a.charge(q, cost, true);
        got[sides.iter().position(|side| side.contains(&q)).unwrap()] += u64::from(cost);
    }
    got
}

#[test]
fn sixteen_queues_win_a_tenant_no_more_than_one() {
    for mechanism in [Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let one = add_tenant(&mut a, Class::High, 1);
        let sixteen = add_tenant(&mut a, Class::High, 16);
        // Nor do four controllers of four queues.
        let tenant = a.add_tenant(1);
        let mut controllers = Vec::new();
        for _ in 0..4 {
            let group = a.add_group(tenant, ArbiterSettings::default());
            controllers.extend(add_queues(&mut a, group, Class::High, 4));
        }
        let got = race(&mut a, &[&one, &sixteen, &controllers], 96 * 100, 4096);
        assert_eq!((got[0], got[1]), (got[1], got[2]), "{mechanism:?}");
        a.check();
    }
}

#[test]
fn a_class_alone_has_everything_and_another_comes_into_its_share_at_once() {
    for (mechanism, commands) in [(Mechanism::Wrr, 32), (Mechanism::Drr, 32)] {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let low = add_tenant(&mut a, Class::Low, 4);
        let high = add_tenant(&mut a, Class::High, 1);
        race(&mut a, &[&low], 1_000, 4096);
        let got = race(&mut a, &[&low, &high], commands + 8, 4096);
        assert_eq!(got[1], commands as u64 * 4096, "{mechanism:?}: high had to wait");
    }
}

#[test]
fn leaving_and_coming_back_wins_nothing() {
    // One side empties after every command and is back at once, the other never empties: credit is lost.
    let mut a = Arbiter::new(ArbiterSettings::new(Mechanism::Drr));
    let stays = add_tenant(&mut a, Class::High, 1)[0];
    let flits = add_tenant(&mut a, Class::High, 1)[0];
    let mut got = [0u64; 2];
    for _ in 0..10_000 {
        a.backlog(stays);
        a.backlog(flits);
        let q = a.pick().unwrap();
        a.charge(q, 4096, q == stays);
        got[usize::from(q == flits)] += 4096;
    }
    assert_eq!(got[0], 4 * got[1]);
    // And debt is kept: 1 MiB a time, but no more than its half.
    let mut got = [0u64; 2];
    for _ in 0..100_000 {
        a.backlog(stays);
        a.backlog(flits);
        let q = a.pick().unwrap();
        let cost = if q == flits { 1 << 20 } else { 4096 };
        a.charge(q, cost, q == stays);
        got[usize::from(q == flits)] += u64::from(cost);
    }
    assert!(got[1] <= got[0] + (1 << 20) + u64::from(CHILD_QUANTUM), "{got:?}");
    assert!(got[0] <= got[1] + (1 << 20) + u64::from(CHILD_QUANTUM), "{got:?}");
}

#[test]
fn an_old_debt_ends_with_the_rounds_it_was_for() {
    let mut a = Arbiter::new(ArbiterSettings::new(Mechanism::Drr));
    let debtor = add_tenant(&mut a, Class::High, 1)[0];
    let other = add_tenant(&mut a, Class::High, 1)[0];
    a.backlog(debtor);
    a.charge(debtor, 1 << 20, false);
    // 64 rounds of the other alone pay 1 MiB.
    race(&mut a, &[&[other]], 64 * 4, 4096);
    a.backlog(debtor);
    let got = race(&mut a, &[&[debtor], &[other]], 80, 4096);
    assert!(got[0].abs_diff(got[1]) <= u64::from(CHILD_QUANTUM), "{got:?}");
    // Alone, nobody waits for a debt.
    a.charge(debtor, u32::MAX, true);
    a.withdraw(other);
    assert_eq!(a.pick(), Some(debtor));
    a.check();
}

#[test]
fn new_quanta_and_weights_count_from_the_next_round() {
    for mechanism in [Mechanism::Wrr, Mechanism::Drr] {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let high = add_tenant(&mut a, Class::High, 2);
        let low = add_tenant(&mut a, Class::Low, 2);
        let before = race(&mut a, &[&high, &low], 40 * 10 + 7, 4096);
        assert!(before[0] >= 4 * before[1] && before[0] < 5 * before[1]);
        a.configure(ArbiterSettings {
            weights: Weights { high: 8, medium: 16, low: 32 },
            quanta: Quanta { high: 32 << 10, medium: 64 << 10, low: 128 << 10 },
            ..ArbiterSettings::new(mechanism)
        });
        a.check();
        // What is left of the round, then by the new numbers.
        race(&mut a, &[&high, &low], 40, 4096);
        let after = race(&mut a, &[&high, &low], 40 * 10, 4096);
        assert_eq!(after[1], 4 * after[0], "{mechanism:?}");
    }
}

#[test]
fn the_mechanism_can_change_while_everybody_waits() {
    let mut a = Arbiter::new(ArbiterSettings::new(Mechanism::None));
    let first = add_tenant(&mut a, Class::Low, 1);
    let second = add_tenant(&mut a, Class::High, 3);
    assert_eq!(race(&mut a, &[&first, &second], 100, 4096), [100 * 4096, 0]);
    for (mechanism, ratio) in [(Mechanism::Drr, 4), (Mechanism::Rr, 1), (Mechanism::Wrr, 4)] {
        a.configure(ArbiterSettings::new(mechanism));
        a.check();
        let got = race(&mut a, &[&first, &second], 400, 4096);
        assert_eq!(got[1], ratio * got[0], "{mechanism:?}");
    }
}

#[test]
fn a_controllers_settings_order_its_own_queues_only() {
    let mut a = Arbiter::new(ArbiterSettings::new(Mechanism::Drr));
    let tenant = a.add_tenant(1);
    let host = a.add_group(tenant, ArbiterSettings::new(Mechanism::Wrr));
    let high = a.add_queue(host, Class::Medium, Class::High);
    let low = a.add_queue(host, Class::Medium, Class::Low);
    let neighbour = add_tenant(&mut a, Class::Medium, 1);
    let got = race(&mut a, &[&[high], &[low], &neighbour], 80 * 100, 4096);
    assert_eq!((got[0] + got[1], got[0]), (got[2], 4 * got[1]));
    a.set_group(host, ArbiterSettings::new(Mechanism::Rr));
    let got = race(&mut a, &[&[high], &[low], &neighbour], 16 * 100, 4096);
    assert_eq!((got[0] + got[1], got[0]), (got[2], got[1]));
    a.check();
}

#[test]
fn a_held_tenant_is_passed_over_until_released() {
    for mechanism in MECHANISMS {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let tenant = a.add_tenant(1);
        let group = a.add_group(tenant, ArbiterSettings::new(mechanism));
        let held = [a.add_queue(group, Class::High, Class::High), a.add_queue(group, Class::Urgent, Class::High)];
        let other = add_tenant(&mut a, Class::Low, 1)[0];
        [held[0], held[1], other].iter().for_each(|&q| a.backlog(q));
        a.hold(tenant);
        a.check();
        for _ in 0..100 {
            assert_eq!(a.pick(), Some(other), "{mechanism:?}");
            a.charge(other, 65536, true);
        }
        // What happens to its queues meanwhile is not forgotten.
        a.withdraw(held[1]);
        a.withdraw(other);
        assert_eq!(a.pick(), None);
        let third = a.add_queue(group, Class::Medium, Class::Low);
        a.backlog(third);
        assert_eq!(a.pick(), None);
        a.check();
        a.release(tenant);
        a.check();
        let mut rest: Vec<QueueKey> = (0..2)
            .map(|_| {
                let q = a.pick().unwrap();
                a.charge(q, 4096, false);
                q
            })
            .collect();
        rest.sort();
        assert_eq!(rest, [held[0], third]);
        assert_eq!(a.pick(), None);
    }
}

#[test]
fn queues_can_go_in_any_state() {
    for mechanism in MECHANISMS {
        let mut a = Arbiter::new(ArbiterSettings::new(mechanism));
        let mut rng = Rng(11);
        let mut keys: Vec<QueueKey> = Vec::new();
        for round in 0..2_000u32 {
            if keys.len() < 12 {
                keys.extend(add_tenant(&mut a, Class::from_bits(round as u8), 1 + rng.below(3) as usize));
            }
            let q = keys[rng.below(keys.len() as u64) as usize];
            match rng.below(6) {
                0 => {
                    a.remove_queue(q);
                    keys.retain(|&other| other != q);
                }
                1 => a.withdraw(q),
                2 => a.set_queue_class(q, Class::from_bits(rng.next() as u8), Class::from_bits(rng.next() as u8)),
                3 => a.charge(q, rng.size(1 << 20), a.is_backlogged(q)),
                _ => a.backlog(q),
            }
            if let Some(q) = a.pick() {
                a.charge(q, rng.size(1 << 20), rng.below(2) == 0);
            }
            a.check();
        }
    }
}
