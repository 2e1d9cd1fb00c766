//! Every code block of README.md and of the pages in docs/, run in order, as written ([`crate::page`]).

use std::path::Path;

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::markdown;
use crate::page::{Needs, namespaces, root, try_page};

/// A page's path in the repository, and how it is tried.
type Page = (&'static str, fn(&Env) -> Outcome);

/// Pages with blocks that run, in the order in which they are tried.
const PAGES: [Page; 48] = [
    ("README.md", |env| page(env, "README.md")),
    ("docs/guides/calibrate.md", |env| page(env, "docs/guides/calibrate.md")),
    ("docs/guides/coming-from.md", |env| page(env, "docs/guides/coming-from.md")),
    ("docs/guides/dashboard.md", |env| page(env, "docs/guides/dashboard.md")),
    ("docs/guides/fdp.md", |env| with_guest(env, "docs/guides/fdp.md")),
    ("docs/guides/fio.md", |env| page(env, "docs/guides/fio.md")),
    ("docs/guides/flash-drive.md", |env| page(env, "docs/guides/flash-drive.md")),
    ("docs/guides/flash-policies.md", |env| page(env, "docs/guides/flash-policies.md")),
    ("docs/guides/monitor.md", |env| page(env, "docs/guides/monitor.md")),
    ("docs/guides/hadoop.md", |env| page(env, "docs/guides/hadoop.md")),
    ("docs/guides/libweir.md", |env| page(env, "docs/guides/libweir.md")),
    ("docs/guides/mount.md", |env| page(env, "docs/guides/mount.md")),
    ("docs/guides/namespaces.md", |env| with_guest(env, "docs/guides/namespaces.md")),
    ("docs/guides/open-channel.md", |env| with_guest(env, "docs/guides/open-channel.md")),
    ("docs/guides/plan.md", |env| page(env, "docs/guides/plan.md")),
    ("docs/guides/pools.md", |env| page(env, "docs/guides/pools.md")),
    ("docs/guides/python.md", |env| page(env, "docs/guides/python.md")),
    ("docs/guides/real-drives.md", |env| page(env, "docs/guides/real-drives.md")),
    ("docs/guides/reproduce.md", |env| page(env, "docs/guides/reproduce.md")),
    ("docs/guides/shares.md", |env| page(env, "docs/guides/shares.md")),
    ("docs/guides/simulate.md", |env| page(env, "docs/guides/simulate.md")),
    ("docs/guides/spdk.md", |env| page(env, "docs/guides/spdk.md")),
    ("docs/guides/store-client.md", |env| page(env, "docs/guides/store-client.md")),
    ("docs/guides/store-from-c.md", |env| page(env, "docs/guides/store-from-c.md")),
    ("docs/guides/store-from-python.md", |env| page(env, "docs/guides/store-from-python.md")),
    ("docs/guides/store-on-one-machine.md", |env| page(env, "docs/guides/store-on-one-machine.md")),
    ("docs/guides/store-on-three-machines.md", |env| page(env, "docs/guides/store-on-three-machines.md")),
    ("docs/guides/upgrade-and-crash.md", |env| page(env, "docs/guides/upgrade-and-crash.md")),
    ("docs/guides/vendor-commands.md", |env| page(env, "docs/guides/vendor-commands.md")),
    ("docs/guides/virtual-machines.md", |env| page(env, "docs/guides/virtual-machines.md")),
    ("docs/guides/when-a-drive-fails.md", |env| page(env, "docs/guides/when-a-drive-fails.md")),
    ("docs/guides/zones.md", |env| with_guest(env, "docs/guides/zones.md")),
    ("docs/inside/testing.md", |env| page(env, "docs/inside/testing.md")),
    ("docs/measurements/results.md", |env| page(env, "docs/measurements/results.md")),
    ("docs/reference/api.md", |env| page(env, "docs/reference/api.md")),
    ("docs/reference/cli.md", |env| page(env, "docs/reference/cli.md")),
    ("docs/reference/configuration.md", |env| page(env, "docs/reference/configuration.md")),
    ("docs/reference/faults.md", |env| with_guest(env, "docs/reference/faults.md")),
    ("docs/reference/modelled-times.md", |env| page(env, "docs/reference/modelled-times.md")),
    ("docs/reference/profiles.md", |env| page(env, "docs/reference/profiles.md")),
    ("docs/start/connect.md", |env| with_guest(env, "docs/start/connect.md")),
    ("docs/start/first-drive.md", |env| page(env, "docs/start/first-drive.md")),
    ("docs/start/install.md", |env| page(env, "docs/start/install.md")),
    ("docs/tutorials/failing-die.md", |env| page(env, "docs/tutorials/failing-die.md")),
    ("docs/tutorials/kept-promise.md", |env| page(env, "docs/tutorials/kept-promise.md")),
    ("docs/tutorials/policies-and-traces.md", |env| page(env, "docs/tutorials/policies-and-traces.md")),
    ("docs/tutorials/tail-latency.md", |env| page(env, "docs/tutorials/tail-latency.md")),
    ("docs/tutorials/upgrade-under-load.md", |env| page(env, "docs/tutorials/upgrade-under-load.md")),
];

/// Pages of PAGES whose commands take long: they are tried with `--full`.
const FULL_RUN_PAGES: [&str; 3] = ["docs/guides/namespaces.md", "docs/guides/shares.md", "docs/guides/zones.md"];

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![test("docs", "no_page_is_left_out", no_page_is_left_out)];
    tests.extend(PAGES.map(|(name, run)| {
        if FULL_RUN_PAGES.contains(&name) { long("docs", name, run) } else { test("docs", name, run) }
    }));
    tests
}

fn page(env: &Env, name: &str) -> Outcome {
    namespaces(env)?;
    try_page(env, name, &Needs::default())
}

fn with_guest(env: &Env, name: &str) -> Outcome {
    namespaces(env)?;
    try_page(env, name, &Needs { guest: true })
}

fn no_page_is_left_out(env: &Env) -> Outcome {
    markdown::check()?;
    let root = root(env)?;
    let mut names = vec!["README.md".to_string()];
    pages_below(&root, "docs", &mut names)?;
    for name in names {
        let text = std::fs::read_to_string(root.join(&name)).context(|| name.clone())?;
        let blocks = markdown::blocks(&text).map_err(|e| format!("{name}:{e}"))?;
        let runs = blocks.iter().any(|b| b.language != "drawing");
        let listed = PAGES.iter().any(|(page, _)| *page == name);
        ensure(runs == listed, || {
            format!("{name}: PAGES in tests/src/suites/docs.rs {} it", if runs { "lacks" } else { "has" })
        })?;
    }
    Ok(())
}

/// The pages in a folder of the repository and in the folders below it.
fn pages_below(root: &Path, folder: &str, names: &mut Vec<String>) -> Outcome {
    for entry in std::fs::read_dir(root.join(folder)).context(|| folder.into())? {
        let entry = entry.context(|| folder.into())?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            pages_below(root, &path, names)?;
        } else if path.ends_with(".md") {
            names.push(path);
        }
    }
    Ok(())
}
