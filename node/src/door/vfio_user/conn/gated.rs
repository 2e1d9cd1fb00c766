//! Commands that are shown to the drive one by one, because some of their bytes travel by messages: see [`MessageDma`].
//!
//! [`MessageDma`]: super::super::message_dma::MessageDma

use super::Conn;
use crate::door::context::{Arrival, Cx};
use crate::door::vfio_user::client_memory::{Homes, Pages};
use crate::door::vfio_user::message_dma::Looks;
use weir_controller::{ControllerHandle, Event, ShadowPages};
use weir_session::vfio_user::Unsent;
use weir_spec::nvme::register::{self, Doorbell};

impl Conn {
    /// Whether commands are shown to the drive one by one.
    #[inline]
    pub(super) fn is_gated(&self) -> bool {
        self.device.has_messaged() || !self.gate.is_idle()
    }

    /// Whether nothing of a command is on its way by messages: who comes after a crash would know nothing of the rest.
    #[inline]
    pub(super) fn survives(&self) -> bool {
        self.gate.is_empty()
    }

    /// The same of what was rung by shadow doorbells.
    pub(super) fn gate_shadow(&mut self, (drive, controller): (u32, ControllerHandle), cx: &mut Cx) -> bool {
        if !self.is_gated() {
            return false;
        }
        let Some(shadow) = cx.drives.machine(drive).shadow(controller) else { return false };
        let homes = Homes { memory: &self.memory, buffer: self.buffer.as_deref() };
        let mut pages = Pages { homes, shadow, gate: None };
        for qid in 1..shadow.queues.min(cx.drives.machine(drive).ring_queues(controller).1) {
            if let (Ok(tail), Some(_)) =
                (pages.load(u32::from(qid) * 2), cx.drives.machine(drive).ring_place(controller, qid))
            {
                self.gate.ring(qid, tail);
            }
        }
        // What it may see it finds in the pages.
        self.show((drive, controller), &mut Vec::new(), cx);
        true
    }

    /// Shows the drive what is in reach by now of what was rung.
    pub(super) fn advance(&mut self, (drive, controller): (u32, ControllerHandle), cx: &mut Cx) {
        let mut told = Vec::new();
        self.show((drive, controller), &mut told, cx);
        let shadow = cx.drives.machine(drive).shadow(controller).map_or(0, |shadow| shadow.queues);
        for (qid, tail) in told {
            let event = match qid == 0 || qid >= shadow {
                true => Event::SqTail { controller, qid, tail },
                // The pages are looked at in every turn meanwhile.
                false => continue,
            };
            cx.arrivals.push(Arrival { drive, event });
        }
    }

    pub(super) fn show(
        &mut self,
        (drive, controller): (u32, ControllerHandle),
        told: &mut Vec<(u16, u32)>,
        cx: &mut Cx,
    ) {
        let homes = Homes { memory: &self.memory, buffer: self.buffer.as_deref() };
        let machine = cx.drives.machine(drive);
        let mut looks = Looks { now: cx.now, machine, controller, homes, device: &mut self.device };
        self.gate.advance(&mut looks, |qid, tail| told.push((qid, tail)));
    }

    /// What the gate wants to know of the client goes to it with the answers.
    pub(super) fn ask(&mut self) {
        let messages = self.gate.out.drain(..).map(|bytes| Unsent { bytes, sent: 0, with: None });
        self.answers.extend(messages);
    }

    /// Whether there is something to send that nobody has noticed yet.
    #[inline]
    pub(in crate::door::vfio_user) fn asks(&self) -> bool {
        !self.gate.out.is_empty() || self.gate.flooded
    }

    /// Whether a write to a register rings a queue whose commands are shown one by one. Who has shadow doorbells only wakes us.
    pub(super) fn is_gated_tail(&self, offset: u32) -> bool {
        let tail = match register::doorbell_at(offset) {
            Some(Doorbell::SqTail(qid)) => qid == 0 || !self.shadowed,
            _ => false,
        };
        tail && self.is_gated()
    }
}
