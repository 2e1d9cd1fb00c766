//! Asymmetric namespace access (base 2.0, 2.4.1 and 8.1): one group of all namespaces, whose state each controller has for itself.
//!
//! The operator says it of a host, of a port or of all; what is said of a controller's host counts more than what is said of the port
//! that it came by, and that more than what is said of all.

use crate::admin::discovery::is_port;
use crate::controller::Controller;
use crate::error::Error;
use crate::event::ControllerHandle;
use crate::namespace::why;
use crate::subsystem::Subsystem;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::maintenance::{AnaGroup, AnaHeader, ana};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// The one group.
pub(crate) const GROUP: u32 = 1;
/// ANACAP bit 7: whoever creates a namespace may name its group.
pub(super) const GROUP_NAMED: u8 = 1 << 7;
/// ANATT: the longest time in the change state, s.
pub(super) const TRANSITION: u8 = 10;

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
    const fn code(self) -> u8 {
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
pub(crate) struct Access {
    all: AnaState,
    hosts: BTreeMap<String, AnaState>,
    ports: BTreeMap<SocketAddr, AnaState>,
}

impl Access {
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
    fn said(&self) -> impl Iterator<Item = (AnaScope<'_>, AnaState)> {
        let hosts = self.hosts.iter().map(|(host, state)| (AnaScope::Host(host), *state));
        let ports = self.ports.iter().map(|(port, state)| (AnaScope::Port(*port), *state));
        core::iter::once((AnaScope::All, self.all)).chain(hosts).chain(ports)
    }

    fn set(&mut self, scope: AnaScope<'_>, state: AnaState) {
        match scope {
            AnaScope::All => *self = Access { all: state, ..Self::default() },
            AnaScope::Host(host) => {
                self.hosts.insert(host.into(), state);
            }
            AnaScope::Port(port) => {
                self.ports.insert(port, state);
            }
        }
    }

    /// Whether what is said of `scope` counts for a controller.
    fn concerns(&self, scope: AnaScope<'_>, host: &str, local: Option<SocketAddr>) -> bool {
        match scope {
            AnaScope::All => true,
            AnaScope::Host(named) => named == host,
            AnaScope::Port(port) => !self.hosts.contains_key(host) && local.is_some_and(|local| is_port(port, local)),
        }
    }
}

impl Subsystem {
    /// How the controllers of a host, of a port, or all, reach the namespaces from now on: those that there are and those that will come,
    /// until the drive is stopped. Who says it of all forgets what was said of some. Hosts are told at the next `Run` if they want to know.
    pub fn set_ana(&mut self, scope: AnaScope<'_>, state: AnaState) {
        self.access.set(scope, state);
        for c in 0..self.controllers.len() as u32 {
            let concerned = |ctrl: &&Controller| self.access.concerns(scope, &ctrl.host, ctrl.local);
            if let Some(ctrl) = self.ctrl(c).filter(concerned) {
                let state = self.access.of(&ctrl.host, ctrl.local);
                self.change_ana(c, state);
            }
        }
        self.refresh_ana();
    }

    /// What [`set_ana`](Self::set_ana) has been told and what was configured, of all controllers first: who says it again in this order
    /// has the same.
    pub fn access(&self) -> impl Iterator<Item = (AnaScope<'_>, AnaState)> {
        self.access.said()
    }

    /// How a controller reaches the namespaces from now on; its host is told at the next `Run` if it wants to know.
    ///
    /// # Errors
    /// There is no such controller.
    pub fn set_ana_state(&mut self, controller: ControllerHandle, state: AnaState) -> Result<(), Error> {
        let c = self.resolve(controller).ok_or(Error::NoController)?;
        self.change_ana(c, state);
        self.refresh_ana();
        Ok(())
    }

    fn change_ana(&mut self, c: u32, state: AnaState) {
        let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.ana != state) else { return };
        ctrl.ana = state;
        ctrl.ana_changes += 1;
        ctrl.aer.raise(AsyncEvent::ANA_CHANGE, ctrl.features.async_config);
        self.list_admin(c);
        self.more = true;
        self.associate();
    }

    /// Whether anybody is refused: commands of all namespaces ask then.
    pub(crate) fn refresh_ana(&mut self) {
        let refused = self.controllers.iter().flatten().any(|ctrl| ctrl.ana.refusal().is_some());
        for ns in self.namespaces.iter_mut().flatten() {
            ns.why = if refused { ns.why | why::ANA } else { ns.why & !why::ANA };
        }
        // What waits for a slot was looked at before.
        for f in self.fetched.iter_mut().filter(|_| refused) {
            f.plan.slow = true;
        }
    }

    /// What a queue's I/O commands are refused with, as its controller reaches the namespaces.
    pub(crate) fn ana_refusal(&self, queue: u32) -> Option<Status> {
        self.ctrl(self.sq(queue).controller).and_then(|ctrl| ctrl.ana.refusal())
    }

    /// The ANA log page.
    pub(super) fn ana_log(&self, c: u32, lsp: u8) -> Vec<u8> {
        let Some(ctrl) = self.ctrl(c) else { return Vec::new() };
        let seen = |(_, ns): &(usize, &Option<_>)| ns.as_ref().is_some_and(|ns| self.sees(c, ns));
        let nsids: Vec<u32> = self.namespaces.iter().enumerate().filter(seen).map(|(i, _)| i as u32 + 1).collect();
        let nsids = if lsp & ana::GROUPS_ONLY != 0 { Vec::new() } else { nsids };
        let change_count = U64::new(ctrl.ana_changes);
        let header = AnaHeader { change_count, groups: U16::new(1), ..Default::default() };
        let namespaces = U32::new(nsids.len() as u32);
        let group =
            AnaGroup { id: U32::new(GROUP), namespaces, change_count, state: ctrl.ana.code(), ..Default::default() };
        let list: Vec<u8> = nsids.iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
        [header.as_bytes(), group.as_bytes(), &list].concat()
    }
}
