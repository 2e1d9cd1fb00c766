//! Lists that Identify answers with: descriptors of a namespace, namespaces, controllers.

/// NIDT: the kind of a namespace identification descriptor (base 2.0, Figure 277).
pub mod nidt {
    /// 8 bytes.
    pub const EUI64: u8 = 1;
    /// 16 bytes.
    pub const NGUID: u8 = 2;
    /// 16 bytes.
    pub const UUID: u8 = 3;
    /// 1 byte: command set identifier.
    pub const CSI: u8 = 4;
}

/// One namespace identification descriptor: its kind and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor<'a> {
    /// NIDT.
    pub kind: u8,
    /// NID.
    pub id: &'a [u8],
}

/// Walks a namespace identification descriptor list (CNS 03h); ends at a zero length or at what does not fit.
pub fn namespace_descriptors(mut list: &[u8]) -> impl Iterator<Item = NamespaceDescriptor<'_>> {
    core::iter::from_fn(move || {
        let (&kind, &len) = (list.first()?, list.get(1)?);
        let id = list.get(4..4 + usize::from(len))?;
        if len == 0 {
            return None;
        }
        list = &list[4 + usize::from(len)..];
        Some(NamespaceDescriptor { kind, id })
    })
}

/// Appends a descriptor at `at` in a list; answers where the next one goes, or `None` if it does not fit.
pub fn put_namespace_descriptor(list: &mut [u8], at: usize, d: NamespaceDescriptor<'_>) -> Option<usize> {
    let end = at.checked_add(4 + d.id.len())?;
    let to = list.get_mut(at..end)?;
    to[..4].copy_from_slice(&[d.kind, u8::try_from(d.id.len()).ok()?, 0, 0]);
    to[4..].copy_from_slice(d.id);
    Some(end)
}

/// A list of 1024 NSIDs, ascending, ended by 0 (CNS 02h, changed namespaces log).
pub fn namespace_list(list: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let words = list.chunks_exact(4).take(1024).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    words.take_while(|nsid| *nsid != 0)
}

/// The controller list (CNS 12h, 13h): a count, then that many ascending CNTLIDs.
pub fn controller_list(list: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let mut words = list.chunks_exact(2).take(2048).map(|c| u16::from_le_bytes([c[0], c[1]]));
    let count = usize::from(words.next().unwrap_or(0));
    words.take(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn descriptors_come_back() {
        let mut list = vec![0u8; 4096];
        let a = NamespaceDescriptor { kind: nidt::UUID, id: &[7; 16] };
        let b = NamespaceDescriptor { kind: nidt::CSI, id: &[0] };
        let at = put_namespace_descriptor(&mut list, 0, a).unwrap();
        assert_eq!(put_namespace_descriptor(&mut list, at, b), Some(25));
        assert_eq!(put_namespace_descriptor(&mut list, 4090, a), None);
        assert_eq!(namespace_descriptors(&list).collect::<Vec<_>>(), [a, b]);
        assert_eq!(namespace_descriptors(&[3, 16, 0, 0, 1]).count(), 0);
    }

    #[test]
    fn lists_stop_where_they_end() {
        assert_eq!(namespace_list(&[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]).collect::<Vec<_>>(), [1, 9]);
        assert_eq!(controller_list(&[2, 0, 1, 0, 5, 0, 9, 0]).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(controller_list(&[200, 0, 1, 0]).collect::<Vec<_>>(), [1]);
        assert_eq!(controller_list(&[]).count(), 0);
    }
}
