//! A client's shadow doorbells, beside the mapped ones.

use super::{Conn, UNRUNG};
use crate::door::context::{Arrival, Cx};
use crate::door::vfio_user::client_memory::{Homes, Pages};
use weir_controller::{ControllerHandle, Event, Shadow};

impl Conn {
    /// Takes what the client has written into its shadow doorbells; true if there was anything. `sleep`: the client is to ring
    /// for what comes from now on.
    #[cold]
    fn look_at_shadow(&mut self, (drive, controller): (u32, ControllerHandle), sleep: bool, cx: &mut Cx) -> bool {
        let told = self.gate_shadow((drive, controller), cx);
        let machine = cx.drives.to_poll(drive);
        let Some(shadow) = machine.shadow(controller) else {
            self.shadowed = false;
            return false;
        };
        let homes = Homes { memory: &self.memory, buffer: self.buffer.as_deref() };
        let mut pages = Pages { homes, shadow, gate: told.then_some(&self.gate) };
        let rung = match sleep {
            true => !machine.arm_shadow(controller, &mut pages),
            false => machine.poll_shadow(controller, &mut pages),
        };
        if rung {
            cx.arrivals.push(Arrival { drive, event: Event::Run });
        }
        rung
    }

    /// The same where it has some: its host says so by an admin command, which comes without a message where doorbells are mapped.
    #[inline]
    pub(super) fn look_at_shadow_if_any(&mut self, drive: u32, controller: ControllerHandle, cx: &mut Cx) -> bool {
        self.shadowed = cx.drives.machine(drive).shadow(controller).is_some();
        self.shadowed && self.look_at_shadow((drive, controller), false, cx)
    }

    /// Before its doorbells are looked at no more: true if something has come after all.
    pub(in crate::door::vfio_user) fn has_come(
        &mut self,
        drive: u32,
        controller: ControllerHandle,
        cx: &mut Cx,
    ) -> bool {
        let Some(shadow) = cx.drives.machine(drive).shadow(controller) else { return false };
        !self.unring(&shadow) || self.look_at_shadow((drive, controller), true, cx)
    }

    /// Puts into the mapped doorbells of queues with shadow doorbells what nobody rings, before their host is asked to ring: it
    /// may have rung the same value a round of its queue earlier. False if somebody has rung meanwhile.
    fn unring(&mut self, shadow: &Shadow) -> bool {
        let Some(bells) = &self.bells else { return true };
        let queues = self.there.iter().zip(&mut self.seen).zip(0u16..);
        let mut still = true;
        for ((there, seen), qid) in queues.skip(1).take(usize::from(shadow.queues).saturating_sub(1)) {
            if there.0 && seen.0 != UNRUNG {
                still &= bells.exchange_tail(qid, seen.0, UNRUNG);
                seen.0 = UNRUNG;
            }
            if there.1 && seen.1 != UNRUNG {
                still &= bells.exchange_head(qid, seen.1, UNRUNG);
                seen.1 = UNRUNG;
            }
        }
        still
    }
}
