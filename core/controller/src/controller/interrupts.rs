//! Signals interrupt vectors: at once, when a mask opens, or when an aggregation time has passed.

use crate::event::ControllerHandle;
use crate::host::Host;
use crate::queues::interrupt::{Held, MASKABLE, masks};
use crate::queues::queue::Cq;
use crate::subsystem::Subsystem;
use weir_spec::nvme::feature::Coalescing;
use weir_units::Nanos;

impl Subsystem {
    /// The level of the controller's INTx pin: completions that its host has not consumed, of vectors that are not masked.
    pub fn pin(&self, controller: ControllerHandle) -> bool {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl(c)) else { return false };
        let cqs = ctrl.cqs.iter().filter_map(|index| self.queues.cqs.get(*index as usize)?.as_ref());
        cqs.filter(|cq| cq.used() > 0).filter_map(|cq| cq.vector).any(|vector| !masks(ctrl.intm, vector))
    }

    /// Finds out which completion queues of a controller are gated: its mask, its coalescing or its queues have changed. What
    /// is held is told, so that nothing waits by a rule that is gone.
    pub(crate) fn gate<H: Host>(&mut self, c: u32, host: &mut H) {
        self.tell(c, None, host);
        let Some(ctrl) = self.ctrl(c) else { return };
        let coalescing = Coalescing(ctrl.features.coalescing);
        let (intm, on) = (ctrl.intm, coalescing.time() > 0 && coalescing.thr() > 0);
        for at in 0..ctrl.cqs.len() {
            let Some(ctrl) = self.controllers.list[c as usize].as_deref() else { return };
            let Some(cq) = self.queues.cq_mut(ctrl.cqs[at]) else { continue };
            cq.gated = cq.vector.is_some_and(|vector| {
                masks(intm, vector) || on && cq.qid != 0 && !ctrl.features.uncoalesced.contains(&vector)
            });
        }
    }

    /// The vector to signal for a completion that is about to be posted to a gated queue, if it is to be signalled now.
    #[cold]
    pub(crate) fn hold(&mut self, index: u32) -> Option<u16> {
        let Cq { controller, qid, vector, .. } = *self.queues.cqs.get(index as usize)?.as_ref()?;
        let vector = vector?;
        let ctrl = self.controllers.list.get(controller as usize)?.as_deref()?;
        if masks(ctrl.intm, vector) {
            return None;
        }
        let coalescing = Coalescing(ctrl.features.coalescing);
        if qid == 0 || ctrl.features.uncoalesced.contains(&vector) || coalescing.time() == 0 {
            return Some(vector);
        }
        let due = self.turn.now.saturating_add(Nanos::from_micros(u64::from(coalescing.time()) * 100));
        let at =
            self.queues.interrupts.held.iter().position(|held| held.controller == controller && held.vector == vector);
        let at = at.unwrap_or_else(|| {
            self.queues.interrupts.held.push(Held { controller, vector, count: 0, due });
            self.queues.interrupts.next = self.queues.interrupts.next.min(due);
            self.queues.interrupts.held.len() - 1
        });
        self.queues.interrupts.held[at].count += 1;
        // The threshold is 0-based.
        if self.queues.interrupts.held[at].count <= coalescing.thr() {
            return None;
        }
        self.queues.interrupts.held.swap_remove(at);
        self.note_held();
        Some(vector)
    }

    /// Tells the hosts whose aggregation time has passed.
    #[cold]
    pub(crate) fn tell_due<H: Host>(&mut self, now: Nanos, host: &mut H) {
        for at in (0..self.queues.interrupts.held.len()).rev() {
            if self.queues.interrupts.held[at].due <= now {
                let Held { controller, vector, .. } = self.queues.interrupts.held.swap_remove(at);
                self.signal(controller, vector, host);
            }
        }
        self.note_held();
    }

    /// Tells a controller's host what is held for a vector, or for all.
    fn tell<H: Host>(&mut self, c: u32, vector: Option<u16>, host: &mut H) {
        for at in (0..self.queues.interrupts.held.len()).rev() {
            let held = self.queues.interrupts.held[at];
            if held.controller == c && vector.is_none_or(|v| v == held.vector) {
                self.queues.interrupts.held.swap_remove(at);
                self.signal(c, held.vector, host);
            }
        }
        self.note_held();
    }

    fn signal<H: Host>(&mut self, c: u32, vector: u16, host: &mut H) {
        if let Some(ctrl) = self.ctrl(c).filter(|ctrl| !masks(ctrl.intm, vector)) {
            host.interrupt(ctrl.owner, vector);
        }
    }

    /// A controller is reset: nobody is to be told.
    pub(crate) fn forget_held(&mut self, c: u32) {
        self.queues.interrupts.held.retain(|held| held.controller != c);
        self.note_held();
    }

    fn note_held(&mut self) {
        self.queues.interrupts.next =
            self.queues.interrupts.held.iter().map(|held| held.due).min().unwrap_or(Nanos::NEVER);
    }

    /// INTMS and INTMC: `mask` is what is masked now. Vectors that are not masked any more and have completions that were not
    /// consumed are signalled.
    pub(crate) fn set_mask<H: Host>(&mut self, c: u32, mask: u32, host: &mut H) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let opened = core::mem::replace(&mut ctrl.intm, mask) & !mask;
        self.gate(c, host);
        let Some(ctrl) = self.ctrl(c) else { return };
        let cqs = ctrl.cqs.iter().filter_map(|index| self.queues.cqs.get(*index as usize)?.as_ref());
        let mut vectors = 0u32;
        for vector in cqs.filter(|cq| cq.used() > 0).filter_map(|cq| cq.vector) {
            vectors |= if masks(opened, vector) { 1 << vector } else { 0 };
        }
        let owner = ctrl.owner;
        for vector in (0..MASKABLE).filter(|vector| masks(vectors, *vector)) {
            host.interrupt(owner, vector);
        }
    }
}
