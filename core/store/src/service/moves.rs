//! Blocks leave namespaces that drain, and get back the copies that lost ones had.
//!
//! ```text
//!   tick ─► the next mapped extent of a namespace that is left ─► Writer ─► Inode ─► Chunk ─► PlacementAsk ─► TierRequest::Move ─► TreeEvent::Settle
//!             ▲                                                    └──────────┴────────┴──────────┴──────────────┘ not now: counted        │
//!             └──────────────────────────────────────────────────────── the next one ◄────────────────────────────────────────────────────┘
//! ```
//! **Which** namespaces are left: those that drain, those that are lost, and those that were not reached for [`ServiceSettings::repair_after`](super::ServiceSettings).
//! The index of their regions says which extents are mapped. *A pass* looks at each of them once. What cannot be moved is counted by its reason
//! ([`MovementInfo`]), and looked at again in a later pass: soon if something has changed, else later and later.
//!
//! **A move** replaces one copy of a block. The drives' side reads any copy that can be read, compares it with the block's checksums, and writes and flushes
//! the new one. The commit expects the block as it was found and that the file has no writer, whose session may know the old place; what was granted
//! goes back otherwise. Readers with an older map read the old copy, which that commit puts into quarantine. A block whose first copy is another one gets
//! that one's generation, and its checksums anew: under an older map the old place reads as an error once it is given out again.
//!
//! **What is granted** for a move is granted to a session of the service's own, which has the number of its life and no record: it needs no lease,
//! because every commit expects the life. Whoever takes over finds grants of a session that is over and puts them into quarantine, like those of
//! any session; what the dead process has sent to drives is carried out before anything is given out again ([`Recovery::reuse_at`](super::recovery::Recovery)).
//!
//! **How fast**: [`MOVES`] at a time, each with the memory of a block, [`RATE`] bytes a second in all, [`LOOKS`] extents between two ticks.
//!
//! Demotion is a move as well, with another choice of blocks and of classes ([`demotion`](super::demotion)); and a copy that a block lacks is made
//! by a move whose old copy stays ([`lacking`](super::lacking)).

use super::cold::Warmth;
use super::event::{BlockCopy, MoveBlock, ServiceEffect, TierAnswer, TierFailure, TierRequest};
use super::machine::Service;
use super::passes::{MoveEnd, MoveReason, MoveStep, MoveTask, Pass};
use super::state::{KvOwner, MoveRead, Namespace, OwnRead, SpaceOwner, TierOwner, Work};
use crate::Extent;
use crate::class::ClassId;
use crate::error::StoreError;
use crate::file::BlockSeed;
use crate::id::{NamespaceId, NodeId, RegionId, SessionId};
use crate::inode::{Content, Inode};
use crate::keys::{inode_key, map_chunk_key, writer_key};
use crate::kv::{KvAnswer, KvRequest, Versioned};
use crate::location::Location;
use crate::placement::{AskId, CopyGrant, GrantAnswer, PlacementAsk, PlacementError, PlacementEvent};
use crate::protocol::{MovementInfo, NamespaceState};
use crate::records::{BlockRecord, MapChunk, WriterRecord, blocks_per_chunk, from_value};
use crate::space::{MappedExtent, SpaceAnswer, SpaceError, SpaceRequest};
use crate::tree::{NameAnswer, RequestToken, SettleOrder, TreeEvent};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Moves at a time.
pub(super) const MOVES: usize = 4;

/// Bytes that are moved in a second at the most.
const RATE: u64 = 128 << 20;

/// So long nothing may have been moved to be made up for at once.
const BURST: Nanos = Nanos::from_millis(250);

/// Extents that are looked at between two ticks at the most.
const LOOKS: usize = 200;

/// Drives that are tried for one copy, one after the other.
const PLACES: u32 = 3;

impl Service {
    /// Whether a namespace's blocks are to be elsewhere.
    fn is_left(&self, found: &Namespace) -> bool {
        let is_gone_for_long = || found.since.saturating_add(self.settings.repair_after) <= self.clock.now;
        let is_gone = match found.state {
            NamespaceState::Lost => true,
            NamespaceState::Unreachable => is_gone_for_long(),
            NamespaceState::Up | NamespaceState::Draining => false,
        };
        !found.is_removed && (found.record.is_draining || is_gone)
    }

    /// The session that blocks are granted to for moves, in this life.
    pub(super) fn own_session(&self) -> SessionId {
        SessionId::of_service(self.standby.life.unwrap_or_default())
    }

    /// Whether that session is the one that this life has.
    pub(super) fn is_own_session(&self, session: SessionId) -> bool {
        session == self.own_session()
    }

    /// Time has passed: passes are begun, and moves.
    pub(super) fn move_blocks(&mut self, effects: &mut Vec<ServiceEffect>) {
        let now = self.clock.now;
        let is_left = |number: &NamespaceId| self.namespaces.get(number).is_some_and(|found| self.is_left(found));
        let left: BTreeSet<NamespaceId> = self.index.leaving().filter(is_left).collect();
        self.moves.passes.retain(|number, _| left.contains(number));
        self.moves.looks = LOOKS;
        for number in left {
            let has_task = self.moves.has_task_of(number);
            let pass = self.moves.passes.entry(number).or_default();
            if !has_task {
                pass.begin(now);
            }
        }
        self.return_what_is_left_over();
        self.begin_moves(effects);
    }

    /// What could not be given back when a move came to nothing.
    fn return_what_is_left_over(&mut self) {
        let session = self.own_session();
        if self.moves.tasks.is_empty() && self.space.granted_to(session) > 0 && !self.space.is_fencing(session) {
            self.ask_space(SpaceOwner::Nobody, SpaceRequest::Fence { session });
        }
    }

    fn begin_moves(&mut self, effects: &mut Vec<ServiceEffect>) {
        while self.may_begin_move() && self.moves.looks > 0 {
            let Some(copy) = self.next_copy() else { return };
            self.moves.looks -= 1;
            if !self.moves.has_task_at(&copy.extent) {
                self.begin_move(copy, MoveReason::Leaving, effects);
            }
        }
    }

    /// Begins to move a copy, or to make another one beside it.
    pub(super) fn begin_move(&mut self, copy: MappedExtent, reason: MoveReason, effects: &mut Vec<ServiceEffect>) {
        let id = self.next();
        let task = MoveTask {
            copy,
            reason,
            step: MoveStep::Reads,
            classes: Vec::new(),
            location: Location::default(),
            wanted: 0,
            chunk: 0,
            index: 0,
            old: BlockRecord::default(),
            granted: None,
            refused: 0,
            why: String::new(),
        };
        self.moves.tasks.insert(id, task);
        self.move_asks(id, MoveRead::Writer, KvRequest::Get(writer_key(copy.inode)), effects);
    }

    /// The next copy that leaves its namespace: of each in turn. Passes that have come to the end are over.
    fn next_copy(&mut self) -> Option<MappedExtent> {
        let turn = self.moves.turn;
        let behind = self.moves.passes.range((core::ops::Bound::Excluded(turn), core::ops::Bound::Unbounded));
        let numbers: Vec<NamespaceId> =
            behind.chain(self.moves.passes.range(..=turn)).map(|(number, _)| *number).collect();
        for number in numbers {
            let at = self.moves.passes.get(&number).and_then(|pass| pass.at);
            let (Some((region, offset)), Some(found)) = (at, self.namespaces.get(&number)) else { continue };
            let from = |of: RegionId| if of == region { offset } else { 0 };
            let mut regions = found.taken.range(region..);
            let copy = regions.find_map(|of| Some((*of, self.space.next_mapped(*of, from(*of))?)));
            let pass = self.moves.passes.get_mut(&number)?;
            pass.at = copy.map(|(region, copy)| (region, copy.extent.offset.get().saturating_add(1)));
            if let Some((_, copy)) = copy {
                self.moves.turn = number;
                return Some(copy);
            }
            self.moves.end_pass(number, self.clock.now);
        }
        None
    }

    fn move_asks(&mut self, id: u64, read: MoveRead, request: KvRequest, effects: &mut Vec<ServiceEffect>) {
        self.ask_kv(KvOwner::own(OwnRead::Move(id, read)), request, effects);
    }

    pub(super) fn move_read(&mut self, id: u64, read: MoveRead, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        let KvAnswer::Value(Ok(value)) = answer else {
            return self.end_move(id, MoveEnd::Failed("the metadata do not answer".into()), effects);
        };
        let next = match read {
            MoveRead::Writer => self.writer_of_move(id, value, effects),
            MoveRead::Inode => self.inode_of_move(id, value, effects),
            MoveRead::Chunk => self.chunk_of_move(id, value),
        };
        if let Err(end) = next {
            self.end_move(id, end, effects);
        }
    }

    fn writer_of_move(
        &mut self,
        id: u64,
        value: Option<Versioned>,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), MoveEnd> {
        let writer = value.and_then(|value| from_value::<WriterRecord>(&value.value).ok());
        // Whether one that has ended is fenced, the commit finds out.
        if writer.is_some_and(|writer| self.sessions.is_known(writer.session)) {
            return Err(MoveEnd::HasWriter);
        }
        let file = self.moves.tasks.get(&id).ok_or(MoveEnd::Gone)?.copy.inode;
        self.move_asks(id, MoveRead::Inode, KvRequest::Get(inode_key(file)), effects);
        Ok(())
    }

    fn inode_of_move(
        &mut self,
        id: u64,
        value: Option<Versioned>,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), MoveEnd> {
        let inode = value.and_then(|value| from_value::<Inode>(&value.value).ok());
        let inode = inode.filter(|inode| inode.content == Content::Mapped).ok_or(MoveEnd::Gone)?;
        let task = self.moves.tasks.get(&id).ok_or(MoveEnd::Gone)?;
        let copy = task.copy;
        let classes = match task.reason {
            MoveReason::Demoted(class) => self.classes_of_demotion(copy, &inode, class)?,
            MoveReason::Leaving | MoveReason::Lacking => self.classes_of_leaving(copy, &inode)?,
        };
        let task = self.moves.tasks.get_mut(&id).ok_or(MoveEnd::Gone)?;
        task.classes = classes;
        (task.location, task.wanted) = (inode.location, inode.copies);
        let per_chunk = u64::from(blocks_per_chunk(inode.block)).max(1);
        task.chunk = u32::try_from(copy.block / per_chunk).map_err(|_| MoveEnd::Gone)?;
        task.index = (copy.block % per_chunk) as u32;
        let key = map_chunk_key(copy.inode, task.chunk);
        self.move_asks(id, MoveRead::Chunk, KvRequest::Get(key), effects);
        Ok(())
    }

    /// Where a copy goes that leaves its namespace, or is made beside one: the same class first.
    fn classes_of_leaving(&self, copy: MappedExtent, inode: &Inode) -> Result<Vec<ClassId>, MoveEnd> {
        let class = self.namespaces.get(&copy.extent.namespace).ok_or(MoveEnd::Gone)?.record.class;
        let all = || (0..self.classes.names.len()).filter_map(|class| u16::try_from(class).ok()).map(ClassId).collect();
        let classes: Vec<ClassId> = if inode.classes.is_empty() { all() } else { inode.classes.clone() };
        let others = classes.into_iter().filter(|other| *other != class);
        Ok(core::iter::once(class).chain(others).collect())
    }

    /// Where a copy goes that is demoted, if it still is to be.
    fn classes_of_demotion(&self, copy: MappedExtent, inode: &Inode, class: ClassId) -> Result<Vec<ClassId>, MoveEnd> {
        match self.warmth(copy.inode, inode, class) {
            Warmth::Cold(_) => self.classes_for(inode, class, copy.extent.length.get()),
            Warmth::Hot(_) => Err(MoveEnd::Hot),
            Warmth::Kept => Err(MoveEnd::Kept),
            Warmth::NoNext => Err(MoveEnd::NoNext),
            Warmth::Gone => Err(MoveEnd::Gone),
        }
    }

    /// The block as its file's map has it: blocks for the new copy are asked for.
    fn chunk_of_move(&mut self, id: u64, value: Option<Versioned>) -> Result<(), MoveEnd> {
        let chunk = value.and_then(|value| from_value::<MapChunk>(&value.value).ok()).unwrap_or_default();
        let task = self.moves.tasks.get_mut(&id).ok_or(MoveEnd::Gone)?;
        let (leaves, index) = (task.copy.extent, task.index);
        let is_it = |block: &BlockRecord| block.index == index && block.copies.contains(&leaves);
        let old = chunk.blocks.into_iter().find(is_it).ok_or(MoveEnd::Gone)?;
        if old.is_unsettled {
            return Err(MoveEnd::Unsettled);
        }
        if task.reason == MoveReason::Lacking && old.copies.len() >= usize::from(task.wanted) {
            return Err(MoveEnd::Gone);
        }
        task.old = old;
        self.ask_for_place(id)
    }

    fn ask_for_place(&mut self, id: u64) -> Result<(), MoveEnd> {
        let task = self.moves.tasks.get_mut(&id).ok_or(MoveEnd::Gone)?;
        task.step = MoveStep::Places;
        let task = task.clone();
        if self.sources(&task.old).is_empty() {
            return Err(self.no_source(&task.old));
        }
        let ask = PlacementAsk {
            session: self.own_session(),
            block: task.copy.extent.length.get(),
            count: 1,
            copies: 1,
            location: Some(task.location.clone()).filter(|location| !location.as_str().is_empty()),
            avoid: self.avoided(&task, true),
            apart: self.stays(&task).map(|found| found.record.location.clone()).collect(),
            classes: task.classes,
            forwarded: false,
        };
        self.push(Work::Placement(PlacementEvent::Ask(AskId(id), ask)));
        Ok(())
    }

    /// The copies that can be read.
    fn sources(&self, block: &BlockRecord) -> Vec<BlockCopy> {
        let copies = block.copies.iter().enumerate();
        let reached = copies.filter(|(_, copy)| !self.recovery.is_silent(copy.namespace));
        reached.filter_map(|(index, copy)| self.copy_at(index, copy)).collect()
    }

    /// A copy, if its namespace is up.
    fn copy_at(&self, index: usize, copy: &Extent) -> Option<BlockCopy> {
        let found = self.namespaces.get(&copy.namespace)?;
        let is_up = found.state == NamespaceState::Up && !found.is_removed;
        let (target, content) = (found.record.target.clone(), found.record.label);
        let offset = copy.offset.get();
        is_up.then_some(BlockCopy { index, target, namespace: copy.namespace, content, offset })
    }

    fn no_source(&self, block: &BlockRecord) -> MoveEnd {
        match block.copies.iter().any(|copy| self.recovery.is_silent(copy.namespace)) {
            true => MoveEnd::Failed("its drives did not answer a moment ago".into()),
            false => MoveEnd::NoCopy,
        }
    }

    /// Namespaces of the copies that stay.
    fn stays<'a>(&'a self, task: &'a MoveTask) -> impl Iterator<Item = &'a Namespace> {
        let is_lacking = task.reason == MoveReason::Lacking;
        let stays = task.old.copies.iter().filter(move |copy| is_lacking || **copy != task.copy.extent);
        stays.filter_map(|copy| self.namespaces.get(&copy.namespace))
    }

    /// Nodes that the new copy may not be on: those of the copies that stay, and, if they count, those that did not answer a moment ago.
    fn avoided(&self, task: &MoveTask, counts_silent: bool) -> BTreeSet<NodeId> {
        let node = |namespace: &NamespaceId| self.namespaces.get(namespace).map(|found| found.record.node);
        let stays = self.stays(task).map(|found| found.record.node);
        let silent = self.recovery.silent().filter(|_| counts_silent).filter_map(|number| node(&number));
        stays.chain(silent).collect()
    }

    /// `Space` has granted a block for a move, or not.
    pub(super) fn move_granted(&mut self, ask: AskId, result: Result<SpaceAnswer, SpaceError>) {
        let answer = match result {
            Ok(SpaceAnswer::Granted(granted)) => {
                if let Some(task) = self.moves.tasks.get_mut(&ask.0) {
                    task.granted = granted.first().copied();
                }
                GrantAnswer::Extents(granted.into_iter().map(|granted| granted.extent).collect())
            }
            Err(SpaceError::Full) => GrantAnswer::Full,
            Ok(_) | Err(_) => GrantAnswer::Refused,
        };
        self.push(Work::Placement(PlacementEvent::Granted(ask, answer)));
    }

    /// There is a place for the new copy, or not.
    pub(super) fn move_placed(
        &mut self,
        id: u64,
        result: Result<Vec<CopyGrant>, PlacementError>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(task) = self.moves.tasks.get(&id).cloned() else { return };
        let end = match result {
            Ok(_) => match self.begin_copy(id, &task, effects) {
                Ok(()) => return,
                Err(end) => end,
            },
            Err(PlacementError::Full(_)) if task.refused > 0 => MoveEnd::Failed(task.why),
            Err(PlacementError::Full(_)) => self.no_place(&task),
            Err(why) => MoveEnd::Failed(format!("{why}")),
        };
        self.end_move(id, end, effects);
    }

    fn no_place(&self, task: &MoveTask) -> MoveEnd {
        let is_there = |avoid: BTreeSet<NodeId>| {
            let mut open = self.namespaces.values().filter(|found| found.is_open() && !found.taken.is_empty());
            open.any(|found| task.classes.contains(&found.record.class) && !avoid.contains(&found.record.node))
        };
        match (is_there(self.avoided(task, true)), is_there(self.avoided(task, false))) {
            (true, _) => MoveEnd::NoRoom,
            (false, true) => MoveEnd::Failed("the drives that could take it did not answer a moment ago".into()),
            (false, false) => MoveEnd::NoNode,
        }
    }

    /// Has the new copy written.
    fn begin_copy(&mut self, id: u64, task: &MoveTask, effects: &mut Vec<ServiceEffect>) -> Result<(), MoveEnd> {
        let new = self.moved(task).ok_or_else(|| MoveEnd::Failed("no block was granted for it".into()))?;
        let (place, to) =
            new.copies.iter().enumerate().find(|(_, copy)| !task.old.copies.contains(copy)).ok_or(MoveEnd::Gone)?;
        let to = self.copy_at(place, to).ok_or_else(|| MoveEnd::Failed("the drive for it is gone".into()))?;
        let sources = self.sources(&task.old);
        if sources.is_empty() {
            return Err(self.no_source(&task.old));
        }
        let seed = BlockSeed { inode: task.copy.inode, block: task.copy.block, generation: task.old.generation };
        let length = task.copy.extent.length.get();
        let earliest = self.clock.now.saturating_sub(BURST);
        let takes = Nanos(length.saturating_mul(1_000_000_000) / RATE);
        self.moves.begin_at = self.moves.begin_at.max(earliest).saturating_add(takes);
        if let Some(task) = self.moves.tasks.get_mut(&id) {
            task.step = MoveStep::Copies;
        }
        let request = MoveBlock {
            store: self.store.id,
            seed,
            checksums: task.old.checksums.clone(),
            becomes: BlockSeed { generation: new.generation, ..seed },
            length,
            sources,
            to,
        };
        self.ask_tier(TierOwner::Move(id), TierRequest::Move(request), effects);
        Ok(())
    }

    /// What the block becomes; its checksums are still those that it had. The first copy's generation is the block's.
    fn moved(&self, task: &MoveTask) -> Option<BlockRecord> {
        let (granted, leaves) = (task.granted?, task.copy.extent);
        let to = Extent { length: leaves.length, ..granted.extent };
        let is_lacking = task.reason == MoveReason::Lacking;
        let goes = |copy: &Extent| *copy == leaves && !is_lacking;
        let replaced = task.old.copies.iter().map(|copy| if goes(copy) { to } else { *copy });
        let copies: Vec<Extent> = replaced.chain(is_lacking.then_some(to)).collect();
        let generation = match copies.first() {
            Some(first) if *first == to => granted.generation,
            first => first.and_then(|first| self.space.generation(first)).unwrap_or(task.old.generation),
        };
        Some(BlockRecord { generation, copies, ..task.old.clone() })
    }

    /// The new copy is written, or not: the map is to name it.
    pub(super) fn block_copied(
        &mut self,
        id: u64,
        answer: Result<TierAnswer, TierFailure>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(task) = self.moves.tasks.get(&id).cloned() else { return };
        let to = task.granted.map(|granted| granted.extent.namespace);
        let why = match answer {
            Ok(TierAnswer::Moved { checksums }) => {
                let Some(new) = self.moved(&task) else { return self.end_move(id, MoveEnd::Gone, effects) };
                let new = BlockRecord { checksums, ..new };
                let token = self.next();
                if let Some(task) = self.moves.tasks.get_mut(&id) {
                    task.step = MoveStep::Commits(token);
                }
                let (file, block, session) = (task.copy.inode, task.copy.block, self.own_session());
                let (chunk, copies) = (task.chunk, task.wanted);
                let order = SettleOrder { file, chunk, block, old: task.old, new, session, copies };
                return self.push(Work::Tree(TreeEvent::Settle(RequestToken(token), order)));
            }
            Ok(TierAnswer::NotWritten { why }) => {
                self.given_up(&to.into_iter().collect::<Vec<_>>());
                to.into_iter().for_each(|drive| self.look_soon_at(drive));
                return self.place_again(id, why, effects);
            }
            Ok(_) => "the drives' answer is another one".into(),
            Err(TierFailure(why)) => why,
        };
        // Whether one that has failed is there at all is looked at before long.
        let drives = task.old.copies.iter().map(|copy| copy.namespace).chain(to);
        drives.collect::<Vec<_>>().into_iter().for_each(|drive| self.look_soon_at(drive));
        self.end_move(id, MoveEnd::Failed(why), effects);
    }

    /// A drive could not write the new copy: another one may.
    fn place_again(&mut self, id: u64, why: String, effects: &mut Vec<ServiceEffect>) {
        let Some(task) = self.moves.tasks.get_mut(&id) else { return };
        task.refused += 1;
        task.why.clone_from(&why);
        let (granted, refused) = (task.granted.take(), task.refused);
        granted.into_iter().for_each(|granted| self.give_back(granted.extent));
        let asked = if refused < PLACES { self.ask_for_place(id) } else { Err(MoveEnd::Failed(why)) };
        if let Err(end) = asked {
            self.end_move(id, end, effects);
        }
    }

    fn give_back(&mut self, extent: Extent) {
        let (session, extents) = (self.own_session(), alloc::vec![extent]);
        self.ask_space(SpaceOwner::Nobody, SpaceRequest::Return { session, extents });
    }

    /// Whether that answer of the tree is of a block that was moved, which is over then.
    pub(super) fn move_committed(&mut self, id: u64, answer: &NameAnswer, effects: &mut Vec<ServiceEffect>) -> bool {
        let task = self.moves.tasks.iter().find(|(_, task)| task.step == MoveStep::Commits(id));
        let Some(number) = task.map(|(number, _)| *number) else { return false };
        let end = match answer {
            Ok(_) => MoveEnd::Moved,
            Err(StoreError::Busy) => MoveEnd::HasWriter,
            // It is not as it was found any more.
            Err(StoreError::NotFound) => MoveEnd::Gone,
            Err(why) => MoveEnd::Failed(format!("{why}")),
        };
        self.end_move(number, end, effects);
        true
    }

    /// A move is over. What was granted for it and is not used goes back.
    fn end_move(&mut self, id: u64, end: MoveEnd, effects: &mut Vec<ServiceEffect>) {
        let Some(task) = self.moves.tasks.remove(&id) else { return };
        let (extent, is_moved) = (task.copy.extent, end == MoveEnd::Moved);
        if let Some(granted) = task.granted {
            let used = if is_moved { extent.length.get() } else { 0 };
            let (offset, length) = (granted.extent.offset.get() + used, granted.extent.length.get() - used);
            let unused = Extent { offset: offset.into(), length: length.into(), ..granted.extent };
            if length > 0 {
                self.give_back(unused);
            }
        }
        let end = match end {
            MoveEnd::Failed(why) => {
                MoveEnd::Failed(format!("inode {}, block {}: {why}", task.copy.inode, task.copy.block))
            }
            end => end,
        };
        match task.reason {
            MoveReason::Demoted(class) => {
                self.demotion.classes.entry(class).or_default().ended(end, extent.length.get())
            }
            MoveReason::Lacking => self.lacking.found.count(end),
            MoveReason::Leaving => {
                if let Some(pass) = self.moves.passes.get_mut(&extent.namespace) {
                    pass.ended(end, extent.length.get());
                }
            }
        }
        self.moves.end_pass(extent.namespace, self.clock.now);
        self.make_copies(effects);
        self.begin_moves(effects);
        self.begin_demotions(effects);
    }

    /// What leaves which namespace, for operators.
    pub(super) fn movement_infos(&self) -> Vec<MovementInfo> {
        let info = |(number, pass): (&NamespaceId, &Pass)| {
            let found = self.namespaces.get(number).filter(|found| self.is_left(found))?;
            let mapped = found.taken.iter().map(|region| self.space.mapped(*region));
            let left = mapped.fold((0, 0), |(blocks, bytes), one| (blocks + one.0, bytes + one.1));
            Some(pass.info(*number, !found.record.is_draining, left))
        };
        self.moves.passes.iter().filter_map(info).collect()
    }

    /// What holds at all times between two events.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check_moves(&self) -> Result<(), &'static str> {
        let is = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        is(self.moves.tasks.len() <= MOVES, "a few blocks are moved at a time")?;
        let copies: BTreeSet<_> =
            self.moves.tasks.values().map(|task| (task.copy.extent.namespace, task.copy.extent.offset)).collect();
        is(copies.len() == self.moves.tasks.len(), "a copy is moved once at a time")
    }
}
