//! A live drive is calibrated, and a node promises its tenants what the file says that it can keep, and no more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::test;
use crate::bench::number;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::process;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "admission";
    vec![
        test(S, "a_live_drive_is_calibrated", a_live_drive_is_calibrated),
        test(S, "a_calibrated_node_keeps_to_what_it_can", a_calibrated_node_keeps_to_what_it_can),
        test(S, "tenants_come_and_go", tenants_come_and_go),
        test(S, "an_export_is_admitted_or_not", an_export_is_admitted_or_not),
        test(S, "a_calibration_is_whole_or_not_there", a_calibration_is_whole_or_not_there),
        test(S, "a_disturbed_machine_is_not_taken_for_a_drive", a_disturbed_machine_is_not_taken_for_a_drive),
    ]
}

/// 8,000 IOPS, however slow this machine is: 1 ms each, 8 at once.
const DRIVE: &str = "latency = \"1ms\"\nslots = 8";

/// gold and silver are promised what their shares of 4/7 and 2/7 give, bronze what `keys` say.
fn setup(calibration: &Path, bronze: &str) -> Setup {
    let tenant = |name: &str, class: &str, keys: &str| (name.to_owned(), class.to_owned(), keys.to_owned());
    Setup {
        device: format!("{DRIVE}\ncalibration = \"{}\"", text(calibration)),
        tenants: vec![
            tenant("gold", "high", "sla = { iops = 3500 }"),
            tenant("silver", "medium", "sla = { iops = 1600 }"),
            tenant("bronze", "low", bronze),
        ],
        ..Setup::default()
    }
}

/// The same drive in virtual time: what other programs do to this machine is in none of its figures.
fn calibrated(env: &Env) -> Result<PathBuf, String> {
    let dir = env.folder()?;
    let file = dir.join("ssd0.toml");
    let path = text(&file);
    let args =
        ["calibrate", "sim:ram?latency=1ms&slots=8", "--json", "-o", &path, "--mixes", "100", "--sizes", "4KiB,16KiB"];
    let printed = process::run(&dir, &env.weir, args, Duration::from_secs(60))?.success("weir calibrate")?;
    let json: Value = serde_json::from_str(&printed).context(|| printed.clone())?;
    for point in json["points"].as_array().ok_or("no points")? {
        let (a, gamma, p) = (number(point, "a_ns")?, number(point, "iops")?, number(point, "p")?);
        let right = a == 1e6 && (gamma / 8000.0 - 1.0).abs() < 0.002 && (p / 8.0 - 1.0).abs() < 0.002;
        ensure(right, || format!("a {a} ns, {gamma} IOPS, p {p} of a drive of 1 ms and 8 slots"))?;
    }
    Ok(file)
}

fn a_live_drive_is_calibrated(env: &Env) -> Outcome {
    let file = env.folder()?.join("ssd0.toml");
    let setup = Setup::default().device(DRIVE).vfio("pcie.sock", "");
    with_node(env, &setup, |node| calibrate(env, node, &node.tcp_target(), &file))?;
    with_node(env, &setup, |node| {
        calibrate(env, node, &node.vfio_target("pcie.sock"), &file.with_file_name("pcie.toml"))
    })
}

fn calibrate(env: &Env, node: &Node, target: &str, file: &Path) -> Outcome {
    let path = text(file);
    let args = ["calibrate", target, "--json", "-o", &path, "--mixes", "100", "--sizes", "4KiB,16KiB"];
    // Whatever else this machine does: what is asked for below holds all the same.
    let more = ["--time", "90ms", "--depth", "32", "--slots", "8", "--force"];
    let printed = process::run(&node.dir, &env.weir, args.iter().chain(&more), Duration::from_secs(60))?;
    let printed = printed.success("weir calibrate")?;
    let json: Value = serde_json::from_str(&printed).context(|| printed.clone())?;
    let points = json["points"].as_array().ok_or("no points")?;
    ensure(points.len() == 2, || printed.clone())?;
    for point in points {
        let (a, gamma, p) = (number(point, "a_ns")?, number(point, "iops")?, number(point, "p")?);
        println!("    a {:.0} us, {gamma:.0} IOPS, p {p:.2}; the drive has 1000 us, 8000 IOPS, 8", a / 1e3);
        // A machine with much to do makes both worse, and nothing makes them better than the drive.
        ensure(a >= 1e6, || format!("a command alone took {a} ns of a drive of 1 ms"))?;
        ensure(gamma <= 8400.0, || format!("{gamma} IOPS of a drive of 8000"))?;
    }
    let config = node.dir.join("calibrated.toml");
    let with = format!("[[device]]\n{DRIVE}\ncalibration = \"{path}\"\n");
    std::fs::write(&config, with).context(|| text(&config))?;
    node.cli_ok(&["config", "--check", "-c", &text(&config)]).map(drop)
}

fn a_calibrated_node_keeps_to_what_it_can(env: &Env) -> Outcome {
    let file = calibrated(env)?;
    refused_at_start(env, &file)?;
    with_node(env, &setup(&file, ""), |node| {
        let third = ["tenant", "set", "bronze", "--sla-iops", "2500"];
        let refused = node.cli(&third)?;
        let bound = "tenant bronze on ssd0: its SLA, 2500 IOPS, cannot be kept";
        ensure(refused.status.code() == Some(1) && refused.stderr.contains(bound), || refused.stderr.clone())?;
        ensure(tenant(node, "bronze")?["sla"].is_null(), || "a refused SLA was promised".into())?;
        node.cli_ok(&["tenant", "set", "bronze", "--sla-iops", "900"])?;
        let forced = node.cli_ok(&third.iter().copied().chain(["--force"]).collect::<Vec<_>>())?;
        ensure(forced.contains(bound) && tenant(node, "bronze")?["sla"]["iops"] == 2500, || forced.clone())?;
        node.cli_ok(&["tenant", "set", "bronze", "--sla-iops", "none"])?;
        // Up to the class of gold and with eight times its weight, bronze would leave nobody his share.
        let wish = ["tenant", "set", "bronze", "--class", "high", "--weight", "8"];
        let refused = node.cli(&wish)?;
        let said = || format!("{}{}", refused.stdout, refused.stderr);
        ensure(refused.status.code() == Some(1), || format!("it is {}: {}", refused.describe(), said()))?;
        ensure(refused.stderr.contains("tenant gold on ssd0: its SLA, 3500 IOPS, cannot be kept"), said)?;
        ensure(refused.stderr.contains("% too little") && refused.stderr.contains("--force"), said)?;
        ensure(class(node, "bronze")? == "low", || "a refused change was made".into())?;
        let forced: Vec<&str> = wish.into_iter().chain(["--force"]).collect();
        let forced = node.cli_ok(&forced)?;
        ensure(forced.contains("tenant gold on ssd0: its SLA, 3500 IOPS, cannot be kept"), || forced.clone())?;
        ensure(class(node, "bronze")? == "high", || "a forced change was not made".into())?;
        let gold = tenant(node, "gold")?;
        ensure(gold["admission"][0].as_str().is_some_and(|s| s.contains("3500 IOPS")), || gold.to_string())?;
        // What does not make it worse needs no force.
        node.cli_ok(&["tenant", "set", "bronze", "--class", "low", "--weight", "1"])?;
        let gold = tenant(node, "gold")?;
        ensure(gold["admission"].as_array().is_none_or(Vec::is_empty), || gold.to_string())?;
        let swap = node.cli(&["device", "set", "ssd0", "--quanta", "32KiB:64KiB:128KiB"])?;
        ensure(swap.stderr.contains("tenant gold on ssd0"), || swap.stderr.clone())
    })
}

/// A second drive on which high is the least of classes, and that nobody reaches until there are exports.
fn an_export_is_admitted_or_not(env: &Env) -> Outcome {
    let file = calibrated(env)?;
    let mut setup = setup(&file, "");
    let quanta = "quanta = { high = \"32KiB\", medium = \"64KiB\", low = \"128KiB\" }";
    setup.device += &format!("\n[[device]]\nname = \"ssd1\"\n{quanta}\n{}", setup.device.clone());
    with_node(env, &setup, |node| {
        let (one, two) = (text(&node.socket("gold.sock")), text(&node.socket("silver.sock")));
        node.cli_ok(&["export", "vfio-user", "ssd1", &one, "--tenant", "gold"])?;
        let add = ["export", "vfio-user", "ssd1", &two, "--tenant", "silver"];
        let refused = node.cli(&add)?;
        let said = || format!("{}{}", refused.stdout, refused.stderr);
        ensure(refused.status.code() == Some(1), said)?;
        let bound = "tenant gold on ssd1: its SLA, 3500 IOPS, cannot be kept";
        ensure(refused.stderr.contains(bound) && refused.stderr.contains("--force"), said)?;
        ensure(!node.socket("silver.sock").exists(), || "a refused export is there".into())?;
        let judged = || Ok::<_, String>(tenant(node, "gold")?["admission"].to_string());
        ensure(!judged()?.contains("ssd1"), || "gold is said to be in want of what nobody takes".into())?;
        let forced = node.cli_ok(&add.iter().copied().chain(["--force"]).collect::<Vec<_>>())?;
        ensure(forced.contains(bound) && forced.contains("silver.sock"), || forced.clone())?;
        ensure(judged()?.contains("gold on ssd1"), || "a forced export breaks nothing".into())?;
        node.cli_ok(&["export", "rm", &two])?;
        ensure(!judged()?.contains("ssd1"), || "an export that is gone still breaks something".into())
    })
}

/// A fourth tenant, admitted or not while the others are served, does its I/O, and goes.
fn tenants_come_and_go(env: &Env) -> Outcome {
    let file = calibrated(env)?;
    with_node(env, &setup(&file, ""), |node| {
        let host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
        let add = |more: &[&str]| {
            let args: Vec<&str> = ["tenant", "add", "tin", "--host", host].iter().chain(more).copied().collect();
            node.cli(&args)
        };
        let refused = add(&["--class", "low", "--sla-iops", "3000"])?;
        let said = || format!("{}{}", refused.stdout, refused.stderr);
        ensure(refused.status.code() == Some(1), said)?;
        ensure(refused.stderr.contains("tenant tin on ssd0: its SLA, 3000 IOPS, cannot be kept"), said)?;
        ensure(tenant(node, "tin").is_err(), || "a refused tenant is there".into())?;
        // With other shares all of them fit, and the refusal says which: taken at its word.
        let refused = add(&["--class", "low", "--sla-iops", "1400"])?;
        let said = || format!("{}{}", refused.stdout, refused.stderr);
        let command = refused.stderr.split("first make room: weir ").nth(1).ok_or_else(said)?;
        let (shares, weights) = command.trim().split_once(", and for ").unwrap_or((command.trim(), ""));
        node.cli_ok(&shares.split(' ').collect::<Vec<_>>())?;
        let own = weights.split(", and for ").find_map(|part| part.strip_prefix("tin --weight "));
        add(&["--class", "low", "--sla-iops", "1400", "--weight", own.unwrap_or("1")])?.success("weir tenant add")?;
        let twice = add(&[])?;
        ensure(twice.status.code() == Some(1) && twice.stderr.contains("already"), || twice.stderr.clone())?;
        let other = node.cli(&["tenant", "add", "lead", "--host", host])?;
        ensure(other.stderr.contains("tenant \"tin\"'s"), || other.stderr.clone())?;
        let target = node.tcp_target();
        let args = [
            "bench",
            &target,
            "--hostnqn",
            host,
            "--time",
            "300ms",
            "--qd",
            "4",
            "--verify",
            "crc32c",
            "--rw",
            "randwrite",
            "--json",
        ];
        let bench = process::run(&node.dir, &env.weir, args, Duration::from_secs(60))?.success("weir bench")?;
        let bench: Value = serde_json::from_str(&bench).context(|| bench.clone())?;
        let tin = tenant(node, "tin")?;
        let (asked, served) = (&bench["jobs"][0]["ios"], &tin["io"]["writes"]);
        ensure(served.as_u64().is_some_and(|n| n > 0), || format!("{tin}, asked {asked}"))?;
        node.cli_ok(&["tenant", "rm", "tin"])?;
        ensure(tenant(node, "tin").is_err(), || "a removed tenant is there".into())?;
        // Its host is nobody's now: it belongs to whoever takes all of those, or to none.
        let of = |node: &Node, name| tenant(node, name).map(|t| t["io"]["writes"].as_u64().unwrap_or(0));
        let writes = |node: &Node| Ok::<u64, String>(of(node, "gold")? + of(node, "silver")? + of(node, "bronze")?);
        let before = writes(node)?;
        let gone = process::run(&node.dir, &env.weir, args, Duration::from_secs(60))?;
        ensure(!gone.status.success() || writes(node)? > before, || "the host of a removed tenant was served".into())?;
        // Its name and its host are free again.
        add(&["--class", "low"])?.success("weir tenant add")?;
        node.cli_ok(&["tenant", "rm", "tin"])?;
        let vain = node.cli(&["tenant", "rm", "tin"])?;
        ensure(vain.status.code() == Some(1) && vain.stderr.contains("there is no tenant"), || vain.stderr.clone())
    })
}

/// The third tenant's SLA does not fit: the node says so and does not start, unless it is forced to.
fn refused_at_start(env: &Env, file: &Path) -> Outcome {
    let greedy = "sla = { iops = 2500 }";
    match Node::start(env, &setup(file, greedy)) {
        Ok(_) => return Err("a node promised 2500 of 8000 IOPS to a tenant that has a seventh of them".into()),
        Err(why) => {
            ensure(why.contains("tenant bronze on ssd0: its SLA, 2500 IOPS, cannot be kept"), || why.clone())?;
            ensure(!why.contains("tenant gold on") && why.contains("--force"), || why.clone())?;
        }
    }
    let forced = Setup { args: vec!["--force".into()], ..setup(file, greedy) };
    with_node(env, &forced, |node| {
        let bronze = tenant(node, "bronze")?;
        ensure(bronze["admission"][0].as_str().is_some_and(|s| s.contains("2500 IOPS")), || bronze.to_string())
    })
}

fn tenant(node: &Node, name: &str) -> Result<Value, String> {
    let printed = node.cli_ok(&["tenant", "ls", "--json"])?;
    let list: Value = serde_json::from_str(&printed).context(|| printed.clone())?;
    let found = list.as_array().and_then(|l| l.iter().find(|t| t["name"] == name).cloned());
    found.ok_or_else(|| format!("no tenant {name} in {printed}"))
}

fn class(node: &Node, name: &str) -> Result<String, String> {
    Ok(tenant(node, name)?["class"].as_str().unwrap_or_default().to_owned())
}

fn a_calibration_is_whole_or_not_there(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let file = dir.join("c.toml");
    let path = text(&file);
    let target = "local:ram?latency=100us&slots=4";
    let measure = ["calibrate", target, "-o", &path, "--mixes", "100", "--sizes", "4KiB", "--depth", "8"];
    let mut interrupted =
        process::Process::start(&dir, "weir-calibrate", &env.weir, measure.iter().chain(&["--time", "10s"]))?;
    std::thread::sleep(Duration::from_millis(300));
    ensure(interrupted.running(), || "a calibration of a minute was done at once".into())?;
    // Not SIGINT: whoever starts the tests in the background may have it ignored.
    interrupted.signal(rustix::process::Signal::TERM)?;
    interrupted.wait(Duration::from_secs(10))?;
    let left: Vec<String> = std::fs::read_dir(&dir)
        .context(|| text(&dir))?
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("c.toml"))
        .collect();
    ensure(left.is_empty(), || format!("an interrupted calibration left {left:?}"))?;
    let short = measure.iter().chain(&["--time", "60ms", "--force"]);
    process::run(&dir, &env.weir, short, Duration::from_secs(60))?.success("weir calibrate")?;
    let whole = std::fs::read_to_string(&file).context(|| path.clone())?;
    let config = dir.join("weir.toml");
    std::fs::write(&config, "[[device]]\ncalibration = \"c.toml\"\n").context(|| text(&config))?;
    let check = || process::run(&dir, &env.weir, ["config", "--check", "-c", &text(&config)], Duration::from_secs(10));
    check()?.success("weir config --check")?;
    let cut = whole.rfind("[[point]]").ok_or_else(|| whole.clone())?;
    std::fs::write(&file, &whole[..cut]).context(|| path.clone())?;
    let said = check()?;
    ensure(
        said.status.code() == Some(1) && said.stderr.contains("c.toml:9: calibration.points: 1 are announced"),
        || said.stderr.clone(),
    )?;
    let refused =
        process::run(&dir, &env.weir, ["calibrate", "local:file:x.img?capacity=1MiB"], Duration::from_secs(10))?;
    ensure(refused.status.code() == Some(2) && refused.stderr.contains("--destructive"), || refused.stderr.clone())?;
    ensure(!dir.join("x.img").exists(), || "a refused calibration made the file".into())
}

/// A core of this process, and programs that keep it busy.
fn busy_core(dir: &Path) -> Result<(String, Vec<process::Process>), String> {
    let status = std::fs::read_to_string("/proc/self/status").context(|| "/proc/self/status".into())?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let core: String = allowed.trim().chars().take_while(char::is_ascii_digit).collect();
    let spin = ["-c", &core, "sh", "-c", "while :; do :; done"];
    let spinners = (0..3).map(|i| process::Process::start(dir, &format!("spin-{i}"), Path::new("taskset"), spin));
    let spinners = spinners.collect::<Result<_, _>>()?;
    Ok((core, spinners))
}

fn a_disturbed_machine_is_not_taken_for_a_drive(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let (core, _spinners) = busy_core(&dir)?;
    let bench = ["bench", "local:ram", "--rw", "randread", "--time", "1s", "--cores", &core];
    let said = process::run(&dir, &env.weir, bench, Duration::from_secs(60))?.success("weir bench")?;
    let waited =
        said.lines().last().and_then(|line| line.strip_prefix("waited ")?.split(' ').next()?.parse::<f64>().ok());
    // One of four that want a core has it for a quarter of the time.
    ensure(waited.is_some_and(|pct| pct > 40.0), || format!("nothing of a core that three others wanted: {said}"))?;
    let file = dir.join("busy.toml");
    let path = text(&file);
    let common =
        ["--cores", &core, "-o", &path, "--mixes", "100", "--sizes", "4KiB", "--depth", "2", "--time", "300ms"];
    let calibrate = |more: &[&str]| {
        let args = ["calibrate", "local:ram"].iter().chain(&common).chain(more);
        process::run(&dir, &env.weir, args, Duration::from_secs(60))
    };
    let refused = calibrate(&[])?;
    let why = "4KiB, 100 % reads, qd 1: the machine is disturbed: ";
    ensure(refused.status.code() == Some(1) && refused.stderr.contains(why), || refused.describe())?;
    ensure(!file.exists(), || "a refused calibration was written".into())?;
    let forced = calibrate(&["--force"])?;
    ensure(forced.status.success() && forced.stderr.contains(&format!("warning: {why}")), || forced.describe())?;
    ensure(file.exists(), || "a forced calibration was not written".into())
}
