//! Targets: drives named by URL, as `weir bench` and `media = "nvme:TARGET"` take them.
//!
//! `local:ram?latency=80us&slots=16` · `nvme-tcp://127.0.0.1:4420/NQN?ns=1` · `vfio-user:/path?ns=1` · `vhost-user:/path`

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use weir_driver::nvme_tcp::Association;
use weir_driver::{QueuePair, TransportError, nvme_tcp, vhost_user};
use weir_spec::nvme::register::ams;
use weir_sys::transport;
use weir_units::Nanos;

/// Who a node is to the drives that it uses as media.
pub const HOST_NQN: &str = "nqn.2026-11.io.weir:host:node";
/// Requests on their way to another drive at once.
const DEPTH: u32 = 256;
/// Bytes of the longest request to it.
const MAX_IO: u32 = 128 << 10;

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In this process: `kind` and `query` as [`DeviceConfig::from_query`](crate::config::DeviceConfig::from_query) takes
    /// them.
    Local {
        /// `null`, `ram`, `file:PATH` ...
        kind: String,
        /// `key=value&key=value`.
        query: String,
    },
    /// A namespace of an NVMe/TCP subsystem.
    NvmeTcp {
        /// Host name or address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// NQN of the subsystem.
        nqn: String,
        /// NSID.
        nsid: u32,
    },
    /// A namespace of an NVMe drive on a vfio-user socket.
    VfioUser {
        /// The socket.
        path: PathBuf,
        /// NSID.
        nsid: u32,
        /// CC.AMS ([`weir_spec::nvme::register::ams`]), if it is said.
        ams: Option<u32>,
    },
    /// A virtio-blk device on a vhost-user socket.
    VhostUser {
        /// The socket.
        path: PathBuf,
    },
}

/// Not a target; the text is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

const FORMS: &str = "local:null, local:ram?latency=80us&slots=16, nvme-tcp://127.0.0.1:4420/NQN?ns=1, \
                     vfio-user:/path?ns=1 or vhost-user:/path";

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(s: &str) -> Result<Self, TargetError> {
        let wrong = |why: &str| TargetError(format!("target \"{s}\": {why}; a target is {FORMS}"));
        if let Some(rest) = s.strip_prefix("local:") {
            let (kind, query) = rest.split_once('?').unwrap_or((rest, ""));
            if kind.is_empty() {
                return Err(wrong("no kind of drive after local:"));
            }
            return Ok(Target::Local { kind: kind.into(), query: query.into() });
        }
        if let Some(path) = s.strip_prefix("vhost-user:") {
            if path.is_empty() {
                return Err(wrong("no path after vhost-user:"));
            }
            return Ok(Target::VhostUser { path: path.into() });
        }
        if let Some(rest) = s.strip_prefix("vfio-user:") {
            return vfio_user(rest).map_err(wrong);
        }
        let Some(rest) = s.strip_prefix("nvme-tcp://") else {
            let later = s.starts_with("pci:");
            return Err(wrong(if later { "this transport is not built yet" } else { "unknown transport" }));
        };
        let (address, rest) = rest.split_once('/').ok_or_else(|| wrong("no /NQN after the address"))?;
        let (nqn, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("no :PORT after the address"))?;
        let port =
            port.parse().ok().filter(|p| *p != 0).ok_or_else(|| wrong("the port is no number from 1 to 65535"))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || nqn.is_empty() {
            return Err(wrong(if nqn.is_empty() { "the NQN is empty" } else { "the address is empty" }));
        }
        let mut nsid = 1;
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("ns", n)) => nsid = namespace(n).map_err(wrong)?,
                _ => return Err(wrong("the only key is ns")),
            }
        }
        Ok(Target::NvmeTcp { host: host.into(), port, nqn: nqn.into(), nsid })
    }
}

fn namespace(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|n| *n != 0).ok_or("ns is no number from 1")
}

/// What follows `vfio-user:`.
fn vfio_user(rest: &str) -> Result<Target, &'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err("no path after vfio-user:");
    }
    let (mut nsid, mut wanted) = (1, None);
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        match pair.split_once('=') {
            Some(("ns", n)) => nsid = namespace(n)?,
            Some(("arbitration", "rr")) => wanted = Some(ams::RR),
            Some(("arbitration", "wrr")) => wanted = Some(ams::WRR),
            Some(("arbitration", "drr")) => wanted = Some(ams::VENDOR),
            Some(("arbitration", _)) => return Err("arbitration is rr, wrr or drr"),
            _ => return Err("the keys are ns and arbitration"),
        }
    }
    Ok(Target::VfioUser { path: path.into(), nsid, ams: wanted })
}

/// A target that is open.
pub struct Opened {
    /// Its queue pair.
    pub pair: Box<dyn QueuePair + Send>,
    /// The connections of its association, where it has one that outlives a process.
    pub connections: Vec<OwnedFd>,
    /// That association.
    pub association: Option<Identity>,
    /// The namespace's NGUID; zeroes where it has none.
    pub nguid: [u8; 16],
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

/// Opens a target of another process with one queue pair, for a drive that lives on it.
///
/// # Errors
/// The text says what could not be reached and why.
pub fn open(target: &str, depth: u32) -> Result<Opened, TransportError> {
    let usage = |e: String| TransportError::Usage(e);
    match target.parse::<Target>().map_err(|e| usage(e.to_string()))? {
        Target::Local { .. } => Err(usage(format!(
            "{target}: a drive of this process cannot be another one's media; name its kind instead"
        ))),
        Target::NvmeTcp { host, port, nqn, nsid } => {
            let depth = depth.clamp(1, DEPTH) as u16;
            let options = nvme_tcp::ConnectOptions { nsid, queues: 1, depth, ..options(&nqn) };
            let pair = only(target, transport::nvme_tcp::open(&host, port, &options, MAX_IO)?)?;
            let connections = pair.connections().map_err(|e| TransportError::Closed(format!("{target}: {e}")))?;
            let (cntlid, number) = pair.association();
            let association = Some(Identity { cntlid, number, kato: options.kato });
            let nguid = pair.ready().nguid;
            Ok(Opened { pair: Box::new(pair), connections, association, nguid })
        }
        Target::VfioUser { path, nsid, ams } => {
            let depth = depth.clamp(1, DEPTH);
            let options =
                transport::vfio_user::VfioUserOptions { nsid, ams, depth, max_io: MAX_IO, ..Default::default() };
            // Its server has one client at a time, and the next one's controller is not ready before the media has finished what it has.
            only(target, transport::vfio_user::connect(&path, &options)?).map(local)
        }
        Target::VhostUser { path } => {
            let options = vhost_user::FrontEndOptions::default();
            only(target, transport::vhost_user::connect(&path, options, depth.clamp(1, DEPTH), MAX_IO)?).map(local)
        }
    }
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
    Opened { pair: Box::new(pair), connections: Vec::new(), association: None, nguid: [0; 16] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let t: Target = "nvme-tcp://[::1]:4420/nqn.2026-11.io.weir:n1:ssd0?ns=2".parse().unwrap();
        let nqn = "nqn.2026-11.io.weir:n1:ssd0".to_string();
        assert_eq!(t, Target::NvmeTcp { host: "::1".into(), port: 4420, nqn, nsid: 2 });
        let t: Target = "local:ram?slots=16".parse().unwrap();
        assert_eq!(t, Target::Local { kind: "ram".into(), query: "slots=16".into() });
        for (text, nsid, ams) in [
            ("vfio-user:/run/x.sock", 1, None),
            ("vfio-user:/run/x.sock?ns=3", 3, None),
            ("vfio-user:/run/x.sock?arbitration=rr", 1, Some(0)),
            ("vfio-user:/run/x.sock?ns=2&arbitration=wrr", 2, Some(1)),
            ("vfio-user:/run/x.sock?arbitration=drr&", 1, Some(7)),
        ] {
            let path = "/run/x.sock".into();
            assert_eq!(text.parse::<Target>().unwrap(), Target::VfioUser { path, nsid, ams }, "{text}");
        }
        let t: Target = "vhost-user:/run/x.sock".parse().unwrap();
        assert_eq!(t, Target::VhostUser { path: "/run/x.sock".into() });
    }

    #[test]
    fn what_is_no_target_says_why() {
        for (bad, why) in [
            ("", "unknown transport"),
            ("local:", "no kind"),
            ("vhost-user:", "no path"),
            ("vfio-user:", "no path"),
            ("vfio-user:?ns=1", "no path"),
            ("vfio-user:/x?ns=0", "ns is no number"),
            ("vfio-user:/x?arbitration=fair", "rr, wrr or drr"),
            ("vfio-user:/x?nsid=1", "the keys are"),
            ("nvme-tcp://127.0.0.1:4420", "no /NQN"),
            ("nvme-tcp://127.0.0.1/nqn", "no :PORT"),
            ("nvme-tcp://127.0.0.1:99999/nqn", "port"),
            ("nvme-tcp://127.0.0.1:4420/", "NQN is empty"),
            ("nvme-tcp://127.0.0.1:4420/nqn?ns=0", "ns is no number"),
            ("nvme-tcp://127.0.0.1:4420/nqn?x=1", "only key"),
            ("pci:0000:01:00.0", "not built yet"),
        ] {
            let e = bad.parse::<Target>().unwrap_err().to_string();
            assert!(e.contains(why) && e.contains("local:null"), "{bad}: {e}");
        }
    }
}
