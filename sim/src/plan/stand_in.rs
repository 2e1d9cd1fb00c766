//! A drive that was measured, as the inside of a simulated one.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_controller::{Op, Operation, TimingModel};
use weir_flash::When;
use weir_plan::DriveModel;
use weir_units::Nanos;
use weir_workload::{Latency, Xoshiro256};

/// Answers as a calibration says: a command takes what load tests of its size and kind say beside as many as are in flight, drawn from
/// the percentiles that were measured.
#[derive(Debug)]
pub(super) struct StandIn {
    drive: DriveModel,
    /// When those in flight end, in nanoseconds.
    ends: BinaryHeap<Reverse<u64>>,
    /// Of 100 commands so many read, of late.
    mix: Option<f64>,
    /// What was looked up: latencies, and by how much they are longer than their mean says.
    known: BTreeMap<Seen, (Latency, f64)>,
    rng: Xoshiro256,
}

/// Bytes of a command, whether it reads, of 100 commands those that read of late, and commands in flight.
type Seen = (u32, bool, u8, u32);

/// Commands over which the mix is averaged.
const OF_LATE: f64 = 256.0;

impl StandIn {
    pub fn new(drive: DriveModel, seed: u64) -> Self {
        StandIn {
            drive,
            ends: BinaryHeap::new(),
            mix: None,
            known: BTreeMap::new(),
            rng: Xoshiro256::new(seed ^ 0x5741_4e44),
        }
    }
}

impl TimingModel for StandIn {
    fn begin(&mut self, now: Nanos, operation: Operation) -> When {
        while self.ends.peek().is_some_and(|end| end.0 <= now.0) {
            self.ends.pop();
        }
        let (size, reads) = seen(operation);
        let part = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let depth = (self.ends.len() + 1) as u32;
        let mix = self.mix.map_or(reads, |mix| mix + (reads - mix) / OF_LATE);
        self.mix = Some(mix);
        let whole = (mix + 0.5) as u8;
        let known = self.known.entry((operation.len, reads > 0.0, whole, depth)).or_insert_with(|| {
            let (of, depth) = ((reads, f64::from(whole)), f64::from(depth));
            let latency = self.drive.latency_beside(size, of, depth);
            // The mean is the one that gives the throughput that was measured.
            (latency, self.drive.cycle_beside(size, of, depth) * 1e9 / latency.mean)
        });
        let (latency, longer) = *known;
        let end = Nanos(now.0 + (quantile(&latency, part) * longer).max(1.0) as u64);
        self.ends.push(Reverse(end.0));
        When::at(end)
    }

    fn cost(&self, operation: Operation) -> u32 {
        let (size, reads) = seen(operation);
        let most = self.drive.seconds_per_command(size, reads) / self.drive.seconds_per_command(size, 100.0).max(1e-12);
        (f64::from(operation.len) * most.max(1.0)) as u32
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Size and percent of reads of one command.
fn seen(operation: Operation) -> (f64, f64) {
    let reads = matches!(operation.op, Op::Read | Op::Compare | Op::Verify);
    (f64::from(operation.len.max(512)), if reads { 100.0 } else { 0.0 })
}

/// The latency that this part of the commands does not exceed: straight lines between the percentiles that are known.
fn quantile(of: &Latency, part: f64) -> f64 {
    let known = [(0.5, of.p50), (0.99, of.p99), (0.999, of.p999), (1.0, of.max)].map(|(at, ns)| (at, ns as f64));
    let mut below = (0.0, known[0].1);
    for here in known {
        if part <= here.0 {
            let way = (part - below.0) / (here.0 - below.0);
            return below.1 + (here.1.max(below.1) - below.1) * way;
        }
        below = (here.0, here.1.max(below.1));
    }
    below.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::calibrate::{LoadCurve, Test};

    fn latency(p50: u64, p99: u64) -> Latency {
        Latency { mean: p50 as f64, p50, p99, p999: 2 * p99, max: 3 * p99 }
    }

    fn end(inside: &mut StandIn, now: Nanos, operation: Operation) -> Nanos {
        inside.begin(now, operation).known().unwrap()
    }

    #[test]
    fn it_delivers_what_was_measured() {
        let point = |read_percent, iops: f64| {
            let idle = Test { depth: 1, iops: 12.5e3, latency: latency(80_000, 120_000), ..Test::default() };
            let mean = 64.0 / iops * 1e9;
            let busy = Test {
                depth: 64,
                latency: Latency { mean, ..latency(mean as u64, mean as u64) },
                ..Test { iops, ..idle }
            };
            LoadCurve::new(4096, read_percent, vec![idle, busy]).unwrap()
        };
        let drive = DriveModel::measured(vec![point(100, 200e3), point(0, 50e3)], 64, 4 << 20).unwrap();
        let mut inside = StandIn::new(drive, 1);
        let read = Operation { op: Op::Read, offset: 0, len: 4096, fua: false, placement: 0 };
        let alone: Vec<u64> =
            (0..2000).map(|i| end(&mut inside, Nanos::from_millis(i), read).0 - Nanos::from_millis(i).0).collect();
        let mut sorted = alone.clone();
        sorted.sort_unstable();
        assert!((78_000..82_000).contains(&sorted[900]), "half of them take the median: {}", sorted[900]);
        assert!((110_000..125_000).contains(&sorted[1975]), "{}", sorted[1975]);
        let begun = Nanos::from_secs(10);
        let mut ends: BinaryHeap<Reverse<u64>> = (0..64).map(|_| Reverse(end(&mut inside, begun, read).0)).collect();
        for _ in 0..20_000 {
            let Reverse(now) = ends.pop().unwrap();
            ends.push(Reverse(end(&mut inside, Nanos(now), read).0));
        }
        let seconds = Nanos(ends.peek().unwrap().0).saturating_sub(begun).as_secs_f64();
        assert!((seconds / 0.1 - 1.0).abs() < 0.1, "20,000 at 200,000 a second took {seconds} s");
    }
}
