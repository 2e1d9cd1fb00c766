//! Open files by their handle, by session and by file.
//!
//! Every opening has a handle of its own, also the second of one file for writing by the same session: the file is the session's to write until the last
//! of these is closed. An opening that is sent again, because its answer was lost with the connection, has the number of the first
//! request and gets the handle of the first.

use super::state::Handle;
use crate::id::{InodeId, SessionId};
use crate::protocol::RequestNumber;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Handles {
    handles: BTreeMap<u64, Handle>,
    by_session: BTreeSet<(SessionId, u64)>,
    /// Handles of each session.
    counts: BTreeMap<SessionId, usize>,
    /// Handles for writing of each session and file.
    writers: BTreeMap<(SessionId, InodeId), usize>,
    /// The handle that a request has got.
    by_request: BTreeMap<(SessionId, RequestNumber), u64>,
    /// How often each file is open: handles, and what the service itself keeps open.
    opened: BTreeMap<InodeId, usize>,
    pub last: u32,
}

impl Handles {
    pub fn get(&self, number: u64) -> Option<&Handle> {
        self.handles.get(&number)
    }

    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Handles of a session.
    pub fn count(&self, session: SessionId) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    /// Handles of a session by which it writes a file.
    pub fn writers(&self, session: SessionId, file: InodeId) -> usize {
        self.writers.get(&(session, file)).copied().unwrap_or(0)
    }

    /// Whether a file is open.
    pub fn is_open(&self, file: InodeId) -> bool {
        self.opened.contains_key(&file)
    }

    /// The numbers of a session's handles.
    pub fn of(&self, session: SessionId) -> Vec<u64> {
        self.by_session.range((session, 0)..=(session, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// The handle that this very request has got before.
    pub fn of_request(&self, wanted: &Handle) -> Option<u64> {
        let number = *self.by_request.get(&(wanted.session, wanted.request))?;
        let found = self.handles.get(&number)?;
        (found.at.inode == wanted.at.inode && found.writes == wanted.writes).then_some(number)
    }

    /// Adds a handle; its number, which no open file has. Numbers of another process are other ones.
    pub fn add(&mut self, process: u64, handle: Handle) -> u64 {
        let number = loop {
            self.last = self.last.wrapping_add(1);
            let number = (process << 32) | u64::from(self.last);
            if !self.handles.contains_key(&number) {
                break number;
            }
        };
        let (session, file) = (handle.session, handle.at.inode);
        self.keep_open(file);
        *self.counts.entry(session).or_default() += 1;
        if handle.writes {
            *self.writers.entry((session, file)).or_default() += 1;
        }
        self.by_session.insert((session, number));
        self.by_request.insert((session, handle.request), number);
        self.handles.insert(number, handle);
        number
    }

    /// Takes a handle out; with it whether its file is not open any more.
    pub fn remove(&mut self, number: u64) -> Option<(Handle, bool)> {
        let handle = self.handles.remove(&number)?;
        let (session, file) = (handle.session, handle.at.inode);
        self.by_session.remove(&(session, number));
        if self.by_request.get(&(session, handle.request)) == Some(&number) {
            self.by_request.remove(&(session, handle.request));
        }
        discount(&mut self.counts, session);
        if handle.writes {
            discount(&mut self.writers, (session, file));
        }
        let is_last = self.let_go(file);
        Some((handle, is_last))
    }

    /// A file counts as open once more; whether it did before.
    pub fn keep_open(&mut self, file: InodeId) -> bool {
        let count = self.opened.entry(file).or_default();
        *count += 1;
        *count > 1
    }

    /// A file is open once less; whether it is not open any more.
    pub fn let_go(&mut self, file: InodeId) -> bool {
        discount(&mut self.opened, file)
    }

    /// What holds at all times; `kept` are files that the service itself keeps open.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self, kept: impl Iterator<Item = InodeId>) -> Result<(), &'static str> {
        let is = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let (mut opened, mut counts, mut writers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        kept.for_each(|file| *opened.entry(file).or_default() += 1);
        for (number, handle) in &self.handles {
            *opened.entry(handle.at.inode).or_default() += 1;
            *counts.entry(handle.session).or_default() += 1;
            if handle.writes {
                *writers.entry((handle.session, handle.at.inode)).or_default() += 1;
            }
            is(self.by_session.contains(&(handle.session, *number)), "a handle is its session's")?;
        }
        is(opened == self.opened, "open files are counted")?;
        is(counts == self.counts && self.by_session.len() == self.handles.len(), "handles of sessions are counted")?;
        is(writers == self.writers, "handles for writing are counted")?;
        let is_there = |number: &u64| self.handles.contains_key(number);
        is(self.by_request.values().all(is_there), "a request's handle is open")
    }
}

/// One less; whether none is left.
fn discount<K: Ord + Copy>(counts: &mut BTreeMap<K, usize>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else { return true };
    *count = count.saturating_sub(1);
    let is_none = *count == 0;
    if is_none {
        counts.remove(&key);
    }
    is_none
}
