//! `demand` of a `[[tenant]]`: what it is expected to ask for, in the words of `[[job]]`.

use super::read::{Read, Section, integer, text};
use super::value::Value;
use std::fmt::{self, Display};
use std::str::FromStr;
use weir_plan::Demand;
use weir_units::Bytes;
use weir_workload::{Arrival, Job, Mix, Rate};

/// Commands outstanding of a closed loop that names no depth.
const DEPTH: u32 = 32;
/// Of an open loop: it waits for nobody but a full queue.
const OPEN_DEPTH: u32 = 1024;

/// The tenant's demand, where it has one.
pub(super) fn read(tenant: &Section<'_>) -> Option<Demand> {
    let (line, entries) = tenant.table("demand")?;
    let section = tenant.inner(tenant.key("demand"), line, entries);
    let job = Job::default();
    let rate = section.get("rate", rate);
    if rate.is_some() && section.has("qd") {
        section.fault("qd", "a demand has a rate or a depth; leave one of both out");
    }
    if rate.is_none() && section.has("arrival") {
        section.fault("arrival", "without a rate requests arrive when others end; add rate");
    }
    let depth = if rate.is_some() { OPEN_DEPTH } else { DEPTH };
    let demand = Demand {
        pattern: section.or("rw", job.pattern, key_value("rw")),
        sizes: section.or("bs", job.sizes, mix),
        queues: section.or("jobs", 1, integer(1..=1024)) as u32,
        depth: section.or("qd", depth, |v| Ok(integer(1..=65_535)(v)? as u32)),
        rate,
        arrival: section.or("arrival", Arrival::Fixed, key_value("arrival")),
    };
    section.finish();
    Some(demand)
}

/// `4096`, `"4KiB"` or `"4KiB:50/8KiB:50"`.
pub fn mix(value: &Value) -> Read<Mix> {
    number_or_text("bs", value)
}

/// `20000`, `"20k"` or `"500MB/s"`.
pub fn rate(value: &Value) -> Read<Rate> {
    number_or_text("rate", value)
}

fn number_or_text<T: FromStr<Err: Display>>(key: &'static str, value: &Value) -> Read<T> {
    match value {
        Value::Integer(Some(n)) => key_value(key)(&Value::Text(n.to_string())),
        other => key_value(key)(other),
    }
}

/// Text that a type of the workload reads; its message begins with the key, which is said already.
pub fn key_value<T: FromStr<Err: Display>>(key: &'static str) -> impl Fn(&Value) -> Read<T> {
    move |value| {
        text(value)?.parse().map_err(|e: T::Err| {
            let what = e.to_string();
            what.strip_prefix(key).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&what).to_string().into()
        })
    }
}

/// As the configuration writes it.
pub(super) struct Printed<'a>(pub &'a Demand);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Demand { pattern, sizes, queues, depth, rate, arrival } = self.0;
        write!(f, "{{ rw = \"{pattern}\", bs = \"{sizes}\", jobs = {queues}, ")?;
        let arrival = match arrival {
            Arrival::Fixed => "fixed",
            Arrival::Poisson => "poisson",
            Arrival::PoissonDrop => "poisson-drop",
        };
        match rate {
            None => write!(f, "qd = {depth} }}"),
            Some(Rate::Iops(n)) => write!(f, "rate = {n}, arrival = \"{arrival}\" }}"),
            Some(Rate::Bandwidth(n)) => write!(f, "rate = \"{}/s\", arrival = \"{arrival}\" }}", Bytes(*n)),
        }
    }
}
