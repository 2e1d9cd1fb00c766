//! What the door of a ring controller asks: which queues there are, so that it knows whose doorbells to look at; and what it
//! says: the class that the process at the other end wishes for.

use crate::config::ClassFrom;
use crate::event::ControllerHandle;
use crate::queue::NONE;
use crate::subsystem::Subsystem;
use weir_units::Class;

impl Subsystem {
    /// A number that changes whenever a queue of this drive is made or goes, and how many queue identifiers of the controller
    /// may have queues, from 0 on: 0 while it is not enabled.
    #[inline]
    pub fn ring_queues(&self, controller: ControllerHandle) -> (u32, u16) {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c)).filter(|ctrl| ctrl.sq(0) != NONE);
        (self.ring_epoch, ctrl.map_or(0, |ctrl| ctrl.sqs.len().max(ctrl.cqs.len()) as u16))
    }

    /// Whether a controller has a submission and a completion queue of this identifier.
    pub fn ring_queue(&self, controller: ControllerHandle, qid: u16) -> (bool, bool) {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c));
        ctrl.map_or((false, false), |ctrl| (ctrl.sq(qid) != NONE, ctrl.cq(qid) != NONE))
    }

    /// The wish of the process at the other end changed: its I/O queues follow, those that there are and those to come (counts
    /// with `class_from = "peer"`).
    pub fn set_controller_wish(&mut self, controller: ControllerHandle, wish: Option<Class>) {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl_mut(c)) else { return };
        ctrl.wish = wish;
        if ctrl.class_from != Some(ClassFrom::Peer) {
            return;
        }
        for q in ctrl.sqs.iter().skip(1).copied().filter(|q| *q != NONE).collect::<alloc::vec::Vec<_>>() {
            self.sq_mut(q).wish = wish;
            self.classify(q);
        }
    }
}
