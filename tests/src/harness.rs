//! The runner: names, results, the summary.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
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
    /// What it does.
    pub run: fn(&Env) -> Outcome,
}

impl Test {
    /// `suite::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.suite, self.name)
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
    tmp: PathBuf,
    counter: AtomicU32,
}

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
        Ok(Self { weir, guests: tests.join("guests"), guest_dir, full, tmp, counter: AtomicU32::new(0) })
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

/// Runs the selected tests and prints a line each; the last line says `N passed, N failed`.
pub fn run(env: &Env, tests: &[Test], selection: &Selection) -> ExitCode {
    let start = Instant::now();
    let mut failed = Vec::new();
    let mut passed = 0;
    for test in tests.iter().filter(|t| selection.wants(t)) {
        let name = test.full_name();
        println!("{name} ...");
        let begin = Instant::now();
        let result = panic::catch_unwind(AssertUnwindSafe(|| (test.run)(env)));
        let result = result.unwrap_or_else(|_| Err("the test panicked (see above)".into()));
        let took = begin.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                passed += 1;
                println!("{name} ok ({took:.1} s)");
            }
            Err(message) => {
                println!("{name} FAILED ({took:.1} s)\n    {}", message.trim_end().replace('\n', "\n    "));
                failed.push(name);
            }
        }
    }
    println!("\nend to end: {passed} passed, {} failed in {:.0} s", failed.len(), start.elapsed().as_secs_f64());
    for name in &failed {
        println!("  failed: {name}");
    }
    if failed.is_empty() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
