//! A configuration as a tree of values that know their lines, whether it came from TOML or from a bench target's query.

use toml::de::{DeTable, DeValue};

/// One key of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// 1-based; 0 where it was not written in a file.
    pub line: u32,
    /// Its value.
    pub value: Value,
}

/// One element of a list.
#[derive(Clone, Debug)]
pub struct Item {
    /// 1-based; 0 where it was not written in a file.
    pub line: u32,
    /// The element.
    pub value: Value,
}

/// What stands behind a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// A quoted string.
    Text(String),
    /// Unquoted text from a query: a string, a number or a flag, as its reader likes.
    Bare(String),
    /// `None`: larger than any key can be.
    Integer(Option<i64>),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A list; of tables where it was written as `[[key]]`.
    List(Vec<Item>),
    /// A table.
    Table(Vec<Entry>),
    /// A date, which no key takes.
    Other(&'static str),
}

impl Value {
    /// As an error message calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) | Value::Bare(_) => "a string",
            Value::Integer(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Float(_) => "a number with a fraction",
            Value::Other(kind) => kind,
        }
    }
}

/// Where the lines of a text begin.
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn of(text: &str) -> Self {
        Lines(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// The 1-based line of a byte offset.
    pub fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.0.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }
}

/// A parsed TOML table; its keys come in no particular order.
pub fn table(source: &DeTable<'_>, lines: &Lines) -> Vec<Entry> {
    let entry = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| Entry {
        key: key.get_ref().to_string(),
        line: lines.line(key.span().start),
        value: convert(value.get_ref(), lines),
    };
    source.iter().map(entry).collect()
}

fn convert(source: &DeValue<'_>, lines: &Lines) -> Value {
    match source {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => match number.as_str().replace('_', "").parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other("a number with a fraction"),
        },
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(list) => Value::List(
            list.iter()
                .map(|v| Item { line: lines.line(v.span().start), value: convert(v.get_ref(), lines) })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(inner, lines)),
    }
}

/// `latency=80us&slots=16` as a table; `%41` and `+` are decoded as in any URL.
pub fn query(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for pair in text.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("\"{pair}\" is not key=value"))?;
        let (key, value) = (decode(key)?, decode(value)?);
        if entries.iter().any(|e| e.key == key) {
            return Err(format!("{key} is given twice; keep one"));
        }
        entries.push(Entry { key, line: 0, value: Value::Bare(value) });
    }
    Ok(entries)
}

fn decode(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "\"{text}\" has a % that is not followed by two hexadecimal digits of UTF-8 text; for a % itself write %25"
        )
    };
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        out.push(match byte {
            // Of `7%`: who reads the number says what it is to be.
            b'%' if rest.len() == 0 => b'%',
            b'%' => {
                let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).ok_or_else(wrong);
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| wrong())
}
