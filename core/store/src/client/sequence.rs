//! What goes on with an open file as a whole: truncation, closing, and the move of its bytes from the inode to blocks. Nothing else of the file begins
//! meanwhile. See [`Step`] for the order.

use super::answers::{is_not_open, other_answer};
use super::event::{ClientFailure, ClientFault, ClientMemory, MemoryId, OpenFileId, WorkId};
use super::machine::{ClientMachine, Out, OwnOperation, Stage};
use super::open_file::{FileContent, Goal, Handle, InlineBytes, Sequence, Step};
use super::requests::{Purpose, Unanswered};
use crate::error::StoreError;
use crate::file::{FileEvent, FileIo, FileOpId};
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request};
use crate::records::MapChunk;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_units::Nanos;

impl ClientMachine {
    fn sequence_of(&mut self, id: OpenFileId) -> Option<&mut Sequence> {
        self.files.get_mut(&id)?.sequence.as_mut()
    }

    fn set_step(&mut self, id: OpenFileId, step: Step) {
        if let Some(sequence) = self.sequence_of(id) {
            sequence.step = step;
        }
    }

    /// Goes on with a file's sequence; `false` if it waits.
    pub(super) fn step<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let Some(Sequence { goal, step: Step::Drain, .. }) = file.sequence else { return false };
        if !self.works.contains_key(&goal.work()) {
            // It was late before it had begun.
            self.end_sequence(id);
            return true;
        }
        if let (Handle::Lost(why), true) = (&file.handle, file.is_quiet()) {
            let why = why.clone();
            self.step_over(id, Err(why), out);
            return true;
        }
        // Who closes waits for what was begun before, also for what is tried again.
        let is_tried_again = matches!(goal, Goal::Close(_)) && !file.again.is_empty();
        if !file.is_quiet() || is_tried_again {
            return false;
        }
        self.drained(id, goal, out);
        true
    }

    /// Nothing of the file is under way: the sequence begins.
    fn drained<M: ClientMemory>(&mut self, id: OpenFileId, goal: Goal, out: &mut Out<'_, M>) {
        let most = u64::from(self.welcome.inline_max);
        let Some(file) = self.files.get_mut(&id) else { return };
        let writes = file.writes;
        let Some(inline) = file.inline() else {
            return match goal {
                Goal::Move(_) => self.end_sequence(id),
                Goal::Close(_) if !writes => self.close_at_service(id, out),
                Goal::Truncate(..) if self.planted.is(Mutant::TruncateUnflushed) => self.cut(id, out),
                Goal::Close(_) | Goal::Truncate(..) => self.flush_step(id, Step::Flush),
            };
        };
        match goal {
            Goal::Truncate(_, size) if size <= most && inline.size <= most => {
                inline.is_dirty |= inline.size != size;
                inline.size = size;
                inline.bytes.resize(size as usize, 0);
                match inline.is_dirty {
                    true => {
                        self.set_step(id, Step::FlushInline);
                        self.flush_inline(id, None, out);
                    }
                    false => self.step_over_after(id, Step::FlushInline, out),
                }
            }
            // What is there is a prefix of what it was: the service cuts it.
            Goal::Truncate(..) if !inline.is_dirty && inline.bytes.is_empty() => {
                self.begin_blocks(id);
                self.cut(id, out);
            }
            Goal::Close(_) if inline.is_dirty => {
                self.set_step(id, Step::FlushInline);
                self.flush_inline(id, None, out);
            }
            Goal::Close(_) => self.close_at_service(id, out),
            Goal::Truncate(..) | Goal::Move(_) => self.move_to_blocks(id, out),
        }
    }

    /// The file's bytes are in blocks from now on; the bytes that lay in its inode.
    fn begin_blocks(&mut self, id: OpenFileId) -> Option<InlineBytes> {
        let epoch = self.holder.epoch();
        let file = self.files.get_mut(&id)?;
        let (at, block) = (file.at, file.block);
        let inline = core::mem::take(file.inline()?);
        let mut machine = self.machine(at, block, inline.size);
        // Nothing of it is in blocks yet.
        let _ = machine.map().put(0, MapChunk::default(), epoch);
        let memory = MemoryId(self.next());
        let file = self.files.get_mut(&id)?;
        (file.content, file.memory) = (FileContent::Mapped(Box::new(machine)), memory);
        Some(inline)
    }

    /// Writes the bytes of the inode to a block. If that fails the file is as it was.
    fn move_to_blocks<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) {
        let Some(inline) = self.begin_blocks(id) else { return };
        let bytes = inline.bytes.clone();
        self.set_step(id, Step::Move(inline));
        if bytes.is_empty() {
            return self.step_over(id, Ok(()), out);
        }
        self.write_step(id, 0, bytes, out);
    }

    fn deadline_of(&mut self, id: OpenFileId) -> Nanos {
        self.sequence_of(id).map_or(Nanos(0), |sequence| sequence.deadline)
    }

    fn own_step(&mut self, id: OpenFileId) -> FileOpId {
        let work = self.number();
        self.own.insert(work, OwnOperation::Step(id));
        FileOpId(work.0)
    }

    fn write_step<M: ClientMemory>(&mut self, id: OpenFileId, at: u64, bytes: Vec<u8>, out: &mut Out<'_, M>) {
        let (op, deadline) = (self.own_step(id), self.deadline_of(id));
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        out.memory.keep(WorkId(op.0), bytes);
        self.run(id, FileEvent::Write(op, at, len, deadline));
    }

    fn flush_step(&mut self, id: OpenFileId, step: Step) {
        let cut = matches!(self.sequence_of(id).map(|sequence| sequence.goal), Some(Goal::Close(_)));
        self.set_step(id, step);
        let (op, deadline) = (self.own_step(id), self.deadline_of(id));
        self.run(id, FileEvent::Flush(op, cut, deadline));
    }

    fn step_over_after<M: ClientMemory>(&mut self, id: OpenFileId, step: Step, out: &mut Out<'_, M>) {
        self.set_step(id, step);
        self.step_over(id, Ok(()), out);
    }

    /// A step is over.
    pub(super) fn step_over<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        result: Result<(), ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        self.touched.insert(id);
        let Some(Sequence { goal, step, .. }) = self.sequence_of(id).cloned() else { return };
        if let Err(why) = result {
            return self.step_failed(id, goal, step, why, out);
        }
        match (goal, step) {
            (Goal::Move(_), _) => self.end_sequence(id),
            (Goal::Truncate(..), Step::Move(_)) => self.flush_step(id, Step::Flush),
            (Goal::Truncate(_, size), Step::Flush) => self.zero_rest(id, size, out),
            (Goal::Truncate(..), Step::Zero) => self.flush_step(id, Step::FlushZeroes),
            (Goal::Truncate(..), Step::FlushZeroes) => self.cut(id, out),
            (Goal::Truncate(work, size), Step::Cut) => {
                self.resized(id, size, out);
                self.end_sequence(id);
                self.end(work, Ok(0), out);
            }
            (Goal::Close(_), Step::Flush | Step::FlushInline) => self.close_at_service(id, out),
            (Goal::Close(work), Step::Close) => {
                self.end_sequence(id);
                self.end(work, Ok(0), out);
                let queued: Vec<WorkId> = self.files.get(&id).into_iter().flat_map(|file| file.queue.clone()).collect();
                queued.into_iter().for_each(|work| self.end(work, Err(StoreError::NotOpen.into()), out));
                self.remove_file(id, out);
            }
            (goal, _) => {
                self.end_sequence(id);
                self.end(goal.work(), Ok(0), out);
            }
        }
    }

    fn step_failed<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        goal: Goal,
        step: Step,
        why: ClientFailure,
        out: &mut Out<'_, M>,
    ) {
        if let Step::Move(inline) = step {
            self.move_back(id, inline, out);
        }
        self.end_sequence(id);
        match goal {
            Goal::Move(work) => {
                // What has become small enough meanwhile goes on.
                if self.works.get(&work).is_some_and(|work| work.stage == Stage::Queued) {
                    self.take_out(id, work);
                    self.end(work, Err(why), out);
                }
            }
            Goal::Truncate(work, _) | Goal::Close(work) => self.end(work, Err(why), out),
        }
    }

    /// The bytes could not be written to a block: they lie in the inode still.
    fn move_back<M: ClientMemory>(&mut self, id: OpenFileId, inline: InlineBytes, out: &mut Out<'_, M>) {
        if self.planted.is(Mutant::MovedBytesLost) {
            return;
        }
        let memory = MemoryId(self.next());
        let Some(file) = self.files.get_mut(&id) else { return };
        let before = core::mem::replace(&mut file.memory, memory);
        let content = core::mem::replace(&mut file.content, FileContent::Inline(inline));
        out.memory.forget(before);
        if let FileContent::Mapped(io) = content {
            self.unneeded.extend(io.close());
        }
    }

    fn end_sequence(&mut self, id: OpenFileId) {
        self.touched.insert(id);
        if let Some(file) = self.files.get_mut(&id) {
            file.sequence = None;
        }
        self.room_came();
    }

    /// Makes the rest of the block zero in which the file is to end, or cuts it at once.
    fn zero_rest<M: ClientMemory>(&mut self, id: OpenFileId, size: u64, out: &mut Out<'_, M>) {
        let Some(file) = self.files.get(&id) else { return };
        let (old, block) = (file.size(), u64::from(file.block));
        let rest = size.checked_next_multiple_of(block).unwrap_or(u64::MAX).min(old).saturating_sub(size);
        if rest == 0 || size % block == 0 {
            return self.cut(id, out);
        }
        self.set_step(id, Step::Zero);
        self.write_step(id, size, alloc::vec![0; rest as usize], out);
    }

    /// Sends the commit of the new size.
    fn cut<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) {
        let Some(Goal::Truncate(work, size)) = self.sequence_of(id).map(|sequence| sequence.goal) else { return };
        if !self.works.contains_key(&work) {
            return self.end_sequence(id);
        }
        self.set_step(id, Step::Cut);
        let request = Request::Publish { handle: 0, slot: 0, sequence: 0, size, blocks: Vec::new() };
        self.send(Unanswered::new(request, Purpose::Step, Some(id)), out);
    }

    /// The file has that size, by a commit. What was known of its blocks is known no more.
    fn resized<M: ClientMemory>(&mut self, id: OpenFileId, size: u64, out: &mut Out<'_, M>) {
        let Some(file) = self.files.get(&id) else { return };
        let marks = file.io().map(FileIo::own_marks);
        let machine = self.machine(file.at, file.block, size).with_own_marks(marks.unwrap_or_default());
        let memory = MemoryId(self.next());
        let Some(file) = self.files.get_mut(&id) else { return };
        let before = core::mem::replace(&mut file.memory, memory);
        let content = core::mem::replace(&mut file.content, FileContent::Mapped(Box::new(machine)));
        out.memory.forget(before);
        if let FileContent::Mapped(io) = content {
            self.unneeded.extend(io.close());
        }
        self.room_came();
    }

    fn close_at_service<M: ClientMemory>(&mut self, id: OpenFileId, out: &mut Out<'_, M>) {
        self.set_step(id, Step::Close);
        self.send(Unanswered::new(Request::Close { handle: 0 }, Purpose::Step, Some(id)), out);
    }

    /// The request of a step was answered.
    pub(super) fn step_answered<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        let is_close = matches!(self.sequence_of(id), Some(Sequence { step: Step::Close, .. }));
        let result = match result {
            Ok(Answer::Done {} | Answer::Changed { .. }) => Ok(()),
            // The service was started again: it has closed it.
            result if is_close && is_not_open(&result) => {
                if let Some(file) = self.files.get(&id).filter(|file| file.writes) {
                    self.release_writer(file.at, out);
                }
                Ok(())
            }
            Ok(other) => Err(ClientFault::Protocol(other_answer(&other)).into()),
            Err(why) => Err(why),
        };
        self.step_over(id, result, out);
    }

    /// A truncation or closing is late: what has begun goes on, and what follows it waits until it is known what it has come to.
    pub(super) fn late_in_sequence(&mut self, id: OpenFileId) {
        self.touched.insert(id);
        let forgets = self.planted.is(Mutant::TruncateForgotten);
        if forgets && matches!(self.sequence_of(id), Some(Sequence { step: Step::Cut, .. })) {
            self.end_sequence(id);
        }
    }
}
