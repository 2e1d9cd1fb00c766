//! Firmware Image Download and Firmware Commit (base 2.0, 5.12 and 5.13), and what is remembered of the slots.

use crate::admin::{Admin, Outcome};
use crate::host::Host;
use crate::maintenance::firmware::{GRANULARITY, IMAGE_MAX, SLOTS, UNIT, revision_of};
use crate::pointer::check_pointer;
use crate::saved::codec::{Damaged, Reader, Writer};
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::{AsyncEvent, FirmwareSlots};
use weir_spec::nvme::maintenance::{CommitDw10, commit, persistent};
use weir_spec::nvme::wire::set_text;
use weir_units::Nanos;

impl Subsystem {
    /// The revision in a slot.
    fn revision(&self, slot: u8) -> Option<[u8; 8]> {
        if slot == 1 {
            let mut factory = [0; 8];
            set_text(&mut factory, &self.config.firmware, b' ');
            return Some(factory);
        }
        self.maintenance.firmware.slots.get(usize::from(slot).wrapping_sub(2)).copied().flatten()
    }

    /// The revision that runs.
    pub(crate) fn running_revision(&self) -> [u8; 8] {
        self.revision(self.maintenance.firmware.active).unwrap_or([b' '; 8])
    }

    /// Firmware slot information.
    pub(crate) fn firmware_slots(&self) -> FirmwareSlots {
        let mut page = FirmwareSlots {
            afi: self.maintenance.firmware.active | self.maintenance.firmware.next << 4,
            ..Default::default()
        };
        for (slot, to) in (1..=SLOTS as u8).zip(&mut page.revisions) {
            *to = self.revision(slot).unwrap_or_default();
        }
        page
    }

    /// Firmware Image Download (base 2.0, 5.13). Pieces may come in any order, and do not overlap.
    pub(crate) fn download_firmware<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<(), Status> {
        let bytes = |dwords: u32| usize::try_from(u64::from(dwords) * 4).unwrap_or(usize::MAX);
        let (length, offset) = (bytes(admin.sqe.cdw10.get()).saturating_add(4), bytes(admin.sqe.cdw11.get()));
        let unit = UNIT * usize::from(GRANULARITY);
        if length % unit != 0 || offset % unit != 0 || offset.saturating_add(length) > IMAGE_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let pieces = &mut self.maintenance.firmware.download;
        let place = pieces.partition_point(|(at, _)| *at < offset);
        let before = place.checked_sub(1).map(|i| pieces[i].0 + pieces[i].1.len());
        let behind = pieces.get(place).map(|(at, _)| *at);
        if before.is_some_and(|end| end > offset) || behind.is_some_and(|at| at < offset + length) {
            // The image cannot be what its host thinks it is.
            pieces.clear();
            return Err(Status::OVERLAPPING_RANGE.dnr());
        }
        let mut piece = alloc::vec![0; length];
        check_pointer(&admin.data, length as u64)?;
        host.read_data(admin.owner, &admin.data, 0, &mut piece)?;
        pieces.insert(place, (offset, piece));
        Ok(())
    }

    /// Firmware Commit (base 2.0, 5.12).
    pub(crate) fn commit_firmware(&mut self, now: Nanos, admin: &Admin) -> Outcome {
        let dw10 = CommitDw10(admin.sqe.cdw10.get());
        let (before, status) = (self.running_revision(), self.commit(now, dw10).err().unwrap_or(Status::SUCCESS));
        let after = self.revision(if dw10.fs() == 0 { self.maintenance.firmware.active } else { dw10.fs() as u8 });
        let (action, slot) = (dw10.ca() as u8, dw10.fs() as u8);
        let tail = [action, slot, status.sct(), status.sc(), 0, 0];
        let event = [&before[..], &after.unwrap_or_default(), &tail].concat();
        self.record(now, Some(admin.c), persistent::FIRMWARE, &event);
        Outcome::status(status)
    }

    fn commit(&mut self, now: Nanos, dw10: CommitDw10) -> Result<(), Status> {
        let slot = dw10.fs() as u8;
        let bad_slot = Status::INVALID_FIRMWARE_SLOT.dnr();
        if dw10.ca() > commit::ACTIVATE_NOW {
            // Boot partitions, of which there are none.
            return Err(Status::INVALID_FIELD.dnr());
        }
        if usize::from(slot) > SLOTS {
            return Err(bad_slot);
        }
        let replaces = dw10.ca() <= commit::REPLACE_AND_ACTIVATE
            || dw10.ca() == commit::ACTIVATE_NOW && !self.maintenance.firmware.download.is_empty();
        let slot = match (slot, replaces) {
            // One that is empty, else one that does not run.
            (0, true) => (2..=SLOTS as u8)
                .find(|s| self.revision(*s).is_none())
                .unwrap_or(if self.maintenance.firmware.active == 2 { 3 } else { 2 }),
            (0, false) | (1, true) => return Err(bad_slot),
            (slot, _) => slot,
        };
        if replaces {
            let revision = self.maintenance.firmware.image().map(|mut image| revision_of(&mut image))?;
            let revision = revision.ok_or(Status::INVALID_FIRMWARE_IMAGE.dnr())?;
            self.maintenance.firmware.slots[usize::from(slot) - 2] = Some(revision);
        } else if self.revision(slot).is_none() {
            return Err(Status::INVALID_FIRMWARE_IMAGE.dnr());
        }
        match dw10.ca() {
            commit::REPLACE => {}
            commit::ACTIVATE_NOW => {
                self.maintenance.firmware.next = slot;
                self.note_event(AsyncEvent::FIRMWARE_STARTING, None);
                self.activate_firmware(now);
            }
            _ => self.maintenance.firmware.next = slot,
        }
        self.touch();
        Ok(())
    }

    /// A reset, or the power, is there: what was committed runs from now on.
    pub(crate) fn activate_firmware(&mut self, _now: Nanos) {
        self.maintenance.firmware.download.clear();
        let next = core::mem::take(&mut self.maintenance.firmware.next);
        if next != 0 {
            self.maintenance.firmware.active = next;
            self.touch();
        }
    }
}

/// The slots.
pub(crate) const SECTION: Section = Section { id: 3, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    let f = &drive.maintenance.firmware;
    to.u8(f.active);
    to.u8(f.next);
    for slot in &f.slots {
        to.array(&slot.unwrap_or_default());
    }
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    let (active, next) = (from.u8()?, from.u8()?);
    let f = &mut drive.maintenance.firmware;
    for slot in &mut f.slots {
        *slot = Some(from.array()?).filter(|revision| *revision != [0; 8]);
    }
    // The power was off: what was to be activated is.
    f.active = if next != 0 { next } else { active };
    if f.active == 0 || drive.revision(drive.maintenance.firmware.active).is_none() { Err(Damaged) } else { Ok(()) }
}
