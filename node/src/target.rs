//! [Targets](Target) of other processes, opened as the media of a drive.

use crate::held_names::PCI_DRIVES;
use std::os::fd::OwnedFd;
use std::time::Duration;
use weir_config::{Target, TargetError};
use weir_driver::link_recovery::DriveIdentity;
use weir_driver::nvme::ControllerIdentity;
use weir_driver::nvme_tcp::Association;
use weir_driver::{QueuePair, TransportError, nvme_tcp, vhost_user};
use weir_sys::keeper_channel::Keep;
use weir_sys::transport;
use weir_sys::transport::nvme_tcp::{RemoteController, Stage};
use weir_units::Nanos;

/// Who a node is to the drives that it uses as media.
pub const HOST_NQN: &str = "nqn.2026-11.io.weir:host:node";
/// Requests on their way to another drive at once.
const DEPTH: u32 = 256;
/// Bytes of the longest request to it.
const MAX_IO: u32 = 128 << 10;

/// A target that is open.
pub struct Opened {
    /// Its queue pair.
    pub pair: Box<dyn QueuePair + Send>,
    /// The connections of its association, where it has one that outlives a process.
    pub connections: Vec<OwnedFd>,
    /// That association.
    pub association: Option<Identity>,
    /// Which drive it is, as far as it says so; `None`: it does not at all.
    pub identity: Option<DriveIdentity>,
    /// An eventfd that is signalled when requests end; `None`: somebody has to poll for them.
    pub interrupt: Option<OwnedFd>,
}

/// How a target is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Requests at once.
    pub depth: u32,
    /// Keep alive timeout of an association over NVMe/TCP.
    pub keep_alive_tmo: Nanos,
    /// How long its controller may take for an answer.
    pub answer_timeout: Nanos,
}

/// An association with an NVMe/TCP target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its controller.
    pub cntlid: u16,
    /// Which one of this process it is; 0 is one of another process.
    pub number: u64,
    /// Its keep alive timeout.
    pub kato: Nanos,
}

/// For which drive a target is opened, and who holds for it what outlives the process.
#[derive(Clone, Debug)]
pub struct OpenedFor {
    /// The drive's name in the configuration.
    pub drive: String,
    /// Holds it.
    pub keep: Keep,
}

/// Opens a target of another process with one queue pair, for a drive that lives on it; `reached` hears how far it has come.
///
/// # Errors
/// The text says what could not be reached and why.
pub fn open(
    target: &str,
    how: OpenOptions,
    of: &OpenedFor,
    reached: &mut dyn FnMut(Stage),
) -> Result<Opened, TransportError> {
    let usage = |e: String| TransportError::Usage(e);
    match target.parse::<Target>().map_err(|e| usage(e.to_string()))? {
        Target::Local { .. } => Err(usage(format!(
            "{target}: a drive of this process cannot be another one's media; name its kind instead"
        ))),
        Target::NvmeTcp { host, port, nqn, nsid } => {
            let options = nvme_tcp::ConnectOptions {
                nsid,
                depth: how.depth.clamp(1, DEPTH) as u16,
                kato: how.keep_alive_tmo,
                answer_timeout: how.answer_timeout,
                follows_namespace: true,
                ..options(&nqn)
            };
            let kato = options.kato;
            let mut controller = RemoteController::connect_by_stages(&host, port, options, reached)?;
            let pair = controller.queue_pair(MAX_IO)?;
            let connections = pair.connections().map_err(|e| TransportError::Closed(format!("{target}: {e}")))?;
            let (cntlid, number) = pair.association();
            let association = Some(Identity { cntlid, number, kato });
            let ready = pair.ready();
            let (nguid, eui64, uuid) = (ready.nguid, ready.eui64, ready.uuid);
            let (capacity, block_size) = (ready.capacity, ready.block_size);
            let identity = identified(DriveIdentity { nguid, eui64, uuid, capacity, block_size });
            Ok(Opened { pair: Box::new(pair), connections, association, identity, interrupt: None })
        }
        Target::VfioUser { path, nsid, ams } => {
            let depth = how.depth.clamp(1, DEPTH);
            let answer_timeout = Duration::from_nanos(how.answer_timeout.get());
            let options = transport::vfio_user::VfioUserOptions {
                nsid,
                ams,
                depth,
                max_io: MAX_IO,
                answer_timeout,
                ..Default::default()
            };
            // Its server has one client at a time, and the next one's controller is not ready before the media has finished what it has.
            let pair = only(target, transport::vfio_user::connect(&path, &options)?)?;
            reached(Stage::Connected);
            reached(Stage::Enabled);
            let identity = of_controller(pair.identity(), &pair);
            Ok(Opened { identity, ..local(pair) })
        }
        Target::Pci { address, nsid, interrupts } => {
            let depth = how.depth.clamp(1, DEPTH);
            let options = transport::pci::PciOptions { nsid, depth, max_io: MAX_IO, interrupts, ..Default::default() };
            // Opening resets its controller, or takes it over with new queues: nothing of a process before this one is carried out any more.
            let held = (&of.keep, &*format!("{PCI_DRIVES}{}", of.drive));
            let mut pair = only(target, transport::pci::open(address, &options, Some(held))?)?;
            reached(Stage::Connected);
            reached(Stage::Enabled);
            let (identity, interrupt) = (of_controller(pair.identity(), &pair), pair.take_interrupt());
            Ok(Opened { identity, interrupt, ..local(pair) })
        }
        Target::VhostUser { path } => {
            let options = vhost_user::FrontEndOptions::default();
            only(target, transport::vhost_user::connect(&path, options, how.depth.clamp(1, DEPTH), MAX_IO)?).map(local)
        }
    }
}

/// Who a memory-model controller says that its namespace is.
fn of_controller(identity: &ControllerIdentity, pair: &impl QueuePair) -> Option<DriveIdentity> {
    let ControllerIdentity { nguid, eui64, uuid, .. } = *identity;
    let (capacity, block_size) = (pair.capacity(), pair.block_size());
    identified(DriveIdentity { nguid, eui64, uuid, capacity, block_size })
}

/// None without an identifier: an empty namespace of the same size would look the same.
fn identified(drive: DriveIdentity) -> Option<DriveIdentity> {
    drive.is_identified().then_some(drive)
}

/// As the node connects to a subsystem.
fn options(nqn: &str) -> nvme_tcp::ConnectOptions {
    nvme_tcp::ConnectOptions::new(nqn, HOST_NQN)
}

/// Whether an NVMe/TCP target still has an association of this node. Waits for the network.
///
/// # Errors
/// The target cannot be asked.
pub fn association(target: &str, of: Identity) -> Result<Association, TransportError> {
    match target.parse().map_err(|e: TargetError| TransportError::Usage(e.to_string()))? {
        Target::NvmeTcp { host, port, nqn, .. } => {
            transport::nvme_tcp::association((&host, port), &options(&nqn), (of.cntlid, of.number))
        }
        _ => Ok(Association::Unclear),
    }
}

/// The one queue pair that was asked for.
fn only<Q>(target: &str, pairs: Vec<Q>) -> Result<Q, TransportError> {
    pairs.into_iter().next().ok_or_else(|| TransportError::Refused(format!("{target}: gives no I/O queue")))
}

/// A queue pair whose server sees the end of its client's process, and fences the next one itself.
fn local(pair: impl QueuePair + Send + 'static) -> Opened {
    Opened { pair: Box::new(pair), connections: Vec::new(), association: None, identity: None, interrupt: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_without_identifiers_is_not_known_again() {
        let none = DriveIdentity { capacity: 1 << 20, block_size: 512, ..DriveIdentity::default() };
        assert_eq!(identified(none), None);
        let some = DriveIdentity { uuid: [1; 16], ..none };
        assert_eq!(identified(some), Some(some));
    }
}
