//! What is found of namespaces without a look at all of them: a store has 10,000 drives and more.

use super::state::Namespace;
use crate::class::ClassId;
use crate::id::NamespaceId;
use crate::protocol::NamespaceState;
use alloc::collections::{BTreeMap, BTreeSet};
use weir_units::Nanos;

/// Bytes of a class's drives that are up and do not drain, and those of them that files have or that are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassRoom {
    pub bytes: u64,
    pub used: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct NamespaceIndex {
    /// What each drive counts for in its class, and all of a class together.
    counted: BTreeMap<NamespaceId, (ClassId, ClassRoom)>,
    rooms: BTreeMap<ClassId, ClassRoom>,
    /// Those whose blocks are to be elsewhere, or may have to be before long: all but those that are up and do not drain.
    leaving: BTreeSet<NamespaceId>,
    /// When labels are read. An entry counts as long as the namespace says the same.
    looks: BTreeSet<(Nanos, NamespaceId)>,
}

impl ClassRoom {
    /// Both together.
    pub fn plus(self, other: ClassRoom) -> ClassRoom {
        ClassRoom { bytes: self.bytes + other.bytes, used: self.used + other.used }
    }
}

impl NamespaceIndex {
    /// What is in use of a class.
    pub fn room(&self, class: ClassId) -> ClassRoom {
        self.rooms.get(&class).copied().unwrap_or_default()
    }

    /// The blocks of a namespace may have to be elsewhere, or not.
    pub fn set_leaving(&mut self, number: NamespaceId, may_leave: bool) {
        match may_leave {
            true => _ = self.leaving.insert(number),
            false => _ = self.leaving.remove(&number),
        }
    }

    /// Those whose blocks may have to be elsewhere.
    pub fn leaving(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.leaving.iter().copied()
    }

    /// The label of a namespace is to be read at that time.
    pub fn look_at(&mut self, due: Nanos, number: NamespaceId) {
        if due != Nanos::NEVER {
            self.looks.insert((due, number));
        }
    }

    /// Whether the label of a namespace will be read then.
    pub fn looks_at(&self, due: Nanos, number: NamespaceId) -> bool {
        due == Nanos::NEVER || self.looks.contains(&(due, number))
    }

    /// What is in use of all classes that have something.
    pub fn all(&self) -> impl Iterator<Item = (ClassId, ClassRoom)> + '_ {
        self.rooms.iter().map(|(class, room)| (*class, *room)).filter(|(_, room)| *room != ClassRoom::default())
    }

    /// The next look whose time has come, with the time that was said.
    pub fn next_look(&mut self, now: Nanos) -> Option<(Nanos, NamespaceId)> {
        let first = self.looks.first().copied().filter(|(due, _)| *due <= now)?;
        self.looks.remove(&first);
        Some(first)
    }

    /// A namespace counts for that from now on, if it counts.
    pub fn count(&mut self, number: NamespaceId, now: Option<(ClassId, ClassRoom)>) {
        let before = match now {
            Some(now) => self.counted.insert(number, now),
            None => self.counted.remove(&number),
        };
        if before == now {
            return;
        }
        if let Some((class, room)) = before {
            let sum = self.rooms.entry(class).or_default();
            *sum = ClassRoom { bytes: sum.bytes - room.bytes, used: sum.used - room.used };
        }
        if let Some((class, room)) = now {
            let sum = self.rooms.entry(class).or_default();
            *sum = sum.plus(room);
        }
    }
}

/// Whether the label of a namespace is read when its time has come.
pub(super) fn is_looked_at(found: &Namespace) -> bool {
    found.state != NamespaceState::Lost && !found.record.is_lost && !found.is_removed && !found.is_asked
}

/// Whether its blocks are to be elsewhere, or may have to be.
pub(super) fn may_leave(found: &Namespace) -> bool {
    !found.is_removed && (found.record.is_draining || found.state != NamespaceState::Up)
}
