//! Policies by path: what a file gets when it is made, where its creator does not say.
//!
//! A policy has a [`PathPattern`] over the whole path of a file. Of those that match, the first one holds: its classes and copies become the file's,
//! and [`DEMOTE_AFTER`] says how long the file has to be left alone before its blocks may go to the next class. All of that is the file's from then on: it
//! is looked at neither when the file gets another name nor when the policies change.

use crate::class::ClassName;
use crate::inode::Inode;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weir_units::{Nanos, parse};

/// The extended attribute of a file that says how long it has to be left alone before its blocks are demoted: a time such as `600s`.
pub const DEMOTE_AFTER: &str = "weir.demote_after";

/// Bytes of a pattern at the most.
pub const PATTERN_MAX: usize = 1024;

/// What the name of a copy ends with that is not whole yet, as `weir fs put` and `hadoop fs -put` have it: the file gets what its later name gets.
const UNFINISHED: &[u8] = b"._COPYING_";

/// A pattern over whole paths: `*` is any part of a name, `?` one character of it, and `**` any number of folders, or at the end any file below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(String);

/// Why a text is no pattern, as its writer reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It does not begin with `/`, or is `/` alone.
    NotAbsolute,
    /// A part of it is empty, `.` or `..`.
    Part,
    /// `**` stands beside something else in one part.
    DoubleStar,
    /// It has a character that other patterns give a meaning to.
    Character(char),
    /// It has more than [`PATTERN_MAX`] bytes.
    TooLong,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::NotAbsolute => f.write_str("a pattern is over whole paths; write one like \"/tmp/**\""),
            PatternError::Part => f.write_str("between two / there is a name or a pattern, and neither . nor .."),
            PatternError::DoubleStar => f.write_str("** stands between two / by itself; within a name write *"),
            PatternError::Character(c) => write!(f, "{c:?} has no meaning here; there is *, ? and **"),
            PatternError::TooLong => write!(f, "a pattern has {PATTERN_MAX} bytes at the most"),
        }
    }
}

impl core::error::Error for PatternError {}

impl PathPattern {
    /// The pattern that a text is.
    ///
    /// # Errors
    /// It is none: why.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_MAX {
            return Err(PatternError::TooLong);
        }
        if let Some(c) = text.chars().find(|c| matches!(c, '[' | ']' | '{' | '}' | '\\' | '\0')) {
            return Err(PatternError::Character(c));
        }
        let parts = text.strip_prefix('/').filter(|rest| !rest.is_empty()).ok_or(PatternError::NotAbsolute)?;
        for part in parts.split('/') {
            match part {
                "" | "." | ".." => return Err(PatternError::Part),
                "**" => {}
                part if part.contains("**") => return Err(PatternError::DoubleStar),
                _ => {}
            }
        }
        Ok(Self(text.into()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a file of that path is meant: an absolute path without `.`, `..` and symbolic links.
    pub fn matches(&self, path: &[u8]) -> bool {
        let path = path.strip_suffix(UNFINISHED).filter(|name| !name.ends_with(b"/")).unwrap_or(path);
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let parts: Vec<&[u8]> = self.0.split('/').skip(1).map(str::as_bytes).collect();
        let is_folders = |part: &&[u8]| *part == b"**";
        // The last ** stands for a file as well, which is there.
        let (parts, names) = match parts.split_last() {
            Some((last, before)) if is_folders(last) => match names.split_last() {
                Some((_, folders)) => (before.iter().copied().chain([&b"**"[..]]).collect(), folders),
                None => return false,
            },
            _ => (parts, &names[..]),
        };
        matches_all(&parts, names, |part| *part == b"**", |part, name| matches_name(part, name))
    }
}

/// Whether items are as a pattern's parts say, some of which stand for any number of items. Each such part takes as few as it can, and one more
/// whenever what is behind it does not fit: only the last one that was met has to be tried again.
fn matches_all<P, I>(parts: &[P], items: &[I], is_any: impl Fn(&P) -> bool, fits: impl Fn(&P, &I) -> bool) -> bool {
    let (mut part, mut item) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    loop {
        match parts.get(part) {
            Some(any) if is_any(any) => {
                part += 1;
                again = Some((part, item));
                continue;
            }
            Some(one) if items.get(item).is_some_and(|found| fits(one, found)) => {
                (part, item) = (part + 1, item + 1);
                continue;
            }
            None if item == items.len() => return true,
            _ => {}
        }
        match again {
            Some((behind, from)) if from < items.len() => {
                (part, item) = (behind, from + 1);
                again = Some((behind, from + 1));
            }
            _ => return false,
        }
    }
}

/// The same of the characters of one name. Bytes that are no UTF-8 are a character each.
fn matches_name(part: &[u8], name: &[u8]) -> bool {
    let (part, name) = (characters(part), characters(name));
    matches_all(&part, &name, |one| *one == b"*", |one, found| *one == b"?" || one == found)
}

fn characters(bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        all.extend(valid.char_indices().map(|(at, c)| &valid.as_bytes()[at..at + c.len_utf8()]));
        all.extend(chunk.invalid().chunks(1));
    }
    all
}

/// What files of some paths get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPolicy {
    /// Which files.
    pub path: PathPattern,
    /// The classes of their blocks, best first; empty: the store's.
    pub classes: Vec<ClassName>,
    /// Copies of each block: 1 to 4.
    pub copies: u8,
    /// How long a file has to be left alone before its blocks go to the next class, when theirs is over its high watermark; none: they stay.
    pub demote_after: Option<Nanos>,
}

/// The policy of a path: the first one that matches, by its place.
pub fn policy_of(policies: &[PathPolicy], path: &[u8]) -> Option<usize> {
    policies.iter().position(|policy| policy.path.matches(path))
}

/// How long a file has to be left alone, if it is to be demoted at all.
pub(crate) fn demote_after(inode: &Inode) -> Option<Nanos> {
    let text = core::str::from_utf8(inode.attributes.get(DEMOTE_AFTER)?).ok()?;
    parse::nanos(text).ok()
}

/// When blocks of a class go to the next one: shares of the room of its drives, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Above it blocks of cold files go.
    pub high: u32,
    /// Until so much is in use. Less than `high`.
    pub low: u32,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self::of_percent(90, 80)
    }
}

impl Watermarks {
    /// In hundredths.
    pub const fn of_percent(high: u8, low: u8) -> Self {
        Self { high: high as u32 * 10_000, low: low as u32 * 10_000 }
    }

    /// Bytes of a class that may be in use before blocks go.
    pub fn high_of(self, bytes: u64) -> u64 {
        share(self.high, bytes)
    }

    /// Bytes of a class that are in use when no more go.
    pub fn low_of(self, bytes: u64) -> u64 {
        share(self.low, bytes)
    }
}

/// Which files are of which classes, and when they go to the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tiering {
    /// What files get when they are made, by their paths: the first that matches.
    pub policies: Vec<PathPolicy>,
    /// When blocks go from a class to the next one, where a policy says that they may.
    pub watermarks: Watermarks,
}

fn share(millionths: u32, bytes: u64) -> u64 {
    (u128::from(bytes) * u128::from(millionths) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::new(text).expect("a pattern")
    }

    #[test]
    fn what_is_a_pattern() {
        for good in ["/a", "/tmp/**", "/**", "/*", "/a/**/b?", "/...", "/ä b"] {
            assert!(PathPattern::new(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", PatternError::NotAbsolute),
            ("/", PatternError::NotAbsolute),
            ("tmp/**", PatternError::NotAbsolute),
            ("/a//b", PatternError::Part),
            ("/a/", PatternError::Part),
            ("/a/../b", PatternError::Part),
            ("/a/./b", PatternError::Part),
            ("/a**", PatternError::DoubleStar),
            ("/***", PatternError::DoubleStar),
            ("/[ab]", PatternError::Character('[')),
            ("/{a,b}", PatternError::Character('{')),
            ("/a\\*", PatternError::Character('\\')),
        ] {
            assert_eq!(PathPattern::new(bad), Err(why), "{bad}");
        }
        assert_eq!(PathPattern::new(&("/".to_owned() + &"a".repeat(PATTERN_MAX))), Err(PatternError::TooLong));
    }

    #[test]
    fn what_a_pattern_matches() {
        for (text, path, is_meant) in [
            ("/tmp/**", "/tmp/a", true),
            ("/tmp/**", "/tmp/a/b/c", true),
            ("/tmp/**", "/tmp", false),
            ("/tmp/**", "/tmpa/b", false),
            ("/**", "/a", true),
            ("/**", "/", false),
            ("/*", "/a", true),
            ("/*", "/a/b", false),
            ("/*/*.log", "/runs/1.log", true),
            ("/*/*.log", "/runs/7/1.log", false),
            ("/**/*.log", "/1.log", true),
            ("/**/*.log", "/a/b/c/1.log", true),
            ("/**/*.log", "/a/b.log/c", false),
            ("/a/**/b/**/c", "/a/x/b/y/b/c", true),
            ("/a/**/b/**/c", "/a/x/c/y/b", false),
            ("/a/?", "/a/ä", true),
            ("/a/?", "/a/bc", false),
            ("/a/*b*c", "/a/abcbc", true),
            ("/a/*b*c", "/a/abcb", false),
            // A copy that is not whole yet.
            ("/a/*.log", "/a/x.log._COPYING_", true),
            ("/a/x", "/a/x._COPYING_", true),
            ("/a/**", "/a/._COPYING_", true),
            ("/a", "/a/._COPYING_", false),
        ] {
            assert_eq!(pattern(text).matches(path.as_bytes()), is_meant, "{text} {path}");
        }
        assert!(pattern("/a/?").matches(b"/a/\xff"), "a byte that is no UTF-8");
        assert!(!pattern("/a/?").matches(b"/a/\xff\xff"));
        // Not in exponential time.
        let (many, long) = ("/**/a".repeat(50), "/a".repeat(400) + "/b");
        assert!(!pattern(&many).matches(long.as_bytes()));
        assert!(
            !pattern(&("/".to_owned() + &"*a".repeat(60)))
                .matches(("/".to_owned() + &"a".repeat(250) + "b").as_bytes())
        );
    }

    /// The same by its meaning, one way after another.
    fn slow(parts: &[&str], names: &[&str]) -> bool {
        fn name(part: &[char], found: &[char]) -> bool {
            match (part.split_first(), found.split_first()) {
                (None, None) => true,
                (Some(('*', rest)), _) => (0..=found.len()).any(|take| name(rest, &found[take..])),
                (Some((one, rest)), Some((c, behind))) => (*one == '?' || one == c) && name(rest, behind),
                _ => false,
            }
        }
        let chars = |text: &str| text.chars().collect::<Vec<char>>();
        match (parts.split_first(), names.split_first()) {
            (None, None) => true,
            (Some((&"**", [])), _) => !names.is_empty(),
            (Some((&"**", rest)), _) => (0..=names.len()).any(|take| slow(rest, &names[take..])),
            (Some((part, rest)), Some((found, behind))) => name(&chars(part), &chars(found)) && slow(rest, behind),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn as_the_slow_one(
            parts in proptest::collection::vec("\\*\\*|[ab?*]{1,4}", 1..5),
            names in proptest::collection::vec("[ab]{1,4}", 0..6),
        ) {
            let parts: Vec<&str> = parts.iter().map(|p| if p.contains("**") { "**" } else { p.as_str() }).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let path = "/".to_owned() + &names.join("/");
            let found = pattern(&("/".to_owned() + &parts.join("/"))).matches(path.as_bytes());
            prop_assert_eq!(found, slow(&parts, &names), "{:?} {}", parts, path);
        }
    }

    #[test]
    fn the_first_that_matches() {
        let of = |text| PathPolicy { path: pattern(text), classes: Vec::new(), copies: 1, demote_after: None };
        let all = [of("/a/*"), of("/a/**"), of("/**")];
        let found = ["/a/b", "/a/b/c", "/c"].map(|path| policy_of(&all, path.as_bytes()));
        assert_eq!(found, [Some(0), Some(1), Some(2)]);
        assert_eq!(policy_of(&all[..2], b"/c"), None);
        let marks = Watermarks::default();
        assert_eq!(
            [marks.high_of(1000), marks.low_of(1000), marks.high_of(u64::MAX)],
            [900, 800, u64::MAX / 10 * 9 + 4]
        );
    }
}
