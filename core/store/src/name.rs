//! Names within a directory.

use crate::error::StoreError;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Bytes of a name at the most.
pub const NAME_BYTES_MAX: usize = 255;

/// A name within a directory: 1 to [`NAME_BYTES_MAX`] bytes but `/` and NUL, and neither `.` nor `..`. Usually UTF-8, but that is not asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(Vec<u8>);

impl EntryName {
    /// The name that these bytes are.
    ///
    /// # Errors
    /// [`StoreError::BadName`] or [`StoreError::NameTooLong`].
    pub fn new(bytes: &[u8]) -> Result<Self, StoreError> {
        match bytes {
            b"" | b"." | b".." => Err(StoreError::BadName),
            _ if bytes.iter().any(|b| matches!(b, b'/' | 0)) => Err(StoreError::BadName),
            _ if bytes.len() > NAME_BYTES_MAX => Err(StoreError::NameTooLong),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// As text; what is no UTF-8 is replaced.
impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

weir_codec::coded_as! { EntryName: Vec<u8>, |name| name.0.clone(), |bytes| EntryName::new(&bytes).ok() }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_name() {
        for good in [&b"a"[..], b"...", b".a", b"\xff\xfe", b"a b\n", &[b'x'; NAME_BYTES_MAX]] {
            assert_eq!(EntryName::new(good).map(|name| name.as_bytes() == good), Ok(true));
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'/'; 300]] {
            assert_eq!(EntryName::new(bad), Err(StoreError::BadName), "{bad:?}");
        }
        assert_eq!(EntryName::new(&[b'x'; NAME_BYTES_MAX + 1]), Err(StoreError::NameTooLong));
    }
}
