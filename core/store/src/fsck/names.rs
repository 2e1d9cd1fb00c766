//! Names, inodes, parents and orphans.

use super::finding::{Finding, FindingKind, Repair};
use super::image::Image;
use crate::InodeId;
use crate::inode::{Content, Inode, InodeKind};
use crate::keys::{KeySpace, inode_key, name_key, orphan_key, parent_key};
use crate::kv::KvWrite;
use crate::name::EntryName;
use crate::records::{COPIES_MAX, CounterRecord, NameRecord, ParentRecord, to_value};
use crate::space::{BLOCK_MAX, BLOCK_MIN};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The directory that gets what no name leads to.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The containers that each inode has a name in, and those names.
type NamesOf<'a> = BTreeMap<InodeId, Vec<(InodeId, &'a EntryName)>>;

impl Image {
    pub(super) fn find_in_names(&self, findings: &mut Vec<Finding>) {
        let names_of = self.names_of();
        self.find_root(findings);
        self.find_names(findings);
        self.find_orphans(&names_of, findings);
        for (number, inode) in &self.inodes {
            self.find_in_inode(*number, inode, &names_of, findings);
        }
        self.find_parents(findings);
        self.find_detached(&names_of, findings);
        self.find_next_inode(findings);
    }

    /// Whether there is an inode of that number, if only one that cannot be read.
    pub(super) fn is_inode(&self, inode: InodeId) -> bool {
        self.raw(&inode_key(inode)).is_some()
    }

    fn names_of(&self) -> NamesOf<'_> {
        let mut names_of = NamesOf::new();
        for ((container, name), record) in &self.names {
            names_of.entry(record.inode).or_default().push((*container, name));
        }
        names_of
    }

    fn find_root(&self, findings: &mut Vec<Finding>) {
        if self.inodes.get(&InodeId::ROOT).is_some_and(|root| root.kind == InodeKind::Directory) {
            return;
        }
        let root = Inode {
            kind: InodeKind::Directory,
            mode: 0o755,
            version: 1,
            copies: 1,
            block: 1 << 20,
            ..Inode::default()
        };
        let writes = vec![
            KvWrite::Put(inode_key(InodeId::ROOT), to_value(&root)),
            KvWrite::Put(parent_key(InodeId::ROOT), to_value(&ParentRecord { parent: InodeId::ROOT })),
        ];
        findings.push(Finding {
            kind: FindingKind::NoRoot,
            about: "there is no root directory".into(),
            repair: Repair::Writes(writes),
        });
    }

    fn find_names(&self, findings: &mut Vec<Finding>) {
        let mut kept = BTreeMap::new();
        for ((container, name), record) in &self.names {
            if self.is_preferred(*container, record.inode) {
                kept.entry(record.inode).or_insert((*container, name));
            }
        }
        for ((container, name), record) in &self.names {
            let key = name_key(*container, name);
            let about = format!("name \"{name}\" in inode {container} leads to inode {}", record.inode);
            let delete = Repair::Writes(vec![KvWrite::Delete(key.clone())]);
            let mut push = |kind, about, repair| findings.push(Finding { kind, about, repair });
            let Some(inode) = self.inodes.get(&record.inode) else {
                if !self.is_inode(record.inode) {
                    push(FindingKind::DanglingName, about + ", which is not there", delete);
                }
                continue;
            };
            match self.inodes.get(container) {
                None if self.is_inode(*container) => {}
                Some(outer) if outer.kind.is_container() => {
                    if !outer.kind.may_hold(inode.kind) {
                        let what = "move it to a directory, or delete it";
                        push(FindingKind::WrongKindInside, about.clone(), Repair::Refused(what));
                    }
                }
                _ => {
                    push(FindingKind::NameInNoContainer, about, delete);
                    continue;
                }
            }
            let (at, first) = kept.get(&record.inode).map_or((*container, name), |kept| *kept);
            if (at, first) != (*container, name) {
                push(FindingKind::SeveralNames, format!("{about}, as \"{first}\" in inode {at} does"), delete);
            } else if record.kind != inode.kind {
                let right = NameRecord { kind: inode.kind, ..*record };
                let repair = Repair::Writes(vec![KvWrite::Put(key, to_value(&right))]);
                let about = format!("{about}, a {:?} and not a {:?}", inode.kind, record.kind);
                push(FindingKind::NameKind, about, repair);
            }
        }
    }

    /// Whether the inode says that it is in that container, or that none has a name of it where it says that it is.
    fn is_preferred(&self, container: InodeId, inode: InodeId) -> bool {
        let told = self.told_parent(inode);
        let has_name_there =
            |there: InodeId| self.names.iter().any(|((at, _), record)| *at == there && record.inode == inode);
        told == Some(container) || !told.is_some_and(has_name_there)
    }

    /// The container that an inode says it is in.
    fn told_parent(&self, inode: InodeId) -> Option<InodeId> {
        let found = self.inodes.get(&inode)?;
        match found.kind.is_container() {
            true => self.parents.get(&inode).map(|record| record.parent),
            false => Some(found.parent),
        }
    }

    fn find_orphans(&self, names_of: &NamesOf<'_>, findings: &mut Vec<Finding>) {
        for orphan in self.orphans.keys() {
            let delete = Repair::Writes(vec![KvWrite::Delete(orphan_key(*orphan))]);
            let kind = if !self.is_inode(*orphan) {
                FindingKind::OrphanOfNone
            } else if names_of.contains_key(orphan) {
                FindingKind::NamedOrphan
            } else {
                continue;
            };
            findings.push(Finding { kind, about: format!("inode {orphan}"), repair: delete });
        }
    }

    fn find_in_inode(&self, number: InodeId, inode: &Inode, names_of: &NamesOf<'_>, findings: &mut Vec<Finding>) {
        let mut push = |kind, about: String, repair| findings.push(Finding { kind, about, repair });
        let about = format!("inode {number}, a {:?}", inode.kind);
        let names = names_of.get(&number).map_or(&[][..], Vec::as_slice);
        let is_orphan = self.orphans.contains_key(&number);
        if number != InodeId::ROOT && names.is_empty() && !is_orphan {
            push(FindingKind::Nameless, about.clone(), Repair::Writes(self.link_in_lost_and_found(number, inode)));
        } else if let ([(container, _)], false) = (names, inode.kind.is_container()) {
            if inode.parent != *container {
                let right = Inode { parent: *container, ..inode.clone() };
                let repair = Repair::Writes(vec![KvWrite::Put(inode_key(number), to_value(&right))]);
                let about = format!("{about}: it says that it is in inode {}, and is in {container}", inode.parent);
                return push(FindingKind::Parent, about, repair);
            }
        }
        let is_of_kind = match inode.content {
            Content::Names => inode.kind.is_container(),
            Content::Inline(_) | Content::Mapped => inode.kind == InodeKind::File,
            Content::Target(_) => inode.kind == InodeKind::Symlink,
        };
        if !is_of_kind {
            return push(FindingKind::ContentKind, about, Repair::Refused("delete it"));
        }
        let size = match &inode.content {
            Content::Inline(bytes) => inode.size.max(bytes.len() as u64),
            Content::Target(path) => path.len() as u64,
            Content::Names => 0,
            Content::Mapped => inode.size,
        };
        let copies = inode.copies.clamp(1, COPIES_MAX as u8);
        let is_block = inode.block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&inode.block.into());
        let right = Inode { size, copies, ..inode.clone() };
        let repair = Repair::Writes(vec![KvWrite::Put(inode_key(number), to_value(&right))]);
        if size != inode.size {
            let about = format!("{about}: it says {} bytes, and {size} lie in it", inode.size);
            push(FindingKind::InlineSize, about, repair);
        } else if copies != inode.copies {
            push(FindingKind::Layout, format!("{about}: {} copies", inode.copies), repair);
        } else if inode.kind == InodeKind::File && !is_block {
            let what = "its blocks cannot be found; put a copy of the metadata back, or delete the file";
            let repair = match inode.content {
                Content::Mapped => Repair::Refused(what),
                _ => {
                    let right = Inode { block: 1 << 20, ..inode.clone() };
                    Repair::Writes(vec![KvWrite::Put(inode_key(number), to_value(&right))])
                }
            };
            push(FindingKind::Layout, format!("{about}: blocks of {} bytes", inode.block), repair);
        }
    }

    /// A name in `/lost+found`, which is made if it is not there. No service runs, so nobody remembers that directory's version.
    fn link_in_lost_and_found(&self, number: InodeId, inode: &Inode) -> Vec<KvWrite> {
        let mut writes = Vec::new();
        let Ok(lost) = EntryName::new(LOST_AND_FOUND) else { return writes };
        let there = self.names.get(&(InodeId::ROOT, lost.clone())).filter(|record| record.kind == InodeKind::Directory);
        let directory = match there {
            Some(record) => record.inode,
            None => {
                let made = self.first_free_inode();
                let directory = Inode {
                    kind: InodeKind::Directory,
                    mode: 0o700,
                    version: 1,
                    copies: 1,
                    block: 1 << 20,
                    ..Inode::default()
                };
                let next = CounterRecord { next: made.get().saturating_add(1) };
                writes.push(KvWrite::Put(inode_key(made), to_value(&directory)));
                writes.push(KvWrite::Put(parent_key(made), to_value(&ParentRecord { parent: InodeId::ROOT })));
                let record = NameRecord { inode: made, kind: InodeKind::Directory };
                writes.push(KvWrite::Put(name_key(InodeId::ROOT, &lost), to_value(&record)));
                writes.push(KvWrite::Put(KeySpace::NextInode.key(&[]), to_value(&next)));
                made
            }
        };
        let Ok(name) = EntryName::new(format!("#{number}").as_bytes()) else { return writes };
        writes
            .push(KvWrite::Put(name_key(directory, &name), to_value(&NameRecord { inode: number, kind: inode.kind })));
        if inode.kind.is_container() {
            writes.push(KvWrite::Put(parent_key(number), to_value(&ParentRecord { parent: directory })));
        } else {
            let right = Inode { parent: directory, ..inode.clone() };
            writes.push(KvWrite::Put(inode_key(number), to_value(&right)));
        }
        writes
    }

    /// An inode number that was never used.
    fn first_free_inode(&self) -> InodeId {
        let told = self.next_inode.map_or(0, |record| record.next);
        let used = self.inodes.keys().chain(self.names.values().map(|record| &record.inode)).max();
        InodeId(told.max(used.map_or(0, |inode| inode.get().saturating_add(1))).max(InodeId::ROOT.get() + 1))
    }

    fn find_parents(&self, findings: &mut Vec<Finding>) {
        for container in self.parents.keys() {
            let is_right = match self.inodes.get(container) {
                Some(inode) => inode.kind.is_container(),
                None => self.is_inode(*container),
            };
            if !is_right {
                findings.push(Finding {
                    kind: FindingKind::ParentOfNone,
                    about: format!("inode {container}"),
                    repair: Repair::Writes(vec![KvWrite::Delete(parent_key(*container))]),
                });
            }
        }
        let mut parent_of = BTreeMap::from([(InodeId::ROOT, InodeId::ROOT)]);
        for ((container, _), record) in &self.names {
            if self.is_preferred(*container, record.inode) {
                parent_of.entry(record.inode).or_insert(*container);
            }
        }
        for (number, _) in self.inodes.iter().filter(|(_, inode)| inode.kind.is_container()) {
            // An orphan has none; what has no name gets one, and a parent with it.
            let right = match parent_of.get(number) {
                Some(parent) => *parent,
                None if self.orphans.contains_key(number) => InodeId(0),
                None => continue,
            };
            let told = self.parents.get(number).map(|record| record.parent);
            if told != Some(right) {
                let told = told.map_or("nothing".into(), |told| format!("inode {told}"));
                let write = KvWrite::Put(parent_key(*number), to_value(&ParentRecord { parent: right }));
                findings.push(Finding {
                    kind: FindingKind::Parent,
                    about: format!("container {number}: {told} is told as its parent, and it is in inode {right}"),
                    repair: Repair::Writes(vec![write]),
                });
            }
        }
    }

    /// Containers that lie within themselves: one of each circle loses its name and gets another one.
    fn find_detached(&self, names_of: &NamesOf<'_>, findings: &mut Vec<Finding>) {
        let mut rooted: BTreeSet<InodeId> = BTreeSet::from([InodeId::ROOT]);
        let containers = self.inodes.iter().filter(|(_, inode)| inode.kind.is_container());
        for (number, _) in containers {
            let (mut at, mut way) = (*number, BTreeSet::new());
            let ends_in_circle = loop {
                if rooted.contains(&at) {
                    break false;
                }
                if !way.insert(at) {
                    break true;
                }
                // Orphans, and what has no name or a damaged one, are told as such.
                match names_of.get(&at).and_then(|names| names.first()) {
                    Some((container, _)) => at = *container,
                    None => break false,
                }
            };
            if !ends_in_circle {
                rooted.extend(way);
                continue;
            }
            let (Some(inode), Some(names)) = (self.inodes.get(&at), names_of.get(&at)) else { continue };
            let mut writes = self.link_in_lost_and_found(at, inode);
            writes.extend(names.iter().map(|(container, name)| KvWrite::Delete(name_key(*container, name))));
            findings.push(Finding {
                kind: FindingKind::Detached,
                about: format!("container {at} lies within itself"),
                repair: Repair::Writes(writes),
            });
            rooted.extend(way);
        }
    }

    fn find_next_inode(&self, findings: &mut Vec<Finding>) {
        let right = self.first_free_inode();
        let key = KeySpace::NextInode.key(&[]);
        let is_unreadable = self.next_inode.is_none() && self.raw(&key).is_some();
        if !is_unreadable && self.next_inode.is_none_or(|record| record.next < right.get()) {
            let write = KvWrite::Put(key, to_value(&CounterRecord { next: right.get() }));
            findings.push(Finding {
                kind: FindingKind::NextInode,
                about: format!("inode {} is in use", right.get().saturating_sub(1)),
                repair: Repair::Writes(vec![write]),
            });
        }
    }
}
