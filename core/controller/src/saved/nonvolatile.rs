//! What a drive remembers without power: one blob, of sections that know their own versions.
//!
//! ```text
//!  magic "WEIRNVST" │ version u32 │ length u32 │ sections … │ crc32c u32 of all before
//!  a section: id u16 │ version u16 │ length u32 │ bytes
//! ```
//! All little-endian; `docs/reference/formats.md` has the sections. A section that is missing leaves the drive as it was made; one of an
//! identifier or a version that this release does not know is refused, and so the whole blob: a drive that forgot half of what it
//! was told would be worse. Where the blob is kept is the executor's affair: it writes it whenever
//! [`Subsystem::nonvolatile_generation`] has moved.
//!
//! A part of the drive that has something to remember adds a line to [`SECTIONS`], and calls [`Subsystem::touch`] when it changes.

use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_codec::{SavedError, SavedFormat, Writer};
use weir_spec::nvme::tcp::TableDigest;
use weir_units::Nanos;

/// The version of the whole; sections have their own.
pub const VERSION: u32 = 1;
const FORMAT: SavedFormat = SavedFormat::new(b"WEIRNVST", VERSION, "the state of a drive");

/// Every section, by identifier: 1 to 15 what the drive as a whole remembers, 16 to 31 namespaces, 32 to 47 reservations.
const SECTIONS: &[Section] = &[
    crate::admin::feature::SECTION,
    crate::power::history::SECTION,
    crate::admin::firmware::SECTION,
    crate::admin::sanitize::SECTION,
    crate::admin::self_test::SECTION,
    crate::admin::persistent::SECTION,
    crate::admin::resubmitted::SECTION,
    crate::saved::namespaces::SECTION,
    crate::reservation::SECTION,
    crate::io::slow_path::review::UNREADABLE,
    crate::admin::lba_status::SECTION,
];

impl Subsystem {
    /// Moves whenever something changes that the drive remembers without power.
    pub fn nonvolatile_generation(&self) -> u64 {
        self.changes.nonvolatile
    }

    /// Something that the drive remembers has changed.
    #[cold]
    pub(crate) fn touch(&mut self) {
        self.changes.nonvolatile += 1;
    }

    /// What the drive remembers without power, for [`restore`](Self::restore).
    pub fn save(&self) -> Vec<u8> {
        let mut blob = FORMAT.begin(Nanos(0));
        for section in SECTIONS {
            let mut bytes = Writer::default();
            (section.save)(self, &mut bytes);
            if !bytes.is_empty() {
                blob.put(&(section.id, section.version));
                blob.bytes(&bytes.done());
            }
        }
        FORMAT.seal::<TableDigest>(blob)
    }

    /// Gives a drive that was just made, and has its inside, what it remembered.
    ///
    /// # Errors
    /// Why the blob cannot be read. The drive is half restored then and must not be used.
    pub fn restore(&mut self, blob: &[u8]) -> Result<(), SavedError> {
        let (_, mut rest) = FORMAT.open::<TableDigest>(Nanos(0), blob)?;
        while !rest.is_empty() {
            let (id, version) = rest.get()?;
            let bytes = rest.bytes()?;
            let mut bytes = rest.part(bytes);
            let section = SECTIONS.iter().find(|s| s.id == id && version >= 1 && version <= s.version);
            let section = section.ok_or(SavedError::UnknownSection(id, version))?;
            let restored = (section.restore)(self, &mut bytes, version);
            if restored.is_err() || !bytes.is_empty() {
                return Err(SavedError::Section(id));
            }
        }
        self.resume_sanitize();
        self.resume_self_test();
        // The power has been back once more.
        self.touch();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_an_identifier_of_its_own() {
        for (i, section) in SECTIONS.iter().enumerate() {
            assert!(section.id != 0 && section.version >= 1);
            assert!(SECTIONS[..i].iter().all(|s| s.id < section.id), "ascending: {}", section.id);
        }
    }
}
