//! Every command in every state that three hosts with two keys can reach, against the standard's table and against rules that are
//! written down a second time; and long random histories.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use proptest::prelude::*;

const HOSTS: [Who; 3] = [Who::Host([1; 16]), Who::Host([2; 16]), Who::Controller(7)];

/// Base 2.0, Command Behavior in the Presence of a Reservation, as it is printed: for Write Exclusive, Exclusive Access, Write
/// Exclusive of or for all registrants, and Exclusive Access of or for all registrants, what a non-registrant and a registrant
/// that does not hold it may (A) and may not (C).
const TABLE: [(&str, [&str; 4]); 8] = [
    ("read", ["AA", "CC", "AA", "CA"]),
    ("write", ["CC", "CC", "CA", "CA"]),
    ("acquire", ["CC", "CC", "CC", "CC"]),
    ("preempt", ["CA", "CA", "CA", "CA"]),
    ("release", ["CA", "CA", "CA", "CA"]),
    ("clear", ["CA", "CA", "CA", "CA"]),
    ("register", ["AA", "AA", "AA", "AA"]),
    ("unregister", ["CA", "CA", "CA", "CA"]),
];

fn allowed(row: &str, rtype: ReservationType, registered: bool) -> bool {
    let column = [0, 1, 2, 3, 2, 3][usize::from(rtype.0) - 1];
    let cells = TABLE.iter().find(|(name, _)| *name == row).unwrap().1[column];
    cells.as_bytes()[usize::from(registered)] == b'A'
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Register(u32, bool, u32, u64, u64),
    Acquire(u32, u32, u64, u64),
    Release(u32, u32, u64),
}

fn commands() -> Vec<Command> {
    let mut all = Vec::new();
    let keys = [0, 1, 2];
    for action in 0..4 {
        for (ignore, persist) in [(false, 0), (true, 0), (false, cptpl::PERSIST), (false, cptpl::CLEAR), (false, 1)] {
            for current in keys {
                all.extend(keys.map(|new| Command::Register(action, ignore, persist, current, new)));
            }
        }
    }
    for rtype in 0..8 {
        for current in keys {
            all.extend((0..3).map(|action| Command::Release(action, rtype, current)));
            for action in 0..4 {
                all.extend(keys.map(|preempted| Command::Acquire(action, rtype, current, preempted)));
            }
        }
    }
    all
}

fn apply(r: &mut Reservations, who: Who, command: Command) -> Result<ReservationEffects, ReservationError> {
    let dw10 = ReservationDw10(0);
    match command {
        Command::Register(action, ignore, persist, current, new) => {
            let dw10 = dw10.with_action(action).with_iekey(ignore.into()).with_cptpl(persist);
            r.register(who, dw10, (current, new))
        }
        Command::Acquire(action, rtype, current, preempted) => {
            r.acquire(who, dw10.with_action(action).with_rtype(rtype), (current, preempted))
        }
        Command::Release(action, rtype, current) => r.release(who, dw10.with_action(action).with_rtype(rtype), current),
    }
}

fn key(r: &Reservations, who: Who) -> Option<u64> {
    r.registrants.iter().find(|x| x.who == who).map(|x| x.key)
}

fn holders(r: &Reservations) -> Vec<Who> {
    HOSTS.into_iter().filter(|who| r.held.is_some() && r.standing(*who) == HostRole::Holder).collect()
}

/// What must hold of one command, whatever the machine did.
fn judge(
    before: &Reservations,
    who: Who,
    command: Command,
    after: &Reservations,
    result: &Result<ReservationEffects, ReservationError>,
) {
    after.check();
    let context = || alloc::format!("{before:?} {who:?} {command:?} {result:?} {after:?}");
    let mine = key(before, who);
    let Ok(outcome) = result else {
        assert_eq!(before, after, "a refused command changes nothing: {}", context());
        return;
    };
    for (told, _) in &outcome.notices {
        assert_ne!(*told, who, "nobody is told what he did himself: {}", context());
        assert!(key(before, *told).is_some(), "strangers are told nothing: {}", context());
    }
    let others_stay = || HOSTS.iter().filter(|h| **h != who).all(|h| key(before, *h) == key(after, *h));
    match command {
        Command::Register(action, ignore, persist, current, new) => {
            assert!(others_stay(), "{}", context());
            assert_eq!(after.generation, before.generation + 1, "{}", context());
            let expected = match action {
                0 if mine.is_none() || mine == Some(new) => Some(new),
                1 if mine.is_some() && (ignore || mine == Some(current)) => None,
                2 if ignore || mine == Some(current) => Some(new),
                _ => panic!("should be refused: {}", context()),
            };
            assert_eq!(key(after, who), expected, "{}", context());
            let ptpl = if persist == 0 { before.ptpl } else { persist == cptpl::PERSIST };
            assert_eq!(after.ptpl, ptpl);
            if action != 1 {
                assert_eq!(after.held, before.held, "{}", context());
            }
        }
        Command::Acquire(action, rtype, current, preempted) => {
            assert_eq!(mine, Some(current), "{}", context());
            match action {
                0 => {
                    assert!(others_stay() && key(after, who) == mine);
                    assert_eq!(after.generation, before.generation, "{}", context());
                    assert_eq!(after.held.map(|(_, t)| t), Some(ReservationType(rtype as u8)), "{}", context());
                    assert!(after.standing(who) == HostRole::Holder, "{}", context());
                }
                _ => {
                    assert_eq!(after.generation, before.generation + 1, "{}", context());
                    let all = before.held.is_some_and(|(_, t)| t.0 >= 5);
                    for other in HOSTS.into_iter().filter(|h| *h != who) {
                        let goes = if preempted == 0 { all } else { key(before, other) == Some(preempted) };
                        let now = if goes { None } else { key(before, other) };
                        assert_eq!(key(after, other), now, "{}", context());
                        let told = (other, NotificationType::REGISTRATION_PREEMPTED);
                        let gone = goes && key(before, other).is_some();
                        assert_eq!(outcome.notices.contains(&told), gone, "{}", context());
                        assert_eq!(outcome.aborts.contains(&other), gone && action == 2, "{}", context());
                    }
                    // The reservation goes over where its holder was meant.
                    let single = before.held.filter(|(_, t)| t.0 < 5).map(|(h, _)| key(before, h));
                    let taken = all && preempted == 0 || single == Some(Some(preempted));
                    if taken {
                        assert_eq!(after.held, Some((who, ReservationType(rtype as u8))), "{}", context());
                    }
                }
            }
        }
        Command::Release(action, rtype, current) => {
            assert_eq!(mine, Some(current), "{}", context());
            if action == 1 {
                assert!(after.registrants.is_empty() && after.held.is_none(), "{}", context());
                return;
            }
            assert_eq!(before.registrants, after.registrants);
            let held = before.standing(who) == HostRole::Holder && before.held.is_some();
            assert_eq!(after.held, if held { None } else { before.held }, "{}", context());
            assert!(!held || before.held.map(|(_, t)| u32::from(t.0)) == Some(rtype), "{}", context());
        }
    }
}

/// The table's rows of reservation commands: with the right keys and fields, a command is refused exactly where it says so.
fn table(r: &Reservations) {
    let Some((_, rtype)) = r.held else { return };
    for who in HOSTS.into_iter().chain([Who::Nobody]) {
        let standing = r.standing(who);
        let registered = standing != HostRole::Stranger;
        for (row, group) in [("read", Group::Read), ("write", Group::Write)] {
            let may = standing == HostRole::Holder || allowed(row, rtype, registered);
            assert_eq!(!r.conflicts(who, group), may, "{r:?} {who:?} {row}");
        }
        if standing == HostRole::Holder || who == Who::Nobody {
            continue;
        }
        let mine = key(r, who).unwrap_or(1);
        let other = r.registrants[0].key;
        let register = if registered { 2 } else { 0 };
        let tries = [
            ("acquire", Command::Acquire(0, rtype.0.into(), mine, 0)),
            ("preempt", Command::Acquire(1, rtype.0.into(), mine, other)),
            ("release", Command::Release(0, rtype.0.into(), mine)),
            ("clear", Command::Release(1, 0, mine)),
            ("register", Command::Register(register, false, 0, mine, 2)),
            ("unregister", Command::Register(1, false, 0, mine, 0)),
        ];
        for (row, command) in tries {
            let refused = apply(&mut r.clone(), who, command) == Err(ReservationError::Conflict);
            assert_eq!(!refused, allowed(row, rtype, registered), "{r:?} {who:?} {row}");
        }
    }
}

/// Registrants, reservation and persistence, in an order.
type Name = (Vec<(Who, u64)>, Option<(Who, u8)>, bool);

fn name(r: &Reservations) -> Name {
    (r.registrants.iter().map(|r| (r.who, r.key)).collect(), r.held.map(|(w, t)| (w, t.0)), r.ptpl)
}

#[test]
fn every_command_in_every_state() {
    let commands = commands();
    let mut known = BTreeSet::new();
    let mut todo = vec![Reservations::default()];
    known.insert(name(&todo[0]));
    let mut refusals = [0u64; 3];
    while let Some(before) = todo.pop() {
        table(&before);
        for who in HOSTS {
            for command in &commands {
                let mut after = before.clone();
                let result = apply(&mut after, who, *command);
                judge(&before, who, *command, &after, &result);
                match result {
                    Ok(_) => refusals[2] += 1,
                    Err(ReservationError::Conflict) => refusals[0] += 1,
                    Err(_) => refusals[1] += 1,
                }
                after.generation = 0;
                if known.insert(name(&after)) {
                    todo.push(after);
                }
            }
        }
    }
    // All orders of all subsets of three hosts with a key of two each, every holder and type, persistent or not.
    let orders = 1 + 3 * 2 + 6 * 4 + 6 * 8;
    let with_holder = 6 * (3 * 2 + 2 * 6 * 4 + 3 * 6 * 8);
    assert_eq!(known.len(), 2 * (orders + with_holder), "every state is reached");
    assert!(refusals.iter().all(|n| *n > 1000), "{refusals:?}");
}

#[test]
fn nobody_cannot_register_and_the_list_is_bounded() {
    let mut r = Reservations::default();
    assert_eq!(apply(&mut r, Who::Nobody, Command::Register(0, false, 0, 0, 5)), Err(ReservationError::Conflict));
    for n in 0..REGISTRANTS as u16 {
        apply(&mut r, Who::Controller(n), Command::Register(0, false, 0, 0, 5)).unwrap();
    }
    assert_eq!(apply(&mut r, Who::Host([9; 16]), Command::Register(0, false, 0, 0, 5)), Err(ReservationError::Full));
    r.check();
}

#[test]
fn power_takes_what_does_not_persist() {
    let mut r = Reservations::default();
    apply(&mut r, HOSTS[0], Command::Register(0, false, cptpl::PERSIST, 0, 5)).unwrap();
    apply(&mut r, HOSTS[0], Command::Acquire(0, 3, 5, 0)).unwrap();
    let before = r.clone();
    r.power_loss();
    assert_eq!(r, before);
    apply(&mut r, HOSTS[1], Command::Register(0, false, cptpl::CLEAR, 0, 6)).unwrap();
    r.power_loss();
    assert!(r.is_default());
}

#[test]
fn who_is_told_of_a_release() {
    for (rtype, told) in [(1, false), (2, false), (3, true), (4, true), (5, true), (6, true)] {
        let mut r = Reservations::default();
        for who in HOSTS {
            apply(&mut r, who, Command::Register(0, false, 0, 0, 5)).unwrap();
        }
        apply(&mut r, HOSTS[0], Command::Acquire(0, rtype, 5, 0)).unwrap();
        let outcome = apply(&mut r.clone(), HOSTS[0], Command::Release(0, rtype, 5)).unwrap();
        let note = |who| (who, NotificationType::RESERVATION_RELEASED);
        let expected = if told { vec![note(HOSTS[1]), note(HOSTS[2])] } else { vec![] };
        assert_eq!(outcome.notices, expected, "type {rtype}");
        // A holder that unregisters releases as well; all registrants hold on to theirs.
        let outcome = apply(&mut r, HOSTS[0], Command::Register(1, false, 0, 5, 0)).unwrap();
        assert_eq!(outcome.notices, if matches!(rtype, 3 | 4) { expected } else { vec![] }, "type {rtype}");
        assert_eq!(holders(&r), if rtype >= 5 { vec![HOSTS[1], HOSTS[2]] } else { vec![] });
    }
}

proptest! {
    /// Long histories with many hosts keep the invariants and the table.
    #[test]
    fn long_histories(steps in prop::collection::vec((0usize..3, 0usize..10_000), 0..200)) {
        let commands = commands();
        let mut r = Reservations::default();
        for (host, n) in steps {
            let (before, command) = (r.clone(), commands[n % commands.len()]);
            let result = apply(&mut r, HOSTS[host], command);
            judge(&before, HOSTS[host], command, &r, &result);
            table(&r);
        }
    }
}
