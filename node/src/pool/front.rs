//! A volume's way to its drives. A volume that is exported has a *front*: a controller of its own whose commands are not arbitrated but go
//! on at once, cut where the volume's chunks lie on other places, to queues of the volume's tenant at the drives. There they are arbitrated.
//!
//! ```text
//!  door ─► Subsystem of the front ─Io─► Front::begin ─pieces─► Event::Submit at a drive ─► … ─► Part ─► Front::over ─Done─► door
//! ```

mod copies;
mod job;
mod layout;
mod sharing;
mod stale;
mod taking_back;

pub use copies::{Copies, Note};
pub use job::{CopyJob, Difference, JobKind, JobOutcome};
pub use layout::{SecondCopy, Stretch};
pub use sharing::Sharing;

use super::drive_queue::{DriveQueue, PartTime, Sent};
use super::parts::{Bytes, Part, Parts, Whose};
use crate::directory::Place;
use std::collections::VecDeque;
use weir_controller::{BlockRequest, ControllerHandle, Data, Io, Op, SlotId};
use weir_pool::VolumeId;
use weir_spec::nvme::Status;

/// Commands of a front on their way at once.
pub const SLOTS: u32 = 256;
/// Parts of one command on their way at once.
const WINDOW: u32 = 4;
/// Bytes that a copy between two places of a volume moves at once.
const COPY: u32 = 64 << 10;

/// A front's way to a drive.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The drive.
    pub place: Place,
    /// The front's queue there.
    pub queue: DriveQueue,
    /// Commands that fit into it.
    pub depth: u32,
    /// Commands that are in it.
    pub used: u32,
    /// Place of the drive in the pool's list.
    pub member: usize,
}

impl Way {
    /// The front has given its queue back.
    pub fn has_left(&self) -> bool {
        matches!(self.queue, DriveQueue::Closed)
    }
}

/// A command of the front, on its way in parts.
#[derive(Debug)]
struct Flight {
    io: Io,
    /// Its number among those that were begun.
    number: u64,
    /// Bytes (of a flush: drives) that parts were made of.
    begun: u32,
    /// Parts on their way.
    out: u32,
    /// The first that went wrong.
    status: Status,
    /// Of a copy: what was read and is to be written.
    carried: Option<Vec<u8>>,
    /// Of a copy: what is on its way is written.
    writes: bool,
    /// Losses of drives when it was begun.
    losses: u32,
    /// Of a volume with two copies: what has gone wrong at one of them.
    copies: copies::FlightCopies,
    /// When its parts are complete.
    time: PartTime,
}

/// A controller of a front, and its host.
pub type Whom<'a> = (ControllerHandle, &'a str);

/// Who has not been told yet that a drive may have lost what it had acknowledged and nobody had flushed.
#[derive(Debug)]
struct Untold {
    /// `None`: there was nobody then; whoever comes.
    whom: Option<(ControllerHandle, String)>,
    /// The latest of the losses.
    loss: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Front {
    /// Its number on the shard.
    pub number: u32,
    /// The pool and the volume of it.
    pub volume: (u32, VolumeId),
    /// Whose it is: the place among the drives' tenants.
    pub tenant: u16,
    /// Which volume it is, over all starts and pools, as far as 64 bits go; never 0.
    pub medium: u64,
    /// Its drives.
    pub ways: Vec<Way>,
    stretches: Vec<Stretch>,
    /// Nothing that reaches behind it is begun.
    end: u64,
    flights: Vec<Option<Flight>>,
    /// Commands that wait for room in a queue.
    waiting: VecDeque<SlotId>,
    /// How often a drive may have lost something.
    losses: u32,
    untold: Vec<Untold>,
    /// Flushes that have gone well while somebody was not told, and the losses when they were begun: to be [judged](Self::must_fail).
    pub flushed: Vec<(SlotId, u32)>,
    /// Emitted by its machine, and not begun.
    pub outbox: VecDeque<Io>,
    /// Of a volume with two copies: what it knows of them.
    pub copies: Option<Box<Copies>>,
    /// What it knows of chunks that others have too.
    pub sharing: Sharing,
    /// Commands that were begun.
    begun: u64,
}

impl Front {
    /// Of a volume whose drives and places are still to be [laid out](Self::lay_out).
    pub fn new(number: u32, volume: (u32, VolumeId), tenant: u16, uuid: [u8; 16]) -> Self {
        let medium = Self::medium_of(uuid);
        let (ways, stretches, flights) = (Vec::new(), Vec::new(), Vec::new());
        let (waiting, outbox, untold, flushed) = (VecDeque::new(), VecDeque::new(), Vec::new(), Vec::new());
        let (end, losses, copies) = (u64::MAX, 0, None);
        Self {
            number,
            volume,
            tenant,
            medium,
            ways,
            stretches,
            end,
            flights,
            waiting,
            losses,
            untold,
            flushed,
            outbox,
            copies,
            sharing: Sharing::default(),
            begun: 0,
        }
    }

    /// What its [medium](Self::medium) is by a volume's UUID.
    pub fn medium_of(uuid: [u8; 16]) -> u64 {
        let uuid = u128::from_le_bytes(uuid);
        ((uuid >> 64) as u64 ^ uuid as u64).max(1)
    }

    /// A drive may have lost what it had acknowledged and not flushed: each of the front's hosts is to be told by a flush that fails.
    #[cold]
    pub fn lose<'a>(&mut self, hosts: impl Iterator<Item = Whom<'a>>) {
        self.losses += 1;
        let loss = self.losses;
        for (controller, host) in hosts {
            let is = |u: &&mut Untold| u.whom.as_ref().is_some_and(|w| w.0 == controller);
            match self.untold.iter_mut().find(is) {
                Some(untold) => untold.loss = loss,
                None => self.untold.push(Untold { whom: Some((controller, host.into())), loss }),
            }
        }
        if self.untold.is_empty() {
            self.untold.push(Untold { whom: None, loss });
        }
    }

    /// Whether a flush that has gone well is to fail, because its host has not been told. It is then, unless it was begun before the loss,
    /// or is `internal`: the flush of a shutdown, which says to nobody what has become of it. A host that comes with another controller
    /// inherits what those that are not `live` any more have not been told.
    #[cold]
    pub fn must_fail(
        &mut self,
        (controller, host): Whom,
        (internal, losses): (bool, u32),
        live: impl Fn(ControllerHandle) -> bool,
    ) -> bool {
        let own = |u: &Untold| u.whom.as_ref().is_some_and(|w| w.0 == controller);
        let inherited = |u: &Untold| u.whom.as_ref().is_none_or(|w| w.1 == host && !live(w.0));
        let (mut fails, told) = (false, !internal);
        self.untold.retain(|u| {
            let concerned = own(u) || inherited(u);
            fails |= concerned;
            !(concerned && told && losses >= u.loss)
        });
        fails
    }

    /// Where its bytes lie from now on.
    pub fn lay_out(&mut self, stretches: Vec<Stretch>) {
        self.stretches = stretches;
        self.keep_stale();
    }

    /// The front's queue at a drive, if there is one, nothing is in it, and nothing of the volume lies there: it is given back.
    pub fn leave(&mut self, drive: Place) -> Option<DriveQueue> {
        let at = self.ways.iter().position(|w| w.place == drive && !w.has_left())?;
        let is_needed = self.ways[at].used > 0 || self.stretches.iter().any(|s| s.lies_at(at as u32));
        (!is_needed).then(|| std::mem::replace(&mut self.ways[at].queue, DriveQueue::Closed))
    }

    /// No part of a command goes behind `end` from now on, not even of one that its machine has let pass before. Flushes go wherever
    /// something of the volume lies.
    pub fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Nothing of it is on its way.
    pub fn is_quiet(&self) -> bool {
        let works = self.copies.as_ref().is_some_and(|copies| copies.job.is_some());
        self.outbox.is_empty() && self.flights.iter().all(Option::is_none) && !works
    }

    /// Whether a command that reaches behind `end` is on its way.
    pub fn reaches(&self, end: u64) -> bool {
        let behind = |io: &Io| {
            let from = if let Data::Media(from) = io.data.get() { from } else { 0 };
            io.op != Op::Flush && io.offset.max(from) + u64::from(io.len) > end
        };
        self.flights.iter().flatten().map(|f| &f.io).chain(&self.outbox).any(behind)
    }

    /// Begins a command that its machine has emitted.
    pub fn begin(&mut self, io: Io, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        self.begin_timed(io, PartTime::Drives, parts, send)
    }

    /// The same with parts that are complete at their time.
    pub fn begin_timed(&mut self, io: Io, time: PartTime, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        let at = io.slot.index();
        if self.flights.len() <= at {
            self.flights.resize_with(at + 1, || None);
        }
        let (status, losses, copies) = (Status::SUCCESS, self.losses, copies::FlightCopies::default());
        let (number, carried) = (self.begun, None);
        self.begun += 1;
        self.flights[at] =
            Some(Flight { io, number, begun: 0, out: 0, status, carried, writes: false, losses, copies, time });
        self.go(io.slot, parts, send)
    }

    /// Goes on with a command.
    fn go(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        match self.copies {
            None => self.pump(slot, parts, send),
            Some(_) => self.pump_copies(slot, parts, send),
        }
    }

    /// A part is over; how the command ended, if it was the last.
    pub fn over(
        &mut self,
        (slot, way): (SlotId, u32),
        (bytes, status): (Bytes, Status),
        parts: &mut Parts,
        send: &mut Vec<Sent>,
    ) -> Option<Status> {
        if let Some(way) = self.ways.get_mut(way as usize) {
            way.used = way.used.saturating_sub(1);
        }
        if self.copies.is_some() {
            return self.over_copies((slot, way), (bytes, status), parts, send);
        }
        let flight = self.flights.get_mut(slot.index())?.as_mut()?;
        flight.out -= 1;
        if flight.status.is_success() {
            flight.status = status;
        }
        let wrote = std::mem::take(&mut flight.writes);
        if let (Op::Copy, Bytes::Own(bytes), false, true) = (flight.io.op, bytes, wrote, status.is_success()) {
            flight.carried = Some(bytes);
        }
        self.pump(slot, parts, send)
    }

    /// Commands that waited for room in a queue, where there is some again; those that ended with it.
    pub fn go_on(&mut self, parts: &mut Parts, send: &mut Vec<Sent>, ended: &mut Vec<(SlotId, Status)>) {
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else { break };
            let status = self.go(slot, parts, send);
            ended.extend(status.map(|status| (slot, status)));
        }
    }

    /// Makes as many parts of a command as may be on their way; how it ended, if it has.
    fn pump(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        loop {
            let Self { ways, stretches, end, flights, waiting, untold, flushed, sharing, .. } = self;
            let flight = flights[slot.index()].as_mut()?;
            let (io, time) = (flight.io, flight.time);
            let all = if io.op == Op::Flush { ways.len() as u32 } else { io.len };
            let carries = flight.carried.is_some();
            let ends = !carries && (flight.begun >= all || !flight.status.is_success());
            if ends {
                let over = flight.out == 0;
                let status = flight.status;
                if over {
                    if io.op == Op::Flush && !untold.is_empty() && status.is_success() {
                        flushed.push((slot, flight.losses));
                    }
                    flights[slot.index()] = None;
                }
                return over.then_some(status);
            }
            if io.op == Op::Flush && !stretches.iter().any(|s| s.way == Some(flight.begun)) {
                // Nothing of the volume lies there any more, and the drive may be none of the pool's.
                flight.begun += 1;
                continue;
            }
            let window = if io.op == Op::Copy { 1 } else { WINDOW };
            if flight.out >= window {
                return None;
            }
            let Some(piece) = piece(flight, stretches, *end) else {
                flight.status = Status::LBA_OUT_OF_RANGE;
                continue;
            };
            let Some(place) = piece.way else {
                flight.status = lost(piece.op);
                flight.carried = None;
                continue;
            };
            let bytes = (piece.to, piece.to + u64::from(piece.len));
            let waits = copies::is_write(piece.op) && !sharing.lets_write(piece.shared, bytes);
            let way = &mut ways[place as usize];
            if !way.queue.is_open() {
                flight.status = Status::INTERNAL_PATH_ERROR;
                flight.carried = None;
                continue;
            }
            if waits || way.used >= way.depth {
                wait(waiting, slot);
                return None;
            }
            let bytes = match (io.op, flight.carried.take()) {
                (Op::Copy, Some(bytes)) => {
                    flight.begun += bytes.len() as u32;
                    flight.writes = true;
                    Bytes::Own(bytes)
                }
                (Op::Copy, None) => Bytes::Own(vec![0; piece.len as usize]),
                _ => {
                    let skip = io.skip + if io.op == Op::Flush { 0 } else { flight.begun };
                    flight.begun += piece.step;
                    Bytes::Host { owner: io.owner, data: io.data, skip }
                }
            };
            flight.out += 1;
            way.used += 1;
            let whose = Whose::Front { front: self.number, slot, drive: place };
            let tag = parts.insert(Part { whose, bytes });
            let request = BlockRequest { op: piece.op, nsid: 1, offset: piece.at, len: piece.len, fua: io.fua };
            send.extend(way.queue.send(request, tag, time));
        }
    }
}

/// A command waits, once.
fn wait(waiting: &mut VecDeque<SlotId>, slot: SlotId) {
    if !waiting.contains(&slot) {
        waiting.push_back(slot);
    }
}

/// What a command ends with that reaches for bytes which are lost (NVM Command Set 1.0, 3.2): trying it again does not help.
fn lost(op: Op) -> Status {
    match op {
        Op::Read | Op::Compare => Status::UNRECOVERED_READ_ERROR.dnr(),
        _ => Status::WRITE_FAULT.dnr(),
    }
}

/// The next part of a command.
struct Piece {
    op: Op,
    way: Option<u32>,
    at: u64,
    /// Where it begins in the volume, and whether others have that too.
    to: u64,
    shared: bool,
    len: u32,
    /// How far the command is then.
    step: u32,
}

fn piece(flight: &Flight, stretches: &[Stretch], end: u64) -> Option<Piece> {
    let Flight { io, begun, carried, .. } = flight;
    if io.op == Op::Flush {
        return Some(Piece { op: Op::Flush, way: Some(*begun), at: 0, to: 0, shared: false, len: 0, step: 1 });
    }
    let find = |offset: u64| {
        let i = stretches.partition_point(|s| s.start <= offset).checked_sub(1)?;
        let s = stretches[i];
        let inside = offset - s.start;
        let room = s.len.min(end.saturating_sub(s.start)).saturating_sub(inside);
        (room > 0).then_some((s, s.at + inside, room))
    };
    let left = io.len - begun;
    let to = io.offset + u64::from(*begun);
    let (op, offset, most) = match (io.op, io.data.get(), carried) {
        (Op::Copy, _, Some(bytes)) => (Op::Write, to, bytes.len() as u32),
        (Op::Copy, Data::Media(from), None) => {
            // As much as lies together at both ends.
            let (_, _, room) = find(to)?;
            (Op::Read, from + u64::from(*begun), COPY.min(room.min(u64::from(left)) as u32))
        }
        (Op::Copy, ..) => return None,
        (op, ..) => (op, to, left),
    };
    let (Stretch { way, shared, .. }, at, room) = find(offset)?;
    let len = room.min(u64::from(most)) as u32;
    Some(Piece { op, way, at, to: offset, shared, len, step: len })
}

#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod tests;
