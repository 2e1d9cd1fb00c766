#![forbid(unsafe_code)]
//! What a node is to do: `weir.toml`, the built-in default and the device part of a bench target, by one set of rules.
//!
//! ```text
//! weir.toml ──▶ value::table ─┐
//!                             ├─▶ read::Section ─▶ node, device, tenant, export, door, store ─▶ check ─▶ Config
//! local:ram?slots=16 ─▶ query ┘                                                    └─▶ print (Config as TOML again)
//! ```
//!
//! A file has a table's type and its reading; `check` knows all of them, and says what only shows when they lie side by side. `flash` is the keys of a
//! flash drive, which `[device.flash]` and a profile's file share.
//!
//! Every key has a default. A fault names file, line and key and says what to do; reading goes on after it, so that one
//! run shows them all. A key of a later release is refused, never ignored. Reading touches neither the clock nor a
//! file except [`Config::load`], which also looks at the CPUs and media of the machine; that an address is free and a medium
//! can be opened shows when the node starts.
//!
//! [`admission`] says whether what a configuration promises can be kept. Knows neither the API nor the process that a
//! configuration starts.

pub mod admission;
mod api;
mod arbitration;
mod builtin;
pub mod calibration;
mod check;
mod config;
pub mod demand;
mod device;
mod document;
mod door;
mod error;
mod etcd;
mod export;
mod fault;
mod fdp;
mod flash;
mod machine;
mod media;
mod names;
mod node;
mod open_channel;
mod policy;
mod pool;
pub mod prediction;
mod print;
pub mod profile;
mod promise;
pub mod read;
mod runtime;
mod slot_notes;
mod slots;
mod store;
mod target;
mod tenant;
mod toml_text;
mod value;
mod word_enum;
mod zoned;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod tests;

pub use api::{ApiConfig, ApiRole, ApiTls, ApiToken};
pub use arbitration::{Arbitration, ClassFrom, Cost, Mechanism, Shares, quanta_in_range, weights_in_range};
pub use calibration::{Calibration, CalibrationFile};
pub use config::Config;
pub use device::DeviceConfig;
pub use document::Document;
pub use door::{KeepAlive, NvmeTcpConfig};
pub use error::{ConfigError, Problem};
pub use etcd::{EtcdAccess, EtcdMeta, EtcdMismatch, EtcdUser, PemPair};
pub use export::{DoorConfig, Doorbells, ExportConfig};
pub use fault::FaultConfig;
pub use flash::{FlashConfig, PolicyConfig};
pub use media::MediaConfig;
pub use node::{Address, Admission, NodeConfig, address};
pub use open_channel::OpenChannelKeys;
pub use pool::{PoolConfig, VolumeConfig};
pub use profile::Profile;
pub use promise::within;
pub use runtime::{create_runtime_dir, is_safe_dir, runtime_dir, runtime_dir_origin};
pub use slot_notes::notes;
pub use store::{Donated, DonatedDrive, StoreAddress, StoreConfig, StoreDurability, StoreMeta};
pub use target::{Target, TargetError};
pub use tenant::{TenantConfig, floors};
pub use zoned::Zoned;

use device::DeviceRead;
use machine::Machine;
use read::{Section, Sink, Value};
use std::path::{Path, PathBuf};

impl Config {
    /// Reads a file and checks it, also against the machine that is to run it: its CPUs, and which paths are one file. Relative
    /// paths are relative to the file's folder; the API is at `api` where the file does not say.
    pub fn load(file: &Path, api: Option<Address>) -> Result<Config, ConfigError> {
        let document = Document::load(file)?;
        document.read(|root| read_config(root, document.base(), Machine::This, api))
    }

    /// Checks a text. `file` is its name in messages, `base` the folder that relative paths in it start from.
    pub fn parse(text: &str, file: &str, base: &Path) -> Result<Config, ConfigError> {
        Document::parse(text, file, base)?.read(|root| read_config(root, base, Machine::Any, None))
    }
}

fn read_config(root: &Section<'_>, base: &Path, machine: Machine, api: Option<Address>) -> Config {
    let rights = api::read(root, base);
    let node = node::read(root, base, machine, api, &rights);
    let api = rights;
    let devices = device::read_all(root, base, &node.name);
    let tenants = tenant::read_all(root);
    let nvme_tcp = door::read(root, tenants.len().max(1));
    let exports = export::read_all(root, base);
    let pools = pool::read_pools(root);
    let volumes = pool::read_volumes(root, base);
    let store = store::read(root, base);
    let faults = fault::read_all(root);
    root.finish();
    let parts = check::Parts { node, api, devices, tenants, exports, nvme_tcp, pools, volumes, store, faults };
    check::assemble(root.sink(), machine, parts)
}

/// The drives of a document's `[[device]]`, checked against each other, which so many tenants share.
pub fn devices(root: &Section<'_>, base: &Path, node: &str, tenants: usize) -> Vec<DeviceConfig> {
    let read = device::read_all(root, base, node);
    check::unique_devices(root.sink(), Machine::Any, &read);
    let with_slots = |mut read: DeviceRead| {
        read.device.slots = read.shared_slots.filter(|_| tenants > 1).unwrap_or(read.device.slots);
        read.device
    };
    read.into_iter().map(with_slots).collect()
}

/// The rules of failures of a document's `[[fault]]`, for its drives.
pub fn faults(root: &Section<'_>, devices: &[DeviceConfig]) -> Vec<FaultConfig> {
    fault::of_devices(root, devices)
}

/// How many tenants a document has, whatever is wrong with them.
pub fn count_tenants(root: &Section<'_>) -> usize {
    root.peek("tenant", |value| Ok(if let Value::List(tables) = value { tables.len() } else { 0 })).unwrap_or(0)
}

/// The tenants of a document's `[[tenant]]`, checked against each other.
pub fn tenants(root: &Section<'_>) -> Vec<TenantConfig> {
    let read = tenant::read_all(root);
    check::unique_tenants(root.sink(), &read);
    read.into_iter().map(|t| t.tenant).collect()
}

impl DeviceConfig {
    /// The device part of a bench target, `local:KIND?QUERY`: `kind` is `null`, `ram`, `file:PATH` or `block:PATH`,
    /// `query` has the keys of `[[device]]` as `key=value&key=value`, sizes and times without quotes.
    pub fn from_query(kind: &str, query: &str) -> Result<DeviceConfig, ConfigError> {
        let sink = Sink::new("");
        let device = match value::query(query) {
            Ok(entries) => device::from_query(&sink, kind, &entries),
            Err(what) => {
                sink.note(0, "", what);
                None
            }
        };
        match (device, sink.into_problems()) {
            (Some(device), problems) if problems.is_empty() => Ok(device),
            (_, problems) => Err(ConfigError(problems)),
        }
    }
}

/// `path` as seen from `base`.
fn resolve(base: &Path, path: &str) -> PathBuf {
    base.join(path)
}
