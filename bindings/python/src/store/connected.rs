//! A client of a store: names, whole files, and files that are opened.

use super::copy::copy;
use super::entry::StoreEntry;
use super::error::store_error;
use super::file::StoreFile;
use super::memory::{Lent, filled};
use super::options::StoreOptions;
use super::process::OfProcess;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_store::{Content, Inode, InodeKind, SetAttributes, UnixNanos};
use weir_store_node::client::{Client, ClientError, ClientOptions, File, OpenOptions, Stat};

/// A client of a store. Where its session is over, as after a sleep of the machine, the next call begins another one.
#[pyclass(frozen, name = "Store", module = "weir._native")]
pub struct StoreClient {
    address: String,
    options: ClientOptions,
    client: OfProcess<Mutex<Client>>,
}

/// The last name of a path.
fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

impl StoreClient {
    /// The client, anew where its session is over.
    fn renewed(&self, client: &Mutex<Client>) -> Result<Client, ClientError> {
        let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.is_over() {
            *client = Client::connect(&self.address, self.options.clone())?;
        }
        Ok(client.clone())
    }

    /// Does something with the client, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let client = self.client.get()?;
        py.detach(|| what(&self.renewed(client)?)).map_err(|e| store_error(&e))
    }

    fn entry(client: &Client, path: &[u8], found: Stat) -> StoreEntry {
        StoreEntry::new(name_of(path), found.at.inode, found.inode, &client.classes())
    }
}

/// A file's bytes: those that lie in its inode, or the file that is to be read.
enum Bytes {
    Inline(Vec<u8>),
    File(File),
}

#[pymethods]
impl StoreClient {
    /// Connects to a metadata service, `HOST:PORT` or `unix:PATH`. Every call ends within `deadline` seconds.
    #[new]
    #[pyo3(signature = (address, *, deadline, location))]
    fn new(py: Python<'_>, address: String, deadline: f64, location: String) -> PyResult<Self> {
        let deadline = Duration::try_from_secs_f64(deadline).ok().filter(|time| !time.is_zero());
        let wrong = || PyValueError::new_err("deadline: write the seconds that a call may take, more than 0");
        let options = ClientOptions { deadline: deadline.ok_or_else(wrong)?, location, ..ClientOptions::default() };
        let client = py.detach(|| Client::connect(&address, options.clone())).map_err(|e| store_error(&e))?;
        Ok(StoreClient { address, options, client: OfProcess::new(Mutex::new(client)) })
    }

    /// The address of its metadata service.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Names of the store's classes, best first.
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |client| Ok(client.classes().iter().map(ToString::to_string).collect()))
    }

    /// What a path leads to; `follow`: through a symbolic link at its end as well.
    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<StoreEntry> {
        self.with(py, |client| {
            let found = if follow { client.stat(path) } else { client.stat_link(path) };
            Ok(Self::entry(client, path, found?))
        })
    }

    /// The names of a directory, in order.
    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<StoreEntry>> {
        self.with(py, |client| {
            let classes = client.classes();
            let entry = |entry: weir_store::ListEntry| {
                let kind = entry.record.kind;
                let inode = entry.inode.map_or_else(|| Inode { kind, ..Inode::default() }, |inode| *inode);
                StoreEntry::new(entry.name.as_bytes(), entry.record.inode, inode, &classes)
            };
            client.list(path)?.map(|found| found.map(entry)).collect()
        })
    }

    /// Makes a directory; `parents`: also those on the way, and it is no error that it is there.
    fn make_directory(&self, py: Python<'_>, path: &[u8], parents: bool, mode: u32) -> PyResult<()> {
        self.with(py, |client| client.make_directory(path, parents, mode))
    }

    /// Deletes a name; `recursive`: with all that is below it.
    fn remove(&self, py: Python<'_>, path: &[u8], recursive: bool) -> PyResult<()> {
        self.with(py, |client| client.remove(path, recursive))
    }

    /// Gives what has a name another one; `replace`: in the place of a file, or of an empty directory.
    fn rename(&self, py: Python<'_>, source: &[u8], to: &[u8], replace: bool) -> PyResult<()> {
        self.with(py, |client| client.rename(source, to, replace))
    }

    /// Makes a symbolic link at `path`.
    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.with(py, |client| client.symlink(target, path))
    }

    /// Changes permissions, or the time of the last change in nanoseconds since 1970.
    #[pyo3(signature = (path, *, mode=None, modified_ns=None))]
    fn set_attributes(&self, py: Python<'_>, path: &[u8], mode: Option<u32>, modified_ns: Option<u64>) -> PyResult<()> {
        let set = SetAttributes { mode, modified: modified_ns.map(UnixNanos), ..SetAttributes::default() };
        self.with(py, |client| client.set_attributes(path, set))
    }

    /// Sets an extended attribute, or with `None` deletes it.
    fn set_extended(&self, py: Python<'_>, path: &[u8], name: &str, value: Option<Vec<u8>>) -> PyResult<()> {
        self.with(py, |client| client.set_extended(path, name, value))
    }

    /// Opens a file that is there; `write`: also to be written.
    fn open(&self, py: Python<'_>, path: &[u8], write: bool) -> PyResult<StoreFile> {
        let options = OpenOptions { write, ..OpenOptions::default() };
        self.with(py, |client| client.open(path, options).map(StoreFile::new))
    }

    /// Makes a file, or cuts it to nothing, and opens it to be written; `exclusive`: it is an error that it is there.
    fn create(&self, py: Python<'_>, path: &[u8], options: &StoreOptions, exclusive: bool) -> PyResult<StoreFile> {
        let options = options.create(exclusive);
        self.with(py, |client| client.create(path, &options).map(StoreFile::new))
    }

    /// Makes or replaces a file as a whole.
    fn put(
        &self,
        py: Python<'_>,
        path: &[u8],
        data: &Bound<'_, PyAny>,
        options: &StoreOptions,
        exclusive: bool,
    ) -> PyResult<()> {
        let (lent, options) = (Lent::of(data)?, options.create(exclusive));
        let bytes = lent.bytes();
        self.with(py, |client| client.put_small(path, bytes, &options))
    }

    /// Bytes of a file from `start` on, at the most `length`. Small files take one question.
    fn get<'py>(&self, py: Python<'py>, path: &[u8], start: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.with(py, |client| {
            let found = client.stat(path)?;
            match (found.inode.kind, found.inode.content) {
                (InodeKind::File, Content::Inline(mut bytes)) => {
                    bytes.resize(usize::try_from(found.inode.size).unwrap_or(bytes.len()), 0);
                    Ok(Bytes::Inline(bytes))
                }
                (InodeKind::File, _) => client.open_inode(found.at, false, path).map(|opened| Bytes::File(opened.file)),
                // It says why not.
                _ => client.open(path, OpenOptions::default()).map(Bytes::File),
            }
        })?;
        match found {
            Bytes::File(file) => {
                let there = file.size().saturating_sub(start).min(length);
                filled(py, there, |into| py.detach(|| file.read_at(start, into)).map_err(|e| store_error(&e)))
            }
            Bytes::Inline(bytes) => {
                let at = |offset: u64| usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
                Ok(PyBytes::new(py, &bytes[at(start)..at(start.saturating_add(length))]))
            }
        }
    }

    /// Copies a file's bytes to the beginning of a file that is open; how many.
    fn copy(&self, py: Python<'_>, source: &[u8], to: &StoreFile) -> PyResult<u64> {
        let from = self.with(py, |client| client.reader(source))?;
        to.with(py, |file| copy(from, file))
    }
}
