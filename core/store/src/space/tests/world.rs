//! Services that take regions from each other, sessions that write, publish, read, stall and die, and power cuts. Every grain of a drive has
//! a tag that says whose bytes it has.

use crate::kv::{Commit, Expect, FaultyKv, Kv, KvFaults, KvKey, KvWrite, MemoryKv, Revision};
use crate::mutant::Mutant;
use crate::space::{
    BlockPlace, Epoch, ExtentRecord, ExtentUse, GRAIN, REGION_MIN, RegionInfo, Space, SpaceAnswer, SpaceEffect,
    SpaceError, SpaceEvent, SpaceRequest, SpaceRequestId, cut_tail, extent_key,
};
use crate::{Extent, Generation, InodeId, NamespaceId, RegionId, ServiceId, SessionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;

/// Operations of a run.
const OPERATIONS: usize = 400;
const REGIONS: u64 = 2;
const SERVICES: usize = 2;
const SESSIONS: usize = 3;
const BLOCK: u64 = 4 << 20;

/// What has happened in runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub grants: u64,
    pub published: u64,
    pub appended: u64,
    pub deleted: u64,
    pub returned: u64,
    pub reads: u64,
    pub reused: u64,
    pub takeovers: u64,
    pub fenced: u64,
    pub restarts: u64,
    pub power_cuts: u64,
    pub unknown: u64,
    pub conflicts: u64,
    pub full: u64,
}

#[derive(Clone, Debug)]
struct FileMap {
    /// Where the blocks are.
    extents: Vec<Extent>,
    stamp: Epoch,
}

/// A client.
#[derive(Clone, Debug, Default)]
struct Client {
    session: SessionId,
    acknowledged: Epoch,
    grants: Vec<Extent>,
    maps: BTreeMap<InodeId, FileMap>,
    /// Writes on their way: where, whose bytes, and the epoch in which they began.
    writes: Vec<(Extent, u64, Epoch)>,
}

#[derive(Debug)]
enum Asked {
    Grant,
    Publish { inode: InodeId, map: Vec<Extent> },
    Delete,
    Return,
    Fence,
}

/// How often things happen, in a thousand operations.
struct Rates {
    flush: usize,
    fence: usize,
    restart: usize,
    power_cut: usize,
    take_over: usize,
    /// The index is read again.
    refresh: usize,
    /// An answer of the key-value store waits behind others.
    late: usize,
}

struct Service {
    id: ServiceId,
    space: Space,
}

pub(super) struct World {
    random: SplitMix64,
    faults: KvFaults,
    kv: FaultyKv,
    durable: MemoryKv,
    services: Vec<Service>,
    clients: Vec<Client>,
    /// Sessions that were fenced, as long as services are to hear of it.
    fenced: BTreeSet<SessionId>,
    asked: BTreeMap<(ServiceId, SpaceRequestId), (SessionId, Asked)>,
    /// Of each region and grain from the beginning of the namespace; 0 where nothing was written.
    tags: [Vec<u64>; REGIONS as usize],
    /// How often things happen in this run.
    rates: Rates,
    counter: u64,
    mutant: Option<Mutant>,
    totals: Totals,
}

fn region(number: u64) -> RegionInfo {
    // The second region does not begin at the beginning of its namespace.
    let offset = (number * 3 * GRAIN).into();
    RegionInfo {
        id: RegionId(number),
        extent: Extent { namespace: NamespaceId(number), offset, length: REGION_MIN.into() },
    }
}

fn file_key(inode: InodeId) -> KvKey {
    KvKey([b"F", &inode.0.to_be_bytes()[..]].concat())
}

fn session_key(session: SessionId) -> KvKey {
    KvKey([b"c", &session.0.to_be_bytes()[..]].concat())
}

fn encode_map(extents: &[Extent]) -> Vec<u8> {
    let words = extents.iter().flat_map(|e| [e.namespace.0, e.offset.get(), e.length.get()]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn decode_map(bytes: &[u8]) -> Vec<Extent> {
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let extent = |w: &[u64]| Extent { namespace: NamespaceId(w[0]), offset: w[1].into(), length: w[2].into() };
    words.chunks(3).map(extent).collect()
}

fn files(store: &MemoryKv) -> Vec<(InodeId, Vec<Extent>)> {
    let files = store.iter().filter(|(key, _)| key.0[0] == b'F');
    files
        .map(|(key, value)| (InodeId(u64::from_be_bytes(key.0[1..].try_into().unwrap())), decode_map(&value.value)))
        .collect()
}

fn epoch_in(store: &MemoryKv) -> Epoch {
    let found = store.iter().find(|(key, _)| **key == Epoch::key());
    found.map_or(Epoch(0), |(_, value)| Epoch::decode(&value.value).unwrap())
}

/// Its grains, counted from the beginning of its namespace.
fn grains(extent: &Extent) -> core::ops::Range<usize> {
    (extent.offset.get() / GRAIN) as usize..(extent.end().unwrap().get() / GRAIN) as usize
}

fn overlaps(extent: &Extent, others: &[Extent]) -> bool {
    others.iter().any(|other| other.overlaps(extent))
}

impl World {
    pub fn new(seed: u64, faults: KvFaults, mutant: Option<Mutant>) -> World {
        let mut random = SplitMix64::new(seed);
        let mut rate = |rates: [usize; 3]| rates[random.below(3) as usize];
        let rates = Rates {
            flush: rate([3, 20, 60]),
            fence: rate([0, 4, 15]),
            restart: rate([0, 4, 10]),
            power_cut: rate([0, 3, 10]),
            take_over: rate([3, 10, 40]),
            refresh: rate([0, 20, 80]),
            late: rate([0, 300, 800]),
        };
        let mut world = World {
            random,
            faults,
            kv: FaultyKv::new(seed, faults),
            durable: MemoryKv::default(),
            services: Vec::new(),
            clients: Vec::new(),
            fenced: BTreeSet::new(),
            asked: BTreeMap::new(),
            tags: core::array::from_fn(|_| alloc::vec![0; (REGION_MIN / GRAIN + 3 * REGIONS) as usize]),
            rates,
            counter: 0,
            mutant,
            totals: Totals::default(),
        };
        (0..SERVICES).for_each(|_| world.new_service());
        (0..SESSIONS).for_each(|_| world.new_client());
        world
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u32) as usize
    }

    fn new_service(&mut self) {
        let id = ServiceId(self.next());
        let mut space = Space::new(id);
        space.planted = self.mutant.into();
        self.services.push(Service { id, space });
    }

    fn new_client(&mut self) {
        let session = SessionId(self.next());
        let write = KvWrite::Put(session_key(session), Vec::new());
        self.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: alloc::vec![write] });
        let acknowledged = epoch_in(self.kv.store());
        self.clients.push(Client { session, acknowledged, ..Client::default() });
    }

    /// Runs to the end: what has happened, or what was wrong.
    pub fn run(mut self) -> Result<Totals, String> {
        for number in 0..REGIONS {
            self.apply(0, SpaceEvent::Take(region(number)))?;
        }
        for _ in 0..OPERATIONS {
            self.operation()?;
            for _ in 0..self.below(6) {
                self.deliver()?;
            }
            self.services.iter().for_each(|service| service.space.check());
        }
        self.settle()?;
        Ok(self.totals)
    }

    fn operation(&mut self) -> Result<(), String> {
        let client = self.below(self.clients.len());
        let service = self.below(self.services.len());
        let Rates { flush, fence, restart, power_cut, take_over, refresh, late: _ } = self.rates;
        let mut rare = self.below(1000);
        for (rate, what) in [(flush, 0), (fence, 1), (restart, 2), (power_cut, 3), (take_over, 4), (refresh, 5)] {
            if rare < rate {
                return match what {
                    0 => self.flush(),
                    1 => self.fence(client),
                    2 => self.restart(service),
                    3 => self.power_cut(),
                    4 => self.take_over(service),
                    _ => self.refresh(service),
                };
            }
            rare -= rate;
        }
        match self.below(90) {
            0..20 => self.ask_grant(service, client)?,
            20..34 => self.ask_publish(service, client)?,
            34..40 => self.ask_append(service, client)?,
            40..48 => self.ask_delete(service, client)?,
            48..51 => self.ask_return(service, client)?,
            51..57 => self.open(client),
            57..63 => self.read(client)?,
            63..66 => self.begin_write(client),
            66..69 => self.end_write(client),
            69..78 => self.renew(client),
            78..86 => self.apply(service, SpaceEvent::Tick)?,
            _ => self.horizon(service)?,
        }
        Ok(())
    }

    fn apply(&mut self, service: usize, event: SpaceEvent) -> Result<(), String> {
        let mut effects = Vec::new();
        self.services[service].space.apply(event, &mut effects);
        let id = self.services[service].id;
        for effect in effects {
            match effect {
                SpaceEffect::Kv(token, request) => self.kv.send(id.0 as u32, token, request),
                SpaceEffect::Answer(request, answer) => self.answer(id, request, answer)?,
                SpaceEffect::Taken(_, _, sessions) => {
                    self.totals.takeovers += 1;
                    for session in sessions {
                        if self.fenced.contains(&session) {
                            self.ask(service, session, Asked::Fence, SpaceRequest::Fence { session })?;
                        }
                    }
                }
                SpaceEffect::Lost(_) => {}
                SpaceEffect::Damaged(region) => return Err(format!("the index of {region} is damaged")),
            }
        }
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), String> {
        if self.kv.pending() == 0 {
            return Ok(());
        }
        let Some((sender, token, answer)) = self.kv.advance() else { return Ok(()) };
        if self.below(1000) < self.rates.late {
            self.kv.deliver_again(sender, token, answer);
            return Ok(());
        }
        let service = self.services.iter().position(|service| service.id.0 as u32 == sender);
        service.map_or(Ok(()), |service| self.apply(service, SpaceEvent::Kv(token, answer)))
    }

    fn ask(&mut self, service: usize, session: SessionId, asked: Asked, request: SpaceRequest) -> Result<(), String> {
        let (id, number) = (self.services[service].id, SpaceRequestId(self.next()));
        self.asked.insert((id, number), (session, asked));
        self.apply(service, SpaceEvent::Request(number, request))
    }

    fn ask_grant(&mut self, service: usize, client: usize) -> Result<(), String> {
        let session = self.clients[client].session;
        let expect = alloc::vec![(session_key(session), Expect::Present)];
        let with = Commit { expect, writes: Vec::new() };
        let (region, count) = (RegionId(self.below(REGIONS as usize) as u64), 1 + self.below(2) as u64);
        let block = if self.below(4) == 0 { BLOCK / 4 } else { BLOCK };
        self.ask(service, session, Asked::Grant, SpaceRequest::Grant { session, region, block, count, with })
    }

    /// A new file of one block, whose last part is cut off.
    fn ask_publish(&mut self, service: usize, client: usize) -> Result<(), String> {
        let Some(grant) = self.pick_grant(client) else { return Ok(()) };
        let inode = InodeId(self.next());
        let grains = (grant.length.get() / GRAIN) as usize;
        let used = if self.below(2) == 0 { grant.length.get() } else { 1 + self.below(grains) as u64 * GRAIN };
        let extent = Extent { length: cut_tail(grant.length.get(), used).into(), ..grant };
        self.write(&extent, inode.0);
        let map = alloc::vec![extent];
        let put = KvWrite::Put(file_key(inode), encode_map(&map));
        let with = Commit { expect: alloc::vec![(file_key(inode), Expect::Absent)], writes: alloc::vec![put] };
        self.publish(service, client, inode, map, &[extent], Vec::new(), with)
    }

    /// The tail of a file is replaced by a new block.
    fn ask_append(&mut self, service: usize, client: usize) -> Result<(), String> {
        let all = files(self.kv.store());
        let Some(grant) = self.pick_grant(client).filter(|_| !all.is_empty()) else { return Ok(()) };
        let (inode, old) = all[self.below(all.len())].clone();
        self.write(&grant, inode.0);
        let put = KvWrite::Put(file_key(inode), encode_map(&[grant]));
        let expect = alloc::vec![(file_key(inode), Expect::Value(encode_map(&old)))];
        let with = Commit { expect, writes: alloc::vec![put] };
        let unmap = old.iter().map(|extent| (inode, *extent)).collect();
        self.totals.appended += 1;
        self.publish(service, client, inode, alloc::vec![grant], &[grant], unmap, with)
    }

    #[allow(clippy::too_many_arguments)]
    fn publish(
        &mut self,
        service: usize,
        client: usize,
        inode: InodeId,
        after: Vec<Extent>,
        map: &[Extent],
        unmap: Vec<(InodeId, Extent)>,
        with: Commit,
    ) -> Result<(), String> {
        let session = self.clients[client].session;
        let map = map.iter().map(|extent| BlockPlace { extent: *extent, inode, block: 0 }).collect();
        // Until the answer it is neither one's own nor known to be published.
        for extent in &after {
            take_out(&mut self.clients[client].grants, extent);
        }
        let request = SpaceRequest::Publish { session, map, unmap, with };
        self.ask(service, session, Asked::Publish { inode, map: after }, request)
    }

    fn ask_delete(&mut self, service: usize, client: usize) -> Result<(), String> {
        let all = files(self.kv.store());
        if all.is_empty() {
            return Ok(());
        }
        let (inode, extents) = all[self.below(all.len())].clone();
        let expect = alloc::vec![(file_key(inode), Expect::Value(encode_map(&extents)))];
        let with = Commit { expect, writes: alloc::vec![KvWrite::Delete(file_key(inode))] };
        let session = self.clients[client].session;
        self.ask(service, session, Asked::Delete, SpaceRequest::Free { inode, extents, with })
    }

    fn ask_return(&mut self, service: usize, client: usize) -> Result<(), String> {
        let Some(grant) = self.pick_grant(client) else { return Ok(()) };
        take_out(&mut self.clients[client].grants, &grant);
        // A write to it may still be on its way.
        self.start_write(client, grant);
        let session = self.clients[client].session;
        self.ask(service, session, Asked::Return, SpaceRequest::Return { session, extents: alloc::vec![grant] })
    }

    fn pick_grant(&mut self, client: usize) -> Option<Extent> {
        let grants = self.clients[client].grants.len();
        (grants > 0).then(|| self.clients[client].grants[self.random.below(grants as u32) as usize])
    }

    fn write(&mut self, extent: &Extent, tag: u64) {
        self.tags[extent.namespace.0 as usize][grains(extent)].fill(tag);
    }

    /// What is wrong with bytes that were read as the inode's.
    fn verify(&self, inode: InodeId, extents: &[Extent]) -> Result<(), String> {
        for extent in extents {
            let tags = &self.tags[extent.namespace.0 as usize][grains(extent)];
            if let Some(tag) = tags.iter().find(|tag| **tag != inode.0) {
                return Err(format!("inode {inode} reads bytes of {tag} in {extent}"));
            }
        }
        Ok(())
    }

    fn open(&mut self, client: usize) {
        let all = files(self.kv.store());
        if !all.is_empty() {
            let (inode, extents) = all[self.below(all.len())].clone();
            let map = FileMap { extents, stamp: epoch_in(self.kv.store()) };
            self.clients[client].maps.insert(inode, map);
        }
    }

    fn read(&mut self, client: usize) -> Result<(), String> {
        for (inode, map) in &self.clients[client].maps {
            self.verify(*inode, &map.extents)?;
        }
        self.totals.reads += self.clients[client].maps.len() as u64;
        Ok(())
    }

    fn start_write(&mut self, client: usize, extent: Extent) {
        let epoch = epoch_in(self.kv.store());
        let tag = u64::MAX - self.clients[client].session.0;
        self.clients[client].writes.push((extent, tag, epoch));
    }

    fn begin_write(&mut self, client: usize) {
        if let Some(grant) = self.pick_grant(client) {
            self.write(&grant, u64::MAX - self.clients[client].session.0);
        }
    }

    fn end_write(&mut self, client: usize) {
        if let Some((extent, tag, _)) = self.clients[client].writes.pop() {
            self.write(&extent, tag);
        }
    }

    /// Lets go of older maps, and acknowledges as far as nothing older is on its way.
    fn renew(&mut self, client: usize) {
        let epoch = epoch_in(self.kv.store());
        let client = &mut self.clients[client];
        client.maps.retain(|_, map| map.stamp >= epoch);
        let oldest = client.writes.iter().map(|(.., began)| *began).min();
        client.acknowledged = client.acknowledged.max(oldest.unwrap_or(epoch).min(epoch));
    }

    fn horizon(&mut self, service: usize) -> Result<(), String> {
        let epoch = epoch_in(self.kv.store());
        let least = self.clients.iter().map(|client| client.acknowledged).min().unwrap_or(epoch);
        self.apply(service, SpaceEvent::Horizon(least.min(epoch)))
    }

    fn flush(&mut self) -> Result<(), String> {
        self.durable = self.kv.store().clone();
        let revision = self.durable.iter().map(|(_, value)| value.revision).max().unwrap_or(Revision(0));
        (0..self.services.len()).try_for_each(|service| self.apply(service, SpaceEvent::Durable(revision)))
    }

    /// The session ends, and nothing that it has on its way arrives any more.
    fn fence(&mut self, client: usize) -> Result<(), String> {
        let gone = self.clients.swap_remove(client);
        let arrives = self.below(gone.writes.len() + 1);
        for (extent, tag, _) in &gone.writes[..arrives] {
            self.write(extent, *tag);
        }
        let delete = KvWrite::Delete(session_key(gone.session));
        self.kv.store_mut().commit(&Commit { expect: Vec::new(), writes: alloc::vec![delete] });
        self.fenced.insert(gone.session);
        let session = gone.session;
        self.new_client();
        for service in 0..self.services.len() {
            self.ask(service, session, Asked::Fence, SpaceRequest::Fence { session })?;
        }
        Ok(())
    }

    fn restart(&mut self, service: usize) -> Result<(), String> {
        let gone = self.services.swap_remove(service).id;
        self.asked.retain(|(id, _), _| *id != gone);
        self.totals.restarts += 1;
        self.new_service();
        Ok(())
    }

    /// What was not durable is lost. All clients get new sessions.
    fn power_cut(&mut self) -> Result<(), String> {
        let seed = self.random.next_u64();
        self.kv = FaultyKv::new(seed, self.faults);
        *self.kv.store_mut() = self.durable.clone();
        for client in core::mem::take(&mut self.clients) {
            self.fenced.insert(client.session);
        }
        (0..SESSIONS).for_each(|_| self.new_client());
        (0..SERVICES).try_for_each(|_| self.restart(0))?;
        self.totals.power_cuts += 1;
        files(self.kv.store()).iter().try_for_each(|(inode, extents)| self.verify(*inode, extents))?;
        self.take_over(0)
    }

    fn take_over(&mut self, service: usize) -> Result<(), String> {
        let region = region(self.below(REGIONS as usize) as u64);
        self.apply(service, SpaceEvent::Take(region))
    }

    fn refresh(&mut self, service: usize) -> Result<(), String> {
        let region = RegionId(self.below(REGIONS as usize) as u64);
        self.apply(service, SpaceEvent::Refresh(region))
    }

    fn answer(
        &mut self,
        id: ServiceId,
        number: SpaceRequestId,
        answer: Result<SpaceAnswer, SpaceError>,
    ) -> Result<(), String> {
        let (session, asked) = self.asked.remove(&(id, number)).ok_or("an answer without a question")?;
        match answer {
            Err(SpaceError::Unknown) => self.totals.unknown += 1,
            Err(SpaceError::Conflict) => self.totals.conflicts += 1,
            Err(SpaceError::Full) => self.totals.full += 1,
            _ => {}
        }
        let client = self.clients.iter().position(|client| client.session == session);
        match (asked, answer) {
            (Asked::Grant, Ok(SpaceAnswer::Granted(granted))) => {
                self.totals.grants += 1;
                let Some(client) = client else { return Ok(()) };
                for grant in granted {
                    self.verify_grant(session, &grant.extent, grant.generation)?;
                    self.clients[client].grants.push(grant.extent);
                }
            }
            (Asked::Publish { inode, map }, answer) => self.published(client, session, inode, map, &answer)?,
            (Asked::Delete, Ok(_)) => self.totals.deleted += 1,
            (Asked::Return, Ok(_)) => self.totals.returned += 1,
            (Asked::Fence, Ok(SpaceAnswer::Fenced)) => self.totals.fenced += 1,
            (Asked::Fence, other) => return Err(format!("a fence is answered by {other:?}")),
            (_, Err(_)) => {}
            (asked, answer) => return Err(format!("{asked:?} is answered by {answer:?}")),
        }
        Ok(())
    }

    fn published(
        &mut self,
        client: Option<usize>,
        session: SessionId,
        inode: InodeId,
        map: Vec<Extent>,
        answer: &Result<SpaceAnswer, SpaceError>,
    ) -> Result<(), String> {
        let found = files(self.kv.store()).into_iter().any(|(i, extents)| i == inode && extents == map);
        match answer {
            Ok(_) => self.totals.published += 1,
            Err(SpaceError::Unknown) => {}
            Err(why) if found => return Err(format!("inode {inode} was published, and the answer is {why}")),
            Err(_) => {
                // It was not: the extent is still the session's, unless that has ended.
                let Some(client) = client else { return Ok(()) };
                let granted = ExtentUse::Granted(session);
                let is_mine = |extent: &Extent| self.record_at(extent).is_some_and(|record| record.used == granted);
                let back: Vec<Extent> = map.iter().filter(|extent| is_mine(extent)).copied().collect();
                self.clients[client].grants.extend(back);
            }
        }
        Ok(())
    }

    /// The record in Kv that has the extent.
    fn record_at(&self, extent: &Extent) -> Option<ExtentRecord> {
        let region = (0..REGIONS).map(region).find(|region| region.extent.namespace == extent.namespace)?;
        let records = self.kv.store().iter().filter(|(key, _)| key.0[0] == b'e');
        let upto = records.take_while(|(key, _)| **key <= extent_key(region.id, extent.offset.get()));
        let (key, value) = upto.filter(|(key, _)| **key >= extent_key(region.id, 0)).last()?;
        let record = ExtentRecord::decode(&value.value).ok()?;
        let at = u64::from_be_bytes(key.0[9..].try_into().ok()?);
        (at + record.len >= extent.end()?.get()).then_some(record)
    }

    /// Nobody else may have, read or write what is granted, nor get it back by a power cut; and the grant is in Kv.
    fn verify_grant(&mut self, session: SessionId, extent: &Extent, generation: Generation) -> Result<(), String> {
        let record = self.record_at(extent);
        if record.is_none_or(|r| r.used != ExtentUse::Granted(session) || r.generation != generation) {
            return Err(format!("{extent} was granted to {session}, and Kv says {record:?}"));
        }
        for client in &self.clients {
            if overlaps(extent, &client.grants) {
                return Err(format!("{extent} was granted to {session}, and session {} has it", client.session));
            }
            if client.maps.values().any(|map| overlaps(extent, &map.extents)) {
                return Err(format!("{extent} was granted to {session}, and {} has a map of it", client.session));
            }
            if client.writes.iter().any(|(write, ..)| write.overlaps(extent)) {
                return Err(format!("{extent} was granted to {session}, and {} is writing to it", client.session));
            }
        }
        if files(&self.durable).iter().any(|(_, extents)| overlaps(extent, extents)) {
            return Err(format!("{extent} was granted to {session}, and a power cut gives it to a file"));
        }
        if self.tags[extent.namespace.0 as usize][grains(extent)].iter().any(|tag| *tag != 0) {
            self.totals.reused += 1;
        }
        Ok(())
    }

    /// Without faults everything comes to an end: what is not a file's is free again.
    fn settle(&mut self) -> Result<(), String> {
        self.kv.set_faults(KvFaults::default());
        self.rates.late = 0;
        while self.kv.pending() > 0 {
            self.deliver()?;
        }
        (0..SERVICES).try_for_each(|_| self.restart(0))?;
        for client in core::mem::take(&mut self.clients) {
            self.fenced.insert(client.session);
        }
        for number in 0..REGIONS {
            self.apply(0, SpaceEvent::Take(region(number)))?;
        }
        for _ in 0..40 {
            while self.kv.pending() > 0 {
                self.deliver()?;
            }
            self.services[0].space.check();
            self.flush()?;
            self.horizon(0)?;
            self.apply(0, SpaceEvent::Tick)?;
        }
        let all = files(self.kv.store());
        all.iter().try_for_each(|(inode, extents)| self.verify(*inode, extents))?;
        let mapped: u64 = all.iter().flat_map(|(_, extents)| extents).map(|extent| extent.length.get()).sum();
        let mut found = 0;
        for number in 0..REGIONS {
            let usage = self.services[0].space.usage(RegionId(number)).ok_or("the region was not taken")?;
            if usage.granted + usage.quarantined > 0 || usage.free + usage.mapped != REGION_MIN {
                return Err(format!("region {number} ends with {usage:?}"));
            }
            found += usage.mapped;
        }
        if found != mapped || self.services[0].space.pending() > 0 {
            return Err(format!("{mapped} bytes are in maps and {found} in the index"));
        }
        Ok(())
    }
}

/// Takes an extent out of those that one has.
fn take_out(grants: &mut Vec<Extent>, extent: &Extent) {
    let Some(at) = grants.iter().position(|grant| grant.overlaps(extent)) else { return };
    let grant = grants.swap_remove(at);
    let (start, end) = (grant.offset.get(), grant.end().unwrap().get());
    for (from, to) in [(start, extent.offset.get()), (extent.end().unwrap().get(), end)] {
        if from < to {
            grants.push(Extent { offset: from.into(), length: (to - from).into(), ..grant });
        }
    }
}
