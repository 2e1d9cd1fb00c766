//! Requests one by one, on a store without faults.

use super::state::verify;
use super::world::new_inode;
use crate::keys::{KeySpace, inode_key, owner_key, parent_key, service_key, session_key};
use crate::kv::{COMMIT_BYTES_MAX, COMMIT_KEYS_MAX, Commit, CommitOutcome, Kv, KvAnswer, KvRequest, KvWrite, MemoryKv};
use crate::records::{
    Changed, CounterRecord, OwnerRecord, ParentRecord, ServiceRecord, SessionRecord, from_value, to_value,
};
use crate::tree::mutant::Mutant;
use crate::tree::setup::begin_session;
use crate::{
    ATTRIBUTE_BYTES_MAX, CLASSES_MAX, ChangeKey, ClassId, Content, EntryName, EntryPath, Inode, InodeId, InodeKind,
    InodePath, LIST_MAX, NameAnswer, NameChange, NameQuery, NameReply, NameRequest, NewInode, PeerMessage,
    RequestToken, ServiceId, SessionId, SetAttributes, StoreError, TARGET_BYTES_MAX, Term, Tree, TreeEffect, TreeEvent,
    TreeSettings, UnixNanos, make_store,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Nanos;

const SESSION: SessionId = SessionId(7);
const ROOT: InodeId = InodeId::ROOT;

/// Two services on one store; what they want is done at once.
struct Desk {
    kv: MemoryKv,
    trees: Vec<Tree>,
    /// A service that stands still hears nothing.
    stopped: Option<usize>,
    now: Nanos,
    sequence: u64,
    answers: Vec<(RequestToken, NameAnswer)>,
    /// The most keys and bytes that a commit had.
    largest: (usize, usize),
    commits: usize,
    /// Commits of this kind are answered as unknown, and are on their way.
    withholds: fn(&Commit) -> bool,
    withheld: Vec<Commit>,
}

impl Desk {
    fn new() -> Self {
        let mut kv = MemoryKv::default();
        kv.commit(&make_store(1, UnixNanos(5)));
        kv.commit(&begin_session(SESSION, &SessionRecord::default()));
        let tree = |service: u64| Tree::new(TreeSettings::new(ServiceId(service), service));
        let trees = vec![tree(1), tree(2)];
        let mut desk = Self {
            kv,
            trees,
            stopped: None,
            now: Nanos::from_secs(1),
            sequence: 0,
            answers: Vec::new(),
            largest: (0, 0),
            commits: 0,
            withholds: |_| false,
            withheld: Vec::new(),
        };
        desk.tick();
        desk
    }

    fn deliver(&mut self, at: usize, event: TreeEvent) {
        let mut todo = vec![(at, event)];
        while let Some((at, event)) = todo.pop() {
            if self.stopped == Some(at) {
                continue;
            }
            let mut effects = Vec::new();
            self.trees[at].apply(self.now, event, &mut effects);
            assert_eq!(self.trees[at].check(), Ok(()));
            for effect in effects {
                match effect {
                    TreeEffect::Kv(token, request) => {
                        if let KvRequest::Commit(commit) = &request {
                            let (keys, bytes) = self.largest;
                            self.largest = (keys.max(commit.keys()), bytes.max(commit.bytes()));
                            self.commits += 1;
                            if (self.withholds)(commit) {
                                self.withheld.push(commit.clone());
                                let unknown = KvAnswer::Outcome(CommitOutcome::Unknown);
                                todo.insert(0, (at, TreeEvent::Kv(token, unknown)));
                                continue;
                            }
                        }
                        let answer = request.perform(&mut self.kv);
                        todo.insert(0, (at, TreeEvent::Kv(token, answer)));
                    }
                    TreeEffect::Answer(token, answer) => self.answers.push((token, answer)),
                    TreeEffect::Orphaned(_) => {}
                    TreeEffect::Space(..) => panic!("no file has blocks here"),
                    TreeEffect::Peer(to, message) => {
                        let from = ServiceId(at as u64 + 1);
                        todo.insert(0, (to.get() as usize - 1, TreeEvent::Peer(from, message)));
                    }
                }
            }
        }
    }

    fn tick(&mut self) {
        (0..self.trees.len()).for_each(|at| self.deliver(at, TreeEvent::Tick));
    }

    fn wait(&mut self, time: Nanos) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.now = self.now.saturating_add(Nanos::from_millis(10)).min(end);
            self.tick();
        }
    }

    fn send(&mut self, at: usize, request: &NameRequest) -> NameAnswer {
        let token = RequestToken(self.answers.len() as u64);
        self.deliver(at, TreeEvent::Request(token, request.clone(), UnixNanos(self.now.get())));
        for _ in 0..50 {
            if let Some((_, answer)) = self.answers.iter().find(|(of, _)| *of == token) {
                return answer.clone();
            }
            self.wait(Nanos::from_millis(10));
        }
        panic!("{request:?} is not answered");
    }

    fn request(&mut self, change: NameChange) -> NameRequest {
        self.sequence += 1;
        NameRequest::Change(ChangeKey { session: SESSION, slot: 3, sequence: self.sequence }, change)
    }

    /// A change at the first service.
    fn change(&mut self, change: NameChange) -> Result<Changed, StoreError> {
        let request = self.request(change);
        changed(self.send(0, &request))
    }

    fn create(&mut self, container: InodeId, name: &str, kind: InodeKind) -> InodeId {
        self.change(NameChange::Create(at(container, name), new_inode(kind))).expect(name).inode
    }

    fn query(&mut self, query: NameQuery) -> NameAnswer {
        self.send(0, &NameRequest::Query(query))
    }

    fn lookup(&mut self, container: InodeId, name: &str) -> Result<InodeId, StoreError> {
        match self.query(NameQuery::Lookup(at(container, name)))? {
            NameReply::Found(record, _) => Ok(record.inode),
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, inode: InodeId, parent: InodeId) -> Result<Inode, StoreError> {
        match self.query(NameQuery::Stat(InodePath { inode, parent }))? {
            NameReply::Inode(_, inode) => Ok(*inode),
            other => panic!("{other:?}"),
        }
    }

    fn rename(&mut self, from: EntryPath, to: EntryPath) -> Result<Changed, StoreError> {
        self.change(NameChange::Rename { from, to, replace: true })
    }

    fn delete(&mut self, entry: EntryPath, recursive: bool) -> Result<Changed, StoreError> {
        self.change(NameChange::Delete { entry, recursive })
    }

    fn count(&self, space: KeySpace) -> usize {
        self.kv.iter().filter(|(key, _)| key.0[0] == space as u8).count()
    }
}

/// All is as the documentation of the format says in the end.
impl Drop for Desk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(verify(&self.kv), Ok(()));
            assert!(self.largest.0 <= COMMIT_KEYS_MAX && self.largest.1 <= COMMIT_BYTES_MAX, "{:?}", self.largest);
        }
    }
}

fn at(container: InodeId, name: &str) -> EntryPath {
    EntryPath { container, name: EntryName::new(name.as_bytes()).expect("a name") }
}

fn changed(answer: NameAnswer) -> Result<Changed, StoreError> {
    match answer? {
        NameReply::Changed(changed) => Ok(changed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_lead_to_inodes() {
    let mut desk = Desk::new();
    let (dir, long) = (desk.create(ROOT, "dir", InodeKind::Directory), "n".repeat(255));
    let file = desk.create(dir, &long, InodeKind::File);
    assert_eq!(desk.lookup(ROOT, "dir"), Ok(dir));
    assert_eq!(desk.lookup(dir, &long), Ok(file));
    assert_eq!(desk.lookup(dir, "other"), Err(StoreError::NotFound));
    assert_eq!(desk.lookup(file, "x"), Err(StoreError::NotDirectory));
    assert_eq!(desk.lookup(InodeId(99_999), "x"), Err(StoreError::NotFound));
    let again = desk.change(NameChange::Create(at(ROOT, "dir"), new_inode(InodeKind::File)));
    assert_eq!(again, Err(StoreError::Exists));
    let inode = desk.stat(file, dir).expect("it is there");
    assert_eq!((inode.kind, inode.mode, inode.uid, inode.gid, inode.parent), (InodeKind::File, 0o640, 1, 2, dir));
    assert!(dir > ROOT && file > dir);
}

#[test]
fn each_kind_holds_what_it_may() {
    let mut desk = Desk::new();
    let multi = desk.create(ROOT, "multi", InodeKind::Multifile);
    let table = desk.create(ROOT, "table", InodeKind::Table);
    desk.create(multi, "part", InodeKind::File);
    let refused = Err(StoreError::WrongKind);
    assert_eq!(desk.change(NameChange::Create(at(multi, "d"), new_inode(InodeKind::Directory))), refused);
    assert_eq!(desk.change(NameChange::Create(at(table, "f"), new_inode(InodeKind::File))), refused);
    assert_eq!(desk.rename(at(ROOT, "table"), at(multi, "t")), refused);
    assert_eq!(desk.rename(at(multi, "part"), at(table, "t")), refused);
    assert_eq!(desk.change(NameChange::PutValue(at(ROOT, "x"), vec![1])), refused);
    let put = |bytes: Vec<u8>| NameChange::PutValue(at(table, "key"), bytes);
    let first = desk.change(put(vec![1])).expect("put");
    let second = desk.change(put(vec![2, 3])).expect("put again");
    assert_eq!((second.inode, second.version), (first.inode, first.version + 1));
    let NameReply::Found(_, Some(value)) = desk.query(NameQuery::Lookup(at(table, "key"))).expect("a value") else {
        panic!("a file comes with its inode");
    };
    assert_eq!((value.content, value.size), (Content::Inline(vec![2, 3]), 2));
    assert_eq!(desk.change(put(vec![0; 2049])), Err(StoreError::TooLarge(2048)));
}

#[test]
fn a_symlink_has_a_path() {
    let mut desk = Desk::new();
    let link = desk.create(ROOT, "link", InodeKind::Symlink);
    let inode = desk.stat(link, ROOT).expect("it is there");
    assert_eq!((inode.content, inode.size), (Content::Target(b"../x".to_vec()), 4));
    let mut new = new_inode(InodeKind::Symlink);
    new.target = vec![b'x'; TARGET_BYTES_MAX as usize + 1];
    let refused = desk.change(NameChange::Create(at(ROOT, "long"), new));
    assert_eq!(refused, Err(StoreError::TooLarge(TARGET_BYTES_MAX)));
    desk.delete(at(ROOT, "link"), false).expect("deleted");
    assert_eq!((desk.stat(link, ROOT), desk.count(KeySpace::Orphan)), (Err(StoreError::NotFound), 0));
}

#[test]
fn attributes_change() {
    let mut desk = Desk::new();
    let file = desk.create(ROOT, "f", InodeKind::File);
    let path = InodePath { inode: file, parent: ROOT };
    desk.change(NameChange::WriteInline(path, b"hello".to_vec())).expect("written");
    let set = SetAttributes { mode: Some(0o177_777), uid: Some(9), size: Some(2), ..SetAttributes::default() };
    desk.change(NameChange::SetAttributes(path, set)).expect("set");
    let inode = desk.stat(file, ROOT).expect("it is there");
    assert_eq!((inode.mode, inode.uid, inode.gid, inode.size, inode.version), (0o7777, 9, 2, 2, 3));
    assert_eq!(inode.content, Content::Inline(b"he".to_vec()));
    // Longer again: what was cut off does not come back.
    let longer = SetAttributes { size: Some(1 << 40), ..SetAttributes::default() };
    desk.change(NameChange::SetAttributes(path, longer.clone())).expect("set");
    let inode = desk.stat(file, ROOT).expect("it is there");
    assert_eq!((inode.size, inode.content), (1 << 40, Content::Inline(b"he".to_vec())));
    let root = InodePath { inode: ROOT, parent: ROOT };
    assert_eq!(desk.change(NameChange::SetAttributes(root, longer)), Err(StoreError::WrongKind));
    assert_eq!(desk.change(NameChange::WriteInline(path, vec![0; 2049])), Err(StoreError::TooLarge(2048)));
}

#[test]
fn extended_attributes_have_a_limit() {
    let mut desk = Desk::new();
    let path = InodePath { inode: desk.create(ROOT, "f", InodeKind::File), parent: ROOT };
    let set =
        |name: &str, value: Option<usize>| NameChange::SetExtended(path, name.into(), value.map(|len| vec![7; len]));
    desk.change(set("user.a", Some(4000))).expect("set");
    assert_eq!(desk.change(set("user.b", Some(100))), Err(StoreError::AttributeSpace(ATTRIBUTE_BYTES_MAX)));
    assert_eq!(desk.change(set("user.b", None)), Err(StoreError::NoAttribute));
    assert_eq!(desk.change(set("", Some(1))), Err(StoreError::BadName));
    desk.change(set("user.a", None)).expect("removed");
    desk.change(set("user.b", Some(100))).expect("there is room");
    assert_eq!(desk.stat(path.inode, ROOT).expect("it is there").attributes.len(), 1);
}

#[test]
fn lists_come_in_pages() {
    let mut desk = Desk::new();
    let dir = desk.create(ROOT, "d", InodeKind::Directory);
    let names: Vec<String> = (0..600).map(|n| format!("n{n:03}")).collect();
    for name in &names {
        desk.create(dir, name, InodeKind::File);
    }
    desk.create(dir, "sub", InodeKind::Directory);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let list = NameQuery::List { container: dir, after: after.clone(), most: 10_000 };
        let Ok(NameReply::Page { entries, is_last, .. }) = desk.query(list) else { panic!("no page") };
        assert!(entries.len() <= LIST_MAX);
        for entry in &entries {
            let inode = entry.inode.as_ref().map(|inode| inode.kind);
            assert_eq!(inode, (entry.record.kind == InodeKind::File).then_some(InodeKind::File));
        }
        after = entries.last().map(|entry| entry.name.clone());
        seen.extend(entries.into_iter().map(|entry| format!("{}", entry.name)));
        // What comes and goes between two pages moves nothing else.
        let name = format!("m{}", seen.len());
        desk.create(dir, &name, InodeKind::File);
        desk.delete(at(dir, &name), false).expect("deleted");
        if is_last {
            break;
        }
    }
    assert_eq!(seen[..600], names[..]);
    assert_eq!(seen[600..], ["sub"]);
}

#[test]
fn a_rename_replaces_what_it_may() {
    let mut desk = Desk::new();
    let (a, b) = (desk.create(ROOT, "a", InodeKind::Directory), desk.create(ROOT, "b", InodeKind::Directory));
    let (x, y) = (desk.create(a, "x", InodeKind::File), desk.create(b, "y", InodeKind::File));
    let stays = desk.change(NameChange::Rename { from: at(a, "x"), to: at(b, "y"), replace: false });
    assert_eq!(stays, Err(StoreError::Exists));
    assert_eq!(desk.rename(at(a, "x"), at(ROOT, "b")), Err(StoreError::IsDirectory));
    assert_eq!(desk.rename(at(ROOT, "a"), at(b, "y")), Err(StoreError::NotDirectory));
    assert_eq!(desk.rename(at(ROOT, "a"), at(ROOT, "b")), Err(StoreError::NotEmpty));
    desk.rename(at(a, "x"), at(b, "y")).expect("replaced");
    assert_eq!((desk.lookup(b, "y"), desk.lookup(a, "x")), (Ok(x), Err(StoreError::NotFound)));
    assert_eq!(desk.stat(x, a).expect("found where it is").parent, b);
    assert_eq!(desk.stat(y, b), Err(StoreError::NotFound));
    // Nobody has it open: it is gone.
    assert_eq!(desk.count(KeySpace::Orphan), 1);
    desk.deliver(0, TreeEvent::Unused(y));
    assert_eq!(desk.count(KeySpace::Orphan), 0);
    desk.rename(at(b, "y"), at(b, "y")).expect("nothing to do");
    desk.delete(at(b, "y"), false).expect("deleted");
    desk.rename(at(ROOT, "a"), at(ROOT, "b")).expect("it is empty");
    assert_eq!((desk.lookup(ROOT, "b"), desk.lookup(ROOT, "a")), (Ok(a), Err(StoreError::NotFound)));
    assert_eq!(desk.stat(b, b), Err(StoreError::NotFound));
}

#[test]
fn no_directory_lies_within_itself() {
    let mut desk = Desk::new();
    let mut dirs = vec![ROOT];
    for depth in 0..60 {
        let name = if depth == 0 { "top" } else { "d" };
        dirs.push(desk.create(dirs[depth], name, InodeKind::Directory));
    }
    for to in [dirs[1], dirs[2], dirs[60]] {
        assert_eq!(desk.rename(at(ROOT, "top"), at(to, "x")), Err(StoreError::IntoItself));
    }
    desk.rename(at(dirs[30], "d"), at(ROOT, "half")).expect("out of it");
    desk.rename(at(ROOT, "top"), at(dirs[60], "x")).expect("not within itself any more");
    assert_eq!(desk.rename(at(ROOT, "half"), at(dirs[20], "y")), Err(StoreError::IntoItself));
}

#[test]
fn hard_links_are_refused() {
    let mut desk = Desk::new();
    let file = desk.create(ROOT, "f", InodeKind::File);
    let link = NameChange::HardLink(InodePath { inode: file, parent: ROOT }, at(ROOT, "g"));
    assert_eq!(desk.change(link), Err(StoreError::HardLink));
}

#[test]
fn a_directory_goes_with_all_that_is_in_it() {
    let mut desk = Desk::new();
    let top = desk.create(ROOT, "top", InodeKind::Directory);
    for n in 0..5 {
        let sub = desk.create(top, &format!("s{n}"), InodeKind::Directory);
        for k in 0..40 {
            let file = desk.create(sub, &format!("f{k}"), InodeKind::File);
            let path = InodePath { inode: file, parent: sub };
            desk.change(NameChange::WriteInline(path, vec![1; 2048])).expect("written");
            desk.change(NameChange::SetExtended(path, "user.x".into(), Some(vec![2; 4000]))).expect("set");
        }
        desk.create(sub, "l", InodeKind::Symlink);
    }
    assert_eq!(desk.delete(at(ROOT, "top"), false), Err(StoreError::NotEmpty));
    desk.commits = 0;
    desk.delete(at(ROOT, "top"), true).expect("deleted");
    assert_eq!(desk.lookup(ROOT, "top"), Err(StoreError::NotFound));
    desk.wait(Nanos::from_secs(1));
    // Only files are left, which somebody may have open.
    assert_eq!((desk.count(KeySpace::Name), desk.count(KeySpace::Parent), desk.count(KeySpace::Orphan)), (0, 1, 200));
    assert!(desk.commits > 20, "in pieces");
    let files: Vec<InodeId> = desk.kv.iter().filter_map(|(key, _)| crate::keys::orphan_of(key)).collect();
    files.into_iter().for_each(|file| desk.deliver(1, TreeEvent::Unused(file)));
    assert_eq!((desk.count(KeySpace::Orphan), desk.count(KeySpace::Inode), desk.count(KeySpace::Owner)), (0, 1, 1));
}

#[test]
fn a_request_is_carried_out_once() {
    let mut desk = Desk::new();
    let create = desk.request(NameChange::Create(at(ROOT, "f"), new_inode(InodeKind::File)));
    let first = desk.send(0, &create);
    desk.sequence += 1;
    let other = ChangeKey { session: SESSION, slot: 4, sequence: 1 };
    let gone = desk.send(0, &NameRequest::Change(other, NameChange::Delete { entry: at(ROOT, "f"), recursive: false }));
    assert!(gone.is_ok());
    assert_eq!(desk.send(0, &create), first, "the answer that it got");
    assert_eq!(desk.lookup(ROOT, "f"), Err(StoreError::NotFound));
    // A refusal stays one.
    let delete = desk.request(NameChange::Delete { entry: at(ROOT, "f"), recursive: false });
    assert_eq!(desk.send(0, &delete), Err(StoreError::NotFound));
    let third = ChangeKey { session: SESSION, slot: 4, sequence: 2 };
    let made = desk.send(0, &NameRequest::Change(third, NameChange::Create(at(ROOT, "f"), new_inode(InodeKind::File))));
    assert!(made.is_ok());
    assert_eq!(desk.send(0, &delete), Err(StoreError::NotFound));
    assert!(desk.lookup(ROOT, "f").is_ok());
    assert_eq!(desk.send(0, &create), Err(StoreError::OldSequence));
    // Another service gives the same answer, once it is the owner.
    desk.stopped = Some(0);
    desk.wait(Nanos::from_secs(1));
    assert_eq!(desk.send(1, &delete), Err(StoreError::Redirect(ServiceId(1))));
    desk.wait(Nanos::from_secs(5));
    assert_eq!(desk.send(1, &delete), Err(StoreError::NotFound));
}

#[test]
fn a_session_that_has_ended_changes_nothing() {
    let mut desk = Desk::new();
    desk.create(ROOT, "f", InodeKind::File);
    let end = Commit { expect: vec![], writes: vec![KvWrite::Delete(session_key(SESSION))] };
    desk.kv.commit(&end);
    assert_eq!(desk.delete(at(ROOT, "f"), false), Err(StoreError::SessionGone));
    assert!(desk.lookup(ROOT, "f").is_ok());
}

#[test]
fn who_has_no_lease_answers_nothing() {
    let mut desk = Desk::new();
    desk.create(ROOT, "f", InodeKind::File);
    assert_eq!(
        desk.send(1, &NameRequest::Query(NameQuery::Lookup(at(ROOT, "f")))),
        Err(StoreError::Redirect(ServiceId(1)))
    );
    // The first stands still. After its lease and the margin the second takes over.
    desk.stopped = Some(0);
    desk.wait(Nanos::from_millis(3900));
    assert_eq!(
        desk.send(1, &NameRequest::Query(NameQuery::Lookup(at(ROOT, "f")))),
        Err(StoreError::Redirect(ServiceId(1)))
    );
    desk.wait(Nanos::from_millis(200));
    assert!(desk.send(1, &NameRequest::Query(NameQuery::Lookup(at(ROOT, "f")))).is_ok());
    // It wakes: first it knows nothing, then it is another life and sends clients on.
    desk.stopped = None;
    assert!(!desk.trees[0].is_serving(desk.now));
    assert_eq!(desk.send(0, &NameRequest::Query(NameQuery::Lookup(at(ROOT, "f")))), Err(StoreError::Unavailable));
    desk.wait(Nanos::from_millis(50));
    assert_eq!(
        desk.send(0, &NameRequest::Query(NameQuery::Lookup(at(ROOT, "f")))),
        Err(StoreError::Redirect(ServiceId(2)))
    );
}

/// Parents that lead in a circle, as only damage leaves them: a move ends with that.
#[test]
fn a_circle_of_parents_is_damage() {
    let mut desk = Desk::new();
    let (a, b) = (desk.create(ROOT, "a", InodeKind::Directory), desk.create(ROOT, "b", InodeKind::Directory));
    let c = desk.create(ROOT, "c", InodeKind::Directory);
    let whole = desk.kv.clone();
    for (of, parent) in [(a, b), (b, a)] {
        let put = KvWrite::Put(parent_key(of), to_value(&ParentRecord { parent }));
        desk.kv.commit(&Commit { expect: vec![], writes: vec![put] });
    }
    assert_eq!(desk.rename(at(ROOT, "c"), at(a, "x")), Err(StoreError::Damaged));
    assert_eq!(desk.lookup(ROOT, "c"), Ok(c));
    desk.kv = whole;
}

#[test]
fn a_rename_between_two_services_has_one_release_the_other() {
    let mut desk = Desk::new();
    let (a, b) = (desk.create(ROOT, "a", InodeKind::Directory), desk.create(ROOT, "b", InodeKind::Directory));
    let file = desk.create(a, "f", InodeKind::File);
    assert!(desk.send(1, &NameRequest::Query(NameQuery::Lookup(at(b, "f")))).is_err(), "the second owns b");
    assert_eq!(
        desk.send(0, &NameRequest::Query(NameQuery::Lookup(at(b, "f")))),
        Err(StoreError::Redirect(ServiceId(2)))
    );
    desk.rename(at(a, "f"), at(b, "f")).expect("renamed");
    assert_eq!(desk.lookup(b, "f"), Ok(file));
    assert_eq!(
        desk.send(1, &NameRequest::Query(NameQuery::Lookup(at(b, "f")))),
        Err(StoreError::Redirect(ServiceId(1)))
    );
}

#[test]
fn a_restart_waits_for_the_last_life_unless_it_is_known_to_be_over() {
    for is_predecessor_dead in [false, true] {
        let mut desk = Desk::new();
        desk.create(ROOT, "f", InodeKind::File);
        let mut settings = TreeSettings::new(ServiceId(1), 99);
        settings.is_predecessor_dead = is_predecessor_dead;
        desk.trees[0] = Tree::new(settings);
        desk.tick();
        assert_eq!(desk.trees[0].is_serving(desk.now), is_predecessor_dead);
        desk.wait(Nanos::from_millis(3900));
        assert_eq!(desk.trees[0].is_serving(desk.now), is_predecessor_dead);
        desk.wait(Nanos::from_millis(200));
        assert!(desk.lookup(ROOT, "f").is_ok(), "what the last life owned is taken at once");
    }
}

/// A commit that gives a container up is on its way when the service needs the container again: the commit cannot be made any more.
#[test]
fn what_was_perhaps_given_up_is_owned_in_another_term() {
    assert!(!is_late_release_made(None), "the service answers for what it does not own any more");
    assert!(is_late_release_made(Some(Mutant::OwnAgainInSameTerm)), "the mistake is found");
}

fn is_late_release_made(mutant: Option<Mutant>) -> bool {
    let mut desk = Desk::new();
    desk.trees[0].mutation.mutant = mutant;
    let dir = desk.create(ROOT, "d", InodeKind::Directory);
    let file = desk.create(dir, "f", InodeKind::File);
    let gives_up = |commit: &Commit| match &commit.writes[..] {
        [KvWrite::Put(key, value)] if key.0[0] == KeySpace::Owner as u8 => {
            from_value::<OwnerRecord>(value).is_ok_and(|owner| owner.service == ServiceId(0))
        }
        _ => false,
    };
    desk.withholds = gives_up;
    desk.deliver(0, TreeEvent::Peer(ServiceId(2), PeerMessage::Release(dir)));
    desk.wait(Nanos::from_secs(3));
    desk.withholds = |_| false;
    assert_eq!(desk.lookup(dir, "f"), Ok(file));
    let late = core::mem::take(&mut desk.withheld);
    assert!(!late.is_empty());
    let is_made = late.iter().any(|commit| matches!(desk.kv.commit(commit), CommitOutcome::Done(_)));
    if mutant.is_none() {
        let asked = NameRequest::Query(NameQuery::Lookup(at(dir, "f")));
        assert_eq!(desk.send(1, &asked), Err(StoreError::Redirect(ServiceId(1))));
    }
    is_made
}

#[test]
fn no_term_comes_behind_the_last() {
    let mut desk = Desk::new();
    let dir = desk.create(ROOT, "d", InodeKind::Directory);
    let last = OwnerRecord { service: ServiceId(0), term: Term(u64::MAX), ..OwnerRecord::default() };
    let put = KvWrite::Put(owner_key(dir), to_value(&last));
    desk.kv.commit(&Commit { expect: vec![], writes: vec![put] });
    assert_eq!(desk.lookup(dir, "f"), Err(StoreError::Damaged));
    let life = ServiceRecord { incarnation: Term(u64::MAX), is_fenced: true, ..ServiceRecord::default() };
    let put = KvWrite::Put(service_key(ServiceId(9)), to_value(&life));
    desk.kv.commit(&Commit { expect: vec![], writes: vec![put] });
    desk.trees[0] = Tree::new(TreeSettings::new(ServiceId(9), 9));
    desk.wait(Nanos::from_secs(10));
    assert!(!desk.trees[0].is_serving(desk.now), "there is no life behind the last one");
}

#[test]
fn what_an_inode_cannot_be_made_with_is_refused() {
    let mut desk = Desk::new();
    let good = new_inode(InodeKind::File);
    for (block, copies, classes, why) in [
        (0, 1, 0, StoreError::BlockSize),
        (32 << 10, 1, 0, StoreError::BlockSize),
        (3 << 20, 1, 0, StoreError::BlockSize),
        (8 << 20, 1, 0, StoreError::BlockSize),
        (1 << 20, 0, 0, StoreError::Copies),
        (1 << 20, 5, 0, StoreError::Copies),
        (1 << 20, 1, CLASSES_MAX + 1, StoreError::Classes),
    ] {
        for kind in [InodeKind::File, InodeKind::Directory, InodeKind::Table] {
            let new = NewInode { kind, block, copies, classes: vec![ClassId(1); classes], ..good.clone() };
            assert_eq!(desk.change(NameChange::Create(at(ROOT, "x"), new)), Err(why), "{block} {copies} {classes}");
        }
    }
    let new = NewInode { block: 4 << 20, copies: 4, classes: vec![ClassId(1); CLASSES_MAX], ..good };
    let file = desk.change(NameChange::Create(at(ROOT, "x"), new)).expect("all of it may be").inode;
    let set = SetAttributes { classes: Some(vec![ClassId(1); CLASSES_MAX + 1]), ..SetAttributes::default() };
    let path = InodePath { inode: file, parent: ROOT };
    assert_eq!(desk.change(NameChange::SetAttributes(path, set)), Err(StoreError::Classes));
}

#[test]
fn containers_that_nobody_uses_are_forgotten() {
    let mut desk = Desk::new();
    let mut settings = TreeSettings::new(ServiceId(1), 1);
    settings.containers_max = 16;
    desk.trees[0] = Tree::new(settings);
    desk.wait(Nanos::from_secs(5));
    let dirs: Vec<InodeId> = (0..50).map(|n| desk.create(ROOT, &format!("d{n}"), InodeKind::Directory)).collect();
    let files: Vec<InodeId> = dirs.iter().map(|dir| desk.create(*dir, "f", InodeKind::File)).collect();
    assert!(desk.trees[0].containers.len() <= 16);
    assert!(desk.trees[0].containers.contains_key(&dirs[49]) && !desk.trees[0].containers.contains_key(&dirs[0]));
    for (dir, file) in dirs.iter().zip(&files) {
        assert_eq!(desk.lookup(*dir, "f"), Ok(*file));
    }
    // In the key-value store it owns all of them.
    let asked = NameRequest::Query(NameQuery::Lookup(at(dirs[0], "f")));
    assert_eq!(desk.send(1, &asked), Err(StoreError::Redirect(ServiceId(1))));
}

#[test]
fn few_orphans_are_worked_at_at_a_time() {
    let mut desk = Desk::new();
    let top = desk.create(ROOT, "top", InodeKind::Directory);
    for n in 0..300 {
        let sub = desk.create(top, &format!("s{n}"), InodeKind::Directory);
        desk.create(sub, "d", InodeKind::Directory);
    }
    desk.delete(at(ROOT, "top"), true).expect("deleted");
    desk.wait(Nanos::from_secs(30));
    assert_eq!((desk.count(KeySpace::Name), desk.count(KeySpace::Orphan), desk.count(KeySpace::Inode)), (0, 0, 1));
}

/// Numbers that are at their end, as only damage leaves them.
#[test]
fn numbers_do_not_begin_anew() {
    let mut desk = Desk::new();
    let dir = desk.create(ROOT, "d", InodeKind::Directory);
    let file = desk.create(dir, "f", InodeKind::File);
    let mut inode = desk.stat(file, dir).expect("it is there");
    inode.version = u64::MAX;
    let counter = |next| to_value(&CounterRecord { next });
    for write in [
        KvWrite::Put(inode_key(file), to_value(&inode)),
        KvWrite::Put(KeySpace::RenameKey.key(&[]), counter(u64::MAX)),
        KvWrite::Put(KeySpace::NextInode.key(&[]), counter(u64::MAX - 9)),
    ] {
        desk.kv.commit(&Commit { expect: vec![], writes: vec![write] });
    }
    desk.trees[0] = Tree::new(TreeSettings::new(ServiceId(1), 7));
    desk.wait(Nanos::from_secs(5));
    let path = InodePath { inode: file, parent: dir };
    assert_eq!(desk.change(NameChange::WriteInline(path, vec![1])), Err(StoreError::Damaged));
    assert_eq!(desk.delete(at(ROOT, "d"), true), Err(StoreError::Damaged));
    assert_eq!(desk.change(NameChange::Create(at(dir, "g"), new_inode(InodeKind::File))), Err(StoreError::Damaged));
    assert_eq!(desk.lookup(dir, "f"), Ok(file));
}
