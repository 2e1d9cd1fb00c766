//! What Python raises; the words are the program's.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(weir, WeirError, PyException, "What could not be done, where and why.");
create_exception!(
    weir,
    ConfigError,
    PyValueError,
    "What is wrong with a configuration. `problems` has each fault: its file, line (0 without one), key and what to do."
);

/// A fault for each of the problems. Without a `file` of the user's, its name and lines say nothing.
pub fn config_error(py: Python<'_>, error: &weir_config::ConfigError, is_file: bool) -> PyErr {
    let told = |problem: &weir_config::Problem| {
        let weir_config::Problem { file, line, key, what } = problem.clone();
        if is_file { (file, line, key, what) } else { (String::new(), 0, key, what) }
    };
    let problems: Vec<_> = error.problems().iter().map(told).collect();
    let text = |(file, line, key, what): &(String, u32, String, String)| {
        weir_config::Problem { file: file.clone(), line: *line, key: key.clone(), what: what.clone() }.to_string()
    };
    let raised = ConfigError::new_err(problems.iter().map(text).collect::<Vec<_>>().join("\n"));
    match raised.value(py).setattr("problems", problems) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

/// What has no place in a file.
pub fn failed(error: impl std::fmt::Display) -> PyErr {
    WeirError::new_err(error.to_string())
}
