//! Policies of a drive that are Python functions, of its flash and of what commands cost; the package's `weir.policy` says what they are given.

use crate::column::Column;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use weir_controller::{COST_MAX, ChargedCommand, CostPolicy, Op, Subsystem};
use weir_drive::FlashService;
use weir_flash::{Flash, PlaneView, Separation, VictimPolicy, WearPolicy};
use weir_units::rng::SplitMix64;

/// What the first function that failed has raised: nothing is asked after it.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// A function and the place of its errors.
#[derive(Debug)]
struct Function {
    callable: Py<PyAny>,
    raised: Raised,
}

impl Function {
    /// Its answer; `None` where it, or another one before, has raised: the engine then decides, until the run is ended.
    fn ask<T>(&self, call: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<T>) -> Option<T> {
        if self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        let answer = Python::attach(|py| call(py, &self.callable));
        answer.map_err(|error| *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error)).ok()
    }
}

/// The functions that decide in place of the drive's own policies.
#[derive(Default)]
pub struct Policies {
    victim: Option<Py<PyAny>>,
    take: Option<Py<PyAny>>,
    rotate: Option<Py<PyAny>>,
    stream: Option<Py<PyAny>>,
    moved: Option<Py<PyAny>>,
    cost: Option<Py<PyAny>>,
    raised: Raised,
}

impl Policies {
    /// Of an object with `victim`, `take`, `rotate`, `stream`, `moved` and `cost`, each a callable or None.
    ///
    /// # Errors
    /// It lacks one.
    pub fn of(object: Option<Bound<'_, PyAny>>) -> PyResult<Policies> {
        let Some(object) = object else { return Ok(Policies::default()) };
        let function = |name: &str| {
            let found = object.getattr(name)?;
            Ok::<_, PyErr>((!found.is_none()).then(|| found.unbind()))
        };
        Ok(Policies {
            victim: function("victim")?,
            take: function("take")?,
            rotate: function("rotate")?,
            stream: function("stream")?,
            moved: function("moved")?,
            cost: function("cost")?,
            raised: Raised::default(),
        })
    }

    /// Whether there is any of flash.
    pub fn are_of_flash(&self) -> bool {
        [&self.victim, &self.take, &self.rotate, &self.stream, &self.moved].iter().any(|function| function.is_some())
    }

    /// What a function has raised, once.
    pub fn take_error(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn function(&self, callable: &Option<Py<PyAny>>) -> Option<Function> {
        let callable = Python::attach(|py| callable.as_ref().map(|callable| callable.clone_ref(py)));
        callable.map(|callable| Function { callable, raised: Arc::clone(&self.raised) })
    }

    /// Gives a drive those that there are.
    pub fn install(&self, drive: &mut Subsystem) {
        if let Some(service) = drive.service_mut().and_then(|s| s.as_any_mut().downcast_mut::<FlashService>()) {
            self.install_in(service.flash_mut());
        }
        if let Some(function) = self.function(&self.cost) {
            drive.set_cost_policy(Box::new(PythonCost(function)));
        }
    }

    fn install_in(&self, flash: &mut Flash) {
        let of = |callable: &Option<Py<PyAny>>| self.function(callable);
        if let Some(function) = of(&self.victim) {
            flash.set_victim_policy(Box::new(PythonVictim(function)));
        }
        if let Some(take) = of(&self.take) {
            flash.set_wear_policy(Box::new(PythonWear { take, rotate: of(&self.rotate) }));
        }
        if let Some(stream) = of(&self.stream) {
            flash.set_separation(Box::new(PythonSeparation { stream, moved: of(&self.moved) }));
        }
    }
}

/// A plane's columns are copies: a function may keep them for longer than the plane stays as it is.
fn plane_of(plane: &PlaneView<'_>) -> (Column, Column, Column, u64, u32) {
    (
        Column::halves(plane.valid.to_vec()),
        Column::words(plane.erases.to_vec()),
        Column::counts(plane.written_at.to_vec()),
        plane.now,
        plane.block_units,
    )
}

#[derive(Debug)]
struct PythonVictim(Function);

impl VictimPolicy for PythonVictim {
    fn pick(&mut self, plane: &PlaneView<'_>, _: &mut SplitMix64) -> Option<usize> {
        self.0.ask(|py, function| function.call1(py, plane_of(plane))?.extract::<Option<usize>>(py)).flatten()
    }
}

#[derive(Debug)]
struct PythonWear {
    take: Function,
    rotate: Option<Function>,
}

impl WearPolicy for PythonWear {
    fn take(&mut self, free: &[u32], erases: &[u32], cold: bool) -> usize {
        // Of the drive's blocks the function sees the free ones: a copy of all of them for each would take the longest.
        let worn: Vec<u32> = free.iter().map(|block| erases[*block as usize]).collect();
        let columns = (Column::words(free.to_vec()), Column::words(worn), cold);
        self.take.ask(|py, function| function.call1(py, columns)?.extract::<usize>(py)).unwrap_or(0)
    }

    fn rotate(&mut self, plane: &PlaneView<'_>, target: u32) -> Option<usize> {
        let (valid, erases, written_at, now, block_units) = plane_of(plane);
        let arguments = (valid, erases, written_at, now, block_units, target);
        self.rotate.as_ref()?.ask(|py, function| function.call1(py, arguments)?.extract::<Option<usize>>(py)).flatten()
    }
}

#[derive(Debug)]
struct PythonSeparation {
    stream: Function,
    moved: Option<Function>,
}

impl Separation for PythonSeparation {
    fn stream(&mut self, lpn: u32, hint: u8, streams: u8) -> u8 {
        let answer = self.stream.ask(|py, function| function.call1(py, (lpn, hint, streams))?.extract::<u8>(py));
        answer.unwrap_or(0).min(streams.saturating_sub(1))
    }

    fn moved(&mut self, lpn: u32, from: u8, streams: u8) -> u8 {
        let Some(moved) = &self.moved else { return from };
        let answer = moved.ask(|py, function| function.call1(py, (lpn, from, streams))?.extract::<u8>(py));
        answer.unwrap_or(from).min(streams.saturating_sub(1))
    }
}

#[derive(Debug)]
struct PythonCost(Function);

impl CostPolicy for PythonCost {
    fn cost(&mut self, command: ChargedCommand) -> Option<u32> {
        let ChargedCommand { tenant, op, offset, len, fua, own } = command;
        let of = (tenant, name(op), offset, len, fua, own);
        let asked = self.0.ask(|py, function| function.call1(py, of)?.extract::<Option<u64>>(py)).flatten();
        asked.and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes <= COST_MAX)
    }
}

/// What a command does, in a word.
fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Compare => "compare",
        Op::Verify => "verify",
        Op::WriteZeroes { .. } => "write-zeroes",
        Op::Deallocate => "deallocate",
        Op::Flush => "flush",
        Op::Copy => "copy",
    }
}
