//! `weir bench` itself: every pattern with verification over every door, and its JSON.

use serde_json::Value;

use super::{long, test};
use crate::bench::{Bench, Report, bench, number};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, with_node};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "bench_verify";
    vec![
        test(S, "local_ram", |env| patterns(env, "local:ram?capacity=64MiB")),
        test(S, "local_file", local_file),
        test(S, "nvme_tcp", |env| served(env, "1s", Node::tcp_target, &[])),
        test(S, "nvme_tcp_digests", |env| served(env, "500ms", Node::tcp_target, &["--digests", "hdr,data"])),
        test(S, "vhost_user_split", |env| served(env, "1s", gold, &[])),
        test(S, "vhost_user_packed", |env| served(env, "500ms", gold, &["--ring", "packed"])),
        test(S, "blocks_of_4096", blocks_of_4096),
        test(S, "file_behind_nvme_tcp", file_behind_nvme_tcp),
        test(S, "drive_on_another_nodes_drive", drive_on_another),
        test(S, "a_drive_on_another_node_over_vfio_user", drive_on_another_over_vfio_user),
        test(S, "many_jobs_and_a_series", many_jobs_and_a_series),
        test(S, "data_stays_when_hosts_come_and_go", data_stays),
        test(S, "errors_are_said", errors_are_said),
        test(S, "a_class_that_no_tenant_has", a_class_that_no_tenant_has),
        long(S, "nvme_tcp_long", |env| served(env, "20s", Node::tcp_target, &[])),
        long(S, "vhost_user_long", |env| served(env, "20s", gold, &[])),
    ]
}

/// Each pattern, at a low and a high depth, sizes mixed. What only reads is checked against what `write` left before it.
fn all_patterns(env: &Env, target: &str, time: &str, more: &[&str]) -> Outcome {
    for (rw, bs, qd, jobs, region) in [
        ("randrw", "4KiB", "32", "1", "64MiB"),
        ("randwrite", "512B:30/4KiB:40/64KiB:30", "8", "2", "64MiB"),
        ("randrw:70", "16KiB", "128", "1", "64MiB"),
        ("write", "128KiB", "4", "1", "4MiB"),
        ("randread", "4KiB:50/8KiB:50", "16", "2", "4MiB"),
        ("read", "1MiB", "2", "1", "4MiB"),
    ] {
        // A RAM drive of this process's own is empty at its start: there is nothing for reads alone to check.
        if target.starts_with("local:ram") && matches!(rw, "read" | "randread") {
            continue;
        }
        let what = |e: String| format!("{rw} {bs}: {e}");
        let mut args = vec!["--rw", rw, "--bs", bs, "--qd", qd, "--jobs", jobs, "--region", region, "--time", time];
        args.extend(["--verify", "crc32c"].iter().chain(more));
        let report = bench(env, target, &args).map_err(what)?;
        report.clean().and_then(|()| well_formed(&report)).map_err(what)?;
        println!("    {rw:<10} {bs:<26} depth {qd:>3} x {jobs}: {:>9.0} IOPS verified", report.total("iops")?);
    }
    bench(env, target, &["--rw", "trim", "--bs", "64KiB", "--qd", "4", "--time", time])?.clean()
}

fn patterns(env: &Env, target: &str) -> Outcome {
    all_patterns(env, target, "500ms", &[])
}

fn local_file(env: &Env) -> Outcome {
    // O_DIRECT wants a real file system: beside the binary there is one.
    let folder = env.weir.parent().ok_or("no folder")?;
    let file = folder.join(format!("e2e-{}.img", std::process::id()));
    let result = patterns(env, &format!("local:file:{}?capacity=64MiB", file.display()));
    let _ = std::fs::remove_file(&file);
    result
}

fn served(env: &Env, time: &str, target: fn(&Node) -> String, more: &[&str]) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| all_patterns(env, &target(node), time, more))
}

fn gold(node: &Node) -> String {
    node.socket_target("gold.sock")
}

fn blocks_of_4096(env: &Env) -> Outcome {
    with_node(env, &Setup::default().device("block_size = 4096").socket("gold.sock"), |node| {
        for target in [node.tcp_target(), node.socket_target("gold.sock")] {
            let args =
                ["--rw", "randrw", "--bs", "4KiB:50/32KiB:50", "--qd", "16", "--time", "1s", "--verify", "crc32c"];
            bench(env, &target, &args)?.clean()?;
        }
        Ok(())
    })
}

fn file_behind_nvme_tcp(env: &Env) -> Outcome {
    let folder = env.weir.parent().ok_or("no folder")?;
    let file = folder.join(format!("e2e-node-{}.img", std::process::id()));
    let setup = Setup { media: format!("file:{}", file.display()), ..Setup::default() }.socket("gold.sock");
    let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--time", "2s", "--verify", "crc32c"];
    let result = with_node(env, &setup, |node| {
        bench(env, &node.tcp_target(), &args)?.clean()?;
        bench(env, &node.socket_target("gold.sock"), &args)?.clean()
    });
    let _ = std::fs::remove_file(&file);
    result
}

/// The same over PCIe: the node below has it as a drive on a vfio-user socket.
fn drive_on_another_over_vfio_user(env: &Env) -> Outcome {
    with_node(env, &Setup::default().vfio("below.sock", ""), |below| {
        let setup = Setup { media: format!("nvme:{}?ns=1", below.vfio_target("below.sock")), ..Setup::default() };
        let args = ["--rw", "randrw", "--bs", "4KiB:70/512KiB:30", "--qd", "16", "--time", "1s", "--verify", "crc32c"];
        with_node(env, &setup.vfio("above.sock", ""), |node| {
            bench(env, &node.tcp_target(), &args)?.clean()?;
            bench(env, &node.vfio_target("above.sock"), &args)?.clean()?;
            // It is the one client of the socket below.
            let second = bench(env, &below.vfio_target("below.sock"), &["--time", "100ms"]);
            ensure(second.is_err(), || "a second client is served".into())
        })
    })
}

/// A node whose drive is a namespace of another node, reached through the driver.
fn drive_on_another(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |below| {
        let setup = Setup { media: format!("nvme:{}", below.tcp_target()), ..Setup::default() }.socket("gold.sock");
        let args = ["--rw", "randrw", "--bs", "4KiB:70/512KiB:30", "--qd", "16", "--time", "2s", "--verify", "crc32c"];
        with_node(env, &setup, |node| {
            bench(env, &node.tcp_target(), &args)?.clean()?;
            bench(env, &node.socket_target("gold.sock"), &args)?.clean()?;
            bench(env, &node.tcp_target(), &["--rw", "trim", "--bs", "64KiB", "--qd", "4", "--time", "2s"])?.clean()
        })
    })
}

/// Keys and relations of the report.
fn well_formed(report: &Report) -> Outcome {
    let jobs = report.0["jobs"].as_array().ok_or("no jobs")?;
    ensure(!jobs.is_empty(), || "no jobs".into())?;
    for job in jobs.iter().chain([&report.0["total"]]) {
        let latency = &job["latency_ns"];
        let of = |key| number(latency, key);
        let (mean, p50, p99, p999, max) = (of("mean")?, of("p50")?, of("p99")?, of("p999")?, of("max")?);
        let ordered = 0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max && 0.0 < mean && mean <= max;
        ensure(ordered, || format!("latencies are not ordered: {latency}"))?;
        ensure(number(job, "bandwidth_bytes_per_s")? > 0.0, || format!("bandwidth: {job}"))?;
    }
    let sum: f64 = jobs.iter().filter_map(|j| j["iops"].as_f64()).sum();
    let total = report.total("iops")?;
    ensure((sum - total).abs() <= total * 0.01, || format!("jobs do {sum} IOPS, the total is {total}"))
}

fn many_jobs_and_a_series(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let job = |name: &str, rest: &str| format!("name={name},host={},{rest}", host_nqn(name));
        let (gold, silver) =
            (job("gold", "rw=randread,bs=4KiB,qd=8"), job("silver", "rw=randwrite,bs=8KiB,qd=4,start=1s"));
        let limited = job("bronze", "rw=randread,bs=4KiB,qd=4,rate=1000");
        let args = ["--job", &gold, "--job", &silver, "--job", &limited, "--time", "3s", "--series", "500ms"];
        // A machine that stands still for a moment takes its requests with it.
        env.majority(|| {
            let report = bench(env, &node.tcp_target(), &args)?;
            report.clean()?;
            let points = |name: &str| report.job(name).map(|j| j["series"].as_array().cloned().unwrap_or_default());
            let gold = points("gold")?;
            ensure((5..=7).contains(&gold.len()), || format!("a point every 500 ms for 3 s: {gold:?}"))?;
            let times: Vec<f64> = gold.iter().filter_map(|p| p["t_s"].as_f64()).collect();
            ensure(times.windows(2).all(|w| w[1] > w[0]), || format!("times go up: {times:?}"))?;
            // Silver begins after 1 s, bronze keeps to its rate.
            let silver = points("silver")?;
            let early = silver.iter().filter(|p| p["t_s"].as_f64() < Some(1.0));
            let early = early.filter_map(|p| p["iops"].as_f64()).sum::<f64>();
            ensure(early == 0.0, || format!("silver works before its start: {early}"))?;
            let rate = number(report.job("bronze")?, "iops")?;
            ensure((970.0..1030.0).contains(&rate), || format!("bronze asked for 1000 IOPS and did {rate}"))
        })
    })
}

fn data_stays(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        // Six clients at once on the same drive, each on its own region, over both doors.
        let regions = ["0+32MiB", "32MiB+32MiB", "64MiB+32MiB", "96MiB+32MiB", "128MiB+32MiB"];
        let mut running = Vec::new();
        for (i, region) in regions.iter().enumerate() {
            let target = if i == 0 { node.socket_target("gold.sock") } else { node.tcp_target() };
            let job = format!("name=j{i},rw=randrw,bs=4KiB:80/64KiB:20,qd=8,region={region}");
            running.push(Bench::start(env, &target, &["--job", &job, "--time", "3s", "--verify", "crc32c"])?);
        }
        for (i, bench) in running.into_iter().enumerate() {
            bench.finish().and_then(|r| r.clean()).map_err(|e| format!("client {i}: {e}"))?;
        }
        Ok(())
    })
}

fn errors_are_said(env: &Env) -> Outcome {
    for (target, args, code, says) in [
        ("local:ram", &["--rw", "sideways"][..], 2, "sideways"),
        ("local:ram", &["--bs", "3"], 2, "3"),
        ("local:ram?slits=4", &[], 2, "slits"),
        ("floppy:a", &[], 2, "floppy"),
        ("nvme-tcp://127.0.0.1:1/nqn.x?ns=1", &[], 1, "127.0.0.1:1"),
        ("vhost-user:/does/not/exist", &[], 1, "/does/not/exist"),
    ] {
        let dir = env.folder()?;
        let all: Vec<&str> = ["bench", target, "--time", "100ms"].iter().chain(args).copied().collect();
        let out = crate::process::run(&dir, &env.weir, &all, std::time::Duration::from_secs(10))?;
        let ok = out.status.code() == Some(code) && out.stderr.contains(says) && !out.stderr.contains("panicked");
        ensure(ok, || format!("weir {all:?}: status {code} and '{says}' expected: {}", out.describe()))?;
    }
    let json: Value = bench(env, "local:null", &["--time", "100ms"])?.0;
    ensure(json["total"]["iops"].as_f64() > Some(1000.0), || format!("local:null: {json}"))
}

/// Over NVMe/TCP a host has its tenant's class: a job that says another is refused, or told where it names its host as well.
fn a_class_that_no_tenant_has(env: &Env) -> Outcome {
    let run = |node: &Node, job: &str| {
        let args = ["bench", &node.tcp_target(), "--time", "50ms", "--job", job];
        crate::process::run(&env.folder()?, &env.weir, args, std::time::Duration::from_secs(10))
    };
    with_node(env, &Setup::default().tenants(&[("one", "medium"), ("two", "high")]), |node| {
        let two = host_nqn("two");
        let served = |class: &str| format!("in class {class}");
        for (job, code, says) in [
            // Its host is everybody else's tenant, of class medium.
            (
                "name=a,class=high".to_owned(),
                1,
                "job a: class=high: the drive serves nqn.2026-11.io.weir:host:gold in class medium",
            ),
            ("name=a,class=low".into(), 1, &served("medium")),
            ("name=a,class=medium".into(), 0, ""),
            ("name=a".into(), 0, ""),
            (format!("name=a,class=high,host={two}"), 0, ""),
            (format!("name=a,class=urgent,host={two}"), 0, &served("high")),
        ] {
            let out = run(node, &job)?;
            let told = out.stderr.contains("the drive serves");
            let ok = out.status.code() == Some(code) && out.stderr.contains(says) && told != says.is_empty();
            ensure(ok, || format!("--job {job}: status {code} and '{says}' expected: {}", out.describe()))?;
        }
        Ok(())
    })?;
    // Where CATTR counts, a job has what it asks for up to its tenant's class.
    let cattr = Setup { export: "class_from = \"cattr\"".into(), ..Setup::default().tenants(&[("one", "high")]) };
    with_node(env, &cattr, |node| {
        for job in ["name=a,class=high", "name=a,class=low"] {
            let out = run(node, job)?;
            ensure(out.status.success() && out.stderr.is_empty(), || format!("--job {job}: {}", out.describe()))?;
        }
        Ok(())
    })
}
