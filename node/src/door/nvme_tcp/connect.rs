//! The first command of a connection: Connect, which makes it a queue (NVMe base 2.0, 6.3).

use super::conn::Queue;
use super::{Door, Moving, NOBODY};
use crate::door::Cx;
use weir_controller::{ConnectError, ConnectRequest, Connected};
use weir_session::nvme_tcp::Command;
use weir_spec::nvme::fabrics::{self, ConnectData};
use weir_spec::nvme::{AdminOpcode, Cqe, FabricsType, Sqe, Status};
use zerocopy::{FromBytes, little_endian::U16};

/// Byte offset of SUBNQN in the data of Connect.
const SUBNQN: u16 = 256;
/// Byte offset of HOSTNQN there.
const HOSTNQN: u16 = 512;

impl Door {
    /// Answers a command of a connection that is no queue yet; one whose drive is elsewhere is sent there.
    pub(super) fn connect(&mut self, at: u32, command: Command, cx: &mut Cx) {
        let Some(conn) = &self.conns[at as usize] else { return };
        let data = match connect_data(&command.sqe, conn.session.data(command.tag)) {
            Ok(data) => data,
            Err(status) => return self.answer(at, command.tag, &failed(&command.sqe, status)),
        };
        let Some(place) = data.subnqn().and_then(|nqn| cx.directory.find(nqn)) else {
            tracing::info!(peer = %conn.peer, subnqn = data.subnqn(), "Connect refused: no such subsystem here");
            let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
            let error = ConnectError { status, in_data: true, offset: SUBNQN };
            return self.answer(at, command.tag, &error.cqe(command.sqe.cid.get()));
        };
        if place.shard != cx.shard {
            return self.depart(at, command, place.shard, cx);
        }
        let owner = cx.drives.front_tenant(place.drive).map(|tenant| usize::from(tenant) + 1);
        if owner.is_some_and(|owner| owner != self.tenant_of(&data)) {
            tracing::info!(peer = %conn.peer, host = data.hostnqn(), "Connect refused: the volume is another tenant's");
            let error = ConnectError { status: Status::CONNECT_INVALID_HOST.dnr(), in_data: true, offset: HOSTNQN };
            return self.answer(at, command.tag, &error.cqe(command.sqe.cid.get()));
        }
        let request = ConnectRequest::new(&command.sqe, &data, Self::owner_of(at));
        let request = conn.stream.local_addr().map_or(request, |local| request.at(local));
        match cx.drives.get(place.drive).connect(cx.now, &request) {
            Ok(connected) => self.connected(at, command, place.drive, &data, &connected),
            Err(error) => {
                tracing::info!(
                    peer = %conn.peer, host = data.hostnqn(), status = %error.status, "Connect refused"
                );
                self.answer(at, command.tag, &error.cqe(command.sqe.cid.get()));
            }
        }
    }

    fn connected(&mut self, at: u32, command: Command, drive: u32, data: &ConnectData, connected: &Connected) {
        let tenant = self.tenant_of(data);
        let Some(conn) = &mut self.conns[at as usize] else { return };
        conn.queue = Some(Queue { drive, handle: connected.queue });
        conn.session.connected(connected.depth, !connected.flow_control_disabled);
        // Connect's own data came in its capsule: nothing of the old budget is held.
        conn.tenant = tenant;
        tracing::debug!(
            peer = %conn.peer, host = data.hostnqn(), cntlid = connected.cntlid, depth = connected.depth, "connected"
        );
        self.answer(at, command.tag, &connected.cqe);
    }

    /// The budget of the tenant that the host's NQN names, as the drives find it; the first where there is none.
    fn tenant_of(&self, data: &ConnectData) -> usize {
        self.tenant_named(data.hostnqn().unwrap_or_default())
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

    fn depart(&mut self, at: u32, command: Command, shard: u32, cx: &mut Cx) {
        let Some(mut conn) = self.conns[at as usize].take() else { return };
        conn.unwatch(cx.reactor);
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
