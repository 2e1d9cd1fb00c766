//! A page of the documentation as its reader tries it: every block in order, in a fresh folder that looks like the repository, in
//! namespaces of its own (network, mounts, processes), so that ports and `/run/weir` are free.
//!
//! ```text
//!   blocks ──▶ session (bash) ─┬─ sh, transcripts, toml: sourced one command at a time, so that `cd` and `export` last
//!                              ├─ in a guest: tests/guests/guest.sh in the same namespaces
//!                              └─ weir up, weir fs mount: a second terminal: returns when the node serves, or the store is mounted
//! ```
//! The page passes when every command ends with the status that it should: 0, or the one in its comment (`# exit status 1`).

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Context, Env, Outcome, ensure};
use crate::markdown::{Block, Mark, blocks, first_difference, transcript};
use crate::node::program;
use crate::process::{Process, run, tail};

/// How long a page may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Characters that a failed command's output is cut to.
const SHOWN: usize = 2500;

/// What a page needs besides the repository.
#[derive(Default)]
pub struct Needs {
    /// The guest's folder is built before.
    pub guest: bool,
}

/// A command of the session.
struct Step {
    /// `README.md:12`.
    place: String,
    text: String,
    /// A pattern of bash for its exit status.
    status: String,
    guest: bool,
    /// Output that the page shows.
    shown: Option<Vec<String>>,
}

/// The steps of a page and what it only shows.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    not_run: Vec<String>,
    full_only: usize,
    checked: usize,
}

/// The `sh` functions of the session. `try PLACE STATUS N`: sources step N, and ends the session where its status is another one.
const SESSION: &str = r#"
set -o pipefail
mount -t tmpfs tmpfs /run || { echo "cannot mount a /run of its own" >&2; exit 1; }
ip link set lo up || exit 1
cd "$PAGE"
# Of `weir … | grep TEXT` that is to fail: not because the text is not there.
grep() { command grep "$@" || return 99; }
try() {
  . "$STEPS/$3.sh" >"$STEPS/$3.out" 2>&1 </dev/null
  local status=$?
  [[ $status = $2 ]] || { echo "FAILED $3 $status"; exit 1; }
}
guest() {
  bash "$GUESTS/guest.sh" -t 120 -n -M "virtio_net nvme_tcp" -f "$STEPS/$3.sh" "$STEPS/guest.sh" >"$STEPS/$3.out" 2>&1
  local status=$?
  [[ $status = $2 ]] || { echo "FAILED $3 $status"; exit 1; }
}
"#;

/// `weir` of the session: a node is started, and a store mounted, as in a second terminal, what is built from sources is built by the repository's own
/// `weir`, everything else is the program under test.
const WEIR: &str = r#"
case "${1:-} ${2:-}" in
  "lib "* | "spdk-preload "* | "fio-engine "*) exec "$ROOT/weir" "$@" ;;
  "up "*) ready="is serving" ;;
  "fs mount") ready="is mounted on" ;;
  *) exec -a "$0" "$WEIR" "$@" ;;
esac
out=$(mktemp "$NODES/XXXXXX")
(exec -a "$0" "$WEIR" "$@") >"$out" 2>&1 </dev/null &
until grep -q "$ready" "$out"; do
  kill -0 $! 2>/dev/null || { wait $!; status=$?; cat "$out"; exit $status; }
  sleep 0.02
done
cat "$out"
"#;

/// What a guest's script begins with: a namespace takes a moment to appear after a connect, which a reader does not notice.
const GUEST: &str = r#"
nvme() {
  command nvme "$@" || return
  [ "$1" = connect ] || return 0
  i=0; until [ -b /dev/nvme0n1 ] || [ $i -gt 100 ]; do i=$((i + 1)); sleep 0.1; done
}
for file in /t/*.sh; do [ "$file" = /t/run.sh ] || . "$file"; done
"#;

/// Tries a page; `name` is its path in the repository.
pub fn try_page(env: &Env, name: &str, needs: &Needs) -> Outcome {
    let text = std::fs::read_to_string(root(env)?.join(name)).context(|| name.into())?;
    try_text(env, name, &text, needs)
}

/// Tries a text that is no page of the repository.
pub fn try_text(env: &Env, name: &str, text: &str, needs: &Needs) -> Outcome {
    let root = root(env)?;
    let folder = env.folder()?;
    let plan = plan(&root, name, &blocks(text).map_err(|e| format!("{name}:{e}"))?, env.full)?;
    for reason in &plan.not_run {
        println!("    {reason}");
    }
    println!(
        "    {name}: {} commands, {} blocks compared or checked otherwise, {} not run, {} with --full only",
        plan.steps.len(),
        plan.checked,
        plan.not_run.len(),
        plan.full_only
    );
    if plan.steps.is_empty() {
        return Ok(());
    }
    let session = Session::prepare(env, &root, &folder, &plan)?;
    session.run(env, &plan, needs)
}

/// The repository.
pub fn root(env: &Env) -> Result<PathBuf, String> {
    env.guests.ancestors().nth(2).map(Path::to_path_buf).ok_or_else(|| "no repository".into())
}

fn plan(root: &Path, name: &str, blocks: &[Block], full: bool) -> Result<Plan, String> {
    let mut plan = Plan::default();
    for block in blocks {
        let place = format!("{name}:{}", block.line);
        if let Some(reason) = block.not_run() {
            plan.not_run.push(format!("{place} is not run: {reason}"));
            continue;
        }
        if block.is(&Mark::Full) && !full {
            plan.full_only += 1;
            continue;
        }
        for mark in &block.marks {
            if let Mark::Before(commands) = mark {
                plan.steps.push(step(&place, commands, false));
            }
        }
        plan_block(root, name, &place, block, &mut plan)?;
    }
    Ok(plan)
}

fn plan_block(root: &Path, name: &str, place: &str, block: &Block, plan: &mut Plan) -> Outcome {
    match block.language.as_str() {
        "sh" if block.is(&Mark::Guest) => {
            plan.steps.push(step(place, &block.text.replace("127.0.0.1", "10.0.2.2"), true));
        }
        "sh" => {
            for (line, command) in commands(&block.text)? {
                plan.steps.push(step(&format!("{name}:{}", block.line + line), &command, false));
            }
        }
        "text" => {
            let what = "text that begins with no command: say what it is by a comment before it";
            for exchange in transcript(&block.text).ok_or_else(|| format!("{place}: {what}"))? {
                let mut step = step(&format!("{name}:{}", block.line + exchange.line), exchange.command, false);
                if exchange.output.iter().any(|l| l.starts_with("weir: ")) {
                    step.status = "[12]".into();
                }
                step.shown = Some(exchange.output.iter().map(|l| (*l).to_string()).collect());
                plan.steps.push(step);
            }
        }
        "toml" => plan.steps.extend(toml(place, block)),
        "json" => {
            serde_json::from_str::<serde_json::Value>(&block.text).context(|| place.into())?;
            plan.checked += 1;
        }
        "rust" | "python" => {
            excerpt(root, place, block)?;
            plan.checked += 1;
        }
        "drawing" => {}
        "csv" | "c" => plan.steps.extend(file(place, block)),
        other => return Err(format!("{place}: nothing tries blocks of {other} (tests/src/page.rs)")),
    }
    Ok(())
}

fn step(place: &str, text: &str, guest: bool) -> Step {
    let named = text.rsplit_once("exit status ").map(|(_, number)| number.trim_matches(|c: char| !c.is_ascii_digit()));
    let status = named.filter(|n| !guest && !n.is_empty()).unwrap_or("0").to_string();
    Step { place: place.into(), text: text.into(), status, guest, shown: None }
}

/// Writes a block to the file that its comment names.
fn file(place: &str, block: &Block) -> Option<Step> {
    let (name, how) = block.marks.iter().find_map(|mark| match mark {
        Mark::File(name) => Some((name, ">")),
        Mark::Append(name) => Some((name, ">>")),
        _ => None,
    })?;
    Some(step(place, &format!("cat {how}{name} <<'END-OF-BLOCK'\n{}END-OF-BLOCK\n", block.text), false))
}

/// Writes a configuration and has it checked.
fn toml(place: &str, block: &Block) -> Vec<Step> {
    let unnamed = format!("block-{}.toml", block.line);
    let named = file(place, block);
    let name = block.marks.iter().find_map(|mark| match mark {
        Mark::File(name) | Mark::Append(name) => Some(name.clone()),
        _ => None,
    });
    let name = name.unwrap_or_else(|| unnamed.clone());
    let write = named.or_else(|| {
        let marks = vec![Mark::File(unnamed)];
        file(place, &Block { marks, ..block.clone() })
    });
    let check = block.marks.iter().find_map(|mark| match mark {
        Mark::For(command) => Some(format!("{command} {name}")),
        _ => None,
    });
    let check = check.unwrap_or_else(|| format!("weir config -c {name} --check"));
    write.into_iter().chain([step(place, &check, false)]).collect()
}

/// The complete commands of a block with their lines: `bash -n` says where one ends.
fn commands(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut found = Vec::new();
    let (mut from, mut command) = (1, String::new());
    for (i, line) in text.lines().enumerate() {
        if command.is_empty() {
            from = i + 1;
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
        }
        command += &format!("{line}\n");
        let check = Command::new("bash").args(["-n", "-c", &command]).output().context(|| "bash".into())?;
        // A here-document that does not end is only warned of.
        let complete = check.status.success() && check.stderr.is_empty() && !line.ends_with('\\');
        if complete {
            found.push((from, std::mem::take(&mut command)));
        }
    }
    ensure(command.is_empty(), || format!("no complete command: {command}"))?;
    Ok(found)
}

/// Every line of the block is in the file that it is from, in this order.
fn excerpt(root: &Path, place: &str, block: &Block) -> Outcome {
    let path = block.marks.iter().find_map(|mark| match mark {
        Mark::Excerpt(path) => Some(path),
        _ => None,
    });
    let path = path.ok_or_else(|| format!("{place}: from which file that is tested? <!-- excerpt of: PATH -->"))?;
    let text = std::fs::read_to_string(root.join(path)).context(|| format!("{place}: {path}"))?;
    let mut lines = text.lines().map(str::trim);
    for line in block.text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        ensure(lines.any(|l| l == line), || format!("{place}: {path} has no line \"{line}\" there"))?;
    }
    Ok(())
}

/// A page's folder and the files of its steps.
struct Session {
    dir: PathBuf,
    page: PathBuf,
    root: PathBuf,
}

impl Session {
    fn prepare(env: &Env, root: &Path, dir: &Path, plan: &Plan) -> Result<Session, String> {
        let page = dir.join("page");
        for folder in ["page", "page/home", "bin", "steps", "nodes"] {
            std::fs::create_dir(dir.join(folder)).context(|| folder.into())?;
        }
        for entry in std::fs::read_dir(root).context(|| root.display().to_string())? {
            let name = entry.context(|| root.display().to_string())?.file_name();
            if !["weir", "target", ".git"].iter().any(|own| name == *own) {
                symlink(root.join(&name), page.join(&name)).context(|| "a link".into())?;
            }
        }
        for folder in [&page, &dir.join("bin")] {
            let script = WEIR.replace("$WEIR", &env.weir.display().to_string());
            bash_program(folder, "weir", &script)?;
        }
        let steps = dir.join("steps");
        let mut session = SESSION.to_string();
        for (i, step) in plan.steps.iter().enumerate() {
            let path = steps.join(format!("{i}.sh"));
            std::fs::write(&path, &step.text).context(|| path.display().to_string())?;
            let how = if step.guest { "guest" } else { "try" };
            let _ = writeln!(session, "{how} {} '{}' {i}", step.place, step.status);
        }
        std::fs::write(steps.join("guest.sh"), format!("set -ex\n{GUEST}")).context(|| "guest.sh".into())?;
        std::fs::write(dir.join("session.sh"), session).context(|| "session.sh".into())?;
        Ok(Session { dir: dir.into(), page, root: root.into() })
    }

    fn run(&self, env: &Env, plan: &Plan, needs: &Needs) -> Outcome {
        if needs.guest {
            crate::guest::host_program(env, "qemu")?;
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]);
        command.arg(self.dir.join("session.sh"));
        self.environment(env, &mut command);
        let finished = Process::spawn(&self.dir, "session", command)?.wait(LIMIT)?;
        let output = |i: usize| {
            let path = self.dir.join("steps").join(format!("{i}.out"));
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        if let Some(failed) = finished.stdout.lines().find_map(|l| l.strip_prefix("FAILED ")) {
            let numbers: Vec<usize> = failed.split(' ').filter_map(|n| n.parse().ok()).collect();
            let [i, status] = numbers[..] else { return Err(finished.describe()) };
            let Step { place, text, status: wanted, .. } = &plan.steps[i];
            let nodes = self.nodes();
            let (out, nodes) = (output(i), tail(&nodes, SHOWN));
            let out = tail(&out, SHOWN);
            return Err(format!(
                "{place}: {}\nexit status {status}, not {wanted}\n{out}\nits nodes:\n{nodes}",
                text.trim()
            ));
        }
        ensure(finished.status.success(), || finished.describe())?;
        let nodes = self.nodes();
        ensure(!nodes.contains("panicked"), || format!("a node panicked:\n{}", tail(&nodes, SHOWN)))?;
        for (i, step) in plan.steps.iter().enumerate() {
            let Some(shown) = &step.shown else { continue };
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            // The page knows its files by their names alone.
            let printed = output(i).replace(&format!("{}/", self.page.display()), "");
            if let Some(line) = first_difference(&shown, &printed) {
                return Err(format!("{}: {} does not print\n{line}\nbut\n{printed}", step.place, step.text));
            }
        }
        Ok(())
    }

    fn environment(&self, env: &Env, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        let home = std::env::home_dir().unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.dir.join("bin").display()));
        for (variable, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            if std::env::var_os(variable).is_none() && home.join(below).exists() {
                command.env(variable, home.join(below));
            }
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from);
        for (variable, value) in [
            ("PAGE", self.page.clone()),
            ("HOME", self.page.join("home")),
            ("STEPS", self.dir.join("steps")),
            ("NODES", self.dir.join("nodes")),
            ("ROOT", self.root.clone()),
            ("GUESTS", env.guests.clone()),
            ("GUEST_DIR", env.guest_dir.clone()),
            ("GUEST_TMP", self.dir.clone()),
            ("CARGO_TARGET_DIR", target),
        ] {
            command.env(variable, value);
        }
        command.env("CARGO_NET_OFFLINE", "true").env_remove("WEIR_API").env_remove("WEIR_LOG");
    }

    /// What the page's nodes printed.
    fn nodes(&self) -> String {
        let files = std::fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        files.map(|f| String::from_utf8_lossy(&std::fs::read(f.path()).unwrap_or_default()).into_owned()).collect()
    }
}

/// A program of bash.
fn bash_program(dir: &Path, name: &str, script: &str) -> Result<PathBuf, String> {
    let path = program(dir, name, script)?;
    std::fs::write(&path, format!("#!/bin/bash\n{script}")).context(|| path.display().to_string())?;
    Ok(path)
}

/// Whether a page's namespaces can be had here; what to do where not.
pub fn namespaces(env: &Env) -> Outcome {
    let map = if rustix::process::geteuid().is_root() { "--mount" } else { "--map-root-user" };
    let args = [map, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"];
    let finished = run(&env.folder()?, Path::new("unshare"), args, Duration::from_secs(10))?;
    ensure(finished.status.success(), || {
        format!(
            "pages run in namespaces of their own: run ./test as root, or allow user namespaces\n{}",
            finished.describe()
        )
    })
}
