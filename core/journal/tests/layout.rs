//! The layout, byte by byte (docs/reference/formats.md), and regions full of anything.

use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_journal::{
    CrashPoint, Damage, Descriptor, FoundNvme, FoundRing, InRing, JournalMemory, JournalRegion, JournalShape, MAGIC,
    OpenError, Owed, QueueKind, RingKind, VERSION,
};
use weir_spec::virtqueue::PackedIndex;

#[derive(Debug)]
struct Plain(RefCell<Vec<u64>>);

impl JournalMemory for Plain {
    fn count(&self) -> usize {
        self.0.borrow().len()
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.0.borrow()[at]
    }
    fn store(&self, at: usize, value: u64, _: Ordering) {
        self.0.borrow_mut()[at] = value;
    }
}

fn zeroes(shape: JournalShape) -> Rc<Plain> {
    Rc::new(Plain(RefCell::new(vec![0; shape.bytes() as usize / 8])))
}

const RINGS: JournalShape = JournalShape { kind: QueueKind::Virtio, queues: 2, size: 4 };
const NVME: JournalShape = JournalShape { kind: QueueKind::Nvme, queues: 1, size: 2 };

fn line(words: &Plain, at: usize) -> [u64; 8] {
    words.0.borrow()[8 * at..8 * at + 8].try_into().unwrap()
}

#[test]
fn golden_words_of_the_header_and_a_split_ring() {
    let words = zeroes(RINGS);
    // 64 of the header, 64 + 24 entries' words of 8 for each queue.
    assert_eq!(RINGS.bytes(), 64 + 2 * (64 + 24 * 8));
    let region = JournalRegion::open(words.clone(), RINGS).unwrap();
    assert_eq!(MAGIC.to_le_bytes(), *b"WEIRJRNL");
    assert_eq!(VERSION, 2);
    assert_eq!(line(&words, 0), [MAGIC, 0x01_0000_0002, 576, 0x0004_0002, 0, 0, 0, 0]);
    let Ok(FoundRing::Fresh(fresh)) = region.ring(1, RingKind::Split, 4) else { panic!("it is new") };
    let mut journal = fresh.begin(0xffff, 0xffff);
    // Queue 1 begins behind queue 0: lines 1 to 4 and 5 to 8.
    assert_eq!(line(&words, 5), [0x0000_ffff_0000_0000, 0xffff_ffff, 0x0004_0001, 0, 0, 0, 0, 0]);
    journal.take(3, 0);
    journal.take(1, 1);
    assert_eq!(line(&words, 5)[0], 0x0000_0001_0001_0000, "FINISHED, head 1, last_idx 1");
    assert_eq!(line(&words, 6)[..4], [0, 1 << 2 | 1, 0, 1], "INFLIGHT, by sequence");
    journal.done(3, 1);
    assert_eq!((line(&words, 5)[1], line(&words, 6)[3]), (0xffff_0000, 2), "DONE");
    journal.published();
    assert_eq!(line(&words, 6)[3], 0);
    journal.close(0xffff);
    assert_eq!(line(&words, 5)[2..4], [0, 0x0000_0001_0000_ffff], "stopped at 0xffff");
    let Ok(FoundRing::Fresh(fresh)) = region.ring(1, RingKind::Split, 4) else { panic!("it was stopped") };
    assert_eq!(fresh.closed(), Some(0xffff));
    fresh.begin(2, 1);
    assert_eq!(line(&words, 5)[2..4], [0x0004_0001, 0], "it has begun again");
}

#[test]
fn golden_words_of_a_packed_ring() {
    let words = zeroes(RINGS);
    let region = JournalRegion::open(words.clone(), RINGS).unwrap();
    let Ok(FoundRing::Fresh(fresh)) = region.ring(0, RingKind::Packed, 4) else { panic!("it is new") };
    let mut journal = fresh.begin(0x8000, 0x8000);
    let first = InRing { at: 0, slots: 3, address: 0x1000, len: 16, flags: 1 };
    journal.take_packed(2, PackedIndex { offset: 3, wrap: true }, first);
    assert_eq!(line(&words, 1)[..3], [0x8003_0002_0000, 0x8000_8000, 0x0004_0002]);
    // Entry 2: INFLIGHT; 3 slots from slot 0 on, and the first one's length; its address.
    assert_eq!(line(&words, 3)[..4], [1, 2 << 46 | 16, 0x1000, 0]);
    let table = InRing { at: 3, slots: 1, address: 0x4000, len: 48, flags: 4 };
    journal.take_packed(1, PackedIndex { offset: 0, wrap: false }, table);
    assert_eq!(line(&words, 2)[4..7], [1 << 2 | 1, 2 << 60 | 3 << 32 | 48, 0x4000], "a table");
    // The second one is done first: what it is told by goes over slot 0.
    assert!(!journal.is_in_order(1) && journal.is_in_order(2));
    let mut endangered = Vec::new();
    journal.endangered(1, 1, &mut endangered);
    assert_eq!(endangered, [(2, first)]);
    let chain = [(0x1000, 16, 1), (0x2000, 512, 3), (0x3000, 1, 2)];
    let chain = chain.map(|(address, len, flags)| Descriptor { address, len, flags });
    assert!(journal.keep(2, &chain));
    // Places 2, 1 and 0, behind four entries of four words; the entry says where the first one is.
    assert_eq!(line(&words, 4)[..4], [0x3000, 0xffff_0002_0000_0001, 0x2000, 0x0000_0003_0000_0200]);
    assert_eq!(line(&words, 4)[4..6], [0x1000, 0x0001_0001_0000_0010]);
    assert_eq!(line(&words, 3)[..2], [1, 1 << 63 | 2 << 46 | 2 << 32 | 16]);
    journal.done(1, 1);
    assert_eq!((line(&words, 1)[1], line(&words, 2)[4]), (0x8000_8001, 1 << 2 | 2), "DONE");
    for published in [true, false] {
        let Ok(FoundRing::Left(left)) = region.ring(0, RingKind::Packed, 4) else { panic!("it has begun") };
        let before = words.0.borrow().clone();
        let (journal, found) = left.recover(published).unwrap();
        let heads = if published { vec![2] } else { vec![2, 1] };
        assert_eq!(
            (found.heads, found.step),
            (heads, if published { CrashPoint::Published } else { CrashPoint::Done })
        );
        let mut kept = Vec::new();
        assert_eq!((journal.chain(2, &mut kept), &kept[..]), (None, &chain[..]));
        if !published {
            assert_eq!(journal.chain(1, &mut kept), Some(table));
        }
        *words.0.borrow_mut() = before;
    }
}

#[test]
fn golden_words_of_a_packed_ring_whose_base_may_mean_a_new_one() {
    let words = zeroes(RINGS);
    let region = JournalRegion::open(words.clone(), RINGS).unwrap();
    let fresh = || match region.ring(0, RingKind::Packed, 4) {
        Ok(FoundRing::Fresh(fresh)) => fresh,
        found => panic!("{found:?}"),
    };
    let left = || match region.ring(0, RingKind::Packed, 4) {
        Ok(FoundRing::Left(left)) => left,
        found => panic!("{found:?}"),
    };
    let journal = fresh().begin_unsure();
    assert_eq!(line(&words, 1)[..4], [0, 0, 0x0004_0102, 0]);
    assert!(left().is_unsure());
    let (again, _) = left().recover(true).unwrap();
    again.close(0);
    assert_eq!(line(&words, 1)[2..4], [0, 0x0003_0000_0000]);
    assert_eq!((fresh().closed(), fresh().surely_stopped_at(0)), (Some(0), false));
    drop(journal);
    for elsewhere in [false, true] {
        let mut journal = fresh().begin_unsure();
        if elsewhere {
            journal.restart(0x8000, 0x8000);
        } else {
            journal.is_where_it_was_said();
        }
        assert_eq!(line(&words, 1)[2], 0x0004_0002);
        assert!(!left().is_unsure());
        journal.close(0);
        assert_eq!((fresh().closed(), fresh().surely_stopped_at(0)), (Some(0), true));
    }
    // Whoever is unsure has taken nothing.
    fresh().begin_unsure();
    words.store(8, 0x0001_0000_0000, Ordering::Release);
    assert_eq!(left().check(true), Err(Damage::Merge));
    words.store(9, 1, Ordering::Release);
    assert!(matches!(region.ring(0, RingKind::Packed, 4), Err(OpenError::Damaged(Damage::Used))));
}

#[test]
fn a_chain_that_goes_on_behind_what_is_used_is_kept_though_it_is_done() {
    let words = zeroes(RINGS);
    let region = JournalRegion::open(words.clone(), RINGS).unwrap();
    let Ok(FoundRing::Fresh(fresh)) = region.ring(0, RingKind::Packed, 4) else { panic!("it is new") };
    let mut journal = fresh.begin(0x8000, 0x8000);
    let chain = |at: u16, slots: u16| InRing { at, slots, address: 0x1000, len: 16, flags: u16::from(slots > 1) };
    journal.take_packed(0, PackedIndex { offset: 1, wrap: true }, chain(0, 1));
    assert!(journal.is_in_order(0));
    journal.take_packed(1, PackedIndex { offset: 0, wrap: false }, chain(1, 3));
    assert!(!journal.is_in_order(1));
    let mut endangered = Vec::new();
    journal.endangered(1, 3, &mut endangered);
    assert_eq!(
        endangered,
        [(1, chain(1, 3))],
        "its last slot is where the next one goes; of the other the entry has all"
    );
    let kept = [Descriptor::default(); 3];
    assert!(journal.keep(1, &kept));
    journal.done(1, 3);
    journal.endangered(0, 1, &mut endangered);
    assert_eq!(endangered, []);
    journal.done(0, 1);
    journal.published();
    // All places are free again.
    journal.take_packed(0, PackedIndex { offset: 3, wrap: false }, chain(0, 3));
    journal.take_packed(1, PackedIndex { offset: 0, wrap: true }, chain(3, 1));
    assert!(journal.keep(0, &kept) && journal.keep(1, &kept[..1]) && !journal.keep(1, &kept[..1]));
}

#[test]
fn golden_words_of_an_nvme_queue() {
    let words = zeroes(NVME);
    let region = JournalRegion::open(words.clone(), NVME).unwrap();
    assert_eq!(line(&words, 0)[..4], [MAGIC, 0x02_0000_0002, 64 + 64 + 2 * 128, 0x0002_0001]);
    assert_eq!((region.noted(), line(&words, 0)[5]), (0, 0));
    region.note(0x1_0000_0007);
    assert_eq!(
        (JournalRegion::open(words.clone(), NVME).unwrap().noted(), line(&words, 0)[5]),
        (0x1_0000_0007, 0x1_0000_0007)
    );
    let Ok(FoundNvme::Fresh(fresh)) = region.nvme(0, 2, 5) else { panic!("it is new") };
    let mut journal = fresh.begin(7, 9);
    assert_eq!(line(&words, 1)[..3], [0x0007_0000_0000, 9, 0x0005_0002_0003]);
    assert_eq!(journal.take(&[11, 12, 13, 14, 15, 16, 17, 18], 8), Some(0));
    assert_eq!(line(&words, 2), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(line(&words, 3), [11, 12, 13, 14, 15, 16, 17, 18]);
    journal.decide(0, [0x51, 0x52]);
    assert_eq!(line(&words, 2)[..4], [3, 0, 0x51, 0x52], "DECIDED");
    journal.done(0, [0x61, 0x62], 9);
    assert_eq!((line(&words, 2)[..4].to_vec(), line(&words, 1)[1]), (vec![2, 9, 0x61, 0x62], 10));
    let Ok(FoundNvme::Left(left)) = region.nvme(0, 2, 5) else { panic!("it has begun") };
    let (_, found) = left.recover().unwrap();
    let owed = Owed::Completion { cqe: [0x61, 0x62], place: 9 };
    assert_eq!((found.used, found.last_idx, found.commands[0].2), (10, 8, owed));
    // Another queue of that identifier begins where it is, whatever the one before has left.
    let Ok(FoundNvme::Fresh(fresh)) = region.nvme(0, 2, 6) else { panic!("it is another one") };
    fresh.begin(0, 1 << 40);
    assert_eq!(line(&words, 1)[..3], [0, 1 << 40, 0x0006_0002_0003]);
    assert_eq!(line(&words, 2)[0], 0);
    assert!(matches!(region.nvme(0, 1, 6), Ok(FoundNvme::Fresh(_))), "of another size");
    words.store(10, 0x0006_0002_0001, Ordering::Relaxed);
    assert!(matches!(region.nvme(0, 2, 6), Err(OpenError::Damaged(_))), "of another kind");
}

/// One that says nothing of its medium is of before that word, or of a medium that is never replaced: it is for whatever comes first.
#[test]
fn a_region_is_for_one_medium() {
    for (before, after, opens) in [(7, 7, true), (0, 7, true), (0, 0, true), (7, 8, false), (7, 0, false)] {
        let words = zeroes(RINGS);
        JournalRegion::of_medium(words.clone(), RINGS, before).unwrap();
        assert_eq!(line(&words, 0)[4..], [before, 0, 0, 0]);
        let mut expected = words.0.borrow().clone();
        expected[4] = if opens { after } else { before };
        let again = JournalRegion::of_medium(words.clone(), RINGS, after).map(|_| ());
        assert_eq!(again, if opens { Ok(()) } else { Err(OpenError::Medium) }, "{before} {after}");
        assert_eq!(*words.0.borrow(), expected);
        let other = JournalRegion::of_medium(words.clone(), RINGS, 9).map(|_| ());
        assert_eq!(other, if expected[4] == 0 { Ok(()) } else { Err(OpenError::Medium) }, "{before} {after}");
    }
    // A medium that becomes another one takes its region along, whenever whoever serves it dies.
    for (last, opens) in [(7, [true, false]), (0, [true, true]), (8, [false, true])] {
        for (medium, opens) in [7, 8].into_iter().zip(opens) {
            let words = zeroes(RINGS);
            let mut region = JournalRegion::of_medium(words.clone(), RINGS, 7).unwrap();
            region.move_to(last);
            let again = JournalRegion::of_medium(words, RINGS, medium).map(|_| ());
            assert_eq!(
                again,
                if opens { Ok(()) } else { Err(OpenError::Medium) },
                "moved to {last}, opened for {medium}"
            );
        }
    }
}

#[test]
fn a_region_for_others_is_refused_and_left_alone() {
    let words = zeroes(RINGS);
    JournalRegion::open(words.clone(), RINGS).unwrap();
    let with = |at: usize, word: u64| {
        let words = Rc::new(Plain(RefCell::new(words.0.borrow().clone())));
        words.store(at, word, Ordering::Relaxed);
        let before = words.0.borrow().clone();
        let result = JournalRegion::open(words.clone(), RINGS).map(|_| ());
        assert_eq!(*words.0.borrow(), before);
        result.unwrap_err()
    };
    assert_eq!(with(0, 1), OpenError::NotAJournal);
    assert_eq!(with(1, 0x01_0000_0001), OpenError::Version { found: 1 });
    assert_eq!(with(1, 0x01_0000_0003), OpenError::Version { found: 3 });
    assert_eq!(with(1, 0x02_0000_0002), OpenError::Kind);
    assert_eq!(with(2, 64), OpenError::Length { found: 64, needed: 576 });
    assert_eq!(with(3, 0x0008_0002), OpenError::Shape { found: (2, 8), wanted: (2, 4) });
    let short = Rc::new(Plain(RefCell::new(vec![0; 71])));
    assert_eq!(JournalRegion::open(short, RINGS).unwrap_err(), OpenError::Length { found: 568, needed: 576 });
    let region = JournalRegion::open(words, RINGS).unwrap();
    assert!(matches!(region.ring(2, RingKind::Split, 4), Err(OpenError::Queue { index: 2, size: 4 })));
    assert!(matches!(region.ring(0, RingKind::Split, 8), Err(OpenError::Queue { .. })));
    assert!(matches!(region.nvme(0, 4, 1), Err(OpenError::Kind)));
    let Ok(FoundRing::Fresh(fresh)) = region.ring(0, RingKind::Split, 4) else { panic!("it is new") };
    fresh.begin(0, 0);
    assert!(matches!(region.ring(0, RingKind::Packed, 4), Err(OpenError::Damaged(Damage::Start))));
    assert!(matches!(region.ring(0, RingKind::Split, 2), Err(OpenError::Damaged(Damage::Start))));
}

/// Words that are likely to be nearly right.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..8,
        2 => (0u64..8).prop_map(|n| n << 2 | 1),
        2 => (0u64..10, 0u64..10).prop_map(|(a, b)| a | b << 16),
        3 => (0u64..2, 0u64..4, 0u64..5).prop_map(|(kept, slots, at)| kept << 63 | slots << 46 | at << 32 | 16),
        2 => (0u64..3, 0u64..6, 0u64..10).prop_map(|(s, h, l)| s | h << 16 | l << 32),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 16))]
    /// Whatever a front end writes into its region: a refusal, or heads that the queue has, none of them twice, and a journal
    /// that can be worked with.
    #[test]
    fn any_region_is_recovered_or_refused(
        body in proptest::collection::vec(word(), 64),
        packed: bool, published: bool, size in 1u16..5,
    ) {
        let kind = if packed { RingKind::Packed } else { RingKind::Split };
        let words = zeroes(RINGS);
        let region = JournalRegion::open(words.clone(), RINGS).unwrap();
        words.0.borrow_mut()[8..72].copy_from_slice(&body);
        words.store(10, if packed { 2 } else { 1 } | u64::from(size) << 16, Ordering::Relaxed);
        let before = words.0.borrow().clone();
        let left = match region.ring(0, kind, size) {
            Ok(FoundRing::Left(left)) => left,
            Ok(FoundRing::Fresh(_)) => panic!("it says that it has begun"),
            Err(_) => return Ok(()),
        };
        match left.recover(published) {
            Err(_) => prop_assert_eq!(&*words.0.borrow(), &before, "refused and left alone"),
            Ok((mut journal, found)) => {
                let mut heads = found.heads.clone();
                heads.sort_unstable();
                heads.dedup();
                prop_assert!(heads.len() == found.heads.len() && heads.iter().all(|h| *h < size));
                let (mut kept, mut endangered) = (Vec::new(), Vec::new());
                for head in &found.heads {
                    let stands = journal.chain(*head, &mut kept);
                    prop_assert!(packed || stands.is_none() && kept.is_empty());
                    let slots = stands.map_or(kept.len() as u16, |c| c.slots).max(u16::from(!packed));
                    prop_assert!(slots >= 1 && slots <= size);
                    prop_assert!(stands.is_none_or(|c| c.at < size));
                    if !journal.is_in_order(*head) {
                        journal.endangered(*head, slots, &mut endangered);
                        for (endangered, chain) in &endangered {
                            prop_assert!(journal.keep(*endangered, &vec![Descriptor::default(); chain.slots.into()]));
                        }
                    }
                    journal.done(*head, slots);
                }
                journal.published();
                // The same again says that nothing is in flight.
                let Ok(FoundRing::Left(left)) = region.ring(0, kind, size) else { panic!("it has begun") };
                let (_, again) = left.recover(true).unwrap();
                prop_assert_eq!((again.heads, again.step), (vec![], CrashPoint::Idle));
            }
        }
    }

    /// The same of an NVMe queue's.
    #[test]
    fn any_nvme_region_is_recovered_or_refused(body in proptest::collection::vec(word(), 40), size in 1u16..3) {
        let words = zeroes(NVME);
        let region = JournalRegion::open(words.clone(), NVME).unwrap();
        words.0.borrow_mut()[8..48].copy_from_slice(&body);
        words.store(10, 3 | u64::from(size) << 16 | 1 << 32, Ordering::Relaxed);
        let Ok(FoundNvme::Left(left)) = region.nvme(0, size, 1) else { return Ok(()) };
        let Ok((mut journal, found)) = left.recover() else { return Ok(()) };
        let mut slots: Vec<_> = found.commands.iter().map(|c| c.0).collect();
        slots.sort_unstable();
        slots.dedup();
        prop_assert!(slots.len() == found.commands.len() && slots.iter().all(|s| *s < size));
        for slot in slots {
            journal.posted(slot);
        }
        for i in 0..size {
            prop_assert!(journal.take(&[0; 8], i).is_some());
        }
        prop_assert!(!journal.has_room());
    }
}
