//! Text for people and programs on standard output. A reader that has seen enough (`weir status | head -1`) is no error.

use crate::failure::CommandFailure;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes bytes as they are.
pub fn raw(bytes: &[u8]) -> Result<(), CommandFailure> {
    is_read(bytes).map(|_| ())
}

/// The same; false where the reader has seen enough, for commands that would go on.
pub fn is_read(bytes: &[u8]) -> Result<bool, CommandFailure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(CommandFailure::new(format_args!("standard output: {e}"))),
    }
}

/// Writes text that ends its own lines.
pub fn text(text: &str) -> Result<(), CommandFailure> {
    raw(text.as_bytes())
}

/// Writes one JSON document and a newline.
pub fn json(value: &impl Serialize) -> Result<(), CommandFailure> {
    let mut text = serde_json::to_string_pretty(value).map_err(CommandFailure::new)?;
    text.push('\n');
    raw(text.as_bytes())
}

/// Writes a file whole or not at all: what was there stays until all of it is on disk.
pub fn file(path: &Path, contents: impl AsRef<[u8]>) -> std::io::Result<()> {
    let half = half(path);
    let written = std::fs::File::create(&half).and_then(|mut file| {
        file.write_all(contents.as_ref())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&half, path)).inspect_err(|_| {
        // It may never have been made; the first error is the one to tell.
        let _ = std::fs::remove_file(&half);
    })
}

/// Whether a file can be written there, for whoever works long before it is.
pub fn can_write(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let half = half(path);
    std::fs::File::create(&half).and_then(|_| std::fs::remove_file(&half))
}

fn half(path: &Path) -> PathBuf {
    let mut half = path.as_os_str().to_owned();
    half.push(".tmp");
    PathBuf::from(half)
}

/// A table with aligned columns, two blanks apart.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// With these headings; a heading that begins with `>` is aligned right, for numbers.
    pub fn new(headings: &[&str]) -> Self {
        let names = headings.iter().map(|h| h.trim_start_matches('>').to_string()).collect();
        Table { rows: vec![names], right: headings.iter().map(|h| h.starts_with('>')).collect() }
    }

    /// Adds a row; a missing cell is empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.right.len(), String::new());
        self.rows.push(row);
    }

    /// The lines, without blanks at their ends.
    pub fn render(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let gap = if i == 0 { "" } else { "  " };
                let pad = " ".repeat(widths[i] - cell.chars().count());
                let [before, after] = if self.right[i] { [pad.as_str(), ""] } else { ["", pad.as_str()] };
                line.extend([gap, before, cell, after]);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}
