//! Why a store cannot be opened, or does not go on.

use std::fmt;
use std::path::{Path, PathBuf};

/// See the [module](self).
#[derive(Debug)]
pub struct EmbeddedError {
    path: PathBuf,
    what: String,
}

impl EmbeddedError {
    pub(super) fn new(path: &Path, what: impl fmt::Display) -> Self {
        Self { path: path.into(), what: what.to_string() }
    }
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        match self.what.strip_prefix(&path) {
            Some(rest) => write!(f, "{path}{rest}"),
            None => write!(f, "{path}: {}", self.what),
        }
    }
}

impl std::error::Error for EmbeddedError {}
