//! `weir apply`: a running node becomes what a file says, as far as that goes without a restart; else nothing is changed.
//!
//! ```text
//!   GET /v1/config ──▶ running ─┐
//!                               ├─ compared, key by key ─▶ changes ──▶ PATCH, POST, DELETE; undone where one is refused
//!   -c FILE ──────────▶ wanted ─┘                      └─▶ what needs a restart: refused as a whole, with the file's lines
//! ```

mod change;
mod difference;
mod lines;

use crate::client::ApiClient;
use crate::failure::CommandFailure;
use crate::output;
use change::{Change, beyond_requests, changes};
use clap::Args;
use difference::{Difference, differences};
use lines::Lines;
use serde::Serialize;
use std::path::{Path, PathBuf};
use weir_config::Config;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir apply -c weir.toml --dry-run     what would change
  weir apply -c weir.toml               change it while I/O runs

Changed are tenants (class, weight, floor, ceiling, sla; new ones and removed ones), and of devices arbitration, weights, burst, quanta
and capacity. Anything else that differs needs a restart: then nothing is changed, and each such line is named.")]
pub struct ApplyArgs {
    /// The configuration that is to hold
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change it even where promises to tenants cannot be kept then
    #[arg(long)]
    force: bool,
}

/// What was or would be done.
#[derive(Debug, Serialize)]
struct Applied<'a> {
    applied: bool,
    changes: &'a [Difference],
}

/// Compares, and changes what differs.
///
/// # Errors
/// The file is wrong, something needs a restart, or the node refuses a change: then all is as before.
pub fn run(client: &ApiClient, args: &ApplyArgs, json: bool) -> Result<(), CommandFailure> {
    let running = running(client)?;
    let wanted = Config::load(&args.config, running.node.api.first().cloned())?;
    let how = How { dry_run: args.dry_run, force: args.force };
    let live = become_like(client, running, &wanted, &args.config, how)?;
    if json {
        return output::json(&Applied { applied: !args.dry_run, changes: &live });
    }
    let mut text: String = live.iter().map(|d| format!("{d}\n")).collect();
    text += match (live.is_empty(), args.dry_run) {
        (true, _) => "nothing differs\n",
        (false, true) => "nothing was changed: --dry-run\n",
        (false, false) => "applied\n",
    };
    output::text(&text)
}

/// What is done about differences.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Nothing: they are found.
    pub dry_run: bool,
    /// Change it even where promises to tenants cannot be kept then.
    pub force: bool,
}

/// The configuration that a node runs with.
///
/// # Errors
/// It does not answer.
pub fn running(client: &ApiClient) -> Result<Config, CommandFailure> {
    Ok(Config::parse(&client.text("/v1/config")?, "the running node", Path::new("/"))?)
}

/// Changes what differs between a node and a file; answers with that.
///
/// # Errors
/// As [`run`].
pub fn become_like(
    client: &ApiClient,
    mut running: Config,
    wanted: &Config,
    file: &Path,
    how: How,
) -> Result<Vec<Difference>, CommandFailure> {
    // A worker that took over admits what the one before it had, whatever its file says.
    running.node.admission = wanted.node.admission;
    let found = differences(&running.to_toml(), &wanted.to_toml()).map_err(CommandFailure::new)?;
    let beyond = [beyond_requests(wanted, &running), beyond_requests(&running, wanted)].concat();
    let (live, mut restart): (Vec<&Difference>, Vec<&Difference>) = found.iter().partition(|d| change::is_live(d));
    restart.extend(&beyond);
    if !restart.is_empty() {
        return Err(refusal(file, &restart));
    }
    if !how.dry_run {
        apply(client, changes(&running, wanted, &live), how.force)?;
    }
    Ok(live.into_iter().cloned().collect())
}

fn refusal(file: &Path, restart: &[&Difference]) -> CommandFailure {
    let lines = Lines::of(&std::fs::read_to_string(file).unwrap_or_default());
    let told: Vec<String> = restart
        .iter()
        .map(|d| match lines.find(d) {
            Some(line) => format!("{}:{line}: {d}: needs a restart", file.display()),
            None => format!("{}: {d}: needs a restart", file.display()),
        })
        .collect();
    let end = "nothing was changed; put these back and apply the rest, or `weir shutdown` and start with the file";
    CommandFailure::new(format_args!("{}\n{end}", told.join("\n")))
}

/// Makes all changes. One that is refused may fit after others, as where a promise to one tenant takes what another gives up: so it is tried
/// again as long as others succeed.
fn apply(client: &ApiClient, changes: Vec<Change>, force: bool) -> Result<(), CommandFailure> {
    let (mut left, mut done) = (changes, Vec::new());
    while !left.is_empty() {
        let (mut refused, mut first) = (Vec::new(), None);
        let before = left.len();
        for change in left {
            match change.make(client, force) {
                Ok(()) => done.push(change),
                Err(failure) => {
                    first.get_or_insert(failure);
                    refused.push(change);
                }
            }
        }
        left = refused;
        if let (true, Some(first)) = (left.len() == before, first) {
            return Err(undo(client, &done, &first));
        }
    }
    Ok(())
}

/// The last change first; promises that could be kept before can be kept again.
fn undo(client: &ApiClient, done: &[Change], first: &CommandFailure) -> CommandFailure {
    let mut text = format!("apply: {}", first.text());
    let failed: Vec<String> =
        done.iter().rev().filter_map(|change| change.undo(client).err()).map(|f| f.text().into()).collect();
    text += &match failed.as_slice() {
        [] => "\nnothing was changed".to_owned(),
        failed => format!("\nand what was changed before that could not all be undone: {}", failed.join("; ")),
    };
    CommandFailure::new(text)
}
