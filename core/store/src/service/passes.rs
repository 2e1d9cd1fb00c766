//! Moves under way, and passes over the blocks of a namespace that is left: what is looked at when, and what was found.

use crate::Extent;
use crate::class::ClassId;
use crate::id::{NamespaceId, RegionId};
use crate::location::Location;
use crate::protocol::MovementInfo;
use crate::records::BlockRecord;
use crate::space::{GrantedExtent, MappedExtent};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Between two passes over a namespace, at first and at the most: where clients have to do something first, and where a drive has.
pub(super) const PASS_FIRST: Nanos = Nanos::from_secs(1);
pub(super) const PASS_CLIENTS: Nanos = Nanos::from_secs(5);
pub(super) const PASS_DRIVES: Nanos = Nanos::from_secs(60);

/// Why a copy is made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveReason {
    /// The copy's namespace is left.
    Leaving,
    /// Its class is too full, and its file cold.
    Demoted(ClassId),
    /// Its block has fewer copies than its file wants: it stays, and another one is made.
    Lacking,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveStep {
    Reads,
    Places,
    Copies,
    /// Asked of the tree by that number.
    Commits(u64),
}

/// A copy that is moved.
#[derive(Clone, Debug)]
pub(super) struct MoveTask {
    pub copy: MappedExtent,
    pub reason: MoveReason,
    pub step: MoveStep,
    /// The classes that the new copy may be of, best first.
    pub classes: Vec<ClassId>,
    pub location: Location,
    /// Copies of each block that the file wants.
    pub wanted: u8,
    /// The chunk of the file's map, and the block as it was found there.
    pub chunk: u32,
    pub index: u32,
    pub old: BlockRecord,
    pub granted: Option<GrantedExtent>,
    /// Drives that could not write it, one after the other: so many, and why.
    pub refused: u32,
    pub why: String,
}

/// Moves under way, and the passes that they are of.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub tasks: BTreeMap<u64, MoveTask>,
    pub passes: BTreeMap<NamespaceId, Pass>,
    /// The namespace of the last move: the next one is of another, if there are several.
    pub turn: NamespaceId,
    /// When the rate allows the next move.
    pub begin_at: Nanos,
    pub looks: usize,
}

impl Moves {
    /// Something has changed about the namespaces: what could not be moved is looked at again soon.
    pub fn look_again(&mut self) {
        self.passes.values_mut().for_each(Pass::look_again);
    }

    /// Whether a request for blocks is a move's.
    pub fn is_placing(&self, id: u64) -> bool {
        self.tasks.get(&id).is_some_and(|task| task.step == MoveStep::Places)
    }

    pub fn has_task_of(&self, namespace: NamespaceId) -> bool {
        let is_of = |task: &MoveTask| task.reason == MoveReason::Leaving && task.copy.extent.namespace == namespace;
        self.tasks.values().any(is_of)
    }

    /// Whether what lies there is being moved.
    pub fn has_task_at(&self, extent: &Extent) -> bool {
        self.tasks.values().any(|task| task.copy.extent == *extent)
    }

    /// Whether there are blocks that leave their namespaces, as far as they were looked at.
    pub fn is_leaving(&self) -> bool {
        self.passes.values().any(|pass| pass.at.is_some())
    }

    /// The pass over a namespace is over when its last move is.
    pub fn end_pass(&mut self, namespace: NamespaceId, now: Nanos) {
        let is_under_way = self.has_task_of(namespace);
        if let Some(pass) = self.passes.get_mut(&namespace).filter(|pass| pass.at.is_none() && !is_under_way) {
            pass.end(now);
        }
    }
}

/// What became of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MoveEnd {
    Moved,
    /// The block is not there any more.
    Gone,
    HasWriter,
    Unsettled,
    NoCopy,
    NoRoom,
    NoNode,
    /// It was to be demoted, and its file is in use.
    Hot,
    /// It was to be demoted, and its file stays where it is.
    Kept,
    /// It was to be demoted, and its file has no further class.
    NoNext,
    Failed(String),
}

/// What a pass has found.
#[derive(Clone, Debug, Default)]
pub(super) struct PassCounts {
    pub moved: u64,
    pub has_writer: u64,
    pub unsettled: u64,
    pub no_copy: u64,
    pub no_room: u64,
    pub no_node: u64,
    pub hot: u64,
    pub kept: u64,
    pub no_next: u64,
    pub failed: u64,
    pub why: Option<String>,
}

/// A namespace that is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    /// What is looked at next; nothing between two passes.
    pub at: Option<(RegionId, u64)>,
    next: Nanos,
    wait: Nanos,
    pub found: PassCounts,
    /// What the last whole pass has found.
    last: PassCounts,
    pub moved: u64,
    pub moved_bytes: u64,
}

impl PassCounts {
    pub fn count(&mut self, end: MoveEnd) {
        let counter = match end {
            MoveEnd::Gone => return,
            MoveEnd::Moved => &mut self.moved,
            MoveEnd::HasWriter => &mut self.has_writer,
            MoveEnd::Unsettled => &mut self.unsettled,
            MoveEnd::NoCopy => &mut self.no_copy,
            MoveEnd::NoRoom => &mut self.no_room,
            MoveEnd::NoNode => &mut self.no_node,
            MoveEnd::Hot => &mut self.hot,
            MoveEnd::Kept => &mut self.kept,
            MoveEnd::NoNext => &mut self.no_next,
            MoveEnd::Failed(why) => {
                self.why = Some(why);
                &mut self.failed
            }
        };
        *counter += 1;
    }

    /// Whether nothing was found at all.
    pub fn is_empty(&self) -> bool {
        self.moved == 0 && !self.is_moving() && !self.awaits_drives()
    }

    /// Whether something was moved, or may be soon.
    pub fn is_moving(&self) -> bool {
        self.moved + self.has_writer + self.unsettled + self.failed > 0
    }

    /// Whether what is left waits for a change of the drives: time alone changes nothing.
    pub fn awaits_drives(&self) -> bool {
        let drives = self.no_copy + self.no_room + self.no_node;
        drives > 0 && self.has_writer + self.unsettled + self.failed == 0
    }
}

impl Pass {
    /// Something has changed: the next pass begins soon.
    pub fn look_again(&mut self) {
        (self.next, self.wait) = (Nanos(0), PASS_FIRST);
    }

    /// Begins a pass, if one is due.
    pub fn begin(&mut self, now: Nanos) {
        if self.at.is_none() && self.next <= now {
            (self.at, self.found) = (Some((RegionId(0), 0)), PassCounts::default());
        }
    }

    /// A block was moved, or not.
    pub fn ended(&mut self, end: MoveEnd, bytes: u64) {
        if end == MoveEnd::Moved {
            (self.moved, self.moved_bytes) = (self.moved + 1, self.moved_bytes + bytes);
        }
        self.found.count(end);
    }

    /// All has been looked at, and no move is under way any more.
    pub fn end(&mut self, now: Nanos) {
        self.last = core::mem::take(&mut self.found);
        let most = if self.last.awaits_drives() { PASS_DRIVES } else { PASS_CLIENTS };
        let longer = Nanos(self.wait.get().saturating_mul(2)).max(PASS_FIRST).min(most);
        self.wait = if self.last.moved > 0 { PASS_FIRST } else { longer };
        self.next = now.saturating_add(self.wait);
    }

    /// For operators; `left` are the copies that are on the namespace, and their bytes.
    pub fn info(&self, namespace: NamespaceId, is_repair: bool, (blocks, bytes): (u64, u64)) -> MovementInfo {
        // Of a pass that has only begun, the one before says more.
        let PassCounts { has_writer, unsettled, no_copy, no_room, no_node, failed, why, .. } = self.last.clone();
        MovementInfo {
            namespace,
            is_repair,
            blocks,
            bytes,
            moved_blocks: self.moved,
            moved_bytes: self.moved_bytes,
            has_writer,
            unsettled,
            no_copy,
            no_room,
            no_node,
            failed,
            why: why.unwrap_or_default(),
        }
    }
}
