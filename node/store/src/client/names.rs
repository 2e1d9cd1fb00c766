//! Names and inodes.

use super::error::{ClientError, ClientErrorKind};
use super::file::File;
use super::options::{CreateOptions, OpenOptions};
use super::recorder::{of_creation, of_path};
use super::{Client, FileReader, FileWriter, path, unexpected};
use crate::record::{RecordLine, RecordedCall, made_kind};
use std::collections::VecDeque;
use weir_store::protocol::{Answer, Request};
use weir_store::{
    ClassId, Content, EntryName, EntryPath, Inode, InodeId, InodeKind, InodePath, LIST_MAX, ListEntry, Location,
    NameChange, NewInode, SetAttributes, StoreError,
};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number, and the directory that it was seen in.
    pub at: InodePath,
    /// What is known of it.
    pub inode: Inode,
}

/// The names of a directory, in order, fetched in pages.
#[derive(Debug)]
pub struct Listing {
    client: Client,
    path: Vec<u8>,
    container: InodeId,
    page: VecDeque<ListEntry>,
    after: Option<EntryName>,
    is_last: bool,
    record: ListingRecord,
}

/// What is recorded of a listing, when it is over.
#[derive(Debug)]
struct ListingRecord {
    begun: u64,
    /// What its pages have taken.
    called: u64,
    names: u64,
    errno: i32,
}

impl Drop for Listing {
    fn drop(&mut self) {
        let ListingRecord { begun, called, names, errno } = self.record;
        self.client.record_called(begun, called, || RecordLine {
            done: names,
            errno,
            inode: self.container.0,
            ..of_path(RecordedCall::List, &self.path)
        });
    }
}

impl Iterator for Listing {
    type Item = Result<ListEntry, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() && !self.is_last {
            let since = self.client.record_time();
            let fetched = self.fetch();
            self.record.called += self.client.record_time().saturating_sub(since);
            if let Err(error) = fetched {
                self.is_last = true;
                self.record.errno = error.errno();
                return Some(Err(error.at(&self.path)));
            }
        }
        let entry = self.page.pop_front()?;
        self.record.names += 1;
        Some(Ok(entry))
    }
}

impl Listing {
    fn fetch(&mut self) -> Result<(), ClientError> {
        let request = Request::List { container: self.container, after: self.after.clone(), most: LIST_MAX as u32 };
        match self.client.ask(request)? {
            Answer::Page { entries, is_last, .. } => {
                // Names in any other order could go on for ever.
                let names = self.after.iter().chain(entries.iter().map(|entry| &entry.name));
                if names.clone().zip(names.skip(1)).any(|(one, next)| one >= next) {
                    let text = "the metadata service lists names that are not in order".into();
                    return Err(ClientError::new(ClientErrorKind::Protocol(text)));
                }
                self.is_last = is_last || entries.is_empty();
                self.after = entries.last().map(|entry| entry.name.clone());
                self.page = entries.into();
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }
}

/// All paths may be `str`, `String`, `[u8]` or `Vec<u8>`.
impl Client {
    /// What a path leads to; symbolic links are followed.
    ///
    /// # Errors
    /// Nothing is there, or the metadata service does not answer.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat, ClientError> {
        let path = path.as_ref();
        self.recorded(|| self.resolve(path, true), |found| of_path(RecordedCall::Stat, path).with_stat(found))
    }

    /// The same, of a symbolic link itself if the path ends in one.
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn stat_link(&self, path: impl AsRef<[u8]>) -> Result<Stat, ClientError> {
        let path = path.as_ref();
        self.recorded(|| self.resolve(path, false), |found| of_path(RecordedCall::Lookup, path).with_stat(found))
    }

    fn resolve(&self, path: &[u8], follow: bool) -> Result<Stat, ClientError> {
        let request = Request::Resolve { from: InodeId::ROOT, names: path::names(path)?, follow };
        match self.ask(request).map_err(|error| error.at(path))? {
            Answer::Found { at, inode } => Ok(Stat { at, inode: *inode }),
            _ => Err(unexpected().at(path)),
        }
    }

    /// The container of a path's last name, and that name.
    fn entry(&self, path: &[u8]) -> Result<EntryPath, ClientError> {
        let mut names = path::names(path)?;
        let name = names.pop().ok_or_else(|| ClientError::from(StoreError::Root).at(path))?;
        if names.is_empty() {
            return Ok(EntryPath { container: InodeId::ROOT, name });
        }
        let request = Request::Resolve { from: InodeId::ROOT, names, follow: true };
        match self.ask(request).map_err(|error| error.at(path))? {
            Answer::Found { at, inode } if inode.kind.is_container() => Ok(EntryPath { container: at.inode, name }),
            Answer::Found { .. } => Err(ClientError::from(StoreError::NotDirectory).at(path)),
            _ => Err(unexpected().at(path)),
        }
    }

    /// The same; directories on the way are made where they are missing and wanted.
    fn entry_for(&self, path: &[u8], parents: bool) -> Result<EntryPath, ClientError> {
        match self.entry(path) {
            Err(error) if error.is_not_found() && parents => {
                let above = path::parent(path).unwrap_or_else(|| b"/".to_vec());
                self.make_directory(above, true, 0o755)?;
                self.entry(path)
            }
            result => result,
        }
    }

    fn change(&self, path: &[u8], change: NameChange) -> Result<(), ClientError> {
        let request = Request::Change { slot: 0, sequence: 0, change };
        self.ask(request).map(drop).map_err(|error| error.at(path))
    }

    /// The names of a directory, multifile or table.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or it is a file.
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Listing, ClientError> {
        let path = path.as_ref();
        let begun = self.record_time();
        let stat = self.resolve(path, true).and_then(|stat| match stat.inode.kind.is_container() {
            true => Ok(stat),
            false => Err(ClientError::from(StoreError::NotDirectory).at(path)),
        });
        let called = self.record_time().saturating_sub(begun);
        match stat {
            Ok(stat) => Ok(Listing {
                client: self.clone(),
                path: path.into(),
                container: stat.at.inode,
                page: VecDeque::new(),
                after: None,
                is_last: false,
                record: ListingRecord { begun, called, names: 0, errno: 0 },
            }),
            Err(error) => {
                let line = || RecordLine { errno: error.errno(), ..of_path(RecordedCall::List, path) };
                self.record_called(begun, called, line);
                Err(error)
            }
        }
    }

    /// Makes a directory; with `parents` also those on the way to it, and it is no error that it is there.
    ///
    /// # Errors
    /// It is there, or what it is to be in is not.
    pub fn make_directory(&self, path: impl AsRef<[u8]>, parents: bool, mode: u32) -> Result<(), ClientError> {
        let path = path.as_ref();
        let detail = if parents { "p" } else { "" };
        let line = |_: Option<&()>| of_path(RecordedCall::MakeDirectory, path).with_detail(detail);
        self.recorded(|| self.make_directory_at(path, parents, mode), line)
    }

    fn make_directory_at(&self, path: &[u8], parents: bool, mode: u32) -> Result<(), ClientError> {
        if parents && path::names(path)?.is_empty() {
            return Ok(());
        }
        let options = CreateOptions { kind: InodeKind::Directory, mode, parents, ..CreateOptions::default() };
        match self.make(path, &options) {
            Err(error) if parents && error.store_error() == Some(StoreError::Exists) => {
                match self.stat(path)?.inode.kind {
                    InodeKind::Directory => Ok(()),
                    _ => Err(error),
                }
            }
            result => result,
        }
    }

    /// Deletes a name; with `recursive` a directory with all that is in it.
    ///
    /// # Errors
    /// Nothing is there, or it is a directory that is not empty.
    pub fn remove(&self, path: impl AsRef<[u8]>, recursive: bool) -> Result<(), ClientError> {
        let path = path.as_ref();
        let detail = if recursive { "r" } else { "" };
        let delete = || self.change(path, NameChange::Delete { entry: self.entry(path)?, recursive });
        self.recorded(delete, |_| of_path(RecordedCall::Remove, path).with_detail(detail))
    }

    /// Gives what is at `from` another name; with `replace` it takes the place of another file, or of an empty directory.
    ///
    /// # Errors
    /// Nothing is at `from`, something is at `to`, or `to` lies within `from`.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, replace: bool) -> Result<(), ClientError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let call = if replace { RecordedCall::Replace } else { RecordedCall::Rename };
        self.recorded(|| self.rename_path(from, to, replace), |_| of_path(call, from).with_detail(to))
    }

    fn rename_path(&self, from_path: &[u8], to_path: &[u8], replace: bool) -> Result<(), ClientError> {
        let (from, to) = (self.entry(from_path)?, self.entry(to_path)?);
        // What is there already is at the other path.
        let about = |error: ClientError| match error.store_error() {
            Some(StoreError::Exists | StoreError::NotEmpty | StoreError::IntoItself) => error.at(to_path),
            _ => error.at(from_path),
        };
        let change = NameChange::Rename { from, to, replace };
        self.ask(Request::Change { slot: 0, sequence: 0, change }).map(drop).map_err(about)
    }

    /// Changes attributes; of a file's size see [`File::truncate`].
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn set_attributes(&self, path: impl AsRef<[u8]>, set: SetAttributes) -> Result<(), ClientError> {
        let path = path.as_ref();
        let change = || self.change(path, NameChange::SetAttributes(self.resolve(path, true)?.at, set));
        self.recorded(change, |_| of_path(RecordedCall::SetAttributes, path))
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    ///
    /// # Errors
    /// Something is at `path`, or `target` is longer than 4,095 bytes.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), ClientError> {
        let (target, path) = (target.as_ref(), path.as_ref());
        let line = |_: Option<&()>| of_path(RecordedCall::Symlink, path).with_detail(target);
        self.recorded(|| self.make_symlink(target, path), line)
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<(), ClientError> {
        let options = CreateOptions { kind: InodeKind::Symlink, mode: 0o777, ..CreateOptions::default() };
        let new = NewInode { target: target.into(), ..self.new_inode(&options).map_err(|e| e.at(path))? };
        let entry = self.entry(path)?;
        self.change(path, NameChange::Create(entry, new))
    }

    /// Where a symbolic link leads to.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, ClientError> {
        let path = path.as_ref();
        let read = || match self.resolve(path, false)?.inode.content {
            Content::Target(target) => Ok(target),
            _ => Err(ClientError::from(StoreError::WrongKind).at(path)),
        };
        let line =
            |target: Option<&Vec<u8>>| of_path(RecordedCall::ReadLink, path).with_detail(target.map_or(&[][..], |t| t));
        self.recorded(read, line)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or there is no such attribute.
    pub fn extended(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Vec<u8>, ClientError> {
        let path = path.as_ref();
        let value = self.stat(path)?.inode.attributes.remove(name);
        value.ok_or_else(|| ClientError::from(StoreError::NoAttribute).at(path))
    }

    /// Sets an extended attribute, or with `None` deletes it.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); there is no such attribute, or the inode has no room for it.
    pub fn set_extended(&self, path: impl AsRef<[u8]>, name: &str, value: Option<Vec<u8>>) -> Result<(), ClientError> {
        let path = path.as_ref();
        let change = || self.change(path, NameChange::SetExtended(self.resolve(path, true)?.at, name.into(), value));
        self.recorded(change, |_| of_path(RecordedCall::SetAttributes, path))
    }

    pub(super) fn new_inode(&self, options: &CreateOptions) -> Result<NewInode, ClientError> {
        let engine = self.shared.lock();
        let known = &engine.machine().welcome().classes;
        let class = |name: &String| {
            let at = known.iter().position(|class| class.as_str() == name);
            at.and_then(|at| u16::try_from(at).ok()).map(ClassId).ok_or_else(|| {
                let names: Vec<&str> = known.iter().map(|class| class.as_str()).collect();
                let text = format!("the store has no class \"{name}\"; it has {}", names.join(", "));
                ClientError::new(ClientErrorKind::Usage(text))
            })
        };
        let location = match &options.location {
            Some(location) => Location::new(location)?,
            None => engine.link().caller().location.clone(),
        };
        Ok(NewInode {
            kind: options.kind,
            mode: options.mode,
            uid: options.uid,
            gid: options.gid,
            target: Vec::new(),
            classes: options.classes.iter().map(class).collect::<Result<_, _>>()?,
            location,
            copies: options.copies,
            block: options.block.unwrap_or(engine.machine().welcome().block),
        })
    }

    /// Makes a file, opened to be read and written. With another kind than a file see [`make`](Self::make).
    ///
    /// # Errors
    /// It is there and `exclusive` was wanted; another client writes it; what it is to be in is not there.
    pub fn create(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<File, ClientError> {
        let path = path.as_ref();
        let create = || {
            let (file, _) = self.open_new(path, options, Vec::new())?;
            if file.size() > 0 {
                file.truncate(0)?;
            }
            Ok(file)
        };
        self.recorded(create, |file| of_creation(of_path(RecordedCall::Create, path), options).with_file(file))
    }

    /// A file that is made with those bytes, or that was there; and whether those are its bytes.
    fn open_new(&self, path: &[u8], options: &CreateOptions, content: Vec<u8>) -> Result<(File, bool), ClientError> {
        let new = self.new_inode(options).map_err(|error| error.at(path))?;
        if options.kind != InodeKind::File {
            return Err(ClientError::from(StoreError::WrongKind).at(path));
        }
        let entry = self.entry_for(path, options.parents)?;
        let exclusive = options.exclusive;
        let request = Request::OpenNew { slot: 0, sequence: 0, entry, new, content: content.clone(), exclusive };
        let opened = self.ask_to_open(request).map_err(|error| error.at(path))?;
        let has_content = opened.inode.content == Content::Inline(content);
        Ok((File::new(self.clone(), opened.file, path, opened.at), has_content))
    }

    /// Makes an inode of any kind but a symbolic link, and opens nothing.
    ///
    /// # Errors
    /// It is there, or what it is to be in is not.
    pub fn make(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<(), ClientError> {
        let path = path.as_ref();
        let make = || {
            let new = self.new_inode(options).map_err(|error| error.at(path))?;
            let entry = self.entry_for(path, options.parents)?;
            self.change(path, NameChange::Create(entry, new))
        };
        self.recorded(make, |_| of_path(RecordedCall::Make, path).with_detail(made_kind(options.kind, options.parents)))
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// It is not there, or is no file; another client writes it and it was to be written.
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File, ClientError> {
        let path = path.as_ref();
        let detail = match options {
            OpenOptions { truncate: true, .. } => "wt",
            options if options.writes() => "w",
            _ => "r",
        };
        let line = |file: Option<&File>| of_path(RecordedCall::Open, path).with_detail(detail).with_file(file);
        self.recorded(|| self.open_path(path, options), line)
    }

    fn open_path(&self, path: &[u8], options: OpenOptions) -> Result<File, ClientError> {
        let stat = self.resolve(path, true)?;
        if stat.inode.kind != InodeKind::File {
            let error = if stat.inode.kind.is_container() { StoreError::IsDirectory } else { StoreError::WrongKind };
            return Err(ClientError::from(error).at(path));
        }
        let file = self.open_at(path, stat.at, options.writes())?;
        if options.truncate && file.size() > 0 {
            file.truncate(0)?;
        }
        Ok(file)
    }

    pub(super) fn open_at(&self, path: &[u8], at: InodePath, write: bool) -> Result<File, ClientError> {
        let open = || {
            let opened = self.ask_to_open(Request::Open { at, write }).map_err(|error| error.at(path))?;
            Ok(File::new(self.clone(), opened.file, path, opened.at))
        };
        let detail = if write { "w" } else { "r" };
        self.recorded(open, |file| of_path(RecordedCall::Open, path).with_detail(detail).with_file(file))
    }

    /// A buffered stream of a file's bytes, or of all files of a multifile, one after the other in the order of their names.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reader(&self, path: impl AsRef<[u8]>) -> Result<FileReader, ClientError> {
        let path = path.as_ref();
        let stat = self.stat(path)?;
        match stat.inode.kind {
            InodeKind::File => Ok(FileReader::new(vec![self.open_at(path, stat.at, false)?])),
            InodeKind::Multifile => {
                let mut files = Vec::new();
                for entry in self.list(path)? {
                    let entry = entry?;
                    let at = InodePath { inode: entry.record.inode, parent: stat.at.inode };
                    let name = [path, b"/", entry.name.as_bytes()].concat();
                    files.push(self.open_at(&name, at, false)?);
                }
                Ok(FileReader::new(files))
            }
            kind if kind.is_container() => Err(ClientError::from(StoreError::IsDirectory).at(path)),
            _ => Err(ClientError::from(StoreError::WrongKind).at(path)),
        }
    }

    /// Makes a file, or cuts it to nothing, and writes it as a buffered stream.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn writer(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<FileWriter, ClientError> {
        self.create(path, options).map(|file| FileWriter::new(file, 0))
    }

    /// Makes or replaces a file as a whole, or the value of a table. What fits into an inode takes one change.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn put_small(&self, path: impl AsRef<[u8]>, bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        let path = path.as_ref();
        let length = bytes.len() as u64;
        let line = |put: Option<&()>| RecordLine {
            length,
            done: put.map_or(0, |()| length),
            ..of_path(RecordedCall::Put, path).with_detail(if options.parents { "p" } else { "" })
        };
        self.recorded(|| self.put_bytes(path, bytes, options), line)
    }

    fn put_bytes(&self, path: &[u8], bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        if options.kind == InodeKind::Table {
            // A value, not a file, in a table that is there.
            let entry = self.entry(path)?;
            return self.change(path, NameChange::PutValue(entry, bytes.into()));
        }
        let most = self.shared.lock().machine().welcome().inline_max as usize;
        let content = if bytes.len() <= most { bytes.to_vec() } else { Vec::new() };
        let (file, is_done) = self.open_new(path, options, content)?;
        if is_done && bytes.len() <= most {
            return file.close();
        }
        if file.size() > bytes.len() as u64 {
            file.truncate(0)?;
        }
        file.write_at(0, bytes)?;
        file.close()
    }

    /// All bytes of a file. What lies in the inode takes one question.
    ///
    /// # Errors
    /// As [`open`](Self::open), or it has more than `most` bytes.
    pub fn get_small(&self, path: impl AsRef<[u8]>, most: usize) -> Result<Vec<u8>, ClientError> {
        let path = path.as_ref();
        let line = |bytes: Option<&Vec<u8>>| {
            let length = bytes.map_or(0, |bytes| bytes.len() as u64);
            RecordLine { length, done: length, ..of_path(RecordedCall::Get, path) }
        };
        self.recorded(|| self.get_bytes(path, most), line)
    }

    fn get_bytes(&self, path: &[u8], most: usize) -> Result<Vec<u8>, ClientError> {
        let stat = self.stat(path)?;
        let too_long = |size: u64| {
            let text = format!("it has {size} bytes, and {most} are the most that was asked for");
            ClientError::new(ClientErrorKind::Usage(text)).at(path)
        };
        if stat.inode.size > most as u64 {
            return Err(too_long(stat.inode.size));
        }
        match (stat.inode.kind, stat.inode.content) {
            (InodeKind::File, Content::Inline(mut bytes)) => {
                bytes.resize(stat.inode.size as usize, 0);
                Ok(bytes)
            }
            (InodeKind::File, _) => {
                let file = self.open_at(path, stat.at, false)?;
                let size = file.size();
                if size > most as u64 {
                    return Err(too_long(size));
                }
                let mut bytes = vec![0; size as usize];
                let n = file.read_at(0, &mut bytes)?;
                bytes.truncate(n);
                Ok(bytes)
            }
            (kind, _) if kind.is_container() => Err(ClientError::from(StoreError::IsDirectory).at(path)),
            _ => Err(ClientError::from(StoreError::WrongKind).at(path)),
        }
    }
}
