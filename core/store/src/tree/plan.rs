//! What a request comes to: from what was read to an answer, or to a change that one commit makes. A plan that lacks something stops and says what; it
//! is made anew once that was read.

use super::mutant::{Mutant, Mutation};
use super::operation::{
    ATTRIBUTE_BYTES_MAX, CLASSES_MAX, EntryPath, FileChange, InodePath, LIST_MAX, ListEntry, NameChange, NameQuery,
    NameReply, NewInode, SetAttributes, TARGET_BYTES_MAX,
};
use super::plan_file::size_max;
use super::task::Plan;
use super::view::{PageKey, Planned, Stop, View};
use crate::class::ClassId;
use crate::error::StoreError;
use crate::id::{InodeId, SessionId};
use crate::inode::{Content, Inode, InodeKind, UnixNanos};
use crate::keys::{inode_key, name_key, name_of, name_range, orphan_key, owner_key, parent_key};
use crate::kv::{Expect, KvKey, KvWrite};
use crate::name::EntryName;
use crate::records::{COPIES_MAX, Changed, NameRecord, OrphanRecord, ParentRecord, to_value};
use crate::space::{BLOCK_MAX, BLOCK_MIN};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::Code;

/// Makes the plan of one task.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub view: View<'a>,
    pub wall: UnixNanos,
    pub inline_max: u32,
    /// The next inode number, if there is one.
    pub number: Option<InodeId>,
    /// The container that the client saw its inode in is not the one, or cannot be asked: the inode's record tells.
    pub reads_parent: bool,
    /// Who asks for a change.
    pub session: Option<SessionId>,
    pub mutation: Mutation,
    /// The file that is changed is open.
    pub is_open: bool,
    /// Extended attributes of the inode that is made.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// What the plan has come to so far. Preconditions count also if it is refused.
    pub plan: Plan,
}

pub(super) fn refuse<T>(error: StoreError) -> Planned<T> {
    Err(Stop::Refuse(error))
}

impl Planner<'_> {
    /// The answer to a query.
    pub fn query(&mut self, query: &NameQuery) -> Planned<NameReply> {
        match query {
            NameQuery::Lookup(entry) => self.lookup(entry),
            NameQuery::Stat(at) => self.locate(at).map(|(_, inode)| NameReply::Inode(at.inode, Box::new(inode))),
            NameQuery::File(at) => self.locate_open(at).map(|(_, inode)| NameReply::Inode(at.inode, Box::new(inode))),
            NameQuery::List { container, after, most } => self.list(*container, after.as_ref(), *most),
        }
    }

    /// What a change comes to; the plan has the commit.
    pub fn change(&mut self, change: &NameChange) -> Planned<Changed> {
        match change {
            NameChange::Create(entry, new) => self.create(entry, new),
            NameChange::HardLink(..) => refuse(StoreError::HardLink),
            NameChange::Rename { from, to, replace } => self.rename(from, to, *replace),
            NameChange::Delete { entry, recursive } => self.delete(entry, *recursive),
            NameChange::SetAttributes(at, set) => self.set_attributes(at, set),
            NameChange::SetExtended(at, name, value) => self.set_extended(at, name, value.as_deref()),
            NameChange::WriteInline(at, bytes) => self.write_inline(at, bytes),
            NameChange::PutValue(entry, bytes) => self.put_value(entry, bytes),
            NameChange::File(change) => self.file(change),
        }
    }

    fn file(&mut self, change: &FileChange) -> Planned<Changed> {
        match change {
            FileChange::OpenWriter(at) => self.open_writer(at),
            FileChange::OpenNew { entry, new, bytes, exclusive } => self.open_new(entry, new, bytes, *exclusive),
            FileChange::CloseWriter(at) => self.close_writer(at),
            FileChange::Publish(at, size, blocks) => self.publish(at, *size, blocks),
            FileChange::OfOpen(_, change) => {
                self.is_open = true;
                self.change(change)
            }
            FileChange::UnderPolicy(change, attributes) => {
                self.attributes.clone_from(attributes);
                self.change(change)
            }
            FileChange::Unsettle(at, block) => self.unsettle(at, *block),
            FileChange::MarkOut(at, block, copies) => self.mark_out(at, *block, copies),
        }
    }

    fn lookup(&mut self, entry: &EntryPath) -> Planned<NameReply> {
        let record = self.entry(entry)?;
        let inode = match record.kind.is_container() {
            true => None,
            false => self.view.inodes(entry.container, &[record.inode])?.pop().map(Box::new),
        };
        Ok(NameReply::Found(record, inode))
    }

    fn list(&mut self, container: InodeId, after: Option<&EntryName>, most: usize) -> Planned<NameReply> {
        let version = self.view.container(container)?.version;
        let most = most.clamp(1, LIST_MAX);
        let (from, until) = name_range(container, after);
        let found = self.view.page(container, PageKey { from, until, most: most + 1 })?;
        let mut entries = Vec::new();
        for (key, value) in found.iter().take(most) {
            let name = name_of(key).ok_or(Stop::Never(StoreError::Damaged))?;
            let record: NameRecord = crate::records::from_value(value).map_err(Stop::Never)?;
            entries.push(ListEntry { name, record, inode: None });
        }
        let is_file = |entry: &&ListEntry| !entry.record.kind.is_container();
        let files: Vec<InodeId> = entries.iter().filter(is_file).map(|entry| entry.record.inode).collect();
        let mut inodes = self.view.inodes(container, &files)?.into_iter();
        for entry in entries.iter_mut().filter(|entry| !entry.record.kind.is_container()) {
            entry.inode = inodes.next().map(Box::new);
        }
        Ok(NameReply::Page { version, entries, is_last: found.len() <= most })
    }

    /// What a name leads to, which has to be there.
    pub(super) fn entry(&self, entry: &EntryPath) -> Planned<NameRecord> {
        self.view.container(entry.container)?;
        self.view.name(entry.container, &entry.name)?.ok_or(Stop::Refuse(StoreError::NotFound))
    }

    /// An inode, and the container that covers it.
    pub(super) fn locate(&self, at: &InodePath) -> Planned<(InodeId, Inode)> {
        if self.reads_parent {
            let found: Option<Inode> = self.view.free(inode_key(at.inode))?;
            return match found {
                None => Err(Stop::Never(StoreError::NotFound)),
                Some(inode) => Err(Stop::Instead(BTreeSet::from([cover(at.inode, &inode)?]))),
            };
        }
        let by = self.view.held.first().copied().unwrap_or(at.parent);
        let found: Option<Inode> = self.view.covered(by, inode_key(at.inode))?;
        let inode = found.ok_or(Stop::Never(StoreError::NotFound))?;
        let right = cover(at.inode, &inode)?;
        if right == by { Ok((by, inode)) } else { Err(Stop::Instead(BTreeSet::from([right]))) }
    }

    /// The same of a file that is open. One without a name has no container, which the number 0 stands for: what is written to it
    /// expects its inode as it was.
    pub(super) fn locate_open(&self, at: &InodePath) -> Planned<(InodeId, Inode)> {
        match self.locate(at) {
            Err(Stop::Never(StoreError::NotFound)) => {}
            found => return found,
        }
        let found: Option<Inode> = self.view.free(inode_key(at.inode))?;
        match found.filter(|inode| inode.kind == InodeKind::File && inode.parent == InodeId(0)) {
            Some(inode) => Ok((InodeId(0), inode)),
            None => Err(Stop::Never(StoreError::NotFound)),
        }
    }

    /// The inode that is changed.
    fn locate_changed(&self, at: &InodePath) -> Planned<(InodeId, Inode)> {
        if self.is_open { self.locate_open(at) } else { self.locate(at) }
    }

    pub(super) fn put<T: Code>(&mut self, by: Option<InodeId>, key: KvKey, record: &T) {
        self.plan.writes.push((by, KvWrite::Put(key, to_value(record))));
    }

    pub(super) fn remove(&mut self, by: Option<InodeId>, key: KvKey) {
        self.plan.writes.push((by, KvWrite::Delete(key)));
    }

    /// Writes a container whose names change; its new version.
    pub(super) fn touch(&mut self, container: InodeId, mut inode: Inode) -> Planned<u64> {
        inode.version = next_number(inode.version)?;
        inode.modified = inode.modified.max(self.wall);
        inode.changed = inode.changed.max(self.wall);
        self.put(Some(container), inode_key(container), &inode);
        Ok(inode.version)
    }

    fn create(&mut self, entry: &EntryPath, new: &NewInode) -> Planned<Changed> {
        let container = self.view.container(entry.container)?;
        if self.view.name::<NameRecord>(entry.container, &entry.name)?.is_some() {
            return refuse(StoreError::Exists);
        }
        if !container.kind.may_hold(new.kind) || container.kind == InodeKind::Table {
            return refuse(StoreError::WrongKind);
        }
        if new.target.len() > TARGET_BYTES_MAX as usize {
            return refuse(StoreError::TooLarge(TARGET_BYTES_MAX));
        }
        // A symlink has no blocks, and nothing lies in it that takes these from it.
        let is_block = new.block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&new.block.into());
        if new.kind != InodeKind::Symlink && !is_block {
            return refuse(StoreError::BlockSize);
        }
        if new.kind != InodeKind::Symlink && !(1..=COPIES_MAX).contains(&new.copies.into()) {
            return refuse(StoreError::Copies);
        }
        check_classes(&new.classes)?;
        let content = match new.kind {
            InodeKind::File => Content::Inline(Vec::new()),
            InodeKind::Symlink => Content::Target(new.target.clone()),
            _ => Content::Names,
        };
        self.make(entry, container, new, content)
    }

    /// A new inode with a name.
    pub(super) fn make(
        &mut self,
        entry: &EntryPath,
        container: Inode,
        new: &NewInode,
        content: Content,
    ) -> Planned<Changed> {
        let number = self.number.ok_or(Stop::Numbers)?;
        let size = match &content {
            Content::Inline(bytes) | Content::Target(bytes) => bytes.len() as u64,
            Content::Names | Content::Mapped => 0,
        };
        let inode = Inode {
            kind: new.kind,
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            size,
            created: self.wall,
            modified: self.wall,
            changed: self.wall,
            version: 1,
            parent: if new.kind.is_container() { InodeId(0) } else { entry.container },
            classes: new.classes.clone(),
            location: new.location.clone(),
            copies: new.copies.clamp(1, COPIES_MAX as u8),
            block: new.block,
            attributes: self.attributes.clone(),
            content,
        };
        self.plan.uses_number = true;
        let record = NameRecord { inode: number, kind: new.kind };
        self.put(Some(entry.container), name_key(entry.container, &entry.name), &record);
        if new.kind.is_container() {
            self.put(None, inode_key(number), &inode);
            self.put(None, parent_key(number), &ParentRecord { parent: entry.container });
        } else {
            self.put(Some(entry.container), inode_key(number), &inode);
        }
        self.touch(entry.container, container)?;
        Ok(Changed { inode: number, version: 1 })
    }

    fn delete(&mut self, entry: &EntryPath, recursive: bool) -> Planned<Changed> {
        let record = self.entry(entry)?;
        if record.kind.is_container() && recursive {
            self.take_rename_key()?;
            self.orphan_container(record.inode, record.kind);
        } else {
            self.discard(entry.container, record)?;
        }
        let container = self.view.container(entry.container)?;
        self.remove(Some(entry.container), name_key(entry.container, &entry.name));
        let version = self.touch(entry.container, container)?;
        Ok(Changed { inode: record.inode, version })
    }

    /// A container, with all its names, becomes an orphan.
    pub(super) fn orphan_container(&mut self, inode: InodeId, kind: InodeKind) {
        self.put(None, parent_key(inode), &ParentRecord { parent: InodeId(0) });
        self.put(None, orphan_key(inode), &OrphanRecord { kind, since: self.wall });
        self.plan.orphans.push(inode);
    }

    /// What a name of this container leads to loses that name: a file becomes an orphan, a symlink goes, and so does a container that is empty.
    pub(super) fn discard(&mut self, container: InodeId, record: NameRecord) -> Planned<()> {
        match record.kind {
            InodeKind::File => self.orphan_file(container, record.inode)?,
            InodeKind::Symlink => self.remove(Some(container), inode_key(record.inode)),
            InodeKind::Directory | InodeKind::Multifile | InodeKind::Table => self.remove_empty(record.inode)?,
        }
        Ok(())
    }

    /// A file that has no name any more stays until nobody has it open.
    pub(super) fn orphan_file(&mut self, container: InodeId, file: InodeId) -> Planned<()> {
        let Some(mut inode) = self.view.inodes(container, &[file])?.pop() else {
            return Err(Stop::Never(StoreError::Damaged));
        };
        inode.parent = InodeId(0);
        self.plan.orphan_files.push(file);
        self.put(None, inode_key(file), &inode);
        self.put(None, orphan_key(file), &OrphanRecord { kind: InodeKind::File, since: self.wall });
        Ok(())
    }

    fn remove_empty(&mut self, container: InodeId) -> Planned<()> {
        let (from, until) = name_range(container, None);
        let page = PageKey { from, until, most: 1 };
        let found = if self.mutation.is(Mutant::VictimNotOwned) {
            self.view.seen.pages.get(&page).map(Vec::as_slice).ok_or(Stop::Page(page))?
        } else {
            self.view.page(container, page)?
        };
        if !found.is_empty() {
            return refuse(StoreError::NotEmpty);
        }
        self.remove_container(container);
        Ok(())
    }

    /// The container is no more.
    pub(super) fn remove_container(&mut self, container: InodeId) {
        self.remove(None, inode_key(container));
        self.remove(None, parent_key(container));
        self.remove(None, owner_key(container));
        self.plan.gone.push(container);
    }

    /// Writes an inode that has another version now.
    pub(super) fn update(&mut self, by: InodeId, number: InodeId, mut inode: Inode) -> Planned<Changed> {
        inode.version = next_number(inode.version)?;
        inode.changed = inode.changed.max(self.wall);
        let key = inode_key(number);
        if by == InodeId(0) {
            let before = self.view.seen.free(key.clone())?.map(<[u8]>::to_vec);
            self.plan.expect.push((key.clone(), before.map_or(Expect::Absent, Expect::Value)));
            self.put(None, key, &inode);
        } else {
            self.put(Some(by), key, &inode);
        }
        Ok(Changed { inode: number, version: inode.version })
    }

    fn set_attributes(&mut self, at: &InodePath, set: &SetAttributes) -> Planned<Changed> {
        let (by, mut inode) = self.locate_changed(at)?;
        if let Some(size) = set.size {
            self.expect_no_other_writer(at.inode)?;
            if size > size_max(inode.block) {
                return refuse(StoreError::Malformed);
            }
            match &mut inode.content {
                Content::Inline(bytes) => bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX)),
                Content::Mapped => return refuse(StoreError::NotInline),
                Content::Names | Content::Target(_) => return refuse(StoreError::WrongKind),
            }
            inode.size = size;
            inode.modified = inode.modified.max(self.wall);
        }
        inode.mode = set.mode.map_or(inode.mode, |mode| mode & 0o7777);
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        inode.modified = set.modified.unwrap_or(inode.modified);
        check_classes(set.classes.as_deref().unwrap_or_default())?;
        inode.classes = set.classes.clone().unwrap_or(inode.classes);
        inode.location = set.location.clone().unwrap_or(inode.location);
        self.update(by, at.inode, inode)
    }

    fn set_extended(&mut self, at: &InodePath, name: &str, value: Option<&[u8]>) -> Planned<Changed> {
        let (by, mut inode) = self.locate_changed(at)?;
        if name.is_empty() {
            return refuse(StoreError::BadName);
        }
        match value {
            Some(value) => drop(inode.attributes.insert(String::from(name), value.into())),
            None if inode.attributes.remove(name).is_none() => return refuse(StoreError::NoAttribute),
            None => {}
        }
        let bytes: usize = inode.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > ATTRIBUTE_BYTES_MAX as usize {
            return refuse(StoreError::AttributeSpace(ATTRIBUTE_BYTES_MAX));
        }
        self.update(by, at.inode, inode)
    }

    fn write_inline(&mut self, at: &InodePath, bytes: &[u8]) -> Planned<Changed> {
        let (by, mut inode) = self.locate_changed(at)?;
        self.expect_no_other_writer(at.inode)?;
        match &mut inode.content {
            Content::Inline(_) if bytes.len() > self.inline_max as usize => {
                return refuse(StoreError::TooLarge(self.inline_max));
            }
            Content::Inline(old) => *old = bytes.into(),
            Content::Mapped => return refuse(StoreError::NotInline),
            Content::Names | Content::Target(_) => return refuse(StoreError::WrongKind),
        }
        inode.size = bytes.len() as u64;
        inode.modified = inode.modified.max(self.wall);
        self.update(by, at.inode, inode)
    }

    fn put_value(&mut self, entry: &EntryPath, bytes: &[u8]) -> Planned<Changed> {
        let container = self.view.container(entry.container)?;
        if container.kind != InodeKind::Table {
            return refuse(StoreError::WrongKind);
        }
        if bytes.len() > self.inline_max as usize {
            return refuse(StoreError::TooLarge(self.inline_max));
        }
        if let Some(record) = self.view.name::<NameRecord>(entry.container, &entry.name)? {
            let at = InodePath { inode: record.inode, parent: entry.container };
            return self.write_inline(&at, bytes);
        }
        let new = NewInode {
            kind: InodeKind::File,
            mode: container.mode & 0o666,
            uid: container.uid,
            gid: container.gid,
            target: Vec::new(),
            classes: Vec::new(),
            location: container.location.clone(),
            copies: container.copies,
            block: container.block,
        };
        self.make(entry, container, &new, Content::Inline(bytes.into()))
    }
}

/// The number behind this one. Numbers of 64 bits that are counted up are not used up: one that is was damaged.
pub(super) fn next_number(number: u64) -> Planned<u64> {
    number.checked_add(1).ok_or(Stop::Never(StoreError::Damaged))
}

fn check_classes(classes: &[ClassId]) -> Planned<()> {
    if classes.len() > CLASSES_MAX { refuse(StoreError::Classes) } else { Ok(()) }
}

/// The container whose owner has an inode: its own for a container. An orphan's file has none.
fn cover(number: InodeId, inode: &Inode) -> Planned<InodeId> {
    match (inode.kind.is_container(), inode.parent) {
        (true, _) => Ok(number),
        (false, InodeId(0)) => Err(Stop::Never(StoreError::NotFound)),
        (false, parent) => Ok(parent),
    }
}
