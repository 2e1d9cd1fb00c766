//! State as bytes: what a drive remembers without power, and what another process goes on from.

pub(crate) mod checkpoint;
pub(crate) mod fabrics;
pub(crate) mod in_flight;
pub(crate) mod journals;
pub(crate) mod namespaces;
pub(crate) mod nonvolatile;
pub(crate) mod pcie;
pub(crate) mod section;
