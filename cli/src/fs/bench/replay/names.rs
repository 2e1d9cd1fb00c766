//! Which path each call is about, and what was there before the record: the names of the store, followed through the calls that succeeded.

use super::super::super::path::{folder_of, join};
use super::load::{Content, Prepared, RecordedStep};
use std::collections::{BTreeMap, HashMap, HashSet};
use weir_store::{InodeId, InodeKind};
use weir_store_node::record::{RecordPath, RecordedCall, kind_of, made_of};

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A file, and which of the contents.
    File(usize),
    /// Something else that was there before, or may have been.
    Other,
    /// Something else that the record made.
    Made,
    /// Nothing any more.
    Gone,
}

/// See [the module](self).
#[derive(Debug, Default)]
pub struct Names {
    known: BTreeMap<Vec<u8>, Known>,
    inodes: HashMap<u64, Vec<u8>>,
    /// The opposite.
    paths: BTreeMap<Vec<u8>, u64>,
    /// By client and number; the path, and whether it is written.
    open: HashMap<(usize, u64), OpenFile>,
    files: usize,
    contents: Vec<Content>,
    lists: BTreeMap<Vec<u8>, FirstList>,
    /// Of those, the ones of files of which no call has said how long they are.
    guessed: HashSet<usize>,
    prepared: BTreeMap<Vec<u8>, Prepared>,
}

/// The first list of a directory.
#[derive(Clone, Copy, Debug)]
struct FirstList {
    /// Names that were listed, and that the record's calls had not made.
    others: i64,
    /// Its last page was read.
    is_over: bool,
}

#[derive(Clone, Debug)]
struct OpenFile {
    file: usize,
    path: Vec<u8>,
    content: usize,
    is_written: bool,
}

impl Names {
    /// How many files were opened.
    pub fn files(&self) -> usize {
        self.files
    }

    pub fn end(mut self) -> (Vec<Content>, BTreeMap<Vec<u8>, Prepared>) {
        for (path, list) in &self.lists {
            let inside = below(&self.prepared, path).into_iter().filter(|(name, _)| folder_of(name) == path).count();
            if let Some(directory) = self.prepared.get_mut(path) {
                directory.size = u64::try_from(list.others - inside as i64).unwrap_or(0);
            }
        }
        (self.contents, self.prepared)
    }

    /// Fills in a step. Steps come in the order in which they ended.
    pub fn resolve(&mut self, step: &mut RecordedStep) -> Result<(), String> {
        if is_of_file(step.line.call) {
            return self.of_open_file(step);
        }
        step.path = self.path(&step.line.path, step.is_ok())?;
        step.other = match step.line.call {
            RecordedCall::Rename | RecordedCall::Replace => {
                let detail = &step.line.detail;
                let text = std::str::from_utf8(detail).ok().filter(|text| text.starts_with('@'));
                match text.map(RecordPath::parse).transpose()? {
                    Some(entry) => self.path(&entry, step.is_ok())?,
                    None => clean(detail),
                }
            }
            _ => Vec::new(),
        };
        if step.is_ok() {
            self.follow(step);
            if step.line.inode != 0 {
                self.note_inode(step.line.inode, &step.path);
            }
        }
        Ok(())
    }

    fn of_open_file(&mut self, step: &mut RecordedStep) -> Result<(), String> {
        let key = (step.client, step.line.file);
        let nothing = || format!("{} of file {}, which nothing has opened", step.line.call.name(), step.line.file);
        let open = self.open.get(&key).ok_or_else(nothing)?;
        (step.file, step.content, step.path) = (Some(open.file), Some(open.content), open.path.clone());
        step.is_writer = open.is_written;
        Ok(())
    }

    fn path(&self, path: &RecordPath, must: bool) -> Result<Vec<u8>, String> {
        let of = |inode: u64| match self.inodes.get(&inode) {
            Some(path) => Ok(path.clone()),
            None if inode == InodeId::ROOT.0 => Ok(b"/".to_vec()),
            None if must => Err(format!("nothing says which path inode {inode} has; record all processes of the run")),
            None => Ok(format!("/@{inode}").into_bytes()),
        };
        Ok(match path {
            RecordPath::Absolute(path) => clean(path),
            RecordPath::Inode(inode) => of(*inode)?,
            RecordPath::Entry { container, name } => join(&of(*container)?, name),
        })
    }

    fn note_inode(&mut self, inode: u64, path: &[u8]) {
        if let Some(old) = self.inodes.insert(inode, path.into()) {
            self.paths.remove(&old);
        }
        self.paths.insert(path.into(), inode);
    }

    /// What a call that succeeded says about names, and changes of them.
    fn follow(&mut self, step: &mut RecordedStep) {
        let (call, path) = (step.line.call, step.path.clone());
        match call {
            RecordedCall::Open => {
                let content = self.file(&path, step.line.length);
                let content = if step.line.detail == b"wt" { self.new_file(&path) } else { content };
                self.opened(step, content);
            }
            RecordedCall::Create => {
                self.way(&path, step.line.detail.contains(&b'p'));
                let keeps = step.line.detail.contains(&b'k');
                let content = match self.known.get(&path) {
                    Some(Known::File(content)) if keeps => *content,
                    _ => self.new_file(&path),
                };
                self.opened(step, content);
            }
            RecordedCall::Put => {
                self.way(&path, step.line.detail == b"p");
                step.content = Some(self.new_file(&path));
            }
            RecordedCall::Get => step.content = Some(self.file(&path, step.line.length)),
            RecordedCall::Parts => drop(self.file(&path, step.line.offset.saturating_add(step.line.done))),
            RecordedCall::Stat | RecordedCall::Lookup => self.there(&path, step),
            RecordedCall::List | RecordedCall::Page => self.listed(&path, step),
            RecordedCall::ReadLink => self.need(&path, InodeKind::Symlink, 0, &step.line.detail),
            RecordedCall::SetAttributes => self.guess(&path, InodeKind::File),
            RecordedCall::MakeDirectory | RecordedCall::Make | RecordedCall::Symlink => self.made(&path, step),
            RecordedCall::Remove => {
                let kind = if step.line.detail == b"r" { InodeKind::Directory } else { InodeKind::File };
                self.guess(&path, kind);
                move_below(&mut self.known, &path, None);
                self.known.insert(path, Known::Gone);
            }
            RecordedCall::Rename | RecordedCall::Replace => self.renamed(&path, &step.other),
            _ => {}
        }
    }

    fn opened(&mut self, step: &mut RecordedStep, content: usize) {
        let is_written = step.line.call == RecordedCall::Create || step.line.detail != b"r";
        let open = OpenFile { file: self.files, path: step.path.clone(), content, is_written };
        self.files += 1;
        (step.file, step.content) = (Some(open.file), Some(content));
        self.open.insert((step.client, step.line.file), open);
    }

    fn new_file(&mut self, path: &[u8]) -> usize {
        self.contents.push(Content { path: path.into(), prepared: 0 });
        self.known.insert(path.into(), Known::File(self.contents.len() - 1));
        self.contents.len() - 1
    }

    /// A file that is there with so many bytes.
    fn file(&mut self, path: &[u8], size: u64) -> usize {
        self.need(path, InodeKind::File, size, b"");
        match self.known.get(path) {
            Some(Known::File(content)) => *content,
            // A link to one, or the record contradicts itself: bytes of their own.
            _ => {
                self.contents.push(Content { path: path.into(), prepared: size });
                self.contents.len() - 1
            }
        }
    }

    /// The first list of a directory that was there before says how many names it had.
    fn listed(&mut self, path: &[u8], step: &RecordedStep) {
        self.need(path, InodeKind::Directory, 0, b"");
        let is_first = step.line.call == RecordedCall::List || step.line.detail.is_empty();
        let done = step.line.done as i64;
        match self.lists.get_mut(path) {
            Some(list) if is_first => list.is_over = true,
            Some(list) if !list.is_over => list.others += done,
            None if is_first && self.prepared.contains_key(path) => {
                let others = done - self.change_of_names(path);
                self.lists.insert(path.into(), FirstList { others, is_over: false });
            }
            _ => {}
        }
    }

    /// How many more names a directory has than before the record.
    fn change_of_names(&self, path: &[u8]) -> i64 {
        let below = below(&self.known, path);
        let inside = below.iter().filter(|(name, _)| folder_of(name) == path);
        inside.fold(0, |sum, (name, known)| match (*known == Known::Gone, self.prepared.contains_key(name)) {
            (true, true) => sum - 1,
            (false, false) => sum + 1,
            _ => sum,
        })
    }

    fn there(&mut self, path: &[u8], step: &RecordedStep) {
        let kind = kind_of(&step.line.detail).unwrap_or(InodeKind::Directory);
        self.need(path, kind, if kind == InodeKind::File { step.line.length } else { 0 }, b"");
    }

    fn made(&mut self, path: &[u8], step: &RecordedStep) {
        let makes_way = match step.line.call {
            RecordedCall::MakeDirectory => step.line.detail == b"p",
            RecordedCall::Make => made_of(&step.line.detail).is_some_and(|(_, parents)| parents),
            _ => false,
        };
        self.way(path, makes_way);
        let is_file =
            step.line.call == RecordedCall::Make && matches!(made_of(&step.line.detail), Some((InodeKind::File, _)));
        match is_file {
            true => drop(self.new_file(path)),
            false => drop(self.known.entry(path.into()).and_modify(revive).or_insert(Known::Made)),
        }
    }

    fn renamed(&mut self, from: &[u8], to: &[u8]) {
        self.guess(from, InodeKind::File);
        self.way(to, false);
        let moved = self.known.insert(from.into(), Known::Gone).unwrap_or(Known::Other);
        move_below(&mut self.known, to, None);
        move_below(&mut self.known, from, Some(to));
        self.known.insert(to.into(), moved);
        let inodes = below(&self.paths, from);
        for (path, inode) in inodes.into_iter().chain(self.paths.get(from).map(|inode| (from.to_vec(), *inode))) {
            self.note_inode(inode, &[to, &path[from.len()..]].concat());
        }
    }

    /// Directories on the way to a path: the call makes them, or the last is there.
    fn way(&mut self, path: &[u8], makes: bool) {
        if !makes {
            return self.need(folder_of(path), InodeKind::Directory, 0, b"");
        }
        let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            self.known.entry(path[..at].to_vec()).and_modify(revive).or_insert(Known::Other);
        }
    }

    /// The same as [`need`](Self::need) where the call does not say what was there.
    fn guess(&mut self, path: &[u8], kind: InodeKind) {
        let is_new = !self.prepared.contains_key(path);
        self.need(path, kind, 0, b"");
        if let (true, Some(Known::File(content))) = (is_new && self.prepared.contains_key(path), self.known.get(path)) {
            self.guessed.insert(*content);
        }
    }

    /// Something was there: where nothing of the record made it, it has to be there before.
    fn need(&mut self, path: &[u8], kind: InodeKind, size: u64, target: &[u8]) {
        if path == b"/" {
            return;
        }
        let prepared = Prepared { kind, size, target: target.into() };
        match self.known.get(path) {
            Some(Known::File(content)) => {
                let content = *content;
                if self.guessed.remove(&content) {
                    self.contents[content].prepared = size;
                    self.prepared.insert(self.contents[content].path.clone(), prepared);
                }
            }
            Some(Known::Other | Known::Made) => {}
            Some(Known::Gone) | None if self.is_below_made(path) => {}
            Some(Known::Gone) | None => {
                self.prepared.insert(path.into(), prepared);
                match kind {
                    InodeKind::File => {
                        let content = self.new_file(path);
                        self.contents[content].prepared = size;
                    }
                    _ => drop(self.known.insert(path.into(), Known::Other)),
                }
            }
        }
    }

    /// Whether what is there now was not there before the record: the path was deleted, or one above it was deleted or made.
    fn is_below_made(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        let is_new = |part: &[u8]| matches!(self.known.get(part), Some(Known::Gone | Known::Made));
        slashes.map(|(at, _)| &path[..at]).any(is_new) || self.known.get(path) == Some(&Known::Gone)
    }
}

/// What was deleted is made again.
fn revive(known: &mut Known) {
    if *known == Known::Gone {
        *known = Known::Made;
    }
}

/// A path without empty names.
fn clean(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"/") {
        return path.into();
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    [b"/", names.join(&b'/').as_slice()].concat()
}

/// Whether a call is about an open file.
pub const fn is_of_file(call: RecordedCall) -> bool {
    matches!(
        call,
        RecordedCall::Close
            | RecordedCall::Drop
            | RecordedCall::Read
            | RecordedCall::Write
            | RecordedCall::Append
            | RecordedCall::Flush
            | RecordedCall::Truncate
    )
}

/// What is below a path.
fn below<T: Clone>(map: &BTreeMap<Vec<u8>, T>, path: &[u8]) -> Vec<(Vec<u8>, T)> {
    let first = join(path, b"");
    let all = map.range(first.clone()..).take_while(|(key, _)| key.starts_with(&first));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What is below a path goes below another one, or away.
fn move_below<T: Clone>(map: &mut BTreeMap<Vec<u8>, T>, from: &[u8], to: Option<&[u8]>) {
    for (path, value) in below(map, from) {
        map.remove(&path);
        if let Some(to) = to {
            map.insert([to, &path[from.len()..]].concat(), value);
        }
    }
}
