//! A drive's policies in a shared library: somebody's own victim choice, wear levelling or separation of data of a flash drive, or what commands
//! cost in arbitration, in C or any language that has C's calls, without a change of this program. `bindings/c/include/weir_policy.h` is what it is written against.
//!
//! ```text
//!   PolicyLibrary::open ──► dlopen, `weir_policy`, its version and functions checked
//!          ├─ install(flash) ──► create() ──► VictimPolicy, WearPolicy, Separation of one drive, behind one lock
//!          └─ cost_policy() ──► create() ──► CostPolicy of one drive
//! ```
//! What a library answers is checked by the drive's engine as any policy's is: it can make a drive slow, not wrong. A function that reports a failure is
//! not called again; the engine decides from then on, and [`InstalledPolicy::failure`] says what happened. The library runs in this process: one that
//! writes where it must not, or aborts, ends the process, which says first in which library it was (`crash`).
//!
//! A library stays loaded until the process ends: code of others may have left threads or thread-local data behind.

mod abi;
mod crash;
mod policies;

use abi::Policy;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_controller::CostPolicy;
use weir_flash::Flash;

pub use policies::InstalledPolicy;

/// Bytes of a library's own error message at the most, with the zero at its end.
const MESSAGE_MAX: usize = 256;

/// Why a library cannot be used: which one, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

/// A library that is loaded, and fits this program.
#[derive(Clone, Debug)]
pub struct PolicyLibrary {
    path: PathBuf,
    name: String,
    policy: &'static Policy,
}

impl PolicyLibrary {
    /// Loads the library at an absolute path. Its initialisers run.
    ///
    /// # Errors
    /// There is no such file, everybody may write to it, it is no shared library of this machine, has no `weir_policy`, was built against
    /// another version of the header, or decides nothing.
    pub fn open(path: &Path) -> Result<PolicyLibrary, PolicyError> {
        let fail = |what: &str| PolicyError(format!("policy library {}: {what}", path.display()));
        if !path.is_absolute() {
            return Err(fail("the path is not absolute; give the whole path"));
        }
        let about = std::fs::metadata(path).map_err(|e| fail(&e.to_string()))?;
        if !about.is_file() {
            return Err(fail("it is no file"));
        }
        if about.permissions().mode() & 0o002 != 0 {
            return Err(fail("everybody may write to it, and it would run as this program; run: chmod o-w on it"));
        }
        let entry = load(path).map_err(|why| fail(&why))?;
        crash::report_the_library(path);
        // SAFETY: the header says that `weir_policy` takes nothing and answers with a pointer to a structure that stays, or null. That the
        // library keeps to the header cannot be checked; its owner has named it in the configuration.
        let policy = crash::within(path, "weir_policy", || unsafe { entry().as_ref() });
        let policy = policy.ok_or_else(|| fail("weir_policy() answers with NULL"))?;
        if policy.version != abi::VERSION {
            let (theirs, ours) = (policy.version, abi::VERSION);
            return Err(fail(&format!(
                "it is of version {theirs} of weir_policy.h, this program has {ours}; build it again"
            )));
        }
        if policy.size as usize != size_of::<Policy>() {
            let (theirs, ours) = (policy.size, size_of::<Policy>());
            return Err(fail(&format!(
                "its struct weir_policy has {theirs} bytes, not {ours}; build it again for this machine"
            )));
        }
        if policy.create.is_some() != policy.destroy.is_some() {
            return Err(fail("it has only one of create and destroy; set both, or none"));
        }
        if policy.rotate.is_some() && policy.take.is_none() || policy.moved.is_some() && policy.stream.is_none() {
            return Err(fail("rotate goes with take, and moved with stream; set both"));
        }
        if !decides_for_flash(policy) && policy.cost.is_none() {
            return Err(fail("it decides nothing: victim, take, stream and cost are NULL"));
        }
        // SAFETY: a string of the library's, which stays loaded, ended by a zero; the header says so.
        let name = (!policy.name.is_null()).then(|| unsafe { CStr::from_ptr(policy.name) });
        let name = name.map_or_else(String::new, |name| name.to_string_lossy().chars().take(64).collect());
        Ok(PolicyLibrary { path: path.to_path_buf(), name, policy })
    }

    /// What the library calls itself; empty where it does not say.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn fail(&self, what: &str) -> PolicyError {
        PolicyError(format!("policy library {}: {what}", self.path.display()))
    }

    /// Has the library decide for this drive's flash from now on, where it has functions; `arguments` are for its `create`.
    ///
    /// # Errors
    /// It has no function for flash, or its `create` refuses, with its own message.
    pub fn install(&self, arguments: &str, flash: &mut Flash) -> Result<InstalledPolicy, PolicyError> {
        if !decides_for_flash(self.policy) {
            return Err(
                self.fail("it decides nothing of flash: victim, take and stream are NULL; cost is for cost_library")
            );
        }
        let installed = self.create(arguments, Some(flash))?;
        policies::give(&installed, flash);
        Ok(InstalledPolicy::of(installed))
    }

    /// What commands of a drive cost by this library; `arguments` are for its `create`, and so is what the flash is like, if the drive has
    /// some.
    ///
    /// # Errors
    /// It has no such function, or its `create` refuses, with its own message.
    pub fn cost_policy(&self, arguments: &str, flash: Option<&Flash>) -> Result<Box<dyn CostPolicy>, PolicyError> {
        if self.policy.cost.is_none() {
            return Err(self.fail("it does not say what commands cost: cost is NULL; policy_library is for the others"));
        }
        Ok(Box::new(policies::LibraryCost(self.create(arguments, flash)?)))
    }

    /// A state of the library's for a drive.
    fn create(&self, arguments: &str, flash: Option<&Flash>) -> Result<Arc<policies::Installed>, PolicyError> {
        let fail = |what: &str| self.fail(what);
        let text = CString::new(arguments).map_err(|_| fail("its arguments have a zero byte"))?;
        let drive = flash.map(about).unwrap_or_default();
        let mut message = [0 as c_char; MESSAGE_MAX];
        let state = match self.policy.create {
            None => std::ptr::null_mut(),
            // SAFETY: the arguments are as the header says, and live for the call; the message has its length.
            Some(create) => crash::within(&self.path, "create", || unsafe {
                create(text.as_ptr(), &raw const drive, message.as_mut_ptr(), MESSAGE_MAX)
            }),
        };
        if self.policy.create.is_some() && state.is_null() {
            message[MESSAGE_MAX - 1] = 0;
            // SAFETY: it ends with a zero at the latest in its last byte.
            let said = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
            return Err(fail(if said.is_empty() { "its create() refuses, and does not say why" } else { &said }));
        }
        Ok(Arc::new(policies::Installed::new(self.path.clone(), self.policy, state)))
    }
}

fn decides_for_flash(policy: &Policy) -> bool {
    policy.victim.is_some() || policy.take.is_some() || policy.stream.is_some()
}

fn about(flash: &Flash) -> abi::Drive {
    let (shape, config) = (flash.shape(), flash.config());
    abi::Drive {
        units: flash.units().into(),
        seed: config.seed,
        planes: shape.planes(),
        blocks: shape.blocks_per_plane(),
        block_units: shape.units_per_block(),
        streams: config.ftl.streams.into(),
    }
}

/// The library's `weir_policy`.
fn load(path: &Path) -> Result<abi::Entry, String> {
    let c_path = CString::new(OsStr::as_bytes(path.as_os_str())).map_err(|_| "the path has a zero byte".to_string())?;
    // SAFETY: a string that ends with a zero. Initialisers of the library run: that is what its owner asks for.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(last_error("it cannot be loaded"));
    }
    // SAFETY: a library that is loaded, and a string that ends with a zero.
    let symbol: *mut c_void = unsafe { libc::dlsym(library, c"weir_policy".as_ptr()) };
    if symbol.is_null() {
        return Err("it has no function weir_policy; see weir_policy.h".into());
    }
    // SAFETY: the header says of what type the function is.
    Ok(unsafe { std::mem::transmute::<*mut c_void, abi::Entry>(symbol) })
}

/// What the loader says of its last failure.
fn last_error(otherwise: &str) -> String {
    // SAFETY: a string of the loader's that stays until this thread asks the loader for something else, or null.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return otherwise.into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
