//! Get LBA Status (NVM 1.0, 4.2.1 and 5.8) and what belongs to it: the LBA Status Information log page, its event and its feature.
//!
//! The blocks that may be unrecoverable are those that Write Uncorrectable has marked: all are tracked, so a scan finds no others.
//! The event comes at once: the only report interval (feature 15h) is 0.

use super::{Admin, AdminOutcome};
use crate::controller::Controller;
use crate::host::Host;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::Status;
use weir_spec::nvme::lba_status::{
    EVERY_BLOCK, LbaStatusDescriptor, LbaStatusDw13, LbaStatusElement, LbaStatusHeader, LbaStatusLog, LbaStatusRange,
    STATUS_WRITE_UNCORRECTABLE, action, completion,
};
use weir_spec::nvme::log::AsyncEvent;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Ranges that the log page names of a namespace; where there are more, the host looks at all blocks.
const RANGES_MAX: usize = 16;

/// The generation counter of the log page.
pub(crate) const SECTION: Section = Section { id: 34, version: 1, save, restore };

fn save(drive: &Subsystem, to: &mut Writer) {
    if drive.slow_path.generation != 0 {
        to.u16(drive.slow_path.generation);
    }
}

fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    drive.slow_path.generation = from.u16()?;
    Ok(())
}

impl Subsystem {
    /// Get LBA Status.
    pub(super) fn get_lba_status<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let done = self.list_lba_status(admin).and_then(|list| admin.answer(host, 0, &list));
        AdminOutcome::status(done.err().unwrap_or(Status::SUCCESS))
    }

    fn list_lba_status(&self, admin: &Admin) -> Result<Vec<u8>, Status> {
        let (sqe, nsid) = (&admin.sqe, admin.sqe.nsid.get());
        let blocks = self.visible(admin.c, nsid)?.blocks;
        let slba = u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32;
        let (room, dw13) = (list_len(sqe.cdw12.get()), LbaStatusDw13(sqe.cdw13.get()));
        if ![action::SCAN, action::TRACKED].contains(&(dw13.atype() as u8)) || room > self.config.max_transfer() {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let end = match dw13.range() {
            0 => blocks,
            range => slba.saturating_add(range.into()),
        };
        if slba >= blocks || end > blocks {
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        let fit = (room as usize).saturating_sub(size_of::<LbaStatusHeader>()) / size_of::<LbaStatusDescriptor>();
        let mut marked = self.slow_path.unreadable.get(&nsid).into_iter().flat_map(|marked| marked.within(slba, end));
        let descriptor = |(first, end): (u64, u64)| LbaStatusDescriptor {
            dslba: U64::new(first),
            nlb: U32::new((end - first - 1) as u32),
            status: STATUS_WRITE_UNCORRECTABLE,
            ..Default::default()
        };
        let descriptors: Vec<_> = marked.by_ref().take(fit).map(descriptor).collect();
        let cmpc = if marked.next().is_some() { completion::INCOMPLETE } else { completion::COMPLETE };
        let header = LbaStatusHeader { count: U32::new(descriptors.len() as u32), cmpc, ..Default::default() };
        let mut list = [header.as_bytes(), descriptors.as_bytes()].concat();
        list.truncate(room as usize);
        Ok(list)
    }

    /// Blocks of a namespace may be unrecoverable that were not: the hosts that see it are told.
    pub(crate) fn note_unrecoverable(&mut self, nsid: u32) {
        self.slow_path.generation = self.slow_path.generation.wrapping_add(1);
        self.touch();
        for c in 0..self.controllers.list.len() as u32 {
            if self.is_attached(c, nsid) {
                self.note_event_at(c, AsyncEvent::LBA_STATUS, None);
            }
        }
    }

    /// The log page. `retain`: it stays as it is until its host has read it without.
    pub(super) fn lba_status_log(&mut self, c: u32, retain: bool) -> Vec<u8> {
        let held = self.ctrl(c).and_then(|ctrl| ctrl.lba_status.clone());
        let page = held.unwrap_or_else(|| self.build_lba_status_log(c));
        if let Some(ctrl) = self.ctrl_mut(c).filter(|_| retain) {
            ctrl.lba_status = Some(page.clone());
        }
        page
    }

    fn build_lba_status_log(&self, c: u32) -> Vec<u8> {
        let (mut list, mut elements, mut estimate) = (Vec::new(), 0, 0u64);
        for (nsid, marked) in &self.slow_path.unreadable {
            if self.visible(c, *nsid).is_err() {
                continue;
            }
            let ranges: Vec<_> = marked.iter().take(RANGES_MAX + 1).map(range).collect();
            let listed = if ranges.len() > RANGES_MAX { &[][..] } else { &ranges };
            let count = if listed.is_empty() { EVERY_BLOCK } else { listed.len() as u32 };
            let (nsid, ranges) = (U32::new(*nsid), U32::new(count));
            let element = LbaStatusElement { nsid, ranges, action: action::TRACKED, ..Default::default() };
            list.extend_from_slice(element.as_bytes());
            list.extend_from_slice(listed.as_bytes());
            (elements, estimate) = (elements + 1, estimate + marked.blocks());
        }
        let header = LbaStatusLog {
            length: U32::new((size_of::<LbaStatusLog>() + list.len()) as u32),
            elements: U32::new(elements),
            estimate: U32::new(u32::try_from(estimate).unwrap_or(u32::MAX)),
            generation: U16::new(self.slow_path.generation),
            ..Default::default()
        };
        [header.as_bytes(), &list].concat()
    }
}

impl Controller {
    /// Its host has read the log page: the next time it is a new one.
    pub(super) fn lba_status_was_read(&mut self) {
        self.lba_status = None;
    }
}

fn range((first, end): (u64, u64)) -> LbaStatusRange {
    LbaStatusRange { rslba: U64::new(first), rnlb: U32::new((end - first - 1) as u32), ..Default::default() }
}

/// Bytes that MNDW, in CDW12, has room for.
pub(crate) fn list_len(mndw: u32) -> u64 {
    (u64::from(mndw) + 1) * 4
}
