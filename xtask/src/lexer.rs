//! Just enough of Rust's grammar to tell code from comments and strings.

/// What the scanner is inside of.
enum Inside {
    Code,
    Line,
    Block(u32),
    Str,
    Raw(usize),
}

/// The text with comments, strings and character literals replaced by spaces; line breaks stay where they are.
pub fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < chars.len() {
        let (len, keep, next) = step(&chars[at..], chars[..at].last().copied(), inside);
        for &c in &chars[at..at + len] {
            out.push(if c == '\n' || keep { c } else { ' ' });
        }
        inside = next;
        at += len;
    }
    out
}

/// How many characters belong together at the start of `rest`, whether they are code, and what follows them.
fn step(rest: &[char], before: Option<char>, inside: Inside) -> (usize, bool, Inside) {
    let starts = |s: &str| s.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    match inside {
        Inside::Code if starts("//") => (2, false, Inside::Line),
        Inside::Code if starts("/*") => (2, false, Inside::Block(1)),
        Inside::Code if starts("\"") => (1, false, Inside::Str),
        Inside::Code if rest[0] == 'r' && !before.is_some_and(word) => match raw_hashes(rest) {
            Some(hashes) => (hashes + 2, false, Inside::Raw(hashes)),
            None => (1, true, Inside::Code),
        },
        Inside::Code if rest[0] == '\'' => match char_literal(rest) {
            Some(len) => (len, false, Inside::Code),
            None => (1, true, Inside::Code),
        },
        // A byte string's or C string's prefix may come before the `r`.
        Inside::Code if matches!(rest[0], 'b' | 'c') && !before.is_some_and(word) && rest.get(1) == Some(&'r') => {
            match raw_hashes(&rest[1..]) {
                Some(hashes) => (hashes + 3, false, Inside::Raw(hashes)),
                None => (1, true, Inside::Code),
            }
        }
        Inside::Code => (1, true, Inside::Code),
        Inside::Line if rest[0] == '\n' => (1, false, Inside::Code),
        Inside::Line => (1, false, Inside::Line),
        Inside::Block(depth) if starts("/*") => (2, false, Inside::Block(depth + 1)),
        Inside::Block(1) if starts("*/") => (2, false, Inside::Code),
        Inside::Block(depth) if starts("*/") => (2, false, Inside::Block(depth - 1)),
        Inside::Block(depth) => (1, false, Inside::Block(depth)),
        Inside::Str if rest[0] == '\\' => (rest.len().min(2), false, Inside::Str),
        Inside::Str if rest[0] == '"' => (1, false, Inside::Code),
        Inside::Str => (1, false, Inside::Str),
        Inside::Raw(hashes) => {
            let ends = rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|c| *c == '#');
            if ends { (hashes + 1, false, Inside::Code) } else { (1, false, Inside::Raw(hashes)) }
        }
    }
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of `#` of a raw string that begins with this `r`; `None` for a raw identifier or a plain word.
fn raw_hashes(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    (rest.get(1 + hashes) == Some(&'"')).then_some(hashes)
}

/// The length of a character literal; `None` for a lifetime.
fn char_literal(rest: &[char]) -> Option<usize> {
    match rest.get(1)? {
        '\\' => rest.iter().skip(3).position(|c| *c == '\'').map(|i| i + 4),
        _ => (rest.get(2) == Some(&'\'')).then_some(3),
    }
}

/// Where `token` stands as a word of its own in `code`, as byte offsets.
pub fn words<'a>(code: &'a str, token: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(token).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + token.len()..].chars().next();
        !before.is_some_and(word) && !after.is_some_and(word)
    })
}

/// The line of a byte offset, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|b| *b == b'\n').count() + 1
}
