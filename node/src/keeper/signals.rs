//! What signals of the operator and of a terminal do.

use super::Process;
use crate::notice::notice;
use rustix::process::{Signal, pidfd_send_signal};
use weir_keeper::Event;
use weir_sys::signals::{has_terminal, is_ignored};

/// What the keeper takes as something to wait for.
pub(super) const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Whether there is a terminal whose end is the node's: not where whoever started it wants it to outlive that one, as by nohup(1).
pub(super) fn terminal() -> bool {
    has_terminal() && !is_ignored(Signal::HUP.as_raw())
}

impl Process {
    pub(super) fn signalled(&mut self) {
        while let Some(number) = self.signals.next() {
            if number == Signal::HUP.as_raw() {
                if !self.terminal || has_terminal() {
                    self.apply(Event::Retry);
                    // It reads its configuration anew.
                    let serving = self.machine.serving().and_then(|id| self.workers.get(&id));
                    let _ = serving.map(|worker| pidfd_send_signal(&worker.pidfd, Signal::HUP));
                    continue;
                }
                notice("SIGHUP, and the terminal is gone: the node ends");
            }
            let signal = if number == Signal::INT.as_raw() { Signal::INT } else { Signal::TERM };
            // The worker says what it does, and does it; the second one ends it at once.
            for worker in self.workers.values() {
                let _ = pidfd_send_signal(&worker.pidfd, signal);
            }
            self.stopping = true;
            self.notifier.stopping();
            self.apply(Event::Stop);
        }
    }
}
