//! A drive that jobs share, each a tenant of its class, in virtual time.

use crate::client::SimulatedClient;
use crate::world::{Setup, SimulatedDrive, own_tenant};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_config::DeviceConfig;
use weir_controller::{SubsystemConfig, TimingModel};
use weir_drive::FlashService;
use weir_units::{Class, Nanos};
use weir_workload::{Job, JobResult, Mix};

/// A drive that jobs share: every command takes the same time, or what a profile's flash takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedDrive {
    /// Of each command, where there is no profile.
    pub latency: Nanos,
    /// Commands at once.
    pub slots: u32,
    /// Who is next.
    pub settings: ArbiterSettings,
    /// A profile of a drive with flash, written in order.
    pub profile: Option<&'static str>,
}

impl SharedDrive {
    /// The keys of a drive with a profile, for reads of what was written in order.
    pub const WRITTEN: &str = "capacity=4GiB&precondition=sequential";
}

/// Bytes of the drive.
pub const CAPACITY: u64 = 1 << 30;
/// Bytes that may be in flight: more than any slots hold here.
pub const SLOT_BYTES: u64 = 64 << 20;

/// When the jobs of a run begin to count, how long they do, and the length of an interval of their series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Not counted.
    pub ramp: Nanos,
    /// Counted.
    pub time: Nanos,
    /// No series if absent.
    pub series: Option<Nanos>,
}

/// In virtual time, each job a tenant of its class.
pub(super) fn simulated(drive: &SharedDrive, jobs: &[Job], span: Span) -> Vec<JobResult> {
    let (mut config, inside, capacity) = match drive.profile {
        Some(profile) => flash(profile),
        None => (SubsystemConfig::new("nqn.2026-11.io.weir:reproduce"), None, CAPACITY),
    };
    (config.latency, config.slots, config.slot_bytes) = (drive.latency, drive.slots, SLOT_BYTES);
    config.arbitration = drive.settings;
    config.tenants = jobs.iter().map(own_tenant).collect();
    let clients = jobs.iter().enumerate().map(|(at, job)| SimulatedClient::new(job, at as u16)).collect();
    let setup = Setup { ramp: span.ramp, series: span.series, ..Setup::new(capacity, clients, 1) };
    let mut world =
        SimulatedDrive::with(config, inside, setup).expect("a drive that takes its time, and jobs that fit it");
    world.run_until(span.ramp.saturating_add(span.time));
    world.results()
}

/// A profile's machine, its flash and its bytes.
fn flash(profile: &str) -> (SubsystemConfig, Option<Box<dyn TimingModel>>, u64) {
    let device = DeviceConfig::from_query(profile, SharedDrive::WRITTEN).expect("a profile makes a drive of 4 GiB");
    let inside = device.flash.as_ref().expect("a profile has flash");
    let service = FlashService::new(&inside.config, inside.precondition, Nanos(0)).expect("a profile fits together");
    (weir_drive::machine_config(&device), Some(Box::new(service)), crate::scenario::capacity(&device))
}

/// Random reads of these sizes, back to back.
pub(super) fn job(name: &str, class: Class, sizes: &str, depth: u32) -> Job {
    let sizes: Mix = sizes.parse().expect("a size that is written here");
    Job { name: name.into(), class: Some(class), sizes, depth, ..Job::default() }
}

/// What the mechanisms are called in the figures.
pub(super) fn name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::None => "none",
        Mechanism::Rr => "RR",
        Mechanism::Wrr => "WRR",
        Mechanism::Drr => "DRR",
    }
}
