//! Nanoseconds per `pick` and `charge`, for 1, 3, 100 and 10,000 queues under each mechanism.
//!
//! Queues are spread over the three weighted classes, all in one controller (`one`), or each in a tenant of its own
//! (`own`). `steady`: everybody has an endless backlog of 4 KiB commands. `sparse`: a served queue empties and comes
//! back, which is a `charge` and a `backlog` more per command. `mixed`: 4 KiB to 1 MiB.
//!
//! `pick [WORDS [RUNS]]` measures only what has these words, so often: `pick "Drr own 3" 1` suits a profiler.

use std::hint::black_box;
use std::time::Instant;
use weir_arbiter::{Arbiter, ArbiterSettings, Mechanism, QueueKey};
use weir_units::Class;

const COMMANDS: u32 = 10_000;
const RUNS: u32 = 300;

fn world(mechanism: Mechanism, queues: usize, own: bool) -> (Arbiter, Vec<QueueKey>) {
    let settings = ArbiterSettings::new(mechanism);
    let mut arbiter = Arbiter::new(settings);
    let tenant = arbiter.add_tenant(1);
    let group = arbiter.add_group(tenant, settings);
    let add = |i: usize| {
        let class = Class::WEIGHTED[i % 3];
        if !own {
            return arbiter.add_queue(group, class, class);
        }
        let tenant = arbiter.add_tenant(1);
        let group = arbiter.add_group(tenant, settings);
        arbiter.add_queue(group, class, class)
    };
    let keys: Vec<QueueKey> = (0..queues).map(add).collect();
    keys.iter().for_each(|&q| arbiter.backlog(q));
    (arbiter, keys)
}

#[inline(never)]
fn run(arbiter: &mut Arbiter, sizes: &[u32], empties: bool, runs: u32) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        for i in 0..COMMANDS {
            let q = black_box(arbiter.pick()).expect("somebody is backlogged");
            let cost = sizes[i as usize % sizes.len()];
            arbiter.charge(q, cost, !empties);
            if empties {
                arbiter.backlog(q);
            }
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(COMMANDS));
    }
    best
}

fn main() {
    let words: Vec<String> = std::env::args().nth(1).unwrap_or_default().split_whitespace().map(String::from).collect();
    let runs = std::env::args().nth(2).and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let mixed: Vec<u32> = (0..64u32).map(|i| 4096 << (i * 7 % 9)).collect();
    println!("best of {runs}, ns per command     steady  sparse  mixed");
    for mechanism in [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        for own in [false, true] {
            for queues in [1, 3, 100, 10_000] {
                let line =
                    [format!("{mechanism:?}"), String::from(if own { "own" } else { "one" }), queues.to_string()];
                if !words.iter().all(|word| line.contains(word)) {
                    continue;
                }
                let (mut arbiter, _) = world(mechanism, queues, own);
                let steady = run(&mut arbiter, &[4096], false, runs);
                let sparse = run(&mut arbiter, &[4096], true, runs);
                let mixed = run(&mut arbiter, &mixed, false, runs);
                let [name, layout, queues] = line;
                println!("{name:<5}{layout:<5}{queues:>6} queues {steady:>15.1} {sparse:>7.1} {mixed:>6.1}");
            }
        }
    }
}
