//! The arbiter: any order of operations, any costs and settings.
//!
//! Three bytes are an operation: what, whom, how. After each, the arbiter's own `check`, and it must have somebody to
//! serve exactly if somebody who is not held has a head.

use weir_arbiter::{Arbiter, ArbiterSettings, Burst, GroupKey, Mechanism, Quanta, QueueKey, TenantKey, Weights};
use weir_units::{Bytes, Ceiling, Class, Floor, Nanos, Rates};

/// Enough to have company on every level, few enough that `check` after each operation stays fast.
const MOST: usize = 24;

fn settings(a: u8, b: u8) -> ArbiterSettings {
    let mechanism = [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr][usize::from(a & 3)];
    let weight = |shift: u32| u16::from(b >> shift & 7) * 36;
    let quantum = |shift: u32| 1u32 << ((u32::from(b) >> shift & 15) * 2);
    ArbiterSettings {
        mechanism,
        weights: Weights { high: weight(5), medium: weight(2), low: weight(0) },
        burst: Burst::from_bits(a >> 2),
        quanta: Quanta { high: quantum(4), medium: quantum(2), low: quantum(0) },
    }
}

/// 1 byte to 4 GiB - 1, mostly what commands cost.
fn cost(how: u8) -> u32 {
    match how >> 6 {
        0 => 4096,
        1 => 4096 << (how & 15),
        2 => u32::from(how & 63) * 512,
        _ => u32::MAX >> (how & 31),
    }
}

/// None, one or both of commands and bytes, of all orders of magnitude.
fn rates(how: u8) -> Rates {
    let rate = |shift: u8| (how >> shift & 1 != 0).then(|| 1u64 << (how & 63));
    Rates { iops: rate(6), bandwidth: rate(7).map(Bytes) }
}

struct World {
    arbiter: Arbiter,
    now: Nanos,
    /// Whether somebody else than a ceiling holds it.
    tenants: Vec<(TenantKey, bool)>,
    groups: Vec<(GroupKey, TenantKey)>,
    queues: Vec<(QueueKey, GroupKey)>,
}

fn any_of<T: Copy>(list: &[T], whom: u8) -> Option<T> {
    (!list.is_empty()).then(|| list[usize::from(whom) % list.len()])
}

impl World {
    /// Those who exist come, change and go. `None` when there is nobody to do it to.
    fn change(&mut self, what: u8, whom: u8, how: u8) -> Option<()> {
        let a = &mut self.arbiter;
        match what {
            0 if self.tenants.len() < MOST => self.tenants.push((a.add_tenant(u16::from(how) << 8 | 1), false)),
            1 if self.groups.len() < MOST => {
                let (tenant, _) = any_of(&self.tenants, whom)?;
                self.groups.push((a.add_group(tenant, settings(how, whom)), tenant));
            }
            2 | 3 if self.queues.len() < MOST => {
                let (group, _) = any_of(&self.groups, whom)?;
                let key = a.add_queue(group, Class::from_bits(how), Class::from_bits(how >> 2));
                self.queues.push((key, group));
            }
            4 => {
                let (tenant, _) = any_of(&self.tenants, whom)?;
                if how & 3 == 0 {
                    a.remove_tenant(tenant);
                    let groups = &self.groups;
                    self.queues.retain(|&(_, g)| !groups.contains(&(g, tenant)));
                    self.groups.retain(|&(_, t)| t != tenant);
                    self.tenants.retain(|&(t, _)| t != tenant);
                } else {
                    a.set_tenant(tenant, u16::from(how) * 257);
                }
            }
            5 => {
                let (group, _) = any_of(&self.groups, whom)?;
                if how & 7 == 0 {
                    a.remove_group(group);
                    self.queues.retain(|&(_, g)| g != group);
                    self.groups.retain(|&(g, _)| g != group);
                } else {
                    a.set_group(group, settings(how, whom));
                }
            }
            6 => {
                let (queue, _) = any_of(&self.queues, whom)?;
                if how & 7 == 0 {
                    a.remove_queue(queue);
                    self.queues.retain(|&(q, _)| q != queue);
                } else {
                    a.set_queue_class(queue, Class::from_bits(how), Class::from_bits(how >> 2));
                }
            }
            _ => a.configure(settings(how, whom)),
        }
        Some(())
    }

    /// Commands come, are served and are taken back.
    fn work(&mut self, what: u8, whom: u8, how: u8) -> Option<()> {
        let a = &mut self.arbiter;
        match what {
            8 | 9 => a.backlog(any_of(&self.queues, whom)?.0),
            10 => a.withdraw(any_of(&self.queues, whom)?.0),
            11 => {
                // Out of turn.
                let (queue, _) = any_of(&self.queues, whom)?;
                a.charge(queue, cost(how), a.is_backlogged(queue));
            }
            12 => {
                let at = usize::from(whom) % self.tenants.len().max(1);
                let (tenant, held) = self.tenants.get_mut(at)?;
                if *held || how & 3 != 0 {
                    // A tenant that is held otherwise has no ceiling.
                    *held = how & 1 != 0;
                    a.set_limits(*tenant, &Floor::new(rates(how)), &Ceiling::default());
                    if *held { a.hold(*tenant) } else { a.release(*tenant) }
                } else {
                    let burst = Some(u32::from(how >> 4));
                    let ceiling = Ceiling { burst, burst_bytes: None, rates: rates(how.rotate_left(4)) };
                    a.set_limits(*tenant, &Floor::new(rates(how)), &ceiling);
                }
            }
            13 => self.now = Nanos(self.now.0 + (u64::from(how) << (whom & 31))),
            _ => {
                let queue = a.pick_at(self.now)?;
                assert!(a.is_backlogged(queue));
                a.charge_at(self.now, queue, cost(how), cost(whom), whom & 3 != 0);
            }
        }
        Some(())
    }

    fn check(&mut self) {
        self.arbiter.check();
        let pick = self.arbiter.pick_at(self.now);
        if let Some(release) = self.arbiter.next_release() {
            assert!(release > self.now, "who may go on is held");
        }
        let held = |group: GroupKey| {
            let tenant = self.groups.iter().find(|&&(g, _)| g == group).map(|&(_, t)| t);
            tenant.is_some_and(|t| self.arbiter.is_held(t))
        };
        for &(tenant, held) in &self.tenants {
            assert!(!held || self.arbiter.is_held(tenant), "released by nobody");
        }
        let mut ready = self.queues.iter().filter(|&&(q, g)| self.arbiter.is_backlogged(q) && !held(g));
        match pick {
            Some(queue) => assert!(ready.any(|&(q, _)| q == queue), "picked who must not be served"),
            None => assert!(ready.next().is_none(), "idle while somebody waits"),
        }
        self.arbiter.check();
    }
}

/// Interprets the bytes as operations on an arbiter.
pub fn arbiter(data: &[u8]) {
    let (&[first, second], operations) = data.split_at(2.min(data.len())) else { return };
    let arbiter = Arbiter::new(settings(first, second));
    let mut world = World { arbiter, now: Nanos(1), tenants: Vec::new(), groups: Vec::new(), queues: Vec::new() };
    for operation in operations.chunks_exact(3) {
        let [what, whom, how] = [operation[0] % 16, operation[1], operation[2]];
        let _nobody = if what < 8 { world.change(what, whom, how) } else { world.work(what, whom, how) };
        world.check();
    }
}

/// An operation stream that fills the arbiter and serves for a while.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut busy = vec![0x1f, 0x9a, 0, 0, 0, 0, 0, 1, 1, 0, 0x1f, 1, 1, 0x1e];
    for i in 0..8u8 {
        busy.extend([2, i, i * 5, 8, i, 0]);
    }
    for i in 0..32u8 {
        busy.extend([14, i, i.wrapping_mul(37), 8, i, 0]);
    }
    let mut limited = busy.clone();
    for i in 0..32u8 {
        limited.extend([12, i, i.wrapping_mul(28), 13, i, i, 14, i, i.wrapping_mul(37), 8, i, 0]);
    }
    vec![busy, limited]
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_operations() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        for seed in super::seeds() {
            super::arbiter(&seed);
        }
        for len in [0, 1, 2, 5, 3_000, 3_001, 3_002] {
            for _ in 0..4 {
                let data: Vec<u8> = (0..len).map(|_| byte()).collect();
                super::arbiter(&data);
            }
        }
    }
}
