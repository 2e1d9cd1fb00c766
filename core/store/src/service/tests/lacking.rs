//! Copies that writers have marked out are made again: on the node that had them, or on another one, whoever dies meanwhile.

use super::moved::{THIRD, add_drive, file, is_right};
use super::recovered::{SECOND, chunk, wait};
use super::*;
use crate::keys::short_key;
use crate::kv::{Kv as _, KvWrite};
use crate::records::{ShortRecord, to_value};

/// No namespace has that number.
const NONE: NamespaceId = NamespaceId(99);

/// A file with two copies of each of its three blocks, open for writing, whose writer has marked out one copy of the first and of the last.
fn marked_out(world: &mut World, client: ConnectionId) -> (InodePath, u64) {
    let at = file(world, client, "a", 3, 2);
    let opened = world.ask_until(client, &Request::Open { at, write: true });
    let Answer::Opened { handle, .. } = opened else { panic!("{opened:?}") };
    for (block, kept) in [(0, 1), (2, 0)] {
        let copies = vec![chunk(world, at).blocks[block as usize].copies[kept]];
        let answer = world.ask_until(client, &Request::MarkOut { handle, block, copies });
        assert_eq!(answer, Answer::Done {});
    }
    (at, handle)
}

/// What is told to be wrong.
fn status(world: &mut World, client: ConnectionId) -> alloc::string::String {
    match world.ask_until(client, &Request::Status {}) {
        Answer::Status { status } => status.trouble.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

fn copies(world: &mut World, at: InodePath) -> Vec<usize> {
    chunk(world, at).blocks.iter().map(|block| block.copies.len()).collect()
}

#[test]
fn a_copy_that_a_writer_has_marked_out_is_made_again() {
    each(|world| {
        let client = world.client();
        add_drive(world, client, SECOND, "dram");
        let (at, handle) = marked_out(world, client);
        assert_eq!(world.count(KeySpace::Short), 1);
        // Not under its writer, whose session knows the old places.
        wait(world, client, 6);
        assert_eq!(copies(world, at), [1, 2, 1]);
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
        wait(world, client, 12);
        is_right(world, at, 2, NONE);
        assert_eq!((world.count(KeySpace::Short), status(world, client).as_str()), (0, ""));
        let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
        assert_eq!(granted, 0, "nothing is left with the service");
    });
}

/// The other node is gone: a further one gets the copies as soon as it is there, and until then it is told why there are none.
#[test]
fn a_copy_goes_to_another_node_where_the_first_is_gone() {
    let world = &mut World::with_drive(1, KvFaults::default());
    let client = world.client();
    let second = add_drive(world, client, SECOND, "dram");
    let (at, handle) = marked_out(world, client);
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    wait(world, client, 12);
    let opened = world.ask_until(client, &Request::Open { at, write: true });
    let Answer::Opened { handle, .. } = opened else { panic!("{opened:?}") };
    let first = chunk(world, at).blocks[0].clone();
    let copies: Vec<Extent> = first.copies.into_iter().filter(|copy| copy.namespace != second).collect();
    assert_eq!(world.ask_until(client, &Request::MarkOut { handle, block: 0, copies }), Answer::Done {});
    world.disks.dead.insert(SECOND.into());
    world.drives.remove(SECOND);
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    wait(world, client, 6);
    assert_eq!(chunk(world, at).blocks[0].copies.len(), 1);
    let told = status(world, client);
    assert!(told.starts_with("blocks that lack a copy, tried again: 1: "), "{told}");
    add_drive(world, client, THIRD, "dram");
    wait(world, client, 20);
    is_right(world, at, 2, second);
    assert_eq!((world.count(KeySpace::Short), status(world, client).as_str()), (0, ""));
}

/// The service is killed after every event of it, with what the event had asked for made or not.
#[test]
fn a_service_that_is_killed_at_any_step_makes_them_in_the_end() {
    let (mut steps, mut made) = (0, 0);
    for kill in 0.. {
        let mut world = World::with_drive(kill, KvFaults::default());
        let client = world.client();
        add_drive(&mut world, client, SECOND, "dram");
        let (at, handle) = marked_out(&mut world, client);
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
        world.dies_in = Some(kill);
        for _ in 0..20 {
            world.pass(Nanos::from_millis(200));
        }
        let is_over = world.dies_in.take().is_some_and(|left| left > 0);
        made += usize::from(world.disks.moves > 0);
        world.restart();
        for _ in 0..60 {
            world.pass(Nanos::from_millis(200));
        }
        is_right(&mut world, at, 2, NONE);
        assert_eq!(world.count(KeySpace::Short), 0);
        let client = world.client();
        let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
        assert_eq!(granted, 0, "what the dead one was granted is nobody's");
        steps = kill;
        if is_over {
            break;
        }
    }
    assert!(steps > 40 && made > 10, "{steps} steps, {made} of them after a block was copied");
}

#[test]
fn an_index_that_says_nothing_is_emptied_and_stops_nothing() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    add_drive(&mut world, client, SECOND, "dram");
    let whole = file(&mut world, client, "whole", 2, 2);
    for (file, chunk) in [(whole.inode, 0), (whole.inode, 3), (InodeId(99), 0)] {
        let write = KvWrite::Put(short_key(file, chunk), to_value(&ShortRecord { copies: 2 }));
        world.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: vec![write] });
    }
    let (at, handle) = marked_out(&mut world, client);
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    wait(&mut world, client, 12);
    is_right(&mut world, at, 2, NONE);
    is_right(&mut world, whole, 2, NONE);
    assert_eq!(world.count(KeySpace::Short), 0);
}
