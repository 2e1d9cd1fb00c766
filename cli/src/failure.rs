//! What a command that failed leaves behind: one line and an exit status.

use std::fmt::Display;
use std::process::ExitCode;

/// `weir: what: why; what to do`, and 1 or 2.
#[derive(Debug)]
pub struct CommandFailure {
    text: String,
    usage: bool,
}

impl CommandFailure {
    /// It was tried and failed: exit status 1.
    pub fn new(text: impl Display) -> Self {
        CommandFailure { text: text.to_string(), usage: false }
    }

    /// It was asked for wrongly: exit status 2.
    pub fn usage(text: impl Display) -> Self {
        CommandFailure { text: text.to_string(), usage: true }
    }

    /// Without the `weir: ` in front.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Prints it (several lines where it has several) and gives the exit status.
    pub fn report(self) -> ExitCode {
        for line in self.text.lines() {
            weir_node::notice(line);
        }
        ExitCode::from(self.status())
    }

    /// Prints it as one JSON object in one line on standard error, `error` and `exit_status`, and gives the exit status.
    pub fn report_json(self) -> ExitCode {
        use std::io::Write;
        let object = serde_json::json!({ "error": self.text, "exit_status": self.status() });
        // As for lines of text: nobody may be there to read it.
        let _ = writeln!(std::io::stderr().lock(), "{object}");
        ExitCode::from(self.status())
    }

    fn status(&self) -> u8 {
        if self.usage { 2 } else { 1 }
    }
}

impl From<weir_config::ConfigError> for CommandFailure {
    fn from(error: weir_config::ConfigError) -> Self {
        CommandFailure::new(error)
    }
}
