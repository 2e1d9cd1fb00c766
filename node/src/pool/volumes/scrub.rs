//! Comparing the copies of a pool's volumes: a few chunks at a time, behind rebuilds, at their rate.

use super::scrub_progress::ScrubProgress;
use super::{Found, Volumes, Wanted};
use crate::pool::front::{JobKind, JobOutcome};
use crate::refusal::Refusal;
use crate::snapshot::ScrubSnapshot;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_pool::{CHUNK, ChunkRun, VolumeId};
use weir_units::Bytes;

impl Volumes {
    /// Begins to compare the copies of a pool's volumes.
    ///
    /// # Errors
    /// There is no such pool, none of its volumes has two copies, or they are being compared.
    pub fn start_scrub(&self, pool: &str, repair: bool) -> Result<(), Refusal> {
        let at = self.pool_named(Some(pool))?;
        if self.look(at, Wanted::Twice)?.is_empty() {
            return Err(Refusal::Conflict(format!(
                "no volume of pool {pool} has two copies; nothing is compared (weir volume create --copies 2 makes one)"
            )));
        }
        let mut scrubs = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        if scrubs.get(&at).is_some_and(|scrub| scrub.running) {
            return Err(Refusal::Conflict(format!(
                "the copies of pool {pool} are being compared already; weir pool scrub --stop ends that"
            )));
        }
        let (volume, running) = (VolumeId(0), true);
        scrubs.insert(at, ScrubProgress { repair, volume, at: 0, compared: 0, differing: 0, failed: 0, running });
        Ok(())
    }

    /// Leaves off comparing; what was found so far stays to be seen.
    ///
    /// # Errors
    /// There is no such pool, or nothing is being compared.
    pub fn stop_scrub(&self, pool: &str) -> Result<(), Refusal> {
        let at = self.pool_named(Some(pool))?;
        let mut scrubs = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        match scrubs.get_mut(&at).filter(|scrub| scrub.running) {
            Some(scrub) => scrub.running = false,
            None => return Err(Refusal::Conflict(format!("the copies of pool {pool} are not being compared"))),
        }
        Ok(())
    }

    /// What is known of the last comparison of a pool.
    pub(super) fn scrub_of(&self, pool: usize) -> Option<ScrubSnapshot> {
        let scrubs = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        scrubs.get(&pool).map(|scrub| ScrubSnapshot {
            running: scrub.running,
            repair: scrub.repair,
            compared: Bytes(scrub.compared),
            differing: Bytes(scrub.differing),
            failed: Bytes(scrub.failed),
        })
    }

    /// Compares a few chunks; how long to wait then, or nothing if there is nothing to compare.
    pub(super) fn scrub(&self, config: &Config, (pool, twice): (usize, &[Found])) -> Result<Option<Duration>, Refusal> {
        let now = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner).get(&pool).cloned();
        let Some(mut scrub) = now.filter(|scrub| scrub.running) else { return Ok(None) };
        let next = twice.iter().filter(|found| found.id >= scrub.volume).min_by_key(|found| found.id);
        let Some(found) = next else {
            scrub.running = false;
            let (compared, differing, failed) = (Bytes(scrub.compared), Bytes(scrub.differing), Bytes(scrub.failed));
            tracing::info!(
                "pool {}: {compared} of second copies were compared, {differing} of them differ, {failed} could not be read",
                self.pools[pool].name
            );
            self.keep_scrub(pool, scrub);
            return Ok(None);
        };
        if found.id > scrub.volume {
            (scrub.volume, scrub.at) = (found.id, 0);
        }
        if scrub.at >= found.chunks {
            (scrub.volume, scrub.at) = (VolumeId(found.id.0 + 1), 0);
            self.keep_scrub(pool, scrub);
            return Ok(Some(Duration::ZERO));
        }
        let (most, rate) = self.step(config, pool);
        let run = ChunkRun { start: scrub.at, len: (found.chunks - scrub.at).min(most) };
        let begun = Instant::now();
        let exports = self.turn();
        let outcome = self.run_job(config, (found, &exports), JobKind::Compare { repair: scrub.repair }, run)?;
        drop(exports);
        let Some(JobOutcome { done, differ, failed }) = outcome else { return Ok(None) };
        for difference in &differ {
            let done = if scrub.repair {
                "the second copy is written anew"
            } else {
                "weir pool scrub --repair makes them the same"
            };
            tracing::warn!(
                "volume {}: its copies differ within {} bytes from {} on; {done}",
                found.name,
                difference.len,
                difference.at
            );
            scrub.differing += difference.len;
        }
        scrub.compared += done;
        scrub.at += (done / CHUNK) as u32;
        if let Some((status, place)) = failed {
            let device = self.pools[pool].devices().get(place).map(|(device, _)| config.devices[*device].name.clone());
            let device = device.unwrap_or_default();
            tracing::warn!("volume {}: drive {device} does not give MiB {} of it ({status})", found.name, scrub.at);
            (scrub.failed, scrub.at) = (scrub.failed + CHUNK, scrub.at + 1);
        } else if done < CHUNK {
            // One that is stale, or has no second copy now.
            scrub.at += 1;
        }
        self.keep_scrub(pool, scrub);
        let due = Duration::from_nanos((u128::from(done) * 1_000_000_000 / u128::from(rate)) as u64);
        Ok(Some(due.saturating_sub(begun.elapsed())))
    }

    /// What a step has come to, unless the comparison was ended or begun anew meanwhile.
    fn keep_scrub(&self, pool: usize, step: ScrubProgress) {
        let mut scrubs = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scrub) = scrubs.get_mut(&pool).filter(|scrub| scrub.running && scrub.compared <= step.compared) {
            *scrub = step;
        }
    }
}
