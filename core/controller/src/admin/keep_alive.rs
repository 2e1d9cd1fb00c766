//! The keep alive timer (KATO): when a controller whose host says nothing any more ends. How long it runs is
//! [`Controller::keep_alive`](crate::controller::Controller::keep_alive)'s; what an end is, `controller/registers.rs`, `fatal`.

use super::AdminOutcome;
use crate::controller::Shutdown;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Subsystem {
    /// Keep Alive (base 2.0, 5.18).
    pub(super) fn keep_alive(&mut self, now: Nanos, c: u32) -> AdminOutcome {
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.keep_alive(now);
        }
        AdminOutcome::status(Status::SUCCESS)
    }

    /// Ends the controllers whose keep alive timer has expired: their I/O must not touch the media's new owner's data,
    /// so nothing more of it is started or answered (base 2.0, 3.9.4).
    pub(crate) fn expire(&mut self, now: Nanos) {
        if self.admin.next_expiry > now {
            return;
        }
        self.watch_temperature(now);
        let mut next = self.maintenance.background.wake.min(self.power.next_look).min(self.faults_due());
        for c in 0..self.controllers.list.len() as u32 {
            let Some(ctrl) = self.ctrl(c) else { continue };
            if ctrl.expires <= now {
                let q = ctrl.sq(0);
                if !ctrl.serves() {
                    self.leave(now, c);
                } else {
                    if q != NONE {
                        self.log_error(q, 0xffff, Status::KEEP_ALIVE_EXPIRED, (0, 0));
                    }
                    self.fatal(c);
                }
            }
            next = next.min(self.ctrl(c).map_or(Nanos::NEVER, |ctrl| ctrl.expires));
        }
        self.admin.next_expiry = next;
    }

    /// The host of a controller that is disabled or shut down has had its time: its connections are closed.
    fn leave(&mut self, now: Nanos, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        if matches!(ctrl.shutdown, Shutdown::Draining | Shutdown::Flushing(_)) {
            return ctrl.wait_for_host(now);
        }
        ctrl.expires = Nanos::NEVER;
        let admin = ctrl.sq(0);
        self.drop_io_queues(c);
        if admin != NONE {
            self.condemn(admin);
        }
    }

    /// A controller's time was set: the drive wakes for it.
    pub(crate) fn arm_expiry(&mut self, c: u32) {
        if let Some(ctrl) = self.ctrl(c) {
            self.admin.next_expiry = self.admin.next_expiry.min(ctrl.expires);
        }
    }
}
