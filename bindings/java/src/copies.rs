//! How many copies of a block a store can keep.

use std::collections::BTreeSet;
use weir_store::protocol::{NamespaceInfo, NamespaceState};
use weir_store::records::COPIES_MAX;
use weir_store::{ClassName, NodeId};

/// Nodes with a drive that takes new blocks of one of the wanted classes, where none is wanted of any class: each copy lies on a node of its
/// own. 1 to [`COPIES_MAX`].
pub fn offered(classes: &[ClassName], namespaces: &[NamespaceInfo], wanted: &[String]) -> u8 {
    let is_wanted = |namespace: &&NamespaceInfo| {
        let name = classes.get(usize::from(namespace.class.0)).map(ClassName::as_str);
        wanted.is_empty() || wanted.iter().any(|wanted| Some(wanted.as_str()) == name)
    };
    let taking = namespaces.iter().filter(|namespace| namespace.state == NamespaceState::Up);
    let nodes: BTreeSet<NodeId> = taking.filter(is_wanted).map(|namespace| namespace.node).collect();
    nodes.len().clamp(1, COPIES_MAX) as u8
}
