//! SMART's counters over the whole life of a drive, and how it is stopped.

use crate::power::lifetime::Counters;
use crate::saved::section::Section;
use crate::stats::Work;
use crate::subsystem::Subsystem;
use weir_codec::{Damaged, Reader, Writer};
use weir_units::Nanos;

pub(crate) const HOUR: u64 = 3_600_000_000_000;

impl Subsystem {
    /// Everything up to `now`.
    pub(crate) fn lifetime(&self, now: Nanos) -> Counters {
        let (before, work) = (&self.power.before, self.total_work());
        let busy = self.power.busy + self.power.busy_since.map_or(0, |since| now.saturating_sub(since).0);
        Counters {
            work: Work {
                reads: before.work.reads + work.reads,
                writes: before.work.writes + work.writes,
                others: before.work.others + work.others,
                read_bytes: before.work.read_bytes + work.read_bytes,
                write_bytes: before.work.write_bytes + work.write_bytes,
                errors: before.work.errors + work.errors,
            },
            busy: before.busy + busy,
            on: before.on + now.saturating_sub(self.power.on_since).0,
            media_errors: before.media_errors + self.health.media_errors,
            errors: before.errors + self.logs.errors,
            warm: before.warm.saturating_add(self.power.thermal.warm),
            hot: before.hot.saturating_add(self.power.thermal.hot),
        }
    }

    /// Hours that the drive had power, in all.
    pub(crate) fn power_on_hours(&self, now: Nanos) -> u64 {
        self.lifetime(now).on / HOUR
    }

    /// The time up to which the next [`save`](Self::save) counts.
    pub fn count_until(&mut self, now: Nanos) {
        self.power.counted = now;
    }

    /// The drive is being stopped: when it is powered on again, that was no unsafe shutdown.
    pub fn stop(&mut self, now: Nanos) {
        self.count_until(now);
        self.power.stopped = true;
        self.record_smart(now);
    }
}

/// The counters, and how often the drive was powered on.
pub(crate) const SECTION: Section = Section { id: 2, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    let c = drive.lifetime(drive.power.counted.max(drive.power.on_since));
    let w = &c.work;
    for n in [w.reads, w.writes, w.others, w.read_bytes, w.write_bytes, w.errors] {
        to.u64(n);
    }
    for n in
        [c.busy, c.on, c.media_errors, c.errors, c.warm.0, c.hot.0, drive.power.cycles, drive.power.unsafe_shutdowns]
    {
        to.u64(n);
    }
    to.u8(drive.power.stopped.into());
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    let mut next = || from.u64();
    let work = Work {
        reads: next()?,
        writes: next()?,
        others: next()?,
        read_bytes: next()?,
        write_bytes: next()?,
        errors: next()?,
    };
    let (busy, on, media_errors, errors) = (next()?, next()?, next()?, next()?);
    let (warm, hot) = (Nanos(next()?), Nanos(next()?));
    drive.power.before = Counters { work, busy, on, media_errors, errors, warm, hot };
    let (cycles, crashes) = (next()?, next()?);
    let stopped = from.u8()? == 1;
    drive.power.cycles = cycles.saturating_add(1);
    drive.power.unsafe_shutdowns = crashes.saturating_add(u64::from(!stopped));
    Ok(())
}
