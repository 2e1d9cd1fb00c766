//! What becomes of commands that have failed or were not answered.

use super::{
    Failure, Gate, Health, HealthAction, Question, ResetLevel, SmartReading, State, StatusClass, Ticket, Verdict,
};
use alloc::vec::Vec;
use weir_units::Nanos;

impl Health {
    pub(super) fn on_failed(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        let class = StatusClass::of(failure.status);
        let deliver = HealthAction::Deliver { ticket: failure.ticket, status: failure.status };
        if class == StatusClass::Host {
            return out.push(deliver);
        }
        if let Gate::Failing(reason) = self.gate {
            let status = reason.status(failure.access);
            return out.push(HealthAction::Deliver { ticket: failure.ticket, status });
        }
        if self.state != State::Serving {
            // What lasts comes again when the command is sent again.
            if class == StatusClass::UnreadableMedia && failure.retries > 0 && !self.suspects.is_marked(failure.extent)
            {
                self.suspects.add(failure.extent);
            }
            return out.push(HealthAction::Hold(failure.ticket));
        }
        match class {
            StatusClass::UnreadableMedia => self.on_unreadable(now, failure, out),
            StatusClass::WriteFault => self.on_write_fault(now, failure, out),
            StatusClass::Controller => self.on_controller_failure(now, failure, out),
            StatusClass::Namespace => {
                out.push(HealthAction::Hold(failure.ticket));
                self.blame(now, Verdict::Namespace);
                self.identify(now, out);
            }
            StatusClass::Path(path) => {
                out.push(HealthAction::Hold(failure.ticket));
                self.on_path(now, path, out);
            }
            StatusClass::Retry => self.retry_or_deliver(now, failure, out),
            StatusClass::ReadOnly => {
                self.note_read_only(now);
                out.push(deliver);
                self.conclude(now, out);
            }
            StatusClass::Aborted => out.push(HealthAction::Retry { ticket: failure.ticket, at: now }),
            StatusClass::Host => {}
        }
    }

    pub(super) fn on_unreadable(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        let deliver = HealthAction::Deliver { ticket: failure.ticket, status: failure.status };
        if self.suspects.is_marked(failure.extent) {
            return out.push(deliver);
        }
        if self.suspects.is_bad(failure.extent) {
            out.push(deliver);
            return self.conclude(now, out);
        }
        if failure.retries == 0 {
            return out.push(HealthAction::Retry { ticket: failure.ticket, at: now });
        }
        out.push(HealthAction::Hold(failure.ticket));
        self.suspects.add(failure.extent);
        self.ask(now, Question::Smart, out);
    }

    pub(super) fn on_write_fault(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if self.was_reset_since(failure.since) {
            return self.on_write_fault_after_reset(now, failure, out);
        }
        let is_known = self.limits.read_only || failure.retries > 0 && self.suspects.is_bad(failure.extent);
        if is_known {
            out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        if failure.retries < self.policy.retries {
            return self.retry(now, failure, out);
        }
        out.push(HealthAction::Hold(failure.ticket));
        // Whether the block can be read tells a failing medium from a failing write.
        self.suspects.add(failure.extent);
        self.ask(now, Question::Smart, out);
    }

    /// A reset has not helped; what passes by itself has a window's time for it.
    pub(super) fn on_write_fault_after_reset(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        let rested = self.reset.is_none_or(|(_, at)| now.saturating_sub(at) >= self.policy.window);
        if !rested {
            return self.retry(now, failure, out);
        }
        out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
        self.suspects.add_write_fault(failure.extent);
        self.confirm_write_faults(now, out);
    }

    pub(super) fn confirm_write_faults(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        let faults = self.suspects.write_faults();
        let warned = self.smart.is_some_and(SmartReading::has_media_warning);
        if warned || faults >= self.policy.isolate_blocks && self.suspects.are_counted() {
            return self.isolate(now, out);
        }
        self.conclude(now, out);
    }

    pub(super) fn on_controller_failure(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        self.blame(now, Verdict::Controller);
        let often = self.failures.add(now, self.policy.window) >= self.policy.controller_failures;
        let tired = failure.retries >= self.policy.retries || failure.status.is_dnr();
        if !often && !tired {
            return self.retry(now, failure, out);
        }
        let last = self.reset.filter(|_| self.was_reset_since(failure.since)).map(|(level, _)| level);
        if last == Some(ResetLevel::Function) {
            // Nothing helps this command; others may work.
            out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        out.push(HealthAction::Hold(failure.ticket));
        let level = last.and_then(ResetLevel::next).unwrap_or(ResetLevel::Controller);
        self.reset(now, level.max(ResetLevel::Controller), out);
    }

    pub(super) fn was_reset_since(&self, submitted: Nanos) -> bool {
        self.reset.is_some_and(|(level, at)| level >= ResetLevel::Controller && at >= submitted)
    }

    pub(super) fn retry_or_deliver(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if now.saturating_sub(failure.since) < self.policy.hold {
            return self.retry(now, failure, out);
        }
        out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
        self.conclude(now, out);
    }

    /// The first retry of a command asks for what the drive knows, so that an operator sees why.
    pub(super) fn retry(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        let pause = failure.retry_delay.unwrap_or(Nanos(0)).max(self.policy.delay(failure.retries));
        out.push(HealthAction::Retry { ticket: failure.ticket, at: now.saturating_add(pause) });
        let rested = |at| now.saturating_sub(at) > self.policy.window;
        if self.asked_smart.is_none_or(rested) {
            self.asked_smart = Some(now);
            out.push(HealthAction::Ask(Question::Smart));
        }
    }

    pub(super) fn on_late(&mut self, now: Nanos, ticket: Ticket, out: &mut Vec<HealthAction>) {
        if self.state != State::Serving {
            return;
        }
        self.blame(now, Verdict::Controller);
        self.late = Some(ticket);
        self.ask(now, Question::Csts, out);
    }
}
