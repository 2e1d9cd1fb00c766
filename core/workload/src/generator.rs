//! The next request of a job.

use crate::job::{Job, JobRegion, Mix, Pattern};
use crate::pace::{Arrival, Pacer};
use crate::skew::{PlaceSampler, Skew};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_units::rng::Xoshiro256;
use weir_units::{Bytes, Nanos};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Drive to buffer.
    Read,
    /// Buffer to drive.
    Write,
    /// The range is not needed any more.
    Trim,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub kind: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Its length in bytes, a multiple of the block size and at most [`JobTarget::max_io`].
    pub len: u32,
}

/// What a job must know of its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTarget {
    /// The size of the drive or volume in bytes.
    pub capacity: u64,
    /// Bytes of a block.
    pub block: u32,
    /// Bytes of the longest request.
    pub max_io: u32,
}

/// A job that a drive cannot serve; the message is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError(pub(crate) String);

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for WorkloadError {}

/// Draws a job's requests: aligned to their own size, inside the region, in the proportions asked for; the same for the
/// same seed.
#[derive(Clone, Debug)]
pub struct Generator {
    pattern: Pattern,
    region: JobRegion,
    /// Size, and the share of this and all earlier sizes scaled to 2^32.
    sizes: Vec<(u32, u64)>,
    read_below: u64,
    cursor: u64,
    /// Where random requests go, in places of the smallest size; evenly if absent.
    places: Option<PlaceSampler>,
    smallest: u64,
    seed: u64,
    rng: Xoshiro256,
}

impl Generator {
    /// The requests of copy `copy` of a job (counted from 0): copies draw differently, and sequential ones start evenly
    /// spread over the region.
    ///
    /// # Errors
    /// The region ends behind the drive, or a size is no multiple of its block, too long for it, or longer than the region.
    pub fn new(job: &Job, device: JobTarget, copy: u32, seed: u64) -> Result<Self, WorkloadError> {
        let region = job.region.unwrap_or(JobRegion { offset: 0, len: device.capacity });
        check(job, device, region)?;
        let mut sum = 0;
        let sizes = job.sizes.parts().iter().map(|(size, share)| {
            sum += u64::from(*share);
            (*size, (sum << 32) / 100)
        });
        let align = u64::from(job.sizes.max());
        let share = region.len / u64::from(job.copies.max(1)) / align * align;
        let smallest = u64::from(job.sizes.parts().iter().map(|(size, _)| *size).min().unwrap_or(device.block));
        let refuse = |text: String| WorkloadError(format!("job {}: {text}", job.name));
        if job.skew != Skew::Uniform && !job.pattern.random {
            return Err(refuse(format!("zipf and hot spread random requests, and rw = {} is sequential", job.pattern)));
        }
        let seed = seed ^ u64::from(copy).wrapping_mul(0xd1b5_4a32_d192_ed03);
        Ok(Generator {
            pattern: job.pattern,
            region,
            sizes: sizes.collect(),
            read_below: (u64::from(job.pattern.read_percent) << 32) / 100,
            cursor: share * u64::from(copy),
            places: PlaceSampler::new(&job.skew, region.len / smallest).map_err(refuse)?,
            smallest,
            seed,
            rng: Xoshiro256::new(seed),
        })
    }

    /// When the requests of a job with a rate are due, from `start` on, by this generator's seed.
    pub fn pacer(&self, job: &Job, start: Nanos) -> Option<Pacer> {
        job.rate.map(|rate| match job.arrival {
            Arrival::Fixed => Pacer::new(rate, start),
            Arrival::Poisson => Pacer::poisson(rate, start, self.seed ^ 0xa076_1d64_78bd_642f),
            Arrival::PoissonDrop => Pacer::poisson_drop(rate, start, self.seed ^ 0xa076_1d64_78bd_642f),
        })
    }

    /// The part of the drive its requests lie in.
    pub fn region(&self) -> JobRegion {
        self.region
    }

    /// Whether offsets are drawn at random.
    pub fn is_random(&self) -> bool {
        self.pattern.random
    }

    /// The next request.
    #[inline]
    pub fn next_request(&mut self) -> Request {
        let draw = self.rng.next_u64();
        let len = match self.sizes[..] {
            [(only, _)] => only,
            _ => self.pick_size(draw >> 32),
        };
        let kind = match self.pattern.read_percent {
            100 => RequestKind::Read,
            0 => self.other(),
            _ if draw & 0xffff_ffff < self.read_below => RequestKind::Read,
            _ => self.other(),
        };
        let offset = if self.pattern.random { self.random_offset(len) } else { self.next_offset(len) };
        Request { kind, offset, len }
    }

    fn other(&self) -> RequestKind {
        if self.pattern.trim { RequestKind::Trim } else { RequestKind::Write }
    }

    fn pick_size(&self, draw: u64) -> u32 {
        let found = self.sizes.iter().find(|(_, below)| draw < *below);
        found.or(self.sizes.last()).map_or(0, |(size, _)| *size)
    }

    fn random_offset(&mut self, len: u32) -> u64 {
        let len = u64::from(len);
        if let Some(places) = &self.places {
            // The request that holds that place; the last one where it would reach over the end.
            let at = places.draw(&mut self.rng) * self.smallest;
            let at = if len == self.smallest { at } else { (at / len).min(self.region.len / len - 1) * len };
            return self.region.offset + at;
        }
        // A shift where it can be one: a 64-bit division costs ten times as much.
        let places =
            if len.is_power_of_two() { self.region.len >> len.trailing_zeros() } else { self.region.len / len };
        self.region.offset + self.rng.below(places) * len
    }

    fn next_offset(&mut self, len: u32) -> u64 {
        if self.cursor + u64::from(len) > self.region.len {
            self.cursor = 0;
        }
        let at = self.cursor;
        self.cursor += u64::from(len);
        self.region.offset + at
    }
}

fn check(job: &Job, device: JobTarget, region: JobRegion) -> Result<(), WorkloadError> {
    let refuse = |text: String| Err(WorkloadError(format!("job {}: {text}", job.name)));
    let JobTarget { capacity, block, max_io } = device;
    match region.offset.checked_add(region.len) {
        Some(end) if end <= capacity => (),
        _ => {
            let (from, len) = (Bytes(region.offset), Bytes(region.len));
            return refuse(format!("the region {from}+{len} ends behind the drive ({})", Bytes(capacity)));
        }
    }
    if region.offset % u64::from(block) != 0 {
        return refuse(format!("the region does not begin at a multiple of the drive's block ({block} bytes)"));
    }
    for (size, _) in job.sizes.parts() {
        let shown = Bytes(u64::from(*size));
        if size % block != 0 {
            return refuse(format!("bs {shown} is no multiple of the drive's block ({block} bytes)"));
        }
        if *size > max_io {
            return refuse(format!("bs {shown} is above the drive's longest transfer ({})", Bytes(u64::from(max_io))));
        }
        if u64::from(*size) > region.len {
            return refuse(format!("bs {shown} is larger than the region ({})", Bytes(region.len)));
        }
    }
    Ok(())
}

/// For whoever builds jobs in code.
impl From<u32> for Mix {
    fn from(size: u32) -> Self {
        Mix::one(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    const DEVICE: JobTarget = JobTarget { capacity: 1 << 30, block: 512, max_io: 1 << 20 };

    fn job(text: &str) -> Job {
        Job::parse(text, &Job::default()).unwrap()
    }

    proptest! {
        #[test]
        fn aligned_and_inside(
            rw in prop::sample::select(std::vec!["read", "write", "randread", "randwrite", "randrw:30", "trim"]),
            bs in prop::sample::select(std::vec!["512", "4KiB", "12KiB", "4KiB:50/8KiB:50", "512:10/1536:60/64KiB:30"]),
            skew in prop::sample::select(std::vec!["", ",zipf=0.9", ",hot=70/30"]),
            start in 0u64..1000, len in 1280u64..5000, copies in 1u32..5, seed: u64,
        ) {
            let skew = if rw.starts_with("rand") { skew } else { "" };
            let j = job(&std::format!("rw={rw},bs={bs}{skew}"));
            let j = Job { region: Some(JobRegion { offset: start * 512, len: len * 512 }), copies, ..j };
            for copy in 0..copies {
                let mut g = Generator::new(&j, DEVICE, copy, seed).unwrap();
                let mut same = Generator::new(&j, DEVICE, copy, seed).unwrap();
                for _ in 0..200 {
                    let r = g.next_request();
                    prop_assert_eq!(r, same.next_request());
                    prop_assert!(j.sizes.parts().iter().any(|(s, _)| *s == r.len));
                    prop_assert!(r.offset >= start * 512 && r.offset + u64::from(r.len) <= (start + len) * 512);
                    if j.pattern.random {
                        prop_assert_eq!((r.offset - start * 512) % u64::from(r.len), 0);
                    }
                    prop_assert_eq!(r.offset % 512, 0);
                }
            }
        }
    }

    #[test]
    fn sequential_covers_and_wraps() {
        let mut g = Generator::new(&job("rw=write,bs=4KiB,region=8KiB+10KiB"), DEVICE, 0, 1).unwrap();
        let at: Vec<u64> = (0..5).map(|_| g.next_request().offset).collect();
        assert_eq!(at, [8192, 12288, 8192, 12288, 8192]);
        let j = job("rw=read,bs=4KiB,jobs=4,region=64KiB");
        let starts: Vec<u64> =
            (0..4).map(|c| Generator::new(&j, DEVICE, c, 1).unwrap().next_request().offset).collect();
        assert_eq!(starts, [0, 16384, 32768, 49152]);
    }

    #[test]
    fn random_reaches_every_place_evenly() {
        let mut g = Generator::new(&job("rw=randread,bs=4KiB,region=40KiB"), DEVICE, 0, 5).unwrap();
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[(g.next_request().offset / 4096) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }

    #[test]
    fn shares_hold_and_are_independent() {
        let mut g = Generator::new(&job("rw=randrw:30,bs=4KiB:25/8KiB:75"), DEVICE, 0, 9).unwrap();
        let (mut reads, mut small, mut small_reads) = (0, 0, 0);
        for _ in 0..200_000 {
            let r = g.next_request();
            let (read, is_small) = (r.kind == RequestKind::Read, r.len == 4096);
            reads += u32::from(read);
            small += u32::from(is_small);
            small_reads += u32::from(read && is_small);
        }
        let near = |n: u32, want: f64| (f64::from(n) / 200_000.0 - want).abs() < 0.005;
        assert!(near(reads, 0.30) && near(small, 0.25) && near(small_reads, 0.075), "{reads} {small} {small_reads}");
    }

    #[test]
    fn hot_places_are_hot_for_every_size() {
        let mut g =
            Generator::new(&job("rw=randread,bs=4KiB:50/12KiB:50,hot=90/10,region=1200KiB"), DEVICE, 0, 2).unwrap();
        let hot = (0..100_000).filter(|_| g.next_request().offset < 120 * 1024).count();
        assert!((89_000..91_000).contains(&hot), "{hot}");
    }

    #[test]
    fn copies_and_seeds_differ() {
        let first = |copy, seed| {
            let mut g = Generator::new(&job("rw=randread,jobs=2"), DEVICE, copy, seed).unwrap();
            [g.next_request(), g.next_request(), g.next_request()]
        };
        assert_ne!(first(0, 1), first(1, 1));
        assert_ne!(first(0, 1), first(0, 2));
    }

    #[test]
    fn what_a_drive_cannot_do_is_refused() {
        for (text, says) in [
            ("region=2GiB", "ends behind the drive (1GiB)"),
            ("region=1GiB+4KiB", "ends behind the drive"),
            ("region=1000+8192", "does not begin at a multiple"),
            ("bs=2MiB", "above the drive's longest transfer (1MiB)"),
            ("bs=64KiB,region=4KiB", "larger than the region (4KiB)"),
            ("rw=write,zipf=1", "rw = write is sequential"),
            ("bs=64KiB,hot=50/1,region=640KiB", "the zone 50/1 of hot has not one"),
        ] {
            let e = Generator::new(&job(text), DEVICE, 0, 0).expect_err(text).to_string();
            assert!(e.contains(says), "{e}");
        }
        let big = JobTarget { block: 4096, ..DEVICE };
        assert!(Generator::new(&job("bs=512"), big, 0, 0).unwrap_err().to_string().contains("no multiple"));
    }
}
