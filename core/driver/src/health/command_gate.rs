//! Whether commands are sent, wait or fail, and the invariants of a diagnosis.

use super::{Access, Awaited, FailReason, Gate, Health, HealthAction, Removal, State, Step};
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Health {
    /// How long commands wait.
    pub(super) fn patience(&self) -> Nanos {
        match (self.state, self.policy.removal) {
            (State::Waiting(Awaited::Drive), Removal::Error) => Nanos(0),
            (State::Waiting(Awaited::Drive), Removal::Hold(time)) => time,
            _ => self.policy.hold,
        }
    }

    pub(super) fn wanted_gate(&self, now: Nanos) -> Gate {
        let waited = self.stopped.map_or(Nanos(0), |since| now.saturating_sub(since));
        match self.state {
            _ if self.suspects.is_condemned() => Gate::Failing(FailReason::Media),
            State::Serving => Gate::Open,
            State::OtherDrive => Gate::Failing(FailReason::Path),
            State::Waiting(Awaited::Path) if self.is_path_lost => Gate::Failing(FailReason::Path),
            // Once commands fail, they fail until the drive serves: a host has been told.
            _ if matches!(self.gate, Gate::Failing(_)) => Gate::Failing(FailReason::Path),
            _ if waited >= self.patience() => Gate::Failing(FailReason::Path),
            _ => Gate::Paused,
        }
    }

    pub(super) fn tell_gate(&mut self, now: Nanos, out: &mut Vec<HealthAction>) {
        if self.state == State::Serving {
            self.stopped = None;
        } else {
            self.stopped.get_or_insert(now);
        }
        let gate = self.wanted_gate(now);
        if gate == self.gate {
            return;
        }
        self.gate = gate;
        out.push(HealthAction::Gate(gate));
        if matches!(gate, Gate::Failing(_)) && self.state != State::Isolated && self.state != State::OtherDrive {
            self.step(now, Step::Failed);
            out.extend(self.report.clone().map(HealthAction::Report));
        }
    }

    /// States the invariants.
    ///
    /// # Panics
    /// One does not hold.
    pub fn check(&self) {
        assert_eq!(self.state == State::Serving, self.gate == Gate::Open, "{:?} {:?}", self.state, self.gate);
        assert_eq!(self.state == State::Serving, self.stopped.is_none(), "{:?}", self.state);
        assert_eq!(self.state.has_deadline(), self.deadline != Nanos::NEVER, "{:?} {:?}", self.state, self.deadline);
        if self.state == State::Isolated {
            assert!(self.suspects.is_condemned(), "isolated without a reason");
        }
        if self.gate == Gate::Paused {
            assert!(self.report.is_some(), "commands wait and no report says why: {:?}", self.state);
            assert!(self.due() != Nanos::NEVER, "commands wait for ever: {:?}", self.state);
        }
        self.suspects.check();
    }
}

/// The status of a command that is not sent, if the gate is closed for good.
pub fn refusal(gate: Gate, access: Access) -> Option<Status> {
    match gate {
        Gate::Failing(reason) => Some(reason.status(access)),
        Gate::Open | Gate::Paused => None,
    }
}
