//! Values of a rule's keys: how each is written, and read again.

use crate::rule::LbaSpan;
use crate::words::RuleError;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{AdminOpcode, IoOpcode, Status};
use weir_units::{Nanos, parse};

/// The keys of a rule that are not read yet.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Notes every key once.
    ///
    /// # Errors
    /// A key stands there twice.
    pub fn new<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RuleError> {
        let mut list: Vec<(String, String)> = Vec::new();
        for (key, value) in pairs {
            if list.iter().any(|(known, _)| known == key) {
                return Err(RuleError::new(key, "stands there twice; keep one"));
            }
            list.push((key.to_string(), value.to_string()));
        }
        Ok(Self(list))
    }

    /// Takes a key's value.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1)
    }

    /// Takes and reads it.
    pub fn get<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, RuleError> {
        self.take(key).map(|text| read(&text)).transpose().map_err(|what| RuleError::new(key, &what))
    }

    /// The same of a key that must be there; `example` is what is said where it is not.
    pub fn need<T>(
        &mut self,
        key: &str,
        example: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, RuleError> {
        self.get(key, read)?.ok_or_else(|| RuleError::new(key, &format!("missing; write it like {key}={example}")))
    }

    /// A key that nobody has taken.
    pub fn left(&self) -> Option<&str> {
        self.0.first().map(|(key, _)| key.as_str())
    }
}

/// A number in decimal, or hexadecimal after 0x.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number of a range.
pub(crate) fn within(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| match number(text) {
        Some(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("\"{text}\" is not a number from {least} to {most}")),
    }
}

/// The same in 32 bits.
pub(crate) fn within_u32(least: u32, most: u32) -> impl Fn(&str) -> Result<u32, String> {
    move |text| within(least.into(), most.into())(text).map(|n| n as u32)
}

/// A time of more than 0.
pub(crate) fn time(text: &str) -> Result<Nanos, String> {
    match parse::nanos(text) {
        Ok(Nanos(0)) => Err("0 is no time; leave it out".into()),
        other => other.map_err(|e| e.to_string()),
    }
}

/// `true` or `false`.
pub(crate) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("\"{text}\": true or false is allowed")),
    }
}

/// `8` or `8-15`.
pub(crate) fn span(text: &str) -> Result<LbaSpan, String> {
    let wrong = || format!("\"{text}\" is not a block like 8, or blocks like 8-15");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
    if last < first { Err(format!("\"{text}\" ends before it begins")) } else { Ok(LbaSpan { first, last }) }
}

/// How [`span`] is written.
pub(crate) fn span_text(span: &LbaSpan) -> String {
    let LbaSpan { first, last } = span;
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// A part of 1: `0.25` or `25%`, in millionths.
pub(crate) fn probability(text: &str) -> Result<u32, String> {
    let wrong = || format!("\"{text}\" is not a probability like 0.01 or 1%");
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1e6), |digits| (digits, 1e4));
    let part: f64 = digits.parse().map_err(|_| wrong())?;
    let millionths = part * scale;
    if !(0.0..=1e6).contains(&millionths) {
        return Err(wrong());
    }
    match (millionths + 0.5) as u32 {
        0 => Err(format!("\"{text}\" is never, to a millionth")),
        n => Ok(n),
    }
}

/// How [`probability`] is written.
pub(crate) fn probability_text(per_million: u32) -> String {
    match per_million {
        1_000_000 => "1".into(),
        n => format!("0.{n:06}").trim_end_matches('0').into(),
    }
}

/// `2/81h`, `2/0x81`: status code type and status code.
pub(crate) fn code(text: &str) -> Result<Status, String> {
    let wrong = || format!("\"{text}\" is not a status code type and a status code like 2/81h");
    let (sct, sc) = text.split_once('/').ok_or_else(wrong)?;
    let hex = |t: &str| t.strip_suffix('h').map_or_else(|| number(t), |digits| u64::from_str_radix(digits, 16).ok());
    let (sct, sc) = (hex(sct).ok_or_else(wrong)?, hex(sc).ok_or_else(wrong)?);
    if sct > 7 || sc > 0xff {
        return Err(wrong());
    }
    match Status::new(sct as u8, sc as u8) {
        status if status.is_success() => Err("0/00h is success".into()),
        status => Ok(status),
    }
}

/// How [`code`] is written.
pub(crate) fn code_text(status: Status) -> String {
    format!("{}/{:02x}h", status.sct(), status.sc())
}

/// A standard's name as a word: `WRITE_ZEROES` is `write-zeroes`.
fn word(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

fn io_name(opcode: u8) -> Option<&'static str> {
    IoOpcode(opcode).name().filter(|_| opcode != IoOpcode::FABRICS.0).or(ZonedOpcode(opcode).name())
}

fn admin_name(opcode: u8) -> Option<&'static str> {
    AdminOpcode(opcode).name()
}

fn opcodes(text: &str, name: fn(u8) -> Option<&'static str>, example: &str) -> Result<Vec<u8>, String> {
    let one = |part: &str| {
        let named = (0..=u8::MAX).find(|opcode| name(*opcode).is_some_and(|name| word(name) == part));
        let numbered = || number(part).and_then(|n| u8::try_from(n).ok());
        named.or_else(numbered).ok_or_else(|| format!("\"{part}\" is no opcode like {example} or 0xc1"))
    };
    let mut list = text.split(',').map(one).collect::<Result<Vec<u8>, String>>()?;
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// I/O commands by the standard's names, or by numbers: `read,write`.
pub(crate) fn io_opcodes(text: &str) -> Result<Vec<u8>, String> {
    opcodes(text, io_name, "read, write-zeroes")
}

/// The same of admin commands.
pub(crate) fn admin_opcodes(text: &str) -> Result<Vec<u8>, String> {
    opcodes(text, admin_name, "identify, get-log-page")
}

fn opcodes_text(list: &[u8], name: fn(u8) -> Option<&'static str>) -> String {
    let text = |opcode: &u8| name(*opcode).map_or_else(|| format!("{opcode:#04x}"), word);
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

/// How [`io_opcodes`] is written.
pub(crate) fn io_text(list: &[u8]) -> String {
    opcodes_text(list, io_name)
}

/// How [`admin_opcodes`] is written.
pub(crate) fn admin_text(list: &[u8]) -> String {
    opcodes_text(list, admin_name)
}

/// A factor of at least 1 to three digits behind the point, in thousandths.
pub(crate) fn factor(text: &str) -> Result<u32, String> {
    let parsed: Option<f64> = text.parse().ok();
    match parsed.map(|factor| factor * 1000.0) {
        Some(thousandths) if (1000.0..=1e8).contains(&thousandths) => Ok((thousandths + 0.5) as u32),
        _ => Err(format!("\"{text}\" is not a factor from 1 to 100000")),
    }
}

/// How [`factor`] is written.
pub(crate) fn factor_text(thousandths: u32) -> String {
    match thousandths % 1000 {
        0 => (thousandths / 1000).to_string(),
        rest => format!("{}.{rest:03}", thousandths / 1000).trim_end_matches('0').into(),
    }
}
