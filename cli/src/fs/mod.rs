//! `weir fs`: files of the store, as coreutils and `hadoop fs` have them.
//!
//! ```text
//! args ─▶ Operands (paths, each in its store; patterns) ─▶ listing, names, transfer ─▶ Files ─▶ weir_store_node::client
//! ```
//! `bench` measures, by the client itself; `mount` is `weir-fuse`.
//!
//! What cannot be done of several things is said, and the others are done. A copy gets its name when it is whole.

mod args;
mod bench;
mod files;
mod fsck;
mod glob;
mod listing;
mod mount;
mod names;
mod operands;
mod path;
mod policy;
pub mod progress;
mod scrub;
mod store;
mod store_args;
#[cfg(test)]
mod tests;
mod text;
mod transfer;

pub use args::FsArgs;
pub use store_args::StoreArgs;
use store_args::StoreCommand;

use crate::failure::CommandFailure;
use crate::output;
use args::FsCommand;
use files::Files;
use operands::Operands;
use serde_json::json;
use std::rc::Rc;
use std::time::{Duration, Instant};
use transfer::Copied;
use weir_store_node::client::{Client, ClientError, ClientErrorKind, ClientOptions, Operator, OperatorConnection};

/// Names the store where `--store` does not.
const VARIABLE: &str = "WEIR_STORE";

/// How long the metadata service of a node that runs may be away: between two workers.
const NEXT_WORKER: Duration = Duration::from_secs(5);

/// Runs a command; `running` finds the store of the node that runs.
///
/// # Errors
/// What could not be done.
pub fn run(
    args: &FsArgs,
    json: bool,
    running: impl Fn() -> Result<String, CommandFailure>,
) -> Result<(), CommandFailure> {
    let connect_with =
        |named: Option<&str>, options: ClientOptions| connect(named.or(args.store.as_deref()), &running, options);
    let connect = |named: Option<&str>| connect_with(named, ClientOptions::default());
    let open = |named: Option<&str>| Ok(Rc::new(connect(named)?) as Rc<dyn Files>);
    match &args.command {
        FsCommand::Bench(args) => bench::run(args, json, connect),
        FsCommand::Mount(args) => mount::run(args, json, |options| connect_with(None, options)),
        FsCommand::Umount { directory, lazy } => mount::unmount(directory, *lazy),
        FsCommand::Policy { of } => policy::run(of, connect, json),
        FsCommand::Df(df) => store::df(&connect(None)?, df, json),
        FsCommand::Class { path, classes } => {
            let client = connect(path::StorePath::parse(path)?.store.as_deref())?;
            let mut operands = Operands::new(&[], Box::new(open));
            store::class(&mut operands, &client, (path, classes), json)?;
            operands.finish()
        }
        other => command(other, json, Box::new(open)),
    }
}

/// Runs a command of `weir store`; `running` finds the store of the node that runs.
///
/// # Errors
/// What could not be done.
pub fn run_store(
    args: &StoreArgs,
    json: bool,
    running: impl Fn() -> Result<String, CommandFailure>,
) -> Result<(), CommandFailure> {
    if let StoreCommand::Fsck(of) = &args.command {
        return fsck::run(of, json);
    }
    // No session: what operators ask leaves nothing behind that would have to end.
    let operator = reach(args.store.as_deref(), running, |address| {
        let operator = OperatorConnection::new(address, &ClientOptions::default())?;
        operator.version().map(|_| operator)
    })?;
    store::run(&args.command, &operator, json)
}

/// A client of the store at that address, else of the one that is meant without.
fn connect(
    named: Option<&str>,
    running: impl Fn() -> Result<String, CommandFailure>,
    options: ClientOptions,
) -> Result<Client, CommandFailure> {
    reach(named, running, |address| Client::connect(address, options.clone()))
}

/// The same by another way to connect.
fn reach<T>(
    named: Option<&str>,
    running: impl Fn() -> Result<String, CommandFailure>,
    connect: impl Fn(&str) -> Result<T, ClientError>,
) -> Result<T, CommandFailure> {
    let named = match named {
        Some(address) => Some(address.to_owned()),
        None => by_environment()?,
    };
    let address = named.clone().map_or_else(running, Ok)?;
    let begun = Instant::now();
    loop {
        match connect(&address) {
            Ok(connected) => return Ok(connected),
            // The node runs: its next worker is about to serve.
            Err(e) if named.is_none() && is_away(&e) && begun.elapsed() < NEXT_WORKER => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(CommandFailure::new(e)),
        }
    }
}

fn is_away(e: &ClientError) -> bool {
    matches!(e.kind(), ClientErrorKind::Unreachable(_))
}

/// What `WEIR_STORE` says; empty means unset.
fn by_environment() -> Result<Option<String>, CommandFailure> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |text: std::ffi::OsString| {
        CommandFailure::usage(format_args!("{VARIABLE}: {} is not UTF-8", text.to_string_lossy()))
    };
    text.into_string().map(Some).map_err(wrong)
}

fn command(command: &FsCommand, json: bool, open: operands::OpenStore<'_>) -> Result<(), CommandFailure> {
    let none = [];
    let paths = match command {
        FsCommand::Cat { paths }
        | FsCommand::Rm { paths, .. }
        | FsCommand::Mkdir { paths, .. }
        | FsCommand::Stat { paths, .. }
        | FsCommand::Touch { paths, .. } => paths.as_slice(),
        // These say themselves which of theirs are which.
        _ => &none,
    };
    let mut operands = Operands::new(paths, open);
    let all = &mut operands;
    match command {
        FsCommand::Ls(args) => listing::ls(all, args, json)?,
        FsCommand::Stat { dereference, .. } => listing::stat(all, *dereference, json)?,
        FsCommand::Du(args) => listing::du(all, args, json)?,
        FsCommand::Scrub(args) => scrub::scrub(all, args, json)?,
        FsCommand::Cat { .. } => transfer::cat(all)?,
        FsCommand::Put(args) => copied(transfer::put(all, args)?, json)?,
        FsCommand::Get(args) => {
            let to_output = args.paths.last().is_some_and(|to| to == "-");
            copied(transfer::get(all, args)?, json && !to_output)?;
        }
        FsCommand::Cp(args) => copied(transfer::cp(all, args)?, json)?,
        FsCommand::Mv { paths, force } => done("moved", names::mv(all, paths, *force)?, json)?,
        FsCommand::Rm { recursive, force, .. } => done("removed", names::rm(all, *recursive, *force)?, json)?,
        FsCommand::Mkdir { parents, mode, .. } => done("made", names::mkdir(all, *parents, *mode)?, json)?,
        FsCommand::Touch { no_create, .. } => done("touched", names::touch(all, !*no_create)?, json)?,
        FsCommand::Df(_)
        | FsCommand::Policy { .. }
        | FsCommand::Class { .. }
        | FsCommand::Bench(_)
        | FsCommand::Mount(_)
        | FsCommand::Umount { .. } => {}
        FsCommand::Ln { target, link, force, .. } => done("made", names::ln(all, target, link, *force)?, json)?,
    }
    operands.finish()
}

fn done(what: &str, count: u64, json: bool) -> Result<(), CommandFailure> {
    if json { output::json(&json!({ what: count })) } else { Ok(()) }
}

fn copied(copied: Copied, json: bool) -> Result<(), CommandFailure> {
    let Copied { files, folders, links, bytes } = copied;
    let all = || json!({ "files": files, "folders": folders, "links": links, "bytes": bytes });
    if json { output::json(&all()) } else { Ok(()) }
}
