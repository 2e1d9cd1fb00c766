//! A drive's machine with ring queues and nothing behind it, for measuring it alone.

use crate::journal::cpu_time;
use crate::{BenchError, failed};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_controller::{
    Attach, ControllerHandle, Data, DataPointer, Effect, Effects, Event, Host, Journals, NamespaceConfig, Owner,
    RingCompletion, Subsystem, SubsystemConfig, Tag, TenantConfig, TransportModel,
};
use weir_driver::nvme::{BringUp, ControllerPlan, Port, QueuePairRings, QueuePlan};
use weir_spec::nvme::register::Doorbell;
use weir_spec::nvme::{Cqe, IoOpcode, Sqe, Status};
use weir_sys::memory::JournalWords;
use weir_units::{Class, Nanos};
use weir_workload::Xoshiro256;
use zerocopy::{FromBytes, IntoBytes};

/// Requests in flight, over all queues.
const DEPTH: u32 = 128;
const BASE: u64 = 4096;
const CLASSES: [Class; 3] = [Class::High, Class::Medium, Class::Low];

/// One memory per controller, and a journal where one is kept.
#[derive(Default)]
struct Memories(Vec<Vec<u8>>, Vec<Journals<JournalWords>>);

impl Memories {
    #[inline]
    fn at(&mut self, owner: Owner, address: u64, len: usize) -> Option<&mut [u8]> {
        let at = (address - BASE) as usize;
        self.0.get_mut(owner.0 as usize)?.get_mut(at..at + len)
    }
}

impl Host for Memories {
    #[inline]
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        let bytes = &*self.at(owner, address, 64).ok_or(Status::DATA_TRANSFER_ERROR)?;
        bytes.try_into().map(Sqe::words_of).map_err(|_| Status::DATA_TRANSFER_ERROR)
    }
    #[inline]
    fn post(&mut self, owner: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.at(owner, address, 16).ok_or(Status::DATA_TRANSFER_ERROR)?.copy_from_slice(cqe.as_bytes());
        Ok(())
    }
    #[inline]
    fn take(&mut self, owner: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        self.1.get_mut(owner.0 as usize).map_or(Tag(0), |journals| journals.take(qid, entry, head))
    }
    #[inline]
    fn complete(
        &mut self,
        owner: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        let at = owner.0 as usize;
        if at >= self.1.len() {
            return self.post(owner, address, vector, cqe);
        }
        self.1[at].done(cqe, taken);
        self.post(owner, address, vector, cqe)?;
        self.1[at].posted(cqe, taken);
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &mut [u8]) -> Result<(), Status> {
        Ok(())
    }
    /// Identify's answers, during the bring-up.
    fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let Data::Prp { prp1, .. } = data.get() else { return Err(Status::SGL_TYPE_INVALID) };
        self.at(owner, prp1 + u64::from(offset), from.len()).ok_or(Status::DATA_TRANSFER_ERROR)?.copy_from_slice(from);
        Ok(())
    }
}

struct View<'a> {
    drive: &'a mut Subsystem,
    memories: &'a mut Memories,
    none: &'a mut Effects,
    controller: ControllerHandle,
    owner: Owner,
}

impl View<'_> {
    #[inline]
    fn apply(&mut self, event: Event) {
        self.drive.apply(Nanos(0), event, self.memories, self.none);
    }
}

impl Port for View<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        self.drive.register(self.controller, offset, size)
    }
    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        self.apply(Event::Register { controller: self.controller, offset, value, size });
    }
    #[inline]
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        let controller = self.controller;
        self.apply(match doorbell {
            Doorbell::SqTail(qid) => Event::SqTail { controller, qid, tail: value },
            Doorbell::CqHead(qid) => Event::CqHead { controller, qid, head: value },
        });
    }
    fn read(&mut self, address: u64, into: &mut [u8]) {
        if let Some(bytes) = self.memories.at(self.owner, address, into.len()) {
            into.copy_from_slice(bytes);
        }
    }
    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) {
        if let Some(place) = self.memories.at(self.owner, address, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    #[inline]
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        let Some(place) = self.memories.at(self.owner, address, 64) else { return };
        for (bytes, word) in place.chunks_exact_mut(8).zip(entry) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
    #[inline]
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        let cqe = Cqe::read_from_bytes(self.memories.at(self.owner, address, 16)?).ok()?;
        (cqe.phase() == phase).then_some(cqe)
    }
}

/// A drive, and for each tenant a controller with queues.
pub struct Rig {
    drive: Subsystem,
    memories: Memories,
    effects: Effects,
    none: Effects,
    queues: Vec<(ControllerHandle, Owner, QueuePairRings)>,
    depth: u32,
    journal: bool,
}

impl Rig {
    /// `tenants` tenants, one of each class in turn, with `queues` queues each.
    ///
    /// # Errors
    /// The machine refuses: a mistake here.
    pub fn new(mechanism: Mechanism, tenants: usize, queues: u32) -> Result<Self, BenchError> {
        Self::with(mechanism, tenants, queues, false)
    }

    /// The same with the journal that the door of a ring controller keeps under a keeper.
    ///
    /// # Errors
    /// As [`new`](Self::new); no memory.
    pub fn with(mechanism: Mechanism, tenants: usize, queues: u32, journal: bool) -> Result<Self, BenchError> {
        let mut config = SubsystemConfig::new("nqn.2026-11.io.weir:bench:null");
        config.arbitration = ArbiterSettings::new(mechanism);
        config.slots = DEPTH;
        let class = |i: usize| CLASSES[i % CLASSES.len()];
        config.tenants = (0..tenants).map(|i| TenantConfig::new(&i.to_string(), class(i))).collect();
        // One tenant may be for any host, and none of these comes by name.
        config.tenants.iter_mut().for_each(|t| t.hosts.clear());
        config.namespaces = vec![NamespaceConfig { nsid: 1, start: 0, size: 1 << 40, block_size: 4096, uuid: [1; 16] }];
        let drive = Subsystem::new(config, Nanos(0))?;
        let depth = DEPTH / (tenants as u32 * queues);
        let (effects, none) = (Effects::new(DEPTH as usize), Effects::new(1));
        let mut rig = Rig { drive, memories: Memories::default(), effects, none, queues: Vec::new(), depth, journal };
        for tenant in 0..tenants {
            rig.attach(tenant, queues)?;
        }
        Ok(rig)
    }

    fn attach(&mut self, tenant: usize, queues: u32) -> Result<(), BenchError> {
        let owner = Owner(tenant as u32);
        let attach = Attach { tenant: tenant as u16, owner, model: TransportModel::Rings, host: "bench".into() };
        let controller = self.drive.attach(Nanos(0), attach)?;
        // Twice as many entries as requests, so that a ring wraps where it likes.
        let queue = QueuePlan { depth: 2 * self.depth, priority: Class::Medium };
        let plan = ControllerPlan { queues: vec![queue; queues as usize], ..ControllerPlan::new(BASE, 1, 4096) };
        self.memories.0.push(vec![0; plan.memory() as usize]);
        let mut bring_up = BringUp::new(plan);
        let ready = loop {
            let Rig { drive, memories, none, .. } = self;
            let mut view = View { drive, memories, none, controller, owner };
            if let Some(ready) = bring_up.poll(Nanos(0), &mut view)? {
                break ready;
            }
            self.drive.apply(Nanos(0), Event::Run, &mut self.memories, &mut self.effects);
            if !self.effects.is_empty() {
                return Err(failed("the bring-up", "wants I/O"));
            }
        };
        if self.journal {
            let (queues, entries) = (queues as u16, self.drive.config().max_queue_entries);
            let (words, _) = JournalWords::create(Journals::<JournalWords>::bytes(queues, entries))?;
            let mut journals = Journals::open(words, queues, entries).map_err(|e| failed("the journal", e))?;
            if !journals.follow(&self.drive, controller) {
                return Err(failed("the journal", "has no room for a queue"));
            }
            self.memories.1.push(journals);
        }
        let rings = ready.queues.iter().map(|q| (controller, owner, q.rings().clone()));
        self.queues.extend(rings);
        Ok(())
    }

    /// Keeps all queues full until `commands` are done; nanoseconds of this thread's own time a command.
    pub fn measure(&mut self, commands: u64) -> f64 {
        let mut rng = Xoshiro256::new(1);
        // As the driver makes them: in words, not in narrow pieces that are read wide at once.
        let mut entry = Sqe { opcode: IoOpcode::READ.0, nsid: 1.into(), ..Sqe::default() }.words();
        let first = entry[0];
        let mut done = 0u64;
        let begun = cpu_time();
        while done < commands {
            let Rig { drive, memories, none, effects, queues, depth, .. } = self;
            for (controller, owner, rings) in queues.iter_mut() {
                let mut view = View { drive, memories, none, controller: *controller, owner: *owner };
                while rings.in_flight() < *depth {
                    let draw = rng.next_u64();
                    // CID, and SLBA in CDW10 and CDW11.
                    entry[0] = first | u64::from(draw as u16) << 16;
                    entry[5] = draw >> 40;
                    rings.push(&mut view, &entry);
                }
                rings.ring_tail(&mut view);
            }
            drive.apply(Nanos(0), Event::Run, memories, effects);
            for effect in effects.as_slice() {
                if let Effect::Io(io) = effect {
                    drive.apply(Nanos(0), Event::Done { slot: io.slot, status: Status::SUCCESS }, memories, none);
                }
            }
            effects.clear();
            for (controller, owner, rings) in queues.iter_mut() {
                let mut view = View { drive, memories, none, controller: *controller, owner: *owner };
                while let Ok(Some(_)) = rings.pop(&mut view) {
                    done += 1;
                }
                rings.ring_head(&mut view);
            }
        }
        (cpu_time() - begun) / done as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_comes_back() {
        for mechanism in [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
            for (tenants, queues) in [(1, 1), (3, 4)] {
                for journal in [false, true] {
                    let mut rig = Rig::with(mechanism, tenants, queues, journal).unwrap_or_else(|e| panic!("{e:?}"));
                    assert!(rig.measure(10_000) > 0.0);
                    let work = rig.drive.stats().work;
                    assert!(work.reads >= 10_000 && work.errors == 0, "{work:?}");
                    rig.drive.check();
                }
            }
        }
    }
}
