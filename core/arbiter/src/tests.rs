//! What the arbiter promises, and that it does what the oracle does.

use crate::*;
use alloc::vec::Vec;

fn shares(arbiter: &mut Arbiter, cost: impl Fn(QueueKey) -> u32, picks: usize, queues: usize) -> Vec<u64> {
    let mut served = alloc::vec![0; queues];
    for _ in 0..picks {
        let q = arbiter.pick().expect("somebody is backlogged");
        arbiter.charge(q, cost(q), true);
        served[q.index()] += u64::from(cost(q));
        arbiter.check();
    }
    served
}

#[test]
fn high_low_by_bytes() {
    let mut a = Arbiter::new(Settings::new(Mechanism::Drr));
    let t = a.add_tenant(1);
    let g = a.add_group(t, Settings::default());
    let high = a.add_queue(g, Class::High, Class::Urgent);
    let low = a.add_queue(g, Class::Low, Class::Urgent);
    a.check();
    a.backlog(high);
    a.backlog(low);
    let served = shares(&mut a, |q| if q == high { 4096 } else { 8192 }, 36 * 100, low.index() + 1);
    assert_eq!(served[high.index()], 4 * served[low.index()]);
}
