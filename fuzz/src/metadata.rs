//! The store's metadata protocol: whole conversations of hostile clients with a service over an uncertain key-value store, and bytes that may be frames.
//!
//! ```text
//!   bytes ──▶ request::Script ──▶ frames (made right, then perhaps broken) ──▶ FrameReader ──▶ Request ──▶ Service ──▶ FaultyKv
//!                                                                                          world::World ◀── answers
//! ```
//! A client that does nothing wrong, the victim, has written a file and was granted more blocks. Whatever others say, who know each number of it but its token, the
//! file keeps its bytes and the session its grants ([`World::check`](world::World)); in the end it publishes what it was granted, and fsck finds nothing.
//! Names are anybody's: to delete or rename the victim's file is no finding, it has it open.
//!
//! [`PLANTED`] shows that this can fail: services that leave out a check.

mod request;
mod world;

use crate::{Target, checked, target};
use request::Script;
use weir_store::protocol::{Answer, FrameReader, Request};
use world::World;

/// A check that a service leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Any token resumes a session.
    AnyToken,
    /// A handle is not held against the session that has it.
    AnyHandle,
    /// Granted bytes are returned by whoever names them.
    AnyGrant,
    /// A commit is made whatever it expects.
    NoExpectations,
}

/// Conversations: a byte that chooses how uncertain the key-value store is, one of its seed, and steps.
pub fn meta_service(data: &[u8]) {
    converse(data, Fault::None);
}

/// Bytes in pieces as a socket brings them; what is a message is written as it was read.
pub fn meta_frames(data: &[u8]) {
    let Some((piece, mut rest)) = data.split_first() else { return };
    let (mut reader, mut pushed) = (FrameReader::default(), 0);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(usize::from(*piece).max(1)));
        (rest, pushed) = (later, pushed + now.len());
        reader.push(now);
        loop {
            assert!(reader.waiting() <= pushed, "it holds what was pushed alone");
            match reader.next() {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Ok((number, request)) = Request::decode(frame) {
                        let again = request.encode(number).expect("as long as it was");
                        assert_eq!(Request::decode(&again[4..]), Ok((number, request)));
                    }
                    if let Ok((number, answer)) = Answer::decode(frame) {
                        let again = answer.encode(number).expect("as long as it was");
                        assert_eq!(Answer::decode(&again[4..]), Ok((number, answer)));
                    }
                }
            }
        }
    }
}

fn converse(data: &[u8], fault: Fault) {
    let Some((head, steps)) = data.split_first_chunk::<2>() else { return };
    let mut world = World::new(u64::from(head[1]), fault);
    // Up to a request in five.
    world.trouble(u32::from(head[0] & 7) * 30_000);
    let mut script = Script(steps);
    while let Some(step) = script.byte() {
        world.step(step, &mut script);
    }
    checked(world.checks());
    world.end();
}

/// Services with a planted fault each: what they do is to be found.
pub const PLANTED: &[Target] = &[
    planted("meta_any_token", |data| converse(data, Fault::AnyToken)),
    planted("meta_any_handle", |data| converse(data, Fault::AnyHandle)),
    planted("meta_any_grant", |data| converse(data, Fault::AnyGrant)),
    planted("meta_no_expectations", |data| converse(data, Fault::NoExpectations)),
];

const fn planted(name: &'static str, run: fn(&[u8])) -> Target {
    Target { seeds: service_seeds, ..target(name, run, 512) }
}

/// A frame of each kind of request.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let mut script = Script(&[1; 400]);
    let mut all: Vec<Vec<u8>> = (0..request::KINDS)
        .map(|kind| {
            let request = request::request(kind, &mut script, &request::Known::default());
            let frame = request.encode(weir_store::protocol::RequestNumber(7)).expect("it is short");
            [&[255], &frame[..]].concat()
        })
        .collect();
    let whole: Vec<u8> = all.iter().flat_map(|seed| &seed[1..]).copied().collect();
    all.push([&[13], &whole[..]].concat());
    all
}

/// Clients that greet, write files of their own, and ask for what is another's.
pub fn service_seeds() -> Vec<Vec<u8>> {
    request::seeds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{self, Limits, Progress};
    use crate::mutate::Mutator;

    fn run(target: &Target, seed: u64, steps: u64) -> engine::Outcome {
        let mutator = Mutator::new(target, Vec::new());
        engine::run(target, &mutator, seed, Limits { from: 0, steps, time: None }, &Progress::default())
    }

    #[test]
    fn nothing_is_found_in_a_service_that_checks_everything() {
        let service = Target { seeds: service_seeds, ..target("meta_service", meta_service, 512) };
        let frames = Target { seeds: frame_seeds, ..target("meta_frames", meta_frames, 2048) };
        for (target, steps) in [(service, 300), (frames, 5000)] {
            let found = run(&target, 1, steps).finding;
            assert!(found.is_none(), "{}: {found:?}", target.name);
        }
    }

    #[test]
    fn every_planted_fault_is_found() {
        for target in PLANTED {
            for seed in 0..3 {
                let found = run(target, seed, 2000).finding.map(|found| (found.step, found.failure));
                println!("{}, seed {seed}: {found:?}", target.name);
                assert!(found.is_some(), "{}, seed {seed}", target.name);
            }
        }
    }
}
