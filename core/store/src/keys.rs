//! How everything lies in the key-value store: the keys. A key is a letter and big-endian numbers, so that the order of keys is the order
//! of numbers; `docs/reference/formats.md` has the table. [`records`](crate::records) has the values.

use crate::id::{InodeId, NamespaceId, ServiceId, SessionId};
use crate::kv::KvKey;
use crate::name::EntryName;
use alloc::vec::Vec;

/// What a key begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeySpace {
    /// The answer to the last request of a session's slot.
    Answer = b'a',
    /// A chunk of a file's block map that has an unsettled block.
    Unsettled = b'b',
    /// A client's session.
    Session = b'c',
    /// A donated namespace.
    Namespace = b'd',
    /// What an extent of a region is used for.
    Extent = b'e',
    /// A chunk of a file's block map that has a block with fewer copies than the file wants.
    Short = b'f',
    /// Which service a region is leased to.
    RegionLease = b'g',
    /// What a session has acknowledged, until it is fenced.
    Hold = b'h',
    /// An inode.
    Inode = b'i',
    /// A chunk of a file's block map.
    MapChunk = b'k',
    /// A process that serves the store, or stands by.
    Process = b'm',
    /// A name in a container.
    Name = b'n',
    /// Which service owns a container.
    Owner = b'o',
    /// A namespace that was removed.
    Removed = b'r',
    /// A metadata service's lease.
    Service = b's',
    /// Which life of a service is the last one: all its commits expect that.
    Life = b't',
    /// The container that a container is in.
    Parent = b'u',
    /// Which session may write a file.
    Writer = b'w',
    /// An inode that no name leads to any more.
    Orphan = b'x',
    /// The store's classes.
    Classes = b'C',
    /// The next number of a namespace.
    NextNamespace = b'D',
    /// How often sessions were asked to let go of older maps.
    Epoch = b'E',
    /// The next inode number.
    NextInode = b'I',
    /// How many containers have changed their parent so far.
    RenameKey = b'R',
    /// The next session number.
    NextSession = b'S',
    /// The store itself: made once, with the version of all this.
    Store = b'V',
}

impl KeySpace {
    /// The space of keys that begin with this letter.
    pub const fn of(letter: u8) -> Option<Self> {
        Some(match letter {
            b'a' => KeySpace::Answer,
            b'b' => KeySpace::Unsettled,
            b'c' => KeySpace::Session,
            b'd' => KeySpace::Namespace,
            b'e' => KeySpace::Extent,
            b'f' => KeySpace::Short,
            b'g' => KeySpace::RegionLease,
            b'h' => KeySpace::Hold,
            b'i' => KeySpace::Inode,
            b'k' => KeySpace::MapChunk,
            b'm' => KeySpace::Process,
            b'n' => KeySpace::Name,
            b'o' => KeySpace::Owner,
            b'r' => KeySpace::Removed,
            b's' => KeySpace::Service,
            b't' => KeySpace::Life,
            b'u' => KeySpace::Parent,
            b'w' => KeySpace::Writer,
            b'x' => KeySpace::Orphan,
            b'C' => KeySpace::Classes,
            b'D' => KeySpace::NextNamespace,
            b'E' => KeySpace::Epoch,
            b'I' => KeySpace::NextInode,
            b'R' => KeySpace::RenameKey,
            b'S' => KeySpace::NextSession,
            b'V' => KeySpace::Store,
            _ => return None,
        })
    }

    /// The key of this space that has these bytes.
    pub fn key(self, bytes: &[u8]) -> KvKey {
        let mut key = Vec::with_capacity(1 + bytes.len());
        key.push(self as u8);
        key.extend_from_slice(bytes);
        KvKey(key)
    }

    /// The key of a number.
    pub fn number(self, number: u64) -> KvKey {
        self.key(&number.to_be_bytes())
    }

    /// The first key behind all of this space.
    pub fn end(self) -> KvKey {
        KvKey(alloc::vec![self as u8 + 1])
    }
}

/// The key of an inode.
pub fn inode_key(inode: InodeId) -> KvKey {
    KeySpace::Inode.number(inode.get())
}

/// The key of a container's parent.
pub fn parent_key(container: InodeId) -> KvKey {
    KeySpace::Parent.number(container.get())
}

/// The key of a container's owner.
pub fn owner_key(container: InodeId) -> KvKey {
    KeySpace::Owner.number(container.get())
}

/// The key of an orphan.
pub fn orphan_key(inode: InodeId) -> KvKey {
    KeySpace::Orphan.number(inode.get())
}

/// The key of a donated namespace.
pub fn namespace_key(namespace: NamespaceId) -> KvKey {
    KeySpace::Namespace.number(namespace.get())
}

/// The key of a namespace that was removed.
pub fn removed_key(namespace: NamespaceId) -> KvKey {
    KeySpace::Removed.number(namespace.get())
}

/// The key of a file's writer.
pub fn writer_key(file: InodeId) -> KvKey {
    KeySpace::Writer.number(file.get())
}

/// The key of a service's lease.
pub fn service_key(service: ServiceId) -> KvKey {
    KeySpace::Service.number(service.get())
}

/// The key of the last life of a service.
pub fn life_key(service: ServiceId) -> KvKey {
    KeySpace::Life.number(service.get())
}

/// The key of a process that serves the store, or stands by, by its random number.
pub fn process_key(process: u64) -> KvKey {
    KeySpace::Process.number(process)
}

/// The key of a session.
pub fn session_key(session: SessionId) -> KvKey {
    KeySpace::Session.number(session.get())
}

/// The key of the answer to the last request of a slot.
pub fn answer_key(session: SessionId, slot: u16) -> KvKey {
    let mut bytes = session.get().to_be_bytes().to_vec();
    bytes.extend_from_slice(&slot.to_be_bytes());
    KeySpace::Answer.key(&bytes)
}

/// The keys of all answers to requests of a session.
pub fn answer_range(session: SessionId) -> (KvKey, KvKey) {
    let until = session.next().map_or_else(|| KeySpace::Answer.end(), |next| KeySpace::Answer.number(next.get()));
    (KeySpace::Answer.number(session.get()), until)
}

/// The key of a name.
pub fn name_key(container: InodeId, name: &EntryName) -> KvKey {
    let mut bytes = container.get().to_be_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    KeySpace::Name.key(&bytes)
}

/// The keys of a container's names behind `after`, or of all: from the first up to, and without, the second.
pub fn name_range(container: InodeId, after: Option<&EntryName>) -> (KvKey, KvKey) {
    let from = match after {
        None => KeySpace::Name.number(container.get()),
        Some(name) => {
            let mut key = name_key(container, name);
            key.0.push(0);
            key
        }
    };
    // Names have at least one byte, and the last container's number has none behind it.
    let until = container.next().map_or_else(|| KeySpace::Name.end(), |next| KeySpace::Name.number(next.get()));
    (from, until)
}

/// The name in the key of a name.
pub fn name_of(key: &KvKey) -> Option<EntryName> {
    let name = key.0.strip_prefix(&[KeySpace::Name as u8])?.get(8..)?;
    EntryName::new(name).ok()
}

/// The inode in the key of an orphan.
pub fn orphan_of(key: &KvKey) -> Option<InodeId> {
    let number = key.0.strip_prefix(&[KeySpace::Orphan as u8])?;
    Some(InodeId(u64::from_be_bytes(number.try_into().ok()?)))
}

/// The key of the chunk of that number of a file's block map.
pub fn map_chunk_key(file: InodeId, chunk: u32) -> KvKey {
    let mut bytes = file.get().to_be_bytes().to_vec();
    bytes.extend_from_slice(&chunk.to_be_bytes());
    KeySpace::MapChunk.key(&bytes)
}

/// The keys of all chunks of a file's block map.
pub fn map_chunk_range(file: InodeId) -> (KvKey, KvKey) {
    let until = file.next().map_or_else(|| KeySpace::MapChunk.end(), |next| KeySpace::MapChunk.number(next.get()));
    (KeySpace::MapChunk.number(file.get()), until)
}

/// The key that is there while a chunk of a file's block map has an unsettled block.
pub fn unsettled_key(file: InodeId, chunk: u32) -> KvKey {
    let mut bytes = file.get().to_be_bytes().to_vec();
    bytes.extend_from_slice(&chunk.to_be_bytes());
    KeySpace::Unsettled.key(&bytes)
}

/// The keys of all chunks of a file's block map that have an unsettled block.
pub fn unsettled_range(file: InodeId) -> (KvKey, KvKey) {
    let until = file.next().map_or_else(|| KeySpace::Unsettled.end(), |next| KeySpace::Unsettled.number(next.get()));
    (KeySpace::Unsettled.number(file.get()), until)
}

/// The file and the chunk's number in the key of a chunk with an unsettled block.
pub fn unsettled_of(key: &KvKey) -> Option<(InodeId, u32)> {
    let (file, chunk) = key.0.strip_prefix(&[KeySpace::Unsettled as u8])?.split_first_chunk::<8>()?;
    Some((InodeId(u64::from_be_bytes(*file)), u32::from_be_bytes(chunk.try_into().ok()?)))
}

/// The key that is there while a chunk of a file's block map has a block with fewer copies than the file wants.
pub fn short_key(file: InodeId, chunk: u32) -> KvKey {
    let mut bytes = file.get().to_be_bytes().to_vec();
    bytes.extend_from_slice(&chunk.to_be_bytes());
    KeySpace::Short.key(&bytes)
}

/// The file and the chunk's number in such a key.
pub fn short_of(key: &KvKey) -> Option<(InodeId, u32)> {
    let (file, chunk) = key.0.strip_prefix(&[KeySpace::Short as u8])?.split_first_chunk::<8>()?;
    Some((InodeId(u64::from_be_bytes(*file)), u32::from_be_bytes(chunk.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn hex(key: &KvKey) -> String {
        key.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_keys() {
        let name = EntryName::new(b"ab").expect("a name");
        for (key, expected) in [
            (inode_key(InodeId(0x0102)), "690000000000000102"),
            (parent_key(InodeId::ROOT), "750000000000000001"),
            (owner_key(InodeId::ROOT), "6f0000000000000001"),
            (orphan_key(InodeId(9)), "780000000000000009"),
            (writer_key(InodeId(9)), "770000000000000009"),
            (namespace_key(NamespaceId(2)), "640000000000000002"),
            (removed_key(NamespaceId(2)), "720000000000000002"),
            (KeySpace::Classes.key(&[]), "43"),
            (KeySpace::NextSession.key(&[]), "53"),
            (KeySpace::NextNamespace.key(&[]), "44"),
            (service_key(ServiceId(3)), "730000000000000003"),
            (life_key(ServiceId(3)), "740000000000000003"),
            (process_key(3), "6d0000000000000003"),
            (session_key(SessionId(4)), "630000000000000004"),
            (answer_key(SessionId(4), 5), "6100000000000000040005"),
            (name_key(InodeId(2), &name), "6e00000000000000026162"),
            (map_chunk_key(InodeId(2), 7), "6b000000000000000200000007"),
            (unsettled_key(InodeId(2), 7), "62000000000000000200000007"),
            (short_key(InodeId(2), 7), "66000000000000000200000007"),
            (KeySpace::NextInode.key(&[]), "49"),
            (KeySpace::RenameKey.key(&[]), "52"),
            (KeySpace::Store.key(&[]), "56"),
        ] {
            assert_eq!(hex(&key), expected);
        }
    }

    #[test]
    fn ranges_hold_what_they_should() {
        let name = |text: &[u8]| EntryName::new(text).expect("a name");
        for container in [InodeId(1), InodeId(0xff), InodeId(u64::MAX)] {
            let (from, until) = name_range(container, None);
            for text in [&b"\x01"[..], b"\xff\xff", b"m"] {
                let key = name_key(container, &name(text));
                assert!(from <= key && key < until);
                assert_eq!(name_of(&key), Some(name(text)));
            }
            let (behind, _) = name_range(container, Some(&name(b"m")));
            assert!(name_key(container, &name(b"m")) < behind && behind <= name_key(container, &name(b"m\x01")));
            let (first, end) = map_chunk_range(container);
            assert!(first <= map_chunk_key(container, 0) && map_chunk_key(container, u32::MAX) < end);
            let (first, end) = unsettled_range(container);
            assert!(first <= unsettled_key(container, 0) && unsettled_key(container, u32::MAX) < end);
            let session = SessionId(container.get());
            let (first, end) = answer_range(session);
            assert!(first <= answer_key(session, 0) && answer_key(session, u16::MAX) < end);
        }
        assert!(name_key(InodeId(2), &name(b"a")) >= name_range(InodeId(1), None).1);
        assert_eq!(orphan_of(&orphan_key(InodeId(77))), Some(InodeId(77)));
        assert_eq!(unsettled_of(&unsettled_key(InodeId(77), 5)), Some((InodeId(77), 5)));
        assert_eq!(short_of(&short_key(InodeId(77), 5)), Some((InodeId(77), 5)));
        assert_eq!(short_of(&unsettled_key(InodeId(77), 5)), None);
        assert_eq!(
            (unsettled_of(&map_chunk_key(InodeId(77), 5)), unsettled_of(&KeySpace::Unsettled.number(7))),
            (None, None)
        );
        assert_eq!((orphan_of(&inode_key(InodeId(77))), name_of(&inode_key(InodeId(7)))), (None, None));
    }
}
