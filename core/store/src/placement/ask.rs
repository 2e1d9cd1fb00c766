//! The machine: see [the module](super).

use super::directory::{BlockWish, Directory, OwnRoom, RegionEntry, Source, Tried};
use crate::mutant::{Mutant, Planted};
use crate::records::COPIES_MAX;
use crate::{ClassId, Extent, Location, NodeId, RegionId, ServiceId, SessionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

/// A request under way, as the caller numbers them; no two at a time have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// Blocks for a client session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementAsk {
    /// Who they are granted to.
    pub session: SessionId,
    /// Classes in the order in which they are tried.
    pub classes: Vec<ClassId>,
    /// Bytes of a block.
    pub block: u64,
    /// Blocks at the most; one suffices.
    pub count: u64,
    /// Copies, 1 to [`COPIES_MAX`], each on another node.
    pub copies: u8,
    /// Where they should be, all else being equal.
    pub location: Option<Location>,
    /// Nodes that have a copy already, such as that of a block that is repaired.
    pub avoid: BTreeSet<NodeId>,
    /// Where those copies are.
    pub apart: Vec<Location>,
    /// Another service asks: nothing is forwarded.
    pub forwarded: bool,
}

/// A copy of the blocks that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyGrant {
    /// Its class.
    pub class: ClassId,
    /// Its node.
    pub node: NodeId,
    /// The service that has granted it.
    pub service: ServiceId,
    /// Its blocks, each extent a whole number of them.
    pub extents: Vec<Extent>,
}

/// Why there are no blocks, or not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// No copies, too many, no class, or blocks of no size or number.
    Malformed,
    /// No class of the list has room: for the copies from this one on, counted from 0.
    Full(u8),
    /// No class of the list has room, and one will have some when what is in quarantine is free: nothing was granted, ask again.
    Freeing,
    /// A region with room is being recovered, or the session has as much as it may have: nothing was granted, ask again.
    Retry,
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::Malformed => {
                write!(f, "a request for blocks names at least one class, one block and 1 to {COPIES_MAX} copies")
            }
            PlacementError::Full(0) => {
                f.write_str("no class of the file has room on any node that answers: delete files or add a drive")
            }
            PlacementError::Full(placed) => write!(
                f,
                "there is room for {placed} of the file's copies, and none on a further node: add a node or ask for fewer copies"
            ),
            PlacementError::Freeing => f.write_str("what was given up is free when all clients have let go of it"),
            PlacementError::Retry => f.write_str("a region with room cannot give out blocks at the moment; try again"),
        }
    }
}

impl core::error::Error for PlacementError {}

/// What became of a grant in a region of this service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantAnswer {
    /// Durably granted: whole blocks, at least one.
    Extents(Vec<Extent>),
    /// Others were faster.
    Full,
    /// The region is busy or the session has as much as it may have.
    Refused,
}

/// What another service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardAnswer {
    /// Blocks of one node, and how many more it has in the class.
    Granted(CopyGrant, u64),
    /// It has none.
    Full,
    /// It has some and cannot give them at the moment.
    Refused,
    /// It has not answered before the deadline, or cannot be reached.
    Silent,
}

/// What happens to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementEvent {
    /// Somebody wants blocks.
    Ask(AskId, PlacementAsk),
    /// A [`PlacementEffect::Grant`] was carried out.
    Granted(AskId, GrantAnswer),
    /// A [`PlacementEffect::Lease`] was carried out: who has the region afterwards; none if nobody has it and it cannot be had.
    Leased(AskId, Option<ServiceId>),
    /// A [`PlacementEffect::Forward`] was answered.
    Forwarded(AskId, ForwardAnswer),
    /// All regions of the store, as they are in Kv: after a [`PlacementEffect::Look`] (with its request), or whenever they are read.
    Regions(Option<AskId>, BTreeMap<RegionId, RegionEntry>),
    /// What regions are from now on, none of the store's without an entry: after a [`PlacementEffect::Look`] all that has changed, or at any time.
    Changed(Option<AskId>, Vec<(RegionId, Option<RegionEntry>)>),
}

/// What the machine wants done. Of each request there is one effect at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementEffect {
    /// Have `Space` grant blocks of a region of this service.
    Grant(AskId, SessionId, RegionId, BlockWish),
    /// Have `Space` take the lease of a free region.
    Lease(AskId, RegionId),
    /// Ask that service, with `forwarded` set and one class and copy.
    Forward(AskId, ServiceId, SessionId, BlockWish),
    /// Read all regions from Kv.
    Look(AskId),
    /// Give back extents that are not needed, through the service that has granted them. No answer is awaited.
    Return(SessionId, ServiceId, Vec<Extent>),
    /// The request is over.
    Answer(AskId, Result<Vec<CopyGrant>, PlacementError>),
}

/// A request under way.
#[derive(Clone, Debug)]
struct Search {
    ask: PlacementAsk,
    /// The place in the list of the class that is tried.
    class: usize,
    /// What was tried in this class for this copy.
    tried: Tried,
    /// What is being tried, and the regions that are tried by that.
    trying: Option<(Source, Tried)>,
    /// The directory was read since the last source was tried.
    looked: bool,
    /// A source of this class has room that cannot be had at the moment.
    refused: bool,
    placed: Vec<CopyGrant>,
    /// Where those and the copies of before are.
    apart: Vec<Location>,
}

/// See [the module](super).
#[derive(Clone, Debug)]
pub struct Placement {
    me: ServiceId,
    directory: Directory,
    hints: BTreeMap<(ServiceId, ClassId), u64>,
    searches: BTreeMap<AskId, Search>,
    planted: Planted,
}

impl Placement {
    /// The machine of a service that has heard of no region.
    pub fn new(me: ServiceId) -> Self {
        let (directory, hints, searches) = (Directory::new(me), BTreeMap::new(), BTreeMap::new());
        Self { me, directory, hints, searches, planted: Planted::default() }
    }

    /// The same with a planted fault.
    #[cfg(test)]
    pub(crate) fn with_mutant(me: ServiceId, mutant: Option<Mutant>) -> Self {
        Self { planted: mutant.into(), ..Self::new(me) }
    }

    /// Requests that are not answered yet.
    pub fn pending(&self) -> usize {
        self.searches.len()
    }

    /// One event; adds what it wants done. An event of a request that is over does nothing.
    pub fn apply(&mut self, event: PlacementEvent, own: &mut impl OwnRoom, effects: &mut Vec<PlacementEffect>) {
        for region in own.take_changed() {
            self.directory.set_free(region, own.free(region));
        }
        let id = match event {
            PlacementEvent::Ask(id, ask) => match self.begin(id, ask) {
                Ok(()) => id,
                Err(why) => return effects.push(PlacementEffect::Answer(id, Err(why))),
            },
            PlacementEvent::Granted(id, answer) => {
                self.granted(id, answer);
                id
            }
            PlacementEvent::Leased(id, owner) => {
                self.leased(id, owner);
                id
            }
            PlacementEvent::Forwarded(id, answer) => {
                self.forwarded(id, answer, effects);
                id
            }
            PlacementEvent::Regions(id, regions) => {
                self.directory.replace(regions);
                let Some(id) = self.looked(id) else { return };
                id
            }
            PlacementEvent::Changed(id, regions) => {
                regions.into_iter().for_each(|(region, entry)| self.directory.set(region, entry));
                let Some(id) = self.looked(id) else { return };
                id
            }
        };
        self.go_on(id, own, effects);
    }

    /// The directory is what it is in Kv: the request that has asked for that.
    fn looked(&mut self, id: Option<AskId>) -> Option<AskId> {
        if let Some(search) = id.and_then(|id| self.searches.get_mut(&id)) {
            search.looked = true;
        }
        id
    }

    fn begin(&mut self, id: AskId, ask: PlacementAsk) -> Result<(), PlacementError> {
        let sane = (1..=COPIES_MAX).contains(&usize::from(ask.copies))
            && !ask.classes.is_empty()
            && ask.block > 0
            && ask.count > 0;
        if !sane || self.searches.contains_key(&id) {
            return Err(PlacementError::Malformed);
        }
        let (tried, placed, apart) = (Tried::new(), Vec::new(), ask.apart.clone());
        let search = Search { ask, class: 0, tried, trying: None, looked: false, refused: false, placed, apart };
        self.searches.insert(id, search);
        Ok(())
    }

    fn granted(&mut self, id: AskId, answer: GrantAnswer) {
        let Some(search) = self.searches.get_mut(&id) else { return };
        let Some((Source::Own(region), tried)) = search.trying.take() else { return };
        let Some(entry) = self.directory.get(region) else { return };
        match answer {
            GrantAnswer::Extents(extents) => {
                let (class, node, service) = (entry.class, entry.node, self.me);
                search.place(CopyGrant { class, node, service, extents }, Some(entry.location.clone()));
            }
            GrantAnswer::Full => search.give_up(tried, false),
            GrantAnswer::Refused => search.give_up(tried, true),
        }
    }

    fn leased(&mut self, id: AskId, owner: Option<ServiceId>) {
        let Some(search) = self.searches.get_mut(&id) else { return };
        let Some((Source::Free(region), tried)) = search.trying.take() else { return };
        search.give_up(tried, false);
        self.directory.set_owner(region, owner);
    }

    fn forwarded(&mut self, id: AskId, answer: ForwardAnswer, effects: &mut Vec<PlacementEffect>) {
        let Some(search) = self.searches.get_mut(&id) else { return };
        let Some((Source::Other(service), tried)) = search.trying.take() else { return };
        let class = search.class();
        let left = match answer {
            ForwardAnswer::Granted(grant, left) => {
                let avoid = search.wish(self.planted).avoid;
                if grant.class == class && !avoid.contains(&grant.node) && !grant.extents.is_empty() {
                    let location = self.directory.location_of(grant.node).cloned();
                    search.place(CopyGrant { service, ..grant }, location);
                } else {
                    // Not what was asked for.
                    effects.push(PlacementEffect::Return(search.ask.session, service, grant.extents));
                    search.give_up(tried, false);
                }
                left
            }
            ForwardAnswer::Full | ForwardAnswer::Silent => {
                search.give_up(tried, false);
                0
            }
            ForwardAnswer::Refused => {
                search.give_up(tried, true);
                1
            }
        };
        self.hints.insert((service, class), left);
    }

    /// Tries the next source, class or copy, or answers.
    fn go_on(&mut self, id: AskId, own: &impl OwnRoom, effects: &mut Vec<PlacementEffect>) {
        loop {
            let Some(search) = self.searches.get_mut(&id).filter(|search| search.trying.is_none()) else { return };
            if search.placed.len() == usize::from(search.ask.copies) {
                return self.finish(id, Ok(()), effects);
            }
            let wish = search.wish(self.planted);
            let may_try = |source| search.may_try(source, self.planted);
            let source = self.directory.best(&wish, own, &self.hints, &search.tried, may_try);
            if let Some(source) = source {
                let tried = match source {
                    Source::Own(region) => Tried::from([(region, Some(self.me))]),
                    Source::Free(region) => Tried::from([(region, None)]),
                    Source::Other(service) => self.directory.of_service(service, &wish),
                };
                (search.trying, search.looked) = (Some((source, tried)), false);
                let session = search.ask.session;
                return effects.push(match source {
                    Source::Own(region) => PlacementEffect::Grant(id, session, region, wish),
                    Source::Free(region) => PlacementEffect::Lease(id, region),
                    Source::Other(service) => PlacementEffect::Forward(id, service, session, wish),
                });
            }
            // What is being taken may have room of this class.
            if search.refused || own.is_taking() {
                return self.finish(id, Err(PlacementError::Retry), effects);
            }
            if !search.looked && !self.planted.is(Mutant::ClassWithoutLastLook) {
                return effects.push(PlacementEffect::Look(id));
            }
            if search.class + 1 == search.ask.classes.len() {
                let placed = search.placed.len() as u8;
                let mut wishes = search.ask.classes.iter().map(|class| BlockWish { class: *class, ..wish.clone() });
                let why = match wishes.any(|wish| self.directory.is_freeing(&wish, own)) {
                    true => PlacementError::Freeing,
                    false => PlacementError::Full(placed),
                };
                return self.finish(id, Err(why), effects);
            }
            search.next_class();
        }
    }

    fn finish(&mut self, id: AskId, result: Result<(), PlacementError>, effects: &mut Vec<PlacementEffect>) {
        let Some(search) = self.searches.remove(&id) else { return };
        let session = search.ask.session;
        let mut back = |service: ServiceId, extents: Vec<Extent>| {
            if !extents.is_empty() {
                effects.push(PlacementEffect::Return(session, service, extents));
            }
        };
        if let Err(why) = result {
            search.placed.into_iter().for_each(|copy| back(copy.service, copy.extents));
            return effects.push(PlacementEffect::Answer(id, Err(why)));
        }
        let bytes = |copy: &CopyGrant| copy.extents.iter().map(|extent| extent.length.get()).sum::<u64>();
        let least = search.placed.iter().map(bytes).min().unwrap_or(0);
        let mut copies = search.placed;
        for copy in &mut copies {
            let surplus = cut_behind(&mut copy.extents, least);
            back(copy.service, surplus);
        }
        effects.push(PlacementEffect::Answer(id, Ok(copies)));
    }

    /// Panics unless every request waits for one thing and no two of its copies are on one node.
    pub fn check(&self) {
        for (id, search) in &self.searches {
            assert!(search.class < search.ask.classes.len(), "{id:?} is at a class of its list");
            assert!(search.placed.len() < usize::from(search.ask.copies), "{id:?} wants another copy");
            let nodes: BTreeSet<NodeId> = search.placed.iter().map(|copy| copy.node).collect();
            assert_eq!(nodes.len(), search.placed.len(), "the copies of {id:?} are on different nodes");
        }
    }
}

impl Search {
    fn class(&self) -> ClassId {
        self.ask.classes[self.class]
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.ask.avoid.iter().copied().chain(self.placed.iter().map(|copy| copy.node)).collect()
    }

    fn wish(&self, planted: Planted) -> BlockWish {
        let PlacementAsk { block, count, location, .. } = &self.ask;
        let avoid = if planted.is(Mutant::CopiesTogether) { self.ask.avoid.clone() } else { self.nodes() };
        let (location, apart) = (location.clone(), self.apart.clone());
        BlockWish { class: self.class(), block: *block, count: *count, location, avoid, apart }
    }

    fn may_try(&self, source: Source, planted: Planted) -> bool {
        match source {
            Source::Own(_) => true,
            Source::Free(_) => !planted.is(Mutant::ClassWithoutFreeRegions),
            Source::Other(_) => !self.ask.forwarded && !planted.is(Mutant::ClassWithoutForward),
        }
    }

    fn give_up(&mut self, tried: Tried, refused: bool) {
        self.tried.extend(tried);
        self.refused |= refused;
    }

    /// The next copy begins with the first class again.
    fn place(&mut self, copy: CopyGrant, location: Option<Location>) {
        self.apart.extend(location);
        self.placed.push(copy);
        self.class = 0;
        self.tried.clear();
        (self.looked, self.refused) = (false, false);
    }

    fn next_class(&mut self) {
        self.class += 1;
        self.tried.clear();
        (self.looked, self.refused) = (false, false);
    }
}

/// Shortens extents to `bytes` in all; what is behind.
fn cut_behind(extents: &mut Vec<Extent>, bytes: u64) -> Vec<Extent> {
    let (mut left, mut surplus, mut kept) = (bytes, Vec::new(), Vec::new());
    for extent in extents.drain(..) {
        let (offset, length) = (extent.offset.get(), extent.length.get());
        let keep = length.min(left);
        left -= keep;
        if keep > 0 {
            kept.push(Extent { length: keep.into(), ..extent });
        }
        if keep < length {
            surplus.push(Extent { offset: (offset + keep).into(), length: (length - keep).into(), ..extent });
        }
    }
    *extents = kept;
    surplus
}
