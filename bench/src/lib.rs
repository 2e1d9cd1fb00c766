//! Measurements side by side with a peer or a limit: what README and docs say about speed comes from here.
//!
//! ```text
//!   core   arbiter + controller + null medium, in this process; weir bench local:null     rr, wrr, drr compared
//!   front  the arbiter in front of a drive, in this process; weir bench local:null with and without
//!   tcp    weir up + weir bench          ⇄  bare sockets of the same sizes (bare.rs)       core 0 serves, core 1 asks
//!   vhost  weir up + weir bench          ⇄  qemu-storage-daemon + weir bench, bare rings   core 0 serves, core 1 asks
//!   vfio   weir up + weir bench          ⇄  bare rings in shared memory (ring.rs); the same drive in one process
//!   flash  core/flash, a closed loop in virtual time       ⇄  an event-queue simulator of the same drive (naive.rs)
//!   simulator  what `weir sim` runs, whole  ⇄  a bare loop of the same requests and channel events (simulator.rs)
//!   realtime  weir up with a modelled service time  ⇄  a bare spinning loop with such deadlines  completion-time error
//!   journal  the vhost-user device's rings with an in-flight region  ⇄  without        in one thread
//!   pool   a volume  ⇄  a raw drive of the same node; a volume on drives of one core  ⇄  of two
//!   crash, upgrade, restart  weir up whose worker is killed, whose program is replaced, that ends and is started again: the longest time
//!          between completions
//!   store  files of a store  ⇄  the drive alone by the same driver, a bare round trip of the same sizes; weir fs bench
//!   floors  each of the above in short, as ratios that the tests hold a regression by half against (floors.rs)
//!   flash-map  core/flash, its map in shared memory         ⇄  the map in the process's own memory
//!   decision  the flash model's decision for one command, in real time                     a part of realtime
//! ```
//! Contestants run in turn, round after round, so that what changes on the machine meets all of them; figures are medians
//! over the rounds with the lowest and the highest. Who does not run is stopped (SIGSTOP): a spinning server would take
//! the core. Before each round a cache line goes back and forth between the two cores: virtual machines move.
//!
//! `cargo build --release -p weir-cli && cargo run --release -p weir-bench -- all`

mod bare;
mod client;
mod core;
mod decision;
pub mod figure;
mod flash;
mod flash_map;
pub mod floors;
mod front;
mod journal;
mod naive;
mod pause;
mod pool;
mod probe;
mod realtime;
mod rig;
mod ring;
mod servers;
mod simulator;
pub mod store;
mod tcp;
mod vfio;
mod vhost;

use clap::{Parser, Subcommand};
use figure::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_units::{Nanos, parse};

/// Weir's speed, side by side with a peer or a limit.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    setup: Setup,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Arbiter, controller and driver in one thread
    Core,
    /// The arbiter in front of a drive: alone, and weir bench with and without it
    Front,
    /// NVMe/TCP against bare sockets
    Tcp,
    /// vhost-user-blk against qemu-storage-daemon and bare rings
    Vhost,
    /// vfio-user against the in-process path and bare rings
    Vfio,
    /// What exported drives cost that nobody uses; a part of vfio
    VfioIdle,
    /// The flash model in virtual time against an event queue
    Flash,
    /// What `weir sim` runs, against a bare loop of the same mix and channel events
    Simulator,
    /// What a page map costs that outlives its process
    FlashMap,
    /// How exactly modelled times are kept, against a bare spinning loop
    Realtime,
    /// What one decision of the flash model takes; a part of realtime
    Decision,
    /// Ratios that tell a regression by half
    Floors,
    /// What the journal of requests in flight costs
    Journal,
    /// What a volume costs over its drive, and over a drive of another core
    Pool,
    /// The pause that a client sees when the worker is killed
    Crash,
    /// The pause that a client sees when the program is replaced
    Upgrade,
    /// The pause that a client sees when the node ends and is started again
    Restart,
    /// What a store adds to its drives and to a bare round trip
    Store,
    /// All of them
    All,
}

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Setup {
    /// Rounds
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of each run
    #[arg(long, global = true, default_value = "1s", value_parser = time)]
    time: Nanos,
    /// Size of the drives
    #[arg(long, global = true, default_value = "1GiB", value_parser = capacity)]
    capacity: String,
    /// Of crash and upgrade: sizes of the flash drive, separated by commas
    #[arg(long, global = true, default_value = "1GiB", value_parser = sizes)]
    flash_capacity: String,
    /// The core that serves
    #[arg(long, global = true, default_value_t = 0)]
    server_core: usize,
    /// The core that asks
    #[arg(long, global = true, default_value_t = 1)]
    client_core: usize,
    /// A third core, of the second drive of a volume on two cores [default: 2, or the one that asks]
    #[arg(long, global = true)]
    far_core: Option<usize>,
    /// Of simulator, crash, upgrade and restart only the cases whose names contain this
    #[arg(long, global = true, default_value = "")]
    only: String,
    /// The binary weir [default: the one beside this program]
    #[arg(long, global = true, env = "WEIR")]
    weir: Option<PathBuf>,
    /// qemu-storage-daemon [default: from PATH, or what ./test has installed]
    #[arg(long, global = true, env = "QEMU_STORAGE_DAEMON")]
    qemu_storage_daemon: Option<PathBuf>,
}

fn time(text: &str) -> Result<Nanos, String> {
    match parse::nanos(text) {
        Ok(Nanos(0)) => Err("0 would measure nothing".to_string()),
        other => other.map_err(|e| e.to_string()),
    }
}

impl Setup {
    /// Of short rounds with that binary, on cores 0 and 1.
    pub fn short(weir: PathBuf) -> Self {
        Setup {
            rounds: 5,
            time: Nanos::from_millis(150),
            capacity: "64MiB".into(),
            flash_capacity: "1GiB".into(),
            server_core: 0,
            client_core: 1,
            far_core: None,
            only: String::new(),
            weir: Some(weir),
            qemu_storage_daemon: None,
        }
    }
}

/// Bytes of the smallest drive that is measured.
const SMALLEST: u64 = 1 << 20;

/// Bytes of a drive, as its configuration is to have them.
fn capacity(text: &str) -> Result<String, String> {
    let bytes = parse::bytes(text.trim()).map_err(|e| e.to_string())?.get();
    match bytes {
        SMALLEST.. if bytes % 4096 == 0 => Ok(text.trim().to_owned()),
        SMALLEST.. => Err(format!("{text} is no multiple of 4096 bytes")),
        _ => Err(format!("{text} is too small; a drive has at least 1MiB here")),
    }
}

fn sizes(text: &str) -> Result<String, String> {
    text.split(',').try_for_each(|one| capacity(one).map(drop))?;
    Ok(text.to_owned())
}

/// Why a measurement could not be made; the text is what the user reads.
#[derive(Debug)]
pub struct BenchError(pub String);

impl<E: std::error::Error> From<E> for BenchError {
    fn from(e: E) -> Self {
        BenchError(e.to_string())
    }
}

/// Names what failed.
pub fn failed(what: impl std::fmt::Display, e: impl std::fmt::Display) -> BenchError {
    BenchError(format!("{what}: {e}"))
}

impl Setup {
    /// The binary that is measured.
    ///
    /// # Errors
    /// It is not there.
    fn weir(&self) -> Result<PathBuf, BenchError> {
        let beside = || std::env::current_exe().ok().map(|me| me.with_file_name("weir"));
        let path = self.weir.clone().or_else(beside).unwrap_or_else(|| "weir".into());
        if path.is_file() {
            return Ok(path);
        }
        Err(failed(path.display(), "not there; build it with cargo build --release -p weir-cli, or give --weir"))
    }

    fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }

    /// How many cores there are.
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |n| n.get())
    }

    /// The size of the drives in whole MiB.
    ///
    /// # Errors
    /// Not a size.
    fn mebibytes(&self) -> Result<u64, BenchError> {
        Ok(self.bytes()? >> 20)
    }

    /// Bytes of the drives.
    ///
    /// # Errors
    /// Not a size.
    fn bytes(&self) -> Result<u64, BenchError> {
        match parse::bytes(&self.capacity).map_err(|e| failed("--capacity", e))?.get() {
            n if n >= 1 << 20 => Ok(n),
            _ => Err(failed("--capacity", "1MiB at least")),
        }
    }
}

/// The program's `main`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(reports) if cli.json => figure::print_json(&reports),
        Ok(_) => ExitCode::SUCCESS,
        Err(BenchError(text)) => {
            eprintln!("weir-bench: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<Vec<Report>, BenchError> {
    let mut reports = Vec::new();
    let wanted = |w| {
        cli.what == w
            || cli.what == What::All && !matches!(w, What::Decision | What::FlashMap | What::Floors | What::VfioIdle)
    };
    type Measure = fn(&Setup) -> Result<Report, BenchError>;
    let all: [(What, Measure); 18] = [
        (What::Core, core::measure),
        (What::Front, front::measure),
        (What::Tcp, tcp::measure),
        (What::Vhost, vhost::measure),
        (What::Vfio, vfio::measure),
        (What::VfioIdle, vfio::idle_alone),
        (What::Flash, flash::measure),
        (What::Simulator, simulator::measure),
        (What::FlashMap, flash_map::measure),
        (What::Realtime, realtime::measure),
        (What::Decision, decision::alone),
        (What::Floors, floors::measure),
        (What::Journal, journal::measure),
        (What::Pool, pool::measure),
        (What::Crash, pause::crash),
        (What::Upgrade, pause::upgrade),
        (What::Restart, pause::restart),
        (What::Store, store::measure),
    ];
    for (_, measure) in all.into_iter().filter(|(w, _)| wanted(*w)) {
        let report = measure(&cli.setup)?;
        if !cli.json {
            println!("{}", report.text());
        }
        reports.push(report);
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_drive_has_are_refused_by_name() {
        assert_eq!(sizes("1GiB, 64GiB").as_deref(), Ok("1GiB, 64GiB"));
        for (text, why) in [
            ("0", "0 is too small"),
            ("4KiB,1GiB", "4KiB is too small"),
            ("1GiB,2097153", "2097153 is no multiple of 4096 bytes"),
            ("big", "\"big\""),
            ("1GiB,", "\"\""),
        ] {
            let told = sizes(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert!(capacity("1GiB,2GiB").is_err(), "one drive has one size");
    }
}
