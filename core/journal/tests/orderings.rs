//! The orders of the journal's stores under loom: a successor, or somebody who looks at a journal in use, sees no effect
//! without its cause.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use weir_journal::{FoundRing, JournalMemory, JournalRegion, JournalShape, QueueKind, RingKind};

const SHAPE: JournalShape = JournalShape { kind: QueueKind::Virtio, queues: 1, size: 1 };
const MERGE: usize = 8;
const USED: usize = 9;
const START: usize = 10;
const ENTRY: usize = 16;

#[derive(Debug)]
struct Shared(Vec<AtomicU64>);

impl JournalMemory for Shared {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0[at].load(order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.0[at].store(value, order);
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared((0..SHAPE.bytes() / 8).map(|_| AtomicU64::new(0)).collect()))
}

/// Clones of it share the words.
#[derive(Clone, Debug)]
struct Handle(Arc<Shared>);

impl JournalMemory for Handle {
    fn count(&self) -> usize {
        self.0.count()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.0.load(at, order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.0.store(at, value, order);
    }
}

#[test]
fn who_looks_sees_causes_before_effects() {
    loom::model(|| {
        let words = shared();
        let worker = {
            let handle = Handle(words.clone());
            loom::thread::spawn(move || {
                let region = JournalRegion::open(handle, SHAPE).unwrap();
                let Ok(FoundRing::Fresh(fresh)) = region.ring(0, RingKind::Split, 1) else { panic!("it is new") };
                let mut journal = fresh.begin(4, 4);
                journal.take(0, 5);
                journal.done(0, 1);
            })
        };
        let look = |at: usize| words.load(at, Ordering::Acquire);
        // The effect first, then its cause.
        let (entry, used, merge, start) = (look(ENTRY), look(USED), look(MERGE), look(START));
        if entry & 3 == 2 {
            assert_eq!(used as u16, 5, "DONE after the count");
        }
        if entry & 3 == 1 || entry & 3 == 2 {
            assert_eq!((merge >> 32) as u16, 5, "INFLIGHT after the index");
        }
        if (merge >> 32) as u16 == 5 {
            assert_ne!(start, 0, "taken after the queue had begun");
        }
        if merge & 0xffff == 0 && (merge >> 32) as u16 == 5 {
            assert_ne!(look(ENTRY) & 3, 0, "FINISHED after INFLIGHT");
        }
        if start != 0 {
            assert_ne!(look(MERGE), 0, "begun after the indices");
            assert_ne!(look(0), 0, "begun after the header");
        }
        worker.join().unwrap();
    });
}

/// A death that is noticed orders everything: whatever was stored last, recovery is sound.
#[test]
fn a_successor_recovers_what_the_dead_one_stored() {
    loom::model(|| {
        let words = shared();
        let died = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let worker = {
            let (handle, died) = (Handle(words.clone()), died.clone());
            loom::thread::spawn(move || {
                let region = JournalRegion::open(handle, SHAPE).unwrap();
                let Ok(FoundRing::Fresh(fresh)) = region.ring(0, RingKind::Split, 1) else { panic!("it is new") };
                let mut journal = fresh.begin(0, 0);
                journal.take(0, 1);
                journal.done(0, 1);
                died.store(true, Ordering::Release);
            })
        };
        if died.load(Ordering::Acquire) {
            let region = JournalRegion::open(Handle(words.clone()), SHAPE).unwrap();
            let Ok(FoundRing::Left(left)) = region.ring(0, RingKind::Split, 1) else { panic!("it has begun") };
            let (_, found) = left.recover(false).unwrap();
            assert_eq!((found.heads, found.rolled_back), (vec![0], 1));
        }
        worker.join().unwrap();
    });
}
