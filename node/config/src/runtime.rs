//! Where the sockets of a node without a configuration file lie.

use super::read::quoted;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Longest path of a UNIX socket: `sun_path` less its terminating zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// `/run/weir` for root, else `$XDG_RUNTIME_DIR/weir`, else `/tmp/weir-UID`.
pub fn runtime_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/weir");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(&dir).is_absolute() => Path::new(&dir).join("weir"),
        _ => PathBuf::from(format!("/tmp/weir-{}", uid.as_raw())),
    }
}

/// Where that folder comes from, for an error about it.
pub fn runtime_dir_origin() -> &'static str {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if rustix::process::geteuid().is_root() => "the folder of root's nodes; make it, or write api below [node]",
        Some(dir) if Path::new(&dir).is_absolute() => {
            "XDG_RUNTIME_DIR names the folder that it is in: set that to one of your own that is there, or unset it"
        }
        _ => "XDG_RUNTIME_DIR is not set: set it to a folder of your own, or write api below [node]",
    }
}

/// Creates the folder where it is missing. `/tmp` is everybody's: a folder there that another user made, or that others
/// may write to, is refused.
pub fn create_runtime_dir(dir: &Path) -> io::Result<()> {
    let uid = rustix::process::geteuid();
    // QEMU often runs as a user of its own and must reach the sockets in /run/weir; each socket has its own mode.
    let mode = if uid.is_root() { 0o755 } else { 0o700 };
    match std::fs::DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let meta = std::fs::symlink_metadata(dir)?;
    if meta.uid() != uid.as_raw() || !only_its_owner_writes(&meta) {
        let what = format!("{} is not a folder that only this user may write to; remove it", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Whether this is a folder in which only this user or root can have put anything.
pub fn is_safe_dir(dir: &Path) -> bool {
    let own = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|meta| own(meta.uid()) && only_its_owner_writes(&meta))
}

fn only_its_owner_writes(meta: &std::fs::Metadata) -> bool {
    meta.is_dir() && meta.mode() & 0o022 == 0
}

/// A socket's path, resolved and short enough for the kernel.
pub(super) fn socket_path(base: &Path, path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || path.contains('\0') {
        return Err(format!("{} is no path of a socket", quoted(path)));
    }
    let path = super::resolve(base, path);
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_SOCKET_PATH {
        return Err(format!(
            "{} has {length} bytes, a socket's path at most {MAX_SOCKET_PATH}; choose a shorter one",
            path.display()
        ));
    }
    Ok(path)
}
