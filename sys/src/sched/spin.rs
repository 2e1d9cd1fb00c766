//! The limit: how far a thread that does nothing else misses its deadlines by.

use super::Waits;
use crate::reactor;
use weir_units::Nanos;

/// Meets each of these deadlines (in order) by spinning on the clock, and says how late it was and how much of that it waited
/// for its core. What a drive on the same core misses beyond this is the drive's own.
pub fn spin(deadlines: impl IntoIterator<Item = Nanos>, mut each: impl FnMut(Nanos, Nanos)) {
    let mut now = reactor::now();
    let mut waits = Waits::of_this_thread(now);
    for due in deadlines {
        while now < due {
            now = reactor::now();
            waits.look(now);
        }
        each(now.saturating_sub(due), waits.since(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_is_met_in_order_and_not_early() {
        let start = reactor::now();
        let dues: Vec<Nanos> = (1..200).map(|i| start.saturating_add(Nanos::from_micros(i * 20))).collect();
        let mut met = 0;
        spin(dues.iter().copied(), |late, waited| {
            let now = reactor::now();
            assert!(now >= dues[met] && late <= now.saturating_sub(dues[met]));
            assert!(waited <= late);
            met += 1;
        });
        assert_eq!(met, dues.len());
    }
}
