//! The file of `weir plan`.

use super::tenant::PlannedTenant;
use crate::scenario::{self, MAX_TIME};
use weir_config::read::{Section, integer, time};
use weir_config::{self as config, ConfigError, DeviceConfig, Document, calibration};
use weir_plan::DriveModel;
use weir_units::{Bytes, Nanos};

/// A plan to be made.
#[derive(Clone, Debug)]
pub struct PlanFile {
    /// The drive, and how it arbitrates.
    pub device: DeviceConfig,
    /// What was measured of it, and in which file that stands.
    pub calibration: Option<(String, DriveModel)>,
    /// Who is to share it.
    pub members: Vec<PlannedTenant>,
    /// Of the first simulation.
    pub seed: u64,
    /// Virtual time of a simulation; as long as the bounds need if absent.
    pub time: Option<Nanos>,
}

impl PlanFile {
    /// Reads a document, and the tenants of others that are added to its own.
    ///
    /// # Errors
    /// Everything that is wrong, with file, line and key.
    pub fn read(document: &Document, added: &[Document]) -> Result<PlanFile, ConfigError> {
        let count = |more: &Document| more.read(config::count_tenants);
        let newcomers: usize = added.iter().map(count).sum::<Result<_, _>>()?;
        let mut file = document
            .read(|root| read(root, document, newcomers))?
            .ok_or_else(|| unreachable!("no fault, so a plan"))?;
        for more in added {
            let members = more.read(|root| {
                let members = members(root);
                if members.is_empty() && root.sink().is_clean() {
                    root.fault("tenant", "missing; a file that is added has [[tenant]] and nothing else");
                }
                root.finish();
                members
            })?;
            file.members.extend(members);
        }
        Ok(file)
    }
}

fn read(root: &Section<'_>, document: &Document, newcomers: usize) -> Option<PlanFile> {
    let (device, calibration) = drive(root, document, newcomers);
    let device = scenario::precondition(root, device);
    let members = members(root);
    if members.is_empty() && root.sink().is_clean() {
        root.fault("tenant", "missing; add a [[tenant]] with class, demand and sla");
    }
    let seed = root.or("seed", 1, integer(0..=i64::MAX as u64));
    let length = root.get("time", time(MAX_TIME));
    if length.is_some_and(|length| length < SHORTEST) {
        root.fault("time", format_args!("too short to see anything; at least {SHORTEST}"));
    }
    root.finish();
    Some(PlanFile { device: device?, calibration, members, seed, time: length })
}

/// The drive as it arbitrates, and what was measured of it where a calibration says so: `[[device]]`, `calibration`, or both.
fn drive(
    root: &Section<'_>,
    document: &Document,
    newcomers: usize,
) -> (Option<DeviceConfig>, Option<(String, DriveModel)>) {
    let whole = calibration::of_device(root, document.base());
    let device = if root.has("calibration") && !root.has("device") {
        DeviceConfig::from_query("null", "").map_err(|e| root.fault("calibration", e)).ok()
    } else {
        scenario::only_device(root, document, config::count_tenants(root) + newcomers)
    };
    let Some(mut device) = device else { return (None, None) };
    if let Some(measured) = whole.as_ref().and_then(|file| file.calibration.slots) {
        let is_written = root.tables("device").iter().any(|(_, keys)| keys.iter().any(|entry| entry.key == "slots"));
        if is_written && device.slots != measured {
            let what = format!("it was measured with slots = {measured}, and the [[device]] has {}", device.slots);
            root.fault("calibration", format_args!("{what}; write slots = {measured}, or calibrate again"));
        }
        device.slots = measured;
    }
    let Some(file) = whole.or(device.calibration.take()) else {
        let timeless =
            "missing, and nothing says how fast the drive is; write it, a profile, or calibration = \"FILE\"";
        return (scenario::simulable(root, device, timeless), None);
    };
    let drive = match file.calibration.drive(device.slots.into(), device.slot_bytes) {
        Ok(drive) => Some((file.path.display().to_string(), drive)),
        Err(what) => {
            root.fault("calibration", what);
            None
        }
    };
    // Of the measured drive only arbitration and slots are taken from the table; its inside is the calibration.
    (device.latency, device.flash) = (Nanos(0), None);
    device.capacity = device.capacity.or(Some(STAND_IN));
    (Some(device), drive)
}

/// Bytes of a drive that a calibration stands for: how many it has does not count there.
const STAND_IN: Bytes = Bytes(1 << 30);
/// A simulation lasts so long at the least.
const SHORTEST: Nanos = Nanos::from_millis(1);

fn members(root: &Section<'_>) -> Vec<PlannedTenant> {
    let lines: Vec<u32> = root.tables("tenant").iter().map(|(line, _)| *line).collect();
    let read = config::tenants(root);
    if !root.sink().is_clean() {
        return Vec::new();
    }
    let mut members = Vec::new();
    for (tenant, line) in read.into_iter().zip(lines) {
        let key = |key: &str| format!("tenant.{}.{key}", tenant.name);
        let note = |what: &str, text: &str| root.sink().note(line, &key(what), text);
        let Some(demand) = tenant.demand.clone() else {
            note(
                "demand",
                "missing; say what the tenant asks for, as in { rw = \"randread\", bs = \"4KiB\", qd = 16 }",
            );
            continue;
        };
        let sla = tenant.sla;
        let size = demand.size();
        let wanted = sla.rates.iops.map(|n| n as f64).into_iter();
        let wanted = wanted.chain(sla.rates.bandwidth.map(|b| b.get() as f64 / size)).fold(0.0, f64::max);
        if wanted > demand.offered() * (1.0 + 1e-6) {
            note("sla", "promises a rate that the tenant does not ask for; lower it, or raise the demand");
        }
        members.push(PlannedTenant { demand, sla, tenant: scenario::tenant(tenant) });
    }
    members
}
