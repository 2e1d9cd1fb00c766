//! Files that are open: one file of the store for each inode, however often this mount has it open.
//!
//! ```text
//!   openings by the kernel ─► OpenFile ─► State ─► weir_store_node::client::File   read, or written while any opening writes
//! ```
//! Requests hold the state for reading while they use the file; opening, closing and a new session hold it for writing.

use crate::attributes::nanos;
use crate::errors::Failed;
use crate::link::{Connected, StoreLink};
use fuser::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime};
use weir_store::{Inode, InodeId, InodePath, SetAttributes, StoreError, UnixNanos};
use weir_store_node::client::{ClientError, ClientErrorKind, File, OpenedInode};

/// Between two attempts to open a file that is being recovered.
const RECOVERS: Duration = Duration::from_millis(50);

/// A file that is open in this mount.
#[derive(Debug)]
pub struct OpenFile {
    at: InodePath,
    path: Vec<u8>,
    state: RwLock<State>,
    /// How often something was written or cut, and of how many of these changes a flush has published the outcome.
    changes: AtomicU64,
    published: AtomicU64,
    /// Another client has changed it since it was opened to be read.
    is_stale: AtomicBool,
    /// When its bytes were changed last, where this mount has done it: the store's own time would be that of the flush.
    modified: Mutex<Option<UnixNanos>>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<StoreFile>,
    /// Openings that do not write, and those that do.
    readers: u32,
    writers: u32,
    /// What was written and not flushed is lost: why. Nothing more is done until all openings are closed.
    lost: Option<String>,
}

/// The store's file.
#[derive(Debug)]
struct StoreFile {
    file: File,
    writes: bool,
    session: u64,
    /// Of the inode, when it was opened.
    version: u64,
}

impl StoreFile {
    fn new(opened: OpenedInode, writes: bool, session: u64) -> Self {
        Self { file: opened.file, writes, session, version: opened.inode.version }
    }
}

/// All of them.
#[derive(Debug)]
pub struct OpenFiles {
    link: Arc<StoreLink>,
    open: Mutex<HashMap<InodeId, Users>>,
    /// The versions of inodes of which the kernel may have pages.
    cached: Mutex<HashMap<InodeId, u64>>,
}

#[derive(Debug)]
struct Users {
    file: Arc<OpenFile>,
    count: u32,
}

/// An opening: which inode, and how.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Where it was seen last.
    pub at: InodePath,
    /// For the log.
    pub path: Vec<u8>,
    /// To be written as well.
    pub writes: bool,
}

impl OpenFiles {
    /// None.
    pub fn new(link: Arc<StoreLink>) -> Self {
        Self { link, open: Mutex::default(), cached: Mutex::default() }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<InodeId, Users>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an opening of an inode.
    fn enter(&self, opening: &Opening) -> Arc<OpenFile> {
        let mut users = self.users();
        let new = || Users { file: Arc::new(OpenFile::new(opening)), count: 0 };
        let users = users.entry(opening.at.inode).or_insert_with(new);
        users.count += 1;
        users.file.clone()
    }

    fn leave(&self, number: InodeId) {
        let mut users = self.users();
        if let Some(found) = users.get_mut(&number) {
            found.count -= 1;
            if found.count == 0 {
                users.remove(&number);
            }
        }
    }

    /// The file of an inode, if it is open.
    pub fn get(&self, number: InodeId) -> Option<Arc<OpenFile>> {
        self.users().get(&number).map(|users| users.file.clone())
    }

    /// Opens a file. Whether pages that the kernel has of it are as it is.
    ///
    /// # Errors
    /// Another client writes it, or the metadata service does not answer.
    pub fn open(&self, opening: &Opening) -> Result<bool, Failed> {
        let file = self.enter(opening);
        let opened = file.open(&self.link, opening.writes);
        match opened {
            Ok(version) => Ok(version.is_none_or(|version| self.note_version(opening.at.inode, version))),
            Err(failed) => {
                self.leave(opening.at.inode);
                Err(failed)
            }
        }
    }

    /// Takes note of the version that pages are of from now on; whether it was that before.
    fn note_version(&self, number: InodeId, version: u64) -> bool {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.insert(number, version) == Some(version)
    }

    /// A file that was just made, and is open to be written.
    pub fn made(&self, opening: &Opening, opened: OpenedInode, session: u64) {
        let file = self.enter(opening);
        let mut state = file.write_state();
        state.writers += 1;
        state.file = Some(StoreFile::new(opened, true, session));
    }

    /// An opening is closed.
    ///
    /// # Errors
    /// What was written cannot be published: it is lost.
    pub fn close(&self, number: InodeId, writes: bool) -> Result<(), Failed> {
        let Some(file) = self.get(number) else { return Ok(()) };
        let result = file.close(&self.link, writes);
        self.leave(number);
        result
    }

    /// The kernel has forgotten an inode.
    pub fn forget(&self, number: InodeId) {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Publishes what was written to all files: how many could not be.
    pub fn flush_all(&self) -> usize {
        let files: Vec<Arc<OpenFile>> = self.users().values().map(|users| users.file.clone()).collect();
        let failed = |file: &Arc<OpenFile>| match file.flush(&self.link) {
            Ok(()) => false,
            Err(failed) => {
                let reason = failed.reason.unwrap_or_default();
                tracing::warn!("{}: what was written is not published: {reason}", file.path_text());
                true
            }
        };
        files.iter().filter(|file| failed(file)).count()
    }
}

impl OpenFile {
    fn new(opening: &Opening) -> Self {
        Self {
            at: opening.at,
            path: opening.path.clone(),
            state: RwLock::default(),
            changes: AtomicU64::new(0),
            published: AtomicU64::new(0),
            is_stale: AtomicBool::new(false),
            modified: Mutex::default(),
        }
    }

    fn path_text(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn modified(&self) -> MutexGuard<'_, Option<UnixNanos>> {
        self.modified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an opening; the version of the inode where it was asked for.
    fn open(&self, link: &StoreLink, writes: bool) -> Result<Option<u64>, Failed> {
        let mut state = self.write_state();
        let mut version = None;
        let is_written = state.file.as_ref().is_some_and(|open| open.writes && link.is_current(open.session));
        if !is_written && state.lost.is_none() {
            self.renew(&mut state, link)?;
            let wants = writes || state.writers > 0;
            if !state.file.as_ref().is_some_and(|open| open.writes) {
                let (opened, session) = self.open_at_store(link, wants)?;
                version = Some(opened.inode.version);
                state.file = Some(StoreFile::new(opened, wants, session));
            }
        }
        match writes {
            true => state.writers += 1,
            false => state.readers += 1,
        }
        Ok(version)
    }

    /// Opens the file; one that is being recovered when that is over.
    fn open_at_store(&self, link: &StoreLink, writes: bool) -> Result<(OpenedInode, u64), Failed> {
        let until = Instant::now() + link.deadline();
        loop {
            let Connected { client, session } = link.connected()?;
            match client.open_inode(self.at, writes, &self.path) {
                Err(error) if is_passing(&error) && Instant::now() < until => std::thread::sleep(RECOVERS),
                opened => return link.noted(opened).map(|opened| (opened, session)),
            }
        }
    }

    /// Where the session of the file is over: it is opened in the next one, unless something of it is lost.
    fn renew(&self, state: &mut State, link: &StoreLink) -> Result<(), Failed> {
        let Some(old) = state.file.as_ref().filter(|open| !link.is_current(open.session)) else { return Ok(()) };
        let writes = old.writes;
        if self.is_dirty() {
            let why = "the session was over before what was written was published: it is lost";
            tracing::warn!("{}: {why}", self.path_text());
            state.lost = Some(why.into());
            return Ok(());
        }
        let (opened, session) = self.open_at_store(link, writes)?;
        state.file = Some(StoreFile::new(opened, writes, session));
        Ok(())
    }

    /// Does something with the file.
    fn with<T>(&self, link: &StoreLink, what: impl Fn(&File) -> Result<T, ClientError>) -> Result<T, Failed> {
        for _ in 0..2 {
            let state = self.read_state();
            if let Some(why) = &state.lost {
                return Err(Failed::because(Errno::EIO, format_args!("{}: {why}", self.path_text())));
            }
            let Some(open) = &state.file else { return Err(Failed::quiet(Errno::EBADF)) };
            match what(&open.file) {
                Err(error) if *error.kind() == ClientErrorKind::SessionOver => {}
                result => return result.map_err(Failed::from),
            }
            drop(state);
            self.renew(&mut self.write_state(), link)?;
        }
        Err(Failed::because(Errno::EIO, format_args!("{}: the session is over", self.path_text())))
    }

    /// Reads into the beginning of that memory; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read(&self, link: &StoreLink, offset: u64, bytes: &mut [u8]) -> Result<usize, Failed> {
        if self.is_stale.swap(false, Ordering::AcqRel) {
            self.open_anew(&mut self.write_state(), link)?;
        }
        let bytes = std::cell::RefCell::new(bytes);
        self.with(link, |file| file.read_at(offset, &mut bytes.borrow_mut()))
    }

    /// What is read is what another client has published meanwhile.
    fn open_anew(&self, state: &mut State, link: &StoreLink) -> Result<(), Failed> {
        if state.lost.is_none() && state.file.as_ref().is_some_and(|open| !open.writes) {
            match self.open_at_store(link, false) {
                Ok((opened, session)) => state.file = Some(StoreFile::new(opened, false, session)),
                // It was deleted meanwhile: what was opened is read.
                Err(failed) if failed.reason.is_none() => {}
                Err(failed) => return Err(failed),
            }
        }
        Ok(())
    }

    /// Writes at an offset, or where `appends` behind the end.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write(&self, link: &StoreLink, offset: u64, bytes: &[u8], appends: bool) -> Result<(), Failed> {
        self.change(link, |file| match appends && file.size() > offset {
            // Another client has appended since the kernel has asked for the size.
            true => file.append(bytes).map(drop),
            false => file.write_at(offset, bytes),
        })
    }

    /// Changes bytes. It is counted while the file is held and after it is done: what is counted is of this session, and a flush that began
    /// before does not publish it.
    fn change(&self, link: &StoreLink, what: impl Fn(&File) -> Result<(), ClientError>) -> Result<(), Failed> {
        self.with(link, |file| {
            let changed = what(file);
            if !changed.as_ref().is_err_and(|error| *error.kind() == ClientErrorKind::SessionOver) {
                *self.modified() = Some(nanos(SystemTime::now()));
                self.changes.fetch_add(1, Ordering::AcqRel);
            }
            changed
        })
    }

    /// Whether something was changed that no flush has published.
    fn is_dirty(&self) -> bool {
        self.changes.load(Ordering::Acquire) > self.published.load(Ordering::Acquire)
    }

    /// Cuts or lengthens.
    ///
    /// # Errors
    /// As [`File::truncate`].
    pub fn truncate(&self, link: &StoreLink, size: u64) -> Result<(), Failed> {
        match self.with(link, |file| Ok(file.size()))? == size {
            true => Ok(()),
            false => self.change(link, |file| file.truncate(size)),
        }
    }

    /// Publishes what was written, with its time.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn flush(&self, link: &StoreLink) -> Result<(), Failed> {
        if !self.is_dirty() {
            return match &self.read_state().lost {
                Some(why) => Err(Failed::because(Errno::EIO, format_args!("{}: {why}", self.path_text()))),
                None => Ok(()),
            };
        }
        let (changes, time) = (self.changes.load(Ordering::Acquire), *self.modified());
        self.with(link, File::flush)?;
        self.published.fetch_max(changes, Ordering::AcqRel);
        self.set_modified(link, time)
    }

    fn set_modified(&self, link: &StoreLink, time: Option<UnixNanos>) -> Result<(), Failed> {
        if time.is_some() {
            let set = SetAttributes { modified: time, ..SetAttributes::default() };
            link.ask(|client| client.set_inode_attributes(self.at, set))?;
        }
        Ok(())
    }

    /// Gives it a time of the last change of bytes, which it keeps when it is closed.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn touch(&self, link: &StoreLink, time: UnixNanos) -> Result<(), Failed> {
        let is_written = self.read_state().file.as_ref().is_some_and(|open| open.writes);
        if is_written {
            *self.modified() = Some(time);
        }
        if is_written && self.is_dirty() {
            return self.flush(link);
        }
        self.set_modified(link, Some(time))
    }

    /// What this mount knows better than the metadata service.
    pub fn overlay(&self, inode: &mut Inode) {
        let state = self.read_state();
        match &state.file {
            Some(StoreFile { file, writes: true, .. }) => {
                inode.size = file.size();
                inode.modified = self.modified().unwrap_or(inode.modified);
                inode.changed = inode.changed.max(inode.modified.min(nanos(SystemTime::now())));
            }
            Some(StoreFile { version, .. }) if *version != inode.version => {
                self.is_stale.store(true, Ordering::Release)
            }
            _ => {}
        }
    }

    /// An opening is closed. The file is closed at the store when no opening writes, and opened to be read where others read.
    fn close(&self, link: &StoreLink, writes: bool) -> Result<(), Failed> {
        let mut flushed = if writes { self.flush(link) } else { Ok(()) };
        let mut state = self.write_state();
        let count = if writes { &mut state.writers } else { &mut state.readers };
        *count = count.saturating_sub(1);
        if state.writers == 0 && state.file.as_ref().is_some_and(|open| open.writes) {
            let reader = match state.readers {
                0 => None,
                _ => match self.open_at_store(link, false) {
                    Ok((opened, session)) => Some(StoreFile::new(opened, false, session)),
                    // It stays open as it is.
                    Err(_) => return flushed,
                },
            };
            if let Some(old) = std::mem::replace(&mut state.file, reader) {
                let closed = old.file.close().map_err(Failed::from);
                flushed = flushed.and(closed).and_then(|()| self.keep_modified(link));
                *self.modified() = None;
            }
        }
        if state.readers == 0 && state.writers == 0 {
            state.file = None;
        }
        flushed
    }

    /// Closing may have cut the last block, which is a change for the store: its time is put right.
    fn keep_modified(&self, link: &StoreLink) -> Result<(), Failed> {
        let Some(time) = *self.modified() else { return Ok(()) };
        match link.ask(|client| client.stat_inode(self.at)) {
            Ok(stat) if stat.inode.modified != time => self.set_modified(link, Some(time)),
            // Without a name and closed it is gone.
            Ok(_) => Ok(()),
            Err(failed) if failed.reason.is_none() => Ok(()),
            Err(failed) => Err(failed),
        }
    }
}

/// Whether the file can be opened before long: it is being recovered, or the service has just begun.
fn is_passing(error: &ClientError) -> bool {
    matches!(error.store_error(), Some(StoreError::Recovering | StoreError::Unavailable))
}
