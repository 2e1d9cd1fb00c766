//! The machine: events in, effects out, and how its parts talk to each other.

use super::cold::Demotion;
use super::durable::Durable;
use super::event::{
    Clock, ConnectionId, ServiceEffect, ServiceEvent, ServiceSettings, TierAnswer, TierFailure, TierRequest, TierToken,
};
use super::grants::Grants;
use super::handles::Handles;
use super::namespace_index::NamespaceIndex;
use super::passes::Moves;
use super::paths::Paths;
use super::recovery::Recovery;
use super::short_chunks::Lacking;
use super::state::{
    Connection, KvOwner, Namespace, Pending, SessionNumbers, SpaceOwner, Standby, Starting, TierOwner, What, Work,
};
use crate::Extent;
use crate::error::StoreError;
use crate::file::NewBlock;
use crate::id::{Generation, InodeId, NamespaceId, SessionId};
use crate::inode::UnixNanos;
use crate::kv::{KvAnswer, KvRequest, KvToken};
use crate::members::{ContentLabel, SessionRequestId, Sessions, SessionsEffect, SessionsEvent};
use crate::mutant::{Mutant, Planted};
use crate::placement::{AskId, Placement, PlacementEffect, PlacementEvent};
use crate::protocol::Answer;
use crate::records::{ClassesRecord, StoreRecord};
use crate::space::{Space, SpaceEffect, SpaceEvent, SpaceRequest, SpaceRequestId};
use crate::tree::{NameRequest, RequestToken, Tree, TreeEffect, TreeEvent, TreeSettings};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// Requests of one connection under way at the most.
pub(super) const REQUESTS_MAX: usize = 1024;

/// See [the module](super).
#[derive(Debug)]
pub struct Service {
    pub(super) settings: ServiceSettings,
    pub(super) clock: Clock,
    pub(super) began: Nanos,
    pub(super) tree: Tree,
    pub(super) space: Space,
    pub(super) placement: Placement,
    pub(super) sessions: Sessions,
    pub(super) starting: Starting,
    pub(super) store: StoreRecord,
    pub(super) classes: ClassesRecord,
    pub(super) random: SplitMix64,
    pub(super) queue: VecDeque<Work>,
    pub(super) kv: BTreeMap<KvToken, KvOwner>,
    pub(super) space_owners: BTreeMap<SpaceRequestId, SpaceOwner>,
    pub(super) tier: BTreeMap<TierToken, TierOwner>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Internal slots that are in use, and the last sequence.
    pub(super) slots: BTreeSet<(SessionId, u16)>,
    pub(super) sequence: u64,
    pub(super) handles: Handles,
    pub(super) grants: Grants,
    /// Requests that are about to open a file for writing; and whether one of the session's files was given up since, which may be that one.
    pub(super) opening: BTreeMap<(SessionId, u64), bool>,
    /// Files without a name that somebody has open, or may have.
    pub(super) orphans: BTreeSet<InodeId>,
    pub(super) namespaces: BTreeMap<NamespaceId, Namespace>,
    pub(super) index: NamespaceIndex,
    /// Namespaces that were removed, by what their labels say.
    pub(super) removed: BTreeMap<NamespaceId, ContentLabel>,
    pub(super) next_namespace: u64,
    /// Labels that were written for namespaces that are not recorded yet, or could not be.
    pub(super) labels_tried: BTreeSet<u128>,
    /// Session numbers that may be given out.
    pub(super) session_numbers: SessionNumbers,
    /// The first session number of this process: those before are of another one.
    pub(super) first_session: Option<SessionId>,
    /// Sessions that are fenced at that time.
    pub(super) fencing: BTreeMap<SessionId, Nanos>,
    pub(super) recovery: Recovery,
    pub(super) lacking: Lacking,
    pub(super) moves: Moves,
    pub(super) demotion: Demotion,
    pub(super) paths: Paths,
    pub(super) trouble: Option<String>,
    pub(super) durable: Durable,
    pub(super) standby: Standby,
    pub(super) answered: u64,
    pub(super) planted: Planted,
    pub(super) last: u64,
}

impl Service {
    /// One that has not begun: the first event is [`ServiceEvent::Start`].
    pub fn new(settings: ServiceSettings) -> Self {
        // Nobody else can have the metadata then: the lease is renewed seldom, and an idle service writes seldom.
        let lease = if settings.is_predecessor_dead { Nanos::from_secs(60) } else { settings.service_lease };
        let tree = TreeSettings {
            inline_max: settings.inline_max,
            is_predecessor_dead: settings.is_predecessor_dead,
            lease,
            margin: Nanos(lease.get() / 3),
            look: Nanos(lease.get() / 6),
            ..TreeSettings::new(settings.service, settings.process)
        };
        Self {
            clock: Clock::default(),
            began: Nanos(0),
            tree: Tree::new(tree),
            space: Space::new(settings.service),
            placement: Placement::new(settings.service),
            sessions: Sessions::new(settings.timing),
            starting: Starting::default(),
            store: StoreRecord::default(),
            classes: ClassesRecord::default(),
            random: SplitMix64::new(settings.process),
            queue: VecDeque::new(),
            kv: BTreeMap::new(),
            space_owners: BTreeMap::new(),
            tier: BTreeMap::new(),
            connections: BTreeMap::new(),
            pending: BTreeMap::new(),
            slots: BTreeSet::new(),
            sequence: 0,
            handles: Handles::default(),
            grants: Grants::default(),
            opening: BTreeMap::new(),
            orphans: BTreeSet::new(),
            namespaces: BTreeMap::new(),
            removed: BTreeMap::new(),
            next_namespace: 1,
            labels_tried: BTreeSet::new(),
            session_numbers: SessionNumbers::default(),
            first_session: None,
            fencing: BTreeMap::new(),
            recovery: Recovery::default(),
            lacking: Lacking::default(),
            index: NamespaceIndex::default(),
            moves: Moves::default(),
            demotion: Demotion::default(),
            paths: Paths::default(),
            trouble: None,
            durable: Durable::default(),
            standby: Standby::default(),
            answered: 0,
            planted: Planted::default(),
            last: 0,
            settings,
        }
    }

    /// The same with a planted fault.
    #[cfg(test)]
    pub(crate) fn with_mutant(mut self, mutant: Option<crate::mutant::Mutant>) -> Self {
        self.planted = mutant.into();
        self.space.planted = mutant.into();
        self.sessions = self.sessions.with_mutant(mutant);
        self.tree.plant_of_service(mutant);
        self
    }

    /// Whether the metadata have been read, and clients are answered.
    pub fn is_ready(&self) -> bool {
        let goes_on = self.planted.is(Mutant::AnswersAfterLease) && self.standby.life.is_some();
        self.starting.is_over() && (self.tree.is_serving(self.clock.now) || goes_on)
    }

    /// Whether blocks are given out: not as long as clients may write that the metadata have lost.
    pub fn gives_out(&self) -> bool {
        self.clock.now >= self.others_end()
    }

    /// When all that clients of another process had sent has come to its end of which the metadata may know nothing.
    pub(super) fn others_end(&self) -> Nanos {
        let end = self.settings.timing.watcher_end(self.began).saturating_add(self.settings.fence_wait);
        if self.settings.may_have_lost { end } else { Nanos(0) }
    }

    /// Until then a drive may carry out a write of a recovery, of this process or of the one before, that nobody waits for.
    fn reuse_at(&self) -> Nanos {
        match self.planted.is(Mutant::ReuseUnderRecovery) {
            true => Nanos(0),
            false => self.recovery.reuse_at().max(self.began.saturating_add(self.settings.fence_wait)),
        }
    }

    /// Takes an event to its end. `now` is of a clock that runs while the machine sleeps, `wall` the calendar's.
    pub fn apply(&mut self, now: Nanos, wall: UnixNanos, event: ServiceEvent, effects: &mut Vec<ServiceEffect>) {
        self.clock = Clock { now: self.clock.now.max(now), wall };
        self.stop_without_lease(effects);
        match event {
            ServiceEvent::Start => self.start(effects),
            ServiceEvent::Connected(id, token) => {
                self.connections.insert(id, Connection { token, ..Connection::default() });
            }
            ServiceEvent::Message(id, number, request) => self.message(id, number, request, effects),
            ServiceEvent::Disconnected(id) => self.disconnected(id),
            ServiceEvent::Kv(token, answer) => self.kv_answered(token, answer, effects),
            ServiceEvent::Tier(token, answer) => self.tier_answered(token, answer, effects),
            ServiceEvent::Durable(revision) => {
                self.push(Work::Space(SpaceEvent::Durable(revision)));
                self.is_durable(revision, effects);
            }
            ServiceEvent::Trouble(trouble) => self.trouble = trouble,
            ServiceEvent::Tick => self.tick(effects),
            ServiceEvent::Listens(addresses) => self.standby.addresses = addresses,
            ServiceEvent::Stop => self.stop(effects),
        }
        self.work_off(effects);
        self.follow_lease(effects);
        self.work_off(effects);
    }

    fn work_off(&mut self, effects: &mut Vec<ServiceEffect>) {
        while let Some(work) = self.queue.pop_front() {
            self.work(work, effects);
        }
    }

    fn work(&mut self, work: Work, effects: &mut Vec<ServiceEffect>) {
        match work {
            Work::Tree(event) => {
                let mut out = Vec::new();
                self.tree.apply(self.clock.now, event, &mut out);
                out.into_iter().for_each(|effect| self.tree_wants(effect, effects));
            }
            Work::Space(event) => {
                let mut out = Vec::new();
                self.space.apply(event, &mut out);
                self.note_uses();
                out.into_iter().for_each(|effect| self.space_wants(effect, effects));
            }
            Work::Placement(event) => {
                let mut out = Vec::new();
                self.placement.apply(event, &mut self.space, &mut out);
                out.into_iter().for_each(|effect| self.placement_wants(effect, effects));
            }
            Work::Sessions(event) => {
                let mut out = Vec::new();
                self.sessions.apply(self.clock.now, event, &mut out);
                out.into_iter().for_each(|effect| self.sessions_want(effect, effects));
            }
        }
    }

    pub(super) fn push(&mut self, work: Work) {
        self.queue.push_back(work);
    }

    /// A number that was not used before.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn ask_kv(&mut self, owner: KvOwner, mut request: KvRequest, effects: &mut Vec<ServiceEffect>) {
        if let (KvRequest::Commit(commit), false) = (&mut request, owner.is_of_process()) {
            self.expect_life(commit);
        }
        let token = KvToken(self.next());
        self.kv.insert(token, owner);
        effects.push(ServiceEffect::Kv(token, request));
    }

    pub(super) fn ask_tier(&mut self, owner: TierOwner, request: TierRequest, effects: &mut Vec<ServiceEffect>) {
        let token = TierToken(self.next());
        self.tier.insert(token, owner);
        effects.push(ServiceEffect::Tier(token, request));
    }

    pub(super) fn ask_space(&mut self, owner: SpaceOwner, request: SpaceRequest) {
        let id = SpaceRequestId(self.next());
        self.space_owners.insert(id, owner);
        self.push(Work::Space(SpaceEvent::Request(id, request)));
    }

    pub(super) fn ask_tree(&mut self, id: u64, request: NameRequest) {
        self.push(Work::Tree(TreeEvent::Request(RequestToken(id), request, self.clock.wall)));
    }

    fn kv_answered(&mut self, token: KvToken, answer: KvAnswer, effects: &mut Vec<ServiceEffect>) {
        self.durable.heard(&answer);
        match self.kv.remove(&token) {
            None => {}
            Some(KvOwner::Tree(token)) => self.push(Work::Tree(TreeEvent::Kv(token, answer))),
            Some(KvOwner::Space(token)) => self.push(Work::Space(SpaceEvent::Kv(token, answer))),
            Some(KvOwner::Sessions(token)) => self.push(Work::Sessions(SessionsEvent::Kv(token, answer))),
            Some(KvOwner::Own(read)) => self.own_read(*read, answer, effects),
        }
    }

    fn tier_answered(
        &mut self,
        token: TierToken,
        answer: Result<TierAnswer, TierFailure>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        match self.tier.remove(&token) {
            None => {}
            Some(TierOwner::Label(namespace)) => self.label_read(namespace, answer),
            Some(TierOwner::Donation(namespace, donating)) => {
                self.donation_goes_on(namespace, donating, answer, effects);
            }
            Some(TierOwner::Recovery) => self.block_recovered(answer, effects),
            Some(TierOwner::Move(id)) => self.block_copied(id, answer, effects),
        }
    }

    fn tree_wants(&mut self, effect: TreeEffect, effects: &mut Vec<ServiceEffect>) {
        match effect {
            TreeEffect::Kv(token, request) => self.ask_kv(KvOwner::Tree(token), request, effects),
            TreeEffect::Answer(RequestToken(id), answer) => {
                if !self.settled(id, &answer, effects) && !self.move_committed(id, &answer, effects) {
                    self.tree_answered(id, answer, effects);
                }
            }
            // The others stand by, and own nothing.
            TreeEffect::Peer(..) => {}
            TreeEffect::Space(token, request) => self.ask_space(SpaceOwner::Tree(token), request),
            TreeEffect::Orphaned(file) => self.orphaned(file),
        }
    }

    fn space_wants(&mut self, effect: SpaceEffect, effects: &mut Vec<ServiceEffect>) {
        match effect {
            SpaceEffect::Kv(token, request) => self.ask_kv(KvOwner::Space(token), request, effects),
            SpaceEffect::Answer(id, result) => match self.space_owners.remove(&id) {
                Some(SpaceOwner::Tree(token)) => self.push(Work::Tree(TreeEvent::Space(token, result))),
                Some(SpaceOwner::Placement(ask)) if self.moves.is_placing(ask.0) => self.move_granted(ask, result),
                Some(SpaceOwner::Placement(ask)) => self.space_granted(ask, result),
                Some(SpaceOwner::Request(id)) => self.returned(id, result, effects),
                Some(SpaceOwner::Nobody) | None => {}
            },
            SpaceEffect::Taken(region, _, sessions) => self.region_taken(region, sessions, effects),
            SpaceEffect::Lost(region) | SpaceEffect::Damaged(region) => self.region_lost(region),
        }
    }

    fn placement_wants(&mut self, effect: PlacementEffect, effects: &mut Vec<ServiceEffect>) {
        match effect {
            PlacementEffect::Grant(ask, session, region, wish) => self.grant_in(ask, session, region, &wish),
            PlacementEffect::Lease(ask, _) => self.push(Work::Placement(PlacementEvent::Leased(ask, None))),
            PlacementEffect::Forward(ask, ..) => {
                let silent = crate::placement::ForwardAnswer::Silent;
                self.push(Work::Placement(PlacementEvent::Forwarded(ask, silent)));
            }
            PlacementEffect::Look(ask) => {
                // Every change of a region is told at once.
                self.push(Work::Placement(PlacementEvent::Changed(Some(ask), Vec::new())));
            }
            PlacementEffect::Return(session, _, extents) => {
                self.ask_space(SpaceOwner::Nobody, SpaceRequest::Return { session, extents });
            }
            PlacementEffect::Answer(AskId(id), result) if self.moves.is_placing(id) => {
                self.move_placed(id, result, effects);
            }
            PlacementEffect::Answer(AskId(id), result) => self.placed(id, result, effects),
        }
    }

    fn sessions_want(&mut self, effect: SessionsEffect, effects: &mut Vec<ServiceEffect>) {
        match effect {
            SessionsEffect::Kv(token, request) => self.ask_kv(KvOwner::Sessions(token), request, effects),
            SessionsEffect::Answer(SessionRequestId(id), result) => self.session_answered(id, result, effects),
            SessionsEffect::Fence(session) => {
                let due = self.clock.now.saturating_add(self.settings.fence_wait);
                self.fencing.entry(session).or_insert(due);
            }
            SessionsEffect::Ended(session) => self.session_over(session),
            // Said again at each look.
            SessionsEffect::Horizon(_) if self.clock.now < self.reuse_at() => {}
            SessionsEffect::Horizon(epoch) => self.push(Work::Space(SpaceEvent::Horizon(epoch))),
        }
    }

    fn disconnected(&mut self, id: ConnectionId) {
        // What is under way goes on: its answer is recorded, or nobody waits for it.
        self.connections.remove(&id);
    }

    fn tick(&mut self, effects: &mut Vec<ServiceEffect>) {
        self.push(Work::Tree(TreeEvent::Tick));
        self.look_at_processes(effects);
        if self.standby.life.is_none() {
            return;
        }
        if !self.starting.is_over() {
            return self.go_on_starting(effects);
        }
        self.push(Work::Sessions(SessionsEvent::Tick));
        self.push(Work::Space(SpaceEvent::Tick));
        let due: Vec<SessionId> =
            self.fencing.iter().filter(|(_, due)| **due <= self.clock.now).map(|(session, _)| *session).collect();
        for session in due {
            self.fencing.remove(&session);
            self.push(Work::Sessions(SessionsEvent::Fenced(session)));
        }
        self.free_orphans();
        self.look_at_namespaces(effects);
        self.recover(effects);
        self.find_lacking(effects);
        self.move_blocks(effects);
        self.demote(effects);
    }

    /// Answers a request, which is over.
    pub(super) fn answer(&mut self, id: u64, answer: Answer, effects: &mut Vec<ServiceEffect>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        if let (Some(slot), Some(session)) = (pending.slot, pending.session) {
            self.slots.remove(&(session, slot));
        }
        if let Some(session) = pending.session {
            self.opening.remove(&(session, id));
        }
        self.answered += 1;
        if let Some(connection) = self.connections.get_mut(&pending.connection) {
            connection.requests.remove(&id);
            connection.greets = connection.greets.filter(|greeting| *greeting != id);
            effects.push(ServiceEffect::Send(pending.connection, pending.number, answer));
        }
    }

    /// Answers a request that comes to nothing; what it is about is said in any case, `more` is what there is beside.
    pub(super) fn fail(
        &mut self,
        id: u64,
        error: StoreError,
        more: impl Into<String>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(pending) = self.pending.get(&id) else { return };
        let target = |number| self.namespaces.get(&number).map(|found| found.record.target.clone());
        let about = match &pending.what {
            What::Resolve(resolving) => resolving.path(),
            _ => pending.about.text(target),
        };
        let more: String = more.into();
        let detail = if more.is_empty() { about } else { alloc::format!("{about}: {more}") };
        self.answer(id, Answer::Failed { error, detail }, effects);
    }

    /// What holds at all times between two events.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let is = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        self.tree.check()?;
        self.space.check();
        self.placement.check();
        self.check_moves()?;
        self.check_index()?;
        self.handles.check(self.recovery.holds().into_iter())?;
        is(self.opening.keys().all(|(_, id)| self.pending.contains_key(id)), "a file is opened by a request")?;
        is(self.queue.is_empty(), "an event is taken to its end")?;
        let mut waiting = self.durable.waiting();
        is(waiting.all(|id| self.pending.contains_key(id)), "a request waits for the medium")?;
        for (id, pending) in &self.pending {
            if let Some(connection) = self.connections.get(&pending.connection) {
                is(connection.requests.contains(id), "a request is its connection's")?;
            }
            let slot = pending.slot.zip(pending.session);
            is(slot.is_none_or(|(slot, session)| self.slots.contains(&(session, slot))), "a slot is in use once")?;
        }
        let used = self.pending.values().filter(|pending| pending.slot.is_some()).count();
        is(used == self.slots.len(), "a slot in use is a request's")
    }
}

/// Blocks of a grant: of each copy's extents the n-th block.
pub(super) fn blocks_of(copies: &[Vec<Extent>], block: u64, granted: &[(Extent, Generation)]) -> Vec<NewBlock> {
    let cut = |extents: &Vec<Extent>| -> Vec<Extent> {
        let parts = |extent: &Extent| {
            let count = extent.length.get().checked_div(block).unwrap_or(0);
            let extent = *extent;
            (0..count).map(move |number| Extent {
                offset: (extent.offset.get() + number * block).into(),
                length: block.into(),
                ..extent
            })
        };
        extents.iter().flat_map(parts).collect()
    };
    let copies: Vec<Vec<Extent>> = copies.iter().map(cut).collect();
    let count = copies.iter().map(Vec::len).min().unwrap_or(0);
    let generation = |extent: &Extent| {
        granted.iter().find(|(whole, _)| whole.overlaps(extent)).map(|(_, generation)| *generation).unwrap_or_default()
    };
    let block_at = |number: usize| {
        let copies: Vec<Extent> = copies.iter().filter_map(|copy| copy.get(number).copied()).collect();
        let generation = copies.first().map(generation).unwrap_or_default();
        NewBlock { copies, generation }
    };
    (0..count).map(block_at).collect()
}
