//! Drives: opened again after a failure, and when their namespace is another one.

use super::world::{FAR, World, target};
use crate::NamespaceId;
use crate::client::{ClientEvent, ClientFault, DriveId, FileWork};
use crate::members::ContentLabel;
use crate::protocol::{Answer, NamespaceState, Request};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

/// A client with a published file of which nothing is cached.
fn reader(seed: u64) -> (World, usize, crate::client::OpenFileId) {
    let mut world = World::new(seed);
    let (writer, who) = (world.client(None), world.client(None));
    let opened = world.open(writer, super::world::open_new("f", 1));
    world.write(writer, opened.file, 0, &vec![1; 60_000]).expect("a write");
    world.run(writer, opened.file, FileWork::Close, b"").expect("closed");
    let file = world.open(who, Request::Open { at: opened.at, write: false }).file;
    (world, who, file)
}

fn open_drive(world: &World, who: usize) -> DriveId {
    *world.clients[who].drives.first_key_value().expect("a drive").0
}

#[test]
fn a_drive_that_could_not_be_opened_once_is_opened_again() {
    let (mut world, who, file) = reader(1);
    let read = world.start(who, file, FileWork::Read(0, 100), b"", FAR);
    world.until("a drive is opened", |world| !world.clients[who].drives.is_empty());
    for _ in 0..3 {
        let Some((id, _)) = world.clients[who].drives.pop_first() else { break };
        world.give(who, ClientEvent::NotOpened(id, "no route".to_string()));
        world.run_for(Nanos::from_millis(20));
        world.clients[who].drives.values_mut().for_each(|drive| drive.commands.retain(|_| true));
    }
    let failure = world.io(who, read);
    if let Err(failure) = failure.0 {
        assert!(failure.drive.as_ref().is_some_and(|drive| drive.contains("no route")), "{failure:?}");
    }
    assert_eq!(world.read(who, file, 0, 100), Ok(vec![1; 100]), "it is opened again");
    assert!(world.clients[who].opened >= 2);
}

#[test]
fn a_drive_whose_namespace_is_another_one_is_opened_anew() {
    for change in 0..3 {
        let (mut world, who, file) = reader(2);
        world.read(who, file, 0, 100).expect("a read");
        let before = open_drive(&world, who);
        let namespace = world.clients[who].drives[&before].namespace;
        let mut namespaces = world.namespaces();
        let info = namespaces.iter_mut().find(|info| info.namespace == namespace).expect("it is known");
        match change {
            0 => info.target = target(77),
            1 => info.label = ContentLabel(77),
            _ => info.state = NamespaceState::Lost,
        }
        // What it has is given up first.
        world.stalled = vec![namespace];
        let read = world.start(who, file, FileWork::Read(0, 100), b"", FAR);
        world.until("it is at the drive", |world| !world.clients[who].drives[&before].commands.is_empty());
        let kind = Request::Namespaces {}.kind();
        world.clients[who].instead = vec![(kind, Answer::Namespaces { namespaces })];
        world.ask(who, Request::Namespaces {}).expect("an answer");
        assert!(world.clients[who].drives[&before].commands.iter().all(|at| at.is_aborted));
        world.until("it is closed", |world| !world.clients[who].drives.contains_key(&before));
        world.stalled.clear();
        let (result, bytes) = world.io(who, read);
        match change {
            2 => {
                let failure = result.expect_err("its content is gone");
                assert!(failure.drive.as_ref().is_some_and(|drive| drive.contains("content is gone")), "{failure:?}");
                // It is back, as the service says.
                world.run_for(Nanos::from_secs(1));
            }
            _ => assert_eq!((result, bytes), (Ok(100), vec![1; 100])),
        }
        assert_eq!(world.read(who, file, 0, 100), Ok(vec![1; 100]));
        let open: Vec<NamespaceId> = world.clients[who].drives.values().map(|drive| drive.namespace).collect();
        assert!(!world.clients[who].drives.contains_key(&before) && open.contains(&namespace));
    }
}

#[test]
fn a_block_of_a_namespace_that_the_store_does_not_have_fails() {
    let (mut world, who, file) = reader(3);
    let mut namespaces = world.namespaces();
    namespaces.clear();
    let kind = Request::Namespaces {}.kind();
    world.clients[who].instead = vec![(kind, Answer::Namespaces { namespaces: Vec::new() }); 8];
    let failure = world.read(who, file, 0, 100).expect_err("there is none");
    assert!(matches!(failure.fault, ClientFault::File(_)), "{failure:?}");
    assert!(failure.drive.as_ref().is_some_and(|drive| drive.contains("the store has no namespace")), "{failure:?}");
    world.clients[who].instead.clear();
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.read(who, file, 0, 100), Ok(vec![1; 100]), "it is asked for again");
}
