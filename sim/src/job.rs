//! `[[job]]`.

use crate::scenario::capacity;
use crate::trace::{self, Fit, ReplayTiming, Trace, TraceFormat};
use std::path::Path;
use std::str::FromStr;
use weir_config::DeviceConfig;
use weir_config::demand::{key_value, mix, rate};
use weir_config::read::{Read, Section, Value, element_name, integer, name, number, size, text, time, word};
use weir_flash::FdpConfig;
use weir_units::{Bytes, Class, Nanos};
use weir_workload::{Arrival, Job, JobRegion, Pattern, Skew, Theta, Zones};

/// A job as it was read.
pub(crate) struct JobRead {
    pub job: Job,
    pub line: u32,
    /// Its path in messages.
    pub path: String,
    /// Its tenant's place; `None`: one of its own, or whoever the trace names.
    pub tenant: Option<usize>,
    /// Its drive's place.
    pub device: usize,
    pub trace: Option<(Trace, ReplayTiming, Fit)>,
    /// The placement handle that it writes through.
    pub placement: Option<u8>,
}

/// Deeper than that without being asked is no closed loop any more.
const DEPTH: u32 = 32;
const MAX_START: Nanos = Nanos::from_secs(100_000);

/// Reads one job, the `place`th.
pub(crate) fn read(
    section: &Section<'_>,
    base: &Path,
    tenants: &[&str],
    devices: &[DeviceConfig],
    place: usize,
) -> Option<JobRead> {
    let drive = drive(section, devices);
    let device = devices.get(drive);
    let named = element_name(section, "job").map(|n| n.value);
    let tenant = tenant(section, tenants, named.as_deref());
    let file = section.get("trace", text);
    let of_tenant = || section.get("tenant", text).filter(|_| tenant.is_some());
    let of_file = || file.as_deref().and_then(|f| Path::new(f).file_stem()).map(|s| s.to_string_lossy().into_owned());
    let default = Job::default();
    let mut job = Job {
        name: named.or_else(of_tenant).or_else(of_file).unwrap_or_else(|| format!("job{place}")),
        class: section.get("class", parsed::<Class, _>("is none of urgent, high, medium, low")),
        start: section.or("start", Nanos(0), time(MAX_START)),
        time: section.get("time", some_time),
        region: section.get("region", key_value::<JobRegion>("region")),
        ..default
    };
    let trace = match &file {
        Some(file) => trace_keys(section, base, file, &job, device),
        None => {
            drawn_keys(section, &mut job);
            None
        }
    };
    for key in TRACE_KEYS.into_iter().filter(|key| file.is_none() && section.has(key)) {
        section.fault(key, "only a job with a trace has this");
    }
    let most = device.map_or(u32::MAX, |d| d.queue_depth.into());
    // An open loop waits for nobody but a full queue.
    let open = job.rate.is_some() || matches!(trace, Some((_, ReplayTiming::Original { .. }, _)));
    let depth = if open { most } else { DEPTH.min(most) };
    job.depth = section.or("qd", depth, |v| Ok(integer(1..=65_535)(v)? as u32));
    if job.depth > most {
        section.fault("qd", format_args!("{} is more than the device's queue_depth, {most}", job.depth));
    }
    let placement = placement(section, tenants, device);
    section.finish();
    if file.is_some() && trace.is_none() {
        return None;
    }
    Some(JobRead { job, line: section.line(), path: section.path(), tenant, device: drive, trace, placement })
}

/// Keys that only a job with a trace has.
const TRACE_KEYS: [&str; 6] = ["format", "stream", "timing", "speed", "fit", "span"];
/// Keys that only a job without a trace has.
const DRAWN_KEYS: [&str; 7] = ["rw", "bs", "rate", "arrival", "zipf", "hot", "jobs"];

/// The place of the drive that a job uses: the only one, or the one that it names.
fn drive(section: &Section<'_>, devices: &[DeviceConfig]) -> usize {
    let wanted = section.get("device", name);
    let names = || devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    match wanted {
        Some(wanted) => match devices.iter().position(|d| d.name == wanted) {
            Some(at) => return at,
            // Without drives something else is wrong.
            None if !devices.is_empty() => {
                section.fault("device", format_args!("there is no drive \"{wanted}\"; there is {}", names()));
            }
            None => {}
        },
        None if devices.len() > 1 && !section.has("device") => {
            section.fault("device", format_args!("missing, and there are several; write one of {}", names()));
        }
        None => {}
    }
    0
}

/// The placement handle of a job that is its own tenant.
fn placement(section: &Section<'_>, tenants: &[&str], device: Option<&DeviceConfig>) -> Option<u8> {
    let handle = section.get("placement", integer(0..=u64::from(FdpConfig::MAX_HANDLES) - 1))? as u8;
    let fdp = device.and_then(|d| d.flash.as_ref()).and_then(|f| f.config.ftl.fdp);
    match fdp {
        _ if !tenants.is_empty() => section.fault("placement", "is its tenant's to say; write it in the [[tenant]]"),
        None if device.is_some() => section.fault("placement", "the drive has no placement handles; add [device.fdp]"),
        Some(fdp) if handle >= fdp.handles => {
            section
                .fault("placement", format_args!("{handle} is none of the drive's {} handles, from 0 on", fdp.handles));
        }
        _ => return Some(handle),
    }
    None
}

fn tenant(section: &Section<'_>, tenants: &[&str], job: Option<&str>) -> Option<usize> {
    let wanted = section.get("tenant", name);
    let place = |name: &str| tenants.iter().position(|t| *t == name);
    let all = || tenants.join(", ");
    match (&wanted, tenants) {
        (Some(_), []) => section.fault("tenant", "there is no [[tenant]]; add one, or leave this out"),
        (Some(name), _) if place(name).is_none() => {
            section.fault("tenant", format_args!("there is no tenant \"{name}\"; there is {}", all()));
        }
        (Some(name), _) => return place(name),
        (None, [_]) if !section.has("trace") => return Some(0),
        // What a trace says of its tenants shows when it is opened.
        (None, []) => {}
        (None, _) if section.has("trace") || section.has("tenant") => {}
        (None, _) => match job.and_then(place) {
            Some(own) => return Some(own),
            None => {
                section.fault("tenant", format_args!("missing, and there are several; write one of {}", all()));
            }
        },
    }
    None
}

/// What a job without a trace does.
fn drawn_keys(section: &Section<'_>, job: &mut Job) {
    job.pattern = section.or("rw", job.pattern, key_value::<Pattern>("rw"));
    job.sizes = section.or("bs", job.sizes.clone(), mix);
    job.rate = section.get("rate", rate);
    job.arrival = section.or("arrival", job.arrival, key_value::<Arrival>("arrival"));
    job.copies = section.or("jobs", 1, integer(1..=1024)) as u32;
    let zipf = section.get("zipf", theta).map(Skew::Zipf);
    let hot = section.get("hot", key_value::<Zones>("hot")).map(Skew::Zones);
    if zipf.is_some() && hot.is_some() {
        section.fault("hot", "zipf says already where requests go; keep one");
    }
    if section.has("arrival") && job.rate.is_none() {
        section.fault("arrival", "without a rate requests arrive when others end; add rate");
    }
    job.skew = zipf.or(hot).unwrap_or_default();
    if job.skew != Skew::Uniform && !job.pattern.random {
        let key = if section.has("zipf") { "zipf" } else { "hot" };
        section.fault(key, format_args!("spreads random requests, and rw = \"{}\" is sequential", job.pattern));
    }
}

fn trace_keys(
    section: &Section<'_>,
    base: &Path,
    file: &str,
    job: &Job,
    device: Option<&DeviceConfig>,
) -> Option<(Trace, ReplayTiming, Fit)> {
    for key in DRAWN_KEYS.into_iter().filter(|key| section.has(key)) {
        section.fault(key, "the trace says what is asked for; leave one of both out");
    }
    let trace = Trace {
        file: base.join(file),
        format: section.get("format", parsed_as::<TraceFormat>),
        stream: section.get("stream", text),
        known: Vec::new(),
    };
    let fast = section.or("timing", false, word(&[("original", false), ("fast", true)]));
    let speed = section.get("speed", number(1e-3..=1e6));
    if fast && speed.is_some() {
        section.fault("speed", "timing = \"fast\" does not go by the trace's clock; leave one of both out");
    }
    let timing = if fast { ReplayTiming::Fast } else { ReplayTiming::Original { speed: speed.unwrap_or(1.0) } };
    let fit = section.or("fit", "strict", word(&[("strict", "strict"), ("wrap", "wrap"), ("scale", "scale")]));
    let span = section.get("span", size(1..=u64::MAX));
    if span.is_some() && fit != "scale" {
        section.fault("span", "belongs to fit = \"scale\"");
    }
    let fit = match fit {
        "wrap" => Fit::Wrap,
        "scale" => Fit::Scale { span: span.map_or_else(|| measured(section, &trace), |s| Some(s.get()))? },
        _ => Fit::Strict,
    };
    let (block, size) = device.map_or((512, u64::MAX), |d| (u64::from(d.block_size), capacity(d)));
    let region = job.region.unwrap_or(JobRegion { offset: 0, len: size });
    if region.offset.saturating_add(region.len) > size || (region.offset | region.len) % block != 0 {
        section.fault("region", format_args!("is no part of the drive ({}) in whole blocks", Bytes(size)));
    }
    Some((trace, timing, fit))
}

/// The trace's own span, by reading it once before.
fn measured(section: &Section<'_>, trace: &Trace) -> Option<u64> {
    trace::span(trace).map_err(|error| section.fault("trace", error)).ok()
}

fn some_time(value: &Value) -> Read<Nanos> {
    match time(MAX_START)(value)? {
        Nanos(0) => Err("0 would never do anything".to_string().into()),
        time => Ok(time),
    }
}

fn theta(value: &Value) -> Read<Theta> {
    let theta = number(0.01..=5.0)(value)?;
    Theta::new(theta).ok_or_else(|| format!("{theta} is not from 0.01 to 5").into())
}

fn parsed_as<T: FromStr<Err = String>>(value: &Value) -> Read<T> {
    text(value)?.parse().map_err(|what: String| what.into())
}

fn parsed<T: FromStr<Err = E>, E>(otherwise: &'static str) -> impl Fn(&Value) -> Read<T> {
    move |value| {
        let text = text(value)?;
        text.parse().map_err(|_| format!("\"{text}\" {otherwise}").into())
    }
}
