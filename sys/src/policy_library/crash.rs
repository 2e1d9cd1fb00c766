//! A process that dies inside a policy library says in which one, and in which function.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Once, OnceLock};

/// What a thread that breaks a rule of the machine, or gives up, is sent.
const SIGNALS: [i32; 4] = [libc::SIGSEGV, libc::SIGABRT, libc::SIGFPE, libc::SIGILL];

/// Where a thread is.
#[derive(Clone, Copy)]
struct Inside {
    library: (*const u8, usize),
    function: &'static str,
}

thread_local! {
    static INSIDE: Cell<Option<Inside>> = const { Cell::new(None) };
}

/// What was to happen before, by place in [`SIGNALS`].
static BEFORE: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

/// Calls a function of the library at `path`.
pub(super) fn within<T>(path: &Path, function: &'static str, call: impl FnOnce() -> T) -> T {
    let name = path.as_os_str().as_bytes();
    let outer = INSIDE.replace(Some(Inside { library: (name.as_ptr(), name.len()), function }));
    let answer = call();
    INSIDE.set(outer);
    answer
}

/// Has the process say where it dies, if that is inside a library; what would have happened happens then.
pub(super) fn report_the_library(path: &Path) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(e) = install() {
            tracing::debug!("policy library {}: a crash inside will not be reported: {e}", path.display());
        }
    });
}

fn install() -> std::io::Result<()> {
    let mut before = [MaybeUninit::<libc::sigaction>::zeroed(); SIGNALS.len()];
    for (signal, old) in SIGNALS.iter().zip(&mut before) {
        // SAFETY: the structure is written by the call.
        if unsafe { libc::sigaction(*signal, std::ptr::null(), old.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    // SAFETY: each was written above.
    let _ = BEFORE.set(before.map(|old| unsafe { old.assume_init() }));
    for signal in SIGNALS {
        // SAFETY: a structure of zeroes is one without flags, mask and handler.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = died;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler calls only what a handler may call: write, sigaction, raise.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Puts back what was to happen, which happens when the instruction that failed is tried again, or abort() raises its signal once more.
extern "C" fn died(signal: i32, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if let Some(inside) = INSIDE.get() {
        for part in [
            "weir: the process dies inside the policy library ".as_bytes(),
            b"",
            b", in its ",
            inside.function.as_bytes(),
            b"()\n",
        ] {
            let (bytes, length) = if part.is_empty() { inside.library } else { (part.as_ptr(), part.len()) };
            // SAFETY: bytes that live for as long as the thread is inside. If they cannot be written there is nobody to tell.
            let _ = unsafe { libc::write(2, bytes.cast(), length) };
        }
    }
    let place = SIGNALS.iter().position(|known| *known == signal);
    let Some(old) = BEFORE.get().zip(place).map(|(all, place)| &all[place]) else { return };
    // SAFETY: what the process had before; the information is the kernel's. A signal that somebody sent does not come again by itself.
    unsafe {
        libc::sigaction(signal, old, std::ptr::null_mut());
        if !about.is_null() && (*about).si_code <= 0 && signal != libc::SIGABRT {
            libc::raise(signal);
        }
    }
}
