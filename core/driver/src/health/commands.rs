//! What becomes of commands that have failed or were not answered.

use super::{
    Access, Evidence, Failure, Gate, Health, HealthAction, Question, ResetLevel, State, StatusClass, Ticket, Verdict,
};
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// Failures of one command, in retries, for which all resets are tried.
const RESETS: u32 = 4;
/// Failures of one command, in retries, after which it is its block that fails, where others can be read.
const VERIFIED_RETRIES: u32 = 2;

impl Health {
    pub(super) fn on_failed(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if !self.policy.recovers {
            return self.on_final_failure(now, failure, out);
        }
        let class = StatusClass::of(failure.status).of_access(failure.access);
        let deliver = HealthAction::Deliver { ticket: failure.ticket, status: failure.status };
        if class == StatusClass::Host {
            return out.push(deliver);
        }
        if let Gate::Failing(reason) = self.gate {
            let status = reason.status(failure.access);
            return out.push(HealthAction::Deliver { ticket: failure.ticket, status });
        }
        if self.state == State::Serving && now.saturating_sub(failure.since) >= self.policy.hold.max(self.policy.window)
        {
            // It has had its time.
            out.push(deliver);
            return self.conclude(now, out);
        }
        if self.state != State::Serving {
            // What lasts comes again when the command is sent again.
            if class == StatusClass::UnreadableMedia && failure.retries > 0 && !self.is_marked(failure.extent) {
                self.suspects.add(failure.extent, StatusClass::of(failure.status));
            }
            return out.push(HealthAction::Hold(failure.ticket));
        }
        let is_not_ready = failure.status.same_code(Status::NAMESPACE_NOT_READY);
        match class {
            // The drive says itself that it is of no use.
            StatusClass::Retry | StatusClass::Aborted if failure.status.is_dnr() => out.push(deliver),
            StatusClass::UnreadableMedia => self.on_unreadable(now, failure, out),
            StatusClass::WriteFault => self.on_write_fault(now, failure, out),
            StatusClass::Controller => self.on_controller_failure(now, failure, out),
            StatusClass::Namespace if failure.status.is_dnr() && (failure.retries > 0 || is_not_ready) => {
                // It is not ready for good, or was looked at, and the command cannot be carried out all the same.
                out.push(deliver);
                self.conclude(now, out);
            }
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
            StatusClass::Aborted => {
                let at = now.saturating_add(self.policy.delay(failure.retries));
                out.push(HealthAction::Retry { ticket: failure.ticket, at });
            }
            StatusClass::Host | StatusClass::Denied => {}
        }
    }

    /// Nothing can be done about it but to tell it once.
    fn on_final_failure(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
        let verdict = match StatusClass::of(failure.status) {
            StatusClass::UnreadableMedia
                if !self.is_marked(failure.extent) && !self.suspects.is_bad(failure.extent) =>
            {
                self.suspects.believe(now, failure.extent);
                Verdict::BadBlocks
            }
            StatusClass::WriteFault | StatusClass::ReadOnly if !self.limits.read_only => {
                self.limits.read_only = true;
                Verdict::ReadOnly
            }
            _ if failure.status.same_code(Status::CAPACITY_EXCEEDED) && !self.limits.full => {
                self.limits.full = true;
                Verdict::Full
            }
            StatusClass::Retry => Verdict::Busy,
            _ => return,
        };
        self.blame(now, verdict);
        self.report.iter_mut().for_each(|report| report.see_once(now, Evidence::Failed(failure)));
        self.conclude(now, out);
    }

    pub(super) fn on_unreadable(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        let deliver = HealthAction::Deliver { ticket: failure.ticket, status: failure.status };
        if self.is_marked(failure.extent) || self.suspects.is_bad(failure.extent) {
            return out.push(deliver);
        }
        if failure.retries == 0 {
            return out.push(HealthAction::Retry { ticket: failure.ticket, at: now });
        }
        out.push(HealthAction::Hold(failure.ticket));
        self.suspects.add(failure.extent, StatusClass::of(failure.status));
        self.ask(now, Question::Smart, out);
    }

    pub(super) fn on_write_fault(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if self.was_reset_since(failure.since) {
            return self.on_write_fault_after_reset(now, failure, out);
        }
        let is_bad = self.suspects.is_bad(failure.extent) || self.suspects.is_write_faulty(failure.extent);
        self.ask_smart_beside(now, out);
        if self.limits.read_only || self.cannot_write || is_bad && failure.retries > 0 {
            out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        if failure.retries < self.policy.retries {
            return self.retry(now, failure, out);
        }
        out.push(HealthAction::Hold(failure.ticket));
        // Whether the block can be read tells a failing medium from a failing write.
        self.suspects.add_unread(failure.extent);
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

    /// A drive that cannot be written is one to be read from: what it has is not given up.
    pub(super) fn confirm_write_faults(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        let many = self.suspects.write_faults() >= self.policy.isolate_blocks;
        let is_new = many && !self.cannot_write;
        self.cannot_write = many;
        if !many {
            self.blame(now, Verdict::BadBlocks);
        } else if is_new {
            self.blame(now, Verdict::ReadOnly);
        }
        self.conclude(now, out);
    }

    pub(super) fn on_controller_failure(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if self.is_known_to_fail(failure) {
            return out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
        }
        self.blame(now, Verdict::Controller);
        let often = self.failures.add(now, self.policy.window) >= self.policy.controller_failures;
        let tired = failure.retries >= self.policy.retries || failure.status.is_dnr();
        if !often && !tired || self.rests_from_resets(now) {
            return self.retry(now, failure, out);
        }
        let is_later = !self.was_reset_since(failure.since);
        let greatest = self.reset.filter(|_| !is_later).map(|(level, _)| level);
        if greatest == Some(ResetLevel::Function) && failure.retries >= RESETS * self.policy.retries {
            // Nothing helps this command; others may work.
            self.spend_resets(now);
            out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        if !is_later || failure.access == Access::Read && self.has_been_verified(now) {
            return self.blame_block(now, failure, out);
        }
        out.push(HealthAction::Hold(failure.ticket));
        self.reset(now, ResetLevel::Controller, out);
    }

    /// The controller fails at a command again after a reset, or has lately failed at other blocks for good: is it the block's fault? Then
    /// other blocks can be read.
    fn blame_block(&mut self, now: Nanos, failure: Failure, out: &mut Vec<HealthAction>) {
        if self.others_work.is_some_and(|at| at >= failure.since) {
            if failure.retries < VERIFIED_RETRIES * self.policy.retries {
                return self.retry(now, failure, out);
            }
            if failure.access == Access::Write {
                self.suspects.add_write_fault(failure.extent);
                self.blame(now, Verdict::BadBlocks);
            }
            out.push(HealthAction::Deliver { ticket: failure.ticket, status: failure.status });
            return self.conclude(now, out);
        }
        out.push(HealthAction::Hold(failure.ticket));
        match failure.access {
            Access::Read => self.suspects.add(failure.extent, StatusClass::Controller),
            Access::Write => self.suspects.add_unread(failure.extent),
            Access::Other => {}
        }
        self.suspects.want_control();
        self.ask(now, Question::Smart, out);
    }

    /// Whether resets have lately not helped, so that the next ones have time: commands that always fail must not stop all others.
    fn rests_from_resets(&self, now: Nanos) -> bool {
        now < self.resets_rest_until
    }

    /// Each time they rest for twice as long, until they have rested for long enough.
    fn spend_resets(&mut self, now: Nanos) {
        let forgotten = now.saturating_sub(self.resets_rest_until) > self.policy.credit;
        let doubled = if forgotten { Nanos(0) } else { Nanos(self.resets_rest.0 * 2) };
        self.resets_rest = doubled.clamp(self.policy.window, self.policy.credit);
        self.resets_rest_until = now.saturating_add(self.resets_rest);
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
        self.ask_smart_beside(now, out);
    }

    /// The drive is asked while commands go on.
    fn ask_smart_beside(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
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
