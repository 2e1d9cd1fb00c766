//! Blocks that a lost writer has left unsettled: one copy is read, the others are written from it, and the block is settled with new checksums.
//!
//! ```text
//!   tick ─► Look ─► Writer ─► Fenced ─► Inode ─► Chunk ─► block after block: TierRequest::Recover ─► TreeEvent::Settle
//!            ▲        └─────────┴─────────┴────────┴── not now: the next chunk                              │
//!            └───────────────────────────── no more chunks ◄────────────────────────────────────────────────┘
//! ```
//! [`KeySpace::Unsettled`] is the index. A chunk in it is looked at when its file is nobody's to write, because it was closed or the session that has it has
//! ended and is fenced: numbers of sessions are not used twice, so that stays so. A client closes a file when no write of its is on its way. Until the blocks are settled nobody reads them, and nobody opens the file for writing
//! ([`StoreError::Recovering`]); so nothing but this writes to their places. The file counts as open meanwhile: deleted, it keeps its blocks.
//!
//! A process that dies has changed nothing but copies that nobody reads; the next one begins again, and not before what the dead one had
//! sent has come to its end ([`ServiceSettings::fence_wait`](super::ServiceSettings)). A block of which no copy can be read is tried again, and named in
//! the status. Copies that cannot be written are marked out, as they are by a writer.
//!
//! A write that was given up may be carried out until then as well. The copy is nobody's by then, so no block at all is given out again before
//! that time is over: [`Recovery::reuse_at`]. A drive that has not answered is left alone for as long, so that it does not hold up the others' blocks.

use super::event::{BlockCopy, RecoverBlock, ServiceEffect, TierAnswer, TierFailure, TierRequest};
use super::machine::Service;
use super::state::{KvOwner, OwnRead, RecoveryRead, TierOwner, Work};
use crate::Extent;
use crate::error::StoreError;
use crate::file::BlockSeed;
use crate::id::{InodeId, NamespaceId, SessionId};
use crate::inode::{Content, Inode};
use crate::keys::{KeySpace, inode_key, map_chunk_key, session_key, unsettled_of, writer_key};
use crate::kv::{Commit, CommitOutcome, Expect, KvAnswer, KvKey, KvRequest, RANGE_MAX, Versioned};
use crate::members::HoldRecord;
use crate::mutant::Mutant;
use crate::protocol::NamespaceState;
use crate::records::{BlockRecord, MapChunk, WriterRecord, blocks_per_chunk, from_value};
use crate::tree::{NameAnswer, RequestToken, SettleOrder, TreeEvent};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Between two looks at the index, where nothing tells of a lost writer before.
const LOOK_EVERY: Nanos = Nanos::from_secs(2);

/// Blocks that could not be recovered and are named in the status at the most.
const NAMED: usize = 8;

/// A chunk with unsettled blocks: the file, and the chunk's number.
type ChunkOf = (InodeId, u32);

/// A chunk that is being worked at.
#[derive(Clone, Debug)]
struct RecoveryTask {
    of: ChunkOf,
    /// Somebody had the file open when it was begun: its blocks stay, also if it has no name.
    was_open: bool,
    /// The number in the file of the chunk's first block.
    first: u64,
    /// Bytes of the file, and of one of its blocks.
    size: u64,
    block: u64,
    /// Copies of each block that the file wants.
    copies: u8,
    /// Its unsettled blocks that are left; the last one is worked at.
    blocks: Vec<BlockRecord>,
    /// Asked of the tree: the last one is to be settled.
    settles: Option<u64>,
}

/// Why a chunk was not recovered, and when it is tried again.
#[derive(Clone, Debug)]
struct NotRecovered {
    until: Nanos,
    why: String,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// An answer of the key-value store is waited for.
    reads: bool,
    look_at: Nanos,
    /// The page of the index behind which the next one begins.
    behind: Option<KvKey>,
    queue: VecDeque<ChunkOf>,
    task: Option<RecoveryTask>,
    failed: BTreeMap<ChunkOf, NotRecovered>,
    /// Drives that have not answered, and until when they are left alone.
    silent: BTreeMap<NamespaceId, Nanos>,
    /// Until then a drive may carry out a write of this process or of the one before.
    reuse_at: Nanos,
}

impl Recovery {
    /// The file that is worked at: it counts as open.
    pub fn holds(&self) -> Option<InodeId> {
        self.task.as_ref().map(|task| task.of.0)
    }

    /// When what was given up can be given out again: not before.
    pub fn reuse_at(&self) -> Nanos {
        self.reuse_at
    }

    /// Whether a drive has not answered a moment ago.
    pub fn is_silent(&self, namespace: NamespaceId) -> bool {
        self.silent.contains_key(&namespace)
    }

    /// Drives that have not answered a moment ago.
    pub fn silent(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.silent.keys().copied()
    }

    /// A session is over: what it has left is looked for at once.
    pub fn look_soon(&mut self) {
        self.look_at = Nanos(0);
    }

    /// What could not be recovered, for the status.
    pub fn trouble(&self) -> Option<String> {
        let named: Vec<&str> = self.failed.values().take(NAMED).map(|failed| failed.why.as_str()).collect();
        (!named.is_empty()).then(|| format!("not recovered, and tried again: {}", named.join("; ")))
    }
}

impl Service {
    /// Time has passed: the index is looked at, unless a chunk is worked at.
    pub(super) fn recover(&mut self, effects: &mut Vec<ServiceEffect>) {
        let now = self.clock.now;
        self.recovery.silent.retain(|_, until| *until > now);
        let others_end = self.others_end().max(self.began.saturating_add(self.settings.fence_wait));
        let is_early = now < others_end || now < self.recovery.look_at;
        if is_early || self.recovery.reads || self.recovery.task.is_some() {
            return;
        }
        let from = self.recovery.behind.clone().unwrap_or_else(|| KeySpace::Unsettled.key(&[]));
        let request = KvRequest::Range { from, until: KeySpace::Unsettled.end(), most: RANGE_MAX };
        self.recovery_asks(RecoveryRead::Look, request, effects);
    }

    fn recovery_asks(&mut self, read: RecoveryRead, request: KvRequest, effects: &mut Vec<ServiceEffect>) {
        self.recovery.reads = true;
        self.ask_kv(KvOwner::own(OwnRead::Recovery(read)), request, effects);
    }

    pub(super) fn recovery_read(&mut self, read: RecoveryRead, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        self.recovery.reads = false;
        match (read, answer) {
            (RecoveryRead::Look, KvAnswer::Page(Ok(page))) => self.index_read(page, effects),
            (RecoveryRead::Writer, KvAnswer::Value(Ok(value))) => self.writer_read(value, effects),
            (RecoveryRead::Fenced, KvAnswer::Outcome(CommitOutcome::Done(_))) => self.ask_for_inode(effects),
            // The session goes on.
            (RecoveryRead::Fenced, _) => self.next_chunk(effects),
            (RecoveryRead::Inode, KvAnswer::Value(Ok(value))) => self.inode_read(value, effects),
            (RecoveryRead::Chunk, KvAnswer::Value(Ok(value))) => self.unsettled_read(value, effects),
            // No answer: the next look begins anew.
            _ => {
                self.recovery.queue.clear();
                self.next_chunk(effects);
            }
        }
    }

    fn index_read(&mut self, page: Vec<(KvKey, Versioned)>, effects: &mut Vec<ServiceEffect>) {
        let now = self.clock.now;
        let is_last = page.len() < RANGE_MAX;
        self.recovery.behind = page.last().filter(|_| !is_last).map(|(key, _)| {
            let mut behind = key.clone();
            behind.0.push(0);
            behind
        });
        let found: Vec<ChunkOf> = page.iter().filter_map(|(key, _)| unsettled_of(key)).collect();
        if is_last && found.is_empty() {
            self.recovery.failed.clear();
        }
        let is_due = |of: &ChunkOf| self.recovery.failed.get(of).is_none_or(|failed| failed.until <= now);
        let due: Vec<ChunkOf> = found.into_iter().filter(is_due).collect();
        self.recovery.queue.extend(due);
        self.recovery.look_at = if is_last { now.saturating_add(LOOK_EVERY) } else { now };
        self.next_chunk(effects);
    }

    /// The chunk that was worked at is done with, or left; the next one is looked at.
    fn next_chunk(&mut self, effects: &mut Vec<ServiceEffect>) {
        if let Some(task) = self.recovery.task.take() {
            self.let_go(task.of.0);
        }
        let Some(of) = self.recovery.queue.pop_front() else { return };
        // From now on its blocks stay; whether they were about to go is told by its inode.
        let was_open = self.handles.keep_open(of.0);
        self.recovery.task = Some(RecoveryTask {
            of,
            was_open,
            first: 0,
            size: 0,
            block: 0,
            copies: 0,
            blocks: Vec::new(),
            settles: None,
        });
        self.recovery_asks(RecoveryRead::Writer, KvRequest::Get(writer_key(of.0)), effects);
    }

    fn writer_read(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        let Some(value) = value else { return self.ask_for_inode(effects) };
        let Ok(writer) = from_value::<WriterRecord>(&value.value) else {
            return self.not_recovered("its writer's record is damaged; run weir store fsck".into(), effects);
        };
        let keys = [session_key(writer.session), HoldRecord::key(writer.session)];
        let expect = keys.into_iter().map(|key| (key, Expect::Absent)).collect();
        let commit = KvRequest::Commit(Commit { expect, writes: Vec::new() });
        self.recovery_asks(RecoveryRead::Fenced, commit, effects);
    }

    fn ask_for_inode(&mut self, effects: &mut Vec<ServiceEffect>) {
        let Some(file) = self.recovery.holds() else { return };
        self.recovery_asks(RecoveryRead::Inode, KvRequest::Get(inode_key(file)), effects);
    }

    fn inode_read(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        let inode = value.and_then(|value| from_value::<Inode>(&value.value).ok());
        let inode = inode.filter(|inode| inode.content == Content::Mapped);
        let (Some(inode), Some(task)) = (inode, &mut self.recovery.task) else { return self.next_chunk(effects) };
        if inode.parent == InodeId(0) && !task.was_open {
            // It was deleted, and its blocks are being given up.
            return self.next_chunk(effects);
        }
        task.first = u64::from(task.of.1) * u64::from(blocks_per_chunk(inode.block));
        (task.size, task.block, task.copies) = (inode.size, inode.block.into(), inode.copies);
        let key = map_chunk_key(task.of.0, task.of.1);
        self.recovery_asks(RecoveryRead::Chunk, KvRequest::Get(key), effects);
    }

    fn unsettled_read(&mut self, value: Option<Versioned>, effects: &mut Vec<ServiceEffect>) {
        let chunk = value.map_or(Ok(MapChunk::default()), |value| from_value::<MapChunk>(&value.value));
        let Ok(chunk) = chunk else {
            return self.not_recovered("a chunk of its map is damaged; run weir store fsck".into(), effects);
        };
        if let Some(task) = &mut self.recovery.task {
            task.blocks = chunk.blocks.into_iter().filter(|block| block.is_unsettled).collect();
        }
        self.next_block(effects);
    }

    /// Has the next block of the chunk read and written.
    fn next_block(&mut self, effects: &mut Vec<ServiceEffect>) {
        let Some(task) = &self.recovery.task else { return };
        let (of, first, size, block_bytes) = (task.of, task.first, task.size, task.block);
        let Some(record) = task.blocks.last().cloned() else {
            self.recovery.failed.remove(&of);
            return self.next_chunk(effects);
        };
        let block = first + u64::from(record.index);
        let is_there = |found: &super::state::Namespace| found.state != NamespaceState::Lost && !found.is_removed;
        let is_silent = |copy: &Extent| self.recovery.silent.contains_key(&copy.namespace);
        if record.copies.iter().all(is_silent) {
            return self.not_recovered(format!("block {block}: its drives did not answer a moment ago"), effects);
        }
        let copies =
            record.copies.iter().enumerate().filter(|(_, copy)| !is_silent(copy)).filter_map(|(index, copy)| {
                let found = self.namespaces.get(&copy.namespace).filter(|found| is_there(found))?;
                let (target, content) = (found.record.target.clone(), found.record.label);
                Some(BlockCopy { index, target, namespace: copy.namespace, content, offset: copy.offset.get() })
            });
        let copies: Vec<BlockCopy> = copies.collect();
        if copies.is_empty() {
            return self.not_recovered(format!("block {block}: the drives of all its copies are lost"), effects);
        }
        let length = record.copies.first().map_or(0, |copy| copy.length.get());
        let used = size.saturating_sub(block.saturating_mul(block_bytes)).min(length);
        let seed = BlockSeed { inode: of.0, block, generation: record.generation };
        let request = TierRequest::Recover(RecoverBlock { store: self.store.id, seed, length, used, copies });
        self.ask_tier(TierOwner::Recovery, request, effects);
    }

    /// A block was read and written, or not.
    pub(super) fn block_recovered(
        &mut self,
        answer: Result<TierAnswer, TierFailure>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(task) = &self.recovery.task else { return };
        let Some(old) = task.blocks.last().cloned() else { return };
        let (file, chunk, block) = (task.of.0, task.of.1, task.first + u64::from(old.index));
        let wanted = task.copies;
        let good = match &answer {
            Ok(TierAnswer::Recovered { good, .. }) => &good[..],
            _ => &[],
        };
        let silent = old.copies.iter().enumerate().filter(|(index, _)| !good.contains(index));
        let silent: Vec<NamespaceId> = silent.map(|(_, copy)| copy.namespace).collect();
        self.given_up(&silent);
        let (checksums, good) = match answer {
            Ok(TierAnswer::Recovered { checksums, good }) => (checksums, good),
            Ok(_) => return self.not_recovered(format!("block {block}: the drives' answer is another one"), effects),
            Err(TierFailure(why)) => return self.not_recovered(format!("block {block}: {why}"), effects),
        };
        let copies = good.iter().filter_map(|index| old.copies.get(*index).copied()).collect();
        let new = BlockRecord { is_unsettled: false, copies, checksums, ..old.clone() };
        let order = SettleOrder { file, chunk, block, old, new, session: SessionId(0), copies: wanted };
        let token = self.next();
        if let Some(task) = &mut self.recovery.task {
            task.settles = Some(token);
        }
        self.push(Work::Tree(TreeEvent::Settle(RequestToken(token), order)));
    }

    /// Copies on these drives were not written, or nobody knows: a write of one may come late.
    pub(super) fn given_up(&mut self, silent: &[NamespaceId]) {
        if silent.is_empty() {
            return;
        }
        let over = self.clock.now.saturating_add(self.settings.fence_wait);
        if !self.planted.is(Mutant::ReuseUnderRecovery) {
            self.recovery.reuse_at = self.recovery.reuse_at.max(over);
        }
        self.recovery.silent.extend(silent.iter().map(|namespace| (*namespace, over)));
    }

    /// Whether that answer of the tree is of a block that is being settled, which is then taken further.
    pub(super) fn settled(&mut self, id: u64, answer: &NameAnswer, effects: &mut Vec<ServiceEffect>) -> bool {
        let Some(task) = self.recovery.task.as_mut().filter(|task| task.settles == Some(id)) else { return false };
        task.settles = None;
        match answer {
            // One that is not as it was found any more was settled, or is gone.
            Ok(_) | Err(StoreError::NotFound) => {
                task.blocks.pop();
                self.next_block(effects);
            }
            Err(why) => {
                let why = format!("{why}");
                self.not_recovered(why, effects);
            }
        }
        true
    }

    /// The chunk is left for now. A drive may still carry out what it was sent: it is tried again after that.
    fn not_recovered(&mut self, why: String, effects: &mut Vec<ServiceEffect>) {
        if let Some(task) = &self.recovery.task {
            let until = self.clock.now.saturating_add(self.settings.fence_wait).saturating_add(LOOK_EVERY);
            let why = format!("inode {}, {why}", task.of.0);
            self.recovery.failed.insert(task.of, NotRecovered { until, why });
        }
        self.next_chunk(effects);
    }
}
