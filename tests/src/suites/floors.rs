//! Coarse floors of speed: a part of the whole that has become half as fast fails. Each is a ratio of two things that are measured in
//! turn in the same run, so that a machine that is slow, or busy with something else, takes from both.

use weir_bench::Setup;
use weir_bench::floors::{PARTS, Part};

use super::test;
use crate::harness::{Env, Outcome, Test, ensure};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "floors";
    vec![
        test(S, "decision", |env| part(env, "decision")),
        test(S, "flash", |env| part(env, "flash")),
        test(S, "simulator", |env| part(env, "simulator")),
        test(S, "nvme_tcp", |env| part(env, "nvme_tcp")),
        test(S, "vhost_user", |env| part(env, "vhost_user")),
        test(S, "vfio_user", |env| part(env, "vfio_user")),
    ]
}

/// What each ratio may be at most: one and a half times of what it is beside nothing and beside two processes that keep both cores
/// busy, which differ little. All are times, of ours over the plain one's. The flash model's is what its map's cache misses cost, 0.10 to 0.13
/// on a quiet machine and up to 0.21 beside programs that take the caches: its ceiling shows a model that is less than half as fast.
///
/// One request at a time over shared memory may be twice of what it was at its best (1.1): bare rings are the way of three cache lines and
/// nothing else, ours is work as well, and which of the two is slow differs by machine and by hour. Where a line took 60 to 75 ns it was 0.9
/// to 1.2; where one takes 37 ns it is 1.4 to 1.8, in two releases alike.
const CEILINGS: [(&str, f64); 14] = [
    ("decision, fifo, 1 queue / reference", 5.3),
    ("decision, drr, 1 queue / reference", 6.0),
    ("decision, drr, 12 queues / reference", 7.7),
    ("decision, wrr, 12 queues / reference", 7.9),
    ("decision, rr, 12 queues / reference", 9.0),
    ("flash model, a request / event queue", 0.27),
    ("weir sim, ms / reference, ns", 62.0),
    ("NVMe/TCP, 4 KiB at depth 1, median latency / bare sockets", 1.55),
    ("NVMe/TCP, 4 KiB at depth 32, time a request / bare sockets", 1.75),
    ("NVMe/TCP, sequential 128 KiB, time a request / bare sockets", 1.85),
    ("vhost-user, 4 KiB read at depth 1, median latency / bare rings", 2.2),
    ("vhost-user, 4 KiB read at depth 32, time a request / bare rings", 2.1),
    ("vfio-user, 4 KiB read at depth 1, median latency / bare rings", 2.2),
    ("vfio-user, 4 KiB read at depth 32, time a request / bare rings", 1.8),
];

fn part(env: &Env, name: &str) -> Outcome {
    // A program that is not optimized is measured by nobody.
    if cfg!(debug_assertions) {
        env.skip("the tests are a debug build: floors are of the release program");
        return Ok(());
    }
    let (_, part) = PARTS.iter().find(|(known, _)| *known == name).ok_or("no such part")?;
    env.majority(|| holds(env, *part))
}

fn holds(env: &Env, part: Part) -> Outcome {
    let found = part(&Setup::short(env.weir.clone())).map_err(|e| e.0)?;
    let mut slow = Vec::new();
    for ratio in found {
        let name = ratio.name;
        let most = CEILINGS.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("no ceiling for {name}"))?.1;
        let spread = ratio.rounds.spread();
        println!(
            "    {name:<64} {:>8.3} [{:.3} - {:.3}], best {:.3}, at most {most}",
            spread.median, spread.min, spread.max, ratio.best
        );
        // On a machine that others disturb, one side of most rounds may be slow; what has become slow is so at its best as well.
        if spread.median > most && ratio.best > most {
            slow.push(format!("{name}: {:.3}, at its best {:.3}, at most {most}", spread.median, ratio.best));
        }
    }
    ensure(slow.is_empty(), || format!("slower than it may be: {}", slow.join("; ")))
}
