//! A client that goes to another process, or comes from one.

use super::Conn;
use crate::door::context::Cx;
use crate::door::vfio_user::client_memory::{Buffer, map};
use crate::door::vfio_user::message_dma::MessageDma;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use weir_controller::ControllerHandle;
use weir_session::vfio_user::{Bell, DOORBELLS, DOORBELLS_END, DeviceShape, DmaRegion, SavedClient, VfioUserDevice};
use weir_sys::crc::Crc32c;
use weir_sys::memory::doorbells::Doorbells;
use weir_units::Nanos;

/// What there is of a client when nothing is done with it any more.
pub(in crate::door::vfio_user) struct Left<'a> {
    /// As [`VfioUserDevice::save`] writes it.
    pub(in crate::door::vfio_user) state: Vec<u8>,
    own: Vec<OwnedFd>,
    client: SavedClient<OwnedFd>,
    /// The socket, and the memory files that the client maps.
    pub(in crate::door::vfio_user) shared: Vec<BorrowedFd<'a>>,
}

impl Left<'_> {
    /// The descriptors that the client has handed over, in the order that [`SavedClient`] says.
    pub(in crate::door::vfio_user) fn files(&self) -> Vec<BorrowedFd<'_>> {
        let (inbox, parked) = (self.client.inbox.fds(), self.client.parked.iter().flat_map(|m| &m.fds));
        self.own.iter().chain(inbox).chain(parked).map(AsFd::as_fd).collect()
    }
}

/// What another process has left of a client.
pub(in crate::door::vfio_user) struct Found {
    pub(in crate::door::vfio_user) socket: UnixStream,
    pub(in crate::door::vfio_user) state: Vec<u8>,
    /// The memory files: those that there are of the doorbells and the memory buffer, in this order.
    pub(in crate::door::vfio_user) shared: Vec<OwnedFd>,
    pub(in crate::door::vfio_user) files: Vec<OwnedFd>,
}

impl Conn {
    /// The drive forgets what it was told of and has not fetched, where commands are shown to it one by one.
    pub(in crate::door::vfio_user) fn untell(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        for qid in 0..self.gate.queues() as u16 {
            let (Some(_), Some(told)) = self.gate.tail(qid.into()) else { continue };
            if cx.drives.get(drive).untell(controller, qid, told) {
                self.gate.untell(qid);
            }
        }
    }

    /// What is known of its doorbells.
    pub(super) fn all_bells(&self) -> Vec<Bell> {
        let bell = |qid: usize| {
            let (rung, told) = self.gate.tail(qid);
            let there = self.there.get(qid).copied().unwrap_or_default();
            Bell { seen: self.seen.get(qid).copied().unwrap_or_default(), there, rung, told }
        };
        (0..self.there.len().max(self.gate.queues())).map(bell).collect()
    }

    /// Everything that another process needs to go on; nothing is done with the client any more. `None` where nobody keeps anything.
    pub(in crate::door::vfio_user) fn leave(&mut self, now: Nanos) -> Option<Left<'_>> {
        let files = *self.files.take()?;
        let client = SavedClient {
            request: files.has_request(),
            bells: self.all_bells(),
            late: self.gate.late(),
            inbox: std::mem::take(&mut self.inbox),
            parked: self.parked.take(),
            unsent: self.answers.drain(..).collect(),
        };
        let state = self.device.save::<Crc32c, _>(now, &client);
        let own = files.into_all().collect();
        let mut shared = vec![self.socket.as_fd()];
        shared.extend(self.bells.as_ref().map(Doorbells::fd));
        shared.extend(self.buffer.as_ref().map(|b| b.file.as_fd()));
        Some(Left { state, own, client, shared })
    }

    /// The client that another process has left.
    ///
    /// # Errors
    /// What is wrong with it, as the operator is told.
    pub(in crate::door::vfio_user) fn resume(
        found: Found,
        token: u64,
        shape: DeviceShape,
        pid: Option<i32>,
        cx: &mut Cx,
    ) -> Result<Self, String> {
        let text = |e: std::io::Error| e.to_string();
        let Found { socket, state, shared, files } = found;
        let restored = VfioUserDevice::restore::<Crc32c, _>(cx.now, &state, shape, files).map_err(|e| e.to_string())?;
        let (device, client, files) = restored;
        let (mut shared, files) = (shared.into_iter(), files.into_iter());
        let mut file = |what: &str| shared.next().ok_or_else(|| format!("the file of its {what} is missing"));
        let bells = match shape.mapped_doorbells {
            true => {
                Some(Doorbells::open(file("doorbells")?, DOORBELLS as usize, DOORBELLS_END as usize).map_err(text)?)
            }
            false => None,
        };
        let buffer = match shape.buffer {
            0 => None,
            len => Some(Box::new(Buffer::open(file("memory buffer")?, len).map_err(text)?)),
        };
        let mut conn = Self::with((socket, token), device, bells, buffer, pid, cx).map_err(text)?;
        let taken = conn.take_up(client, files, cx.now);
        if let Err(why) = taken {
            // The reactor has its socket open as long as it watches it.
            conn.close(cx);
            return Err(why);
        }
        Ok(conn)
    }

    /// What the client has handed over, and where it was.
    fn take_up(
        &mut self,
        client: SavedClient<OwnedFd>,
        mut files: std::vec::IntoIter<OwnedFd>,
        now: Nanos,
    ) -> Result<(), String> {
        let text = |e: std::io::Error| e.to_string();
        let conn = self;
        let mut next = || files.next().ok_or("a descriptor is missing");
        let regions: Vec<DmaRegion> = conn.device.mapped().copied().collect();
        for region in regions {
            let mapped = map(&mut conn.memory, conn.files.as_deref_mut(), &region, next()?);
            mapped.map_err(|e| format!("a DMA region cannot be mapped: {e}"))?;
        }
        let vectors: Vec<u16> = conn.device.msix().assigned().collect();
        for vector in vectors {
            let fd = next()?;
            conn.vectors[usize::from(vector)].set(Some(&fd)).map_err(text)?;
            conn.files.iter_mut().for_each(|files| files.set_vector(vector, fd.try_clone().ok()));
        }
        if client.request {
            let fd = next()?;
            conn.request.set(Some(&fd)).map_err(text)?;
            conn.files.iter_mut().for_each(|files| files.set_request(fd.try_clone().ok()));
        }
        conn.gate = MessageDma::resume(&client.bells, &client.late);
        conn.seen = client.bells.iter().map(|bell| bell.seen).collect();
        conn.there = client.bells.iter().map(|bell| bell.there).collect();
        (conn.inbox, conn.parked, conn.answers) = (client.inbox, client.parked, client.unsent.into());
        // Nobody has read its answers for a while.
        conn.device.requests().begin_anew(now);
        Ok(())
    }

    /// Goes on: what was rung and not shown is shown, and whose completions may not have been signalled is signalled. True if there is
    /// something to flush.
    pub(in crate::door::vfio_user) fn go_on(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        self.follow_buffer(drive, controller, cx);
        self.follow_queues(drive, controller, cx);
        if self.is_gated() {
            self.advance((drive, controller), cx);
        }
        for vector in cx.drives.machine(drive).unread(controller) {
            self.due(vector);
        }
    }
}
