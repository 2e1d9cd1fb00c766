//! What to simulate: the file of `weir sim`.
//!
//! `[[device]]` and `[[tenant]]` are those of `weir up` and read by the same code; `[[job]]` has the keys of `weir bench
//! --job`, or a trace. `docs/guides/simulate.md` lists all keys with their defaults.

use crate::client::SimulatedClient;
use crate::job::{self, JobRead};
use crate::trace::{Reader, Trace};
use weir_config::read::{Section, integer, one_or_list, time, word};
use weir_config::{self as config, ConfigError, DeviceConfig, Document};
use weir_controller::{ClassFrom, SubsystemConfig as MachineConfig, TenantConfig};
use weir_fault::FaultRule;
use weir_flash::Precondition;
use weir_units::{Bytes, Nanos};

/// A simulation with nothing left to ask.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The drive.
    pub device: DeviceConfig,
    /// Who shares it: `[[tenant]]`, or a tenant for each job.
    pub tenants: Vec<TenantConfig>,
    /// What they do, in the order of the file; tenants are places in `tenants`.
    pub clients: Vec<SimulatedClient>,
    /// For everything random.
    pub seed: u64,
    /// How long, from the end of the ramp; to the end of all traces if absent.
    pub time: Option<Nanos>,
    /// How many requests; as many as there are in `time` if absent.
    pub requests: Option<u64>,
    /// How long before anything is counted.
    pub ramp: Nanos,
    /// Length of an interval of the series.
    pub series: Option<Nanos>,
    /// When the power goes, from the end of the ramp on; ascending.
    pub power_cuts: Vec<Nanos>,
    /// Failures by rule; their times count from the beginning.
    pub faults: Vec<FaultRule>,
}

/// A day and a bit of virtual time: longer runs are mistakes.
pub(crate) const MAX_TIME: Nanos = Nanos::from_secs(100_000);
/// Points of a series; its histograms take memory.
const MAX_POINTS: u64 = 2_000;

impl Scenario {
    /// Reads a document of one drive.
    ///
    /// # Errors
    /// Everything that is wrong, with file, line and key.
    pub fn read(document: &Document) -> Result<Scenario, ConfigError> {
        let one = |root: &Section<'_>| {
            let devices = only_device(root, document, config::count_tenants(root)).into_iter().collect();
            read(root, document, devices)?.pop()
        };
        document.read(one)?.ok_or_else(|| unreachable!("without a fault there is a scenario"))
    }

    /// Reads a document of several drives: a scenario for each, in the order of the file. Nothing couples them; each has the jobs that
    /// name it, and all tenants.
    ///
    /// # Errors
    /// As [`Scenario::read`].
    pub fn read_all(document: &Document) -> Result<Vec<Scenario>, ConfigError> {
        let all = |root: &Section<'_>| read(root, document, devices(root, document));
        document.read(all)?.ok_or_else(|| unreachable!("without a fault there are scenarios"))
    }

    /// The drive's machine, tenants included.
    pub fn machine(&self) -> MachineConfig {
        MachineConfig { tenants: self.tenants.clone(), ..weir_drive::machine_config(&self.device) }
    }
}

fn read(root: &Section<'_>, document: &Document, devices: Vec<DeviceConfig>) -> Option<Vec<Scenario>> {
    let devices: Vec<DeviceConfig> = devices.into_iter().filter_map(|device| timed(root, device)).collect();
    let faults = config::faults(root, &devices);
    let tenants = tenants(root);
    let mut jobs: Vec<JobRead> = Vec::new();
    let tables = root.tables("job");
    if tables.is_empty() {
        root.fault("job", "missing; add a [[job]] with rw, bs and qd, or name a trace by --trace");
    }
    for (i, (line, entries)) in tables.into_iter().enumerate() {
        let section = root.inner(format!("job#{}", i + 1), line, entries);
        let names: Vec<&str> = tenants.iter().map(|t| t.name.as_str()).collect();
        jobs.extend(job::read(&section, document.base(), &names, &devices, i + 1));
    }
    let seed = root.or("seed", 1, integer(0..=i64::MAX as u64));
    let ramp = root.or("ramp", Nanos(0), time(MAX_TIME));
    let requests = root.get("requests", integer(1..=u64::MAX));
    let endless = jobs.iter().any(|j| j.trace.is_none() && j.job.time.is_none());
    let default = (endless && requests.is_none()).then_some(Nanos::from_secs(10));
    let length = root.get("time", time(MAX_TIME)).or(default);
    if length == Some(Nanos(0)) {
        root.fault("time", "0 would simulate nothing");
    }
    let series = series(root, length);
    let state = state(root);
    let devices: Vec<DeviceConfig> =
        devices.into_iter().filter_map(|device| in_state(root, state, Some(device))).collect();
    let power_cuts = power_cuts(root, &devices, length);
    root.finish();
    check_times(root, &jobs, length);
    let mut scenarios = Vec::new();
    for (at, device) in devices.into_iter().enumerate() {
        let (own, others): (Vec<JobRead>, Vec<JobRead>) = jobs.into_iter().partition(|job| job.device == at);
        jobs = others;
        if own.is_empty() && root.sink().is_clean() {
            let key = format!("device.{}", device.name);
            root.sink().note(
                root.line_of("device"),
                &key,
                "no job uses it; name it as the device of a [[job]], or leave it out",
            );
        }
        let (tenants, clients) = assemble(root, tenants.clone(), own);
        let power_cuts = power_cuts.clone();
        let faults = faults.iter().filter(|fault| fault.device == at).map(|fault| fault.rule.clone()).collect();
        let time = length;
        scenarios.push(Scenario { device, tenants, clients, seed, time, requests, ramp, series, power_cuts, faults });
    }
    Some(scenarios).filter(|scenarios| !scenarios.is_empty())
}

/// When the power goes.
fn power_cuts(root: &Section<'_>, devices: &[DeviceConfig], length: Option<Nanos>) -> Vec<Nanos> {
    let mut cuts = root.get("power_cuts", one_or_list(time(MAX_TIME))).unwrap_or_default();
    cuts.sort_unstable();
    if let Some(late) = cuts.iter().find(|cut| length.is_some_and(|length| **cut >= length)) {
        root.fault("power_cuts", format_args!("{late} is not before the end; lengthen time"));
    }
    let keeps = |d: &DeviceConfig| d.flash.as_ref().is_some_and(|f| f.config.ftl.spare);
    if !cuts.is_empty() && !devices.iter().all(keeps) {
        root.fault(
            "power_cuts",
            "the drive does not keep what that needs; write power_cut = true in its [device.flash]",
        );
    }
    cuts
}

/// `precondition` goes before what the drive's own table says.
pub(crate) fn precondition(root: &Section<'_>, device: Option<DeviceConfig>) -> Option<DeviceConfig> {
    in_state(root, state(root), device)
}

fn state(root: &Section<'_>) -> Option<Precondition> {
    let words: Vec<(&str, Precondition)> = Precondition::ALL.iter().map(|p| (p.name(), *p)).collect();
    root.get("precondition", word(&words))
}

fn in_state(root: &Section<'_>, state: Option<Precondition>, device: Option<DeviceConfig>) -> Option<DeviceConfig> {
    let mut device = device?;
    match (state, &mut device.flash) {
        (Some(state), Some(flash)) => flash.precondition = state,
        (Some(state), None) if state != Precondition::Fresh => {
            root.fault("precondition", format_args!("this drive has no flash that could be {state}; leave it out"));
        }
        _ => {}
    }
    Some(device)
}

/// A drive of a simulation.
fn timed(root: &Section<'_>, device: DeviceConfig) -> Option<DeviceConfig> {
    simulable(
        root,
        device,
        "missing, and a drive that takes no time cannot be simulated; write it, or kind = \"flash\"",
    )
}

/// The drives of a file that is to have at least one.
fn devices(root: &Section<'_>, document: &Document) -> Vec<DeviceConfig> {
    let devices = config::devices(root, document.base(), "sim", config::count_tenants(root));
    if devices.is_empty() {
        root.fault("device", "missing; add a [[device]] with capacity and latency");
    }
    // What a key that is wrong would have said is not missing.
    if root.sink().is_clean() { devices } else { Vec::new() }
}

/// The drive of a file that is to have one, which so many tenants share.
pub(crate) fn only_device(root: &Section<'_>, document: &Document, tenants: usize) -> Option<DeviceConfig> {
    let mut devices = config::devices(root, document.base(), "sim", tenants);
    match devices.len() {
        0 => root.fault("device", "missing; add a [[device]] with capacity and latency"),
        1 => {}
        n => root.fault("device", format_args!("{n} drives where one is simulated; give each a file of its own")),
    }
    // What a key that is wrong would have said is not missing.
    devices.drain(..).next().filter(|_| root.sink().is_clean())
}

/// A drive that can be simulated; `timeless` is said of one that takes no time.
pub(crate) fn simulable(root: &Section<'_>, device: DeviceConfig, timeless: &str) -> Option<DeviceConfig> {
    let key = format!("device.{}", device.name);
    let line = root.line_of("device");
    let refuse = |of: &str, what: &str| {
        root.sink().note(line, &format!("{key}.{of}"), what);
        None
    };
    if device.latency == Nanos(0) && device.flash.is_none() {
        return refuse("latency", timeless);
    }
    if device.zoned.is_some() {
        return refuse(
            "zoned",
            "jobs do not keep to write pointers, so a zoned drive cannot be simulated; leave it out",
        );
    }
    if device.open_channel.is_some() {
        let what =
            "jobs do not keep to write pointers, so a drive of physical addresses cannot be simulated; leave it out";
        return refuse("open_channel", what);
    }
    if device.capacity.is_none() {
        return refuse("capacity", "missing; a simulation opens no file to see how large it is");
    }
    Some(device)
}

fn tenants(root: &Section<'_>) -> Vec<TenantConfig> {
    config::tenants(root).into_iter().map(tenant).collect()
}

/// A tenant of a file, as the drive has it.
pub(crate) fn tenant(from: config::TenantConfig) -> TenantConfig {
    TenantConfig {
        name: from.name,
        class: from.class,
        urgent: from.urgent,
        // A job may ask for less than its tenant has.
        class_from: ClassFrom::Peer,
        weight: from.weight,
        placement: from.placement,
        floor: from.floor,
        ceiling: from.ceiling,
        sla: from.sla,
        hosts: Vec::new(),
    }
}

fn series(root: &Section<'_>, length: Option<Nanos>) -> Option<Nanos> {
    let series = root.get("series", time(MAX_TIME))?;
    let points = length.map_or(0, |length| length.0.checked_div(series.0).unwrap_or(u64::MAX));
    if series < Nanos::from_micros(1) || points > MAX_POINTS {
        root.fault("series", format_args!("an interval of {series} is too short; at most {MAX_POINTS} fit into a run"));
    }
    Some(series)
}

fn check_times(root: &Section<'_>, jobs: &[JobRead], length: Option<Nanos>) {
    for job in jobs {
        let (start, path) = (job.job.start, &job.path);
        if length.is_some_and(|length| start >= length) {
            let what = format!("{start} is not before the end of the run, {}", length.unwrap_or_default());
            root.sink().note(job.line, &format!("{path}.start"), what);
        }
    }
}

/// Gives every job its tenant, and every job without one a tenant of its own.
fn assemble(
    root: &Section<'_>,
    mut tenants: Vec<TenantConfig>,
    jobs: Vec<JobRead>,
) -> (Vec<TenantConfig>, Vec<SimulatedClient>) {
    let own = tenants.is_empty();
    let mut clients: Vec<SimulatedClient> = Vec::new();
    for job in jobs {
        let shares = match &job.trace {
            Some((trace, ..)) if job.tenant.is_none() && trace.stream.is_none() => {
                by_tenant(root, &job, trace, &tenants, own)
            }
            _ => None,
        };
        let shares = shares.unwrap_or_else(|| vec![(job.tenant.unwrap_or(usize::MAX), None)]);
        for (tenant, trace) in shares {
            let mut one = job.job.clone();
            if let Some(trace) = &trace {
                one.name = trace.stream.clone().unwrap_or_default();
            }
            one.name = unique(&clients, one.name);
            let wish = one.class.filter(|_| !own);
            let tenant = if own {
                tenants.push(TenantConfig { placement: job.placement, ..crate::world::own_tenant(&one) });
                tenants.len() - 1
            } else {
                tenant
            };
            let source = job.trace.clone().map(|(whole, timing, fit)| (trace.unwrap_or(whole), timing, fit));
            clients.push(SimulatedClient { job: one, tenant: tenant as u16, wish, trace: source, draws: None });
        }
    }
    (tenants, clients)
}

/// A name that no job has yet.
fn unique(clients: &[SimulatedClient], name: String) -> String {
    let taken = |name: &str| clients.iter().any(|c| c.job.name == name);
    if !taken(&name) {
        return name;
    }
    (2..).map(|n| format!("{name}-{n}")).find(|n| !taken(n)).unwrap_or(name)
}

/// A trace whose records name their tenants is replayed once for each of them.
fn by_tenant(
    root: &Section<'_>,
    job: &JobRead,
    trace: &Trace,
    tenants: &[TenantConfig],
    own: bool,
) -> Option<Vec<(usize, Option<Trace>)>> {
    let key = |key: &str| format!("{}.{key}", job.path);
    match Reader::open(trace) {
        Ok(reader) if reader.has_tenants() && own => {
            let what = "the trace names tenants; add a [[tenant]] for each of them, or choose one by stream";
            root.sink().note(job.line, &key("trace"), what);
            None
        }
        Ok(reader) if reader.has_tenants() => {
            let known: Vec<String> = tenants.iter().map(|t| t.name.clone()).collect();
            let one = |(i, name): (usize, &String)| {
                let stream = Some(name.clone());
                (i, Some(Trace { stream, known: known.clone(), ..trace.clone() }))
            };
            Some(known.iter().enumerate().map(one).collect())
        }
        Ok(_) if own => None,
        Ok(_) if tenants.len() == 1 => Some(vec![(0, None)]),
        Ok(_) => {
            let names: Vec<&str> = tenants.iter().map(|t| t.name.as_str()).collect();
            let what = format!("missing, and there are several; write one of {}", names.join(", "));
            root.sink().note(job.line, &key("tenant"), what);
            None
        }
        Err(error) => {
            root.sink().note(job.line, &key("trace"), error);
            None
        }
    }
}

/// Bytes of a drive that a scenario has checked.
pub(crate) fn capacity(device: &DeviceConfig) -> u64 {
    device.capacity.map_or(0, Bytes::get)
}
