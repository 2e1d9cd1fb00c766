//! The store's drives and classes: that they are there, and can be what they are donated for.

use super::unique::{Unique, list};
use crate::config::Config;
use crate::export::DoorConfig;
use crate::machine::Machine;
use crate::media::MediaConfig;
use crate::node::Address;
use crate::policy::PolicyRead;
use crate::read::{Placed, Sink, quoted};
use crate::store::{DonateRead, Donated, DonatedDrive, StoreAddress, StoreConfig, StoreRead};
use std::net::SocketAddr;
use weir_store::service::NAMESPACE_MIN;
use weir_store::{ClassName, PathPolicy};
use weir_units::Bytes;

/// Looks the names up, and notes what does not fit.
pub(super) fn check(sink: &Sink, machine: Machine, read: StoreRead, config: &Config) -> StoreConfig {
    let StoreRead { listen, mut store, donate, policies } = read;
    check_addresses(sink, &listen, config);
    let mut names = Unique::new(sink);
    let known = Classes { sink, classes: &store.classes };
    let donated = donate.iter().filter_map(|read| one(sink, machine, config, read, &known, &mut names)).collect();
    let policies = policies.iter().filter_map(|read| policy(read, &known)).collect();
    (store.donate, store.tiering.policies) = (donated, policies);
    store
}

struct Classes<'a> {
    sink: &'a Sink,
    classes: &'a [String],
}

impl Classes<'_> {
    fn check(&self, name: &str, line: u32, key: &str) {
        if !self.classes.iter().any(|class| class == name) {
            let all = list(self.classes.iter().map(String::as_str));
            self.sink.note(line, key, format_args!("there is no class {}; classes of [store] has {all}", quoted(name)));
        }
    }
}

/// A policy whose classes are the store's, of which the last is none to be demoted from.
fn policy(read: &PolicyRead, known: &Classes<'_>) -> Option<PathPolicy> {
    let listed = read.classes.as_ref();
    for class in listed.iter().flat_map(|listed| listed.value.iter().map(move |name| (name, *listed))) {
        known.check(class.0, class.1.line, &class.1.key);
    }
    let count = listed.map_or(known.classes.len(), |listed| listed.value.len());
    if let Some(after) = read.demote_after.as_ref().filter(|after| after.value.is_some() && count < 2) {
        let what =
            "there is one class, and none that blocks could go to; name a second one in classes, or leave it out";
        known.sink.note(after.line, &after.key, what);
    }
    let classes = listed.iter().flat_map(|listed| &listed.value).filter_map(|name| ClassName::new(name).ok());
    Some(PathPolicy {
        path: read.path.as_ref()?.value.clone(),
        classes: classes.collect(),
        copies: read.copies,
        demote_after: read.demote_after.as_ref().and_then(|after| after.value),
    })
}

/// An address has one listener.
fn check_addresses(sink: &Sink, listen: &Placed<Vec<StoreAddress>>, config: &Config) {
    let doors = || config.exports.iter().map(|e| &e.door).chain(config.volumes.iter().flat_map(|v| &v.exports));
    let has_tcp = doors().any(|door| *door == DoorConfig::NvmeTcp);
    for at in &listen.value {
        let taken = match at {
            StoreAddress::Tcp(at) if at.port() == 0 => None,
            StoreAddress::Tcp(at) => {
                let by_api = config.node.api.contains(&Address::Tcp(*at)).then_some("the API");
                by_api.or((has_tcp && config.nvme_tcp.listen.contains(at)).then_some("door.nvme-tcp.listen"))
            }
            StoreAddress::Unix(path) => {
                let by_api = config.node.api.contains(&Address::Unix(path.clone())).then_some("the API");
                by_api.or(doors().any(|d| d.socket().is_some_and(|(own, _)| own == path)).then_some("an export"))
            }
        };
        if let Some(by) = taken {
            sink.note(listen.line, &listen.key, format_args!("{at} is taken by {by}; choose another address"));
        }
    }
}

fn one(
    sink: &Sink,
    machine: Machine,
    config: &Config,
    read: &DonateRead,
    classes: &Classes<'_>,
    names: &mut Unique<'_>,
) -> Option<Donated> {
    if let Some(class) = &read.class {
        classes.check(&class.value, class.line, &class.key);
    }
    let drive = match (&read.device, &read.target) {
        (Some(_), Some(_)) | (None, None) => return None,
        (None, Some(target)) => {
            names.see_placed(target, "a namespace is donated once");
            DonatedDrive::Target(target.value.clone())
        }
        (Some(device), None) => {
            let Some(at) = config.devices.iter().position(|d| d.name == device.value) else {
                let names = list(config.devices.iter().map(|d| d.name.as_str()));
                let what = format!("there is no device {}; there is {names}", quoted(&device.value));
                sink.note(device.line, &device.key, what);
                return None;
            };
            names.see_placed(device, "a drive is donated once");
            if let Some(why) = unfit(config, machine, at) {
                sink.note(device.line, &device.key, format_args!("{} {why}", quoted(&device.value)));
            }
            DonatedDrive::Device(at)
        }
    };
    Some(Donated { drive, class: read.class.as_ref()?.value.clone(), location: read.location.clone() })
}

/// Why the store cannot fill a drive of the node.
fn unfit(config: &Config, machine: Machine, at: usize) -> Option<String> {
    let device = &config.devices[at];
    if let Some(pool) = config.pools.iter().find(|p| p.devices.contains(&at)) {
        return Some(format!("is a drive of pool {}; the store takes whole drives", quoted(&pool.name)));
    }
    if device.interface() != "block" {
        return Some(format!("is a {} drive; the store takes block drives", device.interface()));
    }
    if device.media == MediaConfig::Null {
        return Some("keeps no bytes; the store needs a drive that does".into());
    }
    let bytes = device.capacity.or_else(|| machine.size(&device.media));
    if let Some(bytes) = bytes.filter(|bytes| bytes.0 < NAMESPACE_MIN) {
        return Some(format!("has {bytes}; the store takes drives of {} or more", Bytes(NAMESPACE_MIN)));
    }
    let Some(export) = config.exports.iter().find(|e| e.device == at && e.door == DoorConfig::NvmeTcp) else {
        return Some(
            "is not exported by nvme-tcp, which is how the store's clients reach it; add an [[export]] of it".into(),
        );
    };
    if export.read_only {
        return Some("is exported read-only; the store writes to its drives".into());
    }
    if !config.nvme_tcp.listen.iter().any(is_reachable) {
        return Some(
            "has no address that clients could be told: name one in listen of [door.nvme-tcp] beside 0.0.0.0 or [::]"
                .into(),
        );
    }
    None
}

/// What can be told to somebody else.
fn is_reachable(at: &SocketAddr) -> bool {
    !at.ip().is_unspecified()
}
