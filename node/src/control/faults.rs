//! Rules of failures come and go while the node serves.

use super::{NodeControl, gone};
use crate::directory::place;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::snapshot::FaultSnapshot;
use std::sync::PoisonError;
use weir_config::FaultConfig;
use weir_controller::PlannedFault;
use weir_fault::FaultRule;
use weir_units::Nanos;

fn snapshot(planned: &PlannedFault, now: Nanos) -> FaultSnapshot {
    FaultSnapshot {
        id: planned.id,
        rule: planned.rule.clone(),
        matched: planned.matched,
        applied: planned.applied,
        is_active: planned.is_active(now),
    }
}

impl NodeControl {
    fn allows_faults(&self) -> Result<(), Refusal> {
        if self.config().node.faults {
            return Ok(());
        }
        let what = "failures can be injected only where [node] says faults = true; write it into the configuration, and \
                    start the node with it";
        Err(Refusal::Conflict(what.into()))
    }

    /// The rules of a drive, in the order of their numbers.
    ///
    /// # Errors
    /// There is no such drive.
    pub fn faults(&self, device: &str) -> Result<Vec<FaultSnapshot>, Refusal> {
        let place = place(self.device_index(device)?, self.shards.len());
        let look = move |s: &mut Shard| {
            let now = s.reactor.now();
            s.drives.get(place.drive).faults().iter().map(|planned| snapshot(planned, now)).collect()
        };
        self.shards[place.shard as usize].call(look).ok_or_else(gone)
    }

    /// One more rule for a drive, from now on; the next worker begins with it as well.
    ///
    /// # Errors
    /// Failures may not be injected here, there is no such drive, or the rule cannot be one of it.
    pub fn add_fault(&self, device: &str, rule: FaultRule) -> Result<FaultSnapshot, Refusal> {
        self.allows_faults()?;
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.device_index(device)?;
        let (place, added) = (place(index, self.shards.len()), rule.clone());
        let add = move |s: &mut Shard| {
            let now = s.reactor.now();
            let drive = s.drives.get(place.drive);
            let id = drive.add_fault(now, added).map_err(|why| why.to_string())?;
            let planned = drive.faults().iter().find(|planned| planned.id == id);
            planned.map(|planned| snapshot(planned, now)).ok_or_else(String::new)
        };
        let made = self.shards[place.shard as usize].call(add).ok_or_else(gone)?.map_err(Refusal::Invalid)?;
        self.change(|config| config.faults.push(FaultConfig { device: index, rule }));
        Ok(made)
    }

    /// Takes a rule out; what it was.
    ///
    /// # Errors
    /// There is no such drive, or no such rule.
    pub fn remove_fault(&self, device: &str, id: u32) -> Result<FaultSnapshot, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.device_index(device)?;
        let place = place(index, self.shards.len());
        let remove = move |s: &mut Shard| {
            let now = s.reactor.now();
            s.drives.get(place.drive).remove_fault(id).map(|planned| snapshot(&planned, now))
        };
        let removed = self.shards[place.shard as usize].call(remove).ok_or_else(gone)?;
        let removed = removed.ok_or_else(|| {
            Refusal::NotFound(format!("device \"{device}\" has no rule {id}; weir fault ls shows what there is"))
        })?;
        self.change(|config| {
            let is = |fault: &FaultConfig| fault.device == index && fault.rule == removed.rule;
            let at = config.faults.iter().position(is);
            at.into_iter().for_each(|at| _ = config.faults.remove(at));
        });
        Ok(removed)
    }
}
