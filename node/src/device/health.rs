//! What is wrong with a drive, and whether it has become slow.

use super::Device;
use super::backend::Backend;
use crate::events::{EventLog, tell};
use crate::remote::{HealthStatus, REPORTS};
use std::collections::VecDeque;
use weir_drive::DriveSpeed;
use weir_driver::health::{
    Episodes, Evidence, Health, HealthAction, HealthReport, NamespaceIdentity, Observation, Policy,
};
use weir_units::Nanos;

/// The diagnosis of a modelled drive of this node, which is about its speed alone: nothing is made before its first look.
#[derive(Default)]
pub(super) struct SpeedDiagnosis {
    /// When the next look is due, while the drive works.
    due: Nanos,
    watched: Option<Box<Watched>>,
    /// Where its disturbances are told, and the drive's name there.
    events: Option<(EventLog, String)>,
}

struct Watched {
    speed: DriveSpeed,
    health: Health,
    actions: Vec<HealthAction>,
    reports: VecDeque<HealthReport>,
    disturbances: u64,
    episodes: Episodes,
}

impl SpeedDiagnosis {
    /// When the next look is due.
    #[inline]
    pub(super) fn due(&self) -> Nanos {
        self.due
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

impl Watched {
    fn new(now: Nanos, blocks: u64, block_size: u32, last_episode: u64) -> Self {
        let identity = NamespaceIdentity { id: [0; 16], blocks, block_size };
        Watched {
            speed: DriveSpeed::new(now),
            health: Health::new(Policy::default(), identity),
            actions: Vec::new(),
            reports: VecDeque::new(),
            disturbances: 0,
            episodes: Episodes::new(last_episode),
        }
    }

    fn status(&self, now: Nanos) -> HealthStatus {
        HealthStatus {
            state: self.health.state(),
            gate: self.health.gate(),
            limits: self.health.limits(),
            bad_blocks: Vec::new(),
            smart: None,
            disturbances: self.disturbances,
            reports: self.reports.iter().cloned().collect(),
            verdicts: self.episodes.counts().collect(),
            last_pause: None,
            speed: Some(self.speed.status(now)),
            now,
        }
    }

    /// Gives the diagnosis what was seen, keeps what it reports, and tells it.
    fn diagnose(&mut self, now: Nanos, evidence: Evidence, events: Option<&(EventLog, String)>) {
        self.health.apply(now, evidence, &mut self.actions);
        // Evidence about speed never stops commands, so that nothing else is asked for.
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
    /// What is wrong with it: of a drive on another drive what the diagnosis of that says, of a modelled one how fast it is. `None` of
    /// others.
    pub fn health(&self, now: Nanos) -> Option<HealthStatus> {
        if let Backend::Remote(remote) = &self.backend {
            return remote.status(now).health;
        }
        if !DriveSpeed::is_modelled(&self.machine) {
            return None;
        }
        let blocks = self.capacity / u64::from(self.block_size.max(1));
        let status = |watched: &Watched| watched.status(now);
        let nothing_yet = || Watched::new(now, blocks, self.block_size, 0).status(now);
        Some(self.speed.watched.as_deref().map_or_else(nothing_yet, status))
    }

    /// Holds the drive to its model. Called while it works.
    #[cold]
    pub(super) fn look_at_speed(&mut self, now: Nanos) {
        self.speed.due = now.saturating_add(DriveSpeed::EVERY);
        if matches!(self.backend, Backend::Remote(_)) || !DriveSpeed::is_modelled(&self.machine) {
            return;
        }
        let lateness = self.deadlines.lateness().map_or(Nanos(0), |lateness| lateness.sum());
        let blocks = self.capacity / u64::from(self.block_size.max(1));
        let last = self.speed.last_episode();
        let SpeedDiagnosis { watched, events, .. } = &mut self.speed;
        let watched = watched.get_or_insert_with(|| Box::new(Watched::new(now, blocks, self.block_size, last)));
        let Some(evidence) = watched.speed.look(now, &self.machine, lateness) else { return };
        if evidence == Evidence::AsFastAsModelled {
            tracing::info!(drive = self.machine.config().subnqn, "{evidence}");
        }
        watched.diagnose(now, evidence, events.as_ref());
    }
}
