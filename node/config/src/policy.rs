//! `[[store.policy]]` and the watermarks of `[store]`: which classes files of some paths get, and when their blocks go to the next one.

use super::read::{Placed, Read, Section, integer, quoted, text, time};
use super::store::classes;
use super::value::{Entry, Value};
use weir_store::records::COPIES_MAX;
use weir_store::{CLASSES_MAX, PathPattern, Watermarks};
use weir_units::Nanos;

/// A `[[store.policy]]` whose classes have not been looked up yet.
pub(super) struct PolicyRead {
    pub(super) path: Option<Placed<PathPattern>>,
    pub(super) classes: Option<Placed<Vec<String>>>,
    pub(super) copies: u8,
    pub(super) demote_after: Option<Placed<Option<Nanos>>>,
}

/// What it may be: below, a file would be cold as soon as it is closed.
const DEMOTE_AFTER_MIN: Nanos = Nanos::from_secs(1);
const DEMOTE_AFTER_MAX: Nanos = Nanos::from_secs(365 * 86_400);

pub(super) fn read(store: &Section<'_>, (i, (line, entries)): (usize, (u32, &[Entry]))) -> PolicyRead {
    let section = store.inner(format!("store.policy#{}", i + 1), line, entries);
    let read = PolicyRead {
        path: section.placed("path", pattern),
        classes: section.placed("classes", some_classes),
        copies: section.or("copies", 1, copies),
        demote_after: section.placed("demote_after", demote_after),
    };
    if !section.has("path") {
        section.fault("path", "missing; write which files are meant, like \"/tmp/**\"");
    }
    section.finish();
    read
}

/// `high_watermark` and `low_watermark`.
pub(super) fn watermarks(section: &Section<'_>) -> Watermarks {
    let usual = Watermarks::default();
    let marks = Watermarks {
        high: section.or("high_watermark", usual.high, share),
        low: section.or("low_watermark", usual.low, share),
    };
    if marks.low >= marks.high {
        let key = if section.has("low_watermark") { "low_watermark" } else { "high_watermark" };
        let (high, low) = (percent(marks.high), percent(marks.low));
        section.fault(key, format_args!("low_watermark is {low} and high_watermark {high}; the low one is less"));
    }
    marks
}

/// Millionths as the configuration writes them.
pub(super) fn percent(millionths: u32) -> String {
    format!("{}%", millionths / 10_000)
}

/// `"90%"`, in millionths.
fn share(value: &Value) -> Read<u32> {
    let text = text(value).map_err(|wrong| format!("{wrong}; write a percentage like \"90%\""))?;
    let number = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
    match number.filter(|number| (1..=100).contains(number)) {
        Some(number) => Ok(u32::from(number) * 10_000),
        None => Err(format!("{} is no percentage from \"1%\" to \"100%\"", quoted(&text)).into()),
    }
}

fn pattern(value: &Value) -> Read<PathPattern> {
    let text = text(value)?;
    Ok(PathPattern::new(&text).map_err(|why| format!("{}: {why}", quoted(&text)))?)
}

fn some_classes(value: &Value) -> Read<Vec<String>> {
    let list = classes(value)?;
    match list.len() <= CLASSES_MAX {
        true => Ok(list),
        false => Err(format!("{} classes; a file has {CLASSES_MAX} at the most", list.len()).into()),
    }
}

fn copies(value: &Value) -> Read<u8> {
    Ok(integer(1..=COPIES_MAX as u64)(value)? as u8)
}

/// A time, or `none`.
fn demote_after(value: &Value) -> Read<Option<Nanos>> {
    match value {
        Value::Text(text) | Value::Bare(text) if text == "none" => Ok(None),
        _ => match time(DEMOTE_AFTER_MAX)(value)? {
            after if after < DEMOTE_AFTER_MIN => {
                Err(format!("{after} is too short; at least {DEMOTE_AFTER_MIN} is needed, or \"none\"").into())
            }
            after => Ok(Some(after)),
        },
    }
}
