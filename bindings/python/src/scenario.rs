//! Simulations: read, and run without the GIL.

use crate::error::{config_error, failed};
use crate::policy::Policies;
use crate::result::RunResult;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_config::Document;
use weir_sim::{RunProgress, Scenario};

/// How often Python hears how far a run has come, and the run of signals.
const REPORT: Duration = Duration::from_millis(50);

/// What is simulated: a scenario for each drive.
#[pyclass(frozen, module = "weir._native")]
pub struct Scenarios(Vec<Scenario>);

/// A key of a configuration and its value, as `--set KEY=VALUE` has them.
type Setting = (String, String);

#[pymethods]
impl Scenarios {
    /// Reads a simulation's TOML. `file` is its name in messages, if it is one; relative paths in it start from `base`. `settings`
    /// are then set, and each of `traces` is one more job with these keys.
    #[staticmethod]
    #[pyo3(signature = (text, file, base, settings, traces))]
    fn read(
        py: Python<'_>,
        text: &str,
        file: Option<&str>,
        base: &str,
        settings: Vec<Setting>,
        traces: Vec<Vec<Setting>>,
    ) -> PyResult<Scenarios> {
        py.detach(|| {
            let mut document =
                Document::parse(text, file.unwrap_or_default(), Path::new(base)).map_err(Wrong::Config)?;
            traces.iter().for_each(|keys| document.push("job", keys));
            for (key, value) in &settings {
                document.set(key, value).map_err(|what| Wrong::Setting(format!("set {key}={value}: {what}")))?;
            }
            Scenario::read_all(&document).map(Scenarios).map_err(Wrong::Config)
        })
        .map_err(|wrong| match wrong {
            Wrong::Config(error) => config_error(py, &error, file.is_some()),
            Wrong::Setting(what) => PyValueError::new_err(what),
        })
    }

    /// The names of the drives.
    #[getter]
    fn drives(&self) -> Vec<&str> {
        self.0.iter().map(|scenario| scenario.device.name.as_str()).collect()
    }

    /// Runs the scenario of a drive. `progress` is called about every 50 ms with the part that is done (None where only the end of
    /// a trace ends it), virtual seconds and requests; what it raises ends the run, and so does a signal that raises.
    #[pyo3(signature = (drive, progress, policies))]
    fn run(
        &self,
        py: Python<'_>,
        drive: usize,
        progress: Option<Py<PyAny>>,
        policies: Option<Bound<'_, PyAny>>,
    ) -> PyResult<RunResult> {
        let scenario = self.0.get(drive).ok_or_else(|| PyIndexError::new_err("there is no such drive"))?;
        let policies = Policies::of(policies)?;
        if policies.are_of_flash() && scenario.device.flash.is_none() {
            let what = "the drive has no flash, so no policy of flash decides anything; write kind = \"flash\" or a profile of one";
            return Err(PyValueError::new_err(format!("device.{}: {what}", scenario.device.name)));
        }
        let (mut raised, mut told) = (None, Instant::now());
        let mut watch = |at: RunProgress| {
            if let Some(error) = policies.take_error() {
                raised = Some(error);
                return ControlFlow::Break(());
            }
            if told.elapsed() < REPORT {
                return ControlFlow::Continue(());
            }
            told = Instant::now();
            match Python::attach(|py| tell(py, progress.as_ref(), at)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let ran = py.detach(|| scenario.run_with(|drive| policies.install(drive), &mut watch));
        match raised.or_else(|| policies.take_error()) {
            Some(error) => Err(error),
            None => match ran.map_err(failed)? {
                Some(result) => Ok(RunResult::new(scenario, result)),
                None => Err(failed("the run was stopped")),
            },
        }
    }
}

enum Wrong {
    Config(weir_config::ConfigError),
    Setting(String),
}

fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, at: RunProgress) -> PyResult<()> {
    py.check_signals()?;
    match progress {
        Some(progress) => progress.call1(py, (at.part, at.time.as_secs_f64(), at.requests)).map(drop),
        None => Ok(()),
    }
}
