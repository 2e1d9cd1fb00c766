//! The controllers of a drive that hosts reach through rings, as bytes, so that another process goes on with them while their hosts use
//! them: registers, features, queues, event requests that wait.
//!
//! ```text
//!  magic "WEIRFUNC" │ version u32 │ length u32 │ I/O queues u16 │ controllers u16, each its length u32 and … │ CRC32C u32 of all before
//! ```
//! `docs/reference/formats.md` has what a controller is written as; its first part is that of an [association](crate::saved::fabrics). The drive has
//! nothing of its queues in flight then. What its host has put on the rings and the drive has not fetched stays there: the place of the
//! heads and how many entries wait is all that is needed. The number of I/O queues that a controller may have goes with them: a host that
//! goes on was shown it. Whoever restores [claims](Subsystem::claim_function) each controller for its
//! door, and drops the rest by [`drop_unclaimed_functions`](Subsystem::drop_unclaimed_functions).
//!
//! Not carried: error logs and notifications of reservations, and interrupts that are held back to be coalesced, which whoever goes on
//! signals once too often instead.

use crate::controller::{Controller, Shutdown, Transport, UNCLAIMED};
use crate::event::ControllerHandle;
use crate::host::{Nobody, Owner};
use crate::queues::interrupt::masks;
use crate::queues::queue::{Cq, NONE, SqState};
use crate::queues::shadow::Shadow;
use crate::saved::fabrics::{Local, Wish, write_state};
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_codec::{Always, Coder, Counted, Damaged, Reader, SavedError, SavedFormat, Writer, coded, fields};
use weir_spec::nvme::tcp::TableDigest;
use weir_units::Nanos;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRFUNC", VERSION, "the state of PCIe controllers");

coded! { Shadow { doorbells, event_indexes, queues } }

fields! { pub(crate) Controller: put_registers, get_registers, registers_rows {
    aqa.0: "AQA",
    intm: "interrupt mask",
    asq: "ASQ",
    acq: "ACQ",
    cmbmsc.0: "CMBMSC",
    nssro: "NSSRO of CSTS",
    shadow as Always: "shadow doorbells: their address u64, that of the event indexes u64, queue identifiers with a place there u16",
} }

fields! { pub(crate) Cq: put_cq, get_cq, cq_rows {
    qid: "identifier",
    vector as Always: "interrupt vector",
    base: "address of its entries",
    size: "entries",
    head: "the entry that its host reads next",
    tail: "the entry that is written next",
    phase: "the phase of that",
    seen: "its head as its doorbell said last",
    event: "what is written where its host looks whether to ring",
} }

impl Subsystem {
    /// Whether a ring controller can go on in another process: nothing of its queues is in flight, and it is not about to shut down.
    pub fn carries_function(&self, controller: ControllerHandle) -> bool {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c));
        ctrl.is_some_and(|ctrl| ctrl.transport == Transport::Rings && self.is_carried(ctrl))
    }

    fn is_carried(&self, ctrl: &Controller) -> bool {
        let rests = matches!(ctrl.shutdown, Shutdown::None | Shutdown::Complete);
        let still = |q: &u32| {
            let sq = self.sq(*q);
            let parked = if sq.qid == 0 { ctrl.aer.waiting.len() } else { 0 };
            sq.state == SqState::Open && sq.deleter.is_none() && sq.in_flight as usize == parked
        };
        rests && ctrl.sqs.iter().filter(|q| **q != NONE).all(still)
    }

    /// The ring controllers that [can go on](Self::carries_function), for [`resume_functions`](Self::resume_functions).
    pub fn functions(&self, now: Nanos) -> Vec<u8> {
        let rings = |c: &&Controller| c.transport == Transport::Rings && self.is_carried(c);
        let list: Vec<&Controller> = self.controllers.list.iter().flatten().map(|c| &**c).filter(rings).collect();
        self.write_functions(now, &list)
    }

    /// The same of these, whatever they have in flight.
    pub(crate) fn write_functions(&self, now: Nanos, list: &[&Controller]) -> Vec<u8> {
        let mut to = FORMAT.begin(now);
        to.put(&(self.config.max_io_queues, list.len() as u16));
        for ctrl in list {
            let mut one = to.part();
            write_state(ctrl, &mut one);
            put_registers(ctrl, &mut one);
            self.write_rings(ctrl, &mut one);
            to.bytes(&one.done());
        }
        FORMAT.seal::<TableDigest>(to)
    }

    fn write_rings(&self, ctrl: &Controller, to: &mut Writer) {
        let cqs: Vec<&Cq> = ctrl.cqs.iter().filter_map(|at| self.queues.cqs.get(*at as usize)?.as_ref()).collect();
        to.u16(cqs.len() as u16);
        cqs.into_iter().for_each(|cq| put_cq(cq, to));
        let sqs: Vec<u32> = ctrl.sqs.iter().copied().filter(|q| *q != NONE).collect();
        to.u16(sqs.len() as u16);
        for q in sqs {
            let sq = self.sq(q);
            to.put(&(sq.qid, self.queues.cqs[sq.cq as usize].as_ref().map_or(0, |cq| cq.qid)));
            to.u64(sq.base);
            to.words([sq.size, sq.head, sq.waiting]);
            to.put(&sq.paused);
            Wish::put(&sq.wish, to);
            Local::put(&sq.local, to);
            to.words([sq.seen, sq.event]);
            <Counted<u16> as Coder<_>>::put(&sq.holes, to);
        }
    }

    /// Gives a drive that was just made, and has its nonvolatile state, the ring controllers that another process had; how many of them
    /// cannot be read, or do not fit this drive, which has the others. As long as it has any it offers as many I/O queues as their hosts
    /// were shown.
    ///
    /// # Errors
    /// The bytes are not such controllers. It has none of them then.
    pub fn resume_functions(&mut self, now: Nanos, bytes: &[u8]) -> Result<usize, SavedError> {
        let (_, mut from) = FORMAT.open::<TableDigest>(now, bytes)?;
        let configured = self.config.max_io_queues;
        match self.read_functions(&mut from) {
            Ok(lost) if from.is_empty() => Ok(lost),
            _ => {
                self.drop_unclaimed_functions();
                self.config.max_io_queues = configured;
                Err(SavedError::Damaged)
            }
        }
    }

    fn read_functions(&mut self, from: &mut Reader<'_>) -> Result<usize, Damaged> {
        let (queues, count): (u16, u16) = from.get()?;
        let mut lost = 0;
        if count > 0 {
            self.config.max_io_queues = queues;
        }
        for _ in 0..count {
            let bytes = from.bytes()?;
            let there: Vec<bool> = self.controllers.list.iter().map(Option::is_some).collect();
            if self.read_function(&mut from.part(bytes)).is_err() {
                lost += 1;
                // What there is of it.
                let new = (0..self.controllers.list.len())
                    .find(|c| self.controllers.list[*c].is_some() && there.get(*c) != Some(&true));
                new.into_iter().for_each(|c| self.drop_controller(c as u32));
            }
        }
        Ok(lost)
    }

    fn read_function(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let c = self.read_state(Transport::Rings, from)?;
        self.read_registers(c, from)?;
        for _ in 0..from.u16()? {
            self.read_cq(c, from)?;
        }
        for _ in 0..from.u16()? {
            self.read_sq(c, from)?;
        }
        self.stand_by(c)?;
        from.end()
    }

    fn read_registers(&mut self, c: u32, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let most = self.config.max_io_queues.saturating_add(1);
        let ctrl = self.ctrl_mut(c).ok_or(Damaged)?;
        get_registers(ctrl, from)?;
        if ctrl.shadow.is_some_and(|shadow| shadow.queues > most) { Err(Damaged) } else { Ok(()) }
    }

    fn read_cq(&mut self, c: u32, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let mut cq = Cq::new(c, 0, 0, 2, None);
        get_cq(&mut cq, from)?;
        let Cq { qid, vector, size, head, tail, .. } = cq;
        cq.laps = u64::from(!cq.phase);
        let ctrl = self.ctrl(c).ok_or(Damaged)?;
        let granted = ctrl.features.queues.map_or(self.config.max_io_queues, |(_, cqs)| cqs);
        let sane = (2..=self.config.max_queue_entries).contains(&size)
            && head < size
            && tail < size
            && qid <= granted.min(self.config.max_io_queues)
            && vector.is_none_or(|vector| vector <= self.config.max_io_queues)
            && ctrl.cq(qid) == NONE;
        if !sane {
            return Err(Damaged);
        }
        cq.credit = size - 1 - cq.used();
        self.place_cq(cq);
        Ok(())
    }

    fn read_sq(&mut self, c: u32, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let ((qid, cqid), base): (_, u64) = from.get()?;
        let [size, head, waiting] = from.get()?;
        let (paused, wish, local) = (from.get()?, Wish::get(from)?, Local::get(from)?);
        let [seen, event] = from.get()?;
        let holes: Vec<u32> = Counted::<u16>::get(from)?;
        let ctrl = self.ctrl(c).ok_or(Damaged)?;
        let granted = ctrl.features.queues.map_or(self.config.max_io_queues, |(sqs, _)| sqs);
        let cq = ctrl.cq(cqid);
        let sane = (2..=self.config.max_queue_entries).contains(&size)
            && head < size
            && waiting < size
            && holes.iter().all(|at| *at < size)
            && holes.len() < size as usize
            && qid <= granted.min(self.config.max_io_queues)
            && (qid == 0) == (cqid == 0)
            && ctrl.sq(qid) == NONE
            && cq != NONE;
        if !sane {
            return Err(Damaged);
        }
        let events = if qid == 0 { ctrl.aer.waiting.len() as u32 } else { 0 };
        let q = self.make_sq(c, qid, size, UNCLAIMED, wish, local);
        let sq = self.sq_mut(q);
        (sq.ring, sq.base, sq.cq, sq.head, sq.waiting) = (true, base, cq, head, waiting);
        (sq.paused, sq.in_flight, sq.seen, sq.event, sq.holes) = (paused, events, seen, event, holes);
        sq.arrive_again(from.now());
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.users += 1;
        }
        Ok(())
    }

    /// All of a controller is there: its queues are served as soon as somebody claims it.
    fn stand_by(&mut self, c: u32) -> Result<(), Damaged> {
        let ctrl = self.ctrl(c).ok_or(Damaged)?;
        let (enabled, admin) = (ctrl.csts.rdy() == 1, ctrl.sq(0) != NONE);
        let any = ctrl.sqs.iter().chain(&ctrl.cqs).any(|q| *q != NONE);
        // What is enabled has its admin queues, what is not has none.
        if enabled != admin
            || enabled != (ctrl.cq(0) != NONE)
            || any && !enabled
            || !enabled && !ctrl.aer.waiting.is_empty()
        {
            return Err(Damaged);
        }
        self.goes_on(c);
        // Nobody has claimed it yet, so nobody is told.
        self.gate(c, &mut Nobody);
        Ok(())
    }

    /// The resumed controller of that host, for the door that calls it `owner` from now on and can reach its rings; `None` where there is
    /// none. One that was another tenant's is dropped.
    pub fn claim_function(&mut self, host: &str, tenant: u16, owner: Owner) -> Option<ControllerHandle> {
        let is = |ctrl: &Controller| ctrl.transport == Transport::Rings && ctrl.owner == UNCLAIMED && ctrl.host == host;
        let c = (0..self.controllers.list.len() as u32).find(|c| self.ctrl(*c).is_some_and(is))?;
        if self.ctrl(c).is_some_and(|ctrl| ctrl.tenant != tenant) {
            self.drop_controller(c);
            return None;
        }
        let ctrl = self.ctrl_mut(c)?;
        ctrl.owner = owner;
        let handle = ctrl.handle(c);
        let queues: Vec<u32> = ctrl.sqs.iter().copied().filter(|q| *q != NONE).collect();
        for q in queues {
            self.sq_mut(q).owner = owner;
            match self.sq(q).qid {
                0 => self.list_admin(c),
                _ => self.refresh(q),
            }
        }
        self.turn.more = true;
        Some(handle)
    }

    /// The drive forgets that entries of a ring are there that it has not fetched: their door tells it again, when what it had ready for
    /// them is ready again. Only where the drive was told just as far as `told`.
    pub fn untell(&mut self, controller: ControllerHandle, qid: u16, told: u32) -> bool {
        let ctrl =
            self.resolve(controller).and_then(|c| self.ctrl(c)).filter(|ctrl| ctrl.transport == Transport::Rings);
        let q = ctrl.map_or(NONE, |ctrl| ctrl.sq(qid));
        if q == NONE || self.sq(q).tail() != told {
            return false;
        }
        let sq = self.sq_mut(q);
        (sq.waiting, sq.awaits) = (0, false);
        if sq.seen == told {
            // Its shadow doorbell is looked at anew.
            sq.seen = sq.head;
        }
        let (key, starved, cq) = (sq.key, core::mem::take(&mut sq.starved), sq.cq);
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.starved -= u32::from(starved);
        }
        if qid != 0 {
            self.arbiter.withdraw(key);
        }
        true
    }

    /// The vectors of a ring controller whose host has completions to read, as far as is known; those that it masks by INTMS apart.
    pub fn unread(&self, controller: ControllerHandle) -> Vec<u16> {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl(c)) else { return Vec::new() };
        let cqs = ctrl.cqs.iter().filter_map(|index| self.queues.cqs.get(*index as usize)?.as_ref());
        let vectors = cqs.filter(|cq| cq.used() > 0).filter_map(|cq| cq.vector);
        vectors.filter(|vector| !masks(ctrl.intm, *vector)).collect()
    }

    /// Nobody comes any more for the resumed controllers that were not claimed.
    pub fn drop_unclaimed_functions(&mut self) {
        for c in 0..self.controllers.list.len() as u32 {
            if self.ctrl(c).is_some_and(|ctrl| ctrl.transport == Transport::Rings && ctrl.owner == UNCLAIMED) {
                self.drop_controller(c);
            }
        }
    }
}
