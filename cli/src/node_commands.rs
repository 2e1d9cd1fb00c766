//! Commands that ask or change a running node.

use crate::args::{self, DeviceCommand, DeviceSet, ExportCommand, TenantCommand};
use crate::client::{ApiClient, in_url};
use crate::failure::CommandFailure;
use crate::output::{self, Table};
use crate::report::flash_text;
use crate::service_levels;
use crate::timing;
use std::time::{Duration, Instant};
use weir_api::{
    AnaPatch, DevicePatch, DeviceStats, DeviceStatus, ExportAdd, ExportStatus, LinkStatus, PowerCutStatus, SharesPatch,
    State, Status, TenantAdd, TenantPatch, TenantStatus,
};
use weir_config::{Arbitration, ClassFrom, Doorbells, Mechanism};
use weir_units::{Bytes, Nanos, parse};

/// A drain that takes longer than this is worth a word.
const DRAIN: Duration = Duration::from_secs(60);

pub fn status(client: &ApiClient) -> Result<(), CommandFailure> {
    let status: Status = client.get("/v1/status")?;
    output::one(&status, &status.node, describe)
}

/// The whole of `weir status`.
pub fn describe(status: &Status) -> String {
    let state = match status.state {
        State::Serving => "serving",
        State::Draining => "draining",
    };
    let up = uptime(status.uptime_s);
    let mut out = format!("node {}  {state} for {up}  process {}  weir {}\n", status.node, status.pid, status.version);
    let cores: Vec<String> = status.shards.iter().map(|s| format!("{} {:.0}% busy", s.core, s.busy_pct)).collect();
    let poll = if status.shards.iter().any(|s| s.poll) { " (polling)" } else { "" };
    out += &format!("cores {}{poll}  api {}\n", cores.join(", "), status.api.join(" "));
    for (title, table) in [
        ("devices", devices_text(&status.devices)),
        ("tenants", tenants_table(&status.tenants).shown()),
        ("exports", exports_table(&status.exports).shown()),
    ] {
        out += &format!("\n{title}\n{table}");
    }
    out
}

fn uptime(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

pub fn device(client: &ApiClient, args: &args::DeviceArgs, json: bool) -> Result<(), CommandFailure> {
    match &args.command {
        DeviceCommand::Ls { pci: false } => {
            let devices: Vec<DeviceStatus> = client.get("/v1/devices")?;
            output::list(&devices, |d| d.name.clone(), devices_text)
        }
        DeviceCommand::Stats(args) => {
            let path = format!("/v1/devices/{}/stats", in_url(&args.name));
            let stats: DeviceStats =
                if args.reset { client.post(&format!("{path}/reset"))? } else { client.get(&path)? };
            if json { output::json(&stats) } else { output::text(&timing::describe(&stats)) }
        }
        DeviceCommand::Health { name } => {
            let device: DeviceStatus = client.get(&format!("/v1/devices/{}", in_url(name)))?;
            crate::drive_health::print(&device, json)
        }
        DeviceCommand::PowerCut { name } => {
            let cut: PowerCutStatus = client.post(&format!("/v1/devices/{}/power-cut", in_url(name)))?;
            if json { output::json(&cut) } else { output::text(&power_cut(&cut)) }
        }
        // These need no node: `main` has them answered.
        DeviceCommand::Ls { pci: true } => crate::pci_drives::list(json),
        DeviceCommand::Bind { address } => crate::pci_drives::bind(*address, json),
        DeviceCommand::Unbind { address } => crate::pci_drives::unbind(*address, json),
        DeviceCommand::Profiles { name, quirks } => crate::profiles::run(name.as_deref(), *quirks, json),
        DeviceCommand::FirmwareImage { revision, payload, out } => {
            crate::firmware::run(revision, payload.as_deref(), out, json)
        }
        DeviceCommand::Set(set) => {
            let patch = device_patch(set).map_err(CommandFailure::usage)?;
            let device: DeviceStatus = client.patch(&format!("/v1/devices/{}", in_url(&set.name)), &patch)?;
            if json {
                return output::json(&device);
            }
            let (size, shares) = (Bytes(device.capacity_bytes), arbitration(&device.arbitration));
            let said = if set.force { admission(client)? } else { String::new() };
            output::text(&format!("{}: {size}, {shares}\n{said}", device.name))
        }
    }
}

/// What admission says of all tenants, a line each.
fn admission(client: &ApiClient) -> Result<String, CommandFailure> {
    let tenants: Vec<TenantStatus> = client.get("/v1/tenants")?;
    Ok(tenants.iter().flat_map(|t| &t.admission).map(|line| format!("{line}\n")).collect())
}

fn power_cut(cut: &PowerCutStatus) -> String {
    let lost = match cut.lost_units {
        0 => "nothing was lost".to_string(),
        units => format!("{} writes of {units} units of 4 KiB are gone", cut.lost_writes),
    };
    let rebuild = match cut.pages_read {
        0 => String::new(),
        pages => format!("; the map is found again from {pages} pages in {:.1} ms", cut.rebuild_ns as f64 / 1e6),
    };
    format!("{}: {lost}{rebuild}; unsafe shutdowns so far: {}\n", cut.name, cut.unsafe_shutdowns)
}

fn device_patch(set: &DeviceSet) -> Result<DevicePatch, String> {
    let burst = match set.burst.as_deref() {
        None => None,
        Some("none") => Some(None),
        Some(text) => match text.parse::<u32>() {
            Ok(n) if n.is_power_of_two() && n <= 64 => Some(Some(n.trailing_zeros() as u8)),
            _ => return Err(format!("--burst: \"{text}\": 1, 2, 4, 8, 16, 32, 64 or none is allowed")),
        },
    };
    let weight = |t: &str| t.parse::<u16>().map_err(|_| format!("--weights: \"{t}\" is not a number from 1 to 256"));
    let quantum = |t: &str| {
        let bytes = parse::bytes(t).map_err(|e| format!("--quanta: {e}"))?;
        u32::try_from(bytes.0).map_err(|_| format!("--quanta: {bytes} is out of range; 4KiB to 1GiB is allowed"))
    };
    let capacity = set.capacity.as_deref().map(parse::bytes).transpose().map_err(|e| format!("--capacity: {e}"))?;
    let capacity = capacity.map(|bytes| bytes.0);
    let patch = DevicePatch {
        mechanism: set.arbitration.map(Mechanism::from),
        weights: three(set.weights.as_deref(), "--weights", weight)?,
        burst,
        quanta: three(set.quanta.as_deref(), "--quanta", quantum)?,
        capacity_bytes: capacity,
        ana: set.ana.map(|state| AnaPatch { state: state.into(), host: set.ana_host.clone(), port: set.ana_port }),
        spare_percent: set.spare,
        force: set.force,
    };
    patch.check().map_err(|e| format!("--{e}"))?;
    Ok(patch)
}

/// `high:medium:low`; an empty place leaves that class as it is.
fn three<T>(
    text: Option<&str>,
    option: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<SharesPatch<T>>, String> {
    let Some(text) = text else { return Ok(None) };
    let parts: Vec<&str> = text.split(':').collect();
    let [high, medium, low] = parts[..] else {
        return Err(format!("{option}: \"{text}\" is not three values high:medium:low"));
    };
    let part = |t: &str| if t.is_empty() { Ok(None) } else { read(t).map(Some) };
    Ok(Some(SharesPatch { high: part(high)?, medium: part(medium)?, low: part(low)? }))
}

pub fn tenant(client: &ApiClient, args: &args::TenantArgs) -> Result<(), CommandFailure> {
    match &args.command {
        TenantCommand::Ls => {
            let tenants: Vec<TenantStatus> = client.get("/v1/tenants")?;
            output::list(&tenants, |t| t.name.clone(), |tenants| tenants_table(tenants).shown())
        }
        TenantCommand::Set(set) => {
            let tenant: TenantStatus =
                client.patch(&format!("/v1/tenants/{}", in_url(&set.name)), &service_levels::patch(&set.share))?;
            output::one(&tenant, &tenant.name, promised)
        }
        TenantCommand::Add(add) => {
            let TenantPatch { class, weight, floor, ceiling, sla, force } = service_levels::patch(&add.share);
            let (name, hosts) = (add.name.clone(), add.hosts.clone());
            let body = TenantAdd { name, hosts, class, weight, floor, ceiling, sla, force };
            let tenant: TenantStatus = client.create("/v1/tenants", &body)?;
            output::one(&tenant, &tenant.name, promised)
        }
        TenantCommand::Rm { name } => {
            let tenant: TenantStatus = client.delete(&format!("/v1/tenants/{}", in_url(name)))?;
            output::one(&tenant, &tenant.name, |tenant| format!("{}: removed\n", tenant.name))
        }
    }
}

/// A tenant's share and promises, and what admission says of them.
fn promised(tenant: &TenantStatus) -> String {
    let promises = service_levels::text(tenant);
    let said: String = tenant.admission.iter().map(|line| format!("{line}\n")).collect();
    let shares = format!("class {}, weight {}", tenant.class, tenant.weight);
    format!("{}: {shares}{promises}\n{said}", tenant.name)
}

pub fn export(client: &ApiClient, args: &args::Export, json: bool) -> Result<(), CommandFailure> {
    match &args.command {
        ExportCommand::Ls => {
            let exports: Vec<ExportStatus> = client.get("/v1/exports")?;
            output::list(&exports, export_name, |exports| exports_table(exports).shown())
        }
        ExportCommand::VfioUser(add) => {
            let body = ExportAdd {
                device: add.device.clone(),
                socket: absolute(&add.socket)?,
                tenant: add.tenant.clone(),
                class_from: word(ClassFrom::WORDS, add.class_from.as_deref()),
                doorbells: word(Doorbells::WORDS, add.doorbells.as_deref()),
                force: add.force,
            };
            let export: ExportStatus = client.create("/v1/exports", &body)?;
            let said = if add.force && !json { admission(client)? } else { String::new() };
            let text = |e: &ExportStatus| format!("{}{said}", exports_table(std::slice::from_ref(e)).shown());
            output::one(&export, &export_name(&export), text)
        }
        ExportCommand::Volume { name, door, max_controllers } => {
            crate::volume::export(client, name, (door, *max_controllers))
        }
        ExportCommand::Rm { socket } => {
            let is_volume = socket.to_str().filter(|s| s.starts_with("nvme-tcp:"));
            let socket = is_volume.map_or_else(|| absolute(socket), |s| Ok(s.to_string()))?;
            let export: ExportStatus = client.delete(&format!("/v1/exports/{}", in_url(&socket)))?;
            output::one(&export, &socket, |_| format!("{socket}: removed\n"))
        }
    }
}

/// The node's folder is not ours.
pub fn absolute(path: &std::path::Path) -> Result<String, CommandFailure> {
    let absolute = std::path::absolute(path).map_err(|e| CommandFailure::new(format!("{}: {e}", path.display())))?;
    Ok(absolute.display().to_string())
}

/// What one of these words means; clap has let no others through.
fn word<T: Copy>(words: &[(&str, T)], text: Option<&str>) -> Option<T> {
    words.iter().find(|(word, _)| Some(*word) == text).map(|(_, value)| *value)
}

/// Returns when the node has ended.
pub fn shutdown(client: &ApiClient, json: bool) -> Result<(), CommandFailure> {
    let _: serde_json::Value = client.post("/v1/shutdown")?;
    let start = Instant::now();
    while client.answers() {
        if start.elapsed() > DRAIN {
            let what = format!("shutdown: the node has been draining for {} s", DRAIN.as_secs());
            return Err(CommandFailure::new(what + "; wait, or send it SIGTERM to end it at once"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if json { output::json(&serde_json::json!({ "state": "stopped" })) } else { output::text("stopped\n") }
}

fn arbitration(a: &Arbitration) -> String {
    match a.mechanism {
        Mechanism::None => "none".to_string(),
        Mechanism::Rr => format!("rr, burst {}", burst(a.burst)),
        Mechanism::Wrr => {
            format!("wrr {}:{}:{}, burst {}", a.weights.high, a.weights.medium, a.weights.low, burst(a.burst))
        }
        Mechanism::Drr => {
            let [h, m, l] = [a.quanta.high, a.quanta.medium, a.quanta.low].map(|q| Bytes(q.into()).to_string());
            format!("drr {h}:{m}:{l}")
        }
    }
}

fn burst(log2: Option<u8>) -> String {
    log2.map_or("none".to_string(), |log2| (1_u32 << log2.min(31)).to_string())
}

/// What a drive is, in a word or two: how hosts see it unless that is by blocks, and its profile.
fn kind(d: &DeviceStatus) -> String {
    let interface = Some(d.interface.as_str()).filter(|i| *i != "block");
    match (interface, &d.profile) {
        (None, None) => "-".to_string(),
        (None, Some(profile)) => profile.clone(),
        (Some(interface), None) => interface.to_string(),
        (Some(interface), Some(profile)) => format!("{interface} {profile}"),
    }
}

fn devices_table(devices: &[DeviceStatus]) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "KIND",
        "~MEDIA",
        ">CAPACITY",
        "~>LATENCY",
        "~TIMING",
        "~>SLOTS",
        "ARBITRATION",
        "~>QUEUES",
        "~>READ",
        "~>WRITTEN",
        ">ERRORS",
        "~NQN",
    ]);
    for d in devices {
        let latency = if d.latency_ns == 0 { "-".to_string() } else { Nanos(d.latency_ns).to_string() };
        table.row([
            d.name.clone(),
            kind(d),
            d.media.clone(),
            Bytes(d.capacity_bytes).to_string(),
            latency,
            timing::cell(d.timing.as_ref()),
            format!("{}/{}", d.slots_busy, d.slots),
            arbitration(&d.arbitration),
            d.queues.to_string(),
            amount(d.io.read_bytes),
            amount(d.io.written_bytes),
            d.io.errors.to_string(),
            d.nqn.clone(),
        ]);
    }
    table
}

/// The drives, and below them what has broken any, and which do not keep their times.
fn devices_text(devices: &[DeviceStatus]) -> String {
    let faults = devices.iter().filter_map(|d| Some(format!("FAULT {}: {}\n", d.name, d.fault.as_ref()?)));
    let links = devices.iter().filter_map(|d| Some(format!("LINK {}: {}\n", d.name, link_text(d.link.as_ref()?)?)));
    let faults = faults.chain(links).chain(devices.iter().filter_map(timing::complaint));
    let flash = devices.iter().filter_map(|d| Some((d.name.as_str(), d.flash.as_ref()?)));
    let flash = flash.map(|(name, flash)| indented(name, &flash_text(flash)));
    faults.chain(flash).fold(devices_table(devices).shown(), |text, line| text + &line)
}

/// An outage of the drive behind a drive.
fn link_text(link: &LinkStatus) -> Option<String> {
    let out = link.out_s?;
    let commands = if link.failing { "commands fail".to_owned() } else { format!("{} commands wait", link.held) };
    Some(format!("{}, out for {out:.1} s, {} attempts; {commands}", link.state, link.attempts))
}

/// Every line after that name.
fn indented(name: &str, text: &str) -> String {
    text.lines().map(|line| format!("{name} {line}\n")).collect()
}

fn tenants_table(tenants: &[TenantStatus]) -> Table {
    let promised = tenants.iter().any(service_levels::has_any);
    let mut headings = vec!["NAME", "CLASS", ">WEIGHT"];
    headings.extend(promised.then_some(["~FLOOR", "~CEILING", "SLA", "KEPT"]).into_iter().flatten());
    headings.extend(["~>QUEUES", "~>READS", "~>WRITES", "~>READ", "~>WRITTEN", ">ERRORS", "~HOSTS"]);
    let mut table = Table::new(&headings);
    for t in tenants {
        let class = if t.urgent && t.class != "urgent" { format!("{} (urgent)", t.class) } else { t.class.clone() };
        let mut row = vec![t.name.clone(), class, t.weight.to_string()];
        row.extend(promised.then(|| service_levels::cells(t)).into_iter().flatten());
        row.extend([
            t.queues.to_string(),
            t.io.reads.to_string(),
            t.io.writes.to_string(),
            amount(t.io.read_bytes),
            amount(t.io.written_bytes),
            t.io.errors.to_string(),
            t.hosts.join(" "),
        ]);
        table.row(row);
    }
    table
}

/// As `weir export rm` takes it.
fn export_name(export: &ExportStatus) -> String {
    match (&export.volume, export.door.as_str(), export.addresses.first()) {
        (Some(volume), "nvme-tcp", _) => format!("nvme-tcp:{volume}"),
        (_, _, Some(address)) => address.clone(),
        (_, door, None) => door.to_string(),
    }
}

fn exports_table(exports: &[ExportStatus]) -> Table {
    const HEAD: [&str; 9] =
        ["DEVICE", "VOLUME", "DOOR", "~TENANT", "~CLASS FROM", "~>QUEUES", "~MODE", "~>CLIENTS", "ADDRESS"];
    // Who has no volumes sees no column of them.
    let columns = |i: &usize| *i != 1 || exports.iter().any(|e| e.volume.is_some());
    let head: Vec<&str> = (0..HEAD.len()).filter(columns).map(|i| HEAD[i]).collect();
    let mut table = Table::new(&head);
    for e in exports {
        let row = [
            if e.device.is_empty() { "-".to_string() } else { e.device.clone() },
            e.volume.clone().unwrap_or_else(|| "-".to_string()),
            e.door.clone(),
            e.tenant.clone().unwrap_or_else(|| "by host".to_string()),
            e.class_from.to_string(),
            e.queues.to_string(),
            if e.read_only { "ro" } else { "rw" }.to_string(),
            e.clients.to_string(),
            e.addresses.join(" "),
        ];
        table.row(row.into_iter().enumerate().filter(|(i, _)| columns(i)).map(|(_, cell)| cell));
    }
    table
}

/// Bytes to three digits, in powers of ten as bandwidths are.
fn amount(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 999.5 {
            let digits = if unit == "B" || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} PB")
}
