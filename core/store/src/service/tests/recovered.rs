//! Writers that are lost in the middle of a block: what they have left is recovered, whoever dies meanwhile.

use super::*;
use crate::keys::{inode_key, map_chunk_key, unsettled_key};
use crate::kv::Kv as _;
use crate::records::{WriterRecord, from_value, to_value};
use crate::tree::TreeMutant;
use alloc::collections::BTreeSet;
use alloc::format;

pub(super) const SECOND: &str = "nvme-tcp://127.0.0.2:4420/nqn?ns=1";

/// What lies at the places of blocks: a number stands for all bytes of one.
#[derive(Debug, Default)]
pub(super) struct Disks {
    pub bytes: BTreeMap<(NamespaceId, u64), u32>,
    /// Targets that do not answer.
    pub dead: BTreeSet<String>,
    /// Targets that can be read, and not written.
    pub read_only: BTreeSet<String>,
    /// Recoveries that were carried out.
    pub recoveries: usize,
    /// Moves that were carried out, or tried.
    pub moves: usize,
}

impl Disks {
    /// Checksums are the number that stands for the bytes, and the generation.
    pub fn copy(&mut self, block: &MoveBlock) -> Result<TierAnswer, String> {
        self.moves += 1;
        assert_eq!(block.checksums.len() as u64, block.length.div_ceil(BLOCK));
        let is_there = |copy: &&BlockCopy| !self.dead.contains(&copy.target);
        let bytes = |copy: &BlockCopy| self.bytes.get(&(copy.namespace, copy.offset)).copied().unwrap_or_default();
        let is_good = |copy: &&BlockCopy| block.checksums.iter().all(|sum| *sum == bytes(copy));
        let source = block.sources.iter().filter(is_there).find(is_good);
        let source = source.ok_or_else(|| format!("{}: connection refused", block.sources[0].target))?;
        if self.dead.contains(&block.to.target) || self.read_only.contains(&block.to.target) {
            return Ok(TierAnswer::NotWritten { why: format!("{}: connection refused", block.to.target) });
        }
        let bytes = bytes(source);
        self.bytes.insert((block.to.namespace, block.to.offset), bytes);
        Ok(TierAnswer::Moved { checksums: vec![bytes; block.checksums.len()] })
    }

    pub fn recover(&mut self, block: &RecoverBlock) -> Result<TierAnswer, String> {
        self.recoveries += 1;
        let source = block.copies.iter().find(|copy| !self.dead.contains(&copy.target));
        let source = source.ok_or_else(|| format!("{}: connection refused", block.copies[0].target))?;
        let bytes = self.bytes.get(&(source.namespace, source.offset)).copied().unwrap_or_default();
        let mut good = vec![source.index];
        for copy in &block.copies {
            if copy != source && !self.dead.contains(&copy.target) && !self.read_only.contains(&copy.target) {
                self.bytes.insert((copy.namespace, copy.offset), bytes);
                good.push(copy.index);
            }
        }
        good.sort_unstable();
        Ok(TierAnswer::Recovered { checksums: vec![bytes; block.length.div_ceil(BLOCK) as usize], good })
    }
}

/// A file of so many copies with one block, half written over by a client that is lost then: another client, and the file.
fn half_written(world: &mut World, copies: u8) -> (ConnectionId, InodePath) {
    if copies > 1 {
        let (operator, _) = world.connect(SessionWish::None);
        world.drives.insert(SECOND.into(), LabelFound::Blank);
        assert!(matches!(world.donate(operator, SECOND, "dram", false), Answer::Donated { .. }));
    }
    let (lost, other) = (world.client(), world.client());
    let entry = EntryPath { container: InodeId::ROOT, name: name("a") };
    let new = NewInode { copies, ..new_inode() };
    let open = Request::OpenNew { slot: 0, sequence: 1, entry, new, content: Vec::new(), exclusive: true };
    let Answer::Opened { handle, at, .. } = world.ask_until(lost, &open) else { panic!("it is not opened") };
    let granted = world.granted(lost, handle, 2);
    let published: Vec<_> = (0..).zip(&granted).map(|(n, new)| (n, record(new, BLOCK))).collect();
    assert!(matches!(world.publish(lost, handle, 2, 2 * BLOCK, &published), Answer::Changed { .. }));
    for (number, block) in &published {
        assert_eq!(block.copies.len(), usize::from(copies));
        world.disks.bytes.extend(block.copies.iter().map(|copy| ((copy.namespace, copy.offset.get()), 7)));
        if *number == 1 {
            assert_eq!(world.ask_until(lost, &Request::Unsettle { handle, block: 1 }), Answer::Done {});
            // The first copy is written, and the client is killed.
            world.disks.bytes.insert((block.copies[0].namespace, block.copies[0].offset.get()), 8);
        }
    }
    world.give(ServiceEvent::Disconnected(lost));
    (other, at)
}

pub(super) fn chunk(world: &mut World, at: InodePath) -> MapChunk {
    let found = world.kv.store_mut().get(&map_chunk_key(at.inode, 0)).expect("it answers").expect("a chunk");
    from_value(&found.value).expect("a chunk")
}

/// Time passes, in which a client renews its session.
pub(super) fn wait(world: &mut World, client: ConnectionId, seconds: u64) {
    for _ in 0..seconds * 5 {
        world.pass(Nanos::from_millis(200));
        world.ask(client, Request::Renew { epoch: Epoch(1 << 40) });
    }
}

/// Every block is settled, its copies are the same, and its checksums are theirs.
fn is_whole(world: &mut World, at: InodePath, copies: usize) {
    let chunk = chunk(world, at);
    assert_eq!(chunk.blocks.len(), 2);
    for block in &chunk.blocks {
        assert!(!block.is_unsettled && block.copies.len() == copies, "{block:?}");
        for copy in &block.copies {
            let bytes = world.disks.bytes[&(copy.namespace, copy.offset.get())];
            assert_eq!(block.checksums, vec![bytes; 1], "{block:?}");
        }
    }
    assert_eq!(world.count(KeySpace::Unsettled), 0);
}

#[test]
fn what_a_lost_writer_has_left_is_recovered() {
    for copies in [1, 2] {
        each(|world| {
            let (other, at) = half_written(world, copies);
            assert!(chunk(world, at).blocks[1].is_unsettled && world.count(KeySpace::Unsettled) == 1);
            let open = Request::Open { at, write: true };
            assert_eq!(failed(&world.ask_until(other, &open)), Some(StoreError::Busy), "its lease goes on");
            assert_eq!(world.disks.recoveries, 0, "its writes may be on their way");
            wait(world, other, 12);
            is_whole(world, at, copies.into());
            assert!(matches!(world.ask_until(other, &open), Answer::Opened { .. }));
        });
    }
}

/// A client that goes on has closed the file, and published nothing of what it has written over.
#[test]
fn what_a_client_gives_up_is_recovered_while_it_goes_on() {
    each(|world| {
        let (other, at) = half_written(world, 2);
        wait(world, other, 12);
        let Answer::Opened { handle, .. } = world.ask_until(other, &Request::Open { at, write: true }) else {
            panic!("it is not opened")
        };
        assert_eq!(world.ask_until(other, &Request::Unsettle { handle, block: 0 }), Answer::Done {});
        let copy = chunk(world, at).blocks[0].copies[1];
        world.disks.bytes.insert((copy.namespace, copy.offset.get()), 9);
        assert_eq!(world.ask_until(other, &Request::Close { handle }), Answer::Done {});
        let answer = world.ask_until(other, &Request::Open { at, write: true });
        assert_eq!(failed(&answer), Some(StoreError::Recovering), "nor does it write there itself");
        wait(world, other, 5);
        is_whole(world, at, 2);
        assert!(matches!(world.ask_until(other, &Request::Open { at, write: true }), Answer::Opened { .. }));
    });
}

#[test]
fn nobody_writes_a_file_before_it_is_recovered() {
    let opened_early = |mutant: Option<TreeMutant>| {
        let mut world = World::with_drive(1, KvFaults::default());
        let (other, at) = half_written(&mut world, 1);
        world.service.tree.plant(mutant);
        world.disks.dead.insert(TARGET.into());
        wait(&mut world, other, 12);
        let answer = world.ask(other, Request::Open { at, write: true });
        (failed(&answer), matches!(answer, Answer::Opened { .. }))
    };
    assert_eq!(opened_early(None), (Some(StoreError::Recovering), false));
    assert_eq!(opened_early(Some(TreeMutant::UnsettledTaken)), (None, true), "the mistake is seen");
}

#[test]
fn a_block_that_cannot_be_read_is_named_and_tried_again() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (other, at) = half_written(&mut world, 2);
    world.disks.dead.extend([TARGET.into(), SECOND.into()]);
    wait(&mut world, other, 12);
    assert!(chunk(&mut world, at).blocks[1].is_unsettled && world.disks.recoveries > 1);
    let status = |world: &mut World| match world.ask(other, Request::Status {}) {
        Answer::Status { status } => status.trouble.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    let told = status(&mut world);
    assert!(told.contains(&format!("inode {}, block 1: nvme-tcp://127.0.0.", at.inode)), "{told}");
    world.disks.dead.clear();
    wait(&mut world, other, 6);
    is_whole(&mut world, at, 2);
    assert_eq!(status(&mut world), "");
}

#[test]
fn copies_that_cannot_be_written_are_marked_out() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (other, at) = half_written(&mut world, 2);
    let mapped: u64 = world.namespaces(other).iter().map(|info| info.mapped).sum();
    world.disks.read_only.extend([TARGET.into(), SECOND.into()]);
    wait(&mut world, other, 12);
    let block = chunk(&mut world, at).blocks.remove(1);
    assert!(!block.is_unsettled && block.copies.len() == 1 && block.checksums.len() == 1, "{block:?}");
    let left: u64 = world.namespaces(other).iter().map(|info| info.mapped).sum();
    assert_eq!(left, mapped - BLOCK, "its bytes are given up");
}

#[test]
fn a_deleted_file_keeps_its_blocks_while_they_are_recovered() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (other, at) = half_written(&mut world, 1);
    let entry = EntryPath { container: InodeId::ROOT, name: name("a") };
    let delete = NameChange::Delete { entry, recursive: false };
    let deleted = world.ask_until(other, &Request::Change { slot: 0, sequence: 1, change: delete });
    assert!(matches!(deleted, Answer::Changed { .. }), "{deleted:?}");
    wait(&mut world, other, 80);
    // Nobody had it open: its blocks went without being written.
    assert_eq!(world.disks.recoveries, 0);
    let left = [KeySpace::MapChunk, KeySpace::Unsettled, KeySpace::Orphan, KeySpace::Writer];
    assert_eq!(left.map(|space| world.count(space)), [0; 4]);
    assert_eq!(world.kv.store_mut().get(&inode_key(at.inode)), Ok(None));
}

/// The service is killed after every event of a recovery, with what the event had asked for made or not.
#[test]
fn a_service_that_is_killed_at_any_step_recovers_in_the_end() {
    let (mut steps, mut recovered) = (0, 0);
    for kill in 0.. {
        let mut world = World::with_drive(kill, KvFaults::default());
        let (other, at) = half_written(&mut world, 2);
        // Until the session is about to be over: those steps are the sessions'.
        wait(&mut world, other, 2);
        world.dies_in = Some(kill);
        for _ in 0..40 {
            world.pass(Nanos::from_millis(200));
        }
        let is_over = world.dies_in.take().is_some_and(|left| left > 0);
        recovered += usize::from(world.disks.recoveries > 0);
        // Whatever the dead one had sent has come to its end.
        world.restart();
        for _ in 0..60 {
            world.pass(Nanos::from_millis(200));
        }
        is_whole(&mut world, at, 2);
        steps = kill;
        if is_over {
            break;
        }
    }
    assert!(steps > 40 && recovered > 3, "{steps} steps, {recovered} of them after drives were written");
}

#[test]
fn an_index_that_says_nothing_stops_nothing() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (_, at) = world.file(client, "small", 1);
    // One of a file without blocks, and one of no file.
    for file in [at.inode, InodeId(99)] {
        let write = crate::kv::KvWrite::Put(unsettled_key(file, 3), to_value(&WriterRecord::default()));
        world.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: vec![write] });
    }
    let (other, at) = half_written(&mut world, 1);
    wait(&mut world, other, 12);
    assert!(!chunk(&mut world, at).blocks[1].is_unsettled);
}

/// A power cut takes what the medium does not have. Without its mark a block that was written over has checksums of other bytes.
#[test]
fn a_block_is_marked_as_unsettled_when_the_medium_has_the_mark() {
    let marks = |mutant: Option<crate::mutant::Mutant>| {
        let mut world = World::with_drive(1, KvFaults::default());
        world.medium_stalls = true;
        world.restart_with(mutant);
        let client = world.client();
        let (handle, _) = world.file(client, "a", 1);
        let granted = world.granted(client, handle, 1);
        let published = [(0, record(&granted[0], BLOCK))];
        assert!(matches!(world.publish(client, handle, 2, BLOCK, &published), Answer::Changed { .. }));
        let number = RequestNumber(9001);
        world.give(ServiceEvent::Message(client, number, Request::Unsettle { handle, block: 0 }));
        for _ in 0..20 {
            world.pass(Nanos::from_millis(20));
            world.give(ServiceEvent::Durable(Revision(3)));
        }
        let early = world.answers.remove(&(client, number));
        world.give(ServiceEvent::Durable(Revision(u64::MAX)));
        early.is_some() || world.answers.remove(&(client, number)) != Some(Answer::Done {})
    };
    assert!(!marks(None));
    assert!(marks(Some(crate::mutant::Mutant::UnsettleBeforeDurable)), "the mistake is seen");
}
