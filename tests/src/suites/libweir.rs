//! libweir as its users find it: installed by `./weir lib`, found by pkg-config, compiled with all warnings as errors, and run against
//! a node over NVMe/TCP, vhost-user and vfio-user.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process::{self, Process, until};
use crate::suites::{bindings, store};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "libweir";
    vec![
        test(S, "every_function_over_nvme_tcp", |env| every_function(env, Node::tcp_target)),
        test(S, "every_function_over_vhost_user", |env| every_function(env, |node| node.socket_target("gold.sock"))),
        test(S, "every_function_over_vfio_user", |env| every_function(env, |node| node.vfio_target("pcie.sock"))),
        test(S, "the_example_on_every_transport", the_example),
        test(S, "ionice_gives_a_queue_its_class_and_changes_it", ionice),
        test(S, "a_node_that_dies_is_an_error_for_every_request", a_node_dies),
        test(S, "every_call_of_a_store", every_call_of_a_store),
        test(S, "the_example_of_a_store", the_example_of_a_store),
        test(S, "usage_of_the_installers", usage),
    ]
}

/// Where the library lies, installed once for all suites.
pub fn prefix(env: &Env) -> Result<PathBuf, String> {
    env.shared("libweir", |dir| bindings::install(env, &["lib", "--prefix", &dir.display().to_string()]))
}

/// Compiles a program as a user would.
fn compile(env: &Env, source: &str) -> Result<PathBuf, String> {
    let prefix = prefix(env)?;
    let source = bindings::root(env).join("bindings/c").join(source);
    let program = env.folder()?.join(source.file_stem().unwrap_or_default());
    let script = "cc -std=c11 -Wall -Wextra -Werror -pedantic -O1 -g -pthread \"$1\" $(pkg-config --cflags --libs weir) -o \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).arg(&source).arg(&program);
    let output = command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).output().context(|| "sh".into())?;
    ensure(output.status.success(), || format!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr)))?;
    Ok(program)
}

/// Runs a program with the library, behind other words: `ionice -c 3`.
fn start(env: &Env, before: &[&str], program: &Path, args: &[&str]) -> Result<Process, String> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(before).arg(program).args(args);
    command.env("LD_LIBRARY_PATH", prefix(env)?.join("lib"));
    Process::spawn(&env.folder()?, "libweir", command)
}

fn every_function(env: &Env, target: impl FnOnce(&Node) -> String) -> Outcome {
    let program = compile(env, "tests/api.c")?;
    with_node(env, &Setup::default().socket("gold.sock").vfio("pcie.sock", ""), |node| {
        let said = start(env, &[], &program, &[&target(node)])?.wait(Duration::from_secs(60))?.success("api")?;
        ensure(said == "everything holds\n", || said.clone())
    })
}

fn the_example(env: &Env) -> Outcome {
    let program = compile(env, "examples/mixed.c")?;
    with_node(env, &Setup::default().socket("gold.sock").vfio("pcie.sock", ""), |node| {
        let targets = [
            ("nvme-tcp", node.tcp_target()),
            ("vhost-user", node.socket_target("gold.sock")),
            ("vfio-user", node.vfio_target("pcie.sock")),
            ("local", "local:ram?capacity=256MiB".to_owned()),
        ];
        for (transport, target) in targets {
            let run = start(env, &[], &program, &[&target, "0.5", "16", "8192"])?;
            let said = run.wait(Duration::from_secs(30))?.success("mixed")?;
            let wanted = format!("{transport}, 268435456 bytes in blocks of ");
            ensure(said.contains(&wanted) && said.contains("failed: 0"), || said.clone())?;
            println!("    {transport}: {}", said.lines().nth(1).unwrap_or_default());
        }
        Ok(())
    })
}

/// The classes that the queues of the clients over NVMe/TCP are in.
fn classes(node: &Node) -> Result<Vec<String>, String> {
    let status = node.cli_ok(&["device", "ls", "--json"])?;
    let status: Value = serde_json::from_str(&status).context(|| status.clone())?;
    let clients = status[0]["clients"].as_array().ok_or("no clients in weir device ls --json")?;
    let all = clients.iter().flat_map(|c| c["classes"].as_array().cloned().unwrap_or_default());
    Ok(all.map(|c| c.as_str().unwrap_or_default().to_owned()).collect())
}

fn every_call_of_a_store(env: &Env) -> Outcome {
    let program = compile(env, "tests/store.c")?;
    with_node(env, &store::setup(), |node| {
        let run = start(env, &[], &program, &[&store::address(node), "flash"])?;
        let said = run.wait(Duration::from_secs(60))?.success("store")?;
        ensure(said == "everything holds\n", || said.clone())
    })
}

fn the_example_of_a_store(env: &Env) -> Outcome {
    let program = compile(env, "examples/store.c")?;
    with_node(env, &store::setup(), |node| {
        let run = start(env, &[], &program, &[&store::address(node)])?;
        let said = run.wait(Duration::from_secs(60))?.success("store")?;
        let wanted = "wrote 256 records of 65536 bytes, 16 at a time\nread 256 records of 65536 bytes, 16 at a time\nrecords: 8 bytes\n";
        ensure(said == wanted, || said.clone())?;
        let listed = node.cli_ok(&["fs", "--store", &store::address(node), "ls", "/"])?;
        ensure(!listed.contains("example-c"), || listed.clone())?;
        // A store that is not there is said, with its address.
        let none = start(env, &[], &program, &["unix:/nonexistent/socket"])?.wait(Duration::from_secs(60))?;
        ensure(none.status.code() == Some(1) && none.stderr.contains("/nonexistent/socket"), || none.describe())
    })
}

fn ionice(env: &Env) -> Outcome {
    let program = compile(env, "examples/mixed.c")?;
    let setup = Setup { export: "class_from = \"cattr\"".into(), ..Setup::default() };
    with_node(env, &setup, |node| {
        let mut run = start(env, &["ionice", "-c", "3"], &program, &[&node.tcp_target(), "60"])?;
        let reaches = |class: &str| {
            let what = format!("the queue of libweir is in class {class}");
            until(Duration::from_secs(10), &what, || Ok((classes(node)? == [class]).then_some(())))
        };
        reaches("low").map_err(|e| format!("{e}\n{}", run.stderr()))?;
        let pid = run.pid().to_string();
        for (priority, class) in [("2", "medium"), ("0", "high")] {
            let status = Command::new("ionice").args(["-c", priority, "-p", &pid]).status();
            ensure(status.context(|| "ionice".into())?.success(), || format!("ionice -c {priority} -p {pid} fails"))?;
            reaches(class).map_err(|e| format!("ionice -c {priority} -p: {e}\n{}", run.stderr()))?;
        }
        ensure(run.running(), || format!("the program ended: {}", run.stderr()))
    })
}

fn a_node_dies(env: &Env) -> Outcome {
    let program = compile(env, "examples/mixed.c")?;
    for socket in [false, true] {
        let mut node = Node::start(env, &Setup::default().socket("gold.sock"))?;
        let target = if socket { node.socket_target("gold.sock") } else { node.tcp_target() };
        let run = start(env, &[], &program, &[&target, "60", "16"])?;
        let connected = || Ok((!classes(&node)?.is_empty()).then_some(()));
        until(Duration::from_secs(10), "libweir is connected", connected)?;
        node.process().signal(rustix::process::Signal::KILL)?;
        let finished = run.wait(Duration::from_secs(20))?;
        ensure(finished.status.code() == Some(1), || finished.describe())?;
        let (out, err) = (&finished.stdout, &finished.stderr);
        let told = out.contains("failed: 16") && out.contains("closed the connection") && err.contains("closed");
        ensure(told, || finished.describe())?;
    }
    Ok(())
}

fn usage(env: &Env) -> Outcome {
    for (args, code, says) in [
        (&["lib"][..], 2, "--prefix is missing"),
        (&["lib", "--prefix"], 2, "--prefix wants a folder"),
        (&["lib", "--nonsense"], 2, "unknown argument '--nonsense'"),
        (&["spdk-preload", "--prefix", "x", "--static"], 2, "--static is for lib"),
        (&["fio-engine", "--prefix", "x"], 2, "--fio-source is missing"),
        (&["fio-engine", "--prefix", "x", "--fio-source", "/nonexistent"], 1, "is no source tree of fio"),
    ] {
        let finished = bindings::weir(env, args)?;
        let fits = finished.status.code() == Some(code) && finished.stderr.contains(says);
        ensure(fits, || format!("./weir {}: {}", args.join(" "), finished.describe()))?;
    }
    for what in ["lib", "spdk-preload", "fio-engine"] {
        let help =
            process::run(&env.folder()?, &bindings::root(env).join("weir"), [what, "--help"], Duration::from_secs(10))?;
        let text = help.success("--help")?;
        ensure(text.contains("usage: ./weir ") && text.contains("example: ./weir "), || text.clone())?;
    }
    Ok(())
}
