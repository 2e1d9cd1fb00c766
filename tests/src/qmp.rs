//! A QEMU's monitor: one JSON object a line, there and back.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Context;
use crate::process::until;

/// A connection to it.
pub struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Connects as soon as QEMU listens on `path`.
    pub fn connect(path: &Path) -> Result<Self, String> {
        let shown = || path.display().to_string();
        let stream = until(Duration::from_secs(20), "QEMU's monitor", || Ok(UnixStream::connect(path).ok()))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).context(shown)?;
        let mut this = Self(BufReader::new(stream));
        this.line()?;
        this.execute("qmp_capabilities", json!({}))?;
        Ok(this)
    }

    /// A command's answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        self.0.get_mut().write_all(line.as_bytes()).context(|| command.into())?;
        loop {
            let answer = self.line()?;
            match (answer.get("return"), answer.get("error")) {
                (Some(value), _) => return Ok(value.clone()),
                (_, Some(error)) => return Err(format!("{command}: {error}")),
                // An event.
                _ => {}
            }
        }
    }

    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.0.read_line(&mut line).context(|| "QEMU's monitor".into())?;
        serde_json::from_str(&line).map_err(|e| format!("QEMU's monitor: {e}: {line:?}"))
    }
}
