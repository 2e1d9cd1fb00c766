//! What the arbiter promises, and that it does what the oracle does.

extern crate std;

mod limits;
mod node_visits;
mod oracle;
mod shares;

use crate::*;
use alloc::vec::Vec;

/// A small generator for sizes and choices (xorshift64*): the same numbers on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }

    /// 4 KiB to `most`, all orders of magnitude alike.
    fn size(&mut self, most: u32) -> u32 {
        let doublings = u64::from((most / 4096).ilog2()) + 1;
        let base = 4096u32 << self.below(doublings);
        (base + self.below(u64::from(base)) as u32).min(most)
    }
}

/// One tenant with one controller and these queues, all of the same class.
fn add_queues(arbiter: &mut Arbiter, group: GroupKey, class: Class, n: usize) -> Vec<QueueKey> {
    (0..n).map(|_| arbiter.add_queue(group, class, class)).collect()
}

/// A tenant of its own, with a controller that orders its queues like the drive.
fn add_tenant(arbiter: &mut Arbiter, class: Class, queues: usize) -> Vec<QueueKey> {
    let tenant = arbiter.add_tenant(1);
    let group = arbiter.add_group(tenant, *arbiter.settings());
    add_queues(arbiter, group, class, queues)
}

const MECHANISMS: [Mechanism; 4] = [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr];
