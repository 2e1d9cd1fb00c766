//! What is written of a ring controller at work: its bytes, and that bytes which are none are refused whole. What a crash leaves is
//! `killed.rs`.

mod common;

use common::{config, drive};
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_controller::testing::{TestRing, TestWorld, admin, io};
use weir_controller::{
    Attach, CHECKPOINT_VERSION, ControllerHandle, Event, FaultRule, Journals, Management, Owner, SavedError, Subsystem,
    TransportModel,
};
use weir_journal::JournalMemory;
use weir_spec::nvme::identify::namespace_list;
use weir_spec::nvme::namespace::{HostSoftwareFields, attachment, management};
use weir_spec::nvme::register::{self, ams};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::IntoBytes;

const OWNER: Owner = Owner(5);
const READ: u8 = 2;
const LIFE: NonZeroU64 = NonZeroU64::new(0x0102_0304_0506_0708).unwrap();

#[derive(Debug)]
struct Plain(RefCell<Vec<u64>>);

impl JournalMemory for Plain {
    fn count(&self) -> usize {
        self.0.borrow().len()
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        self.0.borrow()[at]
    }
    fn store(&self, at: usize, value: u64, _: Ordering) {
        self.0.borrow_mut()[at] = value;
    }
}

fn host(world: &mut TestWorld) -> TestRing {
    let mut ring = TestRing::ready(world, 0, OWNER, ams::RR);
    ring.add_queue(world, 1, 8, 0);
    ring
}

/// The same on a drive whose namespaces hosts manage.
fn managed() -> (TestWorld, TestRing) {
    let management = Management { capacity: 4 << 30, least_block: 512, metadata: false };
    let mut world = drive(|c| c.management = Some(management));
    let ring = host(&mut world);
    (world, ring)
}

/// Another drive has what was written of it, and nothing of its I/O queues was ever in flight.
fn move_on(world: &mut TestWorld, ring: &mut TestRing) {
    let bytes = world.drive.checkpoint(world.now, ring.controller);
    let (queues, entries) = (world.drive.config().max_io_queues, world.drive.config().max_queue_entries);
    let words = Rc::new(Plain(RefCell::new(vec![0; Journals::<Rc<Plain>>::bytes(queues, entries) as usize / 8])));
    let mut journals = Journals::open(words, queues, entries).unwrap();
    assert!(journals.follow(&world.drive, ring.controller));
    let place = |drive: &Subsystem, c: ControllerHandle, qid| {
        let cq = drive.ring_completions(c, qid).unwrap();
        (cq.place % u64::from(cq.size)) as u32
    };
    let heads = [0, 1].map(|qid| place(&world.drive, ring.controller, qid));
    let mut next = Subsystem::new(world.drive.config().clone(), world.now).unwrap();
    let controller = next.resume_checkpoint(world.now, &bytes, 0, OWNER).unwrap();
    let rung = |qid: u16, _| (ring.tail(qid), heads[usize::from(qid)]);
    let recovered = journals.recover(&mut next, controller, rung, |_, _| panic!("nothing is complete")).unwrap();
    assert!(recovered.commands.is_empty());
    next.resubmit(world.now, controller, &[], &mut world.host);
    next.check();
    (world.drive, ring.controller) = (next, controller);
    world.event(Event::Run);
}

#[test]
fn golden_bytes_behind_the_function() {
    let mut world = drive(|_| {});
    let mut ring = host(&mut world);
    world.drive.keep_rings(ring.controller, LIFE);
    assert!(world.drive.checkpoint(world.now, ring.controller).len() > 100);
    let function = world.drive.functions(world.now);
    let head = [&b"WEIRCKPT"[..], &[2, 0, 0, 0], &(function.len() as u32).to_le_bytes()].concat();
    let rest = |laps: u8| {
        let life = [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let cqs = [&[2, 0][..], &[0, 0], &[0; 8], &[1, 0, 0, 0], &[1, 0], &[laps], &[0; 7], &[3, 0, 0, 0]].concat();
        let sqs = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 4, 0, 0, 0];
        [&life[..], &cqs, &sqs, &[0, 0]].concat()
    };
    assert_eq!(world.drive.checkpoint(world.now, ring.controller), [head.clone(), function, rest(0)].concat());
    // A lap of the completion queue later.
    for lba in 0..8 {
        ring.submit(&mut world, 1, io(READ, 0, lba, 1)).unwrap();
        world.settle();
        ring.reap(&mut world, 1);
    }
    let function = world.drive.functions(world.now);
    assert_eq!(world.drive.checkpoint(world.now, ring.controller), [head, function, rest(1)].concat());
    assert_eq!(CHECKPOINT_VERSION, 2);
}

#[test]
fn what_is_no_checkpoint_is_refused_whole() {
    let mut world = drive(|_| {});
    let mut ring = host(&mut world);
    let mut format = admin(AdminOpcode::FORMAT_NVM, 1, 0, 0);
    format.nsid = 1.into();
    ring.submit(&mut world, 0, format).unwrap();
    world.run();
    let bytes = world.drive.checkpoint(world.now, ring.controller);
    let read = |bytes: &[u8], tenant| {
        let mut drive = Subsystem::new(config(|_| {}), Nanos(0)).unwrap();
        let read = drive.resume_checkpoint(Nanos(0), bytes, tenant, OWNER).map(|_| ());
        assert_eq!(drive.controllers().len(), usize::from(read.is_ok()));
        read
    };
    assert_eq!((read(&bytes, 0), read(&bytes, 1)), (Ok(()), Err(SavedError::Damaged)));
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len], 0).is_err(), "{len} bytes");
    }
    assert!(read(&[&bytes[..], &[0]].concat(), 0).is_err());
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0xff;
        refused += u32::from(read(&other, 0).is_err());
    }
    assert!(refused as usize > bytes.len() - 100, "{refused} of {}", bytes.len());
    let mut other = bytes.clone();
    other[8] = 1;
    assert_eq!(read(&other, 0), Err(SavedError::Version { found: 1, oldest: 2, newest: 2 }));
    other[0] = 0;
    assert_eq!(read(&other, 0), Err(SavedError::Foreign("the checkpoint of a controller")));
}

/// Admin commands that take more than one turn are carried out again, and complete once.
#[test]
fn an_admin_command_that_takes_long_is_carried_out_again() {
    let (mut world, mut ring) = managed();
    let mut format = admin(AdminOpcode::FORMAT_NVM, 1, 0, 0);
    format.nsid = 1.into();
    let cid = ring.submit(&mut world, 0, format).unwrap();
    let event = ring.submit(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0)).unwrap();
    world.run();
    for _ in 0..3 {
        assert!(ring.reap(&mut world, 0).is_empty(), "the media has not erased anything yet");
        world.issued.clear();
        move_on(&mut world, &mut ring);
    }
    world.settle();
    let done = ring.reap(&mut world, 0);
    assert_eq!(done.iter().map(|cqe| (cqe.cid.get(), cqe.status())).collect::<Vec<_>>(), [(cid, Status::SUCCESS)]);
    world.settle();
    // The event request waits yet, and nothing is kept any more.
    move_on(&mut world, &mut ring);
    ring.submit(&mut world, 0, admin(AdminOpcode::ABORT, 1, u32::from(event) << 16, 0)).unwrap();
    world.settle();
    let aborted = ring.reap(&mut world, 0);
    assert!(aborted.iter().any(|cqe| cqe.cid.get() == event && cqe.status() == Status::ABORT_REQUESTED));
    assert_eq!(ring.pending(0), 0);
}

/// An admin command that a rule holds is not lost with the process.
#[test]
fn an_admin_command_that_a_rule_holds_is_carried_out_again() {
    for rule in ["hang admin=get-features", "latency time=60min admin=get-features"] {
        let mut world = drive(|_| {});
        let mut ring = host(&mut world);
        let rule = FaultRule::parse(rule).unwrap();
        world.drive.add_fault(world.now, rule).unwrap();
        let cid = ring.submit(&mut world, 0, admin(AdminOpcode::GET_FEATURES, 1, 7, 0)).unwrap();
        world.run();
        assert!(ring.reap(&mut world, 0).is_empty(), "it is held");
        move_on(&mut world, &mut ring);
        world.settle();
        let done = ring.reap(&mut world, 0);
        assert_eq!(done.iter().map(|cqe| (cqe.cid.get(), cqe.status())).collect::<Vec<_>>(), [(cid, Status::SUCCESS)]);
    }
}

/// A command that is complete is not carried out again because the next one has its identifier.
#[test]
fn one_that_is_complete_is_not_carried_out_again() {
    let (mut world, mut ring) = managed();
    let mut format = admin(AdminOpcode::FORMAT_NVM, 1, 0, 0);
    format.nsid = 1.into();
    let first = ring.submit(&mut world, 0, format).unwrap();
    world.settle();
    assert_eq!(ring.reap(&mut world, 0).len(), 1);
    ring.name_next(first);
    assert_eq!(ring.submit(&mut world, 0, format).unwrap(), first);
    world.run();
    assert!(ring.reap(&mut world, 0).is_empty(), "the media has not erased anything yet");
    world.issued.clear();
    move_on(&mut world, &mut ring);
    world.settle();
    let done = ring.reap(&mut world, 0);
    assert_eq!(done.iter().map(|cqe| (cqe.cid.get(), cqe.status())).collect::<Vec<_>>(), [(first, Status::SUCCESS)]);
}

/// What waits in a ring whose door keeps a journal is not aborted, and says so.
#[test]
fn what_waits_is_not_aborted_where_a_journal_is_kept() {
    for journaled in [false, true] {
        let mut world = drive(|_| {});
        let mut ring = host(&mut world);
        if journaled {
            world.drive.keep_rings(ring.controller, LIFE);
        }
        let cid = ring.submit(&mut world, 1, io(READ, 0, 0, 1)).unwrap();
        let abort = admin(AdminOpcode::ABORT, 1, u32::from(cid) << 16 | 1, 0);
        ring.submit(&mut world, 0, abort).unwrap();
        world.settle();
        let abort = ring.reap(&mut world, 0);
        assert_eq!(abort[0].dw0.get(), u32::from(journaled), "bit 0: it was not aborted");
        let read = ring.reap(&mut world, 1);
        assert_eq!((read.len(), read[0].status().is_success()), (1, journaled));
    }
}

/// A drive that remembers, as its process leaves it when it is killed between the write of its state and that of its client's checkpoint.
fn killed_before(world: &mut TestWorld, ring: &mut TestRing, checkpoint: &[u8]) {
    killed_before_the_bell(world, ring, checkpoint);
    ring.ring(world, 0);
}

/// The same, before the successor looks at its client's doorbells.
fn killed_before_the_bell(world: &mut TestWorld, ring: &mut TestRing, checkpoint: &[u8]) {
    let blob = world.drive.save();
    let mut next = Subsystem::new(world.drive.config().clone(), world.now).unwrap();
    next.restore(&blob).unwrap();
    let controller = next.resume_checkpoint(world.now, checkpoint, 0, OWNER).unwrap();
    let (queues, entries) = (next.config().max_io_queues, next.config().max_queue_entries);
    let words = Rc::new(Plain(RefCell::new(vec![0; Journals::<Rc<Plain>>::bytes(queues, entries) as usize / 8])));
    let mut journals = Journals::open(words, queues, entries).unwrap();
    assert!(journals.follow(&next, controller));
    let place = next.ring_completions(controller, 0).unwrap();
    let heads = [(place.place % u64::from(place.size)) as u32, 0];
    let rung = |qid: u16, _| (ring.tail(qid), heads[usize::from(qid)]);
    journals.recover(&mut next, controller, rung, |_, _| panic!("nothing is complete")).unwrap();
    next.resubmit(world.now, controller, &[], &mut world.host);
    next.check();
    // It may write one before it looks at its client's doorbells.
    next.checkpointed(controller);
    (world.drive, ring.controller) = (next, controller);
    world.issued.clear();
}

const SECTION: u16 = 7;
/// Where the client has data of its admin commands.
const DATA: u64 = 0x3_0000;

/// The namespaces that its controller has attached, as Identify lists them.
fn active(world: &mut TestWorld, ring: &mut TestRing) -> Vec<u32> {
    let mut sqe = admin(AdminOpcode::IDENTIFY, 1, 2, 0);
    sqe.dptr = [DATA.into(), 0.into()];
    assert!(ring.admin(world, sqe).status().is_success());
    namespace_list(&world.host.ring(OWNER)[DATA as usize..][..4096]).collect()
}

/// The bytes of a section of a drive's state; none where it is not there.
fn section(blob: &[u8], id: u16) -> Vec<u8> {
    let mut at = 16;
    while at + 8 <= blob.len() - 4 {
        let len = u32::from_le_bytes(blob[at + 4..at + 8].try_into().unwrap()) as usize;
        if blob[at..at + 2] == id.to_le_bytes() {
            return blob[at + 8..at + 8 + len].to_vec();
        }
        at += 8 + len;
    }
    Vec::new()
}

/// An admin command that has changed what the drive remembers is not carried out again where only the checkpoint is older: it is answered as it was.
#[test]
fn one_that_the_drive_remembers_is_answered_and_not_carried_out_again() {
    let (mut world, mut ring) = managed();
    world.drive.keep_rings(ring.controller, LIFE);
    let own = world.drive.controllers()[0].id;
    let fields = created(2048);
    let list = [1u16, own].map(u16::to_le_bytes).concat();
    let with_data = |mut sqe: Sqe, nsid: u32| {
        (sqe.nsid, sqe.dptr) = (nsid.into(), [DATA.into(), 0.into()]);
        sqe
    };
    let manage = |select, nsid| with_data(admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, select, 0), nsid);
    let attach = |select, nsid| with_data(admin(AdminOpcode::NAMESPACE_ATTACHMENT, 1, select, 0), nsid);
    let format = with_data(admin(AdminOpcode::FORMAT_NVM, 1, 0, 0), 1);
    let steps: [(Sqe, &[u8]); 7] = [
        (manage(management::CREATE, 0), fields.as_bytes()),
        (attach(attachment::ATTACH, 2), &list),
        (format, &[]),
        (attach(attachment::DETACH, 2), &list),
        (manage(management::CREATE, 0), fields.as_bytes()),
        (manage(management::DELETE, 2), &[]),
        // Refused: that changes nothing, and is refused again.
        (manage(management::DELETE, 2), &[]),
    ];
    for (at, (sqe, data)) in steps.into_iter().enumerate() {
        world.host.ring(OWNER)[DATA as usize..][..data.len()].copy_from_slice(data);
        ring.put(&mut world, 0, sqe).unwrap();
        let checkpoint = world.drive.checkpoint(world.now, ring.controller);
        let (memory, client) = (world.host.clone(), ring.clone());
        ring.ring(&mut world, 0);
        world.settle();
        let first = ring.reap(&mut world, 0);
        let layout = section(&world.drive.save(), 16);
        assert_eq!(section(&world.drive.save(), SECTION).len(), if at == 6 { 0 } else { 90 }, "step {at}");
        let seen = active(&mut world, &mut ring);
        // Killed: what the client saw was never written.
        (world.host, ring) = (memory, client);
        for _ in 0..2 {
            killed_before(&mut world, &mut ring, &checkpoint);
        }
        world.run();
        assert!(world.issued.is_empty(), "step {at}: nothing is erased again");
        let again = ring.reap(&mut world, 0);
        assert_eq!(again, first, "step {at}");
        assert_eq!(section(&world.drive.save(), 16), layout, "step {at}: the namespaces are the same");
        assert_eq!(active(&mut world, &mut ring), seen, "step {at}");
        world.drive.checkpointed(ring.controller);
        assert_eq!(section(&world.drive.save(), SECTION), [], "step {at}");
    }
}

#[test]
fn golden_bytes_of_commands_that_were_executed() {
    let (mut world, mut ring) = managed();
    world.drive.keep_rings(ring.controller, LIFE);
    let mut sqe = admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::DELETE, 0);
    sqe.nsid = 3.into();
    ring.name_next(5);
    ring.submit(&mut world, 0, sqe).unwrap();
    world.settle();
    let entry = [&[0x0d, 0, 5, 0, 3, 0, 0, 0][..], &[0; 32], &[1], &[0; 23]].concat();
    let number = [1, 0, 0, 0, 0, 0, 0, 0];
    let golden = [&[8, 7, 6, 5, 4, 3, 2, 1][..], &number, &entry, &[0, 0], &[0; 8]].concat();
    assert_eq!(section(&world.drive.save(), SECTION), golden);
    // A client that has gone leaves nothing.
    world.drive.detach(world.now, ring.controller);
    world.settle();
    assert_eq!(section(&world.drive.save(), SECTION), []);
}

fn created(blocks: u64) -> HostSoftwareFields {
    HostSoftwareFields { nsze: blocks.into(), ncap: blocks.into(), ..HostSoftwareFields::default() }
}

fn create(world: &mut TestWorld, blocks: u64) -> Sqe {
    let fields = created(blocks);
    world.host.ring(OWNER)[DATA as usize..][..4096].copy_from_slice(fields.as_bytes());
    let mut sqe = admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1, management::CREATE, 0);
    sqe.dptr = [DATA.into(), 0.into()];
    sqe
}

/// What looks the same after a reset is another command.
#[test]
fn after_a_reset_nothing_counts_as_executed() {
    let (mut world, mut ring) = managed();
    world.drive.keep_rings(ring.controller, LIFE);
    let sqe = create(&mut world, 2048);
    let cid = ring.put(&mut world, 0, sqe).unwrap();
    let checkpoint = world.drive.checkpoint(world.now, ring.controller);
    let (memory, client) = (world.host.clone(), ring.clone());
    ring.ring(&mut world, 0);
    world.settle();
    assert_eq!(ring.reap(&mut world, 0).len(), 1);
    (world.host, ring) = (memory, client);
    killed_before_the_bell(&mut world, &mut ring, &checkpoint);
    ring.write(&mut world, register::CC, 0);
    ring.enable(&mut world, 16, 16, ams::RR);
    let sqe = create(&mut world, 4096);
    ring.name_next(cid);
    assert_eq!(ring.submit(&mut world, 0, sqe), Some(cid));
    world.settle();
    let done = ring.reap(&mut world, 0);
    assert_eq!((done.len(), done[0].status(), done[0].dw0.get()), (1, Status::SUCCESS, 4), "the one before is 2");
}

/// A command that is kept may be done after the reset of its controller: it is not carried out again all the same.
#[test]
fn one_whose_answer_nobody_waits_for_counts_as_well() {
    let (mut world, mut ring) = managed();
    world.drive.keep_rings(ring.controller, LIFE);
    let sqe = create(&mut world, 2048);
    ring.submit(&mut world, 0, sqe).unwrap();
    world.run();
    assert!(ring.reap(&mut world, 0).is_empty(), "it is kept");
    let checkpoint = world.drive.checkpoint(world.now, ring.controller);
    let (memory, client) = (world.host.clone(), ring.clone());
    ring.write(&mut world, register::CC, 0);
    world.settle();
    let layout = section(&world.drive.save(), 16);
    (world.host, ring) = (memory, client);
    killed_before(&mut world, &mut ring, &checkpoint);
    world.settle();
    let done = ring.reap(&mut world, 0);
    assert_eq!((done.len(), done[0].status(), done[0].dw0.get()), (1, Status::SUCCESS, 2));
    assert_eq!(section(&world.drive.save(), 16), layout, "there is one");
}

/// A private namespace that has gone from one host to another does not come back.
#[test]
fn a_private_namespace_is_its_last_hosts() {
    let (mut world, mut ring) = managed();
    let sqe = create(&mut world, 2048);
    ring.submit(&mut world, 0, sqe).unwrap();
    world.settle();
    assert_eq!(ring.reap(&mut world, 0)[0].dw0.get(), 2);
    let attach = |world: &mut TestWorld, ring: &mut TestRing, owner: Owner, id: u16| {
        let list = [1u16, id].map(u16::to_le_bytes).concat();
        world.host.ring(owner)[DATA as usize..][..4].copy_from_slice(&list);
        let mut sqe = admin(AdminOpcode::NAMESPACE_ATTACHMENT, 1, attachment::ATTACH, 0);
        (sqe.nsid, sqe.dptr) = (2.into(), [DATA.into(), 0.into()]);
        ring.admin(world, sqe).status()
    };
    let own = world.drive.controllers()[0].id;
    assert_eq!(attach(&mut world, &mut ring, OWNER, own), Status::SUCCESS);
    world.drive.detach(world.now, ring.controller);
    world.settle();
    // Another host has it now.
    let other = Attach { tenant: 0, owner: Owner(6), model: TransportModel::Rings, host: "other".into() };
    let controller = world.drive.attach(world.now, other).unwrap();
    let mut second = ring.clone();
    (second.controller, second.owner) = (controller, Owner(6));
    second.enable(&mut world, 16, 16, ams::RR);
    let id = world.drive.controllers()[0].id;
    assert_eq!(attach(&mut world, &mut second, Owner(6), id), Status::SUCCESS);
    // The first one comes again, and both are resumed.
    let mut first = TestRing::ready(&mut world, 0, OWNER, ams::RR);
    assert!(!active(&mut world, &mut first).contains(&2));
    let functions = world.drive.functions(world.now);
    let mut next = Subsystem::new(world.drive.config().clone(), world.now).unwrap();
    next.restore(&world.drive.save()).unwrap();
    assert_eq!(next.resume_functions(world.now, &functions).unwrap(), 0);
    next.check();
    let (a, b) = (next.claim_function("rings", 0, OWNER), next.claim_function("other", 0, Owner(6)));
    (world.drive, first.controller, second.controller) = (next, a.unwrap(), b.unwrap());
    world.run();
    assert!(!active(&mut world, &mut first).contains(&2));
}
