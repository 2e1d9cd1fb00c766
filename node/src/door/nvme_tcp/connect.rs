//! The first command of a connection: Connect, which makes it a queue (NVMe base 2.0, 6.3).

use super::conn::Queue;
use super::{Door, Moving, NOBODY};
use crate::door::context::Cx;
use crate::throttle::throttled;
use weir_controller::{ConnectError, ConnectRequest, Connected};
use weir_session::nvme_tcp::ReadyCommand;
use weir_spec::nvme::fabrics::{self, ConnectData};
use weir_spec::nvme::{AdminOpcode, Cqe, FabricsType, Sqe, Status};
use zerocopy::{FromBytes, little_endian::U16};

/// Byte offset of SUBNQN in the data of Connect.
const SUBNQN: u16 = 256;

impl Door {
    /// Answers a command of a connection that is no queue yet; one whose drive is elsewhere is sent there.
    pub(super) fn connect(&mut self, at: u32, command: ReadyCommand, cx: &mut Cx) {
        let Some(conn) = &self.conns[at as usize] else { return };
        let data = match connect_data(&command.sqe, conn.session.data(command.tag)) {
            Ok(data) => data,
            Err(status) => return self.answer(at, command.tag, &failed(&command.sqe, status)),
        };
        let subnqn = data.subnqn();
        let Some(place) = subnqn.and_then(|nqn| cx.directory.find(nqn)) else {
            throttled!(
                cx.now,
                "Connect refused: no such subsystem here",
                tracing::info!(peer = %conn.peer, subnqn, "Connect refused: no such subsystem here; there is {}", cx.directory)
            );
            let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
            return self.refuse(at, &command, &ConnectError { status, in_data: true, offset: SUBNQN });
        };
        if place.shard != cx.shard {
            return self.depart(at, command, place.shard, cx);
        }
        let peer = conn.peer;
        match self.admit_and_connect(at, &command, &data, place.drive, cx) {
            Ok(()) => {}
            Err((error, why)) => {
                throttled!(
                    cx.now,
                    "Connect refused",
                    tracing::info!(%peer, host = data.host(), subnqn, "Connect refused: {why}")
                );
                self.refuse(at, &command, &error);
            }
        }
    }

    fn admit_and_connect(
        &mut self,
        at: u32,
        command: &ReadyCommand,
        data: &ConnectData,
        drive: u32,
        cx: &mut Cx,
    ) -> Result<(), (ConnectError, String)> {
        let Some(conn) = &self.conns[at as usize] else { return Ok(()) };
        let tenant = self.tenant_of(data);
        let owner = cx.drives.front_tenant(drive).map(|tenant| usize::from(tenant) + 1);
        if owner.is_some_and(|owner| owner != tenant) {
            let error = ConnectError { status: Status::CONNECT_INVALID_HOST.dnr(), in_data: false, offset: 0 };
            return Err((error, "the volume is another tenant's".into()));
        }
        let request = ConnectRequest::new(&command.sqe, data, Self::owner_of(at));
        let request = conn.stream.local_addr().map_or(request, |local| request.at(local));
        let request = request.with_keep_alive(self.keep_alive.is_required(conn.is_remote()));
        // A host without a name that is one is refused by the drive.
        let admitted = data.host().map(|host| self.admission.admit(tenant, host)).transpose();
        let admitted = admitted.map_err(|full| (ConnectError::busy(), full.to_string()))?;
        let connected = cx.drives.get(drive).connect(cx.now, &request);
        let connected = connected.map_err(|error| (error, error.to_string()))?;
        self.unconnected.remove(at);
        self.connected(at, command.tag, drive, data, &connected);
        if let Some(conn) = &mut self.conns[at as usize] {
            conn.admitted = admitted;
        }
        Ok(())
    }

    fn refuse(&mut self, at: u32, command: &ReadyCommand, error: &ConnectError) {
        self.answer(at, command.tag, &error.cqe(command.sqe.cid.get()));
    }

    fn connected(&mut self, at: u32, tag: u16, drive: u32, data: &ConnectData, connected: &Connected) {
        let tenant = self.tenant_of(data);
        let Some(conn) = &mut self.conns[at as usize] else { return };
        conn.queue = Some(Queue { drive, handle: connected.queue });
        conn.session.connected(connected.depth, !connected.flow_control_disabled);
        // Connect's own data came in its capsule: nothing of the old budget is held.
        conn.tenant = tenant;
        tracing::debug!(
            peer = %conn.peer, host = data.host(), cntlid = connected.cntlid, depth = connected.depth, "connected"
        );
        self.answer(at, tag, &connected.cqe);
    }

    /// The budget of the tenant that the host's NQN names, as the drives find it; the first where there is none.
    fn tenant_of(&self, data: &ConnectData) -> usize {
        data.host().map_or(NOBODY, |host| self.tenant_named(host))
    }

    pub(super) fn tenant_named(&self, host: &str) -> usize {
        let named = self.tenants.iter().position(|t| t.hosts.iter().any(|h| h == host));
        named.or_else(|| self.tenants.iter().position(|t| t.any_host)).map_or(NOBODY, |tenant| tenant + 1)
    }

    fn answer(&mut self, at: u32, tag: u16, cqe: &Cqe) {
        if let Some(conn) = &mut self.conns[at as usize] {
            conn.session.respond(tag, cqe, &mut self.budgets[conn.tenant]);
        }
        self.mark_dirty(at);
    }

    fn depart(&mut self, at: u32, command: ReadyCommand, shard: u32, cx: &mut Cx) {
        let Some(mut conn) = self.conns[at as usize].take() else { return };
        conn.unwatch(cx.reactor);
        self.unconnected.remove(at);
        (conn.hot_until, conn.dirty, conn.awaiting) = (weir_units::Nanos(0), false, false);
        self.hot.retain(|c| *c != at);
        self.dirty.retain(|c| *c != at);
        self.awaiting.retain(|c| *c != at);
        self.free.push(at);
        cx.moves.push((shard, Moving { conn, command }));
    }
}

/// The data of a Connect command, or how to complete what is none.
fn connect_data(sqe: &Sqe, data: Result<&[u8], Status>) -> Result<ConnectData, Status> {
    let is_connect = sqe.opcode == AdminOpcode::FABRICS.0 && fabrics::fctype(sqe) == Some(FabricsType::CONNECT.0);
    if !is_connect {
        return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
    }
    ConnectData::read_from_bytes(data?).map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())
}

fn failed(sqe: &Sqe, status: Status) -> Cqe {
    let mut cqe = Cqe { cid: U16::new(sqe.cid.get()), ..Cqe::default() };
    cqe.set_status(status);
    cqe
}
