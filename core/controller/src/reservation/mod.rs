//! Reservations of namespaces (base 2.0, 8.19): their commands, notifications and features, around the machine of [`state`].
//!
//! Whose a command is, its controller says: by its host identifier (Connect over fabrics, feature 81h on rings). A controller whose
//! host has given none is a host of its own, which is forgotten when it is reset. A front controller's door knows no reservations:
//! its commands are a stranger's.

pub(crate) mod notices;
pub(crate) mod state;

use crate::admin::Admin;
use crate::controller::{Controller, Transport};
use crate::host::Host;
use crate::io::slow_path::waits::For;
use crate::io::starting::Starting;
use crate::queues::queue::NONE;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use state::{Group, HostRole, Registrant, ReservationEffects, ReservationError, Reservations, Who};
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::reservation::{
    AcquireData, EDS, NotificationType, RegisterData, RegisteredController, RegisteredControllerExtended, ReleaseData,
    ReservationDw10, ReservationStatus, ReservationType, STATUS_EXTENDED, notification_mask, rescap,
};
use weir_spec::nvme::{IoOpcode, Status};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// RESCAP: everything that there is.
pub(crate) const RESCAP: u8 = rescap::PERSIST | rescap::ALL_TYPES | rescap::IEKEY_1_3;

/// What is remembered of reservations that persist: for each namespace its NSID and generation, a count of registrants with
/// identifier and key of each, and, where somebody holds a reservation, its type and which of them it is.
pub(crate) const SECTION: Section = Section { id: 32, version: 1, save, restore };

fn save(drive: &Subsystem, to: &mut Writer) {
    write(drive, true, to);
}

/// Those that are to outlive a loss of power, or those that are not.
pub(crate) fn write(drive: &Subsystem, ptpl: bool, to: &mut Writer) {
    for (nsid, r) in drive.slow_path.reservations.iter().filter(|(_, r)| r.ptpl == ptpl) {
        // A host without an identifier would not be known again.
        let mut r = r.clone();
        let nameless: Vec<Who> =
            r.registrants.iter().map(|r| r.who).filter(|who| !matches!(who, Who::Host(_))).collect();
        nameless.into_iter().for_each(|who| r.forget(who));
        to.u32(*nsid);
        to.u32(r.generation);
        to.u16(r.registrants.len() as u16);
        for registrant in &r.registrants {
            if let Who::Host(id) = registrant.who {
                to.array(&id);
            }
            to.u64(registrant.key);
        }
        let (holder, rtype) = r.held.map_or((0, 0), |(holder, rtype)| {
            (r.registrants.iter().position(|r| r.who == holder).unwrap_or(0), rtype.0)
        });
        to.u8(rtype);
        to.u16(holder as u16);
    }
}

fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    read(drive, true, from)
}

/// What [`write`] has written.
pub(crate) fn read(drive: &mut Subsystem, ptpl: bool, from: &mut Reader<'_>) -> Result<(), Damaged> {
    while !from.is_empty() {
        let nsid = from.u32()?;
        drive.namespaces.active(nsid).map_err(|_| Damaged)?;
        let mut r = Reservations { generation: from.u32()?, ptpl, ..Default::default() };
        for _ in 0..from.u16()? {
            let (who, key) = (Who::Host(from.array()?), from.u64()?);
            if key == 0 || r.registrants.len() >= state::REGISTRANTS || r.registrants.iter().any(|r| r.who == who) {
                return Err(Damaged);
            }
            r.registrants.push(Registrant { who, key });
        }
        let (rtype, holder) = (ReservationType(from.u8()?), from.u16()?);
        if rtype.0 != 0 {
            let holder = r.registrants.get(usize::from(holder)).ok_or(Damaged)?.who;
            rtype.name().ok_or(Damaged)?;
            r.held = Some((holder, rtype));
        }
        if drive.slow_path.reservations.insert(nsid, r).is_some() {
            return Err(Damaged);
        }
        drive.review(nsid);
    }
    Ok(())
}

impl Controller {
    /// Whose its commands are.
    pub(crate) fn who(&self) -> Who {
        match self.transport {
            Transport::Front => Who::Nobody,
            _ if self.hostid == [0; 16] => Who::Controller(self.generation),
            _ => Who::Host(self.hostid),
        }
    }
}

fn status(refusal: ReservationError) -> Status {
    match refusal {
        ReservationError::Conflict => Status::RESERVATION_CONFLICT.dnr(),
        ReservationError::Invalid => Status::INVALID_FIELD.dnr(),
        ReservationError::Full => Status::INTERNAL_ERROR.dnr(),
    }
}

impl Subsystem {
    /// Why a controller's command conflicts with reservations, if it does: of that namespace, or of any (FFFFFFFFh).
    pub(crate) fn reservation_conflict(&self, c: u32, nsid: u32, group: Group) -> Option<Status> {
        if self.slow_path.reservations.is_empty() {
            return None;
        }
        let who = self.ctrl(c)?.who();
        let mut of = self.slow_path.reservations.iter().filter(|(ns, _)| nsid == NSID_ALL || **ns == nsid);
        of.any(|(_, r)| r.conflicts(who, group)).then_some(Status::RESERVATION_CONFLICT.dnr())
    }

    /// Refuses an admin command that changes a namespace (any: FFFFFFFFh) where somebody else's reservation is in the way.
    pub(crate) fn check_unreserved(&self, c: u32, nsid: u32) -> Result<(), Status> {
        self.reservation_conflict(c, nsid, Group::Write).map_or(Ok(()), Err)
    }

    /// Reservation Register, Acquire, Release and Report.
    pub(crate) fn start_reservation<H: Host>(&mut self, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, .. } = *starting;
        if command.opcode == IoOpcode::RESERVATION_REPORT.0 {
            return match self.report_reservations(starting, host) {
                Ok(()) => self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host),
                Err(status) => self.refuse(queue, command, status, host),
            };
        }
        let outcome = match self.reserve(starting, host) {
            Ok(outcome) => outcome,
            Err(status) => return self.refuse(queue, command, status, host),
        };
        let mut slots = Vec::new();
        for (who, what) in &outcome.notices {
            self.notify(*who, command.nsid, *what);
        }
        for who in &outcome.aborts {
            slots.extend(self.abort_commands_of(*who, command.nsid, host));
        }
        if !slots.is_empty() {
            return self.wait(starting, None, For::Slots(slots));
        }
        // It may have been on a queue that an abort has taken down.
        if self.queues.has_in_flight(queue) {
            self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host);
        }
    }

    fn reserve<H: Host>(&mut self, starting: &Starting, host: &mut H) -> Result<ReservationEffects, Status> {
        let Starting { queue, ref command, ref plan, data, .. } = *starting;
        let sq = self.sq(queue);
        let (owner, c) = (sq.owner, sq.controller);
        let mut bytes = [0; 16];
        host.read_data(owner, &data, 0, &mut bytes[..plan.transfer as usize])?;
        let who = self.ctrl(c).map_or(Who::Nobody, Controller::who);
        let dw10 = ReservationDw10(command.slba as u32);
        let reservations = self.slow_path.reservations.entry(command.nsid).or_default();
        let outcome = match IoOpcode(command.opcode) {
            IoOpcode::RESERVATION_REGISTER => {
                let keys = RegisterData::read_from_bytes(&bytes).unwrap_or_default();
                reservations.register(who, dw10, (keys.crkey.get(), keys.nrkey.get()))
            }
            IoOpcode::RESERVATION_ACQUIRE => {
                let keys = AcquireData::read_from_bytes(&bytes).unwrap_or_default();
                reservations.acquire(who, dw10, (keys.crkey.get(), keys.prkey.get()))
            }
            _ => {
                let key = ReleaseData::read_from_bytes(&bytes[..8]).unwrap_or_default();
                reservations.release(who, dw10, key.crkey.get())
            }
        };
        self.review(command.nsid);
        let outcome = outcome.map_err(status)?;
        self.touch();
        Ok(outcome)
    }

    /// Reservation Report (base 2.0, 7.5).
    fn report_reservations<H: Host>(&mut self, starting: &Starting, host: &mut H) -> Result<(), Status> {
        let Starting { queue, ref command, ref plan, data, .. } = *starting;
        let sq = self.sq(queue);
        let (owner, c) = (sq.owner, sq.controller);
        let ctrl = self.ctrl(c).ok_or(Status::INTERNAL_ERROR)?;
        let extended = (command.slba >> 32) as u32 & EDS != 0;
        // A host with a short identifier reads short ones, and the other way round.
        let known = ctrl.hostid != [0; 16];
        if known && extended != ctrl.wide_id {
            return Err(Status::HOST_ID_INCONSISTENT.dnr());
        }
        let none = Reservations::default();
        let reservations = self.slow_path.reservations.get(&command.nsid).unwrap_or(&none);
        let mut list = Vec::new();
        let mut count = 0u16;
        for r in &reservations.registrants {
            let theirs = || self.controllers.list.iter().flatten().filter(|ctrl| ctrl.who() == r.who);
            let mut ids: Vec<u16> = theirs().map(|ctrl| ctrl.id).collect();
            if ids.is_empty() {
                ids.push(0xffff);
            }
            let rcsts = u8::from(reservations.standing(r.who) == HostRole::Holder);
            let hostid = if let Who::Host(id) = r.who { id } else { [0; 16] };
            for id in ids {
                count = count.saturating_add(1);
                let (cntlid, rkey) = (U16::new(id), U64::new(r.key));
                if extended {
                    let one = RegisteredControllerExtended { cntlid, rcsts, rkey, hostid, ..Default::default() };
                    list.extend_from_slice(one.as_bytes());
                } else {
                    let [a, b, c, d, e, f, g, h, ..] = hostid;
                    let hostid = [a, b, c, d, e, f, g, h];
                    let one = RegisteredController { cntlid, rcsts, rkey, hostid, ..Default::default() };
                    list.extend_from_slice(one.as_bytes());
                }
            }
        }
        let head = ReservationStatus {
            generation: U32::new(reservations.generation),
            rtype: reservations.held.map_or(0, |(_, rtype)| rtype.0),
            regctl: U16::new(count),
            ptpls: reservations.ptpl.into(),
            ..Default::default()
        };
        let mut page = head.as_bytes().to_vec();
        page.resize(if extended { STATUS_EXTENDED } else { page.len() }, 0);
        page.extend(list);
        // What is asked for beyond the end reads as zeroes.
        page.resize(plan.transfer as usize, 0);
        host.write_data(owner, &data, 0, &page)
    }

    /// Something happened to a host's registration or reservation.
    fn notify(&mut self, who: Who, nsid: u32, what: NotificationType) {
        for c in 0..self.controllers.list.len() as u32 {
            let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.who() == who) else { continue };
            if ctrl.notices.note(nsid, what) {
                ctrl.aer.raise(AsyncEvent::RESERVATION, ctrl.features.async_config);
                if ctrl.aer.reportable().is_some() {
                    self.list_admin(c);
                }
            }
        }
        self.turn.more = true;
    }

    /// Aborts a host's commands on a namespace; answers the slots of those that are too far.
    fn abort_commands_of<H: Host>(&mut self, who: Who, nsid: u32, host: &mut H) -> Vec<u32> {
        let theirs = |ctrl: &&alloc::boxed::Box<Controller>| ctrl.who() == who;
        let all = self.controllers.list.iter().flatten().filter(theirs);
        let queues: Vec<u32> = all.flat_map(|ctrl| ctrl.sqs.iter().skip(1)).copied().filter(|q| *q != NONE).collect();
        queues.into_iter().flat_map(|q| self.abort_namespace(q, nsid, host)).collect()
    }

    /// A controller is reset or gone: registrations of a host without an identifier go with it.
    pub(crate) fn forget_host(&mut self, c: u32) {
        let Some(who @ Who::Controller(_)) = self.ctrl(c).map(Controller::who) else { return };
        let nsids: Vec<u32> = self.slow_path.reservations.keys().copied().collect();
        for nsid in nsids {
            if let Some(r) = self.slow_path.reservations.get_mut(&nsid) {
                r.forget(who);
            }
            self.review(nsid);
        }
    }

    /// The power was gone: what was not to persist is forgotten.
    pub(crate) fn reservations_without_power(&mut self) {
        let nsids: Vec<u32> = self.slow_path.reservations.keys().copied().collect();
        for nsid in nsids {
            if let Some(r) = self.slow_path.reservations.get_mut(&nsid) {
                r.power_loss();
            }
            self.review(nsid);
        }
    }

    /// Set Features of the mask (82h) and of persistence (83h); of one namespace or all.
    pub(crate) fn set_reservation_feature(&mut self, admin: &Admin) -> Result<u32, Status> {
        let (c, nsid, value) = (admin.c, admin.sqe.nsid.get(), admin.sqe.cdw11.get());
        let masks = admin.sqe.cdw10.get() as u8 == fid::RESERVATION_MASK;
        let mask = masks.then_some(value);
        if mask.is_some_and(|mask| mask & !notification_mask::ALL != 0) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let nsids: Vec<u32> = match nsid {
            NSID_ALL => self.namespaces.nsids().collect(),
            _ => self.namespaces.active(nsid).map(|_| alloc::vec![nsid])?,
        };
        for nsid in nsids {
            match mask {
                Some(mask) => {
                    if let Some(ctrl) = self.ctrl_mut(c) {
                        ctrl.notices.set_mask(nsid, mask);
                    }
                }
                None => {
                    self.slow_path.reservations.entry(nsid).or_default().ptpl = value & 1 == 1;
                    self.review(nsid);
                    self.touch();
                }
            }
        }
        Ok(0)
    }

    /// Their values: of one namespace.
    pub(crate) fn reservation_feature(&self, c: u32, nsid: u32, mask: bool) -> Result<u32, Status> {
        self.namespaces.active(nsid)?;
        Ok(match mask {
            true => self.ctrl(c).map_or(0, |ctrl| ctrl.notices.mask(nsid)),
            false => self.slow_path.reservations.get(&nsid).is_some_and(|r| r.ptpl).into(),
        })
    }
}
