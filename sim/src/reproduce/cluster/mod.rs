//! Jobs that stream over the drives of many machines, in virtual time.
//!
//! ```text
//!   Job ── phases ──▶ Task: work after work (read, compute, write)  ──▶ Cluster: drives (Flash), memory, a link a machine
//!                      └ reads go ahead, writes come behind, at most STREAMS of each; a core is the task's own
//! ```
//! Bytes lie in blocks, and a block goes to the first class that has room ([`Space`]): memory as long as there is any, then the
//! drives in turn.

mod space;
mod task;
#[cfg(test)]
mod tests;

pub(super) use space::{BLOCK, Block, PIECE, Place, Space, pieces};
pub(super) use task::{STREAMS, Task, Work, part};

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use task::Done;
use weir_flash::{Flash, FlashDriveConfig, FlashOp, Precondition, When};
use weir_units::Nanos;

/// Bytes of a unit of a drive's addresses.
const UNIT: u64 = 4096;

/// The machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machines {
    /// How many.
    pub count: usize,
    /// Drives of each.
    pub drives: usize,
    /// Bytes a second of each machine's link, over which whatever it stores is read and written.
    pub link: u64,
    /// From a request to its answer, without drive and link.
    pub round_trip: Nanos,
}

/// Machines with drives and memory.
pub(super) struct Cluster {
    machines: Machines,
    drives: Vec<Flash>,
    /// When each link is free again.
    free: Vec<Nanos>,
    now: Nanos,
}

/// What a phase of a job took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// From its start until its last task's end.
    pub elapsed: Nanos,
    /// In which its tasks computed, all together.
    pub computing: Nanos,
    /// In which its tasks had nothing to compute with, all together.
    pub waiting: Nanos,
}

/// What a request was of: a task, one of its works, and whether it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    task: u32,
    work: u32,
    is_write: bool,
}

impl Request {
    /// As a drive is told it: 31 bits of a task, 32 of a work.
    fn tag(self) -> u64 {
        u64::from(self.task) << 33 | u64::from(self.work) << 1 | u64::from(self.is_write)
    }

    fn of_tag(tag: u64) -> Self {
        Self { task: (tag >> 33) as u32, work: (tag >> 1) as u32, is_write: tag & 1 == 1 }
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answered(Request),
    Computed(u32),
}

impl Cluster {
    /// Machines whose drives are all of this kind, and in this state.
    pub(super) fn new(machines: Machines, drive: &FlashDriveConfig, state: Precondition) -> Self {
        let make = |seed: usize| {
            let config = FlashDriveConfig { seed: drive.seed + seed as u64, ..*drive };
            let mut flash = Flash::new(&config, Nanos(0)).expect("a drive of a profile fits together");
            flash.precondition(state);
            flash
        };
        let drives = (0..machines.count * machines.drives).map(make).collect();
        Self { machines, drives, free: vec![Nanos(0); machines.count], now: Nanos(0) }
    }

    /// Bytes of a drive.
    pub(super) fn drive_bytes(&self) -> u64 {
        self.drives.first().map_or(0, |drive| u64::from(drive.units()) * UNIT)
    }

    /// Does all the work of tasks that begin together, beside others that go on as long as these do: what all of those are done with
    /// counts.
    pub(super) fn run(&mut self, mut tasks: Vec<Task>, beside: Vec<Task>) -> Spent {
        let start = self.now;
        let counted = tasks.len();
        tasks.extend(beside);
        let mut events: BinaryHeap<Reverse<(Nanos, Event)>> = BinaryHeap::new();
        let mut next: Vec<Option<Nanos>> = self.drives.iter().map(Flash::next_event).collect();
        let mut end = None;
        // Of those that count, and of the others.
        let mut left = [counted, tasks.len() - counted];
        for number in 0..tasks.len() as u32 {
            self.go_on(&mut tasks, number, &mut events, &mut next);
            left[usize::from(number as usize >= counted)] -= usize::from(tasks[number as usize].is_over());
        }
        // What drives do by themselves goes on for ever; the job ends with its last task.
        while left != [0, 0] {
            if left[0] == 0 && end.is_none() {
                end = Some(self.now);
                for task in &mut tasks[counted..] {
                    let was_over = task.is_over();
                    task.stop();
                    left[1] -= usize::from(!was_over && task.is_over());
                }
                continue;
            }
            let first = events.peek().map(|Reverse((at, _))| *at);
            let drive = next.iter().enumerate().filter_map(|(drive, at)| Some(((*at)?, drive))).min();
            match (first, drive) {
                (None, None) => break,
                (at, Some((event, drive))) if at.is_none_or(|at| event < at) => {
                    self.drives[drive].advance(event);
                    self.hear(drive, &mut events, &mut next);
                }
                _ => {
                    let Some(Reverse((at, event))) = events.pop() else { break };
                    self.now = self.now.max(at);
                    let task = match event {
                        Event::Answered(request) => {
                            let done = Done::Answered { work: request.work, is_write: request.is_write };
                            tasks[request.task as usize].apply(at, done);
                            request.task
                        }
                        Event::Computed(task) => {
                            tasks[task as usize].apply(at, Done::Computed);
                            task
                        }
                    };
                    self.go_on(&mut tasks, task, &mut events, &mut next);
                    left[usize::from(task as usize >= counted)] -= usize::from(tasks[task as usize].is_over());
                }
            }
        }
        tasks.truncate(counted);
        let computing = tasks.iter().map(|task| task.computed().0).sum();
        let ends = tasks.iter().map(|task| task.ended().saturating_sub(start).0);
        let elapsed = end.unwrap_or(self.now).saturating_sub(start);
        Spent { elapsed, computing: Nanos(computing), waiting: Nanos(ends.sum::<u64>().saturating_sub(computing)) }
    }

    /// Lets a task ask for what it can ask for now.
    fn go_on(
        &mut self,
        tasks: &mut [Task],
        number: u32,
        events: &mut BinaryHeap<Reverse<(Nanos, Event)>>,
        next: &mut [Option<Nanos>],
    ) {
        let now = self.now;
        while let Some(action) = tasks[number as usize].next_action() {
            let (place, request) = match action {
                task::Action::Compute(time) => {
                    events.push(Reverse((now.saturating_add(time), Event::Computed(number))));
                    continue;
                }
                task::Action::Read { work, place } => (place, Request { task: number, work, is_write: false }),
                task::Action::Write { work, place } => (place, Request { task: number, work, is_write: true }),
            };
            match place {
                Place::Memory { machine } => {
                    let at = self.over_link(machine, now);
                    events.push(Reverse((at, Event::Answered(request))));
                }
                Place::Drive { drive, unit } => {
                    let op = if request.is_write { FlashOp::Write { fua: false } } else { FlashOp::Read };
                    let flash = &mut self.drives[drive];
                    let end = flash.begin(now, When::at(now), op, unit, (PIECE / UNIT) as u32, 0);
                    flash.tell(end, request.tag());
                    self.hear(drive, events, next);
                }
            }
        }
    }

    /// What a drive says is complete goes over its machine's link.
    fn hear(&mut self, drive: usize, events: &mut BinaryHeap<Reverse<(Nanos, Event)>>, next: &mut [Option<Nanos>]) {
        while let Some((tag, at)) = self.drives[drive].told() {
            let at = self.over_link(drive / self.machines.drives, at);
            events.push(Reverse((at, Event::Answered(Request::of_tag(tag)))));
        }
        next[drive] = self.drives[drive].next_event();
    }

    /// When a piece that has come to the link at that time is where it was asked for.
    fn over_link(&mut self, machine: usize, at: Nanos) -> Nanos {
        let time = Nanos((u128::from(PIECE) * 1_000_000_000 / u128::from(self.machines.link)) as u64);
        self.free[machine] = self.free[machine].max(at).saturating_add(time);
        self.free[machine].saturating_add(self.machines.round_trip)
    }
}
