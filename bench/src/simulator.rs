//! `weir sim` as a whole beside a bare loop, in turn in one process: random 4 KiB, half of them reads, 64 in flight, a drive whose
//! collection is at work.
//!
//! ```text
//!   weir sim    Scenario ─► World: clients, arbiter, controller, flash, figures      what the command runs, from the text of its file on
//!   bare loop   draw a request ─► read or replace its word of the map ─► its channel events through a heap ─► draw the next one
//! ```
//! The bare loop is the least that any simulation of the load has to do, see [`Bare`]. Both run on the same thread in pieces of a few
//! hundred thousand requests, and count the time that the thread had.

use crate::figure::{Report, Series, Target};
use crate::journal::cpu_time;
use crate::{BenchError, Setup, failed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use weir_config::Document;
use weir_drive::FlashService;
use weir_flash::{SplitMix64, Stats};
use weir_sim::{Scenario, SimulatedDrive};
use weir_units::Nanos;

/// Requests in flight.
const DEPTH: u32 = 64;
/// Requests of each of the two in a round.
const REQUESTS: u64 = 400_000;
/// Before the first round.
const WARM_UP: u64 = 200_000;
/// Moments of the simulation between two looks at how far it has come.
const MOMENTS: u64 = 1 << 12;

/// (what its channels do, the keys of the drive, sizes in GiB).
const DRIVES: [(&str, &str, [u64; 2]); 3] = [
    ("booked", "kind = \"flash\"", [8, 256]),
    ("data-out-first", "profile = \"mqsim-default\"", [8, 256]),
    ("reads-first", "profile = \"p3700\"", [8, 256]),
];

/// The part of the bare loop's speed that a simulation should reach.
const PART: f64 = 0.6;

/// What a piece of a simulation did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    requests: u64,
    /// Holds of a channel: two of each page that is read (command, data out), one of each page that is programmed (command and data in),
    /// one of each erase; pages that collection moves stay in their plane.
    events: u64,
    /// Units that collection moved.
    moves: u64,
}

impl Work {
    fn of(requests: u64, stats: &Stats) -> Work {
        let events = 2 * stats.page_reads + stats.page_programs + stats.erases;
        Work { requests, events, moves: stats.gc_moves }
    }

    fn since(self, before: Work) -> Work {
        let (requests, events) = (self.requests - before.requests, self.events - before.events);
        Work { requests, events, moves: self.moves - before.moves }
    }
}

/// A closed loop that does what any simulation of such a load has to do, and nothing else. Each request is drawn: half of them read a word
/// of the page map, half of them replace it, and see what was there. Its channel events go through a binary heap one after the other, ordered by time; when
/// the last of them has come out, the request is complete and the next one is drawn. There are as many words as the drive has units, and as
/// many events as the simulation had for so many requests. No drive, no arbiter, no latencies.
struct Bare {
    /// By logical unit: where it lies.
    map: Vec<u32>,
    /// By place: whose it is. Empty where pages do not move.
    inverse: Vec<u32>,
    /// When the next event of a request is, and of which one.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    /// By request in flight: events to come.
    left: [u64; DEPTH as usize],
    rng: SplitMix64,
    /// Where the next write goes, and the next unit that collection moves.
    next: usize,
    victim: usize,
    /// Of what is not whole: parts of an event, and of a move.
    owed: (u64, u64),
    digest: u64,
}

impl Bare {
    /// `moves`: for what collection moves the map is changed as well.
    fn new(units: u32, moves: bool) -> Bare {
        let (map, inverse): (Vec<u32>, _) =
            ((0..units).collect(), if moves { (0..units).collect() } else { Vec::new() });
        // As the simulation's map is.
        weir_sys::prefetch::on_huge_pages(&map);
        Bare {
            map,
            inverse,
            events: (0..DEPTH).map(|id| Reverse((u64::from(id), id))).collect(),
            left: [1; DEPTH as usize],
            rng: SplitMix64::new(7),
            next: 0,
            victim: units as usize / 2,
            owed: (0, 0),
            digest: 0,
        }
    }

    /// As many requests, with as many events and moves.
    fn run(&mut self, work: &Work) {
        let mut left = work.requests;
        while left > 0 {
            let Some(Reverse((now, id))) = self.events.pop() else { return };
            let word = self.rng.next_u64();
            self.left[id as usize] -= 1;
            if self.left[id as usize] == 0 {
                left -= 1;
                self.begin(id, word, work);
            }
            // Between 1 and 65,536 ns later.
            self.events.push(Reverse((now + 1 + (word >> 16 & 0xffff), id)));
        }
    }

    /// The next request: its place in the map, and how many events it has.
    fn begin(&mut self, id: u32, word: u64, work: &Work) {
        let lpn = (((word >> 32) * self.map.len() as u64) >> 32) as usize;
        if word & 1 == 0 {
            self.digest = self.digest.wrapping_add(u64::from(self.map[lpn]));
        } else {
            let before = std::mem::replace(&mut self.map[lpn], self.next as u32);
            self.digest = self.digest.wrapping_add(u64::from(before));
            self.next += 1;
        }
        self.owed.0 += work.events;
        let whole = (self.owed.0 / work.requests).max(1);
        self.owed.0 = self.owed.0.saturating_sub(whole * work.requests);
        self.left[id as usize] = whole;
        if !self.inverse.is_empty() {
            self.move_units(work);
        }
    }

    /// What collection moves for a request: units that lie one after the other, whose words lie anywhere.
    fn move_units(&mut self, work: &Work) {
        self.owed.1 += work.moves;
        while self.owed.1 >= work.requests {
            self.owed.1 -= work.requests;
            let lpn = self.inverse[self.victim];
            // A fixed scatter: the inverse of a drive that has been written at random.
            let at = (u64::from(lpn).wrapping_mul(0x9e37_79b1) & 0xffff_ffff) * self.map.len() as u64;
            let before = std::mem::replace(&mut self.map[(at >> 32) as usize], self.victim as u32);
            self.digest = self.digest.wrapping_add(u64::from(before));
            self.victim = (self.victim + 1) % self.inverse.len();
        }
    }
}

/// The simulation of such a drive, in the steady state.
fn world(keys: &str, gib: u64) -> Result<SimulatedDrive, BenchError> {
    let text = format!(
        "seed = 1\nprecondition = \"steady\"\n[[device]]\n{keys}\ncapacity = \"{gib}GiB\"\n\
         [[job]]\nrw = \"randrw:50\"\nbs = \"4KiB\"\nqd = {DEPTH}\n"
    );
    let scenario = Document::parse(&text, "bench", Path::new("/")).and_then(|document| Scenario::read(&document));
    scenario.map_err(|e| failed(keys, e))?.world().map_err(|e| failed(keys, e))
}

/// What its flash has done so far.
fn work(world: &SimulatedDrive) -> Work {
    let flash = world.inside().and_then(|inside| inside.as_any().downcast_ref::<FlashService>());
    flash.map_or(Work::default(), |flash| Work::of(world.answers(), flash.flash().stats()))
}

/// Goes on until so many requests more are answered.
fn advance(world: &mut SimulatedDrive, requests: u64) {
    let end = world.answers() + requests;
    while world.answers() < end && world.advance(Nanos::NEVER, MOMENTS) {}
}

/// Nanoseconds a request of what runs now, in this thread's own time.
fn timed(requests: u64, run: impl FnOnce()) -> f64 {
    let begun = cpu_time();
    run();
    (cpu_time() - begun) / requests as f64
}

/// MiB of this process that are in memory, and were at most (proc(5), `VmRSS` and `VmHWM`).
fn resident() -> Result<f64, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kib.map(|kib: f64| kib / 1024.0).ok_or_else(|| failed("/proc/self/status", "no VmRSS"))
}

/// Measures every drive in turn, round after round.
///
/// # Errors
/// A drive is refused.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let method = vec![
        format!("in this process on core {}: random 4 KiB, half reads, {DEPTH} in flight, from the steady state,", setup.client_core),
        "the world of `weir sim` with its clients, arbiter, controller, flash and figures; the bare loop draws as many requests, reads".into(),
        "or replaces a word of a map of the same size for each, and has as many channel events go through a binary heap;".into(),
        format!(
            "`with moves` it also changes the map for what collection moves; {} rounds of {REQUESTS} requests each in turn, the thread's own time; medians [lowest - highest]",
            setup.rounds
        ),
    ];
    weir_sys::sched::pin(setup.client_core)?;
    let mut report = Report::new("simulator", method);
    for (name, keys, sizes) in DRIVES {
        for gib in sizes {
            let name = format!("{name}, {gib} GiB");
            if name.contains(&setup.only) {
                drive(setup, &mut report, &name, world(keys, gib)?)?;
            }
        }
    }
    Ok(report)
}

/// One drive beside its bare loops.
fn drive(setup: &Setup, report: &mut Report, name: &str, mut world: SimulatedDrive) -> Result<(), BenchError> {
    advance(&mut world, WARM_UP);
    let memory = resident()?;
    let units = world.inside().and_then(|i| i.as_any().downcast_ref::<FlashService>()).map_or(0, |f| f.flash().units());
    let mut bare = [Bare::new(units, false), Bare::new(units, true)];
    let [mut ours, mut least, mut moving, mut events, mut moves]: [Series; 5] = Default::default();
    for _ in 0..setup.rounds {
        let before = work(&world);
        let time = timed(1, || advance(&mut world, REQUESTS));
        let done = work(&world).since(before);
        ours.push(time / done.requests as f64);
        least.push(timed(done.requests, || bare[0].run(&done)));
        moving.push(timed(done.requests, || bare[1].run(&done)));
        events.push(done.events as f64 / done.requests as f64);
        moves.push(done.moves as f64 / done.requests as f64);
    }
    std::hint::black_box(bare.iter().map(|b| b.digest).sum::<u64>());
    report.figure(format!("{name}: weir sim"), "ns", &ours);
    report.figure(format!("{name}: bare loop"), "ns", &least);
    report.figure(format!("{name}: bare loop with moves"), "ns", &moving);
    report.figure(format!("{name}: channel events a request"), "", &events);
    report.figure(format!("{name}: units moved a request"), "", &moves);
    report.judged(format!("{name}: speed / bare loop"), "x", &least.over(&ours), Target::AtLeast(PART));
    report.figure(format!("{name}: speed / bare loop with moves"), "x", &moving.over(&ours));
    report.figure(format!("{name}: resident"), "MiB", &Series::of(memory));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_loop_has_as_many_events_as_it_is_told() {
        let work = Work { requests: 1000, events: 2300, moves: 700 };
        let mut bare = Bare::new(1 << 10, true);
        // The requests that stand in the heap at first have an event each.
        bare.run(&Work { requests: u64::from(DEPTH), events: u64::from(DEPTH), moves: 0 });
        let at = bare.victim;
        bare.run(&work);
        assert_eq!(bare.victim, (at + 700) % (1 << 10));
        let open: u64 = bare.left.iter().sum();
        assert!((DEPTH.into()..=3 * u64::from(DEPTH)).contains(&open), "{open}");
        assert_eq!(bare.events.len(), DEPTH as usize);
    }

    #[test]
    fn what_the_flash_did_is_counted_from_its_figures() {
        let mut world = world("kind = \"flash\"", 1).unwrap_or_else(|e| panic!("{e:?}"));
        let before = work(&world);
        advance(&mut world, 2_000);
        let done = work(&world).since(before);
        assert!(done.requests >= 2_000 && done.moves > 0, "{done:?}");
        // Half of the requests are reads of two events, half are writes of one and a part of an erase.
        assert!((done.requests..3 * done.requests).contains(&done.events), "{done:?}");
    }
}
