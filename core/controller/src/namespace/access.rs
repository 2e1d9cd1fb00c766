//! How controllers reach the namespaces (asymmetric namespace access; base 2.0, 2.4.1 and 8.1), as the operator says it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::net::{IpAddr, SocketAddr};
use weir_spec::nvme::Status;
use weir_spec::nvme::maintenance::ana;

/// How a controller reaches the namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnaState {
    /// Well.
    #[default]
    Optimized,
    /// Not as well as another controller.
    NonOptimized,
    /// Not now.
    Inaccessible,
    /// Never again.
    PersistentLoss,
    /// It is about to change.
    Change,
}

impl AnaState {
    pub(crate) const fn code(self) -> u8 {
        match self {
            AnaState::Optimized => ana::OPTIMIZED,
            AnaState::NonOptimized => ana::NON_OPTIMIZED,
            AnaState::Inaccessible => ana::INACCESSIBLE,
            AnaState::PersistentLoss => ana::PERSISTENT_LOSS,
            AnaState::Change => ana::CHANGE,
        }
    }

    /// What I/O commands are refused with; a host tries them again on another path, so DNR is clear (base 2.0, 8.1.4).
    pub(crate) const fn refusal(self) -> Option<Status> {
        match self {
            AnaState::Optimized | AnaState::NonOptimized => None,
            AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

/// Whose access the operator speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnaScope<'a> {
    /// Every controller.
    All,
    /// The controllers of the host with this NQN.
    Host(&'a str),
    /// The controllers whose hosts have come by this listening address; an unspecified IP address is any, as for a socket.
    Port(SocketAddr),
}

/// What the operator has said of access.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessRules {
    all: AnaState,
    hosts: BTreeMap<String, AnaState>,
    ports: BTreeMap<SocketAddr, AnaState>,
}

impl AccessRules {
    /// As it is configured.
    pub fn new(ports: &[(SocketAddr, AnaState)]) -> Self {
        Self { ports: ports.iter().copied().collect(), ..Self::default() }
    }

    /// How a controller of that host reaches the namespaces, which has come to that address.
    pub fn of(&self, host: &str, local: Option<SocketAddr>) -> AnaState {
        let by_port = || {
            let local = local?;
            let covering = || self.ports.iter().find(|(port, _)| is_port(**port, local)).map(|(_, state)| state);
            self.ports.get(&local).or_else(covering).copied()
        };
        self.hosts.get(host).copied().or_else(by_port).unwrap_or(self.all)
    }

    /// Everything that was said, of all first.
    pub fn said(&self) -> impl Iterator<Item = (AnaScope<'_>, AnaState)> {
        let hosts = self.hosts.iter().map(|(host, state)| (AnaScope::Host(host), *state));
        let ports = self.ports.iter().map(|(port, state)| (AnaScope::Port(*port), *state));
        core::iter::once((AnaScope::All, self.all)).chain(hosts).chain(ports)
    }

    pub fn set(&mut self, scope: AnaScope<'_>, state: AnaState) {
        match scope {
            AnaScope::All => *self = AccessRules { all: state, ..Self::default() },
            AnaScope::Host(host) => {
                self.hosts.insert(host.into(), state);
            }
            AnaScope::Port(port) => {
                self.ports.insert(port, state);
            }
        }
    }

    /// Whether what is said of `scope` counts for a controller.
    pub fn concerns(&self, scope: AnaScope<'_>, host: &str, local: Option<SocketAddr>) -> bool {
        match scope {
            AnaScope::All => true,
            AnaScope::Host(named) => named == host,
            AnaScope::Port(port) => !self.hosts.contains_key(host) && local.is_some_and(|local| is_port(port, local)),
        }
    }
}

/// Whether a connection to this address of ours came by the socket that listens there.
pub(crate) fn is_port(listen: SocketAddr, local: SocketAddr) -> bool {
    listen.port() == local.port() && (listen.ip() == local.ip() || covers(listen.ip(), local.ip()))
}

/// Whether a socket that listens on all addresses of a family has this one: those of IPv6 take IPv4 as well.
pub(crate) fn covers(listen: IpAddr, address: IpAddr) -> bool {
    listen.is_unspecified() && (listen.is_ipv6() || address.is_ipv4())
}
