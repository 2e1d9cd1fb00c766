//! `[[export]]`.

use super::arbitration::ClassFrom;
use super::read::{Placed, Read, Section, flag, integer, quoted, text, word};
use super::runtime::socket_path;
use super::value::Value;
use super::word_enum::word_enum;
use std::fmt;
use std::path::{Path, PathBuf};

/// One way to a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// Index into [`Config::devices`].
    pub device: usize,
    /// By which protocol and where.
    pub door: DoorConfig,
    /// Who decides the class of the queues that come this way.
    pub class_from: ClassFrom,
    /// I/O queues at most.
    pub queues: u16,
    /// Writes are refused.
    pub read_only: bool,
}

/// A protocol and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DoorConfig {
    /// NVMe/TCP on the addresses of `[door.nvme-tcp]`; the host's NQN says which tenant it is.
    NvmeTcp,
    /// A virtio-blk device on a vhost-user socket.
    VhostUser {
        /// The socket.
        path: PathBuf,
        /// Index into [`Config::tenants`].
        tenant: usize,
    },
    /// A PCIe drive on a vfio-user socket.
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// Index into [`Config::tenants`].
        tenant: usize,
        /// How doorbells come.
        doorbells: Doorbells,
    },
}

impl DoorConfig {
    /// The socket, and whose it is: an index into [`Config::tenants`].
    pub fn socket(&self) -> Option<(&Path, usize)> {
        match self {
            DoorConfig::NvmeTcp => None,
            DoorConfig::VhostUser { path, tenant } | DoorConfig::VfioUser { path, tenant, .. } => Some((path, *tenant)),
        }
    }

    /// What the door is called.
    pub const fn kind(&self) -> &'static str {
        match self {
            DoorConfig::NvmeTcp => "nvme-tcp",
            DoorConfig::VhostUser { .. } => "vhost-user",
            DoorConfig::VfioUser { .. } => "vfio-user",
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for DoorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            None => f.write_str(self.kind()),
            Some((path, _)) => write!(f, "{}:{}", self.kind(), path.display()),
        }
    }
}

word_enum! {
    /// How the doorbells of a vfio-user drive come.
    #[derive(Default)]
    Doorbells {
        /// In memory that the client maps, which is looked at all the time only while there is something to do.
        #[default]
        Auto = "auto",
        /// In memory that the client maps, which is looked at all the time.
        Mmap = "mmap",
        /// As messages.
        Trap = "trap",
    }
}

/// An export whose names have not been looked up yet.
pub(super) struct ExportRead {
    pub(super) line: u32,
    pub(super) key: String,
    pub(super) device: Option<Placed<String>>,
    /// `None`: wrong, and noted.
    pub(super) door: Option<Placed<DoorRead>>,
    pub(super) tenant: Option<Placed<String>>,
    pub(super) class_from: Option<Placed<ClassFrom>>,
    pub(super) queues: Option<Placed<u16>>,
    pub(super) doorbells: Option<Placed<Doorbells>>,
    pub(super) read_only: Option<Placed<bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DoorRead {
    NvmeTcp,
    VhostUser(PathBuf),
    VfioUser(PathBuf),
}

pub(super) fn read_all(root: &Section<'_>, base: &Path) -> Vec<ExportRead> {
    let read_one = |(i, (line, entries))| read(&root.inner(format!("export#{}", i + 1), line, entries), base);
    root.tables("export").into_iter().enumerate().map(read_one).collect()
}

fn read(section: &Section<'_>, base: &Path) -> ExportRead {
    if !section.has("door") {
        section.fault("door", "missing; write door = \"nvme-tcp\", \"vhost-user:PATH\" or \"vfio-user:PATH\"");
    }
    let export = ExportRead {
        line: section.line(),
        key: section.path(),
        device: section.placed("device", text),
        door: section.placed("door", |v| door(v, base)),
        tenant: section.placed("tenant", text),
        class_from: section.placed("class_from", word(ClassFrom::WORDS)),
        queues: section.placed("queues", |v| Ok(integer(1..=1024)(v)? as u16)),
        doorbells: section.placed("doorbells", word(Doorbells::WORDS)),
        read_only: section.placed("read_only", flag),
    };
    section.finish();
    export
}

pub(super) fn door(value: &Value, base: &Path) -> Read<DoorRead> {
    let text = text(value)?;
    if text == "nvme-tcp" {
        return Ok(DoorRead::NvmeTcp);
    }
    if let Some(path) = text.strip_prefix("vhost-user:") {
        return Ok(DoorRead::VhostUser(socket_path(base, path)?));
    }
    if let Some(path) = text.strip_prefix("vfio-user:") {
        return Ok(DoorRead::VfioUser(socket_path(base, path)?));
    }
    if text == "vhost-user" || text == "vfio-user" {
        return Err(format!("{text} needs a socket; write {text}:PATH").into());
    }
    Err(format!("{} is no door; there is nvme-tcp, vhost-user:PATH and vfio-user:PATH", quoted(&text)).into())
}
