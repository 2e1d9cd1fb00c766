//! `floor`, `ceiling` and `sla` of a `[[tenant]]`.

use super::read::{Read, Section, shown, size, time};
use super::toml_text::string;
use super::value::Value;
use weir_units::{Bytes, Ceiling, Floor, Nanos, PerSecond, Rates, Sla, parse};

/// Commands a second, and commands at once.
const MOST_IOPS: u64 = 1_000_000_000;
/// Bytes a second.
const MOST_BANDWIDTH: u64 = 1_000_000_000_000;
/// Shorter than this the arbiter's rounds are not.
const LEAST_CATCH_UP: Nanos = Nanos::from_millis(1);
const MOST_CATCH_UP: Nanos = Nanos::from_secs(10);
const MOST_BURST_BYTES: u64 = 1 << 40;
const MOST_LATENCY: Nanos = Nanos::from_secs(3600);

/// A floor, a ceiling and a service level that go together.
pub(super) struct Promises {
    pub(super) floor: Floor,
    pub(super) ceiling: Ceiling,
    pub(super) sla: Sla,
}

pub(super) fn read(tenant: &Section<'_>) -> Promises {
    let promises = Promises { floor: floor(tenant), ceiling: ceiling(tenant), sla: sla(tenant) };
    for (key, rates) in [("floor", promises.floor.rates), ("sla", promises.sla.rates)] {
        if let Err(what) = within(&rates, &promises.ceiling.rates) {
            tenant.fault(key, what);
        }
    }
    promises
}

/// What is promised does not exceed the ceiling.
pub fn within(promised: &Rates, ceiling: &Rates) -> Result<(), String> {
    if let (Some(promised), Some(most)) = (promised.iops, ceiling.iops) {
        if promised > most {
            return Err(format!(
                "iops = {promised} is more than the ceiling allows ({most}); lower it, or raise the ceiling"
            ));
        }
    }
    if let (Some(promised), Some(most)) = (promised.bandwidth, ceiling.bandwidth) {
        if promised > most {
            let (promised, most) = (PerSecond(promised), PerSecond(most));
            return Err(format!(
                "bandwidth = \"{promised}\" is more than the ceiling allows ({most}); lower it, or raise the ceiling"
            ));
        }
    }
    Ok(())
}

fn table<'a>(tenant: &Section<'a>, key: &'static str) -> Option<Section<'a>> {
    let (line, entries) = tenant.table(key)?;
    Some(tenant.inner(tenant.key(key), line, entries))
}

fn rates(section: &Section<'_>) -> Rates {
    Rates { iops: section.get("iops", count(MOST_IOPS)), bandwidth: section.get("bandwidth", bandwidth) }
}

fn floor(tenant: &Section<'_>) -> Floor {
    let Some(section) = table(tenant, "floor") else { return Floor::default() };
    let rates = rates(&section);
    let catch_up = section.get("catch_up", |v| {
        let catch_up = time(MOST_CATCH_UP)(v)?;
        if catch_up < LEAST_CATCH_UP {
            return Err(format!("{catch_up} is too short; at least {LEAST_CATCH_UP} is needed").into());
        }
        Ok(catch_up)
    });
    if !section.has("iops") && !section.has("bandwidth") {
        tenant.fault("floor", "says no rate; write iops, bandwidth or both");
    }
    section.finish();
    Floor { rates, catch_up: catch_up.unwrap_or(Floor::CATCH_UP) }
}

fn ceiling(tenant: &Section<'_>) -> Ceiling {
    let Some(section) = table(tenant, "ceiling") else { return Ceiling::default() };
    let rates = rates(&section);
    let burst = section.get("burst", count(MOST_IOPS)).map(|n| n as u32);
    let burst_bytes = section.get("burst_bytes", size(1..=MOST_BURST_BYTES));
    if !section.has("iops") && !section.has("bandwidth") {
        tenant.fault("ceiling", "says no rate; write iops, bandwidth or both");
    } else if burst.is_some() && !section.has("iops") {
        section.fault("burst", "counts commands, and the ceiling says no iops; write iops, or burst_bytes");
    } else if burst_bytes.is_some() && !section.has("bandwidth") {
        section.fault("burst_bytes", "counts bytes, and the ceiling says no bandwidth; write bandwidth, or burst");
    }
    section.finish();
    Ceiling { rates, burst, burst_bytes }
}

fn sla(tenant: &Section<'_>) -> Sla {
    let Some(section) = table(tenant, "sla") else { return Sla::default() };
    let bound = |key| section.get(key, latency);
    let sla = Sla { rates: rates(&section), p50: bound("p50"), p99: bound("p99"), p999: bound("p999") };
    if !["iops", "bandwidth", "p50", "p99", "p999"].into_iter().any(|key| section.has(key)) {
        tenant.fault("sla", "says nothing; write iops, bandwidth, p50, p99 or p999");
    }
    let bounds: Vec<_> =
        [("p50", sla.p50), ("p99", sla.p99), ("p999", sla.p999)].into_iter().filter_map(given).collect();
    for pair in bounds.windows(2) {
        if pair[0].1 > pair[1].1 {
            section.fault(pair[1].0, format_args!("is below {}, which is never above it; raise it", pair[0].0));
        }
    }
    section.finish();
    sla
}

fn given((key, bound): (&'static str, Option<Nanos>)) -> Option<(&'static str, Nanos)> {
    bound.map(|bound| (key, bound))
}

fn count(most: u64) -> impl Fn(&Value) -> Read<u64> {
    move |value| {
        let number = match value {
            Value::Integer(number) => number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            Value::Text(text) | Value::Bare(text) => parse::count(text).map_err(|e| e.to_string())?,
            other => return Err(format!("{} where a number like 200000 or \"200k\" is wanted", shown(other)).into()),
        };
        if (1..=most).contains(&number) {
            return Ok(number);
        }
        Err(format!("{} is out of range; 1 to {most} is allowed", shown(value)).into())
    }
}

fn bandwidth(value: &Value) -> Read<Bytes> {
    let (Value::Text(text) | Value::Bare(text)) = value else {
        return Err(format!("{} where a bandwidth like \"500MB/s\" is wanted", shown(value)).into());
    };
    let bandwidth = parse::bandwidth(text).map_err(|e| e.to_string())?;
    if (1..=MOST_BANDWIDTH).contains(&bandwidth.0) {
        return Ok(bandwidth);
    }
    Err(format!("{} is out of range; 1B/s to {} is allowed", PerSecond(bandwidth), PerSecond(Bytes(MOST_BANDWIDTH)))
        .into())
}

fn latency(value: &Value) -> Read<Nanos> {
    match time(MOST_LATENCY)(value)? {
        Nanos(0) => Err("nothing takes no time; write a bound like \"2ms\"".to_string().into()),
        bound => Ok(bound),
    }
}

/// The keys again, one line each.
pub(super) fn print(promises: &Promises) -> String {
    let mut out = String::new();
    let Promises { floor, ceiling, sla } = promises;
    if !floor.is_none() {
        let keys = rate_keys(&floor.rates).into_iter().chain([format!("catch_up = {}", string(floor.catch_up))]);
        out += &line("floor", keys);
    }
    if !ceiling.is_none() {
        let burst = ceiling.burst.map(|n| format!("burst = {n}"));
        let bytes = ceiling.burst_bytes.map(|b| format!("burst_bytes = {}", string(b)));
        out += &line("ceiling", rate_keys(&ceiling.rates).into_iter().chain(burst).chain(bytes));
    }
    if !sla.is_none() {
        let bounds = [("p50", sla.p50), ("p99", sla.p99), ("p999", sla.p999)].into_iter().filter_map(given);
        let bounds = bounds.map(|(key, bound)| format!("{key} = {}", string(bound)));
        out += &line("sla", rate_keys(&sla.rates).into_iter().chain(bounds));
    }
    out
}

fn rate_keys(rates: &Rates) -> Vec<String> {
    let iops = rates.iops.map(|n| format!("iops = {n}"));
    let bandwidth = rates.bandwidth.map(|b| format!("bandwidth = {}", string(PerSecond(b))));
    iops.into_iter().chain(bandwidth).collect()
}

fn line(key: &str, keys: impl Iterator<Item = String>) -> String {
    format!("{key} = {{ {} }}\n", keys.collect::<Vec<_>>().join(", "))
}
