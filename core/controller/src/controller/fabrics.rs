//! Fabrics: Connect and its refusals, properties, Disconnect (base 2.0, 3.3 and 6).

use crate::admin::AdminOutcome;
use crate::config::SubsystemKind;
use crate::controller::{Shutdown, Transport};
use crate::event::{ControllerHandle, SqHandle};
use crate::host::{Host, Owner, Tag};
use crate::queues::command::Command;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use crate::tenant::tenant_of;
use core::fmt;
use core::mem::offset_of;
use core::net::SocketAddr;
use weir_spec::nvme::fabrics::{
    self, CATTR_DISABLE_SQ_FLOW, CATTR_PRIORITY, CNTLID_DYNAMIC, Connect, ConnectData, Disconnect, Property,
};
use weir_spec::nvme::register::{self, Cc};
use weir_spec::nvme::{Cqe, FabricsType, Sqe, Status};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32};

/// A Connect command with its data, as a door received it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest {
    /// The command.
    pub command: Connect,
    /// Its data.
    pub data: ConnectData,
    /// What the door calls the queue.
    pub owner: Owner,
    /// The address that the host has reached, for the discovery log.
    pub local: Option<SocketAddr>,
    /// A new association has a keep alive timer, and keeps it: KATO 0 is refused.
    pub keep_alive: bool,
}

impl ConnectRequest {
    /// From the entry and its 1024 bytes of data.
    pub fn new(sqe: &Sqe, data: &ConnectData, owner: Owner) -> Self {
        Self { command: Connect::from(*sqe), data: *data, owner, local: None, keep_alive: false }
    }

    /// On a connection to this address of ours.
    pub fn at(self, local: SocketAddr) -> Self {
        // An IPv4 host of an IPv6 socket is an IPv4 host.
        Self { local: Some(SocketAddr::new(local.ip().to_canonical(), local.port())), ..self }
    }

    /// Whether a new association must have a keep alive timer.
    pub fn with_keep_alive(self, keep_alive: bool) -> Self {
        Self { keep_alive, ..self }
    }
}

/// A queue is connected.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    /// The queue.
    pub queue: SqHandle,
    /// Its controller.
    pub controller: ControllerHandle,
    /// CNTLID.
    pub cntlid: u16,
    /// Entries of the submission queue.
    pub depth: u32,
    /// The host asked for it and gets it: no SQ flow control (SQHD carries nothing; C2H success is allowed).
    pub flow_control_disabled: bool,
    /// The completion to send.
    pub cqe: Cqe,
}

/// A refused Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// Why.
    pub status: Status,
    /// IATTR: the invalid parameter is in the data (`true`) or in the command.
    pub in_data: bool,
    /// IPO: its byte offset.
    pub offset: u16,
}

impl ConnectError {
    /// There is no room for it: the host may try again.
    pub fn busy() -> Self {
        Self { status: Status::CONNECT_CONTROLLER_BUSY, in_data: false, offset: 0 }
    }

    /// The completion to send.
    pub fn cqe(&self, cid: u16) -> Cqe {
        let mut cqe = Cqe { cid: U16::new(cid), ..Cqe::default() };
        if self.status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
            cqe.dw0 = U32::new(fabrics::invalid_parameter(self.in_data, self.offset));
        }
        cqe.set_status(self.status);
        cqe
    }
}

/// In words: one status code has two names, of which Connect has the first.
impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.connect_text())?;
        if self.status.same_code(Status::CONNECT_INVALID_PARAMETERS) {
            write!(f, ": {}", fabrics::parameter_name(self.in_data, self.offset))?;
        }
        Ok(())
    }
}

fn refused(status: Status) -> ConnectError {
    ConnectError { status: status.dnr(), in_data: false, offset: 0 }
}

/// There is no such controller: it may have gone with a process between its host's two connections, so the host may try again, from its
/// admin queue on.
fn unknown() -> ConnectError {
    let offset = offset_of!(ConnectData, cntlid) as u16;
    ConnectError { status: Status::CONNECT_INVALID_PARAMETERS, in_data: true, offset }
}

fn invalid(in_data: bool, offset: usize) -> ConnectError {
    ConnectError { status: Status::CONNECT_INVALID_PARAMETERS.dnr(), in_data, offset: offset as u16 }
}

impl Subsystem {
    /// Fabrics: Connect creates an association (queue 0) or adds an I/O queue to one (base 2.0, 6.3).
    pub fn connect(&mut self, now: Nanos, request: &ConnectRequest) -> Result<Connected, ConnectError> {
        let (command, data) = (&request.command, &request.data);
        if command.recfmt.get() != 0 {
            return Err(refused(Status::CONFLICTING_ATTRIBUTES));
        }
        let subnqn = data.subnqn().ok_or(invalid(true, offset_of!(ConnectData, subnqn)))?;
        let nameless = invalid(true, offset_of!(ConnectData, hostnqn));
        let host = data.host().ok_or(nameless)?;
        if subnqn != self.config.subnqn {
            return Err(invalid(true, offset_of!(ConnectData, subnqn)));
        }
        // 0-based; a queue has two entries at least.
        let size = u32::from(command.sqsize.get()) + 1;
        if size < 2 || size > self.config.max_queue_entries {
            return Err(invalid(false, offset_of!(Connect, sqsize)));
        }
        let is_nobodys = if host.is_empty() { nameless } else { refused(Status::CONNECT_INVALID_HOST) };
        let tenant = tenant_of(&self.tenants.list, host).ok_or(is_nobodys)?;
        if self.is_absent(tenant) {
            return Err(ConnectError::busy());
        }
        let qid = command.qid.get();
        let c = if qid == 0 {
            if data.cntlid.get() != CNTLID_DYNAMIC {
                return Err(invalid(true, offset_of!(ConnectData, cntlid)));
            }
            // Discovery controllers without a timer are those that are not persistent: they have a time of their own.
            let is_io = self.config.kind == SubsystemKind::Io;
            if is_io && request.keep_alive && command.kato.get() == 0 {
                return Err(refused(Status::KEEP_ALIVE_INVALID));
            }
            let busy = ConnectError::busy();
            if !self.has_controller_for(tenant) {
                return Err(busy);
            }
            let c = self.make_controller(Transport::Fabrics, tenant, request.owner, host.into()).ok_or(busy)?;
            let ana = self.namespaces.access.of(host, request.local);
            let ctrl = self.ctrl_mut(c).expect("just made");
            ctrl.ana = ana;
            (ctrl.hostid, ctrl.kato, ctrl.local) = (data.hostid, command.kato.get(), request.local);
            ctrl.wide_id = true;
            ctrl.needs_keep_alive = is_io && request.keep_alive;
            ctrl.wait_for_host(now);
            self.arm_expiry(c);
            self.refresh_ana();
            c
        } else {
            self.find_association(qid, host, data)?
        };
        Ok(self.join(c, request, size))
    }

    /// The controller that an I/O queue wants to join, if it may.
    fn find_association(&self, qid: u16, host: &str, data: &ConnectData) -> Result<u32, ConnectError> {
        let bad_qid = || invalid(false, offset_of!(Connect, qid));
        if self.config.kind != SubsystemKind::Io {
            return Err(bad_qid());
        }
        let id = data.cntlid.get();
        let c = u32::from(id.wrapping_sub(1));
        let ctrl = self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Fabrics);
        // A host that hears of no such controller may take it that nothing of it is carried out any more.
        let none = |error| if self.has_orphans() { ConnectError::busy() } else { error };
        let ctrl = ctrl.ok_or_else(|| none(unknown()))?;
        if ctrl.host != host {
            return Err(none(invalid(true, offset_of!(ConnectData, hostnqn))));
        }
        if ctrl.hostid != data.hostid {
            return Err(none(invalid(true, offset_of!(ConnectData, hostid))));
        }
        if ctrl.sq(0) == NONE {
            return Err(ConnectError::busy());
        }
        if !ctrl.ready() || ctrl.shutdown != Shutdown::None {
            return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
        }
        let granted = ctrl.features.queues.map_or(self.config.max_io_queues, |(sqs, _)| sqs);
        if qid > granted {
            return Err(bad_qid());
        }
        if ctrl.sq(qid) != NONE {
            return Err(refused(Status::INVALID_QUEUE_ID));
        }
        Ok(c)
    }

    fn join(&mut self, c: u32, request: &ConnectRequest, size: u32) -> Connected {
        self.associate();
        let command = &request.command;
        let (qid, cattr) = (command.qid.get(), command.cattr);
        let priority = Class::from_bits(cattr & CATTR_PRIORITY);
        let q = self.make_sq(c, qid, size, request.owner, Some(priority), priority);
        let sq = self.sq_mut(q);
        sq.flow_off = cattr & CATTR_DISABLE_SQ_FLOW != 0;
        // Connect itself was the first entry of the queue.
        sq.head = 1 % size;
        if qid != 0 {
            sq.pending = alloc::vec![Command::default(); size as usize].into();
        }
        let (queue, flow_control_disabled, head) = (sq.handle(), sq.flow_off, sq.head as u16);
        let ctrl = self.ctrl_mut(c).expect("the controller exists");
        let (cntlid, controller) = (ctrl.id, ctrl.handle(c));
        // FFFFh tells the host that flow control is off (base 2.0, 6.3).
        let sqhd = U16::new(if flow_control_disabled { 0xffff } else { head });
        let cqe = Cqe { dw0: U32::new(cntlid.into()), sqhd, cid: command.cid, ..Cqe::default() };
        Connected { queue, controller, cntlid, depth: size, flow_control_disabled, cqe }
    }

    /// The queue's connection is gone: its commands die silently. With the admin queue the association ends, and
    /// its I/O queues are asked to disconnect. Also how a front controller's queue is removed.
    pub fn disconnect(&mut self, _now: Nanos, queue: SqHandle) {
        let Some(q) = self.resolve_queue(queue) else { return };
        self.associate();
        let sq = self.sq(q);
        let (c, qid) = (sq.controller, sq.qid);
        self.free_sq(q);
        if qid == 0 {
            self.drop_io_queues(c);
        }
        let Some(ctrl) = self.ctrl(c) else { return };
        if ctrl.transport != Transport::Fabrics {
            return;
        }
        if ctrl.attached == 0 {
            return self.drop_controller(c);
        }
        if qid == 0 {
            // It goes with the last of its connections; until then it serves nobody.
            let ctrl = self.ctrl_mut(c).expect("the controller exists");
            ctrl.csts.0 = 0;
            ctrl.expires = Nanos::NEVER;
            ctrl.shutdown = Shutdown::None;
        }
    }

    /// A fabrics command on an I/O queue: only Disconnect makes sense there.
    pub(crate) fn fabrics_io<H: Host>(&mut self, q: u32, sqe: &Sqe, tag: Tag, host: &mut H) {
        let sq = self.sq_mut(q);
        if sq.waiting >= sq.size {
            return self.condemn(q);
        }
        // It takes an entry, as every command of the queue.
        sq.head = if sq.head + 1 == sq.size { 0 } else { sq.head + 1 };
        let status = match fabrics::fctype(sqe).map(FabricsType) {
            Some(FabricsType::DISCONNECT) if Disconnect::from(*sqe).recfmt.get() != 0 => {
                Status::CONFLICTING_ATTRIBUTES.dnr()
            }
            Some(FabricsType::DISCONNECT) => Status::SUCCESS,
            // A second Connect as well: base 2.0 (6.3) has Command Sequence Error for it, but Linux's and SPDK's targets answer this, and SPDK's
            // tests rely on it.
            _ => Status::INVALID_OPCODE.dnr(),
        };
        self.complete(q, sqe.cid.get(), tag.0, status, 0, host);
        if status.is_success() {
            self.condemn(q);
        }
    }

    /// A fabrics command on an admin queue.
    pub(crate) fn fabrics_admin<H: Host>(&mut self, now: Nanos, c: u32, sqe: &Sqe, host: &mut H) -> AdminOutcome {
        match FabricsType(fabrics::fctype(sqe).unwrap_or_default()) {
            FabricsType::PROPERTY_GET => self.property_get(c, &Property::from(*sqe)),
            FabricsType::PROPERTY_SET => self.property_set(now, c, &Property::from(*sqe), host),
            FabricsType::CONNECT => AdminOutcome::status(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            FabricsType::DISCONNECT => AdminOutcome::status(Status::DISCONNECT_INVALID_QUEUE_TYPE.dnr()),
            _ => AdminOutcome::status(Status::INVALID_OPCODE.dnr()),
        }
    }

    /// Property Get (base 2.0, 6.5): those that message-based controllers have.
    fn property_get(&self, c: u32, command: &Property) -> AdminOutcome {
        let offset = command.ofst.get();
        let has = matches!(offset, register::CAP | register::VS | register::CC | register::CSTS | register::CRTO);
        match command.size() {
            Some(size) if has && register::size_at(offset) == Some(size) => {
                AdminOutcome::Done(Status::SUCCESS, self.read_register(c, offset, size))
            }
            _ => AdminOutcome::status(Status::INVALID_FIELD.dnr()),
        }
    }

    /// Property Set (base 2.0, 6.6): CC is the only one to set.
    fn property_set<H: Host>(&mut self, now: Nanos, c: u32, command: &Property, host: &mut H) -> AdminOutcome {
        if command.ofst.get() != register::CC || command.size() != Some(4) {
            return AdminOutcome::status(Status::INVALID_FIELD.dnr());
        }
        self.write_cc(now, c, Cc(command.value.get() as u32), host);
        AdminOutcome::status(Status::SUCCESS)
    }
}
