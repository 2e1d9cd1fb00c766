//! The figures of papers/000, "Analyzing, Modeling, and Provisioning QoS for NVMe SSDs".
//!
//! ```text
//!   overhead   figures 1 and 2: what an I/O costs the program that asks for it, against Linux     real time
//!   baseline   figure 3: a device without arbitration; timers: the old design in virtual time     both
//!   emulation  figure 6: how fast the emulation is, against the old design                        real time
//!   model      figure 7: equations 2 and 3 and the fluid model against what is measured           virtual, or real (--live)
//!   scenarios  figure 8: five scenarios under WRR, DRR and none                                   virtual, or real (--live)
//! ```

mod baseline;
mod emulation;
mod model;
mod overhead;
mod scenarios;
mod timers;

pub(super) use baseline::figure as fig3;
pub(super) use emulation::figure as fig6;
pub use emulation::{Design, Load};
pub(super) use model::figure as fig7;
pub use overhead::{AccessPath, AccessPattern, Overhead, Storage, Usage};
pub(super) use overhead::{fig1, fig2};
pub(super) use scenarios::figure as fig8;
pub use timers::{BURST, PERIOD, QueueTimers};

use super::LiveMeasurements;
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
fn simulated(drive: &SharedDrive, jobs: &[Job], span: Span) -> Vec<JobResult> {
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

/// In virtual time, or by the real clock where that was asked for.
fn shared(
    live: &mut dyn LiveMeasurements,
    drive: &SharedDrive,
    jobs: &[Job],
    span: Span,
) -> Result<Vec<JobResult>, String> {
    if live.is_preferred() { live.shared(drive, jobs, span) } else { Ok(simulated(drive, jobs, span)) }
}

fn clock(live: &dyn LiveMeasurements) -> &'static str {
    match live.is_preferred() {
        true => "In real time: a drive in memory (local:ram), it and its clients in one thread.",
        false => "In virtual time.",
    }
}

/// Random reads of these sizes, back to back.
fn job(name: &str, class: Class, sizes: &str, depth: u32) -> Job {
    let sizes: Mix = sizes.parse().expect("a size that is written here");
    Job { name: name.into(), class: Some(class), sizes, depth, ..Job::default() }
}

/// What the mechanisms are called in the figures.
fn name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::None => "none",
        Mechanism::Rr => "RR",
        Mechanism::Wrr => "WRR",
        Mechanism::Drr => "DRR",
    }
}

/// Whether a number is what it should be, within so many percent.
fn near(ours: f64, wanted: f64, percent: f64) -> bool {
    (ours / wanted - 1.0).abs() * 100.0 <= percent
}
