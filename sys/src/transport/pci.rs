//! An NVMe drive on the PCI bus as [`QueuePair`]s, through VFIO: opens the device, lets it use a memory file, brings the controller up,
//! spins on the rings.
//!
//! ```text
//!   PciQueue ──┬─ own part of the memory file: rings, buffers          (its thread's alone)
//!              └─ PciDrive ──┬─ Bar: registers, doorbells              (any thread's)
//!                            ├─ admin queue                            (behind a mutex: bring-up, another class)
//!                            └─ VfioDevice: memory, interrupts         (the last queue pair that goes closes it)
//! ```
//! The last queue pair that goes shuts the controller down. A drive that is pulled, or that the kernel wants back, is closed as a link is.
//!
//! With a keeper the drive outlives the process: the keeper holds the device and the memory file, in which the admin queue's counts lie, and
//! the next process goes on without a reset ([`weir_driver::nvme::BringUp::taking_over`]).

use super::queue_memory::{LOOK, PACE, PAGE, QUICK, add, named, put, shadow_doorbell, take};
use crate::keeper_channel::Keep;
use crate::memory::{GuestMemory, HUGE, memory_file};
use crate::reactor::now;
use crate::vfio::{Bar, VfioDevice};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_driver::nvme::{
    AdminQueue, BringUp, ControllerIdentity, ControllerPlan, EnabledController, IoQueue, Port, QueuePlan, Remake,
};
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_session::memory::Memory;
use weir_spec::nvme::Cqe;
use weir_spec::nvme::register::{self, Cap, Cc, Csts, Doorbell, ams, doorbell_offset};
use weir_spec::pci::PciAddress;
use weir_units::{Class, Nanos};

/// DMA address of the shared memory. It must be no address of a device's registers: a switch without ACS hands such an access to that device
/// instead of the IOMMU, and QEMU's drive takes one in its own BAR for its own. Physical memory is here on every machine, so registers are not.
const BASE: u64 = 256 << 20;
/// How long a controller may take to shut down before the device is closed all the same; a drive says more or less in RTD3E, and the kernel's
/// driver waits 5 s where it says nothing.
const SHUTDOWN_TIMEOUT: Nanos = Nanos::from_secs(5);

/// What is wanted of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciOptions {
    /// The namespace.
    pub nsid: u32,
    /// I/O queue pairs.
    pub queues: u16,
    /// Requests in flight of each; fewer where the drive's queues do not hold as many.
    pub depth: u32,
    /// Bytes of the longest request, and of each buffer.
    pub max_io: u32,
    /// QPRIO of the submission queues (base 2.0, 5.5).
    pub priority: Class,
    /// Each queue pair has an eventfd that is signalled when requests end, by an MSI-X vector of its own.
    pub interrupts: bool,
}

impl Default for PciOptions {
    /// One queue pair of 128 requests of at most 128 KiB on namespace 1, of class medium.
    fn default() -> Self {
        PciOptions { nsid: 1, queues: 1, depth: 128, max_io: 128 << 10, priority: Class::Medium, interrupts: false }
    }
}

/// What the queue pairs of a drive have in common.
#[derive(Debug)]
struct PciDrive {
    // Before the device, which the kernel resets when it is closed.
    bar: Bar,
    device: VfioDevice,
    /// All of the memory file, and the admin queue.
    admin: Mutex<Admin>,
    place: String,
    /// Who holds it beyond the process, and under which name.
    held: Option<(Keep, String)>,
    /// It is left open for the next process.
    is_left: AtomicBool,
}

#[derive(Debug)]
struct Admin {
    memory: GuestMemory,
    /// Once the controller is up.
    rings: Option<AdminQueue>,
}

/// How the machines of `weir-driver` reach a drive.
struct PciPort<'a> {
    memory: &'a GuestMemory,
    bar: &'a Bar,
}

impl Port for PciPort<'_> {
    fn register(&mut self, offset: u32, size: u8) -> u64 {
        if size == 8 { self.bar.read64(offset) } else { u64::from(self.bar.read(offset)) }
    }

    fn set_register(&mut self, offset: u32, value: u64, size: u8) {
        if size == 8 { self.bar.write64(offset, value) } else { self.bar.write(offset, value as u32) }
    }

    #[inline]
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        self.bar.write(doorbell_offset(doorbell), value);
    }

    #[inline]
    fn shadow_doorbell(&mut self, address: u64, value: u32) -> u32 {
        shadow_doorbell(self.memory, address, value)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        let _ = self.memory.read(address, into);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let _ = self.memory.write(address, bytes);
    }

    #[inline]
    fn put(&mut self, address: u64, entry: &[u64; 8]) {
        put(self.memory, address, entry);
    }

    #[inline]
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe> {
        take(self.memory, address, phase)
    }
}

impl PciDrive {
    /// Polls until there is something.
    fn wait<T>(
        &self,
        memory: &GuestMemory,
        mut poll: impl FnMut(Nanos, &mut PciPort) -> Result<Option<T>, TransportError>,
    ) -> Result<T, TransportError> {
        let mut port = PciPort { memory, bar: &self.bar };
        let mut polls = 0;
        loop {
            let step = poll(now(), &mut port);
            self.state()?;
            polls += 1;
            match step {
                Ok(Some(found)) => return Ok(found),
                Ok(None) if polls < QUICK => std::thread::yield_now(),
                Ok(None) => std::thread::sleep(PACE),
                Err(e) => return Err(named(&self.place, e)),
            }
        }
    }

    fn bring_up(&self, mut machine: BringUp) -> Result<EnabledController, TransportError> {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.wait(&admin.memory, |at, port| machine.poll(at, port))?;
        admin.rings = Some(ready.admin.clone());
        Ok(ready)
    }

    /// Has the keeper hold the drive and its memory beyond this process.
    fn hold(&self, memory: &OwnedFd) -> io::Result<()> {
        let Some((keep, name)) = &self.held else { return Ok(()) };
        let [device, container, group] = self.device.descriptors();
        keep.hold(name, &[device, container, group, memory.as_fd()])
    }

    fn remake(&self, queue: &mut IoQueue, priority: Class) -> Result<(), TransportError> {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        let Admin { memory, rings: Some(rings) } = &mut *admin else {
            return Err(TransportError::Closed(format!("{}: its admin queue is gone", self.place)));
        };
        let mut machine = Remake::new(priority);
        self.wait(memory, |at, port| Ok(machine.poll(at, rings, queue, port)?.then_some(())))
    }

    /// Whether the drive is there and the kernel leaves it to this program.
    fn state(&self) -> Result<(), TransportError> {
        let closed = |why: &str| Err(TransportError::Closed(format!("{}: {why}", self.place)));
        if self.device.is_wanted_back() {
            return closed("Linux takes the drive away: it was removed or unbound");
        }
        if self.bar.is_gone() || self.bar.read(register::CSTS) == u32::MAX {
            return closed("the drive is gone from the bus");
        }
        Ok(())
    }

    /// The same, and whether the controller has not failed.
    fn health(&self) -> Result<(), TransportError> {
        self.state()?;
        if Csts(self.bar.read(register::CSTS)).cfs() == 1 {
            return Err(TransportError::Closed(format!("{}: the controller reports a fatal status", self.place)));
        }
        Ok(())
    }

    /// A normal shutdown (base 2.0, 3.6.1): the drive writes down what it has to.
    fn shut_down(&self) {
        let cc = Cc(self.bar.read(register::CC));
        self.bar.write(register::CC, cc.with_shn(1).0);
        let deadline = now().saturating_add(SHUTDOWN_TIMEOUT);
        while Csts(self.bar.read(register::CSTS)).shst() != 2 && self.state().is_ok() && now() < deadline {
            std::thread::sleep(PACE);
        }
    }
}

impl Drop for PciDrive {
    fn drop(&mut self) {
        if *self.is_left.get_mut() {
            return;
        }
        if let Some((keep, name)) = &self.held {
            // A keeper that has gone holds nothing.
            let _ = keep.release(name);
        }
        let is_up = self.admin.get_mut().unwrap_or_else(PoisonError::into_inner).rings.is_some();
        if is_up && self.state().is_ok() {
            self.shut_down();
        }
    }
}

/// One queue pair of a drive.
#[derive(Debug)]
pub struct PciQueue {
    /// Its part of the memory file.
    memory: GuestMemory,
    queue: IoQueue,
    max_io: u32,
    identity: Arc<ControllerIdentity>,
    drive: Arc<PciDrive>,
    /// Signalled when requests end, until its user takes it.
    interrupt: Option<OwnedFd>,
    idle: u32,
}

/// Opens the drive at an address, brings its controller up and creates `options.queues` queue pairs. `held`: the keeper that holds it beyond
/// the process, and under which name; what the process before has left there is taken over.
///
/// # Errors
/// There is no drive, vfio-pci does not have it, another program uses it, it refuses or misbehaves, or has less than is wanted.
pub fn open(
    address: PciAddress,
    options: &PciOptions,
    held: Option<(&Keep, &str)>,
) -> Result<Vec<PciQueue>, TransportError> {
    let place = format!("pci:{address}");
    if options.depth == 0 || options.depth >= 1 << 16 || options.queues == 0 || options.max_io == 0 {
        let text = "a drive wants at least one queue of 1 to 65535 requests of at least one block";
        return Err(TransportError::Usage(format!("{place}: {text}")));
    }
    let left = held.and_then(|(keep, name)| left(&place, address, options, keep, name));
    let was_left = left.is_some();
    let Opened { device, bar, plan, file, memory, interrupts } = match left {
        Some(left) => left,
        None => Opened::of(&place, VfioDevice::open(address)?, options, None)?,
    };
    let shadow_pages = plan.shadow_pages();
    let machine = if was_left { BringUp::taking_over(plan) } else { BringUp::new(plan) };
    let mut interrupts = interrupts.into_iter();
    let admin = Mutex::new(Admin { memory, rings: None });
    let held = held.map(|(keep, name)| (keep.clone(), name.to_owned()));
    let is_left = AtomicBool::new(false);
    let drive = Arc::new(PciDrive { bar, device, admin, place: place.clone(), held, is_left });
    let ready = drive.bring_up(machine)?;
    match (was_left, ready.was_up) {
        (true, true) => tracing::info!("{place}: its controller is up, and goes on without a reset"),
        (true, false) => {
            tracing::warn!("{place}: its controller is not as the process before had left it, and was reset")
        }
        (false, _) => {}
    }
    drive.hold(&file).map_err(|e| TransportError::Closed(format!("{place}: the keeper does not listen: {e}")))?;
    let identity = Arc::new(ready.identity);
    ready
        .queues
        .into_iter()
        .map(|queue| {
            let system = |e: io::Error| TransportError::Refused(format!("{place}: memory for its queues: {e}"));
            let mut memory = GuestMemory::new();
            add(&mut memory, &file, BASE, queue.memory()).map_err(system)?;
            if identity.shadow_doorbells {
                add(&mut memory, &file, BASE, shadow_pages.clone()).map_err(system)?;
            }
            memory.populate();
            let (identity, drive) = (identity.clone(), drive.clone());
            let interrupt = interrupts.next();
            Ok(PciQueue { memory, max_io: queue.max_io(), queue, identity, drive, interrupt, idle: 0 })
        })
        .collect()
}

/// A drive before its controller is up.
struct Opened {
    device: VfioDevice,
    bar: Bar,
    plan: ControllerPlan,
    /// The memory that the device may access, and all of it mapped.
    file: OwnedFd,
    memory: GuestMemory,
    /// Of the queue pairs, where they are wanted.
    interrupts: Vec<OwnedFd>,
}

impl Opened {
    fn of(
        place: &str,
        device: VfioDevice,
        options: &PciOptions,
        left: Option<OwnedFd>,
    ) -> Result<Self, TransportError> {
        let bar = device.map_bar().map_err(|e| TransportError::Refused(format!("{place}: its registers: {e}")))?;
        let plan = plan(place, options, &bar)?;
        let len = (plan.memory() as usize).next_multiple_of(HUGE);
        let no_memory =
            |e: io::Error| TransportError::Refused(format!("{place}: {len} bytes of memory for its queues: {e}"));
        let file = match left {
            Some(file) if rustix::fs::fstat(&file).is_ok_and(|s| s.st_size == len as i64) => file,
            Some(_) => return Err(TransportError::Refused(format!("{place}: its memory is of another size"))),
            None => {
                let file = memory_file("weir-pci", len).map_err(no_memory)?;
                device.map_memory(file.as_fd(), len, BASE).map_err(no_memory)?;
                file
            }
        };
        let mut memory = GuestMemory::new();
        add(&mut memory, &file, BASE, BASE..BASE + len as u64).map_err(no_memory)?;
        let interrupts = interrupts(place, &device, options)?;
        Ok(Opened { device, bar, plan, file, memory, interrupts })
    }
}

/// The device and the memory that the process before has left. What cannot be used is closed, by the keeper as well: the kernel resets
/// the device then.
fn left(place: &str, address: PciAddress, options: &PciOptions, keep: &Keep, name: &str) -> Option<Opened> {
    let found = keep.take(name)?;
    let opened = || {
        let other = |_| TransportError::Refused(format!("{place}: not four descriptors"));
        let [device, container, group, memory] = <[OwnedFd; 4]>::try_from(found).map_err(other)?;
        let device = VfioDevice::left(address, [device, container, group]);
        let device = device.map_err(|e| TransportError::Refused(format!("{place}: VFIO: {e}")))?;
        Opened::of(place, device, options, Some(memory))
    };
    opened()
        .inspect_err(|e| {
            tracing::warn!("what the process before has left cannot be used, the drive is reset: {e}");
            let _ = keep.release(name);
        })
        .ok()
}

/// The eventfds of the queue pairs, where they are wanted. The admin queue has vector 0 and raises nothing.
fn interrupts(place: &str, device: &VfioDevice, options: &PciOptions) -> Result<Vec<OwnedFd>, TransportError> {
    if !options.interrupts {
        return Ok(Vec::new());
    }
    let wanted = options.queues + 1;
    let mut all = device.interrupts(wanted).map_err(|e| {
        TransportError::Refused(format!("{place}: {wanted} MSI-X vectors: {e}; without interrupts=on it is polled"))
    })?;
    Ok(all.split_off(1))
}

fn plan(place: &str, options: &PciOptions, bar: &Bar) -> Result<ControllerPlan, TransportError> {
    let cap = Cap(bar.read64(register::CAP));
    // A ring of n entries holds n - 1 requests, and CAP.MQES is n - 1.
    let queue = QueuePlan { depth: options.depth.min(cap.mqes().max(1) as u32), priority: options.priority };
    let last = doorbell_offset(Doorbell::CqHead(options.queues));
    if bar.size() < last as usize + 4 {
        let text = format!("{place}: its registers end before the doorbells of {} queues", options.queues);
        return Err(TransportError::Refused(text));
    }
    Ok(ControllerPlan {
        nsid: options.nsid,
        shadow_doorbells: true,
        interrupts: options.interrupts,
        queues: vec![queue; usize::from(options.queues)],
        ams: if cap.ams() & register::ams_supported::WRR != 0 { ams::WRR } else { ams::RR },
        ..ControllerPlan::new(BASE, queue.depth, options.max_io.next_multiple_of(PAGE))
    })
}

impl PciQueue {
    /// Who the controller says it is.
    pub fn identity(&self) -> &ControllerIdentity {
        &self.identity
    }

    /// The eventfd that is signalled when requests end, once, where interrupts were asked for.
    pub fn take_interrupt(&mut self) -> Option<OwnedFd> {
        self.interrupt.take()
    }

    /// Makes its submission queue anew with another QPRIO. Nothing may be in flight; waits for the controller.
    ///
    /// # Errors
    /// Something is in flight, the controller refuses, or the drive is gone.
    pub fn set_class(&mut self, class: Class) -> Result<(), TransportError> {
        self.drive.remake(&mut self.queue, class)
    }

    /// Nothing has come for a while: is the drive still there?
    #[cold]
    fn look(&mut self) -> Result<(), TransportError> {
        self.idle = 0;
        self.drive.health()
    }
}

/// The queue and its port; a macro because they borrow single fields.
macro_rules! parts {
    ($self:ident) => {{
        let PciQueue { memory, queue, drive, .. } = &mut *$self;
        (queue, PciPort { memory, bar: &drive.bar })
    }};
}

impl QueuePair for PciQueue {
    fn depth(&self) -> u32 {
        self.queue.depth()
    }

    fn block_size(&self) -> u32 {
        self.queue.block_size()
    }

    fn capacity(&self) -> u64 {
        self.queue.capacity()
    }

    fn max_io(&self) -> u32 {
        self.max_io
    }

    fn max_zeroes(&self) -> u32 {
        self.queue.max_zeroes()
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        assert!(slot < self.queue.depth(), "slot {slot} of {}", self.queue.depth());
        let at = self.queue.buffer(slot);
        // SAFETY: the range is this slot's own; `self` is borrowed as long as the slice, so no other slice and no request of
        // ours concerns it meanwhile, and the mapping of the whole file is used for the admin queue only. The controller
        // writes it only while the slot is in flight, when the caller must not look (`QueuePair::buffer`).
        let bytes = unsafe { self.memory.slice_mut(at, self.max_io as usize) };
        bytes.expect("the queue's memory is mapped as long as the queue exists")
    }

    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        io.check(self)?;
        let (queue, mut port) = parts!(self);
        queue.submit(&mut port, io)
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        let before = done.len();
        let (queue, mut port) = parts!(self);
        queue.flush(&mut port);
        queue.reap(&mut port, done).map_err(|e| named(&self.drive.place, e))?;
        if done.len() != before {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        if self.idle == LOOK { self.look() } else { Ok(()) }
    }

    fn attend(&mut self) -> Result<(), TransportError> {
        self.look()
    }

    fn leave_open(&mut self) {
        // Without a keeper it ends with this process.
        if self.drive.held.as_ref().is_some_and(|(keep, _)| keep.is_kept()) {
            self.drive.is_left.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_is_not_there_is_named() {
        let address = PciAddress { domain: 0xffff, bus: 0xff, device: 31, function: 7 };
        let e = open(address, &PciOptions::default(), None).unwrap_err();
        assert!(
            matches!(&e, TransportError::Unreachable(text) if text.contains("pci:ffff:ff:1f.7: there is no such PCI device")),
            "{e}"
        );
        for options in [
            PciOptions { depth: 0, ..PciOptions::default() },
            PciOptions { queues: 0, ..PciOptions::default() },
            PciOptions { max_io: 0, ..PciOptions::default() },
        ] {
            assert!(matches!(open(address, &options, None), Err(TransportError::Usage(_))));
        }
    }
}
