//! Enums that configurations name: `Display` and `FromStr` from one table.

use alloc::string::String;
use core::fmt;

/// A word that names none of an enum's values; prints the ones that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was to be named, as a user would say it.
    pub what: &'static str,
    /// What was written.
    pub given: String,
    /// What may be written.
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no {}; known: ", self.given, self.what)?;
        for (i, name) in self.known.iter().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownName {}

/// `ALL`, `name`, `Display` and `FromStr` for an enum whose values have one name each.
macro_rules! names {
    ($type:ident, $what:literal, $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$type] = &[$($type::$value),+];
            const NAMES: &'static [&'static str] = &[$($name),+];

            /// As configuration and JSON write it.
            pub const fn name(self) -> &'static str {
                match self { $($type::$value => $name),+ }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::UnknownName;
            fn from_str(s: &str) -> Result<Self, $crate::UnknownName> {
                Self::ALL.iter().copied().find(|v| v.name() == s).ok_or_else(|| $crate::UnknownName {
                    what: $what,
                    given: s.into(),
                    known: Self::NAMES,
                })
            }
        }
    };
}
pub(crate) use names;
