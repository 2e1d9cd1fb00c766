//! Which program this is.

/// What `--version` says; `-V` says the number alone.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), "\ncommit ", env!("WEIR_COMMIT"));
/// Version and commit in one line, under pictures.
pub const LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEIR_COMMIT"), ")");
