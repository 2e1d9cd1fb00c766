//! Pools and volumes, as the API asks for them.

use super::NodeControl;
use crate::api::{PoolStatus, Refusal, VolumeAdd, VolumeExport, VolumePatch, VolumeStatus};
use crate::pool::volumes::door;
use std::sync::PoisonError;

impl NodeControl {
    pub(super) fn pool_statuses(&self) -> Result<Vec<PoolStatus>, Refusal> {
        self.volumes.pools(&self.config())
    }

    pub(super) fn volume_statuses(&self) -> Result<Vec<VolumeStatus>, Refusal> {
        self.volumes.list(&self.config())
    }

    pub(super) fn create_volume(&self, add: &VolumeAdd) -> Result<VolumeStatus, Refusal> {
        // A tenant does not go while it gets a volume.
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let tenant = match &add.tenant {
            Some(name) => name.clone(),
            None => config.tenants[self.only_tenant()?].name.clone(),
        };
        self.volumes.create(&config, &add.name, &tenant, add.size_bytes, add.pool.as_deref())
    }

    pub(super) fn change_volume(&self, name: &str, patch: &VolumePatch) -> Result<VolumeStatus, Refusal> {
        let config = self.config();
        match (patch.size_bytes, &patch.name) {
            (Some(_), Some(_)) => Err(Refusal::Invalid("size_bytes, name: change one after the other".into())),
            (Some(bytes), None) => self.volumes.resize(&config, name, bytes),
            (None, Some(to)) => self.volumes.rename(&config, name, to),
            (None, None) => self.volumes.one(&config, name),
        }
    }

    pub(super) fn delete_volume(&self, name: &str) -> Result<VolumeStatus, Refusal> {
        self.volumes.delete(&self.config(), name)
    }

    pub(super) fn export_volume(&self, name: &str, export: &VolumeExport) -> Result<VolumeStatus, Refusal> {
        let _turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.config();
        let tenant = self.volumes.one(&config, name)?.tenant;
        let tenant = config.tenants.iter().position(|t| t.name == tenant && !t.is_gone());
        let door = door(&export.door, tenant.unwrap_or(0))?;
        let taken = |path| config.exports.iter().any(|e| e.door.socket().is_some_and(|(other, _)| other == path));
        if let Some((path, _)) = door.socket().filter(|(path, _)| taken(*path)) {
            return Err(Refusal::Conflict(format!("{} is an export already; choose another path", path.display())));
        }
        self.volumes.export(&config, name, door)
    }
}
