//! The regions of the store as a service has heard of them.

use super::rooms::Rooms;
use crate::{ClassId, Location, NodeId, RegionId, ServiceId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

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
    /// Where other copies of these blocks are: ties go to a region that is far from all of them, and not to one that is near to `location`.
    pub apart: Vec<Location>,
}

impl BlockWish {
    fn fits(&self, entry: &RegionEntry) -> bool {
        entry.open && entry.class == self.class && !self.avoid.contains(&entry.node)
    }

    /// How well a region is placed: how near, or how little with the other copies.
    fn nearness(&self, entry: &RegionEntry) -> isize {
        let near = self.location.as_ref().map_or(0, |wish| wish.shared_parts(&entry.location));
        let shared = self.apart.iter().map(|other| other.shared_parts(&entry.location)).max();
        shared.map_or(near as isize, |shared| -(shared as isize))
    }
}

/// How many blocks the regions of this service have to give: `Space` answers at once.
pub trait OwnRoom {
    /// Blocks of `block` bytes that are free in a region, none of them quarantined; 0 if it is not this service's.
    fn blocks(&self, region: RegionId, block: u64) -> u64;

    /// Whether a block of `block` bytes will be free in a region of this service when all of its quarantine is.
    fn is_freeing(&self, region: RegionId, block: u64) -> bool;

    /// Bytes that are free in a region; 0 if it is not this service's.
    fn free(&self, region: RegionId) -> u64;

    /// Regions whose free bytes may have changed since this was asked last.
    fn take_changed(&mut self) -> BTreeSet<RegionId>;

    /// Regions in which something is in quarantine, or is put there.
    fn freeing(&self) -> BTreeSet<RegionId>;

    /// Whether regions are being taken, whose room is not known yet.
    fn is_taking(&self) -> bool;
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

/// All regions.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    me: ServiceId,
    regions: BTreeMap<RegionId, RegionEntry>,
    /// Those that are free, or another service's.
    others: BTreeSet<RegionId>,
    /// Those of this service that are open.
    rooms: Rooms,
    /// What is free in those of this service, as far as it was said.
    free: BTreeMap<RegionId, u64>,
}

impl Directory {
    /// That of a service which has heard of no region.
    pub fn new(me: ServiceId) -> Self {
        let (regions, others, rooms, free) = (BTreeMap::new(), BTreeSet::new(), Rooms::default(), BTreeMap::new());
        Self { me, regions, others, rooms, free }
    }

    pub fn replace(&mut self, regions: BTreeMap<RegionId, RegionEntry>) {
        let gone: Vec<RegionId> = self.regions.keys().filter(|region| !regions.contains_key(region)).copied().collect();
        gone.into_iter().for_each(|region| self.set(region, None));
        regions.into_iter().for_each(|(region, entry)| self.set(region, Some(entry)));
    }

    /// What a region is from now on; it is none of the store's without an entry.
    pub fn set(&mut self, region: RegionId, entry: Option<RegionEntry>) {
        let free = self.free.get(&region).copied().unwrap_or(0);
        let me = self.me;
        let is_mine = |entry: &&RegionEntry| entry.owner == Some(me);
        match entry.as_ref().is_some_and(|entry| !is_mine(&entry)) {
            true => _ = self.others.insert(region),
            false => _ = self.others.remove(&region),
        }
        let open = entry.as_ref().filter(is_mine).filter(|entry| entry.open);
        self.rooms.set(region, open, free);
        match entry {
            Some(entry) => _ = self.regions.insert(region, entry),
            None => _ = self.regions.remove(&region),
        }
    }

    /// What is free in a region of this service.
    pub fn set_free(&mut self, region: RegionId, free: u64) {
        self.free.insert(region, free);
        let entry = self.regions.get(&region).filter(|entry| entry.open && entry.owner == Some(self.me));
        self.rooms.set(region, entry, free);
    }

    pub fn set_owner(&mut self, region: RegionId, owner: Option<ServiceId>) {
        if let Some(entry) = self.regions.get(&region).cloned() {
            self.set(region, Some(RegionEntry { owner, ..entry }));
        }
    }

    pub fn get(&self, region: RegionId) -> Option<&RegionEntry> {
        self.regions.get(&region)
    }

    /// The regions of another service that may have what is wanted, as it is known here.
    pub fn of_service(&self, service: ServiceId, wish: &BlockWish) -> Tried {
        let others = self.others.iter().filter_map(|region| Some((*region, self.regions.get(region)?)));
        let owned = others.filter(|(_, entry)| entry.owner == Some(service) && wish.fits(entry));
        owned.map(|(region, entry)| (region, entry.owner)).collect()
    }

    /// Where a node of another service is.
    pub fn location_of(&self, node: NodeId) -> Option<&Location> {
        let mut others = self.others.iter().filter_map(|region| self.regions.get(region));
        others.find(|entry| entry.node == node).map(|entry| &entry.location)
    }

    /// The best source of one class that was not tried: well placed before badly placed, then the service's own regions, then free ones, then
    /// other services; of several the one with most room, as far as that is known (`hints`: what other services said last).
    pub fn best(
        &self,
        wish: &BlockWish,
        own: &impl OwnRoom,
        hints: &BTreeMap<(ServiceId, ClassId), u64>,
        tried: &Tried,
        may_try: impl Fn(Source) -> bool,
    ) -> Option<Source> {
        let is_left = |region| !tried.contains(&(region, Some(self.me))) && may_try(Source::Own(region));
        let mine = self.rooms.best(wish, |region| is_left(region) && own.blocks(region, wish.block) > 0);
        let mine = mine.map(|(nearness, region)| ((nearness, 2, u64::MAX), Source::Own(region)));
        let rank = |region: &RegionId| {
            let entry = self.regions.get(region).filter(|entry| wish.fits(entry))?;
            let (source, kind, room) = match entry.owner {
                None => (Source::Free(*region), 1, u64::MAX),
                Some(owner) => (Source::Other(owner), 0, hints.get(&(owner, wish.class)).copied().unwrap_or(u64::MAX)),
            };
            let usable = !tried.contains(&(*region, entry.owner)) && may_try(source);
            usable.then_some(((wish.nearness(entry), kind, room), source))
        };
        let all = self.others.iter().filter_map(rank).chain(mine);
        all.max_by_key(|(rank, source)| (*rank, core::cmp::Reverse(*source))).map(|(_, source)| source)
    }

    /// Whether a region of this service will have what is wanted.
    pub fn is_freeing(&self, wish: &BlockWish, own: &impl OwnRoom) -> bool {
        own.freeing().into_iter().any(|region| {
            let entry = self.regions.get(&region).filter(|entry| entry.owner == Some(self.me));
            entry.is_some_and(|entry| wish.fits(entry)) && own.is_freeing(region, wish.block)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are free, which are blocks as well.
    #[derive(Clone)]
    struct Room(BTreeMap<RegionId, u64>);

    impl OwnRoom for Room {
        fn blocks(&self, region: RegionId, block: u64) -> u64 {
            self.free(region) / block
        }

        fn is_freeing(&self, region: RegionId, _block: u64) -> bool {
            self.0.contains_key(&region)
        }

        fn free(&self, region: RegionId) -> u64 {
            self.0.get(&region).copied().unwrap_or(0)
        }

        fn take_changed(&mut self) -> BTreeSet<RegionId> {
            self.0.keys().copied().collect()
        }

        fn freeing(&self) -> BTreeSet<RegionId> {
            self.0.keys().copied().collect()
        }

        fn is_taking(&self) -> bool {
            false
        }
    }

    impl Directory {
        fn look(&mut self, room: &Room) {
            let all: Vec<RegionId> = self.regions.keys().copied().collect();
            all.into_iter().for_each(|region| self.set_free(region, room.free(region)));
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
        let mut directory = Directory::new(ServiceId(1));
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
        directory.look(&room);
        let mut wish = wish(Some(rack(2)), &[]);
        let (mut tried, mut order) = (Tried::new(), alloc::vec::Vec::new());
        while let Some(source) = directory.best(&wish, &room, &hints, &tried, |_| true) {
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
        let best = |directory: &Directory, room: &Room| directory.best(&wish, room, &hints, &Tried::new(), |_| true);
        assert_eq!(best(&directory, &room), Some(Source::Own(RegionId(1))), "no node of another copy");
        let none = Room(BTreeMap::new());
        directory.look(&none);
        assert_eq!(best(&directory, &none), Some(Source::Free(RegionId(3))), "nothing of its own is free");
    }

    fn wish(location: Option<Location>, apart: &[Location]) -> BlockWish {
        let (class, avoid, apart) = (ClassId(0), BTreeSet::new(), apart.to_vec());
        BlockWish { class, block: 1, count: 1, location, avoid, apart }
    }

    #[test]
    fn blocks_go_round_the_nodes() {
        let mut directory = Directory::new(ServiceId(1));
        // Three nodes with eight regions each.
        let regions = (0..24).map(|number| (RegionId(number), entry(number / 8, 0, 1, Some(1))));
        directory.replace(regions.collect());
        let mut room = Room((0..24).map(|number| (RegionId(number), 100)).collect());
        let mut taken = [0_u64; 3];
        for given in 1..=300 {
            directory.look(&room);
            let best = directory.best(&wish(None, &[]), &room, &BTreeMap::new(), &Tried::new(), |_| true);
            let Some(Source::Own(region)) = best else { panic!("there is room") };
            room.0.entry(region).and_modify(|free| *free -= 1);
            taken[(region.0 / 8) as usize] += 1;
            let (least, most) = (taken.iter().min(), taken.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{taken:?} of {given}");
        }
    }

    /// What is found against a look at all regions.
    #[test]
    fn the_best_region_is_found_without_a_look_at_all() {
        let mut random = weir_units::rng::SplitMix64::new(7);
        let places = ["", "a", "a/1", "a/1/x", "a/2", "b", "b/1", "b/1/y", "c/1"].map(|at| Location::new(at).unwrap());
        let (mut apart_found, mut none) = (0, 0);
        for _ in 0..400 {
            let mut directory = Directory::new(ServiceId(1));
            let mut below = |n: u32| u64::from(random.below(n));
            let nodes = 1 + below(200);
            let at: Vec<usize> = (0..nodes).map(|_| below(places.len() as u32) as usize).collect();
            let mut room = Room(BTreeMap::new());
            for number in 0..nodes * 3 {
                let open = below(5) > 0;
                let location = places[at[(number % nodes) as usize]].clone();
                let entry = RegionEntry { location, open, ..entry(number % nodes, below(2) as u16, 0, Some(1)) };
                directory.set(RegionId(number), Some(entry));
                room.0.insert(RegionId(number), below(4));
            }
            directory.look(&room);
            // Some change, and some go.
            for number in 0..nodes {
                room.0.insert(RegionId(number), below(6));
                directory.set_free(RegionId(number), room.free(RegionId(number)));
                if below(6) == 0 {
                    directory.set(RegionId(number), None);
                }
            }
            for _ in 0..20 {
                let mut some = |most: u32| -> Vec<Location> {
                    let count = below(most + 1);
                    (0..count).map(|_| places[below(places.len() as u32) as usize].clone()).collect()
                };
                let mut wish = wish(some(1).pop(), &some(2));
                wish.block = 1 + below(3);
                wish.avoid.extend((0..below(3)).map(|_| NodeId(below(nodes as u32))));
                let found = directory.best(&wish, &room, &BTreeMap::new(), &Tried::new(), |_| true);
                let all = || directory.regions.iter().filter(|(_, entry)| wish.fits(entry));
                let of =
                    |node| all().filter(move |(_, entry)| entry.node == node).map(|(region, _)| room.free(*region));
                let fits = all().filter(|(region, _)| room.blocks(**region, wish.block) > 0);
                let rank = |(region, entry): (&RegionId, &RegionEntry)| {
                    let node = (of(entry.node).sum::<u64>(), core::cmp::Reverse(entry.node));
                    (wish.nearness(entry), node, room.free(*region), core::cmp::Reverse(*region))
                };
                let expected = fits.max_by_key(|entry| rank(*entry)).map(|(region, _)| Source::Own(*region));
                assert_eq!(found, expected, "{wish:?}");
                apart_found += u64::from(found.is_some() && !wish.apart.is_empty());
                none += u64::from(found.is_none());
            }
        }
        assert!(apart_found > 1000 && none > 10, "{apart_found} apart, {none} not found");
    }
}
