//! Requests one by one, with a key-value store that answers at once.

use crate::kv::{
    Commit, CommitOutcome, Expect, Kv, KvAnswer, KvKey, KvRequest, KvWrite, MemoryKv, RANGE_MAX, Revision, Versioned,
};
use crate::mutant::Mutant;
use crate::placement::OwnRoom;
use crate::space::{
    BATCH, BlockPlace, Epoch, ExtentRecord, ExtentUse, GRAIN, GRANT_AHEAD, GrantedExtent, REGION_MIN, RegionInfo,
    RegionLease, RegionUse, Space, SpaceAnswer, SpaceEffect, SpaceError, SpaceEvent, SpaceRequest, SpaceRequestId,
    cut_tail, extent_key, lease_key,
};
use crate::{Extent, Generation, InodeId, NamespaceId, RegionId, ServiceId, SessionId, Term};
use alloc::vec::Vec;

const MIB: u64 = 1 << 20;
const REGION: RegionId = RegionId(1);
const ME: SessionId = SessionId(1);

/// A service and what it knows.
struct Alone {
    space: Space,
    kv: MemoryKv,
    asked: u64,
}

fn info() -> RegionInfo {
    let extent = Extent { namespace: NamespaceId(1), offset: MIB.into(), length: REGION_MIN.into() };
    RegionInfo { id: REGION, extent }
}

fn extent(offset: u64, length: u64) -> Extent {
    Extent { namespace: NamespaceId(1), offset: offset.into(), length: length.into() }
}

impl Alone {
    fn new() -> Self {
        Self::on(MemoryKv::default())
    }

    fn on(kv: MemoryKv) -> Self {
        let mut alone = Alone { space: Space::new(ServiceId(9)), kv, asked: 0 };
        let taken = alone.apply(SpaceEvent::Take(info()));
        assert!(matches!(taken[..], [SpaceEffect::Taken(REGION, _, _)]), "{taken:?}");
        alone
    }

    fn apply(&mut self, event: SpaceEvent) -> Vec<SpaceEffect> {
        let (mut events, mut others) = (alloc::vec![event], Vec::new());
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.space.apply(event, &mut effects);
            for effect in effects {
                match effect {
                    SpaceEffect::Kv(token, request) => {
                        events.push(SpaceEvent::Kv(token, request.perform(&mut self.kv)));
                    }
                    other => others.push(other),
                }
            }
            self.space.check();
        }
        others
    }

    fn ask(&mut self, request: SpaceRequest) -> Result<SpaceAnswer, SpaceError> {
        self.asked += 1;
        let id = SpaceRequestId(self.asked);
        let effects = self.apply(SpaceEvent::Request(id, request));
        match <[SpaceEffect; 1]>::try_from(effects) {
            Ok([SpaceEffect::Answer(answered, result)]) if answered == id => result,
            other => panic!("one answer: {other:?}"),
        }
    }

    fn grant(&mut self, session: SessionId, block: u64, count: u64) -> Result<Vec<GrantedExtent>, SpaceError> {
        let request = SpaceRequest::Grant { session, region: REGION, block, count, with: Commit::default() };
        self.ask(request).map(|answer| match answer {
            SpaceAnswer::Granted(extents) => extents,
            other => panic!("{other:?}"),
        })
    }

    fn publish(&mut self, map: &[Extent], unmap: &[Extent], with: Commit) -> Result<SpaceAnswer, SpaceError> {
        let inode = InodeId(5);
        let map = map.iter().zip(0..).map(|(extent, block)| BlockPlace { extent: *extent, inode, block }).collect();
        let unmap = unmap.iter().map(|extent| (inode, *extent)).collect();
        self.ask(SpaceRequest::Publish { session: ME, map, unmap, with })
    }

    fn usage(&self) -> [u64; 4] {
        let RegionUse { free, granted, mapped, quarantined } = self.space.usage(REGION).unwrap();
        assert_eq!(free + granted + mapped + quarantined, REGION_MIN);
        [granted, mapped, quarantined, free]
    }

    /// As far as a session and the medium go: an epoch is raised, and what may be is released.
    fn pass(&mut self, horizon: u64) {
        self.apply(SpaceEvent::Horizon(Epoch(horizon)));
        (0..4).for_each(|_| assert_eq!(self.apply(SpaceEvent::Tick), []));
    }
}

#[test]
fn what_cannot_be_granted_is_refused() {
    let mut alone = Alone::new();
    for (block, count) in [(0, 1), (GRAIN / 2, 1), (8 * MIB, 1), (3 * GRAIN + 1, 1), (MIB, 0)] {
        assert_eq!(alone.grant(ME, block, count), Err(SpaceError::Malformed), "{count} of {block}");
    }
    let first = alone.grant(ME, 4 * MIB, 3).unwrap();
    assert_eq!(first, [GrantedExtent { extent: extent(MIB, 12 * MIB), generation: Generation(1 << 32) }]);
    assert_eq!(alone.grant(ME, 4 * MIB, 3).unwrap()[0].extent, extent(13 * MIB, 4 * MIB), "16 MiB ahead at the most");
    assert_eq!((alone.grant(ME, 64 << 10, 1), alone.space.granted_to(ME)), (Err(SpaceError::Ahead), GRANT_AHEAD));
    for session in 2..5 {
        assert_eq!(alone.grant(SessionId(session), 4 * MIB, 9).unwrap().len(), 1);
    }
    assert_eq!(alone.grant(SessionId(5), MIB, 1), Err(SpaceError::Full));
    let elsewhere = SpaceRequest::Grant {
        session: SessionId(5),
        region: RegionId(2),
        block: MIB,
        count: 1,
        with: Commit::default(),
    };
    assert_eq!(alone.ask(elsewhere), Err(SpaceError::NotLeased(RegionId(2))));
}

/// A block may be free by and by where quarantine, with what is free beside it, is as long.
#[test]
fn what_will_be_free_is_known() {
    let mut alone = Alone::new();
    for session in 1..5 {
        alone.grant(SessionId(session), 4 * MIB, 4).unwrap();
    }
    let is_freeing = |alone: &Alone, block: u64| alone.space.is_freeing(REGION, block);
    assert!(!is_freeing(&alone, GRAIN), "all is granted");
    let half = MIB / 2;
    let back = |alone: &mut Alone, at: u64, len: u64| {
        alone.ask(SpaceRequest::Return { session: ME, extents: alloc::vec![extent(at, len)] }).unwrap();
    };
    back(&mut alone, 2 * MIB, half);
    back(&mut alone, 3 * MIB, MIB);
    assert_eq!([half, MIB, MIB + GRAIN].map(|block| is_freeing(&alone, block)), [true, true, false]);
    back(&mut alone, 2 * MIB + half, half);
    assert_eq!([2 * MIB, 2 * MIB + GRAIN].map(|block| is_freeing(&alone, block)), [true, false]);
    assert_eq!(alone.space.blocks(REGION, GRAIN), 0);
    alone.apply(SpaceEvent::Durable(Revision(u64::MAX)));
    alone.pass(9);
    assert_eq!((alone.space.blocks(REGION, MIB), is_freeing(&alone, GRAIN)), (2, false), "it is free");
    // Between free bytes, and behind them.
    back(&mut alone, MIB, MIB);
    assert_eq!([3 * MIB, 3 * MIB + GRAIN].map(|block| is_freeing(&alone, block)), [true, false]);
    back(&mut alone, 5 * MIB, GRAIN);
    assert!(is_freeing(&alone, 3 * MIB) && !is_freeing(&alone, 3 * MIB + GRAIN));
    assert!(!alone.space.is_freeing(RegionId(2), GRAIN), "another's region");
}

#[test]
fn a_tail_is_cut_at_close_and_replaced_at_the_next_append() {
    let mut alone = Alone::new();
    alone.grant(ME, MIB, 2).unwrap();
    // Ten thousand bytes: three grains. The rest of the block stays with the session.
    let tail = extent(MIB, cut_tail(MIB, 10_000));
    assert_eq!(tail.length.get(), 3 * GRAIN);
    alone.publish(&[tail], &[], Commit::default()).unwrap();
    assert_eq!(alone.usage()[..3], [2 * MIB - 3 * GRAIN, 3 * GRAIN, 0]);
    // The append takes a whole block; map, size and the end of the old tail are one commit.
    let (new, size) = (extent(2 * MIB, MIB), KvKey(b"size".to_vec()));
    let put = |value: u8| KvWrite::Put(size.clone(), alloc::vec![value]);
    let stale = Commit { expect: alloc::vec![(size.clone(), Expect::Present)], writes: alloc::vec![put(1)] };
    assert_eq!(alone.publish(&[new], &[tail], stale), Err(SpaceError::Conflict));
    assert_eq!(
        (alone.usage()[..3].to_vec(), alone.kv.get(&size)),
        (alloc::vec![2 * MIB - 3 * GRAIN, 3 * GRAIN, 0], Ok(None))
    );
    let with = Commit { expect: alloc::vec![(size.clone(), Expect::Absent)], writes: alloc::vec![put(1)] };
    assert!(matches!(alone.publish(&[new], &[tail], with), Ok(SpaceAnswer::Done(_))));
    assert_eq!(alone.usage()[..3], [MIB - 3 * GRAIN, MIB, 3 * GRAIN]);
    assert_eq!(alone.kv.get(&size).unwrap().unwrap().value, [1]);
    // A part of the new block is cut off as well.
    alone.publish(&[], &[extent(2 * MIB + GRAIN, MIB - GRAIN)], Commit::default()).unwrap();
    assert_eq!(alone.usage()[..3], [MIB - 3 * GRAIN, GRAIN, MIB + 2 * GRAIN]);
    assert_eq!(
        (cut_tail(MIB, 0), cut_tail(MIB, MIB - 1), cut_tail(MIB, MIB), cut_tail(MIB, u64::MAX)),
        (0, MIB, MIB, MIB)
    );
}

#[test]
fn freed_bytes_wait_for_the_medium_and_for_every_session() {
    let mut alone = Alone::new();
    let block = alone.grant(ME, MIB, 1).unwrap()[0].extent;
    alone.publish(&[block], &[], Commit::default()).unwrap();
    let free = |inode| SpaceRequest::Free { inode, extents: alloc::vec![block], with: Commit::default() };
    assert_eq!(alone.ask(free(InodeId(6))), Err(SpaceError::NotYours));
    let Ok(SpaceAnswer::Done(freed)) = alone.ask(free(InodeId(5))) else { panic!("it is freed") };
    alone.pass(0);
    assert_eq!(alone.kv.get(&Epoch::key()).unwrap().unwrap().value, Epoch(1).encode(), "an epoch was raised");
    alone.apply(SpaceEvent::Durable(Revision(freed.0 - 1)));
    alone.pass(1);
    assert_eq!(alone.usage()[2], MIB, "not on the medium");
    alone.apply(SpaceEvent::Durable(freed));
    let mut other = Alone { space: alone.space.clone(), kv: alone.kv.clone(), asked: 0 };
    alone.pass(1);
    assert_eq!(alone.usage(), [0, 0, 0, REGION_MIN]);
    // Freed again: the old acknowledgement does not count.
    let block = other.grant(ME, MIB, 1).unwrap()[0].extent;
    other.ask(SpaceRequest::Return { session: ME, extents: alloc::vec![block] }).unwrap();
    other.apply(SpaceEvent::Durable(Revision(u64::MAX)));
    other.pass(1);
    assert_eq!(other.usage()[2], MIB);
    other.pass(2);
    assert_eq!(other.usage()[2], 0);
}

#[test]
fn other_peoples_extents_are_refused() {
    let mut alone = Alone::new();
    let block = alone.grant(SessionId(2), MIB, 1).unwrap()[0].extent;
    for (bad, why) in [
        (block, SpaceError::NotYours),
        (extent(MIB, 2 * MIB), SpaceError::NotYours),
        (extent(9 * MIB, GRAIN), SpaceError::NotYours),
        (extent(0, GRAIN), SpaceError::Elsewhere),
        (extent(REGION_MIN, 2 * MIB), SpaceError::Elsewhere),
        (Extent { namespace: NamespaceId(2), ..block }, SpaceError::Elsewhere),
    ] {
        assert_eq!(alone.publish(&[bad], &[], Commit::default()), Err(why), "{bad}");
        assert_eq!(alone.ask(SpaceRequest::Return { session: ME, extents: alloc::vec![bad] }), Err(why), "{bad}");
    }
    assert_eq!(alone.publish(&[], &[], Commit::default()), Err(SpaceError::Malformed));
    assert_eq!(alone.usage()[..3], [MIB, 0, 0]);
}

/// More records than a page of a range and than a commit takes.
#[test]
fn a_fence_and_a_takeover_go_on_until_everything_is_done() {
    let mut alone = Alone::new();
    alone.grant(ME, MIB, 16).unwrap();
    let grains = |from: u64, n: u64| (from..from + n).map(|i| extent(MIB + 2 * i * GRAIN, GRAIN)).collect::<Vec<_>>();
    let many = grains(0, 2048);
    assert_eq!(alone.publish(&many[..60], &[], Commit::default()), Err(SpaceError::TooLarge));
    for some in many.chunks(40) {
        alone.publish(some, &[], Commit::default()).unwrap();
    }
    let mut again = Alone::on(alone.kv);
    assert_eq!(again.usage()[..3], [2048 * GRAIN, 2048 * GRAIN, 0]);
    assert!(again.kv.iter().count() > 3 * RANGE_MAX && 2048 > 40 * BATCH);
    assert_eq!(again.ask(SpaceRequest::Fence { session: ME }), Ok(SpaceAnswer::Fenced));
    assert_eq!(again.usage()[..3], [0, 2048 * GRAIN, 2048 * GRAIN]);
    assert_eq!(again.ask(SpaceRequest::Fence { session: ME }), Ok(SpaceAnswer::Fenced));
    again.apply(SpaceEvent::Durable(Revision(u64::MAX)));
    again.pass(0);
    (0..60).for_each(|_| again.pass(1));
    assert_eq!(again.usage()[..3], [0, 2048 * GRAIN, 0]);
}

#[test]
fn a_region_that_is_taken_is_lost_and_gives_nothing() {
    let mut alone = Alone::new();
    alone.grant(ME, MIB, 1).unwrap();
    let other = Alone::on(alone.kv.clone());
    assert_eq!(other.space.regions().collect::<Vec<_>>(), [(REGION, Term(2))]);
    alone.kv = other.kv.clone();
    // It believes that it has the lease, and its commit conflicts.
    let lease = alone.kv.get(&lease_key(REGION)).unwrap().unwrap().value;
    alone.kv.commit(&Commit {
        expect: Vec::new(),
        writes: alloc::vec![KvWrite::Put(
            lease_key(REGION),
            lease.iter().map(|b| if *b == 9 { 8 } else { *b }).collect()
        )],
    });
    let grant = SpaceRequest::Grant { session: ME, region: REGION, block: MIB, count: 1, with: Commit::default() };
    let effects = alone.apply(SpaceEvent::Request(SpaceRequestId(7), grant));
    assert_eq!(effects, [SpaceEffect::Lost(REGION), SpaceEffect::Answer(SpaceRequestId(7), Err(SpaceError::Conflict))],);
    assert_eq!((alone.space.usage(REGION), alone.space.blocks(REGION, MIB)), (None, 0));
    assert_eq!(other.space.blocks(REGION, MIB), REGION_MIN / MIB - 1);
}

#[test]
fn an_index_that_contradicts_itself_is_left_alone() {
    let good = ExtentRecord { len: 2 * GRAIN, generation: Generation(1), used: ExtentUse::Quarantined };
    let at = |offset| extent_key(REGION, offset);
    for records in [
        alloc::vec![(at(MIB), good.encode()), (at(MIB + GRAIN), good.encode())],
        alloc::vec![(at(MIB - GRAIN), good.encode())],
        alloc::vec![(at(MIB + REGION_MIN - GRAIN), good.encode())],
        alloc::vec![(at(MIB), alloc::vec![9])],
        alloc::vec![(at(u64::MAX - GRAIN + 1), good.encode())],
        alloc::vec![(lease_key(REGION), alloc::vec![1, 2, 3])],
    ] {
        let mut kv = MemoryKv::default();
        let writes = records.into_iter().map(|(key, value)| KvWrite::Put(key, value)).collect();
        kv.commit(&Commit { expect: Vec::new(), writes });
        let mut alone = Alone { space: Space::new(ServiceId(9)), kv, asked: 0 };
        let effects = alone.apply(SpaceEvent::Take(info()));
        assert_eq!((effects, alone.space.usage(REGION)), (alloc::vec![SpaceEffect::Damaged(REGION)], None));
    }
    let mut alone = Alone { space: Space::new(ServiceId(9)), kv: MemoryKv::default(), asked: 0 };
    for (offset, length) in
        [(0, REGION_MIN - GRAIN), (1, REGION_MIN), (0, REGION_MIN + 1), (u64::MAX - GRAIN + 1, REGION_MIN)]
    {
        let bad = RegionInfo { id: REGION, extent: extent(offset, length) };
        assert_eq!(alone.apply(SpaceEvent::Take(bad)), [SpaceEffect::Damaged(REGION)], "{offset}+{length}");
    }
}

/// The owner of a file whose blocks are in another service's region commits into the index itself.
#[test]
fn what_others_have_committed_is_read_again() {
    let mut alone = Alone::new();
    let block = alone.grant(ME, MIB, 1).unwrap()[0];
    let granted = ExtentRecord { len: MIB, generation: block.generation, used: ExtentUse::Granted(ME) };
    let mapped = ExtentRecord { used: ExtentUse::Mapped(InodeId(5), 0), ..granted };
    let key = extent_key(REGION, block.extent.offset.get());
    let commit = Commit {
        expect: alloc::vec![(key.clone(), Expect::Value(granted.encode()))],
        writes: alloc::vec![KvWrite::Put(key, mapped.encode())],
    };
    alone.kv.commit(&commit);
    let back = SpaceRequest::Return { session: ME, extents: alloc::vec![block.extent] };
    assert_eq!(alone.ask(back), Err(SpaceError::Conflict), "it does not know, and does no harm");
    assert_eq!(alone.apply(SpaceEvent::Refresh(REGION)), []);
    assert_eq!(alone.usage()[..3], [0, MIB, 0]);
    let free = SpaceRequest::Free { inode: InodeId(5), extents: alloc::vec![block.extent], with: Commit::default() };
    assert!(alone.ask(free).is_ok());
}

#[test]
fn a_term_whose_numbers_are_used_up_is_raised() {
    let mut alone = Alone::new();
    alone.space.regions.get_mut(&REGION).unwrap().grants = u64::from(u32::MAX);
    assert_eq!(alone.grant(ME, MIB, 1).unwrap()[0].generation, Generation(1 << 32 | u64::from(u32::MAX)));
    assert_eq!(alone.grant(ME, MIB, 1), Err(SpaceError::Busy));
    assert_eq!(alone.grant(ME, MIB, 1).unwrap()[0].generation, Generation(2 << 32));
    assert_eq!(alone.usage()[0], 2 * MIB);
}

/// An index of several pages, between two of which the owner of a file, which is another service, cuts a record of the first.
#[test]
fn a_cut_between_two_pages_is_no_damage() {
    let page = RANGE_MAX as u64;
    let record = |len| ExtentRecord { len, generation: Generation(1), used: ExtentUse::Mapped(InodeId(5), 0) };
    let at = |grain: u64| extent_key(REGION, MIB + grain * GRAIN);
    let put = |grain, len| KvWrite::Put(at(grain), record(len * GRAIN).encode());
    let kv = |writes: Vec<KvWrite>| {
        let mut kv = MemoryKv::default();
        writes.into_iter().for_each(|write| {
            kv.commit(&Commit { expect: Vec::new(), writes: alloc::vec![write] });
        });
        kv
    };
    // The last record of the first page has four grains; one more page.
    let whole = || (0..page - 1).map(|grain| put(grain, 1)).chain([put(page - 1, 4), put(page + 9, 1)]).collect();
    for (cut, is_damaged) in
        [(alloc::vec![put(page - 1, 2), put(page + 1, 2)], false), (alloc::vec![put(page + 1, 2)], true)]
    {
        let mut alone = Alone { space: Space::new(ServiceId(9)), kv: kv(whole()), asked: 0 };
        let (mut events, mut others, mut pages) = (alloc::vec![SpaceEvent::Take(info())], Vec::new(), 0);
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            alone.space.apply(event, &mut effects);
            for effect in effects {
                let SpaceEffect::Kv(token, request) = effect else {
                    others.push(effect);
                    continue;
                };
                let answer = request.perform(&mut alone.kv);
                if matches!(answer, KvAnswer::Page(_)) {
                    pages += 1;
                    if pages == 1 {
                        alone.kv.commit(&Commit { expect: Vec::new(), writes: cut.clone() });
                    }
                }
                events.push(SpaceEvent::Kv(token, answer));
            }
            alone.space.check();
        }
        assert_eq!(pages, 4, "it is read twice");
        match is_damaged {
            true => assert_eq!(others, [SpaceEffect::Damaged(REGION)]),
            false => {
                assert_eq!(others, [SpaceEffect::Taken(REGION, Term(1), Vec::new())]);
                assert_eq!(alone.usage()[1], (page + 4) * GRAIN);
            }
        }
    }
}

/// Two commits that raise the epoch to the same number are under way: the answer to the first says nothing of what was freed behind it.
#[test]
fn a_raised_epoch_counts_for_what_was_freed_before() {
    assert_eq!(free_during_a_raise(None), 2 * MIB, "a session may have read the map in epoch 1, before it was freed");
    assert_eq!(free_during_a_raise(Some(Mutant::AnyRaiseCounts)), 0, "the fault is found");
}

/// What is in quarantine once the first raise is answered, and epoch 1 acknowledged.
fn free_during_a_raise(mutant: Option<Mutant>) -> u64 {
    let mut alone = Alone::new();
    alone.space.planted = mutant.into();
    let granted = alone.grant(ME, MIB, 2).unwrap()[0].extent;
    let [first, second] = [granted.offset.get(), granted.offset.get() + MIB].map(|offset| extent(offset, MIB));
    let back = |extent| SpaceRequest::Return { session: ME, extents: alloc::vec![extent] };
    alone.ask(back(first)).unwrap();
    let raise = |alone: &mut Alone| {
        let mut raises = Vec::new();
        for _ in 0..3 {
            let mut effects = Vec::new();
            alone.space.apply(SpaceEvent::Tick, &mut effects);
            while let Some(effect) = effects.pop() {
                let SpaceEffect::Kv(token, request) = effect else { panic!("{effect:?}") };
                match request {
                    KvRequest::Commit(commit) => raises.push((token, commit)),
                    read => alone.space.apply(SpaceEvent::Kv(token, read.perform(&mut alone.kv)), &mut effects),
                }
            }
        }
        raises.pop().expect("an epoch is raised")
    };
    let (early, commit) = raise(&mut alone);
    let made = alone.kv.commit(&commit);
    // The index is read again meanwhile, and what waits for the first raise waits for none.
    assert_eq!(alone.apply(SpaceEvent::Refresh(REGION)), []);
    alone.ask(back(second)).unwrap();
    let (late, again) = raise(&mut alone);
    assert_eq!((commit == again, early == late), (true, false));
    alone.apply(SpaceEvent::Kv(early, KvAnswer::Outcome(made)));
    alone.apply(SpaceEvent::Durable(Revision(u64::MAX)));
    alone.apply(SpaceEvent::Horizon(Epoch(1)));
    alone.apply(SpaceEvent::Tick);
    let waiting = alone.usage()[2];
    alone.apply(SpaceEvent::Kv(late, KvAnswer::Outcome(CommitOutcome::Conflict)));
    alone.pass(2);
    assert_eq!(alone.usage()[2], 0);
    waiting
}

#[test]
fn every_fence_of_a_session_is_answered() {
    let mut alone = Alone::new();
    alone.grant(ME, MIB, 2).unwrap();
    let (mut effects, fence) =
        (Vec::new(), |id| SpaceEvent::Request(SpaceRequestId(id), SpaceRequest::Fence { session: ME }));
    alone.space.apply(fence(70), &mut effects);
    let [SpaceEffect::Kv(token, request)] = &effects[..] else { panic!("{effects:?}") };
    let (token, answer) = (*token, request.clone().perform(&mut alone.kv));
    assert_eq!(alone.apply(fence(71)), []);
    let told = |id| SpaceEffect::Answer(SpaceRequestId(id), Ok(SpaceAnswer::Fenced));
    assert_eq!(alone.apply(SpaceEvent::Kv(token, answer)), [told(70), told(71)]);
    assert_eq!(alone.space.pending(), 0);
}

/// The region is lost and taken again while an answer of before is on its way.
#[test]
fn what_was_asked_in_another_life_says_nothing() {
    for mutant in [None, Some(Mutant::AnswerOfAnotherLife)] {
        an_answer_of_another_life(mutant);
    }
}

fn an_answer_of_another_life(mutant: Option<Mutant>) {
    let mut alone = Alone::new();
    alone.space.planted = mutant.into();
    let life = alone.space.regions[&REGION].life;
    let refresh = |alone: &mut Alone| {
        let mut effects = Vec::new();
        alone.space.apply(SpaceEvent::Refresh(REGION), &mut effects);
        match &effects[..] {
            [SpaceEffect::Kv(token, _)] => *token,
            other => panic!("{other:?}"),
        }
    };
    let old = refresh(&mut alone);
    alone.space.regions.remove(&REGION);
    alone.apply(SpaceEvent::Take(info()));
    assert_ne!(alone.space.regions[&REGION].life, life);
    let new = refresh(&mut alone);
    let record = ExtentRecord { len: GRAIN, generation: Generation(1), used: ExtentUse::Quarantined };
    let versioned = Versioned { value: record.encode(), revision: Revision(1) };
    alone.apply(SpaceEvent::Kv(old, KvAnswer::Page(Ok(alloc::vec![(extent_key(REGION, MIB), versioned)]))));
    if mutant.is_some() {
        assert_eq!(alone.usage(), [0, 0, GRAIN, REGION_MIN - GRAIN], "the fault is found");
        return;
    }
    assert_eq!(alone.space.usage(REGION), None, "its index is still being read");
    alone.apply(SpaceEvent::Kv(new, KvAnswer::Page(Ok(Vec::new()))));
    assert_eq!(alone.usage(), [0, 0, 0, REGION_MIN]);
}

#[test]
fn behind_the_last_term_and_epoch_nothing_goes_on() {
    for (term, is_damaged) in [(u64::MAX, true), (1 << 40, false)] {
        let mut kv = MemoryKv::default();
        let lease = RegionLease { service: ServiceId(1), term: Term(term) };
        let put = KvWrite::Put(lease_key(REGION), lease.encode());
        kv.commit(&Commit { expect: Vec::new(), writes: alloc::vec![put] });
        let mut alone = Alone { space: Space::new(ServiceId(9)), kv, asked: 0 };
        let effects = alone.apply(SpaceEvent::Take(info()));
        assert_eq!(effects == [SpaceEffect::Damaged(REGION)], is_damaged, "{effects:?}");
        let why = if is_damaged { SpaceError::NotLeased(REGION) } else { SpaceError::UsedUp(REGION) };
        assert_eq!(alone.grant(ME, MIB, 1), Err(why));
    }
    let mut alone = Alone::new();
    let put = KvWrite::Put(Epoch::key(), Epoch(u64::MAX).encode());
    alone.kv.commit(&Commit { expect: Vec::new(), writes: alloc::vec![put] });
    let block = alone.grant(ME, MIB, 1).unwrap()[0].extent;
    alone.ask(SpaceRequest::Return { session: ME, extents: alloc::vec![block] }).unwrap();
    alone.apply(SpaceEvent::Durable(Revision(u64::MAX)));
    alone.pass(u64::MAX);
    assert_eq!(alone.usage()[2], MIB, "it stays in quarantine");
}

/// Many regions are taken some at a time, and placement hears of room while others are still being taken.
#[test]
fn regions_are_taken_some_at_a_time() {
    let (mut space, mut kv) = (Space::new(ServiceId(9)), MemoryKv::default());
    let (mut effects, mut taken, mut most) = (Vec::new(), 0, 0);
    for number in 0..1000 {
        let offset = MIB + number * REGION_MIN;
        let info = RegionInfo { id: RegionId(number), extent: extent(offset, REGION_MIN) };
        space.apply(SpaceEvent::Take(info), &mut effects);
    }
    let beside = RegionInfo { id: RegionId(5000), extent: extent(MIB + 4096, REGION_MIN) };
    space.apply(SpaceEvent::Take(beside), &mut effects);
    assert_eq!(effects.pop(), Some(SpaceEffect::Damaged(RegionId(5000))), "it overlaps one that waits for its turn");
    assert!(space.is_taking(), "none is up yet");
    while !effects.is_empty() {
        most = most.max(space.pending());
        for effect in core::mem::take(&mut effects) {
            match effect {
                SpaceEffect::Kv(token, request) => {
                    space.apply(SpaceEvent::Kv(token, request.perform(&mut kv)), &mut effects);
                }
                SpaceEffect::Taken(..) => taken += 1,
                other => panic!("{other:?}"),
            }
            space.check();
        }
    }
    assert_eq!((taken, most, space.is_taking()), (1000, 256, false));
    assert_eq!(space.take_changed().len(), 1000, "the room of each is told");
}
