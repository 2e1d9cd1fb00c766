//! Services that share regions of two classes, with messages on their way, against who has room since when.

use super::{
    AskId, BlockWish, CopyGrant, ForwardAnswer, GrantAnswer, OwnRoom, Placement, PlacementAsk, PlacementEffect,
    PlacementError, PlacementEvent, RegionEntry,
};
use crate::mutant::Mutant;
use crate::{ClassId, Extent, Location, NamespaceId, NodeId, RegionId, ServiceId, SessionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;

extern crate std;

const DRAM: ClassId = ClassId(0);
const FLASH: ClassId = ClassId(1);
const BLOCK: u64 = 1 << 20;
const SERVICES: u64 = 3;

/// A region as it really is.
#[derive(Clone, Debug)]
struct ModelRegion {
    entry: RegionEntry,
    free: u64,
    /// Blocks that are in use or in quarantine.
    used: u64,
    next: u64,
    /// Since when a block of it could be had without a break; never while it cannot.
    since: Option<u64>,
}

struct OwnRegions<'a>(&'a BTreeMap<RegionId, ModelRegion>, ServiceId);

impl OwnRoom for OwnRegions<'_> {
    fn blocks(&self, region: RegionId, _block: u64) -> u64 {
        self.0.get(&region).filter(|region| region.entry.owner == Some(self.1)).map_or(0, |region| region.free)
    }

    fn is_freeing(&self, region: RegionId, _block: u64) -> bool {
        // Of some regions none of what is used is in quarantine.
        self.0
            .get(&region)
            .is_some_and(|found| region.0 % 2 == 0 && found.used > 0 && found.entry.owner == Some(self.1))
    }

    fn free(&self, region: RegionId) -> u64 {
        self.blocks(region, BLOCK) * BLOCK
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

#[derive(Clone, Debug)]
struct Started {
    at: u64,
    ask: PlacementAsk,
    /// Who waits: the asking service and its request, if it was forwarded.
    forwarded_by: Option<(ServiceId, AskId)>,
}

#[derive(Debug, Default)]
struct Totals {
    dram: u64,
    flash: u64,
    forwarded: u64,
    leased: u64,
    full: u64,
    freeing: u64,
    retry: u64,
    two_copies: u64,
    back: u64,
}

struct World {
    random: SplitMix64,
    now: u64,
    regions: BTreeMap<RegionId, ModelRegion>,
    services: BTreeMap<ServiceId, Placement>,
    silent: BTreeSet<ServiceId>,
    /// Effects on their way, and the service that they come from.
    effects: Vec<(ServiceId, PlacementEffect)>,
    started: BTreeMap<(ServiceId, AskId), Started>,
    last_ask: u64,
    totals: Totals,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let services =
            (1..=SERVICES).map(|id| (ServiceId(id), Placement::with_mutant(ServiceId(id), mutant))).collect();
        let mut world = World {
            random: SplitMix64::new(seed),
            now: 0,
            regions: BTreeMap::new(),
            services,
            silent: BTreeSet::new(),
            effects: Vec::new(),
            started: BTreeMap::new(),
            last_ask: 0,
            totals: Totals::default(),
        };
        (0..6).for_each(|_| world.donate());
        world.everybody_looks();
        world
    }

    fn below(&mut self, n: u32) -> u32 {
        self.random.below(n)
    }

    fn donate(&mut self) {
        let id = RegionId(self.regions.len() as u64);
        let owner = (self.below(3) > 0).then(|| ServiceId(1 + u64::from(self.below(SERVICES as u32))));
        let location = Location::new(&format!("rack{}", self.below(2))).unwrap();
        let class = if self.below(2) == 0 { DRAM } else { FLASH };
        let node = NodeId(self.below(4).into());
        let entry = RegionEntry { node, class, location, owner, open: true };
        let free = 1 + u64::from(self.below(4));
        self.regions.insert(id, ModelRegion { entry, free, used: 0, next: 0, since: None });
    }

    fn everybody_looks(&mut self) {
        let entries: BTreeMap<RegionId, RegionEntry> =
            self.regions.iter().map(|(id, r)| (*id, r.entry.clone())).collect();
        for service in 1..=SERVICES {
            self.apply(ServiceId(service), PlacementEvent::Regions(None, entries.clone()));
        }
    }

    fn apply(&mut self, service: ServiceId, event: PlacementEvent) {
        let mut effects = Vec::new();
        let machine = self.services.get_mut(&service).unwrap();
        machine.apply(event, &mut OwnRegions(&self.regions, service), &mut effects);
        machine.check();
        self.effects.extend(effects.into_iter().map(|effect| (service, effect)));
    }

    fn ask(&mut self, service: ServiceId, ask: PlacementAsk, forwarded_by: Option<(ServiceId, AskId)>) {
        self.last_ask += 1;
        let id = AskId(self.last_ask);
        self.started.insert((service, id), Started { at: self.now, ask: ask.clone(), forwarded_by });
        self.apply(service, PlacementEvent::Ask(id, ask));
    }

    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..300 {
            self.now += 1;
            self.operation()?;
            self.note_room();
        }
        while !self.effects.is_empty() {
            self.now += 1;
            self.carry_out_one()?;
            self.note_room();
        }
        let pending: usize = self.services.values().map(Placement::pending).sum();
        if pending > 0 || !self.started.is_empty() {
            return Err(format!("{pending} requests are never answered"));
        }
        Ok(self.totals)
    }

    fn note_room(&mut self) {
        for region in self.regions.values_mut() {
            let reachable = region.entry.owner.is_none_or(|owner| !self.silent.contains(&owner));
            let has_room = region.free > 0 && region.entry.open && reachable;
            region.since = if has_room { region.since.or(Some(self.now)) } else { None };
        }
    }

    fn operation(&mut self) -> Result<(), String> {
        match self.below(100) {
            0..15 => {
                let copies = 1 + (self.below(4) == 0) as u8;
                let location = Some(Location::new(&format!("rack{}", self.below(2))).unwrap());
                let (classes, count) = (alloc::vec![DRAM, FLASH], 1 + u64::from(self.below(3)));
                let session = SessionId(1);
                let (avoid, apart, forwarded) = (BTreeSet::new(), Vec::new(), false);
                let block = BLOCK;
                let ask = PlacementAsk { session, classes, block, count, copies, location, avoid, apart, forwarded };
                let service = ServiceId(1 + u64::from(self.below(SERVICES as u32)));
                self.ask(service, ask, None);
            }
            15..25 => {
                // A block comes out of quarantine.
                let id = RegionId(self.below(self.regions.len() as u32).into());
                let region = self.regions.get_mut(&id).unwrap();
                let released = u64::from(region.used > 0);
                (region.used, region.free) = (region.used - released, region.free + released);
            }
            25 if self.regions.len() < 12 => self.donate(),
            26 => {
                let id = RegionId(self.below(self.regions.len() as u32).into());
                let entry = &mut self.regions.get_mut(&id).unwrap().entry;
                entry.open = !entry.open;
            }
            27 => {
                let service = ServiceId(1 + u64::from(self.below(SERVICES as u32)));
                if !self.silent.remove(&service) && self.below(3) == 0 {
                    self.silent.insert(service);
                }
            }
            _ => self.carry_out_one()?,
        }
        Ok(())
    }

    fn carry_out_one(&mut self) -> Result<(), String> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.effects.len() as u32) as usize;
        let (service, effect) = self.effects.swap_remove(at);
        match effect {
            PlacementEffect::Grant(id, _, region, wish) => self.grant(service, id, region, &wish)?,
            PlacementEffect::Lease(id, region) => self.lease(service, id, region),
            PlacementEffect::Forward(id, to, session, wish) => self.forward(service, id, to, session, wish),
            PlacementEffect::Look(id) => {
                let entries = self.regions.iter().map(|(id, r)| (*id, r.entry.clone())).collect();
                self.apply(service, PlacementEvent::Regions(Some(id), entries));
            }
            PlacementEffect::Return(_, _, extents) => self.back(&extents),
            PlacementEffect::Answer(id, result) => self.answer(service, id, result)?,
        }
        Ok(())
    }

    fn grant(&mut self, service: ServiceId, id: AskId, region: RegionId, wish: &BlockWish) -> Result<(), String> {
        self.verify_class(service, id, wish)?;
        if self.below(40) == 0 {
            self.apply(service, PlacementEvent::Granted(id, GrantAnswer::Refused));
            return Ok(());
        }
        let space = self.regions.get_mut(&region).unwrap();
        let count = wish.count.min(space.free);
        let answer = if space.entry.owner != Some(service) || count == 0 {
            GrantAnswer::Full
        } else {
            (space.free, space.used) = (space.free - count, space.used + count);
            let offset = space.next * BLOCK;
            space.next += count;
            let namespace = NamespaceId(region.0);
            GrantAnswer::Extents(alloc::vec![Extent {
                namespace,
                offset: offset.into(),
                length: (count * BLOCK).into()
            }])
        };
        self.apply(service, PlacementEvent::Granted(id, answer));
        Ok(())
    }

    /// No block of flash is taken while a region had room in DRAM all the time since it was asked for.
    fn verify_class(&mut self, service: ServiceId, id: AskId, wish: &BlockWish) -> Result<(), String> {
        if wish.class != FLASH {
            return Ok(());
        }
        let Some(started) = self.started.get(&(service, id)).filter(|started| !started.ask.forwarded) else {
            return Ok(());
        };
        let fits = |region: &&ModelRegion| region.entry.class == DRAM && !wish.avoid.contains(&region.entry.node);
        let better = self.regions.values().filter(fits).find(|r| r.since.is_some_and(|since| since < started.at));
        match better {
            Some(region) => {
                Err(format!("flash is granted to {service}, and there is room: {region:?}, asked {}", started.at))
            }
            None => Ok(()),
        }
    }

    fn lease(&mut self, service: ServiceId, id: AskId, region: RegionId) {
        let entry = &mut self.regions.get_mut(&region).unwrap().entry;
        if entry.owner.is_none() {
            entry.owner = Some(service);
            self.totals.leased += 1;
        }
        let owner = entry.owner;
        self.apply(service, PlacementEvent::Leased(id, owner));
    }

    fn forward(&mut self, from: ServiceId, id: AskId, to: ServiceId, session: SessionId, wish: BlockWish) {
        if self.silent.contains(&to) {
            return self.apply(from, PlacementEvent::Forwarded(id, ForwardAnswer::Silent));
        }
        let BlockWish { class, block, count, location, avoid, apart } = wish;
        let classes = alloc::vec![class];
        let (copies, forwarded) = (1, true);
        let ask = PlacementAsk { session, classes, block, count, copies, location, avoid, apart, forwarded };
        self.ask(to, ask, Some((from, id)));
    }

    fn back(&mut self, extents: &[Extent]) {
        self.totals.back += 1;
        for extent in extents {
            let region = self.regions.get_mut(&RegionId(extent.namespace.0)).unwrap();
            // Some of them may have been given up already.
            let count = (extent.length.get() / BLOCK).min(region.used);
            (region.used, region.free) = (region.used - count, region.free + count);
        }
    }

    fn answer(
        &mut self,
        service: ServiceId,
        id: AskId,
        result: Result<Vec<CopyGrant>, PlacementError>,
    ) -> Result<(), String> {
        let Some(started) = self.started.remove(&(service, id)) else {
            return Err(format!("{id:?} is answered twice"));
        };
        if let Some((asker, ask)) = started.forwarded_by {
            let answer = match result {
                Ok(copies) => match <[CopyGrant; 1]>::try_from(copies) {
                    Ok([copy]) => ForwardAnswer::Granted(copy, 1),
                    Err(copies) => return Err(format!("one copy was asked for, and there are {}", copies.len())),
                },
                Err(PlacementError::Full(_)) => ForwardAnswer::Full,
                Err(_) => ForwardAnswer::Refused,
            };
            self.totals.forwarded += u64::from(matches!(answer, ForwardAnswer::Granted(..)));
            self.apply(asker, PlacementEvent::Forwarded(ask, answer));
            return Ok(());
        }
        match result {
            Ok(copies) => self.verify_copies(&started.ask, &copies),
            Err(PlacementError::Malformed) => Err("a request is malformed".into()),
            Err(PlacementError::Retry) => {
                self.totals.retry += 1;
                Ok(())
            }
            Err(PlacementError::Full(_)) => {
                self.totals.full += 1;
                Ok(())
            }
            Err(PlacementError::Freeing) => {
                self.totals.freeing += 1;
                Ok(())
            }
        }
    }

    fn verify_copies(&mut self, ask: &PlacementAsk, copies: &[CopyGrant]) -> Result<(), String> {
        let nodes: BTreeSet<NodeId> = copies.iter().map(|copy| copy.node).collect();
        if nodes.len() != usize::from(ask.copies) || copies.len() != nodes.len() {
            return Err(format!("{} copies were asked for: {copies:?}", ask.copies));
        }
        let bytes: BTreeSet<u64> =
            copies.iter().map(|copy| copy.extents.iter().map(|extent| extent.length.get()).sum()).collect();
        let is_whole = bytes.iter().all(|bytes| (1..=ask.count).contains(&(bytes / BLOCK)) && bytes % BLOCK == 0);
        if bytes.len() != 1 || !is_whole {
            return Err(format!("the copies are of different lengths: {copies:?}"));
        }
        for copy in copies {
            let region = &self.regions[&RegionId(copy.extents[0].namespace.0)].entry;
            if (region.node, region.class, region.owner) != (copy.node, copy.class, Some(copy.service)) {
                return Err(format!("{copy:?} is of another region: {region:?}"));
            }
            self.totals.dram += u64::from(copy.class == DRAM);
            self.totals.flash += u64::from(copy.class == FLASH);
        }
        self.totals.two_copies += u64::from(copies.len() == 2);
        Ok(())
    }
}

#[test]
fn the_better_class_is_taken_while_anybody_has_it() {
    let mut all = [0; 9];
    for seed in 0..1000 {
        let t = World::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let counts = [t.dram, t.flash, t.forwarded, t.leased, t.full, t.freeing, t.retry, t.two_copies, t.back];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    std::println!("dram, flash, forwarded, leased, full, freeing, retry, two copies, given back: {all:?}");
    assert!(all.iter().all(|count| *count > 100), "everything happens: {all:?}");
}

#[test]
fn every_planted_fault_is_found() {
    for mutant in [
        Mutant::ClassWithoutForward,
        Mutant::ClassWithoutFreeRegions,
        Mutant::ClassWithoutLastLook,
        Mutant::CopiesTogether,
    ] {
        let run = |seed| std::panic::catch_unwind(|| World::new(seed, Some(mutant)).run());
        let found = (0..2000).find(|seed| !matches!(run(*seed), Ok(Ok(_))));
        std::println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found in 2000 runs");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let ask = PlacementAsk {
        session: SessionId(1),
        classes: alloc::vec![DRAM],
        block: BLOCK,
        count: 1,
        copies: 1,
        location: None,
        avoid: BTreeSet::new(),
        apart: Vec::new(),
        forwarded: false,
    };
    let regions = BTreeMap::new();
    let mut none = OwnRegions(&regions, ServiceId(1));
    for bad in [
        PlacementAsk { classes: Vec::new(), ..ask.clone() },
        PlacementAsk { block: 0, ..ask.clone() },
        PlacementAsk { count: 0, ..ask.clone() },
        PlacementAsk { copies: 0, ..ask.clone() },
        PlacementAsk { copies: 5, ..ask.clone() },
    ] {
        let (mut placement, mut effects) = (Placement::new(ServiceId(1)), Vec::new());
        placement.apply(PlacementEvent::Ask(AskId(1), bad), &mut none, &mut effects);
        assert_eq!(effects, [PlacementEffect::Answer(AskId(1), Err(PlacementError::Malformed))]);
    }
    let (mut placement, mut effects) = (Placement::new(ServiceId(1)), Vec::new());
    placement.apply(PlacementEvent::Ask(AskId(1), ask), &mut none, &mut effects);
    placement.apply(PlacementEvent::Regions(Some(AskId(1)), BTreeMap::new()), &mut none, &mut effects);
    placement.apply(PlacementEvent::Granted(AskId(1), GrantAnswer::Full), &mut none, &mut effects);
    assert_eq!(
        effects,
        [PlacementEffect::Look(AskId(1)), PlacementEffect::Answer(AskId(1), Err(PlacementError::Full(0)))]
    );
}

/// While regions are being taken nobody is told that there is no room, and no worse class is taken.
#[test]
fn what_is_being_taken_is_waited_for() {
    struct Taking;
    impl OwnRoom for Taking {
        fn blocks(&self, _: RegionId, _: u64) -> u64 {
            1
        }
        fn is_freeing(&self, _: RegionId, _: u64) -> bool {
            false
        }
        fn free(&self, _: RegionId) -> u64 {
            BLOCK
        }
        fn take_changed(&mut self) -> BTreeSet<RegionId> {
            BTreeSet::from([RegionId(1)])
        }
        fn freeing(&self) -> BTreeSet<RegionId> {
            BTreeSet::new()
        }
        fn is_taking(&self) -> bool {
            true
        }
    }
    let (mut placement, mut effects) = (Placement::new(ServiceId(1)), Vec::new());
    let (node, location, owner) = (NodeId(1), Location::default(), Some(ServiceId(1)));
    let flash = RegionEntry { node, class: FLASH, location, owner, open: true };
    placement.apply(PlacementEvent::Changed(None, alloc::vec![(RegionId(1), Some(flash))]), &mut Taking, &mut effects);
    let ask = |classes: &[ClassId]| PlacementAsk {
        session: SessionId(1),
        classes: classes.to_vec(),
        block: BLOCK,
        count: 1,
        copies: 1,
        location: None,
        avoid: BTreeSet::new(),
        apart: Vec::new(),
        forwarded: false,
    };
    placement.apply(PlacementEvent::Ask(AskId(1), ask(&[DRAM, FLASH])), &mut Taking, &mut effects);
    assert_eq!(effects, [PlacementEffect::Answer(AskId(1), Err(PlacementError::Retry))]);
    placement.apply(PlacementEvent::Ask(AskId(2), ask(&[FLASH])), &mut Taking, &mut effects);
    assert!(matches!(effects[1..], [PlacementEffect::Grant(AskId(2), _, RegionId(1), _)]), "{effects:?}");
}
