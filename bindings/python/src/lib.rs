//! `weir._native`: what the Python package does in this process. The package around it is `bindings/python/weir`.
//!
//! ```text
//!   weir.sim ─► Scenarios::read ─► Scenarios::run (no GIL) ─► RunResult ─► Column ─ buffer protocol ─► numpy, Arrow
//!                                        │  ▲
//!                 progress, signals ◀────┘  └──── policies that are Python functions
//! ```
//! `weir.fs` is a client of a store: see [`store`].
//!
//! Nothing is decided here: files are read by `weir_config`, and `weir_sim` runs the machines that a node runs. Errors carry the
//! program's words. The stable ABI of Python 3.11 is the only one used.

mod column;
mod drive;
mod error;
mod host;
mod policy;
mod result;
mod scenario;
mod store;

use pyo3::prelude::*;

/// The module.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("WeirError", py.get_type::<error::WeirError>())?;
    module.add("ConfigError", py.get_type::<error::ConfigError>())?;
    module.add_class::<column::Column>()?;
    module.add_class::<drive::Drive>()?;
    module.add_class::<result::RunResult>()?;
    module.add_class::<scenario::Scenarios>()?;
    module.add_class::<store::StoreClient>()?;
    module.add_class::<store::StoreEntry>()?;
    module.add_class::<store::StoreFile>()?;
    module.add_class::<store::StoreOptions>()
}
