//! Nanoseconds per booking of the array, for each preset: reads and programs of random pages, alone and mixed.
//!
//! `idle`: time runs on far enough that the next operation finds everything free. `busy`: 64 operations are outstanding, as
//! a host with queue depth 64 has them, so that dies and channels are contended. `host`: the same with firmware and link.
//!
//! `array [WORDS [RUNS]]` measures only what has these words, so often: `array "oc busy" 100` suits a profiler.

use std::hint::black_box;
use std::time::Instant;
use weir_flash::{Array, Host, HostOp, PageAddress, Preset, UNIT};
use weir_units::Nanos;

const OPERATIONS: usize = 100_000;
const DEPTH: usize = 64;

/// Random pages of a preset's drive.
fn places(preset: Preset) -> Vec<PageAddress> {
    let shape = preset.parts(false).geometry.shape().expect("presets are valid");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |n: u32| {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (((random >> 32) * u64::from(n)) >> 32) as u32
    };
    (0..OPERATIONS)
        .map(|_| PageAddress {
            plane: below(shape.planes()),
            block: below(shape.blocks_per_plane()),
            page: below(shape.pages_per_block()),
        })
        .collect()
}

#[inline(never)]
fn run(preset: Preset, places: &[PageAddress], writes: usize, busy: bool, link: bool) -> f64 {
    let parts = preset.parts(false);
    let shape = parts.geometry.shape().expect("presets are valid");
    let mut array = Array::new(&shape, &parts.timing, &parts.variability);
    let mut host = Host::new(&parts.host);
    let mut ends = [Nanos(0); DEPTH];
    let mut now = Nanos(0);
    let start = Instant::now();
    for (i, at) in places.iter().enumerate() {
        let write = i % 100 < writes;
        let begin = if link { host.fetch(now, if write { HostOp::Write } else { HostOp::Read }, UNIT) } else { now };
        let mut end = match write {
            true => array.program(begin, *at, shape.page_bytes()).done,
            false => array.read(begin, *at, UNIT),
        };
        if link && !write {
            end = host.deliver(end, UNIT);
        }
        ends[i % DEPTH] = black_box(end);
        now = if busy { now.max(ends[(i + 1) % DEPTH]) } else { end };
    }
    start.elapsed().as_secs_f64() * 1e9 / OPERATIONS as f64
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.first().map(|w| w.split_whitespace().collect()).unwrap_or_default();
    let runs: u32 = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    println!("{:<40} {:>8}", "ns an operation, the best of the runs", "");
    for preset in Preset::ALL {
        let places = places(*preset);
        for (busy, link) in [(false, false), (true, false), (true, true)] {
            for (name, writes) in [("read", 0), ("program", 100), ("mixed", 50)] {
                let load = if link {
                    "host"
                } else if busy {
                    "busy"
                } else {
                    "idle"
                };
                let label = format!("{preset} {load} {name}");
                if words.iter().all(|w| label.contains(w)) {
                    let best = (0..runs).map(|_| run(*preset, &places, writes, busy, link)).fold(f64::MAX, f64::min);
                    println!("{label:<40} {best:>8.1}");
                }
            }
        }
    }
}
