//! The path of a command on a zoned namespace, beside the one of all others.
//!
//! ```text
//!  start ─▶ start_zoned ─┬─▶ read, write, append: slot ─▶ (its time) ─▶ Effect::Io ─▶ done ─▶ settle
//!                        ├─▶ reset: slot ─▶ held while writes are in flight ─▶ Effect::Io, Deallocate ─▶ done ─▶ settle
//!                        ├─▶ open, close, finish, flush: slot ─▶ (their time) ─▶ done
//!                        └─▶ report, refusals: complete
//! ```

use super::{LOCKED, Space, ZonedOp, status};
use crate::event::{Io, Op, SlotId};
use crate::host::{DataPointer, Host, Owner, Tag};
use crate::io::plan::CommandPlan;
use crate::io::slots::SlotState;
use crate::io::starting::Starting;
use crate::namespace::Namespace;
use crate::queues::command::{Command, flag};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::vec;
use weir_flash::{Selection, ZoneAction};
use weir_spec::nvme::register::css;
use weir_spec::nvme::zns::{SendAction, SendDw13, ZonedOpcode};
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;

/// What becomes of a command.
enum Verdict {
    /// Bytes move at the media offset, when the time has come.
    Move { offset: u64, due: Nanos, owes: Option<ZonedOp> },
    /// Nothing moves; it is complete then.
    Complete(Nanos),
    /// These zones are to be reset.
    Reset(ZonedOp),
}

impl Subsystem {
    /// Gives a command on a zoned namespace a slot, completes or refuses it. The caller has seen that it fits.
    #[cold]
    pub(crate) fn start_zoned<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, ref plan, data, decided, .. } = *starting;
        let command = &command.unplaced();
        let verdict = match ZonedOpcode(command.opcode) {
            ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => match self.report_zones(queue, command, &data, host) {
                Ok(()) => Ok(Verdict::Complete(now)),
                Err(status) => Err(status),
            },
            ZonedOpcode::ZONE_MANAGEMENT_SEND if plan.transfer > 0 => {
                self.extend_zone(now, queue, command, &data, host)
            }
            _ => self.judge(now, queue, (command, plan), decided),
        };
        let verdict = match verdict {
            Err(status) => return self.refuse(queue, command, status, host),
            Ok(Verdict::Complete(due)) if due <= now && self.config.latency.0 == 0 => {
                return self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host);
            }
            Ok(verdict) => verdict,
        };
        let owner = self.sq(queue).owner;
        let id = self.occupy_for(starting);
        let least = now.saturating_add(self.config.latency);
        match verdict {
            Verdict::Complete(due) => self.slots.delay_done(id, due.max(least)),
            Verdict::Reset(op) => self.hold_reset(now, id, op),
            Verdict::Move { offset, due, owes } => {
                if let Some(op) = owes {
                    self.decide_place(queue, command, &op, host);
                    self.owe(id, op);
                }
                let (op, nsid, len, fua) = (plan.op, command.nsid, plan.len, command.is(flag::FUA));
                let io = Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua, skip: 0 };
                self.emit_at(now, id, io, due.max(least));
            }
        }
    }

    /// Where a write goes is known, and nothing of it is there yet.
    fn decide_place<H: Host>(&self, queue: u32, command: &Command, op: &ZonedOp, host: &mut H) {
        let (sq, ZonedOp::Write { result, .. }) = (self.sq(queue), op) else { return };
        if sq.ring {
            let cqe = self.outcome(queue, command.cid, Status::SUCCESS, *result);
            host.decide(sq.owner, Tag(command.tag), &cqe);
        }
    }

    pub(crate) fn occupy_for(&mut self, starting: &Starting) -> u32 {
        let Starting { queue, ref command, ref plan, arrived, .. } = *starting;
        let (id, slot) = self.slots.occupy(plan.transfer);
        slot.assign((queue, arrived), command, NONE, SlotState::Held);
        if ZonedOpcode(command.opcode) == ZonedOpcode::ZONE_APPEND {
            // An append is a write for the statistics.
            slot.opcode = IoOpcode::WRITE.0;
        }
        id
    }

    pub(crate) fn owe(&mut self, id: u32, op: ZonedOp) {
        if let ZonedOp::Write { space, zone, .. } = op {
            self.zoned[space].busy[zone as usize] += 1;
        }
        let (index, work) = self.slots.take_work();
        work.zoned = Some(op);
        self.slots.slots[id as usize].ranges = index;
    }

    fn emit_at(&mut self, now: Nanos, id: u32, io: Io, due: Nanos) {
        if due <= now { self.slots.make_ready(id, io) } else { self.slots.delay(now, id, io, due) }
    }

    pub(super) fn space(&self, nsid: u32) -> Result<usize, Status> {
        self.zoned.iter().position(|s| s.nsid == nsid).ok_or(Status::INTERNAL_ERROR)
    }

    /// Whether the queue's controller has the command set enabled. A front controller's door takes what there is.
    pub(super) fn zones_enabled(&self, queue: u32) -> Result<(), Status> {
        let sq = self.sq(queue);
        let enabled = sq.front || self.ctrl(sq.controller).is_some_and(|ctrl| ctrl.cc.css() == css::ALL);
        if enabled { Ok(()) } else { Err(Status::COMMAND_SET_NOT_ENABLED.dnr()) }
    }

    /// What becomes of a command; `decided` is where an append was put before a crash.
    fn judge(
        &mut self,
        now: Nanos,
        queue: u32,
        (command, plan): (&Command, &CommandPlan),
        decided: Option<u64>,
    ) -> Result<Verdict, Status> {
        self.zones_enabled(queue)?;
        let ns = *self.namespaces.active(command.nsid)?;
        let space = self.space(command.nsid)?;
        if ZonedOpcode(command.opcode) == ZonedOpcode::ZONE_MANAGEMENT_SEND {
            return self.manage_zones(now, space, command);
        }
        let zones = &mut self.zoned[space];
        let (start, blocks) = (command.slba, command.blocks);
        if matches!(plan.op, Op::Read | Op::Compare | Op::Verify) {
            let due = zones.engine.read(now, start, blocks).map_err(status)?;
            return Ok(Verdict::Move { offset: plan.offset, due, owes: None });
        }
        zones.locked_at(start)?;
        let append = ZonedOpcode(command.opcode) == ZonedOpcode::ZONE_APPEND;
        let decided = decided.map(|at| if append { at } else { start });
        let engine = &mut zones.engine;
        let placed = match decided {
            Some(at) => engine.write(now, at, blocks),
            None if append => engine.append(now, start, blocks),
            None => engine.write(now, start, blocks),
        };
        let placed = match (placed, decided) {
            (Err(_), Some(at)) => return self.write_again(now, (space, &ns), (at, blocks), append),
            (placed, _) => placed.map_err(status)?,
        };
        let owes = ZonedOp::Write {
            space,
            zone: placed.zone,
            wp: placed.wp,
            durable: command.is(flag::FUA),
            life: zones.life,
            result: if append { placed.start } else { 0 },
        };
        let offset = ns.locate(placed.start, blocks.into()).ok_or(Status::INTERNAL_ERROR)?;
        Ok(Verdict::Move { offset, due: placed.done, owes: Some(owes) })
    }

    /// A write whose place was decided before a crash, which the zone has already: its bytes go there once more.
    fn write_again(
        &self,
        now: Nanos,
        (space, ns): (usize, &Namespace),
        (at, blocks): (u64, u32),
        append: bool,
    ) -> Result<Verdict, Status> {
        let zones = &self.zoned[space];
        let (zone, _) = zones.zones().locate(at).map_err(status)?;
        let offset = ns.locate(at, blocks.into()).ok_or(Status::INTERNAL_ERROR)?;
        // Of another life: where the zone is is known.
        let life = zones.life.wrapping_add(1);
        let owes = ZonedOp::Write { space, zone, wp: 0, durable: false, life, result: if append { at } else { 0 } };
        Ok(Verdict::Move { offset, due: now, owes: Some(owes) })
    }

    /// What a copy within a zoned namespace does to its zones (ZNS 1.1, 3.2.1): every source is readable, and the destination is
    /// written at its write pointer. Answers where that is on the media, when all is done, and what is owed.
    pub(crate) fn copy_on_zones(
        &mut self,
        now: Nanos,
        queue: u32,
        command: &Command,
        (sources, blocks): (&[(u64, u64)], u32),
    ) -> Result<(u64, Nanos, Option<ZonedOp>), Status> {
        self.zones_enabled(queue)?;
        let ns = *self.namespaces.active(command.nsid)?;
        let space = self.space(command.nsid)?;
        let zones = &mut self.zoned[space];
        zones.locked_at(command.slba)?;
        let mut due = now;
        for (first, n) in sources {
            due = due.max(zones.engine.read(now, *first, *n as u32).map_err(status)?);
        }
        let placed = zones.engine.write(now, command.slba, blocks).map_err(status)?;
        let to = ns.locate(placed.start, blocks.into()).ok_or(Status::INTERNAL_ERROR)?;
        let (zone, wp, life, durable) = (placed.zone, placed.wp, zones.life, command.is(flag::FUA));
        let owed = ZonedOp::Write { space, zone, wp, durable, life, result: 0 };
        Ok((to, due.max(placed.done), Some(owed)))
    }

    /// Zone Management Send that sets a descriptor extension (ZNS 1.1, 3.4.3.1.6).
    fn extend_zone<H: Host>(
        &mut self,
        now: Nanos,
        queue: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<Verdict, Status> {
        self.zones_enabled(queue)?;
        let size = self.namespaces.active(command.nsid)?.extension;
        let space = self.space(command.nsid)?;
        let zone = match self.zoned[space].zones().locate(command.slba).map_err(status)? {
            (zone, 0) if SendDw13(command.blocks).all() == 0 => zone,
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        self.zoned[space].locked(Selection::One(zone))?;
        let mut extension = vec![0; size as usize];
        host.read_data(self.sq(queue).owner, data, 0, &mut extension)?;
        let done = self.zoned[space].engine.set_extension(now, zone).map_err(status)?;
        self.zoned[space].zones_mut().put_extension(zone, &extension);
        Ok(Verdict::Complete(done))
    }

    /// Zone Management Send (ZNS 1.1, 3.4.3).
    fn manage_zones(&mut self, now: Nanos, space: usize, command: &Command) -> Result<Verdict, Status> {
        let dw13 = SendDw13(command.blocks);
        let (all, option) = (dw13.all() == 1, dw13.zsaso() == 1);
        let zones = &mut self.zoned[space];
        let invalid = Status::INVALID_FIELD.dnr();
        let action = match SendAction(dw13.zsa() as u8) {
            SendAction::CLOSE => ZoneAction::Close,
            SendAction::FINISH => ZoneAction::Finish,
            SendAction::OPEN => ZoneAction::Open,
            SendAction::RESET => ZoneAction::Reset,
            SendAction::OFFLINE => ZoneAction::Offline,
            SendAction::FLUSH_ZRWA if !all => {
                zones.locked_at(command.slba)?;
                return zones.engine.flush_zrwa(now, command.slba).map(Verdict::Complete).map_err(status);
            }
            _ => return Err(invalid),
        };
        let selection = if all {
            Selection::All
        } else {
            match zones.zones().locate(command.slba).map_err(status)? {
                (zone, 0) => Selection::One(zone),
                _ => return Err(invalid),
            }
        };
        zones.locked(selection)?;
        match (action, selection) {
            (ZoneAction::Open, Selection::One(zone)) if option => {
                zones.engine.open_with_zrwa(now, zone).map(Verdict::Complete).map_err(status)
            }
            (ZoneAction::Open, Selection::All) if option => Err(invalid),
            (ZoneAction::Reset, _) => {
                if !zones.zones().allows(action, selection).map_err(status)? {
                    return Ok(Verdict::Complete(now));
                }
                let selected = zones.zones().iter().enumerate().filter(|(_, z)| action.selects(z.state));
                let selected = selected.map(|(i, _)| i as u32);
                let zones = selected.filter(|i| matches!(selection, Selection::All) || selection == Selection::One(*i));
                Ok(Verdict::Reset(ZonedOp::Reset { space, zones: zones.collect() }))
            }
            _ => zones.engine.manage(now, action, selection).map(Verdict::Complete).map_err(status),
        }
    }

    /// A reset begins, or waits until no write of its zones is in flight.
    fn hold_reset(&mut self, now: Nanos, id: u32, op: ZonedOp) {
        let ZonedOp::Reset { space, ref zones } = op else { return };
        for zone in zones {
            self.zoned[space].busy[*zone as usize] |= LOCKED;
        }
        self.owe(id, op);
        self.zoned[space].held.push(id);
        self.release_held(now, space);
    }

    /// Begins the resets that wait for nothing any more.
    fn release_held(&mut self, now: Nanos, space: usize) {
        let mut at = 0;
        while let Some(id) = self.zoned[space].held.get(at).copied() {
            let index = self.slots.slots[id as usize].ranges;
            let Some(ZonedOp::Reset { zones, .. }) = self.slots.work(index).zoned.clone() else { return };
            if zones.iter().any(|zone| self.zoned[space].busy[*zone as usize] != LOCKED) {
                at += 1;
                continue;
            }
            self.zoned[space].held.remove(at);
            self.begin_reset(now, id, space, &zones);
        }
    }

    fn begin_reset(&mut self, now: Nanos, id: u32, space: usize, zones: &[u32]) {
        let nsid = self.zoned[space].nsid;
        let Ok(ns) = self.namespaces.active(nsid).copied() else { return };
        let index = self.slots.slots[id as usize].ranges;
        let mut due = now.saturating_add(self.config.latency);
        for zone in zones {
            // One that was taken out of service in the meantime stays as it is.
            let Ok(done) = self.zoned[space].engine.manage(now, ZoneAction::Reset, Selection::One(*zone)) else {
                continue;
            };
            due = due.max(done);
            let (offset, len) = extent(&self.zoned[space], &ns, *zone);
            self.slots.work(index).extend(offset, len);
        }
        match self.slots.work(index).next() {
            Some((offset, len)) => {
                let (owner, data) = (Owner(u32::MAX), DataPointer::tag(Tag(u32::MAX)));
                let io =
                    Io { slot: SlotId(id), owner, data, op: Op::Deallocate, nsid, offset, len, fua: false, skip: 0 };
                self.emit_at(now, id, io, due);
            }
            None => self.slots.delay_done(id, due),
        }
    }

    /// What commands on zoned namespaces and a vendor's commands owed: their slots are given back, done or not.
    #[cold]
    pub(crate) fn settle_released(&mut self, now: Nanos) {
        while let Some(op) = self.slots.released.pop() {
            match op {
                ZonedOp::Write { space, zone, wp, durable, life, .. } => {
                    self.zoned[space].busy[zone as usize] -= 1;
                    if life == self.zoned[space].life {
                        self.zoned[space].zones_mut().landed(zone, wp, durable);
                    }
                    self.release_held(now, space);
                }
                ZonedOp::Reset { space, zones } => {
                    for zone in zones {
                        self.zoned[space].busy[zone as usize] &= !LOCKED;
                    }
                }
            }
        }
        self.settle_vendor();
    }

    /// The media has failed a command: zones whose bytes are not what they should be take no more writes.
    #[cold]
    pub(crate) fn spoil_zones(&mut self, op: &ZonedOp) {
        let (space, zones) = match op {
            ZonedOp::Write { space, zone, .. } => (*space, core::slice::from_ref(zone)),
            ZonedOp::Reset { space, zones } => (*space, &zones[..]),
        };
        for zone in zones {
            let nsid = self.zoned[space].nsid;
            if self.zoned[space].engine.degrade(*zone, false).is_ok() {
                self.note_zone(nsid, *zone);
            }
        }
    }
}

/// Where a zone lies on the media: offset and bytes.
pub(super) fn extent(space: &Space, ns: &Namespace, zone: u32) -> (u64, u64) {
    let zones = space.zones();
    (ns.start + (zones.start(zone) << ns.shift), u64::from(zones.config().size) << ns.shift)
}
