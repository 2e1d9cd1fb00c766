//! Which block is collected next. One trait, five policies; `docs/guides/flash-policies.md` shows how to write a sixth.

use super::encoding::HELD;
use crate::name::names;
use alloc::boxed::Box;
use core::fmt;
use weir_units::rng::SplitMix64;

/// One plane's blocks as a policy sees them: the same index in every slice is the same block.
#[derive(Clone, Copy, Debug)]
pub struct PlaneView<'a> {
    /// Valid units of each block. A block that must not be chosen (free, being written, bad) shows more than
    /// `block_units`.
    pub valid: &'a [u16],
    /// Erases of each block.
    pub erases: &'a [u32],
    /// When each block was last programmed, in programs of the whole drive.
    pub written_at: &'a [u64],
    /// Programs of the whole drive so far.
    pub now: u64,
    /// Units of a block.
    pub block_units: u32,
}

impl PlaneView<'_> {
    /// Whether the block may be chosen.
    #[inline]
    pub fn is_candidate(&self, block: usize) -> bool {
        self.valid[block] & HELD == 0
    }

    /// The blocks that may be chosen.
    pub fn candidates(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.valid.len()).filter(|b| self.is_candidate(*b))
    }

    /// The fraction of the block that is valid.
    pub fn utilisation(&self, block: usize) -> f64 {
        f64::from(self.valid[block] & !HELD) / f64::from(self.block_units)
    }

    /// The candidate that maximises `score`; the first of equals.
    pub fn best(&self, mut score: impl FnMut(usize) -> f64) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for block in self.candidates() {
            let s = score(block);
            if best.is_none_or(|(_, b)| s > b) {
                best = Some((block, s));
            }
        }
        best.map(|(block, _)| block)
    }
}

/// Chooses the block that is collected next.
pub trait VictimPolicy: fmt::Debug + Send {
    /// The block of this plane to collect, by its place in the slices; `None` where there is no candidate. A choice
    /// that is wholly valid frees nothing: after a few of them in a row the engine takes the greedy choice.
    fn pick(&mut self, plane: &PlaneView<'_>, rng: &mut SplitMix64) -> Option<usize>;
}

/// The victim policies that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Victim {
    /// Fewest valid units.
    Greedy,
    /// Largest age · (1 − u) / 2u (Rosenblum and Ousterhout, 1992; Kawaguchi et al., 1995), u the valid fraction.
    CostBenefit,
    /// The best of d blocks drawn at random (Van Houdt, 2013); d is `gc.choices`.
    DChoice,
    /// The block written longest ago.
    Fifo,
    /// Any.
    Random,
}

names!(
    Victim,
    "victim policy",
    Greedy = "greedy",
    CostBenefit = "cost-benefit",
    DChoice = "d-choice",
    Fifo = "fifo",
    Random = "random"
);

impl Victim {
    /// The policy; `choices` is d of d-choice.
    pub fn build(self, choices: u32) -> Box<dyn VictimPolicy> {
        match self {
            Victim::Greedy => Box::new(Greedy),
            Victim::CostBenefit => Box::new(CostBenefit),
            Victim::DChoice => Box::new(DChoice(choices.max(1))),
            Victim::Fifo => Box::new(Fifo),
            Victim::Random => Box::new(DChoice(1)),
        }
    }
}

/// Fewest valid units; the first of equals.
#[derive(Debug)]
pub struct Greedy;

/// The place of the smallest of `valid`, unless nothing there is a candidate.
pub(crate) fn fewest(valid: &[u16]) -> Option<usize> {
    // Two passes that the compiler vectorises beat one that carries the index along.
    let least = valid.iter().fold(u16::MAX, |a, &b| a.min(b));
    if least & HELD != 0 {
        return None;
    }
    let chunks = valid.chunks_exact(32);
    let tail = chunks.remainder();
    for (i, chunk) in chunks.enumerate() {
        if chunk.iter().fold(false, |any, v| any | (*v == least)) {
            return chunk.iter().position(|v| *v == least).map(|at| i * 32 + at);
        }
    }
    tail.iter().position(|v| *v == least).map(|at| valid.len() - tail.len() + at)
}

impl VictimPolicy for Greedy {
    fn pick(&mut self, plane: &PlaneView<'_>, _: &mut SplitMix64) -> Option<usize> {
        fewest(plane.valid)
    }
}

#[derive(Debug)]
struct CostBenefit;

impl VictimPolicy for CostBenefit {
    fn pick(&mut self, plane: &PlaneView<'_>, _: &mut SplitMix64) -> Option<usize> {
        plane.best(|b| {
            let u = plane.utilisation(b);
            let age = plane.now.saturating_sub(plane.written_at[b]) as f64;
            // An empty block is free to collect: nothing beats it.
            if u == 0.0 { f64::INFINITY } else { age * (1.0 - u) / (2.0 * u) }
        })
    }
}

/// The best of so many random draws; one draw is the random policy.
#[derive(Debug)]
struct DChoice(u32);

impl VictimPolicy for DChoice {
    fn pick(&mut self, plane: &PlaneView<'_>, rng: &mut SplitMix64) -> Option<usize> {
        let mut best = None;
        let mut drawn = 0;
        // Nearly all blocks of a plane at work are candidates; a plane with few is searched in order.
        for _ in 0..self.0.saturating_mul(16) {
            let block = rng.below(plane.valid.len() as u32) as usize;
            if !plane.is_candidate(block) {
                continue;
            }
            if best.is_none_or(|b: usize| plane.valid[block] < plane.valid[b]) {
                best = Some(block);
            }
            drawn += 1;
            if drawn == self.0 {
                break;
            }
        }
        best.or_else(|| {
            let candidates = plane.candidates().count() as u32;
            plane.candidates().nth(rng.below(candidates.max(1)) as usize)
        })
    }
}

#[derive(Debug)]
struct Fifo;

impl VictimPolicy for Fifo {
    fn pick(&mut self, plane: &PlaneView<'_>, _: &mut SplitMix64) -> Option<usize> {
        plane.candidates().min_by_key(|b| plane.written_at[*b])
    }
}
