//! Get Log Page (base 2.0, 5.16) and the error log.

use super::placement::PAGES;
use super::{Admin, AdminOutcome, discovery};
use crate::config::SubsystemKind;
use crate::host::Host;
use crate::log_state::error_log::ERROR_ENTRIES;
use crate::log_state::persistent_events::SIZE;
use crate::operator::SPARE_THRESHOLD;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::{
    AsyncEvent, ErrorEntry, GetLogDw10, Smart, SupportedLogPages, critical_warning, lid, log_length,
};
use weir_spec::nvme::maintenance::{TELEMETRY_BLOCK, persistent_action};
use weir_spec::nvme::zns::CHANGED_ZONES;
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64, U128};

/// The longest that one Get Log Page moves; the rest has to be asked for by offset.
const LENGTH_MAX: u64 = 1 << 20;

impl Subsystem {
    /// Notes an error in the log of the queue's controller. `at` is LBA and NSID.
    #[cold]
    pub(crate) fn log_error(&mut self, q: u32, cid: u16, status: Status, at: (u64, u32)) {
        self.log_specific_error(q, cid, status, at, 0);
    }

    /// The same with the error's command specific information.
    #[cold]
    pub(crate) fn log_specific_error(&mut self, q: u32, cid: u16, status: Status, at: (u64, u32), specific: u64) {
        self.logs.errors += 1;
        let sq = self.sq(q);
        let (c, sqid) = (sq.controller, sq.qid);
        let entry = ErrorEntry {
            sqid: U16::new(sqid),
            cid: U16::new(cid),
            status_field: U16::new(status.field() << 1),
            location: U16::new(0xffff),
            lba: U64::new(at.0),
            nsid: U32::new(at.1),
            command_specific: U64::new(specific),
            ..ErrorEntry::default()
        };
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.errors.push(entry);
        }
    }

    /// Get Log Page.
    pub(crate) fn get_log_page<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> AdminOutcome {
        match self.log_page(now, admin, host) {
            Ok(()) => AdminOutcome::status(Status::SUCCESS),
            Err(status) => AdminOutcome::status(status),
        }
    }

    fn log_page<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> Result<(), Status> {
        let sqe = &admin.sqe;
        let dw10 = GetLogDw10(sqe.cdw10.get());
        let (lid, lsp) = (dw10.lid() as u8, dw10.lsp() as u8);
        if lid == lid::PERSISTENT_EVENTS
            && lsp & 3 == persistent_action::RELEASE
            && self.config.kind == SubsystemKind::Io
        {
            // There is nothing to transfer, whatever its length says.
            return self.persistent_log(now, admin.c, lsp).map(|_| ());
        }
        let length = log_length(sqe.cdw10.get(), sqe.cdw11.get());
        let offset = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
        // OT, bit 23: the offset is an index; no page here is made of such.
        if offset % 4 != 0 || sqe.cdw14.get() & 1 << 23 != 0 || length > LENGTH_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        // Controller scope only: SMART per namespace is not offered (LPA bit 0).
        if lid == lid::SMART && !matches!(sqe.nsid.get(), 0 | u32::MAX) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        self.collect_events(None);
        self.watch_spare();
        if let Some(whole) = self.vendor().and_then(|set| set.log_length(lid)) {
            return self.vendor_log(admin, (lid, whole), offset, length, host);
        }
        if matches!(lid, lid::TELEMETRY_HOST | lid::TELEMETRY_CONTROLLER) {
            let unit = TELEMETRY_BLOCK as u64;
            if offset % unit != 0 || length % unit != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            if lid == lid::TELEMETRY_HOST && lsp & 1 == 1 && self.config.kind == SubsystemKind::Io {
                self.create_telemetry(now);
            }
        }
        let page = match lid {
            lid::PERSISTENT_EVENTS if self.config.kind == SubsystemKind::Io => {
                self.persistent_log(now, admin.c, lsp)?
            }
            lid::LBA_STATUS if self.config.kind == SubsystemKind::Io => self.lba_status_log(admin.c, dw10.rae() == 1),
            _ => self.build_log(now, admin, lid)?,
        };
        // The persistent event log is as large as PELS says, however little there is to tell: nvme-cli reads it in pieces.
        let size = if lid == lid::PERSISTENT_EVENTS { u64::from(SIZE) << 16 } else { 0 };
        if offset > size.max(page.len() as u64) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let rest = page.get(offset as usize..).unwrap_or_default();
        let has = rest.len().min(length as usize);
        admin.answer(host, 0, &rest[..has])?;
        // What is asked for beyond the page reads as zeroes.
        let zeroes = [0u8; 512];
        let mut at = has;
        while at < length as usize {
            let n = zeroes.len().min(length as usize - at);
            admin.answer(host, at as u32, &zeroes[..n])?;
            at += n;
        }
        if dw10.rae() == 0 {
            self.log_was_read(admin, lid, offset + length >= page.len() as u64, host);
        }
        Ok(())
    }

    /// A log page of the vendor's set, piece by piece; zeroes behind its end.
    fn vendor_log<H: Host>(
        &self,
        admin: &Admin,
        (lid, whole): (u8, u64),
        offset: u64,
        length: u64,
        host: &mut H,
    ) -> Result<(), Status> {
        let known = self.namespaces.active(admin.sqe.nsid.get())?.vendor.is_some();
        if !known || offset > whole {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let mut at = 0;
        while at < length {
            let mut bytes = [0u8; 512];
            let n = (length - at).min(bytes.len() as u64) as usize;
            if let Some(set) = self.vendor() {
                set.log(lid, offset + at, &mut bytes[..n]);
            }
            admin.answer(host, at as u32, &bytes[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// The host knows now: its events are cleared, and so is the list of changed namespaces.
    fn log_was_read<H: Host>(&mut self, admin: &Admin, lid: u8, whole: bool, host: &mut H) {
        let (c, nsid) = (admin.c, admin.sqe.nsid.get());
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.aer.cleared(lid);
        if lid == lid::TELEMETRY_CONTROLLER {
            self.telemetry_was_read();
        }
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        if lid == lid::RESERVATION && ctrl.notices.was_read() {
            // The next one can be read.
            ctrl.aer.raise(AsyncEvent::RESERVATION, ctrl.features.async_config);
        }
        if lid == lid::LBA_STATUS {
            ctrl.lba_status_was_read();
        }
        if lid == lid::ENDURANCE_AGGREGATE {
            ctrl.endurance_event = false;
        }
        if lid == lid::CHANGED_NAMESPACES && whole {
            ctrl.changed.clear();
        }
        if lid == CHANGED_ZONES && whole {
            ctrl.changed_zones.retain(|(ns, _)| *ns != nsid);
            // The event says one namespace; others are still to be told.
            if !ctrl.changed_zones.is_empty() {
                ctrl.aer.raise(AsyncEvent::ZONE_DESCRIPTOR_CHANGED, ctrl.features.async_config);
            }
        }
        self.report_events(c, host);
    }

    fn build_log(&self, now: Nanos, admin: &Admin, lid: u8) -> Result<Vec<u8>, Status> {
        let (c, nsid) = (admin.c, admin.sqe.nsid.get());
        let set = (admin.sqe.cdw14.get() >> 24) as u8;
        let lsp = GetLogDw10(admin.sqe.cdw10.get()).lsp() as u8;
        let io = self.config.kind == SubsystemKind::Io;
        let ctrl = self.ctrl(c).ok_or(Status::INTERNAL_ERROR)?;
        if let Some(page) = self.placement_log(admin, lid) {
            return page;
        }
        Ok(match lid {
            lid::SUPPORTED => self.supported_pages().as_bytes().to_vec(),
            lid::ERROR => {
                let mut page = alloc::vec![0; ERROR_ENTRIES * size_of::<ErrorEntry>()];
                for (to, entry) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(ctrl.errors.iter()) {
                    to.copy_from_slice(entry.as_bytes());
                }
                page
            }
            lid::SMART if io => self.smart(now, c).as_bytes().to_vec(),
            lid::FIRMWARE if io => self.maintenance.firmware.page().as_bytes().to_vec(),
            lid::CHANGED_NAMESPACES if io => {
                let mut page = alloc::vec![0; 4096];
                for (to, nsid) in page.chunks_exact_mut(4).zip(&ctrl.changed) {
                    to.copy_from_slice(&nsid.to_le_bytes());
                }
                page
            }
            lid::EFFECTS if io && self.has_set(c, set) => self.effects(ctrl, set).as_bytes().to_vec(),
            lid::EFFECTS if io => return Err(Status::INVALID_FIELD.dnr()),
            CHANGED_ZONES if !self.zoned.is_empty() => {
                let page = self.changed_zones(c, nsid).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
                page.as_bytes().to_vec()
            }
            lid::SELF_TEST if io => self.self_test_log().as_bytes().to_vec(),
            lid::TELEMETRY_HOST | lid::TELEMETRY_CONTROLLER if io => self.telemetry_log(lid),
            lid::ENDURANCE_GROUP if io => {
                self.endurance_group_of((admin.sqe.cdw11.get() >> 16) as u16)?;
                self.endurance(now).as_bytes().to_vec()
            }
            lid::ANA if io && self.shared() => self.ana_log(c, lsp),
            lid::ENDURANCE_AGGREGATE if io => {
                // Their number, and the groups.
                let groups: &[u8] = if ctrl.endurance_event { &[1, 0] } else { &[] };
                [&(groups.len() as u64 / 2).to_le_bytes(), groups].concat()
            }
            // There is no management endpoint: no command of its is supported.
            lid::MI_EFFECTS if io => alloc::vec![0; 4096],
            lid::LOCKDOWN if io => self.lockdown_log(lsp)?.as_bytes().to_vec(),
            lid::FEATURE_EFFECTS if io => self.feature_effects(ctrl).as_bytes().to_vec(),
            lid::SANITIZE if io && self.can_sanitize() => self.sanitize_status().as_bytes().to_vec(),
            lid::RESERVATION if io => ctrl.notices.page().as_bytes().to_vec(),
            lid::DISCOVERY if !io => self.discovery_log(ctrl, lsp),
            _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
        })
    }

    /// Supported Log Pages (base 2.0, 5.16.1.1).
    fn supported_pages(&self) -> SupportedLogPages {
        let mut page = SupportedLogPages::default();
        let of_io = [
            lid::SUPPORTED,
            lid::ERROR,
            lid::SMART,
            lid::FIRMWARE,
            lid::CHANGED_NAMESPACES,
            lid::EFFECTS,
            lid::RESERVATION,
            lid::SELF_TEST,
            lid::TELEMETRY_HOST,
            lid::TELEMETRY_CONTROLLER,
            lid::ENDURANCE_GROUP,
            lid::PERSISTENT_EVENTS,
            lid::LBA_STATUS,
            lid::ENDURANCE_AGGREGATE,
            lid::FEATURE_EFFECTS,
            lid::MI_EFFECTS,
            lid::LOCKDOWN,
        ];
        let of_discovery = [lid::SUPPORTED, lid::ERROR, lid::DISCOVERY];
        let lids = if self.config.kind == SubsystemKind::Io { &of_io[..] } else { &of_discovery[..] };
        for lid in lids {
            page.pages[usize::from(*lid)] = U32::new(1);
        }
        if self.config.kind == SubsystemKind::Io && self.shared() {
            page.pages[usize::from(lid::ANA)] = U32::new(1);
        }
        if self.config.kind == SubsystemKind::Io && self.can_sanitize() {
            page.pages[usize::from(lid::SANITIZE)] = U32::new(1);
        }
        if self.placement.is_some() {
            PAGES.iter().for_each(|lid| page.pages[usize::from(*lid)] = U32::new(1));
        }
        if self.config.kind == SubsystemKind::Discovery {
            page.pages[usize::from(lid::DISCOVERY)] = U32::new(1 | u32::from(discovery::LSP) << 16);
        }
        if !self.zoned.is_empty() {
            page.pages[usize::from(CHANGED_ZONES)] = U32::new(1);
        }
        for lid in (0xc0..=0xff).filter(|lid| self.vendor().is_some_and(|set| set.log_length(*lid).is_some())) {
            page.pages[usize::from(lid)] = U32::new(1);
        }
        page
    }

    /// SMART / health information, as hosts read it; warnings of temperature thresholds, which each host sets, are left out.
    pub fn smart_log(&self, now: Nanos) -> Smart {
        self.smart(now, NONE)
    }

    /// SMART / health: what was counted.
    pub(super) fn smart(&self, now: Nanos, c: u32) -> Smart {
        let life = self.lifetime(now);
        let work = life.work;
        // Thousands of 512-byte units, rounded up.
        let units = |bytes: u64| U128::new(u128::from(bytes.div_ceil(512_000)));
        let count = |n: u64| U128::new(n.into());
        let (minute, hour) = (60_000_000_000, 3_600_000_000_000);
        let hot = self.temperature_alarm(now, c);
        let mut sensors = [U16::new(0); 8];
        sensors.iter_mut().zip(self.sensors(now)).for_each(|(to, t)| *to = U16::new(t));
        Smart {
            critical_warning: self.critical_warning() | if hot { critical_warning::TEMPERATURE } else { 0 },
            temperature: U16::new(self.temperature(now)),
            sensors,
            warning_minutes: U32::new((life.warm.0 / minute) as u32),
            critical_minutes: U32::new((life.hot.0 / minute) as u32),
            available_spare: self.available_spare(),
            percentage_used: self
                .drifted_smart(now, 100, self.timing.0.as_ref().map_or(0, |inside| inside.percentage_used()))
                .1,
            spare_threshold: SPARE_THRESHOLD,
            data_units_read: units(work.read_bytes),
            data_units_written: units(work.write_bytes),
            host_reads: count(work.reads),
            host_writes: count(work.writes),
            busy_minutes: count(life.busy / minute),
            power_cycles: count(self.power.cycles),
            unsafe_shutdowns: count(self.power.unsafe_shutdowns),
            power_on_hours: count(life.on / hour),
            media_errors: count(life.media_errors),
            error_entries: count(life.errors),
            ..Smart::default()
        }
    }

    /// The errors of a controller, newest first, for tests and `weir status`.
    pub fn error_log(&self, controller: crate::ControllerHandle) -> Vec<ErrorEntry> {
        let c = self.resolve(controller).unwrap_or(NONE);
        self.ctrl(c).map_or(Vec::new(), |ctrl| ctrl.errors.iter().copied().collect())
    }
}
