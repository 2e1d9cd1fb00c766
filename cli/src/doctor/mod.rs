//! `weir doctor`: what is wrong with this machine, a configuration or the nodes that run here, and what to do.
//!
//! ```text
//!   machine (kernel, CPUs, clock, …) ──▶ judged ─┐
//!   -c FILE ──▶ weir config --check ─────────────┼──▶ findings ──▶ table, JSON, exit status
//!   each node ──▶ GET /v1/… ──▶ judged ──────────┘        └──▶ --bundle FILE.tar.gz
//! ```

mod bundle;
mod finding;
mod machine;
mod node;

use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::{config, output, registry};
use bundle::Bundle;
use clap::Args;
use finding::{DoctorReport, Finding};
use machine::Machine;
use node::Node;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir doctor                            this machine, and every node that runs on it
  weir doctor -c weir.toml               also a configuration, before it is started
  weir doctor --bundle help.tar.gz       what somebody who is to help needs, in one file

Exit status 1: something must be put right. What is only advice does not count.")]
pub struct DoctorArgs {
    /// Check this configuration as well
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the findings, what the nodes say of themselves, and what machine this is, to this file (.tar.gz)
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Looks, prints, and says by the exit status whether anything must be put right.
///
/// # Errors
/// The bundle cannot be written; a node that was named does not answer.
pub fn run(
    args: &DoctorArgs,
    json: bool,
    (api, name): (Option<&str>, Option<&str>),
    ca: Option<&Path>,
) -> Result<ExitCode, CommandFailure> {
    let mut findings = Machine::look().findings();
    findings.extend(args.config.as_deref().map(configuration));
    let mut bundle = Bundle::of_machine();
    if api.is_some() || name.is_some() {
        findings.extend(look_at(&ApiClient::find(api, name, ca)?, "node", &mut bundle)?);
    } else {
        findings.extend(all_nodes(&mut bundle));
    }
    let report = DoctorReport::of(findings);
    if let Some(path) = &args.bundle {
        bundle.add("doctor.json", serde_json::to_vec_pretty(&report).map_err(CommandFailure::new)?);
        bundle.write(path)?;
    }
    if json {
        output::json(&report)?
    } else {
        output::text(&report.text())?
    }
    if let (Some(path), false) = (&args.bundle, json) {
        output::text(&format!("written: {}; look through it before you give it away\n", path.display()))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a node could start with it.
fn configuration(path: &std::path::Path) -> Finding {
    let what = "configuration";
    match config::load(Some(path)) {
        Err(failure) => {
            Finding::problem(what, failure.text(), "docs/reference/configuration.md; `weir config -c FILE --check`")
        }
        Ok(config) => {
            let (drives, notes) = (config.devices.len(), weir_config::notes(&config));
            match notes.as_slice() {
                [] => Finding::ok(what, format!("{}, {drives} drives", path.display())),
                notes => Finding::advice(what, format!("{}, {drives} drives", path.display()), notes.join("; ")),
            }
        }
    }
}

/// Every node that runs here; one that does not answer is a problem of its own.
fn all_nodes(bundle: &mut Bundle) -> Vec<Finding> {
    let nodes = registry::running();
    if nodes.is_empty() {
        return vec![Finding::ok("nodes", "none runs here; weir up starts one")];
    }
    let mut findings = Vec::new();
    for entry in nodes {
        let what = format!("{}-{}", entry.name, entry.pid);
        let Some(client) = entry.client() else { continue };
        let seen = look_at(&client, &what, bundle);
        findings.extend(seen.unwrap_or_else(|failure| {
            let advice = "its log says why; `weir shutdown`, or SIGHUP to its keeper once the cause is gone";
            vec![Finding::problem(format!("node {}", entry.name), failure.text(), advice)]
        }));
    }
    findings
}

/// Asks a node for what it says of itself, and keeps that for the bundle under `folder`.
fn look_at(client: &ApiClient, folder: &str, bundle: &mut Bundle) -> Result<Vec<Finding>, CommandFailure> {
    for (path, file) in [("/v1/config", "config.toml"), ("/metrics", "metrics.txt")] {
        // A node of an older program has no such answer.
        if let Ok(text) = client.text(path) {
            bundle.add(format!("nodes/{folder}/{file}"), text);
        }
    }
    let mut ask = |what: &str| -> Result<Value, CommandFailure> {
        let value: Value = client.get(&format!("/v1/{what}"))?;
        bundle.add(
            format!("nodes/{folder}/{what}.json"),
            serde_json::to_vec_pretty(&value).map_err(CommandFailure::new)?,
        );
        Ok(value)
    };
    let [status, pools, volumes] = [ask("status")?, ask("pools")?, ask("volumes")?];
    let wrong = |e: serde_json::Error| {
        CommandFailure::new(format_args!(
            "an answer that this version does not understand ({e}); ask with the node's own program"
        ))
    };
    let node = Node {
        status: serde_json::from_value(status).map_err(wrong)?,
        pools: serde_json::from_value(pools).map_err(wrong)?,
        volumes: serde_json::from_value(volumes).map_err(wrong)?,
    };
    Ok(node.findings())
}
