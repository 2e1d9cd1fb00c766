//! The controller's end of an NVMe/TCP connection (NVMe/TCP Transport specification 1.0), which is one queue pair.
//!
//! ```text
//!  socket ─ receive() ─► rx: headers, digests, data ─► Table of Requests ─ next_command() ─► drive's submission queue
//!  socket ◄── ready() ── Tx: C2HData, R2T, responses ◄─ write_data(), respond() ◄── data() ──┘
//! ```
//!
//! A command is eligible, and so leaves by [`Connection::next_command`], only when nothing on the host's side can hold
//! it up any more: its data has arrived (in its capsule, or by R2T into a buffer of the tenant's [`Budget`]), and what it
//! reads fits behind what waits for the socket. A host that does not send, or does not read, has its own commands waiting
//! here and costs the drive nothing.
//!
//! States of a connection: [`ConnectionState::AwaitsIcReq`] → [`ConnectionState::Running`] → [`ConnectionState::Quiescing`] (a C2HTermReq is
//! on its way; everything received is ignored; buffers stay until their commands are answered) → [`ConnectionState::Closed`].
//!
//! What is not an error of the connection but of one command (a data digest, an SGL of the wrong kind or length) leaves the
//! connection standing: whoever reads or writes that command's data gets the status to complete it with.
//!
//! Left out: TLS, authentication. Limits: one R2T per command (MAXR2T permits at least one), 4096 commands a queue.
//! No clock, no socket; may depend on `weir-codec`, `weir-spec` and `weir-units` only.

mod budget;
mod config;
pub mod pdu;
mod request;
mod rx;
mod saved;
mod tx;

#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod saved_tests;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use config::{ConnectionSettings, DEPTH_MAX, IN_CAPSULE, MAX_TRANSFER};
pub use saved::VERSION as SAVED_VERSION;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use request::{Stage, Staged, Table};
use rx::Rx;
use tx::Tx;
use weir_spec::nvme::opcode::{AdminOpcode, IoOpcode, Transfer, transfer};
use weir_spec::nvme::tcp::{
    CapsuleResp, DIGEST_LEN, Digest, Fatal, Fes, Framing, HEADER_MAX, IcReq, IcResp, PDA_MAX, PduType, R2t, TermReq,
    dgst, flags, offset,
};
use weir_spec::nvme::{Cqe, Sqe, Status, entry::SglDescriptor};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Nothing but an ICReq is accepted.
    AwaitsIcReq,
    /// Capsules flow.
    Running,
    /// The host broke the protocol and was told so; it has to close.
    Quiescing(Fatal),
    /// To be closed now.
    Closed(Closed),
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// No ICReq came in time.
    Silent,
    /// The host sent a termination request.
    ByHost(Fatal),
    /// The host did not close after ours in time.
    Lingering,
    /// Whoever owns the connection said so.
    ByUs,
}

/// A command all of whose data is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyCommand {
    /// Its place, less than the depth; names it until [`Connection::respond`].
    pub tag: u16,
    /// Its submission queue entry.
    pub sqe: Sqe,
}

/// The controller's end of one connection.
#[derive(Debug)]
pub struct Connection<D> {
    settings: ConnectionSettings,
    state: ConnectionState,
    deadline: Nanos,
    table: Table,
    rx: Rx,
    tx: Tx<D>,
    /// Input that waits for the socket to take responses.
    stash: Vec<u8>,
    ready: VecDeque<u16>,
    /// The first command of a fused pair whose second has not come. The two stay next to each other, whenever their data arrive.
    first: Option<u16>,
    /// Commands whose R2T waits for the budget.
    awaits_buffer: VecDeque<u16>,
    /// Commands whose answer waits for room.
    awaits_tx: VecDeque<u16>,
    /// Bytes of read data promised to commands that are not answered.
    promised: usize,
    /// Bytes of the budget held.
    held: u64,
    sq_flow_control: bool,
    connected: bool,
}

impl<D: Digest> Connection<D> {
    /// Accepted at `now`; nothing has been received.
    pub fn new(now: Nanos, settings: ConnectionSettings) -> Self {
        let settings = settings.lawful();
        Self {
            settings,
            state: ConnectionState::AwaitsIcReq,
            deadline: now.saturating_add(settings.icreq_timeout),
            table: Table::new(2),
            rx: Rx::new(),
            tx: Tx::new(),
            stash: Vec::new(),
            ready: VecDeque::with_capacity(2),
            first: None,
            awaits_buffer: VecDeque::new(),
            awaits_tx: VecDeque::new(),
            promised: 0,
            held: 0,
            sq_flow_control: true,
            connected: false,
        }
    }

    /// Connect was accepted: the queue has `depth` entries (SQSIZE + 1), and the host disabled SQ flow control or not.
    pub fn connected(&mut self, depth: u32, sq_flow_control: bool) {
        self.table.grow(depth);
        let depth = self.table.len();
        for list in [&mut self.ready, &mut self.awaits_buffer, &mut self.awaits_tx] {
            list.reserve(depth - list.len());
        }
        self.tx.reserve(depth + 1);
        self.sq_flow_control = sq_flow_control;
        self.connected = true;
    }

    /// Where the connection is in its life.
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    /// Whether capsules flow.
    pub fn is_running(&self) -> bool {
        self.state == ConnectionState::Running
    }

    /// When [`tick`](Self::tick) is due.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Time has passed: a host that did not speak, or did not close, is given up.
    pub fn tick(&mut self, now: Nanos) {
        if now < self.deadline {
            return;
        }
        match self.state {
            ConnectionState::AwaitsIcReq => self.set_state(ConnectionState::Closed(Closed::Silent)),
            ConnectionState::Quiescing(_) => self.set_state(ConnectionState::Closed(Closed::Lingering)),
            ConnectionState::Running | ConnectionState::Closed(_) => self.deadline = Nanos::NEVER,
        }
    }

    /// Gives the connection up: nothing is sent or received any more.
    pub fn close(&mut self) {
        if !matches!(self.state, ConnectionState::Closed(_)) {
            self.set_state(ConnectionState::Closed(Closed::ByUs));
        }
    }

    fn set_state(&mut self, to: ConnectionState) {
        debug_assert!(
            matches!(
                (self.state, to),
                (ConnectionState::AwaitsIcReq, _)
                    | (ConnectionState::Running, ConnectionState::Quiescing(_))
                    | (_, ConnectionState::Closed(_))
            ),
            "from {:?} to {to:?}",
            self.state
        );
        if !matches!(to, ConnectionState::Quiescing(_)) {
            self.deadline = Nanos::NEVER;
        }
        self.state = to;
    }

    /// Gives every buffer of the budget back, when the connection is gone and no command of it is being executed.
    pub fn release(&mut self, budget: &mut Budget) {
        for r in self.table.iter_mut() {
            if let Some(buffer) = r.large.take() {
                budget.put(buffer);
                // What is still asked of this command finds no data.
                r.received = 0;
            }
        }
        self.awaits_buffer.clear();
        self.held = 0;
    }

    /// The next eligible command; it is with the drive until [`respond`](Self::respond).
    pub fn next_command(&mut self) -> Option<ReadyCommand> {
        if self.state != ConnectionState::Running {
            return None;
        }
        let tag = self.ready.pop_front()?;
        let r = self.table.get_mut(tag)?;
        r.stage = Stage::Executing;
        Some(ReadyCommand { tag, sqe: r.sqe })
    }

    /// Commands that are with the drive or on their way to it.
    pub fn in_use(&self) -> usize {
        self.table.in_use()
    }

    /// What the host sent for a command.
    ///
    /// # Errors
    /// The status to complete the command with: its data digest was wrong, its SGL is not of the kind or length that its
    /// data has, or there is no such command.
    pub fn data(&self, tag: u16) -> Result<&[u8], Status> {
        let r = self.table.get(tag).filter(|r| r.stage == Stage::Executing).ok_or(Status::INTERNAL_ERROR)?;
        match r.error {
            Some(status) => Err(status),
            None => Ok(r.data()),
        }
    }

    /// Copies `into.len()` bytes of what the host sent, from `offset` on.
    ///
    /// # Errors
    /// As [`data`](Self::data), and Data SGL Length Invalid when the host described less than is wanted.
    pub fn read_data(&self, tag: u16, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let all = self.data(tag)?;
        let from = offset as usize;
        let part =
            from.checked_add(into.len()).and_then(|to| all.get(from..to)).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
        into.copy_from_slice(part);
        Ok(())
    }

    /// Data for the host at `offset` of the command's buffer. Calls of one command come in any order, and may repeat what was there; together they are all
    /// of its data when it succeeds. Those that follow each other go into the open PDU, others are gathered until the command is answered.
    ///
    /// # Errors
    /// The status to complete the command with: its SGL is of the wrong kind or too short, or there is no such command.
    pub fn write_data(&mut self, tag: u16, offset: u32, from: &[u8]) -> Result<(), Status> {
        let running = self.state == ConnectionState::Running;
        let r = self.table.get_mut(tag).filter(|r| r.stage == Stage::Executing).ok_or(Status::INTERNAL_ERROR)?;
        if let Some(status) = r.error {
            return Err(status);
        }
        let end = u64::from(offset) + from.len() as u64;
        if end > u64::from(r.length) || direction(&r.sqe) != Transfer::ControllerToHost {
            return Err(Status::DATA_SGL_LENGTH_INVALID);
        }
        let before = r.moved;
        r.moved = before.max(end as u32);
        if !running {
            return Ok(());
        }
        if r.staged.is_some() || offset != before {
            let is_open = self.tx.open_tag() == Some(tag);
            // What came in order and is in no open PDU is behind a header already.
            let mut taken = || if is_open { self.tx.take_back() } else { (before, Vec::new()) };
            r.staged.get_or_insert_with(|| Staged::new(taken(), r.length)).put(offset, from);
            return Ok(());
        }
        let cid = r.sqe.cid;
        if self.tx.open_tag() != Some(tag) {
            self.finish_open();
        }
        self.tx.data(tag, cid, offset, from, self.settings.c2h_data);
        Ok(())
    }

    /// Something else goes behind the unsealed PDU: it is sealed if all data of its command is in it, and taken back if not.
    fn finish_open(&mut self) {
        let Some(r) = self.tx.open_tag().and_then(|tag| self.table.get_mut(tag)) else { return };
        if r.moved == r.length {
            self.tx.seal(flags::LAST_PDU);
        } else {
            r.staged = Some(Staged::new(self.tx.take_back(), r.length));
        }
    }

    /// What was gathered of a command that has succeeded goes behind everything else.
    fn put_staged(&mut self, tag: u16, cqe: &Cqe) {
        let Some(r) = self.table.get_mut(tag) else { return };
        let (Some(staged), cid) = (r.staged.take(), r.sqe.cid) else { return };
        if cqe.status().is_success() {
            self.finish_open();
            self.tx.data(tag, cid, staged.from, &staged.bytes, self.settings.c2h_data);
        }
    }

    /// Answers a command: by a CapsuleResp, or by SUCCESS in its last C2HData where the standard permits (the host
    /// disabled SQ flow control and loses nothing of the entry). Its buffers are free again.
    pub fn respond(&mut self, tag: u16, cqe: &Cqe, budget: &mut Budget) {
        if self.state == ConnectionState::Running {
            self.put_staged(tag, cqe);
        }
        let Some(r) = self.table.get_mut(tag).filter(|r| r.stage == Stage::Executing) else { return };
        let whole = r.moved == r.length;
        self.promised -= r.reserved as usize;
        let large = r.large.take();
        if let Some(buffer) = large {
            self.held -= buffer.len() as u64;
            budget.put(buffer);
        }
        self.table.put(tag);
        if self.state != ConnectionState::Running {
            return;
        }
        if self.tx.is_open(tag) {
            let plain = cqe.dw0.get() == 0 && cqe.dw1.get() == 0 && cqe.status_phase.get() == 0;
            if whole && plain && self.settings.c2h_success && !self.sq_flow_control {
                self.tx.seal(flags::LAST_PDU | flags::SUCCESS);
                self.tx.response_ends();
                return;
            }
            self.tx.seal(flags::LAST_PDU);
        }
        self.finish_open();
        self.tx.bare(CapsuleResp::CH, cqe.as_bytes());
        self.tx.response_ends();
    }

    /// Bytes for the socket. After some of them were taken, [`sent`](Self::sent).
    pub fn ready(&self) -> &[u8] {
        if matches!(self.state, ConnectionState::Closed(_)) { &[] } else { self.tx.ready() }
    }

    /// Bytes that wait for the socket or may not go to it yet.
    pub fn backlog(&self) -> usize {
        self.tx.backlog()
    }

    /// The socket took `n` bytes: what was held for room may go on, input that was held is read.
    pub fn sent(&mut self, now: Nanos, n: usize, budget: &mut Budget) {
        self.tx.sent(n);
        self.unhold();
        if !self.stash.is_empty() {
            self.resume(now, budget);
        }
    }

    /// Whether the socket should be read: not while a host that floods us does not take what it is sent.
    pub fn wants_input(&self) -> bool {
        self.stash.is_empty()
            && matches!(
                self.state,
                ConnectionState::AwaitsIcReq | ConnectionState::Running | ConnectionState::Quiescing(_)
            )
    }

    /// Whether commands wait for the budget: call [`grant`](Self::grant) when it was given something back.
    pub fn awaits_budget(&self) -> bool {
        !self.awaits_buffer.is_empty()
    }

    /// Sends the R2Ts that the budget has room for, in the order of the commands. True if any was sent.
    pub fn grant(&mut self, budget: &mut Budget) -> bool {
        let mut any = false;
        while let Some(&tag) = self.awaits_buffer.front() {
            if self.state != ConnectionState::Running || !self.request_transfer(tag, budget) {
                break;
            }
            self.awaits_buffer.pop_front();
            any = true;
        }
        any
    }

    fn request_transfer(&mut self, tag: u16, budget: &mut Budget) -> bool {
        let (ttag, held) = (self.table.ttag(tag), self.held_beside(tag));
        let Some(r) = self.table.get_mut(tag) else { return true };
        if self.connected {
            let Some(buffer) = budget.take(r.length, held) else { return false };
            self.held += buffer.len() as u64;
            r.large = Some(buffer);
        } else if r.small.len() < r.length as usize {
            // Nobody's connection yet, so nobody's budget: Connect fits where in-capsule data does.
            r.small.resize(r.length as usize, 0);
        }
        r.stage = Stage::Transferring;
        let r2t = R2t {
            ch: R2t::CH,
            cccid: r.sqe.cid,
            ttag: U16::new(ttag),
            r2to: U32::new(0),
            r2tl: U32::new(r.length),
            reserved: [0; 4],
        };
        self.finish_open();
        self.tx.bare(R2t::CH, r2t.as_bytes().get(8..).unwrap_or_default());
        true
    }

    fn make_ready(&mut self, tag: u16) {
        let waits = self.first == Some(tag);
        let Some(r) = self.table.get_mut(tag) else { return };
        let (partner, second) = (r.partner, r.sqe.fuse() == 2);
        r.stage = if waits || partner.is_some() { Stage::AwaitsPair } else { Stage::Ready };
        match partner {
            None if !waits => self.ready.push_back(tag),
            Some(other) if self.table.get(other).is_some_and(|r| r.stage == Stage::AwaitsPair) => {
                for tag in if second { [other, tag] } else { [tag, other] } {
                    self.table.get_mut(tag).into_iter().for_each(|r| r.stage = Stage::Ready);
                    self.ready.push_back(tag);
                }
            }
            _ => {}
        }
    }

    /// A capsule has arrived: the second of a pair, or what shows that a first command has none.
    fn pair_up(&mut self, tag: u16) {
        let (fuse, opcode) = self.table.get(tag).map_or((0, 0), |r| (r.sqe.fuse(), r.sqe.opcode));
        if let Some(first) = self.first.take() {
            if fuse == 2 {
                for (tag, other) in [(first, tag), (tag, first)] {
                    self.table.get_mut(tag).into_iter().for_each(|r| r.partner = Some(other));
                }
            } else if self.table.get(first).is_some_and(|r| r.stage == Stage::AwaitsPair) {
                self.make_ready(first);
            }
        }
        if fuse == 1 && opcode == IoOpcode::COMPARE.0 {
            self.first = Some(tag);
        }
    }

    /// What of the buffers held is not the other half's of a pair: one command's may always be held.
    fn held_beside(&self, tag: u16) -> u64 {
        let partner = self.table.get(tag).and_then(|r| self.table.get(r.partner?));
        self.held - partner.and_then(|r| r.large.as_ref()).map_or(0, |b| b.len() as u64)
    }

    /// Whether `len` bytes of read data may be promised; one command may always, however long.
    fn has_room(&self, len: u32) -> bool {
        let committed = self.promised + self.tx.backlog();
        self.promised == 0 && self.tx.backlog() == 0 || committed + len as usize <= self.settings.tx_limit as usize
    }

    fn promise(&mut self, tag: u16) {
        if let Some(r) = self.table.get_mut(tag) {
            r.reserved = r.length.min(self.settings.max_transfer);
            self.promised += r.reserved as usize;
        }
        self.make_ready(tag);
    }

    fn unhold(&mut self) {
        while let Some(&tag) = self.awaits_tx.front() {
            let length = self.table.get(tag).map_or(0, |r| r.length.min(self.settings.max_transfer));
            if !self.has_room(length) {
                break;
            }
            self.awaits_tx.pop_front();
            self.promise(tag);
        }
    }

    /// A capsule has arrived whole: the command goes where its data transfer sends it.
    fn dispatch(&mut self, tag: u16, budget: &mut Budget) {
        self.pair_up(tag);
        let max_transfer = if self.connected { self.settings.max_transfer } else { self.settings.in_capsule };
        let Some(r) = self.table.get_mut(tag) else { return };
        let sgl = r.sqe.sgl();
        let length = sgl.length.get();
        let direction = direction(&r.sqe);
        if r.length > 0 || r.error.is_some() || length == 0 || direction == Transfer::None {
            return self.make_ready(tag);
        }
        if sgl.kind != SglDescriptor::TRANSPORT_DATA_BLOCK {
            // In-capsule data that is not in the capsule is a wrong length; all else is a kind that fabrics lack.
            let in_capsule = sgl.kind == SglDescriptor::DATA_BLOCK_OFFSET && direction == Transfer::HostToController;
            r.error = Some(if in_capsule { Status::DATA_SGL_LENGTH_INVALID } else { Status::SGL_TYPE_INVALID });
            return self.make_ready(tag);
        }
        match direction {
            Transfer::HostToController if length <= max_transfer => {
                r.length = length;
                r.stage = Stage::AwaitsBuffer;
                self.awaits_buffer.push_back(tag);
                self.grant(budget);
            }
            Transfer::ControllerToHost => {
                r.length = length;
                r.stage = Stage::AwaitsTx;
                self.awaits_tx.push_back(tag);
                self.unhold();
            }
            _ => {
                r.error = Some(Status::DATA_SGL_LENGTH_INVALID);
                self.make_ready(tag);
            }
        }
    }

    /// ICReq (NVMe/TCP 1.0, 3.6.2.2): ICResp is the answer, and then capsules flow.
    fn initialize(&mut self, req: &IcReq) -> Result<(), Fatal> {
        if req.pfv.get() != 0 {
            return Err(Fatal::new(Fes::UNSUPPORTED_PARAMETER, offset::PFV));
        }
        if req.hpda > PDA_MAX {
            return Err(Fatal::field(offset::PDA));
        }
        let header_digest = self.settings.header_digest && req.dgst & dgst::HEADER != 0;
        let data_digest = self.settings.data_digest && req.dgst & dgst::DATA != 0;
        let cpda = self.settings.cpda.min(req.hpda);
        let resp = IcResp {
            ch: IcResp::CH,
            pfv: U16::new(0),
            cpda,
            dgst: if header_digest { dgst::HEADER } else { 0 } | if data_digest { dgst::DATA } else { 0 },
            maxh2cdata: U32::new(self.settings.maxh2cdata),
            reserved: [0; 112],
        };
        self.tx.raw(resp.as_bytes());
        self.rx.framing = Framing { header_digest, data_digest, pda: cpda };
        self.tx.framing = Framing { header_digest, data_digest, pda: req.hpda };
        self.set_state(ConnectionState::Running);
        Ok(())
    }

    /// Tells the host what it did and waits for it to close (NVMe/TCP 1.0, 3.5).
    fn terminate(&mut self, now: Nanos, fatal: Fatal, header: &[u8]) {
        let copy = header.get(..header.len().min(HEADER_MAX)).unwrap_or_default();
        let term = TermReq::new(PduType::C2H_TERM_REQ, fatal, copy.len() as u32);
        self.tx.raw(term.as_bytes());
        self.tx.raw(copy);
        self.stash.clear();
        self.set_state(ConnectionState::Quiescing(fatal));
        self.deadline = now.saturating_add(self.settings.close_timeout);
    }

    /// The invariants.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.table.check();
        self.tx.check();
        let reserved: usize = self.table.iter().filter(|r| r.stage != Stage::Free).map(|r| r.reserved as usize).sum();
        assert_eq!(reserved, self.promised, "promises are those of the commands");
        let held: u64 = self.table.iter().filter_map(|r| r.large.as_ref()).map(|b| b.len() as u64).sum();
        assert_eq!(held, self.held, "held bytes are those of the buffers");
        let count = |stage| self.table.iter().filter(|r| r.stage == stage).count();
        assert_eq!(count(Stage::Ready), self.ready.len());
        let lonely = |r: &&request::TcpRequest| r.stage == Stage::AwaitsPair && r.partner.is_none();
        assert!(self.table.iter().filter(lonely).count() <= 1, "one first command at the most waits for its second");
        assert_eq!(count(Stage::AwaitsTx), self.awaits_tx.len());
        assert!(count(Stage::AwaitsBuffer) >= self.awaits_buffer.len());
        let one = self.settings.max_transfer as usize;
        assert!(self.promised <= self.settings.tx_limit as usize + one, "promises are bounded");
    }
}

/// Which way a command's data moves: by its opcode, and for a fabrics command by FCTYPE (byte 4).
fn direction(sqe: &Sqe) -> Transfer {
    let code = if sqe.opcode == AdminOpcode::FABRICS.0 { sqe.nsid.get() as u8 } else { sqe.opcode };
    transfer(code)
}

const _: () = assert!(DIGEST_LEN == 4);
