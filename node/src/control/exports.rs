//! Exports that come and go while the node runs: drives on vfio-user sockets.

use super::{NodeControl, gone};
use crate::change::NewExport;
use crate::directory::place;
use crate::node::vfio_user_export;
use crate::refusal::Refusal;
use crate::snapshot::ExportSnapshot;
use std::path::PathBuf;
use std::sync::PoisonError;
use weir_config::{ClassFrom, DoorConfig, ExportConfig};

impl NodeControl {
    /// A drive on one more vfio-user socket, while I/O runs.
    ///
    /// # Errors
    /// What of it is not there, not allowed or taken.
    pub fn add_export(&self, export: &NewExport) -> Result<ExportSnapshot, Refusal> {
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, path) = (self.config(), PathBuf::from(&export.socket));
        let device = self.device_index(&export.device)?;
        if let Some(pool) = self.volumes.pool_of(device) {
            let what = format!("{} is a drive of pool {pool}; export its volumes (weir export volume)", export.device);
            return Err(Refusal::Conflict(what));
        }
        let tenant = match &export.tenant {
            Some(name) => self.tenant_index(name)?,
            None => self.only_tenant()?,
        };
        let class_from = export.class_from;
        if class_from == ClassFrom::Cattr {
            return Err(Refusal::Invalid("class_from: tenant, qprio or peer is allowed at a vfio-user socket".into()));
        }
        if !path.is_absolute() {
            return Err(Refusal::Invalid(format!("socket: {} is not an absolute path", path.display())));
        }
        let volumes = self.volumes.export_statuses()?;
        let taken = volumes.iter().any(|e| e.addresses.contains(&export.socket));
        if taken || config.exports.iter().any(|e| e.door.socket().is_some_and(|(taken, _)| taken == path)) {
            return Err(Refusal::Conflict(format!("{} is an export already; choose another path", path.display())));
        }
        let door = DoorConfig::VfioUser { path: path.clone(), tenant, doorbells: export.doorbells };
        let added = ExportConfig { device, door, class_from, queues: config.devices[device].queues, read_only: false };
        let said = self.admit_export(&turn, &added, export.force)?;
        let place = place(device, self.shards.len());
        let settings = vfio_user_export(&config, &added, place).expect("it is one of that door");
        let open = move |s: &mut crate::shard::Shard| s.with_doors(|doors, cx| doors.vfio_user.export(settings, cx));
        let opened = self.shards[place.shard as usize].call(open).ok_or_else(gone)?;
        opened.map_err(|e| Refusal::Conflict(e.to_string()))?;
        self.change(|config| config.exports.push(added));
        self.remember(said);
        drop(turn);
        self.export_at(&path)
    }

    /// Ends the export of a drive at a vfio-user socket, or one of a volume (a socket, or `nvme-tcp:VOLUME`), and its client's connection;
    /// the answer is what it was.
    ///
    /// # Errors
    /// There is none, or it stays as long as the node runs.
    pub fn remove_export(&self, socket: &str) -> Result<ExportSnapshot, Refusal> {
        let turn = self.arbitration.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, path) = (self.config(), PathBuf::from(socket));
        if let Some(ended) = self.volumes.unexport(socket)? {
            self.volume_unexported(socket);
            return Ok(ended);
        }
        let before = self.export_at(&path)?;
        let is = |e: &ExportConfig| e.door.socket().is_some_and(|(there, _)| there == path);
        let export = config.exports.iter().find(|e| is(e) && matches!(e.door, DoorConfig::VfioUser { .. }));
        let Some(export) = export else {
            let what = format!("{socket} is an export by {}, which stays as long as the node runs", before.door);
            return Err(Refusal::Conflict(what));
        };
        let at = path.clone();
        let close = move |s: &mut crate::shard::Shard| s.with_doors(|doors, cx| doors.vfio_user.unexport(&at, cx));
        let place = place(export.device, self.shards.len());
        self.shards[place.shard as usize].call(close).ok_or_else(gone)?;
        self.change(|config| config.exports.retain(|e| !is(e)));
        self.remember(self.say(&turn)?);
        drop(turn);
        Ok(before)
    }

    /// The tenant of an export that names none.
    pub(super) fn only_tenant(&self) -> Result<usize, Refusal> {
        let config = self.config();
        let mut there = config.tenants.iter().enumerate().filter(|(_, t)| !t.is_gone());
        match (there.next(), there.next()) {
            (Some((only, _)), None) => Ok(only),
            _ => Err(Refusal::Invalid("tenant: there are several; name one".into())),
        }
    }

    /// The export at a socket.
    fn export_at(&self, socket: &std::path::Path) -> Result<ExportSnapshot, Refusal> {
        let statuses = self.exports()?;
        let config = self.config();
        let at = config.exports.iter().position(|e| e.door.socket().is_some_and(|(path, _)| path == socket));
        let found = at.and_then(|at| statuses.into_iter().nth(at));
        found.ok_or_else(|| {
            let sockets = config.exports.iter().filter_map(|e| e.door.socket());
            let there: Vec<String> = sockets.map(|(path, _)| path.display().to_string()).collect();
            let there = if there.is_empty() { "no socket at all".to_owned() } else { there.join(", ") };
            Refusal::NotFound(format!("there is no export at {}; there is {there}", socket.display()))
        })
    }
}
