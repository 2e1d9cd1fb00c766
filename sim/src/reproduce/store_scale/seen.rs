//! What is seen of a run.

use weir_units::Nanos;

/// What happened while a request was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The store is filled: nothing is taken of it.
    Fill,
    Before,
    /// The process that served is dead, until another one answers everybody again.
    Takeover,
    After,
    /// Machines are lost, and their blocks are made again.
    Losses,
}

/// Seconds' counts, and what requests took.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Requests about names: when they were sent first, in which phase, and what they took.
    pub names: Vec<(Phase, Nanos)>,
    /// The slowest request about names of each second, by when it was answered.
    pub slowest: Vec<Nanos>,
    /// Answers that each process has sent, by second; and its core's time, nanoseconds.
    pub answers: Vec<Vec<u64>>,
    pub busy: Vec<Vec<u64>>,
    /// Commits and reads of the key-value store.
    pub commits: u64,
    pub reads: u64,
    /// Sessions that were begun again, and refusals that no rule expects.
    pub sessions_lost: u64,
    pub unexpected: Vec<String>,
    /// Writes of a copy that failed because its machine was gone.
    pub failed_writes: u64,
}

/// Adds to a second's count.
pub fn add<T: Default + Clone + std::ops::AddAssign>(counts: &mut Vec<T>, at: Nanos, more: T) {
    let second = (at.get() / 1_000_000_000) as usize;
    if counts.len() <= second {
        counts.resize(second + 1, T::default());
    }
    counts[second] += more;
}

impl Observed {
    pub fn new(services: usize) -> Self {
        Self { answers: vec![Vec::new(); services], busy: vec![Vec::new(); services], ..Self::default() }
    }

    /// A request about names was answered.
    pub fn answered(&mut self, phase: Phase, sent: Nanos, now: Nanos) {
        let took = now.saturating_sub(sent);
        if phase != Phase::Fill {
            self.names.push((phase, took));
        }
        let second = (now.get() / 1_000_000_000) as usize;
        if self.slowest.len() <= second {
            self.slowest.resize(second + 1, Nanos(0));
        }
        self.slowest[second] = self.slowest[second].max(took);
    }

    /// That part of a phase's requests took no longer, nanoseconds; NaN of none.
    pub fn percentile(&self, phase: Phase, part: f64) -> f64 {
        let mut all: Vec<u64> = self.names.iter().filter(|(of, _)| *of == phase).map(|(_, took)| took.get()).collect();
        all.sort_unstable();
        let at = ((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1));
        all.get(at).map_or(f64::NAN, |took| *took as f64)
    }

    /// Requests of a phase.
    pub fn count(&self, phase: Phase) -> usize {
        self.names.iter().filter(|(of, _)| *of == phase).count()
    }
}
