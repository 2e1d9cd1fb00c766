//! A library's functions as the policies of one drive.

use super::abi::{Command, FAILED, Plane, Policy, Random};
use super::crash;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weir_controller::{COST_MAX, ChargedCommand, CostPolicy, Op};
use weir_flash::{Flash, PlaneView, Separation, VictimPolicy, WearPolicy};
use weir_spec::nvme::IoOpcode;
use weir_units::rng::SplitMix64;

/// What a library's `create` has made: whoever has the lock may call the library with it.
struct State(*mut c_void);

// SAFETY: the header says that a state is used by one thread at a time, and not always by the same.
unsafe impl Send for State {}

/// A library at work for a drive.
pub(super) struct Installed {
    path: PathBuf,
    policy: &'static Policy,
    state: Mutex<State>,
    failure: OnceLock<&'static str>,
}

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").field("path", &self.path).field("failure", &self.failure.get()).finish()
    }
}

/// What is known of a library at work for a drive.
#[derive(Clone, Debug)]
pub struct InstalledPolicy(Arc<Installed>);

impl InstalledPolicy {
    pub(super) fn of(installed: Arc<Installed>) -> Self {
        Self(installed)
    }

    /// Which of its functions has failed, if one has: the drive decides by itself since.
    pub fn failure(&self) -> Option<String> {
        let function = self.0.failure.get()?;
        Some(format!("policy library {}: its {function}() has failed", self.0.path.display()))
    }
}

impl Installed {
    pub fn new(path: PathBuf, policy: &'static Policy, state: *mut c_void) -> Self {
        Self { path, policy, state: Mutex::new(State(state)), failure: OnceLock::new() }
    }

    /// What a function answers: 0 or more, else the drive decides.
    fn ask(&self, function: &'static str, call: impl FnOnce(*mut c_void) -> i64) -> Option<usize> {
        if self.failure.get().is_some() {
            return None;
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = crash::within(&self.path, function, || call(state.0));
        if answer == FAILED && self.failure.set(function).is_ok() {
            tracing::warn!(
                "policy library {}: its {function}() has failed; the drive decides by itself from now on",
                self.path.display()
            );
        }
        usize::try_from(answer).ok()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        if let Some(destroy) = self.policy.destroy {
            // SAFETY: what `create` has made, once, and nobody else has it any more.
            crash::within(&self.path, "destroy", || unsafe { destroy(state) });
        }
    }
}

/// Gives the drive the policies for which the library has functions.
pub(super) fn give(installed: &Arc<Installed>, flash: &mut Flash) {
    let (policy, ftl) = (installed.policy, flash.config().ftl);
    let pages = flash.shape().units() / flash.shape().units_per_page();
    let installed = || Arc::clone(installed);
    if policy.victim.is_some() {
        let own = ftl.gc.victim.build(ftl.gc.choices);
        flash.set_victim_policy(Box::new(LibraryVictim { installed: installed(), own }));
    }
    if policy.take.is_some() {
        let own = ftl.wear.policy.build(ftl.wear.gap, pages);
        flash.set_wear_policy(Box::new(LibraryWear { installed: installed(), own }));
    }
    if policy.stream.is_some() {
        let own = ftl.separation.build(flash.units());
        flash.set_separation(Box::new(LibrarySeparation { installed: installed(), own }));
    }
}

fn plane_of(view: &PlaneView<'_>) -> Plane {
    let blocks = view.valid.len().min(view.erases.len()).min(view.written_at.len());
    Plane {
        valid: view.valid.as_ptr(),
        erases: view.erases.as_ptr(),
        written_at: view.written_at.as_ptr(),
        blocks,
        now: view.now,
        block_units: view.block_units,
        reserved: 0,
    }
}

/// The next 64 bits of a generator.
unsafe extern "C" fn next(state: *mut c_void) -> u64 {
    // SAFETY: `pick` has put a generator there that nobody else uses during the call.
    unsafe { &mut *state.cast::<SplitMix64>() }.next_u64()
}

/// The drive's `own` decides where the library does not.
#[derive(Debug)]
struct LibraryVictim {
    installed: Arc<Installed>,
    own: Box<dyn VictimPolicy>,
}

impl VictimPolicy for LibraryVictim {
    fn pick(&mut self, plane: &PlaneView<'_>, rng: &mut SplitMix64) -> Option<usize> {
        let victim = self.installed.policy.victim?;
        let (view, random) = (plane_of(plane), Random { next, state: (&raw mut *rng).cast() });
        // SAFETY: the arguments are as the header says and live for the call.
        let picked = self.installed.ask("victim", |state| unsafe { victim(state, &raw const view, &raw const random) });
        picked.filter(|block| *block < view.blocks && plane.is_candidate(*block)).or_else(|| self.own.pick(plane, rng))
    }
}

/// The same.
#[derive(Debug)]
struct LibraryWear {
    installed: Arc<Installed>,
    own: Box<dyn WearPolicy>,
}

impl WearPolicy for LibraryWear {
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize {
        let taken = self.installed.policy.take.and_then(|take| {
            let (blocks, count, erases) = (free.as_ptr(), free.len(), erases.as_ptr());
            // SAFETY: as above; `erases` has an entry for every block that `free` names.
            self.installed.ask("take", |state| unsafe { take(state, blocks, count, erases, c_int::from(cold)) })
        });
        taken.filter(|place| *place < free.len()).unwrap_or_else(|| self.own.take(free, erases, cold))
    }

    fn rotate(&mut self, plane: &PlaneView<'_>, target: u32) -> Option<usize> {
        let Some(rotate) = self.installed.policy.rotate.filter(|_| self.installed.failure.get().is_none()) else {
            return self.own.rotate(plane, target);
        };
        let view = plane_of(plane);
        // SAFETY: as above.
        let moved = self.installed.ask("rotate", |state| unsafe { rotate(state, &raw const view, target) });
        moved.filter(|block| *block < view.blocks && plane.is_candidate(*block))
    }
}

/// The same; without one of its own the drive has one stream.
#[derive(Debug)]
struct LibrarySeparation {
    installed: Arc<Installed>,
    own: Option<Box<dyn Separation>>,
}

impl Separation for LibrarySeparation {
    fn stream(&mut self, lpn: u32, hint: u8, streams: u8) -> u8 {
        let chosen = self.installed.policy.stream.and_then(|stream| {
            // SAFETY: as above.
            self.installed.ask("stream", |state| unsafe { stream(state, lpn, hint, streams) })
        });
        let own = || self.own.as_mut().map_or(0, |own| own.stream(lpn, hint, streams));
        within_streams(chosen, streams).unwrap_or_else(own)
    }

    fn moved(&mut self, lpn: u32, from: u8, streams: u8) -> u8 {
        let chosen = self.installed.policy.moved.and_then(|moved| {
            // SAFETY: as above.
            self.installed.ask("moved", |state| unsafe { moved(state, lpn, from, streams) })
        });
        within_streams(chosen, streams).unwrap_or(from)
    }
}

/// What commands cost by a library; the drive's own cost decides where it does not.
#[derive(Debug)]
pub(super) struct LibraryCost(pub Arc<Installed>);

impl CostPolicy for LibraryCost {
    fn cost(&mut self, command: ChargedCommand) -> Option<u32> {
        let cost = self.0.policy.cost?;
        let ChargedCommand { tenant, op, offset, len, fua, own } = command;
        let of = Command { offset, bytes: len, own, tenant, opcode: opcode(op).0, fua: fua.into(), reserved: 0 };
        // SAFETY: as above.
        let asked = self.0.ask("cost", |state| unsafe { cost(state, &raw const of) });
        asked.and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes <= COST_MAX)
    }

    fn failure(&self) -> Option<String> {
        InstalledPolicy::of(Arc::clone(&self.0)).failure()
    }
}

fn opcode(op: Op) -> IoOpcode {
    match op {
        Op::Read => IoOpcode::READ,
        Op::Write => IoOpcode::WRITE,
        Op::Compare => IoOpcode::COMPARE,
        Op::Verify => IoOpcode::VERIFY,
        Op::WriteZeroes { .. } => IoOpcode::WRITE_ZEROES,
        Op::Deallocate => IoOpcode::DATASET_MANAGEMENT,
        Op::Flush => IoOpcode::FLUSH,
        Op::Copy => IoOpcode::COPY,
    }
}

fn within_streams(chosen: Option<usize>, streams: u8) -> Option<u8> {
    chosen.and_then(|stream| u8::try_from(stream).ok()).filter(|stream| *stream < streams)
}
