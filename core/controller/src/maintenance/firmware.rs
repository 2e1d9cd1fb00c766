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

use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::crc32c::crc32c;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::FirmwareSlots;
use weir_spec::nvme::maintenance::{CommitDw10, commit};
use weir_spec::nvme::wire::set_text;

/// Slots; the first is read only.
const SLOTS: usize = 3;
/// FRMW: slot 1 is read only, three slots, activation without a reset.
pub(crate) const FRMW: u8 = 1 | (SLOTS as u8) << 1 | 1 << 4;
/// FWUG, in 4 KiB: pieces are so large and begin at a multiple of it.
pub(crate) const GRANULARITY: u8 = 1;
/// The largest image.
const IMAGE_MAX: usize = 4 << 20;
const MAGIC: [u8; 8] = *b"WEIRFW01";
const HEAD: usize = 24;
const UNIT: usize = 4096;

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
fn revision_of(image: &mut [u8]) -> Option<[u8; 8]> {
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
    /// The revision of slot 1.
    factory: [u8; 8],
    /// Revisions of slots 2 and 3.
    slots: [Option<[u8; 8]>; SLOTS - 1],
    /// The slot that runs, and the one that will after the next reset; 0: the same.
    active: u8,
    next: u8,
    /// Pieces by offset.
    download: Vec<(usize, Vec<u8>)>,
}

impl Firmware {
    /// Of a drive that was made with that revision.
    pub fn new(revision: &str) -> Self {
        let mut factory = [0; 8];
        set_text(&mut factory, revision, b' ');
        Self { factory, slots: [None; SLOTS - 1], active: 1, next: 0, download: Vec::new() }
    }

    /// Whether a slot's image is activated by the next reset.
    pub fn is_pending(&self) -> bool {
        self.next != 0
    }

    /// The revision in a slot; 0: in the one that runs.
    pub fn revision(&self, slot: u8) -> Option<[u8; 8]> {
        match if slot == 0 { self.active } else { slot } {
            1 => Some(self.factory),
            slot => self.slots.get(usize::from(slot).wrapping_sub(2)).copied().flatten(),
        }
    }

    /// The revision that runs.
    pub fn running(&self) -> [u8; 8] {
        self.revision(0).unwrap_or([b' '; 8])
    }

    /// Firmware slot information (log page 03h).
    pub fn page(&self) -> FirmwareSlots {
        let mut page = FirmwareSlots { afi: self.active | self.next << 4, ..Default::default() };
        for (slot, to) in (1..=SLOTS as u8).zip(&mut page.revisions) {
            *to = self.revision(slot).unwrap_or_default();
        }
        page
    }

    /// A piece of an image is about to be downloaded: so many bytes from `offset` on.
    ///
    /// # Errors
    /// It is of the wrong size, or overlaps another one: then all are dropped.
    pub fn expect(&mut self, offset: usize, length: usize) -> Result<(), Status> {
        let unit = UNIT * usize::from(GRANULARITY);
        if length % unit != 0 || offset % unit != 0 || offset.saturating_add(length) > IMAGE_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let end = |(at, piece): &(usize, Vec<u8>)| at + piece.len();
        let pieces = &mut self.download;
        if pieces.iter().any(|piece| piece.0 < offset + length && end(piece) > offset) {
            // The image cannot be what its host thinks it is.
            pieces.clear();
            return Err(Status::OVERLAPPING_RANGE.dnr());
        }
        Ok(())
    }

    /// A piece that was [expected](Self::expect).
    pub fn put(&mut self, offset: usize, piece: Vec<u8>) {
        let place = self.download.partition_point(|(at, _)| *at < offset);
        self.download.insert(place, (offset, piece));
    }

    /// Firmware Commit (base 2.0, 5.12): whether the slot is to be [activated](Self::activate) now.
    pub fn commit(&mut self, dw10: CommitDw10) -> Result<bool, Status> {
        let slot = dw10.fs() as u8;
        let bad_slot = Status::INVALID_FIRMWARE_SLOT.dnr();
        if dw10.ca() > commit::ACTIVATE_NOW {
            // Boot partitions, of which there are none.
            return Err(Status::INVALID_FIELD.dnr());
        }
        if usize::from(slot) > SLOTS {
            return Err(bad_slot);
        }
        let replaces =
            dw10.ca() <= commit::REPLACE_AND_ACTIVATE || dw10.ca() == commit::ACTIVATE_NOW && !self.download.is_empty();
        let slot = match (slot, replaces) {
            // One that is empty, else one that does not run.
            (0, true) => {
                (2..=SLOTS as u8).find(|s| self.revision(*s).is_none()).unwrap_or(if self.active == 2 { 3 } else { 2 })
            }
            (0, false) | (1, true) => return Err(bad_slot),
            (slot, _) => slot,
        };
        if replaces {
            let revision = self.image().map(|mut image| revision_of(&mut image))?;
            let revision = revision.ok_or(Status::INVALID_FIRMWARE_IMAGE.dnr())?;
            self.slots[usize::from(slot) - 2] = Some(revision);
        } else if self.revision(slot).is_none() {
            return Err(Status::INVALID_FIRMWARE_IMAGE.dnr());
        }
        if dw10.ca() != commit::REPLACE {
            self.next = slot;
        }
        Ok(dw10.ca() == commit::ACTIVATE_NOW)
    }

    /// A reset, or the power, is there: what was committed runs from now on. Whether that is another slot.
    pub fn activate(&mut self) -> bool {
        self.download.clear();
        let next = core::mem::take(&mut self.next);
        if next != 0 {
            self.active = next;
        }
        next != 0
    }

    /// The downloaded image in one piece; its pieces are gone.
    fn image(&mut self) -> Result<Vec<u8>, Status> {
        let mut image = Vec::new();
        for (offset, piece) in core::mem::take(&mut self.download) {
            if offset != image.len() {
                return Err(Status::INVALID_FIRMWARE_IMAGE.dnr());
            }
            image.extend(piece);
        }
        Ok(image)
    }

    /// What is remembered of the slots without power.
    pub fn save(&self, to: &mut Writer) {
        to.u8(self.active);
        to.u8(self.next);
        for slot in &self.slots {
            to.array(&slot.unwrap_or_default());
        }
    }

    /// Takes what [`save`](Self::save) has written.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let (active, next) = (from.u8()?, from.u8()?);
        for slot in &mut self.slots {
            *slot = Some(from.array()?).filter(|revision| *revision != [0; 8]);
        }
        // The power was off: what was to be activated is.
        self.active = if next != 0 { next } else { active };
        if self.active == 0 || self.revision(0).is_none() { Err(Damaged) } else { Ok(()) }
    }
}
