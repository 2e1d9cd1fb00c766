//! Shadow doorbells: no order of the two sides' steps loses a doorbell.

mod common;

use common::sparse::{Machine, cq_base};
use common::{config, set_feature};
use weir_controller::testing::io;
use weir_controller::{Event, ShadowPages};
use weir_spec::nvme::register::{self, Doorbell, doorbell_offset};
use weir_spec::nvme::{AdminOpcode, IoOpcode, Status};

const SHADOW: u64 = 0x10_0000;
const EVENTS: u64 = 0x10_1000;

/// What a host does, a step at a time: each entry is a value that it stores into a shadow doorbell once so many completions
/// were written; then it loads the event index and rings if it must.
#[derive(Clone, Debug)]
struct Script {
    stores: Vec<(usize, u32, u32)>,
    next: usize,
    /// The store that is made and not looked after: index, old and new value.
    after: Option<(usize, u32, u32)>,
}

/// The two pages, and the host that works on them between any two accesses of the controller.
#[derive(Clone)]
struct Pages {
    shadow: [u32; 4],
    event: [u32; 4],
    /// What the controller stored and nobody sees yet, as a processor's store buffer has it.
    buffered: Vec<(usize, u32)>,
    fences: bool,
    host: Script,
    completed: usize,
    rung: bool,
    choices: Vec<bool>,
    at: usize,
}

impl Pages {
    fn can_step(&self) -> bool {
        let ready = |(_, _, after): &(usize, u32, u32)| self.completed >= *after as usize;
        self.host.after.is_some()
            || self.host.stores.get(self.host.next).is_some_and(|(i, v, after)| ready(&(*i, *v, *after)))
    }

    fn step(&mut self) {
        match self.host.after.take() {
            None => {
                let (index, value, _) = self.host.stores[self.host.next];
                self.host.next += 1;
                let old = std::mem::replace(&mut self.shadow[index], value);
                self.host.after = Some((index, old, value));
            }
            Some((index, old, new)) => {
                // As Linux and the standard have it, in 16 bits.
                let (old, new, event) = (old as u16, new as u16, self.event[index] as u16);
                self.rung |= new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
            }
        }
    }

    /// The host may do any number of steps here.
    fn point(&mut self) {
        while self.can_step() {
            if self.at == self.choices.len() {
                self.choices.push(false);
            }
            self.at += 1;
            if !self.choices[self.at - 1] {
                return;
            }
            self.step();
        }
    }

    fn drain(&mut self) {
        for (index, value) in self.buffered.drain(..) {
            self.event[index] = value;
        }
    }
}

impl ShadowPages for Pages {
    fn load(&mut self, index: u32) -> Result<u32, Status> {
        // What the host never writes may as well be loaded at any other time.
        if self.host.stores.iter().any(|(i, ..)| *i == index as usize) {
            self.point();
        }
        Ok(self.shadow[index as usize])
    }
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status> {
        self.buffered.push((index as usize, value));
        Ok(())
    }
    fn fence(&mut self) {
        if self.fences {
            self.drain();
        }
        self.point();
    }
}

/// One run; whether everything that was submitted was completed.
fn run(machine: &mut Machine, pages: &mut Pages, commands: usize) -> bool {
    let before = machine.host.posted.len();
    loop {
        // Awake: poll, serve, and when nothing comes any more, try to sleep.
        loop {
            let rang = machine.drive.poll_shadow(machine.controller, pages);
            machine.settle();
            pages.completed = machine.host.posted.len() - before;
            if !rang && machine.drive.arm_shadow(machine.controller, pages) {
                break;
            }
            machine.settle();
            pages.completed = machine.host.posted.len() - before;
        }
        // What no fence has made visible becomes so in the end.
        pages.point();
        pages.drain();
        // Asleep: the host goes on until it rings.
        while !std::mem::take(&mut pages.rung) {
            if !pages.can_step() {
                return pages.completed == commands;
            }
            pages.step();
        }
    }
}

/// Every order of the steps of both; how many there were, and how many lost something.
fn explore(machine: &Machine, pages: &Pages, commands: usize) -> (u64, u64) {
    let (mut runs, mut lost, mut choices) = (0, 0, Vec::new());
    loop {
        let (mut machine, mut pages) = (machine.clone(), Pages { choices, at: 0, ..pages.clone() });
        lost += u64::from(!run(&mut machine, &mut pages, commands));
        runs += 1;
        choices = pages.choices;
        choices.truncate(pages.at);
        while choices.last() == Some(&true) {
            choices.pop();
        }
        match choices.last_mut() {
            Some(last) => *last = true,
            None => return (runs, lost),
        }
    }
}

/// A machine with one queue pair of these sizes, shadow doorbells, and `advance` commands served by them.
fn machine(sq: u32, cq: u32, advance: u32) -> (Machine, Pages) {
    let mut machine = Machine::new(config(|c| (c.slots, c.max_io_queues) = (2, 2)));
    assert!(machine.command(AdminOpcode::DOORBELL_BUFFER_CONFIG, [SHADOW, EVENTS], 0, 0).status().is_success());
    machine.pair(1, sq, cq, None);
    for index in 0..sq {
        machine.put(1, index, io(IoOpcode::READ.0, index as u16, 0, 1));
        // As put by a ring host: no SGL.
        machine.host.write(common::sparse::sq_base(1) + u64::from(index) * 64 + 1, &[0]);
    }
    let mut pages = Pages {
        shadow: [0; 4],
        event: [0; 4],
        buffered: Vec::new(),
        fences: true,
        host: Script { stores: Vec::new(), next: 0, after: None },
        completed: 0,
        rung: false,
        choices: Vec::new(),
        at: 0,
    };
    for n in 1..=advance {
        (pages.shadow[2], pages.shadow[3]) = (n % sq, (n - 1) % cq);
        machine.drive.poll_shadow(machine.controller, &mut pages);
        machine.settle();
        pages.shadow[3] = n % cq;
        machine.drive.poll_shadow(machine.controller, &mut pages);
    }
    assert_eq!(machine.host.posted.iter().filter(|(at, _)| *at >= cq_base(1)).count() as u32, advance);
    (machine, pages)
}

#[test]
fn no_order_of_steps_loses_a_tail() {
    let mut total = 0;
    for (sq, commands, advance) in [(4, 2, 0), (4, 2, 2), (4, 2, 3), (2, 2, 0), (2, 2, 1), (8, 3, 6)] {
        let (machine, mut pages) = machine(sq, 16, advance);
        // Each command after the completion that makes room for it.
        let room = sq as usize - 1;
        pages.host.stores = (0..commands)
            .map(|n| (2, (advance + n as u32 + 1) % sq, (n + 1usize).saturating_sub(room) as u32))
            .collect();
        let (runs, lost) = explore(&machine, &pages, commands);
        assert_eq!(lost, 0, "queue of {sq} from {advance}: {lost} of {runs}");
        total += runs;
    }
    assert!(total > 1000, "{total} orders");
}

#[test]
fn a_full_completion_queue_hears_of_its_first_free_entry() {
    // One entry of room, three commands: each completion waits for the head of the one before.
    for (cq, advance) in [(2, 0), (2, 1), (3, 0), (3, 2)] {
        let (machine, mut pages) = machine(8, cq, advance);
        let room = cq - 1;
        let tail = (2, (advance + 3) % 8, 0);
        // The host consumes one at a time as soon as it is there, and nothing else ever wakes the controller.
        let heads = (0..3 - room).map(|n| (3, (advance + n + 1) % cq, n + 1));
        pages.host.stores = std::iter::once(tail).chain(heads).collect();
        let (runs, lost) = explore(&machine, &pages, 3);
        assert_eq!(lost, 0, "completion queue of {cq} from {advance}: {lost} of {runs}");
    }
}

#[test]
fn without_the_fence_a_doorbell_is_lost_and_the_search_finds_it() {
    let (machine, mut pages) = machine(4, 16, 0);
    pages.host.stores = vec![(2, 1, 0), (2, 2, 0)];
    pages.fences = false;
    assert!(explore(&machine, &pages, 2).1 > 0);
}

#[test]
fn the_pages_are_made_good_and_end_with_a_reset() {
    let mut machine = Machine::new(config(|c| c.max_io_queues = 4));
    machine.pair(1, 8, 8, None);
    for n in 0..3 {
        machine.put(1, n, io(0, n as u16, 0, 1));
    }
    machine.tail(1, 3);
    machine.settle();
    machine.head(1, 2);
    let garbage = [0xa5; 8192];
    machine.host.write(SHADOW, &garbage);
    // Pages have to be pages, and two.
    for bad in [[SHADOW + 4, EVENTS], [SHADOW, EVENTS + 2048], [SHADOW, SHADOW]] {
        let status = machine.command(AdminOpcode::DOORBELL_BUFFER_CONFIG, bad, 0, 0).status();
        assert_eq!(status, Status::INVALID_FIELD.dnr());
    }
    assert_eq!(machine.drive.shadow(machine.controller), None);
    assert!(machine.command(AdminOpcode::DOORBELL_BUFFER_CONFIG, [SHADOW, EVENTS], 0, 0).status().is_success());
    let shadow = machine.drive.shadow(machine.controller).unwrap();
    assert_eq!((shadow.doorbells, shadow.event_indexes, shadow.queues), (SHADOW, EVENTS, 5));
    // Where the doorbells stand is in both pages, and nothing else was touched.
    for page in [SHADOW, EVENTS] {
        assert_eq!((machine.host.dword(page + 8), machine.host.dword(page + 12)), (3, 2));
        assert_eq!(machine.host.dword(page + 16), 0xa5a5_a5a5);
    }
    // A new queue begins at 0 whatever lies there.
    machine.pair(2, 8, 8, None);
    for page in [SHADOW, EVENTS] {
        assert_eq!((machine.host.dword(page + 16), machine.host.dword(page + 20)), (0, 0));
    }
    // The register is a kick; the value is the page's.
    let mut pages = InMemory(machine.host.clone());
    machine.put(1, 3, io(0, 9, 0, 1));
    machine.tail(1, 7);
    machine.settle();
    let done = machine.host.posted.len();
    pages.0.write(SHADOW + 8, &4u32.to_le_bytes());
    assert!(machine.drive.poll_shadow(machine.controller, &mut pages));
    machine.settle();
    assert_eq!(machine.host.posted.len(), done + 1, "one command, as the page says");
    // A value that cannot be is reported once, however often it is seen.
    let errors = |machine: &Machine| machine.drive.error_log(machine.controller).len();
    let before = errors(&machine);
    pages.0.write(SHADOW + 8, &8u32.to_le_bytes());
    for _ in 0..3 {
        machine.drive.poll_shadow(machine.controller, &mut pages);
    }
    assert_eq!(errors(&machine), before + 1);
    // A controller reset ends it, before any queue is made.
    machine.set(register::CC, 0);
    assert_eq!(machine.drive.shadow(machine.controller), None);
    machine.enable();
    machine.host.write(SHADOW, &garbage);
    machine.pair(1, 8, 8, None);
    assert_eq!(machine.host.dword(SHADOW + 8), 0xa5a5_a5a5, "the page is the host's own again");
    assert!(!machine.drive.poll_shadow(machine.controller, &mut pages));
    machine.put(1, 0, io(0, 9, 0, 1));
    let done = machine.host.posted.len();
    machine.tail(1, 1);
    machine.settle();
    assert_eq!(machine.host.posted.len(), done + 1, "the register counts again");
}

#[test]
fn pages_that_are_gone_are_fatal_and_others_do_not_have_the_command() {
    let (mut machine, _) = machine(4, 4, 0);
    struct Gone;
    impl ShadowPages for Gone {
        fn load(&mut self, _: u32) -> Result<u32, Status> {
            Err(Status::DATA_TRANSFER_ERROR)
        }
        fn store(&mut self, _: u32, _: u32) -> Result<(), Status> {
            Err(Status::DATA_TRANSFER_ERROR)
        }
        fn fence(&mut self) {}
    }
    machine.drive.poll_shadow(machine.controller, &mut Gone);
    assert_eq!(machine.get(register::CSTS) & 2, 2);
    machine.event(Event::Run);
    machine.drive.check();
    let mut world = common::drive(|_| {});
    let mut fabric = common::fabric_with_queues(&mut world, "nqn.gold", 100, 0);
    let sqe = weir_spec::nvme::Sqe { opcode: AdminOpcode::DOORBELL_BUFFER_CONFIG.0, ..set_feature(0, 0) };
    assert_eq!(fabric.admin(&mut world, sqe).status(), Status::INVALID_OPCODE.dnr());
}

/// The pages in a copy of the host's memory.
struct InMemory(common::sparse::Sparse);

impl ShadowPages for InMemory {
    fn load(&mut self, index: u32) -> Result<u32, Status> {
        Ok(self.0.dword(SHADOW + u64::from(index) * 4))
    }
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status> {
        self.0.write(EVENTS + u64::from(index) * 4, &value.to_le_bytes());
        Ok(())
    }
    fn fence(&mut self) {}
}

#[test]
fn event_indexes_follow_only_when_the_door_sleeps() {
    let (mut machine, _) = machine(8, 8, 0);
    let mut pages = InMemory(machine.host.clone());
    assert_eq!(doorbell_offset(Doorbell::SqTail(1)), register::DOORBELLS + 8);
    pages.0.write(SHADOW + 8, &5u32.to_le_bytes());
    machine.drive.poll_shadow(machine.controller, &mut pages);
    machine.settle();
    assert_eq!(pages.0.dword(EVENTS + 8), 0, "while it polls nobody needs to ring");
    assert!(machine.drive.arm_shadow(machine.controller, &mut pages));
    assert_eq!(pages.0.dword(EVENTS + 8), 5);
    assert_eq!(pages.0.dword(EVENTS + 12), 4, "a completion queue's lags its tail by one");
    // What comes between is seen: the door does not sleep.
    pages.0.write(SHADOW + 8, &6u32.to_le_bytes());
    assert!(!machine.drive.arm_shadow(machine.controller, &mut pages));
}
