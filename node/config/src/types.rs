//! What a configuration says once it has been checked.

use super::calibration::CalibrationFile;
use super::open_channel::OpenChannelKeys;
use super::zoned::Zoned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_plan::Demand;
use weir_units::{Bytes, Ceiling, Class, Floor, Nanos, Sla};

/// A whole node. Devices, tenants and exports keep the order of the file; exports refer to the others by index.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[node]`.
    pub node: NodeConfig,
    /// `[[device]]`, at least one.
    pub devices: Vec<DeviceConfig>,
    /// `[[tenant]]`, at least one.
    pub tenants: Vec<TenantConfig>,
    /// `[[export]]`; none beside a pool, where [default exports](NodeConfig::default_exports) are off, or where all were ended.
    pub exports: Vec<ExportConfig>,
    /// `[door.nvme-tcp]`.
    pub nvme_tcp: super::door::NvmeTcpConfig,
    /// `[[pool]]`.
    pub pools: Vec<PoolConfig>,
    /// `[[volume]]`.
    pub volumes: Vec<VolumeConfig>,
}

/// Drives that are divided into volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name, which is on its drives.
    pub name: String,
    /// Indices into [`Config::devices`].
    pub devices: Vec<usize>,
}

/// A volume that is made when it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// Whose it is: index into [`Config::tenants`].
    pub tenant: usize,
    /// Where it is: index into [`Config::pools`].
    pub pool: usize,
    /// Its size when it is made; rounded up to whole MiB.
    pub size: Bytes,
    /// The doors that it is exported at.
    pub exports: Vec<DoorConfig>,
    /// Controllers at once, over all of them.
    pub max_controllers: u16,
}

impl VolumeConfig {
    /// What is not said otherwise.
    pub const MAX_CONTROLLERS: u16 = 1024;
    /// The most that may be said: identifiers from FFF0h on are reserved (NVMe base 2.0, 3.1.3).
    pub const MOST_CONTROLLERS: u16 = 0xffef;

    /// Its subsystem's name over NVMe/TCP, in the node with that name.
    pub fn nqn(&self, node: &str) -> String {
        format!("nqn.2026-11.io.weir:{node}:{}", self.name)
    }
}

/// The process as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Part of every subsystem NQN.
    pub name: String,
    /// Where the HTTP API listens; the first UNIX socket is the one that `weir status` looks for.
    pub api: Vec<Address>,
    /// One reactor thread on each of these CPUs.
    pub cores: Vec<usize>,
    /// Reactors spin even without work.
    pub poll: bool,
    /// What happens to promises that cannot be kept.
    pub admission: Admission,
    /// Front ends keep a journal of what is in flight.
    pub journal: bool,
    /// A process of its own holds what must outlive the one that serves, and starts that again when it dies.
    pub keeper: bool,
    /// A second process waits to take over.
    pub standby: bool,
    /// Without any export and any pool every drive is exported over NVMe/TCP.
    pub default_exports: bool,
}

/// Where the API listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// As the configuration writes it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

/// One drive.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Its name in the API and in NQNs.
    pub name: String,
    /// Where the bytes are.
    pub media: MediaConfig,
    /// How long commands of a drive on an NVMe/TCP target wait while that is gone; 0: they fail at once, and it stays gone.
    pub reconnect: Nanos,
    /// A read of null media gives zeroes wherever it goes to, where it leaves memory of a guest as it is else.
    pub read_zeroes: bool,
    /// `None`: as large as the medium is (a file, a block device, another drive).
    pub capacity: Option<Bytes>,
    /// The most that it can be grown to while it runs; `None`: its capacity.
    pub max_capacity: Option<Bytes>,
    /// Logical block: 512 or 4096.
    pub block_size: u32,
    /// Fixed service time of a command; 0: as fast as the medium.
    pub latency: Nanos,
    /// What is inside a flash drive, which decides how long commands take.
    pub flash: Option<FlashConfig>,
    /// Commands that the drive works on at once.
    pub slots: u16,
    /// Bytes that the drive works on at once.
    pub slot_bytes: Bytes,
    /// Who is next.
    pub arbitration: Arbitration,
    /// What a command counts for in `drr`.
    pub cost: Cost,
    /// Who decides a queue's class, where the export does not say.
    pub class_from: ClassFrom,
    /// I/O queues of one controller at most.
    pub queues: u16,
    /// Entries of one queue at most (CAP.MQES + 1).
    pub queue_depth: u16,
    /// Controllers at once, over all its exports.
    pub max_controllers: u16,
    /// Controller memory buffer of each of its PCIe controllers, a power of two; `None`: it has none.
    pub cmb: Option<Bytes>,
    /// NVMe qualified name of the subsystem.
    pub nqn: String,
    /// Serial number, 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Its namespace is zoned.
    pub zoned: Option<Zoned>,
    /// Its namespace is its flash, by physical addresses.
    pub open_channel: Option<OpenChannelKeys>,
    /// What it was measured to do, for admission.
    pub calibration: Option<CalibrationFile>,
}

/// What is inside a flash drive.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashConfig {
    /// Where the numbers come from that no key gives.
    pub profile: super::profile::Profile,
    /// Follow the profile's source where it does what no drive does.
    pub quirks: bool,
    /// All numbers.
    pub config: weir_flash::FlashDriveConfig,
    /// What the drive went through before it starts.
    pub precondition: weir_flash::Precondition,
    /// The channels' rate in bytes a second, where it was given.
    pub channel_rate: Option<Bytes>,
    /// The host link's, where it was given.
    pub link_rate: Option<Bytes>,
    /// Its rate towards the drive, where it was given.
    pub write_link_rate: Option<Bytes>,
    /// The keys of single steps and of wires that were given; programs that do not know them can read what is printed without them.
    pub details: Vec<&'static str>,
}

impl FlashConfig {
    /// Whether power loss may take what was written and not flushed.
    pub fn is_volatile(&self) -> bool {
        !self.config.buffer.is_durable()
    }
}

/// Where bytes live.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MediaConfig {
    /// Nowhere: writes vanish.
    Null,
    /// A sparse arena in memory.
    Ram,
    /// A file, by O_DIRECT.
    File(PathBuf),
    /// A block device.
    Block(PathBuf),
    /// Another NVMe drive: a bench target (`nvme-tcp://…`).
    Nvme(String),
}

impl MediaConfig {
    /// The word before the colon.
    pub const fn kind(&self) -> &'static str {
        match self {
            MediaConfig::Null => "null",
            MediaConfig::Ram => "ram",
            MediaConfig::File(_) => "file",
            MediaConfig::Block(_) => "block",
            MediaConfig::Nvme(_) => "nvme",
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for MediaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediaConfig::Null | MediaConfig::Ram => f.write_str(self.kind()),
            MediaConfig::File(path) | MediaConfig::Block(path) => write!(f, "{}:{}", self.kind(), path.display()),
            MediaConfig::Nvme(target) => write!(f, "nvme:{target}"),
        }
    }
}

/// How a drive chooses the next queue, and by what numbers; also what the API shows and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arbitration {
    /// The rule.
    pub mechanism: Mechanism,
    /// `wrr`: commands of a class in a round, 1 to 256.
    pub weights: Shares<u16>,
    /// `rr`, `wrr`: at most 2 to this power commands of a queue in one visit, 0 to 6; `None`: no limit (AB = 111b).
    pub burst: Option<u8>,
    /// `drr`: bytes of a class in a round.
    pub quanta: Shares<u32>,
}

impl Default for Arbitration {
    fn default() -> Self {
        Arbitration {
            mechanism: Mechanism::Drr,
            weights: Shares { high: 32, medium: 16, low: 8 },
            burst: None,
            quanta: Shares { high: 128 << 10, medium: 64 << 10, low: 32 << 10 },
        }
    }
}

impl Arbitration {
    /// Takes weights and quanta over from the arbiter's settings.
    pub fn take_shares(&mut self, settings: &weir_arbiter::ArbiterSettings) {
        let (w, q) = (settings.weights, settings.quanta);
        self.weights = Shares { high: w.high, medium: w.medium, low: w.low };
        self.quanta = Shares { high: q.high, medium: q.medium, low: q.low };
    }
}

/// One value for each weighted class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Shares<T> {
    /// Class high.
    pub high: T,
    /// Class medium.
    pub medium: T,
    /// Class low.
    pub low: T,
}

impl<T> Shares<T> {
    /// By the class's name.
    pub(super) fn get_mut(&mut self, class: &str) -> Option<&mut T> {
        match class {
            "high" => Some(&mut self.high),
            "medium" => Some(&mut self.medium),
            "low" => Some(&mut self.low),
            _ => None,
        }
    }
}

/// Closed sets of words: the enum, its words, and both directions.
macro_rules! words {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$vm])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word with its meaning.
            pub const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$variant)),+];

            /// As configuration and JSON write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

words! {
    /// How the doorbells of a vfio-user drive come.
    #[derive(Default)]
    Doorbells {
        /// In memory that the client maps, which is looked at all the time only while there is something to do.
        #[default]
        Auto = "auto",
        /// In memory that the client maps, which is looked at all the time.
        Mmap = "mmap",
        /// As messages.
        Trap = "trap",
    }
}

words! {
    /// Whose controllers must have a keep alive timer, over NVMe/TCP.
    KeepAlive {
        /// Those of hosts that are not on this machine.
        Network = "network",
        /// Everybody's.
        Always = "always",
        /// Nobody's.
        Never = "never",
    }
}

impl KeepAlive {
    /// Of a host that is on another machine, or is not.
    pub fn is_required(self, is_remote: bool) -> bool {
        match self {
            KeepAlive::Network => is_remote,
            KeepAlive::Always => true,
            KeepAlive::Never => false,
        }
    }
}

words! {
    /// Arbitration mechanisms (design: Device).
    Mechanism {
        /// Everything at once, no guarantee: for comparison.
        None = "none",
        /// Round robin over all queues (CC.AMS 000b).
        Rr = "rr",
        /// Weighted round robin in commands, with urgent (CC.AMS 001b).
        Wrr = "wrr",
        /// Deficit round robin in bytes, with urgent (CC.AMS 111b).
        Drr = "drr",
    }
}

words! {
    /// What a command costs its queue.
    Cost {
        /// Its length, 4 KiB at the least.
        Bytes = "bytes",
        /// The same for every command.
        Commands = "commands",
        /// What the flash will spend on it.
        DeviceTime = "device-time",
    }
}

words! {
    /// What happens to promises to tenants that cannot be kept.
    Admission {
        /// They are refused.
        Enforce = "enforce",
        /// They are made, with a warning.
        Warn = "warn",
    }
}

words! {
    /// Who decides the class of a queue; never above what the tenant may have.
    ClassFrom {
        /// The tenant's class.
        Tenant = "tenant",
        /// QPRIO of Create I/O Submission Queue.
        Qprio = "qprio",
        /// CATTR bits 1:0 of the Fabrics Connect command.
        Cattr = "cattr",
        /// The I/O priority of the process at the other end of the socket.
        Peer = "peer",
    }
}

/// One customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Default and ceiling of its queues.
    pub class: Class,
    /// Its queues may be urgent.
    pub urgent: bool,
    /// Its share among the tenants of its class, 1 to 256.
    pub weight: u16,
    /// The placement handle of its writes that name none, on drives that have handles.
    pub placement: Option<u8>,
    /// What it gets of each drive at least, while it asks for so much.
    pub floor: Floor,
    /// What it gets of each drive at the most.
    pub ceiling: Ceiling,
    /// What it was promised of each drive.
    pub sla: Sla,
    /// What it is expected to ask for; `None`: nobody said.
    pub demand: Option<Demand>,
    /// Host NQNs that are this tenant's.
    pub hosts: Vec<String>,
    /// Hosts that are nobody else's are this tenant's (`"*"`).
    pub any_host: bool,
}

impl TenantConfig {
    /// A tenant as it joins a running node, checked against those that are there. Hosts may have `*` among them.
    ///
    /// # Errors
    /// A name or host that is none, or that somebody else has.
    pub fn joining(name: &str, class: Class, hosts: &[String], beside: &[TenantConfig]) -> Result<Self, String> {
        super::node::name_text(name).map_err(|e| format!("name: {e}"))?;
        if beside.iter().any(|t| t.name == name) {
            return Err(format!(
                "name: there is a tenant \"{name}\" already; choose another, or change it (weir tenant set)"
            ));
        }
        for (i, host) in hosts.iter().enumerate() {
            super::tenant::host_text(host).map_err(|e| format!("hosts: {e}"))?;
            let has = |t: &&TenantConfig| t.hosts.contains(host) || (host == "*" && t.any_host);
            if let Some(other) = beside.iter().find(has) {
                return Err(format!("hosts: {host} is tenant \"{}\"'s; a host belongs to one tenant", other.name));
            }
            if hosts[..i].contains(host) {
                return Err(format!("hosts: {host} is listed twice; keep one"));
            }
        }
        Ok(TenantConfig {
            name: name.into(),
            class,
            urgent: class == Class::Urgent,
            hosts: hosts.iter().filter(|h| *h != "*").cloned().collect(),
            any_host: hosts.iter().any(|h| h == "*"),
            ..Self::nobody()
        })
    }

    /// It was removed while the node ran; its place stays.
    pub fn is_gone(&self) -> bool {
        self.name.is_empty()
    }

    /// Removes it.
    pub fn retire(&mut self) {
        *self = Self::nobody();
    }

    fn nobody() -> Self {
        TenantConfig {
            name: String::new(),
            class: Class::Medium,
            urgent: false,
            weight: 1,
            placement: None,
            floor: Floor::default(),
            ceiling: Ceiling::default(),
            sla: Sla::default(),
            demand: None,
            hosts: Vec::new(),
            any_host: false,
        }
    }

    /// The best class its queues can have.
    pub fn ceiling(&self) -> Class {
        if self.urgent { Class::Urgent } else { self.class }
    }
}

/// One way to a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// Index into [`Config::devices`].
    pub device: usize,
    /// By which protocol and where.
    pub door: DoorConfig,
    /// Who decides the class of the queues that come this way.
    pub class_from: ClassFrom,
    /// I/O queues at most.
    pub queues: u16,
    /// Writes are refused.
    pub read_only: bool,
}

/// A protocol and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DoorConfig {
    /// NVMe/TCP on the addresses of `[door.nvme-tcp]`; the host's NQN says which tenant it is.
    NvmeTcp,
    /// A virtio-blk device on a vhost-user socket.
    VhostUser {
        /// The socket.
        path: PathBuf,
        /// Index into [`Config::tenants`].
        tenant: usize,
    },
    /// A PCIe drive on a vfio-user socket.
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// Index into [`Config::tenants`].
        tenant: usize,
        /// How doorbells come.
        doorbells: Doorbells,
    },
}

impl DoorConfig {
    /// The socket, and whose it is: an index into [`Config::tenants`].
    pub fn socket(&self) -> Option<(&Path, usize)> {
        match self {
            DoorConfig::NvmeTcp => None,
            DoorConfig::VhostUser { path, tenant } | DoorConfig::VfioUser { path, tenant, .. } => Some((path, *tenant)),
        }
    }

    /// What the door is called.
    pub const fn kind(&self) -> &'static str {
        match self {
            DoorConfig::NvmeTcp => "nvme-tcp",
            DoorConfig::VhostUser { .. } => "vhost-user",
            DoorConfig::VfioUser { .. } => "vfio-user",
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for DoorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            None => f.write_str(self.kind()),
            Some((path, _)) => write!(f, "{}:{}", self.kind(), path.display()),
        }
    }
}

/// For the arbiter of a drive; every number is in the arbiter's range by construction.
impl From<Arbitration> for weir_arbiter::ArbiterSettings {
    fn from(from: Arbitration) -> Self {
        let Arbitration { mechanism, weights: w, burst, quanta: q } = from;
        weir_arbiter::ArbiterSettings {
            mechanism: match mechanism {
                Mechanism::None => weir_arbiter::Mechanism::None,
                Mechanism::Rr => weir_arbiter::Mechanism::Rr,
                Mechanism::Wrr => weir_arbiter::Mechanism::Wrr,
                Mechanism::Drr => weir_arbiter::Mechanism::Drr,
            },
            weights: weir_arbiter::Weights { high: w.high, medium: w.medium, low: w.low },
            burst: burst.map_or(weir_arbiter::Burst::NoLimit, weir_arbiter::Burst::Log2),
            quanta: weir_arbiter::Quanta { high: q.high, medium: q.medium, low: q.low },
        }
    }
}
