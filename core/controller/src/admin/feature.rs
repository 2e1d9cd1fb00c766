//! Get Features and Set Features (base 2.0, 5.15 and 5.27).
//!
//! One table says what a controller has; the feature effects log (12h) and Get Features with SEL 3 are taken from it. A controller
//! that is enabled begins with the drive's saved values: in the dynamic controller model they are those of all controllers (base
//! 2.0, 3.1.2.1), and what one of them saves the others have from their next enable on.

use super::{Admin, AdminOutcome};
use crate::config::SubsystemKind;
use crate::controller::{Controller, Features, Transport};
use crate::data_pointer::check_pointer;
use crate::host::Host;
use crate::power::{POWER_STATES, SENSORS, thermal};
use crate::queues::queue::NONE;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use weir_arbiter::Quanta;
use weir_codec::{Counted, Damaged, Reader, Writer, fields};
use weir_spec::nvme::Status;
use weir_spec::nvme::feature::{
    self, Arbitration, FeatureDw10, HostBehavior, Power, Queues, TemperatureThreshold, Timestamp, fid, select,
};
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::{AsyncEvent, FeatureEffect, FeatureEffects, scope};
use weir_spec::nvme::maintenance::persistent;
use weir_units::Nanos;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

const INVALID: Status = Status::INVALID_FIELD.dnr();

/// A feature of a controller.
pub(super) struct Feature {
    pub fid: u8,
    has: fn(&Subsystem, &Controller) -> bool,
    /// Set Features may change it.
    changes: fn(&Controller) -> bool,
    /// Its value can be saved.
    saves: bool,
    /// Whose it is: [`scope`].
    scope: u32,
}

impl Feature {
    /// As Get Features tells it (base 2.0, Figure 192).
    fn capabilities(&self, ctrl: &Controller) -> u32 {
        let bit = |yes: bool, bit: u32| u32::from(yes) << bit;
        bit(self.saves, 0) | bit(self.scope == scope::NAMESPACE, 1) | bit((self.changes)(ctrl), 2)
    }
}

fn always(_: &Subsystem, _: &Controller) -> bool {
    true
}
fn of_io(drive: &Subsystem, _: &Controller) -> bool {
    drive.config.kind == SubsystemKind::Io
}
fn of_rings(drive: &Subsystem, ctrl: &Controller) -> bool {
    of_io(drive, ctrl) && ctrl.transport == Transport::Rings
}
fn of_placement(drive: &Subsystem, _: &Controller) -> bool {
    drive.placement.is_some()
}
fn yes(_: &Controller) -> bool {
    true
}

/// One that can be changed and saved.
const fn saved(fid: u8, has: fn(&Subsystem, &Controller) -> bool) -> Feature {
    Feature { fid, has, changes: yes, saves: true, scope: scope::CONTROLLER }
}
/// One that can be changed, and is not saved.
const fn current(fid: u8, has: fn(&Subsystem, &Controller) -> bool) -> Feature {
    Feature { fid, has, changes: yes, saves: false, scope: scope::CONTROLLER }
}

/// Every feature, by identifier.
pub(super) const FEATURES: &[Feature] = &[
    saved(fid::ARBITRATION, of_io),
    saved(fid::POWER, of_io),
    saved(fid::TEMPERATURE, of_io),
    saved(fid::ERROR_RECOVERY, of_io),
    saved(fid::WRITE_CACHE, |drive, ctrl| of_io(drive, ctrl) && drive.config.volatile_write_cache),
    current(fid::QUEUES, of_io),
    saved(fid::COALESCING, of_rings),
    saved(fid::VECTOR, of_rings),
    saved(fid::WRITE_ATOMICITY, of_io),
    saved(fid::ASYNC_EVENTS, always),
    saved(fid::AUTONOMOUS_POWER, of_io),
    current(fid::TIMESTAMP, of_io),
    current(fid::KEEP_ALIVE, always),
    saved(fid::THERMAL_MANAGEMENT, of_io),
    saved(fid::NON_OPERATIONAL, of_io),
    current(fid::LBA_STATUS, of_io),
    current(fid::HOST_BEHAVIOR, of_io),
    Feature { scope: scope::SUBSYSTEM, ..saved(fid::SANITIZE, |drive, c| of_io(drive, c) && drive.can_sanitize()) },
    Feature { scope: scope::ENDURANCE_GROUP, ..current(fid::ENDURANCE_EVENTS, of_io) },
    current(fid::COMMAND_SET_PROFILE, |drive, ctrl| of_io(drive, ctrl) && !drive.zoned.is_empty()),
    Feature { scope: scope::ENDURANCE_GROUP, ..current(fid::FDP, of_placement) },
    Feature { scope: scope::NAMESPACE, ..current(fid::FDP_EVENTS, of_placement) },
    Feature { scope: scope::NAMESPACE, ..current(fid::WRITE_PROTECT, |drive, _| drive.is_managed()) },
    // Set by Connect over fabrics (base 2.0, 5.27.1.25).
    Feature { changes: |ctrl| ctrl.transport == Transport::Rings, ..current(fid::HOST_ID, always) },
    Feature { scope: scope::NAMESPACE, ..current(fid::RESERVATION_MASK, of_io) },
    Feature { scope: scope::NAMESPACE, ..current(fid::RESERVATION_PERSISTENCE, of_io) },
    saved(fid::QUANTA, of_io),
];

impl Subsystem {
    fn feature_entry(&self, ctrl: &Controller, fid: u8) -> Result<&'static Feature, Status> {
        FEATURES.iter().find(|e| e.fid == fid && (e.has)(self, ctrl)).ok_or(INVALID)
    }

    /// Feature Identifiers Supported and Effects (base 2.0, 5.16.1.18).
    pub(super) fn feature_effects(&self, ctrl: &Controller) -> FeatureEffects {
        let mut page = FeatureEffects::default();
        for e in FEATURES.iter().filter(|e| (e.has)(self, ctrl)) {
            let effect = FeatureEffect(0).with_fsupp(1).with_scope(e.scope);
            page.features[usize::from(e.fid)] = U32::new(effect.0);
        }
        page
    }

    /// Get Features.
    pub(crate) fn get_features<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> AdminOutcome {
        let Some(ctrl) = self.ctrl(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        let dw10 = FeatureDw10(admin.sqe.cdw10.get());
        let entry = match self.feature_entry(ctrl, dw10.fid() as u8) {
            Ok(entry) => entry,
            Err(status) => return AdminOutcome::status(status),
        };
        let defaults = Features::new(self.config.volatile_write_cache);
        let features = match dw10.sel() {
            select::CURRENT => &ctrl.features,
            // What cannot be saved has its default as saved value (base 2.0, 5.15).
            select::SAVED if entry.saves => &self.admin.saved_features,
            select::DEFAULT | select::SAVED => &defaults,
            select::SUPPORTED => return AdminOutcome::Done(Status::SUCCESS, entry.capabilities(ctrl).into()),
            _ => return AdminOutcome::status(INVALID),
        };
        let current = dw10.sel() == select::CURRENT;
        match self.feature_value(now, admin, (ctrl, features, current), host) {
            Ok(dw0) => AdminOutcome::Done(Status::SUCCESS, dw0.into()),
            Err(status) => AdminOutcome::status(status),
        }
    }

    // tidy: long because it is a table: a line or two for each feature.
    fn feature_value<H: Host>(
        &self,
        now: Nanos,
        admin: &Admin,
        (ctrl, features, current): (&Controller, &Features, bool),
        host: &mut H,
    ) -> Result<u32, Status> {
        let cdw11 = admin.sqe.cdw11.get();
        Ok(match admin.sqe.cdw10.get() as u8 {
            fid::ARBITRATION => features.arbitration.0,
            fid::POWER if current => ctrl.features.power.with_ps(self.power_state(ctrl, now).into()).0,
            fid::POWER => features.power.0,
            fid::TEMPERATURE => {
                let which = TemperatureThreshold(cdw11);
                let sensor = which.tmpsel() as usize;
                match which.thsel() {
                    0 => (*features.temperature_over.get(sensor).ok_or(INVALID)?).into(),
                    1 => (*features.temperature_under.get(sensor).ok_or(INVALID)?).into(),
                    _ => return Err(INVALID),
                }
            }
            fid::ERROR_RECOVERY => features.error_recovery,
            fid::WRITE_CACHE => features.write_cache,
            fid::QUEUES => {
                let max = self.config.max_io_queues;
                let (sqs, cqs) = features.queues.unwrap_or((max, max));
                Queues(0).with_nsq(u32::from(sqs.max(1)) - 1).with_ncq(u32::from(cqs.max(1)) - 1).0
            }
            fid::COALESCING => features.coalescing,
            fid::VECTOR => {
                let vector = cdw11 as u16;
                if vector > self.config.max_io_queues {
                    return Err(INVALID);
                }
                u32::from(vector) | u32::from(features.uncoalesced.contains(&vector)) << 16
            }
            fid::WRITE_ATOMICITY => features.write_atomicity,
            fid::ASYNC_EVENTS => features.async_config,
            fid::AUTONOMOUS_POWER => {
                let mut table = [0; 256];
                for (to, entry) in table.chunks_exact_mut(8).zip(&features.transitions) {
                    to.copy_from_slice(&entry.to_le_bytes());
                }
                admin.answer(host, 0, &table)?;
                features.autonomous.into()
            }
            fid::TIMESTAMP => {
                let set = ctrl.timestamp.filter(|_| current);
                let (ms, since, origin) = match set {
                    Some((ms, at)) => (ms, at, 1),
                    None if current => (0, self.power.on_since, 0),
                    None => (0, now, 0),
                };
                let ms = ms + now.saturating_sub(since).0 / 1_000_000;
                admin.answer(host, 0, Timestamp::new(ms, origin).as_bytes())?;
                0
            }
            fid::KEEP_ALIVE if current => ctrl.kato,
            fid::THERMAL_MANAGEMENT => features.thermal,
            fid::NON_OPERATIONAL => features.non_operational,
            fid::HOST_BEHAVIOR => {
                let mut page = [0; size_of::<HostBehavior>()];
                page[..features.behavior.len()].copy_from_slice(&features.behavior);
                admin.answer(host, 0, &page)?;
                0
            }
            fid::SANITIZE => features.sanitize,
            fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE if !current => 0,
            fid::RESERVATION_MASK => self.reservation_feature(admin.c, admin.sqe.nsid.get(), true)?,
            fid::RESERVATION_PERSISTENCE => self.reservation_feature(admin.c, admin.sqe.nsid.get(), false)?,
            fid::ENDURANCE_EVENTS => {
                self.endurance_group_of(cdw11 as u16)?;
                cdw11 & 0xffff | u32::from(features.endurance_events) << 16
            }
            fid::FDP => self.placement_mode(cdw11)?,
            fid::WRITE_PROTECT => self.write_protection(admin, current)?,
            fid::FDP_EVENTS => self.placement_events(admin, current, host)?,
            fid::HOST_ID => {
                let id = if current { ctrl.hostid } else { [0; 16] };
                // EXHID: 16 bytes; else the lower 8, which fabrics hosts must not ask for.
                match (cdw11 & 1, ctrl.transport) {
                    (1, _) => admin.answer(host, 0, &id)?,
                    (_, Transport::Fabrics) => return Err(INVALID),
                    _ => admin.answer(host, 0, &id[..8])?,
                }
                0
            }
            fid::QUANTA => {
                let q = features.quanta;
                let [high, medium, low] = [q.high, q.medium, q.low].map(U32::new);
                let wire = feature::Quanta { high, medium, low, ..Default::default() };
                admin.answer(host, 0, wire.as_bytes())?;
                q.high
            }
            // Keep alive is off by default; there is one combination of command sets; LBA status is reported at once.
            _ => 0,
        })
    }

    /// Set Features.
    pub(crate) fn set_features<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> AdminOutcome {
        if admin.sqe.cdw10.get() as u8 == fid::WRITE_PROTECT && self.is_managed() {
            return self.set_write_protection(admin);
        }
        match self.set_feature(now, admin, host) {
            Ok(dw0) => {
                let fid = admin.sqe.cdw10.get() as u8;
                if matches!(fid, fid::COALESCING | fid::VECTOR) {
                    self.gate(admin.c, host);
                }
                if fid == fid::TEMPERATURE && self.temperature_alarm(now, admin.c) {
                    self.raise(admin.c, AsyncEvent::TEMPERATURE, host);
                }
                AdminOutcome::Done(Status::SUCCESS, dw0.into())
            }
            Err(status) => AdminOutcome::status(status),
        }
    }

    fn set_feature<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let dw10 = FeatureDw10(admin.sqe.cdw10.get());
        let (fid, save) = (dw10.fid() as u8, dw10.sv() == 1);
        let ctrl = self.ctrl(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let entry = self.feature_entry(ctrl, fid)?;
        if save && !entry.saves {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        if !(entry.changes)(ctrl) {
            let sequence = fid == fid::HOST_ID;
            let status = if sequence { Status::COMMAND_SEQUENCE_ERROR } else { Status::FEATURE_NOT_CHANGEABLE };
            return Err(status.dnr());
        }
        let nsid = admin.sqe.nsid.get();
        if entry.scope != scope::NAMESPACE && !matches!(nsid, 0 | NSID_ALL) {
            let known = (1..=self.namespaces.list.len() as u32).contains(&nsid);
            let status =
                if known { Status::FEATURE_NOT_NAMESPACE_SPECIFIC } else { Status::INVALID_NAMESPACE_OR_FORMAT };
            return Err(status.dnr());
        }
        let dw0 = match fid {
            fid::ARBITRATION | fid::QUANTA => self.set_arbitration_feature(admin, fid),
            fid::QUEUES => self.set_queue_count(admin),
            fid::AUTONOMOUS_POWER => self.set_transitions(admin, host),
            fid::TIMESTAMP => self.set_timestamp(now, admin, host),
            fid::KEEP_ALIVE => self.set_keep_alive(now, admin),
            fid::HOST_BEHAVIOR => self.set_host_behavior(admin, host),
            fid::HOST_ID => self.set_host_id(admin, host),
            fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE => self.set_reservation_feature(admin),
            fid::FDP => self.set_placement_mode(admin),
            fid::FDP_EVENTS => self.set_placement_events(admin, host),
            _ => self.set_value(now, admin, fid),
        }?;
        if fid == fid::ASYNC_EVENTS {
            self.arm_thermal(now);
        }
        if entry.scope == scope::SUBSYSTEM {
            self.share_feature(admin.c, fid);
        }
        if save {
            self.save_feature(admin.c, fid);
        }
        Ok(dw0)
    }

    /// A value of the whole subsystem: every controller has it.
    fn share_feature(&mut self, c: u32, fid: u8) {
        let Some(features) = self.ctrl(c).map(|ctrl| ctrl.features.clone()) else { return };
        for ctrl in self.controllers.list.iter_mut().flatten() {
            take(&mut ctrl.features, &features, fid);
        }
    }

    /// The current value of a controller's feature is what controllers begin with from now on.
    fn save_feature(&mut self, c: u32, fid: u8) {
        let Some(features) = self.ctrl(c).map(|ctrl| ctrl.features.clone()) else { return };
        take(&mut self.admin.saved_features, &features, fid);
        self.touch();
    }

    /// Features that are only remembered, or read where they matter.
    fn set_value(&mut self, now: Nanos, admin: &Admin, fid: u8) -> Result<u32, Status> {
        let (cdw11, vectors) = (admin.sqe.cdw11.get(), self.config.max_io_queues);
        if fid == fid::ENDURANCE_EVENTS {
            self.endurance_group_of(cdw11 as u16)?;
        }
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let features = &mut ctrl.features;
        match fid {
            fid::POWER => {
                let power = Power(cdw11 & 0xff);
                if power.ps() as usize >= POWER_STATES.len() {
                    return Err(INVALID);
                }
                if POWER_STATES[features.power.ps() as usize].operational {
                    ctrl.power_before = features.power.ps() as u8;
                }
                features.power = power;
                ctrl.power_since = now;
            }
            fid::TEMPERATURE => {
                let t = TemperatureThreshold(cdw11);
                let thresholds = match t.thsel() {
                    0 => &mut features.temperature_over,
                    1 => &mut features.temperature_under,
                    _ => return Err(INVALID),
                };
                match t.tmpsel() as usize {
                    0xf => thresholds.fill(t.tmpth() as u16),
                    sensor => *thresholds.get_mut(sensor).ok_or(INVALID)? = t.tmpth() as u16,
                }
            }
            // There is one combination of I/O command sets.
            fid::COMMAND_SET_PROFILE if cdw11 & 0x1ff != 0 => {
                return Err(Status::COMMAND_SET_COMBINATION_REJECTED.dnr());
            }
            // Deallocated block errors (bit 16) are not offered (NSFEAT bit 2).
            fid::ERROR_RECOVERY if cdw11 >> 16 & 1 != 0 => return Err(INVALID),
            fid::ERROR_RECOVERY => features.error_recovery = cdw11 & 0xffff,
            fid::WRITE_CACHE => features.write_cache = cdw11 & 1,
            fid::COALESCING => features.coalescing = cdw11 & 0xffff,
            fid::VECTOR => {
                let vector = cdw11 as u16;
                if vector > vectors {
                    return Err(INVALID);
                }
                features.uncoalesced.retain(|v| *v != vector);
                if cdw11 >> 16 & 1 == 1 {
                    features.uncoalesced.push(vector);
                }
            }
            fid::WRITE_ATOMICITY => features.write_atomicity = cdw11 & 1,
            fid::ASYNC_EVENTS => features.async_config = cdw11,
            fid::THERMAL_MANAGEMENT => {
                let (tmt1, tmt2) = ((cdw11 >> 16) as u16, cdw11 as u16);
                let within = |t: u16| t == 0 || (thermal::LEAST..=thermal::MOST).contains(&t);
                if !within(tmt1) || !within(tmt2) || tmt1 != 0 && tmt2 != 0 && tmt1 >= tmt2 {
                    return Err(INVALID);
                }
                features.thermal = cdw11;
            }
            fid::NON_OPERATIONAL => features.non_operational = cdw11 & 1,
            fid::SANITIZE => features.sanitize = cdw11 & 1,
            fid::ENDURANCE_EVENTS => features.endurance_events = (cdw11 >> 16) as u8,
            _ => {}
        }
        Ok(0)
    }

    /// Arbitration (01h) and the quanta of deficit round robin (C1h): they order this controller's own queues.
    fn set_arbitration_feature(&mut self, admin: &Admin, fid: u8) -> Result<u32, Status> {
        let sqe = &admin.sqe;
        let [high, medium, low] = [sqe.cdw11.get(), sqe.cdw12.get(), sqe.cdw13.get()];
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        if fid == fid::ARBITRATION {
            ctrl.features.arbitration = Arbitration(sqe.cdw11.get() & 0xffff_ff07);
        } else if high == 0 || medium == 0 || low == 0 {
            return Err(INVALID);
        } else {
            ctrl.features.quanta = Quanta { high, medium, low };
        }
        let (group, settings) = (ctrl.group, ctrl.arbitration());
        self.arbiter.set_group(group, settings);
        Ok(0)
    }

    /// Number of Queues (07h): before the first I/O queue is created.
    fn set_queue_count(&mut self, admin: &Admin) -> Result<u32, Status> {
        let max = self.config.max_io_queues;
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let exists = |queues: &[u32]| queues.iter().skip(1).any(|q| *q != NONE);
        if exists(&ctrl.sqs) || exists(&ctrl.cqs) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        let asked = Queues(admin.sqe.cdw11.get());
        if asked.nsq() == 0xffff || asked.ncq() == 0xffff {
            return Err(INVALID);
        }
        let (sqs, cqs) = ((asked.nsq() as u16 + 1).min(max), (asked.ncq() as u16 + 1).min(max));
        ctrl.features.queues = Some((sqs, cqs));
        Ok(Queues(0).with_nsq(u32::from(sqs) - 1).with_ncq(u32::from(cqs) - 1).0)
    }

    /// Autonomous Power State Transition (0Ch): 32 entries of 8 bytes. A state that is gone to does no I/O.
    fn set_transitions<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let mut table = [0; 256];
        read(admin, host, &mut table)?;
        let mut transitions = [0; 32];
        for (entry, bytes) in transitions.iter_mut().zip(table.chunks_exact(8)) {
            *entry = bytes.try_into().map(u64::from_le_bytes).map_err(|_| Status::INTERNAL_ERROR)?;
            let (to, idle) = (feature::transition_state(*entry), feature::transition_idle_ms(*entry));
            let state = POWER_STATES.get(usize::from(to)).ok_or(INVALID)?;
            if idle != 0 && state.operational {
                return Err(INVALID);
            }
        }
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        ctrl.features.autonomous = admin.sqe.cdw11.get() & 1 == 1;
        ctrl.features.transitions = transitions;
        Ok(0)
    }

    /// Timestamp (0Eh): milliseconds since 1970.
    fn set_timestamp<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let mut bytes = [0; size_of::<Timestamp>()];
        read(admin, host, &mut bytes)?;
        let timestamp = Timestamp::read_from_bytes(&bytes).map_err(|_| Status::INTERNAL_ERROR)?;
        let before = self.timestamp(now).to_le_bytes();
        let since = (now.saturating_sub(self.power.on_since).0 / 1_000_000).to_le_bytes();
        self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?.timestamp = Some((timestamp.milliseconds(), now));
        self.logs.timestamp = Some((timestamp.milliseconds(), now));
        self.record(now, Some(admin.c), persistent::TIMESTAMP, &[before, since].concat());
        Ok(0)
    }

    /// Keep Alive Timer (0Fh). The value is rounded up when the timer is set, and read back as the host wrote it.
    fn set_keep_alive(&mut self, now: Nanos, admin: &Admin) -> Result<u32, Status> {
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let kato = admin.sqe.cdw11.get();
        if kato == 0 && ctrl.needs_keep_alive {
            return Err(Status::KEEP_ALIVE_INVALID);
        }
        ctrl.kato = kato;
        ctrl.keep_alive(now);
        self.arm_expiry(admin.c);
        Ok(0)
    }

    /// Host Behavior Support (16h). Nothing of it has the drive behave in another way but what reads it.
    fn set_host_behavior<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let mut bytes = [0; size_of::<HostBehavior>()];
        read(admin, host, &mut bytes)?;
        let behavior = HostBehavior::read_from_bytes(&bytes).map_err(|_| Status::INTERNAL_ERROR)?;
        if [behavior.acre, behavior.etdas, behavior.lbafee].iter().any(|b| *b > 1) {
            return Err(INVALID);
        }
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let len = ctrl.features.behavior.len();
        ctrl.features.behavior.copy_from_slice(&bytes[..len]);
        Ok(0)
    }

    fn set_host_id<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let len = if admin.sqe.cdw11.get() & 1 == 1 { 16 } else { 8 };
        let mut id = [0; 16];
        read(admin, host, &mut id[..len])?;
        let ctrl = self.ctrl(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        // One that is known does not change (base 2.0, 5.27.1.25).
        if ctrl.hostid != [0; 16] && ctrl.hostid != id {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        self.forget_host(admin.c);
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        (ctrl.hostid, ctrl.wide_id) = (id, len == 16);
        Ok(0)
    }
}

/// Reads a command's data.
pub(super) fn read<H: Host>(admin: &Admin, host: &mut H, into: &mut [u8]) -> Result<(), Status> {
    check_pointer(&admin.data, into.len() as u64)?;
    host.read_data(admin.owner, &admin.data, 0, into)
}

/// Takes one feature's value over.
fn take(to: &mut Features, from: &Features, fid: u8) {
    match fid {
        fid::ARBITRATION => to.arbitration = from.arbitration,
        fid::POWER => to.power = from.power,
        fid::TEMPERATURE => {
            (to.temperature_over, to.temperature_under) = (from.temperature_over, from.temperature_under);
        }
        fid::ERROR_RECOVERY => to.error_recovery = from.error_recovery,
        fid::WRITE_CACHE => to.write_cache = from.write_cache,
        fid::COALESCING => to.coalescing = from.coalescing,
        fid::VECTOR => to.uncoalesced.clone_from(&from.uncoalesced),
        fid::WRITE_ATOMICITY => to.write_atomicity = from.write_atomicity,
        fid::ASYNC_EVENTS => to.async_config = from.async_config,
        fid::AUTONOMOUS_POWER => (to.autonomous, to.transitions) = (from.autonomous, from.transitions),
        fid::THERMAL_MANAGEMENT => to.thermal = from.thermal,
        fid::NON_OPERATIONAL => to.non_operational = from.non_operational,
        fid::SANITIZE => to.sanitize = from.sanitize,
        fid::QUANTA => to.quanta = from.quanta,
        _ => debug_assert!(false, "feature {fid:#x} is saved and is not here"),
    }
}

/// The saved values.
pub(crate) const SECTION: Section = Section { id: 1, version: 1, save, restore };

fn save(drive: &Subsystem, to: &mut Writer) {
    write_saved(&drive.admin.saved_features, to);
}

fields! { pub(crate) Features: write_saved, read_fields, saved_rows {
    arbitration.0: "01h arbitration",
    power.0: "02h power management",
    temperature_over: "04h temperature threshold: over, of each sensor, K",
    temperature_under: "04h: under",
    error_recovery: "05h error recovery",
    write_cache: "06h volatile write cache",
    coalescing: "08h interrupt coalescing",
    write_atomicity: "0ah write atomicity normal",
    async_config: "0bh asynchronous event configuration",
    uncoalesced as Counted<u16>: "09h: vectors that are not coalesced",
    autonomous: "0ch autonomous power state transitions",
    transitions: "0ch: its entries",
    thermal: "10h host controlled thermal management",
    non_operational: "11h non-operational power state config",
    sanitize: "17h sanitize config",
    quanta.high: "c0h quantum of class high",
    quanta.medium: "c0h: medium",
    quanta.low: "c0h: low",
} }

fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    drive.admin.saved_features = read_saved(drive.config.volatile_write_cache, from)?;
    Ok(())
}

/// What [`write_saved`] has written; the rest as it is by default.
pub(crate) fn read_saved(volatile_write_cache: bool, from: &mut Reader<'_>) -> Result<Features, Damaged> {
    const { assert!(SENSORS == 3, "version 1 has so many sensors") };
    let mut f = Features::new(volatile_write_cache);
    read_fields(&mut f, from)?;
    // The drive may have been given another medium since.
    f.write_cache &= u32::from(volatile_write_cache);
    let is_state = |state: u32| (state as usize) < POWER_STATES.len();
    let sane = is_state(f.power.ps())
        && f.transitions.iter().all(|entry| is_state(feature::transition_state(*entry).into()))
        && ![f.quanta.high, f.quanta.medium, f.quanta.low].contains(&0);
    if sane { Ok(f) } else { Err(Damaged) }
}
