//! Cells of a grid on a flash drive that collects steadily: a closed loop of a depth, size and mix, with a spare and a victim policy.
//! The drive of each spare and policy is measured at a part of the depths, sizes and mixes; what is asked lies on those points, between
//! their depths, between their sizes and between their mixes.

use crate::plan::measure::{self, MeasureGrid};
use crate::plan::parallel::in_parallel;
use crate::plan::spread::together;
use crate::plan::timing_models::Insides;
use crate::run::RunError;
use weir_arbiter::Mechanism;
use weir_config::DeviceConfig;
use weir_plan::planner::Got;
use weir_plan::{Demand, DriveModel, Margin, PlanTenant, Setting, forecast};
use weir_units::{Bytes, Class, Nanos};
use weir_workload::{Job, Mix, Pattern, Summary, Xoshiro256, quantile};

/// One question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The drive's capacity over that of its profile: less is more spare.
    pub capacity: f64,
    /// How a victim is chosen, as the configuration names it.
    pub victim: &'static str,
    /// Commands outstanding.
    pub depth: u32,
    /// Their size, in bytes.
    pub size: u32,
    /// Of a hundred those that read.
    pub reads: u8,
}

/// A question, two answers, and what comes out.
#[derive(Clone, Debug)]
pub struct CellPair {
    /// What was asked.
    pub cell: Cell,
    /// The model's answer, from the calibration.
    pub expected: Got,
    /// The answer of simulations of just that cell, with other seeds: what `weir plan` has of a drive that can be simulated.
    pub asked: Got,
    /// What comes out.
    pub simulated: Summary,
}

/// Whose answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// The model's.
    Model,
    /// That of simulations.
    Simulation,
}

impl CellPair {
    fn got(&self, of: Predictor) -> &Got {
        match of {
            Predictor::Model => &self.expected,
            Predictor::Simulation => &self.asked,
        }
    }

    /// Errors of an answer in bandwidth, p50 and p99, as parts of what comes out.
    pub fn off(&self, of: Predictor) -> [f64; 3] {
        let (ours, got) = (self.got(of), &self.simulated);
        let latency = ours.latency.unwrap_or_default();
        let off = |ours: f64, theirs: f64| ours / theirs.max(1.0) - 1.0;
        [
            off(ours.bandwidth, got.bandwidth_bytes_per_s),
            off(latency.p50 as f64, got.latency.p50 as f64),
            off(latency.p99 as f64, got.latency.p99 as f64),
        ]
    }

    /// Whether the answer's p50 lies between the 49th and the 51st of a hundred commands of what comes out: where the median lies in the gap
    /// between two kinds, a few commands more of one move it from one end to the other.
    pub fn has_rank(&self, of: Predictor) -> bool {
        let Some(shares) = self.simulated.kinds.shares(self.cell.reads.into()) else { return false };
        let p50 = self.got(of).latency.unwrap_or_default().p50 as f64;
        (quantile(&shares, 0.49)..=quantile(&shares, 0.51)).contains(&p50)
    }

    /// Whether what comes out lies within the answer's own margins.
    pub fn is_covered(&self, of: Predictor) -> bool {
        let Margin { rate, p50, p99, .. } = self.got(of).margin;
        let within = |(off, margin): (f64, f64)| (1.0 + off).max(1.0 / (1.0 + off)) <= 1.0 + margin;
        self.off(of).into_iter().zip([rate, p50, p99]).all(within)
    }

    /// Whether those margins are no wider than that.
    pub fn is_surer_than(&self, of: Predictor, most: f64) -> bool {
        let Margin { rate, p50, p99, .. } = self.got(of).margin;
        rate.max(p50).max(p99) <= most
    }
}

/// How many cells.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Capacities, over the profile's.
    pub capacities: &'static [f64],
    /// Victim policies.
    pub victims: &'static [&'static str],
    /// Depths, sizes and mixes.
    pub depths: &'static [u32],
    /// In bytes.
    pub sizes: &'static [u32],
    /// Reads in a hundred.
    pub reads: &'static [u8],
}

impl Grid {
    /// All cells.
    pub const WHOLE: Grid = Grid {
        capacities: &[0.8, 1.0, 1.1],
        victims: &["greedy", "fifo"],
        depths: &[1, 3, 6, 12, 24, 48],
        sizes: &[4096, 12_288, 24_576, 65_536],
        reads: &[0, 30, 50, 70, 85, 100],
    };
    /// Some of them, within seconds.
    pub const PART: Grid = Grid {
        capacities: &[1.0],
        victims: &["greedy"],
        depths: &[3, 24],
        sizes: &[4096, 12_288],
        reads: &[0, 50, 100],
    };

    /// All of its cells.
    pub fn cells(&self) -> Vec<Cell> {
        let mut all = Vec::new();
        for (capacity, victim) in self.capacities.iter().flat_map(|c| self.victims.iter().map(move |v| (*c, *v))) {
            let each = self.depths.iter().flat_map(|d| self.sizes.iter().map(move |s| (*d, *s)));
            let each = each.flat_map(|(d, s)| self.reads.iter().map(move |r| (d, s, *r)));
            all.extend(each.map(|(depth, size, reads)| Cell { capacity, victim, depth, size, reads }));
        }
        all
    }
}

impl Cell {
    /// So many cells of each drive, a capacity and a victim policy, drawn from a seed: depths of 1 to 64, each octave as often; whole units of 4
    /// to 64 KiB, the same; mixes in steps of 5 %.
    pub fn drawn(seed: u64, drives: &[(f64, &'static str)], count: usize) -> Vec<Cell> {
        let mut rng = Xoshiro256::new(seed);
        let mut part = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut one = |(capacity, victim): (f64, &'static str)| Cell {
            capacity,
            victim,
            depth: 64f64.powf(part()).round() as u32,
            size: 16f64.powf(part()).round() as u32 * 4096,
            reads: (part() * 21.0) as u8 * 5,
        };
        drives.iter().flat_map(|drive| [*drive].repeat(count)).map(&mut one).collect()
    }
}

/// What is measured of each drive.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];
const MIXES: [u8; 6] = [0, 25, 50, 75, 90, 100];
/// How long each cell and each load test lasts after its ramp.
const TIMES: (Nanos, Nanos) = (Nanos::from_millis(500), Nanos::from_millis(1000));
/// Of the simulations that the answers are held to; the load tests have another.
const SEED: u64 = 77;
/// Of those that are an answer.
const ASKED: [u64; 4] = [11, 12, 13, 14];

/// Asks the model and the simulation.
///
/// # Errors
/// A drive that cannot be simulated.
pub fn cells(profile: &str, query: &str, asked: &[Cell]) -> Result<Vec<CellPair>, RunError> {
    let mut all = Vec::new();
    for asked in asked.chunk_by(|a, b| (a.capacity, a.victim) == (b.capacity, b.victim)) {
        let device = device(profile, query, asked[0].capacity, asked[0].victim)?;
        let sizes = measured(asked);
        let extent = MeasureGrid {
            points: sizes.iter().flat_map(|size| MIXES.iter().map(|mix| (*size, *mix))).collect(),
            depths: DEPTHS.into(),
            times: TIMES,
        };
        let insides = Insides::of(&device)?;
        let drive = measure::drive(&insides, 1, &extent, &mut |_| {})?;
        let pairs = in_parallel(asked, |cell| pair(&insides, &drive, *cell), || {});
        all.extend(pairs.into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    Ok(all)
}

/// Sizes that are measured: those around what is asked for.
fn measured(asked: &[Cell]) -> Vec<u32> {
    let largest = asked.iter().map(|cell| cell.size).max().unwrap_or(0);
    let sizes = SIZES.into_iter().enumerate().filter(|(at, _)| *at == 0 || SIZES[at - 1] < largest);
    sizes.map(|(_, size)| size).collect()
}

fn device(profile: &str, query: &str, capacity: f64, victim: &str) -> Result<DeviceConfig, RunError> {
    let mut device = DeviceConfig::from_query(profile, &format!("{query}&victim={victim}")).map_err(RunError::new)?;
    let flash = device.flash.as_mut().ok_or_else(|| RunError::new("the drive has no flash"))?;
    let own = flash.config.ftl.capacity.unwrap_or_default().0 as f64;
    let bytes = Bytes((own * capacity) as u64 / 65_536 * 65_536);
    (flash.config.ftl.capacity, device.capacity) = (Some(bytes), Some(bytes));
    flash.config.validate().map_err(RunError::new)?;
    Ok(device)
}

fn pair(insides: &Insides<'_>, drive: &DriveModel, cell: Cell) -> Result<CellPair, RunError> {
    let job = Job {
        pattern: Pattern { read_percent: cell.reads, random: true, trim: false },
        sizes: Mix::one(cell.size),
        depth: cell.depth,
        ..Job::default()
    };
    let demand = Demand::of(&job);
    let expected =
        forecast(drive, &Setting::new(Mechanism::Drr), &[PlanTenant::new("cell", Class::Medium, demand.clone())]);
    let expected = Got::expected(&expected.tenants[0], &demand);
    let run = |seed| measure::run((insides, seed), (cell.size, cell.reads, cell.depth), TIMES);
    let asked = ASKED.map(run).into_iter().collect::<Result<Vec<Summary>, RunError>>()?;
    let got = |s: &Summary| Got {
        iops: s.iops,
        bandwidth: s.bandwidth_bytes_per_s,
        latency: Some(s.latency),
        ..Got::default()
    };
    let asked = together(&asked.iter().map(got).collect::<Vec<_>>());
    Ok(CellPair { cell, expected, asked, simulated: run(SEED)? })
}
