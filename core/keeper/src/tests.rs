//! The keeper under every short sequence of events, and conversations cut after every message.

use super::*;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::{format, vec};
use std::collections::BTreeSet;
use weir_session::vhost_user::Message;
use weir_spec::vhost_user::{Header, MemoryRegion, MemoryTableHeader, Request, SingleRegion, VringState};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const ENDS: [End; 4] = [End::Clean, End::Status(1), End::Killed, End::Crashed];

/// Workers as the keeper's process sees them.
#[derive(Clone, Default)]
struct World {
    alive: BTreeSet<u64>,
    prepared: BTreeSet<u64>,
    /// The one that was told to go and has not died.
    gone: Option<u64>,
    ready: bool,
    /// Whose threads are dead.
    still: BTreeSet<u64>,
    killed: BTreeSet<u64>,
    /// Was told to hand over, and nobody has told the node to end.
    leaving: Option<u64>,
    exited: Option<u8>,
    failed: bool,
    /// How often it was said that the next one takes over, and that a standby has died.
    restarts: u32,
    standbys: u32,
    /// Upgrades that were asked for, and how they ended.
    asked: u32,
    upgraded: u32,
    kept: u32,
    back: u32,
}

/// What a keeper and its world are after these.
fn replay(standby: bool, events: &[(Nanos, Event)]) -> (Keeper, World) {
    let (mut keeper, mut world) = (Keeper::new(standby), World::default());
    for event in events {
        world.step(&mut keeper, *event, events);
    }
    (keeper, world)
}

impl World {
    /// Has that happen, after `events` or as one of them.
    fn step(&mut self, keeper: &mut Keeper, (now, event): (Nanos, Event), events: &[(Nanos, Event)]) {
        match event {
            Event::Died(id, _) => {
                assert!(self.alive.remove(&id.0), "only the living die");
                if self.gone == Some(id.0) {
                    (self.gone, self.ready) = (None, false);
                }
            }
            Event::Prepared(id, _) => drop(self.prepared.insert(id.0)),
            Event::Ready(_) => self.ready = true,
            Event::Left(id) => {
                assert_eq!((self.gone, self.leaving.take()), (Some(id.0), Some(id.0)));
                (self.gone, self.ready) = (None, false);
            }
            Event::Still(id) => drop(self.still.insert(id.0)),
            Event::Stop => self.leaving = None,
            Event::Upgrade(_) => self.asked += 1,
            _ => {}
        }
        let mut out = Vec::new();
        keeper.apply(now, event, &mut out);
        keeper.check();
        if keeper.is_at_rest() {
            let before = Keeper { terms: Terms::default(), spares: 0, ..keeper.clone() };
            assert_eq!(format!("{:?}", saved::again(&before)), format!("{before:?}"), "after {events:?}");
        }
        for effect in out {
            self.carry_out(effect, events);
        }
        if self.gone.is_some_and(|id| self.still.contains(&id)) && keeper.serving().is_none() {
            // The next one has to prepare.
            (self.gone, self.ready) = (None, false);
        }
        assert_eq!(keeper.serving().map(|w| w.0), self.gone, "who serves, after {events:?}");
    }

    /// Everybody does what is expected of him until nobody has anything to do.
    fn settle(&mut self, keeper: &mut Keeper, events: &[(Nanos, Event)]) {
        let mut now = events.last().map_or(Nanos(0), |(now, _)| *now);
        for _ in 0..64 {
            now = now.saturating_add(Nanos(1));
            let killed = self.alive.intersection(&self.killed).next();
            let unprepared = self.alive.difference(&self.prepared).next();
            let event = if self.exited.is_some() {
                return;
            } else if let Some(id) = killed {
                Event::Died(WorkerId(*id), End::Killed)
            } else if let Some(id) = unprepared {
                Event::Prepared(WorkerId(*id), Fit::Both)
            } else if let Some(Upgrade::Proposed(id)) = keeper.upgrade {
                Event::Warm(id)
            } else if let Some(id) = self.gone.filter(|_| !self.ready) {
                Event::Ready(WorkerId(id))
            } else if let Some(id) = self.leaving.filter(|id| self.gone == Some(*id)) {
                Event::Left(WorkerId(id))
            } else if let Some(at) = keeper.deadline() {
                now = now.max(at);
                Event::Tick
            } else {
                return;
            };
            self.step(keeper, (now, event), events);
        }
        panic!("it does not come to rest after {events:?}");
    }

    fn carry_out(&mut self, effect: Effect, events: &[(Nanos, Event)]) {
        match effect {
            Effect::Start(id, _) => {
                assert!(self.exited.is_none() && self.alive.insert(id.0), "started once, before the end: {events:?}")
            }
            Effect::Go(id) => {
                assert!(self.gone.is_none_or(|id| self.still.contains(&id)), "two workers at once: {events:?}");
                assert!(self.alive.contains(&id.0) && self.prepared.contains(&id.0), "it is there: {events:?}");
                (self.gone, self.ready) = (Some(id.0), false);
            }
            Effect::HandOver(id) => {
                assert_eq!(self.gone, Some(id.0), "{events:?}");
                self.leaving = self.gone;
            }
            Effect::Kill(id) => drop(self.killed.insert(id.0)),
            Effect::Exit(status) => {
                assert_eq!(self.exited.replace(status), None, "ends once: {events:?}");
                assert_eq!(self.gone, None, "ends after the worker: {events:?}");
            }
            Effect::Say(Notice::Failed(_)) => self.failed = true,
            Effect::Say(Notice::Restarting(_)) => self.restarts += 1,
            Effect::Say(Notice::Standby { .. }) => self.standbys += 1,
            Effect::Say(Notice::Upgraded) => self.upgraded += 1,
            Effect::Say(Notice::Kept(_)) => self.kept += 1,
            Effect::Say(Notice::Back(_)) => self.back += 1,
            Effect::Say(_) | Effect::Adopt | Effect::Forget => {}
        }
    }

    /// What may happen next.
    fn possible(&self, keeper: &Keeper, now: Nanos) -> Vec<(Nanos, Event)> {
        let later = now.saturating_add(Nanos(1));
        let mut events = vec![];
        for id in &self.alive {
            if !self.prepared.contains(id) {
                events.extend([Fit::Both, Fit::Neither].map(|fit| (later, Event::Prepared(WorkerId(*id), fit))));
            }
            if self.gone == Some(*id) && !self.ready {
                events.push((later, Event::Ready(WorkerId(*id))));
                events.extend(keeper.called().map(|w| (later, Event::Goes(w.id))));
            }
            if self.prepared.contains(id) && keeper.upgrade == Some(Upgrade::Proposed(WorkerId(*id))) {
                events.push((later, Event::Warm(WorkerId(*id))));
            }
            if self.gone == Some(*id) && self.ready && !self.still.contains(id) {
                // Not before there is anything that it changes.
                events.push((now.saturating_add(KILL_PAUSE), Event::Still(WorkerId(*id))));
            }
            if self.gone == Some(*id) && self.leaving == Some(*id) {
                events.push((later, Event::Left(WorkerId(*id))));
            }
            events.extend(ENDS.map(|end| (later, Event::Died(WorkerId(*id), end))));
        }
        events.extend([(later, Event::Upgrade(Terms::default())), (later, Event::Stop)]);
        events.extend(keeper.deadline().map(|at| (at.max(later), Event::Tick)));
        events
    }
}

/// Every sequence of so many events; how many there were.
fn explore(standby: bool, events: &mut Vec<(Nanos, Event)>, depth: u32) -> u64 {
    let (mut keeper, mut world) = replay(standby, events);
    if world.exited.is_some() {
        assert_eq!(world.upgraded + world.kept + world.back, world.asked, "upgrades without an end: {events:?}");
        return 1;
    }
    // Nobody forgets to go on: there is a worker, or a time at which there will be one, or the operator has been told.
    let comes = !world.alive.is_empty() || keeper.deadline().is_some() || world.failed;
    assert!(comes, "nothing will ever happen after {events:?}");
    if depth == 0 {
        world.settle(&mut keeper, events);
        assert_eq!(world.upgraded + world.kept + world.back, world.asked, "upgrades without an end: {events:?}");
        return 1;
    }
    let now = events.last().map_or(Nanos(0), |(now, _)| *now);
    let mut count = 0;
    for next in world.possible(&keeper, now) {
        events.push(next);
        count += explore(standby, events, depth - 1);
        events.pop();
    }
    count
}

#[test]
fn there_is_one_worker_at_most_whatever_happens() {
    for (standby, depth) in [(false, 6), (true, 5)] {
        let count = explore(standby, &mut vec![(Nanos(0), Event::Begin)], depth);
        assert!(count > 1000, "{count} sequences");
    }
}

/// A node that serves, one event a millisecond.
fn serving(standby: bool) -> Vec<(Nanos, Event)> {
    let id = WorkerId(1);
    let events = [Event::Begin, Event::Prepared(id, Fit::Both), Event::Ready(id)];
    let mut events: Vec<_> = events.into_iter().enumerate().map(|(i, e)| (Nanos::from_millis(i as u64), e)).collect();
    if standby {
        events.push((after(&events, 20), Event::Tick));
        events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    }
    events
}

/// When the next worker starts, where none did at once.
fn paused(keeper: &Keeper, world: &World) -> Option<Nanos> {
    keeper.deadline().filter(|_| world.alive.is_empty())
}

fn after(events: &[(Nanos, Event)], millis: u64) -> Nanos {
    events.last().map_or(Nanos(0), |e| e.0).saturating_add(Nanos::from_millis(millis))
}

#[test]
fn a_standby_takes_over_at_once_and_the_next_one_is_started() {
    let mut events = serving(true);
    events.push((after(&events, 100), Event::Died(WorkerId(1), End::Killed)));
    let (_, world) = replay(true, &events);
    assert_eq!((world.gone, world.alive.len()), (Some(2), 1));
    events.push((after(&events, 1), Event::Ready(WorkerId(2))));
    let (keeper, world) = replay(true, &events);
    assert_eq!((world.alive, keeper.deadline()), (BTreeSet::from([2]), Some(after(&events, 20))), "clients first");
    events.push((after(&events, 20), Event::Tick));
    let (keeper, world) = replay(true, &events);
    let prepares = after(&events, PREPARE_TIMEOUT.get() / 1_000_000);
    assert_eq!((world.alive, keeper.deadline()), (BTreeSet::from([2, 3]), Some(prepares)));
}

#[test]
fn a_worker_that_does_not_prepare_counts_as_dead() {
    // A standby, which is to take over meanwhile or is not, and one that is started because there was none.
    for (standby, dies) in [(true, true), (true, false), (false, true)] {
        let mut events = serving(standby);
        if standby {
            events.pop();
        }
        let begun = if standby { after(&events, 0) } else { after(&events, 100) };
        if dies {
            events.push((after(&events, 100), Event::Died(WorkerId(1), End::Crashed)));
        }
        let (keeper, world) = replay(standby, &events);
        assert_eq!(
            (world.gone, keeper.deadline()),
            ((!dies).then_some(1), Some(begun.saturating_add(PREPARE_TIMEOUT)))
        );
        events.push((keeper.deadline().unwrap(), Event::Tick));
        let (keeper, world) = replay(standby, &events);
        assert_eq!((world.killed.contains(&2), world.alive.contains(&3)), (true, dies), "its end is not waited for");
        assert_eq!(world.standbys, u32::from(!dies));
        if dies {
            // It comes too late.
            events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
            events.push((after(&events, 1), Event::Died(WorkerId(2), End::Killed)));
            events.push((after(&events, 1), Event::Prepared(WorkerId(3), Fit::Both)));
            assert_eq!(replay(standby, &events).1.gone, Some(3));
        } else {
            assert_eq!(keeper.deadline(), None, "one that cannot prepare is not tried again");
        }
    }
}

#[test]
fn a_node_whose_workers_do_not_prepare_ends_or_waits_for_somebody() {
    let mut first = vec![(Nanos(0), Event::Begin), (PREPARE_TIMEOUT, Event::Tick)];
    assert_eq!(replay(false, &first).1.exited, Some(1), "it never served");
    first.truncate(1);
    first.extend([(Nanos(1), Event::Stop), (PREPARE_TIMEOUT, Event::Tick)]);
    assert_eq!(replay(false, &first).1.exited, Some(1), "it does not hear that it is to end");
    let mut events = serving(false);
    events.push((after(&events, 100), Event::Died(WorkerId(1), End::Crashed)));
    for _ in 1..MOST_DEATHS {
        let (mut keeper, mut world) = replay(false, &events);
        if keeper.active.is_none() {
            events.push((keeper.deadline().unwrap(), Event::Tick));
            (keeper, world) = replay(false, &events);
        }
        assert!(!world.failed);
        events.push((keeper.deadline().unwrap(), Event::Tick));
    }
    let (keeper, world) = replay(false, &events);
    assert!(keeper.has_failed() && world.failed && world.exited.is_none());
}

#[test]
fn a_standby_that_dies_after_it_was_prepared_is_replaced() {
    let mut events = serving(true);
    let mut pauses = vec![];
    for standby in 2..12 {
        let died = after(&events, 100);
        events.push((died, Event::Died(WorkerId(standby), End::Killed)));
        let (keeper, world) = replay(true, &events);
        assert_eq!((world.gone, &world.alive, world.standbys), (Some(1), &BTreeSet::from([1]), standby as u32 - 1));
        let due = keeper.deadline().unwrap();
        pauses.push(due.saturating_sub(died).get() / 1_000_000);
        events.push((due, Event::Tick));
        events.push((after(&events, 1), Event::Prepared(WorkerId(standby + 1), Fit::Both)));
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    // One that has waited for long begins a new row; one that does not even prepare is not tried again.
    let died = after(&events, 10_000);
    events.push((died, Event::Died(WorkerId(12), End::Killed)));
    events.push((died.saturating_add(FIRST_PAUSE), Event::Tick));
    assert!(replay(true, &events).1.alive.contains(&13));
    events.push((after(&events, 1), Event::Died(WorkerId(13), End::Status(1))));
    let (keeper, world) = replay(true, &events);
    assert_eq!((keeper.deadline(), world.alive, world.standbys), (None, BTreeSet::from([1]), 12));
    // The next worker that serves has one again.
    events.push((after(&events, 1), Event::Died(WorkerId(1), End::Crashed)));
    events.push((after(&events, 1), Event::Prepared(WorkerId(14), Fit::Both)));
    events.push((after(&events, 1), Event::Ready(WorkerId(14))));
    assert_eq!(replay(true, &events).0.deadline(), Some(after(&events, 20)));
}

/// How a worker ended is known when others have died after it: that they did counts.
#[test]
fn the_end_of_a_process_takes_no_later_death_back() {
    for (crashes, pause) in [(3, 100), (u64::from(MOST_DEATHS), 0)] {
        let mut events = serving(false);
        events.push((after(&events, 100), Event::Still(WorkerId(1))));
        for worker in 2..2 + crashes {
            let (keeper, world) = replay(false, &events);
            let due = keeper.deadline().filter(|_| world.alive.len() < 2);
            events.extend(due.map(|due| (due, Event::Tick)));
            events.push((after(&events, 1), Event::Prepared(WorkerId(worker), Fit::Both)));
            events.push((after(&events, 1), Event::Ready(WorkerId(worker))));
            events.push((after(&events, 1), Event::Died(WorkerId(worker), End::Crashed)));
        }
        let (keeper, before) = replay(false, &events);
        events.push((after(&events, 0), Event::Died(WorkerId(1), End::Killed)));
        let (after_all, world) = replay(false, &events);
        assert_eq!((after_all.deaths, u64::from(after_all.deaths)), (keeper.deaths, crashes));
        if pause == 0 {
            assert!(world.failed && after_all.has_failed());
            assert_eq!(world.restarts, before.restarts, "nobody takes over");
        } else {
            events.push((keeper.deadline().unwrap(), Event::Tick));
            let next = WorkerId(2 + crashes);
            events.push((after(&events, 1), Event::Died(next, End::Crashed)));
            let (keeper, _) = replay(false, &events);
            assert_eq!(keeper.deadline(), Some(after(&events, pause)), "the fourth in a row");
        }
    }
}

#[test]
fn threads_that_are_dead_are_enough_and_their_process_is_buried_later() {
    for standby in [false, true] {
        let mut events = serving(standby);
        let still = after(&events, 100);
        events.push((still, Event::Still(WorkerId(1))));
        let (keeper, world) = replay(standby, &events);
        assert_eq!((world.gone, world.killed.contains(&1)), (standby.then_some(2), true));
        let answers = still.saturating_add(if standby { GO_ANSWER_TIMEOUT } else { PREPARE_TIMEOUT });
        assert_eq!((world.alive.len(), keeper.deadline()), (2, Some(answers)));
        if !standby {
            events.push((still, Event::Prepared(WorkerId(2), Fit::Both)));
        }
        // The end of the process comes before the next one is ready, or after.
        for ready_first in [false, true] {
            let mut events = events.clone();
            let mut then = [Event::Died(WorkerId(1), End::Killed), Event::Ready(WorkerId(2))];
            then[..].rotate_left(usize::from(ready_first));
            events.extend(then.map(|event| (after(&events, 1), event)));
            let (_, world) = replay(standby, &events);
            assert_eq!((world.gone, world.ready, world.failed), (Some(2), true, false));
            assert!(!world.alive.contains(&1));
        }
    }
}

/// How it ended is known later; where the next one might have to wait for that, it does.
#[test]
fn a_crash_loop_is_one_also_where_threads_are_seen_to_die() {
    let (mut events, mut waits) = (serving(false), vec![]);
    for worker in 1..=u64::from(MOST_DEATHS) {
        let id = WorkerId(worker);
        events.push((after(&events, 100), Event::Still(id)));
        waits.push(replay(false, &events).0.serving() == Some(id));
        events.push((after(&events, 8), Event::Died(id, End::Crashed)));
        let (keeper, world) = replay(false, &events);
        if worker == u64::from(MOST_DEATHS) {
            assert!(keeper.has_failed() && world.failed);
            break;
        }
        events.extend(paused(&keeper, &world).map(|due| (due, Event::Tick)));
        events.push((after(&events, 1), Event::Prepared(WorkerId(worker + 1), Fit::Both)));
        events.push((after(&events, 1), Event::Ready(WorkerId(worker + 1))));
    }
    assert_eq!(waits, [false, false, true, true, true, true, true, true]);
}

#[test]
fn a_crash_loop_slows_down_and_ends_until_somebody_says_so() {
    let mut events = serving(false);
    let mut pauses = vec![];
    for worker in 1..=u64::from(MOST_DEATHS) {
        let died = after(&events, 1);
        events.push((died, Event::Died(WorkerId(worker), End::Crashed)));
        let (keeper, world) = replay(false, &events);
        if worker == u64::from(MOST_DEATHS) {
            assert!(keeper.has_failed() && world.failed && world.alive.is_empty() && keeper.deadline().is_none());
            break;
        }
        let due = paused(&keeper, &world).unwrap_or(died);
        pauses.push(due.saturating_sub(died).get() / 1_000_000);
        if due > died {
            events.push((due, Event::Tick));
        }
        events.push((after(&events, 1), Event::Prepared(WorkerId(worker + 1), Fit::Both)));
        events.push((after(&events, 1), Event::Ready(WorkerId(worker + 1))));
    }
    assert_eq!(pauses, [0, 0, 50, 100, 200, 400, 800]);
    events.push((after(&events, 60_000), Event::Retry));
    let (keeper, world) = replay(false, &events);
    assert!(!keeper.has_failed() && world.alive.len() == 1);
}

#[test]
fn a_worker_killed_a_thousand_times_comes_back_a_thousand_times() {
    let mut events = serving(false);
    for worker in 1..=1000 {
        events.push((after(&events, worker % 7), Event::Died(WorkerId(worker), End::Killed)));
        events.push((after(&events, 5), Event::Tick));
        events.push((after(&events, 1), Event::Prepared(WorkerId(worker + 1), Fit::Both)));
        events.push((after(&events, 1), Event::Ready(WorkerId(worker + 1))));
    }
    let (keeper, world) = replay(false, &events);
    assert_eq!((world.gone, keeper.has_failed()), (Some(1001), false));
}

/// Some of them before they served: memory that is short kills so, but not those between.
#[test]
fn kills_before_a_worker_serves_add_up_only_while_none_serves() {
    let mut events = serving(false);
    let mut worker = 1;
    let mut die = |events: &mut Vec<(Nanos, Event)>, serves: bool| {
        events.push((after(events, 1), Event::Died(WorkerId(worker), End::Killed)));
        let (keeper, world) = replay(false, events);
        if world.failed {
            return false;
        }
        events.extend(paused(&keeper, &world).map(|due| (due, Event::Tick)));
        worker += 1;
        events.push((after(events, 1), Event::Prepared(WorkerId(worker), Fit::Both)));
        if serves {
            events.push((after(events, 1), Event::Ready(WorkerId(worker))));
        }
        true
    };
    for kill in 0..30 {
        assert!(die(&mut events, kill % 4 == 3), "kill {kill}");
    }
    let alone = (0..20).take_while(|_| die(&mut events, false)).count() as u32;
    assert!((1..MOST_DEATHS).contains(&alone), "{alone} before it gives up");
}

#[test]
fn a_worker_that_never_served_ends_the_node_with_its_status() {
    for (end, status) in [(End::Status(2), 2), (End::Status(1), 1), (End::Crashed, 1)] {
        let (_, world) = replay(false, &[(Nanos(0), Event::Begin), (Nanos(1), Event::Died(WorkerId(1), end))]);
        assert_eq!(world.exited, Some(status));
    }
    let mut events = serving(false);
    events.push((after(&events, 1), Event::Stop));
    events.push((after(&events, 1), Event::Died(WorkerId(1), End::Clean)));
    assert_eq!(replay(false, &events).1.exited, Some(0));
}

#[test]
fn a_new_program_serves_after_the_old_one_has_handed_over() {
    let mut events = serving(false);
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    events.push((after(&events, 0), Event::Warm(WorkerId(2))));
    assert_eq!(replay(false, &events).1.gone, Some(1), "the old one serves until it has ended");
    events.push((after(&events, 1), Event::Died(WorkerId(1), End::Clean)));
    events.push((after(&events, 1), Event::Ready(WorkerId(2))));
    let (keeper, world) = replay(false, &events);
    assert_eq!((world.gone, world.upgraded), (Some(2), 0));
    events.push((keeper.deadline().unwrap(), Event::Tick));
    assert_eq!(replay(false, &events).1.upgraded, 1);
}

#[test]
fn a_new_program_that_fails_leaves_the_old_one_serving() {
    let mut proposed = serving(false);
    proposed.push((after(&proposed, 1), Event::Upgrade(Terms::default())));
    // It ends, or it hangs, before anything has happened to the old one.
    let mut ends = proposed.clone();
    ends.push((after(&ends, 1), Event::Died(WorkerId(2), End::Status(1))));
    let mut hangs = proposed.clone();
    hangs.push((after(&hangs, 10_000), Event::Tick));
    for events in [ends, hangs] {
        let (_, world) = replay(false, &events);
        assert_eq!((world.gone, world.kept, world.exited), (Some(1), 1, None));
    }
    // It has taken over and dies, or hangs, or dies after a while: the old program begins anew.
    proposed.push((after(&proposed, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    proposed.push((after(&proposed, 0), Event::Warm(WorkerId(2))));
    proposed.push((after(&proposed, 1), Event::Died(WorkerId(1), End::Clean)));
    let mut dies = proposed.clone();
    dies.push((after(&dies, 1), Event::Died(WorkerId(2), End::Crashed)));
    let mut hangs = proposed.clone();
    hangs.push((after(&hangs, 10_000), Event::Tick));
    assert_eq!(replay(false, &hangs).1.killed, BTreeSet::from([2]));
    hangs.push((after(&hangs, 1), Event::Died(WorkerId(2), End::Killed)));
    let mut later = proposed.clone();
    later.push((after(&later, 1), Event::Ready(WorkerId(2))));
    later.push((after(&later, 9_000), Event::Died(WorkerId(2), End::Status(1))));
    for events in [dies, hangs, later.clone()] {
        let (_, world) = replay(false, &events);
        assert_eq!((world.back, world.kept, world.upgraded, world.exited), (1, 0, 0, None));
        assert_eq!(world.alive, BTreeSet::from([3]), "the old program");
    }
    // Somebody asks it to end: that is no failure.
    later.pop();
    later.push((after(&later, 9_000), Event::Died(WorkerId(2), End::Clean)));
    assert_eq!(replay(false, &later).1.exited, Some(0));
}

#[test]
fn a_new_program_goes_as_soon_as_the_old_one_has_left() {
    let mut events = serving(false);
    let terms = Terms { step_timeout: Nanos::from_secs(1), probation: Nanos(0) };
    events.push((after(&events, 1), Event::Upgrade(terms)));
    events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    events.push((after(&events, 0), Event::Warm(WorkerId(2))));
    events.push((after(&events, 1), Event::Left(WorkerId(1))));
    let (keeper, world) = replay(false, &events);
    assert_eq!((world.gone, world.alive.len()), (Some(2), 2), "both processes are there, one serves");
    assert_eq!(keeper.deadline(), Some(after(&events, 1000)), "its own timeout");
    events.push((after(&events, 1), Event::Ready(WorkerId(2))));
    let (keeper, world) = replay(false, &events);
    assert_eq!((world.upgraded, keeper.deadline()), (1, None), "no probation was asked for");
    // The end of the old process means nothing any more.
    events.push((after(&events, 50), Event::Died(WorkerId(1), End::Crashed)));
    let (_, world) = replay(false, &events);
    assert_eq!((world.gone, world.alive, world.exited), (Some(2), BTreeSet::from([2]), None));
}

#[test]
fn a_program_with_other_layouts_is_refused_before_anybody_hears_of_it() {
    let mut events = serving(true);
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Prepared(WorkerId(3), Fit::Neither)));
    let (_, world) = replay(true, &events);
    assert_eq!((world.gone, world.leaving, world.kept), (Some(1), None, 1));
    assert!(world.killed.contains(&3) && world.alive.contains(&4), "and a standby comes back: {:?}", world.alive);
}

/// The one that serves dies while the new program prepares, and the next one has not gone yet when that is done: nobody could hand over.
#[test]
fn a_new_program_that_is_prepared_while_nobody_serves_is_refused() {
    let mut events = serving(false);
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Died(WorkerId(1), End::Crashed)));
    assert_eq!(replay(false, &events).1.alive, BTreeSet::from([2, 3]), "the next worker is of the old program");
    events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    events.push((after(&events, 0), Event::Warm(WorkerId(2))));
    let (_, world) = replay(false, &events);
    assert_eq!((world.gone, world.kept, world.leaving), (None, 1, None));
    assert_eq!(world.killed, BTreeSet::from([2]));
    events.push((after(&events, 1), Event::Prepared(WorkerId(3), Fit::Both)));
    events.push((after(&events, 1), Event::Died(WorkerId(2), End::Killed)));
    events.push((after(&events, 1), Event::Ready(WorkerId(3))));
    // And the next upgrade is as if there had been none.
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Prepared(WorkerId(4), Fit::Both)));
    events.push((after(&events, 0), Event::Warm(WorkerId(4))));
    let (_, world) = replay(false, &events);
    assert_eq!((world.gone, world.leaving, world.kept), (Some(3), Some(3), 1));
}

#[test]
fn one_that_does_not_leave_is_killed_and_followed() {
    let mut events = serving(false);
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    events.push((after(&events, 0), Event::Warm(WorkerId(2))));
    let (keeper, _) = replay(false, &events);
    assert_eq!(keeper.deadline(), Some(after(&events, UPGRADE_STEP_TIMEOUT.get() / 1_000_000)));
    events.push((keeper.deadline().unwrap(), Event::Tick));
    assert_eq!(replay(false, &events).1.killed, BTreeSet::from([1]));
    events.push((after(&events, 1), Event::Died(WorkerId(1), End::Killed)));
    assert_eq!(replay(false, &events).1.gone, Some(2));
}

/// Somebody has stopped it while it waited.
#[test]
fn a_worker_that_does_not_answer_when_it_is_to_go_is_killed_and_followed() {
    for standby in [true, false] {
        let mut events = serving(standby);
        events.push((after(&events, 100), Event::Died(WorkerId(1), End::Crashed)));
        if !standby {
            events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
        }
        let (keeper, world) = replay(standby, &events);
        let due = after(&events, GO_ANSWER_TIMEOUT.get() / 1_000_000);
        assert_eq!((world.gone, keeper.deadline()), (Some(2), Some(due)));
        // One that answers has all the time that it needs.
        let mut answers = events.clone();
        answers.push((after(&events, 4_999), Event::Goes(WorkerId(2))));
        assert_eq!(replay(standby, &answers).0.deadline(), None);
        events.push((due, Event::Tick));
        let (keeper, world) = replay(standby, &events);
        assert_eq!((world.gone, world.killed.contains(&2), keeper.deadline()), (Some(2), true, None));
        // Too late: it may have heard of it before it was killed, so the next one waits for its end.
        events.push((after(&events, 1), Event::Goes(WorkerId(2))));
        events.push((after(&events, 1), Event::Ready(WorkerId(2))));
        assert_eq!(replay(standby, &events).1.alive, BTreeSet::from([2]));
        events.push((after(&events, 1), Event::Died(WorkerId(2), End::Killed)));
        let (keeper, world) = replay(standby, &events);
        assert_eq!((world.alive, keeper.deaths), (BTreeSet::from([3]), 2), "it counts");
    }
}

#[test]
fn nobody_is_asked_to_leave_before_the_new_program_has_mapped_what_is_held() {
    let mut events = serving(false);
    events.push((after(&events, 1), Event::Upgrade(Terms::default())));
    events.push((after(&events, 1), Event::Prepared(WorkerId(2), Fit::Both)));
    let (keeper, world) = replay(false, &events);
    assert_eq!((world.leaving, keeper.deadline()), (None, Some(after(&events, 10_000))));
    // It is stopped there: the one that serves has not even heard of it.
    let mut hangs = events.clone();
    hangs.push((keeper.deadline().unwrap(), Event::Tick));
    let (_, world) = replay(false, &hangs);
    assert_eq!((world.gone, world.kept, world.killed), (Some(1), 1, BTreeSet::from([2])));
    events.push((after(&events, 1), Event::Warm(WorkerId(2))));
    assert_eq!(replay(false, &events).1.leaving, Some(1));
    // It is stopped later: the old program comes back.
    events.push((after(&events, 1), Event::Left(WorkerId(1))));
    events.push((after(&events, GO_ANSWER_TIMEOUT.get() / 1_000_000), Event::Tick));
    assert_eq!(replay(false, &events).1.killed, BTreeSet::from([2]));
    events.push((after(&events, 1), Event::Died(WorkerId(2), End::Killed)));
    let (_, world) = replay(false, &events);
    assert_eq!((world.back, world.alive), (1, BTreeSet::from([1, 3])));
}

// --- Replay ---

type Fd = Rc<u32>;

/// As the program that the keeper runs next finds it.
fn renewed(replay: &Replay<Fd>) -> Replay<Fd> {
    let saved = replay.try_map(|fd| Ok::<u32, ()>(**fd)).unwrap();
    saved::again(&saved).try_map(|number| Ok::<Fd, ()>(Rc::new(*number))).unwrap()
}

fn message(request: Request, needs_reply: bool, payload: &[u8], fds: &[u32]) -> Message<Fd> {
    let fds = fds.iter().map(|fd| Rc::new(*fd)).collect();
    Message { request, needs_reply, again: false, payload: payload.to_vec(), fds }
}

fn state(request: Request, index: u32, num: u32) -> Message<Fd> {
    message(request, false, VringState { index: U32::new(index), num: U32::new(num) }.as_bytes(), &[])
}

fn region(guest: u64) -> MemoryRegion {
    MemoryRegion {
        guest_address: U64::new(guest),
        size: U64::new(0x1000),
        user_address: U64::new(guest + 0x7000_0000),
        mmap_offset: U64::ZERO,
    }
}

fn table(regions: &[u64], fds: &[u32]) -> Message<Fd> {
    let count = U32::new(regions.len() as u32);
    let mut payload = MemoryTableHeader { regions: count, padding: U32::ZERO }.as_bytes().to_vec();
    regions.iter().for_each(|r| payload.extend_from_slice(region(*r).as_bytes()));
    message(Request::SET_MEM_TABLE, true, &payload, fds)
}

/// What a front end of two queues says when it starts, changes its memory while it runs, stops a queue and starts it again:
/// the messages of QEMU 10 in their order, memory by table and by region.
fn conversation() -> Vec<Message<Fd>> {
    let mut all = vec![
        message(Request::GET_FEATURES, false, &[], &[]),
        message(Request::GET_PROTOCOL_FEATURES, false, &[], &[]),
        message(Request::SET_PROTOCOL_FEATURES, false, U64::new(1 << 3 | 1 << 9 | 1 << 15).as_bytes(), &[]),
        message(Request::GET_QUEUE_NUM, false, &[], &[]),
        message(Request::SET_OWNER, false, &[], &[]),
        message(Request::SET_BACKEND_REQ_FD, true, &[], &[90]),
        state(Request::SET_VRING_CALL, 0, 0),
        message(Request::SET_FEATURES, true, U64::new(1 << 30 | 1 << 32).as_bytes(), &[]),
        table(&[0, 0x10000], &[1, 2]),
    ];
    for queue in 0..2u32 {
        let fd = U64::new(u64::from(queue));
        all.extend([
            state(Request::SET_VRING_NUM, queue, 128),
            state(Request::SET_VRING_BASE, queue, 0),
            message(
                Request::SET_VRING_ADDR,
                false,
                weir_spec::vhost_user::VringAddress { index: U32::new(queue), ..Default::default() }.as_bytes(),
                &[],
            ),
            message(Request::SET_VRING_KICK, false, fd.as_bytes(), &[10 + queue]),
            message(Request::SET_VRING_CALL, false, fd.as_bytes(), &[20 + queue]),
            state(Request::SET_VRING_ENABLE, queue, 1),
        ]);
    }
    let single = |r: u64| SingleRegion { padding: U64::ZERO, region: region(r) };
    all.extend([
        message(Request::ADD_MEM_REG, true, single(0x20000).as_bytes(), &[3]),
        message(Request::REM_MEM_REG, true, single(0).as_bytes(), &[]),
        message(Request::SET_VRING_CALL, false, U64::new(1).as_bytes(), &[31]),
        state(Request::GET_VRING_BASE, 1, 0),
        message(Request::SET_VRING_KICK, false, U64::new(1).as_bytes(), &[41]),
        message(Request::GET_CONFIG, false, &[0; 12], &[]),
    ]);
    all
}

/// A worker as far as messages go: the state that they leave, and what it answers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Worker {
    values: BTreeMap<(u32, u32), (Vec<u8>, Vec<u32>)>,
    regions: BTreeMap<u64, u32>,
    acknowledges: bool,
}

impl Worker {
    /// Takes a message; its answer.
    fn take(&mut self, bytes: &[u8], fds: &[Fd]) -> Option<(Request, Vec<u8>, Vec<Fd>)> {
        let (header, payload) = Header::ref_from_prefix(bytes).unwrap();
        let request = Request(header.request.get());
        let numbers: Vec<u32> = fds.iter().map(|fd| **fd).collect();
        let index = payload.first().map_or(0, |i| u32::from(*i));
        let ack = self.acknowledges && header.needs_reply();
        let mut set = |key: u32| drop(self.values.insert((request.0, key), (payload.to_vec(), numbers.clone())));
        match request {
            Request::SET_MEM_TABLE => {
                let regions = weir_spec::vhost_user::memory_table(payload).unwrap();
                assert_eq!(regions.len(), numbers.len());
                self.regions = regions.iter().map(|r| r.guest_address.get()).zip(numbers).collect();
            }
            Request::ADD_MEM_REG => {
                let single = SingleRegion::read_from_bytes(payload).unwrap();
                self.regions.insert(single.region.guest_address.get(), numbers[0]);
            }
            Request::REM_MEM_REG => {
                let single = SingleRegion::read_from_bytes(payload).unwrap();
                self.regions.remove(&single.region.guest_address.get()).expect("it is there");
            }
            Request::GET_VRING_BASE => {
                let kick = self.values.remove(&(Request::SET_VRING_KICK.0, index));
                assert!(kick.is_some(), "only a started ring is stopped here");
                let base = VringState { index: U32::new(index), num: U32::new(77) };
                self.values.insert((Request::SET_VRING_BASE.0, index), (base.as_bytes().to_vec(), vec![]));
                return Some((request, base.as_bytes().to_vec(), vec![]));
            }
            Request::GET_INFLIGHT_FD => return Some((request, payload.to_vec(), vec![Rc::new(99)])),
            Request::GET_FEATURES | Request::GET_PROTOCOL_FEATURES | Request::GET_QUEUE_NUM => {
                return Some((request, U64::new(u64::from(request.0)).as_bytes().to_vec(), vec![]));
            }
            Request::GET_CONFIG => return Some((request, payload.to_vec(), vec![])),
            Request::SET_VRING_KICK => {
                assert!(self.values.contains_key(&(Request::SET_FEATURES.0, 0)), "features come first");
                assert!(self.values.contains_key(&(Request::SET_VRING_ADDR.0, index)), "a ring has a place");
                self.values.insert((request.0, index), (payload.to_vec(), numbers));
            }
            Request::SET_PROTOCOL_FEATURES => {
                let bits = U64::read_from_bytes(payload).unwrap().get();
                set(0);
                self.acknowledges = bits & 8 != 0;
            }
            Request::SET_FEATURES | Request::SET_OWNER | Request::SET_BACKEND_REQ_FD | Request::SET_INFLIGHT_FD => {
                set(0)
            }
            _ => set(index),
        }
        ack.then(|| (request, U64::ZERO.as_bytes().to_vec(), vec![]))
    }
}

/// The front end says `messages`; the worker dies after it has taken `cut` of all that goes to workers, with its answer to the
/// last of them delivered or not; the keeper renews itself after every message, or never. What the front end hears, what the last worker
/// knows, how much went to workers.
fn converse(
    messages: Vec<Message<Fd>>,
    cut: Option<usize>,
    (delivered, inflight, renews): (bool, bool, bool),
) -> (Vec<Vec<u8>>, Worker, usize) {
    let (mut replay, mut worker) = (Replay::new(inflight), Worker::default());
    let (mut heard, mut taken) = (vec![], 0);
    for message in messages {
        let mut out = vec![];
        replay.front(message, &mut out);
        let mut queue: alloc::collections::VecDeque<_> = out.into();
        while let Some(next) = queue.pop_front() {
            let envelope = match next {
                Passed::Front(envelope) => {
                    heard.push(envelope.bytes);
                    continue;
                }
                Passed::Worker(envelope) => envelope,
            };
            taken += 1;
            if renews {
                replay = renewed(&replay);
            }
            let answer = worker.take(&envelope.bytes, &envelope.fds);
            let dies = cut == Some(taken);
            let mut out = vec![];
            if let Some((request, payload, fds)) = answer.filter(|_| !dies || delivered) {
                replay.back(request, &payload, fds, &mut out).unwrap();
            }
            if dies {
                // What was on its way to the dead worker is part of what the next one hears.
                queue.retain(|p| matches!(p, Passed::Front(_)));
                queue.extend(out.into_iter().filter(|p| matches!(p, Passed::Front(_))));
                worker = Worker::default();
                queue.extend(replay.again().into_iter().map(Passed::Worker));
            } else {
                queue.extend(out);
            }
        }
    }
    (heard, worker, taken)
}

#[test]
fn a_worker_that_dies_after_any_message_loses_nothing() {
    for inflight in [false, true] {
        let (heard, knows, taken) = converse(conversation(), None, (true, inflight, false));
        assert_eq!(heard.len(), 10, "answers");
        assert_eq!(knows.values.contains_key(&(Request::SET_INFLIGHT_FD.0, 0)), inflight);
        assert_eq!(knows.regions, BTreeMap::from([(0x10000, 2), (0x20000, 3)]));
        let ways = [(false, false), (true, false), (false, true), (true, true)];
        for (cut, (delivered, renews)) in (0..=taken).flat_map(|cut| ways.map(|way| (cut, way))) {
            let what = format!(
                "cut after {cut} of {taken}, answer delivered: {delivered}, region: {inflight}, renewed: {renews}"
            );
            let (same, after, _) = converse(conversation(), Some(cut), (delivered, inflight, renews));
            assert_eq!(heard, same, "{what}");
            assert_eq!(knows.values, after.values, "{what}");
            assert_eq!(knows.regions, after.regions, "{what}");
        }
    }
}

#[test]
fn what_a_conversation_keeps_does_not_grow_with_it() {
    let mut replay = Replay::new(false);
    let mut worker = Worker::default();
    let mut say = |replay: &mut Replay<Fd>, message| {
        let mut out = vec![];
        replay.front(message, &mut out);
        for passed in out {
            let Passed::Worker(e) = passed else { panic!("nothing was asked") };
            if let Some((request, payload, fds)) = worker.take(&e.bytes, &e.fds) {
                replay.back(request, &payload, fds, &mut vec![]).unwrap();
            }
        }
    };
    conversation().into_iter().for_each(|m| say(&mut replay, m));
    let (messages, descriptors) = (replay.again().len(), replay.descriptors());
    for i in 0..1000 {
        say(&mut replay, message(Request::SET_VRING_CALL, false, U64::new(0).as_bytes(), &[i]));
        say(&mut replay, table(&[0x10000, 0x20000], &[i, i]));
        say(&mut replay, state(Request::SET_VRING_ENABLE, 0, i % 2));
        say(&mut replay, message(Request::GET_CONFIG, false, &[0; 12], &[]));
    }
    assert_eq!((replay.again().len(), replay.descriptors()), (messages, descriptors));
}

#[test]
fn an_answer_that_nobody_asked_for_is_an_error() {
    let mut replay: Replay<Fd> = Replay::new(false);
    let unexpected = replay.back(Request::GET_CONFIG, &[], vec![], &mut vec![]);
    assert_eq!(unexpected, Err(ReplayError::Unexpected(Request::GET_CONFIG)));
    replay.front(message(Request::GET_FEATURES, false, &[], &[]), &mut vec![]);
    assert!(replay.back(Request::GET_CONFIG, &[], vec![], &mut vec![]).is_err());
    // A log is said again to a new worker, which answers as the first one did.
    let mut out = vec![];
    assert_eq!(replay.back(Request::SET_LOG_BASE, &[], vec![], &mut out), Ok(()));
    assert!(out.is_empty(), "the front end has had its answer");
}
