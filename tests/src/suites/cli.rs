//! The command line and the life of a node: start, status, changes, drain, and every way in which a start fails.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{long, test};
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{DEFAULT_KEEPER, GUEST_HOST, NQN, Node, Setup, with_node};
use crate::process::{Finished, Process, run};
use crate::raw::nvme_tcp::Host;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "cli";
    vec![
        test(S, "help_version_usage", help_version_usage),
        test(S, "completions", completions),
        test(S, "bad_configurations_name_file_line_and_key", bad_configurations),
        test(S, "busy_port_says_which_and_who", busy_port),
        test(S, "busy_socket_says_which_and_who", busy_socket),
        test(S, "no_permission", no_permission),
        test(S, "a_runtime_folder_that_is_not_there_is_named", no_runtime_folder),
        test(S, "default_node", default_node),
        test(S, "status_and_lists", status_and_lists),
        test(S, "doctor_and_top", doctor_and_top),
        test(S, "apply_a_file_while_io_runs", apply),
        test(S, "tenant_and_device_set", tenant_and_device_set),
        test(S, "http_api", http_api),
        test(S, "sigterm_and_sigint_drain", sigterm_and_sigint),
        test(S, "shutdown_command", shutdown_command),
        test(S, "idle_node_uses_no_cpu", |env| idle(env, 5)),
        test(S, "many_starts_and_stops", many_starts),
        long(S, "idle_node_uses_no_cpu_long", |env| idle(env, 60)),
    ]
}

/// Runs the binary with nothing behind it.
fn weir(env: &Env, args: &[&str]) -> Result<Finished, String> {
    run(&env.folder()?, &env.weir, args, Duration::from_secs(15))
}

fn help_version_usage(env: &Env) -> Outcome {
    let help = weir(env, &["--help"])?.success("weir --help")?;
    for command in ["up", "status", "device", "tenant", "bench", "shutdown", "completions"] {
        ensure(help.contains(command), || format!("weir --help does not name {command}: {help}"))?;
    }
    let version = weir(env, &["--version"])?.success("weir --version")?;
    ensure(version.starts_with("weir "), || version.clone())?;
    for args in [&["frobnicate"][..], &["up", "--frobnicate"], &["tenant", "set"], &["bench"]] {
        let out = weir(env, args)?;
        ensure(out.status.code() == Some(2), || format!("weir {args:?}: {}", out.describe()))?;
        ensure(out.stderr.contains("Usage") || out.stderr.contains("usage"), || out.describe())?;
    }
    let nobody = weir(env, &["status", "--api", "unix:/does/not/exist.sock"])?;
    let said = nobody.status.code() == Some(1) && nobody.stderr.contains("/does/not/exist.sock");
    ensure(said, || format!("status of a node that is not there: {}", nobody.describe()))
}

fn completions(env: &Env) -> Outcome {
    for shell in ["bash", "zsh", "fish"] {
        let script = weir(env, &["completions", shell])?.success("weir completions")?;
        ensure(script.contains("bench") && script.contains("tenant"), || format!("{shell}: {script}"))?;
        if shell == "bash" {
            let file = env.folder()?.join("weir.bash");
            std::fs::write(&file, script).context(|| "a file".into())?;
            let check = ["-n".into(), file.display().to_string()];
            run(&env.folder()?, Path::new("/bin/bash"), check, Duration::from_secs(5))?.success("bash -n")?;
        }
    }
    Ok(())
}

/// Starts a node that cannot start; what it said.
fn refused(env: &Env, text: &str) -> Result<Finished, String> {
    let dir = env.folder()?;
    let file = dir.join("weir.toml");
    std::fs::write(&file, text).context(|| "weir.toml".into())?;
    let out = run(&dir, &env.weir, ["up", "-c", "weir.toml"], Duration::from_secs(10))?;
    let fine = out.status.code() == Some(1) && !out.stderr.contains("panicked");
    ensure(fine, || format!("a node that cannot start ends with 1 and a message: {}\n{text}", out.describe()))?;
    Ok(out)
}

fn bad_configurations(env: &Env) -> Outcome {
    for (text, line, key) in [
        ("[[device]]\nname = \"a\"\ncolour = \"red\"\n", 3, "colour"),
        ("[[device]]\nname = \"a\"\ncapacity = \"4 KB\"\n", 3, "capacity"),
        ("[[device]]\ncapacity = \"12 parsecs\"\n", 2, "capacity"),
        ("[[device]]\nslots = 0\n", 2, "slots"),
        ("[[device]]\nslots = \"many\"\n", 2, "slots"),
        ("[[device]]\nlatency = \"80\"\n", 2, "latency"),
        ("[[device]]\narbitration = \"lottery\"\n", 2, "arbitration"),
        ("[[device]]\nquanta = { high = \"128KiB\", higher = \"1MiB\" }\n", 2, "higher"),
        ("[[tenant]]\nname = \"gold\"\nclass = \"platinum\"\n", 3, "class"),
        ("[[tenant]]\nname = \"gold\"\nclass = \"urgent\"\n", 3, "class"),
        ("[[tenant]]\nname = \"gold\"\nhosts = [\"gold\"]\n", 3, "hosts"),
        ("[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"\n", 4, "name"),
        ("[[export]]\ndevice = \"nothing\"\ndoor = \"nvme-tcp\"\n", 2, "device"),
        ("[[export]]\ndoor = \"trapdoor\"\n", 2, "door"),
        ("[node]\ncores = [100000]\n", 2, "cores"),
        ("[node]\napi = \"0.0.0.0:9400\"\n", 2, "api"),
        ("[nodes]\n", 1, "nodes"),
        ("[node]\nname = \n", 2, ""),
    ] {
        let out = refused(env, text)?;
        let place = format!("weir.toml:{line}");
        let named = out.stderr.contains(&place) && out.stderr.contains(key);
        ensure(named, || format!("'{place}' and '{key}' expected for\n{text}{}", out.describe()))?;
    }
    let missing = weir(env, &["up", "-c", "nowhere.toml"])?;
    let said = missing.status.code() == Some(1) && missing.stderr.contains("nowhere.toml");
    ensure(said, || missing.describe())
}

fn busy_port(env: &Env) -> Outcome {
    let mine = TcpListener::bind(("127.0.0.1", 0)).context(|| "a port".into())?;
    let port = mine.local_addr().context(|| "a port".into())?.port();
    let out =
        refused(env, &format!("[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n[node]\napi = \"unix:a.sock\"\n"))?;
    let (pid, place) = (std::process::id().to_string(), format!("127.0.0.1:{port}"));
    ensure(out.stderr.contains(&place) && out.stderr.contains(&pid), || {
        format!("{place} is held by process {pid}, which the message does not say: {}", out.describe())
    })
}

fn busy_socket(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let port = env.free_port()?;
        let pid = node.process().pid().to_string();
        for (what, text) in [
            ("weir.sock", format!("[node]\napi = \"unix:{}/weir.sock\"\n", node.dir.display())),
            (
                "gold.sock",
                format!(
                    "[node]\napi = \"unix:other.sock\"\n[[tenant]]\nname = \"t\"\n[[export]]\ntenant = \"t\"\n\
                     door = \"vhost-user:{}/gold.sock\"\n",
                    node.dir.display()
                ),
            ),
        ] {
            let out = refused(env, &format!("{text}[door.nvme-tcp]\nlisten = \"127.0.0.1:{port}\"\n"))?;
            ensure(out.stderr.contains(what) && out.stderr.contains(&pid), || {
                format!("{what} is held by process {pid}, which the message does not say: {}", out.describe())
            })?;
        }
        // Both still belong to the first node.
        node.alive()?;
        bench(env, &node.socket_target("gold.sock"), &["--time", "200ms"])?.clean()
    })?;
    // What a dead process left behind is nobody's.
    let dir = env.folder()?;
    drop(UnixListener::bind(dir.join("weir.sock")).context(|| "a socket".into())?);
    drop(UnixListener::bind(dir.join("gold.sock")).context(|| "a socket".into())?);
    let text = format!(
        "[node]\napi = \"unix:weir.sock\"\n[[tenant]]\nname = \"t\"\n[[export]]\ntenant = \"t\"\ndoor = \"vhost-user:gold.sock\"\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:{}\"\n",
        env.free_port()?
    );
    std::fs::write(dir.join("weir.toml"), text).context(|| "weir.toml".into())?;
    let mut stale = Process::start(&dir, "weir-up", &env.weir, ["up", "-c", "weir.toml"])?;
    answers(&mut stale, &dir.join("weir.sock"))?;
    stale.signal(Signal::TERM)?;
    stale.wait(Duration::from_secs(10))?.success("a node on stale sockets").map(|_| ())
}

/// Waits until a node's API answers.
fn answers(process: &mut Process, socket: &Path) -> Outcome {
    crate::process::until(Duration::from_secs(10), "the node answers", || {
        ensure(process.running(), || format!("the node ended: {}{}", process.stdout(), process.stderr()))?;
        Ok(http::get(socket, "/v1/status").ok())
    })
    .map(|_| ())
}

/// As another user, who may not write into the folder of the socket.
fn no_permission(env: &Env) -> Outcome {
    let dir = env.folder()?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).context(|| "chmod".into())?;
    let text =
        format!("[node]\napi = \"unix:weir.sock\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:{}\"\n", env.free_port()?);
    std::fs::write(dir.join("weir.toml"), text).context(|| "weir.toml".into())?;
    let out = if rustix::process::getuid().is_root() {
        // The binary may lie where only root can see it: a copy in the folder.
        let copy = dir.join("weir");
        std::fs::copy(&env.weir, &copy).context(|| "a copy of weir".into())?;
        let copy = copy.display().to_string();
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", &copy, "up", "-c", "weir.toml"];
        run(&dir, Path::new("setpriv"), user, Duration::from_secs(10))?
    } else {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o555)).context(|| "chmod".into())?;
        run(
            &std::env::temp_dir(),
            &env.weir,
            ["up".into(), "-c".into(), dir.join("weir.toml").display().to_string()],
            Duration::from_secs(10),
        )?
    };
    let _ = std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755));
    let said = out.status.code() == Some(1)
        && out.stderr.contains("weir.sock")
        && out.stderr.to_lowercase().contains("permission");
    ensure(said && !out.stderr.contains("panicked"), || out.describe())
}

/// As a user whose runtime folder is not there: the error names the variable that says where it is.
fn no_runtime_folder(env: &Env) -> Outcome {
    let dir = env.folder()?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).context(|| "chmod".into())?;
    let copy = dir.join("weir");
    std::fs::copy(&env.weir, &copy).context(|| "a copy of weir".into())?;
    let copy = copy.display().to_string();
    let up = ["XDG_RUNTIME_DIR=/no/such", &copy, "up"];
    let out = if rustix::process::getuid().is_root() {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "env"];
        run(&dir, Path::new("setpriv"), [&user[..], &up].concat(), Duration::from_secs(10))?
    } else {
        run(&dir, Path::new("env"), up, Duration::from_secs(10))?
    };
    let said = out.stderr.contains("/no/such/weir: ") && out.stderr.contains("; XDG_RUNTIME_DIR names the folder");
    ensure(out.status.code() == Some(1) && said, || out.describe())
}

/// `weir up` without a configuration: gold, silver and bronze on one drive, and lines to paste that work.
fn default_node(env: &Env) -> Outcome {
    let busy = TcpListener::bind(("127.0.0.1", 4420)).is_err();
    ensure(!busy, || "port 4420, which the built-in default listens on, is taken on this machine".into())?;
    let dir = env.folder()?;
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(&env.weir).arg("up").env("XDG_RUNTIME_DIR", &dir);
    let mut process = Process::spawn(&dir, "weir-up", command)?;
    let target = crate::process::until(Duration::from_secs(10), "the node says how to connect", || {
        ensure(process.running(), || format!("the node ended: {}{}", process.stdout(), process.stderr()))?;
        let printed = process.stdout();
        let line = printed.lines().find(|l| l.contains("bench") && l.contains("nvme-tcp://"));
        Ok(line.and_then(|l| l.split_whitespace().find(|w| w.contains("nvme-tcp://")).map(str::to_owned)))
    })?;
    let printed = process.stdout();
    for says in ["nvme connect", "vhost-user-blk", "weir bench"] {
        ensure(printed.contains(says), || format!("weir up does not say how to connect by '{says}': {printed}"))?;
    }
    let target = target.trim_matches(['\'', '"']).to_owned();
    bench(env, &target, &["--time", "300ms", "--verify", "crc32c", "--rw", "randrw"])?.clean()?;
    process.signal(Signal::INT)?;
    process.wait(Duration::from_secs(10))?.success("the default node after SIGINT").map(|_| ())
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).context(|| format!("no JSON: {text}"))
}

fn apply(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let running = || http::request(&node.api(), "GET", "/v1/config", None).map(|(_, text)| text);
        let (file, before) = (env.folder()?.join("wanted.toml"), running()?);
        let path = file.to_str().ok_or("the folder's name")?;
        let write = |text: &str| std::fs::write(&file, text).context(|| path.to_owned());
        write(&before)?;
        let same = node.cli_ok(&["apply", "-c", path])?;
        ensure(same == "nothing differs\n", || same.clone())?;
        let other = before.replace("name = \"silver\"\n", "name = \"tin\"\n").replace("weight = 1\n", "weight = 7\n");
        ensure(other != before, || format!("nothing to replace in {before}"))?;
        write(&other)?;
        let dry = node.cli_ok(&["apply", "-c", path, "--dry-run"])?;
        ensure(dry.contains("tenant tin: new") && dry.contains("--dry-run"), || dry.clone())?;
        ensure(running()? == before, || "--dry-run has changed something".into())?;
        // One that needs a restart among them: nothing is changed, and its line is named.
        let line = 1 + other.lines().position(|l| l.starts_with("block_size")).ok_or("no block_size")?;
        write(&other.replace("block_size = 512\n", "block_size = 4096\n"))?;
        let refused = node.cli(&["apply", "-c", path])?;
        let names = format!("wanted.toml:{line}: device ssd0: block_size 512 -> 4096: needs a restart");
        ensure(refused.status.code() == Some(1) && refused.stderr.contains(&names), || refused.describe())?;
        ensure(running()? == before, || "a refused file has changed something".into())?;
        // Under load; the tenants that stay keep their connections.
        let load = std::thread::scope(|scope| {
            let load = scope
                .spawn(|| bench(env, &node.tcp_target(), &["--time", "1s", "--verify", "crc32c", "--rw", "randrw"]));
            std::thread::sleep(Duration::from_millis(300));
            write(&other)?;
            let applied = node.cli_ok(&["apply", "-c", path])?;
            ensure(applied.ends_with("applied\n"), || applied.clone())?;
            load.join().map_err(|_| "the load panicked".to_owned())?
        })?;
        load.clean()?;
        write(&other)?;
        let again = node.cli_ok(&["apply", "-c", path])?;
        ensure(again == "nothing differs\n", || again.clone())?;
        // A change that the node refuses: what was changed before it is taken back.
        let now = running()?;
        let nobody = now.replace("weight = 7\n", "weight = 9\n").replace("name = \"gold\"\n", "name = \"lead\"\n");
        let _connected = Host::admin(node.address(), GUEST_HOST, 0)?;
        write(&nobody)?;
        let refused = node.cli(&["apply", "-c", path])?;
        let said = refused.status.code() == Some(1) && refused.stderr.contains("nothing was changed");
        ensure(said, || refused.describe())?;
        let after = running()?;
        ensure(after == now, || format!("half applied: {after}"))
    })
}

/// What they find depends on the machine; that they look, and at this node, does not.
fn doctor_and_top(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let bundle = env.folder()?.join("help.tar.gz");
        let name = bundle.to_str().ok_or("the folder's name")?;
        let report = parse(&node.cli_ok(&["doctor", "--json", "--bundle", name])?)?;
        let looked_at = |what: &str| report["findings"].as_array().into_iter().flatten().any(|f| f["what"] == what);
        ensure(report["ok"] == true && looked_at("io_uring") && looked_at("device ssd0"), || report.to_string())?;
        let listed = run(&env.folder()?, Path::new("tar"), ["-tzf", name], Duration::from_secs(15))?.success("tar")?;
        for file in
            ["weir-bundle/doctor.json", "weir-bundle/nodes/node/status.json", "weir-bundle/machine/proc-meminfo"]
        {
            ensure(listed.lines().any(|line| line == file), || format!("no {file} in {listed}"))?;
        }
        let wrong = node.cli(&["doctor", "-c", "/nowhere.toml"])?;
        ensure(wrong.status.code() == Some(1) && wrong.stdout.contains("/nowhere.toml"), || wrong.describe())?;
        let pictures = node.cli_ok(&["top", "-i", "100ms", "-n", "2", "--json"])?;
        let pictures: Vec<Value> = pictures.lines().map(parse).collect::<Result<_, _>>()?;
        ensure(pictures.len() == 2 && pictures[1]["devices"][0]["name"] == "ssd0", || format!("{pictures:?}"))?;
        let text = node.cli_ok(&["top", "-i", "100ms", "-n", "1"])?;
        ensure(text.contains("ssd0") && text.contains("gold"), || text.clone())?;
        let nobody = weir(env, &["top", "--json", "--api", "unix:/does/not/exist.sock"])?;
        let error = parse(&nobody.stderr)?;
        ensure(nobody.status.code() == Some(1) && error["exit_status"] == 1, || nobody.describe())
    })
}

fn status_and_lists(env: &Env) -> Outcome {
    with_node(env, &Setup::default().socket("gold.sock"), |node| {
        let status = parse(&node.cli_ok(&["status", "--json"])?)?;
        ensure(status["state"] == "serving", || status.to_string())?;
        ensure(status["pid"].as_u64() == Some(node.process().pid().into()), || status.to_string())?;
        ensure(status["devices"][0]["nqn"] == NQN, || status.to_string())?;
        let devices = parse(&node.cli_ok(&["device", "ls", "--json"])?)?;
        ensure(devices[0]["capacity_bytes"] == 256 << 20, || devices.to_string())?;
        let tenants = parse(&node.cli_ok(&["tenant", "ls", "--json"])?)?;
        let names: Vec<&str> = tenants.as_array().into_iter().flatten().filter_map(|t| t["name"].as_str()).collect();
        ensure(names == ["gold", "silver", "bronze"], || tenants.to_string())?;
        // For people, too.
        for (args, says) in [(&["status"][..], "ssd0"), (&["device", "ls"], "ssd0"), (&["tenant", "ls"], "silver")] {
            let text = node.cli_ok(args)?;
            ensure(text.contains(says), || format!("weir {args:?}: {text}"))?;
        }
        // For scripts, and for those who read YAML.
        ensure(node.cli_ok(&["tenant", "ls", "-o", "name"])? == "gold\nsilver\nbronze\n", || "-o name".into())?;
        ensure(node.cli_ok(&["status", "-o", "name"])? == "e2e\n", || "status -o name".into())?;
        let set = node.cli_ok(&["tenant", "set", "gold", "--weight", "2", "-o", "name"])?;
        ensure(set == "gold\n", || format!("tenant set -o name: {set:?}"))?;
        let socket = node.cli_ok(&["export", "ls", "-o", "name"])?;
        ensure(socket.lines().any(|line| line.ends_with("/gold.sock")), || socket.clone())?;
        let yaml = node.cli_ok(&["device", "ls", "-o", "yaml"])?;
        ensure(yaml.starts_with("- ") && yaml.contains("\n  name: ssd0\n"), || yaml.clone())?;
        ensure(parse(&node.cli_ok(&["status", "-o", "json"])?)?["state"] == "serving", || "-o json".into())?;
        let both = node.cli(&["status", "-o", "yaml", "--json"])?;
        ensure(both.status.code() == Some(2) && both.stderr.contains("--output"), || both.describe())?;
        // What was done is counted, at the drive and for the tenant.
        bench(env, &node.tcp_target(), &["--time", "300ms", "--rw", "randread"])?.clean()?;
        let status = parse(&node.cli_ok(&["status", "--json"])?)?;
        let reads = |v: &Value| v["io"]["reads"].as_u64().unwrap_or(0);
        let tenants: u64 = status["tenants"].as_array().into_iter().flatten().map(reads).sum();
        let device = reads(&status["devices"][0]);
        ensure(device > 100 && tenants == device, || format!("{device} reads at the drive, {tenants} of tenants"))?;
        ensure(status["devices"][0]["slots_busy"] == 0, || status.to_string())
    })
}

fn tenant_and_device_set(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        node.cli_ok(&["tenant", "set", "silver", "--class", "high", "--weight", "3"])?;
        let tenants = parse(&node.cli_ok(&["tenant", "ls", "--json"])?)?;
        ensure(tenants[1]["class"] == "high" && tenants[1]["weight"] == 3, || tenants.to_string())?;
        let set = ["device", "set", "ssd0", "--arbitration", "wrr", "--weights", "20:10:5", "--burst", "8"];
        node.cli_ok(&set)?;
        node.cli_ok(&["device", "set", "ssd0", "--quanta", "1MiB:64KiB:4KiB"])?;
        let devices = parse(&node.cli_ok(&["device", "ls", "--json"])?)?;
        let now = &devices[0]["arbitration"];
        let wanted = json!({ "mechanism": "wrr", "burst": 3, "weights": { "high": 20, "medium": 10, "low": 5 },
            "quanta": { "high": 1 << 20, "medium": 65_536, "low": 4096 } });
        ensure(*now == wanted, || format!("{now} instead of {wanted}"))?;
        for (args, says) in [
            (&["device", "set", "ssd7", "--burst", "none"][..], "ssd7"),
            (&["device", "set", "ssd0", "--weights", "1:2"], "1:2"),
            (&["device", "set", "ssd0", "--quanta", "1:2:3"], "1"),
            (&["tenant", "set", "nobody", "--class", "high"], "nobody"),
            (&["tenant", "set", "silver", "--class", "urgent"], "urgent"),
            (&["tenant", "set", "silver", "--weight", "1000"], "1000"),
        ] {
            let out = node.cli(args)?;
            let said = !out.status.success() && out.stderr.contains(says) && !out.stderr.contains("panicked");
            ensure(said, || format!("weir {args:?}: {}", out.describe()))?;
        }
        node.alive()
    })
}

fn http_api(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let api = node.api();
        let description = http::get(&api, "/openapi.json")?;
        for path in ["/v1/status", "/v1/devices", "/v1/tenants", "/v1/exports", "/v1/shutdown"] {
            ensure(description["paths"][path].is_object(), || format!("{path} is not described: {description}"))?;
        }
        let (status, metrics) = http::request(&api, "GET", "/metrics", None)?;
        ensure(status == 200 && metrics.contains("# TYPE weir_"), || metrics.clone())?;
        for (method, path, body, code) in [
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "mechanism": "wrr", "burst": 2 })), 200),
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "burst": null })), 200),
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "mechanism": "lottery" })), 400),
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "weights": { "high": 0 } })), 400),
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "quanta": { "high": 1 } })), 400),
            ("PATCH", "/v1/devices/ssd0", Some(json!({ "colour": "red" })), 400),
            ("PATCH", "/v1/devices/ssd0", Some(json!([])), 400),
            ("PATCH", "/v1/devices/none", Some(json!({ "mechanism": "wrr" })), 404),
            ("PATCH", "/v1/tenants/gold", Some(json!({ "weight": 0 })), 400),
            ("DELETE", "/v1/devices/ssd0", None, 405),
            ("GET", "/v1/unicorns", None, 404),
        ] {
            let (status, text) = http::request(&api, method, path, body.as_ref())?;
            ensure(status == code, || format!("{method} {path} {body:?}: {status} instead of {code}: {text}"))?;
            ensure(code < 400 || parse(&text)?["error"].is_string(), || format!("{method} {path}: {text}"))?;
        }
        let device = http::get(&api, "/v1/devices/ssd0")?;
        ensure(device["arbitration"]["mechanism"] == "wrr", || device.to_string())
    })
}

/// In the middle of I/O: what is in flight is finished, the status is 0.
fn sigterm_and_sigint(env: &Env) -> Outcome {
    for (signal, keeper) in [
        (Signal::TERM, "keeper = false"),
        (Signal::INT, "keeper = false"),
        (Signal::TERM, DEFAULT_KEEPER),
        (Signal::INT, DEFAULT_KEEPER),
    ] {
        let setup = Setup { node: keeper.into(), ..Setup::default() };
        let mut node = Node::start(env, &setup.socket("gold.sock"))?;
        let args = ["--rw", "randrw", "--qd", "32", "--time", "20s"];
        let tcp = Bench::start(env, &node.tcp_target(), &args)?;
        let vhost = Bench::start(env, &node.socket_target("gold.sock"), &args)?;
        crate::process::until(Duration::from_secs(10), "I/O runs", || {
            let device = http::get(&node.api(), "/v1/devices/ssd0")?;
            Ok((device["io"]["reads"].as_u64() > Some(1000)).then_some(()))
        })?;
        node.process().signal(signal)?;
        let (api, socket) = (node.api(), node.socket("gold.sock"));
        let begin = std::time::Instant::now();
        node.finish()?;
        println!("    {signal:?} {keeper}: drained in {:.2} s", begin.elapsed().as_secs_f64());
        ensure(!api.exists() && !socket.exists(), || "sockets are left behind".into())?;
        // The clients notice; how they end is theirs.
        drop((tcp, vhost));
    }
    Ok(())
}

fn shutdown_command(env: &Env) -> Outcome {
    let node = Node::start(env, &Setup::default())?;
    node.cli_ok(&["shutdown"])?;
    node.finish()
}

/// CPU time of a node with nothing to do: alone, with a host that is connected and silent, and after work.
fn idle(env: &Env, seconds: u32) -> Outcome {
    let setup = Setup { node: DEFAULT_KEEPER.into(), ..Setup::default() };
    with_node(env, &setup.socket("gold.sock"), |node| {
        let measure = |node: &mut Node, what: &str| {
            std::thread::sleep(Duration::from_millis(500));
            let before = node.cpu_time()?;
            std::thread::sleep(Duration::from_secs(seconds.into()));
            let used = node.cpu_time()? - before;
            let percent = used.as_secs_f64() / f64::from(seconds) * 100.0;
            println!("    {what}: {percent:.2} % of a core");
            ensure(percent < 1.0, || format!("{what}, the node uses {percent:.2} % of a core"))
        };
        measure(node, "freshly started")?;
        let (_admin, cntlid) = Host::admin(node.address(), GUEST_HOST, 0)?;
        let _queues: Vec<Host> =
            (1..=16).map(|q| Host::io_queue(node.address(), GUEST_HOST, cntlid, q)).collect::<Result<_, _>>()?;
        measure(node, "with a silent host of 16 queues")?;
        bench(env, &node.tcp_target(), &["--time", "500ms", "--qd", "32"])?.clean()?;
        bench(env, &node.socket_target("gold.sock"), &["--time", "500ms", "--qd", "32"])?.clean()?;
        measure(node, "after work")
    })
}

fn many_starts(env: &Env) -> Outcome {
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let begin = std::time::Instant::now();
        let node = Node::start(env, &Setup::default())?;
        slowest = slowest.max(begin.elapsed());
        node.stop()?;
    }
    println!("    20 starts, the slowest answers after {:.0} ms", slowest.as_secs_f64() * 1e3);
    Ok(())
}
