//! Runs the selected tests, each in a process of its own, and counts what they say.
//!
//! ```text
//! selection ──▶ beside each other: lane 0, lane 1, … take the next one, its output shown whole when it ends
//!           └─▶ alone, afterwards: what measures, its output shown as it comes
//! ```
//! Most tests wait: for timeouts, for guests that boot, for nodes that start again. A lane has its own ports, folders, and core for the nodes
//! with one shard; what lies in `/run/weir` is looked at in namespaces alone ([`crate::page`]).

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Context, Env, One, Outcome, Selection, Test, program_under_test};

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// What is known of a test when it has ended.
#[derive(Clone, Debug)]
struct Ended {
    verdict: Verdict,
    /// Measurements that were made again.
    again: u64,
    took: Duration,
}

/// Counts and time of some tests.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    again: u64,
    took: Duration,
}

impl Count {
    fn add(&mut self, ended: &Ended) {
        match ended.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
        self.again += ended.again;
        self.took += ended.took;
    }

    fn line(&self, took: Duration) -> String {
        let Self { passed, failed, skipped, again, .. } = self;
        let seconds = took.as_secs_f64();
        format!("{passed} passed, {failed} failed, {skipped} skipped, {again} measured again in {seconds:.0} s")
    }
}

/// The tests of this run, and what came of those that have ended.
struct Run<'a> {
    weir_tests: PathBuf,
    folder: PathBuf,
    full: bool,
    begun: Instant,
    /// Processes that have been started.
    started: AtomicUsize,
    chosen: Vec<&'a Test>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    all: Count,
    suites: BTreeMap<&'static str, (usize, Count)>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

/// Runs the selected tests; the last lines say `end to end: N passed, N failed, N skipped, N measured again in N s`, and which.
pub fn run(tests: &[Test], selection: &Selection) -> ExitCode {
    let ready = program_under_test().and_then(|_| Run::new(tests, selection));
    let run = match ready {
        Ok(run) => run,
        Err(message) => {
            eprintln!("weir-tests: {message}");
            return ExitCode::FAILURE;
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = selection.lanes.unwrap_or(cores.clamp(1, 3));
    let (beside, alone) = run.order(lanes);
    run.in_lanes(beside, lanes);
    alone.into_iter().for_each(|test| run.one(test, 0, true));
    run.summary()
}

impl<'a> Run<'a> {
    fn new(tests: &'a [Test], selection: &Selection) -> Result<Self, String> {
        // Short: a socket's path has at most 107 bytes.
        let folder = std::env::temp_dir().join(format!("weir-e2e-{}", std::process::id()));
        std::fs::create_dir_all(&folder).context(|| folder.display().to_string())?;
        Ok(Self {
            weir_tests: std::env::current_exe().context(|| "this program".into())?,
            folder,
            full: selection.full,
            begun: Instant::now(),
            started: AtomicUsize::new(0),
            chosen: tests.iter().filter(|test| selection.wants(test)).collect(),
            seen: Mutex::default(),
        })
    }

    /// What runs beside other tests, and what runs alone after them. With one lane all tests are alone, in the order of the list.
    fn order(&self, lanes: usize) -> (VecDeque<&'a Test>, Vec<&'a Test>) {
        let (alone, beside): (Vec<_>, Vec<_>) = self.chosen.iter().partition(|test| test.measures || lanes == 1);
        match beside.len() {
            0 | 1 => (VecDeque::new(), self.chosen.clone()),
            _ => (beside.into(), alone),
        }
    }

    fn in_lanes(&self, tests: VecDeque<&'a Test>, lanes: usize) {
        let waiting = Mutex::new(tests);
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        std::thread::scope(|scope| {
            for lane in 0..lanes {
                scope.spawn(move || std::iter::from_fn(next).for_each(|test| self.one(test, lane, false)));
            }
        });
    }

    /// Runs a test, and shows what it printed: as it comes where nothing runs beside it, else whole.
    fn one(&self, test: &Test, lane: usize, alone: bool) {
        let name = test.full_name();
        if alone {
            println!("{name} ...");
        }
        let begin = Instant::now();
        let (output, result) = self.process(&name, lane, alone);
        let (verdict, again) = result.unwrap_or_else(|why| (Verdict::Failed(why), 0));
        self.ended(test, &output, alone, &Ended { verdict, again, took: begin.elapsed() });
    }

    /// The test's process: its output, and what it said of itself.
    fn process(&self, name: &str, lane: usize, alone: bool) -> (Vec<u8>, Result<(Verdict, u64), String>) {
        let folder = self.folder.join(self.started.fetch_add(1, Ordering::Relaxed).to_string());
        let output = folder.with_extension("out");
        let run = || -> Result<(Verdict, u64), String> {
            room_for_a_test(&self.folder, ROOM)?;
            std::fs::create_dir(&folder).context(|| folder.display().to_string())?;
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&self.weir_tests).args(["--one", name, "--lane"]);
            command.arg(lane.to_string()).arg("--folder").arg(&folder).args(self.full.then_some("--full"));
            if !alone {
                let file = File::create(&output).context(|| output.display().to_string())?;
                let errors = file.try_clone().context(|| output.display().to_string())?;
                command.stdout(file).stderr(errors);
            }
            let status = command.stdin(Stdio::null()).status().context(|| "setpriv".into())?;
            let text = std::fs::read_to_string(said(&folder)).unwrap_or_default();
            parse(&text).ok_or_else(|| format!("the test's process ended early: {status}"))
        };
        let result = run();
        let _ = std::fs::remove_dir_all(&folder);
        let printed = if alone { Vec::new() } else { std::fs::read(&output).unwrap_or_default() };
        (printed, result)
    }

    fn ended(&self, test: &Test, output: &[u8], alone: bool, ended: &Ended) {
        let name = test.full_name();
        let took = ended.took.as_secs_f64();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = std::io::stdout().lock();
        if !alone {
            let _ = writeln!(out, "{name} ...");
            let _ = out.write_all(output);
        }
        let _ = match &ended.verdict {
            Verdict::Passed => writeln!(out, "{name} ok ({took:.1} s)"),
            Verdict::Skipped(_) => writeln!(out, "{name} SKIPPED ({took:.1} s)"),
            Verdict::Failed(why) => {
                writeln!(out, "{name} FAILED ({took:.1} s)\n    {}", why.trim_end().replace('\n', "\n    "))
            }
        };
        match &ended.verdict {
            Verdict::Passed => {}
            Verdict::Skipped(why) => seen.skipped.push(format!("{name}: {why}")),
            Verdict::Failed(why) => seen.failed.push(format!("{name}: {}", first_lines(why))),
        }
        seen.all.add(ended);
        let (left, suite) = seen.suites.entry(test.suite).or_insert_with(|| {
            (self.chosen.iter().filter(|other| other.suite == test.suite).count(), Count::default())
        });
        suite.add(ended);
        *left -= 1;
        if *left == 0 {
            // `./test --full` records it.
            let _ = writeln!(out, "suite {}: {}", test.suite, suite.line(suite.took));
        }
        let done = seen.all.passed + seen.all.failed + seen.all.skipped;
        let minutes = self.begun.elapsed().as_secs() / 60;
        if done % 20 == 0 {
            let _ =
                writeln!(out, "--- {done} of {} tests, {} failed, {minutes} min", self.chosen.len(), seen.all.failed);
        }
    }

    fn summary(self) -> ExitCode {
        let _ = std::fs::remove_dir_all(&self.folder);
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("\nend to end: {}", seen.all.line(self.begun.elapsed()));
        seen.failed.iter().for_each(|text| println!("  failed: {text}"));
        seen.skipped.iter().for_each(|text| println!("  skipped: {text}"));
        let good = seen.failed.is_empty() && seen.all.passed + seen.all.skipped > 0;
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The test that another process of this program chose: its verdict goes to a file beside its folder.
pub fn run_one(tests: &[Test], one: &One, full: bool) -> ExitCode {
    let Some(test) = tests.iter().find(|test| test.full_name() == one.name) else {
        eprintln!("weir-tests: no test is called {}", one.name);
        return ExitCode::from(2);
    };
    let env = match Env::new(test, one, full) {
        Ok(env) => env,
        Err(message) => {
            eprintln!("weir-tests: {message}");
            return ExitCode::FAILURE;
        }
    };
    let result = panic::catch_unwind(AssertUnwindSafe(|| (test.run)(&env)));
    let result = result.unwrap_or_else(|_| Err("the test panicked (see above)".into()));
    let (again, skipped) = env.told();
    match std::fs::write(said(&one.folder), say(&verdict(result, skipped), again.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("weir-tests: {}: {e}", said(&one.folder).display());
            ExitCode::FAILURE
        }
    }
}

/// A test that says why it cannot be made is skipped, unless it fails.
fn verdict(result: Outcome, skipped: Option<String>) -> Verdict {
    match (result, skipped) {
        (Err(why), _) => Verdict::Failed(why),
        (Ok(()), Some(why)) => Verdict::Skipped(why),
        (Ok(()), None) => Verdict::Passed,
    }
}

/// What a test may need on the file system of its folder, in bytes: images, and what clients write through them.
const ROOM: u64 = 2 << 30;

/// On a full disk each test would fail by another word, many of them after seconds of waiting: none is begun there.
fn room_for_a_test(folder: &Path, needed: u64) -> Result<(), String> {
    let there = rustix::fs::statvfs(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let free = there.f_bavail.saturating_mul(there.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let (folder, free, needed) = (folder.display(), free >> 20, needed >> 20);
    Err(format!(
        "{folder} has {free} MiB left, and a test may need {needed}: make room there, or set TMPDIR to another folder"
    ))
}

fn said(folder: &Path) -> PathBuf {
    folder.with_extension("said")
}

fn say(verdict: &Verdict, again: u64) -> String {
    let (word, why) = match verdict {
        Verdict::Passed => ("passed", ""),
        Verdict::Failed(why) => ("failed", why.as_str()),
        Verdict::Skipped(why) => ("skipped", why.as_str()),
    };
    json!({ "verdict": word, "why": why, "again": again }).to_string()
}

fn parse(text: &str) -> Option<(Verdict, u64)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let why = value["why"].as_str()?.to_owned();
    let verdict = match value["verdict"].as_str()? {
        "passed" => Verdict::Passed,
        "failed" => Verdict::Failed(why),
        "skipped" => Verdict::Skipped(why),
        _ => return None,
    };
    Some((verdict, value["again"].as_u64()?))
}

/// What of an error stands in the summary: those who see the end of the log only have to know what went wrong.
fn first_lines(message: &str) -> String {
    message.trim().lines().take(4).collect::<Vec<_>>().join("\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(suite: &'static str, name: &'static str, measures: bool) -> Test {
        Test { suite, name, long: false, keeper: false, measures, run: |_| Ok(()) }
    }

    fn names(tests: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
        tests.into_iter().collect()
    }

    /// What runs in the lanes and what alone, of this command line.
    fn order(tests: &'static [Test], line: &[&str], lanes: usize) -> (Vec<&'static str>, Vec<&'static str>) {
        let selection = Selection::parse(line.iter().map(|arg| (*arg).to_string())).unwrap();
        let run = Run::new(tests, &selection).unwrap();
        let (beside, alone) = run.order(lanes);
        std::fs::remove_dir_all(&run.folder).unwrap();
        (names(beside.iter().map(|t| t.name)), names(alone.iter().map(|t| t.name)))
    }

    #[test]
    fn what_measures_runs_alone_afterwards() {
        let tests: &'static [Test] =
            vec![test("a", "one", false), test("b", "two", true), test("a", "three", false)].leak();
        assert_eq!(order(tests, &[], 2), (vec!["one", "three"], vec!["two"]));
        assert_eq!(order(tests, &[], 1), (vec![], vec!["one", "two", "three"]));
        // A single one has nobody beside it, and shows its output as it comes.
        assert_eq!(order(tests, &["--filter", "two", "--filter", "one"], 2), (vec![], vec!["one", "two"]));
        assert_eq!(order(tests, &["--without", "a"], 2), (vec![], vec!["two"]));
    }

    #[test]
    fn lanes_and_names_are_parsed() {
        let parse = |line: &[&str]| Selection::parse(line.iter().map(|arg| (*arg).to_string()));
        assert_eq!(parse(&["--lanes", "3"]).unwrap().lanes, Some(3));
        assert_eq!(parse(&[]).unwrap().lanes, None);
        for wrong in [&["--lanes"][..], &["--lanes", "0"], &["--lanes", "9"], &["--lanes", "x"], &["--without"], &["x"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let one = parse(&["--one", "a::b", "--lane", "1", "--folder", "/tmp/x/1"]).unwrap().one.unwrap();
        assert_eq!(one, One { name: "a::b".into(), lane: 1, folder: "/tmp/x/1".into() });
    }

    #[test]
    fn no_test_begins_on_a_full_disk() {
        let folder = std::env::temp_dir();
        assert_eq!(room_for_a_test(&folder, 1), Ok(()));
        let why = room_for_a_test(&folder, u64::MAX).unwrap_err();
        assert!(why.starts_with(&folder.display().to_string()) && why.contains("make room there"), "{why}");
    }

    #[test]
    fn what_a_test_says_is_read_back() {
        for wrote in [Verdict::Passed, Verdict::Failed("why\n\"so\"".into()), Verdict::Skipped("no guest".into())] {
            assert_eq!(parse(&say(&wrote, 3)), Some((wrote, 3)));
        }
        // A process that was killed has said nothing, or not all.
        assert_eq!(parse(""), None);
        assert_eq!(parse("{\"verdict\":\"passed\""), None);
    }

    #[test]
    fn a_failure_is_no_skip() {
        assert_eq!(verdict(Err("bad".into()), Some("no guest".into())), Verdict::Failed("bad".into()));
        assert_eq!(verdict(Ok(()), Some("no guest".into())), Verdict::Skipped("no guest".into()));
    }
}
