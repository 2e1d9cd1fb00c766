//! Plans of a rename, and of the work that a recursive delete leaves.

use super::mutant::Mutant;
use super::operation::EntryPath;
use super::plan::{Planner, next_number, refuse};
use super::view::{PageKey, Planned, Stop};
use crate::error::StoreError;
use crate::id::InodeId;
use crate::inode::{Inode, InodeKind};
use crate::keys::{KeySpace, inode_key, name_key, name_range, orphan_key, parent_key};
use crate::kv::Expect;
use crate::records::{Changed, CounterRecord, NameRecord, OrphanRecord, ParentRecord, from_value, to_value};

/// Names of an orphan that go in one commit.
const REAP_NAMES: usize = 16;

impl Planner<'_> {
    /// Both containers, the victim if it is one, and for a container that moves the rename key: one commit.
    pub(super) fn rename(&mut self, from: &EntryPath, to: &EntryPath, replace: bool) -> Planned<Changed> {
        self.view.needs(from.container)?;
        let target = self.view.container(to.container)?;
        let moved = self.entry(from)?;
        if from == to {
            return Ok(Changed { inode: moved.inode, version: target.version });
        }
        let is_far = from.container != to.container;
        if !target.kind.may_hold(moved.kind) || (is_far && target.kind == InodeKind::Table) {
            return refuse(StoreError::WrongKind);
        }
        if moved.kind.is_container() && is_far {
            self.move_container(moved.inode, to.container)?;
        }
        if let Some(victim) = self.view.name::<NameRecord>(to.container, &to.name)? {
            self.replace(to.container, victim, moved, replace)?;
        }
        if !moved.kind.is_container() && is_far {
            let Some(inode) = self.view.inodes(from.container, &[moved.inode])?.pop() else {
                return Err(Stop::Never(StoreError::Damaged));
            };
            let inode = Inode { parent: to.container, changed: inode.changed.max(self.wall), ..inode };
            self.put(Some(to.container), inode_key(moved.inode), &inode);
        }
        if is_far {
            let source = self.view.container(from.container)?;
            self.touch(from.container, source)?;
        }
        self.remove(Some(from.container), name_key(from.container, &from.name));
        self.put(Some(to.container), name_key(to.container, &to.name), &moved);
        let version = self.touch(to.container, target)?;
        Ok(Changed { inode: moved.inode, version })
    }

    /// What has the name already gives way, if it may.
    fn replace(&mut self, container: InodeId, victim: NameRecord, moved: NameRecord, replace: bool) -> Planned<()> {
        match (replace, moved.kind.is_container(), victim.kind.is_container()) {
            (false, ..) => refuse(StoreError::Exists),
            (true, true, false) => refuse(StoreError::NotDirectory),
            (true, false, true) => refuse(StoreError::IsDirectory),
            (true, ..) => self.discard(container, victim),
        }
    }

    /// The next change of the rename key is this one, or the commit conflicts.
    pub(super) fn take_rename_key(&mut self) -> Planned<()> {
        let key = KeySpace::RenameKey.key(&[]);
        let counter: CounterRecord = self.view.free(key.clone())?.ok_or(Stop::Never(StoreError::Damaged))?;
        if !self.mutation.is(Mutant::NoRenameKey) {
            self.plan.expect.push((key.clone(), Expect::Value(to_value(&counter))));
        }
        self.put(None, key, &CounterRecord { next: next_number(counter.next)? });
        Ok(())
    }

    /// A container gets another parent, which does not lie within it. The rename key is read first, so that no container has moved since, if
    /// the commit does not conflict.
    fn move_container(&mut self, moved: InodeId, to: InodeId) -> Planned<()> {
        self.take_rename_key()?;
        let (mut at, mut steps) = (to, 0);
        while at != InodeId::ROOT && !self.mutation.is(Mutant::NoWalk) {
            if at == moved {
                return refuse(StoreError::IntoItself);
            }
            let above: Option<ParentRecord> = self.view.free(parent_key(at))?;
            steps += 1;
            if steps > self.view.seen.values.len() {
                // More steps than records: they lead in a circle.
                return Err(Stop::Never(StoreError::Damaged));
            }
            match above.map(|record| record.parent) {
                None | Some(InodeId(0)) => return refuse(StoreError::NotFound),
                Some(parent) => at = parent,
            }
        }
        self.put(None, parent_key(moved), &ParentRecord { parent: to });
        Ok(())
    }

    /// Some names of an orphan become orphans themselves; if there are none, it is no more. Whether that is so.
    pub fn reap(&mut self, orphan: InodeId) -> Planned<bool> {
        let Some(_) = self.view.free::<OrphanRecord>(orphan_key(orphan))? else {
            return Err(Stop::Never(StoreError::NotFound));
        };
        let container = self.view.container(orphan)?;
        self.plan.expect.push((inode_key(orphan), Expect::Value(to_value(&container))));
        let (from, until) = name_range(orphan, None);
        let found = self.view.page(orphan, PageKey { from, until, most: REAP_NAMES })?;
        if found.is_empty() {
            self.remove_container(orphan);
            self.remove(None, orphan_key(orphan));
            return Ok(true);
        }
        let mut moves_container = false;
        for (key, value) in found {
            let record: NameRecord = from_value(value).map_err(Stop::Never)?;
            match record.kind {
                InodeKind::File | InodeKind::Symlink => self.discard(orphan, record)?,
                InodeKind::Directory | InodeKind::Multifile | InodeKind::Table => {
                    moves_container = true;
                    self.orphan_container(record.inode, record.kind);
                }
            }
            self.remove(Some(orphan), key.clone());
        }
        if moves_container {
            self.take_rename_key()?;
        }
        self.touch(orphan, container)?;
        Ok(false)
    }
}
