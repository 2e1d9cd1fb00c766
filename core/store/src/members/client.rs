//! The client's side of its session.

use super::lease_timing::LeaseTiming;
use crate::SessionId;
use crate::mutant::{Mutant, Planted};
use crate::space::Epoch;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A renewal, as the machine numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenewalId(pub u64);

/// What happens to a session at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderEvent {
    /// Time has passed. The epoch of the oldest map that is held, or under which I/O is in flight; none if there is neither.
    Tick(Option<Epoch>),
    /// A request waits until all sessions have acknowledged the second epoch or a later one: that is done as soon as it can be. The first is as
    /// in `Tick`.
    Hurry(Option<Epoch>, Epoch),
    /// A renewal is in Kv; the store's epoch as it was then or before.
    Renewed(RenewalId, Epoch),
    /// There is no such session any more.
    Refused,
}

/// What the client has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderEffect {
    /// Send a renewal, through any service, that acknowledges this epoch.
    Renew(RenewalId, SessionId, Epoch),
    /// Let go of all maps that are older than this epoch, and end I/O under them.
    Forget(Epoch),
    /// The session is over: stop everything, fail what is in flight, and begin a new session. Said once.
    Stop(SessionId),
}

/// A client's session. Times are of the client's own clock, which runs while the machine sleeps.
#[derive(Clone, Debug)]
pub struct SessionHolder {
    session: SessionId,
    timing: LeaseTiming,
    until: Nanos,
    /// Renewals under way, and when each was sent.
    sent: BTreeMap<RenewalId, Nanos>,
    last: RenewalId,
    next_renewal: Nanos,
    epoch: Epoch,
    /// What the last renewal that was sent has acknowledged.
    acknowledged: Epoch,
    is_over: bool,
    planted: Planted,
}

impl SessionHolder {
    /// A session whose opening was *sent* at that time, and answered with that epoch.
    pub fn new(session: SessionId, timing: LeaseTiming, sent: Nanos, epoch: Epoch) -> Self {
        Self {
            session,
            timing,
            until: timing.holder_end(sent),
            sent: BTreeMap::new(),
            last: RenewalId(0),
            next_renewal: sent.saturating_add(timing.renewal()),
            epoch,
            acknowledged: Epoch::default(),
            is_over: false,
            planted: Planted::default(),
        }
    }

    /// The same with a planted fault.
    #[cfg(test)]
    pub(crate) fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.planted = mutant.into();
        self
    }

    /// Its number.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether the lease holds: to be asked before I/O is started, and again when its completion has been taken.
    pub fn holds(&self, now: Nanos) -> bool {
        !self.is_over && now < self.until
    }

    /// Whether a map that a service had read in that epoch may be kept: an older one may have been acknowledged as forgotten.
    pub fn accepts(&self, epoch: Epoch) -> bool {
        !self.is_over && epoch >= self.epoch
    }

    /// When the lease ends if it is not renewed.
    pub fn until(&self) -> Nanos {
        self.until
    }

    /// The epoch that the service has said last.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// When the next [`HolderEvent::Tick`] is due.
    pub fn due(&self) -> Nanos {
        self.next_renewal.min(self.until)
    }

    /// One event; adds what is to be done.
    pub fn apply(&mut self, now: Nanos, event: HolderEvent, effects: &mut Vec<HolderEffect>) {
        if self.is_over {
            return;
        }
        if !self.holds(now) {
            return self.stop(effects);
        }
        match event {
            HolderEvent::Tick(oldest) => self.tick(now, oldest, effects),
            HolderEvent::Hurry(oldest, wanted) => {
                // Worth a renewal: one that hears of the epoch, and one that acknowledges more than the last.
                let says_more = self.epoch < wanted || self.acknowledges(oldest) > self.acknowledged;
                if self.acknowledged < wanted && says_more && self.sent.is_empty() {
                    self.renew(now, oldest, effects);
                }
            }
            HolderEvent::Renewed(id, epoch) => {
                let Some(sent) = self.sent.remove(&id) else { return };
                let counted = if self.planted.is(Mutant::LeaseFromAnswer) { now } else { sent };
                self.until = self.until.max(self.timing.holder_end(counted));
                self.sent.retain(|other, _| *other > id);
                if epoch > self.epoch {
                    self.epoch = epoch;
                    effects.push(HolderEffect::Forget(epoch));
                    // The sooner it is acknowledged, the sooner blocks are free again.
                    self.next_renewal = self.next_renewal.min(now.saturating_add(Nanos(self.timing.renewal().0 / 4)));
                }
            }
            HolderEvent::Refused => self.stop(effects),
        }
    }

    fn tick(&mut self, now: Nanos, oldest: Option<Epoch>, effects: &mut Vec<HolderEffect>) {
        if now >= self.next_renewal {
            self.renew(now, oldest, effects);
        }
    }

    /// The epoch that can be acknowledged.
    fn acknowledges(&self, oldest: Option<Epoch>) -> Epoch {
        let held = if self.planted.is(Mutant::AcknowledgeBeforeForget) { None } else { oldest };
        held.map_or(self.epoch, |oldest| oldest.min(self.epoch))
    }

    fn renew(&mut self, now: Nanos, oldest: Option<Epoch>, effects: &mut Vec<HolderEffect>) {
        self.last.0 += 1;
        self.sent.insert(self.last, now);
        self.next_renewal = now.saturating_add(self.timing.renewal());
        self.acknowledged = self.acknowledges(oldest);
        effects.push(HolderEffect::Renew(self.last, self.session, self.acknowledged));
    }

    fn stop(&mut self, effects: &mut Vec<HolderEffect>) {
        self.is_over = true;
        effects.push(HolderEffect::Stop(self.session));
    }
}
