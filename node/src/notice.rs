//! What a node says to its operator while it runs.

use std::fmt::Display;
use std::io::Write;

/// A line on standard error. Where nobody can read it, as on a terminal that was closed, the node goes on all the same.
pub fn notice(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "weir: {text}");
}
