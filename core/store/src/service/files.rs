//! Open files: handles, grants, maps, and deleted files that somebody still has open.

use super::event::ServiceEffect;
use super::machine::{Service, blocks_of};
use super::state::{Granting, Handle, KvOwner, OwnRead, Pending, SpaceOwner, What, Work};
use crate::Extent;
use crate::class::ClassId;
use crate::error::StoreError;
use crate::file::NewBlock;
use crate::id::{InodeId, RegionId, SessionId};
use crate::inode::{Content, Inode};
use crate::keys::{map_chunk_key, session_key};
use crate::kv::{Commit, Expect, KvRequest, KvUnavailable, Versioned};
use crate::placement::{AskId, BlockWish, CopyGrant, GrantAnswer, PlacementAsk, PlacementError, PlacementEvent};
use crate::policy::demote_after;
use crate::protocol::Answer;
use crate::records::{MapChunk, from_value};
use crate::space::{Epoch, SpaceAnswer, SpaceError, SpaceRequest};
use crate::tree::{FileChange, InodePath, TreeEvent};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Handles of one session at the most.
const HANDLES_MAX: usize = 1 << 16;

impl Service {
    /// The handle of that number, if it is this session's.
    pub(super) fn handle(&self, session: Option<SessionId>, handle: u64) -> Result<&Handle, StoreError> {
        let found = self.handles.get(handle).filter(|found| Some(found.session) == session);
        found.ok_or(StoreError::NotOpen)
    }

    /// The handle of that number, if it is this session's and open for writing.
    pub(super) fn writer(&self, session: Option<SessionId>, handle: u64) -> Result<&Handle, StoreError> {
        self.handle(session, handle).and_then(|found| if found.writes { Ok(found) } else { Err(StoreError::NotOpen) })
    }

    /// A file is open: the answer to the request that has opened it.
    pub(super) fn opened(
        &mut self,
        id: u64,
        at: InodePath,
        inode: Box<Inode>,
        writes: bool,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let session = self.pending.get(&id).map(|pending| (pending.session, pending.is_session_over));
        let Some((Some(session), is_over)) = session else {
            return self.fail(id, StoreError::NoSession, "", effects);
        };
        if is_over {
            return self.fail(id, StoreError::SessionGone, "", effects);
        }
        if inode.kind.is_container() {
            return self.fail(id, StoreError::IsDirectory, "", effects);
        }
        if self.handles.count(session) >= HANDLES_MAX {
            return self.fail(id, StoreError::Overloaded, "", effects);
        }
        let has_name = inode.parent != InodeId(0);
        if !has_name && !self.is_kept(at.inode) {
            return self.fail(id, StoreError::NotFound, "", effects);
        }
        let at = InodePath { inode: at.inode, parent: if has_name { inode.parent } else { at.parent } };
        if let Some(is_given_up @ true) = self.opening.get_mut(&(session, id)) {
            // Another handle of the session was closed meanwhile, and the file with it: it is taken again.
            *is_given_up = false;
            if let Err(error) = self.own_change(id, session, What::OpenWriter(at), FileChange::OpenWriter(at)) {
                self.fail(id, error, "", effects);
            }
            return;
        }
        let request = self.pending.get(&id).map(|pending| pending.number).unwrap_or_default();
        let handle = Handle {
            session,
            request,
            at,
            writes,
            block: inode.block,
            copies: inode.copies,
            classes: inode.classes.clone(),
            location: inode.location.clone(),
            is_demotable: self.demotes() && inode.content == Content::Mapped && demote_after(&inode).is_some(),
        };
        if handle.is_demotable {
            self.demotion.opened.note(at.inode, self.clock.now);
        }
        let handle = match self.handles.of_request(&handle) {
            Some(number) => number,
            None => self.handles.add(self.settings.process, handle),
        };
        self.answer(id, Answer::Opened { handle, at, inode }, effects);
    }

    /// A session closes a file. It is nobody's to write when that was the last handle by which the session writes it.
    pub(super) fn close_file(
        &mut self,
        id: u64,
        session: SessionId,
        handle: u64,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let (at, writes) = self.handle(Some(session), handle).map(|found| (found.at, found.writes))?;
        self.close(handle);
        if !writes || self.handles.writers(session, at.inode) > 0 {
            self.answer(id, Answer::Done {}, effects);
            return Ok(());
        }
        for (_, is_given_up) in self.opening.range_mut((session, 0)..=(session, u64::MAX)) {
            *is_given_up = true;
        }
        self.own_change(id, session, What::Step, FileChange::CloseWriter(at))
    }

    /// A handle is no more.
    pub(super) fn close(&mut self, handle: u64) {
        let Some((closed, is_last)) = self.handles.remove(handle) else { return };
        if closed.is_demotable {
            self.demotion.opened.note(closed.at.inode, self.clock.now);
        }
        if is_last {
            self.not_open(closed.at.inode);
        }
    }

    /// A file counts as open once less.
    pub(super) fn let_go(&mut self, file: InodeId) {
        if self.handles.let_go(file) {
            self.not_open(file);
        }
    }

    /// A file is not open any more: without a name it goes.
    fn not_open(&mut self, file: InodeId) {
        if self.orphans.contains(&file) {
            self.orphaned(file);
        }
    }

    /// Whether a file without a name is there in full: somebody has it open, or may have.
    fn is_kept(&self, file: InodeId) -> bool {
        self.handles.is_open(file) || self.orphans.contains(&file) || self.clock.now < self.grace()
    }

    /// Until then clients of an earlier process may open their files again.
    fn grace(&self) -> Nanos {
        self.began.saturating_add(self.settings.timing.lease())
    }

    /// A file without a name: it goes when nobody has it open.
    pub(super) fn orphaned(&mut self, file: InodeId) {
        if self.handles.is_open(file) || self.clock.now < self.grace() {
            self.orphans.insert(file);
            return;
        }
        self.orphans.remove(&file);
        self.push(Work::Tree(TreeEvent::Unused(file)));
    }

    /// Whether files that were deleted, and that nobody has open, still have their blocks.
    fn has_deleted_files(&self) -> bool {
        self.tree.is_freeing() || self.orphans.iter().any(|file| !self.handles.is_open(*file))
    }

    pub(super) fn free_orphans(&mut self) {
        let free: Vec<InodeId> = self.orphans.iter().filter(|file| !self.handles.is_open(**file)).copied().collect();
        free.into_iter().for_each(|file| self.orphaned(file));
    }

    /// A chunk of a file's map is read. The epoch is from before.
    pub(super) fn read_chunk(&mut self, id: u64, file: InodeId, chunk: u32, effects: &mut Vec<ServiceEffect>) {
        let epoch = self.sessions.epoch();
        let request = KvRequest::Get(map_chunk_key(file, chunk));
        self.ask_kv(KvOwner::own(OwnRead::Map(id, epoch)), request, effects);
    }

    pub(super) fn chunk_read(
        &mut self,
        id: u64,
        epoch: Epoch,
        value: Result<Option<Versioned>, KvUnavailable>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let chunk = match value {
            Err(KvUnavailable) => return self.fail(id, StoreError::Unavailable, "", effects),
            Ok(None) => MapChunk::default(),
            Ok(Some(found)) => match from_value(&found.value) {
                Ok(chunk) => chunk,
                Err(error) => return self.fail(id, error, "a chunk of the file's map", effects),
            },
        };
        self.answer(id, Answer::Chunk { chunk, epoch }, effects);
    }

    /// Why something that clients of before a power cut may be at is not done yet.
    pub(super) fn held_back(&self, what: &str) -> alloc::string::String {
        let left = self.others_end().saturating_sub(self.clock.now).get().div_ceil(1_000_000_000);
        alloc::format!("{what} again {left} s from now, when clients of before the power cut have stopped")
    }

    /// Blocks for a file: as many, and of so many bytes each.
    pub(super) fn grant(
        &mut self,
        id: u64,
        session: SessionId,
        handle: &Handle,
        (count, bytes): (u32, u32),
        effects: &mut Vec<ServiceEffect>,
    ) {
        if !self.gives_out() {
            let more = self.held_back("blocks are given out");
            return self.fail(id, StoreError::Unavailable, more, effects);
        }
        let all = || (0..self.classes.names.len()).filter_map(|class| u16::try_from(class).ok()).map(ClassId).collect();
        let classes = if handle.classes.is_empty() { all() } else { handle.classes.clone() };
        let location = (!handle.location.as_str().is_empty()).then(|| handle.location.clone());
        let ask = PlacementAsk {
            session,
            classes,
            block: u64::from(bytes),
            count: u64::from(count),
            copies: handle.copies,
            location,
            avoid: BTreeSet::new(),
            apart: Vec::new(),
            forwarded: false,
        };
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.what = What::Grant(Granting { block: u64::from(bytes), ..Granting::default() });
        }
        self.push(Work::Placement(PlacementEvent::Ask(AskId(id), ask)));
    }

    /// `Space` is to give out blocks of a region, unless the session has ended.
    pub(super) fn grant_in(&mut self, ask: AskId, session: SessionId, region: RegionId, wish: &BlockWish) {
        let mut with = Commit::default();
        if !self.is_own_session(session) {
            with.expect.push((session_key(session), Expect::Present));
        }
        let request = SpaceRequest::Grant { session, region, block: wish.block, count: wish.count, with };
        self.ask_space(SpaceOwner::Placement(ask), request);
    }

    pub(super) fn space_granted(&mut self, ask: AskId, result: Result<SpaceAnswer, SpaceError>) {
        let granting = self.pending.get_mut(&ask.0).map(|pending| &mut pending.what);
        let Some(What::Grant(granting)) = granting else {
            return self.push(Work::Placement(PlacementEvent::Granted(ask, GrantAnswer::Refused)));
        };
        let answer = match result {
            Ok(SpaceAnswer::Granted(granted)) => {
                granting.granted.extend(granted.iter().map(|granted| (granted.extent, granted.generation)));
                GrantAnswer::Extents(granted.into_iter().map(|granted| granted.extent).collect())
            }
            Err(SpaceError::Full) => GrantAnswer::Full,
            Err(SpaceError::Ahead) => {
                granting.error = Some(StoreError::Ahead);
                GrantAnswer::Refused
            }
            Err(SpaceError::Malformed) => {
                granting.error = Some(StoreError::Malformed);
                GrantAnswer::Refused
            }
            Ok(_) | Err(_) => GrantAnswer::Refused,
        };
        self.push(Work::Placement(PlacementEvent::Granted(ask, answer)));
    }

    pub(super) fn placed(
        &mut self,
        id: u64,
        result: Result<Vec<CopyGrant>, PlacementError>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(What::Grant(granting)) = self.pending.get(&id).map(|pending| pending.what.clone()) else { return };
        match result {
            Ok(copies) => {
                let copies: Vec<Vec<Extent>> = copies.into_iter().map(|copy| copy.extents).collect();
                let blocks = blocks_of(&copies, granting.block, &granting.granted);
                self.granted(id, blocks, effects);
            }
            Err(why) => {
                let freeing = StoreError::Freeing(self.space.epoch().0);
                let error = match why {
                    PlacementError::Full(_) if granting.error.is_none() && self.awaits_namespaces() => {
                        StoreError::Unavailable
                    }
                    PlacementError::Full(_) if granting.error.is_none() && self.has_deleted_files() => freeing,
                    PlacementError::Malformed => StoreError::Malformed,
                    PlacementError::Full(0) => granting.error.unwrap_or(StoreError::NoSpace),
                    PlacementError::Full(placed) => granting.error.unwrap_or(StoreError::TooFewNodes(placed)),
                    PlacementError::Freeing => granting.error.unwrap_or(freeing),
                    PlacementError::Retry => granting.error.unwrap_or(StoreError::Unavailable),
                };
                if matches!(error, StoreError::Freeing(_)) {
                    self.sync_for_room(effects);
                }
                self.fail(id, error, alloc::format!("{why}"), effects);
            }
        }
    }

    pub(super) fn returned(
        &mut self,
        id: u64,
        result: Result<SpaceAnswer, SpaceError>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        match result {
            Ok(_) => self.answer(id, Answer::Done {}, effects),
            Err(SpaceError::Busy | SpaceError::Conflict | SpaceError::Unknown) => {
                self.fail(id, StoreError::Unavailable, "", effects);
            }
            Err(SpaceError::Malformed | SpaceError::TooLarge) => self.fail(id, StoreError::Malformed, "", effects),
            Err(why) => self.fail(id, StoreError::NotGranted, alloc::format!("{why}"), effects),
        }
    }

    /// A session has ended and is fenced: what it had is nobody's.
    pub(super) fn session_over(&mut self, session: SessionId) {
        self.fencing.remove(&session);
        self.recovery.look_soon();
        self.handles.of(session).into_iter().for_each(|handle| self.close(handle));
        self.grants.forget(session);
        for connection in self.connections.values_mut().filter(|connection| connection.session == Some(session)) {
            connection.session = None;
        }
        for pending in self.pending.values_mut().filter(|pending| pending.session == Some(session)) {
            pending.is_session_over = true;
        }
        self.ask_space(SpaceOwner::Nobody, SpaceRequest::Fence { session });
    }
}

impl Service {
    /// Whether a grant was sent before: it is answered then, or will be.
    pub(super) fn is_granted_again(&mut self, id: u64, session: SessionId, effects: &mut Vec<ServiceEffect>) -> bool {
        let Some((connection, number)) = self.pending.get(&id).map(|pending| (pending.connection, pending.number))
        else {
            return false;
        };
        if let Some(blocks) = self.grants.get(session, number) {
            let mut extents = blocks.iter().flat_map(|block| &block.copies);
            if extents.all(|extent| self.space.is_granted(session, extent)) {
                let blocks = blocks.clone();
                self.answer(id, Answer::Granted { blocks }, effects);
                return true;
            }
        }
        // One that is under way is answered over this connection.
        let is_same = |pending: &Pending| {
            (pending.session, pending.number) == (Some(session), number) && matches!(pending.what, What::Grant(_))
        };
        let Some(first) = self.pending.iter().find(|(_, pending)| is_same(pending)).map(|(first, _)| *first) else {
            return false;
        };
        self.pending.remove(&id);
        if let Some(pending) = self.pending.get_mut(&first) {
            let before = core::mem::replace(&mut pending.connection, connection);
            self.connections.get_mut(&before).map(|before| before.requests.remove(&first));
        }
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.requests.remove(&id);
            connection.requests.insert(first);
        }
        true
    }

    /// A request is granted these blocks.
    pub(super) fn granted(&mut self, id: u64, blocks: Vec<NewBlock>, effects: &mut Vec<ServiceEffect>) {
        let pending = self.pending.get(&id).map(|pending| (pending.session, pending.is_session_over, pending.number));
        if let Some((Some(session), false, number)) = pending {
            self.grants.remember(session, number, &blocks);
        }
        self.answer(id, Answer::Granted { blocks }, effects);
    }
}
