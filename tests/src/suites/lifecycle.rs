//! How a node that is started as people start it begins, is told apart, loses its terminal and ends; and what a start that fails leaves.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use super::pool::{device, head, volume};
use super::test;
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{DEFAULT_KEEPER, Node, Setup, text, with_node};
use crate::process::{Process, run, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "lifecycle";
    vec![
        test(S, "the_default_survives_kills_and_upgrades", by_default),
        test(S, "processes_say_what_they_are", names),
        test(S, "sighup_ends_a_node_without_a_keeper", hangs_up_alone),
        test(S, "sighup_leaves_a_keeper_alone", hangs_up_a_keeper),
        test(S, "sighup_takes_up_the_file_that_has_changed", reloads),
        test(S, "a_closed_terminal_ends_the_node_in_good_order", closed_terminal),
        test(S, "nohup_keeps_the_node_of_a_closed_terminal", nohup),
        test(S, "an_upgrade_during_another_is_refused_in_words", upgrades_meet),
        test(S, "files_beside_an_image_are_nobody_elses", modes),
        test(S, "a_start_that_fails_leaves_nothing", leaves_nothing),
        test(S, "a_volume_shrinks_only_when_asked_to", shrinks),
    ]
}

fn default_setup() -> Setup {
    Setup { node: DEFAULT_KEEPER.into(), ..Setup::default() }
}

/// The configuration says nothing of a keeper: a kill of the worker and an upgrade are survived, and SIGKILL of the first process ends all.
fn by_default(env: &Env) -> Outcome {
    let mut node = Node::start(env, &default_setup().socket("gold.sock"))?;
    let target = node.socket_target("gold.sock");
    let region = ["--region", "4MiB", "--verify", "crc32c", "--time", "300ms"];
    bench(env, &target, &[&["--rw", "write"], &region[..]].concat())?.clean()?;
    let load =
        ["--rw", "randrw", "--qd", "8", "--bs", "4KiB", "--region", "4MiB", "--verify", "crc32c", "--time", "3s"];
    let load = Bench::start(env, &target, &load)?;
    std::thread::sleep(Duration::from_millis(300));
    let before = node.worker()?;
    node.kill_worker()?;
    until(Duration::from_secs(10), "another worker serves", || {
        let other = node.worker()? != before;
        Ok((other && http::get(&node.api(), "/v1/status").is_ok()).then_some(()))
    })?;
    let status = http::get(&node.api(), "/v1/status")?;
    ensure(status["pid"].as_u64() == Some(node.process().pid().into()), || status.to_string())?;
    ensure(node.cli_ok(&["upgrade", "--probation", "0s"])?.contains("serves; it prepared"), || node.log())?;
    load.finish()?.clean()?;
    let worker = node.worker()?;
    node.kill()?;
    until(Duration::from_secs(10), "the worker ends with its keeper", || {
        Ok((!Path::new(&format!("/proc/{}/fd/0", worker.as_raw_nonzero())).exists()).then_some(()))
    })?;
    node.start_again()?;
    node.stop()
}

fn proc(pid: u32, file: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{file}");
    let said = std::fs::read(&path).context(|| path)?;
    Ok(String::from_utf8_lossy(&said).replace('\0', " ").trim_end().to_owned())
}

/// By ps(1) and top(1), also after an upgrade, after which both of them run what lies behind a descriptor.
fn names(env: &Env) -> Outcome {
    let setup = Setup { node: format!("{DEFAULT_KEEPER}\nstandby = true"), ..Setup::default() };
    with_node(env, &setup, |node| {
        for upgrade in [false, true] {
            if upgrade {
                node.cli_ok(&["upgrade", "--probation", "0s"])?;
            }
            let keeper = node.process().pid();
            let (worker, standby) = until(Duration::from_secs(20), "there is a standby", || {
                let all = node.workers()?;
                let [worker, standby] = all[..] else { return Ok(None) };
                Ok(Some([worker, standby].map(|pid| pid.as_raw_nonzero().get().unsigned_abs())).map(|[a, b]| (a, b)))
            })?;
            for (pid, comm, role) in
                [(keeper, "weir-keeper", "up"), (worker, "weir-worker", "worker"), (standby, "weir-standby", "worker")]
            {
                until(
                    Duration::from_secs(5),
                    "the process is named",
                    || Ok((proc(pid, "comm")? == comm).then_some(())),
                )
                .map_err(|e| format!("{e}: {comm} is called {:?}", proc(pid, "comm")))?;
                let line = proc(pid, "cmdline")?;
                let said =
                    line.split(' ').next().is_some_and(|p| p.ends_with("weir")) && line.contains(&format!(" {role} "));
                ensure(said, || format!("{comm}: {line}"))?;
            }
        }
        Ok(())
    })
}

fn hangs_up_alone(env: &Env) -> Outcome {
    let setup = Setup { node: "keeper = false".into(), ..Setup::default() };
    let mut node = Node::start(env, &setup.socket("gold.sock"))?;
    let load = Bench::start(env, &node.socket_target("gold.sock"), &["--rw", "randrw", "--qd", "32", "--time", "20s"])?;
    std::thread::sleep(Duration::from_millis(500));
    let (api, socket) = (node.api(), node.socket("gold.sock"));
    node.process().signal(Signal::HUP)?;
    node.finish()?;
    drop(load);
    ensure(!api.exists() && !socket.exists(), || "sockets are left behind".into())
}

/// No terminal has gone: it is for a keeper that has given up, and else nothing. Its worker does not care.
fn hangs_up_a_keeper(env: &Env) -> Outcome {
    with_node(env, &default_setup(), |node| {
        let worker = node.worker()?;
        node.process().signal(Signal::HUP)?;
        kill_process(worker, Signal::HUP).context(|| "SIGHUP".into())?;
        std::thread::sleep(Duration::from_millis(300));
        ensure(node.worker()? == worker, || format!("the worker has ended\n{}", node.log()))
    })
}

/// The default, with this weight of its second tenant.
fn weighted(weight: u16, device: &str) -> Setup {
    let mut setup = default_setup().device(device);
    setup.tenants[1].2 = format!("weight = {weight}");
    setup
}

/// SIGHUP has the node take up its file, or refuse it as a whole with the line; also a worker that took over from one that died.
fn reloads(env: &Env) -> Outcome {
    with_node(env, &weighted(1, ""), |node| {
        let mut told = 0;
        // What was said of the file after it.
        let mut hang_up = |node: &mut Node, what: &str, says: &str, weight: u64| {
            node.process().signal(Signal::HUP)?;
            let lines = until(Duration::from_secs(20), what, || {
                let log = node.process().stderr();
                let lines: Vec<String> = log.split("SIGHUP: ").skip(1).map(str::to_owned).collect();
                Ok((lines.len() > told).then_some(lines))
            })?;
            told = lines.len();
            ensure(lines.last().is_some_and(|line| line.contains(says)), || format!("{what}: {lines:?}"))?;
            let tenants = http::get(&node.api(), "/v1/tenants")?;
            ensure(tenants[1]["weight"] == weight, || format!("{what}: {tenants}"))
        };
        let write = |node: &Node, setup: &Setup| node.reconfigure(&setup.toml(node.port));
        hang_up(node, "the same file", "nothing differs", 1)?;
        write(node, &weighted(7, ""))?;
        hang_up(node, "another weight", "tenant silver: weight 1 -> 7", 7)?;
        write(node, &weighted(0, ""))?;
        hang_up(node, "a weight that cannot be", "weight: 0", 7)?;
        write(node, &weighted(9, "block_size = 4096"))?;
        hang_up(node, "what needs a restart", "block_size 512 -> 4096: needs a restart", 7)?;
        let before = node.worker()?;
        node.kill_worker()?;
        until(Duration::from_secs(20), "the next worker serves", || {
            let other = node.worker()? != before;
            Ok((other && http::get(&node.api(), "/v1/status").is_ok()).then_some(()))
        })?;
        write(node, &weighted(5, ""))?;
        hang_up(node, "by the next worker", "tenant silver: weight 7 -> 5", 5)
    })
}

/// A shell's line on a terminal of its own (script(1)); the terminal closes when that is killed.
struct Terminal {
    dir: PathBuf,
    script: Process,
}

impl Terminal {
    /// Starts a node there, with these keys of `[node]`, by that line; its process, once it serves.
    fn start(env: &Env, keys: &str, line: &str) -> Result<(Self, Pid), String> {
        let dir = env.folder()?;
        let (file, port) = (dir.join("weir.toml"), env.free_port()?);
        let setup = Setup { node: keys.into(), ..Setup::default() };
        std::fs::write(&file, setup.toml(port)).context(|| text(&file))?;
        let mut command = Command::new("script");
        let line = line.replace("WEIR", &format!("'{}' up -c weir.toml", env.weir.display()));
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let script = Process::spawn(&dir, "script", command)?;
        let mut all = Self { dir, script };
        let pid = until(Duration::from_secs(10), "the node answers", || {
            ensure(all.script.running(), || {
                format!("script has ended: {}{}", all.script.stdout(), all.script.stderr())
            })?;
            Ok(http::get(&all.api(), "/v1/status").ok().and_then(|status| status["pid"].as_i64()))
        })?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no process")?;
        Ok((all, pid))
    }

    fn api(&self) -> PathBuf {
        self.dir.join("weir.sock")
    }

    fn close(&self) -> Outcome {
        self.script.signal(Signal::KILL)
    }
}

fn closed_terminal(env: &Env) -> Outcome {
    for keys in [DEFAULT_KEEPER, "keeper = false"] {
        // What it says goes to the terminal, which is gone by then, or to a file.
        for line in ["exec WEIR", "exec WEIR 2>log", "WEIR 2>log & wait"] {
            let (terminal, node) = Terminal::start(env, keys, line)?;
            terminal.close()?;
            until(Duration::from_secs(20), "the node ends with its terminal", || {
                Ok(test_kill_process(node).is_err().then_some(()))
            })
            .map_err(|e| format!("{keys}, {line}: {e}"))?;
            let said = std::fs::read_to_string(terminal.dir.join("log")).unwrap_or_default();
            ensure(!terminal.api().exists(), || format!("{keys}, {line}: the API's socket is left behind: {said}"))?;
            let in_words =
                !line.contains("log") || said.contains("SIGHUP") && said.contains("finishing what is in flight");
            ensure(in_words && !said.contains("panicked"), || format!("{keys}, {line}: {said}"))?;
        }
    }
    Ok(())
}

fn nohup(env: &Env) -> Outcome {
    for keys in [DEFAULT_KEEPER, "keeper = false"] {
        let (terminal, node) = Terminal::start(env, keys, "exec nohup WEIR >log 2>&1")?;
        terminal.close()?;
        std::thread::sleep(Duration::from_millis(500));
        http::get(&terminal.api(), "/v1/status").map_err(|e| format!("{keys}: the node has ended: {e}"))?;
        kill_process(node, Signal::TERM).context(|| "SIGTERM".into())?;
        until(Duration::from_secs(20), "the node ends", || Ok(test_kill_process(node).is_err().then_some(())))?;
    }
    Ok(())
}

/// However the two meet, the second one ends well, or says that there is another one.
fn upgrades_meet(env: &Env) -> Outcome {
    with_node(env, &default_setup().device("latency = \"20ms\""), |node| {
        let load = Bench::start(env, &node.tcp_target(), &["--rw", "randread", "--qd", "4", "--time", "60s"])?;
        let (mut served, mut refused) = (0, 0);
        for round in 0..12u64 {
            let node = &*node;
            let ended: Vec<_> = std::thread::scope(|scope| {
                let each = (0..3u64).map(|i| {
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(i * (5 + 7 * round)));
                        // In a folder of its own, where its output goes.
                        let api = format!("unix:{}", node.api().display());
                        let args = ["upgrade", "--probation", "0s", "--api", &api];
                        run(&env.folder()?, &env.weir, args, Duration::from_secs(20))
                    })
                });
                let each: Vec<_> = each.collect();
                each.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("panicked".into()))).collect()
            });
            for one in ended {
                let one = one?;
                match one.status.code() {
                    Some(0) => served += 1,
                    Some(1) if one.stderr.contains("is under way") => refused += 1,
                    _ => return Err(format!("round {round}: {}", one.describe())),
                }
            }
        }
        println!("    {served} upgraded, {refused} were refused because another one was under way");
        drop(load);
        ensure(served > 0 && refused > 0, || format!("{served} upgraded, {refused} refused"))
    })
}

fn mode(path: &Path) -> Result<u32, String> {
    Ok(std::fs::metadata(path).context(|| text(path))?.permissions().mode() & 0o777)
}

/// Whoever may not read an image may not read what lies beside it, whichever umask there is; also where they are older.
fn modes(env: &Env) -> Outcome {
    let dir = env.folder()?;
    for (name, wanted) in [("new", 0o600), ("shared", 0o640)] {
        let media = dir.join(format!("{name}.img"));
        if name == "shared" {
            std::fs::File::create(&media).context(|| text(&media))?;
            std::fs::set_permissions(&media, PermissionsExt::from_mode(wanted)).context(|| text(&media))?;
        }
        let setup = Setup { media: format!("file:{}", media.display()), capacity: "64MiB".into(), ..Setup::default() };
        let setup = setup.device("profile = \"p3700\"");
        for round in 0..2 {
            with_node(env, &setup, |node| {
                // A namespace with metadata has a file for them.
                let format = ["--rw", "write", "--region", "1MiB", "--time", "100ms"];
                bench(env, &node.tcp_target(), &format)?.clean()
            })?;
            for beside in ["", ".nvme", ".flash"] {
                let path = PathBuf::from(format!("{}{beside}", media.display()));
                let found = mode(&path)?;
                ensure(found == wanted, || {
                    format!("{}: mode {found:o}, not {wanted:o}, start {round}", path.display())
                })?;
                if !beside.is_empty() && round == 0 {
                    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).context(|| text(&path))?;
                }
            }
        }
    }
    Ok(())
}

/// All that lies in a folder, but the configuration and what the node has printed.
fn listed(dir: &Path) -> Result<Vec<(String, u64)>, String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).context(|| text(dir))? {
        let entry = entry.context(|| text(dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "weir.toml" && !name.ends_with(".out") && !name.ends_with(".err") {
            all.push((name, entry.metadata().context(|| text(dir))?.len()));
        }
    }
    all.sort();
    Ok(all)
}

fn leaves_nothing(env: &Env) -> Outcome {
    let taken = env.folder()?.join("taken.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&taken).context(|| text(&taken))?;
    let drive =
        |name: &str, keys: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"64MiB\"\n{keys}"));
    let export =
        |name: &str, door: &str| format!("[[export]]\ndevice = \"{name}\"\ntenant = \"gold\"\ndoor = \"{door}\"\n");
    let busy = format!("vhost-user:{}", taken.display());
    let cases = [
        (
            "a socket of vhost-user",
            drive("a", "profile = \"p3700\"") + &export("a", "vhost-user:a.sock") + &export("a", &busy),
        ),
        (
            "a socket of vfio-user",
            drive("a", "") + &export("a", "vfio-user:a.sock") + &export("a", &busy.replace("vhost", "vfio")),
        ),
        (
            "a second drive",
            drive("a", "") + &drive("b", "").replace("b.img", "nowhere/b.img") + &export("a", "nvme-tcp"),
        ),
        (
            "a volume that does not fit",
            drive("a", "") + &drive("b", "") + &volume("v0", "gold", "1TiB", "\"vhost-user:v0.sock\""),
        ),
        (
            "a volume's socket",
            drive("a", "")
                + &volume("v0", "gold", "8MiB", "\"vhost-user:v0.sock\"")
                + &volume("v1", "gold", "8MiB", &format!("\"{busy}\"")),
        ),
        ("an empty image", drive("empty", "") + &export("empty", &busy)),
    ];
    for (what, rest) in cases {
        for keeper in ["keeper = true", "keeper = false"] {
            let dir = env.folder()?;
            let whole = head().replace("cores = [0]", &format!("cores = [0]\n{keeper}")) + &rest;
            std::fs::write(dir.join("weir.toml"), whole.replace("PORT", "0")).context(|| "weir.toml".into())?;
            std::fs::write(dir.join("empty.img"), "").context(|| "empty.img".into())?;
            let before = listed(&dir)?;
            let ended = run(&dir, &env.weir, ["up", "-c", "weir.toml"], Duration::from_secs(20))?;
            ensure(ended.status.code() == Some(1), || format!("{what}: it starts: {}", ended.describe()))?;
            let after = listed(&dir)?;
            ensure(after == before, || format!("{what}, {keeper}: {after:?}, not {before:?}\n{}", ended.describe()))?;
        }
    }
    Ok(())
}

/// By the command and over HTTP; nothing is changed by one that is refused.
fn shrinks(env: &Env) -> Outcome {
    with_node(env, &super::pool::three_volumes(), |node| {
        let size = |node: &Node| Ok::<Value, String>(http::get(&node.api(), "/v1/volumes/v0")?["size_bytes"].clone());
        let refused = node.cli(&["volume", "resize", "v0", "8MiB"])?;
        let said = refused.status.code() == Some(1) && refused.stderr.contains("--shrink");
        ensure(said && size(node)? == 12 << 20, || refused.describe())?;
        let patch = |shrink: Option<bool>| {
            let body = match shrink {
                Some(shrink) => serde_json::json!({ "size_bytes": 8 << 20, "shrink": shrink }),
                None => serde_json::json!({ "size_bytes": 8 << 20 }),
            };
            http::request(&node.api(), "PATCH", "/v1/volumes/v0", Some(&body))
        };
        for shrink in [None, Some(false)] {
            let (status, said) = patch(shrink)?;
            ensure(status == 409 && said.contains("shrink") && size(node)? == 12 << 20, || format!("{status} {said}"))?;
        }
        let (status, said) = patch(Some(true))?;
        ensure(status == 200 && size(node)? == 8 << 20, || format!("{status} {said}"))?;
        for (size, more) in [("16MiB", None), ("16MiB", None), ("4MiB", Some("--shrink"))] {
            let said = node.cli_ok(&["volume", "resize", "v0", size].into_iter().chain(more).collect::<Vec<_>>())?;
            ensure(said.contains(&size.replace("MiB", " MiB")) || said.contains(size), || said.clone())?;
        }
        Ok(())
    })
}
