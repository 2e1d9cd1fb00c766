//! A path, name by name, with the symlinks on the way.

use super::about::path_text;
use crate::error::StoreError;
use crate::id::InodeId;
use crate::inode::Content;
use crate::name::EntryName;
use crate::tree::{EntryPath, InodePath, NameQuery, NameReply};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Symlinks that are followed at the most.
const LINKS_MAX: u32 = 40;

/// Parts of a path at the most, with those of its symlinks.
const PARTS_MAX: usize = 2048;

#[derive(Clone, Debug)]
enum Part {
    /// The name of that number that the client has given.
    Given(usize),
    /// One of a symlink's path.
    Name(EntryName),
    Parent,
}

/// A path on its way.
#[derive(Clone, Debug)]
pub(super) struct Resolving {
    from: InodeId,
    /// The client's names.
    given: Vec<EntryName>,
    /// So many of them were looked at.
    seen: usize,
    /// The containers from the beginning to where it is.
    stack: Vec<InodeId>,
    parts: VecDeque<Part>,
    follow: bool,
    links: u32,
    taken: usize,
}

/// What is next.
pub(super) enum ResolveStep {
    Ask(NameQuery),
    /// That, which is no container, with its inode.
    Found(NameReply, InodePath),
    Fail(StoreError),
}

impl Resolving {
    pub fn new(from: InodeId, names: Vec<EntryName>, follow: bool) -> Self {
        let parts = (0..names.len()).map(Part::Given).collect();
        let stack = alloc::vec![from];
        Self { from, given: names, seen: 0, stack, parts, follow, links: 0, taken: 0 }
    }

    fn here(&self) -> InodeId {
        self.stack.last().copied().unwrap_or(InodeId::ROOT)
    }

    /// How far it has come, as the client gave it; within a symlink's path the name there as well.
    pub fn path(&self) -> String {
        let path = path_text(self.from, self.given.get(..self.seen).unwrap_or_default());
        match self.parts.front() {
            Some(Part::Name(name)) => format!("{path}: \"{name}\" of the symlink's path"),
            Some(Part::Given(_) | Part::Parent) | None => path,
        }
    }

    /// What to ask first, or after a step.
    pub fn ask(&mut self) -> ResolveStep {
        loop {
            match self.parts.front() {
                None => {
                    let here = self.here();
                    return ResolveStep::Ask(NameQuery::Stat(InodePath { inode: here, parent: here }));
                }
                Some(Part::Parent) => {
                    self.parts.pop_front();
                    if self.stack.len() > 1 {
                        self.stack.pop();
                    } else if self.here() != InodeId::ROOT {
                        // What lies above where it began is not known here.
                        return ResolveStep::Fail(StoreError::NotFound);
                    }
                }
                Some(Part::Name(name)) => return self.look_up(name.clone()),
                Some(Part::Given(number)) => {
                    let number = *number;
                    self.seen = self.seen.max(number + 1);
                    let Some(name) = self.given.get(number).cloned() else {
                        return ResolveStep::Fail(StoreError::Damaged);
                    };
                    return self.look_up(name);
                }
            }
        }
    }

    /// The name that was asked for last.
    pub fn asked(&self) -> Option<EntryPath> {
        let name = match self.parts.front()? {
            Part::Given(number) => self.given.get(*number)?.clone(),
            Part::Name(name) => name.clone(),
            Part::Parent => return None,
        };
        Some(EntryPath { container: self.here(), name })
    }

    fn look_up(&self, name: EntryName) -> ResolveStep {
        ResolveStep::Ask(NameQuery::Lookup(EntryPath { container: self.here(), name }))
    }

    /// What a name leads to.
    pub fn found(&mut self, reply: NameReply) -> ResolveStep {
        let here = self.here();
        let NameReply::Found(record, inode) = &reply else {
            return match &reply {
                NameReply::Inode(..) => ResolveStep::Found(reply, InodePath { inode: here, parent: here }),
                _ => ResolveStep::Fail(StoreError::Damaged),
            };
        };
        self.parts.pop_front();
        self.taken += 1;
        if self.taken > PARTS_MAX {
            return ResolveStep::Fail(StoreError::TooManyLinks);
        }
        if record.kind.is_container() {
            self.stack.push(record.inode);
            return self.ask();
        }
        let target = match inode.as_ref().map(|inode| &inode.content) {
            Some(Content::Target(target)) if self.follow || !self.parts.is_empty() => target.clone(),
            _ if self.parts.is_empty() => {
                let at = InodePath { inode: record.inode, parent: here };
                return ResolveStep::Found(reply, at);
            }
            _ => return ResolveStep::Fail(StoreError::NotDirectory),
        };
        self.links += 1;
        if self.links > LINKS_MAX {
            return ResolveStep::Fail(StoreError::TooManyLinks);
        }
        match self.enter(&target) {
            Ok(()) => self.ask(),
            Err(error) => ResolveStep::Fail(error),
        }
    }

    /// Puts a symlink's path before what is left.
    fn enter(&mut self, target: &[u8]) -> Result<(), StoreError> {
        if target.is_empty() {
            return Err(StoreError::NotFound);
        }
        if target.starts_with(b"/") {
            self.stack = alloc::vec![InodeId::ROOT];
        }
        let parts = target.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        let parts: Vec<Part> = parts
            .map(|part| if part == b".." { Ok(Part::Parent) } else { EntryName::new(part).map(Part::Name) })
            .collect::<Result<_, _>>()?;
        if parts.len() + self.parts.len() > PARTS_MAX {
            return Err(StoreError::TooManyLinks);
        }
        parts.into_iter().rev().for_each(|part| self.parts.push_front(part));
        Ok(())
    }
}
