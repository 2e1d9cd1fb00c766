//! A store with a bit of everything, damaged in every way that has a name: found, put right or refused, and clean after that.

mod exclusive;

use super::*;
use crate::inode::{Content, Inode, InodeKind, UnixNanos};
use crate::keys::{
    KeySpace, answer_key, inode_key, map_chunk_key, name_key, orphan_key, owner_key, parent_key, service_key,
    session_key, short_key, unsettled_key,
};
use crate::kv::{Commit, Expect, Kv, KvKey, KvWrite, MemoryKv};
use crate::members::HoldRecord;
use crate::records::{
    AnswerRecord, BlockRecord, CounterRecord, MapChunk, NameRecord, OrphanRecord, OwnerRecord, ParentRecord,
    ServiceRecord, SessionRecord, ShortRecord, WriterRecord, to_value,
};
use crate::space::{Epoch, ExtentRecord, ExtentUse, RegionLease, extent_key, lease_key};
use crate::{EntryName, Extent, Generation, InodeId, NamespaceId, RegionId, ServiceId, SessionId, Term, make_store};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Bytes;
use weir_units::rng::SplitMix64;

const MIB: u64 = 1 << 20;
const REGION: RegionId = RegionId(1 << 16);

fn places() -> RegionPlaces {
    let extent = Extent { namespace: NamespaceId(1), offset: Bytes(MIB), length: Bytes(64 * MIB) };
    RegionPlaces::from([(REGION, extent)])
}

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).expect("a name")
}

fn inode(kind: InodeKind, parent: u64, content: Content) -> Inode {
    let size = match &content {
        Content::Inline(bytes) | Content::Target(bytes) => bytes.len() as u64,
        Content::Mapped => 2 * MIB - 5,
        Content::Names => 0,
    };
    let parent = InodeId(if kind.is_container() { 0 } else { parent });
    Inode { kind, size, parent, version: 1, copies: 1, block: 1 << 20, content, ..Inode::default() }
}

fn put<T: weir_codec::Code>(key: KvKey, record: &T) -> KvWrite {
    KvWrite::Put(key, to_value(record))
}

fn put_name(container: u64, text: &str, inode: u64, kind: InodeKind) -> KvWrite {
    put(name_key(InodeId(container), &name(text)), &NameRecord { inode: InodeId(inode), kind })
}

fn put_inode(number: u64, inode: &Inode) -> KvWrite {
    put(inode_key(InodeId(number)), inode)
}

fn put_parent(number: u64, parent: u64) -> KvWrite {
    put(parent_key(InodeId(number)), &ParentRecord { parent: InodeId(parent) })
}

fn extent(at: u64, used: ExtentUse) -> KvWrite {
    let record = ExtentRecord { len: MIB, generation: Generation(1 << 32 | at), used };
    KvWrite::Put(extent_key(REGION, at * MIB), record.encode())
}

fn block(index: u32, at: u64) -> BlockRecord {
    BlockRecord {
        index,
        generation: Generation(1 << 32 | at),
        is_unsettled: false,
        copies: vec![Extent { namespace: NamespaceId(1), offset: Bytes(at * MIB), length: Bytes(MIB) }],
        checksums: vec![7; 16],
    }
}

fn put_chunk(inode: u64, chunk: u32, blocks: Vec<BlockRecord>) -> KvWrite {
    put(map_chunk_key(InodeId(inode), chunk), &MapChunk { blocks })
}

/// `/d/big` with two blocks, `/f` inline, `/s` a symlink, `/m/part` in a multifile, `/d/e` a directory, an orphan with a block; a session
/// with a grant, something in quarantine.
fn healthy() -> MemoryKv {
    let mut kv = MemoryKv::default();
    kv.commit(&make_store(7, UnixNanos(1)));
    let names = Content::Names;
    write(
        &mut kv,
        &[
            put_inode(2, &inode(InodeKind::Directory, 0, names.clone())),
            put_name(1, "d", 2, InodeKind::Directory),
            put_parent(2, 1),
            put_inode(3, &inode(InodeKind::File, 1, Content::Inline(b"abc".to_vec()))),
            put_name(1, "f", 3, InodeKind::File),
            put_inode(4, &inode(InodeKind::File, 2, Content::Mapped)),
            put_name(2, "big", 4, InodeKind::File),
            put_chunk(4, 0, vec![block(0, 1), block(1, 2)]),
            extent(1, ExtentUse::Mapped(InodeId(4), 0)),
            extent(2, ExtentUse::Mapped(InodeId(4), 1)),
            put_inode(5, &inode(InodeKind::Symlink, 1, Content::Target(b"f".to_vec()))),
            put_name(1, "s", 5, InodeKind::Symlink),
            put_inode(6, &inode(InodeKind::File, 0, Content::Mapped)),
            put(orphan_key(InodeId(6)), &OrphanRecord { kind: InodeKind::File, since: UnixNanos(3) }),
            put_chunk(6, 0, vec![block(1, 3)]),
            extent(3, ExtentUse::Mapped(InodeId(6), 1)),
            put_inode(7, &inode(InodeKind::Multifile, 0, names.clone())),
            put_name(1, "m", 7, InodeKind::Multifile),
            put_parent(7, 1),
            put_inode(8, &inode(InodeKind::File, 7, Content::Inline(Vec::new()))),
            put_name(7, "part", 8, InodeKind::File),
            put_inode(9, &inode(InodeKind::Directory, 0, names)),
            put_name(2, "e", 9, InodeKind::Directory),
            put_parent(9, 2),
            put(KeySpace::NextInode.key(&[]), &CounterRecord { next: 10 }),
            put(session_key(SessionId(1)), &SessionRecord { client: "c".into(), beat: 1, ..SessionRecord::default() }),
            KvWrite::Put(HoldRecord::key(SessionId(1)), HoldRecord(Epoch(2)).encode()),
            KvWrite::Put(HoldRecord::key(SessionId(2)), HoldRecord(Epoch(1)).encode()),
            KvWrite::Put(Epoch::key(), Epoch(2).encode()),
            put(answer_key(SessionId(1), 0), &AnswerRecord::default()),
            extent(4, ExtentUse::Granted(SessionId(2))),
            extent(5, ExtentUse::Quarantined),
            KvWrite::Put(lease_key(REGION), RegionLease { service: ServiceId(1), term: Term(1) }.encode()),
            put(service_key(ServiceId(1)), &ServiceRecord { incarnation: Term(1), ..ServiceRecord::default() }),
            put(owner_key(InodeId(2)), &OwnerRecord { service: ServiceId(1), incarnation: Term(1), term: Term(1) }),
        ],
    );
    kv
}

fn write(kv: &mut MemoryKv, writes: &[KvWrite]) {
    for write in writes {
        let commit = Commit { expect: Vec::new(), writes: vec![write.clone()] };
        assert!(matches!(kv.commit(&commit), crate::kv::CommitOutcome::Done(_)));
    }
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.kind).collect()
}

fn found(kv: &mut MemoryKv) -> Vec<Finding> {
    Image::read(kv).expect("it answers").findings(&places())
}

#[test]
fn a_store_that_is_whole_has_nothing() {
    let mut kv = healthy();
    assert_eq!(found(&mut kv), []);
    let report = repair(&mut kv, &places()).expect("it answers");
    assert!(report.repaired.is_empty() && report.left.is_empty());
}

/// A damage: what it writes, what it is told as first, and whether it is put right.
type Damage = (FindingKind, bool, Vec<KvWrite>);

fn damages() -> Vec<Damage> {
    use FindingKind as F;
    let file = |content| inode(InodeKind::File, 1, content);
    let inline = || Content::Inline(b"abc".to_vec());
    let delete = KvWrite::Delete;
    let number = |n: u64| InodeId(n);
    let big = || inode(InodeKind::File, 2, Content::Mapped);
    vec![
        (F::NoStore, false, vec![delete(KeySpace::Store.key(&[]))]),
        (F::NoStore, false, vec![KvWrite::Put(KeySpace::Store.key(&[]), vec![2, 0])]),
        (F::UnknownKey, false, vec![KvWrite::Put(KvKey(b"z1".to_vec()), vec![1])]),
        (F::BadKey, true, vec![KvWrite::Put(KvKey(b"i123".to_vec()), vec![1])]),
        (F::BadValue, true, vec![KvWrite::Put(name_key(InodeId::ROOT, &name("f")), vec![1, 2, 3])]),
        (F::BadValue, false, vec![KvWrite::Put(inode_key(number(3)), vec![1, 2, 3])]),
        (F::BadValue, false, vec![KvWrite::Put(map_chunk_key(number(4), 0), vec![1, 9])]),
        (F::BadValue, false, vec![KvWrite::Put(Epoch::key(), vec![1])]),
        (F::NoRoot, true, vec![delete(inode_key(InodeId::ROOT)), delete(parent_key(InodeId::ROOT))]),
        (F::DanglingName, true, vec![put_name(2, "gone", 99, InodeKind::File)]),
        (F::DanglingName, true, vec![delete(inode_key(number(3)))]),
        (F::NameInNoContainer, true, vec![put_name(3, "in", 8, InodeKind::File)]),
        (F::NameInNoContainer, true, vec![put_name(98, "in", 8, InodeKind::File)]),
        (F::NameKind, true, vec![put_name(1, "f", 3, InodeKind::Symlink)]),
        (F::SeveralNames, true, vec![put_name(1, "f2", 3, InodeKind::File)]),
        (F::SeveralNames, true, vec![put_name(2, "f", 3, InodeKind::File)]),
        (F::SeveralNames, true, vec![put_name(1, "e", 9, InodeKind::Directory)]),
        (
            F::WrongKindInside,
            false,
            vec![put_name(7, "dir", 9, InodeKind::Directory), delete(name_key(number(2), &name("e")))],
        ),
        (F::Nameless, true, vec![delete(name_key(InodeId::ROOT, &name("f")))]),
        (F::Nameless, true, vec![delete(name_key(InodeId::ROOT, &name("d")))]),
        (F::Parent, true, vec![put_inode(3, &inode(InodeKind::File, 2, inline()))]),
        (F::Parent, true, vec![put_parent(9, 7)]),
        (F::Parent, true, vec![delete(parent_key(number(9)))]),
        (F::ParentOfNone, true, vec![put_parent(97, 1)]),
        (F::ParentOfNone, true, vec![put_parent(3, 1)]),
        (
            F::Detached,
            true,
            vec![
                delete(name_key(InodeId::ROOT, &name("d"))),
                put_name(9, "d", 2, InodeKind::Directory),
                put_parent(2, 9),
            ],
        ),
        (F::OrphanOfNone, true, vec![put(orphan_key(number(96)), &OrphanRecord::default())]),
        (F::NamedOrphan, true, vec![put(orphan_key(number(3)), &OrphanRecord::default())]),
        (F::NextInode, true, vec![put(KeySpace::NextInode.key(&[]), &CounterRecord { next: 5 })]),
        (F::NextInode, true, vec![delete(KeySpace::NextInode.key(&[]))]),
        (F::InlineSize, true, vec![put_inode(3, &Inode { size: 1, ..file(inline()) })]),
        (
            F::InlineSize,
            true,
            vec![put_inode(5, &Inode { size: 9, ..inode(InodeKind::Symlink, 1, Content::Target(b"f".to_vec())) })],
        ),
        (F::ContentKind, false, vec![put_inode(3, &file(Content::Target(b"x".to_vec())))]),
        (F::Layout, true, vec![put_inode(3, &Inode { copies: 0, ..file(inline()) })]),
        (F::Layout, true, vec![put_inode(3, &Inode { block: 3, ..file(inline()) })]),
        (F::Layout, false, vec![put_inode(4, &Inode { block: 1 << 30, ..big() })]),
        (F::ChunkOfNone, false, vec![put_chunk(3, 0, vec![])]),
        (F::ChunkOfNone, false, vec![put_chunk(95, 0, vec![block(0, 6)])]),
        (F::ChunkOrder, false, vec![put_chunk(4, 0, vec![block(1, 2), block(0, 1)])]),
        (F::ChunkOrder, false, vec![put_chunk(4, 0, vec![block(0, 1), block(128, 2)])]),
        (
            F::UnsettledIndex,
            true,
            vec![put_chunk(4, 0, vec![block(0, 1), BlockRecord { is_unsettled: true, ..block(1, 2) }])],
        ),
        (F::UnsettledIndex, true, vec![put(unsettled_key(number(4), 0), &WriterRecord::default())]),
        (F::UnsettledIndex, true, vec![put(unsettled_key(number(3), 5), &WriterRecord::default())]),
        (F::ShortIndex, true, vec![put_inode(4, &Inode { copies: 2, ..big() })]),
        (F::ShortIndex, true, vec![put(short_key(number(4), 0), &ShortRecord { copies: 2 })]),
        (F::ShortIndex, true, vec![put(short_key(number(3), 5), &ShortRecord { copies: 2 })]),
        (F::BlockBehindEnd, false, vec![put_inode(4, &Inode { size: MIB, ..big() })]),
        (
            F::BlockShape,
            false,
            vec![put_chunk(4, 0, vec![block(0, 1), BlockRecord { checksums: vec![1], ..block(1, 2) }])],
        ),
        (F::BlockShape, false, vec![put_chunk(4, 0, vec![block(0, 1), BlockRecord { copies: vec![], ..block(1, 2) }])]),
        (F::BlockNotIndexed, true, vec![delete(extent_key(REGION, 2 * MIB))]),
        (F::BlockNotIndexed, true, vec![extent(2, ExtentUse::Quarantined)]),
        (F::BlockNotIndexed, false, vec![extent(2, ExtentUse::Granted(SessionId(1)))]),
        (F::BlockNotIndexed, false, vec![put_chunk(4, 0, vec![block(0, 1), block(1, 70)])]),
        (F::BlockTwice, false, vec![put_chunk(4, 0, vec![block(0, 1), block(1, 3)])]),
        (
            F::Generation,
            false,
            vec![put_chunk(4, 0, vec![block(0, 1), BlockRecord { generation: Generation(5), ..block(1, 2) }])],
        ),
        (F::MappedByNone, false, vec![extent(8, ExtentUse::Mapped(InodeId(4), 2))]),
        (F::MappedByNone, true, vec![extent(8, ExtentUse::Mapped(InodeId(94), 0))]),
        (F::MappedByNone, false, vec![put_chunk(4, 0, vec![block(0, 1)])]),
        (
            F::ExtentOverlap,
            false,
            vec![KvWrite::Put(
                extent_key(REGION, 5 * MIB + 4096),
                ExtentRecord { len: MIB, generation: Generation(1 << 32), used: ExtentUse::Quarantined }.encode(),
            )],
        ),
        (F::ExtentOutside, false, vec![extent(65, ExtentUse::Quarantined)]),
        (
            F::ExtentOutside,
            false,
            vec![KvWrite::Put(
                extent_key(RegionId(9), 0),
                ExtentRecord { len: MIB, generation: Generation(1), used: ExtentUse::Quarantined }.encode(),
            )],
        ),
        (F::GrantOfNone, true, vec![extent(4, ExtentUse::Granted(SessionId(93)))]),
        (
            F::RegionTerm,
            false,
            vec![KvWrite::Put(
                extent_key(REGION, 5 * MIB),
                ExtentRecord { len: MIB, generation: Generation(3 << 32), used: ExtentUse::Quarantined }.encode(),
            )],
        ),
        (F::RegionTerm, false, vec![delete(lease_key(REGION))]),
        (F::SessionWithoutHold, true, vec![delete(HoldRecord::key(SessionId(1)))]),
        (F::HoldBeyondEpoch, true, vec![KvWrite::Put(HoldRecord::key(SessionId(1)), HoldRecord(Epoch(3)).encode())]),
        (F::AnswerOfNone, true, vec![put(answer_key(SessionId(92), 1), &AnswerRecord::default())]),
        (F::OwnerOfNone, true, vec![put(owner_key(number(91)), &OwnerRecord::default())]),
        (F::OwnerOfNone, true, vec![put(owner_key(number(3)), &OwnerRecord::default())]),
        (
            F::OwnerUnknown,
            true,
            vec![put(
                owner_key(number(2)),
                &OwnerRecord { service: ServiceId(1), incarnation: Term(4), term: Term(9) },
            )],
        ),
    ]
}

#[test]
fn every_damage_is_found_and_named() {
    for (kind, _, writes) in damages() {
        let mut kv = healthy();
        write(&mut kv, &writes);
        let found = found(&mut kv);
        assert!(kinds(&found).contains(&kind), "{kind}: {found:?}");
        for finding in &found {
            assert!(finding.to_string().starts_with(finding.kind.name()), "{finding}");
        }
    }
}

#[test]
fn every_kind_is_among_the_damages() {
    let tried: BTreeSet<FindingKind> = damages().into_iter().map(|(kind, ..)| kind).collect();
    let missing: Vec<_> = FindingKind::ALL.iter().filter(|kind| !tried.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let names: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.name()).collect();
    assert!(names.len() == FindingKind::ALL.len() && names.len() >= 20);
}

/// A block keeps its generation, which was its first copy's, when that one was marked out.
#[test]
fn a_block_that_has_lost_its_first_copy_is_sound() {
    let mut kv = healthy();
    let two = Inode { copies: 2, ..inode(InodeKind::File, 2, Content::Mapped) };
    let left = BlockRecord { generation: Generation(1 << 32 | 9), ..block(1, 2) };
    let index = put(short_key(InodeId(4), 0), &ShortRecord { copies: 2 });
    write(&mut kv, &[put_inode(4, &two), put_chunk(4, 0, vec![block(0, 1), left]), index]);
    assert_eq!(found(&mut kv), []);
}

#[test]
fn what_is_put_right_is_clean_after_that() {
    for (kind, is_repaired, writes) in damages() {
        let mut kv = healthy();
        write(&mut kv, &writes);
        let report = repair(&mut kv, &places()).expect("it answers");
        let again = found(&mut kv);
        assert_eq!(kinds(&report.left), kinds(&again), "{kind}");
        if is_repaired {
            assert!(kinds(&report.repaired).contains(&kind), "{kind}: {:?}", report.repaired);
            assert!(again.is_empty(), "{kind}: {again:?}");
        } else {
            assert!(kinds(&again).contains(&kind), "{kind}: {again:?}");
        }
        let second = repair(&mut kv, &places()).expect("it answers");
        assert!(second.repaired.is_empty(), "{kind}: {:?}", second.repaired);
    }
}

#[test]
fn files_are_found_again_with_their_bytes() {
    let mut kv = healthy();
    write(
        &mut kv,
        &[
            KvWrite::Delete(name_key(InodeId::ROOT, &name("f"))),
            KvWrite::Delete(name_key(InodeId::ROOT, &name("d"))),
            KvWrite::Delete(name_key(InodeId(2), &name("big"))),
        ],
    );
    let report = repair(&mut kv, &places()).expect("it answers");
    assert!(report.left.is_empty(), "{:?}", report.left);
    let image = Image::read(&mut kv).expect("it answers");
    let lost = image.names[&(InodeId::ROOT, name("lost+found"))].inode;
    let inside: Vec<String> =
        image.names.keys().filter(|(container, _)| *container == lost).map(|(_, name)| name.to_string()).collect();
    assert_eq!(inside, ["#2", "#3", "#4"]);
    assert_eq!(image.inodes[&InodeId(3)].content, Content::Inline(b"abc".to_vec()));
    assert_eq!(image.chunks[&(InodeId(4), 0)].blocks.len(), 2);
}

/// Any record lost, or replaced by other bytes: nothing panics, whatever was put right stays so, and of what is left each is named.
#[test]
fn anything_may_be_damaged() {
    let mut random = SplitMix64::new(11);
    for _ in 0..2_000 {
        let mut kv = healthy();
        let keys: Vec<KvKey> = kv.iter().map(|(key, _)| key.clone()).collect();
        for _ in 0..1 + random.below(4) {
            let key = keys[random.below(keys.len() as u32) as usize].clone();
            let value = kv.get(&key).expect("it answers").map(|value| value.value).unwrap_or_default();
            let write_back = match random.below(3) {
                0 => KvWrite::Delete(key),
                1 => KvWrite::Put(key, value[..random.below(value.len() as u32 + 1) as usize].to_vec()),
                _ => {
                    let mut other = value;
                    if !other.is_empty() {
                        let at = random.below(other.len() as u32) as usize;
                        other[at] ^= 1 << random.below(8);
                    }
                    KvWrite::Put(key, other)
                }
            };
            write(&mut kv, &[write_back]);
        }
        let report = repair(&mut kv, &places()).expect("it answers");
        assert_eq!(found(&mut kv), report.left);
        let second = repair(&mut kv, &places()).expect("it answers");
        assert!(second.repaired.is_empty(), "{:?}", second.repaired);
        let is_refused = |finding: &Finding| matches!(finding.repair, Repair::Refused(_));
        assert!(report.left.iter().all(is_refused), "{:?}", report.left);
    }
}

#[test]
fn a_repair_expects_what_it_was_made_for() {
    let mut kv = healthy();
    write(&mut kv, &[put_name(2, "gone", 99, InodeKind::File)]);
    let finding = found(&mut kv).pop().expect("a finding");
    let Repair::Writes(writes) = finding.repair else { panic!("it is put right") };
    let key = writes[0].key().clone();
    let commit = Commit { expect: vec![(key, Expect::Absent)], writes };
    assert_eq!(kv.commit(&commit), crate::kv::CommitOutcome::Conflict);
}
