//! Old copies of a pool's drives, put back beside drives that went on: refused by name, whatever the drives are and whoever keeps them; a whole
//! old set is taken.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::pool::{device, fails, head, nqn, setup, volume};
use super::restart::Loop;
use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, host_nqn};
use crate::process::Process;
use crate::raw::nvme_tcp::Host;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "pool";
    vec![
        test(S, "an_old_copy_beside_two_drives_is_refused", beside_two),
        test(S, "an_old_copy_is_refused_when_drives_came_and_went", came_and_went),
        test(S, "an_old_copy_of_a_block_device_is_refused", of_block_devices),
    ]
}

/// Drives and where their bytes are.
struct Drives {
    /// Where copies are.
    dir: PathBuf,
    all: Vec<(&'static str, PathBuf)>,
}

impl Drives {
    fn files(node: &Node, names: &[&'static str]) -> Self {
        let all = names.iter().map(|name| (*name, node.dir.join(format!("{name}.img")))).collect();
        Drives { dir: node.dir.clone(), all }
    }

    /// Copies all drives.
    fn keep(&self, as_set: &str) -> Outcome {
        self.all.iter().try_for_each(|(name, place)| copy(place, &self.kept(name, as_set)))
    }

    fn kept(&self, name: &str, set: &str) -> PathBuf {
        self.dir.join(format!("{name}.{set}"))
    }

    /// Puts copies back: those of one set, and of these drives those of another.
    fn put_back(&self, set: &str, but: &[&str], of: &str) -> Outcome {
        self.all.iter().try_for_each(|(name, place)| {
            let from = if but.contains(name) { of } else { set };
            copy(&self.kept(name, from), place)
        })
    }

    /// Each of these drives alone, and then some of them, as they were beside the others as they are: refused by name.
    fn refused(&self, env: &Env, whole: &str, now: &str, old: &str, which: &[&[&str]]) -> Outcome {
        for some in which {
            self.put_back(now, some, old)?;
            let said = fails(env, &self.dir, whole)?;
            let all = self.all.iter().map(|(name, _)| *name);
            let named = all.filter(|name| said.contains(&missed(name))).collect::<Vec<_>>();
            let good = named.len() == 1 && (some.len() > 1 || named == *some);
            ensure(good, || format!("old copies of {some:?} beside the others: {said}"))?;
        }
        Ok(())
    }
}

/// What is said of a drive that is older.
fn missed(name: &str) -> String {
    format!("drive {name} has missed what the pool's other drives have been through")
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let mut command = if [from, to].iter().any(|path| path.starts_with("/dev")) {
        let mut dd = Command::new("dd");
        dd.args(["bs=1M", "conv=fsync,notrunc", "status=none"]);
        dd.arg(format!("if={}", from.display())).arg(format!("of={}", to.display()));
        dd
    } else {
        let mut cp = Command::new("cp");
        cp.arg("--sparse=always").arg(from).arg(to);
        cp
    };
    let copied = command.status().context(|| "a copy".into())?;
    ensure(copied.success(), || format!("{} is not copied to {}", from.display(), to.display()))
}

/// Comes up with what is there: the names of the pool's volumes and of its drives.
fn comes_up(env: &Env, dir: &Path, whole: &str) -> Result<(String, Vec<String>), String> {
    let port = env.free_port()?;
    std::fs::write(dir.join("weir.toml"), whole.replace("PORT", &port.to_string())).context(|| "weir.toml".into())?;
    let mut process = Process::start(dir, "again", &env.weir, ["up", "-c", "weir.toml"])?;
    let api = dir.join("weir.sock");
    let volumes = crate::process::until(Duration::from_secs(20), "the pool comes up", || {
        ensure(process.running(), || format!("it has ended: {}", process.stderr()))?;
        Ok(http::get(&api, "/v1/volumes").ok())
    })?;
    let pools = http::get(&api, "/v1/pools")?;
    let drives = pools[0]["drives"].as_array().into_iter().flatten();
    let drives = drives.filter_map(|d| d["device"].as_str().map(str::to_owned)).collect();
    process.signal(rustix::process::Signal::TERM)?;
    process.wait(Duration::from_secs(10))?;
    let names = volumes.as_array().into_iter().flatten().filter_map(|v: &Value| v["name"].as_str());
    Ok((names.collect::<Vec<_>>().join(","), drives))
}

/// Pool `p` of these drives, each with its medium, with a keeper.
fn kept(drives: &[(&str, String)], named: &[&str]) -> String {
    let each = drives.iter().map(|(name, media)| device(name, &format!("media = \"{media}\"")));
    let named: Vec<String> = named.iter().map(|name| format!("\"{name}\"")).collect();
    head().replace("cores = [0]\n", "cores = [0]\nkeeper = true\n")
        + &each.collect::<String>()
        + &format!("[[pool]]\nname = \"p\"\ndrives = [{}]\n", named.join(", "))
        + &volume("v0", "gold", "30MiB", "\"nvme-tcp\"")
}

fn file(name: &str) -> (&str, String) {
    (name, format!("file:{name}.img\"\ncapacity = \"24MiB"))
}

/// It is ended in good order, or killed with its keeper.
fn end(mut node: Node, kill: bool) -> Outcome {
    if kill { node.kill() } else { node.stop() }
}

fn beside_two(env: &Env) -> Outcome {
    for kill in [false, true] {
        let whole = kept(&["a", "b", "c"].map(file), &["a", "b", "c"]);
        let mut node = Node::start(env, &setup(whole.clone()))?;
        let drives = Drives::files(&node, &["a", "b", "c"]);
        node.cli_ok(&["volume", "create", "early", "1MiB", "--tenant", "bronze"])?;
        node.kill()?;
        drives.keep("old")?;
        node.start_again()?;
        node.cli_ok(&["volume", "delete", "early"])?;
        node.cli_ok(&["volume", "create", "late", "1MiB", "--tenant", "bronze"])?;
        // Of a worker that was killed as well.
        node.kill_worker()?;
        Host::admin_of(&nqn("v0"), node.address(), &host_nqn("gold"), 0)?;
        end(node, kill)?;
        drives.keep("new")?;
        let some: [&[&str]; 6] = [&["a"], &["b"], &["c"], &["a", "b"], &["b", "c"], &["a", "c"]];
        drives.refused(env, &whole, "new", "old", &some).map_err(|e| format!("kill: {kill}: {e}"))?;
        for (set, there) in [("old", "v0,early"), ("new", "v0,late")] {
            drives.put_back(set, &[], set)?;
            let (volumes, _) = comes_up(env, &drives.dir, &whole)?;
            ensure(volumes == there, || format!("all of the {set} set: {volumes}"))?;
        }
    }
    Ok(())
}

fn came_and_went(env: &Env) -> Outcome {
    let whole = kept(&["a", "b", "c"].map(file), &["a", "b"]);
    let mut node = Node::start(env, &setup(whole.clone()))?;
    let drives = Drives::files(&node, &["a", "b", "c"]);
    node.kill()?;
    drives.keep("two")?;
    node.start_again()?;
    node.cli_ok(&["pool", "add", "c"])?;
    node.kill()?;
    drives.keep("three")?;
    node.start_again()?;
    node.cli_ok(&["pool", "remove", "c"])?;
    end(node, false)?;
    drives.keep("left")?;
    // Of before it had joined, and of before it had left.
    drives.refused(env, &whole, "three", "two", &[&["a"], &["b"], &["a", "b"]])?;
    drives.refused(env, &whole, "left", "three", &[&["a"], &["b"]])?;
    // The one that has joined, as it was before, is none of the pool's: the pool comes up without it if it may.
    drives.put_back("three", &["c"], "two")?;
    let said = fails(env, &drives.dir, &whole.replace("name = \"p\"\n", "name = \"p\"\ndegraded = false\n"))?;
    ensure(said.contains("drive c is missing (number 2, "), || format!("drive c before it had joined: {said}"))?;
    let (volumes, now) = comes_up(env, &drives.dir, &whole)?;
    ensure(now == ["a", "b"] && volumes == "v0", || format!("without drive c: {volumes} on {now:?}"))?;
    // The one that has left, as it was before, stays outside.
    drives.put_back("left", &["c"], "three")?;
    let (volumes, now) = comes_up(env, &drives.dir, &whole)?;
    ensure(now == ["a", "b"] && volumes == "v0", || format!("drive c of before it had left: {volumes} on {now:?}"))?;
    for (set, of) in [("two", 2), ("three", 3), ("left", 2)] {
        drives.put_back(set, &[], set)?;
        let (volumes, now) = comes_up(env, &drives.dir, &whole)?;
        ensure(now.len() == of && volumes == "v0", || format!("all of set {set}: {volumes} on {now:?}"))?;
    }
    Ok(())
}

fn of_block_devices(env: &Env) -> Outcome {
    let loops = match (Loop::new(env)?, Loop::new(env)?) {
        (Ok(a), Ok(b)) => [a, b],
        (Err(why), _) | (_, Err(why)) => {
            env.skip(format!("no loop devices: {}", why.lines().next().unwrap_or_default()));
            return Ok(());
        }
    };
    let media = |i: usize| format!("block:{}", loops[i].path.display());
    let whole = kept(&[("a", media(0)), ("b", media(1))], &["a", "b"]);
    let mut node = Node::start(env, &setup(whole.clone()))?;
    let all = vec![("a", loops[0].path.clone()), ("b", loops[1].path.clone())];
    let drives = Drives { dir: node.dir.clone(), all };
    node.cli_ok(&["volume", "create", "early", "1MiB", "--tenant", "bronze"])?;
    node.kill()?;
    drives.keep("old")?;
    node.start_again()?;
    node.cli_ok(&["volume", "delete", "early"])?;
    node.cli_ok(&["volume", "create", "late", "1MiB", "--tenant", "bronze"])?;
    end(node, false)?;
    drives.keep("new")?;
    drives.refused(env, &whole, "new", "old", &[&["a"], &["b"]])?;
    for (set, there) in [("old", "v0,early"), ("new", "v0,late")] {
        drives.put_back(set, &[], set)?;
        let (volumes, _) = comes_up(env, &drives.dir, &whole)?;
        ensure(volumes == there, || format!("all of the {set} set: {volumes}"))?;
    }
    Ok(())
}
