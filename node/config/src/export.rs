//! `[[export]]`.

use super::read::{Placed, Read, Section, flag, integer, quoted, text, word};
use super::runtime::socket_path;
use super::types::{ClassFrom, Doorbells};
use super::value::Value;
use std::path::{Path, PathBuf};

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
