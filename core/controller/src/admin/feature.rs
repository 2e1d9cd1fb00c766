//! Get Features and Set Features (base 2.0, 5.15 and 5.27).

use super::{Admin, Outcome};
use crate::config::Kind;
use crate::controller::{Controller, Features, Transport};
use crate::host::Host;
use crate::queue::NONE;
use crate::subsystem::Subsystem;
use weir_arbiter::Quanta;
use weir_spec::nvme::Status;
use weir_spec::nvme::feature::{self, Arbitration, FeatureDw10, Queues, TemperatureThreshold, fid, select};
use weir_spec::nvme::log::AsyncEvent;
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

const INVALID: Status = Status::INVALID_FIELD.dnr();

/// What a controller does with a feature (base 2.0, Figure 192): bit 1 namespace specific, bit 2 changeable.
const CHANGEABLE: u64 = 1 << 2;
const NAMESPACE_SPECIFIC: u64 = 1 << 1;

impl Subsystem {
    /// Which features a controller has, and their capabilities; `None` for those it has not.
    fn feature_capabilities(&self, ctrl: &Controller, fid: u8) -> Option<u64> {
        let (io, rings) = (self.config.kind == Kind::Io, ctrl.transport == Transport::Rings);
        match fid {
            fid::ASYNC_EVENTS | fid::KEEP_ALIVE => Some(CHANGEABLE),
            // Set by Connect over fabrics (base 2.0, 5.27.1.25).
            fid::HOST_ID => Some(if rings { CHANGEABLE } else { 0 }),
            fid::COALESCING | fid::VECTOR => (io && rings).then_some(CHANGEABLE),
            fid::WRITE_CACHE => (io && self.config.volatile_write_cache).then_some(CHANGEABLE),
            fid::COMMAND_SET_PROFILE => (io && !self.zoned.is_empty()).then_some(CHANGEABLE),
            fid::FDP => self.placement.is_some().then_some(CHANGEABLE),
            fid::FDP_EVENTS => self.placement.is_some().then_some(CHANGEABLE | NAMESPACE_SPECIFIC),
            fid::ARBITRATION
            | fid::POWER
            | fid::TEMPERATURE
            | fid::ERROR_RECOVERY
            | fid::QUEUES
            | fid::WRITE_ATOMICITY
            | fid::QUANTA => io.then_some(CHANGEABLE),
            _ => None,
        }
    }

    /// Get Features.
    pub(crate) fn get_features<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Outcome {
        let Some(ctrl) = self.ctrl(admin.c) else { return Outcome::status(Status::INTERNAL_ERROR) };
        let dw10 = FeatureDw10(admin.sqe.cdw10.get());
        let fid = dw10.fid() as u8;
        let Some(capabilities) = self.feature_capabilities(ctrl, fid) else { return Outcome::status(INVALID) };
        let defaults = Features::new(self.config.volatile_write_cache);
        let features = match dw10.sel() {
            select::CURRENT => &ctrl.features,
            // Nothing is saved, so the saved value is the default (base 2.0, 5.15).
            select::DEFAULT | select::SAVED => &defaults,
            select::SUPPORTED => return Outcome::Done(Status::SUCCESS, capabilities),
            _ => return Outcome::status(INVALID),
        };
        let current = dw10.sel() == select::CURRENT;
        match self.feature_value(admin, ctrl, features, current, host) {
            Ok(dw0) => Outcome::Done(Status::SUCCESS, dw0.into()),
            Err(status) => Outcome::status(status),
        }
    }

    fn feature_value<H: Host>(
        &self,
        admin: &Admin,
        ctrl: &Controller,
        features: &Features,
        current: bool,
        host: &mut H,
    ) -> Result<u32, Status> {
        let cdw11 = admin.sqe.cdw11.get();
        Ok(match admin.sqe.cdw10.get() as u8 {
            fid::ARBITRATION => features.arbitration.0,
            fid::TEMPERATURE => {
                let which = TemperatureThreshold(cdw11);
                match (which.tmpsel(), which.thsel()) {
                    (0, 0) => features.temperature_over.into(),
                    (0, 1) => features.temperature_under.into(),
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
            fid::KEEP_ALIVE if current => ctrl.kato,
            fid::FDP => self.placement_mode(cdw11)?,
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
            // Power state 0 is the only one, keep alive is off by default.
            _ => 0,
        })
    }

    /// Set Features. Nothing can be saved.
    pub(crate) fn set_features<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> Outcome {
        let dw10 = FeatureDw10(admin.sqe.cdw10.get());
        let fid = dw10.fid() as u8;
        let Some(ctrl) = self.ctrl(admin.c) else { return Outcome::status(Status::INTERNAL_ERROR) };
        let Some(capabilities) = self.feature_capabilities(ctrl, fid) else { return Outcome::status(INVALID) };
        if dw10.sv() == 1 {
            return Outcome::status(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        if capabilities & CHANGEABLE == 0 {
            let sequence = fid == fid::HOST_ID;
            let status = if sequence { Status::COMMAND_SEQUENCE_ERROR } else { Status::FEATURE_NOT_CHANGEABLE };
            return Outcome::status(status.dnr());
        }
        let set = match fid {
            fid::ARBITRATION | fid::QUANTA => self.set_arbitration_feature(admin, fid),
            fid::QUEUES => self.set_queue_count(admin),
            fid::KEEP_ALIVE => self.set_keep_alive(now, admin),
            fid::HOST_ID => self.set_host_id(admin, host),
            fid::FDP => self.set_placement_mode(admin),
            fid::FDP_EVENTS => self.set_placement_events(admin, host),
            _ => self.set_value(admin, fid),
        };
        match set {
            Ok(dw0) => {
                if fid == fid::TEMPERATURE && self.temperature_alarm(admin.c) {
                    self.raise(admin.c, AsyncEvent::TEMPERATURE, host);
                }
                Outcome::Done(Status::SUCCESS, dw0.into())
            }
            Err(status) => Outcome::status(status),
        }
    }

    /// Features that are only remembered, or read where they matter.
    fn set_value(&mut self, admin: &Admin, fid: u8) -> Result<u32, Status> {
        let (cdw11, vectors) = (admin.sqe.cdw11.get(), self.config.max_io_queues);
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let features = &mut ctrl.features;
        match fid {
            // Power state 0 is the only one.
            fid::POWER if cdw11 & 0x1f != 0 => return Err(INVALID),
            fid::TEMPERATURE => {
                let t = TemperatureThreshold(cdw11);
                let kelvin = t.tmpth() as u16;
                match (t.tmpsel(), t.thsel()) {
                    (0 | 0xf, 0) => features.temperature_over = kelvin,
                    (0 | 0xf, 1) => features.temperature_under = kelvin,
                    _ => return Err(INVALID),
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

    /// Keep Alive Timer (0Fh). The value is rounded up when the timer is set, and read back as the host wrote it.
    fn set_keep_alive(&mut self, now: Nanos, admin: &Admin) -> Result<u32, Status> {
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        ctrl.kato = admin.sqe.cdw11.get();
        ctrl.keep_alive(now);
        self.arm_expiry(admin.c);
        Ok(0)
    }

    fn set_host_id<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let len = if admin.sqe.cdw11.get() & 1 == 1 { 16 } else { 8 };
        let mut id = [0; 16];
        crate::pointer::check_pointer(&admin.data, len as u64)?;
        host.read_data(admin.owner, &admin.data, 0, &mut id[..len])?;
        let ctrl = self.ctrl_mut(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        ctrl.hostid = id;
        Ok(0)
    }
}
