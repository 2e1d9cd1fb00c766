//! Changes of a running node are judged before they are made.

use super::{NodeControl, gone};
use crate::admission::{self, Breach};
use crate::api::Refusal;
use crate::config::{Admission, Arbitration, Config, TenantConfig};
use crate::node::place;
use crate::shard::Shard;
use std::sync::PoisonError;

/// What admission says of the tenants, by their places: kept from one change to the next, because it is asked for often.
pub(super) type Said = Vec<(usize, String)>;

/// What there is to say of these breaches, and of drives that nothing is known of.
pub(super) fn said(config: &Config, breaches: &[Breach], tenants: &[TenantConfig]) -> Said {
    let place = |breach: &Breach| tenants.iter().position(|t| t.name == breach.tenant);
    let mut said: Said = breaches.iter().filter_map(|b| Some((place(b)?, b.to_string()))).collect();
    for (i, device) in config.devices.iter().enumerate().filter(|(_, d)| d.calibration.is_none()) {
        let promised = admission::reach(config, i).into_iter().filter(|t| admission::promises([&tenants[*t]]));
        let device = &device.name;
        said.extend(promised.map(|t| {
            let what = "whether its promises can be kept is unknown: the drive has no calibration";
            (t, format!("tenant {} on {device}: {what}", tenants[t].name))
        }));
    }
    said
}

impl NodeControl {
    /// The tenants as they are now; they are alike on all drives.
    fn tenants_now(&self) -> Result<Vec<TenantConfig>, Refusal> {
        let place = place(0, self.shards.len());
        let look = move |s: &mut Shard| s.drives.get(place.drive).config().tenants.clone();
        let live = self.shards[place.shard as usize].call(look).ok_or_else(gone)?;
        let now = |(config, live): (&TenantConfig, weir_controller::TenantConfig)| TenantConfig {
            class: live.class,
            weight: live.weight,
            floor: live.floor,
            ceiling: live.ceiling,
            sla: live.sla,
            ..config.clone()
        };
        Ok(self.config.tenants.iter().zip(live).map(now).collect())
    }

    fn judge(&self, arbitration: &[Arbitration], tenants: &[TenantConfig]) -> Vec<Breach> {
        let one = |device: usize| {
            let here: Vec<&TenantConfig> =
                admission::reach(&self.config, device).into_iter().map(|t| &tenants[t]).collect();
            admission::breaches(&self.config.devices[device], &arbitration[device], &here)
        };
        (0..self.config.devices.len()).flat_map(one).collect()
    }

    /// Judges a change of one tenant.
    ///
    /// # Errors
    /// It breaks a promise that was not broken before, and is not forced.
    pub(super) fn admit_tenant(
        &self,
        arbitration: &[Arbitration],
        (index, changed): (usize, impl FnOnce(&mut TenantConfig)),
        force: bool,
    ) -> Result<Said, Refusal> {
        let before = self.tenants_now()?;
        let mut after = before.clone();
        changed(&mut after[index]);
        self.admit(&self.judge(arbitration, &before), &self.judge(arbitration, &after), &after, force)
    }

    /// Judges a change of the drives' arbitration.
    ///
    /// # Errors
    /// As [`NodeControl::admit_tenant`].
    pub(super) fn admit_arbitration(
        &self,
        before: &[Arbitration],
        after: &[Arbitration],
        force: bool,
    ) -> Result<Said, Refusal> {
        let tenants = self.tenants_now()?;
        self.admit(&self.judge(before, &tenants), &self.judge(after, &tenants), &tenants, force)
    }

    fn admit(
        &self,
        before: &[Breach],
        after: &[Breach],
        tenants: &[TenantConfig],
        force: bool,
    ) -> Result<Said, Refusal> {
        let fresh: Vec<String> = admission::new(before, after).map(ToString::to_string).collect();
        if !fresh.is_empty() && !force && self.config.node.admission == Admission::Enforce {
            let what = fresh.join("; ");
            return Err(Refusal::Conflict(format!("{what}; nothing was changed: promise less, or force it (--force)")));
        }
        fresh.iter().for_each(|breach| tracing::warn!("{breach}; admitted all the same"));
        Ok(said(&self.config, after, tenants))
    }

    pub(super) fn remember(&self, said: Said) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// What admission says of one tenant.
    pub(super) fn said_of(&self, tenant: usize) -> Vec<String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().filter(|(t, _)| *t == tenant).map(|(_, text)| text.clone()).collect()
    }

    /// What admission says of all.
    pub(super) fn said_of_all(&self) -> Vec<String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().map(|(_, text)| text.clone()).collect()
    }
}
