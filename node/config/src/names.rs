//! What may be a name: of an element, of a host.

use super::read::{Placed, Read, Section, quoted, text};
use super::value::Value;

/// NQNs have at most 223 bytes (NVMe base 2.0, section 4.5).
const MAX_NQN: usize = 223;

/// A name as it stands in NQNs, paths and URLs.
pub fn name(value: &Value) -> Read<String> {
    let name = text(value)?;
    name_text(&name)?;
    Ok(name)
}

/// Whether this is a name.
pub fn name_text(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > 32
        || !name.chars().all(plain)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let what = format!(
            "{} is no name; use 1 to 32 letters, digits, '-', '_' and '.', a letter or digit first",
            quoted(name)
        );
        return Err(what);
    }
    Ok(())
}

/// The name of an element of `[[list]]`; its path follows its name.
pub fn element_name(section: &Section<'_>, list: &str) -> Option<Placed<String>> {
    let mut placed = section.placed("name", name)?;
    section.rename(format!("{list}.{}", placed.value));
    placed.key = section.key("name");
    Some(placed)
}

/// Whether this names hosts: an NQN, or `*`.
pub(super) fn host_text(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { nqn_text(text) }
}

/// An NVMe qualified name (NVMe base 2.0, section 4.5): `nqn.`, no blanks, no control characters, at most 223 bytes.
pub(super) fn nqn(value: &Value) -> Read<String> {
    let text = text(value)?;
    nqn_text(&text)?;
    Ok(text)
}

fn nqn_text(text: &str) -> Result<(), String> {
    let plain = text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    if !text.starts_with("nqn.") || text.len() < 5 || text.len() > MAX_NQN || !plain {
        let what = format!(
            "{} is not an NQN like nqn.2014-08.org.nvmexpress:uuid:… (at most {MAX_NQN} bytes, no blanks)",
            quoted(text)
        );
        return Err(what);
    }
    Ok(())
}
