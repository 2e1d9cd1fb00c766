//! A store that several processes reach: who is alive, the lease of a repair, and commits in its life alone.

use super::*;
use crate::keys::{life_key, process_key};
use crate::kv::{CommitOutcome, KvUnavailable, Versioned};
use crate::records::{LifeRecord, ProcessRecord, from_value};

const SERVICE: ServiceId = ServiceId(1);

fn served(kv: &mut MemoryKv, incarnation: u64, beat: u64, is_fenced: bool) {
    let incarnation = Term(incarnation);
    let record = ServiceRecord { incarnation, process: 70, beat, is_fenced };
    let life = LifeRecord { incarnation, process: 70 };
    write(kv, &[put(service_key(SERVICE), &record), put(life_key(SERVICE), &life)]);
}

fn beats(kv: &mut MemoryKv, process: u64, beat: u64) {
    let addresses = vec![alloc::format!("10.0.0.1:{process}")];
    write(kv, &[put(process_key(process), &ProcessRecord { addresses, since: UnixNanos(1), beat })]);
}

fn seen(kv: &mut MemoryKv) -> Presence {
    Presence::read(kv).expect("it answers")
}

fn taken(kv: &mut impl Kv, seen: &Presence) -> Option<(RepairLease, Vec<Finding>)> {
    RepairLease::take(kv, SERVICE, 99, seen).expect("it answers")
}

/// Commits whose outcome is unknown: made, not made, or made when the next one is sent.
struct Unsure {
    kv: MemoryKv,
    random: SplitMix64,
    late: Option<Commit>,
}

impl Kv for Unsure {
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        self.kv.get(key)
    }

    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
        self.kv.range(from, until, most)
    }

    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        if let Some(late) = self.late.take() {
            self.kv.commit(&late);
        }
        match self.random.below(6) {
            0 => {
                self.kv.commit(commit);
            }
            1 => {}
            2 => self.late = Some(commit.clone()),
            _ => return self.kv.commit(commit),
        }
        CommitOutcome::Unknown
    }
}

#[test]
fn who_serves_or_stands_by_is_told_by_what_is_renewed() {
    let mut kv = healthy();
    served(&mut kv, 3, 5, true);
    assert!(!seen(&mut kv).may_be_served(), "the lease was given up, and no process has a record");
    served(&mut kv, 4, 0, false);
    let first = seen(&mut kv);
    assert!(first.may_be_served() && first.alive_since(&first).is_none(), "it may be dead");
    served(&mut kv, 4, 1, false);
    assert_eq!(seen(&mut kv).alive_since(&first), Some(Alive::Serving(Vec::new())));
    beats(&mut kv, 70, 1);
    assert_eq!(seen(&mut kv).alive_since(&first), Some(Alive::Serving(vec!["10.0.0.1:70".into()])));
    served(&mut kv, 4, 2, true);
    let given_up = seen(&mut kv);
    assert!(given_up.may_be_served(), "a process with a record may stand by");
    beats(&mut kv, 71, 1);
    assert_eq!(seen(&mut kv).alive_since(&given_up), Some(Alive::StandingBy(vec!["10.0.0.1:71".into()])));
    served(&mut kv, 4, 2, false);
    let before = seen(&mut kv);
    beats(&mut kv, 70, 2);
    assert_eq!(seen(&mut kv).alive_since(&before), Some(Alive::Serving(vec!["10.0.0.1:70".into()])), "it serves");
    let life = seen(&mut kv).life();
    served(&mut kv, 4, 3, false);
    assert!(seen(&mut kv).life() == life, "a renewal begins no life");
    served(&mut kv, 5, 0, false);
    assert!(seen(&mut kv).life() != life);
}

#[test]
fn a_repair_changes_nothing_once_another_life_has_begun() {
    let mut kv = healthy();
    served(&mut kv, 3, 5, true);
    let before = seen(&mut kv);
    let (mut lease, replaced) = taken(&mut kv, &before).expect("nobody serves");
    assert!(replaced.is_empty());
    assert_eq!(RepairLease::take(&mut kv, SERVICE, 100, &before), Ok(None), "somebody has begun since");
    assert_eq!(lease.renew(&mut kv), Ok(true));
    assert!(matches!(seen(&mut kv).alive_since(&before), Some(Alive::Serving(_))), "others see it");
    let damage = [put_name(1, "gone", 99, InodeKind::File), put_name(2, "away", 98, InodeKind::File)];
    write(&mut kv, &damage);
    let mut leased = LeasedKv::new(&mut kv, &lease);
    let report = repair(&mut leased, &places()).expect("it answers");
    assert_eq!(
        (report.repaired.len(), report.left.len(), leased.is_lost()),
        (3, 0, false),
        "two names, and the next inode's number"
    );
    write(&mut kv, &damage);
    served(&mut kv, 5, 0, false);
    let whole: Vec<_> = kv.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut leased = LeasedKv::new(&mut kv, &lease);
    assert!(repair(&mut leased, &places()).is_err() && leased.is_lost());
    assert_eq!(lease.renew(&mut kv), Ok(false));
    assert_eq!(lease.give_up(&mut kv), Ok(false));
    assert!(kv.iter().eq(whole.iter().map(|(key, value)| (key, value))), "not a key was changed");
}

#[test]
fn a_lease_that_is_given_up_lets_the_next_life_begin_at_once() {
    let mut kv = healthy();
    served(&mut kv, 3, 5, false);
    let before = seen(&mut kv);
    let (lease, _) = taken(&mut kv, &before).expect("nobody serves");
    assert_eq!(lease.give_up(&mut kv), Ok(true));
    assert!(!seen(&mut kv).may_be_served());
    let record = kv.get(&service_key(SERVICE)).expect("it answers").expect("a record").value;
    let record: ServiceRecord = from_value(&record).expect("a record");
    assert_eq!((record.incarnation, record.is_fenced), (Term(4), true));
}

#[test]
fn a_lease_that_cannot_be_read_is_replaced_and_said() {
    let mut kv = healthy();
    served(&mut kv, 7, 5, true);
    write(&mut kv, &[KvWrite::Put(service_key(SERVICE), vec![0xff; 3])]);
    let before = seen(&mut kv);
    assert!(before.may_be_served(), "nobody knows");
    let (lease, replaced) = taken(&mut kv, &before).expect("nobody serves");
    assert_eq!(kinds(&replaced), [FindingKind::BadValue]);
    assert_eq!(replaced[0].about, "Service 730000000000000001");
    assert_eq!(lease.give_up(&mut kv), Ok(true));
    let life = kv.get(&life_key(SERVICE)).expect("it answers").expect("a record").value;
    assert_eq!(from_value::<LifeRecord>(&life).expect("a record").incarnation, Term(8), "terms only rise");
    assert!(found(&mut kv).is_empty());
}

#[test]
fn what_is_unknown_is_found_out() {
    let mut taken_so_far = 0;
    for seed in 0..300 {
        let mut kv = healthy();
        served(&mut kv, 3, 5, true);
        write(&mut kv, &[put_name(1, "gone", 99, InodeKind::File), put_name(2, "away", 98, InodeKind::File)]);
        let before = seen(&mut kv);
        let mut kv = Unsure { kv, random: SplitMix64::new(seed), late: None };
        let Ok(taken) = RepairLease::take(&mut kv, SERVICE, 99, &before) else { continue };
        taken_so_far += 1;
        let (mut lease, _) = taken.expect("nobody else takes it");
        assert_ne!(lease.renew(&mut kv), Ok(false), "seed {seed}");
        let mut leased = LeasedKv::new(&mut kv, &lease);
        if let Ok(report) = repair(&mut leased, &places()) {
            let names = FindingKind::DanglingName;
            assert_eq!(kinds(&report.repaired), [names, names, FindingKind::NextInode], "seed {seed}");
            assert_eq!((report.left.len(), leased.is_lost()), (0, false), "seed {seed}");
        }
        assert_ne!(lease.give_up(&mut kv), Ok(false), "seed {seed}");
    }
    assert!(taken_so_far > 250, "{taken_so_far}");
}

/// What a store of a newer version holds is not taken for damage.
#[test]
fn without_a_record_of_the_store_nothing_is_repaired() {
    let mut kv = healthy();
    write(&mut kv, &[put_name(1, "gone", 99, InodeKind::File), KvWrite::Put(KeySpace::Store.key(&[]), vec![0xff])]);
    write(&mut kv, &[KvWrite::Put(name_key(InodeId(1), &name("f")), vec![0xff])]);
    let report = repair(&mut kv, &places()).expect("it answers");
    assert!(report.repaired.is_empty() && report.left.len() >= 3, "{report:?}");
}
