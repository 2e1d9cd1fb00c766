//! What a build with `-C instrument-coverage` and the feature `coverage` counts: a number for each region of code, going up as it runs.
//! The fuzzer reads them to learn which input went where no other did.

#[cfg(feature = "coverage")]
unsafe extern "C" {
    // The compiler's profiling runtime, linked by `-C instrument-coverage`.
    fn __llvm_profile_begin_counters() -> *mut u64;
    fn __llvm_profile_end_counters() -> *mut u64;
}

/// Hands every counter of the program to `look`, then sets all of them to zero. False in a build that counts nothing.
/// Others that run at the same time count as well, so there should be none.
#[cfg(feature = "coverage")]
pub fn take(look: &mut dyn FnMut(usize, u64)) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};
    // SAFETY: the runtime's own bounds of the section of counters: words, aligned, alive as long as the program, and readable
    // and writable through atomics, which is what they are here. Instrumented code adds to them without: a count may be lost.
    let counters = unsafe {
        let (begin, end) = (__llvm_profile_begin_counters(), __llvm_profile_end_counters());
        std::slice::from_raw_parts(begin.cast::<AtomicU64>(), end.offset_from(begin) as usize)
    };
    for (index, counter) in counters.iter().enumerate() {
        let count = counter.load(Ordering::Relaxed);
        if count != 0 {
            look(index, count);
            counter.store(0, Ordering::Relaxed);
        }
    }
    true
}

/// Hands every counter of the program to `look`, then sets all of them to zero. False in a build that counts nothing, as this one.
#[cfg(not(feature = "coverage"))]
pub fn take(_: &mut dyn FnMut(usize, u64)) -> bool {
    false
}
