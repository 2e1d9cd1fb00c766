//! The session: renewed, over, and what is acknowledged with it.

use super::world::{FAR, LEASE, World, open_new};
use crate::client::{ClientEvent, ClientFault, FileWork, Outcome};
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request};
use crate::{NamespaceId, StoreError};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

fn gone() -> Answer {
    Answer::Failed { error: StoreError::SessionGone, detail: String::new() }
}

/// The service says to one request that the session is gone: everything is over at once, also what a drive does from then on.
fn told_once(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(1);
    let who = world.client(mutant);
    let file = world.create(who, "f", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    world.run(who, file, FileWork::Flush, b"").expect("a flush");
    world.read(who, file, 0, 100).expect("a read");
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    let read = world.start(who, file, FileWork::Read(0, 100_000), b"", FAR);
    world.run_for(Nanos::from_millis(50));
    let kind = Request::Namespaces {}.kind();
    world.clients[who].instead = vec![(kind, gone())];
    let answer = world.ask(who, Request::Namespaces {});
    assert_eq!(answer.expect_err("the session is gone").fault, ClientFault::SessionOver);
    // The drive does what it was told, long before the lease is over on this client's own clock.
    world.stalled.clear();
    let (read, _) = world.io(who, read);
    let later = world.run(who, file, FileWork::Flush, b"");
    let is_over = |result: &Result<u32, crate::client::ClientFailure>| {
        result.as_ref().is_err_and(|failure| failure.fault == ClientFault::SessionOver)
    };
    is_over(&read) && is_over(&later)
}

#[test]
fn a_session_that_is_gone_stops_everything_at_once() {
    assert!(told_once(None));
    for mutant in [Mutant::GoneOnlyForOne, Mutant::StopAtTicks] {
        let found = std::panic::catch_unwind(|| told_once(Some(mutant)));
        assert!(!found.unwrap_or(false), "{mutant:?} is not found");
    }
}

#[test]
fn a_client_that_cannot_renew_stops_before_its_lease_is_over_and_sleeps() {
    let mut world = World::new(2);
    let who = world.client(None);
    let file = world.create(who, "f", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    let waiting = world.start(who, file, FileWork::Flush, b"", FAR);
    world.disconnect(who);
    world.clients[who].wish = None;
    let ask = world.number(who);
    world.give(who, ClientEvent::Ask(ask, Request::Namespaces {}, FAR));
    let begun = world.now;
    world.until("it stops", |world| world.clients[who].finished.contains_key(&ask));
    assert!(world.now < begun.saturating_add(LEASE), "in time");
    let Outcome::Answer(Err(failure)) = world.finish(who, ask) else { panic!("it is answered") };
    assert_eq!(failure.fault, ClientFault::SessionOver);
    world.io(who, waiting).0.expect_err("it is over");
    // Nothing is due any more, and every drive is let go of.
    world.run_for(Nanos::from_millis(200));
    let client = &world.clients[who];
    assert_eq!((client.machine.due(), client.drives.len(), client.machine.has_work()), (Nanos::NEVER, 0, false));
    let failure = world.read(who, file, 0, 10).expect_err("it is over");
    assert_eq!(failure.fault, ClientFault::SessionOver);
}

/// While a drive may still carry out a write that was given up nothing newer is acknowledged than what was before, and the file is not closed: its
/// half-written block would be recovered.
fn doubt(mutant: Option<Mutant>) -> bool {
    let mut world = World::new(3);
    let who = world.client(mutant);
    let file = world.create(who, "f", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    world.run(who, file, FileWork::Flush, b"").expect("a flush");
    world.write(who, file, 0, &[2; 4096]).expect("a write");
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    let until = world.now.saturating_add(Nanos::from_millis(50));
    let write = world.start(who, file, FileWork::Write(0, 4096), &[3; 4096], until);
    world.until("it is at a drive", |world| world.clients[who].drives.values().any(|drive| !drive.commands.is_empty()));
    // It is given up, and the drive has it still.
    let id = *world.clients[who].drives.iter().find(|(_, drive)| !drive.commands.is_empty()).expect("a drive").0;
    let command = world.clients[who].drives[&id].commands[0].clone();
    world.until("it is given up", |world| world.clients[who].drives[&id].commands[0].is_aborted);
    let drive = world.clients[who].drives.get_mut(&id).expect("a drive");
    drive.commands.clear();
    drive.late.push((0, vec![]));
    world.give(who, ClientEvent::Doubt(id, true));
    world.give(who, ClientEvent::Done(command.id, Err(crate::file::DriveFailure)));
    world.io(who, write).0.expect_err("it is late");
    world.give(who, ClientEvent::Forget(file));
    // The store goes on to another epoch, and all are to acknowledge it.
    let renewed = |epoch| Answer::Renewed { epoch: crate::space::Epoch(epoch) };
    let kind = Request::Renew { epoch: crate::space::Epoch(0) }.kind();
    world.clients[who].instead = vec![(kind, renewed(50)), (kind, renewed(50)), (kind, renewed(50))];
    world.clients[who].log.clear();
    let renewals = |world: &World| {
        let epochs = world.clients[who].log.iter().filter_map(|request| match request {
            Request::Renew { epoch } => Some(epoch.0),
            _ => None,
        });
        epochs.collect::<vec::Vec<u64>>()
    };
    world.until("it has renewed", |world| renewals(world).len() >= 3);
    let in_doubt = renewals(&world);
    let closed = |world: &World| world.clients[who].log.iter().any(|request| matches!(request, Request::Close { .. }));
    let is_early = closed(&world);
    world.stalled.clear();
    world.settle_doubt(who, id);
    let is_closed = closed(&world);
    world.clients[who].instead = vec![(kind, renewed(50)), (kind, renewed(50))];
    world.clients[who].log.clear();
    world.until("it has renewed", |world| renewals(world).len() >= 2);
    assert!(in_doubt.iter().all(|epoch| *epoch < 50) && renewals(&world).contains(&50));
    !is_early && is_closed
}

#[test]
fn a_drive_in_doubt_holds_the_acknowledgement_back() {
    assert!(doubt(None));
    assert!(!doubt(Some(Mutant::ClosedInDoubt)), "it is not found");
}

#[test]
fn a_welcome_that_cannot_be_is_refused() {
    let mut world = World::new(4);
    let who = world.client(None);
    let good = world.clients[who].machine.welcome().clone();
    let setup = crate::client::ClientSetup { crc: crate::file::tests::crc, room_timeout: Nanos(1) };
    let refused = |welcome| crate::client::ClientMachine::new(setup, welcome, Nanos(1)).expect_err("it is refused");
    let inline_max = crate::protocol::WelcomeInfo { inline_max: u32::MAX, ..good.clone() };
    assert!(refused(inline_max).contains("4294967295 bytes"));
    let block = crate::protocol::WelcomeInfo { block: 3, ..good.clone() };
    assert!(refused(block).contains("blocks of 3 bytes"));
    let lease = crate::protocol::WelcomeInfo { lease: Nanos(0), ..good.clone() };
    assert!(refused(lease).contains("lease"));
    let drift_ppm = crate::protocol::WelcomeInfo { drift_ppm: u32::MAX, ..good.clone() };
    assert!(refused(drift_ppm).contains("lease"));
    let session = crate::protocol::WelcomeInfo { session: None, ..good };
    assert!(refused(session).contains("session"));
}

/// A service that was started again has no handle of a file that is closed then: it is anybody's to write all the same.
fn released(mutant: Option<Mutant>, is_forgotten: bool) -> bool {
    let mut world = World::new(9);
    let (who, other) = (world.client(mutant), world.client(None));
    let file = world.create(who, "f", 1);
    world.write(who, file, 0, &vec![1; 100_000]).expect("a write");
    world.run(who, file, FileWork::Flush, b"").expect("a flush");
    world.restart();
    world.reconnect(who);
    world.reconnect(other);
    match is_forgotten {
        true => world.give(who, ClientEvent::Forget(file)),
        false => assert_eq!(world.run(who, file, FileWork::Close, b""), Ok(0)),
    }
    world.run_for(Nanos::from_millis(500));
    let until = world.now.saturating_add(Nanos::from_millis(500));
    let open = world.start_open(other, open_new("f", 1), until);
    matches!(world.finish(other, open), Outcome::Opened(Ok(_)))
}

#[test]
fn a_file_that_is_closed_after_a_restart_is_anybodys_to_write() {
    for is_forgotten in [false, true] {
        assert!(released(None, is_forgotten), "forgotten: {is_forgotten}");
        assert!(!released(Some(Mutant::WriterKept), is_forgotten), "it is found");
    }
}

/// A client has a file open for writing once: the second opening is refused, and comes when the first one is closed.
fn opened_twice(mutant: Option<Mutant>, is_forgotten: bool) -> bool {
    let mut world = World::new(11);
    let who = world.client(mutant);
    let first = world.create(who, "f", 1);
    world.write(who, first, 0, &vec![1; 100_000]).expect("a write");
    let second = world.start_open(who, open_new("f", 1), FAR);
    let is_refused = match world.finish(who, second) {
        Outcome::Opened(Err(failure)) => matches!(failure.fault, ClientFault::Store(StoreError::Busy, _)),
        _ => false,
    };
    let close = match is_forgotten {
        true => {
            world.give(who, ClientEvent::Forget(first));
            None
        }
        false => Some(world.start(who, first, FileWork::Close, b"", FAR)),
    };
    let second = world.open(who, open_new("f", 1)).file;
    close.map(|close| world.io(who, close).0.expect("it is closed"));
    world.write(who, second, 0, &[2; 10]).expect("a write");
    world.run(who, second, FileWork::Close, b"").expect("it is closed");
    is_refused
}

#[test]
fn a_client_writes_a_file_by_one_opening() {
    for is_forgotten in [false, true] {
        assert!(opened_twice(None, is_forgotten), "forgotten: {is_forgotten}");
        assert!(!opened_twice(Some(Mutant::TwoWriters), is_forgotten), "it is found");
    }
}

/// A service that was started again knows neither handle of a file that its writer opens once more: the file stays that client's to write, and
/// nothing that it wrote is taken for that of a lost writer.
#[test]
fn a_second_opening_after_a_restart_takes_no_file_from_the_first() {
    let mut world = World::new(12);
    let (who, other) = (world.client(None), world.client(None));
    let first = world.create(who, "f", 1);
    world.write(who, first, 0, &vec![1; 100_000]).expect("a write");
    world.run(who, first, FileWork::Flush, b"").expect("a flush");
    world.write(who, first, 0, &[2; 4096]).expect("a write over published bytes");
    world.restart();
    world.reconnect(who);
    world.reconnect(other);
    let second = world.start_open(who, open_new("f", 1), FAR);
    let Outcome::Opened(Err(failure)) = world.finish(who, second) else { panic!("it is opened twice") };
    assert!(matches!(failure.fault, ClientFault::Store(StoreError::Busy, _)), "{failure:?}");
    world.run_for(Nanos::from_millis(500));
    let until = world.now.saturating_add(Nanos::from_millis(300));
    let open = world.start_open(other, open_new("f", 1), until);
    assert!(matches!(world.finish(other, open), Outcome::Opened(Err(_))), "it is the first one's to write");
    assert_eq!(world.run(who, first, FileWork::Close, b""), Ok(0));
    assert_eq!(world.published("f")[..4096], [2; 4096]);
}

/// Blocks that the service does not give, to writes that are late: the client has room for nothing more, and does not turn in a circle for it.
#[test]
fn room_that_cannot_be_made_is_not_asked_for_without_end() {
    const MOST: u32 = 4 << 20;
    let mut world = World::new(13);
    let who = world.client(None);
    let file = world.create(who, "f", 1);
    let kind = Request::Grant { handle: 0, count: 0 }.kind();
    let later = Answer::Failed { error: StoreError::Unavailable, detail: String::new() };
    world.clients[who].instead = vec![(kind, later); 10_000];
    let bytes = vec![1; MOST as usize];
    let write = |world: &mut World, at: u64| {
        let until = world.now.saturating_add(Nanos::from_millis(50));
        world.start(who, file, FileWork::Write(at * u64::from(MOST), MOST), &bytes, until)
    };
    let works: Vec<_> = (0..4).map(|at| write(&mut world, at)).collect();
    let late = |world: &mut World, work| world.io(who, work).0.expect_err("no block was given");
    works.into_iter().for_each(|work| assert_eq!(late(&mut world, work).fault, ClientFault::Deadline));
    let fifth = write(&mut world, 4);
    assert_eq!(late(&mut world, fifth).fault, ClientFault::Deadline);
    // The service gives blocks again.
    world.clients[who].instead.clear();
    world.write(who, file, 0, &[2; 10]).expect("a write");
    world.run(who, file, FileWork::Close, b"").expect("it is closed");
}
