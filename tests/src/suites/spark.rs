//! Spark of PyPI over a node's store: a master, two workers on hosts of their own, and a driver that is `bindings/java/tests/*.py`.
//! Where the machine has no Java 17 or no Maven the tests count as skipped.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::hadoop::{Store, command, jar, missing, setup};
use super::long;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{Node, text};
use crate::process::{Process, run, until};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "spark";
    vec![
        long(S, "rows_are_written_once", |env| driver(env, "committed_once.py")),
        long(S, "a_shuffle_outlives_its_executors", |env| driver(env, "shuffled.py")),
    ]
}

/// What pip receives; the daemons' start; a driver.
const MADE: Duration = Duration::from_secs(900);
const STARTED: Duration = Duration::from_secs(120);
const RUN: Duration = Duration::from_secs(900);

/// The hosts of the workers: Spark runs the speculative copy of a task on another host only.
const HOSTS: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// A virtual environment with PySpark and with Java 11, kept in the target folder.
pub(super) fn environment(env: &Env) -> Result<PathBuf, String> {
    let kept = env.weir.parent().ok_or("the program under test is in no folder")?.join("../spark-venv");
    let root = bindings::root(env);
    let arguments = [text(&kept), text(&root.join("bindings/java/tests/requirements.txt"))];
    run(&env.folder()?, &root.join("bindings/python/tests/setup.sh"), arguments, MADE)?
        .success("bindings/python/tests/setup.sh")?;
    Ok(kept)
}

/// A master of Spark and its workers.
struct Cluster {
    venv: PathBuf,
    home: PathBuf,
    master: String,
    /// The master's first.
    daemons: Vec<Process>,
}

impl Cluster {
    fn start(env: &Env) -> Result<Self, String> {
        let venv = environment(env)?;
        let python = venv.join("bin/python");
        let home = run(&env.folder()?, &python, ["-c", "import pyspark; print(pyspark.__path__[0])"], STARTED)?;
        let home = PathBuf::from(home.success("python")?.trim());
        let port = env.free_port()?.to_string();
        let master = format!("spark://{}:{port}", HOSTS[0]);
        let mut cluster = Self { venv, home, master: master.clone(), daemons: Vec::new() };
        cluster.daemon(env, "master.Master", &["--host", HOSTS[0], "--port", &port], "I have been elected leader")?;
        for host in HOSTS {
            let arguments = ["--host", host, "--cores", "1", "--memory", "1g", &master];
            cluster.daemon(env, "worker.Worker", &arguments, "Successfully registered with master")?;
        }
        Ok(cluster)
    }

    /// Python, or a program of Spark, with its surroundings.
    fn command(&self, program: PathBuf) -> Command {
        let mut command = command(&text(&program));
        command.env("SPARK_HOME", &self.home).env("PYSPARK_PYTHON", self.venv.join("bin/python"));
        command.env("SPARK_LOCAL_IP", HOSTS[0]).env("SPARK_DAEMON_MEMORY", "384m");
        command
    }

    /// Starts a daemon, and waits until its log has these words.
    fn daemon(&mut self, env: &Env, class: &str, arguments: &[&str], words: &str) -> Outcome {
        let here = env.folder()?;
        let mut spark = self.command(self.home.join("bin/spark-class"));
        spark.arg(format!("org.apache.spark.deploy.{class}")).args(["--webui-port", "0"]).args(arguments);
        spark.env("SPARK_WORKER_DIR", here.join("work")).env("SPARK_LOCAL_DIRS", here.join("local"));
        let mut process = Process::spawn(&here, class, spark)?;
        let started = until(STARTED, class, || {
            ensure(process.running(), || format!("{class} has ended"))?;
            Ok(process.stderr().contains(words).then_some(()))
        });
        started.map_err(|e| format!("{e}\n{}", process.stderr()))?;
        self.daemons.push(process);
        Ok(())
    }
}

/// Runs a driver to its end; its last line says that all held.
fn driver(env: &Env, file: &str) -> Outcome {
    if let Some(missing) = missing() {
        env.skip(missing);
        return Ok(());
    }
    let store = Store { node: Node::start(env, &setup())? };
    let (jar, cluster, here) = (jar(env)?, Cluster::start(env)?, env.folder()?);
    let mut python = cluster.command(cluster.venv.join("bin/python"));
    python.arg(bindings::root(env).join("bindings/java/tests").join(file));
    python.args([&cluster.master, &text(&jar), &store.address()]).env("SPARK_LOCAL_DIRS", here.join("local"));
    let said = Process::spawn(&here, "driver", python)?.wait(RUN)?;
    ensure(said.status.success() && said.stdout.ends_with("spark: all held\n"), || {
        format!("{}\n{}\n{}", said.stdout, said.describe(), store.node.log())
    })?;
    println!(
        "    {}, {} things held",
        said.stdout.lines().next().unwrap_or_default(),
        said.stdout.matches("held  ").count()
    );
    Ok(())
}
