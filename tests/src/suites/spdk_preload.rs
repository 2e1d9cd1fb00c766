//! The preload library for SPDK programs, on a stand-in for `libspdk_nvme.so`: a client that knows nothing of it attaches
//! three controllers in every way there is, and what SPDK is given is printed and compared.
//!
//! Controller 1 has weighted round robin (mechanism 1) and one of its own (7), 2 has neither, 3 has weighted round robin alone.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::process::{self, Finished};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "spdk_preload";
    vec![
        test(S, "ionice_sets_mechanism_and_priority", every_way_of_attaching),
        test(S, "who_says_nothing_is_medium_not_urgent", who_says_nothing),
        test(S, "a_program_with_a_mechanism_of_its_own_keeps_it", own_mechanism),
        test(S, "options_of_every_release_fit", every_release),
        test(S, "an_unknown_release_changes_nothing", unknown_release),
    ]
}

const FLAGS: [&str; 6] = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];

/// A release's stand-in with the client that links it.
struct Program {
    client: PathBuf,
    preload: PathBuf,
    dir: PathBuf,
}

fn cc(command: &mut Command) -> Outcome {
    let output = command.output().context(|| format!("{command:?}"))?;
    ensure(output.status.success(), || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

impl Program {
    /// By soname and the sizes of the options of controllers and queue pairs.
    fn build(env: &Env, soname: &str, (ctrlr, qpair): (u32, u32)) -> Result<Self, String> {
        let dir = env.folder()?;
        let tests = bindings::root(env).join("bindings/spdk-preload/tests");
        bindings::install(env, &["spdk-preload", "--prefix", &dir.display().to_string()])?;
        let mut command = Command::new("cc");
        command
            .args(FLAGS)
            .args(["-fPIC", "-shared"])
            .arg(tests.join("stand_in.c"))
            .arg(format!("-DCTRLR_OPTS={ctrlr}"));
        command.args([format!("-DQPAIR_OPTS={qpair}"), format!("-Wl,-soname,{soname}")]);
        cc(command.arg("-o").arg(dir.join(soname)))?;
        symlink(soname, dir.join("libspdk_nvme.so")).context(|| "a link".into())?;
        let client = dir.join("client");
        let mut command = Command::new("cc");
        command.args(FLAGS).arg(tests.join("client.c")).arg("-L").arg(&dir).args(["-lspdk_nvme", "-Wl,-rpath,$ORIGIN"]);
        cc(command.arg("-o").arg(&client))?;
        Ok(Self { client, preload: dir.join("lib/libweir-spdk.so"), dir })
    }

    fn run(&self, args: &[&str], variables: &[&str]) -> Result<Finished, String> {
        let mut all = vec![format!("LD_PRELOAD={}", self.preload.display())];
        all.extend(variables.iter().map(|v| (*v).to_owned()));
        all.push(self.client.display().to_string());
        all.extend(args.iter().map(|a| (*a).to_owned()));
        process::run(&self.dir, Path::new("env"), &all, std::time::Duration::from_secs(10))
    }

    /// What SPDK was given, without what it refused.
    fn given(&self, args: &[&str], variables: &[&str]) -> Result<Vec<String>, String> {
        let text = self.run(args, variables)?.success(&args.join(" "))?;
        Ok(text
            .lines()
            .filter(|l| l.contains("queue pair") || l.contains("told") || l.contains("asked"))
            .map(str::to_owned)
            .collect())
    }

    /// Compares what was given with a line for each of the three controllers, whatever their order.
    fn expect(&self, args: &[&str], variables: &[&str], wanted: [&str; 3]) -> Outcome {
        let mut given = self.given(args, variables)?;
        let last = given.pop().unwrap_or_default();
        given.sort();
        let wanted: Vec<String> = (1..).zip(wanted).map(|(i, line)| format!("0000:0{i}:00.0: {line}")).collect();
        ensure(given == wanted, || {
            format!("{args:?} {variables:?}:\n{}\nnot\n{}", given.join("\n"), wanted.join("\n"))
        })?;
        let asked = if args[0].starts_with("probe") { "asked 3, failed 0" } else { "asked 0, failed 0" };
        ensure(last == asked, || {
            format!("{args:?}: {last}, not {asked}: a program is asked once and hears of no failure")
        })
    }
}

/// Of the newest long-term release.
fn program(env: &Env) -> Result<Program, String> {
    Program::build(env, "libspdk_nvme.so.14.0", (856, 72))
}

const WAYS: [&str; 7] =
    ["probe", "probe_ext", "probe_async", "probe_async_ext", "connect", "connect_async", "connect_default"];

fn every_way_of_attaching(env: &Env) -> Outcome {
    let program = program(env)?;
    for way in WAYS {
        for (nice, priority) in [("nice=2", 2), ("nice=3", 3), ("nice=1", 1)] {
            // The real-time class is for root.
            if priority == 1 && !rustix::process::geteuid().is_root() {
                continue;
            }
            let with = format!("mechanism 1, queue pair of priority {priority}, 256 entries");
            let without = "mechanism 0, queue pair of priority 0, 256 entries";
            program.expect(&[way, nice], &[], [&with, without, &with])?;
        }
    }
    let with = "mechanism 7, queue pair of priority 2, 256 entries";
    let without = "mechanism 0, queue pair of priority 0, 256 entries";
    program.expect(&["probe_ext", "nice=2"], &["WEIR_SPDK_ARBITRATION=drr"], [with, without, without])?;
    program.expect(&["probe_ext", "nice=2"], &["WEIR_SPDK_ARBITRATION=off"], [without, without, without])
}

fn who_says_nothing(env: &Env) -> Outcome {
    let program = program(env)?;
    let [medium, urgent, low] = [2, 0, 3].map(|p| format!("mechanism 1, queue pair of priority {p}, 256 entries"));
    let without = "mechanism 0, queue pair of priority 0, 256 entries";
    for way in WAYS {
        program.expect(&[way], &[], [&medium, without, &medium])?;
    }
    program.expect(&["probe"], &["WEIR_SPDK_URGENT=1"], [&urgent, without, &urgent])?;
    program.expect(&["probe", "nice=3"], &["WEIR_SPDK_URGENT=1"], [&low, without, &low])
}

fn own_mechanism(env: &Env) -> Outcome {
    let program = program(env)?;
    let given = program.given(&["probe_ext", "wrr", "priority=1"], &[])?;
    let high = |i| format!("0000:0{i}:00.0: mechanism 1, queue pair of priority 1, 32 entries");
    let told = "0000:02:00.0: the program is told of failure -22".to_owned();
    let wanted = [high(1), told, high(3), "asked 3, failed 1".to_owned()];
    ensure(given == wanted, || format!("{given:#?}"))?;
    // Niced, it is the thread's priority all the same; and one that means urgent keeps it.
    for (args, priority) in [(&["probe", "wrr", "priority=1", "nice=3"][..], 3), (&["probe", "wrr", "priority=0"], 0)] {
        let given = program.given(args, &[])?;
        let wanted = format!("0000:01:00.0: mechanism 1, queue pair of priority {priority}, 32 entries");
        ensure(given.first() == Some(&wanted), || format!("{args:?}: {given:#?}"))?;
    }
    Ok(())
}

fn every_release(env: &Env) -> Outcome {
    let low = "mechanism 1, queue pair of priority 3, 32 entries";
    let without = "mechanism 0, queue pair of priority 0, 32 entries";
    for (major, sizes) in [(12, (824, 72)), (13, (856, 72)), (14, (856, 72)), (15, (856, 80)), (18, (856, 80))] {
        let program = Program::build(env, &format!("libspdk_nvme.so.{major}.0"), sizes)?;
        for way in WAYS {
            program.expect(&[way, "nice=3", "priority=0"], &[], [low, without, low])?;
            // Of a program that was built with options of two fields.
            program.expect(&[way, "nice=3", "priority=0", "short"], &[], [low, without, low])?;
        }
    }
    Ok(())
}

fn unknown_release(env: &Env) -> Outcome {
    let program = Program::build(env, "libspdk_nvme.so.99.0", (856, 72))?;
    let finished = program.run(&["probe", "nice=2"], &[])?;
    let said = finished.stderr.clone();
    let wanted = "libspdk_nvme.so.99.0, whose layouts are not known; nothing is changed";
    ensure(said.contains(wanted) && said.contains("v24.09"), || format!("it says {said:?}"))?;
    let text = finished.success("the client")?;
    let pairs = text.matches("mechanism 0, queue pair of priority 0, 256 entries").count();
    ensure(pairs == 3 && !text.contains("refuses"), || text.clone())?;
    // A program without SPDK hears nothing.
    let preload = format!("LD_PRELOAD={}", program.preload.display());
    let quiet = process::run(&program.dir, Path::new("env"), [&preload, "true"], std::time::Duration::from_secs(5))?;
    ensure(quiet.stderr.is_empty(), || format!("a program without SPDK hears {:?}", quiet.stderr))?;
    quiet.success("true").map(|_| ())
}
