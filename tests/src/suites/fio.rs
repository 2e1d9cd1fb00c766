//! fio with the engine for Weir targets: built against the source of the fio that is installed, run over every transport with
//! verification. The source comes from where the system's packages come from, as `apt-get source` gets it; where it cannot be
//! had, the test counts as skipped and says why.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process;
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("fio", "randrw_and_verify_on_every_transport", randrw_and_verify)]
}

/// Gets and configures the source of the system's fio below `$1`, unless it is there.
const SOURCE: &str = r#"
cd "$1"
[ -f fio/config-host.h ] && exit 0
rm -rf fio lists cache fio_*
mkdir -p fio lists/partial cache/archives/partial
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ ! -f $keys ] || signed="[signed-by=$keys]"
apt-get indextargets --format "deb-src ${signed:-} "'$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Component: main' |
  grep '/debian/\? ' | grep -v backports | sort -u >list
[ -s list ] || { echo "apt knows no mirror" >&2; exit 1; }
here=(-o "Dir::Etc::sourcelist=$PWD/list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$PWD/lists" -o "Dir::Cache=$PWD/cache"
  -o APT::Sandbox::User= -qq)
apt-get "${here[@]}" update
apt-get "${here[@]}" source --download-only "fio=$2"
tar -xzf fio_*.orig.tar.gz -C fio --strip-components 1
cd fio
./configure --disable-native >/dev/null
rm -rf ../lists ../cache
"#;

/// The configured source of the fio that runs here; or why there is none.
fn source() -> Result<PathBuf, String> {
    let version = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "fio"]).output();
    let version = version.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let version = version.ok_or("fio is not installed as a package")?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|h| h.join(".cache"))).unwrap_or_default();
    let dir = cache.join("weir").join(format!("fio-{version}"));
    std::fs::create_dir_all(&dir).context(|| dir.display().to_string())?;
    let output = Command::new("bash").args(["-euc", SOURCE, "bash"]).arg(&dir).arg(&version).output();
    let output = output.context(|| "bash".into())?;
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    Ok(dir.join("fio"))
}

fn fio(env: &Env, engine: &Path, args: &[&str]) -> Result<process::Finished, String> {
    let mut all = vec![format!("--ioengine=external:{}", engine.display()), "--thread".into(), "--bs=4k".into()];
    all.extend(args.iter().map(|a| (*a).to_owned()));
    process::run(&env.folder()?, Path::new("fio"), &all, Duration::from_secs(60))
}

fn randrw_and_verify(env: &Env) -> Outcome {
    let source = match source() {
        Ok(source) => source,
        Err(why) => {
            env.skip(format!("the source of this fio cannot be had: {why}"));
            return Ok(());
        }
    };
    let prefix = env.folder()?.join("prefix");
    let (source, place) = (source.display().to_string(), prefix.display().to_string());
    bindings::install(env, &["fio-engine", "--fio-source", &source, "--prefix", &place])?;
    let engine = prefix.join("lib/libweir-fio.so");
    with_node(env, &Setup::default().socket("gold.sock"), |node| on_every_transport(env, &engine, node))?;
    for (args, says) in [
        (&["--name=x", "--rw=read"][..], "no target: the option url names it"),
        (&["--name=x", "--rw=read", "--url=local:nosuch"], "\"nosuch\""),
        (&["--name=x", "--rw=read", "--url=nvme-tcp://127.0.0.1:1/nqn.x"], "is an NVMe/TCP target listening there?"),
    ] {
        let finished = fio(env, &engine, args)?;
        let text = format!("{}{}", finished.stdout, finished.stderr);
        ensure(!finished.status.success() && text.contains(says), || format!("{args:?}: {text}"))?;
    }
    Ok(())
}

fn on_every_transport(env: &Env, engine: &Path, node: &Node) -> Outcome {
    let job = [
        "--name=verify",
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--iodepth=16",
        "--size=32m",
        "--fsync=64",
        "--verify=crc32c",
    ];
    for target in [node.tcp_target(), node.socket_target("gold.sock"), "local:ram?capacity=64MiB".into()] {
        let url = format!("--url={target}");
        let args: Vec<&str> = job.iter().copied().chain([url.as_str(), "--output-format=terse"]).collect();
        let said = fio(env, engine, &args)?.success(&format!("fio on {target}"))?;
        let terse = said.lines().find(|l| l.starts_with("3;fio-")).ok_or_else(|| said.clone())?;
        // Terse version 3: error, then read KiB; written KiB is the 47th field.
        let fields: Vec<&str> = terse.split(';').collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(u64::MAX);
        ensure(number(4) == 0, || format!("fio on {target}: {terse}"))?;
        let moved = (number(5), number(46));
        ensure(moved.0 >= 24 << 10 && moved.1 > 4 << 10 && moved.1 < 32 << 10, || format!("{moved:?}: {terse}"))?;
        println!(
            "    fio {}: {} KiB read, {} KiB written and verified",
            target.split(':').next().unwrap_or_default(),
            moved.0,
            moved.1
        );
    }
    // Several jobs at once, each with a connection of its own, and trims.
    let url = format!("--url={}", node.tcp_target());
    let jobs =
        ["--name=many", "--numjobs=3", "--rw=randtrimwrite", "--size=8m", "--iodepth=4", &url, "--group_reporting"];
    fio(env, engine, &jobs)?.success("three jobs of trims and writes").map(|_| ())
}
