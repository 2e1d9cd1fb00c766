//! Power loss and what comes after.

use crate::Flash;
use crate::buffer::Buffer;
use crate::config::{BufferConfig, Cache};
use crate::ftl::Lost;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// What a power cut did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerLoss {
    /// Units whose newest writes are undone, in ascending order, each once. Whole units: none is torn within.
    pub lost: Vec<Lost>,
    /// Pages of which the spare area was read to find the map again.
    pub pages_read: u64,
    /// How long that takes, all planes at once.
    pub takes: Nanos,
}

impl BufferConfig {
    /// Whether everything that is acknowledged survives power loss: there is no buffer, it outlives the power, or writes are
    /// complete behind it.
    pub const fn is_durable(&self) -> bool {
        self.size.0 < crate::UNIT as u64 || matches!(self.cache, Cache::Read) || !self.early || self.protected
    }
}

impl Flash {
    /// The power goes at `now` and comes back: what the volatile buffer acknowledged and nothing has flushed is lost, or
    /// not, as `seed` decides for programs that were under way; the map is rebuilt from the spare areas. Commands that
    /// were not complete at `now` may have taken effect. `None` where the pages keep no sequence numbers
    /// ([`crate::FtlConfig::spare`]): then there is nothing to rebuild from.
    pub fn power_cut(&mut self, now: Nanos, seed: u64) -> Option<PowerLoss> {
        if !self.config.ftl.spare {
            return None;
        }
        let mut lost = Vec::new();
        if self.config.buffer.protected {
            // The capacitors last for the buffer.
            self.destage_all(now);
        }
        self.run_out(now);
        if let Some(buffer) = &mut self.buffer {
            for (lpn, writes) in buffer.clear() {
                self.ftl.map.take_back(&[lpn]);
                lost.push(Lost { lpn, writes });
            }
        }
        self.ftl.tear(now, &mut SplitMix64::new(seed), &mut lost);
        lost.sort_unstable();
        lost.dedup_by(|later, first| {
            let same = later.lpn == first.lpn;
            first.writes += if same { later.writes } else { 0 };
            same
        });
        let pages_read = self.ftl.recover();
        self.restart(now);
        let rounds = pages_read.div_ceil(u64::from(self.shape().planes()));
        let takes = Nanos(self.ftl.times.read.0.saturating_mul(rounds));
        Some(PowerLoss { lost, pages_read, takes })
    }

    /// The units whose newest writes a power cut at `now` could take, in ascending order.
    pub fn at_risk(&self, now: Nanos) -> Vec<u32> {
        let buffered = self.buffer.iter().flat_map(Buffer::dirty_units);
        let mut units: Vec<u32> = buffered.chain(self.ftl.flights.under_way(now)).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// The drive is being stopped: what the buffer holds is written.
    pub fn stop(&mut self, now: Nanos) {
        self.destage_all(now);
        self.run_out(now);
    }

    /// Builds the map from the spare areas alone, as a drive does that comes up without having been shut down: what the
    /// buffer holds is written first. The pages that it looked at; `None` as for [`Flash::power_cut`].
    pub fn rebuild(&mut self, now: Nanos) -> Option<u64> {
        self.destage_all(now);
        self.run_out(now);
        self.config.ftl.spare.then(|| self.ftl.recover())
    }
}
