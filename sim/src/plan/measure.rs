//! What a flash drive delivers, measured in the simulator before it is planned with.
//!
//! ```text
//!   sizes × mixes ─▶ a closed loop at every depth ─▶ LoadCurve ─▶ DriveModel
//! ```

use super::effort::PlanProgress;
use super::parallel::in_parallel;
use super::read::PlanFile;
use super::timing_models::Insides;
use crate::client::SimulatedClient;
use crate::run::RunError;
use crate::scenario::Scenario;
use weir_controller::TenantConfig;
use weir_plan::DriveModel;
use weir_plan::calibrate::{LoadCurve, Test};
use weir_units::{Class, Nanos};
use weir_workload::{Job, Mix, Pattern, Summary};

/// One load test's time, and what comes before it: a drive's buffer fills meanwhile.
pub(super) const TIME: Nanos = Nanos::from_millis(200);
pub(super) const RAMP: Nanos = Nanos::from_millis(100);
/// Reads in a hundred, where tenants of different mixes make one of their own.
const MADE: [u8; 6] = [0, 25, 50, 70, 85, 100];

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct MeasureGrid {
    /// Sizes and mixes (reads in a hundred).
    pub points: Vec<(u32, u8)>,
    /// Depths, beside 1.
    pub depths: Vec<u32>,
    /// The ramp's, and each load test's.
    pub times: (Nanos, Nanos),
}

/// The drive of a plan at every size and mix that the tenants ask for, and at the depth that they make; where they ask for different
/// mixes, at those that they may make together as well.
pub(super) fn of_plan(
    file: &PlanFile,
    insides: &Insides<'_>,
    watch: &mut dyn FnMut(PlanProgress),
) -> Result<DriveModel, RunError> {
    let demands = || file.members.iter().map(|m| &m.demand);
    let mut sizes: Vec<u32> = demands().flat_map(|d| d.sizes.parts().iter().map(|(size, _)| *size)).collect();
    let mut mixes: Vec<u8> = demands().map(|d| d.pattern.read_percent).collect();
    let differ = mixes.iter().any(|m| *m != mixes[0]);
    if differ {
        mixes.extend(MADE);
    }
    sizes.sort_unstable();
    sizes.dedup();
    mixes.sort_unstable();
    mixes.dedup();
    let slots = u32::from(insides.device().slots).max(1);
    let asked = demands().map(|d| d.outstanding()).sum::<f64>().min(f64::from(slots)) as u32;
    let extent = MeasureGrid {
        points: sizes.iter().flat_map(|size| mixes.iter().map(|mix| (*size, *mix))).collect(),
        depths: depths(slots, asked, differ),
        times: (RAMP, TIME),
    };
    drive(insides, file.seed, &extent, watch)
}

/// Powers of two (of four where there are many mixes) up to the slots, the slots, and the depth asked for.
fn depths(slots: u32, asked: u32, are_many: bool) -> Vec<u32> {
    let step = if are_many { 2 } else { 1 };
    let mut depths: Vec<u32> = (1..16).map(|power| 1 << (power * step)).take_while(|depth| *depth < slots).collect();
    depths.extend([slots, asked.max(1)]);
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// A drive, measured.
pub(crate) fn drive(
    insides: &Insides<'_>,
    seed: u64,
    extent: &MeasureGrid,
    watch: &mut dyn FnMut(PlanProgress),
) -> Result<DriveModel, RunError> {
    let depths = || std::iter::once(1).chain(extent.depths.iter().copied().filter(|depth| *depth > 1));
    let kinds = extent.points.iter();
    let tests: Vec<(u32, u8, u32)> = kinds.flat_map(|(size, mix)| depths().map(|d| (*size, *mix, d))).collect();
    let (mut done, of) = (0, tests.len());
    watch(PlanProgress::Measuring { done, of });
    let run = |test: &(u32, u8, u32)| run((insides, seed), *test, extent.times);
    let results = in_parallel(&tests, run, || {
        done += 1;
        watch(PlanProgress::Measuring { done: done.min(of - 1), of });
    });
    let results = results.into_iter().collect::<Result<Vec<Summary>, RunError>>()?;
    let of = depths().count();
    let point = |((size, mix), results): (&(u32, u8), &[Summary])| {
        let test = |(depth, got): (u32, &Summary)| Test::new(depth, got);
        LoadCurve::new(*size, *mix, depths().zip(results).map(test).collect())
    };
    let fault = |e: &dyn std::fmt::Display| RunError::new(format_args!("the drive's figures: {e}"));
    let points = extent.points.iter().zip(results.chunks(of)).map(point).collect::<Result<_, _>>();
    let points = points.map_err(|e| fault(&e))?;
    let device = insides.device();
    DriveModel::measured(points, device.slots.into(), device.slot_bytes.get()).map_err(|e| fault(&e))
}

pub(crate) fn run(
    (insides, seed): (&Insides<'_>, u64),
    (size, read_percent, depth): (u32, u8, u32),
    (ramp, time): (Nanos, Nanos),
) -> Result<Summary, RunError> {
    let job = Job {
        name: "measure".into(),
        pattern: Pattern { read_percent, random: true, trim: false },
        sizes: Mix::one(size),
        depth,
        ..Job::default()
    };
    let scenario = Scenario {
        device: insides.device().clone(),
        tenants: vec![TenantConfig::new("measure", Class::Medium)],
        clients: vec![SimulatedClient::new(&job, 0)],
        seed,
        time: Some(time),
        requests: None,
        ramp,
        series: None,
        power_cuts: Vec::new(),
        faults: Vec::new(),
    };
    let mut world = scenario.world_with(insides.one()?)?;
    let summary = scenario.load_test_in(&mut world);
    insides.give_back(world.drive().take_service());
    Ok(summary)
}
