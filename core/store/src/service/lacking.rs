//! Blocks that have fewer copies than their file wants get another one.
//!
//! ```text
//!   tick ─► a page of the index ─► Chunk ─► each of its blocks that lacks a copy ─► a move whose old copy stays
//!              ▲                     └─ none does: it is taken off the index                  │
//!              └───────────────────────── the next chunk ◄───────────────────────────────────┘
//! ```
//! A copy that could not be written is marked out, by a writer or by [`recovery`](super::recovery), and a new block may be published without it. The commit
//! that does so puts the chunk into the index ([`KeySpace::Short`]), and the one that gives the last such block its copy takes it out. So the
//! index outlives every process, and costs one empty read where nothing is lacking. What an older version has left there, or left out, is taken off when it is seen, and found
//! by `weir store fsck`.
//!
//! The copy is made on any node that has none of the block, that of the copy before or another one. **The move** is that of [`moves`](super::moves), with its rules for
//! writers; these moves may be half of those at a time. What cannot be made is counted by its reason, told in the status, and tried again: soon if something has
//! changed about the drives, else later and later.

use super::event::ServiceEffect;
use super::machine::Service;
use super::moves::MOVES;
use super::passes::{MoveEnd, MoveReason};
use super::short_chunks::Listed;
use super::state::{KvOwner, LackingRead, OwnRead};
use crate::InodeId;
use crate::keys::{KeySpace, map_chunk_key, short_key, short_of};
use crate::kv::{Commit, Expect, KvAnswer, KvKey, KvRequest, KvWrite, RANGE_MAX, Versioned};
use crate::records::{BlockRecord, MapChunk, ShortRecord, from_value};
use crate::space::MappedExtent;
use alloc::vec::Vec;

impl Service {
    /// Time has passed: the index is looked at.
    pub(super) fn find_lacking(&mut self, effects: &mut Vec<ServiceEffect>) {
        if !self.gives_out() {
            return;
        }
        self.make_copies(effects);
        let of = &self.lacking;
        let is_idle = !of.reads && of.at.is_none() && of.queue.is_empty() && of.blocks.is_empty();
        if is_idle && self.copies_under_way() == 0 && of.look_at <= self.clock.now {
            let from = self.lacking.behind.clone().unwrap_or_else(|| KeySpace::Short.key(&[]));
            let request = KvRequest::Range { from, until: KeySpace::Short.end(), most: RANGE_MAX };
            self.lacking_asks(LackingRead::Index, request, effects);
        }
    }

    fn lacking_asks(&mut self, read: LackingRead, request: KvRequest, effects: &mut Vec<ServiceEffect>) {
        self.lacking.reads = true;
        self.ask_kv(KvOwner::own(OwnRead::Lacking(read)), request, effects);
    }

    fn copies_under_way(&self) -> usize {
        self.moves.tasks.values().filter(|task| task.reason == MoveReason::Lacking).count()
    }

    pub(super) fn lacking_read(&mut self, read: LackingRead, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        self.lacking.reads = false;
        match (read, answer) {
            (LackingRead::Index, KvAnswer::Page(Ok(page))) => self.short_index_read(&page),
            (LackingRead::Chunk, KvAnswer::Value(Ok(value))) => self.short_chunk_read(value, effects),
            // Whether or not it was taken off: the next pass sees.
            (LackingRead::TakenOff, _) => self.lacking.at = None,
            // No answer: the next look begins anew.
            _ => {
                self.lacking.queue.clear();
                (self.lacking.at, self.lacking.behind) = (None, None);
            }
        }
        self.make_copies(effects);
    }

    fn short_index_read(&mut self, page: &[(KvKey, Versioned)]) {
        let is_last = page.len() < RANGE_MAX;
        self.lacking.behind = page.last().filter(|_| !is_last).map(|(key, _)| {
            let mut behind = key.clone();
            behind.0.push(0);
            behind
        });
        self.lacking.queue.extend(page.iter().filter_map(|(key, found)| {
            let (file, chunk) = short_of(key)?;
            let copies = from_value::<ShortRecord>(&found.value).ok()?.copies;
            Some(Listed { file, chunk, copies, value: found.value.clone() })
        }));
        self.lacking.is_begun = true;
    }

    fn short_chunk_read(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        let Some(at) = self.lacking.at.clone() else { return };
        let read = value.as_ref().map_or(Ok(MapChunk::default()), |value| from_value::<MapChunk>(&value.value));
        // One that is damaged is told by fsck.
        let Ok(chunk) = read else { return self.lacking.at = None };
        if !chunk.lacks_copies(at.copies) {
            let expect = alloc::vec![
                (map_chunk_key(at.file, at.chunk), value.map_or(Expect::Absent, |value| Expect::Value(value.value))),
                (short_key(at.file, at.chunk), Expect::Value(at.value)),
            ];
            let writes = alloc::vec![KvWrite::Delete(short_key(at.file, at.chunk))];
            return self.lacking_asks(LackingRead::TakenOff, KvRequest::Commit(Commit { expect, writes }), effects);
        }
        self.lacking.at = None;
        for block in chunk.blocks.iter().filter(|block| block.lacks_copies(at.copies)) {
            match self.a_copy(at.file, block) {
                Some(copy) => self.lacking.blocks.push_back(copy),
                None => self.lacking.found.count(MoveEnd::Failed("its place is not known yet".into())),
            }
        }
    }

    /// A copy of a block, as the index of its region has it.
    fn a_copy(&self, file: InodeId, block: &BlockRecord) -> Option<MappedExtent> {
        block.copies.iter().find_map(|copy| {
            let taken = &self.namespaces.get(&copy.namespace)?.taken;
            let mut found = taken.iter().filter_map(|region| self.space.next_mapped(*region, copy.offset.get()));
            found.find(|mapped| mapped.extent == *copy && mapped.inode == file)
        })
    }

    /// Has copies made, as far as moves may be begun; then the next chunk is looked at.
    pub(super) fn make_copies(&mut self, effects: &mut Vec<ServiceEffect>) {
        while self.may_begin_move() && self.copies_under_way() < MOVES / 2 {
            let Some(copy) = self.lacking.blocks.pop_front() else { break };
            if !self.moves.has_task_at(&copy.extent) {
                self.begin_move(copy, MoveReason::Lacking, effects);
            }
        }
        if self.lacking.reads || self.lacking.at.is_some() || !self.lacking.blocks.is_empty() {
            return;
        }
        match self.lacking.queue.pop_front() {
            Some(listed) => {
                let request = KvRequest::Get(map_chunk_key(listed.file, listed.chunk));
                self.lacking.at = Some(listed);
                self.lacking_asks(LackingRead::Chunk, request, effects);
            }
            None if self.lacking.is_begun && self.lacking.behind.is_none() && self.copies_under_way() == 0 => {
                self.lacking.end_pass(self.clock.now);
            }
            None => {}
        }
    }
}
