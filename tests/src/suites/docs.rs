//! Every code block of README.md and of the pages in docs/, run in order, as written ([`crate::page`]).

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::markdown;
use crate::page::{Needs, namespaces, root, try_page};

/// A page's path in the repository, and how it is tried.
type Page = (&'static str, fn(&Env) -> Outcome);

/// Pages with blocks that run, in the order in which they are tried.
const PAGES: [Page; 21] = [
    ("README.md", |env| page(env, "README.md")),
    ("docs/calibrate.md", |env| page(env, "docs/calibrate.md")),
    ("docs/cli.md", |env| page(env, "docs/cli.md")),
    ("docs/coming-from.md", |env| page(env, "docs/coming-from.md")),
    ("docs/configuration.md", |env| page(env, "docs/configuration.md")),
    ("docs/fdp.md", |env| with_guest(env, "docs/fdp.md")),
    ("docs/fio.md", |env| page(env, "docs/fio.md")),
    ("docs/flash-policies.md", |env| page(env, "docs/flash-policies.md")),
    ("docs/libweir.md", |env| page(env, "docs/libweir.md")),
    ("docs/namespaces.md", |env| with_guest(env, "docs/namespaces.md")),
    ("docs/open-channel.md", |env| with_guest(env, "docs/open-channel.md")),
    ("docs/plan.md", |env| page(env, "docs/plan.md")),
    ("docs/pool.md", |env| page(env, "docs/pool.md")),
    ("docs/profiles.md", |env| page(env, "docs/profiles.md")),
    ("docs/reproduce.md", |env| page(env, "docs/reproduce.md")),
    ("docs/runtime.md", |env| page(env, "docs/runtime.md")),
    ("docs/simulation.md", |env| page(env, "docs/simulation.md")),
    ("docs/spdk.md", |env| page(env, "docs/spdk.md")),
    ("docs/vendor-commands.md", |env| page(env, "docs/vendor-commands.md")),
    ("docs/vfio-user.md", |env| page(env, "docs/vfio-user.md")),
    ("docs/zns.md", |env| with_guest(env, "docs/zns.md")),
];

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![test("docs", "no_page_is_left_out", no_page_is_left_out)];
    tests.extend(PAGES.map(|(name, run)| test("docs", name, run)));
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
    for entry in std::fs::read_dir(root.join("docs")).context(|| "docs".into())? {
        let name = entry.context(|| "docs".into())?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
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
