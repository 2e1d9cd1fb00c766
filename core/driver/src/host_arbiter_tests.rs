//! The front against what it promises: shares, bounds, order, and clients that leave off.

use super::*;
use crate::IoKind;
use proptest::prelude::*;
use std::vec::Vec;
use weir_arbiter::{Mechanism, Quanta, Weights};

fn read(slot: u32, len: u32) -> Io {
    Io { kind: IoKind::Read, offset: 0, len, slot }
}

fn config(mechanism: Mechanism, slots: u32) -> HostArbiterConfig {
    HostArbiterConfig { slots, ..HostArbiterConfig::new(ArbiterSettings::new(mechanism)) }
}

/// A drive in its own order, behind clients that keep their queues full.
struct World {
    front: HostArbiter,
    clients: Vec<ArbitratedClient>,
    at_drive: Vec<(usize, Io)>,
    served: Vec<u64>,
    sizes: Vec<u32>,
    taken: Vec<Io>,
    /// Requests that may be at the drive at once.
    most: usize,
    random: u64,
}

impl World {
    fn new(config: HostArbiterConfig, clients: &[(Class, u32, u32)]) -> World {
        let mut front = HostArbiter::new(config);
        let mut sizes = Vec::new();
        let add = |&(class, size, depth): &(Class, u32, u32)| {
            let tenant = front.add_tenant(1);
            let client = front.add_client(tenant, class, depth);
            (0..depth).for_each(|slot| front.submit(client, read(slot, size)).unwrap());
            sizes.push(size);
            client
        };
        let clients: Vec<_> = clients.iter().map(add).collect();
        let (served, most) = (vec![0; clients.len()], config.slots as usize);
        World {
            most,
            front,
            clients,
            at_drive: Vec::new(),
            served,
            sizes,
            taken: Vec::new(),
            random: 88_172_645_463_325_252,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n as u64) as usize
    }

    /// Everybody polls, then the drive ends one request, whichever it likes, and its client asks for the next.
    fn step(&mut self, absent: Option<usize>) {
        for i in (0..self.clients.len()).filter(|i| Some(*i) != absent) {
            self.front.take(self.clients[i], &mut self.taken);
            self.at_drive.extend(self.taken.drain(..).map(|io| (i, io)));
        }
        let here = self.at_drive.iter().filter(|(i, _)| Some(*i) != absent).count();
        assert!(here <= self.most, "{here} at the drive, {} allowed", self.most);
        if self.at_drive.is_empty() {
            return;
        }
        let (i, io) = {
            let at = self.below(self.at_drive.len());
            self.at_drive.swap_remove(at)
        };
        self.served[i] += u64::from(io.len);
        if Some(i) == absent {
            // Its completion lies there and nobody reaps it.
            self.at_drive.push((i, io));
            self.served[i] -= u64::from(io.len);
            return;
        }
        self.front.done(self.clients[i], io.slot);
        self.front.submit(self.clients[i], read(io.slot, self.sizes[i])).unwrap();
        self.front.check();
    }
}

#[test]
fn classes_share_what_the_drive_serves_in_any_order() {
    for (mechanism, sizes, ideal) in [
        (Mechanism::Drr, [4096, 4096, 4096], [4.0, 2.0, 1.0]),
        (Mechanism::Drr, [4096, 8192, 65_536], [4.0, 2.0, 1.0]),
        // Weighted round robin shares commands.
        (Mechanism::Wrr, [4096, 8192, 16_384], [4.0, 4.0, 4.0]),
        (Mechanism::Rr, [4096, 4096, 4096], [1.0, 1.0, 1.0]),
    ] {
        let clients = [(Class::High, sizes[0], 64), (Class::Medium, sizes[1], 64), (Class::Low, sizes[2], 64)];
        let mut world = World::new(config(mechanism, 16), &clients);
        (0..60_000).for_each(|_| world.step(None));
        let part = |i: usize| world.served[i] as f64 / world.served[2] as f64 * ideal[2];
        for (i, ideal) in ideal.iter().enumerate() {
            let off = part(i) / ideal - 1.0;
            assert!(off.abs() < 0.01, "{mechanism:?} {sizes:?}: client {i} is {off:.3} off");
        }
    }
}

#[test]
fn a_client_of_many_queues_gains_nothing() {
    let mut front = HostArbiter::new(config(Mechanism::Drr, 4));
    let (one, many) = (front.add_tenant(1), front.add_tenant(1));
    let mut clients = vec![front.add_client(one, Class::High, 8)];
    clients.extend((0..16).map(|_| front.add_client(many, Class::High, 64)));
    for (i, c) in clients.iter().enumerate() {
        (0..if i == 0 { 8 } else { 64 }).for_each(|slot| front.submit(*c, read(slot, 4096)).unwrap());
    }
    let mut served = [0u32; 2];
    let mut taken = Vec::new();
    for _ in 0..4_000 {
        for (i, c) in clients.iter().enumerate() {
            front.take(*c, &mut taken);
            for io in taken.drain(..) {
                served[usize::from(i > 0)] += 1;
                front.done(*c, io.slot);
                front.submit(*c, io).unwrap();
            }
        }
    }
    front.check();
    let ratio = f64::from(served[0]) / f64::from(served[1]);
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
}

#[test]
fn a_change_of_class_counts_for_what_waits() {
    let mut world = World::new(config(Mechanism::Drr, 8), &[(Class::High, 4096, 64), (Class::Low, 4096, 64)]);
    (0..10_000).for_each(|_| world.step(None));
    let ratio = world.served[0] as f64 / world.served[1] as f64;
    assert!((3.95..4.05).contains(&ratio), "{ratio}");
    world.front.set_class(world.clients[1], Class::High);
    world.served.fill(0);
    (0..10_000).for_each(|_| world.step(None));
    let ratio = world.served[0] as f64 / world.served[1] as f64;
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
}

#[test]
fn who_never_polls_holds_nobody_up() {
    let clients = [(Class::High, 4096, 64), (Class::High, 4096, 64)];
    let mut world = World::new(config(Mechanism::Drr, 8), &clients);
    (0..100).for_each(|_| world.step(None));
    // The first client's thread goes to sleep; its requests take the drive's slots one by one.
    (0..1_000).for_each(|_| world.step(Some(0)));
    let before = world.served[1];
    (0..1_000).for_each(|_| world.step(Some(0)));
    assert_eq!(world.served[1], before, "all slots are held by who sleeps");
    for round in 1..=3 {
        world.front.sweep(Nanos(round * AWAY_AFTER.get()));
        world.front.check();
        (0..100).for_each(|_| world.step(Some(0)));
    }
    (0..2_000).for_each(|_| world.step(Some(0)));
    assert!(world.served[1] > before, "the slots were lent");
    // It comes back: what it had is done first, and then both share again.
    world.most = 16;
    (0..200).for_each(|_| world.step(None));
    world.most = 8;
    world.served.fill(0);
    (0..10_000).for_each(|_| world.step(None));
    let ratio = world.served[0] as f64 / world.served[1] as f64;
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
}

#[test]
fn who_leaves_frees_its_slots() {
    let mut front = HostArbiter::new(config(Mechanism::Drr, 2));
    let tenant = front.add_tenant(1);
    let (a, b) = (front.add_client(tenant, Class::High, 4), front.add_client(tenant, Class::High, 4));
    let mut taken = Vec::new();
    (0..4).for_each(|slot| front.submit(a, read(slot, 4096)).unwrap());
    front.take(a, &mut taken);
    front.submit(b, read(0, 4096)).unwrap();
    assert!(front.submit(b, read(0, 4096)).is_err() && front.submit(b, read(4, 4096)).is_err());
    front.take(b, &mut taken);
    assert_eq!((taken.len(), front.is_blocked(b), front.waiting(a)), (2, true, 2));
    front.remove_client(a);
    front.take(b, &mut taken);
    assert_eq!((taken.len(), front.in_flight()), (3, 1));
    front.check();
}

#[test]
fn large_requests_are_bounded_by_bytes_and_go_alone() {
    let mut front = HostArbiter::new(HostArbiterConfig { slot_bytes: 1 << 20, ..config(Mechanism::Drr, 64) });
    let tenant = front.add_tenant(1);
    let client = front.add_client(tenant, Class::Low, 16);
    let mut taken = Vec::new();
    (0..8).for_each(|slot| front.submit(client, read(slot, 256 << 10)).unwrap());
    front.submit(client, read(8, 8 << 20)).unwrap();
    front.take(client, &mut taken);
    assert_eq!(taken.len(), 4);
    for io in std::mem::take(&mut taken) {
        front.done(client, io.slot);
    }
    front.take(client, &mut taken);
    assert_eq!(taken.len(), 4, "what is larger than the bound waits for all others");
    for io in std::mem::take(&mut taken) {
        front.done(client, io.slot);
    }
    front.take(client, &mut taken);
    assert_eq!((taken.len(), taken[0].slot), (1, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

    /// Whatever the quanta, weights, sizes, slots and the order in which the drive serves: over any time, two clients that
    /// always have something waiting are within a quantum and two of the largest requests of their ideal in what they were
    /// granted, which is the arbiter's own bound; each client's requests are handed out in its order; no slot is given twice.
    #[test]
    fn grants_keep_the_arbiters_bound(
        quanta in [4096..=262_144u32, 4096..=262_144, 4096..=262_144],
        sizes in [1..=64u32, 1..=64, 1..=64],
        slots in 1..=32u32,
        bytes in 17..=22u32,
        seed in 1..u64::MAX,
    ) {
        let [high, medium, low] = quanta;
        let arbitration = ArbiterSettings { quanta: Quanta { high, medium, low }, ..ArbiterSettings::new(Mechanism::Drr) };
        let config = HostArbiterConfig { arbitration, slots, slot_bytes: 1 << bytes };
        let depth = 2 * slots;
        let clients: Vec<_> =
            Class::WEIGHTED.iter().zip(sizes).map(|(class, size)| (*class, size * 4096, depth)).collect();
        let mut world = World::new(config, &clients);
        world.random = seed;
        let mut next = [0u32; 3];
        let (mut granted, mut extremes) = ([0i128; 3], [[(0i128, 0i128); 3]; 3]);
        for _ in 0..2_000 {
            for i in 0..3 {
                world.front.take(world.clients[i], &mut world.taken);
                for io in world.taken.drain(..) {
                    prop_assert!(next[i] >= depth || io.slot == next[i], "in order");
                    next[i] += 1;
                    world.at_drive.push((i, io));
                    granted[i] += i128::from(io.len);
                }
            }
            // What is granted, not what is done: the drive's order is its own.
            for i in 0..3 {
                for j in 0..3 {
                    let (wi, wj) = (i128::from(quanta[i]), i128::from(quanta[j]));
                    let difference = granted[i] * wj - granted[j] * wi;
                    extremes[i][j] = (extremes[i][j].0.min(difference), extremes[i][j].1.max(difference));
                }
            }
            let (i, io) = { let at = world.below(world.at_drive.len()); world.at_drive.swap_remove(at) };
            world.front.done(world.clients[i], io.slot);
            world.front.submit(world.clients[i], io).unwrap();
            world.front.check();
        }
        let max = sizes.iter().map(|s| i128::from(*s) * 4096).max().unwrap_or_default();
        for i in 0..3 {
            for j in 0..3 {
                let (wi, wj) = (i128::from(quanta[i]), i128::from(quanta[j]));
                let (lowest, highest) = extremes[i][j];
                prop_assert!(highest - lowest <= wi * wj + max * (wi + wj), "{i} {j}: {}", highest - lowest);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]

    /// Whatever clients do, in any order: what is submitted is taken once, in its order, within the bounds, and the invariants
    /// hold after every step.
    #[test]
    fn anything_may_happen(slots in 1..=8u32, steps in proptest::collection::vec((0..8u8, 0..4usize, 0..8u32, 0..=64u32), 1..400)) {
        let config = HostArbiterConfig { slots, slot_bytes: 64 << 10, ..config(Mechanism::Drr, slots) };
        let mut front = HostArbiter::new(config);
        let tenants = [front.add_tenant(1), front.add_tenant(3)];
        let mut clients: Vec<(ArbitratedClient, Vec<u32>, Vec<u32>)> = Vec::new();
        let (mut now, mut taken) = (Nanos(0), Vec::new());
        for (step, i, slot, blocks) in steps {
            let class = Class::WEIGHTED[i % 3];
            let Some((client, waiting, out)) = clients.get_mut(i) else {
                if clients.len() < 4 {
                    clients.push((front.add_client(tenants[i % 2], class, 8), Vec::new(), Vec::new()));
                }
                continue;
            };
            match step {
                0..=2 => {
                    let used = waiting.contains(&slot) || out.contains(&slot);
                    prop_assert_eq!(front.submit(*client, read(slot, blocks * 4096)).is_err(), used);
                    if !used {
                        waiting.push(slot);
                    }
                }
                3 | 4 => {
                    front.take(*client, &mut taken);
                    for io in taken.drain(..) {
                        prop_assert_eq!(waiting.remove(0), io.slot);
                        out.push(io.slot);
                    }
                }
                5 => {
                    front.done(*client, slot);
                    out.retain(|s| *s != slot);
                }
                6 => {
                    now = now.saturating_add(AWAY_AFTER);
                    front.sweep(now);
                }
                _ if slot < 6 => front.set_class(*client, class),
                _ => {
                    front.remove_client(*client);
                    clients.remove(i);
                }
            }
            front.check();
        }
        // Everybody takes and ends what there is: nothing is left behind.
        for _ in 0..100 {
            for (client, waiting, out) in &mut clients {
                front.take(*client, &mut taken);
                for io in taken.drain(..) {
                    prop_assert_eq!(waiting.remove(0), io.slot);
                    out.push(io.slot);
                }
                out.drain(..).for_each(|slot| front.done(*client, slot));
            }
        }
        prop_assert!(clients.iter().all(|(_, waiting, _)| waiting.is_empty()) && front.in_flight() == 0);
        front.check();
    }
}

#[test]
fn weights_are_those_that_were_given() {
    let weights = Weights { high: 10, medium: 3, low: 1 };
    let arbitration = ArbiterSettings { weights, ..ArbiterSettings::new(Mechanism::Wrr) };
    let config = HostArbiterConfig { arbitration, slots: 8, slot_bytes: 4 << 20 };
    let clients = [(Class::High, 4096, 64), (Class::Medium, 4096, 64), (Class::Low, 4096, 64)];
    let mut world = World::new(config, &clients);
    (0..42_000).for_each(|_| world.step(None));
    let ratios = [0, 1].map(|i| world.served[i] as f64 / world.served[2] as f64);
    assert!((9.8..10.2).contains(&ratios[0]) && (2.95..3.05).contains(&ratios[1]), "{ratios:?}");
}
