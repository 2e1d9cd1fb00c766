//! Why a node does not do what it is asked.

use std::fmt;

/// Why a call did not do what it was asked; the text is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thing.
    NotFound(String),
    /// The values make no sense.
    Invalid(String),
    /// Not in this state.
    Conflict(String),
    /// The node is starting, stopping or not answering.
    Unavailable(String),
}

impl Refusal {
    /// The text alone.
    pub fn text(&self) -> &str {
        match self {
            Refusal::NotFound(t) | Refusal::Invalid(t) | Refusal::Conflict(t) | Refusal::Unavailable(t) => t,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Refusal {}
