//! The text of a file that is read, the values in it, and the message about what is wrong there.

use std::fmt;
use std::path::Path;

/// Why files cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    file: String,
    line: u32,
    what: String,
}

impl ImportError {
    /// Of a whole file.
    pub(super) fn of_file(file: &str, what: impl fmt::Display) -> ImportError {
        ImportError { file: file.to_string(), line: 0, what: what.to_string() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for ImportError {}

/// Characters of a message.
const MAX_FAULT: usize = 400;

/// A larger file is no configuration.
const MAX_FILE: u64 = 1 << 20;

/// A file's text under its name.
pub(super) struct Text {
    pub(super) file: String,
    pub(super) text: String,
}

impl Text {
    pub(super) fn load(file: &Path) -> Result<Text, ImportError> {
        let shown = file.display().to_string();
        let fail = |what: String| ImportError::of_file(&shown, what);
        let size = std::fs::metadata(file).map_err(|e| fail(format!("cannot be read: {e}")))?.len();
        if size > MAX_FILE {
            return Err(fail(format!("{size} bytes; a configuration has at most {MAX_FILE}")));
        }
        let text = std::fs::read_to_string(file).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Ok(Text { file: shown, text })
    }

    /// Options may stand on the command line themselves.
    pub(super) fn load_or_take(file: &Path) -> Result<Text, ImportError> {
        match file.to_str() {
            Some(text) if text.contains('=') && !file.exists() => {
                Ok(Text { file: "options".to_string(), text: text.to_string() })
            }
            _ => Text::load(file),
        }
    }

    pub(super) fn fault(&self, line: u32, what: impl fmt::Display) -> ImportError {
        // One line that can be read, whatever a file has in it.
        let what = what.to_string().chars().take(MAX_FAULT).map(|c| if c.is_control() { ' ' } else { c }).collect();
        ImportError { file: self.file.clone(), line, what }
    }
}

/// A value, and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) line: u32,
    pub(super) text: String,
}
