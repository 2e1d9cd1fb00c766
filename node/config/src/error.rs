//! What is wrong with a configuration, and where.

use std::fmt;

/// One fault: `weir.toml:12: device.ssd0.capacity: "8Gib" is not a size like 4KiB …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as the user named it; empty for a bench target.
    pub file: String,
    /// 1-based; 0 where there is none (a bench target, a file that cannot be read).
    pub line: u32,
    /// The key's full path, `device.ssd0.capacity`; empty where the fault is in no key.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if self.line != 0 {
                write!(f, "{}:", self.line)?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

/// Everything that is wrong with a configuration, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(super) Vec<Problem>);

impl ConfigError {
    /// The faults, by line.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

/// One fault a line.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
