//! Data that lives for different lengths of time: which block holds which, and how the spare flash is shared.
//!
//! Collection keeps the streams apart, and it does not take the block with the fewest valid units of all. That choice leaves every stream the
//! same part of spare flash, and then the host's writes amplify as uniform ones do, however well the streams are told apart. It is
//! right to take the block that loses least by waiting (Lomet and Luo, "Efficiently Reclaiming Space in a Log Structured Store", 2021):
//! where the part e of a block is stale and each of its valid units dies at rate λ, collecting it costs 1 / e for a unit gained, and
//! waiting lowers that at the rate λ (1 - e) / e². Within a stream λ is one number, so the victim policy chooses there, and the stream is
//! the one whose emptiest block has the smallest λ (1 - e) / e². For uniform writes to each stream this is the split of the spare
//! flash that minimises write amplification.

use super::encoding::HELD;
use super::write_routing::Separation;
use crate::geometry::Shape;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Streams whose moved data stays apart at the most; those above share the last one's blocks. What a step of collection changes
/// has to fit where it is noted: a block for each stream that it ends, and one for each that it begins.
pub(crate) const MOVED: u8 = 6;

/// A stream's part of all deaths is at least this: one in which nothing dies for a while would be collected down to its last stale unit.
const LEAST_PART: f64 = 0.002;

/// Deaths between two ageings, in parts of the drive's units, and what an ageing leaves.
const PERIOD: u32 = 4;
const AGEING: f64 = 0.75;

/// A stream in one plane.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    valid: u64,
    /// The fewest valid units of a candidate.
    fewest: u16,
}

/// Which stream a unit goes to, and which blocks are whose.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Chooses; without one everything is stream 0.
    pub(crate) policy: Option<Box<dyn Separation>>,
    count: u8,
    /// Streams whose moved data has a write point of its own; 0: collection mixes all.
    moved: u8,
    /// Units that the host can name.
    logical: u32,
    /// By block: its stream.
    of: Vec<u8>,
    /// By stream: units of its blocks that the host has written again, the older ones counting less.
    deaths: Vec<f64>,
    /// Deaths until the next ageing.
    left: u32,
    /// The victim's units, stream by stream.
    sorted: Vec<u32>,
    /// Their streams.
    classes: Vec<u8>,
    /// Valid counts of a plane, with [`HELD`] where the block is of another stream.
    masked: Vec<u16>,
}

impl Streams {
    /// `moved` streams of `count` keep their data apart when it is moved.
    pub(crate) fn new(policy: Option<Box<dyn Separation>>, count: u8, moved: u8, shape: &Shape, logical: u32) -> Self {
        let on = |len: u32| if moved > 0 { len as usize } else { 0 };
        let blocks = shape.blocks();
        Streams {
            policy,
            count,
            moved,
            logical,
            of: vec![0; on(blocks)],
            deaths: vec![0.0; count.into()],
            left: 1,
            sorted: vec![0; on(shape.units_per_block())],
            classes: vec![0; on(shape.units_per_block())],
            masked: Vec::with_capacity(on(shape.blocks_per_plane())),
        }
    }

    /// Whether collection keeps them apart.
    #[inline]
    pub(crate) fn are_kept(&self) -> bool {
        self.moved > 0
    }

    /// The stream of a write of the host's.
    #[inline]
    pub(crate) fn choose(&mut self, lpn: u32, hint: u8) -> u8 {
        match &mut self.policy {
            None => 0,
            Some(policy) => policy.stream(lpn, hint, self.count).min(self.count - 1),
        }
    }

    /// Nothing is written.
    pub(crate) fn forget(&mut self) {
        self.of.fill(0);
        self.deaths.fill(0.0);
    }

    /// As those of another drive of the same configuration without a policy.
    pub(crate) fn take_state(&mut self, of: &Streams) {
        self.of.clone_from(&of.of);
        self.deaths.clone_from(&of.deaths);
        self.left = of.left;
    }

    /// A block takes a stream's data.
    pub(crate) fn assign(&mut self, block: u32, stream: u32) {
        if self.are_kept() {
            self.of[block as usize] = stream as u8;
        }
    }

    /// The host has written a unit of the block again.
    #[inline]
    pub(crate) fn died(&mut self, block: u32) {
        self.deaths[usize::from(self.of[block as usize])] += 1.0;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.logical / PERIOD + 1;
            self.deaths.iter_mut().for_each(|n| *n *= AGEING);
        }
    }

    /// Orders the units of a victim by the streams that they go to; the ranges by stream.
    pub(crate) fn sort(&mut self, block: u32, lpns: &mut [u32]) -> [Range<usize>; MOVED as usize] {
        let from = self.of[block as usize];
        let mut ends = [0; MOVED as usize];
        let Some(policy) = &mut self.policy else { return ends.map(|_| 0..0) };
        for (class, &lpn) in self.classes.iter_mut().zip(lpns.iter()) {
            // The map's own pages are nobody's.
            let stream = if lpn < self.logical { policy.moved(lpn, from, self.count) } else { 0 };
            *class = stream.min(self.moved - 1);
            ends[usize::from(*class)] += 1;
        }
        let mut sum = 0;
        let ranges = ends.map(|n| {
            sum += n;
            sum - n..sum
        });
        let mut next = [0; MOVED as usize];
        for (next, range) in next.iter_mut().zip(&ranges) {
            *next = range.start;
        }
        for (class, &lpn) in self.classes.iter().zip(lpns.iter()) {
            let at = &mut next[usize::from(*class)];
            self.sorted[*at] = lpn;
            *at += 1;
        }
        lpns.copy_from_slice(&self.sorted[..lpns.len()]);
        ranges
    }

    /// The valid counts of a plane's blocks as the victim policy should see them: all but those of the stream that loses least by
    /// waiting are held. `None` where no stream has a block that frees anything.
    pub(crate) fn candidates(&mut self, valid: &[u16], blocks: Range<usize>, units: u32) -> Option<&[u16]> {
        let of = &self.of[blocks];
        let shares = shares(valid, of);
        let all = self.deaths.iter().sum::<f64>().max(1.0);
        let mut best: Option<(u8, f64)> = None;
        for (stream, share) in (0..self.count).zip(&shares) {
            if u32::from(share.fewest) >= units {
                continue;
            }
            let part = (self.deaths[usize::from(stream)] / all).max(LEAST_PART);
            let rate = part / share.valid.max(units.into()) as f64;
            let full = f64::from(share.fewest) / f64::from(units);
            let gain = rate * full / ((1.0 - full) * (1.0 - full));
            if best.is_none_or(|(_, least)| gain < least) {
                best = Some((stream, gain));
            }
        }
        let (stream, _) = best?;
        self.masked.clear();
        let mask = |(v, s): (&u16, &u8)| if *s == stream { *v } else { *v | HELD };
        self.masked.extend(valid.iter().zip(of).map(mask));
        Some(&self.masked)
    }
}

/// What each stream has in a plane, blocks that are held included.
fn shares(valid: &[u16], of: &[u8]) -> [Share; 16] {
    let mut shares = [Share { valid: 0, fewest: u16::MAX }; 16];
    for (&v, &stream) in valid.iter().zip(of) {
        let share = &mut shares[usize::from(stream % 16)];
        share.valid += u64::from(v & !HELD);
        share.fewest = share.fewest.min(v);
    }
    shares
}
