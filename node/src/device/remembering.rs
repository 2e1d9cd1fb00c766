//! When a drive writes down what it remembers without power: after changes, and when it stops.

use super::Device;
use weir_units::Nanos;

/// What could not be written is tried again so much later.
const AGAIN: Nanos = Nanos::from_secs(1);

impl Device {
    /// Writes down what the machine remembers, if that has changed.
    #[inline]
    pub(super) fn write_remembered(&mut self, now: Nanos) {
        let Some(kept) = &self.remembered else { return };
        if kept.tried != self.machine.nonvolatile_generation() || kept.again.is_some_and(|again| now >= again) {
            self.write_changes(now);
        }
    }

    #[cold]
    fn write_changes(&mut self, now: Nanos) {
        self.prepare_metadata();
        let Some(kept) = &mut self.remembered else { return };
        self.machine.count_until(now);
        match kept.file.write(&self.machine.save()) {
            Ok(()) => {
                if kept.again.take().is_some() {
                    tracing::info!("what the drive remembers could be written again");
                }
            }
            Err(e) => {
                // The first cause; what the next attempts find follows from it.
                if kept.again.replace(now.saturating_add(AGAIN)).is_none() {
                    tracing::error!(
                        "what the drive remembers could not be written: {e}; it is tried again every second"
                    );
                }
                self.machine.note_media_fault(false);
            }
        }
        kept.tried = self.machine.nonvolatile_generation();
    }

    /// The drive is being stopped, `quiet`ly or not; what it remembers is durable afterwards.
    pub(super) fn stop_remembering(&mut self, now: Nanos, quiet: bool) {
        let Some(mut kept) = self.remembered.take() else { return };
        if quiet {
            self.machine.stop(now);
        } else {
            self.machine.count_until(now);
        }
        if let Err(e) = kept.file.write(&self.machine.save()).and_then(|()| kept.file.sync()) {
            tracing::error!("what the drive remembers could not be written: {e}");
        }
    }
}
