//! What `./weir lib`, `spdk-preload` and `fio-engine` install, for the suites that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Env, ensure};
use crate::process::{Finished, Process};

/// The repository.
pub fn root(env: &Env) -> PathBuf {
    env.guests.ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}

/// `./weir ARGUMENTS...`.
pub fn weir(env: &Env, args: &[&str]) -> Result<Finished, String> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(root(env).join("weir")).args(args);
    Process::spawn(&env.folder()?, "weir-bindings", command)?.wait(Duration::from_secs(900))
}

/// The same where it has to succeed.
pub fn install(env: &Env, args: &[&str]) -> Result<(), String> {
    let finished = weir(env, args)?;
    ensure(finished.status.success(), || format!("./weir {}: {}", args.join(" "), finished.describe()))
}
