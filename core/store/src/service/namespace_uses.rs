//! What namespaces are used for is counted with each change, and compared with a look at all of them where tests ask for it.

use super::machine::Service;
use super::namespace_index::{ClassRoom, is_looked_at, may_leave};
use crate::class::ClassId;
use crate::id::NamespaceId;
use alloc::collections::BTreeMap;

impl Service {
    /// A namespace, or what is used of it, is not as it was.
    pub(super) fn note_namespace(&mut self, number: NamespaceId) {
        let found = self.namespaces.get(&number);
        self.index.set_leaving(number, found.is_some_and(may_leave));
        let now = self.counts_for(number);
        self.index.count(number, now);
    }

    /// What a drive counts for in its class.
    fn counts_for(&self, number: NamespaceId) -> Option<(ClassId, ClassRoom)> {
        let open = self.namespaces.get(&number).filter(|found| found.is_open())?;
        let used = self.space.namespace_use(number);
        Some((open.record.class, ClassRoom { bytes: used.bytes(), used: used.in_use() }))
    }

    /// What `Space` has changed.
    pub(super) fn note_uses(&mut self) {
        for number in self.space.take_changed_namespaces() {
            self.note_namespace(number);
        }
    }

    /// What holds at all times between two events.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check_index(&self) -> Result<(), &'static str> {
        let is = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let mut rooms: BTreeMap<ClassId, ClassRoom> = BTreeMap::new();
        for (class, room) in self.namespaces.keys().filter_map(|number| self.counts_for(*number)) {
            let sum = rooms.entry(class).or_default();
            *sum = sum.plus(room);
        }
        rooms.retain(|_, room| *room != ClassRoom::default());
        is(rooms.into_iter().eq(self.index.all()), "what is in use of a class is counted")?;
        let leaving = self.namespaces.iter().filter(|(_, found)| may_leave(found)).map(|(number, _)| *number);
        is(leaving.eq(self.index.leaving()), "namespaces that may be left are known")?;
        let mut waits = self.namespaces.iter().filter(|(_, found)| is_looked_at(found));
        is(waits.all(|(number, found)| self.index.looks_at(found.due, *number)), "a label that is to be read is known")
    }
}
