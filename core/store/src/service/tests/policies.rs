//! New files under policies by path: by which path they are made, and what their makers say themselves.

use super::*;
use crate::class::ClassId;
use crate::policy::{DEMOTE_AFTER, PathPattern, PathPolicy, Tiering, Watermarks};
use crate::tree::LIST_MAX;

pub(super) fn policy(path: &str, classes: &[&str], copies: u8, demote_after: Option<u64>) -> PathPolicy {
    PathPolicy {
        path: PathPattern::new(path).expect("a pattern"),
        classes: classes.iter().map(|of| class(of)).collect(),
        copies,
        demote_after: demote_after.map(Nanos::from_secs),
    }
}

fn tiering() -> Tiering {
    let policies = vec![
        policy("/tmp/*.log", &["flash"], 1, None),
        policy("/tmp/**", &["flash", "dram"], 2, Some(10)),
        policy("/runs/**", &[], 3, None),
    ];
    Tiering { policies, watermarks: Watermarks::default() }
}

/// A new file as a client asks for it that says nothing.
fn plain() -> NewInode {
    NewInode { copies: 0, ..new_inode() }
}

fn change(world: &mut World, client: ConnectionId, change: NameChange) -> InodeId {
    world.next += 1;
    let sequence = world.next;
    match world.ask_until(client, &Request::Change { slot: 0, sequence, change }) {
        Answer::Changed { changed } => changed.inode,
        other => panic!("{other:?}"),
    }
}

fn make(world: &mut World, client: ConnectionId, container: InodeId, at: &str, new: NewInode) -> InodeId {
    change(world, client, NameChange::Create(EntryPath { container, name: name(at) }, new))
}

fn folder(world: &mut World, client: ConnectionId, container: InodeId, at: &str, kind: InodeKind) -> InodeId {
    make(world, client, container, at, NewInode { kind, ..new_inode() })
}

fn open_new(world: &mut World, client: ConnectionId, container: InodeId, at: &str, new: NewInode) -> Box<Inode> {
    world.next += 1;
    let (sequence, entry) = (world.next, EntryPath { container, name: name(at) });
    let open = Request::OpenNew { slot: 0, sequence, entry, new, content: b"abc".to_vec(), exclusive: true };
    match world.ask_until(client, &open) {
        Answer::Opened { handle, inode, .. } => {
            assert_eq!(world.ask_until(client, &Request::Close { handle }), Answer::Done {});
            inode
        }
        other => panic!("{other:?}"),
    }
}

/// Classes, copies and demotion.
fn had(inode: &Inode) -> (Vec<u16>, u8, Option<&[u8]>) {
    let classes = inode.classes.iter().map(|class| class.0).collect();
    (classes, inode.copies, inode.attributes.get(DEMOTE_AFTER).map(Vec::as_slice))
}

type Had = (Vec<u16>, u8, Option<&'static [u8]>);

fn of_tmp() -> Had {
    (vec![1, 0], 2, Some(b"10s"))
}

fn of_none() -> Had {
    (vec![], 1, None)
}

/// With a store of two classes.
fn each_with_policies(conversation: impl Fn(&mut World)) {
    each(|world| {
        let (operator, _) = world.connect(SessionWish::None);
        world.drives.insert(recovered::SECOND.into(), LabelFound::Blank);
        assert!(matches!(world.donate(operator, recovered::SECOND, "flash", false), Answer::Donated { .. }));
        world.set_tiering(tiering(), None);
        conversation(world);
    });
}

#[test]
fn a_file_gets_what_its_path_says_unless_its_maker_does() {
    each_with_policies(|world| {
        let client = world.client();
        let tmp = folder(world, client, InodeId::ROOT, "tmp", InodeKind::Directory);
        let sub = folder(world, client, tmp, "sub", InodeKind::Directory);
        let many = folder(world, client, sub, "many", InodeKind::Multifile);
        for (container, at, expected) in [
            (tmp, "a", of_tmp()),
            (tmp, "a.log", (vec![1], 1, None)),
            (tmp, "b.log._COPYING_", (vec![1], 1, None)),
            (sub, "c.log", of_tmp()),
            (many, "0001", of_tmp()),
            (InodeId::ROOT, "tmp2", of_none()),
        ] {
            assert_eq!(had(&open_new(world, client, container, at, plain())), expected, "{at}");
        }
        // Without being opened, as well.
        make(world, client, sub, "made", plain());
        assert_eq!(had(&world.stat(client, "/tmp/sub/made").expect("a file").1), of_tmp());
        // What a maker says counts.
        let new = NewInode { classes: vec![ClassId(0)], copies: 1, ..plain() };
        assert_eq!(had(&open_new(world, client, sub, "said", new)), (vec![0], 1, Some(&b"10s"[..])));
        // Folders and links have no blocks.
        let inode = world.stat(client, "/tmp/sub").expect("a folder").1;
        assert_eq!(had(&inode), of_none());
        let link = NewInode { kind: InodeKind::Symlink, target: b"/x".to_vec(), ..plain() };
        make(world, client, sub, "link", link);
        // What is refused is refused under policies as well.
        world.next += 1;
        let (sequence, entry) = (world.next, EntryPath { container: sub, name: name("bad") });
        let new = NewInode { classes: vec![ClassId(9)], ..plain() };
        let bad = Request::OpenNew { slot: 0, sequence, entry, new, content: Vec::new(), exclusive: true };
        assert_eq!(failed(&world.ask_until(client, &bad)), Some(StoreError::NoClass));
    });
}

/// The path is the one of now, whoever was renamed above, and also where the service has seen nothing of it.
#[test]
fn the_path_is_known_after_renames_and_restarts() {
    each_with_policies(|world| {
        let client = world.client();
        let rename = |world: &mut World, client, (from, at): (InodeId, &str), (to, then): (InodeId, &str)| {
            let from = EntryPath { container: from, name: name(at) };
            let to = EntryPath { container: to, name: name(then) };
            change(world, client, NameChange::Rename { from, to, replace: false });
        };
        let tmp = folder(world, client, InodeId::ROOT, "tmp", InodeKind::Directory);
        let runs = folder(world, client, InodeId::ROOT, "runs", InodeKind::Directory);
        let mid = folder(world, client, tmp, "mid", InodeKind::Directory);
        let low = folder(world, client, mid, "low", InodeKind::Directory);
        assert_eq!(had(&open_new(world, client, low, "1", plain())), of_tmp());
        rename(world, client, (tmp, "mid"), (runs, "other"));
        assert_eq!(had(&open_new(world, client, low, "2", plain())), (vec![], 3, None));
        rename(world, client, (runs, "other"), (InodeId::ROOT, "away"));
        assert_eq!(had(&open_new(world, client, low, "3", plain())), of_none());
        rename(world, client, (InodeId::ROOT, "away"), (tmp, "back"));
        // Nothing was seen of it by this process: its names are looked for, behind many others.
        for number in 0..LIST_MAX + 5 {
            make(world, client, tmp, &alloc::format!("a{number:04}"), plain());
        }
        world.restart();
        let client = world.client();
        assert_eq!(had(&open_new(world, client, low, "4", plain())), of_tmp());
        // What was made before stays as it was made.
        assert_eq!(had(&world.stat(client, "/tmp/back/low/3").expect("a file").1), of_none());
        // By a symbolic link the path is the one that it leads to.
        let link = NewInode { kind: InodeKind::Symlink, target: b"/tmp/back".to_vec(), ..plain() };
        make(world, client, InodeId::ROOT, "link", link);
        let (at, _) = world.stat(client, "/link/low").expect("a folder");
        assert_eq!(had(&open_new(world, client, at.inode, "5", plain())), of_tmp());
    });
}

/// An answer that is repeated says where something was: nobody goes by it.
#[test]
fn an_old_answer_is_not_where_something_is() {
    let mut world = World::with_drive(1, KvFaults::default());
    world.set_tiering(tiering(), None);
    let client = world.client();
    let tmp = folder(&mut world, client, InodeId::ROOT, "tmp", InodeKind::Directory);
    let (entry, moved) =
        (EntryPath { container: InodeId::ROOT, name: name("d") }, EntryPath { container: tmp, name: name("d") });
    let new = NewInode { kind: InodeKind::Directory, ..new_inode() };
    let made = Request::Change { slot: 5, sequence: 1, change: NameChange::Create(entry.clone(), new) };
    let Answer::Changed { changed } = world.ask_until(client, &made) else { panic!() };
    change(&mut world, client, NameChange::Rename { from: entry, to: moved, replace: false });
    assert_eq!(world.ask_until(client, &made), Answer::Changed { changed });
    assert_eq!(had(&open_new(&mut world, client, changed.inode, "x", plain())), of_tmp());
}

/// Stores without policies ask for nothing more than before.
#[test]
fn without_policies_nothing_is_looked_for() {
    let mut world = World::with_drive(1, KvFaults::default());
    let client = world.client();
    let tmp = folder(&mut world, client, InodeId::ROOT, "tmp", InodeKind::Directory);
    assert_eq!(had(&open_new(&mut world, client, tmp, "a", plain())), of_none());
    assert_eq!(
        world.service.paths.path(&EntryPath { container: tmp, name: name("a") }),
        super::super::paths::PathFound::Lacks(tmp, None)
    );
    let Answer::Tiering { tiering } = world.ask_until(client, &Request::Tiering {}) else { panic!() };
    assert!(tiering.policies.is_empty() && tiering.classes.is_empty(), "{tiering:?}");
}
