//! Reads and writes that do not wait: they are begun on a queue, and end in its poll.
//!
//! ```text
//!   begin ─► pending ─ over ─► result ─ the memory is back ─► completion, callback
//! ```
//! A request ends for its caller when nothing uses its memory any more; after a deadline that may be later than its result is known.

use super::STORES;
use super::abi::{StoreCallback, StoreCompletion};
use super::failure::{StoreFailure, answer, made, status};
use super::files::{FILES, OpenFile, check_memory};
use super::handles::{Handle, Handles};
use crate::abi::ErrorOut;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use weir_store_node::client::{ClientError, File, Pending};
use weir_sys::memory::lend::{LentBytes, Loan, lend_until_dropped};

/// Requests in flight on a queue, where the caller says nothing.
const DEPTH: u32 = 32;
/// The most that a queue may have in flight.
const DEPTH_MAX: u32 = 4096;
/// Between looks for memory that a drive has still.
const DRAIN_LOOK: Duration = Duration::from_millis(1);

static QUEUES: Handles<StoreQueue> = Handles::new("queue");

/// `weir_store_queue_t`.
#[derive(Debug)]
struct StoreQueue {
    /// Callbacks are running: the queue may not be polled or destroyed.
    polling: AtomicBool,
    state: Mutex<State>,
}

/// What a queue has in flight, and what it has told.
#[derive(Debug)]
struct State {
    depth: usize,
    is_destroyed: bool,
    in_flight: Vec<InFlight>,
    /// Over, and not reported yet.
    ended: VecDeque<Ended>,
    /// Texts of the completions that the last poll has reported: C has pointers to them.
    told: Vec<CString>,
}

/// Where the end of a request goes.
#[derive(Clone, Copy, Debug)]
struct Asker {
    callback: StoreCallback,
    user: *mut c_void,
}

// SAFETY: the pointer is the caller's, and is only given back to it.
unsafe impl Send for Asker {}

#[derive(Debug)]
struct InFlight {
    file: Arc<OpenFile>,
    /// While it is under way.
    pending: Option<Pending>,
    /// From then on, until the memory is back.
    result: Option<Result<usize, ClientError>>,
    loan: Loan,
    asker: Asker,
}

#[derive(Debug)]
struct Ended {
    result: Result<usize, ClientError>,
    asker: Asker,
}

impl InFlight {
    /// Its end, once, if it has come.
    fn advance(&mut self) -> Option<Ended> {
        if let Some(pending) = self.pending.take_if(|pending| pending.is_done()) {
            self.result = Some(pending.wait().result);
        }
        if !self.loan.is_over() {
            return None;
        }
        let result = self.result.take()?;
        self.file.ended();
        Some(Ended { result, asker: self.asker })
    }
}

impl State {
    /// Looks for what is over.
    fn advance(&mut self) {
        let Self { in_flight, ended, .. } = self;
        in_flight.retain_mut(|one| match one.advance() {
            Some(end) => {
                ended.push_back(end);
                false
            }
            None => true,
        });
    }

    /// Waits until something may be over, but no longer than that.
    fn wait(&self, timeout: Duration) {
        let is_draining = self.in_flight.iter().any(|one| one.pending.is_none());
        let timeout = if is_draining { timeout.min(DRAIN_LOOK) } else { timeout };
        let mut pending = self.in_flight.iter().filter_map(|one| one.pending.as_ref()).peekable();
        match pending.peek() {
            Some(_) => drop(Pending::wait_any(pending, timeout)),
            None if is_draining => std::thread::sleep(timeout),
            None => {}
        }
    }

    /// Waits until something has ended, nothing is in flight, or the time is over; no time: without an end.
    fn wait_for_one(&mut self, timeout: Option<Duration>) {
        let begun = Instant::now();
        self.advance();
        while self.ended.is_empty() && !self.in_flight.is_empty() {
            let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                return;
            }
            self.wait(left.unwrap_or(Duration::from_secs(1)));
            self.advance();
        }
    }

    /// The completion of what has ended; its text stays until the next poll.
    fn completion(&mut self, ended: &Ended) -> StoreCompletion {
        let user = ended.asker.user;
        match ended.result.clone().map_err(StoreFailure::from) {
            Ok(count) => StoreCompletion { user, result: count as i64, reason: std::ptr::null() },
            Err(failure) => {
                let text = failure.reason();
                // The bytes of a CString stay where they are when it is moved.
                let reason = text.as_ptr();
                self.told.push(text);
                StoreCompletion { user, result: failure.code(), reason }
            }
        }
    }
}

impl StoreQueue {
    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreFailure> {
        match self.state.try_lock() {
            Ok(state) if state.is_destroyed => Err(StoreFailure::usage("the queue is destroyed")),
            Ok(state) => Ok(state),
            Err(TryLockError::WouldBlock) => Err(StoreFailure::new(Errno::BUSY, "another thread uses the queue")),
            // It panicked in the middle of something.
            Err(TryLockError::Poisoned(_)) => Err(StoreFailure::internal()),
        }
    }

    fn check_idle(&self) -> Result<(), StoreFailure> {
        match self.polling.load(Ordering::Acquire) {
            true => Err(StoreFailure::new(Errno::BUSY, "a callback of the queue is running")),
            false => Ok(()),
        }
    }
}

/// Creates a queue.
///
/// # Safety
/// `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_queue_create(store: *mut Handle, depth: u32, error: *mut ErrorOut) -> *mut Handle {
    // SAFETY: as the caller says.
    unsafe {
        made(error, || {
            STORES.get(store)?;
            let depth = match depth {
                0 => DEPTH,
                1..=DEPTH_MAX => depth,
                _ => {
                    return Err(StoreFailure::usage(format!(
                        "depth: {depth}; a queue takes 1 to {DEPTH_MAX} requests"
                    )));
                }
            };
            let state = State {
                depth: depth as usize,
                is_destroyed: false,
                in_flight: Vec::new(),
                ended: VecDeque::new(),
                told: Vec::new(),
            };
            Ok(QUEUES.add(StoreQueue { polling: AtomicBool::new(false), state: Mutex::new(state) }))
        })
    }
}

/// Destroys a queue when what is in flight has ended.
#[unsafe(no_mangle)]
pub extern "C" fn weir_store_queue_destroy(queue: *mut Handle) -> c_int {
    status(|| {
        if queue.is_null() {
            return Ok(0);
        }
        let taken = QUEUES.get(queue)?;
        let mut state = taken.lock()?;
        taken.check_idle()?;
        while !state.in_flight.is_empty() {
            state.ended.clear();
            state.wait_for_one(None);
        }
        state.is_destroyed = true;
        QUEUES.remove(queue)?;
        Ok(0)
    })
}

/// Memory of a request, as the caller has given it.
#[derive(Clone, Copy, Debug)]
struct Memory {
    start: *mut c_void,
    length: usize,
    can_fill: bool,
}

/// # Safety
/// The memory is null or `length` bytes, which are the request's until it has ended.
unsafe fn begin(
    file: *mut Handle,
    queue: *mut Handle,
    memory: Memory,
    asker: Asker,
    what: impl FnOnce(&File, LentBytes) -> Result<Pending, ClientError>,
) -> c_int {
    status(|| {
        let (file, queue) = (FILES.get(file)?, QUEUES.get(queue)?);
        let Memory { start, length, can_fill } = memory;
        check_memory(start, length)?;
        if !can_fill {
            file.check_writable()?;
        }
        let mut state = queue.lock()?;
        if state.in_flight.len() + state.ended.len() >= state.depth {
            let text = format!("{} requests are in flight, which is all that the queue takes: poll first", state.depth);
            return Err(StoreFailure::new(Errno::AGAIN, text));
        }
        let start = NonNull::new(start.cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: as the caller says: nobody else uses the memory until the completion is reported, and that is after the loan is over.
        let (lent, loan) = unsafe { lend_until_dropped(NonNull::slice_from_raw_parts(start, length), can_fill) };
        let pending = file.begin(|open| what(open, lent))?;
        state.in_flight.push(InFlight { file, pending: Some(pending), result: None, loan, asker });
        Ok(0)
    })
}

/// Begins to read.
///
/// # Safety
/// `buffer` is null or `length` bytes that are the request's until it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_begin_read(
    file: *mut Handle,
    queue: *mut Handle,
    buffer: *mut c_void,
    offset: u64,
    length: usize,
    callback: StoreCallback,
    user: *mut c_void,
) -> c_int {
    let (memory, asker) = (Memory { start: buffer, length, can_fill: true }, Asker { callback, user });
    // SAFETY: as the caller says.
    unsafe { begin(file, queue, memory, asker, |file, lent| file.begin_read_lent(offset, lent)) }
}

/// Begins to write.
///
/// # Safety
/// `buffer` is null or `length` bytes that do not change until the request has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_file_begin_write(
    file: *mut Handle,
    queue: *mut Handle,
    buffer: *const c_void,
    offset: u64,
    length: usize,
    callback: StoreCallback,
    user: *mut c_void,
) -> c_int {
    let memory = Memory { start: buffer.cast_mut(), length, can_fill: false };
    // SAFETY: as the caller says; a write only reads the buffer.
    unsafe { begin(file, queue, memory, Asker { callback, user }, |file, lent| file.begin_write_lent(offset, lent)) }
}

/// Clears the mark that callbacks are running, however the poll ends.
struct Polling<'a>(&'a AtomicBool);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Ends at most `max` requests that are over.
///
/// # Safety
/// `ended` is null or `max` writable entries; the memory of the requests in flight is still theirs; the callbacks may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_poll(
    queue: *mut Handle,
    ended: *mut StoreCompletion,
    max: u32,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe { poll(queue, ended, max, timeout_ms) }) as c_int
}

/// # Safety
/// As [`weir_store_poll`].
unsafe fn poll(
    queue: *mut Handle,
    ended: *mut StoreCompletion,
    max: u32,
    timeout_ms: c_int,
) -> Result<i64, StoreFailure> {
    let queue = QUEUES.get(queue)?;
    let mut state = queue.lock()?;
    queue.check_idle()?;
    queue.polling.store(true, Ordering::Release);
    let _polling = Polling(&queue.polling);
    state.told.clear();
    if max > 0 {
        state.wait_for_one(u64::try_from(timeout_ms).ok().map(Duration::from_millis));
    }
    let mut count = 0;
    while count < max.min(c_int::MAX as u32) {
        let Some(one) = state.ended.pop_front() else { break };
        let completion = state.completion(&one);
        if !ended.is_null() {
            // SAFETY: below `max`, and the caller gave as many entries.
            unsafe { ended.add(count as usize).write_unaligned(completion) };
        }
        count += 1;
        if let Some(callback) = one.asker.callback {
            // The callback may begin requests on this queue.
            drop(state);
            // SAFETY: the caller gave a function of this type.
            unsafe { callback(&raw const completion) };
            match queue.lock() {
                Ok(again) => state = again,
                // Another thread came in between: what is left is for the next poll.
                Err(_) => return Ok(count.into()),
            }
        }
    }
    Ok(count.into())
}
