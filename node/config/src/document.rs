//! A file as a tree whose keys can be changed before it is read: what `weir sim --set` does.

use super::error::{ConfigError, Problem};
use super::read::{Section, Sink};
use super::value::{self, Entry, Item, Value};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A file larger than this is no configuration.
pub(super) const MAX_FILE: u64 = 1 << 20;
/// Keys whose tables are written `[[key]]`.
const LISTS: [&str; 6] = ["device", "tenant", "pool", "volume", "export", "job"];

/// A TOML file that has been parsed and not been read.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    base: PathBuf,
    entries: Vec<Entry>,
}

impl Document {
    /// Parses a file; relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// It cannot be read, or is not TOML.
    pub fn load(file: &Path) -> Result<Document, ConfigError> {
        let shown = file.display().to_string();
        let fail = |what: String| ConfigError(vec![Problem { file: shown.clone(), line: 0, key: String::new(), what }]);
        let base = match std::path::absolute(file) {
            Ok(path) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
            Err(e) => return Err(fail(format!("cannot find its folder: {e}"))),
        };
        match std::fs::metadata(file) {
            Ok(meta) if meta.len() > MAX_FILE => {
                return Err(fail(format!("{} bytes; a configuration has at most {MAX_FILE}", meta.len())));
            }
            Ok(_) => {}
            Err(e) => return Err(fail(format!("cannot be read: {e}; name a TOML file"))),
        }
        let text = std::fs::read_to_string(file).map_err(|e| fail(format!("cannot be read: {e}")))?;
        Document::parse(&text, &shown, &base)
    }

    /// Parses a text. `file` is its name in messages, `base` the folder that relative paths in it start from.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(text: &str, file: &str, base: &Path) -> Result<Document, ConfigError> {
        let lines = value::Lines::of(text);
        let (document, faults) = DeTable::parse_recoverable(text);
        if !faults.is_empty() {
            // What follows a broken line is guesswork: only the syntax is reported.
            let sink = Sink::new(file);
            for fault in faults {
                let line = fault.span().map_or(0, |span| lines.line(span.start));
                sink.note(line, "", format_args!("not TOML: {}", fault.message()));
            }
            return Err(ConfigError(sink.into_problems()));
        }
        let entries = value::table(document.get_ref(), &lines);
        Ok(Document { file: file.to_string(), base: base.to_path_buf(), entries })
    }

    /// Where relative paths start.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Everything that `read` noted.
    pub fn read<T>(&self, read: impl FnOnce(&Section<'_>) -> T) -> Result<T, ConfigError> {
        let sink = Sink::new(&self.file);
        let read = read(&Section::new(&sink, "", 1, &self.entries));
        match sink.into_problems() {
            problems if problems.is_empty() => Ok(read),
            problems => Err(ConfigError(problems)),
        }
    }

    /// Adds a table to `[[list]]`; the keys' values are text that its reader takes as it likes.
    pub fn push(&mut self, list: &str, keys: &[(String, String)]) {
        let entry = |(key, value): &(String, String)| bare(key, value);
        let table = Item { line: 0, value: Value::Table(keys.iter().map(entry).collect()) };
        match self.entries.iter_mut().find(|e| e.key == list) {
            Some(Entry { value: Value::List(items), .. }) => items.push(table),
            // A value that is no list stays, and its reader refuses it.
            Some(_) => {}
            None => self.entries.push(Entry { key: list.to_string(), line: 0, value: Value::List(vec![table]) }),
        }
    }

    /// Sets one key, as `--set PATH=VALUE` names it: `seed`, `device.slots`, `jobs[0].qd`, `job.gold.qd`. A list may be
    /// written in the plural; without a number or a name every table of it is meant, and one is made where there is none.
    ///
    /// # Errors
    /// The path leads nowhere; whether the key exists shows when the document is read.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), String> {
        let mut steps = Vec::new();
        for part in path.split('.') {
            steps.extend(step(part).ok_or_else(|| format!("{path} is no key; write device.slots or jobs[0].qd"))?);
        }
        if let Some(Step::Key(first)) = steps.first_mut() {
            let singular = first.strip_suffix('s').unwrap_or(first);
            if LISTS.contains(&singular) {
                first.truncate(singular.len());
            }
        }
        set(&mut self.entries, &steps, value).map_err(|what| format!("{path}: {what}"))
    }
}

enum Step {
    Key(String),
    Index(usize),
}

/// `jobs[0]` is two steps.
fn step(part: &str) -> Option<Vec<Step>> {
    let (key, index) = match part.split_once('[') {
        Some((key, rest)) => (key, Some(rest.strip_suffix(']')?.parse().ok()?)),
        None => (part, None),
    };
    if key.is_empty() || key.contains(|c: char| c.is_whitespace() || c == ']') {
        return None;
    }
    let key = Step::Key(key.to_string());
    Some(std::iter::once(key).chain(index.map(Step::Index)).collect())
}

fn bare(key: &str, value: &str) -> Entry {
    Entry { key: key.to_string(), line: 0, value: Value::Bare(value.to_string()) }
}

fn set(entries: &mut Vec<Entry>, steps: &[Step], value: &str) -> Result<(), String> {
    let (Some(Step::Key(key)), rest) = (steps.first(), steps.get(1..).unwrap_or_default()) else {
        return Err("a number where a key is wanted".to_string());
    };
    let found = entries.iter().position(|e| e.key == *key);
    let at = found.unwrap_or_else(|| {
        let list = !rest.is_empty() && LISTS.contains(&key.as_str());
        let made = if list { Value::List(vec![empty_table()]) } else { Value::Table(Vec::new()) };
        entries.push(Entry { key: key.clone(), line: 0, value: made });
        entries.len() - 1
    });
    if rest.is_empty() {
        entries[at] = bare(key, value);
        return Ok(());
    }
    match &mut entries[at].value {
        Value::Table(inner) => set(inner, rest, value),
        Value::List(items) => set_in_list(items, rest, value),
        other => Err(format!("{key} is {}, not a table", other.kind())),
    }
}

/// Whether the key stands in the `[device.flash]` below a drive's table, which has the same keys, and not in the table itself.
fn stands_in_flash(keys: &[Entry], key: &str) -> bool {
    let in_flash = |entry: &Entry| match &entry.value {
        Value::Table(inner) => entry.key == "flash" && inner.iter().any(|e| e.key == key),
        _ => false,
    };
    keys.iter().any(in_flash) && !keys.iter().any(|entry| entry.key == key)
}

fn empty_table() -> Item {
    Item { line: 0, value: Value::Table(Vec::new()) }
}

fn set_in_list(items: &mut [Item], steps: &[Step], value: &str) -> Result<(), String> {
    let is = |entry: &Entry, name: &str| matches!(&entry.value, Value::Text(t) | Value::Bare(t) if t == name);
    // A job without a name has its tenant's.
    let named = |item: &Item, name: &str| match &item.value {
        Value::Table(keys) => match keys.iter().find(|e| e.key == "name") {
            Some(own) => is(own, name),
            None => keys.iter().any(|e| e.key == "tenant" && is(e, name)),
        },
        _ => false,
    };
    let count = items.len();
    let (chosen, rest): (Vec<usize>, _) = match &steps[0] {
        Step::Index(n) if *n < count => (vec![*n], &steps[1..]),
        Step::Index(n) => return Err(format!("there is no number {n}; the first of {count} is 0")),
        Step::Key(name) if steps.len() > 1 && items.iter().any(|i| named(i, name)) => {
            ((0..count).filter(|i| named(&items[*i], name)).collect(), &steps[1..])
        }
        Step::Key(_) => ((0..count).collect(), steps),
    };
    if rest.is_empty() {
        return Err("names a table; add the key".to_string());
    }
    for at in chosen {
        match &mut items[at].value {
            Value::Table(keys) => match rest {
                [Step::Key(key)] if stands_in_flash(keys, key) => {
                    set(keys, &[Step::Key("flash".to_string()), Step::Key(key.clone())], value)?;
                }
                _ => set(keys, rest, value)?,
            },
            other => return Err(format!("{} where a table is wanted", other.kind())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices;

    const TEXT: &str =
        "seed = 1\n[[device]]\nname = \"a\"\nslots = 2\n[[device]]\nslots = 4\n[[tenant]]\nname = \"t\"\n";

    fn slots(sets: &[(&str, &str)]) -> Result<Vec<u16>, String> {
        let mut document = Document::parse(TEXT, "f", Path::new("/")).unwrap();
        for (path, value) in sets {
            document.set(path, value)?;
        }
        let devices = document.read(|root| devices(root, Path::new("/"), "n", 1)).map_err(|e| e.to_string())?;
        Ok(devices.iter().map(|d| d.slots).collect())
    }

    #[test]
    fn keys_are_set_by_place_by_name_and_everywhere() {
        // `read` leaves the other keys of the root alone: only `finish` refuses them.
        assert_eq!(slots(&[]), Ok(vec![2, 4]));
        assert_eq!(slots(&[("device.slots", "8")]), Ok(vec![8, 8]));
        assert_eq!(slots(&[("devices[1].slots", "8")]), Ok(vec![2, 8]));
        assert_eq!(slots(&[("device.a.slots", "8"), ("device[1].latency", "3us")]), Ok(vec![8, 4]));
        let mut none = Document::parse("", "f", Path::new("/")).unwrap();
        none.set("device.slots", "7").unwrap();
        let made = none.read(|root| devices(root, Path::new("/"), "n", 1)).unwrap();
        assert_eq!(made[0].slots, 7, "a drive is made where there is none");
        none.push("device", &[("slots".into(), "9".into())]);
        assert_eq!(none.read(|root| devices(root, Path::new("/"), "n", 1)).unwrap()[1].slots, 9);
    }

    #[test]
    fn a_key_of_the_flash_is_set_where_it_stands() {
        let text = "[[device]]\nkind = \"flash\"\ncapacity = \"1GiB\"\n[device.flash]\ngc = \"plane\"\n";
        for (path, value) in [("device.gc", "channel"), ("device.flash.gc", "channel"), ("device.victim", "fifo")] {
            let mut document = Document::parse(text, "f", Path::new("/")).unwrap();
            document.set(path, value).unwrap();
            let made =
                document.read(|root| devices(root, Path::new("/"), "n", 1)).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(format!("{:?}", made[0].flash).to_lowercase().contains(value), "{path}: {:?}", made[0].flash);
        }
    }

    #[test]
    fn what_cannot_be_set() {
        for (path, says) in [
            ("", " is no key"),
            ("device..slots", "is no key"),
            ("device[x].slots", "is no key"),
            ("device[2].slots", "device[2].slots: there is no number 2; the first of 2 is 0"),
            ("device[0]", "device[0]: names a table"),
            ("seed.x", "seed.x: seed is a number, not a table"),
            ("device.slot", "did you mean slots?"),
            ("device.chanels", "did you mean channels?"),
            ("device.victm", "did you mean victim?"),
            ("tenant.t.clas", ""),
        ] {
            match slots(&[(path, "1")]) {
                Err(error) => assert!(error.contains(says), "{path}: {error}"),
                Ok(_) => assert!(says.is_empty(), "{path}"),
            }
        }
        assert!(slots(&[("device.a.slots", "many")]).unwrap_err().contains("f: device.a.slots: \"many\""));
    }
}
