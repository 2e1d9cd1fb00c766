//! What happens when a guest's memory file is truncated under its mapping: the kernel sends SIGBUS at the next access. A
//! front end could end the whole node that way, so the handler here puts a private page of zeroes at the address, if it is
//! in a mapping that was announced, and lets the access continue. Any other SIGBUS is whose it was before: in a program that
//! handles it itself (and uses libweir) that program's, else it ends the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

const SLOTS: usize = 16384;

struct Slot {
    start: AtomicUsize,
    /// 0 when the slot is free, 1 while it is being filled.
    len: AtomicUsize,
    /// Registers of a device: what is gone reads as all ones.
    is_registers: AtomicBool,
    /// A page was put into it.
    is_plugged: AtomicBool,
}

impl Slot {
    const fn free() -> Slot {
        Slot {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_registers: AtomicBool::new(false),
            is_plugged: AtomicBool::new(false),
        }
    }
}

static WATCHED: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// A mapping that is watched until this is dropped.
#[derive(Debug)]
pub struct GuardedMapping(usize);

impl Drop for GuardedMapping {
    fn drop(&mut self) {
        WATCHED[self.0].len.store(0, Ordering::Release);
    }
}

impl GuardedMapping {
    /// Whether an access to it found nothing, and was given a page of this process instead.
    pub fn was_plugged(&self) -> bool {
        WATCHED[self.0].is_plugged.load(Ordering::Acquire)
    }
}

/// Watches a mapping; `None` when there are too many.
pub fn watch(start: usize, len: usize) -> Option<GuardedMapping> {
    watch_as(start, len, false)
}

/// Watches a mapping of a device's registers, which read as all ones once the device is gone, as on PCI; `None` when there are too many.
pub fn watch_registers(start: usize, len: usize) -> Option<GuardedMapping> {
    watch_as(start, len, true)
}

fn watch_as(start: usize, len: usize, is_registers: bool) -> Option<GuardedMapping> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
    let at = WATCHED.iter().position(|s| s.len.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok())?;
    WATCHED[at].start.store(start, Ordering::Relaxed);
    WATCHED[at].is_registers.store(is_registers, Ordering::Relaxed);
    WATCHED[at].is_plugged.store(false, Ordering::Relaxed);
    WATCHED[at].len.store(len, Ordering::Release);
    USED.fetch_max(at + 1, Ordering::Release);
    Some(GuardedMapping(at))
}

fn watched(address: usize) -> Option<&'static Slot> {
    let used = USED.load(Ordering::Acquire);
    WATCHED[..used].iter().find(|s| {
        let len = s.len.load(Ordering::Acquire);
        len > 1 && address.wrapping_sub(s.start.load(Ordering::Relaxed)) < len
    })
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() {
    // SAFETY: the handler below only uses atomics and system calls that are safe in a signal handler; the structures are
    // zeroed, which is a valid value of them, and filled before use.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, &mut before) == 0 {
            let _ = BEFORE.set(before);
        }
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() }.addr();
    if let Some(slot) = watched(address)
        && plug(address, slot.is_registers.load(Ordering::Relaxed))
    {
        slot.is_plugged.store(true, Ordering::Release);
        return;
    }
    // SAFETY: back to what there was; returning repeats the access, and then that decides.
    unsafe {
        match BEFORE.get() {
            Some(before) => libc::sigaction(signal, before, std::ptr::null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as libc::c_int,
        };
    }
}

/// Puts zeroes, or all ones, at the page of `address`. Where the mapping is of huge pages this fails, and the process ends.
fn plug(address: usize, with_ones: bool) -> bool {
    const PAGE: usize = 4096;
    let page = std::ptr::without_provenance_mut::<libc::c_void>(address & !(PAGE - 1));
    let (access, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    if with_ones {
        // SAFETY: a new page at an address of the kernel's choice, filled and then moved as a whole: no thread sees it half full. It comes to
        // a page of a mapping that is watched, hence of a `Bar`, which never makes references into it.
        unsafe {
            let full = libc::mmap(std::ptr::null_mut(), PAGE, access, private, -1, 0);
            if full == libc::MAP_FAILED {
                return false;
            }
            full.cast::<u8>().write_bytes(0xff, PAGE);
            let moved = libc::mremap(full, PAGE, PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, page);
            return moved != libc::MAP_FAILED;
        }
    }
    // SAFETY: the page belongs to a mapping that is watched, hence to a `GuestMemory`, which never makes references into
    // it; replacing its content is what the other process could have done as well.
    let got = unsafe { libc::mmap(page, PAGE, access, private | libc::MAP_FIXED, -1, 0) };
    got != libc::MAP_FAILED
}
