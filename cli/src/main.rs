//! The binary `weir`: starts a node, asks and changes a running one over its API, measures, simulates.
//!
//! ```text
//! args ──▶ up ──▶ weir-node in this process            bench ──▶ a target, no node needed
//!      └─▶ ask ─▶ client (HTTP) ─▶ a running node      calibrate ──▶ bench, many times
//!                                                      sim ──▶ weir-sim, no clock needed
//!      fs, store ──▶ a metadata service and drives     reproduce ─▶ weir-sim and bench; config, completions, man: neither
//!      doctor ──▶ this machine, and the nodes that run
//! ```
//!
//! Exit status: 0; 1 where it failed; 2 for wrong usage. An error is one line, `weir: what: why; what to do`.

mod address;
mod apply;
mod args;
mod bench;
mod calendar;
mod calibrate;
mod client;
mod client_tls;
mod complete;
mod config;
mod config_schema;
mod connect;
mod doctor;
#[cfg(test)]
mod documented;
mod drive_health;
mod events;
mod failure;
mod fault;
mod firmware;
mod fs;
mod guest;
mod image;
mod man;
mod node_commands;
mod nodes;
mod output;
mod pci_drives;
mod plan;
mod plot;
mod profiles;
mod registry;
mod reload;
mod report;
mod reproduce;
mod service_levels;
mod sim;
mod start;
mod store_service;
mod timing;
mod top;
mod up;
mod upgrade;
mod version;
mod volume;

#[cfg(test)]
mod tests;

use args::{Cli, CliCommand};
use clap::{CommandFactory, Parser};
use failure::CommandFailure;
use output::Form;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};

fn main() -> ExitCode {
    complete::answer();
    let mut cli = Cli::parse();
    log_to_stderr();
    let form = cli.form().unwrap_or_default();
    if cli.json && form != Form::Json {
        let both = "the arguments '--json' and '--output' ask for two forms; leave one out";
        Cli::command().error(clap::error::ErrorKind::ArgumentConflict, both).exit();
    }
    output::set_form(form);
    cli.json = matches!(form, Form::Json | Form::Yaml);
    match run(cli) {
        Ok(status) => status,
        Err(failure) if form == Form::Json => failure.report_json(),
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<ExitCode, CommandFailure> {
    let Cli { command, json, api, node, ca } = cli;
    let (api, node, ca) = (api.as_deref(), node.as_deref(), ca.as_deref());
    let client = || client::ApiClient::find(api, node, ca);
    let done = match command {
        CliCommand::Up(args) => return up::run(&args, &address::of_up(api, node)?, json),
        CliCommand::Worker(args) => return up::worker(&args, &address::of_up(api, node)?, json),
        CliCommand::Keeper(_) => up::could_resume(),
        CliCommand::Config(args) => config::run(&args, json),
        CliCommand::Bench(args) => bench::run(args, json),
        CliCommand::Calibrate(args) => calibrate::run(&args, json),
        CliCommand::Sim(args) => sim::run(&args, json),
        CliCommand::Plan(args) => plan::run(&args, json),
        CliCommand::Reproduce(args) => reproduce::run(&args, json),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
            output::raw(&script)
        }
        CliCommand::Man { command, out } => man::run(&command, out.as_deref(), json),
        CliCommand::Doctor(args) => return doctor::run(&args, json, (api, node), ca),
        CliCommand::Status(_) => node_commands::status(&client()?),
        CliCommand::Apply(args) => apply::run(&client()?, &args, json),
        CliCommand::Events(args) => events::run(&client()?, &args, json),
        CliCommand::Top(args) => top::run(&client()?, &args, json),
        CliCommand::Device(args::DeviceArgs { command: args::DeviceCommand::Profiles { name, quirks }, .. }) => {
            profiles::run(name.as_deref(), quirks, json)
        }
        CliCommand::Device(args::DeviceArgs {
            command: args::DeviceCommand::FirmwareImage { revision, payload, out },
            ..
        }) => firmware::run(&revision, payload.as_deref(), &out, json),
        CliCommand::Device(args::DeviceArgs { command: args::DeviceCommand::Ls { pci: true }, .. }) => {
            pci_drives::list(json)
        }
        CliCommand::Device(args::DeviceArgs { command: args::DeviceCommand::Bind { address }, .. }) => {
            pci_drives::bind(address, json)
        }
        CliCommand::Device(args::DeviceArgs { command: args::DeviceCommand::Unbind { address }, .. }) => {
            pci_drives::unbind(address, json)
        }
        CliCommand::Device(args) => node_commands::device(&client()?, &args, json),
        CliCommand::Fault(args) => fault::run(&client()?, &args, json),
        CliCommand::Tenant(args) => node_commands::tenant(&client()?, &args),
        CliCommand::Export(args) => node_commands::export(&client()?, &args, json),
        CliCommand::Pool(args) => volume::pool(&client()?, &args),
        CliCommand::Volume(args) => volume::volume(&client()?, &args, json),
        CliCommand::Guest(args) => return guest::run(client, &args, json),
        CliCommand::Fs(args) => fs::run(&args, json, || registry::store(api, node)),
        CliCommand::Store(args) => fs::run_store(&args, json, || registry::store(api, node)),
        CliCommand::Upgrade(args) => upgrade::run(&client()?, &args, json),
        CliCommand::Shutdown => node_commands::shutdown(&client()?, json),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Warnings and errors; `WEIR_LOG=debug` or `WEIR_LOG=warn,weir_node::door=trace` for more.
fn log_to_stderr() {
    use std::io::IsTerminal;
    use tracing_subscriber::prelude::*;
    let (filter, refused) = log_filter(std::env::var_os("WEIR_LOG"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // On a terminal that was closed: that is no reason to panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    let (json, unknown) = log_format(std::env::var_os("WEIR_LOG_FORMAT"));
    let lines = if json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    for why in [refused, unknown].into_iter().flatten() {
        tracing::warn!("{why}");
    }
}

/// Whether `WEIR_LOG_FORMAT` asks for JSON; where it asks for neither that nor text, why not.
fn log_format(asked: Option<std::ffi::OsString>) -> (bool, Option<String>) {
    match asked.unwrap_or_default().to_string_lossy().as_ref() {
        "" | "text" => (false, None),
        "json" => (true, None),
        other => (false, Some(format!("WEIR_LOG_FORMAT={other:?}: write text or json"))),
    }
}

/// What `WEIR_LOG` asks for; where it cannot be read, warnings and errors, and why.
fn log_filter(asked: Option<std::ffi::OsString>) -> (Targets, Option<String>) {
    let usual = || Targets::new().with_default(LevelFilter::WARN);
    let Some(asked) = asked.filter(|text| !text.is_empty()) else { return (usual(), None) };
    let asked = asked.to_string_lossy();
    // A target alone would be a target of that name at every level: who writes that means a level.
    let unknown = asked.split(',').find(|part| !part.contains('=') && part.trim().parse::<LevelFilter>().is_err());
    let why = match (unknown, asked.parse::<Targets>()) {
        (None, Ok(filter)) => return (filter, None),
        (Some(part), _) => format!("{part:?} is no level"),
        (None, Err(e)) => e.to_string(),
    };
    let levels = "write a level (off, error, warn, info, debug, trace) or `warn,weir_node::door=debug`";
    (usual(), Some(format!("WEIR_LOG={asked:?}: {why}; {levels}")))
}
