//! From a fresh admin connection to an enabled controller, one command at a time (base 2.0, 3.5.2), and the reading of the
//! discovery log.

use super::command;
use super::connection::DataTransfer;
use crate::TransportError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::offset_of;
use weir_spec::nvme::controller_class::wishes;
use weir_spec::nvme::fabrics::{self, CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN};
use weir_spec::nvme::feature::async_config;
use weir_spec::nvme::identify::{IDENTIFY_LEN, IdentifyController, IdentifyNamespace, IdentifyNvmController, cns};
use weir_spec::nvme::log::{DiscoveryEntry, DiscoveryHeader};
use weir_spec::nvme::register::{self, Cap, Cc, Csts, ams};
use weir_spec::nvme::{Cqe, Sqe, Status};
use weir_units::{Class, Nanos};
use zerocopy::{FromBytes, IntoBytes};

/// What the host wants.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The subsystem.
    pub subnqn: String,
    /// This host.
    pub hostnqn: String,
    /// This host's identifier.
    pub hostid: [u8; 16],
    /// The namespace; 0 takes the first active one.
    pub nsid: u32,
    /// I/O queue pairs.
    pub queues: u16,
    /// Entries of an I/O queue.
    pub depth: u16,
    /// The class to ask for in CATTR; counts where the operator lets it.
    pub class: Option<Class>,
    /// Whether the host wants SQHD; without, reads end with their data.
    pub sq_flow_control: bool,
    /// Header digests.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// Keep alive timeout; zero for none.
    pub kato: Nanos,
    /// CC.AMS ([`ams`]).
    pub ams: u32,
    /// CC.AMS instead, where the controller offers it.
    pub preferred_ams: Option<u32>,
    /// How long the controller may take for an answer while it is brought up.
    pub answer_timeout: Nanos,
    /// The namespace is used for long: its UUID is asked for, and the host wants to hear of changes (asynchronous events).
    pub follows_namespace: bool,
    /// Asks for one I/O queue more than `queues`, so that a queue can be made anew in another class before the old one ends.
    pub spare: bool,
}

impl ConnectOptions {
    /// For a subsystem, with the usual choices: one queue pair of 128 entries, no digests, no SQ flow control.
    pub fn new(subnqn: &str, hostnqn: &str) -> Self {
        Self {
            subnqn: subnqn.into(),
            hostnqn: hostnqn.into(),
            hostid: hostid(hostnqn),
            nsid: 1,
            queues: 1,
            depth: 128,
            class: None,
            sq_flow_control: false,
            header_digest: false,
            data_digest: false,
            kato: Nanos::from_secs(15),
            ams: ams::RR,
            preferred_ams: None,
            answer_timeout: Nanos::from_secs(10),
            follows_namespace: false,
            spare: false,
        }
    }

    /// The data of Connect, for the admin queue (`cntlid` is then [`CNTLID_DYNAMIC`]) and the I/O queues of a controller.
    pub fn connect_data(&self, cntlid: u16) -> ConnectData {
        ConnectData::new(&self.subnqn, &self.hostnqn, self.hostid, cntlid)
    }

    /// I/O queues to ask for.
    fn wanted(&self) -> u16 {
        self.queues.max(1).saturating_add(u16::from(self.spare))
    }

    /// CATTR for an I/O queue.
    pub fn cattr(&self) -> u8 {
        command::cattr(self.class, self.sq_flow_control)
    }
}

/// A host identifier that follows from the host's name (FNV-1a, twice), never zero.
fn hostid(hostnqn: &str) -> [u8; 16] {
    let fnv = |seed: u64| hostnqn.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut id = [0; 16];
    let (low, high) = id.split_at_mut(8);
    low.copy_from_slice(&fnv(0xcbf2_9ce4_8422_2325).to_le_bytes());
    high.copy_from_slice(&(fnv(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes());
    id
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Submit this command; its data to the controller is given, its data to the host goes back to `answer`.
    Command {
        /// The entry.
        sqe: Sqe,
        /// Which way its data moves.
        transfer: DataTransfer,
        /// Data for the controller.
        data: Vec<u8>,
    },
    /// Ask again after so long.
    Wait(Nanos),
    /// Nothing: [`BringUp::ready`] has it all.
    Nothing,
}

/// What was found out about controller and namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectedController {
    /// CNTLID.
    pub cntlid: u16,
    /// I/O queue pairs granted, the spare one among them.
    pub queues: u16,
    /// Entries that a queue may have at most.
    pub max_depth: u32,
    /// The longest transfer in bytes.
    pub max_transfer: u32,
    /// The longest Write Zeroes in bytes.
    pub max_zeroes: u32,
    /// In-capsule data of I/O queues in bytes.
    pub in_capsule: u32,
    /// The namespace.
    pub nsid: u32,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Bytes of the namespace.
    pub capacity: u64,
    /// Which one it is, all over the world; zeroes where it does not say.
    pub nguid: [u8; 16],
    /// The same as EUI-64.
    pub eui64: [u8; 8],
    /// The same as UUID, where it was asked for.
    pub uuid: [u8; 16],
    /// In which class its queues are, where the controller says so.
    pub class: Option<Granted>,
    /// VWC: what was written and not flushed is gone with the controller's power.
    pub volatile_write_cache: bool,
}

/// In which class a controller's queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The class of the tenant that the host belongs to.
    pub tenant: Class,
    /// CATTR counts, up to that class.
    pub wishes: bool,
    /// CATTR may say urgent.
    pub urgent: bool,
}

impl Granted {
    fn of(id: &IdentifyController) -> Option<Self> {
        let class = id.class()?;
        let bit = |bit| class.wishes & bit != 0;
        Some(Self { tenant: Class::from_bits(class.class), wishes: bit(wishes::COUNT), urgent: bit(wishes::URGENT) })
    }

    /// The class of a queue that asks for `wish`.
    pub fn to(&self, wish: Class) -> Class {
        match wish {
            _ if !self.wishes => self.tenant,
            Class::Urgent if self.urgent => Class::Urgent,
            Class::Urgent => self.tenant,
            class => class.at_most(self.tenant),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connect,
    Capabilities,
    Enable,
    AwaitReady,
    Pause,
    IdentifyController,
    Queues,
    Namespaces,
    IdentifyNamespace,
    Limits,
    Descriptors,
    Notices,
    Done,
}

/// The steps from Connect to a controller that takes I/O queues. For the discovery subsystem it ends once the controller
/// was identified.
#[derive(Debug)]
pub struct BringUp {
    options: ConnectOptions,
    phase: Phase,
    cap: Cap,
    polls_left: u32,
    ready: ConnectedController,
    /// Asynchronous events to ask for.
    notices: u32,
    unknown: bool,
}

const POLL: Nanos = Nanos::from_millis(1);

impl BringUp {
    /// Begins with Connect.
    pub fn new(options: ConnectOptions) -> Self {
        Self {
            options,
            phase: Phase::Connect,
            cap: Cap(0),
            polls_left: 0,
            ready: ConnectedController::default(),
            notices: 0,
            unknown: false,
        }
    }

    /// What was asked for.
    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// What was found out; complete when [`ask`](Self::ask) asks for nothing.
    pub fn ready(&self) -> ConnectedController {
        self.ready
    }

    /// What to do now.
    pub fn ask(&mut self) -> Ask {
        let read = |sqe, len| Ask::Command { sqe, transfer: DataTransfer::ToHost(len), data: Vec::new() };
        let bare = |sqe| Ask::Command { sqe, transfer: DataTransfer::None, data: Vec::new() };
        match self.phase {
            Phase::Connect => {
                let data = self.options.connect_data(CNTLID_DYNAMIC);
                let kato = (self.options.kato.get() / 1_000_000) as u32;
                Ask::Command {
                    sqe: command::connect(0, 32, command::cattr(None, self.options.sq_flow_control), kato),
                    transfer: DataTransfer::ToController(data.as_bytes().len() as u32),
                    data: data.as_bytes().into(),
                }
            }
            Phase::Capabilities => bare(command::property_get(register::CAP, 8)),
            Phase::Enable => {
                let cc = Cc(0).with_en(1).with_iosqes(6).with_iocqes(4).with_ams(self.options.ams);
                bare(command::property_set(register::CC, cc.0))
            }
            Phase::AwaitReady => bare(command::property_get(register::CSTS, 4)),
            Phase::Pause => {
                self.phase = Phase::AwaitReady;
                Ask::Wait(POLL)
            }
            Phase::IdentifyController => read(command::identify(cns::CONTROLLER, 0), IDENTIFY_LEN as u32),
            Phase::Queues => bare(command::set_queues(self.options.wanted())),
            Phase::Namespaces => read(command::identify(cns::ACTIVE_NAMESPACES, 0), IDENTIFY_LEN as u32),
            Phase::IdentifyNamespace => read(command::identify(cns::NAMESPACE, self.ready.nsid), IDENTIFY_LEN as u32),
            Phase::Limits => read(command::identify(cns::CS_CONTROLLER, 0), IDENTIFY_LEN as u32),
            Phase::Descriptors => {
                read(command::identify(cns::NAMESPACE_DESCRIPTORS, self.ready.nsid), IDENTIFY_LEN as u32)
            }
            Phase::Notices => bare(command::set_notices(self.notices)),
            Phase::Done => Ask::Nothing,
        }
    }

    /// The completion of the last command, with its data to the host.
    ///
    /// # Errors
    /// The controller refused, in its own words, or is none that this driver can use.
    pub fn answer(&mut self, cqe: &Cqe, data: &[u8]) -> Result<(), TransportError> {
        if !cqe.status().is_success() && !self.is_optional(cqe.status()) {
            if self.phase == Phase::Connect {
                self.unknown = is_unknown(cqe);
                return Err(connect_refusal(&self.options.subnqn, "Connect", cqe));
            }
            return Err(self.refusal(cqe));
        }
        self.phase = match self.phase {
            Phase::Connect => {
                self.ready.cntlid = cqe.dw0.get() as u16;
                Phase::Capabilities
            }
            Phase::Capabilities => {
                self.cap = Cap(u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32);
                self.ready.max_depth = self.cap.mqes() as u32 + 1;
                self.polls_left = (self.cap.to() as u32).max(1).saturating_mul(500);
                if let Some(preferred) = self.options.preferred_ams.filter(|ams| self.offers(*ams)) {
                    self.options.ams = preferred;
                }
                self.check_ams()?;
                Phase::Enable
            }
            Phase::Enable => Phase::AwaitReady,
            Phase::AwaitReady | Phase::Pause => self.status(Csts(cqe.dw0.get()))?,
            Phase::IdentifyController => self.controller(data)?,
            Phase::Queues => {
                let granted = (cqe.dw0.get() & 0xffff).min(cqe.dw0.get() >> 16) + 1;
                self.ready.queues = granted.min(u32::from(self.options.wanted())) as u16;
                self.ready.nsid = self.options.nsid;
                if self.options.nsid == 0 { Phase::Namespaces } else { Phase::IdentifyNamespace }
            }
            Phase::Namespaces => {
                self.ready.nsid = data.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
                if self.ready.nsid == 0 {
                    return Err(self.refused("it has no active namespace"));
                }
                Phase::IdentifyNamespace
            }
            Phase::IdentifyNamespace => self.namespace(data)?,
            Phase::Limits => {
                let limits = IdentifyNvmController::ref_from_prefix(data).ok().filter(|_| cqe.status().is_success());
                let (block, page) = (self.ready.block_size, 12 + self.cap.mpsmin() as u32);
                let by_mdts = self.ready.max_transfer.min(block.saturating_mul(1 << 16));
                self.ready.max_zeroes = limits.map_or(by_mdts, |(limits, _)| limits.max_zeroes(page, block));
                if self.options.follows_namespace { Phase::Descriptors } else { Phase::Done }
            }
            Phase::Descriptors => {
                let uuid = cqe.status().is_success().then(|| uuid_of(data)).flatten();
                self.ready.uuid = uuid.unwrap_or_default();
                if self.notices == 0 { Phase::Done } else { Phase::Notices }
            }
            Phase::Notices | Phase::Done => Phase::Done,
        };
        Ok(())
    }

    /// Whether an older controller says no in this way. Another error leaves open which namespace it is.
    fn is_optional(&self, status: Status) -> bool {
        match self.phase {
            Phase::Descriptors => lacks_descriptors(status),
            // Controllers before NVMe 2.0 know nothing of limits beside MDTS.
            phase => matches!(phase, Phase::Limits | Phase::Notices),
        }
    }

    fn offers(&self, mechanism: u32) -> bool {
        match mechanism {
            ams::RR => true,
            ams::WRR => self.cap.ams() & register::ams_supported::WRR != 0,
            _ => self.cap.ams() & register::ams_supported::VENDOR != 0,
        }
    }

    fn check_ams(&self) -> Result<(), TransportError> {
        if self.offers(self.options.ams) {
            Ok(())
        } else {
            Err(self.refused("it does not support the arbitration mechanism asked for"))
        }
    }

    fn status(&mut self, csts: Csts) -> Result<Phase, TransportError> {
        if csts.cfs() != 0 {
            return Err(self.refused("its controller reports a fatal status"));
        }
        if csts.rdy() != 0 {
            return Ok(Phase::IdentifyController);
        }
        self.polls_left = self.polls_left.saturating_sub(1);
        if self.polls_left == 0 {
            let text = format!("{}: the controller did not become ready in time", self.options.subnqn);
            return Err(TransportError::Timeout(text));
        }
        Ok(Phase::Pause)
    }

    fn controller(&mut self, data: &[u8]) -> Result<Phase, TransportError> {
        let Ok((id, _)) = IdentifyController::ref_from_prefix(data) else {
            return Err(self.refused("its identify data is too short"));
        };
        // MDTS counts pages of 2^(12 + MPSMIN) bytes; 0 is no limit.
        let page = 12 + self.cap.mpsmin() as u32;
        self.ready.max_transfer = match u32::from(id.mdts) {
            0 => 1 << 20,
            n => 1u32.checked_shl(n + page).filter(|b| *b != 0).unwrap_or(1 << 31),
        };
        self.ready.class = Granted::of(id);
        // OAES has the bits of the feature.
        self.notices = id.oaes.get() & (async_config::ANA | async_config::NAMESPACE);
        self.ready.volatile_write_cache = id.vwc & 1 != 0;
        self.ready.in_capsule = id.ioccsz.get().saturating_mul(16).saturating_sub(64);
        Ok(if self.options.subnqn == DISCOVERY_NQN { Phase::Done } else { Phase::Queues })
    }

    fn namespace(&mut self, data: &[u8]) -> Result<Phase, TransportError> {
        let Ok((id, _)) = IdentifyNamespace::ref_from_prefix(data) else {
            return Err(self.refused("its identify data is too short"));
        };
        let shift = id.block_shift().filter(|s| (9..=16).contains(s));
        let capacity = shift.and_then(|s| id.nsze.get().checked_mul(1 << s)).filter(|c| *c > 0);
        let (Some(shift), Some(capacity)) = (shift, capacity) else {
            let nsid = self.ready.nsid;
            return Err(TransportError::NoNamespace(format!(
                "{}: namespace {nsid} does not exist",
                self.options.subnqn
            )));
        };
        (self.ready.block_size, self.ready.capacity) = (1 << shift, capacity);
        (self.ready.nguid, self.ready.eui64) = (id.nguid, id.eui64);
        Ok(Phase::Limits)
    }

    fn refused(&self, why: &str) -> TransportError {
        TransportError::Refused(format!("{}: {why}", self.options.subnqn))
    }

    fn refusal(&self, cqe: &Cqe) -> TransportError {
        let what = match self.phase {
            Phase::Connect => "Connect",
            Phase::Capabilities | Phase::AwaitReady | Phase::Pause => "Property Get",
            Phase::Enable => "enabling the controller",
            Phase::IdentifyController => "Identify Controller",
            Phase::Queues => "setting the number of queues",
            Phase::Namespaces | Phase::IdentifyNamespace | Phase::Descriptors => "Identify Namespace",
            Phase::Limits => "Identify Controller of the NVM command set",
            Phase::Notices => "Set Features, Asynchronous Event Configuration",
            Phase::Done => "the command",
        };
        refusal(&self.options.subnqn, what, cqe)
    }

    /// Whether Connect was refused because there is no such subsystem there.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }
}

/// Whether this status of Identify, CNS 03h, says that the controller has no namespace identification descriptors: one before NVMe 1.3.
pub(crate) fn lacks_descriptors(status: Status) -> bool {
    [Status::INVALID_FIELD, Status::INVALID_OPCODE].iter().any(|code| status.same_code(*code))
}

/// The UUID of a namespace identification descriptor list (base 2.0, Figure 277): type, length, two reserved bytes, identifier.
pub(crate) fn uuid_of(mut list: &[u8]) -> Option<[u8; 16]> {
    const UUID: u8 = 3;
    while let [kind, len, _, _, rest @ ..] = list {
        let (kind, len) = (*kind, usize::from(*len));
        if kind == 0 || len == 0 {
            return None;
        }
        let identifier = rest.get(..len)?;
        if kind == UUID {
            return identifier.try_into().ok();
        }
        list = &rest[len..];
    }
    None
}

/// The controller said no to a step.
pub(super) fn refusal(subnqn: &str, what: &str, cqe: &Cqe) -> TransportError {
    let text = format!("{subnqn} refused {what}: {}", cqe.status());
    match cqe.status().same_code(Status::INVALID_NAMESPACE_OR_FORMAT) {
        true => TransportError::NoNamespace(text),
        false => TransportError::Refused(text),
    }
}

/// The controller said no to Connect: which parameter is wrong, where it says so (base 2.0, Figure 383).
pub fn connect_refusal(subnqn: &str, what: &str, cqe: &Cqe) -> TransportError {
    let mut text = format!("{subnqn} refused {what}: {}", cqe.status().connect_text());
    if cqe.status().same_code(Status::CONNECT_INVALID_PARAMETERS) {
        let (in_data, offset) = fabrics::invalid_parameter_of(cqe.dw0.get());
        text = format!("{text}, {}", fabrics::parameter_name(in_data, offset));
    }
    if cqe.status().same_code(Status::CONNECT_INVALID_HOST) {
        text += ": it serves other hosts; connect as one of them, by its NQN";
    }
    TransportError::Refused(text)
}

/// Whether Connect was refused because of SUBNQN.
fn is_unknown(cqe: &Cqe) -> bool {
    cqe.status().same_code(Status::CONNECT_INVALID_PARAMETERS)
        && fabrics::invalid_parameter_of(cqe.dw0.get()) == (true, offset_of!(ConnectData, subnqn) as u16)
}

/// Reads the discovery log page (base 2.0, 5.16.1.23) until two looks at its generation counter agree.
#[derive(Debug, Default)]
pub struct Discovery {
    generation: Option<u64>,
    expected: u64,
    entries: Vec<DiscoveryEntry>,
    done: bool,
    tries: u32,
}

/// Records of a discovery log that are read; more is not believed.
const RECORDS_MAX: u64 = 4096;
const RECORD: u64 = size_of::<DiscoveryEntry>() as u64;

impl Discovery {
    /// Nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to read now.
    pub fn ask(&self) -> Ask {
        let read = |offset, len| Ask::Command {
            sqe: command::discovery_log(offset, len),
            transfer: DataTransfer::ToHost(len),
            data: Vec::new(),
        };
        let have = self.entries.len() as u64;
        match (self.done, self.generation) {
            (true, _) => Ask::Nothing,
            (false, Some(_)) if have < self.expected => {
                let records = (self.expected - have).min(4);
                read((have + 1) * RECORD, (records * RECORD) as u32)
            }
            _ => read(0, RECORD as u32),
        }
    }

    /// What was read.
    ///
    /// # Errors
    /// The controller refused, or its log makes no sense or does not stand still.
    pub fn answer(&mut self, cqe: &Cqe, data: &[u8]) -> Result<(), TransportError> {
        if !cqe.status().is_success() {
            return Err(refusal(DISCOVERY_NQN, "Get Log Page", cqe));
        }
        let odd = |why: &str| TransportError::Protocol(format!("the discovery log {why}"));
        if self.generation.is_some() && (self.entries.len() as u64) < self.expected {
            for chunk in data.chunks_exact(RECORD as usize) {
                if (self.entries.len() as u64) < self.expected {
                    self.entries.push(DiscoveryEntry::read_from_bytes(chunk).unwrap_or_default());
                }
            }
            return if data.len() < RECORD as usize { Err(odd("is cut short")) } else { Ok(()) };
        }
        let (header, _) = DiscoveryHeader::read_from_prefix(data).map_err(|_| odd("is cut short"))?;
        if self.generation == Some(header.genctr.get()) {
            self.done = true;
            return Ok(());
        }
        self.tries += 1;
        if self.tries > 16 {
            return Err(odd("changes faster than it can be read"));
        }
        if header.numrec.get() > RECORDS_MAX {
            return Err(odd("claims more records than a network has"));
        }
        self.generation = Some(header.genctr.get());
        self.expected = header.numrec.get();
        self.entries.clear();
        self.done = self.expected == 0;
        Ok(())
    }

    /// The records.
    pub fn entries(&self) -> &[DiscoveryEntry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use zerocopy::FromZeros;

    #[test]
    fn a_uuid_is_found_among_descriptors() {
        let mut list = vec![1, 8, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 16, 0, 0];
        list.extend([2; 16]);
        assert_eq!(uuid_of(&list), None);
        let without = list.clone();
        list.extend([3, 16, 0, 0]);
        list.extend([3; 16]);
        assert_eq!(uuid_of(&list), Some([3; 16]));
        assert_eq!(uuid_of(&list[..list.len() - 1]), None, "cut short");
        for odd in [&[0; 4096][..], &[3, 0, 0, 0], &[3, 8, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], &[3], &[]] {
            assert_eq!(uuid_of(odd), None);
        }
        assert_eq!(uuid_of(&[without, vec![0; 16]].concat()), None);
    }

    fn answered_with(phase: Phase, status: Status) -> (Result<(), TransportError>, BringUp) {
        let mut machine = BringUp::new(ConnectOptions::new("nqn.a", "nqn.h"));
        (machine.phase, machine.notices) = (phase, async_config::ANA);
        let mut cqe = Cqe::default();
        cqe.set_status(status);
        (machine.answer(&cqe, &[0; 4096]), machine)
    }

    /// A UUID that was not told because of a passing error would be another drive's.
    #[test]
    fn only_a_controller_that_knows_no_descriptors_goes_without_them() {
        for status in [Status::INVALID_FIELD, Status::INVALID_OPCODE.dnr(), Status::SUCCESS] {
            let (answer, machine) = answered_with(Phase::Descriptors, status);
            assert_eq!((answer, machine.phase), (Ok(()), Phase::Notices), "{status}");
        }
        for status in [Status::INTERNAL_ERROR, Status::NAMESPACE_NOT_READY, Status::INVALID_NAMESPACE_OR_FORMAT.dnr()] {
            assert!(answered_with(Phase::Descriptors, status).0.is_err(), "{status}");
        }
        assert_eq!(answered_with(Phase::Notices, Status::INTERNAL_ERROR).1.phase, Phase::Done);
    }

    /// A bit of the feature that OAES lacks makes Set Features fail, and with it all other notices.
    #[test]
    fn notices_are_asked_for_as_far_as_there_are_any() {
        let wanted = async_config::ANA | async_config::NAMESPACE;
        let cases = [(0, 0), (async_config::ANA, async_config::ANA), (u32::MAX, wanted)];
        for (oaes, asked) in cases {
            let mut id = IdentifyController::new_zeroed();
            id.oaes.set(oaes);
            let (_, mut machine) = answered_with(Phase::Notices, Status::SUCCESS);
            machine.controller(id.as_bytes()).unwrap();
            machine.phase = Phase::Descriptors;
            machine.answer(&Cqe::default(), &[0; 4096]).unwrap();
            match machine.ask() {
                Ask::Command { sqe, .. } => assert_eq!(sqe, command::set_notices(asked)),
                Ask::Nothing => assert_eq!(asked, 0),
                Ask::Wait(_) => panic!("it waits"),
            }
        }
    }

    #[test]
    fn a_queue_has_what_it_asks_for_up_to_its_tenants_class() {
        let mut id = IdentifyController::new_zeroed();
        assert_eq!(Granted::of(&id), None, "another vendor's");
        // Class medium; wishes count, urgent not.
        id.vs[..8].copy_from_slice(b"WEIR\x01\x02\x01\x00");
        let granted = Granted::of(&id).unwrap();
        let found = Class::ALL.map(|class| granted.to(class));
        assert_eq!(found, [Class::Medium, Class::Medium, Class::Medium, Class::Low]);
        id.vs[6] = 3;
        assert_eq!(Granted::of(&id).unwrap().to(Class::Urgent), Class::Urgent);
        id.vs[6] = 2;
        assert_eq!(Class::ALL.map(|class| Granted::of(&id).unwrap().to(class)), [Class::Medium; 4]);
        id.vs[4] = 2;
        assert_eq!(Granted::of(&id), None, "a later version");
    }
}
