//! Blocks that leave a namespace which drains or is lost, with files that are read and written meanwhile, and services that die.

use super::recovered::{SECOND, chunk, wait};
use super::*;
use crate::fsck::Image;
use crate::protocol::MovementInfo;
use crate::tree::TreeMutant;

pub(super) const THIRD: &str = "nvme-tcp://127.0.0.3:4420/nqn?ns=1";

/// The number that it gets.
pub(super) fn add_drive(world: &mut World, operator: ConnectionId, target: &str, of: &str) -> NamespaceId {
    world.drives.insert(target.into(), LabelFound::Blank);
    match world.donate(operator, target, of, false) {
        Answer::Donated { namespace } => namespace,
        other => panic!("{other:?}"),
    }
}

/// A file of so many blocks and copies, which nobody has open; the bytes of each are its number and 10.
pub(super) fn file(world: &mut World, client: ConnectionId, at: &str, blocks: u32, copies: u8) -> InodePath {
    let entry = EntryPath { container: InodeId::ROOT, name: name(at) };
    let new = NewInode { copies, ..new_inode() };
    world.next += 1;
    let sequence = world.next;
    let open = Request::OpenNew { slot: 0, sequence, entry, new, content: Vec::new(), exclusive: true };
    let Answer::Opened { handle, at, .. } = world.ask_until(client, &open) else { panic!("it is not opened") };
    let mut published = Vec::new();
    let mut left = Vec::new();
    for number in 0..blocks {
        let new = world.granted(client, handle, 1).remove(0);
        let bytes = number + 10;
        world.disks.bytes.extend(new.copies.iter().map(|copy| ((copy.namespace, copy.offset.get()), bytes)));
        // The last one is cut.
        let length = if number + 1 == blocks { 4096 } else { BLOCK };
        let behind = |copy: &Extent| Extent {
            offset: (copy.offset.get() + length).into(),
            length: (copy.length.get() - length).into(),
            ..*copy
        };
        left.extend(new.copies.iter().map(behind).filter(|extent| extent.length.get() > 0));
        published.push((u64::from(number), BlockRecord { checksums: vec![bytes], ..record(&new, length) }));
    }
    let size = u64::from(blocks - 1) * BLOCK + 5;
    world.next += 1;
    assert!(matches!(world.publish(client, handle, world.next, size, &published), Answer::Changed { .. }));
    assert_eq!(world.ask_until(client, &Request::Return { extents: left }), Answer::Done {});
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    at
}

/// Every copy of every block has its bytes, and none is on that namespace; the metadata contradict themselves nowhere.
pub(super) fn is_right(world: &mut World, at: InodePath, copies: usize, without: NamespaceId) {
    for block in chunk(world, at).blocks {
        assert_eq!(block.copies.len(), copies, "{block:?}");
        for copy in &block.copies {
            assert_ne!(copy.namespace, without, "{block:?}");
            let bytes = world.disks.bytes[&(copy.namespace, copy.offset.get())];
            assert_eq!((bytes, &block.checksums[..]), (block.index + 10, &[bytes][..]), "{block:?}");
        }
        let nodes: std::collections::BTreeSet<_> = block.copies.iter().map(|copy| copy.namespace).collect();
        assert_eq!(nodes.len(), copies);
    }
    let image = Image::read(world.kv.store_mut()).expect("it answers");
    let findings = image.findings(&image.places());
    assert!(findings.is_empty(), "{findings:?}");
}

pub(super) fn drain(world: &mut World, client: ConnectionId, number: u64, drains: bool) {
    let answer = world.ask_until(client, &Request::Drain { namespace: NamespaceId(number), drains });
    assert_eq!(answer, Answer::Done {});
}

fn movement(world: &mut World, client: ConnectionId) -> Vec<MovementInfo> {
    match world.ask_until(client, &Request::Movement {}) {
        Answer::Movement { namespaces } => namespaces,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_namespace_that_drains_is_empty_in_the_end_and_can_be_removed() {
    each(|world| {
        let client = world.client();
        let second = add_drive(world, client, SECOND, "dram");
        let (one, two) = (file(world, client, "a", 5, 1), file(world, client, "b", 3, 2));
        add_drive(world, client, THIRD, "flash");
        drain(world, client, 1, true);
        wait(world, client, 30);
        is_right(world, one, 1, NamespaceId(1));
        is_right(world, two, 2, NamespaceId(1));
        let told = movement(world, client);
        assert_eq!((told.len(), told[0].blocks, told[0].bytes, told[0].is_repair), (1, 0, 0, false), "{told:?}");
        assert!(told[0].moved_blocks >= 3, "{told:?}");
        // Of the same class first; the others' node has a copy of those with two.
        let classes: Vec<_> = chunk(world, one).blocks.iter().map(|block| block.copies[0].namespace).collect();
        assert_eq!(classes, [second; 5]);
        let removed = world.ask_until(client, &Request::Remove { namespace: NamespaceId(1) });
        assert_eq!(removed, Answer::Done {});
        assert_eq!(world.namespaces(client).len(), 2);
        let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
        assert_eq!(granted, 0, "nothing is left with the service");
    });
}

#[test]
fn what_cannot_be_moved_is_told_by_its_reason() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let at = file(&mut world, client, "a", 4, 1);
    drain(&mut world, client, 1, true);
    wait(&mut world, client, 5);
    let told = movement(&mut world, client);
    assert_eq!((told[0].blocks, told[0].no_node, told[0].moved_blocks), (4, 4, 0), "{told:?}");
    // The other drive is on a node of its own, and full.
    world.drive_bytes = 66 << 20;
    add_drive(&mut world, client, SECOND, "dram");
    world.drive_bytes = 1 << 30;
    wait(&mut world, client, 10);
    is_right(&mut world, at, 1, NamespaceId(1));
    let two = file(&mut world, client, "b", 2, 1);
    drain(&mut world, client, 1, false);
    drain(&mut world, client, 2, true);
    let Answer::Opened { handle, .. } = world.ask_until(client, &Request::Open { at, write: true }) else { panic!() };
    wait(&mut world, client, 10);
    let told = movement(&mut world, client);
    assert_eq!((told[0].namespace, told[0].blocks, told[0].has_writer), (NamespaceId(2), 4, 4), "{told:?}");
    is_right(&mut world, two, 1, NamespaceId(2));
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    drain(&mut world, client, 2, false);
    let before = world.disks.moves;
    wait(&mut world, client, 10);
    assert_eq!((world.disks.moves, movement(&mut world, client)), (before, Vec::new()), "it was stopped");
    assert!(chunk(&mut world, at).blocks.iter().all(|block| block.copies[0].namespace == NamespaceId(2)));
}

/// A block whose bytes are wrong stays, and a drive that cannot be written holds up nothing but what goes there.
#[test]
fn a_bad_drive_holds_up_nothing_else() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let at = file(&mut world, client, "a", 4, 1);
    let bad = chunk(&mut world, at).blocks[1].copies[0];
    world.disks.bytes.insert((bad.namespace, bad.offset.get()), 99);
    add_drive(&mut world, client, SECOND, "dram");
    add_drive(&mut world, client, THIRD, "dram");
    world.disks.read_only.insert(SECOND.into());
    drain(&mut world, client, 1, true);
    wait(&mut world, client, 30);
    let told = movement(&mut world, client);
    assert_eq!((told[0].blocks, told[0].failed), (1, 1), "{told:?}");
    assert!(told[0].why.contains(&alloc::format!("inode {}, block 1: ", at.inode)), "{told:?}");
    let blocks = chunk(&mut world, at).blocks;
    assert_eq!(blocks.iter().map(|block| block.copies[0].namespace.get()).collect::<Vec<_>>(), [3, 1, 3, 3]);
    world.disks.bytes.insert((bad.namespace, bad.offset.get()), 11);
    wait(&mut world, client, 15);
    is_right(&mut world, at, 1, NamespaceId(1));
}

/// A file that is opened for writing while its block is copied keeps the block: its writer's session knows the old place.
#[test]
fn a_block_does_not_move_under_a_writer() {
    let moved = |mutant: Option<TreeMutant>| {
        let mut world = World::with_drive(1, KvFaults::default());
        let client = world.client();
        let at = file(&mut world, client, "a", 1, 1);
        add_drive(&mut world, client, SECOND, "dram");
        world.service.tree.plant(mutant);
        drain(&mut world, client, 1, true);
        world.holds_moves = true;
        world.pass(Nanos::from_millis(200));
        assert_eq!(world.held.len(), 1, "it is being copied");
        let opened = world.ask_until(client, &Request::Open { at, write: true });
        assert!(matches!(opened, Answer::Opened { .. }), "{opened:?}");
        world.holds_moves = false;
        for (token, answer) in core::mem::take(&mut world.held) {
            world.give(ServiceEvent::Tier(token, answer));
        }
        wait(&mut world, client, 2);
        chunk(&mut world, at).blocks[0].copies[0].namespace == NamespaceId(2)
    };
    assert!(!moved(None));
    assert!(moved(Some(TreeMutant::MovedUnderWriter)), "the mistake is seen");
}

#[test]
fn a_lost_copy_is_made_again_and_what_had_no_other_is_counted() {
    let world = &mut World::with_drive(1, KvFaults::default());
    let client = world.client();
    let second = add_drive(world, client, SECOND, "dram").get();
    let third = add_drive(world, client, THIRD, "dram").get();
    drain(world, client, second, true);
    drain(world, client, third, true);
    let alone = file(world, client, "a", 2, 1);
    drain(world, client, second, false);
    let both = file(world, client, "b", 3, 2);
    drain(world, client, third, false);
    // Its machine goes, and comes back before it is too late.
    world.disks.dead.insert(TARGET.into());
    let label = world.drives.remove(TARGET).expect("a drive");
    wait(world, client, 4);
    assert_eq!(world.namespaces(client)[0].state, NamespaceState::Unreachable);
    assert_eq!(movement(world, client), []);
    world.disks.dead.clear();
    world.drives.insert(TARGET.into(), label);
    wait(world, client, 8);
    assert_eq!((world.namespaces(client)[0].state, world.disks.moves), (NamespaceState::Up, 0));
    // It goes for good.
    world.disks.dead.insert(TARGET.into());
    world.drives.remove(TARGET);
    wait(world, client, 20);
    is_right(world, both, 2, NamespaceId(1));
    let told = movement(world, client);
    assert_eq!((told.len(), told[0].blocks, told[0].no_copy, told[0].is_repair), (1, 2, 2, true), "{told:?}");
    assert!(chunk(world, alone).blocks.iter().all(|block| block.copies[0].namespace == NamespaceId(1)));
}

/// The service is killed after every event of a drain, with what the event had asked for made or not.
#[test]
fn a_service_that_is_killed_at_any_step_drains_in_the_end() {
    let (mut steps, mut moved) = (0, 0);
    for kill in 0.. {
        let mut world = World::with_drive(kill, KvFaults::default());
        let client = world.client();
        let at = file(&mut world, client, "a", 3, 1);
        add_drive(&mut world, client, SECOND, "dram");
        drain(&mut world, client, 1, true);
        world.dies_in = Some(kill);
        for _ in 0..10 {
            world.pass(Nanos::from_millis(200));
        }
        let is_over = world.dies_in.take().is_some_and(|left| left > 0);
        moved += usize::from(world.disks.moves > 0);
        world.restart();
        for _ in 0..60 {
            world.pass(Nanos::from_millis(200));
        }
        is_right(&mut world, at, 1, NamespaceId(1));
        let client = world.client();
        let granted: u64 = world.namespaces(client).iter().map(|info| info.granted).sum();
        assert_eq!(granted, 0, "what the dead one was granted is nobody's");
        let removed = world.ask_until(client, &Request::Remove { namespace: NamespaceId(1) });
        assert_eq!(removed, Answer::Done {});
        steps = kill;
        if is_over {
            break;
        }
    }
    assert!(steps > 40 && moved > 20, "{steps} steps, {moved} of them after a block was copied");
}
