//! The figures of papers/001, "Spool: Reliable Virtualized NVMe Storage Pool in Public Cloud Infrastructure".
//!
//! ```text
//!   failures     figure 4: failures drawn and diagnosed                                                       virtual time
//!   performance  table 2 and figures 15 to 17: raw drive, volume, journal, several volumes                  real time
//!   outage       figure 12: two volumes on a drive each, one of which is removed or loses its link             real time
//!   restart      figures 5, 14 and 19: what a start consists of, what clients see of a restart, on many nodes  real time
//!   timeline     figure 13: a load that verifies, while its server is restarted, stopped and killed, and while
//!                its drive's controller is reset                                                             real time
//! ```
//! What is measured in real time is measured on real processes, through [`Nodes`].

mod failures;
mod outage;
mod performance;
mod restart;
mod timeline;

pub(super) use failures::fig4;
pub(super) use outage::fig12;
pub(super) use performance::{fig15, fig16, fig17, table2};
pub(super) use restart::{fig5, fig14, fig19};
pub(super) use timeline::figure as fig13;

use weir_units::Nanos;
use weir_workload::{SeriesPoint, Summary};

/// What is written beside every measured figure: where it does not compare with the paper's.
const MACHINE: &str = "The paper's machine has two Xeons, PM963 drives and guests with fio; here a node serves on one core and \
                       the load comes from another one, by the driver's own vhost-user front end with fio's job parameters. There is no \
                       guest, no interrupt and no real drive in between, so ratios can be compared with the paper's, and absolute \
                       numbers cannot.";

/// Which drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaperDrive {
    /// The paper's, as modelled by the profile `pm963`.
    Pm963,
    /// The other one of figure 5, `p3600`.
    P3600,
    /// In memory, and answering at once: what is measured is the software.
    Ram,
}

impl PaperDrive {
    /// As the figures write it.
    pub const fn name(self) -> &'static str {
        match self {
            PaperDrive::Pm963 => "PM963",
            PaperDrive::P3600 => "P3600",
            PaperDrive::Ram => "drive in memory",
        }
    }
}

/// What the load goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// The drive in the load's own process: what the paper calls native.
    Raw,
    /// Volumes of a node, so many on one drive.
    Volumes(u32),
    /// One volume of a node that keeps no journal.
    NoJournal,
    /// A file in memory that qemu-storage-daemon exports.
    Qemu,
}

impl Server {
    /// As the figures write it.
    pub fn name(self) -> String {
        match self {
            Server::Raw => "raw drive".into(),
            Server::Volumes(1) => "volume".into(),
            Server::Volumes(n) => format!("{n} volumes"),
            Server::NoJournal => "volume without journal".into(),
            Server::Qemu => "qemu-storage-daemon".into(),
        }
    }
}

/// What a case is measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes a second.
    Bandwidth,
    /// Requests a second.
    Iops,
    /// Mean latency.
    Latency,
}

/// A row of table 2, in fio's terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What the paper calls it.
    pub name: &'static str,
    /// What it is measured for.
    pub metric: Metric,
    /// `bs`, bytes.
    pub size: u32,
    /// `rw`, as `weir bench` takes it.
    pub rw: &'static str,
    /// `iodepth`, of each job.
    pub depth: u32,
    /// `numjobs`.
    pub jobs: u32,
    /// The part of the requests that is counted: a mix is run whole, and its reads or its writes are told.
    pub share: f64,
}

const fn case(
    name: &'static str,
    metric: Metric,
    (size, rw, depth, jobs): (u32, &'static str, u32, u32),
    share: f64,
) -> Case {
    Case { name, metric, size, rw, depth, jobs, share }
}

/// Table 2.
pub const CASES: [Case; 10] = [
    case("bandwidth, Read", Metric::Bandwidth, (128 << 10, "read", 128, 1), 1.0),
    case("bandwidth, Write", Metric::Bandwidth, (128 << 10, "write", 128, 1), 1.0),
    case("IOPS, Randread", Metric::Iops, (4096, "randread", 32, 4), 1.0),
    case("IOPS, Mixread", Metric::Iops, (4096, "randrw:70", 32, 4), 0.7),
    case("IOPS, Mixwrite", Metric::Iops, (4096, "randrw:70", 32, 4), 0.3),
    case("IOPS, Randwrite", Metric::Iops, (4096, "randwrite", 32, 4), 1.0),
    case("latency, Randread", Metric::Latency, (4096, "randread", 1, 1), 1.0),
    case("latency, Randwrite", Metric::Latency, (4096, "randwrite", 1, 1), 1.0),
    case("latency, Read", Metric::Latency, (4096, "read", 1, 1), 1.0),
    case("latency, Write", Metric::Latency, (4096, "write", 1, 1), 1.0),
];

impl Case {
    /// Its metric of a summary, in [`Case::unit`]s.
    pub fn of(&self, summary: &Summary) -> f64 {
        match self.metric {
            Metric::Bandwidth => summary.bandwidth_bytes_per_s / 1e6 * self.share,
            Metric::Iops => summary.iops / 1e3 * self.share,
            Metric::Latency => summary.latency.mean / 1e3,
        }
    }

    /// The unit of its metric.
    pub const fn unit(&self) -> &'static str {
        match self.metric {
            Metric::Bandwidth => "MB/s",
            Metric::Iops => "k/s",
            Metric::Latency => "us",
        }
    }

    /// How much worse `ours` is than `other`, as a part of that: a lower rate or a longer latency.
    pub fn loss(&self, ours: f64, other: f64) -> f64 {
        match self.metric {
            Metric::Latency => ours / other - 1.0,
            Metric::Bandwidth | Metric::Iops => 1.0 - ours / other,
        }
    }
}

/// What is started to see how a start passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A node whose drive holds nothing yet.
    Fresh,
    /// A node whose drive, pool and volume are there: a restart.
    Again,
    /// The same node with its drive behind NVMe/TCP, whose controller takes so long for a reset, and is reset by the start.
    ResetsDrive(Nanos),
    /// qemu-storage-daemon with a file.
    Qemu,
}

/// A start: its steps one after the other, each with its time, the first answer to a request last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Name and duration.
    pub steps: Vec<(String, Nanos)>,
}

impl Start {
    /// From exec to the first answer.
    pub fn total(&self) -> Nanos {
        Nanos(self.steps.iter().map(|(_, time)| time.0).sum())
    }
}

/// What happens to a node while somebody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGTERM, and started again as soon as it has ended.
    Restart,
    /// SIGTERM, and started again so long after it has ended.
    StopStart(Nanos),
    /// SIGKILL, and started again at once.
    Kill,
    /// SIGKILL of the worker of a node with a keeper and a standby: nobody starts anything.
    KillWorker,
    /// `weir upgrade` of a node with a keeper.
    Upgrade,
    /// The controller of the node's drive, which is another node's, fails (CSTS.CFS), and is ready again so long after its reset began.
    ResetDrive(Nanos),
}

impl Blow {
    /// As the figures write it.
    pub const fn name(self) -> &'static str {
        match self {
            Blow::Restart => "restart",
            Blow::StopStart(_) => "stop and start",
            Blow::Kill => "kill and restart",
            Blow::KillWorker => "kill of the worker under a keeper",
            Blow::Upgrade => "weir upgrade under a keeper",
            Blow::ResetDrive(_) => "controller reset",
        }
    }

    /// Whether the node has a keeper.
    pub const fn is_kept(self) -> bool {
        matches!(self, Blow::KillWorker | Blow::Upgrade)
    }

    /// Whether it befalls the drive, and not the node.
    pub const fn is_of_drive(self) -> bool {
        matches!(self, Blow::ResetDrive(_))
    }
}

/// A load that verifies, and what happens meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// How long it runs.
    pub time: Nanos,
    /// An interval of the series.
    pub series: Nanos,
    /// When what happens, in order: all under a keeper or none, all to the drive or none.
    pub blows: Vec<(Nanos, Blow)>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survived {
    /// Requests that failed, and that read other data than had been written.
    pub errors: u64,
    /// Of these, the wrong data.
    pub wrong_data: u64,
    /// The first of them.
    pub trouble: Option<String>,
    /// Reads and writes together.
    pub summary: Summary,
    /// Over time.
    pub series: Vec<SeriesPoint>,
}

/// How a drive goes and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// It is removed, and its requests fail at once.
    Removal,
    /// Its link is lost, and its requests wait.
    Link,
}

impl LossKind {
    /// As the figures write it.
    pub const fn name(self) -> &'static str {
        match self {
            LossKind::Removal => "removal",
            LossKind::Link => "lost link",
        }
    }
}

/// Two volumes, each on a drive of its own and under a load that verifies; the second drive goes for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// How it goes.
    pub kind: LossKind,
    /// How long the loads run.
    pub time: Nanos,
    /// An interval of the series.
    pub series: Nanos,
    /// When the drive goes.
    pub lost_at: Nanos,
    /// When it is back.
    pub back_at: Nanos,
}

/// Nodes as processes of their own, and loads on them.
pub trait Nodes {
    /// Whether qemu-storage-daemon is installed.
    fn has_qemu(&self) -> bool;

    /// A case, for so long, on a server that is started the first time it is asked for: a summary for each of its volumes.
    ///
    /// # Errors
    /// It cannot be started, or a request failed.
    fn run(&mut self, server: Server, drive: PaperDrive, case: &Case, time: Nanos) -> Result<Vec<Summary>, String>;

    /// Ends what [`Nodes::run`] has started.
    fn leave(&mut self);

    /// A start.
    ///
    /// # Errors
    /// It did not start or did not answer.
    fn start(&mut self, program: Program, drive: PaperDrive) -> Result<Start, String>;

    /// The longest time that a client with one request in flight waited for an answer while that happened to its node, the
    /// one with that number of several that are there at once.
    ///
    /// # Errors
    /// A node did not start, or a request failed.
    fn gap(&mut self, node: u32, drive: PaperDrive, blow: Blow) -> Result<Nanos, String>;

    /// A load that verifies what it reads, while its node is struck.
    ///
    /// # Errors
    /// The node did not start. Failed requests and wrong bytes are told, not errors.
    fn survive(&mut self, drive: PaperDrive, timeline: &Timeline) -> Result<Survived, String>;

    /// Loads that verify what they read on two volumes of one node, while the second one's drive goes for a time: what became of the first,
    /// and of the second.
    ///
    /// # Errors
    /// As [`Nodes::survive`].
    fn lose_drive(&mut self, drive: PaperDrive, outage: &Outage) -> Result<[Survived; 2], String>;
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
