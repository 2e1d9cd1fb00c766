//! Changes of a running node are judged before they are made.

use super::{NodeControl, gone};
use crate::directory::place;
use crate::refusal::Refusal;
use crate::shard::Shard;
use std::sync::PoisonError;
use weir_config::admission::{self, Breach};
use weir_config::{Admission, Arbitration, Config, ExportConfig, TenantConfig};

/// What admission says of the tenants, by their places: kept from one change to the next, because it is asked for often.
pub(super) type Said = Vec<(usize, String)>;

/// The drives' arbitration, and the configuration with its tenants and exports.
type Shared<'a> = (&'a [Arbitration], &'a Config);

/// What there is to say of these breaches, and of drives that nothing is known of.
pub(super) fn said(config: &Config, breaches: &[Breach]) -> Said {
    let tenants = &config.tenants;
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

fn judge((arbitration, config): Shared<'_>) -> Vec<Breach> {
    let one = |device: usize| {
        let here: Vec<&TenantConfig> =
            admission::reach(config, device).into_iter().map(|t| &config.tenants[t]).collect();
        admission::breaches(&config.devices[device], &arbitration[device], &here)
    };
    (0..config.devices.len()).flat_map(one).collect()
}

/// Shares of that drive under which everybody would have what he was promised.
fn proposal(config: &Config, arbitration: &[Arbitration], device: &str) -> Option<String> {
    let index = config.devices.iter().position(|d| d.name == device)?;
    let here: Vec<&TenantConfig> = admission::reach(config, index).into_iter().map(|t| &config.tenants[t]).collect();
    admission::proposal(&config.devices[index], &arbitration[index], &here)
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
        Ok(self.config().tenants.iter().zip(live).map(now).collect())
    }

    /// The configuration with these tenants.
    fn with(&self, tenants: Vec<TenantConfig>) -> Config {
        Config { tenants, ..(*self.config()).clone() }
    }

    /// Judges one more tenant.
    ///
    /// # Errors
    /// As [`NodeControl::admit_tenant`].
    pub(super) fn admit_newcomer(
        &self,
        arbitration: &[Arbitration],
        joins: TenantConfig,
        force: bool,
    ) -> Result<Said, Refusal> {
        let before = self.with(self.tenants_now()?);
        let mut after = before.clone();
        after.tenants.push(joins);
        self.admit((arbitration, &before), (arbitration, &after), force)
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
        let before = self.with(self.tenants_now()?);
        let mut after = before.clone();
        changed(&mut after.tenants[index]);
        self.admit((arbitration, &before), (arbitration, &after), force)
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
        let config = self.with(self.tenants_now()?);
        self.admit((before, &config), (after, &config), force)
    }

    /// Judges one more way to a drive.
    ///
    /// # Errors
    /// As [`NodeControl::admit_tenant`].
    pub(super) fn admit_export(
        &self,
        arbitration: &[Arbitration],
        added: &ExportConfig,
        force: bool,
    ) -> Result<Said, Refusal> {
        let before = self.with(self.tenants_now()?);
        let mut after = before.clone();
        after.exports.push(added.clone());
        self.admit((arbitration, &before), (arbitration, &after), force)
    }

    /// What there is to say of things as they are.
    pub(super) fn say(&self, arbitration: &[Arbitration]) -> Result<Said, Refusal> {
        let config = self.with(self.tenants_now()?);
        Ok(said(&config, &judge((arbitration, &config))))
    }

    fn admit(&self, before: Shared<'_>, after: Shared<'_>, force: bool) -> Result<Said, Refusal> {
        let config = after.1;
        let (was, will) = (judge(before), judge(after));
        let fresh: Vec<&Breach> = admission::new(&was, &will).collect();
        if !fresh.is_empty() && !force && config.node.admission == Admission::Enforce {
            let what: Vec<String> = fresh.iter().map(ToString::to_string).collect();
            let fits = fresh.iter().filter_map(|breach| proposal(config, after.0, &breach.device));
            let mut fits: Vec<String> = fits.map(|fits| format!(", or first make room: {fits}")).collect();
            fits.dedup();
            let what = what.join("; ");
            let fits = fits.concat();
            return Err(Refusal::Conflict(format!(
                "{what}; nothing was changed: promise less, or force it (--force){fits}"
            )));
        }
        fresh.iter().for_each(|breach| tracing::warn!("{breach}; admitted all the same"));
        Ok(said(config, &will))
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
