//! Asymmetric namespace access (base 2.0, 2.4.1 and 8.1): one group of all namespaces, whose state each controller has for itself.
//!
//! The operator says it of a host, of a port or of all; what is said of a controller's host counts more than what is said of the port
//! that it came by, and that more than what is said of all.

use crate::controller::Controller;
use crate::error::ManagementError;
use crate::event::ControllerHandle;
use crate::namespace::access::{AnaScope, AnaState};
use crate::namespace::why;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
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

impl Subsystem {
    /// How the controllers of a host, of a port, or all, reach the namespaces from now on: those that there are and those that will come,
    /// until the drive is stopped. Who says it of all forgets what was said of some. Hosts are told at the next `Run` if they want to know.
    pub fn set_ana(&mut self, scope: AnaScope<'_>, state: AnaState) {
        self.namespaces.access.set(scope, state);
        for c in 0..self.controllers.list.len() as u32 {
            let concerned = |ctrl: &&Controller| self.namespaces.access.concerns(scope, &ctrl.host, ctrl.local);
            if let Some(ctrl) = self.ctrl(c).filter(concerned) {
                let state = self.namespaces.access.of(&ctrl.host, ctrl.local);
                self.change_ana(c, state);
            }
        }
        self.refresh_ana();
    }

    /// What [`set_ana`](Self::set_ana) has been told and what was configured, of all controllers first: who says it again in this order
    /// has the same.
    pub fn access(&self) -> impl Iterator<Item = (AnaScope<'_>, AnaState)> {
        self.namespaces.access.said()
    }

    /// How a controller reaches the namespaces from now on; its host is told at the next `Run` if it wants to know.
    ///
    /// # Errors
    /// There is no such controller.
    pub fn set_ana_state(&mut self, controller: ControllerHandle, state: AnaState) -> Result<(), ManagementError> {
        let c = self.resolve(controller).ok_or(ManagementError::NoController)?;
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
        self.turn.more = true;
        self.associate();
    }

    /// Whether anybody is refused: commands of all namespaces ask then.
    pub(crate) fn refresh_ana(&mut self) {
        let refused = self.controllers.list.iter().flatten().any(|ctrl| ctrl.ana.refusal().is_some());
        for ns in self.namespaces.list.iter_mut().flatten() {
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
        let nsids: Vec<u32> = self.namespaces.list.iter().enumerate().filter(seen).map(|(i, _)| i as u32 + 1).collect();
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
