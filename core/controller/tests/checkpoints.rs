//! What is written of a ring controller at work: its bytes, and that bytes which are none are refused whole. What a crash leaves is
//! `killed.rs`.

mod common;

use common::{config, drive};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_controller::model::{Ring, World, admin, io};
use weir_controller::{
    CHECKPOINT_VERSION, ControllerHandle, Event, Journals, Management, Owner, RestoreError, Subsystem,
};
use weir_journal::Words;
use weir_spec::nvme::register::ams;
use weir_spec::nvme::{AdminOpcode, Status};
use weir_units::Nanos;

const OWNER: Owner = Owner(5);
const READ: u8 = 2;

#[derive(Debug)]
struct Plain(RefCell<Vec<u64>>);

impl Words for Plain {
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

fn host(world: &mut World) -> Ring {
    let mut ring = Ring::ready(world, 0, OWNER, ams::RR);
    ring.add_queue(world, 1, 8, 0);
    ring
}

/// Another drive has what was written of it, and nothing of its I/O queues was ever in flight.
fn move_on(world: &mut World, ring: &mut Ring) {
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
    assert!(world.drive.checkpoint(world.now, ring.controller).len() > 100);
    let function = world.drive.functions(world.now);
    let head = [&b"WEIRCKPT"[..], &[1, 0, 0, 0], &(function.len() as u32).to_le_bytes()].concat();
    let rest = |laps: u8| {
        let cqs = [&[2, 0][..], &[0, 0], &[0; 8], &[1, 0, 0, 0], &[1, 0], &[laps], &[0; 7], &[3, 0, 0, 0]].concat();
        let sqs = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 4, 0, 0, 0];
        [&cqs[..], &sqs, &[0, 0]].concat()
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
    assert_eq!(CHECKPOINT_VERSION, 1);
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
    assert_eq!((read(&bytes, 0), read(&bytes, 1)), (Ok(()), Err(RestoreError::Damaged)));
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
    other[8] = 2;
    assert_eq!(read(&other, 0), Err(RestoreError::Version(2)));
    other[0] = 0;
    assert_eq!(read(&other, 0), Err(RestoreError::Foreign));
}

/// Admin commands that take more than one turn are carried out again, and complete once.
#[test]
fn an_admin_command_that_takes_long_is_carried_out_again() {
    let management = Management { capacity: 4 << 30, least_block: 512, metadata: false };
    let mut world = drive(|c| c.management = Some(management));
    let mut ring = host(&mut world);
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

/// A command that is complete is not carried out again because the next one has its identifier.
#[test]
fn one_that_is_complete_is_not_carried_out_again() {
    let management = Management { capacity: 4 << 30, least_block: 512, metadata: false };
    let mut world = drive(|c| c.management = Some(management));
    let mut ring = host(&mut world);
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
        world.drive.keep_rings(ring.controller, journaled);
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
