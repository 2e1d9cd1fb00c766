//! Where machines stand.

use crate::error::StoreError;
use alloc::string::String;
use core::fmt;

/// Bytes of a location at the most.
pub const LOCATION_MAX: usize = 128;

/// Where a node or client is, from the widest part to the narrowest, separated by `/`: `hall1/rack2`. Empty where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(String);

impl Location {
    /// The location that the text names.
    ///
    /// # Errors
    /// [`StoreError::Location`]: it is too long, has an empty part, or a control character.
    pub fn new(text: &str) -> Result<Self, StoreError> {
        let is_good = text.len() <= LOCATION_MAX
            && !text.chars().any(char::is_control)
            && (text.is_empty() || text.split('/').all(|part| !part.is_empty()));
        if is_good { Ok(Self(text.into())) } else { Err(StoreError::Location) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts, the widest first; none of an empty one.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// How many parts, from the widest on, both have in common.
    pub fn shared_parts(&self, other: &Location) -> usize {
        self.parts().zip(other.parts()).take_while(|(a, b)| a == b).count()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

weir_codec::coded_as! { Location: String, |at| at.0.clone(), |text| Location::new(&text).ok() }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_they_share() {
        let at = |text| Location::new(text).expect("a location");
        assert_eq!(at("hall1/rack2").shared_parts(&at("hall1/rack3")), 1);
        assert_eq!(at("hall1/rack2").shared_parts(&at("hall1/rack2/slot1")), 2);
        assert_eq!(at("").shared_parts(&at("")), 0);
        assert_eq!(at("hall2").shared_parts(&at("hall1")), 0);
        for bad in ["/", "a//b", "a/", "a\n"] {
            assert_eq!(Location::new(bad), Err(StoreError::Location), "{bad:?}");
        }
    }
}
