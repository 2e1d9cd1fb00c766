//! No two chips are alike, and none stays as it was.
//!
//! Chips and pages differ from the data sheet's times by factors drawn once from a seed ("not all chips are equal",
//! papers/002 section 4). Worn blocks read with more wrong bits; what the code cannot correct is sensed again with shifted
//! voltages, and each step costs time. Read disturb and retention add wrong bits where they are switched on. Dies are away now
//! and then for work of the firmware's own.
//!
//! The laws are those of the literature: raw bit error rates that grow as a power of the cycles (Mielke et al., "Bit error
//! rate in NAND flash memories", IRPS 2008), linearly with the reads of the block (Cai et al., "Read disturb errors in MLC
//! NAND flash memory", DSN 2015) and with the time since it was programmed (Cai et al., "Data retention in MLC NAND flash
//! memory", HPCA 2015), both the faster the more worn it is. Their constants are the configuration's.

use crate::geometry::{PageAddress, Shape};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// How chips and pages differ from the data sheet's times, and from what they were. The default is: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Variability {
    /// What the differences are drawn from.
    pub seed: u64,
    /// Every chip's times lie within so many thousandths of the data sheet's, evenly.
    pub chip_spread: u32,
    /// So many of a thousand chips are bad.
    pub bad_chips: u32,
    /// By how many thousandths bad chips are slower.
    pub bad_chip_slowdown: u32,
    /// How many times as many wrong bits a bad chip has; 0 is taken as 1.
    pub bad_chip_errors: f64,
    /// Every page's times lie within so many thousandths of its chip's, evenly.
    pub page_spread: u32,
    /// Program and erase cycles that every block has at the start.
    pub initial_cycles: u32,
    /// By how many thousandths programs are slower at `errors.endurance` cycles (at 3000 without errors), in proportion before.
    pub wear_slowdown: u32,
    /// Time for correction that grows with wear in steps.
    pub ecc_steps: Option<EccSteps>,
    /// Wrong bits, and the retries that they cost.
    pub errors: Option<Errors>,
    /// When dies are away.
    pub housekeeping: Option<Housekeeping>,
}

/// Work of the firmware's own on a die (refresh, read-disturb relocation, erases ahead): once in each period a die is busy with
/// it, at a time drawn for the die and the period. Reads and programs that come meanwhile wait for its end; what has begun before
/// is not interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Housekeeping {
    /// How long the die is away.
    pub time: Nanos,
    /// The period.
    pub every: Nanos,
}

/// FEMU's correction time: `step * min(cycles / cycles a step, most)` after each array read (hw/femu/nand/nand-media.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EccSteps {
    /// Time of one step.
    pub step: Nanos,
    /// Program and erase cycles for each step; FEMU: 750.
    pub cycles: u32,
    /// The most steps; FEMU: 4.
    pub most: u32,
}

/// Wrong bits and their correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Raw bit error rate of a fresh block's lowest pages.
    pub rber: f64,
    /// What is added to it at `endurance` cycles.
    pub rber_worn: f64,
    /// The cycles that the chip is rated for.
    pub endurance: u32,
    /// The power of cycles / endurance with which it grows.
    pub wear_power: u32,
    /// How much more each level above the lowest has, as a part of the rate.
    pub level_step: f64,
    /// Read disturb: what each read of a block since its erase adds at `endurance` cycles (in proportion before).
    pub read_disturb: Option<f64>,
    /// Retention: what each day since the block was programmed adds at `endurance` cycles (in proportion before).
    pub retention: Option<f64>,
    /// Bytes of a codeword.
    pub codeword_bytes: u32,
    /// Wrong bits of a codeword that can be corrected.
    pub correctable: u32,
    /// The time of one retry; `None`: another array read.
    pub retry: Option<Nanos>,
    /// What a retry leaves of the wrong bits, as a part.
    pub retry_gain: f64,
    /// The most retries; then the data is lost.
    pub retries: u32,
}

impl Default for Errors {
    /// An MLC chip with a 40-bit code for each KiB: clean when fresh, about one read in a few retried at the end of its life.
    fn default() -> Self {
        Errors {
            rber: 1e-5,
            rber_worn: 4e-3,
            endurance: 3000,
            wear_power: 2,
            level_step: 0.2,
            read_disturb: None,
            retention: None,
            codeword_bytes: 1024,
            correctable: 40,
            retry: None,
            retry_gain: 0.6,
            retries: 7,
        }
    }
}

/// Why a variability is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariabilityError {
    /// A number is out of its range.
    Range {
        /// The field of [`Variability`] or [`Errors`].
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
}

impl fmt::Display for VariabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Range { field, must } = self;
        write!(f, "variability.{field} must be {must}")
    }
}

impl core::error::Error for VariabilityError {}

impl Variability {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first field that is out of its range, and the range.
    pub fn validate(&self) -> Result<(), VariabilityError> {
        let rate = |r: f64| (0.0..=1.0).contains(&r);
        let steps = self.ecc_steps.unwrap_or(EccSteps { step: Nanos(0), cycles: 1, most: 0 });
        let e = self.errors.unwrap_or_default();
        let h = self.housekeeping.unwrap_or(Housekeeping { time: Nanos(1), every: Nanos(2) });
        let checks = [
            ("chip_spread", "at most 999 thousandths", self.chip_spread < 1000),
            ("bad_chips", "at most 1000 of a thousand", self.bad_chips <= 1000),
            ("bad_chip_slowdown", "at most 99000 thousandths", self.bad_chip_slowdown <= 99_000),
            ("bad_chip_errors", "from 0 to 1000000", (0.0..=1e6).contains(&self.bad_chip_errors)),
            ("page_spread", "at most 999 thousandths", self.page_spread < 1000),
            ("wear_slowdown", "at most 99000 thousandths", self.wear_slowdown <= 99_000),
            ("housekeeping", "from 1ns to 10s", (1..=crate::FlashTiming::LONGEST.0).contains(&h.time.0)),
            ("housekeeping_every", "more than housekeeping, and at most a day", h.every > h.time && h.every <= DAY),
            ("ecc_steps.cycles", "at least 1", steps.cycles > 0),
            ("ecc_steps.step", "at most 10s", steps.step <= crate::FlashTiming::LONGEST),
            ("ecc_steps.most", "at most 1000", steps.most <= 1000),
            ("errors.rber", "a rate from 0 to 1", rate(e.rber)),
            ("errors.rber_worn", "a rate from 0 to 1", rate(e.rber_worn)),
            ("errors.endurance", "at least 1", e.endurance > 0),
            ("errors.wear_power", "at most 16", e.wear_power <= 16),
            ("errors.level_step", "from 0 to 100", (0.0..=100.0).contains(&e.level_step)),
            ("errors.read_disturb", "a rate from 0 to 1", rate(e.read_disturb.unwrap_or(0.0))),
            ("errors.retention", "a rate from 0 to 1", rate(e.retention.unwrap_or(0.0))),
            ("errors.codeword_bytes", "from 1 to 1 MiB", (1..=1 << 20).contains(&e.codeword_bytes)),
            ("errors.retry", "at most 10s", e.retry.unwrap_or_default() <= crate::FlashTiming::LONGEST),
            ("errors.retry_gain", "from 0 to 1", rate(e.retry_gain)),
            ("errors.retries", "at most 1000", e.retries <= 1000),
        ];
        match checks.into_iter().find(|(.., ok)| !ok) {
            Some((field, must, _)) => Err(VariabilityError::Range { field, must }),
            None => Ok(()),
        }
    }
}

/// The longest period of [`Housekeeping`], and the unit of retention.
const DAY: Nanos = Nanos::from_secs(86_400);

/// How long sensing a page took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sensed {
    /// All of it: first sense, correction, retries.
    pub time: Nanos,
    /// How many times it was sensed again.
    pub retries: u32,
    /// Still too many wrong bits.
    pub failed: bool,
}

/// One chip among many.
#[derive(Clone, Copy, Debug)]
struct Chip {
    /// Its times, in thousandths of the data sheet's.
    times: u32,
    /// The same as they were drawn.
    drawn: u32,
    /// Its wrong bits, as a multiple.
    errors: f64,
}

/// What the array of a die has done since the drive was made. Waits, transfers and housekeeping are no part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieWork {
    /// Reads, programs and erases; what is moved by collection in one piece is one.
    pub operations: u64,
    /// How long they took.
    pub taken: Nanos,
    /// How long they would have taken by the die's times as they were drawn, with the same wear and retries.
    pub as_drawn: Nanos,
}

/// The state behind [`Variability`]. Arrays of what is switched off are empty.
#[derive(Clone, Debug)]
pub(crate) struct Varied {
    config: Variability,
    chips: Vec<Chip>,
    /// By block of the drive: cycles; reads since the erase; when it was erased or its first page programmed.
    cycles: Vec<u32>,
    reads: Vec<u32>,
    since: Vec<u64>,
    /// Reads so far: each draws its own noise.
    draws: u64,
    /// By die: when it is away in the period that was looked at last.
    away: Vec<Away>,
    /// By die: what its array has done.
    work: Vec<DieWork>,
}

/// A period of a die, and the part of it in which the die is away. All times in nanoseconds, ends exclusive.
#[derive(Clone, Copy, Debug, Default)]
struct Away {
    period: (u64, u64),
    begin: u64,
    end: u64,
}

impl Away {
    /// The die's `nth` period.
    fn drawn(h: &Housekeeping, seed: u64, die: u32, nth: u64) -> Away {
        let from = nth * h.every.0;
        let random = mix(mix(seed ^ 0x4157_4159) ^ (u64::from(die) << 40) ^ nth);
        let begin = from + random % (h.every.0 - h.time.0 + 1);
        Away { period: (from, from + h.every.0), begin, end: begin + h.time.0 }
    }
}

/// The first number of that seed: every bit of it depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    SplitMix64::new(x).next_u64()
}

/// A factor in thousandths, evenly within `spread` of 1000.
fn factor(random: u64, spread: u32) -> u32 {
    1000 - spread + (random % (2 * u64::from(spread) + 1)) as u32
}

/// About normally distributed, mean 0, deviation 1: four even 16-bit numbers added.
fn normal(random: u64) -> f64 {
    let sum: u64 = (0..4).map(|i| (random >> (16 * i)) & 0xFFFF).sum();
    (sum as f64 - 131_070.0) / 37_837.2
}

/// The square root, by Newton's method: `core` has none.
fn sqrt(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Halving the exponent starts within a factor of two of the root.
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..4 {
        root = 0.5 * (root + x / root);
    }
    root
}

impl Varied {
    /// `None` where nothing varies.
    pub fn new(shape: &Shape, config: &Variability) -> Option<Varied> {
        let Variability { seed, chip_spread, bad_chips, bad_chip_slowdown, page_spread, .. } = *config;
        let errors = config.errors;
        let wears = config.ecc_steps.is_some() || errors.is_some() || config.wear_slowdown > 0;
        let any = chip_spread > 0 || bad_chips > 0 || page_spread > 0;
        if !any && !wears && config.housekeeping.is_none() {
            return None;
        }
        let chip = |die: u32| {
            let random = mix(mix(seed) ^ u64::from(die));
            let bad = mix(random) % 1000 < u64::from(bad_chips);
            let times = factor(random, chip_spread) + if bad { bad_chip_slowdown } else { 0 };
            let more = if bad && config.bad_chip_errors > 0.0 { config.bad_chip_errors } else { 1.0 };
            Chip { times, drawn: times, errors: more }
        };
        let blocks = shape.blocks() as usize;
        let some = |on: bool| if on { blocks } else { 0 };
        Some(Varied {
            config: *config,
            chips: (0..shape.dies()).map(chip).collect(),
            cycles: vec![config.initial_cycles; some(wears)],
            reads: vec![0; some(errors.is_some_and(|e| e.read_disturb.is_some()))],
            since: vec![0; some(errors.is_some_and(|e| e.retention.is_some()))],
            draws: 0,
            away: vec![Away::default(); if config.housekeeping.is_some() { shape.dies() as usize } else { 0 }],
            work: vec![DieWork::default(); shape.dies() as usize],
        })
    }

    /// Nothing varies, until some die's times do.
    pub fn none(shape: &Shape) -> Varied {
        let chip = Chip { times: 1000, drawn: 1000, errors: 1.0 };
        Varied {
            config: Variability::default(),
            chips: vec![chip; shape.dies() as usize],
            cycles: Vec::new(),
            reads: Vec::new(),
            since: Vec::new(),
            draws: 0,
            away: Vec::new(),
            work: vec![DieWork::default(); shape.dies() as usize],
        }
    }

    /// The times of a die are so many thousandths of what was drawn for it.
    pub fn set_die_times(&mut self, die: u32, thousandths: u32) {
        if let Some(chip) = self.chips.get_mut(die as usize) {
            chip.times = (u64::from(chip.drawn) * u64::from(thousandths) / 1000).min(u32::MAX.into()) as u32;
        }
    }

    /// What the array of each die has done.
    pub fn work(&self) -> &[DieWork] {
        &self.work
    }

    /// Counts an array operation of a die that takes `taken`, of which `scaled` goes by the die's times.
    #[inline]
    pub fn count(&mut self, die: u32, taken: Nanos, scaled: Nanos) {
        let Chip { times, drawn, .. } = self.chips[die as usize];
        let work = &mut self.work[die as usize];
        let more = if times == drawn { 0 } else { scaled.0 - scaled.0 * u64::from(drawn) / u64::from(times.max(1)) };
        work.operations += 1;
        work.taken.0 += taken.0;
        work.as_drawn.0 += taken.0 - more;
    }

    /// What a retry takes, where retries are modelled and take a time of their own.
    pub fn retry(&self) -> Option<Nanos> {
        self.config.errors?.retry
    }

    /// How long work that could begin on this die at `start` waits until the die is back, in nanoseconds.
    #[inline]
    pub fn wait(&mut self, die: u32, start: u64) -> u64 {
        let (begin, end) = self.away(die, start);
        if (begin..end).contains(&start) { end - start } else { 0 }
    }

    /// From when until when the die is away in the period in which `start` lies, in nanoseconds; both 0 where it never is.
    #[inline]
    pub fn away(&mut self, die: u32, start: u64) -> (u64, u64) {
        let Some(housekeeping) = &self.config.housekeeping else { return (0, 0) };
        let away = &mut self.away[die as usize];
        if !(away.period.0..away.period.1).contains(&start) {
            *away = Away::drawn(housekeeping, self.config.seed, die, start / housekeeping.every.0);
        }
        (away.begin, away.end)
    }

    /// The time of a program that begins on this page, as worn as its block is.
    pub fn program_time(&mut self, shape: &Shape, at: PageAddress, time: Nanos) -> Nanos {
        let mut time = self.scale(shape, at, time);
        if self.config.wear_slowdown > 0 {
            let rated = u64::from(self.config.errors.unwrap_or_default().endurance);
            let cycles = u64::from(self.cycles(shape.block_index(at.plane, at.block)));
            let more = u128::from(time.0) * u128::from(self.config.wear_slowdown) * u128::from(cycles);
            time = Nanos(time.0.saturating_add((more / (1000 * u128::from(rated))) as u64));
        }
        self.count(shape.die_of(at.plane), time, time);
        time
    }

    /// A time on this page's chip and this page.
    pub fn scale(&self, shape: &Shape, at: PageAddress, time: Nanos) -> Nanos {
        let time = self.scale_chip(shape.die_of(at.plane), time);
        if self.config.page_spread == 0 {
            return time;
        }
        let page = u64::from(shape.block_index(at.plane, at.block)) << 32 | u64::from(at.page);
        let of_page = factor(mix(mix(self.config.seed ^ 0x5041_4745) ^ page), self.config.page_spread);
        Nanos(time.0 * u64::from(of_page) / 1000)
    }

    /// A time on this chip.
    pub fn scale_chip(&self, die: u32, time: Nanos) -> Nanos {
        Nanos(time.0 * u64::from(self.chips[die as usize].times) / 1000)
    }

    /// The page is sensed until its bits can be corrected.
    pub fn sensed(&mut self, shape: &Shape, now: Nanos, at: PageAddress, level: u8, sense: Nanos) -> Sensed {
        let sense = self.scale(shape, at, sense);
        let block = shape.block_index(at.plane, at.block) as usize;
        let mut sensed = Sensed { time: sense, retries: 0, failed: false };
        if let Some(steps) = self.config.ecc_steps {
            let taken = (self.cycles[block] / steps.cycles).min(steps.most);
            sensed.time.0 += steps.step.0 * u64::from(taken);
        }
        let Some(errors) = self.config.errors else {
            self.count(shape.die_of(at.plane), sensed.time, sense);
            return sensed;
        };
        let expected =
            self.expected_errors(&errors, now, block, level) * self.chips[shape.die_of(at.plane) as usize].errors;
        self.draws += 1;
        let noise = normal(mix(self.config.seed ^ mix(self.draws)));
        let mut wrong = expected + noise * sqrt(expected);
        while wrong > f64::from(errors.correctable) {
            if sensed.retries == errors.retries {
                sensed.failed = true;
                break;
            }
            wrong *= errors.retry_gain;
            sensed.retries += 1;
        }
        sensed.time.0 += errors.retry.unwrap_or(sense).0 * u64::from(sensed.retries);
        let scaled = if errors.retry.is_some() { sense.0 } else { sense.0 * (1 + u64::from(sensed.retries)) };
        self.count(shape.die_of(at.plane), sensed.time, Nanos(scaled));
        if let Some(reads) = self.reads.get_mut(block) {
            *reads = reads.saturating_add(1);
        }
        sensed
    }

    /// Wrong bits of a codeword that are to be expected on a good chip.
    fn expected_errors(&self, errors: &Errors, now: Nanos, block: usize, level: u8) -> f64 {
        let wear = f64::from(self.cycles[block]) / f64::from(errors.endurance);
        let mut rate = errors.rber + (0..errors.wear_power).fold(errors.rber_worn, |rate, _| rate * wear);
        if let (Some(each), Some(reads)) = (errors.read_disturb, self.reads.get(block)) {
            rate += each * wear * f64::from(*reads);
        }
        if let (Some(each), Some(since)) = (errors.retention, self.since.get(block)) {
            rate += each * wear * (now.0.saturating_sub(*since) as f64 / DAY.0 as f64);
        }
        rate *= 1.0 + errors.level_step * f64::from(level);
        rate.min(0.5) * f64::from(errors.codeword_bytes) * 8.0
    }

    /// A page is programmed; with the first one the block's data begins to age.
    pub fn programmed(&mut self, now: Nanos, block: u32, page: u32) {
        if page == 0 {
            if let Some(since) = self.since.get_mut(block as usize) {
                *since = now.0;
            }
        }
    }

    /// A block is erased.
    pub fn erased(&mut self, now: Nanos, block: u32) {
        let block = block as usize;
        if let Some(cycles) = self.cycles.get_mut(block) {
            *cycles = cycles.saturating_add(1);
        }
        if let Some(reads) = self.reads.get_mut(block) {
            *reads = 0;
        }
        if let Some(since) = self.since.get_mut(block) {
            *since = now.0;
        }
    }

    /// Program and erase cycles of a block.
    pub fn cycles(&self, block: u32) -> u32 {
        self.cycles.get(block as usize).copied().unwrap_or_default()
    }

    /// Cycles from so many erases of each block on.
    pub fn set_wear(&mut self, erases: &[u32]) {
        for (cycles, erases) in self.cycles.iter_mut().zip(erases) {
            *cycles = self.config.initial_cycles.saturating_add(*erases);
        }
    }

    /// Sets them.
    pub fn set_cycles(&mut self, block: u32, cycles: u32) {
        if let Some(held) = self.cycles.get_mut(block as usize) {
            *held = cycles;
        }
    }
}
