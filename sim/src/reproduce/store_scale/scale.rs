//! How large the store is, and what its machines take: all that is assumed, in one place.

use weir_units::Nanos;

/// What a store and a run of it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSize {
    /// Machines with one donated drive each.
    pub nodes: usize,
    /// Machines of a rack.
    pub rack: usize,
    /// Clients.
    pub clients: usize,
    /// Processes of the metadata service.
    pub services: usize,
    /// Files that each client writes before anything fails.
    pub files: usize,
    /// Operations that all clients together begin in a second after that.
    pub operations: u64,
    /// Machines that are lost one after the other, before a whole rack is.
    pub losses: usize,
}

/// For tests.
#[cfg(test)]
pub const SMALL: StoreSize =
    StoreSize { nodes: 200, rack: 10, clients: 20, services: 3, files: 40, operations: 100, losses: 3 };
/// What is made if nothing is said.
pub const MIDDLE: StoreSize =
    StoreSize { nodes: 2_000, rack: 40, clients: 200, services: 20, files: 50, operations: 500, losses: 6 };
/// With `--full`.
pub const FULL: StoreSize =
    StoreSize { nodes: 10_000, rack: 40, clients: 1_000, services: 100, files: 60, operations: 2_000, losses: 6 };

/// Halls that the racks stand in.
pub const HALLS: usize = 4;
/// One machine in so many donates memory, the others flash.
pub const MEMORY_OF: usize = 5;
/// Bytes of a drive of each class: memory, flash.
pub const DRIVE_BYTES: [u64; 2] = [64 << 30, 1_920 << 30];
/// Bytes a second of a drive, read and written: memory by its machine's link, flash as the data sheet of a 960 PRO has it.
pub const DRIVE_RATE: [(u64, u64); 2] = [(3_125_000_000, 3_125_000_000), (3_500_000_000, 2_100_000_000)];
/// Bytes a second of a machine's link: 25 Gbit/s.
pub const LINK: u64 = 3_125_000_000;
/// One way through the network, and what is added to it by chance at the most.
pub const WAY: Nanos = Nanos::from_micros(50);
pub const WAY_MORE: Nanos = Nanos::from_micros(20);

/// What a process takes of its core for a message, for an answer of the key-value store, and for a tick, with what each namespace adds to it:
/// assumed, in the order of what a service in a node takes for a request.
pub const MESSAGE: Nanos = Nanos::from_micros(8);
pub const ANSWER: Nanos = Nanos::from_micros(6);
pub const TICK: Nanos = Nanos::from_micros(20);
pub const TICK_OF_NAMESPACE: Nanos = Nanos(40);

/// A key-value store of three machines, as etcd's documentation measures it (operations guide, "Performance"): a commit and a linearizable read
/// of one client, and how many of a thousand clients in a second.
pub const COMMIT: Nanos = Nanos::from_micros(1_600);
pub const COMMITS: u64 = 44_341;
pub const READ: Nanos = Nanos::from_micros(700);
pub const READS: u64 = 141_578;

/// As the service of a node has them.
pub const TICK_EVERY: Nanos = Nanos::from_millis(200);
pub const SESSION_LEASE: Nanos = Nanos::from_secs(10);
pub const SERVICE_LEASE: Nanos = Nanos::from_secs(3);
pub const FENCE_WAIT: Nanos = Nanos::from_secs(5);
pub const DRIFT_PPM: u32 = 1000;
pub const INLINE_MAX: u32 = 256;
pub const BLOCK: u64 = 1 << 20;
/// `[store] repair_after`: a tenth of its default, so that a run is shorter.
pub const REPAIR_AFTER: Nanos = Nanos::from_secs(60);
/// Until whoever asks a machine that is gone gives up.
pub const GIVE_UP: Nanos = Nanos::from_secs(2);

/// Machines that are lost in a year, of a thousand: 1.2 %.
pub const LOST_A_YEAR: u64 = 12;

impl StoreSize {
    /// Between two losses of a machine.
    pub const BETWEEN: Nanos = Nanos::from_secs(20);

    /// How much faster machines are lost than 1.2 % a year.
    pub fn compression(&self) -> f64 {
        let a_year = self.nodes as f64 * LOST_A_YEAR as f64 / 1000.0;
        let year = 365.25 * 86_400.0;
        year / a_year / (Self::BETWEEN.get() as f64 / 1e9)
    }

    /// The class of a machine's drive: 0 memory, 1 flash.
    pub fn class(node: usize) -> usize {
        usize::from(node % MEMORY_OF != 0)
    }

    /// `hall/rack` of a machine.
    pub fn location(&self, node: usize) -> String {
        let rack = node / self.rack;
        format!("hall{}/rack{rack}", rack % HALLS)
    }
}
