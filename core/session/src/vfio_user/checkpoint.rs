//! A client while it is served, as bytes in a file of two slots, so that another process goes on where this one was killed.
//!
//! ```text
//!  slot 0:  SlotHead │ CheckpointHead │ name of each descriptor u64 … │ Post … │ the device and its client │ the controller │ generation u64
//!  slot 1:  the same, of the time before or after
//! ```
//! `docs/reference/formats.md` has the tables. It is written once in a turn, before anything of that turn can be seen: answers, completions of admin
//! commands, their interrupts. The slot of the last but one is overwritten, so that one is whole whenever the process dies; the whole one
//! of the higher generation counts. Whole is a slot whose checksum is right and that ends in its own generation: where a section ends in a
//! checksum of its own, as the device does, it adds the same to the slot's whatever it holds, so that one which was left behind by an earlier checkpoint of the same
//! length would not be seen. What queues of I/O commands have done since is their journal's to tell, and so is what messages have
//! rung since that did nothing else ([`VfioUserDevice::only_rings`](super::VfioUserDevice::only_rings)): a turn with no others needs none.

use alloc::vec::Vec;
use weir_codec::{Damaged, Flags, Reader, SavedError, Writer, record};
use weir_spec::nvme::tcp::Digest;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 2;
/// Length of a slot. What is longer cannot be kept.
pub const SLOT: u64 = 4 << 20;
const MAGIC: [u8; 8] = *b"WEIRLIVE";

/// What a slot begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SlotHead {
    /// `WEIRLIVE`.
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Bytes behind this.
    pub length: U32,
    /// Counts what was written, from 1.
    pub generation: U64,
    /// CRC32C of the rest of this, and of the bytes behind it.
    pub crc: U32,
}

record! {
    /// What stands behind it.
    struct CheckpointHead {
        /// A process that finds it can go on; the other one says nothing.
        flags: [bool; 2] as Flags<u32>,
        /// Descriptors that the client has handed over.
        files: u32,
        /// Completions of admin commands that may not have been written.
        posts: u32,
        /// Bytes of the device and its client.
        device: u32,
        /// Bytes of the controller.
        controller: u32,
        /// Which client, of all that the keeper has let in.
        client: u64,
        /// Messages of the client that have had their effect; those since have only rung doorbells, which the journal has, and come again.
        applied: u64,
        /// Messages to the client before the first unsent one.
        answered: u64,
        /// The name that was given to a descriptor last.
        named: u64,
    }
}

/// Length of [`SlotHead`].
pub const HEAD: usize = size_of::<SlotHead>();
/// Length of the generation at the end.
const END: usize = 8;
const _: () = assert!(HEAD == 28);

/// A completion of an admin command: where it goes, its two words, what is signalled.
pub type Post = [u64; 4];

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// A process that finds it can go on.
    pub survives: bool,
    /// Which client, of all that the keeper has let in.
    pub client: u64,
    /// Messages that have had their effect.
    pub applied: u64,
    /// Messages that had been sent to the client before the first unsent one.
    pub answered: u64,
    /// The name that was given to a descriptor last.
    pub named: u64,
    /// The names of its descriptors, in the order of [`Client`](super::Client).
    pub files: Vec<u64>,
    /// Completions that have not been written for certain.
    pub posts: Vec<Post>,
    /// The device and its client, as [`Device::save`](super::Device::save) writes them.
    pub device: Vec<u8>,
    /// The controller.
    pub controller: Vec<u8>,
}

fn crc<D: Digest>(head: &SlotHead, body: &[u8]) -> u32 {
    D::append(D::append(0, &head.as_bytes()[..HEAD - 4]), body)
}

impl Checkpoint {
    /// As it is written at [`place`] of that generation; `None`: it is too long.
    pub fn to_bytes<D: Digest>(&self, generation: u64) -> Option<Vec<u8>> {
        let inner = CheckpointHead {
            flags: [self.survives, false],
            files: self.files.len() as u32,
            posts: self.posts.len() as u32,
            device: self.device.len() as u32,
            controller: self.controller.len() as u32,
            client: self.client,
            applied: self.applied,
            answered: self.answered,
            named: self.named,
        };
        let mut to = Writer::default();
        to.array(&[0; HEAD]);
        to.put(&inner);
        to.many(&self.files);
        to.many(&self.posts);
        to.array(&self.device);
        to.array(&self.controller);
        to.u64(generation);
        let mut bytes = to.done();
        if bytes.len() as u64 > SLOT {
            return None;
        }
        let mut head = SlotHead {
            magic: MAGIC,
            version: U32::new(VERSION),
            length: U32::new((bytes.len() - HEAD) as u32),
            generation: U64::new(generation),
            crc: U32::new(0),
        };
        head.crc = U32::new(crc::<D>(&head, &bytes[HEAD..]));
        bytes[..HEAD].copy_from_slice(head.as_bytes());
        Some(bytes)
    }

    /// The checkpoint that counts of two slots' bytes, and its generation; `None` where none was ever finished.
    ///
    /// # Errors
    /// One that is whole is of another release, or contradicts itself.
    pub fn newest<D: Digest>(slots: [&[u8]; 2]) -> Result<Option<(u64, Self)>, SavedError> {
        let whole = slots.into_iter().filter_map(whole::<D>).max_by_key(|(head, _)| head.generation.get());
        let Some((head, body)) = whole else { return Ok(None) };
        if head.version.get() != VERSION {
            return Err(SavedError::Version { found: head.version.get(), oldest: VERSION, newest: VERSION });
        }
        let mut from = Reader::of(body);
        let checkpoint = Self::read(&mut from)?;
        from.array::<END>()?;
        from.end()?;
        Ok(Some((head.generation.get(), checkpoint)))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let head: CheckpointHead = from.get()?;
        let ([survives, _], device, controller) = (head.flags, head.device as usize, head.controller as usize);
        let CheckpointHead { client, applied, answered, named, .. } = head;
        let (files, posts) = (from.many(head.files)?, from.many(head.posts)?);
        let (device, controller) = (from.take(device)?.to_vec(), from.take(controller)?.to_vec());
        Ok(Self { survives, client, applied, answered, named, files, posts, device, controller })
    }
}

/// Where the checkpoint of a generation is written in its file.
pub fn place(generation: u64) -> u64 {
    generation % 2 * SLOT
}

/// Bytes of a slot that begins so, as far as it may have any.
pub fn length(head: &[u8; HEAD]) -> usize {
    let length = SlotHead::read_from_bytes(head).map_or(0, |head| head.length.get());
    HEAD + length.min(SLOT as u32 - HEAD as u32) as usize
}

/// A slot that was written to its end.
fn whole<D: Digest>(slot: &[u8]) -> Option<(SlotHead, &[u8])> {
    let (head, rest) = SlotHead::read_from_prefix(slot).ok()?;
    let body = rest.get(..head.length.get() as usize)?;
    let sound = head.magic == MAGIC && u64::from(head.length.get()) <= SLOT - HEAD as u64;
    // Of another version nothing else is known.
    let ends = head.version.get() != VERSION || body.ends_with(head.generation.as_bytes());
    (sound && ends && crc::<D>(&head, body) == head.crc.get()).then_some((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;
    use weir_spec::nvme::tcp::TableDigest;

    fn some() -> impl Strategy<Value = Checkpoint> {
        // Some with a checksum of their own at the end, and of the same length again and again.
        let free = || proptest::collection::vec(any::<u8>(), 0..300);
        let summed = || {
            proptest::collection::vec(any::<u8>(), 40).prop_map(|mut bytes| {
                bytes.extend(TableDigest::append(0, &bytes).to_le_bytes());
                bytes
            })
        };
        let bytes = || prop_oneof![1 => free(), 3 => summed()];
        let words = || proptest::collection::vec(any::<u64>(), 0..3);
        let posts = proptest::collection::vec(any::<Post>(), 0..2);
        (any::<bool>(), any::<[u64; 4]>(), words(), posts, bytes(), bytes()).prop_map(
            |(survives, [client, applied, answered, named], files, posts, device, controller)| Checkpoint {
                survives,
                client,
                applied,
                answered,
                named,
                files,
                posts,
                device,
                controller,
            },
        )
    }

    fn newest(file: &[u8]) -> Result<Option<(u64, Checkpoint)>, SavedError> {
        Checkpoint::newest::<TableDigest>([file, file.get(SLOT as usize..).unwrap_or_default()])
    }

    fn put(file: &mut Vec<u8>, generation: u64, bytes: &[u8]) {
        let at = place(generation) as usize;
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]
        /// Whoever dies in the middle of the third leaves the second, wherever that was.
        #[test]
        fn one_is_whole_after_every_byte(each in proptest::collection::vec(some(), 3)) {
            let mut file = vec![];
            prop_assert_eq!(newest(&file), Ok(None));
            for (one, generation) in each[..2].iter().zip(1..) {
                put(&mut file, generation, &one.to_bytes::<TableDigest>(generation).unwrap());
                prop_assert_eq!(newest(&file), Ok(Some((generation, one.clone()))));
            }
            let third = each[2].to_bytes::<TableDigest>(3).unwrap();
            for torn in 0..third.len() {
                let mut file = file.clone();
                put(&mut file, 3, &third[..torn]);
                let found = newest(&file);
                // The last bytes may be those that stood there.
                let same = file.get(SLOT as usize..).is_some_and(|slot| slot.starts_with(&third));
                let want = if same { (3, each[2].clone()) } else { (2, each[1].clone()) };
                prop_assert_eq!(found, Ok(Some(want)), "{} bytes", torn);
            }
            put(&mut file, 3, &third);
            prop_assert_eq!(newest(&file), Ok(Some((3, each[2].clone()))));
        }
    }

    #[test]
    fn fields_are_lines_of_the_formats_page() {
        let page = include_str!("../../../../docs/reference/formats.md");
        let missing = weir_codec::undocumented(page, [("a checkpoint", CheckpointHead::rows())]);
        assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
    }

    /// A death between two pages of the third: its head, and the device of the first.
    #[test]
    fn a_section_with_its_own_checksum_is_not_taken_from_the_checkpoint_before() {
        let of = |n: u8| {
            let mut device = vec![n; 8192];
            device.extend(TableDigest::append(0, &device).to_le_bytes());
            Checkpoint { applied: n.into(), device, ..Checkpoint::default() }
        };
        let mut file = vec![];
        for n in 1..=2 {
            put(&mut file, n.into(), &of(n).to_bytes::<TableDigest>(n.into()).unwrap());
        }
        put(&mut file, 3, &of(3).to_bytes::<TableDigest>(3).unwrap()[..HEAD + 52]);
        assert_eq!(newest(&file), Ok(Some((2, of(2)))));
    }

    #[test]
    fn what_is_too_long_or_from_elsewhere_is_refused() {
        let long = Checkpoint { device: vec![0; SLOT as usize], ..Checkpoint::default() };
        assert_eq!(long.to_bytes::<TableDigest>(1), None);
        let mut later = Checkpoint::default().to_bytes::<TableDigest>(2).unwrap();
        later[8] = 9;
        let head = SlotHead::read_from_prefix(&later).unwrap().0;
        let sum = crc::<TableDigest>(&head, &later[HEAD..]);
        later[HEAD - 4..HEAD].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(newest(&later), Err(SavedError::Version { found: 9, oldest: VERSION, newest: VERSION }));
        // Whole, and longer inside than outside.
        let mut false_one = Checkpoint::default().to_bytes::<TableDigest>(2).unwrap();
        false_one[HEAD + 4] = 200;
        let head = SlotHead::read_from_prefix(&false_one).unwrap().0;
        let sum = crc::<TableDigest>(&head, &false_one[HEAD..]);
        false_one[HEAD - 4..HEAD].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(newest(&false_one), Err(SavedError::Damaged));
    }
}
