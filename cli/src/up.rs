//! `weir up`: a node in the foreground.
//!
//! StartSteps, each undone by dropping what it made: configuration, runtime folder, API sockets, signals, the node, the API,
//! "serving". Then it waits for a signal or for `shutdown` of the API, drains, and ends.
//!
//! Unless the configuration says `keeper = false`, these are the steps of `weir worker`, which the keeper's process starts, and starts again when it dies:
//! it takes what the worker before it left, and the configuration as that one had changed it. After an upgrade the keeper's process executes
//! the new program's `weir up`, which goes on from what it inherits.

use crate::address::ApiOfUp;
use crate::args;
use crate::config::load_with;
use crate::connect;
use crate::failure::CommandFailure;
use crate::output;
use crate::registry;
use crate::reload::Reload;
use crate::start::{Started, start};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_api::{Bound, Tls, Tokens};
use weir_config::{self as config, Admission, ApiTls, Config, NodeConfig};
use weir_node::device::region;
use weir_node::{CONFIG, PreparedShards, StartSteps, keeper, layouts, notice};
use weir_sys::exec::Inherited;
use weir_sys::keeper_channel::{Keep, ToKeeper};
use weir_sys::sched;
use weir_sys::systemd::Notifier;

/// Why the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Signal(&'static str),
    Api,
    /// Another worker is to serve.
    HandOver,
}

/// What the main thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    End(End),
    /// The configuration file may be another one.
    Reload,
}

/// Why the node is to end, from whoever wants it to.
struct Ends {
    end: Sender<Told>,
    ended: Receiver<Told>,
    /// From then on it serves, or is about to.
    goes: Arc<AtomicBool>,
}

impl Ends {
    /// From here on SIGTERM, SIGINT and SIGHUP end the node in good order, and the second one at once. Of a worker they do so when it
    /// has gone, and before at once; SIGHUP has it read its configuration anew.
    fn watch(is_worker: bool) -> Result<Self, CommandFailure> {
        let (end, ended) = mpsc::channel();
        let goes = Arc::new(AtomicBool::new(!is_worker));
        watch_signals(end.clone(), goes.clone(), is_worker)?;
        Ok(Self { end, ended, goes })
    }
}

pub fn run(args: &args::Up, api: &ApiOfUp, json: bool) -> Result<ExitCode, CommandFailure> {
    if let Some(inherited) = Inherited::find().map_err(|e| of_keeper(&e))? {
        return keeper::resume(inherited).map(ExitCode::from).map_err(|e| of_keeper(&e));
    }
    let mut steps = StartSteps::begin();
    let config = configuration(args, api)?;
    if config.node.keeper {
        return keep(&config);
    }
    keeper::raise_descriptors();
    steps.done("configuration");
    serve(config, (args, api), &Keep::none(), None, Ends::watch(false)?, steps, json)?;
    Ok(ExitCode::SUCCESS)
}

/// The keeper: this very program once more, as a worker with the same arguments.
fn keep(config: &Config) -> Result<ExitCode, CommandFailure> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let up =
        arguments.iter().position(|a| a == "up").ok_or_else(|| CommandFailure::new("keeper: there is no \"up\""))?;
    arguments[up] = "worker".into();
    let program = std::env::current_exe().map_err(|e| of_keeper(&e))?;
    let settings = keeper::Settings { program, arguments, standby: config.node.standby };
    keeper::run(settings).map(ExitCode::from).map_err(|e| of_keeper(&e))
}

fn of_keeper(e: &std::io::Error) -> CommandFailure {
    CommandFailure::new(format_args!("keeper: {e}"))
}

/// A keeper asks whether this program could go on in its place.
pub fn could_resume() -> Result<(), CommandFailure> {
    let wrong = |e: std::io::Error| {
        CommandFailure::new(format_args!("keeper: this program cannot take it over: {e}; weir up starts a node"))
    };
    let state = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|e| wrong(e.into()))?;
    keeper::could_resume(state).map_err(wrong)
}

/// The process that serves under a keeper: its end of their conversation is the standard input.
pub fn worker(args: &args::Up, api: &ApiOfUp, json: bool) -> Result<ExitCode, CommandFailure> {
    let wrong =
        |e: std::io::Error| CommandFailure::new(format_args!("worker: {e}; it is started by weir up, not by hand"));
    // Nobody is left behind when the keeper is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| wrong(e.into()))?;
    weir_sys::signals::unblock();
    // Its process group is not the terminal's.
    weir_sys::signals::write_from_background();
    // The kernel names a program after what it was executed by, which is a descriptor's number.
    let _ = rustix::thread::set_name(c"weir-standby");
    abort_on_panic();
    let mut steps = StartSteps::begin();
    let mut config = configuration(args, api)?;
    // Somebody else may be serving on those cores.
    let all = sched::aside(&config.node.cores);
    // What was forced once needs no force again.
    let mut left = Config { node: NodeConfig { admission: Admission::Warn, ..config.node.clone() }, ..config.clone() };
    // A standby has the time to see beforehand what the worker before it most likely leaves.
    let known = [config.to_toml(), left.to_toml()];
    // And to have ready what does not depend on that.
    let crew = PreparedShards::prepare(&config).map_err(CommandFailure::new)?;
    let ends = Ends::watch(true)?;
    let channel = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|e| wrong(e.into()))?;
    // When it is to go they are free.
    sched::back(&all);
    sched::prompt();
    let keep = Keep::join(channel, &layouts().to_string(), region).map_err(wrong)?;
    ends.goes.store(true, Ordering::Relaxed);
    let _ = rustix::thread::set_name(c"weir-worker");
    if keep.generation() > 0 {
        steps = StartSteps::begin();
    }
    if let Some(text) = keep.take_text(CONFIG).map_err(wrong)? {
        if !known.contains(&text) {
            left = Config::parse(&text, "the configuration as it was left", Path::new("/"))?;
            left.node.admission = Admission::Warn;
        }
        config = left;
    }
    steps.done("configuration");
    serve(config, (args, api), &keep, Some(crew), ends, steps, json)?;
    Ok(ExitCode::SUCCESS)
}

/// A thread that cannot go on ends the worker: the next one takes over, from what all threads left.
fn abort_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        say(what);
        weir_sys::media::distrust_maps();
        std::process::abort();
    }));
}

/// The tokens of the API. One that cannot be read keeps a node from its start; a worker that takes over serves without it.
fn tokens(config: &Config, keep: &Keep) -> Result<Tokens, CommandFailure> {
    let (tokens, wrong) = Tokens::load(&config.api);
    if let Some(first) = wrong.first().filter(|_| keep.generation() == 0) {
        return Err(CommandFailure::new(format_args!("api: {first}")));
    }
    wrong.iter().for_each(|wrong| notice(format_args!("api: {wrong}")));
    Ok(tokens)
}

/// The API's certificate. One that is wrong keeps a node from its start; a worker that takes over closes the API's ports until it is right.
fn certificate(files: &ApiTls, keep: &Keep) -> Result<Tls, CommandFailure> {
    match Tls::load(files) {
        Err(why) if keep.generation() == 0 => Err(CommandFailure::new(format_args!("api: {why}"))),
        Err(why) => {
            notice(format_args!("api: {why}; its TCP ports serve nobody until that is put right"));
            Ok(Tls::closed(files))
        }
        Ok(tls) => Ok(tls),
    }
}

fn serve(
    mut config: Config,
    (args, api): (&args::Up, &ApiOfUp),
    keep: &Keep,
    crew: Option<PreparedShards>,
    ends: Ends,
    mut steps: StartSteps,
    json: bool,
) -> Result<(), CommandFailure> {
    // tidy: long because the steps of a start stand in their order.
    if args.config.is_none() {
        let folder = config::runtime_dir();
        config::create_runtime_dir(&folder).map_err(|e| {
            CommandFailure::new(format_args!("{}: {e}; {}", folder.display(), config::runtime_dir_origin()))
        })?;
    }
    let cores = sched::allowed().unwrap_or_default();
    let tokens = tokens(&config, keep)?;
    let tls = config.api.tls.as_ref().map(|files| certificate(files, keep)).transpose()?;
    let bound = Bound::bind(&config.node.api, keep).map_err(|e| CommandFailure::new(format_args!("api: {e}")))?;
    config.node.api = bound.addresses();
    let crew = crew.map_or_else(|| PreparedShards::prepare(&config), Ok).map_err(CommandFailure::new)?;
    steps.done("API sockets, threads");
    let Ends { end, ended, .. } = ends;
    let other = end.clone();
    let on_shutdown = Box::new(move || {
        let _ = end.send(Told::End(End::Api));
    });
    let started: Started = start(crew, config.clone(), keep, on_shutdown).map_err(CommandFailure::new)?;
    steps.add(started.steps());
    let hand_over = move || {
        let _ = other.send(Told::End(End::HandOver));
    };
    let gone = || {
        notice("the keeper has gone, and what it held with it");
        std::process::exit(1);
    };
    let ready = || started.control.serve_keeper(hand_over, gone).map_err(|e| of_keeper(&e));
    let answer =
        || bound.serve(started.served(), tokens, tls).map_err(|e| CommandFailure::new(format_args!("api: {e}")));
    // Front ends wait for one that takes over, and before those who ask for anything else.
    let running = if keep.generation() > 0 {
        ready()?;
        steps.done("keeper");
        answer()?
    } else {
        let running = answer()?;
        steps.done("API");
        ready()?;
        running
    };
    let registered = registry::register(&config, args.config.as_deref(), keep.node(), started.store());
    let systemd = systemd(keep)?;
    systemd.ready();
    tracing::info!(steps = %steps.text(), "serving");
    if keep.generation() == 0 {
        announce(&config, &started, keep, &steps, json)?;
    }
    let reload = Reload::new(args, api, running.addresses(), cores);
    let end = loop {
        match ended.recv() {
            Ok(Told::Reload) => reload.begin(),
            Ok(Told::End(end)) => break end,
            Err(_) => break End::Api,
        }
    };
    match end {
        End::HandOver => {
            // Who asks from now on is answered by the next one.
            running.quiet();
            hand_over_now(started, keep);
            running.leave();
            return Ok(());
        }
        End::Signal(name) => notice(format_args!("{name}: finishing what is in flight; once more ends at once")),
        End::Api => notice("shutdown: finishing what is in flight"),
    }
    systemd.stopping();
    started.stop();
    running.stop();
    registered.remove();
    Ok(())
}

/// Has the next worker take over as soon as nothing is under way any more.
fn hand_over_now(started: Started, keep: &Keep) {
    let keeper = keep.clone();
    let left = move || {
        // A keeper that does not hear it waits for the end of this process, or has gone.
        if let Err(e) = keeper.say(&ToKeeper::Left, &[]) {
            tracing::warn!("keeper: {e}");
        }
    };
    if !started.hand_over(left) {
        // A late write must not land over one of the next worker's: the keeper waits for the end of this process.
        notice("drives have not finished what is in flight; the next worker waits for the end of this one");
    }
}

/// Who is told that the node is up, where no keeper says so.
fn systemd(keep: &Keep) -> Result<Notifier, CommandFailure> {
    if keep.is_kept() {
        return Ok(Notifier::default());
    }
    Notifier::from_environment().map_err(|e| CommandFailure::new(format_args!("NOTIFY_SOCKET: {e}")))
}

/// What the file, the arguments and the environment say.
///
/// # Errors
/// One of them is wrong.
pub fn configuration(args: &args::Up, api: &ApiOfUp) -> Result<Config, CommandFailure> {
    let mut config = load(args, api)?;
    override_by(&mut config, args, api)?;
    Ok(config)
}

/// The file, what `--store` stands for, or the built-in default.
fn load(args: &args::Up, api: &ApiOfUp) -> Result<Config, CommandFailure> {
    let Some(folder) = &args.store else { return load_with(args.config.as_deref(), api.default.clone()) };
    let wrong = |e: std::io::Error| CommandFailure::new(format_args!("--store: {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(wrong)?;
    let folder = std::path::absolute(folder).map_err(wrong)?;
    let mut config = Config::store_on_one_machine(&folder, &config::runtime_dir())?;
    if let Some(api) = api.default.clone() {
        config.node.api = vec![api];
    }
    Ok(config)
}

fn override_by(config: &mut Config, args: &args::Up, api: &ApiOfUp) -> Result<(), CommandFailure> {
    if let Some(address) = &api.option {
        config.node.api = vec![address.clone()];
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
            return Err(CommandFailure::usage("--cores: a CPU is listed twice; keep one"));
        }
        config.node.cores = args.cores.iter().map(|c| usize::from(*c)).collect();
    }
    if !args.listen.is_empty() {
        config.nvme_tcp.listen.clone_from(&args.listen);
    }
    Ok(())
}

fn watch_signals(end: Sender<Told>, goes: Arc<AtomicBool>, is_worker: bool) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| CommandFailure::new(format_args!("signals: {e}")))?;
    // What nohup(1) has the node ignore it ignores.
    let hangs_up = !is_worker && !weir_sys::signals::is_ignored(SignalKind::hangup().as_raw_value());
    let (term, int, hup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    };
    let (mut term, mut int, mut hup) = match (term, int, hup) {
        (Ok(term), Ok(int), Ok(hup)) => (term, int, hup),
        (Err(e), ..) | (_, Err(e), _) | (.., Err(e)) => return Err(CommandFailure::new(format_args!("signals: {e}"))),
    };
    let watch = async move {
        let mut seen = false;
        loop {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
                _ = hup.recv() => "SIGHUP",
            };
            if name == "SIGHUP" && !hangs_up {
                if is_worker && goes.load(Ordering::Relaxed) {
                    let _ = end.send(Told::Reload);
                }
                continue;
            }
            if !goes.load(Ordering::Relaxed) {
                std::process::exit(1);
            }
            if seen {
                notice(format_args!("{name}: ending at once"));
                std::process::exit(1);
            }
            seen = true;
            let _ = end.send(Told::End(End::Signal(name)));
        }
    };
    let thread = std::thread::Builder::new().name("weir-signals".into());
    thread.spawn(move || runtime.block_on(watch)).map_err(|e| CommandFailure::new(format_args!("signals: {e}")))?;
    Ok(())
}

/// One line says that it serves; the rest says how to connect.
fn announce(
    config: &Config,
    started: &Started,
    keep: &Keep,
    steps: &StartSteps,
    json: bool,
) -> Result<(), CommandFailure> {
    let program = std::env::args().next().unwrap_or_else(|| "weir".to_string());
    let listening = &started.listening;
    let api: Vec<String> = config.node.api.iter().map(ToString::to_string).collect();
    if json {
        let exports: Vec<_> = config.exports.iter().map(|e| {
            serde_json::json!({ "device": config.devices[e.device].name, "nqn": config.devices[e.device].nqn, "door": e.door.to_string() })
        }).collect();
        let step = |(name, time): &(&str, Duration)| serde_json::json!({ "name": name, "ns": time.as_nanos() as u64 });
        let steps: Vec<_> = steps.done.iter().map(step).collect();
        let mut serving = serde_json::json!({
            "state": "serving", "node": config.node.name, "pid": keep.node(), "api": api,
            "nvme_tcp": listening, "exports": exports, "steps": steps,
        });
        if !started.store().is_empty() {
            serving["store"] = started.store().into();
        }
        return output::json(&serving);
    }
    let first = format!("weir {}: node {} is serving; ^C ends it\n", env!("CARGO_PKG_VERSION"), config.node.name);
    let store = match started.store().first() {
        Some(at) => connect::store_lines(config, at, &program),
        None => String::new(),
    };
    output::text(&(first + &connect::lines(config, listening, &program) + &store))
}
