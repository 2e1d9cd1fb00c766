//! What is on its way to the drives of a pool: parts of a volume's commands, and I/O of the pool itself. A drive knows a part by its tag,
//! and asks for its bytes and answers through [`Via`], which stands between the drives and the doors.

use crate::tokens::{Kind, owner};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use weir_controller::{Data, DataPointer, Host, Owner, RingCompletion, SlotId, SpoiledTransfer, Tag};
use weir_spec::nvme::{Cqe, Status};
use weir_units::Nanos;

/// Whose queue at a drive it is that belongs to the front of that number.
pub fn front_owner(front: u32) -> Owner {
    owner(Kind::Volume, front)
}

/// The same of a pool itself.
pub fn pool_owner(pool: u32) -> Owner {
    owner(Kind::Volume, pool | POOL)
}

/// The same of a guest from another shard.
pub fn guest_owner(guest: u32) -> Owner {
    owner(Kind::Volume, guest | GUEST)
}

/// Set in the place of an owner that is a pool.
pub const POOL: u32 = 1 << 27;
/// Set in the place of an owner that is a guest.
pub const GUEST: u32 = 1 << 26;

/// A part of another shard, for its answer to find it: places are used again, numbers are not before 2^32 others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    tag: Tag,
    number: u32,
}

/// Whom a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A command of a front, and the place of the drive among those of its volume.
    Front {
        /// Its number.
        front: u32,
        /// The command's slot there.
        slot: SlotId,
        /// Place of the drive among the volume's.
        drive: u32,
    },
    /// What a front copies or compares by itself.
    Job {
        /// Its number.
        front: u32,
        /// Place of the drive among the volume's.
        drive: u32,
    },
    /// A pool's own I/O, and the place of the drive among its own.
    Pool {
        /// Its number.
        pool: u32,
        /// Place of the drive among the pool's.
        drive: u32,
    },
    /// A command that another shard has sent.
    Guest {
        /// The guest's number.
        guest: u32,
        /// Goes back with the answer.
        ticket: Ticket,
        /// The answer has its bytes.
        gives: bool,
        /// It may be taken back when the process ends.
        returns: bool,
    },
    /// Nobody any more: what the drive makes of it moves nothing.
    Nobody,
}

/// Where a part's bytes are.
#[derive(Debug)]
pub enum Bytes {
    /// With the host of the command, from that byte of its data on.
    Host {
        /// The queue's.
        owner: Owner,
        /// The command's.
        data: DataPointer,
        /// Where the part begins in them.
        skip: u32,
    },
    /// Here.
    Own(Vec<u8>),
    /// With the host of the command, and taken once for all parts that have it.
    Once(Arc<Once>),
}

/// Bytes of a host that several parts take: whoever is first gets them, and all have the same, whatever the host does to them.
#[derive(Debug)]
pub struct Once {
    owner: Owner,
    data: DataPointer,
    skip: u32,
    len: u32,
    taken: OnceLock<Result<Vec<u8>, Status>>,
}

impl Once {
    /// So many bytes of a command's data, from one on.
    pub fn new(owner: Owner, data: DataPointer, skip: u32, len: u32) -> Arc<Self> {
        Arc::new(Self { owner, data, skip, len, taken: OnceLock::new() })
    }

    fn take(&self, doors: &mut impl Host, is_live: bool) -> &Result<Vec<u8>, Status> {
        self.taken.get_or_init(|| {
            if !is_live {
                return Err(Status::ABORTED_SQ_DELETION);
            }
            let mut bytes = vec![0; self.len as usize];
            match self.data.get() {
                Data::Pattern(pattern) => {
                    let pattern = pattern.to_le_bytes();
                    bytes.iter_mut().zip(self.skip as usize..).for_each(|(to, i)| *to = pattern[i % 4]);
                }
                _ => doors.read_data(self.owner, &self.data, self.skip, &mut bytes)?,
            }
            Ok(bytes)
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Part {
    /// Who gets the answer.
    pub whose: Whose,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Part {
    /// Whoever sent the command is still there to give and take its bytes.
    #[inline]
    fn is_live(&self, fronts: &impl Fronts) -> bool {
        match self.whose {
            Whose::Front { front, slot, .. } => fronts.is_live(front, slot),
            Whose::Job { .. } | Whose::Pool { .. } | Whose::Guest { .. } => true,
            Whose::Nobody => false,
        }
    }

    #[inline]
    fn read(&self, doors: &mut impl Host, fronts: &impl Fronts, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        match &self.bytes {
            Bytes::Own(bytes) => {
                let from = bytes.get(offset as usize..).and_then(|b| b.get(..into.len()));
                into.copy_from_slice(from.ok_or(Status::DATA_TRANSFER_ERROR)?);
                Ok(())
            }
            Bytes::Once(once) => {
                let bytes = once.take(doors, self.is_live(fronts)).as_ref().map_err(|status| *status)?;
                let from = bytes.get(offset as usize..).and_then(|b| b.get(..into.len()));
                into.copy_from_slice(from.ok_or(Status::DATA_TRANSFER_ERROR)?);
                Ok(())
            }
            Bytes::Host { .. } if !self.is_live(fronts) => Err(Status::ABORTED_SQ_DELETION),
            Bytes::Host { owner, data, skip } => match data.get() {
                Data::Pattern(pattern) => {
                    let bytes = pattern.to_le_bytes();
                    into.iter_mut().zip((skip + offset) as usize..).for_each(|(to, i)| *to = bytes[i % 4]);
                    Ok(())
                }
                _ => doors.read_data(*owner, data, skip + offset, into),
            },
        }
    }

    #[inline]
    fn write(&mut self, doors: &mut impl Host, fronts: &impl Fronts, offset: u32, from: &[u8]) -> Result<(), Status> {
        let live = self.is_live(fronts);
        match &mut self.bytes {
            Bytes::Own(bytes) => {
                let into = bytes.get_mut(offset as usize..).and_then(|b| b.get_mut(..from.len()));
                into.ok_or(Status::DATA_TRANSFER_ERROR)?.copy_from_slice(from);
                Ok(())
            }
            Bytes::Host { .. } if !live => Err(Status::ABORTED_SQ_DELETION),
            Bytes::Once(_) => Err(Status::DATA_TRANSFER_ERROR),
            Bytes::Host { owner, data, skip } => doors.write_data(*owner, data, *skip + offset, from),
        }
    }
}

/// Whose commands parts are of.
pub trait Fronts {
    /// Whether the host of the command in that slot of a front waits for it still.
    fn is_live(&self, front: u32, slot: SlotId) -> bool;
}

/// All parts that are on their way on a shard.
#[derive(Debug, Default)]
pub struct Parts {
    list: Vec<Option<(u32, Part)>>,
    free: Vec<u32>,
    /// Place and number of parts that have been answered: of two answers the first counts.
    done: VecDeque<(u32, u32, Status)>,
    number: u32,
    /// Those of other shards that go on in the next process, by their places: when they are due there, if a drive has begun them.
    taken_back: BTreeMap<u32, Option<Nanos>>,
}

impl Parts {
    /// One more; its tag.
    pub fn insert(&mut self, part: Part) -> Tag {
        let at = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() as u32 - 1
        });
        self.number = self.number.wrapping_add(1);
        self.list[at as usize] = Some((self.number, part));
        self.taken_back.remove(&at);
        Tag(at)
    }

    /// None is on its way.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.list.len()
    }

    /// What its answer finds it by when it comes from another shard; `None` if it is not there.
    pub fn ticket(&self, tag: Tag) -> Option<Ticket> {
        let number = self.list.get(tag.0 as usize)?.as_ref()?.0;
        Some(Ticket { tag, number })
    }

    /// The bytes that a part's command takes, for another shard.
    ///
    /// # Errors
    /// Its host does not give them.
    pub fn load(&mut self, tag: Tag, len: u32, doors: &mut impl Host, fronts: &impl Fronts) -> Result<Vec<u8>, Status> {
        let Some(Some((_, part))) = self.list.get_mut(tag.0 as usize) else { return Err(Status::INTERNAL_ERROR) };
        if let Bytes::Own(bytes) = &mut part.bytes {
            return Ok(std::mem::take(bytes));
        }
        let mut bytes = vec![0; len as usize];
        part.read(doors, fronts, 0, &mut bytes).map(|()| bytes)
    }

    /// An answer from another shard, with the bytes that the command gives. Nothing, if nobody waits for it any more.
    pub fn unload(
        &mut self,
        ticket: Ticket,
        (status, bytes): (Status, Vec<u8>),
        doors: &mut impl Host,
        fronts: &impl Fronts,
    ) {
        let at = ticket.tag.0;
        let Some(Some((number, part))) = self.list.get_mut(at as usize) else { return };
        if *number != ticket.number {
            return;
        }
        let mut answer = status;
        if status.is_success() && !bytes.is_empty() {
            match &mut part.bytes {
                Bytes::Own(own) => *own = bytes,
                Bytes::Host { .. } | Bytes::Once(_) => {
                    answer = part.write(doors, fronts, 0, &bytes).err().unwrap_or(status)
                }
            }
        }
        self.answer(ticket.tag, answer);
    }

    /// One that has been answered, with the answer.
    pub fn take_done(&mut self) -> Option<(Part, Status)> {
        while let Some((at, number, status)) = self.done.pop_front() {
            let place = self.list.get_mut(at as usize);
            if let Some((_, part)) = place.and_then(|p| p.take_if(|(n, _)| *n == number)) {
                self.free.push(at);
                return Some((part, status));
            }
        }
        None
    }

    /// All that are on their way, with their tags.
    pub fn all(&self) -> impl Iterator<Item = (Tag, &Part)> {
        self.list.iter().zip(0u32..).filter_map(|(part, at)| part.as_ref().map(|(_, part)| (Tag(at), part)))
    }

    /// The shard of its drive has said that a part goes on in the next process.
    pub fn take_back(&mut self, ticket: Ticket, due: Option<Nanos>) {
        if self.ticket(ticket.tag) == Some(ticket) {
            self.taken_back.insert(ticket.tag.0, due);
        }
    }

    /// A part that was to go to another shard does not leave any more, and goes on in the next process.
    pub fn hold_back(&mut self, tag: Tag) {
        self.taken_back.insert(tag.0, None);
    }

    /// Whether a part is a front's, of a command or of what it copies.
    pub fn is_fronts(&self, tag: Tag) -> bool {
        let part = self.list.get(tag.0 as usize).and_then(Option::as_ref);
        part.is_some_and(|(_, part)| matches!(part.whose, Whose::Front { .. } | Whose::Job { .. }))
    }

    /// When a part of another shard is due in the next process, if a drive has begun it; `None`: it is on its way.
    pub fn taken_back(&self, tag: Tag) -> Option<Option<Nanos>> {
        self.taken_back.get(&tag.0).copied()
    }

    /// A guest's part goes on in the next process: what the drive makes of it here reaches nobody, and moves nothing. What its answer would have found it by.
    pub fn disown(&mut self, tag: Tag) -> Option<Ticket> {
        let Some((_, part)) = self.list.get_mut(tag.0 as usize)? else { return None };
        let Whose::Guest { ticket, returns: true, .. } = part.whose else { return None };
        *part = Part { whose: Whose::Nobody, bytes: Bytes::Own(Vec::new()) };
        Some(ticket)
    }

    /// An answer for a part that is on its way.
    #[inline]
    pub fn answer(&mut self, tag: Tag, status: Status) {
        if let Some(Some((number, _))) = self.list.get(tag.0 as usize) {
            self.done.push_back((tag.0, *number, status));
        }
    }

    /// Some have been answered.
    pub fn any_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Those of an owner's queue at a drive that has dropped it come to nothing.
    pub fn fail(&mut self, which: impl Fn(&Whose) -> bool, status: Status) {
        for (part, at) in self.list.iter().zip(0u32..) {
            let Some((number, _)) = part.as_ref().filter(|(_, p)| which(&p.whose)) else { continue };
            if !self.done.iter().any(|(done, of, _)| (*done, *of) == (at, *number)) {
                self.done.push_back((at, *number, status));
            }
        }
    }

    /// Drops those whose answers nobody wants.
    pub fn forget(&mut self, which: impl Fn(&Whose) -> bool) {
        for (part, at) in self.list.iter_mut().zip(0u32..) {
            if part.take_if(|(_, p)| which(&p.whose)).is_some() {
                self.done.retain(|(done, ..)| *done != at);
                self.free.push(at);
            }
        }
    }

    fn get(&mut self, data: &DataPointer) -> Option<&mut Part> {
        self.list.get_mut(data.as_tag()?.0 as usize)?.as_mut().map(|(_, part)| part)
    }
}

/// The doors as the drives see them: where a queue is a volume's or a pool's, its part is asked, and the host behind it.
pub struct Via<'a, H, F> {
    /// The doors.
    pub doors: &'a mut H,
    /// What is on its way.
    pub parts: &'a mut Parts,
    /// Whose commands they are parts of.
    pub fronts: &'a F,
}

#[inline]
fn is_part(owner: Owner) -> bool {
    owner.0 >> 28 == Kind::Volume as u32
}

impl<H: Host, F: Fronts> Host for Via<'_, H, F> {
    #[inline]
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.doors.fetch(owner, address)
    }

    #[inline]
    fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.doors.post(owner, address, vector, cqe)
    }

    #[inline]
    fn take(&mut self, owner: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        self.doors.take(owner, qid, entry, head)
    }

    fn decide(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        self.doors.decide(owner, tag, cqe);
    }

    #[inline]
    fn complete(
        &mut self,
        owner: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        self.doors.complete(owner, address, vector, cqe, taken)
    }

    fn interrupt(&mut self, owner: Owner, vector: u16) {
        self.doors.interrupt(owner, vector);
    }

    #[inline]
    fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        match is_part(owner) {
            true => self.parts.answer(tag, cqe.status()),
            false => self.doors.respond(owner, tag, cqe),
        }
    }

    fn begin_spoiled(&mut self, transfer: SpoiledTransfer) {
        self.doors.begin_spoiled(transfer);
    }

    fn end_spoiled(&mut self, owner: Owner, data: &DataPointer) {
        self.doors.end_spoiled(owner, data);
    }

    #[inline]
    fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        if !is_part(owner) {
            return self.doors.read_data(owner, data, offset, into);
        }
        let part = self.parts.get(data).ok_or(Status::DATA_TRANSFER_ERROR)?;
        part.read(self.doors, self.fronts, offset, into)
    }

    #[inline]
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        if !is_part(owner) {
            return self.doors.write_data(owner, data, offset, from);
        }
        let part = self.parts.get(data).ok_or(Status::DATA_TRANSFER_ERROR)?;
        part.write(self.doors, self.fronts, offset, from)
    }

    #[inline]
    fn write_nothing(&mut self, owner: Owner, data: &DataPointer, offset: u32, len: u32) -> Result<(), Status> {
        if is_part(owner) {
            // Its bytes may be memory of this process, which is not to be read as it was.
            return self.write_zeroes(owner, data, offset, len);
        }
        self.doors.write_nothing(owner, data, offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(drive: u32) -> Part {
        Part { whose: Whose::Pool { pool: 0, drive }, bytes: Bytes::Own(Vec::new()) }
    }

    #[test]
    fn a_guests_part_that_goes_back_moves_nothing_and_answers_nobody() {
        let mut parts = Parts::default();
        let home = parts.insert(part(0));
        let ticket = parts.ticket(home).expect("it is there");
        let guest = |returns| Part {
            whose: Whose::Guest { guest: 0, ticket, gives: true, returns },
            bytes: Bytes::Own(vec![7; 16]),
        };
        let (stays, goes) = (parts.insert(guest(false)), parts.insert(guest(true)));
        assert_eq!(parts.disown(stays), None, "its pool waits for it");
        assert_eq!(parts.disown(goes), Some(ticket));
        let whose: Vec<bool> = parts.all().map(|(_, part)| part.whose == Whose::Nobody).collect();
        assert_eq!(whose, [false, false, true]);
        assert!(parts.all().all(|(tag, part)| tag != goes || matches!(&part.bytes, Bytes::Own(own) if own.is_empty())));
        // The shard that it is of.
        assert_eq!(parts.taken_back(home), None);
        parts.take_back(ticket, Some(Nanos(9)));
        assert_eq!(parts.taken_back(home), Some(Some(Nanos(9))));
        parts.forget(|whose| matches!(whose, Whose::Pool { .. }));
        let other = parts.insert(part(1));
        assert_eq!((other, parts.taken_back(other)), (home, None), "the place is another part's");
        parts.take_back(ticket, None);
        assert_eq!(parts.taken_back(other), None, "what was for the other one is not for it");
    }

    #[test]
    fn of_two_answers_the_first_counts_and_none_is_anothers() {
        let mut parts = Parts::default();
        let late = parts.insert(part(0));
        parts.fail(|_| true, Status::INTERNAL_PATH_ERROR);
        // The drive's answer comes before the failed part has been taken.
        parts.answer(late, Status::SUCCESS);
        assert_eq!(parts.take_done().map(|(_, status)| status), Some(Status::INTERNAL_PATH_ERROR));
        let other = parts.insert(part(1));
        assert_eq!(other, late, "the place is used again");
        assert!(parts.take_done().is_none() && !parts.is_empty());
        parts.answer(other, Status::SUCCESS);
        let done = parts.take_done().map(|(part, status)| (part.whose, status));
        assert_eq!(done, Some((Whose::Pool { pool: 0, drive: 1 }, Status::SUCCESS)));
        assert!(parts.is_empty());
    }
}
