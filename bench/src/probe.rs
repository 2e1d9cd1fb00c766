//! How far apart the two cores are at this moment.

use crate::{BenchError, failed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const TURNS: u64 = 100_000;

/// A cache line's way there, in nanoseconds: half of a round trip between the cores. About 100 for neighbours; a virtual
/// machine may be moved to where it is 400.
///
/// # Errors
/// A core is not ours.
pub fn cache_line(cores: (usize, usize)) -> Result<f64, BenchError> {
    let line = Arc::new(AtomicU64::new(0));
    let other = line.clone();
    let echo = thread::spawn(move || {
        let pinned = weir_sys::sched::pin(cores.0);
        // Even if it could not be pinned it answers: the other side waits.
        for turn in 0..TURNS {
            while other.load(Ordering::Acquire) != 2 * turn + 1 {
                std::hint::spin_loop();
            }
            other.store(2 * turn + 2, Ordering::Release);
        }
        pinned
    });
    let asker = thread::spawn(move || {
        let pinned = weir_sys::sched::pin(cores.1);
        let begun = Instant::now();
        for turn in 0..TURNS {
            line.store(2 * turn + 1, Ordering::Release);
            while line.load(Ordering::Acquire) != 2 * turn + 2 {
                std::hint::spin_loop();
            }
        }
        pinned.map(|()| begun.elapsed())
    });
    let join = |e| failed("the probe", format!("{e:?}"));
    echo.join().map_err(join)??;
    let elapsed = asker.join().map_err(join)??;
    Ok(elapsed.as_nanos() as f64 / TURNS as f64 / 2.0)
}
