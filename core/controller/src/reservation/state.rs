//! The reservations of one namespace as a machine of its own (base 2.0, 8.19): who is registered, who holds what, and what each
//! command makes of that.
//!
//! ```text
//!  stranger ──register──▶ registrant ──acquire──▶ holder        preempt: others become strangers, their reservation goes over
//!     ▲                    │     ▲                  │            clear: everybody becomes a stranger
//!     └────unregister──────┘     └──────release─────┘
//! ```

use alloc::vec::Vec;
use weir_spec::nvme::reservation::{
    AcquireAction, NotificationType, RegisterAction, ReleaseAction, ReservationDw10, ReservationType, cptpl,
};

/// Registrants that a namespace has at the most.
pub(crate) const REGISTRANTS: usize = 1024;

/// Whose a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A host, by its identifier.
    Host([u8; 16]),
    /// A controller whose host has none: nobody else is this host, and it is forgotten when its controller is reset.
    Controller(u16),
    /// A door that knows no reservations: always a stranger.
    Nobody,
}

/// What somebody is for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRole {
    /// Not registered.
    Stranger,
    /// Registered, without the reservation.
    Registrant,
    /// The reservation is his.
    Holder,
}

/// What a command does to a namespace, as far as reservations go (base 2.0, 8.19, Command Behavior in the Presence of a
/// Reservation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Read, Compare, Verify, Zone Management Receive, Security Receive.
    Read,
    /// Write and everything that changes something; Flush; Copy, whose destination decides.
    Write,
}

/// Whether a command may run under a reservation of that type. The same table as SPDK's `nvmf_ns_reservation_request_check`
/// (lib/nvmf/ctrlr.c, with its unit tests), which has Flush, Write Uncorrectable, Write Zeroes and Dataset Management among the writes.
pub(crate) fn permits(rtype: ReservationType, standing: HostRole, group: Group) -> bool {
    match (rtype, standing, group) {
        (_, HostRole::Holder, _) => true,
        (ReservationType::WRITE_EXCLUSIVE, _, group) => group == Group::Read,
        (ReservationType::WRITE_EXCLUSIVE_REGISTRANTS | ReservationType::WRITE_EXCLUSIVE_ALL, standing, group) => {
            group == Group::Read || standing == HostRole::Registrant
        }
        (ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS | ReservationType::EXCLUSIVE_ACCESS_ALL, standing, _) => {
            standing == HostRole::Registrant
        }
        _ => false,
    }
}

/// Whether every registrant holds it.
const fn is_all(rtype: ReservationType) -> bool {
    matches!(rtype, ReservationType::WRITE_EXCLUSIVE_ALL | ReservationType::EXCLUSIVE_ACCESS_ALL)
}

/// A registered host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub who: Who,
    pub key: u64,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationError {
    /// Reservation Conflict.
    Conflict,
    /// Invalid Field in Command.
    Invalid,
    /// There are too many registrants.
    Full,
}

/// What follows from a command that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReservationEffects {
    /// Who is to be told what.
    pub notices: Vec<(Who, NotificationType)>,
    /// Whose commands are to be aborted.
    pub aborts: Vec<Who>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    /// Counts what happened to registrations.
    pub generation: u32,
    /// In the order in which they came.
    pub registrants: Vec<Registrant>,
    /// Who holds what. Where all registrants hold it, who asked for it or the oldest that is left.
    pub held: Option<(Who, ReservationType)>,
    /// It persists through power loss.
    pub ptpl: bool,
}

impl Reservations {
    /// Whether there is nothing to remember.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn registrant(&self, who: Who) -> Option<&Registrant> {
        self.registrants.iter().find(|r| r.who == who)
    }

    /// What somebody is here.
    pub fn standing(&self, who: Who) -> HostRole {
        match (self.registrant(who), self.held) {
            (None, _) => HostRole::Stranger,
            (Some(_), Some((holder, rtype))) if holder == who || is_all(rtype) => HostRole::Holder,
            _ => HostRole::Registrant,
        }
    }

    /// Whether somebody's command conflicts with the reservation.
    pub fn conflicts(&self, who: Who, group: Group) -> bool {
        self.held.is_some_and(|(_, rtype)| !permits(rtype, self.standing(who), group))
    }

    /// The power was gone.
    pub fn power_loss(&mut self) {
        if !self.ptpl {
            *self = Self::default();
        }
    }

    /// The controller of a host without an identifier is reset, or gone.
    pub fn forget(&mut self, who: Who) {
        if self.registrant(who).is_some() {
            self.remove(|r| r.who == who);
        }
    }

    /// Reservation Register (base 2.0, 7.3): current and new key.
    pub fn register(
        &mut self,
        who: Who,
        dw10: ReservationDw10,
        keys: (u64, u64),
    ) -> Result<ReservationEffects, ReservationError> {
        let (current, new) = keys;
        let ignore = dw10.iekey() == 1;
        if who == Who::Nobody {
            return Err(ReservationError::Conflict);
        }
        if dw10.cptpl() == cptpl::RESERVED {
            return Err(ReservationError::Invalid);
        }
        let action = RegisterAction(dw10.action() as u8);
        let known = self.registrant(who).map(|r| r.key);
        let mut outcome = ReservationEffects::default();
        match (action, known) {
            (RegisterAction::REGISTER | RegisterAction::REPLACE, _) if new == 0 => {
                return Err(ReservationError::Invalid);
            }
            (RegisterAction::REGISTER, Some(key)) if key == new => {}
            (RegisterAction::REGISTER, Some(_)) => return Err(ReservationError::Conflict),
            (RegisterAction::REGISTER, None) => self.add(who, new)?,
            (RegisterAction::UNREGISTER, Some(key)) if ignore || key == current => {
                let held = self.held;
                self.remove(|r| r.who == who);
                let released = held.filter(|_| self.held.is_none()).map(|(_, rtype)| rtype);
                let told =
                    [ReservationType::WRITE_EXCLUSIVE_REGISTRANTS, ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS];
                if released.is_some_and(|rtype| told.contains(&rtype)) {
                    self.tell_others(who, NotificationType::RESERVATION_RELEASED, &mut outcome);
                }
            }
            (RegisterAction::REPLACE, Some(key)) if ignore || key == current => {
                self.registrants.iter_mut().filter(|r| r.who == who).for_each(|r| r.key = new);
            }
            (RegisterAction::REPLACE, None) if ignore => self.add(who, new)?,
            (RegisterAction::UNREGISTER | RegisterAction::REPLACE, _) => return Err(ReservationError::Conflict),
            _ => return Err(ReservationError::Invalid),
        }
        match dw10.cptpl() {
            cptpl::CLEAR => self.ptpl = false,
            cptpl::PERSIST => self.ptpl = true,
            _ => {}
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(outcome)
    }

    fn add(&mut self, who: Who, key: u64) -> Result<(), ReservationError> {
        if self.registrants.len() >= REGISTRANTS {
            return Err(ReservationError::Full);
        }
        self.registrants.push(Registrant { who, key });
        Ok(())
    }

    /// Takes registrants out, and what they held; answers who they were.
    fn remove(&mut self, mut which: impl FnMut(&Registrant) -> bool) -> Vec<Who> {
        let mut gone = Vec::new();
        self.registrants.retain(|r| {
            let leaves = which(r);
            gone.extend(leaves.then_some(r.who));
            !leaves
        });
        if let Some((holder, rtype)) = self.held.filter(|(holder, _)| gone.contains(holder)) {
            let heir = self.registrants.first().filter(|_| is_all(rtype));
            debug_assert!(heir.is_none_or(|heir| heir.who != holder));
            self.held = heir.map(|heir| (heir.who, rtype));
        }
        gone
    }

    fn tell_others(&self, who: Who, what: NotificationType, outcome: &mut ReservationEffects) {
        outcome.notices.extend(self.registrants.iter().filter(|r| r.who != who).map(|r| (r.who, what)));
    }

    /// Whether a command of Acquire or Release may say more: its sender is registered with the key that it names.
    fn admit(&self, who: Who, dw10: ReservationDw10, current: u64) -> Result<(), ReservationError> {
        // IEKEY is Register's alone (RESCAP bit 7).
        if dw10.iekey() == 1 {
            return Err(ReservationError::Invalid);
        }
        match self.registrant(who) {
            Some(r) if r.key == current => Ok(()),
            _ => Err(ReservationError::Conflict),
        }
    }

    /// Reservation Acquire (base 2.0, 7.2): current key and the key to preempt.
    pub fn acquire(
        &mut self,
        who: Who,
        dw10: ReservationDw10,
        keys: (u64, u64),
    ) -> Result<ReservationEffects, ReservationError> {
        let (current, preempted) = keys;
        let rtype = ReservationType(dw10.rtype() as u8);
        let action = AcquireAction(dw10.action() as u8);
        if rtype.name().is_none() || action.name().is_none() {
            return Err(ReservationError::Invalid);
        }
        self.admit(who, dw10, current)?;
        if action == AcquireAction::ACQUIRE {
            return match self.held {
                None => {
                    self.held = Some((who, rtype));
                    Ok(ReservationEffects::default())
                }
                Some((_, held)) if held == rtype && self.standing(who) == HostRole::Holder => {
                    Ok(ReservationEffects::default())
                }
                Some(_) => Err(ReservationError::Conflict),
            };
        }
        let mut outcome = ReservationEffects::default();
        let gone = self.preempt(who, rtype, preempted, &mut outcome)?;
        outcome.notices.extend(gone.iter().map(|who| (*who, NotificationType::REGISTRATION_PREEMPTED)));
        if action == AcquireAction::PREEMPT_AND_ABORT {
            outcome.aborts = gone;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(outcome)
    }

    /// Takes out whoever has the key, and takes over what they held (base 2.0, 8.19.7); answers who else is no registrant now.
    fn preempt(
        &mut self,
        who: Who,
        rtype: ReservationType,
        key: u64,
        outcome: &mut ReservationEffects,
    ) -> Result<Vec<Who>, ReservationError> {
        let holder_key = self.held.and_then(|(holder, _)| self.registrant(holder)).map(|r| r.key);
        let mut gone = match self.held {
            Some((_, held)) if is_all(held) && key == 0 => {
                let gone = self.remove(|r| r.who != who);
                self.held = Some((who, rtype));
                gone
            }
            _ if key == 0 => return Err(ReservationError::Invalid),
            Some((_, held)) if !is_all(held) && holder_key == Some(key) => {
                let gone = self.remove(|r| r.key == key && r.who != who);
                self.held = Some((who, rtype));
                if held != rtype {
                    self.tell_others(who, NotificationType::RESERVATION_RELEASED, outcome);
                }
                gone
            }
            _ if self.registrants.iter().any(|r| r.key == key) => self.remove(|r| r.key == key),
            _ => return Err(ReservationError::Conflict),
        };
        gone.retain(|w| *w != who);
        Ok(gone)
    }

    /// Reservation Release (base 2.0, 7.4): current key.
    pub fn release(
        &mut self,
        who: Who,
        dw10: ReservationDw10,
        current: u64,
    ) -> Result<ReservationEffects, ReservationError> {
        let action = ReleaseAction(dw10.action() as u8);
        if action.name().is_none() {
            return Err(ReservationError::Invalid);
        }
        self.admit(who, dw10, current)?;
        let mut outcome = ReservationEffects::default();
        if action == ReleaseAction::CLEAR {
            self.tell_others(who, NotificationType::RESERVATION_PREEMPTED, &mut outcome);
            self.registrants.clear();
            self.held = None;
            self.generation = self.generation.wrapping_add(1);
            return Ok(outcome);
        }
        // What is not his he cannot release; that is no error.
        let Some((_, held)) = self.held.filter(|_| self.standing(who) == HostRole::Holder) else { return Ok(outcome) };
        if u32::from(held.0) != dw10.rtype() {
            return Err(ReservationError::Invalid);
        }
        self.held = None;
        if !matches!(held, ReservationType::WRITE_EXCLUSIVE | ReservationType::EXCLUSIVE_ACCESS) {
            self.tell_others(who, NotificationType::RESERVATION_RELEASED, &mut outcome);
        }
        Ok(outcome)
    }

    /// The invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert!(self.registrants.len() <= REGISTRANTS);
        for (i, r) in self.registrants.iter().enumerate() {
            assert!(r.key != 0 && r.who != Who::Nobody, "a registrant has a key");
            assert!(self.registrants[..i].iter().all(|o| o.who != r.who), "a host is registered once");
        }
        if let Some((holder, rtype)) = self.held {
            assert!(self.registrant(holder).is_some(), "the holder is registered");
            assert!(rtype.name().is_some(), "a reservation has a type");
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
