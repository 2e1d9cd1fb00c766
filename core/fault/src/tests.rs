use crate::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_spec::nvme::{AdminOpcode, IoOpcode, Status};
use weir_units::Nanos;

fn drive() -> DriveFacts {
    let namespace = |nsid, blocks| NamespaceFacts { nsid, blocks, plain: nsid != 3 };
    DriveFacts {
        namespaces: vec![namespace(1, 1000), namespace(2, 10), namespace(3, 64)],
        tenants: vec!["gold".into(), "silver".into()],
        queues: 8,
        flash: Some(FlashShape { channels: 2, dies: 4, blocks: 16, pages: 32, mapped: true }),
    }
}

fn rule(text: &str) -> FaultRule {
    FaultRule::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn plan(texts: &[&str]) -> FaultPlan {
    let mut plan = FaultPlan::new();
    for text in texts {
        plan.add(Nanos(0), rule(text), &drive()).unwrap_or_else(|e| panic!("{text}: {e}"));
        plan.check();
    }
    plan
}

fn io(opcode: IoOpcode, lba: u64, blocks: u64) -> FaultyCommand {
    FaultyCommand { admin: false, opcode: opcode.0, nsid: 1, lba, blocks, tenant: 0, queue: 1, plain: true }
}

const READ: FaultyCommand = FaultyCommand {
    admin: false,
    opcode: IoOpcode::READ.0,
    nsid: 1,
    lba: 8,
    blocks: 8,
    tenant: 0,
    queue: 1,
    plain: true,
};

/// Block n lies on die n mod 4.
fn striped(lba: u64) -> Option<FlashPlace> {
    let die = (lba % 4) as u32;
    Some(FlashPlace { channel: die % 2, die, block: 0, page: (lba / 4) as u32 })
}

fn decide(plan: &mut FaultPlan, at: u64, command: &FaultyCommand) -> FaultVerdict {
    let verdict = plan.decide(Nanos(at), command, striped);
    plan.check();
    verdict
}

fn status(plan: &mut FaultPlan, at: u64, command: &FaultyCommand) -> Option<(Status, u64)> {
    match decide(plan, at, command).outcome {
        Some((_, FaultOutcome::Fails { status, lba })) => Some((status, lba)),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_effect_is_written_as_it_is_read() {
    let texts = [
        "status code=2/81h",
        "status code=0/21h crd=2",
        "status code=6/01h dnr=true admin=get-log-page,identify,0xc1",
        "media-error nsid=1 lba=8-15 op=read,compare tenant=gold queue=3",
        "correctable-error retries=3 die=2 block=5 page=7",
        "corrupt bytes=4 op=write seed=9",
        "torn-write keep=1 count=2",
        "misdirected by=-8 op=write",
        "lost-write probability=0.25",
        "disk-full from=1s lasts=5s",
        "latency time=2ms",
        "latency time=1ms..5ms after=100",
        "latency time=~250us channel=1",
        "hang lba=8",
        "stuck-queue queue=2",
        "controller-fatal after=10",
        "reset-fails",
        "slow-reset time=5s",
        "link-loss lasts=15s",
        "removal back=other lasts=15s",
        "read-only op=write",
        "namespace-resized blocks=512 nsid=1",
        "namespace-identity nsid=2",
        "namespace-gone nsid=2",
        "smart spare=5 wear=101 temperature=350 media_errors=7 over=10s",
        "slow-die times=2.5 die=3",
    ];
    for text in texts {
        assert_eq!(rule(text).to_string(), text);
        let pairs: Vec<(&str, String)> = rule(text).pairs();
        let pairs = pairs.iter().map(|(key, value)| (*key, value.as_str()));
        assert!(pairs.clone().all(|(key, _)| FAULT_KEYS.contains(&key)));
        assert_eq!(FaultRule::from_pairs(pairs), Ok(rule(text)));
    }
    for (written, same) in [
        ("status code=2/0x81", "status code=2/81h"),
        ("hang lba=0x10-0x1f", "hang lba=16-31"),
        ("hang op=read,write,read", "hang op=write,read"),
        ("hang probability=1%", "hang probability=0.01"),
        ("corrupt", "corrupt bytes=8"),
        ("removal", "removal back=same"),
    ] {
        assert_eq!(rule(written).to_string(), same);
    }
}

#[test]
fn a_rule_that_is_none_says_which_key_and_what_to_do() {
    for (text, says) in [
        ("", "effect: missing"),
        ("melt", "effect: there is no \"melt\"; there is status, media-error"),
        ("status", "code: missing; write it like code=2/81h"),
        ("status code=0/00h", "code: 0/00h is success"),
        ("status code=8/00h", "code: \"8/00h\" is not"),
        ("status code=2/81h crd=4", "crd: \"4\" is not a number from 1 to 3"),
        ("status code=2/81h crd=1 dnr=true", "crd: says when to retry"),
        ("hang lba=9-8", "lba: \"9-8\" ends before it begins"),
        ("hang lba=x", "lba: \"x\" is not a block"),
        ("hang op=fry", "op: \"fry\" is no opcode"),
        ("hang op=read op=write", "op: stands there twice"),
        ("hang read", "read: is no KEY=VALUE"),
        ("hang probability=0", "probability: \"0\" is never"),
        ("hang probability=2", "probability: \"2\" is not"),
        ("hang count=0", "count: \"0\" is not a number from 1"),
        ("hang lasts=0", "lasts: 0 is no time"),
        ("hang lasts=5", "lasts: "),
        ("hang keep=1", "keep: hang has no such key; there is nsid"),
        ("latency time=61min", "time: \"61min\" is more than 60min"),
        ("latency time=1ms..61min", "time: \"61min\" is more than 60min"),
        ("latency time=~61min", "time: \"61min\" is more than 60min"),
        ("latency time=5ms..1ms", "time: \"5ms..1ms\" ends before it begins"),
        ("misdirected by=0", "by: \"0\" is not a number of blocks"),
        ("smart", "effect: says nothing; write spare"),
        ("smart over=1s", "effect: says nothing"),
        ("slow-die times=0.5", "times: \"0.5\" is not a factor"),
        ("removal back=none", "back: \"none\": same or other"),
    ] {
        let error = FaultRule::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(says), "{text}: {error}");
    }
}

#[test]
fn a_rule_that_can_never_apply_is_refused_and_nothing_changes() {
    let cases = [
        ("hang nsid=7", "nsid: the drive has no namespace 7; it has 1, 2, 3"),
        ("hang lba=1000", "lba: block 1000 is behind the end; the namespace has blocks 0 to 999"),
        ("hang nsid=2 lba=5-10", "lba: block 10 is behind the end"),
        ("hang tenant=lead", "tenant: the drive has no tenant \"lead\"; it has gold, silver"),
        ("hang queue=9", "queue: controllers of this drive have I/O queues 1 to 8"),
        ("hang die=4", "die: the flash has dies 0 to 3"),
        ("hang page=32", "page: the flash has pages 0 to 31"),
        ("media-error die=1 op=write", "op: where a write goes is decided"),
        ("torn-write keep=1 die=1", "die: a place in the flash is where reads go"),
        ("read-only die=1", "die: a place in the flash is where reads go"),
        ("slow-die times=2 block=1", "effect: slow-die is about dies"),
        ("torn-write keep=1 op=read", "op: this effect cannot befall READ"),
        ("torn-write keep=1 nsid=3", "effect: the blocks of this namespace"),
        ("media-error admin=identify", "admin: this effect befalls I/O commands"),
        ("hang admin=identify op=read", "admin: a rule is about I/O or about admin commands"),
        ("hang admin=identify lba=1", "admin: an admin command has no blocks"),
        ("misdirected by=1000 nsid=1", "by: 1000 leaves the namespace"),
        ("namespace-gone", "nsid: missing; say which namespace changes"),
        ("namespace-resized blocks=10 nsid=2", "blocks: the namespace has 10 blocks; write fewer"),
        ("smart spare=5 tenant=gold", "tenant: this effect is not about one tenant"),
        ("slow-die times=2 nsid=1", "nsid: this effect is not about one nsid"),
        ("link-loss nsid=1", "nsid: this effect"),
        ("removal queue=1", "queue: this effect"),
        ("read-only queue=1", "queue: this effect"),
        ("stuck-queue nsid=1", "nsid: this effect"),
        ("reset-fails queue=1", "queue: this effect"),
        ("namespace-identity nsid=1 tenant=gold", "tenant: this effect"),
        ("read-only count=1", "count: this effect holds for a while"),
    ];
    let mut plan = FaultPlan::new();
    for (text, says) in cases {
        let error = plan.add(Nanos(0), rule(text), &drive()).expect_err(text).to_string();
        assert!(error.starts_with(says), "{text}: {error}");
        assert!(plan.is_empty());
    }
    let ram = DriveFacts { flash: None, ..drive() };
    for (text, says) in [
        ("media-error die=1", "die: the drive has no flash inside"),
        ("slow-die times=2 die=1", "die: the drive has no flash inside"),
        ("correctable-error", "effect: the drive has no flash inside"),
    ] {
        let error = plan.add(Nanos(0), rule(text), &ram).expect_err(text).to_string();
        assert!(error.starts_with(says), "{text}: {error}");
    }
    let zones = FlashShape { mapped: false, ..drive().flash.unwrap_or_else(|| unreachable!()) };
    let unmapped = DriveFacts { flash: Some(zones), ..drive() };
    let error = plan.add(Nanos(0), rule("hang die=1"), &unmapped).expect_err("no map").to_string();
    assert!(error.starts_with("die: this flash keeps no map"), "{error}");
}

#[test]
fn a_rule_that_contradicts_another_is_refused() {
    for (first, second) in [
        ("hang", "media-error lba=8"),
        ("media-error op=read", "status code=0/06h op=read lba=1-2"),
        ("hang lba=0-99 tenant=gold", "lost-write lba=5 tenant=gold queue=2"),
        ("link-loss", "removal"),
        ("reset-fails", "slow-reset time=1s"),
        ("read-only", "read-only"),
        ("stuck-queue", "stuck-queue queue=2"),
        ("smart spare=5", "smart wear=10"),
        ("slow-die times=2 channel=1", "slow-die times=3 die=1"),
        ("namespace-gone nsid=1", "namespace-gone nsid=1"),
        ("status code=0/06h admin=identify,abort", "hang admin=abort"),
    ] {
        let mut plan = plan(&[first]);
        let error = plan.add(Nanos(0), rule(second), &drive()).expect_err(second).to_string();
        assert!(error.contains("rule 1 ("), "{first}, {second}: {error}");
        assert_eq!(plan.rules().len(), 1);
        plan.remove(1);
        assert_eq!(plan.add(Nanos(0), rule(second), &drive()), Ok(2), "no number is given twice");
    }
    for (first, second) in [
        ("media-error op=read", "media-error op=write"),
        ("media-error count=3", "hang"),
        ("torn-write keep=1", "media-error op=read"),
        ("latency time=1ms", "latency time=2ms"),
        ("hang lba=0-9", "media-error"),
        ("media-error die=1", "media-error op=read"),
        ("stuck-queue queue=1", "stuck-queue queue=2"),
        ("slow-die times=2 die=0", "slow-die times=3 die=1"),
        ("hang", "hang admin=abort"),
        ("controller-fatal", "link-loss"),
        ("read-only nsid=1", "read-only nsid=2"),
        // Of the command that triggers it.
        ("smart spare=5 tenant=gold op=write", "controller-fatal nsid=1 queue=2 after=3"),
    ] {
        plan(&[first, second]);
    }
}

/// A rule, and commands with the first block of each that it is about.
type Case = (&'static str, Vec<(FaultyCommand, Option<u64>)>);

#[test]
fn a_rule_is_about_what_its_keys_say() {
    let cases: Vec<Case> = vec![
        ("status code=0/06h", vec![(READ, Some(8)), (FaultyCommand { admin: true, ..READ }, None)]),
        ("status code=0/06h nsid=2", vec![(READ, None), (FaultyCommand { nsid: 2, ..READ }, Some(8))]),
        (
            "status code=0/06h lba=10-11",
            vec![
                (READ, Some(10)),
                (io(IoOpcode::READ, 11, 1), Some(11)),
                (io(IoOpcode::READ, 12, 8), None),
                (io(IoOpcode::READ, 0, 10), None),
                (io(IoOpcode::FLUSH, 0, 0), None),
                (io(IoOpcode::READ, u64::MAX, 2), None),
            ],
        ),
        ("status code=0/06h op=write", vec![(READ, None), (io(IoOpcode::WRITE, 1, 1), Some(1))]),
        ("status code=0/06h tenant=silver", vec![(READ, None), (FaultyCommand { tenant: 1, ..READ }, Some(8))]),
        ("status code=0/06h queue=2", vec![(READ, None), (FaultyCommand { queue: 2, ..READ }, Some(8))]),
        (
            "status code=0/06h die=3 page=2",
            vec![(READ, Some(11)), (io(IoOpcode::READ, 8, 3), None), (io(IoOpcode::WRITE, 8, 8), None)],
        ),
    ];
    for (text, commands) in cases {
        let mut plan = plan(&[text]);
        for (command, expected) in commands {
            let found = status(&mut plan, 1, &command);
            assert_eq!(found.map(|(_, lba)| lba), expected, "{text}: {command:?}");
        }
    }
    let identify = FaultyCommand { admin: true, opcode: AdminOpcode::IDENTIFY.0, queue: 0, ..READ };
    let mut plan = plan(&["status code=0/06h admin=identify"]);
    assert!(status(&mut plan, 1, &identify).is_some());
    assert!(status(&mut plan, 1, &FaultyCommand { opcode: AdminOpcode::ABORT.0, ..identify }).is_none());
    assert!(status(&mut plan, 1, &READ).is_none() && !plan.sees_io());
}

#[test]
fn statuses_are_those_of_the_standard() {
    let write = io(IoOpcode::WRITE, 8, 8);
    let cases = [
        ("media-error", READ, Status::UNRECOVERED_READ_ERROR),
        ("media-error", write, Status::WRITE_FAULT),
        ("media-error", io(IoOpcode::VERIFY, 8, 8), Status::UNRECOVERED_READ_ERROR),
        ("disk-full", write, Status::CAPACITY_EXCEEDED.dnr()),
        ("read-only", write, Status::new(1, 0x82).dnr()),
        ("read-only", io(IoOpcode::DATASET_MANAGEMENT, 0, 0), Status::new(1, 0x82).dnr()),
        ("status code=0/21h crd=2", READ, Status::from_field(0x21 | 2 << 11)),
        ("status code=6/7fh dnr=true", READ, Status::new(6, 0x7f).dnr()),
    ];
    for (text, command, expected) in cases {
        assert_eq!(status(&mut plan(&[text]), 1, &command).map(|(s, _)| s), Some(expected), "{text}");
    }
    for (text, command) in [
        ("disk-full", READ),
        ("read-only", READ),
        ("media-error", io(IoOpcode::FLUSH, 0, 0)),
        ("torn-write keep=1", READ),
    ] {
        assert_eq!(decide(&mut plan(&[text]), 1, &command).outcome, None, "{text}");
    }
}

#[test]
fn delays_add_up_until_a_rule_decides() {
    let texts = [
        "latency time=1ms",
        "latency time=2ms op=read",
        "correctable-error retries=2",
        "hang op=read",
        "latency time=9ms",
    ];
    let mut plan = plan(&texts);
    let verdict = decide(&mut plan, 1, &READ);
    let delay = |id, time, retries| FaultDelay { id, time: Nanos::from_millis(time), retries };
    assert_eq!(verdict.delays, [delay(1, 1, 0), delay(2, 2, 0), delay(3, 0, 2)]);
    assert_eq!(verdict.outcome, Some((4, FaultOutcome::Hangs)));
    let verdict = decide(&mut plan, 1, &io(IoOpcode::WRITE, 0, 1));
    assert_eq!((verdict.delays, verdict.outcome), (vec![delay(1, 1, 0), delay(5, 9, 0)], None));
    let applied: Vec<u64> = plan.rules().iter().map(|p| p.applied).collect();
    assert_eq!(applied, [2, 1, 1, 1, 1], "who is not asked is not counted");
}

#[test]
fn count_after_and_time_bound_a_rule() {
    let mut few = plan(&["hang after=2 count=2"]);
    let hit: Vec<bool> = (0..6).map(|_| decide(&mut few, 1, &READ).outcome.is_some()).collect();
    assert_eq!(hit, [false, false, true, true, false, false]);
    assert_eq!((few.rules()[0].matched, few.rules()[0].applied), (4, 2));
    let mut window = plan(&["hang from=10ns lasts=5ns"]);
    let hit: Vec<u64> = (0..20).filter(|at| decide(&mut window, *at, &READ).outcome.is_some()).collect();
    assert_eq!(hit, [10, 11, 12, 13, 14]);
    assert_eq!([0, 10, 15].map(|at| window.next_change(Nanos(at))), [Nanos(10), Nanos(15), Nanos::NEVER]);
    // What it holds it keeps, also when it can apply to no more.
    assert!(!few.rules()[0].is_active(Nanos(1)) && few.holds(1, Nanos(1)));
    assert!(few.remove(1).is_some() && !few.holds(1, Nanos(1)) && !few.has(1));
    assert!(window.holds(1, Nanos(10)) && !window.holds(1, Nanos(15)) && !window.holds(2, Nanos(10)));
}

#[test]
fn chance_follows_the_seed() {
    let hits = |text: &str| {
        let mut plan = plan(&[text]);
        (0..10_000).map(|_| decide(&mut plan, 1, &READ).outcome.is_some()).collect::<Vec<bool>>()
    };
    let first = hits("hang probability=0.1 seed=7");
    assert_eq!(first, hits("hang probability=0.1 seed=7"));
    assert_ne!(first, hits("hang probability=0.1 seed=8"));
    let n = first.iter().filter(|hit| **hit).count();
    assert!((900..1100).contains(&n), "{n}");
}

#[test]
fn conditions_hold_from_their_time_or_from_a_command_on() {
    let active = |plan: &FaultPlan, at| plan.conditions(Nanos(at)).map(|p| p.id).collect::<Vec<u32>>();
    let timed = plan(&["link-loss from=10ns lasts=5ns", "smart spare=5"]);
    assert_eq!([0, 10, 15].map(|at| active(&timed, at)), [vec![2], vec![1, 2], vec![2]]);
    assert!(!timed.sees_io());
    let mut triggered = plan(&["read-only op=write after=1 lasts=10ns"]);
    assert!(triggered.sees_io() && active(&triggered, 100).is_empty());
    let write = io(IoOpcode::WRITE, 0, 1);
    assert!(!decide(&mut triggered, 3, &READ).triggered && !decide(&mut triggered, 4, &write).triggered);
    let verdict = decide(&mut triggered, 5, &write);
    assert!(
        verdict.triggered && verdict.outcome.is_some(),
        "the command that triggers it is the first that it befalls"
    );
    assert_eq!([4, 5, 14, 15].map(|at| active(&triggered, at)), [vec![], vec![1], vec![1], vec![]]);
    assert!(status(&mut triggered, 15, &write).is_none() && !decide(&mut triggered, 16, &write).triggered);
}

#[test]
fn latencies_have_the_distribution_that_they_name() {
    let draws = |text: &str| {
        let mut plan = plan(&[text]);
        (0..20_000).map(|_| decide(&mut plan, 1, &READ).delays[0].time.0).collect::<Vec<u64>>()
    };
    let mean = |all: &[u64]| all.iter().sum::<u64>() / all.len() as u64;
    let even = draws("latency time=100us..300us");
    assert!(even.iter().all(|d| (100_000..=300_000).contains(d)) && (198_000..202_000).contains(&mean(&even)));
    let exponential = draws("latency time=~100us");
    assert!((97_000..103_000).contains(&mean(&exponential)), "{}", mean(&exponential));
    // e^-1 of them are above the mean, e^-3 above three times that.
    for (times, part) in [(1, 0.3679), (3, 0.0498)] {
        let above = exponential.iter().filter(|d| **d > times * 100_000).count() as f64 / 20_000.0;
        assert!((above - part).abs() < 0.01, "{above} above {times} times the mean");
    }
}

fn pieces() -> impl Strategy<Value = String> {
    let effect = prop_oneof![
        Just("hang".to_string()),
        Just("media-error".to_string()),
        (0u8..8, 1u8..=255).prop_map(|(sct, sc)| format!("status code={sct}/{sc:02x}h")),
        (1u64..10_000).prop_map(|us| format!("latency time={us}us")),
        (1u32..513).prop_map(|n| format!("corrupt bytes={n}")),
    ];
    let lba = prop::option::of((0u64..500, 0u64..500));
    let chance = prop::option::of(1u32..1_000_000);
    (effect, lba, chance, prop::option::of(1u64..9), 0u64..9).prop_map(|(effect, lba, chance, count, after)| {
        let mut text = effect;
        lba.iter().for_each(|(first, n)| text += &format!(" lba={first}-{}", first + n));
        chance.iter().for_each(|n| text += &format!(" probability=0.{n:06}"));
        count.iter().for_each(|n| text += &format!(" count={n}"));
        text + &format!(" after={after}")
    })
}

proptest! {
    #[test]
    fn rules_survive_their_text(text in pieces()) {
        let parsed = rule(&text);
        prop_assert_eq!(FaultRule::parse(&parsed.to_string()), Ok(parsed));
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in "[a-z0-9=/.,~ -]{0,40}") {
        let _ = FaultRule::parse(&text);
    }

    #[test]
    fn plans_keep_their_invariants(texts in prop::collection::vec(pieces(), 1..5), lbas in prop::collection::vec(0u64..999, 1..60)) {
        let mut plan = FaultPlan::new();
        for text in &texts {
            let _ = plan.add(Nanos(0), rule(text), &drive());
        }
        for (at, lba) in (0u64..).zip(lbas) {
            decide(&mut plan, at, &io(IoOpcode::READ, lba, 4));
        }
    }
}

/// Rules that use everything there is to go on with: chance, counts, commands that go before, noise, windows, triggers.
const STATEFUL: [&str; 6] = [
    "media-error probability=40% count=5 seed=7",
    "latency time=1ms..9ms after=3 op=read seed=9",
    "status code=0/06h count=1",
    "read-only after=6 lasts=40ns",
    "corrupt bytes=2 probability=50% seed=3 op=read",
    "media-error from=10ns lasts=30ns lba=8",
];

#[test]
fn a_rule_goes_on_in_another_process_as_if_nothing_had_been() {
    let (mut straight, mut times) = (plan(&STATEFUL), 0);
    for at in 0..60 {
        let mut resumed = plan(&STATEFUL);
        for planned in straight.rules().to_vec() {
            assert!(resumed.resume(planned.id, &planned.state()), "{}", planned.rule);
        }
        resumed.check();
        let mut same = straight.clone();
        for later in at..60 {
            let command = io(if later % 3 == 0 { IoOpcode::WRITE } else { IoOpcode::READ }, 8, 4);
            let (own, other) = (decide(&mut same, later, &command), decide(&mut resumed, later, &command));
            assert_eq!(own, other, "at {later}, resumed at {at}");
            times += u32::from(own.outcome.is_some());
        }
        let states = |plan: &FaultPlan| plan.rules().iter().map(PlannedFault::state).collect::<Vec<_>>();
        assert_eq!(states(&same), states(&resumed));
        let before = straight.changes();
        decide(&mut straight, at, &READ);
        assert!(straight.changes() > before, "what a command has changed is seen");
    }
    assert!(times > 100, "the rules have applied {times} times");
}

#[test]
fn a_state_is_a_rule_s_own() {
    let one = plan(&["status code=0/06h count=1"]);
    let state = PlannedState { matched: 1, applied: 1, ..one.rules()[0].state() };
    let mut other = plan(&["status code=0/06h count=2"]);
    assert!(!other.resume(1, &state), "another rule");
    let mut same = plan(&["status code=0/06h count=1"]);
    assert!(!same.resume(2, &state), "no such rule");
    assert!(!same.resume(1, &PlannedState { applied: 2, matched: 2, ..state }), "more often than it may");
    assert!(!same.resume(1, &PlannedState { matched: 0, ..state }), "more often than commands came");
    assert!(same.resume(1, &state));
    assert_eq!(decide(&mut same, 5, &READ).outcome, None, "it was used up before");
}
