//! Bring a controller up (base 2.0, 3.5.1): disable, configure, enable, identify, features, queues.

use super::plan::ADMIN_ENTRIES;
use super::{ControllerPlan, IoQueue, PAGE, Port, QueuePairRings, protocol, refused};
use crate::TransportError;
use crate::nvme_tcp::{command, lacks_descriptors, uuid_of};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_spec::nvme::feature::{Queues, fid};
use weir_spec::nvme::identify::{IDENTIFY_LEN, IdentifyController, IdentifyNamespace, IdentifyNvmController, cns};
use weir_spec::nvme::register::{self, Aqa, Cap, Cc, Csts, ams};
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Who the controller says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// NQN of the subsystem.
    pub subnqn: String,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Bytes of the longest transfer; `u32::MAX` if unlimited.
    pub max_transfer: u32,
    /// Bytes of the longest Write Zeroes.
    pub max_zeroes: u32,
    /// Whether it takes scatter gather lists.
    pub sgl: bool,
    /// Blocks of the namespace.
    pub blocks: u64,
    /// Bytes of a block, as a power of two.
    pub block_shift: u32,
    /// The namespace's NGUID; zeroes where it has none.
    pub nguid: [u8; 16],
    /// The namespace's EUI-64; zeroes where it has none.
    pub eui64: [u8; 8],
    /// The namespace's UUID; zeroes where it has none.
    pub uuid: [u8; 16],
}

/// A controller that is up.
#[derive(Debug)]
pub struct EnabledController {
    /// Who it is.
    pub identity: ControllerIdentity,
    /// The admin queue's rings.
    pub admin: QueuePairRings,
    /// The I/O queue pairs of the plan, in order.
    pub queues: Vec<IoQueue>,
}

/// Where the bring-up stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing done.
    Start,
    /// CC.EN is 0; waits for CSTS.RDY 0.
    Disabling,
    /// CC.EN is 1; waits for CSTS.RDY 1.
    Enabling,
    /// An admin command is on its way.
    Admin(Step),
    /// Up, or failed.
    Ended,
}

/// Admin commands, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Controller,
    Queues,
    Arbitration,
    Quanta,
    Namespace,
    Limits,
    Descriptors,
    CreateCq(u16),
    CreateSq(u16),
}

/// Brings a controller up; call [`poll`](Self::poll) until it is.
#[derive(Debug)]
pub struct BringUp {
    plan: ControllerPlan,
    state: State,
    deadline: Nanos,
    patience: Nanos,
    admin: QueuePairRings,
    identity: ControllerIdentity,
    next_cid: u16,
}

impl BringUp {
    /// Nothing is touched before the first poll.
    pub fn new(plan: ControllerPlan) -> Self {
        let admin = QueuePairRings::new(0, ADMIN_ENTRIES, plan.admin_sq(), plan.admin_cq());
        BringUp {
            plan,
            state: State::Start,
            deadline: Nanos::NEVER,
            patience: Nanos(0),
            admin,
            identity: ControllerIdentity::default(),
            next_cid: 0,
        }
    }

    /// Goes as far as it can without waiting. `None`: not there yet.
    ///
    /// # Errors
    /// The controller lacks what the plan wants, refuses a command, fails, or is late (CAP.TO).
    pub fn poll<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<Option<EnabledController>, TransportError> {
        loop {
            let next = match self.state {
                State::Start => Some(self.disable(now, port)?),
                State::Disabling => self.wait_ready(now, port, 0)?.map(|()| self.enable(now, port)),
                State::Enabling => self.wait_ready(now, port, 1)?.map(|()| self.send(now, port, Step::Controller)),
                State::Admin(step) => match self.answer(now, port)? {
                    None => None,
                    Some(cqe) => match self.take(port, step, &cqe)? {
                        Some(step) => Some(self.send(now, port, step)),
                        None => {
                            self.state = State::Ended;
                            return Ok(Some(self.ready(port)));
                        }
                    },
                },
                State::Ended => return Err(TransportError::Usage("the bring-up has ended".to_string())),
            };
            match next {
                Some(state) => self.state = state,
                None => return Ok(None),
            }
        }
    }

    fn disable<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<State, TransportError> {
        let cap = Cap(port.register(register::CAP, 8));
        if cap.0 == u64::MAX || cap.0 == 0 {
            return Err(TransportError::Unreachable("the controller's registers do not answer".to_string()));
        }
        self.check(cap)?;
        // CAP.TO is in units of 500 ms; 0 would be no patience at all.
        self.patience = Nanos::from_millis(500 * cap.to().max(1));
        self.deadline = now.saturating_add(self.patience);
        let cc = Cc(port.register(register::CC, 4) as u32);
        if cc.en() == 1 {
            port.set_register(register::CC, u64::from(cc.with_en(0).0), 4);
        }
        Ok(State::Disabling)
    }

    fn check(&self, cap: Cap) -> Result<(), TransportError> {
        let lacks =
            |what: String| Err(TransportError::Refused(format!("the controller cannot do what is asked: {what}")));
        if cap.css() & 1 == 0 {
            return lacks("it has no NVM command set".to_string());
        }
        if cap.mpsmin() != 0 {
            return lacks("its smallest memory page is above 4 KiB".to_string());
        }
        if cap.dstrd() != 0 {
            return lacks("its doorbells are not 4 bytes apart".to_string());
        }
        let supported = match self.plan.ams {
            ams::RR => true,
            ams::WRR => cap.ams() & register::ams_supported::WRR != 0,
            _ => cap.ams() & register::ams_supported::VENDOR != 0,
        };
        if !supported {
            return lacks(format!("it does not offer arbitration mechanism {}", self.plan.ams));
        }
        let most = cap.mqes() + 1;
        match self.plan.queues.iter().map(|q| u64::from(q.depth) + 1).max() {
            Some(entries) if entries > most => {
                lacks(format!("a queue depth of {} is above its largest, {}", entries - 1, most - 1))
            }
            _ => Ok(()),
        }
    }

    fn wait_ready<P: Port>(&mut self, now: Nanos, port: &mut P, want: u32) -> Result<Option<()>, TransportError> {
        let csts = Csts(port.register(register::CSTS, 4) as u32);
        if csts.0 == u32::MAX {
            return Err(TransportError::Closed("the controller's link is gone".to_string()));
        }
        if want == 1 && csts.cfs() == 1 {
            return Err(TransportError::Refused("the controller reports a fatal status instead of ready".to_string()));
        }
        if csts.rdy() == want {
            return Ok(Some(()));
        }
        self.in_time(now, if want == 1 { "become ready" } else { "stop" }).map(|()| None)
    }

    fn in_time(&self, now: Nanos, what: &str) -> Result<(), TransportError> {
        if now <= self.deadline {
            return Ok(());
        }
        Err(TransportError::Timeout(format!("the controller did not {what} within {}", self.patience)))
    }

    fn enable<P: Port>(&mut self, now: Nanos, port: &mut P) -> State {
        let entries = ADMIN_ENTRIES - 1;
        let aqa = Aqa(0).with_asqs(entries).with_acqs(entries);
        port.set_register(register::AQA, u64::from(aqa.0), 4);
        port.set_register(register::ASQ, self.plan.admin_sq(), 8);
        port.set_register(register::ACQ, self.plan.admin_cq(), 8);
        let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_ams(self.plan.ams).with_en(1);
        self.deadline = now.saturating_add(self.patience);
        port.set_register(register::CC, u64::from(cc.0), 4);
        State::Enabling
    }

    fn send<P: Port>(&mut self, now: Nanos, port: &mut P, step: Step) -> State {
        let mut sqe = self.command(step);
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = U16::new(self.next_cid);
        // One command at a time: the ring cannot be full.
        self.admin.push(port, &sqe.words());
        self.admin.ring_tail(port);
        self.deadline = now.saturating_add(self.patience);
        State::Admin(step)
    }

    fn command(&self, step: Step) -> Sqe {
        let to_page = |mut sqe: Sqe| {
            sqe.dptr[0] = U64::new(self.plan.page());
            sqe
        };
        match step {
            Step::Controller => to_page(command::identify(cns::CONTROLLER, 0)),
            Step::Namespace => to_page(command::identify(cns::NAMESPACE, self.plan.nsid)),
            Step::Limits => to_page(command::identify(cns::CS_CONTROLLER, 0)),
            Step::Descriptors => to_page(command::identify(cns::NAMESPACE_DESCRIPTORS, self.plan.nsid)),
            Step::Queues => command::set_queues(self.plan.queues.len() as u16),
            Step::Arbitration => set_feature(fid::ARBITRATION, [self.plan.arbitration.map_or(0, |a| a.0), 0, 0]),
            Step::Quanta => set_feature(fid::QUANTA, self.plan.quanta.unwrap_or_default()),
            Step::CreateCq(i) => self.create(AdminOpcode::CREATE_IO_CQ, i),
            Step::CreateSq(i) => self.create(AdminOpcode::CREATE_IO_SQ, i),
        }
    }

    /// Create I/O Completion Queue and Create I/O Submission Queue (base 2.0, 5.4 and 5.5), both physically contiguous.
    fn create(&self, opcode: AdminOpcode, index: u16) -> Sqe {
        let at = self.plan.queue(usize::from(index));
        let queue = self.plan.queues[usize::from(index)];
        let rings = QueuePairRings::new(index + 1, queue.depth + 1, at.sq, at.cq);
        match opcode {
            AdminOpcode::CREATE_IO_CQ => create(opcode, index + 1, &rings, at.cq, 1),
            _ => create_sq(index + 1, &rings, queue.priority),
        }
    }

    fn answer<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<Option<Cqe>, TransportError> {
        let Some(cqe) = self.admin.pop(port)? else {
            let csts = Csts(port.register(register::CSTS, 4) as u32);
            if csts.cfs() == 1 {
                return Err(TransportError::Refused("the controller reports a fatal status".to_string()));
            }
            return self.in_time(now, "answer an admin command").map(|()| None);
        };
        self.admin.ring_head(port);
        if cqe.cid.get() != self.next_cid {
            return Err(protocol("a completion of a command that was not sent"));
        }
        Ok(Some(cqe))
    }

    /// What the answer says, and the next step.
    fn take<P: Port>(&mut self, port: &mut P, step: Step, cqe: &Cqe) -> Result<Option<Step>, TransportError> {
        let status = cqe.status();
        // Controllers before NVMe 2.0 know nothing of limits beside MDTS.
        let is_known = step == Step::Descriptors && lacks_descriptors(status) || step == Step::Limits;
        if !status.is_success() && !is_known {
            return Err(refused(&describe(step), status));
        }
        match step {
            Step::Controller => self.identified(&self.read_page(port)),
            Step::Queues => self.granted(Queues(cqe.dw0.get()))?,
            Step::Namespace => self.namespace(&self.read_page(port))?,
            Step::Limits => {
                let block = 1 << self.identity.block_shift;
                self.identity.max_zeroes = match status.is_success() {
                    true => self.read_page::<P, IdentifyNvmController>(port).max_zeroes(PAGE.trailing_zeros(), block),
                    false => self.identity.max_transfer.min(block.saturating_mul(1 << 16)),
                };
            }
            Step::Descriptors if status.is_success() => self.described(port),
            _ => {}
        }
        let (arbitration, quanta) = (self.plan.arbitration.is_some(), self.plan.quanta.is_some());
        let created = |i: u16| usize::from(i) + 1 < self.plan.queues.len();
        Ok(match step {
            Step::Controller => Some(Step::Queues),
            Step::Queues if arbitration => Some(Step::Arbitration),
            Step::Queues | Step::Arbitration if quanta => Some(Step::Quanta),
            Step::Queues | Step::Arbitration | Step::Quanta => Some(Step::Namespace),
            Step::Namespace => Some(Step::Limits),
            Step::Limits => Some(Step::Descriptors),
            Step::Descriptors => (!self.plan.queues.is_empty()).then_some(Step::CreateCq(0)),
            Step::CreateCq(i) => Some(Step::CreateSq(i)),
            Step::CreateSq(i) => created(i).then_some(Step::CreateCq(i + 1)),
        })
    }

    fn read_page<P: Port, T: FromZeros + IntoBytes + zerocopy::FromBytes>(&self, port: &mut P) -> T {
        let mut answer = T::new_zeroed();
        port.read(self.plan.page(), answer.as_mut_bytes());
        answer
    }

    fn identified(&mut self, id: &IdentifyController) {
        let most = 1u64.checked_shl(12 + u32::from(id.mdts)).filter(|b| id.mdts != 0 && *b < u64::from(u32::MAX));
        self.identity.subnqn = id.subnqn().unwrap_or_default().to_string();
        self.identity.serial = id.serial().to_string();
        self.identity.model = id.model().to_string();
        self.identity.max_transfer = most.map_or(u32::MAX, |b| b as u32);
        self.identity.sgl = id.sgls.get() & 3 != 0;
    }

    fn granted(&self, queues: Queues) -> Result<(), TransportError> {
        let (wanted, granted) = (self.plan.queues.len(), queues.nsq().min(queues.ncq()) as usize + 1);
        if granted >= wanted {
            return Ok(());
        }
        Err(TransportError::Refused(format!("the controller grants {granted} I/O queues, not {wanted}")))
    }

    fn namespace(&mut self, ns: &IdentifyNamespace) -> Result<(), TransportError> {
        let nsid = self.plan.nsid;
        if ns.nsze.get() == 0 {
            return Err(TransportError::Refused(format!("there is no namespace {nsid}")));
        }
        self.identity.blocks = ns.nsze.get();
        (self.identity.nguid, self.identity.eui64) = (ns.nguid, ns.eui64);
        self.identity.block_shift = ns.block_shift().ok_or_else(|| protocol("a block size that no drive has"))?;
        Ok(())
    }

    fn described<P: Port>(&mut self, port: &mut P) {
        let mut list = [0; IDENTIFY_LEN];
        port.read(self.plan.page(), &mut list);
        self.identity.uuid = uuid_of(&list).unwrap_or_default();
    }

    fn ready<P: Port>(&mut self, port: &mut P) -> EnabledController {
        let queues = (0..self.plan.queues.len()).map(|i| IoQueue::new(&self.plan, i, &self.identity, port)).collect();
        EnabledController { identity: self.identity.clone(), admin: self.admin.clone(), queues }
    }
}

fn create(opcode: AdminOpcode, qid: u16, rings: &QueuePairRings, address: u64, cdw11: u32) -> Sqe {
    let mut sqe = Sqe { opcode: opcode.0, ..Sqe::default() };
    sqe.dptr[0] = U64::new(address);
    sqe.cdw10 = U32::new((rings.entries() - 1) << 16 | u32::from(qid));
    sqe.cdw11 = U32::new(cdw11);
    sqe
}

/// Create I/O Submission Queue, with the completion queue of the same number and QPRIO (base 2.0, Figure 160).
pub(super) fn create_sq(qid: u16, rings: &QueuePairRings, priority: Class) -> Sqe {
    let cdw11 = u32::from(qid) << 16 | u32::from(priority.bits()) << 1 | 1;
    create(AdminOpcode::CREATE_IO_SQ, qid, rings, rings.addresses().0, cdw11)
}

fn set_feature(fid: u8, values: [u32; 3]) -> Sqe {
    let [cdw11, cdw12, cdw13] = values.map(U32::new);
    let cdw10 = U32::new(u32::from(fid));
    Sqe { opcode: AdminOpcode::SET_FEATURES.0, cdw10, cdw11, cdw12, cdw13, ..Sqe::default() }
}

fn describe(step: Step) -> String {
    match step {
        Step::Controller => "Identify Controller".to_string(),
        Step::Queues => "Set Features, Number of Queues".to_string(),
        Step::Arbitration => "Set Features, Arbitration".to_string(),
        Step::Quanta => "Set Features, Deficit Round Robin Quanta".to_string(),
        Step::Namespace => "Identify Namespace".to_string(),
        Step::Limits => "Identify, NVM Command Set Controller".to_string(),
        Step::Descriptors => "Identify, Namespace Identification Descriptors".to_string(),
        Step::CreateCq(i) => format!("completion queue {}", i + 1),
        Step::CreateSq(i) => format!("submission queue {}", i + 1),
    }
}

const _: () = assert!(size_of::<IdentifyController>() as u64 == PAGE);
