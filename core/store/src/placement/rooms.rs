//! The open regions of this service by place and by room, so that the best one is found without a look at all of them: a store has 10,000
//! drives and more.
//!
//! ```text
//!   class ─► Place (all) ─► Place "hall1" ─► Place "hall1/rack2" ─► NodeRoom ─► regions
//!                 each: its nodes, by free bytes
//! ```

use super::directory::{BlockWish, RegionEntry};
use crate::{ClassId, Location, NodeId, RegionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Nodes that are passed over one by one because they are where another copy is; then whole places are passed over.
const PASSED_OVER: usize = 64;

/// A node's free bytes in one class and place, the node, and its number here. The last one has most; of several the one with the lowest number.
type Ranked = (u64, Reverse<NodeId>, Reverse<usize>);

/// A node's open regions of one class at one place.
#[derive(Clone, Debug)]
struct NodeRoom {
    class: ClassId,
    location: Location,
    node: NodeId,
    /// By their free bytes.
    regions: BTreeSet<(u64, Reverse<RegionId>)>,
    free: u64,
}

/// A part of a location, and all nodes with room at it or below.
#[derive(Clone, Debug, Default)]
struct Place {
    nodes: BTreeSet<Ranked>,
    /// Those at it and not below.
    here: BTreeSet<Ranked>,
    parts: BTreeMap<String, Place>,
}

/// See [the module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms {
    numbers: BTreeMap<(ClassId, NodeId, Location), usize>,
    nodes: Vec<NodeRoom>,
    classes: BTreeMap<ClassId, Place>,
    /// The node and the free bytes of each region.
    regions: BTreeMap<RegionId, (usize, u64)>,
}

impl Rooms {
    /// A region has so many free bytes; nothing of it may be given out where there is no entry.
    pub fn set(&mut self, region: RegionId, entry: Option<&RegionEntry>, free: u64) {
        let before = self.regions.get(&region).copied();
        let after = entry.map(|entry| (self.number(entry), free));
        if before == after {
            return;
        }
        if let Some((number, free)) = before {
            self.regions.remove(&region);
            self.change(number, |node| {
                node.regions.remove(&(free, Reverse(region)));
                node.free -= free;
            });
        }
        if let Some((number, free)) = after {
            self.regions.insert(region, (number, free));
            self.change(number, |node| {
                node.regions.insert((free, Reverse(region)));
                node.free += free;
            });
        }
    }

    fn number(&mut self, entry: &RegionEntry) -> usize {
        let RegionEntry { node, class, location, .. } = entry;
        let next = self.nodes.len();
        let number = *self.numbers.entry((*class, *node, location.clone())).or_insert(next);
        if number == next {
            let (class, location, node) = (*class, location.clone(), *node);
            self.nodes.push(NodeRoom { class, location, node, regions: BTreeSet::new(), free: 0 });
        }
        number
    }

    fn change(&mut self, number: usize, with: impl FnOnce(&mut NodeRoom)) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let ranked = |node: &NodeRoom| (node.free, Reverse(node.node), Reverse(number));
        let before = ranked(node);
        with(node);
        let after = ranked(node);
        if before != after {
            let mut parts = node.location.parts();
            self.classes.entry(node.class).or_default().change(&mut parts, before, after);
        }
    }

    /// The best region of the wish's class that fits, and how well it is placed: near to where the first copy should be, far from the copies that
    /// there are; then the node with most free bytes, and its region with most.
    pub fn best(&self, wish: &BlockWish, fits: impl Fn(RegionId) -> bool) -> Option<(isize, RegionId)> {
        let place = self.classes.get(&wish.class)?;
        let pick = |ranked: &Ranked| -> Option<RegionId> {
            let node = self.nodes.get(ranked.2.0).filter(|node| !wish.avoid.contains(&node.node))?;
            node.regions.iter().rev().map(|(_, region)| region.0).find(|region| fits(*region))
        };
        let part =
            |number: usize, depth: usize| self.nodes.get(number).and_then(|node| node.location.parts().nth(depth));
        if wish.apart.is_empty() {
            return place.nearest(wish.location.as_ref(), &pick);
        }
        let apart: Vec<Vec<&str>> = wish.apart.iter().map(|location| location.parts().collect()).collect();
        let paths: Vec<&[&str]> = apart.iter().map(Vec::as_slice).collect();
        let (shared, _, region) = place.farthest(&paths, 0, &pick, &part)?;
        Some((-(shared as isize), region))
    }
}

impl Place {
    fn change<'a>(&mut self, parts: &mut impl Iterator<Item = &'a str>, before: Ranked, after: Ranked) {
        let swap = |nodes: &mut BTreeSet<Ranked>| {
            nodes.remove(&before);
            if after.0 > 0 {
                nodes.insert(after);
            }
        };
        swap(&mut self.nodes);
        match parts.next() {
            None => swap(&mut self.here),
            Some(part) => {
                if !self.parts.contains_key(part) {
                    self.parts.insert(part.into(), Place::default());
                }
                let inner = self.parts.get_mut(part);
                inner.into_iter().for_each(|inner| inner.change(parts, before, after));
            }
        }
    }

    fn first(nodes: &BTreeSet<Ranked>, pick: &impl Fn(&Ranked) -> Option<RegionId>) -> Option<(Ranked, RegionId)> {
        nodes.iter().rev().find_map(|ranked| Some((*ranked, pick(ranked)?)))
    }

    /// As many parts of the location as there are with a region that fits.
    fn nearest(
        &self,
        location: Option<&Location>,
        pick: &impl Fn(&Ranked) -> Option<RegionId>,
    ) -> Option<(isize, RegionId)> {
        let mut way: Vec<&Place> = alloc::vec![self];
        for part in location.into_iter().flat_map(Location::parts) {
            let Some(inner) = way.last().and_then(|place| place.parts.get(part)) else { break };
            way.push(inner);
        }
        let inner_first = way.iter().enumerate().rev();
        inner_first.filter_map(|(depth, place)| Some((depth as isize, Self::first(&place.nodes, pick)?.1))).next()
    }

    /// As few parts as possible in common with any of these paths, which all lead here: how many, and the region.
    fn farthest<'a>(
        &self,
        paths: &[&[&str]],
        depth: usize,
        pick: &impl Fn(&Ranked) -> Option<RegionId>,
        part: &impl Fn(usize, usize) -> Option<&'a str>,
    ) -> Option<(usize, Ranked, RegionId)> {
        let leads_to = |name: &str| paths.iter().any(|path| path.get(depth) == Some(&name));
        let is_on_path = |ranked: &Ranked| part(ranked.2.0, depth).is_some_and(leads_to);
        // Where most of the nodes with room are at the other copies, whole places are passed over.
        let passed = self.nodes.iter().rev().take_while(|ranked| is_on_path(ranked)).take(PASSED_OVER).count();
        let beside = if passed < PASSED_OVER {
            let mut nodes = self.nodes.iter().rev().filter(|ranked| !is_on_path(ranked));
            nodes.find_map(|ranked| Some((*ranked, pick(ranked)?)))
        } else {
            let others = self.parts.iter().filter(|(name, _)| !leads_to(name));
            let inner = others.filter_map(|(_, place)| Self::first(&place.nodes, pick));
            inner.chain(Self::first(&self.here, pick)).max_by_key(|(ranked, _)| *ranked)
        };
        if let Some((ranked, region)) = beside {
            return Some((depth, ranked, region));
        }
        let inner = self.parts.iter().filter(|(name, _)| leads_to(name)).filter_map(|(name, place)| {
            let name = name.as_str();
            let paths: Vec<&[&str]> = paths.iter().filter(|path| path.get(depth) == Some(&name)).copied().collect();
            place.farthest(&paths, depth + 1, pick, part)
        });
        inner.min_by_key(|(shared, ranked, _)| (*shared, Reverse(*ranked)))
    }
}
