//! New files under policies by path: see [`crate::PathPolicy`].
//!
//! ```text
//!   Create, OpenNew ─► its path ─► the first policy that matches ─► classes and copies, where the creator says none; DEMOTE_AFTER ─► Tree
//!                         ▲ └─ a container above is not known: Lookup of the name that it may have, else its parent's names
//!                         └──────────────────────────────────────────┘
//! ```
//! The path is the one that the file's folder has at some moment while the file is being made. Without policies none of this is done.

use super::event::ServiceEffect;
use super::machine::Service;
use super::paths::PathFound;
use super::state::{KvOwner, Naming, NamingStep, OwnRead, What};
use crate::class::ClassId;
use crate::error::StoreError;
use crate::id::InodeId;
use crate::inode::InodeKind;
use crate::keys::parent_key;
use crate::kv::{KvRequest, KvUnavailable, Versioned};
use crate::policy::{DEMOTE_AFTER, PathPolicy, policy_of};
use crate::protocol::{PolicyInfo, TieringInfo};
use crate::records::{ParentRecord, from_value};
use crate::tree::{
    ChangeKey, EntryPath, FileChange, LIST_MAX, NameAnswer, NameChange, NameQuery, NameReply, NameRequest, NewInode,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// How often a container's name is looked for while others rename it.
const TRIES: u32 = 4;

/// The name that is made, and with what, if it is one.
fn made(change: &NameChange) -> Option<(&EntryPath, &NewInode)> {
    match change {
        NameChange::Create(entry, new) | NameChange::File(FileChange::OpenNew { entry, new, .. }) => Some((entry, new)),
        _ => None,
    }
}

impl Service {
    /// Makes what a client asks for: under the policy of its path, if there are any and it is a file.
    ///
    /// # Errors
    /// It cannot be made as it is wanted.
    pub(super) fn make(
        &mut self,
        id: u64,
        key: ChangeKey,
        change: NameChange,
        then: What,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let has_policies = !self.settings.tiering.policies.is_empty();
        match made(&change) {
            Some((_, new)) if has_policies && new.kind == InodeKind::File => {
                let naming = Naming { then, key, change, at: InodeId(0), step: NamingStep::Path, tries: 0 };
                self.find_path(id, naming, effects)
            }
            Some((entry, new)) if has_policies && new.kind.is_container() => {
                let then = What::Container(entry.clone());
                self.make_so(id, key, change, then)
            }
            _ => self.make_so(id, key, change, then),
        }
    }

    fn make_so(&mut self, id: u64, key: ChangeKey, change: NameChange, then: What) -> Result<(), StoreError> {
        let change = self.checked(change)?;
        self.wait_for(id, then);
        self.ask_tree(id, NameRequest::Change(key, change));
        Ok(())
    }

    /// The path of a file that is to be made, or the next step to it.
    fn find_path(&mut self, id: u64, mut naming: Naming, effects: &mut Vec<ServiceEffect>) -> Result<(), StoreError> {
        let Some((entry, _)) = made(&naming.change) else { return Err(StoreError::Malformed) };
        match self.paths.path(entry) {
            PathFound::Path(path) => self.make_under(id, naming, &path),
            PathFound::TooDeep => self.make_so(id, naming.key, naming.change, naming.then),
            PathFound::Lacks(container, Some(perhaps)) => {
                (naming.at, naming.step) = (container, NamingStep::Perhaps(perhaps.clone()));
                self.query(id, What::Naming(Box::new(naming)), NameQuery::Lookup(perhaps));
                Ok(())
            }
            PathFound::Lacks(container, None) => {
                naming.tries += 1;
                if naming.tries > TRIES {
                    return Err(StoreError::Unavailable);
                }
                (naming.at, naming.step) = (container, NamingStep::Parent);
                self.wait_for(id, What::Naming(Box::new(naming)));
                self.ask_kv(KvOwner::own(OwnRead::Parent(id)), KvRequest::Get(parent_key(container)), effects);
                Ok(())
            }
        }
    }

    /// Where a container is whose name is not known.
    pub(super) fn parent_read(
        &mut self,
        id: u64,
        value: Result<Option<Versioned>, KvUnavailable>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(What::Naming(naming)) = self.pending.get(&id).map(|pending| pending.what.clone()) else { return };
        let Ok(value) = value else { return self.fail(id, StoreError::Unavailable, "", effects) };
        let record = value.and_then(|found| from_value::<ParentRecord>(&found.value).ok());
        match record.filter(|record| record.parent != InodeId(0)) {
            Some(record) => self.look_for_name(id, *naming, record.parent, None),
            // It is gone, or no container, which the tree knows better.
            None => {
                let Naming { key, change, then, .. } = *naming;
                if let Err(error) = self.make_so(id, key, change, then) {
                    self.fail(id, error, "", effects);
                }
            }
        }
    }

    /// Lists a container's names, of which one leads to the container that is looked for.
    fn look_for_name(&mut self, id: u64, naming: Naming, parent: InodeId, after: Option<crate::EntryName>) {
        let query = NameQuery::List { container: parent, after, most: LIST_MAX };
        let naming = Naming { step: NamingStep::Lists(parent), ..naming };
        self.query(id, What::Naming(Box::new(naming)), query);
    }

    /// What the tree says of a name on the way.
    pub(super) fn named(&mut self, id: u64, naming: Naming, answer: NameAnswer, effects: &mut Vec<ServiceEffect>) {
        let wanted = naming.at;
        match (naming.step.clone(), answer) {
            (_, Err(StoreError::Unavailable)) => return self.fail(id, StoreError::Unavailable, "", effects),
            (NamingStep::Perhaps(entry), Ok(NameReply::Found(record, _))) if record.inode == wanted => {
                self.paths.learn(wanted, entry);
            }
            (NamingStep::Perhaps(_), _) => self.paths.forget(wanted),
            (NamingStep::Lists(parent), Ok(NameReply::Page { entries, is_last, .. })) => {
                let found = entries.iter().find(|entry| entry.record.inode == wanted);
                match (found, entries.last()) {
                    (Some(found), _) => {
                        self.paths.learn(wanted, EntryPath { container: parent, name: found.name.clone() });
                    }
                    (None, Some(last)) if !is_last => {
                        return self.look_for_name(id, naming, parent, Some(last.name.clone()));
                    }
                    // It was renamed meanwhile.
                    (None, _) => {}
                }
            }
            (NamingStep::Lists(_) | NamingStep::Path | NamingStep::Parent, _) => {}
        }
        if let Err(error) = self.find_path(id, naming, effects) {
            self.fail(id, error, "", effects);
        }
    }

    fn make_under(&mut self, id: u64, naming: Naming, path: &[u8]) -> Result<(), StoreError> {
        let Naming { key, change, then, .. } = naming;
        let policy = policy_of(&self.settings.tiering.policies, path)
            .and_then(|place| self.settings.tiering.policies.get(place));
        let Some(policy) = policy.cloned() else { return self.make_so(id, key, change, then) };
        let with = |new: NewInode| {
            let classes = if new.classes.is_empty() { self.class_ids(&policy) } else { new.classes };
            let copies = if new.copies == 0 { policy.copies } else { new.copies };
            NewInode { classes, copies, ..new }
        };
        let change = match change {
            NameChange::Create(entry, new) => NameChange::Create(entry, with(new)),
            NameChange::File(FileChange::OpenNew { entry, new, bytes, exclusive }) => {
                NameChange::File(FileChange::OpenNew { entry, new: with(new), bytes, exclusive })
            }
            other => other,
        };
        let change = self.checked(change)?;
        let change = match policy.demote_after {
            None => change,
            Some(after) => {
                let attributes = BTreeMap::from([(DEMOTE_AFTER.into(), after.to_string().into_bytes())]);
                NameChange::File(FileChange::UnderPolicy(Box::new(change), attributes))
            }
        };
        self.wait_for(id, then);
        self.ask_tree(id, NameRequest::Change(key, change));
        Ok(())
    }

    fn class_ids(&self, policy: &PathPolicy) -> Vec<ClassId> {
        let id = |name| self.classes.names.iter().position(|known| known == name);
        let ids = policy.classes.iter().filter_map(id).filter_map(|place| u16::try_from(place).ok());
        ids.map(ClassId).collect()
    }

    /// What a request that has changed names tells of where containers are.
    pub(super) fn learn_of_change(&mut self, id: u64, answer: &NameAnswer) {
        if self.settings.tiering.policies.is_empty() {
            return;
        }
        let Some(pending) = self.pending.get(&id) else { return };
        match (&pending.what, pending.about.renames(), answer) {
            (What::Container(entry), _, Ok(NameReply::Changed(changed))) => {
                self.paths.suppose(changed.inode, entry.clone());
            }
            (What::Change, Some(to), Ok(NameReply::Changed(changed))) => {
                let to = to.clone();
                self.paths.renamed(changed.inode, to);
            }
            // Whether it was made is not known.
            (What::Change, Some(_), Err(StoreError::Unavailable)) => self.paths.forget_all(),
            (What::Resolve(resolving), _, Ok(NameReply::Found(record, _))) if record.kind.is_container() => {
                if let Some(entry) = resolving.asked() {
                    self.paths.learn(record.inode, entry);
                }
            }
            _ => {}
        }
    }

    /// Policies, and what moves from class to class, for operators.
    pub(super) fn tiering_info(&self) -> TieringInfo {
        let info = |policy: &PathPolicy| PolicyInfo {
            path: policy.path.as_str().into(),
            classes: policy.classes.clone(),
            copies: policy.copies,
            demote_after: policy.demote_after,
        };
        let marks = self.settings.tiering.watermarks;
        TieringInfo {
            high: marks.high,
            low: marks.low,
            policies: self.settings.tiering.policies.iter().map(info).collect(),
            classes: self.demotion_infos(),
        }
    }
}
