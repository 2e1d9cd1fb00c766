//! What a modelled drive's speed is judged by ([`SpeedWatch`]): its machine's times, without what makes the drive slow.

use weir_controller::{ServiceTimes, Subsystem};
use weir_driver::health::{Evidence, Slowness, Speed, SpeedLook, SpeedWatch, WINDOW, WorkDone};
use weir_flash::DieWork;
use weir_units::Nanos;

/// The speed of one modelled drive: its service times, and the array operations of its dies where the model counts these.
///
/// Of commands the expectation is their time in a slot, and what is measured begins where they leave their queue. Of array operations it
/// is the time that was drawn for them, wear and retries included, and what is measured is what they took.
#[derive(Clone, Debug)]
pub struct DriveSpeed {
    watch: SpeedWatch,
    dies: Vec<WorkDone>,
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
    /// Looks that were dropped because the machine that runs the node was late itself.
    pub dropped: u64,
}

impl DriveSpeed {
    /// How often to look while the drive works.
    pub const EVERY: Nanos = WINDOW;

    /// Of a drive that nothing is known of.
    pub fn new(now: Nanos) -> Self {
        DriveSpeed { watch: SpeedWatch::new(now), dies: Vec::new() }
    }

    /// Whether a drive has times of its own, to be held to.
    pub fn is_modelled(machine: &Subsystem) -> bool {
        machine.service().is_some() || machine.config().latency > Nanos(0)
    }

    /// Looks at the drive; `lateness` is by how much its completions came late in all because of the machine that it runs on. The evidence
    /// for its [`Health`](weir_driver::health::Health), where it is news.
    pub fn look(&mut self, now: Nanos, machine: &Subsystem, lateness: Nanos) -> Option<Evidence> {
        let ServiceTimes { done, served, delayed } = machine.service_times();
        let drive = WorkDone { operations: done, expected: served, measured: served.saturating_add(delayed) };
        let work = machine.service().map_or(&[][..], |service| service.die_work());
        let of = |die: &DieWork| WorkDone { operations: die.operations, expected: die.as_drawn, measured: die.taken };
        self.dies.clear();
        self.dies.extend(work.iter().map(of));
        self.watch.apply(now, &SpeedLook { drive, dies: &self.dies, lateness })
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
