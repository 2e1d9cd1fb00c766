//! Power cuts at the machine that has the metadata: what its medium does not have is lost.

use super::world::{Medium, World};
use crate::keys::KeySpace;
use crate::kv::MemoryKv;
use crate::service::ServiceEvent;

impl World {
    /// What the medium has if it takes everything now.
    pub fn newest(&self) -> Medium {
        Medium { store: self.kv.store().clone(), revision: self.revision, moment: self.moment }
    }

    pub fn synced(&mut self, at: usize, medium: Medium) {
        if medium.revision >= self.medium.revision {
            self.medium = medium;
        }
        self.give_service(at, ServiceEvent::Durable(self.medium.revision));
    }

    /// The machine of the metadata has no power for a moment: what its medium does not have is lost.
    pub fn power_cut(&mut self) {
        // A number that is reserved by a commit which is lost is another file's later: what happens to each could not be told.
        let next = |store: &MemoryKv| {
            store.iter().find(|(key, _)| **key == KeySpace::NextInode.key(&[])).map(|(_, found)| found.value.clone())
        };
        if next(self.kv.store()) != next(&self.medium.store) {
            return;
        }
        self.kv.power_cut(self.medium.store.clone());
        self.revision = self.medium.revision;
        let now = self.moment();
        self.history.undo(self.medium.moment, now);
        (self.may_have_lost, self.had_power_cut) = (true, true);
    }
}
