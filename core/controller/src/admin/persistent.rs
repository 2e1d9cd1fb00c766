//! The persistent event log (base 2.0, 5.16.1.14): what happened in the drive's life, the newest 64 KiB of it.

use crate::namespace::namespace_job::{NamespaceJob, Task};
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::maintenance::{
    FormatEndEvent, FormatStartEvent, NamespaceEvent, PersistentHeader, persistent, persistent_action,
};
use weir_spec::nvme::namespace::FNA_CRYPTO;
use weir_spec::nvme::wire::set_text;
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64, U128};

impl Subsystem {
    /// The time as the timestamp feature tells it: what a host has set it to last, else since the drive was powered on; ms, with
    /// its origin in bits 51:49.
    pub(crate) fn timestamp(&self, now: Nanos) -> u64 {
        let (ms, since, origin) =
            self.logs.timestamp.map_or((0, self.power.on_since, 0), |(ms, at)| (ms, at, 1u64 << 49));
        (ms + now.saturating_sub(since).0 / 1_000_000) & 0xffff_ffff_ffff | origin
    }

    /// Something of a type of [`persistent`] has happened, by a controller's doing or not.
    #[cold]
    pub(crate) fn record(&mut self, now: Nanos, c: Option<u32>, kind: u8, data: &[u8]) {
        let cntlid = c.and_then(|c| self.ctrl(c)).map_or(0, |ctrl| ctrl.id);
        let timestamp = self.timestamp(now);
        self.logs.events.note(kind, cntlid, timestamp, data);
        self.touch();
    }

    /// A snapshot of SMART.
    pub(crate) fn record_smart(&mut self, now: Nanos) {
        let smart = self.smart(now, crate::queues::queue::NONE);
        self.record(now, None, persistent::SMART, smart.as_bytes());
    }

    /// The controller was powered on or reset: the running revision, and who did what.
    pub(crate) fn record_reset(&mut self, now: Nanos, c: u32) {
        let Some(id) = self.ctrl(c).map(|ctrl| ctrl.id) else { return };
        let mut data = [0; 28];
        data[..8].copy_from_slice(&self.maintenance.firmware.running());
        data[8..10].copy_from_slice(&id.to_le_bytes());
        data[24..28].copy_from_slice(&(self.power.cycles as u32).to_le_bytes());
        self.record(now, Some(c), persistent::RESET, &data);
    }

    /// Formatting begins.
    pub(crate) fn record_format(&mut self, now: Nanos, c: u32, job: &NamespaceJob) {
        let event = FormatStartEvent {
            nsid: U32::new(job.asked),
            fna: FNA_CRYPTO,
            cdw10: U32::new(job.cdw10),
            ..Default::default()
        };
        self.record(now, Some(c), persistent::FORMAT_START, event.as_bytes());
    }

    /// Work on namespaces is over: those that were created, deleted or formatted are as they are now, or still there. `left`: what
    /// is not formatted, in percent.
    pub(crate) fn record_namespace_job(&mut self, now: Nanos, job: &NamespaceJob, (status, left): (Status, u8)) {
        let c = job.waiter.map(|(q, ..)| self.sq(q).controller);
        match job.task {
            Task::Create { .. } | Task::Delete if status.is_success() => {
                let event = self.namespace_event(job);
                self.record(now, c, persistent::NAMESPACE, event.as_bytes());
            }
            Task::Format { .. } => {
                let event = FormatEndEvent {
                    nsid: U32::new(job.asked),
                    smallest_fpi: left,
                    outcome: if status.is_success() { 0 } else { 0b11 },
                    information: U16::new(0),
                    status: U32::new(status.field().into()),
                };
                self.record(now, c, persistent::FORMAT_END, event.as_bytes());
            }
            _ => {}
        }
    }

    fn namespace_event(&self, job: &NamespaceJob) -> NamespaceEvent {
        let all = job.asked == NSID_ALL && job.task == Task::Delete;
        let nsid = if all { NSID_ALL } else { job.nsids.first().copied().unwrap_or(0) };
        let cdw10 = U32::new(job.cdw10);
        let Some(ns) = self.namespaces.list.get(nsid.wrapping_sub(1) as usize).and_then(Option::as_ref) else {
            return NamespaceEvent { cdw10, nsid: U32::new(nsid), ..Default::default() };
        };
        NamespaceEvent {
            cdw10,
            nsze: U64::new(ns.blocks),
            ncap: U64::new(ns.blocks),
            flbas: ns.format.flbas(),
            dps: ns.format.dps(),
            nmic: self.nmic(nsid),
            anagrpid: U32::new(self.ana_group()),
            nsid: U32::new(nsid),
            ..Default::default()
        }
    }

    /// Get Log Page of it: what of the page is to be sent.
    pub(super) fn persistent_log(&mut self, now: Nanos, c: u32, lsp: u8) -> Result<Vec<u8>, Status> {
        let invalid = Status::INVALID_FIELD.dnr();
        let sequence = Status::COMMAND_SEQUENCE_ERROR.dnr();
        let held = self.ctrl(c).and_then(|ctrl| ctrl.event_context.clone());
        match lsp & 3 {
            persistent_action::READ => held.ok_or(sequence),
            persistent_action::ESTABLISH if held.is_some() => Err(sequence),
            persistent_action::ESTABLISH => {
                let page = self.persistent_page(now, c);
                if let Some(ctrl) = self.ctrl_mut(c) {
                    ctrl.event_context = Some(page.clone());
                }
                Ok(page)
            }
            persistent_action::RELEASE => {
                if let Some(ctrl) = self.ctrl_mut(c) {
                    ctrl.event_context = None;
                }
                Ok(Vec::new())
            }
            _ => Err(invalid),
        }
    }

    fn persistent_page(&mut self, now: Nanos, c: u32) -> Vec<u8> {
        let config = &self.config;
        let mut head = PersistentHeader {
            timestamp: U64::new(self.timestamp(now)),
            poh: U128::new(self.power_on_hours(now).into()),
            power_cycles: U64::new(self.power.cycles),
            // The context is a controller's, in its CNTLID and of the NVM subsystem port.
            rci: U32::new(self.ctrl(c).map_or(0, |ctrl| u32::from(ctrl.id)) | 1 << 18),
            ..Default::default()
        };
        set_text(&mut head.sn, &config.serial, b' ');
        set_text(&mut head.mn, &config.model, b' ');
        set_text(&mut head.subnqn, &config.subnqn, 0);
        self.logs.events.page(head)
    }
}

/// The events.
pub(crate) const SECTION: Section = Section {
    id: 6,
    version: 1,
    save: |drive, to| drive.logs.events.save(to),
    restore: |drive, from, _| drive.logs.events.restore(from),
};
