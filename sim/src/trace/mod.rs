//! Traces: files of requests, read a line at a time and never held as a whole.
//!
//! ```text
//!  file ─ unpacked ─ Reader (lines, numbers them) ─ Parser (fio, blkparse, MSR, CSV) ─▶ TraceRecord ─ Replay (time, place, pieces) ─▶ Draw
//! ```
//! Formats, as `docs/guides/simulate.md` documents them: fio iolog version 2 and 3, blkparse's default text, the CSV of the MSR
//! Cambridge traces, and a CSV of our own with a header. A line that does not parse ends the run with its file and number.

pub mod compressed;
mod format;
mod replay;

use format::Parser;
pub use format::TraceFormat;
pub use replay::{Draw, Fit, Replay, ReplayTiming};

use std::fmt;
use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use weir_controller::Op;
use weir_units::Nanos;

/// Longer lines are no trace.
const MAX_LINE: u64 = 64 << 10;

/// One request of a trace, as it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// From the trace's first record on.
    pub at: Nanos,
    /// Read, write, deallocate or flush.
    pub op: Op,
    /// Force unit access.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
}

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file as the user named it.
    pub file: PathBuf,
    /// 1-based; 0 where the fault is in no line.
    pub line: u64,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.what),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.what),
        }
    }
}

impl std::error::Error for TraceError {}

/// A trace and which of its records are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file.
    pub file: PathBuf,
    /// Its format; found out from its first lines if absent.
    pub format: Option<TraceFormat>,
    /// Only the records of this file (fio), device (blkparse, MSR) or tenant (CSV).
    pub stream: Option<String>,
    /// The streams there may be; records of another one are a fault. Empty: whatever there is.
    pub known: Vec<String>,
}

/// Reads a trace's records in their order.
pub struct Reader {
    file: PathBuf,
    lines: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    parser: Parser,
    /// The first line is still in `line`.
    held: bool,
    found: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("file", &self.file).field("line", &self.number).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a trace and finds out its format.
    ///
    /// # Errors
    /// The file cannot be read, or its format is not known.
    pub fn open(trace: &Trace) -> Result<Reader, TraceError> {
        let fail = |what: String| TraceError { file: trace.file.clone(), line: 0, what };
        let lines = File::open(&trace.file).and_then(compressed::lines);
        Reader::new(trace, lines.map_err(|e| fail(format!("cannot be read: {e}")))?)
    }

    fn new(trace: &Trace, lines: Box<dyn BufRead>) -> Result<Reader, TraceError> {
        let parser = Parser::new(TraceFormat::Csv, trace);
        let (file, line) = (trace.file.clone(), Vec::new());
        let mut reader = Reader { file, lines, line, number: 0, parser, held: false, found: false };
        let format = loop {
            if !reader.read_line()? {
                break Err("is empty".to_string());
            }
            let text = String::from_utf8_lossy(&reader.line);
            match (trace.format, TraceFormat::of(&text)) {
                (_, Ok(None)) => {}
                (None, found) => break found.map(|f| f.expect("matched above")),
                (Some(named), found) => break named.check(found.ok().flatten()),
            }
        };
        let format = format.map_err(|what| reader.fail(what))?;
        reader.parser = Parser::new(format, trace);
        reader.held = true;
        Ok(reader)
    }

    /// The next record that is wanted.
    ///
    /// # Errors
    /// A line that does not parse, or a trace without any request.
    pub fn next_record(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        loop {
            if !std::mem::take(&mut self.held) && !self.read_line()? {
                return if self.found || self.parser.may_be_empty() {
                    Ok(None)
                } else {
                    Err(self.fail(self.parser.nothing()))
                };
            }
            // Names of files and processes need not be UTF-8; what matters is.
            let text = String::from_utf8_lossy(&self.line);
            match self.parser.line(text.trim_end_matches(['\n', '\r'])) {
                Ok(Some(record)) => {
                    self.found = true;
                    return Ok(Some(record));
                }
                Ok(None) => {}
                Err(what) => return Err(self.fail(what)),
            }
        }
    }

    /// The number of the line read last.
    pub fn line(&self) -> u64 {
        self.number
    }

    /// The file as the user named it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether its records name tenants.
    pub fn has_tenants(&self) -> bool {
        let header = String::from_utf8_lossy(&self.line);
        self.held && self.parser.is_csv() && header.trim().split(',').any(|column| column.trim() == "tenant")
    }

    fn read_line(&mut self) -> Result<bool, TraceError> {
        use std::io::Read;
        self.line.clear();
        let read = self.lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.number += 1;
                if n as u64 == MAX_LINE && self.line.last() != Some(&b'\n') {
                    return Err(self.fail(format!("a line of more than {MAX_LINE} bytes")));
                }
                Ok(true)
            }
            Err(e) => Err(self.fail(format!("cannot be read on: {e}"))),
        }
    }

    fn fail(&self, what: impl Into<String>) -> TraceError {
        TraceError { file: self.file.clone(), line: self.number, what: what.into() }
    }
}

/// The byte behind the last one that a trace touches; reads all of it.
///
/// # Errors
/// As [`Reader`].
pub fn span(trace: &Trace) -> Result<u64, TraceError> {
    let mut reader = Reader::open(trace)?;
    let mut end = 0;
    while let Some(record) = reader.next_record()? {
        end = end.max(record.offset.saturating_add(record.len));
    }
    Ok(end)
}

#[cfg(test)]
mod tests;
