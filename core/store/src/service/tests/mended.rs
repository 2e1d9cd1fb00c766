//! What a client that is killed, hostile or in a hurry leaves behind, and a medium that takes nothing.

use super::*;
use crate::fsck::Image;
use crate::keys::writer_key;
use crate::kv::{Commit, Kv as _, KvWrite};
use crate::tree::TreeMutant;
use alloc::format;

/// No commit is made, and none is known not to be: a medium that is full.
const FULL: KvFaults =
    KvFaults { unknown_made: 0, unknown_dropped: 1_000_000, unknown_late: 0, twice: 0, unavailable: 0, repeated: 0 };

#[test]
fn a_full_medium_is_asked_at_ticks_only() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    world.kv.set_faults(FULL);
    for request in [
        Request::Grant { handle, count: 1 },
        Request::Publish { handle, slot: 0, sequence: 2, size: 5, blocks: Vec::new() },
        Request::Bye {},
    ] {
        world.next += 1;
        world.give(ServiceEvent::Message(client, RequestNumber(world.next), request));
        // It comes to rest, or the test ends here.
        world.settle();
    }
    (0..20).for_each(|_| world.pass(Nanos::from_millis(200)));
    // One that begins over it comes to rest as well.
    world.life += 1;
    world.service = Service::new(settings(world.life));
    world.give(ServiceEvent::Start);
    (0..20).for_each(|_| world.pass(Nanos::from_millis(200)));
    assert!(!world.service.is_ready());
    world.kv.set_faults(KvFaults::default());
    world.begin();
    let client = world.client();
    assert!(matches!(world.create(client, "b", 1, b""), Answer::Opened { .. }));
}

#[test]
fn a_killed_writers_file_can_be_replaced() {
    each(|world| {
        let (lost, other) = (world.client(), world.client());
        let (_, at) = world.file(lost, "a", 1);
        world.give(ServiceEvent::Disconnected(lost));
        for (sequence, expected) in [(1, Some(StoreError::Busy)), (2, None)] {
            let small = NameChange::WriteInline(at, b"x".to_vec());
            let answer = world.ask_until(other, &Request::Change { slot: 0, sequence, change: small });
            assert_eq!(failed(&answer), expected);
            for _ in 0..80 {
                world.pass(Nanos::from_millis(100));
                world.ask(other, Request::Renew { epoch: Epoch(0) });
            }
        }
    });
}

#[test]
fn a_file_is_its_writers_until_the_last_handle_is_closed() {
    each(|world| {
        let (one, other) = (world.client(), world.client());
        let (handle, at) = world.file(one, "a", 1);
        let open = Request::Open { at, write: true };
        let Answer::Opened { handle: second, .. } = world.ask_until(one, &open) else { panic!("it is not opened") };
        assert_ne!(second, handle, "each opening has a handle of its own");
        assert_eq!(world.ask_until(one, &Request::Close { handle }), Answer::Done {});
        assert_eq!(failed(&world.ask_until(one, &Request::Grant { handle, count: 1 })), Some(StoreError::NotOpen));
        assert_eq!(failed(&world.ask_until(other, &open)), Some(StoreError::Busy), "the second writes it");
        assert!(matches!(world.publish(one, second, 2, 5, &[]), Answer::Changed { .. }));
        assert_eq!(world.ask_until(one, &Request::Close { handle: second }), Answer::Done {});
        assert!(matches!(world.ask_until(other, &open), Answer::Opened { .. }));
    });
}

#[test]
fn an_opening_that_is_sent_again_gets_the_same_handle() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (client, session) = world.connect(SessionWish::New);
    let (other, (handle, at)) = (world.client(), world.file(client, "a", 1));
    assert_eq!(world.ask(client, Request::Close { handle }), Answer::Done {});
    for write in [false, true] {
        world.next += 1;
        let number = RequestNumber(world.next);
        let mut handles = Vec::new();
        // Its answer is lost with the connection, twice.
        for _ in 0..3 {
            let wish = world.resume(session);
            let (connection, _) = world.connect(wish);
            world.give(ServiceEvent::Message(connection, number, Request::Open { at, write }));
            world.settle();
            match world.answers.remove(&(connection, number)) {
                Some(Answer::Opened { handle, .. }) => handles.push(handle),
                other => panic!("{other:?}"),
            }
            world.give(ServiceEvent::Disconnected(connection));
        }
        assert!(handles.windows(2).all(|pair| pair[0] == pair[1]), "{handles:?}");
        let wish = world.resume(session);
        let (connection, _) = world.connect(wish);
        assert_eq!(world.ask(connection, Request::Close { handle: handles[0] }), Answer::Done {});
    }
    assert!(
        matches!(world.ask(other, Request::Open { at, write: true }), Answer::Opened { .. }),
        "nothing is left open"
    );
}

/// A close comes at every moment of another opening by the same session: the file is that one's to write all the same.
#[test]
fn a_close_does_not_take_a_file_from_an_opening_that_is_under_way() {
    for is_new in [false, true] {
        for after in 0..12 {
            let mut world = World::with_drive(1, KvFaults::default());
            let (one, other) = (world.client(), world.client());
            let (handle, at) = world.file(one, "a", 1);
            let open = match is_new {
                false => Request::Open { at, write: true },
                true => Request::OpenNew {
                    slot: 1,
                    sequence: 1,
                    entry: EntryPath { container: InodeId::ROOT, name: name("a") },
                    new: new_inode(),
                    content: Vec::new(),
                    exclusive: false,
                },
            };
            let (opens, closes) = (RequestNumber(9001), RequestNumber(9002));
            world.give(ServiceEvent::Message(one, opens, open));
            for _ in 0..after {
                if let Some((_, token, answer)) = world.kv.advance() {
                    world.give(ServiceEvent::Kv(token, answer));
                }
            }
            world.give(ServiceEvent::Message(one, closes, Request::Close { handle }));
            world.settle();
            assert_eq!(world.answers.remove(&(one, closes)), Some(Answer::Done {}));
            let opened = world.answers.remove(&(one, opens));
            let Some(Answer::Opened { handle, .. }) = opened else { panic!("{after}: {opened:?}") };
            assert_eq!(failed(&world.ask(other, Request::Open { at, write: true })), Some(StoreError::Busy), "{after}");
            assert!(matches!(world.publish(one, handle, 3, 5, &[]), Answer::Changed { .. }), "{after}");
        }
    }
}

#[test]
fn handles_have_numbers_of_their_own() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (first, at) = world.file(client, "a", 1);
    // Four thousand million later the numbers begin again.
    world.service.handles.last = u32::MAX;
    let read = Request::Open { at, write: false };
    let mut open = || match world.ask_until(client, &read) {
        Answer::Opened { handle, .. } => handle,
        other => panic!("{other:?}"),
    };
    let (second, third) = (open(), open());
    assert!(first != second && first != third && second != third);
}

#[test]
fn numbers_of_removed_namespaces_are_not_used_again() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (operator, _) = world.connect(SessionWish::None);
    let number = NamespaceId(1);
    assert_eq!(world.ask_until(operator, &Request::Drain { namespace: number, drains: true }), Answer::Done {});
    assert_eq!(world.ask_until(operator, &Request::Remove { namespace: number }), Answer::Done {});
    world.restart();
    let (operator, _) = world.connect(SessionWish::None);
    world.drives.insert(TARGET.into(), LabelFound::Blank);
    assert_eq!(world.donate(operator, TARGET, "dram", false), Answer::Donated { namespace: NamespaceId(2) });
}

#[test]
fn a_namespace_that_was_removed_joins_again_after_any_restart() {
    let mut world = World::with_drive(1, KvFaults::default());
    for number in 1..4 {
        let (operator, _) = world.connect(SessionWish::None);
        let namespace = NamespaceId(number);
        assert_eq!(world.ask_until(operator, &Request::Drain { namespace, drains: true }), Answer::Done {});
        assert_eq!(world.ask_until(operator, &Request::Remove { namespace }), Answer::Done {});
        let label = world.drives[TARGET];
        world.restart();
        assert_eq!(world.count(KeySpace::Removed), 1);
        let (operator, _) = world.connect(SessionWish::None);
        let told = world.donate(operator, TARGET, "dram", false);
        assert_eq!(told, Answer::Donated { namespace: NamespaceId(number + 1) }, "its own label covers nothing");
        assert_eq!(world.count(KeySpace::Removed), 0);
        // A copy of the drive as it was is none that nobody has.
        world.drives.insert("copy".into(), label);
        assert_eq!(failed(&world.donate(operator, "copy", "dram", false)), Some(StoreError::Foreign));
    }
}

#[test]
fn a_calendar_that_goes_back_stops_nothing() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (client, session) = world.connect(SessionWish::New);
    let (handle, at) = world.file(client, "a", 1);
    assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    world.restart();
    world.wall = 5;
    let (client, _) = world.connect(world.resume(session));
    for _ in 0..3 {
        let Answer::Opened { handle, .. } = world.ask_until(client, &Request::Open { at, write: true }) else {
            panic!("it is not opened")
        };
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
    }
}

#[test]
fn a_session_is_resumed_with_its_token_alone() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (client, session) = world.connect(SessionWish::New);
    let session = session.expect("a session");
    world.file(client, "a", 1);
    for token in [[0; 16], [0xff; 16]] {
        world.next += 1;
        let thief = ConnectionId(world.next);
        world.give(ServiceEvent::Connected(thief, [3; 16]));
        let answer = world.ask(thief, hello(SessionWish::Resume(session, token)));
        assert_eq!(failed(&answer), Some(StoreError::SessionGone));
    }
    let wish = world.resume(Some(session));
    assert_eq!(world.connect(wish).1, Some(session));
}

#[test]
fn many_greetings_make_one_session() {
    let mut world = World::with_drive(1, KvFaults::default());
    let before = world.count(KeySpace::Session);
    world.next += 1;
    let connection = ConnectionId(world.next);
    world.give(ServiceEvent::Connected(connection, [1; 16]));
    for number in 0..100 {
        world.give(ServiceEvent::Message(connection, RequestNumber(number), hello(SessionWish::New)));
    }
    world.settle();
    assert_eq!(world.count(KeySpace::Session) - before, 1);
    assert!(world.closed.contains(&connection));
}

#[test]
fn a_hole_is_cut_off_in_a_few_steps() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let blocks = world.granted(client, handle, 3);
    let per_chunk = u64::from(crate::records::blocks_per_chunk(BLOCK as u32));
    let most = u64::from(u32::MAX) * per_chunk;
    let published: Vec<_> =
        [0, 1_000_000_007, most - 1].into_iter().zip(&blocks).map(|(at, new)| (at, record(new, BLOCK))).collect();
    let beyond = world.publish(client, handle, 2, most * BLOCK + 1, &published);
    assert_eq!(failed(&beyond), Some(StoreError::Malformed));
    assert!(matches!(world.publish(client, handle, 2, most * BLOCK, &published), Answer::Changed { .. }));
    world.commits.clear();
    assert!(matches!(world.publish(client, handle, 3, 1, &[]), Answer::Changed { .. }));
    assert!(world.commits.len() < 20, "{} commits", world.commits.len());
    assert_eq!(world.namespaces(client)[0].mapped, BLOCK);
    assert_eq!(world.stat(client, "a").expect("a file").1.size, 1);
    // One that is about too many chunks is refused before they are read.
    let many: Vec<_> = (0..65).map(|number| (number * per_chunk, record(&blocks[0], BLOCK))).collect();
    assert_eq!(failed(&world.publish(client, handle, 4, most * BLOCK, &many)), Some(StoreError::Malformed));
}

#[test]
fn a_deleted_file_is_written_as_long_as_it_is_open() {
    each(|world| {
        let (client, session) = world.connect(SessionWish::New);
        let (handle, at) = world.file(client, "a", 1);
        let blocks = world.granted(client, handle, 2);
        let first = [(0, record(&blocks[0], BLOCK))];
        assert!(matches!(world.publish(client, handle, 2, BLOCK, &first), Answer::Changed { .. }));
        let entry = EntryPath { container: InodeId::ROOT, name: name("a") };
        let delete = NameChange::Delete { entry, recursive: false };
        let deleted = world.ask_until(client, &Request::Change { slot: 0, sequence: 3, change: delete });
        assert!(matches!(deleted, Answer::Changed { .. }), "{deleted:?}");
        let second = [(1, record(&blocks[1], BLOCK))];
        assert!(matches!(world.publish(client, handle, 4, 2 * BLOCK, &second), Answer::Changed { .. }));
        let size = |world: &mut World, client| match world.ask_until(client, &Request::Stat { at }) {
            Answer::Found { inode, .. } => inode.size,
            other => panic!("{other:?}"),
        };
        assert_eq!(size(world, client), 2 * BLOCK);
        // Opened again after a restart it is as it was.
        world.restart();
        let (client, _) = world.connect(world.resume(session));
        let opened = world.ask_until(client, &Request::Open { at, write: true });
        let Answer::Opened { handle, .. } = opened else { panic!("{opened:?}") };
        assert!(matches!(world.publish(client, handle, 5, BLOCK, &[]), Answer::Changed { .. }));
        assert_eq!((size(world, client), world.map(client, handle, 0).blocks.len()), (BLOCK, 1));
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
        // It is gone then, and is not opened any more.
        for _ in 0..40 {
            world.pass(Nanos::from_secs(5));
            let client = world.client();
            world.ask(client, Request::Renew { epoch: Epoch(0) });
            if world.count(KeySpace::Orphan) == 0 {
                break;
            }
        }
        assert_eq!(world.count(KeySpace::Orphan), 0);
        let client = world.client();
        let gone = world.ask_until(client, &Request::Open { at, write: false });
        assert_eq!(failed(&gone), Some(StoreError::NotFound));
    });
}

#[test]
fn a_drive_is_donated_once() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (operator, _) = world.connect(SessionWish::None);
    let second = "nvme-tcp://127.0.0.1:4420/nqn?ns=2";
    world.drives.insert(second.into(), LabelFound::Blank);
    let donation =
        |overwrite| Donation { target: second.into(), class: class("dram"), location: Location::default(), overwrite };
    // The second comes while the first is being recorded.
    for number in [1001, 1002] {
        let donate = Request::Donate { donation: donation(false) };
        world.give(ServiceEvent::Message(operator, RequestNumber(number), donate));
    }
    world.settle();
    let told = |number| world.answers.get(&(operator, RequestNumber(number)));
    assert_eq!(told(1001), Some(&Answer::Donated { namespace: NamespaceId(2) }));
    assert_eq!(told(1002).and_then(failed), Some(StoreError::InUse));
    // A label of this store that it does not know, as after an older copy of the metadata was put back.
    let LabelFound::Label { store, .. } = world.drives[second] else { panic!("it has a label") };
    let content = crate::members::ContentLabel(77);
    world.drives.insert(second.into(), LabelFound::Label { store, namespace: NamespaceId(9), content });
    assert_eq!(failed(&world.donate(operator, second, "dram", false)), Some(StoreError::Foreign));
    assert_eq!(world.donate(operator, second, "dram", true), Answer::Donated { namespace: NamespaceId(3) });
}

#[test]
fn a_drive_that_has_shrunk_is_lost() {
    let mut world = World::with_drive(1, KvFaults::default());
    world.drive_bytes -= 4096;
    world.restart();
    world.pass(Nanos::from_millis(10));
    let (operator, _) = world.connect(SessionWish::None);
    assert_eq!(world.namespaces(operator)[0].state, NamespaceState::Lost);
}

fn hello(session: SessionWish) -> Request {
    let location = Location::default();
    Request::Hello { magic: PROTOCOL_MAGIC, version: PROTOCOL_VERSION, client: "c".into(), location, session }
}

#[test]
fn fsck_knows_every_record_that_a_service_writes() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let blocks = world.granted(client, handle, 1);
    world.publish(client, handle, 2, BLOCK, &[(0, record(&blocks[0], BLOCK))]);
    let image = Image::read(world.kv.store_mut()).expect("an image");
    let found = image.findings(&image.places());
    assert!(found.is_empty(), "{found:?}");
}

/// A file that two sessions want: what is wrong with what they are told and what is written, if anything is.
fn file_of_two_sessions(mutant: Option<TreeMutant>) -> Result<(), &'static str> {
    let is = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let mut world = World::with_drive(1, KvFaults::default());
    world.service.tree.plant(mutant);
    let (one, other) = (world.client(), world.client());
    let (handle, at) = world.file(one, "a", 1);
    let answer = world.ask_until(other, &Request::Open { at, write: true });
    is(failed(&answer) == Some(StoreError::Busy), "two sessions write a file")?;
    let blocks = world.granted(one, handle, 2);
    world.commits.clear();
    for (sequence, new) in (2..).zip(&blocks) {
        let answer = world.publish(one, handle, sequence, BLOCK, &[(0, record(new, BLOCK))]);
        is(matches!(answer, Answer::Changed { .. }), "it is not published")?;
    }
    is(world.namespaces(one)[0].mapped == BLOCK, "a block that was replaced is the file's")?;
    let expects = |commit: &Commit| commit.expect.iter().any(|(key, _)| *key == writer_key(at.inode));
    let writes_map = |commit: &&Commit| {
        let of_map = |write: &KvWrite| write.key().0.first() == Some(&(KeySpace::MapChunk as u8));
        commit.writes.iter().any(of_map)
    };
    is(world.commits.iter().filter(writes_map).all(expects), "a late publish is made although another one writes")
}

#[test]
fn each_mistake_with_writers_and_blocks_is_found() {
    assert_eq!(file_of_two_sessions(None), Ok(()));
    for mutant in TreeMutant::OF_FILES {
        assert!(file_of_two_sessions(Some(mutant)).is_err(), "{mutant:?} is not found");
    }
}

/// Every refusal says what it is about: the path as it was given, or inode, handle, namespace with its target.
#[test]
fn refusals_say_what_they_are_about() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (one, other) = (world.client(), world.client());
    let (handle, at) = world.file(one, "a", 1);
    let entry = |at: &str| EntryPath { container: InodeId::ROOT, name: name(at) };
    let mut sequence = 10;
    let mut change = |change: NameChange| {
        sequence += 1;
        Request::Change { slot: 1, sequence, change }
    };
    let link = NewInode { kind: InodeKind::Symlink, target: b"gone/x".to_vec(), ..new_inode() };
    let linked = world.ask(one, change(NameChange::Create(entry("link"), link)));
    assert!(matches!(linked, Answer::Changed { .. }), "{linked:?}");
    let resolve = |from: InodeId, path: &str| {
        let names = path.split('/').map(name).collect();
        Request::Resolve { from, names, follow: true }
    };
    let (inode, far) = (at.inode, Extent { offset: (1 << 40).into(), length: 4096.into(), namespace: NamespaceId(1) });
    let gone = InodePath { inode: InodeId(99), parent: InodeId::ROOT };
    for (request, expected) in [
        (resolve(InodeId::ROOT, "x/y"), "/x".into()),
        (resolve(InodeId::ROOT, "a/y/z"), "/a".into()),
        (resolve(InodeId::ROOT, "link/y"), "/link: \"gone\" of the symlink's path".into()),
        (resolve(InodeId(7), "x"), "inode 7/x".into()),
        (Request::Stat { at: gone }, "inode 99".into()),
        (Request::List { container: InodeId(99), after: None, most: 1 }, "inode 99".into()),
        (Request::Open { at, write: true }, format!("inode {inode}")),
        (change(NameChange::Create(entry("a"), new_inode())), "\"a\" in inode 1".into()),
        (
            change(NameChange::Rename { from: entry("b"), to: entry("c"), replace: false }),
            "\"b\" in inode 1 to \"c\" in inode 1".into(),
        ),
        (change(NameChange::SetAttributes(gone, SetAttributes::default())), "inode 99".into()),
        (Request::Map { handle, chunk: 0 }, format!("handle {handle}")),
        (
            Request::Return { extents: vec![far] },
            format!("{far} [{TARGET}]: the extent is in no region of this service"),
        ),
        (Request::Drain { namespace: NamespaceId(8), drains: true }, "namespace 8".into()),
        (Request::Remove { namespace: NamespaceId(1) }, format!("namespace 1 [{TARGET}]")),
    ] {
        match world.ask(other, request.clone()) {
            Answer::Failed { detail, .. } => assert_eq!(detail, expected, "{request:?}"),
            answer => panic!("{request:?}: {answer:?}"),
        }
    }
    let Answer::Failed { detail, .. } = world.ask(one, Request::Unsettle { handle, block: 5 }) else {
        panic!("no block")
    };
    assert_eq!(detail, format!("inode {inode}, handle {handle}"));
    let Answer::Failed { detail, .. } = world.donate(other, "nvme-tcp://nowhere", "dram", false) else {
        panic!("none")
    };
    assert_eq!(detail, "nvme-tcp://nowhere: connection refused");
}

#[test]
fn a_deleted_file_that_is_open_is_changed_as_before() {
    each(|world| {
        let client = world.client();
        let (handle, at) = world.file(client, "a", 1);
        let entry = EntryPath { container: InodeId::ROOT, name: name("a") };
        let changes = |mode| {
            let set = SetAttributes { mode: Some(mode), size: Some(2), ..SetAttributes::default() };
            [
                NameChange::WriteInline(at, b"xyz".to_vec()),
                NameChange::SetAttributes(at, set),
                NameChange::SetExtended(at, "user.a".into(), Some(b"v".to_vec())),
            ]
        };
        let delete = NameChange::Delete { entry, recursive: false };
        let deleted = world.ask_until(client, &Request::Change { slot: 0, sequence: 2, change: delete });
        assert!(matches!(deleted, Answer::Changed { .. }), "{deleted:?}");
        for (sequence, change) in (3..).zip(changes(0o600)) {
            let told = world.ask_until(client, &Request::Change { slot: 0, sequence, change });
            assert!(matches!(told, Answer::Changed { .. }), "{told:?}");
        }
        let Answer::Found { inode, .. } = world.ask_until(client, &Request::Stat { at }) else { panic!("it is open") };
        assert_eq!((inode.mode, inode.size, inode.content), (0o600, 2, Content::Inline(b"xy".to_vec())));
        assert_eq!(inode.attributes.len(), 1);
        assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
        // It is not open any more.
        for (sequence, change) in (10..).zip(changes(0o644)) {
            let told = world.ask_until(client, &Request::Change { slot: 0, sequence, change });
            assert_eq!(failed(&told), Some(StoreError::NotFound));
        }
    });
}

/// A power cut takes the last second: a session, and what another one was granted. Neither may write to blocks that are given out again.
#[test]
fn nothing_is_given_out_while_clients_of_before_a_power_cut_may_write() {
    let (mut world, mut later) = (World::with_drive(1, KvFaults::default()), World::with_drive(1, KvFaults::default()));
    let (client, session) = world.connect(SessionWish::New);
    let (handle, _) = world.file(client, "a", 1);
    // What the medium had: a session without its last grant.
    let kept: Vec<(KvKey, Vec<u8>)> =
        world.kv.store().iter().map(|(key, found)| (key.clone(), found.value.clone())).collect();
    let lost = world.granted(client, handle, 1).remove(0).copies[0];
    let there: Vec<KvKey> = later.kv.store().iter().map(|(key, _)| key.clone()).collect();
    for write in
        there.into_iter().map(KvWrite::Delete).chain(kept.into_iter().map(|(key, value)| KvWrite::Put(key, value)))
    {
        later.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: vec![write] });
    }
    later.tokens = world.tokens.clone();
    later.life = 7;
    later.service = Service::new(ServiceSettings { may_have_lost: true, ..settings(7) });
    later.now = Nanos::from_secs(100);
    later.begin();
    // The client goes on by itself until it has heard that its session is over.
    later.next += 1;
    let again = ConnectionId(later.next);
    later.give(ServiceEvent::Connected(again, [3; 16]));
    let answer =
        later.ask(again, hello(SessionWish::Resume(session.expect("a session"), later.tokens[&session.expect("one")])));
    assert_eq!(failed(&answer), Some(StoreError::SessionGone));
    let other = later.client();
    let (begun, mut refusals) = (later.service.began, 0);
    let entry = EntryPath { container: InodeId::ROOT, name: name("b") };
    let (slot, sequence, new, content) = (0, 1, new_inode(), Vec::new());
    let open = Request::OpenNew { slot, sequence, entry, new, content, exclusive: false };
    let file = loop {
        match later.ask(other, open.clone()) {
            Answer::Failed { error: StoreError::Unavailable, detail } => {
                assert!(detail.contains("s from now"), "{detail}");
                refusals += 1;
            }
            Answer::Opened { handle, .. } => break handle,
            other => panic!("{other:?}"),
        }
        later.pass(Nanos::from_millis(100));
        later.ask(other, Request::Renew { epoch: Epoch(0) });
    };
    let granted = later.granted(other, file, 1).remove(0);
    let safe = settings(7).timing.watcher_end(begun).saturating_add(settings(7).fence_wait);
    assert!(refusals > 10 && later.now >= safe, "{refusals} refusals, given out at {} of {safe}", later.now);
    assert_eq!(granted.copies[0], lost, "the block that the client of before believed its own");
    // A start that follows a process that has died gives out at once.
    later.restart();
    let client = later.client();
    let (file, _) = later.file(client, "c", 1);
    assert!(matches!(later.ask(client, Request::Grant { handle: file, count: 1 }), Answer::Granted { .. }));
}

/// A session ends at every moment of an opening that is under way beside its end: nothing of it stays open.
#[test]
fn a_session_that_ends_opens_nothing_more() {
    for write in [false, true] {
        for after in 0..12 {
            let mut world = World::with_drive(1, KvFaults::default());
            let one = world.client();
            let (handle, at) = world.file(one, "a", 1);
            assert_eq!(world.ask(one, Request::Close { handle }), Answer::Done {});
            world.give(ServiceEvent::Message(one, RequestNumber(9001), Request::Bye {}));
            world.give(ServiceEvent::Message(one, RequestNumber(9002), Request::Open { at, write }));
            for _ in 0..after {
                if let Some((_, token, answer)) = world.kv.advance() {
                    world.give(ServiceEvent::Kv(token, answer));
                }
            }
            world.give(ServiceEvent::Message(one, RequestNumber(9003), Request::Open { at, write }));
            world.settle();
            (0..80).for_each(|_| world.pass(Nanos::from_millis(100)));
            assert_eq!(world.service.handles.len(), 0, "after {after} answers, write: {write}");
        }
    }
}

#[test]
fn a_session_that_was_resumed_is_not_that_of_its_connection_before() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (before, session) = world.connect(SessionWish::New);
    let (handle, at) = world.file(before, "a", 1);
    let granted = world.granted(before, handle, 1);
    let wish = world.resume(session);
    let (after, resumed) = world.connect(wish);
    assert_eq!((resumed, &world.closed[..]), (session, &[before][..]));
    let extents = granted[0].copies.clone();
    for late in
        [Request::Open { at, write: false }, Request::Return { extents }, Request::Unsettle { handle, block: 0 }]
    {
        assert_eq!(failed(&world.ask(before, late)), Some(StoreError::NoSession));
    }
    let published = [(0, record(&granted[0], BLOCK))];
    assert!(
        matches!(world.publish(after, handle, 2, BLOCK, &published), Answer::Changed { .. }),
        "it is granted still"
    );
}

/// Clients of before a power cut may be at a file of which the metadata do not know any more that they write it.
#[test]
fn files_are_not_opened_for_writing_before_clients_of_before_a_power_cut_have_stopped() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let (_, at) = world.file(client, "a", 1);
    world.life += 1;
    world.service = Service::new(ServiceSettings { may_have_lost: true, ..settings(world.life) });
    world.begin();
    let other = world.client();
    let (write, read) = (Request::Open { at, write: true }, Request::Open { at, write: false });
    assert!(matches!(world.ask(other, read), Answer::Opened { .. }));
    match world.ask(other, write.clone()) {
        Answer::Failed { error: StoreError::Unavailable, detail } => assert!(detail.contains("s from now"), "{detail}"),
        answer => panic!("{answer:?}"),
    }
    while !world.service.gives_out() {
        world.pass(Nanos::from_millis(100));
        world.ask(other, Request::Renew { epoch: Epoch(0) });
    }
    // Its writer of before cannot go on, and is fenced by and by.
    for _ in 0..80 {
        world.pass(Nanos::from_millis(100));
        world.ask(other, Request::Renew { epoch: Epoch(0) });
    }
    assert!(matches!(world.ask(other, write), Answer::Opened { .. }));
}

/// The answer to a grant is lost with its connection, at every moment: sent again it gets the same blocks, and the session has no more.
#[test]
fn a_grant_that_is_sent_again_gets_the_same_blocks() {
    let mut world = World::with_drive(1, KvFaults::default());
    let (first, session) = world.connect(SessionWish::New);
    let (handle, _) = world.file(first, "a", 1);
    let request = Request::Grant { handle, count: 2 };
    let mut connection = first;
    let mut all: Vec<NewBlock> = Vec::new();
    for after in 0..30 {
        let number = RequestNumber(9000 + after);
        world.give(ServiceEvent::Message(connection, number, request.clone()));
        for _ in 0..after {
            if let Some((_, token, answer)) = world.kv.advance() {
                world.give(ServiceEvent::Kv(token, answer));
            }
        }
        world.give(ServiceEvent::Disconnected(connection));
        world.answers.remove(&(connection, number));
        let wish = world.resume(session);
        connection = world.connect(wish).0;
        let mut twice = Vec::new();
        for _ in 0..2 {
            world.give(ServiceEvent::Message(connection, number, request.clone()));
            world.settle();
            match world.answers.remove(&(connection, number)) {
                Some(Answer::Granted { blocks }) => twice.push(blocks),
                other => panic!("after {after} answers: {other:?}"),
            }
        }
        assert_eq!(twice[0], twice[1]);
        all.append(&mut twice[0]);
        let granted: u64 = world.namespaces(connection).iter().map(|info| info.granted).sum();
        assert_eq!(granted, all.len() as u64 * BLOCK, "after {after} answers");
    }
    let mut places: Vec<_> = all.iter().map(|block| block.copies[0].offset).collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "each grant has blocks of its own");
    // What was published is not granted any more: the number says nothing then.
    let published = [(0, record(&all[0], BLOCK)), (1, record(&all[1], BLOCK))];
    assert!(matches!(world.publish(connection, handle, 2, 2 * BLOCK, &published), Answer::Changed { .. }));
    world.give(ServiceEvent::Message(connection, RequestNumber(9000), request));
    world.settle();
    match world.answers.remove(&(connection, RequestNumber(9000))) {
        Some(Answer::Granted { blocks }) => assert!(blocks.iter().all(|block| !all.contains(block))),
        other => panic!("{other:?}"),
    }
}

/// What was given up is free when the medium knows of it: it is asked as soon as a client waits for that, and not before.
#[test]
fn the_medium_is_asked_where_a_client_waits_for_room() {
    let mut world = World::new(1, KvFaults::default());
    world.medium_stalls = true;
    world.drive_bytes = 65 << 20;
    let (operator, _) = world.connect(SessionWish::None);
    world.donate(operator, TARGET, "dram", false);
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let grant = |handle, count| Request::Grant { handle, count };
    let mut published = Vec::new();
    let full = loop {
        match world.ask_until(client, &grant(handle, 1)) {
            Answer::Granted { blocks } => {
                let at = published.len() as u64;
                published.push((at, record(&blocks[0], BLOCK)));
                let told = world.publish(client, handle, 2 + at, (at + 1) * BLOCK, &published[at as usize..]);
                assert!(matches!(told, Answer::Changed { .. }), "{told:?}");
            }
            other => break other,
        }
    };
    assert_eq!((failed(&full), world.syncs), (Some(StoreError::NoSpace), 0), "nothing is coming");
    let cut = world.publish(client, handle, 5000, (published.len() as u64 - 10) * BLOCK, &[]);
    assert!(matches!(cut, Answer::Changed { .. }), "{cut:?}");
    assert_eq!(world.syncs, 0, "nobody waits");
    let waits = world.ask(client, grant(handle, 1));
    assert!(matches!(failed(&waits), Some(StoreError::Freeing(_))), "{waits:?}");
    assert_eq!(world.syncs, 1);
}

/// Drives that join at the same time are of different nodes, unless they have one host; copies lie as far apart as there is room.
#[test]
fn drives_that_join_at_once_are_of_different_nodes_and_copies_are_far_apart() {
    let mut world = World::new(1, KvFaults::default());
    let (operator, _) = world.connect(SessionWish::None);
    let drives = [
        ("a", 1, "hall1/rack1"),
        ("b", 1, "hall1/rack1"),
        ("b", 2, "hall1/rack1"),
        ("c", 1, "hall1/rack2"),
        ("d", 1, "hall2/rack3"),
    ];
    for (at, (host, number, location)) in drives.iter().enumerate() {
        let target: String = alloc::format!("nvme-tcp://{host}:4420/nqn?ns={number}");
        world.drives.insert(target.clone(), LabelFound::Blank);
        let location = Location::new(location).expect("a location");
        let donation = Donation { target, class: class("dram"), location, overwrite: false };
        world.give(ServiceEvent::Message(operator, RequestNumber(1000 + at as u64), Request::Donate { donation }));
    }
    world.settle();
    world.pass(Nanos::from_millis(10));
    let infos = world.namespaces(operator);
    let nodes: Vec<u64> = infos.iter().map(|info| info.node.get()).collect();
    assert_eq!(nodes, [1, 2, 2, 4, 5]);
    // One that joins later on the same host as one of them.
    let later = "nvme-tcp://d:4420/nqn?ns=2";
    world.drives.insert(later.into(), LabelFound::Blank);
    assert!(matches!(world.donate(operator, later, "dram", false), Answer::Donated { .. }));
    assert_eq!(world.namespaces(operator)[5].node.get(), 5);
    let client = world.client();
    let place =
        |world: &World, copy: &Extent| world.service.namespaces[&copy.namespace].record.location.as_str().to_string();
    for sequence in 1..20 {
        let entry = EntryPath { container: InodeId::ROOT, name: name(&alloc::format!("f{sequence}")) };
        let near = Location::new("hall1/rack1").expect("a location");
        let new = NewInode { copies: 2, location: near, ..new_inode() };
        let open = Request::OpenNew { slot: 0, sequence, entry, new, content: Vec::new(), exclusive: true };
        let Answer::Opened { handle, .. } = world.ask_until(client, &open) else { panic!("it is not opened") };
        let blocks = world.granted(client, handle, 1);
        let places: Vec<String> = blocks[0].copies.iter().map(|copy| place(&world, copy)).collect();
        assert_eq!(places[0], "hall1/rack1", "near");
        assert!(places[1].is_empty() || places[1].starts_with("hall2"), "far: {places:?}");
        let back = Request::Return { extents: blocks[0].copies.clone() };
        assert_eq!(world.ask_until(client, &back), Answer::Done {});
    }
}

/// A service that has just begun and has not reached its drives does not know that there is no room: who asks for blocks then asks again.
#[test]
fn that_there_is_no_room_is_known_when_drives_were_looked_for() {
    let mut world = World::with_drive(1, KvFaults::default());
    let label = world.drives.remove(TARGET).expect("its label");
    world.restart();
    let client = world.client();
    let (handle, _) = world.file(client, "a", 1);
    let grant = Request::Grant { handle, count: 1 };
    assert_eq!(failed(&world.ask(client, grant.clone())), Some(StoreError::Unavailable));
    world.drives.insert(TARGET.into(), label);
    assert!(matches!(world.ask_until(client, &grant), Answer::Granted { .. }));
    // One that does not come has no room.
    world.drives.remove(TARGET);
    world.restart();
    let client = world.client();
    let (handle, _) = world.file(client, "b", 1);
    let grant = Request::Grant { handle, count: 1 };
    assert_eq!(failed(&world.ask(client, grant)), Some(StoreError::Unavailable));
    (0..52).for_each(|_| world.pass(Nanos::from_millis(100)));
    let client = world.client();
    let (handle, _) = world.file(client, "c", 1);
    assert_eq!(failed(&world.ask(client, Request::Grant { handle, count: 1 })), Some(StoreError::NoSpace));
}
