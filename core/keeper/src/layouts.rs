//! Which layouts a program reads and writes of what outlives it, so that two programs can be compared before one follows the other.
//!
//! As text, for the word by which a worker says that it is prepared: `name=version` where it reads what it writes and nothing else,
//! `name=oldest-version` where it reads older ones as well, separated by blanks. A program that takes over must read what the one
//! before it wrote, and the other way round: it may die, and the one before it takes over again. So a release that writes a new
//! layout is taken into service by two upgrades: first to one that reads both and writes the old one.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;

/// Oldest and newest version that are read; the newest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    oldest: u32,
    written: u32,
}

impl Range {
    fn reads(self, version: u32) -> bool {
        (self.oldest..=self.written).contains(&version)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.written {
            write!(f, "{}", self.written)
        } else {
            write!(f, "{}-{}", self.oldest, self.written)
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layouts(BTreeMap<String, Range>);

/// A text that lists no layouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutsError {
    /// The word that makes no sense.
    pub word: String,
}

impl fmt::Display for LayoutsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a layout and its version", self.word)
    }
}

impl core::error::Error for LayoutsError {}

/// Why a program cannot follow another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It does not read what is there.
    Ahead {
        /// Of which layout.
        name: String,
        /// The version that is there.
        there: u32,
        /// What it reads; `None`: it does not know the layout.
        reads: Option<String>,
    },
    /// The one before it could not read what it writes, and so not take over again.
    Back {
        /// Of which layout.
        name: String,
        /// The version that it writes.
        written: u32,
        /// What the one before it reads.
        reads: String,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Ahead { name, there, reads: Some(reads) } => {
                write!(f, "what is there has layout {there} of {name}, and it reads {reads}")
            }
            Unreadable::Ahead { name, there, reads: None } => {
                write!(f, "what is there has layout {there} of {name}, which it does not know")
            }
            Unreadable::Back { name, written, reads } => write!(
                f,
                "it writes layout {written} of {name}, and the program that serves reads {reads}: that one could not take over \
                 again; upgrade to a release in between, or restart the node"
            ),
        }
    }
}

impl core::error::Error for Unreadable {}

impl Layouts {
    /// With one more layout, of which `written` is written and all from `oldest` on are read.
    pub fn with(mut self, name: &str, oldest: u32, written: u32) -> Self {
        self.0.insert(name.into(), Range { oldest, written });
        self
    }

    /// Reads what [`Display`](fmt::Display) has written.
    ///
    /// # Errors
    /// A word of it is no layout with a version.
    pub fn parse(text: &str) -> Result<Self, LayoutsError> {
        let one = |word: &str| {
            let (name, versions) = word.split_once('=')?;
            let (oldest, written) = versions.split_once('-').unwrap_or((versions, versions));
            let range = Range { oldest: oldest.parse().ok()?, written: written.parse().ok()? };
            (!name.is_empty() && range.oldest <= range.written).then(|| (name.to_string(), range))
        };
        let each = |word: &str| one(word).ok_or_else(|| LayoutsError { word: word.into() });
        text.split_whitespace().map(each).collect::<Result<_, _>>().map(Layouts)
    }

    /// Whether a program with these layouts can be followed by one with those, and take over again. What only the new one knows is
    /// new, and nothing of it is there.
    ///
    /// # Errors
    /// The first layout, by name, that one of them does not read.
    pub fn can_be_followed_by(&self, next: &Layouts) -> Result<(), Unreadable> {
        for (name, present) in &self.0 {
            let Some(proposed) = next.0.get(name) else {
                return Err(Unreadable::Ahead { name: name.clone(), there: present.written, reads: None });
            };
            if !proposed.reads(present.written) {
                let reads = Some(proposed.to_string());
                return Err(Unreadable::Ahead { name: name.clone(), there: present.written, reads });
            }
            if !present.reads(proposed.written) {
                let (written, reads) = (proposed.written, present.to_string());
                return Err(Unreadable::Back { name: name.clone(), written, reads });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, range)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={range}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts(text: &str) -> Layouts {
        Layouts::parse(text).unwrap()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let list = Layouts::default().with("ram-media", 1, 1).with("journal", 1, 3);
        assert_eq!(list.to_string(), "journal=1-3 ram-media=1");
        assert_eq!(layouts(&list.to_string()), list);
        assert_eq!(layouts(""), Layouts::default());
        for bad in ["x", "=1", "x=", "x=a", "x=2-1", "x=1-", "x=-1", "x=4294967296"] {
            assert_eq!(Layouts::parse(bad), Err(LayoutsError { word: bad.into() }));
        }
    }

    /// Every pair of ranges, against what the words mean.
    #[test]
    fn both_must_read_what_the_other_writes() {
        let ranges = || (1..=4u32).flat_map(|oldest| (oldest..=4).map(move |written| (oldest, written)));
        for (present, proposed) in ranges().flat_map(|a| ranges().map(move |b| (a, b))) {
            let of = |(oldest, written)| Layouts::default().with("a", 1, 1).with("b", oldest, written);
            let ahead = (proposed.0..=proposed.1).any(|v| v == present.1);
            let back = (present.0..=present.1).any(|v| v == proposed.1);
            let said = of(present).can_be_followed_by(&of(proposed));
            match said {
                Ok(()) => assert!(ahead && back),
                Err(Unreadable::Ahead { there, .. }) => assert!(!ahead && there == present.1),
                Err(Unreadable::Back { written, .. }) => assert!(ahead && !back && written == proposed.1),
            }
        }
    }

    #[test]
    fn what_is_only_there_afterwards_is_new() {
        layouts("a=1").can_be_followed_by(&layouts("a=1 b=7")).unwrap();
        let gone = layouts("a=1 b=7").can_be_followed_by(&layouts("a=1")).unwrap_err();
        assert_eq!(gone.to_string(), "what is there has layout 7 of b, which it does not know");
        let ahead = layouts("a=1").can_be_followed_by(&layouts("a=2-3")).unwrap_err();
        assert_eq!(ahead.to_string(), "what is there has layout 1 of a, and it reads 2-3");
        let back = layouts("a=1").can_be_followed_by(&layouts("a=1-2")).unwrap_err().to_string();
        assert!(back.starts_with("it writes layout 2 of a, and the program that serves reads 1: "), "{back}");
    }
}
