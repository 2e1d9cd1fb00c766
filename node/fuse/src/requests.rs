//! What each request of the kernel comes to, apart from how it is answered.

use crate::attributes::{attributes, nanos};
use crate::directories::Directories;
use crate::errors::Failed;
use crate::extended;
use crate::link::{Connected, StoreLink};
use crate::mounted::MountOptions;
use crate::nodes::{FoundName, Nodes};
use crate::open_files::{OpenFile, OpenFiles, Opening};
use fuser::{Errno, FileAttr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use weir_store::{EntryName, EntryPath, Inode, InodeId, InodeKind, InodePath, SetAttributes, StoreError};
use weir_store_node::client::{CreateOptions, Operator as _, Stat};

/// Who makes something, and with which permissions.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Permissions, without the bits of the process's mask.
    pub mode: u32,
}

/// Changes of attributes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChange {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// When its bytes were changed last.
    pub modified: Option<SystemTime>,
}

/// Room in the store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Of all classes.
    pub total: u64,
    /// Of it free.
    pub free: u64,
}

/// See [the module](self).
#[derive(Debug)]
pub struct Requests {
    /// The client.
    pub link: Arc<StoreLink>,
    /// Files that are open.
    pub files: OpenFiles,
    /// Directories that are open.
    pub directories: Directories,
    options: MountOptions,
    nodes: Mutex<Nodes>,
    /// The root as it was seen last: for `umount`, which asks for it while the metadata service is away.
    root: Mutex<Option<FileAttr>>,
}

impl Requests {
    /// Of a mount.
    pub fn new(link: StoreLink, options: MountOptions) -> Self {
        let link = Arc::new(link);
        let (files, directories) = (OpenFiles::new(link.clone()), Directories::default());
        Self { link, files, directories, options, nodes: Mutex::default(), root: Mutex::default() }
    }

    /// How the mount was asked for.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// The inodes that the kernel knows.
    pub fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(parent: InodeId, name: &[u8]) -> Result<EntryPath, Failed> {
        Ok(EntryPath { container: parent, name: EntryName::new(name)? })
    }

    /// The kernel is told of an inode: its attributes.
    pub fn told(&self, parent: InodeId, name: &EntryName, at: InodePath, inode: Inode) -> FileAttr {
        self.nodes().told(FoundName { parent, name, number: at.inode, kind: inode.kind });
        self.seen(at.inode, inode)
    }

    /// Attributes, with what this mount knows better.
    fn seen(&self, number: InodeId, mut inode: Inode) -> FileAttr {
        if let Some(file) = self.files.get(number) {
            file.overlay(&mut inode);
        }
        attributes(number, &inode)
    }

    /// What a name leads to.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<FileAttr, Failed> {
        let name = EntryName::new(name)?;
        let Stat { at, inode } = self.link.ask(|client| client.lookup(parent, name.clone()))?;
        Ok(self.told(parent, &name, at, inode))
    }

    /// The kernel has forgotten that it was told of an inode so often.
    pub fn forget(&self, number: InodeId, lookups: u64) {
        if self.nodes().forget(number, lookups) {
            self.files.forget(number);
        }
    }

    fn stat(&self, number: InodeId) -> Result<Stat, Failed> {
        let at = self.nodes().at(number);
        self.link.ask(|client| client.stat_inode(at))
    }

    /// The attributes of an inode.
    pub fn attributes(&self, number: InodeId) -> Result<FileAttr, Failed> {
        if number != InodeId::ROOT {
            return self.stat(number).map(|stat| self.seen(number, stat.inode));
        }
        let found = self.stat(number).map(|stat| attributes(number, &stat.inode));
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        match (found, *root) {
            (Ok(found), _) => Ok(*root.insert(found)),
            (Err(failed), Some(known)) if failed.is_late => Ok(known),
            (Err(failed), _) => Err(failed),
        }
    }

    /// Changes attributes; those that it has then.
    pub fn change(&self, number: InodeId, change: AttributeChange) -> Result<FileAttr, Failed> {
        let AttributeChange { mode, uid, gid, size, modified } = change;
        if let Some(size) = size {
            self.truncate(number, size)?;
        }
        if mode.is_some() || uid.is_some() || gid.is_some() {
            let set = SetAttributes { mode, uid, gid, ..SetAttributes::default() };
            self.set(number, set)?;
        }
        if let Some(time) = modified.map(nanos) {
            match self.files.get(number) {
                Some(file) => file.touch(&self.link, time)?,
                None => self.set(number, SetAttributes { modified: Some(time), ..SetAttributes::default() })?,
            }
        }
        self.attributes(number)
    }

    fn set(&self, number: InodeId, set: SetAttributes) -> Result<(), Failed> {
        let at = self.nodes().at(number);
        self.link.ask(|client| client.set_inode_attributes(at, set)).map(drop)
    }

    /// Cuts a file that is open to be written, or opens it for that.
    fn truncate(&self, number: InodeId, size: u64) -> Result<(), Failed> {
        let opening = self.opening(number, true);
        self.files.open(&opening)?;
        let cut = self.open_file(number).and_then(|file| file.truncate(&self.link, size));
        cut.and(self.files.close(number, true))
    }

    fn opening(&self, number: InodeId, writes: bool) -> Opening {
        let nodes = self.nodes();
        Opening { at: nodes.at(number), path: nodes.path(number), writes }
    }

    /// Opens a file; whether pages that the kernel has of it are as it is.
    pub fn open(&self, number: InodeId, writes: bool) -> Result<bool, Failed> {
        self.files.open(&self.opening(number, writes))
    }

    /// A file that is open.
    pub fn open_file(&self, number: InodeId) -> Result<Arc<OpenFile>, Failed> {
        self.files.get(number).ok_or(Failed::quiet(Errno::EBADF))
    }

    fn create_options(&self, kind: InodeKind, maker: Maker) -> CreateOptions {
        let Maker { uid, gid, mode } = maker;
        let classes = self.options.classes.clone();
        CreateOptions { kind, mode: mode & 0o7777, uid, gid, classes, ..CreateOptions::default() }
    }

    /// Makes a file, or where that is not excluded opens the one that is there and cuts it to nothing, to be written.
    pub fn create(&self, parent: InodeId, name: &[u8], maker: Maker, exclusive: bool) -> Result<FileAttr, Failed> {
        let entry = Self::entry(parent, name)?;
        let name = entry.name.clone();
        let options = CreateOptions { exclusive, ..self.create_options(InodeKind::File, maker) };
        let path = self.nodes().path_in(parent, name.as_bytes());
        let Connected { client, session } = self.link.connected()?;
        let opened = self.link.noted(client.create_in(entry, &options, &path))?;
        let (at, inode) = (opened.file.at(), opened.inode.clone());
        self.files.made(&Opening { at, path, writes: true }, opened, session);
        if inode.size > 0 {
            // Made by another client since the kernel has looked.
            if let Err(failed) = self.open_file(at.inode).and_then(|file| file.truncate(&self.link, 0)) {
                let _ = self.files.close(at.inode, true);
                return Err(failed);
            }
        }
        Ok(self.told(parent, &name, at, inode))
    }

    /// Makes a directory, or a file that is not opened.
    pub fn make(&self, parent: InodeId, name: &[u8], kind: InodeKind, maker: Maker) -> Result<FileAttr, Failed> {
        let options = self.create_options(kind, maker);
        let entry = Self::entry(parent, name)?;
        self.link.ask(|client| client.make_in(entry, &options))?;
        self.lookup(parent, name)
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, parent: InodeId, name: &[u8], target: &[u8], maker: Maker) -> Result<FileAttr, Failed> {
        let options = self.create_options(InodeKind::Symlink, maker);
        let entry = Self::entry(parent, name)?;
        self.link.ask(|client| client.symlink_in(entry, target, &options))?;
        self.lookup(parent, name)
    }

    /// Where a symbolic link leads to.
    pub fn read_link(&self, number: InodeId) -> Result<Vec<u8>, Failed> {
        match self.stat(number)?.inode.content {
            weir_store::Content::Target(target) => Ok(target),
            _ => Err(StoreError::WrongKind.into()),
        }
    }

    /// A name goes.
    pub fn remove(&self, parent: InodeId, name: &[u8]) -> Result<(), Failed> {
        let entry = Self::entry(parent, name)?;
        self.link.ask(|client| client.remove_in(entry)).map(drop)
    }

    /// What has a name gets another one.
    pub fn rename(&self, from: EntryPath, to: EntryPath, replace: bool) -> Result<(), Failed> {
        let changed = self.link.ask(|client| client.rename_in(from, to.clone(), replace))?;
        self.nodes().moved(changed.inode, to.container, &to.name);
        Ok(())
    }

    /// A name in a container.
    pub fn named(parent: InodeId, name: &[u8]) -> Result<EntryPath, Failed> {
        Self::entry(parent, name)
    }

    /// How much room there is.
    pub fn room(&self) -> Result<Room, Failed> {
        let classes = self.link.ask(|client| client.status())?.classes;
        let add = |room: Room, class: &weir_store::protocol::ClassStatus| Room {
            total: room.total.saturating_add(class.bytes),
            free: room.free.saturating_add(class.free),
        };
        Ok(classes.iter().fold(Room::default(), add))
    }

    /// The value of an extended attribute.
    pub fn extended(&self, number: InodeId, name: &str) -> Result<Vec<u8>, Failed> {
        // The kernel asks for these before each write: that there are none is known without a question.
        if !extended::is_kept(name) && !name.starts_with("weir.") {
            return Err(Failed::quiet(Errno::NO_XATTR));
        }
        let inode = self.stat(number)?.inode;
        extended::get(&inode, name, &self.link.connected()?.client.classes())
    }

    /// The names of all extended attributes.
    pub fn extended_names(&self, number: InodeId) -> Result<Vec<u8>, Failed> {
        self.stat(number).map(|stat| extended::list(&stat.inode))
    }

    /// Sets an extended attribute, or deletes it.
    pub fn set_extended(&self, number: InodeId, name: &str, value: Option<&[u8]>) -> Result<(), Failed> {
        if name == extended::CLASS {
            let classes = extended::classes_of(value.unwrap_or_default(), &self.link.connected()?.client.classes())?;
            return self.set(number, SetAttributes { classes: Some(classes), ..SetAttributes::default() });
        }
        if !extended::is_kept(name) {
            let why = format_args!("the store keeps extended attributes user.* and trusted.*, and no {name}");
            return Err(Failed::because(Errno::EOPNOTSUPP, why));
        }
        let at = self.nodes().at(number);
        self.link.ask(|client| client.set_inode_extended(at, name, value.map(<[u8]>::to_vec))).map(drop)
    }
}
