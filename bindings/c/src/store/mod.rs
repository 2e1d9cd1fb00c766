//! The calls of `weir_store.h`: the files of a store from C.
//!
//! ```text
//!   weir_store_open ───► ConnectedStore ──── Client; another one when its session is over
//!   weir_file_open ────► OpenFile ─ File          reads and writes that wait
//!   weir_dir_open ─────► OpenDir ── Listing       names, in order
//!   weir_store_queue_create ─► StoreQueue ── Pending, Loan     reads and writes that do not, of the caller's memory
//! ```
//! C holds numbers in the guise of pointers ([`handles`]): one that is null, was closed or never was is an error and no crash. The exported
//! functions check what they are given, and catch a panic before it could leave the library.

pub mod abi;
pub mod failure;
pub mod files;
pub mod handles;
pub mod names;
pub mod queue;

use crate::abi as common;
use crate::abi::ErrorOut;
use abi::StoreOpts;
use failure::{StoreFailure, made, status};
use handles::{Handle, Handles};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_store_node::client::{Client, ClientError, ClientOptions};

/// Every store that is open.
pub static STORES: Handles<ConnectedStore> = Handles::new("store");

/// `weir_store_t`: a client, and what another one is made with when its session is over, as after a sleep of the machine.
#[derive(Debug)]
pub struct ConnectedStore {
    address: String,
    options: ClientOptions,
    client: Mutex<Client>,
}

impl ConnectedStore {
    /// Connects to a metadata service.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(address: String, options: ClientOptions) -> Result<Self, ClientError> {
        let client = Mutex::new(Client::connect(&address, options.clone())?);
        Ok(Self { address, options, client })
    }

    /// The client, anew where its session is over.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn client(&self) -> Result<Client, ClientError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.is_over() {
            *client = Client::connect(&self.address, self.options.clone())?;
        }
        Ok(client.clone())
    }
}

/// The bytes of a string.
///
/// # Errors
/// It is null.
///
/// # Safety
/// Null, or a string that ends with a zero byte and lives as long as what is returned.
pub(crate) unsafe fn bytes<'a>(name: &str, text: *const c_char) -> Result<&'a [u8], StoreFailure> {
    if text.is_null() {
        return Err(StoreFailure::usage(format!("{name} is null")));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A string of the options; none where it is null.
///
/// # Errors
/// It is not UTF-8.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional(name: &str, text: *const c_char) -> Result<Option<String>, StoreFailure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    let text = unsafe { bytes(name, text) }?;
    let text = std::str::from_utf8(text).map_err(|_| StoreFailure::usage(format!("{name} is not UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// That a field which has no meaning yet is 0.
pub(crate) fn unused(name: &str, value: u32) -> Result<(), StoreFailure> {
    match value {
        0 => Ok(()),
        _ => Err(StoreFailure::usage(format!("{name} is not 0"))),
    }
}

/// That no other flags than these are set.
pub(crate) fn known_flags(flags: u32, known: u32) -> Result<(), StoreFailure> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(StoreFailure::usage(format!("flags: {unknown:#x} is none that this call knows"))),
    }
}

/// # Safety
/// `opts` is null or as its size says; its strings are null or strings.
unsafe fn settings(opts: *const StoreOpts) -> Result<ClientOptions, StoreFailure> {
    // SAFETY: as the caller says.
    let opts = unsafe { common::read("opts", opts) }?;
    unused("opts.reserved", opts.reserved)?;
    known_flags(opts.flags, abi::ALLOW_FILES)?;
    let default = ClientOptions::default();
    let time = |ms: u32, default: Duration| if ms == 0 { default } else { Duration::from_millis(ms.into()) };
    // SAFETY: as the caller says.
    let (name, location, host_nqn) = unsafe {
        (
            optional("opts.name", opts.name)?,
            optional("opts.location", opts.location)?,
            optional("opts.hostnqn", opts.hostnqn)?,
        )
    };
    Ok(ClientOptions {
        name: name.unwrap_or(default.name),
        location: location.unwrap_or(default.location),
        host_nqn: host_nqn.unwrap_or(default.host_nqn),
        deadline: time(opts.deadline_ms, default.deadline),
        drive_timeout: time(opts.drive_timeout_ms, default.drive_timeout),
        allow_files: opts.flags & abi::ALLOW_FILES != 0,
        spin: default.spin,
        record: default.record,
    })
}

/// Connects to a store.
///
/// # Safety
/// `address` is null or a string; `opts` is null or as its size says, its strings null or strings; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_store_open(
    address: *const c_char,
    opts: *const StoreOpts,
    error: *mut ErrorOut,
) -> *mut Handle {
    // SAFETY: as the caller says.
    unsafe {
        made(error, || {
            let options = settings(opts)?;
            bytes("the address", address)?;
            let address = optional("the address", address)?.unwrap_or_default();
            Ok(STORES.add(ConnectedStore::connect(address, options)?))
        })
    }
}

/// Lets go of a store.
#[unsafe(no_mangle)]
pub extern "C" fn weir_store_close(store: *mut Handle) -> c_int {
    status(|| {
        if !store.is_null() {
            STORES.remove(store)?;
        }
        Ok(0)
    })
}

/// Why the last call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn weir_store_reason() -> *const c_char {
    failure::reason()
}
