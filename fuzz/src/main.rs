//! The driver: `weir-fuzz [--target NAME]… [--steps N] [--seconds S] [--seed N] [--from STEP] [--threads N] [--replay FILE] [--list]`.
//!
//! Exit status 0: nothing found (and the planted bug was); 1: a finding, each printed with what reproduces it; 2: usage.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_fuzz::engine::{self, Finding, Limits, Outcome, Progress};
use weir_fuzz::mutate::Mutator;
use weir_fuzz::{CANARY, TARGETS, Target};

const USAGE: &str =
    "usage: weir-fuzz [--target NAME]... [--steps N | --seconds S] [--seed N] [--from STEP] [--threads N]
                 [--hang SECONDS] [--corpus DIR] [--crashes DIR] [--replay FILE] [--grow] [--list]
  --target NAME  this target (repeatable, a prefix is enough); all of them and the canary otherwise
  --steps N      steps for every target, 100000 unless --seconds is given
  --seconds S    time for every target
  --seed N       decimal or 0x…; the clock's otherwise (it is printed)
  --replay FILE  run this input once, the panic unhidden; needs one --target
  --grow         search by coverage for --seconds (60) and rewrite the corpus; needs one --target and a build that counts";

/// The canary's bug has to come up within this many steps.
const CANARY_STEPS: u64 = 200_000;

struct Options {
    targets: Vec<Target>,
    all: bool,
    steps: Option<u64>,
    seconds: Option<u64>,
    seed: u64,
    from: u64,
    threads: usize,
    hang: Duration,
    corpus: PathBuf,
    crashes: PathBuf,
    replay: Option<PathBuf>,
    grow: bool,
    list: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("weir-fuzz: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        for target in TARGETS.iter().chain([&CANARY]) {
            println!("{}", target.name);
        }
        return ExitCode::SUCCESS;
    }
    let result = match &options.replay {
        Some(file) => replay(&options, file),
        None if options.grow => grow(&options),
        None => drive(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("weir-fuzz: {message}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.replace('_', "").parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number"))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let mut o = Options {
        targets: Vec::new(),
        all: true,
        steps: None,
        seconds: None,
        seed: clock,
        from: 0,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        hang: Duration::from_secs(10),
        corpus: home.join("corpus"),
        crashes: home.join("crashes"),
        replay: None,
        grow: false,
        list: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--target" => o.targets.extend(named(&value()?)?),
            "--steps" => o.steps = Some(number(&value()?)?),
            "--seconds" => o.seconds = Some(number(&value()?)?),
            "--seed" => o.seed = number(&value()?)?,
            "--from" => o.from = number(&value()?)?,
            "--threads" => o.threads = number(&value()?)?.clamp(1, 1024) as usize,
            "--hang" => o.hang = Duration::from_secs(number(&value()?)?),
            "--corpus" => o.corpus = value()?.into(),
            "--crashes" => o.crashes = value()?.into(),
            "--replay" => o.replay = Some(value()?.into()),
            "--grow" => o.grow = true,
            "--list" => o.list = true,
            _ => return Err(format!("unknown argument '{arg}'")),
        }
    }
    o.all = o.targets.is_empty();
    if o.all {
        o.targets = TARGETS.to_vec();
    }
    Ok(o)
}

/// The target of that name, or all whose names begin with it.
fn named(name: &str) -> Result<Vec<Target>, String> {
    let all = || TARGETS.iter().chain([&CANARY]);
    let exact: Vec<Target> = all().filter(|t| t.name == name).copied().collect();
    let found = if exact.is_empty() { all().filter(|t| t.name.starts_with(name)).copied().collect() } else { exact };
    if found.is_empty() { Err(format!("no target is called '{name}' (--list shows them)")) } else { Ok(found) }
}

fn replay(options: &Options, file: &Path) -> Result<bool, String> {
    let [target] = options.targets.as_slice() else { return Err("--replay needs one --target".into()) };
    let data = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    // Not through `attempt`: the usual hook prints the panic, with a backtrace where one is asked for.
    (target.run)(&data);
    println!("{}: {} bytes, no failure", target.name, data.len());
    Ok(true)
}

/// Makes the corpus of one target grow. False when something was found.
fn grow(options: &Options) -> Result<bool, String> {
    let [target] = options.targets.as_slice() else { return Err("--grow needs one --target".into()) };
    let time = Duration::from_secs(options.seconds.unwrap_or(60));
    let grown = weir_fuzz::grow::grow(target, &options.corpus, options.seed, time)?;
    if let Some((shrunk, failure)) = grown.failure {
        let finding = Finding { step: grown.tried, input: shrunk.clone(), shrunk, failure };
        report(options, target, &finding)?;
        return Ok(false);
    }
    let (inputs, bytes) = grown.kept;
    println!(
        "{}: {} inputs tried, {} regions of code reached, {inputs} inputs of {bytes} bytes kept in {}",
        target.name,
        grown.tried,
        grown.regions,
        options.corpus.join(target.name).display()
    );
    Ok(true)
}

/// Runs what was asked for and, in a full run, the canary. False when anything was found, or the canary was not.
fn drive(options: &Options) -> Result<bool, String> {
    println!("weir-fuzz: seed {:#x}, {} targets", options.seed, options.targets.len());
    let canary = if options.all { Some(canary(options.seed)) } else { None };
    let outcomes = run_all(options)?;
    let mut summary = Vec::new();
    let mut clean = true;
    for (target, outcome) in options.targets.iter().zip(&outcomes) {
        summary.push(format!("{} {}", target.name, outcome.steps));
        if let Some(finding) = &outcome.finding {
            clean = false;
            report(options, target, finding)?;
        }
    }
    match canary {
        Some(Some(step)) => summary.push(format!("canary found at {step}")),
        Some(None) => {
            clean = false;
            println!("canary: the planted bug was not found in {CANARY_STEPS} steps; the driver is broken");
        }
        None => {}
    }
    let checks = weir_fuzz::CHECKS.load(Ordering::Relaxed);
    if checks > 0 {
        summary.push(format!("{checks} events of pcie checked"));
    }
    println!("fuzz: seed {:#x}; steps: {}; {}", options.seed, summary.join(", "), if clean { "ok" } else { "FAILED" });
    Ok(clean)
}

/// The step at which the planted bug came up.
fn canary(seed: u64) -> Option<u64> {
    let limits = Limits { from: 0, steps: CANARY_STEPS, time: None };
    let outcome = engine::run(&CANARY, &Mutator::new(&CANARY, Vec::new()), seed, limits, &Progress::default());
    outcome.finding.map(|f| f.step)
}

/// What a worker is at: the index of its target, and where it stands with it.
type Desk = (Mutex<Option<usize>>, Progress);

fn run_all(options: &Options) -> Result<Vec<Outcome>, String> {
    let steps = options.steps.unwrap_or(if options.seconds.is_some() { u64::MAX } else { 100_000 });
    let limits = Limits { from: options.from, steps, time: options.seconds.map(Duration::from_secs) };
    let mut mutators = Vec::new();
    for target in &options.targets {
        let kept = engine::corpus(&options.corpus, target.name)
            .map_err(|e| format!("{}: {e}", options.corpus.join(target.name).display()))?;
        mutators.push(Mutator::new(target, kept));
    }
    let next = Mutex::new(0..options.targets.len());
    let outcomes: Vec<Mutex<Option<Outcome>>> = options.targets.iter().map(|_| Mutex::new(None)).collect();
    let desks: Vec<Desk> = (0..options.threads).map(|_| (Mutex::new(None), Progress::default())).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(options, &mutators, &desks, &over));
        let work = |desk: &Desk| {
            loop {
                let Some(i) = next.lock().expect("no holder panics").next() else { break };
                *desk.0.lock().expect("no holder panics") = Some(i);
                let outcome = engine::run(&options.targets[i], &mutators[i], options.seed, limits, &desk.1);
                *outcomes[i].lock().expect("no holder panics") = Some(outcome);
            }
        };
        let workers: Vec<_> = desks.iter().map(|desk| scope.spawn(move || work(desk))).collect();
        for worker in workers {
            worker.join().expect("a target's panic is caught");
        }
        over.store(true, Ordering::Release);
    });
    let done = outcomes.into_iter().map(|o| o.into_inner().expect("no holder panics").expect("every target ran"));
    Ok(done.collect())
}

/// Ends the process with a report when one step lasts longer than `--hang`: a thread that is stuck cannot be stopped.
fn watch(options: &Options, mutators: &[Mutator], desks: &[Desk], over: &AtomicBool) {
    let mut seen: Vec<(Option<u64>, Instant)> = desks.iter().map(|_| (None, Instant::now())).collect();
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(50));
        for (desk, seen) in desks.iter().zip(&mut seen) {
            let step = desk.1.step();
            if step != seen.0 || step.is_none() {
                *seen = (step, Instant::now());
                continue;
            }
            let target = *desk.0.lock().expect("no holder panics");
            if let (Some(step), Some(i), true) = (step, target, seen.1.elapsed() > options.hang) {
                let input = mutators[i].input(options.seed, step);
                let message = format!("does not return within {} s", options.hang.as_secs());
                let failure = engine::Failure { message, place: String::new() };
                let finding = Finding { step, shrunk: input.clone(), input, failure };
                if let Err(message) = report(options, &options.targets[i], &finding) {
                    eprintln!("weir-fuzz: {message}");
                }
                println!("fuzz: seed {:#x}; FAILED", options.seed);
                std::process::exit(1);
            }
        }
    }
}

fn report(options: &Options, target: &Target, finding: &Finding) -> Result<(), String> {
    let Finding { step, input, shrunk, failure } = finding;
    let saved = engine::save(&options.crashes, target.name, options.seed, *step, shrunk)
        .map_err(|e| format!("{}: {e}", options.crashes.display()))?;
    println!("{}: FAILED at step {step}: {}", target.name, failure.message);
    if !failure.place.is_empty() {
        println!("  at {}", failure.place);
    }
    println!("  input    {}", engine::hex(input));
    println!("  shrunk   {}", engine::hex(shrunk));
    println!("  again    weir-fuzz --target {} --seed {:#x} --from {step} --steps 1", target.name, options.seed);
    println!("  replay   weir-fuzz --target {} --replay {}", target.name, saved.display());
    Ok(())
}
