//! A shard: one thread, one reactor, the drives of that core and their doors. See docs/inside/architecture.md, "One core, one drive".

use crate::device::{CaughtUp, Drives, PowerReply, ThreadTime};
use crate::directory::Directory;
use crate::door::context::{Arrival, Cx};
use crate::door::{Doors, nvme_tcp};
use crate::owner::{self, Ownership};
use crate::throttle;
use crate::tokens::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use weir_controller::Owner;
use weir_sys::keeper_channel::Keep;
use weir_sys::reactor::{Idle, Reactor, Ready, Sender, WAKE_MARGIN};
use weir_sys::sched::Waits;
use weir_units::Nanos;

/// Something another thread wants done with a shard's state, on the shard's own thread.
pub type Call = Box<dyn FnOnce(&mut Shard) + Send>;

/// How other threads reach a shard.
#[derive(Clone)]
pub struct ShardHandle {
    mailbox: Sender<Call>,
}

impl ShardHandle {
    /// A handle that sends into this mailbox.
    pub fn new(mailbox: Sender<Call>) -> Self {
        Self { mailbox }
    }

    /// Runs `f` on the shard without waiting for it; lost where the shard has ended.
    pub fn post(&self, f: impl FnOnce(&mut Shard) + Send + 'static) {
        let _ = self.mailbox.send(Box::new(f));
    }

    /// Runs `f` on the shard and waits for its answer; `None` where the shard has ended.
    pub fn call<R: Send + 'static>(&self, f: impl FnOnce(&mut Shard) -> R + Send + 'static) -> Option<R> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.post(move |shard| {
            let _ = reply.send(f(shard));
        });
        answer.recv().ok()
    }
}

/// What a shard is made of; see [`Shard::run`] for its turn.
pub struct Shard {
    /// This shard's number.
    pub id: u32,
    /// The event loop.
    pub reactor: Reactor,
    /// The drives of this core.
    pub drives: Drives,
    /// Their doors.
    pub doors: Doors,
    /// All subsystems of the node.
    pub directory: Arc<Directory>,
    /// The other shards, by number.
    pub peers: Vec<ShardHandle>,
    /// Who holds what must outlive the process.
    pub keep: Keep,
    /// Whether it may complete anything.
    pub owner: Ownership,
    mailbox: mpsc::Receiver<Call>,
    idle: Idle,
    waits: Waits,
    load: Load,
    stopping: Option<Stopping>,
    /// Shards that send no commands to drives of this one any more.
    farewells: Vec<u32>,
    arrivals: Vec<Arrival>,
    moves: Vec<(u32, nvme_tcp::Moving)>,
    disconnects: Vec<Owner>,
    ready: Vec<Ready>,
}

/// How long a stopping shard waits for commands that are being executed.
const DRAIN: Nanos = Nanos::from_secs(5);

/// So long the next process has the core to itself before this one goes on ending.
const ALONE: Duration = Duration::from_millis(5);

/// How much of its time a shard has something to do.
#[derive(Default)]
struct Load {
    opened: Nanos,
    last: Nanos,
    /// Since it began, and what that was when the present second was opened.
    spent: Nanos,
    before: Nanos,
    busy: bool,
    percent: f64,
}

/// Over what the load is taken.
const LOAD_WINDOW: Nanos = Nanos::from_secs(1);

impl Load {
    /// A turn begins, and with it the one before has ended; true where a window ends with it.
    #[inline]
    fn look(&mut self, now: Nanos) -> bool {
        if self.busy {
            self.spent = self.spent.saturating_add(now.saturating_sub(self.last));
        }
        self.last = now;
        let span = now.saturating_sub(self.opened);
        let ends = span >= LOAD_WINDOW;
        if ends {
            self.percent = 100.0 * self.spent.saturating_sub(self.before).get() as f64 / span.get() as f64;
            (self.opened, self.before) = (now, self.spent);
        }
        ends
    }

    /// For how long it has had something to do until `now`, in a turn that has.
    fn spent(&self, now: Nanos) -> Nanos {
        self.spent.saturating_add(now.saturating_sub(self.last))
    }
}

/// Shards that make room for another process; the last one of them says that all have.
pub struct Leave {
    /// Those that have not left.
    left: AtomicUsize,
    /// Nothing is under way in those that have.
    quiet: AtomicBool,
    /// All drives lie in memory: nobody is kept out of them by who has them open.
    in_memory: bool,
    say: Box<dyn Fn() + Send + Sync>,
}

impl Leave {
    /// So many shards, whether all drives lie in memory, and who is told.
    pub fn new(shards: usize, in_memory: bool, say: impl Fn() + Send + Sync + 'static) -> Self {
        Self { left: AtomicUsize::new(shards), quiet: AtomicBool::new(true), in_memory, say: Box::new(say) }
    }

    /// A shard touches nothing any more, unless something of it is under way that it could not wait for.
    fn leave(&self, quiet: bool) {
        self.quiet.fetch_and(quiet, Ordering::AcqRel);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 && self.quiet.load(Ordering::Acquire) {
            (self.say)();
        }
    }
}

struct Stopping {
    deadline: Nanos,
    /// Everything stays open for who serves next.
    leaving: Option<Arc<Leave>>,
    /// The other shards have heard that no more commands come from here.
    said: bool,
    /// Nothing is under way any more: it does not end because its time is over.
    quiet: bool,
    done: mpsc::Sender<bool>,
}

/// The door context of this turn; a macro because it borrows single fields.
macro_rules! cx {
    ($shard:ident, $now:expr) => {
        &mut Cx {
            now: $now,
            shard: $shard.id,
            reactor: &mut $shard.reactor,
            drives: &mut $shard.drives,
            directory: &$shard.directory,
            arrivals: &mut $shard.arrivals,
            keep: &$shard.keep,
            moves: &mut $shard.moves,
        }
    };
}

impl Shard {
    /// A shard around its reactor and drives; doors are opened by calls into it.
    pub fn new(
        id: u32,
        reactor: Reactor,
        mailbox: mpsc::Receiver<Call>,
        idle: Idle,
        drives: Drives,
        doors: Doors,
        directory: Arc<Directory>,
    ) -> Self {
        Self {
            id,
            reactor,
            drives,
            doors,
            directory,
            peers: Vec::new(),
            keep: Keep::none(),
            owner: Ownership::default(),
            mailbox,
            idle,
            // Another thread than the one that will run: see `run`.
            waits: Waits::new(None, Nanos(0)),
            load: Load::default(),
            stopping: None,
            farewells: Vec::new(),
            arrivals: Vec::with_capacity(4096),
            moves: Vec::new(),
            disconnects: Vec::new(),
            ready: Vec::with_capacity(256),
        }
    }

    /// Calls `f` with the doors and their context, outside of a turn.
    pub fn with_doors<R>(&mut self, f: impl FnOnce(&mut Doors, &mut Cx) -> R) -> R {
        let now = self.reactor.now();
        f(&mut self.doors, cx!(self, now))
    }

    /// Cuts a drive's power; `reply` hears what it did.
    pub fn power_cut(&mut self, drive: u32, reply: PowerReply) {
        let now = self.reactor.now();
        self.drives.power_cut(drive, now, reply, &mut self.doors, &mut self.reactor);
    }

    /// Begins to stop: what is being executed completes, then the loop ends and `done` hears whether all of it has.
    pub fn stop(&mut self, done: mpsc::Sender<bool>) {
        let now = self.reactor.now();
        self.doors.nvme_tcp.close_listeners(cx!(self, now));
        self.doors.vhost_user.close_listeners(cx!(self, now));
        self.doors.vfio_user.close_listeners(cx!(self, now));
        self.begin_to_stop(now, None, done);
    }

    /// The sockets that were opened are no more, unless a keeper holds them: the node does not start.
    pub fn remove_sockets(&mut self) {
        let now = self.reactor.now();
        if !self.keep.is_kept() {
            self.doors.vhost_user.close_listeners(cx!(self, now));
            self.doors.vfio_user.close_listeners(cx!(self, now));
        }
    }

    /// Begins to make room for another process: no command is taken any more, what is being executed completes, sockets and
    /// front ends stay for who serves next; then the loop ends and `done` hears whether all of it has.
    pub fn hand_over(&mut self, leave: Arc<Leave>, done: mpsc::Sender<bool>) {
        let now = self.reactor.now();
        self.begin_to_stop(now, Some(leave), done);
    }

    fn begin_to_stop(&mut self, now: Nanos, leaving: Option<Arc<Leave>>, done: mpsc::Sender<bool>) {
        let deadline = now.saturating_add(DRAIN);
        self.stopping = Some(Stopping { deadline, leaving, said: false, quiet: false, done });
    }

    #[inline]
    fn is_leaving(&self) -> bool {
        self.stopping.as_ref().is_some_and(|s| s.leaving.is_some())
    }

    /// No command is taken any more.
    #[inline]
    fn is_closed(&self) -> bool {
        self.stopping.as_ref().is_some_and(|s| s.leaving.is_some() || s.said)
    }

    /// How much of the last second (or of what passed since it last had to do) the shard had something to do, in percent, and
    /// how long its thread has waited for its core since it started; `None` where the kernel does not say.
    pub fn load(&self) -> (f64, Option<Nanos>) {
        (self.load.percent, self.waits.is_known().then(|| self.waits.total()))
    }

    /// Turns until stopped.
    pub fn run(mut self) {
        let start = self.reactor.now();
        self.waits = Waits::of_this_thread(start);
        (self.load.opened, self.load.last) = (start, start);
        let mut has_request = false;
        loop {
            let now = self.reactor.now();
            self.waits.look(now);
            if self.load.look(now) {
                let thread = ThreadTime { wait_squares: self.waits.squares(), busy: self.load.spent };
                self.drives.look_at_speed(now, thread);
            }
            let busy = self.turn(now, has_request);
            self.load.busy = busy;
            if self.finished(now) {
                break;
            }
            has_request = !busy && self.glance(now);
            if has_request || self.idle.keep_spinning(now, busy) || self.is_due_soon(now) {
                continue;
            }
            if self.doors_found_work_while_arming(now) {
                continue;
            }
            self.sleep();
        }
        self.end();
    }

    /// Sleeps until there is something to do. Doorbells whose stores wake nobody are looked at meanwhile, without a turn for it.
    fn sleep(&mut self) {
        let (until, mut naps) = (self.next_deadline(), 0u32);
        loop {
            let look = if self.is_closed() { Nanos::NEVER } else { self.doors.vfio_user.look_at() };
            let wake = until.min(look);
            self.reactor.wait(Some(wake).filter(|w| *w != Nanos::NEVER), &mut self.ready);
            let now = self.reactor.now();
            let is_nap = look < until && now.saturating_add(WAKE_MARGIN) >= look;
            if is_nap && !self.dispatch(now) && !self.doors.vfio_user.glance(now) {
                naps += 1;
                continue;
            }
            if naps > 0 || is_nap {
                self.waits.rested(now)
            } else {
                self.waits.woke(now)
            }
            if !is_nap {
                self.dispatch(now);
            }
            return;
        }
    }

    /// Between two turns of a shard without work: whether a ring has a request now. Not looked for where something else is due soon.
    #[inline]
    fn glance(&self, now: Nanos) -> bool {
        self.doors.vhost_user.is_polled()
            && !self.is_closed()
            && !self.is_due_soon(now)
            && self.doors.vhost_user.glance()
    }

    /// One turn; true if anything was done. `has_request`: the turn before, in which everything was looked at, had nothing to do, and then
    /// a ring had a request; that is all that is looked for.
    fn turn(&mut self, now: Nanos, has_request: bool) -> bool {
        let caught = self.drives.catch_up(now, &mut self.doors, &mut self.reactor);
        if caught == CaughtUp::Behind {
            self.check_owner();
            self.show(now);
            return true;
        }
        let mut busy = caught == CaughtUp::Moved;
        if has_request {
            self.check_owner();
        } else {
            self.reactor.turn(&mut self.ready);
            busy |= self.dispatch(now);
            if now >= throttle::due() {
                throttle::settle(now);
            }
        }
        if !self.is_closed() {
            let cx = cx!(self, now);
            busy |= self.doors.vhost_user.poll(cx);
            if !has_request {
                busy |= self.doors.nvme_tcp.poll(cx);
                busy |= self.doors.vfio_user.poll(cx);
            }
        }
        for (shard, moving) in self.moves.drain(..) {
            self.peers[shard as usize].post(move |s| s.with_doors(|doors, cx| doors.nvme_tcp.adopt(moving, cx)));
        }
        busy |= !self.arrivals.is_empty();
        for a in self.arrivals.drain(..) {
            self.drives.apply(a.drive, now, a.event, &mut self.doors);
        }
        busy |= self.drives.run(now, &mut self.doors, &mut self.reactor);
        busy | self.show(now)
    }

    /// Shows hosts what was done for them; true if anything was.
    fn show(&mut self, now: Nanos) -> bool {
        let cx = cx!(self, now);
        self.doors.nvme_tcp.withdraw_notes(cx);
        // A ring shows its completions before anything else is done.
        let mut busy = self.doors.vhost_user.flush(cx);
        self.send_messages();
        self.drives.take_disconnects(now, &mut self.disconnects);
        while let Some(owner) = self.disconnects.pop() {
            self.disconnect(owner);
        }
        while let Some((drive, bytes)) = self.drives.take_resized() {
            self.doors.vhost_user.resized(drive, bytes, cx!(self, now));
        }
        let cx = cx!(self, now);
        self.doors.nvme_tcp.withdraw_notes(cx);
        busy |= self.doors.vfio_user.flush(cx);
        // Rings show their completions, and a connection has got its; what the network then takes is not the drive's.
        self.drives.measure(&self.reactor, &mut self.waits, |now| self.load.spent(now));
        self.doors.vhost_user.notify();
        busy |= self.doors.nvme_tcp.flush(cx!(self, now));
        busy
    }

    /// What volumes and pools of this shard want of drives of others, and the other way round.
    #[inline]
    fn send_messages(&mut self) {
        let from = self.id;
        while let Some((shard, messages)) = self.drives.take_messages() {
            self.peers[shard as usize].post(move |s| {
                let now = s.reactor.now();
                s.drives.deliver(now, (from, messages), &mut s.doors);
            });
        }
    }

    /// Too soon to sleep, and to have every queue asked for a kick.
    fn is_due_soon(&self, now: Nanos) -> bool {
        self.drives.next_deadline() <= now.saturating_add(WAKE_MARGIN)
    }

    fn disconnect(&mut self, owner: Owner) {
        if owner.0 >> 28 == Kind::NvmeTcp as u32 {
            self.doors.nvme_tcp.disconnect(owner);
        } else {
            self.doors.vhost_user.disconnect(owner);
        }
    }

    /// Nothing is completed for whom another worker serves by now.
    #[inline]
    fn check_owner(&self) {
        if self.owner.is_lost() {
            owner::give_up();
        }
    }

    /// Hands what the reactor found to whom it concerns.
    fn dispatch(&mut self, now: Nanos) -> bool {
        self.check_owner();
        let mut busy = false;
        let mut ready = std::mem::take(&mut self.ready);
        for event in ready.drain(..) {
            busy = true;
            match event.token() >> 60 {
                k if k == Kind::NvmeTcp as u64 => {
                    self.doors.nvme_tcp.ready(event.token() & (u64::MAX >> 4), &event, cx!(self, now));
                }
                k if k == Kind::VhostUser as u64 => {
                    self.doors.vhost_user.ready(event.token() & (u64::MAX >> 4), &event, cx!(self, now));
                }
                // Its messages are commands, whoever they go to from here on.
                k if k == Kind::VfioUser as u64 && self.is_closed() => {}
                k if k == Kind::VfioUser as u64 => {
                    self.doors.vfio_user.ready(event.token() & (u64::MAX >> 4), &event, cx!(self, now));
                }
                _ => self.drives.media_ready(event, now, &mut self.doors, &mut self.reactor),
            }
        }
        self.ready = ready;
        if self.reactor.take_mail() {
            while let Ok(call) = self.mailbox.try_recv() {
                busy = true;
                call(self);
            }
        }
        busy
    }

    fn doors_found_work_while_arming(&mut self, now: Nanos) -> bool {
        if self.drives.must_poll() || self.drives.background() {
            return true;
        }
        // Whose messages are not read any more is not judged by what it does not answer.
        let closed = self.is_closed();
        let cx = cx!(self, now);
        self.doors.nvme_tcp.arm(cx) | self.doors.vhost_user.arm(cx) | (!closed && self.doors.vfio_user.arm(cx))
    }

    fn next_deadline(&self) -> Nanos {
        let Doors { nvme_tcp, vhost_user, vfio_user, .. } = &self.doors;
        let pcie = if self.is_closed() { Nanos::NEVER } else { vfio_user.next_deadline() };
        let doors = nvme_tcp.next_deadline().min(vhost_user.next_deadline()).min(pcie);
        let stop = self.stopping.as_ref().map_or(Nanos::NEVER, |s| s.deadline);
        self.drives.next_deadline().min(doors).min(stop).min(throttle::due())
    }

    /// Whether it may end, or has to: its time is over.
    fn finished(&mut self, now: Nanos) -> bool {
        if self.stopping.is_none() {
            return false;
        }
        if self.is_leaving() {
            self.doors.mark_begun(cx!(self, now));
            self.drives.mark_begun();
            self.send_messages();
        }
        let quiet = self.is_finished();
        self.stopping.as_mut().is_some_and(|s| {
            s.quiet = quiet;
            quiet || now >= s.deadline
        })
    }

    /// Nothing is being executed that the next process would not go on with, neither for itself nor, from now on, for volumes of other shards.
    fn is_finished(&mut self) -> bool {
        let leaves = self.is_leaving();
        let Some(stopping) = &mut self.stopping else { return false };
        let quiet = if leaves { self.drives.may_leave() } else { self.drives.is_quiet() };
        if !quiet || !self.arrivals.is_empty() {
            return false;
        }
        let (id, neighbours) = (self.id, self.drives.neighbours());
        if !stopping.said && !neighbours.is_empty() {
            stopping.said = true;
            neighbours.iter().for_each(|shard| self.peers[*shard as usize].post(move |s| s.farewells.push(id)));
        }
        if !neighbours.iter().all(|shard| self.farewells.contains(shard)) {
            return false;
        }
        if leaves {
            self.drives.take_back();
        }
        true
    }

    /// Closes everything: what completed was sent, the media is flushed.
    fn end(mut self) {
        let now = self.reactor.now();
        let cx = cx!(self, now);
        self.doors.nvme_tcp.flush(cx);
        self.doors.vhost_user.flush(cx);
        self.doors.vhost_user.notify();
        self.doors.vfio_user.flush(cx);
        if self.is_leaving() {
            let cx = cx!(self, now);
            self.doors.vhost_user.leave(cx);
            let others = self.doors.vfio_user.leave(cx);
            self.doors.nvme_tcp.leave(others, cx);
            self.drives.close(now);
            if let Some(Stopping { leaving: Some(leave), quiet, done, .. }) = self.stopping.take() {
                // The process ends with what it has open: nobody is told that it goes, and no memory is unmapped on a core that the next
                // one is to have. It has this one for itself for a moment.
                std::mem::forget(self.doors);
                if leave.in_memory {
                    std::mem::forget(self.drives);
                } else {
                    // Files are locked as long as they are open.
                    self.drives.leave_open();
                    drop(self.drives);
                }
                leave.leave(quiet);
                std::thread::sleep(ALONE);
                let _ = done.send(quiet);
            }
            return;
        }
        let cx = cx!(self, now);
        self.doors.nvme_tcp.close(cx);
        self.doors.vhost_user.close(cx);
        self.doors.vfio_user.close(cx);
        self.drives.close(now);
        // A watched socket stays open until the end of its watch has been submitted and carried out, even beyond the process:
        // whoever starts next wants the address.
        for _ in 0..4 {
            self.reactor.turn(&mut self.ready);
        }
        if let Some(s) = self.stopping.take() {
            let _ = s.done.send(s.quiet);
        }
    }
}

#[cfg(test)]
mod kept_tests;
