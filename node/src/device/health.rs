//! What is wrong with a drive, and whether it has become slow.
//!
//! ```text
//!   Subsystem's totals ─┐
//!   the thread's times ─┴─► DriveSpeed ─ slow, as expected ─► the diagnosis of a drive on another drive (Remote)
//!                                                        └──► OwnDiagnosis, of any other drive
//! ```

use super::Device;
use super::backend::Backend;
use crate::events::{EventLog, tell};
use crate::remote::{HealthStatus, REPORTS, access_of};
use std::collections::VecDeque;
use weir_controller::{FailingDie, Io, Op};
use weir_drive::{DriveSpeed, MachineTime, SpeedStatus};
use weir_driver::health::{
    Episodes, Evidence, Extent, Failure, Health, HealthAction, HealthReport, Limits, Observation, Policy, SmartReading,
    Ticket,
};
use weir_driver::link_recovery::DriveIdentity;
use weir_plan::DriveModel;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// What the thread of a drive has done in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTime {
    /// See [`Waits::squares`](weir_sys::sched::Waits::squares).
    pub wait_squares: u128,
    /// For how long it had something to do.
    pub busy: Nanos,
}

/// Whether a drive is as fast as it should be: nothing is made before the first look.
#[derive(Default)]
pub(super) struct SpeedDiagnosis {
    /// What a drive without a model is held to.
    tests: Option<DriveModel>,
    speed: Option<Box<DriveSpeed>>,
    own: Option<Box<OwnDiagnosis>>,
    /// The diagnosis wants to hear of writes.
    awaits_writes: bool,
    /// Where its disturbances are told, and the drive's name there.
    events: Option<(EventLog, String)>,
}

/// The diagnosis of a drive that has no other: its speed, and of one that the kernel drives what has failed. No command ever waits for it.
struct OwnDiagnosis {
    health: Health,
    actions: Vec<HealthAction>,
    reports: VecDeque<HealthReport>,
    disturbances: u64,
    episodes: Episodes,
}

impl SpeedDiagnosis {
    /// Held to load tests, if it has no model.
    pub(super) fn of(tests: Option<DriveModel>) -> Self {
        SpeedDiagnosis { tests, ..Self::default() }
    }

    /// Its disturbances are told there from now on.
    pub(super) fn report_to(&mut self, events: &EventLog, drive: &str) {
        self.events = Some((events.clone(), drive.into()));
    }

    /// Of the last disturbance that the node knows of this drive.
    fn last_episode(&self) -> u64 {
        self.events.as_ref().map_or(0, |(events, drive)| events.last_episode(drive))
    }
}

impl OwnDiagnosis {
    fn new(identity: DriveIdentity, last_episode: u64) -> Self {
        OwnDiagnosis {
            health: Health::new(Policy::of_kernel(), identity),
            actions: Vec::new(),
            reports: VecDeque::new(),
            disturbances: 0,
            episodes: Episodes::new(last_episode),
        }
    }

    fn status(&self, now: Nanos, speed: Option<SpeedStatus>) -> HealthStatus {
        HealthStatus {
            state: self.health.state(),
            gate: self.health.gate(),
            limits: self.health.limits(),
            bad_blocks: self.health.bad_blocks().collect(),
            failing_blocks: Vec::new(),
            failing_dies: Vec::new(),
            dies: 0,
            smart: None,
            disturbances: self.disturbances,
            reports: self.reports.iter().cloned().collect(),
            verdicts: self.episodes.counts().collect(),
            last_pause: None,
            speed,
            now,
        }
    }

    /// Gives the diagnosis what was seen, keeps what it reports, and tells it.
    fn diagnose(&mut self, now: Nanos, evidence: Evidence, events: Option<&(EventLog, String)>) {
        self.health.apply(now, evidence, &mut self.actions);
        // Nothing else is asked for: whatever it sees, it serves.
        let report = |action| if let HealthAction::Report(report) = action { Some(report) } else { None };
        for report in self.actions.drain(..).filter_map(report) {
            let (gate, current) = (self.health.gate(), self.health.report());
            let mut told = Vec::new();
            self.episodes.observe(
                now,
                Observation { gate, is_reset: false, current, reported: Some(&report) },
                &mut told,
            );
            if let Some((events, drive)) = events {
                told.iter().for_each(|event| tell(Some(events), drive, event));
            }
            if self.reports.len() == REPORTS {
                self.reports.pop_front();
            }
            self.reports.push_back(report);
            self.disturbances += 1;
        }
    }
}

impl Device {
    /// What is wrong with it: of a drive on another drive what the diagnosis of that says, of one that the kernel drives what has failed; of every drive
    /// its SMART log and what fails by rule; and how fast it is, of one that has a model or a calibration.
    pub fn health(&self, now: Nanos) -> HealthStatus {
        let speed = self.speed.speed.as_deref().map(|speed| speed.status(now));
        let speed = speed.or_else(|| Some(self.new_speed(now)?.status(now)));
        let found = match self.link(now).and_then(|link| link.health) {
            Some(health) => HealthStatus { speed, ..health },
            None => self.own_health(now, speed),
        };
        HealthStatus {
            failing_blocks: self.machine.failing_blocks(now).collect(),
            failing_dies: self.machine.failing_dies(now).filter(FailingDie::is_to_blame).collect(),
            dies: self.machine.service().and_then(|inside| inside.flash_shape()).map_or(0, |shape| shape.dies),
            ..found
        }
    }

    /// Of a drive that is on no other: its own SMART log is what hosts read.
    fn own_health(&self, now: Nanos, speed: Option<SpeedStatus>) -> HealthStatus {
        let found = match &self.speed.own {
            Some(own) => own.status(now, speed),
            None => OwnDiagnosis::new(self.own_identity(), 0).status(now, speed),
        };
        let smart = SmartReading::of(&self.machine.smart_log(now));
        let Limits { read_only, hot, worn, .. } = found.limits;
        let limits = Limits {
            read_only: read_only || smart.is_read_only(),
            hot: hot || smart.is_hot(),
            worn: worn || smart.has_media_warning(),
            ..found.limits
        };
        HealthStatus { limits, smart: Some(smart), ..found }
    }

    fn own_identity(&self) -> DriveIdentity {
        DriveIdentity { capacity: self.capacity, block_size: self.block_size, ..DriveIdentity::default() }
    }

    /// What it is held to: its model, else its calibration. What a model says is no matter of another drive behind it.
    fn new_speed(&self, now: Nanos) -> Option<DriveSpeed> {
        let is_remote = matches!(self.backend, Backend::Remote(_));
        if DriveSpeed::is_modelled(&self.machine) {
            return (!is_remote).then(|| DriveSpeed::new(now));
        }
        self.speed.tests.clone().map(|tests| DriveSpeed::calibrated(now, tests))
    }

    /// Holds the drive to what it should take. To be called every second in which its thread works.
    #[cold]
    pub fn look_at_speed(&mut self, now: Nanos, thread: ThreadTime) {
        if self.speed.speed.is_none() {
            self.speed.speed = self.new_speed(now).map(Box::new);
        }
        let lateness = self.deadlines.lateness().map_or(Nanos(0), |lateness| lateness.sum());
        let Some(speed) = &mut self.speed.speed else { return };
        let is_reached = if let Backend::Remote(remote) = &self.backend { remote.is_reached() } else { true };
        let time = MachineTime { lateness, wait_squares: thread.wait_squares, busy: thread.busy };
        let Some(evidence) = speed.look(now, &self.machine, time, is_reached) else { return };
        if evidence == Evidence::AsFastAsModelled {
            tracing::info!(drive = self.machine.config().subnqn, "{evidence}");
        }
        match &mut self.backend {
            Backend::Remote(remote) if remote.is_diagnosed() => return remote.diagnose(now, evidence),
            _ => {}
        }
        self.diagnose(now, evidence);
    }

    fn diagnose(&mut self, now: Nanos, evidence: Evidence) {
        let (last, identity) = (self.speed.last_episode(), self.own_identity());
        let SpeedDiagnosis { own, events, .. } = &mut self.speed;
        let own = own.get_or_insert_with(|| Box::new(OwnDiagnosis::new(identity, last)));
        own.diagnose(now, evidence, events.as_ref());
        let limits = own.health.limits();
        self.speed.awaits_writes = limits.full || own.health.bad_blocks().next().is_some();
    }

    /// A command has come back from the kernel. What it writes is in order again.
    #[inline]
    pub(super) fn see_ended(&mut self, now: Nanos, io: &Io, status: Status) {
        if !status.is_success() || self.speed.awaits_writes && matches!(io.op, Op::Write | Op::WriteZeroes { .. }) {
            self.see_status(now, io, status);
        }
    }

    #[cold]
    fn see_status(&mut self, now: Nanos, io: &Io, status: Status) {
        let block = u64::from(self.block_size.max(1));
        let extent = Extent { lba: io.offset / block, blocks: (u64::from(io.len) / block).max(1) as u32 };
        let failure = Failure {
            ticket: Ticket(io.slot.index() as u64),
            access: access_of(io),
            extent,
            status,
            retry_delay: None,
            retries: 0,
            since: now,
        };
        let evidence = if status.is_success() { Evidence::WrittenByHost(extent) } else { Evidence::Failed(failure) };
        self.diagnose(now, evidence);
    }
}
