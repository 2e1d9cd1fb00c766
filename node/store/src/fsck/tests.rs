//! Over a file, and over a real etcd.

use super::*;
use crate::client::{Client, ClientOptions};
use crate::etcd::WaitingEtcdKv;
use crate::etcd::tests::{Etcd, free_port, opened};
use crate::service::{self, ServiceHandle, ServiceOptions};
use std::time::{Duration, Instant};
use weir_config::{EtcdMeta, StoreAddress, StoreDurability};
use weir_store::keys::{KeySpace, inode_key, name_key};
use weir_store::kv::{Commit, CommitOutcome, Kv as _, KvKey, KvWrite, RANGE_MAX};
use weir_store::records::{ServiceRecord, from_value, to_value};
use weir_store::{EntryName, InodeId, UnixNanos, make_store};

#[test]
fn a_file_is_checked_and_put_right_while_nobody_has_it() {
    let folder = std::env::temp_dir().join(format!("weir-fsck-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("meta.redb");
    let check = |repairs| fsck(&StoreMeta::Redb(path.clone()), repairs, &mut |_| {});
    assert!(check(false).expect_err("nothing is there").contains("no such file") && !path.exists());
    let other = folder.join("other");
    std::fs::write(&other, [7; 100_000]).expect("it is written");
    assert!(fsck(&StoreMeta::Redb(other.clone()), false, &mut |_| {}).is_err());
    let left: Vec<_> = std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    assert_eq!(left, [other], "nothing is left beside a file that is no store");
    let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("it opens");
    kv.commit(&make_store(7, UnixNanos(1)));
    assert!(check(false).expect_err("it is in use").contains("somebody has the store open"));
    drop(kv);
    let report = check(false).expect("it opens");
    assert!(report.records > 3 && report.findings.left.is_empty(), "{report:?}");
    let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("it opens");
    let value = kv.get(&inode_key(InodeId::ROOT)).expect("an answer").expect("the root").value;
    let name = name_key(InodeId::ROOT, &EntryName::new(b"x").expect("a name"));
    let writes = vec![KvWrite::Put(name, value), KvWrite::Delete(inode_key(InodeId::ROOT))];
    kv.commit(&Commit { expect: Vec::new(), writes });
    drop(kv);
    assert_eq!(check(false).expect("it opens").findings.left.len(), 3, "the name, the root, and its parent record");
    let report = check(true).expect("it opens");
    assert!(report.findings.repaired.len() >= 2 && report.findings.left.is_empty(), "{report:?}");
    let report = check(true).expect("it opens");
    assert!(report.findings.repaired.is_empty() && report.findings.left.is_empty(), "{report:?}");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// A store in etcd that this process serves until the handle goes.
fn serve(meta: &StoreMeta) -> ServiceHandle {
    service::start(ServiceOptions {
        meta: meta.clone(),
        durability: StoreDurability::Process,
        listen: vec![StoreAddress::Tcp("127.0.0.1:0".parse().expect("an address"))],
        classes: vec!["flash".into()],
        block: 1 << 20,
        lease: Duration::from_secs(10),
        repair_after: None,
        tiering: weir_store::Tiering::default(),
        allow_files: true,
    })
    .unwrap_or_else(|e| panic!("{e}"))
}

fn key_of(kv: &mut WaitingEtcdKv, space: KeySpace) -> Vec<(KvKey, Vec<u8>)> {
    let page = kv.range(&space.key(&[]), &space.end(), RANGE_MAX).expect("an answer");
    page.into_iter().map(|(key, found)| (key, found.value)).collect()
}

fn put(kv: &mut WaitingEtcdKv, writes: Vec<KvWrite>) {
    let outcome = kv.commit(&Commit { expect: Vec::new(), writes });
    assert!(matches!(outcome, CommitOutcome::Done(_)), "{outcome:?}");
}

#[test]
fn a_store_in_etcd_is_checked_and_put_right_while_nobody_serves_it() {
    let Some(etcd) = Etcd::start("fsck", &[]) else { return };
    let meta = etcd.meta("weir");
    let mut kv = opened(&meta);
    let here = StoreMeta::Etcd(meta.clone());
    let check = |repairs| fsck(&here, repairs, &mut |_| {});
    let why = check(true).expect_err("nothing is there");
    assert!(why.starts_with(&format!("etcd:{}/weir: there is no store with the prefix \"weir\"", etcd.url)), "{why}");
    assert!(key_of(&mut kv, KeySpace::Service).is_empty(), "a repair of nothing leaves nothing");

    let one = serve(&here);
    let at = one.addresses()[0].to_string();
    for repairs in [false, true] {
        let why = check(repairs).expect_err("it is served");
        assert!(why.contains(&format!("the metadata service at {at} serves it")), "{why}");
    }
    let other = serve(&here);
    assert!(other.stands_by());
    let at = other.addresses()[0].to_string();
    // The one that serves ends, and the other one takes over, or is seen to stand by.
    one.stop();
    let why = check(true).expect_err("it is served, or about to be");
    assert!(why.contains(&format!("the metadata service at {at} ")), "{why}");
    other.stop();

    let before = key_of(&mut kv, KeySpace::Service);
    let begun = Instant::now();
    let report = check(false).expect("it answers");
    assert!(report.records > 3 && report.findings.left.is_empty(), "{report:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "a lease that was given up is not waited for");
    assert_eq!(key_of(&mut kv, KeySpace::Service), before, "a check changes nothing");

    let root = kv.get(&inode_key(InodeId::ROOT)).expect("an answer").expect("the root").value;
    let name = name_key(InodeId::ROOT, &EntryName::new(b"x").expect("a name"));
    put(&mut kv, vec![KvWrite::Put(name, root), KvWrite::Delete(inode_key(InodeId::ROOT))]);
    assert_eq!(check(false).expect("it answers").findings.left.len(), 3, "the name, the root, and its parent record");
    let report = check(true).expect("it answers");
    assert!(report.findings.repaired.len() >= 2 && report.findings.left.is_empty(), "{report:?}");
    let report = check(true).expect("it answers");
    assert!(report.findings.repaired.is_empty() && report.findings.left.is_empty(), "{report:?}");
    // A service begins at once: the lease was given up.
    let begun = Instant::now();
    let again = serve(&here);
    assert!(!again.stands_by() && begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn a_store_whose_service_was_killed_is_checked_when_its_lease_is_over() {
    let Some(etcd) = Etcd::start("fsck-killed", &[]) else { return };
    let here = StoreMeta::Etcd(etcd.meta("weir"));
    serve(&here).stop();
    let mut kv = opened(&etcd.meta("weir"));
    let (key, value) = key_of(&mut kv, KeySpace::Service).pop().expect("a record");
    let record: ServiceRecord = from_value(&value).expect("a record");
    // As a process leaves it that was killed.
    put(&mut kv, vec![KvWrite::Put(key, to_value(&ServiceRecord { is_fenced: false, ..record }))]);
    let (begun, mut steps) = (Instant::now(), Vec::new());
    let report = fsck(&here, true, &mut |step| steps.push(step)).expect("nobody renews it");
    assert!(report.findings.repaired.is_empty() && report.findings.left.is_empty(), "{report:?}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(steps.first() == Some(&FsckStep::Waits) && matches!(steps.last(), Some(FsckStep::Reads(4..))), "{steps:?}");
}

#[test]
fn a_service_that_starts_during_a_repair_stands_by_until_it_is_over() {
    let Some(etcd) = Etcd::start("fsck-meanwhile", &[]) else { return };
    let here = StoreMeta::Etcd(etcd.meta("weir"));
    serve(&here).stop();
    let mut started = None;
    let mut reads = 0;
    let report = fsck(&here, true, &mut |step| {
        // The first reading is before the lease is taken; the second one takes longer than a lease here.
        reads += usize::from(matches!(step, FsckStep::Reads(_)));
        if reads == 2 && started.is_none() {
            let service = serve(&here);
            assert!(service.stands_by(), "it serves a store that is being repaired");
            std::thread::sleep(Duration::from_secs(5));
            started = Some(service);
        }
    });
    let report = report.expect("nobody else had it");
    assert!(report.findings.left.is_empty() && reads >= 2, "{report:?}");
    let service = started.expect("it was started");
    let client = format!("{}", service.addresses()[0]);
    let begun = Instant::now();
    while let Err(why) = Client::connect(&client, ClientOptions::default()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come to serve: {why}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_service_that_begins_during_a_check_ends_it() {
    let Some(etcd) = Etcd::start("fsck-begun", &[]) else { return };
    let here = StoreMeta::Etcd(etcd.meta("weir"));
    serve(&here).stop();
    let mut service = None;
    let why = fsck(&here, false, &mut |step| {
        if matches!(step, FsckStep::Reads(_)) && service.is_none() {
            service = Some(serve(&here));
        }
    });
    let why = why.expect_err("what was read is of no moment");
    assert!(why.contains("a metadata service has begun to serve it meanwhile"), "{why}");
}

#[test]
fn an_etcd_that_is_away_or_full_is_named() {
    let Some(mut etcd) = Etcd::start("fsck-full", &["--quota-backend-bytes", "4000000"]) else { return };
    let here = StoreMeta::Etcd(etcd.meta("weir"));
    serve(&here).stop();
    let mut kv = opened(&etcd.meta("other"));
    for n in 0..200u8 {
        let write = KvWrite::Put(KvKey(vec![b'k', n]), vec![7; 100_000]);
        if kv.commit(&Commit { expect: Vec::new(), writes: vec![write] }) == CommitOutcome::Unknown {
            break;
        }
    }
    let why = fsck(&here, true, &mut |_| {}).expect_err("it is full");
    assert!(why.starts_with("etcd:http://127.0.0.1:") && why.contains("/weir: etcd is full"), "{why}");
    let report = fsck(&here, false, &mut |_| {}).expect("a check needs no room");
    assert!(report.findings.left.is_empty(), "{report:?}");
    etcd.kill();
    let why = fsck(&here, false, &mut |_| {}).expect_err("it is away");
    assert!(why.contains("/weir: etcd does not answer: ") && why.contains(&etcd.url), "{why}");
    // One member that is away is passed over.
    etcd.start_again();
    drop(opened(&etcd.meta("weir")));
    let gone = format!("http://127.0.0.1:{}", free_port());
    let meta = EtcdMeta { endpoints: vec![gone, etcd.url.clone()], ..etcd.meta("weir") };
    fsck(&StoreMeta::Etcd(meta), false, &mut |_| {}).expect("the other one answers");
}
