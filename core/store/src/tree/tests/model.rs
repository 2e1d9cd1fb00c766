//! Names as one service without faults would have them: the slow, obvious oracle.
//!
//! A tree that was deleted recursively stays here for good. What the machine has done to it in the background nobody can say, so any answer about it is
//! right that changes nothing outside.

use crate::{
    Changed, EntryPath, InodeId, InodeKind, InodePath, NameAnswer, NameChange, NameQuery, NameReply, NameRequest,
    SetAttributes, StoreError,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelInode {
    pub kind: InodeKind,
    /// `None`: no name leads to it.
    pub parent: Option<InodeId>,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Model {
    pub inodes: BTreeMap<InodeId, ModelInode>,
    pub names: BTreeMap<(InodeId, Vec<u8>), InodeId>,
}

/// What a change comes to: the inode that is told, or why not.
type Outcome = Result<InodeId, StoreError>;

impl Model {
    pub fn new() -> Self {
        let root =
            ModelInode { kind: InodeKind::Directory, parent: Some(InodeId::ROOT), mode: 0o755, bytes: Vec::new() };
        Self { inodes: BTreeMap::from([(InodeId::ROOT, root)]), names: BTreeMap::new() }
    }

    /// Whether a container is within a tree that was deleted, and is still remembered here.
    fn is_condemned(&self, container: InodeId) -> bool {
        let mut at = container;
        loop {
            match self.inodes.get(&at).map(|inode| inode.parent) {
                None => return false,
                Some(None) => return true,
                Some(Some(parent)) if parent == at => return false,
                Some(Some(parent)) => at = parent,
            }
        }
    }

    /// Whether the answer is right at this moment; then the model is as it is afterwards.
    pub fn accepts(&mut self, request: &NameRequest, answer: &NameAnswer) -> bool {
        match request {
            NameRequest::Query(query) => self.accepts_query(query, answer),
            NameRequest::Change(_, change) => self.accepts_change(change, answer),
        }
    }

    fn accepts_query(&self, query: &NameQuery, answer: &NameAnswer) -> bool {
        match query {
            NameQuery::Lookup(entry) => {
                let is_free = self.is_condemned(entry.container);
                match (self.entry(entry), answer) {
                    (_, Err(_)) if is_free => true,
                    (Ok(inode), Ok(NameReply::Found(record, found))) => {
                        record.inode == inode
                            && record.kind == self.inodes[&inode].kind
                            && found.as_ref().is_none_or(|found| self.is_like(inode, found))
                            && found.is_none() == record.kind.is_container()
                    }
                    (Err(error), Err(told)) => error == *told,
                    _ => false,
                }
            }
            NameQuery::Stat(at) | NameQuery::File(at) => match (self.located(at.inode), answer) {
                (_, Err(_)) if self.is_in_condemned(at.inode) => true,
                (Ok(()), Ok(NameReply::Inode(_, found))) => self.is_like(at.inode, found),
                (Err(error), Err(told)) => error == *told,
                _ => false,
            },
            NameQuery::List { container, .. } => self.accepts_list(*container, answer),
        }
    }

    fn accepts_list(&self, container: InodeId, answer: &NameAnswer) -> bool {
        let is_free = self.is_condemned(container);
        let names: Vec<(&[u8], InodeId)> =
            self.names.iter().filter(|((c, _), _)| *c == container).map(|((_, n), i)| (&n[..], *i)).collect();
        match (self.container(container), answer) {
            (_, Err(_)) if is_free => true,
            (Ok(_), Ok(NameReply::Page { entries, is_last: true, .. })) => {
                let told: Vec<_> = entries.iter().map(|e| (e.name.as_bytes(), e.record.inode)).collect();
                let like =
                    |e: &crate::ListEntry| e.inode.as_ref().is_none_or(|found| self.is_like(e.record.inode, found));
                if is_free { told.iter().all(|e| names.contains(e)) } else { told == names && entries.iter().all(like) }
            }
            (Err(error), Err(told)) => error == *told,
            _ => false,
        }
    }

    fn is_like(&self, number: InodeId, found: &crate::Inode) -> bool {
        let inode = &self.inodes[&number];
        let bytes: &[u8] = match &found.content {
            crate::Content::Inline(bytes) | crate::Content::Target(bytes) => bytes,
            crate::Content::Names | crate::Content::Mapped => &[],
        };
        inode.kind == found.kind && inode.mode == found.mode && inode.bytes == bytes && found.size == bytes.len() as u64
    }

    fn is_in_condemned(&self, number: InodeId) -> bool {
        let inode = self.inodes.get(&number);
        match inode.map(|inode| (inode.kind.is_container(), inode.parent)) {
            None => false,
            Some((true, _)) => self.is_condemned(number),
            Some((false, parent)) => parent.is_some_and(|parent| self.is_condemned(parent)),
        }
    }

    /// That a container is there.
    fn container(&self, number: InodeId) -> Result<&ModelInode, StoreError> {
        match self.inodes.get(&number) {
            None => Err(StoreError::NotFound),
            Some(inode) if !inode.kind.is_container() => Err(StoreError::NotDirectory),
            Some(inode) => Ok(inode),
        }
    }

    /// That an inode is there that a name leads to.
    fn located(&self, number: InodeId) -> Result<(), StoreError> {
        match self.inodes.get(&number) {
            Some(inode) if inode.parent.is_some() || inode.kind.is_container() => Ok(()),
            _ => Err(StoreError::NotFound),
        }
    }

    fn entry(&self, entry: &EntryPath) -> Outcome {
        self.container(entry.container)?;
        let key = (entry.container, entry.name.as_bytes().to_vec());
        self.names.get(&key).copied().ok_or(StoreError::NotFound)
    }

    fn accepts_change(&mut self, change: &NameChange, answer: &NameAnswer) -> bool {
        let told = match answer {
            Ok(NameReply::Changed(Changed { inode, .. })) => Ok(*inode),
            Ok(_) => return false,
            Err(error) => Err(*error),
        };
        if self.is_about_condemned(change) {
            // Refused: nothing was changed. Made: what it did to living names is known from the answer.
            return match told {
                Err(_) => true,
                Ok(inode) => self.force(change, inode),
            };
        }
        // Of two containers that are not there either can be told.
        if let (NameChange::Rename { from, to, .. }, Err(error)) = (change, told) {
            if [from, to].into_iter().any(|entry| self.container(entry.container).err() == Some(error)) {
                return true;
            }
        }
        let before = self.clone();
        let outcome = self.make(change, told.unwrap_or_default());
        if outcome.is_err() {
            *self = before;
        }
        outcome == told
    }

    fn is_about_condemned(&self, change: &NameChange) -> bool {
        match change {
            NameChange::Create(entry, _) | NameChange::PutValue(entry, _) | NameChange::Delete { entry, .. } => {
                self.is_condemned(entry.container)
            }
            NameChange::Rename { from, to, .. } => self.is_condemned(from.container) || self.is_condemned(to.container),
            NameChange::SetAttributes(at, _) | NameChange::SetExtended(at, ..) | NameChange::WriteInline(at, _) => {
                self.is_in_condemned(at.inode)
            }
            NameChange::HardLink(..) | NameChange::File(_) => false,
        }
    }

    /// A change that was made within a deleted tree, or into or out of one.
    fn force(&mut self, change: &NameChange, told: InodeId) -> bool {
        match change {
            NameChange::Rename { from, to, .. } => {
                if self.entry(from) != Ok(told) {
                    return false;
                }
                if !self.is_condemned(to.container) {
                    // Out of it, over a living name perhaps: as always.
                    return self.make(change, told) == Ok(told);
                }
                if let Ok(victim) = self.entry(to).and_then(|v| if v == told { Err(StoreError::Exists) } else { Ok(v) })
                {
                    self.drop_inode(victim);
                }
                self.names.remove(&key(from));
                self.names.insert(key(to), told);
                self.set_parent(told, to.container);
                true
            }
            NameChange::Delete { entry, .. } => {
                let is_same = self.entry(entry) == Ok(told);
                self.names.remove(&key(entry));
                self.drop_inode(told);
                is_same
            }
            NameChange::Create(entry, _) | NameChange::PutValue(entry, _) => {
                // A name that is still here may have gone.
                if let Some(before) = self.entry(entry).ok().filter(|before| *before != told) {
                    self.names.remove(&key(entry));
                    self.drop_inode(before);
                }
                self.make(change, told) == Ok(told)
            }
            _ => self.make(change, told) == Ok(told),
        }
    }

    fn set_parent(&mut self, number: InodeId, parent: InodeId) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.parent = Some(parent);
        }
    }

    /// No name leads to it any more. An empty container is gone.
    fn drop_inode(&mut self, number: InodeId) {
        let is_empty = !self.names.keys().any(|(container, _)| *container == number);
        match self.inodes.get_mut(&number) {
            Some(inode) if inode.kind.is_container() && is_empty => drop(self.inodes.remove(&number)),
            Some(inode) if inode.kind == InodeKind::Symlink => drop(self.inodes.remove(&number)),
            Some(inode) => inode.parent = None,
            None => {}
        }
    }

    /// Makes a change; `told` is the number of an inode that is made.
    fn make(&mut self, change: &NameChange, told: InodeId) -> Outcome {
        match change {
            NameChange::HardLink(..) => Err(StoreError::HardLink),
            NameChange::File(_) => unreachable!("names alone are tried here"),
            NameChange::Create(entry, new) => {
                let container = self.container(entry.container)?.kind;
                if self.entry(entry).is_ok() {
                    return Err(StoreError::Exists);
                }
                if !container.may_hold(new.kind) || container == InodeKind::Table {
                    return Err(StoreError::WrongKind);
                }
                self.insert(entry, new.kind, new.mode, new.target.clone(), told)
            }
            NameChange::PutValue(entry, bytes) => {
                if self.container(entry.container)?.kind != InodeKind::Table {
                    return Err(StoreError::WrongKind);
                }
                let mode = self.inodes[&entry.container].mode & 0o666;
                match self.entry(entry) {
                    Ok(inode) => self.write(inode, bytes),
                    Err(_) => self.insert(entry, InodeKind::File, mode, bytes.clone(), told),
                }
            }
            NameChange::Rename { from, to, replace } => self.rename(from, to, *replace),
            NameChange::Delete { entry, recursive } => self.delete(entry, *recursive),
            NameChange::SetAttributes(at, set) => self.set(at, set),
            NameChange::WriteInline(at, bytes) => {
                self.located(at.inode)?;
                self.write(at.inode, bytes)
            }
            NameChange::SetExtended(at, ..) => self.located(at.inode).map(|()| at.inode),
        }
    }

    fn insert(&mut self, entry: &EntryPath, kind: InodeKind, mode: u32, bytes: Vec<u8>, told: InodeId) -> Outcome {
        // A number is given once, and 0 never.
        if told == InodeId(0) || self.inodes.contains_key(&told) {
            return Err(StoreError::Damaged);
        }
        self.inodes.insert(told, ModelInode { kind, parent: Some(entry.container), mode, bytes });
        self.names.insert(key(entry), told);
        Ok(told)
    }

    fn write(&mut self, number: InodeId, bytes: &[u8]) -> Outcome {
        let inode = self.inodes.get_mut(&number).ok_or(StoreError::NotFound)?;
        if inode.kind != InodeKind::File {
            return Err(StoreError::WrongKind);
        }
        inode.bytes = bytes.to_vec();
        Ok(number)
    }

    fn set(&mut self, at: &InodePath, set: &SetAttributes) -> Outcome {
        self.located(at.inode)?;
        let inode = self.inodes.get_mut(&at.inode).ok_or(StoreError::NotFound)?;
        inode.mode = set.mode.unwrap_or(inode.mode);
        Ok(at.inode)
    }

    fn rename(&mut self, from: &EntryPath, to: &EntryPath, replace: bool) -> Outcome {
        self.container(from.container)?;
        let target = self.container(to.container)?.kind;
        let moved = self.entry(from)?;
        if from == to {
            return Ok(moved);
        }
        let (kind, is_far) = (self.inodes[&moved].kind, from.container != to.container);
        if !target.may_hold(kind) || (is_far && target == InodeKind::Table) {
            return Err(StoreError::WrongKind);
        }
        if kind.is_container() && is_far && self.is_within(to.container, moved) {
            return Err(StoreError::IntoItself);
        }
        if let Ok(victim) = self.entry(to) {
            let is_container = self.inodes[&victim].kind.is_container();
            match (replace, kind.is_container(), is_container) {
                (false, ..) => return Err(StoreError::Exists),
                (true, true, false) => return Err(StoreError::NotDirectory),
                (true, false, true) => return Err(StoreError::IsDirectory),
                (true, ..) if self.names.keys().any(|(c, _)| *c == victim) => return Err(StoreError::NotEmpty),
                (true, ..) => self.drop_inode(victim),
            }
        }
        self.names.remove(&key(from));
        self.names.insert(key(to), moved);
        self.set_parent(moved, to.container);
        Ok(moved)
    }

    fn is_within(&self, container: InodeId, outer: InodeId) -> bool {
        let mut at = container;
        while at != outer {
            match self.inodes.get(&at).and_then(|inode| inode.parent) {
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
        true
    }

    fn delete(&mut self, entry: &EntryPath, recursive: bool) -> Outcome {
        let number = self.entry(entry)?;
        let is_empty = !self.names.keys().any(|(container, _)| *container == number);
        if self.inodes[&number].kind.is_container() {
            match (is_empty, recursive) {
                (false, false) => return Err(StoreError::NotEmpty),
                // Even an empty one goes in the background then.
                (_, true) => self.inodes.get_mut(&number).expect("it is there").parent = None,
                (true, false) => drop(self.inodes.remove(&number)),
            }
        } else {
            self.drop_inode(number);
        }
        self.names.remove(&key(entry));
        Ok(number)
    }
}

fn key(entry: &EntryPath) -> (InodeId, Vec<u8>) {
    (entry.container, entry.name.as_bytes().to_vec())
}
