//! (filled by its crate's owner)
