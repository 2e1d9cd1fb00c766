//! Runs a target: one input at a time, a panic is a finding, and so is an input that does not return.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Target;
use crate::mutate::Mutator;

/// Why an input failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the panic said.
    pub message: String,
    /// Where it happened, `file:line`: what makes two failures the same.
    pub place: String,
}

/// A failing input and how to get it again.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The step at which it came up.
    pub step: u64,
    /// The input as the mutator made it.
    pub input: Vec<u8>,
    /// The shortest input found that fails at the same place.
    pub shrunk: Vec<u8>,
    /// What happened.
    pub failure: Failure,
}

/// How far to go with a target.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first step.
    pub from: u64,
    /// Steps to run at the most.
    pub steps: u64,
    /// Time to run at the most.
    pub time: Option<Duration>,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Steps done.
    pub steps: u64,
    /// The first failure, after which a target stops.
    pub finding: Option<Finding>,
}

/// Where a run stands, for whoever watches it: a step that does not end is a finding too.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    fn begin(&self, step: u64) {
        self.0.store(step + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The step in work, if any.
    pub fn step(&self) -> Option<u64> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

thread_local! {
    static CAUGHT: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Panics inside [`attempt`] are noted instead of printed; all others keep the usual hook.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.with(|q| *q.borrow()) {
                return usual(info);
            }
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let message = text.unwrap_or("(a panic without a message)").to_owned();
            let place = info.location().map_or_else(String::new, |l| format!("{}:{}", l.file(), l.line()));
            CAUGHT.with(|c| *c.borrow_mut() = Some(Failure { message, place }));
        }));
    });
}

/// Runs one input.
pub fn attempt(run: fn(&[u8]), input: &[u8]) -> Result<(), Failure> {
    install_hook();
    QUIET.with(|q| *q.borrow_mut() = true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(input)));
    QUIET.with(|q| *q.borrow_mut() = false);
    result.map_err(|_| {
        let noted = CAUGHT.with(|c| c.borrow_mut().take());
        noted.unwrap_or(Failure { message: "(not noted)".into(), place: String::new() })
    })
}

/// Runs `target` until something fails or the limits are reached.
pub fn run(target: &Target, mutator: &Mutator, seed: u64, limits: Limits, progress: &Progress) -> Outcome {
    let start = Instant::now();
    let mut done = 0;
    while done < limits.steps {
        if done % 64 == 0 && limits.time.is_some_and(|t| start.elapsed() >= t) {
            break;
        }
        let step = limits.from + done;
        let input = mutator.input(seed, step);
        progress.begin(step);
        let result = attempt(target.run, &input);
        done += 1;
        if let Err(failure) = result {
            progress.end();
            let shrunk = shrink(target.run, &input, &failure.place);
            return Outcome { steps: done, finding: Some(Finding { step, input, shrunk, failure }) };
        }
    }
    progress.end();
    Outcome { steps: done, finding: None }
}

/// Attempts that [`shrink`] spends at the most.
const SHRINK_ATTEMPTS: u32 = 4000;

/// A shorter and plainer input that fails at the same place: pieces are left out, then bytes become zero.
pub fn shrink(run: fn(&[u8]), input: &[u8], place: &str) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut left = SHRINK_ATTEMPTS;
    let same = |candidate: &[u8], left: &mut u32| {
        *left = left.saturating_sub(1);
        *left > 0 && attempt(run, candidate).is_err_and(|f| f.place == place)
    };
    let mut piece = (best.len() / 2).max(1);
    while left > 0 {
        let mut at = 0;
        while at < best.len() && left > 0 {
            let end = (at + piece).min(best.len());
            let candidate = [&best[..at], &best[end..]].concat();
            if same(&candidate, &mut left) {
                best = candidate;
            } else {
                at = end;
            }
        }
        if piece == 1 {
            break;
        }
        piece /= 2;
    }
    for at in 0..best.len() {
        let kept = std::mem::replace(&mut best[at], 0);
        if kept != 0 && !same(&best.clone(), &mut left) {
            best[at] = kept;
        }
    }
    best
}

/// The bytes as hex, shortened in the middle when there are many.
pub fn hex(bytes: &[u8]) -> String {
    let digits = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match bytes.len() {
        0..=256 => digits(bytes),
        n => format!("{}…({} bytes)…{}", digits(&bytes[..128]), n - 256, digits(&bytes[n - 128..])),
    }
}

/// The inputs kept for `target` below `dir`, in the order of their names.
pub fn corpus(dir: &Path, target: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let dir = dir.join(target);
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// Writes `input` below `dir` and says where.
pub fn save(dir: &Path, target: &str, seed: u64, step: u64, input: &[u8]) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join(format!("{target}-{seed:x}-{step}"));
    std::fs::write(&path, input)?;
    Ok(path)
}
