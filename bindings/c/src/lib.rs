//! libweir: the host driver and the store's client with a C ABI. `include/weir.h` and `include/weir_store.h` are its manuals; this crate is
//! how they are kept.
//!
//! ```text
//!   weir_open ─────────► Weir ── Target ── node::host::Controller: local, NVMe/TCP, vhost-user
//!   weir_queue_create ─► Handle { polling, Queue } ── node::host::HostQueue; slots, buffers, who asked
//!   weir_store_open ───► store::ConnectedStore ──── weir_store_node::client::Client
//! ```
//! The exported functions check what they are given, and catch a panic before it could leave the library: the handle that it
//! happened on answers WEIR_EINTERNAL from then on. They decide nothing; [`target`] and [`queue`] do.
//!
//! May depend on `weir-node` and what lies below it; nothing may depend on it.

pub mod abi;
pub mod error;
pub mod queue;
pub mod store;
pub mod target;

use abi::{Callback, Completion, ErrorOut, Info, Opts, QueueInfo, QueueOpts};
use error::{Code, Error};
use queue::{Asker, Queue};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use target::{HOST_NQN, Settings, Target, class_from_number};
use weir_driver::IoKind;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// Requests in flight on a queue, where the caller says nothing.
const DEPTH: u32 = 128;
/// Bytes of the longest request, where the caller says nothing.
const MAX_IO: u32 = 128 << 10;
/// Keep alive timeout, where the caller says nothing.
const KEEP_ALIVE_MS: u32 = 60_000;

/// `weir_t`.
pub struct Weir {
    target: Arc<Target>,
}

/// `weir_queue_t`.
pub struct Handle {
    /// Callbacks are running: the queue may not be polled or destroyed.
    polling: AtomicBool,
    queue: Mutex<Queue>,
}

/// Runs `f`; a panic in it becomes an error.
fn guarded<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(Error::of(Code::Internal)))
}

/// As a function that returns a code.
fn code(f: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    guarded(f).unwrap_or_else(|e| e.code as c_int)
}

/// As a function that returns a pointer, null when it fails.
///
/// # Safety
/// `error` is null or writable.
unsafe fn pointer<T>(error: *mut ErrorOut, f: impl FnOnce() -> Result<Box<T>, Error>) -> *mut T {
    let (pointer, said) = match guarded(f) {
        Ok(made) => (Box::into_raw(made), ErrorOut::none()),
        Err(e) => (std::ptr::null_mut(), ErrorOut::new(&e)),
    };
    if !error.is_null() {
        // SAFETY: the caller gave a writable structure, of any alignment.
        unsafe { error.write_unaligned(said) };
    }
    pointer
}

/// # Safety
/// Null, or from `weir_open` and not closed.
unsafe fn weir<'a>(target: *const Weir) -> Result<&'a Weir, Error> {
    // SAFETY: as the caller says; shared references only are made of it until it is closed.
    let weir = unsafe { target.as_ref() }.ok_or_else(|| Error::usage("the target is null"))?;
    weir.target.check_thread()?;
    Ok(weir)
}

/// # Safety
/// Null, or from `weir_queue_create` and not destroyed.
unsafe fn handle<'a>(queue: *const Handle) -> Result<&'a Handle, Code> {
    // SAFETY: as the caller says; shared references only are made of it until it is destroyed.
    unsafe { queue.as_ref() }.ok_or(Code::Usage)
}

impl Handle {
    /// The queue, if no other thread uses it, and this is its thread.
    #[inline]
    fn lock(&self) -> Result<MutexGuard<'_, Queue>, Code> {
        match self.queue.try_lock() {
            Ok(queue) if queue.target().check_thread().is_ok() => Ok(queue),
            Ok(_) => Err(Code::Usage),
            Err(TryLockError::WouldBlock) => Err(Code::Busy),
            // It panicked in the middle of something.
            Err(TryLockError::Poisoned(_)) => Err(Code::Internal),
        }
    }
}

/// # Safety
/// Null, or a string that ends with a zero byte.
unsafe fn string(name: &str, text: *const c_char) -> Result<String, Error> {
    if text.is_null() {
        return Err(Error::usage(format!("{name} is null")));
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(str::to_owned).map_err(|_| Error::usage(format!("{name} is not UTF-8")))
}

/// What the options say, with defaults for what they do not.
///
/// # Safety
/// As [`abi::read`]; the string is one.
unsafe fn settings(opts: *const Opts) -> Result<Settings, Error> {
    // SAFETY: as the caller says.
    let opts = unsafe { abi::read("opts", opts) }?;
    if opts.reserved != 0 {
        return Err(Error::usage("opts.reserved is not 0"));
    }
    let or = |value: u32, default: u32| if value == 0 { default } else { value };
    let hostnqn = match opts.hostnqn.is_null() {
        true => HOST_NQN.to_owned(),
        // SAFETY: as the caller says.
        false => unsafe { string("opts.hostnqn", opts.hostnqn) }?,
    };
    Ok(Settings {
        hostnqn,
        queues: or(opts.queues, 1),
        depth: or(opts.depth, DEPTH),
        max_io: or(opts.max_io, MAX_IO),
        keep_alive: Nanos::from_millis(or(opts.keep_alive_ms, KEEP_ALIVE_MS).into()),
        flags: opts.flags,
    })
}

/// WEIR_ABI_VERSION of the library.
#[unsafe(no_mangle)]
pub extern "C" fn weir_abi_version() -> u32 {
    abi::ABI_VERSION
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn weir_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };
    VERSION.as_ptr()
}

/// What a code means.
#[unsafe(no_mangle)]
pub extern "C" fn weir_strerror(code: c_int) -> *const c_char {
    error::describe(code).as_ptr()
}

/// What an NVMe status says.
///
/// # Safety
/// `text` is null or `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_status_text(status: u16, text: *mut c_char, size: usize) -> c_int {
    code(|| {
        let said = Status::from_field(status).to_string();
        if !text.is_null() && size > 0 {
            let len = said.len().min(size - 1);
            // SAFETY: `len` bytes and a zero byte fit `size`; the texts are ASCII.
            unsafe {
                std::ptr::copy_nonoverlapping(said.as_ptr(), text.cast(), len);
                text.add(len).write(0);
            }
        }
        Ok(said.len() as c_int)
    })
}

/// Opens a target.
///
/// # Safety
/// `url` is null or a string; `opts` is null or as its size says, `hostnqn` in it null or a string; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_open(url: *const c_char, opts: *const Opts, error: *mut ErrorOut) -> *mut Weir {
    // SAFETY: as the caller says.
    unsafe {
        pointer(error, || {
            let target = Target::open(&string("the url", url)?, &settings(opts)?)?;
            Ok(Box::new(Weir { target: Arc::new(target) }))
        })
    }
}

/// Lets go of a target.
///
/// # Safety
/// `target` is null or from [`weir_open`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_close(target: *mut Weir) -> c_int {
    code(|| {
        if !target.is_null() {
            // SAFETY: as the caller says; made by `Box::into_raw` in `weir_open`.
            unsafe {
                weir(target)?;
                drop(Box::from_raw(target));
            }
        }
        Ok(0)
    })
}

/// What a target is.
///
/// # Safety
/// `target` is null or from [`weir_open`]; `info` is null or as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_info(target: *mut Weir, info: *mut Info) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let target = unsafe { weir(target) }?.target.clone();
        let namespace = target.namespace();
        let value = Info {
            size: size_of::<Info>(),
            capacity: namespace.capacity,
            block_size: namespace.block_size,
            nsid: namespace.nsid,
            queues: target.queues(),
            reserved: 0,
            transport: abi::text(target.transport()),
        };
        // SAFETY: as the caller says.
        unsafe { abi::write("info", info, &value) }?;
        Ok(0)
    })
}

/// Creates a queue.
///
/// # Safety
/// `target` is null or from [`weir_open`]; `opts` is null or as its size says; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_create(
    target: *mut Weir,
    opts: *const QueueOpts,
    error: *mut ErrorOut,
) -> *mut Handle {
    // SAFETY: as the caller says.
    unsafe {
        pointer(error, || {
            let weir = weir(target)?;
            let opts = abi::read("opts", opts)?;
            if opts.reserved != 0 {
                return Err(Error::usage("opts.reserved is not 0"));
            }
            let unknown = || Error::usage(format!("opts.io_class: there is no class {}", opts.io_class));
            let class = class_from_number(opts.io_class).ok_or_else(unknown)?;
            let queue = Queue::new(weir.target.clone(), class)?;
            Ok(Box::new(Handle { polling: AtomicBool::new(false), queue: Mutex::new(queue) }))
        })
    }
}

/// Destroys a queue.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`], and not used any more unless this fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_destroy(queue: *mut Handle) -> c_int {
    code(|| {
        if queue.is_null() {
            return Ok(0);
        }
        // SAFETY: as the caller says.
        let handle = unsafe { handle(queue) }.map_err(Error::of)?;
        match handle.lock() {
            // One that panicked goes as it is.
            Ok(_) | Err(Code::Internal) => {}
            Err(code) => return Err(Error::of(code)),
        }
        if handle.polling.load(Ordering::Acquire) {
            return Err(Error::of(Code::Busy));
        }
        // SAFETY: made by `Box::into_raw` in `weir_queue_create`; nobody holds the lock, and nobody else uses it.
        drop(unsafe { Box::from_raw(queue) });
        Ok(0)
    })
}

/// How a queue stands.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; `info` is null or as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_info(queue: *mut Handle, info: *mut QueueInfo) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let value = unsafe { handle(queue) }.and_then(Handle::lock).map_err(Error::of)?.info();
        // SAFETY: as the caller says.
        unsafe { abi::write("info", info, &value) }?;
        Ok(0)
    })
}

/// Why a queue broke.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_error(queue: *mut Handle, error: *mut ErrorOut) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let queue = unsafe { handle(queue) }.and_then(Handle::lock).map_err(Error::of)?;
        let said = queue.broken().map_or_else(ErrorOut::none, ErrorOut::new);
        if !error.is_null() {
            // SAFETY: the caller gave a writable structure, of any alignment.
            unsafe { error.write_unaligned(said) };
        }
        Ok(said.code)
    })
}

/// A buffer that requests are not copied to or from.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_buffer_alloc(queue: *mut Handle) -> *mut c_void {
    let buffer = guarded(|| {
        // SAFETY: as the caller says.
        let mut queue = unsafe { handle(queue) }.and_then(Handle::lock).map_err(Error::of)?;
        Ok(queue.alloc())
    });
    buffer.ok().flatten().map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

/// Takes a buffer back.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_buffer_free(queue: *mut Handle, buffer: *mut c_void) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let mut queue = unsafe { handle(queue) }.and_then(Handle::lock).map_err(Error::of)?;
        if !buffer.is_null() {
            queue.release(buffer.cast()).map_err(Error::of)?;
        }
        Ok(0)
    })
}

/// Every request comes through here. An error costs no text: a full queue is nothing special.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; the memory is as [`Queue::submit`] wants it.
#[inline]
unsafe fn submit(
    queue: *mut Handle,
    kind: IoKind,
    buffer: *mut c_void,
    (offset, len): (u64, u32),
    asker: Asker,
) -> c_int {
    let submitted = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as the caller says.
        unsafe { handle(queue)?.lock()?.submit(kind, buffer.cast(), offset, len, asker) }
    }));
    match submitted {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code as c_int,
        Err(_) => Code::Internal as c_int,
    }
}

/// Reads.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; `buffer` is null or `length` bytes that are the request's until its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_read(
    queue: *mut Handle,
    buffer: *mut c_void,
    offset: u64,
    length: u32,
    callback: Callback,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { submit(queue, IoKind::Read, buffer, (offset, length), Asker { callback, user }) }
}

/// Writes.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; `buffer` is null or `length` bytes that do not change until the request's end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_write(
    queue: *mut Handle,
    buffer: *const c_void,
    offset: u64,
    length: u32,
    callback: Callback,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says; a write only reads the buffer.
    unsafe { submit(queue, IoKind::Write, buffer.cast_mut(), (offset, length), Asker { callback, user }) }
}

/// Trims.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_trim(
    queue: *mut Handle,
    offset: u64,
    length: u32,
    callback: Callback,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { submit(queue, IoKind::Trim, std::ptr::null_mut(), (offset, length), Asker { callback, user }) }
}

/// Writes zeroes.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_write_zeroes(
    queue: *mut Handle,
    offset: u64,
    length: u32,
    callback: Callback,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { submit(queue, IoKind::WriteZeroes, std::ptr::null_mut(), (offset, length), Asker { callback, user }) }
}

/// Flushes.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_flush(queue: *mut Handle, callback: Callback, user: *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    unsafe { submit(queue, IoKind::Flush, std::ptr::null_mut(), (0, 0), Asker { callback, user }) }
}

/// Sends what was submitted and ends what is done.
///
/// # Safety
/// `queue` is null or from [`weir_queue_create`]; `ended` is null or `max` writable entries; the memory of the requests in flight
/// is still theirs; the callbacks may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_poll(queue: *mut Handle, ended: *mut Completion, max: u32) -> c_int {
    // SAFETY: as the caller says.
    let polled = catch_unwind(AssertUnwindSafe(|| unsafe { poll(queue, ended, max) }));
    match polled {
        Ok(Ok(count)) => count.min(c_int::MAX as u32) as c_int,
        Ok(Err(code)) => code as c_int,
        Err(_) => Code::Internal as c_int,
    }
}

/// Clears the mark that callbacks are running, however the poll ends.
struct Polling<'a>(&'a AtomicBool);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// # Safety
/// As [`weir_poll`].
unsafe fn poll(queue: *mut Handle, ended: *mut Completion, max: u32) -> Result<u32, Code> {
    // SAFETY: as the caller says.
    let handle = unsafe { handle(queue) }?;
    let mut locked = handle.lock()?;
    if handle.polling.swap(true, Ordering::AcqRel) {
        return Err(Code::Busy);
    }
    let _polling = Polling(&handle.polling);
    // SAFETY: as the caller says.
    unsafe { locked.poll() };
    let mut count = 0;
    while count < max {
        let Some(one) = locked.next_ended() else { break };
        if !ended.is_null() {
            // SAFETY: below `max`, and the caller gave as many entries.
            unsafe { ended.add(count as usize).write_unaligned(one.completion) };
        }
        count += 1;
        if let Some(callback) = one.asker.callback {
            // The callback may submit to this queue.
            drop(locked);
            let Completion { user, result, status, .. } = one.completion;
            // SAFETY: the caller gave a function of this type for this pointer.
            unsafe { callback(user, result, status) };
            match handle.lock() {
                Ok(again) => locked = again,
                // Another thread came in between: what is left is for the next poll.
                Err(_) => return Ok(count),
            }
        }
    }
    match locked.broken() {
        Some(e) if count == 0 && max > 0 => Err(e.code),
        _ => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_the_queue_says_so_from_then_on() {
        assert_eq!(code(|| panic!("on purpose")), Code::Internal as c_int);
        let mut error = ErrorOut::none();
        // SAFETY: the strings, options and structures live longer than the calls; the handles are used until they are freed.
        unsafe {
            let broken: *mut Weir = pointer(&mut error, || panic!("on purpose"));
            assert!(broken.is_null() && error.code == Code::Internal as c_int);
            let target = weir_open(c"local:ram?capacity=16MiB".as_ptr(), std::ptr::null(), &mut error);
            let queue = weir_queue_create(target, std::ptr::null(), &mut error);
            assert!(!queue.is_null());
            assert_eq!(weir_poll(queue, std::ptr::null_mut(), 1), 0);
            let halfway = catch_unwind(AssertUnwindSafe(|| {
                let _held = (*queue).queue.lock();
                panic!("on purpose");
            }));
            assert!(halfway.is_err());
            assert_eq!(weir_poll(queue, std::ptr::null_mut(), 1), Code::Internal as c_int);
            assert_eq!(weir_flush(queue, None, std::ptr::null_mut()), Code::Internal as c_int);
            assert!(weir_buffer_alloc(queue).is_null());
            assert_eq!(weir_queue_destroy(queue), 0);
            assert_eq!(weir_close(target), 0);
        }
    }
}
