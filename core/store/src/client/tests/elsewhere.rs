//! Reads of files with two copies while a drive does not answer.

use super::world::{FAR, World, open_new};
use crate::NamespaceId;
use crate::client::{ClientEvent, DriveId, FileWork, OpenFileId};
use crate::protocol::{Answer, NamespaceState, Request};
use alloc::string::ToString;
use alloc::vec;
use weir_units::Nanos;

/// A client with a published file with so many copies, of which nothing is cached.
fn reader(copies: u8) -> (World, usize, OpenFileId) {
    let mut world = World::new(5);
    let (writer, who) = (world.client(None), world.client(None));
    let opened = world.open(writer, open_new("f", copies));
    world.write(writer, opened.file, 0, &vec![1; 60_000]).expect("a write");
    world.run(writer, opened.file, FileWork::Close, b"").expect("closed");
    let file = world.open(who, Request::Open { at: opened.at, write: false }).file;
    (world, who, file)
}

/// The drives that have a command, and their namespaces.
fn busy(world: &World, who: usize) -> vec::Vec<(DriveId, NamespaceId)> {
    let drives = world.clients[who].drives.iter().filter(|(_, drive)| !drive.commands.is_empty());
    drives.map(|(id, drive)| (*id, drive.namespace)).collect()
}

/// All drives stand still, and a read is at one of them.
fn stands_still(world: &mut World, who: usize, file: OpenFileId) -> (crate::client::WorkId, DriveId, NamespaceId) {
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    let read = world.start(who, file, FileWork::Read(0, 100), b"", FAR);
    world.until("it is at a drive", |world| !busy(world, who).is_empty());
    let (drive, namespace) = busy(world, who)[0];
    world.stalled = vec![namespace];
    world.run_for(Nanos::from_secs(1));
    assert_eq!(busy(world, who), [(drive, namespace)], "nothing says that the drive does not answer");
    (read, drive, namespace)
}

#[test]
fn reads_go_elsewhere_when_a_connection_is_lost() {
    let (mut world, who, file) = reader(2);
    let (read, drive, lost) = stands_still(&mut world, who, file);
    world.give(who, ClientEvent::Trouble(drive, Some("refused".to_string())));
    assert_eq!(world.io(who, read), (Ok(100), vec![1; 100]));
    // What comes later does not wait for it either.
    let read = world.start(who, file, FileWork::Read(100, 100), b"", FAR);
    world.until("it is read", |world| {
        assert!(!busy(world, who).iter().any(|(_, namespace)| *namespace == lost));
        world.clients[who].finished.contains_key(&read)
    });
    assert_eq!(world.io(who, read), (Ok(100), vec![1; 100]));
    world.give(who, ClientEvent::Trouble(drive, None));
    world.start(who, file, FileWork::Read(200, 100), b"", FAR);
    world.until("the drive is read again", |world| busy(world, who).contains(&(drive, lost)));
}

#[test]
fn what_is_nowhere_else_waits_for_its_drive() {
    let (mut world, who, file) = reader(1);
    let (read, drive, lost) = stands_still(&mut world, who, file);
    world.give(who, ClientEvent::Trouble(drive, Some("refused".to_string())));
    world.run_for(Nanos::from_secs(1));
    assert_eq!(busy(&world, who), [(drive, lost)]);
    world.stalled.clear();
    world.give(who, ClientEvent::Trouble(drive, None));
    assert_eq!(world.io(who, read), (Ok(100), vec![1; 100]));
}

/// Where no drive answers a read waits for one of them.
#[test]
fn a_read_does_not_leave_one_lost_drive_for_another() {
    let (mut world, who, file) = reader(2);
    let (read, first, lost) = stands_still(&mut world, who, file);
    world.give(who, ClientEvent::Trouble(first, Some("refused".to_string())));
    world.stalled = vec![NamespaceId(1), NamespaceId(2)];
    world.until("it is at the other drive", |world| busy(world, who).iter().any(|(_, at)| *at != lost));
    let second = busy(&world, who).iter().find(|(_, at)| *at != lost).expect("there is one").0;
    world.give(who, ClientEvent::Trouble(second, Some("refused".to_string())));
    world.run_for(Nanos::from_secs(1));
    assert_eq!(busy(&world, who).iter().map(|(drive, _)| *drive).collect::<vec::Vec<_>>(), [second]);
    world.stalled.clear();
    assert_eq!(world.io(who, read), (Ok(100), vec![1; 100]));
}

/// A drive that the service cannot reach is not opened for what is elsewhere.
#[test]
fn a_drive_that_the_service_cannot_reach_is_read_last() {
    for copies in [1, 2] {
        let (mut world, who, file) = reader(copies);
        let first = {
            let (mut world, who, file) = reader(copies);
            stands_still(&mut world, who, file).2
        };
        let mut namespaces = world.namespaces();
        namespaces
            .iter_mut()
            .filter(|info| info.namespace == first)
            .for_each(|info| info.state = NamespaceState::Unreachable);
        let kind = Request::Namespaces {}.kind();
        world.clients[who].instead = vec![(kind, Answer::Namespaces { namespaces }); 8];
        assert_eq!(world.read(who, file, 0, 100), Ok(vec![1; 100]));
        let opened = world.clients[who].drives.values().any(|drive| drive.namespace == first);
        assert_eq!(opened, copies == 1, "what is nowhere else is tried there all the same");
    }
}
