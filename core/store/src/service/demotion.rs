//! Blocks of cold files go to the next class of their file's list when their own is full.
//!
//! ```text
//!   tick ─► a class over its high watermark ─► its mapped extents, one after another ─► the file's inode: cold? ─► the coldest of 4,096 first ─► a move
//!                      ▲                                                                       └─ no: counted                                   │
//!                      └─────────────────── until it is at its low watermark ◄─────────────────────────────────────────────────────────────────┘
//! ```
//! **Cold** is a file that nobody has open, that was not open and of which nothing was changed (bytes, name or attributes) for as long as its policy says
//! ([`DEMOTE_AFTER`](crate::DEMOTE_AFTER)). Openings are remembered by the process that serves alone, which counts its own beginning as one of every file.
//!
//! **In use** of a class is what files have and what is granted, on drives that are up and do not drain: what is in quarantine comes back by itself.
//!
//! **Never back**: a block goes behind its class in the file's list, and a class that would be over its own high watermark takes none. So
//! nothing goes in a circle.
//!
//! **The move** is that of [`moves`](super::moves), with its number at a time, its rate and its rules for writers. What drains or is repaired goes first.
//! Between two ticks [`LOOKS`] blocks are looked at, whatever there is.

use super::cold::{Look, Warmth};
use super::event::ServiceEffect;
use super::machine::Service;
use super::moves::MOVES;
use super::passes::{MoveEnd, MoveReason};
use super::state::{KvOwner, OwnRead};
use crate::InodeId;
use crate::class::ClassId;
use crate::id::RegionId;
use crate::inode::{Content, Inode};
use crate::keys::inode_key;
use crate::kv::{KvAnswer, KvRequest};
use crate::mutant::Mutant;
use crate::policy::demote_after;
use crate::protocol::DemotionInfo;
use crate::records::from_value;
use crate::space::MappedExtent;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Blocks that are looked at between two ticks at the most.
const LOOKS: usize = 200;

impl Service {
    /// Whether anything is demoted in this store.
    pub(super) fn demotes(&self) -> bool {
        self.settings.tiering.policies.iter().any(|policy| policy.demote_after.is_some())
    }

    fn all_classes(&self) -> Vec<ClassId> {
        (0..self.classes.names.len()).filter_map(|class| u16::try_from(class).ok()).map(ClassId).collect()
    }

    /// Bytes of a class's open drives, and those of them that are in use.
    fn class_room(&self, class: ClassId) -> (u64, u64) {
        let room = self.index.room(class);
        (room.bytes, room.used)
    }

    /// The same, as if what is leaving it had left.
    fn class_room_soon(&self, class: ClassId) -> (u64, u64) {
        let (bytes, used) = self.class_room(class);
        let leaving = self.moves.tasks.values().filter(|task| task.reason == MoveReason::Demoted(class));
        (bytes, used.saturating_sub(leaving.map(|task| task.copy.extent.length.get()).sum()))
    }

    /// Time has passed: classes that are too full are looked through.
    pub(super) fn demote(&mut self, effects: &mut Vec<ServiceEffect>) {
        if !self.demotes() || !self.gives_out() {
            return;
        }
        for class in self.all_classes() {
            let ((bytes, used), marks) = (self.class_room(class), self.settings.tiering.watermarks);
            let pass = self.demotion.classes.entry(class).or_default();
            pass.is_over = used > marks.high_of(bytes) || (pass.is_over && used > marks.low_of(bytes));
            match pass.is_over {
                true => pass.begin(self.clock.now),
                false => pass.stop(),
            }
        }
        (self.demotion.looks, self.demotion.seen) = (LOOKS, None);
        self.look_for_cold(effects);
        self.begin_demotions(effects);
    }

    /// Looks at one block after another, as far as it may.
    fn look_for_cold(&mut self, effects: &mut Vec<ServiceEffect>) {
        while self.demotion.look.is_none() && self.demotion.looks > 0 {
            let looks = self.demotion.classes.iter().find(|(_, pass)| pass.looks()).map(|(class, _)| *class);
            let Some(class) = looks else { return };
            let Some(copy) = self.next_of_class(class) else { continue };
            self.demotion.looks -= 1;
            match self.demotion.seen {
                Some((file, of, warmth)) if (file, of) == (copy.inode, class) => self.judge(class, copy, warmth),
                _ => {
                    let id = self.next();
                    self.demotion.look = Some(Look { id, class, copy });
                    let request = KvRequest::Get(inode_key(copy.inode));
                    self.ask_kv(KvOwner::own(OwnRead::Cold(id)), request, effects);
                }
            }
        }
    }

    /// The next block of a class, in the order of their places.
    fn next_of_class(&mut self, class: ClassId) -> Option<MappedExtent> {
        let pass = self.demotion.classes.get_mut(&class)?;
        let (number, region, offset) = pass.at?;
        let mut found =
            self.namespaces.range(number..).filter(|(_, found)| found.record.class == class && found.is_open());
        let next = found.find_map(|(of, found)| {
            let first = if *of == number { region } else { RegionId(0) };
            let from = |at: RegionId| if (*of, at) == (number, region) { offset } else { 0 };
            found.taken.range(first..).find_map(|at| Some((*at, self.space.next_mapped(*at, from(*at))?)))
        });
        pass.at = next.map(|(at, copy)| (copy.extent.namespace, at, copy.extent.offset.get().saturating_add(1)));
        next.map(|(_, copy)| copy)
    }

    /// The inode of a block's file is read.
    pub(super) fn looked_at(&mut self, id: u64, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        let Some(look) = self.demotion.look.filter(|look| look.id == id) else { return };
        self.demotion.look = None;
        let Look { class, copy, .. } = look;
        match answer {
            KvAnswer::Value(Ok(value)) => {
                let inode = value.and_then(|value| from_value::<Inode>(&value.value).ok());
                let warmth = inode.map_or(Warmth::Gone, |inode| self.warmth(copy.inode, &inode, class));
                self.demotion.seen = Some((copy.inode, class, warmth));
                self.judge(class, copy, warmth);
            }
            _ => {
                let end = MoveEnd::Failed("the metadata do not answer".into());
                if let Some(pass) = self.demotion.classes.get_mut(&class) {
                    pass.ended(end, 0);
                }
            }
        }
        self.look_for_cold(effects);
        self.begin_demotions(effects);
    }

    fn judge(&mut self, class: ClassId, copy: MappedExtent, warmth: Warmth) {
        if let Some(pass) = self.demotion.classes.get_mut(&class).filter(|pass| pass.is_over) {
            pass.judged(copy, warmth);
        }
    }

    /// Whether blocks of a file in that class are to go.
    pub(super) fn warmth(&self, file: InodeId, inode: &Inode, class: ClassId) -> Warmth {
        if inode.content != Content::Mapped {
            return Warmth::Gone;
        }
        let Some(after) = demote_after(inode) else { return Warmth::Kept };
        if self.classes_behind(inode, class).is_empty() {
            return Warmth::NoNext;
        }
        let unchanged = Nanos(self.clock.wall.0.saturating_sub(inode.changed.0));
        let opened = self.demotion.opened.last(file).max(self.began);
        let idle = match self.handles.is_open(file) {
            true => Nanos(0),
            false => unchanged.min(self.clock.now.saturating_sub(opened)),
        };
        match idle >= after || self.planted.is(Mutant::DemoteHot) {
            true => Warmth::Cold(idle),
            false => Warmth::Hot(after.saturating_sub(idle)),
        }
    }

    /// The classes of a file's list that come behind one.
    fn classes_behind(&self, inode: &Inode, class: ClassId) -> Vec<ClassId> {
        let list = if inode.classes.is_empty() { self.all_classes() } else { inode.classes.clone() };
        if self.planted.is(Mutant::DemoteBack) {
            return list.into_iter().filter(|other| *other != class).collect();
        }
        match list.iter().position(|other| *other == class) {
            Some(place) => list.into_iter().skip(place + 1).filter(|other| *other != class).collect(),
            // The list was changed since the block got its place.
            None => list.into_iter().filter(|other| *other > class).collect(),
        }
    }

    /// Those of them that may take a block.
    ///
    /// # Errors
    /// None may: why.
    pub(super) fn classes_for(&self, inode: &Inode, class: ClassId, bytes: u64) -> Result<Vec<ClassId>, MoveEnd> {
        let behind = self.classes_behind(inode, class);
        let takes = |next: &ClassId| {
            let (room, used) = self.class_room(*next);
            used + bytes <= self.settings.tiering.watermarks.high_of(room) || self.planted.is(Mutant::DemoteAboveMark)
        };
        let with_room: Vec<ClassId> = behind.iter().copied().filter(takes).collect();
        let is_there = |next: &ClassId| self.class_room(*next).0 > 0;
        match with_room.is_empty() {
            false => Ok(with_room),
            true if behind.iter().any(is_there) => Err(MoveEnd::NoRoom),
            true => Err(MoveEnd::NoNode),
        }
    }

    /// Has the coldest blocks moved, as far as there is nothing else to move.
    pub(super) fn begin_demotions(&mut self, effects: &mut Vec<ServiceEffect>) {
        let over = self.demotion.classes.iter().filter(|(_, pass)| pass.is_over && !pass.looks());
        let over: Vec<ClassId> = over.map(|(class, _)| *class).collect();
        for class in over {
            while self.may_begin_move() && !self.moves.is_leaving() {
                let ((bytes, used), marks) = (self.class_room_soon(class), self.settings.tiering.watermarks);
                let Some(pass) = self.demotion.classes.get_mut(&class) else { return };
                let is_enough = used <= marks.low_of(bytes);
                let Some(copy) = pass.coldest().filter(|_| !is_enough) else { break };
                if !self.moves.has_task_at(&copy.extent) {
                    self.begin_move(copy, MoveReason::Demoted(class), effects);
                }
            }
            let is_under_way = self.moves.tasks.values().any(|task| task.reason == MoveReason::Demoted(class));
            let is_looking = self.demotion.look.is_some_and(|look| look.class == class);
            let now = self.clock.now;
            if let Some(pass) = self.demotion.classes.get_mut(&class).filter(|_| !is_under_way && !is_looking) {
                pass.go_on(now);
            }
        }
    }

    /// What goes from class to class, for operators.
    pub(super) fn demotion_infos(&self) -> Vec<DemotionInfo> {
        let passes = self.demotion.classes.iter();
        passes.map(|(class, pass)| pass.info(*class, self.class_room(*class))).collect()
    }

    /// Blocks that this life has demoted.
    #[cfg(test)]
    pub(crate) fn demoted(&self) -> u64 {
        self.demotion_infos().iter().map(|info| info.moved_blocks).sum()
    }

    /// Moves that may be begun now: fewer than there may be at a time, and the rate allows one.
    pub(super) fn may_begin_move(&self) -> bool {
        self.gives_out()
            && !self.space.is_fencing(self.own_session())
            && self.moves.tasks.len() < MOVES
            && self.moves.begin_at <= self.clock.now
    }
}
