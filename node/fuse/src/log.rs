//! What went wrong, in the log: each reason once, and how often it came again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long the same line is counted instead of said.
const QUIET: Duration = Duration::from_secs(5);

/// See [the module](self).
#[derive(Debug, Default)]
pub struct FailureLog {
    last: Mutex<Option<Line>>,
}

#[derive(Debug)]
struct Line {
    text: String,
    since: Instant,
    again: u64,
}

impl FailureLog {
    /// Says what could not be done to a path, and why.
    pub fn say(&self, what: &str, path: &[u8], reason: &str) {
        let path = String::from_utf8_lossy(path);
        // The store's client names the path itself where it knows it.
        let text = match reason.starts_with(&*path) {
            true => format!("{what} {reason}"),
            false => format!("{what} {path}: {reason}"),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some(line) if line.text == text && line.since.elapsed() < QUIET => line.again += 1,
            before => {
                if let Some(Line { text, again: again @ 1.., .. }) = before {
                    tracing::warn!("{text} ({again} times more)");
                }
                tracing::warn!("{text}");
                *before = Some(Line { text, since: Instant::now(), again: 0 });
            }
        }
    }
}
