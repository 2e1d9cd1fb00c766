//! What is done for volumes with two copies while the node runs: the pool that could not note something recovers, regions are settled, and stale
//! copies are rebuilt, a few chunks at a time.

use super::{Found, Volumes, Wanted, tenant_index};
use crate::directory::Place;
use crate::pool::front::{JobKind, JobOutcome};
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_pool::{CHUNK, ChunkRun, PoolRequest, Rebuilt, VolumeId};
use weir_units::Bytes;

/// How long chunks that are rebuilt may take before it is left to another time: a drive that completes nothing keeps nobody from taking it out.
const JOB_TIMEOUT: Duration = Duration::from_secs(2);
/// After a rebuild that has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// So often a pool could not recover before the drive that keeps it from that is taken out.
const RECOVERIES: u32 = 2;
/// Between two looks at pools that have such volumes.
const LOOK: Duration = Duration::from_millis(100);
/// Parts of a second in which what is rebuilt is counted out.
const STEPS: u64 = 8;

/// What the node has to do for a pool, since it changes which drives it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A drive takes no notes, and volumes have other copies of all that lies there.
    TakeOut {
        /// The pool.
        pool: String,
        /// The device.
        device: String,
    },
    /// A spare is to take the place of a lost drive.
    Replace {
        /// The pool.
        pool: String,
        /// The number of the lost drive.
        lost: u16,
        /// The spare.
        device: String,
    },
    /// A lost drive is there again.
    Online {
        /// The pool.
        pool: String,
        /// The number of the lost drive.
        lost: u16,
        /// The device.
        device: String,
    },
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub struct Tending {
    /// Recoveries of each pool that have failed, one after the other.
    recoveries: BTreeMap<usize, u32>,
    /// Volumes that are left alone until then.
    paused: BTreeMap<(usize, VolumeId), Instant>,
    /// Volumes that are being rebuilt.
    rebuilding: BTreeMap<(usize, VolumeId), Bytes>,
    /// Spares that were tried for a lost drive: one that could not take its place, or has failed there, is not tried again.
    spares: BTreeSet<TriedSpare>,
    looks: u64,
}

/// A device that has been given the place of a lost drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TriedSpare {
    pool: usize,
    lost: u16,
    device: usize,
}

/// What a look came to.
#[derive(Debug, Default)]
pub struct Tended {
    /// To be done by the node.
    pub measures: Vec<Measure>,
    /// How long to wait before the next look.
    pub pause: Duration,
}

/// Looks at what fronts know of their copies, of those at their notes.
const SETTLES: u64 = 10;

impl Volumes {
    /// Looks at all pools once, and does a little of what there is to do.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn tend(&self, config: &Config, tending: &mut Tending) -> Result<Tended, Refusal> {
        let mut tended = Tended { measures: Vec::new(), pause: Duration::from_secs(1) };
        tending.looks += 1;
        self.end_images()?;
        for pool in 0..self.pools.len() {
            for (lost, device) in self.found_again(config, pool)? {
                let (pool, device) = (self.pools[pool].name.clone(), config.devices[device].name.clone());
                tended.measures.push(Measure::Online { pool, lost, device });
            }
            self.tell_of_return(pool, &self.turn())?;
            let twice = self.look(pool, Wanted::Twice)?;
            if twice.is_empty() {
                continue;
            }
            tended.pause = tended.pause.min(LOOK);
            tended.measures.extend(self.recover_by_itself(config, pool, tending)?);
            tended.measures.extend(self.spare_for(config, pool, tending)?);
            self.look_at_fronts(pool, tending.looks % SETTLES == 0)?;
            let mut busy = None;
            for found in &twice {
                if found.health.stale > 0 && busy.is_none() {
                    busy = self.rebuild(config, found, tending)?;
                }
                if found.health.stale == 0 && tending.rebuilding.remove(&(pool, found.id)).is_some() {
                    tracing::info!("volume {}: its second copy is whole", found.name);
                }
                if tending.looks % SETTLES == 0 {
                    self.settle_unused(found)?;
                }
            }
            if busy.is_none() {
                busy = self.scrub(config, (pool, &twice))?;
            }
            if let Some(pause) = busy {
                tended.pause = tended.pause.min(pause);
            }
        }
        Ok(tended)
    }

    /// A pool whose metadata could not be written recovers; a drive that keeps it from that is to be taken out if nothing is lost with it.
    fn recover_by_itself(
        &self,
        config: &Config,
        pool: usize,
        tending: &mut Tending,
    ) -> Result<Option<Measure>, Refusal> {
        let exports = self.turn();
        if self.fault(pool)?.is_none() {
            tending.recoveries.remove(&pool);
            return Ok(None);
        }
        let Err(why) = self.recover(pool, &exports) else {
            tending.recoveries.remove(&pool);
            return Ok(None);
        };
        drop(exports);
        let failures = tending.recoveries.entry(pool).or_default();
        *failures += 1;
        if *failures < RECOVERIES {
            return Ok(None);
        }
        let failing = self.call(pool, |s, number| {
            let machine = s.drives.pool(number);
            machine.failing().filter(|place| machine.can_do_without(*place))
        })?;
        let device = failing.and_then(|place| self.pools[pool].devices().get(place).copied());
        let Some((device, true)) = device else { return Ok(None) };
        let (pool, device) = (self.pools[pool].name.clone(), config.devices[device].name.clone());
        tracing::error!(
            "pool {pool}: drive {device} does not take the pool's metadata ({}); every volume has another copy of what lies there: it is taken out",
            why.text()
        );
        Ok(Some(Measure::TakeOut { pool, device }))
    }

    /// A spare for a lost drive of which all is readable elsewhere.
    fn spare_for(&self, config: &Config, pool: usize, tending: &mut Tending) -> Result<Option<Measure>, Refusal> {
        let name = &self.pools[pool].name;
        let spares = config.pools.iter().find(|p| p.name == *name).map_or(&[][..], |p| &p.spares);
        if spares.is_empty() {
            return Ok(None);
        }
        let lost = self.call(pool, |s, number| {
            let machine = s.drives.pool(number);
            let lost = machine.lost().into_iter().map(|(number, ..)| number);
            let mut lost = lost.filter(|number| machine.can_be_rebuilt(*number));
            lost.next()
        })?;
        let Some(lost) = lost else { return Ok(None) };
        let fits = |device: &&usize| {
            let tried = TriedSpare { pool, lost, device: **device };
            self.pool_of(**device).is_none() && !tending.spares.contains(&tried)
        };
        let Some(device) = spares.iter().find(fits).copied() else { return Ok(None) };
        tending.spares.insert(TriedSpare { pool, lost, device });
        let device = config.devices[device].name.clone();
        Ok(Some(Measure::Replace { pool: name.clone(), lost, device }))
    }

    fn look_at_fronts(&self, pool: usize, settles: bool) -> Result<(), Refusal> {
        let exports = self.turn();
        let mut fronts: Vec<Place> = exports.iter().filter(|e| e.pool == pool).map(|e| e.front).collect();
        fronts.extend(self.leaving().iter().filter(|((of, _), _)| *of == pool).map(|(_, front)| *front));
        fronts.sort_unstable_by_key(|front| (front.shard, front.drive));
        fronts.dedup();
        for front in fronts {
            self.at(front.shard, move |s| s.drives.look_at_copies(front.drive, settles))?;
        }
        Ok(())
    }

    /// Nobody writes a volume that has no front: what was written is the same in both copies.
    fn settle_unused(&self, found: &Found) -> Result<(), Refusal> {
        let exports = self.turn();
        let is = |pool: usize, volume: VolumeId| (pool, volume) == (found.pool, found.id);
        if exports.iter().any(|e| is(e.pool, e.volume)) || self.leaving().iter().any(|((p, v), _)| is(*p, *v)) {
            return Ok(());
        }
        self.settle(found)
    }

    /// Nothing is on its way to a volume: its copies are the same but for what is stale.
    fn settle(&self, found: &Found) -> Result<(), Refusal> {
        let id = found.id;
        let written = self.call(found.pool, move |s, number| {
            s.drives.pool(number).volume_of(id).map_or_else(Vec::new, |v| v.written().to_vec())
        })?;
        if written.is_empty() || found.health.lost > 0 {
            return Ok(());
        }
        let request = Ask::Request(PoolRequest::Settled { id, runs: written });
        let asked = self.ask_within(&self.pools[found.pool], request, JOB_TIMEOUT);
        if let Err(why) = asked {
            tracing::warn!(
                "volume {}: what was written is not noted as the same in both copies: {}",
                found.name,
                why.text()
            );
        }
        Ok(())
    }

    /// The end of the node: regions of volumes that nothing is on its way to are settled, so that they are not copied at the next start.
    pub(super) fn settle_all(&self, exports: &[super::Export]) -> Result<(), Refusal> {
        for pool in 0..self.pools.len() {
            for found in self.look(pool, Wanted::Twice)? {
                let of = |e: &&super::Export| (e.pool, e.volume) == (found.pool, found.id);
                let is_quiet = match exports.iter().find(of).map(|e| e.front) {
                    Some(front) => self.at(front.shard, move |s| {
                        s.drives.is_front_quiet(front.drive) && s.drives.has_told_all(front.drive)
                    })?,
                    None => !self.leaving().iter().any(|((p, v), _)| (*p, *v) == (found.pool, found.id)),
                };
                if is_quiet {
                    self.settle(&found)?;
                }
            }
        }
        Ok(())
    }

    /// Chunks that are copied or compared at once, and bytes a second at the most.
    pub(super) fn step(&self, config: &Config, pool: usize) -> (u32, u64) {
        let name = &self.pools[pool].name;
        let rate = config.pools.iter().find(|p| p.name == *name).map_or(u64::MAX, |p| p.rebuild_rate.get());
        ((rate / STEPS / CHUNK).clamp(1, u64::from(u32::MAX)) as u32, rate)
    }

    /// A few stale chunks of a volume are rebuilt; how long to wait then, or nothing if there is nothing to do now.
    fn rebuild(&self, config: &Config, found: &Found, tending: &mut Tending) -> Result<Option<Duration>, Refusal> {
        let (key, id) = ((found.pool, found.id), found.id);
        if tending.paused.get(&key).is_some_and(|until| *until > Instant::now()) {
            return Ok(None);
        }
        let (most, rate) = self.step(config, found.pool);
        let exports = self.turn();
        let stale = self.call(found.pool, move |s, number| {
            let pool = s.drives.pool(number);
            let segment = pool.next_stale(id, 0)?;
            let (in_place, len) = pool.is_rebuilt_in_place(id, &segment);
            Some((ChunkRun { start: segment.logical, len: len.min(most) }, in_place))
        })?;
        let Some((run, in_place)) = stale else { return Ok(None) };
        if tending.rebuilding.insert(key, Bytes(u64::from(found.health.stale) * CHUNK)).is_none() {
            let left = Bytes(u64::from(found.health.stale) * CHUNK);
            tracing::info!(
                "volume {}: {left} of its second copy are rebuilt, at {}/s at the most",
                found.name,
                Bytes(rate)
            );
        }
        let begun = Instant::now();
        let outcome = match in_place {
            true => self.run_job(config, (found, &exports), JobKind::Rebuild, run)?,
            false => self.give_own(config, (found, &exports), run)?,
        };
        if let (true, Some(JobOutcome { done, .. })) = (in_place, &outcome) {
            let rebuilt = ChunkRun { len: (done / CHUNK) as u32, ..run };
            self.note_others(found, rebuilt, &exports)?;
        }
        drop(exports);
        let took = begun.elapsed();
        let Some(JobOutcome { done, failed, .. }) = outcome else {
            tending.paused.insert(key, Instant::now() + PAUSE);
            return Ok(None);
        };
        if let Some((status, place)) = failed {
            let device = self.pools[found.pool].devices().get(place).map(|(device, _)| &config.devices[*device].name);
            let device = device.map_or("", String::as_str);
            tracing::warn!(
                "volume {}: drive {device} fails while its copy is rebuilt ({status}); it is tried again",
                found.name
            );
            tending.paused.insert(key, Instant::now() + PAUSE);
        }
        let due = Duration::from_nanos((u128::from(done) * 1_000_000_000 / u128::from(rate)) as u64);
        Ok(Some(due.saturating_sub(took)))
    }

    /// Has a volume's front rebuild or compare chunks. `None`: it did not end in time, or could not begin.
    pub(super) fn run_job(
        &self,
        config: &Config,
        (found, exports): (&Found, &[super::Export]),
        kind: JobKind,
        run: ChunkRun,
    ) -> Result<Option<JobOutcome>, Refusal> {
        self.at_its_front(config, (found, exports), |front| self.job_at(found, front, kind, run))
    }

    /// What was rebuilt of a volume is so for its snapshots and clones that have the same chunks.
    fn note_others(&self, found: &Found, run: ChunkRun, exports: &[super::Export]) -> Result<(), Refusal> {
        let id = found.id;
        let others = self.call(found.pool, move |s, number| s.drives.pool(number).rebuilt_with(id, run))?;
        for Rebuilt { id, drive, runs } in others {
            let front = exports.iter().find(|e| (e.pool, e.volume) == (found.pool, id)).map(|e| e.front);
            if let Some(front) = front {
                self.at(front.shard, move |s| s.drives.note_rebuilt(front.drive, drive, runs))?;
                self.until_within(front.shard, JOB_TIMEOUT, move |s| s.drives.has_told_all(front.drive))?;
                self.lay_out(found.pool, id, front)?;
                continue;
            }
            let request = Ask::Request(PoolRequest::MarkFresh { id, drive, runs });
            // One that cannot be noted is copied by and by.
            let _ = self.ask_within(&self.pools[found.pool], request, JOB_TIMEOUT);
        }
        Ok(())
    }

    /// Stale chunks that a snapshot or a clone has too, but not both of them, get places of their own, with what was written last.
    fn give_own(
        &self,
        config: &Config,
        (found, exports): (&Found, &[super::Export]),
        run: ChunkRun,
    ) -> Result<Option<JobOutcome>, Refusal> {
        self.at_its_front(config, (found, exports), |front| {
            self.at(front.shard, move |s| {
                s.drives.take_refused(front.drive);
                s.drives.want_own(front.drive, run);
            })?;
            let is_over = self.until_within(front.shard, JOB_TIMEOUT, move |s| s.drives.has_its_own(front.drive))?;
            if let Some(why) = self.at(front.shard, move |s| s.drives.take_refused(front.drive))? {
                let what = "chunks of its second copy that a snapshot or a clone has too get no place of their own";
                tracing::warn!("volume {}: {what}: {why}; it is tried again", found.name);
                return Ok(None);
            }
            let done = u64::from(run.len) * CHUNK;
            Ok(is_over.then(|| JobOutcome { done, ..JobOutcome::default() }))
        })
    }

    /// Does something at the front of a volume; one that is not exported gets one for that long. `None`: there can be none now.
    fn at_its_front(
        &self,
        config: &Config,
        (found, exports): (&Found, &[super::Export]),
        what: impl FnOnce(Place) -> Result<Option<JobOutcome>, Refusal>,
    ) -> Result<Option<JobOutcome>, Refusal> {
        let of = |e: &&super::Export| (e.pool, e.volume) == (found.pool, found.id);
        let had = exports.iter().find(of).map(|e| e.front);
        let front = match had {
            Some(front) => front,
            None => {
                if self.must_have_left(found).is_err() {
                    return Ok(None);
                }
                let tenant = tenant_index(config, &found.tenant).unwrap_or(0);
                let front = self.make_front(config, found, (tenant, &self.nqn(&found.name)), None)?;
                if let Err(why) = self.lay_out(found.pool, found.id, front) {
                    self.remove_front(front)?;
                    return Err(why);
                }
                front
            }
        };
        let outcome = what(front);
        if had.is_none() {
            if self.until_within(front.shard, JOB_TIMEOUT, move |s| s.drives.is_front_quiet(front.drive))? {
                self.remove_front(front)?;
            } else {
                self.leaving().push(((found.pool, found.id), front));
            }
        }
        outcome
    }

    fn job_at(&self, found: &Found, front: Place, kind: JobKind, run: ChunkRun) -> Result<Option<JobOutcome>, Refusal> {
        // One that was given up and has come back since says nothing any more.
        self.at(front.shard, move |s| s.drives.end_job(front.drive))?;
        if !self.at(front.shard, move |s| s.drives.start_job(front.drive, kind, run))? {
            return Ok(None);
        }
        let begun = Instant::now();
        let outcome = loop {
            if let Some(outcome) = self.at(front.shard, move |s| s.drives.end_job(front.drive))? {
                break outcome;
            }
            if begun.elapsed() > JOB_TIMEOUT {
                self.at(front.shard, move |s| s.drives.cancel_job(front.drive))?;
                tracing::warn!(
                    "volume {}: its drives do not finish what is copied; it goes on when they have",
                    found.name
                );
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        self.until_within(front.shard, JOB_TIMEOUT, move |s| s.drives.has_told_all(front.drive))?;
        self.lay_out(found.pool, found.id, front)?;
        Ok(Some(outcome))
    }
}
