//! What clients that poll see of a local drive, with and without the time in which their thread had no core: for
//! reproductions, which have to say something about the drive and not about what else the machine does.

use weir_config::DeviceConfig;
use weir_driver::{Done, Io, IoKind, QueuePair};
use weir_node::local::{Local, LocalTenant};
use weir_node::replay::{Clock, replay};
use weir_sim::reproduce::Seen;
use weir_sys::reactor::now;
use weir_sys::sched::{Waits, spin};
use weir_units::{Class, Nanos};
use weir_workload::{Answered, Planned};
use weir_workload::{Histogram, Latency, Xoshiro256};

/// Bytes of a request.
const SIZE: u32 = 4096;

/// 4 KiB random reads of a drive in memory that answers each after `service`, by `clients` queue pairs of one depth in this
/// thread: `ramp` is not counted, `time` is.
///
/// # Errors
/// The drive cannot be had, or a read failed.
pub fn polled(clients: u32, service: Nanos, (ramp, time): (Nanos, Nanos)) -> Result<Seen, String> {
    let config = DeviceConfig::from_query("ram", &format!("latency={}ns", service.0)).map_err(|e| e.to_string())?;
    let tenants = [LocalTenant { name: "clients".into(), class: Class::Medium }];
    let mut local = Local::open(&config, &tenants, now()).map_err(|e| e.to_string())?;
    for _ in 0..clients {
        local.connect(0, "clients", 1, SIZE, now()).map_err(|e| e.to_string())?;
    }
    let begun = now();
    let mut turn = Turn {
        rng: Xoshiro256::new(1),
        waits: Waits::of_this_thread(begun),
        since: vec![None; clients as usize],
        done: Vec::with_capacity(1),
        service,
        raw: Histogram::new(),
        net: Histogram::new(),
    };
    let (count, stop) = (begun.saturating_add(ramp), begun.saturating_add(ramp).saturating_add(time));
    let mut waited = Nanos(0);
    loop {
        let at = turn.run(&mut local, count)?;
        if at < count {
            waited = turn.waits.total();
        }
        if at >= stop {
            let lost = turn.waits.total().saturating_sub(waited);
            let share = lost.as_secs_f64() / at.saturating_sub(count).as_secs_f64().max(1e-9);
            let least = Nanos(turn.raw.min());
            return Ok(Seen { raw: latency(&turn.raw), net: latency(&turn.net), least, waited_pct: share * 100.0 });
        }
    }
}

/// Makes these requests of a drive in this process, each when its time has come.
///
/// # Errors
/// As [`replay`].
pub fn answers(drive: &DeviceConfig, requests: &[Planned]) -> Result<Vec<Answered>, String> {
    replay(drive, requests, &mut Real { begun: None, waits: Waits::of_this_thread(now()) })
}

/// The real clock, from its first look on.
struct Real {
    begun: Option<Nanos>,
    waits: Waits,
}

impl Clock for Real {
    #[inline]
    fn now(&mut self) -> Nanos {
        let now = now();
        self.waits.look(now);
        now.saturating_sub(*self.begun.get_or_insert(now))
    }

    #[inline]
    fn waited_since(&mut self, from: Nanos) -> Nanos {
        self.waits.since(self.begun.unwrap_or_default().saturating_add(from))
    }
}

/// How late a bare loop meets deadlines that are `apart`, for `time`: the control.
pub fn bare(apart: Nanos, time: Nanos) -> Seen {
    let (mut raw, mut net) = (Histogram::new(), Histogram::new());
    let begun = now();
    let mut lost = Nanos(0);
    let deadlines = (1..=time.0 / apart.0.max(1)).map(|i| Nanos(begun.0 + i * apart.0));
    spin(deadlines, |late, waited| {
        raw.record(late.0);
        net.record(late.saturating_sub(waited).0);
        lost = lost.max(waited);
    });
    // A thread without a core meets its last deadline after the time.
    let took = now().saturating_sub(begun).max(lost);
    let waited_pct = lost.as_secs_f64() / took.as_secs_f64().max(1e-9) * 100.0;
    Seen { raw: latency(&raw), net: latency(&net), least: Nanos(raw.min()), waited_pct }
}

/// Cores that a measurement uses at once: one serves, one asks.
const CORES: usize = 2;
/// A look at them.
const LOOK: Nanos = Nanos::from_millis(40);
/// Deadlines of a look.
const APART: Nanos = Nanos::from_micros(50);

/// Of threads that do nothing but spin, one for each core that a measurement uses: the part of its time in which one of them had no
/// core, in percent; of the one that lost most.
pub fn lost_pct() -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()).min(CORES);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| bare(APART, LOOK).waited_pct)).collect();
        // One that ended early has lost nothing that is known.
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).fold(0.0, f64::max)
    })
}

fn latency(histogram: &Histogram) -> Latency {
    let at = |percent| histogram.percentile(percent);
    Latency { mean: histogram.mean(), p50: at(50.0), p99: at(99.0), p999: at(99.9), max: histogram.max() }
}

/// The loop's state.
struct Turn {
    rng: Xoshiro256,
    waits: Waits,
    /// By client: when its request was sent.
    since: Vec<Option<Nanos>>,
    done: Vec<Done>,
    service: Nanos,
    raw: Histogram,
    net: Histogram,
}

impl Turn {
    /// All clients without a request send one, the drive runs once, all look for answers; those from `count` on count. The
    /// time afterwards.
    fn run(&mut self, local: &mut Local, count: Nanos) -> Result<Nanos, String> {
        let sent = now();
        self.waits.look(sent);
        for client in 0..self.since.len() {
            if self.since[client].is_none() {
                let mut pair = local.queue(client, sent);
                let blocks = pair.capacity() / u64::from(SIZE);
                let offset = self.rng.below(blocks) * u64::from(SIZE);
                let io = Io { kind: IoKind::Read, offset, len: SIZE, slot: 0 };
                pair.submit(io).map_err(|e| e.to_string())?;
                pair.flush();
                self.since[client] = Some(sent);
            }
        }
        local.run(sent);
        let at = now();
        self.waits.look(at);
        for client in 0..self.since.len() {
            local.queue(client, at).reap(&mut self.done).map_err(|e| e.to_string())?;
            let Some(done) = self.done.pop() else { continue };
            if !done.status.is_success() {
                return Err(format!("a read failed: {}", done.status));
            }
            let since = self.since[client].take().unwrap_or(at);
            if since >= count {
                // Until it was due nobody waited in vain.
                let waited = self.waits.since(since.saturating_add(self.service));
                self.raw.record(at.saturating_sub(since).0);
                self.net.record(at.saturating_sub(since).saturating_sub(waited).0);
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_early_and_net_is_no_more_than_raw() {
        let service = Nanos::from_micros(50);
        let seen = polled(4, service, (Nanos::from_millis(2), Nanos::from_millis(20))).unwrap();
        assert!(seen.least >= service && seen.net.mean >= service.0 as f64, "{seen:?}");
        assert!(seen.net.mean <= seen.raw.mean && seen.net.p99 <= seen.raw.p99, "{seen:?}");
        assert!((0.0..=100.0).contains(&seen.waited_pct), "{seen:?}");
        let bare = bare(service, Nanos::from_millis(10));
        assert!(bare.net.p99 <= bare.raw.p99 && bare.raw.max > 0, "{bare:?}");
        assert!((0.0..=100.0).contains(&lost_pct()));
    }
}
