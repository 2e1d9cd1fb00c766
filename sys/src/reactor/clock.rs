//! The real clock.

use rustix::time::{ClockId, clock_gettime};
use weir_units::Nanos;

/// CLOCK_MONOTONIC, read in user space (about 20 ns): the origin of every [`Nanos`] that a machine is handed in the node.
#[inline]
pub fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_forward_with_the_standard_library() {
        let (a, start) = (now(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (theirs, b) = (start.elapsed(), now());
        let ours = b.checked_sub(a).expect("the clock ran backwards");
        assert!(u128::from(ours.get()) >= theirs.as_nanos(), "{ours} < {theirs:?}");
    }
}
