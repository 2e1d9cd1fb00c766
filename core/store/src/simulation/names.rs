//! Names as they should be: which path leads to which inode.

use super::totals::Totals;
use crate::InodeId;
use crate::linearizable::{Model, Unexplained, linearize};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// One of a few paths.
pub type PathNumber = u8;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCall {
    /// What is there.
    Look(PathNumber),
    /// A file is opened for writing, or made.
    Make(PathNumber),
    /// The name goes.
    Delete(PathNumber),
    /// The name becomes the other one, and takes its place.
    Rename(PathNumber, PathNumber),
}

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// This inode is there, or was.
    Inode(InodeId),
    /// There is none.
    Nothing,
    /// Nobody knows.
    Unknown,
}

/// A call and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub begin: u64,
    pub end: u64,
    pub call: NameCall,
    pub told: Told,
}

/// What a path leads to: an inode, or one that nobody was told of yet, by a number of the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum There {
    Known(InodeId),
    Untold,
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Paths {
    there: BTreeMap<PathNumber, There>,
    /// Inodes that had a name once: no path leads to them again but by a rename.
    gone: Vec<InodeId>,
}

impl Paths {
    /// Whether that inode may be at the path; then it is known to be.
    fn is_at(&mut self, path: PathNumber, inode: InodeId) -> bool {
        match self.there.get(&path) {
            Some(There::Known(known)) => *known == inode,
            Some(There::Untold) => self.is_new(inode) && self.there.insert(path, There::Known(inode)).is_some(),
            None => false,
        }
    }

    fn is_new(&self, inode: InodeId) -> bool {
        !self.gone.contains(&inode) && !self.there.values().any(|there| *there == There::Known(inode))
    }

    fn leave(&mut self, there: Option<There>) {
        if let Some(There::Known(inode)) = there {
            let at = self.gone.binary_search(&inode).unwrap_or_else(|at| at);
            self.gone.insert(at, inode);
        }
    }
}

impl Model for Paths {
    type Call = Named;

    fn span(call: &Named) -> (u64, u64) {
        (call.begin, call.end)
    }

    fn accepts(&mut self, named: &Named) -> bool {
        match (named.call, named.told) {
            (NameCall::Look(path), Told::Inode(inode)) => self.is_at(path, inode),
            (NameCall::Look(path) | NameCall::Delete(path) | NameCall::Rename(path, _), Told::Nothing) => {
                !self.there.contains_key(&path)
            }
            (NameCall::Look(_), Told::Unknown) => true,
            (NameCall::Make(path), Told::Inode(inode)) => {
                if self.there.contains_key(&path) {
                    return self.is_at(path, inode);
                }
                self.is_new(inode) && self.there.insert(path, There::Known(inode)).is_none()
            }
            (NameCall::Make(path), Told::Unknown) => {
                self.there.entry(path).or_insert(There::Untold);
                true
            }
            (NameCall::Make(_), Told::Nothing) => false,
            (NameCall::Delete(path), told) => {
                let is_right = match told {
                    Told::Inode(inode) => self.is_at(path, inode),
                    _ => self.there.contains_key(&path),
                };
                let there = self.there.remove(&path);
                self.leave(there);
                is_right
            }
            (NameCall::Rename(from, to), told) => {
                let is_right = match told {
                    Told::Inode(inode) => self.is_at(from, inode),
                    _ => self.there.contains_key(&from),
                };
                let Some(there) = self.there.remove(&from) else { return false };
                let replaced = self.there.insert(to, there);
                self.leave(replaced);
                is_right
            }
        }
    }

    fn is_query(named: &Named) -> bool {
        matches!(named.call, NameCall::Look(_)) || named.told == Told::Nothing
    }

    fn is_unknown(named: &Named) -> bool {
        named.told == Told::Unknown
    }
}

/// Whether names are as they should be.
pub fn check_names(calls: &[Named], totals: &mut Totals) -> Result<(), String> {
    match linearize(Paths::default(), calls) {
        Ok(()) => Ok(()),
        Err(Unexplained::TooMany) => {
            totals.unjudged += 1;
            Ok(())
        }
        Err(Unexplained::Wrong(left)) => {
            let lines: Vec<String> = left.iter().map(|call| format!("{call:?}")).collect();
            let mut all = calls.to_vec();
            all.sort_by_key(|call| call.begin);
            let all: Vec<String> = all.iter().map(|call| format!("{call:?}")).collect();
            Err(format!("no order explains:\n{}\nof:\n{}", lines.join("\n"), all.join("\n")))
        }
    }
}
