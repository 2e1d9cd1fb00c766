//! Telemetry (base 2.0, 5.16.1.8, 5.16.1.9 and 8.24): what the drive knows of itself, caught at one moment.
//!
//! Data area 1 has the drive and its tenants as text, a line a fact; area 2 adds the error logs of all controllers, as the error log
//! page has them; area 3 adds controllers and queues as text. Each is padded with zeroes to whole blocks.

use crate::log_state::error_log::ERROR_ENTRIES;
use crate::log_state::telemetry::Caught;
use crate::subsystem::Subsystem;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use weir_spec::nvme::log::{AsyncEvent, lid};
use weir_spec::nvme::maintenance::{TELEMETRY_BLOCK, TelemetryHeader, persistent};
use weir_spec::nvme::wire::set_text;
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

/// Blocks of one data area at the most.
const AREA_MAX: usize = 512;

impl Subsystem {
    /// Catches the host-initiated data.
    pub(super) fn create_telemetry(&mut self, now: Nanos) {
        let caught = self.catch(now, self.logs.telemetry.host.generation, "a host asked for it");
        self.logs.telemetry.host = caught;
        let header = self.telemetry_header(lid::TELEMETRY_HOST);
        self.record(now, None, persistent::TELEMETRY, header.as_bytes());
    }

    /// Something went wrong that whoever looks after the drive will want to know about: the controller-initiated data is caught.
    #[cold]
    pub(crate) fn save_telemetry(&mut self, now: Nanos, reason: &str) {
        let caught = self.catch(now, self.logs.telemetry.own.generation, reason);
        (self.logs.telemetry.own, self.logs.telemetry.available) = (caught, true);
        self.note_event(AsyncEvent::TELEMETRY_CHANGED, None);
        let header = self.telemetry_header(lid::TELEMETRY_CONTROLLER);
        self.record(now, None, persistent::TELEMETRY, header.as_bytes());
    }

    /// The controller-initiated log was read with RAE = 0.
    pub(super) fn telemetry_was_read(&mut self) {
        self.logs.telemetry.available = false;
    }

    fn telemetry_header(&self, lid: u8) -> TelemetryHeader {
        let t = &self.logs.telemetry;
        let caught = if lid == lid::TELEMETRY_HOST { &t.host } else { &t.own };
        let [area1, area2, area3] = caught.areas.map(U16::new);
        let mut header = TelemetryHeader {
            lid,
            area1,
            area2,
            area3,
            host_generation: t.host.generation,
            available: t.available.into(),
            generation: t.own.generation,
            ..TelemetryHeader::default()
        };
        set_text(&mut header.reason, &caught.reason, 0);
        header
    }

    /// A telemetry log page.
    pub(super) fn telemetry_log(&self, lid: u8) -> Vec<u8> {
        let caught = if lid == lid::TELEMETRY_HOST { &self.logs.telemetry.host } else { &self.logs.telemetry.own };
        [self.telemetry_header(lid).as_bytes(), &caught.data].concat()
    }

    fn catch(&self, now: Nanos, before: u8, reason: &str) -> Caught {
        let mut data = Vec::new();
        let areas = [self.drive_text(now).into_bytes(), self.error_entries(), self.queue_text().into_bytes()];
        let areas = areas.map(|mut area| {
            area.truncate(AREA_MAX * TELEMETRY_BLOCK);
            data.append(&mut area);
            data.resize(data.len().next_multiple_of(TELEMETRY_BLOCK), 0);
            (data.len() / TELEMETRY_BLOCK) as u16
        });
        Caught { areas, data, generation: before.wrapping_add(1), reason: reason.into() }
    }

    fn drive_text(&self, now: Nanos) -> String {
        let (mut text, work) = (String::new(), self.total_work());
        // Writing into a string cannot fail.
        let _ = writeln!(text, "subsystem={}", self.config.subnqn);
        let _ = writeln!(text, "up_ns={}", now.saturating_sub(self.power.on_since).0);
        let _ =
            writeln!(text, "temperature_k={} sanitize={:?}", self.temperature(now), self.maintenance.sanitize.state);
        let _ = writeln!(text, "slots={} used={} bytes={}", self.slots.limit, self.slots.used, self.slots.bytes);
        let _ = writeln!(text, "media_errors={} warning={:#x}", self.health.media_errors, self.critical_warning());
        let _ = writeln!(text, "reads={} writes={} others={}", work.reads, work.writes, work.others);
        let _ =
            writeln!(text, "read_bytes={} write_bytes={} errors={}", work.read_bytes, work.write_bytes, work.errors);
        for t in self.stats().tenants {
            let _ = writeln!(
                text,
                "tenant={} class={:?} reads={} writes={} backlog={} in_flight={}",
                t.name, t.class, t.work.reads, t.work.writes, t.backlog, t.in_flight
            );
        }
        text
    }

    fn error_entries(&self) -> Vec<u8> {
        let logs = self.controllers.list.iter().flatten().flat_map(|ctrl| ctrl.errors.iter().take(ERROR_ENTRIES));
        logs.flat_map(|entry| entry.as_bytes().iter().copied()).collect()
    }

    fn queue_text(&self) -> String {
        let mut text = String::new();
        for c in self.controllers() {
            let _ = writeln!(text, "controller={} host={} ready={}", c.id, c.host, c.ready);
            for q in c.queues {
                let _ = writeln!(
                    text,
                    "queue={}.{} size={} class={:?} backlog={} in_flight={}",
                    c.id, q.qid, q.size, q.class, q.backlog, q.in_flight
                );
            }
        }
        text
    }
}
