//! Strings as TOML writes them.

/// The inside of a TOML basic string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn string(text: impl ToString) -> String {
    format!("\"{}\"", escaped(&text.to_string()))
}

pub(super) fn strings(texts: impl IntoIterator<Item = impl ToString>) -> String {
    format!("[{}]", texts.into_iter().map(string).collect::<Vec<_>>().join(", "))
}
