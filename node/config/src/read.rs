//! Reading a table key by key: every fault is noted with its line, and reading goes on. Whatever takes `[[device]]` and
//! `[[tenant]]` beside tables of its own (`weir sim`) reads them with this, so that all files answer alike.

use super::error::Problem;
pub use super::names::{element_name, name};
pub use super::value::{Entry, Item, Value};
use std::cell::RefCell;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use weir_units::{Bytes, Nanos, parse};

/// Where the faults of one file gather.
pub struct Sink {
    file: String,
    problems: RefCell<Vec<Problem>>,
}

impl Sink {
    /// Of a file with that name.
    pub fn new(file: &str) -> Self {
        Sink { file: file.to_string(), problems: RefCell::default() }
    }

    /// Notes a fault; control characters in it are replaced, and it is cut to one line.
    pub fn note(&self, line: u32, key: &str, what: impl Display) {
        let what = one_line(&what.to_string());
        let problem = Problem { file: self.file.clone(), line, key: key.to_string(), what };
        self.problems.borrow_mut().push(problem);
    }

    /// Takes over the faults of another file.
    pub(super) fn adopt(&self, problems: Vec<Problem>) {
        self.problems.borrow_mut().extend(problems);
    }

    /// Whether nothing was noted yet.
    pub fn is_clean(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// By line; keys of a TOML table arrive in another order.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|p| p.line);
        problems
    }
}

/// Why a value is refused, and where if not on its key's line.
pub struct Wrong {
    what: String,
    line: Option<u32>,
}

impl Wrong {
    /// On a line of its own within the value.
    pub(super) fn at(line: u32, what: String) -> Self {
        Wrong { what, line: Some(line) }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong { what, line: None }
    }
}

/// What a reader of one value answers.
pub type Read<T> = Result<T, Wrong>;

/// A value, and where it was written, for faults that only show beside other values.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its key's line.
    pub line: u32,
    /// Its key's full path.
    pub key: String,
}

/// One table under its path (`device.ssd0`). Every key asked for counts as known; [`Section::finish`] refuses the rest.
pub struct Section<'a> {
    sink: &'a Sink,
    entries: &'a [Entry],
    path: RefCell<String>,
    line: u32,
    known: RefCell<Vec<&'static str>>,
    unoffered: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// A table that was found at `line`.
    pub fn new(sink: &'a Sink, path: impl Into<String>, line: u32, entries: &'a [Entry]) -> Self {
        Section {
            sink,
            entries,
            path: RefCell::new(path.into()),
            line,
            known: RefCell::default(),
            unoffered: RefCell::default(),
        }
    }

    /// A table inside this one.
    pub fn inner(&self, path: impl Into<String>, line: u32, entries: &'a [Entry]) -> Section<'a> {
        Section::new(self.sink, path, line, entries)
    }

    /// Where this section's faults go.
    pub fn sink(&self) -> &'a Sink {
        self.sink
    }

    /// `device.ssd0`.
    pub fn path(&self) -> String {
        self.path.borrow().clone()
    }

    /// Once the section's own name is known.
    pub fn rename(&self, path: String) {
        *self.path.borrow_mut() = path;
    }

    /// Where the table begins.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The full path of a key.
    pub fn key(&self, key: &str) -> String {
        let path = self.path.borrow();
        if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
    }

    fn find(&self, key: &'static str) -> Option<&'a Entry> {
        self.known.borrow_mut().push(key);
        self.entries.iter().find(|e| e.key == key)
    }

    /// Whether the key is there, well-formed or not.
    pub fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// The line to blame for what has to do with `key`: the key's own, else the section's.
    pub fn line_of(&self, key: &'static str) -> u32 {
        self.find(key).map_or(self.line, |e| e.line)
    }

    /// A fault of this key.
    pub fn fault(&self, key: &'static str, what: impl Display) {
        self.sink.note(self.line_of(key), &self.key(key), what);
    }

    /// The key's value; `None` where it is absent, or wrong and noted.
    pub fn get<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<T> {
        self.placed(key, read).map(|p| p.value)
    }

    /// The key's value, else `default`.
    pub fn or<T>(&self, key: &'static str, default: T, read: impl FnOnce(&Value) -> Read<T>) -> T {
        self.get(key, read).unwrap_or(default)
    }

    /// Like `get`; what is wrong is left for `get` to note.
    pub fn peek<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<T> {
        self.find(key).and_then(|entry| read(&entry.value).ok())
    }

    /// Like `get`, with the place.
    pub fn placed<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<Placed<T>> {
        let entry = self.find(key)?;
        match read(&entry.value) {
            Ok(value) => Some(Placed { value, line: entry.line, key: self.key(key) }),
            Err(wrong) => {
                self.sink.note(wrong.line.unwrap_or(entry.line), &self.key(key), wrong.what);
                None
            }
        }
    }

    /// A key that is accepted but that nobody should be led to.
    pub fn unoffer(&self, key: &'static str) {
        self.unoffered.borrow_mut().push(key);
    }

    /// The tables of `[[key]]`, each with its line.
    pub fn tables(&self, key: &'static str) -> Vec<(u32, &'a [Entry])> {
        let Some(entry) = self.find(key) else { return Vec::new() };
        let Value::List(items) = &entry.value else {
            self.fault(key, format_args!("{} where a list of tables is wanted; write [[{key}]]", entry.value.kind()));
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            match &item.value {
                Value::Table(entries) => tables.push((item.line, entries.as_slice())),
                other => {
                    let what = format!("{} where a table is wanted; write [[{key}]]", other.kind());
                    self.sink.note(item.line, &self.key(key), what);
                }
            }
        }
        tables
    }

    /// The table of `[key]`, with its line.
    pub fn table(&self, key: &'static str) -> Option<(u32, &'a [Entry])> {
        let entry = self.find(key)?;
        match &entry.value {
            Value::Table(entries) => Some((entry.line, entries)),
            other => {
                self.fault(key, format_args!("{} where a table is wanted; write [{}]", other.kind(), self.key(key)));
                None
            }
        }
    }

    /// Refuses every key that nobody asked for, with the nearest one that exists.
    pub fn finish(&self) {
        let mut known = self.known.borrow().clone();
        known.sort_unstable();
        known.dedup();
        let unoffered = self.unoffered.borrow();
        let offered: Vec<&str> = known.iter().copied().filter(|k| !unoffered.contains(k)).collect();
        for entry in self.entries.iter().filter(|e| !known.contains(&e.key.as_str())) {
            // Who has nearly written a key that is not offered knows it.
            let hint = match nearest(&entry.key, &offered).or_else(|| nearest(&entry.key, &known)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there is {}", offered.join(", ")),
            };
            self.sink.note(entry.line, &self.key(&printable(&entry.key)), format!("unknown key; {hint}"));
        }
    }
}

/// A message repeats what the user wrote; whatever that was, it stays one readable line.
fn one_line(what: &str) -> String {
    let shown = what.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    if what.chars().count() > 400 { shown.take(397).chain("...".chars()).collect() } else { shown.collect() }
}

/// A key as it can be shown on one line.
fn printable(key: &str) -> String {
    key.escape_debug().collect()
}

/// The word that is at most two edits (one in a short word) away.
fn nearest<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    if word.len() > 64 {
        return None;
    }
    let reach = if word.len() < 5 { 1 } else { 2 };
    let far = words.iter().map(|w| (distance(word, w), *w)).min()?;
    (far.0 <= reach).then_some(far.1)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Text.
pub fn text(value: &Value) -> Read<String> {
    match value {
        Value::Text(text) | Value::Bare(text) => Ok(text.clone()),
        other => Err(format!("{} where a string is wanted", other.kind()).into()),
    }
}

/// Reads the path of a file; one that is not absolute lies in `base`.
pub fn file(base: &Path) -> impl Fn(&Value) -> Read<PathBuf> {
    move |value| {
        let text = text(value)?;
        if text.is_empty() || text.contains('\0') {
            return Err(format!("{} is no path of a file", quoted(&text)).into());
        }
        Ok(super::resolve(base, &text))
    }
}

/// `true` or `false`.
pub fn flag(value: &Value) -> Read<bool> {
    match value {
        Value::Flag(flag) => Ok(*flag),
        Value::Bare(text) if text == "true" => Ok(true),
        Value::Bare(text) if text == "false" => Ok(false),
        other => Err(format!("{} where true or false is wanted", shown(other)).into()),
    }
}

/// A whole number in a range.
pub fn integer(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Read<u64> {
    move |value| {
        let number = match value {
            Value::Integer(number) => number.and_then(|n| u64::try_from(n).ok()),
            Value::Bare(text) if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() => text.parse().ok(),
            other => return Err(format!("{} where a number is wanted", shown(other)).into()),
        };
        match number {
            Some(n) if range.contains(&n) => Ok(n),
            _ => {
                Err(format!("{} is out of range; {} to {} is allowed", shown(value), range.start(), range.end()).into())
            }
        }
    }
}

/// As the user wrote it, where that is short.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Integer(Some(n)) => n.to_string(),
        Value::Text(text) | Value::Bare(text) => quoted(text),
        other => other.kind().to_string(),
    }
}

/// A user's text on one line and no longer than a screen is wide.
pub fn quoted(text: &str) -> String {
    if text.chars().count() > 80 {
        return format!("{:?}...", text.chars().take(77).collect::<String>());
    }
    format!("{text:?}")
}

/// A number, with a fraction or without.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Read<f64> {
    move |value| {
        let number = match value {
            Value::Integer(Some(n)) => Some(*n as f64),
            Value::Float(n) => Some(*n),
            Value::Text(text) | Value::Bare(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(n) if range.contains(&n) => Ok(n),
            Some(n) => Err(format!("{n} is out of range; {} to {} is allowed", range.start(), range.end()).into()),
            None => Err(format!("{} where a number is wanted", shown(value)).into()),
        }
    }
}

/// A part of something, as a number: 0.07 for 7 %.
pub fn part(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Read<f64> {
    move |value| {
        if let Value::Text(text) | Value::Bare(text) = value {
            let percent = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
            if let Some(percent) = percent {
                return Err(format!("{} where a part is wanted; write {}", quoted(text), percent / 100.0).into());
            }
        }
        let range = range.clone();
        let (least, most) = (*range.start(), *range.end());
        match number(f64::MIN..=f64::MAX)(value)? {
            n if range.contains(&n) => Ok(n),
            n => Err(format!(
                "{n} is {} %; a part from {least} to {most} is allowed, 0.07 for 7 %",
                (n * 100.0 * 1e6).round() / 1e6
            )
            .into()),
        }
    }
}

/// A size: a number of bytes, or text with a unit.
pub fn size(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Read<Bytes> {
    move |value| {
        let size = match value {
            Value::Integer(Some(n)) => u64::try_from(*n).map(Bytes).map_err(|_| format!("{n} is below zero"))?,
            Value::Text(text) | Value::Bare(text) => parse::bytes(text).map_err(|e| e.to_string())?,
            other => return Err(format!("{} where a size like \"4KiB\" is wanted", other.kind()).into()),
        };
        if range.contains(&size.0) {
            return Ok(size);
        }
        Err(format!("{size} is out of range; {} to {} is allowed", Bytes(*range.start()), Bytes(*range.end())).into())
    }
}

/// A time with its unit.
pub fn time(most: Nanos) -> impl Fn(&Value) -> Read<Nanos> {
    move |value| {
        let time = match value {
            Value::Integer(Some(0)) => Nanos(0),
            Value::Text(text) | Value::Bare(text) => parse::nanos(text).map_err(|e| e.to_string())?,
            other => return Err(format!("{} where a time like \"80us\" is wanted", shown(other)).into()),
        };
        if time > most {
            return Err(format!("{time} is too long; at most {most} is allowed").into());
        }
        Ok(time)
    }
}

/// One of a few words.
pub fn word<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Value) -> Read<T> {
    move |value| {
        let text = text(value)?;
        words.iter().find(|(w, _)| *w == text).map(|(_, t)| *t).ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
            Wrong::from(format!("{} is unknown; {} is allowed", quoted(&text), any_of(&all)))
        })
    }
}

fn any_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

/// One value, or a list of them; an element's fault is on the element's line.
pub fn one_or_list<T>(read: impl Fn(&Value) -> Read<T>) -> impl Fn(&Value) -> Read<Vec<T>> {
    move |value| match value {
        Value::List(items) => {
            let read_item =
                |item: &Item| read(&item.value).map_err(|w| Wrong { line: w.line.or(Some(item.line)), ..w });
            items.iter().map(read_item).collect()
        }
        Value::Bare(text) => text.split(',').map(|t| read(&Value::Bare(t.to_string()))).collect(),
        single => Ok(vec![read(single)?]),
    }
}
