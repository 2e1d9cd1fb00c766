//! The commands, in a store that exists only here.

use super::files::{Entries, Entry, Files, Sink};
use super::*;
use crate::args::{Cli, CliCommand};
use clap::Parser;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use weir_store::{Content, Inode, InodeKind, SetAttributes, StoreError};
use weir_store_node::client::{ClientError, CreateOptions, FileScrub, ScrubDrives};

type Nodes = Rc<RefCell<BTreeMap<Vec<u8>, (Inode, Vec<u8>)>>>;

/// Files by path. Links at the end of a path are followed once, those on the way not at all.
#[derive(Clone)]
struct Model {
    nodes: Nodes,
}

impl Model {
    fn new() -> Self {
        let root = Inode { kind: InodeKind::Directory, mode: 0o755, ..Inode::default() };
        Model { nodes: Rc::new(RefCell::new([(b"/".to_vec(), (root, Vec::new()))].into())) }
    }

    fn error(error: StoreError, path: &[u8]) -> ClientError {
        ClientError::from(error).at(path)
    }

    fn get(&self, path: &[u8]) -> Result<(Inode, Vec<u8>), ClientError> {
        self.nodes.borrow().get(path).cloned().ok_or_else(|| Self::error(StoreError::NotFound, path))
    }

    fn insert(&self, path: &[u8], inode: Inode, bytes: Vec<u8>, may_be_there: bool) -> Result<(), ClientError> {
        let folder = self.get(super::path::folder_of(path)).map_err(|_| Self::error(StoreError::NotFound, path))?;
        if folder.0.kind != InodeKind::Directory {
            return Err(Self::error(StoreError::NotDirectory, path));
        }
        match self.get(path) {
            Ok(_) if !may_be_there => Err(Self::error(StoreError::Exists, path)),
            Ok((there, _)) if there.kind.is_container() => Err(Self::error(StoreError::IsDirectory, path)),
            _ => {
                self.nodes.borrow_mut().insert(path.to_vec(), (inode, bytes));
                Ok(())
            }
        }
    }

    fn file(&self, path: &[u8], bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        let inode = Inode { size: bytes.len() as u64, mode: options.mode, copies: 1, ..Inode::default() };
        self.insert(path, inode, bytes.to_vec(), !options.exclusive)
    }

    fn paths(&self) -> Vec<String> {
        self.nodes.borrow().keys().skip(1).map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        self.get(path.as_bytes()).unwrap_or_else(|e| panic!("{e}")).1
    }

    /// Runs `weir fs …`; the lines of its failure.
    fn run(&self, line: &[&str]) -> Result<(), Vec<String>> {
        let cli = Cli::try_parse_from(["weir", "fs"].iter().chain(line)).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        let CliCommand::Fs(args) = cli.command else { panic!("{line:?} is no command of weir fs") };
        let files: Rc<dyn Files> = Rc::new(self.clone());
        let open = move |_: Option<&str>| Ok(files.clone());
        command(&args.command, false, Box::new(open)).map_err(|e| e.text().lines().map(str::to_owned).collect())
    }

    #[track_caller]
    fn good(&self, line: &[&str]) {
        assert_eq!(self.run(line), Ok(()), "{line:?}");
    }

    #[track_caller]
    fn bad(&self, line: &[&str], says: &[&str]) {
        let lines = self.run(line).expect_err("it fails");
        assert_eq!(lines, says, "{line:?}");
    }
}

struct Writing {
    to: Model,
    path: Vec<u8>,
    bytes: Vec<u8>,
    options: CreateOptions,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Writing {
    fn finish(self: Box<Self>) -> Result<(), ClientError> {
        self.to.file(&self.path, &self.bytes, &self.options)
    }
}

impl Files for Model {
    fn class_names(&self) -> Vec<String> {
        vec!["dram".into(), "flash".into()]
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Inode, ClientError> {
        let (inode, _) = self.get(path)?;
        match &inode.content {
            Content::Target(target) if follow => self.get(target).map(|(inode, _)| inode),
            _ => Ok(inode),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Entries, ClientError> {
        if !self.stat(path, true)?.kind.is_container() {
            return Err(Self::error(StoreError::NotDirectory, path));
        }
        let nodes = self.nodes.borrow();
        let within = |(at, (inode, _)): (&Vec<u8>, &(Inode, Vec<u8>))| {
            let name = super::path::name_of(at).filter(|_| super::path::folder_of(at) == path)?.to_vec();
            let kind = inode.kind;
            Some(Ok(Entry { name, kind, inode: (!kind.is_container()).then(|| inode.clone()) }))
        };
        Ok(Box::new(nodes.iter().filter_map(within).collect::<Vec<_>>().into_iter()))
    }

    fn make_folder(&self, path: &[u8], parents: bool, mode: u32) -> Result<(), ClientError> {
        if parents {
            if self.get(path).is_ok_and(|(inode, _)| inode.kind == InodeKind::Directory) {
                return Ok(());
            }
            self.make_folder(super::path::folder_of(path), true, mode)?;
        }
        let inode = Inode { kind: InodeKind::Directory, mode, ..Inode::default() };
        self.insert(path, inode, Vec::new(), false)
    }

    fn remove(&self, path: &[u8], recursive: bool) -> Result<(), ClientError> {
        self.get(path)?;
        let within = [path, b"/"].concat();
        let mut nodes = self.nodes.borrow_mut();
        if !recursive && nodes.keys().any(|at| at.starts_with(&within)) {
            return Err(Self::error(StoreError::NotEmpty, path));
        }
        nodes.retain(|at, _| at != path && !at.starts_with(&within));
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), ClientError> {
        let (inode, bytes) = self.get(from)?;
        self.insert(to, inode, bytes, replace)?;
        let within = [from, b"/"].concat();
        let mut nodes = self.nodes.borrow_mut();
        let moved: Vec<Vec<u8>> = nodes.keys().filter(|at| at.starts_with(&within)).cloned().collect();
        for old in moved {
            let node = nodes.remove(&old).unwrap();
            nodes.insert([to, &old[from.len()..]].concat(), node);
        }
        nodes.remove(from);
        Ok(())
    }

    fn set(&self, path: &[u8], set: SetAttributes) -> Result<(), ClientError> {
        let (mut inode, bytes) = self.get(path)?;
        inode.modified = set.modified.unwrap_or(inode.modified);
        inode.mode = set.mode.unwrap_or(inode.mode);
        self.nodes.borrow_mut().insert(path.to_vec(), (inode, bytes));
        Ok(())
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), ClientError> {
        let content = Content::Target(target.to_vec());
        self.insert(path, Inode { kind: InodeKind::Symlink, content, ..Inode::default() }, Vec::new(), false)
    }

    fn reader(&self, path: &[u8]) -> Result<Box<dyn Read>, ClientError> {
        let (inode, bytes) = self.get(path)?;
        match inode.content {
            Content::Target(target) => self.reader(&target),
            _ => Ok(Box::new(io::Cursor::new(bytes))),
        }
    }

    fn writer(&self, path: &[u8], options: &CreateOptions) -> Result<Box<dyn Sink>, ClientError> {
        self.get(super::path::folder_of(path)).map_err(|_| Self::error(StoreError::NotFound, path))?;
        Ok(Box::new(Writing { to: self.clone(), path: path.to_vec(), bytes: Vec::new(), options: options.clone() }))
    }

    fn put_small(&self, path: &[u8], bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        self.file(path, bytes, options)
    }

    fn scrub(&self, _: &[u8], _: bool, _: &mut ScrubDrives, _: &mut dyn FnMut(u64)) -> Result<FileScrub, ClientError> {
        Ok(FileScrub::default())
    }
}

/// A folder of this machine, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-fs-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self.at(name)
    }

    fn names(&self, name: &str) -> Vec<String> {
        let names = std::fs::read_dir(self.0.join(name)).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_put_is_got_back() {
    let (store, here) = (Model::new(), Folder::new());
    for size in [0, 1, 2047, 2048, 2049, 4095, 65_537, 3 << 20] {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
        let local = here.write("a", &bytes);
        store.good(&["put", "-f", &local, "/f"]);
        assert_eq!(store.bytes("/f"), bytes, "{size}");
        store.good(&["get", "-f", "/f", &here.at("b")]);
        assert_eq!(std::fs::read(here.at("b")).unwrap(), bytes, "{size}");
        store.good(&["cp", "-f", "/f", "/g"]);
        assert_eq!(store.bytes("/g"), bytes, "{size}");
    }
    assert_eq!(store.paths(), ["/f", "/g"], "nothing that is not whole is left");
    assert_eq!(here.names(""), ["a", "b"]);
}

#[test]
fn what_is_there_stays_unless_it_is_to_go() {
    let (store, here) = (Model::new(), Folder::new());
    let (small, large) = (here.write("small", b"1"), here.write("large", &[7; 10_000]));
    store.good(&["put", &small, "/a"]);
    for local in [&small, &large] {
        store.bad(&["put", local, "/a"], &["/a: it exists already; -f replaces it"]);
        store.bad(
            &["put", local, "/no/a"],
            &[if *local == small {
                "/no/a: no such file or directory"
            } else {
                "/no/a._COPYING_: no such file or directory"
            }],
        );
    }
    let there = here.write("there", b"old");
    store.bad(&["get", "/a", &there], &[&format!("{there}: it exists already; -f replaces it")]);
    assert_eq!(std::fs::read(&there).unwrap(), b"old");
    store.bad(&["cp", "/a", "/a"], &["/a: it cannot be copied onto or into itself"]);
    store.good(&["put", "-f", &large, "/a"]);
    store.good(&["put", &small, "/b"]);
    store.bad(&["mv", "/a", "/b"], &["/b: it exists already; -f replaces it"]);
    store.good(&["mv", "-f", "/a", "/b"]);
    assert_eq!((store.paths(), store.bytes("/b").len()), (vec!["/b".to_owned()], 10_000));
}

#[test]
fn folders() {
    let (store, here) = (Model::new(), Folder::new());
    std::fs::create_dir_all(here.0.join("in/deep/er")).unwrap();
    here.write("in/a", b"a");
    here.write("in/deep/er/b", &[1; 5000]);
    std::os::unix::fs::symlink("../a", here.0.join("in/deep/link")).unwrap();
    let local = here.at("in");
    store.bad(&["put", &local, "/"], &[&format!("{local}: it is a folder; -r copies it with all that is in it")]);
    store.good(&["put", "-r", &local, "/"]);
    let all = ["/in", "/in/a", "/in/deep", "/in/deep/er", "/in/deep/er/b", "/in/deep/link"];
    assert_eq!(store.paths(), all);
    assert_eq!(store.get(b"/in/deep/link").unwrap().0.content, Content::Target(b"../a".to_vec()));
    // Where nothing is, the copy has that name.
    store.good(&["put", "-r", &local, "/new"]);
    store.good(&["cp", "-r", "/in", "/new/copy"]);
    assert_eq!(store.bytes("/new/copy/deep/er/b"), [1; 5000]);
    store.bad(&["cp", "-r", "/in", "/in/deep"], &["/in: it cannot be copied onto or into itself"]);
    store.good(&["get", "-r", "/new", &here.at("out")]);
    assert_eq!(here.names("out"), ["a", "copy", "deep"]);
    assert_eq!(std::fs::read(here.at("out/copy/deep/er/b")).unwrap(), [1; 5000]);
    assert_eq!(std::fs::read_link(here.at("out/deep/link")).unwrap(), Path::new("../a"));
    store.bad(&["rm", "/new", "/in/a"], &["/new: it is a directory; -r removes it with all that is in it"]);
    store.good(&["rm", "-r", "/new"]);
    assert_eq!(store.paths(), all.into_iter().filter(|path| *path != "/in/a").collect::<Vec<_>>());
}

#[test]
fn several_and_patterns() {
    let (store, here) = (Model::new(), Folder::new());
    store.good(&["mkdir", "-p", "/d/x", "/d/y"]);
    for name in ["a.log", "b.log", "c.txt"] {
        here.write(name, name.as_bytes());
        store.good(&["put", &here.at(name), "/d/x"]);
    }
    store.bad(&["cp", "/d/x/a.log", "/d/x/b.log", "/none"], &["/none: it is no folder; make it with weir fs mkdir"]);
    store.bad(&["cp", "/d/x/a.log", "/none/"], &["/none: it is no folder; make it with weir fs mkdir"]);
    store.good(&["cp", "/d/*/*.log", "/d/y"]);
    assert_eq!(store.paths()[4..], ["/d/x/c.txt", "/d/y", "/d/y/a.log", "/d/y/b.log"]);
    // What can be done is done.
    store.bad(&["rm", "/d/x/z", "/d/x/[ab]*"], &["/d/x/z: no such file or directory"]);
    store.bad(&["rm", "/d/x/*.log"], &["/d/x/*.log: no such file or directory"]);
    store.good(&["rm", "-f", "/d/x/*.log", "/d/x/z"]);
    store.good(&["mv", "/d/?/*", "/d"]);
    assert_eq!(store.paths(), ["/d", "/d/a.log", "/d/b.log", "/d/c.txt", "/d/x", "/d/y"]);
    store.good(&["mv", "/d", "/e"]);
    assert_eq!(store.bytes("/e/a.log"), b"a.log");
    store.bad(&["mv", "/", "/e"], &["/: the root directory cannot be renamed or deleted"]);
    let local = here.at("c.txt");
    store.bad(&["get", "/e/*", &local], &[&format!("{local}: it is no folder of this machine; make it first")]);
}

#[test]
fn names_that_are_made() {
    let store = Model::new();
    store.good(&["touch", "/t"]);
    store.good(&["touch", "-c", "/none"]);
    store.nodes.borrow_mut().get_mut(&b"/t"[..]).unwrap().0.modified = Default::default();
    store.good(&["touch", "/t"]);
    assert!(store.get(b"/t").unwrap().0.modified.0 > 0);
    store.bad(&["mkdir", "/a/b"], &["/a/b: no such file or directory"]);
    store.bad(&["mkdir", "/t"], &["/t: it exists already"]);
    store.good(&["mkdir", "-m", "700", "/a"]);
    assert_eq!(store.get(b"/a").unwrap().0.mode, 0o700);
    store.good(&["ln", "-s", "/t", "/l"]);
    store.bad(&["ln", "-s", "/a", "/l"], &["/l: it exists already"]);
    store.good(&["ln", "-sf", "/a", "/l"]);
    assert_eq!(store.get(b"/l").unwrap().0.content, Content::Target(b"/a".to_vec()));
    // Into a folder, under the target's own name.
    store.good(&["ln", "-s", "/t", "/a"]);
    assert_eq!(store.paths(), ["/a", "/a/t", "/l", "/t"]);
}

#[test]
fn lists_and_sums() {
    let (store, here) = (Model::new(), Folder::new());
    let local = here.write("a", &[0; 3000]);
    store.good(&["mkdir", "-p", "/d/e"]);
    store.good(&["put", &local, "/d/e"]);
    for line in [
        &["ls"][..],
        &["ls", "-lhR", "/"],
        &["ls", "-ltr", "/d", "/d/e/a"],
        &["stat", "/d/*/a"],
        &["du"],
        &["du", "-sh", "/d"],
    ] {
        store.good(line);
    }
    store.bad(&["ls", "/none", "/d"], &["/none: no such file or directory"]);
    store.bad(&["stat", "/none"], &["/none: no such file or directory"]);
    store.bad(&["du", "/none"], &["/none: no such file or directory"]);
    store.bad(&["cat", "/d"], &["/d: it is a directory"]);
    store.bad(&["ls", "d"], &["d: a path in the store is absolute; write it from / on"]);
    let all = ["/d".into(), "/none".into()];
    let mut operands = Operands::new(&all, Box::new(|_| Ok(Rc::new(store.clone()) as Rc<dyn Files>)));
    assert_eq!(operands.expanded().unwrap().len(), 2, "without a pattern it is looked at later");
}

#[test]
fn the_name_of_a_copy_that_is_not_whole() {
    assert_eq!(transfer::unfinished(b"/d/a"), b"/d/a._COPYING_");
    let long = [b"/".as_slice(), &[b'x'; 255]].concat();
    assert_eq!(transfer::unfinished(&long).len(), 256);
}
