//! Disturbances as the operator hears of them: each has a number, and each thing that is done about it is told once.
//!
//! ```text
//!   Health ── gate, resets, reports ──► Episodes ── EpisodeEvent ──► log, events, metrics, the operator's command
//! ```
//! A drive that is disturbed again and again would fill the log: after [`EPISODE_BURST`] disturbances within [`EPISODE_WINDOW`], those that pass by themselves are
//! counted and not told until the window is over. One after which commands fail is always told.

use super::action::{FailReason, Gate};
use super::evidence::Evidence;
use super::report::{HealthReport, Verdict};
use alloc::vec::Vec;
use weir_units::Nanos;

/// Disturbances that are told within a [`EPISODE_WINDOW`].
pub const EPISODE_BURST: u32 = 8;
/// How long disturbances are counted for [`EPISODE_BURST`].
pub const EPISODE_WINDOW: Nanos = Nanos::from_secs(60);
/// Events of one [`Episodes::observe`] at most.
pub const MOST_EVENTS: usize = 4;
/// Verdicts there are.
const VERDICTS: usize = Verdict::ALL.len();

/// What was done about a disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EpisodeAction {
    /// Commands wait from now on.
    Pause,
    /// The drive is being reset, at whatever level.
    Reset,
    /// Commands that have waited are sent.
    Replay,
    /// Commands fail, until the drive is back.
    Fail,
    /// Commands fail for good: the media have failed.
    Isolate,
    /// Nothing: it serves, slower than its model.
    Slow,
    /// Over: the drive serves.
    Healthy,
}

impl EpisodeAction {
    /// The word for it in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            EpisodeAction::Pause => "pause",
            EpisodeAction::Reset => "reset",
            EpisodeAction::Replay => "replay",
            EpisodeAction::Fail => "fail",
            EpisodeAction::Isolate => "isolate",
            EpisodeAction::Slow => "slow",
            EpisodeAction::Healthy => "healthy",
        }
    }

    /// Whether nothing follows in the same disturbance by itself.
    pub const fn is_end(self) -> bool {
        matches!(self, EpisodeAction::Isolate | EpisodeAction::Slow | EpisodeAction::Healthy)
    }
}

/// One thing that the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeEvent {
    /// The disturbance's number, from 1 on; the drive's own.
    pub episode: u64,
    /// What was done.
    pub action: EpisodeAction,
    /// What is wrong, as far as is known.
    pub verdict: Verdict,
    /// The first piece of evidence, and the last one.
    pub evidence: Vec<Evidence>,
    /// Since the disturbance began.
    pub lasted: Nanos,
    /// For how long commands have waited or failed, where they go on with this event.
    pub pause: Option<Nanos>,
    /// Disturbances before this one that were not told.
    pub untold: u32,
}

/// Disturbances that have ended with a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictCount {
    /// The verdict.
    pub verdict: Verdict,
    /// How many.
    pub count: u64,
}

/// What the diagnosis is like after it has taken evidence.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The gate.
    pub gate: Gate,
    /// A reset was wanted meanwhile.
    pub is_reset: bool,
    /// The disturbance that goes on.
    pub current: Option<&'a HealthReport>,
    /// The one that was reported meanwhile.
    pub reported: Option<&'a HealthReport>,
}

/// The disturbance that goes on.
#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Nanos,
    verdict: Verdict,
    /// The first piece of evidence, and the last one.
    first: Option<Evidence>,
    last: Option<Evidence>,
    is_told: bool,
    /// What was told of it.
    done: [bool; EpisodeAction::Healthy as usize + 1],
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Episodes {
    /// Of the last one.
    number: u64,
    open: Option<Episode>,
    gate: Gate,
    /// Since then commands wait or fail.
    stopped: Option<Nanos>,
    last_pause: Option<Nanos>,
    counts: [u64; VERDICTS],
    /// Disturbances that were told since then.
    window: Nanos,
    told: u32,
    untold: u32,
}

impl Episodes {
    /// Of a drive that serves, whose last disturbance had that number; 0: it had none.
    pub fn new(number: u64) -> Self {
        Episodes {
            number,
            open: None,
            gate: Gate::Open,
            stopped: None,
            last_pause: None,
            counts: [0; VERDICTS],
            window: Nanos(0),
            told: 0,
            untold: 0,
        }
    }

    /// Numbers go on after this one, if none was given yet.
    pub fn go_on_after(&mut self, number: u64) {
        if self.open.is_none() {
            self.number = self.number.max(number);
        }
    }

    /// How many disturbances have ended with each verdict, told or not; verdicts that none had are left out.
    pub fn counts(&self) -> impl Iterator<Item = VerdictCount> + '_ {
        let counts = Verdict::ALL.into_iter().zip(self.counts);
        counts.map(|(verdict, count)| VerdictCount { verdict, count }).filter(|of| of.count > 0)
    }

    /// For how long commands have waited or failed, the last time that they did and then went on.
    pub fn last_pause(&self) -> Option<Nanos> {
        self.last_pause
    }

    /// Takes what the diagnosis is like now; appends what is to be told, at most [`MOST_EVENTS`].
    pub fn observe(&mut self, now: Nanos, seen: Observation<'_>, out: &mut Vec<EpisodeEvent>) {
        let before = core::mem::replace(&mut self.gate, seen.gate);
        if let Some(report) = seen.reported.or(seen.current) {
            self.follow(now, report);
        }
        if before != seen.gate {
            self.pass_gate(now, before, seen.gate, out);
        }
        if seen.is_reset {
            self.tell(now, EpisodeAction::Reset, None, out);
        }
        match seen.reported {
            Some(report) if report.ended.is_some() => self.end(now, report.verdict, out),
            _ => {}
        }
    }

    /// Begins an episode with the first evidence, and keeps up with what is known of it.
    fn follow(&mut self, now: Nanos, report: &HealthReport) {
        if self.open.is_none() {
            self.number += 1;
            let (began, verdict) = (report.began, report.verdict);
            let done = [false; EpisodeAction::Healthy as usize + 1];
            self.open = Some(Episode { began, verdict, first: None, last: None, is_told: self.may_tell(now), done });
        }
        if let Some(open) = &mut self.open {
            open.verdict = report.verdict;
            open.first = report.seen.first().map(|seen| seen.evidence);
            open.last = report.seen.last().filter(|_| report.seen.len() > 1).map(|seen| seen.evidence);
        }
    }

    /// Whether one more may be told in this window.
    fn may_tell(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.window) >= EPISODE_WINDOW {
            (self.window, self.told) = (now, 0);
        }
        let may = self.told < EPISODE_BURST;
        self.told += u32::from(may);
        may
    }

    fn pass_gate(&mut self, now: Nanos, before: Gate, after: Gate, out: &mut Vec<EpisodeEvent>) {
        if before == Gate::Open {
            self.stopped = Some(now);
        }
        match after {
            Gate::Paused => self.tell(now, EpisodeAction::Pause, None, out),
            Gate::Failing(FailReason::Path) => self.tell(now, EpisodeAction::Fail, None, out),
            Gate::Failing(FailReason::Media) => self.tell(now, EpisodeAction::Isolate, None, out),
            Gate::Open => {
                let pause = self.stopped.take().map(|since| now.saturating_sub(since));
                self.last_pause = pause;
                self.tell(now, EpisodeAction::Replay, pause, out);
            }
        }
    }

    fn end(&mut self, now: Nanos, verdict: Verdict, out: &mut Vec<EpisodeEvent>) {
        self.counts[verdict as usize] += 1;
        match (self.gate, verdict) {
            (Gate::Failing(_), _) => {}
            (_, Verdict::Slow) => self.tell(now, EpisodeAction::Slow, None, out),
            _ => {
                let pause = self.last_pause.filter(|_| self.has(EpisodeAction::Replay));
                self.tell(now, EpisodeAction::Healthy, pause, out);
            }
        }
        if self.open.take().is_some_and(|open| !open.is_told) {
            self.untold = self.untold.saturating_add(1);
        }
    }

    fn has(&self, action: EpisodeAction) -> bool {
        self.open.is_some_and(|open| open.done[action as usize])
    }

    /// Tells it unless it was told in this disturbance.
    fn tell(&mut self, now: Nanos, action: EpisodeAction, pause: Option<Nanos>, out: &mut Vec<EpisodeEvent>) {
        let Some(open) = &mut self.open else { return };
        let fails = matches!(action, EpisodeAction::Fail | EpisodeAction::Isolate);
        if core::mem::replace(&mut open.done[action as usize], true) {
            return;
        }
        open.is_told |= fails;
        if !open.is_told {
            return;
        }
        out.push(EpisodeEvent {
            episode: self.number,
            action,
            verdict: open.verdict,
            evidence: open.first.into_iter().chain(open.last).collect(),
            lasted: now.saturating_sub(open.began),
            pause,
            untold: core::mem::take(&mut self.untold),
        });
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        assert!(self.told <= EPISODE_BURST, "told {} disturbances in a window", self.told);
        assert_eq!(self.gate != Gate::Open, self.stopped.is_some(), "commands have stopped where the gate is not open");
        let counted: u64 = self.counts.iter().sum();
        assert!(self.open.is_none() || self.number > 0, "an episode has a number");
        assert!(u64::from(self.untold) <= counted, "untold ones have ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{HealthAction, report::Seen};
    use alloc::vec;

    fn report(verdict: Verdict, began: Nanos, ended: Option<Nanos>) -> HealthReport {
        let mut report = HealthReport::begin(began);
        report.blame(verdict);
        report.ended = ended;
        report.seen = vec![Seen { at: began, evidence: Evidence::LinkLost }];
        report
    }

    fn quiet(gate: Gate) -> Observation<'static> {
        Observation { gate, is_reset: false, current: None, reported: None }
    }

    /// A disturbance that passes, from `at` on, with a pause of 2 s.
    fn passes(episodes: &mut Episodes, at: Nanos) -> Vec<EpisodeEvent> {
        let mut told = Vec::new();
        let open = report(Verdict::Controller, at, None);
        let mut see = |after: u64, seen: Observation<'_>| {
            episodes.observe(at.saturating_add(Nanos::from_secs(after)), seen, &mut told);
            episodes.check();
        };
        see(0, Observation { is_reset: true, current: Some(&open), ..quiet(Gate::Paused) });
        see(1, Observation { is_reset: true, current: Some(&open), ..quiet(Gate::Paused) });
        let over = report(Verdict::Controller, at, Some(at.saturating_add(Nanos::from_secs(2))));
        see(2, Observation { reported: Some(&over), ..quiet(Gate::Open) });
        told
    }

    #[test]
    fn a_pause_is_told_from_its_beginning_to_its_end() {
        let mut episodes = Episodes::new(6);
        let told = passes(&mut episodes, Nanos::from_secs(100));
        let actions: Vec<EpisodeAction> = told.iter().map(|event| event.action).collect();
        use EpisodeAction::*;
        assert_eq!(actions, [Pause, Reset, Replay, Healthy], "each once, however many resets there were");
        assert!(told.iter().all(|event| event.episode == 7 && event.verdict == Verdict::Controller), "{told:?}");
        assert_eq!(told[0].evidence, [Evidence::LinkLost]);
        let [.., replay, healthy] = &told[..] else { panic!("{told:?}") };
        assert_eq!((replay.pause, healthy.pause), (Some(Nanos::from_secs(2)), Some(Nanos::from_secs(2))));
        assert_eq!(healthy.lasted, Nanos::from_secs(2));
        assert_eq!(episodes.last_pause(), Some(Nanos::from_secs(2)));
        assert_eq!(episodes.counts().collect::<Vec<_>>(), [VerdictCount { verdict: Verdict::Controller, count: 1 }]);
    }

    #[test]
    fn many_in_a_window_are_counted_and_told_when_it_is_over() {
        let mut episodes = Episodes::new(0);
        let told: Vec<usize> = (0..20).map(|_| passes(&mut episodes, Nanos::from_secs(100)).len()).collect();
        assert_eq!(told.iter().filter(|count| **count == 4).count(), EPISODE_BURST as usize);
        assert!(told[EPISODE_BURST as usize..].iter().all(|count| *count == 0), "{told:?}");
        let later = passes(&mut episodes, Nanos::from_secs(100).saturating_add(EPISODE_WINDOW));
        assert_eq!((later[0].episode, later[0].untold, later[1].untold), (21, 12, 0));
        let count = VerdictCount { verdict: Verdict::Controller, count: 21 };
        assert_eq!(episodes.counts().collect::<Vec<_>>(), [count], "all are counted");
    }

    #[test]
    fn what_fails_is_told_whatever_came_before() {
        let mut episodes = Episodes::new(0);
        (0..20).for_each(|_| drop(passes(&mut episodes, Nanos::from_secs(100))));
        let (at, mut told) = (Nanos::from_secs(110), Vec::new());
        let media = report(Verdict::Media, at, Some(at));
        let seen = Observation { reported: Some(&media), ..quiet(Gate::Failing(FailReason::Media)) };
        episodes.observe(at, seen, &mut told);
        episodes.check();
        let [isolated] = &told[..] else { panic!("{told:?}") };
        assert_eq!((isolated.action, isolated.verdict, isolated.untold), (EpisodeAction::Isolate, Verdict::Media, 12));
    }

    #[test]
    fn one_that_slows_down_is_no_pause() {
        let (mut episodes, mut told, at) = (Episodes::new(0), Vec::new(), Nanos::from_secs(5));
        let slow = report(Verdict::Slow, at, Some(at));
        episodes.observe(at, Observation { reported: Some(&slow), ..quiet(Gate::Open) }, &mut told);
        episodes.observe(at, quiet(Gate::Open), &mut told);
        assert_eq!(told.iter().map(|event| event.action).collect::<Vec<_>>(), [EpisodeAction::Slow]);
        assert!(told[0].pause.is_none() && episodes.last_pause().is_none());
    }

    /// The machine itself: what it reports and its gate come in one step.
    #[test]
    fn the_machine_s_own_steps_are_told() {
        use crate::health::{Health, NamespaceAnswer, Policy, ResetLevel};
        use crate::link_recovery::DriveIdentity;
        let identity = DriveIdentity { nguid: [1; 16], capacity: 4096, block_size: 512, ..DriveIdentity::default() };
        let (mut health, mut episodes) = (Health::new(Policy::default(), identity), Episodes::new(0));
        let mut told = Vec::new();
        let mut step = |at: u64, evidence: Evidence| {
            let (now, mut actions) = (Nanos::from_millis(at), Vec::new());
            health.apply(now, evidence, &mut actions);
            let reported = actions.iter().find_map(|action| match action {
                HealthAction::Report(report) => Some(report.clone()),
                _ => None,
            });
            let is_reset = actions.iter().any(|action| matches!(action, HealthAction::Reset { .. }));
            let (gate, current) = (health.gate(), health.report());
            episodes.observe(now, Observation { gate, is_reset, current, reported: reported.as_ref() }, &mut told);
            episodes.check();
        };
        step(1, Evidence::LinkLost);
        step(500, Evidence::LinkBack);
        step(600, Evidence::ResetEnded { level: ResetLevel::Controller, worked: true });
        step(700, Evidence::Namespace(NamespaceAnswer::Present(identity)));
        let actions: Vec<EpisodeAction> = told.iter().map(|event| event.action).collect();
        use EpisodeAction::*;
        assert_eq!(actions, [Pause, Reset, Replay, Healthy]);
        assert_eq!(told[3].verdict, Verdict::Link);
        assert_eq!(told[3].pause, Some(Nanos::from_millis(699)));
        assert!(told[3].evidence.len() == 2 && told[3].evidence[0] == Evidence::LinkLost, "{:?}", told[3].evidence);
    }
}
