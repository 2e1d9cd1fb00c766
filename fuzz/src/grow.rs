//! Grows a target's corpus by what the compiler counts: an input that reaches what none before it reached is kept, and mutated
//! further. Needs a build that counts:
//!
//! ```text
//! RUSTFLAGS="-C instrument-coverage" LLVM_PROFILE_FILE=/dev/null \
//!     cargo run -p weir-fuzz --features coverage --target-dir target/coverage -- --target pcie --seconds 600 --grow
//! ```
//!
//! What is written is the smallest set that a greedy choice finds (short inputs first) with all regions of code that any input reached.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Target;
use crate::engine::{self, Failure};
use crate::mutate::Mutator;

/// What an input reached: each region, with how often in steps of the powers of two.
type Reached = Vec<(u32, u8)>;

/// What became of it.
#[derive(Debug)]
pub struct Grown {
    /// Inputs tried.
    pub tried: u64,
    /// Regions of code reached.
    pub regions: usize,
    /// Inputs kept, and their bytes.
    pub kept: (usize, usize),
    /// The first failure, which ends the search.
    pub failure: Option<(Vec<u8>, Failure)>,
}

/// How often counts as the same: once, twice, three to four times, and so on.
fn scale(count: u64) -> u8 {
    (u64::BITS - (count - 1).leading_zeros()).min(63) as u8
}

/// Runs one input and says what it reached; nothing in a build that does not count.
fn reach(run: fn(&[u8]), input: &[u8]) -> Result<Option<Reached>, Failure> {
    weir_sys::coverage::take(&mut |_, _| {});
    engine::attempt(run, input)?;
    let mut reached = Reached::new();
    let counts = weir_sys::coverage::take(&mut |index, count| reached.push((index as u32, scale(count))));
    Ok(counts.then_some(reached))
}

/// What has been reached so far: for each region the scales seen, a bit each.
#[derive(Default)]
struct Map(Vec<u64>);

impl Map {
    /// Adds, and says how many of them are new.
    fn add(&mut self, reached: &[(u32, u8)]) -> usize {
        let mut new = 0;
        for &(region, scale) in reached {
            let region = region as usize;
            if region >= self.0.len() {
                self.0.resize(region + 1, 0);
            }
            new += usize::from(self.0[region] >> scale & 1 == 0);
            self.0[region] |= 1 << scale;
        }
        new
    }

    fn regions(&self) -> usize {
        self.0.iter().filter(|seen| **seen != 0).count()
    }
}

/// Searches for `time` and rewrites `dir/<target>`: what lies there is tried first.
///
/// # Errors
/// A build that does not count; a folder that cannot be read or written.
pub fn grow(target: &Target, dir: &Path, seed: u64, time: Duration) -> Result<Grown, String> {
    let at = dir.join(target.name);
    let told = |e: std::io::Error| format!("{}: {e}", at.display());
    let kept = engine::corpus(dir, target.name).map_err(told)?;
    let mut map = Map::default();
    let mut pool: Vec<(Vec<u8>, Reached)> = Vec::new();
    let mut mutator = Mutator::new(target, kept);
    let (start, first) = (Instant::now(), mutator.corpus_len() as u64);
    let mut step = 0;
    // The corpus and the seeds are always looked at, however short the time.
    while step < first || start.elapsed() < time {
        let input = mutator.input(seed, step);
        step += 1;
        let reached = match reach(target.run, &input) {
            Ok(Some(reached)) => reached,
            Ok(None) => return Err(String::from("--grow needs a build that counts: see fuzz/src/grow.rs")),
            Err(failure) => {
                let shrunk = engine::shrink(target.run, &input, &failure.place);
                return Ok(Grown {
                    tried: step,
                    regions: map.regions(),
                    kept: (0, 0),
                    failure: Some((shrunk, failure)),
                });
            }
        };
        if map.add(&reached) > 0 {
            if step > first {
                mutator.keep(input.clone());
            }
            pool.push((input, reached));
        }
    }
    let chosen = choose(pool);
    if at.is_dir() {
        for entry in std::fs::read_dir(&at).map_err(told)? {
            std::fs::remove_file(entry.map_err(told)?.path()).map_err(told)?;
        }
    }
    std::fs::create_dir_all(&at).map_err(told)?;
    for input in &chosen {
        let name = format!("{:08x}", weir_sys::crc::crc32c(input));
        std::fs::write(at.join(name), input).map_err(told)?;
    }
    let bytes = chosen.iter().map(Vec::len).sum();
    Ok(Grown { tried: step, regions: map.regions(), kept: (chosen.len(), bytes), failure: None })
}

/// Few and short inputs that reach every region that any of them reaches.
fn choose(mut pool: Vec<(Vec<u8>, Reached)>) -> Vec<Vec<u8>> {
    pool.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
    let plain = |reached: &Reached| reached.iter().map(|(region, _)| (*region, 0)).collect::<Reached>();
    let mut map = Map::default();
    let mut chosen: Vec<(Vec<u8>, Reached)> = Vec::new();
    for (input, reached) in pool {
        let reached = plain(&reached);
        if map.add(&reached) > 0 {
            chosen.push((input, reached));
        }
    }
    // Long ones first now: they reach what short ones did, too.
    let mut map = Map::default();
    chosen.reverse();
    chosen.retain(|(_, reached)| map.add(reached) > 0);
    chosen.into_iter().map(|(input, _)| input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_apart_by_powers_of_two() {
        let scales: Vec<u8> = [1, 2, 3, 4, 5, 8, 9, 1 << 20, u64::MAX].map(scale).into();
        assert_eq!(scales, [0, 1, 2, 2, 3, 3, 4, 20, 63]);
    }

    #[test]
    fn a_set_of_all_regions_is_chosen_and_no_more() {
        let input =
            |n: usize, regions: &[u32]| (vec![n as u8; n], regions.iter().map(|r| (*r, 1)).collect::<Reached>());
        let pool = vec![input(9, &[1, 2, 3, 4]), input(1, &[1]), input(2, &[1, 2]), input(3, &[7]), input(4, &[7, 1])];
        let chosen: Vec<usize> = choose(pool).iter().map(Vec::len).collect();
        assert_eq!(chosen, [9, 3], "one that reaches four regions, and the shortest that reaches the fifth");
    }

    #[test]
    fn a_build_that_counts_nothing_says_so() {
        if weir_sys::coverage::take(&mut |_, _| {}) {
            return;
        }
        let dir = std::env::temp_dir().join(format!("weir-grow-{}", std::process::id()));
        let told = grow(&crate::CANARY, &dir, 1, Duration::ZERO).expect_err("nothing to go by");
        assert!(told.contains("needs a build that counts"), "{told}");
        assert!(!dir.exists(), "nothing half-made");
    }
}
