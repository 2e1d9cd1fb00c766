//! Floors and ceilings, served by a drive of a given speed in virtual time.

use super::*;
use alloc::vec;
use proptest::prelude::*;
use weir_units::{Bytes, Ceiling, Floor, Nanos, Rates};

const SECOND: u64 = 1_000_000_000;

fn iops(n: u64) -> Rates {
    Rates { iops: Some(n), bandwidth: None }
}

fn bandwidth(n: u64) -> Rates {
    Rates { iops: None, bandwidth: Some(Bytes(n)) }
}

/// A tenant of the simulated drive.
struct One {
    tenant: TenantKey,
    queues: Vec<QueueKey>,
    /// When and how much it was served.
    served: Vec<(u64, u32)>,
}

/// A drive that serves one command at a time.
struct Drive {
    a: Arbiter,
    now: u64,
    /// Bytes a second.
    speed: u64,
    tenants: Vec<One>,
}

impl Drive {
    fn new(mechanism: Mechanism, speed: u64) -> Drive {
        // Not at 0: clocks count from anywhere.
        Drive { a: Arbiter::new(ArbiterSettings::new(mechanism)), now: 77 * SECOND, speed, tenants: Vec::new() }
    }

    fn add(&mut self, class: Class, queues: usize, floor: Floor, ceiling: Ceiling) -> usize {
        let tenant = self.a.add_tenant(1);
        self.a.set_limits(tenant, &floor, &ceiling);
        let group = self.a.add_group(tenant, *self.a.settings());
        let queues = add_queues(&mut self.a, group, class, queues);
        queues.iter().for_each(|&q| self.a.backlog(q));
        self.tenants.push(One { tenant, queues, served: Vec::new() });
        self.tenants.len() - 1
    }

    fn backlog(&mut self, i: usize, ready: bool) {
        for &q in &self.tenants[i].queues {
            if ready { self.a.backlog(q) } else { self.a.withdraw(q) }
        }
    }

    /// Serves one command of this size, or waits until somebody may be served; `None` when nobody ever may.
    fn step(&mut self, size: u32, keep: bool) -> Option<usize> {
        let Some(q) = self.a.pick_at(Nanos(self.now)) else {
            self.now = self.a.next_release()?.0.max(self.now + 1);
            return Some(usize::MAX);
        };
        let i = self.tenants.iter().position(|t| t.queues.contains(&q)).unwrap();
        self.tenants[i].served.push((self.now, size));
        self.a.charge_at(Nanos(self.now), q, size, size, keep);
        self.now += u64::from(size) * SECOND / self.speed;
        Some(i)
    }

    /// Serves commands of one size for so long.
    fn run(&mut self, length: u64, size: u32) {
        let end = self.now + length;
        while self.now < end {
            self.step(size, true).unwrap();
        }
    }

    fn bytes(&self, i: usize, since: u64) -> u64 {
        self.tenants[i].served.iter().filter(|(at, _)| *at >= since).map(|(_, n)| u64::from(*n)).sum()
    }
}

/// The most by which service exceeded `rate` over any interval, and the most by which it fell short.
fn extremes(served: &[(u64, u32)], units: impl Fn(u32) -> u32, rate: u64) -> (i128, i128) {
    let (mut total, mut over, mut short) = (0i128, 0i128, 0i128);
    // Work minus what the rate gives, before and after each command.
    let (mut lowest, mut highest) = (i128::MAX, i128::MIN);
    for &(at, n) in served {
        let paid = i128::from(rate) * i128::from(at);
        let before = total * i128::from(SECOND) - paid;
        total += i128::from(units(n));
        let after = total * i128::from(SECOND) - paid;
        (lowest, highest) = (lowest.min(before), highest.max(after));
        (over, short) = (over.max(after - lowest), short.max(highest - before));
    }
    (over / i128::from(SECOND), short / i128::from(SECOND))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]

    /// Over no interval does a tenant get more commands than its rate gives and its burst holds, nor more bytes than
    /// that and its last command, whatever the others do, however often it goes and comes back.
    #[test]
    fn no_ceiling_is_exceeded(
        rate in 50..200_000u64, burst in 1..64u32, per_second in 1_000_000..800_000_000u64, burst_bytes in 1..4_000_000u64,
        mechanism in 0..4usize, others in 0..4usize, seed in 1..u64::MAX,
    ) {
        let mut d = Drive::new(MECHANISMS[mechanism], 1_000_000_000);
        let rates = Rates { iops: Some(rate), bandwidth: Some(Bytes(per_second)) };
        let ceiling = Ceiling { rates, burst: Some(burst), burst_bytes: Some(Bytes(burst_bytes)) };
        let limited = d.add(Class::High, 3, Floor::default(), ceiling);
        for i in 0..others {
            d.add(Class::WEIGHTED[i % 3], 2, Floor::default(), Ceiling::default());
        }
        let mut rng = Rng(seed);
        let mut largest = 0;
        for _ in 0..4_000 {
            let size = rng.size(256 << 10);
            match d.step(size, rng.below(8) != 0) {
                Some(i) if i == limited => largest = largest.max(size),
                Some(_) => {}
                None => d.now += rng.below(SECOND / 100),
            }
            if rng.below(16) == 0 {
                d.now += rng.below(SECOND / 1_000);
            }
            let i = rng.below(d.tenants.len() as u64) as usize;
            let ready = rng.below(4) != 0;
            d.backlog(i, ready);
        }
        d.a.check();
        let (commands, _) = extremes(&d.tenants[limited].served, |_| 1, rate);
        prop_assert!(commands <= i128::from(burst), "{commands} commands over {rate} a second");
        let (bytes, _) = extremes(&d.tenants[limited].served, |n| n, per_second);
        prop_assert!(bytes <= i128::from(burst_bytes) + i128::from(largest), "{bytes} bytes over {per_second} a second");
    }

    /// Whoever always asks gets its floor over every interval, but for what it has got before beyond its floor, what the
    /// floors of the others and one command in service may take at once: whatever its class, whatever the quanta, whatever sizes the others send.
    #[test]
    fn every_floor_is_kept(
        floors in prop::collection::vec((1..100u64, 0..3usize, any::<bool>()), 1..6), mechanism in 1..4usize,
        load in 10..90u64, rivals in 1..6usize, most in 4096..=262_144u32, catch_up in 2..10u64, seed in 1..u64::MAX,
    ) {
        let catch_up = Nanos(catch_up * SECOND / 1_000);
        let speed = 1_000_000_000;
        let mut d = Drive::new(MECHANISMS[mechanism], speed);
        let parts: u64 = floors.iter().map(|f| f.0).sum();
        let mut rates = Vec::new();
        for &(part, class, in_bytes) in &floors {
            let per_second = speed * load / 100 * part / parts;
            // Commands of the largest size, so that the drive can do so many.
            let rate = if in_bytes { bandwidth(per_second) } else { iops((per_second / u64::from(most)).max(1)) };
            d.add(Class::WEIGHTED[class], 1, Floor { rates: rate, catch_up }, Ceiling::default());
            rates.push(rate);
        }
        for i in 0..rivals {
            d.add(Class::WEIGHTED[i % 2], 16, Floor::default(), Ceiling::default());
        }
        let mut rng = Rng(seed);
        let start = d.now;
        for _ in 0..6_000 {
            d.step(rng.size(most), true).unwrap();
        }
        d.a.check();
        let longest = i128::from(u64::from(most) * SECOND / speed) + 1;
        for (i, rate) in rates.into_iter().enumerate() {
            let (rate, units): (u64, fn(u32) -> u32) = match rate.bandwidth {
                Some(b) => (b.0, |n| n),
                None => (rate.iops.unwrap(), |_| 1),
            };
            // The run's ends count: starting late or stopping early would be to fall short as well.
            let mut served = vec![(start, 0)];
            served.extend(d.tenants[i].served.iter().copied());
            served.push((d.now, 0));
            let (_, short) = extremes(&served, |n| if n == 0 { 0 } else { units(n) }, rate);
            // What it got beyond its floor counts for as long as it may catch up.
            let wait = longest * (floors.len() as i128 + 1) + i128::from(catch_up.0);
            let allowed = i128::from(rate) * wait / i128::from(SECOND) + 2 * i128::from(units(most)) + 1;
            prop_assert!(short <= allowed, "tenant {i}: {short} short of {rate} a second, allowed {allowed}");
        }
    }

    /// Whatever is asked for in whatever order: the invariants hold, and nobody idles who may be served.
    #[test]
    fn limits_come_and_go(seed in 1..u64::MAX, mechanism in 0..4usize) {
        let mut d = Drive::new(MECHANISMS[mechanism], 500_000_000);
        for i in 0..5 {
            d.add(Class::ALL[i % 4], 2, Floor::default(), Ceiling::default());
        }
        let mut rng = Rng(seed);
        for _ in 0..600 {
            let i = rng.below(5) as usize;
            match rng.below(8) {
                0 => {
                    let some = |r: &mut super::Rng, most: u64| (r.below(2) == 0).then(|| r.below(most) + 1);
                    let rates = |r: &mut super::Rng| Rates { iops: some(r, 100_000), bandwidth: some(r, SECOND).map(Bytes) };
                    let (floor, ceiling) = (Floor::new(rates(&mut rng)), Ceiling::new(rates(&mut rng)));
                    d.a.set_limits(d.tenants[i].tenant, &floor, &ceiling);
                }
                1 => d.a.configure(ArbiterSettings::new(MECHANISMS[rng.below(4) as usize])),
                2 => {
                    let queue = d.tenants[i].queues[0];
                    d.a.set_queue_class(queue, Class::ALL[rng.below(4) as usize], Class::Medium);
                }
                3 => d.backlog(i, rng.below(2) == 0),
                _ => {
                    let ready = rng.below(4) != 0;
                    d.step(rng.size(65_536), ready);
                }
            }
            d.a.check();
            let may = |t: &One| !d.a.is_held(t.tenant) && t.queues.iter().any(|&q| d.a.is_backlogged(q));
            let somebody = d.tenants.iter().any(may);
            prop_assert!(!somebody || d.a.pick_at(Nanos(d.now)).is_some(), "idle while somebody waits");
            d.a.check();
        }
    }
}

/// Low, with a tenth of the drive by its quantum, has a floor of three tenths: it gets that, and the others share the
/// rest in their own proportion. Whoever shares its class loses no more than anybody else.
#[test]
fn a_floor_takes_from_all_alike() {
    let mut d = Drive::new(Mechanism::Drr, 1_000_000_000);
    let high = d.add(Class::High, 4, Floor::default(), Ceiling::default());
    let floored = d.add(Class::Low, 1, Floor::new(bandwidth(300_000_000)), Ceiling::default());
    let low = d.add(Class::Low, 1, Floor::default(), Ceiling::default());
    d.run(SECOND / 10, 16 << 10);
    let start = d.now;
    d.run(SECOND, 16 << 10);
    let part = |i: usize| d.bytes(i, start) as f64 / 1e9;
    assert!((part(floored) - 0.300).abs() < 0.002, "{}", part(floored));
    assert!((part(high) - 0.7 * 8.0 / 9.0).abs() < 0.002, "{}", part(high));
    assert!((part(low) - 0.7 / 9.0).abs() < 0.002, "{}", part(low));
}

/// A floor below the share that a tenant has anyway changes nothing.
#[test]
fn a_floor_below_the_share_is_idle() {
    let shares = |floor: Floor| {
        let mut d = Drive::new(Mechanism::Drr, 1_000_000_000);
        let high = d.add(Class::High, 1, floor, Ceiling::default());
        let medium = d.add(Class::Medium, 1, Floor::default(), Ceiling::default());
        d.run(SECOND / 10, 8 << 10);
        let start = d.now;
        d.run(SECOND / 2, 8 << 10);
        (d.bytes(high, start) as f64, d.bytes(medium, start) as f64)
    };
    let (plain, floored) = (shares(Floor::default()), shares(Floor::new(bandwidth(600_000_000))));
    assert!(
        (plain.0 / plain.1 - 2.0).abs() < 0.01 && (floored.0 / floored.1 - 2.0).abs() < 0.01,
        "{plain:?} {floored:?}"
    );
}

/// What was not asked for is not owed later, beyond what may be caught up with.
#[test]
fn an_unused_floor_is_not_hoarded() {
    for catch_up in [SECOND / 1_000, SECOND / 100, SECOND / 10] {
        let mut d = Drive::new(Mechanism::Drr, 1_000_000_000);
        let rates = bandwidth(500_000_000);
        let late = d.add(Class::Low, 1, Floor { rates, catch_up: Nanos(catch_up) }, Ceiling::default());
        d.add(Class::High, 8, Floor::default(), Ceiling::default());
        d.backlog(late, false);
        d.run(10 * SECOND, 128 << 10);
        let back = d.now;
        d.backlog(late, true);
        d.run(SECOND / 2, 16 << 10);
        let got = d.bytes(late, back) as f64;
        let owed = 500e6 * (0.5 + catch_up as f64 / 1e9);
        assert!((got - owed).abs() < 400e3, "{got} of {owed} after {catch_up} ns");
    }
}

/// Urgent goes before a floor, and the one who is owed for longest before the others.
#[test]
fn urgent_then_floors_then_the_round() {
    let mut d = Drive::new(Mechanism::Drr, 1_000_000_000);
    let plain = d.add(Class::High, 1, Floor::default(), Ceiling::default());
    let slow = d.add(Class::Low, 1, Floor::new(iops(10)), Ceiling::default());
    let fast = d.add(Class::Low, 1, Floor::new(iops(1_000)), Ceiling::default());
    let urgent = d.add(Class::Urgent, 1, Floor::default(), Ceiling::default());
    let mut order = Vec::new();
    for left in (0..2).rev() {
        order.extend(d.step(4096, left > 0));
    }
    // Both begin with 10 ms to catch up with: ten commands of the one, less than one of the other.
    for _ in 0..14 {
        order.extend(d.step(4096, true));
    }
    let mut wanted = vec![urgent, urgent, slow];
    wanted.extend([fast; 10]);
    assert_eq!(order[..13], wanted);
    assert!(order[13..].contains(&plain), "{order:?}");
}

/// The ceiling to the nanosecond: a burst, then one command each time one is paid for.
#[test]
fn a_ceiling_is_a_clock() {
    let mut d = Drive::new(Mechanism::Wrr, u64::MAX);
    let ceiling = Ceiling { burst: Some(3), ..Ceiling::new(iops(300_000)) };
    let i = d.add(Class::Medium, 2, Floor::default(), ceiling);
    let start = d.now;
    for _ in 0..3_000_009 {
        d.step(4096, true);
        if d.now > start + SECOND {
            break;
        }
    }
    let served = &d.tenants[i].served;
    assert_eq!(served[..3].iter().filter(|(at, _)| *at == start).count(), 3, "the burst");
    let late: Vec<u64> = served
        .iter()
        .zip(0u64..)
        .skip(3)
        .map(|((at, _), n)| at - start - ((n - 2) * SECOND).div_ceil(300_000))
        .collect();
    assert_eq!(late.iter().max(), Some(&0), "no command waits longer than it is paid for");
    assert_eq!(served.len(), 300_003);
}

/// A thousand idle tenants with floors and ceilings cost a command nothing.
#[test]
fn idle_limits_cost_nothing() {
    let steps = |idle: usize| {
        let mut d = Drive::new(Mechanism::Drr, 1_000_000_000);
        d.add(Class::High, 2, Floor::new(iops(1_000)), Ceiling::new(iops(1_000_000)));
        d.add(Class::Low, 2, Floor::default(), Ceiling::default());
        for _ in 0..idle {
            let i = d.add(Class::Low, 1, Floor::new(iops(1_000)), Ceiling::new(iops(2_000)));
            d.backlog(i, false);
        }
        // Once round: who has nothing to serve is found out.
        d.run(SECOND / 100, 4096);
        let before = d.a.rings.steps;
        for _ in 0..1_000 {
            d.step(4096, true);
        }
        d.a.rings.steps - before
    };
    assert_eq!(steps(1), steps(1_000));
}
