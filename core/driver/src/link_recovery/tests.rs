use super::*;
use LinkState::{Connecting, Enabling, Fencing, Identifying, Inaccessible, Replaying, Serving, Waiting};
use alloc::vec;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn identity() -> DriveIdentity {
    DriveIdentity { nguid: [7; 16], capacity: 64 << 20, block_size: 512, ..DriveIdentity::default() }
}

fn policy(seconds: u64) -> LinkPolicy {
    LinkPolicy { target: "t".into(), fast_io_fail_tmo: Nanos::from_secs(seconds), reconnects: true }
}

fn gone(text: &str) -> TransportError {
    TransportError::Closed(text.into())
}

fn lost(heard: u64) -> LinkEvent {
    LinkEvent::Lost { cause: gone("lost"), heard: Nanos(heard) }
}

fn apply(machine: &mut LinkRecovery, now: u64, event: LinkEvent) -> Vec<LinkEffect> {
    let mut effects = Vec::new();
    machine.apply(Nanos(now), event, &mut effects);
    machine.check();
    assert!(effects.len() <= MOST_EFFECTS, "{effects:?}");
    effects
}

/// A machine in each state, at time 0; an outage has begun there.
fn in_state(state: LinkState) -> LinkRecovery {
    let mut machine = LinkRecovery::new(policy(60), identity(), false);
    let way: &[LinkEvent] = match state {
        Serving => &[],
        Connecting => &[lost(0)],
        Enabling => &[lost(0), LinkEvent::Connected],
        Identifying => &[lost(0), LinkEvent::Connected, LinkEvent::Enabled],
        Fencing => &[lost(0), LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity())],
        Replaying => {
            &[lost(0), LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity()), LinkEvent::Ended]
        }
        Waiting => &[lost(0), LinkEvent::AttemptFailed(gone("refused"))],
        Inaccessible => &[LinkEvent::NotReady(gone("ANA"))],
    };
    for event in way {
        apply(&mut machine, 0, event.clone());
    }
    assert_eq!(machine.state(), state);
    machine
}

/// `state: effects`, as the table writes it.
fn outcome(state: LinkState, effects: &[LinkEffect]) -> String {
    let word = |effect: &LinkEffect| match effect {
        LinkEffect::Release => "release",
        LinkEffect::Connect(_) => "connect",
        LinkEffect::Fence => "fence",
        LinkEffect::Replay => "replay",
        LinkEffect::Try => "try",
        LinkEffect::Fail => "fail",
        LinkEffect::Tell(LinkNotice::Lost) => "tell-lost",
        LinkEffect::Tell(LinkNotice::Inaccessible) => "tell-inaccessible",
        LinkEffect::Tell(LinkNotice::Failing) => "tell-failing",
        LinkEffect::Tell(LinkNotice::AnotherDrive) => "tell-another",
        LinkEffect::Tell(LinkNotice::Restored) => "tell-restored",
    };
    effects.iter().fold(alloc::string::String::from(state.word()), |text, effect| text + " " + word(effect))
}

/// Every event in every state, at a time before anything is due, then the passing of time. "=": nothing changes. Rows: events; columns:
/// states in the order of [`LinkState::ALL`].
#[test]
fn every_event_in_every_state() {
    let other = DriveIdentity { capacity: 1 << 30, ..identity() };
    let again = "waiting release";
    let table: [(&str, LinkEvent, u64, [&str; 8]); 14] = [
        ("lost", lost(0), 0, ["connecting release tell-lost connect", "=", "=", "=", again, again, "=", again]),
        ("connected", LinkEvent::Connected, 0, ["=", "enabling", "=", "=", "=", "=", "=", "="]),
        ("enabled", LinkEvent::Enabled, 0, ["=", "=", "identifying", "=", "=", "=", "=", "="]),
        ("same", LinkEvent::Identified(identity()), 0, ["=", "=", "=", "fencing fence", "=", "=", "=", "="]),
        (
            "another drive",
            LinkEvent::Identified(other),
            0,
            ["=", "=", "=", "waiting release tell-another fail", "=", "=", "=", "="],
        ),
        (
            "attempt failed",
            LinkEvent::AttemptFailed(gone("no")),
            0,
            ["=", "waiting", "waiting", "waiting", "=", "=", "=", "="],
        ),
        ("ended", LinkEvent::Ended, 0, ["=", "=", "=", "=", "replaying replay", "=", "=", "="]),
        ("answered", LinkEvent::Answered, 0, ["=", "=", "=", "=", "=", "serving tell-restored", "=", "="]),
        (
            "not ready",
            LinkEvent::NotReady(gone("ANA")),
            0,
            ["inaccessible tell-inaccessible", "=", "=", "=", "=", "inaccessible", "=", "="],
        ),
        ("accessible", LinkEvent::Accessible, 0, ["=", "=", "=", "=", "=", "=", "=", "replaying replay"]),
        ("time, nothing due", LinkEvent::Tick, 0, ["="; 8]),
        (
            "time, a retry is due",
            LinkEvent::Tick,
            25 * MS,
            ["=", "=", "=", "=", "=", "=", "connecting connect", "replaying try"],
        ),
        (
            "time, the deadline",
            LinkEvent::Tick,
            60 * S,
            [
                "=",
                "connecting fail tell-failing",
                "enabling fail tell-failing",
                "identifying fail tell-failing",
                "fencing fail tell-failing",
                "replaying fail tell-failing",
                "connecting connect fail tell-failing",
                "replaying try fail tell-failing",
            ],
        ),
        (
            "lost after the deadline",
            lost(0),
            60 * S,
            [
                "connecting release tell-lost connect fail tell-failing",
                "connecting fail tell-failing",
                "enabling fail tell-failing",
                "identifying fail tell-failing",
                "waiting release fail tell-failing",
                "waiting release fail tell-failing",
                "waiting fail tell-failing",
                "waiting release fail tell-failing",
            ],
        ),
    ];
    for (name, event, now, row) in table {
        for (state, expected) in LinkState::ALL.into_iter().zip(row) {
            let mut machine = in_state(state);
            let effects = apply(&mut machine, now, event.clone());
            let found = outcome(machine.state(), &effects);
            let expected = if expected == "=" { state.word() } else { expected };
            assert_eq!(found, expected, "{name} in {state:?}");
        }
    }
}

#[test]
fn commands_wait_until_the_deadline_and_fail_from_then_on() {
    for state in LinkState::ALL {
        let mut machine = in_state(state);
        let sends = matches!(state, Serving | Replaying);
        assert_eq!(machine.admission(), if sends { Admission::Send } else { Admission::Hold }, "{state:?}");
        apply(&mut machine, 60 * S, LinkEvent::Tick);
        assert_eq!(machine.admission(), if state == Serving { Admission::Send } else { Admission::Fail }, "{state:?}");
    }
}

/// The deadline counts from the last sign of the other side, not from when its silence was noticed.
#[test]
fn silence_counts() {
    let mut machine = LinkRecovery::new(policy(60), identity(), false);
    apply(&mut machine, 100 * S, lost(90 * S));
    assert_eq!(machine.due(), Nanos(150 * S));
    assert!(apply(&mut machine, 150 * S - 1, LinkEvent::Tick).is_empty());
    assert_eq!(apply(&mut machine, 150 * S, LinkEvent::Tick)[0], LinkEffect::Fail);
    assert_eq!(machine.status(Nanos(150 * S)).out_for, Some(Nanos(50 * S)));
}

#[test]
fn no_patience_fails_at_once_and_is_tried_again_all_the_same() {
    let mut machine = LinkRecovery::new(policy(0), identity(), false);
    let effects = apply(&mut machine, 5, lost(5));
    assert_eq!(outcome(machine.state(), &effects), "connecting release tell-lost connect fail tell-failing");
    assert_eq!(machine.admission(), Admission::Fail);
    for event in [LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity()), LinkEvent::Ended] {
        apply(&mut machine, 6, event);
        assert_eq!(machine.admission(), Admission::Fail, "nothing was answered yet");
    }
    apply(&mut machine, 7, LinkEvent::Answered);
    assert_eq!(machine.admission(), Admission::Send);
}

/// When attempts are made while each of them fails at once: every 10 to 25 ms for 10 s, then with pauses that double, up to 1 s.
#[test]
fn the_back_off() {
    let mut machine = LinkRecovery::new(policy(3600), identity(), false);
    apply(&mut machine, 0, lost(0));
    let (mut now, mut pauses) = (0, Vec::new());
    while now < 60 * S {
        apply(&mut machine, now, LinkEvent::AttemptFailed(gone("refused")));
        pauses.push((now, machine.due().get() - now));
        now = machine.due().get();
        let answer = if now < 10 * S { S } else { 10 * S };
        assert_eq!(apply(&mut machine, now, LinkEvent::Tick), [LinkEffect::Connect(Nanos(answer))]);
    }
    assert_eq!([0, 1, 2].map(|i: usize| pauses[i].1 / MS), [10, 20, 25]);
    let (early, late): (Vec<_>, Vec<_>) = pauses.into_iter().partition(|(at, _)| *at < 10 * S);
    assert!(early.iter().all(|(_, pause)| (10 * MS..=50 * MS).contains(pause)));
    let late: Vec<u64> = late.iter().map(|(_, pause)| pause / MS).collect();
    assert_eq!(late[..7], [50, 100, 200, 400, 800, 1000, 1000]);
    assert!(late[7..].iter().all(|pause| *pause == 1000));
    let status = machine.status(Nanos(now));
    assert_eq!((status.outages, status.last_cause.as_deref()), (1, Some("refused")));
}

/// One whose commands end the connection again and again is one outage: pauses grow, the deadline stands, and it is told once.
#[test]
fn a_link_that_is_lost_before_an_answer_is_the_same_outage() {
    let mut machine = LinkRecovery::new(policy(60), identity(), false);
    let mut told = Vec::new();
    let mut now = 0;
    while now < 60 * S {
        told.extend(apply(&mut machine, now, lost(now)));
        while machine.state() == Waiting {
            now = machine.due().get();
            told.extend(apply(&mut machine, now, LinkEvent::Tick));
        }
        for event in [LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity()), LinkEvent::Ended] {
            told.extend(apply(&mut machine, now, event));
        }
    }
    let told: Vec<_> = told.into_iter().filter(|effect| matches!(effect, LinkEffect::Tell(_))).collect();
    let (lost, failing) = (LinkEffect::Tell(LinkNotice::Lost), LinkEffect::Tell(LinkNotice::Failing));
    assert_eq!(told, [lost, failing]);
    assert!(machine.status(Nanos(now)).attempts < 500, "{:?}", machine.status(Nanos(now)));
}

/// A command that ends the connection each time, among others that are answered: attempts become rarer, and it is told once.
#[test]
fn outages_that_follow_each_other_closely_are_told_as_one_and_back_off() {
    let mut machine = LinkRecovery::new(policy(60), identity(), false);
    let (mut now, mut told, mut times) = (0, Vec::new(), Vec::new());
    while now < 40 * S {
        times.push(now);
        let mut effects = apply(&mut machine, now, lost(now));
        while machine.state() == Waiting {
            now = machine.due().get();
            effects.extend(apply(&mut machine, now, LinkEvent::Tick));
        }
        let way = [LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity()), LinkEvent::Ended];
        way.into_iter().for_each(|event| effects.extend(apply(&mut machine, now, event)));
        effects.extend(apply(&mut machine, now, LinkEvent::Answered));
        assert_eq!(machine.state(), Serving);
        told.extend(effects.into_iter().filter(|effect| matches!(effect, LinkEffect::Tell(_))));
    }
    let notices = [LinkNotice::Lost, LinkNotice::Restored].map(LinkEffect::Tell);
    assert_eq!(told, notices);
    let gaps: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect();
    assert_eq!((gaps[..4].to_vec(), gaps.last()), (vec![0, 10, 20, 25], Some(&1000)), "{gaps:?}");
    // One that lasts is told late.
    let lasting = apply(&mut machine, now, lost(now));
    assert_eq!(lasting, [LinkEffect::Release]);
    apply(&mut machine, now + S, LinkEvent::Tick);
    let late = apply(&mut machine, now + 5 * S, LinkEvent::Tick);
    assert_eq!(late, [LinkEffect::Tell(LinkNotice::Lost)]);
    // After a while of peace the next one begins anew.
    let way = [LinkEvent::Connected, LinkEvent::Enabled, LinkEvent::Identified(identity()), LinkEvent::Ended];
    way.into_iter().for_each(|event| drop(apply(&mut machine, now + 6 * S, event)));
    assert_eq!(apply(&mut machine, now + 6 * S, LinkEvent::Answered), [LinkEffect::Tell(LinkNotice::Restored)]);
    let effects = apply(&mut machine, now + 11 * S, lost(now + 11 * S));
    assert_eq!(outcome(machine.state(), &effects), "connecting release tell-lost connect");
}

#[test]
fn an_identifier_counts_where_both_have_it() {
    let some = |nguid: u8, eui64: u8, uuid: u8| DriveIdentity {
        nguid: [nguid; 16],
        eui64: [eui64; 8],
        uuid: [uuid; 16],
        capacity: 1 << 20,
        block_size: 512,
    };
    let same = |a: DriveIdentity, b: DriveIdentity| a.difference(&b).is_none();
    assert!(same(some(1, 2, 0), some(1, 2, 3)), "an upgrade shows a UUID as well");
    assert!(same(some(1, 0, 3), some(0, 2, 3)));
    assert!(!same(some(1, 0, 3), some(1, 0, 4)));
    assert!(!same(some(1, 0, 0), some(0, 2, 3)), "nothing in common");
    assert!(!same(some(0, 0, 0), some(0, 0, 0)), "nothing to know it by");
    assert_eq!([some(0, 0, 0), some(0, 0, 1), some(0, 1, 0)].map(|id| id.is_identified()), [false, true, true]);
}

#[test]
fn another_drive_is_refused_by_name_and_the_right_one_taken_when_it_is_back() {
    let cases = [
        (DriveIdentity { capacity: 32 << 20, ..identity() }, "it has 33554432 bytes, and the drive had 67108864"),
        (DriveIdentity { block_size: 4096, ..identity() }, "its blocks have 4096 bytes, and the drive's had 512"),
        (
            DriveIdentity { nguid: [2; 16], ..identity() },
            "its NGUID is 02020202020202020202020202020202, and the drive's was 07070707070707070707070707070707",
        ),
        (
            DriveIdentity { nguid: [0; 16], eui64: [1; 8], ..identity() },
            "it has none of the drive's identifiers, such as NGUID 07070707070707070707070707070707",
        ),
    ];
    for (found, text) in cases {
        let mut machine = in_state(Identifying);
        apply(&mut machine, 1, LinkEvent::Identified(found));
        assert_eq!(machine.cause().map(|c| format!("{c}")), Some(format!("t: another drive is there: {text}")));
        assert_eq!(machine.admission(), Admission::Fail);
        // It is told once.
        apply(&mut machine, S, LinkEvent::Tick);
        apply(&mut machine, S, LinkEvent::Connected);
        apply(&mut machine, S, LinkEvent::Enabled);
        assert_eq!(apply(&mut machine, S, LinkEvent::Identified(found)), [LinkEffect::Release]);
        apply(&mut machine, 2 * S, LinkEvent::Tick);
        apply(&mut machine, 2 * S, LinkEvent::Connected);
        apply(&mut machine, 2 * S, LinkEvent::Enabled);
        assert_eq!(apply(&mut machine, 2 * S, LinkEvent::Identified(identity())), [LinkEffect::Fence]);
        apply(&mut machine, 2 * S, LinkEvent::Ended);
        apply(&mut machine, 2 * S, LinkEvent::Answered);
        assert_eq!((machine.admission(), machine.cause()), (Admission::Send, None));
    }
}

#[test]
fn one_that_is_not_connected_to_again_fails_for_good() {
    let policy = LinkPolicy { reconnects: false, ..policy(60) };
    let mut machine = LinkRecovery::new(policy, identity(), false);
    let effects = apply(&mut machine, 1, lost(1));
    assert_eq!(outcome(machine.state(), &effects), "waiting release tell-lost fail tell-failing");
    assert_eq!(machine.due(), Nanos::NEVER);
    assert!(apply(&mut machine, 3600 * S, LinkEvent::Tick).is_empty());
}

/// Requests of another process are fenced when a drive is opened: that is no outage, and commands wait for as long as it takes.
#[test]
fn a_drive_that_is_opened_behind_a_fence() {
    let mut machine = LinkRecovery::new(policy(1), identity(), true);
    assert_eq!((machine.state(), machine.admission()), (Fencing, Admission::Hold));
    assert!(apply(&mut machine, 3600 * S, LinkEvent::Tick).is_empty());
    assert_eq!(apply(&mut machine, 3600 * S, LinkEvent::Ended), vec![LinkEffect::Replay]);
    assert!(apply(&mut machine, 3600 * S, LinkEvent::Answered).is_empty());
    assert_eq!((machine.state(), machine.status(Nanos(0)).outages), (Serving, 0));
}

fn any_event() -> impl Strategy<Value = LinkEvent> {
    let other = DriveIdentity { capacity: 1, ..identity() };
    prop_oneof![
        (0..100 * S).prop_map(lost),
        Just(LinkEvent::Connected),
        Just(LinkEvent::Enabled),
        Just(LinkEvent::Identified(identity())),
        Just(LinkEvent::Identified(other)),
        Just(LinkEvent::AttemptFailed(gone("no"))),
        Just(LinkEvent::Ended),
        Just(LinkEvent::Answered),
        Just(LinkEvent::NotReady(gone("ANA"))),
        Just(LinkEvent::Accessible),
        Just(LinkEvent::Tick),
    ]
}

proptest! {
    /// Any events at any times: what waits is sent or fails, nothing is sent before the old association has ended, and each outage is told
    /// and ended once.
    #[test]
    fn any_events(events in proptest::collection::vec((0..2 * S, any_event()), 1..200)) {
        let mut machine = LinkRecovery::new(policy(5), identity(), false);
        let (mut now, mut is_fenced, mut is_told) = (0, false, false);
        for (pause, event) in events {
            now += pause;
            let ended = event == LinkEvent::Ended && machine.state() == Fencing;
            for effect in apply(&mut machine, now, event) {
                match effect {
                    LinkEffect::Fence => is_fenced = true,
                    LinkEffect::Replay => prop_assert!(!is_fenced || ended, "sent before the fence is over"),
                    LinkEffect::Fail => prop_assert_eq!(machine.admission(), Admission::Fail),
                    LinkEffect::Tell(LinkNotice::Lost | LinkNotice::Inaccessible) => {
                        prop_assert!(!core::mem::replace(&mut is_told, true), "told twice");
                    }
                    LinkEffect::Tell(LinkNotice::Restored) => {
                        prop_assert!(core::mem::replace(&mut is_told, false), "ended twice");
                    }
                    LinkEffect::Tell(LinkNotice::Failing | LinkNotice::AnotherDrive) => is_told = true,
                    LinkEffect::Release | LinkEffect::Connect(_) | LinkEffect::Try => {}
                }
            }
            is_fenced &= machine.state() == Fencing;
            prop_assert!(machine.admission() != Admission::Send || !is_fenced);
            // One that follows another closely is told late.
            prop_assert!(machine.cause().is_some() || !is_told);
        }
    }
}
