//! Names and inodes.

use super::error::{ClientError, ClientErrorKind};
use super::file::File;
use super::options::{CreateOptions, OpenOptions};
use super::{Client, FileReader, FileWriter};
use weir_store::{Inode, InodePath, ListEntry, SetAttributes};

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
    _client: Client,
}

impl Iterator for Listing {
    type Item = Result<ListEntry, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

fn not_built() -> ClientError {
    ClientError::new(ClientErrorKind::Unreachable("the client is not built yet".into()))
}

/// All paths may be `str`, `String`, `[u8]` or `Vec<u8>`.
impl Client {
    /// What a path leads to; symbolic links are followed.
    ///
    /// # Errors
    /// Nothing is there, or the metadata service does not answer.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat, ClientError> {
        Err(not_built().at(path))
    }

    /// The same, of a symbolic link itself if the path ends in one.
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn stat_link(&self, path: impl AsRef<[u8]>) -> Result<Stat, ClientError> {
        Err(not_built().at(path))
    }

    /// The names of a directory, multifile or table.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or it is a file.
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Listing, ClientError> {
        Err(not_built().at(path))
    }

    /// Makes a directory; with `parents` also those on the way to it, and it is no error that it is there.
    ///
    /// # Errors
    /// It is there, or what it is to be in is not.
    pub fn make_directory(&self, path: impl AsRef<[u8]>, parents: bool, mode: u32) -> Result<(), ClientError> {
        let _ = (parents, mode);
        Err(not_built().at(path))
    }

    /// Deletes a name; with `recursive` a directory with all that is in it.
    ///
    /// # Errors
    /// Nothing is there, or it is a directory that is not empty.
    pub fn remove(&self, path: impl AsRef<[u8]>, recursive: bool) -> Result<(), ClientError> {
        let _ = recursive;
        Err(not_built().at(path))
    }

    /// Gives what is at `from` another name; with `replace` it takes the place of another file, or of an empty directory.
    ///
    /// # Errors
    /// Nothing is at `from`, something is at `to`, or `to` lies within `from`.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, replace: bool) -> Result<(), ClientError> {
        let _ = (to, replace);
        Err(not_built().at(from))
    }

    /// Changes attributes; of a file's size see [`File::truncate`].
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn set_attributes(&self, path: impl AsRef<[u8]>, set: SetAttributes) -> Result<(), ClientError> {
        let _ = set;
        Err(not_built().at(path))
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    ///
    /// # Errors
    /// Something is at `path`, or `target` is longer than 4,095 bytes.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), ClientError> {
        let _ = target;
        Err(not_built().at(path))
    }

    /// Where a symbolic link leads to.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, ClientError> {
        Err(not_built().at(path))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As [`stat`](Self::stat), or there is no such attribute.
    pub fn extended(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Vec<u8>, ClientError> {
        let _ = name;
        Err(not_built().at(path))
    }

    /// Sets an extended attribute, or with `None` deletes it.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); there is no such attribute, or the inode has no room for it.
    pub fn set_extended(&self, path: impl AsRef<[u8]>, name: &str, value: Option<Vec<u8>>) -> Result<(), ClientError> {
        let _ = (name, value);
        Err(not_built().at(path))
    }

    /// Makes a file, opened to be read and written. With another kind than a file see [`make`](Self::make).
    ///
    /// # Errors
    /// It is there and `exclusive` was wanted; another client writes it; what it is to be in is not there.
    pub fn create(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<File, ClientError> {
        let _ = options;
        Err(not_built().at(path))
    }

    /// Makes an inode of any kind but a symbolic link, and opens nothing.
    ///
    /// # Errors
    /// It is there, or what it is to be in is not.
    pub fn make(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<(), ClientError> {
        let _ = options;
        Err(not_built().at(path))
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// It is not there, or is no file; another client writes it and it was to be written.
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File, ClientError> {
        let _ = options;
        Err(not_built().at(path))
    }

    /// A buffered stream of a file's bytes, or of all files of a multifile, one after the other in the order of their names.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reader(&self, path: impl AsRef<[u8]>) -> Result<FileReader, ClientError> {
        Err(not_built().at(path))
    }

    /// Makes a file, or cuts it to nothing, and writes it as a buffered stream.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn writer(&self, path: impl AsRef<[u8]>, options: &CreateOptions) -> Result<FileWriter, ClientError> {
        let _ = options;
        Err(not_built().at(path))
    }

    /// Makes or replaces a file as a whole, or the value of a table. What fits into an inode takes one change.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn put_small(&self, path: impl AsRef<[u8]>, bytes: &[u8], options: &CreateOptions) -> Result<(), ClientError> {
        let _ = (bytes, options);
        Err(not_built().at(path))
    }

    /// All bytes of a file. What lies in the inode takes one question.
    ///
    /// # Errors
    /// As [`open`](Self::open), or it has more than `most` bytes.
    pub fn get_small(&self, path: impl AsRef<[u8]>, most: usize) -> Result<Vec<u8>, ClientError> {
        let _ = most;
        Err(not_built().at(path))
    }
}
