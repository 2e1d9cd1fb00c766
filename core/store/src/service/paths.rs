//! Where containers are: their names, as far as they were seen.
//!
//! The records know a container's parent and not its name there, which policies by path need. Whoever makes a file has come to its container
//! by a path, or has made it: what was seen on the way is remembered. A name counts from the answer that says where it leads until the container gets another
//! one; who has it from a change that may be an old one's repeated answer is asked again first.

use crate::id::InodeId;
use crate::name::EntryName;
use crate::tree::EntryPath;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Containers that are remembered at the most; above it all are forgotten.
const PATHS_MAX: usize = 1 << 16;

/// Folders above one another at the most; of a file that lies deeper no path is known.
const DEPTH_MAX: usize = 4096;

/// A container's name.
#[derive(Clone, Debug)]
struct Place {
    parent: InodeId,
    name: EntryName,
    is_sure: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Paths(BTreeMap<InodeId, Place>);

/// What is known of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathFound {
    Path(Vec<u8>),
    /// Of that container the name is not known, or perhaps that one.
    Lacks(InodeId, Option<EntryPath>),
    TooDeep,
}

impl Paths {
    /// A name leads to a container, as an answer of just now says.
    pub fn learn(&mut self, container: InodeId, at: EntryPath) {
        self.insert(container, at, true);
    }

    /// A name may lead to a container.
    pub fn suppose(&mut self, container: InodeId, at: EntryPath) {
        self.insert(container, at, false);
    }

    fn insert(&mut self, container: InodeId, at: EntryPath, is_sure: bool) {
        if self.0.len() >= PATHS_MAX && !self.0.contains_key(&container) {
            self.0.clear();
        }
        self.0.insert(container, Place { parent: at.container, name: at.name, is_sure });
    }

    /// What was renamed: perhaps a container, which has that name then, or has had it.
    pub fn renamed(&mut self, inode: InodeId, to: EntryPath) {
        if self.0.remove(&inode).is_some() {
            self.suppose(inode, to);
        }
    }

    pub fn forget(&mut self, container: InodeId) {
        self.0.remove(&container);
    }

    /// A container may have got another name: nobody knows which.
    pub fn forget_all(&mut self) {
        self.0.clear();
    }

    /// The path of a name.
    pub fn path(&self, at: &EntryPath) -> PathFound {
        let (mut names, mut here) = (alloc::vec![&at.name], at.container);
        while here != InodeId::ROOT {
            let Some(place) = self.0.get(&here) else { return PathFound::Lacks(here, None) };
            if !place.is_sure {
                let perhaps = EntryPath { container: place.parent, name: place.name.clone() };
                return PathFound::Lacks(here, Some(perhaps));
            }
            if names.len() >= DEPTH_MAX {
                return PathFound::TooDeep;
            }
            names.push(&place.name);
            here = place.parent;
        }
        let mut path = Vec::with_capacity(names.iter().map(|name| name.as_bytes().len() + 1).sum());
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        PathFound::Path(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(container: u64, name: &str) -> EntryPath {
        EntryPath { container: InodeId(container), name: EntryName::new(name.as_bytes()).expect("a name") }
    }

    #[test]
    fn paths_follow_names() {
        let root = InodeId::ROOT.get();
        let mut paths = Paths::default();
        assert_eq!(paths.path(&at(root, "a")), PathFound::Path(b"/a".to_vec()));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Lacks(InodeId(9), None));
        paths.learn(InodeId(9), at(8, "nine"));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Lacks(InodeId(8), None));
        paths.suppose(InodeId(8), at(root, "eight"));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Lacks(InodeId(8), Some(at(root, "eight"))));
        paths.learn(InodeId(8), at(root, "eight"));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Path(b"/eight/nine/a".to_vec()));
        // One above gets another name: what is below is found anew by it.
        paths.renamed(InodeId(8), at(root, "other"));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Lacks(InodeId(8), Some(at(root, "other"))));
        paths.learn(InodeId(8), at(root, "other"));
        assert_eq!(paths.path(&at(9, "a")), PathFound::Path(b"/other/nine/a".to_vec()));
        paths.renamed(InodeId(77), at(root, "a file"));
        assert_eq!(paths.0.len(), 2, "what is no container, as far as it is known, is not remembered");
        for number in 100..100 + PATHS_MAX as u64 + 5 {
            paths.learn(InodeId(number), at(root, "x"));
        }
        assert!(paths.0.len() <= PATHS_MAX);
    }
}
