//! Pools and volumes of a running node.

use crate::args::{self, PoolCommand, VolumeCommand, VolumePlace};
use crate::client::{ApiClient, in_url};
use crate::failure::CommandFailure;
use crate::image::{self, NewVolume};
use crate::node_commands::absolute;
use crate::output::{self, Table};
use weir_api::{
    PoolDriveAdd, PoolDriveReplace, PoolScrub, PoolStatus, VolumeAdd, VolumeClone, VolumeExport, VolumePatch,
    VolumeSnapshotAdd, VolumeStatus,
};
use weir_node::NO_POOL;
use weir_units::Bytes;

pub fn pool(client: &ApiClient, args: &args::PoolArgs) -> Result<(), CommandFailure> {
    let pools: Vec<PoolStatus> = client.get("/v1/pools")?;
    match &args.command {
        PoolCommand::Ls => output::list(&pools, |p| p.name.clone(), |pools| pools_table(pools).shown()),
        PoolCommand::Add { device, pool } => {
            let path = format!("/v1/pools/{}/drives", in_url(meant(&pools, pool.as_deref())?));
            show(&client.create(&path, &PoolDriveAdd { device: device.clone() })?)
        }
        PoolCommand::Remove { device, pool } => {
            let pool = in_url(meant(&pools, pool.as_deref())?);
            show(&client.delete(&format!("/v1/pools/{pool}/drives/{}", in_url(device)))?)
        }
        PoolCommand::Offline { device, pool } => {
            let pool = in_url(meant(&pools, pool.as_deref())?);
            show(&client.post(&format!("/v1/pools/{pool}/drives/{}/offline", in_url(device)))?)
        }
        PoolCommand::Online { device, pool } => {
            let pool = in_url(meant(&pools, pool.as_deref())?);
            show(&client.post(&format!("/v1/pools/{pool}/drives/{}/online", in_url(device)))?)
        }
        PoolCommand::Scrub { repair, stop, pool } => {
            let path = format!("/v1/pools/{}/scrub", in_url(meant(&pools, pool.as_deref())?));
            match stop {
                true => show(&client.delete(&path)?),
                false => show(&client.create(&path, &PoolScrub { repair: *repair })?),
            }
        }
        PoolCommand::Replace { empty: Some(name), .. } => {
            let emptied: VolumeStatus = client.post(&format!("/v1/volumes/{}/empty", in_url(name)))?;
            output::one(&emptied, &emptied.name, |v| volumes_table(std::slice::from_ref(v)).render())
        }
        PoolCommand::Replace { old, new, pool, .. } => {
            let path = format!("/v1/pools/{}/replace", in_url(meant(&pools, pool.as_deref())?));
            let (lost, device) = (old.clone().unwrap_or_default(), new.clone().unwrap_or_default());
            show(&client.create(&path, &PoolDriveReplace { lost, device })?)
        }
        PoolCommand::Status { name, check } => {
            let chosen: Vec<&PoolStatus> =
                pools.iter().filter(|p| name.as_ref().is_none_or(|n| *n == p.name)).collect();
            if let (Some(name), true) = (name, chosen.is_empty()) {
                let names: Vec<&str> = pools.iter().map(|p| p.name.as_str()).collect();
                let there = if names.is_empty() { "no pool at all".to_string() } else { names.join(", ") };
                return Err(CommandFailure::new(format!("there is no pool \"{name}\"; there is {there}")));
            }
            let volumes: Vec<VolumeStatus> = client.get("/v1/volumes")?;
            let text = |chosen: &[&PoolStatus]| {
                chosen.iter().map(|pool| described(pool, &volumes)).collect::<Vec<_>>().join("\n")
            };
            output::list(&chosen, |pool| pool.name.clone(), text)?;
            match chosen.iter().find(|pool| *check && !is_sound(pool, &volumes)) {
                Some(pool) => Err(CommandFailure::new(format!("pool {} is not sound", pool.name))),
                None => Ok(()),
            }
        }
    }
}

fn show(pool: &PoolStatus) -> Result<(), CommandFailure> {
    output::one(pool, &pool.name, |pool| described(pool, &[]))
}

fn has_lost(volume: &VolumeStatus) -> bool {
    volume.missing_bytes + volume.replaced_bytes > 0
}

fn is_sound(pool: &PoolStatus, volumes: &[VolumeStatus]) -> bool {
    let alone = |v: &VolumeStatus| v.alone_bytes + v.rebuilding_bytes > 0;
    let concerned = volumes.iter().any(|v| v.pool == pool.name && (has_lost(v) || alone(v)));
    pool.fault.is_none() && pool.lost.is_empty() && !concerned
}

/// What a pool serves without, and whom that concerns.
fn losses(pool: &PoolStatus, volumes: &[VolumeStatus]) -> String {
    let mut out = String::new();
    for d in &pool.lost {
        let size = Bytes(d.size_bytes);
        out += &format!("DEGRADED drive {} is lost (number {}, {}, {size})\n", d.device, d.number, d.uuid);
    }
    for v in volumes.iter().filter(|v| v.pool == pool.name && has_lost(v)) {
        let (missing, replaced) = (Bytes(v.missing_bytes), Bytes(v.replaced_bytes));
        out += &match v.missing_bytes {
            0 => format!(
                "LOST volume {}: {replaced} fail until it is given up (weir pool replace --empty {})\n",
                v.name, v.name
            ),
            _ => format!("LOST volume {}: {missing} lie on a lost drive, and fail\n", v.name),
        };
    }
    for v in volumes.iter().filter(|v| v.pool == pool.name) {
        if v.alone_bytes > 0 {
            let alone = Bytes(v.alone_bytes);
            out += &format!("ONE COPY volume {}: the second one of {alone} lies on a lost drive\n", v.name);
        }
        if v.rebuilding_bytes > 0 {
            let (left, all) = (v.rebuilding_bytes, v.size_bytes.max(1));
            let done = 100 - (u128::from(left) * 100).div_ceil(u128::from(all)).min(100);
            out += &format!(
                "REBUILDING volume {}: {} of its second copy are left ({done} % are whole)\n",
                v.name,
                Bytes(left)
            );
        }
    }
    out
}

/// The pool of that name, or the only one.
fn meant<'a>(pools: &'a [PoolStatus], name: Option<&'a str>) -> Result<&'a str, CommandFailure> {
    match (name, pools) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(&only.name),
        (None, []) => Err(CommandFailure::new(NO_POOL)),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|p| p.name.as_str()).collect();
            Err(CommandFailure::new(format!("there are several pools; name one of {} (--pool)", names.join(", "))))
        }
    }
}

fn pools_table(pools: &[PoolStatus]) -> Table {
    let mut table = Table::new(&["NAME", ">SIZE", ">FREE", ">VOLUMES", "DRIVES", "~UUID"]);
    for p in pools {
        table.row([
            p.name.clone(),
            Bytes(p.size_bytes).to_string(),
            Bytes(p.free_bytes).to_string(),
            p.volumes.to_string(),
            p.drives.iter().map(|d| d.device.as_str()).collect::<Vec<_>>().join(" "),
            p.uuid.clone(),
        ]);
    }
    table
}

fn described(pool: &PoolStatus, volumes: &[VolumeStatus]) -> String {
    let (size, free) = (Bytes(pool.size_bytes), Bytes(pool.free_bytes));
    let mut out = format!("pool {} ({})\n{size}, {free} free, {} volumes\n", pool.name, pool.uuid, pool.volumes);
    if let Some(fault) = &pool.fault {
        out += &format!("FAULT {fault}\n");
    }
    out += &losses(pool, volumes);
    if let Some(scrub) = &pool.scrub {
        let state = if scrub.running { "is under way" } else { "has ended" };
        let [compared, differing, failed] =
            [scrub.compared_bytes, scrub.differing_bytes, scrub.failed_bytes].map(Bytes);
        out += &format!("SCRUB {state}: {compared} compared, {differing} differ, {failed} could not be read\n");
    }
    let mut table = Table::new(&[">NUMBER", "DEVICE", ">SIZE", ">FREE", "~>LARGEST FREE", "~>EMPTYING", "~UUID"]);
    for d in &pool.drives {
        table.row([
            d.number.to_string(),
            d.device.clone(),
            Bytes(d.size_bytes).to_string(),
            Bytes(d.free_bytes).to_string(),
            Bytes(d.largest_free_bytes).to_string(),
            Bytes(d.emptying_bytes).to_string(),
            d.uuid.clone(),
        ]);
    }
    out + &table.shown()
}

pub fn volume(client: &ApiClient, args: &args::Volume, json: bool) -> Result<(), CommandFailure> {
    let at = |name: &str| format!("/v1/volumes/{}", in_url(name));
    let changed: VolumeStatus = match &args.command {
        VolumeCommand::Ls => {
            let volumes: Vec<VolumeStatus> = client.get("/v1/volumes")?;
            return output::list(&volumes, |v| v.name.clone(), |volumes| volumes_table(volumes).shown());
        }
        VolumeCommand::Create { name, size, place } => {
            let VolumePlace { tenant, pool, copies } = place.clone();
            client.create("/v1/volumes", &VolumeAdd { name: name.clone(), tenant, size_bytes: *size, pool, copies })?
        }
        VolumeCommand::Resize { name, size, shrink } => {
            client.patch(&at(name), &VolumePatch { size_bytes: Some(*size), shrink: *shrink, name: None })?
        }
        VolumeCommand::Rename { name, to } => {
            client.patch(&at(name), &VolumePatch { name: Some(to.clone()), ..VolumePatch::default() })?
        }
        VolumeCommand::Snapshot { snapshot } => {
            let Some((volume, name)) = snapshot.split_once('@') else {
                let what = format!(
                    "\"{snapshot}\" names no snapshot: it is called VOLUME@NAME, {snapshot}@monday for example"
                );
                return Err(CommandFailure::new(what));
            };
            client.create(&format!("{}/snapshots", at(volume)), &VolumeSnapshotAdd { name: name.into() })?
        }
        VolumeCommand::Clone { snapshot, name, tenant } => {
            let (name, tenant) = (name.clone(), tenant.clone());
            client.create(&format!("{}/clones", at(snapshot)), &VolumeClone { name, tenant })?
        }
        VolumeCommand::Rollback { snapshot } => client.post(&format!("{}/rollback", at(snapshot)))?,
        VolumeCommand::Export { name, file, force } => return image::export(client, name, (file, *force), json),
        VolumeCommand::Import { file, name, size, place } => {
            return image::import(client, file, NewVolume { name, size: *size, place }, json);
        }
        VolumeCommand::Delete { name } => {
            let gone: VolumeStatus = client.delete(&at(name))?;
            return output::one(&gone, name, |_| format!("{name}: deleted\n"));
        }
    };
    output::one(&changed, &changed.name, |v| volumes_table(std::slice::from_ref(v)).shown())
}

/// Exports a volume; a socket's path is made absolute here, the node's folder is not ours.
pub fn export(
    client: &ApiClient,
    name: &str,
    (door, max_controllers): (&str, Option<u32>),
) -> Result<(), CommandFailure> {
    let door = match door.split_once(':') {
        Some((kind, path)) if !path.is_empty() => format!("{kind}:{}", absolute(std::path::Path::new(path))?),
        _ => door.to_string(),
    };
    let body = VolumeExport { door, max_controllers, image: None };
    let volume: VolumeStatus = client.create(&format!("/v1/volumes/{}/exports", in_url(name)), &body)?;
    output::one(&volume, &volume.name, |v| volumes_table(std::slice::from_ref(v)).shown())
}

fn volumes_table(volumes: &[VolumeStatus]) -> Table {
    let mut table = Table::new(&["NAME", "TENANT", ">SIZE", ">OWN", "POOL", "~DRIVES", "~>EXTENTS", "EXPORTS", "~NQN"]);
    for v in volumes {
        table.row([
            v.name.clone(),
            v.tenant.clone(),
            Bytes(v.size_bytes).to_string(),
            Bytes(v.own_bytes).to_string(),
            v.pool.clone(),
            v.drives.join(" "),
            v.extents.to_string(),
            if v.exports.is_empty() { "-".to_string() } else { v.exports.join(" ") },
            v.nqn.clone().unwrap_or_else(|| "-".to_string()),
        ]);
    }
    table
}
