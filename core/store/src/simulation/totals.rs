//! What has happened in runs, counted.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A client's connection to the service ends.
    ConnectionLost,
    /// A client and the service do not hear each other for some time.
    NetworkCut,
    /// A client and a drive do not hear each other for some time.
    DriveCut,
    /// A client is killed; another one comes.
    ClientKilled,
    /// A client stands still, up to more than three leases.
    ClientPaused,
    /// The service is killed, and started again.
    ServiceKilled,
    /// The machine of the metadata has no power for a moment: the commits that came last are lost.
    PowerCut,
    /// The service stands still, up to more than three leases.
    ServicePaused,
    /// A drive's process is killed, and started again with what it had.
    DriveRestarted,
    /// Commands at a drive take long.
    DriveSlow,
    /// Commits are made and not known to be, reads are not answered.
    MetadataUnsure,
    /// A client's clock runs as wrong as clocks may.
    ClockDrifts,
    /// The service that serves does not hear the key-value store for some time; what it has sent arrives later.
    ServiceCut,
    /// All services are killed, and started again.
    ServicesRestarted,
    /// The service that serves is ended, and gives up its lease.
    ServiceStopped,
}

impl Fault {
    pub const ALL: [Fault; 12] = [
        Fault::ConnectionLost,
        Fault::NetworkCut,
        Fault::DriveCut,
        Fault::ClientKilled,
        Fault::ClientPaused,
        Fault::ServiceKilled,
        Fault::PowerCut,
        Fault::ServicePaused,
        Fault::DriveRestarted,
        Fault::DriveSlow,
        Fault::MetadataUnsure,
        Fault::ClockDrifts,
    ];

    /// Those of several services: the key-value store is another machine's.
    pub const OF_SEVERAL: [Fault; 14] = [
        Fault::ConnectionLost,
        Fault::NetworkCut,
        Fault::DriveCut,
        Fault::ClientKilled,
        Fault::ClientPaused,
        Fault::ServiceKilled,
        Fault::ServicePaused,
        Fault::DriveRestarted,
        Fault::DriveSlow,
        Fault::MetadataUnsure,
        Fault::ClockDrifts,
        Fault::ServiceCut,
        Fault::ServicesRestarted,
        Fault::ServiceStopped,
    ];

    /// Those of runs with several services, or with one.
    pub const fn kinds(is_shared: bool) -> &'static [Fault] {
        if is_shared { &Self::OF_SEVERAL } else { &Self::ALL }
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub runs: u64,
    /// There are several services in these runs.
    is_shared: bool,
    /// Lives of the service: each but the first of a run is a takeover, or a restart.
    pub lives: u64,
    /// Copies of blocks that were moved.
    pub moved: u64,
    /// Those of them that were demoted.
    pub demoted: u64,
    /// Writes that were sent while the drive had another one of the same file close by.
    pub beside: u64,
    /// Clients that a service has referred to another one.
    pub referred: u64,
    faults: BTreeMap<Fault, u64>,
    pairs: BTreeMap<(Fault, Fault), u64>,
    /// Operations by what they are and how they ended.
    operations: BTreeMap<(&'static str, String), u64>,
    pub units_read: u64,
    /// Files that were read in the end, and those of them that had blocks which wait for their recovery.
    pub files_read: u64,
    pub unsettled: u64,
    /// Bytes that are granted to sessions in the end.
    pub granted: u64,
    /// Histories of names that have too many orders to look at.
    pub unjudged: u64,
}

impl Totals {
    /// A run with these faults.
    pub fn run(&mut self, faults: &[Fault], is_shared: bool) {
        self.runs += 1;
        self.is_shared = is_shared;
        for fault in faults {
            *self.faults.entry(*fault).or_default() += 1;
        }
        let mut kinds: Vec<Fault> = faults.to_vec();
        kinds.sort_unstable();
        for (at, first) in kinds.iter().enumerate() {
            for second in &kinds[at + 1..] {
                *self.pairs.entry((*first, *second)).or_default() += 1;
            }
        }
    }

    /// An operation has ended.
    pub fn operation(&mut self, what: &'static str, how: String) {
        *self.operations.entry((what, how)).or_default() += 1;
    }

    /// Operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.operations.values().sum()
    }

    /// Both together.
    pub fn add(&mut self, other: &Totals) {
        self.runs += other.runs;
        self.is_shared |= other.is_shared;
        self.lives += other.lives;
        self.moved += other.moved;
        self.demoted += other.demoted;
        self.beside += other.beside;
        self.referred += other.referred;
        self.units_read += other.units_read;
        self.files_read += other.files_read;
        self.unsettled += other.unsettled;
        self.unjudged += other.unjudged;
        self.granted += other.granted;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (pair, count) in &other.pairs {
            *self.pairs.entry(*pair).or_default() += count;
        }
        for (operation, count) in &other.operations {
            *self.operations.entry(operation.clone()).or_default() += count;
        }
    }

    /// Kinds of faults and pairs of kinds that never were.
    pub fn missing(&self) -> Vec<String> {
        let kinds = Fault::kinds(self.is_shared).iter().copied();
        let single = kinds.clone().filter(|fault| !self.faults.contains_key(fault)).map(|f| format!("{f:?}"));
        let pairs = kinds.clone().flat_map(|first| {
            let second = kinds.clone().filter(move |second| *second >= first);
            second.map(move |second| (first, second))
        });
        let pairs = pairs.filter(|pair| !self.pairs.contains_key(pair)).map(|pair| format!("{pair:?}"));
        single.chain(pairs).collect()
    }

    /// In lines: faults, pairs as a triangle, operations.
    pub fn lines(&self) -> String {
        let mut lines = format!(
            "{} runs, {} operations, {} units of 256 bytes read; in the end {} files read, {} of them with blocks to be recovered; {} bytes granted; {} histories of names not judged\n",
            self.runs,
            self.operations(),
            self.units_read,
            self.files_read,
            self.unsettled,
            self.granted,
            self.unjudged
        );
        lines += &format!(
            "{} lives of the service, {} clients referred to another one, {} copies of blocks moved, {} of them demoted, {} writes beside others\n",
            self.lives, self.referred, self.moved, self.demoted, self.beside
        );
        let kinds = Fault::kinds(self.is_shared);
        for first in kinds.iter().copied() {
            lines += &format!("{:16} {:6} |", format!("{first:?}"), self.faults.get(&first).unwrap_or(&0));
            for second in kinds.iter().copied().filter(|second| *second >= first) {
                lines += &format!(" {:5}", self.pairs.get(&(first, second)).unwrap_or(&0));
            }
            lines += "\n";
        }
        for ((what, how), count) in &self.operations {
            lines += &format!("{what:10} {how:40} {count}\n");
        }
        lines
    }
}
