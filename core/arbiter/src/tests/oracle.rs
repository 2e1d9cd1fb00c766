//! The arbiter against the oracle: the same operations, the same choice after each.

use super::*;
use crate::model::ArbiterModel;
use proptest::prelude::*;
use std::vec;

#[derive(Clone, Debug)]
enum Op {
    AddTenant(u16),
    SetTenant(u16, u16),
    RemoveTenant(u16),
    AddGroup(u16, ArbiterSettings),
    SetGroup(u16, ArbiterSettings),
    RemoveGroup(u16),
    AddQueue(u16, Class, Class),
    SetQueue(u16, Class, Class),
    RemoveQueue(u16),
    Configure(ArbiterSettings),
    Backlog(u16),
    BacklogAll,
    Withdraw(u16),
    Hold(u16),
    Release(u16),
    Serve { cost: u32, keep: bool },
    ServeMany { seed: u64, keep: u8 },
}

fn class() -> impl Strategy<Value = Class> {
    (0..4u8).prop_map(Class::from_bits)
}

fn settings() -> impl Strategy<Value = ArbiterSettings> {
    let weights = (1..=40u16, 1..=20u16, 1..=10u16).prop_map(|(high, medium, low)| Weights { high, medium, low });
    let quantum = || 4096..=200_000u32;
    let quanta = (quantum(), quantum(), quantum()).prop_map(|(high, medium, low)| Quanta { high, medium, low });
    (0..9usize, weights, (0..8u8).prop_map(Burst::from_bits), quanta).prop_map(|(m, weights, burst, quanta)| {
        let mechanism = MECHANISMS[if m == 0 { 0 } else { 1 + m % 3 }];
        ArbiterSettings { mechanism, weights, burst, quanta }
    })
}

fn cost() -> impl Strategy<Value = u32> {
    prop_oneof![Just(4096), Just(8192), 1..=65536u32, 65536..=1_048_576u32]
}

fn op() -> impl Strategy<Value = Op> {
    let n = any::<u16>;
    prop_oneof![
        2 => (1..5u16).prop_map(Op::AddTenant),
        1 => (n(), 1..5u16).prop_map(|(t, w)| Op::SetTenant(t, w)),
        1 => n().prop_map(Op::RemoveTenant),
        3 => (n(), settings()).prop_map(|(t, s)| Op::AddGroup(t, s)),
        2 => (n(), settings()).prop_map(|(g, s)| Op::SetGroup(g, s)),
        1 => n().prop_map(Op::RemoveGroup),
        6 => (n(), class(), class()).prop_map(|(g, c, l)| Op::AddQueue(g, c, l)),
        2 => (n(), class(), class()).prop_map(|(q, c, l)| Op::SetQueue(q, c, l)),
        1 => n().prop_map(Op::RemoveQueue),
        2 => settings().prop_map(Op::Configure),
        12 => n().prop_map(Op::Backlog),
        3 => Just(Op::BacklogAll),
        4 => n().prop_map(Op::Withdraw),
        2 => n().prop_map(Op::Hold),
        3 => n().prop_map(Op::Release),
        20 => (cost(), any::<bool>()).prop_map(|(cost, keep)| Op::Serve { cost, keep }),
        8 => (1..u64::MAX, 0..=255u8).prop_map(|(seed, keep)| Op::ServeMany { seed, keep }),
    ]
}

struct Pair {
    real: Arbiter,
    model: ArbiterModel,
    tenants: Vec<TenantKey>,
    groups: Vec<(GroupKey, TenantKey)>,
    queues: Vec<(QueueKey, GroupKey)>,
}

fn any_of<T: Copy>(list: &[T], n: u16) -> Option<T> {
    (!list.is_empty()).then(|| list[usize::from(n) % list.len()])
}

impl Pair {
    fn new(settings: ArbiterSettings) -> Pair {
        let (real, model) = (Arbiter::new(settings), ArbiterModel::new(settings));
        let mut pair = Pair { real, model, tenants: Vec::new(), groups: Vec::new(), queues: Vec::new() };
        // Something to start with, so that short runs say something.
        for (t, class) in [Class::High, Class::Low, Class::High].into_iter().enumerate() {
            pair.apply(Op::AddTenant(1 + t as u16));
            pair.apply(Op::AddGroup(t as u16, settings));
            pair.apply(Op::AddQueue(t as u16, class, Class::Medium));
            pair.apply(Op::AddQueue(t as u16, class, Class::High));
        }
        pair
    }

    fn apply(&mut self, op: Op) {
        let id = |index: usize| index as u32;
        match op {
            Op::AddTenant(weight) => {
                let t = self.real.add_tenant(weight);
                self.model.add_tenant(id(t.index()), weight);
                self.tenants.push(t);
            }
            Op::SetTenant(n, weight) => {
                let Some(t) = any_of(&self.tenants, n) else { return };
                self.real.set_tenant(t, weight);
                self.model.set_tenant(id(t.index()), weight);
            }
            Op::RemoveTenant(n) => {
                let Some(t) = any_of(&self.tenants, n) else { return };
                self.real.remove_tenant(t);
                self.model.remove_tenant(id(t.index()));
                let gone = |g: GroupKey, groups: &[(GroupKey, TenantKey)]| groups.contains(&(g, t));
                self.queues.retain(|&(_, g)| !gone(g, &self.groups));
                self.groups.retain(|&(_, of)| of != t);
                self.tenants.retain(|&other| other != t);
            }
            Op::AddGroup(n, settings) => {
                let Some(t) = any_of(&self.tenants, n) else { return };
                let g = self.real.add_group(t, settings);
                self.model.add_group(id(g.index()), id(t.index()), settings);
                self.groups.push((g, t));
            }
            Op::SetGroup(n, settings) => {
                let Some((g, _)) = any_of(&self.groups, n) else { return };
                self.real.set_group(g, settings);
                self.model.set_group(id(g.index()), settings);
            }
            Op::RemoveGroup(n) => {
                let Some((g, _)) = any_of(&self.groups, n) else { return };
                self.real.remove_group(g);
                self.model.remove_group(id(g.index()));
                self.queues.retain(|&(_, of)| of != g);
                self.groups.retain(|&(other, _)| other != g);
            }
            Op::Configure(settings) => {
                self.real.configure(settings);
                self.model.configure(settings);
            }
            Op::Hold(n) | Op::Release(n) => {
                let Some(t) = any_of(&self.tenants, n) else { return };
                let hold = matches!(op, Op::Hold(_));
                if hold {
                    self.real.hold(t)
                } else {
                    self.real.release(t)
                }
                self.model.set_held(id(t.index()), hold);
            }
            other => self.apply_to_queues(other),
        }
    }

    fn apply_to_queues(&mut self, op: Op) {
        let id = |q: QueueKey| q.index() as u32;
        match op {
            Op::AddQueue(n, class, local) => {
                let Some((g, _)) = any_of(&self.groups, n) else { return };
                let q = self.real.add_queue(g, class, local);
                self.model.add_queue(id(q), g.index() as u32, class, local);
                self.queues.push((q, g));
            }
            Op::SetQueue(n, class, local) => {
                let Some((q, _)) = any_of(&self.queues, n) else { return };
                self.real.set_queue_class(q, class, local);
                self.model.set_queue_class(id(q), class, local);
            }
            Op::RemoveQueue(n) => {
                let Some((q, _)) = any_of(&self.queues, n) else { return };
                self.real.remove_queue(q);
                self.model.remove_queue(id(q));
                self.queues.retain(|&(other, _)| other != q);
            }
            Op::Backlog(n) => {
                let Some((q, _)) = any_of(&self.queues, n) else { return };
                self.real.backlog(q);
                self.model.backlog(id(q));
            }
            Op::BacklogAll => {
                for &(q, _) in &self.queues {
                    self.real.backlog(q);
                    self.model.backlog(id(q));
                }
            }
            Op::Withdraw(n) => {
                let Some((q, _)) = any_of(&self.queues, n) else { return };
                self.real.withdraw(q);
                self.model.withdraw(id(q));
            }
            Op::Serve { cost, keep } => self.serve(cost, keep),
            Op::ServeMany { seed, keep } => {
                let mut rng = Rng(seed);
                for _ in 0..50 {
                    let (cost, keep) = (rng.size(1 << 20), rng.below(256) >= u64::from(keep));
                    self.serve(cost, keep);
                    if !keep && rng.below(2) == 0 {
                        self.apply_to_queues(Op::Backlog(rng.next() as u16));
                    }
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn serve(&mut self, cost: u32, keep: bool) {
        let pick = self.real.pick();
        assert_eq!(pick.map(|q| q.index() as u32), self.model.pick());
        if let Some(q) = pick {
            self.real.charge(q, cost, keep);
            self.model.charge(q.index() as u32, cost, keep);
        }
    }

    fn compare(&mut self) {
        self.real.check();
        let pick = self.real.pick();
        assert_eq!(pick.map(|q| q.index() as u32), self.model.pick());
        self.real.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 6))]

    #[test]
    fn the_arbiter_chooses_as_the_oracle(start in settings(), ops in prop::collection::vec(op(), 1..120)) {
        let mut pair = Pair::new(start);
        for op in ops {
            pair.apply(op);
            pair.compare();
        }
    }
}

/// A held tenant's backlog comes and goes below it: its account stays. It had one of two commands left, since a turn had
/// become longer.
#[test]
fn who_is_held_loses_nothing_by_what_its_queues_do() {
    let start = ArbiterSettings { mechanism: Mechanism::Wrr, burst: Burst::from_bits(0), ..ArbiterSettings::default() };
    let longer = ArbiterSettings { burst: Burst::from_bits(1), ..start };
    let mut pair = Pair::new(start);
    let serve = || Op::Serve { cost: 4096, keep: true };
    let ops = [Op::Hold(0), Op::Configure(longer), Op::Hold(2), Op::BacklogAll, Op::Withdraw(0), Op::Withdraw(1)];
    let go_on = [Op::Backlog(0), Op::Release(0), Op::Release(2), serve(), serve(), serve(), serve(), serve()];
    for op in ops.into_iter().chain(go_on) {
        pair.apply(op);
        pair.compare();
    }
}
