//! How many commands a drive has in flight that bounds slots and bytes, when their sizes differ.
//!
//! A command that does not fit into the bytes in flight waits, and nobody overtakes it: some bytes stay unused, and of some
//! blends a part of the time the slots bind and a part of the time the bytes. So the order counts in which the arbiter hands
//! commands out; it is made here as the rounds have it, and packed.

use crate::tenant::Demand;
use alloc::vec::Vec;
use weir_workload::Rng;

/// One tenant's part of a blend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream<'a> {
    /// Its requests.
    pub demand: &'a Demand,
    /// Commands a second, or any unit that all streams share.
    pub rate: f64,
    /// Commands that it is served in a row: those of a round.
    pub run: f64,
}

/// Windows that are packed; the mean over them is within some tenths of a percent.
const WINDOWS: u32 = 192;
/// Commands that are packed at the most.
const COMMANDS: u32 = 30_000;

/// Mean number of commands in flight on a drive of `slots` and `bytes` that is never idle, for a blend that is served in this
/// order. 1 at the least: a command larger than `bytes` runs alone.
pub(crate) fn in_flight(slots: u32, bytes: u64, streams: &[Stream<'_>]) -> f64 {
    let sizes = || streams.iter().filter(|s| s.rate > 0.0).flat_map(|s| s.demand.sizes.parts());
    let Some((largest, smallest)) = sizes().map(|(size, _)| (*size, *size)).reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    else {
        return f64::from(slots);
    };
    if u64::from(largest) * u64::from(slots) <= bytes {
        return f64::from(slots);
    }
    if largest == smallest {
        return (bytes / u64::from(largest)).clamp(1, u64::from(slots)) as f64;
    }
    let mut order = Order::new(streams);
    let (mut windows, mut commands, mut next) = (0, 0, order.next());
    while windows < WINDOWS && commands < COMMANDS {
        let (mut used, mut held) = (0u32, 0u64);
        while used < slots && (held + next <= bytes || used == 0) {
            (used, held) = (used + 1, held + next);
            next = order.next();
        }
        (windows, commands) = (windows + 1, commands + used);
    }
    f64::from(commands) / f64::from(windows)
}

/// The order in which commands are handed out: runs, one stream after the other, as often as the rates have it.
struct Order<'a> {
    streams: Vec<(Stream<'a>, f64)>,
    /// Whose run it is, and what is left of it.
    at: usize,
    left: f64,
    rng: Rng,
}

impl<'a> Order<'a> {
    /// At least one stream has a rate.
    fn new(streams: &[Stream<'a>]) -> Order<'a> {
        let streams: Vec<(Stream<'a>, f64)> =
            streams.iter().filter(|s| s.rate > 0.0).map(|s| (Stream { run: s.run.max(1.0), ..*s }, 0.0)).collect();
        Order { at: 0, left: 0.0, streams, rng: Rng::new(1) }
    }

    /// Bytes of the next command.
    fn next(&mut self) -> u64 {
        while self.left < 1.0 {
            self.turn();
        }
        self.left -= 1.0;
        let parts = self.streams[self.at].0.demand.sizes.parts();
        let mut draw = self.rng.below(100);
        for (size, share) in parts {
            match draw.checked_sub(u64::from(*share)) {
                Some(rest) => draw = rest,
                None => return u64::from(*size),
            }
        }
        parts.last().map_or(1, |(size, _)| u64::from(*size))
    }

    /// The next stream gets what it has earned; a part of a command stays owed to who had the turn.
    fn turn(&mut self) {
        self.streams[self.at].1 += self.left;
        self.at = (self.at + 1) % self.streams.len();
        if self.at == 0 {
            // A round: whoever is through with a run first sets its pace.
            let pace = self.streams.iter().map(|(s, _)| s.run / s.rate).fold(f64::INFINITY, f64::min);
            for (stream, owed) in &mut self.streams {
                *owed += stream.rate * pace;
            }
        }
        self.left = core::mem::take(&mut self.streams[self.at].1);
    }
}
