//! `[store]` and `[[store.donate]]` (`[[store.policy]]` is in `policy.rs`): a metadata service in this node, and the drives that its files lie on.

use super::etcd::{self, EtcdMeta};
use super::policy::{self, PolicyRead};
use super::read::{Placed, Read, Section, one_or_list, quoted, size, text, time, word};
use super::runtime::socket_path;
use super::target::Target;
use super::value::{Entry, Value};
use super::word_enum::word_enum;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_store::space::{BLOCK_MAX, BLOCK_MIN};
use weir_store::{ClassName, Location, Tiering};
use weir_units::{Bytes, Nanos};

/// A metadata service of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where names, maps and members are kept.
    pub meta: StoreMeta,
    /// Where clients find the service.
    pub listen: Vec<StoreAddress>,
    /// When a change is acknowledged.
    pub durability: StoreDurability,
    /// Bytes of a file's blocks: a power of two from 64 KiB to 4 MiB.
    pub block: Bytes,
    /// The classes of its drives, best first.
    pub classes: Vec<String>,
    /// How long a drive may not be reached before blocks on it that have another copy get one elsewhere; none: they do not.
    pub repair_after: Option<Nanos>,
    /// Policies by path, and when blocks go from class to class.
    pub tiering: Tiering,
    /// The drives that it fills; further ones can be donated while it runs.
    pub donate: Vec<Donated>,
}

/// Where the metadata are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreMeta {
    /// In a file of this machine (redb), for a store with one service.
    Redb(PathBuf),
    /// In memory: gone when the node's worker ends.
    Memory,
    /// In etcd, which outlives any machine of the store.
    Etcd(EtcdMeta),
}

/// As the configuration writes it behind `meta`.
impl fmt::Display for StoreMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreMeta::Redb(path) => write!(f, "redb:{}", path.display()),
            StoreMeta::Memory => f.write_str("memory:"),
            StoreMeta::Etcd(EtcdMeta { endpoints, prefix, access: _ }) => {
                write!(f, "etcd:{}/{prefix}", endpoints.join(","))
            }
        }
    }
}

/// Where a metadata service listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A UNIX stream socket.
    Unix(PathBuf),
}

/// As the configuration writes it.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Tcp(address) => address.fmt(f),
            StoreAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

word_enum! {
    /// What an acknowledged change outlives.
    StoreDurability {
        /// The death of every process; a power cut takes what came in the last second.
        Process = "process",
        /// A power cut.
        Power = "power",
    }
}

/// A namespace that the store fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donated {
    /// Which.
    pub drive: DonatedDrive,
    /// Its class: one of [`StoreConfig::classes`].
    pub class: String,
    /// Where it stands, from the widest part to the narrowest (`hall1/rack2`); empty where that is not known.
    pub location: String,
}

/// What is donated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DonatedDrive {
    /// A drive of this node, which exports it over NVMe/TCP: index into [`Config::devices`](crate::Config::devices).
    Device(usize),
    /// Anybody's namespace: `nvme-tcp://HOST:PORT/NQN?ns=1`.
    Target(String),
}

/// A store whose drives and classes have not been looked up yet.
pub(super) struct StoreRead {
    pub(super) listen: Placed<Vec<StoreAddress>>,
    pub(super) store: StoreConfig,
    pub(super) donate: Vec<DonateRead>,
    pub(super) policies: Vec<PolicyRead>,
}

/// A `[[store.donate]]`.
pub(super) struct DonateRead {
    pub(super) device: Option<Placed<String>>,
    pub(super) target: Option<Placed<String>>,
    pub(super) class: Option<Placed<String>>,
    pub(super) location: String,
}

pub(super) fn read(root: &Section<'_>, base: &Path) -> Option<StoreRead> {
    let (line, entries) = root.table("store")?;
    let section = root.inner("store", line, entries);
    let listen = section.placed("listen", |v| addresses(v, base)).unwrap_or_else(|| Placed {
        value: vec![StoreAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 4430)))],
        line,
        key: section.key("listen"),
    });
    let mut meta = section.or("meta", StoreMeta::Redb(base.join("store.redb")), |v| meta(v, base));
    if let Some(table) = section.table("etcd") {
        let meta = if let StoreMeta::Etcd(meta) = &mut meta { Some(meta) } else { None };
        etcd::read(&section, base, table, meta);
    }
    let is_etcd = matches!(meta, StoreMeta::Etcd(_));
    // etcd answers when most of its members have a commit on their medium.
    let usual = if is_etcd { StoreDurability::Power } else { StoreDurability::Process };
    let store = StoreConfig {
        meta,
        listen: listen.value.clone(),
        durability: section.or("durability", usual, word(StoreDurability::WORDS)),
        block: section.or("block", Bytes(Bytes::MIB), block),
        classes: section.or("classes", vec!["dram".into(), "flash".into()], classes),
        repair_after: section.or("repair_after", Some(REPAIR_AFTER), repair_after),
        tiering: Tiering { policies: Vec::new(), watermarks: policy::watermarks(&section) },
        donate: Vec::new(),
    };
    if store.meta == StoreMeta::Memory && store.durability == StoreDurability::Power {
        section.fault(
            "durability",
            "\"power\" does not go with meta = \"memory:\", which outlives nothing; write redb:PATH",
        );
    }
    if is_etcd && store.durability == StoreDurability::Process {
        section.fault(
            "durability",
            "\"process\" does not go with etcd, which has every commit on its medium; leave it out, or write \"power\"",
        );
    }
    let donate = section.tables("donate").into_iter().enumerate().map(|at| donate(&section, at)).collect();
    let policies = section.tables("policy").into_iter().enumerate().map(|at| policy::read(&section, at)).collect();
    section.finish();
    Some(StoreRead { listen, store, donate, policies })
}

fn donate(store: &Section<'_>, (i, (line, entries)): (usize, (u32, &[Entry]))) -> DonateRead {
    let section = store.inner(format!("store.donate#{}", i + 1), line, entries);
    let read = DonateRead {
        device: section.placed("device", text),
        target: section.placed("target", target),
        class: section.placed("class", class),
        location: section.or("location", String::new(), location),
    };
    match (section.has("device"), section.has("target")) {
        (false, false) => section.fault(
            "device",
            "missing; write device = \"NAME\" for a drive of this node, or target = \"nvme-tcp://HOST:PORT/NQN?ns=1\"",
        ),
        (true, true) => section.fault("target", "device says which drive it is already; keep one of the two"),
        _ => {}
    }
    if !section.has("class") {
        section.fault("class", "missing; write one of the store's classes");
    }
    section.finish();
    read
}

/// Longer than the restart of a machine takes.
const REPAIR_AFTER: Nanos = Nanos::from_secs(600);

/// What it may be: a drive that is started again is not taken for one that is gone.
const REPAIR_AFTER_MIN: Nanos = Nanos::from_secs(1);
const REPAIR_AFTER_MAX: Nanos = Nanos::from_secs(30 * 86_400);

/// A time, or `none`.
fn repair_after(value: &Value) -> Read<Option<Nanos>> {
    match value {
        Value::Text(text) | Value::Bare(text) if text == "none" => Ok(None),
        _ => match time(REPAIR_AFTER_MAX)(value)? {
            after if after < REPAIR_AFTER_MIN => {
                Err(format!("{after} is too short; at least {REPAIR_AFTER_MIN} is needed, or \"none\"").into())
            }
            after => Ok(Some(after)),
        },
    }
}

/// `redb:PATH`, `memory:` or `etcd:URL,URL`.
fn meta(value: &Value, base: &Path) -> Read<StoreMeta> {
    let text = text(value)?;
    let path = |path: &str| match path {
        "" => Err("redb: needs a file; write redb:/var/lib/weir/store.redb".to_string()),
        path if path.contains('\0') => Err(format!("{} is no path", quoted(path))),
        path => Ok(StoreMeta::Redb(super::resolve(base, path))),
    };
    Ok(match text.split_once(':') {
        Some(("redb", file)) => path(file)?,
        Some(("memory", "")) => StoreMeta::Memory,
        Some(("etcd", urls)) => StoreMeta::Etcd(urls.parse()?),
        _ => {
            let what = format!(
                "{} is no place for metadata; there is redb:PATH, etcd:http://HOST:PORT and memory:",
                quoted(&text)
            );
            return Err(what.into());
        }
    })
}

fn addresses(value: &Value, base: &Path) -> Read<Vec<StoreAddress>> {
    let list = one_or_list(|v| Ok(address(&text(v)?, base)?))(value)?;
    if list.is_empty() {
        return Err("no address; leave the key out for the default 127.0.0.1:4430".to_string().into());
    }
    for (i, at) in list.iter().enumerate() {
        let is_known = !matches!(at, StoreAddress::Tcp(at) if at.port() == 0);
        if is_known && list[..i].contains(at) {
            return Err(format!("{at} is listed twice; keep one").into());
        }
    }
    Ok(list)
}

fn address(text: &str, base: &Path) -> Result<StoreAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(base, path).map(StoreAddress::Unix);
    }
    let wrong = || format!("{} is not an address like 127.0.0.1:4430 or unix:store.sock (no host names)", quoted(text));
    text.parse().map(StoreAddress::Tcp).map_err(|_| wrong())
}

fn block(value: &Value) -> Read<Bytes> {
    let bytes = size(BLOCK_MIN..=BLOCK_MAX)(value)?;
    if !bytes.0.is_power_of_two() {
        return Err(format!("{bytes} is no power of two; 64KiB, 1MiB and 4MiB are usual").into());
    }
    Ok(bytes)
}

fn class(value: &Value) -> Read<String> {
    let name = text(value)?;
    match ClassName::new(&name) {
        Ok(_) => Ok(name),
        Err(_) => {
            Err(format!("{} is no class; use 1 to 64 small letters, digits, '-' and '_', like \"dram\"", quoted(&name))
                .into())
        }
    }
}

pub(super) fn classes(value: &Value) -> Read<Vec<String>> {
    let list = one_or_list(class)(value)?;
    if list.is_empty() {
        return Err("no class; leave the key out for the default".to_string().into());
    }
    if let Some((_, twice)) = list.iter().enumerate().find(|(i, name)| list[..*i].contains(name)) {
        return Err(format!("{} is listed twice; keep one", quoted(twice)).into());
    }
    Ok(list)
}

fn location(value: &Value) -> Read<String> {
    let text = text(value)?;
    match Location::new(&text) {
        Ok(_) => Ok(text),
        Err(_) => {
            Err(format!("{} is no location; write its parts from the widest on, like \"hall1/rack2\"", quoted(&text))
                .into())
        }
    }
}

/// Of the transports, clients of the store speak NVMe/TCP.
fn target(value: &Value) -> Read<String> {
    let text = text(value)?;
    match text.parse::<Target>() {
        Ok(Target::NvmeTcp { .. }) => Ok(text),
        _ => Err(format!("{} is not a namespace like nvme-tcp://10.0.0.2:4420/NQN?ns=1", quoted(&text)).into()),
    }
}
