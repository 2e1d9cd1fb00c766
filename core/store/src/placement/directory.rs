//! The regions of the store as a service has heard of them.

use crate::{ClassId, Location, NodeId, RegionId, ServiceId};
use alloc::collections::{BTreeMap, BTreeSet};

/// A region, and who gives out its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// The node that has it.
    pub node: NodeId,
    /// Its class.
    pub class: ClassId,
    /// Where its node is.
    pub location: Location,
    /// The service that it is leased to; none if it is free.
    pub owner: Option<ServiceId>,
    /// New blocks may be given out: its node is up and is not being drained.
    pub open: bool,
}

/// What blocks are looked for in one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockWish {
    /// The class.
    pub class: ClassId,
    /// Bytes of a block.
    pub block: u64,
    /// Blocks at the most; one suffices.
    pub count: u64,
    /// A tie in the class goes to a region that is here.
    pub location: Option<Location>,
    /// Nodes that other copies of these blocks are on.
    pub avoid: BTreeSet<NodeId>,
}

impl BlockWish {
    fn fits(&self, entry: &RegionEntry) -> bool {
        entry.open && entry.class == self.class && !self.avoid.contains(&entry.node)
    }

    /// How near a region is: the parts of its location that are as wished.
    fn nearness(&self, entry: &RegionEntry) -> usize {
        self.location.as_ref().map_or(0, |wish| wish.shared_parts(&entry.location))
    }
}

/// How many blocks the regions of this service have to give: `Space` answers at once.
pub trait OwnRoom {
    /// Blocks of `block` bytes that are free in a region, none of them quarantined; 0 if it is not this service's.
    fn blocks(&self, region: RegionId, block: u64) -> u64;

    /// Whether a block of `block` bytes will be free in a region of this service when all of its quarantine is.
    fn is_freeing(&self, region: RegionId, block: u64) -> bool;
}

/// A region as it was when it was tried: with another owner it is tried again.
pub(crate) type Tried = BTreeSet<(RegionId, Option<ServiceId>)>;

/// Where blocks may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Own(RegionId),
    Free(RegionId),
    Other(ServiceId),
}

/// All regions, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory(BTreeMap<RegionId, RegionEntry>);

impl Directory {
    pub fn replace(&mut self, regions: BTreeMap<RegionId, RegionEntry>) {
        self.0 = regions;
    }

    pub fn set_owner(&mut self, region: RegionId, owner: Option<ServiceId>) {
        if let Some(entry) = self.0.get_mut(&region) {
            entry.owner = owner;
        }
    }

    pub fn get(&self, region: RegionId) -> Option<&RegionEntry> {
        self.0.get(&region)
    }

    /// The regions of another service that may have what is wanted, as it is known here.
    pub fn of_service(&self, service: ServiceId, wish: &BlockWish) -> Tried {
        let owned = self.0.iter().filter(|(_, entry)| entry.owner == Some(service) && wish.fits(entry));
        owned.map(|(region, entry)| (*region, entry.owner)).collect()
    }

    /// The best source of one class that was not tried: near before far, then the service's own regions, then free ones, then other
    /// services; of several the one with most blocks, as far as that is known (`hints`: what other services said last).
    #[allow(clippy::too_many_arguments)]
    pub fn best(
        &self,
        me: ServiceId,
        wish: &BlockWish,
        own: &impl OwnRoom,
        hints: &BTreeMap<(ServiceId, ClassId), u64>,
        tried: &Tried,
        may_try: impl Fn(Source) -> bool,
    ) -> Option<Source> {
        let rank = |(region, entry): (&RegionId, &RegionEntry)| {
            if !wish.fits(entry) {
                return None;
            }
            let (source, kind, room) = match entry.owner {
                Some(owner) if owner == me => (Source::Own(*region), 2, own.blocks(*region, wish.block)),
                None => (Source::Free(*region), 1, u64::MAX),
                Some(owner) => (Source::Other(owner), 0, hints.get(&(owner, wish.class)).copied().unwrap_or(u64::MAX)),
            };
            // What another service has is known when it was asked; what this one has is known.
            let usable = !tried.contains(&(*region, entry.owner)) && may_try(source) && (room > 0 || kind == 0);
            usable.then_some(((wish.nearness(entry), kind, room, core::cmp::Reverse(source)), source))
        };
        self.0.iter().filter_map(rank).max_by_key(|(rank, _)| *rank).map(|(_, source)| source)
    }

    /// Whether a region of this service will have what is wanted.
    pub fn is_freeing(&self, me: ServiceId, wish: &BlockWish, own: &impl OwnRoom) -> bool {
        let mine = self.0.iter().filter(|(_, entry)| entry.owner == Some(me) && wish.fits(entry));
        mine.into_iter().any(|(region, _)| own.is_freeing(*region, wish.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Room(BTreeMap<RegionId, u64>);

    impl OwnRoom for Room {
        fn blocks(&self, region: RegionId, _block: u64) -> u64 {
            self.0.get(&region).copied().unwrap_or(0)
        }

        fn is_freeing(&self, region: RegionId, _block: u64) -> bool {
            self.0.contains_key(&region)
        }
    }

    fn rack(number: u32) -> Location {
        Location::new(&alloc::format!("rack{number}")).expect("a location")
    }

    fn entry(node: u64, class: u16, location: u32, owner: Option<u64>) -> RegionEntry {
        let (class, location, owner) = (ClassId(class), rack(location), owner.map(ServiceId));
        RegionEntry { node: NodeId(node), class, location, owner, open: true }
    }

    #[test]
    fn near_before_far_then_own_free_and_others() {
        let mut directory = Directory::default();
        directory.replace(BTreeMap::from([
            (RegionId(1), entry(1, 0, 1, Some(1))),
            (RegionId(2), entry(2, 0, 1, Some(1))),
            (RegionId(3), entry(3, 0, 1, None)),
            (RegionId(4), entry(4, 0, 2, Some(2))),
            (RegionId(5), entry(5, 0, 1, Some(3))),
            (RegionId(6), entry(5, 1, 2, Some(1))),
            (RegionId(7), RegionEntry { open: false, ..entry(9, 0, 2, None) }),
        ]));
        let room = Room(BTreeMap::from([(RegionId(1), 3), (RegionId(2), 5), (RegionId(6), 9)]));
        let hints = BTreeMap::from([((ServiceId(3), ClassId(0)), 0)]);
        let mut wish =
            BlockWish { class: ClassId(0), block: 1, count: 1, location: Some(rack(2)), avoid: BTreeSet::new() };
        let (mut tried, mut order) = (Tried::new(), alloc::vec::Vec::new());
        while let Some(source) = directory.best(ServiceId(1), &wish, &room, &hints, &tried, |_| true) {
            match source {
                Source::Own(region) => tried.extend([(region, Some(ServiceId(1)))]),
                Source::Free(region) => tried.extend([(region, None)]),
                Source::Other(service) => tried.extend(directory.of_service(service, &wish)),
            }
            order.push(source);
        }
        assert_eq!(
            order,
            [
                Source::Other(ServiceId(2)),
                Source::Own(RegionId(2)),
                Source::Own(RegionId(1)),
                Source::Free(RegionId(3)),
                Source::Other(ServiceId(3))
            ],
            "the near one is another service's; who said that it has nothing is asked all the same"
        );
        wish.avoid.extend([NodeId(2), NodeId(4)]);
        let best = |room: &Room| directory.best(ServiceId(1), &wish, room, &hints, &Tried::new(), |_| true);
        assert_eq!(best(&room), Some(Source::Own(RegionId(1))), "no node of another copy");
        assert_eq!(best(&Room(BTreeMap::new())), Some(Source::Free(RegionId(3))), "nothing of its own is free");
    }
}
