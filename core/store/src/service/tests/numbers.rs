//! Numbers of sessions: reserved while others are left, so that nobody is refused for them, and none is given out twice.

use super::*;
use alloc::collections::BTreeSet;

/// More than are reserved at a time, twice.
const CLIENTS: usize = 2200;

fn hello() -> Request {
    let (client, location, session) = ("c".into(), Location::default(), SessionWish::New);
    Request::Hello { magic: PROTOCOL_MAGIC, version: PROTOCOL_VERSION, client, location, session }
}

#[test]
fn no_request_is_refused_while_numbers_are_reserved() {
    let mut world = World::new(1, KvFaults::default());
    let (operator, _) = world.connect(SessionWish::None);
    let mut sessions = BTreeSet::new();
    for _ in 0..CLIENTS {
        world.next += 2;
        let (connection, number) = (ConnectionId(world.next), RequestNumber(world.next + 1));
        world.give(ServiceEvent::Connected(connection, [1; 16]));
        world.give(ServiceEvent::Message(connection, RequestNumber(0), hello()));
        // What the greeting has asked of the key-value store is on its way.
        world.give(ServiceEvent::Message(operator, number, Request::Namespaces {}));
        let answer = world.answers.remove(&(operator, number));
        assert_eq!(answer, Some(Answer::Namespaces { namespaces: Vec::new() }), "after {} clients", sessions.len());
        world.settle();
        match world.answers.remove(&(connection, RequestNumber(0))) {
            Some(Answer::Welcome { welcome }) => assert!(sessions.insert(welcome.session), "{:?}", welcome.session),
            other => panic!("client {}: {other:?}", sessions.len()),
        }
    }
}

#[test]
fn no_number_is_given_out_twice() {
    let faults = KvFaults::all(30_000);
    for seed in 0..3 {
        let mut world = World::new(seed, KvFaults::default());
        let mut sessions = BTreeSet::new();
        for round in 0..3 {
            world.kv.set_faults(faults);
            for _ in 0..600 {
                let (_, session) = world.connect(SessionWish::New);
                assert!(sessions.insert(session), "seed {seed}, round {round}: {session:?}");
            }
            world.kv.set_faults(KvFaults::default());
            world.restart();
        }
    }
}
