//! The inodes that the kernel knows, by their numbers: how often it was told of each, and by which name it was found last.

use std::collections::HashMap;
use weir_store::{EntryName, InodeId, InodeKind, InodePath};

/// Names of a path for the log at the most: deeper ones begin with an ellipsis.
const PATH_DEPTH: usize = 64;

#[derive(Clone, Debug)]
struct Node {
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    parent: InodeId,
    name: EntryName,
    is_container: bool,
}

/// See [the module](self).
#[derive(Debug, Default)]
pub struct Nodes {
    known: HashMap<InodeId, Node>,
}

/// What a name was found to lead to.
#[derive(Clone, Copy, Debug)]
pub struct FoundName<'a> {
    /// The container of the name.
    pub parent: InodeId,
    /// The name.
    pub name: &'a EntryName,
    /// The inode.
    pub number: InodeId,
    /// Its kind.
    pub kind: InodeKind,
}

impl Nodes {
    /// The kernel is told of an inode.
    pub fn told(&mut self, seen: FoundName<'_>) {
        let FoundName { parent, name, number, kind } = seen;
        let node = Node { lookups: 0, parent, name: name.clone(), is_container: kind.is_container() };
        let node = self.known.entry(number).and_modify(|known| known.moved(&node)).or_insert(node);
        node.lookups += 1;
    }

    /// The kernel has forgotten that it was told so often: whether it knows the inode no more.
    pub fn forget(&mut self, number: InodeId, lookups: u64) -> bool {
        let Some(node) = self.known.get_mut(&number) else { return true };
        node.lookups = node.lookups.saturating_sub(lookups);
        let is_forgotten = node.lookups == 0;
        if is_forgotten {
            self.known.remove(&number);
        }
        is_forgotten
    }

    /// An inode has another name.
    pub fn moved(&mut self, number: InodeId, parent: InodeId, name: &EntryName) {
        if let Some(node) = self.known.get_mut(&number) {
            node.parent = parent;
            node.name = name.clone();
        }
    }

    /// Where an inode was seen last.
    pub fn at(&self, number: InodeId) -> InodePath {
        match self.known.get(&number) {
            Some(node) if !node.is_container => InodePath { inode: number, parent: node.parent },
            _ => InodePath { inode: number, parent: number },
        }
    }

    /// The container that an inode is in, as far as that is known; the root is in itself.
    pub fn parent(&self, number: InodeId) -> InodeId {
        self.known.get(&number).map_or(InodeId::ROOT, |node| node.parent)
    }

    /// The path of an inode, for the log: by the names that were seen last.
    pub fn path(&self, number: InodeId) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), number);
        while at != InodeId::ROOT {
            match self.known.get(&at) {
                Some(node) if names.len() < PATH_DEPTH => {
                    names.push(node.name.as_bytes().to_vec());
                    at = node.parent;
                }
                Some(_) => {
                    names.push(b"...".to_vec());
                    break;
                }
                None => {
                    names.push(format!("(inode {})", at.0).into_bytes());
                    break;
                }
            }
        }
        match names.is_empty() {
            true => b"/".to_vec(),
            false => names.iter().rev().flat_map(|name| [b"/", name.as_slice()].concat()).collect(),
        }
    }

    /// The path of a name in a container, for the log.
    pub fn path_in(&self, container: InodeId, name: &[u8]) -> Vec<u8> {
        match self.path(container) {
            root if root == b"/" => [b"/", name].concat(),
            above => [above.as_slice(), b"/", name].concat(),
        }
    }
}

impl Node {
    fn moved(&mut self, to: &Node) {
        self.parent = to.parent;
        self.name = to.name.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EntryName {
        EntryName::new(text.as_bytes()).expect("a name")
    }

    fn tell(nodes: &mut Nodes, parent: u64, text: &str, number: u64, kind: InodeKind) {
        nodes.told(FoundName { parent: InodeId(parent), name: &name(text), number: InodeId(number), kind });
    }

    #[test]
    fn an_inode_is_known_until_it_is_forgotten_as_often_as_it_was_told() {
        let mut nodes = Nodes::default();
        tell(&mut nodes, 1, "a", 7, InodeKind::Directory);
        tell(&mut nodes, 7, "b", 8, InodeKind::File);
        tell(&mut nodes, 7, "b", 8, InodeKind::File);
        assert_eq!(nodes.at(InodeId(8)), InodePath { inode: InodeId(8), parent: InodeId(7) });
        assert_eq!(nodes.at(InodeId(7)), InodePath { inode: InodeId(7), parent: InodeId(7) });
        assert!(!nodes.forget(InodeId(8), 1));
        assert_eq!(nodes.path(InodeId(8)), b"/a/b");
        assert!(nodes.forget(InodeId(8), 1));
        assert_eq!(nodes.path(InodeId(8)), b"/(inode 8)");
        assert_eq!(nodes.at(InodeId::ROOT).parent, InodeId::ROOT);
    }

    #[test]
    fn paths_follow_moves() {
        let mut nodes = Nodes::default();
        tell(&mut nodes, 1, "a", 7, InodeKind::Directory);
        tell(&mut nodes, 1, "c", 9, InodeKind::Directory);
        tell(&mut nodes, 7, "b", 8, InodeKind::File);
        nodes.moved(InodeId(8), InodeId(9), &name("d"));
        assert_eq!(nodes.path(InodeId(8)), b"/c/d");
        assert_eq!(nodes.path_in(InodeId(7), b"x"), b"/a/x");
        assert_eq!(nodes.path_in(InodeId::ROOT, b"x"), b"/x");
        assert_eq!(nodes.parent(InodeId(8)), InodeId(9));
    }

    #[test]
    fn a_circle_of_names_that_were_seen_ends() {
        let mut nodes = Nodes::default();
        tell(&mut nodes, 8, "a", 7, InodeKind::Directory);
        tell(&mut nodes, 7, "b", 8, InodeKind::Directory);
        assert!(nodes.path(InodeId(8)).starts_with(b"/.../"));
    }
}
