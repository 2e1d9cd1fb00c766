//! The programs and libraries that go into packages: built so that the same commit gives the same bytes in every folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::Linked;

/// The target of every package.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Which commit is packaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its short hash, for `weir --version`.
    pub id: String,
    /// When it was made, seconds since 1970.
    pub epoch: u64,
    /// The version of the packages: `0.1.0`, between releases `0.1.0+git20260102030405.0123456789ab`.
    pub version: String,
}

impl Commit {
    /// Of a checkout. `release` is the workspace's version; a checkout with changes says so in its version.
    pub fn of(root: &Path, release: &str) -> Self {
        let git = |args: &[&str]| {
            output(Command::new("git").args(["-c", "safe.directory=*"]).args(args).current_dir(root)).ok()
        };
        let said = std::env::var("SOURCE_DATE_EPOCH").ok().or_else(|| git(&["log", "-1", "--format=%ct"]));
        let epoch = said.and_then(|text| text.parse().ok()).unwrap_or(0);
        let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else {
            return Self { id: "unknown".into(), epoch, version: release.into() };
        };
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
        let tagged =
            git(&["describe", "--exact-match", "--tags", "HEAD"]).is_some_and(|tag| tag == format!("v{release}"));
        let time = date(epoch, "+%Y%m%d%H%M%S").unwrap_or_default();
        let mut version = if tagged { release.into() } else { format!("{release}+git{time}.{id}") };
        if changed {
            version += if tagged { "+changed" } else { ".changed" };
        }
        Self { id, epoch, version }
    }
}

/// A time in seconds since 1970 as date(1) writes it.
pub fn date(epoch: u64, format: &str) -> Result<String, String> {
    output(Command::new("date").args(["-u", "-d", &format!("@{epoch}"), format]).env("LC_ALL", "C"))
}

/// What a command prints, without the end of its last line.
pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// What can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `weir`, linked against the C library: looks up names and users as the machine does.
    Program,
    /// `weir` with everything in it.
    StaticProgram,
    /// `libweir.so`.
    Library,
    /// The module of the Python package.
    Module,
    /// The native part of the jar.
    JavaLibrary,
}

/// Where cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Builds it with the profile `dist`; where it lies.
///
/// # Errors
/// The build failed.
pub fn build(root: &Path, commit: &Commit, kind: Kind) -> Result<PathBuf, String> {
    let target = target(root);
    let (folder, file) = match kind {
        Kind::Program => ("packages", "weir"),
        Kind::StaticProgram => ("packages-static", "weir"),
        Kind::Library => ("packages", "libweir.so"),
        Kind::Module => ("packages", "libweir_native.so"),
        Kind::JavaLibrary => ("packages", "libweir_java.so"),
    };
    let folder = target.join(folder);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(if kind == Kind::Library { "rustc" } else { "build" });
    command.args(["--profile", "dist", "--locked", "--target", TARGET, "--target-dir"]).arg(&folder);
    match kind {
        Kind::Library => command.args(["-p", "weir-capi", "--lib", "--crate-type", "cdylib"]),
        Kind::Module => command.args(["-p", "weir-python", "--lib"]),
        Kind::JavaLibrary => command.args(["-p", "weir-java", "--lib"]),
        Kind::Program | Kind::StaticProgram => command.args(["-p", "weir-cli", "--bin", "weir"]),
    };
    command.current_dir(root).env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "0").env("WEIR_COMMIT", &commit.id);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(root, &folder, kind == Kind::StaticProgram).join("\u{1f}"));
    let status = command.status().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("the build of {file} failed; the messages above say why"));
    }
    Ok(folder.join(TARGET).join("dist").join(file))
}

/// No path of this machine gets into the program. Of two that fit, rustc takes the later one.
fn flags(root: &Path, target: &Path, statically: bool) -> Vec<String> {
    let home = std::env::home_dir().unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags =
        vec![remap(&cargo, "/usr/share/cargo"), remap(root, "/usr/src/weir"), remap(target, "/usr/src/target")];
    if statically {
        flags.push("-Ctarget-feature=+crt-static".into());
    }
    flags
}

/// The bytes of a program as it is packaged: without symbols and debug information.
///
/// # Errors
/// It cannot be read or is no program for x86-64, or `strip` is missing.
pub fn stripped(file: &Path, scratch: &Path) -> Result<(Vec<u8>, Linked), String> {
    let at = |e: String| format!("{}: {e}", file.display());
    let read = |path: &Path| std::fs::read(path).map_err(|e| at(e.to_string()));
    let bytes = read(file)?;
    let linked = Linked::of(&bytes).map_err(at)?;
    if !linked.symbols {
        return Ok((bytes, linked));
    }
    let copy = scratch.join("stripped");
    output(Command::new("strip").args(["--strip-all", "-o"]).arg(&copy).arg(file))
        .map_err(|e| at(format!("cannot be stripped, which needs Debian's package binutils: {e}")))?;
    Ok((read(&copy)?, linked))
}
