//! A volume's way to its drives. A volume that is exported has a *front*: a controller of its own whose commands are not arbitrated but go
//! on at once, cut where the volume's chunks lie on other places, to queues of the volume's tenant at the drives. There they are arbitrated.
//!
//! ```text
//!  door ─► Subsystem of the front ─Io─► Front::begin ─pieces─► Event::Submit at a drive ─► … ─► Part ─► Front::over ─Done─► door
//! ```

use super::drive_queue::{DriveQueue, Sent};
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

/// Bytes of a volume that lie together on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins in the volume.
    pub start: u64,
    /// How long it is.
    pub len: u64,
    /// Place in [`Front::ways`]; `None`: it is lost, what is asked of it fails.
    pub way: Option<u32>,
    /// Where it begins on the drive.
    pub at: u64,
}

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
}

impl Front {
    /// Of a volume whose drives and places are still to be [laid out](Self::lay_out).
    pub fn new(number: u32, volume: (u32, VolumeId), tenant: u16, uuid: [u8; 16]) -> Self {
        let medium = Self::medium_of(uuid);
        let (ways, stretches, flights) = (Vec::new(), Vec::new(), Vec::new());
        let (waiting, outbox, untold, flushed) = (VecDeque::new(), VecDeque::new(), Vec::new(), Vec::new());
        let (end, losses) = (u64::MAX, 0);
        Self { number, volume, tenant, medium, ways, stretches, end, flights, waiting, losses, untold, flushed, outbox }
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
    }

    /// The front's queue at a drive, if there is one, nothing is in it, and nothing of the volume lies there: it is given back.
    pub fn leave(&mut self, drive: Place) -> Option<DriveQueue> {
        let at = self.ways.iter().position(|w| w.place == drive && !w.has_left())?;
        let is_needed = self.ways[at].used > 0 || self.stretches.iter().any(|s| s.way == Some(at as u32));
        (!is_needed).then(|| std::mem::replace(&mut self.ways[at].queue, DriveQueue::Closed))
    }

    /// No part of a command goes behind `end` from now on, not even of one that its machine has let pass before. Flushes go wherever
    /// something of the volume lies.
    pub fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Nothing of it is on its way.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.flights.iter().all(Option::is_none)
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
        let at = io.slot.index();
        if self.flights.len() <= at {
            self.flights.resize_with(at + 1, || None);
        }
        let (status, losses) = (Status::SUCCESS, self.losses);
        self.flights[at] = Some(Flight { io, begun: 0, out: 0, status, carried: None, writes: false, losses });
        self.pump(io.slot, parts, send)
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
            let status = self.pump(slot, parts, send);
            ended.extend(status.map(|status| (slot, status)));
        }
    }

    /// Makes as many parts of a command as may be on their way; how it ended, if it has.
    fn pump(&mut self, slot: SlotId, parts: &mut Parts, send: &mut Vec<Sent>) -> Option<Status> {
        loop {
            let Self { ways, stretches, end, flights, waiting, untold, flushed, .. } = self;
            let flight = flights[slot.index()].as_mut()?;
            let io = flight.io;
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
            let way = &mut ways[place as usize];
            if !way.queue.is_open() {
                flight.status = Status::INTERNAL_PATH_ERROR;
                flight.carried = None;
                continue;
            }
            if way.used >= way.depth {
                waiting.push_back(slot);
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
            send.extend(way.queue.send(request, tag));
        }
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
    len: u32,
    /// How far the command is then.
    step: u32,
}

fn piece(flight: &Flight, stretches: &[Stretch], end: u64) -> Option<Piece> {
    let Flight { io, begun, carried, .. } = flight;
    if io.op == Op::Flush {
        return Some(Piece { op: Op::Flush, way: Some(*begun), at: 0, len: 0, step: 1 });
    }
    let find = |offset: u64| {
        let i = stretches.partition_point(|s| s.start <= offset).checked_sub(1)?;
        let s = stretches[i];
        let inside = offset - s.start;
        let room = s.len.min(end.saturating_sub(s.start)).saturating_sub(inside);
        (room > 0).then_some((s.way, s.at + inside, room))
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
    let (way, at, room) = find(offset)?;
    let len = room.min(u64::from(most)) as u32;
    Some(Piece { op, way, at, len, step: len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_controller::{DataPointer, Owner};

    fn way(guest: u32) -> Way {
        let (place, queue) = (Place { shard: 1, drive: guest }, DriveQueue::There { shard: 1, guest });
        Way { place, queue, depth: 8, used: 0 }
    }

    fn flush() -> Io {
        let (data, op) = (DataPointer::pattern(0), Op::Flush);
        Io { slot: SlotId(0), owner: Owner(0), data, op, nsid: 1, offset: 0, len: 0, fua: false, skip: 0 }
    }

    fn write(slot: u32, offset: u64, len: u32) -> Io {
        Io { slot: SlotId(slot), op: Op::Write, offset, len, ..flush() }
    }

    /// Where the parts go that have been made: guest, from where, how much.
    fn sent(send: &mut Vec<Sent>) -> Vec<(u32, u64, u32)> {
        let part = |sent| match sent {
            Sent::There { guest, request, .. } => (guest, request.offset, request.len),
            Sent::Here(..) => panic!("all drives are elsewhere"),
        };
        send.drain(..).map(part).collect()
    }

    #[test]
    fn nothing_goes_behind_the_end_whatever_was_let_pass_before() {
        const MIB: u64 = 1 << 20;
        let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
        front.ways = (0..2).map(way).collect();
        let at = [(0, 0), (MIB, 1)].map(|(start, way)| Stretch { start, len: MIB, way: Some(way), at: 8 * MIB });
        front.lay_out(at.to_vec());
        let (mut parts, mut send) = (Parts::default(), Vec::new());
        let done = |bytes| (bytes, Status::SUCCESS);
        // Begun before, of which the rest comes after it.
        let from = DataPointer::media(MIB - u64::from(COPY));
        let copy = Io { op: Op::Copy, data: from, ..write(2, 0, 2 * COPY) };
        assert_eq!(front.begin(copy, &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 9 * MIB - u64::from(COPY), COPY)]);
        front.end_at(MIB);
        assert!(front.reaches(MIB));
        let carried = done(Bytes::Own(vec![0; COPY as usize]));
        assert_eq!(front.over((SlotId(2), 0), carried, &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 8 * MIB, COPY)]);
        let over = front.over((SlotId(2), 0), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
        assert_eq!((over, front.reaches(MIB)), (Some(Status::LBA_OUT_OF_RANGE), false));
        // Checked before, and begun after it.
        assert_eq!(front.begin(write(0, MIB, 4096), &mut parts, &mut send), Some(Status::LBA_OUT_OF_RANGE));
        assert_eq!(front.begin(write(1, MIB - 4096, 8192), &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 9 * MIB - 4096, 4096)]);
        let over = front.over((SlotId(1), 0), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
        assert_eq!(over, Some(Status::LBA_OUT_OF_RANGE));
        // Until it grows again, what was written there is flushed all the same.
        assert_eq!(front.begin(Io { slot: SlotId(0), ..flush() }, &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 0, 0), (1, 0, 0)]);
        (0..2).for_each(|way| {
            front.over((SlotId(0), way), done(Bytes::Own(Vec::new())), &mut parts, &mut send);
        });
        front.end_at(2 * MIB);
        assert_eq!(front.begin(write(0, MIB, 4096), &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(1, 8 * MIB, 4096)]);
    }

    /// The ways that a flush of a volume goes whose chunks lie at these ways, and how it ends when the last of them fails.
    fn flushed(ways: usize, lies: &[u32]) -> (Vec<u32>, Option<Status>) {
        let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
        front.ways = (0..ways as u32).map(way).collect();
        let stretch = |(i, way): (usize, &u32)| Stretch { start: i as u64 * 4096, len: 4096, way: Some(*way), at: 0 };
        front.lay_out(lies.iter().enumerate().map(stretch).collect());
        let (mut parts, mut send) = (Parts::default(), Vec::new());
        let mut ended = front.begin(flush(), &mut parts, &mut send);
        let mut gone = Vec::new();
        while let Some(Sent::There { guest, .. }) = send.pop() {
            assert_eq!(ended, None, "it ends with the last part");
            gone.push(guest);
            let status = if send.is_empty() { Status::INTERNAL_ERROR } else { Status::SUCCESS };
            ended = front.over((SlotId(0), guest), (Bytes::Own(Vec::new()), status), &mut parts, &mut send);
        }
        assert!(front.is_quiet());
        gone.sort_unstable();
        (gone, ended)
    }

    #[test]
    fn what_is_lost_fails_and_nothing_else() {
        const MIB: u64 = 1 << 20;
        let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
        front.ways = vec![way(0)];
        front.lay_out([(0, Some(0)), (MIB, None)].map(|(start, way)| Stretch { start, len: MIB, way, at: 0 }).to_vec());
        let (mut parts, mut send) = (Parts::default(), Vec::new());
        let done = || (Bytes::Own(Vec::new()), Status::SUCCESS);
        let (read, write_lost) = (Io { op: Op::Read, ..write(0, MIB, 4096) }, write(1, MIB, 4096));
        assert_eq!(front.begin(read, &mut parts, &mut send), Some(Status::UNRECOVERED_READ_ERROR.dnr()));
        assert_eq!(front.begin(write_lost, &mut parts, &mut send), Some(Status::WRITE_FAULT.dnr()));
        let (from, to) = (DataPointer::media(MIB), DataPointer::media(0));
        let copy = |data, offset| Io { op: Op::Copy, data, ..write(2, offset, 4096) };
        assert_eq!(front.begin(copy(from, 0), &mut parts, &mut send), Some(Status::UNRECOVERED_READ_ERROR.dnr()));
        assert_eq!(front.begin(copy(to, MIB), &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 0, 4096)]);
        let carried = (Bytes::Own(vec![0; 4096]), Status::SUCCESS);
        let over = front.over((SlotId(2), 0), carried, &mut parts, &mut send);
        assert_eq!((over, sent(&mut send)), (Some(Status::WRITE_FAULT.dnr()), vec![]));
        // Half of it there: that half is done, and the command fails.
        assert_eq!(front.begin(write(3, MIB - 4096, 8192), &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, MIB - 4096, 4096)]);
        assert_eq!(front.over((SlotId(3), 0), done(), &mut parts, &mut send), Some(Status::WRITE_FAULT.dnr()));
        assert_eq!(front.begin(Io { slot: SlotId(4), ..flush() }, &mut parts, &mut send), None);
        assert_eq!(sent(&mut send), [(0, 0, 0)], "what is there is flushed");
        assert_eq!(front.over((SlotId(4), 0), done(), &mut parts, &mut send), Some(Status::SUCCESS));
        assert!(front.is_quiet());
    }

    #[test]
    fn a_shutdown_and_a_flush_of_before_are_not_told() {
        let config = weir_controller::SubsystemConfig::new("nqn.2026-01.test.weir:v");
        let mut machine = weir_controller::Subsystem::new(config, weir_units::Nanos(0)).unwrap();
        let mut attach = |host: &str| {
            let model = weir_controller::TransportModel::Front;
            let attach = weir_controller::Attach { tenant: 0, owner: Owner(1), model, host: host.into() };
            machine.attach(weir_units::Nanos(0), attach).unwrap()
        };
        let (a, b) = ((attach("a"), "a"), (attach("b"), "b"));
        let mut front = Front::new(0, (0, VolumeId(1)), 0, [1; 16]);
        let live = |_| true;
        assert!(!front.must_fail(a, (false, 0), live));
        front.lose(machine.hosts());
        for _ in 0..2 {
            assert!(front.must_fail(a, (true, 1), live), "a shutdown's");
            assert!(front.must_fail(a, (false, 0), live), "it was on its way then");
        }
        assert!(front.must_fail(a, (false, 1), live) && !front.must_fail(a, (false, 1), live));
        assert!(front.must_fail(b, (true, 1), live) && front.must_fail(b, (false, 1), live));
        assert!(front.untold.is_empty());
    }

    #[test]
    fn a_flush_goes_only_where_the_volume_lies() {
        let failed = Some(Status::INTERNAL_ERROR);
        assert_eq!(flushed(3, &[0, 1, 2]), (vec![0, 1, 2], failed));
        assert_eq!(flushed(3, &[1, 1]), (vec![1], failed));
        assert_eq!(flushed(3, &[2]), (vec![2], failed));
        assert_eq!(flushed(6, &[0, 5, 0]), (vec![0, 5], failed));
        assert_eq!(flushed(2, &[]), (vec![], Some(Status::SUCCESS)), "nothing to wait for");
    }
}
