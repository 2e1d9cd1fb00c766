//! Storage nodes: whether one is there, has what it had, and takes new blocks.

use super::lease_timing::LeaseTiming;
use crate::NodeId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use weir_units::Nanos;

/// What is written on a donated namespace, and changes when its content is lost: a random number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentLabel(pub u128);

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It renews its lease: its blocks count, new ones are given out.
    Up,
    /// It renews its lease; its blocks count and are being moved away.
    Draining,
    /// It does not renew its lease: nothing new there, reads from copies.
    Lost,
}

/// What a node says with each renewal, or what an operator says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReport {
    /// It renews its lease, and its namespaces have this content.
    Renewed(ContentLabel),
    /// Its blocks are to be moved away.
    Drain,
    /// It is to take blocks again.
    Undrain,
    /// No block is on it any more, and it leaves the store. It stays out, also if it goes on to renew.
    Remove,
    /// The operator takes a node that was removed into the store again: its next renewal counts.
    Add,
}

/// What has changed. Blocks on a node are named by its content label: those of an older one are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It takes blocks.
    Opened(NodeId, ContentLabel),
    /// It takes no new blocks. Those that it has can be read, and are to be moved.
    Drains(NodeId),
    /// It takes no new blocks, and those that it has cannot be read. After a delay they are made again from their copies.
    Lost(NodeId),
    /// It is back, and its blocks are what they were.
    Back(NodeId),
    /// It is back without its content: blocks of that label without another copy are lost, by name. They never read as zeroes.
    Emptied(NodeId, ContentLabel),
    /// It is no node of the store any more.
    Removed(NodeId),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    state: NodeState,
    /// Whether it drains as soon as it is up.
    drains: bool,
    label: ContentLabel,
    seen: Nanos,
}

/// All nodes, as a service sees them on its own clock.
#[derive(Clone, Debug)]
pub struct NodeTable {
    timing: LeaseTiming,
    nodes: BTreeMap<NodeId, Node>,
    /// Nodes that were removed, and not added again.
    removed: BTreeSet<NodeId>,
}

impl NodeTable {
    /// No nodes.
    pub fn new(timing: LeaseTiming) -> Self {
        Self { timing, nodes: BTreeMap::new(), removed: BTreeSet::new() }
    }

    /// No nodes, but those that were removed: as another table's [`removed`](Self::removed) had them before the process ended.
    pub fn without(timing: LeaseTiming, removed: impl IntoIterator<Item = NodeId>) -> Self {
        Self { removed: removed.into_iter().collect(), ..Self::new(timing) }
    }

    /// Nodes that were removed and not added again: the caller keeps them, and begins with them after a restart.
    pub fn removed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.removed.iter().copied()
    }

    /// What a node is; nothing if it is none of the store's.
    pub fn state(&self, node: NodeId) -> Option<NodeState> {
        self.nodes.get(&node).map(|node| node.state)
    }

    /// Whether new blocks may be given out on a node.
    pub fn is_open(&self, node: NodeId) -> bool {
        self.state(node) == Some(NodeState::Up)
    }

    /// Panics unless a node is in the store or removed, not both.
    pub fn check(&self) {
        assert!(
            self.removed.iter().all(|node| !self.nodes.contains_key(node)),
            "a node that was removed is none of the store's"
        );
    }

    /// A report of a node, new ones included; adds what has changed.
    pub fn report(&mut self, now: Nanos, id: NodeId, report: NodeReport, changes: &mut Vec<NodeChange>) {
        let Some(node) = self.nodes.get_mut(&id) else {
            match report {
                NodeReport::Renewed(label) if !self.removed.contains(&id) => {
                    self.nodes.insert(id, Node { state: NodeState::Up, drains: false, label, seen: now });
                    changes.push(NodeChange::Opened(id, label));
                }
                NodeReport::Add => _ = self.removed.remove(&id),
                NodeReport::Renewed(_) | NodeReport::Drain | NodeReport::Undrain | NodeReport::Remove => {}
            }
            return;
        };
        match report {
            NodeReport::Renewed(label) => {
                node.seen = now;
                let was = core::mem::replace(&mut node.label, label);
                let was_lost = node.state == NodeState::Lost;
                node.state = if node.drains { NodeState::Draining } else { NodeState::Up };
                if was != label {
                    changes.push(NodeChange::Emptied(id, was));
                } else if was_lost {
                    changes.push(NodeChange::Back(id));
                }
                if was != label || was_lost {
                    changes.push(if node.drains { NodeChange::Drains(id) } else { NodeChange::Opened(id, label) });
                }
            }
            NodeReport::Drain => {
                let new = !core::mem::replace(&mut node.drains, true);
                if new && node.state == NodeState::Up {
                    node.state = NodeState::Draining;
                    changes.push(NodeChange::Drains(id));
                }
            }
            NodeReport::Undrain => {
                node.drains = false;
                if node.state == NodeState::Draining {
                    node.state = NodeState::Up;
                    changes.push(NodeChange::Opened(id, node.label));
                }
            }
            NodeReport::Remove => {
                self.nodes.remove(&id);
                self.removed.insert(id);
                changes.push(NodeChange::Removed(id));
            }
            NodeReport::Add => {}
        }
    }

    /// Time has passed; adds the nodes that are lost by it.
    pub fn tick(&mut self, now: Nanos, changes: &mut Vec<NodeChange>) {
        for (id, node) in &mut self.nodes {
            if node.state != NodeState::Lost && now >= self.timing.watcher_end(node.seen) {
                node.state = NodeState::Lost;
                changes.push(NodeChange::Lost(*id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ContentLabel = ContentLabel(1);
    const B: ContentLabel = ContentLabel(2);
    const N: NodeId = NodeId(7);

    type Row<'a> = (bool, bool, NodeReport, Option<NodeState>, &'a [NodeChange]);

    /// Every state and every report, with what comes of it.
    #[test]
    fn every_report_in_every_state() {
        use NodeChange::{Back, Drains, Emptied, Lost, Opened, Removed};
        use NodeReport::{Add, Drain, Remove, Renewed, Undrain};
        use NodeState::{Draining, Up};
        let timing = LeaseTiming::new(Nanos(100), 0, Nanos(10)).unwrap();
        let lost = Some(NodeState::Lost);
        // Whether it is told to drain, whether it is lost, the report, the state and the changes after it.
        let table: [Row<'_>; 24] = [
            (false, false, Renewed(A), Some(Up), &[]),
            (false, false, Renewed(B), Some(Up), &[Emptied(N, A), Opened(N, B)]),
            (false, false, Drain, Some(Draining), &[Drains(N)]),
            (false, false, Undrain, Some(Up), &[]),
            (false, false, Remove, None, &[Removed(N)]),
            (false, false, Add, Some(Up), &[]),
            (true, false, Renewed(A), Some(Draining), &[]),
            (true, false, Renewed(B), Some(Draining), &[Emptied(N, A), Drains(N)]),
            (true, false, Drain, Some(Draining), &[]),
            (true, false, Undrain, Some(Up), &[Opened(N, A)]),
            (true, false, Remove, None, &[Removed(N)]),
            (true, false, Add, Some(Draining), &[]),
            (false, true, Renewed(A), Some(Up), &[Back(N), Opened(N, A)]),
            (false, true, Renewed(B), Some(Up), &[Emptied(N, A), Opened(N, B)]),
            (false, true, Drain, lost, &[]),
            (false, true, Undrain, lost, &[]),
            (false, true, Remove, None, &[Removed(N)]),
            (false, true, Add, lost, &[]),
            (true, true, Renewed(A), Some(Draining), &[Back(N), Drains(N)]),
            (true, true, Renewed(B), Some(Draining), &[Emptied(N, A), Drains(N)]),
            (true, true, Drain, lost, &[]),
            (true, true, Undrain, lost, &[]),
            (true, true, Remove, None, &[Removed(N)]),
            (true, true, Add, lost, &[]),
        ];
        for (drains, is_lost, report, state, expected) in table {
            let (mut nodes, mut changes) = (NodeTable::new(timing), Vec::new());
            nodes.report(Nanos(0), N, Renewed(A), &mut changes);
            assert_eq!(core::mem::take(&mut changes), [Opened(N, A)]);
            if drains {
                nodes.report(Nanos(0), N, Drain, &mut changes);
            }
            if is_lost {
                nodes.tick(Nanos(99), &mut changes);
                assert_ne!(nodes.state(N), lost, "not before its lease is over");
                nodes.tick(Nanos(100), &mut changes);
                assert_eq!(changes.pop(), Some(Lost(N)));
                nodes.tick(Nanos(101), &mut changes);
            }
            changes.clear();
            nodes.report(Nanos(100), N, report, &mut changes);
            assert_eq!((nodes.state(N), &changes[..]), (state, expected), "{drains} {is_lost} {report:?}");
            assert_eq!(nodes.is_open(N), state == Some(Up));
            nodes.check();
        }
    }

    #[test]
    fn a_node_that_was_removed_stays_out_until_it_is_added() {
        let timing = LeaseTiming::new(Nanos(100), 0, Nanos(10)).unwrap();
        let (mut nodes, mut changes) = (NodeTable::new(timing), Vec::new());
        let (renewed, removed) = (NodeReport::Renewed(A), NodeReport::Remove);
        [renewed, removed, renewed].into_iter().for_each(|report| nodes.report(Nanos(0), N, report, &mut changes));
        nodes.check();
        assert_eq!((nodes.state(N), &changes[..]), (None, &[NodeChange::Opened(N, A), NodeChange::Removed(N)][..]));
        // Also after a restart.
        let mut nodes = NodeTable::without(timing, nodes.removed());
        nodes.report(Nanos(1), N, renewed, &mut changes);
        assert_eq!((nodes.state(N), changes.len()), (None, 2), "it was removed");
        nodes.report(Nanos(1), N, NodeReport::Add, &mut changes);
        assert_eq!((nodes.state(N), changes.len()), (None, 2), "it has to be heard of first");
        nodes.report(Nanos(2), N, renewed, &mut changes);
        assert_eq!((nodes.state(N), changes.last()), (Some(NodeState::Up), Some(&NodeChange::Opened(N, A))));
    }

    #[test]
    fn a_node_that_was_never_heard_of_is_none() {
        let timing = LeaseTiming::new(Nanos(100), 0, Nanos(10)).unwrap();
        let (mut nodes, mut changes) = (NodeTable::new(timing), Vec::new());
        for report in [NodeReport::Drain, NodeReport::Undrain, NodeReport::Remove] {
            nodes.report(Nanos(0), N, report, &mut changes);
        }
        nodes.tick(Nanos(1_000), &mut changes);
        assert_eq!((nodes.state(N), changes.len()), (None, 0));
    }
}
