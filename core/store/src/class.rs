//! Classes of media, such as `dram` and `flash`.

use crate::error::StoreError;
use alloc::string::String;
use core::fmt;

/// Bytes of a class's name at the most.
pub const CLASS_NAME_MAX: usize = 64;

/// A class, by its number in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ClassId(pub u16);

weir_codec::coded_as! { ClassId: u16, |id| id.0, |number| Some(ClassId(number)) }

/// The name of a class: 1 to [`CLASS_NAME_MAX`] of `a` to `z`, `0` to `9`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassName(String);

impl ClassName {
    /// The class of that name.
    ///
    /// # Errors
    /// [`StoreError::ClassName`]: it is empty, too long, or has another character.
    pub fn new(name: &str) -> Result<Self, StoreError> {
        let is_good = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_';
        match (1..=CLASS_NAME_MAX).contains(&name.len()) && name.bytes().all(is_good) {
            true => Ok(Self(name.into())),
            false => Err(StoreError::ClassName),
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

weir_codec::coded_as! { ClassName: String, |name| name.0.clone(), |text| ClassName::new(&text).ok() }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_name() {
        for good in ["dram", "flash", "tier-2_b", &"a".repeat(CLASS_NAME_MAX)] {
            assert_eq!(ClassName::new(good).map(|name| name.as_str() == good), Ok(true));
        }
        for bad in ["", "DRAM", "a b", "ä", "a/b", &"a".repeat(CLASS_NAME_MAX + 1)] {
            assert_eq!(ClassName::new(bad), Err(StoreError::ClassName), "{bad:?}");
        }
    }
}
