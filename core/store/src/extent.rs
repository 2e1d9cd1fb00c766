//! Where bytes are.

use crate::id::NamespaceId;
use alloc::string::String;
use core::fmt;
use weir_codec::{Code, Damaged, Reader, Writer};
use weir_units::Bytes;

/// A contiguous part of a donated namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Where it begins, in bytes from the beginning of the namespace.
    pub offset: Bytes,
    /// Its length in bytes.
    pub length: Bytes,
}

impl Extent {
    /// The first byte behind it, or `None` where the number does not fit.
    pub const fn end(&self) -> Option<Bytes> {
        self.offset.checked_add(self.length)
    }

    /// Whether they have a byte in common. One whose end does not fit reaches to the end of the namespace.
    pub fn overlaps(&self, other: &Extent) -> bool {
        let end = |e: &Extent| e.end().unwrap_or(Bytes(u64::MAX));
        self.namespace == other.namespace && self.offset < end(other) && other.offset < end(self)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of namespace {}", self.length, self.offset, self.namespace)
    }
}

/// Namespace, offset, length; the end has to fit.
impl Code for Extent {
    fn put(&self, to: &mut Writer) {
        to.put(&self.namespace);
        to.u64(self.offset.get());
        to.u64(self.length.get());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let extent = Extent { namespace: from.get()?, offset: Bytes(from.u64()?), length: Bytes(from.u64()?) };
        extent.end().map(|_| extent).ok_or(Damaged)
    }
    fn kind() -> String {
        "namespace u64, offset u64, length u64".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(namespace: u64, offset: u64, length: u64) -> Extent {
        Extent { namespace: NamespaceId(namespace), offset: Bytes(offset), length: Bytes(length) }
    }

    #[test]
    fn what_overlaps() {
        assert!(extent(1, 0, 10).overlaps(&extent(1, 9, 1)));
        assert!(!extent(1, 0, 10).overlaps(&extent(1, 10, 1)));
        assert!(!extent(1, 0, 10).overlaps(&extent(2, 0, 10)));
        assert!(extent(1, u64::MAX - 1, 9).overlaps(&extent(1, u64::MAX - 1, 1)));
    }

    #[test]
    fn one_that_ends_nowhere_is_damaged() {
        for (written, is_read) in [(extent(1, 4096, 8192), true), (extent(1, u64::MAX, 1), false)] {
            let mut to = Writer::default();
            to.put(&written);
            assert_eq!(Reader::of(&to.done()).get::<Extent>().ok(), is_read.then_some(written));
        }
    }
}
