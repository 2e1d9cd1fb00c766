//! What happens when a guest's memory file is truncated under its mapping: the kernel sends SIGBUS at the next access. A
//! front end could end the whole node that way, so the handler here puts a private page of zeroes at the address, if it is
//! in a mapping that was announced, and lets the access continue. Any other SIGBUS is whose it was before: in a program that
//! handles it itself (and uses libweir) that program's, else it ends the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

const SLOTS: usize = 16384;

struct Slot {
    start: AtomicUsize,
    /// 0 when the slot is free, 1 while it is being filled.
    len: AtomicUsize,
}

static WATCHED: [Slot; SLOTS] = [const { Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// A mapping that is watched until this is dropped.
#[derive(Debug)]
pub struct GuardedMapping(usize);

impl Drop for GuardedMapping {
    fn drop(&mut self) {
        WATCHED[self.0].len.store(0, Ordering::Release);
    }
}

/// Watches a mapping; `None` when there are too many.
pub fn watch(start: usize, len: usize) -> Option<GuardedMapping> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
    let at = WATCHED.iter().position(|s| s.len.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok())?;
    WATCHED[at].start.store(start, Ordering::Relaxed);
    WATCHED[at].len.store(len, Ordering::Release);
    USED.fetch_max(at + 1, Ordering::Release);
    Some(GuardedMapping(at))
}

fn is_watched(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    WATCHED[..used].iter().any(|s| {
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
    if is_watched(address) && plug(address) {
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

/// Puts zeroes at the page of `address`. Where the mapping is of huge pages this fails, and the process ends.
fn plug(address: usize) -> bool {
    const PAGE: usize = 4096;
    let page = std::ptr::without_provenance_mut::<libc::c_void>(address & !(PAGE - 1));
    // SAFETY: the page belongs to a mapping that is watched, hence to a `GuestMemory`, which never makes references into
    // it; replacing its content is what the other process could have done as well.
    let got = unsafe {
        libc::mmap(
            page,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    got != libc::MAP_FAILED
}
