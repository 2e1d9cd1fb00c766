//! `weir up`: a node in the foreground.
//!
//! Steps, each undone by dropping what it made: configuration, runtime folder, API sockets, signals, the node, the API,
//! "serving". Then it waits for a signal or for `shutdown` of the API, drains, and ends.
//!
//! With `keeper = true` these are the steps of `weir worker`, which the keeper's process starts, and starts again when it dies:
//! it takes what the worker before it left, and the configuration as that one had changed it. After an upgrade the keeper's process executes
//! the new program's `weir up`, which goes on from what it inherits.

use crate::args;
use crate::config::load;
use crate::connect;
use crate::failure::Failure;
use crate::output;
use crate::start::{Started, start};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use weir_node::api::Bound;
use weir_node::config::{self, Admission, Config, NodeConfig};
use weir_node::{CONFIG, keeper, layouts};
use weir_sys::keep::{Keep, ToKeeper};
use weir_sys::renew::Inherited;
use weir_sys::systemd::Notifier;

/// Why the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Signal(&'static str),
    Api,
    /// Another worker is to serve.
    HandOver,
}

/// What a start consists of: each step as long as since the one before.
struct Steps {
    last: Instant,
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn begin() -> Self {
        Self { last: Instant::now(), done: Vec::new() }
    }

    fn done(&mut self, name: &'static str) {
        let now = Instant::now();
        self.done.push((name, now - self.last));
        self.last = now;
    }
}

pub fn run(args: &args::Up, api: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    if let Some(inherited) = Inherited::find().map_err(|e| of_keeper(&e))? {
        return keeper::resume(inherited).map(ExitCode::from).map_err(|e| of_keeper(&e));
    }
    let mut steps = Steps::begin();
    let mut config = load(args.config.as_deref())?;
    override_by(&mut config, args, api)?;
    if config.node.keeper {
        return keep(&config);
    }
    steps.done("configuration");
    serve(config, args, &Keep::none(), steps, json)?;
    Ok(ExitCode::SUCCESS)
}

/// The keeper: this very program once more, as a worker with the same arguments.
fn keep(config: &Config) -> Result<ExitCode, Failure> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let up = arguments.iter().position(|a| a == "up").ok_or_else(|| Failure::new("keeper: there is no \"up\""))?;
    arguments[up] = "worker".into();
    let program = std::env::current_exe().map_err(|e| of_keeper(&e))?;
    let settings = keeper::Settings { program, arguments, standby: config.node.standby };
    keeper::run(settings).map(ExitCode::from).map_err(|e| of_keeper(&e))
}

fn of_keeper(e: &std::io::Error) -> Failure {
    Failure::new(format_args!("keeper: {e}"))
}

/// A keeper asks whether this program could go on in its place.
pub fn could_resume() -> Result<(), Failure> {
    let wrong = |e: std::io::Error| {
        Failure::new(format_args!("keeper: this program cannot take it over: {e}; weir up starts a node"))
    };
    let state = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|e| wrong(e.into()))?;
    keeper::could_resume(state).map_err(wrong)
}

/// The process that serves under a keeper: its end of their conversation is the standard input.
pub fn worker(args: &args::Up, api: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    let wrong = |e: std::io::Error| Failure::new(format_args!("worker: {e}; it is started by weir up, not by hand"));
    // Nobody is left behind when the keeper is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| wrong(e.into()))?;
    weir_sys::signals::unblock();
    abort_on_panic();
    let mut steps = Steps::begin();
    let mut config = load(args.config.as_deref())?;
    override_by(&mut config, args, api)?;
    // What was forced once needs no force again.
    let mut left = Config { node: NodeConfig { admission: Admission::Warn, ..config.node.clone() }, ..config.clone() };
    // A standby has the time to see beforehand what the worker before it most likely leaves.
    let known = [config.to_toml(), left.to_toml()];
    let channel = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|e| wrong(e.into()))?;
    let keep = Keep::join(channel, &layouts().to_string()).map_err(wrong)?;
    if let Some(text) = keep.take_text(CONFIG).map_err(wrong)? {
        if !known.contains(&text) {
            left = Config::parse(&text, "the configuration as it was left", Path::new("/"))?;
            left.node.admission = Admission::Warn;
        }
        config = left;
    }
    steps.done("configuration");
    serve(config, args, &keep, steps, json)?;
    Ok(ExitCode::SUCCESS)
}

/// A thread that cannot go on ends the worker: the next one takes over, from what all threads left.
fn abort_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        say(what);
        std::process::abort();
    }));
}

fn serve(mut config: Config, args: &args::Up, keep: &Keep, mut steps: Steps, json: bool) -> Result<(), Failure> {
    if args.config.is_none() {
        let folder = config::runtime_dir();
        config::create_runtime_dir(&folder).map_err(|e| Failure::new(format_args!("{}: {e}", folder.display())))?;
    }
    let bound = Bound::bind(&config.node.api, keep).map_err(|e| Failure::new(format_args!("api: {e}")))?;
    config.node.api = bound.addresses();
    steps.done("API sockets");
    let (end, ended) = mpsc::channel();
    watch_signals(end.clone())?;
    let other = end.clone();
    let on_shutdown = Box::new(move || {
        let _ = end.send(End::Api);
    });
    let started: Started = start(config.clone(), keep, on_shutdown).map_err(Failure::new)?;
    steps.done("drives, pools and doors");
    let running = bound.serve(started.control.clone()).map_err(|e| Failure::new(format_args!("api: {e}")))?;
    steps.done("API");
    let hand_over = move || {
        let _ = other.send(End::HandOver);
    };
    let gone = || {
        eprintln!("weir: the keeper has gone, and what it held with it");
        std::process::exit(1);
    };
    started.control.serve_keeper(hand_over, gone).map_err(|e| of_keeper(&e))?;
    let systemd = systemd(keep)?;
    systemd.ready();
    if keep.generation() == 0 {
        announce(&config, &started.listening, keep, &steps, json)?;
    }
    match ended.recv() {
        Ok(End::HandOver) => {
            // Who asks from now on is answered by the next one.
            running.quiet();
            if started.hand_over() {
                keep.say(&ToKeeper::Left, &[]).map_err(|e| of_keeper(&e))?;
            } else {
                // A late write must not land over one of the next worker's: the keeper waits for the end of this process.
                eprintln!(
                    "weir: drives have not finished what is in flight; the next worker waits for the end of this one"
                );
            }
            running.leave();
            return Ok(());
        }
        Ok(End::Signal(name)) => eprintln!("weir: {name}: finishing what is in flight; once more ends at once"),
        Ok(End::Api) | Err(_) => eprintln!("weir: shutdown: finishing what is in flight"),
    }
    systemd.stopping();
    started.stop();
    running.stop();
    Ok(())
}

/// Who is told that the node is up, where no keeper says so.
fn systemd(keep: &Keep) -> Result<Notifier, Failure> {
    if keep.is_kept() {
        return Ok(Notifier::default());
    }
    Notifier::from_environment().map_err(|e| Failure::new(format_args!("NOTIFY_SOCKET: {e}")))
}

fn override_by(config: &mut Config, args: &args::Up, api: Option<&str>) -> Result<(), Failure> {
    if let Some(api) = api {
        let address = config::address(api, Path::new("")).map_err(|e| Failure::usage(format_args!("--api: {e}")))?;
        config.node.api = vec![address];
    }
    if args.force {
        config.node.admission = config::Admission::Warn;
    }
    if args.poll {
        config.node.poll = true;
    }
    if !args.cores.is_empty() {
        let mut cores: Vec<usize> = args.cores.iter().map(|c| usize::from(*c)).collect();
        cores.sort_unstable();
        cores.dedup();
        if cores.len() != args.cores.len() {
            return Err(Failure::usage("--cores: a CPU is listed twice; keep one"));
        }
        config.node.cores = args.cores.iter().map(|c| usize::from(*c)).collect();
    }
    if !args.listen.is_empty() {
        config.nvme_tcp.listen.clone_from(&args.listen);
    }
    Ok(())
}

/// From here on SIGTERM and SIGINT end the node in good order, and the second one at once.
fn watch_signals(end: Sender<End>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format_args!("signals: {e}")))?;
    let (term, int) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    };
    let (mut term, mut int) = match (term, int) {
        (Ok(term), Ok(int)) => (term, int),
        (Err(e), _) | (_, Err(e)) => return Err(Failure::new(format_args!("signals: {e}"))),
    };
    let watch = async move {
        let mut seen = false;
        loop {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            if seen {
                eprintln!("weir: {name}: ending at once");
                std::process::exit(1);
            }
            seen = true;
            let _ = end.send(End::Signal(name));
        }
    };
    let thread = std::thread::Builder::new().name("weir-signals".into());
    thread.spawn(move || runtime.block_on(watch)).map_err(|e| Failure::new(format_args!("signals: {e}")))?;
    Ok(())
}

/// One line says that it serves; the rest says how to connect.
fn announce(
    config: &Config,
    listening: &[std::net::SocketAddr],
    keep: &Keep,
    steps: &Steps,
    json: bool,
) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "weir".to_string());
    let api: Vec<String> = config.node.api.iter().map(ToString::to_string).collect();
    if json {
        let exports: Vec<_> = config.exports.iter().map(|e| {
            serde_json::json!({ "device": config.devices[e.device].name, "nqn": config.devices[e.device].nqn, "door": e.door.to_string() })
        }).collect();
        let step = |(name, time): &(&str, Duration)| serde_json::json!({ "name": name, "ns": time.as_nanos() as u64 });
        let steps: Vec<_> = steps.done.iter().map(step).collect();
        return output::json(&serde_json::json!({
            "state": "serving", "node": config.node.name, "pid": keep.node(), "api": api,
            "nvme_tcp": listening, "exports": exports, "steps": steps,
        }));
    }
    let first = format!("weir {}: node {} is serving; ^C ends it\n", env!("CARGO_PKG_VERSION"), config.node.name);
    output::text(&(first + &connect::lines(config, listening, &program)))
}
