//! What only a real clock can tell, and who can be asked for it.

use super::crail::Stores;
use super::qos::{AccessPattern, Design, Load, Overhead, SharedDrive, Span, Usage};
use super::spool::Nodes;
use weir_config::DeviceConfig;
use weir_units::Nanos;
use weir_workload::{Answered, Job, JobResult, Latency, Planned};

/// Latencies as they were, and without the time in which whoever took them had no core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// By the clock.
    pub raw: Latency,
    /// Without the time in which the thread was ready to run and had no core, once the answer was due.
    pub net: Latency,
    /// The shortest by the clock.
    pub least: Nanos,
    /// The part of the time in which the thread had no core, in percent.
    pub waited_pct: f64,
}

/// What needs a real clock.
pub trait LiveMeasurements {
    /// The latency of 4 KiB random reads on a drive in memory that serves each in `service`, as `submitters` see it who each
    /// wait for their answer before they ask again.
    ///
    /// # Errors
    /// It could not be measured.
    fn latency(&mut self, submitters: u32, service: Nanos) -> Result<Seen, String>;

    /// The control: how late a bare loop is that does nothing but spin for deadlines which are `apart`.
    fn bare(&mut self, apart: Nanos) -> Seen;

    /// Makes these requests of a drive in memory, each when its time has come.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn answers(&mut self, drive: &DeviceConfig, requests: &[Planned]) -> Result<Vec<Answered>, String>;

    /// Nanoseconds of real time that one of `count` steps of `work` takes.
    fn cost(&mut self, count: u32, work: &mut dyn FnMut(u32)) -> f64;

    /// What requests cost whoever asks for them.
    ///
    /// # Errors
    /// They cannot be made.
    fn overhead(&mut self, access: AccessPattern) -> Result<Overhead, String>;

    /// What so long a run of requests takes of the cores.
    ///
    /// # Errors
    /// As [`overhead`](Self::overhead).
    fn usage(&mut self, access: AccessPattern, time: Nanos) -> Result<Usage, String>;

    /// Where [`overhead`](Self::overhead) and [`usage`](Self::usage) find their bytes, and what that means for this run.
    fn about_places(&self) -> Vec<String>;

    /// Requests a second of each design, in so many rounds of all designs in turn.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn speeds(&mut self, designs: &[Design], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>, String>;

    /// Whether what runs by either clock is to run by this one.
    fn is_preferred(&self) -> bool;

    /// Jobs that share a drive in memory, each a tenant of its class.
    ///
    /// # Errors
    /// The drive cannot be had, or a request failed.
    fn shared(&mut self, drive: &SharedDrive, jobs: &[Job], span: Span) -> Result<Vec<JobResult>, String>;

    /// Whether what takes minutes is wanted, where seconds would do for a look.
    fn is_full(&self) -> bool;

    /// Bytes of what is sorted, where that was said.
    fn size(&self) -> Option<u64>;

    /// Nodes as processes of their own.
    fn nodes(&mut self) -> &mut dyn Nodes;

    /// A store of files, and its drives without it.
    fn stores(&mut self) -> &mut dyn Stores;

    /// How far a long reproduction has come, from 0 to 1.
    fn progress(&mut self, part: f64);

    /// The control of a whole reproduction: threads that do nothing but spin, one for each core that is measured on, looked at
    /// as the progress goes on. The part of their time in which one of them had no core, in percent.
    fn lost_pct(&mut self) -> f64;
}
