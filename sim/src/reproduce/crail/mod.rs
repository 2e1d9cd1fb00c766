//! The figures of papers/004, "Crail Storage Performance -- Part II: NVMf".
//!
//! ```text
//!   latency     random reads one after the other, over their size, on three drives; the map cached and not
//!   throughput  64 KiB, 128 in flight: pairs of a file and of the drive alone
//!   streams     buffered and direct streams over the size of an operation; copies a byte
//!   terasort    a sort while memory shrinks: simulated, Hadoop's own, and what that asked of the store without Hadoop
//! ```
//! What is measured is measured on real processes, through [`Stores`].

mod latency;
mod streams;
mod terasort;
mod throughput;

pub(super) use latency::figure as latency;
pub(super) use streams::figure as streams;
pub(super) use terasort::figure as terasort;
pub(super) use throughput::figure as throughput;

use super::{LiveMeasurements, Row};
use weir_units::Nanos;

/// What is written beside every figure: where it does not compare with the paper's.
const MACHINE: &str = "The paper has eight POWER8 nodes, 100 Gbit/s InfiniBand with RDMA, SPDK and Samsung 960 PRO drives. Here node, metadata \
                       service and modelled drives are a process on the first core, the client is another one, and NVMe/TCP over the loopback \
                       lies between them. Figures of RDMA are quoted, and nothing here claims them.";

/// How the drive alone is measured.
const RAW: &str = "\"raw\" is a drive of the same kind on the same node that is not in the store, by the same driver, with as many commands in \
                   flight, and the same waiting (`weir fs bench --raw`).";

/// So far may a number be from one that the paper calls "around", in percent.
const AROUND: f64 = 20.0;

/// The drive that files lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreDrive {
    /// In memory.
    Dram,
    /// The paper's, as modelled by the profile `960pro`.
    Flash,
    /// As modelled by the profile `optane-p4800x`.
    Optane,
}

impl StoreDrive {
    /// As the figures write it.
    pub const fn name(self) -> &'static str {
        match self {
            StoreDrive::Dram => "DRAM",
            StoreDrive::Flash => "960 PRO",
            StoreDrive::Optane => "P4800X",
        }
    }
}

/// What is asked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreAccess {
    /// A file, straight between drive and memory; its map is cached.
    File,
    /// The same, and each operation has to ask for the map.
    ColdMap,
    /// A file through a buffered stream.
    Stream,
    /// The drive without the store, by the same driver.
    Raw,
    /// The drive without the store and without a network, in the client's process.
    Local,
    /// The name of a file alone.
    Lookup,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLoad {
    /// On what.
    pub access: StoreAccess,
    /// Written, or else read.
    pub write: bool,
    /// At random places, or else in order.
    pub random: bool,
    /// Bytes of an operation.
    pub size: u32,
    /// Operations in flight.
    pub depth: u32,
    /// Operations.
    pub operations: u64,
}

impl StoreLoad {
    /// Random reads, one after the other.
    const fn random_reads(access: StoreAccess, size: u32, operations: u64) -> Self {
        Self { access, write: false, random: true, size, depth: 1, operations }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreSeen {
    /// Median latency, nanoseconds.
    pub p50: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// How often each byte was copied from one place in the client's memory to another one.
    pub copies: f64,
}

/// A sort of an unmodified program on a store, or what it asked of the store alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreSort {
    /// From its start to its end.
    pub elapsed: Nanos,
    /// What it took of processors, all threads together.
    pub processor: Nanos,
    /// What its threads spent in calls of the store's client, all together.
    pub in_calls: Nanos,
    /// Of the store's bytes, those in memory after the sort, percent.
    pub in_memory_pct: f64,
}

/// A store of files on drives of each kind, and drives of the same kinds beside it.
pub trait Stores {
    /// Makes all operations of a load; servers are started the first time.
    ///
    /// # Errors
    /// They cannot be started, or an operation failed.
    fn measure(&mut self, drive: StoreDrive, load: &StoreLoad) -> Result<StoreSeen, String>;

    /// Generates so many bytes of records, sorts them and proves their order, on a store that has memory for so much of all that is
    /// written, percent, and flash for the rest.
    ///
    /// # Errors
    /// No sort is named, the store or the sort cannot be started, the sort fails, or its result is not sorted.
    fn sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String>;

    /// Asks again what the first [`Stores::sort`] asked of its store, as fast as the store answers, of a new store that has memory for so much.
    ///
    /// # Errors
    /// Nothing was sorted, the store cannot be started, or it does not answer as the first one.
    fn replay_sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String>;

    /// Ends what [`Stores::measure`] has started.
    fn leave(&mut self);
}

/// Loads in turn, every other round in the opposite order: of each load what came of its rounds.
fn in_turn(
    live: &mut dyn LiveMeasurements,
    drive: StoreDrive,
    loads: &[StoreLoad],
    rounds: usize,
) -> Result<Vec<Vec<StoreSeen>>, String> {
    let mut all: Vec<Vec<StoreSeen>> = vec![Vec::with_capacity(rounds); loads.len()];
    for round in 0..rounds {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..loads.len()).collect() } else { (0..loads.len()).rev().collect() };
        for at in order {
            let seen = live.stores().measure(drive, &loads[at]);
            all[at].push(seen.map_err(|e| format!("{}, {:?}: {e}", drive.name(), loads[at].access))?);
        }
    }
    Ok(all)
}

/// `512 B`, `64 KiB`.
fn bytes(size: u32) -> String {
    match size {
        size if size % 1024 == 0 => format!("{} KiB", size / 1024),
        size => format!("{size} B"),
    }
}

/// The row with that label.
fn ours(rows: &[Row], label: &str) -> Option<f64> {
    rows.iter().find(|row| row.label == label).map(|row| row.ours)
}
