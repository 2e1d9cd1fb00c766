//! From what a node says of itself, again and again, to pictures: rates are differences.

use super::changes::Changes;
use super::history::{History, Kind};
use super::{
    Board, BoardDemotion, BoardDevice, BoardExport, BoardFlash, BoardLatency, BoardPool, BoardStore, BoardTenant,
    BoardVolume, DoneRates, MOST_ROWS,
};
use crate::pooled::{PoolStatus, VolumeStatus};
use crate::promise::{AttainmentStatus, SlaState};
use crate::store::{StoreClassDemotion, StoreStatus};
use crate::types::{Counters, DeviceStatus, Status, TenantStatus};
use std::collections::HashMap;
use weir_node::events::NodeEvent;
use weir_node::upgrade::UpgradeStatus;

/// By what the history of a node's store is found: it has one.
const STORE: &str = "store";

/// Bytes of a unit of flash.
const UNIT: f64 = 4096.0;

/// All of a node at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Drives, tenants, exports.
    pub status: Status,
    /// Pools.
    pub pools: Vec<PoolStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// The store, or why it does not answer; none without one.
    pub store: Option<Result<StoreStatus, String>>,
    /// The last upgrade.
    pub upgrade: UpgradeStatus,
    /// How many workers have served before this one.
    pub generation: u64,
    /// When it was taken, in milliseconds since 1970-01-01 00:00 UTC.
    pub unix_ms: u64,
    /// The newest events, [`MOST_EVENTS`](super::MOST_EVENTS) at the most.
    pub events: Vec<NodeEvent>,
}

/// What has to be known of the picture before.
#[derive(Debug, Default)]
struct Before {
    at_s: f64,
    io: HashMap<(Kind, String), Counters>,
    flash: HashMap<String, FlashCounts>,
    /// Requests that the store's service had answered.
    requests: Option<u64>,
    /// Blocks and bytes that had gone from each class of the store.
    demoted: HashMap<String, Demoted>,
}

/// What has gone from a class.
#[derive(Clone, Copy, Debug)]
struct Demoted {
    blocks: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct FlashCounts {
    moved: u64,
    erases: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Collector {
    number: u64,
    before: Option<Before>,
    pub(super) history: History,
    changes: Changes,
}

impl Collector {
    /// Something was changed by the API.
    pub(crate) fn changed(&mut self, unix_ms: u64, subject: &str, text: String) {
        self.changes.add(unix_ms, subject, text);
    }

    /// The picture of what was found, which is of later than what was found before.
    pub(crate) fn apply(&mut self, found: &Sample) -> Board {
        let Sample { status, .. } = found;
        let now = status.uptime_s;
        let before = self.before.take();
        let span = before.as_ref().map_or(0.0, |b| (now - b.at_s).max(0.0));
        let looks = Looks { before: before.as_ref(), span };
        self.history.advance(now);
        let devices: Vec<BoardDevice> = status.devices.iter().take(MOST_ROWS).map(|d| looks.device(d)).collect();
        let tenants = looks.tenants(&status.tenants);
        let exports: Vec<BoardExport> = status.exports.iter().take(MOST_ROWS).map(export).collect();
        let store = found.store.as_ref().map(|store| looks.store(store));
        let in_store = found.store.as_ref().and_then(|s| s.as_ref().ok()).map_or(0, |s| s.namespaces.len());
        if span > 0.0 {
            self.record(span, &devices, &tenants, &exports);
            self.record_store(span, store.as_ref());
        }
        self.before = Some(remember(found));
        self.number += 1;
        let shown = |n: usize| n.saturating_sub(MOST_ROWS);
        let lists = [status.devices.len(), status.tenants.len(), status.exports.len(), found.volumes.len()];
        Board {
            number: self.number,
            node: status.node.clone(),
            version: status.version.clone(),
            state: status.state,
            uptime_s: now,
            generation: found.generation,
            span_s: span,
            core_busy_pct: status.shards.iter().map(|s| s.busy_pct).collect(),
            devices,
            tenants,
            volumes: found.volumes.iter().take(MOST_ROWS).map(volume).collect(),
            pools: found.pools.iter().take(MOST_ROWS).map(pool).collect(),
            exports,
            store,
            left_out: lists.into_iter().chain([found.pools.len(), in_store]).map(shown).sum(),
            unix_ms: found.unix_ms,
            events: found.events.clone(),
            changes: self.changes.list(),
            upgrade: found.upgrade.clone(),
        }
    }

    fn record(&mut self, span: f64, devices: &[BoardDevice], tenants: &[BoardTenant], exports: &[BoardExport]) {
        let rates = |r: &DoneRates| [r.iops, r.read_bytes_per_s, r.written_bytes_per_s, r.errors_per_s];
        for device in devices {
            let [iops, read, written, errors] = rates(&device.rates);
            let flash = device.flash;
            let values = [
                iops,
                read,
                written,
                errors,
                device.slots_busy_pct,
                flash.map_or(0.0, |f| f.write_amplification),
                flash.map_or(0.0, |f| f.gc_bytes_per_s),
            ];
            self.history.record(Kind::Device, &device.name, span, &values);
        }
        for tenant in tenants {
            let [iops, read, written, errors] = rates(&tenant.rates);
            let l = tenant.latency.unwrap_or_default();
            let [p50, p99, p999, max] = [l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns].map(|ns| ns as f64);
            self.history.record(Kind::Tenant, &tenant.name, span, &[iops, read, written, errors, p50, p99, p999, max]);
        }
        for export in exports {
            self.history.record(Kind::Export, &export.key(), span, &[f64::from(export.clients)]);
        }
    }

    /// What does not answer has no point.
    fn record_store(&mut self, span: f64, store: Option<&BoardStore>) {
        let Some(store) = store.filter(|store| !store.classes.is_empty()) else { return };
        let values = [store.requests_per_s, store.sessions as f64, store.handles as f64];
        self.history.record(Kind::Store, STORE, span, &values);
        for n in &store.namespaces {
            let left = n.movement.as_ref().map_or(0, |m| m.bytes_left);
            let values = [n.file_bytes, n.free_bytes, n.quarantined_bytes, left].map(|bytes| bytes as f64);
            self.history.record(Kind::StoreNamespace, &n.namespace.to_string(), span, &values);
        }
    }
}

impl BoardExport {
    /// What its history is found by: the drive or volume, and the door.
    pub(crate) fn key(&self) -> String {
        match (self.door.as_str(), self.addresses.first()) {
            ("nvme-tcp", _) | (_, None) => format!("{}@{}", self.of, self.door),
            (_, Some(socket)) => format!("{}@{socket}", self.of),
        }
    }
}

fn store_of(found: &Sample) -> Option<&StoreStatus> {
    found.store.as_ref()?.as_ref().ok()
}

fn demotions(store: &StoreStatus) -> &[StoreClassDemotion] {
    store.demotion.as_ref().map_or(&[], |demotion| &demotion.classes)
}

fn demoted(class: &StoreClassDemotion) -> Demoted {
    Demoted { blocks: class.moved_blocks, bytes: class.moved_bytes }
}

fn remember(found: &Sample) -> Before {
    let Sample { status, .. } = found;
    let io = status.devices.iter().map(|d| ((Kind::Device, d.name.clone()), d.io));
    let flash = |d: &DeviceStatus| {
        let f = d.flash.as_ref()?;
        Some((d.name.clone(), FlashCounts { moved: f.gc.moved_units, erases: f.erases }))
    };
    Before {
        at_s: status.uptime_s,
        io: io.chain(status.tenants.iter().map(|t| ((Kind::Tenant, t.name.clone()), t.io))).collect(),
        flash: status.devices.iter().filter_map(flash).collect(),
        requests: store_of(found).map(|store| store.requests),
        demoted: store_of(found).into_iter().flat_map(demotions).map(|c| (c.class.clone(), demoted(c))).collect(),
    }
}

/// The worst of what the drives of a tenant say.
fn kept(attainment: &[AttainmentStatus]) -> Option<SlaState> {
    let is = |state| attainment.iter().any(|a| a.state == state);
    [SlaState::Missed, SlaState::Met, SlaState::Unjudged].into_iter().find(|state| is(*state))
}

/// Two looks at a node.
struct Looks<'a> {
    before: Option<&'a Before>,
    /// Seconds between them.
    span: f64,
}

impl Looks<'_> {
    fn per_second(&self, now: u64, before: u64) -> f64 {
        if self.span > 0.0 { now.saturating_sub(before) as f64 / self.span } else { 0.0 }
    }

    fn rates(&self, kind: Kind, name: &str, now: &Counters) -> DoneRates {
        let Some(known) = self.before else { return DoneRates::default() };
        // Who has come since counts from nothing, and so do counters that began anew.
        let before = known.io.get(&(kind, name.to_owned())).copied().unwrap_or_default();
        let begun_anew = before.reads > now.reads || before.writes > now.writes || before.others > now.others;
        let before = if begun_anew { Counters::default() } else { before };
        let rate = |of: fn(&Counters) -> u64| self.per_second(of(now), of(&before));
        DoneRates {
            iops: rate(|c| c.reads + c.writes + c.others),
            read_bytes_per_s: rate(|c| c.read_bytes),
            written_bytes_per_s: rate(|c| c.written_bytes),
            errors_per_s: rate(|c| c.errors),
        }
    }

    fn device(&self, d: &DeviceStatus) -> BoardDevice {
        let flash = d.flash.as_ref().map(|f| {
            let counts = FlashCounts { moved: f.gc.moved_units, erases: f.erases };
            let before = self.before.and_then(|b| b.flash.get(&d.name)).copied().unwrap_or(counts);
            BoardFlash {
                write_amplification: f.write_amplification,
                gc_bytes_per_s: self.per_second(counts.moved, before.moved) * UNIT,
                erases_per_s: self.per_second(counts.erases, before.erases),
                wear_min: f.wear.min,
                wear_mean: f.wear.mean,
                wear_max: f.wear.max,
            }
        });
        BoardDevice {
            name: d.name.clone(),
            interface: d.interface.clone(),
            profile: d.profile.clone(),
            capacity_bytes: d.capacity_bytes,
            rates: self.rates(Kind::Device, &d.name, &d.io),
            slots_busy_pct: 100.0 * f64::from(d.slots_busy) / f64::from(d.slots.max(1)),
            queues: d.queues,
            controllers: d.controllers,
            mechanism: d.arbitration.mechanism.name().into(),
            fault: d.fault.clone(),
            link: d.link.as_ref().map(|link| link.state.clone()),
            health: d.health.clone(),
            timing: d.timing.as_ref().map(|t| t.state),
            flash,
        }
    }

    fn store(&self, found: &Result<StoreStatus, String>) -> BoardStore {
        let status = match found {
            Ok(status) => status,
            Err(why) => return BoardStore { fault: Some(why.clone()), ..BoardStore::default() },
        };
        // Another process that serves counts from nothing.
        let before = self.before.and_then(|b| b.requests).unwrap_or(status.requests);
        let before = if before > status.requests { 0 } else { before };
        BoardStore {
            fault: status.trouble.clone(),
            requests_per_s: self.per_second(status.requests, before),
            sessions: status.sessions,
            handles: status.handles,
            services: status.services.clone(),
            classes: status.classes.clone(),
            namespaces: status.namespaces.iter().take(MOST_ROWS).cloned().collect(),
            demotion: demotions(status).iter().map(|class| self.demotion(class)).collect(),
        }
    }

    fn demotion(&self, class: &StoreClassDemotion) -> BoardDemotion {
        let now = demoted(class);
        let before = self.before.and_then(|b| b.demoted.get(&class.class).copied()).unwrap_or(now);
        // The next process that serves counts from nothing.
        let before = if before.blocks > now.blocks { Demoted { blocks: 0, bytes: 0 } } else { before };
        BoardDemotion {
            counts: class.clone(),
            blocks_per_s: self.per_second(now.blocks, before.blocks),
            bytes_per_s: self.per_second(now.bytes, before.bytes),
        }
    }

    fn tenants(&self, all: &[TenantStatus]) -> Vec<BoardTenant> {
        let rates: Vec<DoneRates> = all.iter().map(|t| self.rates(Kind::Tenant, &t.name, &t.io)).collect();
        let bytes = |r: &DoneRates| r.read_bytes_per_s + r.written_bytes_per_s;
        let sum: f64 = rates.iter().map(bytes).sum();
        let one = |(t, rates): (&TenantStatus, &DoneRates)| BoardTenant {
            name: t.name.clone(),
            class: t.class.clone(),
            weight: t.weight,
            rates: *rates,
            share_pct: if sum > 0.0 { 100.0 * bytes(rates) / sum } else { 0.0 },
            queues: t.queues,
            controllers: t.controllers,
            floor: t.floor,
            ceiling: t.ceiling,
            sla: t.sla,
            kept: kept(&t.attainment),
            latency: latency(&t.attainment),
            admission: t.admission.clone(),
        };
        all.iter().zip(&rates).take(MOST_ROWS).map(one).collect()
    }
}

/// The longest of the newest periods of a tenant's drives.
fn latency(attainment: &[AttainmentStatus]) -> Option<BoardLatency> {
    let longest = |a: BoardLatency, b: BoardLatency| BoardLatency {
        p50_ns: a.p50_ns.max(b.p50_ns),
        p99_ns: a.p99_ns.max(b.p99_ns),
        p999_ns: a.p999_ns.max(b.p999_ns),
        max_ns: a.max_ns.max(b.max_ns),
    };
    let of = |a: &AttainmentStatus| {
        let p = a.last?;
        Some(BoardLatency { p50_ns: p.p50_ns, p99_ns: p.p99_ns, p999_ns: p.p999_ns, max_ns: p.max_ns })
    };
    attainment.iter().filter_map(of).reduce(longest)
}

fn export(e: &crate::types::ExportStatus) -> BoardExport {
    BoardExport {
        of: e.volume.clone().unwrap_or_else(|| e.device.clone()),
        door: e.door.clone(),
        addresses: e.addresses.clone(),
        tenant: e.tenant.clone(),
        clients: e.clients,
    }
}

fn volume(v: &VolumeStatus) -> BoardVolume {
    BoardVolume {
        name: v.name.clone(),
        tenant: v.tenant.clone(),
        pool: v.pool.clone(),
        size_bytes: v.size_bytes,
        drives: v.drives.clone(),
        failing_bytes: v.missing_bytes + v.replaced_bytes,
        exports: v.exports.len(),
    }
}

fn pool(p: &PoolStatus) -> BoardPool {
    BoardPool {
        name: p.name.clone(),
        size_bytes: p.size_bytes,
        free_bytes: p.free_bytes,
        drives: p.drives.len(),
        lost: p.lost.len(),
        fault: p.fault.clone(),
    }
}
