//! Plans of what happens to a file's bytes: who may write, which blocks the map names, what is cut off.
//!
//! A plan that moves blocks has a [`SpaceEdit`](super::task::SpaceEdit): its commit is made by [`Space`](crate::space::Space), together with the records of the blocks. What does
//! not fit into one commit is done in steps ([`Plan::is_step`](super::task::Plan)), each of which leaves a file that is whole: blocks are published in the order of their
//! numbers with a size that reaches to the last of them, and a file is cut from its end. Only the last step has the answer, so that the
//! request can be sent again at any time.

use super::mutant::Mutant;
use super::operation::{EntryPath, InodePath, NewInode, SettleOrder};
use super::plan::{Planner, refuse};
use super::view::{PageKey, Planned, Stop, WantedKey, read};
use crate::error::StoreError;
use crate::extent::Extent;
use crate::id::{InodeId, SessionId};
use crate::inode::{Content, Inode, InodeKind};
use crate::keys::{
    inode_key, map_chunk_key, map_chunk_range, orphan_key, session_key, short_key, unsettled_key, unsettled_range,
    writer_key,
};
use crate::kv::{Expect, KvKey, KvWrite};
use crate::members::HoldRecord;
use crate::records::{
    BlockRecord, COPIES_MAX, Changed, MapChunk, NameRecord, OrphanRecord, ShortRecord, WriterRecord, blocks_per_chunk,
    from_value, to_value,
};
use crate::space::BlockPlace;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Extents whose use one commit changes at the most: each takes up to four keys.
const STEP_EXTENTS: usize = 19;

/// Chunks of a map that one commit changes at the most: each is in it twice, with 32 KiB, and once more where it has unsettled blocks,
/// and where it has blocks that lack copies.
const STEP_CHUNKS: usize = 4;

/// Chunks that are looked through at a time when a file is cut.
const CUT_WINDOW: u32 = 16;

/// Chunks of a map that one publish may be about: each is read at once.
const PUBLISH_CHUNKS: usize = 64;

/// Bytes of a file at the most: its map has so many chunks.
pub(super) fn size_max(block: u32) -> u64 {
    u64::from(u32::MAX) * u64::from(blocks_per_chunk(block)) * u64::from(block)
}

/// A chunk that a plan changes.
#[derive(Clone, Copy, Debug)]
struct ChunkPlace {
    file: InodeId,
    number: u32,
    /// Copies of each block that the file wants.
    copies: u8,
    /// It had an unsettled block before, and one that lacked a copy.
    was_unsettled: bool,
    was_short: bool,
}

impl ChunkPlace {
    /// A chunk as it is before the change.
    fn of(file: InodeId, number: u32, before: &MapChunk, copies: u8) -> Self {
        let (was_unsettled, was_short) = (has_unsettled(before), before.lacks_copies(copies));
        Self { file, number, copies, was_unsettled, was_short }
    }
}

fn has_unsettled(chunk: &MapChunk) -> bool {
    chunk.blocks.iter().any(|block| block.is_unsettled)
}

impl Planner<'_> {
    /// A file becomes this session's to write.
    pub fn open_writer(&mut self, at: &InodePath) -> Planned<Changed> {
        let (_, inode) = self.locate_open(at)?;
        if inode.kind != InodeKind::File {
            return Err(Stop::Never(StoreError::WrongKind));
        }
        self.take_writer(at.inode)?;
        Ok(Changed { inode: at.inode, version: inode.version })
    }

    /// A file is made, or opened if it is there, and is this session's to write.
    pub fn open_new(&mut self, entry: &EntryPath, new: &NewInode, bytes: &[u8], exclusive: bool) -> Planned<Changed> {
        let container = self.view.container(entry.container)?;
        if let Some(found) = self.view.name::<NameRecord>(entry.container, &entry.name)? {
            return match found.kind {
                _ if exclusive => refuse(StoreError::Exists),
                InodeKind::File => self.open_writer(&InodePath { inode: found.inode, parent: entry.container }),
                InodeKind::Symlink => refuse(StoreError::WrongKind),
                InodeKind::Directory | InodeKind::Multifile | InodeKind::Table => refuse(StoreError::IsDirectory),
            };
        }
        if new.kind != InodeKind::File || !container.kind.may_hold(new.kind) || container.kind == InodeKind::Table {
            return refuse(StoreError::WrongKind);
        }
        if bytes.len() > self.inline_max as usize {
            return refuse(StoreError::TooLarge(self.inline_max));
        }
        let changed = self.make(entry, container, new, Content::Inline(bytes.into()))?;
        let session = self.session.ok_or(Stop::Never(StoreError::NoSession))?;
        self.put(None, writer_key(changed.inode), &WriterRecord { session });
        Ok(changed)
    }

    /// The file is nobody's to write: no write of the session is on its way. Blocks that it has left unsettled are recovered before anybody
    /// writes the file again, itself as well.
    pub fn close_writer(&mut self, at: &InodePath) -> Planned<Changed> {
        let record: Option<WriterRecord> = self.view.free(writer_key(at.inode))?;
        let record = record.filter(|record| Some(record.session) == self.session);
        if let Some(record) = record {
            self.plan.expect.push((writer_key(at.inode), Expect::Value(to_value(&record))));
            self.remove(None, writer_key(at.inode));
        }
        Ok(Changed { inode: at.inode, version: 0 })
    }

    /// Nobody else may write the file: not even a session that has ended and whose writes may be on their way.
    fn take_writer(&mut self, file: InodeId) -> Planned<()> {
        let session = self.session.ok_or(Stop::Never(StoreError::NoSession))?;
        let key = writer_key(file);
        let found: Option<WriterRecord> = self.view.free(key.clone())?;
        let is_own = found.is_some_and(|record| record.session == session);
        if !is_own && !self.is_settled(file)? {
            // Whoever has it then, the blocks that a lost writer has left are recovered first.
            found.map_or(Ok(()), |record| self.expect_fenced(record.session))?;
            return Err(Stop::Never(StoreError::Recovering));
        }
        match found {
            Some(_) if is_own => return Ok(()),
            Some(record) if !self.mutation.is(Mutant::WriterTakenOver) => {
                self.expect_fenced(record.session)?;
                self.plan.expect.push((key.clone(), Expect::Value(to_value(&record))));
            }
            Some(_) => {}
            None => self.plan.expect.push((key.clone(), Expect::Absent)),
        }
        self.put(None, key, &WriterRecord { session });
        Ok(())
    }

    /// Whether no block of a file is unsettled.
    fn is_settled(&self, file: InodeId) -> Planned<bool> {
        if self.mutation.is(Mutant::UnsettledTaken) {
            return Ok(true);
        }
        let (from, until) = unsettled_range(file);
        let page = PageKey { from, until, most: 1 };
        let found = self.view.seen.pages.get(&page).ok_or(Stop::Page(page))?;
        Ok(found.is_empty())
    }

    /// That a session has ended, and is fenced.
    fn expect_fenced(&mut self, session: SessionId) -> Planned<()> {
        for key in [session_key(session), HoldRecord::key(session)] {
            if self.view.seen.free(key.clone())?.is_some() {
                return Err(Stop::Never(StoreError::Busy));
            }
            self.plan.expect.push((key, Expect::Absent));
        }
        Ok(())
    }

    /// That no other session has the file open for writing: one that has ended and is fenced does not count.
    pub fn expect_no_other_writer(&mut self, file: InodeId) -> Planned<()> {
        match self.view.free::<WriterRecord>(writer_key(file))? {
            Some(record) if Some(record.session) != self.session => {
                self.expect_fenced(record.session)?;
                self.plan.expect.push((writer_key(file), Expect::Value(to_value(&record))));
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The file, which is this session's to write, and the container that covers it.
    fn written(&mut self, at: &InodePath) -> Planned<(InodeId, Inode)> {
        let (by, inode) = self.locate_open(at)?;
        let key = writer_key(at.inode);
        let record: Option<WriterRecord> = self.view.free(key.clone())?;
        let Some(record) = record.filter(|record| Some(record.session) == self.session) else {
            return Err(Stop::Never(StoreError::NotOpen));
        };
        if !self.mutation.is(Mutant::PublishWithoutWriter) {
            self.plan.expect.push((key, Expect::Value(to_value(&record))));
        }
        if inode.kind == InodeKind::File { Ok((by, inode)) } else { Err(Stop::Never(StoreError::WrongKind)) }
    }

    /// These chunks of a file's map, those that are missing asked for at once.
    fn chunks(&self, file: InodeId, numbers: &BTreeSet<u32>) -> Planned<BTreeMap<u32, MapChunk>> {
        let (mut found, mut wanted) = (BTreeMap::new(), Vec::new());
        for number in numbers {
            let key = map_chunk_key(file, *number);
            match self.view.seen.values.get(&key) {
                Some(value) => drop(found.insert(*number, read::<MapChunk>(value.as_deref())?.unwrap_or_default())),
                None => wanted.push(WantedKey { key, by: None }),
            }
        }
        if wanted.is_empty() { Ok(found) } else { Err(Stop::Keys(wanted)) }
    }

    /// Writes a chunk as it is now, which has to be as it was seen until then.
    fn put_chunk(&mut self, at: ChunkPlace, chunk: &MapChunk) -> Planned<()> {
        let before = self.view.seen.free(map_chunk_key(at.file, at.number))?.map(<[u8]>::to_vec);
        self.put_chunk_over(at, before, chunk);
        Ok(())
    }

    fn put_chunk_over(&mut self, at: ChunkPlace, before: Option<Vec<u8>>, chunk: &MapChunk) {
        let (key, is_there) = (map_chunk_key(at.file, at.number), before.is_some());
        self.plan.expect.push((key.clone(), before.map_or(Expect::Absent, Expect::Value)));
        match chunk.blocks.is_empty() {
            false => self.put(None, key, chunk),
            true if is_there => self.remove(None, key),
            true => {}
        }
        // The index of unsettled blocks follows the chunk.
        let index = unsettled_key(at.file, at.number);
        match (at.was_unsettled, has_unsettled(chunk), self.session) {
            (false, true, Some(session)) => self.put(None, index, &WriterRecord { session }),
            (true, false, _) => self.remove(None, index),
            _ => {}
        }
        // So does that of blocks which lack copies; what a service of an older version has left out is put in.
        let index = short_key(at.file, at.number);
        match (at.was_short, chunk.lacks_copies(at.copies)) {
            (_, true) => self.put(None, index, &ShortRecord { copies: at.copies }),
            (true, false) => self.remove(None, index),
            (false, false) => {}
        }
    }

    /// Size and blocks of a file.
    pub fn publish(&mut self, at: &InodePath, size: u64, blocks: &[(u64, BlockRecord)]) -> Planned<Changed> {
        let (by, mut inode) = self.written(at)?;
        let in_order = blocks.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let block = u64::from(inode.block);
        let fits = |number: u64| block > 0 && number.checked_mul(block).is_some_and(|start| start < size);
        if !in_order
            || size > size_max(inode.block)
            || !blocks.iter().all(|(number, record)| fits(*number) && is_sane(record, inode.block))
        {
            return Err(Stop::Never(StoreError::Malformed));
        }
        if let Content::Inline(bytes) = &mut inode.content {
            if blocks.is_empty() {
                bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            } else {
                inode.content = Content::Mapped;
            }
        } else if self.cut(by, at.inode, &inode, size)? {
            self.plan.is_step = true;
            return Ok(Changed { inode: at.inode, version: inode.version + 1 });
        }
        let done = self.map_blocks(at.inode, &inode, blocks)?;
        self.plan.is_step = done < blocks.len();
        inode.size = match blocks.get(done) {
            Some((next, _)) => inode.size.max(next * block).min(size.max(inode.size)),
            None => size,
        };
        inode.modified = inode.modified.max(self.wall);
        self.update(by, at.inode, inode)
    }

    /// Has the map name blocks, as many as fit into a commit; how many there are up to the first that does not. Those that it names as they
    /// are count for nothing.
    fn map_blocks(&mut self, file: InodeId, inode: &Inode, blocks: &[(u64, BlockRecord)]) -> Planned<usize> {
        let per_chunk = u64::from(blocks_per_chunk(inode.block));
        let number_of = |block: u64| u32::try_from(block / per_chunk).map_err(|_| Stop::Never(StoreError::Malformed));
        let numbers = blocks.iter().map(|(block, _)| number_of(*block)).collect::<Result<BTreeSet<u32>, _>>()?;
        if numbers.len() > PUBLISH_CHUNKS {
            return Err(Stop::Never(StoreError::Malformed));
        }
        let mut chunks = self.chunks(file, &numbers)?;
        let place = |(number, chunk): (&u32, &MapChunk)| ChunkPlace::of(file, *number, chunk, inode.copies);
        let places: Vec<ChunkPlace> = chunks.iter().map(place).collect();
        let mut changed = BTreeSet::new();
        let mut done = 0;
        for (block, record) in blocks {
            let number = number_of(*block)?;
            let Some(chunk) = chunks.get_mut(&number) else { continue };
            let index = (block % per_chunk) as u32;
            let record = BlockRecord { index, is_unsettled: false, ..record.clone() };
            let place = chunk.blocks.binary_search_by_key(&index, |block| block.index);
            let old = place.ok().and_then(|at| chunk.blocks.get(at));
            if old != Some(&record) {
                let extents = record.copies.len() + old.map_or(0, |old| old.copies.len());
                let is_full = self.plan.space.len() + extents > STEP_EXTENTS;
                if !changed.is_empty() && (is_full || changed.len() == STEP_CHUNKS && !changed.contains(&number)) {
                    break;
                }
                changed.insert(number);
                self.replace_copies(file, *block, old, &record);
                match place {
                    Ok(at) => chunk.blocks[at] = record,
                    Err(at) => chunk.blocks.insert(at, record),
                }
            }
            done += 1;
        }
        for (place, chunk) in places.into_iter().zip(chunks.values()).filter(|(at, _)| changed.contains(&at.number)) {
            self.put_chunk(place, chunk)?;
        }
        Ok(done)
    }

    /// The extents of a block that come and go.
    fn replace_copies(&mut self, file: InodeId, block: u64, old: Option<&BlockRecord>, new: &BlockRecord) {
        let old = old.map(|old| &old.copies[..]).unwrap_or_default();
        let begins_with = |a: &Extent, b: &Extent| (a.namespace, a.offset) == (b.namespace, b.offset);
        for copy in &new.copies {
            match old.iter().find(|old| begins_with(old, copy)) {
                Some(before) if before.length >= copy.length => {
                    let behind = Extent {
                        offset: (copy.offset.get() + copy.length.get()).into(),
                        length: (before.length.get() - copy.length.get()).into(),
                        ..*copy
                    };
                    if behind.length.get() > 0 {
                        self.plan.space.unmap.push((file, behind));
                    }
                }
                _ => self.plan.space.map.push(BlockPlace { extent: *copy, inode: file, block }),
            }
        }
        let kept = |old: &&Extent| !new.copies.iter().any(|new| begins_with(old, new) && old.length >= new.length);
        if !self.mutation.is(Mutant::OldBlocksKept) {
            self.plan.space.unmap.extend(old.iter().filter(kept).map(|extent| (file, *extent)));
        }
    }

    /// Takes blocks behind the end of a file off its map, from its end on; whether that is a step of its own.
    fn cut(&mut self, by: InodeId, file: InodeId, inode: &Inode, size: u64) -> Planned<bool> {
        let (block, per_chunk) = (u64::from(inode.block.max(1)), u64::from(blocks_per_chunk(inode.block)));
        let first = size.div_ceil(block);
        let end = first.saturating_mul(block);
        if inode.size <= end {
            return Ok(false);
        }
        let last_chunk = ((inode.size - 1) / block / per_chunk).min(u64::from(u32::MAX)) as u32;
        let first_chunk = (first / per_chunk).min(u64::from(u32::MAX)) as u32;
        let low = first_chunk.max(last_chunk.saturating_sub(CUT_WINDOW - 1));
        let until = last_chunk.checked_add(1).map_or_else(|| map_chunk_range(file).1, |end| map_chunk_key(file, end));
        let page = PageKey { from: map_chunk_key(file, low), until, most: CUT_WINDOW as usize };
        let found = self.view.seen.pages.get(&page).ok_or(Stop::Page(page))?;
        let mut left = if low == first_chunk { end } else { u64::from(low) * per_chunk * block };
        if found.is_empty() && low > first_chunk {
            // A hole: what lies before it is found in a few looks, however wide it is.
            let behind = self.behind_last_chunk(file, first_chunk, low)?;
            left = end.max(u64::from(behind) * per_chunk * block);
        }
        for (taken, (key, value)) in found.iter().rev().enumerate() {
            let (number, mut chunk) = read_chunk(key, value)?;
            let base = u64::from(number) * per_chunk;
            if taken == STEP_CHUNKS {
                left = (base + per_chunk) * block;
                break;
            }
            let at = ChunkPlace::of(file, number, &chunk, inode.copies);
            let stopped = self.take_from_end(file, &mut chunk, |index| base + u64::from(index) >= first);
            self.put_chunk_over(at, Some(value.clone()), &chunk);
            if let Some(index) = stopped {
                left = (base + u64::from(index) + 1) * block;
                break;
            }
        }
        let modified = inode.modified.max(self.wall);
        // What is left ends with a block that stays, or with the size that it had.
        self.update(by, file, Inode { size: left.min(inode.size), modified, ..inode.clone() })?;
        Ok(true)
    }

    /// The number behind the last chunk of a file's map from `first` on and before `until`; `first` if there is none.
    fn behind_last_chunk(&self, file: InodeId, first: u32, until: u32) -> Planned<u32> {
        let (mut first, mut until) = (first, until);
        while first < until {
            let middle = first + (until - first) / 2;
            let page = PageKey { from: map_chunk_key(file, middle), until: map_chunk_key(file, until), most: 1 };
            let found = self.view.seen.pages.get(&page).ok_or(Stop::Page(page))?;
            match found.first() {
                Some((key, value)) => first = read_chunk(key, value)?.0 + 1,
                None => until = middle,
            }
        }
        Ok(until)
    }

    /// Takes blocks off the end of a chunk that a commit has room for; the last one that had to stay, if there is one that should not.
    fn take_from_end(&mut self, file: InodeId, chunk: &mut MapChunk, goes: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(last) = chunk.blocks.last().filter(|last| goes(last.index)) {
            if self.plan.space.len() + last.copies.len() > STEP_EXTENTS {
                return Some(last.index);
            }
            self.plan.space.unmap.extend(last.copies.iter().map(|extent| (file, *extent)));
            chunk.blocks.pop();
        }
        None
    }

    /// A block of the file, within its chunk.
    fn change_block(
        &mut self,
        at: &InodePath,
        block: u64,
        change: impl FnOnce(&mut Self, &mut BlockRecord) -> Planned<()>,
    ) -> Planned<Changed> {
        let (_, inode) = self.written(at)?;
        let per_chunk = u64::from(blocks_per_chunk(inode.block));
        let number = u32::try_from(block / per_chunk).map_err(|_| Stop::Never(StoreError::Malformed))?;
        let mut chunks = self.chunks(at.inode, &BTreeSet::from([number]))?;
        let (Some(chunk), index) = (chunks.get_mut(&number), (block % per_chunk) as u32) else {
            return Err(Stop::Never(StoreError::Damaged));
        };
        let Ok(place) = chunk.blocks.binary_search_by_key(&index, |block| block.index) else {
            return Err(Stop::Never(StoreError::Malformed));
        };
        let chunk_place = ChunkPlace::of(at.inode, number, chunk, inode.copies);
        change(self, &mut chunk.blocks[place])?;
        let chunk = chunk.clone();
        self.put_chunk(chunk_place, &chunk)?;
        Ok(Changed { inode: at.inode, version: inode.version })
    }

    /// Published bytes of a block are about to be written over.
    pub fn unsettle(&mut self, at: &InodePath, block: u64) -> Planned<Changed> {
        self.change_block(at, block, |_, record| {
            record.is_unsettled = true;
            Ok(())
        })
    }

    /// A block keeps these copies alone.
    pub fn mark_out(&mut self, at: &InodePath, block: u64, copies: &[Extent]) -> Planned<Changed> {
        let file = at.inode;
        self.change_block(at, block, |planner, record| {
            let (kept, gone): (Vec<Extent>, Vec<Extent>) = record.copies.iter().partition(|copy| copies.contains(copy));
            if kept.is_empty() || kept.len() != copies.len() {
                return Err(Stop::Never(StoreError::Malformed));
            }
            planner.plan.space.unmap.extend(gone.into_iter().map(|extent| (file, extent)));
            record.copies = kept;
            Ok(())
        })
    }

    /// A block is what was recovered of it, or where it was moved to. Refused if it is not as it was found any more.
    pub fn settle(&mut self, order: &SettleOrder) -> Planned<Changed> {
        let SettleOrder { file, chunk: number, block: place, old, new, copies, .. } = order;
        if !self.mutation.is(Mutant::MovedUnderWriter) {
            self.expect_no_other_writer(*file)?;
            if self.view.free::<WriterRecord>(writer_key(*file))?.is_none() {
                // The task holds no container, so nothing else keeps one from coming.
                self.plan.expect.push((writer_key(*file), Expect::Absent));
            }
        }
        let mut chunks = self.chunks(*file, &BTreeSet::from([*number]))?;
        let Some(chunk) = chunks.get_mut(number) else { return Err(Stop::Never(StoreError::Damaged)) };
        let at = ChunkPlace::of(*file, *number, chunk, *copies);
        let Some(block) = chunk.blocks.iter_mut().find(|block| *block == old) else {
            return Err(Stop::Never(StoreError::NotFound));
        };
        *block = BlockRecord { index: old.index, is_unsettled: false, ..new.clone() };
        let chunk = chunk.clone();
        self.replace_copies(*file, *place, Some(old), new);
        self.put_chunk(at, &chunk)?;
        Ok(Changed { inode: *file, version: 0 })
    }

    /// An orphaned file goes; its blocks before it, as many at a time as a commit takes.
    pub fn unused(&mut self, file: InodeId) -> Planned<()> {
        let orphan: Option<OrphanRecord> = self.view.free(orphan_key(file))?;
        let inode: Option<Inode> = self.view.free(inode_key(file))?;
        let (Some(orphan), Some(inode)) = (orphan, inode) else { return Err(Stop::Never(StoreError::NotFound)) };
        self.plan.expect.push((orphan_key(file), Expect::Value(to_value(&orphan))));
        self.plan.expect.push((inode_key(file), Expect::Value(to_value(&inode))));
        if inode.content == Content::Mapped {
            let (from, until) = map_chunk_range(file);
            let page = PageKey { from, until, most: 1 };
            let found = self.view.seen.pages.get(&page).ok_or(Stop::Page(page))?;
            if let Some((key, value)) = found.first() {
                let (number, mut chunk) = read_chunk(key, value)?;
                let at = ChunkPlace::of(file, number, &chunk, inode.copies);
                self.take_from_end(file, &mut chunk, |_| true);
                self.put_chunk_over(at, Some(value.clone()), &chunk);
                self.plan.is_step = true;
                return Ok(());
            }
        } else if !matches!(inode.content, Content::Inline(_)) {
            return Err(Stop::Never(StoreError::Damaged));
        }
        for key in [inode_key(file), orphan_key(file), writer_key(file)] {
            self.plan.writes.push((None, KvWrite::Delete(key)));
        }
        Ok(())
    }
}

/// A chunk that was found in a range: its number, and what it says.
fn read_chunk(key: &KvKey, value: &[u8]) -> Planned<(u32, MapChunk)> {
    let number = key.0.last_chunk::<4>().map(|number| u32::from_be_bytes(*number));
    let number = number.ok_or(Stop::Never(StoreError::Damaged))?;
    Ok((number, from_value(value).map_err(Stop::Never)?))
}

/// Whether a block can be published as it is said to be.
fn is_sane(record: &BlockRecord, block: u32) -> bool {
    let Some(first) = record.copies.first() else { return false };
    let length = first.length.get();
    let checksums = length.div_ceil(u64::from(crate::records::CHECKSUM_BYTES));
    (1..=u64::from(block)).contains(&length)
        && record.copies.len() <= COPIES_MAX
        && record.copies.iter().all(|copy| copy.length.get() == length && copy.end().is_some())
        && record.copies.iter().enumerate().all(|(at, copy)| !record.copies[..at].iter().any(|one| one.overlaps(copy)))
        && record.checksums.len() as u64 == checksums
}
