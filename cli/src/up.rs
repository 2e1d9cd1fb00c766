//! `weir up`: a node in the foreground.
//!
//! Steps, each undone by dropping what it made: configuration, runtime folder, API sockets, signals, the node, the API,
//! "serving". Then it waits for a signal or for `shutdown` of the API, drains, and ends.

use crate::args;
use crate::config::load;
use crate::connect;
use crate::failure::Failure;
use crate::output;
use crate::start::{Started, start};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use tokio::signal::unix::{SignalKind, signal};
use weir_node::api::Bound;
use weir_node::config::{self, Config};

/// Why the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Signal(&'static str),
    Api,
}

pub fn run(args: &args::Up, api: Option<&str>, json: bool) -> Result<(), Failure> {
    let mut config = load(args.config.as_deref())?;
    override_by(&mut config, args, api)?;
    if args.config.is_none() {
        let folder = config::runtime_dir();
        config::create_runtime_dir(&folder).map_err(|e| Failure::new(format_args!("{}: {e}", folder.display())))?;
    }
    let bound = Bound::bind(&config.node.api).map_err(|e| Failure::new(format_args!("api: {e}")))?;
    config.node.api = bound.addresses();
    let (end, ended) = mpsc::channel();
    watch_signals(end.clone())?;
    let on_shutdown = Box::new(move || {
        let _ = end.send(End::Api);
    });
    let Started { listening, control, stop } = start(config.clone(), on_shutdown).map_err(Failure::new)?;
    let running = bound.serve(control).map_err(|e| Failure::new(format_args!("api: {e}")))?;
    announce(&config, &listening, json)?;
    match ended.recv() {
        Ok(End::Signal(name)) => eprintln!("weir: {name}: finishing what is in flight; once more ends at once"),
        Ok(End::Api) | Err(_) => eprintln!("weir: shutdown: finishing what is in flight"),
    }
    stop();
    running.stop();
    Ok(())
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
fn announce(config: &Config, listening: &[std::net::SocketAddr], json: bool) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "weir".to_string());
    let api: Vec<String> = config.node.api.iter().map(ToString::to_string).collect();
    if json {
        let exports: Vec<_> = config.exports.iter().map(|e| {
            serde_json::json!({ "device": config.devices[e.device].name, "nqn": config.devices[e.device].nqn, "door": e.door.to_string() })
        }).collect();
        return output::json(&serde_json::json!({
            "state": "serving", "node": config.node.name, "pid": std::process::id(), "api": api,
            "nvme_tcp": listening, "exports": exports,
        }));
    }
    let first = format!("weir {}: node {} is serving; ^C ends it\n", env!("CARGO_PKG_VERSION"), config.node.name);
    output::text(&(first + &connect::lines(config, listening, &program)))
}
