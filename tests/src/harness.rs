//! The runner: names, results, the summary.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a test says when it fails.
pub type Outcome = Result<(), String>;

/// One test.
pub struct Test {
    /// Its suite: the file in `suites/`.
    pub suite: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Runs with `--full` only.
    pub long: bool,
    /// Nodes have a keeper where the test does not say.
    pub keeper: bool,
    /// What it does.
    pub run: fn(&Env) -> Outcome,
}

impl Test {
    /// `suite::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}{}", self.suite, self.name, if self.keeper { "_under_a_keeper" } else { "" })
    }
}

/// What was asked for.
#[derive(Debug, Default)]
pub struct Selection {
    filters: Vec<String>,
    /// Only list.
    pub list: bool,
    /// The long ones too.
    pub full: bool,
}

impl Selection {
    /// From the command line.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut selection = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--filter" => selection.filters.push(args.next().ok_or("--filter wants a text")?),
                "--list" => selection.list = true,
                "--full" => selection.full = true,
                _ => return Err(format!("unknown argument '{arg}'")),
            }
        }
        Ok(selection)
    }

    /// Whether the test's name contains one of the filters, and it is not a long one in a short run.
    pub fn wants(&self, test: &Test) -> bool {
        let name = test.full_name();
        let named = self.filters.is_empty() || self.filters.iter().any(|f| name.contains(f.as_str()));
        named && (self.full || self.list || !test.long)
    }
}

/// What every test needs to know.
pub struct Env {
    /// The binary under test.
    pub weir: PathBuf,
    /// `tests/guests`.
    pub guests: PathBuf,
    /// The folder that `tests/guests/setup.sh` built.
    pub guest_dir: PathBuf,
    /// A long run.
    pub full: bool,
    /// What a configuration says of a keeper that says nothing itself.
    pub keeper: AtomicBool,
    tmp: PathBuf,
    counter: AtomicU32,
    /// Measurements that were made again, in the whole run.
    retries: AtomicU32,
    /// Why the test that runs cannot say anything here.
    skipped: Mutex<Option<String>>,
}

/// So often a measurement is made at the most: what the majority says holds.
const MAJORITY_OF: u32 = 5;

impl Env {
    /// Looks for the binary and makes a folder for this run.
    pub fn new(full: bool) -> Result<Self, String> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = tests.parent().ok_or("no repository root")?;
        let weir = std::env::var_os("WEIR_BIN").map_or_else(|| root.join("target/release/weir"), PathBuf::from);
        let weir = std::path::absolute(&weir).map_err(|e| format!("{}: {e}", weir.display()))?;
        if !weir.is_file() {
            return Err(format!("{} does not exist; run: cargo build --release -p weir-cli", weir.display()));
        }
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::home_dir().map(|h| h.join(".cache"))).unwrap_or_default();
        let guest_dir = std::env::var_os("GUEST_DIR").map_or_else(|| cache.join("weir/guest"), PathBuf::from);
        // Short: a socket's path has at most 107 bytes.
        let tmp = std::env::temp_dir().join(format!("weir-e2e-{}", std::process::id()));
        std::fs::create_dir_all(&tmp).map_err(|e| format!("{}: {e}", tmp.display()))?;
        let guests = tests.join("guests");
        let (counter, retries) = (AtomicU32::new(0), AtomicU32::new(0));
        let (keeper, skipped) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Self { weir, guests, guest_dir, full, keeper, tmp, counter, retries, skipped })
    }

    /// The test that runs cannot be made here: it counts as skipped, unless it fails.
    pub fn skip(&self, why: impl Into<String>) {
        let why = why.into();
        println!("    skipped: {why}");
        *self.skipped.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Says that something is measured again, and counts it.
    pub fn again(&self, why: &str) {
        println!("    measured again: {why}");
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// For what a machine that does other things as well may get wrong: a measurement that holds at once holds; one that does not
    /// is made again, up to five times in all, until three of them agree. What is wrong every time fails after three.
    pub fn majority<T>(&self, mut measure: impl FnMut() -> Result<T, String>) -> Result<T, String> {
        majority(&mut measure, |why| self.again(why))
    }

    /// A fresh empty folder.
    pub fn folder(&self) -> Result<PathBuf, String> {
        let dir = self.tmp.join(format!("{}", self.counter.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(dir)
    }

    /// A program of the guest folder that runs on the host: `qemu-io`, `qemu-img`, …
    pub fn host_program(&self, name: &str) -> PathBuf {
        self.guest_dir.join("host").join(name)
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.tmp);
    }
}

/// The least that a side of a vote needs.
const NEEDED: u32 = MAJORITY_OF / 2 + 1;

fn majority<T>(measure: &mut dyn FnMut() -> Result<T, String>, again: impl Fn(&str)) -> Result<T, String> {
    let (mut holds, mut misses) = (0, 0);
    loop {
        match measure() {
            Ok(value) => {
                holds += 1;
                if misses == 0 || holds == NEEDED {
                    return Ok(value);
                }
                again(&format!("it holds {holds} to {misses}"));
            }
            Err(why) => {
                misses += 1;
                if misses == NEEDED {
                    return Err(why);
                }
                again(&why);
            }
        }
    }
}

/// Runs the selected tests and prints a line each; the last line says `N passed, N failed, N skipped, N measured again`.
pub fn run(env: &Env, tests: &[Test], selection: &Selection) -> ExitCode {
    let start = Instant::now();
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    let mut passed = 0;
    for test in tests.iter().filter(|t| selection.wants(t)) {
        let name = test.full_name();
        println!("{name} ...");
        let begin = Instant::now();
        env.keeper.store(test.keeper, Ordering::Relaxed);
        let result = panic::catch_unwind(AssertUnwindSafe(|| (test.run)(env)));
        let result = result.unwrap_or_else(|_| Err("the test panicked (see above)".into()));
        let took = begin.elapsed().as_secs_f64();
        let skip = env.skipped.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (result, skip) {
            (Ok(()), Some(why)) => {
                println!("{name} SKIPPED ({took:.1} s)");
                skipped.push(format!("{name}: {why}"));
            }
            (Ok(()), None) => {
                passed += 1;
                println!("{name} ok ({took:.1} s)");
            }
            (Err(message), _) => {
                println!("{name} FAILED ({took:.1} s)\n    {}", message.trim_end().replace('\n', "\n    "));
                failed.push(format!("{name}: {}", first_lines(&message)));
            }
        }
    }
    println!(
        "\nend to end: {passed} passed, {} failed, {} skipped, {} measured again in {:.0} s",
        failed.len(),
        skipped.len(),
        env.retries.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64()
    );
    failed.iter().for_each(|text| println!("  failed: {text}"));
    skipped.iter().for_each(|text| println!("  skipped: {text}"));
    if failed.is_empty() && passed + skipped.len() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What of an error stands in the summary: those who see the end of the log only have to know what went wrong.
fn first_lines(message: &str) -> String {
    message.trim().lines().take(4).collect::<Vec<_>>().join("\n    ")
}

/// An error that says what was expected.
pub fn ensure(holds: bool, message: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(message()) }
}

/// Adds what was being done to an error.
pub trait Context<T> {
    /// `what: the error`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, String> {
        self.map_err(|e| format!("{}: {e}", what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(answers: &str) -> (bool, usize) {
        let mut left = answers.chars();
        let held = majority(&mut || if left.next() == Some('h') { Ok(()) } else { Err("off".into()) }, |_| ());
        (held.is_ok(), answers.len() - left.as_str().len())
    }

    #[test]
    fn the_majority_of_five_decides_after_a_miss() {
        assert_eq!(vote("h"), (true, 1));
        assert_eq!(vote("mhhh"), (true, 4));
        assert_eq!(vote("mmhhh"), (true, 5));
        assert_eq!(vote("mhmhm"), (false, 5));
        assert_eq!(vote("mmm"), (false, 3));
    }

    /// Of all ways in which a result that is wrong half of the time can come out, two thirds hold; of four tries until one holds
    /// it was fifteen sixteenths.
    #[test]
    fn what_is_wrong_half_of_the_time_does_not_always_pass() {
        let ways = 0..1u32 << MAJORITY_OF;
        let text = |way: u32| (0..MAJORITY_OF).map(|i| if way >> i & 1 == 0 { 'h' } else { 'm' }).collect::<String>();
        let held = ways.clone().filter(|way| vote(&text(*way)).0).count();
        assert!((held * 3).abs_diff(ways.count() * 2) <= 3, "{held}");
    }
}
