//! What a drive's speed is judged by ([`SpeedWatch`]): its model's times, without what makes the drive slow, or its calibration.

use crate::calibrated::{Calibrated, Found};
use weir_controller::{ServiceTimes, Subsystem};
use weir_driver::health::{Evidence, NotJudged, Slowness, Speed, SpeedLook, SpeedWatch, WINDOW, WorkDone};
use weir_flash::DieWork;
use weir_plan::DriveModel;
use weir_units::Nanos;

/// The speed of one drive.
///
/// Of a **modelled** drive: its service times, and the array operations of its dies where the model counts these.
/// Of commands the expectation is their time in a slot, and what is measured begins where they leave their queue. Of array operations it
/// is the time that was drawn for them, wear and retries included, and what is measured is what they took.
///
/// Of a drive that was **calibrated**: its commands' time in a slot, beside what the load tests say of as many commands at the same depths.
#[derive(Clone, Debug)]
pub struct DriveSpeed {
    watch: SpeedWatch,
    dies: Vec<WorkDone>,
    calibrated: Option<Box<Calibrated>>,
}

/// What the machine that the node runs on has done to a drive and its thread, in all until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// By how much modelled completions came late.
    pub lateness: Nanos,
    /// The squares of the thread's waits for a core, added; nanoseconds squared.
    pub wait_squares: u128,
    /// For how long the thread had something to do.
    pub busy: Nanos,
}

/// What is known of a drive's speed, for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedStatus {
    /// The answer.
    pub speed: Speed,
    /// The dies that are slow.
    pub dies: Vec<Slowness>,
    /// Windows that were judged, of the drive and its dies together.
    pub windows: u64,
    /// Looks that were dropped because the machine that runs the node was late itself, or what was done says nothing of the drive.
    pub dropped: u64,
}

impl DriveSpeed {
    /// How often to look while the drive works.
    pub const EVERY: Nanos = WINDOW;

    /// Of a modelled drive of which nothing is known.
    pub fn new(now: Nanos) -> Self {
        DriveSpeed { watch: SpeedWatch::new(now), dies: Vec::new(), calibrated: None }
    }

    /// Of a drive that is held to its load tests.
    pub fn calibrated(now: Nanos, tests: DriveModel) -> Self {
        DriveSpeed { calibrated: Some(Box::new(Calibrated::new(now, tests))), ..DriveSpeed::new(now) }
    }

    /// Whether a drive has times of its own, to be held to.
    pub fn is_modelled(machine: &Subsystem) -> bool {
        machine.service().is_some() || machine.config().latency > Nanos(0)
    }

    /// Looks at the drive. `is_reached`: commands were not kept from it. The evidence for its [`Health`](weir_driver::health::Health), where it is
    /// news.
    pub fn look(&mut self, now: Nanos, machine: &Subsystem, time: MachineTime, is_reached: bool) -> Option<Evidence> {
        self.dies.clear();
        let found = match &mut self.calibrated {
            Some(calibrated) => calibrated.look(now, machine, time),
            None => {
                let ServiceTimes { done, served, delayed } = machine.service_times();
                let work = machine.service().map_or(&[][..], |service| service.die_work());
                let of = |die: &DieWork| WorkDone {
                    operations: die.operations,
                    expected: die.as_drawn,
                    measured: die.taken,
                };
                self.dies.extend(work.iter().map(of));
                let done = WorkDone { operations: done, expected: served, measured: served.saturating_add(delayed) };
                Found { done, lateness: time.lateness, unjudged: None }
            }
        };
        let unjudged = if is_reached { found.unjudged } else { Some(NotJudged::Interrupted) };
        let look = SpeedLook { drive: found.done, dies: &self.dies, lateness: found.lateness, unjudged };
        self.watch.apply(now, &look)
    }

    /// What is known at `now`.
    pub fn status(&self, now: Nanos) -> SpeedStatus {
        SpeedStatus {
            speed: self.watch.speed(now),
            dies: self.watch.slow_dies().collect(),
            windows: self.watch.windows(),
            dropped: self.watch.dropped(),
        }
    }

    /// States the invariants.
    pub fn check(&self) {
        self.watch.check();
    }
}
