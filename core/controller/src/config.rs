//! What a drive is made with.

use crate::error::ManagementError;
use crate::namespace::access::AnaState;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_flash::{ZoneConfig, ZonedConfig};
use weir_spec::nvme::fabrics::DISCOVERY_NQN;
use weir_spec::nvme::log::DiscoveryEntry;
use weir_units::{Ceiling, Class, Floor, Nanos, Sla};

/// What a subsystem is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemKind {
    /// Namespaces and I/O queues.
    Io,
    /// The discovery log only.
    Discovery,
}

/// What a command costs in arbitration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// max(length, 4 KiB); 4 KiB without data.
    Bytes,
    /// One like another: 4 KiB each.
    Commands,
    /// What the drive's inside will spend on it ([`TimingModel::cost`](crate::TimingModel::cost)), 4 KiB at the least; as `Bytes` where
    /// the drive has none.
    DeviceTime,
}

/// Who may wish for a queue's class, below the tenant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassFrom {
    /// Nobody: the tenant's class.
    Tenant,
    /// QPRIO of Create I/O Submission Queue, where CC.AMS is not round robin.
    Qprio,
    /// CATTR bits 1:0 of Connect.
    Cattr,
    /// The door, from the I/O priority of the process at the other end.
    Peer,
}

/// A tenant of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name, for messages and statistics.
    pub name: String,
    /// Default and ceiling of all its queues.
    pub class: Class,
    /// The operator allows wishes for urgent.
    pub urgent: bool,
    /// Who may wish.
    pub class_from: ClassFrom,
    /// Its part among tenants of the same class, where bytes are shared; usually 1.
    pub weight: u16,
    /// The placement handle of its writes that name none (FDP); `None`: 0.
    pub placement: Option<u8>,
    /// What it gets at least, while it asks for so much.
    pub floor: Floor,
    /// What it gets at the most.
    pub ceiling: Ceiling,
    /// What it was promised.
    pub sla: Sla,
    /// Host NQNs; `*` is any host that no tenant names.
    pub hosts: Vec<String>,
}

impl TenantConfig {
    /// A tenant for any host, with the class as default and ceiling.
    pub fn new(name: &str, class: Class) -> Self {
        let hosts = alloc::vec!["*".into()];
        Self {
            name: name.into(),
            class,
            urgent: false,
            class_from: ClassFrom::Tenant,
            weight: 1,
            placement: None,
            floor: Floor::default(),
            ceiling: Ceiling::default(),
            sla: Sla::default(),
            hosts,
        }
    }
}

/// A namespace of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// NSID, 1 to 1024.
    pub nsid: u32,
    /// Where it begins, in bytes of the drive's media.
    pub start: u64,
    /// Its size in bytes; a multiple of the block size.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// UUID of the namespace; also its NGUID.
    pub uuid: [u8; 16],
}

/// A drive whose namespaces hosts create, format and delete (base 2.0, 8.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management {
    /// Bytes that namespaces are made of, from the beginning of the media.
    pub capacity: u64,
    /// The smallest block that the media can have, 512 or 4096.
    pub least_block: u32,
    /// Blocks can have metadata: the executor asks for it ([`Subsystem::metadata_of`](crate::Subsystem::metadata_of)).
    pub metadata: bool,
}

/// A namespace of the ZNS command set: makes one of [`SubsystemConfig::namespaces`] zoned.
#[derive(Clone, Debug, PartialEq)]
pub struct ZonedNamespace {
    /// NSID of a namespace that is as large as its zones.
    pub nsid: u32,
    /// Its zones, in blocks of the namespace.
    pub zones: ZoneConfig,
    /// The flash that they lie on, made for the same zones; `None`: they take no time but the drive's `latency`.
    pub flash: Option<ZonedConfig>,
    /// A power cut takes from completed writes what no flush has covered: their buffer does not outlive it.
    pub volatile: bool,
}

/// What a drive is made with. `SubsystemConfig::new` has the defaults.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// I/O or discovery.
    pub kind: SubsystemKind,
    /// NQN of the subsystem.
    pub subnqn: String,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Model number, at most 40 characters.
    pub model: String,
    /// Firmware revision, at most 8 characters.
    pub firmware: String,
    /// The drive's arbitration. [`Mechanism::None`] fetches eagerly.
    pub arbitration: ArbiterSettings,
    /// What a command costs.
    pub cost: Cost,
    /// Commands in flight at once, at least 1.
    pub slots: u32,
    /// Bytes in flight at once; a larger command runs alone.
    pub slot_bytes: u64,
    /// Fixed service time: an I/O's effect comes this long after its fetch.
    pub latency: Nanos,
    /// Largest queue, in entries (CAP.MQES + 1), 2 to 65536.
    pub max_queue_entries: u32,
    /// I/O queue pairs a controller may have.
    pub max_io_queues: u16,
    /// Controllers at once.
    pub max_controllers: u16,
    /// MDTS: the largest transfer is `4 KiB << mdts`; 0 is unlimited.
    pub mdts: u8,
    /// Whether the media has a volatile write cache, so that hosts must flush.
    pub volatile_write_cache: bool,
    /// A deallocated block reads as zeroes; `false`: the media has nothing to read, and a read may leave the host's buffer as it is.
    pub reads_zeroes: bool,
    /// Bytes of the media that one write changes at once, as others on the drive see it; at least a block.
    pub atomic_write: u64,
    /// Bytes of the memory buffer that ring controllers have for queues, lists and data; 0: none, else a power of two from 4 KiB to
    /// 1 GiB.
    pub cmb: u64,
    /// In-capsule data that the fabrics door takes on an I/O queue, in bytes (IOCCSZ − 4).
    pub in_capsule: u32,
    /// Admin commands a second and tenant.
    pub admin_rate: u32,
    /// Who shares the drive; none means one tenant for everybody, class medium.
    pub tenants: Vec<TenantConfig>,
    /// How hosts that come by a listening address reach the namespaces; optimized where nothing is said.
    pub ana_ports: Vec<(SocketAddr, AnaState)>,
    /// Namespaces.
    pub namespaces: Vec<NamespaceConfig>,
    /// Which of them are zoned.
    pub zoned: Vec<ZonedNamespace>,
    /// Rules of failures may be made for it: Identify says how long the three command retry delays are (CRDT).
    pub faults: bool,
    /// Namespace management; none of it where there are zones or a vendor's commands. The namespaces above begin at multiples of
    /// [`granule`](crate::granule).
    pub management: Option<Management>,
}

impl SubsystemConfig {
    /// MDTS in bytes.
    pub(crate) fn max_transfer(&self) -> u64 {
        if self.mdts == 0 { u64::MAX } else { 4096u64.checked_shl(self.mdts.into()).unwrap_or(u64::MAX) }
    }

    /// Whether commands are fetched whether slots are free or not.
    #[inline]
    pub(crate) fn is_eager(&self) -> bool {
        self.arbitration.mechanism == Mechanism::None
    }

    /// An I/O subsystem without tenants and namespaces: DRR, 64 slots, 4 MiB in flight, no latency.
    pub fn new(subnqn: &str) -> Self {
        Self {
            kind: SubsystemKind::Io,
            subnqn: subnqn.into(),
            serial: "WEIR0001".into(),
            model: "Weir NVMe drive".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            arbitration: ArbiterSettings::new(Mechanism::Drr),
            cost: Cost::Bytes,
            slots: 64,
            slot_bytes: 4 << 20,
            latency: Nanos(0),
            max_queue_entries: 4096,
            max_io_queues: 1024,
            max_controllers: 1024,
            mdts: 8,
            volatile_write_cache: false,
            reads_zeroes: true,
            atomic_write: 4096,
            cmb: 0,
            in_capsule: 8192,
            admin_rate: 1000,
            tenants: Vec::new(),
            ana_ports: Vec::new(),
            namespaces: Vec::new(),
            zoned: Vec::new(),
            faults: false,
            management: None,
        }
    }

    /// A discovery subsystem.
    pub fn discovery() -> Self {
        let base = Self::new(DISCOVERY_NQN);
        Self { kind: SubsystemKind::Discovery, max_io_queues: 0, max_queue_entries: 128, ..base }
    }
}

/// A record of the discovery log and who sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// The entry. Where `listen` is a wildcard, its address is replaced by the one that the asking host has reached.
    pub entry: DiscoveryEntry,
    /// Host NQNs that see it; none means all. Whoever asks for the records of all (ALLSUBE) sees it all the same.
    pub hosts: Vec<String>,
    /// Where its port listens; with an address of zeroes, on every address of the machine.
    pub listen: Option<SocketAddr>,
    /// What an extended entry calls it; only ASCII of up to 256 characters is told.
    pub label: String,
}

impl DiscoveryRecord {
    /// A record that everybody sees, as it is.
    pub fn new(entry: DiscoveryEntry) -> Self {
        Self { entry, hosts: Vec::new(), listen: None, label: String::new() }
    }
}

/// A size that a base address register can have, or none.
pub(crate) fn check_memory_buffer(size: u64) -> Result<(), ManagementError> {
    let fits = size == 0 || size.is_power_of_two() && (1 << 12..=1 << 30).contains(&size);
    if fits { Ok(()) } else { Err(ManagementError::MemoryBuffer) }
}
