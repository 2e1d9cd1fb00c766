//! What one controller remembers.

use crate::admin::async_events::Aer;
use crate::admin::exactly_once::CountedCommand;
use crate::config::ClassFrom;
use crate::event::ControllerHandle;
use crate::host::Owner;
use crate::log_state::error_log::ErrorLog;
use crate::namespace::access::AnaState;
use crate::namespace::attachment::NamespaceSet;
use crate::power::{SENSORS, thermal};
use crate::queues::queue::NONE;
use crate::queues::shadow::Shadow;
use crate::reservation::notices::Notices;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use weir_arbiter::{ArbiterSettings, Burst, GroupKey, Mechanism, Quanta, Weights};
use weir_spec::nvme::Sqe;
use weir_spec::nvme::feature::{Arbitration, HostBehavior, Power};
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::register::{Aqa, Cc, CmbMsc, Csts, ams};
use weir_units::{Class, Nanos};

mod interrupts;
mod shadow_doorbells;

pub(crate) mod fabrics;
pub(crate) mod memory_buffer;
mod registers;

/// How its queues reach a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Fabrics,
    Rings,
    Front,
}

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    None,
    /// Commands in flight.
    Draining,
    /// The flush in this slot.
    Flushing(u32),
    Complete,
}

/// What Set Features holds; reset to the defaults when the controller is enabled.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    pub arbitration: Arbitration,
    pub quanta: Quanta,
    pub power: Power,
    /// Thresholds of the composite temperature and of the sensors, K; 0: none.
    pub temperature_over: [u16; SENSORS],
    pub temperature_under: [u16; SENSORS],
    pub error_recovery: u32,
    pub write_cache: u32,
    pub coalescing: u32,
    /// Interrupt vectors with coalescing disabled.
    pub uncoalesced: Vec<u16>,
    pub write_atomicity: u32,
    pub async_config: u32,
    /// APST, and its table by power state.
    pub autonomous: bool,
    pub transitions: [u64; 32],
    /// Host controlled thermal management.
    pub thermal: u32,
    pub non_operational: u32,
    /// Host behaviour support: its first bytes.
    pub behavior: [u8; 8],
    pub sanitize: u32,
    /// Critical warnings of the endurance group that its host wants to hear of.
    pub endurance_events: u8,
    /// I/O queues granted, if the host asked.
    pub queues: Option<(u16, u16)>,
}

impl Features {
    pub fn new(volatile_write_cache: bool) -> Self {
        let defaults = ArbiterSettings::new(Mechanism::Rr);
        let w = |weight: u16| u32::from(weight - 1);
        let Weights { high, medium, low } = defaults.weights;
        Self {
            arbitration: Arbitration(0)
                .with_ab(defaults.burst.bits().into())
                .with_hpw(w(high))
                .with_mpw(w(medium))
                .with_lpw(w(low)),
            quanta: defaults.quanta,
            power: Power(0),
            temperature_over: [thermal::WARNING, 0, 0],
            temperature_under: [0; SENSORS],
            error_recovery: 0,
            write_cache: volatile_write_cache.into(),
            coalescing: 0,
            uncoalesced: Vec::new(),
            write_atomicity: 0,
            async_config: 0,
            autonomous: false,
            transitions: [0; 32],
            thermal: 0,
            non_operational: 0,
            behavior: [0; 8],
            sanitize: 0,
            endurance_events: 0,
            queues: None,
        }
    }
}

/// One controller.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub generation: u16,
    pub id: u16,
    pub transport: Transport,
    pub tenant: u16,
    pub group: GroupKey,
    pub owner: Owner,
    pub host: String,
    /// Who may wish among its queues, where that is not the tenant's `class_from`.
    pub class_from: Option<ClassFrom>,
    /// What the process at the other end asks for all of them.
    pub wish: Option<Class>,
    pub hostid: [u8; 16],
    /// It has 128 bits, not 64.
    pub wide_id: bool,
    /// The address that its host has reached.
    pub local: Option<SocketAddr>,
    pub cc: Cc,
    pub csts: Csts,
    /// How many queues had gone when the controller was enabled. It is not ready before their commands are over: what those write could
    /// land after what its host writes next.
    pub fence: u64,
    pub aqa: Aqa,
    pub asq: u64,
    pub acq: u64,
    pub intm: u32,
    /// CSTS.NSSRO: its subsystem was reset.
    pub nssro: bool,
    pub cmbmsc: CmbMsc,
    /// The host's shadow doorbells.
    pub shadow: Option<Shadow>,
    /// Submission queues by QID; 0 is the admin queue.
    pub sqs: Vec<u32>,
    /// Completion queues by QID (rings).
    pub cqs: Vec<u32>,
    /// Message queues that the door has not disconnected yet.
    pub attached: u32,
    /// Admin commands of a message queue that wait.
    pub admin: VecDeque<(Sqe, u32)>,
    /// It is in the list of those with admin commands.
    pub admin_listed: bool,
    pub features: Features,
    /// What its host set the timestamp to, ms since 1970, and when.
    pub timestamp: Option<(u64, Nanos)>,
    /// When its host set the power state, and the operational one before.
    pub power_since: Nanos,
    pub power_before: u8,
    /// The temperature was beyond its thresholds when it was looked at.
    pub too_hot: bool,
    /// How it reaches the namespaces, and how often that has changed.
    pub ana: AnaState,
    pub ana_changes: u64,
    /// The endurance group has an event that its host does not know.
    pub endurance_event: bool,
    /// The persistent event log as it was when its host established a context.
    pub event_context: Option<Vec<u8>>,
    /// The LBA Status Information log page as its host has begun to read it.
    pub lba_status: Option<Vec<u8>>,
    pub aer: Aer,
    pub errors: ErrorLog,
    /// Attached to it.
    pub namespaces: NamespaceSet,
    pub changed: Vec<u32>,
    /// Zones whose descriptors the drive changed, ascending: NSID and first block.
    pub changed_zones: Vec<(u32, u64)>,
    /// What happened to its host's reservations.
    pub notices: Notices,
    /// KATO as the host set it, ms.
    pub kato: u32,
    /// Its host must have a keep alive timer.
    pub needs_keep_alive: bool,
    /// How long it may be without a command where it has no keep alive timer.
    pub idle_limit: Nanos,
    /// When the keep alive timer expires, or, while the controller is not enabled or shut down, the association ends.
    pub expires: Nanos,
    pub shutdown: Shutdown,
    /// Rings: its door keeps a journal of what it takes from them.
    pub journaled: bool,
    /// Rings: admin commands that were kept, and may still be, event requests apart.
    pub kept: Vec<CountedCommand>,
    /// Rings: tells this controller from all others that any process has had, where it outlives its process; else 0.
    pub life: u64,
    /// Rings: admin commands that were taken in that life.
    pub taken: u64,
    /// Its commands that the drive has begun come again in the process that takes the drive over.
    pub begun_goes_on: bool,
}

impl Controller {
    pub fn handle(&self, index: u32) -> ControllerHandle {
        ControllerHandle::new(index, self.generation)
    }

    /// Whether the wishes of its queues count, where the tenant takes those that come from `tenant`.
    pub fn counts(&self, tenant: ClassFrom) -> bool {
        let from = self.class_from.unwrap_or(tenant);
        match self.transport {
            Transport::Fabrics => from == ClassFrom::Cattr,
            Transport::Rings => matches!(from, ClassFrom::Qprio | ClassFrom::Peer),
            Transport::Front => from == ClassFrom::Peer,
        }
    }

    /// What its host says that it can do (feature 16h).
    pub fn behavior(&self) -> HostBehavior {
        let mut behavior = HostBehavior::default();
        let bytes = self.features.behavior;
        (behavior.acre, behavior.etdas, behavior.lbafee) = (bytes[0], bytes[1], bytes[2]);
        (behavior.hdisns, behavior.cdfe) = (bytes[3], [bytes[4], bytes[5]]);
        behavior
    }

    /// DW1 of an event's completion: of a changed zone its namespace (ZNS 1.1, 4.1.2).
    pub fn event_nsid(&self, event: AsyncEvent) -> u32 {
        let zone = self.changed_zones.first().filter(|_| event == AsyncEvent::ZONE_DESCRIPTOR_CHANGED);
        zone.map_or(0, |(nsid, _)| *nsid)
    }

    pub fn ready(&self) -> bool {
        self.csts.rdy() == 1 && self.csts.cfs() == 0
    }

    /// The submission queue of a QID, or `NONE`.
    #[inline]
    pub fn sq(&self, qid: u16) -> u32 {
        self.sqs.get(usize::from(qid)).copied().unwrap_or(NONE)
    }

    /// The completion queue of a QID, or `NONE`.
    #[inline]
    pub fn cq(&self, qid: u16) -> u32 {
        self.cqs.get(usize::from(qid)).copied().unwrap_or(NONE)
    }

    /// How it orders its own queues: CC.AMS and its features.
    pub fn arbitration(&self) -> ArbiterSettings {
        let a = self.features.arbitration;
        let weight = |w: u32| w as u16 + 1;
        let mechanism = match self.cc.ams() {
            ams::WRR => Mechanism::Wrr,
            ams::VENDOR => Mechanism::Drr,
            _ => Mechanism::Rr,
        };
        ArbiterSettings {
            mechanism,
            weights: Weights { high: weight(a.hpw()), medium: weight(a.mpw()), low: weight(a.lpw()) },
            burst: Burst::from_bits(a.ab() as u8),
            quanta: self.features.quanta,
        }
    }

    /// Enabled, and not told to shut down: only then does the keep alive timer run (base 2.0, 3.9.2).
    pub fn serves(&self) -> bool {
        self.ready() && self.cc.shn() == 0 && self.shutdown == Shutdown::None
    }

    /// Starts the keep alive timer anew, or stops it.
    pub fn keep_alive(&mut self, now: Nanos) {
        if self.serves() {
            let after = if self.kato == 0 { self.idle_limit } else { Nanos::from_millis(round_kato(self.kato).into()) };
            self.expires = now.saturating_add(after);
        }
    }

    /// From now on the host has some time to enable the controller; a controller without an association waits for ever.
    pub fn wait_for_host(&mut self, now: Nanos) {
        self.expires =
            if self.transport == Transport::Fabrics { now.saturating_add(ASSOCIATION) } else { Nanos::NEVER };
    }
}

/// How long an association is preserved after CC.EN went to 0 or a shutdown (base 2.0, 3.6.2: 2 minutes at least); also the
/// time a host has from Connect to the first enable.
const ASSOCIATION: Nanos = Nanos::from_secs(120);

/// How long a discovery controller without a keep alive timer may be without a command (base 2.0, 3.1.2.2: 2 minutes).
pub(crate) const DISCOVERY_ACTIVITY: Nanos = Nanos::from_secs(120);

/// KAS: the granularity of the keep alive timer, in 100 ms.
pub(crate) const KAS: u16 = 10;

/// A keep alive timeout rounded up to the granularity.
pub(crate) fn round_kato(ms: u32) -> u32 {
    let granularity = u32::from(KAS) * 100;
    ms.div_ceil(granularity).saturating_mul(granularity)
}

/// Nobody's connection yet.
pub(crate) const UNCLAIMED: Owner = Owner(u32::MAX);

/// The controllers of a drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers {
    pub list: Vec<Option<Box<Controller>>>,
    /// Where the search for a free place begins, so that identifiers are not reused at once.
    pub next: usize,
    /// A new generation for each controller.
    pub generation: u16,
}
