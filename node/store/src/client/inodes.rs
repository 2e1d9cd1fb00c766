//! Inodes by their numbers, for who keeps numbers instead of paths: a mounted file system.

use super::error::ClientError;
use super::file::File;
use super::options::CreateOptions;
use super::recorder::{of_creation, of_entry, of_inode, of_path};
use super::{Client, Stat, unexpected};
use crate::record::{RecordLine, RecordPath, RecordedCall, made_kind};
use weir_store::protocol::{Answer, Request};
use weir_store::{
    Changed, ClassName, EntryName, EntryPath, Inode, InodeId, InodeKind, InodePath, LIST_MAX, ListEntry, NameChange,
    NewInode, SetAttributes,
};

/// A part of a container's names, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The names.
    pub entries: Vec<ListEntry>,
    /// Whether there are none behind them.
    pub is_last: bool,
}

/// A file that was opened by its inode or made in a container, and what it was then.
#[derive(Debug)]
pub struct OpenedInode {
    /// The file.
    pub file: File,
    /// Its inode, as it was opened.
    pub inode: Inode,
}

impl Client {
    /// Whether the client's session is over: everything fails from then on, and a new client is needed.
    pub fn is_over(&self) -> bool {
        self.shared.lock().machine().is_over()
    }

    /// The store's classes, best first. [`ClassId`](weir_store::ClassId) is the place of one.
    pub fn classes(&self) -> Vec<ClassName> {
        self.shared.lock().machine().welcome().classes.clone()
    }

    /// What a name in a container leads to; a symbolic link is not followed.
    ///
    /// # Errors
    /// Nothing has that name, or the metadata service does not answer.
    pub fn lookup(&self, container: InodeId, name: EntryName) -> Result<Stat, ClientError> {
        let entry = EntryPath { container, name };
        let names = vec![entry.name.clone()];
        let lookup = || match self.ask(Request::Resolve { from: container, names, follow: false })? {
            Answer::Found { at, inode } => Ok(Stat { at, inode: *inode }),
            _ => Err(unexpected()),
        };
        self.recorded(lookup, |found| of_entry(RecordedCall::Lookup, &entry).with_stat(found))
    }

    /// An inode. A file without a name is found while somebody has it open.
    ///
    /// # Errors
    /// There is no such inode, or the metadata service does not answer.
    pub fn stat_inode(&self, at: InodePath) -> Result<Stat, ClientError> {
        let stat = || match self.ask(Request::Stat { at })? {
            Answer::Found { at, inode } => Ok(Stat { at, inode: *inode }),
            _ => Err(unexpected()),
        };
        self.recorded(stat, |found| of_inode(RecordedCall::Lookup, at.inode).with_stat(found))
    }

    /// Names of a container behind `after`, or from the first on: one page of them.
    ///
    /// # Errors
    /// It is no container, or the metadata service does not answer.
    pub fn list_page(&self, container: InodeId, after: Option<EntryName>) -> Result<ListPage, ClientError> {
        let behind = after.as_ref().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let list = || match self.ask(Request::List { container, after, most: LIST_MAX as u32 })? {
            Answer::Page { entries, is_last, .. } => Ok(ListPage { is_last: is_last || entries.is_empty(), entries }),
            _ => Err(unexpected()),
        };
        self.recorded(list, |page| RecordLine {
            done: page.map_or(0, |page| page.entries.len() as u64),
            ..of_inode(RecordedCall::Page, container).with_detail(&behind)
        })
    }

    /// Opens a file by its inode. `path` is what errors name it by.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_inode(&self, at: InodePath, write: bool, path: &[u8]) -> Result<OpenedInode, ClientError> {
        let detail = if write { "w" } else { "r" };
        let line = |opened: Option<&OpenedInode>| {
            of_path(RecordedCall::Open, path).with_detail(detail).with_file(opened.map(|opened| &opened.file))
        };
        self.recorded(|| self.open_and_tell(Request::Open { at, write }, path), line)
    }

    fn open_and_tell(&self, request: Request, path: &[u8]) -> Result<OpenedInode, ClientError> {
        let opened = self.ask_to_open(request).map_err(|error| error.at(path))?;
        let file = File::new(self.clone(), opened.file, path, opened.at);
        Ok(OpenedInode { file, inode: *opened.inode })
    }

    /// Makes a file in a container, or with `options.exclusive` unset opens the one that is there, to be written. Nothing is cut.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(
        &self,
        entry: EntryPath,
        options: &CreateOptions,
        path: &[u8],
    ) -> Result<OpenedInode, ClientError> {
        let create = || {
            let new = self.new_inode(options)?;
            let (content, exclusive) = (Vec::new(), options.exclusive);
            self.open_and_tell(Request::OpenNew { slot: 0, sequence: 0, entry, new, content, exclusive }, path)
        };
        self.recorded(create, |opened| {
            let line = of_creation(of_path(RecordedCall::Create, path), options);
            let kept = [&line.detail[..], b"k"].concat();
            line.with_detail(kept).with_file(opened.map(|opened| &opened.file))
        })
    }

    /// Makes an inode of any kind but a symbolic link in a container, and opens nothing.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_in(&self, entry: EntryPath, options: &CreateOptions) -> Result<Changed, ClientError> {
        let line = of_entry(RecordedCall::Make, &entry).with_detail(made_kind(options.kind, false));
        let make = || self.change_inode(NameChange::Create(entry, self.new_inode(options)?));
        self.recorded(make, |_| line)
    }

    /// Makes a symbolic link in a container.
    ///
    /// # Errors
    /// As [`symlink`](Self::symlink).
    pub fn symlink_in(&self, entry: EntryPath, target: &[u8], options: &CreateOptions) -> Result<Changed, ClientError> {
        let options = CreateOptions { kind: InodeKind::Symlink, mode: 0o777, ..options.clone() };
        let line = of_entry(RecordedCall::Symlink, &entry).with_detail(target);
        let make = || {
            let new = NewInode { target: target.into(), ..self.new_inode(&options)? };
            self.change_inode(NameChange::Create(entry, new))
        };
        self.recorded(make, |_| line)
    }

    /// Deletes a name. A container has to be empty.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_in(&self, entry: EntryPath) -> Result<Changed, ClientError> {
        let line = of_entry(RecordedCall::Remove, &entry);
        self.recorded(|| self.change_inode(NameChange::Delete { entry, recursive: false }), |_| line)
    }

    /// Gives what has a name another one.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn rename_in(&self, from: EntryPath, to: EntryPath, replace: bool) -> Result<Changed, ClientError> {
        let call = if replace { RecordedCall::Replace } else { RecordedCall::Rename };
        let new_name = RecordPath::Entry { container: to.container.0, name: to.name.as_bytes().into() };
        let line = of_entry(call, &from).with_detail(new_name.text());
        self.recorded(|| self.change_inode(NameChange::Rename { from, to, replace }), |_| line)
    }

    /// Changes attributes of an inode.
    ///
    /// # Errors
    /// As [`set_attributes`](Self::set_attributes).
    pub fn set_inode_attributes(&self, at: InodePath, set: SetAttributes) -> Result<Changed, ClientError> {
        let line = of_inode(RecordedCall::SetAttributes, at.inode);
        self.recorded(|| self.change_inode(NameChange::SetAttributes(at, set)), |_| line)
    }

    /// Sets an extended attribute of an inode, or with `None` deletes it.
    ///
    /// # Errors
    /// As [`set_extended`](Self::set_extended).
    pub fn set_inode_extended(
        &self,
        at: InodePath,
        name: &str,
        value: Option<Vec<u8>>,
    ) -> Result<Changed, ClientError> {
        let line = of_inode(RecordedCall::SetAttributes, at.inode);
        self.recorded(|| self.change_inode(NameChange::SetExtended(at, name.into(), value)), |_| line)
    }

    fn change_inode(&self, change: NameChange) -> Result<Changed, ClientError> {
        match self.ask(Request::Change { slot: 0, sequence: 0, change })? {
            Answer::Changed { changed } => Ok(changed),
            _ => Err(unexpected()),
        }
    }
}
