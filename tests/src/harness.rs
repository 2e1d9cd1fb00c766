//! What a test is, what it knows of its surroundings, and how a measurement is made again.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

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
    /// It measures time, or how cores are shared: no other test runs beside it.
    pub measures: bool,
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
    without: Vec<String>,
    /// Only list.
    pub list: bool,
    /// The long ones too.
    pub full: bool,
    /// So many tests at a time; not said: as many as there are cores, up to three.
    pub lanes: Option<usize>,
    /// This process runs one test of another one's selection.
    pub one: Option<One>,
}

/// One test, run in a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct One {
    /// Its full name.
    pub name: String,
    /// The lane that it runs in, counted from 0: its part of the ports, and the core of its nodes.
    pub lane: usize,
    /// Its folder, in the folder of the run.
    pub folder: PathBuf,
}

impl Selection {
    /// From the command line.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut selection = Self::default();
        let mut one = One::default();
        while let Some(arg) = args.next() {
            let mut value = |what: &str| args.next().ok_or_else(|| format!("{arg} wants {what}"));
            match arg.as_str() {
                "--filter" => selection.filters.push(value("a text")?),
                "--without" => selection.without.push(value("a suite")?),
                "--lanes" => {
                    let lanes = value("a number")?.parse().ok().filter(|n| (1..=MOST_LANES).contains(n));
                    selection.lanes =
                        Some(lanes.ok_or_else(|| format!("--lanes wants a number from 1 to {MOST_LANES}"))?);
                }
                "--list" => selection.list = true,
                "--full" => selection.full = true,
                // How the runner starts itself.
                "--one" => one.name = value("a name")?,
                "--lane" => one.lane = value("a number")?.parse().map_err(|_| "--lane wants a number")?,
                "--folder" => one.folder = value("a folder")?.into(),
                _ => return Err(format!("unknown argument '{arg}'")),
            }
        }
        selection.one = Some(one).filter(|one| !one.name.is_empty());
        Ok(selection)
    }

    /// Whether the test's name contains one of the filters, its suite is not left out, and it is not a long one in a short run.
    pub fn wants(&self, test: &Test) -> bool {
        let name = test.full_name();
        let named = self.filters.is_empty() || self.filters.iter().any(|f| name.contains(f.as_str()));
        named && !self.without.iter().any(|suite| suite == test.suite) && (self.full || self.list || !test.long)
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
    pub keeper: bool,
    /// The core of nodes with one shard.
    pub core: usize,
    tmp: PathBuf,
    counter: AtomicU32,
    /// The next port to try, counted from this lane's first one.
    next_port: AtomicU16,
    first_port: u16,
    /// Measurements that were made again.
    again: AtomicU32,
    /// Why the test cannot say anything here.
    skipped: Mutex<Option<String>>,
}

/// So often a measurement is made at the most: what the majority says holds.
const MAJORITY_OF: u32 = 5;

/// So many tests at a time at the most.
pub const MOST_LANES: usize = 8;
/// The first port of the first lane, and how many each lane has. All of them lie below those that Linux gives to outgoing connections
/// (`ip_local_port_range`, 32768 on): a connection of one test never takes the port that another is about to listen on.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 1_500;
const _: () = assert!(FIRST_PORT as usize + PORTS as usize * MOST_LANES <= 32_768);

/// The program under test: `$WEIR_BIN`, else that of the release build.
pub fn program_under_test() -> Result<PathBuf, String> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/weir");
    let weir = std::env::var_os("WEIR_BIN").map_or_else(built, PathBuf::from);
    let weir = std::path::absolute(&weir).map_err(|e| format!("{}: {e}", weir.display()))?;
    let missing = || format!("{} does not exist; run: cargo build --release -p weir-cli", weir.display());
    if weir.is_file() { Ok(weir) } else { Err(missing()) }
}

impl Env {
    /// The surroundings of a test.
    pub fn new(test: &Test, one: &One, full: bool) -> Result<Self, String> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::home_dir().map(|h| h.join(".cache"))).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            weir: program_under_test()?,
            guests: Path::new(env!("CARGO_MANIFEST_DIR")).join("guests"),
            guest_dir: std::env::var_os("GUEST_DIR").map_or_else(|| cache.join("weir/guest"), PathBuf::from),
            full,
            keeper: test.keeper,
            core: one.lane % cores,
            tmp: one.folder.clone(),
            counter: AtomicU32::new(0),
            // Two runs on one machine begin at different ports.
            next_port: AtomicU16::new((std::process::id() % u32::from(PORTS)) as u16),
            first_port: FIRST_PORT + PORTS * (one.lane % MOST_LANES) as u16,
            again: AtomicU32::new(0),
            skipped: Mutex::new(None),
        })
    }

    /// A port that nobody listens on, and that no test of another lane asks for.
    pub fn free_port(&self) -> Result<u16, String> {
        (0..PORTS)
            .map(|_| self.first_port + self.next_port.fetch_add(1, Ordering::Relaxed) % PORTS)
            .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
            .ok_or_else(|| format!("all ports from {} on are taken", self.first_port))
    }

    /// A folder that the first test of this run that asks for it makes, for all: `make` gets its path. The others wait meanwhile.
    pub fn shared(&self, name: &str, make: impl FnOnce(&Path) -> Outcome) -> Result<PathBuf, String> {
        let of = |end: &str| self.tmp.with_file_name(format!("{name}{end}"));
        let (folder, made) = (of(""), of(".made"));
        let lock = File::create(of(".lock")).context(|| name.into())?;
        flock(&lock, FlockOperation::LockExclusive).context(|| name.into())?;
        if !made.exists() {
            make(&folder)?;
            File::create(&made).context(|| name.into())?;
        }
        Ok(folder)
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
        self.again.fetch_add(1, Ordering::Relaxed);
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

    /// How often something was measured again, and why the test was skipped.
    pub fn told(&self) -> (u32, Option<String>) {
        let skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner).take();
        (self.again.load(Ordering::Relaxed), skipped)
    }

    /// A program of the guest folder that runs on the host: `qemu-io`, `qemu-img`, …
    pub fn host_program(&self, name: &str) -> PathBuf {
        self.guest_dir.join("host").join(name)
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
