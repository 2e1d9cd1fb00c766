//! Bring a controller up (base 2.0, 3.5.1): disable, configure, enable, identify, features, queues. Or take over one that a process before
//! this one has left up: its I/O queues are deleted, which ends or aborts what was submitted to them, and created again.
//!
//! ```text
//!   taking_over: Settling ── DeleteSq, DeleteCq of each ──┐      anything unexpected: Disabling
//!   new: Disabling ── Enabling ── Controller, Queues ─────┴─► Namespace … CreateCq, CreateSq of each ─► Ended
//! ```

use super::admin::AdminQueue;
use super::plan::ADMIN_ENTRIES;
use super::{ControllerPlan, IoQueue, PAGE, Port, QueuePairRings, protocol, refused};
use crate::TransportError;
use crate::nvme_tcp::{command, lacks_descriptors, uuid_of};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_spec::nvme::feature::{Queues, fid};
use weir_spec::nvme::identify::{
    IDENTIFY_LEN, IdentifyController, IdentifyNamespace, IdentifyNvmController, cns, oacs,
};
use weir_spec::nvme::register::{self, Aqa, Cap, Cc, Csts, ams};
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe, Status};
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
    /// It was told of shadow doorbells, and has taken them.
    pub shadow_doorbells: bool,
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
    /// The admin queue.
    pub admin: AdminQueue,
    /// The I/O queue pairs of the plan, in order.
    pub queues: Vec<IoQueue>,
    /// It was up already, and was not reset.
    pub was_up: bool,
}

/// Where the bring-up stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing done.
    Start,
    /// A controller that is up; waits for the answer to what the process before has sent.
    Settling,
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
    DeleteSq(u16),
    DeleteCq(u16),
    Controller,
    Queues,
    Arbitration,
    Quanta,
    Namespace,
    Limits,
    Descriptors,
    ShadowDoorbells,
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
    admin: AdminQueue,
    identity: ControllerIdentity,
    next_cid: u16,
    has_shadow_doorbells: bool,
    /// It goes on with a controller that is up, until something is not as it was left.
    takes_over: bool,
    /// When a command that may not have been rung for is rung for.
    ring_at: Nanos,
}

/// How long a command of the process before is waited for until it is rung for again: a controller may report a doorbell that it has
/// been told already (base 2.0, 5.2, Invalid Doorbell Write Value).
const RING_AFTER: Nanos = Nanos::from_millis(20);

impl BringUp {
    /// Nothing is touched before the first poll.
    pub fn new(plan: ControllerPlan) -> Self {
        BringUp {
            admin: AdminQueue::new(&plan),
            plan,
            state: State::Start,
            deadline: Nanos::NEVER,
            patience: Nanos(0),
            identity: ControllerIdentity::default(),
            next_cid: 0,
            has_shadow_doorbells: false,
            takes_over: false,
            ring_at: Nanos::NEVER,
        }
    }

    /// The same of a controller that a process before this one may have left up, with the memory that it had: without a reset if it is as
    /// that process has noted it. Once it is up, nothing that was submitted before is carried out any more.
    pub fn taking_over(plan: ControllerPlan) -> Self {
        BringUp { takes_over: true, ..Self::new(plan) }
    }

    /// Goes as far as it can without waiting. `None`: not there yet.
    ///
    /// # Errors
    /// The controller lacks what the plan wants, refuses a command, fails, or is late (CAP.TO).
    pub fn poll<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<Option<EnabledController>, TransportError> {
        match self.advance(now, port) {
            Err(_) if self.takes_over => {
                *self = BringUp::new(self.plan.clone());
                self.advance(now, port)
            }
            result => result,
        }
    }

    fn advance<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<Option<EnabledController>, TransportError> {
        loop {
            let next = match self.state {
                State::Start if self.takes_over => Some(self.take_over(now, port)?),
                State::Start => Some(self.disable(now, port)?),
                State::Settling => self.settle(now, port)?.then(|| self.send(now, port, Step::DeleteSq(0))),
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

    /// Whether the controller answers and can do what is wanted; how long it may take.
    fn begin<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<(), TransportError> {
        let cap = Cap(port.register(register::CAP, 8));
        if cap.0 == u64::MAX || cap.0 == 0 {
            return Err(TransportError::Unreachable("the controller's registers do not answer".to_string()));
        }
        self.check(cap)?;
        // CAP.TO is in units of 500 ms; 0 would be no patience at all.
        self.patience = Nanos::from_millis(500 * cap.to().max(1));
        self.deadline = now.saturating_add(self.patience);
        Ok(())
    }

    /// The controller must be as the process before has noted it.
    fn take_over<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<State, TransportError> {
        self.begin(now, port)?;
        let other = || TransportError::Refused("the controller is not as it was left".to_string());
        self.admin = AdminQueue::left(&self.plan, port).ok_or_else(other)?;
        let csts = Csts(port.register(register::CSTS, 4) as u32);
        let is_up = csts.0 != u32::MAX && csts.rdy() == 1 && csts.cfs() == 0 && csts.shst() == 0;
        let is_ours = port.register(register::CC, 4) == u64::from(self.configuration().0)
            && port.register(register::AQA, 4) == u64::from(queue_sizes().0)
            && port.register(register::ASQ, 8) == self.plan.admin_sq()
            && port.register(register::ACQ, 8) == self.plan.admin_cq();
        if !is_up || !is_ours || self.plan.queues.is_empty() {
            return Err(other());
        }
        self.ring_at = now.saturating_add(RING_AFTER);
        Ok(State::Settling)
    }

    /// Whether no command of the process before is on its way any more.
    fn settle<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<bool, TransportError> {
        if !self.admin.is_busy() || self.admin.answer(port)?.is_some() {
            return Ok(true);
        }
        if now >= self.ring_at {
            self.ring_at = Nanos::NEVER;
            self.admin.ring_again(port);
        }
        self.in_time(now, "answer an admin command").map(|()| false)
    }

    fn disable<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<State, TransportError> {
        self.begin(now, port)?;
        self.admin.set_up(port, false);
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

    /// CC as it is while the controller is up.
    fn configuration(&self) -> Cc {
        Cc(0).with_iosqes(6).with_iocqes(4).with_ams(self.plan.ams).with_en(1)
    }

    fn enable<P: Port>(&mut self, now: Nanos, port: &mut P) -> State {
        // Of a controller that was up in this memory before.
        clear(port, self.plan.admin_cq(), ADMIN_ENTRIES);
        port.set_register(register::AQA, u64::from(queue_sizes().0), 4);
        port.set_register(register::ASQ, self.plan.admin_sq(), 8);
        port.set_register(register::ACQ, self.plan.admin_cq(), 8);
        self.deadline = now.saturating_add(self.patience);
        port.set_register(register::CC, u64::from(self.configuration().0), 4);
        State::Enabling
    }

    fn send<P: Port>(&mut self, now: Nanos, port: &mut P, step: Step) -> State {
        let mut sqe = self.command(step);
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = U16::new(self.next_cid);
        if step == Step::ShadowDoorbells {
            // Nothing but the admin queue is there: zero is what all others begin with.
            for page in [0, PAGE] {
                port.write(self.plan.shadow() + page, &[0; PAGE as usize]);
            }
        }
        if let Step::CreateCq(i) = step {
            let at = self.plan.queue(usize::from(i));
            clear(port, at.cq, self.plan.queues[usize::from(i)].depth + 1);
        }
        // One command at a time: the ring cannot be full.
        self.admin.send(port, &sqe);
        self.deadline = now.saturating_add(self.patience);
        State::Admin(step)
    }

    fn command(&self, step: Step) -> Sqe {
        let to_page = |mut sqe: Sqe| {
            sqe.dptr[0] = U64::new(self.plan.page());
            sqe
        };
        match step {
            Step::DeleteSq(i) => delete(AdminOpcode::DELETE_IO_SQ, i + 1),
            Step::DeleteCq(i) => delete(AdminOpcode::DELETE_IO_CQ, i + 1),
            Step::Controller => to_page(command::identify(cns::CONTROLLER, 0)),
            Step::Namespace => to_page(command::identify(cns::NAMESPACE, self.plan.nsid)),
            Step::Limits => to_page(command::identify(cns::CS_CONTROLLER, 0)),
            Step::Descriptors => to_page(command::identify(cns::NAMESPACE_DESCRIPTORS, self.plan.nsid)),
            Step::ShadowDoorbells => {
                let pages = [self.plan.shadow(), self.plan.shadow() + PAGE].map(U64::new);
                Sqe { opcode: AdminOpcode::DOORBELL_BUFFER_CONFIG.0, dptr: pages, ..Sqe::default() }
            }
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
            AdminOpcode::CREATE_IO_CQ => {
                let interrupt = if self.plan.interrupts { u32::from(index + 1) << 16 | 1 << 1 } else { 0 };
                create(opcode, index + 1, &rings, at.cq, interrupt | 1)
            }
            _ => create_sq(index + 1, &rings, queue.priority),
        }
    }

    fn answer<P: Port>(&mut self, now: Nanos, port: &mut P) -> Result<Option<Cqe>, TransportError> {
        let Some(cqe) = self.admin.answer(port)? else {
            let csts = Csts(port.register(register::CSTS, 4) as u32);
            if csts.cfs() == 1 {
                return Err(TransportError::Refused("the controller reports a fatal status".to_string()));
            }
            return self.in_time(now, "answer an admin command").map(|()| None);
        };
        if cqe.cid.get() != self.next_cid {
            return Err(protocol("a completion of a command that was not sent"));
        }
        Ok(Some(cqe))
    }

    /// What the answer says, and the next step.
    fn take<P: Port>(&mut self, port: &mut P, step: Step, cqe: &Cqe) -> Result<Option<Step>, TransportError> {
        let status = cqe.status();
        let is_known = match step {
            Step::Descriptors => lacks_descriptors(status),
            // Controllers before NVMe 2.0 know nothing of limits beside MDTS; doorbells work without shadows.
            Step::Limits | Step::ShadowDoorbells => true,
            // The process before was deleting or creating it.
            Step::DeleteSq(_) | Step::DeleteCq(_) => status.same_code(Status::INVALID_QUEUE_ID),
            _ => false,
        };
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
            Step::ShadowDoorbells => self.identity.shadow_doorbells = status.is_success(),
            _ => {}
        }
        let (arbitration, quanta) = (self.plan.arbitration.is_some(), self.plan.quanta.is_some());
        let created = |i: u16| usize::from(i) + 1 < self.plan.queues.len();
        Ok(match step {
            Step::DeleteSq(i) => Some(Step::DeleteCq(i)),
            Step::DeleteCq(i) => Some(if created(i) { Step::DeleteSq(i + 1) } else { Step::Controller }),
            // The number of queues is fixed until a reset (base 2.0, 5.27.1.5).
            Step::Controller if self.takes_over && arbitration => Some(Step::Arbitration),
            Step::Controller if self.takes_over && quanta => Some(Step::Quanta),
            Step::Controller if self.takes_over => Some(Step::Namespace),
            Step::Controller => Some(Step::Queues),
            Step::Queues if arbitration => Some(Step::Arbitration),
            Step::Queues | Step::Arbitration if quanta => Some(Step::Quanta),
            Step::Queues | Step::Arbitration | Step::Quanta => Some(Step::Namespace),
            Step::Namespace => Some(Step::Limits),
            Step::Limits => Some(Step::Descriptors),
            Step::Descriptors if self.plan.shadow_doorbells && self.has_shadow_doorbells => Some(Step::ShadowDoorbells),
            Step::Descriptors | Step::ShadowDoorbells => (!self.plan.queues.is_empty()).then_some(Step::CreateCq(0)),
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
        self.has_shadow_doorbells = id.oacs.get() & oacs::DOORBELL_BUFFERS != 0;
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
            return Err(TransportError::NoNamespace(format!("there is no namespace {nsid}")));
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
        self.admin.set_up(port, true);
        let (identity, admin) = (self.identity.clone(), self.admin.clone());
        EnabledController { identity, admin, queues, was_up: self.takes_over }
    }
}

/// Sizes of the admin rings.
fn queue_sizes() -> Aqa {
    let entries = ADMIN_ENTRIES - 1;
    Aqa(0).with_asqs(entries).with_acqs(entries)
}

/// A completion ring that no controller has: its phase tags begin anew.
fn clear<P: Port>(port: &mut P, ring: u64, entries: u32) {
    for at in 0..u64::from(entries) {
        port.write(ring + at * size_of::<Cqe>() as u64, &[0; size_of::<Cqe>()]);
    }
}

fn delete(opcode: AdminOpcode, qid: u16) -> Sqe {
    Sqe { opcode: opcode.0, cdw10: U32::new(qid.into()), ..Sqe::default() }
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
        Step::DeleteSq(i) => format!("the deletion of submission queue {}", i + 1),
        Step::DeleteCq(i) => format!("the deletion of completion queue {}", i + 1),
        Step::Controller => "Identify Controller".to_string(),
        Step::Queues => "Set Features, Number of Queues".to_string(),
        Step::Arbitration => "Set Features, Arbitration".to_string(),
        Step::Quanta => "Set Features, Deficit Round Robin Quanta".to_string(),
        Step::Namespace => "Identify Namespace".to_string(),
        Step::Limits => "Identify, NVM Command Set Controller".to_string(),
        Step::Descriptors => "Identify, Namespace Identification Descriptors".to_string(),
        Step::ShadowDoorbells => "Doorbell Buffer Config".to_string(),
        Step::CreateCq(i) => format!("completion queue {}", i + 1),
        Step::CreateSq(i) => format!("submission queue {}", i + 1),
    }
}

const _: () = assert!(size_of::<IdentifyController>() as u64 == PAGE);
