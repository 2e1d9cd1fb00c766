//! The way to a drive at the other end of a connection: what is done when it is lost, and when the namespace cannot be accessed for a while.
//!
//! ```text
//!              Lost                Connected          Enabled            Identified: the same drive
//!   Serving ─────────► Connecting ──────────► Enabling ──────► Identifying ─────────► Fencing
//!      ▲                 ▲   │                   │                  │                  │   │ Ended
//!      │            Tick │   ▼ AttemptFailed     ▼ AttemptFailed    ▼ AttemptFailed,   │   │
//!      │ Answered        └─ Waiting ◄───────────────────────────────┘ another drive    │   │
//!      │                     ▲   ▲                                               Lost  │   │
//!      │               Lost  │   └─────────────────────────────────────────────────────┘   │
//!      ├──────────────── Replaying ◄───────────────────────────────────────────────────────┘
//!      │                  ▲   │ NotReady
//!      │ Tick, Accessible │   ▼
//!      └── NotReady ──► Inaccessible
//! ```
//! An *outage* begins when [`LinkState::Serving`] ends and is over when a command was answered again. Commands wait meanwhile; from
//! [`LinkPolicy::fast_io_fail_tmo`] after the last sign of the other side on they fail, and attempts go on for as long as it takes. Linux's
//! hosts give that time the same name (`nvme connect --fast_io_fail_tmo`); there is no `ctrl_loss_tmo`, after which they give up for good.
//!
//! An outage that begins soon after the one before goes on with its pauses, so that a command that ends each connection is not sent in a
//! tight loop, and is told only when it lasts.
//!
//! What was in flight is sent again in the order of its submission, once the old association has ended, so that nothing is executed late.
//!
//! Left out: who asks whether the old association lives, and what connects ([`crate::nvme_tcp`], [`crate::nvme`]); several paths to one drive.

mod identity;
#[cfg(test)]
mod tests;

pub use identity::DriveIdentity;

use crate::TransportError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// For so long after an outage has begun it is tried again quickly.
const EARLY: Nanos = Nanos::from_secs(10);
/// Between attempts: the first pause, the longest while it is early, and the longest.
const FIRST_ATTEMPT_PAUSE: Nanos = Nanos::from_millis(10);
const EARLY_ATTEMPT_PAUSE: Nanos = Nanos::from_millis(25);
const LONGEST_ATTEMPT_PAUSE: Nanos = Nanos::from_secs(1);
/// How long the other side may take for an answer to an attempt: early, when it most likely has just been started, and later.
const EARLY_ANSWER: Nanos = Nanos::from_secs(1);
const LATE_ANSWER: Nanos = Nanos::from_secs(10);
/// An outage that begins within this time after the one before is the same to the operator, until it has gone on for as long.
const SETTLED: Nanos = Nanos::from_secs(5);

/// What the operator has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPolicy {
    /// Where the drive is, as the configuration has it.
    pub target: String,
    /// How long commands wait; zero: they fail at once.
    pub fast_io_fail_tmo: Nanos,
    /// It is connected to again.
    pub reconnects: bool,
}

/// See [the drawing](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// Commands are sent and answered.
    Serving,
    /// An attempt has no connection yet.
    Connecting,
    /// An attempt enables a controller.
    Enabling,
    /// An attempt asks which drive is there.
    Identifying,
    /// Connected; the association of before may still carry out requests.
    Fencing,
    /// What was in flight is sent again; nothing was answered yet.
    Replaying,
    /// The next attempt has its time.
    Waiting,
    /// Connected; the namespace is not ready, or its ANA state lets nothing through.
    Inaccessible,
}

impl LinkState {
    /// All of them.
    pub const ALL: [LinkState; 8] = [
        Self::Serving,
        Self::Connecting,
        Self::Enabling,
        Self::Identifying,
        Self::Fencing,
        Self::Replaying,
        Self::Waiting,
        Self::Inaccessible,
    ];

    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Connecting => "connecting",
            Self::Enabling => "enabling",
            Self::Identifying => "identifying",
            Self::Fencing => "fencing",
            Self::Replaying => "replaying",
            Self::Waiting => "waiting",
            Self::Inaccessible => "inaccessible",
        }
    }

    /// Whether the drawing has an arrow from here to there.
    const fn leads_to(self, next: LinkState) -> bool {
        use LinkState::{Connecting, Enabling, Fencing, Identifying, Inaccessible, Replaying, Serving, Waiting};
        match self {
            Serving => matches!(next, Connecting | Waiting | Inaccessible),
            Connecting => matches!(next, Enabling | Waiting),
            Enabling => matches!(next, Identifying | Waiting),
            Identifying => matches!(next, Fencing | Waiting),
            Fencing => matches!(next, Replaying | Waiting),
            Replaying => matches!(next, Serving | Inaccessible | Waiting),
            Waiting => matches!(next, Connecting),
            Inaccessible => matches!(next, Replaying | Waiting),
        }
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The association is lost. The other side was heard last at `heard`.
    Lost {
        /// Why.
        cause: TransportError,
        /// When it was heard.
        heard: Nanos,
    },
    /// The attempt has a connection.
    Connected,
    /// The attempt has a controller that is enabled.
    Enabled,
    /// The attempt has found this drive.
    Identified(DriveIdentity),
    /// The attempt is over without success.
    AttemptFailed(TransportError),
    /// The association of before has ended: nothing of it is carried out any more.
    Ended,
    /// A command was answered otherwise than by [`NotReady`](Self::NotReady).
    Answered,
    /// A command was answered by a status that says: later. It waits with the others.
    NotReady(TransportError),
    /// The other side says that the namespace can be accessed again.
    Accessible,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEffect {
    /// The connection is given up, and what was in flight waits.
    Release,
    /// An attempt begins; the other side may take so long for each answer.
    Connect(Nanos),
    /// The attempt's connection is the one from now on; the association of before is asked about.
    Fence,
    /// What waits is sent, the oldest first; where nothing waits, something that changes nothing.
    Replay,
    /// The oldest of what waits is sent, and the rest after an answer; where nothing waits, something that changes nothing.
    Try,
    /// What waits fails.
    Fail,
    /// The operator is told.
    Tell(LinkNotice),
}

/// What an operator is told, once an outage each; outages that follow each other closely count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkNotice {
    /// It is lost.
    Lost,
    /// It is there, and the namespace cannot be accessed.
    Inaccessible,
    /// Commands fail from now on.
    Failing,
    /// Another drive is there.
    AnotherDrive,
    /// All is well again.
    Restored,
}

/// Effects of one event at most: one to go on, two of an end and a beginning, and two notices.
pub const MOST_EFFECTS: usize = 5;

/// What becomes of a new command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is sent.
    Send,
    /// It waits.
    Hold,
    /// It fails.
    Fail,
}

/// An outage that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outage {
    /// When it was seen.
    since: Nanos,
    /// When commands begin to fail.
    fails_at: Nanos,
    /// They do.
    is_failing: bool,
    /// It was told that it has begun.
    is_told: bool,
    /// It was told that another drive is there.
    is_another_told: bool,
    attempts: u32,
    /// When the first of the outages that follow each other closely was seen; pauses become longer from there.
    row_since: Nanos,
    pause: Nanos,
    cause: TransportError,
}

/// An outage that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Before {
    attempts: u32,
    cause: TransportError,
    over_at: Nanos,
    row_since: Nanos,
    pause: Nanos,
}

/// What users see of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Its state.
    pub state: LinkState,
    /// Commands fail.
    pub is_failing: bool,
    /// For how long the outage has gone on, if there is one.
    pub out_for: Option<Nanos>,
    /// Attempts of this outage, or of the one before.
    pub attempts: u32,
    /// Outages so far, this one among them.
    pub outages: u64,
    /// What has caused this outage or kept the last attempt from success, or ended the one before.
    pub last_cause: Option<String>,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRecovery {
    policy: LinkPolicy,
    identity: DriveIdentity,
    state: LinkState,
    outage: Option<Outage>,
    /// When it is tried again: [`LinkState::Waiting`], [`LinkState::Inaccessible`].
    retry_at: Nanos,
    outages: u64,
    before: Option<Before>,
}

impl LinkRecovery {
    /// Of a drive that is connected. `is_fenced`: requests of an association of another process may still be carried out.
    pub fn new(policy: LinkPolicy, identity: DriveIdentity, is_fenced: bool) -> Self {
        let state = if is_fenced { LinkState::Fencing } else { LinkState::Serving };
        Self { policy, identity, state, outage: None, retry_at: Nanos::NEVER, outages: 0, before: None }
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Whether commands are sent, answered, and all is well.
    #[inline]
    pub fn is_serving(&self) -> bool {
        self.state == LinkState::Serving
    }

    /// Whether there is a connection over which answers may come.
    #[inline]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, LinkState::Serving | LinkState::Replaying | LinkState::Inaccessible | LinkState::Fencing)
    }

    /// What becomes of a new command.
    #[inline]
    pub fn admission(&self) -> Admission {
        match (self.state, self.is_failing()) {
            (LinkState::Serving, _) | (LinkState::Replaying, false) => Admission::Send,
            (_, false) => Admission::Hold,
            (_, true) => Admission::Fail,
        }
    }

    fn is_failing(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.is_failing)
    }

    /// When it wants a [`LinkEvent::Tick`].
    pub fn due(&self) -> Nanos {
        let Some(outage) = &self.outage else { return Nanos::NEVER };
        let fails_at = if outage.is_failing { Nanos::NEVER } else { outage.fails_at };
        let told_at = if outage.is_told { Nanos::NEVER } else { outage.since.saturating_add(SETTLED) };
        match self.state {
            LinkState::Waiting | LinkState::Inaccessible => self.retry_at.min(fails_at).min(told_at),
            _ => fails_at.min(told_at),
        }
    }

    /// What has caused the outage, or has kept the last attempt from success.
    pub fn cause(&self) -> Option<&TransportError> {
        self.outage.as_ref().map(|outage| &outage.cause)
    }

    /// What users see of it.
    pub fn status(&self, now: Nanos) -> LinkStatus {
        let outage = self.outage.as_ref();
        let (attempts, cause) = match (outage, &self.before) {
            (Some(outage), _) => (outage.attempts, Some(&outage.cause)),
            (None, Some(before)) => (before.attempts, Some(&before.cause)),
            (None, None) => (0, None),
        };
        LinkStatus {
            state: self.state,
            is_failing: self.is_failing(),
            out_for: outage.map(|outage| now.saturating_sub(outage.since)),
            attempts,
            outages: self.outages,
            last_cause: cause.map(|cause| format!("{cause}")),
        }
    }

    /// Takes an event; what follows is appended, at most [`MOST_EFFECTS`]. An event that the state does not wait for changes nothing: it is
    /// one of an attempt that was given up.
    pub fn apply(&mut self, now: Nanos, event: LinkEvent, effects: &mut Vec<LinkEffect>) {
        use LinkState::{Connecting, Enabling, Fencing, Identifying, Inaccessible, Replaying, Serving, Waiting};
        match (self.state, event) {
            (Serving | Replaying | Fencing | Inaccessible, LinkEvent::Lost { cause, heard }) => {
                self.lose(now, cause, heard, effects);
            }
            (Serving | Replaying, LinkEvent::NotReady(cause)) => self.close(now, cause, effects),
            (Connecting, LinkEvent::Connected) => self.enter(Enabling),
            (Enabling, LinkEvent::Enabled) => self.enter(Identifying),
            (Identifying, LinkEvent::Identified(found)) => self.compare(now, &found, effects),
            (Connecting | Enabling | Identifying, LinkEvent::AttemptFailed(cause)) => self.wait(now, cause),
            (Fencing, LinkEvent::Ended) => self.replay(effects),
            (Replaying, LinkEvent::Answered) => self.restore(now, effects),
            (Inaccessible, LinkEvent::Accessible) => self.try_again(LinkEffect::Replay, effects),
            (Waiting, LinkEvent::Tick) if now >= self.retry_at => self.connect(now, effects),
            // Most likely it is not ready yet, and answers each command so.
            (Inaccessible, LinkEvent::Tick) if now >= self.retry_at => self.try_again(LinkEffect::Try, effects),
            _ => {}
        }
        self.tell_late(now, effects);
        self.fail_late(now, effects);
    }

    /// The only one that sets the state.
    fn enter(&mut self, next: LinkState) {
        debug_assert!(self.state.leads_to(next), "{:?} does not lead to {next:?}", self.state);
        self.state = next;
    }

    fn lose(&mut self, now: Nanos, cause: TransportError, heard: Nanos, effects: &mut Vec<LinkEffect>) {
        effects.push(LinkEffect::Release);
        let is_first = self.begin_outage(now, cause.clone(), heard);
        if is_first {
            effects.push(LinkEffect::Tell(LinkNotice::Lost));
        }
        match is_first && self.state == LinkState::Serving && self.policy.reconnects {
            true => self.connect(now, effects),
            false => self.wait(now, cause),
        }
    }

    /// The namespace cannot be accessed.
    fn close(&mut self, now: Nanos, cause: TransportError, effects: &mut Vec<LinkEffect>) {
        if self.begin_outage(now, cause.clone(), now) {
            effects.push(LinkEffect::Tell(LinkNotice::Inaccessible));
        }
        self.retry_at = self.next_retry(now, cause);
        self.enter(LinkState::Inaccessible);
    }

    /// True if none went on, and none has just ended.
    fn begin_outage(&mut self, now: Nanos, cause: TransportError, heard: Nanos) -> bool {
        if self.outage.is_some() {
            return false;
        }
        let before = self.before.as_ref().filter(|before| now.saturating_sub(before.over_at) < SETTLED);
        let (row_since, pause) =
            before.map_or((now, Nanos(FIRST_ATTEMPT_PAUSE.get() / 2)), |before| (before.row_since, before.pause));
        let is_first = before.is_none();
        let patience = if self.policy.reconnects { self.policy.fast_io_fail_tmo } else { Nanos(0) };
        self.outages += 1;
        self.outage = Some(Outage {
            since: now,
            fails_at: heard.min(now).saturating_add(patience),
            is_failing: false,
            is_told: is_first,
            is_another_told: false,
            attempts: 0,
            row_since,
            pause,
            cause,
        });
        is_first
    }

    fn connect(&mut self, now: Nanos, effects: &mut Vec<LinkEffect>) {
        let is_early = self.outage.as_ref().is_none_or(|outage| now.saturating_sub(outage.row_since) < EARLY);
        self.count_attempt();
        effects.push(LinkEffect::Connect(if is_early { EARLY_ANSWER } else { LATE_ANSWER }));
        self.enter(LinkState::Connecting);
    }

    fn count_attempt(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.attempts = outage.attempts.saturating_add(1);
        }
    }

    fn wait(&mut self, now: Nanos, cause: TransportError) {
        let retry_at = self.next_retry(now, cause);
        self.retry_at = if self.policy.reconnects { retry_at } else { Nanos::NEVER };
        self.enter(LinkState::Waiting);
    }

    fn next_retry(&mut self, now: Nanos, cause: TransportError) -> Nanos {
        let Some(outage) = &mut self.outage else { return now };
        outage.cause = cause;
        let longest =
            if now.saturating_sub(outage.row_since) < EARLY { EARLY_ATTEMPT_PAUSE } else { LONGEST_ATTEMPT_PAUSE };
        outage.pause = Nanos(outage.pause.get() * 2).min(longest);
        now.saturating_add(outage.pause)
    }

    fn compare(&mut self, now: Nanos, found: &DriveIdentity, effects: &mut Vec<LinkEffect>) {
        let Some(difference) = self.identity.difference(found) else {
            effects.push(LinkEffect::Fence);
            return self.enter(LinkState::Fencing);
        };
        effects.push(LinkEffect::Release);
        let target = &self.policy.target;
        let cause = TransportError::Refused(format!("{target}: another drive is there: {difference}"));
        if let Some(outage) = &mut self.outage {
            // What was written is not on that one, and does not come by waiting.
            outage.fails_at = now;
            outage.is_told = true;
            if !core::mem::replace(&mut outage.is_another_told, true) {
                outage.cause = cause.clone();
                effects.push(LinkEffect::Tell(LinkNotice::AnotherDrive));
            }
        }
        self.wait(now, cause);
    }

    fn replay(&mut self, effects: &mut Vec<LinkEffect>) {
        effects.push(LinkEffect::Replay);
        self.enter(LinkState::Replaying);
    }

    fn try_again(&mut self, how: LinkEffect, effects: &mut Vec<LinkEffect>) {
        self.count_attempt();
        effects.push(how);
        self.enter(LinkState::Replaying);
    }

    fn restore(&mut self, now: Nanos, effects: &mut Vec<LinkEffect>) {
        self.retry_at = Nanos::NEVER;
        if let Some(Outage { attempts, cause, row_since, pause, is_told, .. }) = self.outage.take() {
            self.before = Some(Before { attempts, cause, over_at: now, row_since, pause });
            if is_told {
                effects.push(LinkEffect::Tell(LinkNotice::Restored));
            }
        }
        self.enter(LinkState::Serving);
    }

    /// One that follows another closely is told when it lasts.
    fn tell_late(&mut self, now: Nanos, effects: &mut Vec<LinkEffect>) {
        let lasts = |outage: &&mut Outage| !outage.is_told && now >= outage.since.saturating_add(SETTLED);
        let Some(outage) = self.outage.as_mut().filter(lasts) else { return };
        outage.is_told = true;
        let is_there = matches!(self.state, LinkState::Inaccessible);
        effects.push(LinkEffect::Tell(if is_there { LinkNotice::Inaccessible } else { LinkNotice::Lost }));
    }

    /// What waits fails from the deadline on. What is sent again is with the other side until that answers or is lost.
    fn fail_late(&mut self, now: Nanos, effects: &mut Vec<LinkEffect>) {
        let Some(outage) = self.outage.as_mut().filter(|o| now >= o.fails_at && !o.is_failing) else { return };
        (outage.is_failing, outage.is_told) = (true, true);
        effects.push(LinkEffect::Fail);
        if !outage.is_another_told {
            effects.push(LinkEffect::Tell(LinkNotice::Failing));
        }
    }

    /// What holds between events.
    ///
    /// # Panics
    /// It does not.
    pub fn check(&self) {
        let is_out = self.outage.is_some();
        match self.state {
            LinkState::Serving => assert!(!is_out, "it serves, and an outage goes on"),
            // Requests of another process are fenced without an outage.
            LinkState::Fencing | LinkState::Replaying => {}
            state => assert!(is_out, "{state:?} without an outage"),
        }
        let waits = matches!(self.state, LinkState::Waiting | LinkState::Inaccessible);
        let tries = self.policy.reconnects || self.state == LinkState::Inaccessible;
        assert!(!waits || !tries || self.retry_at != Nanos::NEVER, "it is never tried again");
        let Some(outage) = &self.outage else { return };
        assert!(
            outage.pause >= Nanos(FIRST_ATTEMPT_PAUSE.get() / 2) && outage.pause <= LONGEST_ATTEMPT_PAUSE,
            "{}",
            outage.pause
        );
    }
}
