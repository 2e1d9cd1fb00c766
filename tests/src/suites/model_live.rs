//! What `weir-plan` says of a drive, against a live one: in process and over NVMe/TCP.
//!
//! The drive is the bottleneck, not the machine: 8 slots of 800 us make 10,000 commands a second. γ is that of the run itself, as
//! the paper takes it: a machine that is busy with something else makes the drive slower, not the shares wrong.

use super::test;
use crate::bench::{Report, bench, number};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Setup, host_nqn, with_node};
use serde_json::json;
use weir_arbiter::Mechanism;
use weir_plan::{Demand, DriveModel, PlanTenant, Setting, shares};
use weir_units::{Class, Nanos};
use weir_workload::Job;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "model_live";
    vec![test(S, "local", local), test(S, "nvme_tcp", nvme_tcp)]
}

const LATENCY: Nanos = Nanos::from_micros(800);
const SLOTS: u32 = 8;
const SLOT_BYTES: u64 = 128 << 10;
/// How far the model may be off, as a part.
const TOLERANCE: f64 = 0.05;

/// A mechanism and three tenants, as jobs: high, medium, low.
struct Point {
    name: &'static str,
    mechanism: &'static str,
    jobs: [&'static str; 3],
}

const POINTS: [Point; 5] = [
    Point { name: "all backlogged", mechanism: "wrr", jobs: ["bs=4KiB,qd=64", "bs=4KiB,qd=64", "bs=4KiB,qd=64"] },
    Point {
        name: "medium below its share",
        mechanism: "wrr",
        jobs: ["bs=4KiB,qd=64", "bs=8KiB,rate=1200,qd=64", "bs=4KiB,qd=64"],
    },
    Point { name: "sizes 4, 8, 16 KiB", mechanism: "drr", jobs: ["bs=4KiB,qd=64", "bs=8KiB,qd=64", "bs=16KiB,qd=64"] },
    Point {
        name: "mixed sizes, high below its share",
        mechanism: "drr",
        jobs: ["bs=4KiB,rate=2k,qd=64", "bs=4KiB:50/8KiB:50,qd=64", "bs=16KiB,qd=64"],
    },
    Point {
        name: "64 KiB that bytes in flight bind",
        mechanism: "drr",
        jobs: ["bs=4KiB,rate=1k,qd=64", "bs=16KiB,qd=64", "bs=64KiB,qd=64"],
    },
];

const CLASSES: [Class; 3] = [Class::High, Class::Medium, Class::Low];

fn tenants(point: &Point) -> Result<Vec<PlanTenant>, String> {
    let one = |(class, text): (Class, &&str)| {
        let job = Job::parse(text, &Job::default()).context(|| format!("{text:?}"))?;
        Ok(PlanTenant::new(class.name(), class, Demand::of(&job)))
    };
    CLASSES.into_iter().zip(&point.jobs).map(one).collect()
}

/// Commands a second of each tenant on a drive whose commands take `latency`.
fn model(point: &Point, latency: Nanos) -> Result<Vec<f64>, String> {
    let mechanism = if point.mechanism == "wrr" { Mechanism::Wrr } else { Mechanism::Drr };
    let drive = DriveModel::fixed(latency, SLOTS, SLOT_BYTES);
    Ok(shares(&drive, &Setting::new(mechanism), &tenants(point)?).rates)
}

/// The latency at which the model carries as many commands as were measured: the γ of this run.
fn effective(point: &Point, total: f64) -> Result<Nanos, String> {
    let (mut low, mut high) = (LATENCY.0 / 2, LATENCY.0 * 8);
    while high - low > 50 {
        let middle = low.midpoint(high);
        let sum: f64 = model(point, Nanos(middle))?.iter().sum();
        if sum > total { low = middle } else { high = middle }
    }
    Ok(Nanos(low))
}

/// Measures all points and compares; `run` is given a point and its jobs.
fn compare(env: &Env, run: impl Fn(&Point) -> Result<Report, String>) -> Outcome {
    println!("    {:<34} {:<4} {:>8}  high, medium, low: model / measured", "", "", "us");
    let mut bad = Vec::new();
    for point in &POINTS {
        // Where a client does not get to keep its queue filled, its class is not backlogged.
        if let Err(e) = env.majority(|| measured(point, run(point)?).map_err(|e| format!("{}: {e}", point.name))) {
            bad.push(e);
        }
    }
    ensure(bad.is_empty(), || bad.join("; "))
}

/// A point's report against the model.
fn measured(point: &Point, report: Report) -> Outcome {
    report.clean()?;
    let rate = |class: &Class| number(report.job(class.name())?, "iops");
    let found = CLASSES.iter().map(rate).collect::<Result<Vec<f64>, String>>()?;
    let latency = effective(point, found.iter().sum())?;
    let expected = model(point, latency)?;
    let off = expected.iter().zip(&found).map(|(e, f)| (e / f - 1.0).abs()).fold(0.0, f64::max);
    let pairs: Vec<String> = expected.iter().zip(&found).map(|(e, f)| format!("{e:.0} / {f:.0}")).collect();
    let (us, percent) = (latency.0 as f64 / 1e3, off * 100.0);
    println!("    {:<34} {:<4} {us:>8.1}  {}  {percent:.2} %", point.name, point.mechanism, pairs.join(", "));
    ensure(off <= TOLERANCE, || format!("off by {percent:.1} %, not within {} %", TOLERANCE * 100.0))
}

/// Arguments of `weir bench` for the jobs of a point, each with a key of its own.
fn jobs(point: &Point, own: impl Fn(Class) -> String) -> Vec<String> {
    let job = |(class, rest): (Class, &&str)| format!("name={},{},rw=randread,{rest}", class.name(), own(class));
    CLASSES.into_iter().zip(&point.jobs).flat_map(|pair| ["--job".into(), job(pair)]).collect()
}

fn measure(env: &Env, target: &str, jobs: &[String]) -> Result<Report, String> {
    let mut args: Vec<&str> = jobs.iter().map(String::as_str).collect();
    args.extend(["--time", "2s"]);
    bench(env, target, &args)
}

fn local(env: &Env) -> Outcome {
    compare(env, |point| {
        let target = format!(
            "local:ram?capacity=256MiB&arbitration={}&latency={LATENCY}&slots={SLOTS}&slot_bytes={}KiB",
            point.mechanism,
            SLOT_BYTES >> 10
        );
        measure(env, &target, &jobs(point, |class| format!("class={}", class.name())))
    })
}

fn nvme_tcp(env: &Env) -> Outcome {
    let keys = format!(
        "latency = \"{LATENCY}\"\nslots = {SLOTS}\nslot_bytes = \"{}KiB\"\narbitration = \"drr\"",
        SLOT_BYTES >> 10
    );
    let setup = Setup::default().device(&keys).tenants(&[("high1", "high"), ("medium1", "medium"), ("low1", "low")]);
    with_node(env, &setup, |node| {
        let target = node.tcp_target();
        compare(env, |point| {
            let body = json!({ "mechanism": point.mechanism });
            match http::request(&node.api(), "PATCH", "/v1/devices/ssd0", Some(&body))? {
                (200, _) => {}
                (status, text) => return Err(format!("PATCH {body}: {status} {text}")),
            }
            measure(env, &target, &jobs(point, |class| format!("host={}", host_nqn(&format!("{}1", class.name())))))
        })
    })
}
