//! Patterns in paths: `*`, `?` and `[a-z]`, as a shell has them, within one name each.
//!
//! `\` before one of these, or before itself, makes it a plain character. A name that begins with `.` is met by patterns that do.

use super::files::Files;
use super::path::join;
use weir_store::InodeKind;
use weir_store_node::client::ClientError;

/// A part of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// Any characters, or none.
    Any,
    /// One character.
    One,
    /// One character of these ranges, or of none of them.
    Of { ranges: Vec<(u32, u32)>, negated: bool },
    /// This character.
    Is(u32),
}

/// The characters of a name. A byte that is no UTF-8 counts as one that there is not.
fn characters(name: &[u8]) -> Vec<u32> {
    let mut all = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        all.extend(chunk.valid().chars().map(u32::from));
        all.extend(chunk.invalid().iter().map(|byte| 0x11_0000 + u32::from(*byte)));
    }
    all
}

const SPECIAL: &[char] = &['*', '?', '[', ']', '\\'];

fn is_special(c: u32) -> bool {
    char::from_u32(c).is_some_and(|c| SPECIAL.contains(&c))
}

fn tokens(pattern: &[u8]) -> Vec<Token> {
    let text = characters(pattern);
    let mut found = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        at += 1;
        found.push(match char::from_u32(c) {
            Some('*') => Token::Any,
            Some('?') => Token::One,
            Some('\\') if text.get(at).is_some_and(|next| is_special(*next)) => {
                at += 1;
                Token::Is(text[at - 1])
            }
            Some('[') => match set(&text[at..]) {
                Some((token, length)) => {
                    at += length;
                    token
                }
                // Without an end it is a plain character.
                None => Token::Is(c),
            },
            _ => Token::Is(c),
        });
    }
    found
}

/// What follows `[`, and how long it is; a `]` that comes first is one of the set.
fn set(text: &[u32]) -> Option<(Token, usize)> {
    let negated = text.first().is_some_and(|c| [u32::from('!'), u32::from('^')].contains(c));
    let begin = usize::from(negated);
    let end = begin + 1 + text.get(begin + 1..)?.iter().position(|c| *c == u32::from(']'))?;
    let inside = &text[begin..end];
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < inside.len() {
        match inside[at..] {
            [from, dash, to, ..] if dash == u32::from('-') => {
                ranges.push((from, to));
                at += 3;
            }
            _ => {
                ranges.push((inside[at], inside[at]));
                at += 1;
            }
        }
    }
    Some((Token::Of { ranges, negated }, end + 1))
}

fn is_pattern(tokens: &[Token]) -> bool {
    tokens.iter().any(|token| !matches!(token, Token::Is(_)))
}

/// The name that a pattern without wildcards is: itself without its `\`.
fn plain(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut at = 0;
    while at < part.len() {
        let escapes = part[at] == b'\\' && part.get(at + 1).is_some_and(|next| is_special(u32::from(*next)));
        at += usize::from(escapes);
        out.push(part[at]);
        at += 1;
    }
    out
}

fn matches(pattern: &[Token], name: &[u8]) -> bool {
    if name.starts_with(b".") && pattern.first() != Some(&Token::Is(u32::from('.'))) {
        return false;
    }
    let text = characters(name);
    let (mut p, mut t) = (0, 0);
    // Where the last `*` was, and what it has taken: it takes one more where the rest does not fit.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Token::Any) => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(token) if fits(token, text[t]) => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|token| *token == Token::Any)
}

fn fits(token: &Token, c: u32) -> bool {
    match token {
        Token::Any | Token::One => true,
        Token::Of { ranges, negated } => ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated,
        Token::Is(own) => *own == c,
    }
}

/// The paths that a pattern meets, in order; the path itself where it has no pattern, whether it is there or not.
///
/// # Errors
/// A folder cannot be listed. One that is not there, or is none, has nothing that is met.
pub fn expand(files: &dyn Files, path: &[u8]) -> Result<Vec<Vec<u8>>, ClientError> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).collect();
    let (mut found, mut met) = (vec![b"/".to_vec()], false);
    for (i, part) in parts.iter().enumerate() {
        let pattern = tokens(part);
        if !is_pattern(&pattern) {
            let name = plain(part);
            found.iter_mut().for_each(|path| *path = join(path, &name));
            continue;
        }
        met = true;
        let mut next = Vec::new();
        for folder in &found {
            let entries = match files.list(folder) {
                Ok(entries) => entries,
                Err(e) if is_nothing(&e) => continue,
                Err(e) => return Err(e),
            };
            for entry in entries {
                let entry = entry?;
                let may_lead_on = i + 1 == parts.len() || entry.kind.is_container() || entry.kind == InodeKind::Symlink;
                if may_lead_on && matches(&pattern, &entry.name) {
                    next.push(join(folder, &entry.name));
                }
            }
        }
        found = next;
    }
    let ends_plain = parts.last().is_some_and(|part| !is_pattern(&tokens(part)));
    if met && ends_plain {
        found.retain(|path| files.stat(path, false).is_ok());
    }
    Ok(found)
}

fn is_nothing(e: &ClientError) -> bool {
    use weir_store::StoreError;
    matches!(e.store_error(), Some(StoreError::NotFound | StoreError::NotDirectory | StoreError::WrongKind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_meets() {
        for (pattern, met, not) in [
            ("*", vec!["a", "a b"], vec![".a"]),
            (".*", vec![".a"], vec!["a"]),
            ("a*c", vec!["ac", "abc", "abcc"], vec!["abd", "bac"]),
            ("*a*b*", vec!["ab", "xaxbx"], vec!["ba"]),
            ("?", vec!["a", "ä"], vec!["ab"]),
            ("[a-c]", vec!["a", "b", "c"], vec!["d", "-"]),
            ("[!a-c]", vec!["d"], vec!["a", "bb"]),
            ("[^a]x", vec!["bx"], vec!["ax"]),
            ("[]a]", vec!["]", "a"], vec!["b"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("x[", vec!["x["], vec!["x"]),
            ("\\*", vec!["*"], vec!["a"]),
            ("a\\b*", vec!["a\\b"], vec!["ab"]),
        ] {
            let tokens = tokens(pattern.as_bytes());
            met.iter().for_each(|name| assert!(matches(&tokens, name.as_bytes()), "{pattern} {name}"));
            not.iter().for_each(|name| assert!(!matches(&tokens, name.as_bytes()), "{pattern} {name}"));
        }
        assert!(matches(&tokens(b"?"), b"\xff") && !matches(&tokens(b"?"), b"\xff\xff"));
        // Many stars take no more than a product of lengths.
        let stars = b"*a".repeat(100);
        assert!(!matches(&tokens(&stars), &[b'a'; 99]));
        assert!(matches(&tokens(&stars), &[b'a'; 200]));
    }

    #[test]
    fn plain_names() {
        assert!(!is_pattern(&tokens(b"a\\*b")) && is_pattern(&tokens(b"a*")));
        assert_eq!(
            [plain(b"a\\*b"), plain(b"a\\b"), plain(b"\\\\")],
            [b"a*b".to_vec(), b"a\\b".to_vec(), b"\\".to_vec()]
        );
    }
}
