//! `[[pool]]` and `[[volume]]`.

use super::export::{DoorConfig, DoorRead, door};
use super::read::{Placed, Read, Section, flag, integer, one_or_list, quoted, size, text};
use super::value::Value;
use std::path::Path;
use weir_units::Bytes;

/// Drives that are divided into volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name, which is on its drives.
    pub name: String,
    /// Indices into [`Config::devices`].
    pub devices: Vec<usize>,
    /// It comes up without one of its drives.
    pub degraded: bool,
    /// Copies of a volume that does not say how many: 1 or 2.
    pub copies: u8,
    /// Devices that take the places of lost drives by themselves: indices into [`Config::devices`].
    pub spares: Vec<usize>,
    /// Bytes a second at which second copies are rebuilt, at the most.
    pub rebuild_rate: Bytes,
}

impl PoolConfig {
    /// Bytes a second of a rebuild where nothing is said.
    pub const REBUILD_RATE: Bytes = Bytes(100 << 20);
}

/// A volume that is made when it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// Whose it is: index into [`Config::tenants`].
    pub tenant: usize,
    /// Where it is: index into [`Config::pools`].
    pub pool: usize,
    /// Its size when it is made; rounded up to whole MiB.
    pub size: Bytes,
    /// How many drives have each chunk when it is made, 1 or 2; as its pool has it where it is `None`.
    pub copies: Option<u8>,
    /// The doors that it is exported at.
    pub exports: Vec<DoorConfig>,
    /// Controllers at once, over all of them.
    pub max_controllers: u16,
}

impl VolumeConfig {
    /// What is not said otherwise.
    pub const MAX_CONTROLLERS: u16 = 1024;
    /// The most that may be said: identifiers from FFF0h on are reserved (NVMe base 2.0, 3.1.3).
    pub const MOST_CONTROLLERS: u16 = 0xffef;

    /// Its subsystem's name over NVMe/TCP, in the node with that name.
    pub fn nqn(&self, node: &str) -> String {
        format!("nqn.2026-11.io.weir:{node}:{}", self.name)
    }
}

/// A pool whose drives have not been looked up yet.
pub(super) struct PoolRead {
    pub(super) line: u32,
    pub(super) key: String,
    pub(super) name: Option<Placed<String>>,
    pub(super) drives: Option<Placed<Vec<String>>>,
    pub(super) degraded: bool,
    pub(super) copies: u8,
    pub(super) spares: Option<Placed<Vec<String>>>,
    pub(super) rebuild_rate: Bytes,
}

/// A volume whose names have not been looked up yet.
pub(super) struct VolumeRead {
    pub(super) line: u32,
    pub(super) key: String,
    pub(super) name: Option<Placed<String>>,
    pub(super) tenant: Option<Placed<String>>,
    pub(super) pool: Option<Placed<String>>,
    pub(super) size: Option<Placed<Bytes>>,
    pub(super) copies: Option<u8>,
    pub(super) doors: Option<Placed<Vec<DoorRead>>>,
    pub(super) max_controllers: u16,
}

pub(super) fn read_pools(root: &Section<'_>) -> Vec<PoolRead> {
    let read = |(i, (line, entries))| {
        let section = root.inner(format!("pool#{}", i + 1), line, entries);
        let name = named(&section, "pool");
        let drives = section.placed("drives", one_or_list(text));
        let degraded = section.or("degraded", true, flag);
        let copies = section.or("copies", 1, integer(1..=2)) as u8;
        let spares = section.placed("spares", one_or_list(text));
        let rebuild_rate = section.or("rebuild_rate", PoolConfig::REBUILD_RATE, size(1 << 20..=1 << 40));
        section.finish();
        PoolRead { line, key: section.path(), name, drives, degraded, copies, spares, rebuild_rate }
    };
    root.tables("pool").into_iter().enumerate().map(read).collect()
}

pub(super) fn read_volumes(root: &Section<'_>, base: &Path) -> Vec<VolumeRead> {
    let read = |(i, (line, entries))| {
        let section = root.inner(format!("volume#{}", i + 1), line, entries);
        let name = named(&section, "volume");
        for (key, what) in
            [("name", "give the volume a name"), ("size", "say how large the volume is: size = \"1GiB\"")]
        {
            if !section.has(key) {
                section.fault(key, format_args!("missing; {what}"));
            }
        }
        let volume = VolumeRead {
            line,
            key: section.path(),
            name,
            tenant: section.placed("tenant", text),
            pool: section.placed("pool", text),
            size: section.placed("size", size(1..=1 << 52)),
            copies: section.placed("copies", integer(1..=2)).map(|copies| copies.value as u8),
            doors: section.placed("export", one_or_list(|v| door(v, base))),
            max_controllers: section.or(
                "max_controllers",
                VolumeConfig::MAX_CONTROLLERS.into(),
                integer(1..=VolumeConfig::MOST_CONTROLLERS.into()),
            ) as u16,
        };
        section.finish();
        volume
    };
    root.tables("volume").into_iter().enumerate().map(read).collect()
}

/// The name of an element; its path follows it.
fn named(section: &Section<'_>, of: &str) -> Option<Placed<String>> {
    let mut placed = section.placed("name", |v: &Value| -> Read<String> {
        let name = text(v)?;
        weir_pool::check_name(&name).map_err(|why| format!("{} is no name: {why}", quoted(&name)))?;
        Ok(name)
    })?;
    section.rename(format!("{of}.{}", placed.value));
    placed.key = section.key("name");
    Some(placed)
}

/// Lines and names of the volumes.
pub(super) fn lines(volumes: &[VolumeRead]) -> Vec<(u32, String)> {
    volumes.iter().filter_map(|v| Some((v.line, v.name.as_ref()?.value.clone()))).collect()
}
