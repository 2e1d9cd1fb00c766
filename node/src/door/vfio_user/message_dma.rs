//! Commands whose bytes lie in memory that cannot be mapped.
//!
//! A client may hand over DMA regions without a descriptor; they are read and written by messages, and their answers take as long
//! as the client likes. So a command that reads from such memory is shown to the drive only when its bytes are here, in the order
//! of its queue, and one that writes there is complete for the drive when the messages are on their way, but for its host only
//! when they are answered: no slot of the drive ever waits for a client.
//!
//! ```text
//!   tail rung ─► advance: the entry, its lists, its bytes are all in reach? ──yes──► the drive sees the tail
//!                   └─no─► DMA_READ ... ─answers─► advance again
//!   write_data ─► DMA_WRITE ... ─answers─► the completion that post() held back
//! ```
//! What cannot be read, or written, ends its command with Data Transfer Error. Queues and shadow doorbells must lie in memory
//! that can be mapped: a drive cannot wait for each entry (an entry that cannot be read is fatal for the controller). Commands
//! together move at most [`MOST`] bytes by messages; more wait in their queues.

use super::client_memory::Homes;
use weir_controller::{ControllerHandle, DataPiece, DataPointer, Direction, RingCompletion, Subsystem, Tag, Walk};
use weir_session::memory::Memory;
use weir_session::vfio_user::{Answered, Bell, DmaTicket, Late, VfioUserDevice};
use weir_spec::nvme::{Cqe, Status};
use weir_spec::vfio_user::Command;
use weir_units::Nanos;

/// Bytes of the commands that are on their way, of one client. One larger command is let through alone.
const MOST: u64 = 8 << 20;

/// How far a submission queue's client has rung, if it has, and how far the drive has been told; `None`: as far as it says itself.
#[derive(Clone, Copy, Default)]
struct Tail {
    rung: Option<u32>,
    told: Option<u32>,
}

impl Tail {
    fn is_told(&self) -> bool {
        self.rung.is_none() || self.told == self.rung
    }
}

/// Bytes that were asked for with one message.
struct Part {
    address: u64,
    len: u32,
    /// `None` while they are on their way; empty where they could not be had.
    bytes: Option<Vec<u8>>,
}

/// A command that moves bytes by messages.
struct Entry {
    ticket: DmaTicket,
    qid: u16,
    cid: u16,
    data: DataPointer,
    direction: Direction,
    parts: Vec<Part>,
    /// Writes without an answer.
    writes: u32,
    failed: bool,
    /// Its completion, and where that goes.
    held: Option<Completion>,
}

/// A completion that is to be written.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    /// Where in the client's memory.
    pub(super) address: u64,
    pub(super) vector: Option<u16>,
    pub(super) cqe: Cqe,
    /// How its queue's journal knows the command, if it does.
    pub(super) taken: Option<RingCompletion>,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct MessageDma {
    tails: Vec<Tail>,
    entries: Vec<Entry>,
    tickets: u64,
    /// The client owes more answers than there may be: it is to be disconnected.
    pub(super) flooded: bool,
    /// Messages for the client.
    pub(super) out: Vec<Vec<u8>>,
}

/// What is needed to look at a client's commands.
pub(super) struct Looks<'a> {
    pub(super) now: Nanos,
    pub(super) machine: &'a Subsystem,
    pub(super) controller: ControllerHandle,
    pub(super) homes: Homes<'a>,
    pub(super) device: &'a mut VfioUserDevice,
}

impl MessageDma {
    /// Nothing waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.tails.iter().all(Tail::is_told)
    }

    /// No command moves bytes by messages.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How far the drive may see a queue, if the client has rung it.
    pub(super) fn told(&self, qid: u16) -> Option<u32> {
        self.tails.get(usize::from(qid)).and_then(|t| t.told)
    }

    /// The completions that wait for answers.
    pub(super) fn late(&self) -> Vec<Late> {
        let late = |e: &Entry| {
            let Completion { address, vector, cqe, taken: _ } = e.held?;
            Some(Late { ticket: e.ticket, address, vector, cqe, writes: e.writes, failed: e.failed })
        };
        self.entries.iter().filter_map(late).collect()
    }

    /// The completions that wait for answers and that a journal has in flight; from now on only [`late`](Self::late) knows of them.
    pub(super) fn hand_on(&mut self) -> Vec<(Cqe, RingCompletion)> {
        let held = self.entries.iter_mut().filter_map(|e| e.held.as_mut());
        held.filter_map(|held| Some((held.cqe, held.taken.take()?))).collect()
    }

    /// How many queues it knows something of.
    pub(super) fn queues(&self) -> usize {
        self.tails.len()
    }

    /// How far a queue was rung, and how far the drive was told.
    pub(super) fn tail(&self, qid: usize) -> (Option<u32>, Option<u32>) {
        self.tails.get(qid).map_or((None, None), |t| (t.rung, t.told))
    }

    /// One that knows of these tails, with the completions that another one held back. What commands that the drive has not
    /// seen lack is asked for again.
    pub(super) fn resume(bells: &[Bell], late: &[Late]) -> Self {
        let entry = |late: &Late| Entry {
            ticket: late.ticket,
            qid: late.cqe.sqid.get(),
            cid: late.cqe.cid.get(),
            // Its data have been moved; no ring's command has such a pointer.
            data: DataPointer::tag(Tag(u32::MAX)),
            direction: Direction::ToHost,
            parts: Vec::new(),
            writes: late.writes,
            failed: late.failed,
            held: Some(Completion { address: late.address, vector: late.vector, cqe: late.cqe, taken: None }),
        };
        let tickets = late.iter().map(|late| late.ticket.0 + 1).max().unwrap_or(0);
        let tails = bells.iter().map(|bell| Tail { rung: bell.rung, told: bell.told }).collect();
        Self { tails, entries: late.iter().map(entry).collect(), tickets, ..Self::default() }
    }

    /// The drive has forgotten what it was told of this queue and has not fetched: it is shown again, when it is ready.
    pub(super) fn untell(&mut self, qid: u16) {
        if let Some(tail) = self.tails.get_mut(usize::from(qid)) {
            tail.told = None;
        }
    }

    /// The drive was told nothing: it is a new one, and looks at every doorbell anew.
    pub(super) fn forget_tails(&mut self) {
        self.tails.clear();
    }

    /// The client has rung.
    pub(super) fn ring(&mut self, qid: u16, tail: u32) {
        let at = usize::from(qid);
        if self.tails.len() <= at {
            self.tails.resize(at + 1, Tail::default());
        }
        self.tails[at].rung = Some(tail);
    }

    /// The queue is gone, and its commands with it.
    pub(super) fn forget_queue(&mut self, qid: u16, device: &mut VfioUserDevice) {
        if let Some(tail) = self.tails.get_mut(usize::from(qid)) {
            *tail = Tail::default();
        }
        let gone: Vec<DmaTicket> = self.entries.iter().filter(|e| e.qid == qid).map(|e| e.ticket).collect();
        device.requests().abandon(|t| gone.contains(&t));
        self.entries.retain(|e| e.qid != qid);
    }

    /// All queues are gone.
    pub(super) fn forget_all(&mut self, device: &mut VfioUserDevice) {
        self.tails.clear();
        self.entries.clear();
        device.requests().abandon(|_| true);
    }

    /// Shows the drive what it may see by now; calls `tell` with each queue that has more.
    pub(super) fn advance(&mut self, looks: &mut Looks<'_>, mut tell: impl FnMut(u16, u32)) {
        for at in 0..self.tails.len() {
            let tail = self.tails[at];
            let Tail { rung: Some(rung), told } = tail else { continue };
            if tail.is_told() {
                continue;
            }
            let now = self.tail_to_tell(at as u16, (rung, told), looks);
            self.tails[at].told = Some(now);
            if told != Some(now) {
                tell(at as u16, now);
            }
        }
    }

    fn tail_to_tell(&mut self, qid: u16, (rung, told): (u32, Option<u32>), looks: &mut Looks<'_>) -> u32 {
        let place = looks.machine.ring_place(looks.controller, qid);
        // What cannot be is the drive's to say.
        let Some((base, size, tail)) = place.filter(|(_, size, _)| rung < *size) else { return rung };
        let mut at = told.unwrap_or(tail) % size;
        while at != rung && self.admits(qid, base.wrapping_add(u64::from(at) * 64), looks) {
            at = (at + 1) % size;
        }
        at
    }

    /// Whether the drive may see the entry at an address; what is missing is asked for.
    fn admits(&mut self, qid: u16, address: u64, looks: &mut Looks<'_>) -> bool {
        let Ok(entry) = looks.homes.fetch(address) else { return true };
        let Some((data, direction)) = looks.machine.announced(looks.controller, qid, &entry) else { return true };
        let cid = (entry[0] >> 16) as u16;
        // The one that was looked at before, if the client has not changed it since.
        let is = |e: &Entry| (e.qid, e.cid) == (qid, cid) && e.data == data && e.held.is_none();
        if let Some(at) = self.entries.iter().position(is) {
            return self.gather(at, looks);
        }
        if !is_far(&data, direction, looks) {
            return true;
        }
        let moving: u64 = self.entries.iter().map(|e| u64::from(e.data.len())).sum();
        if moving > 0 && moving + u64::from(data.len()) > MOST {
            return false;
        }
        let ticket = DmaTicket(self.tickets);
        self.tickets += 1;
        let parts = Vec::new();
        self.entries.push(Entry { ticket, qid, cid, data, direction, parts, writes: 0, failed: false, held: None });
        self.gather(self.entries.len() - 1, looks)
    }

    /// Asks for what a command's bytes, or its lists, lack; true if that is nothing more.
    fn gather(&mut self, at: usize, looks: &mut Looks<'_>) -> bool {
        let entry = &self.entries[at];
        let mut missing = Vec::new();
        walk(&entry.data, entry.direction, looks, &entry.parts, |far| {
            if far.list || entry.direction == Direction::FromHost {
                missing.push(far);
            }
        });
        let (ticket, most) = (entry.ticket, looks.device.requests().most());
        for Far { address, len, .. } in missing {
            for from in (0..len).step_by(most as usize) {
                let (address, len) = (address + u64::from(from), (len - from).min(most));
                let parts = &mut self.entries[at].parts;
                if !parts
                    .iter()
                    .any(|p| p.address <= address && address + u64::from(len) <= p.address + u64::from(p.len))
                {
                    parts.push(Part { address, len, bytes: None });
                    let asked = looks.device.requests().read(looks.now, ticket, address, len);
                    self.flooded |= asked.is_none();
                    self.out.extend(asked);
                }
            }
        }
        self.entries[at].parts.iter().all(|p| p.bytes.is_some())
    }

    /// The client has answered; a completion that waited for it.
    pub(super) fn answered(&mut self, answered: Answered) -> Option<Completion> {
        let at = self.entries.iter().position(|e| e.ticket == answered.ticket)?;
        let entry = &mut self.entries[at];
        match answered.command {
            Command::DMA_READ => {
                let is = |p: &&mut Part| p.address == answered.address && p.bytes.is_none();
                if let Some(part) = entry.parts.iter_mut().find(is) {
                    // What could not be had is found to be missing when the drive wants it.
                    part.bytes = Some(answered.result.unwrap_or_default());
                }
            }
            _ => {
                entry.writes = entry.writes.saturating_sub(1);
                entry.failed |= answered.result.is_err();
            }
        }
        if entry.writes > 0 || entry.held.is_none() {
            return None;
        }
        self.entries.swap_remove(at).release()
    }

    /// Bytes of a command that the drive reads now, those in memory and those that were asked for.
    pub(super) fn read(
        &self,
        data: &DataPointer,
        homes: Homes<'_>,
        address: u64,
        into: &mut [u8],
    ) -> Result<(), Status> {
        let parts = self.entries.iter().filter(|e| e.data.get() == data.get()).flat_map(|e| &e.parts);
        let mut done = 0;
        while done < into.len() {
            let (at, rest) = (address.wrapping_add(done as u64), &mut into[done..]);
            done += match homes.prefix(at, rest.len() as u32) as usize {
                0 => found(parts.clone(), at, rest)?,
                n => read(homes, at, &mut rest[..n]).map(|()| n)?,
            };
        }
        Ok(())
    }

    /// Bytes of a command that the drive writes now.
    pub(super) fn write(
        &mut self,
        (data, now): (&DataPointer, Nanos),
        (homes, device): (Homes<'_>, &mut VfioUserDevice),
        (address, bytes): (u64, &[u8]),
    ) -> Result<(), Status> {
        let mut of = self.entries.iter_mut();
        let entry = of.find(|e| e.data.get() == data.get() && e.direction == Direction::ToHost);
        let entry = entry.ok_or(Status::DATA_TRANSFER_ERROR)?;
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (address.wrapping_add(done as u64), &bytes[done..]);
            let near = homes.prefix(at, rest.len() as u32) as usize;
            if near > 0 {
                let (memory, at) = homes.of(at, near)?;
                memory.write(at, &rest[..near]).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
                done += near;
                continue;
            }
            let most = device.requests().most();
            let n = device.messaged(at, rest.len() as u32, true).min(most) as usize;
            if n == 0 {
                return Err(Status::DATA_TRANSFER_ERROR);
            }
            let Some(asked) = device.requests().write(now, entry.ticket, at, &rest[..n]) else {
                self.flooded = true;
                return Err(Status::DATA_TRANSFER_ERROR);
            };
            self.out.push(asked);
            entry.writes += 1;
            done += n;
        }
        Ok(())
    }

    /// Holds a completion back until the writes of its command are answered; gives it back where there are none.
    pub(super) fn hold(&mut self, completion: Completion) -> Option<Completion> {
        let (qid, cid) = (completion.cqe.sqid.get(), completion.cqe.cid.get());
        let is = |e: &Entry| (e.qid, e.cid) == (qid, cid) && e.held.is_none();
        let Some(at) = self.entries.iter().position(is) else { return Some(completion) };
        self.entries[at].held = Some(completion);
        if self.entries[at].writes > 0 {
            return None;
        }
        self.entries.swap_remove(at).release()
    }
}

impl Entry {
    /// Its completion, which says so if its bytes did not arrive.
    fn release(self) -> Option<Completion> {
        let mut held = self.held?;
        if self.failed && held.cqe.status().is_success() {
            held.cqe.set_status(Status::DATA_TRANSFER_ERROR);
        }
        Some(held)
    }
}

/// Copies what the part that holds an address has of the bytes from there on; how many.
fn found<'a>(mut parts: impl Iterator<Item = &'a Part>, address: u64, into: &mut [u8]) -> Result<usize, Status> {
    let from = parts.find_map(|part| {
        let at = address.checked_sub(part.address)? as usize;
        part.bytes.as_deref()?.get(at..).filter(|rest| !rest.is_empty())
    });
    let from = from.ok_or(Status::DATA_TRANSFER_ERROR)?;
    let n = from.len().min(into.len());
    into[..n].copy_from_slice(&from[..n]);
    Ok(n)
}

fn read(homes: Homes<'_>, address: u64, into: &mut [u8]) -> Result<(), Status> {
    let (memory, address) = homes.of(address, into.len())?;
    memory.read(address, into).map_err(|_| Status::DATA_TRANSFER_ERROR)
}

/// Whether bytes or lists of the command that an entry of that queue is are reached by messages.
pub(super) fn is_entry_far(qid: u16, entry: &[u64; 8], looks: &Looks<'_>) -> bool {
    let announced = looks.machine.announced(looks.controller, qid, entry);
    announced.is_some_and(|(data, direction)| is_far(&data, direction, looks))
}

/// Whether some of these bytes, or of their lists, are reached by messages.
fn is_far(data: &DataPointer, direction: Direction, looks: &Looks<'_>) -> bool {
    let mut found = false;
    walk(data, direction, looks, &[], |_| found = true);
    found
}

/// Memory that is reached by messages, of a command's bytes or one of its lists.
#[derive(Clone, Copy)]
struct Far {
    address: u64,
    len: u32,
    list: bool,
}

/// Walks over a command's bytes and lists, as far as these are here, and names what is in memory that is reached by messages.
/// What is wrong with a list is the drive's to find.
fn walk(data: &DataPointer, direction: Direction, looks: &Looks<'_>, parts: &[Part], mut far: impl FnMut(Far)) {
    let (homes, device) = (looks.homes, &*looks.device);
    let mut lacking = None;
    let mut walk = Walk::new(data, direction, 0, data.len());
    while let Ok(Some(piece)) = walk.next(&mut |address, into: &mut [u8]| {
        read(homes, address, into).or_else(|e| {
            let mut done = 0;
            while done < into.len() {
                let at = address.wrapping_add(done as u64);
                match found(parts.iter(), at, &mut into[done..]) {
                    Ok(n) => done += n,
                    Err(_) => {
                        let len = device.messaged(at, (into.len() - done) as u32, false);
                        lacking = (len > 0).then_some(Far { address: at, len, list: true });
                        return Err(e);
                    }
                }
            }
            Ok(())
        })
    }) {
        let DataPiece::Memory { mut address, mut len } = piece else { continue };
        while len > 0 {
            let near = homes.prefix(address, len);
            let n = if near > 0 { near } else { device.messaged(address, len, direction == Direction::ToHost) };
            if n == 0 {
                return;
            }
            if near == 0 {
                far(Far { address, len: n, list: false });
            }
            (address, len) = (address.wrapping_add(n.into()), len - n);
        }
    }
    lacking.into_iter().for_each(far);
}
