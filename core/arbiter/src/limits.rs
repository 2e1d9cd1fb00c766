//! Floors and ceilings: what a tenant gets at least, and at the most.
//!
//! Every rate is a clock that says when the next command is *owed* (a floor) or *paid for* (a ceiling). A command of `c`
//! commands or bytes moves it on by `c / rate` seconds, exactly: what does not make a nanosecond is kept as a remainder
//! (the generic cell rate algorithm, ITU-T I.371, without its rounding).
//!
//! ```text
//!  floor    next ≤ now: it is behind; the earliest `next` first         next = clamp(next, now ± catch_up) + c / rate
//!  ceiling  next ≤ now + burst: it may go, else it is held until then   next = max(next, now) + c / rate
//! ```
//! So a floor that was not asked for, or could not be given, is owed later for `catch_up` at the most, and what a tenant got
//! beyond its floor while the others were idle counts for as long: rounds shorter than that may bring it in bursts.
//!
//! Of a floor's two clocks the earlier one counts (both were promised), of a ceiling's the later one (neither may be
//! exceeded). Tenants that have something to serve and a floor stand in one heap by what they are owed, tenants that are
//! held in another by when they come back: who has neither, or is idle, costs nobody anything.

use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_units::{Ceiling, Floor, Nanos};

const SECOND: u64 = 1_000_000_000;
/// Rates beyond this are no limit to anybody, and products stay within 64 bits below it.
const RATE_MAX: u64 = 1 << 60;
const ABSENT: u32 = u32::MAX;

/// One rate, as the time at which what was served so far is due.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Units a second, 1 to `RATE_MAX`.
    rate: u64,
    /// In nanoseconds.
    next: u64,
    /// What `next` is too early, in units of a nanosecond divided by `rate`.
    rest: u64,
    /// Catch-up of a floor, burst of a ceiling, in nanoseconds.
    slack: u64,
}

impl Clock {
    fn new(rate: u64, slack: u64) -> Clock {
        Clock { rate: rate.clamp(1, RATE_MAX), next: 0, rest: 0, slack }
    }

    /// So much was served; what it was behind or ahead beyond these times is forgotten.
    #[inline]
    fn advance(&mut self, (from, to): (u64, u64), units: u32) {
        if self.next < from {
            (self.next, self.rest) = (from, 0);
        } else if self.next > to {
            (self.next, self.rest) = (to, 0);
        }
        let owed = u64::from(units) * SECOND + self.rest;
        (self.next, self.rest) = (self.next.saturating_add(owed / self.rate), owed % self.rate);
    }

    /// The same rate as before goes on where it was; another one begins anew.
    fn follow(mut self, before: Option<&Clock>) -> Clock {
        if let Some(before) = before.filter(|before| before.rate == self.rate) {
            (self.next, self.rest) = (before.next, before.rest);
        }
        self
    }
}

/// Commands and bytes.
type Clocks = [Option<Clock>; 2];

fn follow(clocks: Clocks, before: &Clocks) -> Clocks {
    let [commands, bytes] = clocks;
    [commands.map(|c| c.follow(before[0].as_ref())), bytes.map(|c| c.follow(before[1].as_ref()))]
}

fn floor_clocks(floor: &Floor) -> Clocks {
    let clock = |rate| Clock::new(rate, floor.catch_up.0);
    [floor.rates.iops.map(clock), floor.rates.bandwidth.map(|b| clock(b.0))]
}

fn ceiling_clocks(ceiling: &Ceiling) -> Clocks {
    let time = |units: u64, rate: u64| {
        u64::try_from(u128::from(units) * u128::from(SECOND) / u128::from(rate.max(1))).unwrap_or(u64::MAX)
    };
    // A burst of n commands is the one that may go anyway, and n - 1.
    let commands = |rate: u64| {
        let slack = ceiling.burst.map_or(Ceiling::BURST.0, |n| time(u64::from(n.saturating_sub(1)), rate));
        Clock::new(rate, slack)
    };
    // While a byte is left.
    let bytes = |rate: u64| {
        let slack = ceiling.burst_bytes.map_or(Ceiling::BURST.0, |b| time(b.0, rate));
        Clock::new(rate, slack.saturating_sub(1))
    };
    [ceiling.rates.iops.map(commands), ceiling.rates.bandwidth.map(|b| bytes(b.0))]
}

/// One tenant's clocks.
#[derive(Clone, Debug)]
struct Limited {
    floor: Clocks,
    ceiling: Clocks,
}

impl Limited {
    /// When the next command is owed; `None` without a floor.
    #[inline]
    fn owed(&self) -> Option<u64> {
        self.floor.iter().flatten().map(|c| c.next).min()
    }

    /// When the next command may go; 0 without a ceiling.
    #[inline]
    fn free(&self) -> u64 {
        self.ceiling.iter().flatten().map(|c| c.next.saturating_sub(c.slack)).max().unwrap_or(0)
    }

    #[inline]
    fn serve(&mut self, now: u64, bytes: u32) {
        for (clock, units) in self.floor.iter_mut().zip([1, bytes]) {
            if let Some(clock) = clock {
                let reach = (now.saturating_sub(clock.slack), now.saturating_add(clock.slack));
                clock.advance(reach, units);
            }
        }
        for (clock, units) in self.ceiling.iter_mut().zip([1, bytes]) {
            if let Some(clock) = clock {
                clock.advance((now, u64::MAX), units);
            }
        }
    }
}

/// Tenants by time, the earliest first: a binary heap that knows where each of them stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl Heap {
    #[inline]
    pub fn peek(&self) -> Option<(u64, u32)> {
        self.entries.first().copied()
    }

    #[inline]
    pub fn contains(&self, t: u32) -> bool {
        self.place.get(t as usize).is_some_and(|&at| at != ABSENT)
    }

    /// Makes room for a tenant, so that nothing allocates later.
    fn reserve(&mut self, t: u32) {
        if self.place.len() <= t as usize {
            self.place.resize(t as usize + 1, ABSENT);
        }
        self.entries.reserve(self.place.len() - self.entries.len());
    }

    /// Puts a tenant, which `reserve` knows, where its time says.
    #[inline]
    pub fn set(&mut self, t: u32, time: u64) {
        let mut at = self.place[t as usize] as usize;
        if at == ABSENT as usize {
            at = self.entries.len();
            self.entries.push((time, t));
            self.place[t as usize] = at as u32;
        }
        self.entries[at].0 = time;
        self.settle(at);
    }

    pub fn remove(&mut self, t: u32) {
        let Some(place) = self.place.get_mut(t as usize).filter(|at| **at != ABSENT) else { return };
        let at = core::mem::replace(place, ABSENT) as usize;
        let last = self.entries.len() - 1;
        self.entries.swap_remove(at);
        if at < last {
            self.place[self.entries[at].1 as usize] = at as u32;
            self.settle(at);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.place[self.entries[a].1 as usize] = a as u32;
        self.place[self.entries[b].1 as usize] = b as u32;
    }

    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.entries[at] < self.entries[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let children = (2 * at + 1..2 * at + 3).filter(|&c| c < self.entries.len());
            let Some(least) = children.min_by_key(|&c| self.entries[c]) else { return };
            if self.entries[at] <= self.entries[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    pub fn check(&self) {
        for (at, entry) in self.entries.iter().enumerate() {
            assert_eq!(self.place[entry.1 as usize] as usize, at, "the heap knows where tenant {} stands", entry.1);
            assert!(at == 0 || self.entries[(at - 1) / 2] <= *entry, "the heap is in order");
        }
        assert_eq!(self.place.iter().filter(|&&at| at != ABSENT).count(), self.entries.len());
    }
}

/// The floors and ceilings of an arbiter's tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    tenants: Vec<Option<Box<Limited>>>,
    /// Who has a floor, is not held, and had something to serve when it was last looked at; by when it is owed.
    pub floors: Heap,
    /// Who is held by its ceiling; by when it comes back.
    pub held: Heap,
}

impl Limits {
    /// Sets a tenant's floor and ceiling; the clocks of rates that stay go on.
    pub fn set(&mut self, t: u32, floor: &Floor, ceiling: &Ceiling) {
        let i = t as usize;
        if self.tenants.len() <= i {
            self.tenants.resize_with(i + 1, || None);
        }
        self.floors.reserve(t);
        self.held.reserve(t);
        let mut limited = Limited { floor: floor_clocks(floor), ceiling: ceiling_clocks(ceiling) };
        if let Some(before) = &self.tenants[i] {
            limited.floor = follow(limited.floor, &before.floor);
            limited.ceiling = follow(limited.ceiling, &before.ceiling);
        }
        let none = floor.is_none() && ceiling.is_none();
        self.tenants[i] = (!none).then(|| Box::new(limited));
    }

    /// Forgets a tenant.
    pub fn forget(&mut self, t: u32) {
        self.floors.remove(t);
        self.held.remove(t);
        if let Some(tenant) = self.tenants.get_mut(t as usize) {
            *tenant = None;
        }
    }

    /// Whether nobody has a floor or a ceiling.
    pub fn is_empty(&self) -> bool {
        self.tenants.iter().all(Option::is_none)
    }

    #[inline]
    fn of(&self, t: u32) -> Option<&Limited> {
        self.tenants.get(t as usize)?.as_deref()
    }

    /// A tenant that is not held has something to serve.
    #[inline]
    pub fn wake(&mut self, t: u32) {
        if let Some(owed) = self.of(t).and_then(Limited::owed).filter(|_| !self.floors.contains(t)) {
            self.floors.set(t, owed);
        }
    }

    /// A tenant was served a command of so many bytes; when it may go on, if not at once.
    #[inline]
    pub fn serve(&mut self, now: Nanos, t: u32, bytes: u32) -> Option<u64> {
        let limited = self.tenants.get_mut(t as usize)?.as_deref_mut()?;
        limited.serve(now.0, bytes);
        let (owed, free) = (limited.owed(), limited.free());
        if let Some(owed) = owed.filter(|_| self.floors.contains(t)) {
            self.floors.set(t, owed);
        }
        (free > now.0).then_some(free)
    }

    /// When a tenant may go on by its ceiling.
    pub fn free(&self, t: u32) -> u64 {
        self.of(t).map_or(0, Limited::free)
    }

    /// Whether a tenant has a floor.
    pub fn has_floor(&self, t: u32) -> bool {
        self.of(t).is_some_and(|l| l.owed().is_some())
    }
}
