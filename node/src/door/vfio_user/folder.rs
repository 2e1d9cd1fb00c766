//! The folder by which SPDK's programs find a socket: they connect to `TRADDR/cntrl`.
//!
//! ```text
//!   vfio-user:/run/weir/vm.sock        ─► /run/weir/vm.sock.spdk/cntrl ─► ../vm.sock      traddr:/run/weir/vm.sock.spdk
//!   vfio-user:/run/weir/vm/cntrl       ─► /run/weir/vm is made if it is missing           traddr:/run/weir/vm
//! ```

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What SPDK adds to its traddr.
const SOCKET: &str = "cntrl";

fn is_named_so(socket: &Path) -> bool {
    socket.file_name().is_some_and(|name| name == SOCKET)
}

/// The folder beside a socket.
fn beside(socket: &Path) -> PathBuf {
    let mut name = OsString::from(socket);
    name.push(".spdk");
    name.into()
}

/// Makes the folder of a socket that SPDK finds by its name. The operator's own is left as it is.
///
/// # Errors
/// It cannot be made.
pub(super) fn prepare(socket: &Path) -> io::Result<()> {
    let Some(parent) = socket.parent().filter(|_| is_named_so(socket)) else { return Ok(()) };
    match std::fs::create_dir(parent) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Makes the folder beside a socket that clients may come to. Without it all but SPDK are served.
pub(super) fn offer(socket: &Path) {
    let Some(name) = socket.file_name().filter(|_| !is_named_so(socket)) else { return };
    let folder = beside(socket);
    if let Err(e) = make(&folder, &Path::new("..").join(name)) {
        tracing::warn!(folder = %folder.display(), "SPDK finds no socket there, the folder cannot be made: {e}");
    }
}

fn make(folder: &Path, target: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    match symlink(target, folder.join(SOCKET)) {
        // What a node before has left is the same.
        Err(e) if e.kind() == ErrorKind::AlreadyExists && std::fs::read_link(folder.join(SOCKET))? == target => Ok(()),
        made => made,
    }
}

/// The socket ends, and the folder beside it.
pub(crate) fn withdraw(socket: &Path) {
    let folder = beside(socket);
    if !is_named_so(socket) && std::fs::read_link(folder.join(SOCKET)).is_ok() {
        let _ = std::fs::remove_file(folder.join(SOCKET));
        let _ = std::fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_and_goes_with_its_socket() {
        let dir = std::env::temp_dir().join(format!("weir-folder-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("a.sock");
        std::fs::write(&socket, "here").unwrap();
        // Twice: after a crash it is there already.
        for _ in 0..2 {
            prepare(&socket).unwrap();
            offer(&socket);
        }
        assert_eq!(std::fs::read_to_string(dir.join("a.sock.spdk/cntrl")).unwrap(), "here");
        withdraw(&socket);
        assert!(!beside(&socket).exists() && socket.exists());
        let named = dir.join("vm/cntrl");
        prepare(&named).unwrap();
        prepare(&named).unwrap();
        offer(&named);
        assert!(dir.join("vm").is_dir() && !beside(&named).exists());
        // What is not ours is left alone.
        std::fs::create_dir(beside(&socket)).unwrap();
        std::fs::write(beside(&socket).join("cntrl"), "somebody's").unwrap();
        offer(&socket);
        withdraw(&socket);
        assert!(beside(&socket).join("cntrl").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
