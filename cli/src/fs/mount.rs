//! `weir fs mount` and `umount`: the store as a file system of this machine, by FUSE.

use crate::failure::CommandFailure;
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_fuse::{MountOptions, Mounted};
use weir_store_node::client::{Client, ClientOptions};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir fs mount /mnt/weir
  weir fs mount --read-only --allow-other /mnt/weir
  weir fs --store 10.0.0.1:4430 mount --class flash /mnt/weir

It runs until `weir fs umount DIRECTORY`, SIGTERM or Ctrl-C, and says on its standard output when the store is there.
What it does not keep of POSIX is listed in docs/guides/mount.md. WEIR_LOG=warn says why requests fail.")]
pub struct MountArgs {
    /// Change nothing
    #[arg(short, long)]
    pub read_only: bool,
    /// Let other users use it; files have their owners and permissions
    #[arg(long)]
    pub allow_other: bool,
    /// Have the kernel keep no pages of files: each read and write goes to the store
    #[arg(long)]
    pub direct_io: bool,
    /// Have the kernel gather small writes: only where no other client changes the files
    #[arg(long, conflicts_with = "direct_io")]
    pub write_back: bool,
    /// Seconds for which the kernel believes names and attributes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub cache: f64,
    /// Seconds after which a request fails that the store has not answered
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = some_seconds)]
    pub deadline: f64,
    /// Requests that are served at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Classes of new files, best first [default: those of the store]
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    pub class: Vec<String>,
    /// Where: an empty directory
    pub directory: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds, from 0 to 86400, like 0.5".into()),
    }
}

fn some_seconds(text: &str) -> Result<f64, String> {
    seconds(text).and_then(|s| if s >= 0.1 { Ok(s) } else { Err("write 0.1 seconds or more".into()) })
}

/// Mounts a store, and returns when that has ended; `connect` opens it.
///
/// # Errors
/// The store does not answer, or the directory cannot be mounted on.
pub fn run(
    args: &MountArgs,
    json: bool,
    connect: impl Fn(ClientOptions) -> Result<Client, CommandFailure>,
) -> Result<(), CommandFailure> {
    let client_options = ClientOptions { deadline: Duration::from_secs_f64(args.deadline), ..ClientOptions::default() };
    let client = connect(client_options.clone())?;
    let unknown = args.class.iter().find(|name| !client.classes().iter().any(|class| class.as_str() == *name));
    if let Some(name) = unknown {
        let all = client.classes().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(CommandFailure::usage(format_args!("--class {name}: the store has no such class; it has {all}")));
    }
    let address = client.address().to_owned();
    let (end, ends) = channel();
    on_signals(end.clone())?;
    let ended = {
        let (sender, receiver) = channel();
        let forward = move || receiver.recv().map_or((), |()| drop(end.send(End::Unmounted)));
        std::thread::Builder::new().name("weir-unmounted".into()).spawn(forward).map_err(CommandFailure::new)?;
        sender
    };
    let mounted = weir_fuse::mount(client, client_options, &options(args), &args.directory, ended);
    let mounted = mounted.map_err(CommandFailure::new)?;
    let directory = mounted.directory().display().to_string();
    match json {
        true => output::json(&json!({ "mounted": directory, "store": address }))?,
        false => output::text(&format!("{address} is mounted on {directory}\n"))?,
    }
    match ends.recv() {
        Ok(End::Signal) => end_now(mounted),
        Ok(End::Unmounted) | Err(_) => mounted.join().map_err(|e| failed(&args.directory, &e)),
    }
}

fn options(args: &MountArgs) -> MountOptions {
    MountOptions {
        read_only: args.read_only,
        allow_other: args.allow_other,
        direct_io: args.direct_io,
        write_back: args.write_back,
        threads: args.threads.into(),
        cache: Duration::from_secs_f64(args.cache),
        classes: args.class.clone(),
    }
}

fn failed(directory: &Path, why: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::new(format_args!("{}: {why}", directory.display()))
}

/// Why a mount is over.
enum End {
    Signal,
    Unmounted,
}

/// SIGTERM and Ctrl-C; the second one ends the process at once.
fn on_signals(end: Sender<End>) -> Result<(), CommandFailure> {
    let wrong = |e: std::io::Error| CommandFailure::new(format_args!("signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)?;
    let (mut term, mut int) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate()).map_err(wrong)?, signal(SignalKind::interrupt()).map_err(wrong)?)
    };
    let watch = async move {
        for is_second in [false, true] {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            if is_second {
                std::process::exit(1);
            }
            let _ = end.send(End::Signal);
        }
    };
    let thread = std::thread::Builder::new().name("weir-signals".into());
    thread.spawn(move || runtime.block_on(watch)).map(drop).map_err(wrong)
}

/// Publishes what was written, and unmounts; where programs use the directory, it is taken out of sight, and their files fail from then on.
fn end_now(mounted: Mounted) -> Result<(), CommandFailure> {
    let directory = mounted.directory().to_owned();
    if unmount(&directory, false).is_ok() {
        return mounted.join().map_err(|e| failed(&directory, &e));
    }
    let unpublished = mounted.flush();
    unmount(&directory, true)?;
    weir_node::notice(format_args!("{}: programs were using it; their files fail from now on", directory.display()));
    match unpublished {
        0 => Ok(()),
        files => Err(failed(&directory, &format_args!("what was written to {files} files could not be published"))),
    }
}

/// Unmounts a directory, as `fusermount3 -u` and `umount` do.
///
/// # Errors
/// It is in use, is no mount, or the user may not.
pub fn unmount(directory: &Path, lazy: bool) -> Result<(), CommandFailure> {
    let mut refusals = Vec::new();
    let attempts: [(&str, &[&str]); 3] = match lazy {
        false => [("umount", &["-i"]), ("fusermount3", &["-u"]), ("fusermount", &["-u"])],
        true => [("umount", &["-i", "-l"]), ("fusermount3", &["-u", "-z"]), ("fusermount", &["-u", "-z"])],
    };
    for (program, args) in attempts {
        match Command::new(program).args(args).arg("--").arg(directory).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => refusals.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => refusals.push(format!("{program}: {e}")),
        }
    }
    let why = refusals.first().cloned().unwrap_or_else(|| "neither umount nor fusermount3 is installed".into());
    Err(failed(directory, &why.replace('\n', "; ")))
}
