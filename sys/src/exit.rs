//! What is done when the process ends in good order: by `exit`, or by the return of its `main`, in whatever language that is written. Values in
//! statics, and those that a program never drops, have no other end.

use std::ffi::c_int;
use std::sync::{Mutex, Once, PoisonError};

static CALLS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());
static REGISTERED: Once = Once::new();

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

extern "C" fn at_end() {
    let calls = std::mem::take(&mut *CALLS.lock().unwrap_or_else(PoisonError::into_inner));
    for call in calls {
        // A panic must not go through C.
        let _ = std::panic::catch_unwind(call);
    }
}

/// Makes a call at the end of the process, once however often it is named. Other threads still run then. It is not made where the process is killed, or ends by
/// `_exit`.
pub fn at_exit(call: fn()) {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    if !calls.iter().any(|known| std::ptr::fn_addr_eq(*known, call)) {
        calls.push(call);
    }
    drop(calls);
    REGISTERED.call_once(|| {
        // SAFETY: the function takes and returns nothing, stays for as long as this code is loaded, and does not unwind.
        let registered = unsafe { atexit(at_end) };
        if registered != 0 {
            eprintln!(
                "weir: atexit: there is no room for one more call; what is done at the end of the process is left out"
            );
        }
    });
}
