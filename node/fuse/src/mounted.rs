//! A mount: how it is asked for, begun and ended.

use crate::filesystem::StoreFilesystem;
use crate::link::StoreLink;
use crate::requests::Requests;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{fmt, io};
use weir_store_node::client::{Client, ClientOptions};

/// How a store is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing may be changed through the mount.
    pub read_only: bool,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel keeps no pages of files.
    pub direct_io: bool,
    /// The kernel gathers writes, and sends them when it likes, or a program flushes: for a store that no other client changes.
    pub write_back: bool,
    /// Requests that are served at the same time.
    pub threads: usize,
    /// How long the kernel believes names and attributes.
    pub cache: Duration,
    /// Names of the classes of new files, best first; none: the store's.
    pub classes: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            direct_io: false,
            write_back: false,
            threads: 4,
            cache: Duration::from_secs(1),
            classes: Vec::new(),
        }
    }
}

/// Why a store cannot be mounted.
#[derive(Debug)]
pub struct MountError {
    directory: PathBuf,
    error: io::Error,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, error } = self;
        let directory = directory.display();
        match error.kind() {
            io::ErrorKind::NotConnected => {
                write!(f, "{directory}: a mount that has died is there; run weir fs umount {directory}")
            }
            io::ErrorKind::NotFound if Path::new("/dev/fuse").exists() => {
                write!(f, "{directory}: no such directory; make it first")
            }
            io::ErrorKind::NotFound => {
                write!(f, "{directory}: there is no /dev/fuse; load the kernel's module: modprobe fuse")
            }
            io::ErrorKind::PermissionDenied => {
                write!(f, "{directory}: {error}; run it as root, or install fuse3 for fusermount3")
            }
            _ => write!(f, "{directory}: {error}"),
        }
    }
}

impl std::error::Error for MountError {}

/// A store that is mounted. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    requests: Arc<Requests>,
    directory: PathBuf,
}

/// Mounts a client's store on a directory. `ended` hears when the mount has ended.
///
/// # Errors
/// The directory is none, there is no FUSE, or the kernel refuses.
pub fn mount(
    client: Client,
    client_options: ClientOptions,
    options: &MountOptions,
    directory: &Path,
    ended: Sender<()>,
) -> Result<Mounted, MountError> {
    let failed = |error: io::Error| MountError { directory: directory.into(), error };
    if !directory.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let link = StoreLink::new(client, client_options);
    let config = config(options, link.address());
    let requests = Arc::new(Requests::new(link, options.clone()));
    let filesystem = StoreFilesystem::new(requests.clone(), ended);
    let session = Session::new(filesystem, directory, &config).and_then(Session::spawn).map_err(failed)?;
    Ok(Mounted { session, requests, directory: directory.into() })
}

fn config(options: &MountOptions, address: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would end the option.
        MountOption::FSName(format!("weir:{}", address.replace(',', ";"))),
        MountOption::Subtype("weir".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

impl Mounted {
    /// Where.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Publishes what was written to files that are open: how many could not be.
    pub fn flush(&self) -> usize {
        self.requests.files.flush_all()
    }

    /// Waits for the end of a mount that was ended from elsewhere.
    ///
    /// # Errors
    /// The kernel's, in the middle of the mount.
    pub fn join(self) -> io::Result<()> {
        self.session.join()
    }
}
