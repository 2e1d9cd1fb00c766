//! Drives as an application uses them: a controller at a [`Target`], queue pairs on it, and the class that each asks for.
//!
//! ```text
//!   Controller::open(Target, Options) ─► queue_pair(QueueClass) ─► HostQueue ──┬─ NVMe/TCP     class: CATTR of Connect
//!                                              │                              ├─ vfio-user, pci   class: QPRIO
//!                                              │                              ├─ vhost-user   class: the server asks the kernel
//!                  FrontArbiter (one Front for many) ──┘                              └─ local        class: QPRIO
//! ```
//! **Classes.** A queue pair's class is by default that of the thread that uses it: its I/O priority (`ionice`), looked up again
//! by [`poll`](QueuePair::poll) every 100 ms. CATTR and QPRIO are fixed for a queue's life, so a queue pair follows a change by
//! letting what is in flight end, holding back what is submitted meanwhile, and making its queue anew; that poll waits for the network. Behind a
//! [`FrontArbiter`] a change counts at once. Over vhost-user the server follows by itself, where it may.
//!
//! **Arbitration in front.** A drive that tells classes apart needs none. Before any other, a [`FrontArbiter`] holds the requests of
//! all queue pairs that were given it, in this process, and lets them go by class (`weir_driver::host_arbiter`).
//!
//! A vfio-user server takes one client at a time, which has one controller: all queue pairs of a target come from one
//! [`RemoteController`].
//!
//! **Limits.** A local drive is run by whoever polls a queue pair on it; its data is copied once more than by
//! [`Local`] itself. Arbitration in front reaches as far as the process: clients of several processes want a node before
//! the drive (`media = "nvme:TARGET"`).

mod local;
mod way;

use crate::local::{Local, LocalTenant};
use crate::target::HOST_NQN;
use local::LocalQueue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use way::QueueWay;
use weir_config::DeviceConfig;
use weir_config::Target;
use weir_driver::host_arbiter::{ArbitratedClient, ArbitratedTenant, HostArbiter, HostArbiterConfig};
use weir_driver::{Done, Io, QueuePair, TransportError, nvme_tcp, vhost_user};
use weir_spec::nvme::register::ams;
use weir_sys::reactor::now;
use weir_sys::sched::ClassWatch;
use weir_sys::transport::{nvme_tcp as tcp, pci, vfio_user as vfio, vhost_user as vhost};
use weir_units::{Class, Nanos};

/// Polls between looks at the clock, for the thread's priority.
const LOOK: u32 = 16;
/// Polls of a blocked queue pair between looks for others that do not poll.
const SWEEP: u32 = 64;

/// How a controller is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// NVMe/TCP: who connects.
    pub hostnqn: String,
    /// Queue pairs, at most; over vfio-user and vhost-user exactly.
    pub queues: u16,
    /// Requests in flight of each; over vfio-user fewer where the drive's queues do not hold as many.
    pub depth: u32,
    /// Bytes of the longest request, and of each buffer.
    pub max_io: u32,
    /// NVMe/TCP: header and data digests.
    pub digests: (bool, bool),
    /// NVMe/TCP: keep alive timeout; some queue pair of the controller is polled at least so often.
    pub keep_alive: Nanos,
    /// vhost-user: packed rings.
    pub packed: bool,
    /// vhost-user and NVMe/TCP: how long a server that goes is waited for and connected to again, with what was in flight.
    pub reconnect: Option<Nanos>,
    /// The class of a thread that nobody niced, where this process decides: behind a gate, on a local drive, and in QPRIO over
    /// vfio-user, which cannot be left out. Elsewhere it is the tenant's class.
    pub unniced: Class,
    /// NVMe/TCP: selects weighted round robin (CC.AMS) where the controller offers it, so that the classes of this controller's
    /// own queues order them as well. Silence is *urgent* in CATTR, so a queue pair of which nobody says a class then asks
    /// for `unniced` and does not have the tenant's.
    pub weighted: bool,
    /// Arbitration in front, and whose queue pairs these are there.
    pub gate: Option<(FrontArbiter, ArbitratedTenant)>,
}

impl Default for Options {
    /// One queue pair of 128 requests of at most 128 KiB, a thread that nobody niced is of class medium.
    fn default() -> Self {
        Options {
            hostnqn: HOST_NQN.into(),
            queues: 1,
            depth: 128,
            max_io: 128 << 10,
            digests: (false, false),
            keep_alive: Nanos::from_secs(15),
            packed: false,
            reconnect: None,
            unniced: Class::Medium,
            weighted: false,
            gate: None,
        }
    }
}

impl Options {
    /// What a queue pair says over NVMe/TCP that wishes for that.
    fn said(&self, wish: Option<Class>) -> Option<Class> {
        wish.or(self.weighted.then_some(self.unniced))
    }
}

/// Who decides what class a queue pair asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClass {
    /// The thread that polls it, by its I/O priority.
    Thread,
    /// The caller. Urgent is granted where the operator allows it.
    Fixed(Class),
    /// Nobody: it is the tenant's.
    Tenant,
}

impl QueueClass {
    /// Whom to follow, and what to ask for now.
    fn resolve(self) -> (Option<ClassWatch>, Option<Class>) {
        match self {
            QueueClass::Thread => {
                let watch = ClassWatch::of_this_thread(now());
                let class = watch.class();
                (Some(watch), class)
            }
            QueueClass::Fixed(class) => (None, Some(class)),
            QueueClass::Tenant => (None, None),
        }
    }
}

/// Arbitration in front of drives, shared by the queue pairs that are to share.
#[derive(Clone, Debug)]
pub struct FrontArbiter(Arc<Mutex<HostArbiter>>);

impl FrontArbiter {
    /// One with no queue pair behind it yet.
    pub fn new(config: HostArbiterConfig) -> Self {
        FrontArbiter(Arc::new(Mutex::new(HostArbiter::new(config))))
    }

    /// One whose queue pairs share what it gets.
    pub fn tenant(&self) -> ArbitratedTenant {
        self.front().add_tenant(1)
    }

    fn front(&self) -> MutexGuard<'_, HostArbiter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A drive of this process that several controllers may be opened on.
#[derive(Clone)]
pub struct LocalDrive(Arc<Mutex<Local>>);

impl LocalDrive {
    /// Opens it for these tenants; each is of the class that its queue pairs may ask for at most.
    ///
    /// # Errors
    /// Says what cannot be had.
    pub fn open(config: &DeviceConfig, tenants: &[LocalTenant]) -> Result<Self, TransportError> {
        let local = Local::open(config, tenants, now()).map_err(|e| TransportError::Unreachable(e.to_string()))?;
        Ok(LocalDrive(Arc::new(Mutex::new(local))))
    }

    /// The drive, between two polls.
    pub fn lock(&self) -> MutexGuard<'_, Local> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a controller's namespace is; over vfio-user and vhost-user it is known as long as queue pairs are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// NSID; 1 where the transport has no such thing.
    pub nsid: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes.
    pub capacity: u64,
}

enum Way {
    Tcp(tcp::RemoteController),
    /// The queue pairs that are left, the namespace, and the class that they were created in.
    VfioUser(std::vec::IntoIter<vfio::VfioUserQueue>, u32, Class),
    /// As for vfio-user.
    Pci(std::vec::IntoIter<pci::PciQueue>, u32, Class),
    VhostUser(std::vec::IntoIter<vhost::VhostUserQueue>),
    Local(LocalDrive, u16),
}

/// See the [module](self).
pub struct Controller {
    way: Way,
    options: Options,
    left: u16,
}

impl Controller {
    /// Connects to the drive at a target.
    ///
    /// # Errors
    /// The text says what cannot be had, reached or done there, and why.
    pub fn open(target: &Target, options: Options) -> Result<Self, TransportError> {
        let way = match target {
            Target::Local { kind, query } => {
                let config = DeviceConfig::from_query(kind, query).map_err(|e| TransportError::Usage(e.to_string()))?;
                // Whoever opens a drive of its own is its operator: its queues may ask for any class.
                let tenant = LocalTenant { name: "host".into(), class: Class::Urgent };
                Way::Local(LocalDrive::open(&config, &[tenant])?, 0)
            }
            Target::NvmeTcp { host, port, nqn, nsid } => {
                let wanted = nvme_tcp::ConnectOptions {
                    nsid: *nsid,
                    queues: options.queues.max(1),
                    depth: options.depth.clamp(1, u32::from(u16::MAX)) as u16,
                    header_digest: options.digests.0,
                    data_digest: options.digests.1,
                    kato: options.keep_alive,
                    preferred_ams: options.weighted.then_some(ams::WRR),
                    spare: true,
                    ..nvme_tcp::ConnectOptions::new(nqn, &options.hostnqn)
                };
                Way::Tcp(tcp::RemoteController::connect(host, *port, wanted)?)
            }
            Target::VfioUser { path, nsid, ams } => {
                let wanted = vfio::VfioUserOptions {
                    nsid: *nsid,
                    queues: options.queues.max(1),
                    depth: options.depth,
                    max_io: options.max_io,
                    priority: options.unniced,
                    ams: *ams,
                    ..vfio::VfioUserOptions::default()
                };
                Way::VfioUser(vfio::connect(path, &wanted)?.into_iter(), *nsid, options.unniced)
            }
            Target::Pci { interrupts: true, .. } => {
                let text = "interrupts=on is for the media of a node's drive; here its completion queues are polled";
                return Err(TransportError::Usage(text.into()));
            }
            Target::Pci { address, nsid, .. } => {
                let wanted = pci::PciOptions {
                    nsid: *nsid,
                    queues: options.queues.max(1),
                    depth: options.depth,
                    max_io: options.max_io,
                    priority: options.unniced,
                    interrupts: false,
                };
                Way::Pci(pci::open(*address, &wanted, None)?.into_iter(), *nsid, options.unniced)
            }
            Target::VhostUser { path } => {
                let queues = options.queues.max(1);
                let wanted = vhost_user::FrontEndOptions {
                    queues,
                    packed: options.packed,
                    ..vhost_user::FrontEndOptions::default()
                };
                let patience = options.reconnect.map(|n| Duration::from_nanos(n.0));
                let pairs = vhost::connect_for(path, wanted, options.depth, options.max_io, patience)?;
                Way::VhostUser(pairs.into_iter())
            }
        };
        Ok(Self { left: options.queues.max(1), way, options })
    }

    /// On a local drive, as one of its tenants.
    pub fn on(drive: &LocalDrive, tenant: u16, options: Options) -> Self {
        Self { left: options.queues.max(1), way: Way::Local(drive.clone(), tenant), options }
    }

    /// The namespace.
    pub fn namespace(&self) -> Namespace {
        match &self.way {
            Way::Tcp(controller) => {
                let ready = controller.ready();
                Namespace { nsid: ready.nsid, block_size: ready.block_size, capacity: ready.capacity }
            }
            Way::VfioUser(queues, nsid, _) => of_first(*nsid, queues.as_slice()),
            Way::Pci(queues, nsid, _) => of_first(*nsid, queues.as_slice()),
            Way::VhostUser(queues) => of_first(1, queues.as_slice()),
            Way::Local(drive, _) => {
                let local = drive.lock();
                Namespace { nsid: 1, block_size: local.block_size(), capacity: local.capacity() }
            }
        }
    }

    /// NVMe/TCP: the class that a queue pair has which asks for `wish`; `None` where the controller does not say.
    pub fn class_of(&self, wish: Class) -> Option<Class> {
        match &self.way {
            Way::Tcp(controller) => Some(controller.ready().class?.to(wish)),
            Way::VfioUser(..) | Way::Pci(..) | Way::VhostUser(_) | Way::Local(..) => None,
        }
    }

    /// The next queue pair.
    ///
    /// # Errors
    /// There are no more, or the drive refuses.
    pub fn queue_pair(&mut self, class: QueueClass) -> Result<HostQueue, TransportError> {
        self.queue_pair_of(class, self.options.gate.clone())
    }

    /// The same, of another tenant of a gate than the options say, or of none.
    ///
    /// # Errors
    /// As [`RemoteController::queue_pair`].
    pub fn queue_pair_of(
        &mut self,
        class: QueueClass,
        seat: Option<(FrontArbiter, ArbitratedTenant)>,
    ) -> Result<HostQueue, TransportError> {
        let o = &self.options;
        let none = || TransportError::Refused(format!("{} queue pairs were asked for, and all are in use", o.queues));
        self.left = self.left.checked_sub(1).ok_or_else(none)?;
        let (watch, wish) = class.resolve();
        let way = match &mut self.way {
            Way::Tcp(controller) => {
                let mut queue = controller.queue_pair_in(o.said(wish), o.max_io)?;
                if let Some(patience) = o.reconnect {
                    queue.reconnect_for(Duration::from_nanos(patience.0));
                }
                QueueWay::Tcp(Box::new(queue))
            }
            Way::VfioUser(queues, _, made) => {
                let mut queue = queues.next().ok_or_else(none)?;
                let class = wish.unwrap_or(o.unniced);
                if class != *made {
                    queue.set_class(class)?;
                }
                QueueWay::VfioUser(Box::new(queue))
            }
            Way::Pci(queues, _, made) => {
                let mut queue = queues.next().ok_or_else(none)?;
                let class = wish.unwrap_or(o.unniced);
                if class != *made {
                    queue.set_class(class)?;
                }
                QueueWay::Pci(Box::new(queue))
            }
            Way::VhostUser(queues) => QueueWay::VhostUser(Box::new(queues.next().ok_or_else(none)?)),
            Way::Local(drive, tenant) => {
                let priority = wish.unwrap_or(o.unniced);
                QueueWay::Local(LocalQueue::connect(drive, *tenant, (o.depth, o.max_io), priority)?)
            }
        };
        let seat = seat.map(|(gate, tenant)| {
            let client = gate.front().add_client(tenant, wish.unwrap_or(o.unniced), way.pair().depth());
            ArbitratedPair { gate, client, taken: Vec::new(), blocked: false }
        });
        Ok(HostQueue {
            way,
            seat,
            watch,
            class: wish,
            unniced: o.unniced,
            weighted: o.weighted,
            changing: false,
            held: Vec::new(),
            in_flight: 0,
            polls: 0,
        })
    }
}

fn of_first<Q: QueuePair>(nsid: u32, queues: &[Q]) -> Namespace {
    let (block_size, capacity) = queues.first().map_or((0, 0), |q| (q.block_size(), q.capacity()));
    Namespace { nsid, block_size, capacity }
}

/// A queue pair behind a front arbiter.
struct ArbitratedPair {
    gate: FrontArbiter,
    client: ArbitratedClient,
    taken: Vec<Io>,
    blocked: bool,
}

impl Drop for ArbitratedPair {
    fn drop(&mut self) {
        self.gate.front().remove_client(self.client);
    }
}

/// A queue pair of an application; see the [module](self). It may move from thread to thread.
pub struct HostQueue {
    way: QueueWay,
    seat: Option<ArbitratedPair>,
    /// Whose class it is, where it is the thread's.
    watch: Option<ClassWatch>,
    /// The class that it asks for.
    class: Option<Class>,
    unniced: Class,
    weighted: bool,
    /// Its queue is to be made anew in that class.
    changing: bool,
    /// Submitted, and not handed on.
    held: Vec<Io>,
    in_flight: u32,
    polls: u32,
}

impl HostQueue {
    /// The class that it asks for; `None`: nobody said. What it has is the server's to say.
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// Asks for another class from now on, and no more for the thread's.
    pub fn set_class(&mut self, class: Option<Class>) {
        self.watch = None;
        self.ask_for(class);
    }

    /// Asks as a new one would: for another user, who takes it over with nothing in flight.
    pub fn hand_over(&mut self, class: QueueClass) {
        let (watch, wish) = class.resolve();
        self.watch = watch;
        if wish != self.class {
            self.ask_for(wish);
        }
    }

    fn ask_for(&mut self, class: Option<Class>) {
        self.class = class;
        match &self.seat {
            // What the drive makes of the class is of no weight behind a gate.
            Some(seat) => seat.gate.front().set_class(seat.client, class.unwrap_or(self.unniced)),
            None => self.changing = !matches!(self.way, QueueWay::VhostUser(_)),
        }
    }

    #[cold]
    fn look(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if watch.look(now()) {
            let class = watch.class();
            self.ask_for(class);
        }
    }

    /// Makes the queue anew once nothing is in flight, and hands on what was held back.
    #[cold]
    fn change(&mut self) -> Result<(), TransportError> {
        if self.in_flight > 0 {
            return Ok(());
        }
        let made = match &mut self.way {
            QueueWay::Tcp(q) => {
                // The old queue stays where there can be no new one.
                let said = self.class.or(self.weighted.then_some(self.unniced));
                if let Err(e) = q.set_class(said) {
                    tracing::warn!("the class of a queue stays as it was: {e}");
                }
                true
            }
            QueueWay::Local(q) => q.drive.lock().set_priority(q.client, self.class.unwrap_or(self.unniced), now())?,
            other => {
                other.make_anew(self.class.unwrap_or(self.unniced))?;
                true
            }
        };
        if made {
            self.changing = false;
            for io in std::mem::take(&mut self.held) {
                self.in_flight += 1;
                self.way.submit(io)?;
            }
        }
        Ok(())
    }

    fn poll_behind_gate(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        let Some(seat) = &mut self.seat else { return Ok(()) };
        // Nothing to hand in and nothing to get: seldom enough to leave the lock to the others, often enough to be seen.
        if !self.held.is_empty() || seat.blocked || self.polls % LOOK == 0 {
            let mut front = seat.gate.front();
            for io in self.held.drain(..) {
                front.submit(seat.client, io)?;
            }
            front.take(seat.client, &mut seat.taken);
            seat.blocked = front.is_blocked(seat.client);
        }
        for io in seat.taken.drain(..) {
            self.in_flight += 1;
            self.way.submit(io)?;
        }
        let before = done.len();
        self.way.poll(done)?;
        if done.len() > before {
            self.in_flight -= (done.len() - before) as u32;
            let mut front = seat.gate.front();
            done[before..].iter().for_each(|d| front.done(seat.client, d.slot));
        } else if seat.blocked && self.polls % SWEEP == 0 {
            seat.gate.front().sweep(now());
        }
        Ok(())
    }
}

impl QueuePair for HostQueue {
    #[inline]
    fn depth(&self) -> u32 {
        self.way.pair().depth()
    }

    #[inline]
    fn block_size(&self) -> u32 {
        self.way.pair().block_size()
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.way.pair().capacity()
    }

    #[inline]
    fn max_io(&self) -> u32 {
        self.way.pair().max_io()
    }

    #[inline]
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.way.buffer(slot)
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        if self.seat.is_some() || self.changing {
            io.check(self)?;
            self.held.push(io);
            return Ok(());
        }
        self.way.submit(io)?;
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        self.polls = self.polls.wrapping_add(1);
        if self.watch.is_some() && self.polls % LOOK == 0 {
            self.look();
        }
        if self.seat.is_some() {
            return self.poll_behind_gate(done);
        }
        if self.changing {
            self.change()?;
        }
        let before = done.len();
        self.way.poll(done)?;
        self.in_flight -= (done.len() - before) as u32;
        Ok(())
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
