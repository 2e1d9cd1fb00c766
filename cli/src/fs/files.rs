//! What the commands need of a store, and the client that gives it.

use std::io::{Read, Write};
use weir_store::{Inode, InodeKind, SetAttributes};
use weir_store_node::client::{Client, ClientError, CreateOptions, FileScrub, FileWriter, ScrubDrives};

/// A name of a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub kind: InodeKind,
    /// The inode, where the list has it: not of folders.
    pub inode: Option<Inode>,
}

/// Names of a folder, in order.
pub type Entries = Box<dyn Iterator<Item = Result<Entry, ClientError>>>;

/// A file that is being written.
pub trait Sink: Write {
    /// Publishes and closes it. Dropped instead, it stays as it was published last.
    fn finish(self: Box<Self>) -> Result<(), ClientError>;
}

/// A store. Paths are absolute.
pub trait Files {
    /// The names of the store's classes, by number.
    fn class_names(&self) -> Vec<String>;
    /// What a path leads to; `follow`: through a symbolic link at its end as well.
    fn stat(&self, path: &[u8], follow: bool) -> Result<Inode, ClientError>;
    /// The names of a folder.
    fn list(&self, path: &[u8]) -> Result<Entries, ClientError>;
    /// A folder; `parents`: also those on the way, and it is no error that it is there.
    fn make_folder(&self, path: &[u8], parents: bool, mode: u32) -> Result<(), ClientError>;
    /// A name goes, with `recursive` with all that is below it.
    fn remove(&self, path: &[u8], recursive: bool) -> Result<(), ClientError>;
    /// Another name, `replace`: in place of what has it.
    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), ClientError>;
    /// Changes attributes.
    fn set(&self, path: &[u8], set: SetAttributes) -> Result<(), ClientError>;
    /// A symbolic link that says `target`.
    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), ClientError>;
    /// The bytes of a file.
    fn reader(&self, path: &[u8]) -> Result<Box<dyn Read>, ClientError>;
    /// A file anew.
    fn writer(&self, path: &[u8], options: &CreateOptions) -> Result<Box<dyn Sink>, ClientError>;
    /// A small file as a whole.
    fn put_small(&self, path: &[u8], bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError>;
    /// What is wrong with the copies of a file: [`Client::scrub`].
    fn scrub(
        &self,
        path: &[u8],
        repairs: bool,
        drives: &mut ScrubDrives,
        watch: &mut dyn FnMut(u64),
    ) -> Result<FileScrub, ClientError>;
}

impl Sink for FileWriter {
    fn finish(self: Box<Self>) -> Result<(), ClientError> {
        FileWriter::finish(*self)
    }
}

impl Files for Client {
    fn class_names(&self) -> Vec<String> {
        self.classes().iter().map(ToString::to_string).collect()
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Inode, ClientError> {
        let found = if follow { Client::stat(self, path) } else { self.stat_link(path) };
        found.map(|found| found.inode)
    }

    fn list(&self, path: &[u8]) -> Result<Entries, ClientError> {
        let entries = Client::list(self, path)?;
        Ok(Box::new(entries.map(|entry| {
            entry.map(|entry| Entry {
                name: entry.name.as_bytes().to_vec(),
                kind: entry.record.kind,
                inode: entry.inode.map(|inode| *inode),
            })
        })))
    }

    fn make_folder(&self, path: &[u8], parents: bool, mode: u32) -> Result<(), ClientError> {
        self.make_directory(path, parents, mode)
    }

    fn remove(&self, path: &[u8], recursive: bool) -> Result<(), ClientError> {
        Client::remove(self, path, recursive)
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), ClientError> {
        Client::rename(self, from, to, replace)
    }

    fn set(&self, path: &[u8], set: SetAttributes) -> Result<(), ClientError> {
        self.set_attributes(path, set)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), ClientError> {
        Client::symlink(self, target, path)
    }

    fn reader(&self, path: &[u8]) -> Result<Box<dyn Read>, ClientError> {
        Ok(Box::new(Client::reader(self, path)?))
    }

    fn writer(&self, path: &[u8], options: &CreateOptions) -> Result<Box<dyn Sink>, ClientError> {
        Ok(Box::new(Client::writer(self, path, options)?))
    }

    fn put_small(&self, path: &[u8], bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        Client::put_small(self, path, bytes, options)
    }

    fn scrub(
        &self,
        path: &[u8],
        repairs: bool,
        drives: &mut ScrubDrives,
        watch: &mut dyn FnMut(u64),
    ) -> Result<FileScrub, ClientError> {
        Client::scrub(self, path, repairs, drives, watch)
    }
}
