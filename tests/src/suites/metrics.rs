//! `/metrics`: every command is in a histogram of its tenant, drive and volume, and what ships for Prometheus and Grafana fits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::api_tls::{self, Authority};
use super::pool::{device, head, nqn, setup, volume};
use super::{long, test};
use crate::bench::bench;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, host_nqn, text, with_node};
use crate::process::{Process, run, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "metrics";
    vec![
        test(S, "latencies_by_tenant_drive_and_volume", latencies),
        test(S, "the_board_and_the_rules_name_what_is_there", names_are_there),
        long(S, "prometheus_scrapes_by_tls_with_a_token", prometheus),
        long(S, "promtool_takes_the_rules_and_the_metrics", promtool),
    ]
}

/// A drive that takes 2 ms for everything, and a volume on it.
fn slow_drive() -> crate::node::Setup {
    setup(
        head()
            + &device("d0", "capacity = \"64MiB\"\nlatency = \"2ms\"")
            + &volume("v0", "gold", "12MiB", "\"nvme-tcp\""),
    )
}

/// The same with a store, which tells of itself as well.
fn with_store() -> crate::node::Setup {
    let mut setup = slow_drive();
    setup.whole += "[store]\nmeta = \"memory:\"\nlisten = \"unix:meta.sock\"\n";
    setup
}

fn load(env: &Env, node: &Node) -> Outcome {
    let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn("v0"));
    let job = format!("name=j,rw=randrw,bs=4KiB,qd=8,host={}", host_nqn("gold"));
    bench(env, &target, &["--job", &job, "--verify", "crc32c", "--time", "1s"])?.clean()
}

fn scrape(node: &Node) -> Result<String, String> {
    match http::request(&node.api(), "GET", "/metrics", None)? {
        (200, page) => Ok(page),
        (status, said) => Err(format!("GET /metrics: status {status}: {said}")),
    }
}

/// The value of one sample, by its name and labels.
fn sample(page: &str, name: &str) -> Result<f64, String> {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).ok_or_else(|| format!("no sample {name} in\n{page}"))
}

/// The cumulative counts of a histogram's buckets by their bounds, in order.
fn buckets(page: &str, family: &str, labels: &str) -> Result<Vec<(f64, f64)>, String> {
    let prefix = format!("{family}_bucket{{{labels},le=\"");
    let bucket = |line: &str| {
        let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, count.parse().ok()?))
    };
    let found: Vec<(f64, f64)> = page.lines().filter_map(bucket).collect();
    ensure(found.len() == 23, || format!("{family} {labels}: {} buckets in\n{page}", found.len()))?;
    Ok(found)
}

fn latencies(env: &Env) -> Outcome {
    with_node(env, &slow_drive(), |node| {
        let before = scrape(node)?;
        load(env, node)?;
        let page = scrape(node)?;
        for op in ["read", "write"] {
            let name = format!("weir_tenant_commands_total{{tenant=\"gold\",op=\"{op}\"}}");
            // What the pool has done at the start takes no modelled time, and is nobody's latency.
            let done = sample(&page, &name)? - sample(&before, &name)?;
            ensure(done > 0.0, || format!("no {op} was done"))?;
            for (family, labels) in [
                ("weir_tenant_io_latency_seconds", format!("tenant=\"gold\",op=\"{op}\"")),
                ("weir_device_io_latency_seconds", format!("device=\"d0\",op=\"{op}\"")),
                ("weir_volume_io_latency_seconds", format!("volume=\"v0\",tenant=\"gold\",op=\"{op}\"")),
            ] {
                let buckets = buckets(&page, family, &labels)?;
                ensure(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), || format!("{family}: {buckets:?}"))?;
                let count = sample(&page, &format!("{family}_count{{{labels}}}"))?;
                let sum = sample(&page, &format!("{family}_sum{{{labels}}}"))?;
                ensure(buckets.last().is_some_and(|(_, all)| *all == count), || format!("{family}: {buckets:?}"))?;
                // At the drive there are the pool's own as well.
                let least = if family.starts_with("weir_volume") { 1.0 } else { done };
                ensure(count >= least, || format!("{family}: {count} of {done} commands"))?;
                // The drive takes 2 ms: nothing was quicker.
                ensure(sum >= 0.0019 * count, || format!("{family}: {sum} s for {count} commands"))?;
                let quick = buckets.iter().find(|(bound, _)| *bound == 0.001).map(|(_, n)| *n);
                ensure(quick == Some(0.0), || format!("{family}: {quick:?} within 1 ms: {buckets:?}"))?;
            }
            let silver =
                sample(&page, &format!("weir_tenant_io_latency_seconds_count{{tenant=\"silver\",op=\"{op}\"}}"))?;
            ensure(silver == 0.0, || format!("silver did nothing, and {silver} {op}s are its"))?;
        }
        Ok(())
    })
}

/// Words that are names of metrics.
fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("weir_") && !word.ends_with('_'))
}

fn names_are_there(env: &Env) -> Outcome {
    with_node(env, &with_store(), |node| {
        let page = scrape(node)?;
        let is_there = |name: &str| {
            let kind = |name: &str| page.lines().find_map(|l| l.strip_prefix(&format!("# TYPE {name} ")));
            let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            kind(name).is_some() || part.is_some_and(|family| kind(family) == Some("histogram"))
        };
        for file in ["dist/grafana/weir.json", "dist/prometheus/weir.rules.yml", "dist/prometheus/weir.rules.test.yml"]
        {
            let path = super::bindings::root(env).join(file);
            let shipped = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            ensure(metric_names(&shipped).count() > 5, || format!("{file} asks for nothing"))?;
            let missing: Vec<&str> = metric_names(&shipped).filter(|name| !is_there(name)).collect();
            ensure(missing.is_empty(), || format!("{file} asks for {missing:?}, which is in no scrape"))?;
        }
        Ok(())
    })
}

/// A program of Debian's package: installed, or unpacked where WEIR_PROMETHEUS says; else the test is skipped.
fn of_prometheus(env: &Env, name: &str) -> Option<PathBuf> {
    let unpacked = std::env::var_os("WEIR_PROMETHEUS").map(PathBuf::from);
    let found =
        unpacked.into_iter().chain([PathBuf::from("/usr/bin")]).map(|folder| folder.join(name)).find(|p| p.exists());
    if found.is_none() {
        env.skip(format!("there is no {name}; unpack or install Debian's package prometheus"));
    }
    found
}

/// A Prometheus that comes by TLS has every sample of the page, and works out a percentile.
fn prometheus(env: &Env) -> Outcome {
    let Some(program) = of_prometheus(env, "prometheus") else { return Ok(()) };
    let (dir, api, port) = (env.folder()?, env.free_port()?, env.free_port()?);
    let authority = Authority::new(&dir, "ca")?;
    let certificate = authority.sign(&dir, "node", &["127.0.0.1"], 2099)?;
    let setup = api_tls::setup(&dir, &format!("127.0.0.1:{api}"), &certificate)?;
    with_node(env, &setup, |node| {
        bench(env, &format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn("ssd0")), &["--time", "1s"])?.clean()?;
        let config = dir.join("prometheus.yml");
        let scrape = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: weir\n    scheme: https\n    \
             authorization: {{ credentials_file: {} }}\n    tls_config: {{ ca_file: {} }}\n    \
             static_configs: [{{ targets: [\"127.0.0.1:{api}\"] }}]\n",
            text(&dir.join("read.token")),
            text(&authority.file)
        );
        std::fs::write(&config, scrape).map_err(|e| e.to_string())?;
        let own = format!("127.0.0.1:{port}");
        let args = [
            format!("--config.file={}", text(&config)),
            format!("--web.listen-address={own}"),
            format!("--storage.tsdb.path={}", text(&dir.join("tsdb"))),
        ];
        let mut server = Process::start(&dir, "prometheus", &program, &args)?;
        let query = "sum(weir_device_io_latency_seconds_count{op=\"read\"}) > 0 and \
                     histogram_quantile(0.99, sum by (le) (weir_device_io_latency_seconds_bucket{op=\"read\"})) > 0";
        until(Duration::from_secs(60), "Prometheus has the histograms", || {
            ensure(server.running(), || format!("Prometheus has ended: {}", server.stderr()))?;
            let (url, asked) = (format!("http://{own}/api/v1/query"), format!("query={query}"));
            let answer =
                run(&dir, Path::new("curl"), ["-sS", "--data-urlencode", &asked, &url], Duration::from_secs(10))?;
            let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
            Ok(answer["data"]["result"].as_array().is_some_and(|found| !found.is_empty()).then_some(()))
        })
    })
}

/// Prometheus' own program reads the rules, their tests and a page of metrics.
fn promtool(env: &Env) -> Outcome {
    let Some(promtool) = of_prometheus(env, "promtool") else { return Ok(()) };
    let dir = super::bindings::root(env).join("dist/prometheus");
    for args in [
        &["check", "rules", "weir.rules.yml"][..],
        &["test", "rules", "weir.rules.test.yml"],
        &["check", "config", "prometheus.yml"],
    ] {
        run(&dir, &promtool, args, Duration::from_secs(60))?.success(&format!("promtool {}", args.join(" ")))?;
    }
    with_node(env, &with_store(), |node| {
        load(env, node)?;
        let file = node.dir.join("page");
        std::fs::write(&file, scrape(node)?).map_err(|e| e.to_string())?;
        let check = format!("{} check metrics <{}", promtool.display(), text(&file));
        run(&node.dir, Path::new("/bin/sh"), ["-c", &check], Duration::from_secs(60))?
            .success("promtool check metrics")
            .map(drop)
    })
}
