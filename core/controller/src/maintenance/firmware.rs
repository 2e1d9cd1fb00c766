//! Firmware slots (base 2.0, 3.11): what is downloaded, committed and activated.
//!
//! Slot 1 holds the image that the drive was made with and is read only. An image is what [`firmware_image`] makes; the drive keeps
//! of it the revision, which Identify tells while its slot is active: nothing in it is executed.
//!
//! ```text
//!  offset  bytes  field
//!       0      8  magic "WEIRFW01"
//!       8      8  revision, ASCII, padded with spaces
//!      16      4  length of the whole image in bytes, a multiple of 4096
//!      20      4  CRC32C of the image with this field zero
//!      24      …  payload
//! ```

use crate::saved::crc::crc32c;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::wire::set_text;

/// Slots; the first is read only.
pub(crate) const SLOTS: usize = 3;
/// FRMW: slot 1 is read only, three slots, activation without a reset.
pub(crate) const FRMW: u8 = 1 | (SLOTS as u8) << 1 | 1 << 4;
/// FWUG, in 4 KiB: pieces are so large and begin at a multiple of it.
pub(crate) const GRANULARITY: u8 = 1;
/// The largest image.
pub(crate) const IMAGE_MAX: usize = 4 << 20;
const MAGIC: [u8; 8] = *b"WEIRFW01";
const HEAD: usize = 24;
pub(crate) const UNIT: usize = 4096;

/// A firmware image of that revision (at most 8 ASCII characters, none of them a space) for drives of this program; `None` where
/// the revision is none, or the payload larger than 4 MiB.
pub fn firmware_image(revision: &str, payload: &[u8]) -> Option<Vec<u8>> {
    let good = !revision.is_empty() && revision.len() <= 8 && revision.bytes().all(|b| b.is_ascii_graphic());
    let length = (HEAD + payload.len()).next_multiple_of(UNIT);
    if !good || length > IMAGE_MAX {
        return None;
    }
    let mut image = alloc::vec![0; length];
    image[..8].copy_from_slice(&MAGIC);
    set_text(&mut image[8..16], revision, b' ');
    image[16..20].copy_from_slice(&(length as u32).to_le_bytes());
    image[HEAD..HEAD + payload.len()].copy_from_slice(payload);
    let crc = crc32c(&image);
    image[20..HEAD].copy_from_slice(&crc.to_le_bytes());
    Some(image)
}

/// The revision of an image, if it is one.
pub(crate) fn revision_of(image: &mut [u8]) -> Option<[u8; 8]> {
    let head = image.get(..HEAD)?;
    let word = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let (length, crc) = (word(16), word(20));
    let revision: [u8; 8] = head[8..16].try_into().ok()?;
    if head[..8] != MAGIC || length as usize != image.len() || !revision[0].is_ascii_graphic() {
        return None;
    }
    image[20..HEAD].fill(0);
    (crc32c(image) == crc && revision.iter().all(|b| matches!(b, b' '..=b'~'))).then_some(revision)
}

/// The slots, and what is being downloaded.
#[derive(Clone, Debug)]
pub(crate) struct Firmware {
    /// Revisions of slots 2 and 3.
    pub slots: [Option<[u8; 8]>; SLOTS - 1],
    /// The slot that runs, and the one that will after the next reset; 0: the same.
    pub active: u8,
    pub next: u8,
    /// Pieces by offset.
    pub download: Vec<(usize, Vec<u8>)>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self { slots: [None; SLOTS - 1], active: 1, next: 0, download: Vec::new() }
    }
}

impl Firmware {
    /// Whether a slot's image is activated by the next reset.
    pub fn is_pending(&self) -> bool {
        self.next != 0
    }

    /// The downloaded image in one piece; its pieces are gone.
    pub fn image(&mut self) -> Result<Vec<u8>, Status> {
        let mut image = Vec::new();
        for (offset, piece) in core::mem::take(&mut self.download) {
            if offset != image.len() {
                return Err(Status::INVALID_FIRMWARE_IMAGE.dnr());
            }
            image.extend(piece);
        }
        Ok(image)
    }
}
