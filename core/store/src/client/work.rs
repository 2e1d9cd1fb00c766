//! The work of callers: begun, in turn, tried again, and over.

use super::event::{
    ClientFailure, ClientFault, ClientMemory, FileWork, MemoryId, OpenFileId, Outcome, WorkId, work_of,
};
use super::machine::{ClientMachine, Doing, Out, OwnOperation, Stage, Work};
use super::open_file::{FileContent, Goal, Handle, OpenFile, Sequence, Step};
use super::requests::{Purpose, Unanswered};
use crate::error::StoreError;
use crate::file::{FileError, FileEvent, FileIo, FileOpId, FileSetup, SectorSize};
use crate::inode::Inode;
use crate::mutant::Mutant;
use crate::protocol::Request;
use crate::space::GRANT_AHEAD;
use crate::tree::{InodePath, NameChange};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_units::Nanos;

/// How often a read is tried again that has met a block which is being written over.
const TRIES: u32 = 200;
/// Between those.
const UNSETTLED_PAUSE: Nanos = Nanos::from_millis(5);
/// How often a read is tried again that has found no right bytes where an older map has them.
const TRIES_ELSEWHERE: u32 = 2;
/// Between those: time for the newer map to come.
const OTHER_PAUSE: Nanos = Nanos::from_millis(1);

/// What a flush that makes room publishes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushedPart {
    /// All of it: writes wait for it.
    All,
    /// New blocks that are written to their end: writes go on.
    Beginning,
}

impl ClientMachine {
    pub(super) fn ask<M: ClientMemory>(
        &mut self,
        work: WorkId,
        request: Request,
        deadline: Nanos,
        out: &mut Out<'_, M>,
    ) {
        if let Some(over) = self.over.clone() {
            return self.finish(work, Outcome::Answer(Err(over)), out);
        }
        self.works.insert(work, Work { doing: Doing::Ask, stage: Stage::Away, deadline, tries: 0 });
        self.requests.send(Unanswered::new(request, Purpose::Ask(work), None), out.effects);
    }

    pub(super) fn open<M: ClientMemory>(
        &mut self,
        work: WorkId,
        request: Request,
        deadline: Nanos,
        out: &mut Out<'_, M>,
    ) {
        if let Some(over) = self.over.clone() {
            return self.finish(work, Outcome::Opened(Err(over)), out);
        }
        let which = match &request {
            Request::Open { at, .. } => Some(*at),
            _ => None,
        };
        self.works.insert(work, Work { doing: Doing::Open(which), stage: Stage::Away, deadline, tries: 0 });
        self.requests.send(Unanswered::new(request, Purpose::Open(work), None), out.effects);
    }

    /// A file that was opened.
    pub(super) fn add_file(&mut self, handle: u64, at: InodePath, inode: &Inode, writes: bool) -> OpenFileId {
        let (id, memory) = (OpenFileId(self.next()), MemoryId(self.next()));
        let content = match OpenFile::inline_of(inode) {
            Some(inline) => FileContent::Inline(inline),
            None => FileContent::Mapped(Box::new(self.machine(at, inode.block, inode.size))),
        };
        let file = OpenFile {
            at,
            writes,
            block: inode.block,
            copies: inode.copies,
            handle: Handle::Open(handle),
            reopens: 0,
            waiting: Vec::new(),
            content,
            memory,
            queue: Default::default(),
            again: Vec::new(),
            sequence: None,
            making_room: None,
            is_room_vain: false,
            waits_for_room: false,
            is_forgotten: false,
            violation: None,
        };
        self.files.insert(id, file);
        id
    }

    /// The machine of a file's blocks.
    pub(super) fn machine(&self, at: InodePath, block: u32, size: u64) -> FileIo {
        let sectors = self.namespaces.iter().filter_map(|(id, info)| Some((*id, SectorSize::new(info.sector)?)));
        let lease = if self.over.is_some() { Nanos(0) } else { self.holder.until() };
        let sectors = sectors.collect();
        let setup = FileSetup { inode: at.inode, block, size, sectors, crc: self.setup.crc, lease };
        let mut io = FileIo::new(setup);
        io.planted = self.planted;
        io
    }

    /// Work on an open file: it waits for its turn, or begins.
    pub(super) fn begin<M: ClientMemory>(
        &mut self,
        work: WorkId,
        id: OpenFileId,
        what: FileWork,
        deadline: Nanos,
        out: &mut Out<'_, M>,
    ) {
        let wrong = match self.files.get(&id) {
            _ if self.over.is_some() => self.over.clone(),
            Some(OpenFile { handle: Handle::Lost(why), .. }) => Some(why.clone()),
            Some(file) if file.is_forgotten => Some(StoreError::NotOpen.into()),
            Some(file) if !file.writes && !matches!(what, FileWork::Read(..) | FileWork::Flush | FileWork::Close) => {
                Some(StoreError::NotOpen.into())
            }
            Some(_) => None,
            None => Some(StoreError::NotOpen.into()),
        };
        if let Some(wrong) = wrong {
            return self.finish(work, Outcome::Io(Err(wrong)), out);
        }
        self.works.insert(work, Work { doing: Doing::File(id, what), stage: Stage::Queued, deadline, tries: 0 });
        if let Some(file) = self.files.get_mut(&id) {
            file.queue.push_back(work);
        }
        self.touched.insert(id);
    }

    /// Ends work that a file does not hold any more.
    pub(super) fn end<M: ClientMemory>(
        &mut self,
        work: WorkId,
        result: Result<u32, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        if let Some(Work { doing: Doing::File(id, _), .. }) = self.works.remove(&work) {
            self.touched.insert(id);
            self.finish(work, Outcome::Io(result), out);
        }
    }

    /// Ends what waits in a file.
    pub(super) fn fail_queue<M: ClientMemory>(&mut self, id: OpenFileId, why: &ClientFailure, out: &mut Out<'_, M>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let again = core::mem::take(&mut file.again).into_iter().map(|(_, work)| work);
        let waiting: Vec<WorkId> = core::mem::take(&mut file.queue).into_iter().chain(again).collect();
        waiting.into_iter().for_each(|work| self.end(work, Err(why.clone()), out));
    }

    pub(super) fn cancel<M: ClientMemory>(&mut self, work: WorkId, out: &mut Out<'_, M>) {
        let cancelled = || ClientFailure::from(ClientFault::Cancelled);
        let Some(known) = self.works.get(&work).copied() else { return };
        match (known.doing, known.stage) {
            (Doing::Ask, _) => {
                self.works.remove(&work);
                self.finish(work, Outcome::Answer(Err(cancelled())), out);
            }
            (Doing::Open(_), _) => {
                self.works.remove(&work);
                self.finish(work, Outcome::Opened(Err(cancelled())), out);
            }
            (Doing::File(id, _), Stage::Queued | Stage::Again) => {
                self.take_out(id, work);
                self.end(work, Err(cancelled()), out);
            }
            (Doing::File(..), Stage::Away | Stage::Running) => {}
        }
    }

    /// Takes work out of where it waits.
    pub(super) fn take_out(&mut self, id: OpenFileId, work: WorkId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.queue.retain(|other| *other != work);
            file.again.retain(|(_, other)| *other != work);
        }
    }

    pub(super) fn set_stage(&mut self, work: WorkId, stage: Stage) {
        if let Some(work) = self.works.get_mut(&work) {
            work.stage = stage;
        }
    }

    /// No caller has the file: when nothing of it is under way it is closed.
    pub(super) fn forget(&mut self, id: OpenFileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_forgotten = true;
            self.touched.insert(id);
        }
    }

    /// Something has happened to a file: what waits goes on, what is not needed is given back, one that nobody has is closed.
    pub(super) fn settle<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) {
        self.collect_unneeded(id);
        loop {
            let Some(file) = self.files.get(&id) else { return };
            // What has begun is under way before anything is said of the file as a whole.
            if !self.inbox.is_empty() {
                self.touched.insert(id);
                return;
            }
            let goes_on = match (&file.sequence, file.queue.front().copied()) {
                // Who closes waits for reads that are tried again.
                (Some(Sequence { goal: Goal::Close(_), step: Step::Drain, .. }), Some(work)) => {
                    self.start(id, work, out)
                }
                (Some(_), _) => self.step(id, out),
                (None, Some(work)) => self.start(id, work, out),
                (None, None) => false,
            };
            if !goes_on {
                break;
            }
        }
        let in_doubt = self.drives.is_in_doubt();
        let is_over = |file: &&OpenFile| {
            // The service takes blocks that were left half written in hand as soon as their writer has closed the file.
            if file.writes && in_doubt && !self.planted.is(Mutant::ClosedInDoubt) {
                return false;
            }
            let rests = file.is_quiet() && file.sequence.is_none() && file.queue.is_empty() && file.again.is_empty();
            file.is_forgotten && rests && !matches!(file.handle, Handle::Reopening)
        };
        let Some(file) = self.files.get(&id).filter(is_over) else { return };
        if let (Handle::Open(handle), true) = (&file.handle, self.over.is_none()) {
            let purpose = if file.writes { Purpose::Close(file.at) } else { Purpose::Nothing };
            self.requests.send(Unanswered::new(Request::Close { handle: *handle }, purpose, None), out.effects);
        }
        self.remove_file(id, out);
    }

    /// The file is open no more.
    pub(super) fn remove_file<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) {
        let Some(file) = self.files.remove(&id) else { return };
        out.memory.forget(file.memory);
        file.waiting.iter().for_each(|sent| self.requests.end_slot(sent, out.effects));
        if let FileContent::Mapped(io) = file.content {
            self.unneeded.extend(io.close());
        }
        self.room_came();
    }

    /// What was granted to a file and is not needed. A file that takes no more writes keeps nothing from others.
    fn collect_unneeded(&mut self, id: OpenFileId) {
        let Some(OpenFile { content: FileContent::Mapped(io), .. }) = self.files.get_mut(&id) else { return };
        if io.pending() > 0 {
            return;
        }
        let is_lost = io.poison().is_some();
        let unneeded = if is_lost { io.give_up() } else { io.take_unused() };
        if !unneeded.is_empty() {
            self.unneeded.extend(unneeded);
            self.room_came();
        }
    }

    /// Others may have what a file has ahead no more.
    pub(super) fn room_came(&mut self) {
        self.touched.extend(self.files.iter().filter(|(_, file)| !file.queue.is_empty()).map(|(id, _)| *id));
    }

    /// Starts the first work of a file, which is taken out of its queue then; `false` if it has to wait.
    fn start<M: ClientMemory>(&mut self, id: OpenFileId, work: WorkId, out: &mut Out<'_, M>) -> bool {
        let Some(Work { doing: Doing::File(_, what), deadline, .. }) = self.works.get(&work).copied() else {
            self.take_out(id, work);
            return true;
        };
        let Some(file) = self.files.get_mut(&id) else { return false };
        let goal = match (what, &mut file.content) {
            (FileWork::Truncate(size), _) => Some(Goal::Truncate(work, size)),
            (FileWork::Close, _) => Some(Goal::Close(work)),
            (FileWork::Write(offset, len) | FileWork::WriteLast(offset, len), FileContent::Inline(_))
                if len > 0 && offset.saturating_add(len.into()) > u64::from(self.welcome.inline_max) =>
            {
                Some(Goal::Move(work))
            }
            (FileWork::Write(_, 1..) | FileWork::WriteLast(_, 1..), FileContent::Inline(inline))
                if inline.size > u64::from(self.welcome.inline_max) =>
            {
                Some(Goal::Move(work))
            }
            _ => None,
        };
        if let (Some(_), Some(_)) = (goal, &file.sequence) {
            self.take_out(id, work);
            self.end(work, Err(StoreError::NotOpen.into()), out);
            return true;
        }
        if let Some(goal) = goal {
            file.sequence = Some(Sequence { goal, step: Step::Drain, deadline });
            if !matches!(goal, Goal::Move(_)) {
                file.queue.pop_front();
                self.set_stage(work, Stage::Away);
            }
            return true;
        }
        let began = match &file.content {
            FileContent::Inline(_) => self.start_inline(id, work, what, out),
            FileContent::Mapped(_) => self.start_mapped(id, work, what, deadline),
        };
        if began {
            if let Some(file) = self.files.get_mut(&id) {
                file.queue.retain(|other| *other != work);
            }
        }
        began
    }

    /// Starts work on blocks; `false` if it has to wait for room.
    fn start_mapped(&mut self, id: OpenFileId, work: WorkId, what: FileWork, deadline: Nanos) -> bool {
        if let Some((offset, len)) = what.write() {
            if !self.has_room(id, offset, len) {
                return false;
            }
        }
        let op = FileOpId(work.0);
        let event = match what {
            FileWork::Read(offset, len) => FileEvent::Read(op, offset, len, deadline),
            FileWork::Write(offset, len) => FileEvent::Write(op, offset, len, deadline),
            FileWork::WriteLast(offset, len) => FileEvent::WriteLast(op, offset, len, deadline),
            _ => FileEvent::Flush(op, false, deadline),
        };
        self.set_stage(work, Stage::Running);
        self.run(id, event);
        true
    }

    /// Something begins at the file's machine.
    pub(super) fn run(&mut self, id: OpenFileId, event: FileEvent) {
        if let Some(file) = self.files.get(&id) {
            self.inbox.push_back((id, file.memory, event));
        }
    }

    /// Does work on bytes that lie in the inode; `false` if it has to wait.
    fn start_inline<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        work: WorkId,
        what: FileWork,
        out: &mut Out<'_, M>,
    ) -> bool {
        let Some(inline) = self.files.get_mut(&id).and_then(OpenFile::inline) else { return true };
        let len = match what {
            FileWork::Read(offset, len) => {
                let n = inline.size.saturating_sub(offset).min(len.into()) as usize;
                let from = inline.bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
                let mut read = from[..from.len().min(n)].to_vec();
                // Behind the bytes of the inode are zeroes.
                read.resize(n, 0);
                out.memory.fill(work, &read);
                n as u32
            }
            FileWork::Write(offset, len) | FileWork::WriteLast(offset, len) => {
                let range = offset as usize..offset as usize + len as usize;
                if len > 0 {
                    inline.size = inline.size.max(range.end as u64);
                    inline.bytes.resize(inline.size as usize, 0);
                    out.memory.take(work, &mut inline.bytes[range]);
                    inline.is_dirty = true;
                }
                len
            }
            // What is on its way to the service must not come there behind what follows.
            _ if inline.is_flushing => return false,
            _ if !inline.is_dirty => 0,
            _ => {
                self.set_stage(work, Stage::Away);
                self.flush_inline(id, Some(work), out);
                return true;
            }
        };
        self.take_out(id, work);
        self.end(work, Ok(len), out);
        true
    }

    /// Sends the bytes of the inode to the service.
    pub(super) fn flush_inline<M: ClientMemory>(&mut self, id: OpenFileId, work: Option<WorkId>, out: &mut Out<'_, M>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let at = file.at;
        let Some(inline) = file.inline() else { return };
        (inline.is_dirty, inline.is_flushing) = (false, true);
        let change = NameChange::WriteInline(at, inline.bytes.clone());
        let request = Request::Change { slot: 0, sequence: 0, change };
        self.send(Unanswered::new(request, Purpose::InlineFlush(work), Some(id)), out);
    }

    /// The service has the bytes that lie in the inode, or not.
    pub(super) fn inline_flushed<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        work: Option<WorkId>,
        result: Result<(), ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        if let Some(inline) = self.files.get_mut(&id).and_then(OpenFile::inline) {
            inline.is_flushing = false;
            inline.is_dirty |= result.is_err();
        }
        self.touched.insert(id);
        match work {
            Some(work) => self.end(work, result.map(|()| 0), out),
            None => self.step_over(id, result, out),
        }
    }

    /// An operation of a file's machine is over.
    pub(super) fn operation_over<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        op: FileOpId,
        result: Result<u32, FileError>,
        out: &mut Out<'_, M>,
    ) {
        match self.own_operation(op) {
            Some(OwnOperation::Room(_)) => {
                let Some(file) = self.files.get_mut(&id) else { return };
                let before = file.making_room.take().flatten();
                // What could not be published is looked at again by and by.
                match before.is_none_or(|before| file.ahead() < before) {
                    true => self.room_came(),
                    false => file.is_room_vain = true,
                }
                return;
            }
            Some(OwnOperation::Step(_)) => {
                out.memory.release(work_of(op));
                let result = result.map(drop).map_err(|error| self.failure(id, error));
                self.step_over(id, result, out);
                return self.room_came();
            }
            None => {}
        }
        let work = work_of(op);
        let Some(known) = self.works.get(&work).copied() else { return };
        let is_flush = matches!(known.doing, Doing::File(_, FileWork::Flush));
        if let (Doing::File(_, FileWork::Read(..)), Err(error)) = (known.doing, result) {
            if self.try_again(id, work, known.tries, error, out.now) {
                return;
            }
        }
        let result = result.map_err(|error| self.failure(id, error));
        self.end(work, result, out);
        if is_flush {
            self.room_came();
        }
    }

    /// Whether a read that has failed is tried again: the map may be out of date, or another client may be writing just there.
    fn try_again(&mut self, id: OpenFileId, work: WorkId, tries: u32, error: FileError, now: Nanos) -> bool {
        let (block, pause) = match error {
            FileError::Corrupt(block) | FileError::Unreadable(block) if tries < TRIES_ELSEWHERE => (block, OTHER_PAUSE),
            FileError::Unsettled(block) if tries < TRIES => (block, UNSETTLED_PAUSE),
            _ => return false,
        };
        if self.over.is_some() {
            return false;
        }
        if let Some(known) = self.works.get_mut(&work) {
            (known.tries, known.stage) = (tries + 1, Stage::Again);
        }
        self.run(id, FileEvent::Refetch(block));
        if let Some(file) = self.files.get_mut(&id) {
            file.again.push((now.saturating_add(pause), work));
        }
        self.again_at = self.again_at.min(now.saturating_add(pause));
        true
    }

    /// A failure of a file's machine, with what is known of it.
    fn failure(&mut self, id: OpenFileId, error: FileError) -> ClientFailure {
        let Some(file) = self.files.get_mut(&id) else { return error.into() };
        if let (Handle::Lost(why), FileError::Metadata) = (&file.handle, error) {
            return why.clone();
        }
        let error = match error {
            FileError::Deadline if file.waits_for_room => FileError::NoSpace,
            error => error,
        };
        let said = match error {
            FileError::BadMap | FileError::Metadata | FileError::Unreadable(_) | FileError::Unwritable(_) => {
                file.violation.clone()
            }
            FileError::Corrupt(block) => {
                let copies = file.io().map(|io| io.copies_of(block)).unwrap_or_default();
                let known = copies.iter().filter_map(|copy| self.namespaces.get(&copy.namespace));
                let targets: Vec<&str> = known.map(|found| found.target.as_str()).collect();
                Some(targets.join(", ")).filter(|targets| !targets.is_empty())
            }
            _ => None,
        };
        match (error, said) {
            (FileError::BadMap, Some(what)) => ClientFault::Protocol(what).into(),
            (error, said) => {
                let failure = ClientFailure::from(error);
                ClientFailure { drive: said.or_else(|| self.drives.trouble()), ..failure }
            }
        }
    }

    /// Whether the session may have as many unpublished blocks as a write may need; else files are published first.
    fn has_room(&mut self, id: OpenFileId, offset: u64, len: u32) -> bool {
        let Some(file) = self.files.get(&id) else { return true };
        let wanted = file.bytes_of(file.io().map_or(0, |io| io.wants(offset, len)));
        if wanted == 0 {
            return true;
        }
        let returned: u64 = self.unneeded.iter().map(|extent| extent.length.get()).sum();
        let ahead = returned + self.files.values().map(OpenFile::ahead).sum::<u64>();
        let then = ahead.saturating_add(wanted);
        if ahead == 0 || then <= GRANT_AHEAD {
            if then > self.publish_behind {
                self.make_room(id, FlushedPart::Beginning);
            }
            return true;
        }
        let full: Vec<OpenFileId> = self.files.iter().filter(|(_, file)| file.ahead() > 0).map(|(id, _)| *id).collect();
        full.into_iter().for_each(|id| self.make_room(id, FlushedPart::All));
        false
    }

    /// The service says that the session has too much ahead.
    pub(super) fn make_room_in_quiet_files(&mut self) {
        let full = self.files.iter().filter(|(_, file)| file.ahead() > 0 && file.is_quiet());
        let full: Vec<OpenFileId> = full.map(|(id, _)| *id).collect();
        full.into_iter().for_each(|id| self.make_room(id, FlushedPart::All));
    }

    /// Publishes a file's blocks.
    fn make_room(&mut self, id: OpenFileId, part: FlushedPart) {
        let may = |file: &&mut OpenFile| {
            let is_free = file.making_room.is_none() && file.sequence.is_none() && !file.is_room_vain;
            let is_any = |io: &FileIo| part == FlushedPart::All || io.has_beginning();
            is_free && file.io().is_some_and(|io| io.poison().is_none() && is_any(io))
        };
        let Some(file) = self.files.get_mut(&id).filter(may) else { return };
        file.making_room = Some((part == FlushedPart::All).then(|| file.ahead()));
        let work = self.number();
        self.own.insert(work, OwnOperation::Room(id));
        let deadline = self.room_deadline();
        let op = FileOpId(work.0);
        self.run(
            id,
            match part {
                FlushedPart::All => FileEvent::Flush(op, false, deadline),
                FlushedPart::Beginning => FileEvent::FlushBeginning(op, deadline),
            },
        );
    }
}
