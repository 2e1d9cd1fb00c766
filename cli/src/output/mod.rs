//! Text for people and programs on standard output. A reader that has seen enough (`weir status | head -1`) is no error.

mod yaml;

use crate::failure::CommandFailure;
use clap::ValueEnum;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// In what form answers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Tables; on a terminal too narrow for all columns, without those that matter least
    #[default]
    Table,
    /// Tables with all columns
    Wide,
    /// JSON, as --json
    Json,
    /// The same as YAML
    Yaml,
    /// The names of what is listed, one a line
    Name,
}

/// Of this run of the program.
static FORM: OnceLock<Form> = OnceLock::new();

/// Answers are printed in this form from now on; the first call counts.
pub fn set_form(form: Form) {
    FORM.get_or_init(|| form);
}

fn form() -> Form {
    FORM.get().copied().unwrap_or_default()
}

/// Writes a list: as a document, as names, or as a table.
pub fn list<T: Serialize>(
    items: &[T],
    name: impl Fn(&T) -> String,
    text_of: impl FnOnce(&[T]) -> String,
) -> Result<(), CommandFailure> {
    match form() {
        Form::Json | Form::Yaml => json(&items),
        Form::Name => text(&items.iter().map(|item| name(item) + "\n").collect::<String>()),
        Form::Table | Form::Wide => text(&text_of(items)),
    }
}

/// Writes one thing: as a document, as its name, or as text.
pub fn one<T: Serialize>(item: &T, name: &str, text_of: impl FnOnce(&T) -> String) -> Result<(), CommandFailure> {
    match form() {
        Form::Json | Form::Yaml => json(item),
        Form::Name => text(&format!("{name}\n")),
        Form::Table | Form::Wide => text(&text_of(item)),
    }
}

/// Writes bytes as they are.
pub fn raw(bytes: &[u8]) -> Result<(), CommandFailure> {
    is_read(bytes).map(|_| ())
}

/// The same; false where the reader has seen enough, for commands that would go on.
pub fn is_read(bytes: &[u8]) -> Result<bool, CommandFailure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe || has_hung_up(&out) => Ok(false),
        Err(e) => Err(CommandFailure::new(format_args!("standard output: {e}"))),
    }
}

/// Whether it was a terminal that is gone: a node that still says what it serves then is ended by SIGHUP, in good order.
fn has_hung_up(out: &impl std::os::fd::AsFd) -> bool {
    rustix::termios::tcgetwinsize(out) == Err(rustix::io::Errno::IO)
}

/// Writes text that ends its own lines.
pub fn text(text: &str) -> Result<(), CommandFailure> {
    raw(text.as_bytes())
}

/// Writes one JSON document and a newline; with `-o yaml` as YAML.
pub fn json(value: &impl Serialize) -> Result<(), CommandFailure> {
    if form() == Form::Yaml {
        return text(&yaml::document(&serde_json::to_value(value).map_err(CommandFailure::new)?));
    }
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

/// Columns of a terminal, where standard output is one.
fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// A table with aligned columns, two blanks apart.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    /// Where there is too little room, the last of these columns is left out first.
    optional: Vec<bool>,
}

impl Table {
    /// With these headings. A heading that begins with `>` is aligned right, for numbers; one that begins with `~` (before `>`) may be left out
    /// on a narrow terminal.
    pub fn new(headings: &[&str]) -> Self {
        let names = headings.iter().map(|h| h.trim_start_matches(['~', '>']).to_string()).collect();
        let optional = headings.iter().map(|h| h.starts_with('~')).collect();
        let right = headings.iter().map(|h| h.trim_start_matches('~').starts_with('>')).collect();
        Table { rows: vec![names], right, optional }
    }

    /// Adds a row; a missing cell is empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.right.len(), String::new());
        self.rows.push(row);
    }

    /// All columns; without blanks at the ends of lines.
    pub fn render(&self) -> String {
        self.render_within(usize::MAX)
    }

    /// As many columns as this run's form and terminal have room for.
    pub fn shown(&self) -> String {
        let width = terminal_width().filter(|_| form() != Form::Wide);
        self.render_within(width.unwrap_or(usize::MAX))
    }

    /// Columns that fit in so many characters; those that are not optional always.
    pub fn render_within(&self, most: usize) -> String {
        let width = |column: usize| self.rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut columns: Vec<usize> = (0..self.right.len()).collect();
        let total = |columns: &[usize]| columns.iter().map(|c| widths[*c] + 2).sum::<usize>().saturating_sub(2);
        while total(&columns) > most {
            let Some(at) = columns.iter().rposition(|c| self.optional[*c]) else { break };
            columns.remove(at);
        }
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (nth, i) in columns.iter().copied().enumerate() {
                let (cell, gap) = (&row[i], if nth == 0 { "" } else { "  " });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_leaves_out_the_last_optional_columns() {
        let mut table = Table::new(&["NAME", "~>SIZE", "NOTE", "~UUID"]);
        table.row(["a", "1", "note", "0123456789"].map(str::to_string));
        assert_eq!(table.render(), "NAME  SIZE  NOTE  UUID\na        1  note  0123456789\n");
        assert_eq!(table.render_within(28), table.render());
        assert_eq!(table.render_within(27), "NAME  SIZE  NOTE\na        1  note\n");
        assert_eq!(table.render_within(12), "NAME  NOTE\na     note\n");
        assert_eq!(table.render_within(3), "NAME  NOTE\na     note\n");
    }
}
