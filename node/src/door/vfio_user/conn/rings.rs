//! The journal of a client's I/O queues: what was fetched from its rings and did not complete is known to who comes after a crash.

use super::{Conn, UNRUNG};
use crate::door::context::{Arrival, Cx};
use crate::door::vfio_user::client_memory::{Homes, Pages};
use crate::door::vfio_user::message_dma::{Completion, Looks, is_entry_far};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_controller::{
    ControllerHandle, DataPointer, Event, Host, Journals, Owner, RecoveredController, RingCompletion, ShadowPages,
    Subsystem, Tag,
};
use weir_spec::nvme::register::{self, Doorbell};
use weir_spec::nvme::{Cqe, Status};
use weir_sys::memory::doorbells::Doorbells;
use weir_sys::memory::{JournalWords, sealed_file};

/// The journal, and its memory, which is never the client's.
pub(in crate::door::vfio_user) struct Rings {
    journals: Journals<JournalWords>,
    file: OwnedFd,
    /// The drive has yet to be told what was rung by messages.
    untold: bool,
}

impl Rings {
    /// A new one for a controller of that drive, which is told.
    ///
    /// # Errors
    /// What the system says.
    pub(in crate::door::vfio_user) fn new(machine: &mut Subsystem, controller: ControllerHandle) -> io::Result<Self> {
        let (queues, entries) = limits(machine);
        let file = sealed_file("weir-journal", Journals::<JournalWords>::bytes(queues, entries))?;
        machine.keep_rings(controller, life()?);
        Self::open(file, machine)
    }

    /// That of a client that another process had.
    ///
    /// # Errors
    /// What the system says, or why the file is not such a journal.
    pub(in crate::door::vfio_user) fn open(file: OwnedFd, machine: &Subsystem) -> io::Result<Self> {
        let (queues, entries) = limits(machine);
        let bytes = Journals::<JournalWords>::bytes(queues, entries);
        let words = JournalWords::map(file.as_fd(), 0, bytes)?;
        let journals = Journals::open(words, queues, entries).map_err(io::Error::other)?;
        Ok(Self { journals, file, untold: false })
    }

    /// Its memory file.
    pub(in crate::door::vfio_user) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Begins the journals of queues that are new; false if there is one whose journal cannot be kept. Before every checkpoint.
    pub(in crate::door::vfio_user) fn follow(&mut self, machine: &Subsystem, controller: ControllerHandle) -> bool {
        self.journals.follow(machine, controller)
    }
}

/// A number that no controller has had.
fn life() -> io::Result<NonZeroU64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(NonZeroU64::new(u64::from_ne_bytes(bytes)).unwrap_or(NonZeroU64::MIN))
}

fn limits(machine: &Subsystem) -> (u16, u32) {
    (machine.config().max_io_queues, machine.config().max_queue_entries)
}

impl Conn {
    /// A command leaves its ring.
    #[inline]
    pub(in crate::door::vfio_user) fn take(&mut self, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        match &mut self.rings {
            Some(rings) if qid != 0 => rings.journals.take(qid, entry, head),
            _ => Tag(0),
        }
    }

    /// The outcome of a command is known.
    pub(in crate::door::vfio_user) fn decide(&mut self, tag: Tag, cqe: &Cqe) {
        if let Some(rings) = &self.rings {
            rings.journals.decide(tag, cqe);
        }
    }

    /// As [`post`](Self::post), of a command that was [taken](Self::take).
    #[inline]
    pub(in crate::door::vfio_user) fn complete(
        &mut self,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<bool, Status> {
        if self.rings.is_none() || cqe.sqid.get() == 0 {
            return self.post(address, vector, cqe);
        }
        let completion = Completion { address, vector, cqe: *cqe, taken: Some(taken) };
        if !self.gate.is_empty() {
            return self.post_late(completion);
        }
        self.release(&completion)
    }

    /// Writes a completion that waits for nothing any more. The journal has its command in flight until then: a process that is killed
    /// while the gate holds it leaves one that cannot be gone on with, not one that is taken for posted.
    #[inline]
    pub(super) fn release(&mut self, completion: &Completion) -> Result<bool, Status> {
        let Completion { address, vector, cqe, taken } = completion;
        if let (Some(rings), Some(taken)) = (self.rings.as_deref_mut(), *taken) {
            rings.journals.done(cqe, taken);
        }
        self.put(*address, cqe)?;
        if let (Some(rings), Some(taken)) = (&mut self.rings, *taken) {
            rings.journals.posted(cqe, taken);
        }
        Ok(vector.is_some_and(|v| self.due(v)))
    }

    /// The completions that the gate holds are in a checkpoint for the process that comes next: to the journal they are posted.
    pub(super) fn hand_on_held(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        for (cqe, taken) in self.gate.hand_on() {
            rings.journals.done(&cqe, taken);
            rings.journals.posted(&cqe, taken);
        }
    }

    /// A register was written by a message: a doorbell is known to who comes after us before the drive is told. True if the drive is told
    /// later: messages come once more, and the process before may have known of newer ones.
    pub(super) fn note_bell(&mut self, offset: u32, value: u64) -> bool {
        let (is_deaf, number) = (self.is_deaf(), self.heard());
        let Some(rings) = &mut self.rings else { return false };
        let (qid, tail, head) = match register::doorbell_at(offset) {
            Some(Doorbell::SqTail(qid)) => (qid, Some(value as u32), None),
            Some(Doorbell::CqHead(qid)) => (qid, None, Some(value as u32)),
            None => return false,
        };
        let is_new = rings.journals.ring(number, qid, tail, head);
        let is_later = is_deaf || !is_new;
        let Some(bells) = &self.bells else {
            rings.untold |= is_later;
            return is_later;
        };
        // What came before is in the doorbells already, and perhaps something newer.
        let seen = self.seen.get_mut(usize::from(qid)).filter(|_| is_new && !self.shadowed && qid < bells.queues());
        let Some(seen) = seen else { return is_later };
        // Who has them mapped may write their registers all the same: the newest of both is what counts.
        let (at_tail, at_head) = bells.pair(qid);
        if let Some(tail) = tail.filter(|tail| bells.exchange_tail(qid, at_tail, *tail) && !is_deaf) {
            seen.0 = tail;
        }
        if let Some(head) = head.filter(|head| bells.exchange_head(qid, at_head, *head) && !is_deaf) {
            seen.1 = head;
        }
        // If so the drive is told when its doorbells are looked at.
        is_later
    }

    /// All that a message has rung is noted.
    #[inline]
    pub(super) fn has_rung(&mut self) {
        let number = self.heard();
        if let Some(rings) = &mut self.rings {
            rings.journals.rang(number);
        }
    }

    /// Tells the drive what was rung by messages, once all of them have come again.
    #[inline]
    pub(super) fn tell_noted(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) {
        if self.rings.as_ref().is_some_and(|rings| rings.untold) && !self.is_deaf() {
            self.tell_all((drive, controller), cx);
        }
    }

    #[cold]
    fn tell_all(&mut self, (drive, controller): (u32, ControllerHandle), cx: &mut Cx) {
        let gated = self.is_gated();
        let Some(rings) = &mut self.rings else { return };
        rings.untold = false;
        for qid in 0..cx.drives.machine(drive).ring_queues(controller).1 {
            let ((sq, cq), (tail, head)) =
                (cx.drives.machine(drive).ring_queue(controller, qid), rings.journals.rung(qid));
            if cq {
                cx.arrivals.push(Arrival { drive, event: Event::CqHead { controller, qid, head } });
            }
            if sq && gated && (qid == 0 || !self.shadowed) {
                self.gate.ring(qid, tail);
            } else if sq {
                cx.arrivals.push(Arrival { drive, event: Event::SqTail { controller, qid, tail } });
            }
        }
        if gated {
            self.advance((drive, controller), cx);
        }
    }

    /// What the doorbells of a pair of queues stand at: in the client's shadow pages, in its mapped doorbells, or as they were noted.
    fn rung(&self, qid: u16, noted: (u32, u32), pages: Option<&mut Pages<'_>>) -> (u32, u32) {
        if let Some(pages) = pages.filter(|pages| qid != 0 && qid < pages.shadow.queues) {
            // What cannot be read is told when the drive looks at it.
            let mut load = |index| pages.load(index).unwrap_or(UNRUNG);
            return (load(u32::from(qid) * 2), load(u32::from(qid) * 2 + 1));
        }
        match &self.bells {
            Some(bells) if qid < bells.queues() => bells.pair(qid),
            _ => noted,
        }
    }

    /// Puts the queues of a controller whose server was killed where they were: its memory and vectors are there again, the controller was
    /// [resumed](weir_controller::Subsystem::resume_checkpoint), and the completions of its admin queue are posted. What was in flight goes to
    /// the drive again, before it looks at the rings; every vector is to be signalled.
    ///
    /// # Errors
    /// Why the client cannot go on, as the operator is told.
    pub(in crate::door::vfio_user) fn recover_rings(
        &mut self,
        (drive, controller): (u32, ControllerHandle),
        cx: &mut Cx,
    ) -> Result<RecoveredController, String> {
        self.follow_buffer(drive, controller, cx);
        let mut rings = self.rings.take().ok_or("it has no journal")?;
        rings.untold = self.bells.is_none();
        self.gate.forget_tails();
        let gated = self.is_gated();
        let machine = cx.drives.get(drive);
        let shadow = machine.shadow(controller);
        let conn = &*self;
        let homes = || Homes { memory: &conn.memory, buffer: conn.buffer.as_deref() };
        let rung = |qid: u16, noted| {
            let mut pages = shadow.map(|shadow| Pages { homes: homes(), shadow, gate: None });
            let (tail, head) = conn.rung(qid, noted, pages.as_mut());
            // Commands are shown to the drive one by one: it begins with none.
            (if gated { UNRUNG } else { tail }, head)
        };
        let recovered = rings.journals.recover(machine, controller, rung, |address, cqe| conn.put(address, cqe));
        let recovered = recovered.map_err(|e| e.to_string())?;
        self.rings = Some(rings);
        let homes = Homes { memory: &self.memory, buffer: self.buffer.as_deref() };
        let looks = Looks { now: cx.now, machine, controller, homes, device: &mut self.device };
        if gated && recovered.commands.iter().any(|again| is_entry_far(again.qid, &again.entry, &looks)) {
            return Err("bytes of a command in flight are reached by messages".into());
        }
        let (epoch, len) = machine.ring_queues(controller);
        self.epoch = epoch;
        self.there = (0..len).map(|qid| machine.ring_queue(controller, qid)).collect();
        // The drive is told all tails again.
        self.seen = vec![(UNRUNG, UNRUNG); usize::from(len)];
        (0..self.gate.queues() as u16).for_each(|qid| self.gate.untell(qid));
        for qid in 0..self.bells.as_ref().map_or(0, Doorbells::queues) {
            let (sq, cq) = self.there.get(usize::from(qid)).copied().unwrap_or_default();
            let bells = self.bells.as_ref().filter(|_| !(sq && cq));
            // What was rung before they went, if nobody had come to clear it.
            bells.filter(|_| !sq).into_iter().for_each(|bells| bells.clear_tail(qid));
            bells.filter(|_| !cq).into_iter().for_each(|bells| bells.clear_head(qid));
            if let Some(seen) = self.seen.get_mut(usize::from(qid)) {
                *seen = (if sq { UNRUNG } else { 0 }, if cq { UNRUNG } else { 0 });
            }
        }
        let mut one = One(self);
        machine.resubmit(cx.now, controller, &recovered.commands, &mut one);
        cx.arrivals.push(Arrival { drive, event: Event::Run });
        (0..self.vectors.len() as u16).for_each(|vector| _ = self.due(vector));
        Ok(recovered)
    }
}

/// A client as the side that commands come from, while its door is not asked.
struct One<'a>(&'a mut Conn);

impl Host for One<'_> {
    fn fetch(&mut self, _: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.0.fetch(address)
    }
    fn post(&mut self, _: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.0.post(address, vector, cqe).map(|_| ())
    }
    fn take(&mut self, _: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        self.0.take(qid, entry, head)
    }
    fn decide(&mut self, _: Owner, tag: Tag, cqe: &Cqe) {
        self.0.decide(tag, cqe);
    }
    fn complete(
        &mut self,
        _: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        self.0.complete(address, vector, cqe, taken).map(|_| ())
    }
    fn interrupt(&mut self, _: Owner, vector: u16) {
        self.0.due(vector);
    }
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        self.0.read_data(data, offset, into)
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        self.0.write_data(data, offset, from)
    }
}
