//! Targets: drives named by URL, as `weir bench` and `media = "nvme:TARGET"` take them.
//!
//! `local:ram?latency=80us&slots=16` · `nvme-tcp://127.0.0.1:4420/NQN?ns=1` · `vfio-user:/path?ns=1` · `vhost-user:/path` ·
//! `pci:0000:01:00.0?ns=1`

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use weir_spec::nvme::register::ams;
use weir_spec::pci::PciAddress;

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In this process: `kind` and `query` as [`DeviceConfig::from_query`](crate::DeviceConfig::from_query) takes
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
    /// A namespace of an NVMe drive of this machine, which vfio-pci has.
    Pci {
        /// Where it is.
        address: PciAddress,
        /// NSID.
        nsid: u32,
        /// Its completions are interrupts, and nobody polls for them.
        interrupts: bool,
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
                     vfio-user:/path?ns=1, vhost-user:/path or pci:0000:01:00.0?ns=1";

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
        if let Some(rest) = s.strip_prefix("pci:") {
            return pci(rest).map_err(wrong);
        }
        let Some(rest) = s.strip_prefix("nvme-tcp://") else {
            return Err(wrong("unknown transport"));
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

/// What follows `pci:`.
pub(super) fn pci(rest: &str) -> Result<Target, &'static str> {
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let address = address.parse().map_err(|_| "no PCI address after pci:")?;
    let (mut nsid, mut interrupts) = (1, false);
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        match pair.split_once('=') {
            Some(("ns", n)) => nsid = namespace(n)?,
            Some(("interrupts", "on")) => interrupts = true,
            Some(("interrupts", "off")) => interrupts = false,
            Some(("interrupts", _)) => return Err("interrupts is on or off"),
            _ => return Err("the keys are ns and interrupts"),
        }
    }
    Ok(Target::Pci { address, nsid, interrupts })
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
        let address = PciAddress { domain: 0, bus: 1, device: 0, function: 0 };
        for (text, nsid, interrupts) in [
            ("pci:0000:01:00.0", 1, false),
            ("pci:01:00.0?ns=4", 4, false),
            ("pci:01:00.0?interrupts=on&ns=2", 2, true),
            ("pci:01:00.0?interrupts=off", 1, false),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), Target::Pci { address, nsid, interrupts }, "{text}");
        }
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
            ("pci:nvme0", "no PCI address"),
            ("pci:0000:01:00.0?ns=0", "ns is no number"),
            ("pci:0000:01:00.0?queues=1", "the keys are ns and interrupts"),
            ("pci:0000:01:00.0?interrupts=1", "interrupts is on or off"),
        ] {
            let e = bad.parse::<Target>().unwrap_err().to_string();
            assert!(e.contains(why) && e.contains("local:null"), "{bad}: {e}");
        }
    }
}
