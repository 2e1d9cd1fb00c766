//! The operations of open files: begun, in turn, and over.

use super::super::connection::boot_time;
use super::super::error::ClientError;
use super::super::memory::CallerMemory;
use super::super::open_file::{FileContent, FileWork, OpenFile, QueuedWork};
use super::super::requests::{Purpose, Unanswered};
use super::{AHEAD, Engine, Operation, Outcome};
use weir_store::file::{FileEvent, FileIo, FileOpId, FileSetup, SectorSize};
use weir_store::protocol::Request;
use weir_store::records::MapChunk;
use weir_store::{Inode, InodePath, NameChange, StoreError};
use weir_sys::crc::crc32c_append;
use weir_units::Nanos;

impl Engine {
    /// A file that was opened.
    pub(in crate::client) fn add_file(&mut self, handle: u64, at: InodePath, inode: &Inode, writes: bool) -> u64 {
        let id = self.next();
        let content = match OpenFile::inline_of(inode, self.welcome.inline_max) {
            Some(inline) => FileContent::Inline(inline),
            None => FileContent::Mapped(Box::new(self.machine(at, inode.block, inode.size))),
        };
        let file = OpenFile {
            handle: Some(handle),
            at,
            writes,
            block: inode.block.max(1),
            content,
            queue: Default::default(),
            is_held: false,
            fresh: Default::default(),
            is_making_room: false,
            moving: None,
            is_closed: false,
        };
        self.files.insert(id, file);
        id
    }

    pub(super) fn machine(&self, at: InodePath, block: u32, size: u64) -> FileIo {
        let sectors = self.namespaces.iter().filter_map(|(id, info)| Some((*id, SectorSize::new(info.sector)?)));
        FileIo::new(FileSetup {
            inode: at.inode,
            block,
            size,
            sectors: sectors.collect(),
            crc: crc32c_append,
            lease: self.holder.until(),
        })
    }

    pub(in crate::client) fn file(&self, id: u64) -> Option<&OpenFile> {
        self.files.get(&id)
    }

    /// Nobody has the file any more: it is closed at the service as well.
    pub(in crate::client) fn forget_file(&mut self, id: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.is_closed = true;
        if file.pending() > 0 || !file.queue.is_empty() {
            // When its last operation is over.
            return;
        }
        let handle = file.handle.unwrap_or_default();
        let close = Unanswered::new(Request::Close { handle }, Purpose::Nothing, None, Nanos::NEVER);
        let _ = self.requests.send(close);
        self.files.remove(&id);
        self.memory.forget_file(id);
    }

    /// The file was closed at the service.
    pub(in crate::client) fn drop_file(&mut self, id: u64) {
        self.files.remove(&id);
        self.memory.forget_file(id);
    }

    /// Nothing of the file begins from now on; `false` while something is under way.
    pub(in crate::client) fn hold_file(&mut self, id: u64) -> bool {
        let Some(file) = self.files.get_mut(&id) else { return true };
        file.is_held = true;
        file.pending() == 0 && file.moving.is_none()
    }

    /// The file was given that size by a commit.
    pub(in crate::client) fn resize_file(&mut self, id: u64, size: Option<u64>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.is_held = false;
        let (at, block) = (file.at, file.block);
        if let (FileContent::Mapped(_), Some(size)) = (&file.content, size) {
            let machine = self.machine(at, block, size);
            if let Some(file) = self.files.get_mut(&id) {
                file.content = FileContent::Mapped(Box::new(machine));
            }
        }
        self.go_on(id);
    }

    /// Changes the size of bytes that lie in the inode. `false` if they do not, or would not any more.
    pub(in crate::client) fn resize_inline(&mut self, id: u64, size: u64) -> bool {
        let most = u64::from(self.welcome.inline_max);
        match self.files.get_mut(&id).map(|file| &mut file.content) {
            Some(FileContent::Inline(inline)) if size <= most => {
                inline.is_dirty |= inline.bytes.len() as u64 != size;
                inline.bytes.resize(size as usize, 0);
                true
            }
            _ => false,
        }
    }

    /// Whether bytes that lie in the inode are on their way to the service, or into a block.
    pub(in crate::client) fn is_moving(&self, id: u64) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        file.moving.is_some() || matches!(&file.content, FileContent::Inline(inline) if inline.is_flushing)
    }

    /// Makes the file one whose bytes are in blocks. The write of those that it has, if there are any: nothing else of the file begins
    /// before that is over, and if it fails the file is as it was.
    pub(in crate::client) fn make_mapped(&mut self, id: u64, deadline: Nanos) -> Option<u64> {
        let file = self.files.get_mut(&id)?;
        if file.moving.is_some() {
            return None;
        }
        let (at, block) = (file.at, file.block);
        let FileContent::Inline(inline) = &mut file.content else { return None };
        let inline = std::mem::take(inline);
        let bytes = inline.bytes.clone();
        let mut machine = self.machine(at, block, bytes.len() as u64);
        // Nothing of it is in blocks yet.
        let _ = machine.map().put(0, MapChunk::default(), self.welcome.epoch);
        if let Some(file) = self.files.get_mut(&id) {
            file.content = FileContent::Mapped(Box::new(machine));
        }
        if bytes.is_empty() {
            return None;
        }
        let (work, len) = (self.next(), bytes.len() as u32);
        self.moving.insert(work, id);
        if let Some(file) = self.files.get_mut(&id) {
            file.moving = Some((work, inline));
        }
        self.begin(id, work, FileWork::Write(0, len), Some(CallerMemory::Owned(bytes)), deadline);
        Some(work)
    }

    /// The bytes that lay in the inode are in a block, or lie there still, and what needed the block fails.
    fn moved(&mut self, id: u64, error: Option<ClientError>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some((_, inline)) = file.moving.take() else { return };
        if let Some(error) = error {
            file.content = FileContent::Inline(inline);
            file.fresh.clear();
            let most = u64::from(self.welcome.inline_max);
            let first = file.queue.front().map(|queued| (queued.work, queued.what));
            if let Some((work, FileWork::Write(offset, len))) = first {
                if offset.saturating_add(len.into()) > most {
                    file.queue.pop_front();
                    self.end_operation(work, Err(error));
                }
            }
        }
        self.go_on(id);
    }

    /// Puts work at the head of the queue, but behind the write that moves the file's bytes.
    fn wait_first(&mut self, id: u64, queued: QueuedWork) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let mover = file.moving.as_ref().map(|(work, _)| *work);
        let is_behind = mover.is_some_and(|work| file.queue.front().is_some_and(|first| first.work == work));
        file.queue.insert(usize::from(is_behind), queued);
    }

    /// Begins an operation of a file. Its outcome comes under that number.
    pub(in crate::client) fn begin(
        &mut self,
        file: u64,
        work: u64,
        what: FileWork,
        memory: Option<CallerMemory>,
        deadline: Nanos,
    ) {
        if let Some(memory) = memory {
            self.memory.callers.insert(work, memory);
        }
        self.operations.insert(work, Operation { what, deadline, tries: 0 });
        let queued = QueuedWork { work, what, deadline };
        let waits = self.files.get(&file).is_some_and(|file| file.is_held || !file.queue.is_empty());
        if waits && !self.moving.contains_key(&work) {
            if let Some(file) = self.files.get_mut(&file) {
                file.queue.push_back(queued);
            }
            return;
        }
        if !self.start(file, queued) {
            self.wait_first(file, queued);
        }
    }

    /// Starts work, unless it has to wait for room: `false`.
    pub(super) fn start(&mut self, id: u64, queued: QueuedWork) -> bool {
        let QueuedWork { work, what, deadline } = queued;
        if let Some(over) = self.over() {
            self.end_operation(work, Err(over));
            return true;
        }
        let Some(file) = self.files.get(&id) else {
            self.end_operation(work, Err(StoreError::NotOpen.into()));
            return true;
        };
        if file.moving.as_ref().is_some_and(|(mover, _)| *mover != work) {
            return false;
        }
        if !file.writes && matches!(what, FileWork::Write(..)) {
            self.end_operation(work, Err(StoreError::NotOpen.into()));
            return true;
        }
        if matches!(file.content, FileContent::Inline(_)) {
            if let Some(began) = self.start_inline(id, queued) {
                return began;
            }
        }
        if let FileWork::Write(offset, len) = what {
            if !self.has_room(id, offset, len) {
                return false;
            }
        }
        let event = match what {
            FileWork::Read(offset, len) => FileEvent::Read(FileOpId(work), offset, len, deadline),
            FileWork::Write(offset, len) => FileEvent::Write(FileOpId(work), offset, len, deadline),
            FileWork::Flush(cut) => FileEvent::Flush(FileOpId(work), cut, deadline),
        };
        self.apply(id, event);
        true
    }

    /// Starts work on bytes that lie in the inode: whether it has begun, or nothing if they do not any more.
    pub(super) fn start_inline(&mut self, id: u64, queued: QueuedWork) -> Option<bool> {
        let QueuedWork { work, what, deadline } = queued;
        let most = u64::from(self.welcome.inline_max);
        let file = self.files.get_mut(&id)?;
        let FileContent::Inline(inline) = &mut file.content else { return None };
        let memory = self.memory.callers.get_mut(&work);
        let len = match what {
            FileWork::Read(offset, len) => {
                let from = inline.bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
                let from = &from[..from.len().min(len as usize)];
                if let Some(to) = memory.and_then(|memory| memory.bytes_mut().get_mut(..from.len())) {
                    to.copy_from_slice(from);
                }
                from.len() as u32
            }
            FileWork::Write(_, 0) => 0,
            FileWork::Write(offset, len) if offset.saturating_add(len.into()) <= most => {
                let range = offset as usize..offset as usize + len as usize;
                if inline.bytes.len() < range.end {
                    inline.bytes.resize(range.end, 0);
                }
                if let Some(from) = memory.and_then(|memory| memory.bytes().get(..len as usize)) {
                    inline.bytes[range].copy_from_slice(from);
                }
                inline.is_dirty = true;
                len
            }
            // What is on its way to the service must not come there behind what follows.
            FileWork::Write(..) | FileWork::Flush(_) if inline.is_flushing => return Some(false),
            FileWork::Write(..) => {
                // Its own bytes come first.
                let mover = self.make_mapped(id, deadline)?;
                return match self.take(mover) {
                    Some(Outcome::Io(_, Err(error))) => {
                        self.end_operation(work, Err(error));
                        Some(true)
                    }
                    Some(_) => None,
                    None => {
                        self.abandon(mover);
                        Some(false)
                    }
                };
            }
            FileWork::Flush(_) if !inline.is_dirty => 0,
            FileWork::Flush(_) => {
                (inline.is_dirty, inline.is_flushing) = (false, true);
                let change = NameChange::WriteInline(file.at, inline.bytes.clone());
                let request = Request::Change { slot: 0, sequence: 0, change };
                let sent = Unanswered::new(request, Purpose::InlineFlush(id, work), None, deadline);
                if let Err(error) = self.requests.send(sent) {
                    self.inline_flushed(id, work, Err(error));
                }
                return Some(true);
            }
        };
        self.end_operation(work, Ok(len));
        Some(true)
    }

    /// The service has the bytes that lie in the inode, or not.
    pub(super) fn inline_flushed(&mut self, id: u64, work: u64, result: Result<u32, ClientError>) {
        if let Some(FileContent::Inline(inline)) = self.files.get_mut(&id).map(|file| &mut file.content) {
            inline.is_flushing = false;
            inline.is_dirty |= result.is_err();
        }
        self.end_operation(work, result);
        self.go_on(id);
    }

    /// Whether a session may have as many unpublished blocks as a write may need; else files are published first.
    pub(super) fn has_room(&mut self, id: u64, offset: u64, len: u32) -> bool {
        let ahead: u64 = self.files.values().map(|file| file.fresh.len() as u64 * u64::from(file.block)).sum();
        let Some(file) = self.files.get(&id) else { return true };
        let wanted = file.wants(offset, len) * u64::from(file.block);
        if ahead == 0 || ahead + wanted <= AHEAD {
            return true;
        }
        let full = self.files.iter().filter(|(_, file)| !file.fresh.is_empty());
        let full: Vec<u64> = full.map(|(id, _)| *id).collect();
        for id in full {
            self.make_room(id);
        }
        // A file may have been published at once.
        self.files.values().all(|file| file.fresh.is_empty())
    }

    /// Publishes a file's blocks.
    pub(super) fn make_room(&mut self, id: u64) {
        let deadline = boot_time().saturating_add(Nanos(self.options.deadline.as_nanos() as u64));
        let Some(file) = self.files.get_mut(&id).filter(|file| !file.is_making_room && file.moving.is_none()) else {
            return;
        };
        file.is_making_room = true;
        let work = self.next();
        self.internal.insert(work);
        self.operations.insert(work, Operation { what: FileWork::Flush(false), deadline, tries: 0 });
        self.apply(id, FileEvent::Flush(FileOpId(work), false, deadline));
    }

    /// Starts what waits, as far as it may.
    pub(super) fn go_on(&mut self, id: u64) {
        loop {
            let Some(file) = self.files.get_mut(&id) else { return };
            let mover = file.moving.as_ref().map(|(work, _)| *work);
            let may_begin = |first: &QueuedWork| mover.map_or(!file.is_held, |work| work == first.work);
            if !file.queue.front().is_some_and(may_begin) {
                return;
            }
            let Some(queued) = file.queue.pop_front() else { return };
            if !self.operations.contains_key(&queued.work) {
                continue;
            }
            if !self.start(id, queued) {
                return self.wait_first(id, queued);
            }
        }
    }

    pub(super) fn go_on_all(&mut self) {
        let waiting = self.files.iter().filter(|(_, file)| !file.queue.is_empty());
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.go_on(id));
    }

    pub(super) fn end_operation(&mut self, work: u64, result: Result<u32, ClientError>) {
        // It may have been late, and answered then.
        if self.operations.remove(&work).is_some() {
            let memory = self.memory.callers.remove(&work);
            let moved = self.moving.remove(&work).map(|file| (file, result.as_ref().err().cloned()));
            self.finish(work, Outcome::Io(memory, result));
            if let Some((file, error)) = moved {
                self.moved(file, error);
            }
        }
    }
}
