//! What the journal costs a request: the door's device, its rings and its journal, with a front end's rings on the other side, in one
//! thread; with and without an in-flight region, in turn.

use crate::figure::{Report, Series, Target};
use crate::rig::Rig as NvmeRig;
use crate::{BenchError, Setup, failed};
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use weir_arbiter::Mechanism;
use weir_driver::vhost_user::{
    Attach, FrontEndOptions, FrontQueue, Hello, Outgoing, QueueLayout, ask_inflight, inflight, setup,
};
use weir_driver::{Done, Io, IoKind};
use weir_session::vhost_user::{Action, Disk, DriveCommand, GuestRegion, Map, Message, VhostUserDevice};
use weir_spec::vhost_user::{Header, Request};
use weir_spec::virtio_blk::RequestStatus;
use weir_sys::memory::{GuestMemory, HUGE, memory_file};
use weir_sys::transport::fds;
use zerocopy::FromBytes;

/// Requests of one measurement; some tenths of a second.
const REQUESTS: u32 = 3_000_000;
/// Measurements of each kind in a round, in turn.
const TURNS: u32 = 20;
const DEPTH: u32 = 32;
const BASE: u64 = 1 << 32;

/// Front end and device in one process.
struct Rig {
    device: VhostUserDevice<GuestMemory>,
    /// The device's view of the memory, and the front end's.
    theirs: GuestMemory,
    ours: GuestMemory,
    front: FrontQueue<GuestMemory>,
    /// Completed in any order.
    shuffled: bool,
    random: u64,
}

/// An answer's bytes, and the descriptor with it.
type Answer = (Vec<u8>, Option<OwnedFd>);

/// Hands a message over; what the device answers.
fn tell(
    device: &mut VhostUserDevice<GuestMemory>,
    memory: &mut GuestMemory,
    message: &Outgoing,
    fds: Vec<OwnedFd>,
) -> Result<Option<Answer>, BenchError> {
    let (header, payload) = Header::read_from_prefix(&message.bytes).map_err(|_| failed("message", "too short"))?;
    let (request, needs_reply) = (Request(header.request.get()), header.needs_reply());
    let mut actions = Vec::new();
    let message = Message { request, needs_reply, again: false, payload: payload.to_vec(), fds };
    device.message(message, memory, &mut actions);
    let mut answer = None;
    for action in actions {
        match action {
            Action::Reply(bytes) => answer = Some((bytes, None)),
            Action::ReplyWith(bytes, fd) => answer = Some((bytes, Some(fd))),
            Action::Close(why) => return Err(failed("the device", why)),
            _ => {}
        }
    }
    Ok(answer)
}

impl Rig {
    fn new(packed: bool, indirect: bool, shuffled: bool, journal: bool) -> Result<Self, BenchError> {
        let mut device = VhostUserDevice::new(Disk::new(1 << 30, "bench"));
        let mut theirs = GuestMemory::new();
        let mut hello =
            Hello::new(FrontEndOptions { packed, indirect, inflight: journal, ..FrontEndOptions::default() });
        while let Some(message) = hello.next_message() {
            if let Some((bytes, _)) = tell(&mut device, &mut theirs, &message, vec![])? {
                let (header, payload) = Header::read_from_prefix(&bytes).map_err(|_| failed("answer", "too short"))?;
                hello.reply(&header, payload)?;
            }
        }
        let negotiated = *hello.negotiated().ok_or_else(|| failed("the device", "nothing was agreed on"))?;
        let layout = QueueLayout::new(DEPTH, 4096, &negotiated);
        let len = (layout.bytes() as usize).next_multiple_of(HUGE);
        let file = memory_file("weir-bench", len)?;
        let mut ours = GuestMemory::new();
        ours.add(GuestRegion { guest: BASE, len: len as u64, user: BASE, offset: 0 }, file.try_clone()?)?;
        ours.populate();
        let front = FrontQueue::new(&ours, layout, BASE)?;
        let mut region = None;
        if journal {
            let answer = tell(&mut device, &mut theirs, &ask_inflight(&layout, 1), vec![])?;
            let Some((bytes, Some(fd))) = answer else { return Err(failed("the device", "no in-flight region")) };
            let (header, payload) = Header::read_from_prefix(&bytes).map_err(|_| failed("answer", "too short"))?;
            region = Some((inflight(&header, payload)?, fd));
        }
        let event = fds::eventfd()?;
        for message in setup(&negotiated, &layout, 1, (BASE, len as u64, len as u64), region.as_ref().map(|r| &r.0)) {
            let fd = match message.attach {
                Attach::None => None,
                Attach::Memory => Some(file.as_fd()),
                Attach::Inflight => region.as_ref().map(|r| r.1.as_fd()),
                Attach::Kick(_) | Attach::Call(_) => Some(event.as_fd()),
            };
            let fds = fd.map(|fd| fd.try_clone_to_owned()).transpose()?.into_iter().collect();
            tell(&mut device, &mut theirs, &message, fds)?;
        }
        device.quiet(&theirs, 0);
        Ok(Self { device, theirs, ours, front, shuffled, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Nanoseconds a request, [`DEPTH`] in flight, done in the order in which they were taken or in any, and no bytes moved.
    fn measure(&mut self, requests: u32) -> Result<f64, BenchError> {
        let mut taken: Vec<DriveCommand> = Vec::with_capacity(DEPTH as usize);
        let mut done: Vec<Done> = Vec::with_capacity(DEPTH as usize);
        let mut free: Vec<u32> = (0..DEPTH).rev().collect();
        let begun = cpu_time();
        let mut count = 0;
        while count < requests {
            while let Some(slot) = free.pop() {
                let offset = u64::from(count.wrapping_add(slot) % 0x8000) * 4096;
                self.front.submit(&self.ours, &Io { slot, kind: IoKind::Write, offset, len: 4096 })?;
            }
            self.front.publish(&self.ours)?;
            self.device.take(&self.theirs, 0, DEPTH as usize, &mut |t| taken.push(t))?;
            if self.shuffled {
                self.shuffle(&mut taken);
            }
            for t in taken.drain(..) {
                self.device.complete(&self.theirs, t.tag, RequestStatus::OK);
            }
            self.device.publish(&self.theirs, 0);
            black_box(self.device.wants_signal(&self.theirs, 0));
            self.front.reap(&self.ours, &mut done)?;
            count += done.len() as u32;
            free.extend(done.drain(..).map(|d| d.slot));
        }
        Ok((cpu_time() - begun) / f64::from(count))
    }

    fn shuffle(&mut self, taken: &mut [DriveCommand]) {
        for i in (1..taken.len()).rev() {
            // Marsaglia's xorshift: another order every time, or the processor would learn it.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            taken.swap(i, ((self.random >> 32) as usize * (i + 1)) >> 32);
        }
    }
}

/// Nanoseconds that this thread has run: who else has the core does not count.
pub(crate) fn cpu_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Measures split and packed rings, requests of three descriptors and of a table.
///
/// # Errors
/// No memory.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let core = setup.client_core;
    let method = vec![
        format!("front end's ring -> device, ring, journal -> used ring -> front end, in one thread on core {core}; {DEPTH} in flight,"),
        "writes of 4 KiB whose bytes are not moved, completed in batches, in the order in which they were taken or in any; with an in-flight region and without, in turn; the thread's own time".to_string(),
        format!("{} rounds of the best of {TURNS}; medians [lowest - highest]", setup.rounds),
    ];
    weir_sys::sched::pin(core)?;
    let mut report = Report::new("journal", method);
    for (packed, indirect, shuffled, name) in [
        (false, false, false, "split, 3 descriptors"),
        (false, true, false, "split, a table"),
        (true, false, false, "packed, 3 descriptors"),
        (true, true, false, "packed, a table"),
        (false, true, true, "split, a table, any order"),
        (true, false, true, "packed, 3 descriptors, any order"),
        (true, true, true, "packed, a table, any order"),
    ] {
        let (mut with, mut without) = (Series::default(), Series::default());
        let rig = |journal| Rig::new(packed, indirect, shuffled, journal);
        let mut rigs = [rig(true)?, rig(false)?];
        for rig in &mut rigs {
            rig.measure(REQUESTS / 10)?;
        }
        for _ in 0..setup.rounds {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..TURNS {
                for (rig, best) in rigs.iter_mut().zip(&mut best) {
                    *best = best.min(rig.measure(REQUESTS / TURNS)?);
                }
            }
            with.push(best[0]);
            without.push(best[1]);
        }
        report.figure(format!("{name}, without"), "ns", &without);
        report.figure(format!("{name}, with"), "ns", &with);
        report.judged(format!("{name}, journal"), "ns", &with.minus(&without), Target::AtMost(5.0));
    }
    measure_nvme(setup, &mut report)?;
    Ok(report)
}

/// The same of NVMe queues: the whole machine with its queues' journal and without.
fn measure_nvme(setup: &Setup, report: &mut Report) -> Result<(), BenchError> {
    for (tenants, queues, name) in [(1, 1, "NVMe, 1 queue"), (3, 4, "NVMe, 12 queues")] {
        let (mut with, mut without) = (Series::default(), Series::default());
        let rig = |journal| NvmeRig::with(Mechanism::Rr, tenants, queues, journal);
        let mut rigs = [rig(true)?, rig(false)?];
        for rig in &mut rigs {
            rig.measure(u64::from(REQUESTS / 10));
        }
        for _ in 0..setup.rounds {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..TURNS {
                for (rig, best) in rigs.iter_mut().zip(&mut best) {
                    *best = best.min(rig.measure(u64::from(REQUESTS / TURNS)));
                }
            }
            with.push(best[0]);
            without.push(best[1]);
        }
        report.figure(format!("{name}, without"), "ns", &without);
        report.figure(format!("{name}, with"), "ns", &with);
        report.judged(format!("{name}, journal"), "ns", &with.minus(&without), Target::AtMost(15.0));
    }
    Ok(())
}
