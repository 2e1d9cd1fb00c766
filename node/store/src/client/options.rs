//! What callers may choose.

use super::recorder;
use std::path::PathBuf;
use std::time::Duration;
use weir_store::InodeKind;

/// How a client goes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// What it calls itself, as `weir store client ls` shows it; by default the program and its process.
    pub name: String,
    /// Where it is, as [`Location`](weir_store::Location) has it; empty where that is not known.
    pub location: String,
    /// How long an operation may take.
    pub deadline: Duration,
    /// How long a thread looks for an answer without sleeping.
    pub spin: Duration,
    /// How long a command waits for a drive whose connection was lost, before another copy is tried or the operation fails.
    pub drive_timeout: Duration,
    /// The host that it is to NVMe/TCP targets.
    pub host_nqn: String,
    /// Whether namespaces may be files of this machine (`file:` targets), which the metadata service names.
    pub allow_files: bool,
    /// The folder that what the program asks is recorded in, for `weir fs bench replay`: [`crate::record`]. By default the one that the variable
    /// `WEIR_STORE_RECORD` names; nothing is recorded where it is not set, or empty.
    pub record: Option<PathBuf>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self {
            name: format!("{program}:{}", std::process::id()),
            location: String::new(),
            deadline: Duration::from_secs(30),
            spin: Duration::from_micros(50),
            drive_timeout: Duration::from_secs(5),
            host_nqn: crate::tier::HOST_NQN.into(),
            allow_files: false,
            record: std::env::var_os(recorder::VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from),
        }
    }
}

/// What a new inode is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Its kind: [`InodeKind::File`] by default.
    pub kind: InodeKind,
    /// Permissions (12 bits).
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names of the classes of its blocks, best first; none: those of the policy of its path, or the store's.
    pub classes: Vec<String>,
    /// Copies of each block: 1 to 4; 0: as many as the policy of its path says, or 1.
    pub copies: u8,
    /// Bytes of a block: a power of two from 64 KiB to 4 MiB; the store's where there is none.
    pub block: Option<u32>,
    /// Where its blocks should be: by default where the client is.
    pub location: Option<String>,
    /// Whether it is an error that the name is there. A file that is there is opened, and cut to nothing, else.
    pub exclusive: bool,
    /// Whether directories on the way are made where they are missing.
    pub parents: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            kind: InodeKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            classes: Vec::new(),
            copies: 0,
            block: None,
            location: None,
            exclusive: false,
            parents: false,
        }
    }
}

/// What a file that is there is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// To be read.
    pub read: bool,
    /// To be written. One client at a time may have a file open so.
    pub write: bool,
    /// As `write`; [`File::append`](super::File::append) is what is used then.
    pub append: bool,
    /// It is cut to nothing first.
    pub truncate: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { read: true, write: false, append: false, truncate: false }
    }
}

impl OpenOptions {
    /// To be read and written.
    pub const fn read_write() -> Self {
        Self { read: true, write: true, append: false, truncate: false }
    }

    /// Whether anything may be changed.
    pub const fn writes(&self) -> bool {
        self.write || self.append || self.truncate
    }
}
